/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - counters, gauges and histograms that backends of Triton define, as Prometheus text. A family belongs to
 * its backend, not to a model; the open models print all families, and the server's page joins them
 * (serve/stats/metrics.c). In a process of its own a backend's metrics are on the page of another process: what it does
 * with them goes there too. */
#include "backends/triton/abi.h"

#include "backends/triton/triton.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <math.h>
#include <string.h>

enum { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

/* What one line of the page, or a histogram's lines, are made of. Metrics with the same labels share it. */
typedef struct series {
    char *labels;     /* `a="b",c="d"` */
    double value;     /* a histogram's sum */
    double *bounds;   /* of its buckets, ascending */
    uint64_t *counts; /* of each bucket, not cumulative; the last one is above all bounds */
    uint64_t buckets; /* bounds */
    int holders;
    struct series *next;
} series;

/* Families with the same name and kind are one. */
struct TRITONSERVER_MetricFamily {
    char *name, *description;
    int kind, holders;
    int metrics;    /* that refer to it: it lives until they are deleted */
    int64_t number; /* of the mirror; -1: it has none */
    series *series;
    TRITONSERVER_MetricFamily *next;
};

struct TRITONSERVER_Metric {
    TRITONSERVER_MetricFamily *family;
    series *series;
    int64_t number; /* of the mirror; -1: it has none */
};

struct TRITONSERVER_MetricArgs {
    double *bounds;
    uint64_t buckets;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TRITONSERVER_MetricFamily *families; /* under the lock, with all that they hold */

/* ---- the mirror ---- */

static const proa_triton_mirror *mirror; /* set before a backend runs; NULL: none */

void proa_triton_metrics_mirror(const proa_triton_mirror *m)
{
    mirror = m;
}

static int64_t mirror_family(const TRITONSERVER_MetricFamily *f)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    proa_buf members;
    if (!mirror) return -1;
    proa_buf_init(&members, (size_t)PROA_METRIC_LABELS_BYTES_MAX);
    proa_buf_printf(&members, "\"metric\":\"%s\",\"name\":", kinds[f->kind]);
    proa_buf_json_str(&members, proa_str_c(f->name));
    proa_buf_printf(&members, ",\"description\":");
    proa_buf_json_str(&members, proa_str_c(f->description));
    int64_t number = mirror->create("family", &members);
    proa_buf_release(&members);
    return number;
}

static int64_t mirror_metric(const TRITONSERVER_Metric *m, const TRITONSERVER_Parameter **labels, uint64_t count)
{
    const series *s = m->series;
    proa_buf members;
    if (!mirror || m->family->number < 0) return -1;
    proa_buf_init(&members, (size_t)PROA_METRIC_LABELS_BYTES_MAX * 2);
    proa_buf_printf(&members, "\"family\":%lld,\"labels\":{", (long long)m->family->number);
    for (uint64_t i = 0; i < count; i++) {
        if (i) proa_buf_char(&members, ',');
        proa_buf_json_str(&members, proa_str_c(labels[i]->name));
        proa_buf_char(&members, ':');
        proa_buf_json_str(&members, proa_str_c(labels[i]->text));
    }
    proa_buf_printf(&members, "},\"buckets\":[");
    for (uint64_t k = 0; k < s->buckets; k++) proa_buf_printf(&members, k ? ",%.17g" : "%.17g", s->bounds[k]);
    proa_buf_char(&members, ']');
    int64_t number = members.full ? -1 : mirror->create("metric", &members);
    proa_buf_release(&members);
    return number;
}

static void mirror_end(const char *kind, const char *member, int64_t number)
{
    proa_buf members;
    if (!mirror || number < 0) return;
    proa_buf_init(&members, 256);
    proa_buf_printf(&members, "\"%s\":%lld", member, (long long)number);
    mirror->post(kind, &members);
    proa_buf_release(&members);
}

/* Prometheus: [a-zA-Z_:][a-zA-Z0-9_:]* */
static bool is_metric_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:0123456789";
    return *name && !(*name >= '0' && *name <= '9') && name[strspn(name, letters)] == 0;
}

/* ---- families ---- */

/* Adds a holder to the family of that name, or makes it. NULL: it exists with another kind. Lock held. */
static TRITONSERVER_MetricFamily *hold_family(int kind, const char *name, const char *description)
{
    TRITONSERVER_MetricFamily *f = families;
    while (f && strcmp(f->name, name) != 0) f = f->next;
    if (f && f->kind != kind) return NULL;
    if (!f) {
        f = proa_calloc(1, sizeof *f);
        f->name = proa_strdup(name), f->description = proa_strdup(description), f->kind = kind;
        f->next = families;
        families = f;
    }
    f->holders++;
    return f;
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily **out, int kind, const char *name,
                                                 const char *description)
{
    if (kind != KIND_COUNTER && kind != KIND_GAUGE && kind != KIND_HISTOGRAM)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "metric family '%s' has the unknown kind %d", name,
                                 kind);
    if (!is_metric_name(name) || strpbrk(description, "\n\r"))
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "'%s' cannot be the name of a metric family", name);
    pthread_mutex_lock(&lock);
    *out = hold_family(kind, name, description);
    pthread_mutex_unlock(&lock);
    if (*out) (*out)->number = mirror_family(*out);
    if (*out) return NULL;
    return proa_triton_error(PROA_TRITON_INVALID_ARG, "metric family '%s' exists with another kind", name);
}

static void free_family(TRITONSERVER_MetricFamily *family)
{
    free(family->name);
    free(family->description);
    free(family);
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family)
{
    if (!family) return NULL;
    mirror_end("family_free", "family", family->number);
    pthread_mutex_lock(&lock);
    bool last = --family->holders == 0;
    if (last) {
        TRITONSERVER_MetricFamily **at = &families;
        while (*at != family) at = &(*at)->next;
        *at = family->next;
    }
    bool unused = last && !family->metrics;
    pthread_mutex_unlock(&lock);
    if (unused) free_family(family);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_GetMetricFamilyKind(TRITONSERVER_MetricFamily *family, int *kind)
{
    *kind = family->kind;
    return NULL;
}

/* ---- metrics ---- */

static void append_label(proa_buf *out, const TRITONSERVER_Parameter *label)
{
    if (out->len) proa_buf_char(out, ',');
    proa_buf_str(out, proa_str_c(label->name));
    proa_buf_str(out, proa_str_c("=\""));
    for (const char *c = label->text; *c; c++) {
        if (*c == '"' || *c == '\\') proa_buf_char(out, '\\');
        proa_buf_str(out, *c == '\n' ? proa_str_c("\\n") : (proa_str){c, 1});
    }
    proa_buf_char(out, '"');
}

static TRITONSERVER_Error *labels_text(char **out, const TRITONSERVER_Parameter **labels, uint64_t count)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)64 << 10);
    TRITONSERVER_Error *error = NULL;
    for (uint64_t i = 0; i < count && !error; i++) {
        if (labels[i]->type != PROA_TRITON_STRING || !is_metric_name(labels[i]->name))
            error = proa_triton_error(PROA_TRITON_INVALID_ARG, "label '%s' is not a string", labels[i]->name);
        else append_label(&text, labels[i]);
    }
    if (!error && text.full) error = proa_triton_error(PROA_TRITON_INVALID_ARG, "labels of more than 64 KiB");
    if (!error) *out = proa_strdup(text.ptr ? text.ptr : "");
    proa_buf_release(&text);
    return error;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args)
{
    *args = proa_calloc(1, sizeof **args);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs *args, const double *bounds,
                                                        uint64_t count)
{
    for (uint64_t i = 1; i < count; i++)
        if (!(bounds[i] > bounds[i - 1]))
            return proa_triton_error(PROA_TRITON_INVALID_ARG, "the buckets of a histogram must ascend");
    if (count > PROA_TRITON_BUCKETS_MAX)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "a histogram has %llu buckets, at most %d are possible",
                                 (unsigned long long)count, PROA_TRITON_BUCKETS_MAX);
    free(args->bounds);
    args->bounds = proa_calloc(count ? (size_t)count : 1, sizeof *bounds);
    args->buckets = count;
    if (count) memcpy(args->bounds, bounds, (size_t)count * sizeof *bounds);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args)
{
    if (args) free(args->bounds);
    free(args);
    return NULL;
}

/* The series with these labels, which it takes, or a new one. Lock held. */
static series *hold_series(TRITONSERVER_MetricFamily *family, char *labels, const TRITONSERVER_MetricArgs *args)
{
    series *s = family->series;
    while (s && strcmp(s->labels, labels) != 0) s = s->next;
    if (s) {
        free(labels);
    } else {
        s = proa_calloc(1, sizeof *s);
        s->labels = labels;
        s->next = family->series;
        family->series = s;
        if (family->kind == KIND_HISTOGRAM) {
            s->buckets = args->buckets;
            s->bounds = proa_calloc((size_t)s->buckets + 1, sizeof *s->bounds);
            s->counts = proa_calloc((size_t)s->buckets + 1, sizeof *s->counts);
            if (s->buckets) memcpy(s->bounds, args->bounds, (size_t)s->buckets * sizeof *s->bounds);
        }
    }
    s->holders++;
    return s;
}

TRITONSERVER_Error *TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric **out, TRITONSERVER_MetricFamily *family,
                                                   const TRITONSERVER_Parameter **labels, uint64_t count,
                                                   const TRITONSERVER_MetricArgs *args)
{
    char *text = NULL;
    if (family->kind == KIND_HISTOGRAM && (!args || !args->bounds))
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "histogram '%s' needs buckets", family->name);
    TRITONSERVER_Error *error = labels_text(&text, labels, count);
    if (error) return error;
    TRITONSERVER_Metric *m = proa_calloc(1, sizeof *m);
    pthread_mutex_lock(&lock);
    *m = (TRITONSERVER_Metric){.family = family, .series = hold_series(family, text, args)};
    family->metrics++;
    pthread_mutex_unlock(&lock);
    m->number = mirror_metric(m, labels, count);
    *out = m;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricNew(TRITONSERVER_Metric **out, TRITONSERVER_MetricFamily *family,
                                           const TRITONSERVER_Parameter **labels, uint64_t count)
{
    return TRITONSERVER_MetricNewWithArgs(out, family, labels, count, NULL);
}

static void drop_series(TRITONSERVER_MetricFamily *family, series *s)
{
    if (--s->holders) return;
    series **at = &family->series;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    free(s->labels);
    free(s->bounds);
    free(s->counts);
    free(s);
}

TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric)
{
    if (!metric) return NULL;
    TRITONSERVER_MetricFamily *family = metric->family;
    mirror_end("metric_free", "metric", metric->number);
    pthread_mutex_lock(&lock);
    drop_series(family, metric->series);
    bool unused = --family->metrics == 0 && family->holders == 0;
    pthread_mutex_unlock(&lock);
    if (unused) free_family(family);
    free(metric);
    return NULL;
}

/* ---- values ---- */

enum change { CHANGE_ADD, CHANGE_SET, CHANGE_OBSERVE };

static void observe_value(series *s, double value)
{
    uint64_t k = 0;
    while (k < s->buckets && !(value <= s->bounds[k])) k++;
    s->counts[k]++;
    s->value += value;
}

static bool is_allowed(const TRITONSERVER_MetricFamily *family, enum change change, double value)
{
    switch (family->kind) {
    case KIND_COUNTER: return change == CHANGE_ADD && value >= 0;
    case KIND_GAUGE: return change != CHANGE_OBSERVE;
    default: return change == CHANGE_OBSERVE;
    }
}

/* Numbers in JSON are finite. */
static void mirror_change(const TRITONSERVER_Metric *metric, enum change change, double value)
{
    static const char *const ops[] = {"increment", "set", "observe"};
    proa_buf members;
    if (!mirror || metric->number < 0 || !isfinite(value)) return;
    proa_buf_init(&members, 256);
    proa_buf_printf(&members, "\"metric\":%lld,\"op\":\"%s\",\"value\":%.17g", (long long)metric->number,
                    ops[change], value);
    mirror->post("metric_do", &members);
    proa_buf_release(&members);
}

static TRITONSERVER_Error *change_metric(TRITONSERVER_Metric *metric, enum change change, double value)
{
    static const char *const rules[] = {"a counter can only grow", "a gauge has no observations",
                                        "a histogram only has observations"};
    TRITONSERVER_Error *error = NULL;
    pthread_mutex_lock(&lock);
    const TRITONSERVER_MetricFamily *f = metric->family;
    if (!f->holders)
        error = proa_triton_error(PROA_TRITON_INVALID_ARG, "the family of the metric was deleted");
    else if (!is_allowed(f, change, value))
        error = proa_triton_error(PROA_TRITON_UNSUPPORTED, "metric '%s': %s", f->name, rules[f->kind]);
    else if (change == CHANGE_OBSERVE) observe_value(metric->series, value);
    else metric->series->value = change == CHANGE_ADD ? metric->series->value + value : value;
    pthread_mutex_unlock(&lock);
    if (!error) mirror_change(metric, change, value);
    return error;
}

TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *metric, double value)
{
    return change_metric(metric, CHANGE_ADD, value);
}

TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *metric, double value)
{
    return change_metric(metric, CHANGE_SET, value);
}

TRITONSERVER_Error *TRITONSERVER_MetricObserve(TRITONSERVER_Metric *metric, double value)
{
    return change_metric(metric, CHANGE_OBSERVE, value);
}

TRITONSERVER_Error *TRITONSERVER_MetricValue(TRITONSERVER_Metric *metric, double *value)
{
    if (metric->family->kind == KIND_HISTOGRAM)
        return proa_triton_error(PROA_TRITON_UNSUPPORTED, "metric '%s': a histogram has no single value",
                                 metric->family->name);
    pthread_mutex_lock(&lock);
    *value = metric->series->value;
    pthread_mutex_unlock(&lock);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_GetMetricKind(TRITONSERVER_Metric *metric, int *kind)
{
    *kind = metric->family->kind;
    return NULL;
}

/* ---- the page ---- */

static void print_histogram(proa_buf *out, const char *name, const series *s)
{
    const char *comma = *s->labels ? "," : "";
    uint64_t count = 0;
    for (uint64_t k = 0; k <= s->buckets; k++) {
        count += s->counts[k];
        proa_buf_printf(out, "%s_bucket{%s%sle=\"", name, s->labels, comma);
        if (k < s->buckets) proa_buf_printf(out, "%.17g", s->bounds[k]);
        else proa_buf_printf(out, "+Inf");
        proa_buf_printf(out, "\"} %llu\n", (unsigned long long)count);
    }
    proa_buf_printf(out, *s->labels ? "%s_sum{%s} %.17g\n" : "%s_sum%s %.17g\n", name, s->labels, s->value);
    proa_buf_printf(out, *s->labels ? "%s_count{%s} %llu\n" : "%s_count%s %llu\n", name, s->labels,
                    (unsigned long long)count);
}

static void print_family(proa_buf *out, const TRITONSERVER_MetricFamily *f)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    proa_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->description, f->name, kinds[f->kind]);
    for (const series *s = f->series; s; s = s->next) {
        if (f->kind == KIND_HISTOGRAM) print_histogram(out, f->name, s);
        else
            proa_buf_printf(out, *s->labels ? "%s{%s} %.17g\n" : "%s%s %.17g\n", f->name, s->labels, s->value);
    }
}

void proa_triton_metrics_print(proa_buf *out)
{
    pthread_mutex_lock(&lock);
    for (const TRITONSERVER_MetricFamily *f = families; f; f = f->next) print_family(out, f);
    pthread_mutex_unlock(&lock);
}
