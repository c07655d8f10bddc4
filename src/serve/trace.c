/* SPDX-License-Identifier: Apache-2.0
 * trace.c - collects the spans of sampled requests; W3C's trace context. */
#include "serve/trace.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "serve/models/model.h"
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* ---- ids ---- */

static pthread_once_t seed_once = PTHREAD_ONCE_INIT;
static uint64_t seed;
static atomic_ullong ids_made;
static atomic_llong last_span;

static void make_seed(void)
{
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint64_t)proa_clock_ns();
}

/* SplitMix64 (Steele, Lea, Flood 2014) of a counter: a bijection, so ids of one process differ. Never 0. */
static uint64_t next_id(void)
{
    pthread_once(&seed_once, make_seed);
    uint64_t z;
    do {
        z = seed + 0x9e3779b97f4a7c15U * atomic_fetch_add_explicit(&ids_made, 1, memory_order_relaxed);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        z ^= z >> 31;
    } while (!z);
    return z;
}

void proa_trace_span_id(uint8_t out[8])
{
    uint64_t id = next_id();
    memcpy(out, &id, sizeof id);
}

/* ---- the context ---- */

/* Hexadecimal digits in lower case, as the header must have them; false: others, or all are 0. */
static bool read_hex(uint8_t *out, const char *text, int bytes, bool zero_is_good)
{
    bool any = zero_is_good;
    for (int i = 0; i < bytes; i++) {
        const char *pair = text + 2 * (size_t)i;
        if ((pair[0] >= 'A' && pair[0] <= 'F') || (pair[1] >= 'A' && pair[1] <= 'F')) return false;
        int high = proa_hex_digit(pair[0]), low = proa_hex_digit(pair[1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(16 * high + low);
        any = any || out[i];
    }
    return any;
}

bool proa_trace_context_read(proa_trace_context *out, proa_str traceparent)
{
    const char *t = traceparent.ptr;
    const size_t len = PROA_TRACEPARENT_BYTES - 1;
    uint8_t version;
    if (traceparent.len < len || t[2] != '-' || t[35] != '-' || t[52] != '-') return false;
    if (!read_hex(&version, t, 1, true) || version == 0xff) return false;
    /* a later version may have more fields after one more '-' */
    if (traceparent.len > len && (version == 0 || t[len] != '-')) return false;
    return read_hex(out->trace_id, t + 3, 16, false) && read_hex(out->span_id, t + 36, 8, false) &&
           read_hex(&out->flags, t + 53, 1, true);
}

void proa_trace_context_print(char out[PROA_TRACEPARENT_BYTES], const proa_trace_span *span)
{
    char *to = out + snprintf(out, PROA_TRACEPARENT_BYTES, "00-");
    for (int i = 0; i < 16; i++) to += snprintf(to, 3, "%02x", span->trace->context.trace_id[i]);
    *to++ = '-';
    for (int i = 0; i < 8; i++) to += snprintf(to, 3, "%02x", span->span_id[i]);
    snprintf(to, 4, "-01");
}

void proa_trace_context_json(proa_buf *out, const proa_trace_span *span)
{
    char parent[PROA_TRACEPARENT_BYTES];
    proa_trace_context_print(parent, span);
    proa_buf_printf(out, "{\"traceparent\":\"%s\"", parent);
    if (span->trace->origin.tracestate.len) {
        proa_buf_printf(out, ",\"tracestate\":");
        proa_buf_json_str(out, span->trace->origin.tracestate);
    }
    proa_buf_char(out, '}');
}

static bool is_printable(proa_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < 0x20 || s.ptr[i] > 0x7e) return false;
    return true;
}

static proa_str copy_text(proa_arena *arena, proa_str s)
{
    return (proa_str){proa_arena_strdup(arena, s), s.len};
}

/* A tracestate without a good traceparent means nothing. */
static void take_context(proa_trace *t, const proa_trace_origin *origin)
{
    t->origin = *origin;
    t->origin.traceparent = t->origin.tracestate = (proa_str){"", 0};
    t->has_parent = proa_trace_context_read(&t->context, origin->traceparent);
    if (t->has_parent) {
        t->origin.traceparent = copy_text(&t->arena, origin->traceparent);
        if (origin->tracestate.len <= PROA_TRACESTATE_BYTES_MAX && is_printable(origin->tracestate))
            t->origin.tracestate = copy_text(&t->arena, origin->tracestate);
        return;
    }
    t->context = (proa_trace_context){.flags = 1};
    proa_trace_span_id(t->context.trace_id);
    proa_trace_span_id(t->context.trace_id + 8);
}

/* ---- spans ---- */

/* Under the lock, or before the trace is shared. */
static proa_trace_span *add_span(proa_trace *t, proa_infer *r, int64_t parent)
{
    proa_trace_span *span = PROA_ARENA_NEW(&t->arena, proa_trace_span, 1);
    span->trace = t;
    span->id = atomic_fetch_add_explicit(&last_span, 1, memory_order_relaxed) + 1;
    span->parent = parent;
    proa_trace_span_id(span->span_id);
    span->model_name = proa_arena_strdup(&t->arena, proa_str_c(r->model_name));
    span->request_id = proa_arena_strdup(&t->arena, proa_str_c(r->id));
    span->model_version = r->model_version;
    span->begun_ns = proa_clock_ns();
    if (t->last) t->last->next = span;
    else t->first = span;
    t->last = span;
    t->spans++;
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    r->trace = span;
    return span;
}

proa_trace *proa_trace_begin(proa_infer *r, unsigned level, void (*on_done)(proa_trace *, void *), void *arg)
{
    proa_trace *t = proa_calloc(1, sizeof *t);
    proa_arena_init(&t->arena);
    pthread_mutex_init(&t->lock, NULL);
    t->level = level;
    t->on_done = on_done;
    t->arg = arg;
    take_context(t, r->origin);
    add_span(t, r, 0);
    return t;
}

void proa_trace_add(const proa_infer *parent, proa_infer *child)
{
    proa_trace_span *span = parent->trace;
    if (!span) return;
    pthread_mutex_lock(&span->trace->lock);
    if (span->trace->spans < PROA_TRACE_SPANS_MAX) add_span(span->trace, child, span->id);
    pthread_mutex_unlock(&span->trace->lock);
}

static void add_tensors(proa_trace_span *span, const proa_tensor *tensors, int32_t count, bool output)
{
    for (int32_t i = 0; i < count; i++) {
        proa_trace_tensor *one = PROA_ARENA_NEW(&span->trace->arena, proa_trace_tensor, 1);
        one->output = output;
        proa_tensor_share(&one->tensor, &tensors[i]);
        one->tensor.name = proa_arena_strdup(&span->trace->arena, proa_str_c(tensors[i].name));
        if (span->tensors_last) span->tensors_last->next = one;
        else span->tensors = one;
        span->tensors_last = one;
    }
}

static void note_generation(proa_trace_span *span, const proa_generation *g)
{
    const proa_options *o = &g->options;
    proa_trace_generation *used = PROA_ARENA_NEW(&span->trace->arena, proa_trace_generation, 1);
    *used = (proa_trace_generation){.new_max = o->max_tokens,
                                    .n = o->n,
                                    .temperature = (double)o->temperature,
                                    .top_p = (double)o->top_p,
                                    .top_k = o->top_k,
                                    .stream = g->stream,
                                    .temperature_given = o->given[PROA_OPTION_temperature],
                                    .top_p_given = o->given[PROA_OPTION_top_p],
                                    .top_k_given = o->given[PROA_OPTION_top_k]};
    span->generation = used;
}

void proa_trace_report(proa_trace_span *span, int64_t ns, const char *name)
{
    pthread_mutex_lock(&span->trace->lock);
    if (span->activities_count < PROA_TRACE_ACTIVITIES_MAX) {
        proa_trace_activity *one = PROA_ARENA_NEW(&span->trace->arena, proa_trace_activity, 1);
        one->name = proa_arena_strdup(&span->trace->arena, proa_str_c(name));
        one->ns = ns;
        if (span->activities_last) span->activities_last->next = one;
        else span->activities = one;
        span->activities_last = one;
        span->activities_count++;
    }
    pthread_mutex_unlock(&span->trace->lock);
}

static void note_finishes(proa_trace_span *span, const proa_generated *g)
{
    static const char *const names[] = {NULL,     "stop",      "stop",
                                        "length", "cancelled", "error"}; /* by proa_finish */
    for (int64_t i = 0; i < g->count && span->finishes_count < PROA_TRACE_FINISHES_MAX; i++) {
        int finish = (int)g->sequences[i].finish;
        if (finish > 0 && finish < (int)PROA_COUNT(names))
            span->finishes[span->finishes_count++] = names[finish];
    }
}

static void note_end(proa_trace_span *span, const proa_infer *r, const proa_reply *reply)
{
    span->ended = true;
    span->times = r->times;
    span->usage = r->usage;
    span->ensemble = r->model && !r->model->backend;
    if (r->model) span->model_version = r->model->version;
    if (r->generation) note_generation(span, r->generation);
    if (!reply || reply->error.status == PROA_OK) return;
    proa_str text = proa_str_c(reply->error.text);
    if (text.len > PROA_TRACE_ERROR_BYTES_MAX) text.len = PROA_TRACE_ERROR_BYTES_MAX;
    span->error = proa_arena_strdup(&span->trace->arena, text);
}

void proa_trace_reply(proa_infer *r, const proa_reply *reply, bool final)
{
    proa_trace_span *span = r->trace;
    proa_trace *t = span->trace;
    bool tensors = (t->level & PROA_TRACE_TENSORS) != 0;
    pthread_mutex_lock(&t->lock);
    if (tensors && !span->tensors) add_tensors(span, r->inputs, r->inputs_count, false);
    if (tensors && reply && reply->error.status == PROA_OK)
        add_tensors(span, reply->outputs, reply->outputs_count, true);
    if (reply && reply->generated) note_finishes(span, reply->generated);
    if (final) note_end(span, r, reply);
    if (final && !span->parent) t->complete_ns = proa_clock_ns();
    pthread_mutex_unlock(&t->lock);
}

void proa_trace_leave(proa_infer *r)
{
    proa_trace_span *span = r->trace;
    proa_trace *t = span->trace;
    r->trace = NULL;
    if (!span->ended) { /* it was refused, so no reply came */
        pthread_mutex_lock(&t->lock);
        note_end(span, r, NULL);
        span->error = "the request was refused";
        pthread_mutex_unlock(&t->lock);
    }
    if (!span->times.ended) span->times.ended = proa_clock_ns();
    if (atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1) t->on_done(t, t->arg);
}

void proa_trace_sending(proa_infer *r)
{
    r->trace->trace->send_start_ns = proa_clock_ns();
}

void proa_trace_sent(proa_infer *r)
{
    r->trace->trace->send_end_ns = proa_clock_ns();
}

void proa_trace_free(proa_trace *t)
{
    for (proa_trace_span *span = t->first; span; span = span->next)
        for (proa_trace_tensor *one = span->tensors; one; one = one->next) proa_tensor_release(&one->tensor);
    pthread_mutex_destroy(&t->lock);
    proa_arena_release(&t->arena);
    free(t);
}
