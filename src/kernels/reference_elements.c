/* SPDX-License-Identifier: Apache-2.0
 * reference_elements.c - the reference of the data ops map_elements, softmax_elements and copy_rows. */
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
