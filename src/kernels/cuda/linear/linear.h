/* SPDX-License-Identifier: Apache-2.0
 * linear.h - what the files of linear share: the epilogue, loads of weights, and the quantised formats. */
#ifndef PROA_KERNELS_CUDA_LINEAR_H
#define PROA_KERNELS_CUDA_LINEAR_H

#include "kernels/cuda/runtime/cuda.h"

#include <type_traits>

struct epilogue {
    float alpha;
    int act;
    const float *bias;
    const void *residual; /* NULL: none */
    proa_dtype residual_type;
    int64_t residual_row;
    int half; /* of a gated end: rows of the gate, with as many of its factor behind them; 0: no such end */
};

__device__ static inline float residual_at(const epilogue &e, int64_t m, int n)
{
    int64_t at = m * e.residual_row + n;
    if (e.residual_type == PROA_DTYPE_F32) return ((const float *)e.residual)[at];
    if (e.residual_type == PROA_DTYPE_F16) return __half2float(((const __half *)e.residual)[at]);
    return __bfloat162float(((const __nv_bfloat16 *)e.residual)[at]);
}

/* The epilogue of the rows from `row` on. */
static inline epilogue rows_from(epilogue e, int64_t row)
{
    if (e.residual)
        e.residual = (const char *)e.residual + row * e.residual_row * proa_dtype_bytes(e.residual_type);
    return e;
}

static inline cudaDataType_t data_type(proa_dtype dtype)
{
    return dtype == PROA_DTYPE_F32 ? CUDA_R_32F : dtype == PROA_DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* What the epilogue of (m, n) reads, asked for early: its way from memory would otherwise be the last thing that a kernel does.
 * Biases depend on no kernel, the residual does. */
struct epilogue_ahead {
    float bias, second; /* second: the residual, or of a gated end the factor's bias */
};
__device__ static inline void bias_ahead(epilogue_ahead *to, const epilogue &e, int n)
{
    to->bias = e.bias ? e.bias[n] : 0.0f;
    to->second = e.half && e.bias ? e.bias[e.half + n] : 0.0f;
}
__device__ static inline void residual_ahead(epilogue_ahead *to, const epilogue &e, int64_t m, int n)
{
    if (e.residual) to->second = residual_at(e, m, n);
}
/* What becomes of a finished sum; u: its factor's, where the end is gated. */
__device__ static inline float finished(const epilogue &e, float v, float u, const epilogue_ahead &ahead)
{
    float first = gpu_act(v * e.alpha + ahead.bias, e.act);
    return e.half ? first * (u * e.alpha + ahead.second) : first + ahead.second;
}

/* The outputs that N rows of weights make, and the blocks (tiles) of up to R rows each that make them. */
__host__ __device__ static inline int outputs_of(const epilogue &e, int N)
{
    return e.half ? e.half : N;
}
__host__ __device__ static inline int blocks_of(const epilogue &e, int N, int R)
{
    return e.half ? (e.half + R / 2 - 1) / (R / 2) : (N + R - 1) / R;
}

/* The R rows of weights that a block multiplies: one behind the other, or with a gated end the first half of them of the gate and
 * the other half their factors, so that a block has both sums of an output. */
template <int R> struct block_rows {
    /* It makes the outputs [first, first + count), cut at end: of sum i, and of sum R / 2 + i. */
    int first, count, end, half;
    __device__ block_rows(const epilogue &e, int N, int block)
        : first(block * (e.half ? R / 2 : R)), count(e.half ? R / 2 : R), end(outputs_of(e, N)), half(e.half)
    {
    }
    /* Of sum r, or r + R / 2 (upper); the last one's again where there is none. */
    __device__ int row(int r, bool upper) const
    {
        return min(first + r + (upper ? count - R / 2 : 0), end - 1) + (upper ? half : 0);
    }
    __device__ int row(int r) const
    {
        return r < R / 2 ? row(r, false) : row(r - R / 2, true);
    }
    __device__ bool makes(int i) const
    {
        return i < count && first + i < end;
    }
};

/* Weights are read once: past the first cache, and the second is told of the 256 bytes around. */
__device__ static inline uint4 load_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* ---- quant.cu: how quantised weights lie: rows of row_bytes, zeros behind K, then the scales: one f32 for each output, or
 * with int4 an f16 for each [group][output] ---- */

struct quant_layout {
    int64_t row_bytes, scales_at, bytes;
    int groups; /* of int4 */
};
quant_layout quant_layout_of(proa_wfmt format, int64_t N, int64_t K);
/* The sources' numbers, stacked along N, into w->data: uploaded as they are, rounded there (kernels/quant.h). */
void quant_pack(gpu *g, proa_weight *w, const proa_view *sources, int count);
/* proa_device.random_weight, of every format. */
void quant_random(proa_device *d, proa_weight *w, float reach, uint64_t seed);
/* linear for more than THIN_ROWS rows: with e4m3 by cuBLASLt where it can, else widened to f16 first. */
void quant_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep,
                const epilogue &e);

/* ---- gemm.cu: what cuBLASLt's epilogues take ---- */

/* Does it do this activation of sums that go into y? */
bool is_fused(proa_view y, int act);
cublasLtEpilogue_t epilogue_for(int act, bool bias);
/* The bias in this type, made when it is first met. */
const void *bias_as(gpu *g, const float *bias, int64_t count, proa_dtype type);

/* ---- small.cu: products of a short text's rows with weights in f32 ---- */

enum { SMALL_ROWS = 128 };
/* linear, of norm's rows if there is one (which then is x). False: not these sizes or types, nothing was done. */
bool gpu_small(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e, const gpu_norm *norm);

/* ---- thin.cu: products of few rows on tensor cores ---- */

enum { THIN_ROWS = 16, RING_ROWS = 2 };
/* linear for up to THIN_ROWS rows; any format but f32; x and y in f32 or 16 bits. */
void thin_linear(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e);
/* May it be more rows, x being of the weights' type? */
bool thin_text(proa_view y, proa_view x, const proa_weight *w);
/* Do so many rows of quantised weights go through a ring in shared memory (ring.cu)? Then thin_linear takes gated ends of any type too.
 * half: of the gate, or 0. */
bool ring_takes(const gpu *g, const proa_weight *w, int64_t rows, int half);
/* x as f16 or bf16, rows of *ld, in scratch. */
const void *cast_rows(gpu *g, proa_view x, proa_wfmt format, int64_t *ld);

#endif
