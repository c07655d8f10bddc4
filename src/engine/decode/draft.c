/* SPDX-License-Identifier: Apache-2.0
 * draft.c - prompt lookup, and the number of draft tokens that pays. */
#include "engine/decode/draft.h"

#include "base/checked.h"
#include "base/limits.h"

/* Weight of a new measurement in a decaying mean. */
#define NEW_SHARE 0.125
/* Steps without a draft after which one is tried although it does not seem to pay. */
#define TRY_AFTER 64

static int32_t match_length(const int32_t *text, int64_t a, int64_t b, int32_t most)
{
    int32_t n = 0;
    while (n < most && a >= n && text[a - n] == text[b - n]) n++;
    return n;
}

int32_t proa_draft_lookup(int32_t *draft, int32_t size, const int32_t *text, int64_t count, int32_t most,
                          int32_t least)
{
    int64_t last = count - 1, at = -1;
    int32_t longest = least - 1;
    for (int64_t i = last - 1; i >= 0 && longest < most; i--) {
        if (text[i] != text[last]) continue;
        int32_t n = match_length(text, i, last, most);
        if (n > longest) longest = n, at = i;
    }
    if (at < 0) return 0;
    int32_t n = (int32_t)proa_min64(size, last - at);
    for (int32_t i = 0; i < n; i++) draft[i] = text[at + 1 + i];
    return n;
}

void proa_draft_time(proa_draft_times *t, int64_t rows, double ns)
{
    if (rows < 1 || rows > PROA_DRAFT_ROWS) return;
    double *mean = &t->ns[rows];
    *mean = *mean == 0 ? ns : *mean + NEW_SHARE * (ns - *mean);
}

double proa_draft_time_of(const proa_draft_times *t, int64_t rows)
{
    int64_t below = proa_min64(rows, PROA_DRAFT_ROWS), above = rows;
    while (below > 0 && t->ns[below] == 0) below--;
    if (below == rows) return t->ns[rows];
    while (above <= PROA_DRAFT_ROWS && t->ns[above] == 0) above++;
    if (above > PROA_DRAFT_ROWS) return below ? t->ns[below] * (1 + (double)(rows - below) / 64) : 0;
    if (below == 0) return t->ns[above];
    double part = (double)(rows - below) / (double)(above - below);
    return t->ns[below] + part * (t->ns[above] - t->ns[below]);
}

int32_t proa_draft_size(proa_draft_state *s, const proa_draft_times *t, int64_t rows, int32_t limit,
                        double draft_ns)
{
    double time = proa_draft_time_of(t, rows), best = 1, expected = 0, likely = 1;
    int32_t most = (int32_t)proa_min64(s->most, limit), size = 0;
    if (most <= 0) return 0;
    if (time == 0) return most;
    for (int32_t d = 1; d <= most; d++) {
        likely *= (double)s->rate;
        expected += likely;
        double tokens = ((double)rows + expected) / (double)rows;
        double gain = tokens * time / (proa_draft_time_of(t, rows + d) + draft_ns * d);
        if (gain > best) best = gain, size = d;
    }
    if (size > 0) s->idle = 0;
    else if (++s->idle >= TRY_AFTER) s->idle = 0, size = (int32_t)proa_min64(2, most);
    return size;
}

void proa_draft_result(proa_draft_state *s, int32_t drafted, int32_t accepted)
{
    /* each accepted token is a success, the first that is not is a failure */
    for (int32_t i = 0; i < accepted; i++) s->rate += (float)NEW_SHARE * (1 - s->rate);
    if (accepted < drafted) s->rate -= (float)NEW_SHARE * s->rate;
    s->most = accepted == drafted ? 2 * s->most : accepted + 2;
    if (s->most > PROA_DRAFT_MAX) s->most = PROA_DRAFT_MAX;
}
