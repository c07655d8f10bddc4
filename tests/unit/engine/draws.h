/* SPDX-License-Identifier: Apache-2.0
 * draws.h - whether numbers that were drawn look like their distribution. For tests of samplers. */
#ifndef PROA_TESTS_DRAWS_H
#define PROA_TESTS_DRAWS_H

#include <math.h>

/* Pearson's statistic against its 99.9 % point (Wilson and Hilferty 1931); cells that expect fewer than 5 are pooled.
 * What has no probability must not be seen. */
static inline void expect_distribution(const int *seen, const double *p, int n, int draws)
{
    double statistic = 0, pooled = 0, pooled_seen = 0;
    int cells = 0;
    for (int i = 0; i < n; i++) {
        double expected = p[i] * draws;
        if (p[i] <= 0) assert_int_equal(seen[i], 0);
        if (expected < 5) {
            pooled += expected;
            pooled_seen += seen[i];
            continue;
        }
        statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
        cells++;
    }
    if (pooled >= 5) {
        statistic += (pooled_seen - pooled) * (pooled_seen - pooled) / pooled;
        cells++;
    }
    if (cells < 2) return;
    double df = cells - 1, h = 2 / (9 * df), root = 1 - h + 3.0902 * sqrt(h);
    if (statistic > df * root * root * root)
        fail_msg("chi-square %g with %g degrees of freedom", statistic, df);
}

#endif
