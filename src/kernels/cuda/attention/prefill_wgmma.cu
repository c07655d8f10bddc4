/* SPDX-License-Identifier: Apache-2.0
 * prefill_wgmma.cu - attention of many rows on Hopper (wgmma, TMA; after Shah et al., FlashAttention-3,
 * 2024); 16 bits, head sizes 64, 128, 256, scores without score_mod.
 *
 *   block      persistent, takes tiles of queries (query_tile: up to 64 rows for each warpgroup, one head) from a counter
 *   producer   one warp loads queries, keys and values by TMA into rings of shared memory
 *   consumers  1 to 3 warpgroups with 64 rows each: scores [64][KEYS] and result [64][DIM] in registers
 *   overlap    the scores of the next tile of keys are issued before this tile's become weights, so tensor cores and
 *              exponentials run at the same time; with PINGPONG the warpgroups also take turns
 *
 * Measurements of the forms: docs/lab/cuda-attention.md (bench/gpu/flash.cu). */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/runtime/mma.h"
#include "kernels/cuda/runtime/tma.h"

/* The kernel's argument. The maps have three dimensions: element of a head, then (row, head) for queries and
 * for keys without pages, or (row of the page's heads, page) for keys with pages. */
struct flash {
    CUtensorMap q, k, v;
    attention_task t;
    int spans;
    unsigned *counter; /* tiles taken beyond each block's first one; zero again at the end */
};

/* The form of a block. KEYS: of a tile; GROUPS: consumer warpgroups; STAGES: tiles of keys, and of values, in
 * the ring; QUEUE: tiles of queries in shared memory; OPTIONS: the three flags below. */
template <int DIM_, int KEYS_, int GROUPS_, int STAGES_, int QUEUE_, int OPTIONS> struct flash_shape {
    static const int DIM = DIM_, KEYS = KEYS_, GROUPS = GROUPS_, STAGES = STAGES_, QUEUE = QUEUE_,
                     CHUNKS = DIM / 64;
    static const bool QUERIES_IN_REGISTERS = OPTIONS & 1; /* queries in registers */
    static const bool OVERLAP_TILES =
        OPTIONS & 2; /* the first scores of a tile of queries are issued before the tile before is done */
    static const bool PINGPONG = OPTIONS & 4; /* warpgroups issue products in turns */
    static const int ROWS = 64 * GROUPS, THREADS = 128 * (GROUPS + 1), BOX = KEYS % 64 == 0 ? 64 : 32;
    static const int QUERIES_BYTES = ROWS * DIM * 2, TILE_BYTES = KEYS * DIM * 2;
    static const int SHARED = QUEUE * QUERIES_BYTES + 2 * STAGES * TILE_BYTES + 512;
    /* registers of a consumer and of a producer thread, together what the block was launched with; 0: not
     * redistributed */
    static const int CONSUMER_REGISTERS = GROUPS == 1   ? 0
                                          : GROUPS == 2 ? 240
                                                        : 160,
                     PRODUCER_REGISTERS = GROUPS == 2 ? 24 : 32;
    static_assert(DIM % 64 == 0 && KEYS % 32 == 0 && GROUPS <= 3 && QUEUE <= 2 && STAGES <= 4, "");
};

/* Up to ROWS queries of one head of a span. */
struct query_tile {
    int row, rows, at;       /* first row in the step; how many; position of the first */
    int head, kv;            /* heads 0: there are no more pieces */
    int context, key, tiles; /* keys of the span; first key of the first tile */
    int span_row, table;
};

/* Layout of the block's shared memory, as addresses. Barriers are 8 bytes each; `now`: the tiles whose
 * queries are loaded, 64 bytes each. */
template <typename S> struct flash_shared {
    unsigned queries, keys, values;
    unsigned queries_full, queries_empty, keys_full, keys_empty, values_full, values_empty, tail;
    char *now;

    __device__ flash_shared(char *memory)
    {
        queries = gpu_smem_address(memory), keys = queries + S::QUEUE * S::QUERIES_BYTES,
        values = keys + S::STAGES * S::TILE_BYTES;
        queries_full = values + S::STAGES * S::TILE_BYTES, queries_empty = queries_full + 8 * S::QUEUE;
        keys_full = queries_empty + 8 * S::QUEUE, keys_empty = keys_full + 8 * S::STAGES;
        values_full = keys_empty + 8 * S::STAGES, values_empty = values_full + 8 * S::STAGES;
        tail = values_empty + 8 * S::STAGES;
        now = memory + S::SHARED - 128;
    }
    __device__ query_tile *piece_at(int stage) const
    {
        return reinterpret_cast<query_tile *>(now + 64 * stage);
    }
};

#ifdef GPU_HOPPER

/* A position in a ring, and the parity of its phase. */
template <int COUNT> struct flash_pipeline_state {
    int stage = 0;
    unsigned parity = 0;
    __device__ void next()
    {
        if (++stage == COUNT) stage = 0, parity ^= 1;
    }
};

/* ---- which pieces there are: one warp asks ---- */

/* Tiles are counted from the last rows of the last span, whose contexts are the longest, to the first, with
 * all heads of each. A lane holds one of 32 spans. */
template <typename S> struct flash_scheduler {
    const flash &f;
    proa_span span;
    int group, pieces, upto, before; /* tiles of this lane's span, of the lanes up to it, of the groups before */

    __device__ flash_scheduler(const flash &which) : f(which), group((which.spans - 1) / 32), before(0)
    {
    }

    __device__ int pieces_of(int i)
    {
        span = i >= 0 && i < f.spans ? f.t.spans[i] : proa_span{0, 0, 0, 0};
        return span.rows == 1 && !f.t.kv_row
                   ? 0
                   : (span.rows + S::ROWS - 1) / S::ROWS; /* single rows: the decode kernel's */
    }

    __device__ int all_pieces()
    {
        int sum = 0;
        for (int i = threadIdx.x & 31; i < f.spans; i += 32) sum += pieces_of(i);
        sum = __reduce_add_sync(0xffffffffu, sum);
        look();
        return sum;
    }

    __device__ void look()
    {
        int lane = threadIdx.x & 31;
        upto = pieces = pieces_of(32 * group + 31 - lane);
#pragma unroll
        for (int o = 1; o < 32; o *= 2) {
            int other = __shfl_up_sync(0xffffffffu, upto, o);
            if (lane >= o) upto += other;
        }
    }

    /* which: not less than in the call before. */
    __device__ query_tile find(int which, int head)
    {
        const attention_task &t = f.t;
        for (int all; which - before >= (all = __shfl_sync(0xffffffffu, upto, 31)); look())
            before += all, group--;
        int from = __ffs(__ballot_sync(0xffffffffu, upto > which - before)) - 1;
        int begin = (__shfl_sync(0xffffffffu, upto, from) - 1 - (which - before)) * S::ROWS;
        int rows = __shfl_sync(0xffffffffu, span.rows, from);
        query_tile p;
        p.span_row = __shfl_sync(0xffffffffu, span.row, from),
        p.table = __shfl_sync(0xffffffffu, span.table, from);
        p.context = __shfl_sync(0xffffffffu, span.context, from);
        p.row = p.span_row + begin, p.rows = min(S::ROWS, rows - begin), p.at = p.context - rows + begin;
        p.head = head, p.kv = head / t.group;
        int first = first_key(t, p.at), last = end_key(t, p.context, p.at + p.rows - 1);
        p.key = first / S::BOX * S::BOX, p.tiles = max(0, (last - p.key + S::KEYS - 1) / S::KEYS);
        return p;
    }
};

/* ---- fetching: one warp ---- */

template <typename S> struct flash_producer {
    const flash &f;
    const flash_shared<S> &layout;
    flash_pipeline_state<S::STAGES> place;
    flash_pipeline_state<S::QUEUE> queue;
    int held, held_from; /* 32 page numbers, one a lane */

    __device__ flash_producer(const flash &which, const flash_shared<S> &where)
        : f(which), layout(where), held(0), held_from(-1)
    {
    }

    __device__ int page(const query_tile &p, int which)
    {
        if (held_from < 0 || which >= held_from + 32) {
            int mine = which + (int)(threadIdx.x & 31);
            held = mine * PAGE < p.context ? f.t.pages[p.table + mine] : 0, held_from = which;
        }
        return __shfl_sync(0xffffffffu, held, which - held_from);
    }

    /* Loads the keys [key, key + KEYS) as far as they exist; the barrier counts their bytes. */
    __device__ void tile(const query_tile &p, unsigned to, const CUtensorMap *map, int key, unsigned barrier)
    {
        int boxes = min(S::KEYS, p.context - key + S::BOX - 1) / S::BOX;
        bool one = (threadIdx.x & 31) == 0;
        if (one) gpu_barrier_expect(barrier, boxes * S::BOX * S::DIM * 2);
        for (int i = 0; i < boxes; i++) {
            int from = key + i * S::BOX, y = p.span_row + from, z = p.kv;
            if (!f.t.kv_row) z = page(p, from / PAGE), y = p.kv * PAGE + from % PAGE;
#pragma unroll
            for (int c = 0; c < S::CHUNKS && one; c++)
                gpu_tma_load(to + (c * S::KEYS + i * S::BOX) * 128, map, barrier, c * 64, y, z);
        }
    }

    /* Rows that are no values of the span become zeros, since a weight of zero does not silence a NaN. */
    __device__ void clear(unsigned to, int valid)
    {
        for (int c = 0; c < S::CHUNKS; c++)
            for (int i = valid * 8 + (int)(threadIdx.x & 31); i < S::KEYS * 8; i += 32)
                asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to + c * S::KEYS * 128 + i * 16),
                             "r"(0)
                             : "memory");
        gpu_fence_async();
        __syncwarp();
    }

    __device__ void values(const query_tile &p, int key, unsigned &tail_parity)
    {
        unsigned full = layout.values_full + 8 * place.stage, to = layout.values + place.stage * S::TILE_BYTES;
        gpu_barrier_wait(layout.values_empty + 8 * place.stage, place.parity ^ 1);
        if (key + S::KEYS <= p.context) {
            tile(p, to, &f.v, key, full);
            return;
        }
        tile(p, to, &f.v, key, layout.tail);
        gpu_barrier_wait(layout.tail, tail_parity);
        tail_parity ^= 1;
        clear(to, p.context - key);
        if ((threadIdx.x & 31) == 0) gpu_barrier_arrive(full);
    }

    /* A piece for the warpgroups; of no rows: the last. */
    __device__ void queries(const query_tile &p)
    {
        unsigned full = layout.queries_full + 8 * queue.stage;
        gpu_barrier_wait(layout.queries_empty + 8 * queue.stage, queue.parity ^ 1);
        if ((threadIdx.x & 31) == 0) {
            int groups = (p.rows + 63) / 64;
            *layout.piece_at(queue.stage) = p;
            gpu_barrier_expect(full, groups * 64 * S::DIM * 2);
            for (int g = 0; g < groups; g++)
                for (int c = 0; c < S::CHUNKS; c++)
                    gpu_tma_load(layout.queries + queue.stage * S::QUERIES_BYTES + (g * S::CHUNKS + c) * 8192,
                                 &f.q, full, c * 64, p.row + 64 * g, p.head);
        }
        queue.next();
    }

    __device__ void all(const query_tile &p, unsigned &tail_parity)
    {
        held_from = -1;
        if (p.tiles == 0) queries(p);
        for (int i = 0; i < p.tiles; i++, place.next()) {
            int key = p.key + i * S::KEYS;
            gpu_barrier_wait(layout.keys_empty + 8 * place.stage, place.parity ^ 1);
            tile(p, layout.keys + place.stage * S::TILE_BYTES, &f.k, key, layout.keys_full + 8 * place.stage);
            if (i == 0) queries(p); /* behind the first keys, which need not wait for the tile before */
            values(p, key, tail_parity);
        }
    }
};

template <typename S> __device__ static void flash_produce(const flash &f, const flash_shared<S> &layout)
{
    flash_scheduler<S> walk(f);
    flash_producer<S> fetcher(f, layout);
    unsigned all = (unsigned)(walk.all_pieces() * f.t.heads), item = blockIdx.x, tail_parity = 0;
    bool one = (threadIdx.x & 31) == 0;
    gpu_wait();
    for (;;) {
        unsigned taken = one ? atomicAdd(f.counter, 1u)
                             : 0; /* the tile after this one; each block takes one too many */
        if (one && taken == all + gridDim.x - 1) *f.counter = 0;
        if (item >= all) break;
        fetcher.all(walk.find(item / f.t.heads, item % f.t.heads), tail_parity);
        item = gridDim.x + __shfl_sync(0xffffffffu, taken, 0);
    }
    query_tile none = {};
    fetcher.queries(none);
}

/* ---- multiplying: a warpgroup with 64 queries ---- */

__device__ static inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <typename T, typename S> struct flash_accumulator {
    static const int KEYS = S::KEYS, DIM = S::DIM;
    float score[KEYS / 2], out[DIM / 2], largest[2], total[2], shrink[2];
    unsigned weight[KEYS / 4], held[S::QUERIES_IN_REGISTERS ? DIM / 4 : 1];

    __device__ void begin()
    {
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) out[i] = 0.0f;
        largest[0] = largest[1] = -INFINITY, total[0] = total[1] = 0.0f;
    }

    __device__ void hold(unsigned queries)
    {
        int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            unsigned at = queries + k / 4 * 8192 + row * 128 + ((k % 4 * 2 + lane / 16) ^ (row % 8)) * 16;
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(held[4 * k]), "=r"(held[4 * k + 1]), "=r"(held[4 * k + 2]), "=r"(held[4 * k + 3])
                         : "r"(at)
                         : "memory");
        }
    }

    __device__ void multiply_keys(unsigned queries, unsigned keys)
    {
        gpu_wgmma_fence();
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            uint64_t b = gpu_smem_desc(keys + k / 4 * KEYS * 128 + k % 4 * 32);
            if constexpr (S::QUERIES_IN_REGISTERS) gpu_wgmma<T, KEYS>::run(score, held + 4 * k, b, k > 0);
            else gpu_wgmma<T, KEYS>::run(score, gpu_smem_desc(queries + k / 4 * 8192 + k % 4 * 32), b, k > 0);
        }
        gpu_wgmma_commit();
    }

    __device__ void multiply_values(unsigned values)
    {
        gpu_wgmma_fence();
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
            gpu_wgmma<T, DIM>::run_mn_major(out, weight + 4 * k,
                                            gpu_smem_desc_mn(values + k * 2048, KEYS * 128), true);
        gpu_wgmma_commit();
    }

    /* at: position of the warpgroup's first query; key: first key of the tile. */
    __device__ void mask(const attention_task &t, int at, int key, int context)
    {
        int row = at + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, column = key + threadIdx.x % 4 * 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int end = min(context, end_key(t, context, row + 8 * r)) - column;
            int begin = first_key(t, row + 8 * r) - column;
#pragma unroll
            for (int i = 0; i < KEYS / 4; i++) {
                int p = i / 2 * 8 + i % 2;
                float &s = score[i / 2 * 4 + 2 * r + i % 2];
                s = p < end && p >= begin ? s : -INFINITY;
            }
        }
    }

    /* Online softmax: weights are powers of 2 of (score x unit - the row's reference). The reference is the
     * largest score at the time when it was last moved: as long as no weight exceeds 2^8, moving it would
     * only cost a pass over the sums. */
    __device__ void apply_softmax(float unit)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < KEYS / 4; i++)
                top[i % 4] = fmaxf(top[i % 4], score[i / 2 * 4 + 2 * r + i % 2]);
            float now = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
            bool moves = (now - largest[r]) * unit > 8.0f;
            float reference = moves ? now * unit : largest[r] == -INFINITY ? 0.0f : largest[r] * unit;
            shrink[r] = moves ? exp2_fast(largest[r] * unit - reference) : 1.0f;
            largest[r] = moves ? now : largest[r];
#pragma unroll
            for (int i = 0; i < KEYS / 4; i++) {
                float &s = score[i / 2 * 4 + 2 * r + i % 2];
                s = exp2_fast(fmaf(s, unit, -reference));
                sum[i % 4] += s;
            }
            total[r] = total[r] * shrink[r] + ((sum[0] + sum[1]) + (sum[2] + sum[3]));
        }
    }

    __device__ void pack()
    {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) weight[i] = gpu_mma<T>::pair(score[2 * i], score[2 * i + 1]);
    }

    __device__ void rescale()
    {
        if (!__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) out[i] *= shrink[i / 2 % 2];
    }

    /* row: the warpgroup's first row in the step; rows: how many there are from there. The lanes of a row
     * exchange numbers so that each writes 16 bytes. */
    __device__ void end(const attention_task &t, int row, int rows, int head, float unit)
    {
        int lane = threadIdx.x & 31, c = lane % 4, mine = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = total[r];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            sum += sink_weight(t, head, largest[r] * unit);
            float inverse = sum > 0.0f || isnan(sum) ? 1.0f / sum : 0.0f;
            T *to = (T *)t.y + (int64_t)(row + mine + 8 * r) * t.y_row + head * t.y_head + c * 8;
#pragma unroll
            for (int b = 0; b < DIM / 8; b += 4) {
                unsigned w[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *pair = out + (b + i) * 4 + 2 * r;
                    w[i] = gpu_mma<T>::pair(pair[0] * inverse, pair[1] * inverse);
                }
#pragma unroll
                for (int o = 1; o < 4; o *= 2)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        if (i & o) continue;
                        unsigned &low = w[i], &high = w[i | o];
                        unsigned other = __shfl_xor_sync(0xffffffffu, c & o ? low : high, o);
                        if (c & o) low = other;
                        else high = other;
                    }
                if (mine + 8 * r < rows)
                    *reinterpret_cast<uint4 *>(to + b * 8) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
};

/* What a consumer warpgroup does with the tiles of queries. Scores are issued one tile of keys ahead: while
 * those of tile i become weights, the weights of tile i - 1 are multiplied with their values. */
template <typename T, typename S> struct flash_consumer {
    const attention_task &t;
    const flash_shared<S> &layout;
    const int group; /* of the GROUPS */
    const float unit;
    flash_pipeline_state<S::STAGES> k, v;
    flash_pipeline_state<S::QUEUE> q;
    flash_accumulator<T, S> work;
    query_tile p;
    int tiles; /* of the piece, those that this warpgroup's rows see */

    __device__ flash_consumer(const attention_task &which, const flash_shared<S> &where)
        : t(which), layout(where), group(__shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0)),
          unit(which.scale * 1.4426950408889634f)
    {
    }

    __device__ void release(unsigned barrier)
    {
        __syncwarp();
        if ((threadIdx.x & 31) == 0) gpu_barrier_arrive(barrier);
    }

    __device__ void release_queries()
    {
        release(layout.queries_empty + 8 * q.stage);
        q.next();
    }

    /* Warpgroups issue one after the other, so that one's exponentials overlap another's products. Each takes
     * one turn for each tile of keys. */
    __device__ void wait_turn()
    {
        if constexpr (S::PINGPONG) gpu_named_sync(1 + group, 256);
    }
    __device__ void pass_turn()
    {
        if constexpr (S::PINGPONG) gpu_named_arrive(1 + (group + 1) % S::GROUPS, 256);
    }

    __device__ unsigned queries()
    {
        return layout.queries + q.stage * S::QUERIES_BYTES + group * 64 * S::DIM * 2;
    }
    __device__ void wait_keys()
    {
        gpu_barrier_wait(layout.keys_full + 8 * k.stage, k.parity);
        wait_turn();
    }
    __device__ void release_keys()
    {
        release(layout.keys_empty + 8 * k.stage);
        k.next();
    }
    __device__ void release_values()
    {
        release(layout.values_empty + 8 * v.stage);
        v.next();
    }

    __device__ void issue_scores()
    {
        wait_keys();
        work.multiply_keys(queries(), layout.keys + k.stage * S::TILE_BYTES);
    }
    __device__ void release_scores(int i)
    {
        release_keys();
        if (!S::QUERIES_IN_REGISTERS && i == tiles - 1) release_queries();
    }
    __device__ void issue_values()
    {
        gpu_barrier_wait(layout.values_full + 8 * v.stage, v.parity);
        work.multiply_values(layout.values + v.stage * S::TILE_BYTES);
    }

    /* Tiles that only other warpgroups' rows see. */
    __device__ void skip_keys(int count)
    {
        for (; count > 0; count--) {
            wait_keys();
            pass_turn();
            release_keys();
        }
    }
    __device__ void skip_values(int count)
    {
        for (; count > 0; count--) {
            gpu_barrier_wait(layout.values_full + 8 * v.stage, v.parity);
            release_values();
        }
    }

    __device__ int rows(const query_tile &p)
    {
        return p.rows - 64 * group;
    }
    __device__ int at()
    {
        return p.at + 64 * group;
    }

    /* Takes the next tile of queries; false: there is none. One lane reads it and also releases the queries
     * (racecheck does not follow a lane that acts for others). The shuffles tell the compiler that loop
     * counters are the same in all lanes, so positions in the rings stay in uniform registers. */
    __device__ bool next_tile()
    {
        gpu_barrier_wait(layout.queries_full + 8 * q.stage, q.parity);
        if ((threadIdx.x & 31) == 0) p = *layout.piece_at(q.stage);
        p.row = __shfl_sync(0xffffffffu, p.row, 0), p.rows = __shfl_sync(0xffffffffu, p.rows, 0);
        p.at = __shfl_sync(0xffffffffu, p.at, 0), p.head = __shfl_sync(0xffffffffu, p.head, 0);
        p.context = __shfl_sync(0xffffffffu, p.context, 0), p.key = __shfl_sync(0xffffffffu, p.key, 0);
        p.tiles = __shfl_sync(0xffffffffu, p.tiles, 0);
        if (p.rows == 0) return false;
        int seen = min(p.context, end_key(t, p.context, at() + 63)) - p.key;
        seen = min(p.tiles, (seen + S::KEYS - 1) / S::KEYS);
        tiles = __shfl_sync(0xffffffffu, rows(p) <= 0 ? 0 : max(0, seen), 0);
        if constexpr (S::QUERIES_IN_REGISTERS) {
            work.hold(queries());
            release_queries();
        }
        return true;
    }

    /* Goes on to a tile that has work for this warpgroup, and computes its first scores. taken: the tile has
     * been taken already. */
    __device__ bool start(bool taken)
    {
        for (;; taken = false) {
            if (!taken && !next_tile()) return false;
            if (tiles > 0) break;
            for (int n = 0; n < p.tiles; n++) skip_keys(1), skip_values(1);
            if (!S::QUERIES_IN_REGISTERS) release_queries();
            work.begin();
            work.end(t, p.row + 64 * group, rows(p), p.head, unit);
        }
        issue_scores();
        pass_turn();
        gpu_wgmma_wait<0>();
        release_scores(0);
        return true;
    }

    __device__ void apply_softmax(int i)
    {
        int key = p.key + i * S::KEYS;
        bool cut = t.window > 0 || key + S::KEYS > min(p.context, end_key(t, p.context, at()));
        if (cut) work.mask(t, at(), key, p.context);
        work.apply_softmax(unit);
    }

    /* All tiles of keys; the values of the last one are still to be multiplied. */
    __device__ void walk_tiles()
    {
        work.begin();
        apply_softmax(0);
        work.pack();
        for (int i = 1; i < tiles; i++) {
            issue_scores();
            issue_values();
            pass_turn();
            gpu_wgmma_wait<1>();
            release_scores(i);
            apply_softmax(i);
            gpu_wgmma_wait<0>();
            release_values();
            work.rescale();
            work.pack();
        }
    }

    __device__ void finish()
    {
        issue_values();
        gpu_wgmma_wait<0>();
        release_values();
        for (int left = p.tiles - tiles; left > 0; left--) skip_keys(1), skip_values(1);
        work.end(t, p.row + 64 * group, rows(p), p.head, unit);
    }

    enum state {
        NOT_TAKEN,
        TAKEN,
        SCORES_ISSUED,
        ENDED
    }; /* of the next tile of queries: not taken; taken; taken with its first scores issued; there is none */

    /* Issues the last values of a tile of queries together with the first scores of the next one, unless this
     * would hold back values that the other warpgroups need. */
    __device__ state finish_and_start_next()
    {
        int head = p.head, row = p.row + 64 * group, count = rows(p), left = p.tiles - tiles;
        if (left >= S::STAGES) {
            finish();
            return NOT_TAKEN;
        }
        skip_keys(left);
        bool more = next_tile(), asked = more && tiles > 0;
        if (asked) {
            issue_scores();
            issue_values();
            pass_turn();
            gpu_wgmma_wait<0>();
            release_scores(0);
        } else {
            issue_values();
            gpu_wgmma_wait<0>();
        }
        release_values();
        skip_values(left);
        work.end(t, row, count, head, unit);
        return asked ? SCORES_ISSUED : more ? TAKEN : ENDED;
    }

    __device__ void all()
    {
        gpu_wait();
        if (S::PINGPONG && group == S::GROUPS - 1) pass_turn();
        for (state next = NOT_TAKEN; next != ENDED;) {
            if (next != SCORES_ISSUED && !start(next == TAKEN)) break;
            walk_tiles();
            if constexpr (S::OVERLAP_TILES) next = finish_and_start_next();
            else finish();
        }
    }
};

template <typename S> __device__ static void flash_barriers(const flash_shared<S> &layout)
{
    const int WARPS = 4 * S::GROUPS;
    gpu_barrier_init(layout.tail, 1);
    for (int i = 0; i < 8 * S::QUEUE; i += 8)
        gpu_barrier_init(layout.queries_full + i, 1), gpu_barrier_init(layout.queries_empty + i, WARPS);
    for (int i = 0; i < 8 * S::STAGES; i += 8) {
        gpu_barrier_init(layout.keys_full + i, 1), gpu_barrier_init(layout.keys_empty + i, WARPS);
        gpu_barrier_init(layout.values_full + i, 1), gpu_barrier_init(layout.values_empty + i, WARPS);
    }
    gpu_barrier_fence();
}

#endif

template <typename T, typename S>
__global__ void __launch_bounds__(S::THREADS, 1) prefill_wgmma_kernel(const __grid_constant__ flash f)
{
#ifdef GPU_HOPPER
    extern __shared__ __align__(1024) char tiles[];
    flash_shared<S> layout(tiles);
    if (threadIdx.x == 0) {
        gpu_tensor_map_prefetch(&f.q), gpu_tensor_map_prefetch(&f.k), gpu_tensor_map_prefetch(&f.v);
        flash_barriers<S>(layout);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        if constexpr (S::CONSUMER_REGISTERS > 0) gpu_setmaxnreg_dec<S::PRODUCER_REGISTERS>();
        if (threadIdx.x < 32) flash_produce<S>(f, layout);
        else gpu_wait();
    } else {
        if constexpr (S::CONSUMER_REGISTERS > 0) gpu_setmaxnreg_inc<S::CONSUMER_REGISTERS>();
        flash_consumer<T, S> multiplier(f.t, layout);
        multiplier.all();
    }
#else
    __trap();
#endif
}

/* ---- the host ---- */

static bool map_rows(CUtensorMap *map, proa_dtype type, const void *at, const attention_task &t, int64_t row,
                     int64_t head, int heads)
{
    int64_t extent[3] = {t.dim, t.rows, heads}, stride[2] = {row, head};
    int box[3] = {64, 64, 1};
    return gpu_tensor_map(map, type, at, 3, extent, stride, box);
}

/* The number of pages is not known here; pages that the tables name exist. */
static bool map_keys(CUtensorMap *map, proa_dtype type, const void *at, const attention_task &t, int box_rows)
{
    int64_t held = (int64_t)t.kv_heads * PAGE; /* rows of a page */
    int64_t pages[3] = {t.dim, held, 1 << 26}, pages_stride[2] = {t.dim, held * t.dim};
    int64_t rows[3] = {t.dim, t.rows, t.kv_heads}, rows_stride[2] = {t.kv_row, t.dim};
    int box[3] = {64, box_rows, 1};
    return gpu_tensor_map(map, type, at, 3, t.kv_row ? rows : pages, t.kv_row ? rows_stride : pages_stride, box);
}

template <typename T, typename S>
static bool flash_launch(gpu *g, const attention_task &t, int spans, int rows)
{
    flash f;
    f.t = t, f.spans = spans, f.counter = g->counters;
    if (!map_rows(&f.q, t.type, t.q, t, t.q_row, t.q_head, t.heads) ||
        !map_keys(&f.k, t.type, t.k, t, S::BOX) || !map_keys(&f.v, t.type, t.v, t, S::BOX))
        return false;
    auto kernel = prefill_wgmma_kernel<T, S>;
    int64_t most = (int64_t)spans * t.heads * ((rows + S::ROWS - 1) / S::ROWS);
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED),
             "attend (flash)");
    gpu_launch(g, "attend (flash)", kernel, dim3((unsigned)(most < g->sms ? most : g->sms)), S::THREADS,
               S::SHARED, f);
    return true;
}

/* As many rows a block as leave every SM one; for few and long spans 64 rows. */
template <typename T, typename FULL, typename SMALL>
static bool flash_sized(gpu *g, const attention_task &t, int spans, int rows)
{
    int64_t blocks = (int64_t)spans * t.heads * ((rows + FULL::ROWS - 1) / FULL::ROWS);
    return blocks >= g->sms ? flash_launch<T, FULL>(g, t, spans, rows)
                            : flash_launch<T, SMALL>(g, t, spans, rows);
}

/* Fewer rows are for prefill_mma.cu, whose smaller blocks begin sooner (docs/lab/cuda-attention.md). */
template <typename T> static bool flash_as(gpu *g, const attention_task &t, int spans, int rows)
{
    int64_t small = (int64_t)spans * t.heads * ((rows + 63) / 64);
    if (t.dim == 64 && rows > 64 && 2 * small >= g->sms)
        return flash_sized<T, flash_shape<64, 128, 3, 3, 2, 6>, flash_shape<64, 128, 1, 2, 1, 0>>(g, t, spans,
                                                                                                  rows);
    if (t.dim == 128 && rows > 64)
        return flash_sized<T, flash_shape<128, 128, 2, 2, 1, 4>, flash_shape<128, 128, 1, 2, 1, 0>>(g, t, spans,
                                                                                                    rows);
    if (t.dim == 256 && rows > 32)
        return flash_sized<T, flash_shape<256, 64, 2, 2, 1, 0>, flash_shape<256, 64, 1, 2, 1, 0>>(g, t, spans,
                                                                                                  rows);
    return false;
}

#ifdef PROA_CUDA_90A /* cmake/cuda.cmake: the plug-in was built with Hopper's instructions */
static const bool BUILT = true;
#else
static const bool BUILT = false;
#endif

bool gpu_prefill_wgmma(gpu *g, const attention_task &t, proa_dtype pages, int spans, int rows)
{
    bool ok = BUILT && gpu_hopper(g->index) && t.type == pages && !t.has_score_mod && t.scale > 0.0f &&
              t.kv_row % 8 == 0;
    ok = ok && (t.q_row | t.q_head | t.y_row | t.y_head) % 8 == 0;
    ok = ok && ((uintptr_t)t.q | (uintptr_t)t.y | (uintptr_t)t.k | (uintptr_t)t.v) % 16 == 0;
    if (!ok) return false;
    if (pages == PROA_DTYPE_F16) return flash_as<__half>(g, t, spans, rows);
    return pages == PROA_DTYPE_BF16 && flash_as<__nv_bfloat16>(g, t, spans, rows);
}
