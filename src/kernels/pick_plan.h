/* SPDX-License-Identifier: Apache-2.0
 * pick_plan.h - pick_keys on the CPU, for every instruction set; cpu/pick_page.h does the arithmetic.
 * Threads: rows are worked on in rounds, as many as the scratch has room for scores of; in a round the pages of all
 *          rows are spread over the pool, and then the rows.
 * Bits:    the score of a key is made the same way wherever its page is and whoever makes it. */
#ifndef PROA_KERNELS_PICK_PLAN_H
#define PROA_KERNELS_PICK_PLAN_H

#include "kernels/ops.h"

enum { PROA_PICK_HEADS = 4 /* queries that use a key while it is in a register */ };

/* score[j] = sum_h w[h] max(q_h . k_j, 0) for the keys of one page. q: [heads][pitch], padded with zeros to a multiple
 * of 16; heads is a multiple of PROA_PICK_HEADS, and w of those that are added is 0. */
typedef void proa_pick_page_fn(float score[PROA_PAGE_TOKENS], const float *q, int64_t pitch, const float *w,
                               int64_t heads, const void *k, proa_dtype dtype, int64_t dim);

void proa_pick_run(proa_ctx *c, int32_t *picked, proa_view q, proa_view w, const proa_kv *kv,
                   const proa_spans *spans, int64_t most, proa_pick_page_fn *page);

proa_pick_keys_fn proa_pick_keys_avx2, proa_pick_keys_avx512;

#endif
