/* SPDX-License-Identifier: Apache-2.0
 * sample.cu - a token from a row of logits: the likeliest one with many blocks a row, a random draw with one
 * block a row.
 *
 * A draw sorts no row. A cut by rank or by mass is found by histograms over the bits of the values, as on the
 * host (engine/decode/filter.c). Values, weights and their exponential are equal to the host's to the bit;
 * masses are summed as whole numbers of 2^-42, so the order of threads does not change a token. */
#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "kernels/process_logits.h"
}

enum {
    ARGMAX_THREADS = 256,
    DRAW_THREADS = 1024,
    WARPS = 32,
    SLICES_MAX = 128,
    SLICE_MIN = 2048,
    ARGMAX_EACH = 8, /* values that a thread loads at once */
    BINS = 2048
};

/* ---- the likeliest, and the sum of exponentials ---- */

/* Of some values of a row: the largest, its first index, and the sum of exp(x - largest). */
struct argmax_state {
    float value, sum;
    int at;
};

/* COUNT values, whose ids follow each other; -INFINITY: there is none. */
template <int COUNT>
__device__ static inline void accumulate(argmax_state &b, const float (&v)[COUNT], int at)
{
    float most = v[0];
#pragma unroll
    for (int i = 1; i < COUNT; i++) most = fmaxf(most, v[i]);
    if (most > b.value) {
        b.sum *= expf(b.value - most), b.value = most;
#pragma unroll
        for (int i = COUNT - 1; i >= 0; i--) b.at = v[i] == most ? at + i : b.at;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) /* NaN comes to the sum and stays */
        b.sum += v[i] == -INFINITY ? 0.0f : v[i] == b.value ? 1.0f : expf(v[i] - b.value);
}

/* The values from j on, and -INFINITY behind `end`. */
template <int COUNT>
__device__ static inline void load_values(float (&v)[COUNT], const float *x, int j, int end, bool aligned)
{
    if (aligned && j + COUNT <= end) {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++) {
            float4 four = reinterpret_cast<const float4 *>(x + j)[i];
            v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) v[i] = j + i < end ? x[j + i] : -INFINITY;
}

/* The result does not depend on the order of the two. */
__device__ static argmax_state merge_pair(argmax_state a, argmax_state b)
{
    bool first = a.value > b.value || (a.value == b.value && a.at < b.at);
    argmax_state high = first ? a : b, low = first ? b : a;
    float share = low.value == -INFINITY    ? 0.0f
                  : low.value == high.value ? 1.0f
                                            : expf(low.value - high.value);
    return {high.value, high.sum + low.sum * share, high.at};
}

__device__ static argmax_state warp_merge(argmax_state b)
{
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        argmax_state other = {__shfl_xor_sync(0xffffffffu, b.value, o),
                              __shfl_xor_sync(0xffffffffu, b.sum, o), __shfl_xor_sync(0xffffffffu, b.at, o)};
        b = merge_pair(b, other);
    }
    return b;
}

__device__ static const argmax_state EMPTY_ARGMAX = {-INFINITY, 0.0f, 0x7fffffff};

/* Likeliest id and log-sum-exp of each row: log(sum of exp x). Block (slice, row); a row has up to SLICES_MAX
 * slices, and the last block of a row merges their results. Shared memory: 8 states. A NaN makes
 * the sum NaN. */
__global__ void __launch_bounds__(ARGMAX_THREADS)
    argmax_lse_kernel(int32_t *ids, float *sums, const float *x, int64_t stride, int d, int slice,
                      argmax_state *found, unsigned *counters)
{
    __shared__ argmax_state scratch[ARGMAX_THREADS / 32];
    __shared__ bool last;
    int row = blockIdx.y, lane = threadIdx.x & 31, end = min(d, (int)(blockIdx.x + 1) * slice);
    const float *values = x + row * stride;
    bool aligned = (uintptr_t)values % 16 == 0; /* slices begin at multiples of 32 */
    argmax_state b = EMPTY_ARGMAX;
    gpu_wait();
    for (int j = blockIdx.x * slice + threadIdx.x * ARGMAX_EACH; j < end; j += ARGMAX_THREADS * ARGMAX_EACH) {
        float v[ARGMAX_EACH];
        load_values(v, values, j, end, aligned);
        accumulate(b, v, j);
    }
    b = warp_merge(b);
    if (lane == 0) scratch[threadIdx.x / 32] = b;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    b = warp_merge(lane < ARGMAX_THREADS / 32 ? scratch[lane] : EMPTY_ARGMAX);
    if (gridDim.x > 1) {
        if (lane == 0) {
            found[row * gridDim.x + blockIdx.x] = b;
            __threadfence();
            last = atomicAdd(&counters[row], 1u) == gridDim.x - 1;
        }
        __syncwarp();
        if (!last) return;
        __threadfence();
        const volatile argmax_state *all = found + row * gridDim.x;
        b = EMPTY_ARGMAX;
        for (int i = lane; i < (int)gridDim.x; i += 32)
            b = merge_pair(b, {all[i].value, all[i].sum, all[i].at});
        b = warp_merge(b);
        if (lane == 0) counters[row] = 0;
    }
    if (lane != 0) return;
    if (ids) ids[row] = b.at < d ? b.at : 0;
    sums[row] = b.value + logf(b.sum);
}

static void argmax_rows(gpu *g, int32_t *ids, float *sums, proa_view x)
{
    int rows = (int)x.shape[0], d = (int)x.shape[1];
    int slices = (4 * g->sms + rows - 1) / rows, most = (d + SLICE_MIN - 1) / SLICE_MIN;
    if (slices > most) slices = most;
    if (slices > SLICES_MAX) slices = SLICES_MAX;
    int slice = ((d + slices - 1) / slices + 31) / 32 * 32;
    slices = (d + slice - 1) / slice;
    argmax_state *found = slices > 1 ? (argmax_state *)gpu_partials_workspace(g, (size_t)rows * slices *
                                                                                     sizeof(argmax_state))
                                     : NULL;
    gpu_launch(g, "argmax", argmax_lse_kernel, dim3((unsigned)slices, (unsigned)rows), ARGMAX_THREADS, 0, ids,
               sums, (const float *)x.data, x.stride[0], d, slice, found, g->counters);
}

/* ---- one value of a row ---- */

typedef unsigned long long mass;

/* Bits that are ordered like the values, and back. */
__device__ static inline unsigned key_of(float v)
{
    unsigned bits = __float_as_uint(v);
    return bits ^ ((unsigned)-(int)(bits >> 31) | 0x80000000u);
}

__device__ static inline float value_of(unsigned key)
{
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

/* The host's exponential (engine/decode/row.h), with the same roundings. */
__device__ static inline float weight_exp(float x)
{
    float t = __fadd_rn(__fmul_rn(x, 1.44269504f), 12582912.0f), k = __fsub_rn(t, 12582912.0f);
    float r = __fadd_rn(__fsub_rn(x, __fmul_rn(k, 0.693359375f)), __fmul_rn(k, 2.12194440e-4f));
    float p = 1.9875691500e-4f;
    p = __fadd_rn(__fmul_rn(p, r), 1.3981999507e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
    p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
    p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
    p = __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, r), r), r), 1.0f);
    float scale = __uint_as_float((__float_as_uint(t) - 0x4b400000u + 127u) << 23);
    return x >= -87.0f ? __fmul_rn(p, scale) : 0.0f;
}

__device__ static inline mass mass_of(float weight)
{
    return (mass)((double)weight * 4398046511104.0); /* 2^42: 2^21 weights of 1 fit */
}

__device__ static inline float scaled(float x, float temperature)
{
    return __fadd_rn(__fdiv_rn(x, temperature), 0.0f);
}

/* Values from a key on; of those equal to the key, the ones with an index in [begin, end). */
struct border {
    unsigned key;
    int begin, end;
};

__device__ static inline bool within(const border &b, unsigned key, int at)
{
    return key > b.key || (key == b.key && at >= b.begin && at < b.end);
}

/* A row on its way to a draw. */
struct candidates {
    const float *x;
    int d;
    const int *ids; /* of x; NULL: 0, 1, ... */
    float temperature, top,
        logit_floor; /* top: the largest value; logit_floor: logits below it are out, with a margin for rounding */
    border rank, part; /* what top-k and top-p leave */
    float min_p;
    int cut;          /* this one weighs cut_weight; -1: none */
    float cut_weight; /* what the others left of top_p */
};

__device__ static inline bool is_in(const candidates &c, float x, int j, float &value)
{
    if (!(x >= c.logit_floor)) return false;
    value = scaled(x, c.temperature);
    unsigned key = key_of(value);
    return within(c.rank, key, j) && within(c.part, key, j);
}

__device__ static inline float weight_at(const candidates &c, int j)
{
    float value;
    if (!is_in(c, c.x[j], j, value)) return 0.0f;
    float weight = weight_exp(__fsub_rn(value, c.top));
    if (weight < c.min_p) return 0.0f;
    return j == c.cut ? c.cut_weight : weight;
}

/* This thread's values of a row, eight loaded at a time. */
template <typename F> __device__ static void each_value(const float *x, int d, F f)
{
    enum { AT_ONCE = 8 };
    for (int base = threadIdx.x; base < d; base += AT_ONCE * DRAW_THREADS) {
        float v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            v[i] = base + i * DRAW_THREADS < d ? x[base + i * DRAW_THREADS] : 0.0f;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (base + i * DRAW_THREADS < d) f(v[i], base + i * DRAW_THREADS);
    }
}

/* ---- sums over a block ---- */

struct draw_scratch {
    mass bins[BINS];
    mass warp[WARPS];
    double part[WARPS];
    mass above;
    int chosen, count;
    /* the remaining candidates, when they are few: logits by rising id */
    float few[BINS];
    int ids[BINS];
};

__device__ static mass warp_scan(mass v)
{
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        mass other = __shfl_up_sync(0xffffffffu, v, o);
        if ((int)(threadIdx.x & 31) >= o) v += other;
    }
    return v;
}

/* The sum over the threads before this one; *all: over all threads. */
__device__ static mass block_scan(draw_scratch &r, mass v, mass *all)
{
    mass upto = warp_scan(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 31) r.warp[threadIdx.x / 32] = upto;
    __syncthreads();
    if (threadIdx.x < 32) r.warp[threadIdx.x] = warp_scan(r.warp[threadIdx.x]);
    __syncthreads();
    mass before = threadIdx.x >= 32 ? r.warp[threadIdx.x / 32 - 1] : 0;
    *all = r.warp[WARPS - 1];
    return before + upto - v;
}

/* ---- cuts ---- */

/* From the largest value down, values are kept as long as not too much mass is above them; the first always
 * is. */
struct cut {
    double total, unit;
    float limit;
    bool falling;
};

__device__ static bool keeps(const cut &c, double above)
{
    if (c.falling) return (float)(above / c.unit) < c.limit;
    return (float)((c.total - above) / c.unit) > c.limit;
}

/* Two bins a thread, from the largest values down: finds the last bin that is kept (r.chosen) and the mass
 * above it (r.above). */
__device__ static void last_bin(draw_scratch &r, int bins, const cut &c)
{
    mass above = r.above, all;
    int high = bins - 1 - 2 * (int)threadIdx.x, low = high - 1;
    mass a = high >= 0 ? r.bins[high] : 0, b = low >= 0 ? r.bins[low] : 0;
    mass before = block_scan(r, a + b, &all);
    bool keep_a = a > 0 && (before == 0 || keeps(c, (double)(above + before)));
    bool keep_b = b > 0 && (before + a == 0 || keeps(c, (double)(above + before + a)));
    int mine = keep_b ? low : keep_a ? high : BINS;
    if (threadIdx.x == 0) r.chosen = BINS;
    __syncthreads();
    atomicMin(&r.chosen, mine);
    __syncthreads();
    if (mine == r.chosen && mine < BINS) r.above = above + before + (keep_b ? a : 0);
    __syncthreads();
}

/* The smallest value that is kept, as its key; r.above is the mass above it. each(f) calls f(key, mass) for
 * this thread's values. Three histograms, over 11, 11 and 10 bits of the key. */
template <typename Each> __device__ static unsigned select_threshold(draw_scratch &r, const cut &c, Each each)
{
    unsigned prefix = 0, known = 0;
    if (threadIdx.x == 0) r.above = 0;
    for (int pass = 0, shift = 21; pass < 3; pass++, shift = pass == 1 ? 10 : 0) {
        int bins = pass < 2 ? BINS : BINS / 2;
        for (int i = threadIdx.x; i < BINS; i += DRAW_THREADS) r.bins[i] = 0;
        __syncthreads();
        each([&](unsigned key, mass m) {
            if ((key & known) == prefix && m) atomicAdd(&r.bins[key >> shift & (bins - 1)], m);
        });
        __syncthreads();
        last_bin(r, bins, c);
        prefix |= (unsigned)r.chosen << shift;
        known |= (unsigned)(bins - 1) << shift;
    }
    return prefix;
}

/* ---- places ---- */

__device__ static double warp_sum(double v)
{
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

/* One warp, at [from, from + 32): the first index whose running sum exceeds `left`, or else the last with a
 * weight. */
template <typename Weight> __device__ static int last_place(int from, int to, double left, Weight weight)
{
    int lane = threadIdx.x & 31;
    double w = from + lane < to ? weight(from + lane) : 0.0, upto = w;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        double other = __shfl_up_sync(0xffffffffu, upto, o);
        if (lane >= o) upto += other;
    }
    unsigned over = __ballot_sync(0xffffffffu, w > 0 && upto > left), some = __ballot_sync(0xffffffffu, w > 0);
    if (over) return from + __ffs((int)over) - 1;
    return from + (some ? 31 - __clz((int)some) : 0);
}

/* The first index of the row at which the running sum of weights, by rising index, exceeds `target`, or, if
 * share >= 0, that share of their sum. Each warp sums a part of the row; the part where it happens is divided
 * again. */
template <typename Weight>
__device__ static int find_place(draw_scratch &r, int d, double target, double share, Weight weight)
{
    int from = 0, to = d, warp = threadIdx.x / 32;
    while (to - from > 32) {
        int each = ((to - from + WARPS - 1) / WARPS + 31) / 32 * 32, begin = from + warp * each,
            end = min(to, begin + each);
        double sum = 0, before = 0, all = 0;
#pragma unroll 4
        for (int j = begin + (threadIdx.x & 31); j < end; j += 32) sum += weight(j);
        sum = warp_sum(sum);
        __syncthreads();
        if ((threadIdx.x & 31) == 0) r.part[warp] = sum;
        __syncthreads();
        for (int i = 0; i < WARPS && share >= 0; i++) all += r.part[i];
        if (share >= 0) target = share * all, share = -1;
        int owner = -1, last = 0;
        for (int i = 0; i < WARPS && owner < 0; i++) {
            if (r.part[i] > 0) last = i;
            if (before + r.part[i] > target) owner = i;
            else before += r.part[i];
        }
        target = owner < 0 ? INFINITY : target - before; /* none by rounding: the last that weighs */
        from += (owner < 0 ? last : owner) * each;
        to = min(to, from + each);
    }
    if (share >= 0) {
        double all = warp_sum(from + (threadIdx.x & 31) < to ? weight(from + (threadIdx.x & 31)) : 0.0);
        target = share * all;
    }
    return last_place(from, to, target, weight);
}

/* ---- few candidates ---- */

/* r.bins, falling (Batcher 1968). */
__device__ static void sort_bins(draw_scratch &r, int count)
{
    int n = 2;
    while (n < count) n *= 2;
    for (int i = count + threadIdx.x; i < n; i += DRAW_THREADS) r.bins[i] = 0;
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += DRAW_THREADS) {
                int other = i ^ step;
                if (other < i) continue; /* the lower of the two reads and writes both */
                mass a = r.bins[i], b = r.bins[other];
                if ((a < b) == ((i & size) == 0)) r.bins[i] = b, r.bins[other] = a;
            }
        }
    __syncthreads();
}

/* Into r.bins; more than fit are only counted. */
__device__ static void collect(draw_scratch &r, mass v)
{
    int at = atomicAdd(&r.count, 1);
    if (at < BINS) r.bins[at] = v;
}

/* The remaining candidates replace the row, if they are few enough for shared memory. */
__device__ static void compact_candidates(draw_scratch &r, candidates &c)
{
    if (threadIdx.x == 0) r.count = 0;
    __syncthreads();
    each_value(c.x, c.d, [&](float x, int j) {
        float value;
        if (is_in(c, x, j, value)) collect(r, (mass) ~(unsigned)j << 32 | __float_as_uint(x));
    });
    __syncthreads();
    int count = r.count;
    if (count > BINS) return;
    sort_bins(r, count);
    for (int i = threadIdx.x; i < count; i += DRAW_THREADS) {
        r.ids[i] = (int)~(unsigned)(r.bins[i] >> 32);
        r.few[i] = __uint_as_float((unsigned)r.bins[i]);
    }
    __syncthreads();
    c.x = r.few, c.ids = r.ids, c.d = count;
    c.rank = c.part = {0, 0, count};
}

/* ---- the steps of a draw ---- */

template <typename F> __device__ static void each_candidate(const candidates &c, F f)
{
    each_value(c.x, c.d, [&](float x, int j) {
        float value;
        if (is_in(c, x, j, value)) f(value, j);
    });
}

/* A lower bound of the k largest logits: the k-th largest of the threads' own maxima, lowered by more than
 * dividing by the temperature can round together. */
__device__ static float top_k_floor(draw_scratch &r, const candidates &c, int k)
{
    float own = -INFINITY;
    if (k > DRAW_THREADS) return -INFINITY;
    each_value(c.x, c.d, [&](float x, int) { own = fmaxf(own, x); });
    cut rank = {(double)DRAW_THREADS, 1.0, (float)k, true};
    float least = value_of(select_threshold(r, rank, [&](auto f) { f(key_of(own), (mass)1); }));
    return least - fabsf(least) * 1e-5f - 1e-30f;
}

__device__ static void keep_top_k(draw_scratch &r, candidates &c, const proa_sample_params &how)
{
    c.logit_floor = top_k_floor(r, c, how.top_k);
    if (c.logit_floor > -INFINITY) compact_candidates(r, c);
    cut rank = {(double)c.d, 1.0, (float)how.top_k, true};
    unsigned at = select_threshold(
        r, rank, [&](auto f) { each_candidate(c, [&](float v, int) { f(key_of(v), (mass)1); }); });
    border b = {at, 0, c.d};
    double room_left = (double)how.top_k - (double)r.above;
    __syncthreads();
    if (how.falling)
        b.end = 1 + find_place(r, c.d, room_left - 1.0, -1.0, [&](int j) {
                    float v;
                    return is_in(c, c.x[j], j, v) && key_of(v) == at ? 1.0 : 0.0;
                });
    c.rank = b;
}

__device__ static mass sum_of(draw_scratch &r, const candidates &c, unsigned only, mass one)
{
    mass own = 0, all;
    each_candidate(c, [&](float v, int) {
        if (only == 0 || key_of(v) == only) own += one ? one : mass_of(weight_exp(__fsub_rn(v, c.top)));
    });
    block_scan(r, own, &all);
    return all;
}

/* How many of the ties at the border are kept: the largest number of which the last is still kept. */
__device__ static int ties_kept(const cut &c, double above, double weight, int ties)
{
    int low = 1, high = ties; /* low are kept */
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (keeps(c, above + (double)(middle - 1) * weight)) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* A floor for top-p: weights below it, however many there are, are at most half of the mass that is dropped
 * anyway. */
__device__ static float top_p_floor(const candidates &c, const proa_sample_params &how, double sum)
{
    double dropped = how.falling ? 1.0 - (double)how.top_p : (double)how.rest;
    float least = (c.top + (float)log(0.5 * dropped * sum / (double)c.d)) * c.temperature;
    return least - fabsf(least) * 1e-5f - 1e-30f;
}

__device__ static void keep_top_p(draw_scratch &r, candidates &c, const proa_sample_params &how)
{
    double sum = (double)sum_of(r, c, 0, 0);
    if (c.logit_floor == -INFINITY) {
        c.logit_floor = top_p_floor(c, how, sum / (double)mass_of(1.0f));
        compact_candidates(r, c);
    }
    cut p = {sum, sum, how.falling ? how.top_p : how.rest, how.falling != 0};
    unsigned at = select_threshold(r, p, [&](auto f) {
        each_candidate(c, [&](float v, int) { f(key_of(v), mass_of(weight_exp(__fsub_rn(v, c.top)))); });
    });
    double above = (double)r.above;
    int ties = (int)sum_of(r, c, at, 1);
    float weight = weight_exp(__fsub_rn(value_of(at), c.top));
    double one = (double)mass_of(weight);
    int kept = ties_kept(p, above, one, ties);
    int nth = how.falling ? kept - 1 : ties - kept; /* the last that stays, or the first */
    int border_at = find_place(r, c.d, (double)nth, -1.0, [&](int j) {
        float v;
        return is_in(c, c.x[j], j, v) && key_of(v) == at ? 1.0 : 0.0;
    });
    c.part = how.falling ? border{at, 0, border_at + 1} : border{at, border_at, c.d};
    if (!how.falling) return;
    double left = ((double)how.top_p * sum - above - (double)(kept - 1) * one) / (double)mass_of(1.0f);
    c.cut = border_at;
    c.cut_weight = (float)fmin(fmax(left, 0.0), (double)weight);
}

/* What the cuts have left of the row (proa_sample_params.kept). */
__device__ static void put_kept(const candidates &c, float *kept, int d)
{
    for (int j = threadIdx.x; j < d && c.ids; j += DRAW_THREADS) kept[j] = -INFINITY;
    __syncthreads();
    each_value(c.x, c.d, [&](float x, int j) {
        float value;
        bool in = is_in(c, x, j, value) && !(weight_exp(__fsub_rn(value, c.top)) < c.min_p);
        if (in || !c.ids) kept[c.ids ? c.ids[j] : j] = in ? __fdiv_rn(x, c.temperature) : -INFINITY;
    });
}

/* The limit of small temperatures: only the likeliest is left. */
__device__ static void put_likeliest(float *kept, const float *x, int d, int at, float temperature)
{
    for (int j = threadIdx.x; j < d; j += DRAW_THREADS)
        kept[j] = j == at ? __fdiv_rn(x[j], temperature) : -INFINITY;
}

/* Draws a token for each row with a temperature; argmax_lse_kernel has run before. One block of 1,024 threads
 * a row; shared memory: draw_scratch (about 33 KB). */
__global__ void __launch_bounds__(DRAW_THREADS)
    sample_kernel(int32_t *ids, const float *sums, const float *x, int64_t stride, int d,
                  const proa_sample_params *choices)
{
    __shared__ draw_scratch r;
    gpu_wait();
    int row = blockIdx.x;
    proa_sample_params how = choices[row];
    if (!(how.temperature > 0) || !isfinite(sums[row])) return;
    candidates c = {x + row * stride, d,  NULL, how.temperature, 0, -INFINITY, {0, 0, d}, {0, 0, d},
                    how.min_p,        -1, 0};
    c.top = scaled(c.x[ids[row]], how.temperature);
    if (!isfinite(c.top)) {
        if (how.kept) put_likeliest(how.kept, c.x, d, ids[row], how.temperature);
        return;
    }
    if (how.top_k > 0 && how.top_k < d) keep_top_k(r, c, how);
    if (how.top_p > 0) keep_top_p(r, c, how);
    if (how.kept) put_kept(c, how.kept, d);
    int at = find_place(r, c.d, 0, how.uniform, [&](int j) { return (double)weight_at(c, j); });
    if (threadIdx.x == 0) ids[row] = c.ids ? c.ids[at] : at;
}

static void log_sum_exp(proa_ctx *c, float *out, proa_view x)
{
    gpu *g = gpu_flushed(c);
    if (x.shape[0]) argmax_rows(g, NULL, out, x);
}

static void cuda_sample(proa_ctx *c, int32_t *ids, float *sums, proa_view x, const proa_sample_params *how)
{
    gpu *g = gpu_flushed(c);
    if (x.shape[0] == 0) return;
    argmax_rows(g, ids, sums, x);
    if (how)
        gpu_launch(g, "sample", sample_kernel, dim3((unsigned)x.shape[0]), DRAW_THREADS, 0, ids,
                   (const float *)sums, (const float *)x.data, x.stride[0], (int)x.shape[1], how);
}

enum { LOG_PROB_THREADS = 256, LOG_PROB_COLUMNS = 4096 /* of a block: 16 for each thread */ };

/* Blocks (columns, row). */
__global__ void log_probs_kernel(float *y, int64_t y_stride, const float *x, int64_t x_stride, int d,
                                 const float *sums)
{
    int begin = blockIdx.x * LOG_PROB_COLUMNS, end = min(d, begin + LOG_PROB_COLUMNS);
    gpu_wait();
    float sum = sums[blockIdx.y];
    for (int j = begin + threadIdx.x; j < end; j += LOG_PROB_THREADS)
        y[blockIdx.y * y_stride + j] = __fsub_rn(x[blockIdx.y * x_stride + j], sum);
}

static void log_probs(proa_ctx *c, proa_view y, proa_view x, const float *sums)
{
    unsigned parts = (unsigned)((x.shape[1] + LOG_PROB_COLUMNS - 1) / LOG_PROB_COLUMNS);
    gpu_launch(gpu_flushed(c), "log_probs", log_probs_kernel, dim3(parts, (unsigned)x.shape[0]), LOG_PROB_THREADS,
               0, (float *)y.data, y.stride[0], (const float *)x.data, x.stride[0], (int)x.shape[1], sums);
}

/* ---- the k largest ---- */

/* A value and its index as one number in top_k's order: NaN lowest, then by value, then the lower index
 * first. */
__device__ static inline mass rank_of(float v, int at)
{
    unsigned key = isnan(v) ? 0u : key_of(v == 0.0f ? 0.0f : v);
    return (mass)key << 32 | (0xffffffffu - (unsigned)at);
}

__device__ static mass block_largest(draw_scratch &r, mass v)
{
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        mass other = __shfl_xor_sync(0xffffffffu, v, o);
        v = other > v ? other : v;
    }
    __syncthreads();
    if ((threadIdx.x & 31) == 0) r.warp[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < WARPS; i++) v = r.warp[i] > v ? r.warp[i] : v;
    return v;
}

/* The k largest values of each row, largest first. Values that reach the k-th largest of the threads' own
 * maxima are few and are sorted in shared memory. If there are too many (equal values), k passes over the
 * row, each for the largest below the one before. */
__global__ void __launch_bounds__(DRAW_THREADS) top_k_kernel(float *values, int64_t values_stride, int32_t *ids,
                                                             const float *x, int64_t stride, int d, int k)
{
    __shared__ draw_scratch r;
    gpu_wait();
    const float *row = x + blockIdx.x * stride;
    float *to = values + blockIdx.x * values_stride;
    ids += (int64_t)blockIdx.x * k;
    unsigned own = 0;
    each_value(row, d, [&](float x, int j) { own = max(own, (unsigned)(rank_of(x, j) >> 32)); });
    cut rank = {(double)DRAW_THREADS, 1.0, (float)k, true};
    unsigned least = k <= DRAW_THREADS ? select_threshold(r, rank, [&](auto f) { f(own, (mass)1); }) : 0;
    if (threadIdx.x == 0) r.count = 0;
    __syncthreads();
    each_value(row, d, [&](float x, int j) {
        mass v = rank_of(x, j);
        if ((unsigned)(v >> 32) >= least) collect(r, v);
    });
    __syncthreads();
    int count = r.count;
    if (count <= BINS) {
        sort_bins(r, count);
        for (int i = threadIdx.x; i < k; i += DRAW_THREADS) {
            int at = (int)(0xffffffffu - (unsigned)r.bins[i]);
            ids[i] = at, to[i] = row[at];
        }
        return;
    }
    mass below = ~0ull;
    for (int i = 0; i < k; i++) {
        mass best = 0;
        for (int j = threadIdx.x; j < d; j += DRAW_THREADS) {
            mass v = rank_of(row[j], j);
            if (v < below && v > best) best = v;
        }
        below = block_largest(r, best);
        int at = (int)(0xffffffffu - (unsigned)below);
        if (threadIdx.x == 0) ids[i] = at, to[i] = row[at];
    }
}

static void top_k(proa_ctx *c, proa_view values, int32_t *ids, proa_view x, int64_t k)
{
    gpu_launch(gpu_flushed(c), "top_k", top_k_kernel, dim3((unsigned)x.shape[0]), DRAW_THREADS, 0,
               (float *)values.data, values.stride[0], ids, (const float *)x.data, x.stride[0],
               (int)x.shape[1], (int)k);
}

/* ---- ids ---- */

enum { EDIT_THREADS = 256 };

__device__ static void mask_columns(float *at, int n, const proa_logits_entry *entry, int count, int32_t latest)
{
    for (int i = threadIdx.x; i < count; i += EDIT_THREADS) {
        int32_t id = proa_logits_masked_id(&entry[i], latest);
        if (id >= 0 && id < n) at[id] = -INFINITY;
    }
}

/* only > 0: column only - 1 becomes 0 and all others -infinity. */
__device__ static void keep_only(float *at, int n, int only)
{
    for (int j = threadIdx.x; j < n && only; j += EDIT_THREADS) at[j] = j == only - 1 ? 0.0f : -INFINITY;
}

/* A block for a row. */
__global__ void logits_processor_kernel(float *x, int64_t row, int n, const proa_logits_row *rows,
                                        const proa_logits_entry *entries, const int32_t *last)
{
    __shared__ int found;
    gpu_wait();
    const proa_logits_row e = rows[blockIdx.x];
    const proa_logits_entry *entry = entries + e.first;
    int32_t latest = last[blockIdx.x];
    float *at = x + blockIdx.x * row;
    if (threadIdx.x == 0) found = 0;
    for (int i = threadIdx.x; i < e.bias_count; i += EDIT_THREADS) at[entry[i].id] += entry[i].value;
    __syncthreads();
    for (int j = threadIdx.x; j < n && e.scale != 1.0f; j += EDIT_THREADS) at[j] *= e.scale;
    __syncthreads();
    entry += e.bias_count;
    for (int i = threadIdx.x; i < e.seen_count; i += EDIT_THREADS) {
        bool again = e.last && entry[i].id == latest;
        at[entry[i].id] = proa_logits_penalise(&e, at[entry[i].id], entry[i].number + again);
        if (again) found = 1;
    }
    __syncthreads();
    if (threadIdx.x == 0 && e.last && !found && latest >= 0 && latest < n)
        at[latest] = proa_logits_penalise(&e, at[latest], 1);
    __syncthreads();
    entry += e.seen_count;
    mask_columns(at, n, entry, e.mask_count, latest);
    __syncthreads();
    keep_only(at, n, e.only);
}

static void process_logits(proa_ctx *c, proa_view x, const proa_logits_row *rows,
                           const proa_logits_entry *entries, const int32_t *last)
{
    gpu_launch(gpu_flushed(c), "process_logits", logits_processor_kernel, dim3((unsigned)x.shape[0]),
               EDIT_THREADS, 0, (float *)x.data, x.stride[0], (int)x.shape[1], rows, entries, last);
}

enum { MASK_COLUMNS = 4096 }; /* of a block: 16 for each thread */

/* Blocks (row, columns); the threads of a warp share a word of the mask. */
__global__ void mask_logits_kernel(float *x, int64_t row, int n, const uint32_t *masks, const int32_t *which)
{
    gpu_wait();
    int mask = which[blockIdx.x];
    if (mask < 0) return;
    const uint32_t *bits = masks + (int64_t)mask * ((n + 31) / 32);
    float *at = x + blockIdx.x * row;
    int begin = blockIdx.y * MASK_COLUMNS, end = min(n, begin + MASK_COLUMNS);
    for (int j = begin + threadIdx.x; j < end; j += EDIT_THREADS)
        if (!(bits[j >> 5] >> (j & 31) & 1)) at[j] = -INFINITY;
}

static void mask_logits(proa_ctx *c, proa_view x, const uint32_t *masks, const int32_t *which)
{
    unsigned parts = (unsigned)((x.shape[1] + MASK_COLUMNS - 1) / MASK_COLUMNS);
    gpu_launch(gpu_flushed(c), "mask_logits", mask_logits_kernel, dim3((unsigned)x.shape[0], parts),
               EDIT_THREADS, 0, (float *)x.data, x.stride[0], (int)x.shape[1], masks, which);
}

__global__ void gather_logits_kernel(float *out, const float *x, int64_t row, const int32_t *ids, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    gpu_wait();
    if (i < count) out[i] = x[i * row + ids[i]];
}

static void gather_logprobs(proa_ctx *c, float *out, proa_view x, const int32_t *ids)
{
    int count = (int)x.shape[0];
    gpu_launch(gpu_flushed(c), "gather_logprobs", gather_logits_kernel, dim3((unsigned)((count + 127) / 128)),
               128, 0, out, (const float *)x.data, x.stride[0], ids, count);
}

__global__ void gather_ids_kernel(int32_t *ids, const int32_t *from, const int32_t *rows, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    gpu_wait();
    if (i < count && rows[i] >= 0) ids[i] = from[rows[i]];
}

static void gather_token_ids(proa_ctx *c, int32_t *ids, const int32_t *from, const int32_t *rows, int64_t count)
{
    gpu_launch(gpu_flushed(c), "gather_token_ids", gather_ids_kernel, dim3((unsigned)((count + 127) / 128)),
               128, 0, ids, from, rows, (int)count);
}

void gpu_fill_sample(proa_ops *ops, proa_decode_ops *decode)
{
    decode->process_logits = process_logits, decode->mask_logits = mask_logits, decode->sample = cuda_sample,
    decode->gather_logprobs = gather_logprobs, decode->gather_token_ids = gather_token_ids,
    decode->log_probs = log_probs;
    ops->log_sum_exp = log_sum_exp, ops->top_k = top_k;
}
