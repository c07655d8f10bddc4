/* SPDX-License-Identifier: Apache-2.0
 * gemm_split_k.cu - products of some dozens to some hundreds of rows on Hopper. They have too few tiles for
 * all SMs, so K is split too: the blocks of a cluster each make one part of a tile's sums, then each adds its
 * share of the tile's rows from the shared memory of all blocks, in the order of the parts, and applies the
 * epilogue. y[M,N] = act(alpha x[M,K] w[N,K]^T + bias), or without an activation + residual; x, w and y of 16
 * bits, sums in f32. */
#include "kernels/cuda/linear/wgmma.h"

/* A tile is ROWS rows of x by COLS of w. Two warpgroups multiply, each half of the columns (wgmma 64 x 64 x
 * 16, 32 sums a thread); one more warp loads slabs of 64 columns of K into SLOTS slots. ADDS: groups of four
 * numbers that a lane adds. */
enum {
    ROWS = 64,
    COLS = 128,
    SLOTS = 8,
    WARPS = 8,
    THREADS = WARPS * 32 + 32,
    PARTS_MAX = 8,
    ADDS = ROWS / WARPS
};
enum { X_BYTES = ROWS * HOPPER_ROW, W_BYTES = COLS * HOPPER_ROW, SLOT_BYTES = X_BYTES + W_BYTES };
/* Shared memory: the slots, reused for the block's sums and the added sums; the residual; the barriers. */
enum {
    ADDED_AT = ROWS * COLS * 4,
    RESIDUAL_AT = SLOTS * SLOT_BYTES,
    BARRIERS_AT = RESIDUAL_AT + ROWS * COLS * 2,
    BYTES = BARRIERS_AT + 2 * SLOTS * 8
};
/* Slabs of a part above which more splits do not help. */
enum { SLABS_MAX = 16 };

struct split_k_job {
    int slabs, M, N, act;
    float alpha;
    int64_t y_row, residual_row;
    void *y;
    const void *bias, *residual; /* of y's type; NULL: none */
    bool w_from_this_pass;       /* w was written by a kernel of this pass */
};

#ifdef GPU_HOPPER
struct split_k_slots {
    unsigned at, full, empty; /* shared addresses */
};

/* The producer warp: the weights of the part, and after gpu_wait its rows of x. Weights that a kernel of this
 * pass wrote are also loaded after gpu_wait. */
__device__ static inline void load_part_slabs(const split_k_slots &s, const CUtensorMap *x, const CUtensorMap *w,
                                              bool made, int first, int count, int m, int n)
{
    bool one = (threadIdx.x & 31) == 0;
    int ahead = count < SLOTS ? count : (int)SLOTS;
    if (made) gpu_wait();
    for (int k = 0; k < ahead && one; k++) {
        gpu_barrier_expect(s.full + 8 * k, SLOT_BYTES);
        gpu_tma_load(s.at + k * SLOT_BYTES + X_BYTES, w, s.full + 8 * k, (first + k) * HOPPER_SLAB, n);
    }
    if (!made) gpu_wait();
    for (int k = 0; k < ahead && one; k++)
        gpu_tma_load(s.at + k * SLOT_BYTES, x, s.full + 8 * k, (first + k) * HOPPER_SLAB, m);
    for (int k = ahead; k < count && one; k++) {
        int slot = k % SLOTS;
        gpu_barrier_wait(s.empty + 8 * slot, (unsigned)(k / SLOTS - 1) & 1);
        gpu_barrier_expect(s.full + 8 * slot, SLOT_BYTES);
        gpu_tma_load(s.at + slot * SLOT_BYTES + X_BYTES, w, s.full + 8 * slot, (first + k) * HOPPER_SLAB, n);
        gpu_tma_load(s.at + slot * SLOT_BYTES, x, s.full + 8 * slot, (first + k) * HOPPER_SLAB, m);
    }
    __syncwarp();
}

/* A warpgroup's half of the columns. All products are complete when it returns. */
template <typename T>
__device__ static inline void multiply_part(float (&sum)[32], const split_k_slots &s, int count, int group)
{
    int lane = threadIdx.x & 31;
    for (int k = 0; k < count; k++) {
        unsigned at = s.at + k % SLOTS * SLOT_BYTES;
        uint64_t a = gpu_smem_desc(at), b = gpu_smem_desc(at + X_BYTES + group * 64 * HOPPER_ROW);
        gpu_barrier_wait(s.full + 8 * (k % SLOTS), (unsigned)(k / SLOTS) & 1);
        gpu_wgmma_fence();
#pragma unroll
        for (int i = 0; i < HOPPER_SLAB / 16; i++)
            gpu_wgmma<T, 64>::run(sum, a + 2 * i, b + 2 * i, (k | i) != 0);
        gpu_wgmma_commit();
        if (k == 0) continue;
        gpu_wgmma_wait<1>();
        if (lane == 0) gpu_barrier_arrive(s.empty + 8 * ((k - 1) % SLOTS));
    }
    gpu_wgmma_wait<0>();
}

/* Offset of piece p (four sums) of row r of the tile. Pieces are permuted so that the lanes of a half warp
 * use different banks. */
__device__ static inline int sum_place(int r, int p)
{
    return r * COLS + (p ^ (r & 7) * 2) * 4;
}

/* Stores a warpgroup's sums, of which a lane has pairs, in rows of the block's memory. */
__device__ static inline void store_sums(float *sums, const float (&sum)[32], int group)
{
    int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4, piece = group * 16 + lane % 4 / 2;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<float2 *>(sums + sum_place(row + 8 * half, piece + 2 * i) + lane % 2 * 2) =
                make_float2(sum[4 * i + 2 * half], sum[4 * i + 2 * half + 1]);
}

/* The rows of a tile that a block finishes: its warps in turn, four columns a lane. The lanes of a warp stay
 * together; those behind the last column do everything but read and write global memory. */
struct split_k_share {
    int m, from, to, lane,
        column; /* m: first row of the tile; from: the warp's first row in it; to: one behind its last row */
    bool in;
    __device__ split_k_share(const split_k_job &job, int part, int parts)
        : m((int)blockIdx.z * ROWS), from(ROWS * part / parts + (int)threadIdx.x / 32),
          to(min(ROWS * (part + 1) / parts, job.M - m)), lane(threadIdx.x & 31),
          column((int)blockIdx.y * COLS + lane * 4), in(column < job.N)
    {
    }
};

/* On its way while the products run: [row][lane]. */
template <typename T>
__device__ static inline void fetch_residual(unsigned to, const split_k_job &job, const split_k_share &s)
{
#pragma unroll 1
    for (int row = s.from; row < s.to && job.residual; row += WARPS)
        if (s.in)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to + (row * 32 + s.lane) * 8),
                         "l"((const T *)job.residual + (s.m + row) * job.residual_row + s.column)
                         : "memory");
}

/* Adds this lane's columns of its rows over all parts, in the order of the parts, into `added` [row][lane].
 * All loads are issued before the first addition. */
__device__ static inline void add_parts(unsigned sums, float4 *added, const split_k_share &s, int parts)
{
    float4 one[ADDS], v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    int row = s.from, part = 0;
    auto step = [&] {
        if (++part == parts) part = 0, row += WARPS;
    };
#pragma unroll
    for (int j = 0; j < ADDS; j++, step())
        if (row < s.to)
            asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %4, "
                         "%5;\nld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [remote];\n}"
                         : "=f"(one[j].x), "=f"(one[j].y), "=f"(one[j].z), "=f"(one[j].w)
                         : "r"(sums + sum_place(row, s.lane) * 4), "r"(part));
    row = s.from, part = 0;
#pragma unroll
    for (int j = 0; j < ADDS; j++, step()) {
        v = part == 0 ? one[j] : make_float4(v.x + one[j].x, v.y + one[j].y, v.z + one[j].z, v.w + one[j].w);
        if (row < s.to && part == parts - 1) added[row * 32 + s.lane] = v;
    }
}

/* Applies the epilogue and writes y. Not unrolled: instructions are fetched from memory too. */
template <typename T, int ACT>
__device__ static inline void write_rows(const split_k_job &job, const split_k_share &s, const float4 *added,
                                         const uint2 *residual, uint2 bias)
{
    float2 b = wide_pair<T>(bias.x), c = wide_pair<T>(bias.y);
#pragma unroll 1
    for (int row = s.from; row < s.to; row += WARPS) {
        float4 v = added[row * 32 + s.lane];
        uint2 add = job.residual ? residual[row * 32 + s.lane] : make_uint2(0, 0);
        float2 r = wide_pair<T>(add.x), q = wide_pair<T>(add.y);
        uint2 made = make_uint2(narrow_pair<T>(hopper_act<ACT>(fmaf(job.alpha, v.x, b.x)) + r.x,
                                               hopper_act<ACT>(fmaf(job.alpha, v.y, b.y)) + r.y),
                                narrow_pair<T>(hopper_act<ACT>(fmaf(job.alpha, v.z, c.x)) + q.x,
                                               hopper_act<ACT>(fmaf(job.alpha, v.w, c.y)) + q.y));
        if (s.in) *reinterpret_cast<uint2 *>((T *)job.y + (s.m + row) * job.y_row + s.column) = made;
    }
}

template <typename T>
__device__ static inline void write_share(const split_k_job &job, const split_k_share &s, const float4 *added,
                                          const uint2 *residual, uint2 bias)
{
    switch (job.act) {
    case PROA_ACT_RELU: return write_rows<T, PROA_ACT_RELU>(job, s, added, residual, bias);
    case PROA_ACT_GELU: return write_rows<T, PROA_ACT_GELU>(job, s, added, residual, bias);
    case PROA_ACT_GELU_TANH: return write_rows<T, PROA_ACT_GELU_TANH>(job, s, added, residual, bias);
    case PROA_ACT_SILU: return write_rows<T, PROA_ACT_SILU>(job, s, added, residual, bias);
    default: return write_rows<T, PROA_ACT_NONE>(job, s, added, residual, bias);
    }
}

/* Cluster barrier: arrive, then wait for all threads of the cluster. WRITTEN: what this block wrote before is
 * visible to the others after it. */
template <bool WRITTEN> __device__ static inline void cluster_arrive()
{
    __syncwarp();
    if constexpr (WRITTEN) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    else asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ static inline void cluster_wait()
{
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The warps that multiply. */
template <typename T>
__device__ static inline void compute_part(const split_k_job &job, unsigned char *memory,
                                           const split_k_slots &slots, int count, int part, int parts)
{
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    split_k_share share(job, part, parts);
    float sum[32] = {};
    uint2 bias = make_uint2(0, 0);
    gpu_wait();
    fetch_residual<T>(slots.at + RESIDUAL_AT, job, share);
    if (job.bias && share.in) bias = *reinterpret_cast<const uint2 *>((const T *)job.bias + share.column);
    multiply_part<T>(sum, slots, count, group);
    gpu_named_sync(1, WARPS * 32); /* the sums overwrite the slots, which the other warpgroup reads too */
    store_sums(reinterpret_cast<float *>(memory), sum, group);
    cluster_arrive<true>();
    cluster_wait();
    float4 *added = reinterpret_cast<float4 *>(memory + ADDED_AT);
    add_parts(slots.at, added, share, parts);
    cluster_arrive<false>(); /* the parts have been read: they are added */
    asm volatile("cp.async.wait_all;" ::: "memory");
    write_share<T>(job, share, added, reinterpret_cast<const uint2 *>(memory + RESIDUAL_AT), bias);
}
#endif

/* See the head of the file. Grid: parts of K (one cluster), tiles along N, tiles along M. One block an SM,
 * 288 threads, BYTES (some 200 KB) of shared memory. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    gemm_split_k_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                        const __grid_constant__ split_k_job job)
{
#ifdef GPU_HOPPER
    extern __shared__ __align__(1024) unsigned char memory[];
    int part = blockIdx.x, parts = gridDim.x, first = job.slabs * part / parts,
        count = job.slabs * (part + 1) / parts - first;
    unsigned begin = gpu_smem_address(memory), barriers = begin + BARRIERS_AT;
    split_k_slots slots = {begin, barriers, barriers + 8 * SLOTS};
    cudaTriggerProgrammaticLaunchCompletion();
    if (threadIdx.x == WARPS * 32) {
        gpu_tensor_map_prefetch(&w), gpu_tensor_map_prefetch(&x);
        for (int i = 0; i < SLOTS; i++)
            gpu_barrier_init(slots.full + 8 * i, 1), gpu_barrier_init(slots.empty + 8 * i, WARPS);
        gpu_barrier_fence();
    }
    __syncthreads();
    if (threadIdx.x / 32 == WARPS) {
        load_part_slabs(slots, &x, &w, job.w_from_this_pass, first, count, blockIdx.z * ROWS, blockIdx.y * COLS);
        cluster_arrive<true>();
        cluster_wait();
        cluster_arrive<false>();
    } else compute_part<T>(job, memory, slots, count, part, parts);
    cluster_wait(); /* a block stays until the others have read its sums */
#endif
}

/* ---- choosing ---- */

static bool raise_shared_limit()
{
    return cudaFuncSetAttribute(gemm_split_k_kernel<__half>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                BYTES) == cudaSuccess &&
           cudaFuncSetAttribute(gemm_split_k_kernel<__nv_bfloat16>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES) == cudaSuccess;
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
    if (cudaOccupancyMaxActiveClusters(&count, gemm_split_k_kernel<__half>, &config) == cudaSuccess)
        return count;
    cudaGetLastError(); /* said by 0 */
    return 0;
}

void gpu_split_k_open(gpu *g)
{
    static_assert(sizeof g->split_k_clusters / sizeof g->split_k_clusters[0] == PARTS_MAX + 1,
                  "by the number of parts");
    bool allowed = g->hopper && raise_shared_limit();
    cudaGetLastError(); /* said by no clusters */
    for (int parts = 1; parts <= PARTS_MAX && allowed; parts *= 2)
        g->split_k_clusters[parts] = clusters_of(parts);
}

/* The number of parts, a power of two, for which all clusters run at once and a block waits least: for its
 * bytes of x and w, and for the sums of other blocks, which take four times as long a byte. 0: there is none,
 * or K is too long. */
int gpu_split_k_parts(const gpu *g, const gpu_product *p)
{
    int64_t tiles = (p->T + ROWS - 1) / ROWS * ((p->N + COLS - 1) / COLS),
            slabs = (p->K + HOPPER_SLAB - 1) / HOPPER_SLAB, least = 0;
    int best = 0;
    for (int parts = 1; parts <= PARTS_MAX && parts <= slabs; parts *= 2) {
        int64_t each = (slabs + parts - 1) / parts,
                cost = each * SLOT_BYTES + 4 * (ROWS * COLS * 4 / parts * (parts - 1));
        if (tiles > g->split_k_clusters[parts] || each > SLABS_MAX || (best && cost >= least)) continue;
        best = parts, least = cost;
    }
    return best;
}

bool gpu_split_k_run(gpu *g, const gpu_product *p, int act, const gpu_operands *at, void *y)
{
    CUtensorMap x, w;
    const void *residual = p->residual ? at->residual : NULL;
    bool half = p->x_type == CUDA_R_16F;
    if (((uintptr_t)at->bias | (uintptr_t)residual | (uintptr_t)y) % 8 != 0) return false;
    if (!hopper_map(&x, p->x_type, at->x, p->T, p->K, p->x_ld, ROWS) ||
        !hopper_map(&w, p->w_type, at->w, p->N, p->K, p->w_ld, COLS))
        return false;
    split_k_job job = {(int)((p->K + HOPPER_SLAB - 1) / HOPPER_SLAB),
                       (int)p->T,
                       (int)p->N,
                       act,
                       at->alpha,
                       p->y_row,
                       p->residual_row,
                       y,
                       at->bias,
                       residual,
                       at->w_from_this_pass};
    unsigned parts = (unsigned)gpu_split_k_parts(g, p);
    dim3 grid(parts, (unsigned)((p->N + COLS - 1) / COLS), (unsigned)((p->T + ROWS - 1) / ROWS));
    gpu_launch_clusters(g, "linear (split-K)",
                        half ? gemm_split_k_kernel<__half> : gemm_split_k_kernel<__nv_bfloat16>, grid, parts,
                        THREADS, BYTES, x, w, job);
    return true;
}
