/* SPDX-License-Identifier: Apache-2.0
 * linear_tile.h - the tile of linear, written once; linear_avx2.c, linear_avx512.c, linear_vnni.c and linear_bf16.c
 * give the width and the dot products. A panel (linear.h) is HALVES groups; a group is two vectors, "low" of the
 * outputs from 0 on and "high" of those from 16 on.
 * Needs:  V, VI, OP(name), AND_INT, TO_V, TO_I, LANES, HALVES, ROWS_MAX, PREFETCH_FEW, PREFETCH_TALL, SKINNY_CASES,
 *         TALL_CASES, F16(p): LANES halves to f32, DOT_I8(acc, x, w), DOT_BF16(acc, x, w). */

#define GROUPS_MAX 4

typedef struct pair {
    V low, high;
} pair;

/* Bytes between the groups of a panel. */
static PROA_ALWAYS_INLINE int64_t half_bytes(proa_wfmt format)
{
    return format == PROA_WFMT_F16 ? LANES * 2 : LANES * 4;
}

static PROA_ALWAYS_INLINE int64_t step_bytes(proa_wfmt format)
{
    return format == PROA_WFMT_BF16 || format == PROA_WFMT_F16 ? 64 : 128;
}

static PROA_ALWAYS_INLINE V upper_halves(V v)
{
    return TO_V(AND_INT(TO_I(v), OP(set1_epi32)((int)0xffff0000)));
}

static PROA_ALWAYS_INLINE V lower_halves(V v)
{
    return TO_V(OP(slli_epi32)(TO_I(v), 16));
}

/* Two products of bf16 a lane as f32 chains: what CPUs without the instruction do. */
static PROA_ALWAYS_INLINE V dot_bf16_widened(V acc, V x, V w)
{
    acc = OP(fmadd_ps)(lower_halves(x), lower_halves(w), acc);
    return OP(fmadd_ps)(upper_halves(x), upper_halves(w), acc);
}

/* A step's weights of one group. */
static PROA_ALWAYS_INLINE pair load_pair(proa_wfmt format, const char *w)
{
    const float *f = (const float *)(const void *)w;
    if (format == PROA_WFMT_BF16) {
        V both = OP(loadu_ps)(f);
        return (pair){lower_halves(both), upper_halves(both)};
    }
    if (format == PROA_WFMT_F16) return (pair){F16(w), F16(w + 32)};
    return (pair){OP(loadu_ps)(f), OP(loadu_ps)(f + 16)};
}

/* acc + x w over the k of one step, in rising order. */
static PROA_ALWAYS_INLINE V step_sum(proa_wfmt format, V acc, V x, V w)
{
    if (format == PROA_WFMT_I8) return TO_V(DOT_I8(TO_I(acc), TO_I(x), TO_I(w)));
    if (format == PROA_WFMT_BF16DOT) return DOT_BF16(acc, x, w);
    return OP(fmadd_ps)(x, w, acc);
}

static PROA_ALWAYS_INLINE V load_word(const char *x)
{
    float word; /* whatever its type is: bits */
    memcpy(&word, x, 4);
    return OP(set1_ps)(word);
}

/* R rows with G groups from group `first` on; R and G are constants at every call, so all accumulators are
 * registers. Rows are reached as base[r / 3] + r % 3 strides: few address registers for 12 rows. */
static PROA_ALWAYS_INLINE void tile_groups(proa_wfmt format, const int R, const int G, const proa_tile *t,
                                           int first)
{
    V low[ROWS_MAX][GROUPS_MAX], high[ROWS_MAX][GROUPS_MAX];
    const char *w[GROUPS_MAX], *x[4];
    const int64_t stride = t->x_stride, step = step_bytes(format);
    /* 0 asks for the line that is read at this moment, which costs nothing */
    const int64_t ahead = t->hardware_prefetch ? 0 : G > 1 ? PREFETCH_FEW : PREFETCH_TALL;
    PROA_UNROLL
    for (int g = 0; g < G; g++)
        w[g] = t->w + (first + g) / HALVES * t->panel_bytes + (first + g) % HALVES * half_bytes(format);
    PROA_UNROLL
    for (int r = 0; r < R; r += 3) x[r / 3] = t->x + r * stride;
    PROA_UNROLL
    for (int r = 0; r < R; r++) {
        PROA_UNROLL
        for (int g = 0; g < G; g++) low[r][g] = high[r][g] = OP(setzero_ps)();
    }
    for (int64_t s = 0; s < t->steps; s++) {
        PROA_UNROLL
        for (int g = 0; g < G; g++) {
            pair p = load_pair(format, w[g] + s * step);
            _mm_prefetch(w[g] + s * step + ahead, _MM_HINT_T0);
            if (step == 128) _mm_prefetch(w[g] + s * step + ahead + 64, _MM_HINT_T0);
            PROA_UNROLL
            for (int r = 0; r < R; r++) {
                V word = load_word(x[r / 3] + r % 3 * stride + s * 4);
                low[r][g] = step_sum(format, low[r][g], word, p.low);
                high[r][g] = step_sum(format, high[r][g], word, p.high);
            }
        }
    }
    PROA_UNROLL
    for (int r = 0; r < R; r++) {
        PROA_UNROLL
        for (int g = 0; g < G; g++) {
            float *sums = (float *)t->sums + r * t->sums_stride + (first + g) / HALVES * PROA_PANEL +
                          (first + g) % HALVES * LANES;
            OP(storeu_ps)(sums, low[r][g]);
            OP(storeu_ps)(sums + 16, high[r][g]);
        }
    }
}

/* One row: up to GROUPS_MAX groups at a time. */
static PROA_ALWAYS_INLINE void tile_one(proa_wfmt format, const proa_tile *t)
{
    int groups = t->panels * HALVES;
    if (groups == 4) tile_groups(format, 1, 4, t, 0);
    else if (groups == 2) tile_groups(format, 1, 2, t, 0);
    else tile_groups(format, 1, 1, t, 0);
}

/* Two groups at a time, if the tile has them. */
static PROA_ALWAYS_INLINE void tile_few(proa_wfmt format, const int R, const proa_tile *t)
{
    if (t->panels * HALVES == 2) tile_groups(format, R, 2, t, 0);
    else tile_groups(format, R, 1, t, 0);
}

/* A tile function is a switch over its rows. SKINNY_CASE: several groups side by side. TALL_CASE: one panel, group
 * after group, with rows enough to fill the registers. */
#define SKINNY_CASE(format, rows)                                                                            \
    case rows:                                                                                               \
        tile_few(format, rows, t);                                                                           \
        break
#define TALL_CASE(format, rows)                                                                              \
    case rows:                                                                                               \
        for (int h = 0; h < HALVES; h++) tile_groups(format, rows, 1, t, h);                                 \
        break
#define DEFINE_TILE(name, format)                                                                            \
    static void name(const proa_tile *t)                                                                     \
    {                                                                                                        \
        switch (t->rows) {                                                                                   \
        case 1:                                                                                              \
            tile_one(format, t);                                                                             \
            break;                                                                                           \
            SKINNY_CASES(format);                                                                            \
            TALL_CASES(format);                                                                              \
        default: PROA_ASSERT(0);                                                                             \
        }                                                                                                    \
    }
