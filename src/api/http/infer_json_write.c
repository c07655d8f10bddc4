/* SPDX-License-Identifier: Apache-2.0
 * infer_json_write.c - writes an inference reply as JSON; numbers have the fewest digits that read back as the same
 * value. */
#include "api/http/infer_json.h"

#include "base/limits.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 40 }; /* bytes of the longest number */
/* RapidJSON's limits for numbers without an exponent: digits before the point, and zeros after it before a digit. */
enum { PLAIN_DIGITS_MAX = 21, PLAIN_ZEROS_MAX = 5 };

/* ---- numbers ---- */

static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445"
    "46474849505152535455565758596061626364656667686970717273747576777879808182838485868788899091"
    "9293949596979899";

/* The digits of u end before `end`; returns where they begin. */
static char *digits_before(char *end, uint64_t u)
{
    for (; u >= 100; u /= 100) memcpy(end -= 2, pairs + 2 * (u % 100), 2);
    if (u >= 10) memcpy(end -= 2, pairs + 2 * u, 2);
    else *--end = (char)('0' + u);
    return end;
}

void proa_uint_json(proa_buf *out, uint64_t value)
{
    char text[NUMBER_MAX], *at = digits_before(text + sizeof text, value);
    proa_buf_append(out, at, (size_t)(text + sizeof text - at));
}

void proa_int_json(proa_buf *out, int64_t value)
{
    char text[NUMBER_MAX],
        *at = digits_before(text + sizeof text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    if (value < 0) *--at = '-';
    proa_buf_append(out, at, (size_t)(text + sizeof text - at));
}

/* digits * 10^exponent as RapidJSON writes doubles: 1200.0, 12.5, 0.0125, or 1.25e-9 beyond the limits above. */
static void add_decimal(proa_buf *out, bool negative, uint64_t digits, int exponent)
{
    char text[NUMBER_MAX], *end = text + sizeof text, *at = digits_before(end, digits);
    int count = (int)(end - at), point = count + exponent; /* digits before the decimal point */
    char line[64];
    int n = 0;
    if (negative) line[n++] = '-';
    if (exponent >= 0 && point <= PLAIN_DIGITS_MAX) {
        /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): counted */
        memcpy(line + n, at, (size_t)count);
        memset(line + n + count, '0', (size_t)exponent);
        n += point;
        line[n++] = '.';
        line[n++] = '0';
    } else if (point > 0 && point <= PLAIN_DIGITS_MAX) {
        memcpy(line + n, at, (size_t)point);
        line[n + point] = '.';
        memcpy(line + n + point + 1, at + point, (size_t)(count - point));
        n += count + 1;
    } else if (point >= -PLAIN_ZEROS_MAX && point <= 0) {
        memcpy(line + n, "0.00000000", (size_t)(2 - point));
        n += 2 - point;
        memcpy(line + n, at, (size_t)count);
        n += count;
    } else {
        line[n++] = *at;
        if (count > 1) {
            line[n++] = '.';
            memcpy(line + n, at + 1, (size_t)count - 1);
            n += count - 1;
        }
        n += snprintf(line + n, sizeof line - (size_t)n, "e%d", point - 1);
    }
    proa_buf_append(out, line, (size_t)n);
}

static bool put_special(proa_buf *out, double value)
{
    if (isnan(value)) proa_buf_append(out, "NaN", 3);
    else if (isinf(value)) proa_buf_printf(out, "%sInfinity", value < 0 ? "-" : "");
    else if (value == 0) proa_buf_printf(out, "%s0.0", signbit(value) ? "-" : "");
    else return false;
    return true;
}

static uint64_t strip_zeros(uint64_t digits, int *exponent)
{
    while (digits % 10 == 0) digits /= 10, ++*exponent;
    return digits;
}

/* a * 10^decimals; up to 10^27 the power is exact. decimals >= -54, <= 54. */
static long double scaled_by(long double a, int decimals)
{
    static const long double powers[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
                                         1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
                                         1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    int n = decimals < 0 ? -decimals : decimals, more = n > 27 ? n - 27 : 0;
    if (decimals < 0) return a / powers[n - more] / powers[more];
    return a * powers[n - more] * powers[more];
}

/* Nine digits always distinguish two float32. Fewer do if the number that they give is nearer to value than to its
 * neighbours; once a digit less is too few, so is any less. The sum is done with 53 bits or more for 24, and 0.49999
 * of the distance in place of one half leaves room for that and for readers that go through a double. */
void proa_float_json(proa_buf *out, float value)
{
    int binary, exponent = 0;
    if (put_special(out, (double)value)) return;
    float a = fabsf(value);
    if (a < 16777216 && a == (float)(uint64_t)a) {
        uint64_t whole = strip_zeros((uint64_t)a, &exponent);
        add_decimal(out, value < 0, whole, exponent);
        return;
    }
    bool lowest = frexpf(a, &binary) == 0.5F && binary > -125; /* the next float below is half as far away */
    int decimals = 9 - (int)ceil((binary - 1) * 0.30102999566398119521);
    long double scaled = scaled_by((long double)a, decimals);
    long double above = scaled_by(ldexpl(0.49999L, (binary < -125 ? -125 : binary) - 24), decimals);
    long double below = lowest ? above / 2 : above;
    uint64_t all = (uint64_t)(scaled + 0.5L), digits = all;
    for (uint64_t step = 10; step <= 1000000000; step *= 10) {
        uint64_t rounded = (all + step / 2) / step * step;
        long double off = (long double)rounded - scaled;
        if (rounded == 0 || off >= above || -off >= below) break;
        digits = rounded;
    }
    exponent = -decimals;
    digits = strip_zeros(digits, &exponent);
    add_decimal(out, value < 0, digits, exponent);
}

/* 15 digits are always right, 17 always enough. */
void proa_double_json(proa_buf *out, double value)
{
    char text[NUMBER_MAX];
    if (put_special(out, value)) return;
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision - 1, value);
        if (precision == 17 || strtod(text, NULL) == value) break;
    }
    char *e = strchr(text, 'e'), *from = text + (text[0] == '-');
    int exponent = (int)strtol(e + 1, NULL, 10);
    uint64_t digits = (uint64_t)(*from - '0');
    for (const char *c = from + 2; c < e; c++, exponent--) digits = digits * 10 + (uint64_t)(*c - '0');
    digits = strip_zeros(digits, &exponent);
    add_decimal(out, value < 0, digits, exponent);
}

/* ---- tensors ---- */

/* One element; `at` is not aligned. */
static void add_element(proa_buf *out, proa_type type, const char *at)
{
#define ADD_U proa_uint_json
#define ADD_I proa_int_json
#define ADD_F proa_float_json
#define ADD_D proa_double_json
#define ADD_CASE(name, c_type, kind)                                                                         \
    case PROA_TYPE_##name: {                                                                                 \
        c_type value;                                                                                        \
        memcpy(&value, at, sizeof value);                                                                    \
        ADD_##kind(out, value);                                                                              \
        break;                                                                                               \
    }
    switch (type) {
    case PROA_TYPE_BOOL:
        proa_buf_append(out, *at ? "true" : "false", *at ? 4 : 5);
        break;
        PROA_TYPE_C_LIST(ADD_CASE)
    default: break; /* proa_tensor_json refuses the others */
    }
}

static proa_status wrong_size(const proa_tensor *t, proa_err *err)
{
    return PROA_FAIL(err, INTERNAL, "%soutput tensor shape does not match size of output for '%s'",
                     t->type == PROA_TYPE_BYTES ? "" : "Failed to write 'data' field: ", t->name);
}

static proa_status strings_json(proa_buf *out, const proa_tensor *t, int64_t elements, proa_err *err)
{
    size_t at = 0;
    proa_str s;
    for (int64_t i = 0; i < elements; i++) {
        if (!proa_tensor_next_string(t, &at, &s)) return wrong_size(t, err);
        if (i) proa_buf_char(out, ',');
        proa_buf_json_str(out, s);
    }
    return PROA_OK;
}

static proa_status numbers_json(proa_buf *out, const proa_tensor *t, int64_t elements, proa_err *err)
{
    int64_t size = proa_type_bytes(t->type);
    if (elements < 0 || (size_t)elements > t->bytes || (size_t)(elements * size) != t->bytes)
        return wrong_size(t, err);
    for (int64_t i = 0; i < elements && !out->full; i++) {
        if (i) proa_buf_char(out, ',');
        add_element(out, t->type, t->data + i * size);
    }
    return PROA_OK;
}

proa_status proa_tensor_json(proa_buf *out, const proa_tensor *t, bool bare, proa_err *err)
{
    int64_t elements = proa_shape_elements(t->shape, t->rank);
    bare = bare && elements == 1;
    if (t->type == PROA_TYPE_FP16 || t->type == PROA_TYPE_BF16)
        return PROA_FAIL(
            err, INVALID,
            "sending %s data via JSON is not supported. Please use the binary data format for output",
            proa_type_name(t->type));
    if (t->type == PROA_TYPE_INVALID) return PROA_FAIL(err, INVALID, "Invalid data type for output tensor");
    if (!bare) proa_buf_char(out, '[');
    if (t->type == PROA_TYPE_BYTES) PROA_TRY(strings_json(out, t, elements, err));
    else PROA_TRY(numbers_json(out, t, elements, err));
    if (!bare) proa_buf_char(out, ']');
    if (out->full) return PROA_FAIL(err, LIMIT, "output '%s' is too large for JSON", t->name);
    return PROA_OK;
}

/* ---- replies ---- */

void proa_param_json(proa_buf *out, const proa_infer_param *p)
{
    proa_buf_json_str(out, p->name);
    proa_buf_char(out, ':');
    switch (p->kind) {
    case PROA_PARAM_BOOL: proa_buf_append(out, p->b ? "true" : "false", p->b ? 4 : 5); break;
    case PROA_PARAM_INT: proa_int_json(out, p->i); break;
    case PROA_PARAM_UINT: proa_uint_json(out, p->u); break;
    case PROA_PARAM_DOUBLE: proa_double_json(out, p->d); break;
    case PROA_PARAM_STRING: proa_buf_json_str(out, p->s); break;
    }
}

const proa_output_want *proa_output_want_find(const proa_output_want *wants, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(wants[i].name, name) == 0) return &wants[i];
    return NULL;
}

#define TEXT(out, literal) proa_buf_append(out, literal, sizeof(literal) - 1)

static void head_json(proa_buf *out, const proa_reply *reply)
{
    proa_buf_char(out, '{');
    if (reply->id && reply->id[0]) {
        TEXT(out, "\"id\":");
        proa_buf_json_str(out, proa_str_c(reply->id));
        proa_buf_char(out, ',');
    }
    TEXT(out, "\"model_name\":");
    proa_buf_json_str(out, proa_str_c(reply->model_name));
    TEXT(out, ",\"model_version\":\"");
    proa_int_json(out, reply->model_version);
    TEXT(out, "\",");
    for (int32_t i = 0; i < reply->params_count; i++) {
        if (i) proa_buf_char(out, ',');
        else TEXT(out, "\"parameters\":{");
        proa_param_json(out, &reply->params[i]);
    }
    if (reply->params_count) TEXT(out, "},");
}

static proa_status output_json(proa_reply_text *out, const proa_tensor *t, const proa_output_want *want,
                               bool binary, proa_err *err)
{
    proa_buf *json = out->json;
    TEXT(json, "{\"name\":");
    proa_buf_json_str(json, proa_str_c(t->name));
    TEXT(json, ",\"datatype\":\"");
    proa_buf_str(json, proa_str_c(proa_type_name(t->type)));
    TEXT(json, "\",\"shape\":[");
    for (int32_t d = 0; d < t->rank; d++) {
        if (d) proa_buf_char(json, ',');
        proa_int_json(json, t->shape[d]);
    }
    proa_buf_char(json, ']');
    if (want && want->shm_region) {
        /* the data is in the client's shared memory */
    } else if (binary) {
        TEXT(json, ",\"parameters\":{\"binary_data_size\":");
        proa_uint_json(json, t->bytes);
        proa_buf_char(json, '}');
        if (t->bytes) out->blobs[out->blobs_count++] = t;
    } else {
        TEXT(json, ",\"data\":");
        PROA_TRY(proa_tensor_json(json, t, false, err));
    }
    proa_buf_char(json, '}');
    return PROA_OK;
}

proa_status proa_reply_json_write(proa_reply_text *out, proa_reply *reply, const proa_output_want *wants,
                                  int wants_count, bool binary_default, proa_err *err)
{
    out->blobs = PROA_ARENA_NEW(&reply->arena, const proa_tensor *, reply->outputs_count);
    out->blobs_count = 0;
    head_json(out->json, reply);
    TEXT(out->json, "\"outputs\":[");
    for (int32_t i = 0; i < reply->outputs_count; i++) {
        const proa_tensor *t = &reply->outputs[i];
        const proa_output_want *want = proa_output_want_find(wants, wants_count, t->name);
        if (i) proa_buf_char(out->json, ',');
        PROA_TRY(output_json(out, t, want, want ? want->binary : binary_default, err));
    }
    TEXT(out->json, "]}");
    if (out->json->full) return PROA_FAIL(err, LIMIT, "the answer is too large");
    return PROA_OK;
}
