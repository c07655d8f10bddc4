/* SPDX-License-Identifier: Apache-2.0
 * infer_json.c - reads an inference request in JSON, with or without binary tensors after it. */
#include "api/http/infer_json.h"

#include "api/frontend.h"
#include "base/limits.h"
#include <inttypes.h>
#include <string.h>

/* A comparison with a literal: its length is known here, which a call would have to count. */
#define IS(s, literal) ((s).len == sizeof(literal) - 1 && memcmp((s).ptr, literal, sizeof(literal) - 1) == 0)

/* What the `parameters` of an input or output hold. */
typedef struct io_params {
    bool has_size, has_region, has_binary, binary, has_classes;
    uint64_t size, classes, offset, bytes;
    proa_str region;
} io_params;

/* One input while its object is read. */
typedef struct input_text {
    proa_str name, datatype;
    bool has_name, has_datatype, has_shape, has_data;
    int32_t rank;
    int64_t shape[PROA_SERVE_RANK_MAX];
    const char *data; /* where its value begins, if it was read before the members that it needs */
    io_params params;
} input_text;

typedef struct reader {
    proa_jread j;
    proa_infer_text *t;
    proa_infer *r;
    bool has_inputs, has_outputs;
} reader;

static proa_status missing_member(const reader *rd, const char *member, proa_err *err)
{
    return proa_err_set(err, rd->j.bad, __FILE__, __LINE__,
                        "Unable to parse '%s': attempt to access non-existing object member '%s'", member,
                        member);
}

static proa_status duplicate_member(const char *member, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "JSON member '%s' is given twice", member);
}

/* ---- parameters ---- */

static proa_status param_value(proa_jread *j, proa_infer_param *p, proa_err *err)
{
    proa_jnumber n;
    switch (proa_jread_peek(j)) {
    case PROA_JREAD_STRING: p->kind = PROA_PARAM_STRING; return proa_jread_string(j, &p->s, err);
    case PROA_JREAD_BOOL: p->kind = PROA_PARAM_BOOL; return proa_jread_bool(j, &p->b, err);
    case PROA_JREAD_NUMBER:
        PROA_TRY(proa_jread_number(j, &n, err));
        if (n.kind == PROA_JNUMBER_INT) p->kind = PROA_PARAM_INT, p->i = n.i;
        else if (n.kind == PROA_JNUMBER_UINT) p->kind = PROA_PARAM_UINT, p->u = n.u;
        else p->kind = PROA_PARAM_DOUBLE, p->d = n.d;
        return PROA_OK;
    case PROA_JREAD_END:
    case PROA_JREAD_OTHER: return proa_jread_fail(j, "Invalid value.", err);
    default:
        return PROA_FAIL(err, INVALID,
                         "parameter '%.*s' has invalid type. It should be either 'int', 'bool', or 'string'.",
                         (int)p->name.len, p->name.ptr);
    }
}

/* Triton's words for a parameter of the protocol with a wrong type. */
static proa_status check_kind(const proa_jread *j, const proa_infer_param *p, proa_err *err)
{
    static const struct {
        const char *name, *type;
    } known[] = {{"sequence_id", "string"},
                 {"sequence_start", "boolean"},
                 {"sequence_end", "boolean"},
                 {"priority", "unsigned-integer"},
                 {"timeout", "unsigned-integer"}};
    for (size_t i = 0; i < PROA_COUNT(known); i++) {
        if (!proa_str_is(p->name, known[i].name)) continue;
        bool uint = p->kind == PROA_PARAM_UINT || (p->kind == PROA_PARAM_INT && p->i >= 0);
        bool ok = i == 0 ? uint || p->kind == PROA_PARAM_STRING : i < 3 ? p->kind == PROA_PARAM_BOOL : uint;
        if (ok) return PROA_OK;
        return proa_err_set(err, j->bad, __FILE__, __LINE__,
                            "Unable to parse '%s': attempt to access JSON non-%s as %s", known[i].name,
                            known[i].type, known[i].type);
    }
    return PROA_OK;
}

proa_status proa_infer_json_param(proa_jread *j, proa_infer *r, proa_str key, bool *binary, proa_err *err)
{
    if (binary && IS(key, "binary_data_output"))
        return proa_jread_flag(j, "Unable to parse 'binary_data_output'", binary, err);
    proa_infer_param p = {.name = key};
    if (key.len && memchr(key.ptr, 0, key.len))
        return PROA_FAIL(err, INVALID, "a parameter's name holds a NUL");
    PROA_TRY(param_value(j, &p, err));
    PROA_TRY(check_kind(j, &p, err));
    return proa_infer_set_param(r, &p, err);
}

static proa_status read_params(reader *rd, proa_err *err)
{
    proa_str key;
    bool more;
    PROA_TRY(proa_jread_expect(&rd->j, "failed to get request params.", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(&rd->j);;) {
        PROA_TRY(proa_jread_member(&rd->j, &key, &more, err));
        if (!more) return PROA_OK;
        PROA_TRY(proa_infer_json_param(&rd->j, rd->r, key, &rd->t->binary_default, err));
    }
}

static proa_status io_param(reader *rd, io_params *p, proa_str key, proa_err *err)
{
    proa_jread *j = &rd->j;
    switch (key.len) {
    case 11:
        if (!IS(key, "binary_data")) break;
        p->has_binary = true;
        return proa_jread_flag(j, "Unable to parse 'binary_data'", &p->binary, err);
    case 14:
        if (!IS(key, "classification")) break;
        p->has_classes = true;
        return proa_jread_uint(j, "Unable to set 'classification'", &p->classes, err);
    case 16:
        if (!IS(key, "binary_data_size")) break;
        p->has_size = true;
        return proa_jread_uint(j, "Unable to parse 'binary_data_size'", &p->size, err);
    case 20:
        if (IS(key, "shared_memory_offset"))
            return proa_jread_uint(j, "Unable to parse 'shared_memory_offset'", &p->offset, err);
        if (!IS(key, "shared_memory_region")) break;
        p->has_region = true;
        return proa_jread_name(j, "Unable to parse 'shared_memory_region'", &p->region, err);
    case 23:
        if (!IS(key, "shared_memory_byte_size")) break;
        return proa_jread_uint(j, "Unable to parse 'shared_memory_byte_size'", &p->bytes, err);
    default: break;
    }
    return proa_jread_skip(j, err);
}

static proa_status read_io_params(reader *rd, io_params *p, proa_err *err)
{
    proa_str key;
    bool more;
    if (proa_jread_peek(&rd->j) != PROA_JREAD_OBJECT) return proa_jread_skip(&rd->j, err);
    for (proa_jread_begin(&rd->j);;) {
        PROA_TRY(proa_jread_member(&rd->j, &key, &more, err));
        if (!more) return PROA_OK;
        PROA_TRY(io_param(rd, p, key, err));
    }
}

/* ---- inputs ---- */

static proa_status read_shape(reader *rd, input_text *in, proa_err *err)
{
    bool more;
    in->has_shape = true;
    in->rank = 0;
    PROA_TRY(proa_jread_expect(&rd->j, "Unable to parse 'shape'", PROA_JREAD_ARRAY, err));
    for (proa_jread_begin(&rd->j);;) {
        uint64_t dim;
        PROA_TRY(proa_jread_element(&rd->j, &more, err));
        if (!more) return PROA_OK;
        if (in->rank == PROA_SERVE_RANK_MAX)
            return PROA_FAIL(err, LIMIT, "a shape has more than %d dimensions", PROA_SERVE_RANK_MAX);
        PROA_TRY(proa_jread_uint(&rd->j, "Unable to parse 'shape'", &dim, err));
        if (dim > INT64_MAX)
            return PROA_FAIL(err, INVALID, "Unable to parse 'shape': %" PRIu64 " is too large", dim);
        in->shape[in->rank++] = (int64_t)dim;
    }
}

/* The value is parsed later, when all that it needs is known. */
static proa_status pass_data(reader *rd, input_text *in, proa_err *err)
{
    if (in->has_data) return duplicate_member("data", err);
    in->has_data = true;
    (void)proa_jread_peek(&rd->j);
    in->data = rd->j.at;
    return proa_jread_skip(&rd->j, err);
}

static proa_status check_content(const input_text *in, proa_err *err)
{
    int count = in->has_data + in->params.has_size + in->params.has_region;
    if (count == 1) return PROA_OK;
    static const char rule[] =
        "Input must set only one of the following fields: 'data', 'binary_data_size' in "
        "'parameters', 'shared_memory_region' in 'parameters'. But";
    if (count == 0) return PROA_FAIL(err, INVALID, "%s no field is set", rule);
    return PROA_FAIL(err, INVALID, "%s set%s%s%s", rule, in->has_data ? " 'data'" : "",
                     in->params.has_size ? " 'binary_data_size'" : "",
                     in->params.has_region ? " 'shared_memory_region'" : "");
}

static proa_status check_shape(const proa_tensor *t, proa_err *err)
{
    if (proa_shape_elements(t->shape, t->rank) >= 0) return PROA_OK;
    proa_buf text;
    proa_buf_init(&text, 512);
    proa_shape_print(&text, t->shape, t->rank);
    proa_status status = PROA_FAIL(
        err,
        INVALID, "invalid shape for input '%s': shape %s causes total element count to exceed maximum size of %" PRId64,
        t->name, text.ptr, INT64_MAX);
    proa_buf_release(&text);
    return status;
}

/* The next blob: the tensor points into the body. */
static proa_status take_blob(reader *rd, proa_tensor *t, uint64_t size, proa_err *err)
{
    proa_str *blobs = &rd->t->blobs;
    if (size > blobs->len)
        return PROA_FAIL(err, INVALID,
                         "unexpected size for input '%s', expecting %" PRIu64
                         " additional bytes for model '%s'",
                         t->name, size - blobs->len, rd->r->model_name);
    if (!size) return PROA_OK;
    t->buffer = proa_buffer_hold(rd->t->body);
    t->data = blobs->ptr;
    t->bytes = (size_t)size;
    blobs->ptr += size;
    blobs->len -= (size_t)size;
    return PROA_OK;
}

static proa_status take_region(reader *rd, proa_tensor *t, const io_params *p, proa_err *err)
{
    PROA_TRY(rd->t->region(rd->t->region_arg, p->region.ptr, p->offset, p->bytes, &t->buffer, err));
    t->data = p->bytes ? t->buffer->data : NULL;
    t->bytes = (size_t)p->bytes;
    rd->t->region_bytes += t->bytes;
    return PROA_OK;
}

static proa_status take_data(reader *rd, proa_tensor *t, const input_text *in, proa_err *err)
{
    proa_jread at_data = rd->j;
    at_data.at = in->data;
    PROA_TRY(check_shape(t, err));
    if (proa_shape_elements(t->shape, t->rank) > 0)
        PROA_TRY(proa_jread_expect(&at_data, "Unable to parse 'data'", PROA_JREAD_ARRAY, err));
    return proa_jread_data(&at_data, t, err);
}

static proa_status add_input(reader *rd, const input_text *in, proa_err *err)
{
    if (!in->has_name) return missing_member(rd, "name", err);
    if (!in->has_datatype) return missing_member(rd, "datatype", err);
    if (!in->has_shape) return missing_member(rd, "shape", err);
    PROA_TRY(check_content(in, err));
    proa_tensor *t = proa_infer_add_input(rd->r, in->name);
    if (!t) return PROA_FAIL(err, LIMIT, "more than %d inputs in a request", PROA_TENSORS_PER_REQUEST_MAX);
    t->type = proa_type_find(in->datatype);
    t->rank = in->rank;
    memcpy(t->shape, in->shape, sizeof(int64_t) * (size_t)in->rank);
    if (in->params.has_size) return take_blob(rd, t, in->params.size, err);
    if (in->params.has_region) return take_region(rd, t, &in->params, err);
    return take_data(rd, t, in, err);
}

static proa_status plain_string(reader *rd, const char *what, proa_str *out, bool *has, proa_err *err)
{
    *has = true;
    PROA_TRY(proa_jread_expect(&rd->j, what, PROA_JREAD_STRING, err));
    PROA_TRY(proa_jread_string(&rd->j, out, err));
    if (out->len && memchr(out->ptr, 0, out->len))
        return PROA_FAIL(err, INVALID, "%s: a NUL in the string", what);
    return PROA_OK;
}

static proa_status input_member(reader *rd, input_text *in, proa_str key, proa_err *err)
{
    if (IS(key, "name")) return plain_string(rd, "Unable to parse 'name'", &in->name, &in->has_name, err);
    if (IS(key, "shape")) return read_shape(rd, in, err);
    if (IS(key, "datatype"))
        return plain_string(rd, "Unable to parse 'datatype'", &in->datatype, &in->has_datatype, err);
    if (IS(key, "parameters")) return read_io_params(rd, &in->params, err);
    if (IS(key, "data")) return pass_data(rd, in, err);
    return proa_jread_skip(&rd->j, err);
}

static proa_status read_input(reader *rd, proa_err *err)
{
    input_text in;
    memset(&in, 0, offsetof(input_text, shape));
    in.data = NULL;
    in.params = (io_params){0};
    PROA_TRY(proa_jread_expect(&rd->j, "Unable to parse 'inputs'", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(&rd->j);;) {
        proa_str key;
        bool more;
        PROA_TRY(proa_jread_member(&rd->j, &key, &more, err));
        if (!more) return add_input(rd, &in, err);
        PROA_TRY(input_member(rd, &in, key, err));
    }
}

/* ---- outputs ---- */

static proa_status check_output(const io_params *p, proa_err *err)
{
    if (p->has_region && p->has_classes)
        return PROA_FAIL(err, INVALID, "Output can't set both 'shared_memory_region' and 'classification'");
    if (p->has_region && p->binary)
        return PROA_FAIL(err, INVALID, "Output can't set both 'shared_memory_region' and 'binary_data'");
    return PROA_OK;
}

static proa_status add_output(reader *rd, proa_str name, const io_params *p, proa_err *err)
{
    proa_infer_text *t = rd->t;
    PROA_TRY(check_output(p, err));
    if (!proa_infer_add_output(rd->r, name))
        return PROA_FAIL(err, LIMIT, "more than %d outputs in a request", PROA_TENSORS_PER_REQUEST_MAX);
    int n = t->wants_count;
    if (!(n & (n - 1)) && (n == 0 || n >= 4)) { /* full: 4, 8, 16, ... */
        proa_output_want *more = PROA_ARENA_NEW(&rd->r->arena, proa_output_want, n ? 2 * n : 4);
        if (n) memcpy(more, t->wants, (size_t)n * sizeof *more);
        t->wants = more;
    }
    t->wants[t->wants_count++] = (proa_output_want){.name = rd->r->outputs[rd->r->outputs_count - 1],
                                                    .binary = p->binary,
                                                    .classes = p->classes,
                                                    .shm_region = p->has_region ? p->region.ptr : NULL,
                                                    .shm_offset = p->offset,
                                                    .shm_bytes = p->bytes};
    return PROA_OK;
}

static proa_status read_output(reader *rd, proa_err *err)
{
    proa_str name = {NULL, 0};
    bool has_name = false;
    io_params params = {0};
    PROA_TRY(proa_jread_expect(&rd->j, "Unable to parse 'outputs'", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(&rd->j);;) {
        proa_str key;
        bool more;
        PROA_TRY(proa_jread_member(&rd->j, &key, &more, err));
        if (!more) break;
        if (IS(key, "name")) PROA_TRY(plain_string(rd, "Unable to parse 'name'", &name, &has_name, err));
        else if (IS(key, "parameters")) PROA_TRY(read_io_params(rd, &params, err));
        else PROA_TRY(proa_jread_skip(&rd->j, err));
    }
    if (!has_name) return missing_member(rd, "name", err);
    return add_output(rd, name, &params, err);
}

/* ---- the document ---- */

static proa_status read_list(reader *rd, const char *what, bool *has,
                             proa_status (*read)(reader *, proa_err *), const char *name, proa_err *err)
{
    bool more;
    if (*has) return duplicate_member(name, err);
    *has = true;
    PROA_TRY(proa_jread_expect(&rd->j, what, PROA_JREAD_ARRAY, err));
    for (proa_jread_begin(&rd->j);;) {
        PROA_TRY(proa_jread_element(&rd->j, &more, err));
        if (!more) return PROA_OK;
        PROA_TRY(read(rd, err));
    }
}

static proa_status top_member(reader *rd, proa_str key, proa_err *err)
{
    if (IS(key, "inputs"))
        return read_list(rd, "Unable to parse 'inputs'", &rd->has_inputs, read_input, "inputs", err);
    if (IS(key, "outputs"))
        return read_list(rd, "Unable to parse 'outputs'", &rd->has_outputs, read_output, "outputs", err);
    if (IS(key, "parameters")) return read_params(rd, err);
    if (!IS(key, "id")) return proa_jread_skip(&rd->j, err);
    proa_str id;
    PROA_TRY(proa_jread_name(&rd->j, "Unable to parse 'id'", &id, err));
    rd->r->id = id.ptr;
    return PROA_OK;
}

static proa_status read_document(reader *rd, proa_err *err)
{
    proa_jread_kind kind = proa_jread_peek(&rd->j);
    if (kind == PROA_JREAD_END) return proa_jread_fail(&rd->j, "The document is empty.", err);
    if (kind != PROA_JREAD_OBJECT) {
        PROA_TRY(proa_jread_skip(&rd->j, err));
        PROA_TRY(proa_jread_finish(&rd->j, err));
        return missing_member(rd, "inputs", err);
    }
    for (proa_jread_begin(&rd->j);;) {
        proa_str key;
        bool more;
        PROA_TRY(proa_jread_member(&rd->j, &key, &more, err));
        if (!more) return proa_jread_finish(&rd->j, err);
        PROA_TRY(top_member(rd, key, err));
    }
}

/* Triton refuses it before it counts the inputs. */
static proa_status check_names(const proa_infer *r, proa_err *err)
{
    for (int32_t i = 1; i < r->inputs_count; i++)
        for (int32_t k = 0; k < i; k++)
            if (strcmp(r->inputs[i].name, r->inputs[k].name) == 0)
                return PROA_FAIL(err, INVALID, "[request id: %s] input '%s' already exists in request",
                                 r->id[0] ? r->id : "<id_unknown>", r->inputs[i].name);
    return PROA_OK;
}

proa_status proa_infer_json_read(proa_infer_text *t, proa_infer *r, proa_err *err)
{
    reader rd;
    if (t->json.len > t->bytes_max)
        return PROA_FAIL(
            err, INVALID,
            "request JSON size of %zu bytes exceeds the maximum allowed input size of %zu bytes. Use "
            "--http-max-input-size to increase the limit.",
            t->json.len, t->bytes_max);
    rd.t = t, rd.r = r;
    rd.has_inputs = rd.has_outputs = false;
    t->wants = NULL, t->wants_count = 0, t->binary_default = false, t->region_bytes = 0;
    proa_jread_init(&rd.j, t->json, &r->arena, t->strict, t->bytes_max);
    PROA_TRY(read_document(&rd, err));
    if (!rd.has_inputs) return missing_member(&rd, "inputs", err);
    if (t->blobs.len)
        return PROA_FAIL(err, INVALID, "unexpected additional input data for model '%s'", r->model_name);
    return check_names(r, err);
}
