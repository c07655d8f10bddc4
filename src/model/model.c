/* SPDX-License-Identifier: Apache-2.0
 * model.c - prepares, loads and frees a model; chooses the weight format and the type of keys and values. */
#include "model/model.h"
#include "model/lora/lora.h"
#include "model/packed.h"
#include "model/ranks/ranks.h"
#include "model/relative.h"
#include "model/ranks/repack.h"
#include "model/ranks/shard.h"
#include "model/ranks/stage.h"
#include "model/ranks/states.h"
#include "model/run.h"
#include "model/staging/staging.h"
#include "model/trace.h"
#include "model/synthetic.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/file.h"
#include <malloc.h>
#include <math.h>
#include <string.h>

/* Whether the folder is an embedder of sentence-transformers. If its modules begin with a masked language model
 * (SPLADE), that keeps its head. */
static bool is_embedder(const proa_files *files)
{
    proa_err unread;
    proa_json *modules = NULL;
    proa_str type = {"", 0};
    if (!proa_files_has(files, "modules.json")) return false;
    if (proa_files_json(&modules, files, "modules.json", PROA_CONFIG_BYTES_MAX, &unread) == PROA_OK)
        type = proa_json_str(proa_json_get(proa_json_at(modules, 0), "type"));
    bool masked = proa_str_ends(type, proa_str_c("MLMTransformer"));
    proa_json_free(modules);
    return !masked;
}

static proa_status configure_model(proa_model *m, const proa_files *files, proa_err *err)
{
    char name[PROA_PATH_MAX];
    proa_json *config = NULL, *generation = NULL;
    proa_status status;
    PROA_TRY_OUT(proa_files_json(&config, files, "config.json", PROA_CONFIG_BYTES_MAX, err));
    if (proa_files_has(files, "generation_config.json"))
        PROA_TRY_OUT(proa_files_json(&generation, files, "generation_config.json", PROA_CONFIG_BYTES_MAX, err));
    if (!m->arch) PROA_TRY_OUT(proa_arch_find(&m->arch, config, err));
    m->arch = proa_arch_in_folder(m->arch, is_embedder(files));
    status = proa_arch_configure_as(m->arch, &m->config, config, generation, &m->arena, err);
    if (status != PROA_OK) proa_err_prefix(err, "%s", proa_files_name(name, files, "config.json"));
out:
    proa_json_free(config);
    proa_json_free(generation);
    return status;
}

/* Reads the configuration and opens the weights. A folder's own config.json is read first: it has the plainer errors.
 * Other checkpoints bring their configuration with the weights. */
static proa_status read_checkpoint(proa_model *m, const char *path, proa_err *err)
{
    proa_files folder = proa_files_of(path);
    bool own = proa_dir_exists(path) &&
               (proa_files_has(&folder, "config.json") || !proa_weights_in_folder(path));
    if (!proa_dir_exists(path) && !proa_file_exists(path))
        return PROA_FAIL(err, NOT_FOUND, "cannot open model '%s': no such folder or file", path);
    if (own && !proa_files_has(&folder, "config.json"))
        return PROA_FAIL(err, NOT_FOUND, "'%s' is no model: it has neither config.json nor weights", path);
    if (own) PROA_TRY(configure_model(m, &folder, err));
    PROA_TRY(proa_weights_open_rank(&m->weights, path, m->plan.part.tensor, err));
    return own ? PROA_OK : configure_model(m, proa_weights_files(m->weights), err);
}

bool proa_model_in_folder(const char *dir)
{
    proa_files folder = proa_files_of(dir);
    return proa_files_has(&folder, "config.json") || proa_weights_in_folder(dir);
}

int32_t proa_model_ranks(const char *path)
{
    return proa_dir_exists(path) ? proa_weights_ranks(path) : 1;
}

const proa_files *proa_model_files(const proa_model *m)
{
    static const proa_files none;
    return m->weights ? proa_weights_files(m->weights) : &none;
}

/* The codes of a synthetic model's matrices. */
static proa_status synthetic_codes(proa_config *c, const proa_json *quant, proa_err *err)
{
    proa_str method = {"gptq", 4};
    PROA_TRY(proa_json_get_str(&method, quant, "quant_method", err));
    PROA_TRY(proa_json_get_int(&c->code_bits, quant, "bits", 4, 8, err));
    c->code_e4m3 = proa_str_is(method, "fp8");
    return proa_json_get_int(&c->code_group, quant, "group_size", 32, 1024, err);
}

static proa_status synthetic_config(proa_model *m, const char *path, proa_err *err)
{
    const char *text;
    proa_json *config = NULL;
    PROA_TRY(proa_synthetic_config(&text, path, err));
    PROA_TRY(proa_json_parse(&config, proa_str_c(text), path, err));
    const proa_json *quant = proa_json_get(config, "quantization_config");
    proa_status status = proa_arch_configure(&m->arch, &m->config, config, NULL, &m->arena, err);
    if (status == PROA_OK && quant) status = synthetic_codes(&m->config, quant, err);
    proa_json_free(config);
    return status;
}

/* A draft head alone has nothing to read. */
static proa_status check_target(const proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    if (!m->arch->of_target || o->arch) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' holds draft heads (%s), which need a model (option 'draft-model')",
                     path, m->arch->name);
}

/* Whether the file has the weights of this rank, byte for byte. */
static bool is_packed_for_rank(const proa_model *m, const proa_model_options *o)
{
    const proa_rank_part *part = &m->plan.part;
    bool other = part->tensors > 1 && (o->whole_sums || (o->whole_experts && m->config.experts > 0));
    return m->packed->ranks == part->tensors && m->packed->rank == part->tensor && !other;
}

/* A file of several is found by its rank, and cannot be read without the others. */
static proa_status check_packed_rank(const proa_model *m, const char *path, const proa_model_options *o,
                                     proa_err *err)
{
    const proa_packed_file *packed = m->packed;
    const proa_rank_part *part = &m->plan.part;
    bool alone = packed->ranks > 1 && !proa_dir_exists(path);
    if (is_packed_for_rank(m, o) || (!alone && !o->packed_part)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'%s' is rank %d of %d of a packed model, not rank %d of %d: run its folder",
                     path, packed->rank, packed->ranks, part->tensor, part->tensors);
}

/* The part of this rank, if there are several. */
static proa_status take_part(proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    const proa_rank_part *part = &m->plan.part;
    const proa_sharding how = {.rank = part->tensor,
                               .ranks = part->tensors,
                               .whole_experts = o->whole_experts,
                               .shares = o->whole_sums ? &m->plan.shares : NULL,
                               .arena = &m->arena};
    if (m->packed) PROA_TRY(check_packed_rank(m, path, o, err));
    proa_status status = proa_stage_cut(&m->plan, m->params, m->arch, &m->config, err);
    if (status == PROA_OK && part->tensors > 1)
        status = proa_shard(m->params, m->arch, &m->config, &how, err);
    if (status != PROA_OK) proa_err_prefix(err, "%s", path);
    return status;
}

/* Weights in their slots, their formats, and of these what this rank has. */
static proa_status bind_model(proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    proa_status status = proa_bind(m->params, m->arch, &m->config, m->weights, &m->arena, err);
    if (status != PROA_OK) return proa_err_prefix(err, "%s", path), status;
    const proa_format_options formats = {o->dtype, o->quant, o->kv_dtype};
    m->packed = m->weights ? proa_weights_packed(m->weights) : NULL;
    if (m->packed) PROA_TRY(proa_packed_formats(m, path, o, err));
    else PROA_TRY(proa_formats_choose(&m->formats, m->params, m->device, &formats, err));
    m->plan.parameters = proa_plan_parameters(m->params, m->arch, &m->config);
    m->lora = (proa_lora_store){.slots = o->lora_slots, .rank = o->lora_rank, .type = o->lora_type};
    PROA_TRY(proa_lora_plan(m, err));
    const proa_params *encoder = &m->params[PROA_STACK_ENCODER];
    m->pooled = m->arch->pool && proa_params_at(encoder, encoder->layers, PROA_SLOT_POOL)->parts;
    return take_part(m, path, o, err);
}

/* A decoder that embeds or classifies knows long contexts, and a pass has the whole input: its activations are planned
 * for more than the usual inputs only if a step is chosen to be so long. */
static void limit_embedder(proa_model *m, const proa_model_options *o)
{
    if (m->arch->kind != PROA_KIND_ENCODER || !m->arch->stacks[PROA_STACK_ENCODER].causal) return;
    m->config.context = proa_min64(m->config.context, proa_max64(PROA_EMBED_TOKENS, o->rows_max));
}

static int64_t rows_of_pass(const proa_model *m, const proa_model_options *o)
{
    int64_t rows = o->rows_max;
    if (m->arch->kind == PROA_KIND_ENCODER) rows = proa_max64(rows, o->encoder_rows);
    /* An encoder sees its whole input at once. */
    if (m->arch->kind != PROA_KIND_DECODER)
        rows = proa_max64(rows, proa_min64(proa_config_input_context(&m->config), PROA_STEP_TOKENS_MAX));
    /* Beside the other rows of a step, a prompt's prefix does too. */
    if (m->config.prefix_end >= 0) rows += proa_min64(m->config.context, PROA_STEP_TOKENS_MAX);
    return rows;
}

/* Latent keys are values too (steps/attention.c, self_pages). An encoder has scratch pages, whatever its stacks. */
static int32_t count_kv_layers(const proa_config *c, proa_kind kind, proa_layer_range layers)
{
    bool decodes = c->layers && kind != PROA_KIND_ENCODER;
    int32_t count = decodes ? (int32_t)proa_config_kv_layers(c, layers.first, layers.end, false) : 1;
    return c->kv_lora > 0 ? (count + 1) / 2 : count;
}

/* Pages, and slots of recurrent states, hold as many layers in all stages: the most that one has of a kind. So rank 0,
 * whose stage may have none of them, plans their memory. */
static void count_layers(proa_model *m)
{
    int32_t stages = m->plan.part.stages, other = 0;
    int64_t all = m->config.layers ? m->config.layers : m->config.encoder_layers;
    for (int32_t i = 0; i < stages; i++) {
        proa_layer_range layers = proa_stage_layers(&m->config, m->config.layers, i, stages);
        m->kv_layers = (int32_t)proa_max64(m->kv_layers, count_kv_layers(&m->config, m->arch->kind, layers));
        int64_t picking = proa_config_picking(&m->config, layers.first, layers.end);
        other = (int32_t)proa_max64(other, proa_config_kv_layers(&m->config, layers.first, layers.end, true));
        other = (int32_t)proa_max64(other, (picking + 1) / 2); /* two layers' keys of the indexer, as latent keys */
        layers = proa_stage_layers(&m->config, all, i, stages);
        int64_t recurring = proa_config_recurring(&m->config, layers.first, layers.end);
        m->recurring = (int32_t)proa_max64(m->recurring, recurring);
    }
    m->other_kv_layers = other, m->kv_layers += other;
}

static proa_status prepare_model(proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    bool synthetic = proa_synthetic_is(path);
    m->arch = o->arch;
    PROA_TRY(synthetic ? synthetic_config(m, path, err) : read_checkpoint(m, path, err));
    PROA_TRY(check_target(m, path, o, err));
    if (synthetic && !m->device->random)
        return PROA_FAIL(err, UNSUPPORTED, "'%s': random weights are made on a GPU only (--device cuda)", path);
    PROA_TRY(bind_model(m, path, o, err));
    proa_plan *p = &m->plan;
    count_layers(m);
    limit_embedder(m, o);
    p->rows_max = rows_of_pass(m, o), p->head_rows = o->head_rows;
    p->device_head_rows = proa_max64(m->device->host ? 0 : o->device_head_rows, o->head_rows);
    p->sampled_rows = proa_min64(p->rows_max, proa_max64(o->sampled_rows, o->head_rows));
    m->detach = o->detach;
    m->own_tables = !m->device->host || o->detach || m->packed;
    const proa_plan_of of = {.arch = m->arch,
                             .config = &m->config,
                             .ops = m->ctx.ops,
                             .formats = &m->formats,
                             .own_tables = m->own_tables};
    PROA_TRY(proa_plan_make(p, m->params, &of, err));
    proa_lora_plan_part(m);
    if (!m->packed) return PROA_OK;
    return is_packed_for_rank(m, o) ? proa_packed_check(m, path, err) : proa_repack_open(m, path, o, err);
}

static proa_rank_part part_of(int32_t rank, int32_t ranks, int32_t stages)
{
    if (ranks == 1) stages = 1; /* a draft model, which is not divided */
    int32_t tensors = ranks / stages;
    PROA_ASSERT(ranks % stages == 0);
    return (proa_rank_part){rank % tensors, tensors, rank / tensors, stages};
}

proa_status proa_model_prepare(proa_model **out, const char *path, const proa_model_options *options,
                               proa_device *device, proa_pool *pool, proa_err *err)
{
    static _Atomic int32_t models;
    proa_model *m = proa_calloc(1, sizeof *m);
    m->encoder_ticket = -1;
    m->number = ++models;
    *out = NULL;
    proa_arena_init(&m->arena);
    m->path = proa_arena_printf(&m->arena, "%s", path);
    m->device = device;
    m->rank = options->rank, m->ranks = options->ranks > 1 ? options->ranks : 1;
    m->plan.part = part_of(m->rank, m->ranks, options->stages > 1 ? options->stages : 1);
    m->ctx = (proa_ctx){.pool = pool, .ops = device->ops, .device = device};
    m->host = (proa_ctx){.pool = pool, .ops = proa_ops_cpu(proa_isa_choose())};
    proa_status status = prepare_model(m, path, options, err);
    if (status != PROA_OK) return proa_model_free(m), status;
    *out = m;
    return PROA_OK;
}

static int64_t inv_freq_bytes(const proa_model *m)
{
    int64_t r = proa_config_rotary_dim(&m->config, false) / 2 + m->config.rotary_dim / 2;
    return proa_max64(1, 2 * r) * (int64_t)sizeof(float);
}

static int64_t alibi_bytes(const proa_model *m)
{
    return proa_max64(1, m->config.heads) * (int64_t)sizeof(float);
}

static int64_t relative_bytes(const proa_model *m)
{
    int64_t distances = m->config.relative.used ? 2 * proa_relative_reach(&m->config) + 1 : 1;
    return distances * (int64_t)sizeof(int32_t);
}

/* A stage of a pipeline may have no weights: all of its layers are empty. */
static int64_t weight_memory_bytes(const proa_model *m)
{
    return proa_max64(m->plan.weight_bytes, 1);
}

void proa_model_free(proa_model *m)
{
    if (!m) return;
    proa_device *d = m->device;
    proa_ranks_free(m);
    proa_comm_close(m->comm);
    proa_comm_close(m->pipe);
    proa_stage_free(m);
    proa_states_free(m);
    proa_staging_free(m);
    proa_step_trace_close(m->trace);
    proa_ctx_release(&m->host);
    if (!m->mapped) d->free(d, m->weight_memory, weight_memory_bytes(m));
    d->free(d, m->activations, m->plan.activation_bytes);
    d->free(d, m->inv_freq, inv_freq_bytes(m));
    d->free(d, m->alibi, alibi_bytes(m));
    d->free(d, m->relative_row, relative_bytes(m));
    proa_lora_free(m);
    proa_relative_end(m);
    proa_repack_close(m->parts);
    proa_weights_close(m->weights);
    proa_arena_release(&m->arena);
    free(m);
}

/* ---- loading one weight ---- */

/* The factor of rows that are divided by their norm (torch.nn.functional.normalize). */
static void find_norms(proa_model *m, proa_weight_part *part)
{
    const proa_view *v = &part->source.view;
    float *factor = PROA_ARENA_NEW(&m->arena, float, v->shape[0]);
    float *row = proa_malloc((size_t)proa_max64(v->shape[1], 1) * sizeof *row);
    for (int64_t i = 0; i < v->shape[0]; i++) {
        double sum = 0;
        proa_tensor_source_read(&part->source, i, 0, v->shape[1], row);
        for (int64_t k = 0; k < v->shape[1]; k++) sum += (double)row[k] * (double)row[k];
        factor[i] = (float)(1 / fmax(sqrt(sum), 1e-12));
    }
    part->source.factor = factor;
    free(row);
}

/* Converts vectors and small tables to f32, one part after the other. */
static void load_values(proa_model *m, proa_param *param)
{
    proa_device *d = m->device;
    float *values = d->host ? param->values : proa_malloc((size_t)param->bytes), *to = values;
    for (int i = 0; i < param->parts; i++) {
        const proa_tensor_source *s = &param->part[i].source;
        int64_t rows = proa_tensor_source_rows(s), cols = proa_tensor_source_cols(s);
        for (int64_t row = 0; row < rows; row++, to += cols) proa_tensor_source_read(s, row, 0, cols, to);
    }
    if (d->host) return;
    d->upload(d, param->values, values, (to - values) * (int64_t)sizeof *values);
    free(values);
}

/* An encoded embedding table is decoded to the type of param->table. */
static void decode_table(proa_model *m, proa_param *param)
{
    const proa_tensor_source *s = &param->part[0].source;
    proa_view *table = &param->table;
    int64_t cols = proa_tensor_source_cols(s), bytes = cols * proa_dtype_bytes(table->dtype);
    float *row = proa_malloc((size_t)proa_max64(cols, 1) * sizeof *row);
    char *narrow = proa_malloc((size_t)proa_max64(bytes, 1));
    for (int64_t i = 0; i < table->shape[0]; i++) {
        proa_tensor_source_read(s, i, 0, cols, row);
        proa_from_f32(narrow, table->dtype, row, cols);
        m->device->upload(m->device, (char *)table->data + i * bytes, narrow, bytes);
    }
    free(narrow);
    free(row);
}

/* Copies an embedding table to the model's memory: on the host only if it is encoded, or if the files will be
 * unmapped. */
static void load_table(proa_model *m, proa_param *param, char *at)
{
    const proa_tensor_source *s = &param->part[0].source;
    param->table.data = at;
    if (!proa_tensor_source_is_dense(s)) decode_table(m, param);
    else m->device->upload(m->device, at, s->view.data, proa_tensor_source_bytes(s));
}

static void load_matrices(proa_model *m, proa_param *param, char *at)
{
    int64_t experts = proa_max64(param->experts, 1), each = param->parts / experts;
    param->matrix.data = at;
    proa_tensor_source *sources = proa_calloc((size_t)each, sizeof *sources);
    for (int64_t e = 0; e < experts; e++) {
        proa_weight one = param->matrix;
        one.data = at + e * param->matrix.stride, one.experts = 0;
        for (int64_t i = 0; i < each; i++) {
            proa_weight_part *part = &param->part[e * each + i];
            if (part->normalised) find_norms(m, part);
            sources[i] = part->source;
        }
        m->ctx.ops->pack(&m->ctx, &one, sources, (int)each);
    }
    free(sources);
}

/* Each slot is followed by the slot of its bias (arch.h). */
static bool is_bias(const proa_model *m, const proa_param *param)
{
    bool bias = false;
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_params *p = &m->params[s];
        int64_t count = p->param ? (p->layers + 1) * PROA_SLOT_COUNT : 0;
        for (int64_t i = 1; i < count && !bias; i += 2) bias = param == &p->param[i];
    }
    return bias;
}

/* Random values that keep sums in range: matrices and biases around 0, the weights of norms around 1. A bias around 1
 * would add the same to every token until all tokens choose the same experts. */
static void random_param(proa_model *m, proa_param *param, char *at)
{
    proa_device *d = m->device;
    uint64_t seed = (uint64_t)(at - m->weight_memory) + 1;
    if (param->role == PROA_ROLE_TABLE) {
        d->random(d, at, param->table.dtype, proa_view_count(param->table), 0, 0.05F, seed);
        param->table.data = at;
    } else if (param->role == PROA_ROLE_VECTOR || param->role == PROA_ROLE_F32 || param->projected) {
        param->values = (float *)(void *)at;
        d->random(d, at, PROA_DTYPE_F32, param->bytes / 4, is_bias(m, param) ? 0 : 1, 0.1F, seed);
    } else {
        param->matrix.data = at;
        for (int64_t e = 0; e < proa_max64(param->experts, 1); e++) {
            proa_weight one = param->matrix;
            one.data = at + e * param->matrix.stride, one.experts = 0;
            d->random_weight(d, &one, 0.05F, seed + (uint64_t)e);
        }
    }
}

/* Its memory begins at `at`. */
static void place_param(proa_param *param, char *at)
{
    if (param->role == PROA_ROLE_TABLE) param->table.data = at;
    else if (proa_param_is_matrix(param)) param->matrix.data = at;
    else param->values = (float *)(void *)at;
}

static void copy_packed(proa_model *m, char *to, const proa_param *param)
{
    const int64_t each = 64 << 20;
    const char *from = m->packed->block + param->block_at;
    for (int64_t done = 0; done < param->bytes; done += each)
        m->device->upload(m->device, to + done, from + done, proa_min64(each, param->bytes - done));
}

static void load_param(proa_model *m, proa_param *param, char **at)
{
    if (!proa_param_has_memory(param)) return;
    if (m->packed) {
        place_param(param, *at);
        copy_packed(m, *at, param);
        *at += param->bytes;
        return;
    }
    if (!m->weights) random_param(m, param, *at);
    else if (param->role == PROA_ROLE_TABLE) load_table(m, param, *at);
    else if (param->projected) {
        param->values = (float *)(void *)*at;
        proa_relative_project(m, param);
    } else if (param->role == PROA_ROLE_VECTOR || param->role == PROA_ROLE_F32) {
        param->values = (float *)(void *)*at;
        load_values(m, param);
    } else load_matrices(m, param, *at);
    for (int i = 0; i < param->parts && m->weights; i++) proa_weights_drop(m->weights, param->part[i].tensor);
    *at += param->bytes;
}

void proa_model_load_param(proa_model *m, proa_param *param, char *at)
{
    load_param(m, param, &at);
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
                param->table = proa_params_at(other, other->layers, (proa_weight_slot)slot)->table;
        }
    }
}

static void repack_param(proa_model *m, const proa_weight_walk *walk, char *at)
{
    int64_t bytes = walk->param->bytes;
    char *to = m->device->host ? at : proa_calloc((size_t)proa_max64(bytes, 1), 1);
    proa_repack_param(m, walk, to);
    if (m->device->host) return;
    m->device->upload(m->device, at, to, bytes);
    free(to);
}

/* The file's block is the memory, or what this rank has of it is copied, or put together from several files. */
static void load_packed(proa_model *m, proa_progress_fn *progress, void *arg)
{
    char *at = m->weight_memory;
    for (proa_weight_walk walk = {.param = NULL}; proa_model_next_weight(m, &walk);) {
        place_param(walk.param, m->mapped ? m->weight_memory + walk.param->block_at : at);
        if (m->mapped) continue;
        if (m->parts) repack_param(m, &walk, at);
        else copy_packed(m, at, walk.param);
        at += walk.param->bytes;
        if (progress)
            progress(arg, "loading weights", (double)(at - m->weight_memory) / (double)m->plan.weight_bytes);
    }
}

static void load_weights(proa_model *m, proa_progress_fn *progress, void *arg)
{
    char *at = m->weight_memory;
    proa_relative_begin(m);
    if (m->packed) load_packed(m, progress, arg);
    for (int s = 0; s < PROA_STACK_COUNT && !m->packed; s++) {
        proa_params *p = &m->params[s];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++) {
            load_param(m, &p->param[i], &at);
            if (progress && i % PROA_SLOT_COUNT == 0)
                progress(arg, "loading weights", (double)(at - m->weight_memory) / (double)m->plan.weight_bytes);
        }
    }
    proa_relative_end(m);
    share_tables(m);
    if (progress) progress(arg, "loading weights", 1);
}

proa_ctx_need proa_model_need(const proa_model *m)
{
    const proa_config *c = &m->config;
    proa_ctx_need need = {.rows = m->plan.rows_max, .heads = proa_max64(c->heads, c->other_query_heads)};
    need.head_dim = proa_max64(c->head_dim, c->other_head_dim);
    need.inputs = proa_max64(proa_max64(c->hidden, c->embed),
                             proa_max64(proa_max64(c->ffn, c->shared_ffn), need.heads * need.head_dim));
    need.inputs = proa_max64(need.inputs, proa_max64(c->q_lora, c->sum_inputs));
    need.inputs = proa_max64(need.inputs, c->encoder_ffn);
    if (c->encoder_heads) {
        need.heads = proa_max64(c->heads, c->encoder_heads);
        need.head_dim = proa_max64(need.head_dim, c->encoder_head_dim);
    }
    need.inputs = proa_max64(need.inputs, proa_dim_size(c, PROA_DIM_RECALLED));
    need.experts = c->experts, need.chosen = c->router.chosen;
    need.expert_width = proa_dim_size(c, PROA_DIM_EXPERT_WIDTH);
    need.expert_ffn = (c->gated ? 2 : 1) * c->expert_ffn;
    need.inputs = proa_max64(need.inputs, m->plan.width[PROA_REG_WINDOWS]);
    if (m->plan.offset[PROA_REG_PAIR] >= 0)
        need.inputs = proa_max64(need.inputs, m->plan.width[PROA_REG_PAIR]);
    need.columns = m->plan.width[PROA_REG_OUT];
    need.lora = m->lora.columns;
    need.keys = c->index_topk ? c->context : 0;
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

/* Computes the frequencies of one rope, of short and of long sequences; `to` is where they will be on the device. */
static proa_rope_freqs make_rope(const proa_rope_params *p, int64_t rotary_dim, float *values, const float *to)
{
    int64_t half = rotary_dim / 2;
    proa_rope_freqs f = {.inv_freq = to, .scale = (float)p->scale, .long_scale = (float)p->long_scale};
    if (p->theta == 0) return f;
    proa_rope_inv_freq(p, rotary_dim, false, values);
    proa_rope_inv_freq(p, rotary_dim, true, values + half);
    if (!proa_rope_by_length(p)) return f;
    f.border = (int32_t)p->original;
    f.ntk_factor = (float)p->factor;
    if (p->kind == PROA_ROPE_LONG) f.long_inv_freq = to + half;
    return f;
}

static void load_positions(proa_model *m)
{
    const proa_config *c = &m->config;
    float *values = proa_calloc(1, (size_t)proa_max64(inv_freq_bytes(m), alibi_bytes(m)));
    int64_t r = proa_config_rotary_dim(c, false) / 2 * 2, local = c->rotary_dim / 2 * 2;
    m->rope = make_rope(&c->rope, r, values, m->inv_freq);
    m->local_rope = make_rope(&c->local_rope, local, values + r, m->inv_freq + r);
    m->device->upload(m->device, m->inv_freq, values, (r + local) * (int64_t)sizeof *values);
    proa_config_alibi(c, values);
    m->device->upload(m->device, m->alibi, values, alibi_bytes(m));
    free(values);
}

static proa_status take_memory(proa_model *m, proa_err *err)
{
    const proa_plan *p = &m->plan;
    proa_device *d = m->device;
    m->mapped = m->packed && !m->parts && d->host && !m->detach;
    m->weight_memory = m->mapped ? (char *)(uintptr_t)m->packed->block : d->alloc(d, weight_memory_bytes(m));
    m->activations = d->alloc(d, p->activation_bytes);
    m->inv_freq = d->alloc(d, inv_freq_bytes(m));
    m->alibi = d->alloc(d, alibi_bytes(m));
    m->relative_row = d->alloc(d, relative_bytes(m));
    if (!m->weight_memory || !m->activations || !m->inv_freq || !m->alibi || !m->relative_row)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for weights and %.1f MB for activations on %s",
                         (double)p->weight_bytes / 1e6, (double)p->activation_bytes / 1e6, d->name);
    return PROA_OK;
}

proa_status proa_run_load(proa_model *m, proa_rank_call *call, proa_err *err)
{
    const proa_plan *p = &m->plan;
    proa_device *d = m->device;
    proa_ctx_need need = proa_model_need(m);
    PROA_TRY(take_memory(m, err));
    PROA_TRY(proa_ctx_init(&m->host, m->host.ops, m->host.pool, &need, err));
    if (d->host) {
        m->trace = proa_step_trace_open();
        m->ctx = m->host;
        m->ctx.device = d;
        m->ctx.one_stream = proa_cpu_prefers_one_stream() && p->weight_bytes > proa_cpu_cache_bytes();
        proa_model_touch(m->ctx.pool, m->activations, p->activation_bytes);
        proa_model_touch(m->ctx.pool, m->ctx.scratch, m->ctx.scratch_bytes);
    }
    PROA_TRY(proa_lora_make(m, err));
    PROA_TRY(proa_staging_make(m, err));
    proa_stage_make(m);
    PROA_TRY(proa_states_make(m, call, err));
    load_positions(m);
    load_weights(m, m->rank == 0 ? call->progress : NULL, call->progress_arg);
    if (m->weights) PROA_TRY(proa_weights_check(m->weights, err));
    if (m->parts) PROA_TRY(proa_repack_end(m, err));
    if (m->weights && m->own_tables && !m->mapped) proa_weights_detach(m->weights);
    malloc_trim(0); /* returns what reading the header has freed */
    return d->check(d, err);
}

/* ---- packing without a model in memory ---- */

proa_status proa_model_pack_begin(proa_model *m, proa_err *err)
{
    proa_ctx_need need = proa_model_need(m);
    m->relative_row = m->device->alloc(m->device, relative_bytes(m));
    if (!m->relative_row) return PROA_FAIL(err, NO_MEMORY, "cannot take memory on %s", m->device->name);
    PROA_TRY(proa_ctx_init(&m->host, m->host.ops, m->host.pool, &need, err));
    if (m->device->host) m->ctx = m->host, m->ctx.device = m->device;
    proa_relative_begin(m);
    return PROA_OK;
}

proa_status proa_model_pack(proa_model *m, proa_param *param, void *to, proa_err *err)
{
    proa_device *d = m->device;
    char *memory = d->host ? to : d->alloc(d, param->bytes), *at = memory;
    if (!memory)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB on %s", (double)param->bytes / 1e6, d->name);
    if (d->host) memset(to, 0, (size_t)param->bytes); /* padding */
    load_param(m, param, &at);
    if (d->host) return PROA_OK;
    d->download(d, to, memory, param->bytes);
    d->free(d, memory, param->bytes);
    return d->check(d, err);
}
