/* SPDX-License-Identifier: Apache-2.0
 * lora.cu - low-rank adapters, many in one batch (as in Punica and S-LoRA: Chen et al. 2023, Sheng et al. 2023). A
 * segment is up to 16 rows of one adapter, so its A and B are read once for them. Two kernels:
 *   shrink  h = x A^T of a segment and a part of K, x rounded to the adapter's type. Each part writes its own sums.
 *   expand  adds the parts in order, then y += scale h B^T, h rounded likewise, for some panels of B.
 * Adapters in 16 bits are multiplied on tensor cores. What a kernel reads of A or B it reads before gpu_wait, or brings
 * to L2 then: for few rows these bytes are the time. Where y is to be set, shrink clears it. Both grids follow from the
 * number of segments and the shapes alone, so a recorded pass serves any adapters; empty segments end at once. */
#include "kernels/cuda/attention/tile.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/runtime/mma.h"

#include <mma.h>

enum {
    ROWS = PROA_LORA_ROWS,
    PANEL = PROA_LORA_PANEL,
    SHRINK_THREADS = 128,
    SHRINK_WARPS = SHRINK_THREADS / 32,
    STEP = 512,            /* inputs of a block of shrink at once, */
    STEP_LEAD = STEP + 8,  /* between rows of them: no bank conflicts; */
    PART_BYTES = 32 << 10, /* of A, of all its inputs: with x 49 KB, */
    SHRINK_BLOCKS = 4,     /* four blocks of an SM */
    TILES = 4,             /* of 16 columns of A, of a block */
    LOADS = 4,             /* of x in flight */
    EARLY_ROWS = 64,
    FEW_ROWS = 2, /* on CUDA cores: tensor cores would be idle but for a row or two, and have more to wait for */
    FEW_LOADS = 8, /* of x in flight then */
    EXPAND_THREADS = 256,
    EXPAND_WARPS = EXPAND_THREADS / 32,
    UNROLL = 4,                    /* panels of a warp of expand at once, */
    GROUP = UNROLL * EXPAND_WARPS, /* and of a block */
    PARTS_AHEAD = 8,               /* of h in flight of a thread */
    PANEL_LEAD = PANEL + 8         /* between rows of a panel: no bank conflicts */
};

/* Blocks of expand that an SM has room for: the sums that are set need fewer registers. */
__host__ __device__ constexpr int expand_blocks(bool set)
{
    return set ? 3 : 2;
}

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
    bool set;        /* expand does not read y: shrink has cleared it */
    bool early; /* expand may begin while shrink waits: B is more bytes than y, which it reads later then */
    char *y;    /* then its rows, for that: */
    int64_t y_row, y_bytes; /* bytes from one to the next, and of its columns */
};

__device__ static inline const proa_lora_use *uses_of(const lora_args &l, const proa_lora_segment &s)
{
    return reinterpret_cast<const proa_lora_use *>(s.base + l.use);
}

/* ---- h = x A^T ---- */

/* Clears this block's share of y, in pieces of T. */
template <typename T> __device__ static inline void clear_pieces(const lora_args &l)
{
    int64_t blocks = (int64_t)gridDim.x * gridDim.y * gridDim.z, each = l.y_bytes / (int64_t)sizeof(T);
    int64_t block = blockIdx.x + (int64_t)gridDim.x * (blockIdx.y + (int64_t)gridDim.y * blockIdx.z);
    for (int64_t i = block * SHRINK_THREADS + threadIdx.x; i < l.rows * each; i += blocks * SHRINK_THREADS)
        *reinterpret_cast<T *>(l.y + i / each * l.y_row + i % each * (int64_t)sizeof(T)) = {};
}

/* y is cleared behind the wait: kernels before may read it. Where expand reads it before its own wait, it is released
 * only when the kernels before shrink have ended. */
__device__ static inline void wait_of_shrink(const lora_args &l)
{
    if (!l.early) gpu_wait_then_release();
    else gpu_wait();
    if (!l.set) return;
    if (((uintptr_t)l.y | (uintptr_t)l.y_row | (uintptr_t)l.y_bytes) % 16 == 0) clear_pieces<uint4>(l);
    else clear_pieces<unsigned short>(l);
}

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
__device__ static inline void load_inputs(T (*xs)[STEP_LEAD], const X *x, int64_t x_row, const int32_t *order,
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
__device__ static inline void multiply_part(lora_sum<float> (&sum)[TILES], const T (*xs)[STEP_LEAD],
                                            const T *a, int columns, int count)
{
    namespace wmma = nvcuda::wmma;
    for (int at = threadIdx.x / 32 * 16; at < count; at += SHRINK_WARPS * 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> rows;
        wmma::load_matrix_sync(rows, &xs[0][at], STEP_LEAD);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            if (16 * t >= columns) break;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> weights;
            wmma::load_matrix_sync(weights, a + at * columns + 16 * t, columns);
            wmma::mma_sync(sum[t], rows, weights, sum[t]);
        }
    }
}

/* Eight numbers as f32. */
template <typename T> __device__ static inline void open8(float (&out)[8], uint4 v)
{
    const T *t = reinterpret_cast<const T *>(&v);
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = gpu_to_f32(t[i]);
}

/* sums [warps][columns] = the threads' sums of 8 columns, those of a slot's lanes added. A barrier of the block. */
__device__ static inline void add_slots(float (*sums)[16 * TILES], float (&sum)[8], int slots, bool mine)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        for (int o = 16; o >= slots; o /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], o);
        if (mine && lane < slots) sums[threadIdx.x / 32][lane * 8 + i] = sum[i];
    }
    __syncthreads();
}

/* The sums of one row and of all columns of the block's part, for each warp. A thread has 8 columns and every stride-th
 * input; threads of the same columns are added by shuffles. x is read behind gpu_wait, A may still arrive then. A
 * barrier of the block stands behind. */
template <typename X, typename T>
__device__ static inline void shrink_row(float (*sums)[64], const X *x, const T *a, int columns, int count,
                                         int begin, int end)
{
    int slots = columns <= 16 ? 2 : columns <= 32 ? 4 : 8, stride = SHRINK_THREADS / slots;
    int slot = threadIdx.x % slots, k = threadIdx.x / slots;
    float sum[8] = {};
    bool mine = slot * 8 < columns;
    for (; k - (int)(threadIdx.x / slots) < count; k += FEW_LOADS * stride) {
        float v[FEW_LOADS];
#pragma unroll
        for (int u = 0; u < FEW_LOADS; u++) {
            int at = k + u * stride;
            v[u] = at < count && begin + at < end ? gpu_to_f32(x[begin + at]) : 0.0f;
        }
        if (k < stride) {
            cp_async_wait<0>();
            __syncthreads();
        }
#pragma unroll
        for (int u = 0; u < FEW_LOADS; u++) {
            int at = k + u * stride;
            float w[8];
            if (!mine || at >= count) continue;
            open8<T>(w, *reinterpret_cast<const uint4 *>(a + at * columns + slot * 8));
#pragma unroll
            for (int i = 0; i < 8; i++) sum[i] = fmaf(v[u], w[i], sum[i]);
        }
    }
    add_slots(sums, sum, slots, mine);
}

/* h of a segment of few rows. */
template <typename X, typename T>
__device__ static inline void shrink_few(const lora_args &l, const proa_lora_segment &s, const int32_t *order,
                                         const X *x, int64_t x_row, const T *a, int columns, int count,
                                         int begin, int end, int first)
{
    __shared__ float sums[SHRINK_WARPS][16 * TILES];
    float *h = l.h + (blockIdx.y * l.rows + s.first) * l.columns + first;
    for (int r = 0; r < s.rows; r++) {
        shrink_row(sums, x + order[r] * x_row, a, columns, count, begin, end);
        for (int c = threadIdx.x; c < columns; c += SHRINK_THREADS) {
            float v = 0.0f;
#pragma unroll
            for (int w = 0; w < SHRINK_WARPS; w++) v += sums[w][c];
            h[r * l.columns + c] = v;
        }
        __syncthreads();
    }
}

/* Grid: segment, part of K, 16 TILES columns of A. Rows of xs that are not there hold anything: so do their sums, which
 * nobody reads. Registers: 4 sums of 8, x in flight 32. Dynamic shared memory: the block's part of A. */
template <bool VEC8, typename X, typename T>
__global__ void __launch_bounds__(SHRINK_THREADS) lora_shrink_mma_kernel(const X *x, int64_t x_row, lora_args l)
{
    namespace wmma = nvcuda::wmma;
    extern __shared__ __align__(32) char memory[];
    __shared__ __align__(32) T xs[ROWS][STEP_LEAD];
    __shared__ int32_t order[ROWS];
    T *a = reinterpret_cast<T *>(memory);
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
    wait_of_shrink(l);
    if (!s.rows) return;
    if (sizeof(X) == 2 && s.rows <= FEW_ROWS) {
        shrink_few(l, s, order, x, x_row, a, columns, count, begin, end, first);
        return;
    }
    lora_sum<float> sum[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) wmma::fill_fragment(sum[t], 0.0f);
    for (int at = 0; at < count; at += STEP) {
        int some = min((int)STEP, count - at);
        load_inputs<VEC8>(xs, x, x_row, order, s.rows, begin + at, some, end);
        cp_async_wait<0>();
        __syncthreads();
        multiply_part<T>(sum, xs, a + at * columns, columns, some);
        __syncthreads();
    }
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
    wait_of_shrink(l);
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

/* How many threads share the parts of a number of h: a power of two, so that the rows of few have one load each. */
__device__ static inline int threads_of_number(int numbers)
{
    int threads = 1;
    while (threads < 8 && 2 * threads * numbers <= EXPAND_THREADS) threads *= 2;
    return threads;
}

/* hs [ROWS][rank] = the sums of the parts, in an order that follows from the number of rows; 0 for rows that are not
 * there and beyond the adapter's rank. lead: from one row to the next. Threads of a warp leave the loop together where
 * several share a number: there are rank times some numbers, rank a multiple of 16. */
template <typename T>
__device__ static inline void add_parts(T *hs, int lead, const lora_args &l, const proa_lora_segment &s,
                                        int piece, int rank)
{
    const float *h = l.h + (int64_t)s.first * l.columns + piece * l.rank;
    int numbers = s.rows * l.rank, share = threads_of_number(numbers), me = threadIdx.x % share;
    for (int i = numbers + threadIdx.x; i < ROWS * l.rank; i += EXPAND_THREADS)
        hs[i / l.rank * lead + i % l.rank] = gpu_saturate<T>(0.0f);
    for (int i = threadIdx.x / share; i < numbers; i += EXPAND_THREADS / share) {
        int j = i % l.rank, r = i / l.rank;
        float sum = 0.0f;
        for (int first = me; first < l.parts; first += PARTS_AHEAD * share) {
            float v[PARTS_AHEAD] = {};
#pragma unroll
            for (int u = 0; u < PARTS_AHEAD; u++) {
                int p = first + u * share;
                if (p < l.parts) v[u] = h[(p * l.rows + r) * l.columns + j];
            }
#pragma unroll
            for (int u = 0; u < PARTS_AHEAD; u++) sum += v[u];
        }
        for (int o = share / 2; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
        if (me == 0) hs[r * lead + j] = gpu_saturate<T>(j < rank ? sum : 0.0f);
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
        if (at < run.count) v[u] = load_stream(from);
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

/* The rows r and r + 8 of a lane (runtime/mma.h); NULL: the segment has no such row. */
template <typename Y>
__device__ static inline void find_rows(Y *(&to)[2], Y *y, int64_t y_row, const lora_args &l,
                                        const proa_lora_segment &s)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = threadIdx.x % 32 / 4 + 8 * i;
        to[i] = row < s.rows ? y + l.order[s.first + row] * y_row : nullptr;
    }
}

/* y of a segment for all panels of the run. next: the first 16 of their rank of the first ones; was: their y. */
template <bool PAIRS, bool SET, typename Y, typename T>
__device__ static inline void expand_many(Y *const (&to)[2], const lora_args &l, const panel_run &run,
                                          uint4 (&next)[UNROLL], lane_sums &was, const T *b, const T *hs,
                                          int h_lead, const proa_lora_use &use, T (*panels)[16][PANEL_LEAD])
{
    for (int panel = threadIdx.x / 32; panel < run.count; panel += GROUP) {
        uint4 now[UNROLL];
        float sum[UNROLL][2][4] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++) now[u] = next[u];
        load_panels(next, run, panel + GROUP, b, l.rank, 0);
        multiply_panels<T>(sum, panels, now, hs, h_lead, 0);
        for (int j = 16; j < use.rank; j += 16) {
            load_panels(now, run, panel, b, l.rank, j);
            multiply_panels<T>(sum, panels, now, hs, h_lead, j);
        }
        store_sums<PAIRS>(was, sum, l.alpha * use.scale, run, panel, to);
        if (!SET) load_sums<PAIRS>(was, run, panel + GROUP, to);
    }
}

/* The products p of a row with a lane's 8 columns are added over the 16 lanes that share the rank. The lane keeps the
 * sum of one column of the panel: kept_column. */
__device__ static inline int kept_column()
{
    int lane = threadIdx.x % 32;
    return lane % 2 * 8 + (lane & 16 ? 4 : 0) + (lane & 8 ? 2 : 0) + (lane & 4 ? 1 : 0);
}

__device__ static inline float add_ranks(float (&p)[8])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 4; half > 0; half /= 2) { /* lanes 16, 8 and 4 apart share the columns between them */
        bool upper = lane & 4 * half;
#pragma unroll
        for (int i = 0; i < half; i++) {
            float other = __shfl_xor_sync(0xffffffffu, upper ? p[i] : p[i + half], 4 * half);
            p[i] = (upper ? p[i + half] : p[i]) + other;
        }
    }
    return p[0] + __shfl_xor_sync(0xffffffffu, p[0], 2);
}

/* y of a segment of few rows for UNROLL panels v of a rank of 16. */
template <bool SET, typename Y, typename T>
__device__ static inline void expand_panels(Y *y, int64_t y_row, const lora_args &l,
                                            const proa_lora_segment &s, const panel_run &run, int panel,
                                            const uint4 (&v)[UNROLL], const T *hs, int h_lead, float scale)
{
    int lane = threadIdx.x % 32, column = kept_column();
    for (int r = 0; r < s.rows; r++) {
        Y *to = y + l.order[s.first + r] * y_row + run.column + column;
        float factor = gpu_to_f32(hs[r * h_lead + lane / 2]), was[UNROLL] = {};
        auto makes = [&](int u) {
            int at = panel + u * EXPAND_WARPS;
            return at < run.count && run.column + at * PANEL + column < run.end;
        };
#pragma unroll
        for (int u = 0; u < UNROLL && !SET; u++)
            if (makes(u)) was[u] = gpu_to_f32(to[(panel + u * EXPAND_WARPS) * PANEL]);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float p[8];
            open8<T>(p, v[u]);
#pragma unroll
            for (int i = 0; i < 8; i++) p[i] *= factor;
            float sum = add_ranks(p);
            if (!(lane & 2) && makes(u))
                to[(panel + u * EXPAND_WARPS) * PANEL] = gpu_saturate<Y>(fmaf(scale, sum, was[u]));
        }
    }
}

/* The same for all panels of the run; next: the first ones. */
template <bool SET, typename Y, typename T>
__device__ static inline void expand_few(Y *y, int64_t y_row, const lora_args &l, const proa_lora_segment &s,
                                         const panel_run &run, uint4 (&next)[UNROLL], const T *b, const T *hs,
                                         int h_lead, float scale)
{
    for (int panel = threadIdx.x / 32; panel < run.count; panel += GROUP) {
        uint4 now[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) now[u] = next[u];
        load_panels(next, run, panel + GROUP, b, l.rank, 0);
        expand_panels<SET>(y, y_row, l, s, run, panel, now, hs, h_lead, scale);
    }
}

/* Grid: segment, run of panels. A warp has UNROLL panels at a time, and the next ones in flight. Registers: y 32 where
 * it is read, sums 32, panels 32. Dynamic shared memory: h. Blocks of empty segments make room at once, but for one: a
 * kernel of which no block waits would end before the one before. */
template <bool PAIRS, bool SET, typename Y, typename T>
__global__ void __launch_bounds__(EXPAND_THREADS, expand_blocks(SET))
    lora_expand_mma_kernel(Y *y, int64_t y_row, lora_args l)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ __align__(16) T panels[EXPAND_WARPS][UNROLL][16][PANEL_LEAD];
    T *hs = reinterpret_cast<T *>(memory);
    int warp = threadIdx.x / 32, h_lead = l.rank + 8;
    proa_lora_segment s = l.segments[blockIdx.x];
    if (!s.rows && (blockIdx.x > 0 || blockIdx.y > 0)) return;
    panel_run run = find_run(l, blockIdx.y);
    proa_lora_use use = {};
    if (s.rows) use = uses_of(l, s)[run.piece];
    bool few = sizeof(Y) == 2 && s.rows <= FEW_ROWS && l.rank == 16;
    const T *b = reinterpret_cast<const T *>(s.base + l.b);
    uint4 next[UNROLL] = {};
    lane_sums was = {};
    Y *to[2];
    find_rows(to, y, y_row, l, s);
    if (use.rank) {
        load_panels(next, run, warp, b, l.rank, 0);
        if (!SET && !l.early) load_sums<PAIRS>(was, run, warp, to);
        prefetch_panels(run, b, l.rank, GROUP);
    }
    gpu_wait();
    if (!use.rank) return;
    if (!SET && l.early) load_sums<PAIRS>(was, run, warp, to);
    add_parts(hs, h_lead, l, s, run.piece, use.rank);
    __syncthreads();
    if (few) expand_few<SET>(y, y_row, l, s, run, next, b, hs, h_lead, l.alpha * use.scale);
    else expand_many<PAIRS, SET>(to, l, run, next, was, b, hs, h_lead, use, panels[warp]);
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

/* Groups of columns of A that blocks of shrink share. */
static int column_groups(const lora_args &a)
{
    return (a.columns + 16 * TILES - 1) / (16 * TILES);
}

/* Inputs of a block of shrink: so many that all blocks have room at once, as far as A's part fits. */
static int inputs_of_part(const gpu *g, const lora_args &a, int64_t segments)
{
    int columns = a.columns < 16 * TILES ? a.columns : 16 * TILES;
    int most = PART_BYTES / (int)sizeof(__half) / columns / 16 * 16, part = most < STEP ? most : (int)STEP;
    int64_t room = SHRINK_BLOCKS * g->sms / (segments * column_groups(a));
    if (room < 1) room = 1;
    int64_t wanted = (a.K + room - 1) / room;
    if (wanted <= part) return part;
    return wanted < most ? (int)(wanted + 15) / 16 * 16 : most;
}

static lora_args make_args(gpu *g, const proa_lora *l, const proa_lora_rows *rows, proa_view y)
{
    int64_t T = y.shape[0], size = proa_dtype_bytes(y.dtype), segments = rows->count > 0 ? rows->count : 1;
    lora_args a = {l->use, l->a, l->b, l->rank, l->pieces, (int)l->K, l->rank * l->pieces};
    for (int p = 0; p < l->pieces; p++) a.end[p] = l->end[p];
    a.alpha = l->alpha == 0.0f ? 1.0f : l->alpha;
    a.order = rows->order, a.segments = rows->segment, a.rows = T;
    a.set = l->set, a.early = l->set || T <= EARLY_ROWS, a.y = (char *)y.data, a.y_row = y.stride[0] * size,
    a.y_bytes = y.shape[1] * size;
    a.part = inputs_of_part(g, a, segments);
    a.parts = (a.K + a.part - 1) / a.part;
    a.h = (float *)gpu_cast_workspace(g, (size_t)a.parts * T * a.columns * sizeof(float));
    return a;
}

template <typename X, typename T>
static void launch_shrink_mma(gpu *g, proa_view x, const lora_args &a, dim3 grid)
{
    auto kernel = gpu_is_vec8(x) && a.K % 8 == 0 ? lora_shrink_mma_kernel<true, X, T>
                                                 : lora_shrink_mma_kernel<false, X, T>;
    int columns = a.columns < 16 * TILES ? a.columns : 16 * TILES;
    grid.z = (unsigned)column_groups(a);
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, PART_BYTES),
             "lora_shrink");
    gpu_launch(g, "lora_shrink", kernel, grid, SHRINK_THREADS, (size_t)a.part * columns * sizeof(T),
               (const X *)x.data, x.stride[0], a);
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
    auto kernel = pairs   ? a.set ? lora_expand_mma_kernel<true, true, Y, T>
                                  : lora_expand_mma_kernel<true, false, Y, T>
                    : a.set ? lora_expand_mma_kernel<false, true, Y, T>
                          : lora_expand_mma_kernel<false, false, Y, T>;
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
static unsigned divide_panels(const gpu *g, lora_args *a, const proa_lora *l, unsigned segments)
{
    unsigned blocks = 0;
    int64_t all = 0, wanted, room = (int64_t)expand_blocks(a->set) * g->sms;
    for (int p = 0; p < l->pieces; p++) all += proa_lora_panels(l, p);
    wanted = all * segments / room;
    a->panels = (int)(wanted < GROUP ? (int64_t)GROUP : (wanted + GROUP - 1) / GROUP * GROUP);
    for (int p = 0; p < l->pieces; p++)
        blocks += (unsigned)((proa_lora_panels(l, p) + a->panels - 1) / a->panels);
    return blocks;
}

static void lora_op(proa_ctx *c, proa_view y, proa_view x, const proa_lora *l, const proa_lora_rows *rows)
{
    gpu *g = gpu_flushed(c, y);
    unsigned segments = (unsigned)rows->count;
    if (y.shape[0] == 0 || (!segments && !l->set)) return;
    lora_args a = make_args(g, l, rows, y);
    if (!segments) {
        gpu_note(g, cudaMemset2DAsync(y.data, (size_t)a.y_row, 0, (size_t)a.y_bytes, (size_t)a.rows, g->stream),
                 "lora");
        g->serialize_next = true;
        return;
    }
    launch_shrink(g, x, l->dtype, a, dim3(segments, (unsigned)a.parts));
    unsigned blocks = divide_panels(g, &a, l, segments);
    launch_expand(g, y, l->dtype, a, dim3(segments, blocks));
}

/* ---- beside a product ---- */

/* The sums of a matrix and of its adapters. A product of many rows leaves memory bandwidth, and SMs, that the adapters'
 * kernels can use meanwhile: they run as a branch, and what they add waits for the kernel that reads the sums. */
static void sum_beside(proa_ctx *c, proa_view sums, proa_view x, const proa_weight *w, const proa_epilogue *e,
                       const proa_lora *l, const proa_lora_rows *rows)
{
    proa_device *d = &gpu_of(c)->base;
    proa_view added = proa_view_2d(l->sums, sums.dtype, sums.shape[0], sums.shape[1]);
    proa_lora own = *l;
    own.set = true, own.alpha = e->alpha;
    d->branch_begin(d);
    lora_op(c, added, x, &own, rows);
    d->branch_end(d);
    c->ops->linear(c, sums, x, w, e);
    d->branch_join(d);
    c->ops->add(c, sums, sums, added);
}

static void linear_lora_op(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w,
                           const proa_epilogue *e, const proa_lora *l, const proa_lora_rows *rows)
{
    gpu *g = gpu_of(c); /* not flushed: linear may take a norm that is deferred */
    proa_view sums = e->gated ? e->workspace : y;
    proa_epilogue plain = *e;
    proa_lora own = *l;
    int64_t F = w->N / 2;
    if (y.shape[0] == 0 || (rows->count && gpu_gemm_lora(g, y, x, w, e, l, rows))) return;
    plain.act = PROA_ACT_NONE, plain.gated = false, plain.workspace = proa_view{};
    own.set = false, own.alpha = e->alpha;
    if (l->sums && y.shape[0] > GPU_FEW_ROWS) sum_beside(c, sums, x, w, &plain, &own, rows);
    else {
        c->ops->linear(c, sums, x, w, &plain);
        lora_op(c, sums, x, &own, rows);
    }
    if (e->gated) c->ops->act_mul(c, y, proa_view_cols(sums, 0, F), proa_view_cols(sums, F, 2 * F), e->act);
    else if (e->act) c->ops->act(c, y, e->act);
}

void gpu_fill_lora(proa_ops *ops)
{
    ops->lora = lora_op, ops->linear_lora = linear_lora_op, ops->lora_stack = gpu_lora_stack;
}
