/* SPDX-License-Identifier: Apache-2.0
 * gemm_mixed.cu - mixed-input GEMM on Hopper: some dozens to some hundreds of rows of f16 with weights of 4 and 8 bits.
 * Weights are the left factor of wgmma: they come into shared memory as they are stored, and each warp unpacks its 16
 * rows into registers, as f16. Rows of x are the right factor, by TMA as they are.
 *
 * Codes in groups become code * scale + offset in f16, the same numbers that dequantise_kernel makes (e4m3 has scales
 * in f32, which are rounded to f16 before). Scales of rows are applied to the sums.
 *
 * Blocks are persistent and share all slots of all tiles evenly (stream-K). A tile that several blocks share is added
 * by the one that ends last, in the order of K. */
#include "kernels/cuda/linear/gemm_mixed.h"
#include "kernels/cuda/linear/skinny_gemm.h"
#include "kernels/cuda/linear/wgmma.h"
#include "kernels/cuda/runtime/ring.h"

enum {
    SLOTS_MAX = 8,
    SHARED_MAX = 224 << 10,
    CLUSTER = 2,    /* blocks with tiles side by side, which share what they load of x */
    COUNTERS = 256, /* of the parts of tiles; one for each block */
    GATED_BOX = 32, /* rows of the gate, or of its factor, that one load brings */
    ROWS_MIN = 17,
    ROWS_MAX = 512,
    GATED_ROWS_MAX = 128
};

struct mixed_job {
    skinny_call a;
    gpu_fast_act act;
    float *parts;                       /* [2 clusters][CLUSTER][warps][N / 8][32] four sums of a lane */
    unsigned *counters;                 /* [clusters][CLUSTER], zero */
    int row_tiles, tiles, stages, each; /* tiles: of a cluster; stages: slots of a tile; each: slots of a cluster */
};

/* Bytes of a row's factors for a step of 128 numbers (kernels/coded.h). */
__host__ __device__ constexpr int mixed_factor_bytes(int format)
{
    return format == PROA_WFMT_I4                                                              ? 2
           : format == PROA_WFMT_I4A || format == PROA_WFMT_MXFP4W || format == PROA_WFMT_FP8G ? 4
           : format == PROA_WFMT_I8G                                                           ? 8
           : format == PROA_WFMT_I4A32                                                         ? 16
                                                                                               : 0;
}

/* GROUPS: warpgroups, of 64 outputs each. */
template <int FORMAT, int ROWS, int GROUPS> struct mixed_form {
    static const bool IS_INT4 = proa_wfmt_is_int4((proa_wfmt)FORMAT);
    static const int DEPTH = IS_INT4 ? 256 : 128; /* numbers of K in a slot */
    static const int OUTPUTS = 64 * GROUPS, CONSUMERS = 4 * GROUPS, THREADS = (CONSUMERS + 1) * 32; /* warps */
    static const int STEPS = DEPTH / 128, PANELS = DEPTH / 64, PANEL = ROWS * 128;                  /* of x */
    static const int STEP_FACTORS = 8 * mixed_factor_bytes(FORMAT), /* of 8 rows */
        SLOT_FACTORS = STEPS * STEP_FACTORS, FACTORS = OUTPUTS / 8 * SLOT_FACTORS;
    static const int SHARE = PANELS * ROWS / CLUSTER, X_BOX = SHARE < ROWS ? SHARE : ROWS; /* rows of panels */
    static const int X_AT = OUTPUTS * 128, SLOT = X_AT + PANELS * PANEL;
    static const int FIT = (SHARED_MAX - 1024) / (SLOT + FACTORS), SLOTS = FIT < SLOTS_MAX ? FIT : (int)SLOTS_MAX;
    static const int FACTORS_AT = SLOTS * SLOT, BARRIERS_AT = FACTORS_AT + SLOTS * FACTORS,
                     BYTES = BARRIERS_AT + SLOTS * 16 + 1024;
};

struct mixed_maps {
    CUtensorMap w, x, factors;
};

#ifdef GPU_HOPPER

__device__ static inline int cluster_rank()
{
    return (int)blockIdx.x % CLUSTER;
}

struct mixed_unit { /* a slot of this block's tile: its first output, row and slot of K */
    int n, m, k;
    __device__ mixed_unit(const mixed_job &job, int unit, int outputs, int rows)
        : n((unit / job.stages / job.row_tiles * CLUSTER + cluster_rank()) *
            (job.a.e.gate_rows ? outputs / 2 : outputs)),
          m(unit / job.stages % job.row_tiles * rows), k(unit % job.stages)
    {
    }
};

/* Weights and factors of a unit into a slot, whose barrier will count the rows of x too. Gated: 32 rows of the gate,
 * the 32 of its factor, the next 32 of the gate, .. */
template <typename F>
__device__ static inline void fetch_weights(const gpu_ring &ring, int slot, const mixed_job &job,
                                            const mixed_maps &maps, const mixed_unit &u)
{
    unsigned full = ring.full + 8 * slot, to = ring.slots + slot * F::SLOT,
             factors = ring.slots + F::FACTORS_AT + slot * F::FACTORS;
    int gate = job.a.e.gate_rows, rows = gate ? (int)GATED_BOX : F::OUTPUTS;
    gpu_barrier_expect(full, F::SLOT + F::FACTORS);
    for (int i = 0; i < F::OUTPUTS / rows; i++) {
        int row = u.n + i / 2 * GATED_BOX + i % 2 * gate;
        gpu_tma_load(to + i * rows * 128, &maps.w, full, u.k * 64, row);
        if (F::FACTORS > 0)
            gpu_tma_load(factors + i * rows / 8 * F::SLOT_FACTORS, &maps.factors, full,
                         u.k * (F::SLOT_FACTORS / 2), row / 8);
    }
}

/* This block's share of x, for all blocks of the cluster. */
template <typename F, int ROWS>
__device__ static inline void fetch_rows(const gpu_ring &ring, int slot, const mixed_maps &maps,
                                         const mixed_unit &u)
{
    const int BOXES = F::SHARE / F::X_BOX, OF_PANEL = ROWS / F::X_BOX;
#pragma unroll
    for (int i = 0; i < BOXES; i++) {
        int box = cluster_rank() * BOXES + i, panel = box / OF_PANEL, row = box % OF_PANEL * F::X_BOX;
        tma_load_multicast<CLUSTER>(ring.slots + slot * F::SLOT + F::X_AT + panel * F::PANEL + row * 128,
                                    &maps.x, ring.full + 8 * slot, u.k * F::DEPTH + panel * 64, u.m + row);
    }
}

/* One thread. The weights of the first slots are requested before the wait. */
template <typename F, int ROWS>
__device__ static void fetch_units(const gpu_ring &ring, const mixed_job &job, const mixed_maps &maps,
                                   int unit, int end)
{
    gpu_ring_cursor<F::SLOTS> at = {0, 0};
    int ahead = 0;
    for (; ahead < F::SLOTS && unit + ahead < end; ahead++)
        fetch_weights<F>(ring, ahead, job, maps, mixed_unit(job, unit + ahead, F::OUTPUTS, ROWS));
    gpu_wait();
    for (; unit < end; unit++, at.step()) {
        const mixed_unit u(job, unit, F::OUTPUTS, ROWS);
        if (ahead > 0) ahead--;
        else {
            gpu_barrier_wait(ring.empty + 8 * at.slot, at.phase ^ 1);
            fetch_weights<F>(ring, at.slot, job, maps, u);
        }
        fetch_rows<F, ROWS>(ring, at.slot, maps, u);
    }
}

/* Where a lane finds its weights in a slot: its two rows, their 8 rows' factors, and its place in these. piece: pieces
 * 0 to 3 of the first row; 4 to 7 are 64 bytes further or before. */
struct mixed_lane {
    unsigned row[2], factors[2], r, c, piece[4];
};

/* Four products' worth of weights of a lane, as A of mma.sync: [product][row r, row r + 8; the same 8 of K on]. */
typedef unsigned mixed_pieces[4][4];

/* Four bits. A word has eight inputs of one row, of which lane c takes 2 c and 2 c + 1: nibbles c and c + 4. All lanes
 * of a row read the same words. */
template <int FORMAT> struct mixed_source {
    typedef group_factors<FORMAT> groups;
    static const bool E2M1 = FORMAT == PROA_WFMT_MXFP4W;
    static const int TURN = E2M1 ? 9 : 6; /* the bit that nibbles c and c + 4 are brought to */
    __half2 scale[2][groups::GROUPS], offset[2][groups::GROUPS];
    /* Which of the 128 numbers comes first in product j of half s. */
    __device__ static constexpr int column(int s, int j)
    {
        return 32 * j + s * 16;
    }
    /* Unpacked e2m1 is 2^-14 of the number, and is multiplied by 2^8 times the scale: exact for scales of 2^-22 to 2^7,
     * and 0 for smaller ones. */
    static __device__ float back()
    {
        return E2M1 ? 64.0f : 1.0f;
    }
    __device__ static __half2 power(int exponent)
    {
        int bits = exponent == 255 ? 0x7e00 : min(max(exponent - 104, 0), 31) << 10;
        return __half2half2(__ushort_as_half((unsigned short)bits));
    }
    __device__ void load_factors(unsigned at, const mixed_lane &lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            unsigned from = at + lane.factors[i] + lane.r * mixed_factor_bytes(FORMAT);
            unsigned exponents = E2M1 ? gpu_load_shared32(from) : 0;
#pragma unroll
            for (int g = 0; g < groups::GROUPS; g++) {
                if (E2M1) scale[i][g] = power(exponents >> 8 * g & 255);
                else if (groups::OFFSETS) {
                    unsigned pair = gpu_load_shared32(from + 4 * g);
                    scale[i][g] = __low2half2(*reinterpret_cast<__half2 *>(&pair));
                    offset[i][g] = __high2half2(*reinterpret_cast<__half2 *>(&pair));
                } else scale[i][g] = __half2half2(__ushort_as_half(gpu_load_shared16(from + 2 * g)));
            }
        }
    }
    __device__ unsigned number(unsigned word, unsigned turn, int i, int g) const
    {
        unsigned turned = __funnelshift_r(word, word, turn);
        if (E2M1) {
            unsigned bits = (turned & 0x0e000e00u) | (turned << 3 & 0x80008000u);
            __half2 v = __hmul2(*reinterpret_cast<__half2 *>(&bits), scale[i][g]);
            return *reinterpret_cast<unsigned *>(&v);
        }
        unsigned code = mask_and_set(turned, 0x03c003c0u, 0x4c004c00u); /* 24 + q */
        __half2 q = __hsub2(*reinterpret_cast<__half2 *>(&code), __half2half2(__ushort_as_half(0x4e00)));
        q = groups::OFFSETS ? __hfma2(q, scale[i][g], offset[i][g]) : __hmul2(q, scale[i][g]);
        return *reinterpret_cast<unsigned *>(&q);
    }
    __device__ void unpack(mixed_pieces &to, unsigned rows, unsigned piece, int s, const mixed_lane &lane) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint4 v = gpu_load_shared(rows + (lane.piece[2 * s + h] ^ piece * 16) +
                                          (i ? lane.row[1] - lane.row[0] : 0));
                const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int j = 0; j < 4; j++)
                    to[j][i + 2 * h] = number(words[j], 4 * lane.c - TURN, i, groups::GROUPS > 1 ? j : 0);
            }
    }
};

/* Eight bits. A piece of 16 bytes is one product's, of which lane c takes the pairs c and c + 4. In groups of 32 inputs
 * it is the halves of two products instead: pair c of the first, and of the one 32 inputs further. */
template <int FORMAT> struct mixed_bytes {
    static const bool BY_32 = FORMAT == PROA_WFMT_I8G;
    __device__ static constexpr int column(int s, int j)
    {
        return 64 * s + 16 * j;
    }
    static __device__ float back()
    {
        return 1.0f;
    }
    /* Pair c + 4 h of product j of half s. */
    __device__ static unsigned short pair(unsigned rows, int i, int s, int j, int h, const mixed_lane &lane)
    {
        int piece = BY_32 ? 4 * s + j % 2 * 2 + h : 4 * s + j, byte = BY_32 ? j / 2 * 8 : 8 * h;
        return gpu_load_shared16(rows + lane.row[i] + (piece ^ lane.r) * 16 + byte + 2 * lane.c);
    }
    __device__ static __half2 integers(unsigned short pair)
    {
        unsigned both = __byte_perm(pair ^ 0x8080u, 0x64646464u, 0x4140); /* 1152 + q */
        return __hsub2(*reinterpret_cast<__half2 *>(&both), __half2half2(__ushort_as_half(0x6480)));
    }
};

template <> struct mixed_source<PROA_WFMT_I8W> : mixed_bytes<PROA_WFMT_I8W> {
    __device__ void load_factors(unsigned, const mixed_lane &)
    {
    }
    __device__ static __half2 number(unsigned short pair, int, int)
    {
        return integers(pair);
    }
};

template <> struct mixed_source<PROA_WFMT_I8G> : mixed_bytes<PROA_WFMT_I8G> {
    __half2 scale[2][4];
    __device__ void load_factors(unsigned at, const mixed_lane &lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int g = 0; g < 4; g += 2) {
                unsigned two = gpu_load_shared32(at + lane.factors[i] + lane.r * 8 + 2 * g);
                scale[i][g] = __low2half2(*reinterpret_cast<__half2 *>(&two));
                scale[i][g + 1] = __high2half2(*reinterpret_cast<__half2 *>(&two));
            }
    }
    __device__ __half2 number(unsigned short pair, int i, int g) const
    {
        return __hmul2(integers(pair), scale[i][g]);
    }
};

/* Numbers are multiplied by 256 times the scale, as scales of small weights would be subnormal in f16. */
template <> struct mixed_source<PROA_WFMT_FP8G> : mixed_bytes<PROA_WFMT_FP8G> {
    __half2 scale[2];
    static __device__ float back()
    {
        return 1.0f / 256.0f;
    }
    __device__ void load_factors(unsigned at, const mixed_lane &lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float one = __uint_as_float(gpu_load_shared32(at + lane.factors[i] + lane.r * 4));
            scale[i] = __float2half2_rn(one * 256.0f);
        }
    }
    __device__ __half2 number(unsigned short pair, int i, int) const
    {
        unsigned both;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(pair));
        return __hmul2(*reinterpret_cast<__half2 *>(&both), scale[i]);
    }
};

/* Products j of half s, which begin at mixed_source::column, for rows r and r + 8. */
template <int FORMAT>
__device__ static inline void unpack_products(mixed_pieces &to, const mixed_source<FORMAT> &source,
                                              unsigned slot, unsigned piece, int s, const mixed_lane &lane)
{
    if constexpr (proa_wfmt_is_int4((proa_wfmt)FORMAT)) source.unpack(to, slot, piece, s, lane);
    else {
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                __half2 v = source.number(source.pair(slot, i % 2, s, j, i / 2, lane), i % 2, 2 * s + j / 2);
                to[j][i] = *reinterpret_cast<unsigned *>(&v);
            }
    }
}

/* By a whole warp: all blocks of the cluster write into each other's slots. */
__device__ static inline void release_slot(const gpu_ring &ring, int slot)
{
    __syncwarp();
    int lane = threadIdx.x % 32;
    if (lane < CLUSTER) cluster_barrier_arrive(ring.empty + 8 * slot, lane);
}

/* sum += this warpgroup's rows of weights times the rows of x, over `count` slots. While the tensor cores multiply a
 * step the next one is unpacked. */
template <int FORMAT, typename F, int N>
__device__ static inline void multiply_units(float (&sum)[N / 2], const gpu_ring &ring,
                                             gpu_ring_cursor<F::SLOTS> &at, int count, const mixed_lane &lane)
{
    typedef mixed_source<FORMAT> source;
    source weights;
    mixed_pieces pieces[2];
    int before = -1;
    for (int k = 0; k < count * F::STEPS; k++) {
        int step = F::STEPS > 1 ? k % F::STEPS : 0; /* 128 numbers */
        unsigned slot = ring.slots + at.slot * F::SLOT, x = slot + F::X_AT + step * 2 * F::PANEL;
        const uint64_t rows_of_x = gpu_smem_desc(x);
        if (step == 0) gpu_barrier_wait(ring.full + 8 * at.slot, at.phase);
        weights.load_factors(ring.slots + F::FACTORS_AT + at.slot * F::FACTORS + step * F::STEP_FACTORS, lane);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            unpack_products<FORMAT>(pieces[s], weights, slot, 4 * step, s, lane);
            gpu_wgmma_fence();
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int first = source::column(s, j);
                gpu_wgmma<__half, N>::run(sum, pieces[s][j],
                                          rows_of_x + (first / 64 * F::PANEL + first % 64 * 2) / 16, true);
            }
            gpu_wgmma_commit();
            gpu_wgmma_wait<1>();
            if (s == 0 && before >= 0) release_slot(ring, before);
            before = -1;
        }
        if (step + 1 < F::STEPS) continue;
        before = at.slot;
        at.step();
    }
    gpu_wgmma_wait<0>();
    release_slot(ring, before);
}

/* Where the sums of this block's tile are that a cluster made: each has at most two tiles that others share. */
__device__ static inline float4 *part_of(const mixed_job &job, int cluster, int tile, int warps, int fours)
{
    int at = 2 * cluster + (tile != cluster * job.each / job.stages), warp = threadIdx.x / 32;
    int64_t first = ((int64_t)(at * CLUSTER + cluster_rank()) * warps + warp) * fours * 32;
    return (float4 *)job.parts + first + threadIdx.x % 32;
}

/* sum += the parts of the clusters [from, to]. AT_ONCE of them are on their way at a time. */
template <int WARPS, int N>
__device__ static inline void read_parts(float (&sum)[N / 2], const mixed_job &job, int tile, int from, int to)
{
    const int AT_ONCE = N <= 32 ? 4 : N <= 64 ? 2 : 1;
    for (int first = from; first <= to; first += AT_ONCE) {
        float4 v[AT_ONCE][N / 8];
#pragma unroll
        for (int b = 0; b < AT_ONCE; b++) {
            const float4 *part = part_of(job, min(first + b, to), tile, WARPS, N / 8);
#pragma unroll
            for (int i = 0; i < N / 8; i++) v[b][i] = __ldcg(part + i * 32);
        }
#pragma unroll
        for (int b = 0; b < AT_ONCE; b++) {
            if (first + b > to) break;
#pragma unroll
            for (int i = 0; i < N / 8; i++)
                sum[4 * i] += v[b][i].x, sum[4 * i + 1] += v[b][i].y, sum[4 * i + 2] += v[b][i].z,
                    sum[4 * i + 3] += v[b][i].w;
        }
    }
}

/* Adds the parts of a tile in the order of K. False: another block does, which ends later. */
template <typename F, int N>
__device__ static inline bool add_parts(float (&sum)[N / 2], const mixed_job &job, int tile)
{
    __shared__ int last;
    int from = tile * job.stages / job.each, to = ((tile + 1) * job.stages - 1) / job.each;
    if (from == to) return true;
    float4 *mine = part_of(job, (int)blockIdx.x / CLUSTER, tile, F::CONSUMERS, N / 8);
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        __stcg(mine + i * 32, make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]));
    gpu_named_sync(1, F::CONSUMERS * 32);
    if (threadIdx.x == 0) {
        unsigned *counter = job.counters + from * CLUSTER + cluster_rank();
        __threadfence();
        last = atomicAdd(counter, 1u) == (unsigned)(to - from);
        __threadfence();
        if (last) *counter = 0;
    }
    gpu_named_sync(1, F::CONSUMERS * 32);
    if (!last) return false;
#pragma unroll
    for (int i = 0; i < N / 2; i++) sum[i] = 0.0f;
    read_parts<F::CONSUMERS, N>(sum, job, tile, from, to);
    return true;
}

/* What the sums of rows n and of second are multiplied by, and what is added. */
struct mixed_operands {
    float scale[2], bias[2];
};
template <int FORMAT>
__device__ static inline mixed_operands operands_of(const skinny_call &a, int n, int second)
{
    mixed_operands o = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = i ? second : n;
        if (row >= a.N) continue;
        o.scale[i] = a.e.alpha * mixed_source<FORMAT>::back(), o.bias[i] = a.e.bias ? a.e.bias[row] : 0.0f;
        if (FORMAT == PROA_WFMT_I8W) o.scale[i] *= ((const float *)a.scales)[row];
    }
    return o;
}

/* A lane's outputs: n, and n + 8 unless the product is gated, of rows 2 c and 2 c + 1 of each 8 from m on. */
struct mixed_place {
    int n, m, c;
    __device__ int row(int i) const /* of sum i */
    {
        return m + i / 4 * 8 + 2 * c + i % 2;
    }
    __device__ int output(int i) const
    {
        return n + i % 4 / 2 * 8;
    }
};

/* All are requested before the first is used. */
template <typename T, int N>
__device__ static inline void read_residual(float (&to)[N / 2], const skinny_call &a, const mixed_place &at)
{
    T v[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        v[i] = at.row(i) < a.M && at.output(i) < a.N
                   ? ((const T *)a.e.residual)[at.row(i) * a.e.residual_row + at.output(i)]
                   : gpu_from_f32<T>(0.0f);
#pragma unroll
    for (int i = 0; i < N / 2; i++) to[i] = gpu_to_f32(v[i]);
}

template <typename T, int N>
__device__ static inline void store_sums(const float (&sum)[N / 2], const skinny_call &a, const mixed_place &at)
{
    int end = outputs_of(a.e, a.N);
    bool gated = a.e.gate_rows != 0;
    T *y = (T *)a.y + at.row(0) * a.y_row + at.n;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        if (at.row(i) >= a.M || at.output(i) >= end || (gated && i % 4 / 2)) continue;
        y[(int64_t)(i / 4 * 8 + i % 2) * a.y_row + i % 4 / 2 * 8] = gpu_saturate<T>(sum[i]);
    }
}

/* The sums of a tile become its outputs. */
template <int FORMAT, int N>
__device__ static inline void write_outputs(float (&sum)[N / 2], const mixed_job &job, const mixed_place &at)
{
    const skinny_call &a = job.a;
    bool gated = a.e.gate_rows != 0;
    const mixed_operands o = operands_of<FORMAT>(a, at.n, gated ? a.e.gate_rows + at.n : at.n + 8);
    float residual[N / 2] = {};
    if (a.e.residual && a.e.residual_type == PROA_DTYPE_F32) read_residual<float, N>(residual, a, at);
    else if (a.e.residual && a.e.residual_type == PROA_DTYPE_F16) read_residual<__half, N>(residual, a, at);
    else if (a.e.residual) read_residual<__nv_bfloat16, N>(residual, a, at);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        float v = fmaf(sum[i], o.scale[i % 4 / 2], o.bias[i % 4 / 2]);
        if (!gated || i % 4 < 2) v = gpu_apply_act(job.act, v);
        sum[i] = v + residual[i];
    }
    if (gated)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            if (i % 4 < 2) sum[i] *= sum[i + 2];
    if (a.y_type == PROA_DTYPE_F32) store_sums<float, N>(sum, a, at);
    else if (a.y_type == PROA_DTYPE_F16) store_sums<__half, N>(sum, a, at);
    else store_sums<__nv_bfloat16, N>(sum, a, at);
}

template <int FORMAT, typename F, int ROWS>
__device__ static void consume_units(const gpu_ring &ring, const mixed_job &job, int unit, int end)
{
    /* the same number in all lanes, visibly to the compiler, so that descriptors stay in uniform registers */
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    unsigned r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    bool gated = job.a.e.gate_rows != 0;
    /* which eight rows of the tile the lane's first row is in, and its second */
    int eight[2] = {gated ? warp / 4 * 8 + warp % 4 : 2 * warp,
                    gated ? warp / 4 * 8 + 4 + warp % 4 : 2 * warp + 1},
        n = gated ? warp * 8 : warp * 16;
    const unsigned FACTORS = F::SLOT_FACTORS;
    mixed_lane lane = {
        {(8 * eight[0] + r) * 128, (8 * eight[1] + r) * 128}, {eight[0] * FACTORS, eight[1] * FACTORS}, r, c, {}};
#pragma unroll
    for (unsigned p = 0; p < 4; p++) lane.piece[p] = lane.row[0] + (p ^ r) * 16;
    gpu_ring_cursor<F::SLOTS> at = {0, 0};
    while (unit < end) {
        const mixed_unit u(job, unit, F::OUTPUTS, ROWS);
        int count = min(job.stages - u.k, end - unit);
        float sum[ROWS / 2] = {};
        multiply_units<FORMAT, F, ROWS>(sum, ring, at, count, lane);
        if (add_parts<F, ROWS>(sum, job, unit / job.stages))
            write_outputs<FORMAT, ROWS>(sum, job, {u.n + n + (int)r, u.m, (int)c});
        unit += count;
    }
}
#endif

/* y of all tiles of ROWS rows and 64 GROUPS outputs.
 *
 *   block        persistent; 4 warps a group unpack and multiply, one more loads by TMA
 *   warp         16 outputs of all rows of a tile
 *   slot         128 bytes of each output's weights, their factors, and the numbers of x that meet them
 *   registers    ROWS / 2 sums, two steps of unpacked weights
 *   shared       SLOTS slots and their barriers: full, the bytes have arrived; empty, all warps have multiplied them */
template <int FORMAT, int ROWS, int GROUPS>
__global__ void __launch_bounds__(mixed_form<FORMAT, ROWS, GROUPS>::THREADS, 1)
    gemm_mixed_kernel(const __grid_constant__ mixed_maps maps, const __grid_constant__ mixed_job job)
{
#ifdef GPU_HOPPER
    typedef mixed_form<FORMAT, ROWS, GROUPS> F;
    extern __shared__ char memory[];
    unsigned begin = (gpu_smem_address(memory) + 1023) / 1024 * 1024;
    gpu_ring ring = {begin, begin + F::BARRIERS_AT, begin + F::BARRIERS_AT + 8 * F::SLOTS};
    int unit = (int)blockIdx.x / CLUSTER * job.each, end = min(unit + job.each, job.tiles * job.stages);
    if (threadIdx.x == 0) {
        for (int i = 0; i < F::SLOTS; i++) {
            gpu_barrier_init(ring.full + 8 * i, 1);
            gpu_barrier_init(ring.empty + 8 * i, CLUSTER * F::CONSUMERS);
        }
        gpu_barrier_fence();
    }
    cluster_sync<CLUSTER>();
    if (threadIdx.x == F::CONSUMERS * 32) fetch_units<F, ROWS>(ring, job, maps, unit, end);
    else gpu_wait();
    if (threadIdx.x < F::CONSUMERS * 32) consume_units<FORMAT, F, ROWS>(ring, job, unit, end);
    __syncwarp();
    cluster_sync<CLUSTER>(); /* the others may still write here and arrive at these barriers */
#endif
}

/* ---- launching ---- */

/* slot_bytes: of `of_slot` steps. */
static bool factors_map(CUtensorMap *map, const skinny_call &a, int slot_bytes, int of_slot, int rows)
{
    const int step_bytes = slot_bytes / of_slot;
    cuuint64_t steps = (cuuint64_t)(a.K + PROA_CODED_STEP - 1) / PROA_CODED_STEP;
    cuuint64_t size[2] = {steps * step_bytes / 2, (cuuint64_t)(a.N + PROA_CODED_TILE - 1) / PROA_CODED_TILE},
               stride[1] = {steps * step_bytes};
    cuuint32_t box[2] = {(cuuint32_t)slot_bytes / 2, (cuuint32_t)rows / PROA_CODED_TILE}, each[2] = {1, 1};
    gpu_encode_fn *encode = gpu_tensor_map_encoder();
    return encode &&
           encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)a.scales, size, stride, box, each,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <typename F> static bool make_maps(mixed_maps *maps, const skinny_call &a)
{
    const int64_t w[2] = {a.row_bytes / 2, a.N}, x[2] = {a.K, a.M};
    const int w_box[2] = {64, a.e.gate_rows ? (int)GATED_BOX : F::OUTPUTS}, x_box[2] = {64, F::X_BOX};
    return gpu_tensor_map(&maps->w, PROA_DTYPE_F16, a.w, 2, w, w, w_box) &&
           gpu_tensor_map(&maps->x, PROA_DTYPE_F16, a.x, 2, x, &a.x_row, x_box) &&
           (F::FACTORS == 0 || factors_map(&maps->factors, a, F::SLOT_FACTORS, F::STEPS, w_box[1]));
}

template <int FORMAT, int ROWS, int GROUPS> static void launch_mixed(gpu *g, mixed_job job)
{
    typedef mixed_form<FORMAT, ROWS, GROUPS> F;
    static_assert(F::SLOTS >= 2, "one slot is loaded while the other is multiplied");
    auto kernel = gemm_mixed_kernel<FORMAT, ROWS, GROUPS>;
    mixed_maps maps = {};
    if (!make_maps<F>(&maps, job.a)) return gpu_note(g, cudaErrorInvalidValue, "linear (mixed)");
    job.row_tiles = (job.a.M + ROWS - 1) / ROWS;
    job.tiles = (blocks_of(job.a.e, job.a.N, F::OUTPUTS) + CLUSTER - 1) / CLUSTER * job.row_tiles;
    job.stages = (job.a.K + F::DEPTH - 1) / F::DEPTH;
    int units = job.tiles * job.stages, room = g->split_k_clusters[CLUSTER];
    job.each = (units + room - 1) / room;
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, F::BYTES), "linear");
    gpu_launch_clusters(g, "linear (mixed)", kernel,
                        dim3((unsigned)((units + job.each - 1) / job.each * CLUSTER)), CLUSTER, F::THREADS,
                        (size_t)F::BYTES, maps, job);
}

/* Wide tiles read x from the L2 cache less often; of few outputs there would be too few of them. */
template <int FORMAT, int ROWS> static void launch_rows(gpu *g, const mixed_job &job)
{
    if (job.a.N > 64 * g->sms) launch_mixed<FORMAT, ROWS, 4>(g, job);
    else launch_mixed<FORMAT, ROWS, 2>(g, job);
}

template <int FORMAT> static void launch_format(gpu *g, const mixed_job &job)
{
    if (job.a.M <= 32) launch_rows<FORMAT, 32>(g, job);
    else if (job.a.M <= 64) launch_rows<FORMAT, 64>(g, job);
    else launch_mixed<FORMAT, 128, 2>(g, job);
}

bool gpu_gemm_mixed_takes(const gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    bool format = proa_wfmt_is_coded(w->format) || w->format == PROA_WFMT_I8W;
    bool aligned = x.dtype == PROA_DTYPE_F32 || w->permuted ||
                   (x.stride[0] % 8 == 0 && (uintptr_t)x.data % 16 == 0);
    int most = e.gate_rows ? (int)GATED_ROWS_MAX : (int)ROWS_MAX;
    bool rows = y.shape[0] >= ROWS_MIN && y.shape[0] <= most;
    gpu_fast_act act;
    return g->split_k_clusters[CLUSTER] && format && rows && aligned && e.gate_rows % PROA_CODED_TILE == 0 &&
           g->sms <= COUNTERS && gpu_find_fast_act(&act, e.act);
}

static skinny_call mixed_call(proa_view y, const proa_weight *w, const epilogue &e)
{
    quant_layout at = quant_layout_of(w->format, w->N, w->K);
    skinny_call a = {y.data, y.stride[0], y.dtype};
    a.M = (int)y.shape[0], a.N = (int)w->N, a.K = (int)w->K, a.e = e;
    a.w = (const char *)w->data, a.row_bytes = at.row_bytes, a.scales = a.w + at.scales_at;
    return a;
}

bool gpu_gemm_mixed(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e)
{
    mixed_job job = {};
    if (!gpu_gemm_mixed_takes(g, y, x, w, e)) return false;
    gpu_find_fast_act(&job.act, e.act);
    job.a = mixed_call(y, w, e);
    job.a.x = cast_rows(g, x, PROA_WFMT_F16, &job.a.x_row);
    gpu_invalidate(g, y);
    job.parts = (float *)gpu_workspace(g);
    job.counters = g->counters + GPU_COUNTERS - (g->on_branch ? 2 : 1) * (int)COUNTERS;
    switch (w->format) {
    case PROA_WFMT_I4: launch_format<PROA_WFMT_I4>(g, job); break;
    case PROA_WFMT_I4A: launch_format<PROA_WFMT_I4A>(g, job); break;
    case PROA_WFMT_I4A32: launch_format<PROA_WFMT_I4A32>(g, job); break;
    case PROA_WFMT_MXFP4W: launch_format<PROA_WFMT_MXFP4W>(g, job); break;
    case PROA_WFMT_I8G: launch_format<PROA_WFMT_I8G>(g, job); break;
    case PROA_WFMT_FP8G: launch_format<PROA_WFMT_FP8G>(g, job); break;
    default: launch_format<PROA_WFMT_I8W>(g, job); break;
    }
    return true;
}
