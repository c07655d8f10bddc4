/* SPDX-License-Identifier: Apache-2.0
 * sampler.c - nothing is sorted: top-k and top-p are one selection by histograms of the values' bits, linear in the
 * row whatever the logits are. */
#include "engine/sampler.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, BLOCK = 256 };

void proa_sampler_init(proa_sampler_scratch *s, int64_t vocab)
{
    PROA_ASSERT(vocab > 0 && vocab <= PROA_VOCAB_MAX);
    *s = (proa_sampler_scratch){.vocab = vocab};
    s->bins = proa_malloc((size_t)proa_sampler_bytes(vocab));
    s->value = (float *)(void *)(s->bins + PROA_SAMPLER_BINS);
    s->weight = s->value + vocab;
    s->id = (int32_t *)(void *)(s->weight + vocab);
}

void proa_sampler_release(proa_sampler_scratch *s)
{
    free(s->bins);
    *s = (proa_sampler_scratch){0};
}

int64_t proa_sampler_bytes(int64_t vocab)
{
    return PROA_SAMPLER_BINS * (int64_t)sizeof(double) + vocab * (int64_t)(2 * sizeof(float) + sizeof(int32_t));
}

proa_status proa_sampler_check(const proa_options *options, proa_err *err)
{
    if (!(options->temperature >= 0) || isinf(options->temperature))
        return PROA_FAIL(err, INVALID, "temperature is %g, must be 0 or more and finite",
                         (double)options->temperature);
    if (options->top_k < 0)
        return PROA_FAIL(err, INVALID, "top_k is %d, must be 0 or more", (int)options->top_k);
    if (!(options->top_p >= 0 && options->top_p <= 1))
        return PROA_FAIL(err, INVALID, "top_p is %g, must lie in 0..1", (double)options->top_p);
    return PROA_OK;
}

/* Largest of x[n] that is not NaN, and whether any is. In lanes, so that the compiler finds vectors. */
static float largest_of(bool *any_nan, const float *x, int64_t n)
{
    float top[LANES];
    int32_t nan[LANES] = {0};
    for (int j = 0; j < LANES; j++) top[j] = -INFINITY;
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float v = x[i + j];
            top[j] = v > top[j] ? v : top[j];
            nan[j] |= v != v;
        }
    for (int64_t i = whole; i < n; i++) {
        top[0] = x[i] > top[0] ? x[i] : top[0];
        nan[0] |= x[i] != x[i];
    }
    for (int j = 1; j < LANES; j++) {
        top[0] = top[j] > top[0] ? top[j] : top[0];
        nan[0] |= nan[j];
    }
    *any_nan = nan[0] != 0;
    return top[0];
}

int64_t proa_sampler_argmax(float *largest, const float *x, int64_t n)
{
    bool any_nan;
    float top = largest_of(&any_nan, x, n);
    if (largest) *largest = any_nan ? NAN : top;
    for (int64_t i = 0; i < n; i++)
        if (x[i] == top) return i;
    return 0; /* all are NaN */
}

/* e^x for x <= 0, to 2 units in the last place; 0 below the smallest normal number. x = k ln 2 + r, |r| <= ln 2 / 2;
 * k comes out of the low bits of a sum with 1.5 * 2^23. Polynomial and two-part ln 2: expf of Moshier's Cephes. */
static inline float exp_negative(float x)
{
    float t = x * 1.44269504F + 12582912.0F;
    float k = t - 12582912.0F;
    float r = x - k * 0.693359375F + k * 2.12194440e-4F;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    float scale = proa_bits_f32((proa_f32_bits(t) - 0x4b400000u + 127u) << 23);
    uint32_t in_range = (uint32_t) - (x >= -87.0F); /* a mask hides what came of others: no branch, so vectors */
    return proa_bits_f32(proa_f32_bits(p * scale) & in_range);
}

static double log_sum_exp(const float *x, int64_t n, float largest)
{
    double lane[8] = {0};
    float e[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int count = (int)(n - i < BLOCK ? n - i : BLOCK);
        for (int j = 0; j < count; j++) e[j] = exp_negative(x[i + j] - largest);
        for (int j = count; j % 8; j++) e[j] = 0; /* BLOCK is a multiple of 8 */
        for (int j = 0; j < count; j += 8)
            for (int k = 0; k < 8; k++) lane[k] += (double)e[j + k];
    }
    double sum = 0;
    for (int k = 0; k < 8; k++) sum += lane[k];
    return (double)largest + log(sum);
}

float proa_sampler_logprob(const float *x, int64_t n, int64_t id)
{
    bool any_nan;
    float largest = largest_of(&any_nan, x, n);
    return any_nan ? NAN : (float)((double)x[id] - log_sum_exp(x, n, largest));
}

/* transformers' TemperatureLogitsWarper: x / temperature. Adding zero makes one zero of two. */
static void scale(proa_sampler_scratch *s, const float *logits, int64_t n, float temperature)
{
    for (int64_t i = 0; i < n; i++) {
        s->value[i] = logits[i] / temperature + 0.0F;
        s->id[i] = (int32_t)i;
    }
}

/* Bits that are ordered like the values. */
static inline uint32_t key_of(float value)
{
    uint32_t bits = proa_f32_bits(value);
    return bits ^ ((uint32_t) - (int32_t)(bits >> 31) | 0x80000000u);
}

/* From the largest value down, candidates are kept as long as the rest, themselves included, weighs enough: the
 * running sum that transformers compares, seen from the other end. The first is always kept. */
typedef struct cut {
    const float *weight; /* of each candidate; NULL: 1 each */
    double total;        /* of all */
    double unit;         /* what the rest is measured in */
    float limit;         /* the rest must be more than that */
    double above;        /* out: weight of all candidates above the last value kept */
} cut;

static bool keeps(const cut *c, double above)
{
    return (float)((c->total - above) / c->unit) > c->limit;
}

/* Last bin, from the top, whose first candidate is kept. */
static uint32_t last_bin(const double *bins, uint32_t count, cut *c)
{
    double above = c->above;
    uint32_t last = count;
    for (uint32_t b = count; b-- > 0;) {
        if (bins[b] <= 0) continue;
        if (last < count && !keeps(c, above)) break;
        last = b;
        c->above = above;
        above += bins[b];
    }
    PROA_ASSERT(last < count);
    return last;
}

/* The smallest value that is kept, as its key: 11, 11 and 10 bits of it by three histograms of which each looks only
 * into the bin that the one before has found. */
static uint32_t select_key(const proa_sampler_scratch *s, int64_t n, cut *c)
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
            uint32_t key = key_of(s->value[j]);
            if ((key & mask) != prefix) continue;
            s->bins[key >> pass[i].shift & (pass[i].bins - 1)] += c->weight ? (double)c->weight[j] : 1.0;
        }
        prefix |= last_bin(s->bins, pass[i].bins, c) << pass[i].shift;
        mask |= (pass[i].bins - 1) << pass[i].shift;
    }
    return prefix;
}

/* Candidates above the key stay, and of those at the key all but the first `drop`. Order is kept. */
static int64_t compact(proa_sampler_scratch *s, int64_t n, uint32_t at, int64_t drop)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t key = key_of(s->value[i]);
        if (key < at || (key == at && drop-- > 0)) continue;
        s->value[kept] = s->value[i];
        s->id[kept++] = s->id[i];
    }
    return kept;
}

/* transformers' TopKLogitsWarper: drops x < k-th largest x, ties with it stay. A candidate is kept while fewer than
 * k stand above it: while the rest is more than n - k. */
static int64_t keep_top_k(proa_sampler_scratch *s, int64_t n, int64_t k)
{
    if (k >= n) return n;
    cut c = {.total = (double)n, .unit = 1, .limit = (float)(n - k)};
    uint32_t at = select_key(s, n, &c);
    return compact(s, n, at, 0);
}

/* weight = exp(x - largest); returns the sum. */
static double weigh(proa_sampler_scratch *s, int64_t n, float largest)
{
    const float *value = s->value;
    float *PROA_RESTRICT weight = s->weight;
    for (int64_t i = 0; i < n; i++) weight[i] = exp_negative(value[i] - largest);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)weight[i];
    return sum;
}

/* transformers' TopPLogitsWarper: in rising order, drops while cumsum(softmax(x)) <= 1 - top_p, keeps the last. The
 * running sum is an f32 there and 1 - top_p a Python float; the f32 option came from a decimal number, which is
 * taken back first, so that 0.8 leaves 0.2 and not 0.19999999. */
static int64_t keep_top_p(proa_sampler_scratch *s, int64_t n, double sum, float top_p)
{
    double decimal = rint((double)top_p * 1e7) / 1e7;
    cut c = {.weight = s->weight, .total = sum, .unit = sum, .limit = (float)(1.0 - decimal)};
    uint32_t at = select_key(s, n, &c);
    int64_t ties = 0, kept = 0;
    double weight = 0;
    for (int64_t i = 0; i < n; i++) {
        if (key_of(s->value[i]) != at) continue;
        ties++;
        weight = (double)s->weight[i];
    }
    while (kept < ties && (kept == 0 || keeps(&c, c.above + (double)kept * weight))) kept++;
    return compact(s, n, at, ties - kept);
}

int64_t proa_sampler_filter(proa_sampler_scratch *s, const float *logits, int64_t vocab,
                            const proa_options *options)
{
    bool any_nan;
    int64_t n = vocab;
    float largest = largest_of(&any_nan, logits, vocab) / options->temperature;
    scale(s, logits, vocab, options->temperature);
    if (options->top_k > 0) n = keep_top_k(s, n, options->top_k);
    double sum = weigh(s, n, largest);
    if (options->top_p > 0 && options->top_p < 1) {
        n = keep_top_p(s, n, sum, options->top_p);
        weigh(s, n, largest); /* of those that moved up */
    }
    return n;
}

int32_t proa_sampler_pick(const proa_sampler_scratch *s, int64_t count, double u)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)s->weight[i];
    /* u is at most 1 - 2^-53, so the product is below the sum, and the running sum, made in the same order, gets
     * there. What it stops at has a weight. */
    double target = u * sum, running = (double)s->weight[0];
    int64_t at = 0;
    while (running <= target && at < count - 1) running += (double)s->weight[++at];
    return s->id[at];
}

static proa_status check_numbers(float largest, const float *logits, int64_t vocab, int64_t position,
                                 proa_err *err)
{
    if (PROA_LIKELY(isfinite(largest))) return PROA_OK;
    int64_t at = 0;
    while (at < vocab - 1 && logits[at] < INFINITY) at++; /* the first NaN or infinity */
    if (largest < 0)
        return PROA_FAIL(err, INTERNAL, "logits are not numbers: all %lld of position %lld are -inf",
                         (long long)vocab, (long long)position);
    return PROA_FAIL(err, INTERNAL, "logits are not numbers: %s at id %lld of %lld, position %lld",
                     isnan(logits[at]) ? "nan" : "inf", (long long)at, (long long)vocab, (long long)position);
}

proa_status proa_sampler_choose(proa_sampler_scratch *s, proa_sample *out, const float *logits, int64_t vocab,
                                int64_t position, const proa_options *options, proa_err *err)
{
    PROA_ASSERT(vocab > 0 && vocab <= s->vocab);
    float largest;
    *out = (proa_sample){.id = (int32_t)proa_sampler_argmax(&largest, logits, vocab)};
    PROA_TRY(check_numbers(largest, logits, vocab, position, err));
    if (options->temperature > 0 && isfinite(largest / options->temperature)) {
        int64_t count = proa_sampler_filter(s, logits, vocab, options);
        out->id = proa_sampler_pick(s, count, proa_sampler_uniform(options->seed, position));
    }
    if (options->logprobs)
        out->logprob = (float)((double)logits[out->id] - log_sum_exp(logits, vocab, largest));
    return PROA_OK;
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
