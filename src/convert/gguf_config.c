/* SPDX-License-Identifier: Apache-2.0
 * gguf_config.c - a model's configuration as metadata ARCHITECTURE.*: the keys of the table in weights/gguf/archs.c,
 * and those that llama.cpp has for all architectures.
 * Facts: llama.cpp's src/llama-model.cpp (load_hparams) and src/models/, gguf-py's constants.py. */
#include "convert/gguf_values.h"

#include "base/checked.h"
#include <math.h>
#include <string.h>

enum { KEY_BYTES = 128 };

static const char *full_key(char out[KEY_BYTES], const proa_gguf_arch *arch, const char *key)
{
    snprintf(out, KEY_BYTES, "%s.%s", arch->name, key);
    return out;
}

/* ---- the keys of the table ---- */

/* Members of proa_config for keys whose meaning in a config.json depends on others there, or that it may leave out. */
static const struct member {
    const char *gguf;
    size_t offset;
    proa_key_kind kind;
} members[] = {
#define WHOLE(gguf, field)                                                                                   \
    {                                                                                                        \
        gguf, offsetof(proa_config, field), PROA_KEY_INT                                                     \
    }
#define NUMBER(gguf, field)                                                                                  \
    {                                                                                                        \
        gguf, offsetof(proa_config, field), PROA_KEY_DOUBLE                                                  \
    }
    WHOLE("feed_forward_length", ffn),
    WHOLE("attention.head_count_kv", kv_heads),
    WHOLE("attention.key_length", head_dim),
    WHOLE("attention.sliding_window", window),
    WHOLE("expert_count", experts),
    WHOLE("embedding_length_per_layer_input", layer_input),
    WHOLE("decoder_start_token_id", decoder_start),
    WHOLE("attention.relative_buckets_count", rel_buckets),
    NUMBER("attention.clamp_kqv", qkv_clip),
    NUMBER("attn_logit_softcapping", attention_cap),
    NUMBER("final_logit_softcapping", logit_cap),
    NUMBER("attention.layer_norm_epsilon", norm_eps),
    NUMBER("attention.layer_norm_rms_epsilon", norm_eps),
    NUMBER("attention.scale", attention_scale),
    NUMBER("embedding_scale", embed_scale),
    NUMBER("residual_scale", residual_scale),
    {"use_parallel_residual", offsetof(proa_config, parallel), PROA_KEY_BOOL},
#undef NUMBER
#undef WHOLE
};

typedef struct optional_number {
    bool has;
    double value; /* integers up to 2^53 are exact */
} optional_number;

static optional_number read_member(const proa_config *c, size_t offset, proa_key_kind kind)
{
    const char *at = (const char *)c + offset;
    int64_t whole;
    double number;
    bool on;
    switch (kind) {
    case PROA_KEY_INT: memcpy(&whole, at, sizeof whole); return (optional_number){true, (double)whole};
    case PROA_KEY_DOUBLE: memcpy(&number, at, sizeof number); return (optional_number){true, number};
    case PROA_KEY_BOOL: memcpy(&on, at, sizeof on); return (optional_number){true, on};
    case PROA_KEY_ACT: break;
    }
    return (optional_number){false, 0};
}

/* As config.json says it, if it is that of the class. */
static optional_number find_written(const proa_bound *t, const char *key)
{
    if (t->arch != t->source) return (optional_number){false, 0};
    const proa_json *j = proa_json_get(t->json, key);
    switch (proa_json_kind(j)) {
    case PROA_JSON_INT:
    case PROA_JSON_DOUBLE: return (optional_number){true, proa_json_double(j)};
    case PROA_JSON_BOOL: return (optional_number){true, proa_json_bool(j)};
    default: return (optional_number){false, 0};
    }
}

/* As the model's configuration has it, where the class reads the key into a member of it. */
static optional_number find_configured(const proa_bound *t, const char *key)
{
    for (const proa_key *k = t->arch->keys; k->key; k++)
        if (strcmp(k->key, key) == 0) return read_member(&t->config, k->offset, k->kind);
    return (optional_number){false, 0};
}

/* Layers before the first one with experts. */
static int64_t dense_layers(const proa_config *c)
{
    int64_t n = 0;
    while (n < c->layers && !proa_config_has_experts(c, n)) n++;
    return n;
}

/* Every how many layers one has experts; compare_layers of bound.c finds what is not regular. */
static int64_t expert_interval(const proa_config *c)
{
    int64_t first = dense_layers(c), next = first + 1;
    while (next < c->layers && !proa_config_has_experts(c, next)) next++;
    return next < c->layers ? next - first : first + 1;
}

/* A config.json may leave out what its class has as default, llama.cpp has others. */
static optional_number find_experts(const proa_config *c, const char *key)
{
    if (strcmp(key, "nextn_predict_layers") == 0)
        return (optional_number){true, 0}; /* they are not written */
    if (!c->experts) return (optional_number){false, 0};
    if (strcmp(key, "leading_dense_block_count") == 0)
        return (optional_number){true, (double)dense_layers(c)};
    if (strcmp(key, "expert_feed_forward_length") == 0)
        return (optional_number){c->expert_ffn > 0, (double)c->expert_ffn};
    if (strcmp(key, "interleave_moe_layer_step") == 0)
        return (optional_number){true, (double)expert_interval(c)};
    if (strcmp(key, "expert_shared_count") == 0) {
        int64_t shared = c->shared_ffn / proa_max64(c->expert_ffn, 1);
        return (optional_number){c->expert_ffn > 0, (double)shared};
    }
    if (strcmp(key, "expert_weights_scale") == 0) return (optional_number){true, (double)c->router.scale};
    if (strcmp(key, "expert_weights_norm") == 0) return (optional_number){true, c->router.renormalise};
    if (strcmp(key, "expert_group_count") == 0)
        return (optional_number){c->router.groups > 0, c->router.groups};
    if (strcmp(key, "expert_group_used_count") == 0)
        return (optional_number){c->router.groups > 0, c->router.chosen_groups};
    return (optional_number){false, 0};
}

static bool sees_both_sides(const proa_bound *t)
{
    return t->config.encoder_layers > 0 &&
           (t->config.bidirectional || !t->arch->stacks[PROA_STACK_ENCODER].causal);
}

/* Layers that read the keys and values of earlier ones. */
static int64_t shared_layers(const proa_config *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->layers; i++) n += !proa_config_owns_kv(c, i);
    return n;
}

static optional_number find_by_meaning(const proa_bound *t, const proa_gguf_key *key)
{
    const proa_config *c = &t->config;
    optional_number experts = find_experts(c, key->gguf);
    if (experts.has) return experts;
    if (strcmp(key->gguf, "expert_used_count") == 0)
        return (optional_number){c->experts > 0, c->router.chosen};
    /* a window counts the positions of one side and a row's own, the key those of both sides */
    if (strcmp(key->gguf, "attention.sliding_window") == 0 && sees_both_sides(t))
        return (optional_number){c->window_used, 2.0 * (double)(c->window - 1)};
    if (c->step_rank && strcmp(key->gguf, "ssm.time_step_rank") == 0)
        return (optional_number){true, (double)c->step_rank};
    if (strcmp(key->gguf, "attention.shared_kv_layers") == 0)
        return (optional_number){true, (double)shared_layers(c)};
    if (strcmp(key->hf, "logits_scaling") == 0) return (optional_number){true, 1 / c->logit_scale};
    for (size_t i = 0; i < PROA_COUNT(members); i++)
        if (strcmp(members[i].gguf, key->gguf) == 0)
            return read_member(c, members[i].offset, members[i].kind);
    return (optional_number){false, 0};
}

static optional_number find_value(const proa_bound *t, const proa_gguf_key *key)
{
    optional_number f = find_by_meaning(t, key);
    if (!f.has) f = find_written(t, key->hf);
    return f.has ? f : find_configured(t, key->hf);
}

/* Heads of keys and values by layer: those without attention have none. */
static void put_kv_heads(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    char full[KEY_BYTES];
    proa_gguf_value_array(v, full_key(full, arch, "attention.head_count_kv"), PROA_GGUF_U32, c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        proa_gguf_put_u32(&v->bytes, proa_config_attends(c, i) ? (uint32_t)c->kv_heads : 0);
}

static proa_status put_key(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_gguf_key *key,
                           const proa_bound *t, proa_err *err)
{
    char full[KEY_BYTES];
    optional_number f = find_value(t, key);
    if (arch->kv_head_list && strcmp(key->gguf, "attention.head_count_kv") == 0)
        return put_kv_heads(v, arch, &t->config), PROA_OK;
    if (!f.has && key->required)
        return PROA_FAIL(err, UNSUPPORTED, "GGUF's '%s' needs '%s', which config.json does not say",
                         full_key(full, arch, key->gguf), key->hf);
    bool none = key->kind == PROA_GGUF_KEY_INT ? f.value < 0 : key->kind == PROA_GGUF_KEY_NUMBER && f.value == 0;
    if (!f.has || none) return PROA_OK; /* no such token id, no cap */
    full_key(full, arch, key->gguf);
    switch (key->kind) {
    case PROA_GGUF_KEY_INT: proa_gguf_value_u32(v, full, (int64_t)f.value); break;
    case PROA_GGUF_KEY_NUMBER: proa_gguf_value_f32(v, full, f.value); break;
    case PROA_GGUF_KEY_BOOL: proa_gguf_value_bool(v, full, f.value != 0); break;
    }
    return PROA_OK;
}

/* ---- the keys of all architectures ---- */

static bool has_key(const proa_gguf_arch *arch, const char *gguf)
{
    for (const proa_gguf_key *k = arch->keys; k->gguf; k++)
        if (strcmp(k->gguf, gguf) == 0) return true;
    return false;
}

static void put_whole(proa_gguf_values *v, const proa_gguf_arch *arch, const char *key, int64_t value)
{
    char full[KEY_BYTES];
    if (value > 0 && !has_key(arch, key)) proa_gguf_value_u32(v, full_key(full, arch, key), value);
}

static void put_number(proa_gguf_values *v, const proa_gguf_arch *arch, const char *key, double value)
{
    char full[KEY_BYTES];
    if (value > 0 && !has_key(arch, key)) proa_gguf_value_f32(v, full_key(full, arch, key), value);
}

/* For models with latent attention: sizes of the heads. */
static void put_latent(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    if (!c->kv_lora) return;
    put_whole(v, arch, "attention.key_length_mla", c->qk_nope + c->qk_rope);
    put_whole(v, arch, "attention.value_length_mla", c->v_dim);
    put_whole(v, arch, "attention.temperature_length", c->query_scale.length);
}

/* How the router weighs experts (1: softmax, 2: sigmoid), for architectures that have both. */
static void put_weighing(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    bool sigmoid = c->experts > 0 && c->router.kind == PROA_ROUTER_SIGMOID;
    if (sigmoid || c->kv_lora) put_whole(v, arch, "expert_gating_func", sigmoid ? 2 : 1);
}

/* For a head that classifies the mean over the rows (ModernBERT): llama.cpp wants the number of labels, and its pooling
 * type 4, "rank". */
static void put_labels(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    enum { POOLING_RANK = 4 };
    char full[KEY_BYTES], label[24];
    if (!c->head_of_mean) return;
    put_whole(v, arch, "pooling_type", POOLING_RANK);
    proa_gguf_value_array(v, full_key(full, arch, "classifier.output_labels"), PROA_GGUF_STRING, c->labels);
    for (int64_t i = 0; i < c->labels; i++) {
        snprintf(label, sizeof label, "LABEL_%lld", (long long)i);
        proa_gguf_put_text(&v->bytes, proa_str_c(label));
    }
}

static void put_sizes_of_ffns(proa_gguf_values *v, const char *full, const proa_config *c)
{
    proa_gguf_value_array(v, full, PROA_GGUF_U32, c->layers);
    for (int64_t i = 0; i < c->layers; i++) proa_gguf_put_u32(&v->bytes, (uint32_t)proa_config_ffn(c, i));
}

/* By layer: those without FFN have none. llama.cpp wants the number, and that of heads, of a model that has none of
 * them. */
static void put_ffn(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    char full[KEY_BYTES];
    full_key(full, arch, "feed_forward_length");
    if (c->ffn_sizes) put_sizes_of_ffns(v, full, c);
    else if (!arch->ffn_list) put_whole(v, arch, "feed_forward_length", c->ffn);
    if (c->layers > 0 && !proa_config_has_ffn(c, -1)) proa_gguf_value_u32(v, full, 0);
    if (arch->ffn_list) proa_gguf_value_array(v, full, PROA_GGUF_U32, c->layers);
    for (int64_t i = 0; i < c->layers && arch->ffn_list; i++) {
        int64_t size = proa_config_has_experts(c, i) ? c->expert_ffn : c->ffn;
        proa_gguf_put_u32(&v->bytes, proa_config_has_ffn(c, i) ? (uint32_t)size : 0);
    }
    if (c->layers > 0 && !proa_config_attends(c, -1))
        proa_gguf_value_u32(v, full_key(full, arch, "attention.head_count"), 0);
}

/* Heads: the keys are those of layers without a window, where others have another shape (Gemma 4). */
static void put_heads(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    char full[KEY_BYTES];
    int64_t head_dim = c->other_heads ? c->other_head_dim : c->head_dim;
    put_whole(v, arch, "attention.key_length", head_dim);
    put_whole(v, arch, "attention.value_length", c->kv_lora ? c->kv_lora : head_dim);
    if (!c->other_heads) {
        put_whole(v, arch, "attention.head_count_kv", c->kv_heads);
        return;
    }
    put_whole(v, arch, "attention.key_length_swa", c->head_dim);
    put_whole(v, arch, "attention.value_length_swa", c->head_dim);
    put_whole(v, arch, "rope.dimension_count_swa", c->rotary_dim);
    proa_gguf_value_array(v, full_key(full, arch, "attention.head_count_kv"), PROA_GGUF_U32, c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        proa_gguf_put_u32(&v->bytes, (uint32_t)proa_config_kv_heads(c, i));
    proa_gguf_value_f32(v, full_key(full, arch, "final_logit_softcapping"), c->logit_cap); /* 0 is none */
}

/* Gates that are left out, in standard deviations from their mean; -infinity: none. */
static void put_thresholds(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    char full[KEY_BYTES];
    if (!c->deviations) return;
    proa_gguf_value_array(v, full_key(full, arch, "activation_sparsity_scale"), PROA_GGUF_F32, c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        proa_gguf_put_u32(&v->bytes, proa_f32_bits((float)c->deviations[i]));
    proa_gguf_value_f32(v, full_key(full, arch, "final_logit_softcapping"), c->logit_cap);
}

static void put_sizes(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    bool decoder = c->layers > 0;
    char full[KEY_BYTES];
    put_whole(v, arch, "vocab_size", c->vocab);
    put_ffn(v, arch, c);
    put_heads(v, arch, c);
    put_thresholds(v, arch, c);
    put_latent(v, arch, c);
    put_weighing(v, arch, c);
    put_whole(v, arch, "expert_feed_forward_length", c->experts ? c->expert_ffn : 0);
    put_whole(v, arch, "expert_shared_feed_forward_length", c->shared_ffn);
    put_whole(v, arch, "attention.sliding_window", c->window_used ? c->window : 0);
    put_number(v, arch, "attention.max_alibi_bias", c->alibi_max);
    put_number(v, arch, "attention.clamp_kqv", c->qkv_clip);
    put_number(v, arch, "attention.temperature_scale", (double)c->query_scale.beta);
    put_labels(v, arch, c);
    if (!decoder) proa_gguf_value_bool(v, full_key(full, arch, "attention.causal"), false);
    if (!decoder && c->types > 0) proa_gguf_value_u32(v, "tokenizer.ggml.token_type_count", c->types);
    if (strncmp(arch->name, "nemotron_h", 10) == 0) /* of the layer that predicts further tokens */
        proa_gguf_value_f32(v, full_key(full, arch, "attention.layer_norm_epsilon"), c->norm_eps);
}

/* For models with recurrent layers. Those that may have rotary positions say whether they have. */
static void put_recurrent(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    char full[KEY_BYTES];
    if (!c->recurrent_layers || c->mix_gated) return; /* a short convolution's state is its rows alone */
    put_whole(v, arch, "ssm.inner_size", c->value_heads * c->value_dim);
    if (strcmp(arch->name, "mamba") == 0)
        proa_gguf_value_bool(v, full_key(full, arch, "ssm.dt_b_c_rms"), c->params_eps > 0);
    if (c->mix_rates)
        proa_gguf_value_bool(v, full_key(full, arch, "rope.scaling.finetuned"), c->rotary_dim > 0);
}

static void put_recurrent_list(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    char full[KEY_BYTES];
    if (!arch->recurrent_list) return;
    proa_gguf_value_array(v, full_key(full, arch, "attention.recurrent_layers"), PROA_GGUF_BOOL, c->layers);
    for (int64_t i = 0; i < c->layers; i++) proa_buf_char(&v->bytes, proa_config_recurs(c, i));
}

/* How the rotated pairs are divided among the three positions of an image's part, and a fourth that none has. Text has
 * one position thrice, so any division is the same to it: thirds. */
static void put_rope_sections(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    char full[KEY_BYTES];
    int64_t pairs = c->rotary_dim / 2;
    if (!arch->rope_sections) return;
    proa_gguf_value_array(v, full_key(full, arch, "rope.dimension_sections"), PROA_GGUF_I32, 4);
    for (int64_t i = 2; i >= 0; i--) proa_gguf_put_u32(&v->bytes, (uint32_t)((pairs + i) / 3));
    proa_gguf_put_u32(&v->bytes, 0);
}

/* Which layers have the window, where the architecture has a list of them. */
static void put_windows(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    char full[KEY_BYTES];
    int64_t layers = proa_max64(c->layers, c->encoder_layers);
    if (!arch->window_list || !c->window_used) return;
    proa_gguf_value_array(v, full_key(full, arch, "attention.sliding_window_pattern"), PROA_GGUF_BOOL, layers);
    for (int64_t i = 0; i < layers; i++) proa_buf_char(&v->bytes, proa_config_window(c, i) > 0);
}

/* ---- rotary positions ---- */

/* YaRN's numbers that are not the usual ones. */
static void put_yarn(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_rope_params *r)
{
    double times = strcmp(arch->name, "mistral3") == 0 ? 1 : 0.1;
    if (r->mscale_all > 0) put_number(v, arch, "rope.scaling.yarn_log_multiplier", times * r->mscale_all);
    else if (fabs(r->scale - proa_rope_mscale(r->factor, 1)) > 1e-6)
        put_number(v, arch, "rope.scaling.yarn_attn_factor", r->scale);
    if (r->beta_fast != 32) put_number(v, arch, "rope.scaling.yarn_beta_fast", r->beta_fast);
    if (r->beta_slow != 1) put_number(v, arch, "rope.scaling.yarn_beta_slow", r->beta_slow);
}

static void put_rope_type(proa_gguf_values *v, const proa_gguf_arch *arch, const char *type, double factor)
{
    char full[KEY_BYTES];
    proa_gguf_value_str(v, full_key(full, arch, "rope.scaling.type"), proa_str_c(type));
    proa_gguf_value_f32(v, full_key(full, arch, "rope.scaling.factor"), factor);
}

static void put_rope(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_config *c)
{
    const proa_rope_params *r = &c->rope;
    if (r->theta == 0 || c->rotary_dim == 0) return;
    put_whole(v, arch, "rope.dimension_count", proa_config_rotary_dim(c, false));
    put_number(v, arch, "rope.freq_base", r->theta);
    put_number(v, arch, "rope.freq_base_swa", c->local_rope.theta);
    switch (r->kind) {
    case PROA_ROPE_LINEAR: put_rope_type(v, arch, "linear", r->factor); break;
    case PROA_ROPE_YARN:
        put_rope_type(v, arch, "yarn", r->factor);
        put_whole(v, arch, "rope.scaling.original_context_length", r->original);
        put_yarn(v, arch, r);
        break;
    case PROA_ROPE_LONG:
        put_whole(v, arch, "rope.scaling.original_context_length", r->original);
        put_number(v, arch, "rope.scaling.attn_factor", r->scale);
        break;
    case PROA_ROPE_PROPORTIONAL:
    case PROA_ROPE_PLAIN:
    case PROA_ROPE_LLAMA3: /* a tensor of divisors */
    case PROA_ROPE_DYNAMIC:
    case PROA_ROPE_DOUBLED: break;
    }
}

/* The f32 by which the plain frequency is divided to give the scaled one. The quotient is rounded, so its neighbours
 * are tried as well: one of them may give the exact result. The reader computes 1 / (divisor * power). */
static float divisor_of(float plain, float scaled)
{
    float power = 1 / plain, quotient = plain / scaled, best = quotient;
    for (int step = -8; step <= 8; step++) {
        float d = proa_bits_f32(proa_f32_bits(quotient) + (uint32_t)step);
        if (fabsf(1 / (d * power) - scaled) < fabsf(1 / (best * power) - scaled)) best = d;
    }
    return best;
}

/* 1 for pairs that rotate, 1e30 for the others. */
static void fill_turning(float *out, const proa_rope_params *r, int64_t n)
{
    float frequency[PROA_HEAD_DIM_MAX / 2];
    proa_rope_inv_freq(r, 2 * n, false, frequency);
    for (int64_t i = 0; i < n; i++) out[i] = frequency[i] > 0 ? 1 : 1e30F;
}

bool proa_gguf_rope_tensor(float *out, const char *name, const proa_config *c)
{
    const proa_rope_params *r = &c->rope;
    int64_t n = proa_config_rotary_dim(c, false) / 2;
    if (c->other_heads && strcmp(name, "rope_freqs") == 0) return fill_turning(out, r, n), true;
    if (r->kind == PROA_ROPE_LLAMA3 && strcmp(name, "rope_freqs") == 0) {
        proa_rope_params plain = {.kind = PROA_ROPE_PLAIN, .theta = r->theta};
        float frequency[PROA_HEAD_DIM_MAX / 2];
        proa_rope_inv_freq(&plain, c->rotary_dim, false, frequency);
        proa_rope_inv_freq(r, c->rotary_dim, false, out);
        for (int64_t i = 0; i < n; i++) out[i] = divisor_of(frequency[i], out[i]);
        return true;
    }
    if (r->kind != PROA_ROPE_LONG) return false;
    bool one = memcmp(r->short_factor, r->long_factor, (size_t)n * sizeof *out) == 0 && r->scale == 1;
    if (one != (strcmp(name, "rope_freqs") == 0)) return false;
    if (one || strcmp(name, "rope_factors_short") == 0) memcpy(out, r->short_factor, (size_t)n * sizeof *out);
    else if (strcmp(name, "rope_factors_long") == 0) memcpy(out, r->long_factor, (size_t)n * sizeof *out);
    else return false;
    return true;
}

proa_status proa_gguf_put_config(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_bound *t,
                                 proa_err *err)
{
    for (const proa_gguf_key *key = arch->keys; key->gguf; key++) PROA_TRY(put_key(v, arch, key, t, err));
    put_sizes(v, arch, &t->config);
    put_recurrent(v, arch, &t->config);
    put_recurrent_list(v, arch, &t->config);
    put_rope_sections(v, arch, &t->config);
    put_windows(v, arch, &t->config);
    put_rope(v, arch, &t->config);
    return PROA_OK;
}
