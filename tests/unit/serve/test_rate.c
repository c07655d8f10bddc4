/* SPDX-License-Identifier: Apache-2.0
 * test_rate.c - the rate limiter: resources of a device and of the server, options, priorities; and a model that runs
 * under it. */
#include "rig.h"

#include "serve/rate.h"
#include "serve/sched/sched.h"

typedef struct member {
    proa_instance instance;
    Inference__ModelInstanceGroup group;
    Inference__ModelRateLimiter limiter;
    Inference__ModelRateLimiter__Resource resources[2], *at[2];
} member;

static void set(member *m, int device, const char *name, bool global, unsigned count, unsigned priority)
{
    memset(m, 0, sizeof *m);
    inference__model_instance_group__init(&m->group);
    inference__model_rate_limiter__init(&m->limiter);
    inference__model_rate_limiter__resource__init(&m->resources[0]);
    m->at[0] = &m->resources[0];
    m->resources[0].name = (char *)name;
    m->resources[0].global = global;
    m->resources[0].count = count;
    m->limiter.resources = m->at;
    m->limiter.n_resources = name ? 1 : 0;
    m->limiter.priority = priority;
    m->group.rate_limiter = &m->limiter;
    m->instance.device = device;
    m->instance.group = &m->group;
}

static void test_options(void **state)
{
    static const char *const wrong[] = {"R",    "R:",   ":4",   "R:x",           "R:4:x",
                                        "R:4:", "R:-1", "R:4x", "R:99999999999", "R:1:-5"};
    static const char *const right[] = {"R1:4", "R2:0:global", "R3:7:2", "R4:3:GLOBAL"};
    proa_rate *rate = NULL;
    for (size_t i = 0; i < PROA_COUNT(wrong); i++) {
        proa_err err = {0};
        assert_int_equal(proa_rate_new(&rate, &wrong[i], 1, &err), PROA_INVALID);
        assert_non_null(strstr(err.text, wrong[i]));
    }
    assert_int_equal(proa_rate_new(&rate, right, 4, NULL), PROA_OK);
    proa_rate_free(rate);
    proa_rate_free(NULL);
    (void)state;
}

static void test_what_there_is(void **state)
{
    static const char *const given[] = {"R1:4", "R2:2:1", "G:3:global"};
    proa_rate *rate;
    proa_err err = {0};
    member a, b;
    assert_int_equal(proa_rate_new(&rate, given, 3, NULL), PROA_OK);
    set(&a, -1, "R1", false, 4, 0);
    assert_int_equal(proa_rate_add(rate, &a.instance, NULL), PROA_OK);
    set(&b, 0, "R1", false, 5, 0);
    assert_int_equal(proa_rate_add(rate, &b.instance, &err), PROA_INVALID);
    assert_string_equal(
        err.text, "Resource count for \"R1\" is limited to 4 which will prevent scheduling of one or more "
                  "model instances, the minimum required count is 5");
    proa_err_clear(&err);
    set(&b, 0, "R2", false, 1, 0); /* there are some on device 1 alone */
    assert_int_equal(proa_rate_add(rate, &b.instance, &err), PROA_INVALID);
    proa_err_clear(&err);
    set(&b, 1, "R2", false, 2, 0);
    assert_int_equal(proa_rate_add(rate, &b.instance, &err), PROA_OK);
    proa_rate_remove(rate, &b.instance);
    set(&b, -1, "G", true, 3, 0);
    assert_int_equal(proa_rate_add(rate, &b.instance, &err), PROA_OK);
    proa_rate_remove(rate, &b.instance);
    set(&b, -1, "R1", true, 1, 0);
    assert_int_equal(proa_rate_add(rate, &b.instance, &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "Resource \"R1\" is present as both global and device-specific resource in the model "
                        "configuration.");
    proa_rate_remove(rate, &a.instance);
    assert_int_equal(proa_rate_add(rate, &b.instance, NULL), PROA_OK); /* no other instance needs it now */
    proa_rate_remove(rate, &b.instance);
    proa_rate_free(rate);
    (void)state;
}

typedef struct worker {
    proa_rate *rate;
    member m;
    int rounds;
    atomic_int *inside, *most, *turns;
    atomic_bool *stop;
    pthread_t thread;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < w->rounds && !(w->stop && atomic_load(w->stop)); i++) {
        proa_rate_acquire(w->rate, &w->m.instance);
        int now = atomic_fetch_add(w->inside, 1) + 1;
        for (int most = atomic_load(w->most); now > most && !atomic_compare_exchange_weak(w->most, &most, now);) {
        }
        if (w->turns) atomic_fetch_add(w->turns, 1);
        if (i % 8 == 0) rig_sleep_ms(1);
        atomic_fetch_sub(w->inside, 1);
        proa_rate_release(w->rate, &w->m.instance);
    }
    return NULL;
}

static int most_inside(proa_rate *rate, worker *workers, int count)
{
    static atomic_int inside, most;
    atomic_store(&inside, 0);
    atomic_store(&most, 0);
    for (int i = 0; i < count; i++) {
        workers[i].rate = rate;
        workers[i].rounds = 200;
        workers[i].inside = &inside;
        workers[i].most = &most;
        assert_int_equal(proa_rate_add(rate, &workers[i].m.instance, NULL), PROA_OK);
    }
    for (int i = 0; i < count; i++) pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    for (int i = 0; i < count; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < count; i++) proa_rate_remove(rate, &workers[i].m.instance);
    return atomic_load(&most);
}

static void test_never_too_many(void **state)
{
    static const char *const given[] = {"R:5", "G:2:global"};
    proa_rate *rate;
    worker w[5] = {0};
    assert_int_equal(proa_rate_new(&rate, given, 2, NULL), PROA_OK);
    for (int i = 0; i < 5; i++) set(&w[i].m, -1, "R", false, 2, (unsigned)i); /* 2 + 2 of 5 */
    assert_int_equal(most_inside(rate, w, 5), 2);
    for (int i = 0; i < 5; i++) set(&w[i].m, i, "G", true, 2, 0); /* all devices share it */
    assert_int_equal(most_inside(rate, w, 5), 1);
    for (int i = 0; i < 4; i++) set(&w[i].m, i / 2, "R", false, 5, 0); /* each device has its own */
    assert_true(most_inside(rate, w, 4) <= 2);
    proa_rate_free(rate);
    assert_int_equal(proa_rate_new(&rate, NULL, 0, NULL), PROA_OK); /* as many as the largest need */
    for (int i = 0; i < 3; i++) set(&w[i].m, -1, "R", false, i == 0 ? 4 : 2, 0);
    assert_true(most_inside(rate, w, 3) <= 2);
    for (int i = 0; i < 3; i++) set(&w[i].m, -1, NULL, false, 0, 0); /* needs nothing: no limit */
    (void)most_inside(rate, w, 3);
    proa_rate_free(rate);
    (void)state;
}

/* One resource, two instances that always want it: one of priority 3 gets a third of the turns. */
static void test_priorities(void **state)
{
    atomic_int inside = 0, most = 0, turns[2] = {0, 0};
    atomic_bool stop = false;
    proa_rate *rate;
    worker w[2] = {0};
    assert_int_equal(proa_rate_new(&rate, NULL, 0, NULL), PROA_OK);
    for (int i = 0; i < 2; i++) {
        set(&w[i].m, -1, "R", false, 1, i ? 3 : 1);
        w[i].rate = rate;
        w[i].rounds = 1 << 30;
        w[i].inside = &inside;
        w[i].most = &most;
        w[i].turns = &turns[i];
        w[i].stop = &stop;
        assert_int_equal(proa_rate_add(rate, &w[i].m.instance, NULL), PROA_OK);
    }
    for (int i = 0; i < 2; i++) pthread_create(&w[i].thread, NULL, work, &w[i]);
    while (atomic_load(&turns[0]) + atomic_load(&turns[1]) < 2000) rig_sleep_ms(1);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < 2; i++) proa_rate_remove(rate, &w[i].m.instance);
    /* the one with priority 3 may wait while the other sleeps outside, never the other way round */
    assert_true(atomic_load(&turns[0]) > atomic_load(&turns[1]));
    assert_int_equal(atomic_load(&most), 1);
    proa_rate_free(rate);
    (void)state;
}

/* Who comes late does not keep away those who have executed often: it catches up on a few turns, then all take
 * theirs. */
static void test_newcomers(void **state)
{
    atomic_int inside = 0, most = 0, turns = 0;
    atomic_bool stop = false;
    proa_rate *rate;
    worker w[3] = {0};
    member old;
    assert_int_equal(proa_rate_new(&rate, NULL, 0, NULL), PROA_OK);
    set(&old, -1, "R", false, 1, 1);
    assert_int_equal(proa_rate_add(rate, &old.instance, NULL), PROA_OK);
    for (int i = 0; i < 20000; i++) {
        proa_rate_acquire(rate, &old.instance);
        proa_rate_release(rate, &old.instance);
    }
    for (int i = 0; i < 3; i++) {
        set(&w[i].m, -1, "R", false, 1, 1);
        w[i].rate = rate;
        w[i].rounds = 10000;
        w[i].inside = &inside;
        w[i].most = &most;
        w[i].turns = &turns;
        w[i].stop = &stop;
        assert_int_equal(proa_rate_add(rate, &w[i].m.instance, NULL), PROA_OK);
    }
    for (int i = 0; i < 3; i++) pthread_create(&w[i].thread, NULL, work, &w[i]);
    while (atomic_load(&turns) < 3) rig_sleep_ms(1);
    int before = atomic_load(&turns);
    proa_rate_acquire(rate, &old.instance);
    int passed = atomic_load(&turns) - before;
    proa_rate_release(rate, &old.instance);
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < 3; i++) proa_rate_remove(rate, &w[i].m.instance);
    proa_rate_remove(rate, &old.instance);
    proa_rate_free(rate);
    assert_true(passed < 5000); /* of 30,000: three of them catch up on 100 each, and this thread may be slow to ask */
    (void)state;
}

/* ---- a model ---- */

static atomic_int running, most_running;

static void execute(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    int now = atomic_fetch_add(&running, 1) + 1;
    for (int most = atomic_load(&most_running);
         now > most && !atomic_compare_exchange_weak(&most_running, &most, now);) {
    }
    rig_sleep_ms(2);
    atomic_fetch_sub(&running, 1);
    for (int i = 0; i < count; i++) rig_echo(requests[i]);
}

/* Four instances, of which two at a time have what they need; an inline backend gets threads. */
static void test_a_model_under_it(void **state)
{
    static const char *const given[] = {"R:4"};
    static const proa_backend backends[] = {{.name = "t", .execute = execute},
                                            {.name = "t", .flags = PROA_BACKEND_INLINE, .execute = execute}};
    for (int b = 0; b < 2; b++) {
        rig g;
        member m;
        answer a[24];
        proa_rate *rate;
        Inference__ModelDynamicBatching dynamic;
        assert_int_equal(proa_rate_new(&rate, given, 1, NULL), PROA_OK);
        set(&m, -1, "R", false, 2, 0);
        rig_config(&g, "m");
        inference__model_dynamic_batching__init(&dynamic);
        g.config.max_batch_size = b ? 2 : 0;
        if (b) {
            g.config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
            g.config.dynamic_batching = &dynamic;
        }
        g.model.rate = rate;
        g.group = &m.group;
        atomic_store(&most_running, 0);
        assert_int_equal(rig_open(&g, &backends[b], 4, NULL), PROA_OK);
        for (int i = 0; i < 24; i++)
            assert_int_equal(rig_send(&g, &a[i], rig_request(&g, i, b, 1), NULL), PROA_OK);
        for (int i = 0; i < 24; i++) {
            assert_true(answer_wait(&a[i]));
            assert_int_equal(a[i].value, i);
            answer_free(&a[i]);
        }
        assert_int_equal(atomic_load(&most_running), 2);
        rig_close(&g);
        proa_rate_free(rate);
    }
    /* a need that can never be met */
    rig g;
    member m;
    proa_rate *rate;
    proa_err err = {0};
    assert_int_equal(proa_rate_new(&rate, given, 1, NULL), PROA_OK);
    set(&m, -1, "R", false, 5, 0);
    rig_config(&g, "m");
    g.model.rate = rate;
    g.group = &m.group;
    assert_int_equal(rig_open(&g, &backends[0], 2, &err), PROA_INVALID);
    rig_close(&g);
    proa_rate_free(rate);
    (void)state;
}

/* Direct, but every second look finds nothing yet, as one does just before a delay is over. */
static int take_late(proa_scheduler *s, proa_instance_slot *seat, int64_t now_ns, bool look, int64_t *again_ns)
{
    static atomic_int looks;
    if (look && atomic_fetch_add(&looks, 1) % 2 == 0) {
        *again_ns = now_ns + 1;
        return 0;
    }
    return proa_sched_direct.take(s, seat, now_ns, look, again_ns);
}

/* What a look did not find is not executed without resources, nor are resources given back that were not taken. */
static void test_a_delay_that_ends_meanwhile(void **state)
{
    static const proa_backend backend = {.name = "t", .execute = execute};
    proa_scheduler_kind late = proa_sched_direct;
    rig g;
    member m;
    answer a[24];
    proa_rate *rate;
    assert_int_equal(proa_rate_new(&rate, NULL, 0, NULL), PROA_OK);
    set(&m, -1, "R", false, 2, 0);
    rig_config(&g, "m");
    g.model.rate = rate;
    g.group = &m.group;
    atomic_store(&most_running, 0);
    assert_int_equal(rig_open(&g, &backend, 2, NULL), PROA_OK);
    late.take = take_late;
    pthread_mutex_lock(&g.model.scheduler->lock);
    g.model.scheduler->kind = &late;
    pthread_mutex_unlock(&g.model.scheduler->lock);
    for (int i = 0; i < 24; i++)
        assert_int_equal(rig_send(&g, &a[i], rig_request(&g, i, 0, 1), NULL), PROA_OK);
    for (int i = 0; i < 24; i++) {
        assert_true(answer_wait(&a[i]));
        answer_free(&a[i]);
    }
    rig_close(&g);
    proa_rate_free(rate);
    assert_int_equal(atomic_load(&most_running), 1);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_what_there_is),
        cmocka_unit_test(test_never_too_many),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_newcomers),
        cmocka_unit_test(test_a_model_under_it),
        cmocka_unit_test(test_a_delay_that_ends_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
