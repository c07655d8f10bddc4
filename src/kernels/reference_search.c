/* SPDX-License-Identifier: Apache-2.0
 * reference_search.c - a step of a beam search as a textbook has it: candidates put in order one by one. The engine has its own, which also
 * keeps what has ended (engine/beam.h); this is what a device's is compared with, and the two must agree. And the page tables
 * that follow the beams. */
#include "kernels/reorder_kv.h"
#include "kernels/places.h"
#include "kernels/reference.h"

#include "base/limits.h"
#include <string.h>

typedef struct candidate {
    float key, sum;
    int32_t parent, tie, token;
} candidate;

/* NaN is last, wherever it comes from. */
static int compare(float a, float b)
{
    if (a != a || b != b) return (a != a) - (b != b);
    return (a < b) - (a > b);
}

static bool before(const candidate *x, const candidate *y)
{
    int order = compare(x->key, y->key);
    if (order) return order < 0;
    return x->parent != y->parent ? x->parent < y->parent : x->tie < y->tie;
}

/* Puts c among the best, of which there are `count` and at most `most`; returns how many there are now. */
static int32_t keep(candidate *best, int32_t count, int32_t most, const candidate *c)
{
    if (count == most && !before(c, &best[most - 1])) return count;
    int32_t at = count < most ? count++ : most - 1;
    for (; at > 0 && before(c, &best[at - 1]); at--) best[at] = best[at - 1];
    best[at] = *c;
    return count;
}

static int32_t group_size(const proa_search *s)
{
    return s->beams / s->groups;
}

/* x * n, rounded once: exact before, so that no compiler makes one operation of it and a sum. */
static float times(float x, int32_t n)
{
    return (float)((double)x * (double)n);
}

/* How many beams of the groups before beam i's have chosen the token in this step. */
static int32_t count_chosen(const proa_search *s, const proa_lists *l, int32_t i, int32_t token)
{
    int32_t count = 0, first = i - i % group_size(s);
    for (int32_t k = 0; k < first; k++) count += l->tokens[s->to + k] == token;
    return count;
}

/* Where ended beams stay: what keys are divided by, and the one candidate of a beam that has ended. */
static float divisor_of(const proa_search *s, const proa_lists *l)
{
    return s->stays && l->held[s->state].done ? l->held[s->state].divisor : s->divisor;
}

static bool has_ended(const proa_search *s, const proa_lists *l, int32_t i)
{
    return s->stays && l->held[s->state + i].done;
}

static candidate candidate_of_ended(const proa_search *s, const proa_lists *l, int32_t i)
{
    float sum = l->scores[s->state + i];
    return (candidate){sum / divisor_of(s, l), sum, i, 0, l->held[s->state + i].token};
}

/* Candidate j of beam i. */
static candidate candidate_of(const proa_search *s, const proa_lists *l, int32_t i, int32_t j)
{
    bool first = s->rows == 1;
    int32_t row = first ? 0 : i, at = s->at + row * s->each + j, token = l->ids[at];
    float score = !first ? l->scores[s->state + i] : i % group_size(s) ? s->none : 0.0F;
    float less = times(s->penalty, count_chosen(s, l, i, token));
    float sum = l->logits[at] - l->sums[s->row + row] - less + score;
    float key = sum / divisor_of(s, l) + times(s->rate, s->by_beam ? i : j % s->beams);
    return (candidate){key, sum, i, s->by_token ? token : j, token};
}

static bool is_end(const proa_search *s, int32_t token)
{
    for (int32_t i = 0; i < s->end_count; i++)
        if (s->end_ids[i] == token) return true;
    return false;
}

/* As it is ranked to go on: after those that have not ended. Among equals the order that there is, which tie keeps. */
static candidate as_next(const proa_search *s, const candidate *c, int32_t rank)
{
    bool ended = !s->stays && is_end(s, c->token);
    candidate next = *c;
    if (s->pushed) next.sum += ended ? s->none : 0.0F;
    next.key = s->pushed ? next.sum : ended ? 0.0F : 1.0F;
    next.parent = 0, next.tie = rank;
    return next;
}

/* The group's C best candidates, in order. */
static int32_t find_best(const proa_search *s, const proa_lists *l, int32_t first, candidate *best)
{
    int32_t kept = 0;
    for (int32_t i = first; i < first + group_size(s); i++)
        for (int32_t j = 0; j < (has_ended(s, l, i) ? 1 : s->each); j++) {
            candidate c = has_ended(s, l, i) ? candidate_of_ended(s, l, i) : candidate_of(s, l, i, j);
            kept = keep(best, kept, s->kept, &c);
        }
    return kept;
}

/* Of the first candidates those that ended. */
static void hold_ended(const proa_search *s, proa_held *held, const candidate *best)
{
    for (int32_t i = 0; i < group_size(s); i++)
        if (is_end(s, best[i].token)) proa_places_add(held, group_size(s), (double)best[i].sum / s->length);
    held->done = proa_places_done(held, s, best[0].sum);
}

static void stay_or_end(const proa_search *s, proa_held *held, const candidate *best)
{
    proa_held old[PROA_SEARCH_BEAMS_MAX];
    memcpy(old, held, (size_t)s->beams * sizeof *held);
    for (int32_t i = 0; i < s->beams; i++)
        held[i] = proa_places_stay(&old[best[i].parent], s, best[i].token, is_end(s, best[i].token));
}

static void search_group(const proa_search *s, const proa_lists *l, int32_t first)
{
    candidate best[PROA_SEARCH_MAX], next[PROA_SEARCH_BEAMS_MAX];
    int32_t kept = find_best(s, l, first, best), running = 0;
    for (int32_t i = 0; i < kept; i++) {
        candidate c = as_next(s, &best[i], i);
        running = keep(next, running, group_size(s), &c);
    }
    for (int32_t i = 0; i < running; i++) {
        l->scores[s->state + first + i] = next[i].sum;
        l->tokens[s->to + first + i] = next[i].token;
        l->parents[s->to + first + i] = best[next[i].tie].parent;
    }
    if (s->groups > 1) hold_ended(s, l->held + s->state + first, best);
    if (s->stays) stay_or_end(s, l->held + s->state, best);
}

static void pad_group(const proa_search *s, const proa_lists *l, int32_t first)
{
    for (int32_t i = first; i < first + group_size(s); i++) {
        l->scores[s->state + i] = 0;
        l->tokens[s->to + i] = s->pad;
        l->parents[s->to + i] = first;
    }
}

static void search_one(const proa_search *s, const proa_lists *l)
{
    bool grouped = s->groups > 1;
    for (int32_t i = 0; i < s->beams && s->rows == 1 && (grouped || s->stays); i++)
        proa_places_clear(l->held + s->state + i);
    for (int32_t first = 0; first < s->beams; first += group_size(s)) {
        if (grouped && l->held[s->state + first].done) pad_group(s, l, first);
        else search_group(s, l, first);
    }
}

void proa_search_reference(proa_ctx *c, const proa_search *s, int64_t count, const proa_lists *lists)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < count; i++) search_one(&s[i], lists);
}

/* The first `tokens` tokens of a page, in every layer, of keys and of values. */
static void copy_page(const proa_kv *kv, int64_t layers, int32_t to, int32_t from, int64_t tokens)
{
    int64_t token = kv->head_dim * proa_dtype_bytes(kv->dtype), head = PROA_PAGE_TOKENS * token;
    for (int64_t i = 0; i < 2 * layers * kv->kv_heads; i++) {
        int64_t block = i / kv->kv_heads, at = i % kv->kv_heads * head, page = kv->kv_heads * head;
        char *memory = block % 2 ? kv[block / 2].v : kv[block / 2].k;
        memcpy(memory + to * page + at, memory + from * page + at, (size_t)(tokens * token));
    }
}

static void follow_one(int32_t *pages, const proa_branch *b, const int32_t *parent, const proa_kv *kv,
                       int64_t layers)
{
    int32_t take[PROA_SEARCH_BEAMS_MAX], full = b->tokens / PROA_PAGE_TOKENS, used = b->tokens % PROA_PAGE_TOKENS;
    int32_t count = full + 1;
    proa_branch_take(take, parent, b->beams);
    for (int32_t i = 0; i < b->beams; i++) {
        const int32_t *source = pages + b->source;
        int32_t *table = pages + b->table + i * count, own = used ? take[i] : i;
        memcpy(table, source + parent[i] * count, (size_t)full * sizeof *table);
        table[full] = source[own * count + full];
        if (used && own != parent[i])
            copy_page(kv, layers, table[full], source[parent[i] * count + full], used);
    }
}

void proa_follow_reference(proa_ctx *c, int32_t *pages, const proa_branch *b, int64_t count, int32_t most,
                           const int32_t *parents, const proa_kv *kv, int64_t layers)
{
    PROA_UNUSED(c), PROA_UNUSED(most);
    for (int64_t i = 0; i < count; i++) follow_one(pages, &b[i], parents + b[i].from, kv, layers);
}
