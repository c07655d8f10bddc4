/* SPDX-License-Identifier: Apache-2.0
 * disaggregate.c - the time between tokens of streams, without and with long prompts that arrive beside them: prompts
 * on a GPU of their own (--disaggregate prefill=1,decode=1) against one GPU for both. Built by `ninja
 * bench-gpu-disaggregate`.
 *
 *     bench-gpu-disaggregate [MODEL [DEVICE [STREAMS [PROMPT [PROMPTS/S [SECONDS]]]]]]
 *
 * DEVICE: "cuda" (GPUs 0 and 1), or "cpu". A line of CSV for each mode: percentiles in ms, their ratio. */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/fleet/fleet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STREAMS_MAX = 512, GAPS_MAX = 1 << 22, STREAM_PROMPT = 512, PROMPT_MAX = 65536, PROMPTS_MAX = 4096 };

typedef struct setting {
    const char *model, *device;
    int streams, prompt;
    double rate, seconds;
} setting;

/* Gaps between tokens of all streams, while `counts`. */
static struct {
    atomic_bool counts;
    atomic_llong count;
    float *ms;
} gaps;

static int64_t last_ns[STREAMS_MAX];
static uint64_t stream_ids[STREAMS_MAX];
static atomic_int streams_done, streams_begun;

static void stream_event(const proa_event *e)
{
    int64_t *last = e->arg, now = proa_clock_ns();
    if (e->kind == PROA_EVENT_DONE) atomic_fetch_add(&streams_done, 1);
    if (e->kind != PROA_EVENT_TOKEN) return;
    if (!*last) atomic_fetch_add(&streams_begun, 1);
    if (*last && atomic_load(&gaps.counts)) {
        long long i = atomic_fetch_add(&gaps.count, 1);
        if (i < GAPS_MAX) gaps.ms[i] = (float)((double)(now - *last) * 1e-6);
    }
    *last = now;
}

/* A prompt, and when it was sent. */
typedef struct arrival {
    int64_t sent_ns;
    atomic_llong first_ns;
} arrival;
static arrival arrivals[PROMPTS_MAX];

static void prompt_event(const proa_event *e)
{
    arrival *a = e->arg;
    if (e->kind == PROA_EVENT_TOKEN) atomic_store(&a->first_ns, proa_clock_ns());
}

static int64_t vocab;

static void fill_ids(int32_t *ids, int64_t count, int seed)
{
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)((seed * 7919 + i * 104729) % vocab);
}

static void fail(const proa_err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void begin_streams(proa_fleet *f, const setting *s)
{
    static int32_t ids[STREAM_PROMPT];
    proa_err err = {.status = PROA_OK};
    for (int i = 0; i < s->streams; i++) {
        fill_ids(ids, STREAM_PROMPT, i + 1);
        proa_request r = {.ids = ids, .ids_count = STREAM_PROMPT, .on_event = stream_event, .arg = &last_ns[i]};
        r.options = (proa_options){.max_tokens = 1 << 14, .ignore_eos = true};
        if (proa_fleet_submit(f, &r, &stream_ids[i], &err) != PROA_OK) fail(&err);
    }
    while (atomic_load(&streams_begun) < s->streams) usleep(10000);
    usleep(500000);
}

/* Contexts grow while streams run, and steps with them: so each measurement begins with new streams. */
static void end_streams(proa_fleet *f, const setting *s)
{
    for (int i = 0; i < s->streams; i++) proa_fleet_cancel(f, stream_ids[i]);
    while (atomic_load(&streams_done) < s->streams) usleep(10000);
    memset(last_ns, 0, sizeof last_ns);
    atomic_store(&streams_begun, 0), atomic_store(&streams_done, 0);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct percentiles {
    double p50, p99, most;
    long long count;
} percentiles;

static percentiles read_gaps(void)
{
    long long n = atomic_load(&gaps.count);
    if (n > GAPS_MAX) n = GAPS_MAX;
    if (n < 100) return (percentiles){0, 0, 0, n};
    qsort(gaps.ms, (size_t)n, sizeof *gaps.ms, by_size);
    return (percentiles){(double)gaps.ms[n / 2], (double)gaps.ms[n * 99 / 100], (double)gaps.ms[n - 1], n};
}

/* Counts gaps for so many seconds, while prompts arrive at this rate. Returns how many were sent. */
static int measure(proa_fleet *f, const setting *s, double rate, percentiles *out)
{
    static int32_t ids[PROMPT_MAX];
    int sent = 0;
    proa_err err = {.status = PROA_OK};
    atomic_store(&gaps.count, 0);
    atomic_store(&gaps.counts, true);
    int64_t begin = proa_clock_ns(), end = begin + (int64_t)(s->seconds * 1e9);
    while (proa_clock_ns() < end) {
        if (rate > 0 && sent < PROMPTS_MAX && (double)(proa_clock_ns() - begin) * 1e-9 * rate >= sent) {
            arrival *a = &arrivals[sent];
            fill_ids(ids, s->prompt, 1000 + sent++);
            a->sent_ns = proa_clock_ns(), a->first_ns = 0;
            proa_request r = {.ids = ids, .ids_count = s->prompt, .on_event = prompt_event, .arg = a};
            r.options = (proa_options){.max_tokens = 1, .ignore_eos = true};
            if (proa_fleet_submit(f, &r, NULL, &err) != PROA_OK) fail(&err);
        }
        usleep(1000);
    }
    atomic_store(&gaps.counts, false);
    *out = read_gaps();
    return sent;
}

static double mean_first_token_s(int sent, int *answered)
{
    double sum = 0;
    *answered = 0;
    for (int i = 0; i < sent; i++) {
        long long first = atomic_load(&arrivals[i].first_ns);
        if (first) sum += (double)(first - arrivals[i].sent_ns) * 1e-9, ++*answered;
    }
    return *answered ? sum / *answered : 0;
}

static void run_mode(const char *mode, const setting *s, const proa_fleet_options *fleet)
{
    proa_fleet *f = NULL;
    proa_err err = {.status = PROA_OK};
    percentiles idle, busy;
    int answered;
    const proa_engine_options o = {.device = s->device, .sequences_max = s->streams + 32};
    if (proa_fleet_open(&f, s->model, &o, fleet, &err) != PROA_OK || proa_fleet_start(f, &err) != PROA_OK)
        fail(&err);
    proa_info info;
    proa_engine_info(proa_fleet_engine(f, 0), &info);
    vocab = info.vocab;
    begin_streams(f, s);
    measure(f, s, 0, &idle);
    end_streams(f, s);
    begin_streams(f, s);
    int sent = measure(f, s, s->rate, &busy);
    double first = mean_first_token_s(sent, &answered);
    end_streams(f, s);
    printf("%s,%d,%d,%.1f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%d,%d,%.3f\n", mode, s->streams, s->prompt,
           s->rate, idle.p50, idle.p99, idle.most, busy.p50, busy.p99, busy.most, busy.p99 / idle.p99, sent,
           answered, first);
    fflush(stdout);
    proa_fleet_close(f);
}

int main(int argc, char **argv)
{
    setting s = {argc > 1 ? argv[1] : "synthetic:llama3-8b",
                 argc > 2 ? argv[2] : "cuda",
                 argc > 3 ? atoi(argv[3]) : 64,
                 argc > 4 ? atoi(argv[4]) : 8000,
                 argc > 5 ? atof(argv[5]) : 2,
                 argc > 6 ? atof(argv[6]) : 10};
    bool gpu = strncmp(s.device, "cuda", 4) == 0;
    if (s.streams < 1 || s.streams > STREAMS_MAX || s.prompt < 1 || s.prompt > PROMPT_MAX) return 2;
    gaps.ms = proa_malloc(GAPS_MAX * sizeof *gaps.ms);
    printf("mode,streams,prompt,prompts_s,idle_p50_ms,idle_p99_ms,idle_max_ms,p50_ms,p99_ms,max_ms,p99_ratio,"
           "sent,answered,"
           "first_token_s\n");
    run_mode("together", &s, &(proa_fleet_options){.count = 1});
    run_mode("apart", &s,
             &(proa_fleet_options){
                 .count = 2, .prefill = 1, .device = {gpu ? "cuda:1" : NULL, gpu ? "cuda:0" : NULL}});
    free(gaps.ms);
    return 0;
}
