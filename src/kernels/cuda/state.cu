/* SPDX-License-Identifier: Apache-2.0
 * state.cu - the operations of layers with a recurrent state (kernels/op_state.h): a causal convolution whose last rows
 * are kept, the gated delta rule, and the recurrence of Mamba. States are f32. */
#include "kernels/cuda/state.h"

/* ---- conv_state ---- */

enum { CONV_THREADS = 256, CONV_ROWS_MAX = 4096 /* blocks of a span */ };

template <typename T> struct conv_args {
    T *y;
    const T *x;
    int64_t y_row, x_row;
    const float *w, *bias;
    float *state;
    int64_t stride;
    const proa_span *spans;
    int d, taps, act;
};

/* Column j of row i of a span; rows -1, -2, ... are those that the state keeps. */
template <typename T>
__device__ static inline float conv_input(const conv_args<T> &a, const proa_span &span, int i, int j)
{
    if (i >= 0) return gpu_to_f32(a.x[(span.row + i) * a.x_row + j]);
    if (span.context <= span.rows) return 0.0f;
    return a.state[span.state * a.stride + (int64_t)(a.taps - 1 + i) * a.d + j];
}

/* y[t,j] = act(sum_k w[j,k] x[t - (taps-1) + k, j] + bias[j]). Grid: span, CONV_THREADS columns, rows of the span; a
 * thread has one column. No block writes the state, which the first rows of a span read. */
template <typename T> __global__ void __launch_bounds__(CONV_THREADS) conv_kernel(conv_args<T> a)
{
    gpu_wait();
    const proa_span span = a.spans[blockIdx.x];
    const int j = blockIdx.y * CONV_THREADS + threadIdx.x;
    if (j >= a.d) return;
    for (int i = blockIdx.z; i < span.rows; i += gridDim.z) {
        float sum = 0.0f;
        for (int k = 0; k < a.taps; k++)
            sum += a.w[(int64_t)j * a.taps + k] * conv_input(a, span, i - (a.taps - 1) + k, j);
        if (a.bias) sum += a.bias[j];
        a.y[(span.row + i) * a.y_row + j] = gpu_saturate<T>(gpu_act(sum, a.act));
    }
}

/* The state keeps the last taps - 1 rows. Grid: span, CONV_THREADS columns. A thread has one column, whose rows it
 * moves in rising order: with fewer rows than taps - 1 some come from the state itself, from behind where they go. */
template <typename T> __global__ void __launch_bounds__(CONV_THREADS) conv_keep_kernel(conv_args<T> a)
{
    gpu_wait();
    const proa_span span = a.spans[blockIdx.x];
    const int j = blockIdx.y * CONV_THREADS + threadIdx.x;
    if (j >= a.d || span.rows < 1) return;
    float *kept = a.state + span.state * a.stride + j;
    for (int k = 0; k < a.taps - 1; k++)
        kept[(int64_t)k * a.d] = conv_input(a, span, span.rows - (a.taps - 1) + k, j);
}

static void conv_state(proa_ctx *c, proa_view y, proa_view x, const proa_conv *conv,
                       const proa_layer_state *state, const proa_spans *spans)
{
    gpu *g = gpu_flushed(c, y);
    const int rows = spans->rows_max < CONV_ROWS_MAX ? spans->rows_max : CONV_ROWS_MAX;
    if (spans->count == 0 || rows < 1) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        conv_args<T> a = {(T *)y.data, (const T *)x.data, y.stride[0], x.stride[0]};
        a.w = conv->w, a.bias = conv->bias, a.state = state->base, a.stride = state->stride;
        a.spans = spans->span, a.d = (int)x.shape[1], a.taps = (int)conv->taps, a.act = conv->act;
        const unsigned columns = (unsigned)((a.d + CONV_THREADS - 1) / CONV_THREADS);
        gpu_launch(g, "conv_state", conv_kernel<T>, dim3((unsigned)spans->count, columns, (unsigned)rows),
                   CONV_THREADS, 0, a);
        gpu_launch(g, "conv_keep", conv_keep_kernel<T>, dim3((unsigned)spans->count, columns), CONV_THREADS,
                   0, a);
    });
}

/* ---- gated_delta ---- */

enum { DELTA_ROWS = 16 /* of a tile in shared memory */ };

/* The rows of a tile: q and k divided by their norms, q also by sqrt(dk), the decay, by channel one for each row of the
 * state, and the rate of change. Of the largest keys by channel half as many rows: more do not fit into 48 KiB. */
template <int DK, bool CHANNEL> struct delta_tile {
    static constexpr int ROWS = CHANNEL && DK > 128 ? DELTA_ROWS / 2 : DELTA_ROWS;
    float q[ROWS][DK], k[ROWS][DK], decay[ROWS][CHANNEL ? DK : 1], beta[ROWS];
};

/* out[DK] = scale * x / |x|, zeros behind dk; by one warp. */
template <int DK, typename T>
__device__ static void delta_normalise(float *out, const T *x, int dk, float scale)
{
    float sum = 0.0f;
    for (int i = threadIdx.x & 31; i < dk; i += 32) sum += gpu_to_f32(x[i]) * gpu_to_f32(x[i]);
    for (int n = 16; n > 0; n /= 2) sum += __shfl_xor_sync(~0u, sum, n);
    const float factor = scale * rsqrtf(sum + 1e-6f);
    for (int i = threadIdx.x & 31; i < DK; i += 32) out[i] = i < dk ? gpu_to_f32(x[i]) * factor : 0.0f;
}

/* Of a row of a tile; rates: those of decays. */
template <int DK, bool CHANNEL, typename T>
__device__ static void delta_load_decays(float *decay, const delta_args<T> &a, const float *rates, int h)
{
    const int each = CHANNEL ? a.dk : 1, lane = threadIdx.x & 31;
    for (int i = lane; i < (CHANNEL ? DK : 1); i += 32) {
        const int at = h * each + i;
        decay[i] = i < each ? expf(delta_log_decay(a.rate[h], rates[at] + a.bias[at], a.floor)) : 0.0f;
    }
}

/* Rows [0, n) of a tile, one warp for a row at a time. */
template <int DK, bool CHANNEL, typename T>
__device__ static void delta_load(delta_tile<DK, CHANNEL> &tile, const delta_args<T> &a, int64_t row, int n, int h)
{
    const int kh = h / (a.value_heads / a.key_heads), warps = (int)blockDim.x / 32;
    for (int i = threadIdx.x / 32; i < n; i += warps) {
        const T *x = a.x + (row + i) * a.x_row;
        const float *rates = a.rates + (row + i) * a.rates_row;
        delta_normalise<DK>(tile.q[i], x + kh * a.dk, a.dk, rsqrtf((float)a.dk));
        delta_normalise<DK>(tile.k[i], x + (a.key_heads + kh) * a.dk, a.dk, 1.0f);
        delta_load_decays<DK, CHANNEL>(tile.decay[i], a, rates + a.value_heads, h);
        if ((threadIdx.x & 31) == 0) tile.beta[i] = a.beta_scale / (1.0f + expf(-rates[h]));
    }
}

/* One row: S = decay S; S += k (beta (v - k^T S))^T; y = q^T S, of which this thread has a column. */
template <int DK, bool CHANNEL>
__device__ static inline float delta_row(float (&S)[DK], const delta_tile<DK, CHANNEL> &tile, int i, float v)
{
    float given = 0.0f, y = 0.0f;
#pragma unroll
    for (int r = 0; r < DK; r++) {
        S[r] *= tile.decay[i][CHANNEL ? r : 0];
        given += S[r] * tile.k[i][r];
    }
    const float change = tile.beta[i] * (v - given);
#pragma unroll
    for (int r = 0; r < DK; r++) {
        S[r] += tile.k[i][r] * change;
        y += S[r] * tile.q[i][r];
    }
    return y;
}

/* The other kernel has the span. */
template <typename T>
__device__ static inline bool delta_is_chunked(const delta_args<T> &a, const proa_span &span)
{
    return a.chunked && span.rows >= DELTA_CHUNKED_MIN;
}

/* The gated delta rule over the rows of a span. Grid: value head, span. Thread j has column j of the state S [dk,dv],
 * DK registers, and reads q and k of ROWS rows at a time from shared memory (all threads the same word, so
 * without conflicts); v, y and the state are read and written by neighbouring threads side by side. The rows of a
 * sequence follow each other, so this is for few rows, and for prompts that delta_chunk.cu does not take. */
template <int DK, bool CHANNEL, typename T>
__global__ void __launch_bounds__(PROA_STATE_DIM_MAX) delta_kernel(delta_args<T> a)
{
    constexpr int ROWS = delta_tile<DK, CHANNEL>::ROWS;
    __shared__ delta_tile<DK, CHANNEL> tile;
    gpu_wait();
    const proa_span span = a.spans[blockIdx.y];
    const int h = blockIdx.x, j = threadIdx.x;
    const bool mine = j<a.dv, goes_on = span.context> span.rows;
    float *state = a.state + span.state * a.stride + (int64_t)h * a.dk * a.dv + j, S[DK];
    if (span.rows < 1 || delta_is_chunked(a, span)) return;
#pragma unroll
    for (int r = 0; r < DK; r++) S[r] = goes_on && mine && r < a.dk ? state[(int64_t)r * a.dv] : 0.0f;
    for (int begin = 0; begin < span.rows; begin += ROWS) {
        const int n = span.rows - begin < ROWS ? span.rows - begin : ROWS;
        const int64_t row = span.row + begin;
        __syncthreads();
        delta_load(tile, a, row, n, h);
        __syncthreads();
        for (int i = 0; i < n; i++) {
            const int64_t values = 2 * (int64_t)a.key_heads * a.dk + (int64_t)h * a.dv;
            const float v = mine ? gpu_to_f32(a.x[(row + i) * a.x_row + values + j]) : 0.0f;
            const float y = delta_row(S, tile, i, v);
            if (mine) a.y[(row + i) * a.y_row + (int64_t)h * a.dv + j] = gpu_saturate<T>(y);
        }
    }
#pragma unroll
    for (int r = 0; r < DK; r++)
        if (mine && r < a.dk) state[(int64_t)r * a.dv] = S[r];
}

/* The least number of registers that holds a column. With 256 some of them are in local memory. */
template <bool CHANNEL, typename T> static auto delta_kernel_of(int dk)
{
    return dk <= 32    ? delta_kernel<32, CHANNEL, T>
           : dk <= 64  ? delta_kernel<64, CHANNEL, T>
           : dk <= 128 ? delta_kernel<128, CHANNEL, T>
                       : delta_kernel<PROA_STATE_DIM_MAX, CHANNEL, T>;
}

static void gated_delta(proa_ctx *c, proa_view y, proa_view x, proa_view rates, const proa_delta *d,
                        const proa_layer_state *state, const proa_spans *spans)
{
    gpu *g = gpu_flushed(c, y);
    if (spans->count == 0) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        delta_args<T> a = {(T *)y.data, (const T *)x.data, (const float *)rates.data};
        a.y_row = y.stride[0], a.x_row = x.stride[0], a.rates_row = rates.stride[0];
        a.rate = d->rate, a.bias = d->bias, a.state = state->base, a.stride = state->stride,
        a.spans = spans->span;
        a.key_heads = (int)d->key_heads, a.value_heads = (int)d->value_heads;
        a.dk = (int)d->key_dim, a.dv = (int)d->value_dim;
        a.beta_scale = d->beta_scale, a.floor = d->floor;
        a.chunked = spans->rows_max >= DELTA_CHUNKED_MIN && gpu_delta_takes_chunks(d, y, x);
        if constexpr (std::is_same<T, __nv_bfloat16>::value)
            if (a.chunked) gpu_delta_chunks(g, a, spans->count);
        auto *kernel = d->by_channel ? delta_kernel_of<true, T>(a.dk) : delta_kernel_of<false, T>(a.dk);
        gpu_launch(g, "gated_delta", kernel, dim3((unsigned)a.value_heads, (unsigned)spans->count),
                   (unsigned)((a.dv + 31) / 32 * 32), 0, a);
    });
}

/* ---- selective_scan ---- */

/* The same with steps and decays. */
template <int DK, typename T>
__device__ static void scan_load(scan_tile<DK> &tile, const scan_args<T> &a, int64_t row, int n, int h)
{
    scan_load_params(tile, a, row, n, h);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const T *rates = (const T *)a.rates + (row + i) * a.rates_row;
        tile.step[i] = a.p.bias ? scan_step(a.p, gpu_to_f32(rates[h]), h) : 1.0f;
        tile.decay[i] = expf(-expf(a.p.rate[h]) * tile.step[i]);
    }
}

/* The other kernel has the span, or it is empty. */
template <typename T>
__device__ static inline bool scan_leaves_span(const scan_args<T> &a, const proa_span &span)
{
    return span.rows < 1 || (a.chunked && span.rows >= SCAN_CHUNKED_MIN);
}

/* The recurrence over the rows of a span. Grid: head, span. As in delta_kernel thread j has column j of the state
 * S [dk,dv] in registers and reads B and C of SCAN_ROWS rows at a time from shared memory. For few rows, and for
 * prompts that scan_chunk.cu does not take. */
template <int DK, typename T>
__global__ void __launch_bounds__(PROA_STATE_DIM_MAX) scan_kernel(scan_args<T> a)
{
    __shared__ scan_tile<DK> tile;
    gpu_wait();
    const proa_span span = a.spans[blockIdx.y];
    const int h = blockIdx.x, j = threadIdx.x, dk = (int)a.p.state_dim, dv = (int)a.p.value_dim;
    const bool mine = j<dv, goes_on = span.context> span.rows;
    float *state = a.state + span.state * a.stride + (int64_t)h * dk * dv + j, S[DK];
    if (scan_leaves_span(a, span)) return;
#pragma unroll
    for (int r = 0; r < DK; r++) S[r] = goes_on && mine && r < dk ? state[(int64_t)r * dv] : 0.0f;
    for (int begin = 0; begin < span.rows; begin += SCAN_ROWS) {
        const int n = span.rows - begin < SCAN_ROWS ? span.rows - begin : SCAN_ROWS;
        const int64_t row = span.row + begin;
        __syncthreads();
        scan_load(tile, a, row, n, h);
        __syncthreads();
        for (int i = 0; i < n; i++) {
            const float v = mine ? gpu_to_f32(a.x[(row + i) * a.x_row + (int64_t)h * dv + j]) : 0.0f;
            const float taken = tile.step[i] * v, decay = tile.decay[i];
            float y = scan_skip(a.p, h) * v;
#pragma unroll
            for (int r = 0; r < DK; r++) {
                S[r] = decay * S[r] + tile.b[i][r] * taken;
                y += tile.c[i][r] * S[r];
            }
            if (mine) a.y[(row + i) * a.y_row + (int64_t)h * dv + j] = gpu_saturate<T>(y);
        }
    }
#pragma unroll
    for (int r = 0; r < DK; r++)
        if (mine && r < dk) state[(int64_t)r * dv] = S[r];
}

/* The least number of registers that holds a column, as in delta_kernel_of. */
template <typename T> static auto scan_kernel_of(int64_t dk)
{
    return dk <= 32    ? scan_kernel<32, T>
           : dk <= 64  ? scan_kernel<64, T>
           : dk <= 128 ? scan_kernel<128, T>
                       : scan_kernel<PROA_STATE_DIM_MAX, T>;
}

template <typename T> static void launch_scan_rows(gpu *g, const scan_args<T> &a, int64_t spans)
{
    const dim3 grid((unsigned)a.p.heads, (unsigned)spans);
    const unsigned threads = (unsigned)((a.p.value_dim + 31) / 32 * 32);
    gpu_launch(g, "selective_scan", scan_kernel_of<T>(a.p.state_dim), grid, threads, 0, a);
}

static void selective_scan(proa_ctx *c, proa_view y, proa_view x, proa_view params, proa_view rates,
                           const proa_state_space *p, const proa_layer_state *state, const proa_spans *spans)
{
    gpu *g = gpu_flushed(c, y);
    if (spans->count == 0) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        scan_args<T> a = {(T *)y.data, (const T *)x.data, (const T *)params.data, rates.data};
        a.y_row = y.stride[0], a.x_row = x.stride[0], a.params_row = params.stride[0];
        a.rates_row = rates.stride[0], a.p = *p;
        a.state = state->base, a.stride = state->stride, a.spans = spans->span;
        if (p->by_channel) {
            gpu_scan_channels(g, a, spans);
            return;
        }
        a.chunked = spans->rows_max >= SCAN_CHUNKED_MIN && gpu_scan_takes_chunks(p, y, x, params);
        if constexpr (std::is_same<T, __nv_bfloat16>::value)
            if (a.chunked) gpu_scan_chunks(g, a, spans);
        if (a.chunked && spans->rows_min >= SCAN_CHUNKED_MIN) return;
        launch_scan_rows(g, a, spans->count);
    });
}

void gpu_fill_state(proa_ops *ops)
{
    ops->conv_state = conv_state, ops->gated_delta = gated_delta, ops->selective_scan = selective_scan;
}
