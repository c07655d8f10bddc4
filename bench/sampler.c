/* SPDX-License-Identifier: Apache-2.0
 * sampler.c - what choosing the tokens of a step costs: prints one line of CSV for each option, vocabulary and number
 * of rows, the median and the least of 51 steps in milliseconds. Logits are random: normal, plus a few likely tokens,
 * as a language model gives them ("peaked"), or normal alone ("flat"), the harder case for top-p.
 *   bench-sampler [THREADS]        appended to bench/results/sampler.csv by hand, with machine and commit */
#include "base/clock.h"
#include "base/limits.h"
#include "base/thread.h"
#include "engine/decode/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 51, SETS = 2 };

typedef struct subject {
    const char *name;
    proa_options options;
} subject;

static const subject subjects[] = {
    {"greedy", {.temperature = 0}},
    {"temperature", {.temperature = 0.8F}},
    {"top_k 40 + top_p 0.9", {.temperature = 0.8F, .top_k = 40, .top_p = 0.9F}},
    {"top_k 40 + top_p 0.9 ft", {.style = PROA_STYLE_FT, .top_k = 40, .top_p = 0.9F}},
    {"top_p 0.9", {.temperature = 0.8F, .top_p = 0.9F}},
    {"min_p 0.1", {.temperature = 0.8F, .min_p = 0.1F}},
    {"typical_p 0.9", {.temperature = 0.8F, .typical_p = 0.9F}},
    {"top_k 40 + top_p 0.9 + logprobs", {.temperature = 0.8F, .top_k = 40, .top_p = 0.9F, .logprobs = true}},
};

static double unit(uint64_t *state) /* xorshift64 (Marsaglia 2003) */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) * 0x1p-53;
}

/* Irwin and Hall's sum of twelve: normal enough. */
static void fill(float *row, int64_t vocab, bool peaked, uint64_t *state)
{
    for (int64_t i = 0; i < vocab; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++) sum += unit(state);
        row[i] = (float)(2 * sum);
    }
    for (int i = 0; peaked && i < 20; i++) row[(int64_t)(unit(state) * (double)vocab)] += 12;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median and least milliseconds of a step. Two sets of logits take turns, so that none is warm from the step before. */
static void time_steps(double *median, double *least, proa_pool *pool, proa_sampler_scratch *s,
                       const float *logits, int64_t rows, int64_t vocab, const proa_options *o)
{
    static proa_sampler_row row[64];
    double ms[STEPS];
    for (int step = 0; step < STEPS; step++) {
        const float *set = logits + step % SETS * rows * vocab;
        for (int64_t i = 0; i < rows; i++)
            row[i] = (proa_sampler_row){
                .logits = set + i * vocab, .position = step, .options = o, .seed = o->seed};
        int64_t begin = proa_clock_ns();
        proa_sampler_choose_rows(pool, s, row, rows, vocab);
        ms[step] = (double)(proa_clock_ns() - begin) * 1e-6;
        for (int64_t i = 0; i < rows; i++)
            if (row[i].status != PROA_OK) exit(1);
    }
    qsort(ms, STEPS, sizeof *ms, by_value);
    *median = ms[STEPS / 2];
    *least = ms[0];
}

static void measure(proa_pool *pool, proa_sampler_scratch *s, int64_t rows, int64_t vocab, bool peaked)
{
    uint64_t state = 88172645463325252ull;
    float *logits = malloc((size_t)(SETS * rows * vocab) * sizeof *logits);
    if (!logits) exit(1);
    for (int64_t i = 0; i < SETS * rows; i++) fill(logits + i * vocab, vocab, peaked, &state);
    for (size_t i = 0; i < PROA_COUNT(subjects); i++) {
        double median, least;
        time_steps(&median, &least, pool, s, logits, rows, vocab, &subjects[i].options);
        printf("%s,%lld,%lld,%d,%s,%.3f,%.3f\n", subjects[i].name, (long long)vocab, (long long)rows,
               proa_pool_threads(pool), peaked ? "peaked" : "flat", median, least);
    }
    free(logits);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    const int64_t vocab[] = {32000, 128000}, rows[] = {1, 64};
    if (threads < 0 || threads > PROA_THREADS_MAX) return 2;
    proa_pool *pool = proa_pool_new(threads);
    static proa_sampler_scratch s[PROA_THREADS_MAX];
    for (int i = 0; i < proa_pool_threads(pool); i++) proa_sampler_init(&s[i], vocab[1]);
    printf("options,vocab,rows,threads,logits,median ms,least ms\n");
    for (int peaked = 1; peaked >= 0; peaked--)
        for (size_t v = 0; v < PROA_COUNT(vocab); v++)
            for (size_t r = 0; r < PROA_COUNT(rows); r++) measure(pool, s, rows[r], vocab[v], peaked);
    for (int i = 0; i < proa_pool_threads(pool); i++) proa_sampler_release(&s[i]);
    proa_pool_free(pool);
    return 0;
}
