/* SPDX-License-Identifier: Apache-2.0
 * beam_parts.c - what the steps of all styles of beam search are made of: the best candidates in order, running beams
 * and their places, results. */
#include "engine/decode/beam_state.h"

#include "base/checked.h"
#include <float.h>
#include <math.h>
#include <string.h>

float proa_beam_norm(const proa_beam *b, int64_t length)
{
    double power = pow((double)length, (double)b->o.length_penalty);
    return (float)fmin(fmax(power, (double)FLT_MIN), (double)FLT_MAX);
}

float proa_beam_length_divisor(const proa_beam *b, int64_t length)
{
    return b->o.length_penalty == 0 || length == 1 ? 1 : proa_beam_norm(b, length);
}

/* ---- tokens that groups chose in this step ---- */

static proa_chosen *find_chosen(const proa_beam *b, int32_t token)
{
    uint64_t mask = (uint64_t)b->chosen_size - 1;
    uint64_t i = ((uint64_t)(uint32_t)token * 0x9e3779b97f4a7c15U >> 32) & mask;
    while (b->chosen[i].count && b->chosen[i].token != token) i = (i + 1) & mask;
    return &b->chosen[i];
}

void proa_beam_clear_chosen(proa_beam *b)
{
    memset(b->chosen, 0, (size_t)b->chosen_size * sizeof *b->chosen);
}

void proa_beam_count_chosen(proa_beam *b, int32_t token)
{
    proa_chosen *entry = find_chosen(b, token);
    entry->token = token;
    entry->count++;
}

int32_t proa_beam_chosen_count(const proa_beam *b, int32_t token)
{
    return find_chosen(b, token)->count;
}

/* ---- the best candidates, in order ---- */

static bool ranks_before(const proa_candidate *x, const proa_candidate *y)
{
    if (x->key > y->key || x->key < y->key) return x->key > y->key;
    return x->parent != y->parent ? x->parent < y->parent : x->tie < y->tie;
}

/* Puts c into the heap of n candidates (worst at the root) whose place i is free, at i or below. */
static void sift_down(proa_candidate *heap, int64_t n, int64_t i, proa_candidate c)
{
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && ranks_before(&heap[child], &heap[child + 1])) child++;
        if (ranks_before(&heap[child], &c)) break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

/* So many better candidates are kept that this key cannot enter. */
static bool is_hopeless(const proa_beam *b, float key)
{
    return b->best_count == b->step.kept && key < b->best[0].key;
}

static void offer_candidate(proa_beam *b, proa_candidate c)
{
    proa_candidate *heap = b->best;
    if (b->best_count == b->step.kept) {
        if (ranks_before(&c, &heap[0])) sift_down(heap, b->best_count, 0, c);
        return;
    }
    int64_t i = b->best_count++;
    for (int64_t up; i > 0 && ranks_before(&heap[up = (i - 1) / 2], &c); i = up) heap[i] = heap[up];
    heap[i] = c;
}

/* The most that rate can add to a key of this beam. */
static float rate_bound(const proa_beam_params *s, int32_t beam)
{
    if (s->by_beam) return s->rate * (float)beam;
    return s->rate > 0 ? s->rate * (float)(s->beams - 1) : 0;
}

/* A beam's list is in order before the penalty, which only lowers, and before the rate is added: so it is left where
 * even the most that the rate adds would not help. */
static void offer_list(proa_beam *b, const proa_beam_state *state, int32_t beam, const int32_t *tokens,
                       const float *logprobs)
{
    const proa_beam_params *s = &b->step;
    const int32_t *ids = tokens + proa_beam_row(b, beam);
    const float *values = logprobs + proa_beam_row(b, beam);
    const float *numbers = b->numbers ? b->numbers + proa_beam_row(b, beam) : NULL;
    float most = rate_bound(s, beam), divisor = proa_beam_divisor(state, s), score = state->score[beam];
    for (int32_t r = 0; r < s->each; r++) {
        float number = numbers ? numbers[r] : 0;
        if (is_hopeless(b, (values[r] + score) / divisor + most + number)) break;
        int32_t chosen = s->groups > 1 ? proa_beam_chosen_count(b, ids[r]) : 0;
        proa_beam_candidate c = {proa_beam_sum(s, values[r], chosen, score), ids[r]};
        float key = proa_beam_key(state, s, &c, beam, r) + number;
        if (is_hopeless(b, key)) continue;
        offer_candidate(b, (proa_candidate){.key = key,
                                            .sum = c.sum,
                                            .logprob = values[r],
                                            .parent = beam,
                                            .tie = proa_beam_tie(s, &c, r),
                                            .token = c.token});
    }
}

/* A beam that has ended and is kept can only continue with its end token, at no cost. */
static void offer_ended(proa_beam *b, const proa_beam_state *state, int32_t beam)
{
    proa_beam_candidate c = {state->score[beam], state->hyp[beam].token};
    float key = proa_beam_key(state, &b->step, &c, beam, 0);
    offer_candidate(b, (proa_candidate){.key = key, .sum = c.sum, .parent = beam, .token = c.token});
}

static void sort_best(proa_beam *b)
{
    for (int64_t n = b->best_count - 1; n > 0; n--) {
        proa_candidate last = b->best[n];
        b->best[n] = b->best[0];
        sift_down(b->best, n, 0, last);
    }
}

void proa_beam_find_best(proa_beam *b, int32_t first, int32_t count, bool backwards, const int32_t *tokens,
                         const float *logprobs)
{
    const proa_beam_state state = {.score = b->score, .hyp = b->hyp_old};
    b->best_count = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t beam = first + (backwards ? count - 1 - i : i);
        if (proa_beam_has_ended(&state, &b->step, beam)) offer_ended(b, &state, beam);
        else offer_list(b, &state, beam, tokens, logprobs);
    }
    sort_best(b);
}

/* ---- running beams, places, results ---- */

void proa_beam_turn(proa_beam *b)
{
    memcpy(b->total_old, b->total, (size_t)b->o.beams * sizeof *b->total);
    memcpy(b->lived_old, b->lived, (size_t)b->o.beams * sizeof *b->lived);
    memcpy(b->hyp_old, b->hyp, (size_t)b->o.beams * sizeof *b->hyp);
}

void proa_beam_run(proa_beam *b, int32_t i, const proa_candidate *c)
{
    b->score[i] = b->sum[i] = c->sum;
    b->total[i] = b->total_old[c->parent] + (double)c->logprob;
    proa_beam_parents(b, b->length - 1)[i] = c->parent;
    proa_beam_tokens(b, b->length - 1)[i] = c->token;
}

proa_place proa_beam_place_of(const proa_beam *b, const proa_candidate *c, double score)
{
    return (proa_place){.score = score,
                        .total = b->total_old[c->parent] + (double)c->logprob,
                        .sum = c->sum,
                        .parent = c->parent,
                        .token = c->token,
                        .length = b->length};
}

proa_place proa_beam_running(const proa_beam *b, int32_t i, double score)
{
    return (proa_place){.score = score,
                        .total = b->total[i],
                        .sum = b->sum[i],
                        .parent = proa_beam_parents(b, b->length - 1)[i],
                        .token = proa_beam_tokens(b, b->length - 1)[i],
                        .length = b->length};
}

/* Insertion: k * n at worst, little on lists that are nearly in order, as these are. */
void proa_beam_rank(int32_t *order, int32_t k, const float *x, int64_t n)
{
    int32_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (count == k && !(x[i] > x[order[k - 1]])) continue;
        int32_t at = count < k ? count++ : k - 1;
        for (; at > 0 && x[i] > x[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = (int32_t)i;
    }
}

/* Follows a path back from its last token. */
void proa_beam_report(proa_beam *b, const proa_place *p)
{
    if (b->results == b->o.returned || p->sum <= b->step.none / 2) return;
    int32_t *ids = b->ids + b->results * b->o.max_new, *parents = b->parents + b->results * b->o.max_new;
    int32_t parent = p->parent;
    ids[p->length - 1] = p->token;
    parents[p->length - 1] = parent;
    for (int64_t step = p->length - 2; step >= 0; step--) {
        ids[step] = proa_beam_tokens(b, step)[parent];
        parents[step] = parent = proa_beam_parents(b, step)[parent];
    }
    b->result[b->results++] = (proa_beam_result){
        .ids = ids,
        .parents = parents,
        .count = p->length,
        .score = (float)p->score,
        .logprob_sum = p->total,
        .finish = proa_beam_is_end(&b->step, p->token) ? PROA_FINISH_END : PROA_FINISH_LENGTH};
}
