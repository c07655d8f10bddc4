/* SPDX-License-Identifier: Apache-2.0
 * engine_test.h - what the engine's tests share: a request whose events are collected, and paths. */
#ifndef ENGINE_TEST_H
#define ENGINE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "proa/proa.h"
#include <cmocka.h>
#include <math.h>

/* All that one request said. Zero it, give it as arg, release it. */
typedef struct outcome {
    int32_t *ids;
    float *logprobs;
    int64_t count, room;
    float *hidden;        /* of the tokens that have them, [count][hidden_width] */
    int64_t hidden_width; /* set by the test; 0: they are not kept */
    float *rows;
    int64_t rows_count, columns;
    float *pooled;
    char text[4096];
    size_t text_len;
    int32_t beams;
    int32_t *beam_ids[16];
    int64_t beam_count[16];
    float beam_score[16];
    char beam_text[16][1024];
    proa_finish finish;
    atomic_bool done; /* after all else is there: tests may wait for it while the engine runs */
    char error[512];
    int64_t new_tokens, cached_tokens;
} outcome;

static inline void outcome_token(outcome *o, const proa_event *event)
{
    if (o->count == o->room) {
        o->room = o->room ? 2 * o->room : 64;
        o->ids = realloc(o->ids, (size_t)o->room * sizeof *o->ids);
        o->logprobs = realloc(o->logprobs, (size_t)o->room * sizeof *o->logprobs);
        if (o->hidden_width)
            o->hidden = realloc(o->hidden, (size_t)(o->room * o->hidden_width) * sizeof(float));
    }
    size_t width = (size_t)o->hidden_width;
    if (width && event->hidden)
        memcpy(o->hidden + (size_t)o->count * width, event->hidden, width * sizeof(float));
    o->ids[o->count] = event->id;
    o->logprobs[o->count++] = event->logprob;
}

static inline void outcome_text(outcome *o, const proa_event *event)
{
    assert_true(o->text_len + event->text_len < sizeof o->text);
    memcpy(o->text + o->text_len, event->text, event->text_len);
    o->text_len += event->text_len;
}

static inline void outcome_rows(outcome *o, const proa_event *event)
{
    size_t bytes = (size_t)(event->rows_count * event->columns) * sizeof(float);
    o->columns = event->columns;
    if (event->pooled) {
        o->pooled = malloc((size_t)event->columns * sizeof(float));
        memcpy(o->pooled, event->pooled, (size_t)event->columns * sizeof(float));
    }
    if (!event->rows) return;
    assert_int_equal(event->rows_first, o->rows_count);
    o->rows = realloc(o->rows, (size_t)(o->rows_count * event->columns) * sizeof(float) + bytes);
    memcpy(o->rows + o->rows_count * event->columns, event->rows, bytes);
    o->rows_count += event->rows_count;
}

static inline void outcome_done(outcome *o, const proa_event *event)
{
    o->finish = event->finish;
    o->new_tokens = event->new_tokens;
    o->cached_tokens = event->cached_tokens;
    if (event->error) snprintf(o->error, sizeof o->error, "%s", event->error->text);
    o->beams = event->beams_count < 16 ? event->beams_count : 16;
    for (int32_t i = 0; i < o->beams; i++) {
        const proa_beam_result *b = &event->beams[i];
        o->beam_ids[i] = malloc((size_t)(b->count ? b->count : 1) * sizeof(int32_t));
        memcpy(o->beam_ids[i], b->ids, (size_t)b->count * sizeof(int32_t));
        o->beam_count[i] = b->count;
        o->beam_score[i] = b->score;
        snprintf(o->beam_text[i], sizeof o->beam_text[i], "%s", b->text ? b->text : "");
    }
    o->done = true;
}

static inline void collect(const proa_event *event)
{
    outcome *o = event->arg;
    assert_false(o->done);
    if (event->kind == PROA_EVENT_TOKEN) outcome_token(o, event);
    if (event->kind == PROA_EVENT_ROWS) outcome_rows(o, event);
    if (event->kind != PROA_EVENT_ROWS) outcome_text(o, event);
    if (event->kind == PROA_EVENT_DONE) outcome_done(o, event);
}

static inline void outcome_release(outcome *o)
{
    free(o->ids);
    free(o->logprobs);
    free(o->hidden);
    free(o->rows);
    free(o->pooled);
    for (int32_t i = 0; i < o->beams; i++) free(o->beam_ids[i]);
    *o = (outcome){0};
}

/* The format in which the tests compare bits: the checkpoint's own; on a device f32, where "exact" would leave the
 * activations of many rows in 16 bits. */
static inline const char *exact_dtype(void)
{
    return getenv("PROA_TEST_DEVICE") ? "f32" : "exact";
}

/* With PROA_TEST_DEVICE=cuda the tests run there; what the CPU gives to the bit is nearly the same there. With
 * PROA_TEST_TP=2 the model is divided among two ranks, with PROA_TEST_PP=2 among two stages; a model that cannot be, is
 * refused by UNSUPPORTED, and its test is skipped. */
static inline proa_engine *open_or_fail(const char *path, const proa_engine_options *options)
{
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    proa_engine_options all = options ? *options : (proa_engine_options){.device = NULL};
    if (getenv("PROA_TEST_DEVICE")) all.device = getenv("PROA_TEST_DEVICE");
    if (getenv("PROA_TEST_TP")) all.tensor_parallel = atoi(getenv("PROA_TEST_TP"));
    if (getenv("PROA_TEST_PP")) all.pipeline_parallel = atoi(getenv("PROA_TEST_PP"));
    if (getenv("PROA_TEST_EP")) all.expert_parallel = true;
    if (getenv("PROA_TEST_SUMS")) all.rank_sums = getenv("PROA_TEST_SUMS");
    if (getenv("PROA_TEST_RANKS")) all.ranks = getenv("PROA_TEST_RANKS");
    if (!all.dtype) all.dtype = exact_dtype();
    proa_status status = proa_engine_open(&engine, path, &all, &err);
    if (status == PROA_UNSUPPORTED && (getenv("PROA_TEST_TP") || getenv("PROA_TEST_PP"))) {
        print_message("%s\n", err.text);
        skip();
    }
    if (status != PROA_OK) fail_msg("%s: %s", path, err.text);
    return engine;
}

/* Rows of two runs: to the bit; on a device within 1e-3 of the largest value, because kernels for other numbers of rows
 * add in another order. */
static inline void assert_same_floats(const float *a, const float *b, int64_t count)
{
    float largest = 0;
    if (!getenv("PROA_TEST_DEVICE")) {
        assert_memory_equal(a, b, (size_t)count * sizeof *a);
        return;
    }
    for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(a[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-3F * largest))
            fail_msg("%lld: %g and %g", (long long)i, (double)a[i], (double)b[i]);
}

/* Log-probabilities: to the bit; on a device nearly, since a row's sums depend there on who shares its step. */
static inline void assert_same_logprobs(const outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    if (!getenv("PROA_TEST_DEVICE")) {
        assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->count * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < a->count; i++)
        if (!(fabsf(a->logprobs[i] - b->logprobs[i]) < 1e-3F))
            fail_msg("%lld: %g and %g", (long long)i, (double)a->logprobs[i], (double)b->logprobs[i]);
}

/* Ids, log-probabilities if there are any, rows and beams of two runs of one request: to the bit. On a device values
 * are nearly the same, and a token may be another one where the likeliest are as near as that; what follows it is then
 * another text. Draws (`sampled`) can be another token anywhere. */
static inline void assert_same_outcome(const outcome *a, const outcome *b, bool sampled)
{
    bool exact = !getenv("PROA_TEST_DEVICE"), same_text = true;
    const float reach = exact ? 0 : 1e-3F;
    if (a->error[0] || b->error[0]) fail_msg("%s %s", a->error, b->error);
    assert_int_equal(a->count, b->count);
    if (exact) assert_int_equal(a->new_tokens, b->new_tokens);
    for (int64_t i = 0; i < a->count && same_text; i++) {
        same_text = a->ids[i] == b->ids[i];
        bool other_draw = !exact && sampled && !same_text;
        bool near = fabsf(a->logprobs[i] - b->logprobs[i]) <= reach;
        if (!other_draw && !(near && (same_text || !exact)))
            fail_msg("token %lld: %d with %g and %d with %g", (long long)i, a->ids[i], (double)a->logprobs[i],
                     b->ids[i], (double)b->logprobs[i]);
    }
    assert_int_equal(a->rows_count, b->rows_count);
    for (int64_t i = 0; i < a->rows_count * a->columns; i++)
        if (!(fabsf(a->rows[i] - b->rows[i]) <= reach * fmaxf(1, fabsf(b->rows[i]))))
            fail_msg("value %lld: %g and %g", (long long)i, (double)a->rows[i], (double)b->rows[i]);
    assert_int_equal(a->beams, b->beams);
    for (int32_t i = 0; i < a->beams; i++) {
        if (!(fabsf(a->beam_score[i] - b->beam_score[i]) <= reach))
            fail_msg("beam %d: %g and %g", i, (double)a->beam_score[i], (double)b->beam_score[i]);
        if (!exact) continue; /* two beams of the same score may change places */
        assert_int_equal(a->beam_count[i], b->beam_count[i]);
        assert_memory_equal(a->beam_ids[i], b->beam_ids[i], (size_t)a->beam_count[i] * sizeof(int32_t));
    }
}

static inline void submit_or_fail(proa_engine *engine, proa_request request, outcome *o)
{
    proa_err err = {.status = PROA_OK};
    request.on_event = collect;
    request.arg = o;
    if (proa_engine_submit(engine, &request, NULL, &err) != PROA_OK) fail_msg("submit: %s", err.text);
}

/* Submits one and runs to its end. */
static inline void run_request(proa_engine *engine, proa_request request, outcome *o)
{
    submit_or_fail(engine, request, o);
    proa_engine_run(engine);
    assert_true(o->done);
}

#define GOLDEN PROA_SOURCE_DIR "/tests/golden/"
#define MODELS PROA_SOURCE_DIR "/models/"

/* A sanitiser takes ten times as long: its run does a part of the long tests, the plain run does all. STORIES is a
 * Llama with a tokenizer, for tests of the scheduler: kernels take most of a sanitiser's time, so it gets a small one. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PART_OF(all, part) (part)
#define STORIES            GOLDEN "small_llama"
#else
#define PART_OF(all, part) (all)
#define STORIES            MODELS "classics-10m"
#endif

/* A test over one golden architecture, whose folder is its state. */
#define ON(test, model)                                                                                        \
    {                                                                                                          \
        .name = #test " " model, .test_func = test, .initial_state = (void *)(uintptr_t)(GOLDEN "arch/" model) \
    }

#endif
