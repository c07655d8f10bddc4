/* SPDX-License-Identifier: Apache-2.0
 * wgmma.h - y[M,N] = act(alpha x[M,K] w[N,K]^T + bias), or without an activation + residual, for many rows on
 * Hopper; y of 16 bits, x and w of y's type or of e4m3, sums in f32. Operands of e4m3 have a scale for each row:
 * alpha is alpha x_scale[m] w_scale[n] then, and y may be e4m3 too. Included by gemm_wgmma.cu and by
 * bench/gpu/wgmma.cu.
 *
 *   block      3 warpgroups, persistent, tile after tile; 2 blocks form a cluster with tiles one above the other
 *   producer   1 thread of the first warpgroup loads slabs of 128 bytes of K by TMA: BM rows of x, BN rows of w, of
 *              which each block of the cluster loads half for both (multicast)
 *   consumers  the other 2 warpgroups (wgmma): each half of the rows of a tile, or, ALTERNATE, each a tile of its own while
 *              the other one writes the tile before
 *   registers  24 a producer thread, 240 a consumer thread: STRIPS x BN / 2 sums
 *   shared     SLOTS slots of (BM + BN) x 128 bytes, 2 panels of 2 KB for each consumer warp, barriers
 *
 * Rows of a slab are 128 bytes; their 16-byte pieces are permuted as TMA and wgmma do it: piece p of row r is
 * at p ^ (r % 8). full[slot]: the bytes have arrived. empty[slot]: all that read them, in both blocks, have
 * done so. A residual comes through the same ring, behind the last slab of its tile, 128 columns a slot. Rows
 * and columns out of range are read as zeros. */
#ifndef PROA_KERNELS_CUDA_LINEAR_WGMMA_H
#define PROA_KERNELS_CUDA_LINEAR_WGMMA_H

#include "kernels/cuda/runtime/tma.h"

enum {
    HOPPER_THREADS = 384,
    HOPPER_SLAB = 64, /* columns of 16 bits */
    HOPPER_STRIP = 64,
    HOPPER_ROW = 128,
    HOPPER_PANEL = 16 * HOPPER_ROW
};

/* The arguments of a product besides its tensor maps. Tiles are counted for clusters. Bands of `band` rows of
 * tiles are walked down first, so that tiles that run at the same time share rows of w and x in the L2 cache. */
struct hopper_job {
    int tiles_m, tiles_n, tiles, band;
    int slabs, M, N, act, has_residual;
    float alpha;
    int64_t y_row;
    void *y;
    const void *bias;               /* of y's type, [N]; NULL: none */
    const float *x_scale, *w_scale; /* of operands of e4m3, [M], [N] */
    /* y of e4m3: its scales [M], which the kernel writes; the lengths of the rows of x, [M]; {the largest length of a
     * row of w, the largest bias} */
    float *y_scale;
    const float *x_length, *bound;
};

/* Elements of a row of a slab. */
static inline __host__ __device__ constexpr int hopper_slab(size_t element)
{
    return HOPPER_ROW / (int)element;
}

template <int M, int N, int S, int C, bool A> struct hopper_form {
    static const int BM = M, BN = N, SLOTS = S, CLUSTER = C;
    static const bool ALTERNATE = A;
    static_assert(!A || N == 128, "the residual of a tile is one slot");
    static const int STRIPS = BM / HOPPER_STRIP / (A ? 1 : 2); /* of 64 rows, for each warpgroup */
    static const int X_BYTES = BM * HOPPER_ROW, W_BYTES = BN * HOPPER_ROW, SLOT_BYTES = X_BYTES + W_BYTES;
    static const int PANELS_AT = SLOTS * SLOT_BYTES; /* where results wait for their way out */
    static const int BARRIERS_AT = PANELS_AT + 8 * 2 * HOPPER_PANEL;
    static const int BYTES = BARRIERS_AT + SLOTS * 16;
};

/* On the host: a map of rows of `columns` elements, ld elements apart, in boxes of 128 bytes and box_rows rows. */
static inline bool hopper_map(CUtensorMap *map, cudaDataType_t type, const void *at, int64_t rows,
                              int64_t columns, int64_t ld, int box_rows)
{
    proa_dtype dtype = type == CUDA_R_8F_E4M3 ? PROA_DTYPE_FP8
                       : type == CUDA_R_16F   ? PROA_DTYPE_F16
                                              : PROA_DTYPE_BF16;
    const int64_t extent[2] = {columns, rows}, stride[1] = {ld};
    const int box[2] = {hopper_slab((size_t)proa_dtype_bytes(dtype)), box_rows};
    return gpu_tensor_map(map, dtype, at, 2, extent, stride, box);
}

#ifdef GPU_HOPPER

/* ---- clusters: what runtime/tma.h does not have ---- */

/* Arrives at the same barrier of another block of the cluster. Not .release.cluster, which is a fence of all
 * memory and costs a microsecond: what was read here was read by the tensor cores, which have been waited
 * for. */
__device__ static inline void cluster_barrier_arrive(unsigned barrier, int rank)
{
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

template <int CLUSTER> __device__ static inline void cluster_sync()
{
    if constexpr (CLUSTER > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                         : "memory");
    else __syncthreads();
}

/* Loads to the same address in all blocks of the cluster; the barrier there counts the bytes. */
template <int CLUSTER>
__device__ static inline void tma_load_multicast(unsigned to, const CUtensorMap *map, unsigned barrier, int x,
                                                 int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                 "cluster [%0], "
                 "[%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "h"((uint16_t)((1 << CLUSTER) - 1))
                 : "memory");
}

/* ---- tiles and slots ---- */

struct hopper_tile_origin {
    int m, n; /* first row and column */
};

template <typename F>
__device__ static inline hopper_tile_origin tile_origin_of(const hopper_job &job, int tile, int rank)
{
    int per = job.band * job.tiles_n, band = tile / per, rest = tile - band * per, above = band * job.band;
    int height = min(job.band, job.tiles_m - above), n = rest / height, m = above + rest - n * height;
    return {(m * F::CLUSTER + rank) * F::BM, n * F::BN};
}

/* A walk round the ring: the phase flips with each turn. */
template <int SLOTS> struct hopper_cursor {
    int slot;
    unsigned phase;
    __device__ void step()
    {
        if (++slot == SLOTS) slot = 0, phase ^= 1;
    }
    __device__ void skip(int count)
    {
        int at = slot + count;
        phase ^= (unsigned)(at / SLOTS) & 1, slot = at % SLOTS;
    }
};

struct hopper_ring {
    unsigned slots, full, empty; /* shared addresses */
};

/* ---- the warpgroup that fetches ---- */

template <typename F, int SLAB>
__device__ static void load_tile_slabs(const hopper_ring &ring, hopper_cursor<F::SLOTS> &at,
                                       const hopper_job &job, hopper_tile_origin p, int rank,
                                       const CUtensorMap *x, const CUtensorMap *w, const CUtensorMap *residual)
{
    const int SHARE = F::BN / F::CLUSTER;
    for (int k = 0; k < job.slabs; k++, at.step()) {
        unsigned to = ring.slots + at.slot * F::SLOT_BYTES, full = ring.full + 8 * at.slot;
        gpu_barrier_wait(ring.empty + 8 * at.slot, at.phase ^ 1);
        gpu_barrier_expect(full, F::SLOT_BYTES);
        gpu_tma_load(to, x, full, k * SLAB, p.m);
        if constexpr (F::CLUSTER == 1) gpu_tma_load(to + F::X_BYTES, w, full, k * SLAB, p.n);
        else
            tma_load_multicast<F::CLUSTER>(to + F::X_BYTES + rank * SHARE * HOPPER_ROW, w, full, k * SLAB,
                                           p.n + rank * SHARE);
    }
    for (int n = 0; n < F::BN && job.has_residual; n += 128, at.step()) {
        unsigned to = ring.slots + at.slot * F::SLOT_BYTES, full = ring.full + 8 * at.slot;
        gpu_barrier_wait(ring.empty + 8 * at.slot, at.phase ^ 1);
        gpu_barrier_expect(full, 2 * F::X_BYTES);
        gpu_tma_load(to, residual, full, p.n + n, p.m);
        gpu_tma_load(to + F::X_BYTES, residual, full, p.n + n + 64, p.m);
    }
}

/* ---- the warpgroups that multiply ---- */

/* This warp is done with a slot. */
template <typename F> __device__ static inline void release_slot(const hopper_ring &ring, int slot)
{
    int lane = threadIdx.x & 31;
    __syncwarp();
    if (lane < F::CLUSTER) cluster_barrier_arrive(ring.empty + 8 * slot, lane);
}

/* Leaves the products of the last slab in flight and returns its slot. */
template <typename X, typename F>
__device__ static inline int multiply_tile(float (&sum)[F::STRIPS][F::BN / 2], const hopper_ring &ring,
                                           hopper_cursor<F::SLOTS> &at, int slabs, unsigned x_offset)
{
    int before = -1;
    for (int k = 0; k < slabs; k++) {
        unsigned slot = ring.slots + at.slot * F::SLOT_BYTES;
        uint64_t a = gpu_smem_desc(slot + x_offset), b = gpu_smem_desc(slot + F::X_BYTES);
        gpu_barrier_wait(ring.full + 8 * at.slot, at.phase);
        gpu_wgmma_fence();
#pragma unroll
        for (int i = 0; i < HOPPER_ROW / 32; i++)
#pragma unroll
            for (int s = 0; s < F::STRIPS; s++)
                gpu_wgmma<X, F::BN>::run(sum[s], a + 2 * i + s * (HOPPER_STRIP * HOPPER_ROW >> 4), b + 2 * i,
                                         (k | i) != 0);
        gpu_wgmma_commit();
        if (before >= 0) {
            gpu_wgmma_wait<1>();
            release_slot<F>(ring, before);
        }
        before = at.slot;
        at.step();
    }
    return before;
}

/* Exact GELU, x times the normal distribution function, as x+ - |x| 2^P(|x|). P is the minimax polynomial of
 * degree 6 on [0, 6]; the small side is within 5.3e-6 of itself where f16 holds it as a normal number. */
__device__ static inline float gelu(float x)
{
    float a, positive, small;
    asm("min.NaN.f32 %0, %1, 0f40C00000;" : "=f"(a) : "f"(fabsf(x)));
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(x));
    float p = fmaf(3.244635853e-5f, a, -7.484431609e-4f);
    p = fmaf(fmaf(fmaf(p, a, 7.9423882e-3f), a, -5.305211171e-2f), a, -4.591700916e-1f);
    p = fmaf(fmaf(p, a, -1.151036827f), a, -1.000007567f);
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(small) : "f"(p));
    return fmaf(-a, small, positive);
}

template <int ACT> __device__ static inline float hopper_act(float x)
{
    if constexpr (ACT == PROA_ACT_RELU) return x < 0.0f ? 0.0f : x;
    if constexpr (ACT == PROA_ACT_GELU) return gelu(x);
    if constexpr (ACT == PROA_ACT_GELU_TANH)
        return __fdividef(x, 1.0f + __expf(-2.0f * 0.7978845608028654f * (x + 0.044715f * x * x * x)));
    if constexpr (ACT == PROA_ACT_SILU) return __fdividef(x, 1.0f + __expf(-x));
    return x;
}

/* Beyond the range the largest number. */
template <typename T> __device__ static inline unsigned narrow_pair(float x, float y)
{
    unsigned pair;
    if constexpr (std::is_same<T, __half>::value)
        asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}

template <typename T> __device__ static inline float2 wide_pair(unsigned pair)
{
    if constexpr (std::is_same<T, __half>::value) return __half22float2(*reinterpret_cast<__half2 *>(&pair));
    else return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

/* What a lane needs for its pairs of columns among 64. */
template <bool SCALED> struct hopper_columns {
    unsigned bias[8];
    float2 scale[8];
    __device__ float2 factor(float row, int pair) const
    {
        return make_float2(row * scale[pair].x, row * scale[pair].y);
    }
};
template <> struct hopper_columns<false> {
    unsigned bias[8];
    __device__ float2 factor(float row, int) const
    {
        return make_float2(row, row);
    }
};

/* Converts the sums of 64 columns of 16 rows of a warp. All are computed before any is written: a warp that
 * is alone on its scheduler hides latency only behind its own instructions. rows: the factors of a lane's two rows.
 * add: pairs of the residual, NULL for none. */
template <typename T, int ACT, bool SCALED>
__device__ static inline void convert_pairs(unsigned (&out)[16], const float *d, float2 rows,
                                            const hopper_columns<SCALED> &columns, const unsigned *add)
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float2 b = wide_pair<T>(columns.bias[i / 2]), f = columns.factor(i % 2 ? rows.y : rows.x, i / 2);
        float x = hopper_act<ACT>(fmaf(f.x, d[2 * i], b.x)), y = hopper_act<ACT>(fmaf(f.y, d[2 * i + 1], b.y));
        if (add) {
            float2 r = wide_pair<T>(add[i]);
            x += r.x, y += r.y;
        }
        out[i] = narrow_pair<T>(x, y);
    }
}

/* This lane's address of the i-th 16 columns of a panel, for ldmatrix and stmatrix. */
__device__ static inline unsigned panel_offset(int i)
{
    int lane = threadIdx.x & 31, row = lane & 15, half = lane >> 4;
    return (unsigned)(row * HOPPER_ROW + ((2 * i + half) ^ (row & 7)) * 16);
}

__device__ static inline void read_panel(unsigned (&to)[16], unsigned panel)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[4 * i]), "=r"(to[4 * i + 1]), "=r"(to[4 * i + 2]), "=r"(to[4 * i + 3])
                     : "r"(panel + panel_offset(i))
                     : "memory");
}

__device__ static inline void write_panel(unsigned panel, const unsigned (&from)[16])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(panel + panel_offset(i)),
            "r"(from[4 * i]), "r"(from[4 * i + 1]), "r"(from[4 * i + 2]), "r"(from[4 * i + 3])
            : "memory");
}

/* residual: the shared address of its panel, 0 for none. With a residual there is no activation. */
template <typename T, bool SCALED>
__device__ static inline void convert_panel(const float *d, const hopper_job &job, float2 rows,
                                            const hopper_columns<SCALED> &columns, unsigned panel,
                                            unsigned residual)
{
    unsigned out[16], add[16];
    if (residual) {
        read_panel(add, residual);
        convert_pairs<T, PROA_ACT_NONE>(out, d, rows, columns, add);
    } else switch (job.act) {
        case PROA_ACT_RELU: convert_pairs<T, PROA_ACT_RELU>(out, d, rows, columns, NULL); break;
        case PROA_ACT_GELU: convert_pairs<T, PROA_ACT_GELU>(out, d, rows, columns, NULL); break;
        case PROA_ACT_GELU_TANH: convert_pairs<T, PROA_ACT_GELU_TANH>(out, d, rows, columns, NULL); break;
        case PROA_ACT_SILU: convert_pairs<T, PROA_ACT_SILU>(out, d, rows, columns, NULL); break;
        default: convert_pairs<T, PROA_ACT_NONE>(out, d, rows, columns, NULL); break;
        }
    write_panel(panel, out);
}

/* This lane's columns among 64 from n on. N is a multiple of 8. */
template <typename T, bool SCALED>
__device__ static inline void load_columns(hopper_columns<SCALED> &to, const hopper_job &job, int n)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int at = n + 8 * i + 2 * (threadIdx.x & 3);
        to.bias[i] = job.bias && at < job.N
                         ? __ldg(reinterpret_cast<const unsigned *>(static_cast<const T *>(job.bias) + at))
                         : 0;
        if constexpr (SCALED)
            to.scale[i] = at < job.N ? __ldg(reinterpret_cast<const float2 *>(job.w_scale + at))
                                     : make_float2(0.0f, 0.0f);
    }
}

/* alpha for this lane's two rows of a warp's 16 from m on, times their scales. */
template <bool SCALED> __device__ static inline float2 load_rows(const hopper_job &job, int m)
{
    int row = m + (int)(threadIdx.x & 31) / 4;
    if constexpr (!SCALED) return make_float2(job.alpha, job.alpha);
    return make_float2(row < job.M ? job.alpha * __ldg(job.x_scale + row) : 0.0f,
                       row + 8 < job.M ? job.alpha * __ldg(job.x_scale + row + 8) : 0.0f);
}

/* Writes a panel of 16 rows, 16 bytes a lane. Not by TMA: its stores wait behind the loads that were issued
 * before. */
template <typename T>
__device__ static inline void store_panel(const hopper_job &job, unsigned panel, int m, int n)
{
    int lane = threadIdx.x & 31, piece = lane & 7;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = 4 * i + lane / 8;
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(panel + row * HOPPER_ROW + (piece ^ (row & 7)) * 16)
                     : "memory");
        T *to = static_cast<T *>(job.y) + (int64_t)(m + row) * job.y_row + n + 8 * piece;
        if (m + row < job.M && n + 8 * piece < job.N) *reinterpret_cast<uint4 *>(to) = v;
    }
}

/* ---- y of e4m3: its scale is known before its row, since no sum exceeds the length of the row of x times that of the
 * row of w (Cauchy and Schwarz), and no activation is larger than its argument. Such a scale is some times larger than
 * the row needs. That costs a floating-point type no precision but of the smallest numbers. ---- */

/* x_length is that of a row before it was rounded to e4m3, which makes no number longer than 17/16. */
__device__ static inline float bound_scale(const hopper_job &job, float x_length)
{
    const float LONGER = 1.0f + 1.0f / 16, LARGEST = 448.0f;
    float bound = fabsf(job.alpha) * x_length * LONGER * __ldg(job.bound) + __ldg(job.bound + 1);
    return fmaxf(bound, 1e-30f) / LARGEST;
}

/* Of this lane's two rows of a warp's 16 from m on. */
__device__ static inline float2 load_lengths(const hopper_job &job, int m)
{
    int row = m + (int)(threadIdx.x & 31) / 4;
    return make_float2(row < job.M ? __ldg(job.x_length + row) : 0.0f,
                       row + 8 < job.M ? __ldg(job.x_length + row + 8) : 0.0f);
}

enum { HOPPER_CODES_ROW = 80 /* bytes between the rows of a panel of codes: no two lanes meet in a bank */ };

/* convert_pairs to codes. inverse: of the scales of a lane's two rows. */
template <typename T, int ACT>
__device__ static inline void convert_code_pairs(unsigned short (&out)[16], const float *d, float2 rows,
                                                 float2 inverse, const hopper_columns<true> &columns)
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float2 b = wide_pair<T>(columns.bias[i / 2]), f = columns.factor(i % 2 ? rows.y : rows.x, i / 2);
        float unit = i % 2 ? inverse.y : inverse.x;
        float x = unit * hopper_act<ACT>(fmaf(f.x, d[2 * i], b.x)),
              y = unit * hopper_act<ACT>(fmaf(f.y, d[2 * i + 1], b.y));
        out[i] = __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, __NV_E4M3);
    }
}

/* Writes 64 columns of 16 rows to a panel of codes. A lane has codes 2 l, 2 l + 1 of each 8 columns, l = lane % 4;
 * stmatrix places what a lane gives it side by side, so 16 columns are stored as their pairs 0, 4, 1, 5, 2, 6, 3, 7. */
__device__ static inline void write_code_panel(unsigned panel, const unsigned short (&pairs)[16])
{
    int lane = threadIdx.x & 31, row = lane % 16, column = lane / 16;
    unsigned to = panel + row * HOPPER_CODES_ROW + 16 * column, word[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) { /* matrix k: rows from 8 (k % 2) on, 16 columns from 32 i + 16 (k / 2) on */
            int first = 8 * i + 4 * (k / 2) + k % 2;
            word[i][k] = (unsigned)pairs[first] | (unsigned)pairs[first + 2] << 16;
        }
#pragma unroll
    for (int i = 0; i < 2; i++)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to + 32 * i),
                     "r"(word[i][0]), "r"(word[i][1]), "r"(word[i][2]), "r"(word[i][3])
                     : "memory");
}

/* Writes 64 columns of a warp's 16 rows to a panel of codes. */
template <typename T>
__device__ static inline void convert_codes(unsigned panel, const float *d, const hopper_job &job,
                                            float2 rows, float2 inverse, const hopper_columns<true> &columns)
{
    unsigned short out[16];
    switch (job.act) {
    case PROA_ACT_RELU: convert_code_pairs<T, PROA_ACT_RELU>(out, d, rows, inverse, columns); break;
    case PROA_ACT_GELU: convert_code_pairs<T, PROA_ACT_GELU>(out, d, rows, inverse, columns); break;
    case PROA_ACT_GELU_TANH: convert_code_pairs<T, PROA_ACT_GELU_TANH>(out, d, rows, inverse, columns); break;
    case PROA_ACT_SILU: convert_code_pairs<T, PROA_ACT_SILU>(out, d, rows, inverse, columns); break;
    default: convert_code_pairs<T, PROA_ACT_NONE>(out, d, rows, inverse, columns); break;
    }
    write_code_panel(panel, out);
}

/* Reads a panel of codes and stores it, 16 bytes a lane. */
__device__ static inline void store_codes(const hopper_job &job, unsigned panel, int m, int n)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = (int)(threadIdx.x & 31) + 32 * i, row = at / 4, piece = at % 4;
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(panel + row * HOPPER_CODES_ROW + piece * 16)
                     : "memory");
        uint4 codes = make_uint4(__byte_perm(v.x, v.y, 0x5410), __byte_perm(v.z, v.w, 0x5410),
                                 __byte_perm(v.x, v.y, 0x7632), __byte_perm(v.z, v.w, 0x7632));
        uint8_t *to = static_cast<uint8_t *>(job.y) + (int64_t)(m + row) * job.y_row + n + 16 * piece;
        if (m + row < job.M && n + 16 * piece < job.N) *reinterpret_cast<uint4 *>(to) = codes;
    }
}

/* ---- a tile ---- */

/* What the epilogue of a tile needs besides the sums. It is loaded before the products, so that nothing waits for it
 * behind them, where registers suffice for all columns of a tile, else for 64 columns at a time. CODES: y is e4m3. */
template <typename T, typename F, bool SCALED, bool CODES> struct hopper_factors {
    static const bool ALL = !SCALED || F::BN <= 128;
    hopper_columns<SCALED> columns[ALL ? F::BN / 64 : 1];
    float2 rows[F::STRIPS], lengths[CODES ? F::STRIPS : 1], inverse[CODES ? F::STRIPS : 1];

    __device__ void load(const hopper_job &job, int m, int n)
    {
#pragma unroll
        for (int s = 0; s < F::STRIPS; s++) {
            rows[s] = load_rows<SCALED>(job, m + s * HOPPER_STRIP);
            if constexpr (CODES) lengths[s] = load_lengths(job, m + s * HOPPER_STRIP);
        }
#pragma unroll
        for (int c = 0; c < F::BN / 64 && ALL; c++) load_columns<T>(columns[c], job, n + 64 * c);
    }
    /* The scales of the rows of y; the first tile of a row writes them. */
    __device__ void finish(const hopper_job &job, int m, int n)
    {
#pragma unroll
        for (int s = 0; s < F::STRIPS && CODES; s++) {
            int row = m + s * HOPPER_STRIP + (int)(threadIdx.x & 31) / 4;
            float first = bound_scale(job, lengths[s].x), second = bound_scale(job, lengths[s].y);
            bool writes = n == 0 && threadIdx.x % 4 == 0;
            inverse[s] = make_float2(1.0f / first, 1.0f / second);
            if (writes && row < job.M) job.y_scale[row] = first;
            if (writes && row + 8 < job.M) job.y_scale[row + 8] = second;
        }
    }
    __device__ const hopper_columns<SCALED> &of(const hopper_job &job, int n, int c)
    {
        if constexpr (ALL) return columns[c];
        load_columns<T>(columns[0], job, n + 64 * c);
        return columns[0];
    }
};

/* Writes a warp's 16 rows of each strip, 64 columns at a time, through two panels in turn. */
template <typename T, typename F, bool SCALED, bool CODES>
__device__ static inline void write_tile(const float (&sum)[F::STRIPS][F::BN / 2],
                                         hopper_factors<T, F, SCALED, CODES> &factors,
                                         const hopper_ring &ring, hopper_cursor<F::SLOTS> &at,
                                         const hopper_job &job, hopper_tile_origin p, int row, unsigned panels)
{
    int turn = 0;
#pragma unroll
    for (int c = 0; c < F::BN / 64; c++) {
        const hopper_columns<SCALED> &columns = factors.of(job, p.n, c);
        unsigned residual = 0;
        if (!CODES && job.has_residual) {
            if (c % 2 == 0) gpu_barrier_wait(ring.full + 8 * at.slot, at.phase);
            residual = ring.slots + at.slot * F::SLOT_BYTES + c % 2 * F::X_BYTES + row * HOPPER_ROW;
        }
#pragma unroll
        for (int s = 0; s < F::STRIPS; s++, turn ^= 1) {
            unsigned panel = panels + turn * HOPPER_PANEL;
            int m = p.m + row + s * HOPPER_STRIP;
            if constexpr (CODES) {
                convert_codes<T>(panel, sum[s] + 32 * c, job, factors.rows[s], factors.inverse[s], columns);
                __syncwarp();
                store_codes(job, panel, m, p.n + 64 * c);
            } else {
                convert_panel<T>(sum[s] + 32 * c, job, factors.rows[s], columns, panel,
                                 residual ? residual + s * HOPPER_STRIP * HOPPER_ROW : 0);
                __syncwarp();
                store_panel<T>(job, panel, m, p.n + 64 * c);
            }
        }
        if (!CODES && job.has_residual && c % 2 == 1) {
            release_slot<F>(ring, at.slot);
            at.step();
        }
    }
}

template <typename T, typename F, typename X, bool CODES>
__device__ static inline void consume_tiles(const hopper_ring &ring, const hopper_job &job, int rank,
                                            unsigned panels)
{
    /* the same number in all lanes, visibly to the compiler, so that descriptors stay in uniform registers */
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0) - 4, group = warp / 4, turn = 0;
    int strip = F::ALTERNATE ? 0 : group * F::STRIPS * HOPPER_STRIP, row = strip + warp % 4 * 16;
    int slots = job.slabs + (job.has_residual ? F::BN / 128 : 0);
    hopper_cursor<F::SLOTS> at = {0, 0};
    panels += warp * 2 * HOPPER_PANEL;
    for (int tile = blockIdx.x / F::CLUSTER; tile < job.tiles; tile += gridDim.x / F::CLUSTER, turn ^= 1) {
        float sum[F::STRIPS][F::BN / 2];
        hopper_factors<T, F, sizeof(X) == 1, CODES> factors;
        if (F::ALTERNATE && turn != group) {
            at.skip(slots);
            continue;
        }
        hopper_tile_origin p = tile_origin_of<F>(job, tile, rank);
        factors.load(job, p.m + row, p.n);
        if (F::ALTERNATE && (group == 1 || tile != (int)blockIdx.x / F::CLUSTER))
            gpu_named_sync(2 + group, 256);
        int last = multiply_tile<X, F>(sum, ring, at, job.slabs, (unsigned)(strip * HOPPER_ROW));
        if (F::ALTERNATE) {
            /* phases are told apart by parity alone, so no one may be two turns of the ring ahead of a load */
            if (job.has_residual) gpu_barrier_wait(ring.full + 8 * at.slot, at.phase);
            gpu_named_arrive(3 - group, 256);
        }
        factors.finish(job, p.m + row, p.n);
        gpu_wgmma_wait<0>();
        release_slot<F>(ring, last);
        write_tile(sum, factors, ring, at, job, p, row, panels);
    }
}
#endif

/* ---- the kernel ---- */

/* T: type of y, the bias and the residual; X: of x and w; CODES: y is of e4m3, and there is no residual. */
template <typename T, typename F, typename X = T, bool CODES = false>
__global__ void __launch_bounds__(HOPPER_THREADS, 1)
    gemm_wgmma_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                      const __grid_constant__ CUtensorMap residual, const __grid_constant__ hopper_job job)
{
#ifdef GPU_HOPPER
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned begin = gpu_smem_address(memory), barriers = begin + F::BARRIERS_AT;
    hopper_ring ring = {begin, barriers, barriers + 8 * F::SLOTS};
    int rank = F::CLUSTER > 1 ? (int)(blockIdx.x % F::CLUSTER) : 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < F::SLOTS; i++) {
            gpu_barrier_init(ring.full + 8 * i, 1);
            gpu_barrier_init(ring.empty + 8 * i, (F::ALTERNATE ? 4 : 8) * F::CLUSTER);
        }
        gpu_barrier_fence();
    }
    cluster_sync<F::CLUSTER>();
    gpu_wait();
    if (threadIdx.x < 128) {
        gpu_setmaxnreg_dec<24>();
        if (threadIdx.x == 0) {
            hopper_cursor<F::SLOTS> at = {0, 0};
            for (int tile = blockIdx.x / F::CLUSTER; tile < job.tiles; tile += gridDim.x / F::CLUSTER)
                load_tile_slabs<F, hopper_slab(sizeof(X))>(ring, at, job, tile_origin_of<F>(job, tile, rank),
                                                           rank, &x, &w, &residual);
        }
    } else {
        gpu_setmaxnreg_inc<240>();
        consume_tiles<T, F, X, CODES>(ring, job, rank, begin + F::PANELS_AT);
    }
    cluster_sync<F::CLUSTER>(); /* the other block may still write here and arrive at these barriers */
#endif
}

#endif
