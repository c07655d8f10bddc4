/* SPDX-License-Identifier: Apache-2.0
 * int4.h - weights of four bits in groups of inputs as a GPU reads them: the formats I4, I4A, I4A32 and MXFP4W of
 *          weight.h. The layout, the codes of one group, and the packer that runs on the host.
 *
 * Number (n, k) is scale * code + offset, the code from -8 to 7 and both factors f16 of the group of (n, k). I4 has no
 * offset. Codes of a source that a format holds are kept: GPTQ, AWQ and compressed-tensors of four bits, and GGUF's
 * Q4_0, Q4_1 and Q4_K (whose factors are products of two numbers, rounded to f16). MXFP4W has e2m1 codes, which are
 * stored without the plus 8, and the exponent of its scale in a byte, biased by 127.
 *
 * A row is stored in steps of 128 inputs, 64 bytes each. The four lanes of a tensor core's fragment take 16 bytes
 * each, and word g of a lane is of the step's inputs 32 g to 32 g + 31, so that one product of a tensor core has inputs
 * of one group of 32 (or 128):
 *
 *     bytes      0        4        8        12       16       20            60
 *     inputs     0-7      32-39    64-71    96-103   8-15     40-47   ...   120-127
 *                |-- lane 0 --------------------|    |-- lane 1 --  ...
 *     a word     nibble i: code 2i + 8, nibble i + 4: code 2i + 1, plus 8 each
 *
 * Behind the rows are the factors, for each 8 rows those of a step side by side: [ceil(N / 8)][steps][8][groups of a
 * step] of a scale, of a scale and an offset, or of an exponent. With I4A and I4A32 an order of the inputs follows, i32
 * [K]: GPTQ's "act-order" spreads the columns of a group over the matrix, and packed rows have them by groups.
 *
 * Owner:   the caller's buffers. Threads: pure functions; proa_int4_pack shares its rows among the pool. */
#ifndef PROA_KERNELS_INT4_H
#define PROA_KERNELS_INT4_H

#include "base/thread.h"
#include "kernels/weight.h"
#include "tensor/scaled.h"

#define PROA_I4_STEP 128 /* inputs */
#define PROA_I4_TILE 8   /* rows whose factors are side by side */

typedef struct proa_int4_layout {
    int64_t row_bytes, steps, scales_at, order_at, bytes; /* scales_at: the factors; bytes: of all */
    int64_t group, step_groups;                           /* inputs of a group; groups of a step */
    int64_t factor_bytes;                                 /* of a group */
} proa_int4_layout;

/* format: one of the four. */
PROA_HOST_DEVICE static inline proa_int4_layout proa_int4_layout_of(proa_wfmt format, int64_t N, int64_t K)
{
    proa_int4_layout at;
    at.group = format == PROA_WFMT_I4A32 || format == PROA_WFMT_MXFP4W ? 32 : PROA_I4_GROUP;
    at.step_groups = PROA_I4_STEP / at.group;
    at.factor_bytes = format == PROA_WFMT_I4 ? 2 : format == PROA_WFMT_MXFP4W ? 1 : 4;
    at.steps = (K + PROA_I4_STEP - 1) / PROA_I4_STEP;
    at.row_bytes = at.steps * (PROA_I4_STEP / 2);
    at.scales_at = (N * at.row_bytes + 255) / 256 * 256;
    int64_t rows = (N + PROA_I4_TILE - 1) / PROA_I4_TILE * PROA_I4_TILE;
    at.order_at = at.scales_at + rows * at.steps * at.step_groups * at.factor_bytes;
    at.bytes = at.order_at + (at.factor_bytes == 4 ? 4 * K : 0);
    return at;
}

/* The word of a row that holds input k, and its nibble there. */
PROA_HOST_DEVICE static inline int64_t proa_int4_word(int64_t k)
{
    return k / PROA_I4_STEP * 16 + k / 8 % 4 * 4 + k % PROA_I4_STEP / 32;
}
PROA_HOST_DEVICE static inline int32_t proa_int4_nibble(int64_t k)
{
    return (int32_t)(k % 8 / 2 + k % 2 * 4);
}

/* Index of the factors of number (n, k). */
PROA_HOST_DEVICE static inline int64_t proa_int4_scale(const proa_int4_layout *at, int64_t n, int64_t k)
{
    int64_t step = (n / PROA_I4_TILE * at->steps + k / PROA_I4_STEP) * PROA_I4_TILE + n % PROA_I4_TILE;
    return step * at->step_groups + k % PROA_I4_STEP / 32 * at->step_groups / 4;
}

typedef struct proa_int4_group {
    int8_t code[PROA_I4_GROUP]; /* the first `group` of the format; padding is 0. MXFP4W: 0 to 15 */
    uint16_t scale, offset;     /* f16; offset: 0 in I4. MXFP4W: the biased exponent; 0 */
} proa_int4_group;

/* What code i of a group stands for. */
float proa_int4_value(proa_wfmt format, const proa_int4_group *group, int64_t i);

/* Inputs [k, k + n) of a row of a source as a group, k a multiple of the format's group and n at most that: its own
 * codes if the format holds them, else its numbers rounded as weight.h says. order: NULL, or input k is the column
 * order[k]. */
void proa_int4_read(proa_wfmt format, proa_int4_group *group, const proa_tensor_source *source, int64_t row,
                    int64_t k, int64_t n, const int32_t *order);

/* The smallest of the formats that holds a source's codes; false: none does, and its numbers are for wider ones. */
bool proa_int4_format(proa_wfmt *format, const proa_tensor_source *source);

/* Whether a source's columns are not in the order of their groups; two such may share a weight if
 * proa_int4_same_order. */
static inline bool proa_int4_is_permuted(const proa_tensor_source *source)
{
    return source->encoding == PROA_ENCODING_SCALED && source->scaled->group_of;
}
bool proa_int4_same_order(const proa_tensor_source *a, const proa_tensor_source *b);
/* order[k]: the column that is input k: the columns of group 0, in rising order, then those of group 1, ... */
void proa_int4_order(int32_t *order, const proa_tensor_source *permuted);

/* Whether proa_int4_read and proa_int4_pack are for these sources of one weight: all but numbers for I4, which each
 * table rounds by itself. */
bool proa_int4_reads(proa_wfmt format, const proa_tensor_source *sources, int count);

/* Packs the sources, stacked along N, into `to`, host memory of layout.bytes bytes, by the layout above. */
void proa_int4_pack(proa_pool *pool, void *to, const proa_weight *w, const proa_tensor_source *sources,
                    int count);

/* Number (n, k) of packed bytes, for tests. */
float proa_int4_number(const void *packed, const proa_weight *w, int64_t n, int64_t k);

#endif
