/* SPDX-License-Identifier: Apache-2.0
 * single_row.cu - a mixture of experts for one row, weights of 16, 8 and 4 bits: the limit is the bytes of the chosen
 * experts. Two kernels: one makes the FFN of all chosen experts, the other their weighted sum. Each block of the second
 * adds all experts of its outputs, so nothing is left to add. Lanes read whole rows of weights as they are stored, and
 * multiply their parts on tensor cores in place (as multiply_rows, linear/skinny_gemm.h). */
#include "kernels/cuda/experts/route.h"

enum { OUTPUTS = 8, CHOSEN_MAX = 64 };

/* Threads of a block of the second product, its blocks of an SM, and the steps of weights that it has in flight. */
enum { DOWN_THREADS = 128, DOWN_WARPS = DOWN_THREADS / 32, DOWN_BLOCKS = 4, DOWN_AHEAD = 2 };

/* Blocks of an SM of the first product, of 64 or 96 threads, by registers. */
__host__ __device__ constexpr int up_blocks(int format, int threads)
{
    bool plain = !proa_wfmt_is_coded((proa_wfmt)format); /* no factors of groups */
    return (plain ? 1024 : 768) / threads;
}

/* Sixteen bytes of each row of weights of a block, and the factors of their groups. */
template <int FORMAT> struct weight_pieces {
    unsigned bytes[OUTPUTS][4];
    group_factors<FORMAT> factors[OUTPUTS];
};

/* The rows of weights of a block, as pieces behind the first row of the matrix. */
template <int FORMAT> struct row_pieces {
    unsigned pieces, row[OUTPUTS];
    int64_t scales_at;
    __device__ row_pieces(const expert_call &a, const block_rows<OUTPUTS> &rows)
        : pieces((unsigned)(a.row_bytes / 16)), scales_at(a.scales_at)
    {
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++) row[r] = (unsigned)rows.row(r);
    }
    __device__ void fetch(weight_pieces<FORMAT> &next, const char *w, unsigned piece) const
    {
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++) {
            uint4 v = load_row_stream((const uint4 *)w + (row[r] * pieces + piece));
            next.bytes[r][0] = v.x, next.bytes[r][1] = v.y, next.bytes[r][2] = v.z, next.bytes[r][3] = v.w;
            next.factors[r].load(w + scales_at, (int)(pieces + 3) / 4, (int)row[r], (int)piece / 4);
        }
    }
};

/* The numbers of x that meet a piece, zeros behind K. */
template <int FORMAT> struct input_piece {
    typedef unpacked<FORMAT> form;
    unsigned x[form::COUNT / 2];
    __device__ input_piece(const __half *row, int piece, int K, bool aligned)
    {
#pragma unroll
        for (int j = 0; j < form::COUNT / 4; j += 2) {
            uint4 v = load_vec8(row, piece / 4 * 4 * form::COUNT + form::inputs(piece % 4, j), K, aligned);
            x[2 * j] = v.x, x[2 * j + 1] = v.y, x[2 * j + 2] = v.z, x[2 * j + 3] = v.w;
        }
    }
};

/* As multiply_rows, of rows r and r + 1: each group of numbers times its factor. */
template <int FORMAT>
__device__ static inline float2 multiply_pieces(const weight_pieces<FORMAT> &w, int r,
                                                const input_piece<FORMAT> &in)
{
    typedef group_factors<FORMAT> groups;
    const int FOURS = unpacked<FORMAT>::COUNT / 4 / groups::GROUPS; /* of a group */
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int g = 0; g < groups::GROUPS; g++) {
        float d[4] = {};
#pragma unroll
        for (int j = g * FOURS; j < (g + 1) * FOURS; j++) {
            unsigned a[4];
            exact_unpacked<FORMAT>::pairs(w.bytes[r], j, a[0], a[2]);
            exact_unpacked<FORMAT>::pairs(w.bytes[r + 1], j, a[1], a[3]);
            gpu_mma<typename unpacked<FORMAT>::type>::run(d, a, in.x[2 * j], in.x[2 * j + 1]);
        }
        float2 two = threadIdx.x & 4 ? make_float2(d[1], d[3]) : make_float2(d[0], d[2]);
        if (!groups::USED) return two;
        sum.x = fmaf(w.factors[r].scale(g), two.x, sum.x), sum.y = fmaf(w.factors[r + 1].scale(g), two.y, sum.y);
    }
    return sum;
}

/* Sum r of all warps. */
template <int COUNT> __device__ static inline float add_warps(const float (&scratch)[COUNT][OUTPUTS], int r)
{
    float v = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) v += scratch[i][r];
    return v;
}

/* The expert of this block's round, of up to 32 COUNT, the same for all threads: by one warp, from the scores. The first
 * block also writes what all rounds choose. Behind the wait; a barrier of the block. Releases the next kernel, which
 * reads what the first block has written before its own wait. */
template <int COUNT> __device__ static inline int choose_expert(const route_call &a)
{
    __shared__ int chosen;
    if (threadIdx.x < LANES) {
        float x[COUNT], correction[COUNT];
        load_correction(correction, a);
        load_scores(x, a, a.scores);
        int expert = expert_of_round(a, x, correction, (int)blockIdx.y);
        if (threadIdx.x == 0) chosen = expert;
        if (blockIdx.x == 0 && blockIdx.y == 0) {
            route_few(a, 0, x, correction);
            __threadfence();
        }
    }
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
    return chosen;
}

/* The FFN of the row and its chosen expert blockIdx.y.
 *
 *   block        64 or 96 threads make 8 sums (gated: 4 outputs); the threads share K in pieces of 16 bytes. Small
 *                blocks: all or nearly all have room at once, so that few wait for another block's choice and sums
 *   registers    8 pieces of weights in flight
 *   shared       2 or 3 warps x 8 floats
 *
 * The expert is known only behind the wait, or is chosen there, of up to 32 COUNT (COUNT > 0). The next kernel is
 * released then too, so that it may read the ids and weights of the experts before its own wait. */
template <int FORMAT, int COUNT, int THREADS>
__global__ void __launch_bounds__(THREADS, up_blocks(FORMAT, THREADS))
    expert_row_up_kernel(expert_call a, route_call choice)
{
    const int WARPS = THREADS / 32;
    __shared__ float scratch[WARPS][OUTPUTS];
    const block_rows<OUTPUTS> rows(a.e, a.N, blockIdx.x);
    int pieces = (int)(a.row_bytes / 16), me = (int)threadIdx.x, n = rows.first + me;
    const row_pieces<FORMAT> from(a, rows);
    bool ends = rows.makes(me);
    weight_pieces<FORMAT> next = {};
    float sum[OUTPUTS] = {};
    expert_operands o = {};
    int expert;
    if constexpr (COUNT > 0) {
#if __CUDA_ARCH__ >= 900
        cudaGridDependencySynchronize();
#endif
        expert = choose_expert<COUNT>(choice);
    } else {
        gpu_wait_then_release();
        expert = a.lists.ids[blockIdx.y];
    }
    const char *w = a.w + expert * a.expert_bytes;
    if (me < pieces) from.fetch(next, w, me);
    if (ends) o = expert_operands_of<FORMAT>(a, w, expert, n);
    for (int first = 0; first < pieces; first += THREADS) { /* all lanes */
        int piece = first + me;
        const input_piece<FORMAT> in((const __half *)a.x, piece, a.K, a.aligned);
#pragma unroll
        for (int r = 0; r < OUTPUTS; r += 2) {
            float2 two = multiply_pieces(next, r, in);
            sum[r] += two.x, sum[r + 1] += two.y;
        }
        if (piece + THREADS < pieces) from.fetch(next, w, piece + THREADS);
    }
    add_group_sums<FORMAT>(scratch, sum);
    __syncthreads();
    if (!ends) return;
    float v = add_warps(scratch, me), u = a.e.gate_rows ? add_warps(scratch, me + OUTPUTS / 2) : 0.0f;
    /* experts whose weights scale their inputs are chosen before this kernel */
    float weight = COUNT == 0 && a.weights ? a.weights[blockIdx.y] : 1.0f;
    expert_store(a, 0, blockIdx.y, n, expert_finish(a, v, u, o, weight));
}

/* A piece of the concatenated rows of the chosen experts. */
struct chosen_piece {
    int chosen, piece;
    __device__ void step(int by, int pieces)
    {
        for (piece += by; piece >= pieces; piece -= pieces) chosen++;
    }
};

/* What the sums of a row of weights of a chosen expert are to be multiplied by. */
template <int FORMAT> __device__ static inline float row_unit(const expert_call &a, int chosen, int row)
{
    const float *scales = (const float *)(a.w + a.lists.ids[chosen] * a.expert_bytes + a.scales_at);
    return FORMAT == PROA_WFMT_FP8 || FORMAT == PROA_WFMT_I8W ? a.unit * scales[row] : a.unit;
}

/* The weight of the outputs of the j-th chosen expert. */
template <bool WEIGHTED> __device__ static inline float weight_of_chosen(const float *weights, int j)
{
    return WEIGHTED ? weights[j] : 1.0f;
}

/* The bias of output n and those of the chosen experts for it, each times the expert's weight. */
template <bool WEIGHTED>
__device__ static inline float bias_of_chosen(const expert_call &a, const float *weights, const float *bias, int n)
{
    float sum = bias ? bias[n] : 0.0f;
    for (int j = 0; a.e.bias && j < a.lists.k; j++)
        sum = fmaf(weight_of_chosen<WEIGHTED>(weights, j), a.e.bias[(int64_t)a.lists.ids[j] * a.N + n], sum);
    return sum;
}

/* y = residual + bias + the outputs of all chosen experts, each times its weight.
 *
 *   block        128 threads make 8 outputs; the threads share the rows of all chosen experts, one behind the other,
 *                in pieces of 16 bytes; a group of four lanes has pieces of one expert
 *   registers    2 x 8 pieces of weights in flight
 *   shared       factor [k][8]: the weight of an expert times the scale of its row of weights
 *
 * expert_row_up_kernel is the kernel before. It releases this one when the ids and weights are known and written, so
 * these and the first pieces are read before gpu_wait. */
template <int FORMAT, bool WEIGHTED>
__global__ void __launch_bounds__(DOWN_THREADS, DOWN_BLOCKS)
    expert_row_down_kernel(expert_call a, const float *weights, const float *bias)
{
    __shared__ float scratch[DOWN_WARPS][OUTPUTS], factor[CHOSEN_MAX][OUTPUTS];
    const block_rows<OUTPUTS> rows(a.e, a.N, blockIdx.x);
    int pieces = (int)(a.row_bytes / 16), slots = (pieces + 3) / 4 * 4, chosen = a.lists.k;
    int n = rows.first + (int)threadIdx.x;
    bool ends = rows.makes((int)threadIdx.x);
    const row_pieces<FORMAT> from(a, rows);
    float base = 0.0f, sum[OUTPUTS] = {};
    weight_pieces<FORMAT> next[DOWN_AHEAD] = {};
    chosen_piece now = {0, 0}, ahead = {0, 0};
    now.step((int)threadIdx.x, slots), ahead = now;
    auto fetch = [&](int d) {
        if (ahead.chosen < chosen && ahead.piece < pieces)
            from.fetch(next[d], a.w + a.lists.ids[ahead.chosen] * a.expert_bytes, ahead.piece);
        ahead.step(DOWN_THREADS, slots);
    };
#pragma unroll
    for (int d = 0; d < DOWN_AHEAD; d++) fetch(d);
    for (int i = threadIdx.x; i < chosen * OUTPUTS; i += DOWN_THREADS) {
        int j = i / OUTPUTS, r = i % OUTPUTS;
        factor[j][r] = weight_of_chosen<WEIGHTED>(weights, j) * row_unit<FORMAT>(a, j, rows.row(r));
    }
    if (ends) base = bias_of_chosen<WEIGHTED>(a, weights, bias, n);
    __syncthreads();
    gpu_wait();
    if (ends && a.e.residual) base += residual_at(a.e, 0, n);
    for (int left = chosen * slots; left > 0;) { /* all lanes of a warp */
#pragma unroll
        for (int d = 0; d < DOWN_AHEAD; d++, left -= DOWN_THREADS) {
            bool mine = now.chosen < chosen; /* of the group: all four or none */
            if (left <= 0) break;
            const input_piece<FORMAT> in((const __half *)a.x + now.chosen * a.x_row, now.piece,
                                         mine ? a.K : 0, a.aligned);
#pragma unroll
            for (int r = 0; r < OUTPUTS; r += 2) {
                float2 two = multiply_pieces(next[d], r, in);
                if (mine) {
                    sum[r] = fmaf(two.x, factor[now.chosen][r], sum[r]);
                    sum[r + 1] = fmaf(two.y, factor[now.chosen][r + 1], sum[r + 1]);
                }
            }
            fetch(d);
            now.step(DOWN_THREADS, slots);
        }
    }
    add_group_sums<FORMAT>(scratch, sum);
    __syncthreads();
    if (ends) expert_store(a, 0, 0, n, base + add_warps(scratch, threadIdx.x));
}

bool expert_row_takes(const proa_experts *e, int64_t T, int64_t k)
{
    auto takes = [](proa_wfmt f) { /* neither f32 nor offsets of groups */
                                   return f != PROA_WFMT_F32 && f != PROA_WFMT_I4A && f != PROA_WFMT_I4A32;
    };
    bool alike = (e->up->format == PROA_WFMT_BF16) == (e->down->format == PROA_WFMT_BF16); /* the type of the FFN */
    return T == 1 && k <= CHOSEN_MAX && alike && takes(e->up->format) && takes(e->down->format);
}

/* f(an integral constant that is the format), of those that are taken. */
template <typename F> static void by_row_format(proa_wfmt format, F f)
{
    switch (format) {
    case PROA_WFMT_F16: f(std::integral_constant<int, PROA_WFMT_F16>()); break;
    case PROA_WFMT_BF16: f(std::integral_constant<int, PROA_WFMT_BF16>()); break;
    case PROA_WFMT_FP8: f(std::integral_constant<int, PROA_WFMT_FP8>()); break;
    case PROA_WFMT_I8W: f(std::integral_constant<int, PROA_WFMT_I8W>()); break;
    case PROA_WFMT_I8G: f(std::integral_constant<int, PROA_WFMT_I8G>()); break;
    case PROA_WFMT_FP8G: f(std::integral_constant<int, PROA_WFMT_FP8G>()); break;
    case PROA_WFMT_MXFP4W: f(std::integral_constant<int, PROA_WFMT_MXFP4W>()); break;
    default: f(std::integral_constant<int, PROA_WFMT_I4>()); break;
    }
}

template <int FORMAT, int THREADS>
static void launch_up(gpu *g, const expert_call &a, const route_call *choice)
{
    dim3 grid((unsigned)blocks_of(a.e, a.N, OUTPUTS), (unsigned)a.lists.k);
    auto kernel = !choice              ? expert_row_up_kernel<FORMAT, 0, THREADS>
                  : choice->E <= LANES ? expert_row_up_kernel<FORMAT, 1, THREADS>
                                       : expert_row_up_kernel<FORMAT, EXPERT_ROW_CHOICE / LANES, THREADS>;
    gpu_launch(g, "experts (one row)", kernel, grid, THREADS, 0, a, choice ? *choice : route_call());
}

void expert_row_up(gpu *g, const expert_call &a, proa_wfmt format, const route_call *choice)
{
    int64_t pieces = a.row_bytes / 16;
    bool more = (pieces + 95) / 96 * 96 < (pieces + 63) / 64 * 64; /* fewer threads without a piece */
    by_row_format(format, [&](auto f) {
        more ? launch_up<f.value, 96>(g, a, choice) : launch_up<f.value, 64>(g, a, choice);
    });
}

void expert_row_down(gpu *g, const expert_call &a, proa_wfmt format, const float *weights, const float *bias)
{
    dim3 grid((unsigned)blocks_of(a.e, a.N, OUTPUTS));
    by_row_format(format, [&](auto f) {
        auto *kernel = weights ? expert_row_down_kernel<f.value, true> : expert_row_down_kernel<f.value, false>;
        gpu_launch(g, "experts (one row)", kernel, grid, DOWN_THREADS, 0, a, weights, bias);
    });
}
