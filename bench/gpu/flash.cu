/* SPDX-License-Identifier: Apache-2.0
 * flash.cu - experiments on attention over many rows: block shapes of prefill_wgmma.cu and of prefill_mma.cu,
 * every one compared with attention in f32 before it is timed.
 * Build: nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -I../../src -I../../include flash.cu */
#include "../../src/kernels/cuda/attention/prefill_mma.cu"
#include "../../src/kernels/cuda/attention/prefill_wgmma.cu"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
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
float *gpu_partials_workspace(gpu *, size_t)
{
    return NULL; /* no context is split here */
}

/* Sums of uniform numbers: nearly normal, deviation `size`. */
template <typename T> __global__ void fill(T *w, size_t n, float size, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned z = (unsigned)i * 2654435761u + seed;
        float sum = -2.0f;
        for (int k = 0; k < 4; k++) {
            z ^= z >> 15, z *= 2246822519u, z ^= z >> 13, z *= 3266489917u;
            sum += (z >> 8) * (1.0f / 16777216);
        }
        w[i] = gpu_from_f32<T>(sum * 1.7320508f * size);
    }
}

/* A block for a row and a head: all in f32. */
template <typename T> __global__ void exact(attention_task t, float *out)
{
    extern __shared__ float w[];
    __shared__ float room[33], top;
    proa_span s = t.spans[blockIdx.x];
    int h = blockIdx.y, kv = h / t.group;
    for (int i = blockIdx.z; i < s.rows; i += gridDim.z) {
        int begin, end;
        visible_keys(t, s, i, &begin, &end);
        float sum = 0.0f;
        for (int p = begin + threadIdx.x; p < end; p += blockDim.x) {
            const T *key = key_row<T>(t, t.k, s, p, kv),
                    *q = (const T *)t.q + (s.row + i) * t.q_row + h * t.q_head;
            float dot = 0.0f;
            for (int e = 0; e < t.dim; e += 8) {
                float a[8], b[8];
                gpu_load8(a, q + e), gpu_load8(b, key + e);
                for (int k = 0; k < 8; k++) dot += a[k] * b[k];
            }
            w[p - begin] = dot * t.scale;
        }
        __syncthreads();
        if (threadIdx.x == 0) top = -INFINITY;
        __syncthreads();
        float mine = -INFINITY;
        for (int p = threadIdx.x; p < end - begin; p += blockDim.x) mine = fmaxf(mine, w[p]);
        for (int o = 16; o > 0; o >>= 1) mine = fmaxf(mine, __shfl_xor_sync(0xffffffffu, mine, o));
        for (int k = 0; k < 4; k++) {
            if ((int)threadIdx.x == 32 * k) top = fmaxf(top, mine);
            __syncthreads();
        }
        for (int p = threadIdx.x; p < end - begin; p += blockDim.x) w[p] = expf(w[p] - top), sum += w[p];
        sum = gpu_block_sum(sum, room);
        __syncthreads();
        for (int e = threadIdx.x; e < t.dim; e += blockDim.x) {
            float v = 0.0f;
            for (int p = begin; p < end; p++) v += w[p - begin] * gpu_to_f32(key_row<T>(t, t.v, s, p, kv)[e]);
            out[((int64_t)(s.row + i) * t.heads + h) * t.dim + e] = begin < end ? v / sum : 0.0f;
        }
        __syncthreads();
    }
}

struct off {
    float worst;
    unsigned nans;
};
template <typename T> __global__ void compare(const T *y, const float *right, size_t n, off *o)
{
    float worst = 0.0f;
    unsigned nans = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float d = fabsf(gpu_to_f32(y[i]) - right[i]);
        if (isnan(d)) nans++;
        else worst = fmaxf(worst, d);
    }
    atomicMax((int *)&o->worst, __float_as_int(worst));
    if (nans) atomicAdd(&o->nans, nans);
}

/* A batch and what is right for it. */
struct world {
    const char *name;
    attention_task t;
    int spans, rows_max;
    size_t T;
    float *right;
    double flops;
    float size; /* of the values */
};

template <typename X> static X *to_device(const std::vector<X> &v)
{
    X *p;
    cudaMalloc(&p, v.size() * sizeof(X) + 16);
    cudaMemcpy(p, v.data(), v.size() * sizeof(X), cudaMemcpyHostToDevice);
    return p;
}

typedef std::vector<std::pair<int, int>> span_list; /* {rows, context} of each span */

/* The form of a batch. pages false: contexts are the rows, and keys are stored beside the queries. */
struct batch_form {
    int heads, kv_heads, dim;
    bool causal;
    int window;
    bool paged;
    float size; /* of the values */
};

/* Counts rows, pages and operations of the batch. */
static std::vector<proa_span> make_spans(world &w, const span_list &list, const batch_form &f, int *pages)
{
    std::vector<proa_span> spans;
    *pages = 0;
    for (auto &s : list) {
        spans.push_back({(int)w.T, s.first, s.second, *pages});
        w.T += s.first, *pages += (s.second + PAGE - 1) / PAGE, w.rows_max = std::max(w.rows_max, s.first);
        for (int i = 0; i < s.first; i++) {
            int seen = f.causal ? s.second - s.first + i + 1 : s.second;
            if (f.causal && f.window > 0) seen = std::min(seen, f.window);
            w.flops += 4.0 * std::max(seen, 0) * f.heads * f.dim;
        }
    }
    w.spans = list.size();
    return spans;
}

/* Pages in a mixed order. */
static std::vector<int> make_page_table(int pages)
{
    std::vector<int> table;
    for (int i = 0; i < pages; i++) table.push_back(i);
    for (int i = 0; i < pages; i++) std::swap(table[i], table[(i * 7919 + 13) % pages]);
    return table;
}

/* Keys and values in pages. Slots that no span has are NaN: a kernel that reads them is found out. */
template <typename T>
static void fill_pages(attention_task &t, const span_list &list, const std::vector<proa_span> &spans,
                       const std::vector<int> &table, float size)
{
    size_t kept = table.size() * t.kv_heads * PAGE * t.dim;
    T *k, *v;
    cudaMalloc(&k, kept * 2), cudaMalloc(&v, kept * 2);
    fill<<<2048, 256>>>(k, kept, size, 77u), fill<<<2048, 256>>>(v, kept, 1.0f, 99u);
    for (size_t s = 0; s < list.size(); s++)
        for (int h = 0; h < t.kv_heads && list[s].second % PAGE; h++) {
            int page = table[spans[s].table + list[s].second / PAGE], from = list[s].second % PAGE;
            size_t at = (((size_t)page * t.kv_heads + h) * PAGE + from) * t.dim,
                   bytes = (PAGE - from) * t.dim * 2;
            cudaMemset(k + at, 255, bytes), cudaMemset(v + at, 255, bytes);
        }
    t.k = k, t.v = v;
}

/* The exact result, and a line about the batch. */
template <typename T> static void expect(world &w, const span_list &list, const batch_form &f)
{
    size_t bytes = w.T * f.heads * f.dim * 4;
    int longest = 0;
    for (auto &s : list) longest = std::max(longest, s.second);
    cudaMalloc(&w.right, bytes), cudaMemset(w.right, 0, bytes);
    exact<T><<<dim3(w.spans, f.heads, std::min(w.rows_max, 2048)), 128, longest * 4 + 16>>>(w.t, w.right);
    cudaError_t e = cudaDeviceSynchronize();
    printf("\n%s: %zu rows, heads %d/%d, dim %d, %s%s%s%s, %.1f GFLOP%s%s\n", w.name, w.T, f.heads,
           f.kv_heads, f.dim, f.causal ? "causal" : "all keys", f.paged ? ", paged" : "",
           f.window ? ", window" : "", std::is_same<T, __half>::value ? "" : ", bf16", w.flops * 1e-9,
           e ? " ERROR " : "", e ? cudaGetErrorString(e) : "");
}

template <typename T>
static world make(const char *name, span_list list, int heads, int kv_heads, int dim, bool causal, int window,
                  bool paged, float size)
{
    const batch_form f = {heads, kv_heads, dim, causal, window, paged, size};
    world w = {name};
    int pages;
    w.size = paged ? 1.0f : size;
    std::vector<proa_span> spans = make_spans(w, list, f, &pages);
    std::vector<int> table = make_page_table(pages);
    size_t width = (size_t)(paged ? heads : heads + 2 * kv_heads) * dim;
    T *q, *y;
    cudaMalloc(&q, w.T * width * 2), cudaMalloc(&y, w.T * heads * dim * 2);
    cudaMemset(y, 255, w.T * heads * dim * 2);
    fill<<<2048, 256>>>(q, w.T * width, size, 1u);
    attention_task &t = w.t;
    t.y = y, t.y_row = heads * dim, t.y_head = dim, t.q = q, t.q_row = width, t.q_head = dim;
    t.type = sizeof(T) == 2 && std::is_same<T, __half>::value ? PROA_DTYPE_F16 : PROA_DTYPE_BF16;
    t.k = q + heads * dim, t.v = q + (heads + kv_heads) * dim, t.kv_row = paged ? 0 : width, t.rows = w.T;
    t.heads = heads, t.kv_heads = kv_heads, t.dim = dim, t.group = heads / kv_heads;
    t.scale = 1.0f / sqrtf(dim), t.causal = causal, t.window = window;
    if (paged) fill_pages<T>(t, list, spans, table, size);
    t.spans = to_device(spans), t.pages = to_device(table);
    expect<T>(w, list, f);
    return w;
}

template <typename T, typename F>
static void time_it(const char *what, const world &w, int registers, size_t spilled, F f)
{
    static off *o;
    if (!o) cudaMallocManaged(&o, sizeof *o);
    *o = {0.0f, 0};
    size_t n = w.T * w.t.heads * w.t.dim;
    cudaMemset(w.t.y, 255, n * 2);
    cudaDeviceSynchronize();
    f();
    cudaStreamSynchronize(g.stream);
    compare<<<1024, 256, 0, g.stream>>>((const T *)w.t.y, w.right, n, o);
    cudaError_t e = cudaStreamSynchronize(g.stream);
    if (e == cudaSuccess) e = g.failed;
    if (e != cudaSuccess) {
        printf("  %-44s %s\n", what, cudaGetErrorString(e));
        g.failed = cudaSuccess;
        fflush(stdout);
        if (cudaDeviceSynchronize() != cudaSuccess) exit(1);
        return;
    }
    off seen = *o;
    cudaEvent_t a, b;
    float ms[7];
    cudaEventCreate(&a), cudaEventCreate(&b);
    const int TIMES = 6;
    for (int r = 0; r < 7; r++) {
        cudaEventRecord(a, g.stream);
        for (int i = 0; i < TIMES; i++) f();
        cudaEventRecord(b, g.stream), cudaEventSynchronize(b), cudaEventElapsedTime(&ms[r], a, b);
    }
    std::sort(ms, ms + 7);
    double us = ms[3] * 1e3 / TIMES;
    bool good = seen.nans == 0 && seen.worst < (std::is_same<T, __half>::value ? 4e-3f : 2.5e-2f) * w.size;
    printf("  %-44s %8.1f us %6.0f TFLOP/s (best %6.0f)  off %.1e nan %u %s  regs %d spill %zu\n", what, us,
           w.flops / us * 1e-6, w.flops / (ms[0] * 1e3 / TIMES) * 1e-6, seen.worst, seen.nans,
           good ? "ok" : "WRONG", registers, spilled);
    fflush(stdout);
}

/* As far as launches read them. */
static proa_spans spans_of(const world &w)
{
    proa_spans spans = {};
    spans.count = w.spans, spans.rows_max = w.rows_max;
    return spans;
}

template <typename T, int DIM, int KEYS, int GROUPS, int STAGES, int QUEUE, int WAY>
static void flash_row(const world &w)
{
    using S = flash_shape<DIM, KEYS, GROUPS, STAGES, QUEUE, WAY>;
    char what[128];
    cudaFuncAttributes a;
    cudaFuncGetAttributes(&a, prefill_wgmma_kernel<T, S>);
    const proa_spans spans = spans_of(w);
    const flash_plan plan = plan_for<S>(&g, w.t, &spans);
    snprintf(what, sizeof what, "wgmma keys %d groups %d stages %d queue %d%s%s%s", KEYS, GROUPS, STAGES,
             QUEUE, S::QUERIES_IN_REGISTERS ? " held" : "", S::OVERLAP_TILES ? " chained" : "",
             S::PINGPONG ? " turns" : "");
    time_it<T>(what, w, a.numRegs, a.localSizeBytes, [&] {
        if (!flash_launch<T, S>(&g, w.t, plan)) gpu_note(&g, cudaErrorInvalidValue, "map");
    });
}

template <typename T, int DIM, int TALL, int WARPS, bool AHEAD, int BLOCKS>
static void prefill_row(const world &w)
{
    char what[128];
    cudaFuncAttributes a;
    cudaFuncGetAttributes(&a, prefill_mma_kernel<T, T, DIM, TALL, WARPS, AHEAD, BLOCKS, PLAIN>);
    const proa_spans spans = spans_of(w);
    snprintf(what, sizeof what, "mma.sync rows/warp %d warps %d ahead %d blocks %d", 16 * TALL, WARPS, AHEAD,
             BLOCKS);
    time_it<T>(what, w, a.numRegs, a.localSizeBytes,
               [&] { launch_prefill<T, T, DIM, TALL, WARPS, AHEAD, BLOCKS>(&g, w.t, &spans); });
}

static std::vector<std::pair<int, int>> same(int spans, int rows)
{
    return std::vector<std::pair<int, int>>(spans, {rows, rows});
}

/* Ways: 1 queries held in registers, 2 pieces chained, 4 turns. */
static void rows_64(void)
{
    world list[] = {make<__half>("BERT-large 64 x 384", same(64, 384), 16, 16, 64, false, 0, false, 1.0f),
                    make<__half>("8 x 2048, dim 64", same(8, 2048), 16, 16, 64, false, 0, false, 1.0f)};
    for (world &w : list) {
        printf("%s\n", w.name);
        flash_row<__half, 64, 96, 3, 4, 1, 5>(w);
        flash_row<__half, 64, 96, 3, 4, 1, 7>(w);
        flash_row<__half, 64, 128, 3, 3, 1, 4>(w);
        flash_row<__half, 64, 128, 3, 3, 2, 4>(w);
        flash_row<__half, 64, 128, 3, 3, 2, 2>(w);
        flash_row<__half, 64, 128, 3, 3, 2, 6>(w);
        flash_row<__half, 64, 64, 3, 4, 2, 6>(w);
        prefill_row<__half, 64, 2, 4, true, 2>(w);
        prefill_row<__half, 64, 2, 4, false, 2>(w);
    }
}

static void rows_128(void)
{
    world list[] = {make<__half>("Llama-2 prompt", same(1, 2048), 32, 32, 128, true, 0, true, 1.0f),
                    make<__half>("8 x 2048, dim 128", same(8, 2048), 16, 16, 128, false, 0, false, 1.0f),
                    make<__half>("16 x 384, dim 128", same(16, 384), 32, 8, 128, true, 0, true, 1.0f)};
    for (world &w : list) {
        printf("%s\n", w.name);
        flash_row<__half, 128, 128, 2, 2, 1, 0>(w);
        flash_row<__half, 128, 128, 2, 2, 1, 4>(w);
        flash_row<__half, 128, 128, 2, 2, 2, 6>(w);
        flash_row<__half, 128, 64, 3, 4, 2, 4>(w);
        prefill_row<__half, 128, 2, 4, true, 2>(w);
        prefill_row<__half, 128, 1, 4, false, 3>(w);
    }
}

static void rows_256(void)
{
    world list[] = {make<__half>("GPT-J prompt", same(1, 2045), 16, 16, 256, true, 0, true, 1.0f),
                    make<__half>("8 x 2048, dim 256", same(8, 2048), 16, 16, 256, false, 0, false, 1.0f)};
    for (world &w : list) {
        printf("%s\n", w.name);
        flash_row<__half, 256, 64, 2, 2, 1, 0>(w);
        flash_row<__half, 256, 64, 2, 2, 1, 4>(w);
        flash_row<__half, 256, 64, 2, 2, 1, 2>(w);
        prefill_row<__half, 256, 1, 4, false, 2>(w);
    }
}

/* Lengths, contexts, windows and groups as they come; sharp: scores so far apart that a row's reference moves. */
template <typename T> static void rows_odd(void)
{
    std::vector<std::pair<int, int>> ragged = {{3, 3},   {2, 0},     {65, 130},   {17, 64},
                                               {5, 70},  {7, 7},     {200, 1000}, {130, 130},
                                               {64, 64}, {129, 300}, {500, 507}};
    std::vector<std::pair<int, int>> whole = {{3, 3},   {1, 1},   {130, 130}, {64, 64},
                                              {17, 17}, {65, 65}, {400, 400}, {193, 193}};
    for (int causal = 0; causal < 2; causal++)
        for (int sharp = 0; sharp < 2; sharp++) {
            world a = make<T>("ragged", ragged, 8, 2, 64, causal, causal && sharp ? 77 : 0, true,
                              sharp ? 4.0f : 1.0f);
            flash_row<T, 64, 128, 3, 3, 2, 6>(a);
            flash_row<T, 64, 96, 3, 4, 1, 7>(a);
            world b = make<T>("ragged", ragged, 8, 2, 128, causal, causal && sharp ? 300 : 0, true,
                              sharp ? 4.0f : 1.0f);
            flash_row<T, 128, 128, 2, 2, 1, 4>(b);
            world c = make<T>("ragged", ragged, 4, 4, 256, causal, causal && sharp ? 100 : 0, true,
                              sharp ? 3.0f : 1.0f);
            flash_row<T, 256, 64, 2, 2, 1, 0>(c);
            world d = make<T>("rows", whole, 6, 3, 64, causal, 0, false, sharp ? 4.0f : 1.0f);
            flash_row<T, 64, 128, 3, 3, 2, 6>(d);
            flash_row<T, 64, 96, 3, 4, 1, 7>(d);
        }
}

int main()
{
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking);
    g.sms = p.multiProcessorCount;
    cudaMalloc(&g.counters, 64), cudaMemset(g.counters, 0, 64);
    printf("%s, %d SMs\n", p.name, g.sms);
    rows_64(), rows_128(), rows_256();
    rows_odd<__half>(), rows_odd<__nv_bfloat16>();
}
