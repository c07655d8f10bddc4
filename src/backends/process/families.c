/* SPDX-License-Identifier: Apache-2.0
 * families.c - metric families and metrics that a model's code creates, as /metrics prints them. All instances of a
 * version share them: creating an existing family or metric takes another reference to it. Metrics without
 * references are not printed; those of a process that died stay for the next process. */
#include "backends/process/families.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

typedef enum kind { COUNTER, GAUGE, HISTOGRAM } kind;
static const char *const kind_names[] = {"counter", "gauge", "histogram"};

typedef struct family {
    char *name, *help;
    kind kind;
    int holders;
} family;

typedef struct metric {
    int family, holders;
    char *labels; /* `a="x",b="y"` */
    double value; /* a histogram's sum */
    double *bounds;
    uint64_t *counts; /* counts of each bucket, not cumulative; the last is above all bounds */
    int buckets;
} metric;

struct proa_families {
    pthread_mutex_t lock;
    family *families;
    metric *metrics;
    int families_count, metrics_count;
};

proa_families *proa_families_new(void)
{
    proa_families *f = proa_calloc(1, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

static void metric_release(metric *g)
{
    free(g->labels);
    free(g->bounds);
    free(g->counts);
}

void proa_families_free(proa_families *f)
{
    for (int i = 0; i < f->families_count; i++) {
        free(f->families[i].name);
        free(f->families[i].help);
    }
    for (int i = 0; i < f->metrics_count; i++) metric_release(&f->metrics[i]);
    free(f->families);
    free(f->metrics);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* ---- making ---- */

/* Prometheus' own rule; labels have no colon. */
static bool good_name(proa_str s, bool label)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (!(isalpha(c) || c == '_' || (c == ':' && !label) || (i && isdigit(c)))) return false;
    }
    return s.len > 0 && s.len <= 256;
}

/* One line: line ends are escaped as \n, as Prometheus requires. */
static char *copy_help(proa_str s)
{
    proa_buf text;
    proa_buf_init(&text, 2 * s.len + 1);
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\n') proa_buf_printf(&text, "\\n");
        else if (s.ptr[i] == '\\') proa_buf_printf(&text, "\\\\");
        else proa_buf_char(&text, s.ptr[i]);
    }
    char *help = proa_str_copy(proa_buf_view(&text));
    proa_buf_release(&text);
    return help;
}

static proa_status add_family(proa_families *f, proa_str name, const proa_json *help, kind k, proa_err *err)
{
    if (f->families_count >= PROA_PROCESS_METRICS_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d metric families", PROA_PROCESS_METRICS_MAX);
    f->families = proa_realloc(f->families, (size_t)(f->families_count + 1) * sizeof *f->families);
    f->families[f->families_count++] = (family){proa_str_copy(name), copy_help(proa_json_str(help)), k, 1};
    return PROA_OK;
}

/* Has somebody the family, or a metric of it? */
static bool is_used(const proa_families *f, int number)
{
    bool used = f->families[number].holders > 0;
    for (int i = 0; i < f->metrics_count && !used; i++)
        used = f->metrics[i].holders && f->metrics[i].family == number;
    return used;
}

static proa_status make_family(proa_families *f, const proa_json *head, int *number, proa_err *err)
{
    proa_str name = proa_json_str(proa_json_get(head, "name")),
             kind_name = proa_json_str(proa_json_get(head, "metric"));
    size_t k = 0;
    if (!good_name(name, false)) return PROA_FAIL(err, INVALID, "Invalid metric name");
    while (k < PROA_COUNT(kind_names) && !proa_str_is(kind_name, kind_names[k])) k++;
    if (k == PROA_COUNT(kind_names)) return PROA_FAIL(err, INVALID, "Unsupported MetricKind");
    for (*number = 0; *number < f->families_count && !proa_str_is(name, f->families[*number].name);)
        ++*number;
    if (*number == f->families_count)
        return add_family(f, name, proa_json_get(head, "description"), (kind)k, err);
    family *old = &f->families[*number];
    if (old->kind != (kind)k && is_used(f, *number))
        return PROA_FAIL(err, INVALID, "metric family '%s' exists with another kind", old->name);
    old->kind = (kind)k;
    old->holders++;
    return PROA_OK;
}

static proa_status print_labels(proa_buf *out, const proa_json *labels, proa_err *err)
{
    proa_json_iter it = proa_json_begin(labels);
    while (proa_json_next(&it)) {
        proa_str value = proa_json_str(it.value);
        if (!good_name(it.key, true)) return PROA_FAIL(err, INVALID, "Invalid metric label name");
        proa_buf_printf(out, "%s%.*s=\"", out->len ? "," : "", (int)it.key.len, it.key.ptr);
        for (size_t i = 0; i < value.len; i++) {
            char c = value.ptr[i];
            if (c == '\n') proa_buf_printf(out, "\\n");
            else if (c == '"' || c == '\\') proa_buf_printf(out, "\\%c", c);
            else proa_buf_char(out, c);
        }
        proa_buf_char(out, '"');
    }
    return out->full ? PROA_FAIL(err, LIMIT, "labels of more than %d bytes", (int)PROA_METRIC_LABELS_BYTES_MAX)
                     : PROA_OK;
}

static proa_status set_buckets(metric *g, const proa_json *bounds, proa_err *err)
{
    int64_t count = proa_json_len(bounds);
    if (count < 1 || count > 1024) return PROA_FAIL(err, INVALID, "a histogram needs 1 to 1024 buckets");
    g->bounds = proa_calloc((size_t)count, sizeof *g->bounds);
    g->counts = proa_calloc((size_t)count + 1, sizeof *g->counts);
    g->buckets = (int)count;
    for (int k = 0; k < g->buckets; k++) {
        g->bounds[k] = proa_json_double(proa_json_at(bounds, k));
        if (k && !(g->bounds[k] > g->bounds[k - 1]))
            return PROA_FAIL(err, INVALID, "Histogram buckets must be in ascending order");
    }
    return PROA_OK;
}

/* Uses a free entry, or a new one. */
static proa_status new_metric(proa_families *f, int of, proa_str labels, const proa_json *head, int *number,
                              proa_err *err)
{
    metric g = {.family = of, .holders = 1};
    for (*number = 0; *number < f->metrics_count && f->metrics[*number].holders;) ++*number;
    if (*number >= PROA_PROCESS_METRICS_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d metrics", PROA_PROCESS_METRICS_MAX);
    proa_status status = PROA_OK;
    if (f->families[of].kind == HISTOGRAM) status = set_buckets(&g, proa_json_get(head, "buckets"), err);
    if (status != PROA_OK) {
        metric_release(&g);
        return status;
    }
    g.labels = proa_str_copy(labels);
    if (*number < f->metrics_count) {
        metric_release(&f->metrics[*number]);
    } else {
        f->metrics = proa_realloc(f->metrics, (size_t)(f->metrics_count + 1) * sizeof *f->metrics);
        f->metrics_count++;
    }
    f->metrics[*number] = g;
    return PROA_OK;
}

static metric *find_metric(proa_families *f, int64_t of, const char *labels)
{
    for (int i = 0; i < f->metrics_count; i++) {
        metric *g = &f->metrics[i];
        if (g->holders && g->family == of && strcmp(g->labels, labels) == 0) return g;
    }
    return NULL;
}

static proa_status make_metric(proa_families *f, const proa_json *head, int *number, proa_err *err)
{
    int64_t of = -1;
    proa_buf labels;
    PROA_TRY(proa_json_get_int(&of, head, "family", 0, f->families_count - 1, err));
    if (of < 0) return PROA_FAIL(err, INVALID, "there is no such metric family");
    proa_buf_init(&labels, (size_t)PROA_METRIC_LABELS_BYTES_MAX);
    proa_status status = print_labels(&labels, proa_json_get(head, "labels"), err);
    metric *g = status == PROA_OK ? find_metric(f, of, labels.ptr ? labels.ptr : "") : NULL;
    if (g) {
        g->holders++;
        *number = (int)(g - f->metrics);
    } else if (status == PROA_OK) {
        status = new_metric(f, (int)of, proa_buf_view(&labels), head, number, err);
    }
    proa_buf_release(&labels);
    return status;
}

static proa_status let_go(proa_families *f, const proa_json *head, bool of_family, proa_err *err)
{
    int64_t number = -1;
    int count = of_family ? f->families_count : f->metrics_count;
    PROA_TRY(proa_json_get_int(&number, head, of_family ? "family" : "metric", 0, count - 1, err));
    int *holders = number < 0 ? NULL : of_family ? &f->families[number].holders : &f->metrics[number].holders;
    if (holders && *holders > 0) --*holders;
    return PROA_OK;
}

/* ---- counting ---- */

static void observe_value(metric *g, double value)
{
    int k = 0;
    while (k < g->buckets && !(value <= g->bounds[k])) k++;
    g->counts[k]++;
    g->value += value;
}

/* Lock held. */
static proa_status update_metric(proa_families *f, int64_t number, proa_str op, double value, double *now,
                                 proa_err *err)
{
    if (number < 0 || number >= f->metrics_count || !f->metrics[number].holders)
        return PROA_FAIL(err, INVALID, "there is no such metric");
    metric *g = &f->metrics[number];
    kind k = f->families[g->family].kind;
    if (proa_str_is(op, "increment") && k != HISTOGRAM && (k == GAUGE || value >= 0)) g->value += value;
    else if (proa_str_is(op, "set") && k == GAUGE) g->value = value;
    else if (proa_str_is(op, "observe") && k == HISTOGRAM) observe_value(g, value);
    else if (!proa_str_is(op, "value") || k == HISTOGRAM)
        return PROA_FAIL(err, INVALID, "a %s does not support this", kind_names[k]);
    *now = g->value;
    return PROA_OK;
}

proa_status proa_families_update(proa_families *f, int64_t number, const char *op, double value, double *now,
                                 proa_err *err)
{
    pthread_mutex_lock(&f->lock);
    proa_status status = update_metric(f, number, proa_str_c(op), value, now, err);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static proa_status call_update(proa_families *f, const proa_json *head, proa_buf *answer, proa_err *err)
{
    int64_t number = -1;
    double now;
    PROA_TRY(proa_json_get_int(&number, head, "metric", 0, f->metrics_count - 1, err));
    PROA_TRY(update_metric(f, number, proa_json_str(proa_json_get(head, "op")),
                           proa_json_double(proa_json_get(head, "value")), &now, err));
    proa_buf_printf(answer, isfinite(now) ? "{\"value\":%.17g}" : "{}", now);
    return PROA_OK;
}

proa_status proa_families_call(proa_families *f, const char *kind_name, const proa_json *head,
                               proa_buf *answer, proa_err *err)
{
    int number = -1;
    proa_status status = PROA_OK;
    pthread_mutex_lock(&f->lock);
    if (strcmp(kind_name, "family") == 0) status = make_family(f, head, &number, err);
    else if (strcmp(kind_name, "metric") == 0) status = make_metric(f, head, &number, err);
    else if (strcmp(kind_name, "metric_do") == 0) status = call_update(f, head, answer, err);
    else if (strcmp(kind_name, "metric_free") == 0) status = let_go(f, head, false, err);
    else if (strcmp(kind_name, "family_free") == 0) status = let_go(f, head, true, err);
    else status = PROA_FAIL(err, UNSUPPORTED, "the server has no call '%s'", kind_name);
    if (status == PROA_OK && number >= 0) proa_buf_printf(answer, "{\"%s\":%d}", kind_name, number);
    pthread_mutex_unlock(&f->lock);
    return status;
}

/* ---- /metrics ---- */

static void print_value(proa_buf *out, double value)
{
    if (isfinite(value)) proa_buf_printf(out, " %.17g\n", value);
    else proa_buf_printf(out, isnan(value) ? " NaN\n" : value < 0 ? " -Inf\n" : " +Inf\n");
}

static void print_histogram(proa_buf *out, const char *name, const metric *g)
{
    uint64_t below = 0;
    const char *comma = *g->labels ? "," : "";
    for (int k = 0; k <= g->buckets; k++) {
        below += g->counts[k];
        proa_buf_printf(out, "%s_bucket{%s%sle=\"", name, g->labels, comma);
        if (k < g->buckets) proa_buf_printf(out, "%.15g", g->bounds[k]);
        else proa_buf_printf(out, "+Inf");
        proa_buf_printf(out, "\"} %llu\n", (unsigned long long)below);
    }
    proa_buf_printf(out, "%s_sum{%s}", name, g->labels);
    print_value(out, g->value);
    proa_buf_printf(out, "%s_count{%s} %llu\n", name, g->labels, (unsigned long long)below);
}

static void print_metric(proa_buf *out, const family *of, const metric *g)
{
    if (of->kind == HISTOGRAM) {
        print_histogram(out, of->name, g);
        return;
    }
    if (*g->labels) proa_buf_printf(out, "%s{%s}", of->name, g->labels);
    else proa_buf_printf(out, "%s", of->name);
    print_value(out, g->value);
}

void proa_families_print(proa_families *f, proa_buf *out)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->families_count; i++) {
        const family *of = &f->families[i];
        if (!of->holders) continue;
        proa_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", of->name, of->help, of->name, kind_names[of->kind]);
        for (int k = 0; k < f->metrics_count; k++)
            if (f->metrics[k].holders && f->metrics[k].family == i) print_metric(out, of, &f->metrics[k]);
    }
    pthread_mutex_unlock(&f->lock);
}
