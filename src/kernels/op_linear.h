/* SPDX-License-Identifier: Apache-2.0
 * op_linear.h - the activations, and what the op `linear` does with its sums before it writes them (its epilogue).
 * Owner:   an epilogue owns nothing; what it points to must live until the op has run (on a device: until its
 *          kernel has). Threads: plain values. Way in: ops.def, linear. */
#ifndef PROA_KERNELS_OP_LINEAR_H
#define PROA_KERNELS_OP_LINEAR_H

#include "base/str.h"
#include "tensor/view.h"

/* enum, name in config.json files (there may be several, see proa_act_find), formula */
#define PROA_ACT_LIST(X)                                                                                     \
    X(NONE, "none")                                                                                          \
    X(RELU, "relu")                                                                                          \
    X(GELU, "gelu")             /* 0.5 x (1 + erf(x / sqrt 2)) */                                            \
    X(GELU_TANH, "gelu_new")    /* 0.5 x (1 + tanh(0.7978845608 (x + 0.044715 x^3))) */                      \
    X(QUICK_GELU, "quick_gelu") /* x sigmoid(1.702 x) */                                                     \
    X(SILU, "silu")             /* x sigmoid(x) */                                                           \
    X(TANH, "tanh")                                                                                          \
    X(RELU2, "relu2") /* max(x, 0)^2 */

typedef enum proa_act {
#define PROA_ACT_ENUM(name, text) PROA_ACT_##name,
    PROA_ACT_LIST(PROA_ACT_ENUM)
#undef PROA_ACT_ENUM
        PROA_ACT_COUNT
} proa_act;

/* The name in the list; a static string. */
const char *proa_act_name(proa_act act);
/* Finds an activation by the name that transformers has for it: relu, relu2, gelu, gelu_new, gelu_pytorch_tanh,
 * gelu_fast, quick_gelu, silu, swish, tanh or linear. False: the name is unknown, and *act is left alone. */
bool proa_act_find(proa_str name, proa_act *act);

/* The epilogue of y = act(alpha * x W^T + bias) + residual, x [T,K], W [N,K]. All zero: y = x W^T. */
typedef struct proa_epilogue {
    float alpha; /* 0 means 1 */
    proa_act act;
    const float *bias;  /* [N]; NULL: none */
    proa_view residual; /* [T,N]; rank 0: none. It may be y itself */
    /* A gated unit (Shazeer 2020): N = 2F, W holds the F rows of the gate and then the F rows of `up`. With
     * v = alpha * x W^T + bias [T,2F] the result is y[t,f] = act(v[t,f]) * v[t,F+f], y [T,F]. residual is rank 0. */
    bool gated;
    /* Needed if gated: [T,2F] of the type of y, which overlaps no other operand. Its contents are undefined after the
     * op. */
    proa_view workspace;
    /* A hint: y is read by the next op alone, which is a linear with y as its x. A device may then store y in the
     * type in which that product reads it. */
    bool feeds_product;
} proa_epilogue;

#endif
