/* SPDX-License-Identifier: Apache-2.0
 * act_quant_fp8.h - rows of 16 bits as e4m3 with one scale for each row, for products of e4m3 weights: the
 * kernel that rounds, alone or behind the operation that makes the rows. When the copy is made and how long
 * it is valid: quant.cu. */
#ifndef PROA_KERNELS_CUDA_LINEAR_ACT_QUANT_FP8_H
#define PROA_KERNELS_CUDA_LINEAR_ACT_QUANT_FP8_H

#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "kernels/quant.h"
}

enum {
    ACT_QUANT_THREADS = 256,
    ACT_QUANT_PIECES = 8 /* of 8 numbers, that a thread holds */,
    ACT_QUANT_WIDTH_MAX = ACT_QUANT_THREADS * ACT_QUANT_PIECES * 8,
    ACT_QUANT_WARP_PIECES = 4,
    ACT_QUANT_WARP_MAX = 32 * ACT_QUANT_WARP_PIECES * 8,
    ACT_QUANT_WARP_ROWS = 2048 /* from which on there are enough warps */
};

/* The magnitudes of 16-bit floats are ordered like their bits, and NaN is above all. Two at a time. */
__device__ static inline unsigned act_quant_max(unsigned most, uint4 eight)
{
    const unsigned MAGNITUDE = 0x7fff7fffu;
    most = __vmaxu2(__vmaxu2(most, eight.x & MAGNITUDE), eight.y & MAGNITUDE);
    return __vmaxu2(__vmaxu2(most, eight.z & MAGNITUDE), eight.w & MAGNITUDE);
}

/* Infinity where there was no number. */
template <typename X> __device__ static inline float act_quant_largest(unsigned most)
{
    unsigned short bits = (unsigned short)max(most & 0xffffu, most >> 16);
    float largest = gpu_to_f32(*reinterpret_cast<const X *>(&bits));
    return isnan(largest) ? INFINITY : largest;
}

/* The sum of the squares of eight numbers. */
template <typename X> __device__ static inline float act_quant_squares(uint4 eight)
{
    float v[8], sum = 0.0f;
    gpu_load8(v, reinterpret_cast<const X *>(&eight));
#pragma unroll
    for (int i = 0; i < 8; i++) sum = fmaf(v[i], v[i], sum);
    return sum;
}

template <typename X> __device__ static inline void act_quant_round(uint8_t *to, uint4 eight, float inverse)
{
    float v[8];
    gpu_load8(v, reinterpret_cast<const X *>(&eight));
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] *= inverse;
    gpu_store8(reinterpret_cast<__nv_fp8_e4m3 *>(to), v);
}

/* One block for each row: scale = largest magnitude / 448, then the codes, and the length if it is wanted. Make loads
 * and computes eight numbers of the type X at a time; all loads of a thread are issued before the first is used. Shared memory:
 * 33 floats. Registers: up to ACT_QUANT_PIECES pieces of 16 bytes. */
template <typename X, typename Make>
__global__ void __launch_bounds__(ACT_QUANT_THREADS) act_quant_kernel(Make make, gpu_fp8_rows fp8_rows, int K)
{
    __shared__ float scratch[33];
    typename Make::loads raw[ACT_QUANT_PIECES];
    uint4 eight[ACT_QUANT_PIECES];
    unsigned most = 0;
    float squares = 0.0f;
    gpu_wait();
#pragma unroll
    for (int p = 0; p < ACT_QUANT_PIECES; p++) {
        int k = (p * ACT_QUANT_THREADS + (int)threadIdx.x) * 8;
        if (k < K) make.load(raw[p], blockIdx.x, k);
    }
#pragma unroll
    for (int p = 0; p < ACT_QUANT_PIECES; p++) {
        int k = (p * ACT_QUANT_THREADS + (int)threadIdx.x) * 8;
        if (k >= K) break;
        eight[p] = make.finish(raw[p], blockIdx.x, k);
        most = act_quant_max(most, eight[p]);
        if (fp8_rows.length) squares += act_quant_squares<X>(eight[p]);
    }
    if (fp8_rows.length) squares = gpu_block_sum(squares, scratch);
    float largest = gpu_block_max(act_quant_largest<X>(most), scratch);
    float scale = proa_fp8_scale(largest, largest < INFINITY), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
#pragma unroll
    for (int p = 0; p < ACT_QUANT_PIECES; p++) {
        int k = (p * ACT_QUANT_THREADS + (int)threadIdx.x) * 8;
        if (k >= K) break;
        act_quant_round<X>(fp8_rows.at + (int64_t)blockIdx.x * K + k, eight[p], inverse);
    }
    if (threadIdx.x != 0) return;
    fp8_rows.scale[blockIdx.x] = scale;
    if (fp8_rows.length) fp8_rows.length[blockIdx.x] = sqrtf(squares);
}

/* The same with a warp for each row, for many rows of up to ACT_QUANT_WARP_MAX numbers: no block waits for its
 * reductions. */
template <typename X, typename Make>
__global__ void __launch_bounds__(ACT_QUANT_THREADS)
    act_quant_warp_kernel(Make make, gpu_fp8_rows fp8_rows, int rows, int K)
{
    typename Make::loads raw[ACT_QUANT_WARP_PIECES];
    uint4 eight[ACT_QUANT_WARP_PIECES];
    int lane = threadIdx.x % 32, row = (int)blockIdx.x * (ACT_QUANT_THREADS / 32) + (int)threadIdx.x / 32;
    unsigned most = 0;
    float squares = 0.0f;
    gpu_wait();
    if (row >= rows) return;
#pragma unroll
    for (int p = 0; p < ACT_QUANT_WARP_PIECES; p++)
        if ((p * 32 + lane) * 8 < K) make.load(raw[p], row, (p * 32 + lane) * 8);
#pragma unroll
    for (int p = 0; p < ACT_QUANT_WARP_PIECES; p++) {
        int k = (p * 32 + lane) * 8;
        if (k >= K) break;
        eight[p] = make.finish(raw[p], row, k);
        most = act_quant_max(most, eight[p]);
        if (fp8_rows.length) squares += act_quant_squares<X>(eight[p]);
    }
    if (fp8_rows.length) squares = gpu_warp_sum(squares);
    float largest = gpu_warp_max(act_quant_largest<X>(most));
    float scale = proa_fp8_scale(largest, largest < INFINITY), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
#pragma unroll
    for (int p = 0; p < ACT_QUANT_WARP_PIECES; p++) {
        int k = (p * 32 + lane) * 8;
        if (k < K) act_quant_round<X>(fp8_rows.at + (int64_t)row * K + k, eight[p], inverse);
    }
    if (lane != 0) return;
    fp8_rows.scale[row] = scale;
    if (fp8_rows.length) fp8_rows.length[row] = sqrtf(squares);
}

template <typename X, typename Make>
static void act_quant_launch(gpu *g, const char *what, const Make &make, gpu_fp8_rows fp8_rows, int64_t rows,
                             int64_t K)
{
    if (rows >= ACT_QUANT_WARP_ROWS && K <= ACT_QUANT_WARP_MAX) {
        const int64_t each = ACT_QUANT_THREADS / 32;
        gpu_launch(g, what, act_quant_warp_kernel<X, Make>, dim3((unsigned)((rows + each - 1) / each)),
                   ACT_QUANT_THREADS, 0, make, fp8_rows, (int)rows, (int)K);
        return;
    }
    gpu_launch(g, what, act_quant_kernel<X, Make>, dim3((unsigned)rows), ACT_QUANT_THREADS, 0, make, fp8_rows,
               (int)K);
}

#endif
