/* SPDX-License-Identifier: Apache-2.0
 * codes.h - rows of 16 bits as e4m3 with a scale for each, which products of e4m3 weights multiply: the kernel that rounds,
 * alone or behind what makes the rows. Who wants them, and how long they are kept: quant.cu. */
#ifndef PROA_KERNELS_CUDA_CODES_H
#define PROA_KERNELS_CUDA_CODES_H

#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "kernels/quant.h"
}

enum {
    CODES_THREADS = 256,
    CODES_PIECES = 8 /* of 8 numbers, that a thread holds */,
    CODES_WIDEST = CODES_THREADS * CODES_PIECES * 8
};

/* Magnitudes of 16 bits are ordered as their bits are, and what is no number is above all. Two at a time. */
__device__ static inline unsigned codes_larger(unsigned most, uint4 eight)
{
    const unsigned MAGNITUDE = 0x7fff7fffu;
    most = __vmaxu2(__vmaxu2(most, eight.x & MAGNITUDE), eight.y & MAGNITUDE);
    return __vmaxu2(__vmaxu2(most, eight.z & MAGNITUDE), eight.w & MAGNITUDE);
}

/* Infinity where there was no number. */
template <typename X> __device__ static inline float codes_largest(unsigned most)
{
    unsigned short bits = (unsigned short)max(most & 0xffffu, most >> 16);
    float largest = gpu_to_f32(*reinterpret_cast<const X *>(&bits));
    return isnan(largest) ? INFINITY : largest;
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
    unsigned most = 0;
    gpu_wait();
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
        most = codes_larger(most, eight[p]);
    }
    float largest = gpu_block_max(codes_largest<X>(most), room);
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
