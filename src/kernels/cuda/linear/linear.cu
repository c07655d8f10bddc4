/* SPDX-License-Identifier: Apache-2.0
 * linear.cu - y = act(alpha x W^T + bias) + residual, or the gated form: packing of weights, matrix-vector
 * kernels for 1 to 3 rows (GEMV_ROWS), and the dispatch of the operation. Weights are stored as [N][ld] in
 * their type, ld = K rounded up to 16 bytes, zeros behind K. */
#include "kernels/cuda/linear/gemm_mixed.h"

extern "C" {
#include "base/alloc.h"
}
#include <stdlib.h>
#include <string.h>

enum {
    FUSED_NORM_WIDTH_MAX = 2048,
    FUSED_NORM_OUTPUTS_MAX = 1 << 21 /* what blocks of so many have room for */,
    GEMV_ROWS = 3,
    GEMV_THREADS = 256,
    GEMV_WARPS = GEMV_THREADS / 32
};

/* ---- weights ---- */

static int element_bytes(proa_wfmt format)
{
    return format == PROA_WFMT_F32 ? 4 : 2;
}

int64_t gpu_leading_dim(proa_wfmt format, int64_t K)
{
    return proa_plain_leading_dim(format, K);
}

/* -1: a format that has no kernels here. */
static int64_t pack_bytes(proa_wfmt format, int64_t N, int64_t K)
{
    if (format == PROA_WFMT_FP8 || format == PROA_WFMT_I8W || proa_wfmt_is_coded(format))
        return quant_layout_of(format, N, K).bytes;
    if (format != PROA_WFMT_F32 && format != PROA_WFMT_F16 && format != PROA_WFMT_BF16) return -1;
    return N * gpu_leading_dim(format, K) * element_bytes(format);
}

template <typename From, typename To>
__global__ void convert_kernel(To *dst, int64_t ld, const From *src, int64_t row, int64_t col, int64_t N,
                               int64_t K)
{
    gpu_wait();
    for (int64_t k = threadIdx.x; k < K; k += blockDim.x)
        dst[blockIdx.x * ld + k] = gpu_from_f32<To>(gpu_to_f32(src[blockIdx.x * row + k * col]));
}

template <typename From>
static void convert_matrix(gpu *g, void *dst, proa_wfmt format, int64_t ld, const From *src, int64_t row,
                           int64_t col, int64_t N, int64_t K)
{
    dim3 grid((unsigned)N);
    if (format == PROA_WFMT_F32)
        gpu_launch(g, "pack", convert_kernel<From, float>, grid, 256, 0, (float *)dst, ld, src, row, col, N, K);
    else if (format == PROA_WFMT_F16)
        gpu_launch(g, "pack", convert_kernel<From, __half>, grid, 256, 0, (__half *)dst, ld, src, row, col, N, K);
    else
        gpu_launch(g, "pack", convert_kernel<From, __nv_bfloat16>, grid, 256, 0, (__nv_bfloat16 *)dst, ld,
                   src, row, col, N, K);
}

/* The source is uploaded in its own type and strides and is converted on the card. */
static void pack_source(gpu *g, char *dst, proa_wfmt format, int64_t ld, const proa_view *v)
{
    int64_t N = v->shape[0], K = v->shape[1], size = proa_dtype_bytes(v->dtype);
    int64_t span = ((N - 1) * v->stride[0] + (K - 1) * v->stride[1] + 1) * size;
    if (N == 0 || K == 0) return;
    bool same = (format == PROA_WFMT_F32 && v->dtype == PROA_DTYPE_F32) ||
                (format == PROA_WFMT_F16 && v->dtype == PROA_DTYPE_F16) ||
                (format == PROA_WFMT_BF16 && v->dtype == PROA_DTYPE_BF16);
    if (same && K == ld && v->stride[1] == 1 && v->stride[0] == ld) {
        g->base.upload(&g->base, dst, v->data, N * ld * size);
        return;
    }
    char *raw = (char *)gpu_cast_workspace(g, (size_t)span);
    g->base.upload(&g->base, raw, v->data, span);
    if (v->dtype == PROA_DTYPE_F32)
        convert_matrix(g, dst, format, ld, (const float *)(const void *)raw, v->stride[0], v->stride[1], N, K);
    else if (v->dtype == PROA_DTYPE_F16)
        convert_matrix(g, dst, format, ld, (const __half *)(const void *)raw, v->stride[0], v->stride[1], N, K);
    else
        convert_matrix(g, dst, format, ld, (const __nv_bfloat16 *)(const void *)raw, v->stride[0],
                       v->stride[1], N, K);
}

static void pack_op(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count)
{
    gpu *g = gpu_of(c);
    proa_tensor_source_walk walk = {sources, count, 0, 0, NULL};
    proa_view view;
    gpu_flush(g);
    if (proa_wfmt_is_quantised(w->format)) return quant_pack(c, w, sources, count);
    char *at = (char *)w->data;
    int64_t ld = gpu_leading_dim(w->format, w->K);
    if (ld != w->K) /* zeros behind K; all else is overwritten */
        gpu_note(g, cudaMemsetAsync(at, 0, (size_t)pack_bytes(w->format, w->N, w->K), g->stream), "pack");
    while (proa_tensor_source_next(&walk, &view)) {
        pack_source(g, at, w->format, ld, &view);
        at += view.shape[0] * ld * element_bytes(w->format);
    }
}

/* ---- few rows ---- */

/* 16 bytes of weights as floats. */
template <typename W> struct weight_vec;
template <> struct weight_vec<float> {
    static const int COUNT = 4;
    __device__ static void open(float out[4], uint4 v)
    {
        out[0] = __uint_as_float(v.x), out[1] = __uint_as_float(v.y);
        out[2] = __uint_as_float(v.z), out[3] = __uint_as_float(v.w);
    }
};
template <> struct weight_vec<__half> {
    static const int COUNT = 8;
    __device__ static void open(float out[8], uint4 v)
    {
        const __half2 *h = reinterpret_cast<const __half2 *>(&v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 f = __half22float2(h[i]);
            out[2 * i] = f.x, out[2 * i + 1] = f.y;
        }
    }
};
template <> struct weight_vec<__nv_bfloat16> {
    static const int COUNT = 8;
    __device__ static void open(float out[8], uint4 v)
    {
        const unsigned *u = reinterpret_cast<const unsigned *>(&v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = __uint_as_float(u[i] << 16);
            out[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
        }
    }
};

template <int COUNT>
__device__ static inline void load_x(float out[COUNT], const float *x, int k, int K, bool aligned)
{
    if (aligned && k + COUNT <= K) {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++) {
            float4 f = *reinterpret_cast<const float4 *>(x + k + 4 * i);
            out[4 * i] = f.x, out[4 * i + 1] = f.y, out[4 * i + 2] = f.z, out[4 * i + 3] = f.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) out[i] = k + i < K ? x[k + i] : 0.0f;
    }
}

/* Offsets of 32 bits instead of pointers leave registers for more blocks an SM. Not used where nvcc needs
 * more registers with them. */
template <typename W, int X_ROWS> __host__ __device__ constexpr bool gemv_offsets_32bit()
{
    return std::is_same<W, __half>::value || (sizeof(W) == 2 && X_ROWS < 3);
}

/* Blocks an SM that the registers must leave room for; 0: nvcc chooses. GPT-2 XL has 400 blocks of one row
 * for 132 SMs and needs four at a time. */
template <typename W, int X_ROWS, int STEPS_AHEAD> constexpr int gemv_blocks()
{
    const bool half = std::is_same<W, __half>::value;
    if (!gemv_offsets_32bit<W, X_ROWS>()) return 0;
    if (STEPS_AHEAD > 1) return X_ROWS > 1 ? 2 : half ? 4 : 3;
    return half ? 6 - X_ROWS : 4;
}

/* y[m, n] = epilogue(sum over k of x[m, k] w[n, k]) for X_ROWS rows of x (1 to 3, f32) and weights in f32 or
 * 16 bits.
 *
 *   block        256 threads make OUTPUTS outputs of all X_ROWS rows
 *   K            thread t takes the 16-byte pieces t, t + 256, ... of each row; its sums stay in registers and are added
 *                over the warp by shuffles, over the warps by shared memory
 *   registers    STEPS_AHEAD x OUTPUTS pieces of 16 bytes in flight; __launch_bounds__ by gemv_blocks
 *   shared       8 warps x OUTPUTS x X_ROWS floats
 *
 * The first STEPS_AHEAD steps of weights are loaded before gpu_wait. The variants are measured in
 * docs/lab/cuda-gemm.md (bench/gpu/gemv.cu). */
template <typename W, int X_ROWS, int OUTPUTS, int STEPS_AHEAD>
__global__ void __launch_bounds__(GEMV_THREADS, gemv_blocks<W, X_ROWS, STEPS_AHEAD>())
    gemv_kernel(float *y, int64_t y_row, const float *x, int64_t x_row, bool aligned, const W *w, int64_t ld,
                int N, int K, epilogue e)
{
    const int COUNT = weight_vec<W>::COUNT, STEP = GEMV_THREADS * COUNT;
    __shared__ float scratch[GEMV_WARPS][OUTPUTS * X_ROWS];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const block_rows<OUTPUTS> rows(e, N, blockIdx.x);
    const bool SHORT = gemv_offsets_32bit<W, X_ROWS>();
    typename std::conditional<SHORT, unsigned, const uint4 *>::type at_row[OUTPUTS] = {}; /* in pieces of 16 bytes */
    auto place = [&](int r) {
        if constexpr (SHORT) return (const uint4 *)w + at_row[r];
        else return at_row[r];
    };
    uint4 next[STEPS_AHEAD][OUTPUTS];
    float sum[OUTPUTS][X_ROWS] = {};
#pragma unroll
    for (int r = 0; r < OUTPUTS; r++) {
        if constexpr (SHORT) at_row[r] = (unsigned)rows.row(r) * (unsigned)(ld / COUNT) + threadIdx.x;
        else at_row[r] = (const uint4 *)(w + (int64_t)rows.row(r) * ld) + threadIdx.x;
    }
#pragma unroll
    for (int u = 0; u < STEPS_AHEAD; u++)
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++)
            if (u * STEP + (int)threadIdx.x * COUNT < ld)
                next[u][r] = load_stream(place(r) + u * GEMV_THREADS);
    int r_end = threadIdx.x / X_ROWS, m_end = threadIdx.x % X_ROWS,
        n_end = rows.first + r_end; /* what this thread finishes */
    bool ends = rows.makes(r_end);
    epilogue_operands ahead = {};
    if (ends) prefetch_bias(&ahead, e, n_end);
    gpu_wait();
    if (ends) prefetch_residual(&ahead, e, m_end, n_end);
    for (int base = 0; base < K; base += STEPS_AHEAD * STEP) {
#pragma unroll
        for (int u = 0; u < STEPS_AHEAD; u++) {
            int at = base + u * STEP, k = at + (int)threadIdx.x * COUNT;
            if (k >= K) break;
            float xs[X_ROWS][COUNT];
#pragma unroll
            for (int m = 0; m < X_ROWS; m++) load_x<COUNT>(xs[m], x + m * x_row, k, K, aligned);
#pragma unroll
            for (int r = 0; r < OUTPUTS; r++) {
                float ws[COUNT];
                weight_vec<W>::open(ws, next[u][r]);
                if (k + STEPS_AHEAD * STEP < ld)
                    next[u][r] = load_stream(place(r) + (at + STEPS_AHEAD * STEP) / COUNT);
#pragma unroll
                for (int m = 0; m < X_ROWS; m++)
#pragma unroll
                    for (int i = 0; i < COUNT; i++) sum[r][m] = fmaf(xs[m][i], ws[i], sum[r][m]);
            }
        }
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
    for (int i = 0; i < GEMV_WARPS; i++) v += scratch[i][threadIdx.x];
    if (e.gate_rows)
#pragma unroll
        for (int i = 0; i < GEMV_WARPS; i++) u += scratch[i][threadIdx.x + OUTPUTS / 2 * X_ROWS];
    y[m_end * y_row + n_end] = apply_epilogue(e, v, u, ahead);
}

/* The same for one row of x that a norm still has to make: y = epilogue(norm(x) W^T), for K up to STEPS
 * steps.
 *
 * A block's THREADS threads hold the whole row, so each block computes mean and variance itself while its
 * first weights are loaded, and there is one kernel less between two products. Blocks are persistent and walk
 * over groups of OUTPUTS outputs, so that the norm is computed once. Each block also writes its part of the
 * normed row.
 *
 *   registers    STEPS x OUTPUTS pieces of 16 bytes of weights, STEPS pieces of x as f32
 *   shared       the epilogue's operands of all outputs of the block (dynamic), 2 x warps x OUTPUTS sums */
template <typename W, int THREADS, int OUTPUTS, int STEPS>
__global__ void __launch_bounds__(THREADS) norm_gemv_kernel(float *y, const float *x, const W *w, int64_t ld,
                                                            int N, int K, epilogue e, gpu_pending_norm norm)
{
    const int COUNT = weight_vec<W>::COUNT, STEP = THREADS * COUNT;
    extern __shared__ epilogue_operands operands[]; /* of all outputs of this block, so that no load stands at the end of a group */
    __shared__ float scratch[2][THREADS / 32][OUTPUTS], sums[33];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, groups = blocks_of(e, N, OUTPUTS),
        made = e.gate_rows ? OUTPUTS / 2 : OUTPUTS;
    int block_tiles = (groups - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x, end = outputs_of(e, N);
    auto output = [&](int i) {
        return ((int)blockIdx.x + (e.gate_rows ? i / (OUTPUTS / 2) : i / OUTPUTS) * (int)gridDim.x) * made +
               (i & made - 1);
    };
    uint4 next[STEPS][OUTPUTS];
    float xs[STEPS][COUNT], scale[STEPS][COUNT], shift[STEPS][COUNT], total = 0.0f, mean = 0.0f;
    auto fetch = [&](int s, int group) {
        int k = s * STEP + (int)threadIdx.x * COUNT;
        if (group >= groups || k >= ld) return;
        const block_rows<OUTPUTS> rows(e, N, group);
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++) next[s][r] = load_stream(w + rows.row(r) * ld + k);
    };
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int k = s * STEP + (int)threadIdx.x * COUNT;
        fetch(s, blockIdx.x);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            scale[s][i] = k + i < K ? norm.w[k + i] : 0.0f;
            shift[s][i] = norm.b && k + i < K ? norm.b[k + i] : 0.0f;
        }
    }
    for (int i = threadIdx.x; i < block_tiles * made; i += THREADS)
        if (output(i) < end) prefetch_bias(&operands[i], e, output(i));
    gpu_wait();
    for (int i = threadIdx.x; e.residual && i < block_tiles * made; i += THREADS)
        if (output(i) < end) prefetch_residual(&operands[i], e, 0, output(i));
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        load_x<COUNT>(xs[s], x, s * STEP + (int)threadIdx.x * COUNT, K, norm.aligned);
#pragma unroll
        for (int i = 0; i < COUNT; i++) total += xs[s][i];
    }
    if (norm.layer) mean = gpu_block_sum(total, sums) / (float)K;
    total = 0.0f;
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (s * STEP + (int)threadIdx.x * COUNT + i < K) total += (xs[s][i] - mean) * (xs[s][i] - mean);
    float inverse = 1.0f / sqrtf(gpu_block_sum(total, sums) / (float)K + norm.eps);
    int each = (K + (int)gridDim.x - 1) / (int)gridDim.x, begin = blockIdx.x * each;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int k = s * STEP + (int)threadIdx.x * COUNT;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            xs[s][i] = (xs[s][i] - mean) * inverse * scale[s][i] + shift[s][i];
            if (k + i >= begin && k + i < begin + each && k + i < K) norm.y[k + i] = xs[s][i];
        }
    }
    for (int i = 0; i < block_tiles; i++) {
        int group = (int)blockIdx.x + i * (int)gridDim.x;
        float sum[OUTPUTS] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            if (s * STEP + (int)threadIdx.x * COUNT < K) {
#pragma unroll
                for (int r = 0; r < OUTPUTS; r++) {
                    float ws[COUNT];
                    weight_vec<W>::open(ws, next[s][r]);
#pragma unroll
                    for (int i = 0; i < COUNT; i++) sum[r] = fmaf(xs[s][i], ws[i], sum[r]);
                }
            }
            fetch(s, group + gridDim.x);
        }
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++) {
            float v = gpu_warp_sum(sum[r]);
            if (lane == 0) scratch[i & 1][warp][r] = v;
        }
        __syncthreads(); /* the other half of scratch is free again: every thread read it before it came here */
        int n = group * made + (int)threadIdx.x;
        if ((int)threadIdx.x >= made || n >= end) continue;
        float v = 0.0f, u = 0.0f;
#pragma unroll
        for (int k = 0; k < THREADS / 32; k++) v += scratch[i & 1][k][threadIdx.x];
        if (e.gate_rows)
#pragma unroll
            for (int k = 0; k < THREADS / 32; k++) u += scratch[i & 1][k][threadIdx.x + OUTPUTS / 2];
        y[n] = apply_epilogue(e, v, u, operands[i * made + threadIdx.x]);
    }
}

struct gemv_call {
    float *y;
    int64_t y_row;
    const float *x;
    int64_t x_row;
    bool aligned;
    const void *w;
    int64_t ld;
    int N, K;
    epilogue e;
};

template <typename W, int X_ROWS, int OUTPUTS, int STEPS_AHEAD>
static void launch_gemv(gpu *g, const gemv_call *a)
{
    gpu_launch(g, "linear (few rows)", gemv_kernel<W, X_ROWS, OUTPUTS, STEPS_AHEAD>,
               dim3((unsigned)blocks_of(a->e, a->N, OUTPUTS)), GEMV_THREADS, 0, a->y, a->y_row, a->x,
               a->x_row, a->aligned, (const W *)a->w, a->ld, a->N, a->K, a->e);
}

/* Long rows have enough loads in flight with one step ahead; short rows have only one step. */
template <typename W, int X_ROWS> static void choose_gemv(gpu *g, const gemv_call *a)
{
    const int STEP = GEMV_THREADS * weight_vec<W>::COUNT;
    if (a->K > 4 * STEP || a->K <= STEP) launch_gemv<W, X_ROWS, 4, 1>(g, a);
    else launch_gemv<W, X_ROWS, 4, 2>(g, a);
}

template <typename W> static void gemv(gpu *g, const gemv_call *a, int rows)
{
    switch (rows) {
    case 1: choose_gemv<W, 1>(g, a); break;
    case 2: choose_gemv<W, 2>(g, a); break;
    default: choose_gemv<W, 3>(g, a); break;
    }
}

/* Threads, outputs and blocks an SM that were fastest (bench/gpu/stream.cu). */
template <typename W, int THREADS, int STEPS>
static void launch_norm_gemv(gpu *g, const gemv_call *a, const gpu_pending_norm &norm, int blocks_of_sm)
{
    enum { OUTPUTS = 4 };
    int groups = blocks_of(a->e, a->N, OUTPUTS), most = g->sms * blocks_of_sm,
        blocks = groups < most ? groups : most;
    size_t shared = (size_t)((groups + blocks - 1) / blocks) * OUTPUTS * sizeof(epilogue_operands);
    gpu_launch(g, "norm and linear", norm_gemv_kernel<W, THREADS, OUTPUTS, STEPS>, dim3((unsigned)blocks),
               THREADS, shared, a->y, norm.x, (const W *)a->w, a->ld, a->N, a->K, a->e, norm);
}

template <typename W> static void norm_gemv(gpu *g, const gemv_call *a, const gpu_pending_norm &norm)
{
    int pieces = (a->K + weight_vec<W>::COUNT - 1) / weight_vec<W>::COUNT;
    if (pieces <= 128) launch_norm_gemv<W, 128, 1>(g, a, norm, 8);
    else if (pieces <= 256) launch_norm_gemv<W, 256, 1>(g, a, norm, 4);
    else launch_norm_gemv<W, 256, 2>(g, a, norm, 4);
}

/* Runs the deferred norm and this product in one kernel, if the norm makes the product's rows. False: nothing
 * was run. */
static bool fuse_norm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    gpu_pending_norm norm = g->norm;
    if (proa_wfmt_is_quantised(w->format)) return false;
    if (!norm.x || gpu_is_16bit(y) || x.data != norm.y || x.shape[0] != norm.rows || w->K != norm.d)
        return false;
    if (y.data == norm.x || y.data == norm.y || e.residual == norm.y) return false; /* read by all blocks */
    if (norm.rows > 1) {
        if (!gpu_skinny_gemm_f32(g, y, x, w, e, &norm)) return false;
        g->norm.x = NULL;
        return true;
    }
    if (w->K > FUSED_NORM_WIDTH_MAX || w->N > FUSED_NORM_OUTPUTS_MAX)
        return false; /* each block norms the whole row: wider ones win nothing */
    gemv_call a = {(float *)y.data, 0,         NULL, 0, false, w->data, gpu_leading_dim(w->format, w->K),
                   (int)w->N,       (int)w->K, e};
    g->norm.x = NULL;
    if (w->format == PROA_WFMT_F32) norm_gemv<float>(g, &a, norm);
    else if (w->format == PROA_WFMT_F16) norm_gemv<__half>(g, &a, norm);
    else norm_gemv<__nv_bfloat16>(g, &a, norm);
    return true;
}

/* Any number of rows, GEMV_ROWS at a time, in f32 throughout. */
static void gemv_rows(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    int64_t T = y.shape[0];
    for (int64_t t = 0; t < T; t += GEMV_ROWS) {
        int rows = (int)(T - t < GEMV_ROWS ? T - t : (int64_t)GEMV_ROWS);
        gemv_call a = {(float *)y.data + t * y.stride[0],
                       y.stride[0],
                       (const float *)x.data + t * x.stride[0],
                       x.stride[0],
                       false,
                       w->data,
                       gpu_leading_dim(w->format, w->K),
                       (int)w->N,
                       (int)w->K,
                       e};
        a.e = rows_from(e, t);
        a.aligned = x.stride[0] % 4 == 0 && (uintptr_t)a.x % 16 == 0;
        if (w->format == PROA_WFMT_F32) gemv<float>(g, &a, rows);
        else if (w->format == PROA_WFMT_F16) gemv<__half>(g, &a, rows);
        else gemv<__nv_bfloat16>(g, &a, rows);
    }
}

/* Is this gated product finished by the kernel that has both sums? For few rows yes; in 16 bits only for
 * quantised weights. Two rows of these without the pipelined kernel, and one row of int4, lose more in their
 * products than the separate activation kernel takes (docs/lab/cuda-gemm.md). */
static bool fuses_gate(const gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    int64_t T = y.shape[0], most = w->format == PROA_WFMT_F32 ? (int)GEMV_ROWS : (int)SKINNY_ROWS;
    if (!proa_wfmt_is_quantised(w->format)) return !gpu_is_16bit(y) && !gpu_is_16bit(x) && T <= most;
    if (T <= PIPELINED_ROWS)
        return pipelined_takes(g, w, T, (int)(w->N / 2)) || (T == 1 && !proa_wfmt_is_int4(w->format));
    return T <= most || gpu_gemm_mixed_takes(g, y, x, w, e);
}

static void gated_unfused(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep)
{
    proa_epilogue sums = {};
    int64_t F = w->N / 2;
    sums.alpha = ep->alpha, sums.bias = ep->bias;
    c->ops->linear(c, ep->workspace, x, w, &sums);
    c->ops->act_mul(c, y, proa_view_cols(ep->workspace, 0, F), proa_view_cols(ep->workspace, F, 2 * F), ep->act);
}

/* The rows that a weight multiplies, once a deferred norm is done: those of x, or their columns in the weight's order. */
static proa_view flushed_rows(gpu *g, proa_view x, const proa_weight *w)
{
    gpu_flush(g);
    if (w->format != PROA_WFMT_FP8) x = quant_readable(g, x);
    return w->permuted ? quant_permuted(g, x, w) : x;
}

/* Few rows of 16 bits with small matrices: also those that stay f16 beside quantised weights (routers). cuBLASLt takes
 * longer for them, and nothing of it overlaps. */
static bool is_skinny(proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    proa_dtype type = w->format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16 : PROA_DTYPE_F16;
    bool narrow = w->format == PROA_WFMT_F16 || w->format == PROA_WFMT_BF16;
    if (skinny_takes_more_rows(y, x, w)) return true;
    return narrow && x.dtype == type && !gpu_is_16bit(y) && y.shape[0] <= SKINNY_ROWS && !e.gate_rows;
}

/* The product of a router waits for the choice, with its norm. */
static bool defers_router(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    bool plain = e.alpha == 1.0f && e.act == PROA_ACT_NONE && !e.residual;
    return g->router.norm && plain && is_skinny(y, x, w, e) && gpu_router_defers(g, y, x, w, e.bias);
}

/* A product of the row that the deferred norm makes: it waits for the choice too, or both run in one kernel. */
static bool joins_norm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    return defers_router(g, y, x, w, e) || norm_gemv_quant(g, y, x, w, e) || fuse_norm(g, y, x, w, e);
}

/* Plain weights, and rows or results of 16 bits: by cuBLASLt, or where it refuses the strides (a head for 50,257
 * tokens) some rows at a time. */
static bool multiply_16_bits(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep,
                             const epilogue &e)
{
    if (proa_wfmt_is_quantised(w->format) || (!gpu_is_16bit(x) && !gpu_is_16bit(y))) return false;
    if (!gpu_gemm(g, y, x, w, ep)) skinny_gemm_rows(g, y, x, w, e);
    return true;
}

/* Quantised weights as they are stored, and small ones of 16 bits. */
static bool multiply_dozens(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    if (gpu_gemm_mixed(g, y, x, w, e)) return true;
    if (!is_skinny(y, x, w, e)) return false;
    skinny_gemm(g, y, x, w, e);
    return true;
}

static void linear_op(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep)
{
    gpu *g = gpu_of(c);
    epilogue e = epilogue_of(ep, w);
    int64_t T = y.shape[0], few = proa_wfmt_is_quantised(w->format) ? 0 : (int)GEMV_ROWS;
    if (T == 0 || w->N == 0) return;
    if (e.gate_rows && !fuses_gate(g, y, x, w, e)) return gated_unfused(c, y, x, w, ep);
    bool many = few == 0 &&
                T > SKINNY_ROWS; /* quant_gemm invalidates y itself: it may reuse the fp8 copy of x first */
    if (!many) gpu_invalidate(g, y);
    if (joins_norm(g, y, x, w, e)) return;
    x = flushed_rows(g, x, w);
    if (multiply_dozens(g, y, x, w, e)) return;
    if (multiply_16_bits(g, y, x, w, ep, e)) return;
    if (T > few && T <= SKINNY_ROWS && w->format != PROA_WFMT_F32) skinny_gemm(g, y, x, w, e);
    else if (few == 0) quant_gemm(g, y, x, w, ep, e);
    else if (T > few && gpu_skinny_gemm_f32(g, y, x, w, e, NULL)) return;
    else if (T <= few || !gpu_gemm(g, y, x, w, ep)) gemv_rows(g, y, x, w, e);
}

void gpu_fill_linear(proa_ops *ops)
{
    ops->layout = PROA_CUDA_LAYOUT; /* coded.h */
    ops->pack_bytes = pack_bytes;
    ops->pack = pack_op;
    ops->linear = linear_op;
}
