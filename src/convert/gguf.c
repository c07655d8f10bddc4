/* SPDX-License-Identifier: Apache-2.0
 * gguf.c - writes a GGUF file, llama.cpp's checkpoint: the tensors of one of its architectures, whose names, keys and
 * permutations are the tables that the reader has (weights/gguf/archs.c, names.c).
 * Facts: ggml-org/ggml, docs/gguf.md; llama.cpp's convert_hf_to_gguf.py for which tensors stay f32. */
#include "convert/gguf_values.h"
#include "convert/outfile.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "kernels/groups.h"
#include "weights/gguf/reader.h"
#include <math.h>
#include <string.h>

enum { ALIGNMENT = 32, VERSION = 3 };

/* Formats of matrices. enum of general.file_type, as llama.h numbers them */
static const struct format {
    const char *name;
    proa_encoding encoding;
    proa_dtype dtype; /* of PLAIN */
    int32_t file_type;
} formats[] = {
    {"f32", PROA_ENCODING_PLAIN, PROA_DTYPE_F32, 0},    {"f16", PROA_ENCODING_PLAIN, PROA_DTYPE_F16, 1},
    {"bf16", PROA_ENCODING_PLAIN, PROA_DTYPE_BF16, 32}, {"q8_0", PROA_ENCODING_Q8_0, PROA_DTYPE_F32, 7},
    {"q4_0", PROA_ENCODING_Q4_0, PROA_DTYPE_F32, 2},
};

/* A tensor of the file. */
typedef struct tensor {
    const char *name;
    proa_bound_tensor from;
    const proa_bound_tensor *parts; /* of PARTS: [part_count] instead of `from`, which is the first of them */
    int64_t part_count;
    bool zeros;          /* instead: of a layer that has no such tensor */
    const float *values; /* instead: numbers that are computed (rotary factors) */
    proa_gguf_use use;
    int form;                   /* of proa_gguf_form */
    int64_t heads;              /* of a rotated one */
    const proa_config *factors; /* whose factors of products become part of it; NULL: none */
    const int64_t *stored; /* [rows] of a STORED or TILED one: the row of the slot that is row i of the file's tensor */
    const int64_t *stored_cols; /* [columns] the same; NULL: in order */
    proa_encoding encoding;
    proa_dtype dtype;
    int32_t rank;
    int64_t shape[PROA_RANK_MAX]; /* outermost first */
    int64_t cols;                 /* numbers of a row; of a vector all, whatever its shape */
    int64_t row_bytes, bytes, offset;
} tensor;

typedef struct writer {
    const proa_convert_job *job;
    const struct format *format;
    const proa_gguf_arch *arch;
    proa_bound bound;
    proa_config model; /* as it was read; that of `bound` is the one that is written */
    tensor *tensors;
    int64_t count, cap;
    proa_gguf_values values, tokenizer; /* all members; tokenizer.* */
    proa_buf head;
    int64_t data_bytes;
    proa_err *err;
} writer;

/* ---- which tensors, of which types ---- */

/* llama.cpp keeps these in f32: norms and biases (all vectors), routers, tables of positions and token types, T5's
 * position biases, convolutions. */
static bool stays_f32(const tensor *t)
{
    static const char *const parts[] = {"_norm.",      "ffn_gate_inp.", "position_embd.", "token_types.",
                                        "attn_rel_b.", ".bias",         "ssm_conv1d.",    "shortconv.conv."};
    for (size_t i = 0; i < PROA_COUNT(parts); i++)
        if (strstr(t->name, parts[i])) return true;
    return t->rank < 2 || t->form & (PROA_GGUF_COLUMN | PROA_GGUF_NEGATED_EXP);
}

/* Four bits are too few for the matrix that makes logits, where llama.cpp takes six. */
static bool makes_logits(const writer *w, const char *name)
{
    return strcmp(name, "output.weight") == 0 ||
           (w->bound.config.tied && strcmp(name, "token_embd.weight") == 0);
}

static void choose_type(const writer *w, tensor *t)
{
    int64_t cols = t->shape[t->rank - 1];
    t->encoding = w->format->encoding, t->dtype = w->format->dtype;
    if (t->encoding == PROA_ENCODING_Q4_0 && makes_logits(w, t->name)) t->encoding = PROA_ENCODING_Q8_0;
    if (t->encoding != PROA_ENCODING_PLAIN && cols % PROA_GROUP != 0)
        t->encoding = PROA_ENCODING_PLAIN, t->dtype = PROA_DTYPE_F16;
    if (stays_f32(t)) t->encoding = PROA_ENCODING_PLAIN, t->dtype = PROA_DTYPE_F32;
}

static void set_sizes(const writer *w, tensor *t)
{
    bool vector = !t->values && t->from.cols == 0;
    int64_t count = 1;
    choose_type(w, t);
    t->cols = vector ? t->from.rows : t->shape[t->rank - 1];
    t->row_bytes = t->encoding == PROA_ENCODING_PLAIN ? t->cols * proa_dtype_bytes(t->dtype)
                                                      : proa_encoding_row_bytes(t->encoding, t->cols);
    for (int32_t i = 0; i < t->rank; i++) count *= t->shape[i];
    t->bytes = count / t->cols * t->row_bytes;
}

static void add_one(writer *w, tensor t)
{
    if (w->count == w->cap) {
        int64_t cap = w->cap ? 2 * w->cap : 64;
        tensor *more = PROA_ARENA_NEW(&w->bound.arena, tensor, cap);
        if (w->count) memcpy(more, w->tensors, (size_t)w->count * sizeof *more);
        w->tensors = more, w->cap = cap;
    }
    w->tensors[w->count++] = t;
}

/* Rows of each matrix in the file. A table of inputs of layers has one for each token there: the first one again for
 * those that the class has no row for. */
static int64_t file_rows(const writer *w, const tensor *t)
{
    bool by_token = t->from.name && t->from.name->slot == PROA_SLOT_LAYER_TOKENS;
    return by_token ? w->bound.config.vocab : t->from.rows;
}

static void set_shape(const writer *w, tensor *t)
{
    const proa_bound_tensor *f = &t->from;
    if (t->parts) t->shape[t->rank++] = t->part_count;
    int64_t rows = file_rows(w, t), groups = t->form & PROA_GGUF_BY_GROUPS ? w->bound.config.key_heads : 0;
    if (f->experts) t->shape[t->rank++] = f->experts;
    if (groups) t->shape[t->rank++] = groups, rows /= groups;
    if (t->use != PROA_GGUF_ROW || rows != 1) t->shape[t->rank++] = rows;
    if (t->form & PROA_GGUF_COLUMN) t->shape[t->rank++] = 1;
    if (f->cols) t->shape[t->rank++] = f->cols;
}

static proa_status set_rotation(const writer *w, tensor *t)
{
    const proa_config *c = &w->bound.config;
    if (t->use != PROA_GGUF_ROTATED_Q && t->use != PROA_GGUF_ROTATED_K) return PROA_OK;
    t->heads = t->use == PROA_GGUF_ROTATED_Q ? c->heads : c->kv_heads;
    if (t->from.rows % (2 * t->heads) == 0) return PROA_OK;
    return PROA_FAIL(w->err, UNSUPPORTED, "tensor '%s': %lld rows are not %lld heads of an even size",
                     t->name, (long long)t->from.rows, (long long)t->heads);
}

/* Undoes the load action of a tensor that is written as the class's own file has it. */
static proa_status set_stored_rows(writer *w, tensor *t)
{
    if (t->use != PROA_GGUF_STORED || t->from.name->load == PROA_LOAD_SPREAD) return PROA_OK;
    int64_t rows = t->from.rows, *stored = PROA_ARENA_NEW(&w->bound.arena, int64_t, rows);
    for (int64_t i = 0; i < rows; i++) stored[i] = -1;
    for (int64_t i = 0; i < rows; i++) {
        int64_t in_part;
        const proa_weight_part *part = proa_bound_part(&t->from, 0, i, &in_part);
        int64_t row = proa_tensor_source_row(&part->source, in_part);
        if (row >= rows || stored[row] >= 0)
            return PROA_FAIL(w->err, UNSUPPORTED, "tensor '%s' is not made of one tensor of %lld rows",
                             t->name, (long long)rows);
        stored[row] = i;
    }
    t->stored = stored;
    return PROA_OK;
}

/* count numbers behind `first` others, as undo_tiles of the reader reads them back: of[tiled number] = the class's. */
static int64_t *make_tiles(writer *w, int64_t first, int64_t count)
{
    const proa_config *c = &w->bound.config;
    int64_t *of = PROA_ARENA_NEW(&w->bound.arena, int64_t, first + count), *out = of;
    int64_t keys = c->key_heads, each = c->value_heads / keys, d = count / c->value_heads;
    for (int64_t i = 0; i < first; i++) *out++ = i;
    for (int64_t r = 0; r < each; r++)
        for (int64_t k = 0; k < keys; k++)
            for (int64_t i = 0; i < d; i++) *out++ = first + (k * each + r) * d + i;
    return of;
}

static void set_tiles(writer *w, tensor *t)
{
    const proa_config *c = &w->bound.config;
    int64_t keys = t->use == PROA_GGUF_TILED_VALUES ? 2 * c->key_heads * c->key_dim : 0;
    if (t->use == PROA_GGUF_TILED_ROWS || t->use == PROA_GGUF_TILED_VALUES)
        t->stored = make_tiles(w, keys, t->from.rows - keys);
    if (t->use == PROA_GGUF_TILED_COLS) t->stored_cols = make_tiles(w, 0, t->from.cols);
}

/* "blk.%d.attn_q" and an ending as the name of a layer's tensor. */
static const char *fill_name(writer *w, const char *pattern, const char *ending, int64_t layer)
{
    const char *mark = strstr(pattern, "%d");
    if (!mark) return proa_arena_printf(&w->bound.arena, "%s%s", pattern, ending);
    return proa_arena_printf(&w->bound.arena, "%.*s%lld%s%s", (int)(mark - pattern), pattern,
                             (long long)layer, mark + 2, ending);
}

/* How many tensors of the file are parts of one tensor of the class: NAME, NAME#2, ... */
static int parts_of(const proa_gguf_arch *arch, const char *hf, size_t base)
{
    int parts = 0;
    for (const proa_gguf_name *n = arch->names; n->gguf; n++)
        parts += n->use != PROA_GGUF_OLDER && n->hf && strncmp(n->hf, hf, base) == 0 &&
                 (n->hf[base] == '#' || n->hf[base] == 0);
    return parts;
}

/* Tensors of the class as matrices of one tensor. */
static void add_parts(writer *w, const proa_gguf_name *entry, const char *ending)
{
    enum { PARTS_MAX = 16 };
    proa_bound_tensor *parts = PROA_ARENA_NEW(&w->bound.arena, proa_bound_tensor, PARTS_MAX);
    tensor t = {.use = entry->use, .form = entry->form, .parts = parts};
    while (t.part_count < PARTS_MAX) {
        const char *hf = fill_name(w, entry->hf, ending, t.part_count);
        if (!proa_bound_find(&w->bound, hf, -1, 0, 1, &parts[t.part_count])) break;
        t.part_count++;
    }
    if (t.part_count == 0) return;
    t.from = parts[0];
    t.name = fill_name(w, entry->gguf, ending, 0);
    set_shape(w, &t);
    add_one(w, t);
}

/* The tensor, or of an entry that every layer has zeros in the place of it. */
static bool find_tensor(writer *w, tensor *t, const char *hf, int64_t layer, int part, int parts)
{
    if (proa_bound_find(&w->bound, hf, layer, part, parts, &t->from)) {
        if (t->from.name->load == PROA_LOAD_SPREAD) t->from.rows = 1;
        return true;
    }
    t->zeros = t->form & PROA_GGUF_EVERY_LAYER && layer > 0;
    return t->zeros && proa_bound_find(&w->bound, hf, 0, part, parts, &t->from);
}

/* The tensor of a layer by one entry and one ending (which is empty where the entry has it in its names). */
static proa_status add_entry(writer *w, const proa_gguf_name *entry, const char *ending, int64_t layer)
{
    char hf[PROA_TENSOR_NAME_MAX + 1];
    const char *mark = strchr(entry->hf, '#');
    size_t base = mark ? (size_t)(mark - entry->hf) : strlen(entry->hf);
    int part = mark ? mark[1] - '1' : 0; /* the tables number few parts, from #2 on */
    if (entry->use == PROA_GGUF_PARTS) return add_parts(w, entry, ending), PROA_OK;
    tensor t = {.use = entry->use, .form = entry->form, .factors = w->arch->baked ? &w->model : NULL};
    snprintf(hf, sizeof hf, "%.*s%s", (int)base, entry->hf, ending);
    if (!find_tensor(w, &t, hf, layer, part, parts_of(w->arch, entry->hf, base))) return PROA_OK;
    if (t.use == PROA_GGUF_UNWRITTEN) return PROA_OK; /* it counts as found */
    t.name = fill_name(w, entry->gguf, ending, layer);
    set_shape(w, &t);
    PROA_TRY(set_rotation(w, &t));
    PROA_TRY(set_stored_rows(w, &t));
    set_tiles(w, &t);
    add_one(w, t);
    return PROA_OK;
}

/* Whether the names of the entry are whole, so that no ending follows. */
static bool is_whole(const proa_gguf_name *n)
{
    proa_str s = proa_str_c(n->gguf);
    if (n->form & PROA_GGUF_NO_ENDING) return true;
    return proa_str_ends(s, proa_str_c(".weight")) || proa_str_ends(s, proa_str_c(".bias")) ||
           proa_str_ends(s, proa_str_c(".scale"));
}

static void add_rope(writer *w, const proa_gguf_name *entry)
{
    float values[PROA_HEAD_DIM_MAX / 2];
    int64_t n = proa_config_rotary_dim(&w->bound.config, false) / 2;
    if (!proa_gguf_rope_tensor(values, entry->gguf, &w->bound.config)) return;
    float *kept = PROA_ARENA_NEW(&w->bound.arena, float, n);
    memcpy(kept, values, (size_t)n * sizeof *kept);
    add_one(w,
            (tensor){.name = fill_name(w, entry->gguf, ".weight", 0), .values = kept, .rank = 1, .shape = {n}});
}

/* Rotary factors come first (gguf_check.c), then what is of no layer, then layer by layer, as files are read. */
static proa_status add_tensors(writer *w)
{
    static const char *const endings[] = {".weight", ".bias"};
    const proa_config *c = &w->bound.config;
    int64_t layers = proa_max64(c->layers, c->encoder_layers);
    for (const proa_gguf_name *n = w->arch->names; n->gguf; n++)
        if (n->use == PROA_GGUF_DROPPED) add_rope(w, n);
    for (int64_t layer = -1; layer < layers; layer++)
        for (const proa_gguf_name *n = w->arch->names; n->gguf; n++) {
            if (n->use == PROA_GGUF_DROPPED || n->use == PROA_GGUF_OLDER) continue;
            if ((strstr(n->gguf, "%d") != NULL) != (layer >= 0)) continue;
            for (int e = 0; e < 2; e++) {
                bool whole = is_whole(n);
                if (whole && e) break;
                char hf[PROA_TENSOR_NAME_MAX + 1];
                snprintf(hf, sizeof hf, "%s%s", n->hf, whole ? "" : endings[e]);
                PROA_TRY(add_entry(w, n, whole ? "" : endings[e], layer));
            }
        }
    return PROA_OK;
}

/* ---- the format ---- */

/* The type in which most of the matrices' numbers are stored; f16 for encoded ones. */
static const char *stored_format(const writer *w)
{
    int64_t numbers[PROA_DTYPE_COUNT] = {0};
    for (int64_t i = 0; i < w->count; i++) {
        const tensor *t = &w->tensors[i];
        if (t->values || t->from.cols == 0) continue;
        const proa_tensor_source *s = &t->from.param->part[0].source;
        proa_dtype dtype = proa_tensor_source_is_float(s) ? s->view.dtype : PROA_DTYPE_F16;
        numbers[dtype] += t->from.rows * t->from.cols;
    }
    proa_dtype most = PROA_DTYPE_F16;
    for (int d = 0; d < PROA_DTYPE_COUNT; d++)
        if (numbers[d] > numbers[most]) most = (proa_dtype)d;
    return proa_dtype_name(most);
}

static proa_status choose_format(writer *w, proa_err *err)
{
    const char *name = w->job->format;
    if (!name) name = w->job->dtype_given ? proa_dtype_name(w->job->dtype) : stored_format(w);
    for (size_t i = 0; i < PROA_COUNT(formats); i++)
        if (strcmp(formats[i].name, name) == 0) return w->format = &formats[i], PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "a GGUF file is not written as '%s': f32, f16, bf16, q8_0 or q4_0 are known", name);
}

/* ---- the head of the file ---- */

static int64_t place_tensors(writer *w)
{
    int64_t at = 0;
    for (int64_t i = 0; i < w->count; i++) {
        tensor *t = &w->tensors[i];
        set_sizes(w, t);
        t->offset = at;
        at += proa_round_up(t->bytes, ALIGNMENT);
    }
    return at;
}

static proa_str last_name(const char *path)
{
    proa_str s = proa_str_c(path);
    while (s.len > 1 && s.ptr[s.len - 1] == '/') s.len--;
    for (size_t i = s.len; i > 0; i--)
        if (s.ptr[i - 1] == '/') return (proa_str){s.ptr + i, s.len - i};
    return s;
}

static proa_status put_values(writer *w, proa_err *err)
{
    proa_gguf_values *v = &w->values;
    proa_buf_clear(&v->bytes), v->count = 0;
    bool quantised = w->format->encoding != PROA_ENCODING_PLAIN;
    proa_gguf_value_str(v, "general.architecture", proa_str_c(w->arch->name));
    proa_gguf_value_str(v, "general.type", proa_str_c("model"));
    proa_gguf_value_str(v, "general.name", last_name(w->job->in));
    proa_gguf_value_u32(v, "general.file_type", w->format->file_type);
    if (quantised) proa_gguf_value_u32(v, "general.quantization_version", 2);
    PROA_TRY(proa_gguf_put_config(v, w->arch, &w->bound, err));
    if (!w->bound.config.head_of_mean) PROA_TRY(proa_gguf_put_pooling(v, w->arch, w->job->files, err));
    proa_buf_str(&v->bytes, proa_buf_view(&w->tokenizer.bytes));
    v->count += w->tokenizer.count;
    if (!v->bytes.full) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "metadata of more than %zu bytes", v->bytes.bytes_max);
}

static proa_status make_head(writer *w, proa_err *err)
{
    proa_buf *out = &w->head;
    PROA_TRY(put_values(w, err));
    proa_buf_clear(out);
    proa_buf_str(out, proa_str_c("GGUF"));
    proa_gguf_put_u32(out, VERSION);
    proa_gguf_put_u64(out, (uint64_t)w->count);
    proa_gguf_put_u64(out, (uint64_t)w->values.count);
    proa_buf_str(out, proa_buf_view(&w->values.bytes));
    for (int64_t i = 0; i < w->count; i++) {
        const tensor *t = &w->tensors[i];
        proa_gguf_put_text(out, proa_str_c(t->name));
        proa_gguf_put_u32(out, (uint32_t)t->rank);
        for (int32_t k = t->rank - 1; k >= 0; k--) proa_gguf_put_u64(out, (uint64_t)t->shape[k]);
        proa_gguf_put_u32(out, (uint32_t)proa_gguf_type_of(t->encoding, t->dtype));
        proa_gguf_put_u64(out, (uint64_t)t->offset);
    }
    while (out->len % ALIGNMENT && !out->full) proa_buf_char(out, 0);
    if (!out->full) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "a header of more than %zu bytes", out->bytes_max);
}

/* Reads back the head with the rotary factors after it, which the reader looks into. */
static proa_status check_head(const writer *w, proa_err *err)
{
    proa_buf bytes;
    proa_buf_init(&bytes, w->head.len + 3 * (4 * PROA_HEAD_DIM_MAX + ALIGNMENT));
    proa_buf_str(&bytes, proa_buf_view(&w->head));
    for (int64_t i = 0; i < w->count && w->tensors[i].values; i++) {
        proa_buf_append(&bytes, w->tensors[i].values, (size_t)w->tensors[i].bytes);
        while (bytes.len % ALIGNMENT) proa_buf_char(&bytes, 0);
    }
    proa_status status = proa_gguf_check_config(proa_buf_view(&bytes), &w->bound, err);
    proa_buf_release(&bytes);
    return status;
}

/* ---- which architecture ---- */

/* Whether every weight of the model has a name in the architecture; else the error says which has none. */
static proa_status try_arch(writer *w, const proa_gguf_arch *arch, const proa_arch *class, proa_err *err)
{
    w->arch = arch, w->count = 0, w->err = err;
    w->bound.config = w->model;
    if (!proa_bound_aim(&w->bound, class))
        return PROA_FAIL(err, UNSUPPORTED, "GGUF's '%s' computes something else", arch->name);
    if (arch->baked) proa_gguf_drop_factors(&w->bound.config);
    PROA_TRY(add_tensors(w));
    const char *left = proa_bound_left(&w->bound);
    if (left) return PROA_FAIL(err, UNSUPPORTED, "GGUF's '%s' has no tensor for '%s'", arch->name, left);
    PROA_TRY(choose_format(w, err));
    w->data_bytes = place_tensors(w);
    PROA_TRY(make_head(w, err));
    return check_head(w, err);
}

/* The row of the model's own class, or else the first whose class computes the same, and whose file would be read back
 * as this model. The error is that of the own class, if there is one. */
static proa_status choose_arch(writer *w, proa_err *err)
{
    bool own = false;
    for (int same = 1; same >= 0 && !own; same--)
        for (const proa_gguf_arch *a = proa_gguf_archs; a->name; a++) {
            proa_err other = {0};
            const proa_arch *class = proa_bound_class(a->hf);
            if (!class || (class == w->bound.source) != same) continue;
            own |= same;
            proa_status status = try_arch(w, a, class, same ? err : &other);
            if (status == PROA_OK) return proa_err_clear(err), PROA_OK;
        }
    if (own) return PROA_UNSUPPORTED;
    return PROA_FAIL(err, UNSUPPORTED,
                     "none of the GGUF architectures that can be written computes what a %s does",
                     w->bound.source->name);
}

/* ---- the data ---- */

/* The row of the slot that is stored as row r. Rotated heads are reordered: llama.cpp rotates pairs of neighbours,
 * transformers rotates the two halves of a head. */
static int64_t slot_row(const tensor *t, int64_t r)
{
    if (t->stored) return t->stored[r];
    if (!t->heads) return r;
    int64_t d = t->from.rows / t->heads, in_head = r % d;
    return r - in_head + in_head % 2 * (d / 2) + in_head / 2;
}

static void multiply_numbers(float *x, int64_t n, double factor)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)((double)x[i] * factor);
}

/* A row of a matrix with its columns as they are stored. */
static void read_stored_row(const tensor *t, int64_t expert, int64_t row, float *out)
{
    int64_t cols = t->from.cols;
    proa_bound_read(&t->from, expert, row, out);
    if (t->factors) multiply_numbers(out, cols, proa_gguf_factor(t->factors, &t->from, row));
    if (!t->stored_cols) return;
    float *taken = proa_malloc((size_t)cols * sizeof *taken);
    memcpy(taken, out, (size_t)cols * sizeof *taken);
    for (int64_t i = 0; i < cols; i++) out[i] = taken[t->stored_cols[i]];
    free(taken);
}

static void put_blocks(const tensor *t, int64_t expert, int64_t row, unsigned char *out)
{
    proa_wfmt format = t->encoding == PROA_ENCODING_Q8_0 ? PROA_WFMT_Q8_0 : PROA_WFMT_Q4_0;
    int64_t at;
    const proa_weight_part *part = proa_bound_part(&t->from, expert, row, &at);
    float *values = NULL;
    if (part->normalised || t->stored_cols || t->factors) {
        values = proa_malloc((size_t)t->from.cols * sizeof *values);
        read_stored_row(t, expert, row, values);
    }
    for (int64_t k = 0; k < t->from.cols; k += PROA_GROUP) {
        proa_quant_group g;
        if (values) proa_group_quantise(format, &g, values + k, PROA_GROUP);
        else proa_group_read(format, &g, &(proa_source_span){&part->source, at, k, PROA_GROUP, NULL});
        *out++ = (unsigned char)g.scale, *out++ = (unsigned char)(g.scale >> 8);
        if (format == PROA_WFMT_Q8_0)
            for (int i = 0; i < PROA_GROUP; i++) *out++ = (unsigned char)(g.code[i] - 128);
        else
            for (int i = 0; i < PROA_GROUP / 2; i++)
                *out++ = (unsigned char)(g.code[i] | g.code[i + PROA_GROUP / 2] << 4);
    }
    free(values);
}

static void put_form(const tensor *t, float *row, int64_t n)
{
    for (int64_t i = 0; t->form & PROA_GGUF_NEGATED_EXP && i < n; i++) row[i] = (float)-exp((double)row[i]);
}

/* Row r of a matrix as it is stored. */
static void put_row(const tensor *t, int64_t r, float *row, unsigned char *out)
{
    int64_t rows = t->rank < 2 ? 1 : t->shape[t->rank - 2], expert = r / rows, in_expert = r % rows;
    tensor part = *t;
    if (t->parts) part.from = t->parts[expert], t = &part, expert = 0;
    in_expert = in_expert < t->from.rows ? slot_row(t, in_expert) : 0;
    if (t->encoding != PROA_ENCODING_PLAIN) {
        put_blocks(t, expert, in_expert, out);
        return;
    }
    read_stored_row(t, expert, in_expert, row);
    put_form(t, row, t->from.cols);
    proa_from_f32(out, t->dtype, row, t->from.cols);
}

/* A vector of expert e as it is stored. */
static void put_vector(const tensor *t, int64_t e, float *row, unsigned char *out)
{
    int64_t n = t->from.rows;
    float *taken = proa_malloc((size_t)n * sizeof *taken);
    proa_bound_read(&t->from, e, 0, taken);
    for (int64_t i = 0; t->factors && i < n; i++)
        multiply_numbers(taken + i, 1, proa_gguf_factor(t->factors, &t->from, i));
    for (int64_t i = 0; i < n; i++) row[i] = taken[slot_row(t, i)];
    put_form(t, row, n);
    proa_from_f32(out, t->dtype, row, n);
    free(taken);
}

static void fill_item(void *context, int64_t item, int64_t from, int64_t bytes, void *out)
{
    const writer *w = context;
    const tensor *t = &w->tensors[item];
    if (t->values) {
        memcpy(out, (const char *)t->values + from, (size_t)bytes);
        return;
    }
    if (t->zeros) {
        memset(out, 0, (size_t)bytes); /* of each type the number 0 */
        return;
    }
    float *row = proa_malloc((size_t)t->cols * sizeof *row);
    for (int64_t done = 0; done < bytes; done += t->row_bytes) {
        int64_t r = (from + done) / t->row_bytes;
        if (t->from.cols) put_row(t, r, row, (unsigned char *)out + done);
        else put_vector(t, r, row, (unsigned char *)out + done);
    }
    free(row);
}

static void drop_weights(void *context, int64_t item)
{
    const writer *w = context;
    const proa_param *p = w->tensors[item].from.param;
    for (int32_t i = 0; p && i < p->parts; i++)
        if (p->part[i].tensor->source.view.data) proa_weights_drop(w->job->weights, p->part[i].tensor);
}

static proa_status write_file(writer *w, proa_err *err)
{
    proa_outfile_item *items = PROA_ARENA_NEW(&w->bound.arena, proa_outfile_item, w->count);
    for (int64_t i = 0; i < w->count; i++) {
        const tensor *t = &w->tensors[i];
        items[i] = (proa_outfile_item){(int64_t)w->head.len + t->offset, t->bytes, t->row_bytes};
    }
    proa_outfile file = {.path = w->job->out,
                         .header = proa_buf_view(&w->head),
                         .items = items,
                         .count = w->count,
                         .bytes = (int64_t)w->head.len + w->data_bytes,
                         .key = proa_convert_key(w->job, "gguf"),
                         .fill = fill_item,
                         .item_done = drop_weights,
                         .context = w};
    proa_convert_progress progress = {.total = w->data_bytes};
    return proa_outfile_write(&file, w->job, &progress, err);
}

/* ---- the whole ---- */

/* Whether an architecture of the model's class has its BPE over UTF-8 by the ranks of merges. */
static bool has_ranked_merges(const writer *w)
{
    for (const proa_gguf_arch *a = proa_gguf_archs; a->name; a++)
        if (a->ranked_merges && proa_bound_class(a->hf) == w->bound.source) return true;
    return false;
}

static proa_status write_model(writer *w, proa_err *err)
{
    const char *out = w->job->out;
    if (proa_dir_exists(out)) return PROA_FAIL(err, EXISTS, "'%s' is a folder: a GGUF file is one file", out);
    if (proa_file_exists(out) && !w->job->overwrite)
        return PROA_FAIL(err, EXISTS, "'%s' exists: name another, or use --overwrite", out);
    PROA_TRY(proa_gguf_put_tokenizer(&w->tokenizer, w->job->files, &w->bound.config, has_ranked_merges(w), err));
    PROA_TRY(choose_arch(w, err));
    return write_file(w, err);
}

proa_status proa_convert_gguf(const proa_convert_job *job, proa_err *err)
{
    writer w = {.job = job};
    PROA_TRY(proa_bound_open(&w.bound, job, err));
    w.model = w.bound.config;
    proa_buf *const bufs[] = {&w.values.bytes, &w.tokenizer.bytes, &w.head};
    for (size_t i = 0; i < PROA_COUNT(bufs); i++) proa_buf_init(bufs[i], (size_t)PROA_ST_HEADER_BYTES_MAX);
    proa_status status = write_model(&w, err);
    for (size_t i = 0; i < PROA_COUNT(bufs); i++) proa_buf_release(bufs[i]);
    proa_bound_close(&w.bound);
    return status;
}
