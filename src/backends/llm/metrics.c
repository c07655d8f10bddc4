/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - the metrics of a model on the engine: Prometheus lines and the page's live figures. */
#include "backends/llm/llm.h"

#include "base/clock.h"
#include "base/limits.h"
#include <time.h>

static const int64_t bounds[] = {10, 50, 100, 500, 1000};

static void observe_count(proa_token_counts *h, int64_t value)
{
    size_t i = 0;
    while (i < PROA_COUNT(bounds) && value > bounds[i]) i++;
    h->bucket[i]++;
    h->count++;
    h->sum += (uint64_t)value;
}

void proa_llm_count_tokens(proa_llm_model *s, int64_t prompt_tokens, int64_t new_tokens)
{
    pthread_mutex_lock(&s->lock);
    observe_count(&s->in, prompt_tokens);
    observe_count(&s->out, new_tokens);
    pthread_mutex_unlock(&s->lock);
}

/* ---- Prometheus ---- */

static void put_family(proa_buf *out, const char *name, const char *help, const char *type)
{
    proa_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

typedef struct sample {
    const char *label;
    double value;
} sample;

static void put_gauges(proa_buf *out, const char *labels, const char *name, const char *help, const char *key,
                       const sample *list, size_t count)
{
    put_family(out, name, help, "gauge");
    for (size_t i = 0; i < count; i++)
        proa_buf_printf(out, "%s{%s=\"%s\",%s} %.17g\n", name, key, list[i].label, labels, list[i].value);
}

static void put_histogram(proa_buf *out, const char *labels, const char *name, const char *kind,
                          const proa_token_counts *h)
{
    uint64_t sum = 0;
    put_family(out, name, "TRT LLM response metrics", "histogram");
    for (size_t i = 0; i <= PROA_COUNT(bounds); i++) {
        char bound[24] = "+Inf";
        if (i < PROA_COUNT(bounds)) snprintf(bound, sizeof bound, "%lld", (long long)bounds[i]);
        sum += h->bucket[i];
        proa_buf_printf(out, "%s_bucket{response_metric_type=\"%s\",%s,le=\"%s\"} %llu\n", name, kind, labels,
                        bound, (unsigned long long)sum);
    }
    proa_buf_printf(out, "%s_count{response_metric_type=\"%s\",%s} %llu\n", name, kind, labels,
                    (unsigned long long)h->count);
    proa_buf_printf(out, "%s_sum{response_metric_type=\"%s\",%s} %llu\n", name, kind, labels,
                    (unsigned long long)h->sum);
}

/* ---- figures of the engine ---- */

/* A family: one figure of proa_stats. */
typedef struct family {
    const char *name, *help;
    bool counter;
    double (*value)(const proa_stats *s);
} family;

/* clang-format off */
#define FIGURE(field) \
    static double figure_##field(const proa_stats *s) { return (double)s->field; }
/* clang-format on */
FIGURE(prompt_tokens)
FIGURE(new_tokens)
FIGURE(steps)
FIGURE(step_s)
FIGURE(cancelled)
FIGURE(preemptions)
FIGURE(preemptions_moved)
FIGURE(preemptions_recomputed)
FIGURE(resumed_tokens)
FIGURE(resumed_tokens_host)
FIGURE(running)
FIGURE(waiting)
FIGURE(pages_used)
FIGURE(pages_free)
FIGURE(drafted)
FIGURE(accepted)
FIGURE(prefix_queries)
FIGURE(prefix_hits)
FIGURE(prefix_hits_host)
FIGURE(pages_host)
FIGURE(prefix_hits_dir)
FIGURE(pages_dir)
FIGURE(pages_cached)
FIGURE(pages_evicted)
FIGURE(rank_failures)
FIGURE(rank_restarts)
#undef FIGURE

static const family families[] = {
    {"proa_engine_prompt_tokens", "Prompt tokens that were run", true, figure_prompt_tokens},
    {"proa_engine_new_tokens", "Tokens that were generated", true, figure_new_tokens},
    {"proa_engine_steps", "Forward passes", true, figure_steps},
    {"proa_engine_step_seconds", "Time inside of forward passes", true, figure_step_s},
    {"proa_engine_cancelled", "Requests that were cancelled", true, figure_cancelled},
    {"proa_engine_preemptions", "Requests that were preempted and run again later", true, figure_preemptions},
    {"proa_engine_preemptions_moved", "Of these: pages go to memory of the host, and come back", true,
     figure_preemptions_moved},
    {"proa_engine_preemptions_recomputed", "Of these: tokens are computed again", true,
     figure_preemptions_recomputed},
    {"proa_engine_resumed_tokens", "Tokens of preempted requests that were not run again", true,
     figure_resumed_tokens},
    {"proa_engine_resumed_tokens_host", "Of these: copied back from memory of the host, or read from files",
     true, figure_resumed_tokens_host},
    {"proa_engine_rank_failures", "Times that processes of ranks were lost", true, figure_rank_failures},
    {"proa_engine_rank_restarts", "Times that they were restarted", true, figure_rank_restarts},
    {"proa_engine_running", "Requests that run", false, figure_running},
    {"proa_engine_waiting", "Requests that wait for pages or slots", false, figure_waiting},
    {"proa_engine_pages_used", "Pages of keys and values in use", false, figure_pages_used},
    {"proa_engine_pages_free", "Pages of keys and values that can be taken", false, figure_pages_free},
    {"proa_engine_draft_tokens", "Draft tokens that were verified", true, figure_drafted},
    {"proa_engine_accepted_draft_tokens", "Draft tokens that were right", true, figure_accepted},
    {"proa_engine_prefix_cache_queries", "Prompt tokens looked up in the prefix cache", true,
     figure_prefix_queries},
    {"proa_engine_prefix_cache_hits", "Prompt tokens found in the prefix cache", true, figure_prefix_hits},
    {"proa_engine_prefix_cache_host_hits", "Prompt tokens that were copied back from memory of the host",
     true, figure_prefix_hits_host},
    {"proa_engine_prefix_cache_host_pages", "Pages of the prefix cache in memory of the host", false,
     figure_pages_host},
    {"proa_engine_prefix_cache_dir_hits", "Prompt tokens whose keys and values were read from files", true,
     figure_prefix_hits_dir},
    {"proa_engine_prefix_cache_dir_pages", "Pages of the prefix cache in files", false, figure_pages_dir},
    {"proa_engine_prefix_cache_pages", "Pages in the prefix cache", false, figure_pages_cached},
    {"proa_engine_prefix_cache_evicted", "Pages evicted from the prefix cache", true, figure_pages_evicted},
};

/* With several replicas each has samples of its own, with its number as a label. */
static void put_sample(proa_buf *out, const char *name, const char *labels, int32_t replica, int32_t replicas,
                       double value)
{
    if (replicas == 1) proa_buf_printf(out, "%s{%s} %.17g\n", name, labels, value);
    else proa_buf_printf(out, "%s{%s,replica=\"%d\"} %.17g\n", name, labels, replica, value);
}

static void put_routes(proa_buf *out, const char *labels, const proa_fleet *f)
{
    static const char name[] = "proa_replica_requests_total";
    static const char *const reasons[] = {
        [PROA_ROUTE_SESSION] = "session", [PROA_ROUTE_PREFIX] = "prefix", [PROA_ROUTE_LOAD] = "load"};
    put_family(
        out, name,
        "Requests by replica and reason: it had their session or a part of their prompt, or least queued",
        "counter");
    for (int32_t i = 0; i < proa_fleet_count(f); i++)
        for (proa_route why = 0; why < PROA_ROUTES; why++)
            proa_buf_printf(out, "%s{%s,replica=\"%d\",reason=\"%s\"} %llu\n", name, labels, i, reasons[why],
                            (unsigned long long)proa_fleet_routed(f, i, why));
}

static double serves_figure(const proa_fleet *f, int32_t i)
{
    return proa_fleet_serves(f, i) ? 1 : 0;
}

void proa_llm_metrics(void *state, const char *labels, proa_buf *out)
{
    const proa_llm_model *s = state;
    int32_t count = proa_fleet_count(s->fleet);
    static const char name[] = "proa_replica_serves";
    proa_stats stats[PROA_REPLICAS_MAX];
    for (int32_t i = 0; i < count; i++) proa_engine_stats(proa_fleet_engine(s->fleet, i), &stats[i]);
    for (size_t f = 0; f < PROA_COUNT(families); f++) {
        put_family(out, families[f].name, families[f].help, families[f].counter ? "counter" : "gauge");
        for (int32_t i = 0; i < count; i++)
            put_sample(out, families[f].name, labels, i, count, families[f].value(&stats[i]));
    }
    if (count == 1) return;
    put_routes(out, labels, s->fleet);
    put_family(out, name, "1: the replica takes requests; 0: its device has failed", "gauge");
    for (int32_t i = 0; i < count; i++) put_sample(out, name, labels, i, count, serves_figure(s->fleet, i));
}

/* The families of TensorRT-LLM's backend, as far as a CPU has what they count. */
void proa_llm_metrics_trtllm(void *state, const char *labels, proa_buf *out)
{
    proa_llm_model *s = state;
    proa_stats stats;
    struct timespec now;
    proa_fleet_stats(s->fleet, &stats);
    clock_gettime(CLOCK_REALTIME, &now);
    double pages = (double)(stats.pages_used + stats.pages_free), used = (double)stats.pages_used;
    uint64_t reused = stats.prefix_hits / PROA_PAGE_TOKENS;
    const sample requests[] = {{"active", stats.running + stats.waiting},
                               {"max", (double)s->info.sequences * proa_fleet_count(s->fleet)},
                               {"scheduled", stats.running},
                               {"context", 0},
                               {"waiting", stats.waiting}};
    const sample memory[] = {{"cpu", (double)s->info.memory_bytes}, {"gpu", 0}, {"pinned", 0}};
    const sample blocks[] = {{"max", pages},
                             {"free", (double)stats.pages_free},
                             {"used", used},
                             {"tokens_per", PROA_PAGE_TOKENS},
                             {"reused", (double)reused},
                             {"fraction", pages > 0 ? used / pages : 0}};
    const sample batcher[] = {{"total_context_tokens", (double)stats.prompt_tokens},
                              {"generation_requests", stats.running},
                              {"micro_batch_id", 0},
                              {"paused_requests", 0}};
    const sample general[] = {{"timestamp", (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3},
                              {"iteration_counter", (double)stats.steps}};
    put_gauges(out, labels, "nv_trt_llm_request_metrics", "TRT LLM request metrics", "request_type", requests,
               PROA_COUNT(requests));
    put_gauges(out, labels, "nv_trt_llm_runtime_memory_metrics", "TRT LLM runtime memory metrics",
               "memory_type", memory, PROA_COUNT(memory));
    put_gauges(out, labels, "nv_trt_llm_kv_cache_block_metrics", "TRT LLM KV cache block metrics",
               "kv_cache_block_type", blocks, PROA_COUNT(blocks));
    put_gauges(out, labels, "nv_trt_llm_inflight_batcher_metrics", "TRT LLM inflight_batcher-specific metrics",
               "inflight_batcher_specific_metric", batcher, PROA_COUNT(batcher));
    put_gauges(out, labels, "nv_trt_llm_general_metrics", "General TRT LLM metrics", "general_type", general,
               PROA_COUNT(general));
    pthread_mutex_lock(&s->lock);
    proa_token_counts in = s->in, made = s->out;
    pthread_mutex_unlock(&s->lock);
    put_histogram(out, labels, "nv_llm_output_token_len", "total_output_tokens", &made);
    put_histogram(out, labels, "nv_llm_input_token_len", "total_input_tokens", &in);
}

/* ---- the page ---- */

/* Since the figures were last read, unless that was just now. */
static double rate_of(proa_llm_model *s, uint64_t tokens)
{
    enum { LEAST_NS = 200 * 1000 * 1000 };
    int64_t now = proa_clock_ns();
    pthread_mutex_lock(&s->lock);
    if (now - s->rate_ns >= LEAST_NS) {
        bool first = s->rate_ns == 0;
        s->rate = first ? 0 : (double)(tokens - s->rate_tokens) * 1e9 / (double)(now - s->rate_ns);
        s->rate_ns = now;
        s->rate_tokens = tokens;
    }
    double rate = s->rate;
    pthread_mutex_unlock(&s->lock);
    return rate;
}

void proa_llm_figures(void *state, proa_buf *out)
{
    static const char *const kinds[] = {"decoder", "encoder-decoder", "encoder"};
    proa_llm_model *s = state;
    proa_stats stats;
    proa_fleet_stats(s->fleet, &stats);
    proa_buf_printf(
        out, "\"arch\":\"%s\",\"kind\":\"%s\",\"dtype\":\"%s\",\"quant\":\"%s\",\"context\":%d,\"chat\":%s,",
        s->info.arch, kinds[s->info.kind], s->info.dtype, s->info.quant, s->info.context,
        s->chat ? "true" : "false");
    proa_buf_printf(out, "\"tokens_per_second\":%.1f,\"running\":%d,\"waiting\":%d,",
                    rate_of(s, stats.new_tokens), stats.running, stats.waiting);
    proa_buf_printf(out, "\"prompt_tokens\":%llu,\"new_tokens\":%llu,\"pages_used\":%lld,\"pages_total\":%lld,",
                    (unsigned long long)stats.prompt_tokens, (unsigned long long)stats.new_tokens,
                    (long long)stats.pages_used, (long long)(stats.pages_used + stats.pages_free));
    proa_buf_printf(out, "\"pages_cached\":%lld,\"prefix_queries\":%llu,\"prefix_hits\":%llu,",
                    (long long)stats.pages_cached, (unsigned long long)stats.prefix_queries,
                    (unsigned long long)stats.prefix_hits);
    proa_buf_printf(out, "\"steps\":%llu,\"step_seconds\":%.6f,\"preemptions\":%llu,\"cancelled\":%llu",
                    (unsigned long long)stats.steps, stats.step_s, (unsigned long long)stats.preemptions,
                    (unsigned long long)stats.cancelled);
}
