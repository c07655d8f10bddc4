/* SPDX-License-Identifier: Apache-2.0
 * memory.c - an engine's sizes with their defaults, and the sum of the memory that it will take. */
#include "engine/memory.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "engine/decode/sampler.h"
#include "engine/pacing/prompt_budget.h"
#include "kv/prefix_tree.h"
#include "kv/state_slots.h"
#include "model/lora/lora.h"
#include "model/ranks/ranks.h"
#include "model/staging/staging.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Resident memory of the program and its libraries (11 MiB of files) with a little heap, measured at the peak of a run
 * beyond what is counted below: code comes into memory as it is used. */
#define PROGRAM_BYTES (12 * PROA_MIB)

static proa_status in_range(const char *name, int64_t value, int64_t min, int64_t max, proa_err *err)
{
    if (value >= min && value <= max) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option '%s' is %lld, must be %lld to %lld", name, (long long)value,
                     (long long)min, (long long)max);
}

static proa_status read_policy(bool *evicts, const char *policy, proa_err *err)
{
    *evicts = !policy || strcmp(policy, "max_utilization") == 0;
    if (*evicts || strcmp(policy, "guaranteed_no_evict") == 0) return PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "option 'scheduler-policy' is '%.40s', must be max_utilization or guaranteed_no_evict",
                     policy);
}

#define PREFIX_DIR_BYTES (16 * PROA_GIB)

/* A number of bytes, with K, M or G after it for units of 1024. False: it is none, or too large. */
static bool read_bytes(int64_t *out, const char *text)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || end == text || !isdigit((unsigned char)text[0])) return false;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (*end && (!unit || end[1])) return false;
    return proa_mul(number, unit ? (int64_t)1 << (10 * (unit - units + 1)) : 1, out);
}

static proa_status read_host_memory(int64_t *out, const char *text, proa_err *err)
{
    *out = text && strcmp(text, "auto") == 0 ? -1 : 0;
    if (*out || !text || strcmp(text, "off") == 0 || read_bytes(out, text)) return PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "option 'prefix-host-memory' is '%.40s', must be auto, off, or bytes such as 512M or 4G",
                     text);
}

static proa_status read_folder_size(int64_t *out, const proa_engine_options *o, proa_err *err)
{
    *out = o->prefix_dir ? PREFIX_DIR_BYTES : 0;
    if (!o->prefix_dir_size) return PROA_OK;
    if (!o->prefix_dir) return PROA_FAIL(err, INVALID, "option 'prefix-dir-size' needs a 'prefix-dir'");
    if (read_bytes(out, o->prefix_dir_size) && *out > 0) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option 'prefix-dir-size' is '%.40s', must be bytes such as 512M or 16G",
                     o->prefix_dir_size);
}

static bool is_host(const char *device)
{
    return !device || strcmp(device, "cpu") == 0;
}

static proa_status read_rank_sums(bool *whole, const proa_engine_options *o, proa_err *err)
{
    const char *sums = o->rank_sums ? o->rank_sums : "terms";
    *whole = strcmp(sums, "whole") == 0;
    if (!*whole && strcmp(sums, "terms") != 0)
        return PROA_FAIL(err, INVALID, "option 'rank-sums' is '%.40s', must be terms or whole", sums);
    if (*whole && !is_host(o->device))
        return PROA_FAIL(err, UNSUPPORTED, "option 'rank-sums' is 'whole': it is for ranks on the CPU");
    if (*whole && o->expert_parallel)
        return PROA_FAIL(
            err, INVALID,
            "option 'rank-sums' is 'whole' and 'expert-parallel' is on: the sums over experts are "
            "then of several ranks");
    return PROA_OK;
}

int32_t proa_sizes_sequences(const char *device)
{
    return is_host(device) ? PROA_SEQUENCES_DEFAULT : PROA_DEVICE_SEQUENCES;
}

int32_t proa_sizes_step_tokens(const char *device, bool encoder)
{
    if (is_host(device)) return PROA_STEP_TOKENS_DEFAULT;
    return encoder ? PROA_DEVICE_ENCODER_TOKENS : PROA_DEVICE_STEP_TOKENS;
}

/* A number of rows, or a budget of a step, that was chosen holds for all steps, unless a slowdown was chosen too. */
static proa_status read_prompt_rows(proa_sizes *s, const proa_engine_options *o, proa_err *err)
{
    double slowdown = (double)o->prompt_slowdown;
    PROA_TRY(in_range("prompt-rows", o->prompt_rows, 0, PROA_STEP_TOKENS_MAX, err));
    if (slowdown != 0 && !(slowdown >= 1 && slowdown <= PROA_PROMPT_SLOWDOWN_MAX))
        return PROA_FAIL(err, INVALID, "option 'prompt-slowdown' is %g, must be 1 to %d, or 0", slowdown,
                         PROA_PROMPT_SLOWDOWN_MAX);
    s->prompt_rows = o->prompt_rows ? o->prompt_rows : o->step_tokens;
    s->prompt_slowdown = slowdown != 0 || s->prompt_rows ? slowdown : PROA_PROMPT_SLOWDOWN;
    return PROA_OK;
}

static bool drafts_tokens(const proa_engine_options *o)
{
    return o->draft_model || (o->speculation && strcmp(o->speculation, "none") != 0);
}

/* Rows that a device samples in one step: one for each sequence; if tokens are to be drafted, as many again, so that
 * a full batch can draft, and enough for the trees of a few sequences. */
static int64_t sampled_rows(const proa_sizes *s)
{
    int64_t rows = proa_max64(2 * (int64_t)s->sequences_max, 2 * PROA_TREE_MAX);
    return s->drafts ? proa_max64(s->sequences_max, proa_min64(rows, s->step_tokens)) : s->sequences_max;
}

proa_status proa_sizes_make(proa_sizes *s, const proa_engine_options *options, proa_err *err)
{
    static const proa_engine_options none;
    const proa_engine_options *o = options ? options : &none;
    PROA_TRY(in_range("threads", o->threads, 0, PROA_THREADS_MAX, err));
    PROA_TRY(in_range("sequences", o->sequences_max, 0, PROA_SEQUENCES_MAX, err));
    PROA_TRY(in_range("step-tokens", o->step_tokens, 0, PROA_STEP_TOKENS_MAX, err));
    PROA_TRY(in_range("kv-tokens", o->kv_tokens, 0, (int64_t)1 << 32, err));
    PROA_TRY(in_range("sequences-default", o->sequences_default, 0, PROA_SEQUENCES_MAX, err));
    s->sequences_planned = o->sequences_max == 0;
    s->sequences_max = o->sequences_max       ? o->sequences_max
                       : o->sequences_default ? o->sequences_default
                                              : proa_sizes_sequences(o->device);
    s->step_tokens = o->step_tokens ? o->step_tokens : proa_sizes_step_tokens(o->device, false);
    PROA_TRY(read_prompt_rows(s, o, err));
    s->kv_tokens = o->kv_tokens;
    s->kv_share = (double)o->kv_share;
    if (!(s->kv_share >= 0 && s->kv_share <= 1))
        return PROA_FAIL(err, INVALID, "option 'kv-share' is %g, must be 0 to 1", s->kv_share);
    if (s->kv_share == 0 && !is_host(o->device)) s->kv_share = PROA_DEVICE_KV_SHARE;
    s->threads = o->threads;
    const char *prefix = o->prefix_cache ? o->prefix_cache : "on";
    s->prefix_cache = strcmp(prefix, "on") == 0;
    if (!s->prefix_cache && strcmp(prefix, "off") != 0)
        return PROA_FAIL(err, INVALID, "option 'prefix-cache' is '%.40s', must be on or off", prefix);
    PROA_TRY(read_host_memory(&s->host_bytes, o->prefix_host_memory, err));
    PROA_TRY(read_folder_size(&s->folder_bytes, o, err));
    PROA_TRY(read_policy(&s->evicts, o->policy, err));
    /* Every running sequence has a row in every step. */
    s->step_tokens = proa_max64(s->step_tokens, s->sequences_max);
    s->model = (proa_model_options){.dtype = o->dtype, .quant = o->quant, .kv_dtype = o->kv_dtype};
    s->model.detach = o->detach_files;
    s->model.stages = o->pipeline_parallel;
    s->model.whole_experts = o->expert_parallel;
    PROA_TRY(read_rank_sums(&s->model.whole_sums, o, err));
    s->model.rows_max = s->step_tokens;
    if (!o->step_tokens && !is_host(o->device))
        s->model.encoder_rows = proa_sizes_step_tokens(o->device, true);
    s->drafts = drafts_tokens(o);
    s->model.sampled_rows = sampled_rows(s);
    s->model.head_rows = PROA_HEAD_ROWS;
    s->model.device_head_rows = proa_min64(s->sequences_max, PROA_BEST_ROWS);
    return PROA_OK;
}

/* An estimate of what kernels on a device allocate on first use: the widest step's rows in the weights' type,
 * partial sums of split attention, and workspace for timing algorithms (kernels/cuda/linear/autotune.cu). */
#define DEVICE_SCRATCH_BYTES (256 * PROA_MIB)

/* For each pair of a row and a chosen expert its FFN and its output, in f32 at most (kernels/cuda/experts). */
static int64_t device_experts(const proa_ctx_need *need)
{
    int64_t pairs = proa_min64(need->rows * need->chosen, PROA_DEVICE_EXPERT_PAIRS);
    return need->experts ? pairs * (4 * (need->expert_ffn + need->expert_width) + 64) : 0;
}

static int64_t device_scratch(const proa_model *m)
{
    proa_ctx_need need = proa_model_need(m);
    int64_t widest = proa_max64(need.inputs, m->plan.width[PROA_REG_U]);
    return DEVICE_SCRATCH_BYTES + 6 * need.rows * widest + device_experts(&need) +
           proa_staging_processor_bytes(m);
}

/* What the ranks of a model take in one memory: on the host all of them together, else what the largest one takes. A
 * rank of another process, whose part is not known here, counts as rank 0: parts differ by a head or a layer. */
static int64_t of_ranks(const proa_model *m, int64_t (*bytes)(const proa_model *m, int64_t count), int64_t count)
{
    int64_t sum = 0, most = 0;
    for (int32_t i = 0; i < m->ranks; i++) {
        const proa_model *part = proa_ranks_model(m, i);
        int64_t each = bytes(part ? part : m, count);
        if (each < 0 || !proa_add(sum, each, &sum)) return -1;
        most = proa_max64(most, each);
    }
    return m->device->host ? sum : most;
}

proa_kv_shape proa_kv_shape_of(const proa_model *m)
{
    const proa_config *c = &m->config;
    int64_t columns = c->kv_heads * c->head_dim, encoder = c->encoder_heads * c->encoder_head_dim;
    /* Scratch pages of a rank are those of the stack with more columns. */
    bool of_encoder = m->arch->kind == PROA_KIND_ENCODER && encoder > columns;
    return (proa_kv_shape){.layers = m->kv_layers - m->other_kv_layers,
                           .kv_heads = of_encoder ? c->encoder_heads : c->kv_heads,
                           .head_dim = of_encoder ? c->encoder_head_dim : c->head_dim,
                           .dtype = m->formats.kv,
                           .other_layers = m->other_kv_layers,
                           .other_kv_heads = c->other_kv_heads,
                           .other_head_dim = c->other_head_dim};
}

static int64_t rank_pages(const proa_model *m, int64_t count)
{
    return proa_kv_pages_bytes(count, proa_kv_shape_of(m));
}

static int64_t rank_weights(const proa_model *m, int64_t count)
{
    return count * m->plan.weight_bytes;
}

static int64_t rank_activations(const proa_model *m, int64_t count)
{
    return count * m->plan.activation_bytes;
}

static int64_t rank_scratch(const proa_model *m, int64_t count)
{
    proa_ctx_need need = proa_model_need(m);
    return count * proa_ctx_scratch_bytes(&need, proa_pool_threads(m->ctx.pool));
}

/* Bytes of keys and values of that many pages, with those of the draft model. -1 if the number does not fit. */
static int64_t pages_bytes(const proa_sizes *s, const proa_model *m, int64_t count)
{
    const proa_model *d = s->draft;
    int64_t more = 0;
    int64_t bytes = of_ranks(m, rank_pages, count);
    if (d) more = rank_pages(d, count);
    return bytes < 0 || more < 0 || !proa_add(bytes, more, &bytes) ? -1 : bytes;
}

static int64_t scratch_bytes(const proa_model *m)
{
    return m->device->host ? of_ranks(m, rank_scratch, 1) : device_scratch(m);
}

static int64_t rank_states(const proa_model *m, int64_t count)
{
    return proa_state_slots_bytes(count, proa_model_state(m));
}

/* Of recurrent states. Draft tokens that were wrong are undone. */
proa_state_counts proa_sizes_states(const proa_sizes *s)
{
    return (proa_state_counts){s->sequences_max, s->states_kept, s->drafts};
}

/* Recurrent states of all sequences that can run, and of the prefix cache. */
static int64_t states_bytes(const proa_sizes *s, const proa_model *m)
{
    const proa_state_counts counts = proa_sizes_states(s);
    int64_t bytes = of_ranks(m, rank_states, proa_state_counts_all(&counts));
    return bytes < 0 ? INT64_MAX / 4 : bytes; /* more than there is */
}

/* Of what the weights leave on a host, by default: the memory is not the model's alone. */
#define HOST_KV_SHARE 0.5

/* Weights, activations and recurrent states. */
static int64_t model_bytes(const proa_sizes *s, const proa_model *m)
{
    return of_ranks(m, rank_weights, 1) + of_ranks(m, rank_activations, 1) + states_bytes(s, m);
}

/* Memory of the draft model, but for its keys and values, or of draft heads; what a device's kernels allocate, it
 * shares. */
static int64_t draft_bytes(const proa_sizes *s)
{
    const proa_model *d = s->draft;
    if (!d) return s->heads_bytes;
    return d->plan.weight_bytes + d->plan.activation_bytes + (d->device->host ? scratch_bytes(d) : 0) +
           s->heads_bytes;
}

/* What the device has beside weights, activations, recurrent states and draft model. */
static int64_t free_bytes(const proa_sizes *s, const proa_model *m)
{
    int64_t left = m->device->available(m->device) - model_bytes(s, m) - draft_bytes(s);
    return m->device->host ? left : left - device_scratch(m);
}

/* Sequences with a recurrent state for which there is memory, at least one: beside the keys and values of the longest
 * sequence, or those that were chosen; and of the part that keys and values would get, each with PROA_RECURRENT_TOKENS
 * of these. */
static int32_t recurrent_sequences(const proa_sizes *s, const proa_model *m, int64_t longest)
{
    int64_t pages = proa_ceil_div(s->kv_tokens ? s->kv_tokens : longest, PROA_PAGE_TOKENS);
    int64_t each = proa_ceil_div(proa_min64(PROA_RECURRENT_TOKENS, longest), PROA_PAGE_TOKENS);
    double page = (double)pages_bytes(s, m, 1), state = (double)of_ranks(m, rank_states, s->drafts ? 2 : 1);
    double left = (double)free_bytes(s, m) + (double)states_bytes(s, m),
           most = (left - page * (double)pages) / state;
    double share = s->kv_share > 0 ? s->kv_share : HOST_KV_SHARE;
    if (s->kv_tokens == 0) most = fmin(most, share * left / (state + page * (double)each));
    return (int32_t)fmax(1, fmin(most, s->sequences_max));
}

/* Recurrent states that the prefix cache keeps: one for each sequence, in no more than a quarter of what the keys and
 * values of the longest sequence, or those that were chosen, leave. */
static int32_t planned_states(const proa_sizes *s, const proa_model *m, int64_t longest)
{
    int64_t pages = proa_ceil_div(s->kv_tokens ? s->kv_tokens : longest, PROA_PAGE_TOKENS);
    double left = (double)free_bytes(s, m) - (double)pages_bytes(s, m, 1) * (double)pages;
    double share = s->kv_share > 0 ? s->kv_share : HOST_KV_SHARE;
    double most = share / 4 * left / (double)of_ranks(m, rank_states, 1);
    return (int32_t)fmax(0, fmin(most, s->sequences_max));
}

/* Tokens that fit into the share of the free memory: at least one longest sequence, at most one for each that may
 * run. */
static int64_t shared_tokens(const proa_sizes *s, const proa_model *m, int64_t longest)
{
    int64_t page = pages_bytes(s, m, 1), left = free_bytes(s, m);
    double tokens = s->kv_share * (double)proa_max64(left, 0) / (double)proa_max64(page, 1) * PROA_PAGE_TOKENS;
    double most = (double)longest * s->sequences_max;
    return proa_max64(longest, (int64_t)(tokens < most ? tokens : most));
}

/* Of a model without keys and values pages only count tokens, so nothing that runs waits for them: what bounds them are
 * their tables and the nodes of the prefix tree, some 300 bytes a page. */
#define COUNTED_TOKENS ((int64_t)1 << 22)

static int64_t counted_tokens(const proa_sizes *s, int64_t longest)
{
    return proa_max64(longest, proa_min64(longest * s->sequences_max, COUNTED_TOKENS));
}

/* On the host as many as are computed in about a tenth of a second: 10 GFLOP a thread at the 100 GFLOP/s that bf16
 * products of AVX-512 reach on a core (docs/performance.md), at least HOST_PROMPT_ROWS, where reading the weights costs
 * more than multiplying. On a device 1,024: 15 ms of a model of 8 billion parameters in fp8 on an H200. */
#define HOST_PROMPT_FLOP   1e10
#define HOST_PROMPT_ROWS   32
#define DEVICE_PROMPT_ROWS 1024

static int64_t planned_prompt_rows(const proa_model *m)
{
    if (!m->device->host) return DEVICE_PROMPT_ROWS;
    double flop = HOST_PROMPT_FLOP * proa_pool_threads(m->ctx.pool);
    double rows = flop / (2 * fmax((double)m->plan.parameters, 1));
    return rows > PROA_STEP_TOKENS_MAX ? PROA_STEP_TOKENS_MAX : proa_max64(HOST_PROMPT_ROWS, (int64_t)rows);
}

/* PROA_SEQUENCE_TOKENS for each sequence that may run, in no more than HOST_KV_SHARE of the memory that the weights
 * leave: with fewer pages some sequences wait. */
static int64_t sequence_tokens(const proa_sizes *s, const proa_model *m)
{
    double pages = HOST_KV_SHARE * (double)proa_max64(free_bytes(s, m), 0) /
                   (double)proa_max64(pages_bytes(s, m, 1), 1);
    int64_t fit = (int64_t)pages * PROA_PAGE_TOKENS;
    return proa_min64((int64_t)s->sequences_max * PROA_SEQUENCE_TOKENS, fit);
}

/* Memory of the host beside a device, if "auto" asks for it: as much as others pin (vLLM's swap space), within a
 * quarter of what there is, and no more than HOST_CACHE_POOLS times the pages on the device: pinning 4 GiB takes
 * seconds, which a model with a small pool has no use for. Where the model runs on the host, a second copy of the same
 * kind would only take memory from the first. */
#define HOST_CACHE_BYTES (4 * PROA_GIB)
#define HOST_CACHE_POOLS 4

static int64_t planned_host_bytes(const proa_sizes *s, const proa_model *m)
{
    if (m->device->host) return 0;
    int64_t pool = pages_bytes(s, m, proa_sizes_pages(s)), most = HOST_CACHE_BYTES;
    if (pool >= 0 && pool < most / HOST_CACHE_POOLS) most = HOST_CACHE_POOLS * pool;
    return proa_min64(most, proa_memory_available() / 4);
}

/* How many sequences with recurrent states run, and how many states the prefix cache keeps: without any it is off. */
static void plan_states(proa_sizes *s, const proa_model *m, int64_t longest)
{
    if (!proa_model_state(m)) return;
    if (s->sequences_planned) s->sequences_max = recurrent_sequences(s, m, longest);
    if (s->prefix_cache) s->states_kept = planned_states(s, m, longest);
    s->prefix_cache = s->states_kept > 0;
}

/* The levels of the prefix cache. */
static void plan_prefixes(proa_sizes *s, const proa_model *m)
{
    if (m->arch->kind == PROA_KIND_ENCODER) s->prefix_cache = false;
    if (s->host_bytes < 0) s->host_bytes = planned_host_bytes(s, m);
    if (!s->prefix_cache || proa_model_state(m)) s->host_bytes = s->folder_bytes = 0;
    if (s->folder_bytes)
        s->host_bytes = proa_max64(s->host_bytes, PROA_PREFIX_IMAGES_MIN * pages_bytes(s, m, 1));
}

void proa_sizes_for_model(proa_sizes *s, const proa_model *m)
{
    if (m->arch->kind == PROA_KIND_ENCODER) s->step_tokens = m->plan.rows_max;
    if (s->prompt_rows == 0) s->prompt_rows = planned_prompt_rows(m);

    int64_t longest = m->config.context;
    if (m->arch->kind == PROA_KIND_ENCODER_DECODER)
        longest += proa_min64(proa_config_input_context(&m->config), PROA_STEP_TOKENS_MAX);
    plan_states(s, m, longest);
    if (s->kv_tokens == 0 && m->kv_layers == 0) s->kv_tokens = counted_tokens(s, longest);
    if (s->kv_tokens == 0 && s->kv_share > 0) s->kv_tokens = shared_tokens(s, m, longest);
    if (s->kv_tokens == 0) s->kv_tokens = proa_max64(longest, sequence_tokens(s, m));
    plan_prefixes(s, m);
}

void proa_sizes_describe(char out[PROA_PLAN_TEXT], const proa_sizes *s, const proa_model *m)
{
    const proa_formats *f = &m->formats;
    char kv[96] = "", cut[112] = "", host[96] = "", folder[64] = "", states[96] = "";
    bool rounds = f->host && f->main == PROA_WFMT_BF16DOT;
    if (s->prompt_slowdown > 0)
        snprintf(cut, sizeof cut, ", up to %lld of prompts beside tokens (--prompt-rows, --prompt-slowdown %g)",
                 (long long)proa_min64(s->prompt_rows, s->step_tokens), s->prompt_slowdown);
    else if (s->prompt_rows < s->step_tokens)
        snprintf(cut, sizeof cut, ", %lld of prompts beside tokens (--prompt-rows)", (long long)s->prompt_rows);
    if (m->kv_layers)
        snprintf(kv, sizeof kv, "; keys and values of %lld tokens (--kv-tokens) in %s (--kv-dtype)",
                 (long long)s->kv_tokens, proa_dtype_name(f->kv));
    if (proa_sizes_host_pages(s, m))
        snprintf(host, sizeof host, "; cached prefixes of %lld tokens more in host memory (--prefix-host-memory)",
                 (long long)proa_sizes_host_pages(s, m) * PROA_PAGE_TOKENS);
    if (s->folder_bytes)
        snprintf(folder, sizeof folder, "; a folder of %.1f GB for them (--prefix-dir-size)",
                 (double)s->folder_bytes / 1e9);
    if (proa_model_state(m))
        snprintf(states, sizeof states,
                 "; recurrent states of %.1f MB each, %.1f MB (--sequences), %d of them cached",
                 (double)of_ranks(m, rank_states, 1) / 1e6, (double)states_bytes(s, m) / 1e6, s->states_kept);
    snprintf(
        out, PROA_PLAN_TEXT, "%d sequences (--sequences); steps of %lld rows (--step-tokens)%s%s%s%s%s; %s",
        s->sequences_max, (long long)s->step_tokens, cut, kv, states, host, folder,
        rounds ? "inputs of matrices rounded to bf16 (--dtype exact: f32)" : "arithmetic as stored (--dtype)");
}

int64_t proa_sizes_pages(const proa_sizes *s)
{
    return proa_ceil_div(s->kv_tokens, PROA_PAGE_TOKENS);
}

int64_t proa_sizes_host_pages(const proa_sizes *s, const proa_model *m)
{
    return proa_min64(INT32_MAX, s->host_bytes / proa_max64(pages_bytes(s, m, 1), 1));
}

int64_t proa_sizes_table(const proa_model *m)
{
    return proa_ceil_div(proa_max64(m->config.context, m->plan.rows_max), PROA_PAGE_TOKENS) + 1;
}

proa_status proa_sizes_check(const proa_sizes *s, const proa_model *m, proa_err *err)
{
    int64_t most = INT32_MAX / (PROA_TABLES * proa_sizes_table(m));
    if (s->sequences_max <= most) return PROA_OK;
    return PROA_FAIL(
        err, LIMIT, "%d sequences of %lld tokens have more pages than can be counted; --sequences %lld would do",
        s->sequences_max, (long long)m->config.context, (long long)most);
}

/* Arrays of a step, page tables, the samplers' scratch. */
static int64_t bookkeeping_bytes(const proa_sizes *s, const proa_model *m)
{
    int64_t tables = PROA_TABLES * (int64_t)s->sequences_max * proa_sizes_table(m) * 4;
    int64_t samplers = proa_pool_threads(m->ctx.pool) * proa_sampler_bytes(m->plan.width[PROA_REG_OUT]);
    if (m->arch->kind == PROA_KIND_ENCODER) samplers = 0;
    if (s->prefix_cache) tables += proa_prefix_tree_bytes(proa_sizes_pages(s));
    if (s->states_kept) tables += proa_state_cache_bytes(s->states_kept, proa_sizes_pages(s));
    if (s->host_bytes) tables += proa_host_cache_bytes(proa_sizes_host_pages(s, m));
    return tables + samplers + 100 * m->plan.rows_max + (int64_t)m->arena.bytes;
}

void proa_memory_plan(proa_memory *memory, const proa_sizes *s, const proa_model *m,
                      const proa_tokenizer *tokenizer)
{
    *memory = (proa_memory){.weights = of_ranks(m, rank_weights, 1),
                            .activations = of_ranks(m, rank_activations, 1)};
    memory->scratch = scratch_bytes(m);
    memory->page = pages_bytes(s, m, 1);
    memory->kv = pages_bytes(s, m, proa_sizes_pages(s));
    memory->draft = draft_bytes(s);
    memory->states = states_bytes(s, m);
    if (memory->kv < 0) memory->kv = INT64_MAX / 4;
    memory->tokenizer = tokenizer ? proa_tokenizer_bytes(tokenizer) : 0;
    memory->bookkeeping = bookkeeping_bytes(s, m);
    /* images are in host memory; on the host each rank has its parts of those in slots */
    memory->adapters = proa_lora_slot_bytes(m) + proa_lora_sums_bytes(m) + proa_lora_stack_bytes(m);
    memory->weights -= proa_lora_stack_bytes(m);
    if (m->device->host)
        memory->adapters = s->adapters_max * proa_lora_image_bytes(m) + m->ranks * proa_lora_slot_bytes(m);
    memory->program = PROGRAM_BYTES;
    memory->host_cache = proa_sizes_host_pages(s, m) * memory->page;
    memory->total = memory->weights + memory->activations + memory->scratch + memory->kv + memory->adapters +
                    memory->draft + memory->states;
    if (!m->device->host) return;
    int64_t pages = proa_max64(proa_sizes_pages(s), 1);
    memory->total += memory->tokenizer + memory->bookkeeping + memory->program + memory->host_cache;
    if (s->prefix_cache) memory->page_nodes = proa_ceil_div(proa_prefix_tree_bytes(pages), pages);
}

/* Tokens whose keys and values fit beside everything else, in whole pages. */
static int64_t tokens_that_fit(const proa_memory *memory, int64_t available)
{
    if (memory->page <= 0) return 0;
    int64_t nodes = memory->kv / memory->page * memory->page_nodes;
    int64_t left = available - (memory->total - memory->kv - nodes);
    return left <= 0 ? 0 : left / (memory->page + memory->page_nodes) * PROA_PAGE_TOKENS;
}

/* The total with matrices in another format; 0: the format is not offered or not smaller. */
static int64_t total_as(const proa_memory *memory, const proa_model *m, proa_wfmt format)
{
    const int64_t rows = 4096, cols = 4096; /* of a size at which padding does not show */
    int64_t now = m->ctx.ops->pack_bytes(m->formats.main, rows, cols),
            then = m->ctx.ops->pack_bytes(format, rows, cols);
    if (then <= 0 || now <= then) return 0;
    double less = (double)m->plan.matrix_bytes * (1 - (double)then / (double)now);
    return memory->total - (int64_t)less;
}

/* The first --quant with which the total fits, with unchanged keys and values. */
static bool quant_that_fits(char *out, size_t size, const proa_memory *memory, const proa_model *m,
                            int64_t available)
{
    const struct {
        const char *name;
        proa_wfmt format;
    } quants[] = {{"int8", m->device->host ? PROA_WFMT_I8 : PROA_WFMT_I8W},
                  {"int4", m->device->host ? PROA_WFMT_Q4_0 : PROA_WFMT_I4}};
    for (size_t i = 0; i < PROA_COUNT(quants); i++) {
        int64_t total = total_as(memory, m, quants[i].format);
        if (total == 0 || total > available) continue;
        snprintf(out, size, "; --quant %s would need %.1f MB", quants[i].name, (double)total / 1e6);
        return true;
    }
    return false;
}

/* What would fit, for the end of the error text. */
static void say_what_fits(char *out, size_t size, const proa_memory *memory, const proa_model *m, int64_t available)
{
    int64_t tokens = tokens_that_fit(memory, available);
    if (tokens >= PROA_PAGE_TOKENS) snprintf(out, size, "; --kv-tokens %lld would fit", (long long)tokens);
    else if (!quant_that_fits(out, size, memory, m, available))
        snprintf(out, size, "; the weights alone are too large");
}

/* On a device the second level of the prefix cache is beside all that the total counts. */
static proa_status check_host_cache(const proa_memory *memory, const proa_model *m, proa_err *err)
{
    int64_t available = proa_memory_available();
    if (m->device->host || memory->host_cache <= available) return PROA_OK;
    return PROA_FAIL(
        err, NO_MEMORY,
        "cached prefixes need %.1f MB of the host's memory (--prefix-host-memory), %.1f MB are available",
        (double)memory->host_cache / 1e6, (double)available / 1e6);
}

proa_status proa_memory_check(const proa_memory *memory, const proa_model *m, proa_err *err)
{
    int64_t available = m->device->available(m->device);
    char fits[96], rest[64] = "", adapters[64] = "", cached[64] = "", draft[64] = "", states[64] = "";
    PROA_TRY(check_host_cache(memory, m, err));
    if (memory->total <= available) return PROA_OK;
    say_what_fits(fits, sizeof fits, memory, m, available);
    if (m->device->host)
        snprintf(rest, sizeof rest, ", the rest %.1f MB",
                 (double)(memory->tokenizer + memory->bookkeeping + memory->program) / 1e6);
    if (memory->adapters)
        snprintf(adapters, sizeof adapters, ", adapters %.1f MB (--lora-max, --lora-rank)",
                 (double)memory->adapters / 1e6);
    if (m->device->host && memory->host_cache)
        snprintf(cached, sizeof cached, ", cached prefixes %.1f MB (--prefix-host-memory)",
                 (double)memory->host_cache / 1e6);
    if (memory->draft)
        snprintf(draft, sizeof draft, ", draft model %.1f MB (--draft-model)", (double)memory->draft / 1e6);
    if (memory->states)
        snprintf(states, sizeof states, ", recurrent states %.1f MB (--sequences)", (double)memory->states / 1e6);
    return PROA_FAIL(
        err, NO_MEMORY,
        "needs %.1f MB of memory on %s, %.1f MB are available: weights %.1f MB, keys and values %.1f MB "
        "(--kv-tokens), activations %.1f MB and scratch %.1f MB (--step-tokens)%s%s%s%s%s%s",
        (double)memory->total / 1e6, m->device->name, (double)available / 1e6, (double)memory->weights / 1e6,
        (double)memory->kv / 1e6, (double)memory->activations / 1e6, (double)memory->scratch / 1e6, states,
        adapters, cached, draft, rest, fits);
}
