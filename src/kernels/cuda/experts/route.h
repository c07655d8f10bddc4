/* SPDX-License-Identifier: Apache-2.0
 * route.h - the choice among up to 256 experts by one warp, all in registers: expert e = 32 i + lane is in register i.
 * The formulas and the order of each sum are those of route.cu's choose_best. */
#ifndef PROA_KERNELS_CUDA_EXPERTS_ROUTE_H
#define PROA_KERNELS_CUDA_EXPERTS_ROUTE_H

#include "kernels/cuda/experts/experts.h"

enum { LANES = 32 };

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

/* What orders the experts (0: cannot be chosen), by softmax or sigmoid without groups, and p where that or the caller
 * (wanted) needs it. Returns whether all scores are finite. */
template <int COUNT>
__device__ static inline bool rank_few(unsigned (&rank)[COUNT], float (&p)[COUNT], const route_call &a,
                                       const float (&x)[COUNT], const float (&correction)[COUNT], bool wanted)
{
    int lane = threadIdx.x % LANES;
    bool sigmoid = a.r.kind == PROA_ROUTER_SIGMOID, by_score = !sigmoid && !a.r.correction, finite = true;
    if (wanted || !by_score) find_few(p, x, a.E, sigmoid);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        bool is = 32 * i + lane < a.E;
        finite = finite && (fabsf(x[i]) < INFINITY || !is);
        rank[i] = is ? rank_of((by_score ? x[i] : p[i]) + correction[i]) : 0;
    }
    return __all_sync(0xffffffffu, finite);
}

/* Takes the best expert out: its number, the lower of equal ones; `none` if no one is left. */
template <int COUNT> __device__ static inline int take_best(unsigned (&rank)[COUNT], int none)
{
    int lane = threadIdx.x % LANES, at = 0; /* the register of this lane's best: the first of equal ones */
    unsigned best = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (rank[i] > best) best = rank[i], at = i;
    unsigned most = __reduce_max_sync(0xffffffffu, best);
    int chosen = __reduce_min_sync(0xffffffffu, best == most ? 32 * at + lane : 0x7fffffff);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (32 * i + lane == chosen) rank[i] = 0;
    return most ? chosen : none; /* most 0: all corrections are NaN */
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
        int chosen = take_best(rank, j);
        float own = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (32 * i + lane == chosen) own = p[i];
        float probability = __shfl_sync(0xffffffffu, own, chosen % 32);
        out.total += probability;
        if (lane == j) out.id = chosen, out.probability = probability;
    }
    return out;
}

/* ids and weights of a row; chosen <= 32. */
template <int COUNT>
__device__ static void route_few(const route_call &a, int row, const float (&x)[COUNT],
                                 const float (&correction)[COUNT])
{
    int lane = threadIdx.x % LANES;
    float p[COUNT];
    unsigned rank[COUNT];
    bool finite = rank_few(rank, p, a, x, correction, true);
    few_chosen chosen = choose_few(rank, p, a.r.chosen);
    float divisor = a.r.renormalise ? chosen.total + 1e-20f : 1.0f, scale = a.r.scale == 0.0f ? 1.0f : a.r.scale;
    if (lane >= a.r.chosen) return;
    a.ids[(int64_t)row * a.r.chosen + lane] = finite ? chosen.id : lane;
    if (a.r.scales && finite) scale *= a.r.scales[chosen.id];
    a.weights[row * a.weights_row + lane] = finite ? chosen.probability / divisor * scale : NAN;
}

/* The expert that route_few chooses in this round. Each round finds the largest rank below the last one's, which is
 * half of what it takes to take an expert out. Where ranks are equal that skips some, and they are taken out. */
template <int COUNT>
__device__ static inline int expert_of_round(const route_call &a, const float (&x)[COUNT],
                                             const float (&correction)[COUNT], int round)
{
    float p[COUNT] = {};
    unsigned rank[COUNT], most = 0xffffffffu;
    bool finite = rank_few(rank, p, a, x, correction, false);
#pragma unroll 1
    for (int j = 0; j <= round; j++) {
        unsigned best = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) best = max(best, rank[i] < most ? rank[i] : 0);
        most = __reduce_max_sync(0xffffffffu, best);
    }
    int chosen = 0x7fffffff, count = 0; /* count: of those as good or better */
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        count += rank[i] >= most;
        if (rank[i] == most) chosen = 32 * i + (int)threadIdx.x % LANES;
    }
    count = __reduce_add_sync(0xffffffffu, count);
    chosen = __reduce_min_sync(0xffffffffu, chosen);
    if (count != round + 1 || most == 0) { /* equal ones, or none is left */
        chosen = round;
#pragma unroll 1
        for (int j = 0; j <= round; j++) chosen = take_best(rank, j);
    }
    return finite ? chosen : round;
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

#endif
