/* SPDX-License-Identifier: Apache-2.0
 * experts.h - what the files of experts share: how the pairs of a row and a chosen expert are listed, the arguments of
 * a grouped product, and how one of its outputs is made.
 *
 * The pairs of a piece of the rows are sorted by expert on the device. A tile is up to a fixed number of pairs of one
 * expert. The host knows only how many tiles there can be at most, so it launches blocks for all of these, and a block
 * whose tile does not exist ends at once: nothing is copied to the host, and a pass can be recorded. */
#ifndef PROA_KERNELS_CUDA_EXPERTS_EXPERTS_H
#define PROA_KERNELS_CUDA_EXPERTS_EXPERTS_H

#include "kernels/cuda/linear/skinny_gemm.h"

/* Sorted pairs [first, first + rows), all of one expert. */
struct expert_tile {
    int expert, first, rows;
};

struct expert_lists {
    int heads, tile_rows,
        rows; /* heads > 0: no pairs. Each head is an expert of all rows; tile i has head i % heads */
    const expert_tile *tiles; /* NULL: tile i is pair i (of one row, whose experts are distinct) */
    const int *tile_count;
    const int *pair;    /* [pairs] sorted: t * k + j of the row t and its j-th expert */
    const int32_t *ids; /* [pairs] in the order of the rows */
    int k;
};

/* A product of all tiles: y = finish(x W^T) with the weight of each tile's expert. */
struct expert_call {
    expert_lists lists;
    const void *x; /* of the products' type */
    int64_t x_row;
    proa_dtype x_type;
    int64_t x_expert; /* elements of a row of x before those of an expert: heads stand side by side */
    bool aligned;     /* rows of x begin at 16 bytes */
    bool x_by_step;   /* its rows are those of the step; else of the sorted pairs */
    const char *w;
    int64_t expert_bytes, row_bytes, scales_at; /* expert_bytes: between experts */
    float unit;                                 /* what unpacked weights are to be multiplied by */
    int N, K;
    epilogue e; /* alpha 1, no residual; bias [experts][N] */
    float limit, offset;
    const float *weights; /* [rows][k], weights_row apart: the sums of a pair times its weight; NULL: times 1 */
    int64_t weights_row;
    void *y;
    int64_t y_row, y_expert; /* y_expert: as x_expert */
    proa_dtype y_type;
    bool y_by_pair; /* its rows are the pairs in the order of the rows; else as they are sorted */
};

/* A choice among experts. */
struct route_call {
    float *weights;
    int64_t weights_row;
    int32_t *ids;
    const float *scores;
    int64_t scores_row;
    int E;
    proa_router r;
};

/* False: there is no such tile. */
__device__ static inline bool expert_tile_at(const expert_lists &l, int i, expert_tile *tile)
{
    if (l.heads) {
        int first = i / l.heads * l.tile_rows;
        *tile = {i % l.heads, first, min(l.tile_rows, l.rows - first)};
        return true;
    }
    if (!l.tiles) {
        *tile = {l.ids[i], i, 1};
        return true;
    }
    if (i >= *l.tile_count) return false;
    *tile = l.tiles[i];
    return true;
}

/* Rows of x and of y of the pair at a sorted place. */
__device__ static inline int2 expert_rows_of(const expert_call &a, int place)
{
    if (a.lists.heads) return make_int2(place, place);
    int pair = a.lists.tiles ? a.lists.pair[place] : place;
    return make_int2(a.x_by_step ? pair / a.lists.k : place, a.y_by_pair ? pair : place);
}

/* What the sums of the pair at a sorted place are multiplied by. */
__device__ static inline float expert_weight_of(const expert_call &a, int place)
{
    if (!a.weights) return 1.0f;
    int pair = a.lists.tiles ? a.lists.pair[place] : place;
    return a.weights[pair / a.lists.k * a.weights_row + pair % a.lists.k];
}

/* What an output needs beside its sums: biases and scales of its row of weights and of its factor's. */
struct expert_operands {
    float bias, second, scale, factor;
};
template <int FORMAT>
__device__ static inline expert_operands expert_operands_of(const expert_call &a, const char *w, int expert, int n)
{
    expert_operands o = {0.0f, 0.0f, a.unit, a.unit};
    const float *bias = a.e.bias ? a.e.bias + (int64_t)expert * a.N : NULL;
    if (bias) o.bias = bias[n];
    if (bias && a.e.gate_rows) o.second = bias[a.e.gate_rows + n];
    if (FORMAT != PROA_WFMT_FP8 && FORMAT != PROA_WFMT_I8W) return o;
    const float *scales = (const float *)(w + a.scales_at);
    o.scale *= scales[n];
    if (a.e.gate_rows) o.factor *= scales[a.e.gate_rows + n];
    return o;
}

/* The output of the sums v and, gated, u of the factor, times `weight`. Comparisons keep NaN. */
__device__ static inline float expert_finish(const expert_call &a, float v, float u, const expert_operands &o,
                                             float weight)
{
    v = v * weight * o.scale + o.bias;
    if (!a.e.gate_rows) return gpu_act(v, a.e.act);
    u = u * weight * o.factor + o.second;
    if (a.limit > 0.0f) {
        v = v > a.limit ? a.limit : v;
        u = u > a.limit ? a.limit : u < -a.limit ? -a.limit : u;
    }
    return gpu_act(v, a.e.act) * (u + a.offset);
}

__device__ static inline void expert_store(const expert_call &a, int expert, int64_t row, int n, float v)
{
    int64_t at = row * a.y_row + expert * a.y_expert + n;
    if (a.y_type == PROA_DTYPE_F32) ((float *)a.y)[at] = v;
    else if (a.y_type == PROA_DTYPE_F16) ((__half *)a.y)[at] = gpu_saturate<__half>(v);
    else ((__nv_bfloat16 *)a.y)[at] = gpu_saturate<__nv_bfloat16>(v);
}

/* Which kernel makes the products of a piece, and how many pairs its tiles have. */
struct expert_form {
    bool wide;  /* expert_wide_kernel; else expert_skinny_kernel (weights in f32: expert_f32_kernel) */
    int rows;   /* 8 or 16; wide: 32 or 64; wgmma: 8, 16, 32, 64, 96 or 128 */
    bool wgmma; /* expert_wgmma_kernel instead of either */
};
/* T rows that choose k of E experts each. */
expert_form expert_form_of(proa_wfmt format, int64_t T, int64_t k, int64_t E);

/* grouped_gemm.cu, grouped_f32.cu: one product. tiles: how many there can be at most. */
void expert_product(gpu *g, const expert_call &a, proa_wfmt format, const expert_form &form, int tiles);
void expert_product_f32(gpu *g, const expert_call &a, int tiles);

/* grouped_wgmma.cu: both products of two rows and more. */
bool expert_wgmma_takes(const gpu *g, const proa_experts *e);
expert_form expert_wgmma_form(int64_t T, int64_t k, int64_t E);
/* Numbers between rows of K numbers that are in its products' order. */
int64_t expert_wgmma_row(proa_wfmt format, int64_t K);
/* up.x: the rows of the step, of any type. rows: scratch of pairs rows of expert_wgmma_row(K) numbers of 16 bits, which
 * down.y may overlap. The rows of down.x are as long as expert_wgmma_row says. */
void expert_wgmma(gpu *g, const expert_call &up, const expert_call &down, const proa_experts *e, void *rows,
                  int64_t pairs, int tile_rows, int tiles);

/* single_row.cu: one row whose weights are not f32. Up makes the FFN of each chosen expert. Down makes the op's
 * result (a.e has its residual), and is launched directly behind up. choice: up chooses the experts, of at most
 * EXPERT_ROW_CHOICE, and writes ids and weights, which a.lists.ids are; NULL: they have been chosen. */
enum { EXPERT_ROW_CHOICE = 128 };
bool expert_row_takes(const proa_experts *e, int64_t T, int64_t k);
void expert_row_up(gpu *g, const expert_call &a, proa_wfmt format, const route_call *choice);
void expert_row_down(gpu *g, const expert_call &a, proa_wfmt format, const float *weights, const float *bias);

/* route.cu. The choice that waits is that of these experts? Then it no longer waits, and is in *choice. */
bool gpu_take_choice(gpu *g, proa_view weights, const int32_t *ids, route_call *choice);
void gpu_fill_route(proa_ops *ops);

#endif
