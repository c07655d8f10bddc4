/* SPDX-License-Identifier: Apache-2.0
 * pool_rows.h - one vector from the rows of an input, as the data op pool_rows computes it. It is compiled for the op's
 *               reference (reference/elements.c) and for CUDA (pool.cu), which give the same bits: sums are of doubles,
 *               in a fixed order.
 * Threads: pure functions. */
#ifndef PROA_KERNELS_POOL_ROWS_H
#define PROA_KERNELS_POOL_ROWS_H

#include "kernels/libm_exp.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum proa_pool_mode { PROA_POOL_MEAN, PROA_POOL_FIRST, PROA_POOL_LAST } proa_pool_mode;

/* The squares of a vector are summed by that many lanes: lane l has columns l, l + PROA_POOL_LANES, ...; then the lanes
 * of the upper half are added to those of the lower one until one is left. */
#define PROA_POOL_LANES 256

/* x: a column of the first of `rows` rows, which are `width` apart; rows is at least 1. */
static inline PROA_DEVICE_CODE float proa_pool_column(const float *x, int64_t rows, int64_t width,
                                                      proa_pool_mode mode)
{
    double sum = 0;
    if (mode == PROA_POOL_FIRST) return x[0];
    if (mode == PROA_POOL_LAST) return x[(rows - 1) * width];
    for (int64_t i = 0; i < rows; i++) sum += (double)x[i * width];
    return (float)(sum / (double)rows);
}

static inline PROA_DEVICE_CODE double proa_pool_lane(const float *vector, int64_t width, int64_t lane)
{
    double sum = 0;
    for (int64_t k = lane; k < width; k += PROA_POOL_LANES) sum += (double)vector[k] * (double)vector[k];
    return sum;
}

/* An element of a vector of length 1. squares: the sum of all. */
static inline PROA_DEVICE_CODE float proa_pool_unit(float element, double squares)
{
    return squares > 0 ? (float)((double)element / sqrt(squares)) : element;
}

#endif
