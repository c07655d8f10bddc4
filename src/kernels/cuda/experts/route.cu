/* SPDX-License-Identifier: Apache-2.0
 * route.cu - which experts a row chooses, and with which weights; the sigmoid of a shared expert. The formulas are
 * those of proa_router (kernels/ops.h), in f32. */
#include "kernels/cuda/experts/experts.h"

#include <cooperative_groups.h>

namespace groups = cooperative_groups;

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

/* ---- one row: its norm, the product that makes the scores, and the choice in one kernel ---- */

enum {
    ROUTER_BLOCKS = 8,
    ROUTER_THREADS = 512,
    ROUTER_WARPS = 16,
    ROUTER_PIECES = 8,
    ROUTER_WIDTH_MAX = 4096,
    ROUTER_EXPERTS_MAX = ROUTER_BLOCKS * ROUTER_WARPS
};

struct router_call {
    route_call route; /* scores are not read */
    const float *x, *norm_w;
    float eps;
    __half *n; /* the normed row, written for the experts */
    float *y;  /* the scores */
    const char *w;
    int64_t row_bytes;
    const float *bias;  /* NULL: none */
    int K, each, parts; /* experts of a block, and warps that share one's K */
};

/* Where a warp's share of K is, in pieces of 8 numbers. */
struct router_share {
    int expert, begin, end; /* of the block's */
    __device__ router_share(const router_call &a)
    {
        int warp = threadIdx.x / LANES, part = warp % a.parts, pieces = a.K / 8,
            size = (pieces + a.parts - 1) / a.parts;
        expert = warp / a.parts, begin = part * size, end = min(pieces, begin + size);
        if (expert >= a.each || (int)blockIdx.x * a.each + expert >= a.route.E) end = begin;
    }
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

enum { ROUTER_EACH = ROUTER_WIDTH_MAX / ROUTER_THREADS }; /* numbers of the row that a thread has */

/* Norms the row into shared memory; each block writes a part of it to n. norm_w: this thread's weights. */
__device__ static inline void norm_router_row(const router_call &a, __half *row, float *scratch,
                                              const float (&norm_w)[ROUTER_EACH])
{
    float x[ROUTER_EACH], total = 0.0f;
#pragma unroll
    for (int i = 0; i < ROUTER_EACH; i++) {
        int k = i * ROUTER_THREADS + threadIdx.x;
        x[i] = k < a.K ? a.x[k] : 0.0f;
        total = fmaf(x[i], x[i], total);
    }
    float inverse = 1.0f / sqrtf(gpu_block_sum(total, scratch) / (float)a.K + a.eps);
#pragma unroll
    for (int i = 0; i < ROUTER_EACH; i++) {
        int k = i * ROUTER_THREADS + threadIdx.x;
        if (k >= a.K) break;
        row[k] = gpu_saturate<__half>(x[i] * inverse * norm_w[i]);
        if (blockIdx.x == i % ROUTER_BLOCKS) a.n[k] = row[k];
    }
    __syncthreads();
}

/* The sum of this warp's share of an expert. */
__device__ static inline float multiply_share(const router_share &share, const uint4 (&w)[ROUTER_PIECES],
                                              const __half *row)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROUTER_PIECES; i++) {
        int piece = share.begin + i * LANES + threadIdx.x % LANES;
        if (piece < share.end) sum = dot8(w[i], *reinterpret_cast<const uint4 *>(row + piece * 8), sum);
    }
    return gpu_warp_sum(sum);
}

/* n = rms_norm(x), y = n w^T + bias, and the choice among these scores.
 *
 *   cluster      8 blocks share the experts; a block's 16 warps share its experts, several an expert if there are few
 *   registers    the share of w of a lane, up to 8 pieces of 16 bytes, loaded before gpu_wait
 *   shared       the normed row, sums of warps; of the first block the scores, which the others write there
 *
 * Each block norms the row itself. The first warp of the first block chooses. */
template <int COUNT> __global__ void __launch_bounds__(ROUTER_THREADS) router_kernel(router_call a)
{
#if __CUDA_ARCH__ >= 900
    __shared__ __align__(16) __half row[ROUTER_WIDTH_MAX];
    __shared__ float scratch[33], sums[ROUTER_WARPS], scores[ROUTER_EXPERTS_MAX];
    const router_share share(a);
    groups::cluster_group cluster = groups::this_cluster();
    int lane = threadIdx.x % LANES, first = (int)blockIdx.x * a.each, e = first + (int)threadIdx.x;
    uint4 w[ROUTER_PIECES];
    float norm_w[ROUTER_EACH], correction[COUNT], mine[COUNT];
#pragma unroll
    for (int i = 0; i < ROUTER_PIECES; i++) {
        int piece = share.begin + i * LANES + lane;
        w[i] = make_uint4(0, 0, 0, 0);
        if (piece < share.end) w[i] = load_stream(a.w + (first + share.expert) * a.row_bytes + piece * 16);
    }
#pragma unroll
    for (int i = 0; i < ROUTER_EACH; i++) {
        int k = i * ROUTER_THREADS + threadIdx.x;
        norm_w[i] = k < a.K ? a.norm_w[k] : 0.0f;
    }
    load_correction(correction, a.route);
    cluster.sync(); /* the first block has begun: its memory may be written */
    gpu_wait();
    norm_router_row(a, row, scratch, norm_w);
    float sum = multiply_share(share, w, row);
    if (lane == 0) sums[threadIdx.x / LANES] = sum;
    __syncthreads();
    if ((int)threadIdx.x < a.each && e < a.route.E) {
        float score = a.bias ? a.bias[e] : 0.0f;
        for (int i = 0; i < a.parts; i++) score += sums[threadIdx.x * a.parts + i];
        a.y[e] = score;
        *cluster.map_shared_rank(scores + e, 0) = score;
    }
    cluster.sync();
    if (blockIdx.x > 0 || threadIdx.x >= LANES) return;
    load_scores(mine, a.route, scores);
    route_few(a.route, 0, mine, correction);
#endif
}

bool gpu_router_defers(gpu *g, proa_view y, proa_view x, const proa_weight *w, const float *bias)
{
    gpu_pending_router *p = &g->router;
    int64_t each = (w->N + ROUTER_BLOCKS - 1) / ROUTER_BLOCKS, parts = ROUTER_WARPS / (each > 0 ? each : 1);
    bool takes = p->norm && !p->product && x.data == p->n.data && x.dtype == PROA_DTYPE_F16 &&
                 w->format == PROA_WFMT_F16 && w->K == p->n.shape[1] && w->K % 8 == 0 &&
                 w->K <= ROUTER_WIDTH_MAX && w->N <= ROUTER_EXPERTS_MAX && y.data != p->x.data &&
                 y.data != p->n.data && (w->K / 8 + parts - 1) / parts <= ROUTER_PIECES * LANES;
    if (!takes) return false;
    p->product = true, p->y = y, p->w = *w, p->bias = bias;
    return true;
}

/* Runs what waits and this choice in one kernel. False: they do not belong together, and nothing was done. */
static bool run_router(gpu *g, const route_call &a, int64_t rows)
{
    gpu_pending_router p = g->router;
    if (!p.product || rows != 1 || !is_few(a) || a.scores != (const float *)p.y.data || a.E != p.w.N)
        return false;
    router_call r = {a, (const float *)p.x.data, p.norm_w, p.eps, (__half *)p.n.data, (float *)p.y.data};
    r.w = (const char *)p.w.data, r.row_bytes = gpu_leading_dim(p.w.format, p.w.K) * 2, r.bias = p.bias;
    r.K = (int)p.w.K, r.each = (a.E + ROUTER_BLOCKS - 1) / ROUTER_BLOCKS, r.parts = ROUTER_WARPS / r.each;
    auto kernel = a.E <= 32 ? router_kernel<1> : a.E <= 64 ? router_kernel<2> : router_kernel<4>;
    g->router.norm = g->router.product = false;
    gpu_invalidate(g, p.n), gpu_invalidate(g, p.y);
    gpu_launch_clusters(g, "router", kernel, dim3(ROUTER_BLOCKS), ROUTER_BLOCKS, ROUTER_THREADS, 0, r);
    return true;
}

static void route_op(proa_ctx *c, proa_view weights, int32_t *ids, proa_view scores, const proa_router *r)
{
    gpu *g = gpu_of(c);
    route_call a = {(float *)weights.data, weights.stride[0],    ids, (const float *)scores.data,
                    scores.stride[0],      (int)scores.shape[1], *r};
    size_t shared = (size_t)a.E * 3 * sizeof(float); /* at most 48 KB: PROA_EXPERTS_MAX */
    gpu_invalidate(g, weights);
    if (run_router(g, a, scores.shape[0])) return;
    gpu_flush(g);
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
