/* SPDX-License-Identifier: Apache-2.0
 * cublaslt_plans.cu - products of many rows by cuBLASLt: descriptors and the algorithm, made once for each
 * shape. The algorithm is the one that was timed (autotune.cu; the forms of gemm_wgmma.cu and gemm_split_k.cu
 * are among the candidates), else the first guess. */
#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "base/alloc.h"
}
#include <stdlib.h>
#include <string.h>

/* The library's first guess: a plan is ready with it. */
static void guess_algorithm(gpu *g, gpu_plan *p)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &g->workspace_bytes, sizeof g->workspace_bytes);
    cublasLtMatmulAlgoGetHeuristic(g->lt, p->op, p->a, p->b, p->c, p->d, preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    p->ready = found > 0;
    if (p->ready) p->way = {result.algo, 0};
}

/* For scales of rows and columns the library has one guess, tiles of 128 x 128, which leave most SMs idle
 * where there are few rows (N = 4,096, 256 rows: 64 tiles). Its kernels with other tiles can do these
 * products as well. */
struct tile_form {
    uint32_t id;
    int outputs, rows;
    double rate; /* of multiplying, beside the first's (README.md) */
};
static const tile_form TILES[] = {{CUBLASLT_MATMUL_TILE_128x128, 128, 128, 1.0},
                                  {CUBLASLT_MATMUL_TILE_192x64, 192, 64, 0.86},
                                  {CUBLASLT_MATMUL_TILE_128x64, 128, 64, 0.75},
                                  {CUBLASLT_MATMUL_TILE_64x64, 64, 64, 0.66}};

/* The time of all tiles in units of the first form, as many at a time as there are SMs. */
static double tile_time(const gpu *g, const gpu_product *k, const tile_form &f)
{
    int64_t count = (k->N + f.outputs - 1) / f.outputs * ((k->T + f.rows - 1) / f.rows);
    return (double)((count + g->sms - 1) / g->sms) * f.outputs * f.rows / f.rate;
}

/* Rows of tiles share weights: with more than one row of tiles two blocks load for each other. */
static bool set_tile(gpu *g, const gpu_plan *p, const tile_form &f, cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t result;
    uint16_t cluster = p->key.T > f.rows ? CUBLASLT_CLUSTER_SHAPE_1x2x1 : CUBLASLT_CLUSTER_SHAPE_1x1x1;
    cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &f.id, sizeof f.id);
    cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, sizeof cluster);
    return cublasLtMatmulAlgoCheck(g->lt, p->op, p->a, p->b, p->c, p->d, algo, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= g->workspace_bytes;
}

static void choose_tile(gpu *g, gpu_plan *p)
{
    cublasLtMatmulAlgo_t guess = p->way.algo;
    double least = tile_time(g, &p->key, TILES[0]);
    for (size_t i = 1; i < PROA_COUNT(TILES); i++) {
        cublasLtMatmulAlgo_t algo = guess;
        double time = tile_time(g, &p->key, TILES[i]);
        if (time < least && set_tile(g, p, TILES[i], &algo)) least = time, p->way.algo = algo;
    }
}

/* In cuBLASLt's column-major terms: D [N x T] = A^T B, A the weights [K x N], B the rows [K x T]. */
static void describe_plan(gpu *g, gpu_plan *p, cublasComputeType_t compute)
{
    const gpu_product *k = &p->key;
    cublasOperation_t yes = CUBLAS_OP_T, no = CUBLAS_OP_N;
    cublasLtMatmulDescCreate(&p->op, compute, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &yes, sizeof yes);
    cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &no, sizeof no);
    cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &k->epilogue, sizeof k->epilogue);
    if (k->sms)
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &k->sms, sizeof k->sms);
    if (k->scaled) {
        cublasLtMatmulMatrixScale_t each = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &each, sizeof each);
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &each, sizeof each);
        /* sums stay in the tensor cores, with fewer bits than f32: a tenth faster (docs/lab/cuda-gemm.md) */
        int8_t fast = 1;
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
        if (k->epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
            cudaDataType_t type = k->y_type == CUDA_R_32F ? CUDA_R_16BF : k->y_type;
            cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
            cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->workspace,
                                           sizeof g->workspace);
        }
        /* without pointers no algorithm is found; the product's own are set when it runs */
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->workspace,
                                       sizeof g->workspace);
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->workspace,
                                       sizeof g->workspace);
    }
    cublasLtMatrixLayoutCreate(&p->a, k->w_type, (uint64_t)k->K, (uint64_t)k->N, k->w_ld);
    cublasLtMatrixLayoutCreate(&p->b, k->x_type, (uint64_t)k->K, (uint64_t)k->T, k->x_ld);
    cublasLtMatrixLayoutCreate(&p->c, k->y_type, (uint64_t)k->N, (uint64_t)k->T,
                               k->residual ? k->residual_row : k->y_row);
    cublasLtMatrixLayoutCreate(&p->d, k->y_type, (uint64_t)k->N, (uint64_t)k->T, k->y_row);
    guess_algorithm(g, p);
    if (p->ready && k->scaled) choose_tile(g, p);
}

static void destroy_plan(gpu_plan *p)
{
    cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->c, p->d};
    for (int k = 0; k < 4; k++) cublasLtMatrixLayoutDestroy(layouts[k]);
    cublasLtMatmulDescDestroy(p->op);
}

/* f32 without any shortcut where cuBLASLt has it. */
static void create_plan(gpu *g, gpu_plan *p)
{
    bool f32 = p->key.w_type == CUDA_R_32F;
    describe_plan(g, p, f32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F);
    if (p->ready || !f32) return;
    destroy_plan(p);
    describe_plan(g, p, CUBLAS_COMPUTE_32F);
}

void gpu_plans_free(gpu *g)
{
    for (int i = 0; i < g->plans_count; i++) destroy_plan(&g->plans[i]);
    free(g->plans);
    g->plans = NULL;
    g->plans_count = 0;
}

static gpu_plan *plan_for(gpu *g, const gpu_product *want)
{
    for (int i = 0; i < g->plans_count; i++)
        if (memcmp(&g->plans[i].key, want, sizeof *want) == 0) return &g->plans[i];
    if (g->plans_count == GPU_PLANS_MAX) gpu_plans_free(g);
    if (!g->plans) g->plans = (gpu_plan *)proa_calloc(GPU_PLANS_MAX, sizeof *g->plans);
    gpu_plan *p = &g->plans[g->plans_count++];
    p->key = *want;
    create_plan(g, p);
    p->way.own = gpu_own_guess(g, want, &p->settled);
    return p;
}

bool gpu_multiplies(gpu *g, const gpu_product *product)
{
    return plan_for(g, product)->ready;
}

/* The activation that cuBLASLt has not got. */
static void apply_activation(gpu *g, const gpu_product *k, void *y)
{
    proa_dtype type = k->y_type == CUDA_R_32F   ? PROA_DTYPE_F32
                      : k->y_type == CUDA_R_16F ? PROA_DTYPE_F16
                                                : PROA_DTYPE_BF16;
    proa_view rows = proa_view_2d(y, type, k->T, k->N);
    rows.stride[0] = k->y_row;
    gpu_activate_rows(g, "linear (activation)", rows, k->act);
}

cublasStatus_t gpu_plan_run(gpu *g, const gpu_plan *p, const gpu_gemm_choice *way, const gpu_operands *at,
                            void *y)
{
    float beta = p->key.residual ? 1.0f : 0.0f;
    const void *c = p->key.residual ? at->residual : y;
    if (way->own && gpu_own_run(g, &p->key, way->own, at, y)) return CUBLAS_STATUS_SUCCESS;
    if (g->trace) gpu_trace_begin(g);
    cublasStatus_t status = cublasLtMatmul(g->lt, p->op, &at->alpha, at->w, p->a, at->x, p->b, &beta, c, p->c, y,
                                           p->d, &way->algo, gpu_workspace(g), g->workspace_bytes, g->stream);
    if (g->trace) gpu_trace_end(g, "linear (cuBLASLt)");
    if (status == CUBLAS_STATUS_SUCCESS && p->key.act != PROA_ACT_NONE) apply_activation(g, &p->key, y);
    return status;
}

/* SMs that a product leaves to the branch beside it. 114 of 132 take 224 tiles in two rounds, as all of them do. */
static int sms_left(const gpu *g)
{
    enum { SHARE = 7 };
    return g->beside_branch && !g->on_branch ? g->sms / SHARE : 0;
}

void gpu_multiply(gpu *g, const gpu_product *product, const gpu_operands *at)
{
    gpu_product want = *product;
    if (sms_left(g)) want.sms = g->sms - sms_left(g);
    gpu_plan *p = plan_for(g, &want);
    if (at->bias)
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at->bias, sizeof at->bias);
    if (product->scaled) {
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &at->w_scale,
                                       sizeof at->w_scale);
        cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &at->x_scale,
                                       sizeof at->x_scale);
    }
    if (p->ready && !p->settled) gpu_tune_plan(g, p, at);
    cublasStatus_t status = p->ready ? gpu_plan_run(g, p, &p->way, at, at->y) : CUBLAS_STATUS_NOT_SUPPORTED;
    if (status != CUBLAS_STATUS_SUCCESS) gpu_note(g, cudaErrorNotSupported, "cuBLASLt");
}
