/* SPDX-License-Identifier: Apache-2.0
 * flash.cu - attention of many rows on Hopper (wgmma, TMA; after Shah et al., FlashAttention-3, 2024). A block stays on its SM
 * and takes piece after piece, 64 queries of a head for each of its warpgroups; one more warpgroup, of which a single warp
 * works, fetches queries, keys and values into rings of shared memory. A warpgroup asks for the next tile's scores before it
 * makes weights of this one's, so that tensor cores and exponentials run side by side. The ladder: README.md. */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/runtime/mma.h"
#include "kernels/cuda/runtime/tma.h"

/* What goes to the kernel. The maps are three-dimensional: element of a head, then (row, head) of queries and of keys without
 * pages, (row of the page's heads, page) of keys with. */
struct flash {
    CUtensorMap q, k, v;
    task t;
    int spans;
    unsigned *counter; /* pieces taken beyond each block's first; zero again at the end */
};

/* How a block is made. KEYS: of a tile; GROUPS: warpgroups that multiply; STAGES: tiles of keys, and of values, in the ring;
 * QUEUE: pieces whose queries lie in shared memory. */
template <int DIM_, int KEYS_, int GROUPS_, int STAGES_, int QUEUE_, int WAY> struct flash_shape {
    static const int DIM = DIM_, KEYS = KEYS_, GROUPS = GROUPS_, STAGES = STAGES_, QUEUE = QUEUE_, CHUNKS = DIM / 64;
    static const bool HELD = WAY & 1;    /* queries in registers */
    static const bool CHAINED = WAY & 2; /* the first scores of a piece are asked for before the piece before is done */
    static const bool TURNS = WAY & 4;   /* warpgroups issue products in turns */
    static const int ROWS = 64 * GROUPS, THREADS = 128 * (GROUPS + 1), BOX = KEYS % 64 == 0 ? 64 : 32;
    static const int QUERIES_BYTES = ROWS * DIM * 2, TILE_BYTES = KEYS * DIM * 2;
    static const int SHARED = QUEUE * QUERIES_BYTES + 2 * STAGES * TILE_BYTES + 512;
    /* of a thread that multiplies, and of one that fetches: together what the block was launched with */
    static const int MANY = GROUPS == 1 ? 0 : GROUPS == 2 ? 240 : 160, FEW = GROUPS == 2 ? 24 : 32;
    static_assert(DIM % 64 == 0 && KEYS % 32 == 0 && GROUPS <= 3 && QUEUE <= 2 && STAGES <= 4, "");
};

/* Up to ROWS queries of one head of a span. */
struct piece {
    int row, rows, at;      /* of the step, the first; how many; the first one's position */
    int head, kv;           /* heads 0: there are no more pieces */
    int context, key, tiles; /* keys of the span; first key of the first tile */
    int span_row, table;
};

/* The block's shared memory: addresses. Barriers are 8 bytes each; `now`: the pieces whose queries there are, 64 bytes each. */
template <typename S> struct flash_room {
    unsigned queries, keys, values;
    unsigned queries_full, queries_empty, keys_full, keys_empty, values_full, values_empty, tail;
    char *now;

    __device__ flash_room(char *memory)
    {
        queries = gpu_shared(memory), keys = queries + S::QUEUE * S::QUERIES_BYTES, values = keys + S::STAGES * S::TILE_BYTES;
        queries_full = values + S::STAGES * S::TILE_BYTES, queries_empty = queries_full + 8 * S::QUEUE;
        keys_full = queries_empty + 8 * S::QUEUE, keys_empty = keys_full + 8 * S::STAGES;
        values_full = keys_empty + 8 * S::STAGES, values_empty = values_full + 8 * S::STAGES;
        tail = values_empty + 8 * S::STAGES;
        now = memory + S::SHARED - 128;
    }
    __device__ piece *piece_at(int stage) const
    {
        return reinterpret_cast<piece *>(now + 64 * stage);
    }
};

#ifdef GPU_HOPPER

/* A place in a ring and the parity of the phase that it is in. */
template <int COUNT> struct flash_place {
    int stage = 0;
    unsigned parity = 0;
    __device__ void next()
    {
        if (++stage == COUNT) stage = 0, parity ^= 1;
    }
};

/* ---- which pieces there are: one warp asks ---- */

/* Pieces are counted from the last rows of the last span, whose contexts are the longest, to the first; of each, all heads. A
 * lane holds one of 32 spans. */
template <typename S> struct flash_walk {
    const flash &f;
    proa_span span;
    int group, pieces, upto, before; /* pieces of this lane's span, of the lanes up to it, of the groups before */

    __device__ flash_walk(const flash &which) : f(which), group((which.spans - 1) / 32), before(0)
    {
    }

    __device__ int pieces_of(int i)
    {
        span = i >= 0 && i < f.spans ? f.t.spans[i] : proa_span{0, 0, 0, 0};
        return span.rows == 1 && !f.t.kv_row ? 0 : (span.rows + S::ROWS - 1) / S::ROWS; /* single rows: the decode kernel's */
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
    __device__ piece find(int which, int head)
    {
        const task &t = f.t;
        for (int all; which - before >= (all = __shfl_sync(0xffffffffu, upto, 31)); look()) before += all, group--;
        int from = __ffs(__ballot_sync(0xffffffffu, upto > which - before)) - 1;
        int begin = (__shfl_sync(0xffffffffu, upto, from) - 1 - (which - before)) * S::ROWS;
        int rows = __shfl_sync(0xffffffffu, span.rows, from);
        piece p;
        p.span_row = __shfl_sync(0xffffffffu, span.row, from), p.table = __shfl_sync(0xffffffffu, span.table, from);
        p.context = __shfl_sync(0xffffffffu, span.context, from);
        p.row = p.span_row + begin, p.rows = min(S::ROWS, rows - begin), p.at = p.context - rows + begin;
        p.head = head, p.kv = head / t.group;
        int first = t.causal && t.window > 0 ? max(0, p.at + 1 - t.window) : 0, last = t.causal ? p.at + p.rows : p.context;
        p.key = first / S::BOX * S::BOX, p.tiles = max(0, (last - p.key + S::KEYS - 1) / S::KEYS);
        return p;
    }
};

/* ---- fetching: one warp ---- */

template <typename S> struct flash_fetcher {
    const flash &f;
    const flash_room<S> &room;
    flash_place<S::STAGES> place;
    flash_place<S::QUEUE> queue;
    int held, held_from; /* 32 page numbers, one a lane */

    __device__ flash_fetcher(const flash &which, const flash_room<S> &where) : f(which), room(where), held(0), held_from(-1)
    {
    }

    __device__ int page(const piece &p, int which)
    {
        if (held_from < 0 || which >= held_from + 32) {
            int mine = which + (int)(threadIdx.x & 31);
            held = mine * PAGE < p.context ? f.t.pages[p.table + mine] : 0, held_from = which;
        }
        return __shfl_sync(0xffffffffu, held, which - held_from);
    }

    /* Keys [key, key + KEYS) as far as there are any; barrier: told of them. */
    __device__ void tile(const piece &p, unsigned to, const CUtensorMap *map, int key, unsigned barrier)
    {
        int boxes = min(S::KEYS, p.context - key + S::BOX - 1) / S::BOX;
        bool one = (threadIdx.x & 31) == 0;
        if (one) gpu_expect(barrier, boxes * S::BOX * S::DIM * 2);
        for (int i = 0; i < boxes; i++) {
            int from = key + i * S::BOX, y = p.span_row + from, z = p.kv;
            if (!f.t.kv_row) z = page(p, from / PAGE), y = p.kv * PAGE + from % PAGE;
#pragma unroll
            for (int c = 0; c < S::CHUNKS && one; c++)
                gpu_fetch(to + (c * S::KEYS + i * S::BOX) * 128, map, barrier, c * 64, y, z);
        }
    }

    /* A weight of zero does not silence a NaN: rows that are no values of the span become zeros. */
    __device__ void clear(unsigned to, int valid)
    {
        for (int c = 0; c < S::CHUNKS; c++)
            for (int i = valid * 8 + (int)(threadIdx.x & 31); i < S::KEYS * 8; i += 32)
                asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to + c * S::KEYS * 128 + i * 16), "r"(0)
                             : "memory");
        gpu_fence_async();
        __syncwarp();
    }

    __device__ void values(const piece &p, int key, unsigned &tail_parity)
    {
        unsigned full = room.values_full + 8 * place.stage, to = room.values + place.stage * S::TILE_BYTES;
        gpu_await(room.values_empty + 8 * place.stage, place.parity ^ 1);
        if (key + S::KEYS <= p.context) {
            tile(p, to, &f.v, key, full);
            return;
        }
        tile(p, to, &f.v, key, room.tail);
        gpu_await(room.tail, tail_parity);
        tail_parity ^= 1;
        clear(to, p.context - key);
        if ((threadIdx.x & 31) == 0) gpu_arrive(full);
    }

    /* A piece for the warpgroups; of no rows: the last. */
    __device__ void queries(const piece &p)
    {
        unsigned full = room.queries_full + 8 * queue.stage;
        gpu_await(room.queries_empty + 8 * queue.stage, queue.parity ^ 1);
        if ((threadIdx.x & 31) == 0) {
            int groups = (p.rows + 63) / 64;
            *room.piece_at(queue.stage) = p;
            gpu_expect(full, groups * 64 * S::DIM * 2);
            for (int g = 0; g < groups; g++)
                for (int c = 0; c < S::CHUNKS; c++)
                    gpu_fetch(room.queries + queue.stage * S::QUERIES_BYTES + (g * S::CHUNKS + c) * 8192, &f.q, full, c * 64,
                              p.row + 64 * g, p.head);
        }
        queue.next();
    }

    __device__ void all(const piece &p, unsigned &tail_parity)
    {
        held_from = -1;
        if (p.tiles == 0) queries(p);
        for (int i = 0; i < p.tiles; i++, place.next()) {
            int key = p.key + i * S::KEYS;
            gpu_await(room.keys_empty + 8 * place.stage, place.parity ^ 1);
            tile(p, room.keys + place.stage * S::TILE_BYTES, &f.k, key, room.keys_full + 8 * place.stage);
            if (i == 0) queries(p); /* behind the first keys: these need not wait for the piece before */
            values(p, key, tail_parity);
        }
    }
};

template <typename S> __device__ static void flash_fetch(const flash &f, const flash_room<S> &room)
{
    flash_walk<S> walk(f);
    flash_fetcher<S> fetcher(f, room);
    unsigned all = (unsigned)(walk.all_pieces() * f.t.heads), item = blockIdx.x, tail_parity = 0;
    bool one = (threadIdx.x & 31) == 0;
    gpu_wait();
    for (;;) {
        unsigned taken = one ? atomicAdd(f.counter, 1u) : 0; /* the piece after this one; each block takes one too many */
        if (one && taken == all + gridDim.x - 1) *f.counter = 0;
        if (item >= all) break;
        fetcher.all(walk.find(item / f.t.heads, item % f.t.heads), tail_parity);
        item = gridDim.x + __shfl_sync(0xffffffffu, taken, 0);
    }
    piece none = {};
    fetcher.queries(none);
}

/* ---- multiplying: a warpgroup with 64 queries ---- */

__device__ static inline float exponential(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <typename T, typename S> struct flash_worker {
    static const int KEYS = S::KEYS, DIM = S::DIM;
    float score[KEYS / 2], out[DIM / 2], largest[2], total[2], shrink[2];
    unsigned weight[KEYS / 4], held[S::HELD ? DIM / 4 : 1];

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
        gpu_wgmma_begin();
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            uint64_t b = gpu_matrix(keys + k / 4 * KEYS * 128 + k % 4 * 32);
            if constexpr (S::HELD) gpu_wgmma<T, KEYS>::run(score, held + 4 * k, b, k > 0);
            else gpu_wgmma<T, KEYS>::run(score, gpu_matrix(queries + k / 4 * 8192 + k % 4 * 32), b, k > 0);
        }
        gpu_wgmma_end();
    }

    __device__ void multiply_values(unsigned values)
    {
        gpu_wgmma_begin();
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
            gpu_wgmma<T, DIM>::run_turned(out, weight + 4 * k, gpu_matrix_turned(values + k * 2048, KEYS * 128), true);
        gpu_wgmma_end();
    }

    /* at: position of the warpgroup's first query; key: the tile's first. */
    __device__ void mask(const task &t, int at, int key, int context)
    {
        int row = at + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, column = key + threadIdx.x % 4 * 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int end = (t.causal ? min(context, row + 8 * r + 1) : context) - column;
            int begin = t.causal && t.window > 0 ? row + 8 * r + 1 - t.window - column : -column;
#pragma unroll
            for (int i = 0; i < KEYS / 4; i++) {
                int p = i / 2 * 8 + i % 2;
                float &s = score[i / 2 * 4 + 2 * r + i % 2];
                s = p < end && p >= begin ? s : -INFINITY;
            }
        }
    }

    /* Scores become weights, powers of 2 of scores times unit less a row's reference. That is its largest score when it was
     * last moved: as long as none is 2^8 times larger, moving it would only cost a pass over the sums. */
    __device__ void soften(float unit)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < KEYS / 4; i++) top[i % 4] = fmaxf(top[i % 4], score[i / 2 * 4 + 2 * r + i % 2]);
            float now = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
            bool moves = (now - largest[r]) * unit > 8.0f;
            float reference = moves ? now * unit : largest[r] == -INFINITY ? 0.0f : largest[r] * unit;
            shrink[r] = moves ? exponential(largest[r] * unit - reference) : 1.0f;
            largest[r] = moves ? now : largest[r];
#pragma unroll
            for (int i = 0; i < KEYS / 4; i++) {
                float &s = score[i / 2 * 4 + 2 * r + i % 2];
                s = exponential(fmaf(s, unit, -reference));
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

    /* row: of the step, the warpgroup's first; rows: that there are from there. The lanes of a row change places so that each
     * writes 16 bytes. */
    __device__ void end(const task &t, int row, int rows, int head)
    {
        int lane = threadIdx.x & 31, c = lane % 4, mine = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = total[r];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
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
                if (mine + 8 * r < rows) *reinterpret_cast<uint4 *>(to + b * 8) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
};

/* What a warpgroup does with the pieces that come. Scores are asked for a tile ahead: while those of tile i become weights, the
 * weights of tile i - 1 meet their values. */
template <typename T, typename S> struct flash_multiplier {
    const task &t;
    const flash_room<S> &room;
    const int group; /* of the GROUPS */
    const float unit;
    flash_place<S::STAGES> k, v;
    flash_place<S::QUEUE> q;
    flash_worker<T, S> work;
    piece p;
    int tiles; /* of the piece, those that this warpgroup's rows see */

    __device__ flash_multiplier(const task &which, const flash_room<S> &where)
        : t(which), room(where), group(__shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0)),
          unit(which.scale * 1.4426950408889634f)
    {
    }

    __device__ void leave(unsigned barrier)
    {
        __syncwarp();
        if ((threadIdx.x & 31) == 0) gpu_arrive(barrier);
    }

    __device__ void leave_queries()
    {
        leave(room.queries_empty + 8 * q.stage);
        q.next();
    }

    /* Warpgroups issue one after the other, so that one's exponentials meet another's products. Each takes a turn for each tile
     * of keys. */
    __device__ void my_turn()
    {
        if constexpr (S::TURNS) gpu_named_sync(1 + group, 256);
    }
    __device__ void your_turn()
    {
        if constexpr (S::TURNS) gpu_named_arrive(1 + (group + 1) % S::GROUPS, 256);
    }

    __device__ unsigned queries()
    {
        return room.queries + q.stage * S::QUERIES_BYTES + group * 64 * S::DIM * 2;
    }
    __device__ void await_keys()
    {
        gpu_await(room.keys_full + 8 * k.stage, k.parity);
        my_turn();
    }
    __device__ void leave_keys()
    {
        leave(room.keys_empty + 8 * k.stage);
        k.next();
    }
    __device__ void leave_values()
    {
        leave(room.values_empty + 8 * v.stage);
        v.next();
    }

    __device__ void ask_scores()
    {
        await_keys();
        work.multiply_keys(queries(), room.keys + k.stage * S::TILE_BYTES);
    }
    __device__ void scores_came(int i)
    {
        leave_keys();
        if (!S::HELD && i == tiles - 1) leave_queries();
    }
    __device__ void meet_values()
    {
        gpu_await(room.values_full + 8 * v.stage, v.parity);
        work.multiply_values(room.values + v.stage * S::TILE_BYTES);
    }

    /* Tiles that only other warpgroups' rows see. */
    __device__ void pass_keys(int count)
    {
        for (; count > 0; count--) {
            await_keys();
            your_turn();
            leave_keys();
        }
    }
    __device__ void pass_values(int count)
    {
        for (; count > 0; count--) {
            gpu_await(room.values_full + 8 * v.stage, v.parity);
            leave_values();
        }
    }

    __device__ int rows(const piece &p)
    {
        return p.rows - 64 * group;
    }
    __device__ int at()
    {
        return p.at + 64 * group;
    }

    /* The next piece; false: there is none. One lane reads it, which also says when the queries have been read (racecheck follows
     * no lane that speaks for others). What loops count by the compiler then knows to be one number for the warp: places in the
     * rings stay in uniform registers. */
    __device__ bool take()
    {
        gpu_await(room.queries_full + 8 * q.stage, q.parity);
        if ((threadIdx.x & 31) == 0) p = *room.piece_at(q.stage);
        p.row = __shfl_sync(0xffffffffu, p.row, 0), p.rows = __shfl_sync(0xffffffffu, p.rows, 0);
        p.at = __shfl_sync(0xffffffffu, p.at, 0), p.head = __shfl_sync(0xffffffffu, p.head, 0);
        p.context = __shfl_sync(0xffffffffu, p.context, 0), p.key = __shfl_sync(0xffffffffu, p.key, 0);
        p.tiles = __shfl_sync(0xffffffffu, p.tiles, 0);
        if (p.rows == 0) return false;
        int seen = t.causal ? min(p.tiles, (min(p.context, at() + 64) - p.key + S::KEYS - 1) / S::KEYS) : p.tiles;
        tiles = __shfl_sync(0xffffffffu, rows(p) <= 0 ? 0 : max(0, seen), 0);
        if constexpr (S::HELD) {
            work.hold(queries());
            leave_queries();
        }
        return true;
    }

    /* Up to a piece of which there is something to do, and its first scores. taken: the piece is there already. */
    __device__ bool start(bool taken)
    {
        for (;; taken = false) {
            if (!taken && !take()) return false;
            if (tiles > 0) break;
            for (int n = 0; n < p.tiles; n++) pass_keys(1), pass_values(1);
            if (!S::HELD) leave_queries();
            work.begin();
            work.end(t, p.row + 64 * group, rows(p), p.head);
        }
        ask_scores();
        your_turn();
        gpu_wgmma_wait<0>();
        scores_came(0);
        return true;
    }

    __device__ void soften(int i)
    {
        int key = p.key + i * S::KEYS;
        bool cut = key + S::KEYS > (t.causal ? min(p.context, at() + 1) : p.context) || (t.causal && t.window > 0);
        if (cut) work.mask(t, at(), key, p.context);
        work.soften(unit);
    }

    /* The piece's weights so far but those of the last tile meet their values. */
    __device__ void walk_tiles()
    {
        work.begin();
        soften(0);
        work.pack();
        for (int i = 1; i < tiles; i++) {
            ask_scores();
            meet_values();
            your_turn();
            gpu_wgmma_wait<1>();
            scores_came(i);
            soften(i);
            gpu_wgmma_wait<0>();
            leave_values();
            work.rescale();
            work.pack();
        }
    }

    __device__ void finish()
    {
        meet_values();
        gpu_wgmma_wait<0>();
        leave_values();
        for (int left = p.tiles - tiles; left > 0; left--) pass_keys(1), pass_values(1);
        work.end(t, p.row + 64 * group, rows(p), p.head);
    }

    enum state { FRESH, TAKEN, ASKED, ENDED }; /* of the next piece: nothing, it is there, and its first scores; there is none */

    /* The last values of a piece together with the first scores of the next, unless this would hold values back that the other
     * warpgroups need. */
    __device__ state chain()
    {
        int head = p.head, row = p.row + 64 * group, count = rows(p), left = p.tiles - tiles;
        if (left >= S::STAGES) {
            finish();
            return FRESH;
        }
        pass_keys(left);
        bool more = take(), asked = more && tiles > 0;
        if (asked) {
            ask_scores();
            meet_values();
            your_turn();
            gpu_wgmma_wait<0>();
            scores_came(0);
        } else {
            meet_values();
            gpu_wgmma_wait<0>();
        }
        leave_values();
        pass_values(left);
        work.end(t, row, count, head);
        return asked ? ASKED : more ? TAKEN : ENDED;
    }

    __device__ void all()
    {
        gpu_wait();
        if (S::TURNS && group == S::GROUPS - 1) your_turn();
        for (state next = FRESH; next != ENDED;) {
            if (next != ASKED && !start(next == TAKEN)) break;
            walk_tiles();
            if constexpr (S::CHAINED) next = chain();
            else finish();
        }
    }
};

template <typename S> __device__ static void flash_barriers(const flash_room<S> &room)
{
    const int WARPS = 4 * S::GROUPS;
    gpu_barrier_init(room.tail, 1);
    for (int i = 0; i < 8 * S::QUEUE; i += 8)
        gpu_barrier_init(room.queries_full + i, 1), gpu_barrier_init(room.queries_empty + i, WARPS);
    for (int i = 0; i < 8 * S::STAGES; i += 8) {
        gpu_barrier_init(room.keys_full + i, 1), gpu_barrier_init(room.keys_empty + i, WARPS);
        gpu_barrier_init(room.values_full + i, 1), gpu_barrier_init(room.values_empty + i, WARPS);
    }
    gpu_barriers_made();
}

#endif

template <typename T, typename S> __global__ void __launch_bounds__(S::THREADS, 1) flash_kernel(const __grid_constant__ flash f)
{
#ifdef GPU_HOPPER
    extern __shared__ __align__(1024) char tiles[];
    flash_room<S> room(tiles);
    if (threadIdx.x == 0) {
        gpu_map_prefetch(&f.q), gpu_map_prefetch(&f.k), gpu_map_prefetch(&f.v);
        flash_barriers<S>(room);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        if constexpr (S::MANY > 0) gpu_registers_fewer<S::FEW>();
        if (threadIdx.x < 32) flash_fetch<S>(f, room);
        else gpu_wait();
    } else {
        if constexpr (S::MANY > 0) gpu_registers_more<S::MANY>();
        flash_multiplier<T, S> multiplier(f.t, room);
        multiplier.all();
    }
#else
    __trap();
#endif
}

/* ---- the host ---- */

static bool map_rows(CUtensorMap *map, proa_dtype type, const void *at, const task &t, int64_t row, int64_t head, int heads)
{
    int64_t extent[3] = {t.dim, t.rows, heads}, stride[2] = {row, head};
    int box[3] = {64, 64, 1};
    return gpu_map(map, type, at, 3, extent, stride, box);
}

/* How many pages there are the kernel doesn't know: those of the tables exist. */
static bool map_keys(CUtensorMap *map, proa_dtype type, const void *at, const task &t, int box_rows)
{
    int64_t held = (int64_t)t.kv_heads * PAGE; /* rows of a page */
    int64_t pages[3] = {t.dim, held, 1 << 26}, pages_stride[2] = {t.dim, held * t.dim};
    int64_t rows[3] = {t.dim, t.rows, t.kv_heads}, rows_stride[2] = {t.kv_row, t.dim};
    int box[3] = {64, box_rows, 1};
    return gpu_map(map, type, at, 3, t.kv_row ? rows : pages, t.kv_row ? rows_stride : pages_stride, box);
}

template <typename T, typename S> static bool flash_launch(gpu *g, const task &t, int spans, int rows)
{
    flash f;
    f.t = t, f.spans = spans, f.counter = g->counters;
    if (!map_rows(&f.q, t.type, t.q, t, t.q_row, t.q_head, t.heads) || !map_keys(&f.k, t.type, t.k, t, S::BOX) ||
        !map_keys(&f.v, t.type, t.v, t, S::BOX))
        return false;
    auto kernel = flash_kernel<T, S>;
    int64_t most = (int64_t)spans * t.heads * ((rows + S::ROWS - 1) / S::ROWS);
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED), "attend (flash)");
    gpu_launch(g, "attend (flash)", kernel, dim3((unsigned)(most < g->sms ? most : g->sms)), S::THREADS, S::SHARED, f);
    return true;
}

/* As many rows a block as leave every SM one; few and long spans: 64 rows. */
template <typename T, typename FULL, typename SMALL> static bool flash_sized(gpu *g, const task &t, int spans, int rows)
{
    int64_t blocks = (int64_t)spans * t.heads * ((rows + FULL::ROWS - 1) / FULL::ROWS);
    return blocks >= g->sms ? flash_launch<T, FULL>(g, t, spans, rows) : flash_launch<T, SMALL>(g, t, spans, rows);
}

/* Fewer rows than these are prefill.cu's: its blocks are of fewer rows and begin sooner. README.md has the ladder. */
template <typename T> static bool flash_as(gpu *g, const task &t, int spans, int rows)
{
    int64_t small = (int64_t)spans * t.heads * ((rows + 63) / 64);
    if (t.dim == 64 && rows > 64 && 2 * small >= g->sms)
        return flash_sized<T, flash_shape<64, 128, 3, 3, 2, 6>, flash_shape<64, 128, 1, 2, 1, 0>>(g, t, spans, rows);
    if (t.dim == 128 && rows > 64)
        return flash_sized<T, flash_shape<128, 128, 2, 2, 1, 4>, flash_shape<128, 128, 1, 2, 1, 0>>(g, t, spans, rows);
    if (t.dim == 256 && rows > 32)
        return flash_sized<T, flash_shape<256, 64, 2, 2, 1, 0>, flash_shape<256, 64, 1, 2, 1, 0>>(g, t, spans, rows);
    return false;
}

#ifdef PROA_CUDA_90A /* cmake/cuda.cmake: the plug-in has Hopper's instructions */
static const bool BUILT = true;
#else
static const bool BUILT = false;
#endif

bool gpu_flash(gpu *g, const task &t, proa_dtype pages, int spans, int rows)
{
    bool ok = BUILT && gpu_hopper(g->index) && t.type == pages && !t.shaped && t.scale > 0.0f && t.kv_row % 8 == 0;
    ok = ok && (t.q_row | t.q_head | t.y_row | t.y_head) % 8 == 0;
    ok = ok && ((uintptr_t)t.q | (uintptr_t)t.y | (uintptr_t)t.k | (uintptr_t)t.v) % 16 == 0;
    if (!ok) return false;
    if (pages == PROA_DTYPE_F16) return flash_as<__half>(g, t, spans, rows);
    return pages == PROA_DTYPE_BF16 && flash_as<__nv_bfloat16>(g, t, spans, rows);
}
