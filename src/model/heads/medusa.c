/* SPDX-License-Identifier: Apache-2.0
 * medusa.c - Medusa heads: read, packed, and run over kept hidden states. */
#include "model/heads/medusa.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "model/ranks/states.h"
#include "model/staging/staging.h"
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static int64_t hidden_of(const proa_medusa *h)
{
    return proa_model_hidden_width(h->model);
}

static int64_t vocab_of(const proa_medusa *h)
{
    return h->model->plan.width[PROA_REG_OUT];
}

static const char *const file_names[] = {"medusa_lm_head.safetensors", "medusa_lm_head.pt"};

/* The path of the heads' file. False: there is none. */
static bool find_file(char path[PROA_PATH_MAX], const char *folder)
{
    for (size_t i = 0; i < PROA_COUNT(file_names); i++) {
        snprintf(path, PROA_PATH_MAX, "%s/%s", folder, file_names[i]);
        if (proa_file_exists(path)) return true;
    }
    return false;
}

bool proa_medusa_in_folder(const char *folder)
{
    char path[PROA_PATH_MAX];
    return find_file(path, folder);
}

static proa_status open_file(proa_medusa *h, const char *folder, proa_err *err)
{
    char path[PROA_PATH_MAX];
    if (find_file(path, folder)) return proa_weights_open(&h->weights, path, err);
    return PROA_FAIL(err, NOT_FOUND, "'%s' has neither %s nor %s", folder, file_names[0], file_names[1]);
}

/* Tensors NUMBER.0.linear.weight, or 0.NUMBER.linear.weight: how many there are from 0 on. */
static int32_t count_tensors(const proa_weights *w, const char *format, int32_t most)
{
    char name[PROA_TENSOR_NAME_MAX];
    int32_t n = 0;
    for (; n <= most; n++) {
        snprintf(name, sizeof name, format, n);
        if (!proa_weights_find(w, name)) break;
    }
    return n;
}

static proa_status read_counts(proa_medusa *h, const char *folder, proa_err *err)
{
    const proa_files files = proa_files_of(folder);
    int64_t heads = 1, layers = 0;
    proa_json *config = NULL;
    h->heads = count_tensors(h->weights, "%d.0.linear.weight", PROA_MEDUSA_HEADS_MAX);
    h->layers = count_tensors(h->weights, "0.%d.linear.weight", PROA_MEDUSA_LAYERS_MAX);
    if (h->heads == 0) return PROA_FAIL(err, INVALID, "tensor '0.0.linear.weight' is missing");
    if (h->heads > PROA_MEDUSA_HEADS_MAX || h->layers > PROA_MEDUSA_LAYERS_MAX)
        return PROA_FAIL(err, LIMIT, "there are more than %d heads or %d layers", PROA_MEDUSA_HEADS_MAX,
                         PROA_MEDUSA_LAYERS_MAX);
    if (!proa_files_has(&files, "config.json")) return PROA_OK;
    PROA_TRY(proa_files_json(&config, &files, "config.json", PROA_CONFIG_BYTES_MAX, err));
    layers = h->layers;
    proa_status status = proa_json_get_int(&heads, config, "medusa_num_heads", 1, PROA_MEDUSA_HEADS_MAX, err);
    if (status == PROA_OK)
        status = proa_json_get_int(&layers, config, "medusa_num_layers", 1, PROA_MEDUSA_LAYERS_MAX, err);
    proa_json_free(config);
    PROA_TRY(status);
    if (heads > h->heads || layers != h->layers)
        return PROA_FAIL(
            err, INVALID,
            "config.json says %lld heads (medusa_num_heads) of %lld layers (medusa_num_layers), the file "
            "has %d of %d",
            (long long)heads, (long long)layers, h->heads, h->layers);
    return PROA_OK;
}

/* Binds a tensor [rows, cols], or a vector [rows] with cols 0. */
static proa_status bind_tensor(proa_medusa *h, proa_param *param, const char *name, int64_t rows,
                               int64_t cols, proa_err *err)
{
    char have[64], want[64];
    const int64_t shape[] = {rows, cols};
    const proa_weights_tensor *t = proa_weights_find(h->weights, name);
    int32_t rank = cols ? 2 : 1;
    proa_shape_text(want, rank, shape);
    if (!t) return PROA_FAIL(err, INVALID, "tensor '%s' %s is missing", name, want);
    const proa_view *v = &t->source.view;
    if (v->rank != rank || v->shape[0] != rows || (cols && v->shape[1] != cols))
        return PROA_FAIL(err, INVALID, "tensor '%s' is %s, heads of this model have %s", name,
                         proa_shape_text(have, v->rank, v->shape), want);
    if (!proa_tensor_source_is_float(&t->source) || v->dtype == PROA_DTYPE_F64)
        return PROA_FAIL(err, UNSUPPORTED, "tensor '%s' is %s; f32, f16 and bf16 are supported", name,
                         proa_dtype_name(v->dtype));
    *param = (proa_param){.part = PROA_ARENA_NEW(&h->arena, proa_weight_part, 1), .parts = 1, .cap = 1};
    param->part[0] = (proa_weight_part){.source = t->source, .tensor = t};
    param->role = cols ? PROA_ROLE_MATRIX : PROA_ROLE_VECTOR;
    param->rows = rows, param->cols = cols;
    return PROA_OK;
}

static proa_status bind_head(proa_medusa *h, int32_t d, proa_err *err)
{
    char name[PROA_TENSOR_NAME_MAX];
    proa_medusa_head *head = &h->head[d];
    int64_t hidden = hidden_of(h);
    for (int32_t l = 0; l < h->layers; l++) {
        snprintf(name, sizeof name, "%d.%d.linear.weight", d, l);
        PROA_TRY(bind_tensor(h, &head->layer[l], name, hidden, hidden, err));
        snprintf(name, sizeof name, "%d.%d.linear.bias", d, l);
        PROA_TRY(bind_tensor(h, &head->bias[l], name, hidden, 0, err));
    }
    snprintf(name, sizeof name, "%d.%d.weight", d, h->layers);
    return bind_tensor(h, &head->out, name, vocab_of(h), hidden, err);
}

/* ---- memory ---- */

/* The format and the bytes of a matrix, as plan.c sets those of the model's. */
static proa_status plan_matrix(proa_medusa *h, proa_param *param, proa_weight_slot slot, proa_err *err)
{
    const proa_model *m = h->model;
    proa_weight *w = &param->matrix;
    *w = (proa_weight){.format = proa_formats_of(&m->formats, slot, param), .N = param->rows, .K = param->cols};
    w->bytes = m->ctx.ops->pack_bytes(w->format, w->N, w->K);
    if (w->bytes < 0)
        return PROA_FAIL(err, UNSUPPORTED, "Medusa heads cannot be %s here", proa_wfmt_name(w->format));
    param->bytes = proa_round_up(w->bytes, 64);
    h->weight_bytes += param->bytes;
    return PROA_OK;
}

static proa_status plan_weights(proa_medusa *h, proa_err *err)
{
    for (int32_t d = 0; d < h->heads; d++) {
        for (int32_t l = 0; l < h->layers; l++) {
            proa_param *bias = &h->head[d].bias[l];
            PROA_TRY(plan_matrix(h, &h->head[d].layer[l], PROA_SLOT_O, err));
            bias->bytes = proa_round_up(bias->rows * (int64_t)sizeof(float), 64);
            h->weight_bytes += bias->bytes;
        }
        PROA_TRY(plan_matrix(h, &h->head[d].out, PROA_SLOT_HEAD, err));
    }
    return PROA_OK;
}

/* Hands out the block's parts; with memory NULL it only counts. */
static void place_parts(proa_medusa *h, char *memory)
{
    const int64_t rows = PROA_MEDUSA_ROWS, hidden = hidden_of(h);
    int64_t at = proa_round_up(h->weight_bytes, 256);
    struct {
        void *to;
        int64_t count;
    } parts[] = {{&h->kept, 2 * h->rows_max * hidden},
                 {&h->states[0], rows * hidden},
                 {&h->states[1], rows * hidden},
                 {&h->states[2], rows * hidden},
                 {&h->logits, rows * vocab_of(h)},
                 {&h->values, rows * PROA_MEDUSA_TOP},
                 {&h->ids, h->heads * rows * PROA_MEDUSA_TOP}};
    for (size_t i = 0; i < PROA_COUNT(parts); i++) {
        char *begin = memory ? memory + at : NULL;
        memcpy(parts[i].to, &begin, sizeof begin);
        at += proa_round_up(4 * parts[i].count, 256);
    }
    h->bytes = at;
}

static proa_status prepare_heads(proa_medusa *h, const char *folder, proa_err *err)
{
    PROA_TRY(open_file(h, folder, err));
    PROA_TRY(read_counts(h, folder, err));
    h->head = PROA_ARENA_NEW(&h->arena, proa_medusa_head, h->heads);
    for (int32_t d = 0; d < h->heads; d++) PROA_TRY(bind_head(h, d, err));
    int64_t known = h->heads * (2 * (int64_t)h->layers + 1);
    if (proa_weights_count(h->weights) != known)
        return PROA_FAIL(err, INVALID, "the file has %lld tensors, %d heads have %lld",
                         (long long)proa_weights_count(h->weights), h->heads, (long long)known);
    PROA_TRY(plan_weights(h, err));
    place_parts(h, NULL);
    return PROA_OK;
}

proa_status proa_medusa_prepare(proa_medusa **out, const char *folder, proa_model *model, int64_t rows_max,
                                proa_err *err)
{
    proa_medusa *h = proa_calloc(1, sizeof *h);
    *out = NULL;
    h->model = model;
    h->rows_max = rows_max;
    proa_arena_init(&h->arena);
    proa_status status = prepare_heads(h, folder, err);
    if (status != PROA_OK) {
        proa_err_prefix(err, "Medusa heads '%s'", folder);
        return proa_medusa_free(h), status;
    }
    *out = h;
    return PROA_OK;
}

static void load_bias(proa_medusa *h, proa_param *param, char *at)
{
    float *values = proa_malloc((size_t)param->bytes);
    for (int64_t i = 0; i < param->rows; i++)
        proa_tensor_source_read(&param->part[0].source, i, 0, 1, &values[i]);
    h->model->device->upload(h->model->device, at, values, param->rows * (int64_t)sizeof *values);
    param->values = (float *)(void *)at;
    free(values);
}

static void load_matrix(proa_medusa *h, proa_param *param, char *at)
{
    proa_ctx *c = &h->model->ctx;
    param->matrix.data = at;
    c->ops->pack(c, &param->matrix, &param->part[0].source, 1);
}

proa_status proa_medusa_load(proa_medusa *h, proa_err *err)
{
    proa_device *device = h->model->device;
    char *at = h->memory = device->alloc(device, h->bytes);
    if (!at)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for Medusa heads on %s", (double)h->bytes / 1e6,
                         device->name);
    place_parts(h, at);
    h->received = PROA_ARENA_NEW(&h->arena, int32_t, h->heads * PROA_MEDUSA_ROWS * PROA_MEDUSA_TOP);
    for (int32_t d = 0; d < h->heads; d++) {
        for (int32_t l = 0; l < h->layers; l++) {
            proa_param *layer = &h->head[d].layer[l], *bias = &h->head[d].bias[l];
            load_matrix(h, layer, at);
            load_bias(h, bias, at + layer->bytes);
            at += layer->bytes + bias->bytes;
        }
        load_matrix(h, &h->head[d].out, at);
        at += h->head[d].out.bytes;
    }
    PROA_TRY(proa_weights_check(h->weights, err));
    proa_weights_detach(h->weights);
    return device->check(device, err);
}

void proa_medusa_free(proa_medusa *h)
{
    if (!h) return;
    h->model->device->free(h->model->device, h->memory, h->bytes);
    proa_weights_close(h->weights);
    proa_arena_release(&h->arena);
    free(h);
}

/* ---- running ---- */

static proa_view rows_of(float *data, int64_t rows, int64_t width)
{
    return proa_view_2d(data, PROA_DTYPE_F32, rows, width);
}

void proa_medusa_keep(proa_medusa *h, int32_t set, const int32_t *rows, int64_t count)
{
    int64_t width = hidden_of(h);
    PROA_ASSERT(count <= h->rows_max);
    proa_states_hidden(h->model, rows, count, rows_of(h->kept + set * h->rows_max * width, count, width));
}

/* The logits of head d for the states in states[0]. */
static proa_view run_head(proa_medusa *h, int32_t d, int64_t n)
{
    proa_ctx *c = &h->model->ctx;
    int64_t width = hidden_of(h);
    proa_view x = rows_of(h->states[0], n, width), logits = rows_of(h->logits, n, vocab_of(h));
    const proa_epilogue none = {0};
    for (int32_t l = 0; l < h->layers; l++) {
        proa_view y = rows_of(h->states[1 + l % 2], n, width);
        proa_epilogue e = {.act = PROA_ACT_SILU, .bias = h->head[d].bias[l].values, .residual = x};
        c->ops->linear(c, y, x, &h->head[d].layer[l].matrix, &e);
        x = y;
    }
    c->ops->linear(c, logits, x, &h->head[d].out.matrix, &none);
    return logits;
}

/* At most PROA_MEDUSA_ROWS states. */
static void top_k_of(proa_medusa *h, const int32_t *at, int64_t n, int32_t heads, int32_t k, int32_t *ids)
{
    proa_ctx *c = &h->model->ctx;
    int64_t width = hidden_of(h);
    const int32_t *rows = proa_staging_rows(h->model, at, n);
    c->ops->gather(c, rows_of(h->states[0], n, width), rows_of(h->kept, 2 * h->rows_max, width), rows);
    for (int32_t d = 0; d < heads; d++)
        c->ops->top_k(c, rows_of(h->values, n, k), h->ids + d * n * k, run_head(h, d, n), k);
    h->model->device->download(h->model->device, h->received, h->ids, heads * n * k * (int64_t)sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        for (int32_t d = 0; d < heads; d++)
            memcpy(ids + (i * heads + d) * k, h->received + (d * n + i) * k, (size_t)k * sizeof *ids);
}

void proa_medusa_top_k(proa_medusa *h, const int32_t *at, int64_t count, int32_t heads, int32_t k, int32_t *ids)
{
    PROA_ASSERT(heads <= h->heads && k <= PROA_MEDUSA_TOP);
    for (int64_t i = 0, n; i < count; i += n) {
        n = proa_min64(count - i, PROA_MEDUSA_ROWS);
        top_k_of(h, at + i, n, heads, k, ids + i * heads * k);
    }
}
