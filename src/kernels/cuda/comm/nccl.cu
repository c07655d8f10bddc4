/* SPDX-License-Identifier: Apache-2.0
 * nccl.cu - the table of collectives over NCCL (kernels/nccl.h). NCCL adds the terms of the ranks in their own type;
 * the residual, which may have another, is added by a kernel behind it.
 *
 * The kernel behind each call counts it in host memory, where kernels/nccl.c sees that calls do not end any more. */
#include "kernels/cuda/comm/comm.h"

extern "C" {
#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/nccl.h"
}
#include <stdlib.h>

enum { THREADS = 256, BLOCKS_MAX = 1024 };
/* Columns that are gathered at one time, of one rank. */
#define GATHER_BYTES ((int64_t)4 << 20)

/* Calls that have ended: counted by the GPU, and what the host sees of it. */
struct nccl_count {
    unsigned *count;
    volatile unsigned *seen;
};

struct nccl_gpu_comm {
    proa_comm base; /* first */
    gpu *g;
    proa_nccl_comm *nccl;
    char *gathered; /* [ranks][GATHER_BYTES], and a count */
    nccl_count ended;
};

static nccl_gpu_comm *comm_of(proa_comm *c)
{
    return reinterpret_cast<nccl_gpu_comm *>(c);
}

/* ---- kernels ---- */

/* By one thread of the kernel behind a call. */
__device__ static void count_call(nccl_count ended)
{
    *ended.seen = ++*ended.count;
}

__global__ void count_kernel(nccl_count ended)
{
    gpu_wait();
    count_call(ended);
}

/* y[i] = x[i] + residual[i]; residual NULL: x[i]. Each may be y. */
template <typename X, typename Y>
__global__ void __launch_bounds__(THREADS)
    add_kernel(Y *y, const X *x, const Y *residual, int64_t count, nccl_count ended)
{
    gpu_wait();
    if (blockIdx.x == 0 && threadIdx.x == 0) count_call(ended);
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < count; i += gridDim.x * (int64_t)THREADS) {
        float sum = gpu_to_f32(x[i]);
        y[i] = gpu_saturate<Y>(residual ? gpu_to_f32(residual[i]) + sum : sum);
    }
}

/* y[t, r d + i] = from[r][t,i], of the columns that y has. */
__global__ void __launch_bounds__(THREADS)
    place_columns_kernel(float *y, int64_t y_row, int columns, const float *from, int rows, int d, nccl_count ended)
{
    int64_t t = blockIdx.y;
    gpu_wait();
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) count_call(ended);
    for (int column = (int)(blockIdx.x * THREADS + threadIdx.x); column < columns;
         column += (int)gridDim.x * THREADS)
        y[t * y_row + column] = from[((int64_t)(column / d) * rows + t) * d + column % d];
}

/* ---- the table ---- */

/* What NCCL launches begins when the kernels before have ended; the next kernel begins when NCCL's has. */
static gpu *before_nccl(nccl_gpu_comm *c)
{
    gpu *g = gpu_enter(&c->g->base);
    gpu_flush(g);
    return g;
}

/* The next kernel has to count the call. */
static void after_nccl(nccl_gpu_comm *c)
{
    gpu *g = c->g;
    if (g->is_recording) gpu_comm_record_call(c->nccl);
    else proa_nccl_submitted(c->nccl, 1);
    g->serialize_next = true;
}

static void after_nccl_alone(nccl_gpu_comm *c)
{
    after_nccl(c);
    gpu_launch(c->g, "nccl", count_kernel, 1, 1, 0, c->ended);
}

static bool is_dense(proa_view v)
{
    return v.rank == 2 && (v.shape[0] <= 1 || v.stride[0] == v.shape[1]);
}

static unsigned blocks_for(int64_t count)
{
    return (unsigned)proa_min64(BLOCKS_MAX, proa_ceil_div(count, THREADS));
}

static void add_residual(nccl_gpu_comm *c, proa_view y, proa_view x, proa_view residual)
{
    int64_t count = proa_view_count(x);
    gpu_by_type(x.dtype, [&](auto from) {
        gpu_by_type(y.dtype, [&](auto to) {
            using X = decltype(from);
            using Y = decltype(to);
            const Y *more = residual.rank ? (const Y *)residual.data : NULL;
            gpu_launch(c->g, "all_reduce", add_kernel<X, Y>, blocks_for(count), THREADS, 0, (Y *)y.data,
                       (const X *)x.data, more, count, c->ended);
        });
    });
}

static void all_reduce(proa_comm *base, proa_view y, proa_view x, proa_view residual)
{
    nccl_gpu_comm *c = comm_of(base);
    gpu *g = before_nccl(c);
    bool plain = !residual.rank && y.dtype == x.dtype;
    PROA_ASSERT(is_dense(x) && is_dense(y));
    gpu_invalidate(g, y);
    proa_nccl_all_reduce(c->nccl, plain ? y.data : x.data, x.data, proa_view_count(x), x.dtype, g->stream);
    if (plain) {
        after_nccl_alone(c);
        return;
    }
    after_nccl(c);
    add_residual(c, y, x, residual);
}

static void gather_columns(proa_comm *base, proa_view y, proa_view x)
{
    nccl_gpu_comm *c = comm_of(base);
    gpu *g = before_nccl(c);
    int64_t d = x.shape[1], row = d * (int64_t)sizeof(float), most = GATHER_BYTES / row;
    PROA_ASSERT(most > 0 && is_dense(x));
    gpu_invalidate(g, y);
    for (int64_t at = 0, n; at < x.shape[0]; at += n) {
        n = proa_min64(x.shape[0] - at, most);
        proa_nccl_all_gather(c->nccl, c->gathered, (const char *)x.data + at * row, n * row, g->stream);
        after_nccl(c);
        gpu_launch(g, "gather_columns", place_columns_kernel, dim3(blocks_for(y.shape[1]), (unsigned)n),
                   THREADS, 0, (float *)y.data + at * y.stride[0], y.stride[0], (int)y.shape[1],
                   (const float *)c->gathered, (int)n, (int)d, c->ended);
    }
}

static int64_t bytes_of(proa_view v)
{
    PROA_ASSERT(is_dense(v));
    return proa_view_count(v) * proa_dtype_bytes(v.dtype);
}

static void send_rows(proa_comm *base, proa_view x, int32_t to)
{
    nccl_gpu_comm *c = comm_of(base);
    gpu *g = before_nccl(c);
    if (bytes_of(x) == 0) return;
    proa_nccl_send(c->nccl, x.data, bytes_of(x), to, g->stream);
    after_nccl_alone(c);
}

static void receive_rows(proa_comm *base, proa_view y, int32_t from)
{
    nccl_gpu_comm *c = comm_of(base);
    gpu *g = before_nccl(c);
    gpu_invalidate(g, y);
    if (bytes_of(y) == 0) return;
    proa_nccl_recv(c->nccl, y.data, bytes_of(y), from, g->stream);
    after_nccl_alone(c);
}

/* ---- life ---- */

static void close_comm(proa_comm *base)
{
    nccl_gpu_comm *c = comm_of(base);
    gpu *g = gpu_enter(&c->g->base);
    gpu_graphs_drop(g); /* NCCL waits for recordings of its kernels */
    cudaStreamSynchronize(g->default_stream);
    proa_nccl_close(c->nccl);
    cudaFree(c->gathered);
    cudaFreeHost((void *)c->ended.seen);
    free(c);
}

static void stop_comm(proa_comm *base)
{
    proa_nccl_stop(comm_of(base)->nccl);
}

static bool is_stopped(proa_comm *base)
{
    return proa_nccl_stopped(comm_of(base)->nccl);
}

/* Memory of both sides; the counts are 0. */
static cudaError_t take_memory(char **gathered, nccl_count *ended, int32_t ranks)
{
    size_t bytes = (size_t)(ranks * GATHER_BYTES);
    cudaError_t status = cudaMalloc((void **)gathered, bytes + sizeof *ended->count);
    if (status == cudaSuccess)
        status = cudaHostAlloc((void **)&ended->seen, sizeof *ended->seen, cudaHostAllocMapped);
    if (status != cudaSuccess) return status;
    ended->count = (unsigned *)(*gathered + bytes);
    *ended->seen = 0;
    status = cudaMemset(ended->count, 0, sizeof *ended->count);
    return status == cudaSuccess ? cudaDeviceSynchronize() : status;
}

proa_status gpu_comm_of_nccl(proa_comm **out, gpu *g, proa_nccl_comm *nccl, int32_t rank, int32_t ranks,
                             int32_t wait_ms, proa_err *err)
{
    char *gathered = NULL;
    nccl_count ended = {};
    cudaError_t status = take_memory(&gathered, &ended, ranks);
    if (status != cudaSuccess) {
        cudaFree(gathered);
        cudaFreeHost((void *)ended.seen);
        proa_nccl_close(nccl);
        return PROA_FAIL(err, NO_MEMORY, "%s: memory for %d ranks: %s", g->name, ranks,
                         cudaGetErrorString(status));
    }
    nccl_gpu_comm *c = (nccl_gpu_comm *)proa_calloc(1, sizeof *c);
    c->base = {rank, ranks, all_reduce, gather_columns, send_rows, receive_rows, close_comm};
    c->base.stop = stop_comm, c->base.stopped = is_stopped;
    c->g = g, c->nccl = nccl, c->gathered = gathered, c->ended = ended;
    proa_nccl_watch(nccl, ended.seen, wait_ms);
    *out = &c->base;
    return PROA_OK;
}
