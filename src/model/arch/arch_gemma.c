/* SPDX-License-Identifier: Apache-2.0
 * arch_gemma.c - Gemma 2: RMS norms of 1 + w before and after attention and FFN, gated tanh-GELU.
 * Embeddings are multiplied by sqrt(hidden), scores and logits are soft-capped, every second layer has a window.
 * Facts: transformers' modeling_gemma2.py; Gemma Team 2024. */
#include "model/arch/arch_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    4),
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 256),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  8192),
    EPSILON   ("rms_norm_eps",            1e-6),
    ACTIVATION("hidden_activation",       GELU_TANH),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    SWITCH    ("attention_bias",          attention_bias, 0),
    END_KEYS};

static const proa_name tensors[] = {
    TABLE    ("model.embed_tokens.weight",               TOKENS,        VOCAB,  HIDDEN),
    VECTOR_1 (LAYER "input_layernorm.weight",            ATTN_NORM,     HIDDEN),
    MATRIX   (LAYER "self_attn.q_proj.weight",           QKV,           Q,      HIDDEN),
    MATRIX   (LAYER "self_attn.k_proj.weight",           QKV,           KV,     HIDDEN),
    MATRIX   (LAYER "self_attn.v_proj.weight",           QKV,           KV,     HIDDEN),
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.q_proj.bias",  QKV_B,         Q),
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.k_proj.bias",  QKV_B,         KV),
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.v_proj.bias",  QKV_B,         KV),
    MATRIX   (LAYER "self_attn.o_proj.weight",           O,             HIDDEN, Q),
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.o_proj.bias",  O_B,           HIDDEN),
    VECTOR_1 (LAYER "post_attention_layernorm.weight",   ATTN_OUT_NORM, HIDDEN),
    VECTOR_1 (LAYER "pre_feedforward_layernorm.weight",  FFN_NORM,      HIDDEN),
    MATRIX   (LAYER "mlp.gate_proj.weight",              UP,            FFN,    HIDDEN),
    MATRIX   (LAYER "mlp.up_proj.weight",                UP,            FFN,    HIDDEN),
    MATRIX   (LAYER "mlp.down_proj.weight",              DOWN,          HIDDEN, FFN),
    VECTOR_1 (LAYER "post_feedforward_layernorm.weight", FFN_OUT_NORM,  HIDDEN),
    VECTOR_1 ("model.norm.weight",                       FINAL_NORM,    HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                  HEAD,          VOCAB,  HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED_TO(X, TOKENS, SCALED), ROPE_TABLE, END};
static const proa_step layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR      (N, QKV, QKV,  0),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, D,   O,    0),
    NORM_ADD    (D, X,   ATTN_OUT_NORM),
    NORM        (X, N,   FFN_NORM),
    LINEAR_GATED(N, F,   UP,   0),
    LINEAR      (F, D,   DOWN, 0),
    NORM_ADD    (D, X,   FFN_OUT_NORM),
    END};
static const proa_step head[] = {LM_HEAD(CAPPED)};
/* clang-format on */

/* A cap that is null is off; one that is not named has its default. */
static proa_status read_cap(double *cap, const proa_json *json, const char *key, proa_err *err)
{
    for (proa_json_iter it = proa_json_begin(json); proa_json_next(&it);)
        if (proa_str_is(it.key, key) && proa_json_kind(it.value) == PROA_JSON_NULL) *cap = 0;
    return proa_json_get_double(cap, json, key, 1e-3, 1e6, err);
}

/* Files from before layer_types: even layers have the window. */
static proa_status read_windows(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    for (int64_t i = 0; c->window_used && !proa_json_get(json, "layer_types") && i < c->layers; i++)
        c->window_layers[i] = i % 2 == 0;
    return PROA_OK;
}

static proa_status finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double scalar = 256;
    c->window = 4096;
    c->attention_cap = 50, c->logit_cap = 30;
    c->gated = true;
    c->rotary_dim = c->head_dim;
    c->embed_scale = sqrt((double)c->hidden);
    if (proa_json_bool(proa_json_get(json, "use_bidirectional_attention")))
        return PROA_FAIL(err, UNSUPPORTED, "'use_bidirectional_attention' true is not supported");
    PROA_TRY(proa_json_get_double(&scalar, json, "query_pre_attn_scalar", 1e-3, 1e6, err));
    c->attention_scale = 1 / sqrt(scalar);
    PROA_TRY(read_cap(&c->attention_cap, json, "attn_logit_softcapping", err));
    PROA_TRY(read_cap(&c->logit_cap, json, "final_logit_softcapping", err));
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    return read_windows(c, json, arena, err);
}

const proa_arch proa_arch_gemma2 = {.name = "gemma2",
                                    .model_type = "gemma2",
                                    .hf = STRINGS("Gemma2ForCausalLM"),
                                    DECODER(RMS),
                                    .keys = keys,
                                    .names = tensors,
                                    .ignored = ignored,
                                    .stacks = {CAUSAL(embed, layer)},
                                    .head = head,
                                    .finish = finish};
