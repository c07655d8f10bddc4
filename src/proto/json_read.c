/* SPDX-License-Identifier: Apache-2.0
 * json_read.c - reads a message from JSON. */
#include "base/limits.h"
#include "proto/proto_json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct reader {
    proa_arena *arena;
    proa_err *err; /* not NULL */
} reader;

static proa_status wrong_kind(reader *r, const char *want, const proa_json *j)
{
    return PROA_FAIL(r->err, INVALID, "expected %s, not %s", want, proa_json_kind_name(proa_json_kind(j)));
}

/* An integer as sign and magnitude, from a number or from digits in a string. */
static bool parse_magnitude(proa_str s, bool *negative, uint64_t *value)
{
    *negative = s.len > 0 && s.ptr[0] == '-';
    *value = 0;
    if (s.len <= *negative) return false;
    for (size_t i = *negative; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (unsigned)(s.ptr[i] - '0'), value))
            return false;
    }
    return true;
}

static proa_status read_magnitude(reader *r, const proa_json *j, bool *negative, uint64_t *value)
{
    proa_json_type kind = proa_json_kind(j);
    double d = proa_json_double(j);
    if (kind == PROA_JSON_INT) {
        int64_t i = proa_json_int(j);
        *negative = i < 0;
        *value = i < 0 ? 0 - (uint64_t)i : proa_json_uint(j);
        return PROA_OK;
    }
    if (kind == PROA_JSON_DOUBLE && floor(d) == d && fabs(d) < 9e15) { /* 1e3 */
        *negative = d < 0;
        *value = (uint64_t)fabs(d);
        return PROA_OK;
    }
    if (kind == PROA_JSON_STRING && parse_magnitude(proa_json_str(j), negative, value)) return PROA_OK;
    if (kind == PROA_JSON_STRING || kind == PROA_JSON_DOUBLE)
        return PROA_FAIL(r->err, INVALID, "not an integer of 64 bits");
    return wrong_kind(r, "an integer", j);
}

/* max: the largest positive value; below zero there is one more for signed types, none for others. */
static proa_status read_integer(reader *r, const proa_json *j, uint64_t max, bool is_signed, uint64_t *bits)
{
    bool negative = false;
    uint64_t value = 0;
    PROA_TRY(read_magnitude(r, j, &negative, &value));
    uint64_t limit = !negative ? max : is_signed ? max + 1 : 0;
    if (value > limit) return PROA_FAIL(r->err, INVALID, "integer out of range");
    *bits = negative ? 0 - value : value;
    return PROA_OK;
}

static proa_status read_double(reader *r, const proa_json *j, bool single, double *value)
{
    proa_json_type kind = proa_json_kind(j);
    proa_str s = proa_json_str(j);
    char *end = NULL;
    *value = proa_json_double(j);
    if (kind == PROA_JSON_STRING &&
        (proa_str_is(s, "NaN") || proa_str_is(s, "Infinity") || proa_str_is(s, "-Infinity"))) {
        *value = strtod(s.ptr, NULL);
        return PROA_OK;
    }
    if (kind == PROA_JSON_STRING) {
        if (s.len > 0 && strspn(s.ptr, "+-.0123456789eE") == s.len) *value = strtod(s.ptr, &end);
        if (!end || end != s.ptr + s.len) return PROA_FAIL(r->err, INVALID, "not a number");
    } else if (kind != PROA_JSON_INT && kind != PROA_JSON_DOUBLE) return wrong_kind(r, "a number", j);
    if (isinf(*value) || (single && isinf((float)*value)))
        return PROA_FAIL(r->err, INVALID, "number out of range");
    return PROA_OK;
}

static proa_status read_bool(reader *r, const proa_json *j, protobuf_c_boolean *value)
{
    if (proa_json_kind(j) != PROA_JSON_BOOL) return wrong_kind(r, "true or false", j);
    *value = proa_json_bool(j);
    return PROA_OK;
}

static proa_status read_enum(reader *r, const proa_json *j, const ProtobufCEnumDescriptor *type, int32_t *value)
{
    proa_str s = proa_json_str(j);
    uint64_t bits = 0;
    if (proa_json_kind(j) != PROA_JSON_STRING) {
        PROA_TRY(read_integer(r, j, INT32_MAX, true, &bits));
        *value = (int32_t)bits;
        return PROA_OK;
    }
    for (unsigned i = 0; i < type->n_values; i++) {
        if (strlen(s.ptr) != s.len || strcasecmp(type->values[i].name, s.ptr) != 0) continue;
        *value = type->values[i].value;
        return PROA_OK;
    }
    return PROA_FAIL(r->err, INVALID, "no value '%.64s' in %s", s.ptr, type->short_name);
}

static proa_status read_string(reader *r, const proa_json *j, char **value)
{
    proa_str s = proa_json_str(j);
    if (proa_json_kind(j) != PROA_JSON_STRING) return wrong_kind(r, "a string", j);
    if (memchr(s.ptr, '\0', s.len)) return PROA_FAIL(r->err, INVALID, "a string with a NUL byte");
    *value = proa_arena_strdup(r->arena, s);
    return PROA_OK;
}

/* 0 to 63, or -1. */
static int digit_of_either_alphabet(char c)
{
    return proa_base64_digit(c == '-' ? '+' : c == '_' ? '/' : c);
}

/* Either alphabet, padded or not. */
static bool base64_decode(ProtobufCBinaryData *out, proa_str text, proa_arena *arena)
{
    size_t len = text.len;
    for (int i = 0; i < 2 && text.len % 4 == 0 && len > 0 && text.ptr[len - 1] == '='; i++) len--;
    if (len % 4 == 1) return false;
    out->len = 0;
    out->data = proa_arena_alloc(arena, len / 4 * 3 + 3);
    uint32_t group = 0;
    for (size_t i = 0; i < len; i++) {
        int v = digit_of_either_alphabet(text.ptr[i]);
        if (v < 0) return false;
        group = group << 6 | (uint32_t)v;
        if (i % 4 != 0) out->data[out->len++] = (uint8_t)(group >> (6 - i % 4 * 2));
    }
    return true;
}

static proa_status read_bytes(reader *r, const proa_json *j, ProtobufCBinaryData *value)
{
    if (proa_json_kind(j) != PROA_JSON_STRING) return wrong_kind(r, "a string of base64", j);
    if (!base64_decode(value, proa_json_str(j), r->arena)) return PROA_FAIL(r->err, INVALID, "not base64");
    return PROA_OK;
}

static proa_status read_message(reader *r, const proa_json *j, const ProtobufCMessageDescriptor *type,
                                ProtobufCMessage **out);

static proa_status read_value(reader *r, const proa_json *j, const ProtobufCFieldDescriptor *field, void *to)
{
    uint64_t bits = 0;
    double real = 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        PROA_TRY(read_integer(r, j, INT32_MAX, true, &bits));
        *(int32_t *)to = (int32_t)bits;
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        PROA_TRY(read_integer(r, j, UINT32_MAX, false, &bits));
        *(uint32_t *)to = (uint32_t)bits;
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: return read_integer(r, j, INT64_MAX, true, to);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return read_integer(r, j, UINT64_MAX, false, to);
    case PROTOBUF_C_TYPE_FLOAT:
        PROA_TRY(read_double(r, j, true, &real));
        *(float *)to = (float)real;
        break;
    case PROTOBUF_C_TYPE_DOUBLE: return read_double(r, j, false, to);
    case PROTOBUF_C_TYPE_BOOL: return read_bool(r, j, to);
    case PROTOBUF_C_TYPE_ENUM: return read_enum(r, j, field->descriptor, to);
    case PROTOBUF_C_TYPE_STRING: return read_string(r, j, to);
    case PROTOBUF_C_TYPE_BYTES: return read_bytes(r, j, to);
    case PROTOBUF_C_TYPE_MESSAGE: return read_message(r, j, field->descriptor, to);
    }
    return PROA_OK;
}

static proa_status read_list(reader *r, const proa_json *j, ProtobufCMessage *m,
                             const ProtobufCFieldDescriptor *field)
{
    if (proa_json_kind(j) != PROA_JSON_ARRAY) return wrong_kind(r, "an array", j);
    for (int64_t i = 0; i < proa_json_len(j); i++) {
        proa_status status = read_value(r, proa_json_at(j, i), field, proa_message_put(m, field, r->arena));
        if (status == PROA_OK) continue;
        proa_err_prefix(r->err, "element %lld", (long long)i);
        return status;
    }
    return PROA_OK;
}

/* A map's key, which JSON has as a string, into the entry. */
static proa_status read_key(reader *r, proa_str key, ProtobufCMessage *entry)
{
    const ProtobufCFieldDescriptor *field = &entry->descriptor->fields[0];
    void *to = proa_message_put(entry, field, r->arena);
    bool negative = false;
    uint64_t value = 0;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        *(char **)to = proa_arena_strdup(r->arena, key);
        return PROA_OK;
    }
    if (field->type == PROTOBUF_C_TYPE_BOOL) {
        *(protobuf_c_boolean *)to = proa_str_is(key, "true");
        if (proa_str_is(key, "true") || proa_str_is(key, "false")) return PROA_OK;
        return PROA_FAIL(r->err, INVALID, "a key must be true or false");
    }
    if (!parse_magnitude(key, &negative, &value))
        return PROA_FAIL(r->err, INVALID, "a key must be an integer");
    bool is_signed = field->type != PROTOBUF_C_TYPE_UINT32 && field->type != PROTOBUF_C_TYPE_UINT64 &&
                     field->type != PROTOBUF_C_TYPE_FIXED32 && field->type != PROTOBUF_C_TYPE_FIXED64;
    size_t bytes = proa_field_bytes(field);
    uint64_t max = (bytes == 4 ? UINT32_MAX : UINT64_MAX) >> is_signed;
    if (value > (!negative ? max : is_signed ? max + 1 : 0))
        return PROA_FAIL(r->err, INVALID, "key out of range");
    value = negative ? 0 - value : value;
    if (bytes == 4) *(uint32_t *)to = (uint32_t)value;
    else *(uint64_t *)to = value;
    return PROA_OK;
}

static proa_status read_entry(reader *r, const proa_json_iter *it, ProtobufCMessage *m,
                              const ProtobufCFieldDescriptor *map)
{
    ProtobufCMessage *entry = proa_message_new(map->descriptor, r->arena);
    const ProtobufCFieldDescriptor *value = &entry->descriptor->fields[1];
    if (proa_message_count(m, map) == PROA_MAP_ENTRIES_MAX)
        return PROA_FAIL(r->err, LIMIT, "more than %d entries", PROA_MAP_ENTRIES_MAX);
    PROA_TRY(read_key(r, it->key, entry));
    if (proa_message_entry(m, map, proa_message_at(entry, &entry->descriptor->fields[0], 0)))
        return PROA_FAIL(r->err, INVALID, "a key stands twice"); /* 1 and 01 */
    PROA_TRY(read_value(r, it->value, value, proa_message_put(entry, value, r->arena)));
    *(ProtobufCMessage **)proa_message_put(m, map, r->arena) = entry;
    return PROA_OK;
}

static proa_status read_map(reader *r, const proa_json *j, ProtobufCMessage *m,
                            const ProtobufCFieldDescriptor *map)
{
    if (proa_json_kind(j) != PROA_JSON_OBJECT) return wrong_kind(r, "an object", j);
    for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it);) {
        proa_status status = read_entry(r, &it, m, map);
        if (status == PROA_OK) continue;
        proa_err_prefix(r->err, "'%.64s'", it.key.ptr);
        return status;
    }
    return PROA_OK;
}

/* "max_batch_size", or "maxBatchSize" for it. */
static bool field_called(const char *name, proa_str key)
{
    size_t at = 0;
    if (proa_str_is(key, name)) return true;
    for (; *name; name++, at++) {
        char c = *name;
        if (c == '_' && name[1])
            c = name[1] >= 'a' && name[1] <= 'z' ? (char)(name[1] - 'a' + 'A') : name[1], name++;
        if (at >= key.len || key.ptr[at] != c) return false;
    }
    return at == key.len;
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type, proa_str key)
{
    for (unsigned i = 0; i < type->n_fields; i++)
        if (field_called(type->fields[i].name, key)) return &type->fields[i];
    return NULL;
}

/* Both spellings of a name, or two members of a oneof. */
static proa_status check_once(reader *r, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    if (proa_message_count(m, field)) return PROA_FAIL(r->err, INVALID, "specified more than once");
    if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)) return PROA_OK;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *other = &m->descriptor->fields[i];
        if ((other->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
            other->quantifier_offset == field->quantifier_offset && proa_message_count(m, other))
            return PROA_FAIL(r->err, INVALID, "specified along with '%s', and only one of them may be",
                             other->name);
    }
    return PROA_OK;
}

static proa_status read_field(reader *r, const proa_json *j, ProtobufCMessage *m,
                              const ProtobufCFieldDescriptor *field)
{
    if (proa_json_kind(j) == PROA_JSON_NULL) return PROA_OK;
    PROA_TRY(check_once(r, m, field));
    if (proa_field_is_map(field)) return read_map(r, j, m, field);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) return read_list(r, j, m, field);
    return read_value(r, j, field, proa_message_put(m, field, r->arena));
}

static proa_status read_message(reader *r, const proa_json *j, const ProtobufCMessageDescriptor *type,
                                ProtobufCMessage **out)
{
    ProtobufCMessage *m = proa_message_new(type, r->arena);
    if (proa_json_kind(j) != PROA_JSON_OBJECT) return wrong_kind(r, "an object", j);
    for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it);) {
        const ProtobufCFieldDescriptor *field = find_field(type, it.key);
        if (!field) return PROA_FAIL(r->err, INVALID, "no field '%.64s' in %s", it.key.ptr, type->short_name);
        proa_status status = read_field(r, it.value, m, field);
        if (status == PROA_OK) continue;
        proa_err_prefix(r->err, "%s", field->name);
        return status;
    }
    *out = m;
    return PROA_OK;
}

proa_status proa_proto_json_read(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                                 const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_err own = {.status = PROA_OK};
    reader r = {arena, err ? err : &own};
    ProtobufCMessage *m = NULL;
    *out = NULL;
    PROA_TRY(read_message(&r, json, type, &m));
    *out = m;
    return PROA_OK;
}

proa_status proa_proto_json_parse(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                                  proa_str text, const char *what, proa_arena *arena, proa_err *err)
{
    proa_json *json = NULL;
    *out = NULL;
    proa_status status = proa_json_parse(&json, text, what, err);
    if (status != PROA_OK) return status;
    status = proa_proto_json_read(out, type, json, arena, err);
    if (status != PROA_OK) proa_err_prefix(err, "%s", what);
    proa_json_free(json);
    return status;
}
