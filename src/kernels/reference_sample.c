/* SPDX-License-Identifier: Apache-2.0
 * reference_sample.c - one token from a row of logits as a textbook draws it: candidates sorted, cut, drawn. The
 * engine on a CPU has its own sampler, which sorts nothing; this is what a device's is compared with. */
#include "kernels/process_logits.h"
#include "kernels/reference.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float value; /* logit / temperature */
    float weight;
    int32_t id;
} candidate;

static int by_value(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static double probability_mass(const candidate *c, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)c[i].weight;
    return sum;
}

/* The k largest; ties with the last one stay, unless mass is counted falling. */
static int64_t keep_top_k(const candidate *c, int64_t n, const proa_sample_params *how)
{
    int64_t k = how->top_k;
    if (k <= 0 || k >= n) return n;
    while (!how->falling && k < n && c[k].value == c[k - 1].value) k++;
    return k;
}

/* From the likeliest down until the mass reaches top_p; the last one weighs what was missing. */
static int64_t keep_falling(candidate *c, int64_t n, const proa_sample_params *how)
{
    double sum = probability_mass(c, n), above = 0;
    int64_t kept = 0;
    while (kept < n && (kept == 0 || (float)(above / sum) < how->top_p)) above += (double)c[kept++].weight;
    double before = above - (double)c[kept - 1].weight;
    double left = (double)how->top_p * sum - before;
    c[kept - 1].weight = (float)fmin(fmax(left, 0), (double)c[kept - 1].weight);
    return kept;
}

/* From the likeliest down while what is left, itself included, is more than 1 - top_p; of equals the higher id first:
 * they are dropped in rising order. */
static int64_t keep_rising(candidate *c, int64_t n, const proa_sample_params *how)
{
    double sum = probability_mass(c, n), above = 0;
    int64_t kept = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && c[end].value == c[i].value) end++;
        for (int64_t a = i, b = end - 1; a < b; a++, b--) {
            candidate swap = c[a];
            c[a] = c[b];
            c[b] = swap;
        }
    }
    while (kept < n && (kept == 0 || (float)((sum - above) / sum) > how->rest))
        above += (double)c[kept++].weight;
    return kept;
}

static int64_t keep_min_p(candidate *c, int64_t n, float top, float min_p)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(expf(c[i].value - top) < min_p)) c[kept++] = c[i];
    return kept;
}

static int32_t pick_token(candidate *c, int64_t n, double uniform)
{
    double running = 0;
    int64_t at = 0;
    qsort(c, (size_t)n, sizeof *c, by_id);
    double target = uniform * probability_mass(c, n);
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

static int32_t draw_token(const float *row, int64_t n, const proa_sample_params *how, int32_t largest)
{
    float top = row[largest] / how->temperature + 0.0F;
    if (!isfinite(top)) {
        if (how->kept) put_kept(how, row, n, &(candidate){.id = largest}, 1);
        return largest;
    }
    candidate *c = proa_malloc((size_t)n * sizeof *c);
    for (int64_t i = 0; i < n; i++) {
        float value = row[i] / how->temperature + 0.0F;
        c[i] = (candidate){value, expf(value - top), (int32_t)i};
    }
    qsort(c, (size_t)n, sizeof *c, by_value);
    int64_t kept = keep_top_k(c, n, how);
    if (how->top_p > 0) kept = how->falling ? keep_falling(c, kept, how) : keep_rising(c, kept, how);
    if (how->min_p > 0) kept = keep_min_p(c, kept, top, how->min_p);
    if (how->kept) put_kept(how, row, n, c, kept);
    int32_t id = pick_token(c, kept, how->uniform);
    free(c);
    return id;
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
    c->ops->log_sum_exp(c, sums, x);
    for (int64_t t = 0; t < x.shape[0]; t++) {
        const float *row = proa_view_f32(x) + t * x.stride[0];
        ids[t] = first_largest(row, x.shape[1]);
        if (how && how[t].temperature > 0 && isfinite(sums[t]))
            ids[t] = draw_token(row, x.shape[1], &how[t], ids[t]);
    }
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
