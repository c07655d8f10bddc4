/* SPDX-License-Identifier: Apache-2.0
 * prefill_wgmma.cu - attention of many rows on Hopper (wgmma, TMA; after Shah et al., FlashAttention-3,
 * 2024); 16 bits, head sizes 64, 128, 256, scores without score_mod.
 *
 *   block      persistent, takes tiles of queries (query_tile: up to 64 for each warpgroup) from a counter
 *   packing    the queries of `pack` heads that share their keys are rows of one tile, position by position, so a chunk
 *              of a prompt with few rows fills a tile (pack: a power of 2 that divides the group)
 *   splits     the keys of a tile may be shared by several blocks (Flash-Decoding, Dao et al. 2023), so that few tiles
 *              over a long context fill the card; prefill_merge_kernel adds their parts in the order of the keys
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
    int shift;         /* pack = 1 << shift heads are rows of one tile */
    int splits;        /* of the keys of a tile, at most */
    unsigned *counter; /* tiles taken beyond each block's first one; zero again at the end */
    float *sums;       /* of split tiles: [piece][row of the tile][DIM] */
    float2 *tails; /* [piece][row of the tile]: largest score in powers of 2, sum of the weights relative to it */
};

enum {
    SPLITS_MAX = 32,
    SPLIT_KEYS_MIN = 256, /* of a span for each of its splits */
    SPLIT_CONTEXT_MIN = 1024,
    PARTS_BYTES_MAX = 64 << 20
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
                                          : GROUPS == 2 ? 232
                                                        : 160,
                     PRODUCER_REGISTERS = GROUPS == 2 ? 40 : 32;
    static_assert(DIM % 64 == 0 && KEYS % 32 == 0 && GROUPS <= 3 && QUEUE <= 2 && STAGES <= 4, "");
};

/* Up to ROWS queries of a span and of `pack` heads, and the keys that a block multiplies them with. */
struct query_tile {
    int row, rows, at; /* first row in the step; queries, 0: there are no more pieces; position of the first */
    int head, kv;      /* the first of the heads */
    int context, key, tiles; /* keys of the span; first key of the first tile; tiles of keys */
    int span_row, table;
    int piece, splits; /* number of the piece; parts of the tile's keys */
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

/* Pieces, which are tiles of queries with a part of their keys, are counted from the last rows of the last span, whose
 * contexts are the longest, to the first, with all heads of each. A lane holds one of 32 spans. */
template <typename S> struct flash_scheduler {
    const flash &f;
    proa_span span;
    int group, pieces, upto, before; /* pieces of this lane's span, of the lanes up to it, of the groups before */
    int split;                       /* which of the parts of its tile the piece is that was found last */

    __device__ flash_scheduler(const flash &which) : f(which), group((which.spans - 1) / 32), before(0)
    {
    }

    /* Heads that are counted one by one: each stands for `pack`. */
    __device__ int heads() const
    {
        return f.t.heads >> f.shift;
    }

    __device__ int splits_of(int context) const
    {
        return min(f.splits, max(1, context / SPLIT_KEYS_MIN));
    }

    __device__ int pieces_of(int i)
    {
        span = i >= 0 && i < f.spans ? f.t.spans[i] : proa_span{0, 0, 0, 0};
        if (span.rows == 1 && !f.t.kv_row) return 0; /* the decode kernel's */
        return ((span.rows << f.shift) + S::ROWS - 1) / S::ROWS * splits_of(span.context);
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
        int place = __shfl_sync(0xffffffffu, upto, from) - 1 - (which - before);
        int rows = __shfl_sync(0xffffffffu, span.rows, from);
        query_tile p;
        p.span_row = __shfl_sync(0xffffffffu, span.row, from),
        p.table = __shfl_sync(0xffffffffu, span.table, from);
        p.context = __shfl_sync(0xffffffffu, span.context, from);
        p.splits = splits_of(p.context), split = place % p.splits, p.piece = which * heads() + head;
        int begin = place / p.splits * (S::ROWS >> f.shift);
        p.row = p.span_row + begin, p.at = p.context - rows + begin;
        p.rows = min(S::ROWS, (rows - begin) << f.shift);
        p.head = head << f.shift, p.kv = p.head / t.group;
        int first = first_key(t, p.at), last = end_key(t, p.context, p.at + ((p.rows - 1) >> f.shift));
        p.key = first / S::BOX * S::BOX, p.tiles = max(0, (last - p.key + S::KEYS - 1) / S::KEYS);
        int each = (p.tiles + p.splits - 1) / p.splits;
        p.key += split * each * S::KEYS, p.tiles = max(0, min(each, p.tiles - split * each));
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
                                 &f.q, full, c * 64, p.head, p.row + ((64 * g) >> f.shift));
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
    const int heads = walk.heads();
    unsigned all = (unsigned)(walk.all_pieces() * heads), item = blockIdx.x, tail_parity = 0;
    bool one = (threadIdx.x & 31) == 0;
    gpu_wait();
    for (;;) {
        unsigned taken = one ? atomicAdd(f.counter, 1u)
                             : 0; /* the tile after this one; each block takes one too many */
        if (one && taken == all + gridDim.x - 1) *f.counter = 0;
        if (item >= all) break;
        fetcher.all(walk.find(item / heads, item % heads), tail_parity);
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

/* Where the result of a warpgroup goes. */
struct flash_target {
    int row, rows, head; /* its first row in the step; queries from there on; the first head */
    int part;            /* its first row of the split tiles; -1: the tile is not split */
};

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
    __device__ void mask(const flash &f, int at, int key, int context)
    {
        int query = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, column = key + threadIdx.x % 4 * 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = at + ((query + 8 * r) >> f.shift);
            int end = min(context, end_key(f.t, context, row)) - column, begin = first_key(f.t, row) - column;
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

    /* The sum of the weights of a lane's row r. */
    __device__ float total_of(int r)
    {
        float sum = total[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
    }

    /* Writes the result. The lanes of a row exchange numbers so that each writes 16 bytes. */
    __device__ void end(const flash &f, const flash_target &to, float unit)
    {
        const attention_task &t = f.t;
        int lane = threadIdx.x & 31, c = lane % 4, mine = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int query = mine + 8 * r, head = to.head + (query & ((1 << f.shift) - 1));
            float sum = total_of(r) + sink_weight(t, head, largest[r] * unit);
            float inverse = sum > 0.0f || isnan(sum) ? 1.0f / sum : 0.0f;
            T *y = (T *)t.y + (int64_t)(to.row + (query >> f.shift)) * t.y_row + head * t.y_head + c * 8;
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
                if (query < to.rows)
                    *reinterpret_cast<uint4 *>(y + b * 8) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }

    /* The same of a part of the keys: sums that are not divided yet, and what they are relative to. */
    __device__ void end_part(const flash &f, const flash_target &to, float unit)
    {
        int lane = threadIdx.x & 31, c = lane % 4, mine = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int query = mine + 8 * r;
            int64_t row = (int64_t)to.part + query;
            float sum = total_of(r);
            if (query >= to.rows) continue;
            if (c == 0) f.tails[row] = make_float2(largest[r] * unit, sum);
#pragma unroll
            for (int b = 0; b < DIM / 8; b++)
                *reinterpret_cast<float2 *>(f.sums + row * DIM + b * 8 +
                                            c * 2) = make_float2(out[b * 4 + 2 * r], out[b * 4 + 2 * r + 1]);
        }
    }
};

/* What a consumer warpgroup does with the tiles of queries. Scores are issued one tile of keys ahead: while
 * those of tile i become weights, the weights of tile i - 1 are multiplied with their values. */
template <typename T, typename S> struct flash_consumer {
    const flash &f;
    const attention_task &t;
    const flash_shared<S> &layout;
    const int group; /* of the GROUPS */
    const float unit;
    flash_pipeline_state<S::STAGES> k, v;
    flash_pipeline_state<S::QUEUE> q;
    flash_accumulator<T, S> work;
    query_tile p;
    int tiles; /* of the piece, those that this warpgroup's rows see */

    __device__ flash_consumer(const flash &which, const flash_shared<S> &where)
        : f(which), t(which.t), layout(where), group(__shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0)),
          unit(which.t.scale * 1.4426950408889634f)
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

    /* Positions of the block before this warpgroup's first. */
    __device__ int positions_before()
    {
        return (64 * group) >> f.shift;
    }
    __device__ int at()
    {
        return p.at + positions_before();
    }
    __device__ flash_target target()
    {
        int part = p.splits > 1 ? p.piece * S::ROWS + 64 * group : -1;
        return {p.row + positions_before(), p.rows - 64 * group, p.head, part};
    }
    __device__ void end(const flash_target &to)
    {
        if (to.part < 0) work.end(f, to, unit);
        else work.end_part(f, to, unit);
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
        p.piece = __shfl_sync(0xffffffffu, p.piece, 0), p.splits = __shfl_sync(0xffffffffu, p.splits, 0);
        if (p.rows == 0) return false;
        int seen = min(p.context, end_key(t, p.context, at() + (63 >> f.shift))) - p.key;
        seen = min(p.tiles, (seen + S::KEYS - 1) / S::KEYS);
        tiles = __shfl_sync(0xffffffffu, p.rows <= 64 * group ? 0 : max(0, seen), 0);
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
            end(target());
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
        if (cut) work.mask(f, at(), key, p.context);
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
        end(target());
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
        const flash_target to = target();
        int left = p.tiles - tiles;
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
        end(to);
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
        flash_consumer<T, S> multiplier(f, layout);
        multiplier.all();
    }
#else
    __trap();
#endif
}

/* ---- adding the parts of split tiles ---- */

#ifdef GPU_HOPPER

/* Adds the parts of a tile's query i, a warp for each. first: the piece of the first part; the next are `step` before
 * it. */
template <typename T, typename S>
__device__ static void merge_query(const flash &f, const query_tile &p, int64_t first, int64_t step, int i)
{
    const int DIM = S::DIM, EACH = DIM / 32;
    const attention_task &t = f.t;
    int lane = threadIdx.x & 31, head = p.head + (i & ((1 << f.shift) - 1));
    float2 tail = make_float2(-INFINITY, 0.0f);
    if (lane < p.splits) tail = __ldcg(f.tails + (first - lane * step) * S::ROWS + i);
    float top = gpu_warp_max(tail.x), share = exp2_fast(tail.x - (top == -INFINITY ? 0.0f : top)),
          sum[EACH] = {};
    float total = gpu_warp_sum(share * tail.y) + sink_weight(t, head, top);
#pragma unroll 4
    for (int k = 0; k < p.splits; k++) {
        const float *from = f.sums + ((first - k * step) * S::ROWS + i) * DIM + lane * 2;
        float weight = __shfl_sync(0xffffffffu, share, k);
#pragma unroll
        for (int e = 0; e < EACH; e += 2) {
            float2 v = __ldcg(reinterpret_cast<const float2 *>(from + 32 * e));
            sum[e] = fmaf(weight, v.x, sum[e]), sum[e + 1] = fmaf(weight, v.y, sum[e + 1]);
        }
    }
    float inverse = total > 0.0f || isnan(total) ? 1.0f / total : 0.0f;
    T *y = (T *)t.y + (int64_t)(p.row + (i >> f.shift)) * t.y_row + head * t.y_head + lane * 2;
#pragma unroll
    for (int e = 0; e < EACH; e += 2)
        *reinterpret_cast<unsigned *>(y + 32 * e) = gpu_mma<T>::pair(sum[e] * inverse, sum[e + 1] * inverse);
}

#endif

enum { MERGE_THREADS = 1024 };

/* A block for each piece: of its tile's queries it merges as large a part as its part of the keys was. */
template <typename T, typename S>
__global__ void __launch_bounds__(MERGE_THREADS) prefill_merge_kernel(const __grid_constant__ flash f)
{
#ifdef GPU_HOPPER
    flash_scheduler<S> walk(f);
    int heads = walk.heads(), which = (int)blockIdx.x / heads, head = (int)blockIdx.x % heads;
    bool any = which < walk.all_pieces();
    query_tile p = {};
    if (any) p = walk.find(which, head);
    gpu_wait();
    if (!any || p.splits == 1) return;
    int64_t first = p.piece + (int64_t)walk.split * heads;
    int end = p.rows * (walk.split + 1) / p.splits;
    for (int i = p.rows * walk.split / p.splits + (int)threadIdx.x / 32; i < end; i += MERGE_THREADS / 32)
        merge_query<T, S>(f, p, first, heads, i);
#else
    __trap();
#endif
}

/* ---- the host ---- */

/* Queries: element of a head, head, row. A box is 64 queries of `pack` heads. */
static bool map_queries(CUtensorMap *map, const attention_task &t, int shift)
{
    int64_t extent[3] = {t.dim, t.heads, t.rows}, stride[2] = {t.q_head, t.q_row};
    int box[3] = {64, 1 << shift, 64 >> shift};
    return gpu_tensor_map(map, t.type, t.q, 3, extent, stride, box);
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

/* How a form of block is used: what is known of the step, and what follows from it. */
struct flash_plan {
    int spans, shift, splits;
    int64_t pieces; /* at most, before their keys are split */
};

/* The largest power of 2 that divides the group, as its logarithm. */
static int pack_shift(const attention_task &t)
{
    int shift = 0;
    while (shift < 6 && t.group % (2 << shift) == 0) shift++;
    return shift;
}

/* Splits so that the pieces fill the SMs, in time that is counted in tiles of keys (1.8 us each on an H100): each piece
 * has its beginning and end, and parts have to be written and merged. */
template <typename S>
static int splits_for(const gpu *g, const attention_task &t, const proa_spans *spans, int64_t pieces)
{
    enum { ENDS = 3, MERGE = 8 };
    int64_t tiles = (spans->context_max + S::KEYS - 1) / S::KEYS, best = 0;
    int splits = 1;
    if (t.kv_row || !spans->long_count || spans->context_max < SPLIT_CONTEXT_MIN) return 1;
    for (int n = 1; n <= SPLITS_MAX && n * SPLIT_KEYS_MIN <= spans->context_max; n++) {
        int64_t rounds = (pieces * n + g->sms - 1) / g->sms;
        int64_t time = rounds * ((tiles + n - 1) / n + ENDS) + (n > 1 ? MERGE : 0);
        if (n > 1 && pieces * n * S::ROWS * (S::DIM + 2) * (int64_t)sizeof(float) > PARTS_BYTES_MAX) break;
        if (n == 1 || time < best) best = time, splits = n;
    }
    return splits;
}

template <typename S>
static flash_plan plan_for(const gpu *g, const attention_task &t, const proa_spans *spans)
{
    int shift = pack_shift(t);
    int64_t longest = (((int64_t)spans->rows_max << shift) + S::ROWS - 1) / S::ROWS,
            tiles = spans->count * longest;
    if (spans->long_count && !t.kv_row) { /* each span's last tile may be cut */
        tiles = spans->long_count + ((int64_t)spans->long_rows << shift) / S::ROWS;
        tiles = tiles < spans->long_count * longest ? tiles : spans->long_count * longest;
    }
    int64_t pieces = tiles * (t.heads >> shift);
    return {(int)spans->count, shift, splits_for<S>(g, t, spans, pieces), pieces};
}

template <typename T, typename S>
static bool flash_launch(gpu *g, const attention_task &t, const flash_plan &plan)
{
    flash f;
    int64_t pieces = plan.pieces * plan.splits;
    f.t = t, f.spans = plan.spans, f.shift = plan.shift, f.splits = plan.splits, f.counter = g->counters;
    f.sums = NULL, f.tails = NULL;
    if (!map_queries(&f.q, t, plan.shift) || !map_keys(&f.k, t.type, t.k, t, S::BOX) ||
        !map_keys(&f.v, t.type, t.v, t, S::BOX))
        return false;
    if (plan.splits > 1) {
        size_t rows = (size_t)pieces * S::ROWS;
        f.sums = gpu_partials_workspace(g, rows * (S::DIM + 2) * sizeof(float));
        f.tails = reinterpret_cast<float2 *>(f.sums + rows * S::DIM);
    }
    auto kernel = prefill_wgmma_kernel<T, S>;
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED),
             "attend (flash)");
    gpu_launch(g, "attend (flash)", kernel, dim3((unsigned)(pieces < g->sms ? pieces : g->sms)), S::THREADS,
               S::SHARED, f);
    if (plan.splits > 1)
        gpu_launch(g, "attend (merge)", prefill_merge_kernel<T, S>, dim3((unsigned)pieces), MERGE_THREADS, 0, f);
    return true;
}

/* The form of a block that ends sooner, where a piece of 64 rows takes 0.7 times as long as one of the full form; if keys
 * are split, the full form, unless its rows are too few to fill it. Spans of few rows over a short context are for
 * prefill_mma.cu, whose smaller blocks begin sooner (docs/lab/cuda-attention.md). */
template <typename T, typename FULL, typename SMALL>
static bool flash_sized(gpu *g, const attention_task &t, const proa_spans *spans, bool few)
{
    const flash_plan full = plan_for<FULL>(g, t, spans), small = plan_for<SMALL>(g, t, spans);
    bool splits = full.splits > 1 || small.splits > 1;
    if (few && !splits) return false;
    int64_t rounds[2] = {(full.pieces + g->sms - 1) / g->sms, (small.pieces + g->sms - 1) / g->sms};
    bool tall = splits ? (int64_t)spans->rows_max << full.shift > SMALL::ROWS : 10 * rounds[0] <= 7 * rounds[1];
    return tall ? flash_launch<T, FULL>(g, t, full) : flash_launch<T, SMALL>(g, t, small);
}

template <typename T> static bool flash_as(gpu *g, const attention_task &t, const proa_spans *spans)
{
    int64_t rows = spans->rows_max, blocks = spans->count * t.heads * ((rows + 63) / 64);
    if (t.dim == 64)
        return flash_sized<T, flash_shape<64, 128, 3, 3, 2, 6>, flash_shape<64, 128, 1, 2, 1, 0>>(
            g, t, spans, rows <= 64 || 2 * blocks < g->sms);
    if (t.dim == 128)
        return flash_sized<T, flash_shape<128, 128, 2, 2, 1, 4>, flash_shape<128, 128, 1, 2, 1, 0>>(
            g, t, spans, rows <= 64);
    if (t.dim == 256)
        return flash_sized<T, flash_shape<256, 64, 2, 2, 1, 0>, flash_shape<256, 64, 1, 2, 1, 0>>(g, t, spans,
                                                                                                  rows <= 32);
    return false;
}

#ifdef PROA_CUDA_90A /* cmake/cuda.cmake: the plug-in was built with Hopper's instructions */
static const bool BUILT = true;
#else
static const bool BUILT = false;
#endif

bool gpu_prefill_wgmma(gpu *g, const attention_task &t, proa_dtype pages, const proa_spans *spans)
{
    bool ok = BUILT && gpu_hopper(g->index) && t.type == pages && !t.has_score_mod && t.scale > 0.0f &&
              t.kv_row % 8 == 0;
    ok = ok && (t.q_row | t.q_head | t.y_row | t.y_head) % 8 == 0;
    ok = ok && ((uintptr_t)t.q | (uintptr_t)t.y | (uintptr_t)t.k | (uintptr_t)t.v) % 16 == 0;
    if (!ok) return false;
    if (pages == PROA_DTYPE_F16) return flash_as<__half>(g, t, spans);
    return pages == PROA_DTYPE_BF16 && flash_as<__nv_bfloat16>(g, t, spans);
}
