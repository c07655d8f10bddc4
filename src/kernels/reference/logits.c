/* SPDX-License-Identifier: Apache-2.0
 * logits.c - log_sum_exp and top_k of rows of logits. */
#include "kernels/reference/reference.h"

#include "kernels/reference/view_at.h"
#include <math.h>

void proa_log_sum_exp_reference(proa_ctx *c, float *out, proa_view x)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++) {
        double largest = (double)-INFINITY, sum = 0;
        for (int64_t j = 0; j < x.shape[1]; j++) {
            double v = (double)*at_row(x, t, j);
            if (v > largest || isnan(v)) largest = v;
            if (isnan(v)) break;
        }
        for (int64_t j = 0; j < x.shape[1]; j++) sum += exp((double)*at_row(x, t, j) - largest);
        out[t] = (float)(isinf(largest) ? largest : largest + log(sum));
    }
}

/* Whether (a, at i) stands before (b, at j) in top_k's total order. */
static bool ranks_before(float a, int64_t i, float b, int64_t j)
{
    bool equal = a == b || (isnan(a) && isnan(b));
    if (equal) return i < j;
    return isnan(b) || a > b; /* a is NaN and b is not: the comparison is false, as it must be */
}

void proa_top_k_reference(proa_ctx *c, proa_view values, int32_t *ids, proa_view x, int64_t k)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t r = 0; r < k; r++) {
            int64_t best = -1, previous = r ? ids[t * k + r - 1] : -1;
            for (int64_t j = 0; j < x.shape[1]; j++) {
                if (previous >= 0 && !ranks_before(*at_row(x, t, previous), previous, *at_row(x, t, j), j))
                    continue;
                if (best < 0 || ranks_before(*at_row(x, t, j), j, *at_row(x, t, best), best)) best = j;
            }
            ids[t * k + r] = (int32_t)best;
            *at_row(values, t, r) = *at_row(x, t, best);
        }
}
