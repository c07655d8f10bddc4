/* SPDX-License-Identifier: Apache-2.0
 * gemm_wgmma.cu - Proa's GEMM for Hopper (wgmma.h): which products it takes, its forms, launching. It takes
 * products of e4m3, and those of 16 bits whose activation would be a separate pass behind cuBLASLt's: other products
 * are as fast alone but slower among a model's kernels (docs/lab/cuda-gemm.md). */
#include "kernels/cuda/linear/wgmma.h"

/* With fewer rows than a tile most of the GPU would be idle. */
enum { ROWS_LEAST = 128, BAND = 8, SHORT_K = 2048 };

typedef hopper_form<128, 256, 4, 2, false> wide_tiles; /* form 1: least is read, for long K */
typedef hopper_form<128, 128, 6, 2, true> alternate_tiles; /* form 2: a tile is written while the next is multiplied */

/* False on other GPUs, and where the plug-in was built without Hopper's own instructions (90 instead of 90a):
 * the kernel is empty there. */
bool gpu_hopper_built(const gpu *g)
{
    cudaFuncAttributes a;
    if (!gpu_hopper(g->index) || !gpu_tensor_map_encoder()) return false;
    if (cudaFuncGetAttributes(&a, gemm_wgmma_kernel<__half, wide_tiles>) == cudaSuccess)
        return a.numRegs > 64;
    cudaGetLastError(); /* said by false */
    return false;
}

/* cuBLASLt's epilogue and what follows it, as one activation. */
static int act_of(const gpu_product *p)
{
    bool tanh = p->epilogue == CUBLASLT_EPILOGUE_GELU || p->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
    bool relu = p->epilogue == CUBLASLT_EPILOGUE_RELU || p->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    return tanh ? (int)PROA_ACT_GELU_TANH : relu ? (int)PROA_ACT_RELU : p->act;
}

static bool has_act(int act)
{
    return act == PROA_ACT_NONE || act == PROA_ACT_RELU || act == PROA_ACT_GELU ||
           act == PROA_ACT_GELU_TANH || act == PROA_ACT_SILU;
}

static bool is_16bit(cudaDataType_t type)
{
    return type == CUDA_R_16F || type == CUDA_R_16BF;
}

/* Operands of one of the kernel's types, and a y that it can write: of e4m3 without a residual. */
static bool has_own_types(const gpu_product *p)
{
    bool codes = p->y_type == CUDA_R_8F_E4M3 && !p->residual && (p->N | p->y_row) % 16 == 0;
    if (p->x_type != p->w_type) return false;
    if (!p->scaled) return is_16bit(p->w_type) && p->y_type == p->w_type;
    return p->w_type == CUDA_R_8F_E4M3 && (is_16bit(p->y_type) || codes);
}

static bool suits_own(const gpu *g, const gpu_product *p)
{
    bool vec8 = (p->N | p->K | p->y_row | p->residual_row) % 8 == 0 &&
                (p->w_ld | p->x_ld) % (p->scaled ? 16 : 8) == 0;
    bool small = p->T < INT_MAX / 2 && p->N < INT_MAX / 2 && p->K < INT_MAX / 2;
    bool one = !p->residual || act_of(p) == PROA_ACT_NONE; /* of the two */
    return g->hopper && has_own_types(p) && vec8 && small && one && has_act(act_of(p));
}

bool gpu_own_takes(const gpu *g, const gpu_product *p, int form)
{
    if (!suits_own(g, p)) return false;
    if (form == GPU_SPLIT_K_FORM) return !p->scaled && gpu_split_k_parts(g, p) > 0;
    return form >= 1 && form < GPU_SPLIT_K_FORM && p->T >= ROWS_LEAST &&
           (p->act != PROA_ACT_NONE || p->scaled || g->own_first);
}

int gpu_own_guess(const gpu *g, const gpu_product *p, bool *sure)
{
    int form = p->K > SHORT_K ? 1 : 2;
    bool spreads = gpu_own_takes(g, p, GPU_SPLIT_K_FORM);
    *sure = !g->own_first && spreads && gpu_split_k_parts(g, p) > 1;
    bool choice = p->scaled && p->act == PROA_ACT_NONE && p->y_type != CUDA_R_8F_E4M3; /* cuBLASLt has it too */
    if (spreads && !(g->own_first && gpu_own_takes(g, p, form))) return GPU_SPLIT_K_FORM;
    if (choice && !g->own_first) return 0;
    return gpu_own_takes(g, p, form) ? form : 0;
}

template <typename F> static hopper_job job_of(const gpu_product *p, const gpu_operands *at, void *y)
{
    hopper_job job = {};
    job.tiles_m = (int)((p->T + F::BM * F::CLUSTER - 1) / (F::BM * F::CLUSTER));
    job.tiles_n = (int)((p->N + F::BN - 1) / F::BN);
    job.tiles = job.tiles_m * job.tiles_n, job.band = BAND;
    int64_t slab = hopper_slab(p->scaled ? 1 : 2);
    job.slabs = (int)((p->K + slab - 1) / slab);
    job.M = (int)p->T, job.N = (int)p->N, job.y = y, job.y_row = p->y_row, job.act = act_of(p),
    job.has_residual = p->residual;
    job.alpha = at->alpha, job.bias = at->bias;
    job.x_scale = (const float *)at->x_scale, job.w_scale = (const float *)at->w_scale;
    job.y_scale = at->y_scale, job.x_length = at->x_length, job.bound = at->bound;
    return job;
}

template <typename T, typename F, typename X, bool CODES>
static bool launch_gemm(gpu *g, const gpu_product *p, const gpu_operands *at, void *y)
{
    CUtensorMap x, w, residual;
    hopper_job job = job_of<F>(p, at, y);
    unsigned clusters = (unsigned)(job.tiles < g->sms / F::CLUSTER ? job.tiles : g->sms / F::CLUSTER);
    auto kernel = gemm_wgmma_kernel<T, F, X, CODES>;
    if (!hopper_map(&x, p->x_type, at->x, p->T, p->K, p->x_ld, F::BM) ||
        !hopper_map(&w, p->w_type, at->w, p->N, p->K, p->w_ld, F::BN / F::CLUSTER))
        return false;
    residual = x;
    if (p->residual && !hopper_map(&residual, p->y_type, at->residual, p->T, p->N, p->residual_row, F::BM))
        return false;
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, F::BYTES),
             "linear (wgmma)");
    gpu_launch_clusters(g, "linear (wgmma)", kernel, dim3(clusters * F::CLUSTER), F::CLUSTER, HOPPER_THREADS,
                        F::BYTES, x, w, residual, job);
    return true;
}

template <typename T, typename X, bool CODES>
static bool launch_form(gpu *g, const gpu_product *p, int form, const gpu_operands *at, void *y)
{
    return form == 1 ? launch_gemm<T, wide_tiles, X, CODES>(g, p, at, y)
                     : launch_gemm<T, alternate_tiles, X, CODES>(g, p, at, y);
}

template <typename T>
static bool launch_typed(gpu *g, const gpu_product *p, int form, const gpu_operands *at, void *y)
{
    return p->scaled ? launch_form<T, __nv_fp8_e4m3, false>(g, p, form, at, y)
                     : launch_form<T, T, false>(g, p, form, at, y);
}

bool gpu_own_run(gpu *g, const gpu_product *p, int form, const gpu_operands *at, void *y)
{
    if (form == GPU_SPLIT_K_FORM) return gpu_split_k_run(g, p, act_of(p), at, y);
    if ((uintptr_t)at->bias % 4 != 0 || (uintptr_t)y % 16 != 0) return false;
    if (p->y_type == CUDA_R_8F_E4M3) return launch_form<__half, __nv_fp8_e4m3, true>(g, p, form, at, y);
    return p->y_type == CUDA_R_16F ? launch_typed<__half>(g, p, form, at, y)
                                   : launch_typed<__nv_bfloat16>(g, p, form, at, y);
}
