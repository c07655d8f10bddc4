/* SPDX-License-Identifier: Apache-2.0
 * arch_lfm2.c - LFM2, dense and mixtures: layers with a short convolution beside layers of attention. A convolution's
 * input and output are multiplied by gates, and what it keeps of a sequence are its last rows alone.
 * Facts: transformers' modeling_{lfm2,lfm2_moe}.py. */
#include "model/arch/arch_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."
#define SHORT LAYER "conv."
#define ATTN  LAYER "self_attn."
#define MLP   LAYER "feed_forward."

/* clang-format off */
#define COMMON_KEYS \
    REQUIRED  ("vocab_size",              vocab,      VOCAB),              \
    REQUIRED  ("hidden_size",             hidden,     HIDDEN),             \
    REQUIRED  ("num_hidden_layers",       layers,     LAYERS),             \
    REQUIRED  ("num_attention_heads",     heads,      HEADS),              \
    INTEGER   ("num_key_value_heads",     kv_heads,   1, HEADS,      8),   \
    INTEGER   ("max_position_embeddings", context,    1, CONTEXT,    128000), \
    EPSILON   ("norm_eps",                1e-5),                           \
    SWITCH    ("tie_word_embeddings",     tied,       1),                  \
    SWITCH    ("conv_bias",               conv_bias,  0),                  \
    INTEGER   ("conv_L_cache",            conv_taps,  2, CONV_WIDTH, 3)
static const proa_key lfm2_keys[] = {
    COMMON_KEYS,
    REQUIRED  ("intermediate_size",       ffn,        FFN),
    END_KEYS};
static const proa_key lfm2_moe_keys[] = {
    COMMON_KEYS,
    INTEGER   ("intermediate_size",       ffn,        1, FFN,        7168),
    INTEGER   ("num_experts",             experts,    1, EXPERTS,    32),
    INTEGER   ("moe_intermediate_size",   expert_ffn, 1, FFN,        1792),
    END_KEYS};

#define CONV_BIAS_OF(LOAD, name, SLOT, ROWS) \
    TENSOR_LOADED(LOAD, SHORT name, SLOT, VECTOR, ROWS, NONE, IF(RECURS) | IF(CONV_BIAS))
#define COMMON_TENSORS \
    TABLE    ("model.embed_tokens.weight",                         TOKENS,     VOCAB,     HIDDEN),   \
    VECTOR   (LAYER "operator_norm.weight",                        ATTN_NORM,  HIDDEN),              \
    MATRIX_LOADED_IF(RECURS, MIX_GATES, SHORT "in_proj.weight",    MIX,        MIX,       HIDDEN),   \
    CONV_BIAS_OF(MIX_GATES, "in_proj.bias",                        MIX_B,      MIX),                 \
    TENSOR   (SHORT "conv.weight", MIX_CONV, F32, CONVOLVED, TAPS, IF(RECURS)),                      \
    CONV_BIAS_OF(ROWS, "conv.bias",                                MIX_CONV_B, CONVOLVED),           \
    MATRIX_IF(RECURS, SHORT "out_proj.weight",                     MIX_OUT,    HIDDEN,    RECALLED), \
    CONV_BIAS_OF(ROWS, "out_proj.bias",                            MIX_OUT_B,  HIDDEN),              \
    MATRIX_IF(ATTENDS, ATTN "q_proj.weight",                       QKV,        Q,         HIDDEN),   \
    MATRIX_IF(ATTENDS, ATTN "k_proj.weight",                       QKV,        KV,        HIDDEN),   \
    MATRIX_IF(ATTENDS, ATTN "v_proj.weight",                       QKV,        KV,        HIDDEN),   \
    VECTOR_IF(ATTENDS, ATTN "q_layernorm.weight",                  Q_NORM,     HEAD),                \
    VECTOR_IF(ATTENDS, ATTN "k_layernorm.weight",                  K_NORM,     HEAD),                \
    MATRIX_IF(ATTENDS, ATTN "out_proj.weight",                     O,          HIDDEN,    Q),        \
    VECTOR   (LAYER "ffn_norm.weight",                             FFN_NORM,   HIDDEN),              \
    MATRIX_IF(DENSE, MLP "w1.weight",                              UP,         FFN,       HIDDEN),   \
    MATRIX_IF(DENSE, MLP "w3.weight",                              UP,         FFN,       HIDDEN),   \
    MATRIX_IF(DENSE, MLP "w2.weight",                              DOWN,       HIDDEN,    FFN),      \
    VECTOR   ("model.embedding_norm.weight",                       FINAL_NORM, HIDDEN),              \
    MATRIX_IF(UNTIED, "lm_head.weight",                            HEAD,       VOCAB,     HIDDEN),   \
    TIED_HEAD("model.embed_tokens.weight")
static const proa_name lfm2_tensors[] = {COMMON_TENSORS, END_TENSORS};
static const proa_name lfm2_moe_tensors[] = {
    COMMON_TENSORS,
    MATRIX_IF(EXPERTS, MLP "gate.weight",                  ROUTER,      EXPERTS,    HIDDEN),
    TENSOR   (MLP "expert_bias", CORRECTION, VECTOR, EXPERTS, NONE, IF(EXPERTS) | IF(PRESENT)),
    EXPERT_MATRIX_IF(EXPERTS, MLP "experts.%d.w1.weight",  EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, MLP "experts.%d.w3.weight",  EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, MLP "experts.%d.w2.weight",  EXPERT_DOWN, HIDDEN,     EXPERT_FFN),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

#define AT(OP, IN, OUT, W, flags) STEP(OP, IN, OUT, W, (flags) | IF(ATTENDS))
static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
#define COMMON_LAYER \
    NORM        (X,      N,      ATTN_NORM),                       \
    LINEAR      (N,      MIX,    MIX,         IF(RECURS)),         \
    GATE_INPUTS (MIX,    RECALL),                                  \
    CONV_STATE  (RECALL, MIXED,  MIX_CONV),                        \
    GATE_OUTPUTS(MIX,    MIXED),                                   \
    LINEAR      (MIXED,  X,      MIX_OUT,     ADD | IF(RECURS)),   \
    LINEAR      (N,      QKV,    QKV,         IF(ATTENDS)),        \
    AT(HEADS_NORM, QKV,  QKV,    Q_NORM,      0),                  \
    AT(HEADS_NORM, QKV,  QKV,    K_NORM,      PROA_OF_K),          \
    STEP_BARE(ROPE,      QKV,    QKV,         IF(ATTENDS)),        \
    STEP_BARE(KV_APPEND, QKV,    NONE,        IF(ATTENDS)),        \
    STEP_BARE(ATTEND,    QKV,    A,           IF(ATTENDS)),        \
    LINEAR      (A,      X,      O,           ADD | IF(ATTENDS)),  \
    NORM        (X,      N,      FFN_NORM),                        \
    LINEAR_GATED(N,      F,      UP,          IF(DENSE)),          \
    LINEAR      (F,      X,      DOWN,        ADD | IF(DENSE))
static const proa_step lfm2_layer[] = {COMMON_LAYER, END};
static const proa_step lfm2_moe_layer[] = {
    COMMON_LAYER,
    LINEAR      (N,      ROUTER, ROUTER,      IF(EXPERTS)),
    ROUTE       (CORRECTION),
    EXPERTS     (N,      X,      ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* layer_types, or the layers of full_attn_idxs have attention; without either all have. */
static proa_status read_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *attending = proa_json_get(json, "full_attn_idxs");
    bool listed = proa_json_kind(attending) == PROA_JSON_ARRAY;
    proa_config_mix_all(c, !listed, listed, arena);
    for (int64_t i = 0; i < proa_json_len(attending); i++) {
        int64_t at = proa_json_int(proa_json_at(attending, i));
        if (at < 0 || at >= c->layers)
            return PROA_FAIL(err, INVALID, "'full_attn_idxs' names layer %lld of %lld", (long long)at,
                             (long long)c->layers);
        proa_config_mix(c, at, true, false);
    }
    return proa_config_read_recurrent(c, json, err);
}

/* The state's values are the columns that are convolved, of as many heads as attention has. */
static proa_status finish_common(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_json_get_bool(&c->tied, json, "tie_embedding", err));
    if (c->hidden % c->heads != 0)
        return PROA_FAIL(err, INVALID, "hidden size %lld is not a multiple of %lld heads",
                         (long long)c->hidden, (long long)c->heads);
    c->act = PROA_ACT_SILU;
    c->gated = c->mix_gated = true;
    c->mix_bias = c->conv_bias;
    c->head_dim = c->rotary_dim = c->value_dim = c->hidden / c->heads;
    c->key_heads = c->value_heads = c->heads;
    PROA_TRY(read_layers(c, json, arena, err));
    c->rope.theta = 1e6;
    return proa_config_read_rope(c, json, arena, err);
}

/* The FFN's size is two thirds of the one that is named, times a factor, in whole blocks. */
static proa_status finish_lfm2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool adjusted = true;
    double factor = 1;
    int64_t block = 256;
    PROA_TRY(proa_json_get_int(&c->ffn, json, "block_ff_dim", 1, PROA_FFN_MAX, err));
    PROA_TRY(proa_json_get_bool(&adjusted, json, "block_auto_adjust_ff_dim", err));
    PROA_TRY(proa_json_get_double(&factor, json, "block_ffn_dim_multiplier", 1e-3, 1e3, err));
    PROA_TRY(proa_json_get_int(&block, json, "block_multiple_of", 1, PROA_FFN_MAX, err));
    const int64_t part = 2 * c->ffn / 3;
    if (adjusted) c->ffn = proa_round_up((int64_t)(factor * (double)part), block);
    return finish_common(c, json, arena, err);
}

static proa_status finish_lfm2_moe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t dense = 2, chosen = 4;
    double scale = 1;
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.renormalise = true;
    PROA_TRY(proa_json_get_int(&dense, json, "num_dense_layers", 0, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_double(&scale, json, "routed_scaling_factor", 1e-6, 1e6, err));
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    c->router.chosen = (int32_t)chosen;
    c->router.scale = (float)scale;
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = i >= dense;
    return finish_common(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class) \
    {.name = #type, .model_type = #type, .hf = STRINGS(class), DECODER(RMS), .keys = type##_keys,      \
     .names = type##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, type##_layer)},         \
     .head = head, .finish = finish_##type}

const proa_arch proa_arch_lfm2 = ROW(lfm2, "Lfm2ForCausalLM");
const proa_arch proa_arch_lfm2_moe = ROW(lfm2_moe, "Lfm2MoeForCausalLM");
/* clang-format on */
