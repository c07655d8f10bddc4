/* SPDX-License-Identifier: Apache-2.0
 * lora_stack.h - layout of the second copy of the adapters, which is stored after a matrix W [N,K] in W's own memory
 *                (op lora_stack).
 *   16 bits  as described in op_lora.h.
 *   FP8      A and B are e4m3 too. A has one scale per row, as W has. W's own scales follow W, so A begins some rows
 *            later (proa_lora_stack_gap); the product's outputs of the rows between are not used. The scales of all
 *            rows of the product, including a second copy of W's, follow A. Each panel of B of a slot has one scale,
 *            which is multiplied into the adapter's scale at the end of the panel.
 * Way in: proa_lora_stack_of. */
#ifndef PROA_KERNELS_LORA_STACK_H
#define PROA_KERNELS_LORA_STACK_H

#include "kernels/coded.h"
#include "kernels/op_lora.h"

typedef struct proa_lora_stack {
    int64_t rows;                      /* of the product: those of W, the gap, and those of A from a_row on */
    int64_t a_row, row_bytes;          /* A: [slot][pieces * rank] rows */
    int64_t scales;                    /* FP8: offset in bytes of f32 [rows] */
    int64_t b;                         /* offset of the panels of B */
    int64_t panel_bytes, panel_scales; /* size of a panel; offset in it of the scale of each slot */
    int64_t end;                       /* upper bound of the bytes of W and everything after it */
    int32_t number_bytes;              /* size of an element of A and B */
    int32_t swap;                      /* rank j of B of slot s is at row j ^ (s & swap) */
} proa_lora_stack;

/* Whether adapters can be stored after a matrix of this format and size. */
static inline bool proa_lora_stack_takes(const proa_weight *w)
{
    bool format = w->format == PROA_WFMT_F16 || w->format == PROA_WFMT_BF16 || w->format == PROA_WFMT_FP8;
    return format && !w->experts && w->K % 8 == 0;
}

/* FP8: rows between the last one of W and A. They have room for W's scales, and A begins at a multiple of 16 rows. */
static inline int64_t proa_lora_stack_gap(int64_t N, int64_t K)
{
    proa_coded_rows own = proa_coded_rows_of(N, K);
    return ((own.bytes + own.row_bytes - 1) / own.row_bytes + 15) / 16 * 16 - N;
}

static inline proa_lora_stack proa_lora_stack_of_fp8(const proa_lora *l, const proa_weight *w)
{
    proa_lora_stack s = {.number_bytes = 1, .swap = 7};
    int64_t panels_max = w->N / PROA_LORA_PANEL + l->pieces;
    s.a_row = w->N + proa_lora_stack_gap(w->N, w->K);
    s.rows = s.a_row + (int64_t)l->slots * l->pieces * l->rank;
    s.row_bytes = proa_coded_rows_of(w->N, w->K).row_bytes;
    s.scales = (s.rows * s.row_bytes + 127) / 128 * 128;
    s.b = s.scales + (s.rows * (int64_t)sizeof(float) + 127) / 128 * 128;
    s.panel_scales = (int64_t)l->slots * l->rank * PROA_LORA_PANEL;
    s.panel_bytes = (s.panel_scales + l->slots * (int64_t)sizeof(float) + 15) / 16 * 16;
    s.end = s.b + panels_max * s.panel_bytes;
    return s;
}

static inline proa_lora_stack proa_lora_stack_of(const proa_lora *l, const proa_weight *w)
{
    if (w->format == PROA_WFMT_FP8) return proa_lora_stack_of_fp8(l, w);
    proa_lora_stack s = {.number_bytes = 2, .swap = proa_lora_stack_row(0, -1)};
    s.a_row = w->N, s.rows = w->N + (int64_t)l->slots * l->pieces * l->rank, s.row_bytes = w->K * 2;
    s.b = proa_lora_stack_b(l, w), s.end = proa_lora_stack_end(l, w);
    s.panel_scales = proa_lora_stack_scale(l), s.panel_bytes = proa_lora_stack_panel(l);
    return s;
}

#endif
