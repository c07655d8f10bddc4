/* SPDX-License-Identifier: Apache-2.0
 * stream.cu - experiments on the product of one row: blocks that live for a few outputs beside blocks
 * that stay, with the norm before it inside or not; in a graph of a model's matrices with small kernels
 * between them as in a layer. Prints us a layer and GB/s of weights; checks values.
 * Build: nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a stream.cu */
#include "bench.cuh"

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct args {
    float *y;
    const float *xf;
    const __half *xh;
    const char *w;
    const __half *scales;
    int N, K;
};

__device__ inline void begin()
{
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
}
__device__ inline void mma(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline float warp_sum(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

// ---- int4 as in thin.cu now: a block of 128 for 4 outputs, products in pairs of f16 ----
__device__ inline void pairs4(const unsigned v[4], int j, unsigned &first, unsigned &second)
{
    unsigned u = j % 2 ? v[j / 2] >> 8 : v[j / 2], low = (u & 0x000f000fu) | 0x64006400u,
             high = (u & 0x00f000f0u) | 0x64006400u;
    __half2 a = __hfma2(*(__half2 *)&low, __half2half2(__ushort_as_half(0x3000)),
                        __half2half2(__ushort_as_half(0xd808)));
    __half2 b = __hfma2(*(__half2 *)&high, __half2half2(__ushort_as_half(0x2000)),
                        __half2half2(__ushort_as_half(0xc880)));
    first = *(unsigned *)&a, second = *(unsigned *)&b;
}
__global__ void __launch_bounds__(128) now4(args a)
{
    __shared__ float room[4][4];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n0 = blockIdx.x * 4;
    size_t row_bytes = a.K / 2;
    uint4 next[4];
    __half scale[4];
    float sum[4] = {};
    auto fetch = [&](int k) {
        for (int r = 0; r < 4; r++)
            next[r] = ld_stream(a.w + (n0 + r) * row_bytes + k / 2),
            scale[r] = a.scales[(size_t)(k / 128) * a.N + n0 + r];
    };
    int k = threadIdx.x * 32;
    if (k < a.K) fetch(k);
    begin();
    for (; k < a.K; k += 4096) {
        __half2 x[16];
        for (int i = 0; i < 4; i++) *(uint4 *)(x + 4 * i) = *(const uint4 *)(a.xh + k + 8 * i);
        for (int i = 0; i < 16; i++) x[i] = __hmul2(x[i], __half2half2(__ushort_as_half(0x3400)));
#pragma unroll
        for (int r = 0; r < 4; r++) {
            unsigned v[4] = {next[r].x, next[r].y, next[r].z, next[r].w};
            float part = 0;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                unsigned p, q;
                pairs4(v, j, p, q);
                float2 f = __half22float2(
                    __hfma2(*(__half2 *)&q, x[2 * j + 1], __hmul2(*(__half2 *)&p, x[2 * j])));
                part += f.x + f.y;
            }
            sum[r] += part * __half2float(scale[r]);
        }
        if (k + 4096 < a.K) fetch(k + 4096);
    }
    for (int r = 0; r < 4; r++) {
        float v = warp_sum(sum[r]);
        if (!lane) room[warp][r] = v;
    }
    __syncthreads();
    if (threadIdx.x < 4) {
        float v = 0;
        for (int i = 0; i < 4; i++) v += room[i][threadIdx.x];
        a.y[n0 + threadIdx.x] = v * 32.0f;
    }
}

// ---- int4 on tensor cores: 1024 + u as it lies, the sum of x taken off again in f32; x in shared memory ----
// W warps share K, D steps of 128 ahead; STAY: blocks walk over tiles of 16 outputs.
template <int W, int D, bool STAY, bool NORM> __global__ void __launch_bounds__(W * 32) tensor4(args a)
{
    extern __shared__ __align__(16) uint4 xs[]; // [K / 128][4 pieces][4 lanes]
    __shared__ float offset[128], room[2][W][16], all[2][W];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
    int steps = a.K / 128, mine = (steps - warp + W - 1) / W, tiles = a.N / 16;
    int here = STAY ? (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x : 1;
    size_t row_bytes = a.K / 2;
    unsigned next[D][2][4];
    __half scale[D][2];
    int ft = 0, fs = 0; // what is fetched next: tile of this block, step of this warp
    auto fetch = [&](int d) {
        if (ft >= here) return;
        int n = ((int)blockIdx.x + ft * (int)gridDim.x) * 16 + g, s = warp + fs * W;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 v = ld_stream(a.w + (size_t)(n + 8 * i) * row_bytes + s * 64 + c * 16);
            next[d][i][0] = v.x, next[d][i][1] = v.y, next[d][i][2] = v.z, next[d][i][3] = v.w;
            scale[d][i] = a.scales[(size_t)s * a.N + n + 8 * i];
        }
        if (++fs == mine) fs = 0, ft++;
    };
#pragma unroll
    for (int d = 0; d < D; d++) fetch(d);
    begin();
    float mean = 0, inverse = 1;
    if (NORM) {
        float total = 0, squares = 0;
        for (int i = threadIdx.x; i < a.K / 4; i += W * 32) {
            float4 f = ((const float4 *)a.xf)[i];
            total += f.x + f.y + f.z + f.w, squares += f.x * f.x + f.y * f.y + f.z * f.z + f.w * f.w;
        }
        total = warp_sum(total), squares = warp_sum(squares);
        if (!lane) all[0][warp] = total, all[1][warp] = squares;
        __syncthreads();
        total = squares = 0;
        for (int i = 0; i < W; i++) total += all[0][i], squares += all[1][i];
        mean = total / a.K, inverse = rsqrtf(squares / a.K - mean * mean + 1e-5f);
    }
    for (int i = threadIdx.x; i < a.K / 8;
         i += W * 32) { // piece i: numbers 8 i.. : two calls of four; the second pair of each / 16
        uint4 v;
        if (NORM) {
            float f[8];
            *(float4 *)f = *(const float4 *)(a.xf + 8 * i),
                     *(float4 *)(f + 4) = *(const float4 *)(a.xf + 8 * i + 4);
            __half *to = (__half *)&v;
            for (int e = 0; e < 8; e++) to[e] = __float2half((f[e] - mean) * inverse);
        } else v = *(const uint4 *)(a.xh + 8 * i);
        __half2 *h = (__half2 *)&v, small = __half2half2(__ushort_as_half(0x2c00));
        float2 f0 = __half22float2(h[0]), f1 = __half22float2(h[1]), f2 = __half22float2(h[2]),
               f3 = __half22float2(h[3]);
        float off = 1032.0f * (f0.x + f0.y + f2.x + f2.y) + 72.0f * (f1.x + f1.y + f3.x + f3.y);
        h[1] = __hmul2(h[1], small), h[3] = __hmul2(h[3], small);
        xs[i / 16 * 16 + i % 4 * 4 + i / 4 % 4] = v;
#pragma unroll
        for (int o = 8; o; o >>= 1) off += __shfl_xor_sync(~0u, off, o);
        if (i % 16 == 0) offset[i / 16] = off;
    }
    __syncthreads();
    int d = 0;
    for (int t = 0; t < here; t++) {
        float sum[2] = {};
        for (int i = 0; i < mine; i += D) {
#pragma unroll
            for (d = 0; d < D; d++) {
                if (i + d >= mine) break;
                int s = warp + (i + d) * W;
                float o = -offset[s], part[4] = {o, o, o, o};
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    uint4 x = xs[s * 16 + q * 4 + c];
                    unsigned w0 = next[d][0][q], w1 = next[d][1][q], v0 = w0 >> 8, v1 = w1 >> 8;
                    unsigned p[4] = {(w0 & 0x000f000fu) | 0x64006400u, (w1 & 0x000f000fu) | 0x64006400u,
                                     (w0 & 0x00f000f0u) | 0x64006400u, (w1 & 0x00f000f0u) | 0x64006400u};
                    unsigned r[4] = {(v0 & 0x000f000fu) | 0x64006400u, (v1 & 0x000f000fu) | 0x64006400u,
                                     (v0 & 0x00f000f0u) | 0x64006400u, (v1 & 0x00f000f0u) | 0x64006400u};
                    mma(part, p, x.x, x.y);
                    mma(part, r, x.z, x.w);
                }
                sum[0] = fmaf(__half2float(scale[d][0]), part[0], sum[0]);
                sum[1] = fmaf(__half2float(scale[d][1]), part[2], sum[1]);
                fetch(d);
            }
        }
        if (c == 0) room[t & 1][warp][g] = sum[0], room[t & 1][warp][g + 8] = sum[1];
        __syncthreads();
        if (threadIdx.x < 16) {
            float v = 0;
#pragma unroll
            for (int i = 0; i < W; i++) v += room[t & 1][i][threadIdx.x];
            a.y[((int)blockIdx.x + t * (int)gridDim.x) * 16 + threadIdx.x] = v;
        }
    }
}

// ---- f16 weights, x f32: as now (256 threads, 4 outputs), and blocks that stay with x in registers ----
__device__ inline void fma8(float &sum, uint4 v, const float x[8])
{
    const __half2 *h = (const __half2 *)&v;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 f = __half22float2(h[i]);
        sum = fmaf(f.x, x[2 * i], sum), sum = fmaf(f.y, x[2 * i + 1], sum);
    }
}
template <int U> __global__ void __launch_bounds__(256) now16(args a)
{
    __shared__ float room[8][4];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n0 = blockIdx.x * 4;
    uint4 next[U][4];
    float sum[4] = {};
    const __half *w = (const __half *)a.w;
    auto fetch = [&](int u, int k) {
        if (k < a.K)
            for (int r = 0; r < 4; r++) next[u][r] = ld_stream(w + (size_t)(n0 + r) * a.K + k);
    };
#pragma unroll
    for (int u = 0; u < U; u++) fetch(u, u * 2048 + threadIdx.x * 8);
    begin();
    for (int base = 0; base < a.K; base += U * 2048)
#pragma unroll
        for (int u = 0; u < U; u++) {
            int k = base + u * 2048 + threadIdx.x * 8;
            if (k >= a.K) break;
            float x[8];
            *(float4 *)x = *(const float4 *)(a.xf + k), *(float4 *)(x + 4) = *(const float4 *)(a.xf + k + 4);
#pragma unroll
            for (int r = 0; r < 4; r++) fma8(sum[r], next[u][r], x);
            fetch(u, k + U * 2048);
        }
    for (int r = 0; r < 4; r++) {
        float v = warp_sum(sum[r]);
        if (!lane) room[warp][r] = v;
    }
    __syncthreads();
    if (threadIdx.x < 4) {
        float v = 0;
        for (int i = 0; i < 8; i++) v += room[i][threadIdx.x];
        a.y[n0 + threadIdx.x] = v;
    }
}
// T threads share K in S steps; R outputs at a time. NORM: x is normed by every block (weights and shift left out here: ones).
template <int T, int R, int S, bool NORM> __global__ void __launch_bounds__(T) stay16(args a)
{
    __shared__ float room[2][T / 32][R], all[2][T / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, groups = (a.N + R - 1) / R;
    const __half *w = (const __half *)a.w;
    uint4 next[S][R];
    float x[S][8];
    auto fetch = [&](int s, int group) {
        int k = s * T * 8 + threadIdx.x * 8;
        if (group < groups && k < a.K)
#pragma unroll
            for (int r = 0; r < R; r++) {
                int n = group * R + r < a.N ? group * R + r : a.N - 1;
                next[s][r] = ld_stream(w + (size_t)n * a.K + k);
            }
    };
#pragma unroll
    for (int s = 0; s < S; s++) fetch(s, blockIdx.x);
    begin();
    float total = 0, squares = 0;
#pragma unroll
    for (int s = 0; s < S; s++) {
        int k = s * T * 8 + threadIdx.x * 8;
        for (int i = 0; i < 8; i++) x[s][i] = 0;
        if (k < a.K)
            *(float4 *)x[s] = *(const float4 *)(a.xf + k),
                     *(float4 *)(x[s] + 4) = *(const float4 *)(a.xf + k + 4);
        for (int i = 0; i < 8; i++) total += x[s][i], squares += x[s][i] * x[s][i];
    }
    if (NORM) {
        total = warp_sum(total), squares = warp_sum(squares);
        if (!lane) all[0][warp] = total, all[1][warp] = squares;
        __syncthreads();
        total = squares = 0;
        for (int i = 0; i < T / 32; i++) total += all[0][i], squares += all[1][i];
        float mean = total / a.K, inverse = rsqrtf(squares / a.K - mean * mean + 1e-5f);
#pragma unroll
        for (int s = 0; s < S; s++)
            for (int i = 0; i < 8; i++)
                x[s][i] = s * T * 8 + (int)threadIdx.x * 8 < a.K ? (x[s][i] - mean) * inverse : 0;
    }
    int turn = 0;
    for (int group = blockIdx.x; group < groups; group += gridDim.x, turn ^= 1) {
        float sum[R] = {};
#pragma unroll
        for (int s = 0; s < S; s++) {
            int k = s * T * 8 + threadIdx.x * 8;
            if (k < a.K) {
#pragma unroll
                for (int r = 0; r < R; r++) fma8(sum[r], next[s][r], x[s]);
            }
            fetch(s, group + gridDim.x);
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            float v = warp_sum(sum[r]);
            if (!lane) room[turn][warp][r] = v;
        }
        __syncthreads();
        if (threadIdx.x < R && group * R + threadIdx.x < a.N) {
            float v = 0;
            for (int i = 0; i < T / 32; i++) v += room[turn][i][threadIdx.x];
            a.y[group * R + threadIdx.x] = v;
        }
    }
}

// ---- what stands between: reads and writes one row, as norms, rope and attention of a short context do ----
__global__ void small(float *y, const float *x, int n)
{
    __shared__ float room[32];
    begin();
    float v = 0, mine[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        mine[i] = (int)(i * blockDim.x + threadIdx.x) < n ? x[i * blockDim.x + threadIdx.x] : 0, v += mine[i];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++)
        if ((int)(i * blockDim.x + threadIdx.x) < n)
            y[blockIdx.x % 4 * n + i * blockDim.x + threadIdx.x] = mine[i] + room[0] * 1e-30f;
}

struct matrix {
    int N, K, smalls; // small kernels before it
};
struct model {
    const char *name;
    int layers, count;
    matrix m[6];
};
/* clang-format off */
static const model MODELS[] = {
    {"gptj", 28, 4, {{12288, 4096, 1}, {4096, 4096, 2}, {16384, 4096, 0}, {4096, 16384, 0}}},
    {"llama2", 32, 4, {{12288, 4096, 1}, {4096, 4096, 2}, {22016, 4096, 1}, {4096, 11008, 1}}},
    {"gpt2xl", 48, 4, {{4800, 1600, 1}, {1600, 1600, 2}, {6400, 1600, 1}, {1600, 6400, 0}}},
    {"t5-small", 6, 6, {{1536, 512, 1}, {512, 512, 2}, {512, 512, 1}, {512, 512, 1}, {2048, 512, 1}, {512, 2048, 0}}},
    {"t5-3b", 24, 6,
     {{12288, 1024, 1}, {1024, 4096, 2}, {4096, 1024, 1}, {1024, 4096, 1}, {16384, 1024, 1}, {1024, 16384, 0}}},
};
/* clang-format on */
static cudaStream_t stream;
static float *y, *xf, *scratch, *expect;
static __half *xh, *scales;
static char *w;
static int64_t W_BYTES;

typedef void kernel_fn(args);
struct choice {
    kernel_fn *kernel;
    int rows, threads, stay; // stay: blocks an SM, 0: one for each `rows`
    bool staged;
};

template <typename PICK>
static void go(const char *name, const model &md, int bits, PICK pick, bool drop = false)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t total = 0, bytes = 0;
    std::vector<args> calls;
    std::vector<choice> picks;
    for (int l = 0; l < md.layers; l++)
        for (int i = 0; i < md.count; i++) {
            const matrix &m = md.m[i];
            args a = {y, xf, xh, w + total, scales, m.N, m.K};
            calls.push_back(a), picks.push_back(pick(m));
            total += (size_t)m.N * m.K * bits / 8;
        }
    bytes = total;
    if ((int64_t)bytes > W_BYTES) {
        printf("too large\n");
        return;
    }
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (size_t i = 0; i < calls.size(); i++) {
        cudaLaunchAttribute at;
        at.id = cudaLaunchAttributeProgrammaticStreamSerialization,
        at.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t c = {};
        c.stream = stream, c.attrs = &at, c.numAttrs = 1;
        int smalls = md.m[i % md.count].smalls;
        for (int s = drop && smalls == 1; s < smalls; s++) {
            c.gridDim = s ? 32 : 1, c.blockDim = 512;
            CK(cudaLaunchKernelEx(&c, small, scratch, (const float *)xf, 4096));
        }
        args a = calls[i];
        const choice &p = picks[i];
        unsigned blocks = p.stay ? 132 * p.stay : (a.N + p.rows - 1) / p.rows;
        c.gridDim = blocks, c.blockDim = p.threads, c.dynamicSmemBytes = p.staged ? a.K * 2 : 0;
        CK(cudaLaunchKernelEx(&c, p.kernel, a));
    }
    CK(cudaStreamEndCapture(stream, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t b, e;
    cudaEventCreate(&b), cudaEventCreate(&e);
    std::vector<float> times;
    for (int i = 0; i < 9; i++) {
        cudaEventRecord(b, stream);
        CK(cudaGraphLaunch(exec, stream));
        cudaEventRecord(e, stream);
        CK(cudaEventSynchronize(e));
        float ms;
        cudaEventElapsedTime(&ms, b, e);
        times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    std::vector<float> got(md.m[md.count - 1].N), want(got.size());
    CK(cudaMemcpy(got.data(), y, got.size() * 4, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(want.data(), expect, want.size() * 4, cudaMemcpyDeviceToHost));
    double off = 0, size = 0;
    for (size_t i = 0; i < got.size(); i++)
        off = fmax(off, fabs(got[i] - want[i])), size = fmax(size, fabs(want[i]));
    printf("%-7s %-44s %7.3f ms  %6.1f us/layer  %5.0f GB/s  off %.1e\n", md.name, name, times[4],
           times[4] * 1e3 / md.layers, bytes / times[4] * 1e-6, size ? off / size : -1);
    fflush(stdout);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
}

template <int BITS> __global__ void plain(float *out, args a)
{
    int n = blockIdx.x;
    float sum = 0;
    for (int k = threadIdx.x; k < a.K; k += 32) {
        float v;
        if (BITS == 4) {
            unsigned word = ((const unsigned *)(a.w + (size_t)n * a.K / 2))[k / 8];
            int i = k % 8, nibble = i % 2 ? i / 2 + 4 : i / 2;
            v = ((float)(word >> 4 * nibble & 15) - 8.0f) *
                __half2float(a.scales[(size_t)(k / 128) * a.N + n]) * __half2float(a.xh[k]);
        } else v = __half2float(((const __half *)a.w)[(size_t)n * a.K + k]) * a.xf[k];
        sum += v;
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) out[n] = sum;
}
template <int BITS> static void truth(const model &md)
{
    size_t total = 0;
    for (int l = 0; l < md.layers; l++)
        for (int i = 0; i < md.count; i++) {
            const matrix &m = md.m[i];
            if (l == md.layers - 1 && i == md.count - 1) {
                args a = {y, xf, xh, w + total, scales, m.N, m.K};
                plain<BITS><<<m.N, 32>>>(expect, a);
            }
            total += (size_t)m.N * m.K * BITS / 8;
        }
    CK(cudaDeviceSynchronize());
}
__global__ void fill(unsigned *p, size_t n, unsigned mask)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned h = i * 2654435761u;
        h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
        p[i] = h & mask;
    }
}
__global__ void fillx(float *xf, __half *xh, __half *s, int n, int ns)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < ns; i += gridDim.x * blockDim.x) {
        if (i < n) {
            unsigned h = i * 2654435761u;
            h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
            __half v = __float2half(((int)(h % 2001) - 1000) * 0.001f);
            xf[i] = __half2float(v), xh[i] = v;
        }
        s[i] = __float2half(0.01f + 0.0001f * (i % 37));
    }
}

#define T4(W, D, STAY)                                                                                       \
    go("tensor, " #W " warps, D " #D ", stay " #STAY, md, 4, [](const matrix &) {                            \
        return choice{tensor4<W, D, (STAY) != 0, false>, 16, W * 32, STAY, true};                            \
    });                                                                                                      \
    go(                                                                                                      \
        "tensor, " #W " warps, D " #D ", stay " #STAY ", norms inside", md, 4,                               \
        [](const matrix &m) {                                                                                \
            return m.smalls == 1 ? choice{tensor4<W, D, (STAY) != 0, true>, 16, W * 32, STAY, true}          \
                                 : choice{tensor4<W, D, (STAY) != 0, false>, 16, W * 32, STAY, true};        \
        },                                                                                                   \
        true)
static void int4s(const model &md)
{
    go("now", md, 4, [](const matrix &) { return choice{now4, 4, 128, 0, false}; });
    T4(16, 2, 0);
    T4(16, 2, 2);
    T4(16, 2, 1);
    T4(16, 1, 2);
    T4(16, 4, 1);
    T4(8, 2, 4);
    T4(8, 4, 2);
    T4(8, 4, 3);
    T4(8, 8, 2);
    T4(4, 4, 4);
    T4(4, 4, 6);
    T4(4, 8, 4);
    T4(4, 2, 8);
    T4(2, 8, 8);
    T4(32, 1, 1);
    T4(32, 2, 1);
}
template <int T, int R, bool NORM> static choice stay_choice(const matrix &m, int stay)
{
    int steps = (m.K + T * 8 - 1) / (T * 8);
    if (steps <= 1) return choice{stay16<T, R, 1, NORM>, R, T, stay, false};
    if (steps <= 2) return choice{stay16<T, R, 2, NORM>, R, T, stay, false};
    return m.K > 8192 ? choice{now16<1>, 4, 256, 0, false} : choice{now16<2>, 4, 256, 0, false};
}
#define T16(T, R, STAY)                                                                                      \
    go("threads " #T ", R " #R ", stay " #STAY, md, 16,                                                      \
       [](const matrix &m) { return stay_choice<T, R, false>(m, STAY); });                                   \
    go(                                                                                                      \
        "threads " #T ", R " #R ", stay " #STAY ", norms inside", md, 16,                                    \
        [](const matrix &m) {                                                                                \
            return m.smalls == 1 ? stay_choice<T, R, true>(m, STAY) : stay_choice<T, R, false>(m, STAY);     \
        },                                                                                                   \
        true)
static void halves(const model &md)
{
    go("now", md, 16, [](const matrix &m) {
        return m.K > 8192 ? choice{now16<1>, 4, 256, 0, false} : choice{now16<2>, 4, 256, 0, false};
    });
    T16(256, 4, 2);
    T16(256, 4, 3);
    T16(256, 4, 4);
    T16(256, 2, 4);
    T16(256, 8, 2);
    T16(128, 4, 4);
    T16(128, 4, 6);
    T16(128, 4, 8);
    T16(128, 8, 4);
    T16(128, 2, 8);
    T16(64, 4, 8);
    T16(64, 4, 12);
    T16(64, 8, 8);
    T16(224, 4, 3);
    T16(224, 4, 4);
    T16(224, 8, 2);
    T16(512, 4, 2);
}
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    CK(cudaStreamCreate(&stream));
    W_BYTES = (int64_t)14 << 30;
    CK(cudaMalloc(&w, W_BYTES));
    CK(cudaMalloc(&y, 1 << 20));
    CK(cudaMalloc(&xf, 1 << 20));
    CK(cudaMalloc(&xh, 1 << 20));
    CK(cudaMalloc(&scales, 8 << 20));
    CK(cudaMalloc(&scratch, 1 << 20));
    CK(cudaMalloc(&expect, 1 << 20));
    fillx<<<64, 256>>>(xf, xh, scales, 1 << 17, 4 << 20);
    if (!strcmp(what, "int4") || !strcmp(what, "all")) {
        fill<<<2048, 256>>>((unsigned *)w, W_BYTES / 4, ~0u);
        truth<4>(MODELS[0]);
        int4s(MODELS[0]);
    }
    if (!strcmp(what, "f16") || !strcmp(what, "all")) {
        fill<<<2048, 256>>>((unsigned *)w, W_BYTES / 4, 0xb3ffb3ffu);
        for (auto &md : MODELS) {
            truth<16>(md);
            halves(md);
        }
    }
    return 0;
}
