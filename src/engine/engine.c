/* SPDX-License-Identifier: Apache-2.0
 * engine.c - opening and closing an engine, and its own thread. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "engine/access.h"
#include "engine/generation_config.h"
#include "engine/speculate/propose_eagle.h"
#include "engine/speculate/propose_medusa.h"
#include "engine/prefix_levels.h"
#include "engine/ranks/recovery.h"
#include "engine/sched/prefix_cache.h"
#include "engine/sched/scheduler.h"
#include "model/heads/eagle.h"
#include "text/token_bytes.h"
#include <malloc.h>
#include <string.h>

/* ---- opening ---- */

/* A folder without a tokenizer is fine (ids in, ids out); a broken tokenizer is not. */
static proa_status open_tokenizer(proa_engine *e, proa_err *err)
{
    proa_err why = {.status = PROA_OK};
    proa_status status = proa_tokenizer_open_files(&e->tokenizer, proa_model_files(e->model), &why);
    if (status == PROA_OK || status == PROA_NOT_FOUND) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s", why.text);
}

/* max_length and min_length count the prompt, which of an encoder-decoder model is the decoder's start token. They
 * give way to max_new_tokens and min_new_tokens. */
static proa_status read_lengths(proa_engine *e, const proa_json *json, proa_err *err)
{
    proa_options *o = &e->defaults;
    int64_t most = 0, least = 0;
    PROA_TRY(proa_json_get_int(&most, json, "max_length", 0, INT32_MAX, err));
    PROA_TRY(proa_json_get_int(&least, json, "min_length", 0, INT32_MAX, err));
    if (e->model->arch->kind == PROA_KIND_DECODER) {
        e->length_max = o->max_tokens == 0 ? most : 0;
        e->length_min = o->min_tokens == 0 ? least : 0;
        return PROA_OK;
    }
    if (o->max_tokens == 0 && most > 1) o->max_tokens = (int32_t)proa_min64(most - 1, PROA_CONTEXT_MAX);
    if (o->min_tokens == 0 && least > 1) o->min_tokens = (int32_t)proa_min64(least - 1, PROA_CONTEXT_MAX);
    return PROA_OK;
}

/* Default options of generation_config.json; models of before it have these keys in config.json. */
static proa_status read_defaults(proa_engine *e, proa_err *err)
{
    const proa_files *files = proa_model_files(e->model);
    const char *name = proa_files_has(files, "generation_config.json") ? "generation_config.json" : "config.json";
    char where[PROA_PATH_MAX];
    proa_json *json = NULL;
    if (e->model->arch->kind == PROA_KIND_ENCODER || !proa_files_has(files, name)) return PROA_OK;
    PROA_TRY(proa_files_json(&json, files, name, PROA_CONFIG_BYTES_MAX, err));
    proa_status status = proa_options_from_generation_config(&e->defaults, json, &e->arena, err);
    bool own_file = strcmp(name, "config.json") != 0 || e->model->arch->kind == PROA_KIND_ENCODER_DECODER;
    if (status == PROA_OK && own_file) status = read_lengths(e, json, err);
    if (status != PROA_OK) proa_err_prefix(err, "%s", proa_files_name(where, files, name));
    proa_json_free(json);
    return status;
}

/* The arrays of a step live in the engine's arena. Three large ones, of which little is ever used, come from
 * calloc instead: the arena writes its zeros, which would make every page of them resident. */

/* Three page tables for each slot. */
static void make_slots(proa_engine *e)
{
    proa_slots *s = &e->slots;
    int64_t n = e->sizes.sequences_max, cap = proa_sizes_table(e->model);
    proa_page_table **sets[PROA_TABLES] = {&s->self, &s->spare, &s->cross};
    s->cap = cap;
    s->memory = proa_calloc((size_t)(PROA_TABLES * n * cap), sizeof *s->memory);
    s->used = PROA_ARENA_NEW(&e->arena, bool, n);
    for (int64_t set = 0; set < PROA_TABLES; set++) {
        *sets[set] = PROA_ARENA_NEW(&e->arena, proa_page_table, n);
        for (int64_t i = 0; i < n; i++)
            (*sets[set])[i] = (proa_page_table){s->memory + (set * n + i) * cap, 0, (int32_t)cap};
    }
}

/* A decoder's pass has at most one span for each sequence, an encoder's at most one for each row. */
static void make_step_arrays(proa_engine *e)
{
    proa_step_arrays *s = &e->step;
    int64_t rows = e->model->plan.rows_max;
    s->ids = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->positions = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->block_positions = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->lengths = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->types = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->decoder_ids = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->sampled_at = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->self_spans = PROA_ARENA_NEW(&e->arena, proa_span, rows);
    s->cross_spans = PROA_ARENA_NEW(&e->arena, proa_span, rows);
    s->seen = PROA_ARENA_NEW(&e->arena, uint64_t, rows);
    s->span_seqs = PROA_ARENA_NEW(&e->arena, proa_seq *, rows);
    s->chunks = PROA_ARENA_NEW(&e->arena, proa_seq *, e->sizes.sequences_max);
    s->logits_requests = PROA_ARENA_NEW(&e->arena, proa_logits_request, rows);
    s->logits_rows = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->places = PROA_ARENA_NEW(&e->arena, proa_encoder_place, e->sizes.sequences_max);
    s->lora = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    s->inputs_embeds = PROA_ARENA_NEW(&e->arena, proa_inputs_embeds, rows);
    s->pending = PROA_ARENA_NEW(&e->arena, proa_pending_beams, e->sizes.sequences_max / 2 + 1);
}

static void make_encoder_passes(proa_engine *e)
{
    bool encoder = e->model->arch->kind == PROA_KIND_ENCODER;
    e->encoder.most = encoder && e->async.mode == PROA_SAMPLE_ASYNC ? proa_model_encoder_passes(e->model) : 1;
    for (int i = 0; i < e->encoder.most && proa_engine_has_encoder(e); i++) {
        e->encoder.pass[i].input = PROA_ARENA_NEW(&e->arena, proa_encoder_input, e->sizes.sequences_max);
        e->encoder.pass[i].ticket = i;
    }
}

static void make_async_steps(proa_engine *e)
{
    proa_async_steps *a = &e->async;
    int64_t n = e->model->plan.sampled_rows;
    a->sample_params = PROA_ARENA_NEW(&e->arena, proa_sample_params, n);
    a->row_processors = PROA_ARENA_NEW(&e->arena, proa_logits_row, n);
    a->last_sampled_at = PROA_ARENA_NEW(&e->arena, int32_t, n);
    a->raw_to = PROA_ARENA_NEW(&e->arena, float *, n);
    a->scores_to = PROA_ARENA_NEW(&e->arena, float *, n);
    a->search_to = PROA_ARENA_NEW(&e->arena, proa_beam_rows, n / 2 + 1);
    a->entries = proa_calloc(PROA_LOGITS_ENTRIES_MAX, sizeof *a->entries);
    a->mask_of = PROA_ARENA_NEW(&e->arena, int32_t, n);
    a->mask_jobs = PROA_ARENA_NEW(&e->arena, proa_logits_job, n);
    a->masks = proa_calloc((size_t)(n * proa_ceil_div(e->model->plan.width[PROA_REG_OUT], 32)), sizeof *a->masks);
    for (int i = 0; i < PROA_STEPS_MAX; i++) {
        a->step[i].pending_tokens = PROA_ARENA_NEW(&e->arena, proa_pending_token, n);
        a->step[i].search = PROA_ARENA_NEW(&e->arena, proa_beam_params, n / 2 + 1);
        a->step[i].search_owner = PROA_ARENA_NEW(&e->arena, proa_engine_request *, n / 2 + 1);
        a->step[i].ticket = i;
    }
}

static void make_head_buffers(proa_engine *e)
{
    int64_t vocab = e->model->plan.width[PROA_REG_OUT];
    int threads = proa_pool_threads(e->pool);
    e->head.top_ids = PROA_ARENA_NEW(&e->arena, int32_t, PROA_HEAD_ROWS * PROA_TOP_MAX);
    e->head.top_logits = PROA_ARENA_NEW(&e->arena, float, PROA_HEAD_ROWS *PROA_TOP_MAX);
    e->head.top = proa_calloc((size_t)PROA_HEAD_ROWS * PROA_TOP_LOGPROBS_MAX, sizeof *e->head.top);
    e->head.processed_logits = proa_calloc((size_t)(PROA_HEAD_ROWS * vocab), sizeof(float));
    if (e->device->host && e->async.mode == PROA_SAMPLE_ASYNC) {
        int64_t hidden = proa_model_hidden_width(e->model);
        e->head.fetched.logits_copy = proa_calloc((size_t)(PROA_HEAD_ROWS * vocab), sizeof(float));
        e->head.fetched.hidden_copy = proa_calloc((size_t)(PROA_HEAD_ROWS * hidden), sizeof(float));
    }
    e->samplers = PROA_ARENA_NEW(&e->arena, proa_sampler_scratch, threads);
    for (int i = 0; i < threads; i++) proa_sampler_init(&e->samplers[i], vocab);
}

/* Who drafts with what a folder of the option draft-model holds. */
static const proa_proposer *drafter_in(const char *folder)
{
    if (proa_medusa_in_folder(folder)) return &proa_propose_medusa;
    return proa_eagle_find(folder) ? &proa_propose_eagle : &proa_propose_draft;
}

/* Without option 'speculation' the contents of 'draft-model' decide. */
static proa_status read_speculation(proa_speculation *s, const proa_engine_options *o, proa_err *err)
{
    const char *folder = o ? o->draft_model : NULL;
    const char *mode = o && o->speculation ? o->speculation : folder ? drafter_in(folder)->name : "none";
    int32_t tokens = o ? o->draft_tokens : 0;
    s->proposer = proa_proposer_find(mode);
    if (!s->proposer)
        return PROA_FAIL(err, INVALID, "option 'speculation' is '%s', must be " PROA_PROPOSER_NAMES, mode);
    bool needs = s->proposer == &proa_propose_draft || s->proposer == &proa_propose_medusa ||
                 s->proposer == &proa_propose_eagle;
    if (needs && !folder)
        return PROA_FAIL(err, INVALID, "option 'speculation' is '%s', which needs option 'draft-model'", mode);
    if (tokens < 0 || tokens > PROA_TREE_MAX)
        return PROA_FAIL(err, INVALID, "option 'draft-tokens' is %d, must be 0 to %d", tokens, PROA_TREE_MAX);
    s->tokens_max = tokens ? tokens : PROA_TREE_MAX;
    return PROA_OK;
}

/* All arrays that steps use, so that a step allocates nothing. */
static void make_arrays(proa_engine *e)
{
    make_slots(e);
    make_step_arrays(e);
    make_encoder_passes(e);
    e->kv = PROA_ARENA_NEW(&e->arena, proa_kv, (int64_t)e->ranks.local * e->model->kv_layers);
    proa_rank_set_layers(&e->ranks, &e->pages, e->model, e->kv);
    if (e->model->arch->kind == PROA_KIND_ENCODER) return;
    make_async_steps(e);
    make_head_buffers(e);
    proa_speculate_init(e);
}

/* The bytes of a token as grammars see them. Special tokens are no part of a text, and what is not UTF-8 cannot be. */
static proa_str grammar_bytes(const proa_engine *e, proa_token_bytes *all, int32_t id,
                              char special[PROA_TOKEN_SPECIAL_BYTES])
{
    if (proa_tokenizer_is_special(e->tokenizer, id)) return proa_token_special(special, id);
    proa_str bytes = proa_token_bytes_of(all, id);
    return bytes.len && memchr(bytes.ptr, 0xFF, bytes.len) ? (proa_str){"", 0} : bytes;
}

static proa_token_trie *make_vocab(void *arg)
{
    const proa_engine *e = arg;
    int32_t size = (int32_t)proa_min64(proa_tokenizer_vocab(e->tokenizer), e->model->plan.width[PROA_REG_OUT]);
    proa_token_bytes *all = proa_token_bytes_new(e->tokenizer);
    proa_str *bytes = proa_calloc((size_t)size + 1, sizeof *bytes);
    char(*special)[PROA_TOKEN_SPECIAL_BYTES] = proa_malloc(((size_t)size + 1) * sizeof *special);
    for (int32_t i = 0; i < size; i++) bytes[i] = grammar_bytes(e, all, i, special[i]);
    proa_token_trie *v = proa_token_trie_new(bytes, size);
    free(special);
    free(bytes);
    proa_token_bytes_free(all);
    return v;
}

/* What the folder of the option draft-model holds. The option speculation may insist on a kind. */
static proa_status prepare_drafts(proa_engine *e, const char *folder, proa_err *err)
{
    const proa_proposer *given = e->speculation.proposer, *found = drafter_in(folder);
    if (given == &proa_propose_medusa || given == &proa_propose_eagle) found = given;
    if (given == &proa_propose_draft && found != given)
        return PROA_FAIL(err, INVALID,
                         "option 'speculation' is 'draft', but '%s' holds draft heads: it must be '%s'",
                         folder, found->name);
    if (found == &proa_propose_medusa) return proa_medusa_proposer_prepare(e, folder, err);
    if (found == &proa_propose_eagle) return proa_eagle_proposer_prepare(e, folder, err);
    return proa_draft_model_prepare(e, folder, err);
}

/* What is not divided among ranks yet. */
static proa_status check_ranks(const proa_engine *e, proa_err *err)
{
    const char *what = NULL;
    if (e->ranks.count == 1) return PROA_OK;
    if ((!e->device->host || e->ranks.local < e->ranks.count) && (e->sizes.host_bytes || e->sizes.folder_bytes))
        what = e->sizes.folder_bytes ? "files of prefixes (--prefix-dir)" : "prefixes in host memory";
    if (!what) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "%d ranks (--tp, --pp): %s are for one rank only", e->ranks.count, what);
}

/* What would have to take a recurrent state back to any row of a tree, or to keep it outside of the device. */
static proa_status check_states(const proa_engine *e, const proa_engine_options *o, proa_err *err)
{
    const char *what = NULL;
    if (!proa_model_state(e->model)) return PROA_OK;
    if (e->speculation.proposer == &proa_propose_medusa || e->speculation.proposer == &proa_propose_eagle)
        what = "'speculation': draft heads";
    else if (o && o->prefix_dir) what = "'prefix-dir': files of prefixes";
    else if (e->sizes.host_bytes > 0) what = "'prefix-host-memory': prefixes in host memory";
    if (!what) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "option %s are not offered for a %s, whose layers have recurrent states",
                     what, e->model->arch->name);
}

static proa_status open_ranks(proa_engine *e, const char *path, const proa_engine_options *o, proa_err *err)
{
    int32_t ranks, tensors = o ? o->tensor_parallel : 0;
    if (tensors == 0 && proa_mpi_world() && !(o && o->pipeline_parallel)) tensors = proa_mpi_world()->ranks;
    PROA_TRY(proa_rank_count(&ranks, tensors ? tensors : proa_model_ranks(path), o ? o->pipeline_parallel : 0,
                             err));
    e->ranks.notify = proa_recovery_notify, e->ranks.notify_arg = e;
    PROA_TRY(proa_rank_set_open(&e->ranks, o ? o->device : NULL, ranks, e->sizes.threads, o ? o->ranks : NULL,
                                err));
    e->device = e->ranks.device[0], e->pool = e->ranks.pool[0];
    PROA_TRY(check_ranks(e, err));
    return proa_rank_set_prepare(&e->ranks, &e->model, path, &e->sizes.model, err);
}

/* Takes the memory for who drafts, after the model's pages. */
static proa_status load_drafts(proa_engine *e, const proa_engine_options *o, proa_err *err)
{
    proa_progress_fn *progress = o ? o->progress : NULL;
    void *arg = o ? o->progress_arg : NULL;
    if (e->medusa) return proa_medusa_proposer_load(e, err);
    if (e->eagle) return proa_eagle_proposer_load(e, progress, arg, err);
    return e->draft_model ? proa_draft_model_load(e, progress, arg, err) : PROA_OK;
}

static proa_status open_engine(proa_engine *e, const char *path, const proa_engine_options *o, proa_err *err)
{
    PROA_TRY(proa_sizes_make(&e->sizes, o, err));
    PROA_TRY(read_speculation(&e->speculation, o, err));
    PROA_TRY(proa_adapters_sizes(&e->sizes, o, err));
    PROA_TRY(open_ranks(e, path, o, err));
    PROA_TRY(check_states(e, o, err));
    PROA_TRY(open_tokenizer(e, err));
    PROA_TRY(read_defaults(e, err));
    if (o && o->draft_model) PROA_TRY(prepare_drafts(e, o->draft_model, err));
    proa_sizes_for_model(&e->sizes, e->model);
    PROA_TRY(proa_sizes_check(&e->sizes, e->model, err));
    proa_sizes_describe(e->plan, &e->sizes, e->model);
    malloc_trim(0); /* returns what reading the JSON files has freed */
    proa_memory_plan(&e->memory, &e->sizes, e->model, e->tokenizer);
    PROA_TRY(proa_memory_check(&e->memory, e->model, err));
    PROA_TRY(proa_model_load(e->model, o ? o->progress : NULL, o ? o->progress_arg : NULL, err));
    PROA_TRY(proa_kv_pages_init(&e->pages, e->device, proa_sizes_pages(&e->sizes), proa_kv_shape_of(e->model),
                                err));
    const proa_state_counts states = proa_sizes_states(&e->sizes);
    PROA_TRY(proa_state_slots_init(&e->states, e->device, &states, proa_model_state(e->model), err));
    PROA_TRY(load_drafts(e, o, err));
    PROA_TRY(proa_rank_set_pages(&e->ranks, &e->pages, e->model, err));
    PROA_TRY(proa_rank_set_states(&e->ranks, &e->states, e->model, err));
    for (const proa_kv_pages *p = &e->pages; e->device->host && p; p = p->attached)
        proa_model_touch(e->pool, p->memory, p->bytes - 9 * p->count);
    PROA_TRY(proa_prefix_levels_open(e, o, err));
    proa_adapters_init(&e->adapters, e->model, e->sizes.adapters_max);
    PROA_TRY(proa_adapters_load_tasks(&e->adapters, path, err));
    for (int32_t i = 0; o && i < o->adapters_count; i++)
        PROA_TRY(proa_adapters_load(&e->adapters, o->adapters[i].name, o->adapters[i].path, err));
    proa_async_steps_init(e);
    proa_pacing_init(e);
    make_arrays(e);
    if (e->tokenizer) e->grammars = proa_grammars_new(make_vocab, e);
    return PROA_OK;
}

proa_status proa_engine_open(proa_engine **out, const char *path, const proa_engine_options *options,
                             proa_err *err)
{
    proa_engine *e = proa_calloc(1, sizeof *e);
    *out = NULL;
    pthread_mutex_init(&e->shared.lock, NULL);
    proa_cond_init(&e->shared.work);
    proa_sessions_init(&e->sessions);
    proa_engine_chat_init(&e->chat);
    proa_jobs_init(&e->shared);
    proa_request_list_init(&e->shared.inbox);
    proa_request_list_init(&e->shared.held);
    proa_request_list_init(&e->running);
    proa_arena_init(&e->arena);
    proa_status status = open_engine(e, path, options, err);
    if (status != PROA_OK) return proa_engine_close(e), status;
    *out = e;
    return PROA_OK;
}

/* What the arena does not hold. */
static void free_arrays(proa_engine *e)
{
    for (int i = 0; e->samplers && i < proa_pool_threads(e->pool); i++) proa_sampler_release(&e->samplers[i]);
    free(e->slots.memory);
    free(e->async.entries);
    free(e->async.masks);
    free(e->head.top);
    free(e->head.processed_logits);
    free(e->head.fetched.logits_copy);
    free(e->head.fetched.hidden_copy);
}

void proa_engine_close(proa_engine *e)
{
    if (!e) return;
    proa_engine_stop(e);
    if (e->model) proa_ranks_wait(e->model); /* later stages may still write pages */
    proa_prefix_cache_flush(e);
    proa_request_list *lists[] = {&e->shared.inbox, &e->shared.held, &e->running};
    proa_kv_handoffs_free(e);
    for (proa_engine_request *req; (req = proa_waiting_pop(&e->waiting));) proa_engine_request_free(req);
    for (size_t i = 0; i < PROA_COUNT(lists); i++)
        for (proa_engine_request *req; (req = proa_request_list_pop(lists[i]));)
            proa_engine_request_free(req);
    proa_client_queues_free(&e->shared);
    proa_sessions_release(&e->sessions);
    proa_engine_chat_release(&e->chat);
    proa_adapters_release_all(&e->adapters);
    free_arrays(e);
    proa_prefix_tree_release(&e->prefixes);
    proa_host_cache_release(&e->host_cache);
    proa_draft_model_free(e);
    proa_medusa_proposer_free(e);
    proa_eagle_proposer_free(e);
    proa_rank_set_release_pages(&e->ranks);
    proa_kv_pages_release(&e->pages);
    proa_state_cache_release(&e->kept_states);
    proa_state_slots_release(&e->states);
    proa_grammars_free(e->grammars);
    proa_tokenizer_free(e->tokenizer);
    proa_model_free(e->model);
    proa_rank_set_close(&e->ranks);
    proa_arena_release(&e->arena);
    proa_jobs_release(&e->shared);
    pthread_cond_destroy(&e->shared.work);
    pthread_mutex_destroy(&e->shared.lock);
    free(e);
}

/* ---- stepping ---- */

bool proa_engine_step(proa_engine *engine)
{
    return proa_sched_step(engine);
}

void proa_engine_run(proa_engine *engine)
{
    while (proa_sched_step(engine)) {
    }
}

/* Polls for a short time before the thread sleeps. A pass on a device can take as little as 0.1 ms, and waking a
 * thread would add a tenth to that. The flag is only a hint; the inbox is read under the lock. */
static void spin_for_work(proa_engine *e)
{
    if (e->device->host) return;
    int64_t until = proa_clock_ns() + PROA_WATCH_NS;
    while (!atomic_load_explicit(&e->shared.work_signalled, memory_order_relaxed) && proa_clock_ns() < until) {
    }
}

/* Under the lock. */
static bool has_work(const proa_engine_shared *s)
{
    return s->inbox.first || s->jobs || s->arriving || s->returned;
}

/* until_ns: when ranks are to be restarted, 0: they work; then a failure of them ends the wait too. */
static bool wait_for_work(proa_engine *e, int64_t until_ns)
{
    if (!until_ns) spin_for_work(e);
    pthread_mutex_lock(&e->shared.lock);
    while (!e->shared.stop && !has_work(&e->shared)) {
        if (until_ns && proa_clock_ns() >= until_ns) break;
        if (!until_ns && e->shared.lost.status != PROA_OK) break;
        int64_t left_ms = (until_ns - proa_clock_ns()) / 1000000 + 1;
        if (until_ns) proa_cond_wait_ms(&e->shared.work, &e->shared.lock, left_ms);
        else pthread_cond_wait(&e->shared.work, &e->shared.lock);
    }
    bool stop = e->shared.stop;
    pthread_mutex_unlock(&e->shared.lock);
    return !stop;
}

static bool is_stopping(proa_engine *e)
{
    pthread_mutex_lock(&e->shared.lock);
    bool stop = e->shared.stop;
    pthread_mutex_unlock(&e->shared.lock);
    return stop;
}

static void *stepping_thread(void *arg)
{
    proa_engine *e = arg;
    int64_t until_ns;
    do { /* what runs since before this thread did, too */
        while (!is_stopping(e) && proa_sched_step(e)) {
        }
        until_ns = proa_recovery_step(e);
    } while (wait_for_work(e, until_ns));
    while (proa_jobs_wait(e)) proa_sched_step(e); /* their callers wait */
    return NULL;
}

proa_status proa_engine_start(proa_engine *e, proa_err *err)
{
    if (e->shared.thread_runs) return PROA_FAIL(err, EXISTS, "the engine's thread runs already");
    e->shared.stop = false;
    pthread_mutex_lock(&e->shared.lock);
    e->shared.thread_runs = pthread_create(&e->shared.thread, NULL, stepping_thread, e) == 0;
    pthread_mutex_unlock(&e->shared.lock);
    if (!e->shared.thread_runs) return PROA_FAIL(err, UNAVAILABLE, "cannot start the engine's thread");
    return PROA_OK;
}

void proa_engine_stop(proa_engine *e)
{
    if (!e->shared.thread_runs) return;
    pthread_mutex_lock(&e->shared.lock);
    e->shared.stop = true;
    atomic_store_explicit(&e->shared.work_signalled, true, memory_order_relaxed);
    pthread_cond_broadcast(&e->shared.work);
    pthread_mutex_unlock(&e->shared.lock);
    pthread_join(e->shared.thread, NULL);
    e->shared.thread_runs = false;
}

/* ---- seeds ---- */

/* SplitMix64 (Steele, Lea, Flood 2014) of the i-th step from seed. */
uint64_t proa_seed_of(uint64_t seed, int32_t i)
{
    if (i == 0) return seed;
    uint64_t z = seed + (uint64_t)i * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
