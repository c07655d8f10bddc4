/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - counters and gauges that backends of Triton define, as Prometheus text. A family belongs to its
 * backend, not to a model; the open models print all families, and the server's page joins them
 * (serve/stats/metrics.c). */
#include "backends/triton/abi.h"

#include "base/alloc.h"
#include <math.h>
#include <string.h>

enum { KIND_COUNTER, KIND_GAUGE };

struct TRITONSERVER_MetricFamily {
    char *name, *description;
    int kind;
    TRITONSERVER_Metric *metrics;
    TRITONSERVER_MetricFamily *next;
};

struct TRITONSERVER_Metric {
    TRITONSERVER_MetricFamily *family; /* NULL once the family is deleted */
    char *labels;                      /* `a="b",c="d"` */
    double value;
    TRITONSERVER_Metric *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TRITONSERVER_MetricFamily *families; /* under the lock, with all that they hold */

/* Prometheus: [a-zA-Z_:][a-zA-Z0-9_:]* */
static bool is_metric_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:0123456789";
    return *name && !(*name >= '0' && *name <= '9') && name[strspn(name, letters)] == 0;
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily **out, int kind, const char *name,
                                                 const char *description)
{
    if (kind != KIND_COUNTER && kind != KIND_GAUGE)
        return proa_triton_error(PROA_TRITON_UNSUPPORTED, "metric family '%s': only counters and gauges", name);
    if (!is_metric_name(name) || strpbrk(description, "\n\r"))
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "'%s' cannot be the name of a metric family", name);
    TRITONSERVER_MetricFamily *f = proa_calloc(1, sizeof *f);
    f->name = proa_strdup(name), f->description = proa_strdup(description), f->kind = kind;
    pthread_mutex_lock(&lock);
    f->next = families;
    *out = families = f;
    pthread_mutex_unlock(&lock);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family)
{
    pthread_mutex_lock(&lock);
    TRITONSERVER_MetricFamily **at = &families;
    while (*at && *at != family) at = &(*at)->next;
    if (*at) *at = family->next;
    for (TRITONSERVER_Metric *m = family->metrics; m; m = m->next) m->family = NULL;
    pthread_mutex_unlock(&lock);
    free(family->name);
    free(family->description);
    free(family);
    return NULL;
}

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

TRITONSERVER_Error *TRITONSERVER_MetricNew(TRITONSERVER_Metric **out, TRITONSERVER_MetricFamily *family,
                                           const TRITONSERVER_Parameter **labels, uint64_t count)
{
    char *text = NULL;
    TRITONSERVER_Error *error = labels_text(&text, labels, count);
    if (error) return error;
    TRITONSERVER_Metric *m = proa_calloc(1, sizeof *m);
    *m = (TRITONSERVER_Metric){.family = family, .labels = text};
    pthread_mutex_lock(&lock);
    m->next = family->metrics;
    *out = family->metrics = m;
    pthread_mutex_unlock(&lock);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric)
{
    pthread_mutex_lock(&lock);
    if (metric->family) {
        TRITONSERVER_Metric **at = &metric->family->metrics;
        while (*at && *at != metric) at = &(*at)->next;
        if (*at) *at = metric->next;
    }
    pthread_mutex_unlock(&lock);
    free(metric->labels);
    free(metric);
    return NULL;
}

static TRITONSERVER_Error *change_metric(TRITONSERVER_Metric *metric, bool add, double value)
{
    TRITONSERVER_Error *error = NULL;
    pthread_mutex_lock(&lock);
    if (!metric->family)
        error = proa_triton_error(PROA_TRITON_INVALID_ARG, "the family of the metric was deleted");
    else if (metric->family->kind == KIND_COUNTER && (!add || !(value >= 0)))
        error = proa_triton_error(PROA_TRITON_UNSUPPORTED, "counter '%s' can only grow", metric->family->name);
    else metric->value = add ? metric->value + value : value;
    pthread_mutex_unlock(&lock);
    return error;
}

TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *metric, double value)
{
    return change_metric(metric, true, value);
}

TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *metric, double value)
{
    return change_metric(metric, false, value);
}

TRITONSERVER_Error *TRITONSERVER_MetricValue(TRITONSERVER_Metric *metric, double *value)
{
    pthread_mutex_lock(&lock);
    *value = metric->value;
    pthread_mutex_unlock(&lock);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_GetMetricKind(TRITONSERVER_Metric *metric, int *kind)
{
    pthread_mutex_lock(&lock);
    *kind = metric->family ? metric->family->kind : KIND_COUNTER;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void print_family(proa_buf *out, const TRITONSERVER_MetricFamily *f)
{
    proa_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->description, f->name,
                    f->kind == KIND_COUNTER ? "counter" : "gauge");
    for (const TRITONSERVER_Metric *m = f->metrics; m; m = m->next)
        proa_buf_printf(out, *m->labels ? "%s{%s} %.17g\n" : "%s%s %.17g\n", f->name, m->labels, m->value);
}

void proa_triton_metrics_print(proa_buf *out)
{
    pthread_mutex_lock(&lock);
    for (const TRITONSERVER_MetricFamily *f = families; f; f = f->next) print_family(out, f);
    pthread_mutex_unlock(&lock);
}
