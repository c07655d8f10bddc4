/* SPDX-License-Identifier: Apache-2.0
 * tile.h - from memory to tensor cores: pieces of 16 bytes copied into shared memory while other work goes on (cp.async), tiles
 * of 8x8 numbers of 16 bits read from there as mma.h wants them (ldmatrix: lane l names row l % 8 of tile l / 8). */
#ifndef PROA_KERNELS_CUDA_TILE_H
#define PROA_KERNELS_CUDA_TILE_H

#include "kernels/cuda/runtime/cuda.h"

__device__ static inline unsigned shared_at(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Of four tiles: r[i] is row l / 4, columns 2 (l % 4) and the next. */
__device__ static inline void load_matrix(unsigned r[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* The same with rows and columns changed. */
__device__ static inline void load_matrix_turned(unsigned r[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* A tile that the lanes hold, with rows and columns changed. */
__device__ static inline unsigned turned_tile(unsigned x)
{
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

__device__ static inline float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 16 bytes, or zeros: then nothing is read. */
__device__ static inline void copy_piece(unsigned to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

__device__ static inline void copy_piece(unsigned to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* The pieces asked for since the last call are a group. */
__device__ static inline void send()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the latest LEFT groups of this thread have arrived. */
template <int LEFT> __device__ static inline void receive_own()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif
