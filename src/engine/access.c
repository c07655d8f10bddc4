/* SPDX-License-Identifier: Apache-2.0
 * access.c - what callers of the library and the server ask an engine: statistics, sizes, text to ids and back. */
#include "engine/access.h"

#include "base/checked.h"
#include "engine/engine.h"
#include <string.h>

const char *proa_version(void)
{
    return PROA_VERSION;
}

void proa_engine_stats(proa_engine *engine, proa_stats *stats)
{
    pthread_mutex_lock(&engine->shared.lock);
    *stats = engine->shared.stats;
    pthread_mutex_unlock(&engine->shared.lock);
}

bool proa_engine_has_states(const proa_engine *engine)
{
    return engine->states.numbers > 0;
}

bool proa_engine_has_session(proa_engine *engine, const char *name)
{
    return proa_sessions_has(&engine->sessions, name);
}

proa_status proa_engine_ready(proa_engine *engine, proa_err *err)
{
    pthread_mutex_lock(&engine->shared.lock);
    proa_status status = engine->shared.lost.status;
    if (status != PROA_OK) PROA_FAIL(err, UNAVAILABLE, "%s", engine->shared.lost.text);
    pthread_mutex_unlock(&engine->shared.lock);
    return status;
}

uint64_t proa_engine_failures(const proa_engine *engine)
{
    return atomic_load_explicit(&engine->shared.failures, memory_order_relaxed);
}

static const char *quant_name(const proa_formats *formats)
{
    proa_wfmt format = formats->main;
    if (format == PROA_WFMT_I8W || format == PROA_WFMT_I8G) return "int8";
    if (format == PROA_WFMT_FP8G) return "fp8";
    if (proa_wfmt_is_int4(format) || (format == PROA_WFMT_Q4_0 && formats->given)) return "int4";
    return proa_wfmt_is_quantised(format) ? proa_wfmt_name(format) : "none";
}

static const char *format_name(proa_wfmt format)
{
    if (proa_wfmt_is_quantised(format)) return "auto";
    return format == PROA_WFMT_BF16DOT ? "bf16" : proa_wfmt_name(format);
}

void proa_engine_info(const proa_engine *e, proa_info *info)
{
    const proa_config *c = &e->model->config;
    const proa_plan *p = &e->model->plan;
    *info = (proa_info){.arch = e->model->arch->name, .kind = e->model->arch->kind};
    bool decoder = e->model->arch->kind == PROA_KIND_DECODER;
    info->vocab = (int32_t)c->vocab;
    bool projects = proa_arch_projects(e->model->arch);
    info->hidden = (int32_t)(decoder    ? proa_model_hidden_width(e->model)
                             : projects ? c->head_embed
                                        : c->hidden);
    info->layers = (int32_t)c->layers, info->encoder_layers = (int32_t)c->encoder_layers;
    info->context = (int32_t)c->context;
    info->outputs = (int32_t)p->width[PROA_REG_OUT];
    const proa_arch *arch = e->model->arch;
    bool classifies = arch->outputs == PROA_DIM_LABELS && proa_arch_has_one_row(arch);
    info->labels = classifies ? info->outputs : 0;
    info->embedding = (int32_t)proa_prompt_table_width(e->model, false);
    info->gpu = e->model->device->gpu;
    info->has_tokenizer = e->tokenizer != NULL;
    info->has_pooler = proa_model_has_pool(e->model);
    info->threads = proa_pool_threads(e->pool);
    info->isa = e->model->ctx.ops->name;
    info->dtype = format_name(e->model->formats.main);
    info->quant = quant_name(&e->model->formats);
    info->kv_dtype = proa_dtype_name(e->model->formats.kv);
    info->parameters = p->parameters, info->weight_bytes = p->weight_bytes;
    info->kv_tokens = e->pages.count * PROA_PAGE_TOKENS, info->kv_bytes = e->memory.kv;
    info->memory_bytes = e->memory.total;
    info->sequences = e->sizes.sequences_max;
    info->plan = e->plan;
    info->bos_id = (int32_t)c->bos;
    info->eos_id = c->end_count ? c->end_ids[0] : -1;
    info->decoder_start_id = (int32_t)c->decoder_start;
}

void proa_engine_observe(proa_engine *e, const proa_observer *observer)
{
    e->model->observer = observer;
}

const proa_options *proa_engine_defaults(const proa_engine *e, bool *limits_length)
{
    *limits_length = e->defaults.max_tokens > 0 || e->length_max > 0;
    return &e->defaults;
}

const proa_tokenizer *proa_engine_tokenizer(const proa_engine *engine)
{
    return engine->tokenizer;
}

const proa_files *proa_engine_files(const proa_engine *engine)
{
    return proa_model_files(engine->model);
}

bool proa_engine_has_head_row(const proa_engine *engine)
{
    return engine->model->arch->kind == PROA_KIND_ENCODER && proa_arch_has_one_row(engine->model->arch);
}

bool proa_engine_has_pooler(const proa_engine *engine)
{
    return engine->model->arch->kind == PROA_KIND_ENCODER && proa_model_has_pool(engine->model);
}

bool proa_engine_is_headless(const proa_engine *engine)
{
    return engine->model->arch->kind == PROA_KIND_ENCODER && engine->model->plan.headless;
}

bool proa_engine_embeds_first(const proa_engine *engine)
{
    return engine->model->arch->embeds == PROA_EMBEDS_FIRST;
}

bool proa_engine_embeds_last(const proa_engine *engine)
{
    return engine->model->arch->embeds == PROA_EMBEDS_LAST;
}

bool proa_engine_kind_of(proa_kind *out, const proa_json *config, bool modules)
{
    const proa_arch *arch;
    if (proa_arch_find(&arch, config, NULL) != PROA_OK) return false;
    *out = proa_arch_in_folder(arch, modules)->kind;
    return true;
}

bool proa_engine_in_folder(const char *dir)
{
    return proa_model_in_folder(dir);
}

int32_t proa_engine_prompt_end(const proa_engine *engine, int32_t ids[2])
{
    const proa_config *c = &engine->model->config;
    bool of_end = engine->model->arch->head_rows == PROA_ROWS_END && c->end_count > 0;
    if (of_end) ids[0] = c->end_ids[0];
    if (c->prefix_end < 0) return of_end;
    ids[0] = (int32_t)c->blank_ids[0], ids[1] = (int32_t)c->prefix_end;
    return 2;
}

/* Half of the ids become a question, behind which all separators but the last one stand. */
static void separate_question(const proa_config *c, int32_t *ids, int64_t count)
{
    const int32_t separator = (int32_t)c->globals_end;
    int64_t between = c->globals_ends - 1;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] == separator) ids[i] = separator > 0 ? 0 : 1;
    if (count <= 2 * between) return;
    for (int64_t i = 0; i < between; i++) ids[count / 2 + i] = separator;
    ids[count - 1] = separator;
}

void proa_engine_end_prompt(const proa_engine *engine, int32_t *ids, int64_t count)
{
    int32_t end[2], ends = proa_engine_prompt_end(engine, end);
    for (int i = 0; i < ends && count >= ends; i++) ids[count - ends + i] = end[i];
    if (engine->model->config.globals < 0) separate_question(&engine->model->config, ids, count);
}

const int32_t *proa_engine_end_ids(const proa_engine *engine, int32_t *count)
{
    *count = engine->model->config.end_count;
    return engine->model->config.end_ids;
}

static proa_status need_tokenizer(const proa_engine *e, proa_err *err)
{
    return e->tokenizer ? PROA_OK : PROA_FAIL(err, UNSUPPORTED, "the model's folder has no tokenizer");
}

static proa_status encode_text(const proa_engine *e, proa_str text, bool special, int32_t *ids, int64_t cap,
                               int64_t *count, proa_err *err)
{
    proa_ids list = {0};
    PROA_TRY(need_tokenizer(e, err));
    proa_status status = proa_tokenizer_encode(e->tokenizer, text, special, &list, err);
    *count = list.len;
    if (list.len) memcpy(ids, list.ptr, (size_t)proa_min64(cap, list.len) * sizeof *ids);
    proa_ids_release(&list);
    return status;
}

proa_status proa_engine_encode(const proa_engine *engine, const char *text, size_t text_len, int32_t *ids,
                               int64_t cap, int64_t *count, proa_err *err)
{
    return encode_text(engine, (proa_str){text, text_len}, true, ids, cap, count, err);
}

proa_status proa_engine_encode_plain(const proa_engine *engine, const char *text, size_t text_len,
                                     int32_t *ids, int64_t cap, int64_t *count, proa_err *err)
{
    return encode_text(engine, (proa_str){text, text_len}, false, ids, cap, count, err);
}

proa_status proa_engine_decode(const proa_engine *engine, const int32_t *ids, int64_t count, char *text,
                               size_t cap, size_t *text_len, proa_err *err)
{
    proa_buf buf;
    PROA_TRY(need_tokenizer(engine, err));
    proa_buf_init(&buf, SIZE_MAX / 2);
    proa_status status = proa_tokenizer_decode(engine->tokenizer, ids, count, true, &buf, err);
    *text_len = buf.len;
    if (buf.len) memcpy(text, buf.ptr, buf.len < cap ? buf.len : cap);
    proa_buf_release(&buf);
    return status;
}
