/* SPDX-License-Identifier: Apache-2.0
 * thin.cu - experiments on the quantised few-rows product: variants of the kernel in a graph of GPT-J's
 * matrices, each waiting for the one before as in a model. Prints GB/s of weights.
 * Build: nvcc -O3 -std=c++17 -arch=sm_90a thin.cu */
#include "bench.cuh"

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct args {
    float *y;
    const float *xf;
    const __half *xh;
    const char *w;
    const void *scales;
    int N, K, M;
};

__device__ inline void mma(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <int BITS> struct form;
template <> struct form<8> { // e4m3
    static const int COUNT = 16;
    __device__ static unsigned place(unsigned b)
    {
        return (b & 0x80008000u) | (b >> 1 & 0x3f803f80u);
    }
    __device__ static void pairs(const unsigned v[4], int j, unsigned &a, unsigned &b)
    {
        a = place(__byte_perm(v[j], 0, 0x1404)), b = place(__byte_perm(v[j], 0, 0x3424));
    }
};
template <> struct form<4> {
    static const int COUNT = 32;
    __device__ static void pairs(const unsigned v[4], int j, unsigned &first, unsigned &second)
    {
        unsigned u = j % 2 ? v[j / 2] >> 8 : v[j / 2], low = (u & 0x000f000fu) | 0x64006400u,
                 high = (u & 0x00f000f0u) | 0x64006400u;
        __half2 a = __hsub2(*(__half2 *)&low, __half2half2(__ushort_as_half(0x6408)));
        __half2 b = __hfma2(*(__half2 *)&high, __half2half2(__ushort_as_half(0x2c00)),
                            __half2half2(__ushort_as_half(0xd480)));
        first = *(unsigned *)&a, second = *(unsigned *)&b;
    }
};

// X: 0 f16 from memory, 1 f32 staged in shared memory as f16, 2 none (a bound)
template <int BITS, int MT, int D, int WARPS, int X, bool TILED>
__global__ void __launch_bounds__(WARPS * 32) thin(args a)
{
    typedef form<BITS> F;
    const int COUNT = F::COUNT, STEP = 4 * COUNT, FOURS = COUNT / 4;
    __shared__ float room[WARPS][16 * MT][9];
    extern __shared__ __align__(16) __half staged[];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, r = lane / 4, c = lane % 4, n0 = blockIdx.x * 16 * MT;
    int steps = a.K / STEP;
    size_t row_bytes = (size_t)a.K * BITS / 8;
    const char *row[2 * MT];
    unsigned next[D][2 * MT][4];
    __half scale[D][2 * MT];
    float sum[MT][4] = {};
#pragma unroll
    for (int i = 0; i < 2 * MT; i++)
        row[i] = TILED ? a.w + (size_t)(n0 + i / 2 * 16) * row_bytes + i % 2 * 512 + lane * 16
                       : a.w + (n0 + i / 2 * 16 + i % 2 * 8 + r) * row_bytes + c * 16;
    auto fetch = [&](int d, int s) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            if (s < steps) {
                uint4 v = ld_stream(row[i] + (size_t)s * (TILED ? 1024 : 64));
                next[d][i][0] = v.x, next[d][i][1] = v.y, next[d][i][2] = v.z, next[d][i][3] = v.w;
                if (BITS == 4)
                    scale[d][i] = ((const __half *)a.scales)[(size_t)s * a.N + n0 + i / 2 * 16 + i % 2 * 8 + r];
            }
        }
    };
#pragma unroll
    for (int d = 0; d < D; d++) fetch(d, warp + d * WARPS);
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    if (X == 1) {
        for (int k = threadIdx.x * 4; k < a.K; k += WARPS * 128) {
            float4 f = *(const float4 *)(a.xf + k);
            __half2 p = __floats2half2_rn(f.x, f.y), q = __floats2half2_rn(f.z, f.w);
            *(uint2 *)(staged + k) = make_uint2(*(unsigned *)&p, *(unsigned *)&q);
        }
        __syncthreads();
    }
    for (int base = warp; base < steps; base += D * WARPS) {
#pragma unroll
        for (int d = 0; d < D; d++) {
            int s = base + d * WARPS;
            if (s >= steps) break;
            unsigned b[FOURS][2];
            const __half *x = (X == 1 ? staged : a.xh + (size_t)r * a.K) + s * STEP + c * COUNT;
#pragma unroll
            for (int j = 0; j < FOURS; j += 2) {
                uint4 v = make_uint4(1, 2, 3, 4);
                if (X != 2) {
                    v = make_uint4(0, 0, 0, 0);
                    if (r < a.M) v = *(const uint4 *)(x + 4 * j);
                }
                b[j][0] = v.x, b[j][1] = v.y, b[j + 1][0] = v.z, b[j + 1][1] = v.w;
            }
#pragma unroll
            for (int m = 0; m < MT; m++) {
                float part[4] = {};
#pragma unroll
                for (int j = 0; j < FOURS; j++) {
                    unsigned w[4];
                    F::pairs(next[d][2 * m], j, w[0], w[2]);
                    F::pairs(next[d][2 * m + 1], j, w[1], w[3]);
                    mma(BITS == 4 ? part : sum[m], w, b[j][0], b[j][1]);
                }
                if (BITS == 4)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        sum[m][i] = fmaf(__half2float(scale[d][2 * m + i / 2]), part[i], sum[m][i]);
            }
            fetch(d, s + D * WARPS);
        }
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) room[warp][16 * m + i / 2 * 8 + r][2 * c + i % 2] = sum[m][i];
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * MT * a.M; i += WARPS * 32) {
        int n = i % (16 * MT), m = i / (16 * MT);
        float v = 0;
#pragma unroll
        for (int k = 0; k < WARPS; k++) v += room[k][n][m];
        a.y[(size_t)m * a.N + n0 + n] = v * 0.01f;
    }
}

// rows by CUDA cores: a block makes R rows, its threads share K in pieces of 16 bytes. HALF: x as f16, four products added in
// f16 before they go on in f32; else x and all sums in f32
template <int BITS, int R, int U, int T, bool HALF> __global__ void __launch_bounds__(T) rows(args a)
{
    typedef form<BITS> F;
    const int COUNT = F::COUNT, STEP = T * COUNT;
    __shared__ float room[T / 32][R];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n0 = blockIdx.x * R;
    size_t row_bytes = (size_t)a.K * BITS / 8;
    const char *row = a.w + n0 * row_bytes + threadIdx.x * 16;
    uint4 next[U][R];
    __half scale[U][R];
    float sum[R] = {};
    auto fetch = [&](int u, int k) {
#pragma unroll
        for (int r = 0; r < R; r++)
            if (k < a.K) {
                next[u][r] = ld_stream(row + r * row_bytes + (size_t)(k / STEP) * T * 16);
                if (BITS == 4)
                    scale[u][r] = ((const __half *)a.scales)[(size_t)(n0 + r) * (a.K / 128) + k / 128];
            }
    };
#pragma unroll
    for (int u = 0; u < U; u++) fetch(u, u * STEP + threadIdx.x * COUNT);
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    for (int base = 0; base < a.K; base += U * STEP)
#pragma unroll
        for (int u = 0; u < U; u++) {
            int k = base + u * STEP + threadIdx.x * COUNT;
            if (k >= a.K) break;
            __half2 xh[COUNT / 2];
            float xf[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT / 8; i++) {
                if (HALF) *(uint4 *)(xh + 4 * i) = *(const uint4 *)(a.xh + k + 8 * i);
                else
                    *(float4 *)(xf + 8 * i) = *(const float4 *)(a.xf + k + 8 * i),
                                         *(float4 *)(xf + 8 * i + 4) = *(const float4 *)(a.xf + k + 8 * i + 4);
            }
#pragma unroll
            for (int r = 0; r < R; r++) {
                unsigned v[4] = {next[u][r].x, next[u][r].y, next[u][r].z, next[u][r].w};
                float part = 0;
#pragma unroll
                for (int j = 0; j < COUNT / 4; j++) {
                    unsigned p, q;
                    F::pairs(v, j, p, q);
                    if (HALF) {
                        float2 f = __half22float2(
                            __hfma2(*(__half2 *)&q, xh[2 * j + 1], __hmul2(*(__half2 *)&p, xh[2 * j])));
                        part += f.x + f.y;
                    } else {
                        float2 f = __half22float2(*(__half2 *)&p), g = __half22float2(*(__half2 *)&q);
                        part = fmaf(f.x, xf[4 * j], part), part = fmaf(f.y, xf[4 * j + 1], part);
                        part = fmaf(g.x, xf[4 * j + 2], part), part = fmaf(g.y, xf[4 * j + 3], part);
                    }
                }
                sum[r] += BITS == 4 ? part * __half2float(scale[u][r]) : part;
            }
            fetch(u, k + U * STEP);
        }
#pragma unroll
    for (int r = 0; r < R; r++) {
        float v = sum[r];
        for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
        if (!lane) room[warp][r] = v;
    }
    __syncthreads();
    if (threadIdx.x < R) {
        float v = 0;
        for (int i = 0; i < T / 32; i++) v += room[i][threadIdx.x];
        a.y[n0 + threadIdx.x] = v;
    }
}

struct matrix {
    int N, K;
};
static const matrix layer[] = {{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}};
enum { LAYERS = 28 };
static cudaStream_t stream;
static float *y, *xf;
static __half *xh;
static char *w;
static void *scales;

static void go(const char *name, int bits, int M, int rows, int threads, int shared_k, void (*kernel)(args))
{
    size_t total = 0;
    if (shared_k) CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 16384 * 2));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int l = 0; l < LAYERS; l++)
        for (auto &m : layer) {
            args a = {y, xf, xh, w + total, scales, m.N, m.K, M};
            cudaLaunchAttribute at;
            at.id = cudaLaunchAttributeProgrammaticStreamSerialization;
            at.val.programmaticStreamSerializationAllowed = 1;
            cudaLaunchConfig_t c = {};
            c.gridDim = m.N / rows, c.blockDim = threads, c.dynamicSmemBytes = shared_k ? m.K * 2 : 0,
            c.stream = stream, c.attrs = &at, c.numAttrs = 1;
            CK(cudaLaunchKernelEx(&c, kernel, a));
            total += (size_t)m.N * m.K * bits / 8;
        }
    CK(cudaStreamEndCapture(stream, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t b, e;
    cudaEventCreate(&b), cudaEventCreate(&e);
    float best = 1e9;
    for (int i = 0; i < 12; i++) {
        cudaEventRecord(b, stream);
        CK(cudaGraphLaunch(exec, stream));
        cudaEventRecord(e, stream);
        CK(cudaEventSynchronize(e));
        float ms;
        cudaEventElapsedTime(&ms, b, e);
        if (ms < best) best = ms;
    }
    printf("%-44s M %2d  %7.3f ms  %6.0f GB/s\n", name, M, best, total / best * 1e-6);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
}
__global__ void fill(unsigned *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned h = i * 2654435761u;
        h ^= h >> 15;
        h *= 2246822519u;
        p[i] = h & 0xb7b7b7b7u;
    }
}
__global__ void fillx(float *xf, __half *xh, __half *s, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v = (i * 37 % 101 - 50) * 0.01f;
        xf[i] = v, xh[i] = __float2half(v), s[i] = __float2half(0.01f);
    }
}

#define T(bits, MT, D, W, X, TILED, M)                                                                       \
    go(#bits " bits, MT " #MT ", D " #D ", warps " #W ", X " #X ", tiled " #TILED, bits, M, 16 * MT, W * 32, \
       X == 1, thin<bits, MT, D, W, X, TILED>)
int main()
{
    CK(cudaStreamCreate(&stream));
    size_t bytes = (size_t)LAYERS * (12288 + 4096 + 16384 + 16384) * 4096;
    CK(cudaMalloc(&w, bytes));
    CK(cudaMalloc(&y, 16 * 16384 * 4));
    CK(cudaMalloc(&xf, 16 * 16384 * 4));
    CK(cudaMalloc(&xh, 16 * 16384 * 2));
    CK(cudaMalloc(&scales, 16 * 16384 * 2 * 64));
    fill<<<2048, 256>>>((unsigned *)w, bytes / 4);
    fillx<<<64, 256>>>(xf, xh, (__half *)scales, 16 * 16384);
    CK(cudaDeviceSynchronize());
#define ROWS(bits, R, U, T, HALF)                                                                            \
    go("rows: " #bits " bits, R " #R ", U " #U ", threads " #T ", half " #HALF, bits, 1, R, T, 0,            \
       rows<bits, R, U, T, HALF>)
    ROWS(8, 4, 1, 128, false);
    ROWS(8, 4, 1, 128, true);
    ROWS(8, 4, 1, 256, false);
    ROWS(8, 8, 1, 128, false);
    ROWS(8, 2, 1, 128, false);
    ROWS(8, 4, 1, 64, false);
    ROWS(8, 4, 2, 64, false);
    ROWS(8, 2, 2, 128, false);
    ROWS(4, 4, 1, 128, false);
    ROWS(4, 4, 1, 128, true);
    ROWS(4, 8, 1, 128, false);
    ROWS(4, 8, 1, 128, true);
    ROWS(4, 2, 1, 128, false);
    ROWS(4, 2, 1, 128, true);
    ROWS(4, 4, 1, 64, true);
    ROWS(4, 8, 1, 64, true);
    ROWS(4, 4, 2, 64, true);
    ROWS(4, 16, 1, 128, true);
    ROWS(4, 4, 1, 256, true);
    for (int M = 1; M <= 8; M += 7) {
        T(8, 1, 4, 16, 0, false, M);
        T(8, 1, 2, 16, 0, false, M);
        T(8, 1, 4, 32, 0, false, M);
        T(8, 1, 2, 32, 0, false, M);
        T(8, 2, 2, 16, 0, false, M);
        T(4, 1, 2, 16, 0, false, M);
        T(4, 1, 1, 8, 0, false, M);
        T(4, 1, 1, 16, 0, false, M);
        T(4, 2, 1, 16, 0, false, M);
        T(4, 2, 1, 8, 0, false, M);
        T(4, 2, 1, 8, 0, true, M);
    }
    return 0;
}
