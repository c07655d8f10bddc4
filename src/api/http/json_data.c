/* SPDX-License-Identifier: Apache-2.0
 * json_data.c - reads the `data` array of an input straight into the memory of its tensor. */
#include "api/http/json_read.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where elements of one `data` go. */
typedef struct sink_array {
    proa_type type;
    char *dst;        /* of numbers: the next one */
    int64_t left;     /* of numbers: how many still fit */
    proa_buf strings; /* of BYTES, as a tensor has them */
    proa_str *texts;  /* of BYTES, [texts_max], as a list; NULL: no list is made */
    int64_t texts_max, texts_count;
    size_t texts_bytes; /* memory of the list, as if all texts were copied */
} sink_array;

static proa_status wrong_element(const proa_jread *j, const char *type, const char *as, proa_err *err)
{
    return proa_err_set(err, j->bad, __FILE__, __LINE__,
                        "Unable to parse 'data': attempt to access JSON non-%s as %s", type, as);
}

static proa_status out_of_range(const proa_jnumber *n, proa_type type, proa_err *err)
{
    if (n->kind == PROA_JNUMBER_UINT)
        return PROA_FAIL(err, INVALID, "Unable to parse 'data': %" PRIu64 " is out of range of datatype %s",
                         n->u, proa_type_name(type));
    return PROA_FAIL(err, INVALID, "Unable to parse 'data': %" PRId64 " is out of range of datatype %s", n->i,
                     proa_type_name(type));
}

static proa_status read_signed(proa_jread *j, sink_array *s, proa_err *err)
{
    proa_jnumber n = {.kind = PROA_JNUMBER_DOUBLE};
    if (proa_jread_peek(j) == PROA_JREAD_NUMBER) PROA_TRY(proa_jread_number(j, &n, err));
    if (n.kind != PROA_JNUMBER_INT) {
        if (n.kind == PROA_JNUMBER_UINT && s->type != PROA_TYPE_INT64 && !j->truncate)
            return out_of_range(&n, s->type, err);
        return wrong_element(j, "signed-integer", "signed-integer", err);
    }
    int64_t size = proa_type_bytes(s->type), max = INT64_MAX >> (64 - 8 * size);
    if (!j->truncate && (n.i > max || n.i < -max - 1)) return out_of_range(&n, s->type, err);
    memcpy(s->dst, &n.i, (size_t)size); /* little-endian: the lower bytes */
    s->dst += size;
    return PROA_OK;
}

static proa_status read_unsigned(proa_jread *j, sink_array *s, proa_err *err)
{
    proa_jnumber n = {.kind = PROA_JNUMBER_DOUBLE};
    if (proa_jread_peek(j) == PROA_JREAD_NUMBER) PROA_TRY(proa_jread_number(j, &n, err));
    if (n.kind == PROA_JNUMBER_DOUBLE || (n.kind == PROA_JNUMBER_INT && n.i < 0))
        return wrong_element(j, "unsigned-integer", "unsigned-integer", err);
    uint64_t u = n.kind == PROA_JNUMBER_UINT ? n.u : (uint64_t)n.i;
    int64_t size = proa_type_bytes(s->type);
    if (!j->truncate && u > UINT64_MAX >> (64 - 8 * size)) return out_of_range(&n, s->type, err);
    memcpy(s->dst, &u, (size_t)size);
    s->dst += size;
    return PROA_OK;
}

static proa_status read_bool(proa_jread *j, sink_array *s, proa_err *err)
{
    bool b;
    if (proa_jread_peek(j) != PROA_JREAD_BOOL) return wrong_element(j, "boolean", "boolean", err);
    PROA_TRY(proa_jread_bool(j, &b, err));
    *s->dst++ = (char)b;
    return PROA_OK;
}

static proa_status read_float(proa_jread *j, sink_array *s, proa_err *err)
{
    proa_jnumber n;
    if (proa_jread_peek(j) != PROA_JREAD_NUMBER) return wrong_element(j, "number", "double", err);
    PROA_TRY(proa_jread_number(j, &n, err));
    float f = (float)n.d;
    memcpy(s->dst, &f, sizeof f);
    s->dst += sizeof f;
    return PROA_OK;
}

static proa_status read_double(proa_jread *j, sink_array *s, proa_err *err)
{
    proa_jnumber n;
    if (proa_jread_peek(j) != PROA_JREAD_NUMBER) return wrong_element(j, "number", "double", err);
    PROA_TRY(proa_jread_number(j, &n, err));
    memcpy(s->dst, &n.d, sizeof n.d);
    s->dst += sizeof n.d;
    return PROA_OK;
}

static proa_status too_many_bytes(const proa_jread *j, const char *name, size_t bytes, proa_err *err)
{
    return PROA_FAIL(
        err, INVALID,
        "JSON input '%s' has a byte_size (%zu bytes) that exceeds the maximum allowed value of %zu "
        "bytes. Use --http-max-input-size to increase the limit.",
        name, bytes, j->tensor_bytes_max);
}

static proa_status read_text(proa_jread *j, sink_array *s, proa_err *err)
{
    proa_str text;
    if (proa_jread_peek(j) != PROA_JREAD_STRING)
        return proa_err_set(err, j->bad, __FILE__, __LINE__,
                            "Unable to parse JSON bytes array: attempt to access JSON non-string as string");
    PROA_TRY(proa_jread_string(j, &text, err));
    uint32_t len = (uint32_t)text.len; /* bodies are shorter than 4 GiB: body_limit */
    proa_buf_append(&s->strings, &len, sizeof len);
    proa_buf_append(&s->strings, text.ptr, text.len);
    return PROA_OK;
}

/* One more text of a list, owned by the arena: the body ends before the request. Those beyond the shape are counted. */
static proa_status list_text(proa_jread *j, sink_array *s, proa_err *err)
{
    proa_str text;
    if (proa_jread_peek(j) != PROA_JREAD_STRING)
        return proa_err_set(err, j->bad, __FILE__, __LINE__,
                            "Unable to parse JSON bytes array: attempt to access JSON non-string as string");
    PROA_TRY(proa_jread_string(j, &text, err));
    s->texts_bytes += sizeof(proa_str) + text.len;
    if (s->texts_count++ >= s->texts_max) return PROA_OK;
    bool in_body = text.ptr >= j->begin && text.ptr < j->end;
    if (!text.len) text.ptr = "";
    else if (in_body) text.ptr = proa_arena_strdup(j->arena, text);
    s->texts[s->texts_count - 1] = text;
    return PROA_OK;
}

typedef proa_status element_reader(proa_jread *j, sink_array *s, proa_err *err);

static element_reader *reader_of(proa_type type)
{
    switch (type) {
    case PROA_TYPE_BOOL: return read_bool;
    case PROA_TYPE_UINT8:
    case PROA_TYPE_UINT16:
    case PROA_TYPE_UINT32:
    case PROA_TYPE_UINT64: return read_unsigned;
    case PROA_TYPE_INT8:
    case PROA_TYPE_INT16:
    case PROA_TYPE_INT32:
    case PROA_TYPE_INT64: return read_signed;
    case PROA_TYPE_FP32: return read_float;
    case PROA_TYPE_FP64: return read_double;
    case PROA_TYPE_BYTES: return read_text;
    default: return NULL;
    }
}

static proa_status read_element(proa_jread *j, sink_array *s, element_reader *read, proa_err *err)
{
    proa_jread_kind kind = proa_jread_peek(j);
    if (PROA_UNLIKELY(kind == PROA_JREAD_OTHER || kind == PROA_JREAD_END))
        return proa_jread_fail(j, "Invalid value.", err);
    if (PROA_UNLIKELY(s->left-- <= 0 && s->type != PROA_TYPE_BYTES))
        return PROA_FAIL(err, INTERNAL,
                         "Unable to parse 'data': Shape does not match true shape of 'data' field");
    return read(j, s, err);
}

/* The outermost array is depth 1; an element may lie in at most 99. */
static proa_status read_all(proa_jread *j, sink_array *s, element_reader *read, proa_err *err)
{
    int depth = 0;
    bool more = true;
    do {
        if (proa_jread_peek(j) == PROA_JREAD_ARRAY) {
            if (++depth >= PROA_INFER_JSON_DEPTH_MAX)
                return PROA_FAIL(
                    err, INVALID, "%sJSON nesting depth exceeds maximum allowed limit (%d)",
                    s->type == PROA_TYPE_BYTES ? "" : "Unable to parse 'data': ", PROA_INFER_JSON_DEPTH_MAX);
            proa_jread_begin(j);
        } else PROA_TRY(read_element(j, s, read, err));
        for (more = false; depth > 0 && !more; depth -= !more) PROA_TRY(proa_jread_element(j, &more, err));
    } while (more);
    return PROA_OK;
}

static proa_status refuse_type(const proa_tensor *t, proa_err *err)
{
    if (t->type == PROA_TYPE_FP16 || t->type == PROA_TYPE_BF16)
        return PROA_FAIL(
            err, INVALID,
            "receiving %s data via JSON is not supported. Please use the binary data format for input %s",
            proa_type_name(t->type), t->name);
    return PROA_FAIL(err, INVALID, "invalid datatype for input %s", t->name);
}

static proa_status read_strings(proa_jread *j, proa_tensor *t, sink_array *s, proa_err *err)
{
    proa_buf_init(&s->strings, j->tensor_bytes_max);
    proa_status status = read_all(j, s, read_text, err);
    if (status == PROA_OK && s->strings.full)
        status = too_many_bytes(j, t->name, j->tensor_bytes_max + 1, err);
    if (status != PROA_OK || !s->strings.len) {
        proa_buf_release(&s->strings);
        return status;
    }
    t->buffer = proa_buffer_wrap(s->strings.ptr, s->strings.len, free, s->strings.ptr);
    t->data = s->strings.ptr;
    t->bytes = s->strings.len;
    return PROA_OK;
}

static proa_status check_number_bytes(const proa_jread *j, const proa_tensor *t, int64_t elements,
                                      int64_t *bytes, proa_err *err)
{
    *bytes = INT64_MAX;
    if (!proa_mul(elements, proa_type_bytes(t->type), bytes) || (size_t)*bytes > j->tensor_bytes_max)
        return too_many_bytes(j, t->name, (size_t)*bytes, err);
    /* Each element takes two characters of text or more, so a short text cannot ask for a large buffer. */
    if (elements - 1 > (j->end - j->at) / 2)
        return PROA_FAIL(err, INTERNAL, "Failed to parse 'data' field: shape does not match true shape");
    return PROA_OK;
}

static proa_status list_texts(proa_jread *j, proa_jlist *out, sink_array *s, proa_err *err)
{
    if (s->left - 1 > (j->end - j->at) / 2)
        return PROA_FAIL(err, INTERNAL, "Failed to parse 'data' field: shape does not match true shape");
    s->texts_max = s->left;
    s->texts = PROA_ARENA_NEW(j->arena, proa_str, s->left);
    PROA_TRY(read_all(j, s, list_text, err));
    if (s->texts_bytes > j->tensor_bytes_max)
        return too_many_bytes(j, out->tensor.name, j->tensor_bytes_max + 1, err);
    out->found = s->texts_count;
    out->bytes = s->texts_bytes;
    out->texts = s->texts;
    return PROA_OK;
}

proa_status proa_jread_list(proa_jread *j, proa_jlist *out, proa_err *err)
{
    const proa_tensor *t = &out->tensor;
    element_reader *read = reader_of(t->type);
    int64_t elements = proa_shape_elements(t->shape, t->rank), bytes;
    sink_array s = {.type = t->type, .left = elements};
    if (elements == 0 || t->rank == 0) return proa_jread_skip(j, err);
    if (!read) return refuse_type(t, err);
    if (read == read_text) return list_texts(j, out, &s, err);
    PROA_TRY(check_number_bytes(j, t, elements, &bytes, err));
    out->numbers = s.dst = proa_arena_alloc(j->arena, (size_t)bytes);
    PROA_TRY(read_all(j, &s, read, err));
    if (s.left > 0)
        return PROA_FAIL(err, INTERNAL, "Failed to parse 'data' field: shape does not match true shape");
    out->found = elements;
    out->bytes = (size_t)bytes;
    return PROA_OK;
}

proa_status proa_jread_data(proa_jread *j, proa_tensor *t, proa_err *err)
{
    element_reader *read = reader_of(t->type);
    int64_t elements = proa_shape_elements(t->shape, t->rank), bytes;
    sink_array s = {.type = t->type, .left = elements};
    if (elements == 0 || t->rank == 0)
        return proa_jread_skip(j, err); /* no dimension: refused for its shape */
    if (!read) return refuse_type(t, err);
    if (read == read_text) return read_strings(j, t, &s, err);
    PROA_TRY(check_number_bytes(j, t, elements, &bytes, err));
    PROA_TRY(proa_buffer_try(&t->buffer, (size_t)bytes, err));
    t->data = s.dst = t->buffer->data;
    t->bytes = (size_t)bytes;
    PROA_TRY(read_all(j, &s, read, err));
    if (s.left > 0)
        return PROA_FAIL(err, INTERNAL, "Failed to parse 'data' field: shape does not match true shape");
    return PROA_OK;
}
