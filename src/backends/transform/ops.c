/* SPDX-License-Identifier: Apache-2.0
 * ops.c - the operations of a transform on numbers. Arithmetic is done in doubles and stored as FP32, or as FP64
 * where an argument is FP64: so what a model in Python computes with numpy's float64 is the same to the last bit. */
#include "backends/common.h"
#include "backends/transform/transform.h"

#include "base/checked.h"
#include "tensor/dtype.h"
#include <math.h>
#include <string.h>

#define CHUNK 256 /* elements converted at a time: 2 KiB of doubles */

/* ---- elements as doubles, and back ---- */

#define LOAD(c_type)                                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                                        \
        c_type x;                                                                                            \
        memcpy(&x, from + (size_t)i * sizeof x, sizeof x);                                                   \
        to[i] = (double)x;                                                                                   \
    }                                                                                                        \
    break

static void load_halves(double *to, proa_dtype dtype, const char *from, int64_t n)
{
    float wide[CHUNK];
    proa_to_f32(wide, from, dtype, n);
    for (int64_t i = 0; i < n; i++) to[i] = (double)wide[i];
}

static void load_doubles(double *to, proa_type type, const char *from, int64_t n)
{
    switch (type) {
    case PROA_TYPE_BOOL:
    case PROA_TYPE_UINT8: LOAD(uint8_t);
    case PROA_TYPE_UINT16: LOAD(uint16_t);
    case PROA_TYPE_UINT32: LOAD(uint32_t);
    case PROA_TYPE_UINT64: LOAD(uint64_t);
    case PROA_TYPE_INT8: LOAD(int8_t);
    case PROA_TYPE_INT16: LOAD(int16_t);
    case PROA_TYPE_INT32: LOAD(int32_t);
    case PROA_TYPE_INT64: LOAD(int64_t);
    case PROA_TYPE_FP32: LOAD(float);
    case PROA_TYPE_FP64: LOAD(double);
    case PROA_TYPE_FP16: load_halves(to, PROA_DTYPE_F16, from, n); break;
    default: load_halves(to, PROA_DTYPE_BF16, from, n); break;
    }
}

/* Values outside the range of an integer type are clamped; NaN becomes 0. The limits are exact doubles
 * except those of 64 bits, for which the first double above the range is used. */
#define STORE(c_type, least, above)                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                                        \
        double d = from[i];                                                                                  \
        c_type x = !(d > (double)(least))   ? (c_type)(isnan(d) ? 0 : (least))                               \
                   : !(d < (double)(above)) ? (c_type)((uint64_t)(above)-1)                                  \
                                            : (c_type)d;                                                     \
        memcpy(to + (size_t)i * sizeof x, &x, sizeof x);                                                     \
    }                                                                                                        \
    break

static void store_floats(char *to, proa_type type, const double *from, int64_t n)
{
    float narrow[CHUNK];
    if (type == PROA_TYPE_FP64) {
        memcpy(to, from, (size_t)n * sizeof *from);
        return;
    }
    for (int64_t i = 0; i < n; i++) narrow[i] = (float)from[i];
    proa_from_f32(to,
                  type == PROA_TYPE_FP16   ? PROA_DTYPE_F16
                  : type == PROA_TYPE_BF16 ? PROA_DTYPE_BF16
                                           : PROA_DTYPE_F32,
                  narrow, n);
}

static void store_uint64(char *to, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double d = from[i];
        uint64_t x = !(d > 0) ? 0 : !(d < 0x1p64) ? UINT64_MAX : (uint64_t)d;
        memcpy(to + (size_t)i * sizeof x, &x, sizeof x);
    }
}

static void store_doubles(char *to, proa_type type, const double *from, int64_t n)
{
    switch (type) {
    case PROA_TYPE_BOOL:
        for (int64_t i = 0; i < n; i++) to[i] = from[i] != 0;
        break;
    case PROA_TYPE_UINT8: STORE(uint8_t, 0, 0x100);
    case PROA_TYPE_UINT16: STORE(uint16_t, 0, 0x10000);
    case PROA_TYPE_UINT32: STORE(uint32_t, 0, 0x100000000);
    case PROA_TYPE_UINT64: store_uint64(to, from, n); break;
    case PROA_TYPE_INT8: STORE(int8_t, INT8_MIN, 0x80);
    case PROA_TYPE_INT16: STORE(int16_t, INT16_MIN, 0x8000);
    case PROA_TYPE_INT32: STORE(int32_t, INT32_MIN, 0x80000000);
    case PROA_TYPE_INT64: STORE(int64_t, INT64_MIN, 0x8000000000000000);
    default: store_floats(to, type, from, n); break;
    }
}

/* ---- shapes ---- */

static proa_status need_numbers(const proa_transform_step *s, const proa_transform_value *args, proa_err *err)
{
    for (int32_t i = 0; i < s->args_count; i++)
        if (args[i].type == PROA_TYPE_BYTES)
            return PROA_TRANSFORM_FAIL(err, s, "'%s' is BYTES, must be numbers", args[i].name);
    return PROA_OK;
}

static proa_status shapes_differ(const proa_transform_step *s, const proa_transform_value *a,
                                 const proa_transform_value *b, proa_err *err)
{
    char left[PROA_DIMS_TEXT], right[PROA_DIMS_TEXT];
    return PROA_TRANSFORM_FAIL(err, s, "expected '%s' and '%s' to have matching shapes, got %s and %s",
                               a->name, b->name, proa_dims_text(left, a->shape, (size_t)a->rank),
                               proa_dims_text(right, b->shape, (size_t)b->rank));
}

/* Fills open dimensions of a from b; dimension `skip` is not compared (-1: none). */
static bool merge_shapes(proa_transform_value *a, const proa_transform_value *b, int32_t skip)
{
    if (a->rank != b->rank) return false;
    for (int32_t i = 0; i < a->rank; i++) {
        if (i == skip) continue;
        if (a->shape[i] == -1) a->shape[i] = b->shape[i];
        else if (b->shape[i] != -1 && a->shape[i] != b->shape[i]) return false;
    }
    return true;
}

static void take_shape(proa_transform_value *out, const proa_transform_value *from)
{
    out->rank = from->rank;
    memcpy(out->shape, from->shape, sizeof out->shape);
}

static proa_status shape_arithmetic(const proa_transform_step *s, const proa_transform_value *args,
                                    proa_transform_value *out, proa_err *err)
{
    PROA_TRY(need_numbers(s, args, err));
    take_shape(out, &args[0]);
    out->type = PROA_TYPE_FP32;
    for (int32_t i = 0; i < s->args_count; i++) {
        if (args[i].type == PROA_TYPE_FP64) out->type = PROA_TYPE_FP64;
        if (!merge_shapes(out, &args[i], -1)) return shapes_differ(s, &args[0], &args[i], err);
    }
    return PROA_OK;
}

static int64_t elements_of(const proa_transform_value *v)
{
    return proa_shape_elements(v->shape, v->rank);
}

/* ---- one by one: each element from the same element of the arguments ---- */

typedef void chunk_fn(const proa_transform_step *s, double *x, const double *y, int32_t arg, int64_t n);

/* Applies fn to each chunk of the first argument, then folds the other arguments into it. */
static void run_chunks(const proa_transform_step *s, const proa_transform_value *args,
                       const proa_transform_value *out, char *to, chunk_fn *fn)
{
    double x[CHUNK], y[CHUNK];
    int64_t elements = elements_of(out);
    for (int64_t at = 0; at < elements; at += CHUNK) {
        int64_t n = proa_min64(CHUNK, elements - at);
        load_doubles(x, args[0].type, args[0].data + at * proa_type_bytes(args[0].type), n);
        fn(s, x, x, 0, n);
        for (int32_t k = 1; k < s->args_count; k++) {
            load_doubles(y, args[k].type, args[k].data + at * proa_type_bytes(args[k].type), n);
            fn(s, x, y, k, n);
        }
        store_doubles(to + at * proa_type_bytes(out->type), out->type, x, n);
    }
}

#define ONE_BY_ONE(name, expression)                                                                           \
    static void name##_chunk(const proa_transform_step *s, double *x, const double *y, int32_t arg, int64_t n) \
    {                                                                                                          \
        PROA_UNUSED(s);                                                                                        \
        PROA_UNUSED(arg);                                                                                      \
        for (int64_t i = 0; i < n; i++) x[i] = (expression);                                                   \
    }                                                                                                          \
    static void run_##name(const proa_transform_step *s, const proa_transform_value *args,                     \
                           const proa_transform_value *out, char *to, proa_arena *arena)                       \
    {                                                                                                          \
        PROA_UNUSED(arena);                                                                                    \
        run_chunks(s, args, out, to, name##_chunk);                                                            \
    }
ONE_BY_ONE(average, s->weights[arg] * y[i] + (arg ? x[i] : 0))
ONE_BY_ONE(sum, arg ? x[i] + y[i] : x[i])
ONE_BY_ONE(product, arg ? x[i] * y[i] : x[i])
ONE_BY_ONE(linear, s->scale *y[i] + s->offset)
ONE_BY_ONE(clip, y[i]<s->low ? s->low : y[i]> s->high ? s->high : y[i])
ONE_BY_ONE(sigmoid, 1 / (1 + exp(-y[i])))
ONE_BY_ONE(cast, y[i])

static proa_status read_average(proa_transform_step *s, proa_transform_program *p, proa_err *err)
{
    const proa_transform_option *o = proa_transform_option_find(s, "weights");
    double sum = 0;
    s->weights = PROA_ARENA_NEW(p->arena, double, s->args_count);
    if (o && o->count != s->args_count)
        return PROA_TRANSFORM_FAIL(err, s, "option 'weights' has %d elements for %d arguments", o->count,
                                   s->args_count);
    for (int32_t i = 0; i < s->args_count; i++) {
        s->weights[i] = o ? o->numbers[i] : 1;
        if (isnan(s->weights[i]))
            return PROA_TRANSFORM_FAIL(err, s, "option 'weights' has '%s', which is no number",
                                       o ? o->texts[i].ptr : "");
        sum += s->weights[i];
    }
    if (!isfinite(sum) || sum == 0) return PROA_TRANSFORM_FAIL(err, s, "the weights have the sum %g", sum);
    for (int32_t i = 0; i < s->args_count; i++) s->weights[i] /= sum;
    return PROA_OK;
}

static proa_status read_linear(proa_transform_step *s, proa_transform_program *p, proa_err *err)
{
    PROA_UNUSED(p);
    s->scale = 1;
    PROA_TRY(proa_transform_option_number(&s->scale, s, "scale", err));
    return proa_transform_option_number(&s->offset, s, "offset", err);
}

static proa_status read_clip(proa_transform_step *s, proa_transform_program *p, proa_err *err)
{
    PROA_UNUSED(p);
    s->low = -INFINITY, s->high = INFINITY;
    PROA_TRY(proa_transform_option_number(&s->low, s, "low", err));
    PROA_TRY(proa_transform_option_number(&s->high, s, "high", err));
    if (s->low > s->high)
        return PROA_TRANSFORM_FAIL(err, s, "'low' is %g, above 'high', %g", s->low, s->high);
    return PROA_OK;
}

/* ---- cast ---- */

static proa_status read_cast(proa_transform_step *s, proa_transform_program *p, proa_err *err)
{
    const proa_transform_option *o = proa_transform_option_find(s, "to");
    static const char prefix[] = "TYPE_";
    PROA_UNUSED(p);
    if (!o || o->list)
        return PROA_TRANSFORM_FAIL(err, s, "option 'to' must be a type, such as FP16 or INT64");
    proa_str name = o->texts[0];
    if (proa_str_starts(name, proa_str_c(prefix))) name.ptr += strlen(prefix), name.len -= strlen(prefix);
    s->type = proa_type_find(name);
    if (s->type == PROA_TYPE_INVALID || s->type == PROA_TYPE_BYTES)
        return PROA_TRANSFORM_FAIL(
            err, s, "option 'to' is '%s', must be a type of numbers, such as FP16 or INT64", o->texts[0].ptr);
    return PROA_OK;
}

static proa_status shape_cast(const proa_transform_step *s, const proa_transform_value *args,
                              proa_transform_value *out, proa_err *err)
{
    PROA_TRY(need_numbers(s, args, err));
    take_shape(out, &args[0]);
    out->type = s->type;
    return PROA_OK;
}

/* 64-bit integers are cast without doubles, which would lose the low bits. */
static void run_wide_cast(const proa_transform_value *in, const proa_transform_value *out, char *to)
{
    int64_t n = elements_of(out);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, in->data + (size_t)i * sizeof x, sizeof x);
        if (in->type == PROA_TYPE_INT64 && (int64_t)x < 0) x = 0;
        else if (in->type == PROA_TYPE_UINT64 && x > INT64_MAX) x = INT64_MAX;
        memcpy(to + (size_t)i * sizeof x, &x, sizeof x);
    }
}

static bool is_wide(proa_type type)
{
    return type == PROA_TYPE_INT64 || type == PROA_TYPE_UINT64;
}

static void run_any_cast(const proa_transform_step *s, const proa_transform_value *args,
                         const proa_transform_value *out, char *to, proa_arena *arena)
{
    if (args[0].type == out->type) memcpy(to, args[0].data, out->bytes);
    else if (is_wide(args[0].type) && is_wide(out->type)) run_wide_cast(&args[0], out, to);
    else run_cast(s, args, out, to, arena);
}

static int64_t within_cast(const proa_transform_step *s, const proa_transform_value *args,
                           const proa_transform_value *out)
{
    PROA_UNUSED(s);
    return args[0].type == out->type ? 0 : -1;
}

/* ---- pass ---- */

static proa_status shape_pass(const proa_transform_step *s, const proa_transform_value *args,
                              proa_transform_value *out, proa_err *err)
{
    PROA_UNUSED(s);
    PROA_UNUSED(err);
    take_shape(out, &args[0]);
    out->type = args[0].type;
    return PROA_OK;
}

static void run_pass(const proa_transform_step *s, const proa_transform_value *args,
                     const proa_transform_value *out, char *to, proa_arena *arena)
{
    PROA_UNUSED(s);
    PROA_UNUSED(arena);
    memcpy(to, args[0].data, out->bytes);
}

static int64_t within_pass(const proa_transform_step *s, const proa_transform_value *args,
                           const proa_transform_value *out)
{
    PROA_UNUSED(s);
    PROA_UNUSED(args);
    PROA_UNUSED(out);
    return 0;
}

/* ---- softmax: over the last dimension ---- */

static proa_status shape_softmax(const proa_transform_step *s, const proa_transform_value *args,
                                 proa_transform_value *out, proa_err *err)
{
    if (args[0].rank == 0) return PROA_TRANSFORM_FAIL(err, s, "'%s' has no dimension", args[0].name);
    return shape_arithmetic(s, args, out, err);
}

static void run_softmax(const proa_transform_step *s, const proa_transform_value *args,
                        const proa_transform_value *out, char *to, proa_arena *arena)
{
    int64_t n = out->shape[out->rank - 1], rows = n ? elements_of(out) / n : 0;
    int64_t in_bytes = proa_type_bytes(args[0].type), out_bytes = proa_type_bytes(out->type);
    double *x = PROA_ARENA_NEW(arena, double, n);
    PROA_UNUSED(s);
    for (int64_t row = 0; row < rows; row++) {
        double most = -INFINITY, sum = 0;
        for (int64_t at = 0; at < n; at += CHUNK)
            load_doubles(x + at, args[0].type, args[0].data + (row * n + at) * in_bytes,
                         proa_min64(CHUNK, n - at));
        for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
        for (int64_t i = 0; i < n; i++) sum += x[i] = exp(x[i] - most);
        for (int64_t i = 0; i < n; i++) x[i] /= sum;
        for (int64_t at = 0; at < n; at += CHUNK)
            store_doubles(to + (row * n + at) * out_bytes, out->type, x + at, proa_min64(CHUNK, n - at));
    }
}

/* ---- concat and slice, along an axis ---- */

/* The axis counts from 0 without the batch dimension, or from the end; stored as counted from the end. */
static proa_status read_axis(proa_transform_step *s, proa_transform_program *p, proa_err *err)
{
    int64_t rank = p->values[s->args[0]].rank;
    s->axis = -1;
    if (rank == 0) return PROA_TRANSFORM_FAIL(err, s, "'%s' has no dimension", p->values[s->args[0]].name);
    PROA_TRY(proa_transform_option_integer(&s->axis, s, "axis", -rank, rank - 1, err));
    if (s->axis >= 0) s->axis -= rank;
    return PROA_OK;
}

static proa_status shape_concat(const proa_transform_step *s, const proa_transform_value *args,
                                proa_transform_value *out, proa_err *err)
{
    int32_t axis = args[0].rank + (int32_t)s->axis;
    int64_t sum = 0;
    PROA_TRY(need_numbers(s, args, err));
    take_shape(out, &args[0]);
    out->type = args[0].type;
    for (int32_t i = 0; i < s->args_count; i++) {
        if (args[i].type != out->type)
            return PROA_TRANSFORM_FAIL(err, s, "expected '%s' and '%s' to have the same type, got %s and %s",
                                       args[0].name, args[i].name, proa_type_name(out->type),
                                       proa_type_name(args[i].type));
        if (!merge_shapes(out, &args[i], axis)) return shapes_differ(s, &args[0], &args[i], err);
        bool open = sum < 0 || args[i].shape[axis] < 0;
        if (open) sum = -1;
        else if (!proa_add(sum, args[i].shape[axis], &sum))
            return PROA_TRANSFORM_FAIL(err, s, "the result is too large");
    }
    out->shape[axis] = sum;
    return PROA_OK;
}

/* The elements before the axis, and the bytes of one place along it. */
static int64_t outer_of(const proa_transform_value *v, int32_t axis)
{
    return proa_shape_elements(v->shape, axis);
}

static size_t inner_of(const proa_transform_value *v, int32_t axis)
{
    int64_t n = proa_shape_elements(v->shape + axis + 1, v->rank - axis - 1);
    return (size_t)(n * proa_type_bytes(v->type));
}

static void run_concat(const proa_transform_step *s, const proa_transform_value *args,
                       const proa_transform_value *out, char *to, proa_arena *arena)
{
    int32_t axis = out->rank + (int32_t)s->axis;
    int64_t outer = outer_of(out, axis);
    size_t inner = inner_of(out, axis);
    PROA_UNUSED(arena);
    for (int64_t i = 0; i < outer; i++) {
        for (int32_t k = 0; k < s->args_count; k++) {
            size_t bytes = (size_t)args[k].shape[axis] * inner;
            if (!bytes) continue;
            memcpy(to, args[k].data + (size_t)i * bytes, bytes);
            to += bytes;
        }
    }
}

static proa_status read_slice(proa_transform_step *s, proa_transform_program *p, proa_err *err)
{
    s->to = INT64_MAX;
    PROA_TRY(read_axis(s, p, err));
    PROA_TRY(proa_transform_option_integer(&s->from, s, "from", -((int64_t)1 << 40), (int64_t)1 << 40, err));
    if (!proa_transform_option_find(s, "to")) return PROA_OK;
    s->to = 0;
    return proa_transform_option_integer(&s->to, s, "to", -((int64_t)1 << 40), (int64_t)1 << 40, err);
}

/* The bounds of a slice of an axis of n elements, with Python's rules; false if they lie outside. */
static bool range_of(const proa_transform_step *s, int64_t n, int64_t *from, int64_t *to)
{
    *from = s->from < 0 ? s->from + n : s->from;
    *to = s->to == INT64_MAX ? n : s->to < 0 ? s->to + n : s->to;
    return *from >= 0 && *from <= *to && *to <= n;
}

static proa_status shape_slice(const proa_transform_step *s, const proa_transform_value *args,
                               proa_transform_value *out, proa_err *err)
{
    int32_t axis = args[0].rank + (int32_t)s->axis;
    int64_t from, to, n = args[0].shape[axis];
    char text[PROA_DIMS_TEXT];
    PROA_TRY(need_numbers(s, args, err));
    take_shape(out, &args[0]);
    out->type = args[0].type;
    if (n < 0) { /* open dimension: the length is known if both bounds count from the same side */
        bool known = s->to != INT64_MAX && (s->from < 0) == (s->to < 0) && s->to >= s->from;
        out->shape[axis] = known ? s->to - s->from : -1;
        return PROA_OK;
    }
    if (!range_of(s, n, &from, &to))
        return PROA_TRANSFORM_FAIL(
            err, s, "from %lld to %lld lies outside of dimension %d of '%s', which has shape %s",
            (long long)s->from, (long long)(s->to == INT64_MAX ? n : s->to), axis, args[0].name,
            proa_dims_text(text, args[0].shape, (size_t)args[0].rank));
    out->shape[axis] = to - from;
    return PROA_OK;
}

static void run_slice(const proa_transform_step *s, const proa_transform_value *args,
                      const proa_transform_value *out, char *to, proa_arena *arena)
{
    int32_t axis = out->rank + (int32_t)s->axis;
    int64_t outer = outer_of(out, axis), from, end;
    size_t inner = inner_of(out, axis), row = (size_t)args[0].shape[axis] * inner;
    PROA_UNUSED(arena);
    if (!range_of(s, args[0].shape[axis], &from, &end)) return; /* already refused by `shape` */
    size_t bytes = (size_t)(end - from) * inner;
    for (int64_t i = 0; i < outer; i++)
        memcpy(to + (size_t)i * bytes, args[0].data + (size_t)i * row + (size_t)from * inner, bytes);
}

static int64_t within_slice(const proa_transform_step *s, const proa_transform_value *args,
                            const proa_transform_value *out)
{
    int32_t axis = out->rank + (int32_t)s->axis;
    int64_t from, to;
    if (outer_of(out, axis) != 1 || !range_of(s, args[0].shape[axis], &from, &to)) return -1;
    return from * (int64_t)inner_of(out, axis);
}

/* ---- on a GPU ---- */

_Static_assert((int)PROA_ELEMENT_F64 == PROA_TYPE_FP64 && (int)PROA_ELEMENT_BF16 == PROA_TYPE_BF16,
               "KServe's numbers");

static proa_elements elements_for(const proa_transform_step *s, const proa_transform_value *args,
                                  const proa_transform_value *out, proa_element_op op)
{
    proa_elements e = {.op = op,
                       .args = s->args_count,
                       .scale = s->scale,
                       .offset = s->offset,
                       .low = s->low,
                       .high = s->high,
                       .out = out->buffer->data,
                       .out_type = (uint8_t)out->type,
                       .count = elements_of(out)};
    for (int32_t i = 0; i < s->args_count; i++) {
        e.data[i] = args[i].data;
        e.type[i] = (uint8_t)args[i].type;
        if (s->weights) e.weights[i] = s->weights[i];
    }
    return e;
}

#define LAUNCH_MAP(name, op)                                                                                 \
    static proa_status launch_##name(const proa_transform_step *s, const proa_transform_value *args,         \
                                     const proa_transform_value *out, proa_gpu_stream *stream,               \
                                     proa_transform_held *held, proa_err *err)                               \
    {                                                                                                        \
        const proa_elements e = elements_for(s, args, out, op);                                              \
        PROA_UNUSED(held), PROA_UNUSED(err);                                                                 \
        stream->ops->map_elements(&stream->ctx, &e);                                                         \
        return PROA_OK;                                                                                      \
    }
LAUNCH_MAP(average, PROA_MAP_AVERAGE)
LAUNCH_MAP(sum, PROA_MAP_SUM)
LAUNCH_MAP(product, PROA_MAP_PRODUCT)
LAUNCH_MAP(linear, PROA_MAP_LINEAR)
LAUNCH_MAP(clip, PROA_MAP_CLIP)
LAUNCH_MAP(sigmoid, PROA_MAP_SIGMOID)
LAUNCH_MAP(cast, PROA_MAP_CAST)

static proa_status launch_softmax(const proa_transform_step *s, const proa_transform_value *args,
                                  const proa_transform_value *out, proa_gpu_stream *stream,
                                  proa_transform_held *held, proa_err *err)
{
    PROA_UNUSED(held), PROA_UNUSED(err);
    const proa_elements e = elements_for(s, args, out, PROA_MAP_CAST);
    stream->ops->softmax_elements(&stream->ctx, &e, out->shape[out->rank - 1]);
    return PROA_OK;
}

static proa_status launch_pass(const proa_transform_step *s, const proa_transform_value *args,
                               const proa_transform_value *out, proa_gpu_stream *stream,
                               proa_transform_held *held, proa_err *err)
{
    PROA_UNUSED(held), PROA_UNUSED(err);
    const int64_t bytes = (int64_t)out->bytes;
    PROA_UNUSED(s);
    stream->ops->copy_rows(&stream->ctx, out->buffer->data, bytes, args[0].data, bytes, bytes, 1);
    return PROA_OK;
}

static proa_status launch_concat(const proa_transform_step *s, const proa_transform_value *args,
                                 const proa_transform_value *out, proa_gpu_stream *stream,
                                 proa_transform_held *held, proa_err *err)
{
    PROA_UNUSED(held), PROA_UNUSED(err);
    int32_t axis = out->rank + (int32_t)s->axis;
    char *to = out->buffer->data;
    int64_t inner = (int64_t)inner_of(out, axis), row = out->shape[axis] * inner;
    for (int32_t k = 0; k < s->args_count; k++) {
        int64_t bytes = args[k].shape[axis] * inner;
        if (bytes)
            stream->ops->copy_rows(&stream->ctx, to, row, args[k].data, bytes, bytes, outer_of(out, axis));
        to += bytes;
    }
    return PROA_OK;
}

static proa_status launch_slice(const proa_transform_step *s, const proa_transform_value *args,
                                const proa_transform_value *out, proa_gpu_stream *stream,
                                proa_transform_held *held, proa_err *err)
{
    PROA_UNUSED(held), PROA_UNUSED(err);
    int32_t axis = out->rank + (int32_t)s->axis;
    int64_t inner = (int64_t)inner_of(out, axis), row = args[0].shape[axis] * inner, from, end;
    if (!range_of(s, args[0].shape[axis], &from, &end)) return PROA_OK; /* already refused by `shape` */
    int64_t bytes = (end - from) * inner;
    stream->ops->copy_rows(&stream->ctx, out->buffer->data, bytes, args[0].data + from * inner, row, bytes,
                           outer_of(out, axis));
    return PROA_OK;
}

/* ---- the table ---- */

#define MANY PROA_TRANSFORM_ARGS_MAX
static const proa_transform_op operations[] = {
    {"average", 1, MANY, "weights", read_average, shape_arithmetic, run_average, NULL, launch_average, NULL},
    {"cast", 1, 1, "to", read_cast, shape_cast, run_any_cast, within_cast, launch_cast, NULL},
    {"clip", 1, 1, "low, high", read_clip, shape_arithmetic, run_clip, NULL, launch_clip, NULL},
    {"concat", 1, MANY, "axis", read_axis, shape_concat, run_concat, NULL, launch_concat, NULL},
    {"linear", 1, 1, "scale, offset", read_linear, shape_arithmetic, run_linear, NULL, launch_linear, NULL},
    {"pass", 1, 1, "", NULL, shape_pass, run_pass, within_pass, launch_pass, NULL},
    {"product", 1, MANY, "", NULL, shape_arithmetic, run_product, NULL, launch_product, NULL},
    {"sigmoid", 1, 1, "", NULL, shape_arithmetic, run_sigmoid, NULL, launch_sigmoid, NULL},
    {"slice", 1, 1, "axis, from, to", read_slice, shape_slice, run_slice, within_slice, launch_slice, NULL},
    {"softmax", 1, 1, "", NULL, shape_softmax, run_softmax, NULL, launch_softmax, NULL},
    {"sum", 1, MANY, "", NULL, shape_arithmetic, run_sum, NULL, launch_sum, NULL},
};

const proa_transform_op *proa_transform_op_find(proa_str name)
{
    for (size_t i = 0; i < PROA_COUNT(operations); i++)
        if (proa_str_is(name, operations[i].name)) return &operations[i];
    return proa_str_is(name, proa_transform_op_text.name) ? &proa_transform_op_text : NULL;
}

const char *proa_transform_op_names(void)
{
    return "average, cast, clip, concat, linear, pass, product, sigmoid, slice, softmax, sum and "
           "text_features";
}
