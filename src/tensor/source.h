/* SPDX-License-Identifier: Apache-2.0
 * source.h - what a checkpoint's file holds for one tensor: plain numbers, or encoded ones with scales; and which of
 *            its rows a weight takes, in which order.
 * Owner:   passed by value; everything it points to belongs to the open checkpoint or to the model that bound it.
 * Threads: only read; many threads may.
 * Way in:  a reader of files makes sources (proa_tensor_source_of, or an encoding with its fields), the model binds
 *          them to weight slots, kernels pack them (proa_tensor_source_read, or proa_tensor_source_next for kernels
 *          that take plain numbers). */
#ifndef PROA_TENSOR_SOURCE_H
#define PROA_TENSOR_SOURCE_H

#include "tensor/view.h"

/* How the numbers are stored. enum, name, numbers in a block, bytes of a block. Blocks follow each other along a row,
 * rows follow each other without gaps; 0: not in blocks. encoding.h has the decoders.
 *
 * Sinusoids are not stored: number (p, c) of a matrix [positions, d] is sin(p / 10000^(2i/d)) or the cosine of the same
 * angle (Vaswani et al. 2017). HALVES: sines i = c in the first (d + 1) / 2 columns, then cosines; PAIRS: sine and
 * cosine i = c / 2 in columns 2i and 2i + 1. ENDS: n = d / 2 sines, n cosines, and 0 in the last column of an odd d;
 * the angle is p / 10000^(i/(n - 1)), so that the frequencies end at exactly 1/10000 (tensor2tensor, fairseq). */
/* clang-format off */
#define PROA_ENCODING_LIST(E) \
    E(PLAIN,  "plain",    0,   0) /* floats, of any dtype and strides */ \
    E(PIECES, "pieces",   0,   0) /* floats in several matrices: proa_tensor_pieces */ \
    E(LOW_RANK, "low rank", 0, 0) /* floats, and a product of two small matrices added: proa_low_rank_sum */ \
    /* GGUF's: blocks with f16 scales (MXFP4: a power of 2), by llama.cpp's names */ \
    E(Q4_0,   "Q4_0",    32,  18) \
    E(Q4_1,   "Q4_1",    32,  20) \
    E(Q5_0,   "Q5_0",    32,  22) \
    E(Q5_1,   "Q5_1",    32,  24) \
    E(Q8_0,   "Q8_0",    32,  34) \
    E(IQ4_NL, "IQ4_NL",  32,  18) \
    E(MXFP4,  "MXFP4",   32,  17) \
    E(Q2_K,   "Q2_K",   256,  84) \
    E(Q3_K,   "Q3_K",   256, 110) \
    E(Q4_K,   "Q4_K",   256, 144) \
    E(Q5_K,   "Q5_K",   256, 176) \
    E(Q6_K,   "Q6_K",   256, 210) \
    E(IQ4_XS, "IQ4_XS", 256, 136) \
    E(SCALED, "scaled",   0,   0) /* scales in tensors of their own: scaled.h */ \
    E(PACKED, "packed",   0,   0) /* as kernels read them (weights/packed.h): only they can; data is NULL */ \
    /* Not stored: formulas */ \
    E(SINUSOID_HALVES, "sinusoids in halves", 0, 0) \
    E(SINUSOID_PAIRS,  "sinusoids in pairs",  0, 0) \
    E(SINUSOID_ENDS,   "sinusoids with both ends", 0, 0) \
    E(ONES,            "ones",                0, 0) \
    E(ZEROS,           "zeros",               0, 0) \
    E(MADE,            "made",                0, 0) /* f32 numbers in the model's arena, which data points to */
/* clang-format on */

typedef enum proa_encoding {
#define PROA_ENCODING_ENUM(name, text, numbers, bytes) PROA_ENCODING_##name,
    PROA_ENCODING_LIST(PROA_ENCODING_ENUM)
#undef PROA_ENCODING_ENUM
        PROA_ENCODING_COUNT
} proa_encoding;

/* The rows of a weight among the stored rows, as a loop nest: weight row (a, b, c), c fastest, is stored row
 * first + a step[0] + b step[1] + c step[2]. So the keys of a checkpoint that stores q, k and v head by head
 * ([heads][3][head_dim]) are first = head_dim, count = {1, heads, head_dim}, step = {0, 3 head_dim, 1}. */
typedef struct proa_row_order {
    int64_t first, count[3], step[3];
} proa_row_order;

/* A matrix in pieces, each stored somewhere else, such as the parts of several ranks: the pieces cover it without
 * overlap. */
typedef struct proa_tensor_piece {
    proa_view view;   /* [rows, cols], floats of the matrix' dtype, any strides */
    int64_t row, col; /* of its first number in the whole matrix */
} proa_tensor_piece;
typedef struct proa_tensor_pieces {
    int64_t cols; /* of the whole matrix */
    int32_t count;
    const proa_tensor_piece *piece; /* [count] */
} proa_tensor_pieces;

/* base + scale left right: a matrix with a low-rank adapter. */
typedef struct proa_low_rank_sum {
    proa_view base;        /* [rows, cols], floats of any strides, as the next two */
    proa_view left, right; /* [rows, rank], [rank, cols] */
    float scale;
} proa_low_rank_sum;

struct proa_scaled_codes;

typedef struct proa_tensor_source {
    proa_encoding encoding;
    const struct proa_scaled_codes *scaled; /* SCALED: the codes; view.data is where they begin */
    int64_t first_row;                      /* SCALED: rows of the codes before the first row of view */
    /* Not PLAIN, or with a col_order: numbers of each row before column 0; view.shape[1] counts from there. */
    int64_t first_col;
    /* PLAIN: the numbers. PIECES: data points to a proa_tensor_pieces, shape and strides are those of the whole matrix,
     * which is dense or the transpose of a dense one, and dtype is that of the pieces. LOW_RANK: data points to a
     * proa_low_rank_sum, the rest is that of its base. Else data points to the stored
     * bytes, shape and strides are those of the decoded tensor, which is dense or the transpose of a dense one (the
     * blocks follow each other along the axis of stride 1), and dtype says nothing. A file's tensor has any rank; what
     * a weight takes is a matrix [rows, cols], an encoded one with the blocks along its rows, or turned: a weight row
     * is then a column of what is stored, and is read number by number. */
    proa_view view;
    /* Of columns that a rank has of a matrix: numbers of each row before and behind them, which can be read too. What
     * is made of whole rows, as a scale for each, is then the same in all ranks. */
    int64_t cols_before, cols_behind;
    int64_t col_block;        /* PACKED: columns that could not be parted where it was packed; 0: 1 */
    proa_row_order order;     /* count[0] 0: all rows in stored order */
    proa_row_order col_order; /* the same of the columns */
    const float *factor;      /* [stored rows] multiplies each row; NULL: none */
    float plus;               /* then added to each number */
    float ternary;            /* > 0: then each number is rounded to -1, 0 or 1, in units of 1 / ternary */
    bool negated_exp; /* what is stored is -exp(number), as rates of decay of GGUF files: read as log(-stored) */
} proa_tensor_source;

const char *proa_encoding_name(proa_encoding encoding);
int64_t proa_encoding_numbers(proa_encoding encoding); /* in a block; 0: not in blocks */
/* Whether the numbers are a formula: no bytes are stored, and view.data is NULL, or what the formula made (MADE). */
static inline bool proa_encoding_is_computed(proa_encoding encoding)
{
    return encoding == PROA_ENCODING_SINUSOID_HALVES || encoding == PROA_ENCODING_SINUSOID_PAIRS ||
           encoding == PROA_ENCODING_SINUSOID_ENDS || encoding == PROA_ENCODING_ONES ||
           encoding == PROA_ENCODING_ZEROS || encoding == PROA_ENCODING_MADE;
}
/* Whether the 32 numbers of a group are stored side by side: columns are in stored order, or move in whole groups. */
static inline bool proa_tensor_source_keeps_groups(const proa_tensor_source *s)
{
    return s->col_order.count[0] == 0 || s->col_order.count[2] % 32 == 0;
}
/* Whether the numbers are other ones than those that are stored. */
static inline bool proa_tensor_source_is_changed(const proa_tensor_source *s)
{
    return s->factor || s->plus != 0.0f || s->negated_exp || s->ternary > 0.0f;
}
/* Whether the numbers can be read from this source. */
static inline bool proa_encoding_is_readable(proa_encoding encoding)
{
    return encoding != PROA_ENCODING_PACKED;
}
/* Bytes of a row of n encoded numbers; -1 if n is not a multiple of the block, or the encoding has no blocks. */
int64_t proa_encoding_row_bytes(proa_encoding encoding, int64_t n);

proa_tensor_source proa_tensor_source_of(proa_view plain);
int64_t proa_tensor_source_rows(const proa_tensor_source *s); /* taken rows */
int64_t proa_tensor_source_cols(const proa_tensor_source *s);
/* Whether rows are columns of stored blocks; stored rows of one number cannot be told from columns, so such a matrix is
 * never transposed. */
bool proa_tensor_source_is_turned(const proa_tensor_source *s);
/* Stored rows [first, first + count) of a matrix without an order; not for PIECES and computed ones. */
proa_tensor_source proa_tensor_source_rows_of(const proa_tensor_source *s, int64_t first, int64_t count);
/* Columns may be cut at multiples of this number: blocks, or groups with one scale. */
int64_t proa_tensor_source_col_block(const proa_tensor_source *s);
/* Columns [first, first + count) of a matrix; of an encoded one both in whole blocks, or up to its end. */
proa_tensor_source proa_tensor_source_cols_of(const proa_tensor_source *s, int64_t first, int64_t count);
/* With the columns before and behind, which other ranks have. */
proa_tensor_source proa_tensor_source_whole_rows(const proa_tensor_source *s);
/* Bytes of the stored numbers (of a PLAIN tensor with strides: from the first to the last); 0 for an empty tensor. */
int64_t proa_tensor_source_bytes(const proa_tensor_source *s);
/* Whether the numbers are, or were before they were packed, floats of type s->view.dtype, not encoded ones. */
bool proa_tensor_source_is_float(const proa_tensor_source *s);
/* Whether the numbers are s->view as it is. */
bool proa_tensor_source_is_plain(const proa_tensor_source *s);
/* Whether they are, row after row without gaps. */
bool proa_tensor_source_is_dense(const proa_tensor_source *s);
/* Matrix i of a tensor [n, rows, cols], or vector i of one [n, rows] as a matrix [rows, 1]: of an expert. */
proa_tensor_source proa_tensor_source_slice(const proa_tensor_source *all, int64_t i);
/* The stored row of taken row `row`. */
int64_t proa_tensor_source_row(const proa_tensor_source *s, int64_t row);
/* out[i] = number (row, col + i), i in [0, n), as f32. 0 <= row < rows; col + n <= cols. */
void proa_tensor_source_read(const proa_tensor_source *s, int64_t row, int64_t col, int64_t n, float *out);

/* 32 numbers as stored: number i is scale * code[i] + min. */
enum { PROA_CODES = 32 };
typedef struct proa_code_group {
    int8_t code[PROA_CODES];
    int32_t least, most; /* the range of codes of this encoding */
    float scale, min;    /* min: 0 where the encoding has none */
} proa_code_group;

/* Numbers [col, col + 32) of a row as codes, col a multiple of 32; false if the source is not stored so: a plain or a
 * turned one, one whose groups are smaller, or whose numbers are changed when they are read. */
bool proa_tensor_source_codes(const proa_tensor_source *s, int64_t row, int64_t col, proa_code_group *group);

/* Walks through sources as plain matrices of f32, f16 or bf16, for kernels that convert such on a device: rows out of
 * order come as several strided views, encoded ones decoded to f32, some megabytes at a time.
 *     proa_tensor_source_walk walk = {.source = sources, .count = n};
 *     while (proa_tensor_source_next(&walk, &view)) ...
 * The views have the rows of the stacked sources in order, and all columns. Each is valid until the next call. The walk
 * releases its memory when it returns false. */
typedef struct proa_tensor_source_walk {
    const proa_tensor_source *source;
    int32_t count;
    /* private */
    int32_t at;
    int64_t row;
    float *decoded;
} proa_tensor_source_walk;
bool proa_tensor_source_next(proa_tensor_source_walk *walk, proa_view *view);

/* Inputs [k, k + n) of a row of a source. order: NULL, or input k is the column order[k] of the source. */
typedef struct proa_source_span {
    const proa_tensor_source *source;
    int64_t row, k, n;
    const int32_t *order;
} proa_source_span;
void proa_source_span_read(const proa_source_span *span, float *numbers); /* [n] */

#endif
