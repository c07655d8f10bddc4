/* SPDX-License-Identifier: Apache-2.0
 * tile.h - from global memory to tensor cores: pieces of 16 bytes copied to shared memory asynchronously
 * (cp.async), and tiles of 8 x 8 numbers of 16 bits read from there in the layout of runtime/mma.h (ldmatrix:
 * lane l gives the address of row l % 8 of tile l / 8). */
#ifndef PROA_KERNELS_CUDA_ATTENTION_TILE_H
#define PROA_KERNELS_CUDA_ATTENTION_TILE_H

#include "kernels/cuda/runtime/cuda.h"

__device__ static inline unsigned smem_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Reads four tiles: r[i] is row l / 4, columns 2 (l % 4) and the next, of tile i. */
__device__ static inline void ldmatrix_x4(unsigned r[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* The same with rows and columns changed. */
__device__ static inline void ldmatrix_x4_trans(unsigned r[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* Transposes a tile that the lanes hold. */
__device__ static inline unsigned transpose_tile(unsigned x)
{
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

__device__ static inline float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 16 bytes, or zeros: then nothing is read. */
__device__ static inline void cp_async16(unsigned to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ static inline void cp_async16(unsigned to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* The pieces requested since the last call are a group. */
__device__ static inline void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all but the latest LEFT groups of this thread have arrived. */
template <int LEFT> __device__ static inline void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif
