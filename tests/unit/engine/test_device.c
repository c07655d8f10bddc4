/* SPDX-License-Identifier: Apache-2.0
 * test_device.c - a device that fails during a step: all running requests end with its error and without further
 * results, their pages are returned, and later requests succeed. */
#include "engine_test.h"

#include "engine/engine.h"

enum { ASKED = 5, TOKENS = 12, NEVER = -1 };

static const char WORDS[] = "the device fell silent";

/* Number of checks that the device passes before it fails; NEVER: it does not fail. */
static int well;

static proa_status failed(proa_device *d, proa_err *err)
{
    PROA_UNUSED(d);
    if (well == NEVER || well-- > 0) return PROA_OK;
    well = NEVER; /* it says so once */
    return PROA_FAIL(err, INTERNAL, "%s", WORDS);
}

/* Greedy, random, a request for the host, beams, several sequences; for encoders five inputs. */
static proa_request request_of(int i, bool encoder)
{
    static const int32_t ids[] = {5, 9, 17, 4, 33, 8, 71};
    proa_request r = {.ids = ids, .ids_count = 3 + i % 5};
    if (encoder) {
        r.task = PROA_TASK_ROWS;
        return r;
    }
    r.options = (proa_options){.max_tokens = TOKENS, .ignore_eos = true, .seed = (uint64_t)i};
    if (i == 1) r.options.temperature = 0.8F, r.options.top_k = 20;
    if (i == 2) r.options.repetition_penalty = 1.3F, r.options.logprobs = true;
    if (i == 3) r.options.beams = 3;
    if (i == 4) r.options.temperature = 1, r.options.n = 2;
    return r;
}

/* others: those too that the host chooses, so that steps wait for it. */
static void run_five(proa_engine *engine, outcome *o, bool encoder, bool others)
{
    proa_stats stats;
    for (int i = 0; i < ASKED; i++)
        if (i != 2 || others) submit_or_fail(engine, request_of(i, encoder), &o[i]);
    proa_engine_run(engine);
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
}

static void assert_failed(const outcome *o, const outcome *right)
{
    assert_true(o->done);
    assert_int_equal(o->finish, PROA_FINISH_ERROR);
    if (!strstr(o->error, WORDS)) fail_msg("the error is '%s'", o->error);
    assert_true(o->count < right->count || right->count == 0);
    if (o->count) assert_memory_equal(o->ids, right->ids, (size_t)o->count * sizeof *o->ids);
    assert_int_equal(o->rows_count, 0);
}

static void assert_equal(const outcome *o, const outcome *right)
{
    assert_true(o->done);
    assert_int_equal(o->finish, right->finish);
    assert_int_equal(o->count, right->count);
    if (o->count) assert_memory_equal(o->ids, right->ids, (size_t)o->count * sizeof *o->ids);
    assert_int_equal(o->beams, right->beams);
    assert_int_equal(o->rows_count, right->rows_count);
}

static void release_five(outcome *o)
{
    for (int i = 0; i < ASKED; i++) outcome_release(&o[i]);
}

static void fail_after(proa_engine *engine, const outcome *right, int checks, bool encoder, bool others)
{
    outcome o[ASKED] = {0}, again[ASKED] = {0};
    well = checks;
    run_five(engine, o, encoder, others);
    for (int i = 0; i < ASKED; i++)
        if (i != 2 || others) assert_failed(&o[i], &right[i]);
    well = NEVER;
    run_five(engine, again, encoder, others);
    for (int i = 0; i < ASKED; i++)
        if (i != 2 || others) assert_equal(&again[i], &right[i]);
    release_five(o), release_five(again);
}

static void failures(const char *model, const char *ahead, bool encoder, bool others)
{
    outcome right[ASKED] = {0};
    if (ahead) setenv("PROA_AHEAD", ahead, 1);
    proa_engine *engine = open_or_fail(model, NULL);
    unsetenv("PROA_AHEAD");
    engine->device->failed = failed;
    well = NEVER;
    run_five(engine, right, encoder, others);
    for (int checks = 0; checks < (encoder ? 1 : 6); checks++)
        fail_after(engine, right, checks, encoder, others);
    release_five(right);
    proa_engine_close(engine);
}

/* Tokens sampled by the host, and asynchronously; with and without a request that makes each step wait. */
static void what_runs_ends(void **state)
{
    for (int others = 0; others < 2; others++) {
        failures(*state, NULL, false, others);
        failures(*state, "1", false, others);
    }
}

static void encoders_give_no_rows(void **state)
{
    failures(*state, NULL, true, true);
}

static void no_hidden_states(void **state)
{
    static const int32_t ids[] = {5, 9, 17};
    outcome o = {0};
    proa_engine *engine = open_or_fail(*state, NULL);
    engine->device->failed = failed;
    well = 1; /* the encoder's pass, then what it gave */
    run_request(engine, (proa_request){.task = PROA_TASK_ENCODE, .ids = ids, .ids_count = 3}, &o);
    assert_int_equal(o.finish, PROA_FINISH_ERROR);
    assert_non_null(strstr(o.error, WORDS));
    assert_int_equal(o.rows_count, 0);
    outcome_release(&o);
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(what_runs_ends, "llama3"),      ON(what_runs_ends, "t5"),
        ON(encoders_give_no_rows, "bert"), ON(encoders_give_no_rows, "bert_regress"),
        ON(no_hidden_states, "t5"),        ON(no_hidden_states, "bert"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
