/* SPDX-License-Identifier: Apache-2.0
 * skinny_gemm.h - what skinny_gemm.cu and skinny_gemm_pipelined.cu share: weights unpacked to f16, the
 * arguments of a call, loads of x, and how an output is stored. */
#ifndef PROA_KERNELS_CUDA_LINEAR_SKINNY_GEMM_H
#define PROA_KERNELS_CUDA_LINEAR_SKINNY_GEMM_H

#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/runtime/mma.h"

/* Unpacks 16 bytes of weights, COUNT numbers. pairs(v, j, ..): the four numbers from 4 j on, as two words of
 * two f16 (bf16) each. */
template <int FORMAT> struct unpacked;

template <> struct unpacked<PROA_WFMT_F16> {
    static const int COUNT = 8;
    typedef __half type;
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        first = v[2 * j], second = v[2 * j + 1];
    }
};
template <> struct unpacked<PROA_WFMT_BF16> : unpacked<PROA_WFMT_F16> {
    typedef __nv_bfloat16 type;
};

/* e4m3 has 4 bits of exponent and 3 of mantissa where f16 has 5 and 10. Its bits, shifted into place, are the
 * number times 2^-8 as f16, also for subnormal numbers. */
template <> struct unpacked<PROA_WFMT_FP8> {
    static const int COUNT = 16;
    typedef __half type;
    __device__ static unsigned place(unsigned bytes)
    {
        return (bytes & 0x80008000u) | (bytes >> 1 & 0x3f803f80u);
    }
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        first = place(__byte_perm(v[j], 0, 0x1404)), second = place(__byte_perm(v[j], 0, 0x3424));
    }
};

/* q + 128 in the low bits of the f16 1024 is the number 1152 + q. Unpacked is q / 128. */
template <> struct unpacked<PROA_WFMT_I8W> {
    static const int COUNT = 16;
    typedef __half type;
    __device__ static unsigned less(unsigned x)
    {
        __half2 h = __hfma2(*reinterpret_cast<__half2 *>(&x), __half2half2(__ushort_as_half(0x2000)),
                            __half2half2(__ushort_as_half(0xc880))); /* / 128 - 9 */
        return *reinterpret_cast<unsigned *>(&h);
    }
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        unsigned u = v[j] ^ 0x80808080u;
        first = less(__byte_perm(u, 0x64646464u, 0x4140)), second = less(__byte_perm(u, 0x64646464u, 0x4342));
    }
};

/* Eight numbers in a word: number 2 i in nibble i, number 2 i + 1 in nibble i + 4, each plus 8 (quant.cu). A
 * nibble u in the low bits of the f16 1024 is 1024 + u, one nibble higher 1024 + 16 u. Unpacked is q / 8. */
template <> struct unpacked<PROA_WFMT_I4> {
    static const int COUNT = 32;
    typedef __half type;
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        unsigned u = j % 2 ? v[j / 2] >> 8 : v[j / 2], low = (u & 0x000f000fu) | 0x64006400u,
                 high = (u & 0x00f000f0u) | 0x64006400u;
        __half2 a = __hfma2(*reinterpret_cast<__half2 *>(&low), __half2half2(__ushort_as_half(0x3000)),
                            __half2half2(__ushort_as_half(0xd808))); /* / 8 - 129 */
        __half2 b = __hfma2(*reinterpret_cast<__half2 *>(&high), __half2half2(__ushort_as_half(0x2000)),
                            __half2half2(__ushort_as_half(0xc880))); /* / 128 - 9 */
        first = *reinterpret_cast<unsigned *>(&a), second = *reinterpret_cast<unsigned *>(&b);
    }
};

struct skinny_call {
    void *y;
    int64_t y_row;
    proa_dtype y_type;
    const void *x; /* of the products' type */
    int64_t x_row;
    bool aligned; /* rows of x begin at 16 bytes */
    int M;
    const char *w;
    int64_t row_bytes;
    const void *scales;
    float unit;
    int N, K;
    epilogue e;
};

/* Eight numbers of x from k on, zeros behind K. once: each block reads them once, so they bypass the L1
 * cache. */
template <typename T>
__device__ static inline uint4 load_vec8(const T *x, int k, int K, bool aligned, bool once = false)
{
    unsigned v[4];
    if (aligned && k + 8 <= K && once) return __ldcg(reinterpret_cast<const uint4 *>(x + k));
    if (aligned && k + 8 <= K) return *reinterpret_cast<const uint4 *>(x + k);
    const unsigned short *from = reinterpret_cast<const unsigned short *>(x);
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = (k + 2 * i < K ? from[k + 2 * i] : 0u) |
               (k + 2 * i + 1 < K ? (unsigned)from[k + 2 * i + 1] << 16 : 0u);
    return make_uint4(v[0], v[1], v[2], v[3]);
}

/* What the epilogue of (m, n) reads, and the scales of its row of weights and of its factor's. */
struct skinny_operands {
    epilogue_operands end;
    float scale, factor;
};
template <int FORMAT>
__device__ static inline void prefetch_scales(skinny_operands *to, const skinny_call &a, int n)
{
    to->scale = to->factor = 1.0f;
    prefetch_bias(&to->end, a.e, n);
    if (FORMAT != PROA_WFMT_FP8 && FORMAT != PROA_WFMT_I8W) return;
    to->scale = ((const float *)a.scales)[n];
    if (a.e.gate_rows) to->factor = ((const float *)a.scales)[a.e.gate_rows + n];
}

/* Stores output (m, n) from the sum v (gated: u of the factor), scaled as the format and the row of weights
 * need it. */
__device__ static inline void store_output(const skinny_call &a, float v, float u, int m, int n,
                                           const skinny_operands &ahead)
{
    v = apply_epilogue(a.e, v * a.unit * ahead.scale, u * a.unit * ahead.factor, ahead.end);
    if (a.y_type == PROA_DTYPE_F32) ((float *)a.y)[m * a.y_row + n] = v;
    else if (a.y_type == PROA_DTYPE_F16) ((__half *)a.y)[m * a.y_row + n] = gpu_saturate<__half>(v);
    else ((__nv_bfloat16 *)a.y)[m * a.y_row + n] = gpu_saturate<__nv_bfloat16>(v);
}

/* ---- one and two rows of int4 (gemv_int4_persistent_kernel, skinny_gemm_pipelined.cu). Tensor cores take
 * the nibbles as they are, as 1024 + u, or as 1024 + 16 u with a sixteenth of x. The excess is one number for
 * each group and row of x, and is subtracted in f32 before the sums ---- */

/* Writes x to shared memory as the lanes of the tensor cores read it, for each group of 128 and each row 16
 * pieces of 8 numbers, piece p of lane c at p * 4 + c; and the excess to be subtracted. xs
 * [groups][X_ROWS][16], offset [groups][X_ROWS]. AT_ONCE loads are issued before the first store, since the
 * compiler cannot know that xs is not x. */
template <int X_ROWS, int THREADS, int AT_ONCE>
__device__ static inline void prepare_x(uint4 *xs, float *offset, const skinny_call &a, int groups)
{
    const __half2 sixteenth = __half2half2(__ushort_as_half(0x2c00));
    int pieces = groups * X_ROWS * 16, whole = (pieces + 31) / 32 * 32; /* whole warps */
    for (int base = threadIdx.x; base < whole; base += AT_ONCE * THREADS) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            int i = base + u * THREADS, group = i / (X_ROWS * 16), m = i / 16 % X_ROWS, p = i % 16;
            v[u] = make_uint4(0, 0, 0, 0);
            if (i < pieces)
                v[u] = load_vec8((const __half *)a.x + m * a.x_row, group * 128 + p * 8, a.K, a.aligned, true);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) { /* 16 threads make one group of one row */
            int i = base + u * THREADS, group = i / (X_ROWS * 16), m = i / 16 % X_ROWS, p = i % 16;
            if (i >= whole) break;
            __half2 *h = reinterpret_cast<__half2 *>(&v[u]);
            float2 f[4];
#pragma unroll
            for (int j = 0; j < 4; j++) f[j] = __half22float2(h[j]);
            float off = 1032.0f * (f[0].x + f[0].y + f[2].x + f[2].y) +
                        72.0f * (f[1].x + f[1].y + f[3].x + f[3].y);
            h[1] = __hmul2(h[1], sixteenth), h[3] = __hmul2(h[3], sixteenth);
            if (i < pieces) xs[(group * X_ROWS + m) * 16 + p % 4 * 4 + p / 4] = v[u];
#pragma unroll
            for (int o = 8; o > 0; o >>= 1) off += __shfl_xor_sync(0xffffffffu, off, o);
            if (i < pieces && p == 0) offset[group * X_ROWS + m] = off;
        }
    }
}

/* Four words of 1024 + nibble and four of 1024 + 16 nibble, from two rows of weights. */
__device__ static inline void nibbles_to_f16(unsigned low[4], unsigned w0, unsigned w1)
{
    low[0] = (w0 & 0x000f000fu) | 0x64006400u, low[1] = (w1 & 0x000f000fu) | 0x64006400u;
    low[2] = (w0 & 0x00f000f0u) | 0x64006400u, low[3] = (w1 & 0x00f000f0u) | 0x64006400u;
}

/* ---- skinny_gemm_pipelined.cu ---- */

/* Of what pipelined_takes takes. a.unit is set within. */
void skinny_gemm_pipelined(gpu *g, skinny_call a, proa_wfmt format);

#endif
