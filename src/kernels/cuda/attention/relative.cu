/* SPDX-License-Identifier: Apache-2.0
 * relative.cu - attention with relative positions that meet the query and the key (proa_relative): XLNet, DeBERTa. A
 * block has 16 neighbouring queries of one head and walks over the keys, 64 at a time, with an online softmax. A tile
 * meets at most 79 distances, so its rows of both tables are in shared memory beside queries and keys, 32 columns of
 * the head at a time. f32 on CUDA cores. */
#include "kernels/cuda/attention/attention.h"

enum {
    QUERIES = 16,
    KEYS = 64,
    THREADS = 256,
    LANES = THREADS / QUERIES, /* that work on one query */
    EACH = KEYS / LANES,       /* keys of a lane */
    COLUMNS = 32,
    LD = COLUMNS + 1, /* rows that follow each other are in different banks */
    DISTANCES = QUERIES + KEYS - 1
};

/* Shared memory of a block. */
struct relative_tile {
    float content[QUERIES][LD], placed[QUERIES][LD]; /* q + u, q + v */
    float keys[KEYS][LD];
    float key_rows[DISTANCES][LD], query_rows[DISTANCES][LD]; /* of the tables, from row `first` on */
    float weight[QUERIES][KEYS], shrink[QUERIES];
    int row[DISTANCES]; /* of the distance of query i and key j: row[i - j + KEYS - 1], counted from `first` */
    int first, rows;
};

__device__ static inline int row_of(const proa_relative &r, int distance)
{
    return r.row[max(-r.reach, min(distance, r.reach)) + r.reach];
}

/* The rows that the queries from position `at` on need for the keys from `key` on. */
__device__ static void find_rows(relative_tile &tile, const proa_relative &r, int at, int key)
{
    int lowest = row_of(r, at - key - (KEYS - 1));
    for (int i = threadIdx.x; i < DISTANCES; i += THREADS)
        tile.row[i] = row_of(r, at - key - (KEYS - 1) + i) - lowest;
    if (threadIdx.x == 0) tile.first = lowest, tile.rows = row_of(r, at - key + QUERIES - 1) - lowest + 1;
}

/* Columns [from, from + width) of the head h of a table; zeros where there is none. */
__device__ static void load_table(float (*to)[LD], const float *table, const proa_relative &r, int first,
                                  int rows, int64_t from, int width)
{
    for (int i = threadIdx.x; i < rows * COLUMNS; i += THREADS) {
        int n = i / COLUMNS, e = i % COLUMNS;
        to[n][e] = table && e < width ? table[(first + n) * r.stride + from + e] : 0.0f;
    }
}

/* The first `queries` queries from row `row` of the step on, with the biases. */
__device__ static void load_queries(relative_tile &tile, const attention_task &t, const proa_relative &r,
                                    int64_t row, int queries, int h, int column, int width)
{
    for (int i = threadIdx.x; i < QUERIES * COLUMNS; i += THREADS) {
        int m = i / COLUMNS, e = i % COLUMNS, at = h * t.dim + column + e;
        bool there = m < queries && e < width;
        float q = there ? read_q(t, (row + m) * t.q_row + h * t.q_head + column + e) : 0.0f;
        tile.content[m][e] = there && r.content_bias ? q + r.content_bias[at] : q;
        tile.placed[m][e] = there && r.position_bias ? q + r.position_bias[at] : q;
    }
}

template <typename T>
__device__ static void load_keys(relative_tile &tile, const attention_task &t, const proa_span &s, int key,
                                 int count, int kv, int column, int width)
{
    for (int i = threadIdx.x; i < KEYS * COLUMNS; i += THREADS) {
        int p = i / COLUMNS, e = i % COLUMNS;
        tile.keys[p][e] = p < count && e < width ? gpu_to_f32(key_row<T>(t, t.k, s, key + p, kv)[column + e])
                                                 : 0.0f;
    }
}

/* dot[m] += the three terms over these columns, of query i and the keys lane + LANES m. */
__device__ static inline void add_terms(float dot[EACH], const relative_tile &tile, int i, int lane)
{
#pragma unroll
    for (int m = 0; m < EACH; m++) {
        int j = lane + LANES * m, row = tile.row[i - j + KEYS - 1];
        float sum = dot[m];
#pragma unroll 8
        for (int e = 0; e < COLUMNS; e++) {
            float k = tile.keys[j][e];
            sum = fmaf(tile.content[i][e], k, sum);
            sum = fmaf(tile.placed[i][e], tile.key_rows[row][e], sum);
            sum = fmaf(k, tile.query_rows[row][e], sum);
        }
        dot[m] = sum;
    }
}

/* What a key of another segment adds to the product of a query, whose lanes make it together. */
__device__ static float segment_term(const attention_task &t, const proa_relative &r, int64_t row, int h, int lane)
{
    const float *same = r.segments + (int64_t)h * t.dim, *other = same + (int64_t)t.heads * t.dim;
    const float *bias = r.segment_bias + (int64_t)h * t.dim;
    float sum = 0.0f;
    for (int e = lane; e < t.dim; e += LANES)
        sum = fmaf(read_q(t, row * t.q_row + h * t.q_head + e) + bias[e], other[e] - same[e], sum);
#pragma unroll
    for (int o = LANES / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    return sum;
}

/* dot[m] += the term of segments, where the token type of key lane + LANES m is not the query's. types: of the span's
 * keys from the first one of the tile on, `count` of them. */
__device__ static inline void add_segments(float dot[EACH], const int32_t *types, int count, int32_t own,
                                           float term, int lane)
{
#pragma unroll
    for (int m = 0; m < EACH; m++) {
        int j = lane + LANES * m;
        if (j < count && types[j] != own) dot[m] += term;
    }
}

/* The online softmax of a query, alike in its lanes. */
struct softmax_state {
    float largest, total;

    /* The lane's products become weights in the tile. Query i is at position `at` and sees the keys [from, to). Returns
     * the factor of what was summed before. */
    __device__ float take(relative_tile &tile, const attention_task &t, float dot[EACH], int i, int lane,
                          int h, int at, int key, int from, int to)
    {
        float top = -INFINITY, sum = 0.0f, slope = t.has_score_mod ? slope_of(t, h) : 0.0f;
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            int p = key + lane + LANES * m, d = p - at;
            dot[m] *= t.scale;
            if (t.has_score_mod) dot[m] = score_mod(t, dot[m], bias_of(t, h, d), slope, d);
            if (p < from || p >= to) dot[m] = -INFINITY;
            top = fmaxf(top, dot[m]);
        }
#pragma unroll
        for (int o = LANES / 2; o > 0; o >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
        float now = fmaxf(largest, top), base = now == -INFINITY ? 0.0f : now, shrink = expf(largest - base);
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            float weight = expf(dot[m] - base); /* NaN stays NaN */
            tile.weight[i][lane + LANES * m] = weight;
            sum += weight;
        }
#pragma unroll
        for (int o = LANES / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
        total = fmaf(total, shrink, sum);
        largest = now;
        return shrink;
    }
};

/* out[i][e] = out[i][e] * shrink[i] + the weighted values of `count` keys, for all queries of the block. */
template <typename T>
__device__ static void add_values(float *out, const relative_tile &tile, const attention_task &t,
                                  const proa_span &s, int key, int count, int kv)
{
    const int GROUP = 4; /* queries of a thread */
    int first = threadIdx.x / 64 * GROUP;
    for (int e = threadIdx.x % 64; e < t.dim; e += 64) {
        float sum[GROUP] = {};
        for (int j = 0; j < count; j++) {
            float v = gpu_to_f32(key_row<T>(t, t.v, s, key + j, kv)[e]);
#pragma unroll
            for (int i = 0; i < GROUP; i++) sum[i] = fmaf(tile.weight[first + i][j], v, sum[i]);
        }
#pragma unroll
        for (int i = 0; i < GROUP; i++)
            out[(first + i) * t.dim + e] = fmaf(out[(first + i) * t.dim + e], tile.shrink[first + i], sum[i]);
    }
}

/* Grid: span, head, tile of queries. Shared memory: the tile, then the results [QUERIES][dim]. */
template <typename T>
__global__ void __launch_bounds__(THREADS) relative_kernel(attention_task t, proa_relative r)
{
    extern __shared__ __align__(16) char memory[];
    relative_tile &tile = *reinterpret_cast<relative_tile *>(memory);
    float *out = reinterpret_cast<float *>(memory + sizeof(relative_tile));
    int h = blockIdx.y, kv = h / t.group, begin = (int)blockIdx.z * QUERIES;
    int i = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    gpu_wait();
    proa_span s = t.spans[blockIdx.x];
    if (begin >= s.rows) return;
    int queries = min(QUERIES, s.rows - begin), at = s.context - s.rows + begin;
    int first = first_key(t, at), last = min(s.context, end_key(t, s.context, at + queries - 1));
    int seen_from = first_key(t, at + i), seen_to = min(s.context, end_key(t, s.context, at + i));
    softmax_state state = {-INFINITY, 0.0f};
    int own_row = s.row + begin + min(i, queries - 1);
    float segment = r.types ? segment_term(t, r, own_row, h, lane) : 0.0f;
    for (int n = threadIdx.x; n < QUERIES * t.dim; n += THREADS) out[n] = 0.0f;
    for (int key = first / KEYS * KEYS; key < last; key += KEYS) {
        int count = min(KEYS, last - key);
        float dot[EACH] = {};
        __syncthreads();
        find_rows(tile, r, at, key);
        for (int column = 0; column < t.dim; column += COLUMNS) {
            int width = min((int)COLUMNS, t.dim - column);
            __syncthreads();
            load_queries(tile, t, r, s.row + begin, queries, h, column, width);
            load_keys<T>(tile, t, s, key, count, kv, column, width);
            load_table(tile.key_rows, r.keys, r, tile.first, tile.rows, (int64_t)h * t.dim + column, width);
            load_table(tile.query_rows, r.queries, r, tile.first, tile.rows, (int64_t)h * t.dim + column, width);
            __syncthreads();
            add_terms(dot, tile, i, lane);
        }
        if (r.types) add_segments(dot, r.types + s.row + key, count, r.types[own_row], segment, lane);
        float shrink = state.take(tile, t, dot, i, lane, h, at + i, key, seen_from, seen_to);
        if (lane == 0) tile.shrink[i] = shrink;
        __syncthreads();
        add_values<T>(out, tile, t, s, key, count, kv);
    }
    state.total += sink_weight(t, h, state.largest * 1.4426950408889634f);
    __syncthreads();
    for (int e = lane; e < t.dim && i < queries; e += LANES)
        write_y(t, (s.row + begin + i) * t.y_row + h * t.y_head + e,
                seen_from < seen_to ? out[i * t.dim + e] / state.total : 0.0f);
}

template <typename T>
static void launch_relative(gpu *g, const attention_task &t, const proa_relative &r, const proa_spans *spans)
{
    size_t bytes = sizeof(relative_tile) + (size_t)QUERIES * t.dim * sizeof(float);
    PROA_ASSERT(bytes <= (size_t)g->shared_max);
    gpu_note(g, cudaFuncSetAttribute(relative_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
             "attend (relative)");
    gpu_launch(g, "attend (relative)", relative_kernel<T>,
               dim3((unsigned)spans->count, (unsigned)t.heads,
                    (unsigned)((spans->rows_max + QUERIES - 1) / QUERIES)),
               THREADS, bytes, t, r);
}

void gpu_attend_relative(gpu *g, const attention_task &t, proa_dtype rows, const proa_relative &r,
                         const proa_spans *spans)
{
    if (spans->rows_max < 1) return;
    gpu_by_type(rows, [&](auto type) { launch_relative<decltype(type)>(g, t, r, spans); });
}
