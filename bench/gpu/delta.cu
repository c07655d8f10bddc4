/* SPDX-License-Identifier: Apache-2.0
 * delta.cu - the gated delta rule row by row and by chunks (kernels/cuda/state.cu, delta_chunk.cu): times of both for
 * prompts of some lengths, and how far the outputs and states of one are from the other's.
 * Build: nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -I../../src -I../../include delta.cu */
#include "../../src/kernels/cuda/state.cu"
#include "../../src/kernels/cuda/delta_chunk.cu"

#include <algorithm>
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
void gpu_invalidate(gpu *, proa_view)
{
}
int64_t proa_dtype_bytes(proa_dtype)
{
    return 2;
}

bool gpu_scan_takes_chunks(const proa_state_space *, proa_view, proa_view)
{
    return false;
}
void gpu_scan_chunks(gpu *, const scan_args<bf16> &, const proa_spans *)
{
}

/* Qwen3-Next's heads. */
enum { KEY_HEADS = 16, VALUE_HEADS = 32, DIM = 128, STATE = VALUE_HEADS * DIM * DIM };
enum { IN = (2 * KEY_HEADS + VALUE_HEADS) * DIM, OUT = VALUE_HEADS * DIM };

static float random_float(uint64_t &seed)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(seed >> 32) / 2147483648.0f;
}

template <typename T> static T *upload(const std::vector<T> &v)
{
    T *p;
    cudaMalloc(&p, v.size() * sizeof(T));
    cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}

template <typename T> static std::vector<T> download(const T *p, size_t n)
{
    std::vector<T> v(n);
    cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
    return v;
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
        best = std::min(best, ms);
    }
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess || g.failed != cudaSuccess)
        printf("%s %s\n", cudaGetErrorString(e), cudaGetErrorString(g.failed)), g.failed = cudaSuccess;
    return best * 1e3 / 8;
}

static float worst_difference(const std::vector<float> &x, const std::vector<float> &y)
{
    float worst = 0, largest = 0;
    for (size_t i = 0; i < x.size(); i++)
        worst = std::max(worst, fabsf(x[i] - y[i])), largest = std::max(largest, fabsf(y[i]));
    return worst / largest;
}

static std::vector<float> widened(const std::vector<bf16> &x)
{
    std::vector<float> y(x.size());
    for (size_t i = 0; i < x.size(); i++) y[i] = __bfloat162float(x[i]);
    return y;
}

/* `count` prompts of `rows`, which go on from a state. */
static void compare(int count, int rows)
{
    uint64_t seed = 7;
    const size_t T = (size_t)count * rows;
    std::vector<bf16> x(T * IN);
    std::vector<float> rates(T * 2 * VALUE_HEADS), rate(VALUE_HEADS), bias(VALUE_HEADS),
        state((size_t)count * STATE);
    std::vector<proa_span> spans(count);
    for (auto &v : x) v = __float2bfloat16(random_float(seed));
    for (auto &v : rates) v = 2 * random_float(seed);
    for (auto &v : rate) v = random_float(seed) - 2;
    for (auto &v : state) v = random_float(seed);
    for (int i = 0; i < count; i++)
        spans[i].row = i * rows, spans[i].rows = rows, spans[i].context = rows + 5, spans[i].state = i;
    bf16 *dx = upload(x), *y[2];
    float *states[2] = {upload(state), upload(state)};
    for (auto &p : y) cudaMalloc(&p, T * OUT * sizeof(bf16)), cudaMemset(p, 0, T * OUT * sizeof(bf16));
    delta_args<bf16> a = {
        y[0],         dx,        upload(rates), OUT,           IN,        2 * VALUE_HEADS, upload(rate),
        upload(bias), states[0], STATE,         upload(spans), KEY_HEADS, VALUE_HEADS,     DIM,
        DIM,          false};
    auto by_rows = [&] {
        gpu_launch(&g, "rows", delta_kernel<DIM, bf16>, dim3(VALUE_HEADS, count), DIM, 0, a);
    };
    auto by_chunks = [&] { gpu_delta_chunks(&g, a, count); };
    by_rows(), a.y = y[1], a.state = states[1], by_chunks();
    cudaDeviceSynchronize();
    float of_y = worst_difference(widened(download(y[1], T * OUT)), widened(download(y[0], T * OUT)));
    float of_state = worst_difference(download(states[1], state.size()), download(states[0], state.size()));
    double old_time = microseconds(by_rows), new_time = microseconds(by_chunks);
    printf("%d x %d rows: by rows %.1f us, by chunks %.1f us, %.2f times as fast; y off by %.2g, states by "
           "%.2g\n",
           count, rows, old_time, new_time, old_time / new_time, of_y, of_state);
    cudaFree(dx), cudaFree(y[0]), cudaFree(y[1]), cudaFree(states[0]), cudaFree(states[1]);
}

int main()
{
    cudaStreamCreate(&g.stream);
    for (int rows : {8, 16, 24, 32, 33, 64, 128, 512, 2048, 8192}) compare(1, rows);
    compare(4, 512), compare(8, 256), compare(32, 64), compare(64, 32), compare(128, 16), compare(256, 8);
}
