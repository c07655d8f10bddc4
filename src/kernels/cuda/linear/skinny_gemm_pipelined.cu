/* SPDX-License-Identifier: Apache-2.0
 * skinny_gemm_pipelined.cu - one and two rows of quantised weights on Hopper. Bulk copies (TMA) bring the
 * weights into a ring of stages in shared memory, so loads in flight cost no registers. Blocks are few and
 * persistent: x is prepared once, and beside two of them an SM has room for blocks of another kernel:
 * attention's beside a branch's product, or those of the next product, which fill their rings before
 * gpu_wait. */
#include "kernels/cuda/linear/skinny_gemm.h"
#include "kernels/cuda/attention/tile.h"
#include "kernels/cuda/runtime/tma.h"

/* A tile is ROWS rows of weights, a step 64 bytes of each row, a stage STEPS steps:
 *
 *              step 0   step 1  ...  step STEPS - 1
 *    row 0    [64 B   ][64 B   ]    [64 B   ] + 64 B of padding, so that the lanes of a load use different banks
 *    ...
 *    row 15   [64 B   ][64 B   ]    [64 B   ]
 *    int4: the factors of the stage, of each 8 rows [STEPS][8]
 *
 * Warp w of 8 multiplies the steps w, w + 8, ... of a stage; a ninth warp loads. About 70 KB are in flight to
 * each block, two blocks an SM; half as much costs a quarter of Llama-2's speed (docs/lab/cuda-gemm.md). */
enum { ROWS = 16, STEP = 64, WARPS = 8, PER_SM = 2, SHARED_MAX = 112 << 10 };

template <int FORMAT, int STEPS> struct stage_of {
    enum {
        NUMBERS = STEP / 16 * unpacked<FORMAT>::COUNT, /* of a row in a step */
        STRIDE = STEPS * STEP + STEP,
        SCALES = ROWS * STRIDE, /* behind the weights */
        BYTES = SCALES + (group_factors<FORMAT>::USED ? STEPS * ROWS * (int)sizeof(group_factors<FORMAT>) : 0)
    };
};

static int steps_of(proa_wfmt format, int K)
{
    int numbers = proa_wfmt_is_int4(format) ? PROA_CODED_STEP : 64;
    return (K + numbers - 1) / numbers;
}

/* Shared memory behind the ring. x: for each step and row 8 pieces of 16 bytes, for int4 16. */
struct shared_layout {
    uint4 *x;
    float *x_sum, *scratch;    /* x_sum of int4: prepare_x; room [2][WARPS][ROWS * M] */
    skinny_operands *operands; /* [tiles of this block][ROWS * M] */
};
template <int FORMAT, int X_ROWS> __device__ static inline shared_layout shared_layout_at(char *at, int steps)
{
    shared_layout p;
    p.x = (uint4 *)at, at += steps * X_ROWS * (int)sizeof(__half) * stage_of<FORMAT, 1>::NUMBERS;
    p.x_sum = (float *)at,
    at += group_factors<FORMAT>::USED ? (steps * X_ROWS * x_sums<FORMAT>() * 4 + 15) / 16 * 16 : 0;
    p.scratch = (float *)at, at += 2 * WARPS * ROWS * X_ROWS * (int)sizeof(float);
    p.operands = (skinny_operands *)at;
    return p;
}
static size_t shared_layout_bytes(proa_wfmt format, int x_rows, int steps, int tiles)
{
    int sums = format == PROA_WFMT_I4A32 ? x_sums<PROA_WFMT_I4A32>()
               : format == PROA_WFMT_I4A ? x_sums<PROA_WFMT_I4A>()
                                         : x_sums<PROA_WFMT_I4>();
    int x = proa_wfmt_is_int4(format) ? steps * x_rows * 256 + (steps * x_rows * sums * 4 + 15) / 16 * 16
                                      : steps * x_rows * 128;
    return (size_t)(x + 2 * WARPS * ROWS * x_rows * (int)sizeof(float)) +
           (size_t)(tiles * ROWS * x_rows) * sizeof(skinny_operands);
}

#ifdef GPU_HOPPER
__device__ static inline void bulk_copy(unsigned to, const void *from, int bytes, unsigned barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

/* The first row of the upper 8 of a tile, and whether there are such. */
__device__ static inline int upper_rows(const skinny_call &a, const block_rows<ROWS> &rows)
{
    return rows.first + (a.e.gate_rows ? a.e.gate_rows : 8);
}

/* The producer warp: loads stage after stage of all tiles of this block, as stages become empty. */
template <int FORMAT, int STEPS, int STAGES>
__device__ static inline void produce_stages(const skinny_call &a, unsigned weight_ring, unsigned full,
                                             unsigned empty)
{
    typedef stage_of<FORMAT, STEPS> stage;
    const int TILE_BYTES = PROA_CODED_TILE * (int)sizeof(group_factors<FORMAT>); /* a step's factors of 8 rows */
    int lane = threadIdx.x & 31, tiles = blocks_of(a.e, a.N, ROWS),
        steps = (a.K + stage::NUMBERS - 1) / stage::NUMBERS, d = 0, parity = 1;
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const block_rows<ROWS> rows(a.e, a.N, tile);
        const char *row = a.w + rows.row(lane % ROWS) * a.row_bytes;
        int upper = upper_rows(a, rows), halves = upper < a.N ? 2 : 1;
        for (int first = 0; first < steps; first += STEPS) {
            int left = (int)a.row_bytes - first * STEP, bytes = left < STEPS * STEP ? left : STEPS * STEP;
            unsigned at = weight_ring + d * stage::BYTES;
            gpu_barrier_wait(empty + 8 * d, parity);
            int of_factors = group_factors<FORMAT>::USED ? bytes / STEP * TILE_BYTES : 0; /* of 8 rows */
            if (lane == 0) gpu_barrier_expect(full + 8 * d, ROWS * bytes + halves * of_factors);
            __syncwarp();
            if (lane < ROWS)
                bulk_copy(at + lane * stage::STRIDE, row + first * STEP, bytes, full + 8 * d, policy);
            else if (group_factors<FORMAT>::USED && lane - ROWS < halves) {
                int n = lane == ROWS ? rows.first : upper;
                const char *from = (const char *)a.scales +
                                   ((int64_t)(n / PROA_CODED_TILE) * steps + first) * TILE_BYTES;
                bulk_copy(at + stage::SCALES + (lane - ROWS) * STEPS * TILE_BYTES, from, of_factors,
                          full + 8 * d, policy);
            }
            if (++d == STAGES) d = 0, parity ^= 1;
        }
    }
}

/* A warp's sums of rows r and r + 8 of a tile, in two chains of products so that one need not wait for the
 * other. */
template <int FORMAT, int X_ROWS> struct tile_sum {
    float part[2][4] = {};
    /* One step. w: its first row; x: the step's. */
    __device__ void add(const char *w, int stride, const char *, int, const uint4 *x, const float *)
    {
        typedef unpacked<FORMAT> form;
        int lane = threadIdx.x & 31, r = lane / 4, c = lane % 4;
        uint4 first = *(const uint4 *)(w + r * stride + c * 16),
              second = *(const uint4 *)(w + (r + 8) * stride + c * 16);
        const unsigned u[4] = {first.x, first.y, first.z, first.w},
                       v[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            uint4 b = x[r % X_ROWS * 8 + c * 2 + j / 2];
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

template <int FORMAT, int X_ROWS> struct group_tile_sum {
    float sum[2][X_ROWS] = {};
    /* factors: of the first 8 rows; those of the others are `upper` bytes behind. x_sum: of the step's rows of x. */
    __device__ void add(const char *w, int stride, const char *factors, int upper, const uint4 *x,
                        const float *x_sum)
    {
        int lane = threadIdx.x & 31, r = lane / 4, c = lane % 4;
        uint4 first = *(const uint4 *)(w + r * stride + c * 16),
              second = *(const uint4 *)(w + (r + 8) * stride + c * 16);
        const unsigned u[4] = {first.x, first.y, first.z, first.w},
                       v[4] = {second.x, second.y, second.z, second.w};
        typedef group_factors<FORMAT> factor;
        const factor of_rows[2] = {((const factor *)(const void *)factors)[r],
                                   ((const factor *)(const void *)(factors + upper))[r]};
        add_nibble_step<FORMAT, X_ROWS, 2>(sum, u, v, x, x_sum, of_rows);
    }
    __device__ float of(int i, int m) const
    {
        return sum[i][m];
    }
};
template <int X_ROWS> struct tile_sum<PROA_WFMT_I4, X_ROWS> : group_tile_sum<PROA_WFMT_I4, X_ROWS> {
};
template <int X_ROWS> struct tile_sum<PROA_WFMT_I4A, X_ROWS> : group_tile_sum<PROA_WFMT_I4A, X_ROWS> {
};
template <int X_ROWS> struct tile_sum<PROA_WFMT_I4A32, X_ROWS> : group_tile_sum<PROA_WFMT_I4A32, X_ROWS> {
};

/* The warps' sums of the block's tile t, together. */
template <int X_ROWS, typename S>
__device__ static inline void finish_tile(const skinny_call &a, const shared_layout &p, const S &sum, int t)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const block_rows<ROWS> rows(a.e, a.N, (int)blockIdx.x + t * (int)gridDim.x);
    float *scratch = p.scratch + (t & 1) * WARPS * ROWS * X_ROWS;
    if (lane % 4 == 0)
#pragma unroll
        for (int m = 0; m < X_ROWS; m++)
            scratch[(warp * ROWS + lane / 4) * X_ROWS + m] = sum.of(0, m),
                                                        scratch[(warp * ROWS + lane / 4 + 8) * X_ROWS + m] =
                                                            sum.of(1, m);
    gpu_named_sync(1, WARPS * 32); /* the other half of the room was read before */
    if (warp != t % WARPS || lane >= ROWS * X_ROWS || !rows.makes(lane / X_ROWS))
        return; /* warps take turns */
    float v = 0.0f, u = 0.0f;
#pragma unroll
    for (int k = 0; k < WARPS; k++) v += scratch[k * ROWS * X_ROWS + lane];
    if (a.e.gate_rows)
#pragma unroll
        for (int k = 0; k < WARPS; k++) u += scratch[k * ROWS * X_ROWS + ROWS / 2 * X_ROWS + lane];
    store_output(a, v, u, lane % X_ROWS, rows.first + lane / X_ROWS, p.operands[t * ROWS * X_ROWS + lane]);
}

/* Loads what the epilogues of this block's outputs read: before gpu_wait biases and scales, after it (waited)
 * the residual. */
template <int FORMAT, int X_ROWS>
__device__ static inline void prefetch_operands(const skinny_call &a, skinny_operands *operands, int tiles,
                                                bool waited)
{
    for (int i = threadIdx.x; i < tiles * ROWS * X_ROWS; i += WARPS * 32) {
        const block_rows<ROWS> rows(a.e, a.N, (int)blockIdx.x + i / (ROWS * X_ROWS) * (int)gridDim.x);
        int j = i % (ROWS * X_ROWS) / X_ROWS;
        if (!rows.makes(j)) continue;
        if (waited) prefetch_residual(&operands[i].end, a.e, i % X_ROWS, rows.first + j);
        else prefetch_scales<FORMAT>(&operands[i], a, rows.first + j);
    }
}

/* Copies the rows of x to shared memory, zeros behind K; for int4 in the order of its products. */
template <int FORMAT, int X_ROWS>
__device__ static inline void stage_x(const shared_layout &p, const skinny_call &a, int steps)
{
    const int AT_ONCE = 8, THREADS = WARPS * 32;
    if constexpr (group_factors<FORMAT>::USED)
        prepare_x<FORMAT, X_ROWS, THREADS, AT_ONCE>(p.x, p.x_sum, a, steps);
    else
        for (int base = threadIdx.x; base < steps * X_ROWS * 8; base += AT_ONCE * THREADS) {
            uint4 v[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                int i = base + u * THREADS;
                if (i < steps * X_ROWS * 8)
                    v[u] = load_vec8((const __half *)a.x + i / 8 % X_ROWS * a.x_row,
                                     i / (8 * X_ROWS) * 64 + i % 8 * 8, a.K, a.aligned, true);
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (base + u * THREADS < steps * X_ROWS * 8) p.x[base + u * THREADS] = v[u];
        }
}
#endif

/* y for X_ROWS rows (1 or 2) of f16; weights in e4m3, int8 or int4. WARPS consumer warps and one producer
 * warp; STAGES stages. full[stage] counts the bytes that have arrived, empty[stage] the warps that have read. */
template <int FORMAT, int X_ROWS, int STEPS, int STAGES>
__global__ void __launch_bounds__(WARPS * 32 + 32) skinny_gemm_pipelined_kernel(skinny_call a)
{
#ifdef GPU_HOPPER
    typedef stage_of<FORMAT, STEPS> stage;
    const int TILE_BYTES = PROA_CODED_TILE * (int)sizeof(group_factors<FORMAT>);
    extern __shared__ __align__(128) char weight_ring[];
    __shared__ uint64_t barriers[2 * STAGES];
    int warp = threadIdx.x / 32, steps = (a.K + stage::NUMBERS - 1) / stage::NUMBERS,
        tiles = blocks_of(a.e, a.N, ROWS);
    int block_tiles = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x; /* tiles of this block */
    unsigned full = gpu_smem_address(barriers), empty = full + STAGES * 8;
    cudaTriggerProgrammaticLaunchCompletion();
    if (threadIdx.x == 0) {
        for (int d = 0; d < STAGES; d++)
            gpu_barrier_init(full + 8 * d, 1), gpu_barrier_init(empty + 8 * d, WARPS);
        gpu_barrier_fence();
    }
    __syncthreads();
    if (warp == WARPS) {
        produce_stages<FORMAT, STEPS, STAGES>(a, gpu_smem_address(weight_ring), full, empty);
        gpu_wait();
        return;
    }
    shared_layout p = shared_layout_at<FORMAT, X_ROWS>(weight_ring + STAGES * stage::BYTES, steps);
    prefetch_operands<FORMAT, X_ROWS>(a, p.operands, block_tiles, false);
    gpu_wait();
    prefetch_operands<FORMAT, X_ROWS>(a, p.operands, block_tiles, true);
    stage_x<FORMAT, X_ROWS>(p, a, steps);
    gpu_named_sync(1, WARPS * 32);
    int d = 0, parity = 0;
    for (int t = 0; t < block_tiles; t++) {
        tile_sum<FORMAT, X_ROWS> sum;
        for (int first = 0; first < steps; first += STEPS) {
            const char *at = weight_ring + d * stage::BYTES;
            gpu_barrier_wait(full + 8 * d, parity);
            for (int s = warp; s < STEPS && first + s < steps; s += WARPS)
                sum.add(at + s * STEP, stage::STRIDE, at + stage::SCALES + s * TILE_BYTES, STEPS * TILE_BYTES,
                        p.x + (first + s) * X_ROWS * (stage::NUMBERS / 8),
                        p.x_sum + (first + s) * X_ROWS * x_sums<FORMAT>());
            __syncwarp();
            if ((threadIdx.x & 31) == 0) gpu_barrier_arrive(empty + 8 * d);
            if (++d == STAGES) d = 0, parity ^= 1;
        }
        finish_tile<X_ROWS>(a, p, sum, t);
    }
#endif
}

/* ---- the form: long rows get stages of 32 steps, shorter ones more stages of 16 ---- */

/* I4A32 has a quarter more bytes a step. */
enum { LONG = 32, LONG_STAGES = 2, SHORT = 16, SHORT_STAGES = 4, SHORT_MIN = 12, I4A32_LONG = 24 };

struct pipeline_plan {
    bool is_long;
    int blocks;
    size_t shared;
};
static pipeline_plan plan_of(const gpu *g, proa_wfmt format, int x_rows, int K, int tiles)
{
    int most = g->sms * PER_SM, each = (tiles + most - 1) / most,
        steps = steps_of(format, K); /* each: tiles of a block, at most */
    size_t weight_ring = LONG_STAGES * stage_of<PROA_WFMT_I8W, LONG>::BYTES;
    if (steps < LONG) weight_ring = SHORT_STAGES * stage_of<PROA_WFMT_I8W, SHORT>::BYTES;
    if (format == PROA_WFMT_I4) weight_ring = LONG_STAGES * stage_of<PROA_WFMT_I4, LONG>::BYTES;
    if (format == PROA_WFMT_I4A) weight_ring = LONG_STAGES * stage_of<PROA_WFMT_I4A, LONG>::BYTES;
    if (format == PROA_WFMT_I4A32) weight_ring = LONG_STAGES * stage_of<PROA_WFMT_I4A32, I4A32_LONG>::BYTES;
    return {steps >= LONG, (tiles + each - 1) / each,
            weight_ring + shared_layout_bytes(format, x_rows, steps, each)};
}

template <int FORMAT, int X_ROWS, int STEPS, int STAGES>
static void launch_pipelined(gpu *g, const skinny_call &a, const pipeline_plan &p)
{
    auto kernel = skinny_gemm_pipelined_kernel<FORMAT, X_ROWS, STEPS, STAGES>;
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MAX),
             "linear (pipelined)");
    gpu_launch(g, "linear (pipelined)", kernel, dim3((unsigned)p.blocks), (WARPS + 1) * 32, p.shared, a);
}

/* One row of 8 bits is faster with gemv_quant_kernel, and short rows of int4 with
 * gemv_int4_persistent_kernel. With fewer tiles than half of the SMs smaller tiles are better. The factors of
 * int4 are copied for 8 rows at a time. */
bool pipelined_takes(const gpu *g, const proa_weight *w, int64_t rows, int half)
{
    if (!g->hopper || !proa_wfmt_is_quantised(w->format) || rows > PIPELINED_ROWS) return false;
    if (w->format == PROA_WFMT_MXFP4W) return false; /* rare but for experts */
    if (w->format == PROA_WFMT_I8G || w->format == PROA_WFMT_FP8G) return false;
    int steps = steps_of(w->format, (int)w->K),
        tiles = half ? (half + ROWS / 2 - 1) / (ROWS / 2) : ((int)w->N + ROWS - 1) / ROWS;
    if (proa_wfmt_is_int4(w->format) ? steps < LONG || half % PROA_CODED_TILE != 0
                                     : rows == 1 || steps < SHORT_MIN || 2 * tiles < g->sms)
        return false;
    return plan_of(g, w->format, (int)rows, (int)w->K, tiles).shared <= SHARED_MAX;
}

void skinny_gemm_pipelined(gpu *g, skinny_call a, proa_wfmt format)
{
    pipeline_plan p = plan_of(g, format, a.M, a.K, blocks_of(a.e, a.N, ROWS));
    if (proa_wfmt_is_int4(format)) a.unit = 1.0f;
    if (format == PROA_WFMT_I4)
        a.M == 1 ? launch_pipelined<PROA_WFMT_I4, 1, LONG, LONG_STAGES>(g, a, p)
                 : launch_pipelined<PROA_WFMT_I4, 2, LONG, LONG_STAGES>(g, a, p);
    else if (format == PROA_WFMT_I4A)
        a.M == 1 ? launch_pipelined<PROA_WFMT_I4A, 1, LONG, LONG_STAGES>(g, a, p)
                 : launch_pipelined<PROA_WFMT_I4A, 2, LONG, LONG_STAGES>(g, a, p);
    else if (format == PROA_WFMT_I4A32)
        a.M == 1 ? launch_pipelined<PROA_WFMT_I4A32, 1, I4A32_LONG, LONG_STAGES>(g, a, p)
                 : launch_pipelined<PROA_WFMT_I4A32, 2, I4A32_LONG, LONG_STAGES>(g, a, p);
    else if (format == PROA_WFMT_FP8)
        p.is_long ? launch_pipelined<PROA_WFMT_FP8, 2, LONG, LONG_STAGES>(g, a, p)
                  : launch_pipelined<PROA_WFMT_FP8, 2, SHORT, SHORT_STAGES>(g, a, p);
    else
        p.is_long ? launch_pipelined<PROA_WFMT_I8W, 2, LONG, LONG_STAGES>(g, a, p)
                  : launch_pipelined<PROA_WFMT_I8W, 2, SHORT, SHORT_STAGES>(g, a, p);
}
