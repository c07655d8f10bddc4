/* SPDX-License-Identifier: Apache-2.0
 * measure.c - measures one batch size: rates, time to first token, latency between tokens. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cli/bench/bench.h"
#include "engine/access.h"
#include "engine/memory.h"
#include <math.h>
#include <string.h>

/* A measured sequence. */
typedef struct sequence {
    struct trial *trial;
    uint64_t id;
    int64_t first_ns, last_ns; /* 0: no token yet */
    bool done;
} sequence;

typedef struct trial {
    proa_engine *engine;
    sequence *seq;                    /* [batch], one batch after the other */
    int32_t *ids;                     /* [batch][prompt] */
    int64_t batch, started, finished; /* with a first token; done */
    int64_t submitted;
    int64_t tokens; /* new ones of all sequences */
    double *gaps;   /* seconds between two tokens of a sequence */
    int64_t gaps_count, gaps_cap;
    proa_err err;
} trial;

static void add_gap(trial *t, int64_t ns)
{
    if (t->gaps_count == t->gaps_cap)
        t->gaps = proa_realloc(t->gaps,
                               (size_t)(t->gaps_cap = t->gaps_cap ? 2 * t->gaps_cap : 4096) * sizeof *t->gaps);
    t->gaps[t->gaps_count++] = (double)ns * 1e-9;
}

static void on_event(const proa_event *e)
{
    sequence *s = e->arg;
    trial *t = s->trial;
    int64_t now = proa_clock_ns();
    if (e->kind == PROA_EVENT_TOKEN) {
        t->tokens++;
        if (s->first_ns) add_gap(t, now - s->last_ns);
        else s->first_ns = now, t->started++;
        s->last_ns = now;
    } else if (e->kind == PROA_EVENT_DONE) {
        s->done = true;
        t->finished++;
        if (e->error && t->err.status == PROA_OK) t->err = *e->error;
    }
}

/* Prompts that are the same in every run and on every machine (a 64-bit linear congruential generator, Knuth's
 * constants), and never one of the first few ids, where special tokens live. */
static void fill_ids(int32_t *ids, int64_t count, int32_t vocab, uint64_t seed)
{
    int32_t low = vocab > 64 ? 16 : 0;
    uint64_t state = seed * 2654435761u + 88172645463325252u;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = low + (int32_t)((state >> 33) % (uint64_t)(vocab - low));
    }
}

/* Makes the prompts before the clock starts. */
static void make_ids(const proa_bench *b, trial *t)
{
    t->ids = proa_malloc((size_t)(t->batch * b->prompt) * sizeof *t->ids);
    for (int64_t i = 0; i < t->batch; i++) {
        fill_ids(t->ids + i * b->prompt, b->prompt, b->session->info.vocab,
                 (uint64_t)b->common.seed + (uint64_t)i);
        proa_engine_end_prompt(t->engine, t->ids + i * b->prompt, b->prompt);
    }
}

static proa_status submit_all(const proa_bench *b, trial *t, proa_err *err)
{
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < t->batch && status == PROA_OK; i++) {
        sequence *seq = &t->seq[t->submitted++];
        char adapter[32];
        snprintf(adapter, sizeof adapter, "random-%lld", (long long)(b->adapters ? i % b->adapters : 0));
        *seq = (sequence){.trial = t};
        proa_request request = {.task = proa_bench_is_encoder(b) ? PROA_TASK_ROWS : PROA_TASK_GENERATE,
                                .ids = t->ids + i * b->prompt,
                                .ids_count = b->prompt,
                                .on_event = on_event,
                                .arg = seq,
                                .options = {.max_tokens = (int32_t)proa_bench_max_tokens(b, t->batch),
                                            .temperature = (float)b->temperature,
                                            .top_k = (int32_t)b->top_k,
                                            .seed = (uint64_t)b->common.seed + (uint64_t)i,
                                            .adapter = b->adapters ? adapter : NULL,
                                            .ignore_eos = true}};
        status = proa_engine_submit(t->engine, &request, &seq->id, err);
    }
    return status;
}

/* Cancels every sequence and waits, because their memory is freed afterwards. */
static void drain_events(trial *t)
{
    for (int64_t i = 0; i < t->submitted; i++)
        if (!t->seq[i].done) proa_engine_cancel(t->engine, t->seq[i].id);
    while (proa_engine_step(t->engine)) continue;
}

static proa_status go_on(const trial *t, proa_err *err)
{
    if (proa_interrupted()) return PROA_FAIL(err, CANCELLED, "cancelled");
    if (t->err.status == PROA_OK) return PROA_OK;
    return proa_err_set(err, t->err.status, t->err.file, t->err.line, "%s", t->err.text);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts; part in [0,1]. */
static double quantile_of(double *values, int64_t count, double part)
{
    if (count == 0) return 0;
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[(int64_t)(part * (double)(count - 1) + 0.5)];
}

static double median_first(const trial *t, int64_t start)
{
    double *first = proa_malloc((size_t)t->batch * sizeof *first);
    for (int64_t i = 0; i < t->batch; i++) first[i] = (double)(t->seq[i].first_ns - start) * 1e-9;
    double median = quantile_of(first, t->batch, 0.5);
    free(first);
    return median;
}

/* A token more for each sequence, on average: one step of the engine, or several of which each has a part of the
 * sequences (stages of a pipeline). False: there is nothing to run. */
static bool decode_all(trial *t, proa_err *err)
{
    for (int64_t end = t->tokens + t->batch; t->tokens < end;)
        if (!proa_engine_step(t->engine) || go_on(t, err) != PROA_OK) return false;
    return true;
}

/* Runs until every sequence has its first token, and then until each has `tokens` more. */
static proa_status decode_trial(const proa_bench *b, trial *t, proa_bench_row *row, proa_err *err)
{
    int64_t start = proa_clock_ns();
    PROA_TRY(submit_all(b, t, err));
    while (t->started < t->batch) {
        if (!proa_engine_step(t->engine))
            return PROA_FAIL(err, INTERNAL, "a sequence ended before its first token");
        PROA_TRY(go_on(t, err));
    }
    int64_t ready = proa_clock_ns(), last = ready;
    double *steps = proa_malloc((size_t)b->tokens * sizeof *steps);
    int64_t n = 0;
    for (; n < b->tokens && decode_all(t, err); n++) {
        int64_t now = proa_clock_ns();
        steps[n] = (double)(now - last) * 1e-9;
        last = now;
    }
    row->prompt_rate = (double)(t->batch * b->prompt) / ((double)(ready - start) * 1e-9);
    row->ready_s = (double)(ready - start) * 1e-9;
    row->total_rate = (double)t->tokens / ((double)(last - start) * 1e-9);
    row->first_s = median_first(t, start);
    row->decode_rate = (double)(t->batch * n) / ((double)(last - ready) * 1e-9);
    row->step_s = quantile_of(steps, n, 0.5);
    row->between_s = quantile_of(t->gaps, t->gaps_count, 0.5);
    row->between_p99_s = quantile_of(t->gaps, t->gaps_count, 0.99);
    free(steps);
    if (n < b->tokens) PROA_TRY(go_on(t, err));
    if (n < b->tokens || t->finished)
        return PROA_FAIL(err, INTERNAL, "sequences ended after %lld of %lld steps", (long long)n,
                         (long long)b->tokens);
    return PROA_OK;
}

static int64_t step_budget(const proa_bench *b)
{
    if (b->common.step_tokens) return b->common.step_tokens;
    return proa_sizes_step_tokens(b->common.device, proa_bench_is_encoder(b));
}

/* The time of that many batches, all submitted at once, in seconds. */
static proa_status encode_batches(const proa_bench *b, trial *t, int64_t batches, double *seconds, proa_err *err)
{
    int64_t start = proa_clock_ns();
    for (int64_t i = 0; i < batches; i++) PROA_TRY(submit_all(b, t, err));
    while (t->finished < t->submitted) {
        if (!proa_engine_step(t->engine)) return PROA_FAIL(err, INTERNAL, "a sequence is not done");
        PROA_TRY(go_on(t, err));
    }
    *seconds = (double)(proa_clock_ns() - start) * 1e-9;
    return PROA_OK;
}

/* Batches queued behind each other, for batches that fill a step; otherwise several would share a step. So many that
 * the time until all stages of a pipeline have work counts little. */
enum { FOLLOWING = 16 };

static int64_t following_batch(const proa_bench *b, int64_t batch)
{
    bool device = strcmp(b->common.device, "cpu") != 0; /* on devices that can launch the next step early */
    int64_t budget = step_budget(b);
    return device && 2 * batch * b->prompt > budget ? FOLLOWING : 0;
}

/* Measures a batch alone, and then batches queued behind each other. */
static proa_status encode_trial(const proa_bench *b, trial *t, proa_bench_row *row, proa_err *err)
{
    int64_t more = following_batch(b, t->batch);
    PROA_TRY(encode_batches(b, t, 1, &row->step_s, err));
    row->ready_s = row->step_s;
    if (more) PROA_TRY(encode_batches(b, t, more, &row->ready_s, err));
    if (more) row->ready_s /= (double)more;
    row->sequence_rate = (double)t->batch / row->ready_s;
    row->prompt_rate = row->sequence_rate * (double)b->prompt;
    return PROA_OK;
}

static proa_status run_trial(const proa_bench *b, proa_bench_row *row, proa_err *err)
{
    trial t = {.engine = b->session->engine, .batch = row->batch};
    t.seq = proa_calloc((size_t)(t.batch * (1 + FOLLOWING)), sizeof *t.seq);
    make_ids(b, &t);
    proa_status status = proa_bench_is_encoder(b) ? encode_trial(b, &t, row, err)
                                                  : decode_trial(b, &t, row, err);
    drain_events(&t);
    free(t.gaps);
    free(t.seq);
    free(t.ids);
    return status;
}

static int by_speed(const void *a, const void *b)
{
    const proa_bench_row *x = a, *y = b;
    double p = x->decode_rate + x->sequence_rate, q = y->decode_rate + y->sequence_rate;
    return (p > q) - (p < q);
}

proa_status proa_bench_measure(proa_bench *b, proa_bench_row *row, proa_err *err)
{
    /* the median trial by its rate, all numbers from the same one */
    int64_t batch = row->batch;
    proa_bench_row *trials = proa_calloc((size_t)b->repeats, sizeof *trials);
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < b->repeats && status == PROA_OK; i++) {
        trials[i].batch = batch;
        status = run_trial(b, &trials[i], err);
    }
    if (status == PROA_OK) {
        qsort(trials, (size_t)b->repeats, sizeof *trials, by_speed);
        *row = trials[(b->repeats - 1) / 2];
        if (!proa_bench_is_encoder(b)) row->bytes_rate = proa_bench_step_bytes(b, batch) / row->step_s;
        row->share = b->bandwidth > 0 ? row->bytes_rate / b->bandwidth : 0;
        row->step_share = proa_bench_step_floor(b, batch) / row->step_s;
        row->ready_share = proa_bench_prompt_floor(b, batch) / row->ready_s;
    }
    free(trials);
    return status;
}

int64_t proa_bench_max_tokens(const proa_bench *b, int64_t batch)
{
    /* prefills share steps with decoding: in the worst case one row of the budget is left each step */
    int64_t budget = step_budget(b);
    if (batch == 1) return b->tokens + 2; /* no other's prompt */
    int64_t room = proa_max64(budget - batch, 1);
    return b->tokens + proa_ceil_div(batch * b->prompt, room) + batch / 8 + 8;
}

int64_t proa_bench_sequence_tokens(const proa_bench *b, int64_t batch)
{
    int64_t new_tokens = proa_bench_max_tokens(b, batch), page = PROA_PAGE_TOKENS;
    if (b->session && b->session->info.kind == PROA_KIND_DECODER)
        return proa_round_up(b->prompt + new_tokens, page);
    return proa_round_up(b->prompt, page) + proa_round_up(new_tokens + 1, page);
}

bool proa_bench_is_encoder(const proa_bench *b)
{
    return b->session->info.kind == PROA_KIND_ENCODER;
}

bool proa_bench_in_cache(const proa_bench *b)
{
    return b->session->info.weight_bytes <= b->cache_bytes;
}
