/* SPDX-License-Identifier: Apache-2.0
 * packed.c - reads the header of a packed file (packed.h). Everything in it is hostile until it is checked. */
#include "weights/packed.h"

#include "base/checked.h"
#include "base/json.h"
#include "weights/parts.h"

typedef struct packed_reader {
    proa_weights *w;
    proa_packed_file *packed;
    int32_t file;
    const char *what;
    proa_err *err;
} packed_reader;

#define FAIL_FILE(r, status, fmt, ...)                                                                       \
    PROA_FAIL((r)->err, status, "%.*s: " fmt, PROA_NAME_SHOWN, (r)->what, __VA_ARGS__)

const proa_packed_file *proa_weights_packed(const proa_weights *w)
{
    return w->packed;
}

/* A short text that must be there, kept in the arena. */
static proa_status read_text(const packed_reader *r, const proa_json *obj, const char *key, const char **out)
{
    const proa_json *j = proa_json_get(obj, key);
    proa_str text = proa_json_str(j);
    if (proa_json_kind(j) != PROA_JSON_STRING || text.len == 0 || text.len > 64 || proa_str_has_nul(text))
        return FAIL_FILE(r, CORRUPT, "'%s' must be a text of 1 to 64 bytes", key);
    *out = proa_arena_strdup(&r->w->arena, text);
    return PROA_OK;
}

static proa_status read_int(const packed_reader *r, const proa_json *obj, const char *key, int64_t min,
                            int64_t max, int64_t *out)
{
    const proa_json *j = proa_json_get(obj, key);
    int64_t value = proa_json_int(j);
    if (proa_json_kind(j) != PROA_JSON_INT || value < min || value > max)
        return FAIL_FILE(r, CORRUPT, "'%s' must be an integer of %lld to %lld", key, (long long)min,
                         (long long)max);
    *out = value;
    return PROA_OK;
}

/* ---- tensors ---- */

static proa_status read_shape(const packed_reader *r, const char *name, const proa_json *array, int32_t *rank,
                              int64_t shape[PROA_RANK_MAX])
{
    int64_t n = proa_json_len(array), count = 8; /* bytes of the widest type: sizes are computed from it */
    if (proa_json_kind(array) != PROA_JSON_ARRAY || n > PROA_RANK_MAX)
        return FAIL_FILE(r, CORRUPT, "tensor '%.*s': 'shape' must be an array of at most %d numbers",
                         PROA_NAME_SHOWN, name, PROA_RANK_MAX);
    for (int64_t i = 0; i < n; i++) {
        const proa_json *j = proa_json_at(array, i);
        shape[i] = proa_json_int(j);
        if (proa_json_kind(j) != PROA_JSON_INT || shape[i] < 0 ||
            !proa_mul(count, proa_max64(shape[i], 1), &count))
            return FAIL_FILE(r, CORRUPT, "tensor '%.*s': a shape of impossible size", PROA_NAME_SHOWN, name);
    }
    *rank = (int32_t)n;
    return PROA_OK;
}

static proa_status read_tensor(const packed_reader *r, proa_str name, const proa_json *entry)
{
    int64_t shape[PROA_RANK_MAX] = {0};
    int32_t rank = 0;
    proa_dtype dtype = PROA_DTYPE_F32;
    bool final = false;
    int64_t block = 1;
    if (name.len == 0 || name.len > PROA_TENSOR_NAME_MAX)
        return FAIL_FILE(r, LIMIT, "a tensor's name of %zu bytes, at most %d are read", name.len,
                         PROA_TENSOR_NAME_MAX);
    const char *kept = proa_arena_strdup(&r->w->arena, name);
    if (!proa_dtype_find(proa_json_str(proa_json_get(entry, "dtype")), &dtype))
        return FAIL_FILE(r, CORRUPT, "tensor '%.*s': unknown dtype", PROA_NAME_SHOWN, kept);
    PROA_TRY(read_shape(r, kept, proa_json_get(entry, "shape"), &rank, shape));
    PROA_TRY(proa_json_get_bool(&final, entry, "final", r->err));
    PROA_TRY(proa_json_get_int(&block, entry, "block", 1, PROA_PACKED_BLOCK_MAX, r->err));
    proa_weights_tensor t = {.name = kept, .file = r->file, .final = final};
    t.source = proa_tensor_source_of(proa_view_of(NULL, dtype, rank, shape));
    t.source.encoding = PROA_ENCODING_PACKED, t.source.col_block = block;
    return proa_weights_add_tensor(r->w, t, r->err);
}

static proa_status read_tensors(const packed_reader *r, const proa_json *tensors)
{
    if (proa_json_kind(tensors) != PROA_JSON_OBJECT)
        return FAIL_FILE(r, CORRUPT, "'tensors' must be an object, not %s",
                         proa_json_kind_name(proa_json_kind(tensors)));
    for (proa_json_iter it = proa_json_begin(tensors); proa_json_next(&it);)
        PROA_TRY(read_tensor(r, it.key, it.value));
    return PROA_OK;
}

/* ---- weights ---- */

static proa_status read_weight(const packed_reader *r, const proa_json *row, proa_packed_weight *out)
{
    const proa_json *text[2] = {proa_json_at(row, 2), proa_json_at(row, 3)};
    const char **to[2] = {&out->slot, &out->format};
    int64_t number[3];
    static const int at[3] = {0, 1, 4};
    for (int i = 0; i < 3; i++) {
        const proa_json *j = proa_json_at(row, at[i]);
        number[i] = proa_json_int(j);
        if (proa_json_kind(j) != PROA_JSON_INT || number[i] < 0)
            return FAIL_FILE(r, CORRUPT, "weight %lld: not [stack, layer, slot, format, bytes]",
                             (long long)(out - r->packed->weight));
    }
    for (int i = 0; i < 2; i++) {
        proa_str s = proa_json_str(text[i]);
        if (s.len == 0 || s.len > 64)
            return FAIL_FILE(r, CORRUPT, "weight %lld: not [stack, layer, slot, format, bytes]",
                             (long long)(out - r->packed->weight));
        *to[i] = proa_arena_strdup(&r->w->arena, s);
    }
    out->stack = (int32_t)proa_min64(number[0], INT32_MAX);
    out->layer = number[1], out->bytes = number[2];
    return PROA_OK;
}

static proa_status read_weights(const packed_reader *r, const proa_json *rows)
{
    proa_packed_file *p = r->packed;
    int64_t left = p->block_bytes;
    p->count = proa_json_len(rows);
    if (proa_json_kind(rows) != PROA_JSON_ARRAY)
        return FAIL_FILE(r, CORRUPT, "'weights' must be an array, not %s",
                         proa_json_kind_name(proa_json_kind(rows)));
    p->weight = PROA_ARENA_NEW(&r->w->arena, proa_packed_weight, p->count);
    for (int64_t i = 0; i < p->count; i++) {
        PROA_TRY(read_weight(r, proa_json_at(rows, i), &p->weight[i]));
        if (p->weight[i].bytes > left)
            return FAIL_FILE(r, CORRUPT, "its weights have more than the %lld bytes of the block",
                             (long long)p->block_bytes);
        left -= p->weight[i].bytes;
    }
    if (left) return FAIL_FILE(r, CORRUPT, "%lld bytes of the block belong to no weight", (long long)left);
    return PROA_OK;
}

/* ---- the file ---- */

static proa_status read_root(const packed_reader *r, const proa_json *root)
{
    proa_packed_file *p = r->packed;
    int64_t version = 0, rank = 0, ranks = 1, bytes = 0;
    PROA_TRY(read_int(r, root, "version", 0, INT32_MAX, &version));
    if (version != PROA_PACKED_VERSION)
        return FAIL_FILE(r, UNSUPPORTED, "version %lld of packed files, this program reads %d: pack it again",
                         (long long)version, PROA_PACKED_VERSION);
    PROA_TRY(read_text(r, root, "layout", &p->layout));
    PROA_TRY(read_text(r, root, "dtype", &p->dtype));
    PROA_TRY(read_text(r, root, "quant", &p->quant));
    PROA_TRY(read_text(r, root, "main", &p->main));
    PROA_TRY(read_int(r, root, "ranks", 1, PROA_RANKS_MAX, &ranks));
    PROA_TRY(read_int(r, root, "rank", 0, ranks - 1, &rank));
    p->name = r->what;
    p->rank = (int32_t)rank, p->ranks = (int32_t)ranks;
    PROA_TRY(read_int(r, root, "block_bytes", 0, INT64_MAX, &bytes));
    if (bytes != p->block_bytes)
        return FAIL_FILE(r, CORRUPT,
                         "the block has %lld bytes, %lld were expected: the file is cut short or longer",
                         (long long)p->block_bytes, (long long)bytes);
    PROA_TRY(read_tensors(r, proa_json_get(root, "tensors")));
    return read_weights(r, proa_json_get(root, "weights"));
}

proa_status proa_packed_read(proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file, proa_err *err)
{
    char what[PROA_NAME_SHOWN + 16];
    uint64_t header = 0;
    proa_json *root = NULL;
    packed_reader r = {.w = w, .file = file, .what = w->files[file].name, .err = err};
    for (int i = 0; i < 8 && len >= 16; i++) header |= (uint64_t)bytes[8 + i] << (8 * i);
    if (len < 16 || header > (uint64_t)len - 16 || header > (uint64_t)PROA_ST_HEADER_BYTES_MAX)
        return FAIL_FILE(&r, CORRUPT, "a header of %llu bytes in a file of %lld", (unsigned long long)header,
                         (long long)len);
    int64_t block = proa_round_up(16 + (int64_t)header, PROA_PACKED_ALIGNMENT);
    if (block > len) return FAIL_FILE(&r, CORRUPT, "it ends before its block, at byte %lld", (long long)len);
    w->packed = r.packed = PROA_ARENA_NEW(&w->arena, proa_packed_file, 1);
    r.packed->block = (const char *)bytes + block, r.packed->block_bytes = len - block;
    snprintf(what, sizeof what, "%.*s: header", PROA_NAME_SHOWN, r.what);
    PROA_TRY(proa_json_parse(&root, (proa_str){(const char *)bytes + 16, (size_t)header}, what, err));
    proa_status status = read_root(&r, root);
    proa_json_free(root);
    return status;
}
