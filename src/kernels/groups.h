/* SPDX-License-Identifier: Apache-2.0
 * groups.h - groups of PROA_GROUP quantised inputs with an f16 scale: the formats q8_0, q4_0, q4_1, mxfp4 and iq4_nl
 *            of weight.h. The reference and the packers of all tables take their groups from this file, so they hold
 *            the same codes.
 * Formats: those of llama.cpp (ggml-quants): a source that is stored so keeps its codes and scales.
 * Owner:   the caller's buffers. Threads: pure functions. */
#ifndef PROA_KERNELS_GROUPS_H
#define PROA_KERNELS_GROUPS_H

#include "kernels/weight.h"
#include "tensor/source.h"

/* q8_0: code is int8 + 128, from 1 to 255. q4_0, q4_1: 0 to 15. mxfp4, iq4_nl: the number of the table + 128. */
typedef struct proa_quant_group {
    uint8_t code[PROA_GROUP];
    uint16_t scale, min; /* f16; min: q4_1 only, else 0 */
} proa_quant_group;

/* Groups of a row of K inputs; the last one may be padded. */
static inline int64_t proa_group_count(int64_t K)
{
    return (K + PROA_GROUP - 1) / PROA_GROUP;
}

/* The code that stands for 0 in padding; it is also what is taken from a code of q8_0 and q4_0 to get its number. */
static inline int32_t proa_group_zero(proa_wfmt format)
{
    if (format == PROA_WFMT_Q8_0 || proa_wfmt_has_table(format)) return 128;
    return format == PROA_WFMT_Q4_0 ? 8 : 0;
}

/* The numbers of the codes 0 to 15 of mxfp4 (e2m1, doubled) and iq4_nl. */
const int8_t *proa_group_table(proa_wfmt format);

/* Quantises n <= PROA_GROUP numbers; the rest of the group is padding. A group with NaN or infinity has scale NaN.
 * q8_0: d = f16(largest magnitude / 127). q4_0: d = f16(proa_i4_best_scale). q4_1: d = f16((max - min) / 15),
 * m = f16(min). Codes are rint with the rounded d. mxfp4, iq4_nl: d = f16(v / table's number
 * of the largest magnitude), the nearest number of the table, of two the first. */
void proa_group_quantise(proa_wfmt format, proa_quant_group *group, const float *v, int64_t n);

/* The scale of n <= PROA_I4_GROUP finite numbers in four bits, before it is rounded to f16: the least squared error
 * among the steps of quant.h. extreme: the number of the largest magnitude. */
float proa_i4_best_scale(const float *v, int64_t n, float extreme);

/* The inputs of a span as a group, k a multiple of PROA_GROUP: its own codes and scales if it is stored in a
 * form that the format holds exactly, else decoded and quantised. */
void proa_group_read(proa_wfmt format, proa_quant_group *group, const proa_source_span *span);

/* The order of the inputs of a permuted weight in groups, i32 [K] at the end of its bytes; NULL: it is not permuted.
 * w->bytes is what pack_bytes says and proa_group_order_bytes. */
static inline int64_t proa_group_order_bytes(const proa_weight *w)
{
    return w->permuted && proa_wfmt_is_grouped(w->format) ? w->K * (int64_t)sizeof(int32_t) : 0;
}
static inline int32_t *proa_group_order(const proa_weight *w)
{
    int64_t bytes = proa_group_order_bytes(w);
    return bytes ? (int32_t *)(void *)((char *)w->data + w->bytes - bytes) : NULL;
}
/* Numbers [k, k + n) of a row of x in that order, n <= PROA_GROUP: x + k itself, or gathered. */
static inline const float *proa_group_inputs(float gathered[PROA_GROUP], const float *x, const int32_t *order,
                                             int64_t k, int64_t n)
{
    if (!order) return x + k;
    for (int64_t i = 0; i < n; i++) gathered[i] = x[order[k + i]];
    return gathered;
}

/* The format that holds the codes of an encoded source as they are stored, or loses least of them; false if it is
 * plain, turned or e4m3: such numbers are for the formats of 16 and 32 bits. */
bool proa_group_format(proa_wfmt *format, const proa_tensor_source *source);

#endif
