/* SPDX-License-Identifier: Apache-2.0
 * mma.h - products on tensor cores: D [16x8] += A [16x16] B [16x8], sums in f32 (PTX mma.sync.m16n8k16). Lane l
 * holds, with r = l / 4 and c = 2 (l % 4): of A the pairs (r, c), (r + 8, c), (r, c + 8), (r + 8, c + 8); of B the
 * pairs (c, r), (c + 8, r); of D (r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1). */
#ifndef PROA_KERNELS_CUDA_RUNTIME_MMA_H
#define PROA_KERNELS_CUDA_RUNTIME_MMA_H

#include "kernels/cuda/runtime/cuda.h"

template <typename T> struct gpu_mma;
template <> struct gpu_mma<__half> {
    __device__ static void run(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    __device__ static unsigned pair(float x, float y)
    {
        __half2 h = __floats2half2_rn(x, y);
        return *reinterpret_cast<unsigned *>(&h);
    }
};
template <> struct gpu_mma<__nv_bfloat16> {
    __device__ static void run(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    __device__ static unsigned pair(float x, float y)
    {
        __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
        return *reinterpret_cast<unsigned *>(&h);
    }
};

#endif
