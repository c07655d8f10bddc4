/* SPDX-License-Identifier: Apache-2.0
 * forest.c - what predicting with a forest takes, without a server: best of many calls.
 *
 *     bench-forest MODEL ROWS SECONDS [THREADS [INPUT.f32]]
 *
 * prints "us N" (the best call), "median N" and "sum X" of the outputs. Without a file of rows they are random in
 * [-1, 1). bench/forest.py runs it beside XGBoost. PROA_ISA picks the level of CPU. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "forest/packed.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MOST 1000000

static float *make_rows(const proa_forest *f, int64_t rows, const char *path)
{
    int64_t count = rows * f->features;
    float *x = proa_malloc((size_t)count * sizeof *x);
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (path && (!file || fread(x, sizeof *x, (size_t)count, file) != (size_t)count)) {
        fprintf(stderr, "bench-forest: '%s' has no %lld rows\n", path, (long long)rows);
        exit(1);
    }
    if (file) fclose(file);
    uint64_t seed = 1;
    for (int64_t i = 0; !path && i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(seed >> 40) / 8388608.0f - 1.0f;
    }
    return x;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void measure(const proa_packed *p, const proa_forest *f, const float *x, int64_t rows, double seconds,
                    proa_pool *pool)
{
    float *out = proa_malloc((size_t)(rows * f->outputs) * sizeof *out);
    int64_t *times = proa_malloc(CALLS_MOST * sizeof *times), count = 0,
            end = proa_clock_ns() + (int64_t)(seconds * 1e9);
    double sum = 0;
    while (count < CALLS_MOST && (count < 3 || proa_clock_ns() < end)) {
        int64_t begin = proa_clock_ns();
        proa_packed_predict(p, x, rows, false, out, pool);
        times[count++] = proa_clock_ns() - begin;
    }
    qsort(times, (size_t)count, sizeof *times, by_time);
    for (int64_t i = 0; i < rows * f->outputs; i++) sum += (double)out[i];
    printf("us %.3f median %.3f sum %.9g\n", (double)times[0] / 1e3, (double)times[count / 2] / 1e3, sum);
    free(times);
    free(out);
}

int main(int argc, char **argv)
{
    proa_err err = {.status = PROA_OK};
    proa_forest *f = NULL;
    proa_packed *p = NULL;
    if (argc < 4) {
        fprintf(stderr, "usage: bench-forest MODEL ROWS SECONDS [THREADS [INPUT.f32]]\n");
        return 2;
    }
    int64_t rows = atoll(argv[2]);
    if (proa_forest_open(&f, argv[1], PROA_FOREST_AUTO, &err) != PROA_OK ||
        proa_packed_new(&p, f, &err) != PROA_OK) {
        fprintf(stderr, "bench-forest: %s\n", err.text);
        return 1;
    }
    proa_pool *pool = proa_pool_new(argc > 4 ? atoi(argv[4]) : 0);
    float *x = make_rows(f, rows, argc > 5 ? argv[5] : NULL);
    measure(p, f, x, rows, atof(argv[3]), pool);
    free(x);
    proa_pool_free(pool);
    proa_packed_free(p);
    proa_forest_free(f);
    return 0;
}
