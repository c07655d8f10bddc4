/* SPDX-License-Identifier: Apache-2.0
 * decoding.c - what decoding options cost in a running engine, against the bars of the project: prints one line of CSV
 * for each number.
 *   bench-decoding MODEL [THREADS [RUNS]]      bench/decoding.sh adds date, machine and commit
 * It looks into the engine (engine/sched/request.h), since what an unused option costs is far below the noise of
 * whole runs. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "engine/sched/request.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 16, STEPS = 400, WARM = 20, PROMPT = 800, NEW = 64, WIDTH = 4, RUNS_MAX = 99 };

static int64_t tokens_seen;

static void give_up(const char *why)
{
    fprintf(stderr, "bench-decoding: %s\n", why);
    exit(1);
}

static void count_tokens(const proa_event *event)
{
    if (event->finish == PROA_FINISH_ERROR) give_up(event->error->text);
    tokens_seen += event->kind == PROA_EVENT_TOKEN;
}

/* Random ids, other ones for each `which`. */
static void submit(proa_engine *e, uint64_t which, int64_t count, const proa_options *options)
{
    static int32_t ids[PROMPT];
    uint64_t state = proa_seed_of(88172645463325252ull, (int32_t)which + 1) | 1;
    for (int64_t i = 0; i < count; i++) {
        state ^= state << 13; /* xorshift64 (Marsaglia 2003) */
        state ^= state >> 7;
        state ^= state << 17;
        ids[i] = (int32_t)(3 + state % (uint64_t)(e->model->config.vocab - 3));
    }
    proa_request request = {.ids = ids, .ids_count = count, .options = *options, .on_event = count_tokens};
    proa_err err = {.status = PROA_OK};
    if (proa_engine_submit(e, &request, NULL, &err) != PROA_OK) give_up(err.text);
}

static double ms_since(int64_t begin)
{
    return (double)(proa_clock_ns() - begin) * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

static void say(const char *what, double value, const char *unit, const char *bar)
{
    printf("%s,%.4g,%s,%s\n", what, value, unit, bar);
}

/* ---- options that are not used ---- */

/* The linker puts these around the model (tests/parts/bench_decoding.cmake), so that the clock knows how much of a step
 * is the model's. */
static int64_t model_ns;
static proa_view logits; /* of the last step */

void __real_proa_model_decode(proa_model *m, const proa_kv *kv, const proa_batch *batch);
void __wrap_proa_model_decode(proa_model *m, const proa_kv *kv, const proa_batch *batch);
proa_view __real_proa_model_head(proa_model *m, const int32_t *rows, int64_t count);
proa_view __wrap_proa_model_head(proa_model *m, const int32_t *rows, int64_t count);

void __wrap_proa_model_decode(proa_model *m, const proa_kv *kv, const proa_batch *batch)
{
    int64_t begin = proa_clock_ns();
    __real_proa_model_decode(m, kv, batch);
    model_ns += proa_clock_ns() - begin;
}

proa_view __wrap_proa_model_head(proa_model *m, const int32_t *rows, int64_t count)
{
    int64_t begin = proa_clock_ns();
    logits = __real_proa_model_head(m, rows, count);
    model_ns += proa_clock_ns() - begin;
    return logits;
}

/* Milliseconds of one step: all of it, and what is not the model: scheduler, options, sampler, text, events. Then, over
 * the same rows once more: the likeliest token by the kernel alone, which greedy cannot do without, and by the sampler,
 * which looks at every option. */
typedef struct parts {
    double step[STEPS], rest[STEPS], best[STEPS], choose[STEPS];
} parts;

static void time_step(proa_engine *e, parts *p, int64_t at)
{
    static float values[BATCH];
    static int32_t ids[BATCH];
    int64_t begin = proa_clock_ns();
    model_ns = 0;
    proa_engine_step(e);
    p->step[at] = ms_since(begin);
    p->rest[at] = p->step[at] - (double)model_ns * 1e-6;
    proa_ctx *c = &e->model->ctx;
    begin = proa_clock_ns();
    c->ops->top_k(c, proa_view_2d(values, PROA_DTYPE_F32, BATCH, 1), ids, logits, 1);
    p->best[at] = ms_since(begin);
    begin = proa_clock_ns();
    proa_sampler_choose_rows(e->pool, e->samplers, e->head.draw_rows, BATCH, logits.shape[1]);
    p->choose[at] = ms_since(begin);
    for (int64_t i = 0; i < BATCH; i++)
        if (e->head.draw_rows[i].out.id != ids[i])
            give_up("sampler and kernel disagree: not the rows of one step");
}

static void measure_unused(proa_engine *e)
{
    static parts p;
    const proa_options greedy = {.max_tokens = STEPS + WARM + 30, .ignore_eos = true};
    for (uint64_t i = 0; i < BATCH; i++) submit(e, i, 32, &greedy);
    for (int i = 0; i < WARM; i++) proa_engine_step(e);
    if (e->step.logits_count != BATCH) give_up("not all sequences run at once");
    for (int64_t i = 0; i < STEPS; i++) time_step(e, &p, i);
    proa_engine_run(e);
    double step = median(p.step, STEPS), rest = median(p.rest, STEPS), choose = median(p.choose, STEPS);
    say("greedy batch 16: step", step, "ms", "");
    say("greedy batch 16: least step", p.step[0], "ms", "");
    say("greedy batch 16: step less model", rest * 1e3, "us", "");
    say("greedy batch 16: likeliest tokens by the kernel", median(p.best, STEPS) * 1e3, "us", "");
    say("greedy batch 16: likeliest tokens by the sampler", choose * 1e3, "us", "");
    say("greedy batch 16: sampler; of the step", 100 * choose / step, "%", "< 1");
    say("greedy batch 16: step less model; of the step", 100 * rest / step, "%", "");
    say("greedy batch 16: step less model and kernel; of the step", 100 * (rest - p.best[STEPS / 2]) / step,
        "%", "< 1");
}

/* ---- beams beside sequences of their own ---- */

/* Runs what was submitted; milliseconds of all, and until the last prompt is in. */
static double time_run(proa_engine *e, uint64_t prompt_tokens, double *prompt_ms)
{
    proa_stats before, now;
    proa_engine_stats(e, &before);
    int64_t begin = proa_clock_ns();
    *prompt_ms = 0;
    while (proa_engine_step(e)) {
        proa_engine_stats(e, &now);
        if (!*prompt_ms && now.prompt_tokens - before.prompt_tokens == prompt_tokens)
            *prompt_ms = ms_since(begin);
    }
    return ms_since(begin);
}

static void measure_beams(proa_engine *e, int runs)
{
    const proa_options beam = {.beams = WIDTH, .max_tokens = NEW, .ignore_eos = true};
    const proa_options own = {.max_tokens = NEW, .ignore_eos = true};
    double best[2] = {1e30, 1e30}, prompt[2] = {0};
    for (int i = 0; i < 2 * runs + 1; i++) {
        int kind = i % 2; /* beams, own, beams, ... */
        double ms;
        if (kind == 0) submit(e, 0, PROMPT, &beam);
        for (uint64_t s = 0; s < WIDTH && kind == 1; s++) submit(e, s, PROMPT, &own);
        double total = time_run(e, kind == 0 ? PROMPT : WIDTH * PROMPT, &ms);
        if (total >= best[kind]) continue;
        best[kind] = total;
        prompt[kind] = ms;
    }
    say("beam 4 on 800 tokens; 64 new: all", best[0], "ms", "");
    say("beam 4 on 800 tokens; 64 new: prompt", prompt[0], "ms", "");
    say("4 greedy on their own 800 tokens; 64 new: all", best[1], "ms", "");
    say("4 greedy on their own 800 tokens; 64 new: prompts", prompt[1], "ms", "");
    say("4 greedy over beam 4: all", best[1] / best[0], "times", ">= 2.5");
    say("4 greedy over beam 4: after the prompts", (best[1] - prompt[1]) / (best[0] - prompt[0]), "times", "");
}

/* ---- n sequences of one prompt ---- */

/* Pages in use when the prompt is in, when each sequence has written a token of its own, and before the last one. */
static void count_pages(proa_engine *e, int32_t n, int64_t pages[3])
{
    const proa_options o = {.n = n, .max_tokens = NEW, .ignore_eos = true, .temperature = 1, .seed = 5};
    proa_stats s;
    tokens_seen = 0;
    submit(e, 0, PROMPT, &o);
    while (tokens_seen < n) proa_engine_step(e);
    proa_engine_stats(e, &s);
    pages[0] = s.pages_used;
    proa_engine_step(e);
    proa_engine_stats(e, &s);
    pages[1] = s.pages_used;
    while (tokens_seen < n * (NEW - 1)) proa_engine_step(e);
    proa_engine_stats(e, &s);
    pages[2] = s.pages_used;
    proa_engine_run(e);
}

static void measure_pages(proa_engine *e)
{
    static const char *const when[] = {"prompt of 800 in", "one token of their own each", "63 tokens each"};
    int64_t one[3], eight[3];
    count_pages(e, 1, one);
    count_pages(e, 8, eight);
    for (int i = 0; i < 3; i++) {
        char what[96];
        snprintf(what, sizeof what, "n 1: %s", when[i]);
        say(what, (double)one[i], "pages", "");
        snprintf(what, sizeof what, "n 8: %s", when[i]);
        say(what, (double)eight[i], "pages", "");
        snprintf(what, sizeof what, "n 8 over n 1: %s", when[i]);
        say(what, (double)eight[i] / (double)one[i], "times", i ? "" : "<= 1.15");
    }
}

int main(int argc, char **argv)
{
    proa_engine_options o = {.threads = argc > 2 ? (int32_t)strtol(argv[2], NULL, 10) : 0,
                             .kv_tokens = 32 * 1024};
    long runs = argc > 3 ? strtol(argv[3], NULL, 10) : 7;
    proa_err err = {.status = PROA_OK};
    proa_engine *e = NULL;
    if (argc < 2 || o.threads < 0 || o.threads > PROA_THREADS_MAX || runs < 1 || runs > RUNS_MAX) {
        fprintf(stderr, "usage: bench-decoding MODEL [THREADS [RUNS]]\n");
        return 2;
    }
    if (proa_engine_open(&e, argv[1], &o, &err) != PROA_OK) give_up(err.text);
    if (e->model->arch->kind != PROA_KIND_DECODER || e->model->config.context < PROMPT + NEW)
        give_up("the model is no decoder of 864 tokens");
    measure_unused(e);
    measure_beams(e, (int)runs);
    measure_pages(e);
    proa_engine_close(e);
    return 0;
}
