/* SPDX-License-Identifier: Apache-2.0
 * unfold.cu - the rows around each row of a sequence, side by side: what a convolution over rows multiplies. */
#include "kernels/cuda/runtime/cuda.h"

enum { THREADS = 256, ROWS_MAX = 4096 /* blocks of a span */ };

/* Grid: span, row; y[t][k * width + s] = x[t + s - (width - 1) / 2][k]. */
template <typename T>
__global__ void unfold_kernel(T *y, int64_t y_row, const T *x, int64_t x_row, const proa_span *spans, int d,
                              int width)
{
    gpu_wait();
    proa_span span = spans[blockIdx.x];
    for (int i = blockIdx.y; i < span.rows; i += gridDim.y) {
        T *to = y + (span.row + i) * y_row;
        for (int n = threadIdx.x; n < d * width; n += blockDim.x) {
            int from = i + n % width - (width - 1) / 2;
            bool there = from >= 0 && from < span.rows;
            to[n] = there ? x[(span.row + from) * x_row + n / width] : gpu_from_f32<T>(0.0f);
        }
    }
}

static void unfold(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans, int64_t width)
{
    gpu *g = flushed(c, y);
    int rows = spans->rows_max < ROWS_MAX ? spans->rows_max : ROWS_MAX;
    if (spans->count == 0 || rows < 1) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        gpu_launch(g, "unfold", unfold_kernel<T>, dim3((unsigned)spans->count, (unsigned)rows), THREADS, 0,
                   (T *)y.data, y.stride[0], (const T *)x.data, x.stride[0], spans->span, (int)x.shape[1],
                   (int)width);
    });
}

void gpu_fill_unfold(proa_ops *ops)
{
    ops->unfold = unfold;
}
