/* SPDX-License-Identifier: Apache-2.0
 * grouped_gemm.cu - grouped products with weights of 16, 8 and 4 bits on tensor cores. Few pairs an expert: a kernel
 * whose warps share K (that of linear/skinny_gemm.cu, with the weight of the tile's expert). Many: a kernel whose warps
 * share outputs and read x from shared memory.
 *
 * As in skinny_gemm.cu the order of k within a product is free: each lane takes 16 bytes of a row of weights and the
 * numbers of x at the same places, so weights go from memory to the registers of the one warp that needs them. */
#include "kernels/cuda/experts/experts.h"

/* ---- few pairs ---- */

enum { SKINNY_WARPS = 4 };

/* y of the tile blockIdx.y, up to 8 ROW_TILES rows of x.
 *
 *   block        4 warps make 16 sums (gated: 8 outputs) of all rows
 *   warp         shares K: steps of 64 bytes of each of 16 rows of weights, mma.m16n8k16 with 16 rows of weights as A
 *                and 8 rows of x as B, ROW_TILES times
 *   registers    STAGES steps of weights in flight (2 x 16 bytes a lane each), ROW_TILES x 4 sums
 *   shared       4 x 16 x (8 ROW_TILES + 1) floats: the warps' sums, added in the order of the warps
 *
 * Which weights a block reads depends on the router, so nothing is loaded before gpu_wait. */
template <int FORMAT, int ROW_TILES, int STAGES>
__global__ void __launch_bounds__(32 * SKINNY_WARPS) expert_skinny_kernel(expert_call a)
{
    const int WARPS = SKINNY_WARPS, ROWS = 8 * ROW_TILES,
              EACH = (16 * ROWS + 32 * WARPS - 1) / (32 * WARPS); /* outputs that a thread finishes */
    typedef unpacked<FORMAT> form;
    typedef typename form::type T;
    typedef group_factors<FORMAT> groups;
    const int COUNT = form::COUNT, STEP = 4 * COUNT, FOURS = COUNT / 4, GROUP_FOURS = FOURS / groups::GROUPS;
    __shared__ float scratch[WARPS][16][ROWS + 1];
    __shared__ int2 at[ROWS]; /* rows of x and of y */
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, r = lane / 4, c = lane % 4;
    int steps = (a.K + STEP - 1) / STEP;
    expert_tile tile;
    gpu_wait();
    if (!expert_tile_at(a.lists, blockIdx.y, &tile)) return;
    const char *w = a.w + tile.expert * a.expert_bytes;
    const T *x = (const T *)a.x + tile.expert * a.x_expert;
    const block_rows<16> rows(a.e, a.N, blockIdx.x);
    int from[2] = {rows.row(r, false), rows.row(r, true)};
    unsigned next[STAGES][2][4];
    groups factors[STAGES][2];
    float sum[ROW_TILES][4] = {};
    auto fetch = [&](int d, int s) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (s < steps && s * 64 + c * 16 < a.row_bytes)
                v = load_stream(w + from[i] * a.row_bytes + s * 64 + c * 16);
            next[d][i][0] = v.x, next[d][i][1] = v.y, next[d][i][2] = v.z, next[d][i][3] = v.w;
            if (s < steps) factors[d][i].load(w + a.scales_at, steps, from[i], s);
        }
    };
#pragma unroll
    for (int d = 0; d < STAGES; d++) fetch(d, warp + d * WARPS);
    if ((int)threadIdx.x < tile.rows) at[threadIdx.x] = expert_rows_of(a, tile.first + threadIdx.x);
    __syncthreads();
    for (int base = warp; base < steps; base += STAGES * WARPS) {
#pragma unroll
        for (int d = 0; d < STAGES; d++) {
            int s = base + d * WARPS;
            if (s >= steps) break;
            unsigned b[ROW_TILES][FOURS][2];
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
                for (int j = 0; j < FOURS; j += 2) {
                    uint4 v = make_uint4(0, 0, 0, 0);
                    if (8 * t + r < tile.rows)
                        v = load_vec8(x + at[8 * t + r].x * a.x_row, s * STEP + form::inputs(c, j), a.K,
                                      a.aligned);
                    b[t][j][0] = v.x, b[t][j][1] = v.y, b[t][j + 1][0] = v.z, b[t][j + 1][1] = v.w;
                }
            group_part<T, FORMAT> part[ROW_TILES];
#pragma unroll
            for (int j = 0; j < FOURS; j++) {
                unsigned pairs[4];
                form::pairs(next[d][0], j, pairs[0], pairs[2]);
                form::pairs(next[d][1], j, pairs[1], pairs[3]);
#pragma unroll
                for (int t = 0; t < ROW_TILES; t++) {
                    if (j % GROUP_FOURS == 0) part[t].clear();
                    gpu_mma<T>::run(groups::USED ? part[t].sum : sum[t], pairs, b[t][j][0], b[t][j][1]);
                    if (groups::USED) part[t].sum_inputs(b[t][j][0], b[t][j][1]);
                    if (groups::USED && (j + 1) % GROUP_FOURS == 0)
                        part[t].add_to(sum[t], factors[d], j / GROUP_FOURS, part[t].inputs);
                }
            }
            fetch(d, s + STAGES * WARPS);
        }
    }
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) scratch[warp][i / 2 * 8 + r][8 * t + 2 * c + i % 2] = sum[t][i];
    __syncthreads();
    int output = (int)threadIdx.x % 16, n = rows.first + output;
    if (!rows.makes(output)) return;
    expert_operands o = expert_operands_of<FORMAT>(a, w, tile.expert, n);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int m = (int)threadIdx.x / 16 + i * 2 * WARPS;
        float v = 0.0f, u = 0.0f;
        if (m >= tile.rows) continue;
#pragma unroll
        for (int k = 0; k < WARPS; k++) v += scratch[k][output][m];
        if (a.e.gate_rows)
#pragma unroll
            for (int k = 0; k < WARPS; k++) u += scratch[k][output + 8][m];
        expert_store(a, tile.expert, at[m].y, n, expert_finish(a, v, u, o, expert_weight_of(a, tile.first + m)));
    }
}

/* ---- many pairs ---- */

enum { WIDE_WARPS = 8, WIDE_THREADS = WIDE_WARPS * 32 };

/* How x is stored in shared memory: DEPTH numbers of each row, PITCH bytes between rows, so that the 16-byte loads of
 * eight lanes (two rows, four places) meet all banks. */
template <int FORMAT> struct wide_layout {
    static const int DEPTH = unpacked<FORMAT>::COUNT == 8 ? 64 : 128,
                     PITCH = DEPTH * 2 + (unpacked<FORMAT>::APART == 16 ? 16 : 64);
};

/* The 2 x 16 rows of weights of a warp. Gated: 16 of the gate and the 16 of its factor, so that the warp has both sums
 * of its 16 outputs. Else 32 that follow each other. */
struct wide_outputs {
    int first, end;
    __device__ wide_outputs(const expert_call &a, int group)
        : first(group * (a.e.gate_rows ? 16 : 32)), end(outputs_of(a.e, a.N))
    {
    }
    /* Row of weights i (0..15) of set 0 or 1; behind the end the last one again, whose sums are unused. */
    __device__ int row(const expert_call &a, int set, int i) const
    {
        int n = first + i + (a.e.gate_rows ? 0 : 16 * set);
        return min(n, end - 1) + (a.e.gate_rows ? set * a.e.gate_rows : 0);
    }
};

/* y of the tile blockIdx.x, up to 8 ROW_TILES rows of x.
 *
 *   block        8 warps make 256 sums (gated: 128 outputs) of all rows
 *   warp         2 x 16 rows of weights (A of mma.m16n8k16) with all rows of x (B), over all of K
 *   registers    2 x ROW_TILES x 4 sums, the weights of one stage ahead
 *   shared       two stages of x, [ROWS][DEPTH], gathered by the lists; the next one is loaded while this is multiplied
 *
 * Tiles of one expert follow each other in blockIdx.x, so its weights come from the L2 cache after the first. */
template <int FORMAT, int ROW_TILES>
__global__ void __launch_bounds__(WIDE_THREADS) expert_wide_kernel(expert_call a)
{
    typedef unpacked<FORMAT> form;
    typedef typename form::type T;
    typedef group_factors<FORMAT> groups;
    const int COUNT = form::COUNT, STEP = 4 * COUNT, FOURS = COUNT / 4, ROWS = 8 * ROW_TILES;
    const int GROUP_FOURS = FOURS / groups::GROUPS;
    const int DEPTH = wide_layout<FORMAT>::DEPTH, PITCH = wide_layout<FORMAT>::PITCH, STEPS = DEPTH / STEP;
    const int PIECES = DEPTH / 8, LOADS = (ROWS * PIECES + WIDE_THREADS - 1) / WIDE_THREADS;
    __shared__ __align__(16) char xs[2][ROWS * PITCH];
    __shared__ int2 at[ROWS];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, r = lane / 4, c = lane % 4;
    int stages = (a.K + DEPTH - 1) / DEPTH;
    expert_tile tile;
    gpu_wait();
    if (!expert_tile_at(a.lists, blockIdx.x, &tile)) return;
    const char *w = a.w + tile.expert * a.expert_bytes;
    const T *x = (const T *)a.x + tile.expert * a.x_expert;
    const wide_outputs outputs(a, blockIdx.y * WIDE_WARPS + warp);
    if ((int)threadIdx.x < tile.rows) at[threadIdx.x] = expert_rows_of(a, tile.first + threadIdx.x);
    __syncthreads();

    uint4 ahead[LOADS];
    auto load_x = [&](int stage) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int piece = threadIdx.x + i * WIDE_THREADS, m = piece / PIECES;
            ahead[i] = make_uint4(0, 0, 0, 0);
            if (m < tile.rows)
                ahead[i] = load_vec8(x + at[m].x * a.x_row, stage * DEPTH + piece % PIECES * 8, a.K, a.aligned);
        }
    };
    auto store_x = [&](int stage) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int piece = threadIdx.x + i * WIDE_THREADS, m = piece / PIECES;
            if (m < ROWS)
                *reinterpret_cast<uint4 *>(xs[stage & 1] + m * PITCH + piece % PIECES * 16) = ahead[i];
        }
    };
    int from[2][2];
    unsigned next[STEPS][2][2][4];
    groups factors[STEPS][2][2];
#pragma unroll
    for (int set = 0; set < 2; set++)
#pragma unroll
        for (int i = 0; i < 2; i++) from[set][i] = outputs.row(a, set, r + 8 * i);
    auto fetch = [&](int d, int s) { /* step s of 64 bytes */
#pragma unroll
                                     for (int set = 0; set < 2; set++)
#pragma unroll
                                         for (int i = 0; i < 2; i++) {
                                             uint4 v = make_uint4(0, 0, 0, 0);
                                             bool within = (int64_t)s * 64 + c * 16 < a.row_bytes;
                                             if (within)
                                                 v = load_stream(w + from[set][i] * a.row_bytes +
                                                                 (int64_t)s * 64 + c * 16);
                                             next[d][set][i][0] = v.x, next[d][set][i][1] = v.y,
                                             next[d][set][i][2] = v.z, next[d][set][i][3] = v.w;
                                             if (s * 64 < a.row_bytes)
                                                 factors[d][set][i].load(
                                                     w + a.scales_at, (int)(a.row_bytes / 64), from[set][i], s);
                                         }
    };
    float sum[2][ROW_TILES][4] = {};
    load_x(0);
#pragma unroll
    for (int d = 0; d < STEPS; d++) fetch(d, d);
    store_x(0);
    __syncthreads();
    for (int stage = 0; stage < stages; stage++) {
        if (stage + 1 < stages) load_x(stage + 1);
#pragma unroll
        for (int d = 0; d < STEPS; d++) {
            group_part<T, FORMAT> part[2][ROW_TILES];
#pragma unroll
            for (int j = 0; j < FOURS; j += 2) {
                unsigned pairs[2][2][4];
#pragma unroll
                for (int set = 0; set < 2; set++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        form::pairs(next[d][set][0], j + h, pairs[set][h][0], pairs[set][h][2]);
                        form::pairs(next[d][set][1], j + h, pairs[set][h][1], pairs[set][h][3]);
                    }
#pragma unroll
                for (int t = 0; t < ROW_TILES; t++) {
                    uint4 b = *reinterpret_cast<const uint4 *>(xs[stage & 1] + (8 * t + r) * PITCH +
                                                               (d * STEP + form::inputs(c, j)) * 2);
#pragma unroll
                    for (int set = 0; set < 2; set++) {
                        if (j % GROUP_FOURS == 0) part[set][t].clear();
                        float *to = groups::USED ? part[set][t].sum : sum[set][t];
                        gpu_mma<T>::run(to, pairs[set][0], b.x, b.y);
                        gpu_mma<T>::run(to, pairs[set][1], b.z, b.w);
                        if (!groups::USED) continue;
                        if (set == 0) part[0][t].sum_inputs(b.x, b.y), part[0][t].sum_inputs(b.z, b.w);
                        if ((j + 2) % GROUP_FOURS == 0)
                            part[set][t].add_to(sum[set][t], factors[d][set], j / GROUP_FOURS, part[0][t].inputs);
                    }
                }
            }
            fetch(d, (stage + 1) * STEPS + d);
        }
        if (stage + 1 < stages) store_x(stage + 1); /* its half was read before the last barrier */
        __syncthreads();
    }
#pragma unroll
    for (int set = 0; set < 2; set++) {
        if (a.e.gate_rows && set) break;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int n = outputs.first + r + 8 * half + 16 * set;
            if (n >= outputs.end) continue;
            expert_operands o = expert_operands_of<FORMAT>(a, w, tile.expert, n);
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int m = 8 * t + 2 * c + i;
                    if (m < tile.rows)
                        expert_store(a, tile.expert, at[m].y, n,
                                     expert_finish(a, sum[set][t][2 * half + i], sum[1][t][2 * half + i], o,
                                                   expert_weight_of(a, tile.first + m)));
                }
        }
    }
}

/* ---- choosing ---- */

/* Up to 12 pairs an expert on average the weights' bytes are the limit, and more blocks are better. */
expert_form expert_form_of(proa_wfmt format, int64_t T, int64_t k, int64_t E)
{
    int64_t average = T * k / E;
    if (format == PROA_WFMT_F32 || T <= 8 || average <= 3) return {false, 8};
    if (T <= 16 || average <= 12) return {false, 16};
    return {true, average <= 28 ? 32 : 64};
}

template <int FORMAT, int ROW_TILES> static void launch_skinny(gpu *g, const expert_call &a, int tiles)
{
    const int STAGES = unpacked<FORMAT>::COUNT == 32 || ROW_TILES > 1 ? 2 : 4;
    dim3 grid((unsigned)blocks_of(a.e, a.N, 16), (unsigned)tiles);
    gpu_launch(g, "experts (few rows)", expert_skinny_kernel<FORMAT, ROW_TILES, STAGES>, grid,
               32 * SKINNY_WARPS, 0, a);
}

template <int FORMAT, int ROW_TILES> static void launch_wide(gpu *g, const expert_call &a, int tiles)
{
    int outputs = WIDE_WARPS * (a.e.gate_rows ? 16 : 32);
    dim3 grid((unsigned)tiles, (unsigned)((outputs_of(a.e, a.N) + outputs - 1) / outputs));
    gpu_launch(g, "experts (many rows)", expert_wide_kernel<FORMAT, ROW_TILES>, grid, WIDE_THREADS, 0, a);
}

template <int FORMAT> static void launch(gpu *g, const expert_call &a, const expert_form &form, int tiles)
{
    if (form.wide)
        form.rows == 32 ? launch_wide<FORMAT, 4>(g, a, tiles) : launch_wide<FORMAT, 8>(g, a, tiles);
    else form.rows == 8 ? launch_skinny<FORMAT, 1>(g, a, tiles) : launch_skinny<FORMAT, 2>(g, a, tiles);
}

void expert_product(gpu *g, const expert_call &a, proa_wfmt format, const expert_form &form, int tiles)
{
    switch (format) {
    case PROA_WFMT_F32: expert_product_f32(g, a, tiles); break;
    case PROA_WFMT_F16: launch<PROA_WFMT_F16>(g, a, form, tiles); break;
    case PROA_WFMT_BF16: launch<PROA_WFMT_BF16>(g, a, form, tiles); break;
    case PROA_WFMT_FP8: launch<PROA_WFMT_FP8>(g, a, form, tiles); break;
    case PROA_WFMT_I8W: launch<PROA_WFMT_I8W>(g, a, form, tiles); break;
    case PROA_WFMT_I4A: launch<PROA_WFMT_I4A>(g, a, form, tiles); break;
    case PROA_WFMT_I4A32: launch<PROA_WFMT_I4A32>(g, a, form, tiles); break;
    case PROA_WFMT_MXFP4W: launch<PROA_WFMT_MXFP4W>(g, a, form, tiles); break;
    case PROA_WFMT_I8G: launch<PROA_WFMT_I8G>(g, a, form, tiles); break;
    case PROA_WFMT_FP8G: launch<PROA_WFMT_FP8G>(g, a, form, tiles); break;
    default: launch<PROA_WFMT_I4>(g, a, form, tiles); break;
    }
}
