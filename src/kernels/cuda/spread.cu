/* SPDX-License-Identifier: Apache-2.0
 * spread.cu - products of a text's rows, some dozens to some hundreds, on Hopper: too few tiles for all SMs, so K is divided
 * too. A cluster of blocks makes a tile, each block from its part of K; then each adds its share of the tile's rows out of all
 * blocks' memory, in the parts' order, and ends them. Weights are on their way before the kernel before has ended.
 * y[M,N] = act(alpha x[M,K] w[N,K]^T + bias), or without act + residual; x, w and y of 16 bits, sums in f32. */
#include "kernels/cuda/linear/wgmma.h"

/* A tile is ROWS rows of x by COLS of w. Two warpgroups multiply, each half of the columns; one more warp fetches slabs of 64 columns of K
 * into slots. ADDS: of four numbers, by a lane. */
enum { ROWS = 64, COLS = 128, SLOTS = 8, WARPS = 8, THREADS = WARPS * 32 + 32, PARTS_MAX = 8, ADDS = ROWS / WARPS };
enum { X_BYTES = ROWS * HOPPER_ROW, W_BYTES = COLS * HOPPER_ROW, SLOT_BYTES = X_BYTES + W_BYTES };
/* Shared memory: the slots, whose place the block's sums take, and behind them those of its share; the residual; barriers. */
enum { ADDED_AT = ROWS * COLS * 4, RESIDUAL_AT = SLOTS * SLOT_BYTES, BARRIERS_AT = RESIDUAL_AT + ROWS * COLS * 2, BYTES = BARRIERS_AT + 2 * SLOTS * 8 };
/* Slabs of a part beyond which dividing is not what is missing. */
enum { SLABS_MAX = 16 };

struct spread_job {
    int slabs, M, N, act;
    float alpha;
    int64_t y_row, residual_row;
    void *y;
    const void *bias, *residual; /* of y's type; NULL: none */
    bool w_made;                 /* w was written by a kernel of this pass */
};

#ifdef GPU_HOPPER
struct spread_slots {
    unsigned at, full, empty; /* shared addresses */
};

/* One warp: the part's weights, then, once the kernel before has ended, its rows; weights that it has made come as late. */
__device__ static inline void fetch_part(const spread_slots &s, const CUtensorMap *x, const CUtensorMap *w, bool made, int first, int count, int m, int n)
{
    bool one = (threadIdx.x & 31) == 0;
    int ahead = count < SLOTS ? count : (int)SLOTS;
    if (made) gpu_wait();
    for (int k = 0; k < ahead && one; k++) {
        gpu_expect(s.full + 8 * k, SLOT_BYTES);
        gpu_fetch(s.at + k * SLOT_BYTES + X_BYTES, w, s.full + 8 * k, (first + k) * HOPPER_SLAB, n);
    }
    if (!made) gpu_wait();
    for (int k = 0; k < ahead && one; k++) gpu_fetch(s.at + k * SLOT_BYTES, x, s.full + 8 * k, (first + k) * HOPPER_SLAB, m);
    for (int k = ahead; k < count && one; k++) {
        int slot = k % SLOTS;
        gpu_await(s.empty + 8 * slot, (unsigned)(k / SLOTS - 1) & 1);
        gpu_expect(s.full + 8 * slot, SLOT_BYTES);
        gpu_fetch(s.at + slot * SLOT_BYTES + X_BYTES, w, s.full + 8 * slot, (first + k) * HOPPER_SLAB, n);
        gpu_fetch(s.at + slot * SLOT_BYTES, x, s.full + 8 * slot, (first + k) * HOPPER_SLAB, m);
    }
    __syncwarp();
}

/* A warpgroup's half of the columns; what it leaves is done. */
template <typename T> __device__ static inline void multiply_part(float (&sum)[32], const spread_slots &s, int count, int group)
{
    int lane = threadIdx.x & 31;
    for (int k = 0; k < count; k++) {
        unsigned at = s.at + k % SLOTS * SLOT_BYTES;
        uint64_t a = gpu_matrix(at), b = gpu_matrix(at + X_BYTES + group * 64 * HOPPER_ROW);
        gpu_await(s.full + 8 * (k % SLOTS), (unsigned)(k / SLOTS) & 1);
        gpu_wgmma_begin();
#pragma unroll
        for (int i = 0; i < HOPPER_SLAB / 16; i++) gpu_wgmma<T, 64>::run(sum, a + 2 * i, b + 2 * i, (k | i) != 0);
        gpu_wgmma_end();
        if (k == 0) continue;
        gpu_wgmma_wait<1>();
        if (lane == 0) gpu_arrive(s.empty + 8 * ((k - 1) % SLOTS));
    }
    gpu_wgmma_wait<0>();
}

/* Sums lie in rows of COLS, their pieces of four permuted so that what a half warp writes or reads lies in different banks: piece p of
 * the tile's row r. */
__device__ static inline int sum_place(int r, int p)
{
    return r * COLS + (p ^ (r & 7) * 2) * 4;
}

/* Of a warpgroup's sums a lane has pairs: into rows of the block's memory. */
__device__ static inline void put_sums(float *sums, const float (&sum)[32], int group)
{
    int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4, piece = group * 16 + lane % 4 / 2;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<float2 *>(sums + sum_place(row + 8 * half, piece + 2 * i) + lane % 2 * 2) =
                make_float2(sum[4 * i + 2 * half], sum[4 * i + 2 * half + 1]);
}

/* The rows of a tile that a block ends: its warps in turn, four columns a lane. A warp's lanes stay together: those beyond the last
 * column do all but read and write the others' memory. */
struct spread_share {
    int m, from, to, lane, column; /* m: the tile's first row; from: the warp's first of it; to: behind the last */
    bool in;
    __device__ spread_share(const spread_job &job, int part, int parts)
        : m((int)blockIdx.z * ROWS), from(ROWS * part / parts + (int)threadIdx.x / 32), to(min(ROWS * (part + 1) / parts, job.M - m)),
          lane(threadIdx.x & 31), column((int)blockIdx.y * COLS + lane * 4), in(column < job.N)
    {
    }
};

/* On its way while the products run: [row][lane]. */
template <typename T> __device__ static inline void fetch_residual(unsigned to, const spread_job &job, const spread_share &s)
{
#pragma unroll 1
    for (int row = s.from; row < s.to && job.residual; row += WARPS)
        if (s.in)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to + (row * 32 + s.lane) * 8),
                     "l"((const T *)job.residual + (s.m + row) * job.residual_row + s.column)
                     : "memory");
}

/* This lane's columns of its rows, out of all parts' sums in their order, into `added` [row][lane]: all are asked for before the first is
 * added. */
__device__ static inline void add_parts(unsigned sums, float4 *added, const spread_share &s, int parts)
{
    float4 one[ADDS], v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    int row = s.from, part = 0;
    auto step = [&] {
        if (++part == parts) part = 0, row += WARPS;
    };
#pragma unroll
    for (int j = 0; j < ADDS; j++, step())
        if (row < s.to)
            asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\nld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [there];\n}"
                         : "=f"(one[j].x), "=f"(one[j].y), "=f"(one[j].z), "=f"(one[j].w)
                         : "r"(sums + sum_place(row, s.lane) * 4), "r"(part));
    row = s.from, part = 0;
#pragma unroll
    for (int j = 0; j < ADDS; j++, step()) {
        v = part == 0 ? one[j] : make_float4(v.x + one[j].x, v.y + one[j].y, v.z + one[j].z, v.w + one[j].w);
        if (row < s.to && part == parts - 1) added[row * 32 + s.lane] = v;
    }
}

/* What is made of the sums. Not unrolled: code comes from memory too. */
template <typename T, int ACT>
__device__ static inline void end_rows(const spread_job &job, const spread_share &s, const float4 *added, const uint2 *residual, uint2 bias)
{
    float2 b = wide_pair<T>(bias.x), c = wide_pair<T>(bias.y);
#pragma unroll 1
    for (int row = s.from; row < s.to; row += WARPS) {
        float4 v = added[row * 32 + s.lane];
        uint2 add = job.residual ? residual[row * 32 + s.lane] : make_uint2(0, 0);
        float2 r = wide_pair<T>(add.x), q = wide_pair<T>(add.y);
        uint2 made = make_uint2(
            narrow_pair<T>(hopper_act<ACT>(fmaf(job.alpha, v.x, b.x)) + r.x, hopper_act<ACT>(fmaf(job.alpha, v.y, b.y)) + r.y),
            narrow_pair<T>(hopper_act<ACT>(fmaf(job.alpha, v.z, c.x)) + q.x, hopper_act<ACT>(fmaf(job.alpha, v.w, c.y)) + q.y));
        if (s.in) *reinterpret_cast<uint2 *>((T *)job.y + (s.m + row) * job.y_row + s.column) = made;
    }
}

template <typename T>
__device__ static inline void end_share(const spread_job &job, const spread_share &s, const float4 *added, const uint2 *residual, uint2 bias)
{
    switch (job.act) {
    case PROA_ACT_RELU: return end_rows<T, PROA_ACT_RELU>(job, s, added, residual, bias);
    case PROA_ACT_GELU: return end_rows<T, PROA_ACT_GELU>(job, s, added, residual, bias);
    case PROA_ACT_GELU_TANH: return end_rows<T, PROA_ACT_GELU_TANH>(job, s, added, residual, bias);
    case PROA_ACT_SILU: return end_rows<T, PROA_ACT_SILU>(job, s, added, residual, bias);
    default: return end_rows<T, PROA_ACT_NONE>(job, s, added, residual, bias);
    }
}

/* All of the cluster's threads: here, and everybody else was. `written`: what was written here is seen there. */
template <bool WRITTEN> __device__ static inline void cluster_here()
{
    __syncwarp();
    if constexpr (WRITTEN) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    else asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ static inline void cluster_there()
{
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The warps that multiply. */
template <typename T> __device__ static inline void make_part(const spread_job &job, unsigned char *memory, const spread_slots &slots, int count, int part, int parts)
{
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    spread_share share(job, part, parts);
    float sum[32] = {};
    uint2 bias = make_uint2(0, 0);
    gpu_wait();
    fetch_residual<T>(slots.at + RESIDUAL_AT, job, share);
    if (job.bias && share.in) bias = *reinterpret_cast<const uint2 *>((const T *)job.bias + share.column);
    multiply_part<T>(sum, slots, count, group);
    gpu_named_sync(1, WARPS * 32); /* sums take the slots' place, which the other warpgroup reads too */
    put_sums(reinterpret_cast<float *>(memory), sum, group);
    cluster_here<true>();
    cluster_there();
    float4 *added = reinterpret_cast<float4 *>(memory + ADDED_AT);
    add_parts(slots.at, added, share, parts);
    cluster_here<false>(); /* the parts have been read: they are added */
    asm volatile("cp.async.wait_all;" ::: "memory");
    end_share<T>(job, share, added, reinterpret_cast<const uint2 *>(memory + RESIDUAL_AT), bias);
}
#endif

/* Grid: parts of K (a cluster), tiles along N, tiles along M. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    spread_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w, const __grid_constant__ spread_job job)
{
#ifdef GPU_HOPPER
    extern __shared__ __align__(1024) unsigned char memory[];
    int part = blockIdx.x, parts = gridDim.x, first = job.slabs * part / parts, count = job.slabs * (part + 1) / parts - first;
    unsigned begin = gpu_shared(memory), barriers = begin + BARRIERS_AT;
    spread_slots slots = {begin, barriers, barriers + 8 * SLOTS};
    cudaTriggerProgrammaticLaunchCompletion();
    if (threadIdx.x == WARPS * 32) {
        gpu_map_prefetch(&w), gpu_map_prefetch(&x);
        for (int i = 0; i < SLOTS; i++) gpu_barrier_init(slots.full + 8 * i, 1), gpu_barrier_init(slots.empty + 8 * i, WARPS);
        gpu_barriers_made();
    }
    __syncthreads();
    if (threadIdx.x / 32 == WARPS) {
        fetch_part(slots, &x, &w, job.w_made, first, count, blockIdx.z * ROWS, blockIdx.y * COLS);
        cluster_here<true>();
        cluster_there();
        cluster_here<false>();
    } else make_part<T>(job, memory, slots, count, part, parts);
    cluster_there(); /* nobody leaves while its sums are read */
#endif
}

/* ---- choosing ---- */

static bool allow()
{
    return cudaFuncSetAttribute(spread_kernel<__half>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES) == cudaSuccess &&
           cudaFuncSetAttribute(spread_kernel<__nv_bfloat16>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES) == cudaSuccess;
}

/* Clusters of so many blocks that run at one time. */
static int clusters_of(int parts)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    int count = 0;
    attribute.id = cudaLaunchAttributeClusterDimension, attribute.val.clusterDim = {(unsigned)parts, 1, 1};
    config.gridDim = dim3((unsigned)parts), config.blockDim = THREADS, config.dynamicSmemBytes = BYTES;
    config.attrs = &attribute, config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&count, spread_kernel<__half>, &config) == cudaSuccess) return count;
    cudaGetLastError(); /* said by 0 */
    return 0;
}

void gpu_spread_open(gpu *g)
{
    static_assert(sizeof g->spread_clusters / sizeof g->spread_clusters[0] == PARTS_MAX + 1, "by the number of parts");
    bool allowed = g->hopper && allow();
    cudaGetLastError(); /* said by no clusters */
    for (int parts = 1; parts <= PARTS_MAX && allowed; parts *= 2) g->spread_clusters[parts] = clusters_of(parts);
}

/* The number of parts, a power of two, that find room at once and whose blocks wait for least: for what they read of x and w, and for the
 * sums of other blocks, which take four times as long a byte. 0: there is none, or K is too long. */
int gpu_spread_parts(const gpu *g, const gpu_product *p)
{
    int64_t tiles = (p->T + ROWS - 1) / ROWS * ((p->N + COLS - 1) / COLS), slabs = (p->K + HOPPER_SLAB - 1) / HOPPER_SLAB, least = 0;
    int best = 0;
    for (int parts = 1; parts <= PARTS_MAX && parts <= slabs; parts *= 2) {
        int64_t each = (slabs + parts - 1) / parts, cost = each * SLOT_BYTES + 4 * (ROWS * COLS * 4 / parts * (parts - 1));
        if (tiles > g->spread_clusters[parts] || each > SLABS_MAX || (best && cost >= least)) continue;
        best = parts, least = cost;
    }
    return best;
}

bool gpu_spread_run(gpu *g, const gpu_product *p, int act, const gpu_operands *at, void *y)
{
    CUtensorMap x, w;
    const void *residual = p->residual ? at->residual : NULL;
    bool half = p->x_type == CUDA_R_16F;
    if (((uintptr_t)at->bias | (uintptr_t)residual | (uintptr_t)y) % 8 != 0) return false;
    if (!hopper_map(&x, p->x_type, at->x, p->T, p->K, p->x_ld, ROWS) || !hopper_map(&w, p->w_type, at->w, p->N, p->K, p->w_ld, COLS)) return false;
    spread_job job = {(int)((p->K + HOPPER_SLAB - 1) / HOPPER_SLAB), (int)p->T, (int)p->N, act, at->alpha, p->y_row, p->residual_row, y, at->bias, residual, at->w_made};
    unsigned parts = (unsigned)gpu_spread_parts(g, p);
    dim3 grid(parts, (unsigned)((p->N + COLS - 1) / COLS), (unsigned)((p->T + ROWS - 1) / ROWS));
    gpu_launch_clusters(g, "linear (spread)", half ? spread_kernel<__half> : spread_kernel<__nv_bfloat16>, grid, parts, THREADS, BYTES, x, w, job);
    return true;
}
