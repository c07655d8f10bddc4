/* SPDX-License-Identifier: Apache-2.0
 * sampler.c - greedy choice, random draw, log-probabilities. Which tokens can be drawn is decided in filter.c. */
#include "engine/decode/sampler.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "engine/decode/row.h"

#include <math.h>
#include <string.h>

static int64_t arrays_bytes(int64_t vocab)
{
    return PROA_SAMPLER_BINS * (int64_t)sizeof(double) + vocab * (int64_t)(2 * sizeof(float) + sizeof(int32_t));
}

void proa_sampler_init(proa_sampler_scratch *s, int64_t vocab)
{
    PROA_ASSERT(vocab > 0 && vocab <= PROA_VOCAB_MAX);
    *s = (proa_sampler_scratch){.vocab = vocab};
    s->bins = proa_malloc((size_t)arrays_bytes(vocab));
    s->value = (float *)(void *)(s->bins + PROA_SAMPLER_BINS);
    s->weight = s->value + vocab;
    s->id = (int32_t *)(void *)(s->weight + vocab);
    s->ctx.ops = proa_ops_cpu(proa_isa_choose());
    s->ctx.pool = proa_pool_new(1); /* no thread of its own; top_k needs no scratch */
}

void proa_sampler_release(proa_sampler_scratch *s)
{
    free(s->bins);
    proa_pool_free(s->ctx.pool);
    *s = (proa_sampler_scratch){0};
}

int64_t proa_sampler_bytes(int64_t vocab)
{
    return arrays_bytes(vocab);
}

static double log_sum_exp(const float *x, int64_t n, float largest)
{
    return (double)largest + log(proa_row_sum_exp(x, n, 1, largest));
}

float proa_sampler_logprob(const float *x, int64_t n, int64_t id)
{
    if (proa_row_has_nan(x, n)) return NAN;
    return (float)((double)x[id] - log_sum_exp(x, n, proa_row_largest(x, n)));
}

/* Inserts (id, value) into the n best so far, in falling order, after its equals. */
static void insert_top(proa_logprob *top, int64_t n, int32_t id, float value)
{
    int64_t at = n - 1;
    for (; at > 0 && top[at - 1].logprob < value; at--) top[at] = top[at - 1];
    top[at] = (proa_logprob){id, value};
}

/* Blocks of LANES logits are compared with the lowest of the top at once, which compiles to vector code. Few blocks
 * have a larger one, and only these are walked. */
int32_t proa_sampler_top(proa_logprob *top, int32_t count, const float *logits, int64_t vocab)
{
    enum { LANES = 32 };
    int64_t n = count < vocab ? count : vocab;
    for (int64_t i = 0; i < count; i++) top[i] = (proa_logprob){-1, -INFINITY};
    if (n < 1) return 0;
    for (int64_t i = 0; i < vocab; i += LANES) {
        int64_t end = i + LANES < vocab ? i + LANES : vocab;
        uint32_t any = i < n; /* while there are holes */
        if (end - i == LANES)
            for (int j = 0; j < LANES; j++) any |= (uint32_t) - (logits[i + j] > top[n - 1].logprob);
        for (int64_t j = i; j < end && (any || end - i < LANES); j++)
            if (logits[j] > top[n - 1].logprob || j < n)
                insert_top(top, j < n ? j + 1 : n, (int32_t)j, logits[j]);
    }
    double lse = log_sum_exp(logits, vocab, top[0].logprob);
    for (int64_t i = 0; i < n; i++) top[i].logprob = (float)((double)top[i].logprob - lse);
    return (int32_t)n;
}

int32_t proa_sampler_pick(const proa_sampler_scratch *s, int64_t count, double u)
{
    enum { BLOCK_MIN = 64 };
    int64_t block = proa_max64(BLOCK_MIN, proa_ceil_div(count, PROA_SAMPLER_BINS)), last = (count - 1) / block;
    double sum = 0, *sums = s->bins; /* sums[b]: of all weights up to the end of block b */
    for (int64_t b = 0; b <= last; b++) {
        int64_t end = proa_min64(count, (b + 1) * block);
        for (int64_t i = b * block; i < end; i++) sum += (double)s->weight[i];
        sums[b] = sum;
    }
    /* u is at most 1 - 2^-53, so the product is below the sum, and the running sum, made in the same order, gets
     * there. The token at which it exceeds the product has a weight. */
    double target = u * sum;
    int64_t b = 0;
    while (b < last && sums[b] <= target) b++;
    int64_t at = b * block;
    double running = (b ? sums[b - 1] : 0) + (double)s->weight[at];
    while (running <= target && at < count - 1) running += (double)s->weight[++at];
    return s->id[at];
}

static uint64_t mix_key(uint64_t key, int32_t id)
{
    uint64_t z = key + ((uint64_t)id + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* What the random numbers of all ids at a position are made of. */
static uint64_t position_key(uint64_t seed, int64_t position)
{
    const uint32_t seeds[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)((uint64_t)position >> 32), 1, 0};
    uint32_t out[4];
    proa_philox(out, counter, seeds);
    return (uint64_t)out[0] << 32 | out[1];
}

/* -log(1 - v) >= v, so that few candidates need the logarithm. */
int32_t proa_sampler_race(const proa_sampler_scratch *s, int64_t count, uint64_t seed, int64_t position)
{
    uint64_t key = position_key(seed, position);
    double first = INFINITY;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        double v = (double)(mix_key(key, s->id[i]) >> 11) * 0x1p-53, weight = (double)s->weight[i];
        if (!(v < first * weight)) continue;
        double arrives = -log1p(-v) / weight;
        if (arrives < first) first = arrives, at = i;
    }
    return s->id[at];
}

static proa_status fail_all_infinite(int64_t vocab, int64_t position, proa_err *err)
{
    return PROA_FAIL(err, INTERNAL, "logits are not numbers: all %lld of position %lld are -inf",
                     (long long)vocab, (long long)position);
}

static proa_status check_numbers(float largest, const float *logits, int64_t vocab, int64_t position,
                                 proa_err *err)
{
    if (PROA_LIKELY(isfinite(largest))) return PROA_OK;
    if (largest < 0) return fail_all_infinite(vocab, position, err);
    int64_t at = 0;
    while (at < vocab - 1 && logits[at] < INFINITY) at++; /* the first NaN or infinity */
    return PROA_FAIL(err, INTERNAL, "logits are not numbers: %s at id %lld of %lld, position %lld",
                     isnan(logits[at]) ? "nan" : "inf", (long long)at, (long long)vocab, (long long)position);
}

proa_status proa_sampler_check_sum(float sum, int64_t vocab, int64_t position, proa_err *err)
{
    if (PROA_LIKELY(isfinite(sum))) return PROA_OK;
    if (sum < 0) return fail_all_infinite(vocab, position, err);
    return PROA_FAIL(err, INTERNAL, "logits are not numbers: the log-sum-exp of position %lld is %g",
                     (long long)position, (double)sum);
}

/* What the token was chosen by: of the candidates, in rising order of id, their logits over the temperature. */
static void keep_scores(const proa_sampler_scratch *s, const proa_sampler_row *r, int64_t count, int64_t vocab)
{
    float temperature = r->options->style == PROA_STYLE_HF ? r->options->temperature : 1;
    if (proa_sampler_greedy(r->options)) {
        if (r->scores != r->logits) memcpy(r->scores, r->logits, (size_t)vocab * sizeof *r->scores);
        return;
    }
    for (int64_t v = 0, next = 0; v < vocab; v++) {
        bool kept = next < count && s->id[next] == v;
        r->scores[v] = kept ? r->logits[v] / temperature : -INFINITY;
        next += kept;
    }
}

/* The likeliest token, or a draw from the candidates that the filters leave. */
static proa_status choose_id(proa_sampler_scratch *s, proa_sampler_row *r, int64_t vocab)
{
    int64_t count = 1;
    const proa_options *o = r->options;
    if (proa_row_has_nan(r->logits, vocab)) return check_numbers(NAN, r->logits, vocab, r->position, r->err);
    if (proa_sampler_greedy(o)) {
        proa_sampler_best(s, r->logits, vocab, 1);
        s->largest = s->value[0];
    } else {
        count = proa_sampler_filter(s, r->logits, vocab, o, &r->history);
    }
    PROA_TRY(check_numbers(s->largest, r->logits, vocab, r->position, r->err));
    if (count == 1) r->out.id = s->id[0];
    else if (r->race) r->out.id = proa_sampler_race(s, count, r->seed, r->position);
    else r->out.id = proa_sampler_pick(s, count, proa_sampler_uniform(r->seed, r->position));
    if (r->scores) keep_scores(s, r, count, vocab);
    return PROA_OK;
}

/* ---- sampled beams ---- */

/* Inserts candidate `at` of the scratch into the best so far, in falling order, if it belongs there. */
static void insert_candidate(const proa_sampler_scratch *s, int64_t at, float number,
                             const proa_drawn_candidates *out)
{
    int64_t to = out->count - 1;
    float value = s->value[at], *values = out->values, *numbers = out->numbers;
    if (!(value + number > values[to] + numbers[to])) return;
    for (; to > 0 && value + number > values[to - 1] + numbers[to - 1]; to--) {
        out->ids[to] = out->ids[to - 1];
        values[to] = values[to - 1];
        numbers[to] = numbers[to - 1];
    }
    out->ids[to] = s->id[at], values[to] = value, numbers[to] = number;
}

/* The filters use up values, so they are made again from the row, which then gets them. transformers normalises after
 * the filters. */
static void take_values(proa_sampler_scratch *s, int64_t kept, float *row, int64_t vocab, const proa_options *o)
{
    for (int64_t i = 0; i < kept; i++) s->value[i] = row[s->id[i]] / o->temperature;
    if (o->renormalize_logits && kept) {
        float sum = (float)log_sum_exp(s->value, kept, proa_row_largest(s->value, kept));
        for (int64_t i = 0; i < kept; i++) s->value[i] -= sum;
    }
    for (int64_t v = 0; v < vocab; v++) row[v] = -INFINITY;
    for (int64_t i = 0; i < kept; i++) row[s->id[i]] = s->value[i];
}

proa_status proa_sampler_candidates(proa_sampler_scratch *s, const proa_drawn_candidates *out, float *logits,
                                    int64_t vocab, const proa_sampler_row *row)
{
    if (proa_row_has_nan(logits, vocab)) return check_numbers(NAN, logits, vocab, row->position, row->err);
    int64_t kept = proa_sampler_filter(s, logits, vocab, row->options, &row->history);
    if (s->largest > -INFINITY) PROA_TRY(check_numbers(s->largest, logits, vocab, row->position, row->err));
    take_values(s, kept, logits, vocab, row->options);
    uint64_t key = position_key(row->seed, row->position);
    for (int64_t i = 0; i < out->count; i++)
        out->ids[i] = s->id[0], out->values[i] = -INFINITY, out->numbers[i] = 0;
    for (int64_t i = 0; i < kept; i++) {
        double v = ((double)(mix_key(key, s->id[i]) >> 12) + 0.5) * 0x1p-52;
        insert_candidate(s, i, -(float)log(-log1p(-v)), out);
    }
    return PROA_OK;
}

proa_status proa_sampler_choose(proa_sampler_scratch *s, proa_sampler_row *r, int64_t vocab)
{
    PROA_ASSERT(vocab > 0 && vocab <= s->vocab);
    r->out = (proa_sample){0};
    PROA_TRY(choose_id(s, r, vocab));
    const float *raw = r->raw ? r->raw : r->logits;
    if (r->logprobs) r->out.logprob = proa_sampler_logprob(raw, vocab, r->out.id);
    if (r->top && r->options->top_logprobs > 0)
        proa_sampler_top(r->top, r->options->top_logprobs, raw, vocab);
    return PROA_OK;
}

typedef struct rows_job {
    proa_sampler_scratch *scratch;
    proa_sampler_row *rows;
    int64_t vocab;
} rows_job;

static void choose_range(void *arg, int64_t begin, int64_t end, int worker)
{
    const rows_job *job = arg;
    for (int64_t i = begin; i < end; i++)
        job->rows[i].status = proa_sampler_choose(&job->scratch[worker], &job->rows[i], job->vocab);
}

void proa_sampler_choose_rows(proa_pool *pool, proa_sampler_scratch *s, proa_sampler_row *rows, int64_t count,
                              int64_t vocab)
{
    rows_job job = {.scratch = s, .rows = rows, .vocab = vocab};
    proa_pool_run(pool, count, 1, choose_range, &job);
}

void proa_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9e3779b9u; /* golden ratio */
        k[1] += 0xbb67ae85u; /* sqrt(3) - 1 */
    }
    memcpy(out, c, sizeof c);
}

double proa_sampler_uniform(uint64_t seed, int64_t position)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)((uint64_t)position >> 32), 0, 0};
    uint32_t out[4];
    proa_philox(out, counter, key);
    return (double)(((uint64_t)out[0] << 32 | out[1]) >> 11) * 0x1p-53;
}
