/* SPDX-License-Identifier: Apache-2.0
 * elements.c - the reference of the data ops map_elements, softmax_elements, copy_rows and pool_rows. */
#include "kernels/data_ops.h"

void proa_map_elements_reference(proa_ctx *c, const proa_elements *e)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < e->count; i++) proa_element_map(e, i);
}

void proa_softmax_elements_reference(proa_ctx *c, const proa_elements *e, int64_t width)
{
    PROA_UNUSED(c);
    for (int64_t row = 0; row < e->count / width; row++) proa_element_softmax(e, row, width);
}

void proa_copy_rows_reference(proa_ctx *c, char *to, int64_t to_row, const char *from, int64_t from_row,
                              int64_t bytes, int64_t rows)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < rows; i++) memcpy(to + i * to_row, from + i * from_row, (size_t)bytes);
}

static void make_unit(float *vector, int64_t width)
{
    double lane[PROA_POOL_LANES];
    for (int64_t i = 0; i < PROA_POOL_LANES; i++) lane[i] = proa_pool_lane(vector, width, i);
    for (int64_t n = PROA_POOL_LANES / 2; n > 0; n /= 2)
        for (int64_t i = 0; i < n; i++) lane[i] += lane[i + n];
    for (int64_t k = 0; k < width; k++) vector[k] = proa_pool_unit(vector[k], lane[0]);
}

void proa_pool_rows_reference(proa_ctx *c, float *out, const float *x, const int64_t *first, int64_t count,
                              int64_t width, proa_pool_mode mode, bool unit)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < count; i++) {
        const float *rows = x + first[i] * width;
        for (int64_t k = 0; k < width; k++)
            out[i * width + k] = proa_pool_column(rows + k, first[i + 1] - first[i], width, mode);
        if (unit) make_unit(out + i * width, width);
    }
}
