/* SPDX-License-Identifier: Apache-2.0
 * beam_search.cu - beam_step and reorder_kv: the next beams from the candidates of the last ones, a block for each search,
 * and the page tables and pages that follow them. The formulas are those of kernels/beam_step.h, which the host compiles
 * too; here candidates are ordered by a bitonic sort of packed keys. */
#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "kernels/beam_step.h"
#include "kernels/reorder_kv.h"
}

enum { BEAM_THREADS = 256, REORDER_THREADS = 256, REORDER_BLOCKS = 2048 };

/* ---- a step of a search ---- */

typedef unsigned long long rank_key;

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

struct search_state {
    rank_key best[PROA_BEAM_CANDIDATES_MAX]; /* key, then 6 bits of the beam and 21 of the tie, turned round so that low ones come first */
    unsigned order[PROA_BEAM_CANDIDATES_MAX];
    float score[PROA_DEVICE_BEAMS_MAX];
    int token[PROA_DEVICE_BEAMS_MAX]; /* chosen in this step, by the groups before */
    proa_beam_hyp hyps[PROA_DEVICE_BEAMS_MAX];
};

__device__ static inline proa_beam_state view_of(const search_state &t)
{
    return {t.score, t.token, t.hyps};
}

/* best, falling (Batcher 1968). */
__device__ static void sort_ranked(rank_key *best, int count)
{
    int n = 2;
    while (n < count) n *= 2;
    for (int i = count + threadIdx.x; i < n; i += BEAM_THREADS) best[i] = 0;
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += BEAM_THREADS) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                rank_key a = best[low], b = best[high];
                if ((a < b) == ((low & size) == 0)) best[low] = b, best[high] = a;
            }
        }
    __syncthreads();
}

/* What the c-th best is. */
__device__ static proa_beam_candidate unpack(const search_state &t, const proa_beam_params &s,
                                             const proa_beam_lists &l, int first, int c, int &beam)
{
    unsigned low = ~(unsigned)t.best[c];
    int tie = low & ((1u << 21) - 1);
    beam = low >> 21;
    if (s.by_token) return {number_of((unsigned)(t.best[c] >> 32)), tie};
    proa_beam_state b = view_of(t);
    return proa_beam_continue(&b, &s, &l, first, beam, tie);
}

/* The group's candidates, best first, and how those that are kept rank to go on. */
__device__ static void rank_candidates(search_state &t, const proa_beam_params &s, const proa_beam_lists &l,
                                       int first, int size)
{
    proa_beam_state b = view_of(t);
    for (int n = threadIdx.x; n < size * s.each; n += BEAM_THREADS) {
        int beam = first + n / s.each, r = n % s.each;
        proa_beam_candidate c = proa_beam_continue(&b, &s, &l, first, beam, r);
        unsigned tie = proa_beam_tie(&s, &c, r);
        t.best[n] = (rank_key)order_of(proa_beam_key(&b, &s, &c, beam, r)) << 32 | ~((unsigned)beam << 21 | tie);
        if (r > 0 && proa_beam_has_ended(&b, &s, beam))
            t.best[n] = 0; /* last: each beam has at least one candidate, and C is K */
    }
    sort_ranked(t.best, size * s.each);
    for (int c = threadIdx.x; c < s.kept; c += BEAM_THREADS) {
        int beam;
        proa_beam_candidate next = unpack(t, s, l, first, c, beam);
        t.order[c] = s.pushed                               ? order_of(proa_beam_pushed_sum(&s, &next))
                     : proa_beam_moves_back(&s, next.token) ? 0
                                                            : 1;
    }
    __syncthreads();
}

__device__ static void write_next_beams(search_state &t, const proa_beam_params &s, const proa_beam_lists &l,
                                        int first, int size)
{
    for (int c = threadIdx.x; c < s.kept; c += BEAM_THREADS) {
        int place = 0, beam;
        for (int i = 0; i < s.kept && place < size; i++)
            place += t.order[i] > t.order[c] || (t.order[i] == t.order[c] && i < c);
        if (place >= size) continue;
        proa_beam_candidate next = unpack(t, s, l, first, c, beam);
        place += first;
        proa_beam_write(&s, &l, place, s.pushed ? number_of(t.order[c]) : next.sum, next.token, beam);
        if (s.keep_ended)
            l.hyps[s.state + place] = proa_beam_hyp_continue(&t.hyps[beam], &s, next.token,
                                                             proa_beam_is_end(&s, next.token));
    }
}

/* One thread: few end in a step. */
__device__ static void keep_finished(search_state &t, const proa_beam_params &s, int first, int size)
{
    proa_beam_hyp *hyps = t.hyps + first;
    for (int c = 0; c < size; c++)
        if (t.order[c] == 0)
            proa_beam_hyp_add(hyps, size, __ddiv_rn((double)number_of((unsigned)(t.best[c] >> 32)), s.length));
    hyps->done = proa_beam_group_done(hyps, &s, number_of((unsigned)(t.best[0] >> 32)));
}

__device__ static void pad_group(const proa_beam_params &s, const proa_beam_lists &l, int first, int size)
{
    for (int i = first + threadIdx.x; i < first + size; i += BEAM_THREADS)
        proa_beam_write(&s, &l, i, 0, s.pad, first);
}

/* The scores and hypotheses before the step. */
__device__ static void take_state(search_state &t, const proa_beam_params &s, const proa_beam_lists &l)
{
    for (int i = threadIdx.x; i < s.beams; i += BEAM_THREADS) {
        t.score[i] = proa_beam_initial_score(&s, &l, i);
        if (s.groups == 1 && !s.keep_ended) continue;
        if (s.rows > 1) t.hyps[i] = l.hyps[s.state + i];
        else proa_beam_hyp_clear(&t.hyps[i]);
    }
    __syncthreads();
}

__global__ void __launch_bounds__(BEAM_THREADS)
    beam_step_kernel(const proa_beam_params *all, const proa_beam_lists l)
{
    __shared__ search_state t;
    __shared__ proa_beam_params s;
    gpu_wait();
    for (int i = threadIdx.x; i < (int)(sizeof s / 4); i += BEAM_THREADS)
        ((int *)&s)[i] = ((const int *)&all[blockIdx.x])[i];
    __syncthreads();
    int size = s.beams / s.groups;
    take_state(t, s, l);
    for (int first = 0; first < s.beams; first += size) {
        if (s.groups > 1 && t.hyps[first].done) {
            pad_group(s, l, first, size);
        } else {
            rank_candidates(t, s, l, first, size);
            write_next_beams(t, s, l, first, size);
        }
        if (s.groups == 1) return;
        __syncthreads();
        for (int i = first + threadIdx.x; i < first + size; i += BEAM_THREADS)
            t.token[i] = l.tokens[s.to + i];
        if (threadIdx.x == 0 && !t.hyps[first].done) keep_finished(t, s, first, size);
        __syncthreads();
        for (int i = first + threadIdx.x; i < first + size; i += BEAM_THREADS)
            l.hyps[s.state + i] = t.hyps[i];
    }
}

static void beam_step(proa_ctx *c, const proa_beam_params *s, int64_t count, const proa_beam_lists *lists)
{
    gpu_launch(gpu_flushed(c), "beam_step", beam_step_kernel, dim3((unsigned)count), BEAM_THREADS, 0, s, *lists);
}

/* ---- pages follow ---- */

/* Keys and values of all layers: `units` pieces, one for each layer, each of both and each head, of a page. */
struct kv_pool {
    char *memory;
    int64_t stride;          /* from a layer's keys to its values, and on */
    int64_t page, head;      /* bytes of a page, and of a head in it */
    int units, heads, token; /* token: bytes of one in a head */
};

template <typename Word>
__device__ static void copy_unit(const kv_pool &p, int unit, int to, int from, int tokens)
{
    char *memory = p.memory + unit / p.heads * p.stride + unit % p.heads * p.head;
    Word *dst = (Word *)(memory + to * p.page);
    const Word *src = (const Word *)(memory + from * p.page);
    int words = tokens * p.token / (int)sizeof(Word);
#pragma unroll 4
    for (int i = threadIdx.x; i < words; i += REORDER_THREADS) dst[i] = src[i];
}

/* Beam blockIdx.y of branch blockIdx.z; the blocks along x share the copying, and the first one has the table. */
template <typename Word>
__global__ void __launch_bounds__(REORDER_THREADS)
    reorder_kv_kernel(int32_t *pages, const proa_kv_reorder *branches, const int32_t *parents, const kv_pool pool)
{
    __shared__ int32_t parent[PROA_DEVICE_BEAMS_MAX], take[PROA_DEVICE_BEAMS_MAX];
    gpu_wait();
    const proa_kv_reorder b = branches[blockIdx.z];
    int beam = blockIdx.y, full = b.tokens / PROA_PAGE_TOKENS, used = b.tokens % PROA_PAGE_TOKENS,
        count = full + 1;
    if (beam >= b.beams) return;
    for (int i = threadIdx.x; i < b.beams; i += REORDER_THREADS) parent[i] = parents[b.from + i];
    __syncthreads();
    if (threadIdx.x == 0) proa_reorder_pages(take, parent, b.beams);
    __syncthreads();
    const int32_t *of_parent = pages + b.source + parent[beam] * count;
    int own = used ? take[beam] : beam, page = pages[b.source + own * count + full];
    int32_t *table = pages + b.table + beam * count;
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < count; i += REORDER_THREADS) table[i] = i < full ? of_parent[i] : page;
    if (!used || own == parent[beam]) return;
    for (int unit = blockIdx.x; unit < pool.units; unit += gridDim.x)
        copy_unit<Word>(pool, unit, page, of_parent[full], used);
}

static kv_pool make_pool(const proa_kv *kv, int64_t layers)
{
    int64_t token = kv->head_dim * proa_dtype_bytes(kv->dtype), head = PROA_PAGE_TOKENS * token;
    kv_pool pool = {(char *)kv->k, (char *)kv->v - (char *)kv->k, kv->kv_heads * head, head};
    pool.units = (int)(2 * layers * kv->kv_heads), pool.heads = (int)kv->kv_heads, pool.token = (int)token;
    return pool;
}

static void reorder_kv(proa_ctx *c, int32_t *pages, const proa_kv_reorder *b, int64_t count, int32_t most,
                       const int32_t *parents, const proa_kv *kv, int64_t layers)
{
    gpu *g = gpu_flushed(c);
    if (count == 0) return;
    kv_pool pool = layers ? make_pool(kv, layers) : kv_pool();
    int64_t x = REORDER_BLOCKS / (most * count);
    x = x < 8 ? 8 : x;
    x = x < pool.units ? x : pool.units;
    x = x < 1 ? 1 : x; /* of no layers: the tables alone */
    dim3 grid((unsigned)x, (unsigned)most, (unsigned)count);
    bool wide = ((uintptr_t)pool.memory | (uintptr_t)pool.stride | (uintptr_t)pool.token) % 16 == 0;
    gpu_launch(g, "reorder_kv", wide ? reorder_kv_kernel<uint4> : reorder_kv_kernel<uint8_t>, grid,
               REORDER_THREADS, 0, pages, b, parents, pool);
    g->serialize_next = true; /* kernels read a step's pages before they wait for each other */
}

void gpu_fill_beam_search(proa_decode_ops *ops)
{
    ops->beam_step = beam_step, ops->reorder_kv = reorder_kv;
}
