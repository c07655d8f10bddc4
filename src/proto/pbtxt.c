/* SPDX-License-Identifier: Apache-2.0
 * pbtxt.c - parses protobuf's text format (config.pbtxt). */
#include "proto/pbtxt.h"

#include "base/limits.h"
#include "proto/pbtxt_token.h"
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    proa_lexer lex;
    proa_arena *arena;
    proa_buf scratch; /* one string, unescaped */
} parser;

static bool take_symbol(parser *p, char symbol)
{
    if (!proa_lexer_is(&p->lex, symbol)) return false;
    proa_lexer_next(&p->lex);
    return true;
}

static bool at_name(const parser *p, const char *name)
{
    return p->lex.now.kind == PROA_TOKEN_NAME && proa_str_is(p->lex.now.text, name);
}

/* Adds a digit; false if the value goes over max. */
static bool push_digit(uint64_t *value, unsigned base, unsigned digit, uint64_t max)
{
    uint64_t v;
    if (__builtin_mul_overflow(*value, base, &v) || __builtin_add_overflow(v, digit, &v) || v > max)
        return false;
    *value = v;
    return true;
}

/* An INTEGER token's value; false if it goes over max. */
static bool token_value(proa_str s, uint64_t max, uint64_t *value)
{
    bool hex = s.len > 1 && (s.ptr[1] | 0x20) == 'x';
    unsigned base = hex ? 16 : s.len > 1 && s.ptr[0] == '0' ? 8 : 10;
    *value = 0;
    for (size_t i = hex ? 2 : 0; i < s.len; i++) {
        unsigned c = (unsigned char)s.ptr[i];
        if (!push_digit(value, base, c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10, max)) return false;
    }
    return true;
}

static proa_status read_unsigned(parser *p, uint64_t max, uint64_t *value)
{
    if (p->lex.now.kind != PROA_TOKEN_INTEGER) return proa_lexer_expected(&p->lex, "an integer");
    if (!token_value(p->lex.now.text, max, value)) return proa_lexer_fail(&p->lex, "integer out of range");
    proa_lexer_next(&p->lex);
    return PROA_OK;
}

/* max: the largest positive value; the smallest is one more below zero. */
static proa_status read_signed(parser *p, uint64_t max, int64_t *value)
{
    uint64_t magnitude = 0;
    bool negative = take_symbol(p, '-');
    PROA_TRY(read_unsigned(p, max + negative, &magnitude));
    *value = (int64_t)(negative ? 0 - magnitude : magnitude);
    return PROA_OK;
}

static proa_status read_word_double(parser *p, double *value)
{
    char word[10];
    proa_str s = p->lex.now.text;
    if (s.len >= sizeof word) return proa_lexer_expected(&p->lex, "a number");
    for (size_t i = 0; i < s.len; i++) word[i] = (char)(s.ptr[i] | 0x20);
    word[s.len] = '\0';
    if (strcmp(word, "inf") != 0 && strcmp(word, "infinity") != 0 && strcmp(word, "nan") != 0)
        return proa_lexer_expected(&p->lex, "a number");
    *value = strtod(word, NULL);
    return PROA_OK;
}

static proa_status read_double(parser *p, double *value)
{
    bool negative = take_symbol(p, '-');
    proa_token t = p->lex.now;
    uint64_t integer = 0;
    if (t.kind == PROA_TOKEN_NAME) PROA_TRY(read_word_double(p, value));
    else if (t.kind == PROA_TOKEN_INTEGER && t.text.len > 1 && t.text.ptr[0] == '0')
        return proa_lexer_expected(&p->lex, "a decimal number");
    else if (t.kind == PROA_TOKEN_INTEGER && token_value(t.text, UINT64_MAX, &integer))
        *value = (double)integer;
    else if (t.kind == PROA_TOKEN_INTEGER || t.kind == PROA_TOKEN_FLOAT) {
        proa_buf_clear(&p->scratch);
        proa_buf_str(&p->scratch, t.text);
        *value = strtod(p->scratch.ptr, NULL); /* a trailing f is left over */
    } else return proa_lexer_expected(&p->lex, "a number");
    if (negative) *value = -*value;
    proa_lexer_next(&p->lex);
    return PROA_OK;
}

static proa_status read_bool(parser *p, protobuf_c_boolean *value)
{
    static const char *const words[] = {"false", "False", "f", "true", "True", "t"};
    uint64_t integer = 0;
    if (p->lex.now.kind == PROA_TOKEN_INTEGER) {
        PROA_TRY(read_unsigned(p, 1, &integer));
        *value = integer == 1;
        return PROA_OK;
    }
    for (size_t i = 0; i < PROA_COUNT(words); i++) {
        if (!at_name(p, words[i])) continue;
        *value = i >= PROA_COUNT(words) / 2;
        proa_lexer_next(&p->lex);
        return PROA_OK;
    }
    return proa_lexer_expected(&p->lex, "true or false");
}

/* Adjacent strings into the scratch buffer. */
static proa_status read_string(parser *p)
{
    proa_buf_clear(&p->scratch);
    if (p->lex.now.kind != PROA_TOKEN_STRING) return proa_lexer_expected(&p->lex, "a string in quotes");
    while (p->lex.now.kind == PROA_TOKEN_STRING) {
        proa_token_unescape(&p->scratch, p->lex.now);
        proa_lexer_next(&p->lex);
    }
    return PROA_OK;
}

static proa_status read_text(parser *p, char **value)
{
    proa_lexer start = p->lex;
    PROA_TRY(read_string(p));
    proa_str s = proa_buf_view(&p->scratch);
    if (memchr(s.ptr, '\0', s.len)) return proa_lexer_fail(&start, "a string with a NUL byte");
    if (!proa_utf8_valid(s)) return proa_lexer_fail(&start, "a string that is not UTF-8");
    *value = proa_arena_strdup(p->arena, s); /* also copies "": protobuf-c takes its shared empty string for unset */
    return PROA_OK;
}

static proa_status read_bytes(parser *p, ProtobufCBinaryData *value)
{
    PROA_TRY(read_string(p));
    value->len = p->scratch.len;
    value->data = (uint8_t *)proa_arena_strdup(p->arena, proa_buf_view(&p->scratch));
    return PROA_OK;
}

/* The name in `names` that is closest to the written one; NULL if none is close. */
static const char *nearest_name(proa_str written, const char *(*name_at)(const void *, unsigned),
                                const void *names, unsigned count)
{
    enum { LONG = 4 }; /* a prefix of this length counts as close: max_batch for max_batch_size */
    char word[65];
    int best = (int)(written.len < sizeof word ? written.len : sizeof word - 1);
    const char *found = NULL;
    memcpy(word, written.ptr, (size_t)best);
    word[best] = '\0';
    best = best / 3 + 1;
    for (unsigned i = 0; i < count; i++) {
        int distance = proa_str_distance(word, name_at(names, i));
        if (written.len >= LONG && strncmp(name_at(names, i), word, written.len) == 0 && distance > 1)
            distance = 1;
        if (distance <= best) best = distance - 1, found = name_at(names, i);
    }
    return found;
}

static const char *enum_name_at(const void *type, unsigned i)
{
    return ((const ProtobufCEnumDescriptor *)type)->values[i].name;
}

static const char *field_name_at(const void *type, unsigned i)
{
    return ((const ProtobufCMessageDescriptor *)type)->fields[i].name;
}

/* "no field 'inputs' in ModelConfig; did you mean 'input'?" */
static proa_status unknown_name(parser *p, const char *kind, const char *of, const char *guess)
{
    enum { SHOWN = 64 };
    proa_str s = p->lex.now.text;
    return proa_lexer_fail(&p->lex, "no %s '%.*s' in %s%s%s%s", kind, (int)(s.len < SHOWN ? s.len : SHOWN),
                           s.ptr, of, guess ? "; did you mean '" : "", guess ? guess : "", guess ? "'?" : "");
}

static proa_status read_enum(parser *p, const ProtobufCEnumDescriptor *type, int32_t *value)
{
    int64_t number = 0;
    if (p->lex.now.kind == PROA_TOKEN_NAME) {
        int named;
        if (!proa_enum_find(type, p->lex.now.text, &named))
            return unknown_name(p, "value", type->short_name,
                                nearest_name(p->lex.now.text, enum_name_at, type, type->n_values));
        *value = named;
        proa_lexer_next(&p->lex);
        return PROA_OK;
    }
    if (p->lex.now.kind != PROA_TOKEN_INTEGER && !proa_lexer_is(&p->lex, '-'))
        return proa_lexer_expected(&p->lex, "a name or number of an enum");
    PROA_TRY(read_signed(p, INT32_MAX, &number)); /* proto3 keeps numbers that it has no name for */
    *value = (int32_t)number;
    return PROA_OK;
}

/* Reads a scalar of the field's type into `to`. */
static proa_status read_scalar(parser *p, const ProtobufCFieldDescriptor *field, void *to)
{
    int64_t number = 0;
    uint64_t natural = 0;
    double real = 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        PROA_TRY(read_signed(p, INT32_MAX, &number));
        *(int32_t *)to = (int32_t)number;
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: return read_signed(p, INT64_MAX, to);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        PROA_TRY(read_unsigned(p, UINT32_MAX, &natural));
        *(uint32_t *)to = (uint32_t)natural;
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return read_unsigned(p, UINT64_MAX, to);
    case PROTOBUF_C_TYPE_FLOAT:
        PROA_TRY(read_double(p, &real));
        *(float *)to = (float)real;
        break;
    case PROTOBUF_C_TYPE_DOUBLE: return read_double(p, to);
    case PROTOBUF_C_TYPE_BOOL: return read_bool(p, to);
    case PROTOBUF_C_TYPE_ENUM: return read_enum(p, field->descriptor, to);
    case PROTOBUF_C_TYPE_STRING: return read_text(p, to);
    case PROTOBUF_C_TYPE_BYTES: return read_bytes(p, to);
    case PROTOBUF_C_TYPE_MESSAGE: PROA_ASSERT(false);
    }
    return PROA_OK;
}

static proa_status read_fields(parser *p, ProtobufCMessage *m, char close, int depth);

/* Map entries always have a value, and keys are unique: a later entry replaces an earlier one. */
static proa_status settle_entry(parser *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *map,
                                ProtobufCMessage *entry)
{
    const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0], *value = &entry->descriptor->fields[1];
    if (value->type == PROTOBUF_C_TYPE_MESSAGE && proa_message_count(entry, value) == 0)
        *(ProtobufCMessage **)proa_message_put(entry, value, p->arena) = proa_message_new(value->descriptor,
                                                                                          p->arena);
    ProtobufCMessage *same = proa_message_entry(m, map, proa_message_at(entry, key, 0));
    if (same) {
        memcpy(same, entry, entry->descriptor->sizeof_message);
        return PROA_OK;
    }
    if (proa_message_count(m, map) == PROA_MAP_ENTRIES_MAX)
        return PROA_FAIL(p->lex.err, LIMIT, "%s: '%s' has more than %d entries", p->lex.what, map->name,
                         PROA_MAP_ENTRIES_MAX);
    *(ProtobufCMessage **)proa_message_put(m, map, p->arena) = entry;
    return PROA_OK;
}

static proa_status read_message(parser *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, int depth)
{
    char close = proa_lexer_is(&p->lex, '<') ? '>' : '}';
    if (depth == PROA_PBTXT_DEPTH_MAX)
        return PROA_FAIL(p->lex.err, LIMIT, "%s: messages nest deeper than %d", p->lex.what,
                         PROA_PBTXT_DEPTH_MAX);
    if (!take_symbol(p, '<') && !take_symbol(p, '{')) return proa_lexer_expected(&p->lex, "'{' or '<'");
    ProtobufCMessage *inner = proa_message_new(field->descriptor, p->arena);
    PROA_TRY(read_fields(p, inner, close, depth + 1));
    if (proa_field_is_map(field)) return settle_entry(p, m, field, inner);
    *(ProtobufCMessage **)proa_message_put(m, field, p->arena) = inner;
    return PROA_OK;
}

static proa_status read_value(parser *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, int depth)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) return read_message(p, m, field, depth);
    return read_scalar(p, field, proa_message_put(m, field, p->arena));
}

/* A singular field may stand once (though one that was set to its default counts as not set), and one member of a
 * oneof. */
static proa_status check_once(parser *p, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) return PROA_OK;
    if (proa_message_count(m, field))
        return proa_lexer_fail(&p->lex, "'%s' is specified more than once", field->name);
    if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)) return PROA_OK;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *other = &m->descriptor->fields[i];
        if ((other->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
            other->quantifier_offset == field->quantifier_offset && proa_message_count(m, other))
            return proa_lexer_fail(&p->lex, "'%s' is specified along with '%s', and only one of them may be",
                                   field->name, other->name);
    }
    return PROA_OK;
}

static proa_status read_list(parser *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, int depth)
{
    if (take_symbol(p, ']')) return PROA_OK;
    for (;;) {
        PROA_TRY(read_value(p, m, field, depth));
        if (take_symbol(p, ']')) return PROA_OK;
        if (!take_symbol(p, ',')) return proa_lexer_expected(&p->lex, "',' or ']'");
    }
}

static proa_status read_field(parser *p, ProtobufCMessage *m, int depth)
{
    const ProtobufCMessageDescriptor *type = m->descriptor;
    if (p->lex.now.kind != PROA_TOKEN_NAME) return proa_lexer_expected(&p->lex, "the name of a field");
    const ProtobufCFieldDescriptor *field = proa_field_find(type, p->lex.now.text);
    if (!field)
        return unknown_name(p, "field", type->short_name,
                            nearest_name(p->lex.now.text, field_name_at, type, type->n_fields));
    PROA_TRY(check_once(p, m, field));
    proa_lexer_next(&p->lex);
    if (!take_symbol(p, ':') && field->type != PROTOBUF_C_TYPE_MESSAGE)
        return proa_lexer_expected(&p->lex, "':' before a value");
    bool list = field->label == PROTOBUF_C_LABEL_REPEATED && take_symbol(p, '[');
    PROA_TRY(list ? read_list(p, m, field, depth) : read_value(p, m, field, depth));
    if (!take_symbol(p, ';')) (void)take_symbol(p, ',');
    return PROA_OK;
}

/* Fields up to `close`, which is taken; up to the end of the text if it is NUL. */
static proa_status read_fields(parser *p, ProtobufCMessage *m, char close, int depth)
{
    for (;;) {
        if (close ? take_symbol(p, close) : p->lex.now.kind == PROA_TOKEN_END) return PROA_OK;
        if (close && p->lex.now.kind != PROA_TOKEN_NAME)
            return proa_lexer_expected(&p->lex, close == '}' ? "the name of a field or '}'"
                                                             : "the name of a field or '>'");
        PROA_TRY(read_field(p, m, depth));
    }
}

proa_status proa_pbtxt_parse(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type, proa_str text,
                             const char *what, proa_arena *arena, proa_err *err)
{
    proa_err own = {.status = PROA_OK};
    parser p = {.arena = arena};
    *out = NULL;
    if (text.len > (size_t)PROA_PBTXT_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "%s: more than %lld bytes", what, (long long)PROA_PBTXT_BYTES_MAX);
    proa_buf_init(&p.scratch, (size_t)PROA_PBTXT_BYTES_MAX);
    proa_lexer_start(&p.lex, text, what, err ? err : &own);
    ProtobufCMessage *m = proa_message_new(type, arena);
    proa_status status = read_fields(&p, m, '\0', 0);
    if (status == PROA_OK) *out = m;
    proa_buf_release(&p.scratch);
    return status;
}
