/* SPDX-License-Identifier: Apache-2.0
 * state_tile.h - what the kernels share that run a recurrence by chunks of rows on tensor cores (delta_chunk.cu,
 * scan_chunk.cu). A block has STATE_COLUMNS columns of a head's state S [dk,dv], a warp 16 of them, as S^T [16,dk] in
 * registers: D of mma.sync. All products are of transposes, so that D of one is A of the next without a way through
 * shared memory. What is f32 goes into a product as the sum of two bf16 numbers, 16 bits; bf16 as it is stored.
 * Rows of tiles in shared memory are longer by 16 bytes, so that ldmatrix meets all banks. */
#ifndef PROA_KERNELS_CUDA_STATE_TILE_H
#define PROA_KERNELS_CUDA_STATE_TILE_H

#include "kernels/cuda/attention/tile.h"
#include "kernels/cuda/runtime/mma.h"
#include "kernels/cuda/state.h"

typedef __nv_bfloat16 bf16;
enum { STATE_WARPS = 4, STATE_THREADS = 32 * STATE_WARPS, STATE_COLUMNS = 16 * STATE_WARPS };

/* A fragment of four pairs of f32 as the sum of two of bf16. */
struct split_fragment {
    unsigned high[4], low[4];

    __device__ void set(int i, float x, float y)
    {
        const unsigned pair = gpu_mma<bf16>::pair(x, y);
        high[i] = pair;
        low[i] = gpu_mma<bf16>::pair(x - __uint_as_float(pair << 16), y - __uint_as_float(pair & 0xffff0000u));
    }

    /* D tiles 2k and 2k + 1 are the columns 16k to 16k + 15 of an A. */
    __device__ void set_tiles(const float (&first)[4], const float (&second)[4])
    {
        set(0, first[0], first[1]), set(1, first[2], first[3]);
        set(2, second[0], second[1]), set(3, second[2], second[3]);
    }
};

/* The first 8 bits of a number, and what is left of it. */
template <int ROWS, int LENGTH>
__device__ static inline void store_split(bf16 (&to)[2][ROWS][LENGTH], int i, int j, float x)
{
    to[0][i][j] = __float2bfloat16(x);
    to[1][i][j] = __float2bfloat16(x - __bfloat162float(to[0][i][j]));
}

/* The rows of B^T at `rows` are columns of B [16 k.., 8 n..]: its tiles n and n + 1 of step k. */
__device__ static inline void load_columns(unsigned b[4], const bf16 *rows, int row_length, int k, int n)
{
    const int lane = threadIdx.x & 31;
    ldmatrix_x4(
        b, smem_address(rows + (n * 8 + lane / 16 * 8 + lane % 8) * row_length + k * 16 + lane / 8 % 2 * 8));
}

/* The same of a B whose rows are stored. */
__device__ static inline void load_rows(unsigned b[4], const bf16 *rows, int row_length, int k, int n)
{
    const int lane = threadIdx.x & 31;
    ldmatrix_x4_trans(b, smem_address(rows + (k * 16 + lane % 16) * row_length + n * 8 + lane / 16 * 8));
}

/* D += A B, of the tiles from `first` on. A product takes the time of several until its sum can be added to, so those
 * that add to the same tile must not follow each other. */
template <int TILES>
__device__ static inline void multiply_tiles(float (&d)[TILES][4], const unsigned (&a)[4],
                                             const unsigned (&b)[TILES / 2][4], int first = 0)
{
#pragma unroll
    for (int n = first; n < TILES; n++)
        gpu_mma<bf16>::run(d[n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
}

/* What a warp has of a head: S^T of its 16 columns. Numbers of a thread are at column lane / 4 (+ 8) of the warp and at
 * row 8 n + 2 (lane % 4) (+ 1) of the state, or of the chunk. */
template <int DK> struct state_columns {
    float S[DK / 8][4];

    __device__ void load(const float *state, int64_t dv, bool goes_on)
    {
        const int lane = threadIdx.x & 31;
        const float *from = state + lane % 4 * 2 * dv + lane / 4;
#pragma unroll
        for (int n = 0; n < DK / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) S[n][e] = goes_on ? from[(n * 8 + e % 2) * dv + e / 2 * 8] : 0.0f;
    }

    __device__ void store(float *state, int64_t dv) const
    {
        const int lane = threadIdx.x & 31;
        float *to = state + lane % 4 * 2 * dv + lane / 4;
#pragma unroll
        for (int n = 0; n < DK / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) to[(n * 8 + e % 2) * dv + e / 2 * 8] = S[n][e];
    }

    /* y^T += S^T rows^T for TILES tiles of 8 rows in shared memory, of DK numbers. */
    template <int TILES>
    __device__ void multiply(float (&y)[TILES][4], const bf16 *rows, int row_length) const
    {
#pragma unroll
        for (int k = 0; k < DK / 16; k++) {
            split_fragment a;
            unsigned b[TILES / 2][4];
            a.set_tiles(S[2 * k], S[2 * k + 1]);
#pragma unroll
            for (int n = 0; n < TILES; n += 2) load_columns(b[n / 2], rows, row_length, k, n);
            multiply_tiles(y, a.high, b), multiply_tiles(y, a.low, b);
        }
    }

    /* S = decay S + rows^T U, where U^T has the STEPS fragments a; rows [16 STEPS, DK] lie in shared memory. */
    template <int STEPS>
    __device__ void decay_and_add(float decay, const split_fragment (&a)[STEPS], const bf16 *rows, int row_length)
    {
        constexpr int GROUP = 8; /* of tiles, so that no product waits for the one before */
#pragma unroll
        for (int first = 0; first < DK / 8; first += GROUP) {
            float(&group)[GROUP][4] = *(float(*)[GROUP][4]) & S[first];
#pragma unroll
            for (int i = 0; i < GROUP * 4; i++) group[i / 4][i % 4] *= decay;
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                unsigned b[GROUP / 2][4];
#pragma unroll
                for (int n = 0; n < GROUP; n += 2) load_rows(b[n / 2], rows, row_length, k, first + n);
                multiply_tiles(group, a[k].high, b), multiply_tiles(group, a[k].low, b);
            }
        }
    }
};

#endif
