/* SPDX-License-Identifier: Apache-2.0
 * peak.cu - the card's limits as measured: the rate at which a kernel reads memory, and the rate of matrix
 * products; and the random numbers for these and for synthetic models. */
#include "kernels/cuda/runtime/cuda.h"
#include <cuda_fp8.h>

/* SplitMix64 (Steele, Lea, Flood 2014) of the element's index. */
__device__ static inline float random_value(uint64_t i, float middle, float reach)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return middle + reach * ((float)(z >> 40) * 0x1p-23f - 1.0f);
}

template <typename T>
__global__ void random_kernel(T *to, int64_t count, float middle, float reach, uint64_t seed)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    gpu_wait();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = gpu_from_f32<T>(random_value(seed * 0x100000001b3ull + (uint64_t)i, middle, reach));
}

__global__ void random_fp8_kernel(__nv_fp8_e4m3 *to, int64_t count, float middle, float reach, uint64_t seed)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    gpu_wait();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = __nv_fp8_e4m3(random_value(seed * 0x100000001b3ull + (uint64_t)i, middle, reach));
}

void gpu_random(proa_device *d, void *memory, proa_dtype dtype, int64_t count, float middle, float reach,
                uint64_t seed)
{
    gpu *g = gpu_enter(d);
    dim3 grid((unsigned)(g->sms * 8));
    if (dtype == PROA_DTYPE_F16)
        gpu_launch(g, "random", random_kernel<__half>, grid, 256, 0, (__half *)memory, count, middle, reach,
                   seed);
    else if (dtype == PROA_DTYPE_BF16)
        gpu_launch(g, "random", random_kernel<__nv_bfloat16>, grid, 256, 0, (__nv_bfloat16 *)memory, count,
                   middle, reach, seed);
    else if (dtype == PROA_DTYPE_FP8)
        gpu_launch(g, "random", random_fp8_kernel, grid, 256, 0, (__nv_fp8_e4m3 *)memory, count, middle,
                   reach, seed);
    else
        gpu_launch(g, "random", random_kernel<float>, grid, 256, 0, (float *)memory, count, middle, reach, seed);
}

__global__ void read_kernel(const uint4 *from, int64_t count, unsigned *out)
{
    unsigned sum = 0;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {
        uint4 a = __ldcs(from + i), b = __ldcs(from + i + stride), c = __ldcs(from + i + 2 * stride),
              e = __ldcs(from + i + 3 * stride);
        sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ e.x ^ e.y ^ e.z ^ e.w;
    }
    for (; i < count; i += stride) sum += from[i].x;
    if (sum == 0x12345678u) *out = sum; /* so that the reads stay */
}

/* The best of several runs of work(), in seconds. */
template <typename Work> static double best_of(gpu *g, int runs, Work work)
{
    cudaEvent_t begin, end;
    float ms = 0, best = 1e9f;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < runs; i++) {
        cudaEventRecord(begin, g->stream);
        work();
        cudaEventRecord(end, g->stream);
        cudaEventSynchronize(end);
        cudaEventElapsedTime(&ms, begin, end);
        best = ms < best ? ms : best;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)best * 1e-3;
}

double gpu_read_rate(proa_device *d)
{
    gpu *g = gpu_enter(d);
    int64_t bytes = (int64_t)4 << 30;
    char *memory = (char *)d->alloc(d, bytes);
    if (!memory) memory = (char *)d->alloc(d, bytes = (int64_t)1 << 30);
    if (!memory) return 0;
    gpu_random(d, memory, PROA_DTYPE_F32, bytes / 4, 0, 1, 1);
    double s = best_of(g, 8, [&] {
        read_kernel<<<g->sms * 8, 512, 0, g->stream>>>((const uint4 *)memory, bytes / 16, g->counters);
    });
    d->free(d, memory, bytes);
    return (double)bytes / s;
}

/* Operands of 16 bits, or e4m3 with a 16-bit result: as close to the card's peak as a product gets. */
static cudaDataType_t operand_type(proa_dtype dtype)
{
    return dtype == PROA_DTYPE_BF16 ? CUDA_R_16BF : dtype == PROA_DTYPE_FP8 ? CUDA_R_8F_E4M3 : CUDA_R_16F;
}

double gpu_matrix_rate(proa_device *d, proa_dtype dtype)
{
    gpu *g = gpu_enter(d);
    const int64_t n = 8192, bytes = n * n * 2;
    char *memory = (char *)d->alloc(d, 3 * bytes);
    if (!memory) return 0;
    gpu_product product = {n, n, n, n, n, n, 0};
    product.w_type = product.x_type = operand_type(dtype);
    product.y_type = dtype == PROA_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    product.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    gpu_operands at = {memory, memory + bytes, memory + 2 * bytes, NULL, NULL, 1.0f};
    gpu_random(d, memory + bytes, dtype, n * n, 0, 1, 1);
    gpu_random(d, memory + 2 * bytes, dtype, n * n, 0, 1, 2);
    double s = 0;
    if (gpu_multiplies(g, &product)) s = best_of(g, 8, [&] { gpu_multiply(g, &product, &at); });
    d->free(d, memory, 3 * bytes);
    return s > 0 ? 2.0 * (double)n * (double)n * (double)n / s : 0;
}
