/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - the metrics of all models in Prometheus' text format. Triton's families with their names and labels,
 * histograms that Triton does not have, and the families of the backends. The statistics of each model are read once
 * for a page, then printed family by family. */
#include "base/alloc.h"
#include "base/limits.h"
#include "serve/cache.h"
#include "serve/core.h"
#include "serve/stats/metrics_host.h"
#include "serve/scheduler.h"
#include "serve/stats/stats.h"
#include <string.h>

/* A model as one reading saw it. Labels in the order of the alphabet, as Triton prints them; `reason` would stand
 * before the version. */
typedef struct model_sample {
    proa_served_model *model; /* held */
    proa_stats_sums sums;
    const char *before, *version; /* _tag="x",model="m",namespace="n" and version="1" */
    const char *labels;           /* both */
    bool cached;
} model_sample;

typedef struct page {
    const proa_server *server;
    proa_arena arena;
    model_sample **models;
    int count, cap;
    proa_buf *out;
} page;

/* ---- labels ---- */

static void print_label(proa_buf *out, const char *prefix, const char *name, const char *value)
{
    proa_buf_printf(out, "%s%s%s=\"", out->len ? "," : "", prefix, name);
    for (const char *c = value; *c; c++) {
        if (*c == '\n') {
            proa_buf_append(out, "\\n", 2);
            continue;
        }
        if (*c == '"' || *c == '\\') proa_buf_char(out, '\\');
        proa_buf_char(out, *c);
    }
    proa_buf_char(out, '"');
}

typedef Inference__ModelConfig__MetricTagsEntry tag;

/* The next tag by name after `after` (NULL: the first). */
static const tag *next_tag(const Inference__ModelConfig *config, const char *after)
{
    const tag *next = NULL;
    for (size_t i = 0; i < config->n_metric_tags; i++) {
        const tag *t = config->metric_tags[i];
        if ((!after || strcmp(t->key, after) > 0) && (!next || strcmp(t->key, next->key) < 0)) next = t;
    }
    return next;
}

/* A model's namespace is its repository. */
static const char *namespace_of(const proa_served_model *m, proa_arena *arena)
{
    const char *slash = strrchr(m->path, '/');
    return proa_arena_strdup(arena, (proa_str){m->path, slash ? (size_t)(slash - m->path) : 0});
}

static void set_labels(page *p, model_sample *r)
{
    proa_buf out;
    proa_buf_init(&out, PROA_METRIC_LABELS_BYTES_MAX);
    for (const tag *t = next_tag(r->model->config, NULL); t; t = next_tag(r->model->config, t->key))
        print_label(&out, "_", t->key, t->value);
    print_label(&out, "", "model", r->model->name);
    if (p->server->options.namespacing) print_label(&out, "", "namespace", namespace_of(r->model, &p->arena));
    r->before = proa_arena_strdup(&p->arena, proa_buf_view(&out));
    r->version = proa_arena_printf(&p->arena, "version=\"%lld\"", (long long)r->model->version);
    r->labels = proa_arena_printf(&p->arena, "%s,%s", r->before, r->version);
    proa_buf_release(&out);
}

/* ---- reading ---- */

static void hold_model(proa_served_model *model, void *arg)
{
    page *p = arg;
    if (p->count == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 16;
        p->models = proa_realloc(p->models, (size_t)p->cap * sizeof(model_sample *));
    }
    p->models[p->count] = proa_calloc(1, sizeof(model_sample));
    p->models[p->count++]->model = proa_served_model_hold(model);
}

static void read_models(page *p, proa_server *server)
{
    proa_server_each_model(server, hold_model, p);
    for (int i = 0; i < p->count; i++) {
        model_sample *r = p->models[i];
        const Inference__ModelConfig *c = r->model->config;
        proa_stats_read(r->model->stats, &r->sums);
        r->cached = r->model->cache && c->response_cache && c->response_cache->enable;
        set_labels(p, r);
    }
}

static void let_go(page *p)
{
    for (int i = 0; i < p->count; i++) {
        proa_served_model_drop(p->models[i]->model);
        free(p->models[i]);
    }
    free(p->models);
    proa_arena_release(&p->arena);
}

/* ---- families ---- */

static void put_head(proa_buf *out, const char *name, const char *help, const char *type)
{
    proa_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

typedef enum family_group { ALWAYS, LATENCIES, CACHE } family_group;

typedef struct counter {
    const char *name, *help;
    family_group group;
    size_t at; /* of a uint64_t in the sums */
    bool us;   /* it is in ns there */
} counter;

#define AT(member) offsetof(proa_stats_sums, member)

static const counter first_counters[] = {
    {"nv_inference_request_success", "Requests that succeeded", ALWAYS, AT(success.count), false},
};

static const counter counters[] = {
    {"nv_inference_count", "Inferences: a batch of n counts n; answers from the cache do not count", ALWAYS,
     AT(inferences), false},
    {"nv_inference_exec_count", "Executions of models: a batch counts once", ALWAYS, AT(executions), false},
    {"nv_inference_request_duration_us", "Time of all requests from arrival to the last reply, in us",
     LATENCIES, AT(success.ns), true},
    {"nv_inference_queue_duration_us", "Time that requests waited for their execution, in us", LATENCIES,
     AT(queue.ns), true},
    {"nv_inference_compute_input_duration_us", "Time of preparing inputs, in us", LATENCIES, AT(input.ns), true},
    {"nv_inference_compute_infer_duration_us", "Time of computing, in us", LATENCIES, AT(infer.ns), true},
    {"nv_inference_compute_output_duration_us", "Time of preparing outputs, in us", LATENCIES, AT(output.ns), true},
    {"nv_cache_num_hits_per_model", "Requests that the response cache answered", CACHE, AT(hit.count), false},
    {"nv_cache_num_misses_per_model", "Requests that the response cache could not answer", CACHE,
     AT(miss.count), false},
    {"nv_cache_hit_duration_per_model", "Time of answers from the response cache, in us", CACHE, AT(hit.ns), true},
    {"nv_cache_miss_duration_per_model",
     "Time of looking up and storing what was not in the response cache, in us", CACHE, AT(miss.ns), true},
};

static bool shows_family(const page *p, const model_sample *r, family_group group)
{
    if (group == ALWAYS) return true;
    return !p->server->options.no_counter_latencies && (group != CACHE || r->cached);
}

static void print_counters(const page *p, const counter *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool headed = false;
        for (int m = 0; m < p->count; m++) {
            const model_sample *r = p->models[m];
            uint64_t value;
            if (!shows_family(p, r, list[i].group)) continue;
            if (!headed) put_head(p->out, list[i].name, list[i].help, "counter");
            headed = true;
            memcpy(&value, (const char *)&r->sums + list[i].at, sizeof value);
            proa_buf_printf(p->out, "%s{%s} %llu\n", list[i].name, r->labels,
                            (unsigned long long)(list[i].us ? value / 1000 : value));
        }
    }
}

static void print_failures(const page *p)
{
    static const char *const reasons[PROA_FAIL_COUNT] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};
    if (p->count)
        put_head(p->out, "nv_inference_request_failure", "Requests that failed, by reason", "counter");
    for (int m = 0; m < p->count; m++)
        for (int i = 0; i < PROA_FAIL_COUNT; i++)
            proa_buf_printf(p->out, "nv_inference_request_failure{%s,reason=\"%s\",%s} %llu\n",
                            p->models[m]->before, reasons[i], p->models[m]->version,
                            (unsigned long long)p->models[m]->sums.failures[i]);
}

static void print_model_gauges(const page *p)
{
    if (p->count == 0) return;
    put_head(p->out, "nv_inference_pending_request_count", "Requests that wait for their execution now", "gauge");
    for (int m = 0; m < p->count; m++)
        proa_buf_printf(p->out, "nv_inference_pending_request_count{%s} %lld\n", p->models[m]->labels,
                        (long long)proa_scheduler_pending(p->models[m]->model->scheduler));
    put_head(p->out, "nv_model_load_duration_secs", "How long the model took to load, in seconds", "gauge");
    for (int m = 0; m < p->count; m++)
        proa_buf_printf(p->out, "nv_model_load_duration_secs{%s} %.6f\n", p->models[m]->labels,
                        (double)p->models[m]->model->load_ns / 1e9);
}

/* ---- histograms and summaries ---- */

static void print_histogram(const page *p, const model_sample *r, const char *name, proa_latency which,
                            double unit_ns)
{
    const proa_histogram *h = &r->sums.histograms[which];
    const int64_t *bounds;
    int count = proa_stats_bounds_of(r->model->stats, which, &bounds);
    uint64_t below = 0;
    for (int i = 0; i < count; i++) {
        below += h->counts[i];
        proa_buf_printf(p->out, "%s_bucket{%s,le=\"%.12g\"} %llu\n", name, r->labels,
                        (double)bounds[i] / unit_ns, (unsigned long long)below);
    }
    proa_buf_printf(p->out, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, r->labels, (unsigned long long)h->count);
    proa_buf_printf(p->out, "%s_sum{%s} %.12g\n", name, r->labels, (double)h->sum_ns / unit_ns);
    proa_buf_printf(p->out, "%s_count{%s} %llu\n", name, r->labels, (unsigned long long)h->count);
}

static void print_histograms(const page *p)
{
    for (int i = 0; i < PROA_HISTOGRAMS_COUNT && p->count; i++) {
        const proa_histogram_family *f = &proa_histogram_families[i];
        if (f->latency == PROA_LATENCY_FIRST && !p->server->options.histogram_latencies) continue;
        put_head(p->out, f->name, f->help, "histogram");
        for (int m = 0; m < p->count; m++)
            print_histogram(p, p->models[m], f->name, f->latency, (double)f->unit_ns);
    }
}

typedef struct summary {
    const char *name, *help;
    proa_latency latency;
    size_t at; /* of a proa_duration in the sums */
    bool needs_cache, needs_none;
} summary;

static const summary summaries[] = {
    {"nv_inference_request_summary_us", "Requests from arrival to the last reply, in us",
     PROA_LATENCY_REQUEST, AT(success), false, true},
    {"nv_inference_queue_summary_us", "Waiting for execution, in us", PROA_LATENCY_QUEUE, AT(queue), false, false},
    {"nv_inference_compute_input_summary_us", "Preparing inputs, in us", PROA_LATENCY_INPUT, AT(input), false,
     false},
    {"nv_inference_compute_infer_summary_us", "Computing, in us", PROA_LATENCY_INFER, AT(infer), false, false},
    {"nv_inference_compute_output_summary_us", "Preparing outputs, in us", PROA_LATENCY_OUTPUT, AT(output),
     false, false},
    {"nv_cache_hit_summary_per_model", "Answers from the response cache, in us", PROA_LATENCY_HIT, AT(hit),
     true, false},
    {"nv_cache_miss_summary_per_model", "What was not in the response cache, in us", PROA_LATENCY_MISS,
     AT(miss), true, false},
};

static void print_summary(const page *p, const model_sample *r, const summary *s)
{
    static const double shares[] = {0.5, 0.9, 0.95, 0.99, 0.999};
    double ns[PROA_COUNT(shares)];
    proa_duration d;
    if (!proa_stats_quantiles(r->model->stats, s->latency, shares, PROA_COUNT(shares), ns)) return;
    memcpy(&d, (const char *)&r->sums + s->at, sizeof d);
    proa_buf_printf(p->out, "%s_count{%s} %llu\n", s->name, r->labels, (unsigned long long)d.count);
    proa_buf_printf(p->out, "%s_sum{%s} %llu\n", s->name, r->labels, (unsigned long long)(d.ns / 1000));
    for (size_t i = 0; i < PROA_COUNT(shares); i++) {
        proa_buf_printf(p->out, "%s{%s,quantile=\"%g\"} ", s->name, r->labels, shares[i]);
        if (ns[i] < 0) proa_buf_printf(p->out, "NaN\n");
        else proa_buf_printf(p->out, "%.6g\n", ns[i] / 1000);
    }
}

/* With the cache on, Triton leaves out the summary of requests: hits and executions would be mixed. */
static void print_summaries(const page *p)
{
    for (size_t i = 0; i < PROA_COUNT(summaries) && p->server->options.summary_latencies; i++) {
        const summary *s = &summaries[i];
        bool headed = false;
        for (int m = 0; m < p->count; m++) {
            const model_sample *r = p->models[m];
            if ((s->needs_cache && !r->cached) || (s->needs_none && r->cached)) continue;
            if (!headed) put_head(p->out, s->name, s->help, "summary");
            headed = true;
            print_summary(p, r, s);
        }
    }
}

/* ---- the host and the server ---- */

static void put_gauge(proa_buf *out, const char *name, const char *help, double value)
{
    put_head(out, name, help, "gauge");
    proa_buf_printf(out, "%s %.12g\n", name, value);
}

/* Triton has them as gauges, the counts and times too. */
static void print_cache(proa_buf *out, proa_cache *cache)
{
    proa_cache_stats f;
    proa_cache_read(cache, &f);
    put_gauge(out, "nv_cache_util", "Share of the response cache that is in use (0 to 1)", f.used);
    put_gauge(out, "nv_cache_num_entries", "Responses in the response cache", (double)f.entries);
    put_gauge(out, "nv_cache_num_hits", "Lookups that found a response", (double)f.hits);
    put_gauge(out, "nv_cache_num_misses", "Lookups that found none", (double)f.misses);
    put_gauge(out, "nv_cache_num_lookups", "Lookups in the response cache", (double)f.lookups);
    put_gauge(out, "nv_cache_num_evictions", "Responses that left the cache for newer ones", (double)f.evictions);
    put_gauge(out, "nv_cache_lookup_duration", "Time of all lookups, in us", (double)f.lookup_ns / 1e3);
    put_gauge(out, "nv_cache_insertion_duration", "Time of all insertions, in us", (double)f.insertion_ns / 1e3);
    put_gauge(out, "proa_response_cache_bytes", "Bytes that the response cache holds",
              (double)proa_cache_bytes(cache));
    put_gauge(out, "proa_response_cache_entries", "Replies that the response cache holds", (double)f.entries);
}

/* ---- GPUs ---- */

typedef struct gpu_family {
    const char *name, *help, *type;
    size_t at; /* of the figure in proa_gpu_stats */
} gpu_family;

#define OF_GPU(member) offsetof(proa_gpu_stats, member)
static const gpu_family gpu_families[] = {
    {"nv_gpu_utilization", "Share of time in which the GPU computed, in the driver's last period (0 to 1)",
     "gauge", OF_GPU(utilization)},
    {"nv_gpu_memory_total_bytes", "Memory of the GPU, in bytes", "gauge", OF_GPU(memory_total)},
    {"nv_gpu_memory_used_bytes", "Memory of the GPU in use by all processes, in bytes", "gauge",
     OF_GPU(memory_used)},
    {"nv_gpu_power_usage", "Power that the GPU takes now, in watts", "gauge", OF_GPU(power_usage)},
    {"nv_gpu_power_limit", "Power that it may take, in watts", "gauge", OF_GPU(power_limit)},
    {"nv_energy_consumption", "Energy that the GPU has used since its driver was loaded, in joules",
     "counter", OF_GPU(energy)},
};

static double gpu_figure(const proa_gpu_stats *gpu, size_t at)
{
    double value;
    memcpy(&value, (const char *)gpu + at, sizeof value);
    return value;
}

static void print_gpus(const page *p)
{
    proa_gpu_stats gpus[PROA_GPUS_MAX];
    int count = proa_gpus_read(p->server->gpus, gpus, PROA_GPUS_MAX);
    for (size_t f = 0; f < PROA_COUNT(gpu_families) && count; f++) {
        const gpu_family *family = &gpu_families[f];
        put_head(p->out, family->name, family->help, family->type);
        for (int i = 0; i < count; i++) {
            double value = gpu_figure(&gpus[i], family->at);
            if (value >= 0)
                proa_buf_printf(p->out, "%s{gpu_uuid=\"%s\"} %.12g\n", family->name, gpus[i].uuid, value);
        }
    }
}

/* A figure that the GPU does not report is null. */
static void print_member(proa_buf *out, const char *name, double value)
{
    if (value < 0) proa_buf_printf(out, ",\"%s\":null", name);
    else proa_buf_printf(out, ",\"%s\":%.12g", name, value);
}

void proa_server_gpus(proa_server *server, proa_buf *out)
{
    proa_gpu_stats gpus[PROA_GPUS_MAX];
    int count = proa_gpus_read(server->gpus, gpus, PROA_GPUS_MAX);
    proa_buf_char(out, '[');
    for (int i = 0; i < count; i++) {
        proa_buf_printf(out, "%s{\"uuid\":", i ? "," : "");
        proa_buf_json_str(out, proa_str_c(gpus[i].uuid));
        proa_buf_printf(out, ",\"name\":");
        proa_buf_json_str(out, proa_str_c(gpus[i].name));
        print_member(out, "utilization", gpus[i].utilization);
        print_member(out, "memory_total", gpus[i].memory_total);
        print_member(out, "memory_used", gpus[i].memory_used);
        print_member(out, "power", gpus[i].power_usage);
        print_member(out, "power_limit", gpus[i].power_limit);
        proa_buf_char(out, '}');
    }
    proa_buf_char(out, ']');
}

static void print_host(const page *p)
{
    proa_host_stats f;
    proa_host_read(&f);
    put_gauge(p->out, "nv_pinned_memory_pool_total_bytes", "Pool of pinned memory, in bytes", 0);
    put_gauge(p->out, "nv_pinned_memory_pool_used_bytes", "Pinned memory in use, in bytes", 0);
    put_gauge(p->out, "nv_cpu_utilization",
              "Share of the processors' time that was used since the last look (0 to 1)", f.utilization);
    put_gauge(p->out, "nv_cpu_memory_total_bytes", "Memory of the machine, in bytes", (double)f.memory_total);
    put_gauge(p->out, "nv_cpu_memory_used_bytes", "Memory of the machine in use, in bytes",
              (double)f.memory_used);
    if (p->server->cache) print_cache(p->out, p->server->cache);
}

/* ---- families of the backends: each of their models prints all families, which must be grouped by family ---- */

typedef struct backend_family {
    proa_str name;
    proa_buf lines;
    bool help, type;
} backend_family;

typedef struct family_list {
    backend_family *list;
    int count, cap;
} family_list;

static backend_family *family_of(family_list *a, proa_str name)
{
    for (int i = 0; i < a->count; i++)
        if (proa_str_eq(a->list[i].name, name)) return &a->list[i];
    if (a->count == a->cap) {
        a->cap = a->cap ? 2 * a->cap : 16;
        a->list = proa_realloc(a->list, (size_t)a->cap * sizeof *a->list);
    }
    a->list[a->count] = (backend_family){.name = name};
    proa_buf_init(&a->list[a->count].lines, PROA_METRICS_BYTES_MAX);
    return &a->list[a->count++];
}

static proa_str word_at(proa_str line, size_t at)
{
    proa_str word = {line.ptr + at, 0};
    while (at + word.len < line.len && word.ptr[word.len] != ' ') word.len++;
    return word;
}

static backend_family *add_line(family_list *a, backend_family *family, proa_str line)
{
    bool help = proa_str_starts(line, proa_str_c("# HELP ")),
         type = proa_str_starts(line, proa_str_c("# TYPE "));
    if (help || type) family = family_of(a, word_at(line, 7));
    if (!family) family = family_of(a, (proa_str){"", 0});
    if ((help && family->help) || (type && family->type)) return family;
    family->help |= help;
    family->type |= type;
    proa_buf_str(&family->lines, line);
    proa_buf_char(&family->lines, '\n');
    return family;
}

static void add_text(family_list *a, proa_str text)
{
    backend_family *family = NULL;
    for (proa_str line; proa_str_next_line(&text, &line);)
        if (line.len) family = add_line(a, family, line);
}

static void print_additions(page *p)
{
    family_list a = {0};
    for (int m = 0; m < p->count; m++) {
        const proa_served_model *model = p->models[m]->model;
        proa_buf text;
        if (!model->backend || !model->backend->metrics) continue;
        proa_buf_init(&text, PROA_METRICS_BYTES_MAX);
        model->backend->metrics(model->state, p->models[m]->labels, &text);
        add_text(&a, (proa_str){proa_arena_strdup(&p->arena, proa_buf_view(&text)), text.len});
        proa_buf_release(&text);
    }
    for (int i = 0; i < a.count; i++) {
        proa_buf_str(p->out, proa_buf_view(&a.list[i].lines));
        proa_buf_release(&a.list[i].lines);
    }
    free(a.list);
}

void proa_server_metrics(proa_server *server, proa_buf *out)
{
    page p = {.server = server, .out = out};
    proa_arena_init(&p.arena);
    read_models(&p, server);
    print_counters(&p, first_counters, PROA_COUNT(first_counters));
    print_failures(&p);
    print_counters(&p, counters, PROA_COUNT(counters));
    print_model_gauges(&p);
    print_histograms(&p);
    print_summaries(&p);
    print_host(&p);
    print_gpus(&p);
    print_additions(&p);
    let_go(&p);
}
