/* SPDX-License-Identifier: Apache-2.0
 * gemm_cublaslt.cu - linear for many rows: x is cast to the weights' type, the product is done by cuBLASLt
 * (cublaslt_plans.cu) or by a kernel of Proa's, and what cuBLASLt's epilogue cannot do follows in a pass over
 * y. */
#include "kernels/cuda/linear/linear.h"

extern "C" {
#include "base/alloc.h"
}
#include <stdlib.h>
#include <string.h>

enum { THREADS = 256, DERIVED_MAX = 8192 };

static proa_dtype type_of(proa_wfmt format)
{
    return format == PROA_WFMT_F32   ? PROA_DTYPE_F32
           : format == PROA_WFMT_F16 ? PROA_DTYPE_F16
                                     : PROA_DTYPE_BF16;
}

/* ---- f32 rows as the weights' type ---- */

template <typename T> __global__ void cast_kernel(T *dst, int64_t ld, const float *src, int64_t row, int K)
{
    gpu_wait();
    int k = (blockIdx.y * blockDim.x + threadIdx.x) * 2;
    const float *from = src + blockIdx.x * row;
    T *to = dst + blockIdx.x * ld;
    if (k < K) to[k] = gpu_saturate<T>(from[k]);
    if (k + 1 < K) to[k + 1] = gpu_saturate<T>(from[k + 1]);
}

template <typename T>
__global__ void cast_vec8_kernel(T *dst, int64_t ld, const float *src, int64_t row, int K)
{
    float v[8];
    int k = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    gpu_wait();
    if (k >= K) return;
    gpu_load8(v, src + blockIdx.x * row + k);
    gpu_store8(dst + blockIdx.x * ld + k, v);
}

const void *cast_rows(gpu *g, proa_view x, proa_wfmt format, int64_t *ld)
{
    proa_dtype type = type_of(format);
    int64_t T = x.shape[0], K = x.shape[1];
    *ld = x.stride[0];
    if (x.dtype == type) return x.data;
    *ld = (K + 7) / 8 * 8;
    void *to = gpu_cast_workspace(g, (size_t)(T * *ld) * 2);
    bool vec8 = gpu_is_vec8(x);
    dim3 grid((unsigned)T,
              (unsigned)(vec8 ? (K + 8 * THREADS - 1) / (8 * THREADS) : (K + 2 * THREADS - 1) / (2 * THREADS)));
    gpu_by_type(type, [&](auto wanted) {
        using W = decltype(wanted);
        if constexpr (sizeof(W) == 2)
            gpu_launch(g, "cast", vec8 ? cast_vec8_kernel<W> : cast_kernel<W>, grid, THREADS, 0, (W *)to, *ld,
                       (const float *)x.data, x.stride[0], (int)K);
    });
    return to;
}

/* ---- numbers derived from weights, made when they are used for the first time and kept until the weights change:
 * biases in 16 bits, since cuBLASLt takes them in y's type, and bounds (quant.cu) ---- */

struct gpu_derived {
    gpu_derived_key key;
    void *to;
};

void *gpu_derived_of(gpu *g, const gpu_derived_key *key, int64_t bytes, bool *made)
{
    for (int i = 0; i < g->derived_count; i++)
        if (memcmp(&g->derived[i].key, key, sizeof *key) == 0) {
            *made = true;
            return g->derived[i].to;
        }
    PROA_ASSERT(!g->is_recording); /* a pass is recorded the second time */
    if (g->derived_count == DERIVED_MAX) gpu_derived_drop(g, NULL, -1);
    if (!g->derived) g->derived = (gpu_derived *)proa_calloc(DERIVED_MAX, sizeof *g->derived);
    gpu_derived *d = &g->derived[g->derived_count++];
    *d = {*key, NULL};
    gpu_note(g, cudaMalloc(&d->to, (size_t)bytes), "derived");
    *made = false;
    return d->to;
}

template <typename T> __global__ void bias_kernel(T *to, const float *from, int count)
{
    gpu_wait();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = gpu_saturate<T>(from[i]);
}

const void *bias_as(gpu *g, const float *bias, int64_t count, proa_dtype type)
{
    if (!bias || type == PROA_DTYPE_F32) return bias;
    gpu_derived_key key = {{bias, NULL}, {4 * count, 0}, (int64_t)type};
    bool made;
    void *narrow = gpu_derived_of(g, &key, 2 * count, &made);
    if (made) return narrow;
    gpu_by_type(type, [&](auto wanted) {
        using T = decltype(wanted);
        gpu_launch(g, "bias", bias_kernel<T>, dim3((unsigned)((count + 255) / 256)), 256, 0, (T *)narrow,
                   bias, (int)count);
    });
    return narrow;
}

void gpu_derived_drop(gpu *g, const void *at, int64_t bytes)
{
    bool met = bytes < 0 && g->derived_count > 0;
    const char *begin = (const char *)at, *end = begin + (bytes < 0 ? 0 : bytes);
    for (int i = 0; i < 2 * g->derived_count && !met; i++) {
        const gpu_derived_key *key = &g->derived[i / 2].key;
        const char *from = (const char *)key->from[i % 2];
        met = from && from < end && begin < from + key->bytes[i % 2];
    }
    if (!met) return;
    gpu_graphs_drop(g);
    for (int i = 0; i < g->derived_count; i++) cudaFree(g->derived[i].to);
    g->derived_count = 0;
}

/* ---- choosing ---- */

/* cuBLASLt needs aligned leading dimensions and pointers. */
static bool is_aligned(proa_view v)
{
    return v.stride[0] * proa_dtype_bytes(v.dtype) % 16 == 0 && (uintptr_t)v.data % 16 == 0;
}

static bool fits_cublaslt(proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    bool ok = is_aligned(y) && w->K > 0;
    if (e->act != PROA_ACT_NONE && e->residual.rank)
        return false; /* y may be the residual, and would be written before it is read */
    if (x.dtype == type_of(w->format)) ok = ok && is_aligned(x);
    if (e->residual.rank) ok = ok && is_aligned(e->residual);
    return ok && (gpu_is_16bit(y) || (uintptr_t)e->bias % 16 == 0);
}

/* With 16-bit output cuBLASLt can do two activations itself, on the sums in f32. ReLU in f16 is done in a
 * separate pass: T5's sums may be beyond the range, where cuBLASLt writes infinity. */
bool epilogue_has_act(proa_view y, int act)
{
    if (!gpu_is_16bit(y)) return false;
    return act == PROA_ACT_GELU_TANH || (act == PROA_ACT_RELU && y.dtype == PROA_DTYPE_BF16);
}

cublasLtEpilogue_t epilogue_for(int act, bool bias)
{
    if (act == PROA_ACT_GELU_TANH) return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    if (act == PROA_ACT_RELU) return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

bool gpu_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    static const proa_epilogue nothing = {};
    if (!e) e = &nothing;
    float alpha = e->alpha != 0.0f ? e->alpha : 1.0f;
    proa_dtype type = type_of(w->format);
    PROA_ASSERT((!gpu_is_16bit(x) || x.dtype == type) && (!gpu_is_16bit(y) || y.dtype == type));
    if (!fits_cublaslt(y, x, w, e)) return false;
    bool fused = epilogue_has_act(y, (int)e->act);
    gpu_product want = {y.shape[0], w->N, w->K, gpu_leading_dim(w->format, w->K), 0, y.stride[0], 0};
    const void *rows = cast_rows(g, x, w->format, &want.x_ld);
    want.w_type = want.x_type = data_type(type), want.y_type = data_type(y.dtype);
    want.epilogue = epilogue_for(fused ? (int)e->act : (int)PROA_ACT_NONE, e->bias != NULL);
    want.act = fused ? (int)PROA_ACT_NONE : (int)e->act;
    want.residual = e->residual.rank != 0, want.residual_row = want.residual ? e->residual.stride[0] : 0;
    gpu_operands at = {
        y.data, rows, w->data, bias_as(g, e->bias, w->N, y.dtype), want.residual ? e->residual.data : NULL,
        alpha};
    at.w_from_this_pass = w->data == g->dequant; /* quant.cu has widened them */
    gpu_multiply(g, &want, &at);
    return true;
}
