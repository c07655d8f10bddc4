/* SPDX-License-Identifier: Apache-2.0
 * scan_channel.cu - Mamba-1's recurrence (Gu, Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State
 * Spaces"), in which each column j of a state has steps t of its own and each of its numbers r a decay:
 *
 *     S_rj = exp(A_rj t_ij) S_rj + B_ir t_ij x_ij        y_ij = sum_r C_ir S_rj + D_j x_ij
 *
 * Block: a head, whose columns are its threads, and a segment of a span. A thread has its column (DK numbers of the
 * state and of A) in registers and reads B and C of a tile of rows from shared memory.
 *
 * A row waits for the one before, so a prompt takes as long as its rows, however few blocks there are. Where heads and
 * spans leave SMs without a block, long spans are divided into segments: channel_state_kernel runs those but the last
 * from a state of zeros, in parallel. What a segment makes of a state S before it is exp(A T) S + its own, where T is
 * the sum of its steps; so channel_kernel finds the state before each segment and runs all of them again, with y. */
#include "kernels/cuda/state.h"

/* Of states with more than DIVIDED_DIM_MAX numbers a column (published models have 16) spans are not divided. */
enum { SEGMENTS_MAX = 16, SEGMENT_ROWS_MIN = 32, BLOCKS_OF_SM = 4, DIVIDED_DIM_MAX = 32 };

/* A column of a state and of its decays (times log2 e); zeros behind dk and dv. */
template <int DK> struct scan_channel {
    float S[DK], rate[DK];
};

/* Of each span: states [0] before it, [i + 1] what segment i makes of zeros, [1] of the state before the span; sums
 * [i + 1] of a segment's steps. */
struct channel_segments {
    float *states, *sums; /* [span][count + 1][dk][columns], [span][count + 1][columns] */
    int count;            /* 1: there are none */
};

/* A block's part of a span. */
struct channel_part {
    int begin, end;   /* its rows */
    bool first, last; /* of the segments that have rows */
};

/* ROWS: of a tile, of which a segment has whole ones. */
template <int ROWS> __device__ static inline channel_part find_part(const proa_span &span, int count)
{
    int each = (span.rows + count - 1) / count;
    each = (max(each, (int)SEGMENT_ROWS_MIN) + ROWS - 1) / ROWS * ROWS;
    int begin = (int)blockIdx.z * each;
    return {begin, min(begin + each, span.rows), begin == 0, begin + each >= span.rows};
}

/* Numbers of a state are `stride` apart; NULL: zeros. */
template <int DK>
__device__ static inline void load_channel(scan_channel<DK> &c, const proa_state_space &p, const float *state,
                                           int64_t stride, int column)
{
#pragma unroll
    for (int r = 0; r < DK; r++) {
        c.S[r] = state && r < p.state_dim ? state[r * stride] : 0.0f;
        c.rate[r] = r < p.state_dim ? -expf(p.rate[column * p.state_dim + r]) * 1.4426950408889634f : 0.0f;
    }
}

template <int DK>
__device__ static inline void store_channel(float *state, int64_t stride, const scan_channel<DK> &c,
                                            const proa_state_space &p)
{
#pragma unroll
    for (int r = 0; r < DK; r++)
        if (r < p.state_dim) state[r * stride] = c.S[r];
}

/* The column of state i of a span, and of its sum of steps. */
__device__ static inline float *kept_state(const channel_segments &g, const proa_state_space &p, int i, int column)
{
    const int64_t columns = p.heads * p.value_dim, at = (int64_t)blockIdx.y * (g.count + 1) + i;
    return g.states + at * p.state_dim * columns + column;
}

__device__ static inline float *kept_sum(const channel_segments &g, const proa_state_space &p, int i, int column)
{
    return g.sums + ((int64_t)blockIdx.y * (g.count + 1) + i) * p.heads * p.value_dim + column;
}

/* The state before a segment, of what the segments before it made. */
template <int DK>
__device__ static inline void fold_segments(scan_channel<DK> &c, const proa_state_space &p,
                                            const channel_segments &g, int segment, int column)
{
    const int64_t columns = p.heads * p.value_dim;
    load_channel(c, p, kept_state(g, p, segment > 0, column), columns, column);
    for (int i = 2; i <= segment; i++) {
        const float sum = *kept_sum(g, p, i, column), *state = kept_state(g, p, i, column);
#pragma unroll
        for (int r = 0; r < DK; r++)
            c.S[r] = exp2f(c.rate[r] * sum) * c.S[r] + (r < p.state_dim ? state[r * columns] : 0.0f);
    }
}

/* One row: S = decay S + B taken; gives C^T S. */
template <int DK>
__device__ static inline float channel_row(scan_channel<DK> &c, const scan_tile<DK> &tile, int i, float step,
                                           float taken)
{
    float y = 0.0f;
#pragma unroll
    for (int r = 0; r < DK; r++) {
        c.S[r] = exp2f(c.rate[r] * step) * c.S[r] + tile.b[i][r] * taken;
        y += tile.c[i][r] * c.S[r];
    }
    return y;
}

/* v and dt of n rows of a column, zeros behind: loads that wait together. */
template <int ROWS, typename T>
__device__ static inline void load_rows(float (&v)[ROWS], float (&dt)[ROWS], const scan_args<T> &a,
                                        int64_t row, int n, int column)
{
    const T *x = a.x + row * a.x_row + column;
    const float *rates = (const float *)a.rates + row * a.rates_row + column;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        v[i] = i < n ? gpu_to_f32(x[i * a.x_row]) : 0.0f;
        dt[i] = i < n ? rates[i * a.rates_row] : 0.0f;
    }
}

template <int DK> struct channel_tile : scan_tile<DK> {
    enum { ROWS = DK < PROA_STATE_DIM_MAX / SCAN_ROWS ? (int)SCAN_ROWS : PROA_STATE_DIM_MAX / DK };
};

/* The rows of a part, of which y is written if GIVES. Returns the sum of their steps. */
template <int DK, bool GIVES, typename T>
__device__ static float run_rows(scan_channel<DK> &c, channel_tile<DK> &tile, const scan_args<T> &a,
                                 const channel_part &part, int64_t first, int h, int column, bool mine)
{
    constexpr int ROWS = channel_tile<DK>::ROWS;
    float v[ROWS], dt[ROWS], sum = 0.0f;
    for (int begin = part.begin; begin < part.end; begin += ROWS) {
        const int n = min(part.end - begin, ROWS);
        const int64_t row = first + begin;
        load_rows(v, dt, a, row, n, column);
        __syncthreads();
        scan_load_params(tile, a, row, n, h);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (i >= n) break;
            const float step = scan_step(a.p, dt[i], column),
                        of_state = channel_row(c, tile, i, step, step * v[i]);
            sum += step;
            if (GIVES && mine)
                a.y[(row + i) * a.y_row + column] = gpu_saturate<T>(a.p.skip[column] * v[i] + of_state);
        }
    }
    return sum;
}

/* Where the state of a span has this column. */
template <typename T>
__device__ static inline float *pool_state(const scan_args<T> &a, const proa_span &span, int h)
{
    return a.state + span.state * a.stride + (int64_t)h * a.p.state_dim * a.p.value_dim + threadIdx.x;
}

/* Grid: head, span, segment but for the last one. */
template <int DK, typename T>
__global__ void __launch_bounds__(PROA_STATE_DIM_MAX) channel_state_kernel(scan_args<T> a, channel_segments g)
{
    __shared__ channel_tile<DK> tile;
    gpu_wait();
    const proa_span span = a.spans[blockIdx.y];
    const int h = blockIdx.x, dv = (int)a.p.value_dim, segment = (int)blockIdx.z;
    const bool mine = (int)threadIdx.x < dv;
    const int column = h * dv + (mine ? (int)threadIdx.x : 0);
    const int64_t columns = a.p.heads * dv;
    const channel_part part = find_part<channel_tile<DK>::ROWS>(span, g.count);
    scan_channel<DK> c;
    if (part.last || part.begin >= part.end) return;
    const bool goes_on = mine && part.first && span.context > span.rows;
    load_channel(c, a.p, goes_on ? pool_state(a, span, h) : NULL, dv, column);
    if (mine && part.first) store_channel(kept_state(g, a.p, 0, column), columns, c, a.p);
    const float sum = run_rows<DK, false>(c, tile, a, part, span.row, h, column, mine);
    if (!mine) return;
    store_channel(kept_state(g, a.p, segment + 1, column), columns, c, a.p);
    *kept_sum(g, a.p, segment + 1, column) = sum;
}

/* Grid: head, span, segment. The state before a span of segments is read from what channel_state_kernel has kept of it,
 * because the block of the last segment may have written the new one. */
template <int DK, typename T>
__global__ void __launch_bounds__(PROA_STATE_DIM_MAX) channel_kernel(scan_args<T> a, channel_segments g)
{
    __shared__ channel_tile<DK> tile;
    gpu_wait();
    const proa_span span = a.spans[blockIdx.y];
    const int h = blockIdx.x, dv = (int)a.p.value_dim;
    const bool mine = (int)threadIdx.x < dv;
    const int column = h * dv + (mine ? (int)threadIdx.x : 0);
    const channel_part part = find_part<channel_tile<DK>::ROWS>(span, g.count);
    scan_channel<DK> c;
    if (part.begin >= part.end) return;
    float *state = pool_state(a, span, h);
    if (part.first && part.last)
        load_channel(c, a.p, mine && span.context > span.rows ? state : NULL, dv, column);
    else fold_segments(c, a.p, g, (int)blockIdx.z, column);
    run_rows<DK, true>(c, tile, a, part, span.row, h, column, mine);
    if (mine && part.last) store_channel(state, dv, c, a.p);
}

/* As many as SMs have room for beside the blocks that there are anyway. */
static int count_segments(const gpu *g, const proa_spans *spans, int64_t heads)
{
    const int64_t long_spans = spans->long_count ? spans->long_count : spans->count;
    const int64_t room = (int64_t)g->sms * BLOCKS_OF_SM / (heads * long_spans);
    const int64_t most = spans->rows_max / SEGMENT_ROWS_MIN, count = room < most ? room : most;
    return count < 1 ? 1 : count > SEGMENTS_MAX ? (int)SEGMENTS_MAX : (int)count;
}

template <int DK, typename T>
static void launch_channels(gpu *g, const scan_args<T> &a, const proa_spans *spans)
{
    const unsigned threads = (unsigned)((a.p.value_dim + 31) / 32 * 32);
    channel_segments segments = {NULL, NULL, DK > DIVIDED_DIM_MAX ? 1 : count_segments(g, spans, a.p.heads)};
    dim3 grid((unsigned)a.p.heads, (unsigned)spans->count, (unsigned)segments.count - 1);
    if constexpr (DK <= DIVIDED_DIM_MAX)
        if (segments.count > 1) {
            const int64_t columns = a.p.heads * a.p.value_dim * spans->count * (segments.count + 1);
            segments.states = gpu_partials_workspace(g, columns * (a.p.state_dim + 1) * sizeof(float));
            segments.sums = segments.states + columns * a.p.state_dim;
            gpu_launch(g, "selective_scan (states)", channel_state_kernel<DK, T>, grid, threads, 0, a, segments);
        }
    grid.z = (unsigned)segments.count;
    gpu_launch(g, "selective_scan", channel_kernel<DK, T>, grid, threads, 0, a, segments);
}

template <typename T> static void scan_channels(gpu *g, const scan_args<T> &a, const proa_spans *spans)
{
    const int64_t dk = a.p.state_dim;
    if (dk <= 16) launch_channels<16>(g, a, spans);
    else if (dk <= 32) launch_channels<32>(g, a, spans);
    else if (dk <= 64) launch_channels<64>(g, a, spans);
    else if (dk <= 128) launch_channels<128>(g, a, spans);
    else launch_channels<PROA_STATE_DIM_MAX>(g, a, spans);
}

void gpu_scan_channels(gpu *g, const scan_args<float> &a, const proa_spans *spans)
{
    scan_channels(g, a, spans);
}

void gpu_scan_channels(gpu *g, const scan_args<__half> &a, const proa_spans *spans)
{
    scan_channels(g, a, spans);
}

void gpu_scan_channels(gpu *g, const scan_args<__nv_bfloat16> &a, const proa_spans *spans)
{
    scan_channels(g, a, spans);
}
