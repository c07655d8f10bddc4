/* SPDX-License-Identifier: Apache-2.0
 * scan_chunk.cu - Mamba-2's recurrence over many rows, a chunk of them at a time, on tensor cores (state space duality:
 * Dao, Gu 2024, "Transformers are SSMs"; mamba_ssm's mamba_chunk_scan_combined).
 *
 * Let S [dk,dv] be the state before a chunk, G_i the sum of the logarithms of the decays up to row i of it, t_i the
 * step of a row, B_i, C_i [dk] and x_i [dv] its numbers. With E_ij = exp(G_i - G_j)
 *
 *     M_ij = E_ij t_j C_i.B_j  (j < i)        M_ii = t_i C_i.B_i + D            [CHUNK,CHUNK], lower triangular
 *     y_i  = exp(G_i) S^T C_i + (M x)_i
 *     S    = exp(G_last) S + sum_j exp(G_last - G_j) t_j B_j x_j^T
 *
 * Block: STATE_COLUMNS columns of a head's state and a segment of a span, whose chunks it runs one after the other, of
 * 32 rows, with dk 64 of 64. M needs no columns; each block computes it, a seventh of its products: to share it
 * among the heads of a group would take a kernel before this one, and reading M in place of it. There are B, C and x of
 * two chunks (one is read by cp.async meanwhile), and M: 51 KiB with dk 128, so that three blocks have room.
 *
 * Where heads and spans are too few blocks for the GPU, long spans are divided into segments: state_kernel finds what
 * each of them adds to the state, in parallel, and a block of chunk_kernel makes the state before its segment of what
 * the segments before it added. That is the form of three passes, with few states: one for each chunk would be 128 MB
 * for 2,048 rows of 128 heads of 128 x 64, written and read twice, more than all else together.
 *
 * Precision: B, C and x are bf16 as stored, and C.B is exact but for the order of its sum. What is f32 (S, M, scaled x)
 * goes into a product as the sum of two bf16 numbers, 16 bits. G is the sum of two f32 numbers: with one, differences
 * of large G are off by their last bit, 5e-4 of y where steps of 30 and of 1e-4 mix. Against f64 y and S are off by 3
 * to 5e-6 of their largest number. f32 and f16 are computed row by row in f32 (state.cu). */
#include "kernels/cuda/state_tile.h"

enum { SEGMENTS_MAX = 8, SEGMENT_CHUNKS_MIN = 4 /* of a segment */ };

template <int DK> struct scan_shape {
    enum { CHUNK = DK > 64 ? 32 : 64, LANE_ROWS = CHUNK / 32, TILES = CHUNK / 8, STEPS = CHUNK / 16 };
    enum { BLOCKS = DK > 128 ? 2 : 3 /* of an SM: as many have room at once */ };
};

/* The rows of a chunk: steps and decays. Rows behind the last one have steps of 0. */
template <int CHUNK> struct scan_rows {
    float sum[CHUNK], rest[CHUNK]; /* G / log(2) as the sum of two numbers */
    float step[CHUNK];             /* t */
    float in[CHUNK];               /* exp(G) */
    float out[CHUNK];              /* t exp(G_last - G) */
    float decay[4];                /* [0]: exp(G_last) */
};

/* What a block has in shared memory. */
template <int DK> struct scan_tile_of_chunk : scan_shape<DK> {
    enum { CHUNK = scan_shape<DK>::CHUNK };
    bf16 b[2][CHUNK][DK + 8], c[2][CHUNK][DK + 8], x[2][CHUNK][STATE_COLUMNS + 8];
    bf16 M[2][CHUNK][CHUNK + 8]; /* the number's first 8 bits, what is left of it */
    scan_rows<CHUNK> rows[2];
};

/* A block's part: rows [row, row + rows) of head h, columns from `column` on. */
struct scan_part {
    int64_t row;
    int rows, h, column;
    int segment;      /* of the span */
    bool first, last; /* of the segments of the span */
};

/* False: the block has no rows. */
template <int DK> __device__ static bool find_part(scan_part &p, const scan_args<bf16> &a, int segments)
{
    const proa_span span = a.spans[blockIdx.y];
    const int tiles = ((int)a.p.value_dim + STATE_COLUMNS - 1) / STATE_COLUMNS;
    const int chunks = (span.rows + scan_shape<DK>::CHUNK - 1) / scan_shape<DK>::CHUNK;
    const int each = max((chunks + segments - 1) / segments, SEGMENT_CHUNKS_MIN) * scan_shape<DK>::CHUNK;
    p.h = (int)blockIdx.x / tiles, p.column = (int)blockIdx.x % tiles * STATE_COLUMNS;
    p.segment = (int)blockIdx.z;
    const int begin = p.segment * each;
    if (span.rows < SCAN_CHUNKED_MIN || begin >= span.rows) return false;
    p.row = span.row + begin, p.rows = min(each, span.rows - begin);
    p.first = p.segment == 0, p.last = begin + p.rows == span.rows;
    return true;
}

/* Requests rows of WIDTH numbers, of which `width` are there; those behind the last one become zeros. */
template <int CHUNK, int WIDTH>
__device__ static void request_tile(bf16 (&to)[CHUNK][WIDTH + 8], const bf16 *from, int64_t stride, int width,
                                    int n)
{
    constexpr int EACH = STATE_THREADS / (WIDTH / 8); /* rows at a time */
    const int row = threadIdx.x / (WIDTH / 8), piece = threadIdx.x % (WIDTH / 8) * 8;
    const bf16 *mine = from + row * stride + piece;
    if (piece >= width) return;
#pragma unroll
    for (int r = 0; r < CHUNK; r += EACH)
        cp_async16(smem_address(&to[row + r][piece]), row + r < n ? mine + r * stride : from, row + r < n);
}

/* Requests the rows of a chunk. */
template <int DK, bool OUTPUTS>
__device__ static void request_rows(scan_tile_of_chunk<DK> &s, const scan_args<bf16> &a, const scan_part &p,
                                    int at, int n, int buffer)
{
    constexpr int CHUNK = scan_shape<DK>::CHUNK;
    const int groups = (int)a.p.groups, dv = (int)a.p.value_dim, heads = (int)a.p.heads;
    const bf16 *x = a.x + (p.row + at) * a.x_row;
    const bf16 *b = a.params + (p.row + at) * a.params_row + p.h / (heads / groups) * DK;
    request_tile<CHUNK, DK>(s.b[buffer], b, a.params_row, DK, n);
    if (OUTPUTS) request_tile<CHUNK, DK>(s.c[buffer], b + groups * DK, a.params_row, DK, n);
    request_tile<CHUNK, STATE_COLUMNS>(s.x[buffer], x + p.h * dv + p.column, a.x_row, dv - p.column, n);
    cp_async_commit();
}

/* By one warp: the rates of its rows of a chunk. A lane has LANE_ROWS rows, one after the other. */
template <int ROWS>
__device__ static void read_rates(float (&dt)[ROWS], const scan_args<bf16> &a, const scan_part &p, int at, int n)
{
    const int first = (threadIdx.x & 31) * ROWS;
    const bf16 *rates = (const bf16 *)a.rates + (p.row + at + first) * a.rates_row + p.h;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        dt[r] = a.p.bias && first + r < n ? gpu_to_f32(rates[r * a.rates_row]) : 0.0f;
}

/* By one warp: steps and decays of a chunk. A decay of exp(-1e4) is 0 as are all below, and their sums stay finite. */
template <int CHUNK, int ROWS>
__device__ static void set_rows(scan_rows<CHUNK> &s, const float (&dt)[ROWS], const scan_args<bf16> &a, int h,
                                int n)
{
    const int lane = threadIdx.x & 31;
    const float rate = -expf(a.p.rate[h]);
    double sum[ROWS], total = 0;
    float step[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        step[r] = lane * ROWS + r < n ? scan_step(a.p, dt[r], h) : 0.0f;
        sum[r] = total += (double)fmaxf(rate * step[r], -1e4f) * 1.4426950408889634;
    }
    const double own = total;
    for (int i = 1; i < 32; i *= 2) {
        const double before = __shfl_up_sync(~0u, total, i);
        if (lane >= i) total += before;
    }
    const double last = __shfl_sync(~0u, total, 31);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int i = lane * ROWS + r;
        const double g = total - own + sum[r];
        s.sum[i] = (float)g, s.rest[i] = (float)(g - (double)(float)g), s.step[i] = step[r];
        s.in[i] = exp2f((float)g), s.out[i] = step[r] * exp2f((float)(last - g));
    }
    if (lane == 0) s.decay[0] = exp2f((float)last);
}

/* A pair of numbers of a row of M. g: G of the row. All is computed and then chosen: branches would make each pair wait
 * for its own loads. */
template <int DK>
__device__ static inline void store_pair(scan_tile_of_chunk<DK> &s, const scan_rows<scan_shape<DK>::CHUNK> &rows,
                                         int i, int j, float2 g, const float *products, float skip)
{
    const float2 sum = *(const float2 *)&rows.sum[j], rest = *(const float2 *)&rows.rest[j];
    const float2 step = *(const float2 *)&rows.step[j];
    float x = products[0] * step.x * exp2_approx(fminf((g.x - sum.x) + (g.y - rest.x), 0.0f));
    float y = products[1] * step.y * exp2_approx(fminf((g.x - sum.y) + (g.y - rest.y), 0.0f));
    x = j == i ? x + skip : x, y = j + 1 == i ? y + skip : y;
    split_fragment pair;
    pair.set(0, j <= i ? x : 0.0f, j < i ? y : 0.0f);
    *(unsigned *)&s.M[0][i][j] = pair.high[0], *(unsigned *)&s.M[1][i][j] = pair.low[0];
}

/* M of 16 rows from `row` on and N tiles of columns from `first` on. */
template <int N, int DK>
__device__ static void multiply_part(scan_tile_of_chunk<DK> &s, int buffer, int row, int first, float skip)
{
    const int lane = threadIdx.x & 31;
    float d[N][4] = {};
#pragma unroll
    for (int k = 0; k < DK / 16; k++) {
        unsigned a[4], b[N / 2][4];
        ldmatrix_x4(a, smem_address(&s.c[buffer][row + lane % 16][k * 16 + lane / 16 * 8]));
#pragma unroll
        for (int n = 0; n < N; n += 2) load_columns(b[n / 2], s.b[buffer][first * 8], DK + 8, k, n);
        multiply_tiles(d, a, b);
    }
    const scan_rows<scan_shape<DK>::CHUNK> &rows = s.rows[buffer];
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
        const int i = row + lane / 4 + e * 4;
        const float2 g = {rows.sum[i], rows.rest[i]};
#pragma unroll
        for (int n = 0; n < N; n++) store_pair(s, rows, i, (first + n) * 8 + lane % 4 * 2, g, &d[n][e], skip);
    }
}

/* M, but for tiles of 16 x 16 above the diagonal: a warp has 16 rows, or one half of their columns. */
template <int DK> __device__ static void multiply_rows(scan_tile_of_chunk<DK> &s, int buffer, float skip)
{
    constexpr int N = s.TILES * s.STEPS / STATE_WARPS;
    const int warp = threadIdx.x / 32, row = warp % s.STEPS * 16, first = warp / s.STEPS * N;
    if (first * 8 > row) return;
    if constexpr (N > 4)
        if (row < s.CHUNK / 2) return multiply_part<N / 2>(s, buffer, row, first, skip);
    multiply_part<N>(s, buffer, row, first, skip);
}

/* Step k of x^T [16 columns of the warp, CHUNK] as A of a product. */
template <int DK>
__device__ static inline void load_values(unsigned a[4], const scan_tile_of_chunk<DK> &s, int buffer, int k)
{
    const int lane = threadIdx.x & 31, column = threadIdx.x / 32 * 16;
    ldmatrix_x4_trans(a,
                      smem_address(&s.x[buffer][k * 16 + lane / 16 * 8 + lane % 8][column + lane / 8 % 2 * 8]));
}

/* y^T = exp(G) S^T C^T; S is zero where a sequence begins. */
template <int DK>
__device__ static void read_state(float (&y)[scan_shape<DK>::TILES][4], const state_columns<DK> &mine,
                                  const scan_tile_of_chunk<DK> &s, int buffer, bool zero)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < s.TILES * 4; i++) y[i / 4][i % 4] = 0.0f;
    if (zero) return;
    mine.multiply(y, s.c[buffer][0], DK + 8);
#pragma unroll
    for (int n = 0; n < s.TILES; n++) {
        const float2 in = *(const float2 *)&s.rows[buffer].in[n * 8 + lane % 4 * 2];
        y[n][0] *= in.x, y[n][1] *= in.y, y[n][2] *= in.x, y[n][3] *= in.y;
    }
}

/* y^T += x^T M^T: step k has only zeros for rows before it. */
template <int DK>
__device__ static void add_values(float (&y)[scan_shape<DK>::TILES][4], const scan_tile_of_chunk<DK> &s, int buffer)
{
#pragma unroll
    for (int k = 0; k < s.STEPS; k++) {
        unsigned a[4], b[scan_shape<DK>::TILES / 2][4];
        load_values(a, s, buffer, k);
#pragma unroll
        for (int part = 0; part < 2; part++) {
#pragma unroll
            for (int n = 2 * k; n < s.TILES; n += 2) load_columns(b[n / 2], s.M[part][0], s.CHUNK + 8, k, n);
            multiply_tiles(y, a, b, 2 * k);
        }
    }
}

template <int DK>
__device__ static void change_state(state_columns<DK> &mine, const scan_tile_of_chunk<DK> &s, int buffer)
{
    const int lane = threadIdx.x & 31;
    split_fragment a[scan_shape<DK>::STEPS];
#pragma unroll
    for (int k = 0; k < s.STEPS; k++) {
        unsigned x[4];
        load_values(x, s, buffer, k);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 out = *(const float2 *)&s.rows[buffer].out[k * 16 + i / 2 * 8 + lane % 4 * 2];
            a[k].set(i, out.x * __uint_as_float(x[i] << 16), out.y * __uint_as_float(x[i] & 0xffff0000u));
        }
    }
    mine.decay_and_add(s.rows[buffer].decay[0], a, s.b[buffer][0], DK + 8);
}

/* The 16 columns of a warp go through its part of x, which it has read; a lane writes rows. */
template <int DK>
__device__ static void store_rows(scan_tile_of_chunk<DK> &s, const scan_args<bf16> &a, const scan_part &p,
                                  const float (&y)[scan_shape<DK>::TILES][4], int buffer, int at, int n)
{
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * 16;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < s.TILES * 2; i++) {
        const float *pair = &y[i / 2][i % 2 * 2];
        *(unsigned *)&s.x[buffer][i / 2 * 8 + lane / 4][mine + i % 2 * 8 + lane % 4 * 2] = transpose_tile(
            gpu_pack2<bf16>(pair[0], pair[1]));
    }
    __syncwarp();
    if (p.column + mine >= a.p.value_dim) return;
    for (int r = lane; r < n; r += 32) {
        uint4 *to = (uint4 *)(a.y + (p.row + at + r) * a.y_row + p.h * a.p.value_dim + p.column + mine);
        const uint4 *from = (const uint4 *)&s.x[buffer][r][mine];
        to[0] = from[0], to[1] = from[1];
    }
}

/* The chunks of a part, one after the other; the product of their decays. zero: the state is. */
template <int DK, bool OUTPUTS>
__device__ static float run_chunks(scan_tile_of_chunk<DK> &s, state_columns<DK> &mine,
                                   const scan_args<bf16> &a, const scan_part &p, bool zero)
{
    constexpr int CHUNK = s.CHUNK;
    const bool first_warp = threadIdx.x < 32;
    const float skip = scan_skip(a.p, p.h);
    float dt[s.LANE_ROWS], decay = 1.0f;
    request_rows<DK, OUTPUTS>(s, a, p, 0, min(CHUNK, p.rows), 0);
    if (first_warp) {
        read_rates(dt, a, p, 0, min(CHUNK, p.rows));
        set_rows(s.rows[0], dt, a, p.h, min(CHUNK, p.rows));
    }
    for (int at = 0, buffer = 0; at < p.rows; at += CHUNK, buffer ^= 1) {
        const int n = min(CHUNK, p.rows - at), next = min(CHUNK, p.rows - at - CHUNK);
        float y[OUTPUTS ? s.TILES : 1][4];
        cp_async_wait<0>();
        __syncthreads();
        if (next > 0) {
            request_rows<DK, OUTPUTS>(s, a, p, at + CHUNK, next, buffer ^ 1);
            if (first_warp) read_rates(dt, a, p, at + CHUNK, next);
        }
        if constexpr (OUTPUTS) multiply_rows(s, buffer, skip);
        if (next > 0 && first_warp) set_rows(s.rows[buffer ^ 1], dt, a, p.h, next);
        if constexpr (OUTPUTS) {
            read_state(y, mine, s, buffer, zero && at == 0);
            __syncthreads();
            add_values(y, s, buffer);
        }
        change_state(mine, s, buffer);
        decay *= s.rows[buffer].decay[0];
        if constexpr (OUTPUTS) store_rows(s, a, p, y, buffer, at, n);
    }
    return decay;
}

/* ---- segments ---- */

/* Of each span and STATE_COLUMNS columns of a head: [0] the state before the span, [i + 1] what segment i adds to it,
 * [1] with the state before the span. A thread's numbers of four lie side by side with those of the others. */
struct scan_segments {
    float *states, *decays; /* [span][heads * tiles][count][DK * STATE_COLUMNS], [span][heads * tiles][count] */
    int count;              /* 1: there are none */
};

template <int DK> __device__ static inline float4 *state_of(const scan_segments &g, int i)
{
    const int64_t block = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    return (float4 *)(g.states + (block * g.count + i) * (DK * STATE_COLUMNS)) + threadIdx.x;
}

__device__ static inline float *decay_of(const scan_segments &g, int i)
{
    return g.decays + ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * g.count + i;
}

template <int DK> __device__ static void keep_state(float4 *to, const state_columns<DK> &mine)
{
#pragma unroll
    for (int n = 0; n < DK / 8; n++)
        to[n * STATE_THREADS] = {mine.S[n][0], mine.S[n][1], mine.S[n][2], mine.S[n][3]};
}

/* S = decay S + what a segment added. */
template <int DK> __device__ static void add_state(state_columns<DK> &mine, const float4 *from, float decay)
{
#pragma unroll
    for (int n = 0; n < DK / 8; n++) {
        const float4 added = from[n * STATE_THREADS];
        mine.S[n][0] = decay * mine.S[n][0] + added.x, mine.S[n][1] = decay * mine.S[n][1] + added.y;
        mine.S[n][2] = decay * mine.S[n][2] + added.z, mine.S[n][3] = decay * mine.S[n][3] + added.w;
    }
}

/* Where the state of the span is, of this warp's columns; NULL: the warp has none. */
template <int DK> __device__ static inline float *state_at(const scan_args<bf16> &a, const scan_part &p)
{
    const int column = p.column + threadIdx.x / 32 * 16;
    if (column >= a.p.value_dim) return NULL;
    return a.state + a.spans[blockIdx.y].state * a.stride + (int64_t)p.h * DK * a.p.value_dim + column;
}

template <int DK>
__device__ static inline void load_state(state_columns<DK> &mine, const scan_args<bf16> &a,
                                         const scan_part &p, bool goes_on)
{
    const float *state = state_at<DK>(a, p);
    mine.load(state, a.p.value_dim, state && goes_on);
}

/* What the segments of long spans add to the state, but for the last ones. Grid: STATE_COLUMNS columns of a head, span,
 * segment. */
template <int DK>
__global__ void __launch_bounds__(STATE_THREADS) state_kernel(scan_args<bf16> a, scan_segments segments)
{
    extern __shared__ __align__(16) unsigned char memory[];
    scan_tile_of_chunk<DK> &s = *(scan_tile_of_chunk<DK> *)memory;
    gpu_wait();
    scan_part p;
    state_columns<DK> mine;
    if (!find_part<DK>(p, a, segments.count) || p.last) return;
    load_state(mine, a, p, p.first && a.spans[blockIdx.y].context > a.spans[blockIdx.y].rows);
    if (p.first) keep_state(state_of<DK>(segments, 0), mine);
    const float decay = run_chunks<DK, false>(s, mine, a, p, false);
    keep_state(state_of<DK>(segments, p.segment + 1), mine);
    if (threadIdx.x == 0) *decay_of(segments, p.segment + 1) = decay;
}

/* Grid: STATE_COLUMNS columns of a head, span, segment. The state before a span of segments is read from what
 * state_kernel has kept of it, because the block of the last segment may have written the new one. */
template <int DK>
__global__ void __launch_bounds__(STATE_THREADS, scan_shape<DK>::BLOCKS)
    scan_chunk_kernel(scan_args<bf16> a, scan_segments segments)
{
    extern __shared__ __align__(16) unsigned char memory[];
    scan_tile_of_chunk<DK> &s = *(scan_tile_of_chunk<DK> *)memory;
    gpu_wait();
    scan_part p;
    state_columns<DK> mine;
    if (!find_part<DK>(p, a, segments.count)) return;
    const bool goes_on = a.spans[blockIdx.y].context > a.spans[blockIdx.y].rows;
    load_state(mine, a, p, goes_on && p.first && p.last);
    if (p.first && !p.last) add_state(mine, state_of<DK>(segments, 0), 0.0f);
    for (int i = 1; i <= p.segment; i++)
        add_state(mine, state_of<DK>(segments, i), i > 1 ? *decay_of(segments, i) : 0.0f);
    run_chunks<DK, true>(s, mine, a, p, p.first && !goes_on);
    float *state = state_at<DK>(a, p);
    if (p.last && state) mine.store(state, a.p.value_dim);
}

bool gpu_scan_takes_chunks(const proa_state_space *p, proa_view y, proa_view x, proa_view params)
{
    const bool size = p->state_dim == 64 || p->state_dim == 128 || p->state_dim == 256;
    return x.dtype == PROA_DTYPE_BF16 && !p->by_channel && size && p->value_dim % 16 == 0 && gpu_is_vec8(x) &&
           gpu_is_vec8(params) && gpu_is_vec8(y);
}

/* As many as there is room for beside the blocks that there are anyway. */
template <int DK> static int count_segments(const gpu *g, const proa_spans *spans, int64_t blocks)
{
    const int64_t room = g->sms * scan_shape<DK>::BLOCKS /
                         (blocks * (spans->long_count ? spans->long_count : spans->count));
    const int64_t most = spans->rows_max / (scan_shape<DK>::CHUNK * SEGMENT_CHUNKS_MIN);
    const int64_t count = room < most ? room : most;
    return count < 1 ? 1 : count > SEGMENTS_MAX ? SEGMENTS_MAX : (int)count;
}

template <int DK> static void launch_scan(gpu *g, const scan_args<bf16> &a, const proa_spans *spans)
{
    const int64_t blocks = a.p.heads * ((a.p.value_dim + STATE_COLUMNS - 1) / STATE_COLUMNS);
    const size_t shared = sizeof(scan_tile_of_chunk<DK>);
    scan_segments segments = {NULL, NULL, count_segments<DK>(g, spans, blocks)};
    dim3 grid((unsigned)blocks, (unsigned)spans->count, (unsigned)segments.count - 1);
    gpu_note(g,
             cudaFuncSetAttribute(scan_chunk_kernel<DK>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
             "scan_chunks");
    if (segments.count > 1) {
        const int64_t states = blocks * spans->count * segments.count;
        segments.states = gpu_partials_workspace(g, states * (DK * STATE_COLUMNS + 1) * sizeof(float));
        segments.decays = segments.states + states * (DK * STATE_COLUMNS);
        gpu_note(g,
                 cudaFuncSetAttribute(state_kernel<DK>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                 "scan_states");
        gpu_launch(g, "scan_states", state_kernel<DK>, grid, STATE_THREADS, shared, a, segments);
    }
    grid.z = (unsigned)segments.count;
    gpu_launch(g, "scan_chunks", scan_chunk_kernel<DK>, grid, STATE_THREADS, shared, a, segments);
}

void gpu_scan_chunks(gpu *g, const scan_args<bf16> &a, const proa_spans *spans)
{
    if (a.p.state_dim == 64) launch_scan<64>(g, a, spans);
    else if (a.p.state_dim == 128) launch_scan<128>(g, a, spans);
    else launch_scan<256>(g, a, spans);
}
