/* SPDX-License-Identifier: Apache-2.0
 * test_fleet.c - replicas: which of them gets a request (cached prefixes, queues, sessions, adapters), that results are
 * those of one engine, and that one whose device has failed takes none. */
#include "engine_test.h"

#include "base/checked.h"
#include "base/thread.h"
#include "engine/fleet/fleet.h"
#include "engine/engine.h"

#include <time.h>
#include <unistd.h>

enum { PROMPT = 300, TOKENS = 8 };

/* Of replicas that fail, in the fleets that are opened next. */
static int32_t rest_ms;

static proa_fleet *fleet_or_fail(const char *path, int32_t count, const proa_engine_options *options)
{
    proa_fleet *f = NULL;
    proa_err err = {.status = PROA_OK};
    proa_engine_options o = options ? *options : (proa_engine_options){.threads = 2, .kv_tokens = 16384};
    if (!o.dtype) o.dtype = exact_dtype();
    const proa_fleet_options fleet = {.count = count, .rest_ms = rest_ms};
    if (proa_fleet_open(&f, path, &o, &fleet, &err) != PROA_OK) fail_msg("%s: %s", path, err.text);
    return f;
}

/* ids [PROMPT] of text number `nr`. */
static void make_ids(int32_t *ids, int nr)
{
    for (int i = 0; i < PROMPT; i++) ids[i] = 3 + (i * 13 + nr * 29) % 150;
}

static proa_request request_of(const int32_t *ids, int64_t count, outcome *o)
{
    return (proa_request){.ids = ids,
                          .ids_count = count,
                          .on_event = collect,
                          .arg = o,
                          .options = {.max_tokens = TOKENS, .ignore_eos = true, .logprobs = true}};
}

/* The replica that the request went to. */
static int32_t submit(proa_fleet *f, const proa_request *r)
{
    proa_err err = {.status = PROA_OK};
    uint64_t id = 0;
    if (proa_fleet_submit(f, r, &id, &err) != PROA_OK) fail_msg("submit: %s", err.text);
    return (int32_t)(id % PROA_REPLICAS_MAX);
}

static void run_all(proa_fleet *f)
{
    for (int32_t i = 0; i < proa_fleet_count(f); i++) proa_engine_run(proa_fleet_engine(f, i));
}

/* A prompt goes where its first pages are, whatever its turn is. */
static void prefixes_find_their_replica(void **state)
{
    proa_fleet *f = fleet_or_fail(*state, 2, NULL);
    int32_t ids[2][PROMPT], at[2];
    outcome first[2] = {0};
    for (int i = 0; i < 2; i++) {
        make_ids(ids[i], i);
        proa_request r = request_of(ids[i], PROMPT - 40, &first[i]);
        at[i] = submit(f, &r);
    }
    assert_int_not_equal(at[0], at[1]); /* the first one is queued: the second goes elsewhere */
    run_all(f);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 2; i++) {
            outcome o = {0};
            proa_request r = request_of(ids[i], PROMPT, &o);
            assert_int_equal(submit(f, &r), at[i]);
            run_all(f);
            assert_true(o.done);
            assert_int_equal(o.cached_tokens, round ? (PROMPT - 1) / 64 * 64 : (PROMPT - 40) / 64 * 64);
            outcome_release(&o);
        }
    outcome salted = {0}; /* another salt shares nothing: it goes where less is queued */
    proa_request r = request_of(ids[at[0] == 0 ? 1 : 0], PROMPT, &salted);
    r.cache_salt = "other";
    assert_int_equal(submit(f, &r), 0);
    run_all(f);
    assert_int_equal(salted.cached_tokens, 0);
    outcome_release(&salted);
    for (int i = 0; i < 2; i++) outcome_release(&first[i]);
    proa_fleet_close(f);
}

static void results_are_those_of_one_engine(void **state)
{
    enum { COUNT = 9 };
    proa_fleet *f = fleet_or_fail(*state, 3, NULL);
    proa_engine *one = open_or_fail(*state, NULL);
    int32_t ids[COUNT][PROMPT], used[3] = {0};
    outcome a[COUNT] = {0}, b[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) {
        make_ids(ids[i], i);
        proa_request r = request_of(ids[i], 70 + 20 * i, &a[i]);
        if (i % 3 == 1) r.options.temperature = 0.9F, r.options.seed = (uint64_t)i;
        if (i % 3 == 2) r.options.beams = 3, r.options.logprobs = false;
        used[submit(f, &r)]++;
        r.arg = &b[i];
        submit_or_fail(one, r, &b[i]);
    }
    run_all(f);
    proa_engine_run(one);
    for (int i = 0; i < COUNT; i++) {
        assert_true(a[i].done && b[i].done);
        assert_same_outcome(&a[i], &b[i], false);
        outcome_release(&a[i]), outcome_release(&b[i]);
    }
    for (int i = 0; i < 3; i++) assert_true(used[i] >= 2);
    proa_stats sum;
    proa_fleet_stats(f, &sum);
    assert_int_equal(sum.finished, COUNT);
    assert_int_equal(sum.pages_used, 0);
    proa_engine_close(one);
    proa_fleet_close(f);
}

/* Equal requests are shared evenly; what all have in common stays on one replica only until that one is busier than
 * the prefix is worth. */
static void load_is_shared(void **state)
{
    enum { COUNT = 24 };
    proa_fleet *f = fleet_or_fail(*state, 2, NULL);
    int32_t ids[COUNT][PROMPT], used[2] = {0}, hot[2] = {0};
    outcome o[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) {
        make_ids(ids[i], i);
        proa_request r = request_of(ids[i], PROMPT, &o[i]);
        used[submit(f, &r)]++;
    }
    assert_int_equal(used[0], used[1]);
    run_all(f);
    for (int i = 0; i < COUNT; i++) assert_true(o[i].done), outcome_release(&o[i]);
    int32_t first = -1;
    for (int i = 0; i < COUNT; i++) { /* the same 256 tokens are cached on one replica */
        proa_request r = request_of(ids[0], PROMPT - (i + 1), &o[i]);
        int32_t at = submit(f, &r);
        if (first < 0) first = at;
        hot[at == first]++;
    }
    assert_true(hot[1] > hot[0]); /* it keeps more than its half, */
    assert_true(hot[0] >= 3);     /* but not all of them */
    run_all(f);
    for (int i = 0; i < COUNT; i++) assert_true(o[i].done), outcome_release(&o[i]);
    proa_fleet_close(f);
}

static void sessions_stay(void **state)
{
    proa_fleet *f = fleet_or_fail(*state, 3, NULL);
    int32_t ids[PROMPT], busy[PROMPT];
    outcome o = {0}, other[4] = {0};
    make_ids(ids, 1), make_ids(busy, 2);
    proa_request r = request_of(busy, PROMPT, &other[3]); /* so that the session begins on another replica */
    submit(f, &r);
    r = request_of(ids, 20, &o);
    r.session_id = "s";
    int32_t at = submit(f, &r);
    assert_int_equal(at, 1);
    run_all(f);
    for (int turn = 0; turn < 3; turn++) {
        outcome_release(&o);
        for (int k = 0; k < 3 && turn == 1; k++) { /* its replica is the busiest one */
            proa_request more = request_of(busy + k, 200, &other[k]);
            more.on_event = collect, more.arg = &other[k];
            assert_int_equal(proa_engine_submit(proa_fleet_engine(f, at), &more, NULL, NULL), PROA_OK);
        }
        r = request_of(ids + 20, 5, &o);
        r.session_id = "s";
        r.session_continues = true;
        assert_int_equal(submit(f, &r), at);
        run_all(f);
        assert_int_equal(o.finish, PROA_FINISH_LENGTH);
    }
    proa_err err = {.status = PROA_OK};
    r.session_id = "unknown";
    assert_int_equal(proa_fleet_submit(f, &r, NULL, &err), PROA_NOT_FOUND);
    proa_stats sum;
    proa_fleet_stats(f, &sum);
    assert_int_equal(sum.waiting + sum.running, 0);
    outcome_release(&o);
    for (int i = 0; i < 4; i++) outcome_release(&other[i]);
    proa_fleet_close(f);
}

/* ---- a device that fails ---- */

static bool broken;

static proa_status failed(proa_device *d, proa_err *err)
{
    PROA_UNUSED(d);
    return broken ? PROA_FAIL(err, INTERNAL, "the device fell silent") : PROA_OK;
}

/* One request to the fleet, which must go to this replica; how it ended. */
static proa_finish run_at(proa_fleet *f, int32_t replica, int nr)
{
    int32_t ids[PROMPT];
    outcome o = {0};
    make_ids(ids, nr);
    proa_request r = request_of(ids, PROMPT, &o);
    assert_int_equal(submit(f, &r), replica);
    run_all(f);
    proa_finish finish = o.finish;
    outcome_release(&o);
    return finish;
}

static void a_failed_replica_takes_none(void **state)
{
    rest_ms = 600000; /* longer than the test takes anywhere */
    proa_fleet *f = fleet_or_fail(*state, 2, NULL);
    proa_fleet_engine(f, 0)->device->failed = failed;
    broken = true;
    assert_int_equal(run_at(f, 0, 0), PROA_FINISH_ERROR);
    assert_false(proa_fleet_serves(f, 0));
    assert_true(proa_fleet_serves(f, 1) && proa_fleet_ready(f));
    for (int i = 0; i < 4; i++) assert_int_equal(run_at(f, 1, 0), PROA_FINISH_LENGTH);
    broken = false;
    proa_fleet_close(f);
}

/* After its rest it is tried again; if it fails again, it rests once more. */
static void a_replica_comes_back(void **state)
{
    rest_ms = 200;
    proa_fleet *f = fleet_or_fail(*state, 2, NULL);
    proa_fleet_engine(f, 0)->device->failed = failed;
    for (int i = 0; i < 3; i++) {
        broken = i < 2;
        assert_true(proa_fleet_serves(f, 0));
        assert_int_equal(run_at(f, 0, i), i < 2 ? PROA_FINISH_ERROR : PROA_FINISH_LENGTH);
        if (i < 2) assert_false(proa_fleet_serves(f, 0)); /* the rest begins when the failure is seen */
        for (int k = 0; k < 1000 && !proa_fleet_serves(f, 0); k++) usleep(10000);
    }
    rest_ms = 0;
    proa_fleet_close(f);
}

/* ---- threads ---- */

typedef struct caller {
    proa_fleet *fleet;
    int nr;
    outcome o;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
} caller;

static void hear(const proa_event *event)
{
    caller *c = event->arg;
    if (event->kind != PROA_EVENT_DONE) return;
    pthread_mutex_lock(&c->lock);
    c->done = true;
    c->o.finish = event->finish;
    pthread_cond_signal(&c->ended);
    pthread_mutex_unlock(&c->lock);
}

/* Requests with prefixes in common, some of which are cancelled at once. */
static void *call_often(void *arg)
{
    caller *c = arg;
    int32_t ids[PROMPT];
    for (int i = 0; i < PART_OF(20, 6); i++) {
        uint64_t id = 0;
        make_ids(ids, (c->nr + i) % 3);
        proa_request r = request_of(ids, 100 + 30 * (i % 5), NULL);
        r.on_event = hear, r.arg = c, r.options.max_tokens = 4;
        c->done = false;
        if (proa_fleet_submit(c->fleet, &r, &id, NULL) != PROA_OK) return NULL;
        if (i % 4 == 3) proa_fleet_cancel(c->fleet, id);
        pthread_mutex_lock(&c->lock);
        while (!c->done) pthread_cond_wait(&c->ended, &c->lock);
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

static void callers_at_once(void **state)
{
    enum { CALLERS = 6 };
    static caller c[CALLERS];
    pthread_t thread[CALLERS];
    proa_err err = {.status = PROA_OK};
    proa_fleet *f = fleet_or_fail(*state, 2, NULL);
    assert_int_equal(proa_fleet_start(f, &err), PROA_OK);
    for (int i = 0; i < CALLERS; i++) {
        c[i] = (caller){.fleet = f, .nr = i};
        pthread_mutex_init(&c[i].lock, NULL);
        pthread_cond_init(&c[i].ended, NULL);
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, &c[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) pthread_join(thread[i], NULL);
    proa_fleet_stop(f);
    run_all(f);
    proa_stats sum;
    proa_fleet_stats(f, &sum);
    assert_int_equal(sum.finished, CALLERS * PART_OF(20, 6)); /* cancelled ones too */
    assert_int_equal(sum.pages_used, 0);
    assert_true(sum.prefix_hits > 0);
    for (int i = 0; i < CALLERS; i++) pthread_mutex_destroy(&c[i].lock), pthread_cond_destroy(&c[i].ended);
    proa_fleet_close(f);
}

static void what_is_refused(void **state)
{
    static const int32_t counts[] = {0, -1, PROA_REPLICAS_MAX + 1};
    proa_fleet *f = NULL;
    proa_err err = {.status = PROA_OK};
    for (size_t i = 0; i < PROA_COUNT(counts); i++) {
        const proa_fleet_options o = {.count = counts[i]};
        assert_int_equal(proa_fleet_open(&f, *state, &(proa_engine_options){.threads = 1}, &o, &err),
                         PROA_INVALID);
        assert_non_null(strstr(err.text, "'replicas'"));
        assert_null(f);
    }
    const proa_fleet_options two = {.count = 2, .device = {"cpu", "abacus"}};
    assert_int_not_equal(proa_fleet_open(&f, *state, &(proa_engine_options){.threads = 1}, &two, &err), PROA_OK);
    assert_non_null(strstr(err.text, "replica 1 of 2"));
    f = fleet_or_fail(*state, 2, NULL);
    static const int32_t ids[] = {-5};
    outcome o = {0};
    proa_request r = request_of(ids, 1, &o);
    assert_int_equal(proa_fleet_submit(f, &r, NULL, &err), PROA_INVALID);
    r.on_event = NULL;
    assert_int_equal(proa_fleet_submit(f, &r, NULL, &err), PROA_INVALID);
    proa_fleet_cancel(f, 12345);
    proa_fleet_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(prefixes_find_their_replica, "llama3"),
        ON(results_are_those_of_one_engine, "llama3"),
        ON(results_are_those_of_one_engine, "qwen2"),
        ON(load_is_shared, "llama3"),
        ON(sessions_stay, "llama3"),
        ON(a_failed_replica_takes_none, "llama3"),
        ON(a_replica_comes_back, "llama3"),
        ON(callers_at_once, "llama3"),
        ON(what_is_refused, "llama3"),
    };
    return cmocka_run_group_tests_name("fleet", tests, NULL, NULL);
}
