/* SPDX-License-Identifier: Apache-2.0
 * linear.cu - y = act(alpha x W^T + bias) + residual, or a gate's half times the other: up to GEMV_ROWS rows by own kernels that stream the weights, more by
 * gemm.cu. Weights lie as [N][ld] of their type, ld = K rounded up to 16 bytes, zeros behind K. */
#include "kernels/cuda/linear/linear.h"

extern "C" {
#include "base/alloc.h"
}
#include <stdlib.h>
#include <string.h>

enum { JOINED_MAX = 2048, JOINED_OUTPUTS = 1 << 21 /* what blocks of so many have room for */,
       GEMV_ROWS = 3, GEMV_THREADS = 256, GEMV_WARPS = GEMV_THREADS / 32 };

static epilogue epilogue_of(const proa_epilogue *e, const proa_weight *w)
{
    epilogue out = {1.0f, PROA_ACT_NONE, NULL, NULL, PROA_DTYPE_F32, 0, 0};
    if (!e) return out;
    out.alpha = e->alpha != 0.0f ? e->alpha : 1.0f;
    out.act = (int)e->act, out.bias = e->bias;
    out.half = e->gated ? (int)(w->N / 2) : 0;
    if (!e->residual.rank) return out;
    out.residual = e->residual.data, out.residual_type = e->residual.dtype, out.residual_row = e->residual.stride[0];
    return out;
}

/* ---- weights ---- */

static int element_bytes(proa_wfmt format)
{
    return format == PROA_WFMT_F32 ? 4 : 2;
}

int64_t gpu_leading(proa_wfmt format, int64_t K)
{
    int64_t step = 16 / element_bytes(format);
    return (K + step - 1) / step * step;
}

/* -1: a format that has no kernels here. */
static int64_t pack_bytes(proa_wfmt format, int64_t N, int64_t K)
{
    if (format == PROA_WFMT_FP8 || format == PROA_WFMT_I8W || format == PROA_WFMT_I4)
        return quant_layout_of(format, N, K).bytes;
    if (format != PROA_WFMT_F32 && format != PROA_WFMT_F16 && format != PROA_WFMT_BF16) return -1;
    return N * gpu_leading(format, K) * element_bytes(format);
}

template <typename From, typename To>
__global__ void convert_kernel(To *dst, int64_t ld, const From *src, int64_t row, int64_t col, int64_t N, int64_t K)
{
    gpu_wait();
    for (int64_t k = threadIdx.x; k < K; k += blockDim.x)
        dst[blockIdx.x * ld + k] = gpu_from_f32<To>(gpu_to_f32(src[blockIdx.x * row + k * col]));
}

template <typename From>
static void convert(gpu *g, void *dst, proa_wfmt format, int64_t ld, const From *src, int64_t row, int64_t col, int64_t N,
                    int64_t K)
{
    dim3 grid((unsigned)N);
    if (format == PROA_WFMT_F32)
        gpu_launch(g, "pack", convert_kernel<From, float>, grid, 256, 0, (float *)dst, ld, src, row, col, N, K);
    else if (format == PROA_WFMT_F16)
        gpu_launch(g, "pack", convert_kernel<From, __half>, grid, 256, 0, (__half *)dst, ld, src, row, col, N, K);
    else
        gpu_launch(g, "pack", convert_kernel<From, __nv_bfloat16>, grid, 256, 0, (__nv_bfloat16 *)dst, ld, src, row, col,
                   N, K);
}

/* The whole source goes over as it is, strides and all, and is converted there. */
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
    char *raw = (char *)gpu_cast_room(g, (size_t)span);
    g->base.upload(&g->base, raw, v->data, span);
    if (v->dtype == PROA_DTYPE_F32)
        convert(g, dst, format, ld, (const float *)(const void *)raw, v->stride[0], v->stride[1], N, K);
    else if (v->dtype == PROA_DTYPE_F16)
        convert(g, dst, format, ld, (const __half *)(const void *)raw, v->stride[0], v->stride[1], N, K);
    else convert(g, dst, format, ld, (const __nv_bfloat16 *)(const void *)raw, v->stride[0], v->stride[1], N, K);
}

static void pack_plain(gpu *g, proa_weight *w, const proa_view *sources, int count)
{
    gpu_flush(g);
    if (proa_wfmt_is_quantised(w->format)) return quant_pack(g, w, sources, count);
    char *at = (char *)w->data;
    int64_t ld = gpu_leading(w->format, w->K);
    if (ld != w->K) /* zeros behind K; all else is overwritten */
        gpu_note(g, cudaMemsetAsync(at, 0, (size_t)pack_bytes(w->format, w->N, w->K), g->stream), "pack");
    for (int i = 0; i < count; i++) {
        pack_source(g, at, w->format, ld, &sources[i]);
        at += sources[i].shape[0] * ld * element_bytes(w->format);
    }
}

/* The kernels know three types: f64 comes as f32. */
static void pack(proa_ctx *c, proa_weight *w, const proa_view *sources, int count)
{
    proa_view *plain = (proa_view *)proa_calloc((size_t)count, sizeof *plain);
    for (int i = 0; i < count; i++) {
        const proa_view *v = &sources[i];
        plain[i] = *v;
        if (v->dtype != PROA_DTYPE_F64 || proa_view_count(*v) == 0) continue;
        int64_t span = (v->shape[0] - 1) * v->stride[0] + (v->shape[1] - 1) * v->stride[1] + 1;
        plain[i].data = proa_malloc((size_t)span * 4), plain[i].dtype = PROA_DTYPE_F32;
        proa_to_f32((float *)plain[i].data, v->data, v->dtype, span);
    }
    pack_plain(gpu_of(c), w, plain, count);
    for (int i = 0; i < count; i++)
        if (plain[i].data != sources[i].data) free(plain[i].data);
    free(plain);
}

/* ---- few rows ---- */

/* 16 bytes of weights as floats. */
template <typename W> struct piece;
template <> struct piece<float> {
    static const int COUNT = 4;
    __device__ static void open(float out[4], uint4 v)
    {
        out[0] = __uint_as_float(v.x), out[1] = __uint_as_float(v.y);
        out[2] = __uint_as_float(v.z), out[3] = __uint_as_float(v.w);
    }
};
template <> struct piece<__half> {
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
template <> struct piece<__nv_bfloat16> {
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

template <int COUNT> __device__ static inline void load_x(float out[COUNT], const float *x, int k, int K, bool aligned)
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

/* Places of weights in 32 bits leave registers for more blocks an SM; not where nvcc makes less of them. */
template <typename W, int M> __host__ __device__ constexpr bool gemv_short_places()
{
    return std::is_same<W, __half>::value || (sizeof(W) == 2 && M < 3);
}

/* Blocks an SM that registers are left for: GPT-2 XL's 400 blocks of one row want four of them at once, on 132 SMs. 0: as nvcc
 * likes. */
template <typename W, int M, int U> constexpr int gemv_blocks()
{
    const bool half = std::is_same<W, __half>::value;
    if (!gemv_short_places<W, M>()) return 0;
    if (U > 1) return M > 1 ? 2 : half ? 4 : 3;
    return half ? 6 - M : 4;
}

/* A block makes R outputs of all M rows; its warps share K between them, lanes in pieces of 16 bytes. The weights of the
 * first U steps are asked for before the kernel before has ended: they do not depend on it. What each variant reached is in
 * README.md (bench/gpu/gemv.cu). */
template <typename W, int M, int R, int U>
__global__ void __launch_bounds__(GEMV_THREADS, gemv_blocks<W, M, U>())
    gemv_kernel(float *y, int64_t y_row, const float *x, int64_t x_row, bool aligned, const W *w, int64_t ld, int N, int K,
                epilogue e)
{
    const int COUNT = piece<W>::COUNT, STEP = GEMV_THREADS * COUNT;
    __shared__ float room[GEMV_WARPS][R * M];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const block_rows<R> rows(e, N, blockIdx.x);
    const bool SHORT = gemv_short_places<W, M>();
    typename std::conditional<SHORT, unsigned, const uint4 *>::type at_row[R] = {}; /* in pieces of 16 bytes */
    auto place = [&](int r) {
        if constexpr (SHORT) return (const uint4 *)w + at_row[r];
        else return at_row[r];
    };
    uint4 next[U][R];
    float sum[R][M] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
        if constexpr (SHORT) at_row[r] = (unsigned)rows.row(r) * (unsigned)(ld / COUNT) + threadIdx.x;
        else at_row[r] = (const uint4 *)(w + (int64_t)rows.row(r) * ld) + threadIdx.x;
    }
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int r = 0; r < R; r++)
            if (u * STEP + (int)threadIdx.x * COUNT < ld) next[u][r] = load_stream(place(r) + u * GEMV_THREADS);
    int r_end = threadIdx.x / M, m_end = threadIdx.x % M, n_end = rows.first + r_end; /* what this thread finishes */
    bool ends = rows.makes(r_end);
    epilogue_ahead ahead = {};
    if (ends) bias_ahead(&ahead, e, n_end);
    gpu_wait();
    if (ends) residual_ahead(&ahead, e, m_end, n_end);
    for (int base = 0; base < K; base += U * STEP) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            int at = base + u * STEP, k = at + (int)threadIdx.x * COUNT;
            if (k >= K) break;
            float xs[M][COUNT];
#pragma unroll
            for (int m = 0; m < M; m++) load_x<COUNT>(xs[m], x + m * x_row, k, K, aligned);
#pragma unroll
            for (int r = 0; r < R; r++) {
                float ws[COUNT];
                piece<W>::open(ws, next[u][r]);
                if (k + U * STEP < ld) next[u][r] = load_stream(place(r) + (at + U * STEP) / COUNT);
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int i = 0; i < COUNT; i++) sum[r][m] = fmaf(xs[m][i], ws[i], sum[r][m]);
            }
        }
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
    for (int i = 0; i < GEMV_WARPS; i++) v += room[i][threadIdx.x];
    if (e.half)
#pragma unroll
        for (int i = 0; i < GEMV_WARPS; i++) u += room[i][threadIdx.x + R / 2 * M];
    y[m_end * y_row + n_end] = finished(e, v, u, ahead);
}

/* The same for one row behind a norm that has not been run: a block's T threads hold the whole row between them, so each
 * block finds mean and variance itself while its first weights are on their way, and a kernel less stands between the
 * products. Blocks stay for many outputs, so that the norm is paid once. Each writes a piece of the normed row too. K <= S
 * steps. */
template <typename W, int T, int R, int S>
__global__ void __launch_bounds__(T)
    norm_gemv_kernel(float *y, const float *x, const W *w, int64_t ld, int N, int K, epilogue e, gpu_norm norm)
{
    const int COUNT = piece<W>::COUNT, STEP = T * COUNT;
    extern __shared__ epilogue_ahead aheads[]; /* of all outputs of this block: no load from memory stands at a group's end */
    __shared__ float room[2][T / 32][R], sums[33];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, groups = blocks_of(e, N, R), made = e.half ? R / 2 : R;
    int here = (groups - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x, end = outputs_of(e, N);
    auto output = [&](int i) { return ((int)blockIdx.x + (e.half ? i / (R / 2) : i / R) * (int)gridDim.x) * made + (i & made - 1); };
    uint4 next[S][R];
    float xs[S][COUNT], scale[S][COUNT], shift[S][COUNT], total = 0.0f, mean = 0.0f;
    auto fetch = [&](int s, int group) {
        int k = s * STEP + (int)threadIdx.x * COUNT;
        if (group >= groups || k >= ld) return;
        const block_rows<R> rows(e, N, group);
#pragma unroll
        for (int r = 0; r < R; r++) next[s][r] = load_stream(w + rows.row(r) * ld + k);
    };
#pragma unroll
    for (int s = 0; s < S; s++) {
        int k = s * STEP + (int)threadIdx.x * COUNT;
        fetch(s, blockIdx.x);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            scale[s][i] = k + i < K ? norm.w[k + i] : 0.0f;
            shift[s][i] = norm.b && k + i < K ? norm.b[k + i] : 0.0f;
        }
    }
    for (int i = threadIdx.x; i < here * made; i += T)
        if (output(i) < end) bias_ahead(&aheads[i], e, output(i));
    gpu_wait();
    for (int i = threadIdx.x; e.residual && i < here * made; i += T)
        if (output(i) < end) residual_ahead(&aheads[i], e, 0, output(i));
#pragma unroll
    for (int s = 0; s < S; s++) {
        load_x<COUNT>(xs[s], x, s * STEP + (int)threadIdx.x * COUNT, K, norm.aligned);
#pragma unroll
        for (int i = 0; i < COUNT; i++) total += xs[s][i];
    }
    if (norm.layer) mean = gpu_block_sum(total, sums) / (float)K;
    total = 0.0f;
#pragma unroll
    for (int s = 0; s < S; s++)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (s * STEP + (int)threadIdx.x * COUNT + i < K) total += (xs[s][i] - mean) * (xs[s][i] - mean);
    float inverse = 1.0f / sqrtf(gpu_block_sum(total, sums) / (float)K + norm.eps);
    int each = (K + (int)gridDim.x - 1) / (int)gridDim.x, begin = blockIdx.x * each;
#pragma unroll
    for (int s = 0; s < S; s++) {
        int k = s * STEP + (int)threadIdx.x * COUNT;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            xs[s][i] = (xs[s][i] - mean) * inverse * scale[s][i] + shift[s][i];
            if (k + i >= begin && k + i < begin + each && k + i < K) norm.y[k + i] = xs[s][i];
        }
    }
    for (int i = 0; i < here; i++) {
        int group = (int)blockIdx.x + i * (int)gridDim.x;
        float sum[R] = {};
#pragma unroll
        for (int s = 0; s < S; s++) {
            if (s * STEP + (int)threadIdx.x * COUNT < K) {
#pragma unroll
                for (int r = 0; r < R; r++) {
                    float ws[COUNT];
                    piece<W>::open(ws, next[s][r]);
#pragma unroll
                    for (int i = 0; i < COUNT; i++) sum[r] = fmaf(xs[s][i], ws[i], sum[r]);
                }
            }
            fetch(s, group + gridDim.x);
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            float v = gpu_warp_sum(sum[r]);
            if (lane == 0) room[i & 1][warp][r] = v;
        }
        __syncthreads(); /* the other half of the room is free again: all have read it before they came here */
        int n = group * made + (int)threadIdx.x;
        if ((int)threadIdx.x >= made || n >= end) continue;
        float v = 0.0f, u = 0.0f;
#pragma unroll
        for (int k = 0; k < T / 32; k++) v += room[i & 1][k][threadIdx.x];
        if (e.half)
#pragma unroll
            for (int k = 0; k < T / 32; k++) u += room[i & 1][k][threadIdx.x + R / 2];
        y[n] = finished(e, v, u, aheads[i * made + threadIdx.x]);
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

template <typename W, int M, int R, int U> static void launch_gemv(gpu *g, const gemv_call *a)
{
    gpu_launch(g, "linear (few rows)", gemv_kernel<W, M, R, U>, dim3((unsigned)blocks_of(a->e, a->N, R)), GEMV_THREADS, 0, a->y,
               a->y_row, a->x, a->x_row, a->aligned, (const W *)a->w, a->ld, a->N, a->K, a->e);
}

/* Long rows have steps enough in flight with one ahead, short ones have but one. */
template <typename W, int M> static void choose_gemv(gpu *g, const gemv_call *a)
{
    const int STEP = GEMV_THREADS * piece<W>::COUNT;
    if (a->K > 4 * STEP || a->K <= STEP) launch_gemv<W, M, 4, 1>(g, a);
    else launch_gemv<W, M, 4, 2>(g, a);
}

template <typename W> static void gemv(gpu *g, const gemv_call *a, int rows)
{
    switch (rows) {
    case 1: choose_gemv<W, 1>(g, a); break;
    case 2: choose_gemv<W, 2>(g, a); break;
    default: choose_gemv<W, 3>(g, a); break;
    }
}

/* What was fastest of threads, outputs at once and blocks an SM (bench/gpu/stream.cu). */
template <typename W, int T, int S> static void launch_norm_gemv(gpu *g, const gemv_call *a, const gpu_norm &norm, int blocks_of_sm)
{
    enum { R = 4 };
    int groups = blocks_of(a->e, a->N, R), most = g->sms * blocks_of_sm, blocks = groups < most ? groups : most;
    size_t shared = (size_t)((groups + blocks - 1) / blocks) * R * sizeof(epilogue_ahead);
    gpu_launch(g, "norm and linear", norm_gemv_kernel<W, T, R, S>, dim3((unsigned)blocks), T, shared, a->y, norm.x, (const W *)a->w,
               a->ld, a->N, a->K, a->e, norm);
}

template <typename W> static void norm_gemv(gpu *g, const gemv_call *a, const gpu_norm &norm)
{
    int pieces = (a->K + piece<W>::COUNT - 1) / piece<W>::COUNT;
    if (pieces <= 128) launch_norm_gemv<W, 128, 1>(g, a, norm, 8);
    else if (pieces <= 256) launch_norm_gemv<W, 256, 1>(g, a, norm, 4);
    else launch_norm_gemv<W, 256, 2>(g, a, norm, 4);
}

/* The norm that waits makes this linear's rows: both in one kernel. */
static bool join_norm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    gpu_norm norm = g->norm;
    if (proa_wfmt_is_quantised(w->format)) return false;
    if (!norm.x || gpu_narrow(y) || x.data != norm.y || x.shape[0] != norm.rows || w->K != norm.d) return false;
    if (y.data == norm.x || y.data == norm.y || e.residual == norm.y) return false; /* read by all blocks */
    if (norm.rows > 1) {
        if (!gpu_small(g, y, x, w, e, &norm)) return false;
        g->norm.x = NULL;
        return true;
    }
    if (w->K > JOINED_MAX || w->N > JOINED_OUTPUTS) return false; /* each block norms the whole row: wider ones win nothing */
    gemv_call a = {(float *)y.data, 0, NULL, 0, false, w->data, gpu_leading(w->format, w->K), (int)w->N, (int)w->K, e};
    g->norm.x = NULL;
    if (w->format == PROA_WFMT_F32) norm_gemv<float>(g, &a, norm);
    else if (w->format == PROA_WFMT_F16) norm_gemv<__half>(g, &a, norm);
    else norm_gemv<__nv_bfloat16>(g, &a, norm);
    return true;
}

/* Any number of rows, a few at a time, in f32 throughout. */
static void few_rows(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    int64_t T = y.shape[0];
    for (int64_t t = 0; t < T; t += GEMV_ROWS) {
        int rows = (int)(T - t < GEMV_ROWS ? T - t : (int64_t)GEMV_ROWS);
        gemv_call a = {(float *)y.data + t * y.stride[0], y.stride[0], (const float *)x.data + t * x.stride[0],
                       x.stride[0], false, w->data, gpu_leading(w->format, w->K), (int)w->N, (int)w->K, e};
        a.e = rows_from(e, t);
        a.aligned = x.stride[0] % 4 == 0 && (uintptr_t)a.x % 16 == 0;
        if (w->format == PROA_WFMT_F32) gemv<float>(g, &a, rows);
        else if (w->format == PROA_WFMT_F16) gemv<__half>(g, &a, rows);
        else gemv<__nv_bfloat16>(g, &a, rows);
    }
}

/* Few rows are finished by the kernel that has both sums; of 16 bits those of quantised weights alone. Not so two rows of these
 * without a ring, and one of int4, which lose more in their products than the activation's kernel takes (README.md). */
static bool ends_gated(const gpu *g, proa_view y, proa_view x, const proa_weight *w)
{
    int64_t T = y.shape[0], most = w->format == PROA_WFMT_F32 ? (int)GEMV_ROWS : (int)THIN_ROWS;
    if (!proa_wfmt_is_quantised(w->format)) return !gpu_narrow(y) && !gpu_narrow(x) && T <= most;
    if (T <= RING_ROWS) return ring_takes(g, w, T, (int)(w->N / 2)) || (T == 1 && w->format != PROA_WFMT_I4);
    return T <= most;
}

static void gated_apart(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep)
{
    proa_epilogue sums = {};
    int64_t F = w->N / 2;
    sums.alpha = ep->alpha, sums.bias = ep->bias;
    c->ops->linear(c, ep->room, x, w, &sums);
    c->ops->act_mul(c, y, proa_view_cols(ep->room, 0, F), proa_view_cols(ep->room, F, 2 * F), ep->act);
}

static void linear(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep)
{
    gpu *g = gpu_of(c);
    epilogue e = epilogue_of(ep, w);
    int64_t T = y.shape[0], few = proa_wfmt_is_quantised(w->format) ? 0 : (int)GEMV_ROWS;
    if (T == 0 || w->N == 0) return;
    if (e.half && !ends_gated(g, y, x, w)) return gated_apart(c, y, x, w, ep);
    bool many = few == 0 && T > THIN_ROWS; /* quant_gemm says itself when y is written: x's codes may be kept */
    if (!many) gpu_written(g, y);
    if (join_norm(g, y, x, w, e)) return;
    gpu_flush(g);
    if (thin_text(y, x, w)) return thin_linear(g, y, x, w, e);
    if (few > 0 && (gpu_narrow(x) || gpu_narrow(y)) && gpu_gemm(g, y, x, w, ep)) return;
    if (T > few && T <= THIN_ROWS && w->format != PROA_WFMT_F32) thin_linear(g, y, x, w, e);
    else if (few == 0) quant_gemm(g, y, x, w, ep, e);
    else if (T > few && gpu_small(g, y, x, w, e, NULL)) return;
    else if (T <= few || !gpu_gemm(g, y, x, w, ep)) few_rows(g, y, x, w, e);
}

void gpu_fill_linear(proa_ops *ops)
{
    ops->pack_bytes = pack_bytes;
    ops->pack = pack;
    ops->linear = linear;
}
