/* SPDX-License-Identifier: Apache-2.0
 * torch_tensor.c - the names that a torch pickle may refer to, and the views that its tensors are.
 * torch/_utils.py (_rebuild_tensor_v2 and its like) and torch/serialization.py (persistent_id) say what the arguments
 * mean. Strides and offsets count elements. */
#include "weights/torch.h"

#include "base/checked.h"

/* What a global means here. */
typedef enum global_role {
    ROLE_TENSOR,    /* f(storage, offset, size, stride, ...) is a tensor */
    ROLE_TENSOR_V3, /* the same, and argument 6 is the dtype */
    ROLE_PARAMETER, /* f(tensor, ...) is that tensor */
    ROLE_FROM_TYPE, /* f(g, type, arguments, state) is g(*arguments) */
    ROLE_STORAGE,   /* the type of a storage */
    ROLE_UNTYPED,   /* a storage that counts bytes */
    ROLE_DTYPE,     /* torch.float16 */
    ROLE_SIZE,      /* f(tuple) is that tuple */
    ROLE_OPAQUE, /* a container or an object of no interest: its contents are kept, nothing is made of them */
} global_role;

typedef struct proa_torch_global {
    const char *module, *name; /* name NULL: all of the module, and of the modules in it */
    global_role role;
    int dtype; /* proa_dtype; -1: one that is not read */
} proa_torch_global;

#define STORAGE(name, dtype)                                                                                 \
    {                                                                                                        \
        "torch", name "Storage", ROLE_STORAGE, dtype                                                         \
    }
#define DTYPE(name, dtype)                                                                                   \
    {                                                                                                        \
        "torch", name, ROLE_DTYPE, dtype                                                                     \
    }
#define OPAQUE(module, name)                                                                                 \
    {                                                                                                        \
        module, name, ROLE_OPAQUE, -1                                                                        \
    }

static const proa_torch_global globals[] = {
    {"torch._utils", "_rebuild_tensor_v2", ROLE_TENSOR, -1},
    {"torch._utils", "_rebuild_tensor", ROLE_TENSOR, -1},
    {"torch._utils", "_rebuild_tensor_v3", ROLE_TENSOR_V3, -1},
    {"torch._utils", "_rebuild_parameter", ROLE_PARAMETER, -1},
    {"torch._utils", "_rebuild_parameter_with_state", ROLE_PARAMETER, -1},
    {"torch._tensor", "_rebuild_from_type_v2", ROLE_FROM_TYPE, -1},
    STORAGE("Double", PROA_DTYPE_F64),
    STORAGE("Float", PROA_DTYPE_F32),
    STORAGE("Half", PROA_DTYPE_F16),
    STORAGE("BFloat16", PROA_DTYPE_BF16),
    STORAGE("Long", PROA_DTYPE_I64),
    STORAGE("Int", PROA_DTYPE_I32),
    STORAGE("Short", PROA_DTYPE_I16),
    STORAGE("Char", PROA_DTYPE_I8),
    STORAGE("Byte", PROA_DTYPE_U8),
    STORAGE("Bool", PROA_DTYPE_BOOL),
    STORAGE("ComplexDouble", -1),
    STORAGE("ComplexFloat", -1),
    STORAGE("QInt8", -1),
    STORAGE("QInt32", -1),
    STORAGE("QUInt8", -1),
    STORAGE("QUInt4x2", -1),
    STORAGE("QUInt2x4", -1),
    {"torch.storage", "UntypedStorage", ROLE_UNTYPED, -1},
    {"torch", "UntypedStorage", ROLE_UNTYPED, -1},
    DTYPE("float64", PROA_DTYPE_F64),
    DTYPE("float32", PROA_DTYPE_F32),
    DTYPE("float16", PROA_DTYPE_F16),
    DTYPE("bfloat16", PROA_DTYPE_BF16),
    DTYPE("int64", PROA_DTYPE_I64),
    DTYPE("int32", PROA_DTYPE_I32),
    DTYPE("int16", PROA_DTYPE_I16),
    DTYPE("int8", PROA_DTYPE_I8),
    DTYPE("uint8", PROA_DTYPE_U8),
    DTYPE("bool", PROA_DTYPE_BOOL),
    DTYPE("uint16", -1),
    DTYPE("uint32", -1),
    DTYPE("uint64", -1),
    DTYPE("float8_e4m3fn", -1), /* its scales are tensors of their own, as in safetensors.c */
    DTYPE("float8_e5m2", -1),
    {"torch", "Size", ROLE_SIZE, -1},
    OPAQUE("torch", "device"),
    OPAQUE("torch.nn.parameter", "Parameter"),
    OPAQUE("torch", "Tensor"),
    OPAQUE("collections", "OrderedDict"),
    OPAQUE("collections", "defaultdict"),
    OPAQUE("collections", "Counter"),
    OPAQUE("argparse", "Namespace"),
    /* OpenNMT-py 1 and 2 save the objects of their vocabularies whole. */
    OPAQUE("functools", "partial"),
    OPAQUE("builtins", "getattr"),
    OPAQUE("__builtin__", "getattr"),
    OPAQUE("builtins", "set"),
    OPAQUE("__builtin__", "set"),
    OPAQUE("builtins", "object"),
    OPAQUE("__builtin__", "object"),
    OPAQUE("builtins", "int"),
    OPAQUE("__builtin__", "int"),
    OPAQUE("builtins", "float"),
    OPAQUE("builtins", "list"),
    OPAQUE("builtins", "dict"),
    OPAQUE("builtins", "str"),
    OPAQUE("copyreg", "_reconstructor"),
    OPAQUE("copy_reg", "_reconstructor"),
    OPAQUE("onmt", NULL),
    OPAQUE("torchtext", NULL),
};

/* ---- names ---- */

static bool is_within(proa_str module, const char *outer)
{
    proa_str o = proa_str_c(outer);
    return proa_str_starts(module, o) && (module.len == o.len || module.ptr[o.len] == '.');
}

/* NULL: not a global, or an unknown one. */
static const proa_torch_global *find_global(const proa_torch *t, proa_pickle_value v)
{
    const proa_pickle_node *n = proa_pickle_at(&t->pickle, v);
    if (n->kind != PROA_PICKLE_GLOBAL) return NULL;
    proa_str module = proa_pickle_text(&t->pickle, n->head), name = proa_pickle_text(&t->pickle, n->args);
    for (size_t i = 0; i < PROA_COUNT(globals); i++) {
        const proa_torch_global *g = &globals[i];
        if (g->name ? proa_str_is(module, g->module) && proa_str_is(name, g->name) : is_within(module, g->module))
            return g;
    }
    return NULL;
}

static int shown_length(proa_str s)
{
    return s.len > 60 ? 60 : (int)s.len;
}

proa_status proa_torch_check_globals(const proa_torch *t)
{
    for (proa_pickle_value v = 1; v <= t->pickle.count; v++) {
        const proa_pickle_node *n = proa_pickle_at(&t->pickle, v);
        if (n->kind != PROA_PICKLE_GLOBAL || find_global(t, v)) continue;
        proa_str module = proa_pickle_text(&t->pickle, n->head), name = proa_pickle_text(&t->pickle, n->args);
        return FAIL_TORCH(
            t, UNSUPPORTED,
            "refers to '%.*s.%.*s': only tensors and plain containers are read, and nothing is executed",
            shown_length(module), module.ptr, shown_length(name), name.ptr);
    }
    return PROA_OK;
}

/* ---- storages ---- */

static int64_t integer_of(const proa_torch *t, proa_pickle_value v)
{
    const proa_pickle_node *n = proa_pickle_at(&t->pickle, v);
    return n->kind == PROA_PICKLE_INT ? n->integer : -1;
}

/* The persistent id: ("storage", type, key, device, elements), and in the old format perhaps ((key of the view, first
 * element, elements)). */
proa_status proa_torch_storage_of(const proa_torch *t, proa_pickle_value v, proa_torch_storage *out)
{
    const proa_pickle *p = &t->pickle;
    proa_pickle_value id = proa_pickle_at(p, v)->head, view = proa_pickle_item(p, id, 5);
    *out = (proa_torch_storage){.type = find_global(t, proa_pickle_item(p, id, 1))};
    out->key = proa_pickle_text(p, proa_pickle_item(p, id, 2));
    out->elements = integer_of(t, proa_pickle_item(p, id, 4));
    if (!proa_str_is(proa_pickle_text(p, proa_pickle_item(p, id, 0)), "storage") || !out->type ||
        !out->key.len || out->elements < 0)
        return FAIL_TORCH(t, CORRUPT, "value %d of the pickle is no storage as torch describes one", v);
    if (out->type->role != ROLE_UNTYPED && (out->type->role != ROLE_STORAGE || out->type->dtype < 0))
        return FAIL_TORCH(t, UNSUPPORTED, "a storage of type %s.%s is not supported", out->type->module,
                          out->type->name ? out->type->name : "");
    out->element_bytes = out->type->role == ROLE_UNTYPED ? 1 : proa_dtype_bytes((proa_dtype)out->type->dtype);
    if (proa_pickle_kind_of(p, view) != PROA_PICKLE_TUPLE) return PROA_OK;
    int64_t whole = out->elements;
    out->first = integer_of(t, proa_pickle_item(p, view, 1));
    out->elements = integer_of(t, proa_pickle_item(p, view, 2));
    if (out->first < 0 || out->elements < 0 || out->first > whole || out->elements > whole - out->first)
        return FAIL_TORCH(t, CORRUPT, "a view beyond storage '%.*s'", shown_length(out->key), out->key.ptr);
    return PROA_OK;
}

/* ---- tensors ---- */

/* A call that makes a tensor: its function and its arguments, with parameters and subclasses unwrapped. */
typedef struct tensor_call {
    const proa_torch_global *function; /* ROLE_TENSOR or ROLE_TENSOR_V3; NULL: it is no tensor */
    proa_pickle_value args;
} tensor_call;

static tensor_call find_call(const proa_torch *t, proa_pickle_value v)
{
    const proa_pickle *p = &t->pickle;
    const proa_pickle_node *n = proa_pickle_at(p, v);
    if (n->kind != PROA_PICKLE_CALL) return (tensor_call){NULL, 0};
    tensor_call c = {find_global(t, n->head), n->args};
    for (int unwrapped = 0; c.function && unwrapped < 4; unwrapped++) {
        if (c.function->role == ROLE_TENSOR || c.function->role == ROLE_TENSOR_V3) return c;
        if (c.function->role == ROLE_FROM_TYPE)
            c = (tensor_call){find_global(t, proa_pickle_item(p, c.args, 0)), proa_pickle_item(p, c.args, 2)};
        else if (c.function->role == ROLE_PARAMETER) {
            n = proa_pickle_at(p, proa_pickle_item(p, c.args, 0));
            c = (tensor_call){n->kind == PROA_PICKLE_CALL ? find_global(t, n->head) : NULL, n->args};
        } else break;
    }
    return (tensor_call){NULL, 0};
}

bool proa_torch_is_tensor(const proa_torch *t, proa_pickle_value v)
{
    return find_call(t, v).function != NULL;
}

/* Arguments of torch._utils._rebuild_tensor, _v2 and _v3; only _v3 has the last one. */
enum { ARG_STORAGE = 0, ARG_OFFSET = 1, ARG_SIZES = 2, ARG_STRIDES = 3, ARG_DTYPE = 6 };

#define FAIL_VIEW(t, status, name, fmt, ...)                                                                 \
    FAIL_TORCH(t, status, "tensor '%.*s': " fmt, PROA_NAME_SHOWN, name, __VA_ARGS__)

/* Sizes or strides: a tuple of numbers of at least 0, or torch.Size of one. */
static proa_status read_numbers(const proa_torch *t, proa_pickle_value v, const char *name, const char *which,
                                int64_t out[PROA_RANK_MAX], int32_t *count)
{
    const proa_pickle_node *n = proa_pickle_at(&t->pickle, v);
    const proa_torch_global *g = n->kind == PROA_PICKLE_CALL ? find_global(t, n->head) : NULL;
    if (g && g->role == ROLE_SIZE) n = proa_pickle_at(&t->pickle, proa_pickle_item(&t->pickle, n->args, 0));
    if (n->kind != PROA_PICKLE_TUPLE && n->kind != PROA_PICKLE_LIST)
        return FAIL_VIEW(t, CORRUPT, name, "its %s must be a tuple", which);
    if (n->count > PROA_RANK_MAX)
        return FAIL_VIEW(t, LIMIT, name, "%d axes, at most %d are read", n->count, PROA_RANK_MAX);
    for (int32_t i = 0; i < n->count; i++) {
        out[i] = integer_of(t, n->items[i]);
        if (out[i] < 0) return FAIL_VIEW(t, CORRUPT, name, "a broken number in its %s", which);
    }
    *count = n->count;
    return PROA_OK;
}

/* Elements from the first to the last one; false if they cannot be counted. An empty tensor has none. */
static bool span_of(const proa_view *v, int64_t *span)
{
    int64_t last = 0, part, count = 1;
    for (int32_t i = 0; i < v->rank; i++) {
        if (!proa_mul(count, proa_max64(v->shape[i], 1), &count) || count > INT64_MAX / 16) return false;
        if (!proa_mul(proa_max64(v->shape[i], 1) - 1, v->stride[i], &part) || !proa_add(last, part, &last))
            return false;
    }
    *span = proa_view_count(*v) ? last + 1 : 0;
    return last < INT64_MAX / 16;
}

/* The dtype: the storage's, or for bytes the one that the call gives. */
static proa_status read_dtype(const proa_torch *t, const tensor_call *c, const proa_torch_storage *s,
                              const char *name, proa_dtype *out)
{
    const proa_torch_global *g = s->type;
    if (g->role == ROLE_UNTYPED && c->function->role == ROLE_TENSOR_V3)
        g = find_global(t, proa_pickle_item(&t->pickle, c->args, ARG_DTYPE));
    if (!g || g->dtype < 0)
        return FAIL_VIEW(t, UNSUPPORTED, name, "dtype %s is not supported", g && g->name ? g->name : "unknown");
    *out = (proa_dtype)g->dtype;
    return PROA_OK;
}

/* Where the storage's elements are in the file, and how many elements of the tensor's type it has. */
static proa_status find_place(const proa_torch *t, const proa_torch_storage *s, const char *name,
                              int64_t element_bytes, const unsigned char **data, int64_t *elements)
{
    int32_t at = 0;
    if (!proa_map_find(&t->storages, s->key, &at))
        return FAIL_VIEW(t, CORRUPT, name, "the file has no storage '%.*s'", shown_length(s->key), s->key.ptr);
    const proa_torch_place *place = &t->place[at];
    int64_t first, bytes;
    if (!proa_mul(s->first, s->element_bytes, &first) || !proa_mul(s->elements, s->element_bytes, &bytes) ||
        first > place->bytes || bytes > place->bytes - first)
        return FAIL_VIEW(t, CORRUPT, name, "storage '%.*s' has %lld bytes, fewer than its %lld elements need",
                         shown_length(s->key), s->key.ptr, (long long)place->bytes, (long long)s->elements);
    *data = t->bytes + place->at + first;
    *elements = bytes / element_bytes;
    return PROA_OK;
}

/* Type, shape and strides of the tensor that the call makes; the data are not looked at. */
static proa_status read_shape(const proa_torch *t, const tensor_call *c, const proa_torch_storage *s,
                              const char *name, proa_view *out)
{
    int64_t shape[PROA_RANK_MAX], stride[PROA_RANK_MAX];
    int32_t rank = 0, strides = 0;
    proa_dtype dtype = PROA_DTYPE_F32;
    PROA_TRY(read_dtype(t, c, s, name, &dtype));
    PROA_TRY(read_numbers(t, proa_pickle_item(&t->pickle, c->args, ARG_SIZES), name, "sizes", shape, &rank));
    PROA_TRY(read_numbers(t, proa_pickle_item(&t->pickle, c->args, ARG_STRIDES), name, "strides", stride,
                          &strides));
    if (rank != strides) return FAIL_VIEW(t, CORRUPT, name, "%d sizes and %d strides", rank, strides);
    *out = (proa_view){.dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < PROA_RANK_MAX; i++)
        out->shape[i] = i < rank ? shape[i] : 1, out->stride[i] = i < rank ? stride[i] : 0;
    return PROA_OK;
}

proa_status proa_torch_view(const proa_torch *t, proa_pickle_value v, const char *name, proa_view *out)
{
    const proa_pickle *p = &t->pickle;
    tensor_call c = find_call(t, v);
    proa_pickle_value storage = proa_pickle_item(p, c.args, ARG_STORAGE);
    int64_t offset = integer_of(t, proa_pickle_item(p, c.args, ARG_OFFSET)); /* elements */
    proa_torch_storage s;
    if (proa_pickle_kind_of(p, storage) != PROA_PICKLE_OUTSIDE || offset < 0)
        return FAIL_VIEW(t, CORRUPT, name, "it has no %s", "storage");
    PROA_TRY(proa_torch_storage_of(t, storage, &s));
    PROA_TRY(read_shape(t, &c, &s, name, out));
    const unsigned char *data = NULL;
    int64_t element_bytes = proa_dtype_bytes(out->dtype), elements = 0, span = 0;
    if (!span_of(out, &span)) return FAIL_VIEW(t, CORRUPT, name, "more elements than can be %s", "counted");
    PROA_TRY(find_place(t, &s, name, element_bytes, &data, &elements));
    if (offset > elements || span > elements - offset)
        return FAIL_VIEW(t, CORRUPT, name, "%lld elements at %lld of a storage of %lld", (long long)span,
                         (long long)offset, (long long)elements);
    /* a view's pointer is not const; the pages are read-only */
    out->data = (void *)(uintptr_t)(data + offset * element_bytes);
    return PROA_OK;
}
