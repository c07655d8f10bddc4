/* SPDX-License-Identifier: Apache-2.0
 * beams.c - beam searches on a GPU, random weights: time of a step and tokens a second, prompts included or not.
 *   bench-gpu-beams MODEL DTYPE REQUESTS BEAMS PROMPT NEW RUNS      BEAMS: 4, or 4/2 in two groups, or 4:ft, 4:trtllm
 * One line for each run, and the median. PROA_AHEAD=0|1|host says where steps are made and when (docs/gpu.md). */
#include "base/clock.h"
#include "proa/proa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MAX = 99, PROMPT_MAX = 4096 };

static int64_t answered;    /* tokens of the best beams */
static uint64_t sum_of_ids; /* so that two programs can be seen to give the same */

static void give_up(const char *why)
{
    fprintf(stderr, "bench-gpu-beams: %s\n", why);
    exit(1);
}

static void count_tokens(const proa_event *event)
{
    if (event->finish == PROA_FINISH_ERROR) give_up(event->error->text);
    if (event->kind != PROA_EVENT_DONE) return;
    answered += event->new_tokens;
    for (int32_t i = 0; i < event->beams_count; i++)
        for (int64_t k = 0; k < event->beams[i].count; k++)
            sum_of_ids = sum_of_ids * 31 + (uint64_t)event->beams[i].ids[k];
}

static void submit(proa_engine *e, uint32_t which, int64_t prompt, int32_t vocab, const proa_options *options)
{
    static int32_t ids[PROMPT_MAX];
    uint64_t state = 88172645463325252ull + which * 7919ull;
    for (int64_t i = 0; i < prompt; i++) {
        state ^= state << 13; /* xorshift64 (Marsaglia 2003) */
        state ^= state >> 7;
        state ^= state << 17;
        ids[i] = (int32_t)(3 + state % (uint64_t)(vocab - 3));
    }
    proa_request request = {.ids = ids, .ids_count = prompt, .options = *options, .on_event = count_tokens};
    proa_err err = {.status = PROA_OK};
    if (proa_engine_submit(e, &request, NULL, &err) != PROA_OK) give_up(err.text);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A penalty of 1, or a rate of an eighth, so that diversity has its work too. */
static proa_options search_of(const char *beams)
{
    char *end;
    proa_options o = {.beams = (int32_t)strtol(beams, &end, 10), .ignore_eos = true};
    if (*end == '/') o.beam_groups = atoi(end + 1), o.diversity_penalty = 1;
    else if (strcmp(end, ":ft") == 0) o.style = PROA_STYLE_FT, o.diversity_rate = 0.125F;
    else if (strcmp(end, ":trtllm") == 0) o.style = PROA_STYLE_TRTLLM, o.diversity_rate = 0.125F;
    else if (*end) give_up("BEAMS is N, N/GROUPS, N:ft or N:trtllm");
    return o;
}

int main(int argc, char **argv)
{
    double seconds[RUNS_MAX];
    proa_err err = {.status = PROA_OK};
    proa_engine *engine;
    proa_info info;
    if (argc != 8) give_up("MODEL DTYPE REQUESTS BEAMS PROMPT NEW RUNS");
    proa_options search = search_of(argv[4]);
    int requests = atoi(argv[3]), beams = search.beams, prompt = atoi(argv[5]), tokens = atoi(argv[6]);
    int runs = atoi(argv[7]);
    search.max_tokens = tokens;
    if (runs > RUNS_MAX || runs < 1 || prompt > PROMPT_MAX) give_up("too many");
    proa_engine_options o = {.device = "cuda", .dtype = argv[2], .sequences_max = requests * beams};
    o.kv_tokens = (int64_t)requests * (beams * ((prompt + tokens) / 64 + 2) + prompt / 64 + 2) * 64;
    if (proa_engine_open(&engine, argv[1], &o, &err) != PROA_OK) give_up(err.text);
    proa_engine_info(engine, &info);
    for (int i = -3; i < runs; i++) { /* the first ones record their passes */
        proa_stats before, after;
        proa_engine_stats(engine, &before);
        answered = 0, sum_of_ids = 0;
        for (int k = 0; k < requests; k++) submit(engine, (uint32_t)k, prompt, info.vocab, &search);
        int64_t begin = proa_clock_ns();
        proa_engine_run(engine);
        double took = (double)(proa_clock_ns() - begin) * 1e-9;
        proa_engine_stats(engine, &after);
        if (i < 0) continue;
        seconds[i] = took;
        if (i == 0)
            printf("%s %s %d x %s beams: %lld passes, ids %016llx\n", argv[1], argv[2], requests, argv[4],
                   (long long)(after.steps - before.steps), (unsigned long long)sum_of_ids);
    }
    qsort(seconds, (size_t)runs, sizeof *seconds, by_value);
    double median = seconds[runs / 2];
    printf("median %.3f ms, %.1f us a token, %.0f tokens/s (least %.3f ms)\n", median * 1e3,
           median / tokens * 1e6, (double)answered / median, seconds[0] * 1e3);
    proa_engine_close(engine);
    return 0;
}
