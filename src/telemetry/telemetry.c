/* SPDX-License-Identifier: Apache-2.0
 * telemetry.c - the queue of finished traces and the thread that writes them. */
#include "telemetry/telemetry.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/thread.h"
#include "telemetry/file.h"

enum { FILE_DELAY_MS = 100, FILE_BATCH = 256 };

struct proa_telemetry {
    proa_trace_mode mode;
    proa_trace_file file;
    int64_t queue_max, delay_ms, batch; /* of traces */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    proa_trace *first, **last; /* waiting */
    int64_t waiting;
    size_t waiting_bytes; /* of their tensors */
    int64_t due_ns;       /* when the first of them is to be written */
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
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void proa_telemetry_push(proa_telemetry *t, proa_trace *trace)
{
    size_t bytes = tensor_bytes(trace);
    trace->next = NULL;
    pthread_mutex_lock(&t->lock);
    bool room = !t->closing && t->waiting < t->queue_max &&
                bytes <= (size_t)PROA_TRACE_QUEUED_BYTES - t->waiting_bytes;
    if (room) {
        *t->last = trace;
        t->last = &trace->next;
        t->waiting_bytes += bytes;
        if (!t->waiting++) t->due_ns = proa_clock_ns() + t->delay_ms * 1000000;
        if (t->waiting == 1 || t->waiting == t->batch) pthread_cond_signal(&t->changed);
    } else t->counts.dropped += (uint64_t)trace->spans;
    pthread_mutex_unlock(&t->lock);
    if (!room) proa_trace_free(trace);
    drop_telemetry(t);
}

/* Waits until a batch is due; takes all that waits. NULL: it is being closed and nothing is left. */
static proa_trace *take_batch(proa_telemetry *t)
{
    pthread_mutex_lock(&t->lock);
    while (!t->closing && !t->waiting) pthread_cond_wait(&t->changed, &t->lock);
    while (!t->closing && t->waiting < t->batch) {
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

static void write_batch(proa_telemetry *t, proa_trace *list)
{
    proa_telemetry_counts done = {0};
    for (proa_trace *one = list, *next; one; one = next) {
        next = one->next;
        if (proa_trace_file_add(&t->file, one)) done.exported += (uint64_t)one->spans;
        else done.dropped += (uint64_t)one->spans;
        proa_trace_free(one);
    }
    pthread_mutex_lock(&t->lock);
    t->counts.exported += done.exported;
    t->counts.dropped += done.dropped;
    pthread_mutex_unlock(&t->lock);
}

static void *write_batches(void *arg)
{
    proa_telemetry *t = arg;
    for (proa_trace *list; (list = take_batch(t)) != NULL;) write_batch(t, list);
    return NULL;
}

proa_status proa_telemetry_open(proa_telemetry **out, const proa_telemetry_options *options, proa_err *err)
{
    proa_telemetry *t = proa_calloc(1, sizeof *t);
    *out = NULL;
    t->mode = options->mode;
    t->last = &t->first;
    t->queue_max = PROA_TRACE_QUEUED_MAX;
    t->delay_ms = FILE_DELAY_MS;
    t->batch = FILE_BATCH;
    proa_trace_file_init(&t->file, options->file ? options->file : "");
    atomic_init(&t->refs, 1);
    pthread_mutex_init(&t->lock, NULL);
    proa_cond_init(&t->changed);
    if (pthread_create(&t->thread, NULL, write_batches, t) != 0) {
        drop_telemetry(t);
        return PROA_FAIL(err, NO_MEMORY, "cannot start the thread that writes traces");
    }
    pthread_setname_np(t->thread, "traces");
    *out = t;
    return PROA_OK;
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
    pthread_join(t->thread, NULL);
    drop_telemetry(t);
}
