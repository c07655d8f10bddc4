/* SPDX-License-Identifier: Apache-2.0
 * test_draft_model.c - a draft model changes no token; what it drafts, and what it keeps in its pages. A model that
 *                      drafts for itself is always right, so a single wrong draft token shows a wrong row. */
#include "engine_test.h"

#include "draft_runs.h"
#include "draws.h"
#include "joint_draws.h"

#include "base/checked.h"
#include "engine/engine.h"

enum { REQUESTS = 6, TOKENS = 90, PROMPT = 150 };

static proa_engine *open_with(const char *model, const char *draft, proa_engine_options options)
{
    options.draft_model = draft;
    if (!options.threads) options.threads = 2;
    return open_or_fail(model, &options);
}

static void fill_prompt(int32_t *ids, int64_t count, int32_t seed)
{
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)((seed + i * i * 7 + i * 13) % 190 + 3);
}

/* Requests of all kinds that draft; those of odd numbers begin with the same tokens. */
static proa_request request_of(int i, const int32_t *ids)
{
    proa_request r = {.ids = ids, .ids_count = i % 2 ? PROMPT : 20 + 3 * i};
    proa_options *o = &r.options;
    o->max_tokens = TOKENS, o->ignore_eos = true, o->seed = (uint64_t)i;
    if (i >= 1) o->temperature = 0.8F;
    if (i == 2) o->top_k = 20, o->top_p = 0.9F;
    if (i == 3) o->n = 3;
    if (i == 4) o->repetition_penalty = 1.2F, o->no_repeat_ngram = 3, o->logprobs = true;
    if (i == 5) o->regex = "([a-z]+ ){40,60}", o->ignore_eos = false;
    return r;
}

/* Runs the requests together; returns what the engine counted. */
static proa_stats run_pair(const char *model, const char *draft, proa_engine_options options, outcome *o)
{
    static int32_t ids[REQUESTS][PROMPT];
    proa_stats stats;
    proa_info info;
    proa_engine *e = open_with(model, draft, options);
    proa_engine_info(e, &info);
    for (int i = 0; i < REQUESTS; i++) {
        fill_prompt(ids[i], PROMPT, i % 2 ? 5 : 100 * i);
        proa_request r = request_of(i, ids[i]);
        if (!info.has_tokenizer) r.options.regex = NULL, r.options.ignore_eos = true;
        submit_or_fail(e, r, &o[i]);
    }
    proa_engine_run(e);
    proa_engine_stats(e, &stats);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(e);
    return stats;
}

static void release_all(outcome *o)
{
    for (int i = 0; i < REQUESTS; i++) outcome_release(&o[i]);
}

static uint64_t preemptions; /* of all runs with few pages */

/* own: the model drafts for itself. */
static void compare_pair(const char *model, const char *draft, bool own, proa_engine_options options)
{
    static outcome with[REQUESTS], without[REQUESTS];
    memset(with, 0, sizeof with), memset(without, 0, sizeof without); /* of a test that failed */
    /* with a draft model on the host, tokens are drawn in a way of their own */
    proa_engine_options plain = {.threads = 1, .sequences_max = 16, .kv_tokens = 8192, .speculation = "none"};
    if (own) options.dtype = plain.dtype = exact_dtype(); /* it would be rounded */
    assert_int_equal(run_pair(model, draft, plain, without).drafted, 0);
    proa_stats stats = run_pair(model, draft, options, with);
    assert_same_runs(with, without, REQUESTS);
    assert_true(stats.drafted > 0);
    /* on a device a row's sums depend on who shares its step: near ties fall one way or the other */
    uint64_t ties = own && getenv("PROA_TEST_DEVICE") ? stats.drafted / 20 : 0;
    if (own) assert_in_range(stats.accepted, stats.drafted - ties, stats.drafted);
    else assert_true(stats.accepted < stats.drafted);
    preemptions += stats.preemptions;
    release_all(with), release_all(without);
}

static const proa_engine_options roomy = {.sequences_max = 16, .kv_tokens = 8192, .draft_tokens = 5};
static const proa_engine_options tight = {.sequences_max = 16, .kv_tokens = 576, .step_tokens = 24};

static void a_model_drafts_for_itself(void **state)
{
    PROA_UNUSED(state);
    if (PART_OF(true, false)) compare_pair(STORIES, STORIES, true, roomy);
    compare_pair(STORIES, STORIES, true, tight);
    compare_pair(GOLDEN "arch/llama3", GOLDEN "arch/llama3", true, roomy);
    compare_pair(GOLDEN "arch/mistral", GOLDEN "arch/mistral", true, tight);
    assert_true(preemptions > 0);
}

static void tokens_in_flight_wait(void **state)
{
    PROA_UNUSED(state);
    setenv("PROA_AHEAD", "1", 1);
    compare_pair(GOLDEN "arch/qwen2", GOLDEN "arch/qwen2", true, roomy);
    compare_pair(GOLDEN "arch/qwen2", GOLDEN "arch/llama3", false, tight);
    unsetenv("PROA_AHEAD");
}

/* Every sequence that may run does, with a row for its newest token: drafts have rows beside them. */
static void a_full_batch_drafts(void **state)
{
    enum { FULL = 70, EACH = 40 };
    static outcome with[FULL], without[FULL];
    static int32_t ids[FULL][RUN_PROMPT];
    proa_stats stats;
    const proa_engine_options options = {
        .threads = 2, .sequences_max = FULL, .kv_tokens = FULL * 128, .speculation = "ngram"};
    PROA_UNUSED(state);
    setenv("PROA_AHEAD", "1", 1);
    proa_engine *e = open_or_fail(GOLDEN "arch/qwen2", &options);
    unsetenv("PROA_AHEAD");
    for (int i = 0; i < 2 * FULL; i++) {
        fill_prompt(ids[i % FULL], RUN_PROMPT, i % FULL);
        proa_request r = {.ids = ids[i % FULL], .ids_count = RUN_PROMPT};
        r.options.max_tokens = EACH, r.options.ignore_eos = true;
        if (i < FULL) r.options.speculation = "none";
        else r.options.draft_ids = (proa_tokens){without[i - FULL].ids, EACH};
        submit_or_fail(e, r, i < FULL ? &without[i] : &with[i - FULL]);
        if (i == FULL - 1) proa_engine_run(e);
    }
    run_drafting(e);
    proa_engine_stats(e, &stats);
    assert_true(stats.drafted > FULL && stats.accepted > FULL);
    assert_same_runs(with, without, FULL);
    for (int i = 0; i < FULL; i++) outcome_release(&with[i]), outcome_release(&without[i]);
    proa_engine_close(e);
}

static void another_model_drafts(void **state)
{
    PROA_UNUSED(state);
    compare_pair(GOLDEN "arch/llama3", GOLDEN "arch/qwen2", false, roomy);
    compare_pair(GOLDEN "arch/llama3", GOLDEN "arch/qwen2", false, tight);
    compare_pair(GOLDEN "arch/llama3", GOLDEN "arch/gpt2", false, roomy); /* whose context is shorter */
}

/* The keys and values of the draft model in the first pages, after the sequence with these tokens has ended. */
static char *run_and_copy(proa_engine *e, const proa_request *r, outcome *o, int64_t pages, size_t *bytes)
{
    run_with_drafts(e, *r, o);
    const proa_kv_pages *p = e->pages.attached;
    size_t each = (size_t)(pages * p->block_bytes), lists = 2 * (size_t)p->layers;
    char *copy = malloc(each * lists);
    for (size_t i = 0; i < lists; i++)
        memcpy(copy + i * each, p->memory + i * (size_t)(p->count * p->block_bytes), each);
    *bytes = each * lists;
    return copy;
}

/* Rows behind wrong draft tokens are run again: after many of them the draft model has what it has after a prompt with
 * these tokens. */
static void pages_hold_the_right_tokens(void **state)
{
    enum { FIRST = 20, PAGES = 3 };
    outcome drafted = {0}, given = {0};
    int32_t ids[64 * PAGES + 10];
    size_t bytes, other;
    PROA_UNUSED(state);
    if (getenv("PROA_TEST_DEVICE")) skip(); /* it reads the pages, which are the device's there */
    fill_prompt(ids, FIRST, 1);
    proa_request r = {.ids = ids, .ids_count = FIRST};
    r.options.max_tokens = (int32_t)PROA_COUNT(ids) - FIRST + 20, r.options.ignore_eos = true;
    proa_engine *e = open_with(GOLDEN "arch/llama3", GOLDEN "arch/qwen2", roomy);
    char *a = run_and_copy(e, &r, &drafted, PAGES, &bytes);
    proa_stats stats;
    proa_engine_stats(e, &stats);
    assert_true(stats.drafted > stats.accepted);
    assert_true(stats.pages_cached >= PAGES - 1); /* those that the draft model has run */
    int64_t cached = stats.pages_cached;
    proa_engine_close(e);
    memcpy(ids + FIRST, drafted.ids, sizeof ids - FIRST * sizeof *ids);
    r.ids_count = PROA_COUNT(ids), r.options.max_tokens = 1;
    e = open_with(GOLDEN "arch/llama3", GOLDEN "arch/qwen2", roomy);
    char *b = run_and_copy(e, &r, &given, PAGES, &other);
    assert_int_equal(bytes, other);
    for (int64_t i = 0, lists = 2 * (int64_t)e->pages.attached->layers; i < lists; i++)
        assert_memory_equal(a + i * (int64_t)bytes / lists, b + i * (int64_t)bytes / lists,
                            (size_t)(proa_min64(cached, PAGES) * e->pages.attached->block_bytes));
    proa_engine_close(e);
    free(a), free(b);
    outcome_release(&drafted), outcome_release(&given);
}

/* ---- options of a request ---- */

static int64_t drafted_of(proa_engine *e, proa_options options, outcome *o)
{
    int32_t ids[30];
    fill_prompt(ids, 30, 2);
    proa_request r = {.ids = ids, .ids_count = 30, .options = options};
    proa_stats before, after;
    proa_engine_stats(e, &before);
    r.options.ignore_eos = true, r.options.top_logprobs = 3, r.options.logprobs = true;
    if (!r.options.max_tokens) r.options.max_tokens = 40;
    run_with_drafts(e, r, o);
    proa_engine_stats(e, &after);
    return (int64_t)(after.drafted - before.drafted);
}

/* A request chooses who drafts, how many, and from what; log-probabilities of other tokens stay what they are. */
static void requests_choose(void **state)
{
    PROA_UNUSED(state);
    outcome none = {0}, draft = {0}, few = {0}, predicted = {0}, wrong = {0};
    proa_engine *e = open_with(GOLDEN "arch/llama3", GOLDEN "arch/llama3", roomy);
    assert_int_equal(drafted_of(e, (proa_options){.speculation = "none"}, &none), 0);
    assert_true(drafted_of(e, (proa_options){.max_tokens = 40}, &draft) > 20);
    int64_t one = drafted_of(e, (proa_options){.draft_tokens = 1}, &few);
    assert_true(one > 15 && one <= 20);
    proa_tokens right = {none.ids, 40};
    assert_true(drafted_of(e, (proa_options){.draft_ids = right, .draft_tokens = 8}, &predicted) >= 30);
    proa_tokens other = {none.ids + 1, 8};
    drafted_of(e, (proa_options){.draft_ids = other}, &wrong);
    outcome *all[] = {&draft, &few, &predicted, &wrong};
    for (size_t i = 0; i < PROA_COUNT(all); i++) {
        assert_int_equal(all[i]->count, none.count);
        assert_memory_equal(all[i]->ids, none.ids, (size_t)none.count * sizeof(int32_t));
        assert_same_logprobs(all[i], &none);
        outcome_release(all[i]);
    }
    outcome_release(&none);
    proa_engine_close(e);
}

static void expect_refused(proa_engine *e, proa_options options, const char *text)
{
    int32_t ids[] = {5, 6, 7};
    outcome o = {0};
    proa_err err = {.status = PROA_OK};
    proa_request r = {.ids = ids, .ids_count = 3, .options = options, .on_event = collect, .arg = &o};
    r.options.max_tokens = 3;
    assert_int_not_equal(proa_engine_submit(e, &r, NULL, &err), PROA_OK);
    if (!strstr(err.text, text)) fail_msg("'%s' is not in '%s'", text, err.text);
}

static void bad_options_are_refused(void **state)
{
    PROA_UNUSED(state);
    int32_t far[] = {4, 200};
    proa_engine *e = open_with(GOLDEN "arch/llama3", NULL, roomy);
    expect_refused(e, (proa_options){.speculation = "drat"},
                   "option 'speculation' is 'drat', must be none, ngram, draft");
    expect_refused(e, (proa_options){.speculation = "draft"},
                   "option 'speculation' is 'draft', but the model has no");
    expect_refused(e, (proa_options){.draft_tokens = 17}, "option 'draft_tokens' is 17");
    expect_refused(e, (proa_options){.draft_ids = {far, 2}}, "option 'draft_ids'");
    expect_refused(e, (proa_options){.prediction = "a"}, "option 'prediction' needs a tokenizer");
    proa_engine_close(e);
}

/* ---- the distribution of what is sampled ---- */

/* The last of three tokens is drafted. */
static void check_distribution(void)
{
    int32_t ids[8];
    proa_stats stats;
    proa_engine_options options = roomy;
    options.sequences_max = 2 * JOINT_EACH; /* a device samples so many rows in a pass, drafts among them */
    proa_engine *e = open_with(GOLDEN "arch/llama3", GOLDEN "arch/llama3", options);
    fill_prompt(ids, 5, 9);
    expect_joint_distribution(e, ids, run_with_drafts);
    proa_engine_stats(e, &stats);
    assert_true(stats.accepted > JOINT_DRAWN / 2);
    proa_engine_close(e);
}

static void drafted_samples_have_their_distribution(void **state)
{
    PROA_UNUSED(state);
    check_distribution();
}

/* Drafted and verified by the sampler of devices, which draws in a way of its own. */
static void samples_of_a_device_have_their_distribution(void **state)
{
    PROA_UNUSED(state);
    setenv("PROA_AHEAD", "1", 1);
    check_distribution();
    unsetenv("PROA_AHEAD");
}

static void refuse(const char *model, proa_engine_options options, const char *text)
{
    proa_engine *e = NULL;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_engine_open(&e, model, &options, &err), PROA_INVALID);
    if (!strstr(err.text, text)) fail_msg("'%s' is not in '%s'", text, err.text);
    assert_null(e);
}

static void unfit_models_are_refused(void **state)
{
    PROA_UNUSED(state);
    const char *ten = STORIES;
    refuse(ten, (proa_engine_options){.draft_model = GOLDEN "arch/llama"},
           "option 'draft-model': its vocabulary has 200 tokens, that of the model 8192");
    refuse(ten, (proa_engine_options){.draft_model = MODELS "m30k-t5"},
           "option 'draft-model': a t5 cannot draft");
    refuse(MODELS "m30k-t5", (proa_engine_options){.draft_model = ten}, "cannot draft for a t5");
    refuse(ten, (proa_engine_options){.speculation = "draft"}, "option 'speculation' is 'draft', which needs");
    refuse(ten, (proa_engine_options){.speculation = "drat"}, "must be none, ngram, draft, medusa or eagle");
}

static void cancelled_requests_return_their_pages(void **state)
{
    PROA_UNUSED(state);
    outcome o[REQUESTS] = {{0}};
    int32_t ids[PROMPT];
    proa_stats stats;
    uint64_t id[REQUESTS];
    fill_prompt(ids, PROMPT, 3);
    proa_engine *e = open_with(GOLDEN "arch/llama3", GOLDEN "arch/llama3", tight);
    for (int i = 0; i < REQUESTS; i++) {
        proa_err err;
        proa_request r = request_of(i, ids);
        r.options.regex = NULL, r.options.ignore_eos = true, r.on_event = collect, r.arg = &o[i];
        assert_int_equal(proa_engine_submit(e, &r, &id[i], &err), PROA_OK);
    }
    for (int step = 0; proa_engine_step(e); step++)
        if (step % 5 == 4 && step / 5 < REQUESTS) proa_engine_cancel(e, id[step / 5]);
    proa_engine_stats(e, &stats);
    assert_int_equal(stats.pages_used, 0);
    assert_true(stats.cancelled > 0);
    proa_engine_close(e);
    release_all(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_drafts_for_itself),
        cmocka_unit_test(tokens_in_flight_wait),
        cmocka_unit_test(a_full_batch_drafts),
        cmocka_unit_test(another_model_drafts),
        cmocka_unit_test(pages_hold_the_right_tokens),
        cmocka_unit_test(drafted_samples_have_their_distribution),
        cmocka_unit_test(samples_of_a_device_have_their_distribution),
        cmocka_unit_test(requests_choose),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(unfit_models_are_refused),
        cmocka_unit_test(cancelled_requests_return_their_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
