/* SPDX-License-Identifier: Apache-2.0
 * view_at.h - single elements and rows of views, for the reference, which reads and writes one number at a time. */
#ifndef PROA_KERNELS_REFERENCE_VIEW_AT_H
#define PROA_KERNELS_REFERENCE_VIEW_AT_H

#include "tensor/view.h"

/* Element (i, j) of an f32 view of rank 2, and (i, j, k) of one of rank 3. */
static inline float *at_row(proa_view v, int64_t i, int64_t j)
{
    return proa_view_f32(v) + i * v.stride[0] + j * v.stride[1];
}

static inline float *at_plane(proa_view v, int64_t i, int64_t j, int64_t k)
{
    return proa_view_f32(v) + i * v.stride[0] + j * v.stride[1] + k * v.stride[2];
}

/* The element at a flat index of memory of any floating dtype, as f32. */
static inline float load_element(const void *data, proa_dtype dtype, int64_t index)
{
    float f;
    proa_to_f32(&f, (const char *)data + index * proa_dtype_bytes(dtype), dtype, 1);
    return f;
}

/* n elements from a flat index on, as f32: where they are if they are f32, else converted into row [n]. */
static inline const float *load_row(float *row, const void *data, proa_dtype dtype, int64_t index, int64_t n)
{
    if (dtype == PROA_DTYPE_F32) return (const float *)data + index;
    proa_to_f32(row, (const char *)data + index * proa_dtype_bytes(dtype), dtype, n);
    return row;
}

/* A view of rank 2 as one of rank 3 with one head; one of rank 3 as it is. */
static inline proa_view as_heads(proa_view v)
{
    return v.rank == 3 ? v : proa_view_heads(v, 1);
}

#endif
