/* SPDX-License-Identifier: Apache-2.0
 * picked.cu - sparse attention: the scores by which a row picks its keys, the choice, and a copy of the keys in pages
 * of their own, over which the kernels of decoding attend. */
#include "kernels/cuda/attention/attention.h"

enum {
    SCORE_THREADS = 256,
    SCORE_GROUPS = SCORE_THREADS / PAGE, /* of threads: each has a key of the page and some of the heads */
    GROUP_HEADS = 4,
    TILE_HEADS = SCORE_GROUPS * GROUP_HEADS,
    TILE_DIM = 32,
    PICK_THREADS = 256,
    COPY_THREADS = 128
};
static const int64_t SCORES_MAX = 16 << 20; /* of the rows that are worked on at once */

/* The rows of a step, where they are, and what they see. */
struct picking {
    const proa_span *spans;
    const int32_t *pages;
    const uint64_t *seen;
    int count;
    int64_t most;
};

/* A row's span (the last that begins at the row or before), and the row itself; count: keys that it sees. */
struct picking_row {
    proa_span span;
    tree_row row;
    int count;
};

__device__ static picking_row find_row(const picking &p, int row)
{
    int low = 0, high = p.count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (p.spans[middle].row <= row) low = middle;
        else high = middle;
    }
    attention_task t = {};
    t.seen = p.seen;
    picking_row r = {p.spans[low], {}, 0};
    if (row < r.span.row || row >= r.span.row + r.span.rows) return r;
    if (!p.seen) r.span.tree = 0;
    r.row = tree_row_of(t, r.span, row - r.span.row);
    r.count = r.row.at + 1;
    return r;
}

/* ---- scores ---- */

/* The queries of a row, and the weights of their heads. */
template <typename X> struct indexer {
    const X *q;
    int64_t q_row, q_head;
    const float *w;
    int64_t w_row;
    int heads, dim;
};

/* Numbers [d, d + TILE_DIM) of the keys of a page and of the queries from head h on; zeros behind their ends. */
struct score_tile {
    float keys[PAGE][TILE_DIM + 1], queries[TILE_HEADS][TILE_DIM];
};

template <typename T, typename X>
__device__ static inline void load_tile(score_tile &to, const indexer<X> &in, const T *page, int row, int h, int d)
{
    for (int i = threadIdx.x; i < PAGE * TILE_DIM; i += SCORE_THREADS) {
        int j = i / TILE_DIM, e = d + i % TILE_DIM;
        to.keys[j][i % TILE_DIM] = e < in.dim ? gpu_to_f32(page[(int64_t)j * in.dim + e]) : 0.0f;
    }
    for (int i = threadIdx.x; i < TILE_HEADS * TILE_DIM; i += SCORE_THREADS) {
        int head = h + i / TILE_DIM, e = d + i % TILE_DIM;
        bool has = e < in.dim && head < in.heads;
        to.queries[i / TILE_DIM][i % TILE_DIM] = has ? gpu_to_f32(in.q[row * in.q_row + head * in.q_head + e])
                                                     : 0.0f;
    }
}

/* What the heads [first, first + GROUP_HEADS) give to a key, beginning with `sum`. */
template <typename X>
__device__ static inline float add_heads(float sum, const indexer<X> &in, const float *dot, int row, int first)
{
#pragma unroll
    for (int i = 0; i < GROUP_HEADS; i++) {
        float above = dot[i] < 0.0f ? 0.0f : dot[i]; /* NaN stays */
        if (first + i < in.heads) sum = fmaf(in.w[row * in.w_row + first + i], above, sum);
    }
    return sum;
}

/* A block has a row and a page: score[position] = sum_h w[h] max(q_h . k, 0). Numbers of keys and of TILE_HEADS queries
 * go through shared memory TILE_DIM at a time. Grid: page, row. */
template <typename T, typename X>
__global__ void __launch_bounds__(SCORE_THREADS)
    score_kernel(float *scores, int64_t scores_row, indexer<X> in, const T *k, picking p, int first)
{
    __shared__ score_tile tile;
    __shared__ float parts[SCORE_GROUPS][PAGE];
    int row = first + (int)blockIdx.y, key = threadIdx.x % PAGE, group = threadIdx.x / PAGE;
    gpu_wait();
    picking_row r = find_row(p, row);
    int place = (int)blockIdx.x * PAGE;
    if (r.count <= p.most || place >= r.span.context) return;
    const T *page = k + (int64_t)p.pages[r.span.table + blockIdx.x] * PAGE * in.dim;
    float sum = 0.0f;
    for (int h = 0; h < in.heads; h += TILE_HEADS) {
        float dot[GROUP_HEADS] = {};
        for (int d = 0; d < in.dim; d += TILE_DIM) {
            __syncthreads();
            load_tile(tile, in, page, row, h, d);
            __syncthreads();
#pragma unroll 8
            for (int e = 0; e < TILE_DIM; e++)
#pragma unroll
                for (int i = 0; i < GROUP_HEADS; i++)
                    dot[i] = fmaf(tile.queries[group * GROUP_HEADS + i][e], tile.keys[key][e], dot[i]);
        }
        sum = add_heads(sum, in, dot, row, h + group * GROUP_HEADS);
    }
    parts[group][key] = sum;
    __syncthreads();
    int position = place + key < r.span.context ? r.row.position(place + key) : -1;
    if (group > 0 || position < 0 || position >= r.count) return;
    for (int i = 1; i < SCORE_GROUPS; i++) sum += parts[i][key];
    scores[blockIdx.y * scores_row + position] = sum;
}

/* ---- the choice: by the digits of the scores, as kernels/pick_keys.h does it ---- */

/* A number that rises with the score; NaN: 0. */
__device__ static inline unsigned order_of(float score)
{
    unsigned bits = __float_as_uint(score + 0.0f);
    if (isnan(score)) return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The order of the `most`-th largest of n scores; *equal: how many of that order are chosen. */
__device__ static unsigned find_threshold(const float *score, int n, int most, int *equal)
{
    __shared__ int counts[256];
    __shared__ int chosen[2]; /* the digit, and what is left of `most` behind the larger ones */
    unsigned found = 0, mask = 0;
    *equal = most;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += PICK_THREADS) counts[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += PICK_THREADS) {
            unsigned order = order_of(score[i]);
            if ((order & mask) == found) atomicAdd(&counts[order >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255, left = *equal;
            for (; digit > 0 && counts[digit] < left; digit--) left -= counts[digit];
            chosen[0] = digit, chosen[1] = left;
        }
        __syncthreads();
        found |= (unsigned)chosen[0] << shift, mask |= 255u << shift;
        *equal = chosen[1];
    }
    return found;
}

/* How many threads before this one say yes; *all: how many of the block. */
__device__ static int count_before(bool yes, int *warps, int *all)
{
    unsigned votes = __ballot_sync(0xffffffffu, yes);
    int warp = threadIdx.x / 32, before = __popc(votes & ((1u << (threadIdx.x & 31)) - 1));
    __syncthreads();
    if ((threadIdx.x & 31) == 0) warps[warp] = __popc(votes);
    __syncthreads();
    *all = 0;
    for (int i = 0; i < PICK_THREADS / 32; i++) {
        if (i < warp) before += warps[i];
        *all += warps[i];
    }
    return before;
}

/* A block for each row. */
__global__ void __launch_bounds__(PICK_THREADS)
    pick_kernel(int32_t *picked, const float *scores, int64_t scores_row, picking p, int first)
{
    __shared__ int warps[PICK_THREADS / 32];
    int row = first + (int)blockIdx.x, most = (int)p.most;
    gpu_wait();
    picking_row r = find_row(p, row);
    int32_t *to = picked + row * p.most;
    if (r.count <= most) {
        for (int i = threadIdx.x; i < most; i += PICK_THREADS) to[i] = i < r.count ? i : -1;
        return;
    }
    const float *score = scores + blockIdx.x * scores_row;
    int equal, taken = 0, all;
    unsigned least = find_threshold(score, r.count, most, &equal);
    for (int base = 0; base < r.count; base += PICK_THREADS) {
        int i = base + (int)threadIdx.x;
        unsigned order = i < r.count ? order_of(score[i]) : 0;
        bool same = i < r.count && order == least;
        int before = count_before(same, warps, &all); /* by all threads: they meet in it */
        bool takes = i < r.count && (order > least || (same && before < equal));
        equal = max(0, equal - all);
        int at = taken + count_before(takes, warps, &all);
        if (takes && at < most) to[at] = i;
        taken += all;
    }
}

static void pick_keys(proa_ctx *c, int32_t *picked, proa_view q, proa_view w, const proa_kv *kv,
                      const proa_spans *spans, int64_t most)
{
    gpu *g = gpu_flushed(c);
    picking p = {spans->span, spans->pages, spans->seen, (int)spans->count, most};
    int64_t keys = ((int64_t)spans->context_max + PAGE - 1) / PAGE * PAGE, rows = q.shape[0];
    if (rows == 0 || spans->count == 0) return;
    int64_t round = SCORES_MAX / (keys > 0 ? keys : 1);
    round = round < 1 ? 1 : round > rows ? rows : round > 65535 ? 65535 : round;
    float *scores = (float *)gpu_partials_workspace(g, (size_t)(round * keys) * sizeof(float));
    for (int64_t first = 0; first < rows; first += round) {
        int64_t n = rows - first < round ? rows - first : round;
        gpu_by_page_type(kv->dtype, [&](auto page) {
            gpu_by_type(q.dtype, [&](auto from) {
                using T = decltype(page);
                using X = decltype(from);
                if (keys <= most) return; /* no row sees more */
                indexer<X> in = {(const X *)q.data, q.stride[0],     q.stride[1],      (const float *)w.data,
                                 w.stride[0],       (int)q.shape[1], (int)kv->head_dim};
                gpu_launch(g, "pick_keys (scores)", score_kernel<T, X>,
                           dim3((unsigned)(keys / PAGE), (unsigned)n), SCORE_THREADS, 0, scores, keys, in,
                           (const T *)kv->k, p, (int)first);
            });
        });
        gpu_launch(g, "pick_keys", pick_kernel, dim3((unsigned)n), PICK_THREADS, 0, picked, scores, keys, p,
                   (int)first);
    }
}

/* ---- the copy ---- */

/* Pages of the gathered keys, and the type of their numbers in bytes. */
struct gathering {
    char *k, *v; /* v: NULL if the keys are the values */
    const char *from_k, *from_v;
    proa_span *span;
    int32_t *pages;
    int heads, head_bytes; /* of a key */
};

/* The whole block: in words of 16 bytes if they are aligned. */
__device__ static inline void copy_bytes(char *to, const char *from, int bytes, bool words)
{
    if (words)
        for (int i = threadIdx.x; i < bytes / 16; i += COPY_THREADS)
            ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    else
        for (int i = threadIdx.x; i < bytes; i += COPY_THREADS) to[i] = from[i];
}

/* Grid: page of a row, row. */
__global__ void __launch_bounds__(COPY_THREADS)
    gather_kernel(gathering g, picking p, const int32_t *picked, int first, bool words)
{
    int row = first + (int)blockIdx.y, each = gridDim.x, page = (int)blockIdx.y * each + (int)blockIdx.x;
    gpu_wait();
    picking_row r = find_row(p, row);
    int count = min(r.count, (int)p.most), begin = (int)blockIdx.x * PAGE, end = min(begin + PAGE, count);
    if (threadIdx.x == 0) g.pages[page] = page;
    if (threadIdx.x == 0 && blockIdx.x == 0)
        g.span[blockIdx.y] = {(int)blockIdx.y, 1, count, (int)blockIdx.y * each, 0, 0, 0};
    for (int j = begin; j < end; j++) {
        int position = picked[row * p.most + j], slot = position;
        if (r.row.seen && position >= r.row.first) { /* where the tree's node is */
            uint64_t seen = r.row.seen;
            for (int skip = position - r.row.first; skip > 0; skip--) seen &= seen - 1;
            slot = r.row.first + __ffsll((long long)seen) - 1;
        }
        int64_t from_page = p.pages[r.span.table + slot / PAGE];
        for (int h = 0; h < g.heads; h++) {
            int64_t from = ((from_page * g.heads + h) * PAGE + slot % PAGE) * g.head_bytes;
            int64_t to = (((int64_t)page * g.heads + h) * PAGE + j - begin) * g.head_bytes;
            copy_bytes(g.k + to, g.from_k + from, g.head_bytes, words);
            if (g.v) copy_bytes(g.v + to, g.from_v + from, g.head_bytes, words);
        }
    }
}

static void gather_keys(proa_ctx *c, const proa_picked_keys *to, const proa_kv *from, const proa_spans *spans,
                        const int32_t *picked, int64_t most, int64_t first)
{
    gpu *g = gpu_flushed(c);
    picking p = {spans->span, spans->pages, spans->seen, (int)spans->count, most};
    gathering of = {(char *)to->kv.k,
                    to->kv.v == to->kv.k ? NULL : (char *)to->kv.v,
                    (const char *)from->k,
                    (const char *)from->v,
                    to->span,
                    to->pages,
                    (int)from->kv_heads,
                    (int)(from->head_dim * proa_dtype_bytes(from->dtype))};
    uintptr_t places = (uintptr_t)of.k | (uintptr_t)of.v | (uintptr_t)of.from_k | (uintptr_t)of.from_v;
    if (to->rows == 0 || spans->count == 0) return;
    gpu_launch(g, "gather_keys", gather_kernel, dim3((unsigned)((most + PAGE - 1) / PAGE), (unsigned)to->rows),
               COPY_THREADS, 0, of, p, picked, (int)first, places % 16 == 0 && of.head_bytes % 16 == 0);
    g->serialize_next = true; /* kernels read spans and pages before they wait: these have just been written */
}

void gpu_fill_picked(proa_ops *ops)
{
    ops->pick_keys = pick_keys, ops->gather_keys = gather_keys;
}
