/* SPDX-License-Identifier: Apache-2.0
 * cmd_top.c - `proa top`: live figures of a server from its metrics: rates over the last interval, pages, caches, GPUs.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cli/client/client.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include <poll.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

typedef struct top_options {
    const char *url, *api_key, *ca;
    double interval_s;
    int64_t count;
    bool json;
} top_options;

#define AT(field) offsetof(top_options, field)
static const proa_arg top_rows[] = {
    {"[URL]", PROA_ARG_OPERAND, AT(url), 0, 0, NULL, NULL,
     "the server's metrics port, http:// or https://HOST:PORT or unix:PATH; default http://localhost:8002"},
    {"interval", PROA_ARG_REAL, AT(interval_s), 0, 3600, "S", "1", "seconds between two readings"},
    {"count", PROA_ARG_INT, AT(count), 0, INT32_MAX, "N", "0",
     "end after N tables; 0: until q or Ctrl-C on a terminal, else 1"},
    {"json", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL, "print each table as one line of JSON"},
    {"api-key", PROA_ARG_TEXT, AT(api_key), 0, 0, "KEY", NULL, "sent as a bearer token"},
    {"ca", PROA_ARG_TEXT, AT(ca), 0, 0, "FILE", NULL, "PEM file of trusted CAs"},
};
#undef AT
static const proa_arg_table top_args = PROA_ARG_TABLE("options", top_rows);

/* ---- metrics ---- */

/* One reading: the text of the metrics, and when it came. */
typedef struct server_sample {
    proa_buf text;
    int64_t at_ns;
    int status;
} server_sample;

/* A line "NAME{LABELS} VALUE"; false for comments and what is none. */
static bool parse_sample(proa_str line, proa_str *name, proa_str *labels, double *value)
{
    char number[64], *end;
    size_t n = 0;
    while (n < line.len && line.ptr[n] != '{' && line.ptr[n] != ' ') n++;
    *name = (proa_str){line.ptr, n}, *labels = (proa_str){line.ptr + n, 0};
    if (n == 0 || line.ptr[0] == '#') return false;
    if (n < line.len && line.ptr[n] == '{') {
        const char *close = memrchr(line.ptr, '}', line.len);
        if (!close) return false;
        *labels = (proa_str){line.ptr + n + 1, (size_t)(close - line.ptr) - n - 1};
        n = (size_t)(close - line.ptr) + 1;
    }
    snprintf(number, sizeof number, "%.*s", line.len - n < sizeof number ? (int)(line.len - n) : 0, line.ptr + n);
    *value = strtod(number, &end);
    return end != number;
}

/* The value of a label; the empty slice without it. */
static proa_str label_of(proa_str labels, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i + n + 2 < labels.len; i++) {
        bool begins = i == 0 || labels.ptr[i - 1] == ',';
        if (!begins || strncmp(labels.ptr + i, name, n) != 0 || memcmp(labels.ptr + i + n, "=\"", 2) != 0)
            continue;
        const char *from = labels.ptr + i + n + 2, *to = memchr(from, '"', labels.len - i - n - 2);
        return to ? (proa_str){from, (size_t)(to - from)} : (proa_str){NULL, 0};
    }
    return (proa_str){NULL, 0};
}

/* The sum of the samples of this name whose label has the value (key NULL: of all); -1: there is none. */
static double sum_of(const server_sample *r, const char *name, const char *key, proa_str wanted)
{
    proa_str rest = proa_buf_view(&r->text), line, found, labels;
    double sum = 0, value;
    bool any = false;
    while (proa_str_next_line(&rest, &line)) {
        if (!parse_sample(line, &found, &labels, &value) || !proa_str_is(found, name)) continue;
        if (key && !proa_str_eq(label_of(labels, key), wanted)) continue;
        sum += value, any = true;
    }
    return any ? sum : -1;
}

/* The values of a label among the samples of this name, without repetition. */
static int values_of(proa_str *out, int max, const server_sample *r, const char *name, const char *key)
{
    proa_str rest = proa_buf_view(&r->text), line, found, labels;
    double value;
    int count = 0;
    while (proa_str_next_line(&rest, &line) && count < max) {
        if (!parse_sample(line, &found, &labels, &value) || !proa_str_is(found, name)) continue;
        proa_str label = label_of(labels, key);
        bool seen = label.len == 0;
        for (int i = 0; i < count && !seen; i++) seen = proa_str_eq(out[i], label);
        if (!seen) out[count++] = label;
    }
    return count;
}

/* ---- the figures of a table ---- */

typedef struct model_figures {
    proa_str name;
    double requests_s, latency_ms, running, waiting, new_tokens_s, prompt_tokens_s, pages_used, pages,
        cache_hit, draft_accepted; /* -1: not known */
} model_figures;

typedef struct interval {
    const server_sample *before, *now;
    double seconds;
} interval;

static double growth_of(const interval *i, const char *name, const char *key, proa_str wanted)
{
    double now = sum_of(i->now, name, key, wanted), before = sum_of(i->before, name, key, wanted);
    return now < 0 ? -1 : before < 0 || before > now ? now : now - before;
}

static double rate_of(const interval *i, const char *name, const char *key, proa_str wanted)
{
    double growth = growth_of(i, name, key, wanted);
    return growth < 0 ? -1 : growth / i->seconds;
}

/* part / whole within the interval, or since the start if nothing happened in the interval; -1: not known. */
static double share_of(const interval *i, const char *part, const char *whole, proa_str model)
{
    double a = growth_of(i, part, "model", model), b = growth_of(i, whole, "model", model);
    if (b <= 0) a = sum_of(i->now, part, "model", model), b = sum_of(i->now, whole, "model", model);
    return b > 0 && a >= 0 ? a / b : -1;
}

static model_figures figures_of(const interval *i, proa_str model)
{
    double done = growth_of(i, "nv_inference_request_success", "model", model);
    double time_us = growth_of(i, "nv_inference_request_duration_us", "model", model);
    double used = sum_of(i->now, "proa_engine_pages_used", "model", model);
    double unused = sum_of(i->now, "proa_engine_pages_free", "model", model);
    double waiting = sum_of(i->now, "proa_engine_waiting", "model", model);
    if (waiting < 0) waiting = sum_of(i->now, "nv_inference_pending_request_count", "model", model);
    return (model_figures){
        .name = model,
        .requests_s = rate_of(i, "nv_inference_request_success", "model", model),
        .latency_ms = done > 0 && time_us >= 0 ? time_us / done * 1e-3 : -1,
        .running = sum_of(i->now, "proa_engine_running", "model", model),
        .waiting = waiting,
        .new_tokens_s = rate_of(i, "proa_engine_new_tokens", "model", model),
        .prompt_tokens_s = rate_of(i, "proa_engine_prompt_tokens", "model", model),
        .pages_used = used,
        .pages = used >= 0 && unused >= 0 ? used + unused : -1,
        .cache_hit = share_of(i, "proa_engine_prefix_cache_hits", "proa_engine_prefix_cache_queries", model),
        .draft_accepted = share_of(i, "proa_engine_accepted_draft_tokens", "proa_engine_draft_tokens", model),
    };
}

/* ---- printing ---- */

enum { MODELS_SHOWN = 256, GPUS_SHOWN = 64 };

static void print_number(proa_output *out, const char *format, int width, double value)
{
    char text[32] = "-";
    if (value >= 0)
        snprintf(text, sizeof text, format, value); /* NOLINT: formats are constants of this file */
    proa_output_printf(out, " %*s", width, text);
}

static void print_model(proa_output *out, const model_figures *m, int width, const char *end)
{
    char pages[32] = "-";
    if (m->pages >= 0) snprintf(pages, sizeof pages, "%.0f/%.0f", m->pages_used, m->pages);
    proa_output_printf(out, "%-*.*s", width, (int)m->name.len < width ? (int)m->name.len : width, m->name.ptr);
    print_number(out, "%.1f", 7, m->requests_s);
    print_number(out, "%.0f", 8, m->latency_ms);
    print_number(out, "%.0f", 7, m->running);
    print_number(out, "%.0f", 7, m->waiting);
    print_number(out, "%.0f", 9, m->new_tokens_s);
    print_number(out, "%.0f", 9, m->prompt_tokens_s);
    proa_output_printf(out, " %13s", pages);
    print_number(out, "%.0f %%", 7, m->cache_hit * (m->cache_hit >= 0 ? 100 : 1));
    print_number(out, "%.0f %%", 7, m->draft_accepted * (m->draft_accepted >= 0 ? 100 : 1));
    proa_output_str(out, end);
}

static void print_machine(proa_output *out, const interval *i, const char *end)
{
    proa_str none = {NULL, 0}, gpus[GPUS_SHOWN];
    char used[16], all[16];
    double cpu = sum_of(i->now, "nv_cpu_utilization", NULL, none);
    double total = sum_of(i->now, "nv_cpu_memory_total_bytes", NULL, none);
    proa_output_bytes_text(used, sum_of(i->now, "nv_cpu_memory_used_bytes", NULL, none));
    if (cpu >= 0 && total > 0)
        proa_output_printf(out, "CPU %.0f %%, memory %s of %s%s", cpu * 100, used,
                           proa_output_bytes_text(all, total), end);
    int count = values_of(gpus, GPUS_SHOWN, i->now, "nv_gpu_memory_total_bytes", "gpu_uuid");
    for (int k = 0; k < count; k++) {
        double busy = sum_of(i->now, "nv_gpu_utilization", "gpu_uuid", gpus[k]);
        proa_output_bytes_text(used, sum_of(i->now, "nv_gpu_memory_used_bytes", "gpu_uuid", gpus[k]));
        proa_output_bytes_text(all, sum_of(i->now, "nv_gpu_memory_total_bytes", "gpu_uuid", gpus[k]));
        proa_output_printf(out, "GPU %.*s: %.0f %%, memory %s of %s, %.0f W%s", (int)gpus[k].len, gpus[k].ptr,
                           busy < 0 ? 0 : busy * 100, used, all,
                           sum_of(i->now, "nv_gpu_power_usage", "gpu_uuid", gpus[k]), end);
    }
}

/* end: of each line; on a terminal it erases what an earlier table has left behind it. */
static void print_table(proa_output *out, const interval *i, const char *url, const char *end)
{
    proa_str models[MODELS_SHOWN], none = {NULL, 0};
    int count = values_of(models, MODELS_SHOWN, i->now, "nv_inference_request_success", "model"), width = 5;
    double failures = rate_of(i, "nv_inference_request_failure", NULL, none);
    for (int k = 0; k < count; k++)
        if ((int)models[k].len > width) width = models[k].len < 32 ? (int)models[k].len : 32;
    proa_output_printf(out, "%s: %.0f requests in flight, %.1f/s answered, %.1f/s failed, %.0f connections%s",
                       url, sum_of(i->now, "proa_requests_in_flight", NULL, none),
                       rate_of(i, "nv_inference_request_success", NULL, none), failures < 0 ? 0 : failures,
                       sum_of(i->now, "proa_connections", NULL, none), end);
    print_machine(out, i, end);
    proa_output_printf(out, "%s%-*s %7s %8s %7s %7s %9s %9s %13s %7s %7s%s", end, width, "model", "req/s",
                       "ms", "run", "wait", "tokens/s", "prompt/s", "pages", "cached", "drafts", end);
    for (int k = 0; k < count; k++) {
        model_figures m = figures_of(i, models[k]);
        print_model(out, &m, width, end);
    }
}

static void json_number(proa_output *out, const char *name, double value)
{
    proa_output_printf(out, ",\"%s\":", name);
    if (value < 0) proa_output_str(out, "null");
    else proa_output_printf(out, "%.6g", value);
}

static void print_json(proa_output *out, const interval *i)
{
    proa_str models[MODELS_SHOWN], none = {NULL, 0};
    int count = values_of(models, MODELS_SHOWN, i->now, "nv_inference_request_success", "model");
    proa_output_printf(out, "{\"seconds\":%.3f", i->seconds);
    json_number(out, "in_flight", sum_of(i->now, "proa_requests_in_flight", NULL, none));
    json_number(out, "requests_per_second", rate_of(i, "nv_inference_request_success", NULL, none));
    json_number(out, "failures_per_second", rate_of(i, "nv_inference_request_failure", NULL, none));
    proa_output_str(out, ",\"models\":[");
    for (int k = 0; k < count; k++) {
        model_figures m = figures_of(i, models[k]);
        proa_output_str(out, k ? ",{\"name\":" : "{\"name\":");
        proa_output_json_str(out, m.name);
        json_number(out, "requests_per_second", m.requests_s);
        json_number(out, "latency_ms", m.latency_ms);
        json_number(out, "running", m.running);
        json_number(out, "waiting", m.waiting);
        json_number(out, "new_tokens_per_second", m.new_tokens_s);
        json_number(out, "prompt_tokens_per_second", m.prompt_tokens_s);
        json_number(out, "pages_used", m.pages_used);
        json_number(out, "pages", m.pages);
        json_number(out, "prefix_cache_hit_share", m.cache_hit);
        json_number(out, "draft_accepted_share", m.draft_accepted);
        proa_output_str(out, "}");
    }
    proa_output_str(out, "]}\n");
}

/* ---- readings ---- */

static proa_status take_text(void *arg, int status, proa_str bytes, proa_err *err)
{
    server_sample *r = arg;
    r->status = status;
    return proa_buf_append(&r->text, bytes.ptr, bytes.len) ? PROA_OK
                                                           : PROA_FAIL(err, LIMIT, "the metrics are too large");
}

static proa_status read_metrics(server_sample *r, const proa_target *target, const char *url, proa_err *err)
{
    proa_buf_clear(&r->text);
    PROA_TRY(proa_client_http(target, "GET", "/metrics", (proa_str){"", 0}, take_text, r, err));
    r->at_ns = proa_clock_ns();
    if (r->status == 200 && proa_buf_view(&r->text).len) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s answers %d to /metrics: give the address of the metrics port", url,
                     r->status);
}

/* Waits; false after q, Ctrl-C or the end of the input. */
static bool wait_interval(double seconds, bool terminal)
{
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    int64_t end = proa_clock_ns() + (int64_t)(seconds * 1e9);
    for (int64_t left; !proa_interrupted() && (left = end - proa_clock_ns()) > 0;) {
        char key = 0;
        int ms = (int)(left / 1000000) + 1;
        if (poll(&keys, terminal ? 1 : 0, ms < 200 ? ms : 200) <= 0) continue;
        if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q') return false;
    }
    return !proa_interrupted();
}

static proa_status watch_server(const top_options *o, const proa_target *target, proa_output *out, bool live,
                                proa_err *err)
{
    server_sample readings[2] = {{.status = 0}, {.status = 0}};
    for (int i = 0; i < 2; i++) proa_buf_init(&readings[i].text, (size_t)PROA_HTTP_BODY_MAX);
    int64_t count = o->count ? o->count : live ? INT64_MAX : 1;
    proa_status status = read_metrics(&readings[0], target, o->url, err);
    if (live && status == PROA_OK)
        proa_output_str(out, "\033[?1049h\033[?25l"); /* a screen of its own, no cursor */
    for (int64_t i = 0; status == PROA_OK && i < count && wait_interval(o->interval_s, live); i++) {
        interval now = {.before = &readings[i % 2], .now = &readings[(i + 1) % 2]};
        status = read_metrics(&readings[(i + 1) % 2], target, o->url, err);
        if (status != PROA_OK) break;
        now.seconds = (double)(now.now->at_ns - now.before->at_ns) * 1e-9;
        if (o->json) print_json(out, &now);
        else if (live)
            proa_output_str(out, "\033[H"), print_table(out, &now, o->url, "\033[K\n"),
                proa_output_str(out, "\033[J");
        else print_table(out, &now, o->url, "\n");
        if (!proa_output_flush(out)) break;
    }
    if (live) proa_output_str(out, "\033[?25h\033[?1049l");
    for (int i = 0; i < 2; i++) proa_buf_release(&readings[i].text);
    return status;
}

/* Keys are read without Enter and not shown. Returns whether there is a terminal to put back. */
static bool set_keys(struct termios *before)
{
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, before) != 0) return false;
    struct termios now = *before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    return tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

static proa_status run_top(const top_options *o, proa_err *err)
{
    enum { TIMEOUT_MS = 10000, METRICS_PORT = 8002 };
    proa_target target = {.timeout_ms = TIMEOUT_MS, .api_key = o->api_key, .ca = o->ca};
    proa_output out;
    struct termios before;
    bool grpc, live = !o->json && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO);
    PROA_TRY(proa_target_parse(&target, &grpc, o->url, err));
    if (grpc) return PROA_FAIL(err, INVALID, "'%s': metrics come over http:// or https://", o->url);
    if (target.port && !target.tls && !target.port_given) target.port = METRICS_PORT;
    PROA_TRY(proa_output_open(&out, NULL, err));
    bool keys = live && set_keys(&before);
    proa_status status = watch_server(o, &target, &out, live, err);
    proa_status closed = proa_output_close(&out, status == PROA_OK ? err : NULL);
    if (keys) tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return status != PROA_OK ? status : closed;
}

static int top_command(const proa_command *self, int argc, char **argv)
{
    top_options o = {.url = "http://localhost:8002"};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    return run_top(&o, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const top_tables[] = {&top_args, NULL};
const proa_command proa_cmd_top = {
    .name = "top",
    .summary = "watch a server: requests, tokens a second, pages, caches, GPUs",
    .examples =
        "  proa top\n  proa top http://gpu7:8002 --interval 5\n  proa top --json --count 60 > minute.jsonl\n",
    .tables = top_tables,
    .run = top_command,
};
