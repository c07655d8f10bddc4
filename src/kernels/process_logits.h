/* SPDX-License-Identifier: Apache-2.0
 * process_logits.h - what penalties and masks do to one logit, compiled for the host and for CUDA. The arithmetic is
 * that of engine/decode/logits_processor.c; every operation is rounded once.
 * Threads: any. */
#ifndef PROA_KERNELS_PROCESS_LOGITS_H
#define PROA_KERNELS_PROCESS_LOGITS_H

#include "kernels/ops.h"
#include "base/compiler.h"

/* x * y, rounded once: exact in double, so no compiler can fuse it with a sum. */
static inline PROA_HOST_DEVICE float proa_mul_rounded(float x, float y)
{
    return (float)((double)x * (double)y);
}

/* The penalties of a token of the history that occurs `count` times in the part that frequency and presence count:
 * x / repetition if x >= 0, else x * repetition (Keskar et al. 2019); then x - frequency * count - presence. */
static inline PROA_HOST_DEVICE float proa_logits_penalise(const proa_logits_row *e, float x, int32_t count)
{
    if (e->repetition > 0) x = x < 0 ? proa_mul_rounded(x, e->repetition) : x / e->repetition;
    if (count == 0) return x;
    float often = proa_mul_rounded(e->frequency, (float)count);
    return e->presence_first ? x - e->presence - often : x - often - e->presence;
}

/* The column that a mask entry sets to -infinity; -1: none, because the last token is another. */
static inline PROA_HOST_DEVICE int32_t proa_logits_masked_id(const proa_logits_entry *entry, int32_t last)
{
    if (entry->number >= 0 && entry->number != last) return -1;
    return entry->id == PROA_LOGITS_LAST_TOKEN ? last : entry->id;
}

#endif
