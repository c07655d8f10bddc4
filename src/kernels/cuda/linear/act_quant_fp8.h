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

/* The sum and the maximum over the LANES threads of a row: a warp, or all of a block. scratch: [33], for blocks. */
template <int LANES> __device__ static inline float row_sum(float v, float *scratch)
{
    return LANES == 32 ? gpu_warp_sum(v) : gpu_block_sum(v, scratch);
}
template <int LANES> __device__ static inline float row_max(float v, float *scratch)
{
    return LANES == 32 ? gpu_warp_max(v) : gpu_block_max(v, scratch);
}

/* Writes a row of K numbers as e4m3, with its scale (the largest magnitude / 448) and, where it is wanted, its length.
 * LANES threads hold the row: piece i of thread t is the eight numbers from 8 (i LANES + t) on. */
template <typename X, int LANES, int COUNT>
__device__ static inline void act_quant_row(const gpu_fp8_rows &to, const uint4 (&eight)[COUNT], int64_t row,
                                            int K, float *scratch)
{
    int lane = threadIdx.x % LANES;
    unsigned most = 0;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if ((i * LANES + lane) * 8 >= K) break;
        most = act_quant_max(most, eight[i]);
        if (to.length) squares += act_quant_squares<X>(eight[i]);
    }
    if (to.length) squares = row_sum<LANES>(squares, scratch);
    float largest = row_max<LANES>(act_quant_largest<X>(most), scratch);
    float scale = proa_fp8_scale(largest, largest < INFINITY), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        int k = (i * LANES + lane) * 8;
        if (k < K) act_quant_round<X>(to.at + row * K + k, eight[i], inverse);
    }
    if (lane != 0) return;
    to.scale[row] = scale;
    if (to.length) to.length[row] = sqrtf(squares);
}

/* The pieces of a row that a thread of LANES holds, made by Make: all loads are issued before the first is used. */
template <int LANES, int COUNT, typename Make>
__device__ static inline void make_pieces(uint4 (&eight)[COUNT], const Make &make, int row, int K)
{
    typename Make::loads raw[COUNT];
    int lane = threadIdx.x % LANES;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if ((i * LANES + lane) * 8 < K) make.load(raw[i], row, (i * LANES + lane) * 8);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if ((i * LANES + lane) * 8 < K) eight[i] = make.finish(raw[i], row, (i * LANES + lane) * 8);
}

/* One block for each row. Make loads and computes eight numbers of the type X at a time. Shared memory: 33 floats.
 * Registers: up to ACT_QUANT_PIECES pieces of 16 bytes. */
template <typename X, typename Make>
__global__ void __launch_bounds__(ACT_QUANT_THREADS) act_quant_kernel(Make make, gpu_fp8_rows fp8_rows, int K)
{
    __shared__ float scratch[33];
    uint4 eight[ACT_QUANT_PIECES];
    gpu_wait();
    make_pieces<ACT_QUANT_THREADS>(eight, make, (int)blockIdx.x, K);
    act_quant_row<X, ACT_QUANT_THREADS>(fp8_rows, eight, blockIdx.x, K, scratch);
}

/* The same with a warp for each row, for many rows of up to ACT_QUANT_WARP_MAX numbers: no block waits for its
 * reductions. */
template <typename X, typename Make>
__global__ void __launch_bounds__(ACT_QUANT_THREADS)
    act_quant_warp_kernel(Make make, gpu_fp8_rows fp8_rows, int rows, int K)
{
    uint4 eight[ACT_QUANT_WARP_PIECES];
    int row = (int)blockIdx.x * (ACT_QUANT_THREADS / 32) + (int)threadIdx.x / 32;
    gpu_wait();
    if (row >= rows) return;
    make_pieces<32>(eight, make, row, K);
    act_quant_row<X, 32>(fp8_rows, eight, row, K, NULL);
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
