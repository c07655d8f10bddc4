/* SPDX-License-Identifier: Apache-2.0
 * places.h - which finished sequences a group of beams holds, by their scores alone, and when it is done: for the tables' search. The
 *            engine's own (engine/beam_group.c), which keeps the sequences too, does the same in the same order.
 * Threads: any. p: the group's Q places (proa_held in ops.h). */
#ifndef PROA_KERNELS_PLACES_H
#define PROA_KERNELS_PLACES_H

#include "kernels/reorder_kv.h"
#include "kernels/ops.h"
#include <math.h>

/* One of them, before the first step. */
static inline PROA_ANYWHERE void proa_places_clear(proa_held *p)
{
    p->score = 0;
    p->worst = 1e9; /* above every score, as in transformers */
    p->count = p->done = p->token = 0;
    p->divisor = 0;
}

/* How beam `parent`, or what it held, goes on with this token. */
static inline PROA_ANYWHERE proa_held proa_places_stay(const proa_held *parent, const proa_search *s,
                                                       int32_t token, int32_t ended)
{
    proa_held held = *parent;
    if (held.done) return held;
    held.done = ended, held.token = token, held.divisor = s->divisor;
    return held;
}

/* Among the scores and one more behind them the first of the lowest goes. */
static inline PROA_ANYWHERE void proa_places_change(proa_held *p, int32_t size, double score)
{
    int32_t out = 0;
    double lowest = p[0].score, second = HUGE_VAL;
    for (int32_t i = 1; i <= size; i++) {
        double x = i < size ? p[i].score : score;
        if (x < lowest) out = i, lowest = x;
    }
    for (int32_t i = 0; i <= size; i++)
        if (i != out) second = fmin(second, i < size ? p[i].score : score);
    for (int32_t i = out; i < size; i++) p[i].score = i + 1 < size ? p[i + 1].score : score;
    p->worst = second;
}

/* A finished sequence competes for one of Q = size places. */
static inline PROA_ANYWHERE void proa_places_add(proa_held *p, int32_t size, double score)
{
    if (p->count == size) {
        if (score > p->worst) proa_places_change(p, size, score);
        return;
    }
    p[p->count++].score = score;
    p->worst = fmin(score, p->worst);
}

/* best: the sum of the group's best candidate. */
static inline PROA_ANYWHERE int32_t proa_places_done(const proa_held *p, const proa_search *s, float best)
{
    if (p->count < s->beams / s->groups) return 0;
    return s->first_come || p->worst >= (double)best / s->reach;
}

#endif
