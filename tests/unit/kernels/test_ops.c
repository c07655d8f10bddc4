/* SPDX-License-Identifier: Apache-2.0
 * test_ops.c - names, tables, the context, and the buckets of relative positions. The ops are kerncheck's. */
#include "kernels/ops.h"

#include "base/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static proa_act act_named(const char *name)
{
    proa_act act = PROA_ACT_COUNT;
    return proa_act_find(proa_str_c(name), &act) ? act : PROA_ACT_COUNT;
}

static void test_activation_names(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *name;
        proa_act act;
    } names[] = {{"relu", PROA_ACT_RELU},
                 {"gelu", PROA_ACT_GELU},
                 {"gelu_new", PROA_ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", PROA_ACT_GELU_TANH},
                 {"gelu_fast", PROA_ACT_GELU_TANH},
                 {"quick_gelu", PROA_ACT_QUICK_GELU},
                 {"silu", PROA_ACT_SILU},
                 {"swish", PROA_ACT_SILU},
                 {"tanh", PROA_ACT_TANH},
                 {"linear", PROA_ACT_NONE},
                 {"relu2", PROA_ACT_RELU2},
                 {"mish", PROA_ACT_COUNT},
                 {"", PROA_ACT_COUNT}};
    for (size_t i = 0; i < PROA_COUNT(names); i++) assert_int_equal(act_named(names[i].name), names[i].act);
    for (int i = 0; i < PROA_ACT_COUNT; i++) assert_int_equal(act_named(proa_act_name((proa_act)i)), i);
}

/* transformers' formula in numpy float32: 32 buckets, distance 128 (both shipped with every T5). */
static void test_relative_buckets(void **state)
{
    PROA_UNUSED(state);
    static const int32_t rows[][3] = {
        {-5000, 15, 31}, {-200, 15, 31}, {-128, 15, 31}, {-127, 15, 31}, {-100, 15, 30}, {-64, 14, 26},
        {-63, 13, 26},   {-50, 13, 24},  {-32, 12, 21},  {-31, 11, 21},  {-20, 10, 17},  {-16, 10, 16},
        {-15, 9, 15},    {-12, 9, 12},   {-8, 8, 8},     {-7, 7, 7},     {-1, 1, 1},     {0, 0, 0},
        {1, 17, 0},      {7, 23, 0},     {8, 24, 0},     {11, 24, 0},    {12, 25, 0},    {15, 25, 0},
        {16, 26, 0},     {22, 26, 0},    {23, 27, 0},    {31, 27, 0},    {32, 28, 0},    {45, 28, 0},
        {46, 29, 0},     {63, 29, 0},    {64, 30, 0},    {90, 30, 0},    {91, 31, 0},    {128, 31, 0},
        {500, 31, 0}};
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        assert_int_equal(proa_rel_bucket(rows[i][0], 32, 128, true), rows[i][1]);
        assert_int_equal(proa_rel_bucket(rows[i][0], 32, 128, false), rows[i][2]);
    }
}

static void test_tables(void **state)
{
    PROA_UNUSED(state);
    proa_isa have = proa_isa_detect();
    for (int i = 0; i < PROA_ISA_COUNT; i++) {
        const proa_ops *ops = proa_ops_cpu((proa_isa)i);
        assert_int_equal(ops != NULL, i <= (int)have);
        if (!ops) continue;
        assert_string_equal(ops->name, proa_isa_name((proa_isa)i));
        assert_non_null(ops->pack_bytes);
#define PROA_OP(op, args) assert_non_null(ops->op);
#include "kernels/ops.def"
#undef PROA_OP
        assert_non_null(ops->decode);
#define PROA_OP(op, args) assert_non_null(ops->decode->op);
#include "kernels/decode.def"
#undef PROA_OP
    }
    assert_string_equal(proa_op_names[0], "embed");
}

static void test_context(void **state)
{
    PROA_UNUSED(state);
    proa_pool *pool = proa_pool_new(2);
    proa_ctx c;
    proa_err err = {0};
    proa_ctx_need need = {.rows = 64, .inputs = 1000, .heads = 8, .head_dim = 64, .columns = 5000};
    assert_int_equal(proa_ctx_init(&c, NULL, pool, &need, &err), PROA_OK);
    assert_non_null(c.ops);
    assert_true(c.scratch_bytes >= proa_ctx_scratch_bytes(&need, 2));
    assert_int_equal((uintptr_t)c.scratch % 64, 0);
    proa_ctx_release(&c);
    assert_null(c.scratch);
    need.columns = (int64_t)1 << 52; /* more than any address space */
    assert_int_equal(proa_ctx_init(&c, NULL, pool, &need, &err), PROA_NO_MEMORY);
    assert_non_null(strstr(err.text, "scratch"));
    proa_ctx_release(&c);
    proa_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_activation_names),
                                       cmocka_unit_test(test_relative_buckets), cmocka_unit_test(test_tables),
                                       cmocka_unit_test(test_context)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
