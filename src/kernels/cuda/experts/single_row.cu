/* SPDX-License-Identifier: Apache-2.0
 * single_row.cu - a mixture of experts for one row, weights of 8 bits: the bytes of the chosen experts are the limit.
 * Two kernels: one makes the FFN of all chosen experts, the other their weighted sum. Each block of the second adds all
 * experts of its outputs, so nothing is left to add. Lanes read whole rows of weights as they are stored, and multiply
 * their parts on tensor cores in place (multiply_rows, linear/skinny_gemm.h). */
#include "kernels/cuda/experts/route.h"

enum { THREADS = 128, WARPS = THREADS / 32, OUTPUTS = 8, CHOSEN_MAX = 64 };

/* Blocks of an SM of the first and of the second product; steps of weights that the second has in flight. */
enum { UP_BLOCKS = 8, DOWN_BLOCKS = 4, DOWN_AHEAD = 2 };

/* The rows of weights of a block, as pieces behind the first row of the matrix. */
struct row_pieces {
    unsigned from[OUTPUTS];
    __device__ row_pieces(const block_rows<OUTPUTS> &rows, unsigned pieces)
    {
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++) from[r] = (unsigned)rows.row(r) * pieces;
    }
    __device__ void fetch(unsigned (&next)[OUTPUTS][4], const char *w, unsigned piece) const
    {
#pragma unroll
        for (int r = 0; r < OUTPUTS; r++) {
            uint4 v = load_row_stream((const uint4 *)w + (from[r] + piece));
            next[r][0] = v.x, next[r][1] = v.y, next[r][2] = v.z, next[r][3] = v.w;
        }
    }
};

/* Sum r of all warps. */
__device__ static inline float add_warps(const float (*scratch)[OUTPUTS], int r)
{
    float v = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; i++) v += scratch[i][r];
    return v;
}

/* The expert of this block's round, the same for all threads: by one warp, from the scores. The first block also writes
 * what all rounds choose. Behind the wait; a barrier of the block. Releases the next kernel, which reads what the first
 * block has written before its own wait. */
__device__ static inline int choose_expert(const route_call &a)
{
    enum { COUNT = EXPERT_ROW_CHOICE / LANES };
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
 *   block        128 threads make 8 sums (gated: 4 outputs); the threads share K in pieces of 16 bytes
 *   registers    8 pieces of weights in flight
 *   shared       4 warps x 8 floats
 *
 * The expert is known only behind the wait, or is chosen there (CHOOSES). The next kernel is released then too, so that
 * it may read the ids and weights of the experts before its own wait. */
template <int FORMAT, bool CHOOSES>
__global__ void __launch_bounds__(THREADS, UP_BLOCKS) expert_row_up_kernel(expert_call a, route_call choice)
{
    __shared__ float scratch[WARPS][OUTPUTS];
    const block_rows<OUTPUTS> rows(a.e, a.N, blockIdx.x);
    int pieces = (int)(a.row_bytes / 16), me = (int)threadIdx.x, n = rows.first + me;
    const row_pieces from(rows, (unsigned)pieces);
    bool ends = rows.makes(me);
    unsigned next[OUTPUTS][4] = {};
    float sum[OUTPUTS] = {};
    expert_operands o = {};
    int expert;
    if constexpr (CHOOSES) {
#if __CUDA_ARCH__ >= 900
        cudaGridDependencySynchronize();
#endif
        expert = choose_expert(choice);
    } else {
        gpu_wait_then_release();
        expert = a.lists.ids[blockIdx.y];
    }
    const char *w = a.w + expert * a.expert_bytes;
    if (me < pieces) from.fetch(next, w, me);
    if (ends) o = expert_operands_of<FORMAT>(a, w, expert, n);
    for (int first = 0; first < pieces; first += THREADS) { /* all lanes */
        int piece = first + me;
        unsigned xs[8];
        load_row16(xs, (const __half *)a.x, piece * 16, a.K, a.aligned);
#pragma unroll
        for (int r = 0; r < OUTPUTS; r += 2) {
            float2 two = multiply_rows<FORMAT>(next[r], next[r + 1], xs);
            sum[r] += two.x, sum[r + 1] += two.y;
        }
        if (piece + THREADS < pieces) from.fetch(next, w, piece + THREADS);
    }
    add_group_sums<FORMAT>(scratch, sum);
    __syncthreads();
    if (!ends) return;
    float v = add_warps(scratch, me), u = a.e.gate_rows ? add_warps(scratch, me + OUTPUTS / 2) : 0.0f;
    expert_store(a, 0, blockIdx.y, n, expert_finish(a, v, u, o));
}

/* A piece of the concatenated rows of the chosen experts. */
struct chosen_piece {
    int chosen, piece;
    __device__ void step(int by, int pieces)
    {
        for (piece += by; piece >= pieces; piece -= pieces) chosen++;
    }
};

/* The biases of the chosen experts for output n, each times the expert's weight. */
__device__ static inline float bias_of_chosen(const expert_call &a, const float *weights, int n)
{
    float sum = 0.0f;
    for (int j = 0; a.e.bias && j < a.lists.k; j++)
        sum = fmaf(weights[j], a.e.bias[(int64_t)a.lists.ids[j] * a.N + n], sum);
    return sum;
}

/* y = residual + the outputs of all chosen experts, each times its weight.
 *
 *   block        128 threads make 8 outputs; the threads share the rows of all chosen experts, one behind the other,
 *                in pieces of 16 bytes; a group of four lanes has pieces of one expert
 *   registers    2 x 8 pieces of weights in flight
 *   shared       factor [k][8]: the weight of an expert times the scale of its row of weights
 *
 * expert_row_up_kernel is the kernel before. It releases this one when the ids and weights are known and written, so
 * these and the first pieces are read before gpu_wait. */
template <int FORMAT>
__global__ void __launch_bounds__(THREADS, DOWN_BLOCKS)
    expert_row_down_kernel(expert_call a, const float *weights)
{
    __shared__ float scratch[WARPS][OUTPUTS], factor[CHOSEN_MAX][OUTPUTS];
    const block_rows<OUTPUTS> rows(a.e, a.N, blockIdx.x);
    int pieces = (int)(a.row_bytes / 16), slots = (pieces + 3) / 4 * 4, chosen = a.lists.k;
    int n = rows.first + (int)threadIdx.x;
    bool ends = rows.makes((int)threadIdx.x);
    const row_pieces from(rows, pieces);
    float base = 0.0f, sum[OUTPUTS] = {};
    unsigned next[DOWN_AHEAD][OUTPUTS][4] = {};
    chosen_piece now = {0, 0}, ahead = {0, 0};
    now.step((int)threadIdx.x, slots), ahead = now;
    auto fetch = [&](int d) {
        if (ahead.chosen < chosen && ahead.piece < pieces)
            from.fetch(next[d], a.w + a.lists.ids[ahead.chosen] * a.expert_bytes, ahead.piece);
        ahead.step(THREADS, slots);
    };
#pragma unroll
    for (int d = 0; d < DOWN_AHEAD; d++) fetch(d);
    for (int i = threadIdx.x; i < chosen * OUTPUTS; i += THREADS) {
        int j = i / OUTPUTS, r = i % OUTPUTS;
        const float *scales = (const float *)(a.w + a.lists.ids[j] * a.expert_bytes + a.scales_at);
        factor[j][r] = weights[j] * (a.unit * scales[rows.row(r)]);
    }
    if (ends) base = bias_of_chosen(a, weights, n);
    __syncthreads();
    gpu_wait();
    if (ends && a.e.residual) base += residual_at(a.e, 0, n);
    for (int left = chosen * slots; left > 0;) { /* all lanes of a warp */
#pragma unroll
        for (int d = 0; d < DOWN_AHEAD; d++, left -= THREADS) {
            unsigned xs[8] = {};
            bool mine = now.chosen < chosen; /* of the group: all four or none */
            if (left <= 0) break;
            if (mine)
                load_row16(xs, (const __half *)a.x + now.chosen * a.x_row, now.piece * 16, a.K, a.aligned);
#pragma unroll
            for (int r = 0; r < OUTPUTS; r += 2) {
                float2 two = multiply_rows<FORMAT>(next[d][r], next[d][r + 1], xs);
                if (mine) {
                    sum[r] = fmaf(two.x, factor[now.chosen][r], sum[r]);
                    sum[r + 1] = fmaf(two.y, factor[now.chosen][r + 1], sum[r + 1]);
                }
            }
            fetch(d);
            now.step(THREADS, slots);
        }
    }
    add_group_sums<FORMAT>(scratch, sum);
    __syncthreads();
    if (ends) expert_store(a, 0, 0, n, base + add_warps(scratch, threadIdx.x));
}

bool expert_row_takes(const proa_experts *e, int64_t T, int64_t k)
{
    auto is_8bit = [](const proa_weight *w) {
        return w->format == PROA_WFMT_FP8 || w->format == PROA_WFMT_I8W;
    };
    return T == 1 && k <= CHOSEN_MAX && is_8bit(e->up) && is_8bit(e->down);
}

void expert_row_up(gpu *g, const expert_call &a, proa_wfmt format, const route_call *choice)
{
    dim3 grid((unsigned)blocks_of(a.e, a.N, OUTPUTS), (unsigned)a.lists.k);
    bool fp8 = format == PROA_WFMT_FP8;
    auto kernel = choice ? fp8 ? expert_row_up_kernel<PROA_WFMT_FP8, true>
                               : expert_row_up_kernel<PROA_WFMT_I8W, true>
                  : fp8 ? expert_row_up_kernel<PROA_WFMT_FP8, false>
                         : expert_row_up_kernel<PROA_WFMT_I8W, false>;
    gpu_launch(g, "experts (one row)", kernel, grid, THREADS, 0, a, choice ? *choice : route_call());
}

void expert_row_down(gpu *g, const expert_call &a, proa_wfmt format, const float *weights)
{
    auto kernel = format == PROA_WFMT_FP8 ? expert_row_down_kernel<PROA_WFMT_FP8>
                                          : expert_row_down_kernel<PROA_WFMT_I8W>;
    gpu_launch(g, "experts (one row)", kernel, dim3((unsigned)blocks_of(a.e, a.N, OUTPUTS)), THREADS, 0, a,
               weights);
}
