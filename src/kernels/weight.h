/* SPDX-License-Identifier: Apache-2.0
 * weight.h - a weight matrix as the kernels read it: packed once at load.
 * Owner:   the owner of `data` (the model's weight buffer). The table that packed it must be the one that reads it. */
#ifndef PROA_KERNELS_WEIGHT_H
#define PROA_KERNELS_WEIGHT_H

#include "tensor/source.h"
#include <string.h>

/* enum, name, what it does with a row x[K] and a weight row w[K] */
#define PROA_WFMT_LIST(X)                                                                                           \
    X(F32, "f32")   /* f32 weights */                                                                               \
    X(BF16, "bf16") /* bf16 weights widened exactly, f32 activations: equals F32 on a bf16 checkpoint */            \
    X(F16, "f16")   /* f16 weights widened exactly, f32 activations */                                              \
    X(BF16DOT, "bf16dot") /* bf16 weights, activations rounded to bf16, products summed in f32 */                   \
    X(I8, "int8")       /* int8 rows with one f32 scale each, activations quantised per row as they come */         \
    X(I8W, "int8w")     /* the same weights, activations left as they are (GPU: rounded to f16) */                  \
    X(FP8, "fp8")       /* e4m3 rows with one f32 scale each; activations likewise where many rows come */          \
    X(I4, "int4")       /* four bits, one f16 scale for each group of 128 inputs */                                 \
    X(I4A, "int4a")     /* the same with an f16 offset for each group (GPU) */                                      \
    X(I4A32, "int4a32") /* the same in groups of 32 inputs (GPU) */                                                 \
    X(MXFP4W, "mxfp4w") /* e2m1 and a power of 2 for each group of 32 inputs; activations left as they are (GPU) */ \
    X(I8G, "int8g") /* int8 in groups of 32 inputs with an f16 scale each; activations left as they are (GPU) */    \
    X(FP8G, "fp8g")     /* e4m3 in groups of 128 inputs with an f32 scale each; likewise (GPU) */                   \
    X(Q8_0, "q8_0")     /* int8 in groups of 32 inputs with an f16 scale each; activations likewise (CPU) */        \
    X(Q4_0, "q4_0")     /* four bits in groups of 32 with an f16 scale; activations as int8 groups (CPU) */         \
    X(Q4_1, "q4_1")     /* the same with an f16 minimum for each group (CPU) */                                     \
    X(MXFP4, "mxfp4")   /* groups as in Q4_0, a code stands for one of the 16 numbers of e2m1 (CPU) */              \
    X(IQ4_NL, "iq4_nl") /* likewise, the 16 numbers of llama.cpp's type of this name (CPU) */
typedef enum proa_wfmt {
#define PROA_WFMT_ENUM(name, text) PROA_WFMT_##name,
    PROA_WFMT_LIST(PROA_WFMT_ENUM)
#undef PROA_WFMT_ENUM
        PROA_WFMT_COUNT
} proa_wfmt;

/* The arithmetic of each format, which all tables of the host follow bit for bit unless it says otherwise. w: a row of
 * the weight, x: a row of activations, wq and xq: their codes, sw and sx: their scales. rint rounds to nearest, ties to
 * even. A source whose codes a format can hold keeps them (coded.h, groups.h).
 *
 * F32, BF16, F16  y[t,n] is one chain of f32 fused multiply-adds over k = 0, 1, 2, ..., from 0. (An activation that
 *                 follows may differ by a few ulp.)
 * BF16DOT         the same chain over x rounded to bf16. A CPU with the instruction may take k in pairs, in another
 *                 order, and flush denormals.
 * I8              sw[n] = max_k|w[n,k]| / 127 and wq = clamp(rint(w / sw), -127, 127), 0 if sw is 0; sx[t] and xq
 *                 likewise. y = (sum_k xq * wq, an exact 32-bit integer) * (sx[t] * sw[n]); K <= PROA_I8_INPUTS_MAX, so
 *                 that it fits. A row of x that holds NaN or infinity gives a row of NaN, a row of w a column of NaN.
 * I8W             wq and sw of I8; y is the chain of F32 over wq * sw.
 * FP8             sw[n] = max_k|w[n,k]| / 448; wq is the nearest e4m3 (OCP 8-bit floating point; ties to even, beyond
 *                 448 the largest).
 *
 * Formats of a GPU, in groups of inputs (coded.h):
 * I4              for each group of PROA_I4_GROUP inputs s = f16(-v / 8 * c), v the signed number of the largest
 *                 magnitude, and wq = clamp(rint(w / s), -8, 7). c is that of sixteen factors from 0.69 to 1.16 which
 *                 gives the least squared error (quant.h); with c = 1, v gets the code -8.
 * I4A, I4A32      asymmetric: w = wq * s + o with s = f16((max - min) / 15) and o = f16(min + 8 s) of the group, and
 *                 wq = clamp(rint((w - o) / s), -8, 7).
 * MXFP4W          the scale of a group is 2^(floor(log2 max_k|w|) - 2); wq is the nearest e2m1, the first of two that
 *                 are equally near, beyond 6 the largest.
 * I8G             for each group of 32 s = f16(max_k|w| / 127), wq as in I8.
 * FP8G            for each group of 128 s and wq as in FP8.
 * The plain reference keeps the numbers that these codes stand for in f32. Devices round x to f16, or with FP8 and many
 * rows to e4m3 with one scale a row, max_k|x[t,k]| / 448; they agree with the host within the error of that rounding.
 *
 * Formats of a CPU, in groups g of 32 inputs (groups.h). Activations have the scale sx[t,g] = max_k|x[t,k]| / 127 of
 * the group, and xq as in I8. Code c stands for d[n,g] * v with Q8_0            v = c Q4_0            v = c - 8 Q4_1
 * d[n,g] * c + m[n,g] in place of d[n,g] * v MXFP4, IQ4_NL   v = table[c] y is the chain of f32 fused multiply-adds
 * over g from 0: y = fma(sum_k xq * v, sx * d, y), and with Q4_1 then y = fma(sum_k xq, sx * m, y); the sums over k
 * are exact integers. Q8_0, Q4_0, Q4_1 and IQ4_NL are llama.cpp's formats of these names as they are stored; MXFP4 is
 * that of OCP Microscaling, with its scale as f16 where that is exact. Inputs beyond the last whole group are padded
 * with zeros. */
#define PROA_I8_INPUTS_MAX 131072
#define PROA_I4_GROUP      128
#define PROA_GROUP         32 /* inputs of a group of Q8_0, Q4_0, Q4_1, MXFP4 and IQ4_NL */

typedef struct proa_weight {
    proa_wfmt format;
    int64_t N, K;  /* outputs, inputs: y[T,N] = x[T,K] W^T */
    void *data;    /* packed; NULL: no weight */
    int64_t bytes; /* of data (proa_ops.pack_bytes) */
    /* A mixture of experts has one such matrix for each expert: expert e is at data + e * stride bytes. pack packs one
     * at a time. experts 0: there is one matrix. */
    int64_t experts, stride;
    bool permuted; /* input k of the packed rows is x[order[k]] (proa_wfmt_takes_order; coded.h, groups.h) */
} proa_weight;

/* A rectangle of rows (outputs) and columns (inputs), and where it is in the weights that it is copied between. */
typedef struct proa_packed_rect {
    int64_t rows, cols, to_row, to_col, from_row, from_col;
} proa_packed_rect;

/* Copies a rectangle of numbers of `size` bytes each between matrices with rows of so many bytes. */
static inline void proa_copy_rows(void *to, int64_t to_row_bytes, const void *from, int64_t from_row_bytes,
                                  int64_t size, const proa_packed_rect *r)
{
    for (int64_t i = 0; i < r->rows; i++)
        memcpy((char *)to + (r->to_row + i) * to_row_bytes + r->to_col * size,
               (const char *)from + (r->from_row + i) * from_row_bytes + r->from_col * size,
               (size_t)(r->cols * size));
}

const char *proa_wfmt_name(proa_wfmt format); /* static */

/* A CPU's formats whose weights and activations are in groups of PROA_GROUP inputs (groups.h). */
static inline bool proa_wfmt_is_grouped(proa_wfmt format)
{
    return format >= PROA_WFMT_Q8_0 && format <= PROA_WFMT_IQ4_NL;
}
/* A GPU's formats of four bits in groups (coded.h). */
PROA_HOST_DEVICE
#ifdef __cplusplus
constexpr
#endif
    static inline bool
    proa_wfmt_is_int4(proa_wfmt format)
{
    return format >= PROA_WFMT_I4 && format <= PROA_WFMT_MXFP4W;
}
/* A GPU's formats in groups, of four and of eight bits (coded.h). */
PROA_HOST_DEVICE
#ifdef __cplusplus
constexpr
#endif
    static inline bool
    proa_wfmt_is_coded(proa_wfmt format)
{
    return format >= PROA_WFMT_I4 && format <= PROA_WFMT_FP8G;
}
/* Formats whose inputs may be stored in another order than that of x (GPTQ's act-order). */
static inline bool proa_wfmt_takes_order(proa_wfmt format)
{
    return format == PROA_WFMT_I4A || format == PROA_WFMT_I4A32 || format == PROA_WFMT_Q4_0 ||
           format == PROA_WFMT_Q4_1;
}
/* Formats whose codes are indices into a table of 16 numbers. */
static inline bool proa_wfmt_has_table(proa_wfmt format)
{
    return format == PROA_WFMT_MXFP4 || format == PROA_WFMT_IQ4_NL;
}

/* Formats with fewer bits than f16: weights that --quant quantised at load, or the checkpoint has so. */
#ifdef __cplusplus
constexpr
#endif
    static inline bool
    proa_wfmt_is_quantised(proa_wfmt format)
{
    return format >= PROA_WFMT_I8;
}

#endif
