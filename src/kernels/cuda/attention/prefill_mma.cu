/* SPDX-License-Identifier: Apache-2.0
 * prefill_mma.cu - attention of many rows on tensor cores of any GPU (mma.sync, online softmax as in
 * FlashAttention-2, Dao 2023). A block holds 16 ROW_TILES queries for each of its WARPS and walks over the
 * keys, a page of 64 at a time. Measurements: docs/lab/cuda-attention.md (bench/gpu/prefill.cu). */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/runtime/mma.h"
#include "kernels/cuda/attention/tile.h"

#include <type_traits>

/* Waits until all but the latest LEFT groups have arrived, for all threads of the block. */
template <int LEFT> __device__ static inline void cp_async_wait_block()
{
    cp_async_wait<LEFT>();
    __syncthreads();
}

/* ROWS rows of DIM elements; those from `valid` on become zeros. */
template <typename T, int ROWS, int DIM, int THREADS>
__device__ static void load_tile(T *to, const T *from, int64_t step, int valid)
{
    const int PIECES = DIM / 8, LD = DIM + 8;
    if constexpr (THREADS % PIECES ==
                  0) { /* a thread goes down a column: one constant step from each address to the next */
        const int EACH = THREADS / PIECES;
        int row = (int)(threadIdx.x / PIECES), piece = (int)(threadIdx.x % PIECES);
        unsigned at = smem_address(to + row * LD + piece * 8);
        const T *source = from + row * step + piece * 8;
#pragma unroll
        for (int r = 0; r < ROWS; r += EACH, source += EACH * step)
            cp_async16(at + r * LD * 2, source, row + r < valid);
    } else {
#pragma unroll
        for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
            int row = i / PIECES, piece = i % PIECES;
            cp_async16(smem_address(to + row * LD + piece * 8), from + row * step + piece * 8, row < valid);
        }
    }
}

/* Pages of e4m3 are unpacked on the way, so they go through registers. */
template <typename T, int ROWS, int DIM, int THREADS>
__device__ static void load_tile(T *to, const __nv_fp8_e4m3 *from, int64_t step, int valid)
{
    const int PIECES = DIM / 16, LD = DIM + 8;
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
        int row = i / PIECES, piece = i % PIECES;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (row < valid) v = *reinterpret_cast<const uint4 *>(from + row * step + piece * 16);
        const __nv_fp8x2_storage_t *pair = reinterpret_cast<const __nv_fp8x2_storage_t *>(&v);
        unsigned wide[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            __half2 h = __half2(__nv_cvt_fp8x2_to_halfraw2(pair[k], __NV_E4M3));
            if constexpr (std::is_same<T, __half>::value) wide[k] = *reinterpret_cast<unsigned *>(&h);
            else wide[k] = gpu_mma<T>::pair(__low2float(h), __high2float(h));
        }
        uint4 *at = reinterpret_cast<uint4 *>(to + row * LD + piece * 16);
        at[0] = make_uint4(wide[0], wide[1], wide[2], wide[3]),
        at[1] = make_uint4(wide[4], wide[5], wide[6], wide[7]);
    }
}

template <typename T, int ROWS, int DIM, int THREADS>
__device__ static void load_queries(T *to, const attention_task &t, int64_t row, int h, int valid)
{
    if (t.type != PROA_DTYPE_F32) {
        load_tile<T, ROWS, DIM, THREADS>(to, (const T *)t.q + row * t.q_row + h * t.q_head, t.q_row, valid);
        return;
    }
    for (int i = threadIdx.x; i < ROWS * DIM; i += THREADS) {
        int r = i / DIM, e = i % DIM;
        to[r * (DIM + 8) + e] = gpu_saturate<T>(
            r < valid ? ((const float *)t.q)[(row + r) * t.q_row + h * t.q_head + e] : 0.0f);
    }
}

/* What spans have beside rows and keys: trees of draft tokens, or side keys. */
enum span_form { PLAIN, TREES, SIDE_KEYS };

/* Of SIDE_KEYS: the keys, and whether only the global rows of each span are computed (proa_attention). */
struct side_task {
    proa_side_keys keys; /* k is NULL: there are none */
    bool of_globals;
};

/* What one warp works on. */
template <typename T, int DIM, int ROW_TILES> struct warp_tile {
    static const int LD = DIM + 8, STEPS = DIM / 16, TILES = DIM / 8, KEPT = ROW_TILES * STEPS <= 8, DEPTH = 4;
    /* Queries of small heads stay in registers; those of others are read from shared memory again for each page. */
    unsigned queries[KEPT ? STEPS : 1][ROW_TILES][4];
    float out[ROW_TILES][TILES][4], score[ROW_TILES][8][4], largest[ROW_TILES][2], total[ROW_TILES][2];

    __device__ void load_step(unsigned a[ROW_TILES][4], const T *qs, int k)
    {
        int lane = threadIdx.x & 31, row = threadIdx.x / 32 * 16 * ROW_TILES + lane % 16;
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
            ldmatrix_x4(a[m], smem_address(qs + (row + 16 * m) * LD + k * 16 + lane / 16 * 8));
    }

    __device__ void begin(const T *qs)
    {
        if constexpr (KEPT)
#pragma unroll
            for (int k = 0; k < STEPS; k++) load_step(queries[k], qs, k);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
            largest[m][0] = largest[m][1] = -INFINITY, total[m][0] = total[m][1] = 0.0f;
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) out[m][n][i] = 0.0f;
        }
    }

    __device__ void multiply_keys(const T *qs, const T *ks)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) score[m][n][i] = 0.0f;
        unsigned a[2][ROW_TILES][4], b[DEPTH][4]; /* reads are DEPTH - 1 loads ahead of the products */
        auto read = [&](int i) {
            int k = i / 4, n = i % 4 * 2;
            if (!KEPT && n == 0) load_step(a[k % 2], qs, k);
            ldmatrix_x4(b[i % DEPTH],
                        smem_address(ks + (n * 8 + lane / 16 * 8 + lane % 8) * LD + k * 16 + lane / 8 % 2 * 8));
        };
#pragma unroll
        for (int i = 0; i < DEPTH - 1; i++) read(i);
#pragma unroll
        for (int i = 0; i < STEPS * 4; i++) {
            int k = i / 4, n = i % 4 * 2;
            if (i + DEPTH - 1 < STEPS * 4) read(i + DEPTH - 1);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                const unsigned *q = KEPT ? queries[KEPT ? k : 0][m] : a[k % 2][m];
                gpu_mma<T>::run(score[m][n], q, b[i % DEPTH][0], b[i % DEPTH][1]);
                gpu_mma<T>::run(score[m][n + 1], q, b[i % DEPTH][2], b[i % DEPTH][3]);
            }
        }
    }

    /* at: position of this warp's first row; key: first key of the page; keys before `lowest` are left to the side
     * keys. Scores with score_mod are scaled here. */
    __device__ void mask(const attention_task &t, const float *bias, float slope, int at, int key,
                         int context, int lowest)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int p = key + n * 8 + lane % 4 * 2 + i % 2, row = at + m * 16 + lane / 4 + i / 2 * 8,
                        d = p - row;
                    bool seen = p < end_key(t, context, row) && p >= max(first_key(t, row), lowest) &&
                                p < context;
                    int near = d < -t.reach ? -t.reach : d > t.reach ? t.reach : d;
                    if (t.has_score_mod)
                        score[m][n][i] = score_mod(t, score[m][n][i] * t.scale,
                                                   t.rel_bias ? bias[near + t.reach] : 0.0f, slope, d);
                    if (!seen) score[m][n][i] = -INFINITY;
                }
    }

    /* The same of a span with a tree. i: the warp's first row in the span. */
    __device__ void mask_tree(const attention_task &t, const proa_span &s, const float *bias, float slope,
                              int i, int key)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const tree_row row = tree_row_of(t, s, i + m * 16 + lane / 4 + 8 * r);
                int begin = first_key(t, row.at);
#pragma unroll
                for (int n = 0; n < 8; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        float *x = &score[m][n][2 * r + c];
                        int position = row.position(key + n * 8 + lane % 4 * 2 + c), d = position - row.at;
                        int near = d < -t.reach ? -t.reach : d > t.reach ? t.reach : d;
                        if (position < begin || position > row.at) *x = -INFINITY;
                        else if (t.has_score_mod)
                            *x = score_mod(t, *x * t.scale, t.rel_bias ? bias[near + t.reach] : 0.0f, slope, d);
                    }
            }
    }

    /* The mask of the page that begins at `key`, if any of its keys is not seen by all. i: the warp's first row in the
     * span; tree: the first key of the span's tree. */
    template <span_form FORM>
    __device__ void mask_page(const attention_task &t, const proa_span &s, const float *bias, float slope,
                              int at, int i, int key, int tree, int lowest)
    {
        bool cut = key + PAGE > s.context || t.has_score_mod || t.window > 0 ||
                   (t.causal && key + PAGE > at + 1) || (FORM == TREES && key + PAGE > tree) ||
                   (FORM == SIDE_KEYS && key < lowest);
        if (FORM == TREES && cut && s.tree) mask_tree(t, s, bias, slope, i, key);
        else if (cut) mask(t, bias, slope, at, key, s.context, FORM == SIDE_KEYS ? lowest : 0);
    }

    /* The same of 64 side keys of `count`, the first of which is number `key`. bias: by the distance from a row's block
     * to that of the key. */
    __device__ void mask_side(const attention_task &t, const proa_side_keys &side, const proa_span &s,
                              const float *bias, int i, int key, int count)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int at = (int)proa_side_at(&side, &s, i + m * 16 + lane / 4 + 8 * r);
#pragma unroll
                for (int n = 0; n < 8; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        float *x = &score[m][n][2 * r + c];
                        int j = key + n * 8 + lane % 4 * 2 + c, d = max(-t.reach, min(j - at, t.reach));
                        if (j >= count) *x = -INFINITY;
                        else if (t.has_score_mod)
                            *x = score_mod(t, *x * t.scale, side.rel_bias ? bias[d + t.reach] : 0.0f, 0.0f, 0);
                    }
            }
    }

    /* Online softmax: scores become weights. unit: the factor from a score to powers of 2. */
    __device__ void apply_softmax(float unit)
    {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float now = largest[m][r], sum = 0.0f;
#pragma unroll
                for (int n = 0; n < 8; n++)
                    now = fmaxf(now, fmaxf(score[m][n][2 * r], score[m][n][2 * r + 1]));
                now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
                now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
                float usable = now == -INFINITY ? 0.0f : now * unit;
                float shrink = exp2_approx(fmaf(largest[m][r], unit, -usable));
#pragma unroll
                for (int n = 0; n < 8; n++)
#pragma unroll
                    for (int i = 2 * r; i < 2 * r + 2; i++) {
                        score[m][n][i] = exp2_approx(fmaf(score[m][n][i], unit, -usable));
                        sum += score[m][n][i];
                    }
                total[m][r] = total[m][r] * shrink + sum;
                largest[m][r] = now;
#pragma unroll
                for (int n = 0; n < TILES; n++) out[m][n][2 * r] *= shrink, out[m][n][2 * r + 1] *= shrink;
            }
    }

    __device__ void multiply_values(const T *vs)
    {
        const int PAIRS = TILES / 2;
        int lane = threadIdx.x & 31;
        unsigned a[ROW_TILES][4], b[DEPTH][4];
        auto read = [&](int i) {
            int k = i / PAIRS, n = i % PAIRS * 2;
            ldmatrix_x4_trans(b[i % DEPTH], smem_address(vs + (k * 16 + lane % 16) * LD + n * 8 + lane / 16 * 8));
        };
#pragma unroll
        for (int i = 0; i < DEPTH - 1; i++) read(i);
#pragma unroll
        for (int i = 0; i < 4 * PAIRS; i++) {
            int k = i / PAIRS, n = i % PAIRS * 2;
            if (i + DEPTH - 1 < 4 * PAIRS) read(i + DEPTH - 1);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
                for (int j = 0; j < 4 && n == 0; j++)
                    a[m][j] = gpu_mma<T>::pair(score[m][2 * k + j / 2][j % 2 * 2],
                                               score[m][2 * k + j / 2][j % 2 * 2 + 1]);
                gpu_mma<T>::run(out[m][n], a[m], b[i % DEPTH][0], b[i % DEPTH][1]);
                gpu_mma<T>::run(out[m][n + 1], a[m], b[i % DEPTH][2], b[i % DEPTH][3]);
            }
        }
    }

    /* row: this warp's first row in the step; rows: how many it has. */
    __device__ void end(const attention_task &t, int64_t row, int rows, int h, float unit)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float sum = total[m][r];
                sum += __shfl_xor_sync(0xffffffffu, sum, 1);
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                int i = m * 16 + lane / 4 + 8 * r;
                if (i >= rows) continue;
                sum += sink_weight(t, h, largest[m][r] * unit);
                float inverse = sum > 0.0f || isnan(sum) ? 1.0f / sum : 0.0f;
                int64_t to = (row + i) * t.y_row + h * t.y_head;
#pragma unroll
                for (int n = 0; n < TILES; n++) {
                    int64_t e = to + n * 8 + lane % 4 * 2;
                    float x = out[m][n][2 * r] * inverse, y = out[m][n][2 * r + 1] * inverse;
                    if (t.type == PROA_DTYPE_F32) ((float *)t.y)[e] = x, ((float *)t.y)[e + 1] = y;
                    else *reinterpret_cast<unsigned *>((T *)t.y + e) = gpu_mma<T>::pair(x, y);
                }
            }
    }
};

/* The keys of the rows of a block, in tiles of PAGE: pages [first, own) of the window, then side keys [own, all). */
struct key_tiles {
    int first, own, all;
    int lowest, side_count; /* of SIDE_KEYS: the first key of the window; how many side keys there are */
};

/* offset: the position of the first of the block's rows. */
template <span_form FORM>
__device__ static inline key_tiles find_tiles(const attention_task &t, const proa_side_keys &side,
                                              const proa_span &s, int offset, int rows)
{
    key_tiles k = {0, 0, 0, 0, 0};
    if (FORM == SIDE_KEYS && side.k)
        k.lowest = (int)proa_side_skipped(&side, &s), k.side_count = (int)proa_side_count(&side, &s);
    int first = max(first_key(t, FORM == TREES ? min(offset, s.context - s.tree) : offset), k.lowest);
    int last = max(end_key(t, s.context, offset + rows - 1), first); /* of all rows of the block */
    k.first = first / PAGE, k.own = (last + PAGE - 1) / PAGE;
    k.all = k.own + (k.side_count + PAGE - 1) / PAGE;
    return k;
}

/* Copies tile `which` of the keys or of the values. */
template <typename T, typename P, int DIM, int THREADS, span_form FORM>
__device__ static inline void load_keys(T *to, const attention_task &t, const proa_side_keys &side,
                                        const proa_span &s, const key_tiles &tiles, bool of_values, int which,
                                        int kv)
{
    int64_t step = t.kv_row ? t.kv_row : DIM;
    const P *from;
    int count = s.context - which * PAGE;
    if (FORM == SIDE_KEYS && which >= tiles.own) {
        int first = (which - tiles.own) * PAGE;
        step = side.row, count = tiles.side_count - first;
        from = (const P *)(of_values ? side.v : side.k) + (proa_side_first(&side, &s) + first) * step + kv * DIM;
    } else {
        from = page_of<P>(t, of_values ? t.v : t.k, s, which, kv);
    }
    load_tile<T, PAGE, DIM, THREADS>(to, from, step, count);
}

/* A head's biases by distance, [2 reach + 1]. table [buckets][heads]; NULL: none. */
template <int THREADS>
__device__ static inline void load_biases(float *to, const attention_task &t, const float *table, int h)
{
    for (int i = threadIdx.x; table && i <= 2 * t.reach; i += THREADS)
        to[i] = table[t.buckets[i] * t.heads + h];
}

/* y = softmax(mask(score_mod(scale q K^T))) V for the rows of a span and one head. T: type of the products
 * (f16, bf16), P: of the pages.
 *
 *   warp       16 ROW_TILES rows: scores [rows][64] and result [rows][DIM] in registers, ROW_TILES (32 + DIM / 2)
 *              floats a lane
 *   shared     queries 16 ROW_TILES WARPS rows, one or two pages of keys and of values, rows of DIM + 8 elements
 *
 * DOUBLE_BUFFER: the next page's keys and values are loaded while this page is worked on. Otherwise, where
 * two pages would take the room of a second block, keys are loaded during the product with the values and
 * values during that with the keys. Grid: span, head, tile of rows (last rows first: they have the most
 * keys). With SIDE_KEYS the side keys follow those of the window, 64 at a time like pages. */
template <typename T, typename P, int DIM, int ROW_TILES, int WARPS, bool DOUBLE_BUFFER, int BLOCKS, span_form FORM>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) prefill_mma_kernel(attention_task t, side_task side)
{
    const int THREADS = 32 * WARPS, ROWS = 16 * ROW_TILES * WARPS, LD = DIM + 8, BUFFERS = DOUBLE_BUFFER ? 2 : 1;
    extern __shared__ __align__(128) char memory[];
    T *qs = reinterpret_cast<T *>(memory), *keys = qs + ROWS * LD, *values = keys + BUFFERS * PAGE * LD;
    float *bias = reinterpret_cast<float *>(values + BUFFERS * PAGE * LD);
    float *side_bias = bias + (t.rel_bias ? 2 * t.reach + 1 : 0);
    int h = blockIdx.y, kv = h / t.group, warp = threadIdx.x / 32;
    gpu_wait();
    proa_span s = t.spans[blockIdx.x];
    int begin = (int)(gridDim.z - 1 - blockIdx.z) * ROWS; /* long ones first */
    int computed = FORM == SIDE_KEYS && side.of_globals ? min(s.globals, s.rows) : s.rows;
    if ((is_single_row(s) && !t.kv_row) || begin >= computed) return;
    int rows = min(computed - begin, ROWS), offset = s.context - s.rows + begin;
    int tree = s.context - s.tree; /* keys from here on are a tree's */
    const key_tiles tiles = find_tiles<FORM>(t, side.keys, s, offset, rows);
    int page = tiles.first, pages = tiles.all;
    auto load = [&](T *to, bool of_values, int which) {
        load_keys<T, P, DIM, THREADS, FORM>(to, t, side.keys, s, tiles, of_values, which, kv);
    };
    load_queries<T, ROWS, DIM, THREADS>(qs, t, s.row + begin, h, rows);
    cp_async_commit();
    if (page < pages) load(keys, false, page);
    if (DOUBLE_BUFFER && page < pages) load(values, true, page);
    cp_async_commit();
    load_biases<THREADS>(bias, t, t.rel_bias, h);
    if (FORM == SIDE_KEYS) load_biases<THREADS>(side_bias, t, side.keys.rel_bias, h);
    int mine = warp * 16 * ROW_TILES,
        at = offset + mine; /* this warp's first row in the block, and that row's position */
    float unit = (t.has_score_mod ? 1.0f : t.scale) * 1.4426950408889634f, slope = slope_of(t, h);
    warp_tile<T, DIM, ROW_TILES> work;
    cp_async_wait_block<1>();
    work.begin(qs);
    for (int buffer = 0; page < pages; page++, buffer ^= DOUBLE_BUFFER) {
        T *ks = keys + buffer * PAGE * LD, *vs = values + buffer * PAGE * LD;
        int key = page * PAGE;
        bool more = page + 1 < pages, of_side = FORM == SIDE_KEYS && page >= tiles.own,
             active = mine < rows && (of_side || key < end_key(t, s.context, at + 16 * ROW_TILES - 1));
        if (DOUBLE_BUFFER) {
            cp_async_wait_block<0>();
            if (more)
                load(keys + (buffer ^ 1) * PAGE * LD, false, page + 1),
                    load(values + (buffer ^ 1) * PAGE * LD, true, page + 1);
            cp_async_commit();
        } else {
            load(vs, true, page);
            cp_async_commit();
            cp_async_wait_block<1>();
        }
        if (active) {
            work.multiply_keys(qs, ks);
            if (of_side)
                work.mask_side(t, side.keys, s, side_bias, begin + mine, (page - tiles.own) * PAGE,
                               tiles.side_count);
            else work.template mask_page<FORM>(t, s, bias, slope, at, begin + mine, key, tree, tiles.lowest);
        }
        if (!DOUBLE_BUFFER) {
            __syncthreads();
            if (more) load(keys, false, page + 1);
            cp_async_commit();
        }
        if (active) work.apply_softmax(unit);
        if (!DOUBLE_BUFFER) cp_async_wait_block<1>();
        if (active) work.multiply_values(vs);
        if (!DOUBLE_BUFFER) __syncthreads();
    }
    work.end(t, s.row + begin + mine, rows - mine, h, unit);
}

/* False: a block cannot have this much shared memory on this GPU; nothing was launched. */
template <typename T, typename P, int DIM, int ROW_TILES, int WARPS, bool DOUBLE_BUFFER, int BLOCKS, span_form FORM = PLAIN>
static bool launch_prefill(gpu *g, const attention_task &t, const proa_spans *spans, const side_task &side = {})
{
    const int ROWS = 16 * ROW_TILES * WARPS, rows = spans->rows_max;
    auto kernel = prefill_mma_kernel<T, P, DIM, ROW_TILES, WARPS, DOUBLE_BUFFER, BLOCKS, FORM>;
    size_t shared = (size_t)(ROWS + (DOUBLE_BUFFER ? 4 : 2) * PAGE) * (DIM + 8) * sizeof(T);
    int biases = (t.rel_bias != NULL) + (side.keys.rel_bias != NULL);
    shared += (size_t)biases * (size_t)(2 * t.reach + 1) * sizeof(float);
    if (shared > (size_t)g->shared_max) return false;
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
             "attend (prefill)");
    gpu_launch(g, "attend (prefill)", kernel,
               dim3((unsigned)spans->count, (unsigned)t.heads, (unsigned)((rows + ROWS - 1) / ROWS)),
               32 * WARPS, shared, t, side);
    return true;
}

/* Blocks of 128 rows that have rows; spans of one row have none. */
static int64_t tall_blocks(const attention_task &t, const proa_spans *spans)
{
    int64_t count = spans->long_count && !t.kv_row ? spans->long_count : spans->count;
    return count * t.heads * ((spans->rows_max + 127) / 128);
}

/* 32 queries a warp if every SM then still has a block: keys are read from shared memory half as often. With
 * few queries smaller blocks on more SMs, and double buffering. */
template <typename T, typename P>
static bool launch_64(gpu *g, const attention_task &t, const proa_spans *spans)
{
    int64_t blocks = tall_blocks(t, spans);
    if (blocks >= g->sms) return launch_prefill<T, P, 64, 2, 4, false, 2>(g, t, spans);
    if (4 * blocks >= g->sms) return launch_prefill<T, P, 64, 1, 4, true, 3>(g, t, spans);
    return launch_prefill<T, P, 64, 1, 2, true, 2>(g, t, spans);
}

/* The taller form takes 102 KB, more than a block may have on 8.6 and 8.9. */
template <typename T, typename P>
static bool launch_128(gpu *g, const attention_task &t, const proa_spans *spans)
{
    int64_t blocks = tall_blocks(t, spans);
    if (blocks >= g->sms && launch_prefill<T, P, 128, 2, 4, true, 2>(g, t, spans)) return true;
    return launch_prefill<T, P, 128, 1, 4, true, 2>(g, t, spans);
}

/* Trees have at most 64 rows: one size of block does for all. */
template <typename T, typename P>
static bool prefill_trees(gpu *g, const attention_task &t, const proa_spans *spans)
{
    switch (t.dim) {
    case 16: return launch_prefill<T, P, 16, 1, 4, true, 2, TREES>(g, t, spans);
    case 32: return launch_prefill<T, P, 32, 1, 4, true, 2, TREES>(g, t, spans);
    case 64: return launch_prefill<T, P, 64, 1, 4, true, 2, TREES>(g, t, spans);
    case 80: return launch_prefill<T, P, 80, 1, 4, true, 2, TREES>(g, t, spans);
    case 96: return launch_prefill<T, P, 96, 1, 4, true, 2, TREES>(g, t, spans);
    case 128: return launch_prefill<T, P, 128, 1, 4, true, 2, TREES>(g, t, spans);
    case 256: return launch_prefill<T, P, 256, 1, 4, false, 2, TREES>(g, t, spans);
    default: return false;
    }
}

template <typename T, typename P>
static bool launch_by_dim(gpu *g, const attention_task &t, const proa_spans *spans)
{
    if (t.seen) return prefill_trees<T, P>(g, t, spans);
    switch (t.dim) {
    case 16: return launch_prefill<T, P, 16, 1, 4, true, 2>(g, t, spans);
    case 32: return launch_prefill<T, P, 32, 1, 4, true, 2>(g, t, spans);
    case 64: return launch_64<T, P>(g, t, spans);
    case 80: return launch_prefill<T, P, 80, 1, 4, true, 2>(g, t, spans);
    case 96: return launch_prefill<T, P, 96, 1, 4, true, 2>(g, t, spans);
    case 128: return launch_128<T, P>(g, t, spans);
    case 256: return launch_prefill<T, P, 256, 1, 4, false, 2>(g, t, spans);
    default: return false;
    }
}

/* Whether a kernel of 16 bits may copy q, y, keys and values by 16 bytes. */
static bool is_aligned_for_mma(const attention_task &t, proa_dtype pages)
{
    bool ok = (t.type == PROA_DTYPE_F32 || t.type == pages || pages == PROA_DTYPE_FP8) && t.kv_row % 8 == 0 &&
              ((uintptr_t)t.k | (uintptr_t)t.v) % 16 == 0 && t.reach <= 4096;
    if (t.type != PROA_DTYPE_F32)
        ok = ok && (t.q_row | t.q_head | t.y_row | t.y_head) % 8 == 0 &&
             ((uintptr_t)t.q | (uintptr_t)t.y) % 16 == 0;
    return ok && pages != PROA_DTYPE_F32;
}

template <typename T>
static bool launch_side(gpu *g, const attention_task &t, const proa_spans *spans, const side_task &side)
{
    switch (t.dim) {
    case 16: return launch_prefill<T, T, 16, 1, 4, true, 2, SIDE_KEYS>(g, t, spans, side);
    case 32: return launch_prefill<T, T, 32, 1, 4, true, 2, SIDE_KEYS>(g, t, spans, side);
    case 64: return launch_prefill<T, T, 64, 1, 4, true, 3, SIDE_KEYS>(g, t, spans, side);
    case 128: return launch_prefill<T, T, 128, 1, 4, true, 2, SIDE_KEYS>(g, t, spans, side);
    default: return false;
    }
}

bool gpu_prefill_side(gpu *g, const attention_task &t, proa_dtype keys, const proa_attention &a,
                      const proa_spans *spans)
{
    side_task side = {{}, a.of_globals};
    if (a.side) side.keys = *a.side;
    bool aligned = side.keys.row % 8 == 0 && ((uintptr_t)side.keys.k | (uintptr_t)side.keys.v) % 16 == 0;
    if (!t.kv_row || t.type != keys || t.alibi || !aligned || !is_aligned_for_mma(t, keys)) return false;
    return keys == PROA_DTYPE_BF16 ? launch_side<__nv_bfloat16>(g, t, spans, side)
                                   : launch_side<__half>(g, t, spans, side);
}

bool gpu_prefill_mma(gpu *g, const attention_task &t, proa_dtype pages, const proa_spans *spans)
{
    if (!is_aligned_for_mma(t, pages)) return false;
    bool bf16 = pages == PROA_DTYPE_BF16 || t.type == PROA_DTYPE_BF16;
    if (pages != PROA_DTYPE_FP8)
        return bf16 ? launch_by_dim<__nv_bfloat16, __nv_bfloat16>(g, t, spans)
                    : launch_by_dim<__half, __half>(g, t, spans);
    return bf16 ? launch_by_dim<__nv_bfloat16, __nv_fp8_e4m3>(g, t, spans)
                : launch_by_dim<__half, __nv_fp8_e4m3>(g, t, spans);
}
