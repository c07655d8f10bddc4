/* SPDX-License-Identifier: Apache-2.0
 * settings.c - trace and logging settings, global and per model, and which requests are sampled. */
#include "api/trace.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include <inttypes.h>
#include <string.h>

/* ---- trace settings ---- */

enum { LEVEL, RATE, COUNT, FREQUENCY, FIELDS };

typedef struct trace_setting {
    struct trace_setting *next;
    char *model;
    bool given[FIELDS]; /* else the global value applies; for the global setting, the value at the server's start */
    int64_t values[FIELDS];
    int64_t seen, traced; /* requests that fell under this setting since it was set; how many of them were traced */
} trace_setting;

struct proa_settings {
    pthread_mutex_t lock;
    int64_t start[FIELDS];
    proa_trace_mode mode;
    char *file;                /* "": none */
    char *resource;            /* the last attribute that was given, as Triton shows it; "": none */
    proa_telemetry *telemetry; /* NULL: nothing can be traced */
    trace_setting global, *models;
};

/* The settings by which requests are traced now; NULL: all are OFF. */
static _Atomic(proa_settings *) tracing;

static atomic_bool tracing_tensors; /* one of them has TENSORS */

bool proa_trace_on(void)
{
    return atomic_load_explicit(&tracing, memory_order_relaxed) != NULL;
}

bool proa_trace_shows_tensors(void)
{
    return proa_trace_on() && atomic_load_explicit(&tracing_tensors, memory_order_relaxed);
}

static const struct {
    const char *name;
    int64_t min, max;
} fields[FIELDS] = {{"trace_level", 0, 3},
                    {"trace_rate", 0, UINT32_MAX},
                    {"trace_count", -1, INT32_MAX},
                    {"log_frequency", 0, UINT32_MAX}};

static void start_tracing(proa_settings *s, unsigned levels)
{
    atomic_store(&tracing_tensors, (levels & PROA_TRACE_TENSORS) != 0);
    atomic_store(&tracing, levels && s->telemetry ? s : NULL);
}

proa_status proa_settings_new(proa_settings **out, const proa_api_options *options, proa_err *err)
{
    const proa_trace_options *t = &options->trace;
    proa_settings *s = proa_calloc(1, sizeof *s);
    *out = s;
    pthread_mutex_init(&s->lock, NULL);
    s->start[LEVEL] = (int64_t)t->level;
    s->start[RATE] = t->rate > 0 ? t->rate : t->rate < 0 ? 0 : 1000;
    s->start[COUNT] = t->count ? t->count : -1;
    s->start[FREQUENCY] = t->log_frequency;
    s->mode = t->to.mode;
    s->file = proa_strdup(t->to.file ? t->to.file : "");
    s->resource = proa_strdup(t->to.resource_count ? t->to.resource[t->to.resource_count - 1] : "");
    if (s->file[0] || s->mode == PROA_TRACE_OPENTELEMETRY)
        PROA_TRY(proa_telemetry_open(&s->telemetry, &t->to, err));
    if (t->level) start_tracing(s, t->level);
    return PROA_OK;
}

void proa_settings_free(proa_settings *s)
{
    if (!s) return;
    proa_settings *ours = s;
    atomic_compare_exchange_strong(&tracing, &ours, NULL);
    for (trace_setting *m = s->models, *next; m; m = next) {
        next = m->next;
        free(m->model);
        free(m);
    }
    proa_telemetry_close(s->telemetry);
    pthread_mutex_destroy(&s->lock);
    free(s->file);
    free(s->resource);
    free(s);
}

bool proa_settings_traces(const proa_settings *s, proa_telemetry_counts *counts)
{
    if (s->telemetry) proa_telemetry_count(s->telemetry, counts);
    return s->telemetry != NULL;
}

static trace_setting *of_model(proa_settings *s, const char *model)
{
    if (!model[0]) return &s->global;
    for (trace_setting *m = s->models; m; m = m->next)
        if (strcmp(m->model, model) == 0) return m;
    return NULL;
}

/* What falls back falls back to the values of the global setting, and to the server's start. */
static int64_t value_of(const proa_settings *s, const trace_setting *m, int field)
{
    if (m && m->given[field]) return m->values[field];
    return s->global.given[field] ? s->global.values[field] : s->start[field];
}

static proa_status parse_level(int64_t *out, char *const *names, size_t count, proa_err *err)
{
    *out = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], "TIMESTAMPS") == 0) *out |= PROA_TRACE_TIMESTAMPS;
        else if (strcmp(names[i], "TENSORS") == 0) *out |= PROA_TRACE_TENSORS;
        else if (strcmp(names[i], "OFF") != 0)
            return PROA_FAIL(err, INVALID, "Unable to parse 'trace_level', got: %s", names[i]);
        else if (count > 1) return PROA_FAIL(err, INVALID, "Expect only one trace level 'OFF' is specified");
    }
    return PROA_OK;
}

static proa_status parse_number(int64_t *out, int field, const char *text, proa_err *err)
{
    char *end;
    int64_t min = fields[field].min, max = fields[field].max;
    size_t digits = strspn(text + (text[0] == '-'), "0123456789");
    if (!digits || text[(text[0] == '-') + digits])
        return PROA_FAIL(err, INVALID, "Unable to parse '%s', got: %s", fields[field].name, text);
    long long value = digits > 18 ? INT64_MAX : strtoll(text, &end, 10);
    if (field == COUNT && value < min)
        return PROA_FAIL(err, INVALID, "Unable to parse 'trace_count'. Expecting value >= -1, got:%s", text);
    if (value < min || value > max)
        return PROA_FAIL(err, INVALID,
                         "Unable to parse '%s', value is out of range [ %" PRId64 ", %" PRId64 " ], got: %s",
                         fields[field].name, min, max, text);
    *out = value;
    return PROA_OK;
}

/* One entry of a request; no values: the override is cleared. Names that we do not know are passed over, as Triton
 * does. */
static proa_status read_entry(trace_setting *m, const Inference__TraceSettingRequest__SettingsEntry *e,
                              proa_err *err)
{
    size_t count = e->value ? e->value->n_value : 0;
    if (strcmp(e->key, "trace_file") == 0)
        return PROA_FAIL(err, UNSUPPORTED, "trace file location can not be updated through network protocol");
    for (int f = 0; f < FIELDS; f++) {
        if (strcmp(e->key, fields[f].name) != 0) continue;
        m->given[f] = count > 0;
        if (!count) return PROA_OK;
        if (f == LEVEL) return parse_level(&m->values[f], e->value->value, count, err);
        if (count > 1) return PROA_FAIL(err, INVALID, "expect only 1 value for '%s'", fields[f].name);
        return parse_number(&m->values[f], f, e->value->value[0], err);
    }
    return PROA_OK;
}

static proa_status check_trace(const proa_settings *s, const trace_setting *m, proa_err *err)
{
    if (!value_of(s, m, LEVEL)) return PROA_OK;
    const char *why = NULL;
    bool contexts = s->mode == PROA_TRACE_OPENTELEMETRY; /* with rate 0 only these are traced */
    if (!value_of(s, m, RATE) && !contexts) why = "sample rate must be non-zero";
    else if (!s->telemetry) why = "trace file name is not given";
    else if (!value_of(s, m, COUNT)) why = "";
    if (!why) return PROA_OK;
    return PROA_FAIL(err, INVALID, "Attempting to set invalid trace setting :%s", why);
}

static proa_status set_locked(proa_settings *s, const char *model, const Inference__TraceSettingRequest *in,
                              proa_err *err)
{
    trace_setting *m = of_model(s, model), next = m ? *m : (trace_setting){0};
    for (size_t i = 0; i < in->n_settings; i++) PROA_TRY(read_entry(&next, in->settings[i], err));
    PROA_TRY(check_trace(s, &next, err));
    if (!m) { /* the caller has checked that the model exists, so there are at most PROA_MODELS_MAX */
        m = proa_calloc(1, sizeof *m);
        next.model = proa_strdup(model);
        next.next = s->models;
        s->models = m;
    }
    *m = next;
    m->seen = m->traced = 0;
    unsigned levels = (unsigned)value_of(s, NULL, LEVEL);
    for (const trace_setting *one = s->models; one; one = one->next)
        levels |= (unsigned)value_of(s, one, LEVEL);
    start_tracing(s, levels);
    return PROA_OK;
}

/* ---- sampling ---- */

/* Is it this request's turn? One of `rate`, until `count` of them are traced. *last: it is the last one. */
static bool is_sampled(const proa_settings *s, trace_setting *m, bool *last)
{
    int64_t rate = value_of(s, m, RATE), count = value_of(s, m, COUNT);
    if (rate <= 0 || ++m->seen % rate != 0) return false;
    if (count >= 0 && m->traced >= count) return false;
    *last = ++m->traced == count;
    return true;
}

static void push_trace(proa_trace *trace, void *telemetry)
{
    proa_telemetry_push(telemetry, trace);
}

/* A caller that samples a trace decides for us too. */
static bool is_wanted_by_caller(const proa_settings *s, const proa_infer *r)
{
    proa_trace_context context;
    return s->mode == PROA_TRACE_OPENTELEMETRY && r->origin->traceparent.len &&
           proa_trace_context_read(&context, r->origin->traceparent) && (context.flags & 1);
}

void proa_trace_sample(proa_infer *r)
{
    proa_settings *s = atomic_load(&tracing);
    if (!s || !r->origin) return;
    bool last = false, forced = is_wanted_by_caller(s, r);
    pthread_mutex_lock(&s->lock);
    trace_setting *m = of_model(s, r->model_name);
    if (!m) m = &s->global;
    unsigned level = (unsigned)value_of(s, m, LEVEL);
    int64_t frequency = value_of(s, m, FREQUENCY);
    bool sampled = level && (is_sampled(s, m, &last) || forced);
    if (sampled) proa_telemetry_expect(s->telemetry);
    pthread_mutex_unlock(&s->lock);
    if (!sampled) return;
    proa_trace *trace = proa_trace_begin(r, level, push_trace, s->telemetry);
    trace->frequency = frequency;
    trace->ends_count = last;
}

static proa_trace_origin *note_origin(proa_infer *r, bool grpc, int64_t received_ns, proa_str parent,
                                      proa_str state)
{
    proa_trace_origin *o = PROA_ARENA_NEW(&r->arena, proa_trace_origin, 1);
    o->grpc = grpc;
    o->received_ns = received_ns;
    o->read_ns = proa_clock_ns();
    if (parent.len) {
        o->traceparent = (proa_str){proa_arena_strdup(&r->arena, parent), parent.len};
        o->tracestate = (proa_str){proa_arena_strdup(&r->arena, state), state.len};
    }
    r->origin = o;
    return o;
}

void proa_trace_http(const proa_http_exchange *x, const char *operation, proa_infer *r)
{
    if (PROA_LIKELY(!proa_trace_on())) return;
    proa_str parent = proa_http_get(x, "traceparent"), state = proa_http_get(x, "tracestate");
    note_origin(r, false, x->start_ns, parent, state)->operation = operation;
}

void proa_trace_grpc(const proa_grpc_call *call, int64_t received_ns, proa_infer *r)
{
    if (PROA_LIKELY(!proa_trace_on())) return;
    note_origin(r, true, received_ns, proa_grpc_get(call, "traceparent"), proa_grpc_get(call, "tracestate"));
}

/* ---- reading and writing them ---- */

proa_status proa_trace_set(proa_api *api, const char *model, const Inference__TraceSettingRequest *in,
                           proa_err *err)
{
    proa_settings *s = api->settings;
    if (model[0]) PROA_TRY(proa_server_model_ready(api->server, model, -1, err));
    pthread_mutex_lock(&s->lock);
    proa_status status = set_locked(s, model, in, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void add_trace(Inference__TraceSettingResponse *out, proa_arena *arena, const char *key, int count,
                      const char *const *values)
{
    Inference__TraceSettingResponse__SettingsEntry *e = PROA_ARENA_NEW(
        arena, Inference__TraceSettingResponse__SettingsEntry, 1);
    inference__trace_setting_response__settings_entry__init(e);
    e->value = PROA_ARENA_NEW(arena, Inference__TraceSettingResponse__SettingValue, 1);
    inference__trace_setting_response__setting_value__init(e->value);
    e->key = proa_arena_strdup(arena, proa_str_c(key));
    e->value->value = PROA_ARENA_NEW(arena, char *, count);
    e->value->n_value = (size_t)count;
    for (int i = 0; i < count; i++) e->value->value[i] = proa_arena_strdup(arena, proa_str_c(values[i]));
    out->settings[out->n_settings++] = e;
}

static void add_level(Inference__TraceSettingResponse *out, proa_arena *arena, int64_t level)
{
    const char *names[2];
    int count = 0;
    if (!level) names[count++] = "OFF";
    if (level & PROA_TRACE_TIMESTAMPS) names[count++] = "TIMESTAMPS";
    if (level & PROA_TRACE_TENSORS) names[count++] = "TENSORS";
    add_trace(out, arena, "trace_level", count, names);
}

/* What --trace-config opentelemetry,KEY=VALUE sets; it does not change. */
static void add_collector(Inference__TraceSettingResponse *out, proa_arena *arena, const proa_settings *s)
{
    proa_telemetry_options o = {.mode = PROA_TRACE_OPENTELEMETRY};
    proa_telemetry_settings(s->telemetry, &o);
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"bsp_max_queue_size", o.bsp_max_queue_size},
                   {"bsp_schedule_delay", o.bsp_schedule_delay},
                   {"bsp_max_export_batch_size", o.bsp_max_export_batch_size}};
    add_trace(out, arena, "url", 1, &o.url);
    if (s->resource[0]) add_trace(out, arena, "resource", 1, (const char *const[]){s->resource});
    for (size_t i = 0; i < PROA_COUNT(numbers); i++) {
        const char *text = proa_arena_printf(arena, "%" PRId64, numbers[i].value);
        add_trace(out, arena, numbers[i].key, 1, &text);
    }
}

proa_status proa_trace_get(proa_api *api, const char *model, Inference__TraceSettingResponse **out,
                           proa_arena *arena, proa_err *err)
{
    proa_settings *s = api->settings;
    int64_t values[FIELDS];
    if (model[0]) PROA_TRY(proa_server_model_ready(api->server, model, -1, err));
    pthread_mutex_lock(&s->lock);
    const trace_setting *m = of_model(s, model);
    for (int f = 0; f < FIELDS; f++) values[f] = value_of(s, m, f);
    if (!m) m = &s->global;
    if (values[COUNT] > 0) values[COUNT] -= m->traced; /* what is left */
    pthread_mutex_unlock(&s->lock);
    Inference__TraceSettingResponse *reply = PROA_ARENA_NEW(arena, Inference__TraceSettingResponse, 1);
    inference__trace_setting_response__init(reply);
    reply->settings = PROA_ARENA_NEW(arena, Inference__TraceSettingResponse__SettingsEntry *, FIELDS + 6);
    add_level(reply, arena, values[LEVEL]);
    bool file = s->mode == PROA_TRACE_TRITON;
    for (int f = RATE; f < (file ? FIELDS : FREQUENCY); f++) {
        const char *text = proa_arena_printf(arena, "%" PRId64, values[f]);
        add_trace(reply, arena, fields[f].name, 1, &text);
    }
    if (file) add_trace(reply, arena, "trace_file", 1, (const char *const[]){s->file});
    else add_collector(reply, arena, s);
    add_trace(reply, arena, "trace_mode", 1, (const char *const[]){file ? "triton" : "opentelemetry"});
    *out = reply;
    return PROA_OK;
}

/* ---- logging settings ---- */

typedef Inference__LogSettingsResponse__SettingValue log_value;
typedef Inference__LogSettingsRequest__SettingsEntry log_entry;

static proa_status read_bool(bool *out, const log_entry *e, proa_err *err)
{
    if (!e->value || e->value->parameter_choice_case !=
                         INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM)
        return PROA_FAIL(err, INVALID, "expect boolean for '%s'", e->key);
    *out = e->value->bool_param;
    return PROA_OK;
}

static proa_status read_verbose(int *out, const log_entry *e, proa_err *err)
{
    if (!e->value || e->value->uint32_param > INT32_MAX ||
        e->value->parameter_choice_case !=
            INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM)
        return PROA_FAIL(err, INVALID, "expect int32 for '%s'", e->key);
    *out = (int)e->value->uint32_param;
    return PROA_OK;
}

static proa_status read_format(proa_log_format *out, const log_entry *e, proa_err *err)
{
    if (!e->value || e->value->parameter_choice_case !=
                         INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM)
        return PROA_FAIL(err, INVALID, "expect string for '%s'", e->key);
    const char *name = e->value->string_param;
    if (strcmp(name, "default") == 0) *out = PROA_LOG_DEFAULT;
    else if (strcmp(name, "ISO8601") == 0) *out = PROA_LOG_ISO8601;
    else if (strcmp(name, "JSON") == 0 || strcmp(name, "json") == 0) *out = PROA_LOG_JSON;
    else return PROA_FAIL(err, UNAVAILABLE, "invalid argument for log_format, got: %s", name);
    return PROA_OK;
}

static proa_status read_log(proa_log_settings *next, const log_entry *e, proa_err *err)
{
    if (strcmp(e->key, "log_file") == 0)
        return PROA_FAIL(err, UNSUPPORTED, "log file location can not be updated through network protocol");
    if (strcmp(e->key, "log_info") == 0) return read_bool(&next->info, e, err);
    if (strcmp(e->key, "log_warning") == 0) return read_bool(&next->warning, e, err);
    if (strcmp(e->key, "log_error") == 0) return read_bool(&next->error, e, err);
    if (strcmp(e->key, "log_verbose_level") == 0) return read_verbose(&next->verbose, e, err);
    if (strcmp(e->key, "log_format") == 0) return read_format(&next->format, e, err);
    return PROA_OK; /* as Triton: other names are passed over */
}

proa_status proa_logging_set(proa_api *api, const Inference__LogSettingsRequest *in, proa_err *err)
{
    proa_log_settings next;
    PROA_UNUSED(api); /* one log for the process */
    proa_log_get(&next);
    for (size_t i = 0; i < in->n_settings; i++) PROA_TRY(read_log(&next, in->settings[i], err));
    return proa_log_set(&next, err);
}

static log_value *add_log(Inference__LogSettingsResponse *out, proa_arena *arena, const char *key)
{
    Inference__LogSettingsResponse__SettingsEntry *e = PROA_ARENA_NEW(
        arena, Inference__LogSettingsResponse__SettingsEntry, 1);
    inference__log_settings_response__settings_entry__init(e);
    e->value = PROA_ARENA_NEW(arena, log_value, 1);
    inference__log_settings_response__setting_value__init(e->value);
    e->key = proa_arena_strdup(arena, proa_str_c(key));
    out->settings[out->n_settings++] = e;
    return e->value;
}

static void add_log_bool(Inference__LogSettingsResponse *out, proa_arena *arena, const char *key, bool on)
{
    log_value *v = add_log(out, arena, key);
    v->parameter_choice_case = INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
    v->bool_param = on;
}

static void add_log_text(Inference__LogSettingsResponse *out, proa_arena *arena, const char *key, const char *text)
{
    log_value *v = add_log(out, arena, key);
    v->parameter_choice_case = INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
    v->string_param = proa_arena_strdup(arena, proa_str_c(text));
}

proa_status proa_logging_get(proa_api *api, Inference__LogSettingsResponse **out, proa_arena *arena, proa_err *err)
{
    static const char *const formats[] = {"default", "ISO8601", "JSON"};
    proa_log_settings now;
    PROA_UNUSED(api);
    PROA_UNUSED(err);
    proa_log_get(&now);
    Inference__LogSettingsResponse *reply = PROA_ARENA_NEW(arena, Inference__LogSettingsResponse, 1);
    inference__log_settings_response__init(reply);
    reply->settings = PROA_ARENA_NEW(arena, Inference__LogSettingsResponse__SettingsEntry *, 6);
    add_log_text(reply, arena, "log_file", now.file);
    add_log_bool(reply, arena, "log_info", now.info);
    add_log_bool(reply, arena, "log_warning", now.warning);
    add_log_bool(reply, arena, "log_error", now.error);
    log_value *v = add_log(reply, arena, "log_verbose_level");
    v->parameter_choice_case = INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
    v->uint32_param = (uint32_t)now.verbose;
    add_log_text(reply, arena, "log_format", formats[now.format]);
    *out = reply;
    return PROA_OK;
}
