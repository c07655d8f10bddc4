/* SPDX-License-Identifier: Apache-2.0
 * test_split.c - how ranks share weights (proa_slot_split), checked against the programs of all architectures. A walk
 * knows of each register whether every rank has all of it or a part: a product by columns must read parts, any other
 * one what all ranks have, attention is over the heads of a rank, and the residual stream is never a part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "model/derive.h"
#include <cmocka.h>

/* Registers of which a rank has a part, while a program is walked. */
typedef struct walk {
    const char *arch;
    bool part[PROA_REG_COUNT];
} walk;

static void expect_part(const walk *w, const proa_step *s, proa_reg reg, bool part)
{
    if (w->part[reg] != part)
        fail_msg("%s: step %s with %s: a rank has %s of register %s", w->arch, proa_step_name(s->op),
                 proa_slot_name(s->w), part ? "all" : "a part", proa_reg_name(reg));
}

static void walk_product(walk *w, const proa_step *s)
{
    proa_split split = proa_slot_split(s->w);
    bool gives_part = split == PROA_SPLIT_ROWS || split == PROA_SPLIT_HEADS;
    bool of_parts = split == PROA_SPLIT_COLUMNS || split == PROA_SPLIT_INNER;
    expect_part(w, s, s->in, of_parts || s->op == PROA_STEP_HEADS_LINEAR);
    if (s->flags & PROA_ADD) expect_part(w, s, s->out, gives_part);
    if (s->flags & PROA_ADD_X) expect_part(w, s, PROA_REG_X, gives_part);
    if (!(s->flags & PROA_OF_K))
        w->part[s->out] = gives_part; /* a single key head beside the queries of a rank */
}

static void walk_step(walk *w, const proa_step *s)
{
    switch (s->op) {
    case PROA_STEP_LINEAR:
    case PROA_STEP_LINEAR_GATED:
    case PROA_STEP_HEADS_LINEAR: walk_product(w, s); break;
    case PROA_STEP_EXPERTS:
        expect_part(w, s, s->in, false);
        assert_int_equal(proa_slot_split(PROA_SLOT_EXPERT_UP), PROA_SPLIT_ROWS);
        assert_int_equal(proa_slot_split(PROA_SLOT_EXPERT_DOWN), PROA_SPLIT_COLUMNS);
        w->part[s->out] = false;
        break;
    case PROA_STEP_ROPE:
    case PROA_STEP_KV_APPEND:
    case PROA_STEP_ROPE_APPEND:
    case PROA_STEP_HEADS_NORM:
    case PROA_STEP_QUERY_SCALE:
    case PROA_STEP_CLIP:
    case PROA_STEP_XIELU:
    case PROA_STEP_SCALE_PARTS:
    case PROA_STEP_CROSS_APPEND: expect_part(w, s, s->in, true); break;
    case PROA_STEP_ATTEND:
        if (s->flags & PROA_OF_BLOCKS) expect_part(w, s, PROA_REG_BLOCK_QKV, true);
        /* fall through */
    case PROA_STEP_CROSS_ATTEND:
        expect_part(w, s, s->in, true);
        w->part[s->out] = true;
        break;
    case PROA_STEP_CONV_STATE:
    case PROA_STEP_GATED_DELTA:
    case PROA_STEP_SELECTIVE_SCAN:
        expect_part(w, s, s->in, true);
        if (s->op == PROA_STEP_GATED_DELTA || s->flags & PROA_BY_CHANNEL)
            expect_part(w, s, PROA_REG_RATES, true);
        if (s->op == PROA_STEP_SELECTIVE_SCAN) expect_part(w, s, PROA_REG_MIX, true);
        if (s->flags & PROA_BY_CHANNEL) expect_part(w, s, PROA_REG_PARAMS, false);
        w->part[s->out] = true;
        break;
    case PROA_STEP_GATE_INPUTS:
        expect_part(w, s, s->in, true);
        w->part[s->out] = true;
        break;
    case PROA_STEP_NORM_GATED:
    case PROA_STEP_GATE_OUTPUTS:
    case PROA_STEP_GATE_HEADS:
        expect_part(w, s, s->in, true);
        expect_part(w, s, s->out, true);
        break;
    case PROA_STEP_SIGMOID_MUL: expect_part(w, s, s->in, false); break; /* one number for each row */
    case PROA_STEP_EMBED:
    case PROA_STEP_DROP_MASKED:
    case PROA_STEP_ROPE_TABLE: w->part[s->out] = false; break;
    case PROA_STEP_GATE_SPARSE: /* by what all ranks have of the gates (collective.c) */
        expect_part(w, s, s->in, true);
        w->part[s->out] = true;
        break;
    case PROA_STEP_ROUND_ROWS:
        break; /* several ranks are refused where they have parts of these rows (shard.c) */
    case PROA_STEP_NORM:
        if (s->in == s->out && (s->in == PROA_REG_A || s->in == PROA_REG_F)) break; /* the same */
        /* fall through */
    case PROA_STEP_SCALE:
    case PROA_STEP_SCALE_COLUMNS:
    case PROA_STEP_GATE_LAYER:
    case PROA_STEP_ADD:
    case PROA_STEP_FIRST_STREAM:
    case PROA_STEP_TAKE_STREAM:
    case PROA_STEP_MATCH_STREAMS:
    case PROA_STEP_MIX_STREAMS:
    case PROA_STEP_CORRECT_STREAMS:
    case PROA_STEP_SPREAD_STREAM:
    case PROA_STEP_STREAM_LINEAR:
    case PROA_STEP_JOIN_STREAMS:
    case PROA_STEP_UNFOLD:
    case PROA_STEP_SPAN_MEAN:
    case PROA_STEP_BLOCK_SUMS:
    case PROA_STEP_ROUTE:
    case PROA_STEP_NORM_PARAMS:
    case PROA_STEP_PICK_KEYS:
    case PROA_STEP_GATHER:
        expect_part(w, s, s->in, false);
        w->part[s->out] = false;
        break;
    case PROA_STEP_ALL_REDUCE: /* not of rows: the plan puts them in (model/ranks/collective.h) */
    case PROA_STEP_GATHER_COLUMNS:
    case PROA_STEP_GATHER_INPUTS:
    case PROA_STEP_TAKE_COLUMNS:
    case PROA_STEP_GROUP_SQUARES:
    case PROA_STEP_GROUP_SCALE:
    case PROA_STEP_GROUP_NORM:
    case PROA_STEP_GATE_MOMENTS:
    case PROA_STEP_SEND: /* nor of rows: ranks/stage.h */
    case PROA_STEP_RECV:
    case PROA_STEP_BROADCAST:
    case PROA_STEP_END:
    case PROA_STEP_COUNT: break;
    }
    if (s->op != PROA_STEP_END && s->out == PROA_REG_X) expect_part(w, s, PROA_REG_X, false);
}

static void walk_program(const proa_arch *arch, const proa_step *program)
{
    walk w = {.arch = arch->name};
    for (const proa_step *s = program; s && s->op != PROA_STEP_END; s++) walk_step(&w, s);
}

static void test_programs(void **state)
{
    (void)state;
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++) {
        const proa_arch *arch = *row;
        for (int s = 0; s < PROA_STACK_COUNT; s++) {
            walk_program(arch, arch->stacks[s].embed);
            walk_program(arch, arch->stacks[s].layer);
            walk_program(arch, arch->stacks[s].after);
        }
        walk_program(arch, arch->cross);
        walk_program(arch, arch->head);
        walk_program(arch, arch->pool);
    }
}

static void test_biases(void **state)
{
    (void)state;
    assert_int_equal(proa_slot_split(PROA_SLOT_QKV_B), PROA_SPLIT_HEADS);
    assert_int_equal(proa_slot_split(PROA_SLOT_UP_B), PROA_SPLIT_ROWS);
    assert_int_equal(proa_slot_split(PROA_SLOT_O_B), PROA_SPLIT_NONE);
    assert_int_equal(proa_slot_split(PROA_SLOT_DOWN_B), PROA_SPLIT_NONE);
    assert_int_equal(proa_slot_split(PROA_SLOT_ATTN_NORM_B), PROA_SPLIT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_biases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
