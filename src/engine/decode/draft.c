/* SPDX-License-Identifier: Apache-2.0
 * draft.c - the number of draft tokens that pays. */
#include "engine/decode/draft.h"

#include "base/checked.h"
#include "base/limits.h"
#include <math.h>

/* Weight of a new measurement in a decaying mean. */
#define NEW_SHARE     0.125
#define CHANCE_SHARE  (1.0 / 64)
/* A mean of which nothing was measured for half as many passes is given up by half. */
#define OLD_PASSES    128
#define ROW_SHARE     (1.0 / 512)
/* A pass that took that many times the mean was interrupted, and counts as one that took this long. */
#define OUTLIER       1.5
/* Drafts that promise less than this much more are left. */
#define GAIN_LEAST    1.01
/* A chance is divided by no less, since the rate of a sequence whose draft tokens were all wrong is 0. */
#define RATE_LEAST    0.01
/* Weight of the rate with which a sequence begins, in tokens. */
#define FIRST_TOKENS  4
/* A pass that took that many times what it would have without drafts was interrupted. */
#define LOSS_MOST     2
/* Passes that drafts may lose at once, and what they begin again with. */
#define CREDIT_PASSES 4
#define CREDIT_AGAIN  0.5
/* Tokens of a try. */
#define TRY_TOKENS    2
/* A draft whose chances are known is tried only if its first token is at least so likely to be right. */
#define TRY_CHANCE    0.5F

/* Passes of up to EXACT_ROWS rows have a time each; beyond, each SLOT_ROWS rows have one together. */
enum { EXACT_ROWS = 64, SLOT_ROWS = 32 };

static int64_t slot_of(int64_t rows)
{
    return rows <= EXACT_ROWS ? rows : EXACT_ROWS + proa_ceil_div(rows - EXACT_ROWS, SLOT_ROWS);
}

/* The rows that a slot stands for: the middle of its own. */
static double rows_of(int64_t slot)
{
    return slot <= EXACT_ROWS ? (double)slot : EXACT_ROWS + SLOT_ROWS * ((double)(slot - EXACT_ROWS) - 0.5);
}

/* The weight of a new time: more if the last one was many passes ago, since the machine may have been faster then. */
static double share_after(int64_t passes)
{
    return fmin(0.5, fmax(NEW_SHARE, (double)passes / OLD_PASSES));
}

/* The shorter of two times, where 0 means that a time is not known. */
static double least_time(double a, double b)
{
    if (a == 0) return b;
    return b == 0 || a < b ? a : b;
}

double proa_draft_time_clipped(const proa_draft_times *t, int64_t rows, double ns)
{
    double mean = proa_draft_time_mean(t, rows);
    return mean > 0 ? fmin(ns, OUTLIER * mean) : ns;
}

void proa_draft_time(proa_draft_times *t, int64_t rows, double ns)
{
    if (rows < 1 || slot_of(rows) >= PROA_DRAFT_SLOTS) return;
    double *mean = &t->ns[slot_of(rows)];
    int64_t *last = &t->last[slot_of(rows)];
    *mean = *mean == 0 ? ns : *mean + share_after(++t->passes - *last) * (fmin(ns, OUTLIER * *mean) - *mean);
    *last = t->passes;
    for (int64_t slot = slot_of(rows) - 1; slot >= 0; slot--)
        t->larger[slot] = least_time(t->ns[slot + 1], t->larger[slot + 1]);
}

double proa_draft_time_mean(const proa_draft_times *t, int64_t rows)
{
    if (rows < 1) return 0;
    int64_t slot = proa_min64(slot_of(rows), PROA_DRAFT_SLOTS - 1), below = slot, above = slot;
    if (t->ns[slot] > 0) return t->ns[slot];
    while (below > 0 && t->ns[below] == 0) below--;
    while (above < PROA_DRAFT_SLOTS && t->ns[above] == 0) above++;
    if (above == PROA_DRAFT_SLOTS)
        return below ? t->ns[below] * (1 + ((double)rows - rows_of(below)) / fmax(64, rows_of(below))) : 0;
    if (below == 0) return t->ns[above];
    double part = ((double)rows - rows_of(below)) / (rows_of(above) - rows_of(below));
    return t->ns[below] + part * (t->ns[above] - t->ns[below]);
}

double proa_draft_time_of(const proa_draft_times *t, int64_t rows)
{
    if (rows < 1) return 0;
    int64_t slot = proa_min64(slot_of(rows), PROA_DRAFT_SLOTS - 1);
    return least_time(proa_draft_time_mean(t, rows), t->larger[slot]);
}

/* A pass with drafts, while their sizes are chosen. */
typedef struct pass_plan {
    const proa_draft_times *times;
    int64_t rows, drafted; /* of the pass without drafts; draft tokens so far, */
    double expected, ns;   /* how many of them are expected to be right, and the time to draft them */
} pass_plan;

/* Tokens a nanosecond. Times are noisy, and a row is never free: it is taken to cost at least ROW_SHARE of the pass. */
static double rate_of(const pass_plan *p)
{
    double least = proa_draft_time_of(p->times, p->rows) * (1 + ROW_SHARE * (double)p->drafted);
    double ns = fmax(proa_draft_time_of(p->times, p->rows + p->drafted), least);
    return ((double)p->rows + p->expected) / (ns + p->ns);
}

static pass_plan with_draft(const pass_plan *p, const proa_draft_offer *o, int32_t size)
{
    pass_plan more = *p;
    double likely = 1;
    for (int32_t d = 0; d < size; d++) {
        likely = o->chances ? (double)o->chances[d] : likely * (double)o->state->rate;
        more.expected += likely;
    }
    more.drafted += size;
    more.ns += o->first_ns + o->token_ns * size;
    return more;
}

/* The time to draft the tokens of all offers that were chosen, together. */
static double drafting_ns(const proa_draft_offer *offers, int64_t count)
{
    const proa_drafter_times *drafter = NULL;
    int64_t behind = 0, drafting[PROA_DRAFT_MAX + 1] = {0}; /* offers by their size */
    double ns = 0;
    for (int64_t i = 0; i < count; i++) {
        const proa_draft_offer *o = &offers[i];
        if (o->size && !o->drafter) ns += o->first_ns + o->token_ns * o->size;
        if (!o->size || !o->drafter) continue;
        drafter = o->drafter;
        behind += o->behind;
        drafting[proa_min64(o->size, PROA_DRAFT_MAX)]++;
    }
    if (drafter) ns += proa_draft_time_of(&drafter->first, behind);
    for (int64_t size = PROA_DRAFT_MAX, live = 0; size > 1; size--) {
        live += drafting[size];
        if (live) ns += proa_draft_time_of(&drafter->more, live);
    }
    return ns;
}

/* The time of one more row, over those of a long draft. */
static double row_cost(const pass_plan *p)
{
    int64_t rows = p->rows + p->drafted;
    double now = proa_draft_time_of(p->times, rows), then = proa_draft_time_of(p->times, rows + PROA_DRAFT_MAX);
    return fmax((then - now) / PROA_DRAFT_MAX, ROW_SHARE * now);
}

/* The best size of one more draft; 0: none makes the pass better. */
static int32_t best_size(const pass_plan *p, const proa_draft_offer *o)
{
    int32_t most = o->chances ? o->limit : (int32_t)proa_min64(o->state->most, o->limit), size = 0;
    double best = rate_of(p);
    for (int32_t d = 1; d <= most; d++) {
        pass_plan more = with_draft(p, o, d);
        if (rate_of(&more) > best) best = rate_of(&more), size = d;
    }
    return size;
}

/* Whether a draft would pay if its tokens were right more often than they were: half way to always. */
static bool pays_with_luck(const pass_plan *none, const proa_draft_offer *o)
{
    proa_draft_state lucky = *o->state;
    proa_draft_offer better = *o;
    lucky.rate = (1 + lucky.rate) / 2;
    better.state = &lucky;
    better.size = best_size(none, &better);
    const pass_plan p = with_draft(none, &better, better.size);
    return rate_of(&p) > GAIN_LEAST * rate_of(none);
}

/* No pass of that many rows was measured for a long time. */
static bool is_time_old(const proa_draft_times *t, int64_t rows)
{
    int64_t slot = proa_min64(slot_of(rows), PROA_DRAFT_SLOTS - 1);
    return t->passes - t->last[slot] >= OLD_PASSES;
}

/* Whether a try would tell anything. Where the chances are known, only the time of a pass with drafts can be wrong: an
 * interrupted pass may have been the last one that was measured. A chain that takes time to draft is left where luck
 * would not help, because the draft model has to run all tokens since the last one first. */
static bool is_try_useful(const pass_plan *none, const proa_draft_offer *o, int32_t size)
{
    bool costs = !o->chances && o->token_ns + o->first_ns > 0;
    if (proa_draft_time_of(none->times, none->rows) == 0) return !o->is_known; /* no times yet */
    if (o->is_known)
        return size > 0 && o->chances[0] >= TRY_CHANCE && is_time_old(none->times, none->rows + size);
    return !costs || pays_with_luck(none, o);
}

/* The sequence drafts now although that does not seem to pay: it has not for a long time. */
static int32_t try_size(const pass_plan *none, const proa_draft_offer *o)
{
    int32_t size = (int32_t)proa_min64(TRY_TOKENS, o->limit);
    return o->state->idle >= o->state->tries && is_try_useful(none, o, size) ? size : 0;
}

bool proa_draft_plan(proa_draft_offer *offers, int64_t count, const proa_draft_times *t, int64_t rows,
                     double pause_ns)
{
    const pass_plan none = {.times = t, .rows = rows};
    const bool known = proa_draft_time_of(t, rows) > 0;
    pass_plan p = none;
    for (int64_t i = 0; i < count; i++) {
        offers[i].size = known ? best_size(&p, &offers[i]) : 0;
        if (offers[i].size) p = with_draft(&p, &offers[i], offers[i].size);
    }
    double rate = known ? rate_of(&p) : 0;
    p.ns = drafting_ns(offers, count);
    p.ns += pause_ns; /* paid once, so it weighs against all drafts together */
    bool pays = p.drafted > 0 && rate_of(&p) > GAIN_LEAST * rate_of(&none);
    for (int64_t i = 0; i < count; i++) {
        bool chosen = offers[i].size && pays;
        double row = chosen ? rate * row_cost(&p) : 0, token = chosen ? rate * offers[i].token_ns : 0;
        offers[i].chance_least = (float)row;
        offers[i].chance_more = (float)((row + token) / fmax(offers[i].state->rate, RATE_LEAST));
        if (!pays || offers[i].size == 0) offers[i].size = try_size(&none, &offers[i]);
    }
    return pays;
}

void proa_draft_chances_init(proa_draft_chances *c)
{
    for (int32_t i = 0; i < PROA_DRAFT_CHANCES; i++)
        c->right[i] = 0.5F + ((float)i + 0.5F) / (2 * PROA_DRAFT_CHANCES); /* as measured with small models */
}

int32_t proa_draft_chance_of(float probability)
{
    int32_t i = probability > 0 ? (int32_t)(probability * PROA_DRAFT_CHANCES) : 0;
    return i < PROA_DRAFT_CHANCES ? i : PROA_DRAFT_CHANCES - 1;
}

void proa_draft_chance_result(proa_draft_chances *c, int32_t chance, bool right)
{
    c->right[chance] += (float)CHANCE_SHARE * ((right ? 1.0F : 0.0F) - c->right[chance]);
}

static void note_token(proa_draft_state *s, bool right)
{
    float share = 1.0F / (float)(s->seen + FIRST_TOKENS);
    if (share > (float)NEW_SHARE) s->seen++;
    else share = (float)NEW_SHARE;
    s->rate += share * ((right ? 1.0F : 0.0F) - s->rate);
}

void proa_draft_result(proa_draft_state *s, int32_t drafted, int32_t accepted)
{
    bool tried = s->idle >= s->tries;
    /* each accepted token is a success, the first that is not is a failure */
    for (int32_t i = 0; i < accepted; i++) note_token(s, true);
    if (accepted < drafted) note_token(s, false);
    s->most = accepted == drafted ? 2 * s->most : accepted + 2;
    if (s->most > PROA_DRAFT_MAX) s->most = PROA_DRAFT_MAX;
    if (tried) s->tries = (int32_t)proa_min64(2 * (int64_t)s->tries, PROA_DRAFT_TRY_LAST);
    else if (accepted) s->tries = PROA_DRAFT_TRY_FIRST;
    s->idle = 0;
}

void proa_draft_dropped(proa_draft_state *s, bool right)
{
    note_token(s, right);
}

void proa_draft_account_pass(proa_draft_account *a, double ns, double plain_ns, double share)
{
    if (!a->begun) a->begun = true, a->credit_ns = CREDIT_PASSES * plain_ns;
    ns = fmin(ns, LOSS_MOST * plain_ns);
    a->credit_ns += PROA_DRAFT_LOSS * ns - share * (ns - plain_ns);
    a->credit_ns = fmin(a->credit_ns, CREDIT_PASSES * plain_ns);
    if (a->credit_ns < 0) a->closed = true;
    else if (a->credit_ns > CREDIT_AGAIN * plain_ns) a->closed = false;
}

void proa_draft_idle(proa_draft_state *s)
{
    if (s->idle < s->tries) s->idle++;
}
