/* SPDX-License-Identifier: Apache-2.0
 * gemv.cu - experiments on the few-rows product: variants of the kernel in a graph of GPT-J's matrices,
 * each waiting for the one before as in a model. Prints GB/s of weights.
 * Build: nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a gemv.cu */
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CK(x)                                                                                                \
    do {                                                                                                     \
        cudaError_t e_ = (x);                                                                                \
        if (e_ != cudaSuccess) {                                                                             \
            printf("%s: %s\n", #x, cudaGetErrorString(e_));                                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

struct args {
    float *y;
    const float *x;
    const __half *w;
    int N, K;
};

__device__ inline uint4 ld_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
__device__ inline float dot8(uint4 v, float4 a, float4 b, float s)
{
    const __half2 *h = (const __half2 *)&v;
    float2 f0 = __half22float2(h[0]), f1 = __half22float2(h[1]), f2 = __half22float2(h[2]),
           f3 = __half22float2(h[3]);
    s = fmaf(f0.x, a.x, s), s = fmaf(f0.y, a.y, s), s = fmaf(f1.x, a.z, s), s = fmaf(f1.y, a.w, s);
    s = fmaf(f2.x, b.x, s), s = fmaf(f2.y, b.y, s), s = fmaf(f3.x, b.z, s), s = fmaf(f3.y, b.w, s);
    return s;
}
__device__ inline float wsum(float v)
{
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

// A: a warp makes R rows, U steps ahead
template <int R, int U, int T> __global__ void __launch_bounds__(T) kA(args a)
{
    int lane = threadIdx.x & 31, n0 = (blockIdx.x * (T / 32) + threadIdx.x / 32) * R;
    if (n0 >= a.N) {
        cudaGridDependencySynchronize();
        return;
    }
    const __half *row = a.w + (size_t)n0 * a.K;
    uint4 next[U][R];
    float sum[R] = {};
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int r = 0; r < R; r++) next[u][r] = ld_stream(row + (size_t)r * a.K + (u * 32 + lane) * 8);
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    for (int base = 0; base < a.K; base += U * 256) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            int k = base + (u * 32 + lane) * 8, ahead = k + U * 256;
            float4 p = *(const float4 *)(a.x + k), q = *(const float4 *)(a.x + k + 4);
#pragma unroll
            for (int r = 0; r < R; r++) {
                uint4 now = next[u][r];
                if (ahead < a.K) next[u][r] = ld_stream(row + (size_t)r * a.K + ahead);
                sum[r] = dot8(now, p, q, sum[r]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        float v = wsum(sum[r]);
        if (!lane) a.y[n0 + r] = v * 0.01f;
    }
}
// B: a block makes R rows, its warps split K; all loads of U steps are issued before the wait
template <int R, int U, int T> __global__ void __launch_bounds__(T) kB(args a)
{
    const int W = T / 32;
    __shared__ float room[W][R];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n0 = blockIdx.x * R;
    const __half *row = a.w + (size_t)n0 * a.K;
    uint4 next[U][R];
    float sum[R] = {};
#pragma unroll
    for (int u = 0; u < U; u++) {
        int k = ((u * W + warp) * 32 + lane) * 8;
#pragma unroll
        for (int r = 0; r < R; r++)
            if (k < a.K) next[u][r] = ld_stream(row + (size_t)r * a.K + k);
    }
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    for (int base = 0; base < a.K; base += U * W * 256) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            int k = base + ((u * W + warp) * 32 + lane) * 8, ahead = k + U * W * 256;
            if (k >= a.K) break;
            float4 p = *(const float4 *)(a.x + k), q = *(const float4 *)(a.x + k + 4);
#pragma unroll
            for (int r = 0; r < R; r++) {
                uint4 now = next[u][r];
                if (ahead < a.K) next[u][r] = ld_stream(row + (size_t)r * a.K + ahead);
                sum[r] = dot8(now, p, q, sum[r]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        float v = wsum(sum[r]);
        if (!lane) room[warp][r] = v;
    }
    __syncthreads();
    if (threadIdx.x < R) {
        float v = 0;
        for (int w = 0; w < W; w++) v += room[w][threadIdx.x];
        a.y[n0 + threadIdx.x] = v * 0.01f;
    }
}
// P: persistent: blocks walk over groups of R rows, warps split K, next group's loads before this one's sum is reduced
template <int R, int U, int T> __global__ void __launch_bounds__(T) kP(args a)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = gridDim.x * (T / 32);
    int n0 = (warp * gridDim.x + blockIdx.x) * R;
    uint4 next[U][R];
    if (n0 < a.N)
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int r = 0; r < R; r++)
                next[u][r] = ld_stream(a.w + (size_t)(n0 + r) * a.K + (u * 32 + lane) * 8);
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    for (; n0 < a.N; n0 += warps * R) {
        float sum[R] = {};
        for (int base = 0; base < a.K; base += U * 256) {
#pragma unroll
            for (int u = 0; u < U; u++) {
                int k = base + (u * 32 + lane) * 8, ahead = k + U * 256, n1 = n0;
                if (ahead >= a.K) ahead -= a.K, n1 += warps * R;
                float4 p = *(const float4 *)(a.x + k), q = *(const float4 *)(a.x + k + 4);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    uint4 now = next[u][r];
                    if (n1 < a.N) next[u][r] = ld_stream(a.w + (size_t)(n1 + r) * a.K + ahead);
                    sum[r] = dot8(now, p, q, sum[r]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            float v = wsum(sum[r]);
            if (!lane) a.y[n0 + r] = v * 0.01f;
        }
    }
}

__global__ void fill(__half *w, size_t n)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, s = (size_t)gridDim.x * blockDim.x;
    for (; i < n; i += s) {
        unsigned z = (unsigned)i * 2654435761u;
        z ^= z >> 15;
        w[i] = __float2half(((z & 0xffff) / 65536.0f - 0.5f) * 0.1f);
    }
}

typedef void (*kern)(args);
static void launch(kern k, dim3 g, int t, args a, cudaStream_t s)
{
    cudaLaunchAttribute at;
    at.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = g;
    c.blockDim = t;
    c.stream = s;
    c.attrs = &at;
    c.numAttrs = 1;
    CK(cudaLaunchKernelEx(&c, k, a));
}
static const int L = 7;
struct mat {
    int N, K;
    __half *w;
};
static std::vector<mat> mats;
static float *xa, *xb;
static cudaStream_t st;
enum { ROWS_PER_WARP, ROWS_PER_BLOCK, PERSISTENT };
static void run(const char *name, kern k, int how, int R, int T, int only, int blocks = 0)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t bytes = 0;
    int count = 0;
    CK(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
    for (size_t i = 0; i < mats.size(); i++) {
        if (only >= 0 && (int)(i % 4) != only) continue;
        mat &m = mats[i];
        args a = {i % 2 ? xa : xb, i % 2 ? xb : xa, m.w, m.N, m.K};
        int g = how == ROWS_PER_WARP    ? (m.N + R * T / 32 - 1) / (R * T / 32)
                : how == ROWS_PER_BLOCK ? m.N / R
                                        : blocks;
        launch(k, g, T, a, st);
        bytes += (size_t)m.N * m.K * 2;
        count++;
    }
    CK(cudaStreamEndCapture(st, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t b, e;
    cudaEventCreate(&b);
    cudaEventCreate(&e);
    float best = 1e9, ms;
    for (int i = 0; i < 12; i++) {
        cudaEventRecord(b, st);
        CK(cudaGraphLaunch(exec, st));
        cudaEventRecord(e, st);
        CK(cudaEventSynchronize(e));
        cudaEventElapsedTime(&ms, b, e);
        if (i > 1 && ms < best) best = ms;
    }
    printf("%-26s %-4s %8.1f us each  %7.1f GB/s\n", name,
           only < 0    ? "all"
           : only == 0 ? "qkv"
           : only == 1 ? "o"
           : only == 2 ? "fc1"
                       : "fc2",
           best * 1e3 / count, bytes / (best * 1e-3) / 1e9);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
}
int main()
{
    CK(cudaStreamCreate(&st));
    CK(cudaMalloc(&xa, 65536 * 4));
    CK(cudaMalloc(&xb, 65536 * 4));
    CK(cudaMemset(xa, 0, 65536 * 4));
    CK(cudaMemset(xb, 0, 65536 * 4));
    int shapes[4][2] = {{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}};
    for (int l = 0; l < L; l++)
        for (auto &s : shapes) {
            mat m = {s[0], s[1], nullptr};
            CK(cudaMalloc(&m.w, (size_t)m.N * m.K * 2));
            fill<<<2048, 256>>>(m.w, (size_t)m.N * m.K);
            mats.push_back(m);
        }
    fill<<<64, 256>>>((__half *)xa, 65536);
    CK(cudaDeviceSynchronize());
    CK(cudaMemset(xa, 0x3c, 65536 * 4));
    CK(cudaMemset(xb, 0x3c, 65536 * 4));
#define A(R, U, T)                                                                                           \
    for (int o = -1; o < 4; o++)                                                                             \
    run("A rows/warp " #R " ahead " #U " t" #T, kA<R, U, T>, ROWS_PER_WARP, R, T, o)
#define B(R, U, T)                                                                                           \
    for (int o = -1; o < 4; o++)                                                                             \
    run("B rows/block " #R " ahead " #U " t" #T, kB<R, U, T>, ROWS_PER_BLOCK, R, T, o)
#define P(R, U, T, G)                                                                                        \
    for (int o = -1; o < 4; o++)                                                                             \
    run("P rows " #R " ahead " #U " t" #T " g" #G, kP<R, U, T>, PERSISTENT, R, T, o, 132 * G)
    /* clang-format off */
    A(4, 2, 256); A(2, 4, 256); A(1, 4, 256); A(2, 8, 256); A(1, 8, 256); A(1, 16, 256); A(2, 4, 128);
    A(1, 8, 128); A(4, 4, 128);
    B(4, 1, 256); B(4, 2, 256); B(2, 2, 256); B(8, 1, 256); B(8, 2, 256); B(4, 2, 512); B(4, 4, 128);
    B(2, 4, 128); B(8, 2, 128); B(4, 8, 64);
    P(1, 8, 256, 4); P(2, 4, 256, 4); P(2, 8, 256, 2); P(1, 8, 512, 2); P(1, 16, 256, 2); P(2, 8, 128, 4);
    P(1, 8, 128, 8);
    /* clang-format on */
    return 0;
}
