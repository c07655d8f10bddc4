/* SPDX-License-Identifier: Apache-2.0
 * test_prefix_cache.c - requests that begin alike: how many tokens are reused, what must not be, and that the results
 * are to the bit those of an engine without a cache. test_traffic does the same with random requests. */
#include "engine_test.h"

#include "base/checked.h"

enum { PROMPT = 150, ROOM = 400 };

typedef struct pair {
    proa_engine *on, *off;
    proa_info info;
    int32_t ids[ROOM];
} pair;

static void open_pair(pair *p, const char *model)
{
    const proa_engine_options on = {.kv_tokens = 4096}, off = {.kv_tokens = 4096, .prefix_cache = "off"};
    p->on = open_or_fail(model, &on);
    p->off = open_or_fail(model, &off);
    proa_engine_info(p->on, &p->info);
    for (int i = 0; i < ROOM; i++) p->ids[i] = 3 + (i * 7919 + i * i) % (p->info.vocab - 3);
}

static void close_pair(pair *p)
{
    proa_stats stats;
    proa_engine_stats(p->on, &stats);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_stats(p->off, &stats);
    assert_int_equal(stats.prefix_queries + stats.prefix_hits + (uint64_t)stats.pages_cached, 0);
    proa_engine_close(p->on);
    proa_engine_close(p->off);
}

/* Runs the request on both engines; results must be equal and so many tokens reused. */
static void ask(const pair *p, proa_request r, int64_t cached)
{
    outcome on = {.done = false}, off = {.done = false};
    if (!r.ids) r.ids = p->ids;
    if (!r.ids_count) r.ids_count = PROMPT;
    run_request(p->on, r, &on);
    run_request(p->off, r, &off);
    assert_same_outcome(&on, &off, r.options.temperature > 0);
    assert_int_equal(on.cached_tokens, cached);
    assert_int_equal(off.cached_tokens, 0);
    outcome_release(&on), outcome_release(&off);
}

/* A request for so many tokens. */
static proa_request tokens(int32_t count)
{
    return (proa_request){.options = {.max_tokens = count, .ignore_eos = true, .logprobs = true}};
}

/* For 8 tokens, with other options. */
#define TOKENS(...)                                                                                          \
    ((proa_request){.options = {.max_tokens = 8, .ignore_eos = true, .logprobs = true, __VA_ARGS__}})

static void prompts_are_reused(void **state)
{
    pair p;
    open_pair(&p, *state);
    ask(&p, tokens(8), 0);
    ask(&p, tokens(8), 128);
    ask(&p, TOKENS(.temperature = 1, .seed = 5), 128);
    ask(&p, TOKENS(.temperature = 1, .n = 3, .best_of = 4), 128);
    ask(&p, TOKENS(.beams = 3), 128);
    ask(&p, TOKENS(.no_repeat_ngram = 2, .repetition_penalty = 1.2F), 128);
    proa_request r = tokens(8);
    r.ids_count = 128; /* the last token is run, so the page that has it is computed anew */
    ask(&p, r, 64);
    r.ids_count = 129;
    ask(&p, r, 128);
    p.ids[64]++;
    ask(&p, r, 64);
    p.ids[0]++;
    ask(&p, r, 0);
    close_pair(&p);
}

/* Rows whose own outputs are wanted are run, but their keys and values serve later requests. */
static void rows_that_are_wanted_are_run(void **state)
{
    pair p;
    open_pair(&p, *state);
    proa_request rows = {.task = PROA_TASK_ROWS}, score = {.task = PROA_TASK_SCORE};
    ask(&p, rows, 0);
    ask(&p, rows, 0);
    ask(&p, score, 0);
    ask(&p, TOKENS(.prompt_logprobs = true), 0);
    ask(&p, TOKENS(.penalty_alpha = 0.6F, .top_k = 4), 0);
    ask(&p, tokens(3), 128);
    close_pair(&p);
}

static void salts_are_apart(void **state)
{
    pair p;
    open_pair(&p, *state);
    static const char *const salts[] = {NULL, "a", "b", "a", "", "ab"};
    static const int64_t cached[] = {0, 0, 0, 128, 128, 0};
    for (size_t i = 0; i < PROA_COUNT(salts); i++) {
        proa_request r = tokens(3);
        r.cache_salt = salts[i];
        ask(&p, r, cached[i]);
    }
    close_pair(&p);
}

/* The next turn of a chat begins with the last prompt and what was generated. */
static void generated_tokens_are_reused(void **state)
{
    pair p;
    outcome first = {.done = false};
    open_pair(&p, *state);
    proa_request r = tokens(100);
    r.ids = p.ids, r.ids_count = 100;
    run_request(p.on, r, &first);
    assert_int_equal(first.count, 100);
    memcpy(p.ids + 100, first.ids, 100 * sizeof *p.ids);
    r = tokens(5);
    r.ids_count = 230;
    ask(&p, r, 192); /* of 200 tokens the last was not run: three pages are full */
    outcome_release(&first);
    close_pair(&p);
}

/* Requests of one prompt that arrive together find what the first of them computes, chunk by chunk. */
static void neighbours_share(void **state)
{
    const proa_engine_options options = {.kv_tokens = 8192, .step_tokens = 70, .sequences_max = 8};
    pair p;
    outcome o[6] = {{.done = false}};
    proa_stats stats;
    open_pair(&p, *state);
    proa_engine *engine = open_or_fail(*state, &options);
    proa_request r = tokens(4);
    r.ids = p.ids, r.ids_count = 300;
    for (int i = 0; i < 6; i++) submit_or_fail(engine, r, &o[i]);
    proa_engine_run(engine);
    proa_engine_stats(engine, &stats);
    for (int i = 1; i < 6; i++) {
        assert_same_outcome(&o[i], &o[0], r.options.temperature > 0);
        assert_int_equal(o[i].cached_tokens, 256);
    }
    assert_true(stats.prompt_tokens < 300 + 6 * 64);
    assert_int_equal(stats.prefix_queries, 6 * 300);
    assert_int_equal(stats.prefix_hits, 5 * 256);
    for (int i = 0; i < 6; i++) outcome_release(&o[i]);
    proa_engine_close(engine);
    close_pair(&p);
}

/* An encoder's input is cached as a whole, and the decoder's prompt below it. */
static void inputs_are_reused(void **state)
{
    pair p;
    open_pair(&p, *state);
    ask(&p, tokens(8), 0);
    ask(&p, tokens(8), PROMPT);
    ask(&p, TOKENS(.beams = 4), PROMPT);
    proa_request longer = tokens(8), started = tokens(8);
    longer.ids_count = PROMPT + 1;
    ask(&p, longer, 0);
    longer.ids_count = 128;
    ask(&p, longer, 0);
    int32_t start[100];
    for (int i = 0; i < 100; i++) start[i] = 3 + i;
    started.decoder_ids = start, started.decoder_ids_count = 100;
    ask(&p, started, PROMPT);
    ask(&p, started, PROMPT + 64);
    started.ids_count = 128; /* another input: other keys and values of the same decoder tokens */
    ask(&p, started, 128);
    proa_request encode = {.task = PROA_TASK_ENCODE};
    ask(&p, encode, 0);
    p.ids[PROMPT - 1]++;
    ask(&p, tokens(8), 0);
    close_pair(&p);
}

/* Prompts whose tokens see each other both ways share nothing. */
static void blanks_are_not_reused(void **state)
{
    pair p;
    open_pair(&p, *state);
    for (int i = 0; i < 110; i++) p.ids[i] = 3 + i;
    p.ids[98] = 185, p.ids[99] = 188; /* [gMASK], then the token that begins the answer */
    for (int i = 0; i < 2; i++) {
        proa_request r = tokens(8);
        r.ids_count = 110;
        ask(&p, r, 0);
    }
    close_pair(&p);
}

/* LongRoPE chooses its frequencies by the length that a sequence can grow to: requests share with those of their kind.
 * The model was trained with 32 positions, so sequences with a full page are all of the longer kind. */
static void lengths_are_apart(void **state)
{
    static const int32_t more[] = {4, 16, 40};
    pair p;
    open_pair(&p, *state);
    for (size_t i = 0; i < PROA_COUNT(more); i++) {
        proa_request r = tokens(more[i]);
        r.ids_count = 80;
        ask(&p, r, i ? 64 : 0);
    }
    close_pair(&p);
}

/* In a small pool old prefixes are evicted, and no request is refused or waits for them. */
static void evicted_when_pages_are_needed(void **state)
{
    const proa_engine_options options = {.kv_tokens = 10 * 64, .sequences_max = 2};
    pair p;
    proa_stats stats;
    open_pair(&p, *state);
    proa_engine *engine = open_or_fail(*state, &options);
    for (int i = 0; i < 12; i++) {
        outcome on = {.done = false}, off = {.done = false};
        proa_request r = tokens(100);
        p.ids[0] = 3 + i % 5;
        r.ids = p.ids, r.ids_count = 200;
        run_request(engine, r, &on), run_request(p.off, r, &off);
        assert_same_outcome(&on, &off, r.options.temperature > 0);
        outcome_release(&on), outcome_release(&off);
    }
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(stats.pages_free, 10);
    assert_true(stats.pages_evicted > 0 && stats.pages_cached <= 10);
    proa_engine_close(engine);
    close_pair(&p);
}

static void bad_switch(void **state)
{
    const proa_engine_options options = {.prefix_cache = "maybe"};
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_engine_open(&engine, *state, &options, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "option 'prefix-cache' is 'maybe', must be on or off"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(prompts_are_reused, "llama3"),
        ON(prompts_are_reused, "gemma2"),
        ON(prompts_are_reused, "bloom"),
        ON(prompts_are_reused, "qwen3_moe"),
        ON(rows_that_are_wanted_are_run, "llama3"),
        ON(salts_are_apart, "llama3"),
        ON(generated_tokens_are_reused, "llama3"),
        ON(generated_tokens_are_reused, "mistral"),
        ON(neighbours_share, "llama3"),
        ON(inputs_are_reused, "t5"),
        ON(inputs_are_reused, "t5_v1_1"),
        ON(blanks_are_not_reused, "chatglm_6b"),
        ON(lengths_are_apart, "phi3_longrope"),
        ON(evicted_when_pages_are_needed, "llama3"),
        ON(bad_switch, "llama3"),
    };
    return cmocka_run_group_tests_name("prefix_cache", tests, NULL, NULL);
}
