/* SPDX-License-Identifier: Apache-2.0
 * safetensors.c - one file: 8 bytes of header length (little-endian), a JSON header, the data.
 * The header is {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {string: string}}, offsets
 * count from the end of the header. Format: huggingface/safetensors, README "Format". Everything here is hostile
 * until it is checked; the data itself is not read. */
#include "weights/parts.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/limits.h"

#define METADATA "__metadata__"

/* One file while it is read. */
typedef struct reader {
    proa_weights *w;
    const unsigned char *data; /* after the header */
    int64_t data_bytes;
    int32_t file;
    const char *what; /* the file's name */
    proa_err *err;
} reader;

/* The range of a tensor in the data: [begin, end). */
typedef struct extent {
    int64_t begin, end;
    const char *name;
} extent;

#define FAIL_FILE(r, status, fmt, ...)                                                                       \
    PROA_FAIL((r)->err, status, "%.*s: " fmt, PROA_NAME_SHOWN, (r)->what, __VA_ARGS__)
#define FAIL_TENSOR(r, status, name, fmt, ...)                                                               \
    FAIL_FILE(r, status, "tensor '%.*s': " fmt, PROA_NAME_SHOWN, name, __VA_ARGS__)

/* ---- the header's text: limits, checked before memory is taken, and duplicate keys ---- */

typedef struct header_counts {
    int64_t names;   /* members of the outer object */
    int64_t members; /* of all objects */
    int64_t commas;
} header_counts;

/* The index after the string whose quote opens at i, or the end of the text. *nul: it holds \u0000. */
static size_t skip_string(proa_str text, size_t i, bool *nul)
{
    for (i++; i < text.len && text.ptr[i] != '"'; i++) {
        if (text.ptr[i] != '\\') continue;
        *nul |= proa_str_starts((proa_str){text.ptr + i, text.len - i}, proa_str_c("\\u0000"));
        i++;
    }
    return i < text.len ? i + 1 : text.len;
}

static proa_status check_counts(const reader *r, const header_counts *n)
{
    if (n->names > PROA_TENSORS_MAX + 1) /* one may be the metadata */
        return FAIL_FILE(r, LIMIT, "%lld tensors, at most %d are read", (long long)n->names, PROA_TENSORS_MAX);
    if (n->members + n->commas > PROA_ST_NODES_MAX)
        return FAIL_FILE(r, LIMIT, "header: %lld values, at most %d are read",
                         (long long)(n->members + n->commas), PROA_ST_NODES_MAX);
    return PROA_OK;
}

/* A walk over JSON text that need not be valid. Bounds depth and members, so that json-c's tree stays in the order
 * of the header's own size, and refuses \u0000, at which json-c would cut a name. */
static proa_status count_header(const reader *r, proa_str text, header_counts *n)
{
    int depth = 0;
    bool nul = false;
    for (size_t i = 0, next; i < text.len; i = next) {
        char c = text.ptr[i];
        next = c == '"' ? skip_string(text, i, &nul) : i + 1;
        if (nul) return FAIL_FILE(r, CORRUPT, "header: a NUL character in the string at byte %zu", i);
        if (c == ',') n->commas++;
        else if (c == ':') n->members++, n->names += depth == 1;
        else if (c == '}' || c == ']') depth--;
        else if (c == '{' || c == '[') depth++;
        if (depth > (c == '{' ? 2 : 3)) /* a name's object, and the arrays in it */
            return FAIL_FILE(r, CORRUPT, "header: nested deeper than a header is at byte %zu", i);
    }
    return check_counts(r, n);
}

/* The next key of the outer object and the number of members of its value; false at the end. The text is valid
 * JSON by now. *at starts after the outer brace. */
static bool next_key(proa_str text, size_t *at, proa_str *key, int64_t *members)
{
    int depth = 1;
    bool nul = false;
    size_t i = *at;
    while (i < text.len && text.ptr[i] != '"') i++;
    size_t end = skip_string(text, i, &nul);
    if (i >= text.len) return false;
    *key = (proa_str){text.ptr + i + 1, end - i - 2};
    *members = 0;
    for (i = end; i < text.len && depth > 0 && !(depth == 1 && text.ptr[i] == ',');) {
        char c = text.ptr[i];
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        *members += c == ':' && depth > 1;
        i = c == '"' ? skip_string(text, i, &nul) : i + 1;
    }
    *at = i;
    return true;
}

/* json-c keeps the last of two members with one key, so the text has more of them than the tree. Says which. */
static proa_status report_twice(const reader *r, proa_str text, const proa_json *root, int64_t names)
{
    proa_status status = PROA_OK;
    proa_map seen;
    proa_str key = {"", 0};
    proa_json_iter it = proa_json_begin(root);
    int64_t members;
    proa_map_init(&seen, names);
    for (size_t at = 1; status == PROA_OK && next_key(text, &at, &key, &members);) {
        int shown = key.len < PROA_NAME_SHOWN ? (int)key.len : PROA_NAME_SHOWN;
        if (!proa_map_put(&seen, key, 0))
            status = FAIL_FILE(r, CORRUPT, "tensor '%.*s' is there twice", shown, key.ptr);
        else if (!proa_json_next(&it)) break;
        else if (members != proa_json_len(it.value) && proa_json_kind(it.value) == PROA_JSON_OBJECT)
            status = FAIL_FILE(r, CORRUPT, "tensor '%.*s': one of its keys is there twice", shown, key.ptr);
    }
    proa_map_release(&seen);
    if (status != PROA_OK) return status;
    return FAIL_FILE(r, CORRUPT, "two of %lld tensors have one name, spelt with different escapes",
                     (long long)names);
}

static int64_t count_members(const proa_json *root)
{
    int64_t n = proa_json_len(root);
    for (proa_json_iter it = proa_json_begin(root); proa_json_next(&it);)
        if (proa_json_kind(it.value) == PROA_JSON_OBJECT) n += proa_json_len(it.value);
    return n;
}

/* ---- one tensor ---- */

static const char *const dtypes[PROA_DTYPE_COUNT] = {
#define ROW(name, text, st, bytes, floating, wire, number) st,
    PROA_DTYPE_LIST(ROW)
#undef ROW
};
/* Names that the format knows and we do not read. */
static const char *const unsupported[] = {"F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                          "F6_E2M3", "F6_E3M2", "F4",          "U16",
                                          "U32",     "U64",     "C64"};

/* The header's entry of one tensor. */
typedef struct header_entry {
    const char *name;
    proa_dtype dtype;
    int rank, ends; /* how many numbers `shape` and `at` hold */
    int64_t shape[PROA_STORED_AXES_MAX];
    int64_t at[2]; /* data_offsets */
} header_entry;

static proa_status read_dtype(const reader *r, const proa_json *entry, header_entry *c)
{
    const proa_json *j = proa_json_get(entry, "dtype");
    proa_str text = proa_json_str(j);
    if (proa_json_kind(j) != PROA_JSON_STRING)
        return FAIL_TENSOR(r, CORRUPT, c->name, "'dtype' must be a string, not %s",
                           proa_json_kind_name(proa_json_kind(j)));
    for (size_t i = 0; i < PROA_COUNT(unsupported); i++)
        if (proa_str_is(text, unsupported[i]))
            return FAIL_TENSOR(r, UNSUPPORTED, c->name, "dtype %s is not supported", unsupported[i]);
    for (int i = 0; i < PROA_DTYPE_COUNT; i++)
        if (proa_str_is(text, dtypes[i])) return c->dtype = (proa_dtype)i, PROA_OK;
    return FAIL_TENSOR(r, CORRUPT, c->name, "unknown dtype '%.40s'", text.ptr);
}

/* An array of at most max integers of at least 0: *count says how many. */
static proa_status read_integers(const reader *r, const proa_json *entry, const char *name, const char *key,
                                 int max, int64_t *out, int *count)
{
    const proa_json *array = proa_json_get(entry, key);
    int64_t n = proa_json_len(array);
    if (proa_json_kind(array) != PROA_JSON_ARRAY)
        return FAIL_TENSOR(r, CORRUPT, name, "'%s' must be an array, not %s", key,
                           proa_json_kind_name(proa_json_kind(array)));
    if (n > max)
        return FAIL_TENSOR(r, LIMIT, name, "'%s' has %lld numbers, at most %d are read", key, (long long)n, max);
    for (int i = 0; i < n; i++) {
        const proa_json *j = proa_json_at(array, i);
        out[i] = proa_json_int(j);
        if (proa_json_kind(j) != PROA_JSON_INT)
            return FAIL_TENSOR(r, CORRUPT, name, "'%s' must hold integers, not %s", key,
                               proa_json_kind_name(proa_json_kind(j)));
        if (out[i] < 0)
            return FAIL_TENSOR(r, CORRUPT, name, "'%s' holds %lld, which is negative", key, (long long)out[i]);
    }
    *count = (int)n;
    return PROA_OK;
}

/* Bytes of a dense tensor. Also with a 0 among the axes the others must not overflow: strides are made of them. */
static bool dense_bytes(int64_t *bytes, const header_entry *c)
{
    bool empty = false;
    *bytes = proa_dtype_bytes(c->dtype);
    for (int i = 0; i < c->rank; i++) {
        empty |= c->shape[i] == 0;
        if (!proa_mul(*bytes, proa_max64(c->shape[i], 1), bytes)) return false;
    }
    if (empty) *bytes = 0;
    return true;
}

/* Shape, dtype and offsets must agree, and lie in the data. */
static proa_status check_entry(const reader *r, const header_entry *c)
{
    int64_t bytes;
    char shape[64];
    long long begin = c->at[0], end = c->at[1];
    proa_shape_text(shape, c->rank, c->shape);
    if (c->ends != 2)
        return FAIL_TENSOR(r, CORRUPT, c->name, "'data_offsets' has %d numbers, must have 2", c->ends);
    if (!dense_bytes(&bytes, c))
        return FAIL_TENSOR(r, CORRUPT, c->name, "shape %s has more elements than can be counted", shape);
    if (begin > end) return FAIL_TENSOR(r, CORRUPT, c->name, "offsets [%lld, %lld] are reversed", begin, end);
    if (end > r->data_bytes)
        return FAIL_TENSOR(r, CORRUPT, c->name, "offsets [%lld, %lld] go beyond the %lld bytes of data",
                           begin, end, (long long)r->data_bytes);
    if (end - begin != bytes)
        return FAIL_TENSOR(r, CORRUPT, c->name, "%s of %s needs %lld bytes, its offsets span %lld", shape,
                           dtypes[c->dtype], (long long)bytes, end - begin);
    return PROA_OK;
}

/* The view of an entry. The axes after the last one that a view has are one there, and kept in *row: such tensors are
 * convolutions of parts that no row of the model table reads (patches of images). */
static proa_view view_of(const reader *r, const header_entry *c, void *data, proa_weights_tensor *row)
{
    if (c->rank <= PROA_RANK_MAX) return proa_view_of(data, c->dtype, c->rank, c->shape);
    int64_t merged[PROA_RANK_MAX], *axes = PROA_ARENA_NEW(&r->w->arena, int64_t, c->rank);
    memcpy(axes, c->shape, (size_t)c->rank * sizeof *axes);
    memcpy(merged, c->shape, sizeof merged);
    for (int i = PROA_RANK_MAX; i < c->rank; i++) merged[PROA_RANK_MAX - 1] *= c->shape[i];
    row->axes = axes, row->axis_count = c->rank;
    return proa_view_of(data, c->dtype, PROA_RANK_MAX, merged);
}

static proa_status read_entry(const reader *r, proa_str key, const proa_json *entry, header_entry *c)
{
    c->name = key.ptr;
    if (key.len > PROA_TENSOR_NAME_MAX)
        return FAIL_FILE(r, LIMIT, "tensor '%.60s...': a name of %zu bytes, at most %d are read", key.ptr,
                         key.len, PROA_TENSOR_NAME_MAX);
    if (proa_json_kind(entry) != PROA_JSON_OBJECT)
        return FAIL_TENSOR(r, CORRUPT, key.ptr, "must be an object, not %s",
                           proa_json_kind_name(proa_json_kind(entry)));
    PROA_TRY(read_dtype(r, entry, c));
    PROA_TRY(read_integers(r, entry, c->name, "shape", PROA_STORED_AXES_MAX, c->shape, &c->rank));
    PROA_TRY(read_integers(r, entry, c->name, "data_offsets", 2, c->at, &c->ends));
    return check_entry(r, c);
}

/* One member of the header: its row goes to w, its place to *place. */
static proa_status read_tensor(const reader *r, proa_str key, const proa_json *entry, extent *place)
{
    header_entry c = {.rank = 0};
    PROA_TRY(read_entry(r, key, entry, &c));
    void *data = (void *)(uintptr_t)(r->data + c.at[0]); /* a view's pointer is not const; the pages are read-only */
    proa_weights_tensor row = {.name = proa_arena_strdup(&r->w->arena, key), .file = r->file};
    row.source = proa_tensor_source_of(view_of(r, &c, data, &row));
    *place = (extent){c.at[0], c.at[1], row.name};
    return proa_weights_add_tensor(r->w, row, r->err);
}

/* ---- the file ---- */

static proa_status check_metadata(const reader *r, const proa_json *metadata)
{
    if (proa_json_kind(metadata) != PROA_JSON_OBJECT)
        return FAIL_FILE(r, CORRUPT, "'" METADATA "' must be an object, not %s",
                         proa_json_kind_name(proa_json_kind(metadata)));
    for (proa_json_iter it = proa_json_begin(metadata); proa_json_next(&it);)
        if (proa_json_kind(it.value) != PROA_JSON_STRING)
            return FAIL_FILE(r, CORRUPT, "'" METADATA "': '%.*s' must be a string, not %s", PROA_NAME_SHOWN,
                             it.key.ptr, proa_json_kind_name(proa_json_kind(it.value)));
    return PROA_OK;
}

static int by_place(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? 0 : x->end < y->end ? -1 : 1;
}

/* The tensors must cover the data exactly: what no tensor owns could hide anything, and an overlap is a mistake. */
static proa_status check_places(const reader *r, extent *places, int64_t n)
{
    int64_t covered = 0;
    qsort(places, (size_t)n, sizeof *places, by_place);
    for (int64_t i = 0; i < n; i++) {
        const extent *p = &places[i];
        if (p->begin < covered) /* covered > 0: there is one before it */
            return FAIL_FILE(r, CORRUPT, "tensors '%.*s' and '%.*s' overlap at byte %lld of the data",
                             PROA_NAME_SHOWN, places[i - 1].name, PROA_NAME_SHOWN, p->name, (long long)p->begin);
        if (p->begin > covered)
            return FAIL_TENSOR(r, CORRUPT, p->name, "the %lld bytes before it belong to no tensor",
                               (long long)(p->begin - covered));
        covered = p->end;
    }
    if (covered < r->data_bytes)
        return FAIL_FILE(r, CORRUPT, "%lld bytes at the end belong to no tensor",
                         (long long)(r->data_bytes - covered));
    return PROA_OK;
}

static proa_status read_tensors(const reader *r, const proa_json *root)
{
    proa_status status = PROA_OK;
    int64_t n = 0;
    extent *places = proa_calloc((size_t)proa_json_len(root), sizeof *places);
    for (proa_json_iter it = proa_json_begin(root); status == PROA_OK && proa_json_next(&it);) {
        if (proa_str_is(it.key, METADATA)) status = check_metadata(r, it.value);
        else status = read_tensor(r, it.key, it.value, &places[n++]);
    }
    if (status == PROA_OK) status = check_places(r, places, n);
    free(places);
    return status;
}

static proa_status read_header(const reader *r, proa_str text)
{
    char what[PROA_NAME_SHOWN + 16];
    header_counts counts = {.names = 0};
    proa_json *root = NULL;
    if (text.len == 0 || text.ptr[0] != '{')
        return FAIL_FILE(r, CORRUPT, "the header does not begin with '{': not a %s file", "safetensors");
    PROA_TRY(count_header(r, text, &counts));
    snprintf(what, sizeof what, "%.*s: header", PROA_NAME_SHOWN, r->what);
    PROA_TRY(proa_json_parse(&root, text, what, r->err));
    proa_status status = counts.members == count_members(root) ? read_tensors(r, root)
                                                               : report_twice(r, text, root, counts.names);
    proa_json_free(root);
    return status;
}

proa_status proa_safetensors_read(proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file,
                                  proa_err *err)
{
    uint64_t header = 0;
    reader r = {.w = w, .file = file, .what = w->files[file].name, .err = err};
    if (len < 8)
        return FAIL_FILE(&r, CORRUPT, "%lld bytes, a safetensors file has at least 8", (long long)len);
    for (int i = 0; i < 8; i++) header |= (uint64_t)bytes[i] << (8 * i);
    if (header > (uint64_t)PROA_ST_HEADER_BYTES_MAX && (len == 8 || bytes[8] != '{'))
        return FAIL_FILE(&r, INVALID, "not a model: neither %s", "safetensors, GGUF, torch nor a packed model");
    if (header > (uint64_t)PROA_ST_HEADER_BYTES_MAX)
        return FAIL_FILE(&r, LIMIT, "a header of %llu bytes, at most %lld are read",
                         (unsigned long long)header, (long long)PROA_ST_HEADER_BYTES_MAX);
    if (header > (uint64_t)len - 8)
        return FAIL_FILE(&r, CORRUPT, "a header of %llu bytes goes beyond the file's %lld",
                         (unsigned long long)header, (long long)len);
    r.data = bytes + 8 + header;
    r.data_bytes = len - 8 - (int64_t)header;
    return read_header(&r, (proa_str){(const char *)bytes + 8, (size_t)header});
}
