/* SPDX-License-Identifier: Apache-2.0
 * skinny_gemm.h - what skinny_gemm.cu and skinny_gemm_pipelined.cu share: weights unpacked to f16, the
 * arguments of a call, loads of x, and how an output is stored. */
#ifndef PROA_KERNELS_CUDA_LINEAR_SKINNY_GEMM_H
#define PROA_KERNELS_CUDA_LINEAR_SKINNY_GEMM_H

#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/runtime/mma.h"

/* Unpacks 16 bytes of weights, COUNT numbers. pairs(v, j, ..): the four numbers from 4 j on, as two words of
 * two f16 (bf16) each. inputs(c, j), j even: where in a step the eight inputs of these and the next four begin in
 * lane c of four. APART: from a lane's first input to the next lane's. */
template <int FORMAT> struct unpacked;

template <int COUNT_> struct in_order { /* a lane's numbers follow each other */
    static const int COUNT = COUNT_, APART = COUNT_;
    __device__ static int inputs(int c, int j)
    {
        return c * COUNT + 4 * j;
    }
};

template <> struct unpacked<PROA_WFMT_F16> : in_order<8> {
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
template <> struct unpacked<PROA_WFMT_FP8> : in_order<16> {
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
template <> struct unpacked<PROA_WFMT_I8W> : in_order<16> {
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

/* Lane c has the inputs 8 c on and 32 + 8 c on (kernels/coded.h). */
template <> struct unpacked<PROA_WFMT_I8G> : unpacked<PROA_WFMT_I8W> {
    static const int APART = 8;
    __device__ static int inputs(int c, int j)
    {
        return 16 * j + 8 * c;
    }
};
template <> struct unpacked<PROA_WFMT_FP8G> : unpacked<PROA_WFMT_FP8> {
};

/* (x & mask) | with as one instruction: nvcc makes two of it where both are constants. */
__device__ static inline unsigned mask_and_set(unsigned x, unsigned mask, unsigned with)
{
    unsigned y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(with));
    return y;
}

/* Eight numbers in a word: number 2 i in nibble i, number 2 i + 1 in nibble i + 4, each plus 8; word g of lane c has
 * the inputs 32 g + 8 c on (kernels/coded.h). A nibble u in the low bits of the f16 1024 is 1024 + u, one nibble higher
 * 1024 + 16 u. Unpacked is q / 8. */
template <> struct unpacked<PROA_WFMT_I4> {
    static const int COUNT = 32, APART = 8;
    typedef __half type;
    __device__ static int inputs(int c, int j)
    {
        return 16 * j + 8 * c;
    }
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        unsigned u = j % 2 ? v[j / 2] >> 8 : v[j / 2], low = mask_and_set(u, 0x000f000fu, 0x64006400u),
                 high = mask_and_set(u, 0x00f000f0u, 0x64006400u);
        __half2 a = __hfma2(*reinterpret_cast<__half2 *>(&low), __half2half2(__ushort_as_half(0x3000)),
                            __half2half2(__ushort_as_half(0xd808))); /* / 8 - 129 */
        __half2 b = __hfma2(*reinterpret_cast<__half2 *>(&high), __half2half2(__ushort_as_half(0x2000)),
                            __half2half2(__ushort_as_half(0xc880))); /* / 128 - 9 */
        first = *reinterpret_cast<unsigned *>(&a), second = *reinterpret_cast<unsigned *>(&b);
    }
};

template <> struct unpacked<PROA_WFMT_I4A> : unpacked<PROA_WFMT_I4> {
};
template <> struct unpacked<PROA_WFMT_I4A32> : unpacked<PROA_WFMT_I4> {
};

/* A nibble of e2m1 at the top of each half is moved to where f16 has sign, exponent and mantissa: the number times
 * 2^-14, also if it is subnormal. */
template <> struct unpacked<PROA_WFMT_MXFP4W> {
    static const int COUNT = 32, APART = 8;
    typedef __half type;
    __device__ static int inputs(int c, int j)
    {
        return 16 * j + 8 * c;
    }
    __device__ static unsigned place(unsigned top)
    {
        unsigned bits = (top & 0x80008000u) | (top >> 3 & 0x0e000e00u);
        __half2 h = __hmul2(*reinterpret_cast<__half2 *>(&bits), __half2half2(__ushort_as_half(0x7400))); /* 2^14 */
        return *reinterpret_cast<unsigned *>(&h);
    }
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        unsigned w = v[j / 2];
        first = place(w << (j % 2 ? 4 : 12)), second = place(j % 2 ? w : w << 8);
    }
};

/* The same for kernels on CUDA cores, whose time is that of unpacking: e4m3 by the conversion of 8.9 and newer, two
 * instructions for two numbers instead of four. Times 2^-8 too: with 448, the largest number, products of 16 bits would
 * leave f16's range. */
template <int FORMAT> struct fast_unpacked : unpacked<FORMAT> {
};
#if __CUDA_ARCH__ >= 890
template <> struct fast_unpacked<PROA_WFMT_FP8> : unpacked<PROA_WFMT_FP8> {
    __device__ static unsigned scaled(unsigned x)
    {
        __half2 h = __hmul2(*reinterpret_cast<__half2 *>(&x), __half2half2(__ushort_as_half(0x1c00)));
        return *reinterpret_cast<unsigned *>(&h);
    }
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        asm("{.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\t"
            "cvt.rn.f16x2.e4m3x2 %0, low;\n\tcvt.rn.f16x2.e4m3x2 %1, high;}"
            : "=r"(first), "=r"(second)
            : "r"(v[j]));
        first = scaled(first), second = scaled(second);
    }
};
#endif

/* ---- one row and weights of 8 bits: each lane has 16 bytes of rows of weights, and x at the same places. Tensor cores
 * multiply them where they are. With the weights of two rows as A and x as B, group g of four lanes makes the elements
 * (g, g) and (g + 8, g) of D, which are the sums of its own products; the others, of one group's weights and another
 * group's x, are not used. Sums are in f32, so numbers need no scale ---- */

/* Numbers as they are, times 1 / back. */
template <int FORMAT> struct exact_unpacked : unpacked<FORMAT> {
    static __device__ float back()
    {
        return 1.0f;
    }
};
#if __CUDA_ARCH__ >= 890
template <> struct exact_unpacked<PROA_WFMT_FP8> : unpacked<PROA_WFMT_FP8> {
    static __device__ float back() /* format_unit is for 2^-8 of them */
    {
        return 1.0f / 256.0f;
    }
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        asm("{.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\t"
            "cvt.rn.f16x2.e4m3x2 %0, low;\n\tcvt.rn.f16x2.e4m3x2 %1, high;}"
            : "=r"(first), "=r"(second)
            : "r"(v[j]));
    }
};
#endif

/* The sums of two rows over the numbers of a group's lanes, in the one lane of it that group_holds. All lanes of the
 * warp call it. */
template <int FORMAT>
__device__ static inline float2 multiply_rows(const unsigned (&a)[4], const unsigned (&b)[4],
                                              const unsigned (&x)[8])
{
    float d[4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned w[4];
        exact_unpacked<FORMAT>::pairs(a, j, w[0], w[2]);
        exact_unpacked<FORMAT>::pairs(b, j, w[1], w[3]);
        gpu_mma<__half>::run(d, w, x[2 * j], x[2 * j + 1]);
    }
    return threadIdx.x & 4 ? make_float2(d[1], d[3]) : make_float2(d[0], d[2]);
}

__device__ static inline bool group_holds()
{
    return (threadIdx.x & 3) == (threadIdx.x & 31) / 8;
}

/* Adds each of COUNT (a power of two) numbers over a warp: lane l gets the sum of number l / (32 / COUNT). */
template <int COUNT> __device__ static inline float add_lanes_of(float (&v)[COUNT])
{
    int lane = threadIdx.x & 31, o = 16;
#pragma unroll
    for (int half = COUNT / 2; half > 0; half /= 2, o /= 2)
#pragma unroll
        for (int i = 0; i < half; i++) {
            float own = lane & o ? v[i + half] : v[i], other = lane & o ? v[i] : v[i + half];
            v[i] = own + __shfl_xor_sync(0xffffffffu, other, o);
        }
#pragma unroll
    for (; o > 0; o /= 2) v[0] += __shfl_xor_sync(0xffffffffu, v[0], o);
    return v[0];
}

/* Adds the sums of rows that groups hold over each warp, into scratch [warps]. */
template <int FORMAT, int COUNT>
__device__ static inline void add_group_sums(float (*scratch)[COUNT], float (&sum)[COUNT])
{
    const int EACH = 32 / COUNT;
#pragma unroll
    for (int r = 0; r < COUNT; r++) sum[r] = group_holds() ? sum[r] * exact_unpacked<FORMAT>::back() : 0.0f;
    float v = add_lanes_of(sum);
    if (threadIdx.x % EACH == 0) scratch[threadIdx.x / 32][threadIdx.x % 32 / EACH] = v;
}

/* What unpacked numbers are to be multiplied by. */
static inline float format_unit(proa_wfmt format)
{
    return format == PROA_WFMT_FP8 || format == PROA_WFMT_FP8G  ? 256.0f
           : format == PROA_WFMT_I8W || format == PROA_WFMT_I8G ? 128.0f
           : format == PROA_WFMT_MXFP4W                         ? 1.0f
           : proa_wfmt_is_int4(format)                          ? 8.0f
                                                                : 1.0f;
}

/* The factors of a row of codes for a step of 64 bytes: those of GROUPS groups, as they are stored. load's steps: of
 * the row, of 64 bytes; s: which of them. */
template <int FORMAT> struct group_factors {
    static const bool USED = false, NIBBLES = false; /* other formats have none */
    static const int GROUPS = 1;
    static const bool OFFSETS = false;
    __device__ void load(const void *, int, int, int)
    {
    }
    __device__ float scale(int) const
    {
        return 1.0f;
    }
    __device__ float offset(int) const
    {
        return 0.0f;
    }
};

/* Which element of those of a weight has row n, step s of 128 inputs. */
__device__ static inline int64_t factors_of(int steps, int n, int s)
{
    return ((int64_t)(n / PROA_CODED_TILE) * steps + s) * PROA_CODED_TILE + n % PROA_CODED_TILE;
}

template <> struct group_factors<PROA_WFMT_I4> {
    static const bool USED = true, NIBBLES = true; /* NIBBLES: codes that nibbles_to_f16 takes */
    static const int GROUPS = 1;
    static const bool OFFSETS = false;
    __half raw;
    __device__ void load(const void *from, int steps, int n, int s)
    {
        raw = ((const __half *)from)[factors_of(steps, n, s)];
    }
    __device__ float scale(int) const
    {
        return __half2float(raw);
    }
    __device__ float offset(int) const
    {
        return 0.0f;
    }
};

template <> struct group_factors<PROA_WFMT_I4A> {
    static const bool USED = true, NIBBLES = true;
    static const int GROUPS = 1;
    static const bool OFFSETS = true;
    __half2 raw;
    __device__ void load(const void *from, int steps, int n, int s)
    {
        raw = ((const __half2 *)from)[factors_of(steps, n, s)];
    }
    __device__ float scale(int) const
    {
        return __low2float(raw);
    }
    __device__ float offset(int) const
    {
        return __high2float(raw);
    }
};

template <> struct group_factors<PROA_WFMT_I4A32> {
    static const bool USED = true, NIBBLES = true;
    static const int GROUPS = 4;
    static const bool OFFSETS = true;
    uint4 raw;
    __device__ void load(const void *from, int steps, int n, int s)
    {
        raw = ((const uint4 *)from)[factors_of(steps, n, s)];
    }
    __device__ __half2 pair(int g) const
    {
        unsigned bits = g == 0 ? raw.x : g == 1 ? raw.y : g == 2 ? raw.z : raw.w;
        return *reinterpret_cast<__half2 *>(&bits);
    }
    __device__ float scale(int g) const
    {
        return __low2float(pair(g));
    }
    __device__ float offset(int g) const
    {
        return __high2float(pair(g));
    }
};

template <> struct group_factors<PROA_WFMT_MXFP4W> {
    static const bool USED = true, NIBBLES = false;
    static const int GROUPS = 4;
    static const bool OFFSETS = false;
    unsigned raw; /* exponents */
    __device__ void load(const void *from, int steps, int n, int s)
    {
        raw = ((const unsigned *)from)[factors_of(steps, n, s)];
    }
    __device__ float scale(int g) const
    {
        unsigned exponent = raw >> 8 * g & 255;
        return __uint_as_float(exponent == 255 ? 0x7fc00000u : exponent << 23);
    }
    __device__ float offset(int) const
    {
        return 0.0f;
    }
};

template <> struct group_factors<PROA_WFMT_I8G> {
    static const bool USED = true, NIBBLES = false;
    static const int GROUPS = 2;
    static const bool OFFSETS = false;
    __half2 raw;
    __device__ void load(const void *from, int steps, int n, int s)
    {
        raw = ((const __half2 *)from)[factors_of((steps + 1) / 2, n, s / 2) * 2 + s % 2];
    }
    __device__ float scale(int g) const
    {
        return g == 0 ? __low2float(raw) : __high2float(raw);
    }
    __device__ float offset(int) const
    {
        return 0.0f;
    }
};

template <> struct group_factors<PROA_WFMT_FP8G> {
    static const bool USED = true, NIBBLES = false;
    static const int GROUPS = 1;
    static const bool OFFSETS = false;
    float raw;
    __device__ void load(const void *from, int steps, int n, int s)
    {
        raw = ((const float *)from)[factors_of((steps + 1) / 2, n, s / 2)];
    }
    __device__ float scale(int) const
    {
        return raw;
    }
    __device__ float offset(int) const
    {
        return 0.0f;
    }
};

/* The sums of one group of codes on tensor cores, and, where there are offsets, those of x: products with ones. */
template <typename T, int FORMAT> struct group_part {
    float sum[4], inputs[4];
    __device__ void clear()
    {
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] = inputs[i] = 0.0f;
    }
    __device__ void sum_inputs(unsigned b0, unsigned b1)
    {
        const unsigned ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
        if (group_factors<FORMAT>::OFFSETS) gpu_mma<T>::run(inputs, ones, b0, b1);
    }
    /* to += the group's sums, as the codes were unpacked; those of four bits with offsets are eighths. factors: of rows
     * r and r + 8; of_x: the inputs' sums. */
    __device__ void add_to(float to[4], const group_factors<FORMAT> factors[2], int g, const float of_x[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[i] = fmaf(factors[i / 2].scale(g), sum[i], to[i]);
            if (group_factors<FORMAT>::OFFSETS)
                to[i] = fmaf(0.125f * factors[i / 2].offset(g), of_x[i], to[i]);
        }
    }
};

struct skinny_call {
    void *y;
    int64_t y_row;
    proa_dtype y_type;
    const void *x; /* of the products' type */
    int64_t x_row;
    bool aligned;  /* rows of x begin at 16 bytes */
    bool x_is_f32; /* x is in f32 instead: only skinny_gemm_kernel takes it */
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

/* The same as numbers of T. Those of f32 are rounded as cast_rows does it. */
template <typename T, typename X>
__device__ static inline uint4 load_pairs(const X *x, int k, int K, bool aligned)
{
    if constexpr (sizeof(X) == 2) return load_vec8(x, k, K, aligned);
    float v[8];
    if (aligned && k + 8 <= K) gpu_load8(v, x + k);
    else
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = k + i < K ? gpu_to_f32(x[k + i]) : 0.0f;
    return make_uint4(gpu_pack2<T>(v[0], v[1]), gpu_pack2<T>(v[2], v[3]), gpu_pack2<T>(v[4], v[5]),
                      gpu_pack2<T>(v[6], v[7]));
}

/* The 16 numbers of x from k on, zeros behind K. */
__device__ static inline void load_row16(unsigned (&to)[8], const __half *x, int k, int K, bool aligned)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint4 v = load_vec8(x, k + 8 * i, K, aligned);
        to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
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

/* Floats beside each step of 128 of a row of x: for each group the excess, and the sum of x if there are offsets. */
template <int FORMAT> __host__ __device__ constexpr int x_sums()
{
    return group_factors<FORMAT>::GROUPS * (group_factors<FORMAT>::OFFSETS ? 2 : 1);
}

/* Writes x to shared memory, for each step of 128 and each row 16 pieces of 8 numbers, and its sums. xs
 * [steps][X_ROWS][16], sums [steps][X_ROWS][x_sums]. AT_ONCE loads are issued before the first store, since the
 * compiler cannot know that xs is not x. */
template <int FORMAT, int X_ROWS, int THREADS, int AT_ONCE>
__device__ static inline void prepare_x(uint4 *xs, float *sums, const skinny_call &a, int steps)
{
    typedef group_factors<FORMAT> factors;
    const __half2 sixteenth = __half2half2(__ushort_as_half(0x2c00));
    int pieces = steps * X_ROWS * 16, whole = (pieces + 31) / 32 * 32; /* whole warps */
    for (int base = threadIdx.x; base < whole; base += AT_ONCE * THREADS) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            int i = base + u * THREADS, step = i / (X_ROWS * 16), m = i / 16 % X_ROWS, p = i % 16;
            v[u] = make_uint4(0, 0, 0, 0);
            if (i < pieces)
                v[u] = load_vec8((const __half *)a.x + m * a.x_row, step * 128 + p * 8, a.K, a.aligned, true);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) { /* 16 threads make one step of one row */
            int i = base + u * THREADS;
            if (i >= whole) break;
            __half2 *h = reinterpret_cast<__half2 *>(&v[u]);
            float2 f[4];
#pragma unroll
            for (int j = 0; j < 4; j++) f[j] = __half22float2(h[j]);
            float low = f[0].x + f[0].y + f[2].x + f[2].y, high = f[1].x + f[1].y + f[3].x + f[3].y;
            float excess = 1032.0f * low + 72.0f * high, sum = low + high;
            h[1] = __hmul2(h[1], sixteenth), h[3] = __hmul2(h[3], sixteenth);
            if (i < pieces) xs[i] = v[u];
            const int THREADS_OF_GROUP = 16 / factors::GROUPS;
#pragma unroll
            for (int o = THREADS_OF_GROUP / 2; o > 0; o >>= 1) {
                excess += __shfl_xor_sync(0xffffffffu, excess, o);
                if (factors::OFFSETS) sum += __shfl_xor_sync(0xffffffffu, sum, o);
            }
            float *to = sums + i / THREADS_OF_GROUP * (factors::OFFSETS ? 2 : 1);
            if (i < pieces && i % THREADS_OF_GROUP == 0) {
                to[0] = excess;
                if (factors::OFFSETS) to[1] = sum;
            }
        }
    }
}

/* Four words of 1024 + nibble and four of 1024 + 16 nibble, from two rows of weights. */
__device__ static inline void nibbles_to_f16(unsigned low[4], unsigned w0, unsigned w1)
{
    low[0] = mask_and_set(w0, 0x000f000fu, 0x64006400u), low[1] = mask_and_set(w1, 0x000f000fu, 0x64006400u);
    low[2] = mask_and_set(w0, 0x00f000f0u, 0x64006400u), low[3] = mask_and_set(w1, 0x00f000f0u, 0x64006400u);
}

/* total[j][m] += the products of a step of rows r + 8 j of weights with row m of x. u, v: this lane's words of the two;
 * x and sums: of the step, by prepare_x; CHAINS: products that do not wait for each other, 1 or 2. */
template <int FORMAT, int X_ROWS, int CHAINS>
__device__ static inline void add_nibble_step(float total[2][X_ROWS], const unsigned u[4],
                                              const unsigned v[4], const uint4 *x, const float *sums,
                                              const group_factors<FORMAT> factors[2])
{
    const int GROUPS = group_factors<FORMAT>::GROUPS, WORDS = 4 / GROUPS, EACH = x_sums<FORMAT>() / GROUPS;
    int lane = threadIdx.x & 31, r = lane / 4, c = lane % 4;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        float part[CHAINS][4] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) part[0][j] = -sums[(j % X_ROWS * GROUPS + g) * EACH];
#pragma unroll
        for (int q = g * WORDS; q < (g + 1) * WORDS; q++) {
            uint4 b = x[r % X_ROWS * 16 + q * 4 + c];
            unsigned a[4];
            nibbles_to_f16(a, u[q], v[q]);
            gpu_mma<__half>::run(part[0], a, b.x, b.y);
            nibbles_to_f16(a, u[q] >> 8, v[q] >> 8);
            gpu_mma<__half>::run(part[CHAINS - 1], a, b.z, b.w);
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int m = 0; m < X_ROWS; m++) {
                float sum = part[0][2 * j + m] + (CHAINS > 1 ? part[CHAINS - 1][2 * j + m] : 0.0f);
                total[j][m] = fmaf(factors[j].scale(g), sum, total[j][m]);
                if (EACH > 1)
                    total[j][m] = fmaf(factors[j].offset(g), sums[(m * GROUPS + g) * EACH + EACH - 1],
                                       total[j][m]);
            }
    }
}

/* ---- skinny_gemm_pipelined.cu ---- */

/* Of what pipelined_takes takes. a.unit is set within. */
void skinny_gemm_pipelined(gpu *g, skinny_call a, proa_wfmt format);

#endif
