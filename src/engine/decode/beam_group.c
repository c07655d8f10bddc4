/* SPDX-License-Identifier: Apache-2.0
 * beam_group.c - diverse beam search as transformers 4 had it: _group_beam_search with BeamSearchScorer. The groups
 * of a step take turns, each beam search on its own but for the penalty on tokens that groups before it chose.
 * Vijayakumar et al., Diverse Beam Search, arXiv 1610.02424. */
#include "engine/decode/beam_state.h"

#include <math.h>
#include <string.h>

/* ---- hypotheses: BeamHypotheses of generation/beam_search.py, scores in f64 as Python's ---- */

static proa_place *places_of(const proa_beam *b, int32_t first)
{
    return b->place + first / b->group_size * (b->group_size + 1);
}

/* The places follow the slots of the group that begins at beam `first`. */
static void add_place(proa_beam *b, int32_t first, proa_place added)
{
    proa_beam_hyp *hyp = b->hyp + first;
    proa_place *p = places_of(b, first);
    p[hyp->count] = added;
    int32_t out = proa_beam_hyp_add(hyp, b->group_size, added.score);
    if (out >= 0) memmove(p + out, p + out + 1, (size_t)(b->group_size - out) * sizeof *p);
}

static double length_norm(const proa_beam *b, int64_t length)
{
    return pow((double)length, (double)b->o.length_penalty);
}

/* H: the length at which a running beam of this length would score best. */
static int64_t reachable_length(const proa_beam *b, int64_t length)
{
    return b->o.early == PROA_EARLY_NEVER && b->o.length_penalty > 0 ? b->o.max_new : length;
}

/* ---- the step ---- */

/* A group that is done goes on as padding of its first beam. */
static void pad_group(proa_beam *b, int32_t first)
{
    for (int32_t i = first; i < first + b->group_size; i++) {
        proa_beam_parents(b, b->length - 1)[i] = first;
        proa_beam_tokens(b, b->length - 1)[i] = b->o.pad_id;
        b->score[i] = 0;
    }
}

static void step_group(proa_beam *b, int32_t first, const int32_t *tokens, const float *logprobs)
{
    const proa_beam_params *s = &b->step;
    int32_t running = 0;
    proa_beam_find_best(b, first, b->group_size, false, tokens, logprobs);
    for (int64_t c = 0; running < b->group_size; c++) {
        const proa_candidate *best = &b->best[c];
        PROA_ASSERT(c < b->best_count);
        if (!proa_beam_moves_back(s, best->token)) proa_beam_run(b, first + running++, best);
        else if (c < b->group_size)
            add_place(b, first, proa_beam_place_of(b, best, (double)best->sum / s->length));
    }
    b->hyp[first].done = proa_beam_group_done(b->hyp + first, s, b->best[0].sum);
}

void proa_beam_step_groups(proa_beam *b, const int32_t *tokens, const float *logprobs)
{
    bool all_done = true;
    proa_beam_clear_chosen(b);
    for (int32_t first = 0; first < b->o.beams; first += b->group_size) {
        if (b->hyp[first].done) pad_group(b, first);
        else step_group(b, first, tokens, logprobs);
        all_done &= b->hyp[first].done != 0;
        for (int32_t i = first; i < first + b->group_size; i++)
            proa_beam_count_chosen(b, proa_beam_tokens(b, b->length - 1)[i]);
    }
    b->over = all_done || b->length == b->o.max_new;
}

void proa_beam_search_groups(const proa_beam *b, int64_t length, proa_beam_params *s)
{
    s->length = length_norm(b, length);
    s->reach = length_norm(b, reachable_length(b, length));
    s->penalty = b->o.diversity_penalty;
    s->pad = b->o.pad_id;
    s->first_come = b->o.early == PROA_EARLY_TRUE;
}

/* The best place not reported yet, among equals the last; reported ones are marked by finished. */
static proa_place *best_place(proa_beam *b)
{
    proa_place *best = NULL;
    for (int32_t first = 0; first < b->o.beams; first += b->group_size)
        for (int32_t i = 0; i < b->hyp[first].count; i++) {
            proa_place *p = places_of(b, first) + i;
            if (!p->finished && (!best || p->score >= best->score)) best = p;
        }
    return best;
}

void proa_beam_close_groups(proa_beam *b)
{
    for (int32_t first = 0; first < b->o.beams; first += b->group_size)
        for (int32_t i = first; i < first + b->group_size && !b->hyp[first].done; i++)
            add_place(b, first, proa_beam_running(b, i, (double)b->sum[i] / b->step.length));
    for (proa_place *p; b->results < b->o.returned && (p = best_place(b)); p->finished = true)
        proa_beam_report(b, p);
}
