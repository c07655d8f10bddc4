/* SPDX-License-Identifier: Apache-2.0
 * test_libm_exp.c - exp and its kin of kernels/libm_exp.h have the bits of the C library's on a CPU with FMA, and
 * differ by at most one unit in the last place elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "base/cpu.h"
#include "kernels/libm_exp.h"
#include <cmocka.h>

static uint64_t state = 1;

static uint64_t next(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool fused(void)
{
#if defined(__GLIBC__) && defined(__x86_64__)
    return proa_isa_detect() >= PROA_ISA_AVX2;
#else
    return false;
#endif
}

static bool near64(double a, double b, bool exact)
{
    uint64_t x = proa_bits_of(a), y = proa_bits_of(b);
    if (a != a || b != b) return a != a && b != b;
    return x == y || (!exact && (x > y ? x - y : y - x) <= 1);
}

static bool near32(float a, float b, bool exact)
{
    uint32_t x, y;
    memcpy(&x, &a, 4), memcpy(&y, &b, 4);
    if (a != a || b != b) return a != a && b != b;
    return x == y || (!exact && (x > y ? x - y : y - x) <= 1);
}

/* Every 1,009th float. */
static void test_floats(void **unused)
{
    (void)unused;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1009) {
        uint32_t b = (uint32_t)bits;
        float x;
        memcpy(&x, &b, 4);
        if (!near32(proa_expf(x), expf(x), fused())) fail_msg("expf at bits %08x", b);
        if (!near32(proa_exp2f(x), exp2f(x), fused())) fail_msg("exp2f at bits %08x", b);
    }
}

static void check_double(double x)
{
    if (!near64(proa_exp(x), exp(x), fused())) fail_msg("exp(%a): %a, %a", x, proa_exp(x), exp(x));
    if (!near64(proa_exp2(x), exp2(x), false)) fail_msg("exp2(%a): %a, %a", x, proa_exp2(x), exp2(x));
}

static void test_doubles(void **unused)
{
    static const double odd[] = {
        0.0,        -0.0,   1.0,      -1.0,      0x1p-54, -0x1p-55,         511.9,
        512.0,      709.78, 709.79,   1023.99,   1024.0,  -708.39,          -708.4,
        -745.1,     -745.2, -1022.0,  -1074.9,   -1075.0, -1076.0,          928.0,
        929.0,      -929.0, 0x1p1000, -0x1p1000, 5e-324,  (double)INFINITY, -(double)INFINITY,
        (double)NAN};
    (void)unused;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) check_double(odd[i]);
    for (int i = 0; i < 4000000; i++) {
        static const double reach[] = {1, 40, 1100};
        uint64_t bits = next();
        check_double(i % 4 ? (double)(int64_t)bits / 0x1p63 * reach[i % 4 - 1] : proa_double_of(bits));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats), cmocka_unit_test(test_doubles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
