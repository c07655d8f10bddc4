/* SPDX-License-Identifier: Apache-2.0
 * test_engine.c - properties that hold whatever the model says: one by one equals batched, bit for bit; threads do
 * not matter; cancelling gives everything back; the decode loop allocates nothing; bad requests are refused. */
#include "engine_test.h"

#include "base/file.h"
#include "tensor/dtype.h"
#include "weights/weights.h"

#include <pthread.h>
#include <unistd.h>

/* Every allocation of the process counts (sanitisers bring their own malloc; there the test asks proa's counter). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static uint64_t allocations(void)
{
    return proa_alloc_count();
}
#else
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *ptr, size_t bytes);
static _Atomic uint64_t mallocs;
void *malloc(size_t bytes)
{
    mallocs++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    mallocs++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *ptr, size_t bytes)
{
    mallocs++;
    return __libc_realloc(ptr, bytes);
}
static uint64_t allocations(void)
{
    return mallocs;
}
#endif

static uint32_t random_state = 12345;
static uint32_t next_random(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

#define MANY 24
typedef struct request_case {
    int32_t ids[90];
    int64_t count;
    proa_options options;
} request_case;

/* Prompts of all lengths; greedy, sampled and beams; some end early. */
static void make_requests(request_case *r, uint32_t longest)
{
    random_state = 777;
    for (int i = 0; i < MANY; i++) {
        r[i] = (request_case){.count = 1 + next_random(longest)};
        for (int64_t k = 0; k < r[i].count; k++) r[i].ids[k] = (int32_t)(3 + next_random(190));
        r[i].options = (proa_options){
            .max_tokens = (int32_t)(1 + next_random(24)), .logprobs = true, .seed = (uint64_t)i};
        if (i % 3 == 1) r[i].options.temperature = 0.8f, r[i].options.top_k = 20, r[i].options.top_p = 0.9f;
        if (i % 3 == 2) r[i].options.beams = 2 + i % 3;
        r[i].options.ignore_eos = i % 2 == 0;
    }
}

/* On the CPU to the bit. On a device (PROA_TEST_DEVICE) how sums are split may depend on the batch, so there nearly. */
static void assert_same_numbers(const float *a, const float *b, int64_t n)
{
    if (!getenv("PROA_TEST_DEVICE")) {
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-3f * (1 + fabsf(b[i])))) /* as assert_same_logprobs */
            fail_msg("%lld: %g and %g", (long long)i, (double)a[i], (double)b[i]);
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->finish, b->finish);
    if (a->count) {
        assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
        assert_same_numbers(a->logprobs, b->logprobs, a->count);
    }
    assert_int_equal(a->beams, b->beams);
    for (int32_t i = 0; i < a->beams; i++) {
        assert_int_equal(a->beam_count[i], b->beam_count[i]);
        assert_memory_equal(a->beam_ids[i], b->beam_ids[i], (size_t)a->beam_count[i] * sizeof(int32_t));
        assert_same_numbers(&a->beam_score[i], &b->beam_score[i], 1);
    }
}

static void run_many(const char *model, proa_engine_options options, outcome *o, bool together)
{
    static request_case r[MANY];
    bool short_context = strstr(model, "gptj") || strstr(model, "/llama");
    make_requests(r, short_context ? 60 : 90);
    proa_engine *engine = open_or_fail(model, &options);
    for (int i = 0; i < MANY; i++) {
        proa_request request = {.ids = r[i].ids, .ids_count = r[i].count, .options = r[i].options};
        if (together) submit_or_fail(engine, request, &o[i]);
        else run_request(engine, request, &o[i]);
    }
    proa_engine_run(engine);
    proa_stats stats;
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(stats.finished, MANY);
    proa_engine_close(engine);
}

static void batched_equals_single(void **state)
{
    const char *model = *state;
    static outcome alone[MANY], other[MANY];
    run_many(model, (proa_engine_options){.threads = 1, .step_tokens = 512}, alone, false);
    const proa_engine_options ways[] = {{.threads = 1, .step_tokens = 512, .sequences_max = 16},
                                        {.threads = 2, .step_tokens = 24, .sequences_max = 7},
                                        {.threads = 3, .step_tokens = 40, .sequences_max = 40}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        run_many(model, ways[w], other, true);
        for (int i = 0; i < MANY; i++) assert_same(&alone[i], &other[i]);
        for (int i = 0; i < MANY; i++) outcome_release(&other[i]);
    }
    for (int i = 0; i < MANY; i++) outcome_release(&alone[i]);
}

/* Cancels each of several requests after a different number of steps. */
static void cancel_gives_back(void **state)
{
    const char *model = *state;
    static request_case r[MANY];
    make_requests(r, 60);
    for (int after = 0; after < 12; after++) {
        proa_engine *engine = open_or_fail(model, &(proa_engine_options){.threads = 2, .step_tokens = 24});
        static outcome o[MANY];
        uint64_t id[MANY];
        for (int i = 0; i < MANY; i++) {
            proa_request request = {.ids = r[i].ids, .ids_count = r[i].count, .options = r[i].options};
            request.on_event = collect;
            request.arg = &o[i];
            assert_int_equal(proa_engine_submit(engine, &request, &id[i], NULL), PROA_OK);
        }
        for (int s = 0; s < after; s++) proa_engine_step(engine);
        for (int i = 0; i < MANY; i++) proa_engine_cancel(engine, id[i]);
        proa_engine_cancel(engine, 999999);
        proa_engine_run(engine);
        proa_stats stats;
        proa_engine_stats(engine, &stats);
        assert_int_equal(stats.pages_used, 0);
        assert_int_equal(stats.running + stats.waiting, 0);
        assert_int_equal(stats.finished, MANY);
        if (after == 0) assert_int_equal(stats.cancelled, MANY);
        for (int i = 0; i < MANY; i++) {
            assert_true(o[i].done);
            outcome_release(&o[i]);
        }
        proa_engine_close(engine);
    }
}

static void count_only(const proa_event *event)
{
    int *left = event->arg;
    *left -= event->kind == PROA_EVENT_DONE;
}

static void decode_allocates_nothing(void **state)
{
    /* the reference of a device's sampling, which runs on the host then, takes memory as it goes */
    if (getenv("PROA_AHEAD") && !getenv("PROA_TEST_DEVICE")) skip();
    proa_engine *engine = open_or_fail(*state, &(proa_engine_options){.threads = 2});
    int32_t ids[] = {5, 6, 7, 8, 9};
    int left = 3;
    for (int i = 0; i < 3; i++) {
        proa_options options = {.max_tokens = 70,
                                .ignore_eos = true,
                                .temperature = i == 1 ? 1 : 0,
                                .top_p = 0.9f,
                                .beams = i == 2 ? 4 : 1,
                                .logprobs = true};
        proa_request request = {
            .ids = ids, .ids_count = 5, .options = options, .on_event = count_only, .arg = &left};
        assert_int_equal(proa_engine_submit(engine, &request, NULL, NULL), PROA_OK);
    }
    for (int i = 0; i < 4; i++) assert_true(proa_engine_step(engine));
    uint64_t before = allocations();
    for (int i = 0; i < 60; i++) assert_true(proa_engine_step(engine));
    assert_int_equal(allocations() - before, 0);
    proa_engine_run(engine);
    assert_int_equal(left, 0);
    proa_engine_close(engine);
}

enum { QUEUED = 40, LARGE = 3 };

/* The requests in the order in which they began. */
typedef struct begin_order {
    int count, request[QUEUED];
} begin_order;

typedef struct waiting_request {
    begin_order *order;
    int number;
    bool done;
} waiting_request;

static void note_begin(const proa_event *event)
{
    waiting_request *w = event->arg;
    if (event->kind == PROA_EVENT_BEGIN) w->order->request[w->order->count++] = w->number;
    if (event->kind == PROA_EVENT_DONE) w->done = true;
}

/* One request needs every page of the pool. Small ones, which would fit beside those that run, are submitted before and
 * all the time after it: they begin after it all the same, so it is never starved. */
static void large_requests_are_not_starved(void **state)
{
    proa_engine *engine = open_or_fail(
        *state, &(proa_engine_options){.threads = 1, .kv_tokens = 256, .sequences_max = 8});
    static waiting_request w[QUEUED];
    begin_order order = {.count = 0};
    int32_t ids[4] = {4, 5, 6, 7};
    for (int i = 0; i < QUEUED; i++) {
        w[i] = (waiting_request){.order = &order, .number = i};
        proa_options options = {.max_tokens = i == LARGE ? 250 : 10 + 7 * (i % 5), .ignore_eos = true};
        proa_request request = {
            .ids = ids, .ids_count = 4, .options = options, .on_event = note_begin, .arg = &w[i]};
        assert_int_equal(proa_engine_submit(engine, &request, NULL, NULL), PROA_OK);
        if (i >= LARGE) proa_engine_step(engine);
    }
    assert_true(order.count > LARGE && order.count < QUEUED); /* some waited */
    proa_engine_run(engine);
    assert_int_equal(order.count, QUEUED);
    for (int i = 0; i < QUEUED; i++) assert_true(w[i].done && order.request[i] == i);
    proa_engine_close(engine);
}

typedef struct submitter {
    proa_engine *engine;
    _Atomic int done;
    uint32_t seed;
} submitter;

static void count_done(const proa_event *event)
{
    submitter *s = event->arg;
    if (event->kind == PROA_EVENT_DONE) s->done++;
}

static void *submit_some(void *arg)
{
    submitter *s = arg;
    int32_t ids[4] = {4, 5, 6, 7};
    for (int i = 0; i < 30; i++) {
        uint64_t id;
        proa_options options = {.max_tokens = 1 + (i * 7) % 13, .beams = i % 4 == 3 ? 3 : 1};
        proa_request request = {
            .ids = ids, .ids_count = 1 + i % 4, .options = options, .on_event = count_done, .arg = s};
        assert_int_equal(proa_engine_submit(s->engine, &request, &id, NULL), PROA_OK);
        if (i % 5 == 0) proa_engine_cancel(s->engine, id);
        proa_stats stats;
        proa_engine_stats(s->engine, &stats);
    }
    return NULL;
}

static void threads_submit_and_cancel(void **state)
{
    proa_engine *engine = open_or_fail(*state, &(proa_engine_options){.threads = 2});
    submitter s[3] = {0};
    pthread_t thread[3];
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    assert_int_equal(proa_engine_start(engine, NULL), PROA_EXISTS);
    for (int i = 0; i < 3; i++) {
        s[i].engine = engine;
        pthread_create(&thread[i], NULL, submit_some, &s[i]);
    }
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 3; i++)
        while (s[i].done < 30) sched_yield();
    proa_engine_stop(engine);
    proa_engine_run(engine);
    proa_stats stats;
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.finished, 90);
    assert_int_equal(stats.submitted, 90);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(engine);
}

/* What was begun before the thread, or before it was stopped, is gone on with. */
static void a_thread_goes_on(void **state)
{
    proa_engine *engine = open_or_fail(*state, &(proa_engine_options){.threads = 1});
    submitter s = {.engine = engine};
    int32_t ids[] = {4, 5, 6, 7};
    proa_request request = {.ids = ids, .ids_count = 4, .options = {.max_tokens = 40, .ignore_eos = true}};
    request.on_event = count_done, request.arg = &s;
    assert_int_equal(proa_engine_submit(engine, &request, NULL, NULL), PROA_OK);
    for (int i = 0; i < 5; i++) assert_true(proa_engine_step(engine));
    assert_int_equal(s.done, 0);
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    for (int i = 0; i < 3000 && !s.done; i++) usleep(10000);
    proa_engine_stop(engine);
    assert_int_equal(s.done, 1);
    proa_engine_close(engine);
}

enum { AT_ONCE = 64 };

/* How often the number of submitted requests was seen not to be that of whole calls. */
static void *count_parts(void *arg)
{
    submitter *s = arg;
    proa_stats stats = {0};
    intptr_t parts = 0;
    while (s->done < 20 * AT_ONCE) {
        proa_engine_stats(s->engine, &stats);
        parts += stats.submitted % AT_ONCE != 0;
    }
    return (void *)parts;
}

/* The stepping thread finds requests of one call together; of a call with an error it finds none. */
static void requests_of_one_call_are_queued_together(void **state)
{
    proa_engine *engine = open_or_fail(*state, &(proa_engine_options){.threads = 1, .sequences_max = AT_ONCE});
    submitter s = {.engine = engine};
    int32_t ids[3] = {4, 5, 6};
    uint64_t numbers[AT_ONCE];
    proa_request requests[AT_ONCE];
    proa_err err = {.status = PROA_OK};
    pthread_t watcher;
    void *parts;
    for (int i = 0; i < AT_ONCE; i++)
        requests[i] = (proa_request){
            .ids = ids, .ids_count = 3, .options = {.max_tokens = 1}, .on_event = count_done, .arg = &s};
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    pthread_create(&watcher, NULL, count_parts, &s);
    for (int call = 0; call < 20; call++) {
        assert_int_equal(proa_engine_submit_all(engine, requests, AT_ONCE, numbers, &err), PROA_OK);
        for (int i = 1; i < AT_ONCE; i++) assert_int_equal(numbers[i], numbers[0] + (uint64_t)i);
        while (s.done < (call + 1) * AT_ONCE) sched_yield();
    }
    pthread_join(watcher, &parts);
    proa_engine_stop(engine);
    assert_int_equal((intptr_t)parts, 0);
    requests[AT_ONCE - 1].options.temperature = -1;
    assert_int_equal(proa_engine_submit_all(engine, requests, AT_ONCE, NULL, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "temperature"));
    assert_int_equal(proa_engine_submit_all(engine, requests, 0, NULL, &err), PROA_LIMIT);
    assert_false(proa_engine_step(engine));
    assert_int_equal(s.done, 20 * AT_ONCE);
    proa_engine_close(engine);
}

static void refuse(proa_engine *engine, proa_request request, proa_status status, const char *words)
{
    proa_err err = {.status = PROA_OK};
    int left = 0;
    if (!request.on_event) request.on_event = count_only;
    request.arg = &left;
    assert_int_equal(proa_engine_submit(engine, &request, NULL, &err), status);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
    assert_false(proa_engine_step(engine));
}

static void bad_requests_are_refused(void **state)
{
    proa_engine *engine = open_or_fail(*state, &(proa_engine_options){.threads = 1, .kv_tokens = 256});
    int32_t ids[200] = {5, 6, 7}, high[] = {5, 200}, low[] = {-1};
    proa_request ok = {.ids = ids, .ids_count = 3};
    refuse(engine, (proa_request){0}, PROA_INVALID, "text or ids");
    refuse(engine, (proa_request){.ids = ids}, PROA_INVALID, "empty");
    refuse(engine, (proa_request){.ids = high, .ids_count = 2}, PROA_INVALID, "token id 200 at position 1");
    refuse(engine, (proa_request){.ids = low, .ids_count = 1}, PROA_INVALID, "token id -1");
    refuse(engine, (proa_request){.ids = ids, .ids_count = 200}, PROA_LIMIT, "200 tokens");
    refuse(engine, (proa_request){.text = "hello"}, PROA_UNSUPPORTED, "no tokenizer");
    ok.options = (proa_options){.temperature = -1};
    refuse(engine, ok, PROA_INVALID, "temperature");
    ok.options = (proa_options){.top_p = 1.5f};
    refuse(engine, ok, PROA_INVALID, "top_p");
    ok.options = (proa_options){.beams = 300};
    refuse(engine, ok, PROA_INVALID, "beams");
    ok.options = (proa_options){.beams = 2, .beam_groups = 2, .diversity_penalty = 1, .temperature = 1};
    refuse(engine, ok, PROA_INVALID, "contradict");
    ok.options = (proa_options){.max_tokens = -5};
    refuse(engine, ok, PROA_INVALID, "max_tokens");
    ok.options = (proa_options){.beams = 16, .max_tokens = 90};
    refuse(engine, ok, PROA_LIMIT, "kv-tokens");
    proa_engine_close(engine);
}

static void bad_models_are_refused(void **state)
{
    PROA_UNUSED(state);
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_engine_open(&engine, "/nonexistent/model", NULL, &err), PROA_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/model"));
    assert_null(engine);
    proa_err_clear(&err);
    assert_int_equal(proa_engine_open(&engine, GOLDEN "arch/llama", &(proa_engine_options){.dtype = "f8"}, &err),
                     PROA_INVALID);
    assert_non_null(strstr(err.text, "f8"));
    proa_err_clear(&err);
    if (!getenv("PROA_TEST_DEVICE")) /* which may be there, then */
        assert_int_equal(
            proa_engine_open(&engine, GOLDEN "arch/llama", &(proa_engine_options){.device = "cuda"}, &err),
            PROA_UNSUPPORTED);
    proa_err_clear(&err);
    assert_int_equal(proa_engine_open(&engine, GOLDEN "arch/llama",
                                      &(proa_engine_options){.kv_tokens = (int64_t)1 << 32}, &err),
                     PROA_NO_MEMORY);
    assert_non_null(strstr(err.text, "keys and values"));
}

/* A context that a configuration only claims, and as many sequences as are allowed: their tables are found by 32
 * bits. */
static void tables_that_cannot_be_counted_are_refused(void **state)
{
    char folder[] = "/tmp/proa-tables-XXXXXX", path[64];
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    proa_buf config;
    PROA_UNUSED(state);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(proa_file_read(&config, GOLDEN "arch/t5/config.json", PROA_MIB, NULL), PROA_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(symlink(GOLDEN "arch/t5/model.safetensors", path), 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    fprintf(f, "{\"n_positions\":%d,%s", PROA_CONTEXT_MAX, strchr(config.ptr, '{') + 1);
    fclose(f);
    proa_engine_options options = {.sequences_max = PROA_SEQUENCES_MAX, .kv_tokens = 4096, .threads = 1};
    assert_int_equal(proa_engine_open(&engine, folder, &options, &err), PROA_LIMIT);
    assert_non_null(strstr(err.text, "--sequences 2730 would do"));
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path), rmdir(folder);
    proa_buf_release(&config);
}

/* Prompts longer than a page, continued over page edges, chunked in every way, say the same. */
static void chunks_do_not_matter(void **state)
{
    static outcome o[4];
    int32_t ids[85];
    for (int i = 0; i < 85; i++) ids[i] = 3 + i;
    const int32_t budgets[] = {512, 33, 16, 64};
    for (int i = 0; i < 4; i++) {
        proa_engine *engine = open_or_fail(
            *state, &(proa_engine_options){.step_tokens = budgets[i], .sequences_max = 1});
        proa_options options = {.max_tokens = 10, .ignore_eos = true, .logprobs = true};
        run_request(engine, (proa_request){.ids = ids, .ids_count = 85, .options = options}, &o[i]);
        if (i) assert_same(&o[0], &o[i]);
        proa_engine_close(engine);
    }
    for (int i = 0; i < 4; i++) outcome_release(&o[i]);
}

static proa_request encode_of(const int32_t *ids, int64_t count)
{
    return (proa_request){.task = PROA_TASK_ENCODE, .ids = ids, .ids_count = count};
}

/* The encoder alone: several at once give the rows of one by one, pages are free after, and generating goes on. */
static void encode_gives_hidden_states(void **state)
{
    outcome one[3] = {{0}}, all[3] = {{0}};
    int32_t ids[] = {5, 9, 17, 4, 33, 8, 21, 6, 1};
    const int64_t counts[] = {9, 1, 5};
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_info info;
    proa_stats stats;
    proa_engine_info(engine, &info);
    for (int i = 0; i < 3; i++) run_request(engine, encode_of(ids, counts[i]), &one[i]);
    for (int i = 0; i < 3; i++) submit_or_fail(engine, encode_of(ids, counts[i]), &all[i]);
    proa_engine_run(engine);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(one[i].finish, PROA_FINISH_END);
        assert_int_equal(one[i].columns, info.hidden);
        assert_int_equal(one[i].rows_count, counts[i]);
        assert_same_numbers(one[i].rows, all[i].rows, counts[i] * info.hidden);
    }
    if (info.kind == PROA_KIND_ENCODER && info.outputs == info.hidden) { /* no head: the rows are the hidden states */
        outcome rows = {0};
        run_request(engine, (proa_request){.task = PROA_TASK_ROWS, .ids = ids, .ids_count = 9}, &rows);
        assert_same_numbers(one[0].rows, rows.rows, 9 * info.hidden);
        outcome_release(&rows);
    }
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    for (int i = 0; i < 3; i++) outcome_release(&one[i]), outcome_release(&all[i]);
    proa_engine_close(engine);
}

/* In 16 bits on a device: what a step of other shape rounds differently, and no more. */
static void assert_near(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 0.03f))
            fail_msg("%lld: %g and %g", (long long)i, (double)a[i], (double)b[i]);
}

/* So many rows that a device sends those of the first inputs while the others still run. */
static void large_steps_equal_small(void **state)
{
    enum { KINDS = 4, INPUTS = 208, LONGEST = 96 };
    static const int64_t counts[KINDS] = {LONGEST, 90, 61, 95};
    outcome one[KINDS] = {{0}}, *all = calloc(INPUTS, sizeof *all);
    int32_t ids[LONGEST];
    proa_engine *engine = open_or_fail(
        *state, &(proa_engine_options){
                    .dtype = "f16", .step_tokens = 24576, .sequences_max = INPUTS, .kv_tokens = INPUTS * 128});
    for (int k = 0; k < LONGEST; k++) ids[k] = 5 + 37 * k % 190;
    proa_request request = {.task = PROA_TASK_ROWS, .ids = ids};
    for (int i = 0; i < KINDS; i++) request.ids_count = counts[i], run_request(engine, request, &one[i]);
    for (int i = 0; i < INPUTS; i++)
        request.ids_count = counts[i % KINDS], submit_or_fail(engine, request, &all[i]);
    proa_engine_run(engine);
    for (int i = 0; i < INPUTS; i++) {
        const outcome *alone = &one[i % KINDS];
        assert_int_equal(all[i].rows_count, counts[i % KINDS]);
        assert_near(all[i].rows, alone->rows, alone->rows_count * alone->columns);
        assert_near(all[i].pooled, alone->pooled, alone->columns);
        outcome_release(&all[i]);
    }
    for (int i = 0; i < KINDS; i++) outcome_release(&one[i]);
    free(all);
    proa_engine_close(engine);
}

/* T5's embedding is its table: vectors from there are the ids, beside other requests in the same step. */
static void vectors_stand_in_for_ids(void **state)
{
    outcome ids_out = {0}, other = {0}, out = {0};
    const int32_t ids[] = {5, 9, 17, 4, 33};
    proa_weights *weights = NULL;
    proa_info info;
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_engine_info(engine, &info);
    assert_int_equal(proa_weights_open(&weights, *state, NULL), PROA_OK);
    proa_view table = proa_weights_find(weights, "shared.weight")->source.view;
    float *rows = malloc((size_t)(5 * info.hidden) * sizeof *rows);
    size_t bytes = (size_t)(info.hidden * proa_dtype_bytes(table.dtype));
    for (int i = 0; i < 5; i++)
        proa_to_f32(rows + i * info.hidden, (const char *)table.data + (size_t)ids[i] * bytes, table.dtype,
                    info.hidden);
    run_request(engine, encode_of(ids, 5), &ids_out);
    submit_or_fail(engine, encode_of(ids, 3), &other);
    submit_or_fail(engine, (proa_request){.task = PROA_TASK_ENCODE, .embedded = rows, .ids_count = 5}, &out);
    proa_engine_run(engine);
    assert_int_equal(out.rows_count, 5);
    assert_same_numbers(out.rows, ids_out.rows, 5 * info.hidden);
    assert_int_equal(other.rows_count, 3);
    free(rows);
    proa_weights_close(weights);
    outcome_release(&ids_out), outcome_release(&other), outcome_release(&out);
    proa_engine_close(engine);
}

static void decoders_have_no_encoder(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_err err = {.status = PROA_OK};
    outcome o = {0};
    int32_t id = 5;
    proa_request request = encode_of(&id, 1);
    request.on_event = collect;
    request.arg = &o;
    assert_int_equal(proa_engine_submit(engine, &request, NULL, &err), PROA_UNSUPPORTED);
    assert_string_equal(err.text, "a llama has no encoder");
    proa_engine_close(engine);
}

static void expect_refused(proa_engine *engine, proa_request request, const char *want)
{
    proa_err err = {.status = PROA_OK};
    outcome o = {0};
    request.on_event = collect, request.arg = &o;
    assert_true(proa_engine_submit(engine, &request, NULL, &err) != PROA_OK);
    assert_string_equal(err.text, want);
}

/* It needs the ids, and gives the rows of its decoder only. */
static void an_encoder_that_decodes_its_input(void **state)
{
    const int32_t ids[] = {0, 9, 11, 2};
    const float rows[80] = {0};
    proa_engine *engine = open_or_fail(*state, NULL);
    expect_refused(engine, encode_of(ids, 4),
                   "a bart_cls gives rows of its decoder, not of its encoder: ask for rows");
    expect_refused(engine, (proa_request){.task = PROA_TASK_ROWS, .embedded = rows, .ids_count = 2},
                   "a bart_cls takes no vectors: its decoder reads the ids");
    expect_refused(engine, (proa_request){.task = PROA_TASK_ROWS, .ids = ids, .ids_count = 3},
                   "the input has no end token (2), whose row is classified");
    expect_refused(engine, (proa_request){.task = PROA_TASK_ROWS, .ids = ids, .ids_count = 0},
                   "the input is empty");
    proa_engine_close(engine);
}

/* One token event: the hidden state times the embedding of each token is its logit. */
static void check_logits(const proa_event *event)
{
    const proa_weights_tensor *table = event->arg;
    const proa_view *v = &table->source.view;
    if (event->kind != PROA_EVENT_TOKEN) return;
    for (int64_t t = 0; t < v->shape[0]; t++) {
        const float *row = (const float *)v->data + t * v->stride[0];
        double sum = 0;
        for (int64_t i = 0; i < v->shape[1]; i++) sum += (double)row[i] * (double)event->hidden[i];
        assert_true(fabs(sum - (double)event->logits[t]) < 1e-3);
    }
}

/* The hidden state is what the head reads: in OPT-350m behind a projection, and narrower than the residual stream. */
static void hidden_states_have_the_heads_width(void **state)
{
    const int32_t ids[] = {5, 9, 11};
    proa_weights *weights = NULL;
    proa_info info;
    outcome o = {0};
    proa_engine *engine = open_or_fail(*state, &(proa_engine_options){.dtype = "f32"});
    proa_engine_info(engine, &info);
    assert_int_equal(info.hidden, 32);
    assert_int_equal(proa_weights_open(&weights, *state, NULL), PROA_OK);
    const proa_weights_tensor *table = proa_weights_find(weights, "model.decoder.embed_tokens.weight");
    proa_request r = {.ids = ids, .ids_count = 3, .on_event = check_logits, .arg = (void *)(uintptr_t)table};
    r.options = (proa_options){.max_tokens = 8, .ignore_eos = true, .return_logits = true, .return_hidden = true};
    assert_int_equal(proa_engine_submit(engine, &r, NULL, NULL), PROA_OK);
    proa_engine_run(engine);
    r.options = (proa_options){.max_tokens = 8, .ignore_eos = true, .top_k = 4, .penalty_alpha = 0.6f};
    run_request(engine, r, &o);
    assert_int_equal(o.count, 8);
    outcome_release(&o);
    proa_weights_close(weights);
    proa_engine_close(engine);
}

static void expect_error(proa_engine *engine, proa_options options, const char *want)
{
    outcome o = {.done = false};
    proa_request r = {.text = "Ein Hund", .options = options};
    run_request(engine, r, &o);
    assert_int_equal(o.finish, PROA_FINISH_ERROR);
    if (strncmp(o.error, want, strlen(want)) != 0) fail_msg("%s", o.error);
    outcome_release(&o);
}

/* The vocabulary of this model has no brace, and no bytes for one. */
static void a_grammar_beyond_the_vocabulary(void **state)
{
    const char *choices[] = {"{", "{}"};
    const proa_options wanted[] = {{.regex = "a\\{b"}, {.grammar = "root ::= \"{\""}, {.choice = {choices, 2}}};
    static const char *const names[] = {
        "option 'regex': no token of the vocabulary can follow after 1 tokens", "option 'grammar': no token",
        "option 'choice': no token"};
    PROA_UNUSED(state);
    proa_engine *engine = open_or_fail(MODELS "m30k-t5", NULL);
    for (size_t i = 0; i < PROA_COUNT(wanted); i++) {
        proa_options o = wanted[i];
        expect_error(engine, o, names[i]);
        o.beams = 4;
        for (int style = PROA_STYLE_HF; style <= PROA_STYLE_TRTLLM; style++)
            o.style = (proa_style)style, expect_error(engine, o, names[i]);
        o.style = PROA_STYLE_HF, o.beam_groups = 2, o.diversity_penalty = 1;
        expect_error(engine, o, names[i]);
    }
    proa_engine_close(engine);
}

/* Beams that a constraint leaves no token end; the others go on. */
static void beams_beside_a_dead_end(void **state)
{
    PROA_UNUSED(state);
    proa_engine *engine = open_or_fail(MODELS "m30k-t5", NULL);
    for (int style = PROA_STYLE_HF; style <= PROA_STYLE_TRTLLM; style++) {
        outcome o = {.done = false};
        proa_request r = {.text = "Ein Hund"};
        r.options = (proa_options){.regex = "a\\{b|aber", .beams = 4, .style = (proa_style)style};
        run_request(engine, r, &o);
        if (o.finish == PROA_FINISH_ERROR || !o.beams) fail_msg("style %d: %s", style, o.error);
        for (int32_t i = 0; i < o.beams; i++) assert_string_equal(o.beam_text[i], "aber");
        outcome_release(&o);
    }
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(batched_equals_single, "qwen3"),
        ON(batched_equals_single, "mistral"),
        ON(batched_equals_single, "gptj"),
        ON(batched_equals_single, "t5_v1_1"),
        ON(cancel_gives_back, "llama3"),
        ON(cancel_gives_back, "t5"),
        ON(decode_allocates_nothing, "llama3"),
        ON(decode_allocates_nothing, "t5"),
        ON(threads_submit_and_cancel, "llama3"),
        ON(threads_submit_and_cancel, "t5"),
        ON(large_requests_are_not_starved, "llama3"),
        ON(a_thread_goes_on, "llama3"),
        ON(a_thread_goes_on, "t5"),
        ON(requests_of_one_call_are_queued_together, "llama"),
        ON(requests_of_one_call_are_queued_together, "t5"),
        ON(chunks_do_not_matter, "llama"),
        ON(chunks_do_not_matter, "gpt2"),
        ON(encode_gives_hidden_states, "bert"),
        ON(encode_gives_hidden_states, "bert_regress"),
        ON(vectors_stand_in_for_ids, "t5"),
        ON(encode_gives_hidden_states, "t5"),
        ON(decoders_have_no_encoder, "llama"),
        ON(an_encoder_that_decodes_its_input, "bart_cls"),
        ON(bad_requests_are_refused, "llama"),
        ON(hidden_states_have_the_heads_width, "opt_350m"),
        ON(large_steps_equal_small, "bert"),
        cmocka_unit_test(bad_models_are_refused),
        cmocka_unit_test(tables_that_cannot_be_counted_are_refused),
        cmocka_unit_test(a_grammar_beyond_the_vocabulary),
        cmocka_unit_test(beams_beside_a_dead_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
