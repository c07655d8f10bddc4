/* SPDX-License-Identifier: Apache-2.0
 * threshold.cu - from how many bytes on NCCL adds faster than the kernels over memory. `proa tune` times both; the
 * result is in the tuning file. */
#include "kernels/cuda/comm/comm.h"
#include "kernels/cuda/linear/tuned.h"

extern "C" {
#include "base/checked.h"
}
#include <string.h>

enum { RUNS = 20 };
#define LEAST_BYTES ((int64_t)256 << 10)
#define MOST_BYTES  ((int64_t)64 << 20)
/* NCCL is taken where it is faster by so much: it takes memory and a start. */
#define GAIN        0.97F

static void key_of(int64_t key[PROA_TUNE_KEYS], int32_t ranks)
{
    memset(key, 0, PROA_TUNE_KEYS * sizeof *key);
    key[0] = 1, key[2] = ranks; /* and no columns: sums (tune.h) */
}

int64_t gpu_comm_large_from(gpu *g, int32_t ranks)
{
    int64_t key[PROA_TUNE_KEYS];
    key_of(key, ranks);
    const proa_tune_entry *e = gpu_tune_known(g, key);
    if (e) return e->algorithm[0] <= INT64_MAX ? (int64_t)e->algorithm[0] : 0;
    return gpu_tune_is_all(g) ? GPU_COMM_TIMES : 0;
}

/* Microseconds of one sum, which all ranks run. */
static float time_sums(gpu *g, proa_comm *c, char *terms, int64_t bytes)
{
    cudaEvent_t begin, end;
    float ms = 0;
    proa_view x = proa_view_2d(terms, PROA_DTYPE_F16, 1, bytes / 2), none = {};
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int i = -3; i < RUNS; i++) {
        if (i == 0) gpu_note(g, cudaEventRecord(begin, g->stream), "timing sums");
        c->all_reduce(c, x, x, none);
    }
    gpu_note(g, cudaEventRecord(end, g->stream), "timing sums");
    gpu_note(g, cudaEventSynchronize(end), "timing sums");
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return ms * 1e3F / RUNS;
}

int64_t gpu_comm_time_both(gpu *g, proa_comm *peer, proa_comm *nccl)
{
    char *terms = NULL;
    proa_tune_entry e = {};
    uint64_t from = UINT64_MAX; /* never */
    if (cudaMalloc((void **)&terms, MOST_BYTES) != cudaSuccess) return cudaGetLastError(), 0;
    gpu_note(g, cudaMemsetAsync(terms, 0, MOST_BYTES, g->stream), "timing sums");
    for (int64_t bytes = LEAST_BYTES; bytes <= MOST_BYTES; bytes *= 2) {
        e.first_us = time_sums(g, peer, terms, bytes);
        e.us = time_sums(g, nccl, terms, bytes);
        bool gains = e.us < GAIN * e.first_us;
        if (!gains) from = UINT64_MAX;
        else if (from == UINT64_MAX) from = (uint64_t)bytes;
    }
    cudaFree(terms);
    key_of(e.key, peer->ranks);
    e.algorithm[0] = from;
    if (e.us > 0 && e.first_us > 0) gpu_tune_keep(g, &e);
    return from == UINT64_MAX ? 0 : (int64_t)from;
}
