/* SPDX-License-Identifier: Apache-2.0
 * test_admission.c - who runs when pages or slots are too few: preemption, priorities, deadlines, turns of clients. */
#include "engine_test.h"

#include "base/clock.h"
#include "engine/engine.h"

enum { CHATS = 12, TOKENS = PART_OF(130, 66) };

static const char *const prompts[] = {"It was a dark and stormy night", "The sea", "He said", "Call me"};

static proa_engine *open_small(int32_t sequences, int64_t pages, const char *policy, const char *ahead)
{
    setenv("PROA_AHEAD", ahead, 1);
    const proa_engine_options o = {
        .threads = 1, .sequences_max = sequences, .kv_tokens = 64 * pages, .dtype = "f32", .policy = policy};
    proa_engine *engine = open_or_fail(STORIES, &o);
    unsetenv("PROA_AHEAD");
    return engine;
}

static proa_stats stats_of(proa_engine *engine)
{
    proa_stats stats;
    proa_engine_stats(engine, &stats);
    return stats;
}

static proa_request chat(int i)
{
    proa_request r = {.text = prompts[i % 4]};
    r.options = (proa_options){
        .max_tokens = TOKENS, .seed = (uint64_t)i, .ignore_eos = true, .logprobs = i % 3 == 0};
    if (i % 2) r.options.temperature = 0.9F;
    if (i % 4 == 3) r.options.n = 2;
    if (i % 5 == 1) r.options.repetition_penalty = 1.2F;
    return r;
}

static void expect_same(const outcome *a, const outcome *b, int i)
{
    if (!a->done || a->count != b->count)
        fail_msg("request %d: %d and %d tokens", i, (int)a->count, (int)b->count);
    if (memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) != 0)
        fail_msg("request %d: other tokens", i);
    if (memcmp(a->logprobs, b->logprobs, (size_t)a->count * sizeof(float)) != 0)
        fail_msg("request %d: logprobs", i);
    assert_int_equal(a->text_len, b->text_len);
    assert_memory_equal(a->text, b->text, a->text_len);
}

/* Twelve chats in 20 pages: each sequence needs three, with a sanitizer two, and three chats have two sequences. */
static uint64_t run_chats(outcome *out, int64_t pages, const char *policy, const char *ahead, bool together)
{
    proa_engine *engine = open_small(16, pages, policy, ahead);
    for (int i = 0; i < CHATS; i++) {
        submit_or_fail(engine, chat(i), &out[i]);
        if (!together) proa_engine_run(engine);
    }
    proa_engine_run(engine);
    proa_stats stats = stats_of(engine);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(stats.finished, CHATS);
    proa_engine_close(engine);
    return stats.preemptions;
}

static void preempted_equals_not_preempted(void **state)
{
    static const char *const modes[] = {"1", "host"};
    (void)state;
    if (getenv("PROA_TEST_DEVICE")) skip(); /* there a row's bits depend on who shares its step */
    for (int m = 0; m < PART_OF(2, 1); m++) {
        /* `outcome` mixes the sequences of one request in the order of time: test_traffic compares those */
        outcome *alone = calloc(CHATS, sizeof *alone), *tight = calloc(CHATS, sizeof *tight),
                *kept = calloc(CHATS, sizeof *kept);
        assert_int_equal(run_chats(alone, 256, NULL, modes[m], PART_OF(false, true)), 0);
        assert_true(run_chats(tight, 20, NULL, modes[m], true) > 0);
        assert_int_equal(run_chats(kept, 20, "guaranteed_no_evict", modes[m], true), 0);
        for (int i = 0; i < CHATS; i++) {
            if (chat(i).options.n <= 1)
                expect_same(&tight[i], &alone[i], i), expect_same(&kept[i], &alone[i], i);
            outcome_release(&alone[i]), outcome_release(&tight[i]), outcome_release(&kept[i]);
        }
        free(alone), free(tight), free(kept);
    }
}

/* ---- priorities ---- */

static void a_higher_priority_takes_the_slot(void **state)
{
    (void)state;
    proa_engine *engine = open_small(1, 64, NULL, "host");
    outcome low = {.count = 0}, high = {.count = 0}, alone = {.count = 0};
    proa_request first = chat(0), second = chat(2);
    second.options.priority = 1, second.options.max_tokens = 5;
    submit_or_fail(engine, first, &low);
    for (int i = 0; i < 10; i++) proa_engine_step(engine);
    int64_t before = low.count;
    assert_true(before > 0);
    submit_or_fail(engine, second, &high);
    while (!high.done) proa_engine_step(engine);
    assert_int_equal(low.count, before);
    assert_int_equal(stats_of(engine).preemptions, 1);
    proa_engine_run(engine);
    run_request(engine, first, &alone);
    expect_same(&low, &alone, 0);
    outcome_release(&low), outcome_release(&high), outcome_release(&alone);
    proa_engine_close(engine);
}

static void equal_priorities_wait(void **state)
{
    (void)state;
    proa_engine *engine = open_small(1, 64, NULL, "host");
    outcome a = {.count = 0}, b = {.count = 0};
    submit_or_fail(engine, chat(0), &a);
    proa_engine_step(engine);
    submit_or_fail(engine, chat(2), &b);
    while (!a.done) {
        assert_int_equal(b.count, 0);
        proa_engine_step(engine);
    }
    proa_engine_run(engine);
    assert_int_equal(stats_of(engine).preemptions, 0);
    outcome_release(&a), outcome_release(&b);
    proa_engine_close(engine);
}

/* ---- deadlines ---- */

static void overdue_requests_end_with_an_error(void **state)
{
    (void)state;
    proa_engine *engine = open_small(1, 64, NULL, "host");
    outcome runs = {.count = 0}, waits = {.count = 0}, fine = {.count = 0};
    proa_request r = chat(0), quick = chat(2);
    r.options.timeout_ms = 30;
    quick.options.timeout_ms = 600000, quick.options.max_tokens = 3;
    submit_or_fail(engine, r, &runs);
    submit_or_fail(engine, r, &waits);
    proa_engine_step(engine);
    for (int64_t until = proa_clock_ns() + 40000000; proa_clock_ns() < until;) {
    }
    proa_engine_step(engine);
    assert_true(runs.done && waits.done);
    assert_int_equal(runs.finish, PROA_FINISH_ERROR);
    assert_string_equal(waits.error, "option 'timeout_ms': not done after 30 ms");
    assert_int_equal(stats_of(engine).pages_used, 0);
    run_request(engine, quick, &fine);
    assert_int_equal(fine.finish, PROA_FINISH_LENGTH);
    outcome_release(&runs), outcome_release(&waits), outcome_release(&fine);
    proa_engine_close(engine);
}

/* ---- clients ---- */

static int order[64], ordered;
static void note_begin(const proa_event *event)
{
    if (event->kind == PROA_EVENT_BEGIN) order[ordered++] = *(const int *)event->arg;
}

/* Client 0 sends 20 requests, then client 1 sends two: these do not wait for all 20. Without names they do. */
static int last_of_second(bool named)
{
    static int who[2] = {0, 1};
    static const char *const names[] = {"first", "second"}, *const stops[] = {" "};
    proa_engine *engine = open_small(1, 64, NULL, "host");
    proa_err err = {.status = PROA_OK};
    int last = 0;
    ordered = 0;
    for (int i = 0; i < 22; i++) {
        proa_request r = {.text = "The", .on_event = note_begin, .arg = &who[i >= 20]};
        r.options = (proa_options){.max_tokens = 400, .stop_strings = {stops, 1}}; /* it could be long, and is not */
        if (named) r.client = names[i >= 20];
        if (proa_engine_submit(engine, &r, NULL, &err) != PROA_OK) fail_msg("%s", err.text);
    }
    proa_engine_run(engine);
    assert_int_equal(ordered, 22);
    for (int i = 0; i < 22; i++)
        if (order[i] == 1) last = i;
    proa_engine_close(engine);
    return last;
}

static void clients_take_turns(void **state)
{
    (void)state;
    assert_int_equal(last_of_second(false), 21);
    assert_true(last_of_second(true) < 12);
}

/* ---- cancel ---- */

static void cancel_at_any_step_returns_everything(void **state)
{
    (void)state;
    for (int step = 0; step < PART_OF(96, 24); step += 13) {
        proa_engine *engine = open_small(8, 12, NULL, step % 2 ? "1" : "host");
        outcome *out = calloc(CHATS, sizeof *out);
        uint64_t id[CHATS];
        proa_err err = {.status = PROA_OK};
        for (int i = 0; i < CHATS; i++) {
            proa_request r = chat(i);
            r.on_event = collect, r.arg = &out[i];
            if (proa_engine_submit(engine, &r, &id[i], &err) != PROA_OK) fail_msg("%s", err.text);
        }
        for (int i = 0; i < step; i++) proa_engine_step(engine);
        for (int i = 0; i < CHATS; i++) proa_engine_cancel(engine, id[i]);
        proa_engine_step(engine);
        proa_stats stats = stats_of(engine);
        assert_int_equal(stats.pages_used, 0);
        assert_int_equal(stats.running + stats.waiting, 0);
        assert_int_equal(engine->async.entries_reserved, 0);
        for (int i = 0; i < 8; i++) assert_false(engine->slots.used[i]);
        for (int i = 0; i < PROA_CLIENT_BUCKETS; i++) assert_null(engine->shared.clients[i]);
        for (int i = 0; i < CHATS; i++) assert_true(out[i].done), outcome_release(&out[i]);
        proa_engine_close(engine);
        free(out);
    }
}

static void unknown_policies_are_refused(void **state)
{
    (void)state;
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    const proa_engine_options o = {.policy = "best"};
    assert_int_equal(proa_engine_open(&engine, STORIES, &o, &err), PROA_INVALID);
    assert_string_equal(
        err.text, "option 'scheduler-policy' is 'best', must be max_utilization or guaranteed_no_evict");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preempted_equals_not_preempted),
        cmocka_unit_test(a_higher_priority_takes_the_slot),
        cmocka_unit_test(equal_priorities_wait),
        cmocka_unit_test(overdue_requests_end_with_an_error),
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(cancel_at_any_step_returns_everything),
        cmocka_unit_test(unknown_policies_are_refused),
    };
    return cmocka_run_group_tests_name("admission", tests, NULL, NULL);
}
