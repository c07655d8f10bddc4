/* SPDX-License-Identifier: Apache-2.0
 * quant.cu - weights of 8 and 4 bits: made on the card from the checkpoint's numbers, dequantised for
 * products of many rows, multiplied as e4m3; rows of x as e4m3. The rounding is that of kernels/quant.h, the
 * same as on the host. */
#include "kernels/cuda/linear/act_quant_fp8.h"
#include "kernels/cuda/linear/gemm_fp8.h"
#include "kernels/cuda/linear/linear.h"

extern "C" {
#include "base/alloc.h"
}

enum { THREADS = 256, GROUP = PROA_I4_GROUP };
static const int64_t DEQUANT_BYTES = 128 << 20; /* of scratch for weights widened again */
enum {
    CODES_ROWS_MIN = 4096
}; /* of products that write e4m3: less of them stays in the L2 cache between two kernels */

quant_layout quant_layout_of(proa_wfmt format, int64_t N, int64_t K)
{
    if (proa_wfmt_is_coded(format)) {
        proa_coded_layout coded = proa_coded_layout_of(format, N, K);
        return {coded.row_bytes, coded.scales_at, coded.bytes};
    }
    proa_coded_rows rows = proa_coded_rows_of(N, K);
    return {rows.row_bytes, rows.scales_at, rows.bytes};
}

/* ---- from the checkpoint's numbers ---- */

struct packing {
    char *rows;   /* of the first output of this source */
    char *scales; /* of all */
    quant_layout at;
    int64_t row, col, first; /* strides of the source; its first output */
    int K, before, cols;     /* other ranks have numbers of a row before these K, in all `cols` */
    proa_coded_layout int4;
};

/* A block for each output: its scale, which is the same in all ranks, then its bytes. */
template <int FORMAT, typename From> __global__ void pack_row_kernel(packing p, const From *src)
{
    __shared__ float scratch[33];
    __shared__ int odd;
    const From *from = src + blockIdx.x * p.row;
    float largest = 0.0f;
    if (threadIdx.x == 0) odd = 0;
    gpu_wait();
    __syncthreads();
    for (int k = threadIdx.x; k < p.cols; k += THREADS) {
        float a = fabsf(gpu_to_f32(from[k * p.col]));
        if (a < INFINITY) largest = fmaxf(largest, a);
        else odd = 1;
    }
    largest = gpu_block_max(largest, scratch);
    float scale = FORMAT == PROA_WFMT_FP8 ? proa_fp8_scale(largest, !odd) : proa_i8_scale(largest, !odd);
    uint8_t *to = (uint8_t *)p.rows + blockIdx.x * p.at.row_bytes;
    for (int k = threadIdx.x; k < p.K; k += THREADS) {
        float v = gpu_to_f32(from[(p.before + k) * p.col]);
        to[k] = FORMAT == PROA_WFMT_FP8 ? proa_fp8_round(v, scale) : (uint8_t)proa_i8_round(v, scale);
    }
    if (threadIdx.x == 0) ((float *)p.scales)[p.first + blockIdx.x] = scale;
}

/* The scale of a group with four numbers in each lane of a warp (quant.h). */
static __device__ float best_i4_scale(const float v[4], float extreme, bool finite)
{
    int least = INT32_MAX, best = 0;
    float unit = proa_i4_unit_scale(extreme);
    int16_t x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = finite ? (int16_t)__float2int_rn(v[i] * unit) : (int16_t)0;
    for (int s = 0; s < PROA_I4_STEPS; s++) {
        int16_t step = (int16_t)proa_i4_step(s), inverse = (int16_t)((1 << 22) / step);
        int error = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) error += proa_i4_error(x[i], step, inverse);
        error = __reduce_add_sync(0xffffffffu, error);
        if (error < least) least = error, best = s;
    }
    return proa_i4_scale(extreme, proa_i4_step(best), finite);
}

/* A warp for each group of an output: lane l holds the numbers 4 l to 4 l + 3; two lanes make a word
 * (kernels/coded.h). */
template <typename From> __global__ void pack_group_kernel(packing p, const From *src)
{
    int lane = threadIdx.x & 31, group = blockIdx.y * (THREADS / 32) + threadIdx.x / 32;
    gpu_wait();
    if (group >= p.int4.steps) return;
    float v[4], extreme = 0.0f;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int k = group * GROUP + lane * 4 + i;
        v[i] = k < p.K ? gpu_to_f32(src[blockIdx.x * p.row + k * p.col]) : 0.0f;
        if (!(fabsf(v[i]) < INFINITY)) finite = false;
        else if (fabsf(v[i]) > fabsf(extreme)) extreme = v[i];
    }
    finite = __all_sync(0xffffffffu, finite);
    float largest = fabsf(extreme);
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
    unsigned who = __ballot_sync(0xffffffffu, fabsf(extreme) == largest);
    extreme = __shfl_sync(0xffffffffu, extreme, __ffs((int)who) - 1);
    __half scale = __float2half_rn(best_i4_scale(v, extreme, finite));
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = lane % 2 * 4 + i, nibble = at / 2 + at % 2 * 4;
        bits |= (unsigned)(proa_i4_round(v[i], __half2float(scale)) + 8) << 4 * nibble;
    }
    bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
    unsigned *to = (unsigned *)(p.rows + blockIdx.x * p.at.row_bytes) +
                   proa_coded_word(group * GROUP + lane / 2 * 8);
    if (lane % 2 == 0) *to = bits;
    if (lane == 0)
        ((__half *)p.scales)[proa_coded_scale(&p.int4, p.first + blockIdx.x, group * GROUP)] = scale;
}

template <typename From>
static void pack_source(gpu *g, proa_wfmt format, const packing &p, const void *raw, int64_t rows)
{
    const From *src = (const From *)raw;
    dim3 grid((unsigned)rows);
    if (format == PROA_WFMT_FP8)
        gpu_launch(g, "pack", pack_row_kernel<PROA_WFMT_FP8, From>, grid, THREADS, 0, p, src);
    else if (format == PROA_WFMT_I8W)
        gpu_launch(g, "pack", pack_row_kernel<PROA_WFMT_I8W, From>, grid, THREADS, 0, p, src);
    else
        gpu_launch(g, "pack", pack_group_kernel<From>,
                   dim3((unsigned)rows, (unsigned)((p.int4.steps + 7) / 8)), THREADS, 0, p, src);
}

/* Codes that are kept, and groups of 32 and more, are packed on the host's threads. */
static void pack_coded(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count)
{
    gpu *g = gpu_of(c);
    int64_t bytes = quant_layout_of(w->format, w->N, w->K).bytes;
    void *packed = proa_malloc((size_t)bytes);
    if (proa_wfmt_is_coded(w->format)) proa_coded_pack(c->pool, packed, w, sources, count);
    else proa_coded_pack_rows(c->pool, packed, w, sources, count);
    g->base.upload(&g->base, w->data, packed, bytes);
    free(packed);
}

/* Rows of I8W and FP8 have one scale, also where ranks have some columns each: all numbers go to the device. */
static proa_tensor_source *with_whole_rows(proa_wfmt format, const proa_tensor_source *sources, int count)
{
    proa_tensor_source *whole = (proa_tensor_source *)proa_calloc((size_t)count, sizeof *whole);
    for (int i = 0; i < count; i++)
        whole[i] = format == PROA_WFMT_I4 ? sources[i] : proa_tensor_source_whole_rows(&sources[i]);
    return whole;
}

void quant_pack(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count)
{
    gpu *g = gpu_of(c);
    if (proa_coded_is_kept(w->format, sources, count)) return pack_coded(c, w, sources, count);
    proa_tensor_source *whole = with_whole_rows(w->format, sources, count);
    proa_tensor_source_walk walk = {whole, count, 0, 0, NULL};
    proa_view view, *v = &view;
    packing p = {(char *)w->data, NULL, quant_layout_of(w->format, w->N, w->K)};
    p.scales = p.rows + p.at.scales_at, p.K = (int)w->K;
    p.before = count && w->format != PROA_WFMT_I4 ? (int)sources[0].cols_before : 0;
    if (w->format == PROA_WFMT_I4) p.int4 = proa_coded_layout_of(w->format, w->N, w->K);
    gpu_note(g, cudaMemsetAsync(w->data, 0, (size_t)p.at.bytes, g->stream), "pack");
    while (proa_tensor_source_next(&walk, v)) {
        int64_t rows = v->shape[0], span = ((rows - 1) * v->stride[0] + (v->shape[1] - 1) * v->stride[1] + 1);
        if (rows == 0 || p.K == 0) continue;
        span *= proa_dtype_bytes(v->dtype);
        void *raw = gpu_cast_workspace(g, (size_t)span);
        g->base.upload(&g->base, raw, v->data, span);
        p.row = v->stride[0], p.col = v->stride[1], p.cols = (int)v->shape[1];
        if (v->dtype == PROA_DTYPE_F32) pack_source<float>(g, w->format, p, raw, rows);
        else if (v->dtype == PROA_DTYPE_F16) pack_source<__half>(g, w->format, p, raw, rows);
        else pack_source<__nv_bfloat16>(g, w->format, p, raw, rows);
        p.rows += rows * p.at.row_bytes, p.first += rows;
    }
    free(whole);
}

/* ---- random ones ---- */

/* A hash of the counter (the finalizer of SplitMix64), eight bytes a thread. For e4m3 no byte is a NaN. */
__global__ void random_bytes_kernel(uint64_t *to, int64_t count, uint64_t seed, bool fp8)
{
    gpu_wait();
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t z = (seed + (uint64_t)i) * 0x9e3779b97f4a7c15ULL;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL, z = (z ^ z >> 27) * 0x94d049bb133111ebULL, z ^= z >> 31;
        to[i] = fp8 ? z & 0xf7f7f7f7f7f7f7f7ULL : z;
    }
}

template <typename T> __global__ void fill_value_kernel(T *to, int64_t count, float value)
{
    gpu_wait();
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = gpu_from_f32<T>(value);
}

void quant_random(proa_device *d, proa_weight *w, float reach, uint64_t seed)
{
    gpu *g = gpu_enter(d);
    if (!proa_wfmt_is_quantised(w->format)) {
        proa_dtype dtype = w->format == PROA_WFMT_F32    ? PROA_DTYPE_F32
                           : w->format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16
                                                         : PROA_DTYPE_F16;
        return gpu_random(d, w->data, dtype, w->bytes / proa_dtype_bytes(dtype), 0, reach, seed);
    }
    quant_layout at = quant_layout_of(w->format, w->N, w->K);
    char *scales = (char *)w->data + at.scales_at;
    const bool e4m3 = w->format == PROA_WFMT_FP8 || w->format == PROA_WFMT_FP8G;
    int64_t factors = 0; /* of groups, in bytes */
    if (proa_wfmt_is_coded(w->format))
        factors = proa_coded_layout_of(w->format, w->N, w->K).order_at - at.scales_at;
    gpu_launch(g, "random", random_bytes_kernel, dim3(1024), THREADS, 0, (uint64_t *)w->data,
               at.scales_at / 8, seed, e4m3);
    float steps = e4m3 ? 240.0f : 128.0f; /* the largest of each */
    if (w->format == PROA_WFMT_MXFP4W)    /* e2m1 reaches 6 = 1.5 * 4 */
        gpu_note(g, cudaMemsetAsync(scales, 127 + ilogbf(reach) - 2, (size_t)factors, g->stream), "random");
    else if (proa_wfmt_is_int4(w->format)) /* offsets like the scales: the middle is a step from 0 */
        gpu_launch(g, "random", fill_value_kernel<__half>, dim3(256), THREADS, 0, (__half *)scales,
                   factors / 2, reach / 8.0f);
    else if (w->format == PROA_WFMT_I8G)
        gpu_launch(g, "random", fill_value_kernel<__half>, dim3(256), THREADS, 0, (__half *)scales,
                   factors / 2, reach / steps);
    else
        gpu_launch(g, "random", fill_value_kernel<float>, dim3(256), THREADS, 0, (float *)scales,
                   factors ? factors / 4 : w->N, reach / steps);
}

/* ---- back to numbers ---- */

/* Eight codes of a row, from k on. */
__device__ static inline void codes_at(float f[8], proa_wfmt format, const uint8_t *row, int k)
{
    unsigned word = proa_wfmt_is_int4(format) ? ((const unsigned *)row)[proa_coded_word(k)] : 0;
    const uint8_t *bytes = row + (format == PROA_WFMT_I8G ? proa_coded_byte(format, k) : k);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        unsigned code = word >> 4 * proa_coded_nibble(i) & 15;
        if (format == PROA_WFMT_MXFP4W) /* as in skinny_gemm.h */
            f[i] = __half2float(__ushort_as_half((unsigned short)((code & 8) << 12 | (code & 7) << 9))) * 16384.0f;
        else if (proa_wfmt_is_int4(format)) f[i] = (float)((int)code - 8);
        else if (format == PROA_WFMT_I8W || format == PROA_WFMT_I8G) f[i] = (float)(int8_t)bytes[i];
        else { /* as in skinny_gemm.cu */
            unsigned short bits = (unsigned short)((bytes[i] & 0x80) << 8 | (bytes[i] & 0x7f) << 7);
            f[i] = __half2float(__ushort_as_half(bits)) * 256.0f;
        }
    }
}

/* What is added to a number of an output, once it is scaled; the scale. */
__device__ static inline float2 factors_at(proa_wfmt format, const char *scales,
                                           const proa_coded_layout &coded, int64_t n, int k)
{
    if (!proa_wfmt_is_coded(format)) return make_float2(((const float *)scales)[n], 0.0f);
    int64_t at = proa_coded_scale(&coded, n, k);
    if (format == PROA_WFMT_FP8G) return make_float2(((const float *)scales)[at], 0.0f);
    if (format == PROA_WFMT_MXFP4W) {
        unsigned exponent = ((const uint8_t *)scales)[at];
        return make_float2(__uint_as_float(exponent == 255 ? 0x7fc00000u : exponent << 23), 0.0f);
    }
    if (format == PROA_WFMT_I4 || format == PROA_WFMT_I8G)
        return make_float2(__half2float(((const __half *)scales)[at]), 0.0f);
    return __half22float2(((const __half2 *)scales)[at]);
}

/* Eight numbers a thread. */
__global__ void dequantise_kernel(__half *to, int64_t ld, proa_wfmt format, const char *w, quant_layout at,
                                  proa_coded_layout coded, int64_t first, int K)
{
    int k = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    int64_t n = first + blockIdx.x;
    gpu_wait();
    if (k >= K) return;
    const uint8_t *row = (const uint8_t *)w + n * at.row_bytes;
    float2 factors = factors_at(format, w + at.scales_at, coded, n, k);
    float f[8];
    codes_at(f, format, row, k);
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = k + i < K ? fmaf(f[i], factors.x, factors.y) : 0.0f;
    __half2 v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = __floats2half2_rn(f[2 * i], f[2 * i + 1]);
    *reinterpret_cast<uint4 *>(to + blockIdx.x * ld + k) = *reinterpret_cast<uint4 *>(v);
}

/* The outputs [first, first + count) as f16 weights in the workspace. */
static proa_weight dequantise_columns(gpu *g, const proa_weight *w, int64_t first, int64_t count)
{
    proa_weight out = {PROA_WFMT_F16, count, w->K, NULL, 0};
    quant_layout at = quant_layout_of(w->format, w->N, w->K);
    proa_coded_layout coded = {};
    if (proa_wfmt_is_coded(w->format)) coded = proa_coded_layout_of(w->format, w->N, w->K);
    int64_t ld = gpu_leading_dim(PROA_WFMT_F16, w->K);
    out.bytes = count * ld * 2, out.data = gpu_dequant_workspace(g, (size_t)out.bytes);
    gpu_launch(g, "widen", dequantise_kernel,
               dim3((unsigned)count, (unsigned)((w->K + 8 * THREADS - 1) / (8 * THREADS))), THREADS, 0,
               (__half *)out.data, ld, w->format, (const char *)w->data, at, coded, first, (int)w->K);
    return out;
}

static proa_view view_columns(proa_view v, int64_t first, int64_t count)
{
    return v.rank ? proa_view_cols(v, first, first + count) : v;
}

/* A slice of the outputs at a time, so that the workspace stays within DEQUANT_BYTES. */
static void dequantised_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep,
                             const epilogue &e)
{
    int64_t most = DEQUANT_BYTES / 2 / gpu_leading_dim(PROA_WFMT_F16, w->K) / 8 * 8, step = most < 8 ? 8 : most;
    bool done = true;
    for (int64_t n = 0; n < w->N && done; n += step) {
        int64_t count = w->N - n < step ? w->N - n : step;
        proa_weight wide = dequantise_columns(g, w, n, count);
        proa_epilogue slice = *ep;
        slice.bias = ep->bias ? ep->bias + n : NULL, slice.residual = view_columns(ep->residual, n, count);
        done = gpu_gemm(g, view_columns(y, n, count), x, &wide, &slice); /* all slices suit it, or none */
    }
    if (!done) skinny_gemm_rows(g, y, x, w, e);
}

/* ---- x in the order of a weight's inputs ---- */

template <typename X>
__global__ void permute_kernel(__half *to, int64_t ld, const X *x, int64_t row, const int32_t *order, int K)
{
    int k = blockIdx.y * THREADS + threadIdx.x, from = k < K ? order[k] : 0;
    gpu_wait();
    if (k >= ld) return;
    float v = k < K ? gpu_to_f32(x[blockIdx.x * row + from]) : 0.0f;
    to[blockIdx.x * ld + k] = gpu_saturate<__half>(v);
}

proa_view quant_permuted(gpu *g, proa_view x, const proa_weight *w)
{
    int64_t T = x.shape[0], K = w->K, ld = (K + 7) / 8 * 8;
    const int32_t *order = (const int32_t *)((const char *)w->data +
                                             proa_coded_layout_of(w->format, w->N, K).order_at);
    __half *to = (__half *)gpu_cast_workspace(g, (size_t)(T * ld) * sizeof *to);
    gpu_by_type(x.dtype, [&](auto from) {
        using X = decltype(from);
        gpu_launch(g, "permute", permute_kernel<X>, dim3((unsigned)T, (unsigned)((ld + THREADS - 1) / THREADS)),
                   THREADS, 0, to, ld, (const X *)x.data, x.stride[0], order, (int)K);
    });
    proa_view out = proa_view_2d(to, PROA_DTYPE_F16, T, K);
    out.stride[0] = ld;
    return out;
}

/* ---- rows of x as e4m3 ---- */

template <typename X>
__global__ void quant_rows_kernel(uint8_t *to, int64_t ld, float *scales, const X *src, int64_t row, int K)
{
    __shared__ float scratch[33];
    __shared__ int odd;
    const X *x = src + blockIdx.x * row;
    float largest = 0.0f;
    if (threadIdx.x == 0) odd = 0;
    gpu_wait();
    __syncthreads();
    for (int k = threadIdx.x; k < K; k += THREADS) {
        float a = fabsf(gpu_to_f32(x[k]));
        if (a < INFINITY) largest = fmaxf(largest, a);
        else odd = 1;
    }
    largest = gpu_block_max(largest, scratch);
    float scale = proa_fp8_scale(largest, !odd), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int k = threadIdx.x * 4; k < ld; k += THREADS * 4) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = k + i < K ? gpu_to_f32(x[k + i]) * inverse : 0.0f;
        unsigned low = __nv_cvt_float2_to_fp8x2(make_float2(v[0], v[1]), __NV_SATFINITE, __NV_E4M3),
                 high = __nv_cvt_float2_to_fp8x2(make_float2(v[2], v[3]), __NV_SATFINITE, __NV_E4M3);
        *reinterpret_cast<unsigned *>(to + blockIdx.x * ld + k) = low | high << 16;
    }
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

/* Rows as they are. */
struct identity_rows {
    typedef uint4 loads;
    const void *x;
    int64_t row;
    __device__ void load(uint4 &raw, int t, int k) const
    {
        raw = *reinterpret_cast<const uint4 *>((const __half *)x + t * row + k); /* either type of 16 bits */
    }
    __device__ uint4 finish(uint4 raw, int, int) const
    {
        return raw;
    }
};

static bool can_quant_rows(proa_view x)
{
    int64_t K = x.shape[x.rank - 1];
    return x.rank == 2 && gpu_is_16bit(x) && gpu_is_vec8(x) && K % 16 == 0 && K <= ACT_QUANT_WIDTH_MAX;
}

/* Rows as e4m3, each with its scale: x = value * scale[t]; zeros behind K up to ld. */
static void quant_rows(gpu *g, gpu_fp8_rows to, int64_t ld, proa_view x)
{
    int64_t T = x.shape[0], K = x.shape[1];
    gpu_by_type(x.dtype, [&](auto from) {
        using X = decltype(from);
        if constexpr (sizeof(X) == 2)
            if (can_quant_rows(x))
                return act_quant_launch<X>(g, "quantise rows", identity_rows{x.data, x.stride[0]}, to, T, K);
        gpu_launch(g, "quantise rows", quant_rows_kernel<X>, dim3((unsigned)T), THREADS, 0, to.at, ld,
                   to.scale, (const X *)x.data, x.stride[0], (int)K);
    });
}

/* ---- the fp8 copy of one register at a time: several products may read it, and the kernel that writes the
 * register may make it. It is valid until the register is written again (gpu_invalidate) ---- */

static const char *end_of(proa_view v)
{
    int64_t last = 0;
    for (int i = 0; i < v.rank; i++) last += (v.shape[i] - 1) * v.stride[i];
    return (const char *)v.data + (last + 1) * proa_dtype_bytes(v.dtype);
}

void gpu_invalidate(gpu *g, proa_view y)
{
    const char *begin = (const char *)g->fp8_source.data;
    if (begin && (const char *)y.data < end_of(g->fp8_source) && begin < end_of(y)) g->fp8_source.data = NULL;
}

void gpu_fp8_rows_drop(gpu *g)
{
    g->fp8_source.data = NULL;
}

static int64_t scales_at(int64_t T, int64_t ld)
{
    return (T * ld + 255) / 256 * 256;
}

/* Codes, scales, lengths. */
static int64_t fp8_rows_bytes(int64_t T, int64_t ld)
{
    return scales_at(T, ld) + 2 * T * (int64_t)sizeof(float);
}

static gpu_fp8_rows alloc_fp8_rows(gpu *g, proa_view x, int64_t ld)
{
    int64_t T = x.shape[0];
    char *scratch = (char *)gpu_fp8_rows_workspace(g, (size_t)fp8_rows_bytes(T, ld));
    float *scale = (float *)(void *)(scratch + scales_at(T, ld));
    g->fp8_source = x, g->fp8_rows = {(uint8_t *)scratch, scale, NULL};
    if (T >= CODES_ROWS_MIN && can_quant_rows(x)) g->fp8_rows.length = scale + T;
    return g->fp8_rows;
}

/* Workspaces do not grow while a pass is recorded: its first run may not have needed the copy. */
gpu_fp8_rows gpu_fp8_rows_for(gpu *g, proa_view y)
{
    bool wanted = g->fp8_rows_wanted && y.shape[0] > SKINNY_ROWS && can_quant_rows(y);
    if (!wanted || (g->is_recording && fp8_rows_bytes(y.shape[0], y.shape[1]) > (int64_t)g->fp8_workspace_bytes))
        return {NULL, NULL, NULL};
    return alloc_fp8_rows(g, y, y.shape[1]);
}

static bool same_rows(proa_view a, proa_view b)
{
    return a.data == b.data && a.dtype == b.dtype && a.rank == b.rank && a.shape[0] == b.shape[0] &&
           a.shape[1] == b.shape[1] && a.stride[0] == b.stride[0];
}

static gpu_fp8_rows fp8_rows_of(gpu *g, proa_view x, int64_t ld)
{
    if (g->fp8_source.data && same_rows(g->fp8_source, x)) return g->fp8_rows;
    gpu_fp8_rows fp8_rows = alloc_fp8_rows(g, x, ld);
    quant_rows(g, fp8_rows, ld, x);
    return fp8_rows;
}

/* Eight codes a thread. */
__global__ void widen_rows_kernel(__half *to, gpu_fp8_rows from, int K)
{
    int k = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    float v[8];
    gpu_wait();
    if (k >= K) return;
    uint2 codes = *reinterpret_cast<const uint2 *>(from.at + (int64_t)blockIdx.x * K + k);
    const __nv_fp8_e4m3 *code = reinterpret_cast<const __nv_fp8_e4m3 *>(&codes);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = gpu_to_f32(code[i]) * from.scale[blockIdx.x];
    gpu_store8(to + (int64_t)blockIdx.x * K + k, v);
}

proa_view quant_readable(gpu *g, proa_view x)
{
    bool codes = g->fp8_source.data && g->fp8_rows.at == g->fp8_source.data && same_rows(g->fp8_source, x);
    if (!codes) return x;
    int64_t T = x.shape[0], K = x.shape[1];
    gpu_fp8_rows from = g->fp8_rows;
    __half *to = (__half *)gpu_fp8_rows_workspace(g, (size_t)(T * K) * sizeof *to);
    gpu_launch(g, "widen rows", widen_rows_kernel,
               dim3((unsigned)T, (unsigned)((K + 8 * THREADS - 1) / (8 * THREADS))), THREADS, 0, to, from,
               (int)K);
    return proa_view_2d(to, PROA_DTYPE_F16, T, K);
}

/* ---- products of e4m3: cuBLASLt scales rows and columns (Hopper and later). What its epilogue cannot do is
 * a pass over y ---- */

template <typename Y> __global__ void bias_kernel(Y *y, int64_t y_row, int N, const float *bias, int act)
{
    gpu_wait();
    int n = blockIdx.y * blockDim.x + threadIdx.x;
    if (n >= N) return;
    Y *at = y + blockIdx.x * y_row + n;
    *at = gpu_saturate<Y>(gpu_act(gpu_to_f32(*at) + (bias ? bias[n] : 0.0f), act));
}

template <typename Y> __global__ void bias_vec8_kernel(Y *y, int64_t y_row, int N, const float *bias, int act)
{
    int n = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    float v[8], b[8];
    gpu_wait();
    if (n >= N) return;
    Y *at = y + blockIdx.x * y_row + n;
    gpu_load8(v, at);
    if (bias) gpu_load8(b, bias + n);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sum = v[i] + (bias ? b[i] : 0.0f);
        if constexpr (sizeof(Y) == 2) v[i] = gpu_act16<Y>(sum, act);
        else v[i] = gpu_act(sum, act);
    }
    gpu_store8(at, v);
}

static void add_bias(gpu *g, proa_view y, const epilogue &e)
{
    bool vec8 = gpu_is_vec8(y) && (uintptr_t)e.bias % 16 == 0;
    int N = (int)y.shape[1], each = vec8 ? 8 * THREADS : THREADS;
    gpu_by_type(y.dtype, [&](auto to) {
        using Y = decltype(to);
        gpu_launch(g, "linear (bias)", vec8 ? bias_vec8_kernel<Y> : bias_kernel<Y>,
                   dim3((unsigned)y.shape[0], (unsigned)((N + each - 1) / each)), THREADS, 0, (Y *)y.data,
                   y.stride[0], N, e.bias, e.act);
    });
}

/* ---- a product that writes the fp8 copy of y, and not y, since nothing but the next product reads it ---- */

/* bound[0]: the largest length of a row of w. */
__global__ void length_bound_kernel(float *bound, const uint8_t *w, int64_t ld, const float *scales, int K)
{
    __shared__ float scratch[33];
    const __nv_fp8_e4m3 *row = reinterpret_cast<const __nv_fp8_e4m3 *>(w + blockIdx.x * ld);
    float sum = 0.0f;
    gpu_wait();
    for (int k = threadIdx.x; k < K; k += blockDim.x) {
        float v = gpu_to_f32(row[k]);
        sum = fmaf(v, v, sum);
    }
    sum = gpu_block_sum(sum, scratch);
    float length = sqrtf(sum) * scales[blockIdx.x];
    /* of numbers that are not negative the bits have the same order */
    if (threadIdx.x == 0) atomicMax(reinterpret_cast<int *>(bound), __float_as_int(length));
}

/* bound[1]: the largest magnitude of a bias. */
__global__ void bias_bound_kernel(float *bound, const float *bias, int N)
{
    __shared__ float scratch[33];
    float largest = 0.0f;
    gpu_wait();
    for (int n = threadIdx.x; n < N; n += blockDim.x) largest = fmaxf(largest, fabsf(bias[n]));
    largest = gpu_block_max(largest, scratch);
    if (threadIdx.x == 0) bound[1] = largest;
}

static const float *bound_of(gpu *g, const proa_weight *w, const float *bias)
{
    enum { BOUND = -1 }; /* among types of biases */
    gpu_derived_key key = {{w->data, bias}, {w->bytes, bias ? 4 * w->N : 0}, BOUND};
    bool made;
    float *bound = (float *)gpu_derived_of(g, &key, 2 * (int64_t)sizeof(float), &made);
    if (made) return bound;
    quant_layout at = quant_layout_of(w->format, w->N, w->K);
    gpu_note(g, cudaMemsetAsync(bound, 0, 2 * sizeof(float), g->stream), "bound");
    gpu_launch(g, "bound", length_bound_kernel, dim3((unsigned)w->N), THREADS, 0, bound, (const uint8_t *)w->data,
               at.row_bytes, (const float *)(const void *)((const char *)w->data + at.scales_at), (int)w->K);
    if (bias) gpu_launch(g, "bound", bias_bound_kernel, dim3(1), THREADS, 0, bound, bias, (int)w->N);
    return bound;
}

/* Writes codes and scales into the memory of y (quant_readable). want: the product, x being rows. False: it does not
 * suit, and nothing was launched. */
static bool fp8_gemm_to_codes(gpu *g, proa_view y, const proa_weight *w, const epilogue &e, gpu_fp8_rows rows,
                              gpu_product want)
{
    int64_t T = want.T, N = want.N, scales = scales_at(T, N);
    bool dense = y.dtype == PROA_DTYPE_F16 && y.stride[0] == N && scales + T * 4 <= T * N * 2;
    want.y_type = CUDA_R_8F_E4M3, want.act = e.act;
    want.epilogue = epilogue_for(PROA_ACT_NONE, e.bias != NULL);
    bool settled;
    int form = gpu_own_guess(g, &want, &settled);
    if (!rows.length || !dense || !form || e.residual) return false;
    gpu_fp8_rows codes = {(uint8_t *)y.data, (float *)(void *)((char *)y.data + scales), NULL};
    const char *w_scale = (const char *)w->data + quant_layout_of(w->format, w->N, w->K).scales_at;
    gpu_operands at = {codes.at, rows.at, w->data, bias_as(g, e.bias, N, PROA_DTYPE_F16), NULL, e.alpha};
    at.x_scale = rows.scale, at.w_scale = w_scale;
    at.y_scale = codes.scale, at.x_length = rows.length, at.bound = bound_of(g, w, e.bias);
    if (!gpu_own_run(g, &want, form, &at, codes.at)) return false;
    g->fp8_source = y, g->fp8_rows = codes;
    return true;
}

/* The product with an epilogue that cuBLASLt has for it; else what it lacks follows in a pass over y (*bare). False:
 * cuBLASLt has no such product. */
static bool describe_fp8(gpu *g, proa_view y, const epilogue &e, gpu_product *want, bool *bare)
{
    bool fused = epilogue_has_act(y, e.act);
    want->epilogue = epilogue_for(fused ? e.act : (int)PROA_ACT_NONE, e.bias != NULL);
    want->act = fused ? (int)PROA_ACT_NONE : e.act;
    *bare = false;
    if ((gpu_is_16bit(y) || want->act == PROA_ACT_NONE) && gpu_multiplies(g, want)) return true;
    *bare = e.bias || e.act != PROA_ACT_NONE;
    want->epilogue = CUBLASLT_EPILOGUE_DEFAULT, want->act = PROA_ACT_NONE;
    return gpu_multiplies(g, want);
}

/* Whether cuBLASLt has an e4m3 product with this result and residual: it needs rows at multiples of 16 elements, and
 * adds a residual of y's type before an activation. */
static bool fp8_gemm_takes(proa_view y, const proa_weight *w, const epilogue &e)
{
    bool aligned = y.stride[0] % 16 == 0 && (uintptr_t)y.data % 16 == 0 && w->N % 16 == 0;
    if (w->format != PROA_WFMT_FP8 || !aligned) return false;
    if (!e.residual) return true;
    return e.act == PROA_ACT_NONE && e.residual_type == y.dtype && e.residual_row % 16 == 0 &&
           (uintptr_t)e.residual % 16 == 0;
}

/* The shape and the types of the product. ld: bytes of a row of weights and of x. */
static gpu_product fp8_product_of(proa_view y, const proa_weight *w, int64_t ld, const epilogue &e)
{
    gpu_product want = {y.shape[0], w->N, ld, ld, ld, y.stride[0], 0};
    want.w_type = want.x_type = CUDA_R_8F_E4M3, want.y_type = data_type(y.dtype), want.scaled = 1;
    want.residual = e.residual != NULL, want.residual_row = e.residual ? e.residual_row : 0;
    return want;
}

/* False: there is no such product, and nothing was launched. */
static bool fp8_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e, bool feeds_product)
{
    quant_layout at = quant_layout_of(w->format, w->N, w->K);
    bool bare;
    if (!fp8_gemm_takes(y, w, e)) return false;
    gpu_product want = fp8_product_of(y, w, at.row_bytes, e);
    if (!describe_fp8(g, y, e, &want, &bare)) return false;
    gpu_fp8_rows rows = fp8_rows_of(g, x, at.row_bytes);
    if (feeds_product && fp8_gemm_to_codes(g, y, w, e, rows, want)) return true;
    gpu_invalidate(g, y);
    const void *bias = bare ? NULL : bias_as(g, e.bias, w->N, gpu_is_16bit(y) ? y.dtype : PROA_DTYPE_BF16);
    gpu_operands operands = {y.data, rows.at, w->data, bias, e.residual, e.alpha};
    operands.x_scale = rows.scale, operands.w_scale = (const char *)w->data + at.scales_at;
    gpu_multiply(g, &want, &operands);
    if (bare) add_bias(g, y, e);
    return true;
}

bool gpu_fp8_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const void *scales)
{
    const epilogue plain = epilogue_of(NULL, w);
    int64_t ld = quant_layout_of(w->format, w->N, w->K).row_bytes;
    gpu_product want = fp8_product_of(y, w, ld, plain);
    want.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (!fp8_gemm_takes(y, w, plain) || !gpu_multiplies(g, &want)) return false;
    gpu_fp8_rows rows = fp8_rows_of(g, x, ld);
    gpu_operands operands = {y.data, rows.at, w->data, NULL, NULL, 1.0f};
    operands.x_scale = rows.scale, operands.w_scale = scales;
    gpu_multiply(g, &want, &operands);
    g->fp8_rows_wanted = true;
    return true;
}

void quant_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep,
                const epilogue &e)
{
    static const proa_epilogue nothing = {};
    g->fp8_rows_wanted = fp8_gemm(g, y, x, w, e, ep && ep->feeds_product);
    if (g->fp8_rows_wanted) return;
    x = quant_readable(g, x);
    gpu_invalidate(g, y);
    dequantised_gemm(g, y, x, w, ep ? ep : &nothing, e);
}
