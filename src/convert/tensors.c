/* SPDX-License-Identifier: Apache-2.0
 * tensors.c - makes of stored tensors those of the architecture's Hugging Face class.
 * Most are that already. Those of GGUF files are stored as the weights are used (proa_weights_tensor.final), so what
 * the load action of their row in the name map would do is undone. */
#include "convert/tensors.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/json.h"
#include "model/multimodal.h"
#include "weights/packed.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While the list is made. */
typedef struct lister {
    const proa_convert_job *job;
    proa_convert_tensors *out;
    proa_dtype decoded;    /* type of numbers that were stored as codes */
    const proa_name **row; /* [tensors of the checkpoint] */
    proa_err *why;         /* why the model is not known */
    proa_err *err;
} lister;

#define FAIL_TENSOR(l, t, ...) fail_tensor(l, t, __VA_ARGS__)

PROA_PRINTF(3, 4)
static proa_status fail_tensor(const lister *l, const proa_weights_tensor *t, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return PROA_FAIL(l->err, UNSUPPORTED, "tensor '%.120s': %s", t->name, text);
}

/* ---- the model ---- */

static proa_status read_config(const lister *l, proa_err *err)
{
    const proa_files *files = l->job->files;
    proa_json *config = NULL, *generation = NULL;
    proa_status status;
    PROA_TRY_OUT(proa_files_json(&config, files, "config.json", PROA_CONFIG_BYTES_MAX, err));
    if (proa_files_has(files, "generation_config.json"))
        PROA_TRY_OUT(proa_files_json(&generation, files, "generation_config.json", PROA_CONFIG_BYTES_MAX, err));
    status = proa_arch_configure(&l->out->arch, &l->out->config, config, generation, &l->out->arena, err);
out:
    proa_json_free(config);
    proa_json_free(generation);
    return status;
}

/* The type of numbers that were codes: what config.json says of the model before it was quantised, else f16. */
static proa_dtype decoded_dtype(const lister *l)
{
    proa_json *config = NULL;
    proa_dtype dtype = PROA_DTYPE_F16;
    if (proa_files_json(&config, l->job->files, "config.json", PROA_CONFIG_BYTES_MAX, NULL) != PROA_OK)
        return dtype;
    const proa_json *text = proa_multimodal_text(config);
    const proa_json *keys[] = {proa_json_get(config, "dtype"), proa_json_get(config, "torch_dtype"),
                               proa_json_get(text, "dtype"), proa_json_get(text, "torch_dtype")};
    for (size_t i = PROA_COUNT(keys); i-- > 0;) {
        if (proa_str_is(proa_json_str(keys[i]), "bfloat16")) dtype = PROA_DTYPE_BF16;
        if (proa_str_is(proa_json_str(keys[i]), "float16")) dtype = PROA_DTYPE_F16;
        if (proa_str_is(proa_json_str(keys[i]), "float32")) dtype = PROA_DTYPE_F32;
    }
    proa_json_free(config);
    return dtype;
}

static void note_rows(const lister *l)
{
    const proa_weights *w = l->job->weights;
    const proa_weights_tensor *first = proa_weights_at(w, 0);
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_params *p = &l->out->params[s];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++)
            for (int32_t k = 0; k < p->param[i].parts; k++) {
                const proa_weight_part *part = &p->param[i].part[k];
                if (proa_encoding_is_computed(part->source.encoding)) continue;
                l->row[part->tensor - first] = part->row;
            }
    }
}

/* Finds the architecture and the row of each tensor. A checkpoint that does not bind can still be copied. */
static void find_rows(const lister *l)
{
    proa_convert_tensors *out = l->out;
    proa_status status = read_config(l, l->why);
    if (status == PROA_OK)
        status = proa_bind(out->params, out->arch, &out->config, l->job->weights, &out->arena, l->why);
    if (status == PROA_OK) note_rows(l);
    else out->arch = NULL;
}

/* ---- one tensor ---- */

static void set_shape(proa_convert_tensor *t, int32_t rank, const int64_t *shape)
{
    t->rank = rank, t->count = 1;
    for (int i = 0; i < PROA_STORED_AXES_MAX; i++)
        t->shape[i] = i < rank ? shape[i] : 1, t->count *= t->shape[i];
}

static bool is_convertible(proa_dtype d)
{
    return d == PROA_DTYPE_F32 || d == PROA_DTYPE_F16 || d == PROA_DTYPE_BF16;
}

/* The type to write: of codes the one they are decoded to, of floats the given one. */
static proa_dtype dtype_of(const lister *l, const proa_tensor_source *s)
{
    bool codes = !proa_tensor_source_is_float(s);
    if (l->job->dtype_given && (codes || proa_dtype_floating(s->view.dtype))) return l->job->dtype;
    return codes ? l->decoded : s->view.dtype;
}

/* One part: a matrix, or with slices one of each slice. */
static void set_matrix(const lister *l, proa_convert_tensor *t, proa_tensor_source s, int64_t slices)
{
    proa_tensor_source *part = PROA_ARENA_NEW(&l->out->arena, proa_tensor_source, slices);
    t->slices = slices, t->parts = 1, t->part = part;
    for (int64_t i = 0; i < slices; i++) {
        part[i] = slices > 1 || s.view.rank == 3 ? proa_tensor_source_slice(&s, i) : s;
        /* the numbers of an encoded matrix follow each other along its rows */
        t->turned = part[i].view.stride[0] == 1 && part[i].view.stride[1] != 1;
        if (t->turned) part[i].view = proa_view_transpose(part[i].view);
    }
    t->N = slices ? part[0].view.shape[0] : 0, t->K = slices ? part[0].view.shape[1] : 0;
}

/* A tensor that is stored in the layout of the class. */
static proa_status set_stored(const lister *l, proa_convert_tensor *t, const proa_weights_tensor *from)
{
    proa_tensor_source s = from->source;
    bool dense = proa_tensor_source_is_dense(&s);
    const int64_t *axes;
    int32_t rank = proa_weights_axes(from, &axes);
    set_shape(t, rank, axes);
    if ((dense && t->dtype == s.view.dtype) || t->count == 0) return t->stored = from, PROA_OK;
    if (s.encoding == PROA_ENCODING_PLAIN && !is_convertible(s.view.dtype) && !dense)
        return FAIL_TENSOR(l, from, "its numbers are %s with gaps between them", proa_dtype_name(s.view.dtype));
    if (dense) s.view = proa_view_2d(s.view.data, s.view.dtype, 1, t->count);
    else if (s.view.rank == 1) {
        int64_t stride = s.view.stride[0];
        s.view.rank = 2;
        s.view.shape[0] = 1, s.view.stride[0] = t->count;
        s.view.shape[1] = t->count, s.view.stride[1] = stride;
    }
    if (s.view.rank < 2 || s.view.rank > 3)
        return FAIL_TENSOR(l, from, "%d axes with gaps between the numbers", s.view.rank);
    set_matrix(l, t, s, s.view.rank == 3 ? s.view.shape[0] : 1);
    return PROA_OK;
}

/* ---- tensors that are stored as they are used ---- */

/* The inverse of a load action: row_of[stored row of the class] = row of the weight. */
static proa_status set_order(const lister *l, proa_convert_tensor *t, const proa_weights_tensor *from)
{
    proa_row_order order[PROA_LOAD_ORDERS_MAX];
    int64_t n = 0;
    int orders = proa_load_orders(order, t->row->load, &l->out->config, t->N);
    if (orders == 0) return PROA_OK;
    int32_t *row_of = PROA_ARENA_NEW(&l->out->arena, int32_t, t->N);
    for (int i = 0; i < orders; i++) {
        proa_tensor_source taken = {.order = order[i]};
        for (int64_t row = 0; row < proa_tensor_source_rows(&taken); row++) {
            int64_t at = proa_tensor_source_row(&taken, row);
            if (at < 0 || at >= t->N || n >= t->N)
                return FAIL_TENSOR(l, from, "its %lld rows are not those of q, k and v", (long long)t->N);
            row_of[at] = (int32_t)n++;
        }
    }
    if (n != t->N) return FAIL_TENSOR(l, from, "its %lld rows are not those of q, k and v", (long long)t->N);
    t->row_of = row_of;
    return PROA_OK;
}

/* NAME, NAME#2, ... */
static int32_t find_parts(const lister *l, proa_convert_tensor *t, const proa_weights_tensor *first)
{
    char name[PROA_TENSOR_NAME_MAX + 16];
    while (first && t->whole_count < (int32_t)PROA_COUNT(t->whole)) {
        t->whole[t->whole_count++] = first;
        snprintf(name, sizeof name, "%s#%d", t->name, t->whole_count + 1);
        first = proa_weights_find(l->job->weights, name);
    }
    return t->whole_count;
}

/* Of a convolution of each channel the classes have an axis more, that of its one input. */
static void set_final_shape(proa_convert_tensor *t, bool experts, bool vector)
{
    int64_t shape[PROA_RANK_MAX];
    int32_t rank = 0;
    if (experts) shape[rank++] = t->slices;
    shape[rank++] = t->turned ? t->K : t->N;
    if (t->row->slot == PROA_SLOT_MIX_CONV) shape[rank++] = 1;
    if (!vector) shape[rank++] = t->turned ? t->N : t->K;
    set_shape(t, rank, shape);
}

/* Keys and values of each head: its keys, which are stored transposed, then its values (bind.c). */
static proa_status set_heads(const lister *l, proa_convert_tensor *t, const proa_weights_tensor *from)
{
    const proa_config *c = &l->out->config;
    if (find_parts(l, t, from) != 2) return FAIL_TENSOR(l, from, "it has %d parts of 2", t->whole_count);
    proa_tensor_source *part = PROA_ARENA_NEW(&l->out->arena, proa_tensor_source, 2 * c->heads);
    for (int64_t h = 0; h < c->heads; h++) {
        part[2 * h] = proa_tensor_source_slice(&t->whole[0]->source, h);
        part[2 * h].view = proa_view_transpose(part[2 * h].view);
        part[2 * h + 1] = proa_tensor_source_slice(&t->whole[1]->source, h);
    }
    t->slices = c->heads, t->parts = 2, t->part = part;
    t->N = c->qk_nope + c->v_dim, t->K = c->kv_lora;
    set_shape(t, 2, (const int64_t[]){t->slices * t->N, t->K});
    return PROA_OK;
}

/* Whether the bytes of the file are those that are written. */
static bool is_as_stored(const proa_convert_tensor *t, const proa_weights_tensor *from)
{
    bool in_order = t->parts == 1 && !t->turned && !t->row_of && t->plus == 0.0f;
    return in_order && proa_tensor_source_is_dense(&from->source) && t->dtype == from->source.view.dtype;
}

/* A vector of shape [1, n], such as Ernie's correction. */
static bool is_row(const proa_view *v)
{
    return v->rank == 2 && v->shape[0] == 1;
}

/* A vector, or one of shape [1, n], as n rows of one number. */
static void make_column(proa_view *v)
{
    int32_t along = v->rank - 1;
    v->rank = 2;
    v->shape[0] = v->shape[along], v->stride[0] = v->stride[along];
    v->shape[1] = 1, v->stride[1] = 1;
}

static proa_status set_stacked(const lister *l, proa_convert_tensor *t, const proa_weights_tensor *from)
{
    bool experts = proa_name_has_all_experts(t->row), vector = t->row->role == PROA_ROLE_VECTOR;
    bool row_vector = vector && !experts && is_row(&from->source.view);
    int32_t parts = find_parts(l, t, from);
    int64_t slices = experts ? from->source.view.shape[0] : 1;
    proa_tensor_source *part = PROA_ARENA_NEW(&l->out->arena, proa_tensor_source, slices * parts);
    t->slices = slices, t->parts = parts, t->part = part, t->N = 0;
    for (int64_t i = 0; i < slices * parts; i++) {
        part[i] = t->whole[i % parts]->source;
        if (experts) part[i] = proa_tensor_source_slice(&part[i], i / parts);
        proa_view *v = &part[i].view;
        if (row_vector || v->rank == 1) make_column(v);
        if (i < parts) t->N += proa_tensor_source_rows(&part[i]);
        t->K = v->shape[1];
    }
    t->turned = t->row->role == PROA_ROLE_TRANSPOSED;
    t->plus = t->row->flags & PROA_PLUS_ONE ? -1.0f : 0.0f;
    set_final_shape(t, experts, vector);
    if (row_vector) set_shape(t, 2, from->source.view.shape);
    PROA_TRY(set_order(l, t, from));
    if (is_as_stored(t, from)) t->stored = from;
    return PROA_OK;
}

static proa_status set_final(const lister *l, proa_convert_tensor *t, const proa_weights_tensor *from)
{
    if (!t->row)
        return FAIL_TENSOR(l, from, "its layout in the class of the model is not known: %s",
                           l->why->text[0] ? l->why->text : "the model does not use it");
    return t->row->flags & PROA_OF_HEADS ? set_heads(l, t, from) : set_stacked(l, t, from);
}

/* ---- the list ---- */

/* A second name of a tensor that has a row: torch saves tied weights under each of their names. */
static bool is_second_name(const lister *l, int64_t at)
{
    const proa_weights *w = l->job->weights;
    const proa_tensor_source *s = &proa_weights_at(w, at)->source;
    if (l->row[at] || !l->out->arch) return false;
    for (int64_t i = 0; i < proa_weights_count(w); i++) {
        const proa_tensor_source *other = &proa_weights_at(w, i)->source;
        if (l->row[i] && s->encoding == other->encoding && s->view.data == other->view.data &&
            memcmp(&s->view, &other->view, sizeof s->view) == 0)
            return true;
    }
    return false;
}

/* The layer in a tensor's name; -1: none. */
static int64_t layer_of(const lister *l, const char *name)
{
    const char *at = l->out->arch ? strstr(name, "layers.") : NULL;
    return at ? strtoll(at + 7, NULL, 10) : -1;
}

/* Of a layer that reads the keys and values of another one: files may have its own, which are of no use. */
static bool is_unread(const lister *l, const char *name)
{
    int64_t layer = layer_of(l, name);
    for (const proa_name *row = layer < 0 ? NULL : l->out->arch->names; row && row->name; row++) {
        const char *mark = row->flags & PROA_UNUSED ? strstr(row->name, "%d") : NULL;
        if (mark && proa_str_ends(proa_str_c(name), proa_str_c(mark + 2)) &&
            proa_name_applies(row, &l->out->config, layer))
            return true;
    }
    return false;
}

/* Layers behind the last one that predict further tokens: the file of a class has them, but in a layout of its own. */
static bool is_of_unused_layer(const lister *l, const char *name)
{
    const proa_config *c = &l->out->config;
    int64_t layer = layer_of(l, name);
    return layer >= c->layers && layer < c->layers + c->unused_layers;
}

static proa_status add_tensor(const lister *l, int64_t at)
{
    const proa_weights_tensor *from = proa_weights_at(l->job->weights, at);
    if ((from->final && strchr(from->name, '#')) || is_second_name(l, at)) return PROA_OK;
    bool unknown = from->final && !l->row[at];
    if (unknown && (is_of_unused_layer(l, from->name) || is_unread(l, from->name))) return PROA_OK;
    proa_convert_tensor *t = &l->out->at[l->out->count++];
    *t = (proa_convert_tensor){.name = from->name, .row = l->row[at], .dtype = dtype_of(l, &from->source)};
    l->out->decoded |= !proa_tensor_source_is_float(&from->source);
    if (from->final) PROA_TRY(set_final(l, t, from));
    else {
        t->whole[t->whole_count++] = from;
        PROA_TRY(set_stored(l, t, from));
    }
    if (!t->stored && !is_convertible(t->dtype))
        return FAIL_TENSOR(l, from, "numbers of %s are only copied as they are", proa_dtype_name(t->dtype));
    t->row_numbers = t->turned && t->N > 0 ? t->N : 1;
    return PROA_OK;
}

proa_status proa_convert_tensors_open(proa_convert_tensors *out, const proa_convert_job *job, proa_err *err)
{
    proa_err why = {.status = PROA_OK};
    proa_status status = PROA_OK;
    int64_t count = proa_weights_count(job->weights);
    *out = (proa_convert_tensors){.count = 0};
    if (proa_weights_packed(job->weights))
        return PROA_FAIL(err, INVALID, "'%.200s' is packed: give the model that it was made from", job->in);
    proa_arena_init(&out->arena);
    lister l = {.job = job, .out = out, .why = &why, .err = err};
    l.row = PROA_ARENA_NEW(&out->arena, const proa_name *, count);
    out->at = PROA_ARENA_NEW(&out->arena, proa_convert_tensor, count);
    l.decoded = decoded_dtype(&l);
    find_rows(&l);
    for (int64_t i = 0; i < count && status == PROA_OK; i++) status = add_tensor(&l, i);
    if (status != PROA_OK) proa_convert_tensors_close(out);
    return status;
}

void proa_convert_tensors_close(proa_convert_tensors *t)
{
    proa_arena_release(&t->arena);
    *t = (proa_convert_tensors){.count = 0};
}

int64_t proa_convert_tensor_bytes(const proa_convert_tensor *t)
{
    return t->count * proa_dtype_bytes(t->dtype);
}

void proa_convert_tensor_drop(const proa_convert_job *job, const proa_convert_tensor *t)
{
    for (int32_t i = 0; i < t->whole_count; i++) proa_weights_drop(job->weights, t->whole[i]);
}

/* ---- reading ---- */

/* Numbers [k, k + n) of row `row` of the stacked parts. */
static void read_row(const proa_convert_tensor *t, int64_t slice, int64_t row, int64_t k, int64_t n, float *out)
{
    const proa_tensor_source *part = t->part + slice * t->parts;
    int64_t stacked = t->row_of ? t->row_of[row] : row;
    for (; stacked >= proa_tensor_source_rows(part); part++) stacked -= proa_tensor_source_rows(part);
    proa_tensor_source_read(part, stacked, k, n, out);
    for (int64_t i = 0; t->plus != 0.0f && i < n; i++) out[i] += t->plus;
}

/* Numbers [at, at + n) of a slice that is stored as [K, N], within one of its rows. */
static void read_across(const proa_convert_tensor *t, int64_t slice, int64_t at, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) read_row(t, slice, (at + i) % t->N, (at + i) / t->N, 1, out + i);
}

/* Rows [k, k + n) of it. */
static void read_columns(const proa_convert_tensor *t, int64_t slice, int64_t k, int64_t n, float *out)
{
    float column[256];
    for (int64_t from = 0; from < n; from += (int64_t)PROA_COUNT(column)) {
        int64_t count = proa_min64(n - from, (int64_t)PROA_COUNT(column));
        for (int64_t row = 0; row < t->N; row++) {
            read_row(t, slice, row, k + from, count, column);
            for (int64_t i = 0; i < count; i++) out[(from + i) * t->N + row] = column[i];
        }
    }
}

/* As many numbers from `at` of a slice as can be read in one way, at most n; returns how many. */
static int64_t read_some(const proa_convert_tensor *t, int64_t slice, int64_t at, int64_t n, float *out)
{
    int64_t width = t->turned ? t->N : t->K, row = at / width, col = at % width;
    if (t->turned && col == 0 && n >= width) {
        read_columns(t, slice, row, n / width, out);
        return n / width * width;
    }
    n = proa_min64(n, width - col);
    if (t->turned) read_across(t, slice, at, n, out);
    else read_row(t, slice, row, col, n, out);
    return n;
}

void proa_convert_tensor_read_f32(const proa_convert_tensor *t, int64_t first, int64_t count, float *out)
{
    if (t->stored) {
        const proa_view *v = &t->stored->source.view;
        proa_to_f32(out, (const char *)v->data + first * proa_dtype_bytes(v->dtype), v->dtype, count);
        return;
    }
    while (count > 0) {
        int64_t each = t->N * t->K, slice = first / each, at = first % each;
        int64_t n = read_some(t, slice, at, proa_min64(count, each - at), out);
        first += n, count -= n, out += n;
    }
}

void proa_convert_tensor_read(const proa_convert_tensor *t, int64_t first, int64_t count, void *out)
{
    int64_t bytes = proa_dtype_bytes(t->dtype);
    if (t->stored) {
        const char *data = t->stored->source.view.data;
        if (count > 0) memcpy(out, data + first * bytes, (size_t)(count * bytes));
        return;
    }
    if (t->dtype == PROA_DTYPE_F32) {
        proa_convert_tensor_read_f32(t, first, count, out);
        return;
    }
    float *numbers = proa_malloc((size_t)proa_max64(count, 1) * sizeof *numbers);
    proa_convert_tensor_read_f32(t, first, count, numbers);
    proa_from_f32(out, t->dtype, numbers, count);
    free(numbers);
}
