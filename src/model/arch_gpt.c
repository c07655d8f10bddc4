/* SPDX-License-Identifier: Apache-2.0
 * arch_gpt.c - GPT-2 and GPT-J: LayerNorm with bias, plain FFN. GPT-2 has learned positions and Conv1D weights
 * ([in, out]); GPT-J has interleaved rotary positions on part of the head, attention and FFN side by side on one
 * norm. Facts: transformers' modeling_gpt2.py and modeling_gptj.py. */
#include "model/arch.h"

static const proa_key gpt2_keys[] = {PROA_KEY_REQUIRED("vocab_size", vocab, 1, PROA_VOCAB_MAX),
                                     PROA_KEY_REQUIRED("n_embd", hidden, 1, PROA_HIDDEN_MAX),
                                     PROA_KEY_REQUIRED("n_layer", layers, 1, PROA_LAYERS_MAX),
                                     PROA_KEY_REQUIRED("n_head", heads, 1, PROA_HEADS_MAX),
                                     PROA_KEY_INTEGER("n_inner", ffn, 1, PROA_FFN_MAX, 0),
                                     PROA_KEY_INTEGER("n_positions", context, 1, PROA_CONTEXT_MAX, 1024),
                                     PROA_KEY_NUMBER("layer_norm_epsilon", norm_eps, 0, 1, 1e-5),
                                     PROA_KEY_ACTIVATION("activation_function", PROA_ACT_GELU_TANH),
                                     PROA_KEY_SWITCH("tie_word_embeddings", tied, 1),
                                     {0}};
static const proa_key gptj_keys[] = {PROA_KEY_REQUIRED("vocab_size", vocab, 1, PROA_VOCAB_MAX),
                                     PROA_KEY_REQUIRED("n_embd", hidden, 1, PROA_HIDDEN_MAX),
                                     PROA_KEY_REQUIRED("n_layer", layers, 1, PROA_LAYERS_MAX),
                                     PROA_KEY_REQUIRED("n_head", heads, 1, PROA_HEADS_MAX),
                                     PROA_KEY_INTEGER("n_inner", ffn, 1, PROA_FFN_MAX, 0),
                                     PROA_KEY_INTEGER("n_positions", context, 1, PROA_CONTEXT_MAX, 2048),
                                     PROA_KEY_INTEGER("rotary_dim", rotary_dim, 2, PROA_HEAD_DIM_MAX, 64),
                                     PROA_KEY_NUMBER("layer_norm_epsilon", norm_eps, 0, 1, 1e-5),
                                     PROA_KEY_ACTIVATION("activation_function", PROA_ACT_GELU_TANH),
                                     PROA_KEY_SWITCH("tie_word_embeddings", tied, 0),
                                     {0}};

#define D PROA_STACK_DECODER
/* clang-format off: tables */
static const proa_name gpt2_names[] = {
    {"transformer.wte.weight", D, PROA_SLOT_TOKENS, PROA_ROLE_TABLE, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, 0},
    {"transformer.wpe.weight", D, PROA_SLOT_POSITIONS, PROA_ROLE_TABLE, PROA_DIM_CONTEXT, PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.ln_1.weight", D, PROA_SLOT_ATTN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.ln_1.bias", D, PROA_SLOT_ATTN_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.attn.c_attn.weight", D, PROA_SLOT_QKV, PROA_ROLE_TRANSPOSED, PROA_DIM_QKV,
     PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.attn.c_attn.bias", D, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_QKV, 0, 0},
    {"transformer.h.%d.attn.c_proj.weight", D, PROA_SLOT_O, PROA_ROLE_TRANSPOSED, PROA_DIM_HIDDEN, PROA_DIM_Q, 0},
    {"transformer.h.%d.attn.c_proj.bias", D, PROA_SLOT_O_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.ln_2.weight", D, PROA_SLOT_FFN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.ln_2.bias", D, PROA_SLOT_FFN_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.mlp.c_fc.weight", D, PROA_SLOT_UP, PROA_ROLE_TRANSPOSED, PROA_DIM_FFN, PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.mlp.c_fc.bias", D, PROA_SLOT_UP_B, PROA_ROLE_VECTOR, PROA_DIM_FFN, 0, 0},
    {"transformer.h.%d.mlp.c_proj.weight", D, PROA_SLOT_DOWN, PROA_ROLE_TRANSPOSED, PROA_DIM_HIDDEN,
     PROA_DIM_FFN, 0},
    {"transformer.h.%d.mlp.c_proj.bias", D, PROA_SLOT_DOWN_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.ln_f.weight", D, PROA_SLOT_FINAL_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.ln_f.bias", D, PROA_SLOT_FINAL_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.wte.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN,
     PROA_IF_TIED | PROA_SHARED},
    {"lm_head.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, PROA_IF_UNTIED},
    {0}};
static const proa_name gptj_names[] = {
    {"transformer.wte.weight", D, PROA_SLOT_TOKENS, PROA_ROLE_TABLE, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.ln_1.weight", D, PROA_SLOT_ATTN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.ln_1.bias", D, PROA_SLOT_ATTN_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.attn.q_proj.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_Q, PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.attn.k_proj.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_KV, PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.attn.v_proj.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_KV, PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.attn.out_proj.weight", D, PROA_SLOT_O, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN, PROA_DIM_Q, 0},
    {"transformer.h.%d.mlp.fc_in.weight", D, PROA_SLOT_UP, PROA_ROLE_MATRIX, PROA_DIM_FFN, PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.mlp.fc_in.bias", D, PROA_SLOT_UP_B, PROA_ROLE_VECTOR, PROA_DIM_FFN, 0, 0},
    {"transformer.h.%d.mlp.fc_out.weight", D, PROA_SLOT_DOWN, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN, PROA_DIM_FFN, 0},
    {"transformer.h.%d.mlp.fc_out.bias", D, PROA_SLOT_DOWN_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.ln_f.weight", D, PROA_SLOT_FINAL_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.ln_f.bias", D, PROA_SLOT_FINAL_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"lm_head.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, PROA_IF_UNTIED},
    {"transformer.wte.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN,
     PROA_IF_TIED | PROA_SHARED},
    {"lm_head.bias", D, PROA_SLOT_HEAD_B, PROA_ROLE_VECTOR, PROA_DIM_VOCAB, 0, PROA_OPTIONAL},
    {0}};
/* clang-format on */
static const char *const prefixes[] = {"transformer.", NULL};
static const char *const ignored[] = {"attn.bias", "attn.masked_bias", "lm_head.weight", NULL};

static const proa_step gpt2_embed[] = {
    {PROA_STEP_EMBED, .out = PROA_REG_X, .w = PROA_SLOT_TOKENS},
    {PROA_STEP_EMBED, .out = PROA_REG_X, .w = PROA_SLOT_POSITIONS, .flags = PROA_OF_POS | PROA_ADD},
    {PROA_STEP_END}};
static const proa_step gpt2_layer[] = {{PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_ATTN_NORM, 0},
                                       {PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_QKV, PROA_SLOT_QKV, 0},
                                       {PROA_STEP_KV_APPEND, .in = PROA_REG_QKV},
                                       {PROA_STEP_ATTEND, PROA_REG_QKV, PROA_REG_A, 0, 0},
                                       {PROA_STEP_LINEAR, PROA_REG_A, PROA_REG_X, PROA_SLOT_O, PROA_ADD},
                                       {PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_FFN_NORM, 0},
                                       {PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_U, PROA_SLOT_UP, PROA_ACT},
                                       {PROA_STEP_LINEAR, PROA_REG_U, PROA_REG_X, PROA_SLOT_DOWN, PROA_ADD},
                                       {PROA_STEP_END}};
static const proa_step gptj_embed[] = {{PROA_STEP_EMBED, .out = PROA_REG_X, .w = PROA_SLOT_TOKENS},
                                       {PROA_STEP_ROPE_TABLE, .out = PROA_REG_ROPE},
                                       {PROA_STEP_END}};
static const proa_step gptj_layer[] = {
    {PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_ATTN_NORM, 0},
    {PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_U, PROA_SLOT_UP, PROA_ACT | PROA_BESIDE},
    {PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_QKV, PROA_SLOT_QKV, 0},
    {PROA_STEP_ROPE, PROA_REG_QKV, PROA_REG_QKV, 0, PROA_INTERLEAVED},
    {PROA_STEP_KV_APPEND, .in = PROA_REG_QKV},
    {PROA_STEP_ATTEND, PROA_REG_QKV, PROA_REG_A, 0, 0},
    {PROA_STEP_LINEAR, PROA_REG_A, PROA_REG_X, PROA_SLOT_O, PROA_ADD},
    {PROA_STEP_LINEAR, PROA_REG_U, PROA_REG_X, PROA_SLOT_DOWN, PROA_ADD | PROA_JOIN},
    {PROA_STEP_END}};
static const proa_step head[] = {{PROA_STEP_GATHER, PROA_REG_X, PROA_REG_H, 0, 0},
                                 {PROA_STEP_NORM, PROA_REG_H, PROA_REG_HN, PROA_SLOT_FINAL_NORM, 0},
                                 {PROA_STEP_LINEAR, PROA_REG_HN, PROA_REG_OUT, PROA_SLOT_HEAD, 0},
                                 {PROA_STEP_END}};

static proa_status refuse_switch(const proa_json *json, const char *key, bool must_be, proa_err *err)
{
    bool value = must_be;
    PROA_TRY(proa_json_get_bool(&value, json, key, err));
    if (value == must_be) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' %s is not supported", key, value ? "true" : "false");
}

static proa_status finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    if (c->ffn == 0) c->ffn = 4 * c->hidden;
    c->rope_theta = 10000;
    PROA_TRY(refuse_switch(json, "scale_attn_by_inverse_layer_idx", false, err));
    PROA_TRY(refuse_switch(json, "add_cross_attention", false, err));
    return refuse_switch(json, "scale_attn_weights", true, err);
}

#define COMMON                                                                                               \
    .kind = PROA_KIND_DECODER, .norm = PROA_NORM_LAYER, .prefixes = prefixes, .ignored = ignored,            \
    .head = head, .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_VOCAB, .finish = finish

const proa_arch proa_arch_gpt2 = {.name = "gpt2",
                                  .hf = (const char *const[]){"GPT2LMHeadModel", NULL},
                                  .model_type = "gpt2",
                                  COMMON,
                                  .keys = gpt2_keys,
                                  .names = gpt2_names,
                                  .stacks[D] = {gpt2_embed, gpt2_layer, NULL, true}};
const proa_arch proa_arch_gptj = {.name = "gptj",
                                  .hf = (const char *const[]){"GPTJForCausalLM", NULL},
                                  .model_type = "gptj",
                                  COMMON,
                                  .keys = gptj_keys,
                                  .names = gptj_names,
                                  .stacks[D] = {gptj_embed, gptj_layer, NULL, true}};
