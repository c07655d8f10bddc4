/* SPDX-License-Identifier: Apache-2.0
 * linear_rows.h - what linear does before and after its tiles: rows of x as words (linear.h), and the epilogue.
 * Needs:  as linear_tile.h, and of the first n lanes PART_LOAD(p, n), PART_STORE(p, n, v), PART_STORE_I8(p, n, q)
 *         that keeps the low byte of each lane; and ACT(act, v). */

/* ---- the epilogue: one function for all tiles, so that a row's arithmetic is the same in all of them ---- */

static PROA_ALWAYS_INLINE V finish_part(const proa_finish *f, int64_t r, int64_t j, int64_t n)
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

static PROA_NO_INLINE void finish(const proa_finish *f)
{
    for (int64_t r = 0; r < f->rows; r++)
        for (int64_t j = 0; j < f->columns; j += LANES) {
            int64_t n = f->columns - j < LANES ? f->columns - j : LANES;
            V v = finish_part(f, r, j, n);
            PART_STORE(f->y + r * f->y_stride + j, n, v);
        }
}

/* ---- rows of x as words ---- */

/* Largest magnitude of the row; NaN if it holds NaN or infinity. */
static float row_largest(const float *x, int64_t K)
{
    V largest = OP(setzero_ps)(), spoiled = OP(setzero_ps)();
    for (int64_t k = 0; k < K; k += LANES) {
        V v = PART_LOAD(x + k, K - k < LANES ? K - k : LANES);
        V a = OP(andnot_ps)(OP(set1_ps)(-0.0f), v);
        largest = OP(max_ps)(largest, a);
        spoiled = OP(fmadd_ps)(v, OP(setzero_ps)(), spoiled); /* NaN once a value is not finite */
    }
    float parts[LANES], bad[LANES], out = 0.0f, sum = 0.0f;
    OP(storeu_ps)(parts, largest);
    OP(storeu_ps)(bad, spoiled);
    for (int i = 0; i < LANES; i++) {
        out = parts[i] > out ? parts[i] : out;
        sum += bad[i];
    }
    return sum == 0.0f ? out : NAN;
}

/* Exactly proa_i8_round of each element: the division is the same, and the conversion rounds to nearest even. */
static PROA_ALWAYS_INLINE void quantise_row(int8_t *out, float *scale, const float *x, int64_t K, int bias)
{
    float largest = row_largest(x, K);
    *scale = largest / 127.0f;
    int64_t padded = (K + 3) / 4 * 4;
    bool nothing = !(*scale > 0.0f);
    V divisor = OP(set1_ps)(*scale);
    for (int64_t k = 0; k < K; k += LANES) {
        V v = OP(div_ps)(PART_LOAD(x + k, K - k < LANES ? K - k : LANES), divisor);
        v = OP(max_ps)(OP(set1_ps)(-127.0f), OP(min_ps)(OP(set1_ps)(127.0f), v));
        VI q = nothing ? OP(set1_epi32)(0) : OP(cvtps_epi32)(v);
        q = OP(add_epi32)(q, OP(set1_epi32)(bias));
        PART_STORE_I8(out + k, padded - k < LANES ? padded - k : LANES, q);
    }
}

static void round_row(uint16_t *out, const float *x, int64_t K)
{
    for (int64_t k = 0; k < K; k++) out[k] = proa_f32_to_bf16(x[k]);
    if (K % 2) out[K] = 0;
}
