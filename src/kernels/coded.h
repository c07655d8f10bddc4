/* SPDX-License-Identifier: Apache-2.0
 * coded.h - weights as codes of four or eight bits in groups of inputs, as a GPU reads them: the formats I4, I4A,
 *           I4A32, MXFP4W, I8G and FP8G of weight.h. The layout, the codes of one group, and the packer that runs on
 *           the host; also the packing of I8W and FP8 from a source that has such codes.
 *
 * Number (n, k) is scale * code + offset, both factors of the group of (n, k). Codes of a source that a format holds
 * are kept: in four bits GPTQ, AWQ, compressed-tensors and GGUF's Q4_0, Q4_1 and Q4_K (whose factors are products of
 * two numbers, rounded to f16), in eight bits GGUF's Q8_0, GPTQ of eight bits and e4m3 with a scale for each block.
 *
 *     format    codes                   group    factors of a group
 *     I4        -8 to 7, plus 8         128      f16 scale
 *     I4A       -8 to 7, plus 8         128      f16 scale, f16 offset
 *     I4A32     -8 to 7, plus 8          32      f16 scale, f16 offset
 *     MXFP4W    e2m1                     32      exponent of the scale in a byte, biased by 127
 *     I8G       int8                     32      f16 scale
 *     FP8G      e4m3                    128      f32 scale
 *
 * A row is stored in steps of 128 inputs, padded with zeros. Four bits: a step has 64 bytes. The four lanes of a tensor
 * core's fragment take 16 bytes each, and word g of a lane is of the step's inputs 32 g to 32 g + 31, so that one
 * product of a tensor core has inputs of one group of 32 (or 128):
 *
 *     bytes      0        4        8        12       16       20            60
 *     inputs     0-7      32-39    64-71    96-103   8-15     40-47   ...   120-127
 *                |-- lane 0 --------------------|    |-- lane 1 --  ...
 *     a word     nibble i: code 2i + 8, nibble i + 4: code 2i + 1, plus 8 each
 *
 * Eight bits: a step has two halves of 64 inputs and 64 bytes. In I8G a lane's 16 bytes are of both groups of the half:
 *
 *     bytes      0        8        16       24       32                     64
 *     inputs     0-7      32-39    8-15     40-47    16-23    ...           64-71    ...
 *                |-- lane 0 ----|  |-- lane 1 ----|
 *
 * and in FP8G, whose groups are as wide as a step, codes are in the order of the inputs.
 *
 * After the rows are the factors, for each 8 rows those of a step side by side: [ceil(N / 8)][steps][8][groups of a
 * step]. With I4A and I4A32 an order of the inputs follows, i32 [K]: GPTQ's "act-order" spreads the columns of a group
 * over the matrix, and packed rows have them by groups.
 *
 * Owner:   the caller's buffers. Threads: pure functions; proa_coded_pack shares its rows among the pool. */
#ifndef PROA_KERNELS_CODED_H
#define PROA_KERNELS_CODED_H

#include "base/thread.h"
#include "kernels/weight.h"
#include "tensor/scaled.h"

#define PROA_CODED_STEP 128 /* inputs */
#define PROA_CODED_TILE 8   /* rows whose factors are side by side */

typedef struct proa_coded_layout {
    int64_t row_bytes, steps, scales_at, order_at, bytes; /* scales_at: the factors; bytes: of all */
    int64_t group, step_groups;                           /* inputs of a group; groups of a step */
    int64_t factor_bytes;                                 /* of a group */
} proa_coded_layout;

/* format: one of the six. */
PROA_HOST_DEVICE static inline proa_coded_layout proa_coded_layout_of(proa_wfmt format, int64_t N, int64_t K)
{
    const bool by_32 = format == PROA_WFMT_I4A32 || format == PROA_WFMT_MXFP4W || format == PROA_WFMT_I8G;
    proa_coded_layout at;
    at.group = by_32 ? 32 : PROA_CODED_STEP;
    at.step_groups = PROA_CODED_STEP / at.group;
    at.factor_bytes = format == PROA_WFMT_MXFP4W                          ? 1
                      : format == PROA_WFMT_I4 || format == PROA_WFMT_I8G ? 2
                                                                          : 4;
    at.steps = (K + PROA_CODED_STEP - 1) / PROA_CODED_STEP;
    at.row_bytes = at.steps * (proa_wfmt_is_int4(format) ? PROA_CODED_STEP / 2 : PROA_CODED_STEP);
    at.scales_at = (N * at.row_bytes + 255) / 256 * 256;
    int64_t rows = (N + PROA_CODED_TILE - 1) / PROA_CODED_TILE * PROA_CODED_TILE;
    at.order_at = at.scales_at + rows * at.steps * at.step_groups * at.factor_bytes;
    at.bytes = at.order_at + (format == PROA_WFMT_I4A || format == PROA_WFMT_I4A32 ? 4 * K : 0);
    return at;
}

/* Four bits: the word of a row that holds input k, and its nibble there. */
PROA_HOST_DEVICE static inline int64_t proa_coded_word(int64_t k)
{
    return k / PROA_CODED_STEP * 16 + k / 8 % 4 * 4 + k % PROA_CODED_STEP / 32;
}
PROA_HOST_DEVICE static inline int32_t proa_coded_nibble(int64_t k)
{
    return (int32_t)(k % 8 / 2 + k % 2 * 4);
}
/* Eight bits: the byte of a row that holds input k. Eight inputs from a multiple of 8 on are neighbours. */
PROA_HOST_DEVICE static inline int64_t proa_coded_byte(proa_wfmt format, int64_t k)
{
    return format == PROA_WFMT_FP8G ? k : k / 64 * 64 + k / 8 % 4 * 16 + k % 64 / 32 * 8 + k % 8;
}

/* Index of the factors of number (n, k). */
PROA_HOST_DEVICE static inline int64_t proa_coded_scale(const proa_coded_layout *at, int64_t n, int64_t k)
{
    int64_t step = (n / PROA_CODED_TILE * at->steps + k / PROA_CODED_STEP) * PROA_CODED_TILE + n % PROA_CODED_TILE;
    return step * at->step_groups + k % PROA_CODED_STEP / 32 * at->step_groups / 4;
}

typedef struct proa_coded_group {
    /* The first `group` of the format; padding is 0. I4, I4A, I4A32, I8G: the integers. MXFP4W: 0 to 15. FP8G: the bits
     * of the e4m3. */
    int8_t code[PROA_CODED_STEP];
    uint16_t scale, offset; /* f16; offset: 0 where the format has none. MXFP4W: the biased exponent; 0 */
    float scale32;          /* FP8G: its scale; the others are 0 */
} proa_coded_group;

/* What code i of a group stands for. */
float proa_coded_value(proa_wfmt format, const proa_coded_group *group, int64_t i);

/* The inputs of a span as a group, k a multiple of the format's group and n at most that: its own codes if the format
 * holds them, else its numbers rounded as weight.h says. */
void proa_coded_read(proa_wfmt format, proa_coded_group *group, const proa_source_span *span);

/* The smallest of the six formats and of I8W and FP8 that holds a source's codes, or loses least of them: codes that
 * none of them holds are rounded to I8G. False: it is plain or turned, or e4m3 in blocks that FP8G cannot have. */
bool proa_coded_format(proa_wfmt *format, const proa_tensor_source *source);
/* The format of a weight whose sources have codes of both formats: that which holds or loses least of both. False:
 * there is none, and the numbers are for wider formats. */
bool proa_coded_merge(proa_wfmt *format, proa_wfmt other);

/* Whether a source's columns are not in the order of their groups; two such may share a weight of I4A or I4A32 if
 * proa_coded_same_order. */
static inline bool proa_coded_is_permuted(const proa_tensor_source *source)
{
    return source->encoding == PROA_ENCODING_SCALED && source->scaled->group_of;
}
bool proa_coded_same_order(const proa_tensor_source *a, const proa_tensor_source *b);
/* order[k]: the column that is input k: the columns of group 0, in rising order, then those of group 1, ... */
void proa_coded_order(int32_t *order, const proa_tensor_source *permuted);

/* The order of the inputs of a permuted weight of any format, i32 [K] within w->data; NULL: it is not permuted. */
const int32_t *proa_coded_order_of(const proa_weight *w);

/* Whether proa_coded_pack is for these sources of one weight. All but these: numbers for I4, which each table rounds by
 * itself, and for I8W and FP8 all that have no such codes with one scale a row. */
bool proa_coded_reads(proa_wfmt format, const proa_tensor_source *sources, int count);

/* Whether a format that is made for devices takes the codes of these sources as they are, or groups by coded.h. */
static inline bool proa_coded_is_kept(proa_wfmt format, const proa_tensor_source *sources, int count)
{
    const bool rows = format == PROA_WFMT_I8W || format == PROA_WFMT_FP8;
    return (rows || proa_wfmt_is_coded(format)) && proa_coded_reads(format, sources, count);
}

/* Packs the sources, stacked along N, into `to`, host memory of layout.bytes bytes, by the layout above. */
void proa_coded_pack(proa_pool *pool, void *to, const proa_weight *w, const proa_tensor_source *sources,
                     int count);

/* Inputs of a group with one scale: 1 of formats without scales, 0 of those whose rows have one. */
int64_t proa_wfmt_group(proa_wfmt format);

/* ---- all formats of a GPU ---- */

#define PROA_CUDA_LAYOUT                                                                                     \
    "cuda rows 1" /* proa_ops.layout; the number rises when the layout of a format changes */

/* F32, F16 and BF16: numbers from one row to the next, so that rows begin at multiples of 16 bytes. */
static inline int64_t proa_plain_leading_dim(proa_wfmt format, int64_t K)
{
    int64_t step = format == PROA_WFMT_F32 ? 4 : 8;
    return (K + step - 1) / step * step;
}

/* Copies a rectangle (ops.h, proa_copy_packed_fn). */
void proa_coded_copy(proa_pool *pool, proa_weight *to, const proa_weight *from, const proa_packed_rect *rect);
/* The scale of a row of I8W or FP8 (ops.h, proa_row_scale_fn). */
float proa_coded_row_scale(const proa_weight *w, int64_t row);

/* Number (n, k) of packed bytes, for tests. */
float proa_coded_number(const void *packed, const proa_weight *w, int64_t n, int64_t k);

/* ---- I8W and FP8: rows of codes [N][row_bytes], zeros after K, then f32 scales [N] ---- */

typedef struct proa_coded_rows {
    int64_t row_bytes, scales_at, bytes;
} proa_coded_rows;

PROA_HOST_DEVICE static inline proa_coded_rows proa_coded_rows_of(int64_t N, int64_t K)
{
    proa_coded_rows at;
    at.row_bytes = (K + 15) / 16 * 16;
    at.scales_at = (N * at.row_bytes + 255) / 256 * 256;
    at.bytes = at.scales_at + N * 4;
    return at;
}

/* One row of a source that proa_coded_reads: K codes, and its scale. */
float proa_coded_read_row(uint8_t *code, const proa_tensor_source *source, int64_t row);
/* Packs the sources as proa_coded_pack does. */
void proa_coded_pack_rows(proa_pool *pool, void *to, const proa_weight *w, const proa_tensor_source *sources,
                          int count);

#endif
