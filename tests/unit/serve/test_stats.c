/* SPDX-License-Identifier: Apache-2.0
 * test_stats.c - statistics: parts of a request's time, sums over threads, batches, replies, histograms, quantiles,
 * the message. */
#include "base/clock.h"
#include "base/limits.h"
#include "serve/stats/stats.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static proa_infer_times times_of(int64_t queue, int64_t input, int64_t infer, int64_t output)
{
    proa_infer_times t = {.received = 1000, .queued = 1500};
    t.compute_start = t.queued + queue;
    t.input_end = t.compute_start + input;
    t.output_start = t.input_end + infer;
    t.compute_end = t.ended = t.output_start + output;
    return t;
}

static void test_parts(void **state)
{
    proa_infer_times t = times_of(10, 20, 30, 40);
    proa_infer_parts p = proa_infer_parts_of(&t);
    assert_int_equal(p.request, 600);
    assert_int_equal(p.queue, 10);
    assert_int_equal(p.input, 20);
    assert_int_equal(p.infer, 30);
    assert_int_equal(p.output, 40);
    t.input_end = t.output_start = 0; /* a backend that tells nothing */
    p = proa_infer_parts_of(&t);
    assert_int_equal(p.input, 0);
    assert_int_equal(p.infer, 90);
    assert_int_equal(p.output, 0);
    t.compute_start = 0; /* it never began */
    p = proa_infer_parts_of(&t);
    assert_int_equal(p.queue, 100);
    assert_int_equal(p.infer, 0);
    (void)state;
}

static void test_sums(void **state)
{
    proa_model_stats *stats = proa_stats_new();
    proa_stats_sums *s = calloc(1, sizeof *s);
    proa_infer r = {.batch = 3, .times = times_of(10, 20, 30, 40)};
    proa_stats_success(stats, &r, 1200);
    r.batch = 0; /* counts as one */
    proa_stats_success(stats, &r, 0);
    proa_stats_execution(stats, 3, &r.times);
    proa_stats_failure(stats, &r, PROA_FAIL_BACKEND);
    proa_stats_failure(stats, &r, PROA_FAIL_CANCELED);
    proa_stats_failure(stats, &r, PROA_FAIL_CANCELED);
    proa_stats_hit(stats, &r, 7);
    proa_stats_miss(stats, 9);
    proa_stats_read(stats, s);
    assert_int_equal(s->success.count, 3); /* with the hit */
    assert_int_equal(s->success.ns, 1800);
    assert_int_equal(s->inferences, 4);
    assert_int_equal(s->executions, 1);
    assert_int_equal(s->queue.count, 3);
    assert_int_equal(s->queue.ns, 30);
    assert_int_equal(s->input.count, 2);
    assert_int_equal(s->input.ns, 40);
    assert_int_equal(s->infer.ns, 60);
    assert_int_equal(s->output.ns, 80);
    assert_int_equal(s->fail.count, 3);
    assert_int_equal(s->fail.ns, 1800);
    assert_int_equal(s->failures[PROA_FAIL_BACKEND], 1);
    assert_int_equal(s->failures[PROA_FAIL_CANCELED], 2);
    assert_int_equal(s->failures[PROA_FAIL_REJECTED], 0);
    assert_int_equal(s->hit.count, 1);
    assert_int_equal(s->hit.ns, 7);
    assert_int_equal(s->miss.ns, 9);
    assert_true(s->last_ms > 1500000000000u);
    assert_int_equal(s->histograms[PROA_LATENCY_REQUEST].count, 3);
    assert_int_equal(s->histograms[PROA_LATENCY_FIRST].count, 1);
    free(s);
    proa_stats_free(stats);
    proa_stats_free(NULL);
    (void)state;
}

static void test_histograms(void **state)
{
    proa_model_stats *stats = proa_stats_new();
    proa_stats_sums *s = calloc(1, sizeof *s);
    const int64_t bounds[] = {100, 200, 400}, other[] = {100, 200, 500}, *now;
    const int64_t values[] = {0, 99, 100, 101, 200, 399, 400, 401, 1000000};
    proa_stats_bounds(stats, PROA_LATENCY_QUEUE, bounds, 3);
    for (size_t i = 0; i < PROA_COUNT(values); i++) {
        proa_infer r = {.batch = 1, .times = times_of(values[i], 0, 1, 0)};
        proa_stats_success(stats, &r, 0);
    }
    proa_stats_read(stats, s);
    const proa_histogram *h = &s->histograms[PROA_LATENCY_QUEUE];
    assert_int_equal(h->counts[0], 3); /* a bound counts with what is below it */
    assert_int_equal(h->counts[1], 2);
    assert_int_equal(h->counts[2], 2);
    assert_int_equal(h->counts[3], 2);
    assert_int_equal(h->count, 9);
    assert_int_equal(h->sum_ns, 0 + 99 + 100 + 101 + 200 + 399 + 400 + 401 + 1000000);
    proa_stats_bounds(stats, PROA_LATENCY_QUEUE, bounds, 3); /* the same: it goes on */
    proa_stats_read(stats, s);
    assert_int_equal(h->count, 9);
    proa_stats_bounds(stats, PROA_LATENCY_QUEUE, other, 3);
    proa_stats_read(stats, s);
    assert_int_equal(h->count, 0);
    assert_int_equal(proa_stats_bounds_of(stats, PROA_LATENCY_QUEUE, &now), 3);
    assert_int_equal(now[2], 500);
    assert_int_equal(s->histograms[PROA_LATENCY_REQUEST].count, 9);
    free(s);
    proa_stats_free(stats);
    (void)state;
}

static void test_bounds_from_the_configuration(void **state)
{
    proa_model_stats *stats = proa_stats_new();
    Inference__ModelConfig config;
    Inference__ModelMetrics metrics;
    Inference__ModelMetrics__MetricControl control, *controls[] = {&control};
    Inference__ModelMetrics__MetricControl__MetricIdentifier id;
    Inference__ModelMetrics__MetricControl__HistogramOptions options;
    double buckets[] = {0.5, 10, 10, 5, 200};
    const int64_t *bounds;
    inference__model_config__init(&config);
    inference__model_metrics__init(&metrics);
    inference__model_metrics__metric_control__init(&control);
    inference__model_metrics__metric_control__metric_identifier__init(&id);
    inference__model_metrics__metric_control__histogram_options__init(&options);
    id.family = (char *)"nv_inference_first_response_histogram_ms";
    options.buckets = buckets;
    options.n_buckets = 5;
    control.metric_identifier = &id;
    control.metric_options_case = INFERENCE__MODEL_METRICS__METRIC_CONTROL__METRIC_OPTIONS_HISTOGRAM_OPTIONS;
    control.histogram_options = &options;
    metrics.metric_control = controls;
    metrics.n_metric_control = 1;
    config.model_metrics = &metrics;
    proa_stats_configure(stats, &config);
    assert_int_equal(proa_stats_bounds_of(stats, PROA_LATENCY_FIRST, &bounds), 3); /* those that rise */
    assert_int_equal(bounds[0], 500000);
    assert_int_equal(bounds[1], 10000000);
    assert_int_equal(bounds[2], 200000000);
    config.model_metrics = NULL; /* a reload without it */
    proa_stats_configure(stats, &config);
    assert_int_equal(proa_stats_bounds_of(stats, PROA_LATENCY_FIRST, &bounds), 4);
    assert_int_equal(bounds[0], 100000000);
    proa_stats_free(stats);
    (void)state;
}

static bool near(double a, double b)
{
    return a > b * 0.965 && a < b * 1.035;
}

static void test_quantiles(void **state)
{
    proa_model_stats *stats = proa_stats_new();
    const double shares[] = {0, 0.5, 0.9, 0.99, 1};
    double ns[5];
    assert_false(proa_stats_quantiles(stats, PROA_LATENCY_QUEUE, shares, 5, ns));
    proa_stats_summaries(stats);
    proa_stats_summaries(stats);
    assert_true(proa_stats_quantiles(stats, PROA_LATENCY_QUEUE, shares, 5, ns));
    assert_true(ns[0] < 0 && ns[4] < 0); /* nothing yet */
    for (int64_t i = 1; i <= 10000; i++) {
        proa_infer r = {.batch = 1, .times = times_of(i * 1000, 0, 1, 0)};
        proa_stats_success(stats, &r, 0);
    }
    assert_true(proa_stats_quantiles(stats, PROA_LATENCY_QUEUE, shares, 5, ns));
    for (int i = 1; i < 5; i++) assert_true(near(ns[i], shares[i] * 1e7));
    assert_true(near(ns[0], 1000));
    proa_infer r = {.batch = 1, .times = times_of(INT64_MAX / 2, 0, 1, 0)}; /* beyond the last bucket */
    proa_stats_success(stats, &r, 0);
    assert_true(proa_stats_quantiles(stats, PROA_LATENCY_QUEUE, shares, 5, ns));
    assert_true(ns[4] > 1e11);
    proa_stats_free(stats);
    (void)state;
}

static void *record(void *arg)
{
    proa_infer r = {.batch = 2, .times = times_of(1, 2, 3, 4)};
    for (int i = 0; i < 20000; i++) {
        proa_stats_success(arg, &r, 0);
        proa_stats_execution(arg, 1 + i % 5, &r.times);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    enum { THREADS = 12 }; /* more than there are cells */
    proa_model_stats *stats = proa_stats_new();
    proa_stats_sums *s = calloc(1, sizeof *s);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, record, stats);
    for (int i = 0; i < 100; i++) proa_stats_read(stats, s); /* while they write */
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    proa_stats_read(stats, s);
    assert_int_equal(s->success.count, THREADS * 20000);
    assert_int_equal(s->inferences, THREADS * 40000);
    assert_int_equal(s->infer.ns, THREADS * 60000);
    proa_arena arena;
    proa_arena_init(&arena);
    const Inference__ModelStatistics *m = proa_stats_message(stats, "m", 7, &arena);
    assert_int_equal(m->n_batch_stats, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(m->batch_stats[i]->batch_size, i + 1); /* rising */
        assert_int_equal(m->batch_stats[i]->compute_infer->count, THREADS * 4000);
        assert_int_equal(m->batch_stats[i]->compute_infer->ns, THREADS * 12000);
    }
    proa_arena_release(&arena);
    free(s);
    proa_stats_free(stats);
    (void)state;
}

static void test_message(void **state)
{
    proa_model_stats *stats = proa_stats_new();
    proa_arena arena;
    proa_reply good = {0}, bad = {0}, gone = {0};
    proa_infer r = {.batch = 2, .times = times_of(10, 20, 30, 40)};
    bad.error.status = PROA_INTERNAL;
    gone.error.status = PROA_CANCELLED;
    proa_arena_init(&arena);
    proa_stats_success(stats, &r, 0);
    proa_stats_reply(stats, 0, &good, 100, 5);
    proa_stats_reply(stats, 2, &bad, 10, 0);
    proa_stats_reply(stats, 2, &gone, 10, 0);
    proa_stats_reply(stats, 2, NULL, 10, 0);
    proa_stats_reply(stats, 1000000, &good, 1, 0);
    const Inference__ModelStatistics *m = proa_stats_message(stats, "some", 12, &arena);
    assert_string_equal(m->name, "some");
    assert_string_equal(m->version, "12");
    assert_int_equal(m->inference_count, 2);
    assert_int_equal(m->execution_count, 0);
    assert_int_equal(m->inference_stats->compute_output->ns, 40);
    assert_int_equal(m->inference_stats->cache_hit->count, 0);
    assert_int_equal(m->n_response_stats, 3);
    assert_string_equal(m->response_stats[0]->key, "0");
    assert_int_equal(m->response_stats[0]->value->success->ns, 105);
    assert_int_equal(m->response_stats[0]->value->compute_output->ns, 5);
    assert_string_equal(m->response_stats[1]->key, "2");
    assert_int_equal(m->response_stats[1]->value->fail->count, 1);
    assert_int_equal(m->response_stats[1]->value->cancel->count, 1);
    assert_int_equal(m->response_stats[1]->value->empty_response->count, 1);
    assert_int_equal(m->response_stats[1]->value->success->count, 0);
    assert_int_equal(atoi(m->response_stats[2]->key), PROA_REPLY_STATS_MAX - 1); /* the rest counts there */
    proa_arena_release(&arena);
    proa_stats_free(stats);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),      cmocka_unit_test(test_sums),
        cmocka_unit_test(test_histograms), cmocka_unit_test(test_bounds_from_the_configuration),
        cmocka_unit_test(test_quantiles),  cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
