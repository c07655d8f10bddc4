/* SPDX-License-Identifier: Apache-2.0
 * test_dtype.c - names, sizes and conversions of element types, over all 16-bit values.
 * All 65,536 values of f16 and bf16 there and back, and rounding against arithmetic done in double. */
#include "base/alloc.h"
#include "tensor/dtype.h"
#include "tensor/fp8.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* The value of 16 bits with E exponent and F fraction bits by the definition of IEEE 754, not by shifting. */
static double value_of(unsigned h, int E, int F)
{
    double sign = h >> 15 ? -1 : 1;
    int exponent = (int)(h >> F & ((1u << E) - 1)), bias = (1 << (E - 1)) - 1;
    double fraction = (double)(h & ((1u << F) - 1)) / (double)(1 << F);
    if (exponent == (1 << E) - 1) return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1 + fraction, exponent - bias) : ldexp(fraction, 1 - bias));
}

static void round_trip(float to_f32(uint16_t), uint16_t from_f32(float), int E, int F)
{
    for (unsigned h = 0; h < 65536; h++) {
        double want = value_of(h, E, F);
        float f = to_f32((uint16_t)h);
        uint16_t back = from_f32(f);
        if (isnan(want)) {
            if (!isnan(f) || !isnan(to_f32(back))) fail_msg("%04x: NaN became a number", h);
            if ((back ^ h) & 0x8000) fail_msg("%04x: the sign of NaN changed", h);
        } else if ((double)f != want || back != h || !signbit(f) != !signbit(want))
            fail_msg("%04x: %a, should be %a; back %04x", h, (double)f, want, back);
    }
}

static float bf16_to_f32(uint16_t h)
{
    return proa_bf16_to_f32(h);
}

static uint16_t f32_to_bf16(float f)
{
    return proa_f32_to_bf16(f);
}

static void test_round_trips(void **state)
{
    round_trip(proa_f16_to_f32, proa_f32_to_f16, 5, 10);
    round_trip(bf16_to_f32, f32_to_bf16, 8, 7);
    (void)state;
}

/* Between each two neighbours: just below the middle goes down, just above up, the middle to the even one. */
static void rounding(float to_f32(uint16_t), uint16_t from_f32(float), unsigned infinity)
{
    for (unsigned h = 0; h + 1 < infinity; h++) {
        float low = to_f32((uint16_t)h), high = to_f32((uint16_t)(h + 1));
        float middle = (float)(((double)low + (double)high) / 2); /* exact: f32 has more bits */
        unsigned even = h & 1 ? h + 1 : h;
        assert_true((double)middle * 2 == (double)low + (double)high);
        if (from_f32(middle) != even || from_f32(-middle) != (even | 0x8000)) fail_msg("tie above %04x", h);
        if (from_f32(nextafterf(middle, low)) != h) fail_msg("below the tie above %04x", h);
        if (from_f32(nextafterf(middle, high)) != h + 1) fail_msg("over the tie above %04x", h);
        if (from_f32(-nextafterf(middle, high)) != ((h + 1) | 0x8000))
            fail_msg("over the tie below -%04x", h);
    }
}

static void test_rounding(void **state)
{
    rounding(proa_f16_to_f32, proa_f32_to_f16, 0x7c00);
    rounding(bf16_to_f32, f32_to_bf16, 0x7f80);
    (void)state;
}

/* e4m3: all 256 codes by the definition (no infinities, 0x7f is NaN), and the ties between neighbours. -0 becomes 0. */
static void test_fp8(void **state)
{
    for (unsigned q = 0; q < 256; q++) {
        int exponent = (int)(q >> 3 & 15), mantissa = (int)(q & 7);
        double want = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
        float f = proa_fp8_to_f32((uint8_t)q);
        if ((q & 0x7f) == 0x7f) assert_true(isnan(f) && proa_f32_to_fp8(f) == 0x7f);
        else if ((double)f != (q & 0x80 ? -want : want) || proa_f32_to_fp8(f) != (q == 0x80 ? 0 : q))
            fail_msg("%02x: %a", q, (double)f);
    }
    for (unsigned q = 0; q < 0x7e; q++) {
        float low = proa_fp8_to_f32((uint8_t)q), high = proa_fp8_to_f32((uint8_t)(q + 1)),
              middle = (low + high) / 2;
        assert_int_equal(proa_f32_to_fp8(middle), q & 1 ? q + 1 : q);
        assert_int_equal(proa_f32_to_fp8(nextafterf(middle, low)), q);
        assert_int_equal(proa_f32_to_fp8(nextafterf(middle, high)), q + 1);
    }
    assert_int_equal(proa_f32_to_fp8(1e9f), 0x7e);
    (void)state;
}

static void test_edges(void **state)
{
    assert_int_equal(proa_f32_to_f16(65504.0f), 0x7bff);
    assert_int_equal(proa_f32_to_f16(nextafterf(65520.0f, 0)), 0x7bff);
    assert_int_equal(proa_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(proa_f32_to_f16(-3e38f), 0xfc00);
    assert_int_equal(proa_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(proa_f32_to_f16(0x1p-25f), 0); /* half of the smallest: to even */
    assert_int_equal(proa_f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(proa_f32_to_f16(1e-45f), 0);
    assert_int_equal(proa_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(proa_f32_to_bf16(3.4028235e38f), 0x7f80); /* rounds to infinity */
    assert_int_equal(proa_f32_to_bf16(-INFINITY), 0xff80);
    assert_int_equal(proa_f32_to_bf16(1e-45f), 0);
    static const uint32_t nans[] = {0x7f800001u, 0xff800001u, 0x7fc00000u,
                                    0x7fffffffu, 0xffffffffu, 0x7f80ffffu};
    for (size_t i = 0; i < PROA_COUNT(nans); i++) { /* also those whose upper half alone would be infinity */
        float f = proa_bits_f32(nans[i]);
        assert_true(isnan(proa_bf16_to_f32(proa_f32_to_bf16(f))));
        assert_true(isnan(proa_f16_to_f32(proa_f32_to_f16(f))));
    }
    (void)state;
}

static void test_names(void **state)
{
    proa_dtype d = PROA_DTYPE_COUNT;
    for (int i = 0; i < PROA_DTYPE_COUNT; i++) {
        assert_true(proa_dtype_find(proa_str_c(proa_dtype_name((proa_dtype)i)), &d));
        assert_int_equal(d, i);
    }
    assert_true(proa_dtype_find(proa_str_c("BF16"), &d) && d == PROA_DTYPE_BF16);
    assert_true(proa_dtype_find(proa_str_c("BOOL"), &d) && d == PROA_DTYPE_BOOL);
    d = PROA_DTYPE_I8;
    assert_false(proa_dtype_find(proa_str_c("f8"), &d) || proa_dtype_find(proa_str_c(""), &d) ||
                 proa_dtype_find(proa_str_c("F3"), &d));
    assert_int_equal(d, PROA_DTYPE_I8);
    assert_int_equal(proa_dtype_bytes(PROA_DTYPE_F64), 8);
    assert_int_equal(proa_dtype_bytes(PROA_DTYPE_BOOL), 1);
    assert_true(proa_dtype_floating(PROA_DTYPE_BF16) && !proa_dtype_floating(PROA_DTYPE_I64));
    assert_string_equal(proa_dtype_name((proa_dtype)99), "unknown");
    assert_false(proa_dtype_floating((proa_dtype)99));
    (void)state;
}

/* Rows of every floating dtype at odd addresses, of every short length. */
static void test_rows(void **state)
{
    static const proa_dtype dtypes[] = {PROA_DTYPE_F32, PROA_DTYPE_F16, PROA_DTYPE_BF16};
    for (size_t d = 0; d < PROA_COUNT(dtypes); d++)
        for (int64_t n = 0; n < 40; n++) {
            size_t bytes = (size_t)(n * proa_dtype_bytes(dtypes[d]));
            char *packed = proa_malloc(bytes + 1);
            float *in = proa_malloc((size_t)n * 4), *out = proa_malloc((size_t)n * 4);
            for (int64_t i = 0; i < n; i++) in[i] = (float)(i - 7) * 0.25f; /* exact in all of them */
            proa_from_f32(packed + 1, dtypes[d], in, n);
            proa_to_f32(out, packed + 1, dtypes[d], n);
            if (n) assert_memory_equal(in, out, (size_t)n * 4);
            free(packed), free(in), free(out);
        }
    char eight[9];
    double third = 1.0 / 3;
    float f;
    memcpy(eight + 1, &third, 8);
    proa_to_f32(&f, eight + 1, PROA_DTYPE_F64, 1);
    assert_true(f == (float)third);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_rounding), cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_edges),       cmocka_unit_test(test_names),    cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
