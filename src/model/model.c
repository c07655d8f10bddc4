/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

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

/* What the checkpoint is made of: its first matrix. */
static proa_dtype checkpoint_dtype(const proa_model *m)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_params *p = &m->params[s];
        const proa_param *qkv = p->layers ? proa_params_at(p, 0, PROA_SLOT_QKV) : NULL;
        if (qkv && qkv->parts) return qkv->part[0].dtype;
    }
    return PROA_DTYPE_F32;
}

static proa_status choose_format(proa_model *m, const proa_model_options *o, proa_err *err)
{
    proa_str dtype = proa_str_c(o->dtype ? o->dtype : "auto"), quant = proa_str_c(o->quant ? o->quant : "none");
    m->checkpoint = checkpoint_dtype(m);
    m->kv_dtype = PROA_DTYPE_F32;
    if (proa_str_is(dtype, "auto"))
        m->format = m->checkpoint == PROA_DTYPE_BF16  ? PROA_WFMT_BF16
                    : m->checkpoint == PROA_DTYPE_F16 ? PROA_WFMT_F16
                                                      : PROA_WFMT_F32;
    else if (proa_str_is(dtype, "f32")) m->format = PROA_WFMT_F32;
    else if (proa_str_is(dtype, "f16")) m->format = PROA_WFMT_F16, m->kv_dtype = PROA_DTYPE_F16;
    else if (proa_str_is(dtype, "bf16"))
        m->format = proa_cpu_bf16_dot_pays() ? PROA_WFMT_BF16DOT : PROA_WFMT_BF16, m->kv_dtype = PROA_DTYPE_BF16;
    else
        return PROA_FAIL(err, INVALID, "dtype '%.*s' is not one of auto, f32, bf16, f16", (int)dtype.len,
                         dtype.ptr);
    if (proa_str_is(quant, "int8")) m->format = PROA_WFMT_I8;
    else if (!proa_str_is(quant, "none"))
        return PROA_FAIL(err, INVALID, "quant '%.*s' is not one of none, int8", (int)quant.len, quant.ptr);
    return PROA_OK;
}

static proa_status prepare(proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    int64_t rows = o->rows_max;
    PROA_TRY(read_config(m, path, err));
    PROA_TRY(proa_weights_open(&m->weights, path, err));
    proa_status status = proa_bind(m->params, m->arch, &m->config, m->weights, &m->arena, err);
    if (status != PROA_OK) return proa_err_prefix(err, "%s", path), status;
    PROA_TRY(choose_format(m, o, err));
    /* An encoder sees its whole input at once. */
    if (m->arch->kind != PROA_KIND_DECODER)
        rows = proa_max64(rows, proa_min64(m->config.context, PROA_STEP_TOKENS_MAX));
    m->kv_layers = m->config.layers ? (int32_t)m->config.layers : 1;
    return proa_plan_make(&m->plan, m->params, m->arch, &m->config, m->ctx.ops, m->format, rows, o->head_rows,
                          err);
}

proa_status proa_model_prepare(proa_model **out, const char *path, const proa_model_options *options,
                               proa_pool *pool, proa_err *err)
{
    proa_model *m = proa_calloc(1, sizeof *m);
    *out = NULL;
    proa_arena_init(&m->arena);
    m->ctx.pool = pool;
    m->ctx.ops = proa_ops_cpu(proa_isa_choose());
    proa_status status = prepare(m, path, options, err);
    if (status != PROA_OK) return proa_model_free(m), status;
    *out = m;
    return PROA_OK;
}

void proa_model_free(proa_model *m)
{
    if (!m) return;
    proa_ctx_release(&m->ctx);
    if (m->weight_memory) proa_pages_free(m->weight_memory, m->plan.weight_bytes);
    if (m->activations) proa_pages_free(m->activations, m->plan.activation_bytes);
    free(m->inv_freq);
    proa_weights_close(m->weights);
    proa_arena_release(&m->arena);
    free(m);
}

/* Copies vectors and small tables to f32, parts behind each other. */
static void load_values(proa_param *param)
{
    float *dst = param->values;
    for (int i = 0; i < param->parts; i++) {
        int64_t n = proa_view_count(param->part[i]);
        proa_to_f32(dst, param->part[i].data, param->part[i].dtype, n);
        dst += n;
    }
}

static void load_param(proa_model *m, proa_param *param, char **at)
{
    if (!param->parts || param->role == PROA_ROLE_TABLE) return;
    if (param->role == PROA_ROLE_VECTOR || param->role == PROA_ROLE_F32) {
        param->values = (float *)(void *)*at;
        load_values(param);
    } else {
        param->matrix.data = *at;
        m->ctx.ops->pack(&m->ctx, &param->matrix, param->part, param->parts);
    }
    for (int i = 0; i < param->parts; i++) proa_weights_drop(m->weights, param->tensor[i]);
    *at += param->bytes;
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

/* Touches every page now: the first request is not slower than the others, and what is planned is what is taken. */
static void touch(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    volatile char *memory = arg;
    for (int64_t i = begin; i < end; i++) memory[i * 4096] = 0;
}

void proa_model_touch(proa_pool *pool, void *memory, int64_t bytes)
{
    proa_pool_run(pool, proa_ceil_div(bytes, 4096), 512, touch, memory);
}

proa_status proa_model_load(proa_model *m, proa_progress_fn *progress, void *arg, proa_err *err)
{
    const proa_config *c = &m->config;
    const proa_plan *p = &m->plan;
    proa_ctx_need need = proa_model_need(m);
    m->weight_memory = proa_pages_alloc(p->weight_bytes);
    m->activations = proa_pages_alloc(p->activation_bytes);
    if (!m->weight_memory || !m->activations)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for weights and %.1f MB for activations",
                         (double)p->weight_bytes / 1e6, (double)p->activation_bytes / 1e6);
    PROA_TRY(proa_ctx_init(&m->ctx, m->ctx.ops, m->ctx.pool, &need, err));
    proa_model_touch(m->ctx.pool, m->activations, p->activation_bytes);
    proa_model_touch(m->ctx.pool, m->ctx.scratch, m->ctx.scratch_bytes);
    m->inv_freq = proa_calloc((size_t)c->rotary_dim / 2, sizeof *m->inv_freq);
    proa_config_inv_freq(c, m->inv_freq);
    load_weights(m, progress, arg);
    malloc_trim(0); /* what reading the header left behind */
    return PROA_OK;
}

bool proa_model_has_pool(const proa_model *m)
{
    const proa_params *p = &m->params[PROA_STACK_ENCODER];
    return m->arch->pool && proa_params_at(p, p->layers, PROA_SLOT_POOL)->parts;
}
