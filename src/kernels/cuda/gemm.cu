/* SPDX-License-Identifier: Apache-2.0
 * gemm.cu - linear for many rows: x as the weights' type, the product by cuBLASLt (plans.cu), what its epilogue lacks. */
#include "kernels/cuda/linear.h"

template <typename T>
__global__ void cast_kernel(T *dst, int64_t ld, const float *src, int64_t row, int K)
{
    gpu_wait();
    gpu_release();
    int k = (blockIdx.y * blockDim.x + threadIdx.x) * 2;
    const float *from = src + blockIdx.x * row;
    T *to = dst + blockIdx.x * ld;
    if (k < K) to[k] = cast_of<T>(from[k]);
    if (k + 1 < K) to[k + 1] = cast_of<T>(from[k + 1]);
}

/* f32 weights read x where it is. */
const void *cast_rows(gpu *g, proa_view x, proa_wfmt format, int64_t *ld)
{
    int64_t T = x.shape[0], K = x.shape[1];
    *ld = x.stride[0];
    if (format == PROA_WFMT_F32) return x.data;
    *ld = (K + 7) / 8 * 8;
    void *to = gpu_cast_room(g, (size_t)(T * *ld) * 2);
    dim3 grid((unsigned)T, (unsigned)((K + 511) / 512));
    if (format == PROA_WFMT_F16)
        gpu_launch(g, "cast", cast_kernel<__half>, grid, 256, 0, (__half *)to, *ld, (const float *)x.data, x.stride[0],
                   (int)K);
    else
        gpu_launch(g, "cast", cast_kernel<__nv_bfloat16>, grid, 256, 0, (__nv_bfloat16 *)to, *ld, (const float *)x.data,
                   x.stride[0], (int)K);
    return to;
}

/* The activation cuBLASLt does not do in f32: it goes over the rows again. */
__global__ void finish_kernel(float *y, int64_t y_row, int N, int act)
{
    gpu_wait();
    gpu_release();
    int n = blockIdx.y * blockDim.x + threadIdx.x;
    if (n >= N) return;
    float *at = y + blockIdx.x * y_row + n;
    *at = gpu_act(*at, act);
}

static cudaDataType_t data_type(proa_wfmt format)
{
    return format == PROA_WFMT_F32 ? CUDA_R_32F : format == PROA_WFMT_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* cuBLASLt wants its leading dimensions and pointers aligned. */
static bool suits(proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    bool ok = y.stride[0] % 4 == 0 && (uintptr_t)y.data % 16 == 0 && w->K > 0;
    if (e->act != PROA_ACT_NONE && e->residual.rank) return false; /* y may be the residual, and is written before it is read */
    if (w->format == PROA_WFMT_F32) ok = ok && x.stride[0] % 4 == 0 && (uintptr_t)x.data % 16 == 0;
    if (e->residual.rank) ok = ok && e->residual.stride[0] % 4 == 0 && (uintptr_t)e->residual.data % 16 == 0;
    return ok && (uintptr_t)e->bias % 16 == 0;
}

bool gpu_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    static const proa_epilogue nothing = {};
    if (!e) e = &nothing;
    if (!suits(y, x, w, e)) return false;
    gpu_product want = {y.shape[0], w->N, w->K, gpu_leading(w->format, w->K), 0, y.stride[0], 0};
    const void *rows = cast_rows(g, x, w->format, &want.x_ld);
    want.w_type = want.x_type = data_type(w->format), want.y_type = CUDA_R_32F;
    want.epilogue = e->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    want.residual = e->residual.rank != 0, want.residual_row = want.residual ? e->residual.stride[0] : 0;
    gpu_operands at = {y.data, rows, w->data, e->bias, want.residual ? e->residual.data : NULL, e->alpha != 0.0f ? e->alpha : 1.0f};
    gpu_multiply(g, &want, &at);
    if (e->act != PROA_ACT_NONE)
        gpu_launch(g, "linear (activation)", finish_kernel, dim3((unsigned)y.shape[0], (unsigned)((w->N + 255) / 256)), 256,
                   0, (float *)y.data, y.stride[0], (int)w->N, (int)e->act);
    return true;
}
