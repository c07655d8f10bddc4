/* SPDX-License-Identifier: Apache-2.0
 * route.cu - which experts a row chooses, and with which weights; the sigmoid of a shared expert. The formulas are
 * those of proa_router (kernels/ops.h), in f32. */
#include "kernels/cuda/experts/experts.h"

enum { LANES = 32 };

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

struct route_call {
    float *weights;
    int64_t weights_row;
    int32_t *ids;
    const float *scores;
    int64_t scores_row;
    int E;
    proa_router r;
};

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
    for (int i = lane; i < a.r.chosen; i += LANES) weights[i] = p[ids[i]] / divisor * scale;
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

/* Larger for larger numbers, 0 for NaN. */
__device__ static inline unsigned rank_of(float x)
{
    unsigned bits = __float_as_uint(x + 0.0f); /* -0 is 0 */
    return isnan(x) ? 0 : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* p of each lane's experts, as find_probabilities. */
template <int COUNT>
__device__ static inline void find_few(float (&p)[COUNT], const float (&x)[COUNT], int E, bool sigmoid)
{
    float largest = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) largest = fmaxf(largest, x[i]);
    largest = gpu_warp_max(largest);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        p[i] = sigmoid ? 1.0f / (1.0f + expf(-x[i])) : expf(x[i] - largest);
        sum += 32 * i + (int)threadIdx.x % LANES < E ? p[i] : 0.0f;
    }
    sum = gpu_warp_sum(sum);
#pragma unroll
    for (int i = 0; i < COUNT && !sigmoid; i++) p[i] /= sum;
}

/* What was chosen in the round of this lane's number, and the sum of all that was chosen. */
struct few_chosen {
    int id;
    float probability, total;
};

/* Takes the best out, round by round. rank 0: cannot be chosen. */
template <int COUNT>
__device__ static inline few_chosen choose_few(unsigned (&rank)[COUNT], const float (&p)[COUNT], int rounds)
{
    int lane = threadIdx.x % LANES;
    few_chosen out = {0, 0.0f, 0.0f};
    for (int j = 0; j < rounds; j++) {
        unsigned best = 0, most;
        int at = 0; /* the register of this lane's best: the first of equal ones */
        float own = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (rank[i] > best) best = rank[i], at = i, own = p[i];
        most = __reduce_max_sync(0xffffffffu, best);
        int chosen = __reduce_min_sync(0xffffffffu, best == most ? 32 * at + lane : 0x7fffffff);
        float probability = __shfl_sync(0xffffffffu, own, chosen % 32);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (32 * i + lane == chosen) rank[i] = 0;
        out.total += probability;
        if (lane == j)
            out.id = most ? chosen : j, out.probability = probability; /* most 0: all corrections are NaN */
    }
    return out;
}

/* softmax or sigmoid without groups for up to 32 COUNT experts, chosen <= 32, by one warp: expert e = 32 i + lane in
 * register i of x and correction. The formulas and the order of each sum are those of choose_best. */
template <int COUNT>
__device__ static void route_few(const route_call &a, int row, const float (&x)[COUNT],
                                 const float (&correction)[COUNT])
{
    int lane = threadIdx.x % LANES;
    bool sigmoid = a.r.kind == PROA_ROUTER_SIGMOID, by_score = !sigmoid && !a.r.correction, finite = true;
    float p[COUNT];
    unsigned rank[COUNT];
    find_few(p, x, a.E, sigmoid);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        bool is = 32 * i + lane < a.E;
        finite = finite && (fabsf(x[i]) < INFINITY || !is);
        rank[i] = is ? rank_of((by_score ? x[i] : p[i]) + correction[i]) : 0;
    }
    finite = __all_sync(0xffffffffu, finite);
    few_chosen chosen = choose_few(rank, p, a.r.chosen);
    float divisor = a.r.renormalise ? chosen.total + 1e-20f : 1.0f, scale = a.r.scale == 0.0f ? 1.0f : a.r.scale;
    if (lane >= a.r.chosen) return;
    a.ids[(int64_t)row * a.r.chosen + lane] = finite ? chosen.id : lane;
    a.weights[row * a.weights_row + lane] = finite ? chosen.probability / divisor * scale : NAN;
}

template <int COUNT> __device__ static inline void load_correction(float (&to)[COUNT], const route_call &a)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        int e = 32 * i + threadIdx.x % LANES;
        to[i] = a.r.correction && e < a.E ? a.r.correction[e] : 0.0f;
    }
}

template <int COUNT>
__device__ static inline void load_scores(float (&to)[COUNT], const route_call &a, const float *scores)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        int e = 32 * i + threadIdx.x % LANES;
        to[i] = e < a.E ? scores[e] : -INFINITY;
    }
}

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

static void route_op(proa_ctx *c, proa_view weights, int32_t *ids, proa_view scores, const proa_router *r)
{
    gpu *g = gpu_flushed(c, weights);
    route_call a = {(float *)weights.data, weights.stride[0],    ids, (const float *)scores.data,
                    scores.stride[0],      (int)scores.shape[1], *r};
    size_t shared = (size_t)a.E * 3 * sizeof(float); /* at most 48 KB: PROA_EXPERTS_MAX */
    if (launch_few(g, a, (unsigned)scores.shape[0])) return;
    gpu_launch(g, "route", route_kernel, dim3((unsigned)scores.shape[0]), LANES, shared, a);
}

/* ---- sigmoid_mul ---- */

enum { THREADS = 256 };

template <typename T>
__global__ void __launch_bounds__(THREADS)
    sigmoid_mul_kernel(T *x, int64_t x_row, const float *gate, int64_t gate_row, int d)
{
    gpu_wait();
    float factor = 1.0f / (1.0f + expf(-gate[blockIdx.x * gate_row]));
    T *row = x + blockIdx.x * x_row;
    for (int j = blockIdx.y * THREADS + threadIdx.x; j < d; j += gridDim.y * THREADS)
        row[j] = gpu_saturate<T>(gpu_to_f32(row[j]) * factor);
}

static void sigmoid_mul(proa_ctx *c, proa_view x, proa_view gate)
{
    gpu *g = gpu_flushed(c, x);
    dim3 grid((unsigned)x.shape[0], (unsigned)((x.shape[1] + 4 * THREADS - 1) / (4 * THREADS)));
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        gpu_launch(g, "sigmoid_mul", sigmoid_mul_kernel<T>, grid, THREADS, 0, (T *)x.data, x.stride[0],
                   (const float *)gate.data, gate.stride[0], (int)x.shape[1]);
    });
}

void gpu_fill_route(proa_ops *ops)
{
    ops->route = route_op;
    ops->sigmoid_mul = sigmoid_mul;
}
