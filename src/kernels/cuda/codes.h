/* SPDX-License-Identifier: Apache-2.0
 * codes.h - rows of 16 bits as e4m3 with a scale for each, which products of e4m3 weights multiply: the kernel that rounds,
 * alone or behind what makes the rows. Who wants them, and how long they are kept: quant.cu. */
#ifndef PROA_KERNELS_CUDA_CODES_H
#define PROA_KERNELS_CUDA_CODES_H

#include "kernels/cuda/cuda.h"

extern "C" {
#include "kernels/quant.h"
}

enum { CODES_THREADS = 256, CODES_PIECES = 8 /* of 8 numbers, that a thread holds */,
       CODES_WIDEST = CODES_THREADS * CODES_PIECES * 8 };

/* The largest magnitude of eight numbers and `largest`; infinity where there is no number. */
template <typename X> __device__ static inline float codes_largest(float largest, uint4 eight)
{
    float v[8];
    gpu_load8(v, reinterpret_cast<const X *>(&eight));
#pragma unroll
    for (int i = 0; i < 8; i++) largest = fmaxf(largest, isnan(v[i]) ? INFINITY : fabsf(v[i]));
    return largest;
}

template <typename X> __device__ static inline void codes_round(uint8_t *to, uint4 eight, float inverse)
{
    float v[8];
    gpu_load8(v, reinterpret_cast<const X *>(&eight));
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] *= inverse;
    gpu_store8(reinterpret_cast<__nv_fp8_e4m3 *>(to), v);
}

/* A block for each row. Make says what to load for eight numbers of the type X, and what they are then: all loads of a
 * thread are under way before the first is used. */
template <typename X, typename Make>
__global__ void __launch_bounds__(CODES_THREADS) codes_kernel(Make make, gpu_codes codes, int K)
{
    __shared__ float room[33];
    typename Make::loads raw[CODES_PIECES];
    uint4 eight[CODES_PIECES];
    float largest = 0.0f;
    gpu_wait();
    gpu_release();
#pragma unroll
    for (int p = 0; p < CODES_PIECES; p++) {
        int k = (p * CODES_THREADS + (int)threadIdx.x) * 8;
        if (k < K) make.load(raw[p], blockIdx.x, k);
    }
#pragma unroll
    for (int p = 0; p < CODES_PIECES; p++) {
        int k = (p * CODES_THREADS + (int)threadIdx.x) * 8;
        if (k >= K) break;
        eight[p] = make.finish(raw[p], blockIdx.x, k);
        largest = codes_largest<X>(largest, eight[p]);
    }
    largest = gpu_block_max(largest, room);
    float scale = proa_fp8_scale(largest, largest < INFINITY), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
#pragma unroll
    for (int p = 0; p < CODES_PIECES; p++) {
        int k = (p * CODES_THREADS + (int)threadIdx.x) * 8;
        if (k >= K) break;
        codes_round<X>(codes.at + (int64_t)blockIdx.x * K + k, eight[p], inverse);
    }
    if (threadIdx.x == 0) codes.scale[blockIdx.x] = scale;
}

template <typename X, typename Make>
static void codes_launch(gpu *g, const char *what, const Make &make, gpu_codes codes, int64_t rows, int64_t K)
{
    gpu_launch(g, what, codes_kernel<X, Make>, dim3((unsigned)rows), CODES_THREADS, 0, make, codes, (int)K);
}

#endif
