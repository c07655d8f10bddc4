/* SPDX-License-Identifier: Apache-2.0
 * experts.cu - the op `experts`: the pairs of a row and a chosen expert are sorted by expert on the device, two grouped
 * products make the FFN and the outputs of each pair, and each row adds the outputs of its experts in the order of its
 * ids. Nothing is copied to the host. */
#include "kernels/cuda/experts/experts.h"

enum { THREADS = 256, SORT_THREADS = 1024, LANES = 32 };

/* ---- sorting ---- */

struct sort_call {
    const int32_t *ids;
    int pairs, experts, tile_rows, first; /* first: the number of the first expert */
    expert_tile *tiles;
    int *tile_count, *pair;
};

/* In place, v[0, n) becomes the sums of the elements before each; one warp. Returns the sum of all. */
__device__ static int exclusive_sums(int *v, int n, int lane)
{
    int before = 0;
    for (int base = 0; base < n; base += LANES) {
        int own = base + lane < n ? v[base + lane] : 0, sum = own;
#pragma unroll
        for (int o = 1; o < LANES; o *= 2) {
            int other = __shfl_up_sync(0xffffffffu, sum, o);
            if (lane >= o) sum += other;
        }
        if (base + lane < n) v[base + lane] = before + sum - own;
        before += __shfl_sync(0xffffffffu, sum, LANES - 1);
    }
    return before;
}

/* Where an expert's weights are; a.experts: in another rank. */
__device__ static inline int expert_place(const sort_call &a, int pair)
{
    int place = a.ids[pair] - a.first;
    return place < 0 || place > a.experts ? a.experts : place;
}

/* One block. Pairs of experts of other ranks come last, and have no tiles. Shared: for each expert where its next pair
 * goes, and its first tile. The order of the pairs of an expert is that in which threads arrive: it decides at which
 * place of a tile a row is, which changes no sum. */
__global__ void __launch_bounds__(SORT_THREADS) sort_kernel(sort_call a)
{
    extern __shared__ int shared[];
    int *place = shared, *tile = place + a.experts + 1;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    for (int e = threadIdx.x; e <= a.experts; e += SORT_THREADS) place[e] = 0;
    __syncthreads();
    gpu_wait();
    for (int p = threadIdx.x; p < a.pairs; p += SORT_THREADS) atomicAdd(&place[expert_place(a, p)], 1);
    __syncthreads();
    for (int e = threadIdx.x; e < a.experts; e += SORT_THREADS)
        tile[e] = (place[e] + a.tile_rows - 1) / a.tile_rows;
    __syncthreads();
    if (warp == 0) exclusive_sums(place, a.experts + 1, lane);
    if (warp == 1) {
        int count = exclusive_sums(tile, a.experts, lane);
        if (lane == 0) *a.tile_count = count;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < a.experts; e += SORT_THREADS) {
        int first = place[e], end = place[e + 1], t = tile[e];
        for (; first < end; first += a.tile_rows, t++) a.tiles[t] = {e, first, min(a.tile_rows, end - first)};
    }
    __syncthreads();
    for (int p = threadIdx.x; p < a.pairs; p += SORT_THREADS)
        a.pair[atomicAdd(&place[expert_place(a, p)], 1)] = p;
}

/* ---- adding ---- */

/* y[t, n] = residual[t, n] + bias[n] + the outputs of the row's pairs, each times its weight (weights NULL: 1), in the
 * order of its ids; of the experts [own.x, own.y). */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    add_outputs_kernel(T *y, int64_t y_row, const float *outputs, int64_t ld, const float *weights,
                       int64_t weights_row, const int32_t *ids, int2 own, int k, int N, epilogue e)
{
    int n = blockIdx.y * THREADS + threadIdx.x;
    int64_t t = blockIdx.x;
    gpu_wait();
    if (n >= N) return;
    float sum = e.residual ? residual_at(e, t, n) : 0.0f;
    if (e.bias) sum += e.bias[n];
    for (int j = 0; j < k; j++) {
        int id = ids[t * k + j];
        if (id < own.x || id >= own.y) continue;
        sum = fmaf(weights ? weights[t * weights_row + j] : 1.0f, outputs[(t * k + j) * ld + n], sum);
    }
    y[t * y_row + n] = gpu_saturate<T>(sum);
}

/* ---- the op ---- */

static int64_t aligned_bytes(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* A piece of the rows, and its part of the workspace. */
struct piece {
    const proa_experts *e;
    proa_view y, x, weights, residual;
    const int32_t *ids;
    int64_t T, k, pairs;
    int tiles; /* at most */
    expert_form form;
    expert_lists lists;
    void *ffn; /* [pairs][ffn_row], sorted, of the products' type */
    int64_t ffn_row;
    proa_dtype ffn_type;
    float *outputs; /* [pairs][N] in the order of the rows */
};

static proa_dtype product_type(proa_wfmt format)
{
    return format == PROA_WFMT_F32    ? PROA_DTYPE_F32
           : format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16
                                      : PROA_DTYPE_F16;
}

static void place_buffers(gpu *g, piece *p)
{
    int64_t E = p->e->up->experts, N = p->e->down->N, F = p->e->down->K;
    proa_wfmt format = p->e->up->format;
    int64_t output = N * 4;
    p->ffn_row = (F + 7) / 8 * 8, p->ffn_type = product_type(format);
    if (p->form.wgmma) { /* the rows of x in its order are in the memory of the outputs */
        p->ffn_row = expert_wgmma_row(format, F);
        int64_t x = expert_wgmma_row(format, p->e->up->K) * 2;
        output = x > output ? x : output;
    }
    int64_t tiles = aligned_bytes(p->tiles * (int64_t)sizeof(expert_tile)), pairs = aligned_bytes(p->pairs * 4);
    int64_t ffn = aligned_bytes(p->pairs * p->ffn_row * proa_dtype_bytes(p->ffn_type));
    char *at = (char *)gpu_experts_workspace(g, (size_t)(256 + tiles + pairs + ffn + p->pairs * output));
    p->lists = {0, 0, 0, (expert_tile *)(at + 256), (int *)at, (int *)(at + 256 + tiles), p->ids, (int)p->k};
    p->ffn = at + 256 + tiles + pairs, p->outputs = (float *)((char *)p->ffn + ffn);
    if (p->T == 1 && !p->e->all) p->lists.tiles = NULL; /* one tile for each pair */
    else {
        sort_call sort = {p->ids,
                          (int)p->pairs,
                          (int)E,
                          p->form.rows,
                          p->e->first,
                          (expert_tile *)p->lists.tiles,
                          (int *)p->lists.tile_count,
                          (int *)p->lists.pair};
        gpu_launch(g, "experts (sort)", sort_kernel, dim3(1), SORT_THREADS, (size_t)(2 * E + 1) * sizeof(int),
                   sort);
    }
}

static expert_call product_of(const expert_lists &lists, const proa_weight *w, const float *bias)
{
    expert_call a = {lists};
    bool quantised = proa_wfmt_is_quantised(w->format);
    a.w = (const char *)w->data, a.expert_bytes = w->stride, a.N = (int)w->N, a.K = (int)w->K;
    a.row_bytes = gpu_leading_dim(w->format, w->K) * (w->format == PROA_WFMT_F32 ? 4 : 2);
    if (quantised) {
        quant_layout at = quant_layout_of(w->format, w->N, w->K);
        a.row_bytes = at.row_bytes, a.scales_at = at.scales_at;
    }
    a.unit = format_unit(w->format);
    a.e = {1.0f, PROA_ACT_NONE, bias, NULL, PROA_DTYPE_F32, 0, 0};
    return a;
}

static expert_call up_of(gpu *g, const piece *p)
{
    const proa_experts *e = p->e;
    expert_call a = product_of(p->lists, e->up, e->up_bias);
    a.x = p->x.data, a.x_row = p->x.stride[0], a.x_type = p->x.dtype, a.x_by_step = true;
    if (e->up->format != PROA_WFMT_F32 && !p->form.wgmma) {
        a.x = cast_rows(g, p->x, e->up->format == PROA_WFMT_BF16 ? PROA_WFMT_BF16 : PROA_WFMT_F16, &a.x_row);
        a.x_type = p->ffn_type;
    }
    a.aligned = a.x_row % 8 == 0 && (uintptr_t)a.x % 16 == 0;
    a.e.act = (int)e->act, a.e.gate_rows = e->gated ? (int)e->down->K : 0;
    a.limit = e->limit, a.offset = e->offset;
    if (e->scales_inputs) a.weights = (const float *)p->weights.data, a.weights_row = p->weights.stride[0];
    a.y = p->ffn, a.y_row = p->ffn_row, a.y_type = p->ffn_type;
    return a;
}

static expert_call down_of(const piece *p)
{
    const proa_experts *e = p->e;
    expert_call a = product_of(p->lists, e->down, e->down_bias);
    a.x = p->ffn, a.x_row = p->ffn_row, a.x_type = p->ffn_type, a.aligned = true;
    a.y = p->outputs, a.y_row = e->down->N, a.y_type = PROA_DTYPE_F32, a.y_by_pair = true;
    return a;
}

/* The weights of outputs; NULL: those of inputs were used. */
static const float *output_weights(const piece *p)
{
    return p->e->scales_inputs ? NULL : (const float *)p->weights.data;
}

static void set_residual(epilogue *e, proa_view residual)
{
    if (residual.rank == 0) return;
    e->residual = residual.data, e->residual_type = residual.dtype, e->residual_row = residual.stride[0];
}

/* One row: the second product adds the experts itself. */
static void run_single_row(gpu *g, const piece *p, const route_call *choice)
{
    expert_call up = up_of(g, p), down = down_of(p);
    set_residual(&down.e, p->residual);
    down.y = p->y.data, down.y_type = p->y.dtype;
    expert_row_up(g, up, p->e->up->format, choice);
    expert_row_down(g, down, p->e->down->format, output_weights(p), p->e->bias);
}

static void add_outputs(gpu *g, const piece *p)
{
    int N = (int)p->e->down->N;
    int2 own = {p->e->first, p->e->first + (int)p->e->up->experts};
    epilogue e = {1.0f, PROA_ACT_NONE, p->e->bias, NULL, PROA_DTYPE_F32, 0, 0};
    set_residual(&e, p->residual);
    gpu_by_type(p->y.dtype, [&](auto type) {
        using Y = decltype(type);
        gpu_launch(g, "experts (add)", add_outputs_kernel<Y>,
                   dim3((unsigned)p->T, (unsigned)((N + THREADS - 1) / THREADS)), THREADS, 0, (Y *)p->y.data,
                   p->y.stride[0], (const float *)p->outputs, (int64_t)N, output_weights(p),
                   p->weights.stride[0], p->ids, own, (int)p->k, N, e);
    });
}

static expert_form form_of(const gpu *g, const proa_experts *e, int64_t T, int64_t k)
{
    int64_t E = e->all ? e->all : e->up->experts;
    expert_form form = expert_form_of(e->up->format, T, k, E);
    return T > 1 && expert_wgmma_takes(g, e) ? expert_wgmma_form(T, k, E) : form;
}

/* Both products of all pairs, and the sums of each row. */
static void run_pairs(gpu *g, const piece *p)
{
    const proa_experts *e = p->e;
    expert_call up = up_of(g, p), down = down_of(p);
    if (p->form.wgmma) expert_wgmma(g, up, down, e, p->outputs, p->pairs, p->form.rows, p->tiles);
    else {
        expert_product(g, up, e->up->format, p->form, p->tiles);
        expert_product(g, down, e->down->format, p->form, p->tiles);
    }
    add_outputs(g, p);
}

static void experts_op(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                       const proa_experts *e)
{
    gpu *g = gpu_of(c);
    int64_t T = y.shape[0], k = weights.shape[1], step = PROA_DEVICE_EXPERT_PAIRS / k, E = e->up->experts;
    route_call choice;
    bool is_single = !e->all && expert_row_takes(e, T, k); /* then the only piece is that row */
    /* a choice in the first product would know the weights too late for its inputs */
    bool chooses = is_single && !e->scales_inputs && gpu_take_choice(g, weights, ids, &choice);
    gpu_flush(g), gpu_invalidate(g, y);
    if (step < 1) step = 1;
    for (int64_t t = 0; t < T; t += step) {
        int64_t end = t + step < T ? t + step : T;
        piece p = {e, proa_view_rows(y, t, end), proa_view_rows(x, t, end), proa_view_rows(weights, t, end)};
        if (e->residual.rank) p.residual = proa_view_rows(e->residual, t, end);
        p.ids = ids + t * k, p.T = end - t, p.k = k, p.pairs = p.T * k;
        p.form = form_of(g, e, p.T, k);
        int64_t most = p.pairs / p.form.rows + (p.pairs < E ? p.pairs : E);
        p.tiles = (int)(most < p.pairs ? most : p.pairs);
        place_buffers(g, &p);
        if (is_single) run_single_row(g, &p, chooses ? &choice : NULL);
        else run_pairs(g, &p);
    }
}

/* ---- heads_linear: a grouped product whose experts are heads, and a copy ---- */

template <typename Y, typename X>
__global__ void __launch_bounds__(THREADS) keep_kernel(Y *y, int64_t y_row, int64_t y_head, const X *x,
                                                       int64_t x_row, int64_t x_head, int heads, int kept)
{
    gpu_wait();
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < heads * kept; i += gridDim.y * THREADS)
        y[blockIdx.x * y_row + i / kept * y_head + i % kept] = gpu_saturate<Y>(
            gpu_to_f32(x[blockIdx.x * x_row + i / kept * x_head + i % kept]));
}

static void keep_columns(gpu *g, proa_view y, proa_view x, int64_t K, int64_t kept)
{
    int heads = (int)x.shape[1];
    dim3 grid((unsigned)x.shape[0], (unsigned)((heads * kept + 4 * THREADS - 1) / (4 * THREADS)));
    gpu_by_type(y.dtype, [&](auto to) {
        gpu_by_type(x.dtype, [&](auto from) {
            using Y = decltype(to);
            using X = decltype(from);
            gpu_launch(g, "heads (copy)", keep_kernel<Y, X>, grid, THREADS, 0, (Y *)y.data, y.stride[0],
                       y.stride[1], (const X *)x.data + K, x.stride[0], x.stride[1], heads, (int)kept);
        });
    });
}

/* At most so many rows at once: tiles are counted in blockIdx.y. */
static void heads_rows(gpu *g, proa_view y, proa_view x, const proa_weight *w, int64_t kept)
{
    int64_t T = x.shape[0], H = x.shape[1];
    expert_form form = expert_form_of(w->format, T, H, H);
    expert_lists lists = {(int)H, form.rows, (int)T};
    expert_call a = product_of(lists, w, NULL);
    a.x = x.data, a.x_row = x.stride[0], a.x_type = x.dtype, a.x_expert = x.stride[1];
    if (w->format != PROA_WFMT_F32) { /* the rows with all their heads, as they are stored */
        proa_view rows = proa_view_2d(x.data, x.dtype, T, (H - 1) * x.stride[1] + w->K);
        rows.stride[0] = x.stride[0];
        a.x = cast_rows(g, rows, w->format == PROA_WFMT_BF16 ? PROA_WFMT_BF16 : PROA_WFMT_F16, &a.x_row);
        a.x_type = product_type(w->format);
    }
    a.aligned = a.x_row % 8 == 0 && a.x_expert % 8 == 0 && (uintptr_t)a.x % 16 == 0;
    a.y = (char *)y.data + kept * proa_dtype_bytes(y.dtype), a.y_row = y.stride[0], a.y_expert = y.stride[1];
    a.y_type = y.dtype;
    expert_product(g, a, w->format, form, (int)(H * ((T + form.rows - 1) / form.rows)));
    if (kept) keep_columns(g, y, x, w->K, kept);
}

static void heads_linear(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, int64_t kept)
{
    gpu *g = gpu_flushed(c, y);
    int64_t T = x.shape[0], step = 65535 / x.shape[1] * 8;
    for (int64_t t = 0; t < T; t += step) {
        int64_t end = t + step < T ? t + step : T;
        heads_rows(g, proa_view_rows(y, t, end), proa_view_rows(x, t, end), w, kept);
    }
}

void gpu_fill_experts(proa_ops *ops)
{
    ops->heads_linear = heads_linear;
    gpu_fill_route(ops);
    ops->experts = experts_op;
}
