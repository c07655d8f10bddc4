/* SPDX-License-Identifier: Apache-2.0
 * text.cu - the features of texts (text_rows.h): a thread a text. A batch waits for its longest text either way; blocks
 * are one warp, so that texts are spread over all SMs. */
#include "kernels/cuda/data/data.h"

enum { THREADS = 32 };

__global__ static void __launch_bounds__(THREADS)
    text_kernel(float *out, const char *bytes, const proa_text_row *rows, int64_t count, char *scratch,
                const __grid_constant__ proa_text_plan plan)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    gpu_wait();
    if (i >= count) return;
    const proa_text_row row = rows[i];
    proa_text_make_row(&plan, bytes, &row, scratch, out + i * plan.columns);
}

static void text_features_op(proa_ctx *c, float *out, const char *bytes, const proa_text_row *rows,
                             int64_t count, char *scratch, const proa_text_plan *plan)
{
    gpu_launch(gpu_flushed(c), "text_features", text_kernel, dim3((unsigned)((count + THREADS - 1) / THREADS)),
               dim3(THREADS), 0, out, bytes, rows, count, scratch, *plan);
}

void gpu_fill_text(proa_data_ops *ops)
{
    ops->text_features = text_features_op;
}
