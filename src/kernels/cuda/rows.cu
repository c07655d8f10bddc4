/* SPDX-License-Identifier: Apache-2.0
 * rows.cu - ops that go row by row: embedding, norms, rotary positions, activations, sums, gathering, the head's helpers. */
#include "kernels/cuda/cuda.h"

enum { THREADS = 256 };

/* A view as kernels take it: rank 2 is rank 3 with one head. */
struct rows3 {
    float *data;
    int64_t row, head;
};

static rows3 of(proa_view v)
{
    return {(float *)v.data, v.stride[0], v.rank == 3 ? v.stride[1] : 0};
}

/* ---- embed, gather ---- */

template <typename T>
__global__ void embed_kernel(rows3 y, const T *table, int64_t stride, const int32_t *ids, int d, float scale, bool add)
{
    gpu_wait();
    gpu_release();
    const T *from = table + ids[blockIdx.x] * stride;
    float *to = y.data + blockIdx.x * y.row;
    for (int j = threadIdx.x; j < d; j += blockDim.x) to[j] = scale * gpu_to_f32(from[j]) + (add ? to[j] : 0.0f);
}

static void embed(proa_ctx *c, proa_view y, proa_view table, const int32_t *ids, float scale, bool accumulate)
{
    gpu *g = flushed(c);
    dim3 grid((unsigned)y.shape[0]);
    int d = (int)y.shape[1];
    if (table.dtype == PROA_DTYPE_F16)
        gpu_launch(g, "embed", embed_kernel<__half>, grid, THREADS, 0, of(y), (const __half *)table.data, table.stride[0],
                   ids, d, scale, accumulate);
    else if (table.dtype == PROA_DTYPE_BF16)
        gpu_launch(g, "embed", embed_kernel<__nv_bfloat16>, grid, THREADS, 0, of(y), (const __nv_bfloat16 *)table.data,
                   table.stride[0], ids, d, scale, accumulate);
    else
        gpu_launch(g, "embed", embed_kernel<float>, grid, THREADS, 0, of(y), (const float *)table.data, table.stride[0],
                   ids, d, scale, accumulate);
}

__global__ void gather_kernel(rows3 y, rows3 x, const int32_t *rows, int d)
{
    gpu_wait();
    gpu_release();
    const float *from = x.data + rows[blockIdx.x] * x.row;
    float *to = y.data + blockIdx.x * y.row;
    for (int j = threadIdx.x; j < d; j += blockDim.x) to[j] = from[j];
}

static void gather(proa_ctx *c, proa_view y, proa_view x, const int32_t *rows)
{
    gpu_launch(flushed(c), "gather", gather_kernel, dim3((unsigned)y.shape[0]), THREADS, 0, of(y), of(x), rows,
               (int)y.shape[1]);
}

/* ---- norms: a block for a row (and head) ---- */

/* The row is read once and kept in registers, up to NORM_KEPT numbers a thread. */
enum { NORM_KEPT = 8 };
template <bool LAYER>
__global__ void norm_kernel(rows3 y, rows3 x, const float *w, const float *b, int d, float eps)
{
    __shared__ float room[33];
    const float *from = x.data + blockIdx.x * x.row + blockIdx.y * x.head;
    float *to = y.data + blockIdx.x * y.row + blockIdx.y * y.head;
    float ws[NORM_KEPT], bs[NORM_KEPT]; /* weights depend on no kernel */
#pragma unroll
    for (int i = 0; i < NORM_KEPT; i++) {
        int j = i * blockDim.x + threadIdx.x;
        ws[i] = j < d ? w[j] : 0.0f;
        bs[i] = LAYER && b && j < d ? b[j] : 0.0f;
    }
    gpu_wait();
    gpu_release();
    float kept[NORM_KEPT], mean = 0.0f, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < NORM_KEPT; i++) {
        int j = i * blockDim.x + threadIdx.x;
        kept[i] = j < d ? from[j] : 0.0f;
        sum += kept[i];
    }
    int behind = NORM_KEPT * blockDim.x + threadIdx.x; /* of rows that are wider than a block can keep */
    if (LAYER) {
        for (int j = behind; j < d; j += blockDim.x) sum += from[j];
        mean = gpu_block_sum(sum, room) / (float)d;
    }
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < NORM_KEPT; i++)
        if (i * (int)blockDim.x + (int)threadIdx.x < d) sum += (kept[i] - mean) * (kept[i] - mean);
    for (int j = behind; j < d; j += blockDim.x) sum += (from[j] - mean) * (from[j] - mean);
    float inverse = 1.0f / sqrtf(gpu_block_sum(sum, room) / (float)d + eps);
#pragma unroll
    for (int i = 0; i < NORM_KEPT; i++) {
        int j = i * blockDim.x + threadIdx.x;
        if (j < d) to[j] = (kept[i] - mean) * inverse * ws[i] + bs[i];
    }
    for (int j = behind; j < d; j += blockDim.x)
        to[j] = (from[j] - mean) * inverse * w[j] + (LAYER && b ? b[j] : 0.0f);
}

static int norm_threads(int64_t d)
{
    return d > 4096 ? 1024 : d >= 1024 ? 512 : d > 128 ? 256 : 32 * (int)((d + 31) / 32);
}

static dim3 norm_grid(proa_view x)
{
    return dim3((unsigned)x.shape[0], x.rank == 3 ? (unsigned)x.shape[1] : 1u);
}

static void run_norm(gpu *g, proa_view y, proa_view x, const float *w, const float *b, float eps, bool layer)
{
    int64_t d = x.shape[x.rank - 1];
    if (layer)
        gpu_launch(g, "layer_norm", norm_kernel<true>, norm_grid(x), norm_threads(d), 0, of(y), of(x), w, b, (int)d, eps);
    else gpu_launch(g, "rms_norm", norm_kernel<false>, norm_grid(x), norm_threads(d), 0, of(y), of(x), w, b, (int)d, eps);
}

void gpu_flush(gpu *g)
{
    gpu_norm n = g->norm;
    if (!n.x) return;
    g->norm.x = NULL;
    proa_view y = {n.y, PROA_DTYPE_F32, 2, {1, n.d, 1, 1}, {n.d, 1, 0, 0}}, x = y;
    x.data = (void *)(uintptr_t)n.x;
    run_norm(g, y, x, n.w, n.b, n.eps, n.layer);
}

/* One row waits for the linear that will likely read it. */
static void norm(proa_ctx *c, proa_view y, proa_view x, const float *w, const float *b, float eps, bool layer)
{
    gpu *g = gpu_of(c);
    gpu_flush(g);
    if (x.rank == 2 && x.shape[0] == 1 && x.data != y.data)
        g->norm = {(const float *)x.data, (float *)y.data, w, b, (int)x.shape[1], eps, layer, (uintptr_t)x.data % 16 == 0};
    else run_norm(g, y, x, w, b, eps, layer);
}

static void rms_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, float eps)
{
    norm(c, y, x, (const float *)w.data, NULL, eps, false);
}

static void layer_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, proa_view b, float eps)
{
    norm(c, y, x, (const float *)w.data, (const float *)(b.rank ? b.data : NULL), eps, true);
}

/* ---- rotary positions ---- */

__global__ void rope_table_kernel(rows3 table, const int32_t *pos, const float *inv_freq, int half, float scale)
{
    gpu_wait();
    gpu_release();
    float *to = table.data + blockIdx.x * table.row;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        float sine, cosine;
        sincosf((float)pos[blockIdx.x] * inv_freq[i], &sine, &cosine);
        to[i] = cosine * scale;
        to[half + i] = sine * scale;
    }
}

static void rope_table(proa_ctx *c, proa_view table, const int32_t *pos, const float *inv_freq, float scale)
{
    gpu_launch(flushed(c), "rope_table", rope_table_kernel, dim3((unsigned)table.shape[0]), 64, 0, of(table), pos,
               inv_freq, (int)(table.shape[1] / 2), scale);
}

__global__ void rope_kernel(rows3 x, rows3 table, int heads, int half, bool interleaved)
{
    int i = blockIdx.y * blockDim.x + threadIdx.x, h = i / half, j = i % half;
    gpu_wait();
    gpu_release();
    if (h >= heads) return;
    const float *turn = table.data + blockIdx.x * table.row;
    float *head = x.data + blockIdx.x * x.row + h * x.head;
    int first = interleaved ? 2 * j : j, second = interleaved ? 2 * j + 1 : j + half;
    float a = head[first], b = head[second], cosine = turn[j], sine = turn[half + j];
    head[first] = a * cosine - b * sine;
    head[second] = b * cosine + a * sine;
}

static void rope(proa_ctx *c, proa_view x, proa_view table, bool interleaved)
{
    int64_t half = table.shape[1] / 2;
    dim3 grid((unsigned)x.shape[0], (unsigned)((x.shape[1] * half + 127) / 128));
    gpu_launch(flushed(c), "rope", rope_kernel, grid, 128, 0, of(x), of(table), (int)x.shape[1], (int)half, interleaved);
}

/* ---- elementwise ---- */

static dim3 tiles(proa_view v)
{
    return dim3((unsigned)v.shape[0], (unsigned)((v.shape[1] + 4 * THREADS - 1) / (4 * THREADS)));
}

#define EACH(j, d)                                                                                           \
    for (int j = blockIdx.y * 4 * THREADS + threadIdx.x; j < d && j < (int)(blockIdx.y + 1) * 4 * THREADS;      \
         j += THREADS)

__global__ void act_kernel(rows3 x, int d, int act)
{
    gpu_wait();
    gpu_release();
    float *row = x.data + blockIdx.x * x.row;
    EACH(j, d) row[j] = gpu_act(row[j], act);
}

static void act(proa_ctx *c, proa_view x, proa_act act)
{
    gpu_launch(flushed(c), "act", act_kernel, tiles(x), THREADS, 0, of(x), (int)x.shape[1], (int)act);
}

__global__ void act_mul_kernel(rows3 y, rows3 gate, rows3 up, int d, int act)
{
    gpu_wait();
    gpu_release();
    const float *a = gate.data + blockIdx.x * gate.row, *b = up.data + blockIdx.x * up.row;
    float *to = y.data + blockIdx.x * y.row;
    EACH(j, d) to[j] = gpu_act(a[j], act) * b[j];
}

static void act_mul(proa_ctx *c, proa_view y, proa_view gate, proa_view up, proa_act act)
{
    gpu_launch(flushed(c), "act_mul", act_mul_kernel, tiles(y), THREADS, 0, of(y), of(gate), of(up), (int)y.shape[1],
               (int)act);
}

__global__ void add_kernel(rows3 y, rows3 a, rows3 b, int d)
{
    gpu_wait();
    gpu_release();
    const float *p = a.data + blockIdx.x * a.row, *q = b.data + blockIdx.x * b.row;
    float *to = y.data + blockIdx.x * y.row;
    EACH(j, d) to[j] = p[j] + q[j];
}

static void add(proa_ctx *c, proa_view y, proa_view a, proa_view b)
{
    gpu_launch(flushed(c), "add", add_kernel, tiles(y), THREADS, 0, of(y), of(a), of(b), (int)y.shape[1]);
}

/* ---- the head's helpers ---- */

__device__ static float block_max(float v, float *room)
{
    int warps = (blockDim.x + 31) / 32;
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    __syncthreads();
    if ((threadIdx.x & 31) == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
    v = (int)(threadIdx.x & 31) < warps ? room[threadIdx.x & 31] : -INFINITY;
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

__global__ void log_sum_exp_kernel(float *out, rows3 x, int d)
{
    __shared__ float room[33];
    gpu_wait();
    gpu_release();
    const float *row = x.data + blockIdx.x * x.row;
    float largest = -INFINITY, sum = 0.0f;
    for (int j = threadIdx.x; j < d; j += blockDim.x) largest = fmaxf(largest, row[j]);
    largest = block_max(largest, room);
    float base = largest == -INFINITY ? 0.0f : largest; /* NaN shows in the sum */
    for (int j = threadIdx.x; j < d; j += blockDim.x) sum += largest == INFINITY ? (isnan(row[j]) ? NAN : 0.0f) : expf(row[j] - base);
    sum = gpu_block_sum(sum, room);
    if (threadIdx.x == 0) out[blockIdx.x] = largest == INFINITY ? largest + sum : base + logf(sum);
}

static void log_sum_exp(proa_ctx *c, float *out, proa_view x)
{
    gpu_launch(flushed(c), "log_sum_exp", log_sum_exp_kernel, dim3((unsigned)x.shape[0]), 1024, 0, out, of(x),
               (int)x.shape[1]);
}

/* A value and its place as one number whose order is top_k's: NaN lowest, then by value, then the lower index first. */
__device__ static unsigned long long rank_of(float v, int at)
{
    unsigned bits = __float_as_uint(v == 0.0f ? 0.0f : v);
    unsigned key = isnan(v) ? 0u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (unsigned long long)key << 32 | (0xffffffffu - (unsigned)at);
}

/* k passes over the row, each for the best below the one before. */
__global__ void top_k_kernel(rows3 values, int32_t *ids, rows3 x, int d, int k)
{
    __shared__ unsigned long long room[33];
    gpu_wait();
    gpu_release();
    const float *row = x.data + blockIdx.x * x.row;
    unsigned long long below = ~0ull;
    for (int r = 0; r < k; r++) {
        unsigned long long best = 0;
        for (int j = threadIdx.x; j < d; j += blockDim.x) {
            unsigned long long rank = rank_of(row[j], j);
            if (rank < below && rank > best) best = rank;
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) {
            unsigned long long other = __shfl_xor_sync(0xffffffffu, best, o);
            best = other > best ? other : best;
        }
        __syncthreads();
        if ((threadIdx.x & 31) == 0) room[threadIdx.x / 32] = best;
        __syncthreads();
        for (int i = 0; i < (int)blockDim.x / 32; i++) best = room[i] > best ? room[i] : best;
        below = best;
        int at = (int)(0xffffffffu - (unsigned)best);
        if (threadIdx.x == 0) ids[(int64_t)blockIdx.x * k + r] = at, values.data[blockIdx.x * values.row + r] = row[at];
    }
}

static void top_k(proa_ctx *c, proa_view values, int32_t *ids, proa_view x, int64_t k)
{
    gpu_launch(flushed(c), "top_k", top_k_kernel, dim3((unsigned)x.shape[0]), 512, 0, of(values), ids, of(x),
               (int)x.shape[1], (int)k);
}

void gpu_fill_rows(proa_ops *ops)
{
    ops->embed = embed, ops->gather = gather;
    ops->rms_norm = rms_norm, ops->layer_norm = layer_norm;
    ops->rope_table = rope_table, ops->rope = rope;
    ops->act = act, ops->act_mul = act_mul, ops->add = add;
    ops->log_sum_exp = log_sum_exp, ops->top_k = top_k;
}
