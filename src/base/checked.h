/* SPDX-License-Identifier: Apache-2.0
 * checked.h - sums and products of outside numbers: false on overflow or a negative operand. */
#ifndef PROA_BASE_CHECKED_H
#define PROA_BASE_CHECKED_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

PROA_MUST_CHECK static inline bool proa_mul(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}

PROA_MUST_CHECK static inline bool proa_add(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, out);
}

/* Smallest multiple of step (> 0) that is not below n (>= 0, and at least one step below INT64_MAX). */
static inline int64_t proa_round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* For hashes: both halves of a 128-bit product, xored. Each bit of a and b reaches most bits of the result (the mixing
 * step of wyhash, Wang Yi 2019, public domain). */
static inline uint64_t proa_fold_multiply(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline int64_t proa_ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

static inline int64_t proa_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t proa_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
