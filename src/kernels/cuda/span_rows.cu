/* SPDX-License-Identifier: Apache-2.0
 * span_rows.cu - operations on the rows of a sequence: the rows around each row side by side, which a convolution over
 * rows multiplies; the mean of all rows; sums of blocks of rows; and rows of mask tokens as zeros. */
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

static void cuda_unfold(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans, int64_t width)
{
    gpu *g = gpu_flushed(c, y);
    int rows = spans->rows_max < ROWS_MAX ? spans->rows_max : ROWS_MAX;
    if (spans->count == 0 || rows < 1) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        gpu_launch(g, "unfold", unfold_kernel<T>, dim3((unsigned)spans->count, (unsigned)rows), THREADS, 0,
                   (T *)y.data, y.stride[0], (const T *)x.data, x.stride[0], spans->span, (int)x.shape[1],
                   (int)width);
    });
}

/* Grid: span, row. Each block counts the rows of its span that are kept. */
template <typename Y>
__global__ void drop_masked_kernel(Y *y, int64_t y_row, const int32_t *ids, const proa_span *spans, int d,
                                   int32_t mask, float keep)
{
    gpu_wait();
    proa_span span = spans[blockIdx.x];
    __shared__ int kept;
    if (threadIdx.x == 0) kept = 0;
    __syncthreads();
    int mine = 0;
    for (int i = threadIdx.x; i < span.rows; i += blockDim.x) mine += ids[span.row + i] != mask;
    if (mine) atomicAdd(&kept, mine);
    __syncthreads();
    for (int i = blockIdx.y; i < span.rows; i += gridDim.y) {
        Y *row = y + (span.row + i) * y_row;
        bool masked = ids[span.row + i] == mask;
        float factor = masked ? 0.0f : keep * (float)span.rows / (float)kept;
        for (int k = threadIdx.x; k < d; k += blockDim.x)
            row[k] = gpu_saturate<Y>(masked ? 0.0f : factor * gpu_to_f32(row[k]));
    }
}

static void drop_masked(proa_ctx *c, proa_view y, const int32_t *ids, const proa_spans *spans, int32_t mask,
                        float keep)
{
    gpu *g = gpu_flushed(c, y);
    int rows = spans->rows_max < ROWS_MAX ? spans->rows_max : ROWS_MAX;
    if (spans->count == 0 || rows < 1) return;
    gpu_by_type(y.dtype, [&](auto type) {
        using Y = decltype(type);
        gpu_launch(g, "drop_masked", drop_masked_kernel<Y>, dim3((unsigned)spans->count, (unsigned)rows),
                   THREADS, 0, (Y *)y.data, y.stride[0], ids, spans->span, (int)y.shape[1], mask, keep);
    });
}

/* Grid: span, THREADS columns. */
template <typename Y, typename X>
__global__ void span_mean_kernel(Y *y, int64_t y_row, const X *x, int64_t x_row, const proa_span *spans, int d)
{
    gpu_wait();
    proa_span span = spans[blockIdx.x];
    int k = blockIdx.y * THREADS + threadIdx.x;
    if (k >= d || span.rows < 1) return;
    float sum = 0.0f;
    for (int i = 0; i < span.rows; i++) sum += gpu_to_f32(x[(span.row + i) * x_row + k]);
    y[span.row * y_row + k] = gpu_saturate<Y>(sum / (float)span.rows);
}

static void span_mean(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans)
{
    gpu *g = gpu_flushed(c, y);
    int d = (int)x.shape[1];
    if (spans->count == 0) return;
    gpu_by_type(y.dtype, [&](auto to) {
        gpu_by_type(x.dtype, [&](auto from) {
            using Y = decltype(to);
            using X = decltype(from);
            gpu_launch(g, "span_mean", span_mean_kernel<Y, X>,
                       dim3((unsigned)spans->count, (unsigned)((d + THREADS - 1) / THREADS)), THREADS, 0,
                       (Y *)y.data, y.stride[0], (const X *)x.data, x.stride[0], spans->span, d);
        });
    });
}

/* Grid: span, row of y, THREADS columns. */
template <typename Y, typename X>
__global__ void block_sums_kernel(Y *y, int64_t y_row, const X *x, int64_t x_row, const proa_span *spans,
                                  int d, int block)
{
    gpu_wait();
    proa_span span = spans[blockIdx.x];
    int k = blockIdx.z * THREADS + threadIdx.x, first = span.row / block, blocks = span.rows / block;
    int count = (span.row + span.rows) / block - first;
    for (int b = blockIdx.y; b < count && k < d; b += gridDim.y) {
        int begin = b < blocks ? b * block : span.rows, end = b < blocks - 1 ? begin + block : span.rows;
        float sum = 0.0f;
        for (int i = begin; i < end; i++) sum += gpu_to_f32(x[(int64_t)(span.row + i) * x_row + k]);
        y[(int64_t)(first + b) * y_row + k] = gpu_saturate<Y>(sum);
    }
}

static void block_sums(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans, int64_t block)
{
    gpu *g = gpu_flushed(c, y);
    int d = (int)x.shape[1];
    int64_t most = spans->rows_max / block + 1, rows = most < ROWS_MAX ? most : (int64_t)ROWS_MAX;
    if (spans->count == 0 || spans->rows_max < 1) return;
    gpu_by_type(y.dtype, [&](auto to) {
        gpu_by_type(x.dtype, [&](auto from) {
            using Y = decltype(to);
            using X = decltype(from);
            gpu_launch(g, "block_sums", block_sums_kernel<Y, X>,
                       dim3((unsigned)spans->count, (unsigned)rows, (unsigned)((d + THREADS - 1) / THREADS)),
                       THREADS, 0, (Y *)y.data, y.stride[0], (const X *)x.data, x.stride[0], spans->span, d,
                       (int)block);
        });
    });
}

void gpu_fill_span_rows(proa_ops *ops)
{
    ops->unfold = cuda_unfold, ops->span_mean = span_mean, ops->drop_masked = drop_masked;
    ops->block_sums = block_sums;
}
