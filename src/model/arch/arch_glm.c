/* SPDX-License-Identifier: Apache-2.0
 * arch_glm.c - ChatGLM2, ChatGLM3, GLM and GLM-4: RMS norms, gated SiLU with gate and up in one tensor, and rotary
 * pairs on the first half of the head. GLM-4 (0414) also norms what attention and FFN give before it is added.
 * Facts: transformers' modeling_{glm,glm4}.py; of ChatGLM the modelling files that are published with the checkpoints
 * (THUDM/chatglm2-6b, THUDM/chatglm3-6b), which THUDM/glm-4-9b's own files are a copy of. */
#include "model/arch/arch_rows.h"

#define STACK   PROA_STACK_DECODER
#define LAYER   "model.layers.%d."
#define ENCODER "transformer.encoder.layers.%d."

/* clang-format off */
static const proa_key glm_keys[] = {
    SIZE_KEYS (layers),
    KV_HEADS  (2),
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 0),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  131072),
    EPSILON   ("rms_norm_eps",            1.5625e-7),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    SWITCH    ("attention_bias",          attention_bias, 1),
    PAD       (151329),
    END_KEYS};
static const proa_key chatglm2_keys[] = {
    REQUIRED  ("padded_vocab_size",       vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_layers",              layers,         LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("ffn_hidden_size",         ffn,            FFN),
    INTEGER   ("multi_query_group_num",   kv_heads,       1, HEADS,    0),
    INTEGER   ("kv_channels",             head_dim,       1, HEAD_DIM, 0),
    INTEGER   ("seq_length",              context,        1, CONTEXT,  2048),
    EPSILON   ("layernorm_epsilon",       1e-5),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    SWITCH    ("add_bias_linear",         mlp_bias,       0),
    END_KEYS};

#define GLM_TENSORS \
    TABLE    ("model.embed_tokens.weight",              TOKENS,     VOCAB,   HIDDEN), \
    VECTOR   (LAYER "input_layernorm.weight",           ATTN_NORM,  HIDDEN),          \
    MATRIX   (LAYER "self_attn.q_proj.weight",          QKV,        Q,       HIDDEN), \
    MATRIX   (LAYER "self_attn.k_proj.weight",          QKV,        KV,      HIDDEN), \
    MATRIX   (LAYER "self_attn.v_proj.weight",          QKV,        KV,      HIDDEN), \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.q_proj.bias", QKV_B,      Q),               \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.k_proj.bias", QKV_B,      KV),              \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.v_proj.bias", QKV_B,      KV),              \
    MATRIX   (LAYER "self_attn.o_proj.weight",          O,          HIDDEN,  Q),      \
    VECTOR   (LAYER "post_attention_layernorm.weight",  FFN_NORM,   HIDDEN),          \
    MATRIX   (LAYER "mlp.gate_up_proj.weight",          UP,         GATE_UP, HIDDEN), \
    MATRIX   (LAYER "mlp.down_proj.weight",             DOWN,       HIDDEN,  FFN),    \
    VECTOR   ("model.norm.weight",                      FINAL_NORM, HIDDEN),          \
    MATRIX_IF(UNTIED, "lm_head.weight",                 HEAD,       VOCAB,   HIDDEN), \
    TIED_HEAD("model.embed_tokens.weight"),                                           \
    END_TENSORS
static const proa_name glm_tensors[] = {GLM_TENSORS};
static const proa_name glm4_tensors[] = {
    VECTOR(LAYER "post_self_attn_layernorm.weight", ATTN_OUT_NORM, HIDDEN),
    VECTOR(LAYER "post_mlp_layernorm.weight",       FFN_OUT_NORM,  HIDDEN),
    GLM_TENSORS};
static const proa_name chatglm2_tensors[] = {
    TABLE    ("transformer.embedding.word_embeddings.weight",      TOKENS,     VOCAB,   HIDDEN),
    VECTOR   (ENCODER "input_layernorm.weight",                    ATTN_NORM,  HIDDEN),
    MATRIX   (ENCODER "self_attention.query_key_value.weight",     QKV,        QKV,     HIDDEN),
    VECTOR_IF(ATTN_BIAS, ENCODER "self_attention.query_key_value.bias", QKV_B, QKV),
    MATRIX   (ENCODER "self_attention.dense.weight",               O,          HIDDEN,  Q),
    VECTOR_IF(MLP_BIAS, ENCODER "self_attention.dense.bias",       O_B,        HIDDEN),
    VECTOR   (ENCODER "post_attention_layernorm.weight",           FFN_NORM,   HIDDEN),
    MATRIX   (ENCODER "mlp.dense_h_to_4h.weight",                  UP,         GATE_UP, HIDDEN),
    VECTOR_IF(MLP_BIAS, ENCODER "mlp.dense_h_to_4h.bias",          UP_B,       GATE_UP),
    MATRIX   (ENCODER "mlp.dense_4h_to_h.weight",                  DOWN,       HIDDEN,  FFN),
    VECTOR_IF(MLP_BIAS, ENCODER "mlp.dense_4h_to_h.bias",          DOWN_B,     HIDDEN),
    VECTOR   ("transformer.encoder.final_layernorm.weight",        FINAL_NORM, HIDDEN),
    MATRIX_IF(UNTIED, "transformer.output_layer.weight",           HEAD,       VOCAB,   HIDDEN),
    TIED_HEAD("transformer.embedding.word_embeddings.weight"),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "rotary_pos_emb.inv_freq", "lm_head.weight", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step glm_layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR      (N, QKV, QKV,  0),
    ROTATE_PAIRS,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X,   O,    ADD),
    NORM        (X, N,   FFN_NORM),
    LINEAR_GATED(N, F,   UP,   0),
    LINEAR      (F, X,   DOWN, ADD),
    END};
static const proa_step glm4_layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR      (N, QKV, QKV,  0),
    ROTATE_PAIRS,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, D,   O,    0),
    NORM_ADD    (D, X,   ATTN_OUT_NORM),
    NORM        (X, N,   FFN_NORM),
    LINEAR_GATED(N, F,   UP,   0),
    LINEAR      (F, D,   DOWN, 0),
    NORM_ADD    (D, X,   FFN_OUT_NORM),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status finish_glm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 0.5, err));
    return proa_config_read_rope(c, json, arena, err);
}

static bool contains_part(proa_str s, const char *part)
{
    for (size_t i = 0; i < s.len; i++)
        if (proa_str_starts((proa_str){s.ptr + i, s.len - i}, proa_str_c(part))) return true;
    return false;
}

/* rope_ratio multiplies the base of the rotary frequencies in ChatGLM3 and GLM-4, and divides the positions in
 * ChatGLM2-32k. Only the name of the model distinguishes the two. */
static proa_status read_rope_ratio(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str name = {"", 0};
    double ratio = 1;
    PROA_TRY(proa_json_get_str(&name, json, "_name_or_path", err));
    PROA_TRY(proa_json_get_double(&ratio, json, "rope_ratio", 1e-3, 1e6, err));
    bool divides = contains_part(name, "chatglm2");
    c->rope.theta = divides ? 10000 : 10000 * ratio;
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    if (divides && ratio != 1) c->rope.kind = PROA_ROPE_LINEAR, c->rope.factor = ratio;
    return PROA_OK;
}

static proa_status finish_chatglm2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const struct {
        const char *key;
        bool value;
    } fixed[] = {{"rmsnorm", true},
                 {"post_layer_norm", true},
                 {"original_rope", true},
                 {"apply_residual_connection_post_layernorm", false}};
    bool grouped = false, qkv_bias = false;
    for (size_t i = 0; i < PROA_COUNT(fixed); i++) {
        bool value = fixed[i].value;
        PROA_TRY(proa_json_get_bool(&value, json, fixed[i].key, err));
        if (value != fixed[i].value)
            return PROA_FAIL(err, UNSUPPORTED, "'%s' %s is not supported", fixed[i].key,
                             value ? "true" : "false");
    }
    PROA_TRY(proa_json_get_bool(&grouped, json, "multi_query_attention", err));
    PROA_TRY(proa_json_get_bool(&qkv_bias, json, "add_qkv_bias", err));
    if (!grouped) c->kv_heads = c->heads;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    c->attention_bias = qkv_bias || c->mlp_bias;
    c->gated = true;
    c->act = PROA_ACT_SILU;
    c->rotary_dim = c->head_dim / 2;
    return read_rope_ratio(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, classes, which, program)                                                                  \
    .name = type, .hf = classes, DECODER(RMS), .keys = which##_keys, .ignored = ignored,                    \
    .stacks = {CAUSAL(embed, program)}, .head = head, .finish = finish_##which

const proa_arch proa_arch_glm = {
    ROW("glm", STRINGS("GlmForCausalLM"), glm, glm_layer), .model_type = "glm", .names = glm_tensors,
    HEADS(TEXTS | TOKENS, "Glm")};
const proa_arch proa_arch_glm4 = {
    ROW("glm4", STRINGS("Glm4ForCausalLM"), glm, glm4_layer), .model_type = "glm4", .names = glm4_tensors,
    HEADS(TEXTS | TOKENS, "Glm4")};
const proa_arch proa_arch_chatglm2 = {
    ROW("chatglm2", STRINGS("ChatGLMModel", "ChatGLMForConditionalGeneration"), chatglm2, glm_layer),
    .model_type = "chatglm", .key = "padded_vocab_size", .names = chatglm2_tensors};
/* clang-format on */
