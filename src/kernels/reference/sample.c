/* SPDX-License-Identifier: Apache-2.0
 * sample.c - the decoding ops without beams. sample cuts the candidates from the most likely one down and draws one of
 * them; it sorts only the candidates that a cut looks at. A device's sampling is compared with it, and the last stage
 * of a pipeline on the host runs it. Else the engine on a CPU uses its own sampler (engine/decode/sampler.h). */
#include "kernels/process_logits.h"
#include "kernels/reference/reference.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float value; /* logit / temperature */
    float weight;
    int32_t id;
} candidate;
_Static_assert(sizeof(candidate) == PROA_SAMPLE_COLUMN_BYTES, "scratch of sample");

typedef bool before_fn(const candidate *a, const candidate *b);

static bool is_likelier(const candidate *a, const candidate *b)
{
    return a->value != b->value ? a->value > b->value : a->id < b->id;
}

static bool has_higher_id(const candidate *a, const candidate *b)
{
    return a->id > b->id;
}

static void swap_candidates(candidate *a, candidate *b)
{
    candidate c = *a;
    *a = *b;
    *b = c;
}

/* ---- a heap: the first of its candidates comes before all others ---- */

static void sift_down(candidate *c, int64_t n, int64_t at, before_fn *before)
{
    for (int64_t next; (next = 2 * at + 1) < n; at = next) {
        if (next + 1 < n && before(&c[next + 1], &c[next])) next++;
        if (!before(&c[next], &c[at])) return;
        swap_candidates(&c[next], &c[at]);
    }
}

static void make_heap(candidate *c, int64_t n, before_fn *before)
{
    for (int64_t at = n / 2; at-- > 0;) sift_down(c, n, at, before);
}

/* The first one of a heap goes behind the others. */
static void take_first(candidate *c, int64_t n, before_fn *before)
{
    swap_candidates(&c[0], &c[n - 1]);
    sift_down(c, n - 1, 0, before);
}

/* ---- cuts ---- */

/* Candidate i from the likeliest down is at[count - 1 - i], for i < sorted; the others are a heap. */
typedef struct ranking {
    candidate *at;
    int64_t count, sorted; /* sorted -1: at is in the order of the ids */
} ranking;

static candidate *take_likeliest(ranking *r, int64_t i)
{
    if (r->sorted < 0) make_heap(r->at, r->count, is_likelier), r->sorted = 0;
    for (; r->sorted <= i; r->sorted++) take_first(r->at, r->count - r->sorted, is_likelier);
    return &r->at[r->count - 1 - i];
}

/* Of the n likeliest. */
static double probability_mass(ranking *r, int64_t n)
{
    double sum = 0;
    if (n < r->count) take_likeliest(r, n - 1);
    for (int64_t i = r->count - n; i < r->count; i++) sum += (double)r->at[i].weight;
    return sum;
}

/* The k largest; ties with the last one stay, unless mass is counted falling. */
static int64_t keep_top_k(ranking *r, const proa_sample_params *how)
{
    int64_t k = how->top_k;
    if (k <= 0 || k >= r->count) return r->count;
    while (!how->falling && k < r->count && take_likeliest(r, k)->value == take_likeliest(r, k - 1)->value)
        k++;
    return k;
}

/* From the likeliest down until the mass reaches top_p; the last one weighs what was missing. */
static int64_t keep_falling(ranking *r, int64_t n, const proa_sample_params *how)
{
    double sum = probability_mass(r, n), above = 0;
    int64_t kept = 0;
    while (kept < n && (kept == 0 || (float)(above / sum) < how->top_p))
        above += (double)take_likeliest(r, kept++)->weight;
    candidate *last = take_likeliest(r, kept - 1);
    double left = (double)how->top_p * sum - (above - (double)last->weight);
    last->weight = (float)fmin(fmax(left, 0), (double)last->weight);
    return kept;
}

/* Puts the candidates from `begin` on that have the same value in falling order of their ids. Returns their end. */
static int64_t reverse_equals(ranking *r, int64_t begin, int64_t n)
{
    int64_t end = begin + 1;
    while (end < n && take_likeliest(r, end)->value == take_likeliest(r, begin)->value) end++;
    for (int64_t a = begin, b = end - 1; a < b; a++, b--)
        swap_candidates(take_likeliest(r, a), take_likeliest(r, b));
    return end;
}

/* Keeps tokens from the likeliest down while the mass of those that are left, the token included, is more than
 * 1 - top_p. Among equals the higher id is first, since they are dropped in rising order. */
static int64_t keep_rising(ranking *r, int64_t n, const proa_sample_params *how)
{
    double sum = probability_mass(r, n), above = 0;
    int64_t kept = 0, equals = 0;
    while (kept < n && (kept == 0 || (float)((sum - above) / sum) > how->rest)) {
        if (kept == equals) equals = reverse_equals(r, kept, n);
        above += (double)take_likeliest(r, kept++)->weight;
    }
    return kept;
}

/* From the likeliest down, so that it cuts what other cuts have left. */
static int64_t keep_min_p(ranking *r, int64_t n, float top, float min_p)
{
    int64_t kept = 0;
    while (kept < n && !(expf(take_likeliest(r, kept)->value - top) < min_p)) kept++;
    return kept;
}

/* ---- the draw ---- */

/* Among the n likeliest, in the order of their ids. */
static int32_t pick_token(ranking *r, int64_t n, double uniform)
{
    candidate *c = n < r->count ? take_likeliest(r, n - 1) : r->at;
    double running = 0, target = uniform * probability_mass(r, n);
    int64_t at = 0;
    if (r->sorted >= 0) make_heap(c, n, has_higher_id);
    for (int64_t left = n; r->sorted >= 0 && left > 1; left--) take_first(c, left, has_higher_id);
    for (; at < n; at++)
        if ((running += (double)c[at].weight) > target) break;
    return c[at < n ? at : n - 1].id;
}

/* What the cuts have left, as proa_sample_params.kept wants it. */
static void put_kept(const proa_sample_params *how, const float *row, int64_t n, const candidate *c, int64_t kept)
{
    for (int64_t j = 0; j < n; j++) how->kept[j] = -INFINITY;
    for (int64_t i = 0; i < kept; i++) how->kept[c[i].id] = row[c[i].id] / how->temperature;
}

static int32_t draw_token(candidate *c, const float *row, int64_t n, const proa_sample_params *how, int32_t largest)
{
    float top = row[largest] / how->temperature + 0.0F;
    ranking r = {.at = c, .count = n, .sorted = -1};
    if (!isfinite(top)) {
        if (how->kept) put_kept(how, row, n, &(candidate){.id = largest}, 1);
        return largest;
    }
    for (int64_t i = 0; i < n; i++) {
        float value = row[i] / how->temperature + 0.0F;
        c[i] = (candidate){value, expf(value - top), (int32_t)i};
    }
    int64_t kept = keep_top_k(&r, how);
    if (how->top_p > 0) kept = how->falling ? keep_falling(&r, kept, how) : keep_rising(&r, kept, how);
    if (how->min_p > 0) kept = keep_min_p(&r, kept, top, how->min_p);
    if (how->kept) put_kept(how, row, n, kept < n ? take_likeliest(&r, kept - 1) : c, kept);
    return pick_token(&r, kept, how->uniform);
}

static int32_t first_largest(const float *row, int64_t n)
{
    int32_t best = 0;
    for (int64_t j = 1; j < n; j++)
        if (row[j] > row[best]) best = (int32_t)j;
    return best;
}

void proa_sample_reference(proa_ctx *c, int32_t *ids, float *sums, proa_view x, const proa_sample_params *how)
{
    int64_t bytes = x.shape[1] * PROA_SAMPLE_COLUMN_BYTES;
    bool fits = bytes <= c->scratch_bytes; /* a device that a test stands in for has none */
    candidate *memory = fits ? c->scratch : proa_malloc((size_t)bytes);
    c->ops->log_sum_exp(c, sums, x);
    for (int64_t t = 0; t < x.shape[0]; t++) {
        const float *row = proa_view_f32(x) + t * x.stride[0];
        ids[t] = first_largest(row, x.shape[1]);
        if (how && how[t].temperature > 0 && isfinite(sums[t]))
            ids[t] = draw_token(memory, row, x.shape[1], &how[t], ids[t]);
    }
    if (!fits) free(memory);
}

static void apply_penalties(float *row, int64_t n, const proa_logits_row *e, const proa_logits_entry *entry,
                            int32_t last)
{
    bool found = false;
    for (int32_t i = 0; i < e->seen_count; i++) {
        bool again = e->last && entry[i].id == last;
        row[entry[i].id] = proa_logits_penalise(e, row[entry[i].id], entry[i].number + again);
        found = found || again;
    }
    if (e->last && !found && last >= 0 && last < n) row[last] = proa_logits_penalise(e, row[last], 1);
}

static void process_row(float *row, int64_t n, const proa_logits_row *e, const proa_logits_entry *entry,
                        int32_t last)
{
    for (int32_t i = 0; i < e->bias_count; i++, entry++) row[entry->id] += entry->value;
    for (int64_t j = 0; j < n && e->scale != 1; j++) row[j] *= e->scale;
    apply_penalties(row, n, e, entry, last);
    entry += e->seen_count;
    for (int32_t i = 0; i < e->mask_count; i++) {
        int32_t id = proa_logits_masked_id(&entry[i], last);
        if (id >= 0 && id < n) row[id] = -INFINITY;
    }
    for (int64_t j = 0; j < n && e->only; j++) row[j] = j == e->only - 1 ? 0 : -INFINITY;
}

void proa_process_logits_reference(proa_ctx *c, proa_view x, const proa_logits_row *rows,
                                   const proa_logits_entry *entries, const int32_t *last)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        process_row(proa_view_f32(x) + t * x.stride[0], x.shape[1], &rows[t], entries + rows[t].first, last[t]);
}

void proa_mask_logits_reference(proa_ctx *c, proa_view x, const uint32_t *masks, const int32_t *which)
{
    int64_t n = x.shape[1], words = (n + 31) / 32;
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++) {
        float *row = proa_view_f32(x) + t * x.stride[0];
        for (int64_t v = 0; v < n && which[t] >= 0; v++)
            if (!(masks[which[t] * words + v / 32] >> v % 32 & 1)) row[v] = -INFINITY;
    }
}

void proa_gather_logprobs_reference(proa_ctx *c, float *out, proa_view x, const int32_t *ids)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++) out[t] = proa_view_f32(x)[t * x.stride[0] + ids[t]];
}

void proa_gather_token_ids_reference(proa_ctx *c, int32_t *ids, const int32_t *from, const int32_t *rows,
                                     int64_t count)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < count; i++)
        if (rows[i] >= 0) ids[i] = from[rows[i]];
}

void proa_log_probs_reference(proa_ctx *c, proa_view y, proa_view x, const float *sums)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t v = 0; v < x.shape[1]; v++)
            proa_view_f32(y)[t * y.stride[0] + v] = proa_view_f32(x)[t * x.stride[0] + v] - sums[t];
}
