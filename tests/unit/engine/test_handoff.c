/* SPDX-License-Identifier: Apache-2.0
 * test_handoff.c - prompts that run on one replica and are continued on another: results are, to the bit, those of one
 * engine, also where requests are preempted, cancelled, or the prefill replica fails; pages return. */
#include "engine_test.h"

#include "base/checked.h"
#include "engine/fleet/fleet.h"
#include "engine/engine.h"

#include <time.h>
#include <unistd.h>

enum { COUNT = 14, PROMPT = 420, TOKENS = 24 };

static proa_fleet *apart_or_fail(const char *path, int32_t prefill, int32_t decode, int64_t kv_tokens)
{
    proa_fleet *f = NULL;
    proa_err err = {.status = PROA_OK};
    const proa_engine_options o = {.threads = 2, .dtype = exact_dtype(), .kv_tokens = kv_tokens};
    const proa_fleet_options apart = {.count = prefill + decode, .prefill = prefill, .rest_ms = 600000};
    if (proa_fleet_open(&f, path, &o, &apart, &err) != PROA_OK) fail_msg("%s: %s", path, err.text);
    return f;
}

/* Steps all replicas in turn until none has anything to do. */
static void run_all(proa_fleet *f)
{
    for (bool any = true; any;) {
        any = false;
        for (int32_t i = 0; i < proa_fleet_count(f); i++)
            any = proa_engine_step(proa_fleet_engine(f, i)) || any;
    }
}

static void make_ids(int32_t *ids, int nr)
{
    for (int i = 0; i < PROMPT; i++) ids[i] = 3 + (i * 13 + nr * 29 + i * i % 7) % 150;
}

/* Greedy, random, several sequences, beams, processors, alternatives; prompts of 40 to PROMPT tokens. */
static proa_request request_of(const int32_t *ids, int i, int32_t tokens)
{
    proa_request r = {.ids = ids, .ids_count = 40 + (int64_t)i * (PROMPT - 40) / (COUNT - 1)};
    r.options = (proa_options){.max_tokens = tokens, .ignore_eos = true, .seed = (uint64_t)i, .logprobs = true};
    if (i % 5 == 1) r.options.temperature = 0.9F, r.options.top_p = 0.9F;
    if (i % 5 == 2) r.options.temperature = 1, r.options.n = 2;
    if (i % 5 == 3) r.options.beams = 3, r.options.logprobs = false;
    if (i % 5 == 4) r.options.repetition_penalty = 1.3F, r.options.top_logprobs = 3;
    if (i == 6) r.options.prompt_logprobs = true; /* runs where it generates */
    return r;
}

static uint64_t submit(proa_fleet *f, proa_request r, outcome *o)
{
    proa_err err = {.status = PROA_OK};
    uint64_t id = 0;
    r.on_event = collect, r.arg = o;
    if (proa_fleet_submit(f, &r, &id, &err) != PROA_OK) fail_msg("submit: %s", err.text);
    return id;
}

static void assert_all_returned(proa_fleet *f)
{
    for (int32_t i = 0; i < proa_fleet_count(f); i++) {
        proa_engine *e = proa_fleet_engine(f, i);
        proa_stats stats;
        proa_engine_stats(e, &stats);
        assert_int_equal(stats.pages_used, 0);
        assert_int_equal(stats.running + stats.waiting, 0);
        assert_int_equal(e->handoff_pages, 0);
        assert_null(e->handoffs);
    }
}

static void equals_one_engine(proa_fleet *f, const char *path, int32_t tokens)
{
    static int32_t ids[COUNT][PROMPT];
    outcome a[COUNT] = {0}, b[COUNT] = {0};
    proa_engine *one = open_or_fail(path, NULL);
    for (int i = 0; i < COUNT; i++) {
        make_ids(ids[i], i);
        submit(f, request_of(ids[i], i, tokens), &a[i]);
        run_request(one, request_of(ids[i], i, tokens), &b[i]);
    }
    run_all(f);
    for (int i = 0; i < COUNT; i++) {
        assert_true(a[i].done);
        assert_same_outcome(&a[i], &b[i], false);
        assert_int_equal(a[i].cached_tokens, 0); /* what was handed on was not cached */
        outcome_release(&a[i]), outcome_release(&b[i]);
    }
    assert_all_returned(f);
    proa_engine_close(one);
}

static void tokens_are_the_same(void **state)
{
    static const int32_t replicas[][2] = {{1, 1}, {2, 1}, {1, 2}};
    for (size_t i = 0; i < PROA_COUNT(replicas); i++) {
        proa_fleet *f = apart_or_fail(*state, replicas[i][0], replicas[i][1], 16384);
        equals_one_engine(f, *state, TOKENS);
        proa_stats prompts, tokens;
        proa_engine_stats(proa_fleet_engine(f, 0), &prompts);
        proa_engine_stats(proa_fleet_engine(f, replicas[i][0]), &tokens);
        assert_true(prompts.prompt_tokens > 0 && tokens.prefix_hits > 0);
        assert_true(tokens.new_tokens > prompts.new_tokens); /* one token of each prompt */
        proa_fleet_close(f);
    }
}

/* So few pages that requests are preempted, handed pages are evicted, and handoffs wait for room. */
static void with_few_pages(void **state)
{
    proa_fleet *f = apart_or_fail(*state, 1, 1, 1536);
    equals_one_engine(f, *state, 4 * TOKENS);
    proa_stats tokens;
    proa_engine_stats(proa_fleet_engine(f, 1), &tokens);
    assert_true(tokens.preemptions > 0);
    proa_fleet_close(f);
}

/* A prompt that was sent before is found where it was handed to, and does not move again. */
static void cached_prompts_stay(void **state)
{
    proa_fleet *f = apart_or_fail(*state, 1, 1, 16384);
    int32_t ids[PROMPT];
    outcome o = {0};
    proa_stats before, after;
    make_ids(ids, 1);
    proa_request r = {.ids = ids, .ids_count = PROMPT, .options = {.max_tokens = 4, .ignore_eos = true}};
    submit(f, r, &o);
    run_all(f);
    outcome_release(&o);
    proa_engine_stats(proa_fleet_engine(f, 0), &before);
    submit(f, r, &o);
    run_all(f);
    assert_int_equal(o.cached_tokens, (PROMPT - 1) / 64 * 64);
    proa_engine_stats(proa_fleet_engine(f, 0), &after);
    assert_int_equal(after.submitted, before.submitted);
    outcome_release(&o);
    r.cache_salt = "salt"; /* shares nothing: it moves */
    submit(f, r, &o);
    run_all(f);
    assert_int_equal(o.cached_tokens, 0);
    proa_engine_stats(proa_fleet_engine(f, 0), &after);
    assert_int_equal(after.submitted, before.submitted + 1);
    outcome_release(&o);
    assert_all_returned(f);
    proa_fleet_close(f);
}

/* Each request is cancelled after another number of steps: before its prompt runs, while it does, on its way, later. */
static void cancelled_anywhere(void **state)
{
    proa_fleet *f = apart_or_fail(*state, 1, 1, 4096);
    static int32_t ids[PROMPT];
    for (int steps = 0; steps < 24; steps++) {
        outcome o = {0}, other = {0};
        make_ids(ids, steps);
        proa_request r = {.ids = ids, .ids_count = PROMPT, .options = {.max_tokens = 60, .ignore_eos = true}};
        uint64_t id = submit(f, r, &o);
        r.cache_salt = "other", r.options.max_tokens = 3;
        submit(f, r, &other);
        for (int i = 0; i < steps; i++) proa_engine_step(proa_fleet_engine(f, i % 3 == 2));
        proa_fleet_cancel(f, id);
        run_all(f);
        assert_true(o.done && other.done);
        assert_int_equal(o.finish, PROA_FINISH_CANCELLED);
        assert_int_equal(other.finish, PROA_FINISH_LENGTH);
        assert_all_returned(f);
        outcome_release(&o), outcome_release(&other);
    }
    proa_fleet_close(f);
}

/* ---- failures ---- */

static bool broken;

static proa_status failed(proa_device *d, proa_err *err)
{
    PROA_UNUSED(d);
    return broken ? PROA_FAIL(err, INTERNAL, "the device fell silent") : PROA_OK;
}

/* The decode replica runs the prompts itself, before and after the other one is known to have failed. */
static void a_failed_prefill_replica(void **state)
{
    proa_fleet *f = apart_or_fail(*state, 1, 1, 16384);
    proa_fleet_engine(f, 0)->device->failed = failed;
    broken = true;
    for (int i = 0; i < 3; i++) {
        int32_t ids[PROMPT];
        outcome o = {0};
        make_ids(ids, i);
        proa_request r = {.ids = ids, .ids_count = PROMPT, .options = {.max_tokens = 4, .ignore_eos = true}};
        submit(f, r, &o);
        run_all(f);
        assert_int_equal(o.finish, PROA_FINISH_LENGTH);
        outcome_release(&o);
        assert_false(proa_fleet_serves(f, 0));
    }
    proa_stats stats;
    proa_engine_stats(proa_fleet_engine(f, 0), &stats);
    assert_int_equal(stats.submitted, 1);
    assert_all_returned(f);
    broken = false;
    proa_fleet_close(f);
}

static void closed_on_the_way(void **state)
{
    static int32_t ids[PROMPT];
    make_ids(ids, 3);
    for (int steps = 0; steps < 6; steps++) {
        outcome o[2] = {0};
        proa_fleet *f = apart_or_fail(*state, 1, 1, 4096);
        proa_request r = {.ids = ids, .ids_count = PROMPT, .options = {.max_tokens = 60, .ignore_eos = true}};
        for (int i = 0; i < 2; i++) submit(f, r, &o[i]);
        for (int i = 0; i < steps; i++) proa_engine_step(proa_fleet_engine(f, 0));
        if (steps == 5) proa_engine_step(proa_fleet_engine(f, 1));
        proa_fleet_close(f);
        for (int i = 0; i < 2; i++) outcome_release(&o[i]);
    }
}

/* ---- threads ---- */

typedef struct caller {
    proa_fleet *fleet;
    int nr, ended;
    const outcome *right; /* [3] of its prompts */
    outcome o;
    pthread_mutex_t lock;
    pthread_cond_t more;
} caller;

static void hear(const proa_event *event)
{
    caller *c = event->arg;
    pthread_mutex_lock(&c->lock);
    proa_event e = *event;
    e.arg = &c->o;
    collect(&e);
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

/* Every third request is cancelled, after nothing or after its first token; the others are compared. */
static void *call_often(void *arg)
{
    caller *c = arg;
    int32_t ids[PROMPT];
    for (int i = 0; i < PART_OF(24, 9); i++) {
        uint64_t id = 0;
        int nr = (c->nr + i) % 3;
        char salt[16];
        make_ids(ids, nr);
        snprintf(salt, sizeof salt, "%d", i % 4 ? c->nr * 100 + i : 0);
        proa_request r = {
            .ids = ids, .ids_count = PROMPT - 50 * nr, .on_event = hear, .arg = c, .cache_salt = salt};
        r.options = (proa_options){.max_tokens = 12, .ignore_eos = true};
        if (proa_fleet_submit(c->fleet, &r, &id, NULL) != PROA_OK) return NULL;
        pthread_mutex_lock(&c->lock);
        while (i % 6 == 5 && !c->o.count && !c->o.done) pthread_cond_wait(&c->more, &c->lock);
        pthread_mutex_unlock(&c->lock);
        if (i % 3 == 2) proa_fleet_cancel(c->fleet, id);
        pthread_mutex_lock(&c->lock);
        while (!c->o.done) pthread_cond_wait(&c->more, &c->lock);
        bool whole = c->o.finish == PROA_FINISH_LENGTH && c->o.count == 12 &&
                     memcmp(c->o.ids, c->right[nr].ids, 12 * sizeof *c->o.ids) == 0;
        c->ended += whole || (i % 3 == 2 && c->o.finish == PROA_FINISH_CANCELLED);
        outcome_release(&c->o);
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

static void callers_at_once(void **state)
{
    enum { CALLERS = 6 };
    static caller c[CALLERS];
    pthread_t thread[CALLERS];
    outcome right[3] = {0};
    proa_err err = {.status = PROA_OK};
    proa_engine *one = open_or_fail(*state, NULL);
    for (int nr = 0; nr < 3; nr++) {
        int32_t ids[PROMPT];
        make_ids(ids, nr);
        run_request(one,
                    (proa_request){.ids = ids,
                                   .ids_count = PROMPT - 50 * nr,
                                   .options = {.max_tokens = 12, .ignore_eos = true}},
                    &right[nr]);
    }
    proa_engine_close(one);
    proa_fleet *f = apart_or_fail(*state, 1, 1, 2048);
    assert_int_equal(proa_fleet_start(f, &err), PROA_OK);
    for (int i = 0; i < CALLERS; i++) {
        c[i] = (caller){.fleet = f, .nr = i, .right = right};
        pthread_mutex_init(&c[i].lock, NULL);
        pthread_cond_init(&c[i].more, NULL);
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, &c[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) pthread_join(thread[i], NULL);
    proa_fleet_stop(f);
    run_all(f);
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(c[i].ended, PART_OF(24, 9));
        pthread_mutex_destroy(&c[i].lock), pthread_cond_destroy(&c[i].more);
    }
    for (int nr = 0; nr < 3; nr++) outcome_release(&right[nr]);
    assert_all_returned(f);
    proa_fleet_close(f);
}

static void what_is_refused(void **state)
{
    proa_fleet *f = NULL;
    proa_err err = {.status = PROA_OK};
    proa_engine_options o = {.threads = 1};
    const proa_fleet_options none = {.count = 2, .prefill = 2}, apart = {.count = 2, .prefill = 1};
    assert_int_equal(proa_fleet_open(&f, *state, &o, &none, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "prefill=2 of 2"));
    err = (proa_err){.status = PROA_OK};
    o.prefix_cache = "off";
    assert_int_equal(proa_fleet_open(&f, *state, &o, &apart, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "prefix cache"));
    err = (proa_err){.status = PROA_OK};
    o.prefix_cache = NULL;
    assert_int_equal(proa_fleet_open(&f, GOLDEN "arch/t5", &o, &apart, &err), PROA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "encoder"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(tokens_are_the_same, "llama3"), ON(tokens_are_the_same, "falcon7b"),
        ON(with_few_pages, "llama3"),      ON(cached_prompts_stay, "llama3"),
        ON(cancelled_anywhere, "llama3"),  ON(a_failed_prefill_replica, "llama3"),
        ON(closed_on_the_way, "llama3"),   ON(callers_at_once, "llama3"),
        ON(what_is_refused, "llama3"),
    };
    return cmocka_run_group_tests_name("handoff", tests, NULL, NULL);
}
