/* SPDX-License-Identifier: Apache-2.0
 * ring.h - rings of slots in shared memory that one thread fills by TMA and warps multiply (tma.h), and the activations
 * that kernels with many sums in registers apply to them.
 *
 * full[slot]: the bytes have arrived. empty[slot]: all warps have released it. */
#ifndef PROA_KERNELS_CUDA_RUNTIME_RING_H
#define PROA_KERNELS_CUDA_RUNTIME_RING_H

#include "kernels/cuda/runtime/tma.h"

/* act(v) = v / (1 + exp(-v (linear + cubic v^2))), of SiLU and the approximations of GELU; or v, with relu cut at 0. */
struct gpu_fast_act {
    bool sigmoid, relu;
    float linear, cubic;
};

/* False: it is none of these. */
static inline bool gpu_find_fast_act(gpu_fast_act *to, int act)
{
    const float TANH = 2.0f * 0.7978845608028654f;
    *to = {false, act == PROA_ACT_RELU, 0.0f, 0.0f};
    if (act == PROA_ACT_SILU) *to = {true, false, 1.0f, 0.0f};
    if (act == PROA_ACT_QUICK_GELU) *to = {true, false, 1.702f, 0.0f};
    if (act == PROA_ACT_GELU_TANH) *to = {true, false, TANH, TANH * 0.044715f};
    return to->sigmoid || act == PROA_ACT_RELU || act == PROA_ACT_NONE;
}

__device__ static inline float gpu_apply_act(const gpu_fast_act &act, float v)
{
    if (act.sigmoid) return __fdividef(v, 1.0f + __expf(-v * fmaf(act.cubic * v, v, act.linear)));
    return act.relu && v < 0.0f ? 0.0f : v;
}

#ifdef GPU_HOPPER

template <int SLOTS> struct gpu_ring_cursor {
    int slot;
    unsigned phase;
    __device__ void step()
    {
        if (++slot == SLOTS) slot = 0, phase ^= 1;
    }
};

struct gpu_ring {
    unsigned slots, full, empty; /* shared addresses */
};

/* By a whole warp, which has multiplied what is in the slot. */
__device__ static inline void gpu_ring_release(const gpu_ring &ring, int slot)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) gpu_barrier_arrive(ring.empty + 8 * slot);
}

__device__ static inline uint4 gpu_load_shared(unsigned at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at));
    return v;
}

__device__ static inline unsigned gpu_load_shared32(unsigned at)
{
    unsigned v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

__device__ static inline unsigned short gpu_load_shared16(unsigned at)
{
    unsigned short v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at));
    return v;
}

#endif
#endif
