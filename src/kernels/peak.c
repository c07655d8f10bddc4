/* SPDX-License-Identifier: Apache-2.0
 * peak.c - measures read bandwidth and arithmetic rates of the CPU. */
#include "kernels/peak.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include "kernels/cpu/peak_loops.h"
#include <math.h>
#include <string.h>

#define READ_PASSES 5
#define READ_STEP   ((int64_t)1 << 20) /* a worker's part is a multiple of this */

typedef uint64_t read_loop_fn(const char *p, int64_t bytes);
typedef double rate_loop_fn(int64_t rounds);

static uint64_t read_loop_generic(const char *p, int64_t bytes)
{
    uint64_t total = 0, word;
    for (int64_t i = 0; i < bytes; i += 8) {
        memcpy(&word, p + i, 8);
        total += word;
    }
    return total;
}

static double rate_loop_f32_generic(int64_t rounds)
{
    float sums[PROA_RATE_CHAINS], total = 0;
    for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = (float)i;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = sums[i] * 0.999f + 0.001f;
    for (int i = 0; i < PROA_RATE_CHAINS; i++) total += sums[i];
    return (double)total;
}

typedef struct read_job {
    char *buffer;
    read_loop_fn *loop;
    uint64_t sums[PROA_THREADS_MAX];
} read_job;

/* Written once by the thread that will read it: untouched memory is one shared page of zeros. */
static void touch_part(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const read_job *job = arg;
    memset(job->buffer + begin * READ_STEP, 1, (size_t)((end - begin) * READ_STEP));
}

static void read_part(void *arg, int64_t begin, int64_t end, int worker)
{
    read_job *job = arg;
    job->sums[worker] += job->loop(job->buffer + begin * READ_STEP, (end - begin) * READ_STEP);
}

static double best_pass(proa_pool *pool, read_job *job, int64_t steps, proa_peak_progress_fn *progress, void *arg)
{
    double best = 0;
    proa_pool_run(pool, steps, 1, touch_part, job);
    for (int pass = 0; pass < READ_PASSES; pass++) {
        if (progress) progress(arg, (double)(pass + 1) / (READ_PASSES + 1));
        int64_t start = proa_clock_ns();
        proa_pool_run(pool, steps, 1, read_part, job);
        best = fmax(best, (double)(steps * READ_STEP) / ((double)(proa_clock_ns() - start) * 1e-9));
    }
    uint64_t total = 0; /* every byte is 1: the sum says that all was read */
    for (int i = 0; i < PROA_THREADS_MAX; i++) total += job->sums[i];
    PROA_ASSERT(total == (uint64_t)(steps * READ_STEP / 8 * READ_PASSES) * 0x0101010101010101u);
    return best;
}

double proa_peak_read_bandwidth(proa_pool *pool, int64_t bytes, proa_peak_progress_fn *progress, void *arg)
{
    read_job job = {.loop = read_loop_generic};
#if defined(__x86_64__)
    proa_isa isa = proa_isa_detect();
    if (isa >= PROA_ISA_AVX2) job.loop = isa >= PROA_ISA_AVX512 ? proa_read_loop_avx512 : proa_read_loop_avx2;
#endif
    bytes = proa_min64(bytes > 0 ? bytes : PROA_GIB, proa_memory_available() / 4);
    bytes = proa_max64(bytes / READ_STEP, 1) * READ_STEP;
    job.buffer = proa_pages_alloc(bytes);
    if (!job.buffer) return 0;
    double best = best_pass(pool, &job, bytes / READ_STEP, progress, arg);
    proa_pages_free(job.buffer, bytes);
    if (progress) progress(arg, 1.0);
    return best;
}

typedef struct rate_job {
    rate_loop_fn *loop;
    int64_t rounds;
    double sums[PROA_THREADS_MAX];
} rate_job;

static void rate_part(void *arg, int64_t begin, int64_t end, int worker)
{
    rate_job *job = arg;
    for (int64_t i = begin; i < end; i++) job->sums[worker] += job->loop(job->rounds);
}

/* Operations a second; ops: of one round of the loop. About 50 ms after a warm-up. */
static double rate_of(proa_pool *pool, rate_loop_fn *loop, double ops)
{
    int64_t threads = proa_pool_threads(pool);
    rate_job job = {.loop = loop, .rounds = 100000};
    double best = 0;
    for (int64_t spent = 0; spent < 50000000;) {
        int64_t start = proa_clock_ns();
        proa_pool_run(pool, threads, 1, rate_part, &job);
        int64_t took = proa_clock_ns() - start;
        best = fmax(best, ops * (double)(job.rounds * threads) / ((double)took * 1e-9));
        spent += took;
    }
    double total = 0; /* used, so that the loops are */
    for (int64_t i = 0; i < threads; i++) total += job.sums[i];
    return isnan(total) ? 0 : best;
}

proa_peak_rates proa_peak_compute(proa_pool *pool, proa_isa isa)
{
    proa_peak_rates rates = {0};
    const double each = 2 * PROA_RATE_CHAINS; /* of each lane: a multiply-add counts two */
    if (isa == PROA_ISA_GENERIC) rates.f32 = rate_of(pool, rate_loop_f32_generic, each);
#if defined(__x86_64__)
    if (isa >= PROA_ISA_AVX512) rates.f32 = rate_of(pool, proa_rate_loop_f32_avx512, each * 16);
    else if (isa >= PROA_ISA_AVX2) rates.f32 = rate_of(pool, proa_rate_loop_f32_avx2, each * 8);
    if (isa >= PROA_ISA_AMX) {
        const double tile = 2 * PROA_RATE_TILES * 16 * 16;
        rates.i8 = rate_of(pool, proa_rate_loop_i8_amx, tile * 64);
        rates.bf16 = rate_of(pool, proa_rate_loop_bf16_amx, tile * 32);
        return rates;
    }
    if (isa >= PROA_ISA_VNNI) rates.i8 = rate_of(pool, proa_rate_loop_i8_vnni, each * 64);
    if (isa >= PROA_ISA_BF16) rates.bf16 = rate_of(pool, proa_rate_loop_bf16_bf16, each * 32);
#endif
    return rates;
}
