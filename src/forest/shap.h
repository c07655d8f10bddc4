/* SPDX-License-Identifier: Apache-2.0
 * shap.h - SHAP values: how much each feature of a row moved its margin away from the mean.
 * Owner:   proa_shap_new/free; it borrows the forest, which must outlive it.
 * Threads: does not change once it is made.
 * Way in:  proa_shap_values. After Lundberg, Erion and Lee, "Consistent Individualized Feature Attribution for Tree
 *          Ensembles" (2018), algorithm 2: exact for the distribution that the trees' covers say, in O(leaves
 *          depth^2). */
#ifndef PROA_FOREST_SHAP_H
#define PROA_FOREST_SHAP_H

#include "base/thread.h"
#include "forest/forest.h"

#define PROA_SHAP_DEPTH_MAX                                                                                  \
    32 /* trees are less deep: Triton's limit, beyond which its sums are not held for accurate */

typedef struct proa_shap proa_shap;

/* UNSUPPORTED: the file has no covers, or a tree is too deep. */
PROA_MUST_CHECK proa_status proa_shap_new(proa_shap **out, const proa_forest *forest, proa_err *err);
void proa_shap_free(proa_shap *shap); /* NULL is fine */

/* in[rows][features] to out[rows][outputs][features + 1]: the values, and last the mean. Their sum is the
 * row's margin (what proa_forest_predict_plain says with `raw`). With a pool, rows are split over its
 * threads. */
void proa_shap_values(const proa_shap *shap, const float *in, int64_t rows, float *out, proa_pool *pool);

#endif
