/* SPDX-License-Identifier: Apache-2.0
 * decode_mma.cu - attention for spans of one row on tensor cores; pages of 16 bits or e4m3, head sizes 64,
 * 80, 96, 128, 256.
 *
 *   block      a part of a context, for up to 8 TILES query heads of one key head
 *   warp       has its own ring in shared memory, one stage of KEYS keys and one of their values, filled by cp.async
 *   products   scores = K q^T and result = V^T p^T: keys (then dimensions) are the 16 rows of an mma tile and heads its 8
 *              columns, so a group of up to 8 heads costs what one head does, which is reading
 *   registers  query DIM / 16 x TILES x 2 words, result DIM / 16 x TILES x 4, scores KEYS / 16 x TILES x 4
 *   shared     WARPS x 2 x KEYS padded rows, reused for the combination of the warps' parts
 *
 * Warps are combined in shared memory, blocks in `partials`, both in a fixed order. Measurements of the
 * forms: docs/lab/cuda-attention.md (bench/gpu/decode.cu). */
#include "kernels/cuda/attention/decode_mma.h"
#include "kernels/cuda/runtime/mma.h"

enum { SPLIT_KEYS_MIN = 256, LONG_CONTEXT = 1024 };

/* Rows of pages in shared memory. The stride is an odd number of 16-byte pieces, so that 8 rows use different
 * banks; rows of an odd number of pieces, which are read in pairs, get one more. */
template <typename T, int DIM> struct padded_rows {
    static const int BYTES = DIM * sizeof(T), PIECES = BYTES / 16, STRIDE = (PIECES + 1 + PIECES % 2) * 16;

    /* KEYS contiguous rows; those from `valid` on become zeros. By one warp. */
    template <int KEYS> __device__ static void load(unsigned to, const T *from, int valid)
    {
        int lane = threadIdx.x & 31;
        const char *source = reinterpret_cast<const char *>(from) + lane * 16;
        auto row_of = [&](int i) {
            return 32 % PIECES == 0 ? lane / PIECES + i / PIECES : (lane + i) / PIECES;
        };
        auto place_of = [&](int i) {
            if constexpr (32 % PIECES == 0)
                return to + lane / PIECES * STRIDE + lane % PIECES * 16 + i / PIECES * STRIDE;
            else return to + row_of(i) * STRIDE + (lane + i) % PIECES * 16;
        };
        if (valid >= KEYS) {
#pragma unroll
            for (int i = 0; i < KEYS * PIECES; i += 32) cp_async16(place_of(i), source + i * 16);
        } else {
#pragma unroll 1
            for (int i = 0; i < KEYS * PIECES; i += 32)
                cp_async16(place_of(i), source + i * 16, row_of(i) < valid);
        }
    }
};

/* What pages of T are multiplied as. */
template <typename T> struct mma_type {
    typedef T type;
};
template <> struct mma_type<__nv_fp8_e4m3> {
    typedef __half type;
};

__device__ static inline unsigned open_pair(unsigned two_e4m3)
{
    __half2 h = __half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)two_e4m3, __NV_E4M3));
    return *reinterpret_cast<unsigned *>(&h);
}

/* What a warp holds of up to 8 TILES heads. A lane's heads are 8 n + 2 (lane % 4) + j, its dimensions those
 * of dim_of(). */
template <typename T, int DIM, int TILES, int KEYS> struct warp_attention {
    typedef typename mma_type<T>::type F;
    typedef padded_rows<T, DIM> rows;
    static const bool WIDE = sizeof(T) ==
                             2; /* false: e4m3, where a piece holds 16 dimensions, two steps of a product */
    static const int STEPS = DIM / 16, PARTS = KEYS / 16;
    unsigned query[STEPS][TILES][2];
    float out[STEPS][TILES][4], score[PARTS][TILES][4], largest[TILES][2], total[TILES][2];

    /* The four dimensions of a step that a lane holds of a query. For pages of e4m3 they are contiguous. */
    __device__ static int query_dim(int k, int i)
    {
        int c = threadIdx.x & 3;
        return k * 16 + (WIDE ? i / 2 * 8 + 2 * c + i % 2 : 4 * c + i);
    }
    __device__ static int dim_of(int k, int second)
    {
        int r = (threadIdx.x & 31) / 4;
        return k * 16 + (WIDE ? second * 8 + r : 2 * r + second);
    }

    /* f32 beyond f16's range as its largest number. */
    template <typename Q> __device__ static float finite(Q x)
    {
        if constexpr (std::is_same<Q, float>::value) return gpu_to_f32(gpu_saturate<F>(x));
        else return gpu_to_f32(x);
    }

    /* q: of the block's first head. Q is known at compile time, so that all loads are issued before the first
     * returns. */
    template <typename Q> __device__ void load_query(const Q *q, int64_t q_head, int heads)
    {
        int r = (threadIdx.x & 31) / 4;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            bool in_group = n * 8 + r < heads;
            const Q *head = q + (in_group ? n * 8 + r : 0) * q_head;
#pragma unroll
            for (int k = 0; k < STEPS; k++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float x = finite(head[query_dim(k, 2 * i)]), y = finite(head[query_dim(k, 2 * i + 1)]);
                    query[k][n][i] = in_group ? gpu_mma<F>::pair(x, y) : 0;
                }
        }
    }

    __device__ void begin(const attention_task &t, int64_t row, int first, int heads)
    {
        int64_t at = row * t.q_row + first * t.q_head;
        if (t.type == PROA_DTYPE_F32) load_query((const float *)t.q + at, t.q_head, heads);
        else if (t.type == PROA_DTYPE_F16) load_query((const __half *)t.q + at, t.q_head, heads);
        else load_query((const __nv_bfloat16 *)t.q + at, t.q_head, heads);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) largest[n][j] = -INFINITY, total[n][j] = 0.0f;
#pragma unroll
            for (int k = 0; k < STEPS; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) out[k][n][i] = 0.0f;
        }
    }

    __device__ void multiply_keys(unsigned at)
    {
        int lane = threadIdx.x & 31;
        at += lane % 16 * rows::STRIDE + lane / 16 * 16;
#pragma unroll
        for (int m = 0; m < PARTS; m++) {
            float part[2][TILES][4] = {}; /* two sums: a product need not wait for the one before */
#pragma unroll
            for (int k = 0; k < STEPS; k += 2) {
                unsigned a[2][4];
                unsigned from = at + m * 16 * rows::STRIDE;
                if constexpr (WIDE) {
                    ldmatrix_x4(a[0], from + k * 32);
                    if (k + 1 < STEPS) ldmatrix_x4(a[1], from + k * 32 + 32);
                } else {
                    unsigned w[4];
                    ldmatrix_x4(w, from + k * 16);
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        a[i][0] = open_pair(w[2 * i]), a[i][2] = open_pair(w[2 * i] >> 16);
                        a[i][1] = open_pair(w[2 * i + 1]), a[i][3] = open_pair(w[2 * i + 1] >> 16);
                    }
                }
#pragma unroll
                for (int i = 0; i < 2 && k + i < STEPS; i++)
#pragma unroll
                    for (int n = 0; n < TILES; n++)
                        gpu_mma<F>::run(part[i][n], a[i], query[k + i][n][0], query[k + i][n][1]);
            }
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) score[m][n][i] = part[0][n][i] + part[1][n][i];
        }
    }

    /* Keys outside of [begin, end) are not seen; key: the first of the stage. */
    __device__ void mask(int key, int begin, int end)
    {
        int r = (threadIdx.x & 31) / 4;
#pragma unroll
        for (int m = 0; m < PARTS; m++)
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int p = key + m * 16 + i / 2 * 8 + r;
                    if (p < begin || p >= end) score[m][n][i] = -INFINITY;
                }
    }

    /* Applies score_mod to the products; at: position of the row. */
    __device__ void apply_score_mod(const attention_task &t, int key, int at, int first, int heads)
    {
        int r = (threadIdx.x & 31) / 4, c = 2 * (threadIdx.x & 3);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                int h = first + min(n * 8 + c + j, heads - 1);
                float slope = slope_of(t, h);
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int i = j; i < 4; i += 2) {
                        int distance = key + m * 16 + i / 2 * 8 + r - at;
                        score[m][n][i] = score_mod(t, score[m][n][i] * t.scale, bias_of(t, h, distance),
                                                   slope, distance);
                    }
            }
    }

    /* Online softmax: scores become weights. unit: the factor from a score to powers of 2. The largest score
     * is that of all lanes of a head. */
    __device__ void apply_softmax(float unit)
    {
        bool grew = false;
        float shrink[TILES][2];
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float now = largest[n][j], sum = 0.0f;
#pragma unroll
                for (int m = 0; m < PARTS; m++) now = fmaxf(now, fmaxf(score[m][n][j], score[m][n][2 + j]));
#pragma unroll
                for (int o = 4; o < 32; o *= 2) now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, o));
                float usable = now == -INFINITY ? 0.0f : now * unit;
                shrink[n][j] = exp2_approx(fmaf(largest[n][j], unit, -usable));
                grew = grew || now != largest[n][j];
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int i = j; i < 4; i += 2) {
                        score[m][n][i] = exp2_approx(fmaf(score[m][n][i], unit, -usable));
                        sum += score[m][n][i];
                    }
                total[n][j] = total[n][j] * shrink[n][j] + sum;
                largest[n][j] = now;
            }
        if (!__any_sync(0xffffffffu, grew)) return; /* all would be multiplied by 1 */
#pragma unroll
        for (int k = 0; k < STEPS; k++)
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) out[k][n][i] *= shrink[n][i % 2];
    }

    __device__ void multiply_values(unsigned at)
    {
        int lane = threadIdx.x & 31;
        at += (lane / 16 * 8 + lane % 8) * rows::STRIDE + lane / 8 % 2 * 16;
#pragma unroll
        for (int m = 0; m < PARTS; m++) {
            unsigned weight[TILES][2], from = at + m * 16 * rows::STRIDE;
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    weight[n][i] = transpose_tile(gpu_mma<F>::pair(score[m][n][2 * i], score[m][n][2 * i + 1]));
            if constexpr (WIDE) {
#pragma unroll
                for (int k = 0; k < STEPS; k++) {
                    unsigned a[4];
                    ldmatrix_x4_trans(a, from + k * 32);
#pragma unroll
                    for (int n = 0; n < TILES; n++) gpu_mma<F>::run(out[k][n], a, weight[n][0], weight[n][1]);
                }
            } else {
#pragma unroll
                for (int k = 0; k < STEPS; k += 2) {
                    unsigned w[4], a[2][4];
                    ldmatrix_x4_trans(w, from + k * 16);
#pragma unroll
                    for (int i = 0; i < 4; i++) { /* two dimensions of two keys become pairs of one dimension's keys */
                        unsigned sorted = __byte_perm(w[i], 0, 0x3120);
                        a[i % 2][i / 2 * 2] = open_pair(sorted),
                                         a[i % 2][i / 2 * 2 + 1] = open_pair(sorted >> 16);
                    }
#pragma unroll
                    for (int i = 0; i < 2 && k + i < STEPS; i++)
#pragma unroll
                        for (int n = 0; n < TILES; n++)
                            gpu_mma<F>::run(out[k + i][n], a[i], weight[n][0], weight[n][1]);
                }
            }
        }
    }

    /* This warp's part, [head][ROOM] (decode_mma.h). */
    static const int ROOM = DIM + PART_TAIL;
    __device__ void store_part(float *scratch, float unit, int heads)
    {
        int c = 2 * (threadIdx.x & 3);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float sum = total[n][j], *mine = scratch + (n * 8 + c + j) * ROOM;
#pragma unroll
                for (int o = 4; o < 32; o *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
                if (n * 8 + c + j >= heads) continue;
                mine[DIM] = largest[n][j] * unit, mine[DIM + 1] = sum;
#pragma unroll
                for (int k = 0; k < STEPS; k++)
                    mine[dim_of(k, 0)] = out[k][n][j], mine[dim_of(k, 1)] = out[k][n][2 + j];
            }
    }
};

/* What a warp reads. Stage i of a context is the keys KEYS i and on; a warp has every WARPS-th stage of its
 * block. Room for one stage of keys and one of values is enough (two or three cost more in warps than they
 * gain): the next keys arrive during the product with the values, the next values during that with the keys. */
template <typename T, int DIM, int KEYS, int WARPS> struct page_ring {
    typedef padded_rows<T, DIM> rows;
    static const int STAGE = KEYS * rows::STRIDE, BYTES = 2 * STAGE;
    unsigned keys, values; /* shared memory */
    const int32_t *pages;
    int64_t page_step, head; /* elements: between pages, of the head in its page */
    int next, last, end; /* the stage to be loaded next; one behind the block's last; keys of the context */
    int page;            /* of next */

    __device__ void find_page()
    {
        if (next < last) page = __ldg(pages + next * KEYS / PAGE);
    }
    __device__ void issue_load(const void *base, unsigned to) const
    {
        if (next < last) {
            const T *from = (const T *)base + page * page_step + head + next * KEYS % PAGE * DIM;
            rows::template load<KEYS>(to, from, end - next * KEYS);
        }
        cp_async_commit();
    }
    __device__ void issue_keys(const attention_task &t) const
    {
        issue_load(t.k, keys);
    }
    __device__ void issue_values(const attention_task &t)
    {
        issue_load(t.v, values);
        next += WARPS;
        find_page();
    }
    /* Waits until what was issued before the last group has arrived for the whole warp. */
    __device__ static void wait_stage()
    {
        cp_async_wait<1>();
        __syncwarp();
    }
};

template <typename T, int DIM, int TILES, int KEYS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS)
    decode_mma_kernel(attention_task t, float *partials, unsigned *counters)
{
    extern __shared__ __align__(128) char memory[];
    typedef page_ring<T, DIM, KEYS, WARPS> reading;
    proa_span s = t.spans[blockIdx.x];
    if (!is_single_row(s)) return gpu_wait();
    const block_work b = block_work_of(t, 8 * TILES);
    int warp = threadIdx.x / 32, begin, end;
    visible_keys(t, s, 0, &begin, &end);
    int stage = begin / KEYS, last = (end + KEYS - 1) / KEYS, each = (last - stage + b.splits - 1) / b.splits;
    stage += b.split * each, last = min(last, stage + each);
    stage += warp;
    unsigned mine = smem_address(memory) + warp * reading::BYTES;
    const int64_t of_head = PAGE * DIM; /* elements of a head in a page */
    reading in = {mine,
                  mine + reading::STAGE,
                  t.pages + s.table,
                  t.kv_heads * of_head,
                  b.kv * of_head,
                  stage,
                  last,
                  end,
                  0};
    /* only the newest key is written in this pass: all others are loaded while the kernel before still runs */
    if ((stage + 1) * KEYS > (t.causal ? s.context - 1 : s.context)) gpu_wait();
    in.find_page();
    in.issue_keys(t), in.issue_values(t);
    gpu_wait();
    warp_attention<T, DIM, TILES, KEYS> r;
    r.begin(t, s.row, b.first, b.heads);
    float unit = (t.has_score_mod ? 1.0f : t.scale) * LOG2_E;
    for (; stage < last; stage += WARPS) {
        int key = stage * KEYS;
        in.wait_stage();
        r.multiply_keys(in.keys);
        __syncwarp(); /* all have read */
        in.issue_keys(t);
        if (t.has_score_mod) r.apply_score_mod(t, key, s.context - 1, b.first, b.heads);
        if (key < begin || key + KEYS > end) r.mask(key, begin, end);
        r.apply_softmax(unit);
        in.wait_stage();
        r.multiply_values(in.values);
        __syncwarp();
        in.issue_values(t);
    }
    cp_async_wait<0>();
    __syncthreads(); /* the rings are free for the sums */
    float *scratch = reinterpret_cast<float *>(memory);
    r.store_part(scratch + warp * b.heads * r.ROOM, unit, b.heads);
    combine_parts(t, b, scratch, WARPS, partials, counters);
}

template <typename T, int DIM, int TILES, int KEYS, int WARPS>
static void launch_decode(gpu *g, const attention_task &t, int spans, int splits)
{
    auto kernel = decode_mma_kernel<T, DIM, TILES, KEYS, WARPS>;
    unsigned blocks = (unsigned)(t.kv_heads * ((t.group + 8 * TILES - 1) / (8 * TILES)));
    size_t rings = (size_t)WARPS * page_ring<T, DIM, KEYS, WARPS>::BYTES;
    size_t sums = combine_bytes(WARPS, min(t.group, 8 * TILES), DIM);
    int shared = (int)(rings > sums ? rings : sums);
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
             "attend (decode)");
    gpu_launch(g, "attend (decode)", kernel, dim3((unsigned)spans, blocks, (unsigned)splits), 32 * WARPS,
               (size_t)shared, t, partials_for(g, t, spans, splits), g->counters);
}

/* The ring of each size: KEYS, WARPS (bench/gpu/decode.cu). Eight warps have more loads in flight, so few
 * blocks suffice, but over a short context some have nothing to do. */
template <typename T, int DIM, int TILES>
static void decode_as(gpu *g, const attention_task &t, int spans, int context, int splits)
{
    const bool WIDE = sizeof(T) == 2;
    if constexpr (DIM == 80 || DIM == 96) launch_decode<T, DIM, TILES, 32, 4>(g, t, spans, splits);
    else if constexpr (!WIDE)
        launch_decode<T, DIM, TILES, DIM == 64 ? 64 : 32, DIM == 256 ? 2 : 4>(g, t, spans, splits);
    else if constexpr (DIM == 256) launch_decode<T, DIM, TILES, 16, 4>(g, t, spans, splits);
    else if (context >= LONG_CONTEXT)
        launch_decode<T, DIM, TILES, DIM == 64 ? 32 : 16, 8>(g, t, spans, splits);
    else launch_decode<T, DIM, TILES, DIM == 64 ? 32 : 16, 4>(g, t, spans, splits);
}

/* Query heads of a block at most. More than 8 that share a key take two tiles of 8, where that form is
 * compiled. */
static int heads_of_block(const attention_task &t)
{
    return t.group > 8 && (t.dim == 64 || t.dim == 128) ? 16 : 8;
}

/* For the widest heads the registers suffice for one tile; for rare sizes one form is enough. */
template <typename T>
static void decode_dims(gpu *g, const attention_task &t, int spans, int context, int splits)
{
    bool wide = heads_of_block(t) > 8;
    if (t.dim == 80) decode_as<T, 80, 1>(g, t, spans, context, splits);
    else if (t.dim == 96) decode_as<T, 96, 1>(g, t, spans, context, splits);
    else if (t.dim == 256) decode_as<T, 256, 1>(g, t, spans, context, splits);
    else if (t.dim == 128) (wide ? decode_as<T, 128, 2> : decode_as<T, 128, 1>)(g, t, spans, context, splits);
    else (wide ? decode_as<T, 64, 2> : decode_as<T, 64, 1>)(g, t, spans, context, splits);
}

/* A split costs a round trip through memory at its end. So contexts are split only while there are fewer than
 * two blocks for each SM, and not below SPLIT_KEYS_MIN keys. The number is the same for all contexts of a
 * length class. */
static int splits_for(const gpu *g, const attention_task &t, int spans, int context)
{
    int most = heads_of_block(t), blocks = spans * t.kv_heads * ((t.group + most - 1) / most), splits = 1;
    if (blocks > GPU_COUNTERS) return 1;
    while (2 * splits * blocks <= 2 * g->sms && context >= 2 * splits * SPLIT_KEYS_MIN && splits < SPLITS_MAX)
        splits *= 2;
    return splits;
}

static void run_decode(gpu *g, const attention_task &t, proa_dtype pages, int spans, int context)
{
    int splits = splits_for(g, t, spans, context);
    if (pages == PROA_DTYPE_F16) decode_dims<__half>(g, t, spans, context, splits);
    else if (pages == PROA_DTYPE_BF16) decode_dims<__nv_bfloat16>(g, t, spans, context, splits);
    else decode_dims<__nv_fp8_e4m3>(g, t, spans, context, splits);
}

bool gpu_decode(gpu *g, const attention_task &t, proa_dtype pages, const proa_spans *spans)
{
    int count = (int)spans->count, piece = 16 / (int)proa_dtype_bytes(pages);
    bool tiled = pages != PROA_DTYPE_F32 &&
                 (t.dim == 64 || t.dim == 80 || t.dim == 96 || t.dim == 128 || t.dim == 256);
    if (t.dim % piece != 0 || t.dim > 64 * piece || ((uintptr_t)t.k | (uintptr_t)t.v) % 16 != 0) return false;
    if (spans->rows_min > 1) return true;
    if (gpu_decode_short(g, t, pages, count, spans->context_max, {})) return true;
    if (tiled) run_decode(g, t, pages, count, spans->context_max);
    else gpu_decode_fallback(g, t, pages, count, spans->context_max);
    return true;
}
