/* SPDX-License-Identifier: Apache-2.0
 * test_collective.c - where the collective steps of a rank are, and what it leaves to rank 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checked.h"
#include "model/ranks/collective.h"
#include <cmocka.h>

static proa_program program_of(const proa_step *steps)
{
    proa_program p = {.count = 0};
    while (steps[p.count].op != PROA_STEP_END) p.step[p.count] = steps[p.count], p.count++;
    p.step[p.count] = steps[p.count];
    return p;
}

/* Two layers, the first one dense, the second one of experts. */
static bool second[] = {false, true};
static const proa_config plain = {.experts = 4, .expert_layers = second, .layers = 2},
                         whole = {.experts = 4, .expert_layers = second, .layers = 2, .sum_split = 16};

static void assert_steps(const proa_program *p, const proa_step *want)
{
    for (int32_t i = 0; i <= p->count; i++) {
        assert_int_equal(p->step[i].op, want[i].op);
        assert_int_equal(p->step[i].out, want[i].out);
        assert_true(p->step[i].flags == want[i].flags);
    }
    assert_int_equal(want[p->count].op, PROA_STEP_END);
}

#define STEP(OP, IN, OUT, W, FLAGS)                                                                          \
    {                                                                                                        \
        PROA_STEP_##OP, PROA_REG_##IN, PROA_REG_##OUT, PROA_SLOT_##W, FLAGS                                  \
    }
#define SUM(REG, FLAGS)                                                                                      \
    {                                                                                                        \
        PROA_STEP_ALL_REDUCE, PROA_REG_PART, PROA_REG_##REG, 0, FLAGS                                        \
    }
#define END                                                                                                  \
    {                                                                                                        \
        PROA_STEP_END, 0, 0, 0, 0                                                                            \
    }

static void test_sequential(void **state)
{
    PROA_UNUSED(state);
    static const proa_step layer[] = {STEP(LINEAR, A, X, O, PROA_ADD), STEP(NORM, X, N, FFN_NORM, 0),
                                      STEP(LINEAR, N, U, UP, PROA_ACT), STEP(LINEAR, U, X, DOWN, PROA_ADD), END};
    static const proa_step rank[] = {STEP(LINEAR, A, PART, O, 0),
                                     SUM(X, PROA_ADD),
                                     STEP(NORM, X, N, FFN_NORM, 0),
                                     STEP(LINEAR, N, U, UP, PROA_ACT),
                                     STEP(LINEAR, U, PART, DOWN, 0),
                                     SUM(X, PROA_ADD),
                                     END};
    proa_program p = program_of(layer);
    proa_collective_steps(&p, &plain, 0, false);
    assert_steps(&p, rank);
}

/* Attention and FFN side by side: one sum for both. */
static void test_parallel(void **state)
{
    PROA_UNUSED(state);
    static const proa_step layer[] = {STEP(LINEAR, N, U, UP, PROA_ACT | PROA_FORK),
                                      STEP(LINEAR, A, X, O, PROA_ADD),
                                      STEP(LINEAR, U, X, DOWN, PROA_ADD | PROA_JOIN), END};
    static const proa_step rank[] = {STEP(LINEAR, N, U, UP, PROA_ACT | PROA_FORK), STEP(LINEAR, A, PART, O, 0),
                                     STEP(LINEAR, U, PART, DOWN, PROA_ADD | PROA_JOIN), SUM(X, PROA_ADD), END};
    proa_program p = program_of(layer);
    proa_collective_steps(&p, &plain, 0, false);
    assert_steps(&p, rank);
}

/* Layers that are dense or of experts: in each kind the first product that adds to X begins the sum. */
static void test_experts(void **state)
{
    PROA_UNUSED(state);
    const uint64_t dense = PROA_IF(DENSE), experts = PROA_IF(EXPERTS);
    const proa_step layer[] = {
        STEP(LINEAR, F, X, DOWN, PROA_ADD | dense), STEP(LINEAR, F, X, SHARED_DOWN, PROA_ADD | experts),
        STEP(EXPERTS, N, X, EXPERT_UP, PROA_ADD | experts), STEP(NORM, X, N, ATTN_NORM, experts), END};
    const proa_step rank[] = {STEP(LINEAR, F, PART, DOWN, dense),
                              STEP(LINEAR, F, PART, SHARED_DOWN, experts),
                              STEP(EXPERTS, N, PART, EXPERT_UP, PROA_ADD | experts),
                              SUM(X, PROA_ADD | experts),
                              STEP(NORM, X, N, ATTN_NORM, experts),
                              SUM(X, PROA_ADD | dense),
                              END};
    proa_program p = program_of(layer);
    proa_collective_steps(&p, &plain, 2, false);
    assert_steps(&p, rank);
}

/* A sum without a residual, or to which X is added. The outputs of the head are gathered. A branch is joined before its
 * sum. */
static void test_head(void **state)
{
    PROA_UNUSED(state);
    static const proa_step head[] = {STEP(LINEAR, A, D, O, 0),
                                     STEP(NORM, D, HN, FINAL_NORM, PROA_JOIN),
                                     STEP(LINEAR, A, D, O, PROA_ADD_X),
                                     STEP(SCALE, D, HN, TOKENS, 0),
                                     STEP(LINEAR, HN, OUT, HEAD, PROA_SCALED),
                                     END};
    static const proa_step rank[] = {STEP(LINEAR, A, PART, O, 0),
                                     SUM(D, PROA_JOIN),
                                     STEP(NORM, D, HN, FINAL_NORM, 0),
                                     STEP(LINEAR, A, PART, O, 0),
                                     SUM(D, PROA_ADD_X),
                                     STEP(SCALE, D, HN, TOKENS, 0),
                                     STEP(LINEAR, HN, OUT_PART, HEAD, PROA_SCALED),
                                     {PROA_STEP_GATHER_COLUMNS, PROA_REG_OUT_PART, PROA_REG_OUT, 0, 0},
                                     END};
    proa_program p = program_of(head);
    proa_collective_steps(&p, &plain, 0, true);
    assert_steps(&p, rank);
}

/* No rank has a term: inputs are gathered, then the columns of the sum. */
static void test_whole_sums(void **state)
{
    PROA_UNUSED(state);
    const uint64_t experts = PROA_IF(EXPERTS);
    static const proa_step layer[] = {
        STEP(LINEAR, N, U, UP, PROA_ACT | PROA_FORK), STEP(LINEAR, A, D, O, PROA_ADD_X | PROA_JOIN),
        STEP(EXPERTS, N, X, EXPERT_UP, PROA_ADD | PROA_IF(EXPERTS)), STEP(LINEAR, F, D, DOWN, 0), END};
    const proa_step rank[] = {STEP(LINEAR, N, U, UP, PROA_ACT),
                              {PROA_STEP_TAKE_COLUMNS, PROA_REG_X, PROA_REG_PART, 0, 0},
                              {PROA_STEP_GATHER_INPUTS, PROA_REG_A, PROA_REG_SUM_IN, PROA_SLOT_O, 0},
                              STEP(LINEAR, SUM_IN, PART, O, PROA_ADD),
                              {PROA_STEP_GATHER_COLUMNS, PROA_REG_PART, PROA_REG_D, 0, 0},
                              {PROA_STEP_TAKE_COLUMNS, PROA_REG_X, PROA_REG_PART, 0, experts},
                              STEP(EXPERTS, N, PART, EXPERT_UP, PROA_ADD | experts),
                              {PROA_STEP_GATHER_COLUMNS, PROA_REG_PART, PROA_REG_X, 0, experts},
                              {PROA_STEP_GATHER_INPUTS, PROA_REG_F, PROA_REG_SUM_IN, PROA_SLOT_DOWN, 0},
                              STEP(LINEAR, SUM_IN, PART, DOWN, 0),
                              {PROA_STEP_GATHER_COLUMNS, PROA_REG_PART, PROA_REG_D, 0, 0},
                              END};
    proa_program p = program_of(layer);
    proa_collective_steps(&p, &whole, 2, false);
    assert_steps(&p, rank);
}

/* Layers with attention, with a recurrent state, with both, with neither. */
static bool attend[] = {true, false, true, false}, recur[] = {false, true, true, false};

static proa_program mixers(const proa_config *c, int64_t layers)
{
    const proa_flags attends = PROA_IF(ATTENDS), recurs = PROA_IF(RECURS);
    const proa_step layer[] = {STEP(LINEAR, RECALL, X, MIX_OUT, PROA_ADD | recurs),
                               STEP(LINEAR, A, X, O, PROA_ADD | attends), STEP(NORM, X, N, FFN_NORM, 0), END};
    proa_program p = program_of(layer);
    proa_collective_steps(&p, c, layers, false);
    return p;
}

static void test_mixers(void **state)
{
    PROA_UNUSED(state);
    const proa_flags attends = PROA_IF(ATTENDS), recurs = PROA_IF(RECURS);
    proa_config c = {.layers = 2, .attending_layers = attend, .recurrent_layers = recur};
    proa_program p = mixers(&c, 2);
    /* one or the other: a sum in all layers */
    const proa_step either[] = {STEP(LINEAR, RECALL, PART, MIX_OUT, recurs), STEP(LINEAR, A, PART, O, attends),
                                SUM(X, PROA_ADD), STEP(NORM, X, N, FFN_NORM, 0), END};
    assert_steps(&p, either);
    /* both in each: one sum for both */
    c.attending_layers = attend + 2, c.recurrent_layers = recur + 2;
    p = mixers(&c, 1);
    const proa_step both[] = {STEP(LINEAR, RECALL, PART, MIX_OUT, recurs),
                              STEP(LINEAR, A, PART, O, PROA_ADD | attends), SUM(X, PROA_ADD),
                              STEP(NORM, X, N, FFN_NORM, 0), END};
    assert_steps(&p, both);
    /* both in some: each has its sum, and where there is neither, there is none */
    c = (proa_config){.layers = 4, .attending_layers = attend, .recurrent_layers = recur};
    p = mixers(&c, 4);
    const proa_step some[] = {STEP(LINEAR, RECALL, PART, MIX_OUT, recurs),
                              SUM(X, PROA_ADD | recurs),
                              STEP(LINEAR, A, PART, O, attends),
                              SUM(X, PROA_ADD | attends),
                              STEP(NORM, X, N, FFN_NORM, 0),
                              END};
    assert_steps(&p, some);
}

/* The norm of groups of which ranks have parts: their mean squares are added, or all columns are gathered. */
static void test_parted_norm(void **state)
{
    PROA_UNUSED(state);
    static const proa_step layer[] = {STEP(NORM_GATED, MIX, RECALL, RECALL_NORM, 0),
                                      STEP(LINEAR, RECALL, X, MIX_OUT, PROA_ADD), END};
    static const proa_step terms[] = {STEP(GATE_OUTPUTS, MIX, RECALL, TOKENS, 0),
                                      STEP(GROUP_SQUARES, RECALL, SQUARES, TOKENS, 0),
                                      STEP(ALL_REDUCE, SQUARES, SQUARES, TOKENS, 0),
                                      STEP(GROUP_SCALE, SQUARES, RECALL, RECALL_NORM, 0),
                                      STEP(LINEAR, RECALL, PART, MIX_OUT, 0),
                                      SUM(X, PROA_ADD),
                                      END};
    static const proa_step all[] = {
        STEP(GATHER_INPUTS, RECALL, SUM_IN, MIX_OUT, 0), STEP(GROUP_NORM, SUM_IN, RECALL, RECALL_NORM, 0),
        STEP(GATE_OUTPUTS, MIX, RECALL, TOKENS, 0),      STEP(TAKE_COLUMNS, X, PART, TOKENS, 0),
        STEP(GATHER_INPUTS, RECALL, SUM_IN, MIX_OUT, 0), STEP(LINEAR, SUM_IN, PART, MIX_OUT, PROA_ADD),
        STEP(GATHER_COLUMNS, PART, X, TOKENS, 0),        END};
    proa_program p = program_of(layer);
    const proa_config by_terms = {.recall_groups = 1, .recall_width = 64, .gate_first = true},
                      by_rows = {.recall_groups = 1, .recall_width = 64, .sum_split = 16};
    proa_collective_steps(&p, &by_terms, 0, false);
    assert_steps(&p, terms);
    p = program_of(layer);
    proa_collective_steps(&p, &by_rows, 0, false);
    assert_steps(&p, all);
}

/* A sum within a layer is added in place, or each rank makes all of it. */
static void test_inner_sum(void **state)
{
    PROA_UNUSED(state);
    static const proa_step layer[] = {STEP(LINEAR, MIXED, PARAMS, PARAMS, 0),
                                      STEP(LINEAR, PARAMS, RATES, RATES, 0), END};
    static const proa_step terms[] = {STEP(LINEAR, MIXED, PARAMS, PARAMS, 0),
                                      STEP(ALL_REDUCE, PARAMS, PARAMS, TOKENS, 0),
                                      STEP(LINEAR, PARAMS, RATES, RATES, 0), END};
    static const proa_step all[] = {STEP(GATHER_INPUTS, MIXED, SUM_IN, PARAMS, 0),
                                    STEP(LINEAR, SUM_IN, PARAMS, PARAMS, 0),
                                    STEP(LINEAR, PARAMS, RATES, RATES, 0), END};
    const proa_config by_terms = {.step_rank = 4}, by_rows = {.step_rank = 4, .sum_split = 16};
    proa_program p = program_of(layer);
    proa_collective_steps(&p, &by_terms, 0, false);
    assert_steps(&p, terms);
    p = program_of(layer);
    proa_collective_steps(&p, &by_rows, 0, false);
    assert_steps(&p, all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential),  cmocka_unit_test(test_parallel),   cmocka_unit_test(test_experts),
        cmocka_unit_test(test_head),        cmocka_unit_test(test_whole_sums), cmocka_unit_test(test_mixers),
        cmocka_unit_test(test_parted_norm), cmocka_unit_test(test_inner_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
