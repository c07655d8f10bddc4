/* SPDX-License-Identifier: Apache-2.0
 * check_beam.c - steps of beam searches, in groups too, and the pages that follow them: tokens, parents and bits of
 * scores, what groups have finished, tables and copied tokens are the reference's, and nothing else is written. */
#include "check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/reorder_kv.h"
#include <math.h>
#include <string.h>

enum { GUARD = 7 };

/* ---- search ---- */

/* Lists of all searches of a call, and what these make; guards around what is written. */
typedef struct lists {
    int64_t rows, entries, beams;
    proa_beam_lists l;
    float *scores;
    proa_beam_hyp *hyps;
    int32_t *tokens, *parents;
} lists;

/* Groups: their lists are longer by as many tokens as the groups before may have taken. */
static void group(proa_beam_params *s, uint64_t *state)
{
    static const float penalties[] = {0, 0.25F, 0.7F, 1, 50};
    const int32_t sizes[] = {1, 2, 4, s->beams / 2};
    int32_t size = sizes[rng_below(state, 4)];
    if (s->beams % size || s->beams == size) size = 1;
    s->groups = s->beams / size;
    s->by_token = 1, s->pushed = 0, s->divisor = 1, s->rate = 0, s->none = -1e9F;
    s->kept = size * (int32_t)proa_max64(2, 1 + s->end_count);
    s->each = (int32_t)proa_min64(s->kept + s->beams - size, PROA_BEAM_CANDIDATES_MAX / size);
    if (rng_below(state, 4) == 0) s->each = (int32_t)proa_max64(2 + s->end_count, s->each / 3);
    if (s->kept > s->each * size) s->kept = s->each * size;
    s->penalty = penalties[rng_below(state, PROA_COUNT(penalties))];
    s->pad = (int32_t)rng_below(state, 50);
    s->length = rng_below(state, 2) ? 1 : 7.3, s->reach = rng_below(state, 2) ? s->length : 11;
    s->first_come = rng_below(state, 3) == 0;
}

/* Ended beams stay. */
static void stay(proa_beam_params *s)
{
    s->keep_ended = 1, s->by_token = s->pushed = s->by_beam = 0, s->none = -1e20F;
    s->kept = s->beams;
}

static proa_beam_params some_search(uint64_t *state, bool large)
{
    static const int32_t widths[] = {2, 3, 4, 5, 8, 16, 32}, narrow[] = {64, 40};
    static const float rates[] = {0, 0, 0.25F, -0.7F, 1};
    proa_beam_params s = {
        .groups = 1, .pushed = rng_below(state, 2) == 0, .end_count = (int32_t)rng_below(state, 4)};
    s.by_token = s.pushed;
    s.beams = large ? widths[rng_below(state, PROA_COUNT(widths))] : widths[rng_below(state, 4)];
    if (large && rng_below(state, 5) == 0) s.beams = narrow[rng_below(state, 2)];
    s.kept = s.beams * (int32_t)proa_max64(2, 1 + s.end_count);
    s.each = (int32_t)proa_min64(s.kept, PROA_BEAM_CANDIDATES_MAX / s.beams);
    if (s.kept > s.each * s.beams) s.kept = s.each * s.beams;
    if (rng_below(state, 4) == 0)
        s.each = (int32_t)proa_max64(2 + s.end_count, s.each / 3); /* a small vocabulary */
    if (s.kept > s.each * s.beams) s.kept = s.each * s.beams;
    s.rows = rng_below(state, 3) == 0 ? 1 : s.beams;
    s.none = s.pushed ? -1e9F : -1e20F;
    s.divisor = s.pushed || rng_below(state, 2) ? 1 : 3.7F;
    s.rate = s.pushed ? 0 : rates[rng_below(state, PROA_COUNT(rates))];
    s.by_beam = rng_below(state, 2) == 0;
    int64_t kind = rng_below(state, 6);
    if (kind < 2) group(&s, state);
    if (kind == 2) stay(&s);
    for (int32_t i = 0; i < s.end_count; i++) s.end_ids[i] = (int32_t)rng_below(state, 60);
    return s;
}

/* Falling values with ties, whose tokens rise among equals; some of few values, so that sums of several beams are
 * equal. */
static void fill_row(float *values, int32_t *ids, int32_t n, uint64_t *state)
{
    float value = 20, step = rng_below(state, 3) ? 0.7F : 0.0F;
    /* of some the last tokens that there may be, in place of the first: whoever packs them has room for all */
    int32_t base = rng_below(state, 4) ? 0 : PROA_VOCAB_MAX - 3 * PROA_BEAM_CANDIDATES_MAX - 50;
    for (int32_t j = 0, id = 0; j < n; j++) {
        float fall = step > 0 ? step * fabsf(rng_normal(state)) : (float)rng_below(state, 2);
        if (j && rng_below(state, 3)) value -= fall;
        bool tie = j && value == values[j - 1];
        id = tie ? id + 1 + (int32_t)rng_below(state, 3) : (int32_t)rng_below(state, 50);
        values[j] = value, ids[j] = base + id;
    }
}

/* Some of its finished sequences, with equal scores; some groups, or beams, that are done. */
static void fill_held(const proa_beam_params *s, proa_beam_hyp *hyps, uint64_t *state)
{
    int32_t size = s->beams / s->groups;
    for (int32_t i = 0; i < s->beams && s->keep_ended; i++)
        if (rng_below(state, 3) == 0)
            hyps[i] = (proa_beam_hyp){.done = 1, .divisor = rng_below(state, 2) ? 1 : 2.9F, .token = 700 + i};
    for (int32_t first = 0; first < s->beams && s->groups > 1; first += size) {
        proa_beam_hyp *p = hyps + first;
        for (int32_t i = 0; i < size; i++) p[i].score = -(double)rng_below(state, 4) / 2;
        p->count = (int32_t)rng_below(state, size + 1);
        p->worst = 1e9;
        for (int32_t i = 0; i < p->count; i++) p->worst = fmin(p->worst, p[i].score);
        p->done = p->count == size && rng_below(state, 2) == 0;
    }
}

static lists make_lists(proa_beam_params *s, int64_t count, uint64_t *state)
{
    lists x = {.rows = 0};
    for (int64_t i = 0; i < count; i++) {
        s[i].row = (int32_t)x.rows, s[i].at = (int32_t)x.entries;
        s[i].to = s[i].state = (int32_t)x.beams + GUARD;
        x.rows += s[i].rows, x.entries += s[i].rows * s[i].each, x.beams += s[i].beams;
    }
    x.l.ids = proa_calloc((size_t)x.entries, 4), x.l.logits = proa_calloc((size_t)x.entries, 4);
    x.l.sums = proa_calloc((size_t)x.rows, 4);
    x.scores = proa_calloc((size_t)x.beams + 2 * GUARD, 4);
    x.hyps = proa_calloc((size_t)x.beams + 2 * GUARD, sizeof *x.hyps);
    x.tokens = proa_calloc((size_t)x.beams + 2 * GUARD, 4);
    x.parents = proa_calloc((size_t)x.beams + 2 * GUARD, 4);
    for (int64_t i = 0; i < count; i++)
        for (int32_t r = 0; r < s[i].rows; r++)
            fill_row(x.l.logits + s[i].at + r * s[i].each, x.l.ids + s[i].at + r * s[i].each, s[i].each, state);
    for (int64_t i = 0; i < x.rows; i++)
        x.l.sums[i] = rng_below(state, 2) ? 20.5F : 20 + 0.3F * rng_normal(state);
    for (int64_t i = 0; i < x.beams + 2 * GUARD; i++)
        x.scores[i] = rng_below(state, 2) ? -3 : -5 + rng_normal(state), x.tokens[i] = x.parents[i] = -77;
    for (int64_t i = 0; i < count; i++) fill_held(&s[i], x.hyps + s[i].state, state);
    x.l.scores = x.scores, x.l.hyps = x.hyps, x.l.tokens = x.tokens, x.l.parents = x.parents;
    return x;
}

static void *copied(const void *p, int64_t words)
{
    return memcpy(proa_malloc((size_t)words * 4), p, (size_t)words * 4);
}

static void search_case(tester *t, proa_beam_params *s, int64_t count, uint64_t *state)
{
    lists mine = make_lists(s, count, state);
    int64_t n = mine.beams + 2 * GUARD, hyp_words = n * (int64_t)sizeof *mine.hyps / 4;
    proa_beam_lists right = mine.l;
    right.scores = copied(mine.scores, n);
    right.hyps = copied(mine.hyps, hyp_words);
    right.tokens = copied(mine.tokens, n), right.parents = copied(mine.parents, n);
    t->reference.ops->decode->beam_step(&t->reference, s, count, &right);
    t->tables[0].ops->decode->beam_step(&t->tables[0], s, count, &mine.l);
    for (int64_t i = 0; i < count; i++)
        for (int32_t k = s[i].to; k < s[i].to + s[i].beams; k++)
            expect(t,
                   mine.tokens[k] == right.tokens[k] && mine.parents[k] == right.parents[k] &&
                       memcmp(&mine.scores[k], &right.scores[k], 4) == 0,
                   "search %d of %d beams in %d groups, M %d, C %d: beam %d goes on with %d from %d at %g, "
                   "not %d from %d at %g",
                   (int)i, (int)s[i].beams, (int)s[i].groups, (int)s[i].each, (int)s[i].kept,
                   (int)(k - s[i].to), (int)mine.tokens[k], (int)mine.parents[k], (double)mine.scores[k],
                   (int)right.tokens[k], (int)right.parents[k], (double)right.scores[k]);
    expect(t,
           memcmp(mine.tokens, right.tokens, (size_t)n * 4) == 0 &&
               memcmp(mine.scores, right.scores, (size_t)n * 4) == 0,
           "wrote outside");
    expect(t, memcmp(mine.hyps, right.hyps, (size_t)hyp_words * 4) == 0,
           "%d searches: groups hold other finished sequences", (int)count);
    void *all[] = {mine.l.ids,   mine.l.logits, mine.l.sums, mine.scores,  mine.hyps,    mine.tokens,
                   mine.parents, right.scores,  right.hyps,  right.tokens, right.parents};
    for (size_t i = 0; i < PROA_COUNT(all); i++) free(all[i]);
}

/* Lists that are not all numbers: some token of the list, some parent, nothing outside. */
static void bad_lists(tester *t, int32_t groups, bool keep_ended, uint64_t *state)
{
    proa_beam_params s = {.beams = 4, .groups = groups, .each = 8, .rows = 4, .none = -1e9F, .divisor = 1};
    s.kept = 8 / groups, s.by_token = 1, s.pushed = groups == 1, s.length = s.reach = 1, s.penalty = 1;
    if (keep_ended) stay(&s);
    lists x = make_lists(&s, 1, state);
    for (int32_t i = 0; i < 32; i++) x.l.logits[i] = i % 5 ? NAN : -INFINITY;
    t->tables[0].ops->decode->beam_step(&t->tables[0], &s, 1, &x.l);
    for (int32_t i = s.to; i < s.to + 4; i++)
        expect(t, x.tokens[i] >= 0 && x.parents[i] >= 0 && x.parents[i] < 4,
               "bad list: beam %d goes on with %d from %d", i, (int)x.tokens[i], (int)x.parents[i]);
    expect(t, x.tokens[GUARD - 1] == -77 && x.tokens[GUARD + 4] == -77, "wrote outside");
    void *all[] = {x.l.ids, x.l.logits, x.l.sums, x.scores, x.hyps, x.tokens, x.parents};
    for (size_t i = 0; i < PROA_COUNT(all); i++) free(all[i]);
}

void check_beam_step(tester *t)
{
    uint64_t state = 11;
    for (int turn = 0; turn < 120; turn++) {
        proa_beam_params s[40];
        int64_t count = turn < 60 ? 1 : 1 + rng_below(&state, PROA_COUNT(s));
        if (!takes_turn(t)) continue;
        for (int64_t i = 0; i < count; i++) s[i] = some_search(&state, turn % 2);
        search_case(t, s, count, &state);
    }
    for (int32_t groups = 1; groups <= 4; groups *= 2) bad_lists(t, groups, false, &state);
    bad_lists(t, 1, true, &state);
}

/* ---- follow ---- */

typedef struct pool_shape {
    int64_t layers, heads, dim;
    proa_dtype dtype;
} pool_shape;

static int64_t page_bytes(const pool_shape *p)
{
    return p->heads * p->dim * PROA_PAGE_TOKENS * proa_dtype_bytes(p->dtype);
}

static void layers_of(proa_kv *kv, const pool_shape *p, char *memory, int64_t pages)
{
    for (int64_t i = 0; i < p->layers; i++) {
        char *k = memory + 2 * i * pages * page_bytes(p);
        kv[i] = (proa_kv){
            .k = k, .v = k + pages * page_bytes(p), .dtype = p->dtype, .kv_heads = p->heads, .head_dim = p->dim};
    }
}

/* Tables as beams leave them: full pages shared or not, each with a last page of its own. Returns the pages named. */
static int32_t fill_tables(int32_t *pages, const proa_kv_reorder *b, int64_t count, int64_t entries,
                           uint64_t *state)
{
    int32_t next = 0;
    for (int64_t i = 0; i < entries; i++) pages[i] = -9;
    for (int64_t i = 0; i < count; i++)
        for (int32_t k = 0; k < b[i].beams; k++) {
            int32_t columns = b[i].tokens / PROA_PAGE_TOKENS + 1;
            int32_t *table = pages + b[i].source + k * columns;
            for (int32_t j = 0; j < columns; j++)
                table[j] = k && j + 1 < columns && rng_below(state, 2) ? table[j - columns] : next++;
        }
    return next;
}

static void follow_case(tester *t, const pool_shape *shape, int64_t count, bool widest, uint64_t *state)
{
    proa_kv_reorder b[6];
    proa_kv kv[2][8];
    int32_t parents[6 * PROA_DEVICE_BEAMS_MAX + GUARD], at = 0, entries = GUARD, most = 0;
    for (int64_t i = 0; i < count; i++) {
        b[i] = (proa_kv_reorder){.beams = 2 + (int32_t)rng_below(state, i ? 5 : 9), .from = GUARD + at};
        if (widest && i == 0) b[i].beams = PROA_DEVICE_BEAMS_MAX;
        b[i].tokens = rng_below(state, 4) ? 1 + (int32_t)rng_below(state, 300)
                                          : 64 * (int32_t)rng_below(state, 5);
        int32_t size = b[i].beams * (b[i].tokens / PROA_PAGE_TOKENS + 1);
        b[i].table = entries, b[i].source = entries + size, entries += 2 * size;
        for (int32_t k = 0; k < b[i].beams; k++)
            parents[b[i].from + k] = (int32_t)rng_below(state, b[i].beams);
        at += b[i].beams;
        most = b[i].beams > most ? b[i].beams : most;
    }
    int32_t *pages = proa_calloc((size_t)entries, 4);
    int64_t used = fill_tables(pages, b, count, entries, state),
            bytes = 2 * shape->layers * used * page_bytes(shape);
    int32_t *right_pages = copied(pages, entries);
    uint32_t *mine = proa_malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes / 4; i++) mine[i] = (uint32_t)rng_next(state);
    uint32_t *right = copied(mine, bytes / 4);
    layers_of(kv[0], shape, (char *)right, used), layers_of(kv[1], shape, (char *)mine, used);
    t->reference.ops->decode->reorder_kv(&t->reference, right_pages, b, count, most, parents, kv[0],
                                         shape->layers);
    t->tables[0].ops->decode->reorder_kv(&t->tables[0], pages, b, count, most, parents, kv[1], shape->layers);
    expect(t, memcmp(pages, right_pages, (size_t)entries * 4) == 0, "%d branches, %d layers: tables differ",
           (int)count, (int)shape->layers);
    expect(t, memcmp(mine, right, (size_t)bytes) == 0, "%d branches, %d layers, %d heads of %d: pages differ",
           (int)count, (int)shape->layers, (int)shape->heads, (int)shape->dim);
    free(pages), free(right_pages), free(mine), free(right);
}

/* The rule itself: every page is taken once, the first to go on from a parent keeps the parent's, and who has to copy
 * takes from somebody who does not go on. */
static void rule_holds(tester *t, uint64_t *state)
{
    for (int turn = 0; turn < 2000; turn++) {
        int32_t take[PROA_DEVICE_BEAMS_MAX], parent[PROA_DEVICE_BEAMS_MAX];
        int32_t beams = 1 + (int32_t)rng_below(state, PROA_DEVICE_BEAMS_MAX);
        uint64_t taken = 0, parents = 0;
        for (int32_t i = 0; i < beams; i++) parent[i] = (int32_t)rng_below(state, beams);
        proa_reorder_pages(take, parent, beams);
        bool good = true;
        for (int32_t i = 0; i < beams; i++) {
            bool first = !(parents >> parent[i] & 1);
            parents |= (uint64_t)1 << parent[i];
            good = good && take[i] >= 0 && take[i] < beams && !(taken >> take[i] & 1) &&
                   first == (take[i] == parent[i]);
            taken |= (uint64_t)1 << take[i];
        }
        for (int32_t i = 0; i < beams; i++)
            good = good && (take[i] == parent[i] || !(parents >> take[i] & 1));
        expect(t, good, "%d beams: pages are not taken as reorder_kv.h says", (int)beams);
    }
}

void check_reorder_kv(tester *t)
{
    static const pool_shape shapes[] = {{1, 1, 64, PROA_DTYPE_F32},   {3, 2, 64, PROA_DTYPE_F16},
                                        {2, 8, 128, PROA_DTYPE_BF16}, {2, 3, 20, PROA_DTYPE_F16},
                                        {4, 2, 80, PROA_DTYPE_FP8},   {8, 1, 256, PROA_DTYPE_F16}};
    uint64_t state = 23;
    rule_holds(t, &state);
    for (size_t i = 0; i < PROA_COUNT(shapes); i++)
        for (int turn = 0; turn < 8; turn++)
            if (takes_turn(t)) follow_case(t, &shapes[i], 1 + turn % 6, i == 0 && turn < 3, &state);
}
