/* SPDX-License-Identifier: Apache-2.0
 * rope.c - reads the scaling of rotary positions, and computes the frequencies. */
#include "model/rope.h"

#include "base/checked.h"
#include <math.h>

/* ---- reading ---- */

/* "rope_type", or "type" in older files. "su" is the older name of longrope; the first Phi-3 files with two lists of
 * factors say "yarn". "mrope" and "xdrope" give images positions of their own: those of text are plain, or
 * HunYuan's dynamic ones. */
static proa_status read_kind(proa_rope_params *p, const proa_json *rope, proa_err *err)
{
    static const struct {
        const char *name;
        proa_rope_kind kind;
    } kinds[] = {{"default", PROA_ROPE_PLAIN}, {"linear", PROA_ROPE_LINEAR},
                 {"llama3", PROA_ROPE_LLAMA3}, {"dynamic", PROA_ROPE_DYNAMIC},
                 {"yarn", PROA_ROPE_YARN},     {"deepseek_yarn", PROA_ROPE_YARN},
                 {"longrope", PROA_ROPE_LONG}, {"su", PROA_ROPE_LONG},
                 {"mrope", PROA_ROPE_PLAIN},   {"proportional", PROA_ROPE_PROPORTIONAL},
                 {"xdrope", PROA_ROPE_DYNAMIC}};
    proa_str type = {"default", 7};
    PROA_TRY(proa_json_get_str(&type, rope, "type", err));
    PROA_TRY(proa_json_get_str(&type, rope, "rope_type", err));
    for (size_t i = 0; i < PROA_COUNT(kinds); i++) {
        if (!proa_str_is(type, kinds[i].name)) continue;
        p->kind = kinds[i].kind;
        if (p->kind == PROA_ROPE_YARN && proa_json_get(rope, "long_factor")) p->kind = PROA_ROPE_LONG;
        return PROA_OK;
    }
    return PROA_FAIL(
        err, UNSUPPORTED,
        "rope type '%.*s' is not supported (default, linear, dynamic, llama3, yarn, longrope and "
        "proportional are)",
        (int)type.len, type.ptr);
}

static proa_status read_llama3(proa_rope_params *p, const proa_json *rope, proa_err *err)
{
    p->low = 1, p->high = 4;
    PROA_TRY(proa_json_get_double(&p->low, rope, "low_freq_factor", 1e-3, 1e6, err));
    PROA_TRY(proa_json_get_double(&p->high, rope, "high_freq_factor", 1e-3, 1e6, err));
    if (p->high < p->low)
        return PROA_FAIL(err, INVALID, "'high_freq_factor' %g must not be below 'low_freq_factor' %g",
                         p->high, p->low);
    return PROA_OK;
}

/* DeepSeek's files name two factors, mscale and mscale_all_dim. Their ratio scales cosines and sines. */
static proa_status read_yarn(proa_rope_params *p, const proa_json *rope, proa_err *err)
{
    p->beta_fast = p->beta_slow = 0;
    p->truncate = true;
    PROA_TRY(proa_json_get_double(&p->beta_fast, rope, "beta_fast", 0, 1e6, err));
    PROA_TRY(proa_json_get_double(&p->beta_slow, rope, "beta_slow", 0, 1e6, err));
    if (p->beta_fast == 0) p->beta_fast = 32;
    if (p->beta_slow == 0) p->beta_slow = 1;
    PROA_TRY(proa_json_get_bool(&p->truncate, rope, "truncate", err));
    PROA_TRY(proa_json_get_double(&p->mscale, rope, "mscale", 0, 1e3, err));
    PROA_TRY(proa_json_get_double(&p->mscale_all, rope, "mscale_all_dim", 0, 1e3, err));
    p->scale = proa_rope_mscale(p->factor, 1);
    if (p->mscale > 0 && p->mscale_all > 0)
        p->scale = proa_rope_mscale(p->factor, p->mscale) / proa_rope_mscale(p->factor, p->mscale_all);
    if (p->theta <= 1) return PROA_FAIL(err, INVALID, "'rope_theta' %g must be above 1 for yarn", p->theta);
    return proa_json_get_double(&p->scale, rope, "attention_factor", 1e-6, 1e6, err);
}

static proa_status read_factors(const float **out, const proa_json *rope, const char *key, int64_t count,
                                proa_arena *arena, proa_err *err)
{
    const proa_json *list = proa_json_get(rope, key);
    if (proa_json_kind(list) != PROA_JSON_ARRAY || proa_json_len(list) != count)
        return PROA_FAIL(err, INVALID, "'%s' must be a list of %lld numbers", key, (long long)count);
    float *factors = PROA_ARENA_NEW(arena, float, proa_max64(count, 1));
    for (int64_t i = 0; i < count; i++) {
        double factor = proa_json_double(proa_json_at(list, i));
        if (!(factor >= 1e-6 && factor <= 1e6))
            return PROA_FAIL(err, INVALID, "'%s' entry %lld must be a number from 1e-6 to 1e6", key,
                             (long long)i);
        factors[i] = (float)factor;
    }
    *out = factors;
    return PROA_OK;
}

/* short_mscale and long_mscale: Phi-3.5-MoE. */
static proa_status read_long(proa_rope_params *p, const proa_json *rope, int64_t rotary_dim,
                             proa_arena *arena, proa_err *err)
{
    PROA_TRY(read_factors(&p->short_factor, rope, "short_factor", rotary_dim / 2, arena, err));
    PROA_TRY(read_factors(&p->long_factor, rope, "long_factor", rotary_dim / 2, arena, err));
    p->scale = 1;
    if (p->factor > 1 && p->original > 1) p->scale = sqrt(1 + log(p->factor) / log((double)p->original));
    PROA_TRY(proa_json_get_double(&p->scale, rope, "attention_factor", 1e-6, 1e6, err));
    p->long_scale = p->scale;
    PROA_TRY(proa_json_get_double(&p->scale, rope, "short_mscale", 1e-6, 1e6, err));
    return proa_json_get_double(&p->long_scale, rope, "long_mscale", 1e-6, 1e6, err);
}

/* If yarn or longrope name no factor, it follows from the lengths. */
static proa_status read_factor(proa_rope_params *p, const proa_json *rope, int64_t context, proa_err *err)
{
    bool implied = p->kind == PROA_ROPE_YARN || p->kind == PROA_ROPE_LONG;
    p->factor = implied ? (double)context / (double)p->original : 0;
    if (p->kind == PROA_ROPE_PROPORTIONAL) p->factor = 1;
    PROA_TRY(proa_json_get_double(&p->factor, rope, "factor", 1e-3, 1e6, err));
    if (p->factor == 0) return PROA_FAIL(err, INVALID, "rope scaling without a 'factor'");
    return PROA_OK;
}

proa_status proa_rope_read(proa_rope_params *p, const proa_json *rope, int64_t context, int64_t rotary_dim,
                           proa_arena *arena, proa_err *err)
{
    int64_t original = context;
    PROA_TRY(read_kind(p, rope, err));
    PROA_TRY(proa_json_get_double(&p->theta, rope, "rope_theta", 1, 1e12, err));
    PROA_TRY(proa_json_get_int(&original, rope, "original_max_position_embeddings", 1, PROA_CONTEXT_MAX, err));
    if (p->original == 0) p->original = original;
    if (p->kind == PROA_ROPE_DYNAMIC) p->original = context;
    if (p->kind == PROA_ROPE_PLAIN) return PROA_OK;
    PROA_TRY(read_factor(p, rope, context, err));
    switch (p->kind) {
    case PROA_ROPE_LLAMA3: return read_llama3(p, rope, err);
    case PROA_ROPE_YARN: return read_yarn(p, rope, err);
    case PROA_ROPE_LONG: return read_long(p, rope, rotary_dim, arena, err);
    case PROA_ROPE_DYNAMIC:
        if (rotary_dim > 2) return PROA_OK;
        return PROA_FAIL(err, INVALID, "dynamic rope needs more than %lld rotary dimensions",
                         (long long)rotary_dim);
    case PROA_ROPE_PROPORTIONAL:
        p->part = 1;
        return proa_json_get_double(&p->part, rope, "partial_rotary_factor", 0, 1, err);
    case PROA_ROPE_PLAIN:
    case PROA_ROPE_DOUBLED: /* of keys of its own, which the row reads */
    case PROA_ROPE_LINEAR: break;
    }
    return PROA_OK;
}

int64_t proa_rope_context(const proa_rope_params *p, int64_t context)
{
    double grown = 0;
    if (p->kind == PROA_ROPE_LINEAR || p->kind == PROA_ROPE_DYNAMIC) grown = (double)context * p->factor;
    if (p->kind == PROA_ROPE_YARN) grown = (double)p->original * p->factor;
    return proa_max64(context, (int64_t)fmin(grown, PROA_CONTEXT_MAX));
}

/* ---- frequencies ---- */

/* Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between are blended. Llama 4 Scout has
 * one number for both borders. */
static float llama3_freq(const proa_rope_params *p, float inv)
{
    double wavelength = 2 * M_PI / (double)inv;
    double low = (double)p->original / p->low, high = (double)p->original / p->high;
    if (wavelength > low) return (float)((double)inv / p->factor);
    if (wavelength < high || p->high == p->low) return inv;
    double s = ((double)p->original / wavelength - p->low) / (p->high - p->low);
    return (float)((1 - s) * (double)inv / p->factor + s * (double)inv);
}

/* YaRN: the dimension (a real number) that makes this many rotations over the original positions. */
static double yarn_dim(const proa_rope_params *p, double rotations, int64_t rotary_dim)
{
    return (double)rotary_dim * log((double)p->original / (rotations * 2 * M_PI)) / (2 * log(p->theta));
}

/* YaRN: frequencies below the ramp are kept, above it divided by the factor, on it blended. */
static float yarn_freq(const proa_rope_params *p, int64_t rotary_dim, int64_t i, float power)
{
    double low = yarn_dim(p, p->beta_fast, rotary_dim), high = yarn_dim(p, p->beta_slow, rotary_dim);
    if (p->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, (double)(rotary_dim - 1));
    if (low == high) high += 0.001;
    float ramp = ((float)i - (float)low) / (float)(high - low), keep = 1 - fminf(fmaxf(ramp, 0), 1);
    return 1 / ((float)p->factor * power) * (1 - keep) + 1 / power * keep;
}

static float round_f16(float x)
{
    uint16_t half;
    proa_from_f32(&half, PROA_DTYPE_F16, &x, 1);
    proa_to_f32(&x, &half, PROA_DTYPE_F16, 1);
    return x;
}

void proa_rope_inv_freq(const proa_rope_params *p, int64_t rotary_dim, bool longer, float *inv_freq)
{
    const float *factor = longer ? p->long_factor : p->short_factor;
    int64_t turning = (int64_t)(p->part * (double)rotary_dim / 2);
    for (int64_t i = 0; i < rotary_dim / 2; i++) {
        float power = powf((float)p->theta, (float)(2 * i) / (float)rotary_dim);
        switch (p->kind) {
        case PROA_ROPE_PLAIN: inv_freq[i] = p->half ? round_f16(1 / power) : 1 / power; break;
        case PROA_ROPE_DOUBLED:
        case PROA_ROPE_DYNAMIC: inv_freq[i] = 1 / power; break;
        case PROA_ROPE_LINEAR: inv_freq[i] = (float)((double)(1 / power) / p->factor); break;
        case PROA_ROPE_LLAMA3: inv_freq[i] = llama3_freq(p, 1 / power); break;
        case PROA_ROPE_YARN: inv_freq[i] = yarn_freq(p, rotary_dim, i, power); break;
        case PROA_ROPE_PROPORTIONAL: inv_freq[i] = i < turning ? 1 / power / (float)p->factor : 0; break;
        case PROA_ROPE_LONG: inv_freq[i] = 1 / (factor[i] * power); break;
        }
    }
}

bool proa_rope_by_length(const proa_rope_params *p)
{
    return p->kind == PROA_ROPE_DYNAMIC || p->kind == PROA_ROPE_DOUBLED || p->kind == PROA_ROPE_LONG;
}

int64_t proa_rope_length(const proa_rope_params *p, int64_t position, int64_t prompt, int64_t longest)
{
    int64_t doubled = p->original;
    if (p->kind == PROA_ROPE_LONG) return longest;
    if (p->kind == PROA_ROPE_DYNAMIC) return proa_max64(prompt, position + 1);
    while (doubled > 0 && doubled < prompt) doubled *= 2;
    return doubled;
}

double proa_rope_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}
