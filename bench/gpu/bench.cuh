/* SPDX-License-Identifier: Apache-2.0
 * bench.cuh - what the experiments share. */
#ifndef PROA_BENCH_GPU_BENCH_CUH
#define PROA_BENCH_GPU_BENCH_CUH

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CK(x)                                                                                                \
    do {                                                                                                     \
        cudaError_t e_ = (x);                                                                                \
        if (e_ != cudaSuccess) {                                                                             \
            printf("%s: %s\n", #x, cudaGetErrorString(e_));                                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

// Weights are read once: past the first cache, and the second is told of the 256 bytes around.
__device__ inline uint4 ld_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

#endif
