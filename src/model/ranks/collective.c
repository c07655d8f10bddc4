/* SPDX-License-Identifier: Apache-2.0
 * collective.c - where ranks meet: the collective steps of a program. */
#include "model/ranks/collective.h"

#include "base/checked.h"

/* Steps may apply in some layers only (PROA_CONDITIONS_BY_LAYER). The kind of a layer is a number of three bits: it has
 * experts, not a dense FFN; it is the first one; it has a recurrent state, not attention. A set of kinds is a mask. */
enum { BIT_COUNT = 3, KIND_COUNT = 1 << BIT_COUNT, ALL_KINDS = (1 << KIND_COUNT) - 1 };

/* The condition of a bit that is 0 or 1, and the kinds in which it is. */
static const struct {
    proa_flags condition;
    uint32_t kinds;
} bits[BIT_COUNT][2] = {{{PROA_IF(DENSE), 0x55}, {PROA_IF(EXPERTS), 0xAA}},
                        {{PROA_IF(LATER_LAYERS), 0x33}, {PROA_IF(FIRST_LAYER), 0xCC}},
                        {{PROA_IF(ATTENDS), 0x0F}, {PROA_IF(RECURS), 0xF0}}};

typedef struct writer {
    proa_program *out;
    proa_reg sum;      /* the register for which PART holds a term in each rank */
    uint64_t residual; /* what it is added to: PROA_ADD, PROA_ADD_X or nothing */
    uint32_t kinds;    /* the kinds of layers in which PART holds a term; 0: in none */
} writer;

bool proa_step_is_partial(const proa_step *s)
{
    bool by_columns = s->op == PROA_STEP_LINEAR && proa_slot_split(s->w) == PROA_SPLIT_COLUMNS;
    return by_columns || s->op == PROA_STEP_EXPERTS;
}

/* The kinds of layers in which a step applies. */
static uint32_t kinds_of(const proa_step *s)
{
    proa_flags left = s->flags & PROA_CONDITIONS_BY_LAYER;
    uint32_t kinds = ALL_KINDS;
    for (int i = 0; i < BIT_COUNT; i++)
        for (int value = 0; value < 2; value++)
            if (left & bits[i][value].condition)
                kinds &= bits[i][value].kinds, left &= ~bits[i][value].condition;
    PROA_ASSERT(!left && kinds); /* conditions do not exclude each other */
    return kinds;
}

/* The condition that holds in the most of these kinds, and in no other one; *covered: in which. */
static proa_flags widest_condition(uint32_t kinds, uint32_t *covered)
{
    enum { CODES = 27 }; /* a digit of base 3 for each bit: 0, 1, or 2 for both */
    proa_flags widest = 0;
    *covered = 0;
    for (int code = 0; code < CODES; code++) {
        proa_flags condition = 0;
        uint32_t mask = ALL_KINDS;
        for (int i = 0, digits = code; i < BIT_COUNT; i++, digits /= 3)
            if (digits % 3 < 2) condition |= bits[i][digits % 3].condition, mask &= bits[i][digits % 3].kinds;
        if (mask & ~kinds || PROA_POPCOUNT64(mask) <= PROA_POPCOUNT64(*covered)) continue;
        widest = condition, *covered = mask;
    }
    return widest;
}

static void emit_step(writer *w, proa_step s)
{
    PROA_ASSERT(w->out->count < PROA_PROGRAM_MAX - 1);
    w->out->step[w->out->count++] = s;
}

/* Sums in these kinds of layers: by one step, or by some that exclude each other. `join`: the flag, or 0. */
static void emit_sum(writer *w, uint32_t kinds, proa_flags join)
{
    for (uint32_t covered; kinds; kinds &= ~covered, join = 0) {
        proa_flags where = widest_condition(kinds, &covered);
        emit_step(w, (proa_step){PROA_STEP_ALL_REDUCE, PROA_REG_PART, w->sum, 0, w->residual | join | where});
    }
}

/* Puts the sum before a step that reads or writes its register. The branches of a fork are joined before it. */
static void complete_sum(writer *w, proa_step *before)
{
    uint32_t kinds = w->kinds & kinds_of(before);
    if (!kinds) return;
    emit_sum(w, kinds, before->flags & PROA_JOIN);
    before->flags &= ~(proa_flags)PROA_JOIN;
    w->kinds &= ~kinds;
}

static bool step_touches(const proa_step *s, proa_reg reg)
{
    return s->in == reg || s->out == reg || (s->flags & PROA_ADD_X && reg == PROA_REG_X);
}

/* A product writes its term into PART, the first one of a sum; a later one adds to it. */
static void write_partial(writer *w, proa_step s)
{
    const uint64_t residual = PROA_ADD | PROA_ADD_X;
    uint32_t kinds = kinds_of(&s);
    bool adds = s.out == w->sum && s.flags & PROA_ADD;
    if (s.in == w->sum || !adds) complete_sum(w, &s);
    uint32_t begun = w->kinds & kinds;
    PROA_ASSERT(begun == 0 || begun == kinds);
    PROA_ASSERT(w->kinds == 0 || (w->sum == s.out && w->residual == (s.flags & residual)));
    if (!begun) w->residual = s.flags & residual;
    s.flags &= ~residual;
    if (begun) s.flags |= PROA_ADD;
    w->sum = s.out, w->kinds |= kinds;
    s.out = PROA_REG_PART;
    emit_step(w, s);
}

static void write_whole(writer *w, proa_step s, bool head_split)
{
    bool is_head = head_split && s.op == PROA_STEP_LINEAR && s.w == PROA_SLOT_HEAD && s.out == PROA_REG_OUT;
    if (step_touches(&s, w->sum)) complete_sum(w, &s);
    if (is_head) s.out = PROA_REG_OUT_PART;
    emit_step(w, s);
    if (is_head) emit_step(w, (proa_step){PROA_STEP_GATHER_COLUMNS, PROA_REG_OUT_PART, PROA_REG_OUT, 0, 0});
}

/* A product of which this rank makes some columns: the residual's go before it. Experts read what all ranks have. */
static void write_columns(writer *w, proa_step s)
{
    proa_flags where = s.flags & PROA_CONDITIONS_BY_LAYER, residual = s.flags & (PROA_ADD | PROA_ADD_X);
    proa_reg from = s.flags & PROA_ADD_X ? PROA_REG_X : s.out, to = s.out;
    if (residual) emit_step(w, (proa_step){PROA_STEP_TAKE_COLUMNS, from, PROA_REG_PART, 0, where});
    if (s.op == PROA_STEP_LINEAR) {
        emit_step(w, (proa_step){PROA_STEP_GATHER_INPUTS, s.in, PROA_REG_SUM_IN, s.w, where});
        s.in = PROA_REG_SUM_IN;
    }
    s.out = PROA_REG_PART;
    s.flags &= ~residual;
    if (residual) s.flags |= PROA_ADD;
    emit_step(w, s);
    emit_step(w, (proa_step){PROA_STEP_GATHER_COLUMNS, PROA_REG_PART, to, 0, where});
}

void proa_collective_steps(proa_program *p, bool head_split, bool whole_sums)
{
    proa_program from = *p;
    writer w = {.out = p};
    p->count = 0;
    for (int32_t i = 0; i < from.count && whole_sums; i++)
        from.step[i].flags &= ~(proa_flags)(PROA_FORK | PROA_JOIN); /* no branch crosses a collective */
    for (int32_t i = 0; i < from.count; i++) {
        if (whole_sums && proa_step_is_partial(&from.step[i])) write_columns(&w, from.step[i]);
        else if (proa_step_is_partial(&from.step[i])) write_partial(&w, from.step[i]);
        else write_whole(&w, from.step[i], head_split);
    }
    emit_sum(&w, w.kinds, 0);
    p->step[p->count] = (proa_step){PROA_STEP_END, 0, 0, 0, 0};
}
