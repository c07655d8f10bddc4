/* SPDX-License-Identifier: Apache-2.0
 * grouped_wgmma.cu - grouped products of two rows and more on Hopper, weights of 16 and 8 bits. The weights are the
 * left factor of wgmma: they come into shared memory as they are stored, and each warp unpacks its 16 rows into
 * registers. So a product of weights of 8 bits reads 8 bits, and the rows of x are rounded to nothing but their 16 bits.
 *
 * The order of k within a slot is free as long as both sides agree. A lane takes whole pieces of 16 bytes of a row of
 * weights; the numbers of x stand where these products need them (wgmma_place). Rows of x are brought into this order,
 * sorted by expert, by gather_kernel; the FFN is written in it by the first product. */
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/runtime/ring.h"

enum {
    GATHER_THREADS = 256,
    BOX = 32,               /* rows that one load brings at most */
    BOX_BYTES = BOX * 128,  /* of 128 bytes */
    STRIP_BYTES = 64 * 128, /* the rows of weights of a warpgroup */
    SHARED_MAX = 200 << 10  /* of the blocks of an SM, for slots */
};

/* Where number k of a row stands: within 8 COUNT numbers, COUNT of them in a piece of 16 bytes. Lane c of a row of
 * mma's A takes piece 2 c + s in step s; of its product j these are the columns 2 c, 2 c + 1 and 2 c + 8, 2 c + 9. */
__host__ __device__ static inline int wgmma_place(int k, int count)
{
    int within = k & (8 * count - 1), piece = within / count, i = within & (count - 1);
    return k - within + piece % 2 * 4 * count + i / 4 * 16 + i % 4 / 2 * 8 + piece / 2 * 2 + i % 2;
}

/* Which number stands there. */
__device__ static inline int wgmma_number(int place, int count)
{
    int within = place & (8 * count - 1), s = within / (4 * count), j = within % (4 * count) / 16,
        i = within % 16;
    return place - within + (i % 8 / 2 * 2 + s) * count + 4 * j + i / 8 * 2 + i % 2;
}

/* ---- the rows of x ---- */

struct gather_call {
    expert_lists lists;
    bool releases; /* only then the next kernel: it reads the lists before its wait */
    const void *x;
    int64_t x_row;
    void *to; /* [pairs][ld] */
    int64_t ld;
    int K, count;
    bool aligned; /* pairs of numbers of x are */
    void *ffn; /* whose numbers behind F in the last ffn_tail become zeros: products read them. ffn_tail 0: none are */
    int64_t ffn_row;
    int ffn_tail;
};

/* Two numbers from k on, zeros behind K. aligned: k is even, and they are loaded as one. */
template <typename T> __device__ static inline float2 load_two(const T *x, int k, int K, bool aligned)
{
    if (!aligned || k + 1 >= K)
        return make_float2(k < K ? gpu_to_f32(x[k]) : 0.0f, k + 1 < K ? gpu_to_f32(x[k + 1]) : 0.0f);
    struct alignas(2 * sizeof(T)) {
        T at[2];
    } two = *reinterpret_cast<const decltype(two) *>(x + k);
    return make_float2(gpu_to_f32(two.at[0]), gpu_to_f32(two.at[1]));
}

/* Row blockIdx.x of the sorted pairs in 16 bits, zeros behind K. A thread makes eight numbers, of four pieces. */
template <typename To, typename From>
__global__ void __launch_bounds__(GATHER_THREADS) gather_kernel(gather_call a)
{
    if (a.releases) gpu_wait_then_release();
    else gpu_wait();
    int64_t place = blockIdx.x;
    const From *x = (const From *)a.x + a.lists.pair[place] / a.lists.k * a.x_row;
    To *to = (To *)a.to + place * a.ld;
    int at = (int)(blockIdx.y * GATHER_THREADS + threadIdx.x) * 8, k = wgmma_number(at, a.count);
    if (at < a.ld) {
        unsigned v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 two = load_two(x, k + i * 2 * a.count, a.K, a.aligned);
            v[i] = gpu_pack2<To>(two.x, two.y);
        }
        *reinterpret_cast<uint4 *>(to + at) = make_uint4(v[0], v[1], v[2], v[3]);
    }
    if (blockIdx.y == 0 && (int)threadIdx.x < a.ffn_tail)
        ((To *)a.ffn)[(place + 1) * a.ffn_row - 1 - threadIdx.x] = gpu_from_f32<To>(0.0f);
}

/* ---- the product ---- */

/* Products of few rows fill their slots with weights before their wait, behind a kernel that has waited for the lists.
 * Of more rows bytes that are requested early delay the rows that are written beside. */
__host__ __device__ constexpr bool begins_early(int tile_rows)
{
    return tile_rows <= 16;
}

/* Up to 16 rows the bytes of the weights are the limit: four blocks of one warpgroup an SM, so that one begins an item
 * while another ends one. More rows: one block of as many warpgroups as registers allow, which share what it loads of
 * x. With two of them rows of x were as many bytes from the L2 cache as half of the weights (32 rows), or all (64). */
template <int FORMAT, int ROWS> struct wgmma_form {
    static const int COUNT = unpacked<FORMAT>::COUNT, DEPTH = 8 * COUNT; /* numbers of K in a slot */
    static const int GROUPS = ROWS <= 16 ? 1 : ROWS == 32 ? 4 : ROWS == 64 ? 3 : 2; /* warpgroups */
    static const int BLOCKS = ROWS <= 16 ? 4 : 1;                                   /* of an SM */
    static const int CONSUMERS = 4 * GROUPS, THREADS = (CONSUMERS + 1) * 32;        /* warps */
    static const int PANELS = DEPTH / 64, PANEL = ROWS * 128;                       /* of x */
    static const int X_BOX = ROWS < BOX ? ROWS : BOX;
    static const int X_AT = GROUPS * STRIP_BYTES, SLOT = X_AT + PANELS * PANEL;
    static const int FIT = SHARED_MAX / BLOCKS / SLOT, SLOTS = FIT < 8 ? FIT : 8;
    static const int BARRIERS_AT = SLOTS * SLOT, BYTES = BARRIERS_AT + SLOTS * 16 + 1024;
};

/* What a block works on next: all tiles of some outputs, then of the next, so that tiles of one expert share its
 * weights in the L2 cache. */
struct wgmma_work {
    int tiles, items, stages;
};

#ifdef GPU_HOPPER

/* First output of a warpgroup, and how many it makes. */
__device__ static inline int outputs_each(const expert_call &a)
{
    return a.e.gate_rows ? 32 : 64;
}

/* A tile and the first output of its block. Not from the L1 cache: read before gpu_wait. */
struct wgmma_item {
    expert_tile tile;
    int n;
    __device__ wgmma_item(const expert_call &a, const wgmma_work &work, int item, int outputs)
        : n(item / work.tiles * outputs)
    {
        const int *from = reinterpret_cast<const int *>(a.lists.tiles + item % work.tiles);
        tile = {__ldcg(from), __ldcg(from + 1), __ldcg(from + 2)};
    }
};

/* Step k of an item's weights into a slot, whose barrier will count those of x too. */
template <typename F>
__device__ static inline void fetch_weights(const gpu_ring &ring, int slot, const expert_call &a,
                                            const CUtensorMap *w, const wgmma_item &item, int k)
{
    unsigned to = ring.slots + slot * F::SLOT, full = ring.full + 8 * slot;
    int boxes = (item.tile.rows + F::X_BOX - 1) / F::X_BOX;
    gpu_barrier_expect(full, F::X_AT + boxes * F::PANELS * F::X_BOX * 128);
#pragma unroll
    for (int i = 0; i < 2 * F::GROUPS; i++) { /* gated: 32 rows of the gate, the 32 of its factor, the next 32, .. */
        int row = item.n + (a.e.gate_rows ? i / 2 * BOX + i % 2 * a.e.gate_rows : i * BOX);
        gpu_tma_load(to + i * BOX_BYTES, w, full, k * 64, row, item.tile.expert);
    }
}

template <typename F>
__device__ static inline void fetch_rows(const gpu_ring &ring, int slot, const CUtensorMap *x,
                                         const wgmma_item &item, int k)
{
    unsigned to = ring.slots + slot * F::SLOT + F::X_AT, full = ring.full + 8 * slot;
    int boxes = (item.tile.rows + F::X_BOX - 1) / F::X_BOX;
    for (int p = 0; p < F::PANELS; p++)
        for (int i = 0; i < boxes; i++)
            gpu_tma_load(to + p * F::PANEL + i * BOX_BYTES, x, full, k * F::DEPTH + p * 64,
                         item.tile.first + i * F::X_BOX);
}

/* One thread. */
template <typename F>
__device__ static void fetch_items(const gpu_ring &ring, const expert_call &a, const wgmma_work &work,
                                   const CUtensorMap *w, const CUtensorMap *x)
{
    gpu_ring_cursor<F::SLOTS> at = {0, 0};
    for (int item = blockIdx.x; item < work.items; item += gridDim.x) {
        expert_tile tile = a.lists.tiles[item % work.tiles];
        int n = item / work.tiles * F::GROUPS * outputs_each(a), boxes = (tile.rows + F::X_BOX - 1) / F::X_BOX;
        for (int k = 0; k < work.stages; k++, at.step()) {
            unsigned to = ring.slots + at.slot * F::SLOT, full = ring.full + 8 * at.slot;
            gpu_barrier_wait(ring.empty + 8 * at.slot, at.phase ^ 1);
            gpu_barrier_expect(full, F::X_AT + boxes * F::PANELS * F::X_BOX * 128);
#pragma unroll
            for (int i = 0; i < 2 * F::GROUPS;
                 i++) /* gated: 32 rows of the gate, the 32 of its factor, the next 32 of the gate, .. */
                gpu_tma_load(to + i * BOX_BYTES, w, full, k * 64,
                             a.e.gate_rows ? n + i / 2 * BOX + i % 2 * a.e.gate_rows : n + i * BOX, tile.expert);
            for (int p = 0; p < F::PANELS; p++)
                for (int i = 0; i < boxes; i++)
                    gpu_tma_load(to + F::X_AT + p * F::PANEL + i * BOX_BYTES, x, full, k * F::DEPTH + p * 64,
                                 tile.first + i * F::X_BOX);
        }
    }
}

/* The same, but the weights of the first slots are requested before the wait. */
template <typename F>
__device__ static void fetch_items_early(const gpu_ring &ring, const expert_call &a, const wgmma_work &work,
                                         const CUtensorMap *w, const CUtensorMap *x)
{
    gpu_ring_cursor<F::SLOTS> at = {0, 0};
    int ahead = 0, outputs = F::GROUPS * outputs_each(a);
    if ((int)blockIdx.x < work.items) {
        wgmma_item first(a, work, blockIdx.x, outputs);
        for (; ahead < F::SLOTS && ahead < work.stages; ahead++)
            fetch_weights<F>(ring, ahead, a, w, first, ahead);
    }
    gpu_wait_then_release();
    for (int i = blockIdx.x; i < work.items; i += gridDim.x) {
        wgmma_item item(a, work, i, outputs);
        for (int k = 0; k < work.stages; k++, at.step()) {
            if (ahead > 0) ahead--;
            else {
                gpu_barrier_wait(ring.empty + 8 * at.slot, at.phase ^ 1);
                fetch_weights<F>(ring, at.slot, a, w, item, k);
            }
            fetch_rows<F>(ring, at.slot, x, item, k);
        }
    }
}

/* Where a lane finds its two rows of weights: their offsets in the strip, and its swizzle. */
struct wgmma_lane {
    unsigned row[2], r, c;
};

/* sum += the strip of weights times N rows of x, over all of K. While the tensor cores multiply a step the next one is
 * unpacked. */
template <int FORMAT, typename F, int N>
__device__ static inline void multiply_strip(float (&sum)[N / 2], const gpu_ring &ring,
                                             gpu_ring_cursor<F::SLOTS> &at, int stages, unsigned strip,
                                             const wgmma_lane &lane)
{
    typedef exact_unpacked<FORMAT> form;
    const int FOURS = form::COUNT / 4;
    unsigned pairs[2][FOURS][4];
    int before = -1;
    for (int k = 0; k < stages; k++) {
        unsigned slot = ring.slots + at.slot * F::SLOT;
        gpu_barrier_wait(ring.full + 8 * at.slot, at.phase);
#pragma unroll
        for (int s = 0; s < 2; s++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint4 v = gpu_load_shared(slot + strip + lane.row[i] + ((2 * lane.c + s) ^ lane.r) * 16);
                const unsigned bytes[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int j = 0; j < FOURS; j++) form::pairs(bytes, j, pairs[s][j][i], pairs[s][j][2 + i]);
            }
            gpu_wgmma_fence();
#pragma unroll
            for (int j = 0; j < FOURS; j++) {
                int q = s * FOURS + j;
                gpu_wgmma<typename form::type, N>::run(
                    sum, pairs[s][j], gpu_smem_desc(slot + F::X_AT + q / 4 * F::PANEL) + 2 * (q % 4), true);
            }
            gpu_wgmma_commit();
            gpu_wgmma_wait<1>();
            if (s == 0 && before >= 0) gpu_ring_release(ring, before);
        }
        before = at.slot;
        at.step();
    }
    gpu_wgmma_wait<0>();
    gpu_ring_release(ring, before);
}

/* As expert_finish. */
__device__ static inline float finish_gated(const expert_call &a, const gpu_fast_act &act, float v, float u,
                                            const expert_operands &o)
{
    v = v * o.scale + o.bias, u = u * o.factor + o.second;
    if (a.limit > 0.0f) {
        v = v > a.limit ? a.limit : v;
        u = u > a.limit ? a.limit : u < -a.limit ? -a.limit : u;
    }
    return gpu_apply_act(act, v) * (u + a.offset);
}

/* What the outputs n and, not gated, n + 8 need beside their sums. */
template <int FORMAT>
__device__ static inline void wgmma_operands(expert_operands (&o)[2], const expert_call &a,
                                             const expert_tile &tile, int n)
{
    int end = outputs_of(a.e, a.N);
    const char *w = a.w + tile.expert * a.expert_bytes;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (n + 8 * i < end && (i == 0 || a.e.gate_rows == 0)) {
            o[i] = expert_operands_of<FORMAT>(a, w, tile.expert, n + 8 * i);
            o[i].scale *= exact_unpacked<FORMAT>::back(), o[i].factor *= exact_unpacked<FORMAT>::back();
        }
}

/* Writes the outputs of this warp: rows m of the tile, of each lane 2 c and 2 c + 1 of each 8. UP: the FFN in 16 bits
 * and in the order of wgmma_place; else f32, in the order of the rows of the step. */
template <int FORMAT, bool UP, int N>
__device__ static inline void write_outputs(const float (&sum)[N / 2], const expert_call &a,
                                            const gpu_fast_act &act, const expert_tile &tile,
                                            const expert_operands (&o)[2], int n, int c)
{
    typedef typename std::conditional<UP, typename unpacked<FORMAT>::type, float>::type Y;
    int end = outputs_of(a.e, a.N);
    bool two = a.e.gate_rows == 0, makes[2] = {n < end, two && n + 8 < end};
    Y *y[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        y[i] = (Y *)a.y + (UP ? wgmma_place(n + 8 * i, unpacked<FORMAT>::COUNT) : n + 8 * i);
#pragma unroll
    for (int t = 0; t < N / 8; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int m = 8 * t + 2 * c + h;
            if (m >= tile.rows) continue;
            int64_t row = (UP ? tile.first + m : a.lists.pair[tile.first + m]) * a.y_row;
            float weight = UP ? expert_weight_of(a, tile.first + m) : 1.0f;
            float v = sum[4 * t + h] * weight, u = sum[4 * t + 2 + h] * weight;
            if (UP && !two) {
                if (makes[0]) y[0][row] = gpu_saturate<Y>(finish_gated(a, act, v, u, o[0]));
                continue;
            }
            v = v * o[0].scale + o[0].bias, u = u * o[1].scale + o[1].bias;
            if (UP) v = gpu_apply_act(act, v), u = gpu_apply_act(act, u);
            if (makes[0]) y[0][row] = gpu_saturate<Y>(v);
            if (makes[1]) y[1][row] = gpu_saturate<Y>(u);
        }
}

template <int FORMAT, bool UP, typename F, int N>
__device__ static inline void make_tile(const gpu_ring &ring, gpu_ring_cursor<F::SLOTS> &at,
                                        const expert_call &a, const gpu_fast_act &act, const expert_tile &tile,
                                        int stages, int n, unsigned strip, const wgmma_lane &lane)
{
    float sum[N / 2] = {};
    expert_operands o[2] = {};
    wgmma_operands<FORMAT>(o, a, tile, n);
    multiply_strip<FORMAT, F, N>(sum, ring, at, stages, strip, lane);
    write_outputs<FORMAT, UP, N>(sum, a, act, tile, o, n, (int)lane.c);
}

template <int FORMAT, bool UP, int ROWS>
__device__ static void consume_items(const gpu_ring &ring, const expert_call &a, const gpu_fast_act &act,
                                     const wgmma_work &work)
{
    typedef wgmma_form<FORMAT, ROWS> F;
    const int FEW = ROWS <= 64 ? 32 : 64;
    /* the same number in all lanes, visibly to the compiler, so that descriptors stay in uniform registers */
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0), group = warp / 4, at_strip = warp % 4;
    unsigned r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    wgmma_lane lane = {{(16 * at_strip + r) * 128, (16 * at_strip + 8 + r) * 128}, r, c};
    if (a.e.gate_rows) lane.row[0] = (8 * at_strip + r) * 128, lane.row[1] = (32 + 8 * at_strip + r) * 128;
    gpu_ring_cursor<F::SLOTS> at = {0, 0};
    for (int item = blockIdx.x; item < work.items; item += gridDim.x) {
        expert_tile tile = a.lists.tiles[item % work.tiles];
        int n = (item / work.tiles * F::GROUPS + group) * outputs_each(a) +
                at_strip * (a.e.gate_rows ? 8 : 16) + (int)r;
        unsigned strip = (unsigned)(group * STRIP_BYTES);
        if (ROWS <= 16) make_tile<FORMAT, UP, F, ROWS>(ring, at, a, act, tile, work.stages, n, strip, lane);
        else if (ROWS == 32)
            make_tile<FORMAT, UP, F, 32>(ring, at, a, act, tile, work.stages, n, strip, lane);
        else if (tile.rows <= FEW)
            make_tile<FORMAT, UP, F, FEW>(ring, at, a, act, tile, work.stages, n, strip, lane);
        else make_tile<FORMAT, UP, F, ROWS>(ring, at, a, act, tile, work.stages, n, strip, lane);
    }
}
#endif

/* y of all tiles of up to ROWS pairs.
 *
 *   block        persistent; each warpgroup makes 64 sums (gated: half as many outputs) of the rows of a tile, one
 *                more warp loads by TMA
 *   warp         unpacks its 16 rows of weights: 16 outputs; gated 8 of the gate and the 8 of their factor
 *   slot         8 pieces of 16 bytes of these rows of weights, and the numbers of x that meet them
 *   registers    N / 2 sums, two steps of unpacked weights
 *   shared       SLOTS slots and their barriers
 *
 * full[slot]: the bytes have arrived. empty[slot]: all warps have multiplied them. Rows of x behind a tile's are
 * those of the next expert, whose sums are not written. */
template <int FORMAT, bool UP, int ROWS>
__global__ void __launch_bounds__(wgmma_form<FORMAT, ROWS>::THREADS, wgmma_form<FORMAT, ROWS>::BLOCKS)
    expert_wgmma_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
                        const __grid_constant__ expert_call a, gpu_fast_act act, int stages, int blocks)
{
#ifdef GPU_HOPPER
    typedef wgmma_form<FORMAT, ROWS> F;
    extern __shared__ char memory[];
    unsigned begin = (gpu_smem_address(memory) + 1023) / 1024 * 1024;
    gpu_ring ring = {begin, begin + F::BARRIERS_AT, begin + F::BARRIERS_AT + 8 * F::SLOTS};
    if (threadIdx.x == 0) {
        for (int i = 0; i < F::SLOTS; i++) {
            gpu_barrier_init(ring.full + 8 * i, 1);
            gpu_barrier_init(ring.empty + 8 * i, F::CONSUMERS);
        }
        gpu_barrier_fence();
    }
    __syncthreads();
    const bool EARLY = begins_early(ROWS);
    if (!EARLY) gpu_wait();
    int tiles = EARLY ? __ldcg(a.lists.tile_count) : *a.lists.tile_count;
    wgmma_work work = {tiles, tiles * blocks, stages};
    if (EARLY && threadIdx.x == F::CONSUMERS * 32) return fetch_items_early<F>(ring, a, work, &w, &x);
    if (EARLY) gpu_wait_then_release();
    if (threadIdx.x < F::CONSUMERS * 32) consume_items<FORMAT, UP, ROWS>(ring, a, act, work);
    else if (!EARLY && threadIdx.x == F::CONSUMERS * 32) fetch_items<F>(ring, a, work, &w, &x);
#endif
}

/* ---- launching ---- */

static bool weight_map(CUtensorMap *map, const proa_weight *w, const expert_call &a)
{
    const int64_t extent[3] = {a.row_bytes / 2, w->N, w->experts}, stride[2] = {a.row_bytes / 2, w->stride / 2};
    const int box[3] = {64, BOX, 1};
    return gpu_tensor_map(map, PROA_DTYPE_F16, w->data, 3, extent, stride, box);
}

static bool rows_map(CUtensorMap *map, const void *at, int64_t pairs, int64_t ld, int tile_rows)
{
    const int64_t extent[2] = {ld, pairs}, stride[1] = {ld};
    const int box[2] = {64, tile_rows < BOX ? tile_rows : BOX};
    return gpu_tensor_map(map, PROA_DTYPE_F16, at, 2, extent, stride, box);
}

struct wgmma_launch {
    CUtensorMap w, x;
    expert_call a;
    int rows, tiles;
};

template <int FORMAT, bool UP, int ROWS> static void launch_rows(gpu *g, const wgmma_launch &l)
{
    typedef wgmma_form<FORMAT, ROWS> F;
    auto kernel = expert_wgmma_kernel<FORMAT, UP, ROWS>;
    int each = F::GROUPS * (l.a.e.gate_rows ? 32 : 64), blocks = (outputs_of(l.a.e, l.a.N) + each - 1) / each;
    int stages = (l.a.K + F::DEPTH - 1) / F::DEPTH, most = l.tiles * blocks, room = F::BLOCKS * g->sms;
    gpu_fast_act act;
    gpu_find_fast_act(&act, l.a.e.act);
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, F::BYTES), "experts");
    gpu_launch(g, "experts (wgmma)", kernel, dim3((unsigned)(most < room ? most : room)), F::THREADS,
               (size_t)F::BYTES, l.w, l.x, l.a, act, stages, blocks);
}

template <int FORMAT, bool UP> static void launch_format(gpu *g, const wgmma_launch &l)
{
    switch (l.rows) {
    case 8: launch_rows<FORMAT, UP, 8>(g, l); break;
    case 16: launch_rows<FORMAT, UP, 16>(g, l); break;
    case 32: launch_rows<FORMAT, UP, 32>(g, l); break;
    case 64: launch_rows<FORMAT, UP, 64>(g, l); break;
    case 96: launch_rows<FORMAT, UP, 96>(g, l); break;
    default: launch_rows<FORMAT, UP, 128>(g, l); break;
    }
}

template <bool UP> static void launch_product(gpu *g, const wgmma_launch &l, proa_wfmt format)
{
    switch (format) {
    case PROA_WFMT_F16: launch_format<PROA_WFMT_F16, UP>(g, l); break;
    case PROA_WFMT_BF16: launch_format<PROA_WFMT_BF16, UP>(g, l); break;
    case PROA_WFMT_FP8: launch_format<PROA_WFMT_FP8, UP>(g, l); break;
    default: launch_format<PROA_WFMT_I8W, UP>(g, l); break;
    }
}

/* Numbers of a piece of 16 bytes. */
static int count_of(proa_wfmt format)
{
    return proa_wfmt_is_quantised(format) ? 16 : 8;
}

int64_t expert_wgmma_row(proa_wfmt format, int64_t K)
{
    int64_t depth = 8 * count_of(format);
    return (K + depth - 1) / depth * depth;
}

bool expert_wgmma_takes(const gpu *g, const proa_experts *e)
{
    auto fits = [](const proa_weight *w) {
        return ((uintptr_t)w->data | (uintptr_t)w->stride) % 16 == 0 &&
               (w->format == PROA_WFMT_F16 || w->format == PROA_WFMT_BF16 || w->format == PROA_WFMT_FP8 ||
                w->format == PROA_WFMT_I8W);
    };
    gpu_fast_act act;
    return g->hopper && e->up->format == e->down->format && fits(e->up) && fits(e->down) &&
           gpu_find_fast_act(&act, (int)e->act);
}

expert_form expert_wgmma_form(int64_t T, int64_t k, int64_t E)
{
    int64_t average = T * k / E; /* of an expert; some have twice as many, and their weights are read once more */
    if (average <= 8) return {true, average <= 3 ? 8 : 16, true};
    return {true, average <= 20 ? 32 : average <= 44 ? 64 : average <= 76 ? 96 : 128, true};
}

static void gather_rows(gpu *g, const expert_call &up, const expert_call &down, proa_wfmt format, void *to,
                        int64_t ld, int64_t pairs, int tile_rows)
{
    gather_call a = {up.lists, begins_early(tile_rows), up.x, up.x_row, to, ld, up.K, count_of(format)};
    a.aligned = up.x_row % 2 == 0 && (uintptr_t)up.x % 8 == 0, a.ffn = (void *)down.x, a.ffn_row = down.x_row;
    a.ffn_tail = down.K < down.x_row ? 8 * a.count : 0;
    dim3 grid((unsigned)pairs, (unsigned)((ld + 8 * GATHER_THREADS - 1) / (8 * GATHER_THREADS)));
    auto as = [&](auto type) {
        using To = decltype(type);
        gpu_by_type(up.x_type, [&](auto from) {
            using From = decltype(from);
            gpu_launch(g, "experts (gather)", gather_kernel<To, From>, grid, GATHER_THREADS, 0, a);
        });
    };
    if (format == PROA_WFMT_BF16) as(__nv_bfloat16());
    else as(__half());
}

void expert_wgmma(gpu *g, const expert_call &up, const expert_call &down, const proa_experts *e, void *rows,
                  int64_t pairs, int tile_rows, int tiles)
{
    wgmma_launch first = {{}, {}, up, tile_rows, tiles}, second = {{}, {}, down, tile_rows, tiles};
    proa_wfmt format = e->up->format;
    int64_t ld = expert_wgmma_row(format, up.K);
    if (!weight_map(&first.w, e->up, up) || !rows_map(&first.x, rows, pairs, ld, tile_rows) ||
        !weight_map(&second.w, e->down, down) || !rows_map(&second.x, down.x, pairs, down.x_row, tile_rows))
        return gpu_note(g, cudaErrorInvalidValue, "experts (wgmma)");
    gather_rows(g, up, down, format, rows, ld, pairs, tile_rows);
    launch_product<true>(g, first, format);
    launch_product<false>(g, second, format);
}
