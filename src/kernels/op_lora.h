/* SPDX-License-Identifier: Apache-2.0
 * op_lora.h - low-rank adapters (LoRA, Hu et al. 2021) of many requests in one batch: which rows use which adapter, and
 *          where A and B of a matrix are in an adapter's memory (ops `lora`, `linear_lora` and `lora_stack`).
 * Owner:   the structs own nothing; model/lora owns the memory of adapters, and the step its rows.
 * Threads: plain values. Way in: ops.def, lora. */
#ifndef PROA_KERNELS_OP_LORA_H
#define PROA_KERNELS_OP_LORA_H

#include "kernels/weight.h"

#define PROA_LORA_ROWS       16 /* rows of a segment, at most */
#define PROA_LORA_PANEL      16 /* columns of B that are stored side by side */
#define PROA_LORA_PIECES_MAX 4

/* The rows order[first], order[first + 1], ... of proa_lora_rows, which use the adapter whose memory begins at `base`.
 * A segment may be empty. */
typedef struct proa_lora_segment {
    const char *base;
    int32_t first, rows; /* rows: 0 to PROA_LORA_ROWS */
} proa_lora_segment;

/* The rows of a step, grouped by adapter. Rows without an adapter are in no segment. */
typedef struct proa_lora_rows {
    const int32_t *order; /* row numbers */
    const proa_lora_segment *segment;
    int64_t count;       /* of segments */
    const int32_t *slot; /* [T] adapter slot of each row, -1: none. Only linear_lora reads it; NULL: not known */
} proa_lora_rows;

/* How an adapter changes one piece of a matrix. */
typedef struct proa_lora_use {
    float scale;
    int32_t rank; /* 0: the adapter does not change this piece */
} proa_lora_use;

/* The adapters of one matrix W [N,K]. The columns of y are in pieces, each with an A and a B of its own: q, k and v of
 * a fused matrix, or gate and up. The memory of each adapter has, at these offsets in bytes from its base:
 *   use  proa_lora_use [pieces]
 *   a    A_p[j,k] at [k][p * rank + j], `dtype`, for K rounded up to 16
 *   b    B_p[n,j] in panels of PROA_LORA_PANEL columns of y: [panel][j][column], so a panel has
 *        [rank][PROA_LORA_PANEL] numbers. The panels of piece 0 come first; each piece begins a panel; padding is 0.
 * rank is a multiple of 16 and the same for all adapters and pieces. Everything is aligned to 64 bytes. */
typedef struct proa_lora {
    int64_t use, a, b;
    proa_dtype dtype; /* f32, f16 or bf16 */
    int32_t rank, pieces;
    int64_t K;
    int64_t end[PROA_LORA_PIECES_MAX]; /* piece p has the columns [end[p - 1], end[p]) of y; piece 0 begins at 0 */
    float alpha;                       /* multiplies the scale of each adapter; 0 means 1 */
    bool set;   /* y is not read: all of it counts as 0, and the op writes what the adapters add */
    void *sums; /* linear_lora on a device: memory for f32 [T, N + slots * pieces * rank]; NULL: none */
    int32_t slots; /* linear_lora: adapter slots whose A and B are also stored behind W (proa_lora_stack_b); 0: none */
} proa_lora;

/* The first column of a piece. */
static inline int64_t proa_lora_first(const proa_lora *l, int32_t piece)
{
    return piece > 0 ? l->end[piece - 1] : 0;
}
/* Panels of a piece. */
static inline int64_t proa_lora_panels(const proa_lora *l, int32_t piece)
{
    return (l->end[piece] - proa_lora_first(l, piece) + PROA_LORA_PANEL - 1) / PROA_LORA_PANEL;
}
/* How the adapter of a segment changes each piece: [pieces]. */
static inline const proa_lora_use *proa_lora_use_of(const proa_lora *l, const proa_lora_segment *s)
{
    return (const proa_lora_use *)(const void *)(s->base + l->use);
}

/* A matrix W [N,K] of 16 bits (FP8: lora_stack.h), K a multiple of 8, may have a second copy of the adapters of `slots`
 * slots in its own memory, so that one product computes x W^T and x A^T of all slots (linear_lora):
 *   A   directly behind W, as if W had more rows: [slot][pieces * rank][K]
 *   B   from byte proa_lora_stack_b on, in panels of proa_lora_stack_panel bytes: [slot][rank][PROA_LORA_PANEL], where
 *       rank j is at row proa_lora_stack_row, so that neighbouring slots use different banks of shared memory; then,
 *       at byte proa_lora_stack_scale of the panel, the f32 scale of each slot for the panel's piece */
static inline int64_t proa_lora_stack_b(const proa_lora *l, const proa_weight *w)
{
    return ((w->N + (int64_t)l->slots * l->pieces * l->rank) * w->K * 2 + 127) / 128 * 128;
}
static inline int64_t proa_lora_stack_scale(const proa_lora *l)
{
    return (int64_t)l->slots * l->rank * PROA_LORA_PANEL * 2;
}
static inline int64_t proa_lora_stack_panel(const proa_lora *l)
{
    return (proa_lora_stack_scale(l) + l->slots * (int64_t)sizeof(float) + 15) / 16 * 16;
}
/* Bytes of W with all that is behind it, at most. */
static inline int64_t proa_lora_stack_end(const proa_lora *l, const proa_weight *w)
{
    int64_t panels_max = w->N / PROA_LORA_PANEL + l->pieces;
    return proa_lora_stack_b(l, w) + panels_max * proa_lora_stack_panel(l);
}
static inline int32_t proa_lora_stack_row(int32_t j, int32_t slot)
{
    return j ^ (slot & 3);
}

#endif
