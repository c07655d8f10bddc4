/* SPDX-License-Identifier: Apache-2.0
 * test_inflight.c - in-flight steps: steps that are submitted before the tokens of the step before are known give the
 * same tokens, texts and finish reasons, whatever ends, is submitted or is cancelled in between. */
#include "engine_test.h"

#include "base/checked.h"
#include "engine/engine.h"

enum { REQUESTS = 14, STEPS_BEFORE_CANCEL = 4, STEPS_BEFORE_MORE = 6 };

static const char *const prompts[] = {"It was a dark and stormy night", "The sea", "He said", "Call me"};

/* Requests that end for different reasons, sample differently, or must be sampled by the host. */
static proa_options options_of(int i, bool others)
{
    /* as the model of each build writes, so that some requests end by them */
    static const char *const stops[] = {"going to", PART_OF("the sea, and", "gained grounds")};
    static const int32_t ids[] = {300, 301, 302, 303, 304}, ends[] = {2, 5};
    const proa_words words = {ids, ends, 2};
    proa_options o = {.max_tokens = 3 + 5 * (i % 7), .seed = (uint64_t)i, .ignore_eos = i % 2 == 0};
    switch (i % 7) {
    case 1: o.temperature = 0.8F, o.top_k = 50; break;
    case 2: o.stop_strings = (proa_strings){stops, 2}, o.max_tokens = 60; break;
    case 3: o.temperature = 1, o.top_p = 0.9F, o.min_p = 0.01F, o.n = 2; break;
    case 4:
        o.end_ids_count = 2;
        o.end_ids[0] = PART_OF(17, 6034), o.end_ids[1] = PART_OF(202, 4964), o.max_tokens = 60;
        o.ignore_eos = false;
        break;
    case 5:
        o.temperature = 1;
        if (i % 2) o.json_object = true, o.max_tokens = 40, o.presence_penalty = 0.5F;
        break;
    case 6:
        if (others) o.repetition_penalty = 1.3F, o.logprobs = true; /* of rows before they are edited */
        if (others && i == 6) o = (proa_options){.beams = 3, .max_tokens = 12};
        break;
    default: /* their masks depend on the token before */
        if (i % 2) o.regex = "[A-Z][a-z]+( [a-z]+){2,9}\\.", o.max_tokens = 50;
        if (i % 4 == 2) o.allowed_words = words, o.max_tokens = 9;
        break;
    }
    return o;
}

static void submit_some(proa_engine *engine, outcome *all, int begin, int end, bool others, uint64_t *last)
{
    proa_err err = {.status = PROA_OK};
    for (int i = begin; i < end; i++) {
        proa_request r = {
            .text = prompts[i % 4], .options = options_of(i, others), .on_event = collect, .arg = &all[i]};
        if (proa_engine_submit(engine, &r, last, &err) != PROA_OK) fail_msg("%s", err.text);
    }
}

/* f32: on a GPU the bits of a row depend on how many share its step, and a surplus row may be among them. */
static proa_engine *open_with(const char *ahead)
{
    setenv("PROA_AHEAD", ahead, 1);
    const proa_engine_options o = {.sequences_max = 7, .kv_tokens = 2048, .dtype = "f32"};
    proa_engine *engine = open_or_fail(STORIES, &o);
    unsetenv("PROA_AHEAD");
    return engine;
}

/* Fewer slots than requests, a cancel, and requests that come later. */
static void run_all(const char *ahead, outcome *all, bool others)
{
    proa_engine *engine = open_with(ahead);
    proa_stats stats;
    uint64_t first;
    submit_some(engine, all, 0, 1, others, &first);
    submit_some(engine, all, 1, REQUESTS - 3, others, NULL);
    for (int i = 0; i < STEPS_BEFORE_MORE; i++) {
        if (i == STEPS_BEFORE_CANCEL) proa_engine_cancel(engine, first + 5);
        proa_engine_step(engine);
    }
    submit_some(engine, all, REQUESTS - 3, REQUESTS, others, NULL);
    proa_engine_run(engine);
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(stats.finished, REQUESTS);
    assert_false(proa_engine_step(engine));
    proa_engine_close(engine);
}

static void same(const outcome *a, const outcome *b, int i)
{
    if (!a->done || !b->done) fail_msg("request %d is not done", i);
    if (a->count != b->count) fail_msg("request %d: %d and %d tokens", i, (int)a->count, (int)b->count);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->new_tokens, b->new_tokens);
    if (a->count) assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
    assert_int_equal(a->text_len, b->text_len);
    assert_memory_equal(a->text, b->text, a->text_len);
    assert_int_equal(a->beams, b->beams);
}

static void compare_runs(bool others)
{
    outcome *ahead = calloc(REQUESTS, sizeof *ahead), *plain = calloc(REQUESTS, sizeof *plain);
    run_all("1", ahead, others);
    run_all("0", plain, others);
    int ends[PROA_FINISH_ERROR + 1] = {0};
    for (int i = 0; i < REQUESTS; i++) {
        same(&ahead[i], &plain[i], i);
        ends[plain[i].finish]++;
        outcome_release(&ahead[i]), outcome_release(&plain[i]);
    }
    assert_true(ends[PROA_FINISH_END] > 0 && ends[PROA_FINISH_STOP] > 0 && ends[PROA_FINISH_LENGTH] > 0);
    free(ahead), free(plain);
}

static void same_tokens_as_one_step_at_a_time(void **state)
{
    (void)state;
    compare_runs(false);
}

static void same_tokens_beside_requests_for_the_host(void **state)
{
    (void)state;
    compare_runs(true);
}

/* One after the other, so that all modes run the same passes: the tokens are the same, drawn ones too. */
static void same_tokens_wherever_they_are_sampled(void **state)
{
    static const char *const modes[] = {"host", "0", "1"};
    proa_engine *engine[3];
    (void)state;
    for (int m = 0; m < 3; m++) engine[m] = open_with(modes[m]);
    for (int i = 0; i < PART_OF(4 * REQUESTS, REQUESTS / 2); i++) {
        outcome out[3] = {{.count = 0}};
        proa_options o = options_of(i, false);
        if (o.n > 1) o.ignore_eos = true; /* both end together */
        for (int m = 0; m < 3; m++)
            run_request(engine[m], (proa_request){.text = prompts[i % 4], .options = o}, &out[m]);
        same(&out[1], &out[0], i);
        same(&out[2], &out[0], i);
        for (int m = 0; m < 3; m++) outcome_release(&out[m]);
    }
    for (int m = 0; m < 3; m++) proa_engine_close(engine[m]);
}

/* ---- log-probabilities ---- */

enum { TOLD = 24, TOP = 9, ASKERS = 6 };

/* What the events of a request report of its tokens, one sequence after the other. */
typedef struct received {
    int32_t ids[TOLD], count, top_count;
    float logprobs[TOLD];
    proa_logprob top[TOLD][TOP];
    double sum;
    int32_t best[TOLD];
    int64_t best_count;
    bool done;
} received;

static void on_told(const proa_event *e)
{
    received *t = e->arg;
    if (e->kind == PROA_EVENT_TOKEN) {
        assert_true(t->count < TOLD && e->top_count <= TOP);
        t->ids[t->count] = e->id, t->logprobs[t->count] = e->logprob;
        t->top_count = e->top_count;
        if (e->top_count) memcpy(t->top[t->count], e->top, (size_t)e->top_count * sizeof *e->top);
        t->count++;
    }
    if (e->kind != PROA_EVENT_DONE) return;
    assert_int_not_equal(e->finish, PROA_FINISH_ERROR);
    t->done = true, t->sum = e->logprob_sum;
    if (!e->beams_count) return;
    t->best_count = e->beams[0].count;
    memcpy(t->best, e->beams[0].ids, (size_t)e->beams[0].count * sizeof(int32_t));
}

static proa_options told_options(int i)
{
    proa_options o = {.max_tokens = 8, .ignore_eos = true, .seed = (uint64_t)i, .logprobs = i != 1};
    if (i == 2) o.top_logprobs = 5, o.temperature = 0.9F, o.top_k = 40;
    if (i == 3) o.top_logprobs = TOP;
    if (i == 4) o.temperature = 1, o.best_of = 3, o.n = 1, o.logprobs = false;
    if (i == 5) o.temperature = 0.8F, o.n = 2, o.top_logprobs = 2;
    return o;
}

/* Returns how often a step was in flight. */
static int run_and_receive(const char *ahead, received *t, bool together)
{
    proa_engine *engine = open_with(ahead);
    proa_err err = {.status = PROA_OK};
    int inflight_seen = 0;
    for (int i = 0; i < ASKERS; i++) {
        proa_request r = {.text = prompts[i % 4], .options = told_options(i), .on_event = on_told, .arg = &t[i]};
        if (proa_engine_submit(engine, &r, NULL, &err) != PROA_OK) fail_msg("%s", err.text);
        while (!together && proa_engine_step(engine)) inflight_seen += engine->async.count;
    }
    while (proa_engine_step(engine)) inflight_seen += engine->async.count;
    proa_engine_close(engine);
    return inflight_seen;
}

static void assert_received(const received *a, const received *b, int i)
{
    if (!a->done || a->count != b->count || a->top_count != b->top_count)
        fail_msg("request %d is told less", i);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_int_equal(a->best_count, b->best_count);
    assert_memory_equal(a->best, b->best, sizeof a->best);
    if (!(fabs(a->sum - b->sum) < 1e-4)) fail_msg("request %d: the sum is %g, not %g", i, a->sum, b->sum);
    for (int k = 0; k < a->count; k++) {
        if (!(fabsf(a->logprobs[k] - b->logprobs[k]) < 1e-5F))
            fail_msg("request %d: token %d has %g, not %g", i, k, (double)a->logprobs[k], (double)b->logprobs[k]);
        for (int j = 0; j < a->top_count; j++) {
            assert_int_equal(a->top[k][j].id, b->top[k][j].id);
            assert_true(fabsf(a->top[k][j].logprob - b->top[k][j].logprob) < 1e-5F);
        }
    }
}

/* The device's sums are f32's, the host's of double precision. */
static void log_probabilities_wherever_they_are_made(void **state)
{
    static const char *const modes[] = {"0", "1"};
    bool together = getenv("PROA_TEST_DEVICE") == NULL; /* there a row's bits depend on how many share its step */
    received *right = calloc(ASKERS, sizeof *right);
    (void)state;
    assert_int_equal(run_and_receive("host", right, together), 0);
    for (int m = 0; m < 2; m++) {
        received *mine = calloc(ASKERS, sizeof *mine);
        int inflight_seen = run_and_receive(modes[m], mine, together);
        assert_true(m == 1 ? inflight_seen > 0 : inflight_seen == 0);
        for (int i = 0; i < ASKERS; i++) assert_received(&mine[i], &right[i], i);
        free(mine);
    }
    free(right);
}

/* ---- penalties, biases, bans ---- */

static proa_options edited_options(int i)
{
    static const int32_t words[] = {11, 290, 262, 13, 198, 262};
    static const int32_t ends[] = {1, 3, 6};
    static const proa_bias bias[] = {{262, -2.5F}, {290, 1.5F}};
    proa_options o = {.max_tokens = 20, .ignore_eos = true, .seed = (uint64_t)i, .style = (proa_style)(i % 3)};
    if (i % 3) o.top_k = 1 + i % 2 * 30, o.temperature = 0.8F;
    else if (i % 2) o.temperature = 0.9F;
    switch (i % 7) {
    case 0: o.repetition_penalty = 1.4F; break;
    case 1: o.frequency_penalty = 0.5F, o.presence_penalty = 0.3F; break;
    case 2: o.no_repeat_ngram = 2; break;
    case 3: o.banned_words = (proa_words){words, ends, 3}, o.no_repeat_ngram = 3; break;
    case 4: o.logit_bias = bias, o.logit_bias_count = 2, o.repetition_penalty = 1.2F; break;
    case 5:
        o.min_tokens = 9, o.end_ids_count = 2, o.end_ids[0] = 11, o.end_ids[1] = 13, o.ignore_eos = false;
        break;
    default: o.no_repeat_ngram = 1, o.n = o.temperature > 0 ? 2 : 1; break;
    }
    return o;
}

static const proa_engine_request *last_submitted(const proa_engine *engine)
{
    const proa_engine_request *job = engine->shared.inbox.first;
    while (job && job->next) job = job->next;
    return job;
}

/* Together where a row's bits do not depend on that. room: of pairs. */
static int run_edited(const char *ahead, outcome *out, int count, bool together, int64_t room)
{
    proa_engine *engine = open_with(ahead);
    int inflight_seen = 0;
    engine->async.entries_reserved = PROA_LOGITS_ENTRIES_MAX - room;
    for (int i = 0; i < count; i++) {
        submit_or_fail(engine, (proa_request){.text = prompts[i % 4], .options = edited_options(i)}, &out[i]);
        if (!last_submitted(engine)->samples_on_device) fail_msg("request %d needs the host", i);
        while (!together && proa_engine_step(engine)) inflight_seen += engine->async.count;
    }
    while (proa_engine_step(engine)) inflight_seen += engine->async.count;
    assert_int_equal(engine->async.entries_reserved, PROA_LOGITS_ENTRIES_MAX - room);
    proa_engine_close(engine);
    return inflight_seen;
}

static void edited_rows_wherever_they_are(void **state)
{
    enum { EDITED = 21 };
    static const char *const modes[] = {"0", "1", "1"};
    static const int64_t rooms[] = {PROA_LOGITS_ENTRIES_MAX, PROA_LOGITS_ENTRIES_MAX,
                                    60}; /* the last: some have none, and are the host's */
    bool together = getenv("PROA_TEST_DEVICE") == NULL;
    outcome *right = calloc(EDITED, sizeof *right);
    (void)state;
    assert_int_equal(run_edited("host", right, EDITED, together, PROA_LOGITS_ENTRIES_MAX), 0);
    for (int m = 0; m < 3; m++) {
        outcome *mine = calloc(EDITED, sizeof *mine);
        int inflight_seen = run_edited(modes[m], mine, EDITED, together, rooms[m]);
        assert_true(m > 0 ? inflight_seen > 0 : inflight_seen == 0);
        for (int i = 0; i < EDITED; i++) same(&mine[i], &right[i], i), outcome_release(&mine[i]);
        free(mine);
    }
    for (int i = 0; i < EDITED; i++) outcome_release(&right[i]);
    free(right);
}

/* The first call emits one token and has submitted two passes; the last has submitted no surplus pass. */
static void one_step_is_in_flight(void **state)
{
    (void)state;
    proa_engine *engine = open_with("1");
    outcome o = {.count = 0};
    proa_stats stats;
    submit_or_fail(engine,
                   (proa_request){.text = "The sea", .options = {.max_tokens = 9, .ignore_eos = true}}, &o);
    for (int tokens = 1; tokens <= 9; tokens++) {
        assert_true(proa_engine_step(engine));
        proa_engine_stats(engine, &stats);
        assert_int_equal(o.count, tokens);
        assert_int_equal(stats.steps, tokens < 9 ? tokens + 1 : 9);
    }
    assert_true(o.done);
    assert_int_equal(o.finish, PROA_FINISH_LENGTH);
    outcome_release(&o);
    proa_engine_close(engine);
}

/* The pass that was one too many is forgotten: what comes next is not touched by it. */
static void what_ended_unseen_leaves_nothing(void **state)
{
    (void)state;
    proa_engine *engine = open_with("1");
    outcome first = {.count = 0}, again = {.count = 0};
    proa_request r = {.text = "It was", .options = {.max_tokens = 40, .ignore_eos = true}};
    run_request(engine, r, &first);
    r.options.ignore_eos = false;
    r.options.end_ids_count = 1;
    r.options.end_ids[0] = first.ids[5]; /* or earlier */
    for (int i = 0; i < 3; i++) {
        outcome ended = {.count = 0};
        run_request(engine, r, &ended);
        assert_int_equal(ended.finish, PROA_FINISH_END);
        assert_true(ended.count <= 6);
        assert_memory_equal(ended.ids, first.ids, (size_t)ended.count * sizeof(int32_t));
        outcome_release(&ended);
    }
    r.options = (proa_options){.max_tokens = 40, .ignore_eos = true};
    run_request(engine, r, &again);
    assert_int_equal(again.count, 40);
    assert_memory_equal(again.ids, first.ids, 40 * sizeof(int32_t));
    outcome_release(&first), outcome_release(&again);
    proa_engine_close(engine);
}

/* A request that the host samples (typical-p) beside one of the device: the latter has a token in every step, and its
 * next pass is in flight whenever a step returns; the other one has a token in every second step at least. */
static void the_host_does_not_hold_up_the_device(void **state)
{
    enum { STEPS = 30 };
    (void)state;
    proa_engine *engine = open_with("1");
    outcome device = {.count = 0}, host = {.count = 0}, alone = {.count = 0};
    proa_request a = {.text = "The sea", .options = {.max_tokens = STEPS, .ignore_eos = true}}, b = a;
    b.options = (proa_options){
        .max_tokens = STEPS, .ignore_eos = true, .temperature = 0.9F, .typical_p = 0.7F, .logprobs = true};
    submit_or_fail(engine, b, &host);
    submit_or_fail(engine, a, &device);
    for (int tokens = 1; tokens <= STEPS; tokens++) {
        assert_true(proa_engine_step(engine));
        assert_int_equal(device.count, tokens);
        assert_true(host.count >= tokens / 2);
        assert_int_equal(engine->async.count, tokens < STEPS);
    }
    proa_engine_run(engine);
    assert_true(host.done && !engine->head.fetched.count);
    run_request(engine, b, &alone);
    if (!getenv("PROA_TEST_DEVICE")) same(&host, &alone, 0); /* there bits depend on who shares a step */
    outcome_release(&device), outcome_release(&host), outcome_release(&alone);
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probabilities_wherever_they_are_made),
        cmocka_unit_test(edited_rows_wherever_they_are),
        cmocka_unit_test(same_tokens_as_one_step_at_a_time),
        cmocka_unit_test(same_tokens_beside_requests_for_the_host),
        cmocka_unit_test(same_tokens_wherever_they_are_sampled),
        cmocka_unit_test(one_step_is_in_flight),
        cmocka_unit_test(the_host_does_not_hold_up_the_device),
        cmocka_unit_test(what_ended_unseen_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
