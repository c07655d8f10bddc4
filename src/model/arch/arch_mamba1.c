/* SPDX-License-Identifier: Apache-2.0
 * arch_mamba1.c - decoders with layers of Mamba-1 (Gu, Dao 2023), whose steps and decays are those of each column:
 * Mamba itself (no attention, no FFN), Falcon Mamba (what makes the steps, B and C are normed), and Jamba (the same
 * norms with weights, attention without positions in some layers, a mixture as FFN in some).
 * Facts: transformers' modeling_{mamba,falcon_mamba,jamba}.py. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"
#include <float.h>

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."
#define MAMBA LAYER "mamba."
#define ATTN  LAYER "self_attn."
#define MLP   LAYER "feed_forward."
#define BLOCK "backbone.layers.%d."
#define MIXER BLOCK "mixer."

/* clang-format off */
#define MAMBA_KEYS \
    REQUIRED  ("vocab_size",               vocab,           VOCAB),             \
    REQUIRED  ("hidden_size",              hidden,          HIDDEN),            \
    REQUIRED  ("num_hidden_layers",        layers,          LAYERS),            \
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  1 << 20), \
    EPSILON   ("layer_norm_epsilon",       1e-5),                               \
    ACTIVATION("hidden_act",               SILU),                               \
    SWITCH    ("tie_word_embeddings",      tied,            1),                 \
    INTEGER   ("state_size",               key_dim,         1, STATE_DIM, 16),  \
    INTEGER   ("conv_kernel",              conv_taps,       2, CONV_WIDTH, 4),  \
    SWITCH    ("use_conv_bias",            conv_bias,       1),                 \
    SWITCH    ("use_bias",                 mix_bias,        0)
static const proa_key mamba_keys[] = {MAMBA_KEYS, END_KEYS};
static const proa_key falcon_mamba_keys[] = {
    MAMBA_KEYS,
    NUMBER    ("mixer_rms_eps",            params_eps,      0, 1,        1e-6),
    END_KEYS};
static const proa_key jamba_keys[] = {
    SIZE_KEYS (layers),
    INTEGER   ("num_key_value_heads",      kv_heads,        1, HEADS,    0),
    INTEGER   ("head_dim",                 head_dim,        1, HEAD_DIM, 0),
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  262144),
    EPSILON   ("rms_norm_eps",             1e-6),
    NUMBER    ("rms_norm_eps",             params_eps,      0, 1,        1e-6),
    ACTIVATION("hidden_act",               SILU),
    SWITCH    ("tie_word_embeddings",      tied,            0),
    INTEGER   ("num_experts",              experts,         1, EXPERTS,  16),
    INTEGER   ("mamba_d_state",            key_dim,         1, STATE_DIM, 16),
    INTEGER   ("mamba_d_conv",             conv_taps,       2, CONV_WIDTH, 4),
    SWITCH    ("mamba_conv_bias",          conv_bias,       1),
    SWITCH    ("mamba_proj_bias",          mix_bias,        0),
    END_KEYS};

#define BIAS_IF(COND, name, SLOT, ROWS) \
    TENSOR   (name, SLOT, VECTOR, ROWS, NONE, IF(RECURS) | IF(COND))
#define MIXER_TENSORS(at) \
    MATRIX_IF(RECURS, at "in_proj.weight",                           MIX,         MIX,        HIDDEN), \
    BIAS_IF  (MIX_BIAS, at "in_proj.bias",                           MIX_B,       MIX),                \
    TENSOR   (at "conv1d.weight", MIX_CONV, F32, CONVOLVED, TAPS, IF(RECURS)),                         \
    BIAS_IF  (CONV_BIAS, at "conv1d.bias",                           MIX_CONV_B,  CONVOLVED),          \
    MATRIX_IF(RECURS, at "x_proj.weight",                            PARAMS,      PARAMS,     RECALLED), \
    MATRIX_IF(RECURS, at "dt_proj.weight",                           RATES,       RECALLED,   STEP_RANK), \
    VECTOR_IF(RECURS, at "dt_proj.bias",                             DECAY_B,     RECALLED),           \
    TENSOR   (at "A_log", DECAY, F32, RECALLED, STATE, IF(RECURS)),                                    \
    VECTOR_IF(RECURS, at "D",                                        SKIP,        RECALLED),           \
    MATRIX_IF(RECURS, at "out_proj.weight",                          MIX_OUT,     HIDDEN,     RECALLED), \
    BIAS_IF  (MIX_OUT_BIAS, at "out_proj.bias",                      MIX_OUT_B,   HIDDEN)
#define BACKBONE_TENSORS \
    TABLE    ("backbone.embeddings.weight",                          TOKENS,      VOCAB,      HIDDEN), \
    VECTOR   (BLOCK "norm.weight",                                   ATTN_NORM,   HIDDEN),             \
    MIXER_TENSORS(MIXER),                                                                              \
    VECTOR   ("backbone.norm_f.weight",                              FINAL_NORM,  HIDDEN),             \
    MATRIX_IF(UNTIED, "lm_head.weight",                              HEAD,        VOCAB,      HIDDEN), \
    TIED_HEAD("backbone.embeddings.weight")
static const proa_name mamba_tensors[] = {BACKBONE_TENSORS, END_TENSORS};
static const proa_name falcon_mamba_tensors[] = {
    BACKBONE_TENSORS,
    VECTOR_LOADED(ONES, MIXER "dt_layernorm.weight",                 STEP_NORM,   STEP_RANK),
    VECTOR_LOADED(ONES, MIXER "b_layernorm.weight",                  B_NORM,      STATE),
    VECTOR_LOADED(ONES, MIXER "c_layernorm.weight",                  C_NORM,      STATE),
    END_TENSORS};
static const proa_name jamba_tensors[] = {
    TABLE    ("model.embed_tokens.weight",                           TOKENS,      VOCAB,      HIDDEN),
    VECTOR   (LAYER "input_layernorm.weight",                        ATTN_NORM,   HIDDEN),
    MIXER_TENSORS(MAMBA),
    VECTOR_IF(RECURS, MAMBA "dt_layernorm.weight",                   STEP_NORM,   STEP_RANK),
    VECTOR_IF(RECURS, MAMBA "b_layernorm.weight",                    B_NORM,      STATE),
    VECTOR_IF(RECURS, MAMBA "c_layernorm.weight",                    C_NORM,      STATE),
    MATRIX_IF(ATTENDS, ATTN "q_proj.weight",                         QKV,         Q,          HIDDEN),
    MATRIX_IF(ATTENDS, ATTN "k_proj.weight",                         QKV,         KV,         HIDDEN),
    MATRIX_IF(ATTENDS, ATTN "v_proj.weight",                         QKV,         KV,         HIDDEN),
    MATRIX_IF(ATTENDS, ATTN "o_proj.weight",                         O,           HIDDEN,     Q),
    VECTOR   (LAYER "pre_ff_layernorm.weight",                       FFN_NORM,    HIDDEN),
    MATRIX_IF(EXPERTS, MLP "router.weight",                          ROUTER,      EXPERTS,    HIDDEN),
    LLAMA_EXPERT_TENSORS(MLP),
    LLAMA_DENSE_TENSORS(MLP),
    VECTOR   ("model.final_layernorm.weight",                        FINAL_NORM,  HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                              HEAD,        VOCAB,      HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    END_TENSORS};
static const char *const ignored[] = {"lm_head.weight", NULL}; /* a tied head's copy */
static const char *const backbone_aliases[] = {"embeddings.weight", "embedding.weight", NULL};

static const proa_step embed[] = {EMBED(TOKENS), END};
/* The columns of values are convolved; of them PARAMS is made, and of its first columns RATES. */
#define MIX_VALUES \
    NORM          (X,      N,      ATTN_NORM),                            \
    LINEAR        (N,      MIX,    MIX,         IF(RECURS)),              \
    CONV_STATE    (MIX,    MIXED,  MIX_CONV),                             \
    LINEAR        (MIXED,  PARAMS, PARAMS,      IF(RECURS))
#define SCAN \
    LINEAR        (PARAMS, RATES,  RATES,       IF(RECURS)),              \
    CHANNEL_SCAN  (MIXED,  RECALL, DECAY),                                \
    GATE_OUTPUTS  (MIX,    RECALL),                                       \
    LINEAR        (RECALL, X,      MIX_OUT,     ADD | IF(RECURS))
static const proa_step mamba_layer[] = {MIX_VALUES, SCAN, END};
static const proa_step falcon_mamba_layer[] = {MIX_VALUES, NORM_PARAMS, SCAN, END};
static const proa_step jamba_layer[] = {
    MIX_VALUES,
    NORM_PARAMS,
    SCAN,
    LINEAR        (N,      QKV,    QKV,         IF(ATTENDS)),
    STEP_BARE(KV_APPEND,   QKV,    NONE,        IF(ATTENDS)),
    STEP_BARE(ATTEND,      QKV,    A,           IF(ATTENDS)),
    LINEAR        (A,      X,      O,           ADD | IF(ATTENDS)),
    NORM          (X,      N,      FFN_NORM),
    LINEAR        (N,      ROUTER, ROUTER,      IF(EXPERTS)),
    ROUTE         (CORRECTION),
    EXPERTS       (N,      X,      ADD),
    LINEAR_GATED  (N,      F,      UP,          IF(DENSE)),
    LINEAR        (F,      X,      DOWN,        ADD | IF(DENSE)),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* Columns of values that a head is made of: heads are what threads and ranks divide, and mean nothing otherwise. */
enum { HEAD_COLUMNS = 64 };

/* Without a key, "auto" or null: a sixteenth of the hidden size. */
static proa_status read_step_rank(proa_config *c, const proa_json *json, const char *key, proa_err *err)
{
    c->step_rank = proa_ceil_div(c->hidden, 16);
    if (proa_str_is(proa_json_str(proa_json_get(json, key)), "auto")) return PROA_OK;
    return proa_json_get_int(&c->step_rank, json, key, 1, PROA_HIDDEN_MAX, err);
}

/* Of all models here; `values`: columns of values. */
static proa_status finish_mixer(proa_config *c, int64_t values, proa_err *err)
{
    if (c->act != PROA_ACT_SILU)
        return PROA_FAIL(err, UNSUPPORTED, "'hidden_act' '%s' is not supported", proa_act_name(c->act));
    c->value_dim = HEAD_COLUMNS;
    while (values % c->value_dim != 0) c->value_dim /= 2;
    c->value_heads = values / c->value_dim;
    c->key_heads = 1;
    c->recall_plain = true;
    c->conv_act = PROA_ACT_SILU;
    c->step_min = 0, c->step_max = (double)FLT_MAX;
    c->mix_out_bias = c->mix_bias;
    return PROA_OK;
}

/* As of Mamba-2 no published file says how long a text may be. intermediate_size goes before expand, as in transformers
 * (Falcon Mamba's file has an expand of 16, which would be another size). */
static proa_status finish_mamba(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t expand = 2, values = 0;
    PROA_TRY(proa_json_get_int(&expand, json, "expand", 1, PROA_HIDDEN_MAX, err));
    values = expand * c->hidden;
    PROA_TRY(proa_json_get_int(&values, json, "intermediate_size", 1, PROA_FFN_MAX, err));
    PROA_TRY(read_step_rank(c, json, "time_step_rank", err));
    PROA_TRY(finish_mixer(c, values, err));
    proa_config_mix_all(c, false, true, arena);
    c->ffn_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    return PROA_OK;
}

/* Which layers: those whose number divided by the period leaves the offset. */
typedef struct every {
    int64_t period, offset;
} every;

static proa_status read_every(every *out, const proa_json *json, const char *period, const char *offset,
                              proa_err *err)
{
    PROA_TRY(proa_json_get_int(&out->period, json, period, 1, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&out->offset, json, offset, 0, PROA_LAYERS_MAX, err));
    if (out->offset >= out->period)
        return PROA_FAIL(err, INVALID, "'%s' is %lld, must be less than '%s' %lld", offset,
                         (long long)out->offset, period, (long long)out->period);
    return PROA_OK;
}

/* The router's weights are the softmax over all experts, not renormalised. One expert is a dense FFN. */
static proa_status read_mixture(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    every of = {2, 1};
    int64_t chosen = 2;
    PROA_TRY(read_every(&of, json, "expert_layer_period", "expert_layer_offset", err));
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    if (c->experts == 1 || of.offset >= c->layers) c->experts = 0;
    if (c->experts == 0) return PROA_OK;
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = i % of.period == of.offset;
    c->expert_ffn = c->ffn;
    c->router = (proa_router){.chosen = (int32_t)chosen, .scale = 1};
    if (!proa_config_has_dense(c, PROA_SOME_LAYER)) c->ffn = 0;
    return PROA_OK;
}

static proa_status finish_jamba(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    every of = {8, 4};
    int64_t expand = 2;
    PROA_TRY(proa_json_get_int(&expand, json, "mamba_expand", 1, PROA_HIDDEN_MAX, err));
    PROA_TRY(read_step_rank(c, json, "mamba_dt_rank", err));
    PROA_TRY(finish_mixer(c, expand * c->hidden, err));
    PROA_TRY(read_every(&of, json, "attn_layer_period", "attn_layer_offset", err));
    proa_config_mix_all(c, false, true, arena);
    for (int64_t i = of.offset; i < c->layers; i += of.period) proa_config_mix(c, i, true, false);
    c->gated = true;
    return read_mixture(c, json, arena, err);
}

/* clang-format off */
#define BACKBONE_ROW(type, class) \
    {.name = #type, .model_type = #type, .hf = STRINGS(class), DECODER(RMS), .keys = type##_keys, \
     .names = type##_tensors, .aliases = backbone_aliases, .ignored = ignored,                    \
     .stacks = {CAUSAL(embed, type##_layer)}, .head = head, .finish = finish_mamba}

const proa_arch proa_arch_mamba = BACKBONE_ROW(mamba, "MambaForCausalLM");
const proa_arch proa_arch_falcon_mamba = BACKBONE_ROW(falcon_mamba, "FalconMambaForCausalLM");
const proa_arch proa_arch_jamba = {
    .name = "jamba", .model_type = "jamba", .hf = STRINGS("JambaForCausalLM"), DECODER(RMS), .keys = jamba_keys,
    .names = jamba_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, jamba_layer)}, .head = head,
    .finish = finish_jamba, HEADS(TEXTS, "Jamba")};
/* clang-format on */
