/* SPDX-License-Identifier: Apache-2.0
 * stats.c - records counts and durations of a version, in cells that threads seldom share. */
#include "serve/stats/stats.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "serve/stats/internal.h"
#include <sched.h>
#include <string.h>
#include <time.h>

/* Bounds of the histograms, in us: three per decade, from the time of an inline model to that of a long text. */
static const int64_t bounds_us[] = {10,      25,      50,       100,      250,      500,      1000,   2500,
                                    5000,    10000,   25000,    50000,    100000,   250000,   500000, 1000000,
                                    2500000, 5000000, 10000000, 30000000, 60000000, 300000000};
/* Triton's nv_inference_first_response_histogram_ms */
static const int64_t bounds_first_us[] = {100000, 500000, 2000000, 5000000};

const proa_histogram_family proa_histogram_families[PROA_HISTOGRAMS_COUNT] = {
    {"nv_inference_first_response_histogram_ms", "Requests from arrival to the first reply, in ms",
     PROA_LATENCY_FIRST, 1000000},
    {"nv_inference_request_duration_histogram_us", "Requests from arrival to the last reply, in us",
     PROA_LATENCY_REQUEST, 1000},
    {"nv_inference_queue_duration_histogram_us", "Waiting for execution, in us", PROA_LATENCY_QUEUE, 1000},
    {"nv_inference_compute_infer_duration_histogram_us", "Computing, in us", PROA_LATENCY_INFER, 1000},
};

/* ---- cells ---- */

static void cell_lock(proa_stats_cell *c)
{
    for (int spins = 0; atomic_flag_test_and_set_explicit(&c->lock, memory_order_acquire); spins++)
        if (spins % 64 == 63) sched_yield(); /* its holder was put to sleep */
}

static void cell_unlock(proa_stats_cell *c)
{
    atomic_flag_clear_explicit(&c->lock, memory_order_release);
}

/* Threads get cells in turn, so that loops and instances that live together have one each. */
static proa_stats_cell *own_cell(proa_model_stats *s)
{
    static atomic_uint given;
    static _Thread_local unsigned own;
    if (own == 0) own = atomic_fetch_add_explicit(&given, 1, memory_order_relaxed) % PROA_STATS_CELLS + 1;
    return &s->cells[own - 1];
}

static void set_bounds(proa_bounds *b, const int64_t *values, int count, int64_t scale)
{
    b->count = count < PROA_BUCKETS_OF_LATENCY ? count : PROA_BUCKETS_OF_LATENCY;
    for (int i = 0; i < b->count; i++) b->ns[i] = values[i] * scale;
}

proa_model_stats *proa_stats_new(void)
{
    proa_model_stats *s = proa_malloc_aligned(sizeof *s);
    memset(s, 0, sizeof *s);
    for (int i = 0; i < PROA_STATS_CELLS; i++) atomic_flag_clear(&s->cells[i].lock);
    for (int i = 0; i < PROA_LATENCY_COUNT; i++)
        set_bounds(&s->bounds[i], bounds_us, PROA_COUNT(bounds_us), 1000);
    set_bounds(&s->bounds[PROA_LATENCY_FIRST], bounds_first_us, PROA_COUNT(bounds_first_us), 1000);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void proa_stats_free(proa_model_stats *stats)
{
    if (!stats) return;
    for (int i = 0; i < PROA_STATS_CELLS; i++) free(stats->cells[i].batches);
    free(stats->replies);
    proa_windows_free(stats);
    pthread_mutex_destroy(&stats->lock);
    free(stats);
}

void proa_stats_bounds(proa_model_stats *stats, proa_latency which, const int64_t *bounds_ns, int count)
{
    proa_bounds *b = &stats->bounds[which], before = *b;
    for (int i = 0; i < PROA_STATS_CELLS; i++) cell_lock(&stats->cells[i]);
    set_bounds(b, bounds_ns, count, 1);
    bool same = b->count == before.count && !memcmp(b->ns, before.ns, (size_t)b->count * sizeof b->ns[0]);
    for (int i = 0; i < PROA_STATS_CELLS; i++) {
        if (!same) memset(&stats->cells[i].sums.histograms[which], 0, sizeof(proa_histogram));
        cell_unlock(&stats->cells[i]);
    }
}

static void configure_latency(proa_model_stats *stats, const proa_histogram_family *family,
                              const Inference__ModelMetrics *metrics)
{
    proa_bounds b;
    if (family->latency == PROA_LATENCY_FIRST)
        set_bounds(&b, bounds_first_us, PROA_COUNT(bounds_first_us), 1000);
    else set_bounds(&b, bounds_us, PROA_COUNT(bounds_us), 1000);
    for (size_t i = 0; metrics && i < metrics->n_metric_control; i++) {
        const Inference__ModelMetrics__MetricControl *c = metrics->metric_control[i];
        if (!c->metric_identifier || !c->histogram_options ||
            strcmp(c->metric_identifier->family, family->name) != 0)
            continue;
        b.count = 0;
        for (size_t k = 0; k < c->histogram_options->n_buckets && b.count < PROA_BUCKETS_OF_LATENCY; k++) {
            double ns = c->histogram_options->buckets[k] * (double)family->unit_ns;
            if (ns > 0 && ns < 9e18 && (b.count == 0 || ns > (double)b.ns[b.count - 1]))
                b.ns[b.count++] = (int64_t)ns;
        }
    }
    proa_stats_bounds(stats, family->latency, b.ns, b.count);
}

void proa_stats_configure(proa_model_stats *stats, const Inference__ModelConfig *config)
{
    for (int i = 0; i < PROA_HISTOGRAMS_COUNT; i++)
        configure_latency(stats, &proa_histogram_families[i], config->model_metrics);
}

int proa_stats_bounds_of(const proa_model_stats *stats, proa_latency which, const int64_t **bounds_ns)
{
    *bounds_ns = stats->bounds[which].ns;
    return stats->bounds[which].count;
}

/* ---- recording ---- */

static void add_duration(proa_duration *d, int64_t ns)
{
    d->count++;
    if (ns > 0) d->ns += (uint64_t)ns;
}

/* A bound counts with the bucket below it ("le"). */
static int bucket_of(const proa_bounds *b, int64_t ns)
{
    int low = 0, high = b->count;
    while (low < high) {
        int mid = (low + high) / 2;
        if (b->ns[mid] < ns) low = mid + 1;
        else high = mid;
    }
    return low;
}

static void spread_latency(proa_model_stats *s, proa_stats_cell *c, proa_latency which, int64_t ns)
{
    proa_histogram *h = &c->sums.histograms[which];
    if (ns < 0) ns = 0;
    h->counts[bucket_of(&s->bounds[which], ns)]++;
    h->count++;
    h->sum_ns += (uint64_t)ns;
}

/* Milliseconds since 1970, from the coarse clock: a quarter of the price, and 4 ms are near enough. */
static uint64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

proa_infer_parts proa_infer_parts_of(const proa_infer_times *t)
{
    int64_t start = t->compute_start ? t->compute_start : t->compute_end;
    int64_t in = t->input_end ? t->input_end : start, out = t->output_start ? t->output_start : t->compute_end;
    return (proa_infer_parts){t->ended - t->received, start - t->queued, in - start, out - in,
                              t->compute_end - out};
}

void proa_stats_success(proa_model_stats *stats, const proa_infer *r, int64_t first_ns)
{
    proa_infer_parts p = proa_infer_parts_of(&r->times);
    proa_stats_cell *c = own_cell(stats);
    uint64_t ms = wall_ms();
    cell_lock(c);
    proa_stats_sums *s = &c->sums;
    s->last_ms = ms;
    s->inferences += (uint64_t)(r->batch > 0 ? r->batch : 1);
    add_duration(&s->success, p.request);
    add_duration(&s->queue, p.queue);
    add_duration(&s->input, p.input);
    add_duration(&s->infer, p.infer);
    add_duration(&s->output, p.output);
    spread_latency(stats, c, PROA_LATENCY_REQUEST, p.request);
    spread_latency(stats, c, PROA_LATENCY_QUEUE, p.queue);
    spread_latency(stats, c, PROA_LATENCY_INFER, p.infer);
    if (first_ns) spread_latency(stats, c, PROA_LATENCY_FIRST, first_ns - r->times.received);
    cell_unlock(c);
    if (!atomic_load_explicit(&stats->windows_on, memory_order_acquire)) return;
    proa_windows_add(stats, PROA_LATENCY_REQUEST, p.request);
    proa_windows_add(stats, PROA_LATENCY_QUEUE, p.queue);
    proa_windows_add(stats, PROA_LATENCY_INPUT, p.input);
    proa_windows_add(stats, PROA_LATENCY_INFER, p.infer);
    proa_windows_add(stats, PROA_LATENCY_OUTPUT, p.output);
}

void proa_stats_failure(proa_model_stats *stats, const proa_infer *r, proa_fail_reason reason)
{
    int64_t end = r->times.ended ? r->times.ended : proa_clock_ns();
    proa_stats_cell *c = own_cell(stats);
    uint64_t ms = wall_ms();
    cell_lock(c);
    c->sums.last_ms = ms;
    add_duration(&c->sums.fail, r->times.received ? end - r->times.received : 0);
    c->sums.failures[reason]++;
    cell_unlock(c);
}

/* The record of a batch size, made if need be. They are few, and the last one is likely. */
static proa_batch_row *batch_of(proa_stats_cell *c, int64_t size)
{
    for (int i = c->batches_count - 1; i >= 0; i--)
        if (c->batches[i].size == size) return &c->batches[i];
    if (c->batches_count == c->batches_cap) {
        c->batches_cap = c->batches_cap ? 2 * c->batches_cap : 4;
        c->batches = proa_realloc(c->batches, (size_t)c->batches_cap * sizeof *c->batches);
    }
    c->batches[c->batches_count] = (proa_batch_row){.size = size};
    return &c->batches[c->batches_count++];
}

void proa_stats_execution(proa_model_stats *stats, int64_t batch, const proa_infer_times *times)
{
    proa_infer_parts p = proa_infer_parts_of(times);
    proa_stats_cell *c = own_cell(stats);
    cell_lock(c);
    c->sums.executions++;
    proa_batch_row *row = batch_of(c, batch > 0 ? batch : 1);
    add_duration(&row->input, p.input);
    add_duration(&row->infer, p.infer);
    add_duration(&row->output, p.output);
    cell_unlock(c);
}

void proa_stats_hit(proa_model_stats *stats, const proa_infer *r, int64_t ns)
{
    int64_t whole = r->times.ended - r->times.received;
    proa_stats_cell *c = own_cell(stats);
    uint64_t ms = wall_ms();
    cell_lock(c);
    c->sums.last_ms = ms;
    add_duration(&c->sums.success, whole);
    add_duration(&c->sums.queue, r->times.compute_start - r->times.queued);
    add_duration(&c->sums.hit, ns);
    spread_latency(stats, c, PROA_LATENCY_REQUEST, whole);
    cell_unlock(c);
    if (!atomic_load_explicit(&stats->windows_on, memory_order_acquire)) return;
    proa_windows_add(stats, PROA_LATENCY_HIT, ns);
    proa_windows_add(stats, PROA_LATENCY_QUEUE, r->times.compute_start - r->times.queued);
}

void proa_stats_miss(proa_model_stats *stats, int64_t ns)
{
    proa_stats_cell *c = own_cell(stats);
    cell_lock(c);
    add_duration(&c->sums.miss, ns);
    cell_unlock(c);
    if (atomic_load_explicit(&stats->windows_on, memory_order_acquire))
        proa_windows_add(stats, PROA_LATENCY_MISS, ns);
}

static proa_reply_row *reply_of(proa_model_stats *s, int index)
{
    if (index >= PROA_REPLY_STATS_MAX) index = PROA_REPLY_STATS_MAX - 1;
    if (index >= s->replies_count) {
        int count = index + 1 > 2 * s->replies_count ? index + 1 : 2 * s->replies_count;
        s->replies = proa_realloc(s->replies, (size_t)count * sizeof *s->replies);
        memset(s->replies + s->replies_count, 0, (size_t)(count - s->replies_count) * sizeof *s->replies);
        s->replies_count = count;
    }
    s->replies[index].used = true;
    return &s->replies[index];
}

void proa_stats_reply(proa_model_stats *stats, int index, const proa_reply *reply, int64_t infer_ns,
                      int64_t output_ns)
{
    pthread_mutex_lock(&stats->lock);
    proa_reply_row *row = reply_of(stats, index);
    if (!reply) {
        add_duration(&row->empty, infer_ns + output_ns);
    } else if (reply->error.status == PROA_OK) {
        add_duration(&row->success, infer_ns + output_ns);
        add_duration(&row->infer, infer_ns);
        add_duration(&row->output, output_ns);
    } else {
        add_duration(reply->error.status == PROA_CANCELLED ? &row->cancel : &row->fail, infer_ns + output_ns);
    }
    pthread_mutex_unlock(&stats->lock);
}

/* ---- reading ---- */

static void sum_duration(proa_duration *to, const proa_duration *from)
{
    to->count += from->count;
    to->ns += from->ns;
}

static void sum_up(proa_stats_sums *to, const proa_stats_sums *from)
{
    proa_duration *t[] = {&to->success, &to->fail,   &to->queue, &to->input,
                          &to->infer,   &to->output, &to->hit,   &to->miss};
    const proa_duration *f[] = {&from->success, &from->fail,   &from->queue, &from->input,
                                &from->infer,   &from->output, &from->hit,   &from->miss};
    for (size_t i = 0; i < PROA_COUNT(t); i++) sum_duration(t[i], f[i]);
    if (from->last_ms > to->last_ms) to->last_ms = from->last_ms;
    to->inferences += from->inferences;
    to->executions += from->executions;
    for (int i = 0; i < PROA_FAIL_COUNT; i++) to->failures[i] += from->failures[i];
    for (int i = 0; i < PROA_LATENCY_COUNT; i++) {
        for (int b = 0; b <= PROA_BUCKETS_OF_LATENCY; b++)
            to->histograms[i].counts[b] += from->histograms[i].counts[b];
        to->histograms[i].count += from->histograms[i].count;
        to->histograms[i].sum_ns += from->histograms[i].sum_ns;
    }
}

void proa_stats_read(proa_model_stats *stats, proa_stats_sums *sums)
{
    *sums = (proa_stats_sums){0};
    for (int i = 0; i < PROA_STATS_CELLS; i++) {
        cell_lock(&stats->cells[i]);
        sum_up(sums, &stats->cells[i].sums);
        cell_unlock(&stats->cells[i]);
    }
}

int proa_stats_batches(proa_model_stats *stats, proa_arena *arena, proa_batch_row **rows)
{
    proa_stats_cell all = {0};
    for (int i = 0; i < PROA_STATS_CELLS; i++) {
        proa_stats_cell *c = &stats->cells[i];
        cell_lock(c);
        for (int j = 0; j < c->batches_count; j++) {
            proa_batch_row *to = batch_of(&all, c->batches[j].size);
            sum_duration(&to->input, &c->batches[j].input);
            sum_duration(&to->infer, &c->batches[j].infer);
            sum_duration(&to->output, &c->batches[j].output);
        }
        cell_unlock(c);
    }
    *rows = PROA_ARENA_NEW(arena, proa_batch_row, all.batches_count);
    if (all.batches_count) memcpy(*rows, all.batches, (size_t)all.batches_count * sizeof **rows);
    free(all.batches);
    return all.batches_count;
}
