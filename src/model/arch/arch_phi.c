/* SPDX-License-Identifier: Apache-2.0
 * arch_phi.c - Phi 1, 1.5 and 2; Phi-3, Phi-3.5 and Phi-4, also the text model of Phi-4-multimodal.
 * The first have LayerNorm, biases everywhere, a rotated part of the head, and attention and FFN in parallel on one
 * normed copy. Phi-3 is a Llama whose q, k, v and whose gate and up rows are one stored matrix each; it has a window or
 * LongRoPE, and Phi-4-mini rotates a part of the head. The text model of
 * Phi-4-multimodal is Phi-4-mini's; the published files have low-rank adapters of images and speech beside each matrix,
 * which text does not use. Facts: transformers' modeling_{phi,phi3,phi4_multimodal}.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define BLOCK "model.layers.%d."

/* clang-format off */
static const proa_key phi_keys[] = {
    SIZE_KEYS (layers),
    INTEGER   ("num_key_value_heads",     kv_heads, 1, HEADS,    0),
    INTEGER   ("head_dim",                head_dim, 1, HEAD_DIM, 0),
    INTEGER   ("max_position_embeddings", context,  1, CONTEXT,  2048),
    EPSILON   ("layer_norm_eps",          1e-5),
    ACTIVATION("hidden_act",              GELU_TANH),
    SWITCH    ("qk_layernorm",            qk_norm,  0),
    SWITCH    ("tie_word_embeddings",     tied,     0),
    END_KEYS};
#define PHI3_KEYS \
    SIZE_KEYS (layers),                                                                \
    INTEGER   ("num_key_value_heads",     kv_heads, 1, HEADS,    0),                   \
    INTEGER   ("head_dim",                head_dim, 1, HEAD_DIM, 0),                   \
    INTEGER   ("max_position_embeddings", context,  1, CONTEXT,  4096),                \
    EPSILON   ("rms_norm_eps",            1e-5),                                       \
    ACTIVATION("hidden_act",              SILU),                                       \
    SWITCH    ("tie_word_embeddings",     tied,     0)                                
static const proa_key phi3_keys[] = {PHI3_KEYS, PAD(32000), END_KEYS};
static const proa_key phi4mm_keys[] = {
    PHI3_KEYS,
    KV_HEADS  (8),
    INTEGER   ("max_position_embeddings", context,  1, CONTEXT,  131072),
    END_KEYS};

static const proa_name phi_tensors[] = {
    TABLE    ("model.embed_tokens.weight",                     TOKENS,       VOCAB,  HIDDEN),
    VECTOR   (BLOCK "input_layernorm.weight",                  ATTN_NORM,    HIDDEN),
    VECTOR   (BLOCK "input_layernorm.bias",                    ATTN_NORM_B,  HIDDEN),
    MATRIX   (BLOCK "self_attn.q_proj.weight",                 QKV,          Q,      HIDDEN),
    MATRIX   (BLOCK "self_attn.k_proj.weight",                 QKV,          KV,     HIDDEN),
    MATRIX   (BLOCK "self_attn.v_proj.weight",                 QKV,          KV,     HIDDEN),
    VECTOR   (BLOCK "self_attn.q_proj.bias",                   QKV_B,        Q),
    VECTOR   (BLOCK "self_attn.k_proj.bias",                   QKV_B,        KV),
    VECTOR   (BLOCK "self_attn.v_proj.bias",                   QKV_B,        KV),
    VECTOR_IF(QK_NORM, BLOCK "self_attn.q_layernorm.weight",   Q_NORM,       HEAD),
    VECTOR_IF(QK_NORM, BLOCK "self_attn.q_layernorm.bias",     Q_NORM_B,     HEAD),
    VECTOR_IF(QK_NORM, BLOCK "self_attn.k_layernorm.weight",   K_NORM,       HEAD),
    VECTOR_IF(QK_NORM, BLOCK "self_attn.k_layernorm.bias",     K_NORM_B,     HEAD),
    MATRIX   (BLOCK "self_attn.dense.weight",                  O,            HIDDEN, Q),
    VECTOR   (BLOCK "self_attn.dense.bias",                    O_B,          HIDDEN),
    MATRIX   (BLOCK "mlp.fc1.weight",                          UP,           FFN,    HIDDEN),
    VECTOR   (BLOCK "mlp.fc1.bias",                            UP_B,         FFN),
    MATRIX   (BLOCK "mlp.fc2.weight",                          DOWN,         HIDDEN, FFN),
    VECTOR   (BLOCK "mlp.fc2.bias",                            DOWN_B,       HIDDEN),
    VECTOR   ("model.final_layernorm.weight",                  FINAL_NORM,   HIDDEN),
    VECTOR   ("model.final_layernorm.bias",                    FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                        HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    VECTOR   ("lm_head.bias",                                  HEAD_B,       VOCAB),
    END_TENSORS};
static const proa_name phi3_tensors[] = {
    TABLE    ("model.embed_tokens.weight",                     TOKENS,       VOCAB,   HIDDEN),
    VECTOR   (BLOCK "input_layernorm.weight",                  ATTN_NORM,    HIDDEN),
    MATRIX   (BLOCK "self_attn.qkv_proj.weight",               QKV,          QKV,     HIDDEN),
    MATRIX   (BLOCK "self_attn.o_proj.weight",                 O,            HIDDEN,  Q),
    VECTOR   (BLOCK "post_attention_layernorm.weight",         FFN_NORM,     HIDDEN),
    MATRIX   (BLOCK "mlp.gate_up_proj.weight",                 UP,           GATE_UP, HIDDEN),
    MATRIX   (BLOCK "mlp.down_proj.weight",                    DOWN,         HIDDEN,  FFN),
    VECTOR   ("model.norm.weight",                             FINAL_NORM,   HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                        HEAD,         VOCAB,   HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    END_TENSORS};
/* Published names of the matrices, beside which there are adapters. */
static const char *const aliases[] = {
    "self_attn.qkv_proj.weight", "self_attn.qkv_proj.base_layer.weight", "self_attn.o_proj.weight",
    "self_attn.o_proj.base_layer.weight", "mlp.gate_up_proj.weight", "mlp.gate_up_proj.base_layer.weight",
    "mlp.down_proj.weight", "mlp.down_proj.base_layer.weight", NULL};
static const char *const phi4mm_ignored[] = {
    "lora_A.vision.weight", "lora_B.vision.weight", "lora_A.speech.weight", "lora_B.speech.weight", "lm_head.weight",
    NULL};
static const char *const phi4mm_unused[] = {"model.embed_tokens_extend.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE_IF(ROTARY), END};
static const proa_step phi_layer[] = {
    NORM     (X, N,   ATTN_NORM),
    LINEAR   (N, U,   UP,   ACT | FORK),
    LINEAR   (N, QKV, QKV,  0),
    Q_NORM_IF(QK_NORM, Q_NORM),
    K_NORM_IF(QK_NORM, K_NORM),
    ROTATE_IF(ROTARY),
    KV_APPEND,
    ATTEND,
    LINEAR   (A, X,   O,    ADD),
    LINEAR   (U, X,   DOWN, ADD | JOIN),
    END};
static const proa_step phi3_layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR      (N, QKV, QKV,  0),
    ROTATE_IF   (ROTARY),
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X,   O,    ADD),
    NORM        (X, N,   FFN_NORM),
    LINEAR_GATED(N, F,   UP,   0),
    LINEAR      (F, X,   DOWN, ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status finish_phi(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_config_read_rotary_dim(c, json, 0.5, err));
    return proa_config_read_rope(c, json, arena, err);
}

/* The positions before LongRoPE's stretch are a key beside rope_scaling. */
static proa_status finish_phi3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    return proa_config_read_common_window(c, json, err);
}

/* Its class knows the length before the stretch, and has a window only where it is told. */
static proa_status finish_phi4mm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rope.original = 4096;
    return finish_phi3(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class, NORM, short, stem)                                                          \
    {.name = type, .model_type = type, .hf = STRINGS(class), DECODER(NORM), .keys = short##_keys,    \
     .names = short##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, short##_layer)},         \
     .head = head, .finish = finish_##short, HEADS(TEXTS | TOKENS, stem)}

const proa_arch proa_arch_phi  = ROW("phi",  "PhiForCausalLM",  LAYER, phi, "Phi");
const proa_arch proa_arch_phi3 = ROW("phi3", "Phi3ForCausalLM", RMS, phi3, "Phi3");
/* transformers' name, and that of the published files. */
const proa_arch proa_arch_phi4_multimodal =
    {.name = "phi4_multimodal", .model_type = "phi4_multimodal",
     .hf = STRINGS("Phi4MultimodalForCausalLM", "Phi4MMForCausalLM"), DECODER(RMS), .keys = phi4mm_keys,
     .names = phi3_tensors, .aliases = aliases, .ignored = phi4mm_ignored, .unused_parts = phi4mm_unused,
     .stacks = {CAUSAL(embed, phi3_layer)}, .head = head, .finish = finish_phi4mm};
/* clang-format on */
