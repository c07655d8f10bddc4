/* SPDX-License-Identifier: Apache-2.0
 * test_cpu.c - the level of the CPU and its choice by the environment; caches; the quota of CPUs; the clock. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/cpu.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

static void write_cache(const char *root, int cpu, int index, const char *level, const char *size,
                        const char *shared)
{
    const char *names[] = {"level", "size", "shared_cpu_list"}, *values[] = {level, size, shared};
    char path[512];
    snprintf(path, sizeof path, "mkdir -p %s/cpu%d/cache/index%d", root, cpu, index);
    assert_int_equal(system(path), 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/cpu%d/cache/index%d/%s", root, cpu, index, names[i]);
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        fprintf(file, "%s\n", values[i]);
        fclose(file);
    }
}

/* Two complexes of two CPUs, each with 32 MB, and a CPU without a list. */
static void test_caches(void **state)
{
    char root[] = "/tmp/proa-caches-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    for (int cpu = 0; cpu < 4; cpu++) {
        const char *own[] = {"0", "1", "2", "3"};
        write_cache(root, cpu, 0, "1", "32K", own[cpu]);
        write_cache(root, cpu, 1, "2", "1024K", own[cpu]);
        write_cache(root, cpu, 2, "3", "32768K", cpu % 2 ? "1,3" : "0,2-2");
    }
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    assert_int_equal(proa_cpu_cache_bytes_of(root, &allowed), 0);
    CPU_SET(3, &allowed);
    assert_int_equal(proa_cpu_cache_bytes_of(root, &allowed), 32 << 20);
    CPU_SET(1, &allowed);
    assert_int_equal(proa_cpu_cache_bytes_of(root, &allowed), 32 << 20);
    CPU_SET(2, &allowed);
    CPU_SET(9, &allowed);
    assert_int_equal(proa_cpu_cache_bytes_of(root, &allowed), 64 << 20);
    write_cache(root, 2, 2, "3", "-1", "x");
    assert_int_equal(proa_cpu_cache_bytes_of(root, &allowed), 32 << 20);
    assert_true(proa_cpu_cache_bytes() >= 0 && proa_cpu_cache_bytes() < INT64_C(1) << 40);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
    (void)state;
}

static char folder[] = "/tmp/proa-quota-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void drop(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(remove(path), 0);
}

/* What the kernel writes into these files: docker's --cpus 2, 1.5 and 0.25, no limit; nonsense is no limit either. */
static void test_quota(void **state)
{
    static const struct {
        const char *text;
        int cpus;
    } two[] = {{"200000 100000\n", 2},
               {"150000 100000\n", 2},
               {"25000 100000\n", 1},
               {"max 100000\n", 0},
               {"", 0},
               {"200000", 0},
               {"-5 100000\n", 0},
               {"200000 0\n", 0},
               {"9000000000000 1\n", PROA_THREADS_MAX}};
    char path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(proa_cpu_quota(folder), 0);
    for (size_t i = 0; i < PROA_COUNT(two); i++) {
        put("cpu.max", two[i].text);
        assert_int_equal(proa_cpu_quota(folder), two[i].cpus);
    }
    drop("cpu.max");
    snprintf(path, sizeof path, "%s/cpu", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    put("cpu/cpu.cfs_quota_us", "300000\n");
    assert_int_equal(proa_cpu_quota(folder), 0); /* of which period? */
    put("cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(proa_cpu_quota(folder), 3);
    put("cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(proa_cpu_quota(folder), 0);
    drop("cpu/cpu.cfs_quota_us"), drop("cpu/cpu.cfs_period_us"), drop("cpu"), drop("");
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),  cmocka_unit_test(test_choice), cmocka_unit_test(test_clock),
        cmocka_unit_test(test_caches), cmocka_unit_test(test_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
