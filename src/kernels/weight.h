/* SPDX-License-Identifier: Apache-2.0
 * weight.h - a weight matrix as the kernels read it: packed once at load.
 * Owner:   whoever owns `data` (the model's weight buffer). The table that packed it must be the one that reads it. */
#ifndef PROA_KERNELS_WEIGHT_H
#define PROA_KERNELS_WEIGHT_H

#include "tensor/view.h"

/* enum, name, what it does with a row x[K] and a weight row w[K] */
#define PROA_WFMT_LIST(X)                                                                                    \
    X(F32, "f32")   /* f32 weights */                                                                        \
    X(BF16, "bf16") /* bf16 weights widened exactly, f32 activations: equals F32 on a bf16 checkpoint */     \
    X(F16, "f16")   /* f16 weights widened exactly, f32 activations */                                       \
    X(BF16DOT, "bf16dot") /* bf16 weights, activations rounded to bf16, products summed in f32 */            \
    X(I8, "int8")         /* int8 rows with one f32 scale each, activations quantised per row as they come */

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
 * of w a column of NaN. K <= PROA_I8_INPUTS_MAX, so that the integer fits. All tables agree bit for bit. */
#define PROA_I8_INPUTS_MAX 131072

typedef struct proa_weight {
    proa_wfmt format;
    int64_t N, K;  /* outputs, inputs: y[T,N] = x[T,K] W^T */
    void *data;    /* packed; NULL: no weight */
    int64_t bytes; /* of data, as pack_bytes says */
} proa_weight;

const char *proa_wfmt_name(proa_wfmt format);

#endif
