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

/* F32, BF16 and F16 exactly: y[t,n] is one chain of f32 fused multiply-adds over k = 0, 1, 2, ..., from 0. So all
 * tables agree bit for bit (before the epilogue's activation, which may differ by a few ulp).
 * BF16DOT: the same chain over x rounded to bf16, but a CPU with the instruction may take k in pairs in another
 * order and flush denormals.
 * I8 exactly: weight scale sw[n] = max_k|w[n,k]| / 127, wq = clamp(rint(w / sw), -127, 127) (0 if sw is 0);
 * activation scale sx[t] = max_k|x[t,k]| / 127, xq likewise; y = (sum_k xq*wq, an exact 32-bit integer) *
 * (sx[t] * sw[n]). rint is to nearest, ties to even. A row of x that holds NaN or infinity gives a row of NaN, a row
 * of w a column of NaN. K <= PROA_I8_INPUTS_MAX, so that the integer fits. All tables agree bit for bit.
 * I8W: wq and sw as for I8, y the chain of F32 over wq * sw. FP8: sw[n] = max_k|w[n,k]| / 448, wq the nearest e4m3 (OCP
 * 8-bit floating point, ties to even, beyond 448 the largest). I4: for each group of PROA_I4_GROUP inputs of a row
 * s = f16(-v / 8 * c) with v the number of the largest magnitude, sign and all, wq = clamp(rint(w / s), -8, 7). c is
 * the one of sixteen factors from 0.69 to 1.16 whose squared error is least (quant.h); 1 gives v the code -8. I4A and
 * I4A32 are asymmetric: wq s + o, with s = f16((max - min) / 15) and o = f16(min + 8 s) of the group, wq =
 * clamp(rint((w - o) / s), -8, 7). MXFP4W: the scale of a group is 2^(floor(log2 max_k|w|) - 2), wq the
 * nearest e2m1, the first of two, beyond 6 the largest. I8G: for each group of 32 s = f16(max_k|w| / 127), wq as in
 * I8. FP8G: for each group of 128 s and wq as in FP8. A source whose codes a format has keeps them (coded.h; I8W and
 * FP8 too). The
 * plain reference keeps the numbers that the codes stand for in f32. Devices round x to
 * f16, with FP8 and many rows to e4m3 with one scale a row, max_k|x[t,k]| / 448, so they agree within what that
 * costs.
 * Q8_0, Q4_0, Q4_1, IQ4_NL are llama.cpp's formats of these names (groups.h), kept as they are stored; MXFP4 is that
 * of OCP Microscaling, its scale held as f16 where that is exact. With group g of 32 inputs, activations have the scale
 * sx[t,g] = max_k|x[t,k]| / 127 over the group and xq as in I8; code c stands for d[n,g] * v with v = c (Q8_0), c - 8
 * (Q4_0), table[c] (MXFP4, IQ4_NL), or for d * c + m[n,g] (Q4_1). y is the chain of f32 fused multiply-adds over g
 * from 0: y = fma(sum_k xq v, sx * d, y), and with Q4_1 then y = fma(sum_k xq, sx * m, y); the sums over k are exact
 * integers. All tables agree bit for bit. Inputs beyond the last whole group are padded with zeros. */
#define PROA_I8_INPUTS_MAX 131072
#define PROA_I4_GROUP      128
#define PROA_GROUP         32 /* inputs of a group of Q8_0, Q4_0, Q4_1, MXFP4 and IQ4_NL */

typedef struct proa_weight {
    proa_wfmt format;
    int64_t N, K;  /* outputs, inputs: y[T,N] = x[T,K] W^T */
    void *data;    /* packed; NULL: no weight */
    int64_t bytes; /* of data, as pack_bytes says */
    /* One such matrix for each expert, expert e at data + e * stride; pack packs one at a time. 0: one matrix. */
    int64_t experts, stride;
    bool permuted; /* input k of the packed rows is x[order[k]] (proa_wfmt_takes_order; coded.h, groups.h) */
} proa_weight;

/* Rows (outputs) and columns (inputs) of one packed weight, and where they are in another. */
typedef struct proa_packed_rect {
    int64_t rows, cols, to_row, to_col, from_row, from_col;
} proa_packed_rect;

/* Copies a rectangle of numbers of `size` bytes between matrices whose rows are so many bytes apart. */
static inline void proa_copy_rows(void *to, int64_t to_row_bytes, const void *from, int64_t from_row_bytes,
                                  int64_t size, const proa_packed_rect *r)
{
    for (int64_t i = 0; i < r->rows; i++)
        memcpy((char *)to + (r->to_row + i) * to_row_bytes + r->to_col * size,
               (const char *)from + (r->from_row + i) * from_row_bytes + r->from_col * size,
               (size_t)(r->cols * size));
}

const char *proa_wfmt_name(proa_wfmt format);
/* Formats whose weights and activations come in groups of PROA_GROUP inputs. */
static inline bool proa_wfmt_is_grouped(proa_wfmt format)
{
    return format >= PROA_WFMT_Q8_0 && format <= PROA_WFMT_IQ4_NL;
}
/* Those of coded.h with four bits, on a device. */
PROA_HOST_DEVICE
#ifdef __cplusplus
constexpr
#endif
    static inline bool
    proa_wfmt_is_int4(proa_wfmt format)
{
    return format >= PROA_WFMT_I4 && format <= PROA_WFMT_MXFP4W;
}
/* Those of coded.h: codes in groups, on a device. */
PROA_HOST_DEVICE
#ifdef __cplusplus
constexpr
#endif
    static inline bool
    proa_wfmt_is_coded(proa_wfmt format)
{
    return format >= PROA_WFMT_I4 && format <= PROA_WFMT_FP8G;
}
/* Those whose inputs may be in an order of their own (GPTQ's act-order). */
static inline bool proa_wfmt_takes_order(proa_wfmt format)
{
    return format == PROA_WFMT_I4A || format == PROA_WFMT_I4A32 || format == PROA_WFMT_Q4_0 ||
           format == PROA_WFMT_Q4_1;
}
/* Those whose codes are indices into a table of 16 numbers. */
static inline bool proa_wfmt_has_table(proa_wfmt format)
{
    return format == PROA_WFMT_MXFP4 || format == PROA_WFMT_IQ4_NL;
}

/* Weights of fewer bits than f16: made at load by --quant, or stored so in the checkpoint. */
#ifdef __cplusplus
constexpr
#endif
    static inline bool
    proa_wfmt_is_quantised(proa_wfmt format)
{
    return format >= PROA_WFMT_I8;
}

#endif
