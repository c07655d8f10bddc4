/* SPDX-License-Identifier: Apache-2.0
 * elementwise.cu - operations on rows: embedding, gather, norms, rotary positions, activations, sums. A
 * kernel ending in _vec8_kernel handles eight numbers at a time and needs aligned rows (gpu_is_vec8); the
 * other form takes any rows. */
#include "kernels/cuda/linear/act_quant_fp8.h"
#include "kernels/cuda/linear/linear.h"

enum { THREADS = 256 };

/* A view as kernels take it: a view of rank 2 has one head. */
template <typename T> struct rows3 {
    T *data;
    int64_t row, head;
};

template <typename T = float> static rows3<T> rows_view(proa_view v)
{
    return {(T *)v.data, v.stride[0], v.rank == 3 ? v.stride[1] : 0};
}

/* ---- embed, gather ---- */

/* Where the row of table i begins that the block reads. */
__device__ static inline int64_t embedded_row(const gpu_pending_embed &e, int i)
{
    int64_t id = e.ids[i][blockIdx.x];
    return (id < e.rows[i] ? id : 0) * e.stride[i];
}

template <typename Y, typename T> __global__ void embed_kernel(rows3<Y> y, gpu_pending_embed e, int d)
{
    gpu_wait();
    Y *to = y.data + blockIdx.x * y.row;
    for (int j = threadIdx.x; j < d; j += blockDim.x) {
        float sum = e.add ? gpu_to_f32(to[j]) : 0.0f;
        for (int i = 0; i < e.count; i++)
            sum = fmaf(e.scale[i], gpu_to_f32(((const T *)e.table[i])[embedded_row(e, i) + j]), sum);
        to[j] = gpu_saturate<Y>(sum);
    }
}

template <typename Y, typename T> __global__ void embed_vec8_kernel(rows3<Y> y, gpu_pending_embed e, int d)
{
    gpu_wait();
    Y *to = y.data + blockIdx.x * y.row;
    for (int j = threadIdx.x * 8; j < d; j += blockDim.x * 8) {
        float v[GPU_TABLES_MAX][8] = {}, sum[8] = {};
        if (e.add) gpu_load8(sum, to + j);
#pragma unroll
        for (int i = 0; i < GPU_TABLES_MAX; i++)
            if (i < e.count) gpu_load8(v[i], (const T *)e.table[i] + embedded_row(e, i) + j);
#pragma unroll
        for (int i = 0; i < GPU_TABLES_MAX; i++)
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (i < e.count) sum[k] = fmaf(e.scale[i], v[i][k], sum[k]);
        gpu_store8(to + j, sum);
    }
}

static void run_embed(gpu *g)
{
    gpu_pending_embed e = g->embed;
    proa_view y = g->embed_y;
    int d = (int)y.shape[1];
    g->embed.count = 0;
    gpu_by_type(y.dtype, [&](auto to) {
        gpu_by_type(g->embed_dtype, [&](auto from) {
            using Y = decltype(to);
            using T = decltype(from);
            auto kernel = e.vec8 ? embed_vec8_kernel<Y, T> : embed_kernel<Y, T>;
            int threads = e.vec8 && d < 8 * THREADS ? (d / 8 + 31) / 32 * 32 : THREADS;
            gpu_launch(g, "embed", kernel, dim3((unsigned)y.shape[0]), threads, 0, rows_view<Y>(y), e, d);
        });
    });
}

static bool same_rows(proa_view a, proa_view b)
{
    return a.data == b.data && a.dtype == b.dtype && a.shape[0] == b.shape[0] && a.shape[1] == b.shape[1] &&
           a.stride[0] == b.stride[0];
}

static void embed_op(proa_ctx *c, proa_view y, proa_view table, const int32_t *ids, float scale, bool accumulate)
{
    gpu *g = gpu_of(c);
    gpu_pending_embed *e = &g->embed;
    bool more = accumulate && e->count > 0 && e->count < GPU_TABLES_MAX && same_rows(y, g->embed_y) &&
                table.dtype == g->embed_dtype;
    bool vec8 = gpu_is_vec8(y) && gpu_is_vec8(table);
    if (!more) {
        gpu_flushed(c, y);
        g->embed_y = y, g->embed_dtype = table.dtype;
        e->add = accumulate, e->vec8 = vec8;
    }
    e->table[e->count] = table.data, e->stride[e->count] = table.stride[0];
    e->rows[e->count] = table.shape[0];
    e->ids[e->count] = ids, e->scale[e->count] = scale;
    e->vec8 = e->vec8 && vec8;
    e->count++;
}

template <typename Y, typename X>
__global__ void gather_kernel(rows3<Y> y, rows3<X> x, const int32_t *rows, int d)
{
    gpu_wait();
    const X *from = x.data + rows[blockIdx.x] * x.row;
    Y *to = y.data + blockIdx.x * y.row;
    for (int j = threadIdx.x; j < d; j += blockDim.x) to[j] = gpu_saturate<Y>(gpu_to_f32(from[j]));
}

template <typename Y, typename X>
__global__ void gather_vec8_kernel(rows3<Y> y, rows3<X> x, const int32_t *rows, int d)
{
    gpu_wait();
    const X *from = x.data + rows[blockIdx.x] * x.row;
    Y *to = y.data + blockIdx.x * y.row;
    for (int j = threadIdx.x * 8; j < d; j += blockDim.x * 8) {
        float v[8];
        gpu_load8(v, from + j);
        gpu_store8(to + j, v);
    }
}

static void gather_op(proa_ctx *c, proa_view y, proa_view x, const int32_t *rows)
{
    gpu *g = gpu_flushed(c, y);
    gpu_by_type(y.dtype, [&](auto to) {
        gpu_by_type(x.dtype, [&](auto from) {
            using Y = decltype(to);
            using X = decltype(from);
            int d = (int)y.shape[1];
            bool vec8 = gpu_is_vec8(y) && gpu_is_vec8(x);
            auto kernel = vec8 ? gather_vec8_kernel<Y, X> : gather_kernel<Y, X>;
            int threads = vec8 && d < 8 * THREADS ? (d / 8 + 31) / 32 * 32 : THREADS;
            gpu_launch(g, "gather", kernel, dim3((unsigned)y.shape[0]), threads, 0, rows_view<Y>(y),
                       rows_view<X>(x), rows, d);
        });
    });
}

/* ---- sums: y = a + b ---- */

template <typename T> __global__ void add_kernel(rows3<T> y, rows3<T> a, rows3<T> b, int d)
{
    gpu_wait();
    for (int j = blockIdx.y * THREADS + threadIdx.x; j < d; j += gridDim.y * THREADS)
        y.data[blockIdx.x * y.row + j] = gpu_saturate<T>(gpu_to_f32(a.data[blockIdx.x * a.row + j]) +
                                                         gpu_to_f32(b.data[blockIdx.x * b.row + j]));
}

template <typename T> __global__ void add_vec8_kernel(rows3<T> y, rows3<T> a, rows3<T> b, int d)
{
    gpu_wait();
    int j = (blockIdx.y * THREADS + threadIdx.x) * 8;
    float v[8], w[8];
    if (j >= d) return;
    gpu_load8(v, a.data + blockIdx.x * a.row + j);
    gpu_load8(w, b.data + blockIdx.x * b.row + j);
#pragma unroll
    for (int e = 0; e < 8; e++) v[e] += w[e];
    gpu_store8(y.data + blockIdx.x * y.row + j, v);
}

/* All of one type. */
static void add_rows(gpu *g, proa_view y, proa_view a, proa_view b)
{
    bool vec8 = gpu_is_vec8(y) && gpu_is_vec8(a) && gpu_is_vec8(b);
    int each = vec8 ? 8 * THREADS : 4 * THREADS;
    dim3 grid((unsigned)y.shape[0], (unsigned)((y.shape[1] + each - 1) / each));
    gpu_by_type(y.dtype, [&](auto type) {
        using T = decltype(type);
        gpu_launch(g, "add", vec8 ? add_vec8_kernel<T> : add_kernel<T>, grid, THREADS, 0, rows_view<T>(y),
                   rows_view<T>(a), rows_view<T>(b), (int)y.shape[1]);
    });
}

/* ---- norms: a block for a row (and head) ---- */

/* Weights and biases (b may be NULL); those of head h begin h * head numbers further. */
struct norm_weights {
    const float *w, *b;
    int64_t head;
    __device__ const float *w_of(int64_t h) const
    {
        return w + h * head;
    }
    __device__ const float *b_of(int64_t h) const
    {
        return b + h * head;
    }
    __device__ float apply(float v, int64_t h, int j, bool bias) const
    {
        return v * w_of(h)[j] + (bias && b ? b_of(h)[j] : 0.0f);
    }
};

/* LAYER: y = (x - mean) / sqrt(var + eps) * w + b, else y = x / sqrt(mean of x^2 + eps) * w. One block for
 * each row and head; f32 or 16 bits. The row is read once and kept in registers, up to NORM_KEPT numbers a
 * thread; what is wider is read again. Shared memory: 33 floats. */
enum { NORM_KEPT = 8 };
template <typename Y, typename X, bool LAYER>
__global__ void norm_kernel(rows3<Y> y, rows3<X> x, norm_weights w, int d, float eps)
{
    __shared__ float scratch[33];
    const X *from = x.data + blockIdx.x * x.row + blockIdx.y * x.head;
    Y *to = y.data + blockIdx.x * y.row + blockIdx.y * y.head;
    float ws[NORM_KEPT], bs[NORM_KEPT]; /* weights depend on no kernel */
#pragma unroll
    for (int i = 0; i < NORM_KEPT; i++) {
        int j = i * blockDim.x + threadIdx.x;
        ws[i] = j < d ? w.w_of(blockIdx.y)[j] : 0.0f;
        bs[i] = LAYER && w.b && j < d ? w.b_of(blockIdx.y)[j] : 0.0f;
    }
    gpu_wait();
    float kept[NORM_KEPT], mean = 0.0f, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < NORM_KEPT; i++) {
        int j = i * blockDim.x + threadIdx.x;
        kept[i] = j < d ? gpu_to_f32(from[j]) : 0.0f;
        sum += kept[i];
    }
    int behind = NORM_KEPT * blockDim.x + threadIdx.x; /* of rows that are wider than a block can keep */
    if (LAYER) {
        for (int j = behind; j < d; j += blockDim.x) sum += gpu_to_f32(from[j]);
        mean = gpu_block_sum(sum, scratch) / (float)d;
    }
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < NORM_KEPT; i++)
        if (i * (int)blockDim.x + (int)threadIdx.x < d) sum += (kept[i] - mean) * (kept[i] - mean);
    for (int j = behind; j < d; j += blockDim.x)
        sum += (gpu_to_f32(from[j]) - mean) * (gpu_to_f32(from[j]) - mean);
    float inverse = 1.0f / sqrtf(gpu_block_sum(sum, scratch) / (float)d + eps);
#pragma unroll
    for (int i = 0; i < NORM_KEPT; i++) {
        int j = i * blockDim.x + threadIdx.x;
        if (j < d) to[j] = gpu_saturate<Y>((kept[i] - mean) * inverse * ws[i] + bs[i]);
    }
    for (int j = behind; j < d; j += blockDim.x)
        to[j] = gpu_saturate<Y>(w.apply((gpu_to_f32(from[j]) - mean) * inverse, blockIdx.y, j, LAYER));
}

/* x += more, eight numbers; v: those of x, before and after. The bits are those of add_vec8_kernel. */
template <typename X> __device__ static inline void add_piece(float (&v)[8], X *x, const X *more)
{
    float w[8];
    gpu_load8(w, more);
#pragma unroll
    for (int e = 0; e < 8; e++) v[e] = gpu_to_f32(gpu_saturate<X>(v[e] + w[e]));
    gpu_store8(x, v);
}

/* Eight numbers of x, to which those of more are added first if it is there. */
template <typename X>
__device__ static inline void load_piece(float (&v)[8], X *x, const rows3<const X> &more, int64_t row, int j)
{
    gpu_load8(v, x);
    if (more.data) add_piece(v, x, more.data + row * more.row + j);
}

enum { PIECES = 4 }; /* of eight numbers, that a thread of norm_vec8_kernel holds */

/* The sum of the numbers that a thread has of a row of d. */
template <int LANES> __device__ static inline float sum_pieces(const float (&v)[PIECES][8], int d)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int e = 0; e < 8; e++)
            if ((i * LANES + (int)threadIdx.x % LANES) * 8 < d) sum += v[i][e];
    return sum;
}

/* The sum of the squares of their distances from the mean. */
template <int LANES>
__device__ static inline float sum_square_pieces(const float (&v)[PIECES][8], float mean, int d)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int e = 0; e < 8; e++)
            if ((i * LANES + (int)threadIdx.x % LANES) * 8 < d) sum += (v[i][e] - mean) * (v[i][e] - mean);
    return sum;
}

/* Eight weights of a norm, and its eight biases or zeros. */
struct norm_eight {
    float w[8], b[8];
    template <bool LAYER> __device__ void load(const norm_weights &from, int head, int j)
    {
        gpu_load8(w, from.w_of(head) + j);
        if (LAYER && from.b) gpu_load8(b, from.b_of(head) + j);
    }
    template <typename Y> __device__ uint4 apply(float (&v)[8], float mean, float inverse) const
    {
        uint4 rounded;
#pragma unroll
        for (int e = 0; e < 8; e++) v[e] = (v[e] - mean) * inverse * w[e] + b[e];
        gpu_store8(reinterpret_cast<Y *>(&rounded), v);
        return rounded;
    }
};

/* The same with 16-bit output, eight numbers at a time: LANES threads hold a row, up to 4 pieces of eight
 * each. With room in fp8_rows the rounded row is written as e4m3 too, with its scale and, where it is wanted, its
 * length. more.data: x += more first. */
template <typename Y, typename X, bool LAYER, int LANES>
__global__ void norm_vec8_kernel(rows3<Y> y, rows3<X> x, rows3<const X> more, norm_weights w, int d,
                                 int heads, int64_t rows, float eps, gpu_fp8_rows fp8_rows)
{
    __shared__ float scratch[33];
    const int BLOCK = LANES == 32 ? THREADS : LANES;
    int64_t row = (int64_t)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES;
    int lane = threadIdx.x % LANES, head = (int)(row % heads);
    norm_eight weights = {}; /* of the first piece, before gpu_wait: no kernel of a pass writes weights */
    if (lane * 8 < d) weights.load<LAYER>(w, head, lane * 8);
    gpu_wait();
    if (row >= rows) return; /* whole warps, where a block has several rows */
    X *from = x.data + row / heads * x.row + head * x.head;
    Y *to = y.data + row / heads * y.row + head * y.head;
    float kept[PIECES][8], mean = 0.0f;
    uint4 rounded[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        int j = (i * LANES + lane) * 8;
        if (j < d) load_piece(kept[i], from + j, more, row, j);
    }
    if (LAYER) mean = row_sum<LANES>(sum_pieces<LANES>(kept, d), scratch) / (float)d;
    float squares = row_sum<LANES>(sum_square_pieces<LANES>(kept, mean, d), scratch);
    float inverse = 1.0f / sqrtf(squares / (float)d + eps);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        int j = (i * LANES + lane) * 8;
        if (j >= d) break;
        if (i > 0) weights.load<LAYER>(w, head, j);
        rounded[i] = weights.apply<Y>(kept[i], mean, inverse);
        *reinterpret_cast<uint4 *>(to + j) = rounded[i];
    }
    if (fp8_rows.at) act_quant_row<Y, LANES>(fp8_rows, rounded, row, d, scratch);
}

/* Layer norm of very many rows of COUNT x 256 numbers (768 or 1,024). Persistent blocks, one warp for each
 * row; w and b stay in registers (they are twice a row's bytes each), and the next row is loaded while this
 * one is normed. From the last row to the first: the last rows of the product before are still in the L2
 * cache, and the first ones will be when the next product reads them. y may be x. CODES: the rounded rows are written
 * as e4m3, too. */
template <typename T, int COUNT, bool CODES>
__global__ void __launch_bounds__(THREADS)
    layer_norm_persistent_kernel(rows3<T> y, rows3<T> x, const float *w, const float *b, int64_t rows,
                                 float eps, gpu_fp8_rows fp8_rows)
{
    int lane = threadIdx.x % 32, j = lane * 8;
    int64_t step = (int64_t)gridDim.x * (THREADS / 32);
    int64_t row = rows - 1 - ((int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32);
    float ws[COUNT][8], bs[COUNT][8] = {};
    uint4 next[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        gpu_load8(ws[i], w + i * 256 + j);
        if (b) gpu_load8(bs[i], b + i * 256 + j);
    }
    gpu_wait();
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (row >= 0) next[i] = *reinterpret_cast<const uint4 *>(x.data + row * x.row + i * 256 + j);
    for (; row >= 0; row -= step) {
        float kept[COUNT][8], sum = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            gpu_load8(kept[i], reinterpret_cast<const T *>(&next[i]));
            if (row >= step)
                next[i] = *reinterpret_cast<const uint4 *>(x.data + (row - step) * x.row + i * 256 + j);
#pragma unroll
            for (int e = 0; e < 8; e++) sum += kept[i][e];
        }
        float mean = gpu_warp_sum(sum) / (float)(COUNT * 256);
        sum = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (int e = 0; e < 8; e++) sum += (kept[i][e] - mean) * (kept[i][e] - mean);
        float inverse = 1.0f / sqrtf(gpu_warp_sum(sum) / (float)(COUNT * 256) + eps);
        uint4 rounded[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
#pragma unroll
            for (int e = 0; e < 8; e++) kept[i][e] = (kept[i][e] - mean) * inverse * ws[i][e] + bs[i][e];
            gpu_store8(reinterpret_cast<T *>(&rounded[i]), kept[i]);
            *reinterpret_cast<uint4 *>(y.data + row * y.row + i * 256 + j) = rounded[i];
        }
        if constexpr (CODES) act_quant_row<T, 32>(fp8_rows, rounded, row, COUNT * 256, NULL);
    }
}

template <typename T, bool CODES>
static void launch_persistent(gpu *g, const char *what, proa_view y, proa_view x, const float *w,
                              const float *b, float eps, int blocks, gpu_fp8_rows fp8_rows)
{
    auto kernel = x.shape[1] == 768 ? layer_norm_persistent_kernel<T, 3, CODES>
                                    : layer_norm_persistent_kernel<T, 4, CODES>;
    gpu_launch(g, what, kernel, dim3((unsigned)blocks), THREADS, 0, rows_view<T>(y), rows_view<T>(x), w, b,
               x.shape[0], eps, fp8_rows);
}

/* false: not for such rows, nothing was done. */
template <typename T>
static bool layer_norm_persistent(gpu *g, const char *what, proa_view y, proa_view x, const float *w,
                                  const float *b, float eps, gpu_fp8_rows fp8_rows)
{
    enum { BLOCKS_OF_SM = 2, ROWS_OF_WARP = 4 };
    int64_t d = x.shape[1], rows = x.shape[0];
    int blocks = BLOCKS_OF_SM * g->sms;
    if (x.rank != 2 || (d != 768 && d != 1024) || rows < ROWS_OF_WARP * blocks * (THREADS / 32)) return false;
    if (fp8_rows.at) launch_persistent<T, true>(g, what, y, x, w, b, eps, blocks, fp8_rows);
    else launch_persistent<T, false>(g, what, y, x, w, b, eps, blocks, fp8_rows);
    return true;
}

static int norm_threads(int64_t d)
{
    return d > 4096 ? 1024 : d >= 1024 ? 512 : d > 128 ? 256 : 32 * (int)((d + 31) / 32);
}

static dim3 norm_grid(proa_view x)
{
    return dim3((unsigned)x.shape[0], x.rank == 3 ? (unsigned)x.shape[1] : 1u);
}

template <typename Y, typename X, bool LAYER>
static void norm_vec8(gpu *g, const char *what, proa_view y, proa_view x, proa_view more, norm_weights w,
                      float eps)
{
    int d = (int)x.shape[x.rank - 1], heads = x.rank == 3 ? (int)x.shape[1] : 1;
    int64_t rows = x.shape[0] * heads;
    gpu_fp8_rows fp8_rows = gpu_fp8_rows_for(g, y);
    if constexpr (LAYER && sizeof(X) == 2)
        if (!more.rank && layer_norm_persistent<X>(g, what, y, x, w.w, w.b, eps, fp8_rows)) return;
    if (d <= 32 * PIECES * 8 && (rows >= 2048 || d <= 256))
        gpu_launch(g, what, norm_vec8_kernel<Y, X, LAYER, 32>, dim3((unsigned)((rows + 7) / 8)), THREADS, 0,
                   rows_view<Y>(y), rows_view<X>(x), rows_view<const X>(more), w, d, heads, rows, eps, fp8_rows);
    else if (d <= 128 * PIECES * 8)
        gpu_launch(g, what, norm_vec8_kernel<Y, X, LAYER, 128>, dim3((unsigned)rows), 128, 0, rows_view<Y>(y),
                   rows_view<X>(x), rows_view<const X>(more), w, d, heads, rows, eps, fp8_rows);
    else
        gpu_launch(g, what, norm_vec8_kernel<Y, X, LAYER, 512>, dim3((unsigned)rows), 512, 0, rows_view<Y>(y),
                   rows_view<X>(x), rows_view<const X>(more), w, d, heads, rows, eps, fp8_rows);
}

template <typename Y, typename X, bool LAYER>
static void norm_as(gpu *g, const char *what, proa_view y, proa_view x, proa_view more, norm_weights w, float eps)
{
    int64_t d = x.shape[x.rank - 1];
    if constexpr (sizeof(Y) == 2)
        if (x.shape[0] > 16 && gpu_is_vec8(y) && gpu_is_vec8(x) && d <= 512 * PIECES * 8 &&
            ((uintptr_t)w.w | (uintptr_t)w.b) % 16 == 0 && w.head % 4 == 0) {
            norm_vec8<Y, X, LAYER>(g, what, y, x, more, w, eps);
            return;
        }
    if (more.rank) add_rows(g, x, x, more);
    gpu_launch(g, what, norm_kernel<Y, X, LAYER>, norm_grid(x), norm_threads(d), 0, rows_view<Y>(y),
               rows_view<X>(x), w, (int)d, eps);
}

/* y is of x's type, or of 16 bits. more.rank: x += more first. */
static void run_norm(gpu *g, proa_view y, proa_view x, proa_view more, norm_weights w, float eps, bool layer)
{
    gpu_by_type(y.dtype, [&](auto to) {
        using Y = decltype(to);
        const char *what = layer ? "layer_norm" : "rms_norm";
        PROA_ASSERT(x.dtype == y.dtype || x.dtype == PROA_DTYPE_F32);
        gpu_invalidate(g, y);
        if (gpu_is_16bit(x) && layer) norm_as<Y, Y, true>(g, what, y, x, more, w, eps);
        else if (gpu_is_16bit(x)) norm_as<Y, Y, false>(g, what, y, x, more, w, eps);
        else if (layer) norm_as<Y, float, true>(g, what, y, x, more, w, eps);
        else norm_as<Y, float, false>(g, what, y, x, more, w, eps);
    });
}

/* The heads' norms, or the norm and the product of a router. */
static void run_pending(gpu *g)
{
    gpu_pending_heads heads = g->heads;
    gpu_pending_router router = g->router;
    g->heads.count = 0, g->router.norm = g->router.product = false;
    for (int i = 0; i < heads.count; i++)
        run_norm(g, heads.x[i], heads.x[i], {}, {heads.w[i], NULL, 0}, heads.eps[i], false);
    if (router.norm) run_norm(g, router.n, router.x, {}, {router.norm_w, NULL, 0}, router.eps, false);
    if (router.product) skinny_gemm(g, router.y, router.n, &router.w, {1.0f, PROA_ACT_NONE, router.bias});
}

void gpu_flush(gpu *g)
{
    gpu_pending_norm n = g->norm;
    if (g->sum.waits) g->sum.waits = false, add_rows(g, g->sum.y, g->sum.y, g->sum.more);
    if (g->embed.count) run_embed(g); /* at most one kind is deferred: each flushes what came before */
    if (g->heads.count || g->router.norm) run_pending(g);
    if (g->choice.waits) gpu_run_choice(g);
    if (g->rope.waits) gpu_run_rope(g);
    if (!n.x) return;
    g->norm.x = NULL;
    proa_view y = {n.y, PROA_DTYPE_F32, 2, {n.rows, n.d, 1, 1}, {n.y_row, 1, 0, 0}}, x = y;
    x.data = (void *)(uintptr_t)n.x, x.stride[0] = n.x_row;
    run_norm(g, y, x, {}, {n.w, n.b, 0}, n.eps, n.layer);
}

/* An RMS norm of the heads of few rows in place, all heads with the same weights? */
static bool is_of_heads(proa_view y, proa_view x, norm_weights w, bool layer)
{
    bool in_place = x.data == y.data && x.dtype == y.dtype && x.stride[0] == y.stride[0] &&
                    x.stride[1] == y.stride[1];
    return x.rank == 3 && in_place && x.shape[0] <= GPU_FEW_ROWS && x.stride[1] == x.shape[2] && !layer &&
           !w.head;
}

/* Do the heads of b stand behind those of a, in the same rows? */
static bool heads_follow(proa_view a, proa_view b)
{
    const char *end = (const char *)a.data + a.shape[1] * a.shape[2] * proa_dtype_bytes(a.dtype);
    return b.dtype == a.dtype && b.shape[0] == a.shape[0] && b.shape[2] == a.shape[2] &&
           b.stride[0] == a.stride[0] && (const char *)b.data == end;
}

/* Defers the norms of the heads of q, and then of those of k. */
static void defer_heads(gpu *g, proa_view x, norm_weights w, float eps)
{
    gpu_pending_heads *p = &g->heads;
    if (p->count != 1 || !heads_follow(p->x[0], x)) gpu_flush(g);
    p->x[p->count] = x, p->w[p->count] = w.w, p->eps[p->count] = eps;
    p->count++;
}

/* Defers the norm of one row into 16 bits: a router's product may follow. */
static bool defer_row(gpu *g, proa_view y, proa_view x, norm_weights w, float eps, bool layer)
{
    if (x.rank != 2 || x.shape[0] != 1 || gpu_is_16bit(x) || !gpu_is_16bit(y) || layer || !g->clusters)
        return false;
    g->router = {true, false, x, y, {}, w.w, NULL, eps, {}};
    return true;
}

proa_view gpu_take_sum(gpu *g, proa_view x)
{
    gpu_pending_sum s = g->sum;
    bool same = s.waits && x.rank == 2 && x.shape[0] > GPU_FEW_ROWS && s.y.data == x.data &&
                s.y.dtype == x.dtype && s.y.stride[0] == x.stride[0] && s.y.shape[0] == x.shape[0] &&
                s.y.shape[1] == x.shape[1];
    if (!same) return {};
    g->sum.waits = false;
    return s.more;
}

/* A norm of few rows is deferred to the product that will probably read it. */
static void norm_op(proa_ctx *c, proa_view y, proa_view x, norm_weights w, float eps, bool layer)
{
    gpu *g = gpu_of(c);
    if (is_of_heads(y, x, w, layer)) return defer_heads(g, x, w, eps);
    gpu_pending_norm n = {(const float *)x.data,
                          (float *)y.data,
                          w.w,
                          w.b,
                          x.stride[0],
                          y.stride[0],
                          (int)x.shape[0],
                          (int)x.shape[1],
                          eps,
                          layer,
                          (uintptr_t)x.data % 16 == 0};
    bool apart = x.rank == 2 && x.data != y.data && !gpu_is_16bit(y);
    bool deferred = apart && (n.rows == 1 || gpu_skinny_f32_takes_norm(n));
    proa_view more = {}; /* a norm that is deferred adds nothing: the sum is made first then */
    if (!deferred) more = gpu_take_sum(g, x);
    gpu_flush(g);
    if (defer_row(g, y, x, w, eps, layer)) return;
    if (deferred) g->norm = n;
    else run_norm(g, y, x, more, w, eps, layer);
}

static norm_weights weights_of(proa_view w, proa_view b)
{
    return {(const float *)w.data, (const float *)(b.rank ? b.data : NULL), w.rank == 2 ? w.stride[0] : 0};
}

static void rms_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, float eps)
{
    norm_op(c, y, x, weights_of(w, {}), eps, false);
}

static void layer_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, proa_view b, float eps)
{
    norm_op(c, y, x, weights_of(w, b), eps, true);
}

/* ---- rotary positions ---- */

/* As proa_rope_freq. The power is taken in double, so that the rounded frequency is the host's. */
__global__ void rope_table_kernel(rows3<float> table, const int32_t *pos, const int32_t *length,
                                  proa_rope_freqs f, int half)
{
    gpu_wait();
    float *to = table.data + blockIdx.x * table.row;
    int n = length ? length[blockIdx.x] : 0;
    bool longer = f.border > 0 && n > f.border, other = longer && f.long_inv_freq;
    const float *inv_freq = other ? f.long_inv_freq : f.inv_freq;
    float scale = other ? f.long_scale : f.scale;
    double factor = f.ntk_factor, growth = longer && !other ? factor * n / f.border - (factor - 1) : 1;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        float sine, cosine, freq = inv_freq[i];
        if (growth != 1) freq = (float)((double)freq * pow(growth, -2.0 * i / (2 * half - 2)));
        sincosf((float)pos[blockIdx.x] * freq, &sine, &cosine);
        to[i] = cosine * scale;
        to[half + i] = sine * scale;
    }
}

static void rope_table(proa_ctx *c, proa_view table, const int32_t *pos, const int32_t *length,
                       const proa_rope_freqs *freqs)
{
    gpu_launch(gpu_flushed(c, table), "rope_table", rope_table_kernel, dim3((unsigned)table.shape[0]), 64, 0,
               rows_view(table), pos, length, *freqs, (int)(table.shape[1] / 2));
}

template <typename X>
__global__ void rope_kernel(rows3<X> x, rows3<float> table, int heads, int half, bool interleaved)
{
    int i = blockIdx.y * blockDim.x + threadIdx.x, h = i / half, j = i % half;
    gpu_wait();
    if (h >= heads) return;
    const float *turn = table.data + blockIdx.x * table.row;
    X *head = x.data + blockIdx.x * x.row + h * x.head;
    int first = interleaved ? 2 * j : j, second = interleaved ? 2 * j + 1 : j + half;
    float a = gpu_to_f32(head[first]), b = gpu_to_f32(head[second]), cosine = turn[j], sine = turn[half + j];
    head[first] = gpu_saturate<X>(a * cosine - b * sine);
    head[second] = gpu_saturate<X>(b * cosine + a * sine);
}

static void rope_op(proa_ctx *c, proa_view x, proa_view table, bool interleaved)
{
    int64_t half = table.shape[1] / 2;
    dim3 grid((unsigned)x.shape[0], (unsigned)((x.shape[1] * half + 127) / 128));
    gpu *g = gpu_flushed(c, x);
    gpu_by_type(x.dtype, [&](auto type) {
        using X = decltype(type);
        gpu_launch(g, "rope", rope_kernel<X>, grid, 128, 0, rows_view<X>(x), rows_view(table),
                   (int)x.shape[1], (int)half, interleaved);
    });
}

/* ---- elementwise ---- */

static dim3 elementwise_grid(proa_view v)
{
    return dim3((unsigned)v.shape[0], (unsigned)((v.shape[1] + 4 * THREADS - 1) / (4 * THREADS)));
}

#define EACH(j, d)                                                                                           \
    for (int j = blockIdx.y * 4 * THREADS + threadIdx.x; j < d && j < (int)(blockIdx.y + 1) * 4 * THREADS;   \
         j += THREADS)

/* An activation as its values' type asks for it. */
template <typename T> __device__ static inline float act_of(float x, int act)
{
    if constexpr (sizeof(T) == 2) return gpu_act16<T>(x, act);
    else return gpu_act(x, act);
}

template <typename X> __global__ void act_kernel(rows3<X> x, int d, int act)
{
    gpu_wait();
    X *row = x.data + blockIdx.x * x.row;
    EACH(j, d) row[j] = gpu_saturate<X>(act_of<X>(gpu_to_f32(row[j]), act));
}

/* Two pieces a thread, loaded together. */
template <typename X> __global__ void act_vec8_kernel(rows3<X> x, int d, int act)
{
    gpu_wait();
    int j = (blockIdx.y * 2 * THREADS + threadIdx.x) * 8, k = j + THREADS * 8;
    X *row = x.data + blockIdx.x * x.row;
    float v[8], w[8];
    if (j < d) gpu_load8(v, row + j);
    if (k < d) gpu_load8(w, row + k);
#pragma unroll
    for (int e = 0; e < 8; e++) v[e] = gpu_act16<X>(v[e], act);
    if (j < d) gpu_store8(row + j, v);
#pragma unroll
    for (int e = 0; e < 8; e++) w[e] = gpu_act16<X>(w[e], act);
    if (k < d) gpu_store8(row + k, w);
}

static dim3 vec8_grid(proa_view v, int pieces)
{
    int each = 8 * THREADS * pieces;
    return dim3((unsigned)v.shape[0], (unsigned)((v.shape[1] + each - 1) / each));
}

void gpu_activate_rows(gpu *g, const char *what, proa_view x, int act)
{
    gpu_by_type(x.dtype, [&](auto type) {
        using X = decltype(type);
        if (sizeof(X) == 2 && gpu_is_vec8(x))
            gpu_launch(g, what, act_vec8_kernel<X>, vec8_grid(x, 2), THREADS, 0, rows_view<X>(x),
                       (int)x.shape[1], act);
        else
            gpu_launch(g, what, act_kernel<X>, elementwise_grid(x), THREADS, 0, rows_view<X>(x),
                       (int)x.shape[1], act);
    });
}

static void act_op(proa_ctx *c, proa_view x, proa_act act)
{
    gpu_activate_rows(gpu_flushed(c, x), "act", x, (int)act);
}

/* Are gate and up halves of the same rows? Then the rows. */
static bool up_follows_gate(proa_view gate, proa_view up)
{
    return gate.stride[0] == up.stride[0] &&
           (const char *)gate.data + gate.shape[1] * proa_dtype_bytes(gate.dtype) == (const char *)up.data;
}

static proa_view whole_of(proa_view gate, proa_view up)
{
    gate.shape[1] += up.shape[1];
    return gate;
}

template <typename T> __global__ void act_mul_kernel(rows3<T> y, rows3<T> gate, rows3<T> up, int d, int act)
{
    gpu_wait();
    const T *a = gate.data + blockIdx.x * gate.row, *b = up.data + blockIdx.x * up.row;
    T *to = y.data + blockIdx.x * y.row;
    EACH(j, d) to[j] = gpu_saturate<T>(act_of<T>(gpu_to_f32(a[j]), act) * gpu_to_f32(b[j]));
}

/* more.data: gate += more first, and up += what stands d numbers behind. */
template <typename T>
__global__ void act_mul_vec8_kernel(rows3<T> y, rows3<T> gate, rows3<T> up, rows3<const T> more, int d, int act)
{
    gpu_wait();
    int j = (blockIdx.y * THREADS + threadIdx.x) * 8;
    float a[8], b[8];
    if (j >= d) return;
    T *first = gate.data + blockIdx.x * gate.row + j, *second = up.data + blockIdx.x * up.row + j;
    gpu_load8(a, first);
    gpu_load8(b, second);
    if (more.data) add_piece(a, first, more.data + blockIdx.x * more.row + j);
    if (more.data) add_piece(b, second, more.data + blockIdx.x * more.row + d + j);
#pragma unroll
    for (int e = 0; e < 8; e++) a[e] = gpu_act16<T>(a[e], act) * gpu_clamp_finite<T>(b[e]);
    gpu_store8(y.data + blockIdx.x * y.row + j, a);
}

/* The same, and as e4m3 for the product that reads it. ACT: the activation, known at compile time so that
 * nothing branches between numbers, or -1. */
template <typename T, int ACT> struct gated_rows {
    struct loads {
        uint4 gate, up;
    };
    rows3<T> y, gate, up;
    int act;
    __device__ void load(loads &raw, int t, int j) const
    {
        raw.gate = *reinterpret_cast<const uint4 *>(gate.data + t * gate.row + j);
        raw.up = *reinterpret_cast<const uint4 *>(up.data + t * up.row + j);
    }
    __device__ uint4 finish(const loads &raw, int t, int j) const
    {
        float a[8], b[8];
        uint4 out;
        gpu_load8(a, reinterpret_cast<const T *>(&raw.gate)), gpu_load8(b, reinterpret_cast<const T *>(&raw.up));
#pragma unroll
        for (int e = 0; e < 8; e++)
            a[e] = gpu_act16<T>(a[e], ACT < 0 ? act : ACT) * gpu_clamp_finite<T>(b[e]);
        gpu_store8(reinterpret_cast<T *>(&out), a);
        *reinterpret_cast<uint4 *>(y.data + t * y.row + j) = out;
        return out;
    }
};

template <typename T, int ACT>
static void act_mul_quant(gpu *g, proa_view y, proa_view gate, proa_view up, int act, gpu_fp8_rows fp8_rows)
{
    gated_rows<T, ACT> make = {rows_view<T>(y), rows_view<T>(gate), rows_view<T>(up), act};
    act_quant_launch<T>(g, "act_mul", make, fp8_rows, y.shape[0], y.shape[1]);
}

template <typename T>
static void act_mul_vec8(gpu *g, proa_view y, proa_view gate, proa_view up, proa_view more, int act)
{
    gpu_fp8_rows fp8_rows = gpu_fp8_rows_for(g, y);
    if (fp8_rows.at && more.rank) add_rows(g, whole_of(gate, up), whole_of(gate, up), more);
    if (fp8_rows.at && act == PROA_ACT_SILU) act_mul_quant<T, PROA_ACT_SILU>(g, y, gate, up, act, fp8_rows);
    else if (fp8_rows.at) act_mul_quant<T, -1>(g, y, gate, up, act, fp8_rows);
    else
        gpu_launch(g, "act_mul", act_mul_vec8_kernel<T>, vec8_grid(y, 1), THREADS, 0, rows_view<T>(y),
                   rows_view<T>(gate), rows_view<T>(up), rows_view<const T>(more), (int)y.shape[1], act);
}

static void act_mul(proa_ctx *c, proa_view y, proa_view gate, proa_view up, proa_act act)
{
    proa_view more = up_follows_gate(gate, up) && gpu_is_vec8(y) ? gpu_take_sum(gpu_of(c), whole_of(gate, up))
                                                                 : proa_view{};
    gpu *g = gpu_flushed(c, y);
    gpu_by_type(y.dtype, [&](auto type) {
        using T = decltype(type);
        if constexpr (sizeof(T) == 2)
            if (gpu_is_vec8(y) && gpu_is_vec8(gate) && gpu_is_vec8(up))
                return act_mul_vec8<T>(g, y, gate, up, more, (int)act);
        if (more.rank) add_rows(g, whole_of(gate, up), whole_of(gate, up), more);
        gpu_launch(g, "act_mul", act_mul_kernel<T>, elementwise_grid(y), THREADS, 0, rows_view<T>(y),
                   rows_view<T>(gate), rows_view<T>(up), (int)y.shape[1], (int)act);
    });
}

__global__ void soft_cap_kernel(rows3<float> x, int d, float cap)
{
    gpu_wait();
    float *row = x.data + blockIdx.x * x.row;
    EACH(j, d) row[j] = cap * tanhf(row[j] / cap);
}

static void soft_cap(proa_ctx *c, proa_view x, float cap)
{
    gpu_launch(gpu_flushed(c, x), "soft_cap", soft_cap_kernel, elementwise_grid(x), THREADS, 0, rows_view(x),
               (int)x.shape[1], cap);
}

template <typename X> __global__ void clip_kernel(rows3<X> x, int d, float limit)
{
    gpu_wait();
    X *row = x.data + blockIdx.x * x.row;
    EACH(j, d)
    {
        float v = gpu_to_f32(row[j]);
        v = v < -limit ? -limit : v > limit ? limit : v;
        row[j] = gpu_saturate<X>(v);
    }
}

static void clip_op(proa_ctx *c, proa_view x, float limit)
{
    gpu *g = gpu_flushed(c, x);
    gpu_by_type(x.dtype, [&](auto type) {
        using X = decltype(type);
        gpu_launch(g, "clip", clip_kernel<X>, elementwise_grid(x), THREADS, 0, rows_view<X>(x),
                   (int)x.shape[1], limit);
    });
}

template <typename X> __global__ void xielu_kernel(rows3<X> x, int d, const float *a)
{
    gpu_wait();
    X *row = x.data + blockIdx.x * x.row;
    float beta = a[2], eps = a[3];
    float above = a[0] > 30.0f ? a[0] : log1pf(expf(a[0]));
    float below = beta + (a[1] > 30.0f ? a[1] : log1pf(expf(a[1])));
    EACH(j, d)
    {
        float v = gpu_to_f32(row[j]), low = v > eps ? eps : v;
        float bent = v > 0.0f ? above * v * v : below * (expm1f(low) - v);
        row[j] = gpu_saturate<X>(bent + beta * v);
    }
}

static void xielu_op(proa_ctx *c, proa_view x, proa_view a)
{
    gpu *g = gpu_flushed(c, x);
    gpu_by_type(x.dtype, [&](auto type) {
        using X = decltype(type);
        gpu_launch(g, "xielu", xielu_kernel<X>, elementwise_grid(x), THREADS, 0, rows_view<X>(x),
                   (int)x.shape[1], (const float *)a.data);
    });
}

template <typename Y, typename X> __global__ void scale_kernel(rows3<Y> y, rows3<X> x, int d, float factor)
{
    gpu_wait();
    const X *from = x.data + blockIdx.x * x.row;
    Y *to = y.data + blockIdx.x * y.row;
    EACH(j, d) to[j] = gpu_saturate<Y>(factor * gpu_to_f32(from[j]));
}

static void scale_op(proa_ctx *c, proa_view y, proa_view x, float factor)
{
    gpu *g = gpu_flushed(c, y);
    gpu_by_type(y.dtype, [&](auto to) {
        gpu_by_type(x.dtype, [&](auto from) {
            using Y = decltype(to);
            using X = decltype(from);
            gpu_launch(g, "scale", scale_kernel<Y, X>, elementwise_grid(y), THREADS, 0, rows_view<Y>(y),
                       rows_view<X>(x), (int)y.shape[1], factor);
        });
    });
}

__device__ static float query_factor(const proa_query_scale &s, int position)
{
    int at = position + s.offset;
    if (!s.smooth) return 1.0f + s.beta * log1pf((float)(at / s.length));
    return at <= s.length ? 1.0f : fmaxf(1.0f, s.beta * logf((float)at));
}

template <typename X>
__global__ void query_scale_kernel(rows3<X> x, const int32_t *pos, int d, proa_query_scale s)
{
    gpu_wait();
    X *row = x.data + blockIdx.x * x.row;
    float factor = query_factor(s, pos[blockIdx.x]);
    if (factor == 1.0f) return;
    EACH(j, d) row[j] = gpu_saturate<X>(factor * gpu_to_f32(row[j]));
}

static void query_scale(proa_ctx *c, proa_view x, const int32_t *pos, const proa_query_scale *s)
{
    gpu *g = gpu_flushed(c, x);
    gpu_by_type(x.dtype, [&](auto type) {
        using X = decltype(type);
        gpu_launch(g, "query_scale", query_scale_kernel<X>, elementwise_grid(x), THREADS, 0, rows_view<X>(x),
                   pos, (int)x.shape[1], *s);
    });
}

/* Rows that are added to in place wait for the kernel that reads them. */
static void add_op(proa_ctx *c, proa_view y, proa_view a, proa_view b)
{
    gpu *g = gpu_flushed(c, y);
    bool in_place = y.data == a.data && y.stride[0] == a.stride[0] && y.dtype == b.dtype;
    if (in_place && gpu_is_vec8(y) && gpu_is_vec8(b)) g->sum = {true, y, b};
    else add_rows(g, y, a, b);
}

void gpu_fill_elementwise(proa_ops *ops)
{
    ops->embed = embed_op, ops->gather = gather_op;
    ops->rms_norm = rms_norm, ops->layer_norm = layer_norm;
    ops->rope_table = rope_table, ops->rope = rope_op;
    ops->act = act_op, ops->act_mul = act_mul, ops->add = add_op;
    ops->soft_cap = soft_cap, ops->clip = clip_op, ops->xielu = xielu_op, ops->scale = scale_op;
    ops->query_scale = query_scale;
}
