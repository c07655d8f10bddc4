/* SPDX-License-Identifier: Apache-2.0
 * elements.cu - arithmetic on elements (elements.h): a thread an element; a thread a row for softmax, whose sum has the
 * order of the row; and copies of rows, in the largest pieces that all addresses allow. */
#include "kernels/cuda/data/data.h"

enum { THREADS = 256, BLOCKS_MAX = 4096 };

static dim3 blocks_for(int64_t count)
{
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX));
}

__device__ static inline int64_t first_of_thread()
{
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

__global__ static void __launch_bounds__(THREADS) map_kernel(const __grid_constant__ proa_elements e)
{
    gpu_wait();
    for (int64_t i = first_of_thread(); i < e.count; i += (int64_t)gridDim.x * THREADS)
        proa_element_map(&e, i);
}

__global__ static void __launch_bounds__(THREADS)
    softmax_kernel(const __grid_constant__ proa_elements e, int64_t width)
{
    gpu_wait();
    for (int64_t row = first_of_thread(); row < e.count / width; row += (int64_t)gridDim.x * THREADS)
        proa_element_softmax(&e, row, width);
}

/* Strides and `pieces` of a row in pieces of T. */
template <typename T>
__global__ static void __launch_bounds__(THREADS)
    copy_kernel(T *to, int64_t to_row, const T *from, int64_t from_row, int64_t pieces, int64_t rows)
{
    gpu_wait();
    for (int64_t i = first_of_thread(); i < pieces * rows; i += (int64_t)gridDim.x * THREADS)
        to[i / pieces * to_row + i % pieces] = from[i / pieces * from_row + i % pieces];
}

template <typename T>
static void launch_copy(gpu *g, char *to, int64_t to_row, const char *from, int64_t from_row, int64_t bytes,
                        int64_t rows)
{
    const int64_t size = sizeof(T);
    gpu_launch(g, "copy_rows", copy_kernel<T>, blocks_for(bytes / size * rows), dim3(THREADS), 0,
               reinterpret_cast<T *>(to), to_row / size, reinterpret_cast<const T *>(from), from_row / size,
               bytes / size, rows);
}

static void map_elements_op(proa_ctx *c, const proa_elements *e)
{
    gpu_launch(gpu_flushed(c), "map_elements", map_kernel, blocks_for(e->count), dim3(THREADS), 0, *e);
}

static void softmax_elements_op(proa_ctx *c, const proa_elements *e, int64_t width)
{
    gpu_launch(gpu_flushed(c), "softmax_elements", softmax_kernel, blocks_for(e->count / width),
               dim3(THREADS), 0, *e, width);
}

static void copy_rows_op(proa_ctx *c, char *to, int64_t to_row, const char *from, int64_t from_row,
                         int64_t bytes, int64_t rows)
{
    gpu *g = gpu_flushed(c);
    uint64_t any = (uint64_t)(uintptr_t)to | (uint64_t)(uintptr_t)from | (uint64_t)to_row |
                   (uint64_t)from_row | (uint64_t)bytes;
    if (any % 16 == 0) launch_copy<uint4>(g, to, to_row, from, from_row, bytes, rows);
    else if (any % 4 == 0) launch_copy<uint32_t>(g, to, to_row, from, from_row, bytes, rows);
    else launch_copy<uint8_t>(g, to, to_row, from, from_row, bytes, rows);
}

void gpu_fill_elements(proa_data_ops *ops)
{
    ops->map_elements = map_elements_op;
    ops->softmax_elements = softmax_elements_op;
    ops->copy_rows = copy_rows_op;
}
