/* SPDX-License-Identifier: Apache-2.0
 * arch_t5.c - T5 v1.0 and v1.1 (FLAN, mT5): encoder and decoder with RMS norms, relative position buckets held by
 * the first layer for all, no 1/sqrt(d). v1.1 gates its FFN and unties its head; v1.0 scales the head's input by
 * d^-0.5. Both are one row: the configuration says which. Facts: transformers' modeling_t5.py. */
#include "model/arch.h"

#include <math.h>

static const proa_key keys[] = {
    PROA_KEY_REQUIRED("vocab_size", vocab, 1, PROA_VOCAB_MAX),
    PROA_KEY_REQUIRED("d_model", hidden, 1, PROA_HIDDEN_MAX),
    PROA_KEY_REQUIRED("d_kv", head_dim, 1, PROA_HEAD_DIM_MAX),
    PROA_KEY_REQUIRED("d_ff", ffn, 1, PROA_FFN_MAX),
    PROA_KEY_REQUIRED("num_layers", encoder_layers, 1, PROA_LAYERS_MAX),
    PROA_KEY_INTEGER("num_decoder_layers", layers, 1, PROA_LAYERS_MAX, 0),
    PROA_KEY_REQUIRED("num_heads", heads, 1, PROA_HEADS_MAX),
    PROA_KEY_INTEGER("n_positions", context, 1, PROA_CONTEXT_MAX, 0),
    PROA_KEY_INTEGER("relative_attention_num_buckets", rel_buckets, 4, PROA_BUCKETS_MAX, 32),
    PROA_KEY_INTEGER("relative_attention_max_distance", rel_distance, 2, PROA_CONTEXT_MAX, 128),
    PROA_KEY_NUMBER("layer_norm_epsilon", norm_eps, 0, 1, 1e-6),
    PROA_KEY_SWITCH("tie_word_embeddings", tied, 1),
    {0}};

#define D PROA_STACK_DECODER
#define E PROA_STACK_ENCODER
/* clang-format off: a table */
#define SELF(stack, block)                                                                                   \
    {block ".%d.layer.0.layer_norm.weight",                                                                  \
     stack,                                                                                                  \
     PROA_SLOT_ATTN_NORM,                                                                                    \
     PROA_ROLE_VECTOR,                                                                                       \
     PROA_DIM_HIDDEN,                                                                                        \
     0,                                                                                                      \
     0},                                                                                                     \
        {block ".%d.layer.0.SelfAttention.q.weight",                                                         \
         stack,                                                                                              \
         PROA_SLOT_QKV,                                                                                      \
         PROA_ROLE_MATRIX,                                                                                   \
         PROA_DIM_Q,                                                                                         \
         PROA_DIM_HIDDEN,                                                                                    \
         0},                                                                                                 \
        {block ".%d.layer.0.SelfAttention.k.weight",                                                         \
         stack,                                                                                              \
         PROA_SLOT_QKV,                                                                                      \
         PROA_ROLE_MATRIX,                                                                                   \
         PROA_DIM_KV,                                                                                        \
         PROA_DIM_HIDDEN,                                                                                    \
         0},                                                                                                 \
        {block ".%d.layer.0.SelfAttention.v.weight",                                                         \
         stack,                                                                                              \
         PROA_SLOT_QKV,                                                                                      \
         PROA_ROLE_MATRIX,                                                                                   \
         PROA_DIM_KV,                                                                                        \
         PROA_DIM_HIDDEN,                                                                                    \
         0},                                                                                                 \
        {block ".%d.layer.0.SelfAttention.o.weight",                                                         \
         stack,                                                                                              \
         PROA_SLOT_O,                                                                                        \
         PROA_ROLE_MATRIX,                                                                                   \
         PROA_DIM_HIDDEN,                                                                                    \
         PROA_DIM_Q,                                                                                         \
         0},                                                                                                 \
    {                                                                                                        \
        block ".0.layer.0.SelfAttention.relative_attention_bias.weight", stack, PROA_SLOT_REL_BIAS,          \
            PROA_ROLE_F32, PROA_DIM_BUCKETS, PROA_DIM_HEADS, 0                                               \
    }
#define FFN(stack, layer)                                                                                    \
    {layer ".layer_norm.weight", stack, PROA_SLOT_FFN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},        \
        {layer ".DenseReluDense.wi.weight",                                                                  \
         stack,                                                                                              \
         PROA_SLOT_UP,                                                                                       \
         PROA_ROLE_MATRIX,                                                                                   \
         PROA_DIM_FFN,                                                                                       \
         PROA_DIM_HIDDEN,                                                                                    \
         PROA_IF_PLAIN},                                                                                     \
        {layer ".DenseReluDense.wi_0.weight",                                                                \
         stack,                                                                                              \
         PROA_SLOT_UP,                                                                                       \
         PROA_ROLE_MATRIX,                                                                                   \
         PROA_DIM_FFN,                                                                                       \
         PROA_DIM_HIDDEN,                                                                                    \
         PROA_IF_GATED},                                                                                     \
        {layer ".DenseReluDense.wi_1.weight",                                                                \
         stack,                                                                                              \
         PROA_SLOT_UP,                                                                                       \
         PROA_ROLE_MATRIX,                                                                                   \
         PROA_DIM_FFN,                                                                                       \
         PROA_DIM_HIDDEN,                                                                                    \
         PROA_IF_GATED},                                                                                     \
    {                                                                                                        \
        layer ".DenseReluDense.wo.weight", stack, PROA_SLOT_DOWN, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN,         \
            PROA_DIM_FFN, 0                                                                                  \
    }
static const proa_name names[] = {
    {"shared.weight", E, PROA_SLOT_TOKENS, PROA_ROLE_TABLE, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, 0},
    {"shared.weight", D, PROA_SLOT_TOKENS, PROA_ROLE_TABLE, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, PROA_SHARED},
    SELF(E, "encoder.block"),
    FFN(E, "encoder.block.%d.layer.1"),
    {"encoder.final_layer_norm.weight", E, PROA_SLOT_FINAL_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    SELF(D, "decoder.block"),
    {"decoder.block.%d.layer.1.layer_norm.weight", D, PROA_SLOT_CROSS_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN,
     0, 0},
    {"decoder.block.%d.layer.1.EncDecAttention.q.weight", D, PROA_SLOT_CROSS_Q, PROA_ROLE_MATRIX, PROA_DIM_Q,
     PROA_DIM_HIDDEN, 0},
    {"decoder.block.%d.layer.1.EncDecAttention.k.weight", D, PROA_SLOT_CROSS_KV, PROA_ROLE_MATRIX,
     PROA_DIM_KV, PROA_DIM_HIDDEN, 0},
    {"decoder.block.%d.layer.1.EncDecAttention.v.weight", D, PROA_SLOT_CROSS_KV, PROA_ROLE_MATRIX,
     PROA_DIM_KV, PROA_DIM_HIDDEN, 0},
    {"decoder.block.%d.layer.1.EncDecAttention.o.weight", D, PROA_SLOT_CROSS_O, PROA_ROLE_MATRIX,
     PROA_DIM_HIDDEN, PROA_DIM_Q, 0},
    FFN(D, "decoder.block.%d.layer.2"),
    {"decoder.final_layer_norm.weight", D, PROA_SLOT_FINAL_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"shared.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN,
     PROA_IF_TIED | PROA_SHARED},
    {"lm_head.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, PROA_IF_UNTIED},
    {0}};
/* clang-format on */
/* Copies of shared.weight, the head of a tied model, and a table that old checkpoints carry but no code reads. */
static const char *const ignored[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                      "lm_head.weight", "EncDecAttention.relative_attention_bias.weight", NULL};

static const proa_step embed[] = {{PROA_STEP_EMBED, .out = PROA_REG_X, .w = PROA_SLOT_TOKENS}, {PROA_STEP_END}};
#define SELF_ATTENTION                                                                                       \
    {PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_ATTN_NORM, 0},                                        \
        {PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_QKV, PROA_SLOT_QKV, 0},                                      \
        {PROA_STEP_KV_APPEND, .in = PROA_REG_QKV}, {PROA_STEP_ATTEND, PROA_REG_QKV, PROA_REG_A, 0, 0},       \
    {                                                                                                        \
        PROA_STEP_LINEAR, PROA_REG_A, PROA_REG_X, PROA_SLOT_O, PROA_ADD                                      \
    }
#define CROSS_ATTENTION                                                                                      \
    {PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_CROSS_NORM, 0},                                       \
        {PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_CQ, PROA_SLOT_CROSS_Q, 0},                                   \
        {PROA_STEP_CROSS_ATTEND, PROA_REG_CQ, PROA_REG_A, 0, 0},                                             \
    {                                                                                                        \
        PROA_STEP_LINEAR, PROA_REG_A, PROA_REG_X, PROA_SLOT_CROSS_O, PROA_ADD                                \
    }
#define EITHER_FFN                                                                                           \
    {PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_FFN_NORM, 0},                                         \
        {PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_U, PROA_SLOT_UP, PROA_PLAIN | PROA_ACT},                     \
        {PROA_STEP_LINEAR, PROA_REG_U, PROA_REG_X, PROA_SLOT_DOWN, PROA_PLAIN | PROA_ADD},                   \
        {PROA_STEP_LINEAR_GATED, PROA_REG_N, PROA_REG_F, PROA_SLOT_UP, PROA_GATED},                          \
        {PROA_STEP_LINEAR, PROA_REG_F, PROA_REG_X, PROA_SLOT_DOWN, PROA_GATED | PROA_ADD},                   \
    {                                                                                                        \
        PROA_STEP_END                                                                                        \
    }

static const proa_step encoder_layer[] = {SELF_ATTENTION, EITHER_FFN};
static const proa_step decoder_layer[] = {SELF_ATTENTION, CROSS_ATTENTION, EITHER_FFN};
static const proa_step encoder_after[] = {{PROA_STEP_NORM, PROA_REG_X, PROA_REG_X, PROA_SLOT_FINAL_NORM, 0},
                                          {PROA_STEP_END}};
static const proa_step cross[] = {{PROA_STEP_LINEAR, PROA_REG_X, PROA_REG_CKV, PROA_SLOT_CROSS_KV, 0},
                                  {PROA_STEP_CROSS_APPEND, .in = PROA_REG_CKV},
                                  {PROA_STEP_END}};
static const proa_step head[] = {{PROA_STEP_GATHER, PROA_REG_X, PROA_REG_H, 0, 0},
                                 {PROA_STEP_NORM, PROA_REG_H, PROA_REG_HN, PROA_SLOT_FINAL_NORM, 0},
                                 {PROA_STEP_LINEAR, PROA_REG_HN, PROA_REG_OUT, PROA_SLOT_HEAD, PROA_SCALED},
                                 {PROA_STEP_END}};

/* feed_forward_proj is "relu", "gated-gelu", "gated-silu": the gated gelu is the tanh form (T5Config). */
static proa_status read_ffn(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str form = {"relu", 4};
    PROA_TRY(proa_json_get_str(&form, json, "feed_forward_proj", err));
    proa_str gated = proa_str_c("gated-");
    c->gated = proa_str_starts(form, gated);
    if (c->gated) form.ptr += gated.len, form.len -= gated.len;
    if (!proa_act_find(form, &c->act))
        return PROA_FAIL(err, UNSUPPORTED, "'feed_forward_proj': unknown activation '%.*s'", (int)form.len,
                         form.ptr);
    if (c->gated && c->act == PROA_ACT_GELU) c->act = PROA_ACT_GELU_TANH;
    return PROA_OK;
}

static proa_status finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    PROA_TRY(read_ffn(c, json, err));
    if (c->layers == 0) c->layers = c->encoder_layers;
    if (c->context == 0)
        c->context = 1024; /* relative positions know no limit; pages and activations need one */
    if (c->rel_distance <= c->rel_buckets / 2)
        return PROA_FAIL(err, INVALID,
                         "'relative_attention_max_distance' %lld must be above half of the %lld buckets",
                         (long long)c->rel_distance, (long long)c->rel_buckets);
    c->attention_scale = 1;
    bool scaled = c->tied; /* transformers 5 says it outright, before it went with the tie */
    PROA_TRY(proa_json_get_bool(&scaled, json, "scale_decoder_outputs", err));
    c->logit_scale = scaled ? 1 / sqrt((double)c->hidden) : 1;
    c->decoder_start = c->pad = 0;
    return PROA_OK;
}

const proa_arch proa_arch_t5 = {
    .name = "t5",
    .hf = (const char *const[]){"T5ForConditionalGeneration", "T5WithLMHeadModel",
                                "MT5ForConditionalGeneration", NULL},
    .model_type = "t5",
    .kind = PROA_KIND_ENCODER_DECODER,
    .norm = PROA_NORM_RMS,
    .keys = keys,
    .names = names,
    .ignored = ignored,
    .stacks = {[D] = {embed, decoder_layer, NULL, true}, [E] = {embed, encoder_layer, encoder_after, false}},
    .cross = cross,
    .head = head,
    .head_rows = PROA_ROWS_LAST,
    .outputs = PROA_DIM_VOCAB,
    .finish = finish};
