/* SPDX-License-Identifier: Apache-2.0
 * search.cu - beam searches from step to step: the next beams from the candidates of the last ones (a block for each search),
 * and the page tables and pages that follow them. Sums are rounded as on the host, so that both take the same beams. */
#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "kernels/reorder_kv.h"
#include "kernels/places.h"
}

enum { SEARCH_THREADS = 256, FOLLOW_THREADS = 256, FOLLOW_BLOCKS = 2048 };

/* ---- a step of a search ---- */

typedef unsigned long long ranked;

/* A number as bits that are ordered like it, and back; the zeros are one. */
__device__ static inline unsigned order_of(float v)
{
    unsigned bits = __float_as_uint(__fadd_rn(v, 0.0f));
    return bits ^ ((unsigned)-(int)(bits >> 31) | 0x80000000u);
}

__device__ static inline float number_of(unsigned order)
{
    return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

struct table {
    ranked best[PROA_SEARCH_MAX]; /* key, then 6 bits of the beam and 21 of the tie, turned round so that low ones come first */
    unsigned order[PROA_SEARCH_MAX];
    float score[PROA_SEARCH_BEAMS_MAX];
    int token[PROA_SEARCH_BEAMS_MAX]; /* chosen in this step, by the groups before */
    proa_held held[PROA_SEARCH_BEAMS_MAX];
};

/* Candidate r of a beam, whose group begins at beam first. */
struct continuation {
    float sum;
    int token;
};

__device__ static inline bool has_ended(const table &t, const proa_search &s, int beam)
{
    return s.stays && t.held[beam].done;
}

__device__ static inline continuation continue_with(const table &t, const proa_search &s, const proa_lists &l, int first, int beam, int r)
{
    if (has_ended(t, s, beam)) return {t.score[beam], t.held[beam].token};
    int row = s.rows == 1 ? 0 : beam, at = s.at + row * s.each + r, token = l.ids[at], chosen = 0;
    for (int i = 0; i < first; i++) chosen += t.token[i] == token;
    float value = __fsub_rn(__fsub_rn(l.logits[at], l.sums[s.row + row]), __fmul_rn(s.penalty, (float)chosen));
    return {__fadd_rn(value, t.score[beam]), token};
}

/* What ranks it. */
__device__ static inline float key_of(const table &t, const proa_search &s, const continuation &c, int beam, int r)
{
    int times = s.by_beam ? beam : r % s.beams;
    float score = __fdiv_rn(c.sum, has_ended(t, s, 0) ? t.held[0].divisor : s.divisor);
    return has_ended(t, s, beam) ? score : __fadd_rn(score, __fmul_rn(s.rate, (float)times));
}

/* best, falling (Batcher 1968). */
__device__ static void sort_ranked(ranked *best, int count)
{
    int n = 2;
    while (n < count) n *= 2;
    for (int i = count + threadIdx.x; i < n; i += SEARCH_THREADS) best[i] = 0;
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += SEARCH_THREADS) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                ranked a = best[low], b = best[high];
                if ((a < b) == ((low & size) == 0)) best[low] = b, best[high] = a;
            }
        }
    __syncthreads();
}

__device__ static bool ends(const proa_search &s, int token)
{
    for (int i = 0; i < s.end_count; i++)
        if (s.end_ids[i] == token) return true;
    return false;
}

/* What the c-th best is. */
__device__ static continuation unpack(const table &t, const proa_search &s, const proa_lists &l, int first, int c, int &beam)
{
    unsigned low = ~(unsigned)t.best[c];
    int tie = low & ((1u << 21) - 1);
    beam = low >> 21;
    if (s.by_token) return {number_of((unsigned)(t.best[c] >> 32)), tie};
    return continue_with(t, s, l, first, beam, tie);
}

/* The group's candidates, best first, and how those that are kept rank to go on. */
__device__ static void rank_candidates(table &t, const proa_search &s, const proa_lists &l, int first, int size)
{
    for (int n = threadIdx.x; n < size * s.each; n += SEARCH_THREADS) {
        int beam = first + n / s.each, r = n % s.each;
        continuation c = continue_with(t, s, l, first, beam, r);
        unsigned tie = s.by_token ? c.token : r;
        t.best[n] = (ranked)order_of(key_of(t, s, c, beam, r)) << 32 | ~((unsigned)beam << 21 | tie);
        if (r > 0 && has_ended(t, s, beam)) t.best[n] = 0; /* last: each beam has at least one candidate, and C is K */
    }
    sort_ranked(t.best, size * s.each);
    for (int c = threadIdx.x; c < s.kept; c += SEARCH_THREADS) {
        int beam;
        continuation next = unpack(t, s, l, first, c, beam);
        bool ended = !s.stays && ends(s, next.token);
        t.order[c] = s.pushed ? order_of(__fadd_rn(next.sum, ended ? s.none : 0.0f)) : ended ? 0 : 1;
    }
    __syncthreads();
}

__device__ static void go_on(table &t, const proa_search &s, const proa_lists &l, int first, int size)
{
    for (int c = threadIdx.x; c < s.kept; c += SEARCH_THREADS) {
        int place = 0, beam;
        for (int i = 0; i < s.kept && place < size; i++) place += t.order[i] > t.order[c] || (t.order[i] == t.order[c] && i < c);
        if (place >= size) continue;
        continuation next = unpack(t, s, l, first, c, beam);
        place += first;
        l.scores[s.state + place] = s.pushed ? number_of(t.order[c]) : next.sum;
        l.tokens[s.to + place] = next.token;
        l.parents[s.to + place] = beam;
        if (s.stays) l.held[s.state + place] = proa_places_stay(&t.held[beam], &s, next.token, ends(s, next.token));
    }
}

/* One thread: few end in a step. */
__device__ static void hold_ended(table &t, const proa_search &s, int first, int size)
{
    proa_held *held = t.held + first;
    for (int c = 0; c < size; c++)
        if (t.order[c] == 0) proa_places_add(held, size, __ddiv_rn((double)number_of((unsigned)(t.best[c] >> 32)), s.length));
    held->done = proa_places_done(held, &s, number_of((unsigned)(t.best[0] >> 32)));
}

__device__ static void pad_group(const proa_search &s, const proa_lists &l, int first, int size)
{
    for (int i = first + threadIdx.x; i < first + size; i += SEARCH_THREADS) {
        l.scores[s.state + i] = 0;
        l.tokens[s.to + i] = s.pad;
        l.parents[s.to + i] = first;
    }
}

/* Scores as they were before the step, and what has finished; nothing but a group's first beam is alive in the first step. */
__device__ static void take_state(table &t, const proa_search &s, const proa_lists &l, int size)
{
    for (int i = threadIdx.x; i < s.beams; i += SEARCH_THREADS) {
        t.score[i] = s.rows > 1 ? l.scores[s.state + i] : i % size ? s.none : 0.0f;
        if (s.groups == 1 && !s.stays) continue;
        if (s.rows > 1) t.held[i] = l.held[s.state + i];
        else proa_places_clear(&t.held[i]);
    }
    __syncthreads();
}

__global__ void __launch_bounds__(SEARCH_THREADS) search_kernel(const proa_search *all, const proa_lists l)
{
    __shared__ table t;
    __shared__ proa_search s;
    gpu_wait();
    for (int i = threadIdx.x; i < (int)(sizeof s / 4); i += SEARCH_THREADS) ((int *)&s)[i] = ((const int *)&all[blockIdx.x])[i];
    __syncthreads();
    int size = s.beams / s.groups;
    take_state(t, s, l, size);
    for (int first = 0; first < s.beams; first += size) {
        if (s.groups > 1 && t.held[first].done) {
            pad_group(s, l, first, size);
        } else {
            rank_candidates(t, s, l, first, size);
            go_on(t, s, l, first, size);
        }
        if (s.groups == 1) return;
        __syncthreads();
        for (int i = first + threadIdx.x; i < first + size; i += SEARCH_THREADS) t.token[i] = l.tokens[s.to + i];
        if (threadIdx.x == 0 && !t.held[first].done) hold_ended(t, s, first, size);
        __syncthreads();
        for (int i = first + threadIdx.x; i < first + size; i += SEARCH_THREADS) l.held[s.state + i] = t.held[i];
    }
}

static void search(proa_ctx *c, const proa_search *s, int64_t count, const proa_lists *lists)
{
    gpu_launch(flushed(c), "search", search_kernel, dim3((unsigned)count), SEARCH_THREADS, 0, s, *lists);
}

/* ---- pages follow ---- */

/* Keys and values of all layers: `units` pieces, one for each layer, each of both and each head, of a page. */
struct pool_of {
    char *memory;
    int64_t stride;       /* from a layer's keys to its values, and on */
    int64_t page, head;   /* bytes of a page, and of a head in it */
    int units, heads, token; /* token: bytes of one in a head */
};

template <typename Word> __device__ static void copy_unit(const pool_of &p, int unit, int to, int from, int tokens)
{
    char *memory = p.memory + unit / p.heads * p.stride + unit % p.heads * p.head;
    Word *dst = (Word *)(memory + to * p.page);
    const Word *src = (const Word *)(memory + from * p.page);
    int words = tokens * p.token / (int)sizeof(Word);
#pragma unroll 4
    for (int i = threadIdx.x; i < words; i += FOLLOW_THREADS) dst[i] = src[i];
}

/* Beam blockIdx.y of branch blockIdx.z; the blocks along x share the copying, and the first one has the table. */
template <typename Word>
__global__ void __launch_bounds__(FOLLOW_THREADS)
    follow_kernel(int32_t *pages, const proa_branch *branches, const int32_t *parents, const pool_of pool)
{
    __shared__ int32_t parent[PROA_SEARCH_BEAMS_MAX], take[PROA_SEARCH_BEAMS_MAX];
    gpu_wait();
    const proa_branch b = branches[blockIdx.z];
    int beam = blockIdx.y, full = b.tokens / PROA_PAGE_TOKENS, used = b.tokens % PROA_PAGE_TOKENS, count = full + 1;
    if (beam >= b.beams) return;
    for (int i = threadIdx.x; i < b.beams; i += FOLLOW_THREADS) parent[i] = parents[b.from + i];
    __syncthreads();
    if (threadIdx.x == 0) proa_branch_take(take, parent, b.beams);
    __syncthreads();
    const int32_t *of_parent = pages + b.source + parent[beam] * count;
    int own = used ? take[beam] : beam, page = pages[b.source + own * count + full];
    int32_t *table = pages + b.table + beam * count;
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < count; i += FOLLOW_THREADS) table[i] = i < full ? of_parent[i] : page;
    if (!used || own == parent[beam]) return;
    for (int unit = blockIdx.x; unit < pool.units; unit += gridDim.x) copy_unit<Word>(pool, unit, page, of_parent[full], used);
}

static void follow(proa_ctx *c, int32_t *pages, const proa_branch *b, int64_t count, int32_t most, const int32_t *parents,
                   const proa_kv *kv, int64_t layers)
{
    gpu *g = flushed(c);
    if (count == 0) return;
    int64_t token = kv->head_dim * proa_dtype_bytes(kv->dtype), head = PROA_PAGE_TOKENS * token;
    pool_of pool = {(char *)kv->k, (char *)kv->v - (char *)kv->k, kv->kv_heads * head, head};
    pool.units = (int)(2 * layers * kv->kv_heads), pool.heads = (int)kv->kv_heads, pool.token = (int)token;
    int64_t x = FOLLOW_BLOCKS / (most * count);
    x = x < 8 ? 8 : x;
    x = x < pool.units ? x : pool.units;
    dim3 grid((unsigned)x, (unsigned)most, (unsigned)count);
    bool wide = ((uintptr_t)pool.memory | (uintptr_t)pool.stride | (uintptr_t)token) % 16 == 0;
    gpu_launch(g, "follow", wide ? follow_kernel<uint4> : follow_kernel<uint8_t>, grid, FOLLOW_THREADS, 0, pages, b, parents, pool);
    g->plain_next = true; /* kernels read a step's pages before they wait for each other */
}

void gpu_fill_search(proa_ops *ops)
{
    ops->search = search, ops->follow = follow;
}
