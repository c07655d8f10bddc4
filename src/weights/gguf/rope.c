/* SPDX-License-Identifier: Apache-2.0
 * rope.c - rotary positions of a GGUF file as the keys rope_theta and rope_scaling of config.json. */
#include "weights/gguf/arch.h"

#include "base/checked.h"

const unsigned char *proa_gguf_f32_vector(const proa_gguf *g, const proa_gguf_tensor *t)
{
    int64_t room = g->len - g->data, bytes;
    if (t->rank != 1 || t->type != 0 || !proa_mul(t->shape[0], 4, &bytes)) return NULL;
    if (t->offset > room || bytes > room - t->offset) return NULL;
    return g->bytes + g->data + t->offset;
}

float proa_gguf_f32_at(const unsigned char *data, int64_t i)
{
    float value;
    memcpy(&value, data + 4 * i, sizeof value);
    return value;
}

/* The list of a tensor of divisors of the frequencies. */
static proa_status put_divisors(proa_buf *json, const char *key, const proa_gguf *g,
                                const proa_gguf_tensor *t, proa_err *err)
{
    const unsigned char *data = proa_gguf_f32_vector(g, t);
    if (!data || t->shape[0] < 1 || t->shape[0] > PROA_HEAD_DIM_MAX)
        return PROA_FAIL(err, CORRUPT, "%s: tensor '%.*s' is not a vector of 1 to %d F32", g->what,
                         (int)t->name.len, t->name.ptr, PROA_HEAD_DIM_MAX);
    for (int64_t i = 0; i < t->shape[0]; i++) {
        double divisor = (double)proa_gguf_f32_at(data, i);
        if (!(divisor >= 1e-6 && divisor <= 1e6))
            return PROA_FAIL(err, INVALID, "%s: tensor '%.*s': number %lld is %g, must be 1e-6 to 1e6",
                             g->what, (int)t->name.len, t->name.ptr, (long long)i, divisor);
        if (i == 0) proa_buf_printf(json, ", \"%s\": [%.9g", key, divisor);
        else proa_buf_printf(json, ", %.9g", divisor);
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

/* Llama 3.1's scaling is a tensor of divisors, which is LongRoPE with one list for all lengths. */
static proa_status put_one_list(proa_buf *json, const proa_gguf *g, const proa_gguf_tensor *t, proa_err *err)
{
    proa_buf_printf(
        json, ", \"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 1, \"attention_factor\": 1");
    PROA_TRY(put_divisors(json, "short_factor", g, t, err));
    PROA_TRY(put_divisors(json, "long_factor", g, t, err));
    proa_buf_char(json, '}');
    return PROA_OK;
}

/* Phi-3's: one list up to the original context, one beyond. */
static proa_status put_two_lists(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    const proa_gguf_tensor *few = proa_gguf_find_tensor(g, "rope_factors_short.weight");
    const proa_gguf_tensor *many = proa_gguf_find_tensor(g, "rope_factors_long.weight");
    double scale = 0;
    int64_t original = 0;
    if (!few || !many)
        return PROA_FAIL(err, INVALID,
                         "%s: of 'rope_factors_short.weight' and 'rope_factors_long.weight' one is missing",
                         g->what);
    PROA_TRY(proa_gguf_arch_number(&scale, g, arch, "rope.scaling.attn_factor", err));
    PROA_TRY(proa_gguf_arch_int(&original, g, arch, "rope.scaling.original_context_length", err));
    proa_buf_printf(json, ", \"rope_scaling\": {\"rope_type\": \"longrope\"");
    if (scale > 0) proa_gguf_put_number(json, "attention_factor", scale);
    if (original) proa_gguf_put_int(json, "original_max_position_embeddings", original);
    PROA_TRY(put_divisors(json, "short_factor", g, few, err));
    PROA_TRY(put_divisors(json, "long_factor", g, many, err));
    proa_buf_char(json, '}');
    return PROA_OK;
}

/* mscale_all_dim, of which a file of DeepSeek has 0.1 times; mscale is equal to it in all models. */
static proa_status put_mscale(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch, double times,
                              proa_err *err)
{
    double factor = 0;
    PROA_TRY(proa_gguf_arch_number(&factor, g, arch, "rope.scaling.yarn_log_multiplier", err));
    if (factor == 0) return PROA_OK;
    proa_gguf_put_number(json, "mscale", times * factor);
    proa_gguf_put_number(json, "mscale_all_dim", times * factor);
    return PROA_OK;
}

/* Ministral 3's and Mistral 4's: how much queries are scaled beyond the original context. */
static proa_status put_mistral(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch, double times,
                               proa_err *err)
{
    double beta = 0;
    PROA_TRY(put_mscale(json, g, arch, times, err));
    PROA_TRY(proa_gguf_arch_number(&beta, g, arch, "attention.temperature_scale", err));
    if (beta > 0) proa_gguf_put_number(json, "llama_4_scaling_beta", beta);
    return PROA_OK;
}

/* YaRN's numbers, where a file has them. */
static proa_status put_yarn(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    static const char *const keys[][2] = {{"rope.scaling.yarn_attn_factor", "attention_factor"},
                                          {"rope.scaling.yarn_beta_fast", "beta_fast"},
                                          {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    for (size_t i = 0; i < PROA_COUNT(keys); i++) {
        double value = 0;
        PROA_TRY(proa_gguf_arch_number(&value, g, arch, keys[i][0], err));
        if (value > 0) proa_gguf_put_number(json, keys[i][1], value);
    }
    return PROA_OK;
}

static proa_status put_scaling(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    char key[128];
    proa_str type = {"none", 4};
    double factor = 1;
    int64_t original = 0;
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch->name);
    PROA_TRY(proa_gguf_get_str(&type, g, key, err));
    PROA_TRY(proa_gguf_arch_number(&factor, g, arch, "rope.scaling.factor", err));
    PROA_TRY(proa_gguf_arch_int(&original, g, arch, "rope.scaling.original_context_length", err));
    if (proa_str_is(type, "none") || (proa_str_is(type, "linear") && factor == 1)) {
        /* without the key some architectures have a scaling: gpt-oss */
        proa_buf_printf(json, ", \"rope_scaling\": {\"rope_type\": \"default\"}");
        return PROA_OK;
    }
    proa_buf_printf(json, ", \"rope_scaling\": {\"rope_type\": ");
    proa_buf_json_str(json, type);
    proa_gguf_put_number(json, "factor", factor);
    if (original) proa_gguf_put_int(json, "original_max_position_embeddings", original);
    if (proa_str_is(type, "yarn")) PROA_TRY(put_yarn(json, g, arch, err));
    if (strcmp(arch->name, "deepseek2") == 0) PROA_TRY(put_mscale(json, g, arch, 10, err));
    if (strcmp(arch->name, "mistral3") == 0) PROA_TRY(put_mistral(json, g, arch, 1, err));
    if (strcmp(arch->name, "mistral4") == 0) PROA_TRY(put_mistral(json, g, arch, 10, err));
    if (strcmp(arch->name, "gpt-oss") == 0)
        proa_gguf_put_bool(json, "truncate", false); /* which no key says */
    proa_buf_char(json, '}');
    return PROA_OK;
}

proa_status proa_gguf_put_rope(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    double theta = 10000;
    const proa_gguf_tensor *divisors = proa_gguf_find_tensor(g, "rope_freqs.weight");
    bool two = proa_gguf_find_tensor(g, "rope_factors_short.weight") ||
               proa_gguf_find_tensor(g, "rope_factors_long.weight");
    PROA_TRY(proa_gguf_arch_number(&theta, g, arch, "rope.freq_base", err));
    proa_gguf_put_number(json, "rope_theta", theta);
    if (divisors) return put_one_list(json, g, divisors, err);
    return two ? put_two_lists(json, g, arch, err) : put_scaling(json, g, arch, err);
}
