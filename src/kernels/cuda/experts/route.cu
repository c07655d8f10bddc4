/* SPDX-License-Identifier: Apache-2.0
 * route.cu - which experts a row chooses, and with which weights; the sigmoid of a shared expert. The formulas are
 * those of proa_router (kernels/op_experts.h), in f32. */
#include "kernels/cuda/experts/route.h"

/* An element and its index; of equal ones the lower index is better. NaN is never chosen. */
struct choice {
    float value;
    int at; /* -1: none */
};

__device__ static inline choice better(choice a, choice b)
{
    bool second = b.at >= 0 && (a.at < 0 || b.value > a.value || (b.value == a.value && b.at < a.at));
    return second ? b : a;
}

/* The best of v[0, n) that are not NaN, the same in all lanes. */
__device__ static inline choice best_of(const float *v, int n, int lane)
{
    choice best = {0.0f, -1};
    for (int i = lane; i < n; i += LANES)
        if (!isnan(v[i])) best = better(best, {v[i], i});
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        choice other = {__shfl_xor_sync(0xffffffffu, best.value, o), __shfl_xor_sync(0xffffffffu, best.at, o)};
        best = better(best, other);
    }
    return best;
}

/* Takes an element out of the choice. The lane that owns it writes; all see it. */
__device__ static inline void take(float *v, int at, int lane)
{
    if (at >= 0 && at % LANES == lane) v[at] = NAN;
    __syncwarp();
}

/* Experts outside the best groups are taken out. group: [groups] scratch. */
__device__ static void limit_groups(const route_call &a, float *key, float *group, int lane)
{
    int each = a.E / a.r.groups;
    for (int g = lane; g < a.r.groups; g += LANES) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * each; e < (g + 1) * each; e++) {
            if (key[e] > first) second = first, first = key[e];
            else if (key[e] > second) second = key[e];
        }
        group[g] = a.r.group_best > 1 && each > 1 ? first + second : first;
    }
    __syncwarp();
    for (int i = 0; i < a.r.chosen_groups; i++) {
        int g = best_of(group, a.r.groups, lane).at;
        __syncwarp();
        take(group, g, lane); /* NaN: chosen */
    }
    for (int e = lane; e < a.E; e += LANES)
        if (!isnan(group[e / each])) key[e] = NAN;
    __syncwarp();
}

/* p [E] of each lane's experts. */
__device__ static void find_probabilities(const float *x, int E, bool sigmoid, float *p, int lane)
{
    float largest = -INFINITY, sum = 0.0f;
    for (int e = lane; e < E; e += LANES) largest = fmaxf(largest, x[e]);
    largest = gpu_warp_max(largest);
    for (int e = lane; e < E; e += LANES) sum += expf(x[e] - largest);
    sum = gpu_warp_sum(sum);
    for (int e = lane; e < E; e += LANES)
        p[e] = sigmoid ? 1.0f / (1.0f + expf(-x[e])) : expf(x[e] - largest) / sum;
}

/* softmax or sigmoid: p [E] and the keys of the ranking. */
__device__ static void choose_best(const route_call &a, const float *x, float *weights, int32_t *ids,
                                   float *p, float *key, float *group, int lane)
{
    bool sigmoid = a.r.kind == PROA_ROUTER_SIGMOID, by_score = !sigmoid && !a.r.correction && a.r.groups == 0;
    float total = 0.0f, scale = a.r.scale == 0.0f ? 1.0f : a.r.scale;
    find_probabilities(x, a.E, sigmoid, p, lane);
    for (int e = lane; e < a.E; e += LANES) {
        key[e] = (by_score ? x[e] : p[e]) + (a.r.correction ? a.r.correction[e] : 0.0f);
    }
    __syncwarp();
    if (a.r.groups > 0) limit_groups(a, key, group, lane);
    for (int i = 0; i < a.r.chosen; i++) {
        int at = best_of(key, a.E, lane).at;
        __syncwarp();
        take(key, at, lane);
        at = at < 0 ? i : at; /* cannot be: the host has checked that so many can be chosen */
        total += p[at];
        if (lane == 0) ids[i] = at;
    }
    __syncwarp();
    float divisor = a.r.renormalise ? total + 1e-20f : 1.0f;
    for (int i = lane; i < a.r.chosen; i += LANES)
        weights[i] = p[ids[i]] / divisor * scale * (a.r.scales ? a.r.scales[ids[i]] : 1.0f);
}

__device__ static void choose_mixed(const route_call &a, const float *x, float *weights, int32_t *ids,
                                    float *key, int lane)
{
    for (int e = lane; e < a.E; e += LANES) key[e] = x[e];
    __syncwarp();
    for (int i = 0; i < a.r.chosen; i++) {
        choice best = best_of(key, a.E, lane);
        float sum = 0.0f;
        for (int e = lane; e < a.E; e += LANES) { /* NaN: taken. Two scores of 0 are 0 / 0 apart, which is not far */
            bool far = (best.value - key[e]) / fmaxf(fabsf(key[e]), best.value) > 2.0f * a.r.jitter;
            if (!isnan(key[e]) && !far) sum += expf(key[e] - best.value);
        }
        sum = gpu_warp_sum(sum);
        if (lane == 0) ids[i] = best.at, weights[i] = (a.r.scale == 0.0f ? 1.0f : a.r.scale) / sum;
        __syncwarp();
        take(key, best.at, lane);
    }
}

/* A warp for each row. Shared: p, keys and groups, 3 E floats. */
__global__ void __launch_bounds__(LANES) route_kernel(route_call a)
{
    extern __shared__ float shared[];
    float *p = shared, *key = p + a.E, *group = key + a.E;
    int lane = threadIdx.x;
    gpu_wait();
    const float *x = a.scores + blockIdx.x * a.scores_row;
    float *weights = a.weights + blockIdx.x * a.weights_row;
    int32_t *ids = a.ids + (int64_t)blockIdx.x * a.r.chosen;
    bool finite = true;
    for (int e = lane; e < a.E; e += LANES) finite = finite && fabsf(x[e]) < INFINITY;
    if (!__all_sync(0xffffffffu, finite)) {
        for (int i = lane; i < a.r.chosen; i += LANES) ids[i] = i, weights[i] = NAN;
    } else if (a.r.kind == PROA_ROUTER_SPARSEMIXER) choose_mixed(a, x, weights, ids, key, lane);
    else choose_best(a, x, weights, ids, p, key, group, lane);
}

/* ---- few experts: all in registers ---- */

/* A warp for each row. */
template <int COUNT> __global__ void __launch_bounds__(LANES) route_few_kernel(route_call a)
{
    float x[COUNT], correction[COUNT];
    load_correction(correction, a);
    gpu_wait();
    load_scores(x, a, a.scores + blockIdx.x * a.scores_row);
    route_few(a, (int)blockIdx.x, x, correction);
}

static bool is_few(const route_call &a)
{
    return a.r.kind != PROA_ROUTER_SPARSEMIXER && a.r.groups == 0 && a.E <= 256 && a.r.chosen <= LANES;
}

/* false: not such a router. */
static bool launch_few(gpu *g, const route_call &a, unsigned rows)
{
    if (!is_few(a)) return false;
    auto kernel = a.E <= 32    ? route_few_kernel<1>
                  : a.E <= 64  ? route_few_kernel<2>
                  : a.E <= 128 ? route_few_kernel<4>
                               : route_few_kernel<8>;
    gpu_launch(g, "route", kernel, dim3(rows), LANES, 0, a);
    return true;
}

/* ---- one row: its norm and the product that makes the scores in one kernel ---- */

enum { ROUTER_THREADS = 128, ROUTER_WARPS = ROUTER_THREADS / 32, ROUTER_PIECES = 4, ROUTER_WIDTH_MAX = 4096 };

struct router_call {
    const float *x, *norm_w;
    float eps;
    __half *n; /* the normed row */
    float *y;  /* the scores */
    const char *w;
    int64_t row_bytes;
    const float *bias; /* NULL: none */
    int K;
};

/* Eight products of f16 in f32. */
__device__ static inline float dot8(uint4 w, uint4 x, float sum)
{
    const __half2 *a = reinterpret_cast<const __half2 *>(&w), *b = reinterpret_cast<const __half2 *>(&x);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 f = __half22float2(a[i]), h = __half22float2(b[i]);
        sum = fmaf(f.x, h.x, sum), sum = fmaf(f.y, h.y, sum);
    }
    return sum;
}

/* The sum over the block, the same in all threads. A barrier; scratch: [ROUTER_WARPS]. */
__device__ static inline float add_router_threads(float v, float *scratch)
{
    v = gpu_warp_sum(v);
    if (threadIdx.x % LANES == 0) scratch[threadIdx.x / LANES] = v;
    __syncthreads();
    v = 0.0f;
#pragma unroll
    for (int i = 0; i < ROUTER_WARPS; i++) v += scratch[i];
    return v;
}

/* n = rms_norm(x), y = n w^T + bias.
 *
 *   block        of an expert; thread t has the pieces of 8 numbers t, t + 128, ... of the row, up to 4
 *   registers    these of the weights and of the norm's, which are loaded before gpu_wait, and of the row
 *
 * Each block norms the row itself, and writes a part of it. */
__global__ void __launch_bounds__(ROUTER_THREADS) router_kernel(router_call a)
{
    __shared__ float squares[ROUTER_WARPS], dots[ROUTER_WARPS];
    int pieces = a.K / 8;
    uint4 w[ROUTER_PIECES] = {};
    float gain[ROUTER_PIECES][8] = {}, x[ROUTER_PIECES][8] = {}, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROUTER_PIECES; i++) {
        int piece = i * ROUTER_THREADS + threadIdx.x;
        if (piece >= pieces) break;
        w[i] = load_stream(a.w + blockIdx.x * a.row_bytes + piece * 16);
        gpu_load8(gain[i], a.norm_w + piece * 8);
    }
    float bias = a.bias ? a.bias[blockIdx.x] : 0.0f;
    gpu_wait();
#pragma unroll
    for (int i = 0; i < ROUTER_PIECES; i++) {
        int piece = i * ROUTER_THREADS + threadIdx.x;
        if (piece < pieces) gpu_load8(x[i], a.x + piece * 8);
    }
#pragma unroll
    for (int i = 0; i < ROUTER_PIECES; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) sum = fmaf(x[i][j], x[i][j], sum);
    float inverse = 1.0f / sqrtf(add_router_threads(sum, squares) / (float)a.K + a.eps);
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROUTER_PIECES; i++) {
        int piece = i * ROUTER_THREADS + threadIdx.x;
        uint4 n;
#pragma unroll
        for (int j = 0; j < 8; j++) x[i][j] *= inverse * gain[i][j];
        gpu_store8(reinterpret_cast<__half *>(&n), x[i]);
        sum = dot8(w[i], n, sum);
        if (piece < pieces && piece % gridDim.x == blockIdx.x)
            *reinterpret_cast<uint4 *>(a.n + piece * 8) = n;
    }
    sum = add_router_threads(sum, dots);
    if (threadIdx.x == 0) a.y[blockIdx.x] = sum + bias;
}

bool gpu_router_defers(gpu *g, proa_view y, proa_view x, const proa_weight *w, const float *bias)
{
    gpu_pending_router *p = &g->router;
    bool aligned = ((uintptr_t)p->x.data | (uintptr_t)p->n.data | (uintptr_t)p->norm_w) % 16 == 0;
    bool takes = p->norm && !p->product && x.data == p->n.data && x.dtype == PROA_DTYPE_F16 &&
                 w->format == PROA_WFMT_F16 && w->K == p->n.shape[1] && w->K % 8 == 0 &&
                 w->K <= ROUTER_WIDTH_MAX && w->N <= EXPERT_ROW_CHOICE && y.data != p->x.data &&
                 y.data != p->n.data && aligned;
    if (!takes) return false;
    p->product = true, p->y = y, p->w = *w, p->bias = bias;
    return true;
}

static route_call call_of(proa_view weights, int32_t *ids, const float *scores, int64_t scores_row, int E,
                          const proa_router &r)
{
    return {(float *)weights.data, weights.stride[0], ids, scores, scores_row, E, r};
}

/* Runs what waits in one kernel; the choice waits from now on. False: they do not belong together, and nothing was
 * done. */
static bool run_router(gpu *g, const route_call &a, proa_view weights, int64_t rows)
{
    gpu_pending_router p = g->router;
    if (!p.product || rows != 1 || !is_few(a) || a.scores != (const float *)p.y.data || a.E != p.w.N)
        return false;
    router_call r = {(const float *)p.x.data, p.norm_w, p.eps, (__half *)p.n.data, (float *)p.y.data};
    r.w = (const char *)p.w.data, r.row_bytes = gpu_leading_dim(p.w.format, p.w.K) * 2, r.bias = p.bias;
    r.K = (int)p.w.K;
    g->router.norm = g->router.product = false;
    gpu_invalidate(g, p.n), gpu_invalidate(g, p.y);
    gpu_launch(g, "router", router_kernel, dim3((unsigned)a.E), ROUTER_THREADS, 0, r);
    g->choice = {true, weights, a.ids, a.scores, a.E, a.r};
    return true;
}

void gpu_run_choice(gpu *g)
{
    gpu_pending_choice p = g->choice;
    g->choice.waits = false;
    launch_few(g, call_of(p.weights, p.ids, p.scores, 0, p.experts, p.r), 1);
}

bool gpu_take_choice(gpu *g, proa_view weights, const int32_t *ids, route_call *choice)
{
    const gpu_pending_choice &p = g->choice;
    if (!p.waits || ids != p.ids || weights.data != p.weights.data) return false;
    *choice = call_of(p.weights, p.ids, p.scores, 0, p.experts, p.r);
    g->choice.waits = false;
    return true;
}

static void route_op(proa_ctx *c, proa_view weights, int32_t *ids, proa_view scores, const proa_router *r)
{
    gpu *g = gpu_of(c);
    route_call a = call_of(weights, ids, (const float *)scores.data, scores.stride[0], (int)scores.shape[1], *r);
    size_t shared = (size_t)a.E * 3 * sizeof(float); /* at most 48 KB: PROA_EXPERTS_MAX */
    gpu_invalidate(g, weights);
    if (run_router(g, a, weights, scores.shape[0])) return;
    gpu_flush(g);
    if (launch_few(g, a, (unsigned)scores.shape[0])) return;
    gpu_launch(g, "route", route_kernel, dim3((unsigned)scores.shape[0]), LANES, shared, a);
}

/* ---- sigmoid_mul ---- */

enum { THREADS = 256 };

/* step: 1 with a gate for each number of x, 0 with one for each row. */
template <typename T, typename G>
__global__ void __launch_bounds__(THREADS)
    sigmoid_mul_kernel(T *x, int64_t x_row, const G *gate, int64_t gate_row, int step, int d)
{
    gpu_wait();
    T *row = x + blockIdx.x * x_row;
    gate += blockIdx.x * gate_row;
    for (int j = blockIdx.y * THREADS + threadIdx.x; j < d; j += gridDim.y * THREADS) {
        float factor = 1.0f / (1.0f + expf(-gpu_to_f32(gate[(int64_t)step * j])));
        row[j] = gpu_saturate<T>(gpu_to_f32(row[j]) * factor);
    }
}

static void sigmoid_mul(proa_ctx *c, proa_view x, proa_view gate)
{
    gpu *g = gpu_flushed(c, x);
    dim3 grid((unsigned)x.shape[0], (unsigned)((x.shape[1] + 4 * THREADS - 1) / (4 * THREADS)));
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        const int d = (int)x.shape[1], step = gate.shape[1] > 1;
        if (gate.dtype == PROA_DTYPE_F32)
            gpu_launch(g, "sigmoid_mul", sigmoid_mul_kernel<T, float>, grid, THREADS, 0, (T *)x.data,
                       x.stride[0], (const float *)gate.data, gate.stride[0], step, d);
        else
            gpu_launch(g, "sigmoid_mul", sigmoid_mul_kernel<T, T>, grid, THREADS, 0, (T *)x.data, x.stride[0],
                       (const T *)gate.data, gate.stride[0], step, d);
    });
}

void gpu_fill_route(proa_ops *ops)
{
    ops->route = route_op;
    ops->sigmoid_mul = sigmoid_mul;
}
