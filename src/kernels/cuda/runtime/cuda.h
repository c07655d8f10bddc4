/* SPDX-License-Identifier: Apache-2.0
 * cuda.h - inside the plug-in: the state of one GPU, launching, conversions, reductions.
 * Owner:   device.cu.
 * Threads: the stepping thread. */
#ifndef PROA_KERNELS_CUDA_RUNTIME_CUDA_H
#define PROA_KERNELS_CUDA_RUNTIME_CUDA_H

extern "C" {
#include "kernels/device.h"
}
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <type_traits>

struct gpu_graph;
struct gpu_derived;
struct gpu_plan;
struct gpu_trace;
struct gpu_uploads;
struct gpu_pieces;
struct gpu_tuning;

/* A norm of few rows that was requested and has not run: the product behind it may include it
 * (linear/linear.cu, linear/skinny_gemm_f32.cu). Every other operation runs it first (gpu_flush). */
struct gpu_pending_norm {
    const float *x; /* NULL: none waits */
    float *y;
    const float *w, *b; /* b: NULL for none */
    int64_t x_row, y_row;
    int rows, d;
    float eps;
    bool layer, aligned;
};

/* Tables whose rows are added into one y: requested one after the other, run by the first other operation
 * (gpu_flush). */
enum { GPU_TABLES_MAX = 3 };
struct gpu_pending_embed {
    const void *table[GPU_TABLES_MAX];
    int64_t stride[GPU_TABLES_MAX], rows[GPU_TABLES_MAX];
    const int32_t *ids[GPU_TABLES_MAX];
    float scale[GPU_TABLES_MAX];
    int count; /* 0: none waits */
    bool add;  /* to what y holds */
    bool vec8;
};

/* An RMS norm of one row into 16 bits that was requested and has not run, and behind it the product that makes the
 * scores of a router: `route` may include both (experts/route.cu). */
struct gpu_pending_router {
    bool norm, product; /* what waits; no product without the norm */
    proa_view x, n, y;  /* n = the norm of x; y = n w^T + bias */
    const float *norm_w, *bias;
    float eps;
    proa_weight w;
};

/* The choice among the scores of one row that was requested and has not run: the experts behind it may make it
 * (experts/single_row.cu). */
struct gpu_pending_choice {
    bool waits;
    proa_view weights;
    int32_t *ids;
    const float *scores;
    int experts;
    proa_router r;
};

/* RMS norms of heads in place, of few rows, that were requested and have not run: those of the queries, and those of
 * the keys behind them. rope_append may include them (attention/attention.cu). */
struct gpu_pending_heads {
    int count; /* 0 to 2 */
    proa_view x[2];
    const float *w[2];
    float eps[2];
};

/* y += more, which was requested and has not run: the kernel that reads y next may do it (elementwise.cu). */
struct gpu_pending_sum {
    bool waits;
    proa_view y, more;
};

/* Rotary positions of the queries and keys of spans of one row, and the keys' and values' way into their pages, with
 * the norms of the heads that waited before: requested and not run. The attention behind them may include them
 * (attention/decode_short.cu). */
struct gpu_pending_rope {
    bool waits;
    proa_view x, v, table, more; /* more: added to x and v first (rank 0: nothing) */
    bool interleaved;
    proa_kv kv;
    proa_spans spans;
    gpu_pending_heads norms; /* count 0: none */
};

/* Rows of 16 bits as e4m3, [rows][width], with a scale for each row (linear/act_quant_fp8.h). */
struct gpu_fp8_rows {
    uint8_t *at; /* NULL: none */
    float *scale;
    float *length; /* square root of the sum of the squares of each row; NULL: not wanted */
};

struct gpu {
    proa_device base; /* first */
    char name[256];
    int index, sms;
    int shared_max;          /* bytes that a block may have */
    bool clusters;           /* blocks can share their memory (sm_90) */
    bool hopper;             /* wgmma and tensor maps */
    bool own_first;          /* PROA_TUNE=own */
    int split_k_clusters[9]; /* by the number of blocks: how many such clusters run at one time
                                (linear/gemm_split_k.cu) */
    cudaStream_t stream;     /* what kernels go to: default_stream, or the branch's */
    cudaStream_t default_stream, branch_stream;
    cudaEvent_t branch_forked, branch_done;
    cudaEvent_t copy_done[2]; /* what gpu_copy_to_host sent has arrived */
    bool on_branch;
    bool serialize_next; /* the next kernel is launched without PDL: it begins a branch or a pass, or follows an
                            upload */
    cublasLtHandle_t lt;
    void *workspace; /* of cuBLASLt: gpu_workspace */
    size_t workspace_bytes;
    void *branch_workspace; /* of the branch's products, which run beside others */
    size_t branch_workspace_bytes;
    gpu_uploads *uploads; /* transfer.cu */
    gpu_pieces *pieces;   /* pieces.cu */
    void *cast[2];        /* activations cast to the weights' type; [1] for the branch (on_branch) */
    size_t cast_bytes[2];
    void *dequant; /* quantised weights as f16 again (linear/quant.cu) */
    size_t dequant_bytes;
    void *fp8_workspace;
    size_t fp8_workspace_bytes;
    proa_view fp8_source; /* the register that fp8_rows is a copy of, valid until it is written again
                             (linear/quant.cu); data NULL: none */
    gpu_fp8_rows fp8_rows;
    bool fp8_rows_wanted; /* the last product of many rows was of e4m3: kernels that write rows make the fp8 copy too */
    void *experts; /* lists and activations of a mixture of experts (experts/experts.cu) */
    size_t experts_bytes;
    float *partials; /* of split attention */
    size_t partials_bytes;
    unsigned *counters;  /* [GPU_COUNTERS], zero between kernels: which block of a group comes last */
    int16_t *buckets[2]; /* T5's buckets by distance: of decoders, of encoders */
    int32_t bucket_key[2][2];
    cudaError_t failed; /* the first failure since check */
    const char *failed_in;
    gpu_graph *graphs;
    int graphs_count;
    proa_pass recording;
    bool is_recording;
    gpu_plan *plans;
    int plans_count;
    gpu_tuning *tuning;   /* linear/autotune.cu */
    gpu_derived *derived; /* from weights (linear/gemm_cublaslt.cu) */
    int derived_count;
    gpu_pending_norm norm;
    gpu_pending_embed embed;
    gpu_pending_router router;
    gpu_pending_heads heads;
    proa_view embed_y;        /* its y */
    proa_dtype embed_dtype;   /* its tables' type */
    gpu_trace *trace;         /* with PROA_TRACE set: time of each kind of kernel; nothing is recorded then */
    cudaEvent_t caller_order; /* between kernels and a stream of the caller */
    gpu_pending_choice choice;
    gpu_pending_sum sum;
    bool beside_branch; /* kernels of the branch run until the join: products leave SMs to them */
    gpu_pending_rope rope;
};

/* Around each launch: waits and counts, when tracing. */
void gpu_trace_begin(gpu *g);
void gpu_trace_end(gpu *g, const char *what);

enum { GPU_COUNTERS = 1 << 16, GPU_PLANS_MAX = 4096, GPU_FEW_ROWS = 16 };

/* Makes this GPU the current one of the calling thread. CUDA's launches and memory go to a thread's current
 * GPU. Engines are opened by one thread and step in another, so every function called through proa_device
 * begins with this; operations come behind such a call. */
gpu *gpu_enter(proa_device *d);

static inline gpu *gpu_of(proa_ctx *c)
{
    return reinterpret_cast<gpu *>(c->device);
}

void gpu_flush(gpu *g);
/* The product of a router for the norm that waits; it waits too. False: it does not fit (experts/route.cu). */
bool gpu_router_defers(gpu *g, proa_view y, proa_view x, const proa_weight *w, const float *bias);
/* Runs the choice that waits (experts/route.cu). */
void gpu_run_choice(gpu *g);
/* Runs the rotary positions that wait (attention/attention.cu). */
void gpu_run_rope(gpu *g);
/* Can a product include this norm of more than one row? (linear/skinny_gemm_f32.cu) */
bool gpu_skinny_f32_takes_norm(const gpu_pending_norm &norm);
/* What was requested to be added to just these rows, of more than few: the caller adds it. rank 0: nothing was
 * (elementwise.cu). */
proa_view gpu_take_sum(gpu *g, proa_view x);
/* y is about to be written: its fp8 copy is no longer valid (linear/quant.cu). */
void gpu_invalidate(gpu *g, proa_view y);

/* The GPU with nothing deferred: the beginning of every operation but the norms and linear. y: the register
 * that it writes. */
static inline gpu *gpu_flushed(proa_ctx *c)
{
    gpu *g = gpu_of(c);
    gpu_flush(g);
    return g;
}
static inline gpu *gpu_flushed(proa_ctx *c, proa_view y)
{
    gpu *g = gpu_flushed(c);
    gpu_invalidate(g, y);
    return g;
}

static inline void gpu_note(gpu *g, cudaError_t status, const char *where)
{
    if (status != cudaSuccess && g->failed == cudaSuccess) g->failed = status, g->failed_in = where;
}

/* Launches a kernel with programmatic dependent launch (PDL): it may start while the one before still runs,
 * and calls gpu_wait before it touches what that one writes. cluster: that many blocks along x share their
 * memory (compute capability 9.0). */
template <typename... Params, typename... Args>
static void gpu_launch_clusters(gpu *g, const char *what, void (*kernel)(Params...), dim3 grid,
                                unsigned cluster, dim3 block, size_t shared, Args... args)
{
    cudaLaunchAttribute attribute[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block;
    config.dynamicSmemBytes = shared, config.stream = g->stream, config.attrs = attribute;
    if (!g->serialize_next) {
        attribute[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attribute[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attribute[config.numAttrs++].val.clusterDim = {cluster, 1, 1};
    }
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    g->serialize_next = false;
    if (g->trace) gpu_trace_begin(g);
    gpu_note(g, cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), what);
    if (g->trace) gpu_trace_end(g, what);
}

template <typename... Params, typename... Args>
static void gpu_launch(gpu *g, const char *what, void (*kernel)(Params...), dim3 grid, dim3 block,
                       size_t shared, Args... args)
{
    gpu_launch_clusters(g, what, kernel, grid, 1, block, shared, args...);
}

/* After it, the kernels before have ended and what they wrote is visible; and the next kernel may start, up
 * to its own gpu_wait. Every thread of every kernel calls it, so the order is transitive. Before it a kernel
 * may read only what no kernel of this pass writes: weights, the spans and page tables of the step, keys of
 * earlier passes (the first kernel of a pass is launched without PDL). */
__device__ static inline void gpu_wait()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
}

/* The same, but the next kernel may start only when all blocks of this one have waited. So it may read before its own
 * gpu_wait what the kernels before this one have written. */
__device__ static inline void gpu_wait_then_release()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ static inline float gpu_to_f32(float x)
{
    return x;
}
__device__ static inline float gpu_to_f32(__half x)
{
    return __half2float(x);
}
__device__ static inline float gpu_to_f32(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

__device__ static inline float gpu_to_f32(__nv_fp8_e4m3 x)
{
    return (float)x;
}

template <typename T> __device__ static inline T gpu_from_f32(float x);
template <> __device__ inline float gpu_from_f32<float>(float x)
{
    return x;
}
template <> __device__ inline __half gpu_from_f32<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ inline __nv_fp8_e4m3 gpu_from_f32<__nv_fp8_e4m3>(float x)
{
    return __nv_fp8_e4m3(x); /* beyond 448 the largest */
}
template <> __device__ inline __nv_bfloat16 gpu_from_f32<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

__device__ static inline float gpu_act(float x, int act)
{
    switch (act) {
    case PROA_ACT_RELU: return x < 0.0f ? 0.0f : x;
    case PROA_ACT_GELU: return 0.5f * x * erfcf(-x * 0.70710678118654752f);
    case PROA_ACT_GELU_TANH:
        return x / (1.0f + expf(-2.0f * 0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case PROA_ACT_QUICK_GELU: return x / (1.0f + expf(-1.702f * x));
    case PROA_ACT_SILU: return x / (1.0f + expf(-x));
    case PROA_ACT_TANH: return tanhf(x);
    case PROA_ACT_RELU2: return x < 0.0f ? 0.0f : x * x;
    default: return x;
    }
}

/* ---- 16-bit values: registers of passes with many rows have the weights' type ---- */

static inline bool gpu_is_16bit(proa_view v)
{
    return v.dtype != PROA_DTYPE_F32;
}

/* Calls f with a value of the view's type. */
template <typename F> static void gpu_by_type(proa_dtype dtype, F f)
{
    if (dtype == PROA_DTYPE_F16) f(__half());
    else if (dtype == PROA_DTYPE_BF16) f(__nv_bfloat16());
    else f(0.0f);
}

/* The same of pages, which may be e4m3 too. */
template <typename F> static void gpu_by_page_type(proa_dtype dtype, F f)
{
    if (dtype == PROA_DTYPE_FP8) f(__nv_fp8_e4m3());
    else gpu_by_type(dtype, f);
}

/* Can rows and columns be loaded in aligned groups of 8? */
static inline bool gpu_is_vec8(proa_view v)
{
    int64_t bytes = 8 * proa_dtype_bytes(v.dtype);
    bool ok = v.shape[v.rank - 1] % 8 == 0 && (uintptr_t)v.data % (uintptr_t)(bytes < 16 ? bytes : 16) == 0;
    for (int i = 0; i + 1 < v.rank; i++) ok = ok && v.stride[i] % 8 == 0;
    return ok;
}

/* Values beyond f16's range become its largest number, not infinity: T5's widest layers reach it, and
 * cuBLASLt makes infinity of it. NaN stays NaN. */
template <typename T> __device__ static inline float gpu_clamp_finite(float x)
{
    if constexpr (std::is_same<T, __half>::value)
        asm("min.NaN.f32 %0, %0, 0f477FE000;\n\tmax.NaN.f32 %0, %0, 0fC77FE000;" : "+f"(x));
    return x;
}
template <typename T> __device__ static inline T gpu_saturate(float x)
{
    return gpu_from_f32<T>(gpu_clamp_finite<T>(x));
}

/* Two numbers as one word. */
template <typename T> __device__ static inline unsigned gpu_pack2(float x, float y)
{
    if constexpr (std::is_same<T, __half>::value) {
        __half2 pair = __floats2half2_rn(gpu_clamp_finite<T>(x), gpu_clamp_finite<T>(y));
        return *reinterpret_cast<unsigned *>(&pair);
    } else {
        __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
        return *reinterpret_cast<unsigned *>(&pair);
    }
}

template <typename T> __device__ static inline void gpu_load8(float out[8], const T *p)
{
    if constexpr (sizeof(T) == 4) {
        float4 a = reinterpret_cast<const float4 *>(p)[0], b = reinterpret_cast<const float4 *>(p)[1];
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z,
        out[7] = b.w;
    } else {
        uint4 v = *reinterpret_cast<const uint4 *>(p);
        const T *t = reinterpret_cast<const T *>(&v);
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = gpu_to_f32(t[i]);
    }
}

template <typename T> __device__ static inline void gpu_store8(T *p, const float v[8])
{
    if constexpr (sizeof(T) == 4) {
        reinterpret_cast<float4 *>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
        reinterpret_cast<float4 *>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else if constexpr (sizeof(T) == 1) {
        unsigned pair[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pair[i] = __nv_cvt_float2_to_fp8x2(make_float2(v[2 * i], v[2 * i + 1]), __NV_SATFINITE, __NV_E4M3);
        *reinterpret_cast<uint2 *>(p) = make_uint2(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16);
    } else
        *reinterpret_cast<uint4 *>(p) = make_uint4(gpu_pack2<T>(v[0], v[1]), gpu_pack2<T>(v[2], v[3]),
                                                   gpu_pack2<T>(v[4], v[5]), gpu_pack2<T>(v[6], v[7]));
}

/* Activations whose result is rounded to 16 bits. The error function is Abramowitz and Stegun 7.1.26, within
 * 1.5e-7. */
template <typename T> __device__ static inline float gpu_act16(float x, int act)
{
    x = gpu_clamp_finite<T>(x);
    switch (act) {
    case PROA_ACT_GELU: {
        float z = fabsf(x) * 0.70710678118654752f, t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
        float p = fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t,
                       0.254829592f);
        float tail = 0.5f * x * p * t * __expf(-z * z); /* of the side where x is not */
        return x < 0.0f ? tail : x - tail;
    }
    case PROA_ACT_GELU_TANH:
        return __fdividef(x, 1.0f + __expf(-2.0f * 0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case PROA_ACT_QUICK_GELU: return __fdividef(x, 1.0f + __expf(-1.702f * x));
    case PROA_ACT_SILU: return __fdividef(x, 1.0f + __expf(-x));
    default: return gpu_act(x, act);
    }
}

__device__ static inline float gpu_warp_sum(float v)
{
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

/* Sum over a block of up to 1,024 threads; `scratch` is 33 floats of shared memory. */
__device__ static inline float gpu_block_sum(float v, float *scratch)
{
    int warps = (blockDim.x + 31) / 32;
    v = gpu_warp_sum(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = (int)(threadIdx.x & 31) < warps ? scratch[threadIdx.x & 31] : 0.0f;
    return gpu_warp_sum(v);
}

__device__ static inline float gpu_warp_max(float v)
{
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

__device__ static inline float gpu_block_max(float v, float *scratch)
{
    int warps = (blockDim.x + 31) / 32;
    v = gpu_warp_max(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = (int)(threadIdx.x & 31) < warps ? scratch[threadIdx.x & 31] : -INFINITY;
    return gpu_warp_max(v);
}

/* The tables of the files; each puts its entries. */
void gpu_fill_elementwise(proa_ops *ops);                     /* elementwise.cu */
void gpu_fill_span_rows(proa_ops *ops);                       /* span_rows.cu */
void gpu_fill_group_norm(proa_ops *ops);                      /* group_norm.cu */
void gpu_fill_streams(proa_ops *ops);                         /* streams.cu */
void gpu_fill_state(proa_ops *ops);                           /* state.cu */
void gpu_fill_lora(proa_ops *ops);                            /* lora.cu */
void gpu_fill_linear(proa_ops *ops);                          /* linear/linear.cu */
void gpu_fill_attention(proa_ops *ops);                       /* attention/attention.cu */
void gpu_fill_experts(proa_ops *ops);                         /* experts/experts.cu */
void gpu_fill_sample(proa_ops *ops, proa_decode_ops *decode); /* sample/sample.cu */
void gpu_fill_beam_search(proa_decode_ops *ops);              /* sample/beam_search.cu */
void gpu_random(proa_device *d, void *memory, proa_dtype dtype, int64_t count, float middle, float reach,
                uint64_t seed);
double gpu_read_rate(proa_device *d);                     /* peak.cu */
double gpu_matrix_rate(proa_device *d, proa_dtype dtype); /* peak.cu */
/* Room for the fp8 copy of y, if products want it and y's rows suit it; then the caller must write it. */
gpu_fp8_rows gpu_fp8_rows_for(gpu *g, proa_view y);
void gpu_fp8_rows_drop(gpu *g);
/* x = act(x), [T,d] (elementwise.cu). */
void gpu_activate_rows(gpu *g, const char *what, proa_view x, int act);
/* Elements between the rows of packed weights (linear/linear.cu). */
int64_t gpu_leading_dim(proa_wfmt format, int64_t K);
/* linear for many rows (linear/gemm_cublaslt.cu). False: the strides do not fit and nothing was launched. */
bool gpu_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e);
/* ---- products by cuBLASLt (linear/cublaslt_plans.cu) ---- */

/* y[T,N] = alpha x[T,K] w[N,K]^T + bias + residual: everything that determines the algorithm. Plans are
 * compared by bytes, so make it with {} and leave no padding unset. */
struct gpu_product {
    int64_t T, N, K;
    int64_t w_ld, x_ld, y_row, residual_row; /* between rows, in elements; residual_row 0: none */
    cudaDataType_t w_type, x_type, y_type;   /* a residual is of y's */
    cublasLtEpilogue_t epilogue;
    int32_t residual;
    int32_t scaled; /* e4m3 with a scale for each row of x and of w; a bias has 16 bits then */
    int32_t act;    /* an activation of y that the epilogue has not got */
    int32_t sms;    /* on which it runs; 0: all */
};

struct gpu_operands {
    void *y;
    const void *x, *w;
    const void *bias;     /* of the epilogue, in y's type (scaled and f32: bf16) */
    const void *residual; /* may be y */
    float alpha;
    const void *x_scale, *w_scale; /* f32 [T], [N] of a scaled product; K is a multiple of 16 */
    /* y of e4m3, by Proa's kernel alone: its scales, which are written, the lengths of the rows of x, f32 [T], and
     * {the largest length of a row of w, the largest bias} */
    float *y_scale;
    const float *x_length, *bound;
    bool w_from_this_pass; /* w was written by a kernel of this pass and may not be read before gpu_wait */
};

/* Has cuBLASLt an algorithm for it? */
bool gpu_multiplies(gpu *g, const gpu_product *product);
/* How a product is done: by a form of Proa's kernel (linear/gemm_wgmma.cu), or with own == 0 by this
 * algorithm of cuBLASLt and a pass for an activation that it does not have. */
struct gpu_gemm_choice {
    cublasLtMatmulAlgo_t algo;
    int own;
};

struct gpu_plan {
    gpu_product key;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c, d;
    gpu_gemm_choice way;
    bool ready;   /* there is an algorithm */
    bool settled; /* and the way is the best that is known */
};

cublasStatus_t gpu_plan_run(gpu *g, const gpu_plan *p, const gpu_gemm_choice *way, const gpu_operands *at,
                            void *y);
/* If cuBLASLt has no algorithm, the next check reports INTERNAL. */
void gpu_multiply(gpu *g, const gpu_product *product, const gpu_operands *at);
void gpu_plans_free(gpu *g);
/* What numbers are derived from: up to two pieces of memory of weights, compared by bytes; what: which numbers. */
struct gpu_derived_key {
    const void *from[2];
    int64_t bytes[2], what;
};
/* Memory for what is derived from these weights; the caller fills it if it was not *made before. Not while a pass is
 * recorded, unless it was made before (linear/gemm_cublaslt.cu). */
void *gpu_derived_of(gpu *g, const gpu_derived_key *key, int64_t bytes, bool *made);
/* Memory in [at, at + bytes) is written or freed: what is derived from it is dropped. bytes < 0: all. */
void gpu_derived_drop(gpu *g, const void *at, int64_t bytes);
void gpu_graphs_drop(gpu *g); /* device.cu */

/* ---- products by Proa's kernels (linear/gemm_wgmma.cu, linear/gemm_split_k.cu) ---- */
enum { GPU_OWN_FORMS = 3, GPU_SPLIT_K_FORM = 3 }; /* from 1 on */
bool gpu_hopper_built(const gpu *g); /* is this a GPU for them, and was the plug-in built for it? */
/* Is the product one for this form? */
bool gpu_own_takes(const gpu *g, const gpu_product *product, int form);
/* The form to take if nothing was timed; 0: cuBLASLt. *sure: do not time it (timed alone it may lose, in a
 * model it does not). */
int gpu_own_guess(const gpu *g, const gpu_product *product, bool *sure);
/* false: not with these operands, nothing was done. */
bool gpu_own_run(gpu *g, const gpu_product *product, int form, const gpu_operands *at, void *y);
/* The part of linear/gemm_split_k.cu. act: everything that is done to a sum. */
void gpu_split_k_open(gpu *g);
int gpu_split_k_parts(const gpu *g, const gpu_product *product); /* of K; 0: not such a product */
bool gpu_split_k_run(gpu *g, const gpu_product *product, int act, const gpu_operands *at, void *y);

/* ---- algorithms timed (linear/autotune.cu) ---- */
void gpu_tune_open(gpu *g, const char *capability);
/* Sets the plan's algorithm from the file, or times some, unless that is not possible now. */
void gpu_tune_plan(gpu *g, gpu_plan *p, const gpu_operands *at);
void gpu_tune_close(gpu *g); /* writes what is new */

/* ---- uploads (transfer.cu) ---- */
cudaError_t gpu_uploads_open(gpu *g);
void gpu_upload(proa_device *d, void *dst, const void *src, int64_t bytes);
void gpu_copy_to_host(proa_device *d, void *dst, const void *src, int64_t bytes, int ticket);
void gpu_wait_copy(proa_device *d, int ticket);
void gpu_wait_copies_on_stream(proa_device *d);
/* The weights are loaded: frees the staging memory and the threads. */
void gpu_uploads_release_staging(gpu *g);
void gpu_uploads_close(gpu *g);

/* ---- KV pages to the host and back (pieces.cu) ---- */
cudaError_t gpu_pieces_open(gpu *g);
int64_t gpu_save_pieces(proa_device *d, void *host, const void *memory, int64_t bytes, int64_t count,
                        int64_t stride);
int64_t gpu_load_pieces(proa_device *d, void *memory, const void *host, int64_t bytes, int64_t count,
                        int64_t stride);
int64_t gpu_fetch_pages(proa_device *d, proa_device *from, const proa_page_move *move);
int64_t gpu_pieces_done(proa_device *d);
void gpu_wait_pieces(proa_device *d, int64_t nr);
void gpu_wait_pieces_on_stream(proa_device *d);
void gpu_pieces_close(gpu *g);

/* workspace_bytes of memory for the product that is launched next. */
void *gpu_workspace(gpu *g);
void *gpu_cast_workspace(gpu *g, size_t bytes);
void *gpu_dequant_workspace(gpu *g, size_t bytes);
void *gpu_fp8_rows_workspace(gpu *g, size_t bytes);
void *gpu_experts_workspace(gpu *g, size_t bytes);
float *gpu_partials_workspace(gpu *g, size_t bytes);

#endif
