/* SPDX-License-Identifier: Apache-2.0
 * test_scores.c - proa_request.scores: tokens are the largest of their rows, filters leave -infinity, and the rows of
 * beams add up to the results along their parents. */
#include "engine_test.h"

enum { STEPS = 12, BEAMS = 4, VOCAB_MAX = 512 };

/* What a request sent. */
typedef struct scored {
    int32_t vocab, ids[STEPS];
    int64_t tokens, steps;
    float row[STEPS][BEAMS][VOCAB_MAX];
    int32_t beam_ids[STEPS], parents[STEPS];
    int64_t beam_count;
    double logprob_sum;
    int64_t raw_rows;
    bool done;
} scored;

static void keep_beam(scored *s, const proa_event *event)
{
    assert_int_equal(event->columns, s->vocab);
    if (event->logits) {
        s->raw_rows++;
        return;
    }
    if (event->rows_first == 0) s->steps++;
    assert_true(s->steps <= STEPS && event->rows_first < BEAMS);
    memcpy(s->row[s->steps - 1][event->rows_first], event->scores, (size_t)s->vocab * sizeof(float));
}

static void keep_result(scored *s, const proa_event *event)
{
    s->done = true;
    assert_int_not_equal(event->finish, PROA_FINISH_ERROR);
    if (!event->beams_count) return;
    const proa_beam_result *best = &event->beams[0];
    s->beam_count = best->count;
    s->logprob_sum = best->logprob_sum;
    memcpy(s->beam_ids, best->ids, (size_t)best->count * sizeof *best->ids);
    memcpy(s->parents, best->parents, (size_t)best->count * sizeof *best->parents);
}

static void keep_scores(const proa_event *event)
{
    scored *s = event->arg;
    if (event->kind == PROA_EVENT_TOKEN) {
        assert_non_null(event->scores);
        memcpy(s->row[s->tokens][0], event->scores, (size_t)s->vocab * sizeof(float));
        s->ids[s->tokens++] = event->id;
    }
    if (event->kind == PROA_EVENT_SCORES) keep_beam(s, event);
    if (event->kind == PROA_EVENT_DONE) keep_result(s, event);
}

static scored *run_scored(const char *path, proa_options options)
{
    static const int32_t ids[6] = {5, 9, 13, 17, 21, 25};
    scored *s = calloc(1, sizeof *s);
    proa_engine *engine = open_or_fail(path, NULL);
    proa_info info;
    proa_err err = {.status = PROA_OK};
    proa_engine_info(engine, &info);
    s->vocab = info.outputs;
    assert_true(s->vocab <= VOCAB_MAX);
    options.max_tokens = STEPS, options.ignore_eos = true;
    proa_request r = {
        .ids = ids, .ids_count = 6, .scores = true, .on_event = keep_scores, .arg = s, .options = options};
    if (proa_engine_submit(engine, &r, NULL, &err) != PROA_OK) fail_msg("%s", err.text);
    proa_engine_run(engine);
    assert_true(s->done);
    proa_engine_close(engine);
    return s;
}

static int32_t count_finite(const float *row, int32_t n)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) count += isfinite(row[i]) != 0;
    return count;
}

static void greedy_tokens_are_the_largest(void **state)
{
    scored *s = run_scored(*state, (proa_options){.repetition_penalty = 1.3F, .no_repeat_ngram = 1});
    assert_int_equal(s->tokens, STEPS);
    for (int t = 0; t < STEPS; t++) {
        const float *row = s->row[t][0];
        for (int32_t i = 0; i < s->vocab; i++) assert_true(row[i] <= row[s->ids[t]]);
        assert_int_equal(count_finite(row, s->vocab), s->vocab - 6 - t); /* no token comes twice */
    }
    free(s);
}

static void filters_leave_minus_infinity(void **state)
{
    scored *s = run_scored(*state, (proa_options){.temperature = 0.8F, .top_k = 5, .seed = 3});
    for (int t = 0; t < STEPS; t++) {
        assert_int_equal(count_finite(s->row[t][0], s->vocab), 5);
        assert_true(isfinite(s->row[t][0][s->ids[t]]));
    }
    free(s);
}

static void beams_add_up_along_their_parents(void **state)
{
    for (int with = 0; with < 2; with++) {
        proa_options options = {.beams = BEAMS, .return_logits = true};
        if (with) options.repetition_penalty = 1.2F;
        scored *s = run_scored(*state, options);
        double sum = 0;
        assert_int_equal(s->steps, STEPS);
        assert_int_equal(s->raw_rows, 1 + (STEPS - 1) * BEAMS); /* one row stands behind the prompt */
        assert_int_equal(s->beam_count, STEPS);
        for (int t = 0; t < STEPS; t++) {
            assert_true(s->parents[t] >= 0 && s->parents[t] < (t ? BEAMS : 1));
            sum += (double)s->row[t][s->parents[t]][s->beam_ids[t]];
        }
        if (fabs(sum - s->logprob_sum) > 1e-4) fail_msg("%g and %g", sum, s->logprob_sum);
        free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(greedy_tokens_are_the_largest, "llama"),   ON(filters_leave_minus_infinity, "llama"),
        ON(filters_leave_minus_infinity, "gpt2"),     ON(beams_add_up_along_their_parents, "llama"),
        ON(beams_add_up_along_their_parents, "bart"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
