/* SPDX-License-Identifier: Apache-2.0
 * tma.h - Hopper's asynchronous instructions (sm_90a): mbarriers, tiles loaded by the copy engine (TMA)
 * through tensor maps, and products of a warpgroup from shared memory (PTX ISA: mbarrier,
 * cp.async.bulk.tensor, wgmma). Tiles are rows of 128 bytes, 64 elements of 16 bits, in the 128-byte swizzle:
 * groups of 8 rows, 1,024 bytes, aligned to that.
 *
 * Device code that uses this is inside #ifdef GPU_HOPPER; the host checks gpu_hopper first. */
#ifndef PROA_KERNELS_CUDA_RUNTIME_TMA_H
#define PROA_KERNELS_CUDA_RUNTIME_TMA_H

#include "kernels/cuda/runtime/cuda.h"

#include <cuda.h>

/* Only the compilation for exactly this architecture has these instructions. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GPU_HOPPER 1
#endif

static inline bool gpu_hopper(int device)
{
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return major == 9 && minor == 0;
}

/* ---- tensor maps, on the host ---- */

typedef CUresult gpu_encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                               const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                               CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The plug-in links only the runtime library, so the driver's function is looked up. NULL: there is none. */
static inline gpu_encode_fn *gpu_tensor_map_encoder()
{
    static gpu_encode_fn *found = [] {
        void *f = NULL;
        cudaDriverEntryPointQueryResult result;
        cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000,
                                                         cudaEnableDefault, &result);
        return e == cudaSuccess && result == cudaDriverEntryPointSuccess ? (gpu_encode_fn *)f : NULL;
    }();
    return found;
}

/* Makes a map of up to three dimensions of elements of 16 bits or of e4m3, the innermost contiguous. Strides of the
 * others in elements, multiples of 16 bytes; base aligned to 16. Elements outside the extents are read as zero. box:
 * what one load brings, innermost 128 bytes. */
static inline bool gpu_tensor_map(CUtensorMap *map, proa_dtype type, const void *base, int rank,
                                  const int64_t *extent, const int64_t *stride, const int *box)
{
    cuuint64_t size[3], step[2];
    cuuint32_t part[3], each[3] = {1, 1, 1};
    for (int i = 0; i < rank; i++) size[i] = (cuuint64_t)extent[i], part[i] = (cuuint32_t)box[i];
    for (int i = 1; i < rank; i++) step[i - 1] = (cuuint64_t)(stride[i - 1] * proa_dtype_bytes(type));
    CUtensorMapDataType kind = type == PROA_DTYPE_FP8    ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                               : type == PROA_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    gpu_encode_fn *encode = gpu_tensor_map_encoder();
    return encode &&
           encode(map, kind, (cuuint32_t)rank, (void *)base, size, step, part, each,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* ---- on the device; shared memory is given by its 32-bit address ---- */

__device__ static inline unsigned gpu_smem_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

#ifdef GPU_HOPPER

/* The phase ends when `count` have arrived and all expected bytes have come. */
__device__ static inline void gpu_barrier_init(unsigned barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* After the last init, before the block's __syncthreads: makes the barriers visible to the copy engine. */
__device__ static inline void gpu_barrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ static inline void gpu_barrier_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and announces bytes that must come before the phase ends. */
__device__ static inline void gpu_barrier_expect(unsigned barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Waits until the phase of this parity has ended. A new barrier is in phase 0: parity 1 returns at once. */
__device__ static inline void gpu_barrier_wait(unsigned barrier, unsigned parity)
{
    int done;
    do
        asm volatile("{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], "
                     "%2;\nselp.b32 %0, 1, 0, done;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    while (!done);
}

/* Makes what this thread wrote to shared memory visible to the copy engine and to wgmma. */
__device__ static inline void gpu_fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ static inline void gpu_tensor_map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* One thread: loads the box at these coordinates into shared memory; the barrier counts its bytes. */
__device__ static inline void gpu_tma_load(unsigned to, const CUtensorMap *map, unsigned barrier, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

__device__ static inline void gpu_tma_load(unsigned to, const CUtensorMap *map, unsigned barrier, int x,
                                           int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* One thread: bytes, a multiple of 16 and aligned so, into shared memory; the barrier counts them. */
__device__ static inline void gpu_bulk_load(unsigned to, const void *from, unsigned barrier, int bytes)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/* Moves registers from the producer warpgroup to the consumers. All warps of a warpgroup call it, in the
 * branch of their role. */
template <int COUNT> __device__ static inline void gpu_setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ static inline void gpu_setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* Barriers 1 to 15 among some warps of a block; count: all threads that take part, also those that only
 * arrive. */
__device__ static inline void gpu_named_sync(int barrier, int count)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ static inline void gpu_named_arrive(int barrier, int count)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* ---- wgmma ---- */

/* Before the first product of a group: registers that it reads or adds to have been written. */
__device__ static inline void gpu_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ static inline void gpu_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* All but the latest LEFT groups are done. */
template <int LEFT> __device__ static inline void gpu_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* Keeps the compiler from moving uses of these registers across products in flight. */
template <int N> __device__ static inline void gpu_wgmma_pin(float (&r)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(r[i])::"memory");
}

/* Shared-memory descriptors. gpu_smem_desc: a matrix whose 16-deep slices lie along the rows of 128 bytes
 * (K-major). gpu_smem_desc_mn: one whose slices are 16 of the rows (MN-major); `next`: bytes from its 64
 * columns to the next 64. The following slice is 32 bytes further, or 2,048. */
__device__ static inline uint64_t gpu_smem_desc(unsigned at)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
__device__ static inline uint64_t gpu_smem_desc_mn(unsigned at, int next)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(next >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* D [64xN] += A [64x16] B [16xN], sums in f32, by the 4 warps of a warpgroup; add false: D = A B. Warp w
 * holds the rows from 16 w on, as N / 8 times mma.sync's D [16x8], and an A in registers as its A [16x16]
 * (mma.h). A and B are K-major in shared memory; run_mn_major takes B MN-major. */
template <typename T, int N> struct gpu_wgmma;

#define GPU_R10(t)                                                                                           \
    "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define GPU_R4  "%0,%1,%2,%3"
#define GPU_R8  GPU_R4 ",%4,%5,%6,%7"
#define GPU_R16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define GPU_R30 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," GPU_R10(1) GPU_R10(2)
#define GPU_R32 GPU_R30 "%30,%31"
#define GPU_R48 GPU_R30 GPU_R10(3) "%40,%41,%42,%43,%44,%45,%46,%47"
#define GPU_R60 GPU_R30 GPU_R10(3) GPU_R10(4) GPU_R10(5)
#define GPU_R64 GPU_R60 "%60,%61,%62,%63"
#define GPU_R80 GPU_R60 GPU_R10(6) "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define GPU_R128                                                                                             \
    GPU_R60 GPU_R10(6) GPU_R10(7) GPU_R10(8) GPU_R10(9) GPU_R10(10)                                          \
        GPU_R10(11) "%120,%121,%122,%123,%124,%125,%126,%127"
#define GPU_F4(d, i)   "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define GPU_F8(d, i)   GPU_F4(d, i), GPU_F4(d, i + 4)
#define GPU_F16(d, i)  GPU_F8(d, i), GPU_F8(d, i + 8)
#define GPU_F32(d, i)  GPU_F16(d, i), GPU_F16(d, i + 16)
#define GPU_F48(d, i)  GPU_F32(d, i), GPU_F16(d, i + 32)
#define GPU_F64(d, i)  GPU_F32(d, i), GPU_F32(d, i + 32)
#define GPU_F80(d, i)  GPU_F64(d, i), GPU_F16(d, i + 64)
#define GPU_F128(d, i) GPU_F64(d, i), GPU_F64(d, i + 64)

/* H: N / 2; Z0 on: the numbers of the operands behind the H sums. */
#define GPU_WGMMA(TYPE, NAME, N, H, Z0, Z1, Z2, Z3, Z4, Z5)                                                  \
    template <> struct gpu_wgmma<TYPE, N> {                                                                  \
        __device__ static inline void run(float (&d)[H], uint64_t a, uint64_t b, bool add)                   \
        {                                                                                                    \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #Z2 ", 0;\n"                               \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" GPU_R##H       \
                         "}, %" #Z0 ", %" #Z1 ", add, 1, 1, 0, 0;\n}"                                        \
                         : GPU_F##H(d, 0)                                                                    \
                         : "l"(a), "l"(b), "r"((int)add));                                                   \
        }                                                                                                    \
        __device__ static inline void run(float (&d)[H], const unsigned *a, uint64_t b, bool add)            \
        {                                                                                                    \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #Z5 ", 0;\n"                               \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" GPU_R##H       \
                         "}, {%" #Z0 ", %" #Z1 ", %" #Z2 ", %" #Z3 "}, %" #Z4 ", add, 1, 1, 0;\n}"           \
                         : GPU_F##H(d, 0)                                                                    \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));               \
        }                                                                                                    \
        __device__ static inline void run_mn_major(float (&d)[H], const unsigned *a, uint64_t b, bool add)   \
        {                                                                                                    \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #Z5 ", 0;\n"                               \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" GPU_R##H       \
                         "}, {%" #Z0 ", %" #Z1 ", %" #Z2 ", %" #Z3 "}, %" #Z4 ", add, 1, 1, 1;\n}"           \
                         : GPU_F##H(d, 0)                                                                    \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));               \
        }                                                                                                    \
    };
#define GPU_WGMMA_BOTH(...)                                                                                  \
    GPU_WGMMA(__half, "f16", __VA_ARGS__)                                                                    \
    GPU_WGMMA(__nv_bfloat16, "bf16", __VA_ARGS__)
GPU_WGMMA_BOTH(8, 4, 4, 5, 6, 7, 8, 9)
GPU_WGMMA_BOTH(16, 8, 8, 9, 10, 11, 12, 13)
GPU_WGMMA_BOTH(32, 16, 16, 17, 18, 19, 20, 21)
GPU_WGMMA_BOTH(64, 32, 32, 33, 34, 35, 36, 37)
GPU_WGMMA_BOTH(96, 48, 48, 49, 50, 51, 52, 53)
GPU_WGMMA_BOTH(128, 64, 64, 65, 66, 67, 68, 69)
GPU_WGMMA_BOTH(160, 80, 80, 81, 82, 83, 84, 85)
GPU_WGMMA_BOTH(256, 128, 128, 129, 130, 131, 132, 133)
#undef GPU_WGMMA_BOTH
#undef GPU_WGMMA

/* The same of e4m3, 32 of K at a time, both operands K-major in shared memory. The tensor cores keep some 14 bits of
 * the sums. */
#define GPU_WGMMA_E4M3(N, H, Z0, Z1, Z2)                                                                     \
    template <> struct gpu_wgmma<__nv_fp8_e4m3, N> {                                                         \
        __device__ static inline void run(float (&d)[H], uint64_t a, uint64_t b, bool add)                   \
        {                                                                                                    \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #Z2 ", 0;\n"                               \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" GPU_R##H               \
                         "}, %" #Z0 ", %" #Z1 ", add, 1, 1;\n}"                                              \
                         : GPU_F##H(d, 0)                                                                    \
                         : "l"(a), "l"(b), "r"((int)add));                                                   \
        }                                                                                                    \
    };
GPU_WGMMA_E4M3(128, 64, 64, 65, 66)
GPU_WGMMA_E4M3(256, 128, 128, 129, 130)
#undef GPU_WGMMA_E4M3

#endif
#endif
