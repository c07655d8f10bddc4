/* SPDX-License-Identifier: Apache-2.0
 * prefill.cu - experiments on attention over many rows and of what stands beside it: shapes of the
 * kernel's block, cuBLASLt's algorithms one by one, the activation's pass.
 * Build: nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -I../../src -I../../include prefill.cu
 * -lcublasLt */
#include "../../src/kernels/cuda/attention/prefill_mma.cu"

#include <cstdio>
#include <vector>

static gpu g;
void gpu_trace_begin(gpu *)
{
}
void gpu_trace_end(gpu *, const char *)
{
}
void gpu_flush(gpu *)
{
}

template <typename F> static double microseconds(F f)
{
    cudaEvent_t a, b;
    float best = 1e30f;
    cudaEventCreate(&a), cudaEventCreate(&b);
    for (int r = 0; r < 5; r++) {
        float ms;
        cudaEventRecord(a, g.stream);
        for (int i = 0; i < 8; i++) f();
        cudaEventRecord(b, g.stream), cudaEventSynchronize(b), cudaEventElapsedTime(&ms, a, b);
        if (ms < best) best = ms;
    }
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess || g.failed != cudaSuccess)
        printf("%s %s\n", cudaGetErrorString(e), cudaGetErrorString(g.failed)), g.failed = cudaSuccess;
    return best * 1e3 / 8;
}

__global__ void fill(__half *w, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned z = (unsigned)i * 2654435761u;
        z ^= z >> 15, z *= 2246822519u, z ^= z >> 13;
        w[i] = __float2half(((z & 0xffff) / 65536.0f - 0.5f) * 2.0f);
    }
}
static __half *random_halves(size_t n)
{
    __half *p;
    cudaMalloc(&p, n * 2);
    fill<<<1024, 256, 0, g.stream>>>(p, n);
    return p;
}

static attention_task the_task(int spans, int rows, int heads, int dim, bool causal)
{
    size_t T = (size_t)spans * rows, width = (size_t)3 * heads * dim;
    __half *qkv = random_halves(T * width), *y = random_halves(T * heads * dim);
    std::vector<proa_span> s(spans);
    for (int i = 0; i < spans; i++) s[i] = {i * rows, rows, rows, 0};
    proa_span *there;
    cudaMalloc(&there, spans * sizeof *there);
    cudaMemcpy(there, s.data(), spans * sizeof *there, cudaMemcpyHostToDevice);
    attention_task t = {y,
                        heads * dim,
                        dim,
                        qkv,
                        (int64_t)width,
                        dim,
                        PROA_DTYPE_F16,
                        qkv + heads * dim,
                        qkv + 2 * heads * dim,
                        (int64_t)width};
    t.heads = t.kv_heads = heads, t.dim = dim, t.group = 1, t.spans = there, t.scale = 0.1f, t.causal = causal;
    return t;
}
template <int DIM, int TALL, int WARPS, bool AHEAD, int BLOCKS>
static void row(const attention_task &t, int spans, int rows)
{
    proa_spans list = {};
    list.count = spans, list.rows_max = rows;
    double us = microseconds(
        [&] { launch_prefill<__half, __half, DIM, TALL, WARPS, AHEAD, BLOCKS>(&g, t, &list); });
    double flops = 4.0 * spans * rows * rows * t.heads * DIM * (t.causal ? 0.5 : 1);
    cudaFuncAttributes a;
    cudaFuncGetAttributes(&a, prefill_mma_kernel<__half, __half, DIM, TALL, WARPS, AHEAD, BLOCKS, PLAIN>);
    printf("dim %d rows/warp %d warps %d ahead %d blocks %d: %7.1f us %6.0f TFLOP/s (%d registers, %zu "
           "spilled)\n",
           DIM, 16 * TALL, WARPS, AHEAD, BLOCKS, us, flops / us * 1e-6, a.numRegs, a.localSizeBytes);
}

static void algorithms(int T, int N, int K, bool residual, cublasLtEpilogue_t epilogue)
{
    __half *x = random_halves((size_t)T * K), *w = random_halves((size_t)N * K), *bias = random_halves(N);
    void *y, *room;
    size_t room_bytes = 64 << 20;
    cudaMalloc(&y, (size_t)T * N * 4), cudaMemset(y, 0, (size_t)T * N * 4), cudaMalloc(&room, room_bytes);
    for (int f32 = 0; f32 < 2; f32++) {
        cudaDataType_t type = f32 ? CUDA_R_32F : CUDA_R_16F;
        cublasLtMatmulDesc_t op;
        cublasLtMatrixLayout_t a, b, c;
        cublasOperation_t yes = CUBLAS_OP_T;
        cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &yes, sizeof yes);
        cublasLtEpilogue_t e = f32 && epilogue != CUBLASLT_EPILOGUE_DEFAULT ? CUBLASLT_EPILOGUE_DEFAULT
                                                                            : epilogue;
        cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e);
        const void *p = bias;
        if (e != CUBLASLT_EPILOGUE_DEFAULT)
            cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p, sizeof p);
        cublasLtMatrixLayoutCreate(&a, CUDA_R_16F, K, N, K), cublasLtMatrixLayoutCreate(&b, CUDA_R_16F, K, T, K);
        cublasLtMatrixLayoutCreate(&c, type, N, T, N);
        cublasLtMatmulPreference_t pref;
        cublasLtMatmulPreferenceCreate(&pref);
        cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room_bytes,
                                             sizeof room_bytes);
        cublasLtMatmulHeuristicResult_t r[16];
        int found = 0;
        cublasLtMatmulAlgoGetHeuristic(g.lt, op, a, b, c, c, pref, 16, r, &found);
        printf("T %d N %d K %d residual %d epilogue %d into f%d:", T, N, K, residual, (int)e, f32 ? 32 : 16);
        float one = 1, beta = residual ? 1 : 0;
        for (int i = 0; i < found; i++)
            printf(" %.1f", microseconds([&] {
                       cublasLtMatmul(g.lt, op, &one, w, a, x, b, &beta, y, c, y, c, &r[i].algo, room,
                                      room_bytes, g.stream);
                   }));
        printf(" us; first would be %.0f TFLOP/s at 1 us\n", 2.0 * T * N * K * 1e-6);
    }
    cudaFree(x), cudaFree(w), cudaFree(bias), cudaFree(y), cudaFree(room);
}

template <int EACH> __global__ void act_variant(__half *x, int64_t row, int d, int act)
{
    __half *at = x + blockIdx.x * row;
    float v[EACH][8];
#pragma unroll
    for (int u = 0; u < EACH; u++) gpu_load8(v[u], at + (u * 256 + threadIdx.x) * 8);
#pragma unroll
    for (int u = 0; u < EACH; u++) {
#pragma unroll
        for (int e = 0; e < 8; e++) v[u][e] = gpu_act16<__half>(v[u][e], act);
        gpu_store8(at + (u * 256 + threadIdx.x) * 8, v[u]);
    }
}

int main()
{
    cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking);
    cublasLtCreate(&g.lt);
    g.sms = 132;
    attention_task bert = the_task(64, 384, 16, 64, false), gptj = the_task(1, 2048, 16, 256, true),
                   llama = the_task(1, 2048, 32, 128, true), one = the_task(1, 128, 16, 64, false);
    row<64, 2, 4, true, 2>(bert, 64, 384);
    row<64, 2, 4, true, 3>(bert, 64, 384);
    row<64, 2, 4, false, 2>(bert, 64, 384);
    row<64, 1, 4, true, 2>(bert, 64, 384);
    row<64, 1, 4, true, 3>(bert, 64, 384);
    row<64, 1, 4, true, 4>(bert, 64, 384);
    row<64, 1, 4, false, 4>(bert, 64, 384);
    row<64, 1, 8, true, 2>(bert, 64, 384);
    row<64, 2, 8, true, 1>(bert, 64, 384);
    row<64, 1, 8, false, 2>(bert, 64, 384);
    row<64, 1, 4, true, 2>(one, 1, 128);
    row<64, 1, 2, true, 2>(one, 1, 128);
    row<64, 1, 1, true, 2>(one, 1, 128);
    row<128, 2, 4, true, 2>(llama, 1, 2048);
    row<128, 1, 4, true, 2>(llama, 1, 2048);
    row<128, 1, 4, true, 3>(llama, 1, 2048);
    row<128, 1, 8, true, 1>(llama, 1, 2048);
    row<128, 1, 4, false, 3>(llama, 1, 2048);
    row<128, 1, 8, false, 2>(llama, 1, 2048);
    row<256, 1, 4, false, 2>(gptj, 1, 2048);
    row<256, 1, 8, false, 1>(gptj, 1, 2048);
    row<256, 1, 4, true, 1>(gptj, 1, 2048);
    algorithms(24576, 3072, 1024, false, CUBLASLT_EPILOGUE_BIAS);
    algorithms(24576, 1024, 1024, true, CUBLASLT_EPILOGUE_BIAS);
    algorithms(24576, 4096, 1024, false, CUBLASLT_EPILOGUE_BIAS);
    algorithms(24576, 4096, 1024, false, CUBLASLT_EPILOGUE_GELU_BIAS);
    algorithms(24576, 1024, 4096, true, CUBLASLT_EPILOGUE_BIAS);
    algorithms(128, 3072, 1024, false, CUBLASLT_EPILOGUE_BIAS);
    algorithms(128, 1024, 1024, true, CUBLASLT_EPILOGUE_BIAS);
    algorithms(128, 4096, 1024, false, CUBLASLT_EPILOGUE_BIAS);
    algorithms(128, 1024, 4096, true, CUBLASLT_EPILOGUE_BIAS);
    algorithms(2048, 12288, 4096, false, CUBLASLT_EPILOGUE_DEFAULT);
    algorithms(2048, 4096, 4096, true, CUBLASLT_EPILOGUE_DEFAULT);
    algorithms(2048, 16384, 4096, false, CUBLASLT_EPILOGUE_GELU_BIAS);
    algorithms(2048, 4096, 16384, true, CUBLASLT_EPILOGUE_BIAS);
    algorithms(256, 12288, 4096, false, CUBLASLT_EPILOGUE_DEFAULT);
    algorithms(256, 16384, 4096, false, CUBLASLT_EPILOGUE_GELU_BIAS);
    algorithms(256, 4096, 16384, true, CUBLASLT_EPILOGUE_BIAS);
    __half *u = random_halves((size_t)24576 * 4096);
    printf("gelu 24576 x 4096: 1 a thread %.1f us,", microseconds([&] {
               act_variant<1><<<dim3(24576, 2), 256, 0, g.stream>>>(u, 2048, 2048, PROA_ACT_GELU);
           }));
    printf(" 2 %.1f us,",
           microseconds([&] { act_variant<2><<<24576, 256, 0, g.stream>>>(u, 4096, 4096, PROA_ACT_GELU); }));
    printf(" 4 %.1f us; none %.1f, silu %.1f\n",
           microseconds([&] { act_variant<4><<<12288, 256, 0, g.stream>>>(u, 8192, 8192, PROA_ACT_GELU); }),
           microseconds([&] { act_variant<2><<<24576, 256, 0, g.stream>>>(u, 4096, 4096, PROA_ACT_NONE); }),
           microseconds([&] { act_variant<2><<<24576, 256, 0, g.stream>>>(u, 4096, 4096, PROA_ACT_SILU); }));
}
