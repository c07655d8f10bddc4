/* SPDX-License-Identifier: Apache-2.0
 * arch_stablelm.c - StableLM, StarCoder2 and Orion: LayerNorm with rotary halves.
 * StableLM rotates a part of the head and has a gated FFN, which in some models runs beside attention on the same
 * normed copy; its largest model norms each head of q and k with weights of its own. StarCoder2 has a plain FFN, biases
 * everywhere and in some models a window. Orion is a Llama but for its norms.
 * Facts: transformers' modeling_{stablelm,starcoder2}.py, OrionStarAI's modeling_orion.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."

/* clang-format off */
#define STABLE_KEYS \
    SIZE_KEYS (layers),                                                         \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  4096)
static const proa_key stablelm_keys[] = {
    STABLE_KEYS,
    KV_HEADS  (32),
    EPSILON   ("layer_norm_eps",          1e-5),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    SWITCH    ("use_qkv_bias",            attention_bias, 0),
    SWITCH    ("use_parallel_residual",   parallel,       0),
    SWITCH    ("qk_layernorm",            qk_norm,        0),
    END_KEYS};
static const proa_key starcoder2_keys[] = {
    STABLE_KEYS,
    KV_HEADS  (2),
    EPSILON   ("norm_epsilon",            1e-5),
    ACTIVATION("hidden_act",              GELU_TANH),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    SWITCH    ("use_bias",                attention_bias, 1),
    END_KEYS};
static const proa_key orion_keys[] = {
    STABLE_KEYS,
    KV_HEADS  (0),
    EPSILON   ("rms_norm_eps",            1e-5),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    END_KEYS};

#define COMMON_TENSORS \
    TABLE    ("model.embed_tokens.weight",             TOKENS,       VOCAB,  HIDDEN), \
    VECTOR   (LAYER "input_layernorm.weight",          ATTN_NORM,    HIDDEN),         \
    VECTOR   (LAYER "input_layernorm.bias",            ATTN_NORM_B,  HIDDEN),         \
    MATRIX   (LAYER "self_attn.q_proj.weight",         QKV,          Q,      HIDDEN), \
    MATRIX   (LAYER "self_attn.k_proj.weight",         QKV,          KV,     HIDDEN), \
    MATRIX   (LAYER "self_attn.v_proj.weight",         QKV,          KV,     HIDDEN), \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.q_proj.bias", QKV_B,       Q),              \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.k_proj.bias", QKV_B,       KV),             \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.v_proj.bias", QKV_B,       KV),             \
    MATRIX   (LAYER "self_attn.o_proj.weight",         O,            HIDDEN, Q),      \
    VECTOR_IF(SEQUENTIAL, LAYER "post_attention_layernorm.weight", FFN_NORM,   HIDDEN), \
    VECTOR_IF(SEQUENTIAL, LAYER "post_attention_layernorm.bias",   FFN_NORM_B, HIDDEN), \
    VECTOR   ("model.norm.weight",                     FINAL_NORM,   HIDDEN),         \
    VECTOR   ("model.norm.bias",                       FINAL_NORM_B, HIDDEN),         \
    MATRIX_IF(UNTIED, "lm_head.weight",                HEAD,         VOCAB,  HIDDEN), \
    TIED_HEAD("model.embed_tokens.weight"),                                           \
    END_TENSORS
#define HEAD_NORM(SLOT, name, PER) TENSOR(LAYER name, SLOT, VECTOR, HEAD, NONE, PROA_IF(QK_NORM) | PER)
static const proa_name stablelm_tensors[] = {
    HEAD_NORM(Q_NORM, "self_attn.q_layernorm.norms.%d.weight", PROA_PER_HEAD),
    HEAD_NORM(K_NORM, "self_attn.k_layernorm.norms.%d.weight", PROA_PER_KV_HEAD),
    MATRIX(LAYER "mlp.gate_proj.weight", UP,   FFN,    HIDDEN),
    MATRIX(LAYER "mlp.up_proj.weight",   UP,   FFN,    HIDDEN),
    MATRIX(LAYER "mlp.down_proj.weight", DOWN, HIDDEN, FFN),
    COMMON_TENSORS};
#define orion_tensors stablelm_tensors
#define orion_layer   stablelm_layer
static const proa_name starcoder2_tensors[] = {
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.o_proj.bias", O_B,    HIDDEN),
    MATRIX   (LAYER "mlp.c_fc.weight",                  UP,     FFN,    HIDDEN),
    VECTOR_IF(ATTN_BIAS, LAYER "mlp.c_fc.bias",         UP_B,   FFN),
    MATRIX   (LAYER "mlp.c_proj.weight",                DOWN,   HIDDEN, FFN),
    VECTOR_IF(ATTN_BIAS, LAYER "mlp.c_proj.bias",       DOWN_B, HIDDEN),
    COMMON_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
/* In parallel the FFN reads the layer's input before attention adds to it. */
static const proa_step stablelm_layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR_GATED(N, F,   UP,   FORK | IF(PARALLEL)),
    LINEAR      (N, QKV, QKV,  0),
    Q_NORM_IF   (QK_NORM, Q_NORM),
    K_NORM_IF   (QK_NORM, K_NORM),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X,   O,    ADD),
    NORM_IF     (SEQUENTIAL, X, N, FFN_NORM),
    LINEAR_GATED(N, F,   UP,   IF(SEQUENTIAL)),
    LINEAR      (F, X,   DOWN, ADD | JOIN),
    END};
static const proa_step starcoder2_layer[] = {
    NORM  (X, N,   ATTN_NORM),
    LINEAR(N, QKV, QKV,  0),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR(A, X,   O,    ADD),
    NORM  (X, N,   FFN_NORM),
    LINEAR(N, U,   UP,   ACT),
    LINEAR(U, X,   DOWN, ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status finish_stablelm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double part = 0.25;
    c->gated = true;
    PROA_TRY(proa_json_get_double(&part, json, "rope_pct", 0, 1, err)); /* the name in the first published files */
    PROA_TRY(proa_config_read_rotary_dim(c, json, part, err));
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_orion(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_starcoder2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rotary_dim = c->hidden / c->heads;
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    return proa_config_read_common_window(c, json, err);
}

/* clang-format off */
#define ROW(type, classes, which, heads)                                                                 \
    {.name = type, .model_type = type, .hf = classes, DECODER(LAYER), .keys = which##_keys,               \
     .names = which##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, which##_layer)}, .head = head, \
     .finish = finish_##which, heads}

const proa_arch proa_arch_stablelm =
    ROW("stablelm", STRINGS("StableLmForCausalLM", "StableLMEpochForCausalLM"), stablelm,
        HEADS(TEXTS | TOKENS, "StableLm"));
const proa_arch proa_arch_starcoder2 =
    ROW("starcoder2", STRINGS("Starcoder2ForCausalLM"), starcoder2, HEADS(TEXTS | TOKENS, "Starcoder2"));
const proa_arch proa_arch_orion = ROW("orion", STRINGS("OrionForCausalLM"), orion, NO_HEADS);
/* clang-format on */
