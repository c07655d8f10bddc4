/* SPDX-License-Identifier: Apache-2.0
 * arch_llama.c - Llama 1 to 3.3, Mistral, Qwen2, Qwen3: pre-norm RMS, rotary halves, gated SiLU, grouped queries.
 * They differ in biases (Qwen2), per-head norms of q and k (Qwen3) and windows (Mistral), so they share keys, names
 * and all steps but one. Facts: transformers' modeling_{llama,mistral,qwen2,qwen3}.py. */
#include "model/arch.h"

static const proa_key keys[] = {PROA_KEY_REQUIRED("vocab_size", vocab, 1, PROA_VOCAB_MAX),
                                PROA_KEY_REQUIRED("hidden_size", hidden, 1, PROA_HIDDEN_MAX),
                                PROA_KEY_REQUIRED("num_hidden_layers", layers, 1, PROA_LAYERS_MAX),
                                PROA_KEY_REQUIRED("num_attention_heads", heads, 1, PROA_HEADS_MAX),
                                PROA_KEY_REQUIRED("intermediate_size", ffn, 1, PROA_FFN_MAX),
                                PROA_KEY_INTEGER("num_key_value_heads", kv_heads, 1, PROA_HEADS_MAX, 0),
                                PROA_KEY_INTEGER("head_dim", head_dim, 1, PROA_HEAD_DIM_MAX, 0),
                                PROA_KEY_INTEGER("max_position_embeddings", context, 1, PROA_CONTEXT_MAX, 2048),
                                PROA_KEY_NUMBER("rms_norm_eps", norm_eps, 0, 1, 1e-6),
                                PROA_KEY_ACTIVATION("hidden_act", PROA_ACT_SILU),
                                PROA_KEY_SWITCH("tie_word_embeddings", tied, 0),
                                PROA_KEY_SWITCH("attention_bias", attention_bias, 0),
                                PROA_KEY_SWITCH("mlp_bias", mlp_bias, 0),
                                {0}};

#define D PROA_STACK_DECODER
/* clang-format off: a table */
#define EMBEDDING                                                                                                        \
    {"model.embed_tokens.weight", D, PROA_SLOT_TOKENS, PROA_ROLE_TABLE, PROA_DIM_VOCAB, PROA_DIM_HIDDEN, 0},             \
        {"model.layers.%d.input_layernorm.weight",                                                                       \
         D,                                                                                                              \
         PROA_SLOT_ATTN_NORM,                                                                                            \
         PROA_ROLE_VECTOR,                                                                                               \
         PROA_DIM_HIDDEN,                                                                                                \
         0,                                                                                                              \
         0},                                                                                                             \
        {"model.layers.%d.self_attn.q_proj.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_Q, PROA_DIM_HIDDEN, 0}, \
        {"model.layers.%d.self_attn.k_proj.weight",                                                                      \
         D,                                                                                                              \
         PROA_SLOT_QKV,                                                                                                  \
         PROA_ROLE_MATRIX,                                                                                               \
         PROA_DIM_KV,                                                                                                    \
         PROA_DIM_HIDDEN,                                                                                                \
         0},                                                                                                             \
    {                                                                                                                    \
        "model.layers.%d.self_attn.v_proj.weight", D, PROA_SLOT_QKV, PROA_ROLE_MATRIX, PROA_DIM_KV,                      \
            PROA_DIM_HIDDEN, 0                                                                                           \
    }
#define QKV_BIAS(flags)                                                                                      \
    {"model.layers.%d.self_attn.q_proj.bias", D, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_Q, 0, flags},   \
        {"model.layers.%d.self_attn.k_proj.bias",                                                            \
         D,                                                                                                  \
         PROA_SLOT_QKV_B,                                                                                    \
         PROA_ROLE_VECTOR,                                                                                   \
         PROA_DIM_KV,                                                                                        \
         0,                                                                                                  \
         flags},                                                                                             \
    {                                                                                                        \
        "model.layers.%d.self_attn.v_proj.bias", D, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_KV, 0, flags \
    }
#define REST                                                                                                             \
    {"model.layers.%d.self_attn.o_proj.weight",                                                                          \
     D,                                                                                                                  \
     PROA_SLOT_O,                                                                                                        \
     PROA_ROLE_MATRIX,                                                                                                   \
     PROA_DIM_HIDDEN,                                                                                                    \
     PROA_DIM_Q,                                                                                                         \
     0},                                                                                                                 \
        {"model.layers.%d.post_attention_layernorm.weight",                                                              \
         D,                                                                                                              \
         PROA_SLOT_FFN_NORM,                                                                                             \
         PROA_ROLE_VECTOR,                                                                                               \
         PROA_DIM_HIDDEN,                                                                                                \
         0,                                                                                                              \
         0},                                                                                                             \
        {"model.layers.%d.mlp.gate_proj.weight",                                                                         \
         D,                                                                                                              \
         PROA_SLOT_UP,                                                                                                   \
         PROA_ROLE_MATRIX,                                                                                               \
         PROA_DIM_FFN,                                                                                                   \
         PROA_DIM_HIDDEN,                                                                                                \
         0},                                                                                                             \
        {"model.layers.%d.mlp.up_proj.weight",                                                                           \
         D,                                                                                                              \
         PROA_SLOT_UP,                                                                                                   \
         PROA_ROLE_MATRIX,                                                                                               \
         PROA_DIM_FFN,                                                                                                   \
         PROA_DIM_HIDDEN,                                                                                                \
         0},                                                                                                             \
        {"model.layers.%d.mlp.down_proj.weight", D, PROA_SLOT_DOWN, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN, PROA_DIM_FFN, 0}, \
        {"model.norm.weight", D, PROA_SLOT_FINAL_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},                         \
        {"lm_head.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN,                         \
         PROA_IF_UNTIED},                                                                                                \
    {                                                                                                                    \
        "model.embed_tokens.weight", D, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN,               \
            PROA_IF_TIED | PROA_SHARED                                                                                   \
    }
/* clang-format on */

static const proa_name llama_names[] = {EMBEDDING,
                                        QKV_BIAS(PROA_IF_ATTN_BIAS),
                                        {"model.layers.%d.self_attn.o_proj.bias", D, PROA_SLOT_O_B,
                                         PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, PROA_IF_ATTN_BIAS},
                                        {"model.layers.%d.mlp.gate_proj.bias", D, PROA_SLOT_UP_B,
                                         PROA_ROLE_VECTOR, PROA_DIM_FFN, 0, PROA_IF_MLP_BIAS},
                                        {"model.layers.%d.mlp.up_proj.bias", D, PROA_SLOT_UP_B,
                                         PROA_ROLE_VECTOR, PROA_DIM_FFN, 0, PROA_IF_MLP_BIAS},
                                        {"model.layers.%d.mlp.down_proj.bias", D, PROA_SLOT_DOWN_B,
                                         PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, PROA_IF_MLP_BIAS},
                                        REST,
                                        {0}};
static const proa_name qwen2_names[] = {EMBEDDING, QKV_BIAS(0), REST, {0}};
static const proa_name qwen3_names[] = {
    EMBEDDING,
    QKV_BIAS(PROA_IF_ATTN_BIAS),
    {"model.layers.%d.self_attn.o_proj.bias", D, PROA_SLOT_O_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0,
     PROA_IF_ATTN_BIAS},
    {"model.layers.%d.self_attn.q_norm.weight", D, PROA_SLOT_Q_NORM, PROA_ROLE_VECTOR, PROA_DIM_HEAD, 0, 0},
    {"model.layers.%d.self_attn.k_norm.weight", D, PROA_SLOT_K_NORM, PROA_ROLE_VECTOR, PROA_DIM_HEAD, 0, 0},
    REST,
    {0}};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {{PROA_STEP_EMBED, .out = PROA_REG_X, .w = PROA_SLOT_TOKENS},
                                  {PROA_STEP_ROPE_TABLE, .out = PROA_REG_ROPE},
                                  {PROA_STEP_END}};
#define ATTENTION_IN                                                                                         \
    {PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_ATTN_NORM, 0},                                        \
    {                                                                                                        \
        PROA_STEP_LINEAR, PROA_REG_N, PROA_REG_QKV, PROA_SLOT_QKV, 0                                         \
    }
#define ATTENTION_OUT_AND_FFN                                                                                \
    {PROA_STEP_ROPE, PROA_REG_QKV, PROA_REG_QKV, 0, 0}, {PROA_STEP_KV_APPEND, .in = PROA_REG_QKV},           \
        {PROA_STEP_ATTEND, PROA_REG_QKV, PROA_REG_A, 0, 0},                                                  \
        {PROA_STEP_LINEAR, PROA_REG_A, PROA_REG_X, PROA_SLOT_O, PROA_ADD},                                   \
        {PROA_STEP_NORM, PROA_REG_X, PROA_REG_N, PROA_SLOT_FFN_NORM, 0},                                     \
        {PROA_STEP_LINEAR_GATED, PROA_REG_N, PROA_REG_F, PROA_SLOT_UP, 0},                                   \
        {PROA_STEP_LINEAR, PROA_REG_F, PROA_REG_X, PROA_SLOT_DOWN, PROA_ADD},                                \
    {                                                                                                        \
        PROA_STEP_END                                                                                        \
    }

static const proa_step layer[] = {ATTENTION_IN, ATTENTION_OUT_AND_FFN};
static const proa_step layer_qk_norm[] = {
    ATTENTION_IN,
    {PROA_STEP_HEADS_NORM, PROA_REG_QKV, PROA_REG_QKV, PROA_SLOT_Q_NORM, 0},
    {PROA_STEP_HEADS_NORM, PROA_REG_QKV, PROA_REG_QKV, PROA_SLOT_K_NORM, PROA_OF_K},
    ATTENTION_OUT_AND_FFN};
static const proa_step head[] = {{PROA_STEP_GATHER, PROA_REG_X, PROA_REG_H, 0, 0},
                                 {PROA_STEP_NORM, PROA_REG_H, PROA_REG_HN, PROA_SLOT_FINAL_NORM, 0},
                                 {PROA_STEP_LINEAR, PROA_REG_HN, PROA_REG_OUT, PROA_SLOT_HEAD, 0},
                                 {PROA_STEP_END}};

static proa_status finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    c->rotary_dim = c->head_dim;
    PROA_TRY(proa_config_read_rope(c, json, err));
    return proa_config_read_window(c, json, arena, err);
}

/* Llama itself has no window: a stray key is not read. */
static proa_status finish_llama(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    c->gated = true;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    c->rotary_dim = c->head_dim;
    return proa_config_read_rope(c, json, err);
}

/* transformers' Qwen configurations turn the window off unless use_sliding_window says otherwise. */
static proa_status finish_qwen(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (!proa_json_bool(proa_json_get(json, "use_sliding_window"))) return finish_llama(c, json, arena, err);
    c->window_from = 28;
    return finish(c, json, arena, err);
}

#define COMMON                                                                                               \
    .kind = PROA_KIND_DECODER, .norm = PROA_NORM_RMS, .keys = keys, .ignored = ignored, .head = head,        \
    .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_VOCAB
#define HF(name)                                                                                             \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        name, NULL                                                                                           \
    }

const proa_arch proa_arch_llama = {.name = "llama",
                                   .hf = HF("LlamaForCausalLM"),
                                   .model_type = "llama",
                                   COMMON,
                                   .names = llama_names,
                                   .stacks[D] = {embed, layer, NULL, true},
                                   .finish = finish_llama};
const proa_arch proa_arch_mistral = {.name = "mistral",
                                     .hf = HF("MistralForCausalLM"),
                                     .model_type = "mistral",
                                     COMMON,
                                     .names = llama_names,
                                     .stacks[D] = {embed, layer, NULL, true},
                                     .finish = finish};
const proa_arch proa_arch_qwen2 = {.name = "qwen2",
                                   .hf = HF("Qwen2ForCausalLM"),
                                   .model_type = "qwen2",
                                   COMMON,
                                   .names = qwen2_names,
                                   .stacks[D] = {embed, layer, NULL, true},
                                   .finish = finish_qwen};
const proa_arch proa_arch_qwen3 = {.name = "qwen3",
                                   .hf = HF("Qwen3ForCausalLM"),
                                   .model_type = "qwen3",
                                   COMMON,
                                   .names = qwen3_names,
                                   .stacks[D] = {embed, layer_qk_norm, NULL, true},
                                   .finish = finish_qwen};
