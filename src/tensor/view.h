/* SPDX-License-Identifier: Apache-2.0
 * view.h - a window on elements that somebody else owns: pointer, dtype, shape, strides.
 * Passed by value. Strides count elements, not bytes. Axis 0 is the outermost. */
#ifndef PROA_TENSOR_VIEW_H
#define PROA_TENSOR_VIEW_H

#include "base/limits.h"
#include "tensor/dtype.h"

typedef struct proa_view {
    void *data;
    proa_dtype dtype;
    int32_t rank;                  /* 0..PROA_RANK_MAX; 0: a scalar, or no tensor if data is NULL */
    int64_t shape[PROA_RANK_MAX];  /* 1 beyond rank */
    int64_t stride[PROA_RANK_MAX]; /* 0 beyond rank */
} proa_view;

/* Dense row-major views. */
proa_view proa_view_1d(void *data, proa_dtype dtype, int64_t n);
proa_view proa_view_2d(void *data, proa_dtype dtype, int64_t rows, int64_t cols);
proa_view proa_view_3d(void *data, proa_dtype dtype, int64_t a, int64_t b, int64_t c);
proa_view proa_view_of(void *data, proa_dtype dtype, int32_t rank, const int64_t *shape);

int64_t proa_view_count(proa_view v); /* elements */
bool proa_view_dense(proa_view v);    /* row-major without gaps */
/* Rows [begin, end) of axis 0. */
proa_view proa_view_rows(proa_view v, int64_t begin, int64_t end);
/* Columns [begin, end) of a matrix: same rows, same row stride. */
proa_view proa_view_cols(proa_view v, int64_t begin, int64_t end);
/* A matrix [rows, heads * dim] seen as [rows, heads, dim]. */
proa_view proa_view_heads(proa_view v, int64_t heads);
/* Axes 0 and 1 swapped, no data moved. */
proa_view proa_view_transpose(proa_view v);
/* "[200, 64]" into out; returns out. */
const char *proa_shape_text(char out[64], int32_t rank, const int64_t *shape);

static inline float *proa_view_f32(proa_view v)
{
    PROA_DASSERT(v.dtype == PROA_DTYPE_F32 || v.data == NULL);
    return (float *)v.data;
}

#endif
