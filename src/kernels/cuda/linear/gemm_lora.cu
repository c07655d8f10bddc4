/* SPDX-License-Identifier: Apache-2.0
 * gemm_lora.cu - a product of 17 to 64 rows with its LoRA adapters. The rows of A of all slots are stored behind
 * those of W (proa_lora.slots), so one cuBLASLt product computes x W^T and, for every row and slot, h = x A^T.
 * With so few rows A costs its bytes, at the rate at which W is read. A second kernel takes each row's own h, adds
 * h B^T and applies the rest of the epilogue; for a gated product it replaces act_mul. B of all slots is stored
 * panel by panel, so the panels of a block are contiguous, and bulk copies request them before the slot of any row
 * is known. */
#include "kernels/cuda/attention/tile.h"
#include "kernels/cuda/linear/gemm_fp8.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/runtime/tma.h"

extern "C" {
#include "kernels/lora_stack.h"
#include "kernels/quant.h"
}

enum {
    PANEL = PROA_LORA_PANEL,
    GROUP = PANEL / 2, /* neighbouring columns of a thread */
    RANKS = 16,        /* of h in registers */
    ROWS_MAX = 64,
    THREADS_MAX = 512,
    PANELS_MAX = 96,                            /* of a block */
    FIXED_BYTES = 8 * PANELS_MAX + 4 * ROWS_MAX /* of shared memory besides B: barriers, and the rows' slots */
};

/* sums: [rows][sums_row], x W^T and, from column h on, h of all slots. outputs: N, or half of it if gated. */
struct lora_finish {
    const char *b;          /* panels: lora_stack.h */
    const int32_t *slot;    /* of each row */
    int panel_bytes, scale; /* scale: where scales begin in a panel */
    int64_t sums_row, y_row;
    int rows, h, outputs, slots, rank, pieces, end[PROA_LORA_PIECES_MAX], panels; /* panels: of a block */
    epilogue e;
};

/* ---- panels into shared memory: [half][panel] ---- */

struct panel_run {
    int first, count;
};

__device__ static inline const char *panels_of_half(const lora_finish &f, const panel_run &run, int half)
{
    return f.b + (int64_t)(half * (f.outputs / PANEL) + run.first) * f.panel_bytes;
}

#ifdef GPU_HOPPER
/* One thread. A barrier of each panel, behind B. */
template <bool GATED>
__device__ static inline void request_panels(char *to, unsigned barriers, const lora_finish &f,
                                             const panel_run &run)
{
    int bytes = f.panel_bytes;
    for (int i = 0; i < run.count; i++) gpu_barrier_init(barriers + 8 * i, 1);
    gpu_barrier_fence();
    for (int i = 0; i < run.count; i++) {
        gpu_barrier_expect(barriers + 8 * i, (GATED ? 2 : 1) * bytes);
#pragma unroll
        for (int half = 0; half < (GATED ? 2 : 1); half++)
            gpu_bulk_load(smem_address(to + (half * f.panels + i) * bytes),
                          panels_of_half(f, run, half) + (int64_t)i * bytes, barriers + 8 * i, bytes);
    }
}
#endif

template <bool GATED>
__device__ static inline void load_panels(char *to, const lora_finish &f, const panel_run &run)
{
#ifdef GPU_HOPPER
    if (threadIdx.x == 0)
        request_panels<GATED>(to, smem_address(to + (GATED ? 2 : 1) * f.panels * f.panel_bytes), f, run);
#else
#pragma unroll
    for (int half = 0; half < (GATED ? 2 : 1); half++) {
        const char *from = panels_of_half(f, run, half);
        char *at = to + half * f.panels * f.panel_bytes;
        for (int i = threadIdx.x * 16; i < run.count * f.panel_bytes; i += blockDim.x * 16)
            cp_async16(smem_address(at + i), from + i);
    }
    cp_async_commit();
#endif
}

/* Barriers are there for all threads then; where there are none, the panels are. */
__device__ static inline void wait_of_block()
{
#ifndef GPU_HOPPER
    cp_async_wait<0>();
#endif
    __syncthreads();
}

template <bool GATED>
__device__ static inline void wait_of_panel(const char *memory, const lora_finish &f, int panel)
{
#ifdef GPU_HOPPER
    gpu_barrier_wait(smem_address(memory + (GATED ? 2 : 1) * f.panels * f.panel_bytes) + 8 * panel, 0);
#endif
}

/* ---- y ---- */

/* The rows' slots are read by each such kernel of a step: L2 keeps them while weights pass. */
__device__ static inline int load_kept(const int32_t *from)
{
    uint64_t policy;
    int v;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L2::cache_hint.s32 %0, [%1], %2;" : "=r"(v) : "l"(from), "l"(policy));
    return v;
}

__device__ static inline int piece_of(const lora_finish &f, int n)
{
    int piece = 0;
#pragma unroll
    for (int i = 0; i + 1 < PROA_LORA_PIECES_MAX; i++)
        if (i + 1 < f.pieces && n >= f.end[i]) piece = i + 1;
    return piece;
}

/* A group of columns of a row on its way: x W^T, and of the row's h the first RANKS numbers. h: all of them. */
template <typename S> struct column_group {
    float out[GROUP], first[RANKS];
    const S *h; /* NULL: no adapter */
};

template <typename S>
__device__ static inline void load_group(column_group<S> &g, const lora_finish &f, const S *sums, int slot, int n)
{
    int piece = piece_of(f, n);
    g.h = slot < 0 ? nullptr : sums + f.h + (slot * f.pieces + piece) * f.rank;
    gpu_load8(g.out, sums + n);
    if (slot < 0) return;
#pragma unroll
    for (int i = 0; i < RANKS; i += 8) gpu_load8(g.first + i, g.h + i);
}

/* Where in shared memory the numbers of B of a slot begin that RANKS numbers of h are multiplied by, and by how much
 * the row of each is moved (proa_lora_stack.swap). */
struct b_rows {
    const char *at;
    int swap;
};

/* out += scale h B^T, h rounded to the type of B. */
template <typename T>
__device__ static inline void add_ranks(float (&out)[GROUP], const float (&h)[RANKS], const b_rows &b, float scale)
{
    const int ROW_BYTES = PANEL * (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < RANKS; i++) {
        float w[GROUP], hv = scale * gpu_to_f32(gpu_saturate<T>(h[i]));
        gpu_load8(w, reinterpret_cast<const T *>(b.at + (i * ROW_BYTES ^ b.swap)));
#pragma unroll
        for (int c = 0; c < GROUP; c++) out[c] = fmaf(hv, w[c], out[c]);
    }
}

/* The same for codes. They are added in f16, which takes half the instructions: h is divided by its largest number, so
 * that nothing overflows. The error is a tenth of that of the codes. */
template <>
__device__ inline void add_ranks<__nv_fp8_e4m3>(float (&out)[GROUP], const float (&h)[RANKS], const b_rows &b,
                                                float scale)
{
    float largest = 0.0f;
    __half2 sum[GROUP / 2] = {};
#pragma unroll
    for (int i = 0; i < RANKS; i++) largest = fmaxf(largest, fabsf(h[i]));
    float inverse = largest > 1e-30f ? 1.0f / largest : 0.0f;
#pragma unroll
    for (int i = 0; i < RANKS; i++) {
        uint2 codes = *reinterpret_cast<const uint2 *>(b.at + (i * PANEL ^ b.swap));
        const __nv_fp8x2_storage_t *pair = reinterpret_cast<const __nv_fp8x2_storage_t *>(&codes);
        __half2 hv = __float2half2_rn(h[i] * inverse);
#pragma unroll
        for (int c = 0; c < GROUP / 2; c++)
            sum[c] = __hfma2(hv, __half2(__nv_cvt_fp8x2_to_halfraw2(pair[c], __NV_E4M3)), sum[c]);
    }
#pragma unroll
    for (int c = 0; c < GROUP; c++)
        out[c] = fmaf(scale * largest, c % 2 ? __high2float(sum[c / 2]) : __low2float(sum[c / 2]), out[c]);
}

/* Becomes alpha (x W^T + scale h B^T) + bias. at: in the panel, of which these columns are the half. */
template <typename S, typename T>
__device__ static inline void finish_group(column_group<S> &g, const lora_finish &f, const char *at, int half,
                                           int slot, int n)
{
    const int ROW_BYTES = PANEL * (int)sizeof(T), ROWS_OF_BANKS = 128 / ROW_BYTES; /* proa_lora_stack.swap + 1 */
    float scale = g.h ? reinterpret_cast<const float *>(at + f.scale)[slot] : 0.0f;
    b_rows b = {at + slot * f.rank * ROW_BYTES + half * GROUP * (int)sizeof(T), slot % ROWS_OF_BANKS * ROW_BYTES};
    for (int j = 0; g.h && j < f.rank; j += RANKS, b.at += RANKS * ROW_BYTES) {
        if (j > 0)
#pragma unroll
            for (int i = 0; i < RANKS; i += 8) gpu_load8(g.first + i, g.h + j + i);
        add_ranks<T>(g.out, g.first, b, scale);
    }
#pragma unroll
    for (int c = 0; c < GROUP; c++) g.out[c] = fmaf(f.e.alpha, g.out[c], f.e.bias ? f.e.bias[n + c] : 0.0f);
}

/* Half of a panel of the block, in a row with this slot: y from column n on. */
struct half_panel {
    int panel, half, row, slot, n;
};

template <typename S, typename T, bool GATED>
__device__ static inline void finish_columns(S *y, const S *sums, const lora_finish &f, const char *memory,
                                             const half_panel &place)
{
    const int half = place.half, slot = place.slot, n = place.n;
    const char *at = memory + place.panel * f.panel_bytes;
    column_group<S> v, u;
    float factor[GROUP] = {};
    load_group(v, f, sums, slot, n);
    if (GATED) load_group(u, f, sums, slot, f.outputs + n);
    else if (f.e.residual) gpu_load8(factor, (const S *)f.e.residual + place.row * f.e.residual_row + n);
    wait_of_panel<GATED>(memory, f, place.panel);
    finish_group<S, T>(v, f, at, half, slot, n);
    if (GATED) finish_group<S, T>(u, f, at + f.panels * f.panel_bytes, half, slot, f.outputs + n);
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        if constexpr (sizeof(S) == 2) v.out[c] = gpu_act16<S>(v.out[c], f.e.act);
        else v.out[c] = gpu_act(v.out[c], f.e.act);
        v.out[c] = GATED ? v.out[c] * u.out[c] : v.out[c] + factor[c];
    }
    gpu_store8(y, v.out);
}

/* Grid: f.panels panels of y; a thread has GROUP columns of a row at a time. S: sums and y, T: B, which is on its way
 * before gpu_wait. Dynamic shared memory: B of the block's panels for all slots, then a barrier of each panel. */
template <typename S, typename T, bool GATED>
__global__ void __launch_bounds__(THREADS_MAX)
    lora_finish_kernel(S *y, const S *sums, const __grid_constant__ lora_finish f)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ int slots[ROWS_MAX];
    panel_run run = {(int)blockIdx.x * f.panels, 0};
    run.count = min(f.panels, f.outputs / PANEL - run.first);
    int each = 2 * f.rows, mine = threadIdx.x < f.rows ? load_kept(f.slot + threadIdx.x) : -1;
    load_panels<GATED>(memory, f, run);
    if (threadIdx.x < f.rows) slots[threadIdx.x] = mine;
    gpu_wait();
    wait_of_block();
    for (int i = threadIdx.x; i < run.count * each; i += blockDim.x) {
        int panel = i / each, row = i % each / 2, half = i % 2;
        int n = (run.first + panel) * PANEL + half * GROUP;
        finish_columns<S, T, GATED>(y + row * f.y_row + n, sums + row * f.sums_row, f, memory,
                                    {panel, half, row, slots[row], n});
    }
}

/* Groups of columns are of one piece, panels of B without gaps. */
static bool takes_pieces(const proa_lora *l, int64_t N)
{
    for (int i = 0; i < l->pieces; i++)
        if (l->end[i] % PANEL) return false;
    return l->end[l->pieces - 1] == N;
}

static bool takes_epilogue(proa_view y, const proa_weight *w, const proa_epilogue *e)
{
    if (e->gated && w->N % (2 * PANEL)) return false;
    return gpu_is_vec8(y) && (!e->residual.rank || (gpu_is_vec8(e->residual) && e->residual.dtype == y.dtype));
}

/* Rows are so many that the slots' A and B are worth reading, whether they have rows or not. */
static bool takes_rows(int64_t rows, const proa_lora *l)
{
    return l->slots && rows > GPU_FEW_ROWS && rows <= ROWS_MAX && 2 * rows >= l->slots;
}

static bool takes_product(proa_view x, const proa_weight *w, const proa_lora *l)
{
    if (w->format == PROA_WFMT_FP8) return true; /* multiply_stack sees */
    proa_wfmt own = l->dtype == PROA_DTYPE_F16 ? PROA_WFMT_F16 : PROA_WFMT_BF16;
    return w->format == own && x.dtype == l->dtype && gpu_is_vec8(x) && w->K % 8 == 0 &&
           (uintptr_t)w->data % 16 == 0;
}

/* Panels of a block: so many that all blocks have room at once, as far as shared memory allows. 0: it has none. */
static int panels_of_block(const gpu *g, const lora_finish &f, bool gated)
{
    int64_t bytes = (int64_t)f.panel_bytes * (gated ? 2 : 1);
    int64_t fit = (g->shared_max - FIXED_BYTES) / bytes, wanted = (f.outputs / PANEL + g->sms - 1) / g->sms;
    fit = fit < (int64_t)PANELS_MAX ? fit : (int64_t)PANELS_MAX;
    return (int)(wanted < fit ? wanted : fit);
}

template <typename S, typename T, bool GATED>
static void launch_finish(gpu *g, proa_view y, const void *sums, const lora_finish &f)
{
    int bytes = (GATED ? 2 : 1) * f.panels * f.panel_bytes + 8 * f.panels;
    int threads = (f.panels * 2 * f.rows + 31) / 32 * 32;
    unsigned blocks = (unsigned)((f.outputs / PANEL + f.panels - 1) / f.panels);
    gpu_note(g,
             cudaFuncSetAttribute(lora_finish_kernel<S, T, GATED>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
             "lora (sums)");
    gpu_launch(g, "lora (sums)", lora_finish_kernel<S, T, GATED>, dim3(blocks),
               threads < THREADS_MAX ? threads : (int)THREADS_MAX, (size_t)bytes, (S *)y.data,
               (const S *)sums, f);
}

template <typename S, typename T>
static void finish_sums(gpu *g, proa_view y, const void *sums, const lora_finish &f)
{
    if (f.e.gate_rows) launch_finish<S, T, true>(g, y, sums, f);
    else launch_finish<S, T, false>(g, y, sums, f);
}

static lora_finish finish_of(const proa_weight *w, const proa_epilogue *e, const proa_lora *l,
                             const proa_lora_stack &stack)
{
    lora_finish f = {(const char *)w->data + stack.b};
    f.panel_bytes = (int)stack.panel_bytes, f.scale = (int)stack.panel_scales;
    f.sums_row = stack.rows, f.h = (int)stack.a_row, f.outputs = (int)(e->gated ? w->N / 2 : w->N);
    f.slots = l->slots, f.rank = l->rank, f.pieces = l->pieces;
    for (int i = 0; i < l->pieces; i++) f.end[i] = (int)l->end[i];
    f.e = epilogue_of(e, w);
    return f;
}

/* sums = x (W and A)^T. False: there is no such product, and nothing was launched. */
static bool multiply_stack(gpu *g, proa_view sums, proa_view x, const proa_weight *w, const proa_lora_stack &stack)
{
    proa_weight all = *w;
    all.N = stack.rows;
    if (w->format != PROA_WFMT_FP8) return gpu_gemm(g, sums, x, &all, NULL);
    return gpu_fp8_gemm(g, sums, x, &all, (const char *)w->data + stack.scales);
}

bool gpu_gemm_lora(gpu *g, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e,
                   const proa_lora *l, const proa_lora_rows *rows)
{
    if (!rows->slot || !l->sums || !takes_rows(y.shape[0], l) || !takes_product(x, w, l)) return false;
    if (!takes_pieces(l, w->N) || !takes_epilogue(y, w, e)) return false;
    proa_lora_stack stack = proa_lora_stack_of(l, w);
    lora_finish f = finish_of(w, e, l, stack);
    f.slot = rows->slot, f.rows = (int)y.shape[0], f.y_row = y.stride[0];
    f.panels = panels_of_block(g, f, e->gated);
    if (!f.panels) return false;
    gpu_flush(g);
    proa_view sums = proa_view_2d(l->sums, y.dtype, y.shape[0], stack.rows);
    if (!multiply_stack(g, sums, x, w, stack)) return false;
    gpu_invalidate(g, y);
    gpu_by_type(y.dtype, [&](auto of_y) {
        using S = decltype(of_y);
        if (w->format == PROA_WFMT_FP8) finish_sums<S, __nv_fp8_e4m3>(g, y, sums.data, f);
        else if (x.dtype == PROA_DTYPE_F16) {
            if constexpr (!std::is_same<S, __nv_bfloat16>::value) finish_sums<S, __half>(g, y, sums.data, f);
        } else if constexpr (!std::is_same<S, __half>::value)
            finish_sums<S, __nv_bfloat16>(g, y, sums.data, f);
    });
    return true;
}

/* ---- adapters behind W ---- */

enum { STACK_THREADS = 256, STACK_WARPS = STACK_THREADS / 32 };

__device__ static inline int piece_of_panel(const proa_lora &l, int64_t panel)
{
    int64_t first = 0;
    for (int piece = 0;; first = l.end[piece++]) {
        panel -= (l.end[piece] - first + PANEL - 1) / PANEL;
        if (panel < 0) return piece;
    }
}

/* What one slot has behind W. base: the adapter; panels: of B. */
struct lora_stacking {
    char *w;
    const char *base;
    proa_lora l;
    proa_lora_stack stack;
    int64_t N, panels;
    int slot;
};

__device__ static inline char *own_a(const lora_stacking &s)
{
    return s.w + (s.stack.a_row + (int64_t)s.slot * s.l.pieces * s.l.rank) * s.stack.row_bytes;
}
__device__ static inline char *own_b(const lora_stacking &s, int64_t panel)
{
    return s.w + s.stack.b + panel * s.stack.panel_bytes +
           (int64_t)s.slot * s.l.rank * PANEL * s.stack.number_bytes;
}
__device__ static inline float *own_scale(const lora_stacking &s, int64_t panel)
{
    return reinterpret_cast<float *>(s.w + s.stack.b + panel * s.stack.panel_bytes + s.stack.panel_scales) +
           s.slot;
}
__device__ static inline float adapter_scale(const lora_stacking &s, int64_t panel)
{
    return reinterpret_cast<const proa_lora_use *>(s.base + s.l.use)[piece_of_panel(s.l, panel)].scale;
}

__global__ void lora_stack_kernel(lora_stacking s)
{
    const int ROW_BYTES = PANEL * 2;
    int64_t first = (int64_t)blockIdx.x * STACK_THREADS + threadIdx.x, step = (int64_t)gridDim.x * STACK_THREADS;
    int columns = s.l.pieces * s.l.rank;
    uint16_t *a = reinterpret_cast<uint16_t *>(own_a(s));
    gpu_wait();
    for (int64_t i = first; i < columns * s.l.K; i += step)
        a[i] = reinterpret_cast<const uint16_t *>(s.base + s.l.a)[i % s.l.K * columns + i / s.l.K];
    const uint4 *from = reinterpret_cast<const uint4 *>(s.base + s.l.b);
    for (int64_t i = first; i < 2 * s.panels * s.l.rank; i += step) {
        int64_t panel = i / (2 * s.l.rank), j = i / 2 % s.l.rank ^ (s.slot & s.stack.swap);
        *reinterpret_cast<uint4 *>(own_b(s, panel) + j * ROW_BYTES + i % 2 * 16) = from[i];
    }
    for (int64_t panel = first; panel < s.panels; panel += step)
        *own_scale(s, panel) = adapter_scale(s, panel);
}

/* A row of A a block: its scale, then its codes. W's scales once more. */
template <typename T> __global__ void lora_stack_a_kernel(lora_stacking s)
{
    __shared__ float scratch[33];
    int columns = s.l.pieces * s.l.rank, column = (int)blockIdx.x;
    const T *from = reinterpret_cast<const T *>(s.base + s.l.a) + column;
    uint8_t *to = reinterpret_cast<uint8_t *>(own_a(s)) + column * s.stack.row_bytes;
    float *scales = reinterpret_cast<float *>(s.w + s.stack.scales), largest = 0.0f;
    const float *own = reinterpret_cast<const float *>(s.w + proa_coded_rows_of(s.N, s.l.K).scales_at);
    gpu_wait();
    for (int64_t k = threadIdx.x; k < s.l.K; k += STACK_THREADS)
        largest = fmaxf(largest, fabsf(gpu_to_f32(from[k * columns])));
    float scale = proa_fp8_scale(gpu_block_max(largest, scratch), 1);
    for (int64_t k = threadIdx.x; k < s.stack.row_bytes; k += STACK_THREADS)
        to[k] = k < s.l.K ? proa_fp8_round(gpu_to_f32(from[k * columns]), scale) : 0;
    if (threadIdx.x == 0) scales[s.stack.a_row + s.slot * columns + column] = scale;
    for (int64_t n = blockIdx.x * STACK_THREADS + threadIdx.x; n < s.N; n += gridDim.x * STACK_THREADS)
        scales[n] = own[n];
}

/* A panel of B a warp. */
template <typename T> __global__ void lora_stack_b_kernel(lora_stacking s)
{
    int64_t panel = (int64_t)blockIdx.x * STACK_WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32, count = s.l.rank * PANEL;
    if (panel >= s.panels) return;
    const T *from = reinterpret_cast<const T *>(s.base + s.l.b) + panel * count;
    uint8_t *to = reinterpret_cast<uint8_t *>(own_b(s, panel));
    float largest = 0.0f;
    gpu_wait();
    for (int i = lane; i < count; i += 32) largest = fmaxf(largest, fabsf(gpu_to_f32(from[i])));
    float scale = proa_fp8_scale(gpu_warp_max(largest), 1);
    for (int i = lane; i < count; i += 32)
        to[(i / PANEL ^ (s.slot & s.stack.swap)) * PANEL + i % PANEL] = proa_fp8_round(gpu_to_f32(from[i]),
                                                                                       scale);
    if (lane == 0) *own_scale(s, panel) = adapter_scale(s, panel) * scale;
}

static void stack_codes(gpu *g, const lora_stacking &s)
{
    unsigned blocks = (unsigned)((s.panels + STACK_WARPS - 1) / STACK_WARPS);
    gpu_by_type(s.l.dtype, [&](auto from) {
        using T = decltype(from);
        gpu_launch(g, "lora_stack", lora_stack_a_kernel<T>, dim3((unsigned)(s.l.pieces * s.l.rank)),
                   STACK_THREADS, 0, s);
        gpu_launch(g, "lora_stack", lora_stack_b_kernel<T>, dim3(blocks), STACK_THREADS, 0, s);
    });
}

void gpu_lora_stack(proa_ctx *c, const proa_weight *w, const proa_lora *l, int32_t slot, const char *base)
{
    gpu *g = gpu_flushed(c);
    lora_stacking s = {(char *)w->data, base, *l, proa_lora_stack_of(l, w), w->N, 0, (int)slot};
    for (int i = 0; i < l->pieces; i++) s.panels += proa_lora_panels(l, i);
    if (w->format == PROA_WFMT_FP8) stack_codes(g, s);
    else gpu_launch(g, "lora_stack", lora_stack_kernel, dim3((unsigned)(4 * g->sms)), STACK_THREADS, 0, s);
    g->serialize_next = true; /* products read it before they wait */
}
