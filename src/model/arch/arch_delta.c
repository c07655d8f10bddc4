/* SPDX-License-Identifier: Apache-2.0
 * arch_delta.c - Qwen3-Next and the text models of Qwen3.5, dense and mixtures: three of four layers have a gated delta
 * rule (Gated DeltaNet, Yang et al. 2024) with a recurrent state in place of attention. The attention of the others has
 * a gate for each number of its output. Norms add 1 to their weights, but for those of the delta rule. Qwen3-Next
 * stores what a recurrent layer makes of its input by key heads, Qwen3.5 as q, k and v, gates, and two rates.
 * OLMo Hybrid has the same recurrent layers in a Llama, which norm what they read, and the attention of OLMo 3 without
 * windows, whose layers norm what they give. A row may change what its key gives by twice the difference.
 * Facts: transformers' modeling_{qwen3_next,qwen3_5,qwen3_5_moe,olmo_hybrid}.py. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_DECODER

/* clang-format off */
#define KEYS \
    REQUIRED  ("vocab_size",                      vocab,          VOCAB),                    \
    REQUIRED  ("hidden_size",                     hidden,         HIDDEN),                   \
    REQUIRED  ("num_hidden_layers",               layers,         LAYERS),                   \
    REQUIRED  ("num_attention_heads",             heads,          HEADS),                    \
    INTEGER   ("intermediate_size",               ffn,            1, FFN,        0),         \
    INTEGER   ("head_dim",                        head_dim,       1, HEAD_DIM,   256),       \
    INTEGER   ("max_position_embeddings",         context,        1, CONTEXT,    32768),     \
    EPSILON   ("rms_norm_eps",                    1e-6),                                     \
    ACTIVATION("hidden_act",                      SILU),                                     \
    SWITCH    ("tie_word_embeddings",             tied,           0),                        \
    SWITCH    ("attention_bias",                  attention_bias, 0),                        \
    INTEGER   ("num_experts",                     experts,        0, EXPERTS,    0),         \
    INTEGER   ("moe_intermediate_size",           expert_ffn,     0, FFN,        512),       \
    INTEGER   ("shared_expert_intermediate_size", shared_ffn,     0, FFN,        0),         \
    INTEGER   ("linear_num_key_heads",            key_heads,      1, HEADS,      16),        \
    INTEGER   ("linear_num_value_heads",          value_heads,    1, HEADS,      32),        \
    INTEGER   ("linear_key_head_dim",             key_dim,        1, STATE_DIM,  128),       \
    INTEGER   ("linear_value_head_dim",           value_dim,      1, STATE_DIM,  128),       \
    INTEGER   ("linear_conv_kernel_dim",          conv_taps,      2, CONV_WIDTH, 4),         \
    INTEGER   ("num_nextn_predict_layers",        unused_layers,  0, LAYERS,     0)
static const proa_key qwen3_next_keys[]  = {KEYS, KV_HEADS(2), END_KEYS};
static const proa_key qwen3_5_keys[]     = {KEYS, KV_HEADS(4), END_KEYS};
static const proa_key qwen3_5_moe_keys[] = {KEYS, KV_HEADS(2), END_KEYS};

#define DELTA          "layers.%d.linear_attn."
#define ATTN           "layers.%d.self_attn."
#define RECURRENT(M, name, SLOT, ROWS, COLS) MATRIX_IF(RECURS, M DELTA name, SLOT, ROWS, COLS)
#define COMMON_TENSORS(M) \
    TABLE    (M "embed_tokens.weight",                        TOKENS,      VOCAB,     HIDDEN),                    \
    VECTOR_1 (M "layers.%d.input_layernorm.weight",           ATTN_NORM,   HIDDEN),                               \
    VECTOR_1 (M "layers.%d.post_attention_layernorm.weight",  FFN_NORM,    HIDDEN),                               \
    MATRIX_LOADED_IF(ATTENDS, GATES_FIRST, M ATTN "q_proj.weight", QKV,    Q_GATED,   HIDDEN),                    \
    MATRIX_IF(ATTENDS, M ATTN "k_proj.weight",                QKV,         KV,        HIDDEN),                    \
    MATRIX_IF(ATTENDS, M ATTN "v_proj.weight",                QKV,         KV,        HIDDEN),                    \
    MATRIX_IF(ATTENDS, M ATTN "o_proj.weight",                O,           HIDDEN,    Q),                         \
    ATTN_BIASES(M),                                                                                               \
    TENSOR(M ATTN "q_norm.weight", Q_NORM, VECTOR, HEAD, NONE, PROA_PLUS_ONE | IF(ATTENDS)),                      \
    TENSOR(M ATTN "k_norm.weight", K_NORM, VECTOR, HEAD, NONE, PROA_PLUS_ONE | IF(ATTENDS)),                      \
    TENSOR(M DELTA "conv1d.weight", MIX_CONV, F32, CONVOLVED, TAPS, IF(RECURS)),                                  \
    VECTOR_IF(RECURS, M DELTA "A_log",                        DECAY,       RATE_HEADS),                           \
    VECTOR_IF(RECURS, M DELTA "dt_bias",                      DECAY_B,     RATE_HEADS),                           \
    VECTOR_IF(RECURS, M DELTA "norm.weight",                  RECALL_NORM, RECALL_HEAD),                          \
    RECURRENT(M, "out_proj.weight",                           MIX_OUT,     HIDDEN,    RECALLED),                  \
    LLAMA_DENSE_TENSORS(M "layers.%d.mlp."), \
    VECTOR_1 (M "norm.weight",                                FINAL_NORM,  HIDDEN),                               \
    MATRIX_IF(UNTIED, "lm_head.weight",                       HEAD,        VOCAB,     HIDDEN),                    \
    TIED_HEAD(M "embed_tokens.weight")
#define ATTN_BIAS_OF(M, LOAD, name, SLOT, ROWS) \
    TENSOR_LOADED(LOAD, M ATTN name, SLOT, VECTOR, ROWS, NONE, IF(ATTENDS) | IF(ATTN_BIAS))
#define ATTN_BIASES(M) \
    ATTN_BIAS_OF(M, GATES_FIRST, "q_proj.bias", QKV_B, Q_GATED), \
    ATTN_BIAS_OF(M, ROWS,        "k_proj.bias", QKV_B, KV),      \
    ATTN_BIAS_OF(M, ROWS,        "v_proj.bias", QKV_B, KV),      \
    ATTN_BIAS_OF(M, ROWS,        "o_proj.bias", O_B,   HIDDEN)
#define ROUTED_TENSORS(M) \
    MATRIX_IF(EXPERTS, M "layers.%d.mlp.gate.weight",                    ROUTER,      EXPERTS,    HIDDEN), \
    MATRIX_IF(EXPERTS, M "layers.%d.mlp.shared_expert_gate.weight",      SHARED_GATE, ONE,        HIDDEN), \
    MATRIX_IF(EXPERTS, M "layers.%d.mlp.shared_expert.gate_proj.weight", SHARED_UP,   SHARED_FFN, HIDDEN), \
    MATRIX_IF(EXPERTS, M "layers.%d.mlp.shared_expert.up_proj.weight",   SHARED_UP,   SHARED_FFN, HIDDEN), \
    MATRIX_IF(EXPERTS, M "layers.%d.mlp.shared_expert.down_proj.weight", SHARED_DOWN, HIDDEN,     SHARED_FFN)

static const proa_name qwen3_next_tensors[] = {
    MATRIX_LOADED_IF(RECURS, MIX_GROUPS,  "model." DELTA "in_proj_qkvz.weight", MIX,   MIX,   HIDDEN),
    MATRIX_LOADED_IF(RECURS, RATE_GROUPS, "model." DELTA "in_proj_ba.weight",   RATES, RATES, HIDDEN),
    ROUTED_TENSORS("model."),
    EXPERT_MATRIX_IF(EXPERTS, "model.layers.%d.mlp.experts.%d.gate_proj.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, "model.layers.%d.mlp.experts.%d.up_proj.weight",   EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, "model.layers.%d.mlp.experts.%d.down_proj.weight", EXPERT_DOWN, HIDDEN, EXPERT_FFN),
    COMMON_TENSORS("model."),
    END_TENSORS};
#define VL "model.language_model."
#define EXPERTS_OF(FORM, name, SLOT, ROWS, COLS) \
    TENSOR(VL "layers.%d.mlp.experts." name, SLOT, MATRIX, ROWS, COLS, \
           PROA_PER_EXPERT | IF(EXPERTS) | IF(EXPERTS_##FORM))
static const proa_name qwen3_5_tensors[] = {
    RECURRENT(VL, "in_proj_qkv.weight", MIX,   CONVOLVED,  HIDDEN),
    RECURRENT(VL, "in_proj_z.weight",   MIX,   RECALLED,   HIDDEN),
    RECURRENT(VL, "in_proj_b.weight",   RATES, RATE_HEADS, HIDDEN),
    RECURRENT(VL, "in_proj_a.weight",   RATES, RATE_HEADS, HIDDEN),
    ROUTED_TENSORS(VL), /* of the mixtures only */
    EXPERTS_OF(STACKED, "gate_up_proj",        EXPERT_UP,   EXPERT_GATED, HIDDEN), /* as published; */
    EXPERTS_OF(STACKED, "down_proj",           EXPERT_DOWN, HIDDEN,       EXPERT_FFN),
    EXPERTS_OF(APART,   "%d.gate_proj.weight", EXPERT_UP,   EXPERT_FFN,   HIDDEN), /* as transformers 5 saves them */
    EXPERTS_OF(APART,   "%d.up_proj.weight",   EXPERT_UP,   EXPERT_FFN,   HIDDEN),
    EXPERTS_OF(APART,   "%d.down_proj.weight", EXPERT_DOWN, HIDDEN,       EXPERT_FFN),
    COMMON_TENSORS(VL),
    END_TENSORS};
/* OLMo Hybrid. */
static const proa_key olmo_keys[] = {
    LLAMA_KEYS(layers),
    INTEGER   ("linear_num_key_heads",      key_heads,      1, HEADS,      0),
    INTEGER   ("linear_num_value_heads",    value_heads,    1, HEADS,      0),
    INTEGER   ("linear_key_head_dim",       key_dim,        1, STATE_DIM,  0),
    INTEGER   ("linear_value_head_dim",     value_dim,      1, STATE_DIM,  0),
    INTEGER   ("linear_conv_kernel_dim",    conv_taps,      2, CONV_WIDTH, 4),
    SWITCH    ("linear_allow_neg_eigval",   negative_eigen, 1),
    END_KEYS};
#define OLMO "model.layers.%d."
#define ATTENDING(name, SLOT, ROWS, COLS) MATRIX_IF(ATTENDS, OLMO "self_attn." name, SLOT, ROWS, COLS)
#define ATTN_VECTOR(name, SLOT, ROWS)     VECTOR_IF(ATTENDS, OLMO name, SLOT, ROWS)
static const proa_name olmo_tensors[] = {
    TABLE    ("model.embed_tokens.weight",                    TOKENS,        VOCAB,       HIDDEN),
    VECTOR_IF(RECURS, OLMO "input_layernorm.weight",          ATTN_NORM,     HIDDEN),
    VECTOR_IF(RECURS, OLMO "post_attention_layernorm.weight", FFN_NORM,      HIDDEN),
    RECURRENT("model.", "q_proj.weight",                      MIX,           RECALL_KEYS, HIDDEN),
    RECURRENT("model.", "k_proj.weight",                      MIX,           RECALL_KEYS, HIDDEN),
    RECURRENT("model.", "v_proj.weight",                      MIX,           RECALLED,    HIDDEN),
    RECURRENT("model.", "g_proj.weight",                      MIX,           RECALLED,    HIDDEN),
    RECURRENT("model.", "b_proj.weight",                      RATES,         RATE_HEADS,  HIDDEN),
    RECURRENT("model.", "a_proj.weight",                      RATES,         RATE_HEADS,  HIDDEN),
    RECURRENT("model.", "o_proj.weight",                      MIX_OUT,       HIDDEN,      RECALLED),
    DELTA_CONVOLUTIONS("model." DELTA),
    VECTOR_IF(RECURS, "model." DELTA "A_log",                 DECAY,         RATE_HEADS),
    VECTOR_IF(RECURS, "model." DELTA "dt_bias",               DECAY_B,       RATE_HEADS),
    VECTOR_IF(RECURS, "model." DELTA "o_norm.weight",         RECALL_NORM,   RECALL_HEAD),
    ATTENDING("q_proj.weight",                                QKV,           Q,           HIDDEN),
    ATTENDING("k_proj.weight",                                QKV,           KV,          HIDDEN),
    ATTENDING("v_proj.weight",                                QKV,           KV,          HIDDEN),
    ATTENDING("o_proj.weight",                                O,             HIDDEN,      Q),
    ATTN_BIAS_OF("model.", ROWS, "q_proj.bias",               QKV_B,         Q),
    ATTN_BIAS_OF("model.", ROWS, "k_proj.bias",               QKV_B,         KV),
    ATTN_BIAS_OF("model.", ROWS, "v_proj.bias",               QKV_B,         KV),
    ATTN_BIAS_OF("model.", ROWS, "o_proj.bias",               O_B,           HIDDEN),
    ATTN_VECTOR("self_attn.q_norm.weight",                    Q_NORM,        Q),
    ATTN_VECTOR("self_attn.k_norm.weight",                    K_NORM,        KV),
    ATTN_VECTOR("post_attention_layernorm.weight",            ATTN_OUT_NORM, HIDDEN),
    ATTN_VECTOR("post_feedforward_layernorm.weight",          FFN_OUT_NORM,  HIDDEN),
    MATRIX   (OLMO "mlp.gate_proj.weight",                    UP,            FFN,         HIDDEN),
    MATRIX   (OLMO "mlp.up_proj.weight",                      UP,            FFN,         HIDDEN),
    MATRIX   (OLMO "mlp.down_proj.weight",                    DOWN,          HIDDEN,      FFN),
    VECTOR   ("model.norm.weight",                            FINAL_NORM,    HIDDEN),
    LLAMA_HEAD("model.", "lm_head.weight"),
    END_TENSORS};
/* Published names; transformers 5 saves layers with attention under the second one, too. */
static const char *const olmo_aliases[] = {"input_layernorm.weight", "attention_layer_norm.weight",
                                           "post_attention_layernorm.weight", "feedforward_layer_norm.weight", NULL};
static const char *const vl_aliases[] = {VL, "model.", NULL};
static const char *const unused[] = {"mtp.", "visual.", "model.visual.", NULL}; /* mtp: drafts of further tokens */
static const char *const ignored[] = {"lm_head.weight", NULL}; /* a tied head's copy */

#define AT(OP, IN, OUT, W, flags)   STEP(OP, IN, OUT, W, (flags) | IF(ATTENDS))
static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {
    NORM        (X,      N,      ATTN_NORM),
    LINEAR      (N,      MIX,    MIX,         IF(RECURS)),
    LINEAR      (N,      RATES,  RATES,       IF(RECURS)),
    RECALL_DELTA,
    LINEAR      (N,      QKV,    QKV,         IF(ATTENDS)),
    AT(HEADS_NORM, QKV,  QKV,    Q_NORM,      0),
    AT(HEADS_NORM, QKV,  QKV,    K_NORM,      PROA_OF_K),
    STEP_BARE(ROPE,      QKV,    QKV,         IF(ATTENDS)),
    STEP_BARE(KV_APPEND, QKV,    NONE,        IF(ATTENDS)),
    STEP_BARE(ATTEND,    QKV,    A,           IF(ATTENDS)),
    GATE_HEADS,
    LINEAR      (A,      X,      O,           ADD | IF(ATTENDS)),
    NORM        (X,      N,      FFN_NORM),
    LINEAR_GATED(N,      F,      UP,          IF(DENSE)),
    LINEAR      (F,      X,      DOWN,        ADD | IF(DENSE)),
    LINEAR      (N,      ROUTER, ROUTER,      IF(EXPERTS)),
    ROUTE       (CORRECTION),
    EXPERTS     (N,      X,      ADD),
    LINEAR_GATED(N,      F,      SHARED_UP,   IF(EXPERTS)),
    LINEAR      (N,      GATE,   SHARED_GATE, IF(EXPERTS)),
    SIGMOID_MUL (F,      GATE,   SHARED_DOWN, IF(EXPERTS)),
    LINEAR      (F,      X,      SHARED_DOWN, ADD | IF(EXPERTS)),
    END};
static const proa_step olmo_embed[] = {EMBED(TOKENS), ROPE_TABLE_IF(ROTARY), END};
static const proa_step olmo_layer[] = {
    LINEAR      (X,      QKV,    QKV,         IF(ATTENDS)),
    AT(HEADS_NORM, QKV,  QKV,    Q_NORM,      PROA_WHOLE),
    AT(HEADS_NORM, QKV,  QKV,    K_NORM,      PROA_OF_K | PROA_WHOLE),
    STEP_BARE(ROPE,      QKV,    QKV,         IF(ATTENDS) | IF(ROTARY)),
    STEP_BARE(KV_APPEND, QKV,    NONE,        IF(ATTENDS)),
    STEP_BARE(ATTEND,    QKV,    A,           IF(ATTENDS)),
    LINEAR      (A,      D,      O,           IF(ATTENDS)),
    AT(NORM,     D,      X,      ATTN_OUT_NORM, ADD),
    LINEAR_GATED(X,      F,      UP,          IF(ATTENDS)),
    LINEAR      (F,      D,      DOWN,        IF(ATTENDS)),
    AT(NORM,     D,      X,      FFN_OUT_NORM, ADD),
    NORM_IF     (RECURS, X,      N,           ATTN_NORM),
    LINEAR      (N,      MIX,    MIX,         IF(RECURS)),
    LINEAR      (N,      RATES,  RATES,       IF(RECURS)),
    RECALL_DELTA,
    NORM_IF     (RECURS, X,      N,           FFN_NORM),
    LINEAR_GATED(N,      F,      UP,          IF(RECURS)),
    LINEAR      (F,      X,      DOWN,        ADD | IF(RECURS)),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status check_value_heads(const proa_config *c, proa_err *err)
{
    if (c->value_heads % c->key_heads == 0) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'linear_num_value_heads' is %lld, no multiple of %lld key heads",
                     (long long)c->value_heads, (long long)c->key_heads);
}

/* layer_types, or all layers but every full_attention_interval-th. */
static proa_status read_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t interval = 4;
    PROA_TRY(proa_json_get_int(&interval, json, "full_attention_interval", 1, PROA_LAYERS_MAX, err));
    proa_config_mix_all(c, false, true, arena);
    for (int64_t i = interval - 1; i < c->layers; i += interval) proa_config_mix(c, i, true, false);
    return proa_config_read_recurrent(c, json, err);
}

static proa_status read_experts(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t chosen = 10;
    c->router.renormalise = true;
    c->shared_gate = true;
    if (c->ffn == 0) c->ffn = c->shared_ffn;
    if (c->experts == 0) return PROA_OK;
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    c->router.chosen = (int32_t)chosen;
    if (c->shared_ffn == 0) return PROA_FAIL(err, INVALID, "'shared_expert_intermediate_size' is missing");
    return proa_config_read_expert_layers(c, json, arena, err);
}

static proa_status finish_delta(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = c->attention_gate = true;
    c->conv_act = c->act;
    PROA_TRY(check_value_heads(c, err));
    PROA_TRY(read_layers(c, json, arena, err));
    PROA_TRY(read_experts(c, json, arena, err));
    PROA_TRY(proa_config_read_rotary_dim(c, json, 0.25, err));
    return proa_config_read_rope(c, json, arena, err);
}

/* The published model has no rotary positions: a null rope_theta says so. */
static proa_status finish_olmo(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *rope = proa_json_get(json, "rope_parameters");
    c->gated = true;
    c->conv_act = PROA_ACT_SILU;
    c->recall_eps = 1e-5;
    if (c->act != PROA_ACT_SILU)
        return PROA_FAIL(err, UNSUPPORTED, "'hidden_act' '%s' is not supported", proa_act_name(c->act));
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    if (c->key_heads == 0) c->key_heads = c->heads;
    if (c->value_heads == 0) c->value_heads = c->heads;
    if (c->key_dim == 0) c->key_dim = 3 * c->hidden / (4 * c->key_heads);
    if (c->value_dim == 0) c->value_dim = 2 * c->key_dim;
    PROA_TRY(check_value_heads(c, err));
    PROA_TRY(read_layers(c, json, arena, err));
    if (c->layers < 4 && !proa_json_get(json, "layer_types")) proa_config_mix(c, c->layers - 1, true, false);
    c->rotary_dim = proa_config_is_null(rope, "rope_theta") ? 0 : c->head_dim;
    return c->rotary_dim ? proa_config_read_rope(c, json, arena, err) : PROA_OK;
}

/* clang-format off */
/* The rest: the other classes of the row. */
#define ROW(type, class, tensors, text, others, ...) \
    {.name = #type, .model_type = #type, .hf = class, DECODER(RMS), .keys = type##_keys,                        \
     .names = tensors##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head, \
     .finish = finish_delta, .text_config = text, .prefix_aliases = others, .unused_parts = unused,   \
     __VA_ARGS__}

const proa_arch proa_arch_qwen3_next = ROW(qwen3_next, STRINGS("Qwen3NextForCausalLM"), qwen3_next, NULL, NULL,
                                           HEADS(TEXTS | TOKENS | SPANS, "Qwen3Next"));
const proa_arch proa_arch_qwen3_5 =
    ROW(qwen3_5, STRINGS("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"), qwen3_5,
        "text_config", vl_aliases, HEADS(TEXTS | TOKENS, "Qwen3_5Text", "Qwen3_5"));
const proa_arch proa_arch_qwen3_5_moe =
    ROW(qwen3_5_moe, STRINGS("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"), qwen3_5,
        "text_config", vl_aliases, NO_HEADS);
const proa_arch proa_arch_olmo_hybrid = {
    .name = "olmo_hybrid", .model_type = "olmo_hybrid", .hf = STRINGS("OlmoHybridForCausalLM"), DECODER(RMS),
    .keys = olmo_keys, .names = olmo_tensors, .aliases = olmo_aliases, .ignored = ignored,
    .stacks = {CAUSAL(olmo_embed, olmo_layer)}, .head = head, .finish = finish_olmo};
/* clang-format on */
