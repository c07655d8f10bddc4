/* SPDX-License-Identifier: Apache-2.0
 * state.h - the arguments of the kernels of the gated delta rule and of Mamba's recurrence: row by row (state.cu), by
 * chunks (delta_chunk.cu, scan_chunk.cu). */
#ifndef PROA_KERNELS_CUDA_STATE_H
#define PROA_KERNELS_CUDA_STATE_H

#include "kernels/cuda/runtime/cuda.h"

/* A span of at least so many rows is computed by chunks, if gpu_delta_takes_chunks, gpu_scan_takes_chunks. */
enum { DELTA_CHUNKED_MIN = 8, SCAN_CHUNKED_MIN = 8 };

template <typename T> struct delta_args {
    T *y;
    const T *x;
    const float *rates;
    int64_t y_row, x_row, rates_row;
    const float *rate, *bias;
    float *state;
    int64_t stride;
    const proa_span *spans;
    int key_heads, value_heads, dk, dv;
    float beta_scale, floor; /* proa_delta */
    bool chunked;            /* spans of DELTA_CHUNKED_MIN rows are left to the other kernel */
};

/* The logarithm of a row's decay: -exp(A_log) softplus(a + dt_bias), or with a floor. s: that sum. */
__device__ static inline float delta_log_decay(float rate, float s, float floor)
{
    if (floor < 0.0f) return floor / (1.0f + expf(-expf(rate) * s));
    return -expf(rate) * (s > 20.0f ? s : log1pf(expf(s)));
}

/* bf16 with a decay for each head, keys of 64 or 128 numbers, values of a multiple of 16, rows that can be read by 16
 * bytes (delta_chunk.cu). */
bool gpu_delta_takes_chunks(const proa_delta *d, proa_view y, proa_view x);
/* The spans of at least DELTA_CHUNKED_MIN rows, of `count`. */
void gpu_delta_chunks(gpu *g, const delta_args<__nv_bfloat16> &a, int64_t count);

template <typename T> struct scan_args {
    T *y;
    const T *x, *params;
    const void *rates; /* T, by channel f32 */
    int64_t y_row, x_row, params_row, rates_row;
    proa_state_space p;
    float *state;
    int64_t stride;
    const proa_span *spans;
    bool chunked; /* spans of SCAN_CHUNKED_MIN rows are left to the other kernel */
};

/* How far the state of head i, by channel of column i, goes at a row whose rate is dt. */
__device__ static inline float scan_step(const proa_state_space &p, float dt, int i)
{
    if (!p.bias) return 1.0f;
    const float s = dt + p.bias[i];
    return fminf(fmaxf(s > 20.0f ? s : log1pf(expf(s)), p.least), p.most);
}

__device__ static inline float scan_skip(const proa_state_space &p, int h)
{
    return p.skip ? p.skip[h] : 0.0f;
}

enum { SCAN_ROWS = 16 /* of a tile in shared memory */ };

/* The rows of a tile: B and C, how far the state goes, and what is left of it. */
template <int DK> struct scan_tile {
    float b[SCAN_ROWS][DK], c[SCAN_ROWS][DK], step[SCAN_ROWS], decay[SCAN_ROWS];
};

/* B and C of rows [0, n) of a tile, by all threads; zeros behind dk. */
template <int DK, typename T>
__device__ static inline void scan_load_params(scan_tile<DK> &tile, const scan_args<T> &a, int64_t row, int n,
                                               int h)
{
    const int dk = (int)a.p.state_dim, groups = (int)a.p.groups, group = h / ((int)a.p.heads / groups);
    for (int at = threadIdx.x; at < n * DK; at += blockDim.x) {
        const int i = at / DK, k = at % DK;
        const T *b = a.params + (row + i) * a.params_row + group * dk;
        tile.b[i][k] = k < dk ? gpu_to_f32(b[k]) : 0.0f;
        tile.c[i][k] = k < dk ? gpu_to_f32(b[groups * dk + k]) : 0.0f;
    }
}

/* bf16 with a decay for each head, states of 64, 128 or 256 rows, values of a multiple of 16, rows that can be read by
 * 16 bytes (scan_chunk.cu). */
bool gpu_scan_takes_chunks(const proa_state_space *p, proa_view y, proa_view x, proa_view params);
/* The spans of at least SCAN_CHUNKED_MIN rows. */
void gpu_scan_chunks(gpu *g, const scan_args<__nv_bfloat16> &a, const proa_spans *spans);
/* All spans, by channel (scan_channel.cu). */
void gpu_scan_channels(gpu *g, const scan_args<float> &a, const proa_spans *spans);
void gpu_scan_channels(gpu *g, const scan_args<__half> &a, const proa_spans *spans);
void gpu_scan_channels(gpu *g, const scan_args<__nv_bfloat16> &a, const proa_spans *spans);

#endif
