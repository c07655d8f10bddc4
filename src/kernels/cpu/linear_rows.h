/* SPDX-License-Identifier: Apache-2.0
 * linear_rows.h - what linear does before and after its tiles: rows of x as words (linear.h), and the epilogue.
 * Needs:  as linear_tile.h, and of the first n lanes PART_LOAD(p, n), PART_STORE(p, n, v), PART_STORE_I8(p, n, q)
 *         that keeps the low byte of each lane; ANY_ABOVE(a, b): in some lane a > b; and ACT(act, v). */

#include "kernels/groups.h"

/* ---- the epilogue: one function for all tiles, so that a row's arithmetic is the same in all of them ---- */

static PROA_ALWAYS_INLINE V finish_part(const proa_tile_epilogue *f, int64_t r, int64_t j, int64_t n)
{
    V v = OP(loadu_ps)((const float *)f->sums + r * f->sums_stride + j); /* whole panels: no cut */
    if (f->w_scales) {
        VI sum = TO_I(v);
        if (f->w_sums)
            sum = OP(sub_epi32)(sum, TO_I(OP(loadu_ps)((const float *)(const void *)(f->w_sums + j))));
        V scale = OP(mul_ps)(OP(set1_ps)(f->x_scales[r]), OP(loadu_ps)(f->w_scales + j));
        v = OP(mul_ps)(OP(cvtepi32_ps)(sum), scale);
    }
    V bias = f->bias ? PART_LOAD(f->bias + j, n) : OP(setzero_ps)();
    v = OP(fmadd_ps)(OP(set1_ps)(f->alpha), v, bias);
    if (f->act) v = ACT(f->act, v);
    if (f->residual) v = OP(add_ps)(v, PART_LOAD(f->residual + r * f->residual_stride + j, n));
    return v;
}

static PROA_NO_INLINE void finish_tile(const proa_tile_epilogue *f)
{
    for (int64_t r = 0; r < f->rows; r++)
        for (int64_t j = 0; j < f->columns; j += LANES) {
            int64_t n = f->columns - j < LANES ? f->columns - j : LANES;
            V v = finish_part(f, r, j, n);
            PART_STORE(f->y + r * f->y_stride + j, n, v);
        }
}

/* ---- rows of x as words ---- */

/* Largest magnitude of the row; NaN if it holds NaN or infinity. Magnitudes in order are their bits in order, and
 * what is not finite comes after all numbers. */
static float row_largest(const float *x, int64_t K)
{
    VI largest[4], magnitude = OP(set1_epi32)(0x7fffffff);
    for (int i = 0; i < 4; i++) largest[i] = OP(set1_epi32)(0);
    int64_t k = 0;
    for (; k + 4 * LANES <= K; k += 4 * LANES) {
        PROA_UNROLL
        for (int i = 0; i < 4; i++)
            largest[i] = OP(max_epi32)(largest[i], AND_INT(magnitude, TO_I(OP(loadu_ps)(x + k + i * LANES))));
    }
    for (; k < K; k += LANES) {
        V v = PART_LOAD(x + k, K - k < LANES ? K - k : LANES);
        largest[0] = OP(max_epi32)(largest[0], AND_INT(magnitude, TO_I(v)));
    }
    largest[0] = OP(max_epi32)(OP(max_epi32)(largest[0], largest[1]), OP(max_epi32)(largest[2], largest[3]));
    int32_t parts[LANES], most = 0;
    OP(storeu_ps)((float *)(void *)parts, TO_V(largest[0]));
    for (int i = 0; i < LANES; i++) most = parts[i] > most ? parts[i] : most;
    float out;
    memcpy(&out, &most, sizeof out);
    return most < 0x7f800000 ? out : NAN;
}

/* rint(v / scale), clamped, by the definition. */
static PROA_ALWAYS_INLINE VI quantise_exactly(V v, float scale)
{
    v = OP(div_ps)(v, OP(set1_ps)(scale));
    v = OP(max_ps)(OP(set1_ps)(-127.0f), OP(min_ps)(OP(set1_ps)(127.0f), v));
    return OP(cvtps_epi32)(v); /* to nearest even */
}

/* The same sixteen (or eight) by a product with 1 / scale: that is off by at most 127 * 3 * 2^-24, so it rounds to
 * the same number unless it is that near to a half, which few are. Those are divided. */
static PROA_ALWAYS_INLINE VI quantise_part(V v, float scale, float inverse)
{
    V product = OP(mul_ps)(v, OP(set1_ps)(inverse));
    VI q = OP(cvtps_epi32)(product);
    V off = OP(andnot_ps)(OP(set1_ps)(-0.0f), OP(sub_ps)(product, OP(cvtepi32_ps)(q)));
    return ANY_ABOVE(off, OP(set1_ps)(0.49995f)) ? quantise_exactly(v, scale) : q;
}

#define INVERTIBLE_MIN                                                                                       \
    0x1p-120f /* a smaller scale's inverse may overflow, and denormal scales need the clamp */

/* Exactly proa_i8_round of each element. */
static PROA_ALWAYS_INLINE void quantise_row(int8_t *out, float *scale, const float *x, int64_t K, int bias)
{
    float divisor = *scale = row_largest(x, K) / 127.0f;
    int64_t padded = (K + 3) / 4 * 4, k = 0;
    VI add = OP(set1_epi32)(bias);
    if (divisor >= INVERTIBLE_MIN)
        for (; k + LANES <= K; k += LANES) {
            VI q = quantise_part(OP(loadu_ps)(x + k), divisor, 1.0f / divisor);
            PART_STORE_I8(out + k, LANES, OP(add_epi32)(q, add));
        }
    for (; k < padded; k += LANES) {
        V v = PART_LOAD(x + k, K - k < LANES ? K - k : LANES);
        VI q = divisor > 0.0f ? quantise_exactly(v, divisor) : OP(set1_epi32)(0);
        PART_STORE_I8(out + k, padded - k < LANES ? padded - k : LANES, OP(add_epi32)(q, add));
    }
}

static PROA_ALWAYS_INLINE int32_t lanes_max(VI v)
{
    int32_t lanes[LANES], most = 0;
    OP(storeu_ps)((float *)(void *)lanes, TO_V(v));
    for (int i = 0; i < LANES; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

static PROA_ALWAYS_INLINE int32_t lanes_sum(VI v)
{
    int32_t lanes[LANES], sum = 0;
    OP(storeu_ps)((float *)(void *)lanes, TO_V(v));
    for (int i = 0; i < LANES; i++) sum += lanes[i];
    return sum;
}

/* One group of a row: n numbers become PROA_GROUP int8, padded with 0. Returns the sum of the int8. */
static PROA_ALWAYS_INLINE int32_t quantise_group(int8_t *out, float *scale, const float *x, int64_t n)
{
    enum { PARTS = PROA_GROUP / LANES };
    V v[PARTS];
    VI largest = OP(set1_epi32)(0), sum = largest, magnitude = OP(set1_epi32)(0x7fffffff);
    PROA_UNROLL
    for (int i = 0; i < PARTS; i++) {
        int64_t left = n - (int64_t)i * LANES;
        v[i] = PART_LOAD(x + i * LANES, left > LANES ? LANES : left < 0 ? 0 : left);
        largest = OP(max_epi32)(largest, AND_INT(magnitude, TO_I(v[i])));
    }
    int32_t bits = lanes_max(largest);
    *scale = bits < 0x7f800000 ? proa_bits_f32((uint32_t)bits) / 127.0f : NAN;
    PROA_UNROLL
    for (int i = 0; i < PARTS; i++) {
        VI q = *scale > 0.0f ? quantise_exactly(v[i], *scale) : OP(set1_epi32)(0);
        sum = OP(add_epi32)(sum, q);
        PART_STORE_I8(out + i * LANES, LANES, q);
    }
    return lanes_sum(sum);
}

/* A row of x for weights in groups (linear.h): int8, then scales, then sums times factor. */
static void quantise_groups(void *out, const float *x, int64_t K, int32_t factor, const int32_t *order)
{
    float gathered[PROA_GROUP];
    int64_t groups = (K + PROA_GROUP - 1) / PROA_GROUP;
    int8_t *q = out;
    float *scales = (float *)(void *)(q + groups * PROA_GROUP);
    int32_t *totals = (int32_t *)(void *)(scales + groups);
    for (int64_t g = 0; g < groups; g++) {
        int64_t k = g * PROA_GROUP, n = K - k < PROA_GROUP ? K - k : PROA_GROUP;
        const float *v = proa_group_inputs(gathered, x, order, k, n);
        totals[g] = factor * quantise_group(q + k, &scales[g], v, n);
    }
}

static void round_row(uint16_t *out, const float *x, int64_t K)
{
    for (int64_t k = 0; k < K; k++) out[k] = proa_f32_to_bf16(x[k]);
    if (K % 2) out[K] = 0;
}
