/* SPDX-License-Identifier: Apache-2.0
 * input.c - tensors and parameters as they are typed. */
#include "base/checked.h"
#include "base/limits.h"
#include "cli/client/client.h"
#include "tensor/dtype.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENT_MAX = 1 << 20 };

static proa_status parse_shape(proa_tensor *t, const char **text, proa_err *err)
{
    const char *c = *text + 1;
    while (*c && *c != ']') {
        char *end;
        long long n = strtoll(c, &end, 10);
        if (end == c || n < 0 || t->rank == PROA_SERVE_RANK_MAX)
            return PROA_FAIL(err, INVALID, "input '%s': '%s' is not a shape", t->name, *text);
        t->shape[t->rank++] = n;
        c = end + (*end == ',');
    }
    if (*c != ']') return PROA_FAIL(err, INVALID, "input '%s': a shape ends with ]", t->name);
    *text = c + 1;
    return PROA_OK;
}

static void append_int(proa_buf *out, proa_type type, const char *text, char **end)
{
    bool is_unsigned = type >= PROA_TYPE_UINT8 && type <= PROA_TYPE_UINT64;
    uint64_t v = is_unsigned ? strtoull(text, end, 10) : (uint64_t)strtoll(text, end, 10);
    proa_buf_append(out, &v, (size_t)proa_type_bytes(type)); /* little-endian, as this machine is */
}

static void append_float(proa_buf *out, proa_type type, const char *text, char **end)
{
    double d = strtod(text, end);
    float f = (float)d;
    uint16_t half = type == PROA_TYPE_FP16 ? proa_f32_to_f16(f) : proa_f32_to_bf16(f);
    if (type == PROA_TYPE_FP64) proa_buf_append(out, &d, 8);
    else if (type == PROA_TYPE_FP32) proa_buf_append(out, &f, 4);
    else proa_buf_append(out, &half, 2);
}

static void append_bool(proa_buf *out, const char *text, char **end)
{
    bool yes = strncmp(text, "true", 4) == 0 || *text == '1';
    proa_buf_char(out, yes);
    *end = (char *)(uintptr_t)text + strcspn(text, ",");
}

static void append_string(proa_buf *out, const char *text, char **end)
{
    uint32_t len = (uint32_t)strcspn(text, ",");
    proa_buf_append(out, &len, 4);
    proa_buf_append(out, text, len);
    *end = (char *)(uintptr_t)text + len;
}

static proa_status append_values(proa_buf *out, const proa_tensor *t, const char *text, int64_t *count,
                                 proa_err *err)
{
    for (const char *c = text; *c; (*count)++) {
        char *end = NULL;
        if (*count == ELEMENT_MAX) return PROA_FAIL(err, LIMIT, "input '%s' has too many values", t->name);
        if (t->type == PROA_TYPE_BYTES) append_string(out, c, &end);
        else if (t->type == PROA_TYPE_BOOL) append_bool(out, c, &end);
        else if (t->type >= PROA_TYPE_FP16) append_float(out, t->type, c, &end);
        else append_int(out, t->type, c, &end);
        if (end == c && t->type != PROA_TYPE_BYTES)
            return PROA_FAIL(err, INVALID, "input '%s': '%s' is not a %s", t->name, c, proa_type_name(t->type));
        c = end + (*end == ',');
    }
    return PROA_OK;
}

proa_status proa_client_input(proa_infer *r, const char *text, proa_err *err)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return PROA_FAIL(err, INVALID, "input '%s' is not of the form NAME=TYPE[SHAPE]:VALUES", text);
    proa_tensor *t = proa_infer_add_input(r, (proa_str){text, (size_t)(equals - text)});
    if (!t) return PROA_FAIL(err, LIMIT, "too many inputs");
    const char *c = equals + 1;
    size_t len = strcspn(c, "[:");
    t->type = proa_type_find((proa_str){c, len});
    if (t->type == PROA_TYPE_INVALID)
        return PROA_FAIL(err, INVALID, "input '%s': '%.*s' is not a type (INT32, FP32, BYTES, ...)", t->name,
                         (int)len, c);
    c += len;
    bool shaped = *c == '[';
    if (shaped) PROA_TRY(parse_shape(t, &c, err));
    if (*c == ':') c++;
    proa_buf bytes;
    int64_t count = 0;
    proa_buf_init(&bytes, (size_t)PROA_HTTP_BODY_MAX);
    proa_status status = append_values(&bytes, t, c, &count, err);
    if (status == PROA_OK && bytes.full) status = PROA_FAIL(err, LIMIT, "input '%s' is too large", t->name);
    if (!shaped) t->rank = 1, t->shape[0] = count;
    t->bytes = bytes.len;
    char *kept = proa_arena_alloc(&r->arena, bytes.len + 1);
    memcpy(kept, bytes.ptr ? bytes.ptr : "", bytes.len);
    t->data = kept;
    proa_buf_release(&bytes);
    return status;
}

proa_status proa_client_param(proa_infer *r, const char *text, proa_err *err)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return PROA_FAIL(err, INVALID, "parameter '%s' is not of the form NAME=VALUE", text);
    proa_infer_param *p = proa_infer_add_param(r, (proa_str){text, (size_t)(equals - text)});
    if (!p) return PROA_FAIL(err, LIMIT, "too many parameters");
    const char *value = equals + 1;
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    p->kind = PROA_PARAM_INT, p->i = n;
    if (end != value && !*end && !errno) return PROA_OK;
    p->kind = PROA_PARAM_DOUBLE, p->d = strtod(value, &end);
    if (end != value && !*end) return PROA_OK;
    p->kind = PROA_PARAM_BOOL, p->b = strcmp(value, "true") == 0;
    if (p->b || strcmp(value, "false") == 0) return PROA_OK;
    p->kind = PROA_PARAM_STRING, p->s = proa_str_c(proa_arena_strdup(&r->arena, proa_str_c(value)));
    return PROA_OK;
}
