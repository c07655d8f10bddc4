/* SPDX-License-Identifier: Apache-2.0
 * filter.c - which tokens of a row can be drawn. No row is sorted: a cut by rank or by mass is a selection by
 * histograms of the values' bits, linear in the candidates whatever they are (a few are sorted). top-k up to FAST_K
 * asks the vector kernel, and top-p or min-p alone first pass over what is far too unlikely. */
#include "engine/decode/sampler.h"

#include "base/checked.h"
#include "base/limits.h"
#include "engine/decode/row.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* FAST_K: up to here the kernel's heap is quicker than three histograms. FEW: and up to here sorting is. */
enum { LANES = 16, FAST_K = 1024, FEW = 512 };

static const int64_t gaps[] = {301, 132, 57, 23, 10, 4, 1}; /* for Shell's sort: Ciura 2001 */

/* ---- the steps' parameters ---- */

typedef struct rules {
    float temperature;
    int64_t top_k;   /* 0: all */
    float top_p;     /* 0: all */
    float min_p;     /* 0: all */
    float typical_p; /* 0: all */
    float epsilon;   /* 0: all */
    float eta;       /* 0: all */
    int64_t least;   /* no filter leaves fewer */
    bool falling;    /* ft, trtllm: mass is counted from the likeliest down, and the last one is cut */
} rules;

/* transformers' min_tokens_to_keep: a sampled beam keeps one token more than there are end tokens, so that it can go
 * on. */
static int64_t least_kept(const proa_options *o)
{
    return o->style == PROA_STYLE_HF && o->beams > 1 ? proa_max64(2, 1 + o->end_ids_count) : 1;
}

static float valid_part(float p)
{
    return p > 0 && p < 1 ? p : 0;
}

/* hf: a top_p of 0 that was given keeps the most likely token alone, as transformers does; one that was not is 1.
 * To ft and trtllm it is a top_p that is not used. */
static bool keeps_one(const proa_options *o)
{
    return o->style == PROA_STYLE_HF && o->top_p <= 0 && o->given[PROA_OPTION_top_p];
}

static rules rules_of(const proa_options *o, const proa_history *history)
{
    bool hf = o->style == PROA_STYLE_HF;
    int64_t least = least_kept(o);
    return (rules){.temperature = hf ? o->temperature : 1,
                   .top_k = o->top_k > 0 ? proa_max64(o->top_k, least) : 0,
                   .top_p = keeps_one(o) ? FLT_MIN : valid_part(proa_sampler_top_p(o, history)),
                   .min_p = o->min_p,
                   .typical_p = valid_part(o->typical_p),
                   .epsilon = o->epsilon_cutoff,
                   .eta = o->eta_cutoff,
                   .least = least,
                   .falling = !hf};
}

/* Tokens since top_p was set back: all that were generated, or those after the last reset id. */
static int64_t since_reset(const proa_options *o, const proa_history *h)
{
    bool resets = o->top_p_reset_id != 0 || o->given[PROA_OPTION_top_p_reset_id];
    int64_t since = 0, n = h->generated_count;
    while (since < n && !(resets && h->generated[n - 1 - since] == o->top_p_reset_id)) since++;
    return since;
}

/* How top_p goes on from token to token. */
typedef struct decay {
    float first, factor, least;
    bool fixed; /* it stays */
} decay;

static decay decay_of(const proa_options *o)
{
    bool hf = o->style == PROA_STYLE_HF;
    decay d = {.first = hf && o->top_p <= 0 ? 1 : o->top_p, /* what was not given decays from 1 */
               .factor = o->top_p_decay > 0 ? o->top_p_decay : 1,
               .least = o->top_p_min > 0 || o->given[PROA_OPTION_top_p_min] ? o->top_p_min : 1e-6F};
    d.fixed = keeps_one(o) || (d.factor >= 1 && d.least <= d.first) || (!hf && (o->top_k > 0 || d.first <= 0));
    return d;
}

float proa_sampler_top_p(const proa_options *o, const proa_history *history)
{
    const decay d = decay_of(o);
    if (d.fixed || !history) return o->top_p;
    float p = d.first, before = -1;
    for (int64_t since = since_reset(o, history); since > 0 && p != before; since--) {
        before = p;
        p = fmaxf(p * d.factor, d.least);
    }
    return p;
}

/* 1 - top_p. transformers has a Python float there; the f32 option came from a decimal number, which is taken back
 * first, so that 0.8 leaves 0.2 and not 0.19999999. */
static double rest_of(float top_p)
{
    return 1.0 - rint((double)top_p * 1e7) / 1e7;
}

bool proa_sampler_choice(proa_sample_params *choice, const proa_options *o)
{
    const rules r = rules_of(o, NULL);
    *choice = (proa_sample_params){.temperature = 0};
    if (proa_sampler_greedy(o)) return true;
    *choice = (proa_sample_params){.temperature = r.temperature,
                                   .top_k = (int32_t)r.top_k,
                                   .top_p = r.top_p,
                                   .rest = (float)rest_of(r.top_p),
                                   .min_p = r.min_p,
                                   .falling = r.falling};
    return decay_of(o).fixed && r.typical_p <= 0 && r.epsilon <= 0 && r.eta <= 0;
}

/* ---- selection ---- */

/* From the largest value down, candidates are kept as long as the weight above them is within the limit. The first
 * is always kept. */
typedef struct cut {
    const float *weight; /* of each candidate; NULL: 1 each */
    double total;        /* of all */
    double unit;         /* what mass is measured in */
    float limit;
    bool falling; /* kept while what stands above is less than limit; otherwise while the rest, itself included, is
                     more than limit: the same running sum from the other end, which rounds otherwise */
    double above; /* out: weight of all candidates above the last value kept */
} cut;

static bool cut_keeps(const cut *c, double above)
{
    if (c->falling) return (float)(above / c->unit) < c->limit;
    return (float)((c->total - above) / c->unit) > c->limit;
}

/* Last bin, from the top, whose first candidate is kept. */
static uint32_t last_bin(const double *bins, uint32_t count, cut *c)
{
    double above = c->above;
    uint32_t last = count;
    for (uint32_t b = count; b-- > 0;) {
        if (bins[b] <= 0) continue;
        if (last < count && !cut_keeps(c, above)) break;
        last = b;
        c->above = above;
        above += bins[b];
    }
    PROA_ASSERT(last < count);
    return last;
}

/* 11, 11 and 10 bits of the key by three histograms of which each looks only into the bin that the one before has
 * found. */
static uint32_t select_by_bins(const proa_sampler_scratch *s, int64_t n, cut *c)
{
    static const struct {
        int shift;
        uint32_t bins;
    } pass[] = {{21, 2048}, {10, 2048}, {0, 1024}};
    uint32_t prefix = 0, mask = 0;
    c->above = 0;
    for (size_t i = 0; i < PROA_COUNT(pass); i++) {
        memset(s->bins, 0, pass[i].bins * sizeof *s->bins);
        for (int64_t j = 0; j < n; j++) {
            uint32_t key = proa_row_key(s->value[j]);
            if ((key & mask) != prefix) continue;
            s->bins[key >> pass[i].shift & (pass[i].bins - 1)] += c->weight ? (double)c->weight[j] : 1.0;
        }
        prefix |= last_bin(s->bins, pass[i].bins, c) << pass[i].shift;
        mask |= (pass[i].bins - 1) << pass[i].shift;
    }
    return prefix;
}

/* Few candidates, in place of the bins. */
typedef struct pair {
    uint32_t key;
    float weight;
} pair;

/* Shell's sort, falling. */
static void sort_pairs(pair *p, int64_t n)
{
    for (size_t g = 0; g < PROA_COUNT(gaps); g++)
        for (int64_t i = gaps[g]; i < n; i++) {
            pair v = p[i];
            int64_t j = i;
            for (; j >= gaps[g] && p[j - gaps[g]].key < v.key; j -= gaps[g]) p[j] = p[j - gaps[g]];
            p[j] = v;
        }
}

static uint32_t select_by_sorting(const proa_sampler_scratch *s, int64_t n, cut *c)
{
    pair *p = (pair *)(void *)s->bins;
    for (int64_t i = 0; i < n; i++) p[i] = (pair){proa_row_key(s->value[i]), c->weight ? c->weight[i] : 1};
    sort_pairs(p, n);
    uint32_t last = p[0].key;
    double above = c->above = 0;
    for (int64_t i = 0; i < n; i++) {
        if (p[i].key != last) {
            if (!cut_keeps(c, above)) break;
            last = p[i].key;
            c->above = above;
        }
        above += (double)p[i].weight;
    }
    return last;
}

/* The smallest value that is kept, as its key. */
static uint32_t select_key(const proa_sampler_scratch *s, int64_t n, cut *c)
{
    return n <= FEW ? select_by_sorting(s, n, c) : select_by_bins(s, n, c);
}

static void move_entry(proa_sampler_scratch *s, int64_t to, int64_t from)
{
    s->value[to] = s->value[from];
    s->weight[to] = s->weight[from];
    s->id[to] = s->id[from];
}

/* The k-th largest of x[n], or the smallest if there are fewer; 1 <= k <= PROA_EOS_MAX + 1, n > 0. */
static float kth_largest(const float *x, int64_t n, int64_t k)
{
    float best[PROA_EOS_MAX + 1];
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (count == k && !(x[i] > best[k - 1])) continue;
        int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && x[i] > best[at - 1]; at--) best[at] = best[at - 1];
        best[at] = x[i];
    }
    return best[count - 1];
}

static int64_t count_above(const proa_sampler_scratch *s, int64_t n, uint32_t at)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += proa_row_key(s->value[i]) > at;
    return count;
}

/* Candidates above the key stay, and of those at the key the ones from `begin` to before `end`, counted by rising
 * id. Order is kept. */
static int64_t compact_entries(proa_sampler_scratch *s, int64_t n, uint32_t at, int64_t begin, int64_t end)
{
    int64_t kept = 0, tie = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t key = proa_row_key(s->value[i]);
        if (key < at) continue;
        if (key == at) {
            int64_t nth = tie++;
            if (nth < begin || nth >= end) continue;
        }
        move_entry(s, kept++, i);
    }
    return kept;
}

/* ---- the first candidates: value and id ---- */

/* transformers' TemperatureLogitsWarper: x / temperature. Adding zero makes one zero of two. */
static float scale_logit(float x, float temperature)
{
    return x / temperature + 0.0F;
}

static int64_t take_all(proa_sampler_scratch *s, const float *logits, int64_t n, float temperature)
{
    for (int64_t i = 0; i < n; i++) {
        s->value[i] = scale_logit(logits[i], temperature);
        s->id[i] = (int32_t)i;
    }
    return n;
}

static bool any_reaches(const float *x, float limit)
{
    uint32_t any = 0;
    for (int j = 0; j < LANES; j++) any |= (uint32_t) - (x[j] >= limit);
    return any != 0;
}

/* Those whose value is at least limit. A rough limit on the logits themselves passes over most of the row. */
static int64_t take_above(proa_sampler_scratch *s, const float *logits, int64_t n, float temperature, float limit)
{
    int64_t kept = 0;
    float rough = limit * temperature;
    rough -= fabsf(rough) * 1e-5F + 1e-30F;
    if (!(rough > -INFINITY)) rough = -INFINITY;
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t end = i + LANES < n ? i + LANES : n;
        if (end - i == LANES && !any_reaches(logits + i, rough)) continue;
        for (int64_t j = i; j < end; j++) {
            float v = scale_logit(logits[j], temperature);
            if (!(v >= limit)) continue;
            s->value[kept] = v;
            s->id[kept++] = (int32_t)j;
        }
    }
    return kept;
}

/* Shell's sort. */
static void sort_by_id(proa_sampler_scratch *s, int64_t n)
{
    for (size_t g = 0; g < PROA_COUNT(gaps); g++)
        for (int64_t i = gaps[g]; i < n; i++) {
            float value = s->value[i];
            int32_t id = s->id[i];
            int64_t j = i;
            for (; j >= gaps[g] && s->id[j - gaps[g]] > id; j -= gaps[g]) {
                s->value[j] = s->value[j - gaps[g]];
                s->id[j] = s->id[j - gaps[g]];
            }
            s->value[j] = value;
            s->id[j] = id;
        }
}

/* A candidate is kept while fewer than k stand above it: while the rest is more than n - k. ft: of the ties as many
 * as there is room for. */
static int64_t take_top_k_slowly(proa_sampler_scratch *s, const float *logits, int64_t n, const rules *r)
{
    take_all(s, logits, n, r->temperature);
    memset(s->weight, 0, (size_t)n * sizeof *s->weight); /* moved along, not used */
    cut c = {.total = (double)n, .unit = 1, .limit = (float)(n - r->top_k)};
    uint32_t at = select_key(s, n, &c);
    return compact_entries(s, n, at, 0, r->falling ? r->top_k - (int64_t)c.above : n);
}

void proa_sampler_best(proa_sampler_scratch *s, const float *logits, int64_t vocab, int64_t k)
{
    proa_view row = proa_view_2d((float *)(uintptr_t)logits, PROA_DTYPE_F32, 1, vocab);
    s->ctx.ops->top_k(&s->ctx, proa_view_2d(s->value, PROA_DTYPE_F32, 1, k), s->id, row, k);
}

static bool is_fast(const proa_sampler_scratch *s, int64_t n, const rules *r)
{
    return r->top_k > 0 && r->top_k < n && r->top_k < FAST_K && s->ctx.ops->isa != PROA_ISA_GENERIC;
}

/* hf: transformers' TopKLogitsWarper, which drops x below the k-th largest x, so that ties with it stay. ft and
 * trtllm: exactly k (topk_stage1 and 2 of sampling_topk_kernels.cu), of ties the lower ids. k < n. The k + 1 best are
 * in s: one more, to see whether there is a tie. */
static int64_t take_top_k(proa_sampler_scratch *s, const float *logits, int64_t n, const rules *r)
{
    int64_t k = r->top_k;
    for (int64_t i = 0; i <= k; i++) s->value[i] = scale_logit(s->value[i], r->temperature);
    if (!r->falling && s->value[k] >= s->value[k - 1])
        return take_above(s, logits, n, r->temperature, s->value[k - 1]);
    sort_by_id(s, k);
    return k;
}

/* ---- steps on candidates with weights ---- */

/* weight = exp(value - top) */
static void weigh_entries(proa_sampler_scratch *s, int64_t n, float top)
{
    const float *value = s->value;
    float *PROA_RESTRICT weight = s->weight;
    for (int64_t i = 0; i < n; i++) weight[i] = proa_row_exp(value[i] - top);
}

static double sum_weights(const proa_sampler_scratch *s, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)s->weight[i];
    return sum;
}

/* How many candidates have the key, and which is the nth of them by rising id (-1: none). */
static int64_t ties_at(const proa_sampler_scratch *s, int64_t n, uint32_t at, int64_t nth, int64_t *found)
{
    int64_t ties = 0;
    for (int64_t i = 0; i < n; i++) {
        if (proa_row_key(s->value[i]) != at) continue;
        if (ties++ == nth) *found = i;
    }
    return ties;
}

/* hf: transformers' TopPLogitsWarper: in rising order, drops while cumsum(softmax(x)) <= 1 - top_p (an f32), keeps the
 * last; a stable sort, so of equals the lower id goes first.
 * ft, trtllm: in falling order (a stable radix sort: lower ids first) up to where the sum reaches top_p. The draw there
 * is u * top_p * sum, so the last one weighs what the others have left of that (sampling_topp_kernels.cu,
 * topp_sampling; sampling_topk_kernels.cu, topk_stage2_sampling). */
static int64_t keep_top_p(proa_sampler_scratch *s, int64_t n, double sum, const rules *r)
{
    cut c = {.weight = s->weight, .total = sum, .unit = sum, .falling = r->falling};
    c.limit = r->falling ? r->top_p : (float)rest_of(r->top_p);
    uint32_t at = select_key(s, n, &c);
    int64_t last = 0, kept = 0, ties = ties_at(s, n, at, 0, &last);
    double weight = (double)s->weight[last];
    while (kept < ties && (kept == 0 || cut_keeps(&c, c.above + (double)kept * weight))) kept++;
    if (r->least > 1 && count_above(s, n, at) + kept < r->least) {
        at = proa_row_key(kth_largest(s->value, n, r->least));
        ties = ties_at(s, n, at, 0, &last);
        kept = r->least - count_above(s, n, at);
    }
    if (!r->falling) return compact_entries(s, n, at, ties - kept, ties);
    ties_at(s, n, at, kept - 1, &last);
    double left = (double)r->top_p * sum - c.above - (double)(kept - 1) * weight;
    s->weight[last] = (float)fmin(fmax(left, 0), weight);
    return compact_entries(s, n, at, 0, kept);
}

/* transformers' MinPLogitsWarper: drops p < min_p * largest p. (Nguyen et al. 2024.) The largest weight is 1. */
static int64_t keep_min_p(proa_sampler_scratch *s, int64_t n, float top, const rules *r)
{
    float always = r->least > 1 ? kth_largest(s->value, n, r->least) : top;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (s->value[i] >= always || !(proa_row_exp(s->value[i] - top) < r->min_p)) move_entry(s, kept++, i);
    return kept;
}

/* transformers' TypicalLogitsWarper (Meister et al. 2023): with p = softmax of what is left and its entropy
 * H = -sum(p log p), tokens in rising order of |-log p - H| until their mass reaches typical_p; ties with the last
 * stay. Afterwards `value` is used up, `weight` is not. */
static int64_t keep_typical(proa_sampler_scratch *s, int64_t n, float top, const rules *r)
{
    double sum = sum_weights(s, n), entropy = 0;
    double log_sum = log(sum);
    for (int64_t i = 0; i < n; i++)
        if (s->weight[i] > 0)
            entropy -= (double)s->weight[i] / sum * ((double)s->value[i] - (double)top - log_sum);
    for (int64_t i = 0; i < n; i++) {
        double surprise = log_sum - ((double)s->value[i] - (double)top);
        s->value[i] = -(float)fabs(surprise - entropy);
    }
    cut c = {.weight = s->weight, .total = sum, .unit = sum, .limit = r->typical_p, .falling = true};
    uint32_t at = select_key(s, n, &c), always = proa_row_key(kth_largest(s->value, n, r->least));
    return compact_entries(s, n, at < always ? at : always, 0, n);
}

/* transformers' EpsilonLogitsWarper and EtaLogitsWarper (Hewitt et al. 2022): drops p < epsilon, or with the entropy H
 * of what is left p < min(eta, sqrt(eta) exp(-H)). The `always` likeliest, and what is as likely, stay. */
static int64_t keep_likely(proa_sampler_scratch *s, int64_t n, float epsilon, float eta, int64_t always)
{
    double sum = sum_weights(s, n), entropy = 0;
    float large = kth_largest(s->weight, n, always);
    for (int64_t i = 0; i < n; i++) {
        double p = (double)s->weight[i] / sum;
        if (p > 0) entropy -= p * log(p);
    }
    double least = eta > 0 ? fmin((double)eta, sqrt((double)eta) * exp(-entropy)) : (double)epsilon;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (s->weight[i] >= large || (double)s->weight[i] / sum >= least) move_entry(s, kept++, i);
    return kept;
}

/* ---- all of it ---- */

/* Weights below this, however many there are, weigh no more than half of what top-p drops anyway; or min-p drops
 * them. As a value; -infinity: none. */
static float floor_of(const rules *r, float top, double sum, int64_t n)
{
    double weight = 0;
    if (r->least > 1) return -INFINITY;
    if (r->top_p > 0)
        weight = 0.5 * (r->falling ? 1 - (double)r->top_p : rest_of(r->top_p)) * sum / (double)n;
    else if (r->min_p > 0) weight = 0.99 * (double)r->min_p;
    return weight > 0 ? (float)((double)top + log(weight)) : -INFINITY;
}

/* The first candidates and their weights. With top_p *sum is the mass that it is a part of. */
static int64_t take_first(proa_sampler_scratch *s, const float *logits, int64_t vocab, const rules *r,
                          float top, double *sum)
{
    int64_t n;
    bool limited = r->top_k > 0 && r->top_k < vocab;
    if (limited) {
        n = is_fast(s, vocab, r) ? take_top_k(s, logits, vocab, r) : take_top_k_slowly(s, logits, vocab, r);
    } else {
        if (r->top_p > 0) *sum = proa_row_sum_exp(logits, vocab, r->temperature, top);
        float least = floor_of(r, top, *sum, vocab);
        n = least > -INFINITY ? take_above(s, logits, vocab, r->temperature, least)
                              : take_all(s, logits, vocab, r->temperature);
    }
    weigh_entries(s, n, top);
    if (limited && r->top_p > 0) *sum = sum_weights(s, n);
    return n;
}

int64_t proa_sampler_filter(proa_sampler_scratch *s, const float *logits, int64_t vocab,
                            const proa_options *options, const proa_history *history)
{
    const rules r = rules_of(options, history);
    proa_sampler_best(s, logits, vocab, is_fast(s, vocab, &r) ? r.top_k + 1 : 1);
    s->largest = s->value[0];
    if (!isfinite(s->largest)) return 0;
    float top = scale_logit(s->largest, r.temperature);
    s->weight[0] = 1;
    if (!isfinite(top)) return 1; /* the limit of small temperatures: the first of the largest */
    double sum = 0;
    int64_t n = take_first(s, logits, vocab, &r, top, &sum);
    if (r.top_p > 0) n = keep_top_p(s, n, sum, &r);
    if (r.min_p > 0) n = keep_min_p(s, n, top, &r);
    if (r.typical_p > 0) n = keep_typical(s, n, top, &r);
    if (r.epsilon > 0) n = keep_likely(s, n, r.epsilon, 0, r.least);
    if (r.eta > 0) n = keep_likely(s, n, 0, r.eta, r.least);
    return n;
}

bool proa_sampler_greedy(const proa_options *options)
{
    if (options->style == PROA_STYLE_HF) return options->temperature <= 0;
    return options->top_k == 1 || (options->top_k == 0 && options->top_p <= 0);
}
