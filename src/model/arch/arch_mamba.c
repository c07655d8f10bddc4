/* SPDX-License-Identifier: Apache-2.0
 * arch_mamba.c - decoders with layers of Mamba-2 (Dao, Gu 2024) beside layers of attention: Granite 4 (attention
 * without positions, as FFN a mixture and a shared FFN, factors of embedding, branches and logits), Bamba (attention
 * with rotary positions on half of the head, a dense FFN), Falcon-H1 (both in each layer, and factors of most
 * products: muP), Nemotron-H (a layer is a mixer, an FFN or a mixture alone, and has one norm) and Mamba-2 itself (no
 * attention, no FFN). in_proj makes gates, values, B and C, and rates.
 * Facts: transformers' modeling_{granitemoehybrid,bamba,falcon_h1,nemotron_h,mamba2}.py, and NVIDIA's own
 * modeling_nemotron_h.py. */
#include "model/arch/arch_rows.h"

#include "base/checked.h"
#include <float.h>
#include <math.h>

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."
#define MAMBA LAYER "mamba."
#define ATTN  LAYER "self_attn."
#define BLOCK "backbone.layers.%d."
#define MIXER BLOCK "mixer."

/* clang-format off */
#define COMMON_KEYS \
    SIZE_KEYS (layers),                                                         \
    INTEGER   ("head_dim",                 head_dim,        1, HEAD_DIM, 0),    \
    ACTIVATION("hidden_act",               SILU),                               \
    SWITCH    ("tie_word_embeddings",      tied,            0),                 \
    SWITCH    ("attention_bias",           attention_bias,  0),                 \
    INTEGER   ("mamba_n_heads",            value_heads,     1, HEADS,    128),  \
    INTEGER   ("mamba_n_groups",           key_heads,       1, HEADS,    1),    \
    INTEGER   ("mamba_d_state",            key_dim,         1, STATE_DIM, 256), \
    INTEGER   ("mamba_d_conv",             conv_taps,       2, CONV_WIDTH, 4),  \
    SWITCH    ("mamba_conv_bias",          conv_bias,       1),                 \
    SWITCH    ("mamba_proj_bias",          mix_bias,        0)
static const proa_key granite_keys[] = {
    COMMON_KEYS,
    INTEGER   ("num_key_value_heads",      kv_heads,        1, HEADS,    0),
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  2048),
    EPSILON   ("rms_norm_eps",             1e-6),
    INTEGER   ("num_local_experts",        experts,         0, EXPERTS,  8),
    INTEGER   ("shared_intermediate_size", shared_ffn,      1, FFN,      1024),
    NUMBER    ("embedding_multiplier",     embed_scale,     1e-6, 1e6,   1),
    NUMBER    ("attention_multiplier",     attention_scale, 1e-6, 1e6,   1),
    NUMBER    ("residual_multiplier",      residual_scale,  1e-6, 1e6,   1),
    END_KEYS};
static const proa_key falcon_h1_keys[] = {
    COMMON_KEYS,
    INTEGER   ("num_key_value_heads",      kv_heads,        1, HEADS,    0),
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  8192),
    EPSILON   ("rms_norm_eps",             1e-5),
    SWITCH    ("mlp_bias",                 mlp_bias,        0),
    SWITCH    ("projectors_bias",          mix_out_bias,    0),
    NUMBER    ("embedding_multiplier",     embed_scale,     1e-6, 1e6,   1),
    NUMBER    ("lm_head_multiplier",       logit_scale,     1e-6, 1e6,   1),
    NUMBER    ("ssm_in_multiplier",        factors.mix,     1e-6, 1e6,   1),
    NUMBER    ("ssm_out_multiplier",       factors.mix_out, 1e-6, 1e6,   1),
    END_KEYS};
static const proa_key bamba_keys[] = {
    COMMON_KEYS,
    INTEGER   ("num_key_value_heads",      kv_heads,        1, HEADS,    8),
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  262144),
    EPSILON   ("rms_norm_eps",             1e-5),
    SWITCH    ("mlp_bias",                 mlp_bias,        0),
    END_KEYS};
static const proa_key nemotron_h_keys[] = {
    REQUIRED  ("vocab_size",               vocab,           VOCAB),
    REQUIRED  ("hidden_size",              hidden,          HIDDEN),
    INTEGER   ("num_hidden_layers",        layers,          1, LAYERS,   0),
    REQUIRED  ("num_attention_heads",      heads,           HEADS),
    INTEGER   ("num_key_value_heads",      kv_heads,        1, HEADS,    8),
    INTEGER   ("attention_head_dim",       head_dim,        1, HEAD_DIM, 0),
    INTEGER   ("head_dim",                 head_dim,        1, HEAD_DIM, 128),
    INTEGER   ("intermediate_size",        ffn,             1, FFN,      21504),
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  4096),
    EPSILON   ("layer_norm_epsilon",       1e-5),
    ACTIVATION("mlp_hidden_act",           RELU2),
    SWITCH    ("tie_word_embeddings",      tied,            0),
    SWITCH    ("attention_bias",           attention_bias,  0),
    SWITCH    ("mlp_bias",                 mlp_bias,        0),
    INTEGER   ("mamba_num_heads",          value_heads,     1, HEADS,    128),
    INTEGER   ("mamba_head_dim",           value_dim,       1, STATE_DIM, 64),
    INTEGER   ("n_groups",                 key_heads,       1, HEADS,    8),
    INTEGER   ("ssm_state_size",           key_dim,         1, STATE_DIM, 128),
    INTEGER   ("conv_kernel",              conv_taps,       2, CONV_WIDTH, 4),
    SWITCH    ("use_conv_bias",            conv_bias,       1),
    SWITCH    ("use_bias",                 mix_bias,        0),
    INTEGER   ("n_routed_experts",         experts,         1, EXPERTS,  8),
    INTEGER   ("moe_intermediate_size",    expert_ffn,      1, FFN,      7688),
    INTEGER   ("moe_shared_expert_intermediate_size", shared_ffn, 1, FFN, 7688),
    INTEGER   ("moe_latent_size",          expert_latent,   0, HIDDEN,   0),
    INTEGER   ("num_nextn_predict_layers", unused_layers,   0, LAYERS,   0),
    END_KEYS};
static const proa_key mamba2_keys[] = {
    REQUIRED  ("vocab_size",               vocab,           VOCAB),
    REQUIRED  ("hidden_size",              hidden,          HIDDEN),
    REQUIRED  ("num_hidden_layers",        layers,          LAYERS),
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  1 << 20),
    EPSILON   ("layer_norm_epsilon",       1e-5),
    ACTIVATION("hidden_act",               SILU),
    SWITCH    ("tie_word_embeddings",      tied,            0),
    INTEGER   ("num_heads",                value_heads,     1, HEADS,    128),
    INTEGER   ("head_dim",                 value_dim,       1, STATE_DIM, 64),
    INTEGER   ("n_groups",                 key_heads,       1, HEADS,    8),
    INTEGER   ("state_size",               key_dim,         1, STATE_DIM, 128),
    INTEGER   ("conv_kernel",              conv_taps,       2, CONV_WIDTH, 4),
    SWITCH    ("use_conv_bias",            conv_bias,       1),
    SWITCH    ("use_bias",                 mix_bias,        0),
    END_KEYS};

#define BIAS_IF(LAYERS, COND, LOAD, name, SLOT, ROWS) \
    TENSOR_LOADED(LOAD, name, SLOT, VECTOR, ROWS, NONE, IF(LAYERS) | IF(COND))
#define MAMBA_TENSORS(at) \
    MATRIX_LOADED_IF(RECURS, MIX_RATES, at "in_proj.weight",         MIX,         MIX,        HIDDEN), \
    BIAS_IF  (RECURS, MIX_BIAS, MIX_RATES, at "in_proj.bias",        MIX_B,       MIX),                \
    TENSOR   (at "conv1d.weight", MIX_CONV, F32, CONVOLVED, TAPS, IF(RECURS)),                         \
    BIAS_IF  (RECURS, CONV_BIAS, ROWS, at "conv1d.bias",             MIX_CONV_B,  CONVOLVED),          \
    VECTOR_IF(RECURS, at "A_log",                                    DECAY,       RATE_HEADS),         \
    VECTOR_IF(RECURS, at "dt_bias",                                  DECAY_B,     RATE_HEADS),         \
    VECTOR_IF(RECURS, at "D",                                        SKIP,        RATE_HEADS),         \
    TENSOR   (at "norm.weight", RECALL_NORM, VECTOR, RECALLED, NONE, IF(RECURS) | IF(RECALL_NORMED)),  \
    MATRIX_IF(RECURS, at "out_proj.weight",                          MIX_OUT,     HIDDEN,     RECALLED), \
    BIAS_IF  (RECURS, MIX_OUT_BIAS, ROWS, at "out_proj.bias",        MIX_OUT_B,   HIDDEN)
#define ATTENTION_TENSORS(at) \
    MATRIX_IF(ATTENDS, at "q_proj.weight",                           QKV,         Q,          HIDDEN), \
    MATRIX_IF(ATTENDS, at "k_proj.weight",                           QKV,         KV,         HIDDEN), \
    MATRIX_IF(ATTENDS, at "v_proj.weight",                           QKV,         KV,         HIDDEN), \
    MATRIX_IF(ATTENDS, at "o_proj.weight",                           O,           HIDDEN,     Q),      \
    BIAS_IF  (ATTENDS, ATTN_BIAS, ROWS, at "q_proj.bias",            QKV_B,       Q),                  \
    BIAS_IF  (ATTENDS, ATTN_BIAS, ROWS, at "k_proj.bias",            QKV_B,       KV),                 \
    BIAS_IF  (ATTENDS, ATTN_BIAS, ROWS, at "v_proj.bias",            QKV_B,       KV),                 \
    BIAS_IF  (ATTENDS, ATTN_BIAS, ROWS, at "o_proj.bias",            O_B,         HIDDEN)
#define COMMON_TENSORS \
    TABLE    ("model.embed_tokens.weight",                           TOKENS,      VOCAB,      HIDDEN), \
    VECTOR   (LAYER "input_layernorm.weight",                        ATTN_NORM,   HIDDEN),             \
    MAMBA_TENSORS(MAMBA),                                                                              \
    ATTENTION_TENSORS(ATTN),                                                                           \
    MATRIX_IF(UNTIED, "lm_head.weight",                              HEAD,        VOCAB,      HIDDEN), \
    TIED_HEAD("model.embed_tokens.weight")
#define MOE LAYER "block_sparse_moe."
static const proa_name granite_tensors[] = {
    COMMON_TENSORS,
    VECTOR   (LAYER "post_attention_layernorm.weight",               FFN_NORM,    HIDDEN),
    MATRIX_IF(EXPERTS, MOE "router.layer.weight",                    ROUTER,      EXPERTS,      HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, MOE "input_linear.weight",             EXPERT_UP,   EXPERT_GATED, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, MOE "output_linear.weight",            EXPERT_DOWN, HIDDEN,       EXPERT_FFN),
    MATRIX   (LAYER "shared_mlp.input_linear.weight",                SHARED_UP,   SHARED_GATED, HIDDEN),
    MATRIX   (LAYER "shared_mlp.output_linear.weight",               SHARED_DOWN, HIDDEN,       SHARED_FFN),
    VECTOR   ("model.norm.weight",                                   FINAL_NORM,  HIDDEN),
    END_TENSORS};
static const proa_name bamba_tensors[] = {
    COMMON_TENSORS,
    VECTOR   (LAYER "pre_ff_layernorm.weight",                       FFN_NORM,    HIDDEN),
    MATRIX   (LAYER "feed_forward.gate_proj.weight",                 UP,          FFN,        HIDDEN),
    MATRIX   (LAYER "feed_forward.up_proj.weight",                   UP,          FFN,        HIDDEN),
    MATRIX   (LAYER "feed_forward.down_proj.weight",                 DOWN,        HIDDEN,     FFN),
    VECTOR_IF(MLP_BIAS, LAYER "feed_forward.gate_proj.bias",         UP_B,        FFN),
    VECTOR_IF(MLP_BIAS, LAYER "feed_forward.up_proj.bias",           UP_B,        FFN),
    VECTOR_IF(MLP_BIAS, LAYER "feed_forward.down_proj.bias",         DOWN_B,      HIDDEN),
    VECTOR   ("model.final_layernorm.weight",                        FINAL_NORM,  HIDDEN),
    END_TENSORS};
/* Of layers that are one part each: it has one norm before it. */
#define BACKBONE_TENSORS \
    TABLE    ("backbone.embeddings.weight",                          TOKENS,      VOCAB,      HIDDEN), \
    VECTOR   (BLOCK "norm.weight",                                   ATTN_NORM,   HIDDEN),             \
    MAMBA_TENSORS(MIXER),                                                                              \
    VECTOR   ("backbone.norm_f.weight",                              FINAL_NORM,  HIDDEN),             \
    MATRIX_IF(UNTIED, "lm_head.weight",                              HEAD,        VOCAB,      HIDDEN), \
    TIED_HEAD("backbone.embeddings.weight")
#define LATENT(ROLE, COLS, flags, name, SLOT, ROWS) \
    TENSOR(MIXER name, SLOT, ROLE, ROWS, COLS, (flags) | IF(EXPERTS) | IF(EXPERTS_LATENT))
#define SHARED_EXPERT MIXER "shared_experts."
static const proa_name nemotron_h_tensors[] = {
    BACKBONE_TENSORS,
    ATTENTION_TENSORS(MIXER),
    MATRIX_IF(DENSE, MIXER "up_proj.weight",                         UP,          FFN,        HIDDEN),
    MATRIX_IF(DENSE, MIXER "down_proj.weight",                       DOWN,        HIDDEN,     FFN),
    BIAS_IF  (DENSE, MLP_BIAS, ROWS, MIXER "up_proj.bias",           UP_B,        FFN),
    BIAS_IF  (DENSE, MLP_BIAS, ROWS, MIXER "down_proj.bias",         DOWN_B,      HIDDEN),
    MATRIX_IF(EXPERTS, MIXER "gate.weight",                          ROUTER,      EXPERTS,    HIDDEN),
    VECTOR_IF(EXPERTS, MIXER "gate.e_score_correction_bias",         CORRECTION,  EXPERTS),
    EXPERT_MATRIX_IF(EXPERTS, MIXER "experts.%d.up_proj.weight",     EXPERT_UP,   EXPERT_FFN, EXPERT_WIDTH),
    EXPERT_MATRIX_IF(EXPERTS, MIXER "experts.%d.down_proj.weight",   EXPERT_DOWN, EXPERT_WIDTH, EXPERT_FFN),
    LATENT   (MATRIX, HIDDEN, 0, "fc1_latent_proj.weight",           EXPERT_IN,   EXPERT_WIDTH),
    LATENT   (VECTOR, NONE, IF(MLP_BIAS), "fc1_latent_proj.bias",    EXPERT_IN_B, EXPERT_WIDTH),
    LATENT   (MATRIX, EXPERT_WIDTH, 0, "fc2_latent_proj.weight",     EXPERT_OUT,  HIDDEN),
    LATENT   (VECTOR, NONE, IF(MLP_BIAS), "fc2_latent_proj.bias",    EXPERT_OUT_B, HIDDEN),
    MATRIX_IF(EXPERTS, SHARED_EXPERT "up_proj.weight",               SHARED_UP,   SHARED_FFN, HIDDEN),
    MATRIX_IF(EXPERTS, SHARED_EXPERT "down_proj.weight",             SHARED_DOWN, HIDDEN,     SHARED_FFN),
    BIAS_IF  (EXPERTS, MLP_BIAS, ROWS, SHARED_EXPERT "up_proj.bias", SHARED_UP_B, SHARED_FFN),
    BIAS_IF  (EXPERTS, MLP_BIAS, ROWS, SHARED_EXPERT "down_proj.bias", SHARED_DOWN_B, HIDDEN),
    END_TENSORS};
static const proa_name mamba2_tensors[] = {BACKBONE_TENSORS, END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */
/* Names as transformers has them in memory. */
static const char *const aliases[] = {
    "block_sparse_moe.router.layer.weight",  "block_sparse_moe.router.weight",
    "block_sparse_moe.input_linear.weight",  "block_sparse_moe.experts.gate_up_proj",
    "block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj",
    NULL};
static const char *const backbone_aliases[] = {"embeddings.weight", "embedding.weight", NULL};
/* As transformers has Nemotron-H in memory. */
static const char *const backbone_prefixes[] = {"backbone.", "model.", NULL};
static const char *const unused[] = {"mtp.", NULL}; /* multi-token prediction */

static const proa_step granite_embed[] = {EMBED_TO(X, TOKENS, SCALED | INPUTS), ROPE_TABLE_IF(ROTARY), END};
static const proa_step bamba_embed[]   = {EMBED(TOKENS), ROPE_TABLE_IF(ROTARY), END};
static const proa_step backbone_embed[] = {EMBED(TOKENS), END};
static const proa_step falcon_h1_embed[] = {EMBED_TO(X, TOKENS, SCALED | EXACT), ROPE_TABLE, END};
#define MAMBA_MIXER \
    NORM          (X,      N,      ATTN_NORM),                            \
    LINEAR        (N,      MIX,    MIX,         FACTOR | IF(RECURS)),     \
    SCALE_PARTS,                                                          \
    CONV_STATE    (MIX,    MIXED,  MIX_CONV),                             \
    SELECTIVE_SCAN(MIXED,  RECALL, DECAY),                                \
    STEP(NORM_GATED, MIX,  RECALL, RECALL_NORM, IF(RECURS) | IF(RECALL_NORMED)), \
    STEP_BARE(GATE_OUTPUTS, MIX, RECALL,        IF(RECURS) | IF(RECALL_PLAIN)),  \
    LINEAR        (RECALL, X,      MIX_OUT,     ADD | RESIDUAL | FACTOR | IF(RECURS))
#define MIXERS \
    MAMBA_MIXER, \
    LINEAR        (N,      QKV,    QKV,         IF(ATTENDS)),             \
    STEP_BARE(ROPE,        QKV,    QKV,         IF(ATTENDS) | IF(ROTARY)), \
    STEP_BARE(KV_APPEND,   QKV,    NONE,        IF(ATTENDS)),             \
    STEP_BARE(ATTEND,      QKV,    A,           IF(ATTENDS)),             \
    LINEAR        (A,      X,      O,           ADD | RESIDUAL | FACTOR | IF(ATTENDS))
static const proa_step granite_layer[] = {
    MIXERS,
    NORM          (X,      N,      FFN_NORM),
    LINEAR        (N,      ROUTER, ROUTER,      IF(EXPERTS)),
    ROUTE         (CORRECTION),
    EXPERTS       (N,      X,      ADD),
    LINEAR_GATED  (N,      F,      SHARED_UP,   0),
    LINEAR        (F,      X,      SHARED_DOWN, ADD | RESIDUAL),
    END};
static const proa_step bamba_layer[] = {
    MIXERS,
    NORM          (X,      N,      FFN_NORM),
    LINEAR_GATED  (N,      F,      UP,          FACTOR),
    LINEAR        (F,      X,      DOWN,        ADD | RESIDUAL | FACTOR),
    END};
static const proa_step nemotron_h_layer[] = {
    MIXERS,
    LINEAR        (N,      U,      UP,          ACT | IF(DENSE)),
    LINEAR        (U,      X,      DOWN,        ADD | IF(DENSE)),
    LINEAR        (N,      ROUTER, ROUTER,      IF(EXPERTS)),
    ROUTE         (CORRECTION),
    EXPERTS       (N,      X,      ADD | IF(EXPERTS_WIDE)),
    LINEAR        (N,      EXPERT_IN,  EXPERT_IN,  IF(EXPERTS) | IF(EXPERTS_LATENT)),
    EXPERTS       (EXPERT_IN, EXPERT_OUT,          IF(EXPERTS_LATENT)),
    LINEAR        (EXPERT_OUT, X,  EXPERT_OUT, ADD | IF(EXPERTS) | IF(EXPERTS_LATENT)),
    LINEAR        (N,      U,      SHARED_UP,   ACT | IF(EXPERTS)),
    LINEAR        (U,      X,      SHARED_DOWN, ADD | IF(EXPERTS)),
    END};
static const proa_step mamba2_layer[] = {MAMBA_MIXER, END};
static const proa_step head[] = {LM_HEAD(SCALED)};
/* clang-format on */

static bool is_number(const proa_json *j)
{
    return proa_json_kind(j) == PROA_JSON_INT || proa_json_kind(j) == PROA_JSON_DOUBLE;
}

/* Python writes an infinite limit as something that is no number: none. */
static void read_limits(proa_config *c, const proa_json *json)
{
    const proa_json *limits = proa_json_get(json, "time_step_limit");
    const proa_json *least = proa_json_at(limits, 0), *most = proa_json_at(limits, 1);
    c->step_min = is_number(least) ? proa_json_double(least) : 0;
    c->step_max = is_number(most) ? proa_json_double(most) : (double)FLT_MAX;
}

/* mamba_d_head may be "auto". */
static proa_status read_value_dim(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t expand = 2;
    PROA_TRY(proa_json_get_int(&expand, json, "mamba_expand", 1, PROA_HIDDEN_MAX, err));
    c->value_dim = expand * c->hidden / c->value_heads;
    if (proa_str_is(proa_json_str(proa_json_get(json, "mamba_d_head")), "auto")) return PROA_OK;
    return proa_json_get_int(&c->value_dim, json, "mamba_d_head", 1, PROA_STATE_DIM_MAX, err);
}

/* Of all models here. */
static proa_status finish_mixer(proa_config *c, const proa_json *json, const char *heads_key, proa_err *err)
{
    c->mix_rates = c->gate_first = true;
    c->conv_act = PROA_ACT_SILU;
    c->recall_groups = c->key_heads;
    if (c->value_heads % c->key_heads != 0)
        return PROA_FAIL(err, INVALID, "'%s' is %lld, no multiple of %lld groups", heads_key,
                         (long long)c->value_heads, (long long)c->key_heads);
    read_limits(c, json);
    return PROA_OK;
}

static proa_status finish_mamba(proa_config *c, const proa_json *json, proa_err *err)
{
    c->gated = true;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    if (c->act != PROA_ACT_SILU)
        return PROA_FAIL(err, UNSUPPORTED, "'hidden_act' '%s' is not supported", proa_act_name(c->act));
    PROA_TRY(finish_mixer(c, json, "mamba_n_heads", err));
    return read_value_dim(c, json, err);
}

static proa_status check_biases(const proa_config *c, proa_err *err)
{
    if (!(c->attention_bias || c->mix_bias) || c->residual_scale == 1) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "biases with outputs that are multiplied by %g are not supported",
                     c->residual_scale);
}

/* Rotary positions only if position_embedding_type says so. What experts add is scaled as what attention adds: their
 * weights are. */
static proa_status finish_granite(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double divisor = 1;
    int64_t chosen = 2;
    proa_str positions = {"", 0};
    PROA_TRY(finish_mamba(c, json, err));
    PROA_TRY(proa_json_get_double(&divisor, json, "logits_scaling", 1e-6, 1e6, err));
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 0, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_str(&positions, json, "position_embedding_type", err));
    PROA_TRY(check_biases(c, err));
    c->mix_out_bias = c->mix_bias;
    c->logit_scale = 1 / divisor;
    if (c->experts == 0) c->ffn = c->shared_ffn; /* the only one */
    c->expert_ffn = c->ffn;
    c->router.renormalise = true;
    c->router.scale = (float)c->residual_scale;
    if (c->experts > 0) c->router.chosen = (int32_t)chosen;
    proa_config_mix_all(c, false, true, arena);
    PROA_TRY(proa_config_read_recurrent(c, json, err));
    c->rotary_dim = proa_str_is(positions, "rope") ? c->head_dim : 0;
    return c->rotary_dim ? proa_config_read_rope(c, json, arena, err) : PROA_OK;
}

/* The layers of attn_layer_indices have attention. */
static proa_status finish_bamba(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *attending = proa_json_get(json, "attn_layer_indices");
    PROA_TRY(finish_mamba(c, json, err));
    proa_config_mix_all(c, false, true, arena);
    for (int64_t i = 0; i < proa_json_len(attending); i++) {
        int64_t at = proa_json_int(proa_json_at(attending, i));
        if (at < 0 || at >= c->layers)
            return PROA_FAIL(err, INVALID, "'attn_layer_indices' names layer %lld of %lld", (long long)at,
                             (long long)c->layers);
        proa_config_mix(c, at, true, false);
    }
    c->mix_out_bias = c->mix_bias;
    c->rotary_dim = c->head_dim / 2; /* whatever partial_rotary_factor says */
    return proa_config_read_rope(c, json, arena, err);
}

/* Numbers of a list; without it they stay. */
static proa_status read_factors(double *out, int64_t count, const proa_json *json, const char *key, proa_err *err)
{
    const proa_json *list = proa_json_get(json, key);
    if (!list || proa_json_kind(list) == PROA_JSON_NULL) return PROA_OK;
    if (proa_json_len(list) != count)
        return PROA_FAIL(err, INVALID, "'%s' must be a list of %lld numbers", key, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const proa_json *factor = proa_json_at(list, i);
        out[i] = is_number(factor) ? proa_json_double(factor) : 0;
        if (!(out[i] >= 1e-6 && out[i] <= 1e6))
            return PROA_FAIL(err, INVALID, "'%s' entry %lld must be a number from 1e-06 to 1e+06", key,
                             (long long)i);
    }
    return PROA_OK;
}

/* ssm_multipliers are those of gates, v, B, C and rates. */
static proa_status read_parts(proa_config *c, const proa_json *json, proa_err *err)
{
    double stored[] = {1, 1, 1, 1, 1};
    PROA_TRY(read_factors(stored, PROA_COUNT(stored), json, "ssm_multipliers", err));
    bool used = false;
    for (size_t i = 0; i < PROA_COUNT(stored); i++) used = used || stored[i] != 1;
    for (size_t i = 0; i < PROA_COUNT(stored) && used; i++) c->factors.parts[i] = stored[(i + 1) % 5];
    return PROA_OK;
}

/* Factors of an input of products without biases may as well be those of their outputs: of attention's, q and k have
 * theirs in the scale of scores, v its own in that of the output. The FFN's gate has its factor together with the
 * other half, whose inverse the output has. */
static proa_status read_multipliers(proa_config *c, const proa_json *json, proa_err *err)
{
    double key = 1, in = 1, out = 1, ffn[] = {1, 1};
    PROA_TRY(proa_json_get_double(&key, json, "key_multiplier", 1e-6, 1e6, err));
    PROA_TRY(proa_json_get_double(&in, json, "attention_in_multiplier", 1e-6, 1e6, err));
    PROA_TRY(proa_json_get_double(&out, json, "attention_out_multiplier", 1e-6, 1e6, err));
    PROA_TRY(read_factors(ffn, PROA_COUNT(ffn), json, "mlp_multipliers", err));
    PROA_TRY(read_parts(c, json, err));
    c->attention_scale = in * in * key / sqrt((double)c->head_dim);
    c->factors.attention_out = in * out;
    c->factors.ffn_up = ffn[0], c->factors.ffn_out = ffn[1] / ffn[0];
    bool attention = c->attention_bias && (in != 1 || out != 1),
         mlp = c->mlp_bias && (ffn[0] != 1 || ffn[1] != 1);
    if (attention || mlp || (c->mix_out_bias && c->factors.mix_out != 1))
        return PROA_FAIL(err, UNSUPPORTED, "biases with multipliers of the same product are not supported");
    return PROA_OK;
}

/* Each layer has both, side by side. */
static proa_status finish_falcon_h1(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t values = 0;
    bool normed = false, norm_first = true;
    PROA_TRY(finish_mamba(c, json, err));
    if (proa_json_kind(proa_json_get(json, "mamba_d_ssm")) == PROA_JSON_INT) {
        PROA_TRY(proa_json_get_int(&values, json, "mamba_d_ssm", 1, PROA_HIDDEN_MAX, err));
        c->value_dim = values / c->value_heads;
        if (c->value_dim * c->value_heads != values)
            return PROA_FAIL(err, INVALID, "'mamba_d_ssm' is %lld, no multiple of %lld heads",
                             (long long)values, (long long)c->value_heads);
    }
    PROA_TRY(proa_json_get_bool(&normed, json, "mamba_rms_norm", err));
    PROA_TRY(proa_json_get_bool(&norm_first, json, "mamba_norm_before_gate", err));
    PROA_TRY(read_multipliers(c, json, err));
    c->recall_plain = !normed;
    c->gate_first = !normed || !norm_first; /* without a norm it is all the same */
    c->embed_scale_apart = true;
    proa_config_mix_all(c, true, true, arena);
    c->rotary_dim = c->head_dim;
    return proa_config_read_rope(c, json, arena, err);
}

/* ---- layers of one part ---- */

/* What a layer is: its letter in hybrid_override_pattern, and its name in layers_block_type, today's and the older
 * one. */
static const struct layer_kind {
    char letter;
    const char *name, *older;
    bool attends, recurs, ffn, experts;
} layer_kinds[] = {{'M', "linear_attention", "mamba", false, true, false, false},
                   {'*', "full_attention", "attention", true, false, false, false},
                   {'-', "mlp", "mlp", false, false, true, false},
                   {'E', "moe", "moe", false, false, true, true}};

static const struct layer_kind *find_kind(const proa_json *list, proa_str pattern, int64_t layer)
{
    proa_str name = proa_json_str(proa_json_at(list, layer));
    for (const struct layer_kind *k = layer_kinds; k < layer_kinds + PROA_COUNT(layer_kinds); k++)
        if (list ? proa_str_is(name, k->name) || proa_str_is(name, k->older) : pattern.ptr[layer] == k->letter)
            return k;
    return NULL;
}

/* The number of layers may be left to the list. */
static proa_status count_kinds(proa_config *c, const char *key, int64_t count, proa_err *err)
{
    if (c->layers == 0) c->layers = count;
    if (c->layers == count && count >= 1 && count <= PROA_LAYERS_MAX) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'%s' has %lld entries for %lld layers", key, (long long)count,
                     (long long)c->layers);
}

static proa_status read_kinds(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str pattern = {"", 0};
    const proa_json *list = proa_json_get(json, "layers_block_type");
    if (!list) list = proa_json_get(json, "layer_types");
    const char *key = list ? "layers_block_type" : "hybrid_override_pattern";
    PROA_TRY(proa_json_get_str(&pattern, json, "hybrid_override_pattern", err));
    PROA_TRY(count_kinds(c, key, list ? proa_json_len(list) : (int64_t)pattern.len, err));
    proa_config_mix_all(c, false, false, arena);
    c->ffn_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        const struct layer_kind *kind = find_kind(list, pattern, i);
        if (!kind)
            return PROA_FAIL(err, UNSUPPORTED, "'%s' entry %lld is no kind of layer that is known", key,
                             (long long)i);
        proa_config_mix(c, i, kind->attends, kind->recurs);
        c->ffn_layers[i] = kind->ffn;
        c->expert_layers[i] = kind->experts;
    }
    return PROA_OK;
}

/* DeepSeek V3's router. Without layers of experts their sizes, which have defaults, say nothing. */
static proa_status read_mixture(proa_config *c, const proa_json *json, proa_err *err)
{
    double scale = 1;
    int64_t chosen = 2, groups = 1, chosen_groups = 1;
    if (!proa_config_has_experts(c, PROA_SOME_LAYER)) {
        c->experts = c->expert_ffn = c->shared_ffn = c->expert_latent = 0;
        return PROA_OK;
    }
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&groups, json, "n_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen_groups, json, "topk_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_double(&scale, json, "routed_scaling_factor", 1e-6, 1e6, err));
    c->router = (proa_router){.kind = PROA_ROUTER_SIGMOID, .renormalise = true, .group_best = 2};
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    c->router.chosen = (int32_t)chosen;
    c->router.scale = (float)scale;
    c->router.groups = groups > 1 ? (int32_t)groups : 0;
    c->router.chosen_groups = (int32_t)chosen_groups;
    return PROA_OK;
}

static proa_status finish_nemotron_h(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_act act;
    PROA_TRY(proa_config_read_act(&act, json, "mamba_hidden_act", PROA_ACT_SILU, err));
    if (act != PROA_ACT_SILU)
        return PROA_FAIL(err, UNSUPPORTED, "'mamba_hidden_act' '%s' is not supported", proa_act_name(act));
    PROA_TRY(finish_mixer(c, json, "mamba_num_heads", err));
    c->mix_out_bias = c->mix_bias;
    PROA_TRY(read_kinds(c, json, arena, err));
    if (!proa_config_has_dense(c, PROA_SOME_LAYER)) c->ffn = 0;
    return read_mixture(c, json, err);
}

/* No published file says how long a text may be, and nothing in the model does: the context is that of llama.cpp, or
 * one that a user writes. norm_before_gate, which Codestral's file has, is not read by transformers either: the gate is
 * first. */
static proa_status finish_mamba2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t expand = 2;
    if (c->act != PROA_ACT_SILU)
        return PROA_FAIL(err, UNSUPPORTED, "'hidden_act' '%s' is not supported", proa_act_name(c->act));
    PROA_TRY(proa_json_get_int(&expand, json, "expand", 1, PROA_HIDDEN_MAX, err));
    if (expand * c->hidden != c->value_heads * c->value_dim)
        return PROA_FAIL(err, INVALID, "'expand' %lld of hidden size %lld is not 'num_heads' %lld of %lld",
                         (long long)expand, (long long)c->hidden, (long long)c->value_heads,
                         (long long)c->value_dim);
    PROA_TRY(finish_mixer(c, json, "num_heads", err));
    c->mix_out_bias = c->mix_bias;
    proa_config_mix_all(c, false, true, arena);
    c->ffn_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    return PROA_OK;
}

/* clang-format off */
#define ROW(type, class, form, like) \
    {.name = type, .model_type = type, .hf = STRINGS(class), DECODER(RMS), .keys = form##_keys,          \
     .names = like##_tensors, .aliases = aliases, .ignored = ignored,                                    \
     .stacks = {CAUSAL(form##_embed, like##_layer)}, .head = head, .finish = finish_##form}

const proa_arch proa_arch_granitemoehybrid = ROW("granitemoehybrid", "GraniteMoeHybridForCausalLM", granite, granite);
const proa_arch proa_arch_bamba = ROW("bamba", "BambaForCausalLM", bamba, bamba);
const proa_arch proa_arch_falcon_h1 = ROW("falcon_h1", "FalconH1ForCausalLM", falcon_h1, bamba);

#define BACKBONE_ROW(type, class) \
    {.name = #type, .model_type = #type, .hf = STRINGS(class), DECODER(RMS), .keys = type##_keys,        \
     .names = type##_tensors, .prefix_aliases = backbone_prefixes, .aliases = backbone_aliases,          \
     .ignored = ignored, .unused_parts = unused, .stacks = {CAUSAL(backbone_embed, type##_layer)},       \
     .head = head, .finish = finish_##type}

const proa_arch proa_arch_nemotron_h = BACKBONE_ROW(nemotron_h, "NemotronHForCausalLM");
const proa_arch proa_arch_mamba2 = BACKBONE_ROW(mamba2, "Mamba2ForCausalLM");
/* clang-format on */
