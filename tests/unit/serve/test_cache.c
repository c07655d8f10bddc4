/* SPDX-License-Identifier: Apache-2.0
 * test_cache.c - the response cache: what makes requests equal, the order of use, equal requests in flight, failures
 * and cancels. */
#include "rig.h"

#include "serve/cache.h"
#include "serve/siphash.h"

static int64_t entries_of(proa_cache *cache)
{
    proa_cache_stats stats;
    proa_cache_read(cache, &stats);
    return stats.entries;
}

static gate door = GATE_CLOSED;
static atomic_int executed, broken;

static void execute(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    for (int i = 0; i < count; i++) {
        atomic_fetch_add(&executed, 1);
        gate_pass(&door);
        if (atomic_load(&broken) > 0) {
            proa_err err = {0};
            atomic_fetch_sub(&broken, 1);
            PROA_FAIL(&err, INTERNAL, "it broke");
            proa_infer_fail(requests[i], &err);
            continue;
        }
        rig_echo(requests[i]);
    }
}

static const proa_backend on_caller = {.name = "t", .flags = PROA_BACKEND_INLINE, .execute = execute};
static const proa_backend threaded = {.name = "t", .execute = execute};

typedef struct setup {
    rig g;
    Inference__ModelResponseCache config;
    Inference__ModelDynamicBatching dynamic;
} setup;

static void begin(setup *s, const proa_backend *backend, proa_cache *cache, bool ordered)
{
    memset(s, 0, sizeof *s);
    rig_config(&s->g, "m");
    inference__model_response_cache__init(&s->config);
    inference__model_dynamic_batching__init(&s->dynamic);
    s->config.enable = true;
    s->g.config.response_cache = &s->config;
    s->g.model.cache = cache;
    if (ordered) {
        s->dynamic.preserve_ordering = true;
        s->g.config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
        s->g.config.dynamic_batching = &s->dynamic;
    }
    atomic_store(&executed, 0);
    atomic_store(&broken, 0);
    gate_set(&door, true, 0);
    assert_int_equal(rig_open(&s->g, backend, 2, NULL), PROA_OK);
}

static void ask(setup *s, answer *a, proa_infer *r)
{
    assert_int_equal(rig_send(&s->g, a, r, NULL), PROA_OK);
    assert_true(answer_wait(a));
}

static bool hits(setup *s, proa_infer *r)
{
    answer a;
    int before = atomic_load(&executed);
    int64_t value;
    memcpy(&value, proa_infer_input(r, "IN")->data, 8);
    ask(s, &a, r);
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.value, value);
    answer_free(&a);
    return atomic_load(&executed) == before;
}

static proa_infer *with_param(setup *s, int64_t value, const char *name, int64_t param)
{
    proa_infer *r = rig_request(&s->g, value, 0, 4);
    proa_infer_param *p = proa_infer_add_param(r, proa_str_c(name));
    p->kind = PROA_PARAM_INT;
    p->i = param;
    return r;
}

static proa_infer *with_more(setup *s, const char *first, const char *second)
{
    proa_infer *r = rig_request(&s->g, 1, 0, 4);
    const char *const names[] = {first, second};
    for (int i = 0; i < 2; i++) {
        proa_tensor *t = proa_infer_add_input(r, proa_str_c(names[i]));
        const char *name = t->name;
        proa_tensor_share(t, &r->inputs[0]);
        t->name = name;
    }
    return r;
}

static void test_what_is_equal(void **state)
{
    setup s;
    proa_cache *cache = proa_cache_new(1 << 20);
    begin(&s, &on_caller, cache, false);
    assert_false(hits(&s, rig_request(&s.g, 1, 0, 4)));
    assert_true(hits(&s, rig_request(&s.g, 1, 0, 4)));
    assert_false(hits(&s, rig_request(&s.g, 2, 0, 4)));
    assert_false(hits(&s, rig_request(&s.g, 1, 0, 5))); /* another shape */
    proa_infer *r = rig_request(&s.g, 1, 0, 4);
    proa_infer_add_output(r, proa_str_c("OUT"));
    assert_false(hits(&s, r)); /* outputs are asked for */
    assert_false(hits(&s, with_param(&s, 1, "p", 1)));
    assert_true(hits(&s, with_param(&s, 1, "p", 1)));
    assert_false(hits(&s, with_param(&s, 1, "p", 2)));
    assert_false(hits(&s, with_param(&s, 1, "q", 1)));
    assert_false(hits(&s, with_more(&s, "A", "B")));
    assert_true(hits(&s, with_more(&s, "B", "A"))); /* order does not matter */
    assert_false(hits(&s, with_more(&s, "A", "C")));
    r = rig_request(&s.g, 1, 0, 4); /* nor do these */
    r->id = "x";
    r->priority = 3;
    r->timeout_us = 1000000;
    answer a;
    ask(&s, &a, r);
    assert_string_equal(a.last->id, "x");
    answer_free(&a);
    assert_int_equal(atomic_load(&executed), 9);
    proa_stats_sums *sums = malloc(sizeof *sums);
    proa_stats_read(s.g.model.stats, sums);
    assert_int_equal(sums->hit.count, 4);
    assert_int_equal(sums->miss.count, 9);
    assert_int_equal(sums->success.count, 13);
    assert_int_equal(sums->inferences, 9);
    assert_int_equal(sums->executions, 9);
    assert_true(sums->miss.ns > 0);
    free(sums);
    assert_int_equal(entries_of(cache), 9);
    rig_close(&s.g);
    assert_int_equal(entries_of(cache), 0); /* the model has gone */
    proa_cache_free(cache);
    (void)state;
}

/* What a reply with so many elements takes. */
static int64_t room_of_one(int64_t elements)
{
    setup s;
    proa_cache *cache = proa_cache_new(1 << 20);
    begin(&s, &on_caller, cache, false);
    assert_false(hits(&s, rig_request(&s.g, 0, 0, elements)));
    int64_t room = proa_cache_bytes(cache);
    assert_true(room > elements * 8);
    rig_close(&s.g);
    assert_int_equal(proa_cache_bytes(cache), 0);
    proa_cache_free(cache);
    return room;
}

static void execute_with_story(void *state, proa_infer *const *requests, int count)
{
    static char story[100000];
    (void)state;
    memset(story, 's', sizeof story);
    for (int i = 0; i < count; i++) {
        proa_reply *reply = proa_reply_new(requests[i]);
        proa_tensor *t = proa_reply_add(reply, "OUT");
        const char *name = t->name;
        proa_tensor_share(t, proa_infer_input(requests[i], "IN"));
        t->name = name;
        proa_infer_param *p = proa_reply_add_param(reply, "story");
        p->kind = PROA_PARAM_STRING;
        p->s = (proa_str){proa_arena_strdup(&reply->arena, (proa_str){story, sizeof story}), sizeof story};
        atomic_fetch_add(&executed, 1);
        proa_infer_reply(requests[i], reply, true);
    }
}

/* The limit is one of memory: parameters count, and of a small reply the block that it lies in. */
static void test_all_that_is_kept_counts(void **state)
{
    static const proa_backend tells = {.name = "t", .flags = PROA_BACKEND_INLINE, .execute = execute_with_story};
    setup s;
    proa_cache *cache = proa_cache_new(1 << 20);
    begin(&s, &tells, cache, false);
    for (int i = 0; i < 100; i++) assert_false(hits(&s, rig_request(&s.g, i, 0, 1)));
    assert_in_range(entries_of(cache), 9, 10); /* 100 kB each */
    rig_close(&s.g);
    proa_cache_free(cache);
    assert_true(room_of_one(1) > 2048 + 1024);
    (void)state;
}

static void test_the_least_used_goes(void **state)
{
    setup s;
    int64_t room = 4 * room_of_one(100);
    proa_cache *cache = proa_cache_new(room);
    begin(&s, &on_caller, cache, false);
    for (int i = 0; i < 4; i++) assert_false(hits(&s, rig_request(&s.g, i, 0, 100)));
    assert_int_equal(entries_of(cache), 4);
    assert_true(hits(&s, rig_request(&s.g, 0, 0, 100))); /* 1 is the oldest now */
    assert_false(hits(&s, rig_request(&s.g, 9, 0, 100)));
    assert_int_equal(entries_of(cache), 4);
    assert_true(proa_cache_bytes(cache) <= room);
    assert_true(hits(&s, rig_request(&s.g, 0, 0, 100)));
    assert_true(hits(&s, rig_request(&s.g, 2, 0, 100)));
    assert_false(hits(&s, rig_request(&s.g, 1, 0, 100)));
    assert_false(hits(&s, rig_request(&s.g, 5, 0, 10000))); /* larger than all of the cache: not kept */
    assert_false(hits(&s, rig_request(&s.g, 5, 0, 10000)));
    assert_int_equal(entries_of(cache), 4);
    proa_cache_stats f;
    proa_cache_read(cache, &f);
    assert_int_equal(f.entries, 4);
    assert_int_equal(f.evictions, 2);
    assert_int_equal(f.hits, 3);
    assert_int_equal(f.misses, 8);
    assert_int_equal(f.lookups, 11);
    assert_true(f.used > 0.8 && f.used <= 1);
    assert_true(f.lookup_ns > 0 && f.insertion_ns > 0);
    rig_close(&s.g);
    proa_cache_free(cache);
    (void)state;
}

static atomic_int freed;

static void free_body(void *arg)
{
    atomic_fetch_add(&freed, 1);
    free(arg);
}

/* A reply that lies in its request's body does not keep the body. */
static void test_bodies_are_let_go(void **state)
{
    setup s;
    answer a;
    proa_cache *cache = proa_cache_new(1 << 20);
    begin(&s, &on_caller, cache, false);
    proa_infer *r = rig_request(&s.g, 5, 0, 1);
    char *body = calloc(1, 100000);
    memcpy(body + 64, r->inputs[0].data, 8);
    proa_buffer_drop(r->inputs[0].buffer);
    r->inputs[0].buffer = proa_buffer_wrap(body, 100000, free_body, body);
    r->inputs[0].data = body + 64;
    ask(&s, &a, r);
    answer_free(&a);
    assert_int_equal(atomic_load(&freed), 1);
    assert_true(hits(&s, rig_request(&s.g, 5, 0, 1)));
    rig_close(&s.g);
    proa_cache_free(cache);
    (void)state;
}

static void test_flights(void **state)
{
    setup s;
    answer a[6];
    for (int ordered = 0; ordered < 2; ordered++) {
        proa_cache *cache = proa_cache_new(1 << 20);
        begin(&s, &threaded, cache, ordered);
        gate_set(&door, false, 0);
        for (int i = 0; i < 6; i++)
            assert_int_equal(rig_send(&s.g, &a[i], rig_request(&s.g, 3, 0, 4), NULL), PROA_OK);
        gate_await(&door, 1);
        rig_sleep_ms(5);
        assert_int_equal(atomic_load(&executed), 1);
        proa_infer_cancel(a[2].request);
        if (!ordered) assert_true(answer_is_done(&a[2])); /* at once */
        gate_set(&door, true, 0);
        for (int i = 0; i < 6; i++) {
            assert_true(answer_wait(&a[i]));
            assert_int_equal(a[i].status, i == 2 ? PROA_CANCELLED : PROA_OK);
            assert_int_equal(a[i].replies, 1);
            if (i != 2) assert_int_equal(a[i].value, 3);
            if (ordered && i) assert_true(a[i].order > a[i - 1].order);
        }
        assert_int_equal(atomic_load(&executed), 1);
        for (int i = 0; i < 6; i++) answer_free(&a[i]);
        rig_close(&s.g);
        proa_cache_free(cache);
    }
    (void)state;
}

/* The one that was executed fails: another one is, and so on. */
static void test_a_flight_that_fails(void **state)
{
    setup s;
    answer a[5];
    int failed = 0;
    proa_cache *cache = proa_cache_new(1 << 20);
    begin(&s, &threaded, cache, false);
    gate_set(&door, false, 0);
    atomic_store(&broken, 2);
    for (int i = 0; i < 5; i++)
        assert_int_equal(rig_send(&s.g, &a[i], rig_request(&s.g, 3, 0, 4), NULL), PROA_OK);
    gate_set(&door, true, 0);
    for (int i = 0; i < 5; i++) {
        assert_true(answer_wait(&a[i]));
        failed += a[i].status == PROA_INTERNAL;
        answer_free(&a[i]);
    }
    assert_int_equal(failed, 2);
    assert_int_equal(atomic_load(&executed), 3);
    proa_cache_stats f;
    proa_cache_read(cache, &f);
    assert_int_equal(f.misses, 3);
    assert_int_equal(f.hits, 2); /* who waited for the good one */
    assert_int_equal(entries_of(cache), 1);
    /* cancelled while it leads: the other one is executed */
    gate_set(&door, false, 0);
    answer busy[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(rig_send(&s.g, &busy[i], rig_request(&s.g, 100 + i, 0, 4), NULL), PROA_OK);
    gate_await(&door, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rig_send(&s.g, &a[i], rig_request(&s.g, 7, 0, 4), NULL), PROA_OK);
    proa_infer_cancel(a[0].request);
    assert_int_equal(a[0].status, PROA_CANCELLED);
    assert_false(answer_is_done(&a[1]));
    gate_set(&door, true, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(answer_wait(&a[i]) && answer_wait(&busy[i]));
        answer_free(&busy[i]);
    }
    assert_int_equal(a[1].status, PROA_OK);
    answer_free(&a[0]);
    answer_free(&a[1]);
    rig_close(&s.g);
    proa_cache_free(cache);
    (void)state;
}

static void test_a_wait_with_a_timeout(void **state)
{
    setup s;
    answer a[2];
    proa_cache *cache = proa_cache_new(1 << 20);
    begin(&s, &threaded, cache, false);
    gate_set(&door, false, 0);
    assert_int_equal(rig_send(&s.g, &a[0], rig_request(&s.g, 3, 0, 4), NULL), PROA_OK);
    gate_await(&door, 1);
    proa_infer *r = rig_request(&s.g, 3, 0, 4);
    r->timeout_us = 10000;
    assert_int_equal(rig_send(&s.g, &a[1], r, NULL), PROA_OK);
    assert_true(answer_wait(&a[1]));
    assert_string_equal(a[1].text, "Request timeout expired");
    assert_false(answer_is_done(&a[0]));
    gate_set(&door, true, 0);
    assert_true(answer_wait(&a[0]));
    answer_free(&a[0]);
    answer_free(&a[1]);
    rig_close(&s.g);
    proa_cache_free(cache);
    (void)state;
}

static void *ask_many(void *arg)
{
    setup *s = arg;
    intptr_t wrong = 0;
    for (int i = 0; i < 3000; i++) {
        answer a;
        proa_infer *r = rig_request(&s->g, i % 37, 0, 50);
        answer_init(&a, r);
        if (i % 11 == 0) {
            proa_infer *hold = proa_infer_hold(r);
            if (proa_scheduler_enqueue(s->g.model.scheduler, r, NULL) == PROA_OK) {
                proa_infer_cancel(hold);
                if (!answer_wait(&a) || a.replies != 1) wrong++;
            }
            proa_infer_drop(hold);
        } else if (proa_scheduler_enqueue(s->g.model.scheduler, r, NULL) != PROA_OK || !answer_wait(&a) ||
                   a.status != PROA_OK || a.value != i % 37) {
            wrong++;
        }
        answer_free(&a);
    }
    return (void *)wrong;
}

static void test_many_threads(void **state)
{
    const proa_backend *backends[] = {&on_caller, &threaded};
    for (int how = 0; how < 4; how++) {
        setup s;
        pthread_t threads[4];
        proa_cache *cache = proa_cache_new(20 * 1000);
        begin(&s, backends[how % 2], cache, how / 2);
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, ask_many, &s);
        for (int i = 0; i < 4; i++) {
            void *wrong;
            pthread_join(threads[i], &wrong);
            assert_null(wrong);
        }
        assert_true(atomic_load(&executed) < 12000);
        assert_true(proa_cache_bytes(cache) <= 20 * 1000);
        rig_close(&s.g);
        proa_cache_free(cache);
    }
    (void)state;
}

/* The key and messages of the authors' test vectors; results of an implementation that agrees with those of 2-4. */
static void test_siphash_vectors(void **state)
{
    static const uint64_t want[3][2] = {{0xbea58827b2bc7ee7u, 0x013030dd6adb62fdu},
                                        {0x6c52bdb205557ec1u, 0x09017e1eeccd2129u},
                                        {0x36a54a4bf2de5312u, 0xc2666aba59a7c84eu}};
    static const size_t lengths[3] = {0, 15, 64};
    const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    unsigned char bytes[64];
    for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)i;
    for (int i = 0; i < 3; i++) {
        proa_siphash h;
        uint64_t got[2];
        proa_siphash_init(&h, key);
        proa_siphash_add(&h, bytes, lengths[i]);
        proa_siphash_end(&h, got);
        assert_memory_equal(got, want[i], sizeof got);
    }
    (void)state;
}

static void test_siphash(void **state)
{
    const uint64_t key[2] = {1, 2}, other[2] = {1, 3};
    unsigned char bytes[64];
    uint64_t whole[2], parts[2], seen[65][2];
    for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)(i * 7);
    for (size_t len = 0; len <= 64; len++) {
        proa_siphash h;
        proa_siphash_init(&h, key);
        proa_siphash_add(&h, bytes, len);
        proa_siphash_end(&h, whole);
        for (size_t cut = 0; cut <= len; cut++) { /* in parts or at once: the same */
            proa_siphash_init(&h, key);
            proa_siphash_add(&h, bytes, cut / 2);
            proa_siphash_add(&h, bytes + cut / 2, cut - cut / 2);
            proa_siphash_add(&h, bytes + cut, len - cut);
            proa_siphash_end(&h, parts);
            assert_memory_equal(whole, parts, sizeof whole);
        }
        proa_siphash_init(&h, other);
        proa_siphash_add(&h, bytes, len);
        proa_siphash_end(&h, parts);
        assert_memory_not_equal(whole, parts, sizeof whole);
        memcpy(seen[len], whole, sizeof whole);
        for (size_t k = 0; k < len; k++) assert_memory_not_equal(seen[k], whole, sizeof whole);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_that_is_kept_counts),
        cmocka_unit_test(test_what_is_equal),
        cmocka_unit_test(test_the_least_used_goes),
        cmocka_unit_test(test_bodies_are_let_go),
        cmocka_unit_test(test_flights),
        cmocka_unit_test(test_a_flight_that_fails),
        cmocka_unit_test(test_a_wait_with_a_timeout),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_siphash),
        cmocka_unit_test(test_siphash_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
