/* SPDX-License-Identifier: Apache-2.0
 * op_experts.h - a mixture of experts: how a router chooses experts (op `route`), and the experts of a layer (op
 *          `experts`).
 * Shapes:  T rows (tokens), E experts, k of them chosen for each row, F the inner width of an expert.
 * Owner:   the structs own nothing; the model owns weights, biases and corrections.
 * Threads: plain values. Way in: ops.def, route and experts. */
#ifndef PROA_KERNELS_OP_EXPERTS_H
#define PROA_KERNELS_OP_EXPERTS_H

#include "kernels/op_linear.h"
#include "kernels/weight.h"

typedef enum proa_router_kind {
    PROA_ROUTER_SOFTMAX, /* p = softmax(scores) over all experts (Shazeer et al. 2017) */
    PROA_ROUTER_SIGMOID, /* p = sigmoid(scores) (DeepSeek-V3, 2024) */
    /* PhiMoE (Liu, Gao, Chen 2023) chooses in k rounds. In each, the expert with the largest score m among those not
     * chosen yet is taken. Its weight is its softmax over the experts whose score s is close to it:
     * (m - s) / max(|s|, m) <= 2 * jitter. `correction`, `scales`, groups and `renormalise` are not used. */
    PROA_ROUTER_SPARSEMIXER
} proa_router_kind;

/* How the experts of a row are chosen from its scores [E], and with which weights. The k experts with the largest
 * p + correction are chosen; their weights are their p, renormalised and scaled. All zero is softmax without either. */
typedef struct proa_router {
    proa_router_kind kind;
    int32_t chosen;          /* k */
    bool renormalise;        /* divide the weights by their sum + 1e-20 */
    float scale;             /* then multiply them by this; 0 means 1 */
    const float *scales;     /* [E], and each by that of its expert (Gemma 4); NULL: not */
    float jitter;            /* SPARSEMIXER only */
    const float *correction; /* [E], added to p for the choice but not in the weights (DeepSeek-V3); NULL: none */
    /* Group-limited routing (DeepSeek-V2): experts are in `groups` groups of E / groups neighbours. Only experts of the
     * chosen_groups best groups can be chosen. The score of a group is the sum of its group_best (1 or 2) largest
     * p + correction. groups 0: there are no groups. */
    int32_t groups, chosen_groups, group_best;
} proa_router;

/* The experts of a layer. With v = x up^T + up_bias (2F numbers if gated: gate g = v[f], u = v[F+f]; with scales_inputs
 * v = weight * (x up^T) + up_bias):
 *   h[f] = act(min(g, limit)) * (max(-limit, min(u, limit)) + offset)   if gated; limit 0: no clamp
 *   h[f] = act(v[f])                                                    else
 *   out  = h down^T + down_bias */
typedef struct proa_experts {
    /* up: [experts][2F,K], the F rows of the gate first (not gated: [F,K]). down: [experts][N,F]. */
    const proa_weight *up, *down;
    const float *up_bias, *down_bias; /* [experts][2F] and [experts][N]; NULL: none */
    proa_act act;
    bool gated;
    float limit, offset; /* gpt-oss: 7 and 1 with QUICK_GELU; other models: 0 */
    bool scales_inputs; /* the weights of a row multiply what its experts read, not what they make (Llama 4) */
    const float *bias;  /* [N], added once to each row (NomicBERT); NULL: none */
    proa_view residual; /* [T,N]; rank 0: none. It may be y itself */
    /* Expert parallelism: the weights are those of experts [first, first + up->experts) of `all`. Experts of other
     * ranks add nothing here. all 0: the weights are those of all experts. */
    int32_t first, all;
} proa_experts;

/* The index into the weights of expert `id`; up->experts: another rank has that expert. */
static inline int64_t proa_expert_place(const proa_experts *e, int32_t id)
{
    int64_t place = (int64_t)id - e->first;
    return e->all && (place < 0 || place > e->up->experts) ? e->up->experts : place;
}

#endif
