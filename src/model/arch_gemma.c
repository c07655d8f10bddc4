/* SPDX-License-Identifier: Apache-2.0
 * arch_gemma.c - Gemma 2: RMS norms of 1 + w before and after attention and FFN, gated tanh-GELU, embeddings times
 * sqrt(hidden), soft caps of scores and logits, every second layer with a window. Facts: transformers'
 * modeling_gemma2.py; Gemma Team 2024. */
#include "model/arch.h"

#include <math.h>

static const proa_key keys[] = {PROA_KEY_REQUIRED("vocab_size", vocab, 1, PROA_VOCAB_MAX),
                                PROA_KEY_REQUIRED("hidden_size", hidden, 1, PROA_HIDDEN_MAX),
                                PROA_KEY_REQUIRED("num_hidden_layers", layers, 1, PROA_LAYERS_MAX),
                                PROA_KEY_REQUIRED("num_attention_heads", heads, 1, PROA_HEADS_MAX),
                                PROA_KEY_REQUIRED("intermediate_size", ffn, 1, PROA_FFN_MAX),
                                PROA_KEY_INTEGER("num_key_value_heads", kv_heads, 1, PROA_HEADS_MAX, 4),
                                PROA_KEY_INTEGER("head_dim", head_dim, 1, PROA_HEAD_DIM_MAX, 256),
                                PROA_KEY_INTEGER("max_position_embeddings", context, 1, PROA_CONTEXT_MAX, 8192),
                                PROA_KEY_NUMBER("rms_norm_eps", norm_eps, 0, 1, 1e-6),
                                PROA_KEY_ACTIVATION("hidden_activation", PROA_ACT_GELU_TANH),
                                PROA_KEY_SWITCH("tie_word_embeddings", tied, 1),
                                PROA_KEY_SWITCH("attention_bias", attention_bias, 0),
                                {0}};

#define D     PROA_STACK_DECODER
#define LAYER "model.layers.%d."
/* clang-format off: a table */
static const proa_name names[] = {
    {"model.embed_tokens.weight", D, PROA_SLOT_TOKENS, PROA_ROLE_TABLE, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, 0},
    {LAYER "input_layernorm.weight", D, PROA_SLOT_ATTN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, PROA_PLUS_ONE},
    {LAYER "self_attn.q_proj.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_Q, PROA_DIM_HIDDEN, 0},
    {LAYER "self_attn.k_proj.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_KV, PROA_DIM_HIDDEN, 0},
    {LAYER "self_attn.v_proj.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_KV, PROA_DIM_HIDDEN, 0},
    {LAYER "self_attn.q_proj.bias", D, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_Q, 0, PROA_IF_ATTN_BIAS},
    {LAYER "self_attn.k_proj.bias", D, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_KV, 0, PROA_IF_ATTN_BIAS},
    {LAYER "self_attn.v_proj.bias", D, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_KV, 0, PROA_IF_ATTN_BIAS},
    {LAYER "self_attn.o_proj.weight", D, PROA_SLOT_O, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN, PROA_DIM_Q, 0},
    {LAYER "self_attn.o_proj.bias", D, PROA_SLOT_O_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, PROA_IF_ATTN_BIAS},
    {LAYER "post_attention_layernorm.weight", D, PROA_SLOT_ATTN_OUT_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN,
     0, PROA_PLUS_ONE},
    {LAYER "pre_feedforward_layernorm.weight", D, PROA_SLOT_FFN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0,
     PROA_PLUS_ONE},
    {LAYER "mlp.gate_proj.weight", D, PROA_SLOT_UP, PROA_ROLE_MATRIX, PROA_DIM_FFN, PROA_DIM_HIDDEN, 0},
    {LAYER "mlp.up_proj.weight", D, PROA_SLOT_UP, PROA_ROLE_MATRIX, PROA_DIM_FFN, PROA_DIM_HIDDEN, 0},
    {LAYER "mlp.down_proj.weight", D, PROA_SLOT_DOWN, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN, PROA_DIM_FFN, 0},
    {LAYER "post_feedforward_layernorm.weight", D, PROA_SLOT_FFN_OUT_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN,
     0, PROA_PLUS_ONE},
    {"model.norm.weight", D, PROA_SLOT_FINAL_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, PROA_PLUS_ONE},
    {"lm_head.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, PROA_IF_UNTIED},
    {"model.embed_tokens.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN,
     PROA_IF_TIED | PROA_SHARED},
    {0}};
/* clang-format on */
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {
    {PROA_STEP_EMBED, .out = PROA_REG_X, .w = PROA_SLOT_TOKENS, .flags = PROA_SCALED},
    {PROA_STEP_ROPE_TABLE, .out = PROA_REG_ROPE},
    {PROA_STEP_END}};
static const proa_step layer[] = {{PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_ATTN_NORM, 0},
                                  {PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_QKV, PROA_SLOT_QKV, 0},
                                  {PROA_STEP_ROPE, PROA_REG_QKV, PROA_REG_QKV, 0, 0},
                                  {PROA_STEP_KV_APPEND, .in = PROA_REG_QKV},
                                  {PROA_STEP_ATTEND, PROA_REG_QKV, PROA_REG_A, 0, 0},
                                  {PROA_STEP_LINEAR, PROA_REG_A, PROA_REG_D, PROA_SLOT_O, 0},
                                  {PROA_STEP_NORM, PROA_REG_D, PROA_REG_X, PROA_SLOT_ATTN_OUT_NORM, PROA_ADD},
                                  {PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_FFN_NORM, 0},
                                  {PROA_STEP_LINEAR_GATED, PROA_REG_N, PROA_REG_F, PROA_SLOT_UP, 0},
                                  {PROA_STEP_LINEAR, PROA_REG_F, PROA_REG_D, PROA_SLOT_DOWN, 0},
                                  {PROA_STEP_NORM, PROA_REG_D, PROA_REG_X, PROA_SLOT_FFN_OUT_NORM, PROA_ADD},
                                  {PROA_STEP_END}};
static const proa_step head[] = {{PROA_STEP_GATHER, PROA_REG_X, PROA_REG_H, 0, 0},
                                 {PROA_STEP_NORM, PROA_REG_H, PROA_REG_HN, PROA_SLOT_FINAL_NORM, 0},
                                 {PROA_STEP_LINEAR, PROA_REG_HN, PROA_REG_OUT, PROA_SLOT_HEAD, PROA_CAPPED},
                                 {PROA_STEP_END}};

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
    PROA_TRY(proa_config_read_rope(c, json, err));
    return read_windows(c, json, arena, err);
}

const proa_arch proa_arch_gemma2 = {.name = "gemma2",
                                    .hf = (const char *const[]){"Gemma2ForCausalLM", NULL},
                                    .model_type = "gemma2",
                                    .kind = PROA_KIND_DECODER,
                                    .norm = PROA_NORM_RMS,
                                    .keys = keys,
                                    .names = names,
                                    .ignored = ignored,
                                    .stacks[D] = {embed, layer, NULL, true},
                                    .head = head,
                                    .head_rows = PROA_ROWS_LAST,
                                    .outputs = PROA_DIM_VOCAB,
                                    .finish = finish};
