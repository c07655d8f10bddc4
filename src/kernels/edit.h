/* SPDX-License-Identifier: Apache-2.0
 * edit.h - what penalties do to one logit: for the tables' edit, with the arithmetic of engine/logits.c, each operation rounded
 *          once.
 * Threads: any. */
#ifndef PROA_KERNELS_EDIT_H
#define PROA_KERNELS_EDIT_H

#include "kernels/reorder_kv.h"
#include "kernels/ops.h"

/* x * y, rounded once: exact before, so that no compiler makes one operation of it and a sum. */
static inline PROA_ANYWHERE float proa_edit_times(float x, float y)
{
    return (float)((double)x * (double)y);
}

/* A token of the history, which stands `count` times where frequency and presence count it. */
static inline PROA_ANYWHERE float proa_edit_mark(const proa_edits *e, float x, int32_t count)
{
    if (e->repetition > 0) x = x < 0 ? proa_edit_times(x, e->repetition) : x / e->repetition;
    if (count == 0) return x;
    float often = proa_edit_times(e->frequency, (float)count);
    return e->presence_first ? x - e->presence - often : x - often - e->presence;
}

/* The column that a ban of this pair strikes; -1: none, as the last token is another. */
static inline PROA_ANYWHERE int32_t proa_edit_banned(const proa_edit *pair, int32_t last)
{
    if (pair->number >= 0 && pair->number != last) return -1;
    return pair->id == PROA_EDIT_LAST ? last : pair->id;
}

#endif
