/* SPDX-License-Identifier: Apache-2.0
 * arch_olmo.c - OLMo 1, 2 and 3, FlexOlmo, EXAONE 4. OLMo 1 is a Llama whose norms are LayerNorms without weights, and
 * which may limit q, k and v. The others norm what attention and FFN give instead of what they read. OLMo norms all
 * heads of q as one row, and all of k, before they are rotated; OLMo 3 has a window in three of four layers, whose
 * rotary positions are not scaled; FlexOlmo is OLMo 2 with a mixture of experts as FFN. EXAONE 4 norms each head; if
 * some of its layers have a window, only these rotate. Facts: transformers'
 * modeling_{olmo,olmo2,olmo3,flex_olmo,exaone4}.py; OLMo Team 2024. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define BLOCK "model.layers.%d."

/* clang-format off */
#define KEYS \
    SIZE_KEYS (layers),                                                      \
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    0),   \
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 0),   \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  2048), \
    EPSILON   ("rms_norm_eps",            1e-5),                             \
    ACTIVATION("hidden_act",              SILU),                             \
    SWITCH    ("tie_word_embeddings",     tied,           0),                \
    SWITCH    ("attention_bias",          attention_bias, 0)
static const proa_key olmo_keys[] = {KEYS, PAD(1), END_KEYS};
static const proa_key flex_keys[] = {
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  4096),
    KEYS,
    INTEGER   ("num_experts",             experts,        1, EXPERTS,  7),
    EPSILON   ("rms_norm_eps",            1e-6),
    END_KEYS};
static const proa_key exaone4_keys[] = {KEYS, KV_HEADS(32), END_KEYS};

#define COMMON_TENSORS \
    TABLE    ("model.embed_tokens.weight",               TOKENS,        VOCAB,  HIDDEN),   \
    MATRIX   (BLOCK "self_attn.q_proj.weight",           QKV,           Q,      HIDDEN),   \
    MATRIX   (BLOCK "self_attn.k_proj.weight",           QKV,           KV,     HIDDEN),   \
    MATRIX   (BLOCK "self_attn.v_proj.weight",           QKV,           KV,     HIDDEN),   \
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.q_proj.bias",  QKV_B,         Q),                \
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.k_proj.bias",  QKV_B,         KV),               \
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.v_proj.bias",  QKV_B,         KV),               \
    MATRIX   (BLOCK "self_attn.o_proj.weight",           O,             HIDDEN, Q),        \
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.o_proj.bias",  O_B,           HIDDEN),           \
    MATRIX_IF(UNTIED, "lm_head.weight",                  HEAD,          VOCAB,  HIDDEN),   \
    TIED_HEAD("model.embed_tokens.weight")
#define FFN_TENSORS \
    MATRIX   (BLOCK "mlp.gate_proj.weight",              UP,            FFN,    HIDDEN),   \
    MATRIX   (BLOCK "mlp.up_proj.weight",                UP,            FFN,    HIDDEN),   \
    MATRIX   (BLOCK "mlp.down_proj.weight",              DOWN,          HIDDEN, FFN)

#define NORM_TENSORS \
    VECTOR   (BLOCK "post_attention_layernorm.weight",   ATTN_OUT_NORM, HIDDEN),           \
    VECTOR   (BLOCK "post_feedforward_layernorm.weight", FFN_OUT_NORM,  HIDDEN),           \
    VECTOR   ("model.norm.weight",                       FINAL_NORM,    HIDDEN)
#define ONES(name, SLOT) TENSOR_LOADED(ONES, name, SLOT, VECTOR, HIDDEN, NONE, 0)

static const proa_name olmo1_tensors[] = {
    COMMON_TENSORS,
    FFN_TENSORS,
    ONES     (BLOCK "input_layernorm.weight",            ATTN_NORM),
    ONES     (BLOCK "post_attention_layernorm.weight",   FFN_NORM),
    ONES     ("model.norm.weight",                       FINAL_NORM),
    END_TENSORS};
#define WHOLE_NORMS \
    VECTOR   (BLOCK "self_attn.q_norm.weight",           Q_NORM,        Q),                \
    VECTOR   (BLOCK "self_attn.k_norm.weight",           K_NORM,        KV)
static const proa_name olmo_tensors[] = {COMMON_TENSORS, FFN_TENSORS, NORM_TENSORS, WHOLE_NORMS, END_TENSORS};
static const proa_name flex_tensors[] = {
    COMMON_TENSORS,
    NORM_TENSORS,
    WHOLE_NORMS,
    MATRIX       (BLOCK "mlp.gate.weight",                 ROUTER,      EXPERTS,    HIDDEN),
    EXPERT_MATRIX(BLOCK "mlp.experts.%d.gate_proj.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX(BLOCK "mlp.experts.%d.up_proj.weight",   EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX(BLOCK "mlp.experts.%d.down_proj.weight", EXPERT_DOWN, HIDDEN,     EXPERT_FFN),
    END_TENSORS};
static const proa_name exaone4_tensors[] = {
    COMMON_TENSORS,
    FFN_TENSORS,
    NORM_TENSORS,
    VECTOR   (BLOCK "self_attn.q_norm.weight",           Q_NORM,        HEAD),
    VECTOR   (BLOCK "self_attn.k_norm.weight",           K_NORM,        HEAD),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

/* EXAONE 4.5 beside a vision tower. */
static const char *const text_aliases[] = {"model.", "model.language_model.", NULL};
static const char *const unused[] = {"visual.", "model.visual.", "mtp.", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, LOCAL_ROPE_TABLE, END};
#define ATTENTION(NORM_Q, NORM_K) \
    LINEAR      (X, QKV, QKV,  0), \
    NORM_Q      (Q_NORM),          \
    NORM_K      (K_NORM),          \
    ROTATE,                        \
    KV_APPEND,                     \
    ATTEND,                        \
    LINEAR      (A, D,   O,    0), \
    NORM_ADD    (D, X,   ATTN_OUT_NORM)
#define LAYER(NORM_Q, NORM_K) \
    ATTENTION   (NORM_Q, NORM_K),  \
    LINEAR_GATED(X, F,   UP,   0), \
    LINEAR      (F, D,   DOWN, 0), \
    NORM_ADD    (D, X,   FFN_OUT_NORM), \
    END
static const proa_step olmo1_layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR      (N, QKV, QKV,  0),
    CLIP_IF     (CLIPPED),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X,   O,    ADD),
    NORM        (X, N,   FFN_NORM),
    LINEAR_GATED(N, F,   UP,   0),
    LINEAR      (F, X,   DOWN, ADD),
    END};
static const proa_step olmo_layer[] = {LAYER(Q_NORM_WHOLE, K_NORM_WHOLE)};
static const proa_step flex_layer[] = {
    ATTENTION   (Q_NORM_WHOLE, K_NORM_WHOLE),
    LINEAR      (X, ROUTER, ROUTER, 0),
    ROUTE       (CORRECTION),
    EXPERTS     (X, D,   0),
    NORM_ADD    (D, X,   FFN_OUT_NORM),
    END};
static const proa_step exaone4_layer[] = {LAYER(Q_NORM, K_NORM)};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status finish_olmo(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_olmo1(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_json_get_double(&c->qkv_clip, json, "clip_qkv", 0, 1e30, err));
    return finish_olmo(c, json, arena, err);
}

/* rope_scaling is for the layers without a window. */
static proa_status finish_olmo3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->window = 4096;
    c->window_pattern = 4;
    c->rope.theta = 5e5;
    PROA_TRY(finish_olmo(c, json, arena, err));
    if (c->local_rope.theta == 0) c->local_rope.theta = c->rope.theta;
    return proa_config_read_window(c, json, arena, err);
}

static proa_status finish_flex(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t chosen = 5;
    c->expert_ffn = c->ffn;
    c->rope.theta = 5e5;
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    c->router.chosen = (int32_t)chosen;
    return finish_olmo(c, json, arena, err);
}

static proa_status finish_exaone4(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->window = 4096;
    c->window_pattern = 4;
    PROA_TRY(finish_olmo(c, json, arena, err));
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    c->rotated_layers = c->window_layers;
    return PROA_OK;
}

#define FIELDS(type, class, NORM, keylist, family, finisher)                                                 \
    .name = type, .model_type = type, .hf = STRINGS(class), DECODER(NORM), .keys = keylist##_keys,           \
    .names = family##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, family##_layer)}, .head = head,  \
    .finish = finisher
#define ROW(type, class, NORM, keylist, family, finisher, heads)                                             \
    {                                                                                                        \
        FIELDS(type, class, NORM, keylist, family, finisher), heads                                          \
    }

const proa_arch proa_arch_olmo = ROW("olmo", "OlmoForCausalLM", LAYER, olmo, olmo1, finish_olmo1,
                                     HEADS(TEXTS, "Olmo"));
const proa_arch proa_arch_olmo2 = ROW("olmo2", "Olmo2ForCausalLM", RMS, olmo, olmo, finish_olmo,
                                      HEADS(TEXTS, "Olmo2"));
const proa_arch proa_arch_olmo3 = ROW("olmo3", "Olmo3ForCausalLM", RMS, olmo, olmo, finish_olmo3,
                                      HEADS(TEXTS, "Olmo3"));
const proa_arch proa_arch_exaone4 = ROW("exaone4", "Exaone4ForCausalLM", RMS, exaone4, exaone4,
                                        finish_exaone4, HEADS(TEXTS | TOKENS | SPANS, "Exaone4"));
const proa_arch proa_arch_flex_olmo = ROW("flex_olmo", "FlexOlmoForCausalLM", RMS, flex, flex, finish_flex,
                                          NO_HEADS);
const proa_arch proa_arch_exaone4_5 = {
    FIELDS("exaone4_5", "Exaone4_5_ForConditionalGeneration", RMS, exaone4, exaone4, finish_exaone4),
    .text_config = "text_config", .prefix_aliases = text_aliases, .unused_parts = unused};
