/* SPDX-License-Identifier: Apache-2.0
 * text.c - the reference of the data op text_features. */
#include "kernels/data_ops.h"

void proa_text_features_reference(proa_ctx *c, float *out, const char *bytes, const proa_text_row *rows,
                                  int64_t count, char *scratch, const proa_text_plan *plan)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < count; i++)
        proa_text_make_row(plan, bytes, &rows[i], scratch, out + i * plan->columns);
}
