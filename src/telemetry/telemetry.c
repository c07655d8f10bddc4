/* SPDX-License-Identifier: Apache-2.0
 * telemetry.c - the queue of finished traces and the thread that writes them. */
#include "telemetry/telemetry.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/thread.h"
#include "telemetry/collector.h"
#include "telemetry/file.h"
#include "telemetry/otlp.h"
#include <errno.h>
#include <stdlib.h>

enum { FILE_DELAY_MS = 100, FILE_BATCH = 256 };

struct proa_telemetry {
    proa_trace_file file;
    proa_collector *collector;              /* NULL: traces go to the file */
    int64_t queue_max, delay_ms, batch_max; /* of traces; with a collector, of spans */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    proa_trace *first, **last; /* waiting */
    int64_t waiting;           /* traces, or spans */
    size_t waiting_bytes;      /* of their tensors */
    int64_t due_ns;            /* when the first of them is to be written */
    bool closing;
    atomic_int refs; /* the owner's, and one for each trace that has begun */
    proa_telemetry_counts counts;
    pthread_t thread;
};

static size_t tensor_bytes(const proa_trace *trace)
{
    size_t bytes = 0;
    for (const proa_trace_span *s = trace->first; s; s = s->next)
        for (const proa_trace_tensor *one = s->tensors; one; one = one->next) bytes += one->tensor.bytes;
    return bytes;
}

void proa_telemetry_expect(proa_telemetry *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
}

static void drop_telemetry(proa_telemetry *t)
{
    if (atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1) return;
    proa_trace_file_release(&t->file);
    proa_collector_close(t->collector);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Under the lock. */
static void append_trace(proa_telemetry *t, proa_trace *trace, int64_t weight, size_t bytes)
{
    bool first = !t->waiting, full = t->waiting < t->batch_max && t->waiting + weight >= t->batch_max;
    *t->last = trace;
    t->last = &trace->next;
    t->waiting += weight;
    t->waiting_bytes += bytes;
    if (first) t->due_ns = proa_clock_ns() + t->delay_ms * 1000000;
    if (first || full) pthread_cond_signal(&t->changed);
}

void proa_telemetry_push(proa_telemetry *t, proa_trace *trace)
{
    size_t bytes = tensor_bytes(trace);
    int64_t weight = t->collector ? proa_otlp_count(trace) : 1;
    trace->next = NULL;
    pthread_mutex_lock(&t->lock);
    bool room = !t->closing && t->waiting + weight <= t->queue_max &&
                bytes <= (size_t)PROA_TRACE_QUEUED_BYTES - t->waiting_bytes;
    if (room) append_trace(t, trace, weight, bytes);
    else t->counts.dropped += (uint64_t)(t->collector ? weight : trace->spans);
    pthread_mutex_unlock(&t->lock);
    if (!room) proa_trace_free(trace);
    drop_telemetry(t);
}

/* Waits until a batch is due; takes all that waits. NULL: it is being closed and nothing is left. */
static proa_trace *take_batch(proa_telemetry *t)
{
    pthread_mutex_lock(&t->lock);
    while (!t->closing && !t->waiting) pthread_cond_wait(&t->changed, &t->lock);
    while (!t->closing && t->waiting < t->batch_max) {
        int64_t left_ms = (t->due_ns - proa_clock_ns() + 999999) / 1000000;
        if (left_ms <= 0 || proa_cond_wait_ms(&t->changed, &t->lock, left_ms)) break;
    }
    proa_trace *list = t->first;
    t->first = NULL;
    t->last = &t->first;
    t->waiting = 0;
    t->waiting_bytes = 0;
    pthread_mutex_unlock(&t->lock);
    return list;
}

static void add_to_file(proa_telemetry *t, const proa_trace *list, proa_telemetry_counts *done)
{
    for (const proa_trace *one = list; one; one = one->next)
        *(proa_trace_file_add(&t->file, one) ? &done->exported : &done->dropped) += (uint64_t)one->spans;
}

static void write_batch(proa_telemetry *t, proa_trace *list)
{
    proa_telemetry_counts done = {0};
    if (t->collector) proa_collector_send(t->collector, list, t->batch_max, &done);
    else add_to_file(t, list, &done);
    for (proa_trace *next; list; list = next) {
        next = list->next;
        proa_trace_free(list);
    }
    pthread_mutex_lock(&t->lock);
    t->counts.exported += done.exported;
    t->counts.dropped += done.dropped;
    t->counts.failed_exports += done.failed_exports;
    pthread_mutex_unlock(&t->lock);
}

static void *write_batches(void *arg)
{
    proa_telemetry *t = arg;
    for (proa_trace *list; (list = take_batch(t)) != NULL;) write_batch(t, list);
    return NULL;
}

/* An option that was not given is the environment's, or else `otherwise`. */
static proa_status take_number(int64_t *out, int64_t given, const char *variable, int64_t otherwise,
                               int64_t max, proa_err *err)
{
    const char *text = getenv(variable);
    char *end;
    *out = given ? given : otherwise;
    if (given || !text || !*text) return PROA_OK;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || value < 1 || value > max)
        return PROA_FAIL(err, INVALID, "%s=%.100s: must be 1 to %lld", variable, text, (long long)max);
    *out = value;
    return PROA_OK;
}

static proa_status open_collector(proa_telemetry *t, const proa_telemetry_options *o, proa_err *err)
{
    PROA_TRY(take_number(&t->queue_max, o->bsp_max_queue_size, "OTEL_BSP_MAX_QUEUE_SIZE", 2048,
                         PROA_OTLP_QUEUE_MAX, err));
    PROA_TRY(take_number(&t->delay_ms, o->bsp_schedule_delay, "OTEL_BSP_SCHEDULE_DELAY", 5000,
                         PROA_OTLP_DELAY_MS_MAX, err));
    PROA_TRY(take_number(&t->batch_max, o->bsp_max_export_batch_size, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
                         proa_min64(512, t->queue_max), PROA_OTLP_QUEUE_MAX, err));
    if (t->batch_max > t->queue_max)
        return PROA_FAIL(err, INVALID, "bsp_max_export_batch_size=%lld: must not exceed bsp_max_queue_size=%lld",
                         (long long)t->batch_max, (long long)t->queue_max);
    return proa_collector_open(&t->collector, o, err);
}

static proa_status start_telemetry(proa_telemetry *t, const proa_telemetry_options *options, proa_err *err)
{
    if (options->mode == PROA_TRACE_OPENTELEMETRY) PROA_TRY(open_collector(t, options, err));
    if (pthread_create(&t->thread, NULL, write_batches, t) != 0)
        return PROA_FAIL(err, NO_MEMORY, "cannot start the thread that writes traces");
    pthread_setname_np(t->thread, "traces");
    return PROA_OK;
}

proa_status proa_telemetry_open(proa_telemetry **out, const proa_telemetry_options *options, proa_err *err)
{
    proa_telemetry *t = proa_calloc(1, sizeof *t);
    t->last = &t->first;
    t->queue_max = PROA_TRACE_QUEUED_MAX;
    t->delay_ms = FILE_DELAY_MS;
    t->batch_max = FILE_BATCH;
    proa_trace_file_init(&t->file, options->file ? options->file : "");
    atomic_init(&t->refs, 1);
    pthread_mutex_init(&t->lock, NULL);
    proa_cond_init(&t->changed);
    proa_status status = start_telemetry(t, options, err);
    *out = status == PROA_OK ? t : NULL;
    if (status != PROA_OK) drop_telemetry(t);
    return status;
}

void proa_telemetry_settings(const proa_telemetry *t, proa_telemetry_options *out)
{
    out->url = t->collector ? proa_collector_url(t->collector) : NULL;
    out->bsp_max_queue_size = t->queue_max;
    out->bsp_schedule_delay = t->delay_ms;
    out->bsp_max_export_batch_size = t->batch_max;
}

void proa_telemetry_count(proa_telemetry *t, proa_telemetry_counts *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->counts;
    pthread_mutex_unlock(&t->lock);
}

void proa_telemetry_close(proa_telemetry *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->closing = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (t->collector) proa_collector_hurry(t->collector);
    pthread_join(t->thread, NULL);
    drop_telemetry(t);
}
