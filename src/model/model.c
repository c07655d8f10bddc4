/* SPDX-License-Identifier: Apache-2.0
 * model.c - prepares, loads and frees a model; chooses the weight format and the type of keys and values. */
#include "model/model.h"
#include "model/staging.h"
#include "model/trace.h"
#include "model/synthetic.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include <malloc.h>
#include <string.h>

static proa_status read_json(proa_json **out, const char *dir, const char *name, bool required, proa_err *err)
{
    char path[PROA_PATH_MAX];
    *out = NULL;
    PROA_TRY(proa_path_join(path, dir, name, err));
    if (!required && !proa_file_exists(path)) return PROA_OK;
    return proa_json_load(out, path, PROA_CONFIG_BYTES_MAX, err);
}

static proa_status read_config(proa_model *m, const char *path, proa_err *err)
{
    proa_json *config = NULL, *generation = NULL;
    proa_status status;
    if (!proa_dir_exists(path))
        return PROA_FAIL(err, NOT_FOUND, "cannot open model '%s': no such folder", path);
    PROA_TRY_OUT(read_json(&config, path, "config.json", true, err));
    PROA_TRY_OUT(read_json(&generation, path, "generation_config.json", false, err));
    status = proa_arch_configure(&m->arch, &m->config, config, generation, &m->arena, err);
    if (status != PROA_OK) proa_err_prefix(err, "%s/config.json", path);
out:
    proa_json_free(config);
    proa_json_free(generation);
    return status;
}

static proa_status synthetic_config(proa_model *m, const char *path, proa_err *err)
{
    const char *text;
    proa_json *config = NULL;
    PROA_TRY(proa_synthetic_config(&text, path, err));
    PROA_TRY(proa_json_parse(&config, proa_str_c(text), path, err));
    proa_status status = proa_arch_configure(&m->arch, &m->config, config, NULL, &m->arena, err);
    proa_json_free(config);
    return status;
}

/* The dtype of the checkpoint's first matrix. */
static proa_dtype checkpoint_dtype(const proa_model *m)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_params *p = &m->params[s];
        const proa_param *qkv = p->layers ? proa_params_at(p, 0, PROA_SLOT_QKV) : NULL;
        if (qkv && qkv->parts) return qkv->part[0].dtype;
    }
    return PROA_DTYPE_F32;
}

/* The KV type of "auto" on a GPU: the 16-bit type in which the weights are multiplied (quantised ones: f16), else
 * f32. */
static proa_dtype device_kv_dtype(proa_wfmt format)
{
    if (proa_wfmt_is_quantised(format)) return PROA_DTYPE_F16;
    return format == PROA_WFMT_F16    ? PROA_DTYPE_F16
           : format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16
                                      : PROA_DTYPE_F32;
}

static proa_status choose_dtype(proa_model *m, proa_str dtype, proa_err *err)
{
    bool dot = m->device->host && proa_cpu_bf16_dot_pays();
    m->kv_dtype = PROA_DTYPE_F32;
    if (proa_str_is(dtype, "auto"))
        m->format = m->checkpoint == PROA_DTYPE_BF16  ? PROA_WFMT_BF16
                    : m->checkpoint == PROA_DTYPE_F16 ? PROA_WFMT_F16
                                                      : PROA_WFMT_F32;
    else if (proa_str_is(dtype, "f32")) m->format = PROA_WFMT_F32;
    else if (proa_str_is(dtype, "f16")) m->format = PROA_WFMT_F16, m->kv_dtype = PROA_DTYPE_F16;
    else if (proa_str_is(dtype, "bf16"))
        m->format = dot ? PROA_WFMT_BF16DOT : PROA_WFMT_BF16, m->kv_dtype = PROA_DTYPE_BF16;
    else
        return PROA_FAIL(err, INVALID, "dtype '%.*s' is not one of auto, f32, bf16, f16", (int)dtype.len,
                         dtype.ptr);
    return PROA_OK;
}

static proa_status choose_quant(proa_model *m, proa_str quant, proa_err *err)
{
    bool fp8 = proa_str_is(quant, "fp8"), int4 = proa_str_is(quant, "int4");
    if (proa_str_is(quant, "none")) return PROA_OK;
    if (proa_str_is(quant, "int8")) m->format = m->device->host ? PROA_WFMT_I8 : PROA_WFMT_I8W;
    else if (!fp8 && !int4)
        return PROA_FAIL(err, INVALID, "quant '%.*s' is not one of none, int8, fp8, int4", (int)quant.len,
                         quant.ptr);
    else if (m->device->host)
        return PROA_FAIL(err, UNSUPPORTED, "quant '%.*s' is made on a GPU only (--device cuda); the CPU has int8",
                         (int)quant.len, quant.ptr);
    else m->format = fp8 ? PROA_WFMT_FP8 : PROA_WFMT_I4;
    return PROA_OK;
}

static proa_status choose_kv_dtype(proa_model *m, proa_str name, proa_err *err)
{
    proa_dtype dtype;
    if (proa_str_is(name, "auto")) {
        if (!m->device->host) m->kv_dtype = device_kv_dtype(m->format);
        return PROA_OK;
    }
    if (!proa_dtype_find(name, &dtype) || !proa_dtype_floating(dtype) || dtype == PROA_DTYPE_F64)
        return PROA_FAIL(err, INVALID, "kv-dtype '%.*s' is not one of auto, f32, bf16, f16, fp8",
                         (int)name.len, name.ptr);
    if (m->device->host && dtype == PROA_DTYPE_FP8)
        return PROA_FAIL(err, UNSUPPORTED, "kv-dtype 'fp8' is offered on a GPU only (--device cuda)");
    m->kv_dtype = dtype;
    return PROA_OK;
}

static proa_status choose_format(proa_model *m, const proa_model_options *o, proa_err *err)
{
    m->checkpoint = checkpoint_dtype(m);
    PROA_TRY(choose_dtype(m, proa_str_c(o->dtype ? o->dtype : "auto"), err));
    PROA_TRY(choose_quant(m, proa_str_c(o->quant ? o->quant : "none"), err));
    return choose_kv_dtype(m, proa_str_c(o->kv_dtype ? o->kv_dtype : "auto"), err);
}

static proa_status prepare(proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    int64_t rows = o->rows_max, device_head_rows = m->device->host ? 0 : o->device_head_rows;
    bool synthetic = proa_synthetic_is(path);
    PROA_TRY(synthetic ? synthetic_config(m, path, err) : read_config(m, path, err));
    if (synthetic && !m->device->random)
        return PROA_FAIL(err, UNSUPPORTED, "'%s': random weights are made on a GPU only (--device cuda)", path);
    if (!synthetic) PROA_TRY(proa_weights_open(&m->weights, path, err));
    proa_status status = proa_bind(m->params, m->arch, &m->config, m->weights, &m->arena, err);
    if (status != PROA_OK) return proa_err_prefix(err, "%s", path), status;
    PROA_TRY(choose_format(m, o, err));
    /* An encoder sees its whole input at once. */
    if (m->arch->kind != PROA_KIND_DECODER)
        rows = proa_max64(rows, proa_min64(m->config.context, PROA_STEP_TOKENS_MAX));
    m->kv_layers = m->config.layers ? (int32_t)m->config.layers : 1;
    m->plan = (proa_plan){.rows_max = rows, .head_rows = o->head_rows};
    m->plan.device_head_rows = proa_max64(device_head_rows, o->head_rows);
    m->plan.sampled_rows = proa_min64(rows, proa_max64(o->sampled_rows, o->head_rows));
    m->own_tables = !m->device->host || o->detach;
    return proa_plan_make(&m->plan, m->params, m->arch, &m->config, m->ctx.ops, m->format, m->own_tables, err);
}

proa_status proa_model_prepare(proa_model **out, const char *path, const proa_model_options *options,
                               proa_device *device, proa_pool *pool, proa_err *err)
{
    proa_model *m = proa_calloc(1, sizeof *m);
    m->encoder_ticket = -1;
    *out = NULL;
    proa_arena_init(&m->arena);
    m->device = device;
    m->ctx = (proa_ctx){.pool = pool, .ops = device->ops, .device = device};
    m->host = (proa_ctx){.pool = pool, .ops = proa_ops_cpu(proa_isa_choose())};
    proa_status status = prepare(m, path, options, err);
    if (status != PROA_OK) return proa_model_free(m), status;
    *out = m;
    return PROA_OK;
}

static int64_t inv_freq_bytes(const proa_model *m)
{
    return proa_max64(1, m->config.rotary_dim / 2) * (int64_t)sizeof(float);
}

static int64_t alibi_bytes(const proa_model *m)
{
    return m->config.heads * (int64_t)sizeof(float);
}

void proa_model_free(proa_model *m)
{
    if (!m) return;
    proa_device *d = m->device;
    proa_staging_free(m);
    proa_step_trace_close(m->trace);
    proa_ctx_release(&m->host);
    d->free(d, m->weight_memory, m->plan.weight_bytes);
    d->free(d, m->activations, m->plan.activation_bytes);
    d->free(d, m->inv_freq, inv_freq_bytes(m));
    d->free(d, m->alibi, alibi_bytes(m));
    proa_weights_close(m->weights);
    proa_arena_release(&m->arena);
    free(m);
}

/* Converts vectors and small tables to f32, one part after the other. */
static void load_values(proa_model *m, proa_param *param)
{
    proa_device *d = m->device;
    float *here = d->host ? param->values : proa_malloc((size_t)param->bytes), *dst = here;
    for (int i = 0; i < param->parts; i++) {
        int64_t n = proa_view_count(param->part[i]);
        proa_to_f32(dst, param->part[i].data, param->part[i].dtype, n);
        for (int64_t k = 0; k < n && param->plus != 0.0f; k++) dst[k] += param->plus;
        dst += n;
    }
    if (d->host) return;
    d->upload(d, param->values, here, (dst - here) * (int64_t)sizeof *here);
    free(here);
}

/* Copies an embedding table as it is to the model's memory (on the host only if the files will be unmapped). */
static void load_table(proa_model *m, proa_param *param, char *at)
{
    proa_view *table = &param->part[0];
    m->device->upload(m->device, at, table->data, proa_view_count(*table) * proa_dtype_bytes(table->dtype));
    table->data = at;
}

/* Random values that keep sums in range: matrices around 0, vectors around 1. */
static void random_param(proa_model *m, proa_param *param, char *at)
{
    proa_device *d = m->device;
    uint64_t seed = (uint64_t)(at - m->weight_memory) + 1;
    if (param->role == PROA_ROLE_TABLE) {
        d->random(d, at, param->part[0].dtype, proa_view_count(param->part[0]), 0, 0.05F, seed);
        param->part[0].data = at;
    } else if (param->role == PROA_ROLE_VECTOR || param->role == PROA_ROLE_F32) {
        param->values = (float *)(void *)at;
        d->random(d, at, PROA_DTYPE_F32, param->bytes / 4, 1, 0.1F, seed);
    } else {
        param->matrix.data = at;
        d->random_weight(d, &param->matrix, 0.05F, seed);
    }
}

static void load_param(proa_model *m, proa_param *param, char **at)
{
    if (!param->parts || (param->role == PROA_ROLE_TABLE && (!m->own_tables || param->shared))) return;
    if (!m->weights) {
        random_param(m, param, *at);
    } else if (param->role == PROA_ROLE_TABLE) {
        load_table(m, param, *at);
    } else if (param->role == PROA_ROLE_VECTOR || param->role == PROA_ROLE_F32) {
        param->values = (float *)(void *)*at;
        load_values(m, param);
    } else {
        param->matrix.data = *at;
        m->ctx.ops->pack(&m->ctx, &param->matrix, param->part, param->parts);
    }
    for (int i = 0; i < param->parts && m->weights; i++) proa_weights_drop(m->weights, param->tensor[i]);
    *at += param->bytes;
}

/* A table that both stacks use is in memory once. */
static void share_tables(proa_model *m)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        proa_params *p = &m->params[s];
        const proa_params *other = &m->params[!s];
        for (int slot = 0; slot < PROA_SLOT_COUNT; slot++) {
            proa_param *param = proa_params_at(p, p->layers, (proa_weight_slot)slot);
            if (param->shared)
                param->part[0] = proa_params_at(other, other->layers, (proa_weight_slot)slot)->part[0];
        }
    }
}

static void load_weights(proa_model *m, proa_progress_fn *progress, void *arg)
{
    char *at = m->weight_memory;
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        proa_params *p = &m->params[s];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++) {
            load_param(m, &p->param[i], &at);
            if (progress && i % PROA_SLOT_COUNT == 0)
                progress(arg, "loading weights", (double)(at - m->weight_memory) / (double)m->plan.weight_bytes);
        }
    }
    share_tables(m);
    if (progress) progress(arg, "loading weights", 1);
}

proa_ctx_need proa_model_need(const proa_model *m)
{
    const proa_config *c = &m->config;
    proa_ctx_need need = {.rows = m->plan.rows_max, .heads = c->heads, .head_dim = c->head_dim};
    need.inputs = proa_max64(proa_max64(c->hidden, c->ffn), c->heads * c->head_dim);
    need.columns = m->plan.width[PROA_REG_OUT];
    return need;
}

/* Makes every page resident now, so that the first request is not slower and the memory plan is what is really
 * taken. */
static void touch_range(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    volatile char *memory = arg;
    for (int64_t i = begin; i < end; i++) memory[i * 4096] = 0;
}

void proa_model_touch(proa_pool *pool, void *memory, int64_t bytes)
{
    proa_pool_run(pool, proa_ceil_div(bytes, 4096), 512, touch_range, memory);
}

static void load_positions(proa_model *m)
{
    const proa_config *c = &m->config;
    float *values = proa_malloc((size_t)proa_max64(inv_freq_bytes(m), alibi_bytes(m)));
    proa_config_inv_freq(c, values);
    m->device->upload(m->device, m->inv_freq, values, c->rotary_dim / 2 * (int64_t)sizeof *values);
    proa_config_alibi(c, values);
    m->device->upload(m->device, m->alibi, values, alibi_bytes(m));
    free(values);
}

proa_status proa_model_load(proa_model *m, proa_progress_fn *progress, void *arg, proa_err *err)
{
    const proa_plan *p = &m->plan;
    proa_device *d = m->device;
    proa_ctx_need need = proa_model_need(m);
    m->weight_memory = d->alloc(d, p->weight_bytes);
    m->activations = d->alloc(d, p->activation_bytes);
    m->inv_freq = d->alloc(d, inv_freq_bytes(m));
    m->alibi = d->alloc(d, alibi_bytes(m));
    if (!m->weight_memory || !m->activations || !m->inv_freq || !m->alibi)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for weights and %.1f MB for activations on %s",
                         (double)p->weight_bytes / 1e6, (double)p->activation_bytes / 1e6, d->name);
    PROA_TRY(proa_ctx_init(&m->host, m->host.ops, m->host.pool, &need, err));
    if (d->host) {
        m->trace = proa_step_trace_open();
        m->ctx = m->host;
        m->ctx.device = d;
        proa_model_touch(m->ctx.pool, m->activations, p->activation_bytes);
        proa_model_touch(m->ctx.pool, m->ctx.scratch, m->ctx.scratch_bytes);
    }
    PROA_TRY(proa_staging_make(m, err));
    load_positions(m);
    load_weights(m, progress, arg);
    if (m->weights) PROA_TRY(proa_weights_check(m->weights, err));
    if (m->weights && m->own_tables) proa_weights_detach(m->weights);
    malloc_trim(0); /* returns what reading the header has freed */
    return d->check(d, err);
}

bool proa_model_has_pool(const proa_model *m)
{
    const proa_params *p = &m->params[PROA_STACK_ENCODER];
    return m->arch->pool && proa_params_at(p, p->layers, PROA_SLOT_POOL)->parts;
}
