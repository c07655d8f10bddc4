/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - counters, gauges and histograms that backends of Triton define. A family belongs to its backend, not to a
 * model: all are in one table (process/families.c), which the open models print, and the server's page joins them
 * (serve/stats/metrics.c). In a process of its own a backend's metrics are on the page of another process: what it does
 * with them goes there too. */
#include "backends/triton/abi.h"

#include "backends/process/families.h"
#include "backends/triton/triton.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include <math.h>
#include <string.h>

enum { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

/* Numbers of a family or a metric. */
typedef struct numbers {
    int64_t here;     /* in the table of this process */
    int64_t mirrored; /* in that of the mirror; -1: it has none */
} numbers;

struct TRITONSERVER_MetricFamily {
    char *name;
    int kind;
    numbers in;
    atomic_bool deleted;
    atomic_int holders; /* itself, until it is deleted, and its metrics */
};

struct TRITONSERVER_Metric {
    TRITONSERVER_MetricFamily *family;
    numbers in;
};

struct TRITONSERVER_MetricArgs {
    double *bounds;
    uint64_t buckets;
};

static proa_families *table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static const proa_triton_mirror *mirror; /* set before a backend runs; NULL: none */

void proa_triton_metrics_mirror(const proa_triton_mirror *m)
{
    mirror = m;
}

static void make_table(void)
{
    table = proa_families_new();
}

/* ---- calls to the table ---- */

/* members: those of a JSON object, as the calls of process/families.c have them. *number: of what was made. */
static proa_status call_table(const char *kind, const proa_buf *members, int64_t *number, proa_err *err)
{
    proa_buf text, answer;
    proa_json *head = NULL, *made = NULL;
    proa_buf_init(&text, members->len + 3);
    proa_buf_init(&answer, 256);
    proa_buf_char(&text, '{');
    proa_buf_str(&text, proa_buf_view(members));
    proa_buf_char(&text, '}');
    proa_status status = proa_json_parse(&head, proa_buf_view(&text), "metric", err);
    if (status == PROA_OK) status = proa_families_call(table, kind, head, &answer, err);
    if (status == PROA_OK && number) {
        status = proa_json_parse(&made, proa_buf_view(&answer), "metric", err);
        if (status == PROA_OK) *number = proa_json_int(proa_json_get(made, kind));
    }
    proa_json_free(head);
    proa_json_free(made);
    proa_buf_release(&text);
    proa_buf_release(&answer);
    return status;
}

/* Lets go of a family or a metric, by "family_free" or "metric_free". */
static void release_number(const char *kind, const char *member, const numbers *in)
{
    proa_buf members;
    proa_err ignored = {0};
    proa_buf_init(&members, 256);
    proa_buf_printf(&members, "\"%s\":%lld", member, (long long)in->here);
    (void)call_table(kind, &members, NULL, &ignored);
    proa_buf_clear(&members);
    proa_buf_printf(&members, "\"%s\":%lld", member, (long long)in->mirrored);
    if (mirror && in->mirrored >= 0) mirror->post(kind, &members);
    proa_buf_release(&members);
}

/* ---- families ---- */

static void drop_family(TRITONSERVER_MetricFamily *family)
{
    if (atomic_fetch_sub(&family->holders, 1) != 1) return;
    free(family->name);
    free(family);
}

static proa_status make_family(numbers *in, int kind, const char *name, const char *description, proa_err *err)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    proa_buf members;
    proa_buf_init(&members, (size_t)PROA_METRIC_LABELS_BYTES_MAX);
    proa_buf_printf(&members, "\"metric\":\"%s\",\"name\":", kinds[kind]);
    proa_buf_json_str(&members, proa_str_c(name));
    proa_buf_printf(&members, ",\"description\":");
    proa_buf_json_str(&members, proa_str_c(description));
    proa_status status = members.full
                             ? PROA_FAIL(err, LIMIT, "the description of metric family '%s' is too long", name)
                             : call_table("family", &members, &in->here, err);
    if (status == PROA_OK) in->mirrored = mirror ? mirror->create("family", &members) : -1;
    proa_buf_release(&members);
    return status;
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily **out, int kind, const char *name,
                                                 const char *description)
{
    proa_err err = {0};
    numbers in;
    if (kind != KIND_COUNTER && kind != KIND_GAUGE && kind != KIND_HISTOGRAM)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "metric family '%s' has the unknown kind %d", name,
                                 kind);
    pthread_once(&table_once, make_table);
    if (make_family(&in, kind, name, description, &err) != PROA_OK) return proa_triton_error_of(&err);
    *out = proa_calloc(1, sizeof **out);
    (*out)->name = proa_strdup(name), (*out)->kind = kind, (*out)->in = in;
    atomic_init(&(*out)->holders, 1);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family)
{
    if (!family) return NULL;
    release_number("family_free", "family", &family->in);
    atomic_store(&family->deleted, true);
    drop_family(family);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_GetMetricFamilyKind(TRITONSERVER_MetricFamily *family, int *kind)
{
    *kind = family->kind;
    return NULL;
}

/* ---- metrics ---- */

TRITONSERVER_Error *TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args)
{
    *args = proa_calloc(1, sizeof **args);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs *args, const double *bounds,
                                                        uint64_t count)
{
    while (count && isinf(bounds[count - 1]) && bounds[count - 1] > 0)
        count--; /* there is one beyond all bounds */
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(bounds[i]) || (i && !(bounds[i] > bounds[i - 1])))
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

/* The members of a call that makes a metric of family number `family`. */
static void print_metric(proa_buf *out, int64_t family, const TRITONSERVER_Parameter **labels, uint64_t count,
                         const TRITONSERVER_MetricArgs *args)
{
    proa_buf_clear(out);
    proa_buf_printf(out, "\"family\":%lld,\"labels\":{", (long long)family);
    for (uint64_t i = 0; i < count; i++) {
        if (i) proa_buf_char(out, ',');
        proa_buf_json_str(out, proa_str_c(labels[i]->name));
        proa_buf_char(out, ':');
        proa_buf_json_str(out, proa_str_c(labels[i]->text));
    }
    proa_buf_printf(out, "},\"buckets\":[");
    for (uint64_t k = 0; args && k < args->buckets; k++)
        proa_buf_printf(out, k ? ",%.17g" : "%.17g", args->bounds[k]);
    proa_buf_char(out, ']');
}

static proa_status make_metric(numbers *in, const numbers *family, const TRITONSERVER_Parameter **labels,
                               uint64_t count, const TRITONSERVER_MetricArgs *args, proa_err *err)
{
    proa_buf members;
    proa_buf_init(&members, (size_t)PROA_METRIC_LABELS_BYTES_MAX * 2);
    print_metric(&members, family->here, labels, count, args);
    proa_status status = members.full ? PROA_FAIL(err, LIMIT, "labels of more than %d bytes",
                                                  (int)PROA_METRIC_LABELS_BYTES_MAX)
                                      : call_table("metric", &members, &in->here, err);
    in->mirrored = -1;
    if (status == PROA_OK && mirror && family->mirrored >= 0) {
        print_metric(&members, family->mirrored, labels, count, args);
        in->mirrored = mirror->create("metric", &members);
    }
    proa_buf_release(&members);
    return status;
}

TRITONSERVER_Error *TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric **out, TRITONSERVER_MetricFamily *family,
                                                   const TRITONSERVER_Parameter **labels, uint64_t count,
                                                   const TRITONSERVER_MetricArgs *args)
{
    proa_err err = {0};
    numbers in;
    for (uint64_t i = 0; i < count; i++)
        if (labels[i]->type != PROA_TRITON_STRING)
            return proa_triton_error(PROA_TRITON_INVALID_ARG, "label '%s' is not a string", labels[i]->name);
    if (family->kind == KIND_HISTOGRAM && (!args || !args->bounds))
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "histogram '%s' needs buckets", family->name);
    if (make_metric(&in, &family->in, labels, count, args, &err) != PROA_OK)
        return proa_triton_error_of(&err);
    *out = proa_calloc(1, sizeof **out);
    **out = (TRITONSERVER_Metric){family, in};
    atomic_fetch_add(&family->holders, 1);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricNew(TRITONSERVER_Metric **out, TRITONSERVER_MetricFamily *family,
                                           const TRITONSERVER_Parameter **labels, uint64_t count)
{
    return TRITONSERVER_MetricNewWithArgs(out, family, labels, count, NULL);
}

TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric)
{
    if (!metric) return NULL;
    release_number("metric_free", "metric", &metric->in);
    drop_family(metric->family);
    free(metric);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_GetMetricKind(TRITONSERVER_Metric *metric, int *kind)
{
    *kind = metric->family->kind;
    return NULL;
}

/* ---- values ---- */

enum change { CHANGE_ADD, CHANGE_SET, CHANGE_OBSERVE };
static const char *const change_ops[] = {"increment", "set", "observe"};

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
    proa_buf members;
    if (!mirror || metric->in.mirrored < 0 || !isfinite(value)) return;
    proa_buf_init(&members, 256);
    proa_buf_printf(&members, "\"metric\":%lld,\"op\":\"%s\",\"value\":%.17g", (long long)metric->in.mirrored,
                    change_ops[change], value);
    mirror->post("metric_do", &members);
    proa_buf_release(&members);
}

static TRITONSERVER_Error *change_metric(TRITONSERVER_Metric *metric, enum change change, double value)
{
    static const char *const rules[] = {"a counter can only grow", "a gauge has no observations",
                                        "a histogram only has observations"};
    const TRITONSERVER_MetricFamily *f = metric->family;
    proa_err err = {0};
    double now;
    if (atomic_load(&f->deleted))
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "the family of the metric was deleted");
    if (!is_allowed(f, change, value))
        return proa_triton_error(PROA_TRITON_UNSUPPORTED, "metric '%s': %s", f->name, rules[f->kind]);
    if (proa_families_update(table, metric->in.here, change_ops[change], value, &now, &err) != PROA_OK)
        return proa_triton_error_of(&err);
    mirror_change(metric, change, value);
    return NULL;
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
    proa_err err = {0};
    if (metric->family->kind == KIND_HISTOGRAM)
        return proa_triton_error(PROA_TRITON_UNSUPPORTED, "metric '%s': a histogram has no single value",
                                 metric->family->name);
    return proa_families_update(table, metric->in.here, "value", 0, value, &err) == PROA_OK
               ? NULL
               : proa_triton_error_of(&err);
}

void proa_triton_metrics_print(proa_buf *out)
{
    pthread_once(&table_once, make_table);
    proa_families_print(table, out);
}
