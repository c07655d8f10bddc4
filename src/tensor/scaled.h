/* SPDX-License-Identifier: Apache-2.0
 * scaled.h - a matrix stored as codes in one tensor and scales (and zero points) in others: the encoding SCALED. GPTQ,
 *            AWQ, compressed-tensors, int8 with scales, fp8 with block scales (DeepSeek V3), MXFP4 and BitNet's
 *            ternary codes are such.
 *     number(n, k) = scale(n / row_group, g) * (code(n, k) - zero(n, g)),  g = group_of[k], or k / col_group
 * Owner:   the reader of the checkpoint; all pointers are into mapped files or the reader's arena.
 * Threads: only read; many threads may. */
#ifndef PROA_TENSOR_SCALED_H
#define PROA_TENSOR_SCALED_H

#include "tensor/source.h"

typedef enum proa_code_kind {
    PROA_CODE_U4,  /* 0 to 15, two in a byte, the lower half first */
    PROA_CODE_U2,  /* 0 to 3, four in a byte, the lowest bits first */
    PROA_CODE_U8,  /* 0 to 255 */
    PROA_CODE_I8,  /* -128 to 127 */
    PROA_CODE_FP8, /* e4m3 */
    PROA_CODE_FP4  /* e2m1, two in a byte, the lower half first */
} proa_code_kind;

/* Where code (n, k) is: element n / 8 * row[0] + n % 8 * row[1] + k / cols * col[0] + k % cols * col[1], an element
 * being a code (a quarter of a byte, half a byte or a byte); `rows` in place of 8 if it is not 0. AWQ packs
 * eight rows into a word in the order 0, 2, 4, 6, 1, 3, 5, 7: `interleaved`. */
typedef struct proa_code_layout {
    const void *data;
    int64_t row[2], col[2], rows;
    int64_t cols; /* columns in a word; 1: col[0] alone counts */
    bool interleaved;
} proa_code_layout;

typedef struct proa_scaled_codes {
    proa_code_kind kind;
    proa_code_layout code;
    proa_view scale; /* [row groups, col groups], any strides: floating, or u8 exponents of 2 (biased by 127) */
    int64_t row_group, col_group;
    const int32_t *group_of; /* [cols] of columns that are not in the order of their groups; NULL */
    /* Zero points: one for all, or one of each row and group, stored as codes, to which `zero` is added. */
    int32_t zero;
    bool has_zeros;
    proa_code_kind zero_kind;
    proa_code_layout zeros; /* of (n, g) */
} proa_scaled_codes;

/* out[i] = number (row, col + i), i in [0, n). */
void proa_scaled_read(float *out, const proa_scaled_codes *s, int64_t row, int64_t col, int64_t n);
/* As proa_tensor_source_codes, of 32 columns; false if they are in several groups, or e4m3. */
bool proa_scaled_read_codes(proa_code_group *group, const proa_scaled_codes *s, int64_t row, int64_t col);
/* The same of any 32 columns, which may be those of one group of `group_of`. */
bool proa_scaled_read_columns(proa_code_group *group, const proa_scaled_codes *s, int64_t row,
                              const int32_t columns[PROA_CODES]);
/* Codes (row, col) to (row, col + n - 1) of one byte each, and the scale that all have; U8 codes less 128, as int8.
 * False: they are in several groups or not of this kind, or their zero point is another than 0 (U8: 128). */
bool proa_scaled_read_bytes(uint8_t *code, float *scale, const proa_scaled_codes *s, proa_code_kind kind,
                            int64_t row, int64_t col, int64_t n);
/* The same of a source; false too if its numbers are not these codes as they are stored. */
bool proa_tensor_source_bytes_of(const proa_tensor_source *s, proa_code_kind kind, int64_t row, int64_t col,
                                 int64_t n, uint8_t *code, float *scale);
/* Bytes of `count` codes. */
int64_t proa_scaled_bytes(proa_code_kind kind, int64_t count);
/* Whether each group has as many of the K columns as if they were in order. */
bool proa_scaled_has_whole_groups(const proa_scaled_codes *s, int64_t K);

#endif
