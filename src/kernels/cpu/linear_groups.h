/* SPDX-License-Identifier: Apache-2.0
 * linear_groups.h - the tile of linear for weights in groups of 32 inputs (q8_0, q4_0, q4_1, mxfp4, iq4_nl), and the
 *                   rows of x for it; linear_avx2.c, linear_avx512.c and linear_vnni.c give the width and the integer
 *                   products.
 * Needs:  as linear_tile.h, and GROUP_ROWS, WIDEN_Q4(acc), DOT_Q4(acc, w, x), DOT_Q8(acc, w, x): integer sums of
 *         uint8 w with int8 x; TABLE_OF(p): 16 bytes in each 128 bits, DOT_TABLE(acc, w, x): w is int8 + TABLE_OFFSET;
 *         PREFETCH_GROUPS: bytes.
 * A group of a panel is 8 steps of 4 inputs with 32 outputs, then the scales (linear.h). Of each group the integer
 * products are summed exactly, then multiplied with both scales and added to the f32 sums, in the order of the groups.
 * Registers: per row 2 integer and 2 f32 sums; 2 of weights, 2 of scales: 28 of 32 for 6 rows of 16 lanes. */

#include "kernels/groups.h"

/* Bytes of a group's codes and of the whole group. */
static PROA_ALWAYS_INLINE int64_t code_bytes(proa_wfmt format)
{
    return format == PROA_WFMT_Q8_0 ? 1024 : 512;
}

static PROA_ALWAYS_INLINE int64_t group_bytes(proa_wfmt format)
{
    return code_bytes(format) + (format == PROA_WFMT_Q4_1 ? 128 : 64);
}

/* The codes of one step: outputs from 0 on (low) and from 16 on (high). */
typedef struct code_pair {
    VI low, high;
} code_pair;

static PROA_ALWAYS_INLINE VI load_codes(const char *w)
{
    return TO_I(OP(loadu_ps)((const float *)(const void *)w));
}

/* The products of one step with a row: 4 inputs. */
static PROA_ALWAYS_INLINE VI add_products(proa_wfmt format, VI sums, VI codes, VI x)
{
    if (format == PROA_WFMT_Q8_0) return DOT_Q8(sums, codes, x);
    return proa_wfmt_has_table(format) ? DOT_TABLE(sums, codes, x) : DOT_Q4(sums, codes, x);
}

/* Whether DOT_Q4 made the sums, in the width that it sums in. */
static PROA_ALWAYS_INLINE bool is_narrow(proa_wfmt format)
{
    return format == PROA_WFMT_Q4_0 || format == PROA_WFMT_Q4_1;
}

/* The numbers of a format's table as DOT_TABLE takes them. */
static PROA_ALWAYS_INLINE VI load_table(proa_wfmt format)
{
    if (!proa_wfmt_has_table(format)) return OP(set1_epi8)(0);
    return OP(add_epi8)(TABLE_OF(proa_group_table(format)), OP(set1_epi8)(TABLE_OFFSET));
}

static PROA_ALWAYS_INLINE code_pair load_step(proa_wfmt format, const char *w, int s, VI table)
{
    if (format == PROA_WFMT_Q8_0)
        return (code_pair){load_codes(w + (int64_t)s * 128), load_codes(w + (int64_t)s * 128 + 64)};
    VI both = load_codes(w + (int64_t)s * 64), mask = OP(set1_epi8)(15);
    VI low = AND_INT(both, mask), high = AND_INT(OP(srli_epi16)(both, 4), mask);
    if (!proa_wfmt_has_table(format)) return (code_pair){low, high};
    return (code_pair){OP(shuffle_epi8)(table, low), OP(shuffle_epi8)(table, high)};
}

static PROA_ALWAYS_INLINE VI load_int8x4(const char *x)
{
    int32_t word;
    memcpy(&word, x, 4);
    return OP(set1_epi32)(word);
}

/* R rows with the outputs of half `h` of a panel; R is constant at every call, so all sums are registers. */
static PROA_ALWAYS_INLINE void groups_rows(const proa_wfmt format, const int R, const proa_tile *t,
                                           int64_t row, int h)
{
    V low[GROUP_ROWS], high[GROUP_ROWS];
    const int64_t stride = t->x_stride, bytes = group_bytes(format), codes = code_bytes(format);
    const char *x = t->x + row * stride, *w = t->w;
    const VI table = load_table(format);
    const char *scales = x + t->steps * PROA_GROUP, *totals = scales + t->steps * 4;
    PROA_UNROLL
    for (int r = 0; r < R; r++) low[r] = high[r] = OP(setzero_ps)();
    for (int64_t g = 0; g < t->steps; g++, w += bytes, x += PROA_GROUP, scales += 4, totals += 4) {
        VI il[GROUP_ROWS], ih[GROUP_ROWS];
        PROA_UNROLL
        for (int r = 0; r < R; r++) il[r] = ih[r] = OP(set1_epi32)(0);
        for (int64_t ahead = 0; ahead < bytes / HALVES; ahead += 64)
            _mm_prefetch(w + PREFETCH_GROUPS + ahead + h * (bytes / HALVES), _MM_HINT_T0);
        PROA_UNROLL
        for (int s = 0; s < 8; s++) {
            code_pair c = load_step(format, w + (int64_t)h * LANES * 4, s, table);
            PROA_UNROLL
            for (int r = 0; r < R; r++) {
                VI word = load_int8x4(x + r * stride + (int64_t)s * 4);
                il[r] = add_products(format, il[r], c.low, word);
                ih[r] = add_products(format, ih[r], c.high, word);
            }
        }
        const char *d = w + codes + (int64_t)h * LANES * 2;
        V dl = F16(d), dh = F16(d + 32);
        PROA_UNROLL
        for (int r = 0; r < R; r++) {
            V sx = load_word(scales + r * stride);
            VI total = load_int8x4(totals + r * stride);
            if (is_narrow(format)) il[r] = WIDEN_Q4(il[r]), ih[r] = WIDEN_Q4(ih[r]);
            if (format != PROA_WFMT_Q4_1)
                il[r] = OP(sub_epi32)(il[r], total), ih[r] = OP(sub_epi32)(ih[r], total);
            low[r] = OP(fmadd_ps)(OP(cvtepi32_ps)(il[r]), OP(mul_ps)(sx, dl), low[r]);
            high[r] = OP(fmadd_ps)(OP(cvtepi32_ps)(ih[r]), OP(mul_ps)(sx, dh), high[r]);
            if (format != PROA_WFMT_Q4_1) continue;
            V inputs = OP(cvtepi32_ps)(total);
            low[r] = OP(fmadd_ps)(inputs, OP(mul_ps)(sx, F16(d + 64)), low[r]);
            high[r] = OP(fmadd_ps)(inputs, OP(mul_ps)(sx, F16(d + 96)), high[r]);
        }
    }
    PROA_UNROLL
    for (int r = 0; r < R; r++) {
        float *sums = (float *)t->sums + (row + r) * t->sums_stride + (int64_t)h * LANES;
        OP(storeu_ps)(sums, low[r]);
        OP(storeu_ps)(sums + 16, high[r]);
    }
}

#define GROUPS_CASE(format, rows)                                                                            \
    case rows: groups_rows(format, rows, t, row, h); break
/* A tile of one panel: rows in pieces of up to GROUP_ROWS, cut evenly. */
#define DEFINE_GROUPS_TILE(name, format)                                                                     \
    static void name(const proa_tile *t)                                                                     \
    {                                                                                                        \
        int pieces = (t->rows + GROUP_ROWS - 1) / GROUP_ROWS;                                                \
        for (int h = 0; h < HALVES; h++)                                                                     \
            for (int i = 0; i < pieces; i++) {                                                               \
                int row = t->rows * i / pieces;                                                              \
                switch (t->rows * (i + 1) / pieces - row) {                                                  \
                    GROUPS_CASES(format);                                                                    \
                default: PROA_ASSERT(0);                                                                     \
                }                                                                                            \
            }                                                                                                \
    }
