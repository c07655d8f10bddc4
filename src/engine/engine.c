/* SPDX-License-Identifier: Apache-2.0
 * engine.c - opening and closing, the engine's own thread, and what can be asked of it. */
#include "engine/job.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "engine/access.h"
#include <malloc.h>
#include <string.h>

const char *proa_version(void)
{
    return PROA_VERSION;
}

/* ---- opening ---- */

/* A folder without a tokenizer is fine (ids in, ids out); a broken tokenizer is not. */
static proa_status open_tokenizer(proa_engine *e, const char *path, proa_err *err)
{
    proa_err why = {.status = PROA_OK};
    proa_status status = proa_tokenizer_open(&e->tokenizer, path, &why);
    if (status == PROA_OK || status == PROA_NOT_FOUND) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s", why.text);
}

/* What the model's makers recommend. */
static proa_status read_defaults(proa_engine *e, const char *path, proa_err *err)
{
    char file[PROA_PATH_MAX];
    proa_json *json = NULL;
    PROA_TRY(proa_path_join(file, path, "generation_config.json", err));
    if (!proa_file_exists(file)) return PROA_OK;
    PROA_TRY(proa_json_load(&json, file, PROA_CONFIG_BYTES_MAX, err));
    proa_status status = proa_options_from_generation_config(&e->defaults, json, &e->arena, err);
    if (status != PROA_OK) proa_err_prefix(err, "%s", file);
    proa_json_free(json);
    return status;
}

static void make_tables(proa_engine *e)
{
    int64_t n = e->sizes.sequences_max, cap = proa_sizes_table(e->model);
    proa_table **sets[PROA_TABLES] = {&e->self, &e->spare, &e->cross};
    e->table_cap = cap;
    e->table_memory = proa_calloc((size_t)(PROA_TABLES * n * cap), sizeof *e->table_memory);
    e->slot_used = proa_calloc((size_t)n, sizeof *e->slot_used);
    for (int64_t s = 0; s < PROA_TABLES; s++) {
        *sets[s] = proa_calloc((size_t)n, sizeof **sets[s]);
        for (int64_t i = 0; i < n; i++)
            (*sets[s])[i] = (proa_table){e->table_memory + (s * n + i) * cap, 0, (int32_t)cap};
    }
}

static void make_step(proa_engine *e)
{
    size_t rows = (size_t)e->model->plan.rows_max;
    /* a step holds at most one span for each sequence; an encoder's at most one for each row */
    e->ids = proa_calloc(rows, sizeof *e->ids);
    e->positions = proa_calloc(rows, sizeof *e->positions);
    e->from = proa_calloc(rows, sizeof *e->from);
    e->self_spans = proa_calloc(rows, sizeof *e->self_spans);
    e->cross_spans = proa_calloc(rows, sizeof *e->cross_spans);
    e->asks = proa_calloc(rows, sizeof *e->asks);
    e->ask_rows = proa_calloc(rows, sizeof *e->ask_rows);
    e->given = proa_calloc(rows, sizeof *e->given);
    for (int i = 0; i < 2 && proa_encode_has(e); i++) {
        e->encoding[i].input = proa_calloc((size_t)e->sizes.sequences_max, sizeof(proa_input));
        e->encoding[i].ticket = i;
    }
    e->kv = proa_calloc((size_t)e->model->kv_layers, sizeof *e->kv);
    for (int32_t i = 0; i < e->model->kv_layers; i++) e->kv[i] = proa_pages_layer(&e->pages, i);
    if (e->model->arch->kind == PROA_KIND_ENCODER) return;
    size_t sequences = (size_t)e->sizes.sequences_max;
    e->choices = proa_calloc(sequences, sizeof *e->choices);
    e->edits = proa_calloc(sequences, sizeof *e->edits);
    e->edit_last = proa_calloc(sequences, sizeof *e->edit_last);
    e->pairs = proa_calloc(PROA_EDIT_PAIRS_MAX, sizeof *e->pairs);
    e->pending = proa_calloc(sequences / 2 + 1, sizeof *e->pending);
    e->top_ids = proa_calloc((size_t)PROA_HEAD_ROWS * PROA_TOP_MAX, sizeof *e->top_ids);
    e->top_logits = proa_calloc((size_t)PROA_HEAD_ROWS * PROA_TOP_MAX, sizeof *e->top_logits);
    for (int i = 0; i < 2; i++) {
        e->flight[i].due = proa_calloc(sequences, sizeof *e->flight[i].due);
        e->flight[i].search = proa_calloc(sequences / 2 + 1, sizeof *e->flight[i].search);
        e->flight[i].searcher = proa_calloc(sequences / 2 + 1, sizeof(proa_job *));
        e->flight[i].ticket = i;
    }
    int64_t vocab = e->model->plan.width[PROA_REG_OUT];
    int threads = proa_pool_threads(e->pool);
    e->changed = proa_calloc((size_t)(PROA_HEAD_ROWS * vocab), sizeof *e->changed);
    e->samplers = proa_calloc((size_t)threads, sizeof *e->samplers);
    for (int i = 0; i < threads; i++) proa_sampler_init(&e->samplers[i], vocab);
}

static proa_status open_engine(proa_engine *e, const char *path, const proa_engine_options *o, proa_err *err)
{
    PROA_TRY(proa_sizes_make(&e->sizes, o, err));
    e->pool = proa_pool_new(e->sizes.threads);
    PROA_TRY(proa_device_open(&e->device, o ? o->device : NULL, err));
    PROA_TRY(proa_model_prepare(&e->model, path, &e->sizes.model, e->device, e->pool, err));
    PROA_TRY(open_tokenizer(e, path, err));
    PROA_TRY(read_defaults(e, path, err));
    proa_sizes_for_model(&e->sizes, e->model);
    PROA_TRY(proa_sizes_check(&e->sizes, e->model, err));
    malloc_trim(0); /* what reading the JSON files left behind */
    proa_memory_plan(&e->memory, &e->sizes, e->model, e->tokenizer);
    PROA_TRY(proa_memory_check(&e->memory, e->model, err));
    PROA_TRY(proa_model_load(e->model, o ? o->progress : NULL, o ? o->progress_arg : NULL, err));
    const proa_config *c = &e->model->config;
    PROA_TRY(proa_pages_init(&e->pages, e->device, proa_sizes_pages(&e->sizes), e->model->kv_layers,
                             c->kv_heads, c->head_dim, e->model->kv_dtype, err));
    if (e->device->host) proa_model_touch(e->pool, e->pages.memory, e->pages.bytes - 8 * e->pages.count);
    make_tables(e);
    make_step(e);
    e->ahead = proa_flight_mode(e->device);
    return PROA_OK;
}

proa_status proa_engine_open(proa_engine **out, const char *path, const proa_engine_options *options,
                             proa_err *err)
{
    proa_engine *e = proa_calloc(1, sizeof *e);
    *out = NULL;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    proa_job_list_init(&e->inbox);
    proa_job_list_init(&e->waiting);
    proa_job_list_init(&e->running);
    proa_arena_init(&e->arena);
    proa_status status = open_engine(e, path, options, err);
    if (status != PROA_OK) return proa_engine_close(e), status;
    *out = e;
    return PROA_OK;
}

static void free_step(proa_engine *e)
{
    if (!e->pool) return;
    void *all[] = {
        e->table_memory, e->slot_used,  e->self,        e->spare,         e->cross,         e->ids,
        e->positions,    e->self_spans, e->cross_spans, e->asks,          e->ask_rows,      e->kv,
        e->given,        e->from,       e->choices,     e->flight[0].due, e->flight[1].due, e->top_ids,
        e->top_logits,   e->pending,    e->edits,       e->edit_last,     e->pairs};
    for (size_t i = 0; i < PROA_COUNT(all); i++) free(all[i]);
    for (int i = 0; i < 2; i++) {
        free(e->flight[i].search);
        free(e->flight[i].searcher);
        free(e->encoding[i].input);
    }
    for (int i = 0; i < proa_pool_threads(e->pool) && e->samplers; i++) proa_sampler_release(&e->samplers[i]);
    free(e->changed);
    free(e->samplers);
}

void proa_engine_close(proa_engine *e)
{
    if (!e) return;
    proa_engine_stop(e);
    proa_job_list *lists[] = {&e->inbox, &e->waiting, &e->running};
    for (size_t i = 0; i < PROA_COUNT(lists); i++)
        for (proa_job *job; (job = proa_job_list_pop(lists[i]));) proa_job_free(job);
    free_step(e);
    proa_pages_release(&e->pages);
    proa_tokenizer_free(e->tokenizer);
    proa_model_free(e->model);
    proa_device_close(e->device);
    proa_pool_free(e->pool);
    proa_arena_release(&e->arena);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- stepping ---- */

bool proa_engine_step(proa_engine *engine)
{
    return proa_step_run(engine);
}

void proa_engine_run(proa_engine *engine)
{
    while (proa_step_run(engine)) {
    }
}

/* A device's pass may be over within 0.1 ms, of which waking this thread would be a tenth. It is a hint: the lock says what
 * there is to do. */
static void watch(proa_engine *e)
{
    if (e->device->host) return;
    int64_t until = proa_clock_ns() + PROA_WATCH_NS;
    while (!atomic_load_explicit(&e->called, memory_order_relaxed) && proa_clock_ns() < until) {
    }
}

static bool wait_for_work(proa_engine *e)
{
    watch(e);
    pthread_mutex_lock(&e->lock);
    while (!e->stop && !e->inbox.first) pthread_cond_wait(&e->work, &e->lock);
    bool stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    return !stop;
}

static bool stopping(proa_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    return stop;
}

static void *stepping_thread(void *arg)
{
    proa_engine *e = arg;
    do { /* what runs since before this thread did, too */
        while (!stopping(e) && proa_step_run(e)) {
        }
    } while (wait_for_work(e));
    return NULL;
}

proa_status proa_engine_start(proa_engine *e, proa_err *err)
{
    if (e->thread_runs) return PROA_FAIL(err, EXISTS, "the engine's thread runs already");
    e->stop = false;
    if (pthread_create(&e->thread, NULL, stepping_thread, e) != 0)
        return PROA_FAIL(err, UNAVAILABLE, "cannot start the engine's thread");
    e->thread_runs = true;
    return PROA_OK;
}

void proa_engine_stop(proa_engine *e)
{
    if (!e->thread_runs) return;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    atomic_store_explicit(&e->called, true, memory_order_relaxed);
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    e->thread_runs = false;
}

/* ---- asking ---- */

/* SplitMix64 (Steele, Lea, Flood 2014) of the i-th step from seed. */
uint64_t proa_seed_of(uint64_t seed, int32_t i)
{
    if (i == 0) return seed;
    uint64_t z = seed + (uint64_t)i * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void proa_engine_stats(proa_engine *engine, proa_stats *stats)
{
    pthread_mutex_lock(&engine->lock);
    *stats = engine->stats;
    pthread_mutex_unlock(&engine->lock);
}

static const char *quant_name(proa_wfmt format)
{
    if (format == PROA_WFMT_I8W) return "int8";
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
    info->vocab = (int32_t)c->vocab, info->hidden = (int32_t)c->hidden;
    info->layers = (int32_t)c->layers, info->encoder_layers = (int32_t)c->encoder_layers;
    info->context = (int32_t)c->context;
    info->outputs = (int32_t)p->width[PROA_REG_OUT];
    info->has_tokenizer = e->tokenizer != NULL;
    info->has_pooler = proa_model_has_pool(e->model);
    info->threads = proa_pool_threads(e->pool);
    info->isa = e->model->ctx.ops->name;
    info->dtype = format_name(e->model->format);
    info->quant = quant_name(e->model->format);
    info->kv_dtype = proa_dtype_name(e->model->kv_dtype);
    info->parameters = p->parameters, info->weight_bytes = p->weight_bytes;
    info->kv_tokens = e->pages.count * PROA_PAGE_TOKENS, info->kv_bytes = e->memory.kv;
    info->memory_bytes = e->memory.total;
    info->bos_id = (int32_t)c->bos;
    info->eos_id = c->end_count ? c->end_ids[0] : -1;
    info->decoder_start_id = (int32_t)c->decoder_start;
}

const proa_tokenizer *proa_engine_tokenizer(const proa_engine *engine)
{
    return engine->tokenizer;
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

proa_status proa_engine_encode(const proa_engine *engine, const char *text, size_t text_len, int32_t *ids,
                               int64_t cap, int64_t *count, proa_err *err)
{
    proa_ids list = {0};
    PROA_TRY(need_tokenizer(engine, err));
    proa_status status = proa_tokenizer_encode(engine->tokenizer, (proa_str){text, text_len}, true, &list, err);
    *count = list.len;
    if (list.len) memcpy(ids, list.ptr, (size_t)proa_min64(cap, list.len) * sizeof *ids);
    proa_ids_release(&list);
    return status;
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
