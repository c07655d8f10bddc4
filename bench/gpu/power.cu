/* SPDX-License-Identifier: Apache-2.0
 * power.cu - what Hopper's tensor cores give when nothing feeds them and power is the limit: wgmma over
 * tiles of 128 x 256 that lie in shared memory and stay, with different numbers in them; held for a
 * second, beside the joules of the card's own counter. The ceiling under the cap of products of many rows
 * (README.md of the kernels).
 * From the repository's root: nvcc -O3 -std=c++17 -Isrc -Iinclude -gencode=arch=compute_90a,code=sm_90a
 * bench/gpu/power.cu -ldl */
#include "bench.cuh"

#include "kernels/cuda/runtime/tma.h"

#include <chrono>
#include <cmath>
#include <dlfcn.h>
#include <vector>

enum {
    ROWS = 128,
    COLS = 256,
    SLOTS = 4,
    SLOT_BYTES = (ROWS + COLS) * 128,
    SLABS = 16,
    TILES = 200,
    THREADS = 384
};

void gpu_trace_begin(gpu *)
{
}
void gpu_trace_end(gpu *, const char *)
{
}

static double seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// NVML's counter, which moves ten times a second. 0: there is none.
static double joules()
{
    static void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *card;
    unsigned long long millijoules = 0;
    if (!library) return 0;
    auto start = (int (*)())dlsym(library, "nvmlInit_v2");
    auto open = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    auto energy = (int (*)(void *, unsigned long long *))dlsym(library,
                                                               "nvmlDeviceGetTotalEnergyConsumption");
    if (!card && (start() || open(0, &card))) return 0;
    return energy(card, &millijoules) ? 0 : (double)millijoules * 1e-3;
}

// A block's slots hold 128 rows of A and 256 of B, 64 columns of each; sums begin anew after SLABS of them. REGISTERS: A does not come from there.
template <bool REGISTERS> __global__ void __launch_bounds__(THREADS, 1) spin(const __half *data, float *out)
{
#ifdef GPU_HOPPER
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint4 *from = reinterpret_cast<const uint4 *>(data) + (size_t)blockIdx.x * (SLOTS * SLOT_BYTES / 16);
    for (int i = threadIdx.x; i < SLOTS * SLOT_BYTES / 16; i += THREADS)
        reinterpret_cast<uint4 *>(memory)[i] = from[i];
    gpu_fence_async();
    __syncthreads();
    if (threadIdx.x < 128) {
        gpu_setmaxnreg_dec<24>();
        return;
    }
    gpu_setmaxnreg_inc<240>();
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) - 1;
    float sum[COLS / 2], all = 0;
    unsigned held[4] = {};
    if (REGISTERS)
        for (int i = 0; i < 4; i++) held[i] = reinterpret_cast<const unsigned *>(memory)[threadIdx.x * 4 + i];
    for (int tile = 0; tile < TILES; tile++) {
        for (int k = 0; k < SLABS; k++) {
            unsigned slot = gpu_smem_address(memory) + k % SLOTS * SLOT_BYTES;
            uint64_t a = gpu_smem_desc(slot + group * 64 * 128), b = gpu_smem_desc(slot + ROWS * 128);
            gpu_wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; i++)
                if constexpr (REGISTERS) gpu_wgmma<__half, COLS>::run(sum, held, b + 2 * i, (k | i) != 0);
                else gpu_wgmma<__half, COLS>::run(sum, a + 2 * i, b + 2 * i, (k | i) != 0);
            gpu_wgmma_commit();
            gpu_wgmma_wait<1>();
        }
        gpu_wgmma_wait<0>();
        gpu_wgmma_pin(sum);
        all += sum[0];
    }
    if (all == 1.2345f) out[0] = all; // never, but the compiler does not know
#endif
}

template <typename F> static float time_of(F f, int runs)
{
    cudaEvent_t a, b;
    float ms = 0;
    CK(cudaEventCreate(&a));
    CK(cudaEventCreate(&b));
    CK(cudaEventRecord(a));
    for (int i = 0; i < runs; i++) f();
    CK(cudaGetLastError());
    CK(cudaEventRecord(b));
    CK(cudaEventSynchronize(b));
    CK(cudaEventElapsedTime(&ms, a, b));
    return ms * 1e-3f / (float)runs;
}

template <typename F> static void held(const char *name, int sms, F f)
{
    double ops = 2.0 * ROWS * COLS * 64 * SLABS * TILES * sms;
    float first = time_of(f, 1);
    int runs = (int)(1 / first) + 1;
    time_of(f, runs / 2);
    double before = joules(), start = seconds();
    float each = time_of(f, runs);
    double used = joules() - before, took = seconds() - start;
    printf("%-40s first %6.1f TFLOP/s, held %6.1f, %4.0f W, %.2f pJ an operation\n", name,
           ops / first * 1e-12, ops / each * 1e-12, used / took, used / (ops * runs) * 1e12);
    fflush(stdout);
}

static float normal()
{
    float u = ((float)rand() + 1.0f) / ((float)RAND_MAX + 2.0f), v = (float)rand() / (float)RAND_MAX;
    return sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
}

enum numbers { NORMAL, BEHIND_GELU, EVEN, ZEROS };

static float number(numbers kind, bool is_b)
{
    float x = kind == EVEN ? 3.4f * ((float)rand() / (float)RAND_MAX - 0.5f) : kind == ZEROS ? 0 : normal();
    if (kind == BEHIND_GELU && !is_b) return 0.5f * x * erfcf(-x * 0.70710678f);
    return is_b ? 0.03f * x : x;
}

int main()
{
    const char *names[] = {"normal", "A as behind GELU, B normal", "evenly spread", "zeros"};
    int sms;
    __half *data;
    float *out;
    CK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    std::vector<__half> here((size_t)sms * SLOTS * SLOT_BYTES / 2);
    CK(cudaMalloc(&data, here.size() * 2));
    CK(cudaMalloc(&out, 4));
    CK(cudaFuncSetAttribute(spin<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, SLOTS * SLOT_BYTES));
    CK(cudaFuncSetAttribute(spin<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, SLOTS * SLOT_BYTES));
    for (int kind = NORMAL; kind <= ZEROS; kind++) {
        for (size_t i = 0; i < here.size(); i++)
            here[i] = __float2half(number((numbers)kind, i % (SLOT_BYTES / 2) >= ROWS * 64));
        CK(cudaMemcpy(data, here.data(), here.size() * 2, cudaMemcpyHostToDevice));
        held(names[kind], sms, [&] { spin<false><<<sms, THREADS, SLOTS * SLOT_BYTES>>>(data, out); });
        if (kind == NORMAL)
            held("normal, A in registers", sms,
                 [&] { spin<true><<<sms, THREADS, SLOTS * SLOT_BYTES>>>(data, out); });
    }
    return 0;
}
