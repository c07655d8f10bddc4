/* SPDX-License-Identifier: Apache-2.0
 * wgmma.cu - experiments on the many-rows product on Hopper: variants of the kernel beside the best of
 * cuBLASLt's algorithms, with what follows the product; values compared with a plain kernel. Prints
 * TFLOP/s; with SUSTAIN set also those of a fifth of a second at a time, where the card's power is the
 * limit.
 * From the repository's root: nvcc -O3 -std=c++17 -Isrc -Iinclude -gencode=arch=compute_90a,code=sm_90a
 * bench/gpu/wgmma.cu -lcublasLt */
#include "bench.cuh"

#include "kernels/cuda/runtime/tma.h"

#ifdef GPU_HOPPER
// Never a run that hangs.
__device__ static inline void bounded_await(unsigned barrier, unsigned parity)
{
    for (int i = 0; i < 20000000; i++) {
        unsigned done;
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, "
                     "1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (done) return;
    }
    __trap();
}
#define gpu_barrier_wait bounded_await
#endif
#include "kernels/cuda/linear/wgmma.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

void gpu_trace_begin(gpu *)
{
}
void gpu_trace_end(gpu *, const char *)
{
}

static cudaStream_t stream;
static int sms;
static gpu device;
static cublasLtHandle_t lt;
static void *workspace;

struct problem {
    int64_t M, N, K;
    int act;
    bool bias, residual;
};

struct operands {
    void *x, *w, *y, *r, *y2;
    void *bias16;
};

// ---- random numbers, the plain product, the pass of activations as elementwise.cu has it ----

template <typename T> __global__ void fill(T *to, int64_t count, float reach, unsigned seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t z = ((uint64_t)i + 1 + ((uint64_t)seed << 40)) * 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull, z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        float u = (float)(z >> 40) * 0x1p-24f, v = (float)(z & 0xffffff) * 0x1p-24f;
        to[i] = gpu_from_f32<T>(reach * sqrtf(-2.0f * logf(u + 1e-7f)) * cospif(2.0f * v)); // normal
    }
}

__device__ static double act64(double x, int act)
{
    switch (act) {
    case PROA_ACT_RELU: return x < 0 ? 0 : x;
    case PROA_ACT_GELU: return 0.5 * x * erfc(-x * 0.70710678118654752);
    case PROA_ACT_GELU_TANH: return x / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case PROA_ACT_SILU: return x / (1 + exp(-x));
    default: return x;
    }
}

// A warp for an output of the rows every `step`; the largest error, in units of the half unit in the last place plus what f32
// sums leave. worst[0]: as float bits.
template <typename T>
__global__ void compare(const T *y, const T *x, const T *w, const T *bias, const T *residual, problem p,
                        int step, float *worst)
{
    int n = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31;
    int64_t m = (int64_t)blockIdx.y * step;
    if (m >= p.M) m = p.M - 1;
    if (n >= p.N) return;
    float sum = 0, size = 0;
    for (int64_t k = lane; k < p.K; k += 32) {
        float a = gpu_to_f32(x[m * p.K + k]) * gpu_to_f32(w[n * p.K + k]);
        sum += a, size += fabsf(a);
    }
    sum = gpu_warp_sum(sum), size = gpu_warp_sum(size);
    if (lane) return;
    double want = act64((double)sum + (p.bias ? gpu_to_f32(bias[n]) : 0), p.act);
    if (p.residual) want += gpu_to_f32(residual[m * p.N + n]);
    double unit = std::is_same<T, __half>::value ? 0x1p-11 : 0x1p-8;
    double allowed = fabs(want) * unit + 1e-6 * size + 0x1p-25;
    float share = (float)(fabs((double)gpu_to_f32(y[m * p.N + n]) - want) / allowed);
    if (!(share >= 0)) share = 1e30f;
    atomicMax((int *)worst, __float_as_int(share));
}

template <typename T> __global__ void activate(T *y, int64_t eights, int act)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, half = (eights + 1) / 2;
    float v[8], w[8];
    if (i >= half) return;
    bool two = i + half < eights;
    gpu_load8(v, y + 8 * i);
    if (two) gpu_load8(w, y + 8 * (i + half));
    for (int e = 0; e < 8; e++) v[e] = gpu_act16<T>(v[e], act), w[e] = gpu_act16<T>(w[e], act);
    gpu_store8(y + 8 * i, v);
    if (two) gpu_store8(y + 8 * (i + half), w);
}

// ---- GELU against the exact one: of all f32 between -12 and 12 on a grid, the error in units of the last place of f16 ----

#ifdef GPU_HOPPER
#define FAST_GELU(x) hopper_act<PROA_ACT_GELU>(x)
#else
#define FAST_GELU(x) (x)
#endif
struct gelu_errors {
    unsigned long long count, wrong[3], far[3];
    float absolute[3];
};
__global__ void compare_gelu(gelu_errors *e)
{
    const int STEPS = 1 << 24;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < STEPS; i += gridDim.x * blockDim.x) {
        float x = -12.0f + 24.0f * ((float)i + 0.5f) / (float)STEPS;
        double right = 0.5 * (double)x * erfc(-(double)x * 0.70710678118654752);
        float forms[3] = {FAST_GELU(x), gpu_act16<__half>(x, PROA_ACT_GELU),
                          0.5f * x * (1.0f + erff(x * 0.70710678f))};
        __half want = __double2half(right);
        for (int k = 0; k < 3; k++) {
            __half got = __float2half_rn(forms[k]);
            short a = __half_as_short(got), b = __half_as_short(want);
            if ((a ^ b) < 0) a = (short)-(a & 0x7fff), b = (short)-(b & 0x7fff); // zeros of both signs
            int off = abs(a - b);
            if (off > 0) atomicAdd(&e->wrong[k], 1ull);
            if (off > 1) atomicAdd(&e->far[k], 1ull);
            atomicMax((int *)&e->absolute[k], __float_as_int((float)fabs((double)forms[k] - right)));
        }
    }
}

// ---- candidates ----

static bool map2(CUtensorMap *map, proa_dtype type, const void *at, int64_t rows, int64_t columns, int box_rows)
{
    int64_t extent[2] = {columns, rows}, stride[1] = {columns};
    int box[2] = {64, box_rows};
    return gpu_tensor_map(map, type, at, 2, extent, stride, box);
}

template <typename T, typename F> static bool own(const problem &p, const operands &o, void *y, int band)
{
    proa_dtype type = std::is_same<T, __half>::value ? PROA_DTYPE_F16 : PROA_DTYPE_BF16;
    CUtensorMap x, w, r;
    if (!map2(&x, type, o.x, p.M, p.K, F::BM) || !map2(&w, type, o.w, p.N, p.K, F::BN / F::CLUSTER) ||
        !map2(&r, type, o.r, p.M, p.N, F::BM))
        return false;
    hopper_job job = {};
    job.tiles_m = (int)((p.M + F::BM * F::CLUSTER - 1) / (F::BM * F::CLUSTER)),
    job.tiles_n = (int)((p.N + F::BN - 1) / F::BN);
    job.tiles = job.tiles_m * job.tiles_n, job.band = band, job.slabs = (int)((p.K + 63) / 64);
    job.M = (int)p.M, job.N = (int)p.N, job.y = y, job.y_row = p.N;
    job.act = p.act, job.has_residual = p.residual, job.alpha = 1, job.bias = p.bias ? o.bias16 : NULL;
    CK(cudaFuncSetAttribute(gemm_wgmma_kernel<T, F>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::BYTES));
    int clusters = std::min(sms / F::CLUSTER, job.tiles);
    gpu_launch_clusters(&device, "own", gemm_wgmma_kernel<T, F>, dim3((unsigned)(clusters * F::CLUSTER)),
                        F::CLUSTER, HOPPER_THREADS, F::BYTES, x, w, r, job);
    CK(device.failed);
    return true;
}

// cuBLASLt: the plan of the product with the epilogue it has, and whether a pass follows.
struct plan {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    std::vector<cublasLtMatmulHeuristicResult_t> algos;
    bool pass;
};
static plan make_plan(const problem &p, const operands &o, cudaDataType_t type)
{
    plan q = {};
    cublasOperation_t yes = CUBLAS_OP_T;
    bool tanh = p.act == PROA_ACT_GELU_TANH;
    cublasLtEpilogue_t ep = tanh     ? (p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU)
                            : p.bias ? CUBLASLT_EPILOGUE_BIAS
                                     : CUBLASLT_EPILOGUE_DEFAULT;
    q.pass = p.act != PROA_ACT_NONE && !tanh;
    cublasLtMatmulDescCreate(&q.op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(q.op, CUBLASLT_MATMUL_DESC_TRANSA, &yes, sizeof yes);
    cublasLtMatmulDescSetAttribute(q.op, CUBLASLT_MATMUL_DESC_EPILOGUE, &ep, sizeof ep);
    if (p.bias)
        cublasLtMatmulDescSetAttribute(q.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o.bias16, sizeof o.bias16);
    cublasLtMatrixLayoutCreate(&q.a, type, p.K, p.N, p.K);
    cublasLtMatrixLayoutCreate(&q.b, type, p.K, p.M, p.K);
    cublasLtMatrixLayoutCreate(&q.c, type, p.N, p.M, p.N);
    cublasLtMatmulPreference_t pref;
    size_t bytes = 64 << 20;
    int found = 0;
    cublasLtMatmulPreferenceCreate(&pref);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    q.algos.resize(8);
    cublasLtMatmulAlgoGetHeuristic(lt, q.op, q.a, q.b, q.c, q.c, pref, 8, q.algos.data(), &found);
    q.algos.resize((size_t)found);
    return q;
}
static bool vendor(const plan &q, size_t which, const problem &p, const operands &o, void *y, bool pass)
{
    float alpha = 1, beta = p.residual ? 1 : 0;
    if (which >= q.algos.size()) return false;
    if (cublasLtMatmul(lt, q.op, &alpha, o.w, q.a, o.x, q.b, &beta, p.residual ? o.r : y, q.c, y, q.c,
                       &q.algos[which].algo, workspace, 64 << 20, stream) != CUBLAS_STATUS_SUCCESS)
        return false;
    int64_t eights = p.M * p.N / 8;
    if (pass && q.pass)
        activate<__half><<<(unsigned)((eights / 2 + 256) / 256), 256, 0, stream>>>((__half *)y, eights, p.act);
    return true;
}

// ---- timing ----

template <typename F> static float burst(F f, int runs)
{
    cudaEvent_t a, b;
    float ms = 0;
    CK(cudaEventCreate(&a));
    CK(cudaEventCreate(&b));
    CK(cudaEventRecord(a, stream));
    for (int i = 0; i < runs; i++)
        if (!f()) return 0;
    CK(cudaEventRecord(b, stream));
    CK(cudaEventSynchronize(b));
    CK(cudaEventElapsedTime(&ms, a, b));
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    return ms / (float)runs;
}
static float median(std::vector<float> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

template <typename T> static float worst_of(const problem &p, const operands &o, const void *y)
{
    static float *worst = NULL;
    float host = 0;
    int step = (int)std::max<int64_t>(1, p.M / 61);
    if (!worst) CK(cudaMalloc(&worst, 4));
    CK(cudaMemsetAsync(worst, 0, 4, stream));
    dim3 grid((unsigned)((p.N + 7) / 8), (unsigned)((p.M + step - 1) / step + 1));
    compare<T><<<grid, 256, 0, stream>>>((const T *)y, (const T *)o.x, (const T *)o.w, (const T *)o.bias16,
                                         (const T *)o.r, p, step, worst);
    CK(cudaMemcpyAsync(&host, worst, 4, cudaMemcpyDeviceToHost, stream));
    CK(cudaStreamSynchronize(stream));
    return host;
}

// Long enough that the card's power decides: the clock is what is left for the kernel. Microseconds of the second half.
template <typename F> static float sustained(F f, float about_us)
{
    int half = (int)(100e3f / about_us) + 1;
    burst(f, half);
    return burst(f, half) * 1e3f;
}

template <typename T> struct candidate {
    const char *name;
    bool (*run)(const problem &, const operands &, void *, int);
    int band;
};

enum { GUARD = 4096, ALGOS = 8 };

// A problem with its operands, and the times of all that compute it: candidates, then cuBLASLt's algorithms, then these
// with the pass that they need.
template <typename T> struct trial {
    const problem &p;
    const std::vector<candidate<T>> &list;
    operands o;
    plan q;
    double flops;
    int runs;
    std::vector<std::vector<float>> times;

    size_t n() const
    {
        return list.size();
    }
    bool run(size_t i) const
    {
        return list[i].run(p, o, o.y, list[i].band);
    }
    bool run_vendor(size_t i, bool pass) const
    {
        return vendor(q, i, p, o, o.y, pass);
    }
    float vendor_ms(size_t i) const
    {
        return median(times[n() + i]);
    }
    float pass_ms(size_t i) const
    {
        return q.pass ? median(times[n() + ALGOS + i]) : vendor_ms(i);
    }
    void print(const char *name, float us, const char *what = "") const
    {
        printf("   %s%-28s %8.1f us %7.1f TFLOP/s\n", what, name, us, flops / us * 1e-6);
    }
};

template <typename T> static operands make_operands(const problem &p)
{
    operands o = {};
    CK(cudaMalloc(&o.x, (size_t)(p.M * p.K * 2)));
    CK(cudaMalloc(&o.w, (size_t)(p.N * p.K * 2)));
    CK(cudaMalloc(&o.y, (size_t)(p.M * p.N * 2 + GUARD)));
    CK(cudaMalloc(&o.r, (size_t)(p.M * p.N * 2)));
    CK(cudaMalloc(&o.bias16, (size_t)p.N * 2));
    fill<T><<<512, 256, 0, stream>>>((T *)o.x, p.M * p.K, 1.0f, 1);
    fill<T><<<512, 256, 0, stream>>>((T *)o.w, p.N * p.K, 1.5f / sqrtf((float)p.K), 2);
    fill<T><<<512, 256, 0, stream>>>((T *)o.r, p.M * p.N, 1.0f, 3);
    fill<T><<<8, 256, 0, stream>>>((T *)o.bias16, p.N, 0.5f, 4);
    return o;
}

// Values, and the bytes after y, which no kernel may touch. quiet: only failures are printed.
template <typename T> static void check_candidate(const trial<T> &t, size_t i, bool quiet)
{
    int64_t bytes = t.p.M * t.p.N * 2;
    unsigned char guard[GUARD];
    CK(cudaMemsetAsync(t.o.y, 0xff, (size_t)(bytes + GUARD), stream));
    bool ok = t.run(i);
    CK(cudaStreamSynchronize(stream));
    CK(cudaMemcpy(guard, (char *)t.o.y + bytes, GUARD, cudaMemcpyDeviceToHost));
    bool clean = std::all_of(guard, guard + GUARD, [](unsigned char c) { return c == 0xff; });
    float worst = ok ? worst_of<T>(t.p, t.o, t.o.y) : -1;
    bool wrong = worst > 1.2f || !clean;
    if (quiet && ok && !wrong) return;
    printf("   %-28s %s error %.3f%s\n", t.list[i].name, ok ? "" : "REFUSED", worst, wrong ? "  <-- WRONG" : "");
}

template <typename T> static void time_round(trial<T> &t)
{
    for (size_t i = 0; i < t.n(); i++) t.times[i].push_back(burst([&] { return t.run(i); }, t.runs));
    for (size_t i = 0; i < t.q.algos.size(); i++) {
        t.times[t.n() + i].push_back(burst([&] { return t.run_vendor(i, false); }, t.runs));
        if (t.q.pass)
            t.times[t.n() + ALGOS + i].push_back(burst([&] { return t.run_vendor(i, true); }, t.runs));
    }
}

template <typename T> static void print_sustained(const trial<T> &t)
{
    size_t best = 0;
    for (size_t i = 0; i < t.n(); i++)
        t.print(t.list[i].name, sustained([&] { return t.run(i); }, median(t.times[i]) * 1e3f), "sustained ");
    for (size_t i = 1; i < t.q.algos.size(); i++)
        if (t.vendor_ms(i) < t.vendor_ms(best)) best = i;
    float about_us = t.vendor_ms(best) * 1e3f;
    t.print("cuBLASLt", sustained([&] { return t.run_vendor(best, false); }, about_us), "sustained ");
    if (t.q.pass)
        t.print("  and the pass", sustained([&] { return t.run_vendor(best, true); }, about_us), "sustained ");
}

template <typename T> static void print_times(const trial<T> &t)
{
    float best = 1e9f, best_pass = 1e9f;
    for (size_t i = 0; i < t.n(); i++) t.print(t.list[i].name, median(t.times[i]) * 1e3f);
    for (size_t i = 0; i < t.q.algos.size(); i++)
        if (t.vendor_ms(i) > 0)
            best = std::min(best, t.vendor_ms(i)), best_pass = std::min(best_pass, t.pass_ms(i));
    printf("   %-28s %8.1f us %7.1f TFLOP/s (first guess %.1f us)\n", "cuBLASLt, best of 8", best * 1e3,
           t.flops / best * 1e-9, t.q.algos.empty() ? 0.0f : t.vendor_ms(0) * 1e3f);
    if (t.q.pass) t.print("  and the pass", best_pass * 1e3f);
}

template <typename T>
static void go(const problem &p, const std::vector<candidate<T>> &list, int rounds, bool timed)
{
    const bool f16 = std::is_same<T, __half>::value;
    const double flops = 2.0 * (double)p.M * (double)p.N * (double)p.K;
    const int runs = (int)std::max(3.0, std::min(40.0, 4e-3 / (flops / 650e12)));
    operands o = make_operands<T>(p);
    trial<T> t = {p, list, o, make_plan(p, o, f16 ? CUDA_R_16F : CUDA_R_16BF), flops, runs, {}};
    t.times.resize(list.size() + 2 * ALGOS);
    printf("-- %s M %ld N %ld K %ld %s%s%s\n", f16 ? "f16" : "bf16", (long)p.M, (long)p.N, (long)p.K,
           proa_act_name((proa_act)p.act), p.bias ? " bias" : "", p.residual ? " residual" : "");
    for (size_t i = 0; i < list.size(); i++) check_candidate(t, i, timed);
    for (int round = 0; round < rounds && timed; round++) time_round(t);
    if (timed && getenv("SUSTAIN")) print_sustained(t);
    if (timed) print_times(t);
    for (void *m : {o.x, o.w, o.y, o.r, o.bias16}) cudaFree(m);
    fflush(stdout);
}

extern "C" const char *proa_act_name(proa_act act)
{
    const char *names[] = {"none", "relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"};
    return (int)act < 7 ? names[act] : "?";
}

template <typename T> static std::vector<candidate<T>> candidates()
{
    return {
        {"128x256 pair", own<T, hopper_form<128, 256, 4, 2, false>>, 8},
        {"128x256 single", own<T, hopper_form<128, 256, 4, 1, false>>, 8},
        {"128x128 pair, alternate", own<T, hopper_form<128, 128, 6, 2, true>>, 8},
        {"128x128 single, alternate", own<T, hopper_form<128, 128, 6, 1, true>>, 8},
    };
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "all";
    CK(cudaStreamCreate(&stream));
    CK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    CK(cudaMalloc(&workspace, 64 << 20));
    cublasLtCreate(&lt);
    device.stream = stream, device.sms = sms;
    gelu_errors *e, host;
    CK(cudaMalloc(&e, sizeof *e));
    CK(cudaMemset(e, 0, sizeof *e));
    compare_gelu<<<1024, 256, 0, stream>>>(e);
    CK(cudaMemcpy(&host, e, sizeof host, cudaMemcpyDeviceToHost));
    const char *forms[] = {"2^P(|x|)", "7.1.26", "1 + erff"};
    for (int k = 0; k < 3; k++)
        printf("gelu %-9s of %d in [-12, 12]: f16 not the nearest %.4f %%, by more than one %llu, absolute "
               "error %.2g\n",
               forms[k], 1 << 24, 100.0 * (double)host.wrong[k] / (1 << 24), host.far[k], host.absolute[k]);
    auto half = candidates<__half>();
    const int NONE = PROA_ACT_NONE, GELU = PROA_ACT_GELU, TANH = PROA_ACT_GELU_TANH;
    // values: ragged rows and columns, K that is no multiple of a slab, everything behind the sums
    const int RELU = PROA_ACT_RELU, SILU = PROA_ACT_SILU;
    const problem odd[] = {
        {1000, 1000, 520, GELU, true, false},  {129, 264, 72, NONE, true, true},
        {2047, 3080, 1032, TANH, true, false}, {300, 520, 200, RELU, false, false},
        {777, 1288, 64, SILU, true, false},    {2047, 1032, 1032, NONE, false, true},
        {17, 8, 8, NONE, false, false},
    };
    for (const problem &p : odd) go<__half>(p, half, 0, false);
    typedef __nv_bfloat16 bf16;
    const std::vector<candidate<bf16>> brain = {
        {"128x256 pair", own<bf16, hopper_form<128, 256, 4, 2, false>>, 8},
        {"128x128 pair, alternate", own<bf16, hopper_form<128, 128, 6, 2, true>>, 8}};
    for (const problem &p : odd) go<bf16>(p, brain, 0, false);
    if (!strcmp(mode, "values")) return 0;
    const problem big[] = {
        {24576, 4096, 1024, GELU, true, false}, {24576, 4096, 1024, NONE, true, false},
        {24576, 3072, 1024, NONE, true, false}, {24576, 1024, 1024, NONE, true, true},
        {24576, 1024, 4096, NONE, true, true},  {8192, 4096, 1024, GELU, true, false},
        {8192, 4096, 1024, NONE, true, false},  {8192, 1024, 4096, NONE, true, true},
        {2048, 4096, 1024, GELU, true, false},  {2048, 1024, 1024, NONE, true, false},
        {2048, 16384, 4096, TANH, true, false}, {2048, 4096, 16384, NONE, true, false},
        {2048, 4096, 4096, NONE, false, false}, {8192, 8192, 8192, NONE, false, false},
    };
    for (const problem &p : big) go<__half>(p, half, 3, true);
    return 0;
}
