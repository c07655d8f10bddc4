/* SPDX-License-Identifier: Apache-2.0
 * comm.c - collectives between GPUs in recorded passes, as a model's layers run them: sums alone, and with the norm
 * behind them. Prints microseconds of each. First the sums are checked.
 *   bench-gpu-comm [RANKS [DEVICE]]   2 and cuda:0 without them; rank i is on GPU DEVICE + i */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "kernels/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 8, CALLS = 100, ROUNDS = 20, SIZES = 9 };

typedef struct rank {
    proa_device *d;
    proa_comm *comm;
    float *x, *n, *w, *part, *here;
    proa_dtype dtype; /* of the terms */
    int64_t rows, width;
    bool norm;
    double us; /* of a call, the median round */
    int64_t wrong;
    pthread_barrier_t *together;
} rank;

static float value_of(int32_t r, int64_t i)
{
    return (float)(i % 251) * 0.25F + (float)(r + 1) * 3.5F;
}

/* One sum of known numbers. */
static void check_sum(rank *k)
{
    int64_t count = k->rows * k->width, bytes = count * (int64_t)sizeof(float);
    for (int64_t i = 0; i < count; i++) k->here[i] = value_of(k->comm->rank, i);
    k->d->upload(k->d, k->x, k->here, bytes);
    proa_view x = proa_view_2d(k->x, PROA_DTYPE_F32, k->rows, k->width), none = {.rank = 0};
    k->comm->all_reduce(k->comm, x, x, none);
    k->d->download(k->d, k->here, k->x, bytes);
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int32_t r = 0; r < k->comm->ranks; r++) sum += value_of(r, i);
        k->wrong += k->here[i] != sum;
    }
}

static void run_calls(rank *k)
{
    proa_ctx ctx = {.ops = k->d->ops, .device = k->d};
    proa_view x = proa_view_2d(k->x, PROA_DTYPE_F32, k->rows, k->width);
    proa_view n = proa_view_2d(k->n, PROA_DTYPE_F32, k->rows, k->width);
    proa_view part = proa_view_2d(k->part, k->dtype, k->rows, k->width);
    for (int i = 0; i < CALLS; i++) {
        k->comm->all_reduce(k->comm, x, part, x);
        if (k->norm) k->d->ops->rms_norm(&ctx, n, x, proa_view_1d(k->w, PROA_DTYPE_F32, k->width), 1e-5F);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *run_rank(void *arg)
{
    rank *k = arg;
    double us[ROUNDS];
    proa_err err = {.status = PROA_OK};
    proa_pass pass = {
        .model = 1, .kind = k->norm, .rows = (int32_t)k->rows, .spans = (int32_t)k->width, .context = k->dtype};
    check_sum(k);
    k->d->random(k->d, k->x, PROA_DTYPE_F32, k->rows * k->width, 0, 1e-3F, 1);
    k->d->random(k->d, k->part, k->dtype, k->rows * k->width, 0, 1e-3F, 2);
    for (int r = -3; r < ROUNDS; r++) { /* the first ones record */
        pthread_barrier_wait(k->together);
        int64_t begin = proa_clock_ns();
        if (!k->d->pass_begin(k->d, &pass)) {
            run_calls(k);
            k->d->pass_end(k->d);
        }
        k->wrong += k->d->check(k->d, &err) != PROA_OK;
        if (r >= 0) us[r] = (double)(proa_clock_ns() - begin) * 1e-3 / CALLS;
    }
    qsort(us, ROUNDS, sizeof *us, by_value);
    k->us = us[ROUNDS / 2];
    return NULL;
}

static void measure(rank *k, int ranks, int64_t rows, int64_t width, proa_dtype dtype)
{
    double us[2];
    int64_t wrong = 0;
    for (int norm = 0; norm < 2; norm++) {
        pthread_t thread[RANKS_MAX];
        pthread_barrier_t together;
        pthread_barrier_init(&together, NULL, (unsigned)ranks);
        for (int i = 0; i < ranks; i++) {
            k[i].rows = rows, k[i].width = width, k[i].norm = norm, k[i].dtype = dtype, k[i].together = &together;
            pthread_create(&thread[i], NULL, run_rank, &k[i]);
        }
        for (int i = 0; i < ranks; i++) pthread_join(thread[i], NULL), wrong += k[i].wrong;
        pthread_barrier_destroy(&together);
        us[norm] = k[0].us;
    }
    printf("%5lld %6lld %5s %9.1f %12.2f %12.2f  %s\n", (long long)rows, (long long)width,
           proa_dtype_name(dtype), (double)(rows * width * proa_dtype_bytes(dtype)) / 1024, us[0], us[1],
           wrong ? "WRONG" : "right");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int64_t sizes[SIZES][2] = {{1, 512},  {1, 2048},  {1, 4096},   {1, 8192},   {2, 8192},
                                            {8, 4096}, {64, 4096}, {512, 4096}, {2048, 4096}};
    int ranks = argc > 1 ? atoi(argv[1]) : 2,
        first = argc > 2 ? atoi(argv[2] + strcspn(argv[2], "0123456789")) : 0;
    proa_device *d[RANKS_MAX];
    proa_comm *comm[RANKS_MAX];
    rank *k = proa_calloc(RANKS_MAX, sizeof *k);
    proa_err err = {.status = PROA_OK};
    const int64_t most = 2048 * 4096, bytes = most * (int64_t)sizeof(float);
    if (ranks < 2 || ranks > RANKS_MAX) return 2;
    for (int i = 0; i < ranks; i++) {
        char name[32];
        snprintf(name, sizeof name, "cuda:%d", first + i);
        if (proa_device_open(&d[i], name, &err) != PROA_OK) return fprintf(stderr, "%s\n", err.text), 1;
    }
    if (d[0]->open_comm(comm, d, ranks, &err) != PROA_OK) return fprintf(stderr, "%s\n", err.text), 1;
    for (int i = 0; i < ranks; i++) {
        k[i] = (rank){.d = d[i], .comm = comm[i], .here = proa_malloc((size_t)bytes)};
        k[i].part = d[i]->alloc(d[i], bytes), k[i].x = d[i]->alloc(d[i], bytes),
        k[i].n = d[i]->alloc(d[i], bytes), k[i].w = d[i]->alloc(d[i], bytes);
        if (!k[i].part || !k[i].x || !k[i].n || !k[i].w) return fprintf(stderr, "no memory\n"), 1;
        d[i]->random(d[i], k[i].w, PROA_DTYPE_F32, 8192, 1, 0.1F, 2);
    }
    printf("%d x %s\n rows  width  type       KiB   all_reduce   and rms_norm (us)\n", ranks, d[0]->name);
    for (int s = 0; s < SIZES; s++) {
        measure(k, ranks, sizes[s][0], sizes[s][1], PROA_DTYPE_F32);
        measure(k, ranks, sizes[s][0], sizes[s][1], PROA_DTYPE_F16);
    }
    return 0;
}
