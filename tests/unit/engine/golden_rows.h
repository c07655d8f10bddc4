/* SPDX-License-Identifier: Apache-2.0
 * golden_rows.h - ids and rows of a golden.json, compared with the engine's: for test_golden_arch and test_adapters. */
#ifndef PROA_TESTS_GOLDEN_ROWS_H
#define PROA_TESTS_GOLDEN_ROWS_H

#include "engine_test.h"

#define GOLDEN_TOLERANCE 1e-4 /* of the largest value of a row */

/* The caller frees them. */
static inline int32_t *golden_read_ids(const proa_json *list, int64_t *count)
{
    *count = proa_json_len(list);
    int32_t *ids = malloc((size_t)(*count ? *count : 1) * sizeof *ids);
    for (int64_t i = 0; i < *count; i++) ids[i] = (int32_t)proa_json_int(proa_json_at(list, i));
    return ids;
}

static inline void golden_compare_row(const char *what, const float *have, const proa_json *want, int64_t columns)
{
    double largest = 0, worst = 0;
    assert_int_equal(proa_json_len(want), columns);
    for (int64_t i = 0; i < columns; i++) {
        double w = proa_json_double(proa_json_at(want, i));
        largest = fmax(largest, fabs(w));
        worst = fmax(worst, fabs(w - (double)have[i]));
    }
    if (!(worst <= GOLDEN_TOLERANCE * largest))
        fail_msg("%s: differs by %.3g, %.3g of the largest", what, worst, worst / largest);
}
#endif
