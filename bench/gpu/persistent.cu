/* SPDX-License-Identifier: Apache-2.0
 * persistent.cu - what one persistent kernel for all layers could gain over a chain of kernels, for one row:
 *
 *   barrier     a barrier of all blocks by a counter in L2, us each
 *   chain       kernels that do nothing, in a graph, with programmatic dependent launch, us each
 *   layer       a persistent kernel that streams the weights of a layer of a mixture of small experts through shared
 *               memory by bulk copies, with the barriers and the reads of the rows between them, us a layer. Weights
 *               that do not depend on the choice are fetched ahead, over barriers; those of experts only behind it.
 *
 *     nvcc -O3 -arch=sm_90a -o persistent persistent.cu && ./persistent
 *
 * It computes no model: products are real, what attention and the choice take is read and waited for. */
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        cudaError_t e_ = (x);                                                                                \
        if (e_ != cudaSuccess) printf("%s: %s\n", #x, cudaGetErrorString(e_)), exit(1);                      \
    } while (0)

/* ---- the barrier of the grid ---- */

__device__ static inline void arrive(unsigned *counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ static inline unsigned look(const unsigned *counter)
{
    unsigned v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory");
    return v;
}

/* Barrier `nr` (from 1 on) of `blocks` blocks. */
__device__ static inline void wait_for_all(unsigned *counter, unsigned nr, unsigned blocks)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        arrive(counter);
        while (look(counter) < nr * blocks) {
        }
    }
    __syncthreads();
}

__global__ void barrier_kernel(unsigned *counter, int rounds)
{
    for (int i = 1; i <= rounds; i++) wait_for_all(counter, (unsigned)i, gridDim.x);
}

/* ---- the chain of kernels ---- */

__global__ void chain_kernel(float *x)
{
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    float v = __ldcg(x + threadIdx.x);
    if (v == 12345.0f) x[threadIdx.x] = 0.0f;
}

/* ---- the persistent kernel ---- */

enum { THREADS = 512, STAGE = 16 << 10, STAGES = 12, ROW = 4096 };

__device__ static inline uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ static inline void fill(void *to, const void *from, uint32_t bytes, uint64_t *full)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_at(full)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_at(to)),
                 "l"(from), "r"(bytes), "r"(shared_at(full))
                 : "memory");
}
__device__ static inline void wait_phase(uint64_t *bar, unsigned phase)
{
    asm volatile("{\n .reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@p bra done;\n bra again;\n done:\n}" ::"r"(shared_at(bar)),
                 "r"(phase)
                 : "memory");
}

/* What one block streams of a part of a layer, in stages. chosen: it can be requested only when experts are chosen. */
struct part {
    int stages;
    bool chosen;
};
__constant__ part parts[6];

struct layer_call {
    const char *w; /* [layers][blocks][stages of a layer][STAGE] */
    float *x;      /* rows that blocks hand to each other */
    unsigned *counter;
    int layers, stages, attention; /* stages: of a layer. attention: barriers without weights */
};

__device__ static inline float multiply(uint4 w, const __half2 (&x)[8])
{
    const unsigned *v = reinterpret_cast<const unsigned *>(&w);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        __half2_raw a = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(v[j] & 0xffff), __NV_E4M3),
                    b = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(v[j] >> 16), __NV_E4M3);
        float2 f = __half22float2(__hfma2(__half2(b), x[2 * j + 1], __hmul2(__half2(a), x[2 * j])));
        sum += f.x + f.y;
    }
    return sum;
}

/* One thread requests stages as soon as there is room, up to the first whose address depends on a choice that has not
 * been made. A warp multiplies 1 KB of each stage. */
__global__ void __launch_bounds__(THREADS, 1) layer_kernel(layer_call a)
{
    extern __shared__ __align__(128) char ring[];
    __shared__ uint64_t full[STAGES];
    __shared__ float sums[THREADS / 32];
    unsigned barriers = 0, blocks = gridDim.x;
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++)
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_at(&full[i])) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    long used = 0, requested = 0, total = (long)a.layers * a.stages, open; /* open: may be requested up to here */
    int first_chosen = 0, chosen_behind = 0;
    for (int p = 0, at = 0; p < 6; at += parts[p].stages, p++)
        if (parts[p].chosen && !chosen_behind) first_chosen = at, chosen_behind = p;
    open = chosen_behind ? first_chosen : total;
    auto request = [&]() {
        if (threadIdx.x != 0) return;
        for (; requested < total && requested < open && requested < used + STAGES; requested++) {
            const char *from =
                a.w + ((requested / a.stages * blocks + blockIdx.x) * a.stages + requested % a.stages) * STAGE;
            fill(ring + requested % STAGES * STAGE, from, STAGE, &full[requested % STAGES]);
        }
    };
    request();
    for (int layer = 0; layer < a.layers; layer++)
        for (int p = 0; p < 6; p++) {
            wait_for_all(a.counter, ++barriers, blocks);
            if (parts[p].chosen && p == chosen_behind) { /* the choice: scores are read, rounds of a warp */
                float score = __ldcg(a.x + threadIdx.x % 32);
                unsigned v = __float_as_uint(score);
                for (int i = 0; i < 16; i++) v = __reduce_max_sync(0xffffffffu, v + threadIdx.x % 32);
                if (v == 77) sums[0] = 1.0f;
                __syncthreads();
                open = (long)(layer + 1) * a.stages + first_chosen;
            }
            request();
            __half2 x[8];
            float sum = 0.0f;
            const float4 *row = reinterpret_cast<const float4 *>(a.x + threadIdx.x % 128 * 16);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float4 v = __ldcg(row + i);
                x[2 * i] = __floats2half2_rn(v.x, v.y), x[2 * i + 1] = __floats2half2_rn(v.z, v.w);
            }
            for (int s = 0; s < parts[p].stages; s++) {
                wait_phase(&full[used % STAGES], (unsigned)(used / STAGES & 1));
                const uint4 *w = reinterpret_cast<const uint4 *>(ring + used % STAGES * STAGE);
#pragma unroll
                for (int i = 0; i < STAGE / 16 / THREADS; i++)
                    sum += multiply(w[i * THREADS + threadIdx.x], x);
                __syncthreads();
                used++;
                request();
            }
#pragma unroll
            for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
            if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
            __syncthreads();
            if (threadIdx.x < THREADS / 32)
                __stcg(a.x + (blockIdx.x * 16 + threadIdx.x) % ROW, sums[threadIdx.x] * 1e-9f);
        }
}

/* ---- host ---- */

static float elapsed(cudaEvent_t a, cudaEvent_t b)
{
    float ms;
    CHECK(cudaEventSynchronize(b));
    CHECK(cudaEventElapsedTime(&ms, a, b));
    return ms;
}

static void run_cooperative(const void *kernel, int blocks, int threads, size_t shared, void **args)
{
    CHECK(cudaLaunchCooperativeKernel(kernel, dim3((unsigned)blocks), dim3((unsigned)threads), args, shared, 0));
}

static void time_barrier(unsigned *counter, int blocks, int threads, cudaEvent_t a, cudaEvent_t b)
{
    int rounds = 2000;
    void *args[] = {&counter, &rounds};
    for (int i = 0; i < 2; i++) {
        CHECK(cudaMemset(counter, 0, 4));
        CHECK(cudaEventRecord(a));
        run_cooperative((const void *)barrier_kernel, blocks, threads, 0, args);
        CHECK(cudaEventRecord(b));
        if (i)
            printf("barrier of %d blocks of %d threads: %.3f us\n", blocks, threads,
                   elapsed(a, b) * 1e3 / rounds);
    }
}

static void time_chain(float *x, int blocks, int threads, bool dependent, cudaEvent_t a, cudaEvent_t b)
{
    int count = 400;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < count; i++) {
        cudaLaunchConfig_t c = {};
        cudaLaunchAttribute at = {};
        at.id = cudaLaunchAttributeProgrammaticStreamSerialization,
        at.val.programmaticStreamSerializationAllowed = 1;
        c.gridDim = dim3((unsigned)blocks), c.blockDim = dim3((unsigned)threads), c.stream = stream;
        c.attrs = &at, c.numAttrs = dependent && i;
        CHECK(cudaLaunchKernelEx(&c, chain_kernel, x));
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CHECK(cudaEventRecord(a, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(b, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    printf("chain of %d blocks of %d threads, %s: %.3f us a kernel\n", blocks, threads,
           dependent ? "programmatic" : "plain", elapsed(a, b) * 1e3 / count);
}

/* what: printed. given: stages of each part and whether it is chosen. */
static void time_layers(const char *what, const part (&given)[6], char *w, size_t room, float *x,
                        unsigned *counter, int blocks, cudaEvent_t a, cudaEvent_t b)
{
    layer_call call = {w, x, counter, 24, 0, 0};
    for (const part &p : given) call.stages += p.stages;
    size_t bytes = (size_t)call.stages * STAGE * (size_t)blocks, shared = (size_t)STAGES * STAGE;
    while ((size_t)call.layers * bytes > room) call.layers--;
    CHECK(cudaMemcpyToSymbol(parts, given, sizeof given));
    CHECK(cudaFuncSetAttribute(layer_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    void *args[] = {&call};
    for (int i = 0; i < 3; i++) {
        CHECK(cudaMemset(counter, 0, 4));
        CHECK(cudaEventRecord(a));
        run_cooperative((const void *)layer_kernel, blocks, THREADS, shared, args);
        CHECK(cudaEventRecord(b));
        float us = elapsed(a, b) * 1e3f / (float)call.layers;
        if (i == 2)
            printf("%s: %.1f MB a layer, %.2f us a layer, %.0f GB/s\n", what, (double)bytes / 1e6, us,
                   (double)bytes / us / 1e3);
    }
}

int main(void)
{
    int blocks;
    CHECK(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0));
    size_t room = (size_t)3 << 29;
    char *w;
    float *x;
    unsigned *counter;
    cudaEvent_t a, b;
    CHECK(cudaMalloc((void **)&w, room));
    CHECK(cudaMalloc((void **)&x, ROW * sizeof(float)));
    CHECK(cudaMalloc((void **)&counter, 4));
    CHECK(cudaMemset(w, 0x30, room));
    CHECK(cudaMemset(x, 0, ROW * sizeof(float)));
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    for (int threads = 128; threads <= 1024; threads *= 2) time_barrier(counter, blocks, threads, a, b);
    for (int n : {32, 132, 1056})
        for (int dependent = 0; dependent < 2; dependent++) time_chain(x, n, 128, dependent, a, b);
    /* QKV 80 KB a block, attention, O 64 KB, scores 4 KB (a whole stage here), gate and up 191 KB, down 95 KB */
    time_layers("mixture of small experts",
                {{5, false}, {0, false}, {4, false}, {1, false}, {12, true}, {6, true}}, w, room, x, counter,
                blocks, a, b);
    time_layers("the same, nothing depends on a choice",
                {{5, false}, {0, false}, {4, false}, {1, false}, {12, false}, {6, false}}, w, room, x,
                counter, blocks, a, b);
    time_layers("the same bytes in one part",
                {{28, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, false}}, w, room, x,
                counter, blocks, a, b);
    time_layers("barriers and rows alone",
                {{0, false}, {0, false}, {0, false}, {0, false}, {0, true}, {0, true}}, w, room, x, counter,
                blocks, a, b);
    return 0;
}
