/* SPDX-License-Identifier: Apache-2.0
 * metadata.c - parses the header of a GGUF file, and gives its values by key. Everything is little-endian:
 *
 *     "GGUF"  u32 version  u64 tensors  u64 values
 *     values   string key, u32 type, the value; an array is u32 type, u64 count, its elements
 *     tensors  string name, u32 rank, u64 axes[rank] (fastest first), u32 type, u64 offset in the data
 *     data     at the next multiple of general.alignment (32)
 *     string   u64 length, bytes */
#include "weights/gguf/metadata.h"

#include "base/checked.h"
#include "base/map.h"
#include <limits.h>

/* How much of a key or name errors show. For "%.*s". */
#define SHOWN(s) ((s).len < 120 ? (int)(s).len : 120), (s).ptr

static const struct {
    const char *name;
    int64_t bytes;
} types[PROA_GGUF_TYPE_COUNT] = {
#define ROW(name, text, bytes) {text, bytes},
    PROA_GGUF_TYPE_LIST(ROW)
#undef ROW
};

/* ---- the bytes ---- */

/* Where the parse is. A read beyond the end sets `cut` and gives zeros. */
typedef struct cursor {
    const proa_gguf *g;
    const unsigned char *at, *end;
    bool cut;
    proa_err *err;
} cursor;

static uint64_t load_le(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static uint64_t take_number(cursor *c, int bytes)
{
    if (c->end - c->at < bytes) {
        c->cut = true, c->at = c->end;
        return 0;
    }
    c->at += bytes;
    return load_le(c->at - bytes, bytes);
}

static proa_str take_str(cursor *c)
{
    uint64_t len = take_number(c, 8);
    if (len > (uint64_t)(c->end - c->at)) {
        c->cut = true, c->at = c->end;
        return (proa_str){"", 0};
    }
    c->at += len;
    return (proa_str){(const char *)c->at - len, (size_t)len};
}

static proa_status fail_cut(const cursor *c, proa_str where)
{
    return PROA_FAIL(c->err, CORRUPT, "%s: the header goes beyond the file's %lld bytes at '%.*s'",
                     c->g->what, (long long)c->g->len, SHOWN(where));
}

/* ---- values ---- */

/* Steps over the elements. */
static proa_status skip_elements(cursor *c, const proa_gguf_value *v)
{
    int64_t bytes = types[v->element].bytes;
    if (v->element == PROA_GGUF_STRING) {
        for (int64_t i = 0; i < v->count && !c->cut; i++) take_str(c);
    } else if (v->count > (c->end - c->at) / bytes) c->cut = true;
    else c->at += v->count * bytes;
    return c->cut ? fail_cut(c, v->key) : PROA_OK;
}

static proa_status parse_type(cursor *c, proa_gguf_type *out, proa_str key)
{
    uint64_t type = take_number(c, 4);
    if (c->cut) return fail_cut(c, key);
    if (type >= PROA_GGUF_TYPE_COUNT)
        return PROA_FAIL(c->err, CORRUPT, "%s: '%.*s' has the unknown type %llu", c->g->what, SHOWN(key),
                         (unsigned long long)type);
    *out = (proa_gguf_type)type;
    return PROA_OK;
}

static proa_status parse_value(cursor *c, proa_gguf_value *v)
{
    v->key = take_str(c);
    if (v->key.len > PROA_GGUF_KEY_BYTES_MAX)
        return PROA_FAIL(c->err, LIMIT, "%s: a key of %zu bytes, at most %d are read", c->g->what, v->key.len,
                         PROA_GGUF_KEY_BYTES_MAX);
    PROA_TRY(parse_type(c, &v->type, v->key));
    v->element = v->type;
    v->count = 1;
    if (v->type == PROA_GGUF_ARRAY) {
        PROA_TRY(parse_type(c, &v->element, v->key));
        uint64_t count = take_number(c, 8);
        if (v->element == PROA_GGUF_ARRAY)
            return PROA_FAIL(c->err, UNSUPPORTED, "%s: '%.*s' is an array of arrays", c->g->what, SHOWN(v->key));
        if (count > (uint64_t)c->g->len) return fail_cut(c, v->key); /* each element has a byte or more */
        v->count = (int64_t)count;
    }
    v->at = c->at;
    return skip_elements(c, v);
}

static proa_status parse_values(cursor *c, proa_gguf *g)
{
    proa_status status = PROA_OK;
    proa_map seen;
    proa_map_init(&seen, g->value_count);
    for (int64_t i = 0; i < g->value_count && status == PROA_OK; i++) {
        proa_gguf_value *v = &g->values[i];
        status = parse_value(c, v);
        if (status == PROA_OK && !proa_map_put(&seen, v->key, 0))
            status = PROA_FAIL(c->err, CORRUPT, "%s: '%.*s' is there twice", g->what, SHOWN(v->key));
    }
    proa_map_release(&seen);
    return status;
}

/* ---- tensors ---- */

static proa_status parse_tensor(cursor *c, proa_gguf_tensor *t)
{
    t->name = take_str(c);
    if (t->name.len == 0 || t->name.len > PROA_TENSOR_NAME_MAX || proa_str_has_nul(t->name)) {
        if (c->cut) return fail_cut(c, proa_str_c("a tensor's name"));
        return PROA_FAIL(c->err, CORRUPT, "%s: '%.*s': a tensor's name must have 1 to %d bytes other than 0",
                         c->g->what, SHOWN(t->name), PROA_TENSOR_NAME_MAX);
    }
    uint64_t rank = take_number(c, 4);
    if (rank < 1 || rank > PROA_RANK_MAX)
        return PROA_FAIL(c->err, CORRUPT, "%s: tensor '%.*s' has %llu axes, must have 1 to %d", c->g->what,
                         SHOWN(t->name), (unsigned long long)rank, PROA_RANK_MAX);
    t->rank = (int32_t)rank;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        uint64_t size = take_number(c, 8);
        if (size > INT64_MAX)
            return PROA_FAIL(c->err, CORRUPT, "%s: tensor '%.*s' has an axis of %llu", c->g->what,
                             SHOWN(t->name), (unsigned long long)size);
        t->shape[i] = (int64_t)size;
    }
    t->type = (uint32_t)take_number(c, 4);
    uint64_t offset = take_number(c, 8);
    if (c->cut) return fail_cut(c, t->name);
    if (offset > INT64_MAX)
        return PROA_FAIL(c->err, CORRUPT, "%s: tensor '%.*s' is at offset %llu", c->g->what, SHOWN(t->name),
                         (unsigned long long)offset);
    t->offset = (int64_t)offset;
    return PROA_OK;
}

static proa_status find_data(proa_gguf *g, const cursor *c)
{
    g->alignment = 32;
    PROA_TRY(proa_gguf_get_int(&g->alignment, g, "general.alignment", 1, PROA_GGUF_ALIGNMENT_MAX, c->err));
    if (g->alignment & (g->alignment - 1))
        return PROA_FAIL(c->err, CORRUPT, "%s: 'general.alignment' is %lld, must be a power of 2", g->what,
                         (long long)g->alignment);
    g->data = proa_min64(proa_round_up(c->at - g->bytes, g->alignment), g->len);
    return PROA_OK;
}

/* ---- the header ---- */

/* A value takes at least 13 bytes and a tensor 32, so a file's size bounds what counts may ask for. */
static proa_status check_counts(const cursor *c, uint64_t values, uint64_t tensors)
{
    if (values > PROA_GGUF_VALUES_MAX)
        return PROA_FAIL(c->err, LIMIT, "%s: %llu values, at most %d are read", c->g->what,
                         (unsigned long long)values, PROA_GGUF_VALUES_MAX);
    if (tensors > PROA_TENSORS_MAX)
        return PROA_FAIL(c->err, LIMIT, "%s: %llu tensors, at most %d are read", c->g->what,
                         (unsigned long long)tensors, PROA_TENSORS_MAX);
    if (13 * values + 32 * tensors > (uint64_t)(c->end - c->at))
        return PROA_FAIL(c->err, CORRUPT, "%s: %llu values and %llu tensors do not fit into %lld bytes",
                         c->g->what, (unsigned long long)values, (unsigned long long)tensors,
                         (long long)c->g->len);
    return PROA_OK;
}

proa_status proa_gguf_parse(proa_gguf *g, const char *what, const unsigned char *bytes, int64_t len,
                            proa_arena *arena, proa_err *err)
{
    *g = (proa_gguf){.what = what, .bytes = bytes, .len = len};
    if (len < 24)
        return PROA_FAIL(err, CORRUPT, "%s: %lld bytes, a GGUF file has at least 24", what, (long long)len);
    cursor c = {.g = g, .at = bytes + 4, .end = bytes + len, .err = err};
    g->version = (uint32_t)take_number(&c, 4);
    if (g->version != 2 && g->version != 3)
        return PROA_FAIL(err, UNSUPPORTED, "%s: GGUF version %u%s; 2 and 3, little-endian, are supported",
                         what, g->version, g->version & 0xffff ? "" : " (big-endian)");
    uint64_t tensors = take_number(&c, 8), values = take_number(&c, 8);
    PROA_TRY(check_counts(&c, values, tensors));
    g->value_count = (int64_t)values;
    g->values = PROA_ARENA_NEW(arena, proa_gguf_value, g->value_count);
    PROA_TRY(parse_values(&c, g));
    g->tensor_count = (int64_t)tensors;
    g->tensors = PROA_ARENA_NEW(arena, proa_gguf_tensor, g->tensor_count);
    for (int64_t i = 0; i < g->tensor_count; i++) PROA_TRY(parse_tensor(&c, &g->tensors[i]));
    return find_data(g, &c);
}

/* ---- values by key ---- */

const proa_gguf_value *proa_gguf_find(const proa_gguf *g, const char *key)
{
    for (int64_t i = 0; i < g->value_count; i++)
        if (proa_str_is(g->values[i].key, key)) return &g->values[i];
    return NULL;
}

const proa_gguf_tensor *proa_gguf_find_tensor(const proa_gguf *g, const char *name)
{
    for (int64_t i = 0; i < g->tensor_count; i++)
        if (proa_str_is(g->tensors[i].name, name)) return &g->tensors[i];
    return NULL;
}

bool proa_gguf_int_at(int64_t *out, const proa_gguf_value *v, int64_t i)
{
    int bytes = (int)types[v->element].bytes;
    uint64_t bits = bytes ? load_le(v->at + i * bytes, bytes) : 0;
    switch (v->element) {
    case PROA_GGUF_U8:
    case PROA_GGUF_U16:
    case PROA_GGUF_U32: *out = (int64_t)bits; return true;
    case PROA_GGUF_I8: *out = (int64_t)(bits ^ 0x80) - 0x80; return true;
    case PROA_GGUF_I16: *out = (int16_t)bits; return true;
    case PROA_GGUF_I32: *out = (int32_t)bits; return true;
    case PROA_GGUF_I64: *out = (int64_t)bits; return true;
    case PROA_GGUF_U64: *out = (int64_t)bits; return bits <= INT64_MAX;
    default: return false;
    }
}

bool proa_gguf_double_at(double *out, const proa_gguf_value *v, int64_t i)
{
    int64_t whole;
    if (v->element == PROA_GGUF_F32)
        return *out = (double)proa_bits_f32((uint32_t)load_le(v->at + 4 * i, 4)), true;
    if (v->element == PROA_GGUF_F64) {
        uint64_t bits = load_le(v->at + 8 * i, 8);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    if (!proa_gguf_int_at(&whole, v, i)) return false;
    *out = (double)whole;
    return true;
}

proa_str proa_gguf_next_str(const unsigned char **at)
{
    proa_str s = {(const char *)*at + 8, (size_t)load_le(*at, 8)};
    *at += 8 + s.len;
    return s;
}

static proa_status fail_kind(const proa_gguf *g, const proa_gguf_value *v, const char *must_be, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "%s: '%.*s' is %s%s, must be %s", g->what, SHOWN(v->key),
                     types[v->element].name, v->type == PROA_GGUF_ARRAY ? "[]" : "", must_be);
}

proa_status proa_gguf_get_int(int64_t *out, const proa_gguf *g, const char *key, int64_t min, int64_t max,
                              proa_err *err)
{
    const proa_gguf_value *v = proa_gguf_find(g, key);
    int64_t value = 0, other = 0;
    if (!v || v->count == 0) return PROA_OK;
    if (!proa_gguf_int_at(&value, v, 0)) return fail_kind(g, v, "an integer", err);
    for (int64_t i = 1; i < v->count; i++) {
        if (!proa_gguf_int_at(&other, v, i) || (other != value && other != 0 && value != 0))
            return PROA_FAIL(err, UNSUPPORTED,
                             "%s: '%s' is %lld and %lld: layers of different sizes are not supported",
                             g->what, key, (long long)value, (long long)other);
        if (other != 0) value = other;
    }
    if (value < min || value > max)
        return PROA_FAIL(err, INVALID, "%s: '%s' is %lld, must be %lld to %lld", g->what, key,
                         (long long)value, (long long)min, (long long)max);
    *out = value;
    return PROA_OK;
}

proa_status proa_gguf_get_double(double *out, const proa_gguf *g, const char *key, proa_err *err)
{
    const proa_gguf_value *v = proa_gguf_find(g, key);
    if (!v) return PROA_OK;
    if (v->type == PROA_GGUF_ARRAY || !proa_gguf_double_at(out, v, 0))
        return fail_kind(g, v, "a number", err);
    return PROA_OK;
}

proa_status proa_gguf_get_bool(bool *out, const proa_gguf *g, const char *key, proa_err *err)
{
    const proa_gguf_value *v = proa_gguf_find(g, key);
    if (!v) return PROA_OK;
    if (v->type != PROA_GGUF_BOOL || v->at[0] > 1) return fail_kind(g, v, "bool, 0 or 1", err);
    *out = v->at[0] != 0;
    return PROA_OK;
}

proa_status proa_gguf_get_str(proa_str *out, const proa_gguf *g, const char *key, proa_err *err)
{
    const proa_gguf_value *v = proa_gguf_find(g, key);
    if (!v) return PROA_OK;
    if (v->type != PROA_GGUF_STRING) return fail_kind(g, v, "a string", err);
    const unsigned char *at = v->at;
    *out = proa_gguf_next_str(&at);
    return PROA_OK;
}

proa_status proa_gguf_get_array(const proa_gguf_value **out, const proa_gguf *g, const char *key,
                                proa_gguf_type element, proa_err *err)
{
    char must_be[32];
    *out = proa_gguf_find(g, key);
    if (!*out || ((*out)->type == PROA_GGUF_ARRAY && (*out)->element == element)) return PROA_OK;
    snprintf(must_be, sizeof must_be, "%s[]", types[element].name);
    return fail_kind(g, *out, must_be, err);
}
