/* SPDX-License-Identifier: Apache-2.0
 * llama_rows.h - keys, tensors and steps of Llama's family, of which the rows of its decoders are made (arch_llama.c),
 * those of EuroBERT (arch_eurobert.c), and of the text models of multimodal checkpoints (arch_vision.c).
 * M: what the names of the body begin with. STACK is the includer's. */
#ifndef PROA_MODEL_LLAMA_ROWS_H
#define PROA_MODEL_LLAMA_ROWS_H

#include "model/arch/arch_rows.h"

/* clang-format off */
/* LAYERS_FIELD: layers, or encoder_layers. A row's own number for a missing key of a size comes before these keys, one
 * for KV_HEADS or another key behind them. */
#define LLAMA_KEYS(LAYERS_FIELD) \
    LLAMA_KEYS_BUT_FFN(LAYERS_FIELD),                                         \
    REQUIRED  ("intermediate_size",       ffn,             FFN)
#define LLAMA_KEYS_BUT_FFN(LAYERS_FIELD) \
    REQUIRED  ("vocab_size",              vocab,           VOCAB),            \
    REQUIRED  ("hidden_size",             hidden,          HIDDEN),           \
    REQUIRED  ("num_hidden_layers",       LAYERS_FIELD,    LAYERS),           \
    REQUIRED  ("num_attention_heads",     heads,           HEADS),            \
    INTEGER   ("num_key_value_heads",     kv_heads,        1, HEADS,    0),   \
    INTEGER   ("head_dim",                head_dim,        1, HEAD_DIM, 0),   \
    INTEGER   ("max_position_embeddings", context,         1, CONTEXT,  2048), \
    EPSILON   ("rms_norm_eps",            1e-6),                              \
    ACTIVATION("hidden_act",              SILU),                              \
    SWITCH    ("tie_word_embeddings",     tied,            0),                \
    SWITCH    ("attention_bias",          attention_bias,  0),                \
    SWITCH    ("mlp_bias",                mlp_bias,        0)

/* The attention of each layer, its norms, the embedding and the last norm: all but the FFN. */
#define LLAMA_ATTENTION(M) \
    TABLE    (M "embed_tokens.weight",                             TOKENS,     VOCAB,  HIDDEN), \
    LLAMA_LAYERS(M)
#define LLAMA_LAYERS(M) \
    VECTOR   (M "layers.%d.input_layernorm.weight",                ATTN_NORM,  HIDDEN),         \
    MATRIX   (M "layers.%d.self_attn.q_proj.weight",               QKV,        Q,      HIDDEN), \
    MATRIX   (M "layers.%d.self_attn.k_proj.weight",               QKV,        KV,     HIDDEN), \
    MATRIX   (M "layers.%d.self_attn.v_proj.weight",               QKV,        KV,     HIDDEN), \
    MATRIX   (M "layers.%d.self_attn.o_proj.weight",               O,          HIDDEN, Q),      \
    VECTOR   (M "layers.%d.post_attention_layernorm.weight",       FFN_NORM,   HIDDEN),         \
    VECTOR   (M "norm.weight",                                     FINAL_NORM, HIDDEN)
#define LLAMA_BODY(M) LLAMA_ATTENTION(M), LLAMA_FFN_TENSORS(M)
#define LLAMA_FFN_TENSORS(M) \
    MATRIX   (M "layers.%d.mlp.gate_proj.weight",                  UP,         FFN,    HIDDEN), \
    MATRIX   (M "layers.%d.mlp.up_proj.weight",                    UP,         FFN,    HIDDEN), \
    MATRIX   (M "layers.%d.mlp.down_proj.weight",                  DOWN,       HIDDEN, FFN)
/* The same where some layers have a mixture: the FFNs of the others, and experts with tensors of their own. AT: what
 * the names in the layer begin with. */
#define LLAMA_DENSE_TENSORS(AT) \
    MATRIX_IF(DENSE, AT "gate_proj.weight",                        UP,         FFN,    HIDDEN), \
    MATRIX_IF(DENSE, AT "up_proj.weight",                          UP,         FFN,    HIDDEN), \
    MATRIX_IF(DENSE, AT "down_proj.weight",                        DOWN,       HIDDEN, FFN)
#define LLAMA_EXPERT_TENSORS(AT) \
    EXPERT_MATRIX_IF(EXPERTS, AT "experts.%d.gate_proj.weight",    EXPERT_UP,  EXPERT_FFN, HIDDEN), \
    EXPERT_MATRIX_IF(EXPERTS, AT "experts.%d.up_proj.weight",      EXPERT_UP,  EXPERT_FFN, HIDDEN), \
    EXPERT_MATRIX_IF(EXPERTS, AT "experts.%d.down_proj.weight",    EXPERT_DOWN, HIDDEN, EXPERT_FFN)
#define LLAMA_HEAD(M, name) \
    MATRIX_IF(UNTIED, name,                                        HEAD,       VOCAB,  HIDDEN), \
    TIED_HEAD(M "embed_tokens.weight")
#define LLAMA_QKV_BIASES(M) \
    VECTOR_IF(ATTN_BIAS, M "layers.%d.self_attn.q_proj.bias",      QKV_B,      Q),              \
    VECTOR_IF(ATTN_BIAS, M "layers.%d.self_attn.k_proj.bias",      QKV_B,      KV),             \
    VECTOR_IF(ATTN_BIAS, M "layers.%d.self_attn.v_proj.bias",      QKV_B,      KV)
#define LLAMA_ATTENTION_BIASES(M) \
    LLAMA_QKV_BIASES(M),                                                                        \
    VECTOR_IF(ATTN_BIAS, M "layers.%d.self_attn.o_proj.bias",      O_B,        HIDDEN)
#define LLAMA_MLP_BIASES(M) \
    VECTOR_IF(MLP_BIAS, M "layers.%d.mlp.gate_proj.bias",          UP_B,       FFN),            \
    VECTOR_IF(MLP_BIAS, M "layers.%d.mlp.up_proj.bias",            UP_B,       FFN),            \
    VECTOR_IF(MLP_BIAS, M "layers.%d.mlp.down_proj.bias",          DOWN_B,     HIDDEN)
/* Qwen2 has biases of q, k and v, whatever its configuration says. */
#define LLAMA_QWEN2_BIASES(M) \
    VECTOR   (M "layers.%d.self_attn.q_proj.bias",                 QKV_B,      Q),              \
    VECTOR   (M "layers.%d.self_attn.k_proj.bias",                 QKV_B,      KV),             \
    VECTOR   (M "layers.%d.self_attn.v_proj.bias",                 QKV_B,      KV)
#define LLAMA_HEAD_NORMS(M) \
    VECTOR   (M "layers.%d.self_attn.q_norm.weight",               Q_NORM,     HEAD),           \
    VECTOR   (M "layers.%d.self_attn.k_norm.weight",               K_NORM,     HEAD)

#define LLAMA_QKV \
    NORM        (X, N, ATTN_NORM), \
    ROUND_INPUTS(N),               \
    LINEAR      (N, QKV, QKV, 0)
#define LLAMA_ATTEND \
    KV_APPEND,                      \
    ATTEND,                         \
    ROUND_INPUTS(A),                \
    LINEAR      (A, X, O,    ADD | RESIDUAL)
#define LLAMA_FFN \
    NORM        (X, N, FFN_NORM),  \
    ROUND_INPUTS(N),               \
    LINEAR_GATED(N, F, UP,   0),   \
    ROUND_INPUTS(F),               \
    LINEAR      (F, X, DOWN, ADD | RESIDUAL)
/* A mixture in place of the FFN, in the layers that have one. */
#define LLAMA_EXPERTS \
    LINEAR      (N, ROUTER, ROUTER, IF(EXPERTS)), \
    ROUTE       (CORRECTION),                     \
    EXPERTS     (N, X, ADD)
/* clang-format on */

/* finish of Llama, which reads no window, of Mistral, which does, and of Qwen, which does if it is told to: from layer
 * window_from on, or 28 if that is 0. */
PROA_MUST_CHECK proa_status proa_llama_finish(proa_config *c, const proa_json *json, proa_arena *arena,
                                              proa_err *err);
PROA_MUST_CHECK proa_status proa_mistral_finish(proa_config *c, const proa_json *json, proa_arena *arena,
                                                proa_err *err);
PROA_MUST_CHECK proa_status proa_qwen_finish(proa_config *c, const proa_json *json, proa_arena *arena,
                                             proa_err *err);
/* Windows of three layers of four, the first and every fourth after it have none; or layer_types. */
PROA_MUST_CHECK proa_status proa_llama_read_three_windows(proa_config *c, const proa_json *json,
                                                          int64_t window, proa_arena *arena, proa_err *err);
/* Products that are multiplied by residual_scale have no biases. */
PROA_MUST_CHECK proa_status proa_llama_check_residual(const proa_config *c, proa_err *err);

#endif
