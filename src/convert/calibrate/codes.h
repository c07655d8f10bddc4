/* SPDX-License-Identifier: Apache-2.0
 * codes.h - the numbers that a quantised matrix can hold: its codes, the scales of its groups, zero points.
 * Owner:   the caller's buffers.
 * Threads: a row of a matrix belongs to one thread at a time.
 * Way in:  proa_codes_scales for a row, then proa_codes_round for each of its numbers. */
#ifndef PROA_CONVERT_CALIBRATE_CODES_H
#define PROA_CONVERT_CALIBRATE_CODES_H

#include "tensor/dtype.h"

typedef enum proa_codes_kind {
    PROA_CODES_INT4, /* (code - zero) times the scale of the group; codes 0 to 15 */
    PROA_CODES_INT8, /* code times the scale of the row; -127 to 127 */
    PROA_CODES_FP8   /* e4m3 times the scale of the row */
} proa_codes_kind;

typedef struct proa_codes {
    proa_codes_kind kind;
    int64_t N, K, group;    /* group: inputs with one scale; K for rows. It divides K. */
    bool asymmetric;        /* INT4: a zero point for each group; else it is 8 */
    proa_dtype scale_dtype; /* scales are rounded to it */
    const float *numbers;   /* [N][K] what is quantised */
    uint8_t *codes;         /* [N][K] one in a byte: 0 to 15, int8, or e4m3 */
    float *scales;          /* [N][K / group] */
    uint8_t *zeros;         /* likewise, 0 to 15; NULL if not asymmetric */
} proa_codes;

/* Fills the row's scales and zeros. weight: [K] what the squared error of each input counts. INT4: for each
 * group the range of least weighted error among the whole range and smaller parts of it. INT8, FP8: the row's range. */
void proa_codes_scales(const proa_codes *m, int64_t row, const float *weight);
/* Stores the code of v, which is nearest, and returns the number that it stands for. */
float proa_codes_round(const proa_codes *m, int64_t row, int64_t k, float v);
/* The number of a code by itself: what the scale is multiplied by. */
float proa_codes_unit(const proa_codes *m, int64_t row, int64_t k);
/* v rounded to f32, f16 or bf16. */
float proa_codes_round_float(proa_dtype dtype, float v);

#endif
