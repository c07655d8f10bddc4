/* SPDX-License-Identifier: Apache-2.0
 * row.c - loops over fixed lanes, which the compiler can vectorise without changing the order of additions. */
#include "engine/decode/row.h"

#include <math.h>

enum { LANES = 16, SUMS = 8, BLOCK = 256 };

bool proa_row_has_nan(const float *x, int64_t n)
{
    int32_t nan[LANES] = {0};
    int64_t whole = n - n % (2 * LANES);
    for (int64_t i = 0; i < whole; i += 2 * LANES)
        for (int j = 0; j < LANES; j++) nan[j] |= -__builtin_isunordered(x[i + j], x[i + LANES + j]);
    for (int64_t i = whole; i < n; i++) nan[0] |= x[i] != x[i];
    for (int j = 1; j < LANES; j++) nan[0] |= nan[j];
    return nan[0] != 0;
}

float proa_row_largest(const float *x, int64_t n)
{
    float top[LANES];
    for (int j = 0; j < LANES; j++) top[j] = -INFINITY;
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++) top[j] = x[i + j] > top[j] ? x[i + j] : top[j];
    for (int64_t i = whole; i < n; i++) top[0] = x[i] > top[0] ? x[i] : top[0];
    for (int j = 1; j < LANES; j++) top[0] = top[j] > top[0] ? top[j] : top[0];
    return top[0];
}

/* e[count] = exp(x / temperature - top), zeros up to a multiple of SUMS. */
static void exp_block(float *e, const float *x, int count, float temperature, float top)
{
    if (temperature == 1)
        for (int j = 0; j < count; j++) e[j] = proa_row_exp(x[j] - top);
    else
        for (int j = 0; j < count; j++) e[j] = proa_row_exp(x[j] / temperature - top);
    for (int j = count; j % SUMS; j++) e[j] = 0; /* BLOCK is a multiple of SUMS */
}

double proa_row_sum_exp(const float *x, int64_t n, float temperature, float top)
{
    double lane[SUMS] = {0};
    float e[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int count = (int)(n - i < BLOCK ? n - i : BLOCK);
        exp_block(e, x + i, count, temperature, top);
        for (int j = 0; j < count; j += SUMS)
            for (int k = 0; k < SUMS; k++) lane[k] += (double)e[j + k];
    }
    double sum = 0;
    for (int k = 0; k < SUMS; k++) sum += lane[k];
    return sum;
}
