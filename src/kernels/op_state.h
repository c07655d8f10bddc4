/* SPDX-License-Identifier: Apache-2.0
 * op_state.h - the arguments of layers with a recurrent state (ops `conv_state`, `gated_delta`,
 * `selective_scan`).
 * Shapes:  Hk heads of q and k, Hv of values; dk, dv numbers of a key and of a value.
 * Owner:   the structs own nothing. kv/state_slots.h owns the states.
 * Threads: plain values. Way in: ops.def, gated_delta. */
#ifndef PROA_KERNELS_OP_STATE_H
#define PROA_KERNELS_OP_STATE_H

#include "kernels/op_attention.h"
#include "kernels/op_linear.h"

/* What the sequences of a pass keep of one layer: the numbers of slot i (proa_span.state) begin at base + i * stride.
 * A span whose first row is at position 0 (context == rows) does not read its slot, so a slot need not be cleared. */
typedef struct proa_layer_state {
    float *base;
    int64_t stride; /* in numbers */
} proa_layer_state;

/* The state of one slot that is copied to another one, in all layers. */
typedef struct proa_state_copy {
    int64_t to, from;
} proa_state_copy;

/* A convolution of each column by itself. A slot has [taps - 1][d] numbers: the last rows, the newest one last. */
typedef struct proa_conv {
    const float *w;    /* [d][taps], the newest row last */
    const float *bias; /* [d]; NULL: none */
    int64_t taps;      /* 1 to PROA_CONV_WIDTH_MAX */
    proa_act act;
} proa_conv;

/* The gated delta rule. A slot has [Hv][dk][dv] numbers. */
typedef struct proa_delta {
    int64_t key_heads, value_heads; /* Hk, Hv; Hv is a multiple of Hk */
    int64_t key_dim, value_dim;     /* dk, dv, at most PROA_STATE_DIM_MAX */
    /* [Hv]: the logarithm of the decay (A_log), and what is added to a (dt_bias), by channel [Hv dk] */
    const float *rate, *bias;
    float beta_scale; /* of sigmoid(b): 1, or 2, so that eigenvalues may be negative */
    float floor; /* the least logarithm of a decay, which a sigmoid approaches; 0: none, it is a softplus */
    bool by_channel; /* each number of a key has a decay of its own (Kimi Delta Attention) */
} proa_delta;

/* Mamba's recurrence. A slot has [H][dk][dv] numbers. */
typedef struct proa_state_space {
    int64_t groups, heads;        /* G, H; H is a multiple of G */
    int64_t state_dim, value_dim; /* dk, dv, at most PROA_STATE_DIM_MAX */
    /* [H], by channel [H dv]: the logarithm of the decay (A_log), by channel [H dv][dk]; dt_bias; and D. For each head
     * there may be no bias: then each step is 1, without rates; and no skip. */
    const float *rate, *bias, *skip;
    float least, most; /* limits of a step (time_step_limit) */
    bool by_channel; /* Mamba-1: each column of a head has its own steps, and each number of a state its decay */
} proa_state_space;

/* Whether the rows of a span go on from a state. */
static inline bool proa_span_continues(const proa_span *span)
{
    return span->context > span->rows;
}

#endif
