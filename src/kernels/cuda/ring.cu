/* SPDX-License-Identifier: Apache-2.0
 * ring.cu - one and two rows of quantised weights on Hopper: the copy engine brings the weights into a ring in shared memory, so
 * what is on its way costs no registers. Blocks are few and stay: x is prepared once, and beside two of them an SM has room for
 * another kernel's blocks, attention's beside a branch's product, the next product's that fill their rings before gpu_wait. */
#include "kernels/cuda/linear/skinny_gemm.h"
#include "kernels/cuda/attention/tile.h"
#include "kernels/cuda/runtime/tma.h"

/* A tile is ROWS rows of weights; a step of it 64 bytes of each; a stage of the ring STEPS of them. The warps share a stage's
 * steps. Rows of a stage are apart by 64 of 128 bytes, so that lanes (r, c) of a load lie in different banks. 70 KB are on their way
 * to a block: half as much costs a quarter of Llama-2's speed (README.md). */
enum { ROWS = 16, STEP = 64, WARPS = 8, PER_SM = 2, SHARED_MAX = 112 << 10 };

template <int FORMAT, int STEPS> struct stage_of {
    enum {
        NUMBERS = STEP / 16 * opened<FORMAT>::COUNT, /* of a row in a step */
        STRIDE = STEPS * STEP + STEP,
        SCALES = ROWS * STRIDE, /* behind the weights */
        BYTES = SCALES + (FORMAT == PROA_WFMT_I4 ? STEPS * ROWS * 2 : 0)
    };
};

static int steps_of(int format, int K)
{
    int numbers = format == PROA_WFMT_I4 ? 128 : 64;
    return (K + numbers - 1) / numbers;
}

/* Shared memory: the ring, then these. x: of a step and row 8 pieces of 16 bytes, int4's 16. */
struct places {
    uint4 *x;
    float *offset, *room; /* offset [steps][M] of int4; room [2][WARPS][ROWS * M] */
    thin_ahead *aheads;   /* [tiles of this block][ROWS * M] */
};
template <int FORMAT, int M> __device__ static inline places places_at(char *at, int steps)
{
    places p;
    p.x = (uint4 *)at, at += steps * M * (int)sizeof(__half) * stage_of<FORMAT, 1>::NUMBERS;
    p.offset = (float *)at, at += FORMAT == PROA_WFMT_I4 ? (steps * M * 4 + 15) / 16 * 16 : 0;
    p.room = (float *)at, at += 2 * WARPS * ROWS * M * (int)sizeof(float);
    p.aheads = (thin_ahead *)at;
    return p;
}
static size_t places_bytes(int format, int M, int steps, int tiles)
{
    int x = format == PROA_WFMT_I4 ? steps * M * 256 + (steps * M * 4 + 15) / 16 * 16 : steps * M * 128;
    return (size_t)(x + 2 * WARPS * ROWS * M * (int)sizeof(float)) + (size_t)(tiles * ROWS * M) * sizeof(thin_ahead);
}

#ifdef GPU_HOPPER
__device__ static inline void bulk_copy(unsigned to, const void *from, int bytes, unsigned barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

/* Arrives when what this thread copied by cp.async is there. */
__device__ static inline void arrive_with_copies(unsigned barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* int4's scales of `count` groups from `group` on: 8 of a group are a piece, of rows that lie side by side. */
__device__ static inline void fetch_scales(const thin_call &a, const block_rows<ROWS> &rows, unsigned to, int group, int count)
{
    for (int i = threadIdx.x & 31; i < 2 * count; i += 32) {
        int n = rows.first + i % 2 * (a.e.half ? a.e.half : 8);
        if (n < a.N) copy_piece(to + i * 16, (const __half *)a.scales + (int64_t)(group + i / 2) * a.N + n);
    }
}

/* The warp that fetches: stage after stage of all tiles of this block, as room comes. */
template <int FORMAT, int STEPS, int D> __device__ static inline void fetch_all(const thin_call &a, unsigned ring, unsigned full, unsigned empty)
{
    typedef stage_of<FORMAT, STEPS> stage;
    int lane = threadIdx.x & 31, tiles = blocks_of(a.e, a.N, ROWS), steps = (a.K + stage::NUMBERS - 1) / stage::NUMBERS, d = 0, parity = 1;
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const block_rows<ROWS> rows(a.e, a.N, tile);
        const char *row = a.w + rows.row(lane % ROWS) * a.row_bytes;
        for (int first = 0; first < steps; first += STEPS) {
            int left = (int)a.row_bytes - first * STEP, bytes = left < STEPS * STEP ? left : STEPS * STEP;
            unsigned at = ring + d * stage::BYTES;
            gpu_await(empty + 8 * d, parity);
            if (lane == 0) gpu_expect(full + 8 * d, ROWS * bytes);
            __syncwarp();
            if (lane < ROWS) bulk_copy(at + lane * stage::STRIDE, row + first * STEP, bytes, full + 8 * d, policy);
            if constexpr (FORMAT == PROA_WFMT_I4) {
                fetch_scales(a, rows, at + stage::SCALES, first, steps - first < STEPS ? steps - first : STEPS);
                arrive_with_copies(full + 8 * d);
            }
            if (++d == D) d = 0, parity ^= 1;
        }
    }
}

/* A warp's sums of rows r and r + 8 of a tile: two chains of products, so that one need not wait for the other. */
template <int FORMAT, int M> struct tile_sum {
    float part[2][4] = {};
    /* One step. w: its first row; x: the step's. */
    __device__ void add(const char *w, int stride, const __half *, const uint4 *x, const float *)
    {
        typedef opened<FORMAT> form;
        int lane = threadIdx.x & 31, r = lane / 4, c = lane % 4;
        uint4 first = *(const uint4 *)(w + r * stride + c * 16), second = *(const uint4 *)(w + (r + 8) * stride + c * 16);
        const unsigned u[4] = {first.x, first.y, first.z, first.w}, v[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            uint4 b = x[r % M * 8 + c * 2 + j / 2];
            unsigned a[4];
            form::pairs(u, j, a[0], a[2]), form::pairs(v, j, a[1], a[3]);
            gpu_mma<__half>::run(part[0], a, b.x, b.y);
            form::pairs(u, j + 1, a[0], a[2]), form::pairs(v, j + 1, a[1], a[3]);
            gpu_mma<__half>::run(part[1], a, b.z, b.w);
        }
    }
    __device__ float of(int i, int m) const
    {
        return part[0][2 * i + m] + part[1][2 * i + m];
    }
};

template <int M> struct tile_sum<PROA_WFMT_I4, M> {
    float sum[2][M] = {};
    /* scale: of the 16 rows; off: of the step's rows of x. */
    __device__ void add(const char *w, int stride, const __half *scale, const uint4 *x, const float *off)
    {
        int lane = threadIdx.x & 31, r = lane / 4, c = lane % 4;
        uint4 first = *(const uint4 *)(w + r * stride + c * 16), second = *(const uint4 *)(w + (r + 8) * stride + c * 16);
        const unsigned u[4] = {first.x, first.y, first.z, first.w}, v[4] = {second.x, second.y, second.z, second.w};
        float part[2][4];
#pragma unroll
        for (int j = 0; j < 4; j++) part[0][j] = -off[j % M], part[1][j] = 0.0f;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint4 b = x[r % M * 16 + q * 4 + c];
            unsigned a[4];
            raise(a, u[q], v[q]);
            gpu_mma<__half>::run(part[0], a, b.x, b.y);
            raise(a, u[q] >> 8, v[q] >> 8);
            gpu_mma<__half>::run(part[1], a, b.z, b.w);
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int m = 0; m < M; m++)
                sum[j][m] = fmaf(__half2float(scale[r + 8 * j]), part[0][2 * j + m] + part[1][2 * j + m], sum[j][m]);
    }
    __device__ float of(int i, int m) const
    {
        return sum[i][m];
    }
};

/* The warps' sums of the block's tile t, together. */
template <int M, typename S> __device__ static inline void end_tile(const thin_call &a, const places &p, const S &sum, int t)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const block_rows<ROWS> rows(a.e, a.N, (int)blockIdx.x + t * (int)gridDim.x);
    float *room = p.room + (t & 1) * WARPS * ROWS * M;
    if (lane % 4 == 0)
#pragma unroll
        for (int m = 0; m < M; m++)
            room[(warp * ROWS + lane / 4) * M + m] = sum.of(0, m), room[(warp * ROWS + lane / 4 + 8) * M + m] = sum.of(1, m);
    gpu_named_sync(1, WARPS * 32); /* the other half of the room was read before */
    if (warp != t % WARPS || lane >= ROWS * M || !rows.makes(lane / M)) return; /* warps take turns */
    float v = 0.0f, u = 0.0f;
#pragma unroll
    for (int k = 0; k < WARPS; k++) v += room[k * ROWS * M + lane];
    if (a.e.half)
#pragma unroll
        for (int k = 0; k < WARPS; k++) u += room[k * ROWS * M + ROWS / 2 * M + lane];
    finish(a, v, u, lane % M, rows.first + lane / M, p.aheads[t * ROWS * M + lane]);
}

/* What the ends of this block's outputs read: behind gpu_wait the residual, before it all else. */
template <int FORMAT, int M> __device__ static inline void read_ahead(const thin_call &a, thin_ahead *aheads, int tiles, bool waited)
{
    for (int i = threadIdx.x; i < tiles * ROWS * M; i += WARPS * 32) {
        const block_rows<ROWS> rows(a.e, a.N, (int)blockIdx.x + i / (ROWS * M) * (int)gridDim.x);
        int j = i % (ROWS * M) / M;
        if (!rows.makes(j)) continue;
        if (waited) residual_ahead(&aheads[i].end, a.e, i % M, rows.first + j);
        else weights_ahead<FORMAT>(&aheads[i], a, rows.first + j);
    }
}

/* The rows of x into shared memory, zeros behind K; int4's as its products want them. */
template <int FORMAT, int M> __device__ static inline void put_x(const places &p, const thin_call &a, int steps)
{
    const int AT_ONCE = 8, THREADS = WARPS * 32;
    if constexpr (FORMAT == PROA_WFMT_I4) prepare_x<M, THREADS, AT_ONCE>(p.x, p.offset, a, steps);
    else
        for (int base = threadIdx.x; base < steps * M * 8; base += AT_ONCE * THREADS) {
            uint4 v[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                int i = base + u * THREADS;
                if (i < steps * M * 8) v[u] = load_eight((const __half *)a.x + i / 8 % M * a.x_row, i / (8 * M) * 64 + i % 8 * 8, a.K, a.aligned, true);
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (base + u * THREADS < steps * M * 8) p.x[base + u * THREADS] = v[u];
        }
}
#endif

/* WARPS warps multiply, step s of a stage is warp s % WARPS's; one more fetches. D stages. */
template <int FORMAT, int M, int STEPS, int D> __global__ void __launch_bounds__(WARPS * 32 + 32) ring_kernel(thin_call a)
{
#ifdef GPU_HOPPER
    typedef stage_of<FORMAT, STEPS> stage;
    extern __shared__ __align__(128) char ring[];
    __shared__ uint64_t barriers[2 * D];
    int warp = threadIdx.x / 32, steps = (a.K + stage::NUMBERS - 1) / stage::NUMBERS, tiles = blocks_of(a.e, a.N, ROWS);
    int here = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x; /* tiles of this block */
    unsigned full = gpu_shared(barriers), empty = full + D * 8;
    cudaTriggerProgrammaticLaunchCompletion();
    if (threadIdx.x == 0) {
        for (int d = 0; d < D; d++) gpu_barrier_init(full + 8 * d, FORMAT == PROA_WFMT_I4 ? 33 : 1), gpu_barrier_init(empty + 8 * d, WARPS);
        gpu_barriers_made();
    }
    __syncthreads();
    if (warp == WARPS) {
        fetch_all<FORMAT, STEPS, D>(a, gpu_shared(ring), full, empty);
        gpu_wait();
        return;
    }
    places p = places_at<FORMAT, M>(ring + D * stage::BYTES, steps);
    read_ahead<FORMAT, M>(a, p.aheads, here, false);
    gpu_wait();
    read_ahead<FORMAT, M>(a, p.aheads, here, true);
    put_x<FORMAT, M>(p, a, steps);
    gpu_named_sync(1, WARPS * 32);
    int d = 0, parity = 0;
    for (int t = 0; t < here; t++) {
        tile_sum<FORMAT, M> sum;
        for (int first = 0; first < steps; first += STEPS) {
            const char *at = ring + d * stage::BYTES;
            gpu_await(full + 8 * d, parity);
            for (int s = warp; s < STEPS && first + s < steps; s += WARPS)
                sum.add(at + s * STEP, stage::STRIDE, (const __half *)(at + stage::SCALES) + s * ROWS,
                        p.x + (first + s) * M * (stage::NUMBERS / 8), p.offset + (first + s) * M);
            __syncwarp();
            if ((threadIdx.x & 31) == 0) gpu_arrive(empty + 8 * d);
            if (++d == D) d = 0, parity ^= 1;
        }
        end_tile<M>(a, p, sum, t);
    }
#endif
}

/* ---- choosing: of long rows stages of 32 steps, of shorter ones more stages of 16 ---- */

enum { LONG = 32, LONG_STAGES = 2, SHORT = 16, SHORT_STAGES = 4, SHORT_MIN = 12 };

struct ring_plan {
    bool is_long;
    int blocks;
    size_t shared;
};
static ring_plan plan_of(const gpu *g, proa_wfmt format, int M, int K, int tiles)
{
    int most = g->sms * PER_SM, each = (tiles + most - 1) / most, steps = steps_of(format, K); /* each: tiles of a block, at most */
    size_t ring = LONG_STAGES * stage_of<PROA_WFMT_I8W, LONG>::BYTES;
    if (steps < LONG) ring = SHORT_STAGES * stage_of<PROA_WFMT_I8W, SHORT>::BYTES;
    if (format == PROA_WFMT_I4) ring = LONG_STAGES * stage_of<PROA_WFMT_I4, LONG>::BYTES;
    return {steps >= LONG, (tiles + each - 1) / each, ring + places_bytes(format, M, steps, each)};
}

template <int FORMAT, int M, int STEPS, int D> static void launch(gpu *g, const thin_call &a, const ring_plan &p)
{
    auto kernel = ring_kernel<FORMAT, M, STEPS, D>;
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MAX), "linear (ring)");
    gpu_launch(g, "linear (ring)", kernel, dim3((unsigned)p.blocks), (WARPS + 1) * 32, p.shared, a);
}

/* One row of 8 bits is faster by row_kernel, as are shorter sums of int4 by stay_kernel; where tiles are fewer than half of the SMs,
 * smaller ones are better. int4's scales come in pieces of 8 outputs. */
bool ring_takes(const gpu *g, const proa_weight *w, int64_t rows, int half)
{
    if (!g->hopper || !proa_wfmt_is_quantised(w->format) || rows > RING_ROWS) return false;
    int steps = steps_of(w->format, (int)w->K), tiles = half ? (half + ROWS / 2 - 1) / (ROWS / 2) : ((int)w->N + ROWS - 1) / ROWS;
    if (w->format == PROA_WFMT_I4 ? steps < LONG || w->N % 8 != 0 || half % 8 != 0 : rows == 1 || steps < SHORT_MIN || 2 * tiles < g->sms)
        return false;
    return plan_of(g, w->format, (int)rows, (int)w->K, tiles).shared <= SHARED_MAX;
}

void ring_linear(gpu *g, thin_call a, proa_wfmt format)
{
    ring_plan p = plan_of(g, format, a.M, a.K, blocks_of(a.e, a.N, ROWS));
    if (format == PROA_WFMT_I4) {
        a.unit = 1.0f;
        a.M == 1 ? launch<PROA_WFMT_I4, 1, LONG, LONG_STAGES>(g, a, p) : launch<PROA_WFMT_I4, 2, LONG, LONG_STAGES>(g, a, p);
    } else if (format == PROA_WFMT_FP8)
        p.is_long ? launch<PROA_WFMT_FP8, 2, LONG, LONG_STAGES>(g, a, p) : launch<PROA_WFMT_FP8, 2, SHORT, SHORT_STAGES>(g, a, p);
    else p.is_long ? launch<PROA_WFMT_I8W, 2, LONG, LONG_STAGES>(g, a, p) : launch<PROA_WFMT_I8W, 2, SHORT, SHORT_STAGES>(g, a, p);
}
