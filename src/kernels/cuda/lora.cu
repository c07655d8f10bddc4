/* SPDX-License-Identifier: Apache-2.0
 * lora.cu - low-rank adapters, many in one batch (as in Punica and S-LoRA: Chen et al. 2023, Sheng et al. 2023). A
 * segment is up to 16 rows of one adapter, so its A and B are read once for them. Two kernels:
 *   shrink  h = x A^T of a segment and a part of K, x rounded to the adapter's type. Each part writes its own sums.
 *   expand  adds the parts in order, then y += scale h B^T, h rounded likewise, for some panels of B.
 * Adapters in 16 bits are multiplied on tensor cores. What a kernel reads of A or B, and expand of y too, it reads
 * before gpu_wait: for few rows these bytes are the time. Both grids follow from the number of segments and the shapes
 * alone, so a recorded pass serves any adapters; empty segments end at once. */
#include "kernels/cuda/attention/tile.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/runtime/mma.h"

#include <mma.h>

enum {
    ROWS = PROA_LORA_ROWS,
    PANEL = PROA_LORA_PANEL,
    SHRINK_THREADS = 128,
    SHRINK_WARPS = SHRINK_THREADS / 32,
    PART_MAX = 512,           /* inputs of a block of shrink, */
    PART_BYTES = 24 << 10,    /* and of A with them: with x 41 KB, five blocks of an SM */
    PART_LEAD = PART_MAX + 8, /* between rows of x: no bank conflicts */
    TILES = 4,                /* of 16 columns of A, of a block */
    LOADS = 4,                /* of x in flight */
    EXPAND_THREADS = 256,
    EXPAND_WARPS = EXPAND_THREADS / 32,
    UNROLL = 4,                    /* panels of a warp of expand at once, */
    GROUP = UNROLL * EXPAND_WARPS, /* and of a block */
    PANEL_LEAD = PANEL + 8,        /* between rows of a panel: no bank conflicts */
    BLOCKS_WANTED = 264            /* of expand: two for each SM of an H100 */
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
    int panels;      /* of a block of expand */
};

__device__ static inline const proa_lora_use *uses_of(const lora_args &l, const proa_lora_segment &s)
{
    return reinterpret_cast<const proa_lora_use *>(s.base + l.use);
}

/* ---- h = x A^T ---- */

/* Copies `columns` columns of the block's part of A, from `from` on, into shared memory. */
template <typename T>
__device__ static inline void copy_part(T *to, const T *from, int64_t from_row, int count, int columns)
{
    int each = columns * (int)sizeof(T) / 16;
    for (int i = threadIdx.x; i < count * each; i += SHRINK_THREADS) {
        int at = i % each * (16 / (int)sizeof(T));
        cp_async16(smem_address(to + i / each * columns + at), from + i / each * from_row + at);
    }
    cp_async_commit();
}

/* Inputs [begin, begin + count) of the rows, those behind `end` as 0. */
template <bool VEC8, typename X, typename T>
__device__ static inline void load_inputs(T (*xs)[PART_LEAD], const X *x, int64_t x_row, const int32_t *order,
                                          int rows, int begin, int count, int end)
{
    int each = count / 8, all = rows * each;
    for (int first = threadIdx.x; first < all; first += LOADS * SHRINK_THREADS) {
        float v[LOADS][8] = {};
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            int i = first + u * SHRINK_THREADS, at = begin + i % each * 8;
            if (i >= all || at >= end) continue;
            const X *from = x + order[i / each] * x_row + at;
            if constexpr (VEC8) gpu_load8(v[u], from);
            else
                for (int j = 0; j < 8 && at + j < end; j++) v[u][j] = gpu_to_f32(from[j]);
        }
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            int i = first + u * SHRINK_THREADS;
            if (i < all) gpu_store8(&xs[i / each][i % each * 8], v[u]);
        }
    }
}

template <typename T> using lora_sum = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, T>;

/* sum += the inputs times A. A warp has every SHRINK_WARPS-th 16 inputs. */
template <typename T>
__device__ static inline void multiply_part(lora_sum<float> (&sum)[TILES], const T (*xs)[PART_LEAD],
                                            const T *a, int columns, int count)
{
    namespace wmma = nvcuda::wmma;
    for (int at = threadIdx.x / 32 * 16; at < count; at += SHRINK_WARPS * 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> rows;
        wmma::load_matrix_sync(rows, &xs[0][at], PART_LEAD);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            if (16 * t >= columns) break;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> weights;
            wmma::load_matrix_sync(weights, a + at * columns + 16 * t, columns);
            wmma::mma_sync(sum[t], rows, weights, sum[t]);
        }
    }
}

/* Grid: segment, part of K, 16 TILES columns of A. Rows of xs that are not there hold anything: so do their sums, which
 * nobody reads. Registers: 4 sums of 8, x in flight 32. */
template <bool VEC8, typename X, typename T>
__global__ void __launch_bounds__(SHRINK_THREADS) lora_shrink_mma_kernel(const X *x, int64_t x_row, lora_args l)
{
    namespace wmma = nvcuda::wmma;
    __shared__ __align__(32) T xs[ROWS][PART_LEAD];
    __shared__ __align__(32) T a[PART_BYTES / sizeof(T)];
    __shared__ int32_t order[ROWS];
    float(*sums)[TILES][16][16] = reinterpret_cast<float(*)[TILES][16][16]>(xs); /* later, of the warps */
    static_assert(sizeof xs >= SHRINK_WARPS * TILES * 16 * 16 * sizeof(float));
    proa_lora_segment s = l.segments[blockIdx.x];
    int begin = blockIdx.y * l.part, end = min(l.K, begin + l.part), count = (end - begin + 15) / 16 * 16;
    int first = blockIdx.z * 16 * TILES, columns = min(16 * TILES, l.columns - first);
    if (s.rows)
        copy_part(a, reinterpret_cast<const T *>(s.base + l.a) + (int64_t)begin * l.columns + first,
                  l.columns, count, columns);
    if (threadIdx.x < s.rows) order[threadIdx.x] = l.order[s.first + threadIdx.x];
    __syncthreads();
    gpu_wait_then_release(); /* expand reads y before its own wait */
    if (!s.rows) return;
    load_inputs<VEC8>(xs, x, x_row, order, s.rows, begin, count, end);
    cp_async_wait<0>();
    __syncthreads();
    lora_sum<float> sum[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) wmma::fill_fragment(sum[t], 0.0f);
    multiply_part<T>(sum, xs, a, columns, count);
    __syncthreads();
#pragma unroll
    for (int t = 0; t < TILES; t++)
        wmma::store_matrix_sync(&sums[threadIdx.x / 32][t][0][0], sum[t], 16, wmma::mem_row_major);
    __syncthreads();
    float *h = l.h + (blockIdx.y * l.rows + s.first) * l.columns + first;
    for (int i = threadIdx.x; i < s.rows * columns; i += SHRINK_THREADS) {
        int r = i / columns, c = i % columns;
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < SHRINK_WARPS; w++) v += sums[w][c / 16][r][c % 16];
        h[r * l.columns + c] = v;
    }
}

/* The same for adapters in f32: a thread has a row and a column at a time. */
template <typename X> __global__ void lora_shrink_f32_kernel(const X *x, int64_t x_row, lora_args l)
{
    gpu_wait_then_release();
    proa_lora_segment s = l.segments[blockIdx.x];
    int begin = blockIdx.y * l.part, end = min(l.K, begin + l.part);
    const float *a = reinterpret_cast<const float *>(s.base + l.a);
    for (int i = threadIdx.x; i < s.rows * l.columns; i += SHRINK_THREADS) {
        int r = i / l.columns, column = i % l.columns;
        const X *row = x + l.order[s.first + r] * x_row;
        float sum = 0.0f;
        for (int k = begin; k < end; k++)
            sum = fmaf(gpu_to_f32(row[k]), a[(int64_t)k * l.columns + column], sum);
        l.h[(blockIdx.y * l.rows + s.first + r) * l.columns + column] = sum;
    }
}

/* ---- y += h B^T ---- */

/* The panels of a block of expand: some of one piece. */
struct panel_run {
    int piece, panel, column; /* the first of them, in all panels and in y */
    int count, end;           /* of panels; last column of the piece */
};

__device__ static inline panel_run find_run(const lora_args &l, int block)
{
    int before = 0, first = 0;
    panel_run run = {};
#pragma unroll
    for (int piece = 0; piece < PROA_LORA_PIECES_MAX; piece++) { /* indices that the compiler knows */
        if (piece >= l.pieces) break;
        int panels = ((int)l.end[piece] - first + PANEL - 1) / PANEL, blocks = (panels + l.panels - 1) / l.panels;
        int at = block * l.panels;
        if (block >= 0 && block < blocks)
            run = {piece, before + at, first + at * PANEL, min(l.panels, panels - at), (int)l.end[piece]};
        block -= blocks, before += panels, first = (int)l.end[piece];
    }
    return run;
}

/* hs [ROWS][rank] = the sums of the parts, in their order; 0 for rows that are not there and beyond the adapter's rank.
 * lead: from one row to the next. */
template <typename T>
__device__ static inline void add_parts(T *hs, int lead, const lora_args &l, const proa_lora_segment &s,
                                        int piece, int rank)
{
    const float *h = l.h + (int64_t)s.first * l.columns + piece * l.rank;
    for (int i = threadIdx.x; i < ROWS * l.rank; i += EXPAND_THREADS) {
        int j = i % l.rank, r = i / l.rank;
        float sum = 0.0f;
        if (r < s.rows && j < rank)
#pragma unroll 8
            for (int p = 0; p < l.parts; p++) sum += h[(p * l.rows + r) * l.columns + j];
        hs[r * lead + j] = gpu_saturate<T>(sum);
    }
}

/* Two neighbouring numbers of y; PAIRS: they can be read at once. both: the second is there, too. */
template <bool PAIRS, typename Y> __device__ static inline float2 load_two(const Y *y, bool both)
{
    if constexpr (PAIRS && sizeof(Y) == 4) return *reinterpret_cast<const float2 *>(y);
    else if constexpr (PAIRS) {
        unsigned pair = *reinterpret_cast<const unsigned *>(y);
        const Y *v = reinterpret_cast<const Y *>(&pair);
        return make_float2(gpu_to_f32(v[0]), gpu_to_f32(v[1]));
    } else return make_float2(gpu_to_f32(y[0]), both ? gpu_to_f32(y[1]) : 0.0f);
}

template <bool PAIRS, typename Y> __device__ static inline void store_two(Y *y, float2 v, bool both)
{
    if constexpr (PAIRS && sizeof(Y) == 4) *reinterpret_cast<float2 *>(y) = v;
    else if constexpr (PAIRS) *reinterpret_cast<unsigned *>(y) = gpu_pack2<Y>(v.x, v.y);
    else {
        y[0] = gpu_saturate<Y>(v.x);
        if (both) y[1] = gpu_saturate<Y>(v.y);
    }
}

/* Asks for the panels of the run from `first` on to be brought to L2. */
template <typename T>
__device__ static inline void prefetch_panels(const panel_run &run, const T *b, int rank, int first)
{
    const char *from = (const char *)(b + (int64_t)run.panel * rank * PANEL);
    int64_t each = (int64_t)rank * PANEL * sizeof(T);
    for (int64_t at = first * each + threadIdx.x * 128; at < run.count * each; at += EXPAND_THREADS * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
}

/* 16 bytes of UNROLL panels, of 16 of their rank from j on, for each lane. */
template <typename T>
__device__ static inline void load_panels(uint4 (&v)[UNROLL], const panel_run &run, int panel, const T *b,
                                          int rank, int j)
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        int at = panel + u * EXPAND_WARPS;
        const T *from = b + ((int64_t)(run.panel + at) * rank + j) * PANEL + threadIdx.x % 32 * 8;
        if (at < run.count) v[u] = *reinterpret_cast<const uint4 *>(from);
    }
}

/* What a lane has of y: the rows r and r + 8 of the columns c, c + 1, c + 8 and c + 9 of each panel (runtime/mma.h), in
 * this order. to: its two rows; NULL: the segment has no such row. */
typedef float2 lane_sums[UNROLL][4];

template <bool PAIRS, typename Y>
__device__ static inline void load_sums(lane_sums &v, const panel_run &run, int panel, Y *const (&to)[2])
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = panel + u * EXPAND_WARPS, n = run.column + at * PANEL + threadIdx.x % 4 * 2 + i % 2 * 8;
            if (to[i / 2] && at < run.count && n < run.end)
                v[u][i] = load_two<PAIRS>(to[i / 2] + n, n + 1 < run.end);
        }
}

template <bool PAIRS, typename Y>
__device__ static inline void store_sums(const lane_sums &v, const float (&sum)[UNROLL][2][4], float scale,
                                         const panel_run &run, int panel, Y *const (&to)[2])
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = panel + u * EXPAND_WARPS, n = run.column + at * PANEL + threadIdx.x % 4 * 2 + i % 2 * 8;
            const float *add = &sum[u][i % 2][i / 2 * 2];
            float2 now = make_float2(fmaf(scale, add[0], v[u][i].x), fmaf(scale, add[1], v[u][i].y));
            if (to[i / 2] && at < run.count && n < run.end)
                store_two<PAIRS>(to[i / 2] + n, now, n + 1 < run.end);
        }
}

/* sum += h [16][16] from j on times UNROLL panels [16][16]: two of mma.m16n8k16 each. */
template <typename T>
__device__ static inline void multiply_panels(float (&sum)[UNROLL][2][4], T (*panels)[16][PANEL_LEAD],
                                              const uint4 (&v)[UNROLL], const T *hs, int h_lead, int j)
{
    int lane = threadIdx.x % 32;
    unsigned rows[4];
    __syncwarp();
#pragma unroll
    for (int u = 0; u < UNROLL; u++) *reinterpret_cast<uint4 *>(&panels[u][lane / 2][lane % 2 * 8]) = v[u];
    __syncwarp();
    ldmatrix_x4(rows, smem_address(hs + lane % 16 * h_lead + j + lane / 16 * 8));
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        unsigned weights[4];
        ldmatrix_x4_trans(weights, smem_address(&panels[u][lane % 16][lane / 16 * 8]));
        gpu_mma<T>::run(sum[u][0], rows, weights[0], weights[1]);
        gpu_mma<T>::run(sum[u][1], rows, weights[2], weights[3]);
    }
}

/* Grid: segment, run of panels. A warp has UNROLL panels at a time, and the next ones in flight. Registers: y 32, sums
 * 32, panels 32; two blocks of an SM. Dynamic shared memory: h. */
template <bool PAIRS, typename Y, typename T>
__global__ void __launch_bounds__(EXPAND_THREADS, 2) lora_expand_mma_kernel(Y *y, int64_t y_row, lora_args l)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ __align__(16) T panels[EXPAND_WARPS][UNROLL][16][PANEL_LEAD];
    T *hs = reinterpret_cast<T *>(memory);
    int warp = threadIdx.x / 32, h_lead = l.rank + 8;
    proa_lora_segment s = l.segments[blockIdx.x];
    panel_run run = find_run(l, blockIdx.y);
    proa_lora_use use = {};
    if (s.rows) use = uses_of(l, s)[run.piece];
    const T *b = reinterpret_cast<const T *>(s.base + l.b);
    Y *to[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = threadIdx.x % 32 / 4 + 8 * i;
        to[i] = row < s.rows ? y + l.order[s.first + row] * y_row : nullptr;
    }
    uint4 next[UNROLL] = {};
    lane_sums was;
    if (use.rank) {
        load_panels(next, run, warp, b, l.rank, 0);
        load_sums<PAIRS>(was, run, warp, to);
        prefetch_panels(run, b, l.rank, GROUP);
    }
    gpu_wait();
    if (!use.rank) return;
    add_parts(hs, h_lead, l, s, run.piece, use.rank);
    __syncthreads();
    for (int panel = warp; panel < run.count; panel += GROUP) {
        uint4 now[UNROLL];
        float sum[UNROLL][2][4] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++) now[u] = next[u];
        load_panels(next, run, panel + GROUP, b, l.rank, 0);
        multiply_panels<T>(sum, panels[warp], now, hs, h_lead, 0);
        for (int j = 16; j < use.rank; j += 16) {
            load_panels(now, run, panel, b, l.rank, j);
            multiply_panels<T>(sum, panels[warp], now, hs, h_lead, j);
        }
        store_sums<PAIRS>(was, sum, l.alpha * use.scale, run, panel, to);
        load_sums<PAIRS>(was, run, panel + GROUP, to);
    }
}

/* The same for adapters in f32: a thread has a row and a column at a time. */
template <typename Y> __global__ void lora_expand_f32_kernel(Y *y, int64_t y_row, lora_args l)
{
    extern __shared__ __align__(16) char memory[];
    float *hs = reinterpret_cast<float *>(memory);
    gpu_wait();
    proa_lora_segment s = l.segments[blockIdx.x];
    panel_run run = find_run(l, blockIdx.y);
    if (!s.rows) return;
    proa_lora_use use = uses_of(l, s)[run.piece];
    const float *b = reinterpret_cast<const float *>(s.base + l.b) + (int64_t)run.panel * l.rank * PANEL;
    int columns = min(run.count * PANEL, run.end - run.column);
    add_parts(hs, l.rank, l, s, run.piece, use.rank);
    __syncthreads();
    for (int i = threadIdx.x; i < s.rows * columns && use.rank; i += EXPAND_THREADS) {
        int r = i / columns, n = i % columns;
        const float *weights = b + (int64_t)(n / PANEL) * l.rank * PANEL + n % PANEL;
        float sum = 0.0f;
        for (int j = 0; j < use.rank; j++) sum = fmaf(hs[r * l.rank + j], weights[j * PANEL], sum);
        Y *to = y + l.order[s.first + r] * y_row + run.column + n;
        *to = gpu_saturate<Y>(fmaf(l.alpha * use.scale, sum, gpu_to_f32(*to)));
    }
}

/* ---- the op ---- */

static lora_args make_args(gpu *g, const proa_lora *l, const proa_lora_rows *rows, int64_t T)
{
    lora_args a = {l->use, l->a, l->b, l->rank, l->pieces, (int)l->K, l->rank * l->pieces};
    for (int p = 0; p < l->pieces; p++) a.end[p] = l->end[p];
    a.alpha = l->alpha == 0.0f ? 1.0f : l->alpha;
    a.order = rows->order, a.segments = rows->segment, a.rows = T;
    int columns = a.columns < 16 * TILES ? a.columns : 16 * TILES;
    int most = PART_BYTES / (int)sizeof(__half) / columns / 16 * 16;
    a.part = most < PART_MAX ? most : PART_MAX;
    a.parts = (a.K + a.part - 1) / a.part;
    a.h = (float *)gpu_cast_workspace(g, (size_t)a.parts * T * a.columns * sizeof(float));
    return a;
}

template <typename X, typename T>
static void launch_shrink_mma(gpu *g, proa_view x, const lora_args &a, dim3 grid)
{
    auto kernel = gpu_is_vec8(x) && a.K % 8 == 0 ? lora_shrink_mma_kernel<true, X, T>
                                                 : lora_shrink_mma_kernel<false, X, T>;
    grid.z = (unsigned)((a.columns + 16 * TILES - 1) / (16 * TILES));
    gpu_launch(g, "lora_shrink", kernel, grid, SHRINK_THREADS, 0, (const X *)x.data, x.stride[0], a);
}

static void launch_shrink(gpu *g, proa_view x, proa_dtype dtype, const lora_args &a, dim3 grid)
{
    gpu_by_type(x.dtype, [&](auto from) {
        using X = decltype(from);
        if (dtype == PROA_DTYPE_BF16) launch_shrink_mma<X, __nv_bfloat16>(g, x, a, grid);
        else if (dtype == PROA_DTYPE_F16) launch_shrink_mma<X, __half>(g, x, a, grid);
        else
            gpu_launch(g, "lora_shrink", lora_shrink_f32_kernel<X>, grid, SHRINK_THREADS, 0,
                       (const X *)x.data, x.stride[0], a);
    });
}

template <typename Y, typename T>
static void launch_expand_mma(gpu *g, proa_view y, const lora_args &a, dim3 grid)
{
    bool pairs = gpu_is_vec8(y);
    for (int p = 0; p < a.pieces; p++) pairs = pairs && a.end[p] % 2 == 0;
    auto kernel = pairs ? lora_expand_mma_kernel<true, Y, T> : lora_expand_mma_kernel<false, Y, T>;
    gpu_launch(g, "lora_expand", kernel, grid, EXPAND_THREADS, (size_t)ROWS * (a.rank + 8) * sizeof(T),
               (Y *)y.data, y.stride[0], a);
}

static void launch_expand(gpu *g, proa_view y, proa_dtype dtype, const lora_args &a, dim3 grid)
{
    gpu_by_type(y.dtype, [&](auto to) {
        using Y = decltype(to);
        if (dtype == PROA_DTYPE_BF16) launch_expand_mma<Y, __nv_bfloat16>(g, y, a, grid);
        else if (dtype == PROA_DTYPE_F16) launch_expand_mma<Y, __half>(g, y, a, grid);
        else
            gpu_launch(g, "lora_expand", lora_expand_f32_kernel<Y>, grid, EXPAND_THREADS,
                       (size_t)ROWS * a.rank * sizeof(float), (Y *)y.data, y.stride[0], a);
    });
}

/* The panels of a block of expand, so that there are about as many blocks as the GPU runs at one time. Returns the
 * number of blocks of a segment. */
static unsigned divide_panels(lora_args *a, const proa_lora *l, unsigned segments)
{
    unsigned blocks = 0;
    int64_t all = 0, wanted;
    for (int p = 0; p < l->pieces; p++) all += proa_lora_panels(l, p);
    wanted = all * segments / BLOCKS_WANTED;
    a->panels = (int)(wanted < GROUP ? (int64_t)GROUP : (wanted + GROUP - 1) / GROUP * GROUP);
    for (int p = 0; p < l->pieces; p++)
        blocks += (unsigned)((proa_lora_panels(l, p) + a->panels - 1) / a->panels);
    return blocks;
}

static void lora_op(proa_ctx *c, proa_view y, proa_view x, const proa_lora *l, const proa_lora_rows *rows)
{
    gpu *g = gpu_flushed(c, y);
    unsigned segments = (unsigned)rows->count;
    if (!segments || y.shape[0] == 0) return;
    lora_args a = make_args(g, l, rows, y.shape[0]);
    launch_shrink(g, x, l->dtype, a, dim3(segments, (unsigned)a.parts));
    unsigned blocks = divide_panels(&a, l, segments);
    launch_expand(g, y, l->dtype, a, dim3(segments, blocks));
}

void gpu_fill_lora(proa_ops *ops)
{
    ops->lora = lora_op;
}
