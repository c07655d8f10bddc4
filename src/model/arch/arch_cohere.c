/* SPDX-License-Identifier: Apache-2.0
 * arch_cohere.c - Cohere's Command R: LayerNorm without bias, attention and gated FFN in parallel on one normed copy.
 * Pairs of neighbours are rotated, the head is the embedding, its logits are multiplied by logit_scale. Command R+
 * norms each head of q and k with weights of its own. Command R7B and Command A (Cohere 2) have a window in three of
 * four layers; the others know no positions. Facts: transformers' modeling_{cohere,cohere2}.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define BLOCK "model.layers.%d."

/* clang-format off */
/* max_position_embeddings is 8,192 in published files whose model_max_length is what the model takes. */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    0),
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 0),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  8192),
    INTEGER   ("model_max_length",        context,        1, CONTEXT,  8192),
    EPSILON   ("layer_norm_eps",          1e-5),
    NUMBER    ("logit_scale",             logit_scale,    1e-6, 1e6,   0.0625),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("use_qk_norm",             qk_norm,        0),
    SWITCH    ("attention_bias",          attention_bias, 0),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};

static const proa_name tensors[] = {
    TABLE    ("model.embed_tokens.weight",             TOKENS,     VOCAB,  HIDDEN),
    VECTOR   (BLOCK "input_layernorm.weight",          ATTN_NORM,  HIDDEN),
    MATRIX   (BLOCK "self_attn.q_proj.weight",         QKV,        Q,      HIDDEN),
    MATRIX   (BLOCK "self_attn.k_proj.weight",         QKV,        KV,     HIDDEN),
    MATRIX   (BLOCK "self_attn.v_proj.weight",         QKV,        KV,     HIDDEN),
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.q_proj.bias", QKV_B,     Q),
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.k_proj.bias", QKV_B,     KV),
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.v_proj.bias", QKV_B,     KV),
    VECTOR_IF(QK_NORM, BLOCK "self_attn.q_norm.weight", Q_NORM,    Q),
    VECTOR_IF(QK_NORM, BLOCK "self_attn.k_norm.weight", K_NORM,    KV),
    MATRIX   (BLOCK "self_attn.o_proj.weight",         O,          HIDDEN, Q),
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.o_proj.bias", O_B,       HIDDEN),
    MATRIX   (BLOCK "mlp.gate_proj.weight",            UP,         FFN,    HIDDEN),
    MATRIX   (BLOCK "mlp.up_proj.weight",              UP,         FFN,    HIDDEN),
    MATRIX   (BLOCK "mlp.down_proj.weight",            DOWN,       HIDDEN, FFN),
    VECTOR   ("model.norm.weight",                     FINAL_NORM, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                HEAD,       VOCAB,  HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR_GATED(N, F,   UP,   FORK),
    LINEAR      (N, QKV, QKV,  0),
    Q_NORM_IF   (QK_NORM, Q_NORM),
    K_NORM_IF   (QK_NORM, K_NORM),
    ROTATE_PAIRS,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X,   O,    ADD),
    LINEAR      (F, X,   DOWN, ADD | JOIN),
    END};
static const proa_step head[] = {LM_HEAD(SCALED)};
/* clang-format on */

static proa_status read_rotary(proa_config *c, const proa_json *json, double theta, proa_arena *arena,
                               proa_err *err)
{
    c->gated = true;
    c->rope.theta = theta;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_cohere(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    return read_rotary(c, json, 5e5, arena, err);
}

/* Only the layers with a window rotate. */
static proa_status finish_cohere2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->window = 4096;
    c->window_pattern = 4;
    PROA_TRY(read_rotary(c, json, 1e4, arena, err));
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    c->rotated_layers = c->window_layers;
    return PROA_OK;
}

#define ROW(type, class, finisher)                                                                               \
    {                                                                                                            \
        .name = type, .model_type = type, .hf = STRINGS(class), DECODER(LAYER), .keys = keys,                    \
        .names = tensors, .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finisher \
    }

const proa_arch proa_arch_cohere = ROW("cohere", "CohereForCausalLM", finish_cohere);
const proa_arch proa_arch_cohere2 = ROW("cohere2", "Cohere2ForCausalLM", finish_cohere2);
