/* SPDX-License-Identifier: Apache-2.0
 * lora.cu - low-rank adapters, many in one batch. A segment is up to 16 rows of one adapter, so its A and B are read
 * once for them. Two kernels:
 *   shrink  h = x A^T of a segment and a part of K: by tensor cores for adapters in 16 bits, x rounded to their type.
 *           Parts fill the GPU where there are few segments; each writes its own sums.
 *   expand  adds the parts in order, then y += scale h B^T: a thread has one column of up to 16 rows, in f32.
 * Both grids follow from the number of segments and the shapes alone, so a recorded pass serves any adapters; empty
 * segments end at once. */
#include "kernels/cuda/linear/linear.h"

#include <mma.h>

enum {
    ROWS = PROA_LORA_ROWS,
    PANEL = PROA_LORA_PANEL,
    THREADS = 128,
    WARPS = THREADS / 32,
    CHUNK = 256,          /* inputs in shared memory at once */
    LEAD = CHUNK + 8,     /* between its rows: no bank conflicts */
    TILES = 4,            /* of 16 columns of A at once */
    GROUP = THREADS / 16, /* panels of a block */
    BLOCKS_WANTED = 264   /* two for each SM of an H100 */
};

/* What the kernels need of proa_lora and proa_lora_rows. */
struct lora_args {
    int64_t use, a, b;
    int rank, pieces, K, columns;
    int64_t end[PROA_LORA_PIECES_MAX];
    float alpha;
    const int32_t *order;
    const proa_lora_segment *segments;
    float *h; /* [parts][rows][columns] */
    int64_t rows;
    int parts, part; /* of K: their number, and inputs of each */
};

__device__ static inline const proa_lora_use *uses_of(const lora_args &l, const proa_lora_segment &s)
{
    return reinterpret_cast<const proa_lora_use *>(s.base + l.use);
}

/* ---- h = x A^T ---- */

/* Inputs [k, k + CHUNK) of the rows, those behind `end` as 0. Rows behind the last stay as they are. */
template <bool VEC8, typename X, typename T>
__device__ static inline void load_inputs(T (*xs)[LEAD], const X *x, int64_t x_row, const int32_t *order,
                                          int rows, int k, int end)
{
    if constexpr (VEC8) {
        for (int i = threadIdx.x; i < rows * (CHUNK / 8); i += THREADS) {
            int r = i / (CHUNK / 8), at = i % (CHUNK / 8) * 8;
            float v[8] = {};
            if (k + at < end) gpu_load8(v, x + order[r] * x_row + k + at);
#pragma unroll
            for (int j = 0; j < 8; j++) xs[r][at + j] = gpu_saturate<T>(v[j]);
        }
    } else {
        for (int i = threadIdx.x; i < rows * CHUNK; i += THREADS) {
            int r = i / CHUNK, at = i % CHUNK;
            xs[r][at] = gpu_saturate<T>(k + at < end ? gpu_to_f32(x[order[r] * x_row + k + at]) : 0.0f);
        }
    }
}

template <typename T> using lora_sum = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, T>;

/* The warp's quarter of a chunk, whose first input is k, with the tiles of A from the column `first` on. */
template <typename T>
__device__ static inline void multiply_chunk(lora_sum<float> (&sum)[TILES], const bool (&active)[TILES],
                                             const T (*xs)[LEAD], const T *a, int columns, int first, int k,
                                             int end)
{
    namespace wmma = nvcuda::wmma;
#pragma unroll
    for (int step = 0; step < CHUNK / WARPS; step += 16) {
        int at = threadIdx.x / 32 * (CHUNK / WARPS) + step;
        if (k + at >= end) break;
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> rows;
        wmma::load_matrix_sync(rows, &xs[0][at], LEAD);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            if (!active[t]) continue;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> weights;
            wmma::load_matrix_sync(weights, a + (int64_t)(k + at) * columns + first + 16 * t, columns);
            wmma::mma_sync(sum[t], rows, weights, sum[t]);
        }
    }
}

/* Adds the warps' sums of a tile and writes those of `rows` rows. h: of the first row, at the tile's first column. */
__device__ static inline void write_tile(float (*sums)[16][16], const lora_sum<float> &sum, float *h,
                                         int columns, int rows)
{
    __syncthreads();
    nvcuda::wmma::store_matrix_sync(&sums[threadIdx.x / 32][0][0], sum, 16, nvcuda::wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < rows * 16; i += THREADS) {
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) v += sums[w][i / 16][i % 16];
        h[i / 16 * columns + i % 16] = v;
    }
}

/* Grid: segment, part of K. Each warp takes a quarter of every chunk. */
template <bool VEC8, typename X, typename T>
__global__ void lora_shrink_mma_kernel(const X *x, int64_t x_row, lora_args l)
{
    __shared__ __align__(32) T xs[ROWS][LEAD];
    __shared__ __align__(32) float sums[WARPS][16][16];
    gpu_wait();
    proa_lora_segment s = l.segments[blockIdx.x];
    int begin = blockIdx.y * l.part, end = min(l.K, begin + l.part);
    if (s.rows == 0 || begin >= l.K) return;
    const proa_lora_use *use = uses_of(l, s);
    const T *a = reinterpret_cast<const T *>(s.base + l.a);
    float *h = l.h + (blockIdx.y * l.rows + s.first) * l.columns;
    for (int i = threadIdx.x; i < (ROWS - s.rows) * LEAD; i += THREADS)
        xs[s.rows + i / LEAD][i % LEAD] = gpu_from_f32<T>(0.0f);
    for (int first = 0; first < l.columns; first += 16 * TILES) {
        lora_sum<float> sum[TILES];
        bool active[TILES];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            int column = first + 16 * t;
            active[t] = column < l.columns && use[column / l.rank].rank > column % l.rank;
            nvcuda::wmma::fill_fragment(sum[t], 0.0f);
        }
        for (int k = begin; k < end; k += CHUNK) {
            __syncthreads();
            load_inputs<VEC8>(xs, x, x_row, l.order + s.first, s.rows, k, end);
            __syncthreads();
            multiply_chunk<T>(sum, active, xs, a, l.columns, first, k, end);
        }
#pragma unroll
        for (int t = 0; t < TILES; t++) /* active is the same for all threads */
            if (active[t]) write_tile(sums, sum[t], h + first + 16 * t, l.columns, s.rows);
    }
}

/* The same for adapters in f32: a thread has a row and a column at a time. */
template <typename X> __global__ void lora_shrink_f32_kernel(const X *x, int64_t x_row, lora_args l)
{
    gpu_wait();
    proa_lora_segment s = l.segments[blockIdx.x];
    int begin = blockIdx.y * l.part, end = min(l.K, begin + l.part);
    if (s.rows == 0 || begin >= l.K) return;
    const proa_lora_use *use = uses_of(l, s);
    const float *a = reinterpret_cast<const float *>(s.base + l.a);
    for (int i = threadIdx.x; i < s.rows * l.columns; i += THREADS) {
        int r = i / l.columns, column = i % l.columns;
        if (use[column / l.rank].rank <= column % l.rank) continue;
        const X *row = x + l.order[s.first + r] * x_row;
        float sum = 0.0f;
        for (int k = begin; k < end; k++)
            sum = fmaf(gpu_to_f32(row[k]), a[(int64_t)k * l.columns + column], sum);
        l.h[(blockIdx.y * l.rows + s.first + r) * l.columns + column] = sum;
    }
}

/* ---- y += h B^T ---- */

/* N rows from `row` on, one column. h: [rank][ROWS] in shared memory; b: from one row of a panel to the next PANEL. */
template <int N, typename Y, typename T>
__device__ static inline void add_column(Y *y, int64_t y_row, const int32_t *order, int row, int rows,
                                         const float *h, const T *b, int rank, float scale)
{
    float sum[N] = {};
#pragma unroll 8
    for (int j = 0; j < rank; j++) {
        float weight = gpu_to_f32(b[j * PANEL]);
#pragma unroll
        for (int r = 0; r < N; r++) sum[r] = fmaf(h[j * ROWS + row + r], weight, sum[r]);
    }
#pragma unroll
    for (int r = 0; r < N; r++) {
        if (row + r >= rows) break;
        Y *to = y + order[row + r] * y_row;
        *to = gpu_saturate<Y>(fmaf(scale, sum[r], gpu_to_f32(*to)));
    }
}

/* Grid: segment, GROUP panels of one piece. Shared memory: [rank][ROWS]. */
template <typename Y, typename T> __global__ void lora_expand_kernel(Y *y, int64_t y_row, lora_args l)
{
    extern __shared__ float h[];
    gpu_wait();
    proa_lora_segment s = l.segments[blockIdx.x];
    if (s.rows == 0) return;
    int piece = 0, group = blockIdx.y, before = 0, first = 0, panels = 0;
    for (;; piece++) {
        panels = ((int)l.end[piece] - first + PANEL - 1) / PANEL;
        int groups = (panels + GROUP - 1) / GROUP;
        if (group < groups) break;
        group -= groups, before += panels, first = (int)l.end[piece];
    }
    proa_lora_use use = uses_of(l, s)[piece];
    for (int i = threadIdx.x; i < use.rank * ROWS; i += THREADS) {
        int j = i % use.rank, r = i / use.rank;
        float sum = 0.0f;
        for (int p = 0; p < l.parts && r < s.rows; p++)
            sum += l.h[(p * l.rows + s.first + r) * l.columns + piece * l.rank + j];
        h[j * ROWS + r] = sum;
    }
    __syncthreads();
    int panel = group * GROUP + threadIdx.x / PANEL, n = first + panel * PANEL + threadIdx.x % PANEL;
    if (panel >= panels || n >= l.end[piece] || use.rank == 0) return;
    const T *b = reinterpret_cast<const T *>(s.base + l.b) + (int64_t)(before + panel) * l.rank * PANEL +
                 threadIdx.x % PANEL;
    const int32_t *order = l.order + s.first;
    float scale = l.alpha * use.scale;
    if (s.rows == 1) add_column<1>(y + n, y_row, order, 0, 1, h, b, use.rank, scale);
    else if (s.rows <= 4) add_column<4>(y + n, y_row, order, 0, s.rows, h, b, use.rank, scale);
    else add_column<ROWS>(y + n, y_row, order, 0, s.rows, h, b, use.rank, scale);
}

/* ---- the op ---- */

static lora_args make_args(gpu *g, const proa_lora *l, const proa_lora_rows *rows, int64_t T)
{
    lora_args a = {l->use, l->a, l->b, l->rank, l->pieces, (int)l->K, l->rank * l->pieces};
    for (int p = 0; p < l->pieces; p++) a.end[p] = l->end[p];
    a.alpha = l->alpha == 0.0f ? 1.0f : l->alpha;
    a.order = rows->order, a.segments = rows->segment, a.rows = T;
    int most = (a.K + CHUNK - 1) / CHUNK, wanted = BLOCKS_WANTED / (int)rows->count + 1;
    a.part = (most + (wanted < most ? wanted : most) - 1) / (wanted < most ? wanted : most) * CHUNK;
    a.parts = (a.K + a.part - 1) / a.part;
    a.h = (float *)gpu_cast_workspace(g, (size_t)a.parts * T * a.columns * sizeof(float));
    return a;
}

static void launch_shrink(gpu *g, proa_view x, const proa_lora *l, const lora_args &a, dim3 grid)
{
    bool vec8 = gpu_is_vec8(x);
    gpu_by_type(x.dtype, [&](auto from) {
        using X = decltype(from);
        const X *data = (const X *)x.data;
        int64_t row = x.stride[0];
        if (l->dtype == PROA_DTYPE_F32)
            gpu_launch(g, "lora_shrink", lora_shrink_f32_kernel<X>, grid, THREADS, 0, data, row, a);
        else if (l->dtype == PROA_DTYPE_BF16)
            gpu_launch(g, "lora_shrink",
                       vec8 ? lora_shrink_mma_kernel<true, X, __nv_bfloat16>
                            : lora_shrink_mma_kernel<false, X, __nv_bfloat16>,
                       grid, THREADS, 0, data, row, a);
        else
            gpu_launch(g, "lora_shrink",
                       vec8 ? lora_shrink_mma_kernel<true, X, __half> : lora_shrink_mma_kernel<false, X, __half>,
                       grid, THREADS, 0, data, row, a);
    });
}

static void lora_op(proa_ctx *c, proa_view y, proa_view x, const proa_lora *l, const proa_lora_rows *rows)
{
    gpu *g = gpu_flushed(c, y);
    unsigned groups = 0, segments = (unsigned)rows->count;
    if (!segments || y.shape[0] == 0) return;
    lora_args a = make_args(g, l, rows, y.shape[0]);
    for (int p = 0; p < l->pieces; p++) groups += (unsigned)((proa_lora_panels(l, p) + GROUP - 1) / GROUP);
    launch_shrink(g, x, l, a, dim3(segments, (unsigned)a.parts));
    gpu_by_type(y.dtype, [&](auto to) {
        gpu_by_type(l->dtype, [&](auto weight) {
            using Y = decltype(to);
            using T = decltype(weight);
            gpu_launch(g, "lora_expand", lora_expand_kernel<Y, T>, dim3(segments, groups), THREADS,
                       (size_t)l->rank * ROWS * sizeof(float), (Y *)y.data, y.stride[0], a);
        });
    });
}

void gpu_fill_lora(proa_ops *ops)
{
    ops->lora = lora_op;
}
