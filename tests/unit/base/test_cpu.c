/* SPDX-License-Identifier: Apache-2.0
 * test_cpu.c - the level of the CPU and its choice by the environment; the clock. */
#include "base/clock.h"
#include "base/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_names(void **state)
{
    assert_string_equal(proa_isa_name(PROA_ISA_GENERIC), "generic");
    assert_string_equal(proa_isa_name(PROA_ISA_AVX2), "avx2");
    assert_string_equal(proa_isa_name(PROA_ISA_BF16), "avx512_bf16");
    assert_string_equal(proa_isa_name(PROA_ISA_AMX), "amx");
    (void)state;
}

static void test_choice(void **state)
{
    proa_isa have = proa_isa_detect();
    assert_in_range(have, PROA_ISA_GENERIC, PROA_ISA_COUNT - 1);
    assert_int_equal(proa_isa_detect(), have);
    unsetenv("PROA_ISA");
    assert_int_equal(proa_isa_choose(), have);
    setenv("PROA_ISA", "", 1);
    assert_int_equal(proa_isa_choose(), have);
    for (int i = 0; i < PROA_ISA_COUNT; i++) { /* no level above the CPU's can be forced */
        setenv("PROA_ISA", proa_isa_name((proa_isa)i), 1);
        assert_int_equal(proa_isa_choose(), i <= (int)have ? i : (int)have);
    }
    setenv("PROA_ISA", "AVX-9000", 1);
    assert_int_equal(proa_isa_choose(), have);
    unsetenv("PROA_ISA");
    (void)state;
}

static void test_clock(void **state)
{
    int64_t last = proa_clock_ns(), first = last;
    for (int i = 0; i < 10000; i++) {
        int64_t now = proa_clock_ns();
        assert_true(now >= last);
        last = now;
    }
    assert_true(last > first && last - first < INT64_C(60000000000));
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
