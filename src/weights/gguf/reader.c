/* SPDX-License-Identifier: Apache-2.0
 * reader.c - a GGUF checkpoint of one file or several: checks its tensors against the data, and gives them the names
 * of the Hugging Face class that has the same layers. Everything is hostile until it is checked; the data itself is
 * not read. */
#include "weights/gguf/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "weights/gguf/tokenizer.h"
#include <limits.h>

/* Types of tensors by their numbers in the file. An encoding, or a dtype where the encoding is PLAIN; known, but not
 * read, where the name alone is given. */
static const struct tensor_type {
    const char *name;
    bool supported;
    proa_encoding encoding;
    proa_dtype dtype;
} tensor_types[] = {
#define FLOATS(d)                                                                                            \
    {                                                                                                        \
#d, true, PROA_ENCODING_PLAIN, PROA_DTYPE_##d                                                        \
    }
#define BLOCKS(e)                                                                                            \
    {                                                                                                        \
#e, true, PROA_ENCODING_##e, PROA_DTYPE_F32                                                          \
    }
#define KNOWN(e)                                                                                             \
    {                                                                                                        \
        e, false, PROA_ENCODING_PLAIN, PROA_DTYPE_F32                                                        \
    }
    [0] = FLOATS(F32),          [1] = FLOATS(F16),          [2] = BLOCKS(Q4_0),
    [3] = BLOCKS(Q4_1),         [4] = KNOWN("Q4_2"),        [5] = KNOWN("Q4_3"),
    [6] = BLOCKS(Q5_0),         [7] = BLOCKS(Q5_1),         [8] = BLOCKS(Q8_0),
    [9] = KNOWN("Q8_1"),        [10] = BLOCKS(Q2_K),        [11] = BLOCKS(Q3_K),
    [12] = BLOCKS(Q4_K),        [13] = BLOCKS(Q5_K),        [14] = BLOCKS(Q6_K),
    [15] = KNOWN("Q8_K"),       [16] = KNOWN("IQ2_XXS"),    [17] = KNOWN("IQ2_XS"),
    [18] = KNOWN("IQ3_XXS"),    [19] = KNOWN("IQ1_S"),      [20] = BLOCKS(IQ4_NL),
    [21] = KNOWN("IQ3_S"),      [22] = KNOWN("IQ2_S"),      [23] = BLOCKS(IQ4_XS),
    [24] = FLOATS(I8),          [25] = FLOATS(I16),         [26] = FLOATS(I32),
    [27] = FLOATS(I64),         [28] = FLOATS(F64),         [29] = KNOWN("IQ1_M"),
    [30] = FLOATS(BF16),        [31] = KNOWN("Q4_0_4_4"),   [32] = KNOWN("Q4_0_4_8"),
    [33] = KNOWN("Q4_0_8_8"),   [34] = KNOWN("TQ1_0"),      [35] = KNOWN("TQ2_0"),
    [36] = KNOWN("IQ4_NL_4_4"), [37] = KNOWN("IQ4_NL_4_8"), [38] = KNOWN("IQ4_NL_8_8"),
    [39] = BLOCKS(MXFP4),       [40] = KNOWN("NVFP4"),      [41] = KNOWN("Q1_0"),
    [42] = KNOWN("Q2_0"),
#undef FLOATS
#undef BLOCKS
#undef KNOWN
};

int64_t proa_gguf_type_of(proa_encoding encoding, proa_dtype dtype)
{
    for (size_t i = 0; i < PROA_COUNT(tensor_types); i++) {
        const struct tensor_type *t = &tensor_types[i];
        if (!t->supported || t->encoding != encoding) continue;
        if (encoding != PROA_ENCODING_PLAIN || t->dtype == dtype) return (int64_t)i;
    }
    return -1;
}

/* What the files of one checkpoint share. */
typedef struct gguf_checkpoint {
    proa_weights *w;
    proa_gguf first; /* the metadata are in the first file */
    const proa_gguf_arch *arch;
    int64_t parts, part; /* files of a split checkpoint, and the number of this one, from 0 */
    int64_t heads, kv_heads, head_dim, value_dim;
    int64_t key_rows, key_heads, value_heads; /* of recurrent layers; key_rows: of queries and keys */
    int64_t tensor_count;                     /* so far */
    proa_map names;                           /* of all tensors so far, as the class calls them */
    proa_err *err;
} gguf_checkpoint;

/* One file while its tensors are read. */
typedef struct gguf_file {
    gguf_checkpoint *c;
    const proa_gguf *g;
    int32_t file;
} gguf_file;

#define FAIL_TENSOR(f, status, t, fmt, ...)                                                                  \
    PROA_FAIL((f)->c->err, status, "%s: tensor '%.*s': " fmt, (f)->g->what,                                  \
              (t)->name.len < PROA_NAME_SHOWN ? (int)(t)->name.len : PROA_NAME_SHOWN, (t)->name.ptr,         \
              __VA_ARGS__)

/* ---- one tensor against the data ---- */

static proa_status find_type(const gguf_file *f, const proa_gguf_tensor *t, const struct tensor_type **out)
{
    *out = t->type < PROA_COUNT(tensor_types) ? &tensor_types[t->type] : NULL;
    if (!*out) return FAIL_TENSOR(f, CORRUPT, t, "unknown type %u", t->type);
    if (!(*out)->supported)
        return FAIL_TENSOR(f, UNSUPPORTED, t, "the type %s is not supported", (*out)->name);
    return PROA_OK;
}

/* Bytes of a dense tensor. Also with a 0 among the axes the others must not overflow: strides are made of them. */
static bool dense_bytes(int64_t *bytes, const proa_gguf_tensor *t, const struct tensor_type *type)
{
    int64_t last = t->shape[t->rank - 1], count = 1;
    bool empty = false;
    bool plain = type->encoding == PROA_ENCODING_PLAIN;
    *bytes = plain ? proa_dtype_bytes(type->dtype) : proa_encoding_row_bytes(type->encoding, last);
    if (*bytes < 0) return false;
    for (int i = 0; i < t->rank; i++) {
        empty |= t->shape[i] == 0;
        if (!proa_mul(count, proa_max64(t->shape[i], 1), &count)) return false;
        if ((plain || i < t->rank - 1) && !proa_mul(*bytes, proa_max64(t->shape[i], 1), bytes)) return false;
    }
    if (empty) *bytes = 0;
    return count <= INT64_MAX / 8;
}

static proa_status check_tensor(const gguf_file *f, const proa_gguf_tensor *t, proa_tensor_source *out,
                                int64_t *bytes)
{
    const struct tensor_type *type;
    char shape[64];
    int64_t data_bytes = f->g->len - f->g->data;
    PROA_TRY(find_type(f, t, &type));
    proa_shape_text(shape, t->rank, t->shape);
    if (type->encoding != PROA_ENCODING_PLAIN &&
        t->shape[t->rank - 1] % proa_encoding_numbers(type->encoding) != 0)
        return FAIL_TENSOR(f, CORRUPT, t, "rows of %s are not whole blocks of %s (%lld)", shape, type->name,
                           (long long)proa_encoding_numbers(type->encoding));
    if (!dense_bytes(bytes, t, type))
        return FAIL_TENSOR(f, CORRUPT, t, "shape %s has more elements than can be counted", shape);
    if (t->offset % f->g->alignment != 0)
        return FAIL_TENSOR(f, CORRUPT, t, "offset %lld is not a multiple of %lld", (long long)t->offset,
                           (long long)f->g->alignment);
    if (t->offset > data_bytes || *bytes > data_bytes - t->offset)
        return FAIL_TENSOR(f, CORRUPT, t, "%lld bytes at offset %lld go beyond the %lld bytes of data",
                           (long long)*bytes, (long long)t->offset, (long long)data_bytes);
    void *data = (void *)(uintptr_t)(f->g->bytes + f->g->data + t->offset); /* a view's pointer is not const */
    *out = (proa_tensor_source){.encoding = type->encoding,
                                .view = proa_view_of(data, type->dtype, t->rank, t->shape)};
    return PROA_OK;
}

/* ---- names ---- */

static proa_status add_named(const gguf_file *f, const proa_gguf_tensor *t, const char *name,
                             const proa_tensor_source *source, bool final)
{
    proa_weights_tensor row = {.name = name, .source = *source, .file = f->file, .final = final};
    if (!proa_map_put(&f->c->names, proa_str_c(name), 0))
        return FAIL_TENSOR(f, CORRUPT, t, "there are two of it (as '%.*s')", PROA_NAME_SHOWN, name);
    return proa_weights_add_tensor(f->c->w, row, f->c->err);
}

/* A name of the class: its "%d" are the layer and the expert. Outside of layers the only one is the expert. */
static const char *fill_name(const gguf_file *f, const char *name, int64_t layer, int64_t expert, proa_str ending)
{
    proa_arena *arena = &f->c->w->arena;
    const char *first = strstr(name, "%d"), *second = first ? strstr(first + 2, "%d") : NULL;
    if (!first) return proa_arena_printf(arena, "%s%.*s", name, (int)ending.len, ending.ptr);
    if (layer < 0) layer = expert;
    if (!second)
        return proa_arena_printf(arena, "%.*s%lld%s%.*s", (int)(first - name), name, (long long)layer,
                                 first + 2, (int)ending.len, ending.ptr);
    return proa_arena_printf(arena, "%.*s%lld%.*s%lld%s%.*s", (int)(first - name), name, (long long)layer,
                             (int)(second - first - 2), first + 2, (long long)expert, second + 2,
                             (int)ending.len, ending.ptr);
}

/* Stored row (h, i, j) of a head of d rows is row (h, j, i) of the class: i < d/2, j < 2. */
static proa_status undo_rotation(const gguf_file *f, const proa_gguf_tensor *t, int64_t heads,
                                 proa_tensor_source *s)
{
    int64_t rows = s->view.shape[0];
    if (heads < 1 || rows % (2 * heads) != 0)
        return FAIL_TENSOR(f, INVALID, t, "%lld rows are not %lld heads of an even size", (long long)rows,
                           (long long)heads);
    int64_t d = rows / heads;
    s->order = (proa_row_order){.first = 0, .count = {heads, 2, d / 2}, .step = {d, 1, 2}};
    return PROA_OK;
}

static proa_status add_experts(const gguf_file *f, const proa_gguf_tensor *t, const proa_gguf_name *entry,
                               int64_t layer, proa_str ending, const proa_tensor_source *all)
{
    int64_t experts = all->view.shape[0], bytes = proa_tensor_source_bytes(all) / proa_max64(experts, 1);
    if (t->rank < 2 || experts > PROA_EXPERTS_MAX)
        return FAIL_TENSOR(f, INVALID, t, "must have an axis of 1 to %d experts", PROA_EXPERTS_MAX);
    for (int64_t e = 0; e < experts; e++) {
        proa_tensor_source one = {.encoding = all->encoding};
        one.view = proa_view_of((char *)all->view.data + e * bytes, all->view.dtype, t->rank - 1, t->shape + 1);
        PROA_TRY(add_named(f, t, fill_name(f, entry->hf, layer, e, ending), &one, true));
    }
    return PROA_OK;
}

/* Tiled number (r, k, i) is number (k, r, i) of the class: key head k, its value head r, i < d. */
static proa_status undo_tiles(const gguf_file *f, const proa_gguf_tensor *t, int64_t count, proa_row_order *order)
{
    int64_t keys = f->c->key_heads, heads = f->c->value_heads;
    if (keys < 1 || heads < 1 || heads % keys != 0 || count < 1 || count % heads != 0)
        return FAIL_TENSOR(f, INVALID, t, "%lld numbers are not %lld heads of values for %lld of keys",
                           (long long)count, (long long)heads, (long long)keys);
    int64_t d = count / heads;
    *order = (proa_row_order){.first = 0, .count = {keys, heads / keys, d}, .step = {d, keys * d, 1}};
    return PROA_OK;
}

/* The rows of queries and keys, as they are stored, and those of values as NAME#2. */
static proa_status add_tiled_values(const gguf_file *f, const proa_gguf_tensor *t, const char *name,
                                    const proa_tensor_source *s)
{
    int64_t keys = f->c->key_rows, values = s->view.shape[0] - keys;
    if (keys < 1 || values < 1)
        return FAIL_TENSOR(f, INVALID, t, "%lld rows, of which %lld are of queries and keys",
                           (long long)s->view.shape[0], (long long)keys);
    proa_tensor_source first = proa_tensor_source_rows_of(s, 0, keys);
    proa_tensor_source second = proa_tensor_source_rows_of(s, keys, values);
    PROA_TRY(undo_tiles(f, t, values, &second.order));
    PROA_TRY(add_named(f, t, name, &first, true));
    return add_named(f, t, proa_arena_printf(&f->c->w->arena, "%s#2", name), &second, true);
}

/* The numbers and the shape that the class has. */
static void undo_form(const proa_gguf_tensor *t, int form, proa_tensor_source *s)
{
    int64_t count = proa_view_count(s->view);
    s->negated_exp = form & PROA_GGUF_NEGATED_EXP;
    if (form & (PROA_GGUF_COLUMN | PROA_GGUF_BY_GROUPS) && t->rank == 2 && s->encoding == PROA_ENCODING_PLAIN)
        s->view = proa_view_of(s->view.data, s->view.dtype, 1, &count);
}

static proa_status add_entry(const gguf_file *f, const proa_gguf_tensor *t, const proa_gguf_name *entry,
                             int64_t layer, proa_str ending, proa_tensor_source *s)
{
    const bool final = entry->use != PROA_GGUF_STORED && entry->use != PROA_GGUF_OLDER;
    undo_form(t, entry->form, s);
    switch (entry->use) {
    case PROA_GGUF_DROPPED:
    case PROA_GGUF_UNWRITTEN: return PROA_OK;
    case PROA_GGUF_PARTS:
    case PROA_GGUF_EXPERTS: return add_experts(f, t, entry, layer, ending, s);
    case PROA_GGUF_ROTATED_Q: PROA_TRY(undo_rotation(f, t, f->c->heads, s)); break;
    case PROA_GGUF_ROTATED_K: PROA_TRY(undo_rotation(f, t, f->c->kv_heads, s)); break;
    case PROA_GGUF_TILED_ROWS: PROA_TRY(undo_tiles(f, t, s->view.shape[0], &s->order)); break;
    case PROA_GGUF_TILED_COLS: PROA_TRY(undo_tiles(f, t, s->view.shape[t->rank - 1], &s->col_order)); break;
    case PROA_GGUF_TILED_VALUES: return add_tiled_values(f, t, fill_name(f, entry->hf, layer, 0, ending), s);
    case PROA_GGUF_ROW:
        if (t->rank == 1) s->view = proa_view_of(s->view.data, s->view.dtype, 2, (int64_t[]){1, t->shape[0]});
        break;
    case PROA_GGUF_AS_IS:
    case PROA_GGUF_STORED:
    case PROA_GGUF_OLDER: break;
    }
    return add_named(f, t, fill_name(f, entry->hf, layer, 0, ending), s, final);
}

/* q, k and v in one tensor, where the class has three. */
static proa_status add_fused(const gguf_file *f, const proa_gguf_tensor *t, const proa_tensor_source *all,
                             int64_t layer, proa_str ending)
{
    static const char *const names[3] = {"blk.%d.attn_q", "blk.%d.attn_k", "blk.%d.attn_v"};
    const gguf_checkpoint *c = f->c;
    const int64_t rows[3] = {c->heads * c->head_dim, c->kv_heads * c->head_dim, c->kv_heads * c->value_dim};
    int64_t from = 0, bytes = proa_tensor_source_bytes(all) / proa_max64(all->view.shape[0], 1);
    if (rows[0] + rows[1] + rows[2] != all->view.shape[0])
        return FAIL_TENSOR(f, INVALID, t, "%lld rows are not %lld of q, %lld of k and %lld of v",
                           (long long)all->view.shape[0], (long long)rows[0], (long long)rows[1],
                           (long long)rows[2]);
    for (int i = 0; i < 3; from += rows[i++]) {
        proa_tensor_source s = {.encoding = all->encoding, .view = all->view};
        s.view.data = (char *)all->view.data + from * bytes;
        s.view.shape[0] = rows[i];
        proa_str end = ending;
        const proa_gguf_name *entry = proa_gguf_name_of(c->arch, names[i], &end);
        if (entry) PROA_TRY(add_entry(f, t, entry, layer, end, &s));
    }
    return PROA_OK;
}

static proa_status add_tensor(const gguf_file *f, const proa_gguf_tensor *t, proa_tensor_source *s)
{
    char pattern[PROA_TENSOR_NAME_MAX + 1];
    int64_t layer;
    const proa_gguf_arch *arch = f->c->arch;
    proa_str ending = proa_gguf_split_name(pattern, &layer, t->name);
    const proa_gguf_name *entry = proa_gguf_name_of(arch, pattern, &ending);
    if (entry) return add_entry(f, t, entry, layer, ending, s);
    if (strcmp(pattern, "blk.%d.attn_qkv") == 0 && proa_gguf_name_of(arch, "blk.%d.attn_q", &ending))
        return add_fused(f, t, s, layer, ending);
    return add_named(f, t, proa_arena_strdup(&f->c->w->arena, t->name), s, true); /* the binder says that it is extra */
}

/* ---- all tensors of a file ---- */

typedef struct extent {
    int64_t begin, end;
    const proa_gguf_tensor *tensor;
} extent;

static int by_place(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? 0 : x->end < y->end ? -1 : 1;
}

/* Tensors follow each other, each at the next aligned offset. */
static proa_status check_places(const gguf_file *f, extent *places)
{
    int64_t covered = 0;
    qsort(places, (size_t)f->g->tensor_count, sizeof *places, by_place);
    for (int64_t i = 0; i < f->g->tensor_count; i++) {
        const extent *p = &places[i];
        if (p->begin < covered && p->end > p->begin)
            return FAIL_TENSOR(f, CORRUPT, p->tensor, "overlaps the tensor before it by %lld bytes",
                               (long long)(covered - p->begin));
        if (p->begin - covered >= f->g->alignment)
            return FAIL_TENSOR(f, CORRUPT, p->tensor, "the %lld bytes before it belong to no tensor",
                               (long long)(p->begin - covered));
        covered = proa_max64(covered, p->end);
    }
    return PROA_OK;
}

static proa_status read_tensors(const gguf_file *f)
{
    proa_status status = PROA_OK;
    extent *places = proa_calloc((size_t)proa_max64(f->g->tensor_count, 1), sizeof *places);
    for (int64_t i = 0; i < f->g->tensor_count && status == PROA_OK; i++) {
        const proa_gguf_tensor *t = &f->g->tensors[i];
        proa_tensor_source source;
        int64_t bytes = 0;
        status = check_tensor(f, t, &source, &bytes);
        if (status != PROA_OK) break;
        places[i] = (extent){t->offset, t->offset + bytes, t};
        f->c->tensor_count++;
        status = add_tensor(f, t, &source);
    }
    if (status == PROA_OK) status = check_places(f, places);
    free(places);
    return status;
}

/* ---- split files ---- */

/* "NAME-00002-of-00003.gguf" beside the first file. */
static proa_status part_path(char out[PROA_PATH_MAX], const gguf_checkpoint *c, const char *first, int64_t part)
{
    char ending[64];
    proa_str path = proa_str_c(first);
    snprintf(ending, sizeof ending, "-%05d-of-%05lld.gguf", 1, (long long)c->parts);
    if (!proa_str_ends(path, proa_str_c(ending)))
        return PROA_FAIL(c->err, INVALID, "%s: is the first of %lld files, but its name does not end with '%s'",
                         c->first.what, (long long)c->parts, ending);
    int base = (int)(path.len - strlen(ending));
    int n = snprintf(out, PROA_PATH_MAX, "%.*s-%05lld-of-%05lld.gguf", base, first, (long long)part + 1,
                     (long long)c->parts);
    if (n >= PROA_PATH_MAX) return PROA_FAIL(c->err, INVALID, "'%s': a path that is too long", first);
    return PROA_OK;
}

static proa_status read_part_number(const proa_gguf *g, int64_t *part, int64_t *parts, proa_err *err)
{
    *part = 0, *parts = 1;
    PROA_TRY(proa_gguf_get_int(parts, g, "split.count", 0, PROA_SHARDS_MAX, err));
    PROA_TRY(proa_gguf_get_int(part, g, "split.no", 0, PROA_SHARDS_MAX - 1, err));
    if (*parts == 0) *parts = 1;
    if (*part >= *parts)
        return PROA_FAIL(err, CORRUPT, "%s: 'split.no' is %lld of %lld files", g->what, (long long)*part,
                         (long long)*parts);
    return PROA_OK;
}

/* The reader of the second and later files: w->reading has the values of the first one. */
static proa_status read_later_part(proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file,
                                   proa_err *err)
{
    gguf_checkpoint *c = w->reading;
    int64_t part, parts;
    proa_gguf g;
    if (len < 4 || memcmp(bytes, "GGUF", 4) != 0)
        return PROA_FAIL(err, CORRUPT, "%s: is not a GGUF file", w->files[file].name);
    PROA_TRY(proa_gguf_parse(&g, w->files[file].name, bytes, len, &w->arena, err));
    PROA_TRY(read_part_number(&g, &part, &parts, err));
    if (part != c->part || parts != c->parts)
        return PROA_FAIL(err, CORRUPT, "%s: says that it is file %lld of %lld, should be %lld of %lld", g.what,
                         (long long)part + 1, (long long)parts, (long long)c->part + 1, (long long)c->parts);
    gguf_file f = {.c = c, .g = &g, .file = file};
    return read_tensors(&f);
}

static proa_status read_later_parts(gguf_checkpoint *c, int32_t first)
{
    proa_weights *w = c->w;
    char path[PROA_PATH_MAX];
    int64_t tensors = -1;
    if (c->parts > 1 && !w->files[first].path)
        return PROA_FAIL(c->err, INVALID, "%s: is the first of %lld files, and has no folder", c->first.what,
                         (long long)c->parts);
    for (c->part = 1; c->part < c->parts; c->part++) {
        PROA_TRY(part_path(path, c, w->files[first].path, c->part));
        PROA_TRY(proa_weights_read_file_as(w, path, read_later_part, c->err));
    }
    PROA_TRY(proa_gguf_get_int(&tensors, &c->first, "split.tensors.count", 0, PROA_TENSORS_MAX, c->err));
    if (tensors >= 0 && tensors != c->tensor_count)
        return PROA_FAIL(c->err, CORRUPT, "%s: the files have %lld tensors, 'split.tensors.count' is %lld",
                         c->first.what, (long long)c->tensor_count, (long long)tensors);
    return PROA_OK;
}

/* ---- the checkpoint ---- */

/* Heads of keys and values; of a list those of the first layer with any. Where layers have other ones (Gemma 4), no
 * rows are ordered by them. */
static proa_status read_kv_heads(gguf_checkpoint *c)
{
    char full[96];
    snprintf(full, sizeof full, "%s.attention.head_count_kv", c->arch->name);
    const proa_gguf_value *v = proa_gguf_find(&c->first, full);
    if (!v || v->type != PROA_GGUF_ARRAY)
        return proa_gguf_arch_int(&c->kv_heads, &c->first, c->arch, "attention.head_count_kv", c->err);
    for (int64_t i = 0, heads; i < v->count; i++)
        if (proa_gguf_int_at(&heads, v, i) && heads > 0 && heads <= INT32_MAX)
            return c->kv_heads = heads, PROA_OK;
    return PROA_OK;
}

static proa_status read_heads(gguf_checkpoint *c)
{
    const proa_gguf *g = &c->first;
    int64_t hidden = 0;
    PROA_TRY(proa_gguf_arch_int(&hidden, g, c->arch, "embedding_length", c->err));
    PROA_TRY(proa_gguf_arch_int(&c->heads, g, c->arch, "attention.head_count", c->err));
    c->kv_heads = c->heads;
    PROA_TRY(read_kv_heads(c));
    c->head_dim = c->heads ? hidden / c->heads : 0;
    PROA_TRY(proa_gguf_arch_int(&c->head_dim, g, c->arch, "attention.key_length", c->err));
    c->value_dim = c->head_dim;
    return proa_gguf_arch_int(&c->value_dim, g, c->arch, "attention.value_length", c->err);
}

/* Heads of recurrent layers. */
static proa_status read_recurrent_heads(gguf_checkpoint *c)
{
    int64_t state = 0;
    PROA_TRY(proa_gguf_arch_int(&state, &c->first, c->arch, "ssm.state_size", c->err));
    PROA_TRY(proa_gguf_arch_int(&c->key_heads, &c->first, c->arch, "ssm.group_count", c->err));
    PROA_TRY(proa_gguf_arch_int(&c->value_heads, &c->first, c->arch, "ssm.time_step_rank", c->err));
    c->key_rows = 2 * proa_min64(state, PROA_STATE_DIM_MAX) * proa_min64(c->key_heads, PROA_HEADS_MAX);
    return PROA_OK;
}

static proa_status add_config(gguf_checkpoint *c)
{
    proa_buf json;
    proa_buf_init(&json, PROA_CONFIG_BYTES_MAX);
    proa_status status = proa_gguf_config(&json, &c->first, c->arch, c->err);
    if (status == PROA_OK && json.full)
        status = PROA_FAIL(c->err, LIMIT, "%s: a configuration of more than %d bytes", c->first.what,
                           (int)PROA_CONFIG_BYTES_MAX);
    if (status == PROA_OK) {
        const char *text = proa_arena_strdup(&c->w->arena, proa_buf_view(&json));
        proa_weights_add_made(c->w, (proa_made_file){.name = "config.json", .text = proa_str_c(text)});
    }
    proa_buf_release(&json);
    return status;
}

/* The pooling of an embedder, where sentence-transformers has it: llama.cpp's pooling types by number. */
static proa_status add_pooling(gguf_checkpoint *c)
{
    static const char *const texts[] = {NULL, "{\"pooling_mode\": \"mean\"}", "{\"pooling_mode\": \"cls\"}",
                                        "{\"pooling_mode\": \"lasttoken\"}"};
    int64_t type = 0;
    PROA_TRY(proa_gguf_arch_int(&type, &c->first, c->arch, "pooling_type", c->err));
    if (type > 0 && type < (int64_t)PROA_COUNT(texts))
        proa_weights_add_made(
            c->w, (proa_made_file){.name = "1_Pooling/config.json", .text = proa_str_c(texts[type])});
    return PROA_OK;
}

static proa_status read_model(gguf_checkpoint *c, int32_t file)
{
    gguf_file f = {.c = c, .g = &c->first, .file = file};
    PROA_TRY(proa_gguf_arch_of(&c->arch, &c->first, c->err));
    PROA_TRY(read_heads(c));
    PROA_TRY(read_recurrent_heads(c));
    PROA_TRY(read_tensors(&f));
    PROA_TRY(read_later_parts(c, file));
    PROA_TRY(add_pooling(c));
    return add_config(c);
}

/* A file without tensors has a tokenizer alone (llama.cpp's vocabularies). */
static proa_status read_checkpoint(gguf_checkpoint *c, const unsigned char *bytes, int64_t len, int32_t file)
{
    proa_weights *w = c->w;
    PROA_TRY(proa_gguf_parse(&c->first, w->files[file].name, bytes, len, &w->arena, c->err));
    PROA_TRY(read_part_number(&c->first, &c->part, &c->parts, c->err));
    if (c->part != 0)
        return PROA_FAIL(c->err, INVALID, "%s: is file %lld of %lld: open the first one", c->first.what,
                         (long long)c->part + 1, (long long)c->parts);
    if (c->first.tensor_count || c->parts > 1) PROA_TRY(read_model(c, file));
    return proa_gguf_add_tokenizer(w, &c->first, file, c->err);
}

proa_status proa_gguf_read(proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file, proa_err *err)
{
    gguf_checkpoint *c = PROA_ARENA_NEW(&w->arena, gguf_checkpoint, 1);
    c->w = w, c->err = err;
    w->self_contained = true;
    w->reading = c;
    proa_map_init(&c->names, 0);
    proa_status status = read_checkpoint(c, bytes, len, file);
    proa_map_release(&c->names);
    w->reading = NULL;
    return status;
}
