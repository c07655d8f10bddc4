/* SPDX-License-Identifier: Apache-2.0
 * view.c - views: making, slicing, checking. */
#include "tensor/view.h"

proa_view proa_view_of(void *data, proa_dtype dtype, int32_t rank, const int64_t *shape)
{
    PROA_ASSERT(rank >= 0 && rank <= PROA_RANK_MAX);
    proa_view v = {.data = data, .dtype = dtype, .rank = rank};
    int64_t stride = 1;
    for (int i = PROA_RANK_MAX - 1; i >= 0; i--) {
        v.shape[i] = i < rank ? shape[i] : 1;
        v.stride[i] = i < rank ? stride : 0;
        if (i < rank) stride *= shape[i];
    }
    return v;
}

proa_view proa_view_1d(void *data, proa_dtype dtype, int64_t n)
{
    return proa_view_of(data, dtype, 1, &n);
}

proa_view proa_view_2d(void *data, proa_dtype dtype, int64_t rows, int64_t cols)
{
    return proa_view_of(data, dtype, 2, (const int64_t[]){rows, cols});
}

proa_view proa_view_3d(void *data, proa_dtype dtype, int64_t a, int64_t b, int64_t c)
{
    return proa_view_of(data, dtype, 3, (const int64_t[]){a, b, c});
}

int64_t proa_view_count(proa_view v)
{
    int64_t n = v.rank || v.data ? 1 : 0;
    for (int i = 0; i < v.rank; i++) n *= v.shape[i];
    return n;
}

bool proa_view_dense(proa_view v)
{
    int64_t stride = 1;
    for (int i = v.rank - 1; i >= 0; i--) {
        if (v.shape[i] != 1 && v.stride[i] != stride) return false;
        stride *= v.shape[i];
    }
    return true;
}

/* A view without data, of a model that is bound without weights, stays so. */
static void advance_view(proa_view *v, int64_t elements)
{
    if (v->data) v->data = (char *)v->data + elements * proa_dtype_bytes(v->dtype);
}

proa_view proa_view_rows(proa_view v, int64_t begin, int64_t end)
{
    PROA_DASSERT(v.rank >= 1 && begin >= 0 && begin <= end && end <= v.shape[0]);
    advance_view(&v, begin * v.stride[0]);
    v.shape[0] = end - begin;
    return v;
}

proa_view proa_view_cols(proa_view v, int64_t begin, int64_t end)
{
    PROA_DASSERT(v.rank == 2 && begin >= 0 && begin <= end && end <= v.shape[1]);
    advance_view(&v, begin * v.stride[1]);
    v.shape[1] = end - begin;
    return v;
}

proa_view proa_view_heads(proa_view v, int64_t heads)
{
    PROA_DASSERT(v.rank == 2 && heads > 0 && v.shape[1] % heads == 0);
    int64_t dim = v.shape[1] / heads;
    proa_view h = {.data = v.data, .dtype = v.dtype, .rank = 3};
    h.shape[0] = v.shape[0], h.shape[1] = heads, h.shape[2] = dim, h.shape[3] = 1;
    h.stride[0] = v.stride[0], h.stride[1] = dim * v.stride[1], h.stride[2] = v.stride[1];
    return h;
}

proa_view proa_view_transpose(proa_view v)
{
    PROA_DASSERT(v.rank >= 2);
    proa_view t = v;
    t.shape[0] = v.shape[1], t.shape[1] = v.shape[0];
    t.stride[0] = v.stride[1], t.stride[1] = v.stride[0];
    return t;
}

const char *proa_shape_text(char out[64], int32_t rank, const int64_t *shape)
{
    int n = snprintf(out, 64, "[");
    for (int i = 0; i < rank && n < 60; i++)
        n += snprintf(out + n, 64 - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (n < 63) snprintf(out + n, 64 - (size_t)n, "]");
    return out;
}
