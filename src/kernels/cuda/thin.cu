/* SPDX-License-Identifier: Apache-2.0
 * thin.cu - products of up to 16 rows (64 of 16 bits, where they are small; one and two of quantised weights on Hopper: ring.cu)
 * with weights of 16, 8 and 4 bits: bound by the bytes of the weights, so these are streamed once, opened in registers and multiplied on tensor cores, where the rows' columns that are not there cost
 * nothing. The order of k within a product is free as long as both sides agree: each lane takes 16 bytes of a weight row
 * and the numbers of x at the same places, so neither is ever moved between lanes. */
#include "kernels/cuda/linear/skinny_gemm.h"

enum { THREADS = 512, WARPS = THREADS / 32, ROW_THREADS = 128, ROWS_EACH = 4 };

/* What opened numbers are to be multiplied by. */
static float unit_of(proa_wfmt format)
{
    return format == PROA_WFMT_FP8 ? 256.0f : format == PROA_WFMT_I8W ? 128.0f : format == PROA_WFMT_I4 ? 8.0f : 1.0f;
}

/* ---- one and two rows of quantised weights: without tensor cores, which want 16 rows of weights a warp; smaller blocks are
 * quicker to begin and to end ---- */

/* A block makes R outputs, its threads share K in pieces of 16 bytes. Two products are added in f16 before they go on in
 * f32; a quarter of x keeps them in range. */
template <int FORMAT, int M, int R> __global__ void __launch_bounds__(ROW_THREADS) row_kernel(thin_call a)
{
    typedef opened<FORMAT> form;
    const int COUNT = form::COUNT, STEP = ROW_THREADS * COUNT;
    __shared__ float room[ROW_THREADS / 32][R * M];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const block_rows<R> rows(a.e, a.N, blockIdx.x);
    unsigned next[R][4], from[R]; /* from: in pieces of 16 bytes */
    float scale[R], sum[R][M] = {};
#pragma unroll
    for (int r = 0; r < R; r++) from[r] = (unsigned)rows.row(r) * (unsigned)(a.row_bytes / 16);
    auto fetch = [&](int k) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            uint4 v = load_stream((const uint4 *)a.w + (from[r] + k / COUNT));
            next[r][0] = v.x, next[r][1] = v.y, next[r][2] = v.z, next[r][3] = v.w;
            if (FORMAT == PROA_WFMT_I4)
                scale[r] = __half2float(((const __half *)a.scales)[(int64_t)(k / PROA_I4_GROUP) * a.N + rows.row(r)]);
        }
    };
    int k = threadIdx.x * COUNT, m_end = threadIdx.x % M, n_end = rows.first + (int)threadIdx.x / M; /* what this thread finishes */
    bool ends = rows.makes((int)threadIdx.x / M);
    thin_ahead ahead = {};
    if (k < a.K) fetch(k);
    if (ends) weights_ahead<FORMAT>(&ahead, a, n_end);
    gpu_wait();
    if (ends) residual_ahead(&ahead.end, a.e, m_end, n_end);
    for (; k < a.K; k += STEP) {
        __half2 x[M][COUNT / 2];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < COUNT / 8; i++) {
                uint4 v = load_eight((const __half *)a.x + m * a.x_row, k + 8 * i, a.K, a.aligned);
                __half2 *to = &x[m][4 * i];
                to[0] = *reinterpret_cast<__half2 *>(&v.x), to[1] = *reinterpret_cast<__half2 *>(&v.y);
                to[2] = *reinterpret_cast<__half2 *>(&v.z), to[3] = *reinterpret_cast<__half2 *>(&v.w);
#pragma unroll
                for (int j = 0; j < 4; j++) to[j] = __hmul2(to[j], __half2half2(__ushort_as_half(0x3400)));
            }
#pragma unroll
        for (int r = 0; r < R; r++) {
            float part[M] = {};
#pragma unroll
            for (int j = 0; j < COUNT / 4; j++) {
                unsigned first, second;
                form::pairs(next[r], j, first, second);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    float2 f = __half22float2(__hfma2(*reinterpret_cast<__half2 *>(&second), x[m][2 * j + 1],
                                                      __hmul2(*reinterpret_cast<__half2 *>(&first), x[m][2 * j])));
                    part[m] += f.x + f.y;
                }
            }
#pragma unroll
            for (int m = 0; m < M; m++) sum[r][m] += FORMAT == PROA_WFMT_I4 ? part[m] * scale[r] : part[m];
        }
        if (k + STEP < a.K) fetch(k + STEP);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int m = 0; m < M; m++) {
            float v = gpu_warp_sum(sum[r][m]);
            if (lane == 0) room[warp][r * M + m] = v;
        }
    __syncthreads();
    if (!ends) return;
    float v = 0.0f, u = 0.0f;
#pragma unroll
    for (int i = 0; i < ROW_THREADS / 32; i++) v += room[i][threadIdx.x];
    if (a.e.half)
#pragma unroll
        for (int i = 0; i < ROW_THREADS / 32; i++) u += room[i][threadIdx.x + R / 2 * M];
    finish(a, 4.0f * v, 4.0f * u, m_end, n_end, ahead);
}

/* ---- one and two rows of int4: 2.75 instructions a weight are more than CUDA cores have time for (opened to f16, multiplied,
 * added), tensor cores take the nibbles as they lie: 1024 + u, or 1024 + 16 u with a sixteenth of x, and what that is too much
 * is one number for each group and row, taken off in f32 before the sums. Blocks stay, so x is prepared once ---- */

enum { STAY_WARPS = 16, STAY_AHEAD = 2, STAY_BLOCKS = 2, STAY_SHARED_MAX = 94 << 10 /* and room: a block of 8.9 has 99 */ };

template <int M> __global__ void __launch_bounds__(STAY_WARPS * 32, STAY_BLOCKS) stay_kernel(thin_call a)
{
    extern __shared__ __align__(16) uint4 xs[];
    __shared__ float room[2][STAY_WARPS][16 * M];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, r = lane / 4, c = lane % 4;
    int steps = (a.K + 127) / 128, mine = (steps - warp + STAY_WARPS - 1) / STAY_WARPS, tiles = (a.N + 15) / 16;
    int here = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x; /* tiles of this block */
    float *offset = (float *)(xs + steps * M * 16);
    epilogue_ahead *aheads = (epilogue_ahead *)(offset + steps * M); /* of all outputs of this block */
    auto output = [&](int i) { return ((int)blockIdx.x + i / (16 * M) * (int)gridDim.x) * 16 + i / M % 16; };
    unsigned next[STAY_AHEAD][2][4];
    __half scale[STAY_AHEAD][2];
    int fetch_tile = 0, fetch_step = 0;
    auto fetch = [&](int d) {
        if (fetch_tile >= here || mine <= 0) return;
        int n0 = ((int)blockIdx.x + fetch_tile * (int)gridDim.x) * 16 + r, s = warp + fetch_step * STAY_WARPS;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int n = n0 + 8 * i < a.N ? n0 + 8 * i : a.N - 1;
            uint4 v = make_uint4(0, 0, 0, 0);
            if (s * 64 + c * 16 < a.row_bytes) v = load_stream(a.w + n * a.row_bytes + s * 64 + c * 16);
            next[d][i][0] = v.x, next[d][i][1] = v.y, next[d][i][2] = v.z, next[d][i][3] = v.w;
            scale[d][i] = ((const __half *)a.scales)[(int64_t)s * a.N + n];
        }
        if (++fetch_step == mine) fetch_step = 0, fetch_tile++;
    };
#pragma unroll
    for (int d = 0; d < STAY_AHEAD; d++) fetch(d);
    for (int i = threadIdx.x; i < here * 16 * M; i += STAY_WARPS * 32)
        if (output(i) < a.N) bias_ahead(&aheads[i], a.e, output(i));
    gpu_wait();
    for (int i = threadIdx.x; i < here * 16 * M; i += STAY_WARPS * 32)
        if (output(i) < a.N) residual_ahead(&aheads[i], a.e, i % M, output(i));
    prepare_x<M, STAY_WARPS * 32, 1>(xs, offset, a, steps);
    __syncthreads();
    int ring = 0; /* which of the steps ahead comes now */
    for (int t = 0; t < here; t++) {
        float sum[2][M] = {};
        for (int i = 0; i < mine; i++) {
            int s = warp + i * STAY_WARPS;
            float part[4];
#pragma unroll
            for (int j = 0; j < 4; j++) part[j] = -offset[s * M + j % M];
#pragma unroll
            for (int d = 0; d < STAY_AHEAD; d++) { /* registers are named by constants */
                if (d != ring) continue;
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    uint4 x = xs[(s * M + r % M) * 16 + q * 4 + c];
                    unsigned w[4];
                    raise(w, next[d][0][q], next[d][1][q]);
                    gpu_mma<__half>::run(part, w, x.x, x.y);
                    raise(w, next[d][0][q] >> 8, next[d][1][q] >> 8);
                    gpu_mma<__half>::run(part, w, x.z, x.w);
                }
#pragma unroll
                for (int j = 0; j < 2; j++)
#pragma unroll
                    for (int m = 0; m < M; m++) sum[j][m] = fmaf(__half2float(scale[d][j]), part[2 * j + m], sum[j][m]);
                fetch(d);
            }
            ring = ring + 1 == STAY_AHEAD ? 0 : ring + 1;
        }
        if (c == 0)
#pragma unroll
            for (int m = 0; m < M; m++) room[t & 1][warp][r * M + m] = sum[0][m], room[t & 1][warp][(r + 8) * M + m] = sum[1][m];
        __syncthreads(); /* the other half of the room was read before */
        int i = t * 16 * M + lane;
        if (warp != t % STAY_WARPS || lane >= 16 * M || output(i) >= a.N) continue; /* warps take turns */
        float v = 0.0f;
#pragma unroll
        for (int k = 0; k < STAY_WARPS; k++) v += room[t & 1][k][lane];
        finish(a, v, 0.0f, lane % M, output(i), {aheads[i], 1.0f, 1.0f});
    }
}

static size_t stay_shared(const gpu *g, const thin_call &a)
{
    size_t tiles = (size_t)((a.N + 15) / 16), blocks = (size_t)g->sms * STAY_BLOCKS;
    size_t x = (size_t)((a.K + 127) / 128) * (size_t)a.M * (16 * sizeof(uint4) + sizeof(float));
    return x + (tiles + blocks - 1) / blocks * 16 * (size_t)a.M * sizeof(epilogue_ahead);
}

template <int M> static void launch_stay(gpu *g, thin_call a)
{
    int tiles = (a.N + 15) / 16, most = g->sms * STAY_BLOCKS;
    gpu_note(g, cudaFuncSetAttribute(stay_kernel<M>, cudaFuncAttributeMaxDynamicSharedMemorySize, STAY_SHARED_MAX), "linear (few rows)");
    a.unit = 1.0f;
    gpu_launch(g, "linear (few rows)", stay_kernel<M>, dim3((unsigned)(tiles < most ? tiles : most)), STAY_WARPS * 32,
               stay_shared(g, a), a);
}

/* ---- up to 16 rows: tensor cores ---- */

/* A block makes 16 outputs of up to 8 NT rows. Its W warps share K in steps of 64 bytes of each weight row; D steps are on
 * their way before the kernel before has ended. Up to 16 rows two blocks an SM, even if a few registers spill: one alone leaves it
 * idle while it begins and ends. int4 as nvcc likes. */
template <int FORMAT, int NT, int D, int W>
__global__ void __launch_bounds__(32 * W, FORMAT == PROA_WFMT_I4 || NT > 2 ? 0 : 2) thin_kernel(thin_call a)
{
    const int WARPS = W, EACH = (16 * 8 * NT + 32 * W - 1) / (32 * W); /* outputs that a thread finishes */
    typedef opened<FORMAT> form;
    typedef typename form::type T;
    const int COUNT = form::COUNT, STEP = 4 * COUNT, FOURS = COUNT / 4;
    __shared__ float room[WARPS][16][8 * NT + 1];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, r = lane / 4, c = lane % 4;
    int steps = (a.K + STEP - 1) / STEP;
    const block_rows<16> rows(a.e, a.N, blockIdx.x);
    int from[2] = {rows.row(r, false), rows.row(r, true)};
    unsigned next[D][2][4];
    float scale[D][2], sum[NT][4] = {};
    auto fetch = [&](int d, int s) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (s < steps && s * 64 + c * 16 < a.row_bytes) v = load_stream(a.w + from[i] * a.row_bytes + s * 64 + c * 16);
            next[d][i][0] = v.x, next[d][i][1] = v.y, next[d][i][2] = v.z, next[d][i][3] = v.w;
            if (FORMAT == PROA_WFMT_I4)
                scale[d][i] = s < steps ? __half2float(((const __half *)a.scales)[(int64_t)s * a.N + from[i]]) : 0.0f;
        }
    };
#pragma unroll
    for (int d = 0; d < D; d++) fetch(d, warp + d * WARPS);
    int n_end = rows.first + (int)threadIdx.x % 16, m_end = (int)threadIdx.x / 16; /* what this thread finishes; the next 2 W rows on */
    auto ends = [&](int i) { return m_end + i * 2 * W < a.M && rows.makes((int)threadIdx.x % 16); };
    thin_ahead ahead[EACH] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (ends(i)) weights_ahead<FORMAT>(&ahead[i], a, n_end);
    gpu_wait();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (ends(i)) residual_ahead(&ahead[i].end, a.e, m_end + i * 2 * W, n_end);
    for (int base = warp; base < steps; base += D * WARPS) {
#pragma unroll
        for (int d = 0; d < D; d++) {
            int s = base + d * WARPS;
            if (s >= steps) break;
            unsigned b[NT][FOURS][2];
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int j = 0; j < FOURS; j += 2) {
                    uint4 v = make_uint4(0, 0, 0, 0);
                    if (8 * t + r < a.M)
                        v = load_eight((const T *)a.x + (8 * t + r) * a.x_row, s * STEP + c * COUNT + 4 * j, a.K, a.aligned);
                    b[t][j][0] = v.x, b[t][j][1] = v.y, b[t][j + 1][0] = v.z, b[t][j + 1][1] = v.w;
                }
            float part[NT][4] = {};
#pragma unroll
            for (int j = 0; j < FOURS; j++) {
                unsigned w[4];
                form::pairs(next[d][0], j, w[0], w[2]);
                form::pairs(next[d][1], j, w[1], w[3]);
#pragma unroll
                for (int t = 0; t < NT; t++)
                    gpu_mma<T>::run(FORMAT == PROA_WFMT_I4 ? part[t] : sum[t], w, b[t][j][0], b[t][j][1]);
            }
            if (FORMAT == PROA_WFMT_I4) {
#pragma unroll
                for (int t = 0; t < NT; t++)
#pragma unroll
                    for (int i = 0; i < 4; i++) sum[t][i] = fmaf(scale[d][i / 2], part[t][i], sum[t][i]);
            }
            fetch(d, s + D * WARPS);
        }
    }
#pragma unroll
    for (int t = 0; t < NT; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) room[warp][i / 2 * 8 + r][8 * t + 2 * c + i % 2] = sum[t][i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int m = m_end + i * 2 * W;
        float v = 0.0f, u = 0.0f;
        if (!ends(i)) continue;
#pragma unroll
        for (int k = 0; k < WARPS; k++) v += room[k][threadIdx.x % 16][m];
        if (a.e.half)
#pragma unroll
            for (int k = 0; k < WARPS; k++) u += room[k][threadIdx.x % 16 + 8][m];
        finish(a, v, u, m, n_end, ahead[i]);
    }
}

/* ---- choosing ---- */

template <int FORMAT, int M> static void launch_rows(gpu *g, const thin_call &a)
{
    gpu_launch(g, "linear (few rows)", row_kernel<FORMAT, M, ROWS_EACH>, dim3((unsigned)blocks_of(a.e, a.N, ROWS_EACH)),
               ROW_THREADS, 0, a);
}

template <int FORMAT> static void choose(gpu *g, const thin_call &a)
{
    const int D = opened<FORMAT>::COUNT == 32 ? 2 : 4;
    dim3 grid((unsigned)blocks_of(a.e, a.N, 16));
    if constexpr (proa_wfmt_is_quantised((proa_wfmt)FORMAT)) {
        if constexpr (FORMAT == PROA_WFMT_I4)
            if (a.M <= 2 && stay_shared(g, a) <= STAY_SHARED_MAX) return a.M == 1 ? launch_stay<1>(g, a) : launch_stay<2>(g, a);
        if (a.M == 1) return launch_rows<FORMAT, 1>(g, a);
        if (a.M == 2) return launch_rows<FORMAT, 2>(g, a);
    }
    if (a.M <= 8) gpu_launch(g, "linear (thin)", thin_kernel<FORMAT, 1, D, WARPS>, grid, THREADS, 0, a);
    else if (a.M <= THIN_ROWS) gpu_launch(g, "linear (thin)", thin_kernel<FORMAT, 2, 2, WARPS>, grid, THREADS, 0, a);
    if constexpr (!proa_wfmt_is_quantised((proa_wfmt)FORMAT)) {
        if (a.M > 32) gpu_launch(g, "linear (thin)", thin_kernel<FORMAT, 8, 4, 8>, grid, 256, 0, a);
        else if (a.M > THIN_ROWS) gpu_launch(g, "linear (thin)", thin_kernel<FORMAT, 4, 4, 16>, grid, 512, 0, a);
    }
}

/* All blocks read all rows: beyond some bytes the second cache's rate counts, and cuBLASLt's wider tiles are better. */
bool thin_text(proa_view y, proa_view x, const proa_weight *w)
{
    const int64_t ROWS = 64, READ_MAX = 5 << 20;
    bool narrow = gpu_narrow(x) && x.dtype == (w->format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16 : PROA_DTYPE_F16);
    if (proa_wfmt_is_quantised(w->format) || w->format == PROA_WFMT_F32 || !narrow) return false;
    return y.shape[0] > THIN_ROWS && y.shape[0] <= ROWS && (w->N + 15) / 16 * y.shape[0] * w->K * 2 <= READ_MAX;
}

void thin_linear(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    bool bf16 = w->format == PROA_WFMT_BF16;
    thin_call a = {y.data, y.stride[0], y.dtype, x.data, x.stride[0]};
    if (x.dtype != (bf16 ? PROA_DTYPE_BF16 : PROA_DTYPE_F16)) a.x = cast_rows(g, x, bf16 ? PROA_WFMT_BF16 : PROA_WFMT_F16, &a.x_row);
    a.aligned = a.x_row % 8 == 0 && (uintptr_t)a.x % 16 == 0;
    a.M = (int)y.shape[0], a.w = (const char *)w->data, a.unit = unit_of(w->format);
    a.row_bytes = (w->K * 2 + 15) / 16 * 16;
    a.N = (int)w->N, a.K = (int)w->K, a.e = e;
    if (proa_wfmt_is_quantised(w->format)) {
        quant_layout at = quant_layout_of(w->format, w->N, w->K);
        a.row_bytes = at.row_bytes, a.scales = a.w + at.scales_at;
    }
    if (ring_takes(g, w, a.M, e.half)) return ring_linear(g, a, w->format);
    switch (w->format) {
    case PROA_WFMT_F16: choose<PROA_WFMT_F16>(g, a); break;
    case PROA_WFMT_BF16: choose<PROA_WFMT_BF16>(g, a); break;
    case PROA_WFMT_FP8: choose<PROA_WFMT_FP8>(g, a); break;
    case PROA_WFMT_I8W: choose<PROA_WFMT_I8W>(g, a); break;
    default: choose<PROA_WFMT_I4>(g, a); break;
    }
}
