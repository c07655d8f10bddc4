/* SPDX-License-Identifier: Apache-2.0
 * skinny_gemm.cu - products of up to 16 rows (16-bit weights: up to 64 where they are small) with weights of
 * 16, 8 and 4 bits. They are bound by the bytes of the weights, which are streamed once, unpacked in
 * registers and multiplied on tensor cores; columns of rows that do not exist cost nothing. One and two rows
 * of quantised weights have kernels of their own, here and in skinny_gemm_pipelined.cu.
 *
 * The order of k within a product is free as long as both sides agree: each lane takes 16 bytes of a row of
 * weights and the numbers of x at the same places, so neither is ever moved between lanes. */
#include "kernels/cuda/linear/skinny_gemm.h"

enum { ROW_THREADS = 128, MORE_ROWS = 64 }; /* MORE_ROWS: of 16 bits and of narrow formats */

/* ---- one and two rows of quantised weights on CUDA cores: tensor cores would need 16 rows of weights for
 * each warp, and small blocks begin and end faster ---- */

/* sum[m] += the products of 16 bytes of weights with x[m], numbers as `unpacked` has them. */
template <int FORMAT, int X_ROWS>
__device__ static inline void add_piece(float sum[X_ROWS], const unsigned w[4],
                                        const __half2 (&x)[X_ROWS][unpacked<FORMAT>::COUNT / 2],
                                        const group_factors<FORMAT> &factors)
{
    typedef group_factors<FORMAT> groups;
    const int FOURS = unpacked<FORMAT>::COUNT / 4, EACH = FOURS / groups::GROUPS;
#pragma unroll
    for (int g = 0; g < groups::GROUPS; g++) {
        float part[X_ROWS] = {}, inputs[X_ROWS] = {};
#pragma unroll
        for (int j = g * EACH; j < (g + 1) * EACH; j++) {
            unsigned first, second;
            fast_unpacked<FORMAT>::pairs(w, j, first, second);
#pragma unroll
            for (int m = 0; m < X_ROWS; m++) {
                float2 f = __half22float2(__hfma2(*reinterpret_cast<__half2 *>(&second), x[m][2 * j + 1],
                                                  __hmul2(*reinterpret_cast<__half2 *>(&first), x[m][2 * j])));
                float2 in = __half22float2(__hadd2(x[m][2 * j], x[m][2 * j + 1]));
                part[m] += f.x + f.y;
                if (groups::OFFSETS) inputs[m] += in.x + in.y;
            }
        }
#pragma unroll
        for (int m = 0; m < X_ROWS; m++) { /* codes of four bits were unpacked as eighths of themselves */
            sum[m] += groups::USED ? part[m] * factors.scale(g) : part[m];
            if (groups::OFFSETS) sum[m] = fmaf(inputs[m], 0.125f * factors.offset(g), sum[m]);
        }
    }
}

/* y for X_ROWS (1, 2) rows of f16 and weights in e4m3, int8 or int4.
 *
 *   block        128 threads make OUTPUTS outputs; the threads share K in pieces of 16 bytes
 *   arithmetic   two products are added in f16, then in f32; x is divided by 4 so that the pair stays within f16's range
 *   registers    OUTPUTS pieces of weights in flight, x of one step as f16 pairs; BLOCKS blocks an SM
 *   shared       4 warps x OUTPUTS x X_ROWS floats */
template <int FORMAT, int X_ROWS, int OUTPUTS, int BLOCKS>
__global__ void __launch_bounds__(ROW_THREADS, BLOCKS) gemv_quant_kernel(skinny_call a)
{
    typedef unpacked<FORMAT> form;
    typedef group_factors<FORMAT> groups;
    const int COUNT = form::COUNT, STEP = ROW_THREADS * COUNT;
    __shared__ float scratch[ROW_THREADS / 32][OUTPUTS * X_ROWS];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const block_rows<OUTPUTS> rows(a.e, a.N, blockIdx.x);
    unsigned next[OUTPUTS][4], from[OUTPUTS]; /* from: in pieces of 16 bytes */
    groups factors[OUTPUTS];
    float sum[OUTPUTS][X_ROWS] = {};
    const int GROUP_STEP = 4 * COUNT; /* inputs that four threads share */
    int steps = (a.K + GROUP_STEP - 1) / GROUP_STEP, c = threadIdx.x & 3, before = groups::USED ? c * COUNT : 0;
#pragma unroll
    for (int r = 0; r < OUTPUTS; r++) from[r] = (unsigned)rows.row(r) * (unsigned)(a.row_bytes / 16);
    auto fetch = [&](int k) {
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++) {
            uint4 v = load_row_stream((const uint4 *)a.w + (from[r] + k / COUNT));
            next[r][0] = v.x, next[r][1] = v.y, next[r][2] = v.z, next[r][3] = v.w;
            factors[r].load(a.scales, steps, rows.row(r), k / GROUP_STEP);
        }
    };
    int k = threadIdx.x * COUNT, m_end = threadIdx.x % X_ROWS,
        n_end = rows.first + (int)threadIdx.x / X_ROWS; /* what this thread finishes */
    bool ends = rows.makes((int)threadIdx.x / X_ROWS);
    skinny_operands ahead = {};
    if (k - before < a.K) fetch(k);
    if (ends) prefetch_scales<FORMAT>(&ahead, a, n_end);
    gpu_wait();
    if (ends) prefetch_residual(&ahead.end, a.e, m_end, n_end);
    for (; k - before < a.K; k += STEP) {
        __half2 x[X_ROWS][COUNT / 2];
#pragma unroll
        for (int m = 0; m < X_ROWS; m++)
#pragma unroll
            for (int i = 0; i < COUNT / 8; i++) {
                int at = k - c * COUNT + form::inputs(c, 2 * i);
                uint4 v = load_vec8((const __half *)a.x + m * a.x_row, at, a.K, a.aligned);
                __half2 *to = &x[m][4 * i];
                to[0] = *reinterpret_cast<__half2 *>(&v.x), to[1] = *reinterpret_cast<__half2 *>(&v.y);
                to[2] = *reinterpret_cast<__half2 *>(&v.z), to[3] = *reinterpret_cast<__half2 *>(&v.w);
#pragma unroll
                for (int j = 0; j < 4; j++) to[j] = __hmul2(to[j], __half2half2(__ushort_as_half(0x3400)));
            }
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++) {
            add_piece<FORMAT, X_ROWS>(sum[r], next[r], x, factors[r]);
        }
        if (k + STEP - before < a.K) fetch(k + STEP);
    }
#pragma unroll
    for (int r = 0; r < OUTPUTS; r++)
#pragma unroll
        for (int m = 0; m < X_ROWS; m++) {
            float v = gpu_warp_sum(sum[r][m]);
            if (lane == 0) scratch[warp][r * X_ROWS + m] = v;
        }
    __syncthreads();
    if (!ends) return;
    float v = 0.0f, u = 0.0f;
#pragma unroll
    for (int i = 0; i < ROW_THREADS / 32; i++) v += scratch[i][threadIdx.x];
    if (a.e.gate_rows)
#pragma unroll
        for (int i = 0; i < ROW_THREADS / 32; i++) u += scratch[i][threadIdx.x + OUTPUTS / 2 * X_ROWS];
    store_output(a, 4.0f * v, 4.0f * u, m_end, n_end, ahead);
}

/* ---- one row that an RMS norm makes ---- */

enum { NORM_OUTPUTS = 6, NORM_BLOCKS = 7, NORM_COUNT = 16 }; /* COUNT: numbers of a thread, of 8 bits each */

struct norm_gemv_call {
    skinny_call product; /* x is not read */
    const float *x, *w;  /* of the norm */
    float eps;
    __half *n; /* the normed row: each block writes `part` numbers of it */
    int part;
};

/* A thread's numbers of the row, each times its weight of the norm and times a power of two with which the largest of
 * its group of four lanes is below 2^13, so that they are within f16's range. */
struct scaled_row {
    unsigned x[NORM_COUNT / 2]; /* pairs of f16 */
    float back, squares; /* back: one over that power of two; squares: of the row's own numbers, added */
    __device__ scaled_row(const float *from, const __half2 (&gain)[NORM_COUNT / 2], bool mine)
    {
        float v[NORM_COUNT] = {}, most = 0.0f;
        squares = 0.0f;
#pragma unroll
        for (int i = 0; i < NORM_COUNT / 4 && mine; i++) {
            float4 four = reinterpret_cast<const float4 *>(from)[i];
            v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < NORM_COUNT; i++) {
            float2 pair = __half22float2(gain[i / 2]);
            squares = fmaf(v[i], v[i], squares);
            v[i] *= i % 2 ? pair.y : pair.x;
            most = fmaxf(most, fabsf(v[i]));
        }
#pragma unroll
        for (int o = 1; o < 4; o *= 2) /* the same for a group, whose products are added */
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, o));
        int exponent = (int)(__float_as_uint(most) >> 23),
            up = min(254, 127 + 12 + 127 - exponent); /* at least 11 */
        float scale = __uint_as_float((unsigned)up << 23);
        back = __uint_as_float((unsigned)(254 - up) << 23);
#pragma unroll
        for (int i = 0; i < NORM_COUNT / 2; i++)
            x[i] = gpu_mma<__half>::pair(v[2 * i] * scale, v[2 * i + 1] * scale);
    }
};

__device__ static inline void fetch_outputs(unsigned (&next)[NORM_OUTPUTS][4], const skinny_call &a,
                                            const block_rows<NORM_OUTPUTS> &rows, int k)
{
#pragma unroll
    for (int r = 0; r < NORM_OUTPUTS; r++) {
        uint4 v = load_row_stream(a.w + (int64_t)rows.row(r) * a.row_bytes + k);
        next[r][0] = v.x, next[r][1] = v.y, next[r][2] = v.z, next[r][3] = v.w;
    }
}

__device__ static inline void load_gain(__half2 (&gain)[NORM_COUNT / 2], const float *w)
{
#pragma unroll
    for (int i = 0; i < NORM_COUNT / 4; i++) {
        float4 v = reinterpret_cast<const float4 *>(w)[i];
        gain[2 * i] = __floats2half2_rn(v.x, v.y), gain[2 * i + 1] = __floats2half2_rn(v.z, v.w);
    }
}

/* y = epilogue(n W^T), n the RMS norm of x, weights in e4m3 or int8, for K of up to 128 x 16 numbers.
 *
 *   block        128 threads make NORM_OUTPUTS outputs; a thread has 16 inputs of each
 *   arithmetic   on tensor cores in place (multiply_rows); what the norm divides by is applied to the sums, so that
 *                no barrier stands between x and the products
 *   registers    6 pieces of weights in flight, 16 weights of the norm as f16; 7 blocks an SM
 *   shared       4 warps x 7 floats */
template <int FORMAT>
__global__ void __launch_bounds__(ROW_THREADS, NORM_BLOCKS) norm_gemv_quant_kernel(norm_gemv_call c)
{
    const skinny_call &a = c.product;
    static_assert(unpacked<FORMAT>::COUNT == NORM_COUNT, "a piece of 16 bytes");
    __shared__ float scratch[ROW_THREADS / 32][NORM_OUTPUTS + 1];
    const block_rows<NORM_OUTPUTS> rows(a.e, a.N, blockIdx.x);
    int k = (int)threadIdx.x * NORM_COUNT, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    bool mine = k < a.K, ends = rows.makes((int)threadIdx.x);
    unsigned next[NORM_OUTPUTS][4] = {};
    __half2 gain[NORM_COUNT / 2] = {};
    if (mine) {
        fetch_outputs(next, a, rows, k);
        load_gain(gain, c.w + k);
    }
    skinny_operands ahead = {};
    if (ends) prefetch_scales<FORMAT>(&ahead, a, rows.first + (int)threadIdx.x);
    gpu_wait();
    if (ends) prefetch_residual(&ahead.end, a.e, 0, rows.first + (int)threadIdx.x);
    const scaled_row row(c.x + k, gain, mine);
    float sum[8] = {}, back = row.back * exact_unpacked<FORMAT>::back();
    bool holds = group_holds();
#pragma unroll
    for (int r = 0; r < NORM_OUTPUTS; r += 2) {
        float2 two = multiply_rows<FORMAT>(next[r], next[r + 1], row.x);
        sum[r] = holds ? two.x * back : 0.0f, sum[r + 1] = holds ? two.y * back : 0.0f;
    }
    sum[NORM_OUTPUTS] = row.squares;
    float squares = 0.0f, v = add_lanes_of(sum), u = 0.0f;
    if (lane % 4 == 0 && lane / 4 <= NORM_OUTPUTS) scratch[warp][lane / 4] = v;
    __syncthreads();
    v = 0.0f;
#pragma unroll
    for (int i = 0; i < ROW_THREADS / 32; i++) squares += scratch[i][NORM_OUTPUTS];
    float inverse = 1.0f / sqrtf(squares / (float)a.K + c.eps);
    int from = (int)blockIdx.x * c.part, to = min(a.K, from + c.part);
    for (int i = from + (int)threadIdx.x; i < to; i += ROW_THREADS)
        c.n[i] = gpu_saturate<__half>(c.x[i] * inverse * c.w[i]);
    if (!ends) return;
#pragma unroll
    for (int i = 0; i < ROW_THREADS / 32; i++) v += scratch[i][threadIdx.x];
    if (a.e.gate_rows)
#pragma unroll
        for (int i = 0; i < ROW_THREADS / 32; i++) u += scratch[i][threadIdx.x + NORM_OUTPUTS / 2];
    store_output(a, v * inverse, u * inverse, 0, rows.first + (int)threadIdx.x, ahead);
}

/* ---- one row whose weights are all in flight before the wait ---- */

enum { WIDE_OUTPUTS = 8, WIDE_COUNT = 16 }; /* COUNT: as NORM_COUNT */

/* Blocks of an SM, by registers. */
__host__ __device__ constexpr int wide_blocks(int threads)
{
    return 1024 / threads;
}

/* y for one row of f16 and weights in e4m3 or int8, for K of up to 16 THREADS.
 *
 *   block        192 or 256 threads make 8 outputs; a thread has 16 inputs of each. Every block reads all of x: as
 *                many bytes as two rows of weights
 *   arithmetic   on tensor cores in place (multiply_rows)
 *   registers    8 pieces of weights in flight; 5 or 4 blocks an SM
 *   shared       6 or 8 warps x 8 floats */
template <int FORMAT, int THREADS>
__global__ void __launch_bounds__(THREADS, wide_blocks(THREADS)) gemv_wide_kernel(skinny_call a)
{
    static_assert(unpacked<FORMAT>::COUNT == WIDE_COUNT, "a piece of 16 bytes");
    __shared__ float scratch[THREADS / 32][WIDE_OUTPUTS];
    const block_rows<WIDE_OUTPUTS> rows(a.e, a.N, blockIdx.x);
    int me = (int)threadIdx.x, k = me * WIDE_COUNT, n = rows.first + me;
    bool ends = rows.makes(me);
    unsigned next[WIDE_OUTPUTS][4] = {}, x[8];
    float sum[WIDE_OUTPUTS], v = 0.0f, u = 0.0f;
    skinny_operands ahead = {};
#pragma unroll
    for (int r = 0; r < WIDE_OUTPUTS && k < a.K; r++) {
        uint4 w = load_row_stream(a.w + (int64_t)rows.row(r) * a.row_bytes + k);
        next[r][0] = w.x, next[r][1] = w.y, next[r][2] = w.z, next[r][3] = w.w;
    }
    if (ends) prefetch_scales<FORMAT>(&ahead, a, n);
    gpu_wait();
    if (ends) prefetch_residual(&ahead.end, a.e, 0, n);
    load_row16(x, (const __half *)a.x, k, a.K, a.aligned);
#pragma unroll
    for (int r = 0; r < WIDE_OUTPUTS; r += 2) {
        float2 two = multiply_rows<FORMAT>(next[r], next[r + 1], x);
        sum[r] = two.x, sum[r + 1] = two.y;
    }
    add_group_sums<FORMAT>(scratch, sum);
    __syncthreads();
    if (!ends) return;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) v += scratch[i][me];
    if (a.e.gate_rows)
#pragma unroll
        for (int i = 0; i < THREADS / 32; i++) u += scratch[i][me + WIDE_OUTPUTS / 2];
    store_output(a, v, u, 0, n, ahead);
}

/* ---- one and two rows of int4 on tensor cores: unpacking, multiplying and adding are 2.75 instructions for
 * each weight, too many for CUDA cores. Tensor cores take the nibbles as they are (nibbles_to_f16). Blocks
 * are persistent, so x is prepared once ---- */

enum {
    PERSISTENT_WARPS = 16,
    PERSISTENT_STAGES = 2,
    PERSISTENT_BLOCKS = 2,
    PERSISTENT_SHARED_MAX = 94 << 10 /* and room: a block of 8.9 has 99 */
};

template <int FORMAT, int X_ROWS>
__global__ void __launch_bounds__(PERSISTENT_WARPS * 32, PERSISTENT_BLOCKS)
    gemv_int4_persistent_kernel(skinny_call a)
{
    extern __shared__ __align__(16) uint4 xs[];
    __shared__ float scratch[2][PERSISTENT_WARPS][16 * X_ROWS];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, r = lane / 4, c = lane % 4;
    int steps = (a.K + 127) / 128, mine = (steps - warp + PERSISTENT_WARPS - 1) / PERSISTENT_WARPS,
        tiles = (a.N + 15) / 16;
    int block_tiles = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x; /* tiles of this block */
    float *x_sum = (float *)(xs + steps * X_ROWS * 16);
    epilogue_operands *operands =
        (epilogue_operands *)(x_sum + steps * X_ROWS * x_sums<FORMAT>()); /* of all outputs of this block */
    auto output = [&](int i) {
        return ((int)blockIdx.x + i / (16 * X_ROWS) * (int)gridDim.x) * 16 + i / X_ROWS % 16;
    };
    unsigned next[PERSISTENT_STAGES][2][4];
    group_factors<FORMAT> factors[PERSISTENT_STAGES][2];
    int fetch_tile = 0, fetch_step = 0;
    auto fetch = [&](int d) {
        if (fetch_tile >= block_tiles || mine <= 0) return;
        int n0 = ((int)blockIdx.x + fetch_tile * (int)gridDim.x) * 16 + r,
            s = warp + fetch_step * PERSISTENT_WARPS;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int n = n0 + 8 * i < a.N ? n0 + 8 * i : a.N - 1;
            uint4 v = make_uint4(0, 0, 0, 0);
            if (s * 64 + c * 16 < a.row_bytes) v = load_stream(a.w + n * a.row_bytes + s * 64 + c * 16);
            next[d][i][0] = v.x, next[d][i][1] = v.y, next[d][i][2] = v.z, next[d][i][3] = v.w;
            factors[d][i].load(a.scales, steps, n, s);
        }
        if (++fetch_step == mine) fetch_step = 0, fetch_tile++;
    };
#pragma unroll
    for (int d = 0; d < PERSISTENT_STAGES; d++) fetch(d);
    for (int i = threadIdx.x; i < block_tiles * 16 * X_ROWS; i += PERSISTENT_WARPS * 32)
        if (output(i) < a.N) prefetch_bias(&operands[i], a.e, output(i));
    gpu_wait();
    for (int i = threadIdx.x; i < block_tiles * 16 * X_ROWS; i += PERSISTENT_WARPS * 32)
        if (output(i) < a.N) prefetch_residual(&operands[i], a.e, i % X_ROWS, output(i));
    prepare_x<FORMAT, X_ROWS, PERSISTENT_WARPS * 32, 1>(xs, x_sum, a, steps);
    __syncthreads();
    int ring = 0; /* which of the steps ahead comes now */
    for (int t = 0; t < block_tiles; t++) {
        float sum[2][X_ROWS] = {};
        for (int i = 0; i < mine; i++) {
            int s = warp + i * PERSISTENT_WARPS;
#pragma unroll
            for (int d = 0; d < PERSISTENT_STAGES; d++) { /* registers are named by constants */
                if (d != ring) continue;
                add_nibble_step<FORMAT, X_ROWS, 1>(sum, next[d][0], next[d][1], xs + s * X_ROWS * 16,
                                                   x_sum + s * X_ROWS * x_sums<FORMAT>(), factors[d]);
                fetch(d);
            }
            ring = ring + 1 == PERSISTENT_STAGES ? 0 : ring + 1;
        }
        if (c == 0)
#pragma unroll
            for (int m = 0; m < X_ROWS; m++)
                scratch[t & 1][warp][r * X_ROWS + m] = sum[0][m],
                                                  scratch[t & 1][warp][(r + 8) * X_ROWS + m] = sum[1][m];
        __syncthreads(); /* the other half of the room was read before */
        int i = t * 16 * X_ROWS + lane;
        if (warp != t % PERSISTENT_WARPS || lane >= 16 * X_ROWS || output(i) >= a.N)
            continue; /* warps take turns */
        float v = 0.0f;
#pragma unroll
        for (int k = 0; k < PERSISTENT_WARPS; k++) v += scratch[t & 1][k][lane];
        store_output(a, v, 0.0f, lane % X_ROWS, output(i), {operands[i], 1.0f, 1.0f});
    }
}

template <int FORMAT> static size_t persistent_shared_bytes(const gpu *g, const skinny_call &a)
{
    size_t tiles = (size_t)((a.N + 15) / 16), blocks = (size_t)g->sms * PERSISTENT_BLOCKS;
    size_t x = (size_t)((a.K + 127) / 128) * (size_t)a.M *
               (16 * sizeof(uint4) + x_sums<FORMAT>() * sizeof(float));
    return x + (tiles + blocks - 1) / blocks * 16 * (size_t)a.M * sizeof(epilogue_operands);
}

template <int FORMAT, int X_ROWS> static void launch_persistent(gpu *g, skinny_call a)
{
    int tiles = (a.N + 15) / 16, most = g->sms * PERSISTENT_BLOCKS;
    gpu_note(g,
             cudaFuncSetAttribute(gemv_int4_persistent_kernel<FORMAT, X_ROWS>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, PERSISTENT_SHARED_MAX),
             "linear (few rows)");
    a.unit = 1.0f;
    gpu_launch(g, "linear (few rows)", gemv_int4_persistent_kernel<FORMAT, X_ROWS>,
               dim3((unsigned)(tiles < most ? tiles : most)), PERSISTENT_WARPS * 32,
               persistent_shared_bytes<FORMAT>(g, a), a);
}

/* ---- up to 16 rows: tensor cores ---- */

/* How a product is cut. A block of WARPS warps makes 16 OUT_TILES outputs, with STAGES steps of weights in flight to
 * each warp; registers leave room for BLOCKS blocks an SM (0: nvcc chooses). */
template <int OUT_TILES_, int STAGES_, int WARPS_, int BLOCKS_> struct skinny_form {
    static const int OUT_TILES = OUT_TILES_, STAGES = STAGES_, WARPS = WARPS_, BLOCKS = BLOCKS_;
    static const int OUTPUTS = 16 * OUT_TILES, THREADS = 32 * WARPS;
};

/* A step of a warp: 64 bytes of each row of weights of its block. Lane 4 r + c has 16 bytes, from 16 c on, of the
 * rows r + 8 i; those of a tile of 16 are 2 i and 2 i + 1. */
template <int FORMAT, typename FORM> struct weight_steps {
    static const int HALVES = 2 * FORM::OUT_TILES, STEP = 4 * unpacked<FORMAT>::COUNT;
    int from[HALVES], steps;
    unsigned bits[FORM::STAGES][HALVES][4];
    group_factors<FORMAT> factors[FORM::STAGES][HALVES];
    __device__ weight_steps(const skinny_call &a, const block_rows<FORM::OUTPUTS> &rows)
        : steps((a.K + STEP - 1) / STEP)
    {
        int r = (threadIdx.x & 31) / 4;
#pragma unroll
        for (int i = 0; i < HALVES; i++)
            from[i] = rows.row(r + i % FORM::OUT_TILES * 8, i >= FORM::OUT_TILES);
    }
    __device__ void fetch(const skinny_call &a, int d, int s)
    {
        int at = s * 64 + (threadIdx.x & 3) * 16;
#pragma unroll
        for (int i = 0; i < HALVES; i++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (s < steps && at < a.row_bytes) v = load_stream(a.w + from[i] * a.row_bytes + at);
            bits[d][i][0] = v.x, bits[d][i][1] = v.y, bits[d][i][2] = v.z, bits[d][i][3] = v.w;
            if (s < steps) factors[d][i].load(a.scales, steps, from[i], s);
        }
    }
};

/* Numbers of rows of x that a lane multiplies with its weights of a step, as pairs of the products' type: at most
 * 16 of a row at once, so that a step of 32 does not need registers for all of them. X: what x is stored as, that
 * type or f32. */
template <int FORMAT, typename X, int ROW_TILES> struct x_piece {
    static const int FOURS = unpacked<FORMAT>::COUNT / 4 < 4 ? unpacked<FORMAT>::COUNT / 4 : 4;
    unsigned at[ROW_TILES][FOURS][2];
    /* The numbers of step s from its `first` fours on. */
    __device__ void load(const skinny_call &a, int s, int first)
    {
        int lane = threadIdx.x & 31, r = lane / 4, c = lane % 4;
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
            for (int j = 0; j < FOURS; j += 2) {
                uint4 v = make_uint4(0, 0, 0, 0);
                int k = s * 4 * unpacked<FORMAT>::COUNT + unpacked<FORMAT>::inputs(c, first + j);
                if (8 * t + r < a.M)
                    v = load_pairs<typename unpacked<FORMAT>::type>((const X *)a.x + (8 * t + r) * a.x_row, k,
                                                                    a.K, a.aligned);
                at[t][j][0] = v.x, at[t][j][1] = v.y, at[t][j + 1][0] = v.z, at[t][j + 1][1] = v.w;
            }
    }
};

/* Where groups have offsets: the sums of x over each group that a piece of x has, in each lane those of the rows of x
 * whose sums it has. A group that is larger than a piece is added over several. */
template <int FORMAT, int ROW_TILES> struct x_group_sums {
    typedef unpacked<FORMAT> form;
    typedef group_factors<FORMAT> groups;
    static const int GROUP_FOURS = form::COUNT / 4 / groups::GROUPS,
                     FOURS = x_piece<FORMAT, typename form::type, ROW_TILES>::FOURS,
                     COUNT = FOURS > GROUP_FOURS ? FOURS / GROUP_FOURS : 1; /* of a piece */
    float sum[ROW_TILES][COUNT][4];
    template <typename PIECE> __device__ void add(int first, const PIECE &x)
    {
        const unsigned ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
#pragma unroll
        for (int i = 0; i < (groups::OFFSETS ? FOURS * ROW_TILES : 0); i++) {
            int t = i / FOURS, j = i % FOURS;
            float(&to)[4] = sum[t][j / GROUP_FOURS % COUNT];
            if ((first + j) % GROUP_FOURS == 0) to[0] = to[1] = to[2] = to[3] = 0.0f;
            gpu_mma<typename form::type>::run(to, ones, x.at[t][j][0], x.at[t][j][1]);
        }
    }
    __device__ const float *of(int t, int four) const
    {
        return sum[t][four / GROUP_FOURS % COUNT];
    }
};

/* The sums of a tile of 16 rows of weights and all rows of x. */
template <int FORMAT, int ROW_TILES> struct skinny_sums {
    typedef unpacked<FORMAT> form;
    typedef typename form::type T;
    typedef group_factors<FORMAT> groups;
    float sum[ROW_TILES][4] = {};
    group_part<T, FORMAT> part[ROW_TILES]; /* of the group that is being added */
    /* += the products of the lane's bits of the tile, from the `first` fours on, with x. */
    template <typename PIECE>
    __device__ void add(const unsigned (&u)[4], const unsigned (&v)[4], const groups *factors, int first,
                        const PIECE &x, const x_group_sums<FORMAT, ROW_TILES> &of_x)
    {
        const int GROUP_FOURS = form::COUNT / 4 / groups::GROUPS;
#pragma unroll
        for (int j = 0; j < PIECE::FOURS; j++) {
            unsigned w[4];
            exact_unpacked<FORMAT>::pairs(u, first + j, w[0], w[2]);
            exact_unpacked<FORMAT>::pairs(v, first + j, w[1], w[3]);
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++) {
                if ((first + j) % GROUP_FOURS == 0) part[t].clear();
                gpu_mma<T>::run(groups::USED ? part[t].sum : sum[t], w, x.at[t][j][0], x.at[t][j][1]);
                if (groups::USED && (first + j + 1) % GROUP_FOURS == 0)
                    part[t].add_to(sum[t], factors, (first + j) / GROUP_FOURS, of_x.of(t, j));
            }
        }
    }
};

/* y for up to 8 ROW_TILES rows of x; weights of 16 bits, e4m3, int8 or int4.
 *
 *   block        makes 16 OUT_TILES outputs of all rows
 *   warp         shares K: steps of 64 bytes of each row of weights, mma.m16n8k16 with 16 rows of weights as A and
 *                8 rows of x as B, OUT_TILES x ROW_TILES times
 *   registers    STAGES steps of weights in flight (16 bytes a lane for each 8 rows), 4 sums a product
 *   shared       WARPS x 16 OUT_TILES x (8 ROW_TILES + 1) floats: the warps' sums, added in the order of the warps
 *
 * STAGES steps are loaded before gpu_wait. Every block reads all rows of x: OUT_TILES divides these bytes. */
template <int FORMAT, typename X, int ROW_TILES, typename FORM>
__global__ void __launch_bounds__(FORM::THREADS, FORM::BLOCKS) skinny_gemm_kernel(skinny_call a)
{
    const int WARPS = FORM::WARPS, OUTPUTS = FORM::OUTPUTS, STAGES = FORM::STAGES,
              M_STEP = FORM::THREADS / OUTPUTS; /* rows that a block's threads finish at once */
    const int EACH = (8 * ROW_TILES + M_STEP - 1) / M_STEP;
    __shared__ float scratch[WARPS][OUTPUTS][8 * ROW_TILES + 1];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const block_rows<OUTPUTS> rows(a.e, a.N, blockIdx.x);
    weight_steps<FORMAT, FORM> w(a, rows);
    skinny_sums<FORMAT, ROW_TILES> sums[FORM::OUT_TILES];
    x_group_sums<FORMAT, ROW_TILES> of_x;
#pragma unroll
    for (int d = 0; d < STAGES; d++) w.fetch(a, d, warp + d * WARPS);
    int i_end = (int)threadIdx.x % OUTPUTS, n_end = rows.first + i_end, m_end = (int)threadIdx.x / OUTPUTS;
    auto ends = [&](int i) { return m_end + i * M_STEP < a.M && rows.makes(i_end); };
    skinny_operands ahead[EACH] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (ends(i)) prefetch_scales<FORMAT>(&ahead[i], a, n_end);
    gpu_wait();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (ends(i)) prefetch_residual(&ahead[i].end, a.e, m_end + i * M_STEP, n_end);
    for (int base = warp; base < w.steps; base += STAGES * WARPS) {
#pragma unroll
        for (int d = 0; d < STAGES; d++) {
            int s = base + d * WARPS;
            if (s >= w.steps) break;
            x_piece<FORMAT, X, ROW_TILES> x;
#pragma unroll
            for (int j = 0; j < unpacked<FORMAT>::COUNT / 4; j += x.FOURS) {
                x.load(a, s, j);
                of_x.add(j, x);
#pragma unroll
                for (int o = 0; o < FORM::OUT_TILES; o++)
                    sums[o].add(w.bits[d][2 * o], w.bits[d][2 * o + 1], w.factors[d] + 2 * o, j, x, of_x);
            }
            w.fetch(a, d, s + STAGES * WARPS);
        }
    }
#pragma unroll
    for (int o = 0; o < FORM::OUT_TILES; o++)
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                scratch[warp][16 * o + i / 2 * 8 + lane / 4][8 * t + 2 * (lane % 4) + i % 2] = sums[o].sum[t][i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int m = m_end + i * M_STEP;
        float v = 0.0f, u = 0.0f;
        if (!ends(i)) continue;
#pragma unroll
        for (int k = 0; k < WARPS; k++) v += scratch[k][i_end][m];
        if (a.e.gate_rows)
#pragma unroll
            for (int k = 0; k < WARPS; k++) u += scratch[k][i_end + OUTPUTS / 2][m];
        const float back = exact_unpacked<FORMAT>::back();
        store_output(a, v * back, u * back, m, n_end, ahead[i]);
    }
}

/* ---- choosing ---- */

/* Weights of 8 and 4 bits that have no product of many rows as they are. */
static constexpr bool skinny_is_narrow(proa_wfmt format)
{
    return format == PROA_WFMT_I8W || proa_wfmt_is_coded(format);
}

template <int FORMAT, int X_ROWS, int OUTPUTS, int BLOCKS>
static void launch_gemv_as(gpu *g, const skinny_call &a)
{
    gpu_launch(g, "linear (few rows)", gemv_quant_kernel<FORMAT, X_ROWS, OUTPUTS, BLOCKS>,
               dim3((unsigned)blocks_of(a.e, a.N, OUTPUTS)), ROW_THREADS, 0, a);
}

/* False: a larger K than the threads have at once, or no room for all blocks. */
template <int FORMAT, int THREADS> static bool launch_wide(gpu *g, const skinny_call &a)
{
    int blocks = blocks_of(a.e, a.N, WIDE_OUTPUTS);
    if (a.K > THREADS * WIDE_COUNT || blocks > wide_blocks(THREADS) * g->sms) return false;
    gpu_launch(g, "linear (few rows)", gemv_wide_kernel<FORMAT, THREADS>, dim3((unsigned)blocks), THREADS, 0, a);
    return true;
}

/* One row of e4m3: registers for as many blocks as the form needs (docs/lab/cuda-experts.md). If all of K is in
 * flight at once, ten blocks of four outputs, so that all blocks of a small product start together; otherwise 16
 * of two. */
template <int FORMAT, int X_ROWS> static void launch_gemv_quant(gpu *g, const skinny_call &a)
{
    if constexpr ((FORMAT == PROA_WFMT_FP8 || FORMAT == PROA_WFMT_I8W) && X_ROWS == 1)
        if (a.K > ROW_THREADS * WIDE_COUNT && (launch_wide<FORMAT, 192>(g, a) || launch_wide<FORMAT, 256>(g, a)))
            return;
    if constexpr (FORMAT == PROA_WFMT_FP8 && X_ROWS == 1) {
        if (a.K <= ROW_THREADS * unpacked<FORMAT>::COUNT) launch_gemv_as<FORMAT, 1, 4, 10>(g, a);
        else launch_gemv_as<FORMAT, 1, 2, 16>(g, a);
    } else launch_gemv_as<FORMAT, X_ROWS, 4, 0>(g, a);
}

/* Blocks of 16 outputs that each SM gets if all of a product run at the same time. */
static int blocks_an_sm(const gpu *g, const skinny_call &a)
{
    return (blocks_of(a.e, a.N, 16) + g->sms - 1) / g->sms;
}

template <int FORMAT, int ROW_TILES, typename FORM> static void launch_skinny(gpu *g, const skinny_call &a)
{
    auto kernel = skinny_gemm_kernel<FORMAT, typename unpacked<FORMAT>::type, ROW_TILES, FORM>;
    if constexpr (!proa_wfmt_is_quantised((proa_wfmt)FORMAT) && ROW_TILES == 1)
        if (a.x_is_f32) kernel = skinny_gemm_kernel<FORMAT, float, ROW_TILES, FORM>;
    gpu_launch(g, "linear (skinny)", kernel, dim3((unsigned)blocks_of(a.e, a.N, FORM::OUTPUTS)),
               FORM::THREADS, 0, a);
}

/* More than SKINNY_ROWS rows. Offsets would leave no registers for a second block an SM. */
template <int FORMAT> static void launch_more_rows(gpu *g, const skinny_call &a)
{
    if constexpr (skinny_is_narrow((proa_wfmt)FORMAT)) {
        const int AHEAD = FORMAT == PROA_WFMT_I4A32 ? 1 : 2, BLOCKS = group_factors<FORMAT>::OFFSETS ? 2 : 0;
        if (a.M > 32) launch_skinny<FORMAT, 8, skinny_form<1, 2, 8, 0>>(g, a);
        else launch_skinny<FORMAT, 4, skinny_form<1, AHEAD, 8, BLOCKS>>(g, a);
    } else if constexpr (!proa_wfmt_is_quantised((proa_wfmt)FORMAT)) {
        if (a.M > 32) launch_skinny<FORMAT, 8, skinny_form<1, 4, 8, 0>>(g, a);
        else launch_skinny<FORMAT, 4, skinny_form<1, 4, 16, 0>>(g, a);
    }
}

/* Up to 8 rows, weights without groups (docs/lab/cuda-gemm.md). One block an SM or fewer get 32 warps each, so that each
 * warp has few steps one after the other. Smaller blocks are better where all have room at once and larger ones would
 * come in two rounds. Many blocks of weights of 16 bits multiply two tiles with each read of x. */
template <int FORMAT> static void launch_8_rows(gpu *g, const skinny_call &a)
{
    int each = blocks_an_sm(g, a);
    if (each == 1) return launch_skinny<FORMAT, 1, skinny_form<1, 4, 32, 1>>(g, a);
    if (each == 3) return launch_skinny<FORMAT, 1, skinny_form<1, 4, 8, 3>>(g, a);
    if constexpr (!proa_wfmt_is_quantised((proa_wfmt)FORMAT))
        if (each > 8) return launch_skinny<FORMAT, 1, skinny_form<2, 2, 8, 4>>(g, a);
    launch_skinny<FORMAT, 1, skinny_form<1, 2, 16, 2>>(g, a);
}

/* The same for 9 to 16 rows. */
template <int FORMAT> static void launch_16_rows(gpu *g, const skinny_call &a)
{
    if (blocks_an_sm(g, a) == 3) launch_skinny<FORMAT, 2, skinny_form<1, 4, 8, 3>>(g, a);
    else launch_skinny<FORMAT, 2, skinny_form<1, 2, 16, 2>>(g, a);
}

/* Up to 16 rows of codes of four bits. Every block reads all of x, at 16 rows four times the bytes of its weights, so
 * two tiles share what is read where there are many blocks, and where the sums of x must be made as well. */
template <int FORMAT, int ROW_TILES> static void launch_4_bits(gpu *g, const skinny_call &a)
{
    const bool by_32 = FORMAT == PROA_WFMT_I4A32; /* a step's factors are as many registers as its codes */
    const bool alone = ROW_TILES == 1 && !group_factors<FORMAT>::OFFSETS;
    const int AHEAD = by_32 ? 1 : 2, AHEAD_MANY = ROW_TILES == 1 ? 1 : AHEAD,
              BLOCKS = ROW_TILES == 1 && !by_32 ? 3 : 2;
    typedef skinny_form<alone ? 1 : 2, AHEAD, 16, alone ? 2 : 1> two_blocks; /* an SM, were they of one tile */
    switch (blocks_an_sm(g, a)) {
    case 1: return launch_skinny<FORMAT, ROW_TILES, skinny_form<1, 2, 16, 1>>(g, a);
    case 2: return launch_skinny<FORMAT, ROW_TILES, two_blocks>(g, a);
    case 3: return launch_skinny<FORMAT, ROW_TILES, skinny_form<1, 2, 8, 3>>(g, a);
    default: launch_skinny<FORMAT, ROW_TILES, skinny_form<2, AHEAD_MANY, 8, BLOCKS>>(g, a);
    }
}

/* The same of codes of eight bits in groups. */
template <int FORMAT> static void launch_8_bit_groups(gpu *g, const skinny_call &a)
{
    int each = blocks_an_sm(g, a);
    if (each > 3 && a.M <= 8) launch_skinny<FORMAT, 1, skinny_form<2, 2, 8, 2>>(g, a);
    else if (each > 3) launch_skinny<FORMAT, 2, skinny_form<2, 2, 8, 2>>(g, a);
    else if (a.M <= 8) launch_8_rows<FORMAT>(g, a);
    else if (each == 2) launch_skinny<FORMAT, 2, skinny_form<2, 2, 16, 1>>(g, a);
    else launch_16_rows<FORMAT>(g, a);
}

template <int FORMAT> static void launch_by_rows(gpu *g, const skinny_call &a)
{
    if constexpr (proa_wfmt_is_quantised((proa_wfmt)FORMAT)) {
        if constexpr (group_factors<FORMAT>::NIBBLES)
            if (a.M <= 2 && persistent_shared_bytes<FORMAT>(g, a) <= PERSISTENT_SHARED_MAX)
                return a.M == 1 ? launch_persistent<FORMAT, 1>(g, a) : launch_persistent<FORMAT, 2>(g, a);
        if (a.M == 1) return launch_gemv_quant<FORMAT, 1>(g, a);
        if (a.M == 2) return launch_gemv_quant<FORMAT, 2>(g, a);
    }
    if (a.M > SKINNY_ROWS) return launch_more_rows<FORMAT>(g, a);
    if constexpr (proa_wfmt_is_int4((proa_wfmt)FORMAT)) {
        if (a.M <= 8) launch_4_bits<FORMAT, 1>(g, a);
        else launch_4_bits<FORMAT, 2>(g, a);
    } else if constexpr (group_factors<FORMAT>::USED) {
        launch_8_bit_groups<FORMAT>(g, a);
    } else if (a.M <= 8) launch_8_rows<FORMAT>(g, a);
    else launch_16_rows<FORMAT>(g, a);
}

/* More than SKINNY_ROWS rows of 16 bits. All blocks read all rows: beyond 5 MB the rate of the L2 cache is
 * the limit, and cuBLASLt's wider tiles are better. Weights of 8 and 4 bits would have to be
 * made f16 for these: each is read, written and read again. */
bool skinny_takes_more_rows(proa_view y, proa_view x, const proa_weight *w)
{
    const int64_t READ_MAX = 5 << 20;
    if (skinny_is_narrow(w->format)) return y.shape[0] > SKINNY_ROWS && y.shape[0] <= MORE_ROWS;
    bool narrow = gpu_is_16bit(x) && x.dtype == (w->format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16 : PROA_DTYPE_F16);
    if (proa_wfmt_is_quantised(w->format) || w->format == PROA_WFMT_F32 || !narrow) return false;
    bool fits = (w->N + 15) / 16 * y.shape[0] * w->K * 2 <= READ_MAX;
    return fits && y.shape[0] > SKINNY_ROWS && y.shape[0] <= MORE_ROWS;
}

/* Do the blocks round rows of f32 themselves, up to 8? That is one kernel less, but they read twice the bytes of x. It
 * is slower where x is large, and blocks of one tile come in several rounds or all of them read very much
 * (docs/lab/cuda-gemm.md). */
static bool reads_f32(const gpu *g, const skinny_call &a, proa_dtype x, proa_wfmt format)
{
    const int64_t ROWS = 8, READ_MAX = 24 << 20, READ_MAX_ONE_ROUND = 64 << 20;
    if (x != PROA_DTYPE_F32 || proa_wfmt_is_quantised(format) || a.M > ROWS) return false;
    int64_t each = blocks_an_sm(g, a), bytes = (int64_t)blocks_of(a.e, a.N, 16) * a.M * a.K * 4;
    return each > 8 || bytes <= (each < 4 ? READ_MAX_ONE_ROUND : READ_MAX);
}

/* The call but for x. */
static skinny_call call_of(proa_view y, const proa_weight *w, const epilogue &e)
{
    skinny_call a = {y.data, y.stride[0], y.dtype};
    a.M = (int)y.shape[0], a.w = (const char *)w->data, a.unit = format_unit(w->format);
    a.row_bytes = (w->K * 2 + 15) / 16 * 16;
    a.N = (int)w->N, a.K = (int)w->K, a.e = e;
    if (!proa_wfmt_is_quantised(w->format)) return a;
    quant_layout at = quant_layout_of(w->format, w->N, w->K);
    a.row_bytes = at.row_bytes, a.scales = a.w + at.scales_at;
    return a;
}

/* Does the norm that waits make this row, in a form that norm_gemv_quant_kernel reads? */
static bool norm_fits(const gpu_pending_router &p, proa_view x, const proa_weight *w)
{
    bool aligned = ((uintptr_t)p.x.data | (uintptr_t)p.norm_w) % 16 == 0;
    bool is_its = p.norm && !p.product && x.data == p.n.data && x.dtype == PROA_DTYPE_F16;
    return is_its && aligned && w->K == p.x.shape[1] && w->K % NORM_COUNT == 0 &&
           w->K <= ROW_THREADS * NORM_COUNT;
}

/* Blocks that all have room at once: where they come one after the other, each norms the row again. What all blocks
 * read must not be written. */
bool norm_gemv_quant(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    gpu_pending_router p = g->router;
    bool is_8bit = (w->format == PROA_WFMT_FP8 || w->format == PROA_WFMT_I8W) && !w->permuted;
    int blocks = blocks_of(e, (int)w->N, NORM_OUTPUTS);
    if (!is_8bit || y.shape[0] != 1 || blocks > NORM_BLOCKS * g->sms || !norm_fits(p, x, w)) return false;
    if (y.data == p.x.data || y.data == p.n.data || e.residual == p.n.data) return false;
    norm_gemv_call c = {call_of(y, w, e), (const float *)p.x.data, p.norm_w, p.eps, (__half *)p.n.data};
    c.part = (c.product.K + blocks - 1) / blocks;
    auto kernel = w->format == PROA_WFMT_FP8 ? norm_gemv_quant_kernel<PROA_WFMT_FP8>
                                             : norm_gemv_quant_kernel<PROA_WFMT_I8W>;
    g->router.norm = false;
    gpu_invalidate(g, p.n), gpu_invalidate(g, y);
    gpu_launch(g, "norm and linear", kernel, dim3((unsigned)blocks), ROW_THREADS, 0, c);
    return true;
}

void skinny_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    bool bf16 = w->format == PROA_WFMT_BF16;
    skinny_call a = call_of(y, w, e);
    gpu_invalidate(g, y);
    a.x = x.data, a.x_row = x.stride[0];
    a.x_is_f32 = reads_f32(g, a, x.dtype, w->format);
    if (!a.x_is_f32 && x.dtype != (bf16 ? PROA_DTYPE_BF16 : PROA_DTYPE_F16))
        a.x = cast_rows(g, x, bf16 ? PROA_WFMT_BF16 : PROA_WFMT_F16, &a.x_row);
    a.aligned = a.x_row % (a.x_is_f32 ? 4 : 8) == 0 && (uintptr_t)a.x % 16 == 0;
    if (pipelined_takes(g, w, a.M, e.gate_rows)) return skinny_gemm_pipelined(g, a, w->format);
    switch (w->format) {
    case PROA_WFMT_F16: launch_by_rows<PROA_WFMT_F16>(g, a); break;
    case PROA_WFMT_BF16: launch_by_rows<PROA_WFMT_BF16>(g, a); break;
    case PROA_WFMT_FP8: launch_by_rows<PROA_WFMT_FP8>(g, a); break;
    case PROA_WFMT_I8W: launch_by_rows<PROA_WFMT_I8W>(g, a); break;
    case PROA_WFMT_I4A: launch_by_rows<PROA_WFMT_I4A>(g, a); break;
    case PROA_WFMT_I4A32: launch_by_rows<PROA_WFMT_I4A32>(g, a); break;
    case PROA_WFMT_MXFP4W: launch_by_rows<PROA_WFMT_MXFP4W>(g, a); break;
    case PROA_WFMT_I8G: launch_by_rows<PROA_WFMT_I8G>(g, a); break;
    case PROA_WFMT_FP8G: launch_by_rows<PROA_WFMT_FP8G>(g, a); break;
    default: launch_by_rows<PROA_WFMT_I4>(g, a); break;
    }
}

void skinny_gemm_rows(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    const int64_t step = w->format == PROA_WFMT_FP8 ? (int)SKINNY_ROWS : (int)MORE_ROWS;
    for (int64_t t = 0; t < y.shape[0]; t += step) {
        int64_t end = t + step < y.shape[0] ? t + step : y.shape[0];
        skinny_gemm(g, proa_view_rows(y, t, end), proa_view_rows(x, t, end), w, rows_from(e, t));
    }
}
