/* SPDX-License-Identifier: Apache-2.0
 * arch_gpt.c - GPT-2, GPT-J, BLOOM, MPT: LayerNorm, plain FFN. GPT-2 has learned positions and Conv1D weights
 * ([in, out]); GPT-J has interleaved rotary positions on part of the head, attention and FFN side by side on one
 * norm; BLOOM and MPT have ALiBi, BLOOM with q, k and v head by head, MPT without any bias. Facts: transformers'
 * modeling_{gpt2,gptj,bloom,mpt}.py. */
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
/* Published files have either name of a size. No length is too long for ALiBi: seq_length is what it was trained with. */
static const proa_key bloom_keys[] = {PROA_KEY_REQUIRED("vocab_size", vocab, 1, PROA_VOCAB_MAX),
                                      PROA_KEY_INTEGER("n_embed", hidden, 1, PROA_HIDDEN_MAX, 0),
                                      PROA_KEY_INTEGER("hidden_size", hidden, 1, PROA_HIDDEN_MAX, 0),
                                      PROA_KEY_INTEGER("num_hidden_layers", layers, 1, PROA_LAYERS_MAX, 0),
                                      PROA_KEY_INTEGER("n_layer", layers, 1, PROA_LAYERS_MAX, 0),
                                      PROA_KEY_INTEGER("num_attention_heads", heads, 1, PROA_HEADS_MAX, 0),
                                      PROA_KEY_INTEGER("n_head", heads, 1, PROA_HEADS_MAX, 0),
                                      PROA_KEY_INTEGER("seq_length", context, 1, PROA_CONTEXT_MAX, 2048),
                                      PROA_KEY_NUMBER("layer_norm_epsilon", norm_eps, 0, 1, 1e-5),
                                      PROA_KEY_SWITCH("tie_word_embeddings", tied, 1),
                                      {0}};
static const proa_key mpt_keys[] = {PROA_KEY_REQUIRED("vocab_size", vocab, 1, PROA_VOCAB_MAX),
                                    PROA_KEY_REQUIRED("d_model", hidden, 1, PROA_HIDDEN_MAX),
                                    PROA_KEY_REQUIRED("n_layers", layers, 1, PROA_LAYERS_MAX),
                                    PROA_KEY_REQUIRED("n_heads", heads, 1, PROA_HEADS_MAX),
                                    PROA_KEY_INTEGER("max_seq_len", context, 1, PROA_CONTEXT_MAX, 2048),
                                    PROA_KEY_NUMBER("layer_norm_epsilon", norm_eps, 0, 1, 1e-5),
                                    PROA_KEY_SWITCH("tie_word_embeddings", tied, 1),
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
static const proa_name bloom_names[] = {
    {"transformer.word_embeddings.weight", D, PROA_SLOT_TOKENS, PROA_ROLE_TABLE, PROA_DIM_VOCAB,
     PROA_DIM_HIDDEN, 0},
    {"transformer.word_embeddings_layernorm.weight", D, PROA_SLOT_EMBED_NORM, PROA_ROLE_VECTOR,
     PROA_DIM_HIDDEN, 0, 0},
    {"transformer.word_embeddings_layernorm.bias", D, PROA_SLOT_EMBED_NORM_B, PROA_ROLE_VECTOR,
     PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.input_layernorm.weight", D, PROA_SLOT_ATTN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.input_layernorm.bias", D, PROA_SLOT_ATTN_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.self_attention.query_key_value.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX,
     PROA_DIM_QKV, PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.self_attention.query_key_value.bias", D, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR,
     PROA_DIM_QKV, 0, 0},
    {"transformer.h.%d.self_attention.dense.weight", D, PROA_SLOT_O, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN,
     PROA_DIM_Q, 0},
    {"transformer.h.%d.self_attention.dense.bias", D, PROA_SLOT_O_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.post_attention_layernorm.weight", D, PROA_SLOT_FFN_NORM, PROA_ROLE_VECTOR,
     PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.post_attention_layernorm.bias", D, PROA_SLOT_FFN_NORM_B, PROA_ROLE_VECTOR,
     PROA_DIM_HIDDEN, 0, 0},
    {"transformer.h.%d.mlp.dense_h_to_4h.weight", D, PROA_SLOT_UP, PROA_ROLE_MATRIX, PROA_DIM_FFN,
     PROA_DIM_HIDDEN, 0},
    {"transformer.h.%d.mlp.dense_h_to_4h.bias", D, PROA_SLOT_UP_B, PROA_ROLE_VECTOR, PROA_DIM_FFN, 0, 0},
    {"transformer.h.%d.mlp.dense_4h_to_h.weight", D, PROA_SLOT_DOWN, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN,
     PROA_DIM_FFN, 0},
    {"transformer.h.%d.mlp.dense_4h_to_h.bias", D, PROA_SLOT_DOWN_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.ln_f.weight", D, PROA_SLOT_FINAL_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.ln_f.bias", D, PROA_SLOT_FINAL_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"lm_head.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, PROA_IF_UNTIED},
    {"transformer.word_embeddings.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB,
     PROA_DIM_HIDDEN, PROA_IF_TIED | PROA_SHARED},
    {0}};
static const proa_name mpt_names[] = {
    {"transformer.wte.weight", D, PROA_SLOT_TOKENS, PROA_ROLE_TABLE, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, 0},
    {"transformer.blocks.%d.norm_1.weight", D, PROA_SLOT_ATTN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.blocks.%d.attn.Wqkv.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_QKV,
     PROA_DIM_HIDDEN, 0},
    {"transformer.blocks.%d.attn.out_proj.weight", D, PROA_SLOT_O, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN,
     PROA_DIM_Q, 0},
    {"transformer.blocks.%d.norm_2.weight", D, PROA_SLOT_FFN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"transformer.blocks.%d.ffn.up_proj.weight", D, PROA_SLOT_UP, PROA_ROLE_MATRIX, PROA_DIM_FFN,
     PROA_DIM_HIDDEN, 0},
    {"transformer.blocks.%d.ffn.down_proj.weight", D, PROA_SLOT_DOWN, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN,
     PROA_DIM_FFN, 0},
    {"transformer.norm_f.weight", D, PROA_SLOT_FINAL_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"lm_head.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, PROA_IF_UNTIED},
    {"transformer.wte.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN,
     PROA_IF_TIED | PROA_SHARED},
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
static const proa_step bloom_embed[] = {{PROA_STEP_EMBED, .out = PROA_REG_X, .w = PROA_SLOT_TOKENS},
                                        {PROA_STEP_NORM, PROA_REG_X, PROA_REG_X, PROA_SLOT_EMBED_NORM, 0},
                                        {PROA_STEP_END}};
static const proa_step mpt_embed[] = {{PROA_STEP_EMBED, .out = PROA_REG_X, .w = PROA_SLOT_TOKENS},
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

static proa_status finish_bloom(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    if (!c->hidden || !c->layers || !c->heads)
        return PROA_FAIL(err, INVALID, "'%s' is missing",
                         !c->hidden   ? "hidden_size"
                         : !c->layers ? "n_layer"
                                      : "n_head");
    c->ffn = 4 * c->hidden;
    c->act = PROA_ACT_GELU_TANH;
    c->alibi_max = 8;
    c->qkv_by_head = true;
    return refuse_switch(json, "apply_residual_connection_post_layernorm", false, err);
}

/* Whether a key is there with something else than null, false or nothing at all in it. */
static proa_status refuse_set(const proa_json *json, const char *key, proa_err *err)
{
    const proa_json *value = proa_json_get(json, key);
    if (!value || (proa_json_kind(value) == PROA_JSON_BOOL && !proa_json_bool(value))) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' is set: not supported", key);
}

static proa_status finish_mpt(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const char *const none[] = {"clip_qkv", "qk_ln", "prefix_lm"};
    const proa_json *attention = proa_json_get(json, "attn_config");
    proa_str type = {"multihead_attention", 19};
    int64_t ratio = 4;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_int(&ratio, json, "expansion_ratio", 1, 64, err));
    c->ffn = ratio * c->hidden;
    c->act = PROA_ACT_GELU;
    c->alibi_max = 8;
    PROA_TRY(refuse_switch(json, "no_bias", true, err));
    PROA_TRY(refuse_set(json, "logit_scale", err));
    PROA_TRY(refuse_switch(attention, "alibi", true, err));
    for (size_t i = 0; i < PROA_COUNT(none); i++) PROA_TRY(refuse_set(attention, none[i], err));
    PROA_TRY(proa_json_get_str(&type, attention, "attn_type", err));
    if (!proa_str_is(type, "multihead_attention"))
        return PROA_FAIL(err, UNSUPPORTED, "'attn_type' '%.*s' is not supported", (int)type.len, type.ptr);
    PROA_TRY(proa_json_get_double(&c->alibi_max, attention, "alibi_bias_max", 1e-3, 1e3, err));
    return proa_json_get_double(&c->attention_scale, attention, "softmax_scale", 1e-6, 1e6, err);
}

#define SHAPE                                                                                                \
    .kind = PROA_KIND_DECODER, .norm = PROA_NORM_LAYER, .prefixes = prefixes, .ignored = ignored,            \
    .head = head, .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_VOCAB
#define COMMON SHAPE, .finish = finish

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
const proa_arch proa_arch_bloom = {.name = "bloom",
                                   .hf = (const char *const[]){"BloomForCausalLM", NULL},
                                   .model_type = "bloom",
                                   SHAPE,
                                   .keys = bloom_keys,
                                   .names = bloom_names,
                                   .stacks[D] = {bloom_embed, gpt2_layer, NULL, true},
                                   .finish = finish_bloom};
const proa_arch proa_arch_mpt = {.name = "mpt",
                                 .hf = (const char *const[]){"MptForCausalLM", "MPTForCausalLM", NULL},
                                 .model_type = "mpt",
                                 SHAPE,
                                 .keys = mpt_keys,
                                 .names = mpt_names,
                                 .stacks[D] = {mpt_embed, gpt2_layer, NULL, true},
                                 .finish = finish_mpt};
