/* SPDX-License-Identifier: Apache-2.0
 * contrastive.c - contrastive search. Hidden states are normalised when they are added, so that a cosine is a dot
 * product. */
#include "engine/decode/contrastive.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"

#include <math.h>
#include <string.h>

/* Rows are padded with zeros to whole blocks, so that the dot product has no tail. The lanes are partial sums, which a
 * compiler can keep in vectors without changing the order of additions. */
enum { LANES = 16 };

struct proa_contrastive {
    proa_contrastive_options o;
    int64_t width; /* H rounded up to LANES */
    int64_t count;
    int64_t bytes;
    float *context;   /* [tokens_max][width] */
    float *candidate; /* [k][width] */
    float *nearest;   /* [k] largest cosine so far */
};

static proa_status check_range(const char *what, int64_t value, int64_t max, proa_err *err)
{
    if (value >= 1 && value <= max) return PROA_OK;
    return PROA_FAIL(err, INVALID, "contrastive search: %s is %lld, must lie in 1..%lld", what,
                     (long long)value, (long long)max);
}

static proa_status check_options(const proa_contrastive_options *o, proa_err *err)
{
    PROA_TRY(check_range("number of candidates", o->k, PROA_BEAMS_MAX, err));
    PROA_TRY(check_range("hidden size", o->hidden, PROA_HIDDEN_MAX, err));
    PROA_TRY(check_range("number of tokens", o->tokens_max, PROA_CONTEXT_MAX, err));
    if (o->alpha >= 0 && o->alpha <= 1) return PROA_OK;
    return PROA_FAIL(err, INVALID, "contrastive search: alpha is %g, must lie in 0..1", (double)o->alpha);
}

/* The limits keep the products small. */
static int64_t count_bytes(const proa_contrastive_options *o)
{
    int64_t width = proa_round_up(o->hidden, LANES);
    return ((o->tokens_max + o->k) * width + o->k) * (int64_t)sizeof(float);
}

proa_status proa_contrastive_new(proa_contrastive **out, const proa_contrastive_options *o, proa_err *err)
{
    *out = NULL;
    PROA_TRY(check_options(o, err));
    int64_t bytes = count_bytes(o);
    float *memory = proa_pages_alloc(bytes);
    if (!memory)
        return PROA_FAIL(err, NO_MEMORY, "contrastive search: states of %lld tokens need %lld bytes",
                         (long long)o->tokens_max, (long long)bytes);
    proa_contrastive *c = proa_calloc(1, sizeof *c);
    *c = (proa_contrastive){.o = *o, .width = proa_round_up(o->hidden, LANES), .bytes = bytes};
    c->context = memory;
    c->candidate = memory + o->tokens_max * c->width;
    c->nearest = c->candidate + o->k * c->width;
    *out = c;
    return PROA_OK;
}

void proa_contrastive_free(proa_contrastive *c)
{
    if (!c) return;
    proa_pages_free(c->context, c->bytes);
    free(c);
}

static float dot_product(const float *a, const float *b, int64_t width)
{
    float lane[LANES] = {0}, sum = 0;
    for (int64_t i = 0; i < width; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += a[i + j] * b[i + j];
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

/* to [width] = from [H] / |from|, in f64 so that no square overflows; zeros stay zeros. The padding is zero already. */
static proa_status normalise_row(const proa_contrastive *c, float *to, const float *from, const char *what,
                                 int64_t row, proa_err *err)
{
    double squares = 0;
    for (int64_t i = 0; i < c->o.hidden; i++) squares += (double)from[i] * (double)from[i];
    if (PROA_UNLIKELY(!isfinite(squares)))
        return PROA_FAIL(err, INTERNAL, "hidden state of %s %lld is not finite", what, (long long)row);
    double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int64_t i = 0; i < c->o.hidden; i++) to[i] = (float)((double)from[i] * scale);
    return PROA_OK;
}

static proa_status check_room(const proa_contrastive *c, int64_t n, proa_err *err)
{
    if (n >= 0 && n <= c->o.tokens_max - c->count) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "contrastive search: %lld tokens and %lld more, at most %lld have room",
                     (long long)c->count, (long long)n, (long long)c->o.tokens_max);
}

proa_status proa_contrastive_add(proa_contrastive *c, const float *rows, int64_t n, proa_err *err)
{
    PROA_TRY(check_room(c, n, err));
    float *to = c->context + c->count * c->width;
    for (int64_t i = 0; i < n; i++)
        PROA_TRY(normalise_row(c, to + i * c->width, rows + i * c->o.hidden, "token", c->count + i, err));
    c->count += n;
    return PROA_OK;
}

/* The largest cosine of each candidate. The context is read once for all of them. */
static void find_nearest(proa_contrastive *c)
{
    for (int32_t j = 0; j < c->o.k; j++) c->nearest[j] = c->count ? -INFINITY : 0;
    for (int64_t i = 0; i < c->count; i++) {
        const float *row = c->context + i * c->width;
        for (int32_t j = 0; j < c->o.k; j++)
            c->nearest[j] = fmaxf(c->nearest[j], dot_product(row, c->candidate + j * c->width, c->width));
    }
}

proa_status proa_contrastive_choose(proa_contrastive *c, int32_t *index, const float *probs,
                                    const float *hidden, proa_err *err)
{
    float best = -INFINITY;
    *index = 0;
    PROA_TRY(check_room(c, 1, err));
    for (int32_t j = 0; j < c->o.k; j++) {
        PROA_TRY(normalise_row(c, c->candidate + j * c->width, hidden + j * c->o.hidden, "candidate", j, err));
        if (PROA_UNLIKELY(!isfinite(probs[j])))
            return PROA_FAIL(err, INTERNAL, "probability of candidate %d is %g", (int)j, (double)probs[j]);
    }
    find_nearest(c);
    for (int32_t j = 0; j < c->o.k; j++) {
        float score = (1 - c->o.alpha) * probs[j] - c->o.alpha * c->nearest[j];
        if (!(score > best)) continue;
        best = score;
        *index = j;
    }
    memcpy(c->context + c->count * c->width, c->candidate + *index * c->width,
           (size_t)c->width * sizeof *c->context);
    c->count++;
    return PROA_OK;
}
