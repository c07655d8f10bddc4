/* SPDX-License-Identifier: Apache-2.0
 * comm.c - collectives between GPUs in recorded passes, as a model's layers run them: sums alone, and with the norm
 * behind them. Prints microseconds of each. First the sums are checked.
 *   bench-gpu-comm [RANKS [DEVICE [thread|process]]]   2, cuda:0 and thread without them; rank i is on GPU DEVICE + i
 * Ranks that are processes exchange what PROA_COLLECTIVES says (kernels/connect.h). */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "kernels/connect.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 8, CALLS = 100, ROUNDS = 20, SIZES = 10 };
#define VALUES_MAX ((int64_t)4096 * 4096)

typedef struct rank {
    proa_device *d;
    proa_comm *comm;
    float *x, *n, *w, *part, *here;
    proa_dtype dtype; /* of the terms */
    int64_t rows, width;
    bool norm;
    double us; /* of a call, the median round */
    int64_t wrong;
} rank;

/* What ranks share, be they threads or processes. */
typedef struct shared {
    pthread_barrier_t together;
    int64_t wrong[RANKS_MAX];
} shared;

static shared *all;

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

static void time_calls(rank *k)
{
    double us[ROUNDS];
    proa_err err = {.status = PROA_OK};
    proa_pass pass = {
        .model = 1, .kind = k->norm, .rows = (int32_t)k->rows, .spans = (int32_t)k->width, .context = k->dtype};
    check_sum(k);
    k->d->random(k->d, k->x, PROA_DTYPE_F32, k->rows * k->width, 0, 1e-3F, 1);
    k->d->random(k->d, k->part, k->dtype, k->rows * k->width, 0, 1e-3F, 2);
    for (int r = -3; r < ROUNDS; r++) { /* the first ones record */
        pthread_barrier_wait(&all->together);
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
}

static void measure(rank *k, int64_t rows, int64_t width, proa_dtype dtype)
{
    double us[2];
    k->wrong = 0, k->rows = rows, k->width = width, k->dtype = dtype;
    for (int norm = 0; norm < 2; norm++) {
        k->norm = norm;
        time_calls(k);
        us[norm] = k->us;
    }
    all->wrong[k->comm->rank] = k->wrong;
    pthread_barrier_wait(&all->together);
    int64_t wrong = 0;
    for (int i = 0; i < k->comm->ranks; i++) wrong += all->wrong[i];
    if (k->comm->rank == 0)
        printf("%5lld %6lld %5s %9.1f %12.2f %12.2f  %s\n", (long long)rows, (long long)width,
               proa_dtype_name(dtype), (double)(rows * width * proa_dtype_bytes(dtype)) / 1024, us[0], us[1],
               wrong ? "WRONG" : "right");
    fflush(stdout);
}

static void *measure_all(void *arg)
{
    static const int64_t sizes[SIZES][2] = {{1, 512},  {1, 2048},  {1, 4096},   {1, 8192},    {2, 8192},
                                            {8, 4096}, {64, 4096}, {512, 4096}, {2048, 4096}, {4096, 4096}};
    rank *k = arg;
    const int64_t bytes = VALUES_MAX * (int64_t)sizeof(float);
    k->here = proa_malloc((size_t)bytes);
    k->part = k->d->alloc(k->d, bytes), k->x = k->d->alloc(k->d, bytes);
    k->n = k->d->alloc(k->d, bytes), k->w = k->d->alloc(k->d, bytes);
    if (!k->part || !k->x || !k->n || !k->w) return fprintf(stderr, "no memory\n"), exit(1), NULL;
    k->d->random(k->d, k->w, PROA_DTYPE_F32, 8192, 1, 0.1F, 2);
    if (k->comm->rank == 0)
        printf("%d x %s\n rows  width  type       KiB   all_reduce   and rms_norm (us)\n", k->comm->ranks,
               k->d->name);
    for (int s = 0; s < SIZES; s++) {
        measure(k, sizes[s][0], sizes[s][1], PROA_DTYPE_F32);
        measure(k, sizes[s][0], sizes[s][1], PROA_DTYPE_F16);
    }
    return NULL;
}

static proa_status open_device(proa_device **d, int index, proa_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "cuda:%d", index);
    return proa_device_open(d, name, err);
}

static int run_threads(int ranks, int first)
{
    proa_device *d[RANKS_MAX];
    proa_comm *comm[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    rank *k = proa_calloc(RANKS_MAX, sizeof *k);
    proa_err err = {.status = PROA_OK};
    for (int i = 0; i < ranks; i++)
        if (open_device(&d[i], first + i, &err) != PROA_OK) return fprintf(stderr, "%s\n", err.text), 1;
    if (d[0]->open_comm(comm, d, ranks, &err) != PROA_OK) return fprintf(stderr, "%s\n", err.text), 1;
    for (int i = 0; i < ranks; i++) {
        k[i].d = d[i], k[i].comm = comm[i];
        pthread_create(&thread[i], NULL, measure_all, &k[i]);
    }
    for (int i = 0; i < ranks; i++) pthread_join(thread[i], NULL);
    return 0;
}

/* The process of a rank. */
static int run_process(int fd, int rank_number, int ranks, int first)
{
    rank k = {.d = NULL};
    proa_comm *control;
    proa_err err = {.status = PROA_OK};
    const proa_rank_line line = {0, 1, ranks};
    bool waits;
    proa_status status = proa_comm_open_shared(&control, fd, rank_number, ranks, &err);
    if (status == PROA_OK) status = open_device(&k.d, first + rank_number, &err);
    if (status == PROA_OK) status = proa_device_connect(&k.comm, &waits, k.d, control, line, &err);
    if (status != PROA_OK) return fprintf(stderr, "rank %d: %s\n", rank_number, err.text), 1;
    measure_all(&k);
    proa_comm_close(k.comm);
    proa_device_close(k.d);
    return 0;
}

static int run_processes(int ranks, int first)
{
    int fd, failed = 0, status;
    proa_err err = {.status = PROA_OK};
    if (proa_comm_shared_file(&fd, ranks, &err) != PROA_OK) return fprintf(stderr, "%s\n", err.text), 1;
    for (int i = 0; i < ranks; i++)
        if (fork() == 0) exit(run_process(fd, i, ranks, first));
    for (int i = 0; i < ranks; i++) failed += wait(&status) > 0 && status != 0;
    return failed > 0;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 2,
        first = argc > 2 ? atoi(argv[2] + strcspn(argv[2], "0123456789")) : 0;
    bool processes = argc > 3 && strcmp(argv[3], "process") == 0;
    pthread_barrierattr_t shares;
    if (ranks < 2 || ranks > RANKS_MAX) return 2;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&shares);
    pthread_barrierattr_setpshared(&shares, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&all->together, &shares, (unsigned)ranks);
    return processes ? run_processes(ranks, first) : run_threads(ranks, first);
}
