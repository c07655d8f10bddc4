/* SPDX-License-Identifier: Apache-2.0
 * test_groups.c - groups of quantised weights: stored codes are kept, what cannot be kept is quantised again. */
#include "base/compiler.h"
#include "kernels/groups.h"
#include "kernels/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static uint8_t stored[4 * 144]; /* of random bytes, with finite scales */

static void fill_stored(proa_encoding encoding)
{
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof stored; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        stored[i] = (uint8_t)(seed >> 56);
    }
    int64_t numbers = proa_encoding_numbers(encoding), bytes = proa_encoding_row_bytes(encoding, numbers);
    for (int64_t at = 0; at + bytes <= (int64_t)sizeof stored; at += bytes)
        if (encoding == PROA_ENCODING_MXFP4) stored[at] = 123; /* 2^-4 */
        else stored[at + 1] = 0x2c, stored[at + 3] = 0xab;     /* f16 near 0.06 and -0.06 */
}

static proa_tensor_source source_of(proa_encoding encoding)
{
    fill_stored(encoding);
    return (proa_tensor_source){.encoding = encoding, .view = proa_view_2d(stored, PROA_DTYPE_F32, 2, 256)};
}

static float number_of(proa_wfmt format, const proa_quant_group *g, int i)
{
    float d = proa_f16_to_f32(g->scale), m = proa_f16_to_f32(g->min);
    return d * (float)(g->code[i] - proa_group_zero(format)) + m;
}

/* The largest difference between a row's numbers and its groups', in parts of the largest number. */
static double largest_difference(proa_wfmt format, const proa_tensor_source *s)
{
    double worst = 0, largest = 0;
    for (int64_t k = 0; k < 256; k += PROA_GROUP) {
        proa_quant_group g;
        float numbers[PROA_GROUP];
        proa_group_read(format, &g, &(proa_source_span){s, 1, k, PROA_GROUP, NULL});
        proa_tensor_source_read(s, 1, k, PROA_GROUP, numbers);
        for (int i = 0; i < PROA_GROUP; i++) {
            worst = fmax(worst, fabs((double)number_of(format, &g, i) - (double)numbers[i]));
            largest = fmax(largest, fabs((double)numbers[i]));
        }
    }
    assert_true(largest > 0);
    return worst / largest;
}

static void keeps_stored_codes(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        proa_encoding encoding;
        proa_wfmt format;
        double limit;
    } cases[] = {
        {PROA_ENCODING_Q4_0, PROA_WFMT_Q4_0, 0},           {PROA_ENCODING_Q4_1, PROA_WFMT_Q4_1, 0},
        {PROA_ENCODING_Q5_0, PROA_WFMT_Q8_0, 0},           {PROA_ENCODING_IQ4_NL, PROA_WFMT_Q8_0, 0},
        {PROA_ENCODING_IQ4_NL, PROA_WFMT_IQ4_NL, 0},       {PROA_ENCODING_MXFP4, PROA_WFMT_MXFP4, 0},
        {PROA_ENCODING_IQ4_XS, PROA_WFMT_IQ4_NL, 0x1p-10}, {PROA_ENCODING_Q8_0, PROA_WFMT_MXFP4, 1.0 / 5},
        {PROA_ENCODING_Q8_0, PROA_WFMT_IQ4_NL, 1.0 / 8},   {PROA_ENCODING_Q4_K, PROA_WFMT_Q4_1, 0x1p-10},
        {PROA_ENCODING_Q4_1, PROA_WFMT_Q8_0, 1.0 / 200},   {PROA_ENCODING_Q4_K, PROA_WFMT_Q8_0, 1.0 / 200}};
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_tensor_source s = source_of(cases[i].encoding);
        double difference = largest_difference(cases[i].format, &s);
        if (difference > cases[i].limit)
            fail_msg("%s as %s: %g", proa_encoding_name(cases[i].encoding), proa_wfmt_name(cases[i].format),
                     difference);
    }
}

/* Codes whose zero point is the middle, among others in q4_1: GPTQ's groups have any zero point. Q4_0 stores such. */
static void keeps_middle_in_q4_1(void **state)
{
    PROA_UNUSED(state);
    proa_tensor_source s = source_of(PROA_ENCODING_Q4_0);
    for (int64_t k = 0; k < 256; k += PROA_GROUP) {
        proa_quant_group q4_0, q4_1;
        const proa_source_span span = {&s, 1, k, PROA_GROUP, NULL};
        proa_group_read(PROA_WFMT_Q4_0, &q4_0, &span);
        proa_group_read(PROA_WFMT_Q4_1, &q4_1, &span);
        assert_memory_equal(q4_1.code, q4_0.code, PROA_GROUP);
        assert_int_equal(q4_1.scale, q4_0.scale);
        assert_true(proa_f16_to_f32(q4_1.min) == -8.0f * proa_f16_to_f32(q4_0.scale));
    }
}

/* Numbers that are changed when they are read cannot keep their codes. */
static void quantises_changed_numbers(void **state)
{
    PROA_UNUSED(state);
    float factor[2] = {1, 3};
    proa_tensor_source s = source_of(PROA_ENCODING_Q4_0);
    s.factor = factor;
    assert_true(largest_difference(PROA_WFMT_Q8_0, &s) <= 1.0 / 200);
}

static void pads_with_zeros_and_passes_nan(void **state)
{
    PROA_UNUSED(state);
    float numbers[5] = {1, -2, 3, -4, 0.5f};
    static const proa_wfmt formats[] = {PROA_WFMT_Q8_0, PROA_WFMT_Q4_0, PROA_WFMT_Q4_1, PROA_WFMT_MXFP4,
                                        PROA_WFMT_IQ4_NL};
    for (size_t f = 0; f < PROA_COUNT(formats); f++) {
        proa_quant_group g;
        proa_group_quantise(formats[f], &g, numbers, 5);
        for (int i = 5; i < PROA_GROUP; i++) assert_int_equal(g.code[i], proa_group_zero(formats[f]));
        assert_true(fabsf(number_of(formats[f], &g, 3) + 4) < 0.05f);
        float broken[3] = {1, NAN, 2};
        proa_group_quantise(formats[f], &g, broken, 3);
        assert_true(isnan(proa_f16_to_f32(g.scale)));
    }
}

static double squared_error(const float *v, float scale)
{
    double sum = 0;
    for (int i = 0; i < PROA_GROUP; i++) {
        double d = (double)v[i] - (double)proa_i4_round(v[i], scale) * (double)scale;
        sum += d * d;
    }
    return sum;
}

/* Groups of random numbers: the step is the best of all that are tried, and much better than the plain one. */
static void takes_the_step_of_least_error(void **state)
{
    PROA_UNUSED(state);
    double plain = 0, best = 0, ours = 0;
    uint32_t seed = 7;
    for (int group = 0; group < 1000; group++) {
        float v[PROA_GROUP], extreme = 0;
        for (int i = 0; i < PROA_GROUP; i++) {
            v[i] = 0;
            for (int j = 0; j < 6; j++)
                v[i] += (float)((seed = seed * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f;
            if (fabsf(v[i]) > fabsf(extreme)) extreme = v[i];
        }
        double least = INFINITY;
        for (int i = 0; i < PROA_I4_STEPS; i++)
            least = fmin(least, squared_error(v, proa_i4_scale(extreme, proa_i4_step(i), 1)));
        best += least;
        plain += squared_error(v, extreme / -8.0f);
        ours += squared_error(v, proa_i4_best_scale(v, PROA_GROUP, extreme));
    }
    assert_true(ours < best * 1.001 && ours < plain * 0.9);
    float exact[PROA_GROUP] = {-0.8f, 0.7f, 0.3f, -0.1f};
    assert_true(fabsf(proa_i4_best_scale(exact, PROA_GROUP, -0.8f) - 0.1f) < 1e-7f);
    float small[3] = {1e-38f, 0, -1e-38f};
    assert_true(fabsf(proa_i4_best_scale(small, 3, 1e-38f)) < 1e-37f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_stored_codes), cmocka_unit_test(keeps_middle_in_q4_1),
        cmocka_unit_test(quantises_changed_numbers), cmocka_unit_test(pads_with_zeros_and_passes_nan),
        cmocka_unit_test(takes_the_step_of_least_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
