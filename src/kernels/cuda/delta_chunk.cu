/* SPDX-License-Identifier: Apache-2.0
 * delta_chunk.cu - the gated delta rule over many rows, CHUNK of them at a time, on tensor cores (the WY form of
 * Yang et al. 2024, "Gated Delta Networks"; flash-linear-attention's chunk_gated_delta_rule).
 *
 * Let S [dk,dv] be the state before a chunk, G_i the sum of the logarithms of the decays up to row i of it, k_i and q_i
 * keys and queries divided by their norms (q also by sqrt(dk)), b_i the rate of change. With E_ij = exp(G_i - G_j)
 *
 *     A_ij = b_i E_ij k_i.k_j  (j < i)        T = (I + A)^-1                    [CHUNK,CHUNK], lower triangular
 *     M_ij =     E_ij q_i.k_j  (j <= i)
 *     R_i  = b_i (v_i - exp(G_i) S^T k_i)     U = T R                           what the rows change
 *     y_i  = exp(G_i) S^T q_i + (M U)_i
 *     S    = exp(G_last) S + sum_j exp(G_last - G_j) k_j U_j^T
 *
 * Block: a head's COLUMNS columns of the state and a span, whose chunks it runs one after the other. T and M need no
 * columns, and are computed by each block of a head. A warp holds 16 columns: S^T [16,dk] in 64 f32 registers of a
 * thread (dk 128), as D of mma.sync; all products are of transposes, so that D of one (S^T, R^T, U^T) is A of the next
 * without a way through shared memory. There are q and k of two chunks (one is read by cp.async meanwhile), v, T and M:
 * 59 KiB with dk 128.
 *
 * Precision: q, k and v are bf16 as stored; their norms and E are multiplied to f32 sums, so q.k and k.k are exact but
 * for the order of sums. What is f32 (S, R, U, T, M) goes into a product as the sum of two bf16 numbers, 16 bits:
 * against f64 y and S are off by 1e-5 of their largest number, which is 1/400 of the rounding of y. f32 and f16 are
 * computed row by row in f32 (state.cu). */
#include "kernels/cuda/state_tile.h"

enum {
    CHUNK = 32,
    WARPS = STATE_WARPS,
    THREADS = STATE_THREADS,
    COLUMNS = STATE_COLUMNS,
    SQUARE = CHUNK + 8,
    A_ROW = CHUNK + 4
};

/* What a block has in shared memory. */
template <int DK> struct chunk_tile {
    bf16 q[2][CHUNK][DK + 8], k[2][CHUNK][DK + 8], v[2][CHUNK][COLUMNS + 8];
    bf16 T[2][CHUNK][SQUARE], M[2][CHUNK][SQUARE]; /* the number's first 8 bits, what is left of it */
    float A[CHUNK][A_ROW];
    float sum[CHUNK];                   /* G */
    float rate[CHUNK];                  /* b; 0 behind the last row */
    float q_norm[CHUNK], k_norm[CHUNK]; /* 1 / |q|, 1 / |k| */
    float q_in[CHUNK], k_in[CHUNK];     /* exp(G) / |q|, exp(G) / |k| */
    float k_out[CHUNK];                 /* exp(G_last - G) / |k| */
};

/* Requests the rows of a chunk; those behind the last one become zeros. */
template <int DK>
__device__ static void request_chunk(chunk_tile<DK> &s, const delta_args<bf16> &a, int buffer, int64_t row,
                                     int n, int h, int column)
{
    const int kh = h / (a.value_heads / a.key_heads), width = min(COLUMNS, a.dv - column) / 8;
    for (int i = threadIdx.x; i < CHUNK * DK / 8; i += THREADS) {
        const int r = i / (DK / 8), piece = i % (DK / 8) * 8;
        const bf16 *q = a.x + (row + (r < n ? r : 0)) * a.x_row + kh * DK + piece;
        cp_async16(smem_address(&s.q[buffer][r][piece]), q, r < n);
        cp_async16(smem_address(&s.k[buffer][r][piece]), q + (int64_t)a.key_heads * DK, r < n);
    }
    const bf16 *v = a.x + row * a.x_row + 2 * (int64_t)a.key_heads * DK + (int64_t)h * a.dv + column;
    for (int i = threadIdx.x; i < CHUNK * width; i += THREADS) {
        const int r = i / width, piece = i % width * 8;
        cp_async16(smem_address(&s.v[buffer][r][piece]), v + (r < n ? r : 0) * a.x_row + piece, r < n);
    }
    cp_async_commit();
}

/* The rates of a row, b and a, of this lane's row of the chunk. */
struct chunk_rates {
    float b, a;
};

__device__ static inline chunk_rates read_rates(const delta_args<bf16> &a, int64_t row, int n, int h)
{
    const int lane = threadIdx.x & 31;
    if (lane >= n) return {0.0f, 0.0f};
    const float *rates = a.rates + (row + lane) * a.rates_row;
    return {rates[h], rates[a.value_heads + h]};
}

/* By one warp: G and b. Rows behind the last one neither decay nor change anything. */
template <int DK>
__device__ static void set_rates(chunk_tile<DK> &s, const delta_args<bf16> &a, chunk_rates mine, int n, int h)
{
    const int lane = threadIdx.x & 31;
    float sum = lane < n ? delta_log_decay(a.rate[h], mine.a + a.bias[h], a.floor) : 0.0f;
    for (int i = 1; i < 32; i *= 2) {
        const float before = __shfl_up_sync(~0u, sum, i);
        if (lane >= i) sum += before;
    }
    s.sum[lane] = sum;
    s.rate[lane] = lane < n ? a.beta_scale / (1.0f + expf(-mine.b)) : 0.0f;
}

/* Four threads for each row. */
template <int DK> __device__ static void set_norms(chunk_tile<DK> &s, int buffer)
{
    const int row = threadIdx.x / 4, part = threadIdx.x % 4;
    float q = 0.0f, k = 0.0f;
    for (int i = part * 2; i < DK; i += 8) {
        const float2 x = __bfloat1622float2(*(const __nv_bfloat162 *)&s.q[buffer][row][i]);
        const float2 z = __bfloat1622float2(*(const __nv_bfloat162 *)&s.k[buffer][row][i]);
        q += x.x * x.x + x.y * x.y, k += z.x * z.x + z.y * z.y;
    }
    for (int i = 2; i > 0; i /= 2) q += __shfl_xor_sync(~0u, q, i), k += __shfl_xor_sync(~0u, k, i);
    if (part == 0) s.q_norm[row] = rsqrtf((float)DK) * rsqrtf(q + 1e-6f), s.k_norm[row] = rsqrtf(k + 1e-6f);
}

template <int DK> __device__ static void set_factors(chunk_tile<DK> &s)
{
    const int lane = threadIdx.x & 31;
    const float in = expf(s.sum[lane]), out = expf(s.sum[CHUNK - 1] - s.sum[lane]);
    s.q_in[lane] = in * s.q_norm[lane], s.k_in[lane] = in * s.k_norm[lane], s.k_out[lane] = out * s.k_norm[lane];
}

/* Warps 0 and 1: k_i.k_j of 16 rows i each; warps 2 and 3: q_i.k_j. */
template <int DK> __device__ static void multiply_keys(float (&d)[4][4], const chunk_tile<DK> &s, int buffer)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const bf16 *rows = warp < 2 ? s.k[buffer][0] : s.q[buffer][0], *keys = s.k[buffer][0];
#pragma unroll
    for (int i = 0; i < 16; i++) d[i / 4][i % 4] = 0.0f;
#pragma unroll
    for (int k = 0; k < DK / 16; k++) {
        unsigned a[4], b[2][4];
        ldmatrix_x4(a, smem_address(rows + (warp % 2 * 16 + lane % 16) * (DK + 8) + k * 16 + lane / 16 * 8));
        load_columns(b[0], keys, DK + 8, k, 0), load_columns(b[1], keys, DK + 8, k, 2);
#pragma unroll
        for (int n = 0; n < 4; n++) gpu_mma<bf16>::run(d[n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
}

/* A and M of the products. */
template <int DK> __device__ static void scale_products(chunk_tile<DK> &s, const float (&d)[4][4])
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
#pragma unroll
    for (int e = 0; e < 16; e++) {
        const int i = warp % 2 * 16 + lane / 4 + e % 4 / 2 * 8, j = e / 4 * 8 + lane % 4 * 2 + e % 2;
        const float x = d[e / 4][e % 4] * s.k_norm[j] * expf(fminf(s.sum[i] - s.sum[j], 0.0f));
        if (warp < 2) s.A[i][j] = j < i ? x * s.rate[i] * s.k_norm[i] : 0.0f;
        else store_split(s.M, i, j, j <= i ? x * s.q_norm[i] : 0.0f);
    }
}

/* By one warp: T by forward substitution, T_ij = (i == j) - sum_(l<i) A_il T_lj. Lane j has column j. */
template <int DK> __device__ static void invert(chunk_tile<DK> &s)
{
    const int lane = threadIdx.x & 31;
    float column[CHUNK];
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int l = 0; l < i; l += 4) {
            const float4 a = *(const float4 *)&s.A[i][l]; /* zeros from column i on */
            sum[0] += a.x * column[l];
            if (l + 1 < i) sum[1] += a.y * column[l + 1];
            if (l + 2 < i) sum[2] += a.z * column[l + 2];
            if (l + 3 < i) sum[3] += a.w * column[l + 3];
        }
        column[i] = (i == lane ? 1.0f : 0.0f) - ((sum[0] + sum[1]) + (sum[2] + sum[3]));
        store_split(s.T, i, lane, column[i]);
    }
}

/* D^T += X^T L^T for a lower triangle L [CHUNK,CHUNK] in two parts: step 1 has only zeros for rows below 16. */
__device__ static void multiply_triangle(float (&d)[4][4], const float (&x)[4][4],
                                         const bf16 (&L)[2][CHUNK][SQUARE])
{
#pragma unroll
    for (int k = 0; k < 2; k++) {
        split_fragment a;
        a.set_tiles(x[2 * k], x[2 * k + 1]);
        unsigned high[2][4], low[2][4];
#pragma unroll
        for (int n = 2 * k; n < 4; n += 2) {
            load_columns(high[n / 2], L[0][0], SQUARE, k, n), load_columns(low[n / 2], L[1][0], SQUARE, k, n);
        }
        multiply_tiles(d, a.high, high, 2 * k), multiply_tiles(d, a.high, low, 2 * k);
        multiply_tiles(d, a.low, high, 2 * k);
    }
}

/* What a warp has of a head. */
template <int DK> struct warp_columns : state_columns<DK> {
    /* by_k = S^T K^T, by_q = S^T Q^T */
    __device__ void read_state(float (&by_k)[4][4], float (&by_q)[4][4], const chunk_tile<DK> &s, int buffer) const
    {
#pragma unroll
        for (int i = 0; i < 16; i++) by_k[i / 4][i % 4] = by_q[i / 4][i % 4] = 0.0f;
#pragma unroll
        for (int k = 0; k < DK / 16; k++) {
            split_fragment a;
            a.set_tiles(this->S[2 * k], this->S[2 * k + 1]);
            unsigned keys[2][4], queries[2][4];
#pragma unroll
            for (int n = 0; n < 4; n += 2) {
                load_columns(keys[n / 2], s.k[buffer][0], DK + 8, k, n);
                load_columns(queries[n / 2], s.q[buffer][0], DK + 8, k, n);
            }
            multiply_tiles(by_k, a.high, keys), multiply_tiles(by_q, a.high, queries);
            multiply_tiles(by_k, a.low, keys), multiply_tiles(by_q, a.low, queries);
        }
    }

    /* by_k becomes R^T; by_q the first term of y. */
    __device__ void subtract(float (&by_k)[4][4], float (&by_q)[4][4], const chunk_tile<DK> &s, int buffer) const
    {
        const int lane = threadIdx.x & 31, column = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
        for (int e = 0; e < 16; e++) {
            const int i = e / 4 * 8 + lane % 4 * 2 + e % 2;
            const float v = __bfloat162float(s.v[buffer][i][column + e % 4 / 2 * 8]);
            by_k[e / 4][e % 4] = s.rate[i] * (v - s.k_in[i] * by_k[e / 4][e % 4]);
            by_q[e / 4][e % 4] *= s.q_in[i];
        }
    }

    /* S = exp(G_last) S + sum_j exp(G_last - G_j) k_j U_j^T; U is scaled in place. */
    __device__ void change_state(float (&U)[4][4], const chunk_tile<DK> &s, int buffer)
    {
        const int lane = threadIdx.x & 31;
        split_fragment a[2];
#pragma unroll
        for (int e = 0; e < 16; e++) U[e / 4][e % 4] *= s.k_out[e / 4 * 8 + lane % 4 * 2 + e % 2];
        a[0].set_tiles(U[0], U[1]), a[1].set_tiles(U[2], U[3]);
        this->decay_and_add(expf(s.sum[CHUNK - 1]), a, s.k[buffer][0], DK + 8);
    }
};

/* The 16 columns of a warp go through its part of v, which it has read; a lane writes a row. */
template <int DK>
__device__ static void store_outputs(chunk_tile<DK> &s, const delta_args<bf16> &a, const float (&y)[4][4],
                                     int buffer, int64_t row, int n, int h, int column)
{
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * 16;
    __syncwarp();
#pragma unroll
    for (int e = 0; e < 16; e++)
        s.v[buffer][e / 4 * 8 + lane % 4 * 2 + e % 2][mine + lane / 4 + e % 4 / 2 * 8] = gpu_saturate<bf16>(
            y[e / 4][e % 4]);
    __syncwarp();
    if (lane >= n) return;
    uint4 *to = (uint4 *)(a.y + (row + lane) * a.y_row + (int64_t)h * a.dv + column + mine);
    const uint4 *from = (const uint4 *)&s.v[buffer][lane][mine];
    to[0] = from[0], to[1] = from[1];
}

/* One chunk: its rows have arrived. */
template <int DK>
__device__ static void run_chunk(chunk_tile<DK> &s, warp_columns<DK> &mine, const delta_args<bf16> &a,
                                 chunk_rates rates, int buffer, int64_t row, int n, int h, int column)
{
    const int warp = threadIdx.x / 32;
    const bool idle = column + warp * 16 >= a.dv;
    float by_k[4][4], by_q[4][4];
    multiply_keys(by_k, s, buffer);
    if (warp == WARPS - 1) set_rates(s, a, rates, n, h);
    set_norms(s, buffer);
    __syncthreads();
    scale_products(s, by_k);
    if (warp == WARPS - 2) set_factors(s);
    __syncthreads();
    if (warp == 0) invert(s);
    mine.read_state(by_k, by_q, s, buffer);
    mine.subtract(by_k, by_q, s, buffer);
    __syncthreads();
    float U[4][4] = {};
    multiply_triangle(U, by_k, s.T);
    multiply_triangle(by_q, U, s.M);
    if (!idle) store_outputs(s, a, by_q, buffer, row, n, h, column);
    mine.change_state(U, s, buffer);
}

/* Grid: COLUMNS columns of a value head, span. */
template <int DK> __global__ void __launch_bounds__(THREADS) chunk_kernel(delta_args<bf16> a)
{
    extern __shared__ __align__(16) unsigned char memory[];
    chunk_tile<DK> &s = *(chunk_tile<DK> *)memory;
    gpu_wait();
    const proa_span span = a.spans[blockIdx.y];
    const int tiles = (a.dv + COLUMNS - 1) / COLUMNS, h = blockIdx.x / tiles,
              column = blockIdx.x % tiles * COLUMNS;
    if (span.rows < DELTA_CHUNKED_MIN) return;
    const int warp = threadIdx.x / 32;
    float *state = a.state + span.state * a.stride + (int64_t)h * DK * a.dv + column + warp * 16;
    const bool idle = column + warp * 16 >= a.dv;
    warp_columns<DK> mine;
    mine.load(state, a.dv, span.context > span.rows && !idle);
    request_chunk(s, a, 0, span.row, min(CHUNK, span.rows), h, column);
    chunk_rates rates = read_rates(a, span.row, min(CHUNK, span.rows), h);
    for (int at = 0, buffer = 0; at < span.rows; at += CHUNK, buffer ^= 1) {
        const int n = min(CHUNK, span.rows - at), next = min(CHUNK, span.rows - at - CHUNK);
        const chunk_rates now = rates;
        cp_async_wait<0>();
        __syncthreads();
        if (next > 0) {
            request_chunk(s, a, buffer ^ 1, span.row + at + CHUNK, next, h, column);
            rates = read_rates(a, span.row + at + CHUNK, next, h);
        }
        run_chunk(s, mine, a, now, buffer, span.row + at, n, h, column);
    }
    if (!idle) mine.store(state, a.dv);
}

bool gpu_delta_takes_chunks(const proa_delta *d, proa_view y, proa_view x)
{
    return x.dtype == PROA_DTYPE_BF16 && !d->by_channel && (d->key_dim == 64 || d->key_dim == 128) &&
           d->value_dim % 16 == 0 && gpu_is_vec8(x) && gpu_is_vec8(y);
}

template <int DK> static void launch_chunks(gpu *g, const delta_args<bf16> &a, int64_t count)
{
    const unsigned blocks = (unsigned)(a.value_heads * ((a.dv + COLUMNS - 1) / COLUMNS));
    const size_t shared = sizeof(chunk_tile<DK>);
    gpu_note(g, cudaFuncSetAttribute(chunk_kernel<DK>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
             "delta_chunks");
    gpu_launch(g, "delta_chunks", chunk_kernel<DK>, dim3(blocks, (unsigned)count), THREADS, shared, a);
}

void gpu_delta_chunks(gpu *g, const delta_args<bf16> &a, int64_t count)
{
    if (a.dk == 64) launch_chunks<64>(g, a, count);
    else launch_chunks<128>(g, a, count);
}
