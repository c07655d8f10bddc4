/* SPDX-License-Identifier: Apache-2.0
 * scan.cu - Mamba-2's recurrence by rows (state.cu) and by chunks (scan_chunk.cu): the time of both for prompts of some
 * lengths and the heads of some models, and how far the outputs and states of one are from the other's. A number as
 * argument stands in for the number of SMs, from which the number of segments follows; rows are not timed then. A
 * second one is the model.
 * Build: nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -I../../src -I../../include scan.cu */
#include "../../src/kernels/cuda/state.cu"
#include "../../src/kernels/cuda/scan_chunk.cu"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static gpu g;
static bool time_rows = true;
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
bool gpu_delta_takes_chunks(const proa_delta *, proa_view, proa_view)
{
    return false;
}
void gpu_delta_chunks(gpu *, const delta_args<bf16> &, int64_t)
{
}
float *gpu_partials_workspace(gpu *g, size_t bytes)
{
    if (bytes > g->partials_bytes) {
        cudaFree(g->partials), cudaMalloc(&g->partials, bytes);
        g->partials_bytes = bytes;
    }
    return g->partials;
}

struct scan_heads {
    const char *model;
    int groups, heads, dk, dv;
};
static const scan_heads models[] = {{"Granite-4.0-H-small", 1, 128, 128, 64},
                                    {"Nemotron-H-8B", 8, 128, 128, 64},
                                    {"Falcon-H1-34B", 2, 32, 256, 128},
                                    {"Falcon-H1-1.5B", 1, 48, 256, 64}};

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

static std::vector<float> download(const float *p, size_t n)
{
    std::vector<float> v(n);
    cudaMemcpy(v.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost);
    return v;
}

static std::vector<float> download(const bf16 *p, size_t n)
{
    std::vector<bf16> v(n);
    std::vector<float> wide(n);
    cudaMemcpy(v.data(), p, n * sizeof(bf16), cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < n; i++) wide[i] = __bfloat162float(v[i]);
    return wide;
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

/* Not a number counts as infinitely far. */
static float worst_difference(const std::vector<float> &x, const std::vector<float> &y)
{
    float worst = 0, largest = 0;
    for (size_t i = 0; i < x.size(); i++) {
        const float d = fabsf(x[i] - y[i]);
        worst = d <= worst ? worst : d == d ? d : INFINITY, largest = std::max(largest, fabsf(y[i]));
    }
    return worst / largest;
}

struct scan_memory {
    std::vector<float> state;
    bf16 *x, *y[2], *rates;
    float *rate, *bias, *skip, *states[2];
    proa_span *spans;
};

/* Steps of 0.002 to 0.13 and decays of A from 1 to 16, as models have them when their training begins. */
static scan_memory make_memory(const scan_heads &m, const std::vector<proa_span> &spans, size_t T)
{
    uint64_t seed = 7;
    scan_memory o;
    std::vector<bf16> x(T * (m.heads * m.dv + 2 * m.groups * m.dk)), dt(T * m.heads);
    std::vector<float> rate(m.heads), bias(m.heads), skip(m.heads, 1.0f);
    o.state.resize(spans.size() * m.heads * m.dk * m.dv);
    for (auto &v : x) v = __float2bfloat16(random_float(seed));
    for (auto &v : dt) v = __float2bfloat16(random_float(seed));
    for (auto &v : rate) v = logf(8.5f + 7.5f * random_float(seed));
    for (auto &v : bias) v = random_float(seed) - 4;
    for (auto &v : o.state) v = random_float(seed);
    o.x = upload(x), o.rates = upload(dt), o.rate = upload(rate), o.bias = upload(bias), o.skip = upload(skip);
    o.spans = upload(spans);
    for (auto &p : o.states) p = upload(o.state);
    for (auto &p : o.y) cudaMalloc(&p, T * m.heads * m.dv * sizeof(bf16));
    return o;
}

static void free_memory(scan_memory &o)
{
    void *all[] = {o.x, o.y[0], o.y[1], o.rates, o.rate, o.bias, o.skip, o.states[0], o.states[1], o.spans};
    for (void *p : all) cudaFree(p);
}

/* Prompts of these lengths, which go on from a state. */
static void compare(const scan_heads &m, const std::vector<int> &lengths, const char *what)
{
    std::vector<proa_span> list(lengths.size());
    int T = 0, longest = 0;
    for (size_t i = 0; i < lengths.size(); i++) {
        list[i].row = T, list[i].rows = lengths[i], list[i].context = lengths[i] + 5, list[i].state = (int)i;
        T += lengths[i], longest = std::max(longest, lengths[i]);
    }
    scan_memory o = make_memory(m, list, T);
    const size_t out = (size_t)T * m.heads * m.dv;
    proa_spans spans = {};
    spans.span = o.spans, spans.count = (int64_t)list.size(), spans.rows_max = longest;
    const int64_t values = m.heads * m.dv, width = values + 2 * m.groups * m.dk;
    scan_args<bf16> a = {o.y[0], o.x, o.x + values, o.rates, values, width, width, m.heads};
    a.p = {m.groups, m.heads, m.dk, m.dv, o.rate, o.bias, o.skip, 0.0f, 1e30f};
    a.state = o.states[0], a.stride = (int64_t)m.heads * m.dk * m.dv, a.spans = o.spans;
    auto by_rows = [&] {
        gpu_launch(&g, "rows", scan_kernel_of<bf16>(m.dk), dim3(m.heads, (unsigned)list.size()), m.dv, 0, a);
    };
    auto by_chunks = [&] { gpu_scan_chunks(&g, a, &spans); };
    by_rows(), a.y = o.y[1], a.state = o.states[1], by_chunks();
    cudaDeviceSynchronize();
    float of_y = worst_difference(download(o.y[1], out), download(o.y[0], out));
    float of_state = worst_difference(download(o.states[1], o.state.size()),
                                      download(o.states[0], o.state.size()));
    double new_time = microseconds(by_chunks), old_time = time_rows ? microseconds(by_rows) : 0;
    const int64_t blocks = m.heads * ((m.dv + STATE_COLUMNS - 1) / STATE_COLUMNS);
    printf("%s,%s,%d,%.1f,%.1f,%.2f,%.1e,%.1e\n", m.model, what,
           m.dk == 128 ? count_segments<128>(&g, &spans, blocks) : count_segments<256>(&g, &spans, blocks),
           old_time, new_time, old_time / new_time, of_y, of_state);
    fflush(stdout), free_memory(o);
}

int main(int argc, char **argv)
{
    cudaStreamCreate(&g.stream);
    cudaDeviceGetAttribute(&g.sms, cudaDevAttrMultiProcessorCount, 0);
    if (argc > 1) g.sms = atoi(argv[1]), time_rows = false;
    puts("model,prompts x rows,segments,by_rows_us,by_chunks_us,times,y_off,states_off");
    for (const scan_heads &m : models) {
        if (argc > 2 && strcmp(argv[2], m.model) != 0) continue;
        char what[32];
        std::vector<int> mixed;
        for (int rows : {8, 16, 32, 64, 128, 512, 2048, 8192})
            snprintf(what, sizeof what, "1 x %d", rows), compare(m, {rows}, what);
        for (int rows : {8, 32, 64})
            snprintf(what, sizeof what, "32 x %d", rows), compare(m, std::vector<int>(32, rows), what);
        for (int i = 0; i < 32; i++) mixed.push_back(16 + i * 37 % 480);
        compare(m, mixed, "32 x 16 to 495");
    }
}
