/* SPDX-License-Identifier: Apache-2.0
 * gptq.h - rounds a matrix to codes so that its products with the calibration's inputs change least.
 * Method:  with H = X^T X over the inputs X, a row w that is rounded to v changes its products by (v - w)^T H (v - w).
 *          1. Error feedback, GPTQ (Frantar et al. 2022): inputs are rounded one after the other, and what a rounding
 *             changes in a product is made up for by the inputs that are not rounded yet. Groups have their scales
 *             before the first input is rounded, so that those with the largest activations can come first.
 *          2. Coordinate descent over codes (QuantEase, Behdin et al. 2023) and over scales, in turns.
 * Owner:   the caller's buffers. Threads: shared among those of the pool.
 * Way in:  proa_gptq_factor once for each Hessian, then proa_gptq_round for each matrix that reads these inputs. */
#ifndef PROA_CONVERT_CALIBRATE_GPTQ_H
#define PROA_CONVERT_CALIBRATE_GPTQ_H

#include "base/thread.h"
#include "convert/calibrate/codes.h"

/* What the inputs say of a matrix with K of them. */
typedef struct proa_gptq_inputs {
    int64_t K;
    int32_t *order; /* [K] the inputs as they are rounded */
    float *weight;  /* [K] the diagonal of H: what an input's squared error counts in the choice of a scale */
    float *factor; /* [K][K] upper triangular, in that order: U^T U is the inverse of H; NULL: no error feedback */
    float *hessian; /* [K][K] H in the order of the inputs; NULL with factor */
} proa_gptq_inputs;

/* hessian: [K][K] X^T X, sums over all rows of inputs. The result owns it. 1 % of the mean of the diagonal is added to
 * the diagonal, so that inputs that were always 0 are rounded too. If all were 0 there is no feedback. */
void proa_gptq_factor(proa_gptq_inputs *out, float *hessian, int64_t K, proa_pool *pool);
/* Inputs of which nothing is known: plain rounding. */
void proa_gptq_unknown(proa_gptq_inputs *out, int64_t K);
void proa_gptq_release(proa_gptq_inputs *inputs);

/* Fills m's codes, scales and zeros. sweeps: of coordinate descent at most; 0: error feedback only. */
void proa_gptq_round(const proa_codes *m, const proa_gptq_inputs *inputs, int sweeps, proa_pool *pool);
/* The sum over all rows of (v - w)^T H (v - w), which is what rounding makes small. */
double proa_gptq_error(const proa_codes *m, const proa_gptq_inputs *inputs);

#endif
