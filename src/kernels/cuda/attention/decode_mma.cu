/* SPDX-License-Identifier: Apache-2.0
 * decode.cu - attention of spans of one row on tensor cores. A block takes a stretch of a context for the query heads of one
 * key head; each of its warps has a ring of its own in shared memory, KEYS keys and their values a stage, that cp.async keeps
 * full. Scores are K q^T and the result V^T p^T, so keys (then dimensions) are the 16 rows of a tile and heads its 8 columns:
 * a group of up to 8 costs what one head does, which is the reading. Warps meet in shared memory, blocks in `partials`; both
 * are added in a fixed order. What is measured of which shape is in README.md (bench/gpu/decode.cu). */
#include "kernels/cuda/attention/decode_mma.h"
#include "kernels/cuda/runtime/mma.h"

enum { SPLIT_KEYS_MIN = 256, LONG_CONTEXT = 1024 };

/* Rows of pages in shared memory: an odd number of 16-byte pieces apart, so that 8 rows lie in different banks, and with one more
 * behind an odd number of them, which are read in pairs. */
template <typename T, int DIM> struct rows_of {
    static const int BYTES = DIM * sizeof(T), PIECES = BYTES / 16, STRIDE = (PIECES + 1 + PIECES % 2) * 16;

    /* KEYS rows that lie together; those from `valid` on become zeros. By one warp. */
    template <int KEYS> __device__ static void load(unsigned to, const T *from, int valid)
    {
        int lane = threadIdx.x & 31;
        const char *source = reinterpret_cast<const char *>(from) + lane * 16;
        auto row_of = [&](int i) { return 32 % PIECES == 0 ? lane / PIECES + i / PIECES : (lane + i) / PIECES; };
        auto place_of = [&](int i) {
            if constexpr (32 % PIECES == 0) return to + lane / PIECES * STRIDE + lane % PIECES * 16 + i / PIECES * STRIDE;
            else return to + row_of(i) * STRIDE + (lane + i) % PIECES * 16;
        };
        if (valid >= KEYS) {
#pragma unroll
            for (int i = 0; i < KEYS * PIECES; i += 32) copy_piece(place_of(i), source + i * 16);
        } else {
#pragma unroll 1
            for (int i = 0; i < KEYS * PIECES; i += 32) copy_piece(place_of(i), source + i * 16, row_of(i) < valid);
        }
    }
};

/* What pages of T are multiplied as. */
template <typename T> struct factor {
    typedef T type;
};
template <> struct factor<__nv_fp8_e4m3> {
    typedef __half type;
};

__device__ static inline unsigned open_pair(unsigned two_e4m3)
{
    __half2 h = __half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)two_e4m3, __NV_E4M3));
    return *reinterpret_cast<unsigned *>(&h);
}

/* What a warp has of up to 8 TILES heads. A lane's heads are 8 n + 2 (lane % 4) + j, its dimensions those of dim_of(). */
template <typename T, int DIM, int TILES, int KEYS> struct reader {
    typedef typename factor<T>::type F;
    typedef rows_of<T, DIM> rows;
    static const bool WIDE = sizeof(T) == 2; /* else e4m3: a piece holds 16 dimensions, two steps of a product */
    static const int STEPS = DIM / 16, PARTS = KEYS / 16;
    unsigned query[STEPS][TILES][2];
    float out[STEPS][TILES][4], score[PARTS][TILES][4], largest[TILES][2], total[TILES][2];

    /* The four dimensions of a step that a lane holds of a query: in pages of e4m3 they lie together. */
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

    /* q: of the block's first head. The type is known here, so that all loads go out before the first comes back. */
    template <typename Q> __device__ void load_query(const Q *q, int64_t q_head, int heads)
    {
        int r = (threadIdx.x & 31) / 4;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            bool there = n * 8 + r < heads;
            const Q *head = q + (there ? n * 8 + r : 0) * q_head;
#pragma unroll
            for (int k = 0; k < STEPS; k++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float x = finite(head[query_dim(k, 2 * i)]), y = finite(head[query_dim(k, 2 * i + 1)]);
                    query[k][n][i] = there ? gpu_mma<F>::pair(x, y) : 0;
                }
        }
    }

    __device__ void begin(const task &t, int64_t row, int first, int heads)
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
                    load_matrix(a[0], from + k * 32);
                    if (k + 1 < STEPS) load_matrix(a[1], from + k * 32 + 32);
                } else {
                    unsigned w[4];
                    load_matrix(w, from + k * 16);
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        a[i][0] = open_pair(w[2 * i]), a[i][2] = open_pair(w[2 * i] >> 16);
                        a[i][1] = open_pair(w[2 * i + 1]), a[i][3] = open_pair(w[2 * i + 1] >> 16);
                    }
                }
#pragma unroll
                for (int i = 0; i < 2 && k + i < STEPS; i++)
#pragma unroll
                    for (int n = 0; n < TILES; n++) gpu_mma<F>::run(part[i][n], a[i], query[k + i][n][0], query[k + i][n][1]);
            }
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) score[m][n][i] = part[0][n][i] + part[1][n][i];
        }
    }

    /* Keys outside of [begin, end) are not seen; key: the stage's first. */
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

    /* Products become scores of more than a scale (score_of); at: the row's position. */
    __device__ void shape(const task &t, int key, int at, int first, int heads)
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
                        score[m][n][i] = score_of(t, score[m][n][i] * t.scale, bias_of(t, h, distance), slope, distance);
                    }
            }
    }

    /* Scores become weights; unit: of a score, in powers of 2. The largest is that of all lanes of a head. */
    __device__ void soften(float unit)
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
                shrink[n][j] = power_of_2(fmaf(largest[n][j], unit, -usable));
                grew = grew || now != largest[n][j];
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int i = j; i < 4; i += 2) {
                        score[m][n][i] = power_of_2(fmaf(score[m][n][i], unit, -usable));
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
                    weight[n][i] = turned_tile(gpu_mma<F>::pair(score[m][n][2 * i], score[m][n][2 * i + 1]));
            if constexpr (WIDE) {
#pragma unroll
                for (int k = 0; k < STEPS; k++) {
                    unsigned a[4];
                    load_matrix_turned(a, from + k * 32);
#pragma unroll
                    for (int n = 0; n < TILES; n++) gpu_mma<F>::run(out[k][n], a, weight[n][0], weight[n][1]);
                }
            } else {
#pragma unroll
                for (int k = 0; k < STEPS; k += 2) {
                    unsigned w[4], a[2][4];
                    load_matrix_turned(w, from + k * 16);
#pragma unroll
                    for (int i = 0; i < 4; i++) { /* two dimensions of two keys: pairs of a dimension's keys */
                        unsigned sorted = __byte_perm(w[i], 0, 0x3120);
                        a[i % 2][i / 2 * 2] = open_pair(sorted), a[i % 2][i / 2 * 2 + 1] = open_pair(sorted >> 16);
                    }
#pragma unroll
                    for (int i = 0; i < 2 && k + i < STEPS; i++)
#pragma unroll
                        for (int n = 0; n < TILES; n++) gpu_mma<F>::run(out[k + i][n], a[i], weight[n][0], weight[n][1]);
                }
            }
        }
    }

    /* This warp's part, [head][ROOM] (decode.h). */
    static const int ROOM = DIM + PART_TAIL;
    __device__ void put(float *room, float unit, int heads)
    {
        int c = 2 * (threadIdx.x & 3);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float sum = total[n][j], *mine = room + (n * 8 + c + j) * ROOM;
#pragma unroll
                for (int o = 4; o < 32; o *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
                if (n * 8 + c + j >= heads) continue;
                mine[DIM] = largest[n][j] * unit, mine[DIM + 1] = sum;
#pragma unroll
                for (int k = 0; k < STEPS; k++) mine[dim_of(k, 0)] = out[k][n][j], mine[dim_of(k, 1)] = out[k][n][2 + j];
            }
    }
};

/* What a warp reads: stage i of a context holds keys KEYS i and on, and a warp has every WARPS-th of its block's. Room for one
 * stage's keys and one's values suffices (two or three lose by what they cost in warps): keys go on arriving while values are
 * worked on, values during keys, and the other warps' all the time. */
template <typename T, int DIM, int KEYS, int WARPS> struct ring {
    typedef rows_of<T, DIM> rows;
    static const int STAGE = KEYS * rows::STRIDE, BYTES = 2 * STAGE;
    unsigned keys, values; /* shared memory */
    const int32_t *pages;
    int64_t page_step, head; /* elements: between pages, of the head in its page */
    int next, last, end;     /* the stage to be asked for, the block's last but one; keys of the context */
    int page;                /* of next */

    __device__ void find()
    {
        if (next < last) page = __ldg(pages + next * KEYS / PAGE);
    }
    __device__ void ask(const void *base, unsigned to) const
    {
        if (next < last) {
            const T *from = (const T *)base + page * page_step + head + next * KEYS % PAGE * DIM;
            rows::template load<KEYS>(to, from, end - next * KEYS);
        }
        send();
    }
    __device__ void ask_keys(const task &t) const
    {
        ask(t.k, keys);
    }
    __device__ void ask_values(const task &t)
    {
        ask(t.v, values);
        next += WARPS;
        find();
    }
    /* What was asked for before the last is there for the whole warp. */
    __device__ static void receive()
    {
        receive_own<1>();
        __syncwarp();
    }
};

template <typename T, int DIM, int TILES, int KEYS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS) decode_kernel(task t, float *partials, unsigned *counters)
{
    extern __shared__ __align__(128) char memory[];
    typedef ring<T, DIM, KEYS, WARPS> reading;
    proa_span s = t.spans[blockIdx.x];
    if (s.rows != 1) return gpu_wait();
    const stretch b = stretch_of(t, 8 * TILES);
    int warp = threadIdx.x / 32, begin, end;
    range_of(t, s, 0, &begin, &end);
    int stage = begin / KEYS, last = (end + KEYS - 1) / KEYS, each = (last - stage + b.splits - 1) / b.splits;
    stage += b.split * each, last = min(last, stage + each);
    stage += warp;
    unsigned mine = shared_at(memory) + warp * reading::BYTES;
    const int64_t of_head = PAGE * DIM; /* elements of a head in a page */
    reading in = {mine, mine + reading::STAGE, t.pages + s.table, t.kv_heads * of_head, b.kv * of_head, stage, last, end, 0};
    /* what this pass itself makes is the newest key alone: all others are asked for while the kernel before still runs */
    if ((stage + 1) * KEYS > (t.causal ? s.context - 1 : s.context)) gpu_wait();
    in.find();
    in.ask_keys(t), in.ask_values(t);
    gpu_wait();
    reader<T, DIM, TILES, KEYS> r;
    r.begin(t, s.row, b.first, b.heads);
    float unit = (t.shaped ? 1.0f : t.scale) * LOG2_E;
    for (; stage < last; stage += WARPS) {
        int key = stage * KEYS;
        in.receive();
        r.multiply_keys(in.keys);
        __syncwarp(); /* all have read */
        in.ask_keys(t);
        if (t.shaped) r.shape(t, key, s.context - 1, b.first, b.heads);
        if (key < begin || key + KEYS > end) r.mask(key, begin, end);
        r.soften(unit);
        in.receive();
        r.multiply_values(in.values);
        __syncwarp();
        in.ask_values(t);
    }
    receive_own<0>();
    __syncthreads(); /* the rings are free for the sums */
    float *room = reinterpret_cast<float *>(memory);
    r.put(room + warp * b.heads * r.ROOM, unit, b.heads);
    meet(t, b, room, WARPS, partials, counters);
}

template <typename T, int DIM, int TILES, int KEYS, int WARPS>
static void launch_decode(gpu *g, const task &t, int spans, int splits)
{
    auto kernel = decode_kernel<T, DIM, TILES, KEYS, WARPS>;
    unsigned blocks = (unsigned)(t.kv_heads * ((t.group + 8 * TILES - 1) / (8 * TILES)));
    size_t rings = (size_t)WARPS * ring<T, DIM, KEYS, WARPS>::BYTES;
    size_t sums = meeting_bytes(WARPS, min(t.group, 8 * TILES), DIM);
    int shared = (int)(rings > sums ? rings : sums);
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "attend (decode)");
    gpu_launch(g, "attend (decode)", kernel, dim3((unsigned)spans, blocks, (unsigned)splits), 32 * WARPS, (size_t)shared, t,
               parts_room(g, t, spans, splits), g->counters);
}

/* The ring of each size: KEYS, WARPS (bench/gpu/decode.cu). Eight warps ask for more at once, so few blocks suffice, but over a
 * short context some find nothing to do. */
template <typename T, int DIM, int TILES> static void decode_as(gpu *g, const task &t, int spans, int context, int splits)
{
    const bool WIDE = sizeof(T) == 2;
    if constexpr (DIM == 80 || DIM == 96) launch_decode<T, DIM, TILES, 32, 4>(g, t, spans, splits);
    else if constexpr (!WIDE) launch_decode<T, DIM, TILES, DIM == 64 ? 64 : 32, DIM == 256 ? 2 : 4>(g, t, spans, splits);
    else if constexpr (DIM == 256) launch_decode<T, DIM, TILES, 16, 4>(g, t, spans, splits);
    else if (context >= LONG_CONTEXT) launch_decode<T, DIM, TILES, DIM == 64 ? 32 : 16, 8>(g, t, spans, splits);
    else launch_decode<T, DIM, TILES, DIM == 64 ? 32 : 16, 4>(g, t, spans, splits);
}

/* A block's query heads at most: of more than 8 that share a key, two tiles of 8, where these are compiled. */
static int heads_of_block(const task &t)
{
    return t.group > 8 && (t.dim == 64 || t.dim == 128) ? 16 : 8;
}

/* Of the widest heads registers suffice for one tile; of rare sizes one is enough. */
template <typename T> static void decode_dims(gpu *g, const task &t, int spans, int context, int splits)
{
    bool wide = heads_of_block(t) > 8;
    if (t.dim == 80) decode_as<T, 80, 1>(g, t, spans, context, splits);
    else if (t.dim == 96) decode_as<T, 96, 1>(g, t, spans, context, splits);
    else if (t.dim == 256) decode_as<T, 256, 1>(g, t, spans, context, splits);
    else if (t.dim == 128) (wide ? decode_as<T, 128, 2> : decode_as<T, 128, 1>)(g, t, spans, context, splits);
    else (wide ? decode_as<T, 64, 2> : decode_as<T, 64, 1>)(g, t, spans, context, splits);
}

/* A split costs a round through memory at its end, so only where blocks would be fewer than two for each SM, and no shorter
 * than pays. The same for all contexts of a length class. */
static int splits_for(const gpu *g, const task &t, int spans, int context)
{
    int most = heads_of_block(t), blocks = spans * t.kv_heads * ((t.group + most - 1) / most), splits = 1;
    if (blocks > GPU_COUNTERS) return 1;
    while (2 * splits * blocks <= 2 * g->sms && context >= 2 * splits * SPLIT_KEYS_MIN && splits < SPLITS_MAX) splits *= 2;
    return splits;
}

static void decode(gpu *g, const task &t, proa_dtype pages, int spans, int context)
{
    int splits = splits_for(g, t, spans, context);
    if (pages == PROA_DTYPE_F16) decode_dims<__half>(g, t, spans, context, splits);
    else if (pages == PROA_DTYPE_BF16) decode_dims<__nv_bfloat16>(g, t, spans, context, splits);
    else decode_dims<__nv_fp8_e4m3>(g, t, spans, context, splits);
}

bool gpu_decode(gpu *g, const task &t, proa_dtype pages, const proa_spans *spans)
{
    int count = (int)spans->count, piece = 16 / (int)proa_dtype_bytes(pages);
    bool tiled = pages != PROA_DTYPE_F32 && (t.dim == 64 || t.dim == 80 || t.dim == 96 || t.dim == 128 || t.dim == 256);
    if (t.dim % piece != 0 || t.dim > 64 * piece || ((uintptr_t)t.k | (uintptr_t)t.v) % 16 != 0) return false;
    if (spans->rows_min > 1) return true;
    if (gpu_short(g, t, pages, count, spans->context_max)) return true;
    if (tiled) decode(g, t, pages, count, spans->context_max);
    else gpu_decode_lanes(g, t, pages, count, spans->context_max);
    return true;
}
