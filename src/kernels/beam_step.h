/* SPDX-License-Identifier: Apache-2.0
 * beam_step.h - what a step of a beam search does: scores, keys, ties, what ends. It is
 *               compiled for the engine's searches (engine/decode/beam_*.c), for the op's reference
 *               (reference/beam.c) and for CUDA (beam_search.cu), so that all three choose the same beams, bit for bit.
 * Threads: any. Formulas: beam_step in decode.def; structs: op_decode.h. p: the Q hypothesis slots of a group. */
#ifndef PROA_KERNELS_BEAM_STEP_H
#define PROA_KERNELS_BEAM_STEP_H

#include "kernels/ops.h"
#include "base/compiler.h"
#include <math.h>

/* ---- finished hypotheses ---- */

/* A hypothesis slot before the first step. */
static inline PROA_HOST_DEVICE void proa_beam_hyp_clear(proa_beam_hyp *p)
{
    p->score = 0;
    p->worst = 1e9; /* above every score, as in transformers */
    p->count = p->done = p->token = 0;
    p->divisor = 0;
}

/* With keep_ended: the slot of a beam that continues `parent` with this token. */
static inline PROA_HOST_DEVICE proa_beam_hyp proa_beam_hyp_continue(const proa_beam_hyp *parent,
                                                                    const proa_beam_params *s, int32_t token,
                                                                    int32_t ended)
{
    proa_beam_hyp next = *parent;
    if (next.done) return next;
    next.done = ended, next.token = token, next.divisor = s->divisor;
    return next;
}

/* Which of a full group's scores and the new one is dropped: the lowest, or the first of several that are. *second: the
 * lowest of the others. */
static inline PROA_HOST_DEVICE int32_t proa_beam_hyp_lowest(const proa_beam_hyp *p, int32_t size,
                                                            double score, double *second)
{
    int32_t out = 0;
    double lowest = p[0].score;
    for (int32_t i = 1; i <= size; i++) {
        double x = i < size ? p[i].score : score;
        if (x < lowest) out = i, lowest = x;
    }
    *second = HUGE_VAL;
    for (int32_t i = 0; i <= size; i++)
        if (i != out) *second = fmin(*second, i < size ? p[i].score : score);
    return out;
}

/* A finished hypothesis competes for one of the Q = size slots of its group. Returns the slot that was dropped for it:
 * the later ones have moved up, and it is last. -1: a slot was free; size: it was not taken. */
static inline PROA_HOST_DEVICE int32_t proa_beam_hyp_add(proa_beam_hyp *p, int32_t size, double score)
{
    if (p->count < size) {
        p[p->count++].score = score;
        p->worst = fmin(score, p->worst);
        return -1;
    }
    if (!(score > p->worst)) return size;
    int32_t out = proa_beam_hyp_lowest(p, size, score, &p->worst);
    for (int32_t i = out; i < size; i++) p[i].score = i + 1 < size ? p[i + 1].score : score;
    return out;
}

/* Whether a group is done; best: the sum of its best candidate. */
static inline PROA_HOST_DEVICE int32_t proa_beam_group_done(const proa_beam_hyp *p, const proa_beam_params *s,
                                                            float best)
{
    if (p->count < s->beams / s->groups) return 0;
    return s->first_come || p->worst >= (double)best / s->reach;
}

/* ---- the step ----
 * Beams 0..K-1 have rows of candidates: l->ids and l->logits [row][M]. All beams' scores before the step, the
 * tokens that earlier groups chose in it and the hypotheses are read through a proa_beam_state. */

/* Each operation is rounded once on the host and on the device: no compiler may fuse a product and a sum. */
static inline PROA_HOST_DEVICE float proa_beam_add(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

static inline PROA_HOST_DEVICE float proa_beam_sub(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fsub_rn(a, b);
#else
    return a - b;
#endif
}

static inline PROA_HOST_DEVICE float proa_beam_mul(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return (float)((double)a * (double)b); /* exact in double */
#endif
}

static inline PROA_HOST_DEVICE float proa_beam_div(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

typedef struct proa_beam_state {
    const float *score;   /* [K] before the step */
    const int32_t *token; /* [K] chosen in this step; read for the beams of groups before the current one */
    const proa_beam_hyp *hyp; /* [K]; read only with keep_ended */
} proa_beam_state;

/* A continuation of a beam. */
typedef struct proa_beam_candidate {
    float sum; /* log-probability of the sequence */
    int32_t token;
} proa_beam_candidate;

static inline PROA_HOST_DEVICE bool proa_beam_is_end(const proa_beam_params *s, int32_t token)
{
    for (int32_t i = 0; i < s->end_count; i++)
        if (s->end_ids[i] == token) return true;
    return false;
}

/* Whether a beam has ended and is kept: its only candidate is then its end token at its own score. */
static inline PROA_HOST_DEVICE bool proa_beam_has_ended(const proa_beam_state *b, const proa_beam_params *s,
                                                        int32_t beam)
{
    return s->keep_ended && b->hyp[beam].done;
}

/* Before the first step all beams are equal, so only the first of each group is alive. */
static inline PROA_HOST_DEVICE float proa_beam_first_score(const proa_beam_params *s, int32_t beam)
{
    return beam % (s->beams / s->groups) ? s->none : 0.0F;
}

/* The score of a beam before the step. */
static inline PROA_HOST_DEVICE float proa_beam_initial_score(const proa_beam_params *s,
                                                             const proa_beam_lists *l, int32_t beam)
{
    if (s->rows > 1) return l->scores[s->state + beam];
    return proa_beam_first_score(s, beam);
}

/* sum = logprob - penalty * chosen + score. chosen: how many beams of earlier groups chose the token in this step;
 * score: of the beam that is continued. */
static inline PROA_HOST_DEVICE float proa_beam_sum(const proa_beam_params *s, float logprob, int32_t chosen,
                                                   float score)
{
    return proa_beam_add(proa_beam_sub(logprob, proa_beam_mul(s->penalty, (float)chosen)), score);
}

/* The continuation of a beam by its candidate `rank` of M; first: the first beam of the group. */
static inline PROA_HOST_DEVICE proa_beam_candidate proa_beam_continue(const proa_beam_state *b,
                                                                      const proa_beam_params *s,
                                                                      const proa_beam_lists *l, int32_t first,
                                                                      int32_t beam, int32_t rank)
{
    proa_beam_candidate c;
    if (proa_beam_has_ended(b, s, beam)) {
        c.sum = b->score[beam], c.token = b->hyp[beam].token;
        return c;
    }
    int32_t row = s->rows == 1 ? 0 : beam, at = s->at + row * s->each + rank, chosen = 0;
    c.token = l->ids[at];
    for (int32_t i = 0; i < first; i++) chosen += b->token[i] == c.token;
    c.sum = proa_beam_sum(s, proa_beam_sub(l->logits[at], l->sums[s->row + row]), chosen, b->score[beam]);
    return c;
}

/* What sums are divided by for their keys. */
static inline PROA_HOST_DEVICE float proa_beam_divisor(const proa_beam_state *b, const proa_beam_params *s)
{
    return proa_beam_has_ended(b, s, 0) ? b->hyp[0].divisor : s->divisor;
}

/* key = sum / divisor + rate * rank: what candidates are ordered by. */
static inline PROA_HOST_DEVICE float proa_beam_key(const proa_beam_state *b, const proa_beam_params *s,
                                                   const proa_beam_candidate *c, int32_t beam, int32_t rank)
{
    float key = proa_beam_div(c->sum, proa_beam_divisor(b, s));
    if (proa_beam_has_ended(b, s, beam)) return key;
    return proa_beam_add(key, proa_beam_mul(s->rate, (float)(s->by_beam ? beam : rank % s->beams)));
}

/* Orders candidates of one beam that have equal scores: the lower key is first. */
static inline PROA_HOST_DEVICE int32_t proa_beam_tie(const proa_beam_params *s, const proa_beam_candidate *c,
                                                     int32_t rank)
{
    return s->by_token ? c->token : rank;
}

/* Whether a kept candidate is moved after those that continue. */
static inline PROA_HOST_DEVICE bool proa_beam_moves_back(const proa_beam_params *s, int32_t token)
{
    return !s->keep_ended && proa_beam_is_end(s, token);
}

/* Where candidates that end are pushed back (s->pushed): the sum by which kept ones are ordered. */
static inline PROA_HOST_DEVICE float proa_beam_push_back(const proa_beam_params *s, float sum, bool ends)
{
    return proa_beam_add(sum, ends ? s->none : 0.0F);
}

static inline PROA_HOST_DEVICE float proa_beam_pushed_sum(const proa_beam_params *s, const proa_beam_candidate *c)
{
    return proa_beam_push_back(s, c->sum, proa_beam_moves_back(s, c->token));
}

/* Beam i of the next step. */
static inline PROA_HOST_DEVICE void proa_beam_write(const proa_beam_params *s, const proa_beam_lists *l,
                                                    int32_t i, float score, int32_t token, int32_t parent)
{
    l->scores[s->state + i] = score;
    l->tokens[s->to + i] = token;
    l->parents[s->to + i] = parent;
}

#endif
