/* SPDX-License-Identifier: Apache-2.0
 * packed.h - a forest laid out for speed: nodes of 8 bytes, breadth first, walked by many rows or many trees at once.
 * Owner:   proa_packed_new/free; it borrows the forest, which must outlive it.
 * Threads: does not change once it is made: any number may predict with it, each with a pool of its own or none.
 * Way in:  proa_packed_predict. */
#ifndef PROA_FOREST_PACKED_H
#define PROA_FOREST_PACKED_H

#include "base/cpu.h"
#include "base/thread.h"
#include "forest/forest.h"

typedef struct proa_packed proa_packed;

/* NO_MEMORY: there is no room for it. */
PROA_MUST_CHECK proa_status proa_packed_new(proa_packed **out, const proa_forest *forest, proa_err *err);
void proa_packed_free(proa_packed *packed); /* NULL is fine */

/* in[rows][features] to out[rows][outputs], bit for bit as proa_forest_predict_plain. `raw` omits the
 * transform. With a pool, rows are split over its threads if there are enough of them; NULL: only the
 * caller's thread. */
void proa_packed_predict(const proa_packed *packed, const float *in, int64_t rows, bool raw, float *out,
                         proa_pool *pool);

/* Node visits for one row: its approximate cost. */
int64_t proa_packed_steps(const proa_packed *packed);
/* Trees with a split that packed nodes cannot express (x == threshold, zeros that are missing,
 * too many features for that number of nodes). They are walked like the reference. */
int64_t proa_packed_slow_trees(const proa_packed *packed);
/* For tests: use the loops of another level than proa_isa_choose's, which the CPU must have. */
void proa_packed_use(proa_packed *packed, proa_isa level);

#endif
