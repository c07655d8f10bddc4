/* SPDX-License-Identifier: Apache-2.0
 * linear.h - what the files of linear share: the epilogue, which rows of weights a block multiplies, streamed
 * loads, and the layout of quantised weights. */
#ifndef PROA_KERNELS_CUDA_LINEAR_LINEAR_H
#define PROA_KERNELS_CUDA_LINEAR_LINEAR_H

#include "kernels/cuda/runtime/cuda.h"
extern "C" {
#include "kernels/coded.h"
}

#include <type_traits>

struct epilogue {
    float alpha;
    int act;
    const float *bias;
    const void *residual; /* NULL: none */
    proa_dtype residual_type;
    int64_t residual_row;
    int gate_rows; /* gated product: rows of the gate; the rows of its factor follow them in w. 0: not gated */
};

__device__ static inline float residual_at(const epilogue &e, int64_t m, int n)
{
    int64_t at = m * e.residual_row + n;
    if (e.residual_type == PROA_DTYPE_F32) return ((const float *)e.residual)[at];
    if (e.residual_type == PROA_DTYPE_F16) return __half2float(((const __half *)e.residual)[at]);
    return __bfloat162float(((const __nv_bfloat16 *)e.residual)[at]);
}

static inline epilogue epilogue_of(const proa_epilogue *e, const proa_weight *w)
{
    epilogue out = {1.0f, PROA_ACT_NONE, NULL, NULL, PROA_DTYPE_F32, 0, 0};
    if (!e) return out;
    out.alpha = e->alpha != 0.0f ? e->alpha : 1.0f;
    out.act = (int)e->act, out.bias = e->bias;
    out.gate_rows = e->gated ? (int)(w->N / 2) : 0;
    if (!e->residual.rank) return out;
    out.residual = e->residual.data, out.residual_type = e->residual.dtype,
    out.residual_row = e->residual.stride[0];
    return out;
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

/* What the epilogue of output (m, n) reads, loaded early so that no load from memory stands at the end of a
 * kernel. Biases may be read before gpu_wait, since no kernel of a pass writes them; the residual only after
 * it. */
struct epilogue_operands {
    float bias, second; /* the residual, or the factor's bias if the product is gated */
};
__device__ static inline void prefetch_bias(epilogue_operands *to, const epilogue &e, int n)
{
    to->bias = e.bias ? e.bias[n] : 0.0f;
    to->second = e.gate_rows && e.bias ? e.bias[e.gate_rows + n] : 0.0f;
}
__device__ static inline void prefetch_residual(epilogue_operands *to, const epilogue &e, int64_t m, int n)
{
    if (e.residual) to->second = residual_at(e, m, n);
}
/* The output that follows from the sum v, as act(alpha v + bias) + residual. Gated, with u the sum of the
 * factor: act(alpha v + bias) * (alpha u + second bias). */
__device__ static inline float apply_epilogue(const epilogue &e, float v, float u, const epilogue_operands &ahead)
{
    float first = gpu_act(v * e.alpha + ahead.bias, e.act);
    return e.gate_rows ? first * (u * e.alpha + ahead.second) : first + ahead.second;
}

/* How many outputs N rows of weights make, and how many blocks (tiles) of up to R rows make them. */
__host__ __device__ static inline int outputs_of(const epilogue &e, int N)
{
    return e.gate_rows ? e.gate_rows : N;
}
__host__ __device__ static inline int blocks_of(const epilogue &e, int N, int R)
{
    return e.gate_rows ? (e.gate_rows + R / 2 - 1) / (R / 2) : (N + R - 1) / R;
}

/* The R rows of weights that a block multiplies. Plain: R rows one after the other. Gated: R / 2 rows of the
 * gate and the R / 2 rows of its factor, so that one block has both sums of an output:
 *
 *   plain   w rows  first .. first + R - 1
 *   gated   w rows  first .. first + R/2 - 1  and  half + first .. half + first + R/2 - 1 */
template <int R> struct block_rows {
    /* The block makes the outputs [first, first + count), cut at end, from sum i (gated: and sum R / 2 + i). */
    int first, count, end, half;
    __device__ block_rows(const epilogue &e, int N, int block)
        : first(block * (e.gate_rows ? R / 2 : R)), count(e.gate_rows ? R / 2 : R), end(outputs_of(e, N)),
          half(e.gate_rows)
    {
    }
    /* Row of weights of sum r, or of sum r + R / 2 (upper). Behind the end the last row again, whose result
     * is unused. */
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

/* Weights are read once per pass: not kept in the L1 cache; the L2 cache fetches the 256 bytes around them. */
__device__ static inline uint4 load_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* The same where a warp reads 512 bytes of a row at once: the L2 cache need not fetch what is about to be requested. */
__device__ static inline uint4 load_row_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* ---- quant.cu. Quantised weights are stored as [N][row_bytes] with zeros behind K. The scales follow, f32 [N]; int4
 * has the layout of kernels/coded.h ---- */

struct quant_layout {
    int64_t row_bytes, scales_at, bytes;
};
quant_layout quant_layout_of(proa_wfmt format, int64_t N, int64_t K);
/* Packs the sources, stacked along N, into w->data. Numbers are uploaded in their own type and rounded on the card by
 * the rules of kernels/quant.h; what kernels/coded.h reads is packed on the host. */
void quant_pack(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count);
/* proa_device.random_weight, of every format. */
void quant_random(proa_device *d, proa_weight *w, float reach, uint64_t seed);
/* x with the columns in the order of a permuted weight's inputs, as f16 in the workspace of casts. */
proa_view quant_permuted(gpu *g, proa_view x, const proa_weight *w);
/* x; but if only its fp8 copy was written, in the memory of x (proa_epilogue.feeds_product), that as f16 in the
 * workspace of fp8 rows. */
proa_view quant_readable(gpu *g, proa_view x);
/* linear for more than SKINNY_ROWS rows: e4m3 by cuBLASLt where it can, all else dequantised to f16 first. */
void quant_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *ep,
                const epilogue &e);

/* ---- gemm_cublaslt.cu: what cuBLASLt's epilogues can do ---- */

/* Does it do this activation of sums that go into y? */
bool epilogue_has_act(proa_view y, int act);
cublasLtEpilogue_t epilogue_for(int act, bool bias);
/* The bias in this type, made when it is first met. */
const void *bias_as(gpu *g, const float *bias, int64_t count, proa_dtype type);

/* ---- skinny_gemm_f32.cu: up to SKINNY_F32_ROWS rows with weights in f32 ---- */

enum { SKINNY_F32_ROWS = 128 };
/* linear; with a norm, of the rows that it makes (these are x then). False: the sizes or types do not fit and
 * nothing was launched. */
bool gpu_skinny_gemm_f32(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e,
                         const gpu_pending_norm *norm);

/* ---- skinny_gemm.cu: few rows on tensor cores ---- */

enum { SKINNY_ROWS = 16, PIPELINED_ROWS = 2 };
/* linear for up to SKINNY_ROWS rows, any weights but f32; x and y in f32 or 16 bits. */
void skinny_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e);
/* The same of any number of rows, some at a time. */
void skinny_gemm_rows(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e);
/* linear of one row that the deferred RMS norm of a row makes (gpu.router), with the norm, weights of 8 bits. False:
 * it does not fit, and nothing was launched. */
bool norm_gemv_quant(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e);
/* May it be more rows, x being of the weights' type? */
bool skinny_takes_more_rows(proa_view y, proa_view x, const proa_weight *w);
/* Does skinny_gemm_pipelined.cu take this many rows of quantised weights? Then gated products of any type are
 * fused too. half: rows of the gate, or 0. */
bool pipelined_takes(const gpu *g, const proa_weight *w, int64_t rows, int half);
/* x as f16 or bf16, rows of *ld, in scratch. */
const void *cast_rows(gpu *g, proa_view x, proa_wfmt format, int64_t *ld);

/* ---- gemm_lora.cu ---- */

/* linear_lora of 17 to 64 rows where A and B are stored behind W (proa_lora.slots). Returns false, and launches
 * nothing, if they are not, or if sizes, types or alignments do not fit. */
bool gpu_gemm_lora(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e,
                   const proa_lora *l, const proa_lora_rows *rows);
proa_lora_stack_fn gpu_lora_stack;

#endif
