/* SPDX-License-Identifier: Apache-2.0
 * draft_runs.h - runs in which tokens are drafted in every step, compared with runs without drafts. For tests of
 *                proposers; after engine_test.h. */
#ifndef PROA_TESTS_DRAFT_RUNS_H
#define PROA_TESTS_DRAFT_RUNS_H

#include "engine/engine.h"

enum { RUN_REQUESTS = 8, RUN_PROMPT = 30 };

/* Passes that seem to take so long that any number of draft tokens pays: those of a tiny model are as short as its
 * proposer's. */
static inline void make_drafts_pay(proa_engine *e)
{
    for (int i = 0; i < PROA_DRAFT_SLOTS; i++) e->speculation.times.ns[i] = 1e15;
}

/* Steps until all requests have ended, with drafts in every step. */
static inline void run_drafting(proa_engine *e)
{
    do make_drafts_pay(e);
    while (proa_engine_step(e));
}

static inline void run_with_drafts(proa_engine *e, proa_request r, outcome *o)
{
    submit_or_fail(e, r, o);
    run_drafting(e);
    assert_true(o->done);
}

/* The same tokens, with the same log-probabilities to the last bit (on a device: nearly, up to a near tie). */
static inline void assert_same_runs(const outcome *a, const outcome *b, int count)
{
    for (int i = 0; i < count; i++) {
        assert_true(a[i].done && a[i].finish != PROA_FINISH_ERROR && a[i].beams == b[i].beams);
        if (getenv("PROA_TEST_DEVICE")) {
            assert_same_outcome(&a[i], &b[i], true);
            continue;
        }
        for (int32_t k = 0; k < a[i].beams; k++) {
            assert_int_equal(a[i].beam_count[k], b[i].beam_count[k]);
            assert_memory_equal(a[i].beam_ids[k], b[i].beam_ids[k], (size_t)a[i].beam_count[k] * sizeof(int32_t));
        }
        if (a[i].beams) continue;
        assert_int_equal(a[i].count, b[i].count);
        assert_memory_equal(a[i].ids, b[i].ids, (size_t)a[i].count * sizeof(int32_t));
        assert_same_logprobs(&a[i], &b[i]);
    }
}

/* Request i of a run: one of each kind; those of odd numbers begin with the same tokens. */
static inline proa_request run_request_of(int i, int32_t ids[RUN_PROMPT])
{
    for (int k = 0; k < RUN_PROMPT; k++) ids[k] = ((i % 2 ? 5 : 31 * i) + k * k * 7 + k * 13) % 90 + 3;
    proa_request r = {.ids = ids, .ids_count = i % 2 ? RUN_PROMPT : 6 + 3 * i};
    proa_options *o = &r.options;
    o->max_tokens = 60 - 10 * (i % 3), o->ignore_eos = true, o->seed = (uint64_t)i, o->logprobs = true;
    if (i == 1 || i == 2) o->temperature = 0.3F;
    if (i == 3) o->n = 3, o->temperature = 0.8F;
    if (i == 4) o->repetition_penalty = 1.2F, o->no_repeat_ngram = 3;
    if (i == 5) o->beams = 2, o->logprobs = false;
    if (i == 7) o->max_tokens = 5;
    return r;
}

static inline proa_stats run_all(const char *model, const proa_engine_options *options, outcome o[RUN_REQUESTS])
{
    static int32_t ids[RUN_REQUESTS][RUN_PROMPT];
    proa_stats stats;
    proa_engine *e = open_or_fail(model, options);
    for (int i = 0; i < RUN_REQUESTS; i++) submit_or_fail(e, run_request_of(i, ids[i]), &o[i]);
    run_drafting(e);
    proa_engine_stats(e, &stats);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(e);
    return stats;
}

/* Runs all requests with the heads of options.draft_model and without any. Returns the counts with them. */
static inline proa_stats compare_with_none(const char *model, proa_engine_options options)
{
    static outcome with[RUN_REQUESTS], without[RUN_REQUESTS];
    memset(with, 0, sizeof with), memset(without, 0, sizeof without); /* of a test that failed */
    const proa_engine_options plain = {.threads = 1, .sequences_max = 16, .kv_tokens = 8192};
    run_all(model, &plain, without);
    proa_stats stats = run_all(model, &options, with);
    assert_same_runs(with, without, RUN_REQUESTS);
    for (int i = 0; i < RUN_REQUESTS; i++) outcome_release(&with[i]), outcome_release(&without[i]);
    return stats;
}

#endif
