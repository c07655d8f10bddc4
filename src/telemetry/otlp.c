/* SPDX-License-Identifier: Apache-2.0
 * otlp.c - makes the spans of a trace. */
#include "telemetry/otlp.h"

#include "base/clock.h"
#include <string.h>
#include <time.h>

enum {
    ATTRIBUTES_MAX = 24,
    EVENTS_MAX = 5
}; /* of one span; see add_model_span, add_root_span, add_compute_span */

/* What the functions below write to. */
typedef struct span_list {
    proa_arena *arena;
    const proa_trace *trace;
    int64_t unix_ns;
    Otlp__Span **out;
    int64_t count;
} span_list;

int64_t proa_otlp_unix_offset(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - proa_clock_ns();
}

/* ---- attributes, events ---- */

static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c only reads it */
}

/* Texts of clients need not be UTF-8, which receivers insist on. */
static const char *clean_text(span_list *l, const char *text)
{
    proa_str s = proa_str_c(text);
    if (proa_utf8_valid(s)) return text;
    char *copy = proa_arena_strdup(l->arena, s);
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)copy[i] >= 0x80) copy[i] = '?';
    return copy;
}

static Otlp__AnyValue *add_attribute(span_list *l, Otlp__Span *span, const char *key)
{
    PROA_ASSERT(span->n_attributes < ATTRIBUTES_MAX);
    Otlp__KeyValue *kv = PROA_ARENA_NEW(l->arena, Otlp__KeyValue, 1);
    otlp__key_value__init(kv);
    kv->key = text_of(key);
    kv->value = PROA_ARENA_NEW(l->arena, Otlp__AnyValue, 1);
    otlp__any_value__init(kv->value);
    span->attributes[span->n_attributes++] = kv;
    return kv->value;
}

static void set_text(Otlp__AnyValue *value, const char *text)
{
    value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
    value->string_value = text_of(text);
}

static void add_text(span_list *l, Otlp__Span *span, const char *key, const char *text)
{
    set_text(add_attribute(l, span, key), clean_text(l, text));
}

static void add_int(span_list *l, Otlp__Span *span, const char *key, int64_t number)
{
    Otlp__AnyValue *value = add_attribute(l, span, key);
    value->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
    value->int_value = number;
}

static void add_double(span_list *l, Otlp__Span *span, const char *key, double number)
{
    Otlp__AnyValue *value = add_attribute(l, span, key);
    value->value_case = OTLP__ANY_VALUE__VALUE_DOUBLE_VALUE;
    value->double_value = number;
}

static void add_texts(span_list *l, Otlp__Span *span, const char *key, const char *const *texts, int count)
{
    Otlp__AnyValue *value = add_attribute(l, span, key);
    Otlp__ArrayValue *array = PROA_ARENA_NEW(l->arena, Otlp__ArrayValue, 1);
    otlp__array_value__init(array);
    array->values = PROA_ARENA_NEW(l->arena, Otlp__AnyValue *, count);
    for (int i = 0; i < count; i++) {
        array->values[i] = PROA_ARENA_NEW(l->arena, Otlp__AnyValue, 1);
        otlp__any_value__init(array->values[i]);
        set_text(array->values[i], texts[i]);
    }
    array->n_values = (size_t)count;
    value->value_case = OTLP__ANY_VALUE__VALUE_ARRAY_VALUE;
    value->array_value = array;
}

Otlp__KeyValue *proa_otlp_text(proa_arena *arena, proa_str key, proa_str value)
{
    Otlp__KeyValue *kv = PROA_ARENA_NEW(arena, Otlp__KeyValue, 1);
    otlp__key_value__init(kv);
    kv->key = proa_arena_strdup(arena, key);
    kv->value = PROA_ARENA_NEW(arena, Otlp__AnyValue, 1);
    otlp__any_value__init(kv->value);
    set_text(kv->value, proa_arena_strdup(arena, value));
    return kv;
}

static void add_event(span_list *l, Otlp__Span *span, const char *name, int64_t ns)
{
    if (!ns) return;
    Otlp__Span__Event *event = PROA_ARENA_NEW(l->arena, Otlp__Span__Event, 1);
    otlp__span__event__init(event);
    event->name = text_of(name);
    event->time_unix_nano = (uint64_t)(ns + l->unix_ns);
    span->events[span->n_events++] = event;
}

/* ---- spans ---- */

static const uint8_t *new_id(span_list *l)
{
    uint8_t *id = PROA_ARENA_NEW(l->arena, uint8_t, 8);
    proa_trace_span_id(id);
    return id;
}

static ProtobufCBinaryData bytes_of(const uint8_t *bytes, size_t len)
{
    return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)bytes};
}

/* parent NULL: none. Times are monotonic. */
static Otlp__Span *add_span(span_list *l, const char *name, const uint8_t *id, const uint8_t *parent,
                            int64_t start_ns, int64_t end_ns)
{
    const proa_trace *t = l->trace;
    Otlp__Span *span = PROA_ARENA_NEW(l->arena, Otlp__Span, 1);
    otlp__span__init(span);
    span->trace_id = bytes_of(t->context.trace_id, sizeof t->context.trace_id);
    span->span_id = bytes_of(id, 8);
    if (parent) span->parent_span_id = bytes_of(parent, 8);
    if (t->origin.tracestate.len) span->trace_state = text_of(t->origin.tracestate.ptr);
    span->name = text_of(clean_text(l, name));
    span->kind = OTLP__SPAN__SPAN_KIND__SPAN_KIND_INTERNAL;
    span->start_time_unix_nano = (uint64_t)(start_ns + l->unix_ns);
    span->end_time_unix_nano = (uint64_t)((end_ns > start_ns ? end_ns : start_ns) + l->unix_ns);
    span->attributes = PROA_ARENA_NEW(l->arena, Otlp__KeyValue *, ATTRIBUTES_MAX);
    span->events = PROA_ARENA_NEW(l->arena, Otlp__Span__Event *, EVENTS_MAX);
    span->flags = 0x101; /* sampled; whether the parent is remote is known */
    l->out[l->count++] = span;
    return span;
}

static void set_error(span_list *l, Otlp__Span *span, const char *error)
{
    if (!error) return;
    span->status = PROA_ARENA_NEW(l->arena, Otlp__Status, 1);
    otlp__status__init(span->status);
    span->status->code = OTLP__STATUS__STATUS_CODE__STATUS_CODE_ERROR;
    span->status->message = text_of(clean_text(l, error));
}

/* Returns its id. */
static const uint8_t *add_root_span(span_list *l)
{
    const proa_trace *t = l->trace;
    bool grpc = t->origin.grpc;
    const uint8_t *id = new_id(l);
    int64_t end = t->send_end_ns ? t->send_end_ns : t->complete_ns ? t->complete_ns : t->first->times.ended;
    Otlp__Span *span = add_span(l, "InferRequest", id, t->has_parent ? t->context.span_id : NULL,
                                t->origin.received_ns, end);
    span->kind = OTLP__SPAN__SPAN_KIND__SPAN_KIND_SERVER;
    if (t->has_parent) span->flags |= 0x200; /* the parent is remote */
    add_event(l, span, grpc ? "GRPC_WAITREAD_START" : "HTTP_RECV_START", t->origin.received_ns);
    add_event(l, span, grpc ? "GRPC_WAITREAD_END" : "HTTP_RECV_END", t->origin.read_ns);
    add_event(l, span, "INFER_RESPONSE_COMPLETE", t->complete_ns);
    add_event(l, span, grpc ? "GRPC_SEND_START" : "HTTP_SEND_START", t->send_start_ns);
    add_event(l, span, grpc ? "GRPC_SEND_END" : "HTTP_SEND_END", t->send_end_ns);
    set_error(l, span, t->first->error);
    return id;
}

/* ---- language models ---- */

static bool is_of_language_model(const proa_trace_span *s)
{
    return s->usage.prompt_tokens > 0 || s->usage.new_tokens > 0;
}

static double seconds_between(int64_t from_ns, int64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

static void add_requested_options(span_list *l, Otlp__Span *span, const proa_trace_generation *g)
{
    if (g->new_max > 0) add_int(l, span, "gen_ai.request.max_tokens", g->new_max);
    if (g->n > 1) add_int(l, span, "gen_ai.request.choice.count", g->n);
    if (g->temperature_given) add_double(l, span, "gen_ai.request.temperature", g->temperature);
    if (g->top_p_given) add_double(l, span, "gen_ai.request.top_p", g->top_p);
    if (g->top_k_given) add_double(l, span, "gen_ai.request.top_k", (double)g->top_k);
}

/* Latencies have no names in the conventions for spans: these are vLLM's, in seconds. */
static void add_latencies(span_list *l, Otlp__Span *span, const proa_trace_span *s)
{
    int64_t received = s->times.received, start = s->times.compute_start, first = s->usage.first_token_ns;
    add_double(l, span, "gen_ai.latency.time_in_queue", seconds_between(s->times.queued, start));
    add_double(l, span, "gen_ai.latency.e2e", seconds_between(received, s->times.ended));
    if (!first) return;
    add_double(l, span, "gen_ai.latency.time_to_first_token", seconds_between(received, first));
    add_double(l, span, "gen_ai.latency.time_in_model_prefill", seconds_between(start, first));
    add_double(l, span, "gen_ai.latency.time_in_model_decode", seconds_between(first, s->times.ended));
}

static void add_generation(span_list *l, Otlp__Span *span, const proa_trace_span *s)
{
    const char *operation = s == l->trace->first ? l->trace->origin.operation : NULL;
    add_text(l, span, "gen_ai.operation.name", operation ? operation : "text_completion");
    add_text(l, span, "gen_ai.provider.name", "proa");
    add_text(l, span, "gen_ai.request.model", s->model_name);
    add_text(l, span, "gen_ai.response.model", s->model_name);
    if (s->request_id[0]) add_text(l, span, "gen_ai.response.id", s->request_id);
    add_int(l, span, "gen_ai.usage.input_tokens", s->usage.prompt_tokens);
    add_int(l, span, "gen_ai.usage.cache_read.input_tokens", s->usage.cached_tokens);
    add_int(l, span, "gen_ai.usage.output_tokens", s->usage.new_tokens);
    if (s->finishes_count)
        add_texts(l, span, "gen_ai.response.finish_reasons", s->finishes, s->finishes_count);
    if (s->generation) add_requested_options(l, span, s->generation);
    add_latencies(l, span, s);
}

/* ---- one model ---- */

static bool has_compute(const proa_trace_span *s)
{
    return s->times.compute_start && !s->ensemble;
}

/* compute_id: of the span of computing. */
static void add_phases(span_list *l, const proa_trace_span *s, const uint8_t *compute_id)
{
    int64_t first = s->usage.first_token_ns, end = s->times.ended;
    add_span(l, "queue", new_id(l), s->span_id, s->times.queued, s->times.compute_start);
    add_span(l, "prefill", new_id(l), compute_id, s->times.compute_start, first ? first : end);
    if (first) add_span(l, "decode", new_id(l), compute_id, first, end);
}

static void add_compute_span(span_list *l, const proa_trace_span *s)
{
    const uint8_t *id = new_id(l);
    Otlp__Span *span = add_span(l, "compute", id, s->span_id, s->times.compute_start, s->times.compute_end);
    span->events = PROA_ARENA_NEW(l->arena, Otlp__Span__Event *, EVENTS_MAX + s->activities_count);
    add_event(l, span, "COMPUTE_START", s->times.compute_start);
    add_event(l, span, "COMPUTE_INPUT_END", s->times.input_end);
    add_event(l, span, "COMPUTE_OUTPUT_START", s->times.output_start);
    add_event(l, span, "COMPUTE_END", s->times.compute_end);
    for (const proa_trace_activity *a = s->activities; a; a = a->next)
        add_event(l, span, clean_text(l, a->name), a->ns);
    if (is_of_language_model(s)) add_phases(l, s, id);
}

static void add_model_span(span_list *l, const proa_trace_span *s, const uint8_t *parent)
{
    Otlp__Span *span = add_span(l, s->model_name, s->span_id, parent, s->begun_ns, s->times.ended);
    add_text(l, span, "triton.model_name", s->model_name);
    add_int(l, span, "triton.model_version", s->model_version);
    add_int(l, span, "triton.trace_id", s->id);
    add_int(l, span, "triton.trace_parent_id", s->parent);
    if (s->request_id[0]) add_text(l, span, "triton.request_id", s->request_id);
    add_event(l, span, "REQUEST_START", s->begun_ns);
    add_event(l, span, "QUEUE_START", s->times.queued);
    add_event(l, span, "REQUEST_END", s->times.ended);
    if (is_of_language_model(s)) add_generation(l, span, s);
    set_error(l, span, s->error);
    if (has_compute(s)) add_compute_span(l, s);
}

/* The id of the span that led to s. */
static const uint8_t *parent_of(const proa_trace_span *s, const uint8_t *root)
{
    for (const proa_trace_span *one = s->parent ? s->trace->first : NULL; one; one = one->next)
        if (one->id == s->parent) return one->span_id;
    return root;
}

int64_t proa_otlp_count(const proa_trace *trace)
{
    int64_t count = 1;
    for (const proa_trace_span *s = trace->first; s; s = s->next) {
        count++;
        if (!has_compute(s)) continue;
        count++;
        if (is_of_language_model(s)) count += s->usage.first_token_ns ? 3 : 2;
    }
    return count;
}

int64_t proa_otlp_add(Otlp__Span **out, const proa_trace *trace, int64_t unix_ns, proa_arena *arena)
{
    span_list l = {.arena = arena, .trace = trace, .unix_ns = unix_ns, .out = out};
    const uint8_t *root = add_root_span(&l);
    for (const proa_trace_span *s = trace->first; s; s = s->next) add_model_span(&l, s, parent_of(s, root));
    return l.count;
}
