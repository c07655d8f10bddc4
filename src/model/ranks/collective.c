/* SPDX-License-Identifier: Apache-2.0
 * collective.c - where ranks meet: the collective steps of a program. */
#include "model/ranks/collective.h"

#include "base/checked.h"

/* Steps may apply in some layers only (PROA_CONDITIONS_BY_LAYER). Layers in which the same of these conditions hold are
 * of one kind. A set of kinds is a mask. */
enum { CONDITIONS_MAX = 12, KINDS_MAX = 64 };

typedef struct layer_kinds {
    proa_flags condition[CONDITIONS_MAX]; /* those that the program has */
    uint64_t holds[CONDITIONS_MAX];       /* in which kinds */
    int conditions, count;
} layer_kinds;

typedef struct writer {
    proa_program *out;
    const proa_config *c;
    layer_kinds layers;
    proa_reg sum;        /* the register for which PART holds a term in each rank */
    proa_flags residual; /* what it is added to: PROA_ADD, PROA_ADD_X or nothing */
    uint64_t kinds;      /* the kinds of layers in which PART holds a term; 0: in none */
} writer;

static uint64_t all_kinds(const layer_kinds *l)
{
    return l->count == KINDS_MAX ? UINT64_MAX : (UINT64_C(1) << l->count) - 1;
}

static void find_conditions(layer_kinds *l, const proa_program *p)
{
    proa_flags used = 0;
    for (int32_t i = 0; i < p->count; i++) used |= p->step[i].flags & PROA_CONDITIONS_BY_LAYER;
    for (int i = 0; i < PROA_CONDITION_COUNT; i++) {
        proa_flags condition = used & (proa_flags)1 << (PROA_CONDITION_SHIFT + i);
        if (!condition) continue;
        PROA_ASSERT(l->conditions < CONDITIONS_MAX);
        l->condition[l->conditions++] = condition;
    }
}

/* Adds the kind in which these conditions hold, unless it is there. */
static void add_kind(layer_kinds *l, unsigned hold)
{
    bool there = false;
    for (int kind = 0; kind < l->count && !there; kind++) {
        there = true;
        for (int i = 0; i < l->conditions; i++) there = there && (l->holds[i] >> kind & 1) == (hold >> i & 1);
    }
    if (there) return;
    PROA_ASSERT(l->count < KINDS_MAX);
    for (int i = 0; i < l->conditions; i++) l->holds[i] |= (uint64_t)(hold >> i & 1) << l->count;
    l->count++;
}

/* layers 0: a program that is not of layers is of one kind. */
static layer_kinds find_kinds(const proa_program *p, const proa_config *c, int64_t layers)
{
    layer_kinds l = {.count = 0};
    find_conditions(&l, p);
    PROA_ASSERT(layers > 0 || l.conditions == 0);
    for (int64_t layer = 0; layer < proa_max64(layers, 1); layer++) {
        unsigned hold = 0;
        for (int i = 0; i < l.conditions; i++) {
            const proa_step with = {.flags = l.condition[i]};
            hold |= (unsigned)proa_step_applies(&with, c, layer) << i;
        }
        add_kind(&l, hold);
    }
    return l;
}

bool proa_step_is_partial(const proa_step *s)
{
    bool by_columns = s->op == PROA_STEP_LINEAR && proa_slot_split(s->w) == PROA_SPLIT_COLUMNS;
    return by_columns || s->op == PROA_STEP_EXPERTS;
}

/* The kinds of layers in which a step applies. */
static uint64_t kinds_of(const layer_kinds *l, const proa_step *s)
{
    uint64_t kinds = all_kinds(l);
    for (int i = 0; i < l->conditions; i++)
        if (s->flags & l->condition[i]) kinds &= l->holds[i];
    return kinds;
}

/* The conditions that hold in the most of these kinds, and in no other one; *covered: in which. */
static proa_flags widest_condition(const layer_kinds *l, uint64_t kinds, uint64_t *covered)
{
    proa_flags widest = 0;
    *covered = 0;
    for (unsigned code = 0; code < 1U << l->conditions; code++) {
        proa_step with = {.flags = 0};
        for (int i = 0; i < l->conditions; i++)
            if (code >> i & 1) with.flags |= l->condition[i];
        uint64_t mask = kinds_of(l, &with);
        if (mask & ~kinds || PROA_POPCOUNT64(mask) <= PROA_POPCOUNT64(*covered)) continue;
        widest = with.flags, *covered = mask;
    }
    PROA_ASSERT(*covered);
    return widest;
}

/* Where a rank has its term of a sum, or its columns. */
static proa_reg part_of_sum(proa_reg sum)
{
    return sum == PROA_REG_EXPERT_OUT ? PROA_REG_EXPERT_PART : PROA_REG_PART;
}

static void emit_step(writer *w, proa_step s)
{
    PROA_ASSERT(w->out->count < PROA_PROGRAM_MAX - 1);
    w->out->step[w->out->count++] = s;
}

/* Sums in these kinds of layers: by one step, or by some that exclude each other. `join`: the flag, or 0. */
static void emit_sum(writer *w, uint64_t kinds, proa_flags join)
{
    for (uint64_t covered; kinds; kinds &= ~covered, join = 0) {
        proa_flags where = widest_condition(&w->layers, kinds, &covered);
        emit_step(
            w, (proa_step){PROA_STEP_ALL_REDUCE, part_of_sum(w->sum), w->sum, 0, w->residual | join | where});
    }
}

/* Puts the sum of these kinds before a step. The branches of a fork are joined before it. */
static void complete_sum(writer *w, proa_step *before, uint64_t kinds)
{
    kinds &= w->kinds;
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
    uint64_t kinds = kinds_of(&w->layers, &s);
    bool adds = s.out == w->sum && s.flags & PROA_ADD;
    bool some = w->kinds & kinds && (w->kinds & kinds) != kinds; /* in some of its layers it would begin the sum */
    bool other = w->sum != s.out; /* in layers without this step the sum is still open */
    if (s.in == w->sum || !adds || some) complete_sum(w, &s, some || other ? w->kinds : kinds);
    uint64_t begun = w->kinds & kinds;
    PROA_ASSERT(w->kinds == 0 || w->sum == s.out);
    PROA_ASSERT(w->kinds == 0 || begun || w->residual == (s.flags & residual)); /* a sum keeps its first one */
    if (!begun) w->residual = s.flags & residual;
    s.flags &= ~residual;
    if (begun) s.flags |= PROA_ADD;
    w->sum = s.out, w->kinds |= kinds;
    s.out = part_of_sum(s.out);
    emit_step(w, s);
}

static void write_whole(writer *w, proa_step s, bool head_split)
{
    bool rest = s.w == PROA_SLOT_HEAD_REST; /* the product with HEAD, which follows, adds to it */
    bool is_head = head_split && s.op == PROA_STEP_LINEAR && (s.w == PROA_SLOT_HEAD || rest) &&
                   s.out == PROA_REG_OUT;
    if (step_touches(&s, w->sum)) complete_sum(w, &s, kinds_of(&w->layers, &s));
    if (is_head) s.out = PROA_REG_OUT_PART;
    emit_step(w, s);
    if (is_head && !rest)
        emit_step(w, (proa_step){PROA_STEP_GATHER_COLUMNS, PROA_REG_OUT_PART, PROA_REG_OUT, 0, 0});
}

/* A product of which this rank makes some columns: the residual's go before it. Experts read what all ranks have. */
static void write_columns(writer *w, proa_step s)
{
    proa_flags where = s.flags & PROA_CONDITIONS_BY_LAYER, residual = s.flags & (PROA_ADD | PROA_ADD_X);
    proa_reg from = s.flags & PROA_ADD_X ? PROA_REG_X : s.out, to = s.out, part = part_of_sum(to);
    if (residual) emit_step(w, (proa_step){PROA_STEP_TAKE_COLUMNS, from, part, 0, where});
    if (s.op == PROA_STEP_LINEAR) {
        emit_step(w, (proa_step){PROA_STEP_GATHER_INPUTS, s.in, PROA_REG_SUM_IN, s.w, where});
        s.in = PROA_REG_SUM_IN;
    }
    s.out = part;
    s.flags &= ~residual;
    if (residual) s.flags |= PROA_ADD;
    emit_step(w, s);
    emit_step(w, (proa_step){PROA_STEP_GATHER_COLUMNS, part, to, 0, where});
}

/* A norm of groups that several ranks have, with gates before or after. Ranks add what they give to the means of
 * squares; or, for the bits of one rank, each norms what all have. */
static void write_parted_norm(writer *w, const proa_step *s)
{
    proa_flags where = s->flags & PROA_CONDITIONS_BY_LAYER;
    const proa_step gate = {PROA_STEP_GATE_OUTPUTS, s->in, s->out, 0, where};
    if (w->c->gate_first) emit_step(w, gate);
    if (w->c->sum_split) {
        emit_step(w, (proa_step){PROA_STEP_GATHER_INPUTS, s->out, PROA_REG_SUM_IN, PROA_SLOT_MIX_OUT, where});
        emit_step(w, (proa_step){PROA_STEP_GROUP_NORM, PROA_REG_SUM_IN, s->out, s->w, where});
    } else {
        emit_step(w, (proa_step){PROA_STEP_GROUP_SQUARES, s->out, PROA_REG_SQUARES, 0, where});
        emit_step(w, (proa_step){PROA_STEP_ALL_REDUCE, PROA_REG_SQUARES, PROA_REG_SQUARES, 0, where});
        emit_step(w, (proa_step){PROA_STEP_GROUP_SCALE, PROA_REG_SQUARES, s->out, s->w, where});
    }
    if (!w->c->gate_first) emit_step(w, gate);
}

/* Gates of which those above a threshold are kept, by the mean and deviation of the gates of all ranks; or, for the
 * bits of one rank, by these gates. */
static void write_parted_gates(writer *w, const proa_step *s)
{
    proa_flags where = s->flags & PROA_CONDITIONS_BY_LAYER;
    if (w->c->sum_split) {
        emit_step(w, (proa_step){PROA_STEP_GATHER_INPUTS, s->in, PROA_REG_SUM_IN, PROA_SLOT_DOWN, where});
    } else {
        emit_step(w, (proa_step){PROA_STEP_GATE_MOMENTS, s->in, PROA_REG_MOMENTS_PART, 0, where});
        emit_step(w, (proa_step){PROA_STEP_GATHER_COLUMNS, PROA_REG_MOMENTS_PART, PROA_REG_MOMENTS, 0, where});
    }
    emit_step(w, *s);
}

/* A sum that the next steps read: of all ranks' terms; or each rank makes it of all ranks' inputs. */
static void write_inner_sum(writer *w, proa_step s)
{
    proa_flags where = s.flags & PROA_CONDITIONS_BY_LAYER;
    if (w->c->sum_split) {
        emit_step(w, (proa_step){PROA_STEP_GATHER_INPUTS, s.in, PROA_REG_SUM_IN, s.w, where});
        s.in = PROA_REG_SUM_IN;
    }
    emit_step(w, s);
    if (!w->c->sum_split) emit_step(w, (proa_step){PROA_STEP_ALL_REDUCE, s.out, s.out, 0, where});
}

void proa_collective_steps(proa_program *p, const proa_config *c, int64_t layers, bool head_split)
{
    proa_program from = *p;
    writer w = {.out = p, .c = c, .layers = find_kinds(p, c, layers)};
    bool whole_sums = c->sum_split > 0;
    p->count = 0;
    for (int32_t i = 0; i < from.count && whole_sums; i++)
        from.step[i].flags &= ~(proa_flags)(PROA_FORK | PROA_JOIN); /* no branch crosses a collective */
    for (int32_t i = 0; i < from.count; i++) {
        const proa_step *s = &from.step[i];
        if (s->op == PROA_STEP_NORM_GATED && c->recall_width) write_parted_norm(&w, s);
        else if (s->op == PROA_STEP_GATE_SPARSE && c->gate_parts) write_parted_gates(&w, s);
        else if (s->op == PROA_STEP_LINEAR && proa_slot_split(s->w) == PROA_SPLIT_INNER)
            write_inner_sum(&w, *s);
        else if (whole_sums && proa_step_is_partial(&from.step[i])) write_columns(&w, from.step[i]);
        else if (proa_step_is_partial(&from.step[i])) write_partial(&w, from.step[i]);
        else write_whole(&w, from.step[i], head_split);
    }
    emit_sum(&w, w.kinds, 0);
    p->step[p->count] = (proa_step){PROA_STEP_END, 0, 0, 0, 0};
}
