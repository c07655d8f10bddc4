/* SPDX-License-Identifier: Apache-2.0
 * beam_group.c - diverse beam search as transformers 4 had it: _group_beam_search with BeamSearchScorer. The groups
 * of a step take turns, each beam search on its own but for the penalty on tokens that groups before it chose.
 * Vijayakumar et al., Diverse Beam Search, arXiv 1610.02424. */
#include "engine/decode/beam_state.h"

#include <math.h>
#include <string.h>

/* ---- tokens chosen in this step ---- */

static proa_chosen *find_chosen(const proa_beam *b, int32_t token)
{
    uint64_t mask = (uint64_t)b->chosen_size - 1;
    uint64_t i = ((uint64_t)(uint32_t)token * 0x9e3779b97f4a7c15U >> 32) & mask;
    while (b->chosen[i].count && b->chosen[i].token != token) i = (i + 1) & mask;
    return &b->chosen[i];
}

static void count_chosen(proa_beam *b, int32_t token)
{
    proa_chosen *entry = find_chosen(b, token);
    entry->token = token;
    entry->count++;
}

/* ---- one group's candidates ---- */

/* A list is in order before the penalty, which only lowers: so a list is left where its best would be too low. */
static void offer_list(proa_beam *b, int32_t beam, const int32_t *tokens, const float *logprobs)
{
    const int32_t *ids = tokens + proa_beam_row(b, beam);
    const float *values = logprobs + proa_beam_row(b, beam);
    for (int64_t j = 0; j < b->each; j++) {
        if (proa_beam_hopeless(b, values[j] + b->score[beam])) break;
        float less = b->o.diversity_penalty * (float)find_chosen(b, ids[j])->count;
        float sum = values[j] - less + b->score[beam];
        proa_beam_offer(
            b, (proa_candidate){
                   .key = sum, .sum = sum, .logprob = values[j], .parent = beam, .tie = ids[j], .token = ids[j]});
    }
}

/* ---- hypotheses: BeamHypotheses of generation/beam_search.py, scores in f64 as Python's ---- */

static proa_place *places(const proa_beam *b, int32_t g)
{
    return b->place + g * (b->group_size + 1);
}

/* The lowest score, among equals the first; *second is the next one. */
static int32_t find_worst(const proa_place *p, int32_t count, double *second)
{
    int32_t worst = 0;
    for (int32_t i = 1; i < count; i++)
        if (p[i].score < p[worst].score) worst = i;
    *second = HUGE_VAL;
    for (int32_t i = 0; i < count; i++)
        if (i != worst) *second = fmin(*second, p[i].score);
    return worst;
}

static void add_place(proa_beam *b, int32_t g, proa_place added)
{
    proa_group *group = &b->group[g];
    proa_place *p = places(b, g);
    if (group->count == b->group_size && !(added.score > group->worst)) return;
    p[group->count++] = added;
    if (group->count <= b->group_size) {
        group->worst = fmin(added.score, group->worst);
        return;
    }
    int32_t out = find_worst(p, group->count, &group->worst);
    memmove(p + out, p + out + 1, (size_t)(--group->count - out) * sizeof *p);
}

static double norm(const proa_beam *b, int64_t length)
{
    return pow((double)length, (double)b->o.length_penalty);
}

static double length_score(const proa_beam *b, float sum, int64_t length)
{
    return (double)sum / norm(b, length);
}

/* H: the length at which a running beam of this length would score best. */
static int64_t reach(const proa_beam *b, int64_t length)
{
    return b->o.early == PROA_EARLY_NEVER && b->o.length_penalty > 0 ? b->o.max_new : length;
}

static bool is_done(const proa_beam *b, int32_t g)
{
    const proa_group *group = &b->group[g];
    if (group->count < b->group_size) return false;
    if (b->o.early == PROA_EARLY_TRUE) return true;
    return group->worst >= length_score(b, b->best[0].sum, reach(b, b->length));
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

static void step_group(proa_beam *b, int32_t g, const int32_t *tokens, const float *logprobs)
{
    int32_t first = g * b->group_size, running = 0;
    proa_beam_clear(b, b->kept);
    for (int32_t i = first; i < first + b->group_size; i++) offer_list(b, i, tokens, logprobs);
    proa_beam_sort(b);
    for (int64_t c = 0; running < b->group_size; c++) {
        const proa_candidate *best = &b->best[c];
        PROA_ASSERT(c < b->best_count);
        if (!proa_beam_is_end(b, best->token)) proa_beam_run(b, first + running++, best);
        else if (c < b->group_size)
            add_place(b, g, proa_beam_place_of(b, best, length_score(b, best->sum, b->length)));
    }
    b->group[g].done = is_done(b, g);
}

void proa_beam_step_groups(proa_beam *b, const int32_t *tokens, const float *logprobs)
{
    bool all_done = true;
    memset(b->chosen, 0, (size_t)b->chosen_size * sizeof *b->chosen);
    for (int32_t g = 0; g < b->groups; g++) {
        int32_t first = g * b->group_size;
        if (b->group[g].done) pad_group(b, first);
        else step_group(b, g, tokens, logprobs);
        all_done &= b->group[g].done;
        for (int32_t i = first; i < first + b->group_size; i++)
            count_chosen(b, proa_beam_tokens(b, b->length - 1)[i]);
    }
    b->over = all_done || b->length == b->o.max_new;
}

void proa_beam_search_groups(const proa_beam *b, int64_t length, proa_beam_params *s)
{
    s->length = norm(b, length);
    s->reach = norm(b, reach(b, length));
    s->penalty = b->o.diversity_penalty;
    s->pad = b->o.pad_id;
    s->first_come = b->o.early == PROA_EARLY_TRUE;
}

/* The best place not reported yet, among equals the last; reported ones are marked by finished. */
static proa_place *best_place(proa_beam *b)
{
    proa_place *best = NULL;
    for (int32_t g = 0; g < b->groups; g++)
        for (int32_t i = 0; i < b->group[g].count; i++) {
            proa_place *p = places(b, g) + i;
            if (!p->finished && (!best || p->score >= best->score)) best = p;
        }
    return best;
}

void proa_beam_close_groups(proa_beam *b)
{
    for (int32_t g = 0; g < b->groups; g++)
        for (int32_t i = 0; i < b->group_size && !b->group[g].done; i++) {
            int32_t beam = g * b->group_size + i;
            add_place(b, g, proa_beam_running(b, beam, length_score(b, b->sum[beam], b->length)));
        }
    for (proa_place *p; b->results < b->o.returned && (p = best_place(b)); p->finished = true)
        proa_beam_report(b, p);
}
