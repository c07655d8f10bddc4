/* SPDX-License-Identifier: Apache-2.0
 * arch_xglm.c - XGLM, BioGPT and CTRL: decoders with LayerNorm and biases, a scaled embedding, which is the head, too,
 * and positions that are sinusoids (XGLM's from row 2 on) or learned (BioGPT, also from row 2 on). Facts: transformers'
 * modeling_{xglm,biogpt,ctrl}.py. */
#include "model/arch/arch_rows.h"

#include "base/limits.h"
#include <math.h>

#define STACK PROA_STACK_DECODER
#define LAYER "layers.%d."

/* clang-format off */
static const proa_key xglm_keys[] = {
    REQUIRED  ("vocab_size",              vocab,   VOCAB),
    REQUIRED  ("d_model",                 hidden,  HIDDEN),
    REQUIRED  ("num_layers",              layers,  LAYERS),
    REQUIRED  ("attention_heads",         heads,   HEADS),
    REQUIRED  ("ffn_dim",                 ffn,     FFN),
    INTEGER   ("max_position_embeddings", context, 1, CONTEXT, 2048),
    ACTIVATION("activation_function",     GELU),
    SWITCH    ("tie_word_embeddings",     tied,    1),
    END_KEYS};
static const proa_key biogpt_keys[] = {
    REQUIRED  ("vocab_size",              vocab,   VOCAB),
    REQUIRED  ("hidden_size",             hidden,  HIDDEN),
    REQUIRED  ("num_hidden_layers",       layers,  LAYERS),
    REQUIRED  ("num_attention_heads",     heads,   HEADS),
    REQUIRED  ("intermediate_size",       ffn,     FFN),
    INTEGER   ("max_position_embeddings", context, 1, CONTEXT, 1024),
    ACTIVATION("hidden_act",              GELU),
    SWITCH    ("tie_word_embeddings",     tied,    1),
    PAD       (1),
    END_KEYS};
static const proa_key ctrl_keys[] = {
    REQUIRED  ("vocab_size",              vocab,   VOCAB),
    REQUIRED  ("n_embd",                  hidden,  HIDDEN),
    REQUIRED  ("n_layer",                 layers,  LAYERS),
    REQUIRED  ("n_head",                  heads,   HEADS),
    REQUIRED  ("dff",                     ffn,     FFN),
    INTEGER   ("n_positions",             context, 1, CONTEXT, 256),
    EPSILON   ("layer_norm_epsilon",      1e-6),
    SWITCH    ("tie_word_embeddings",     tied,    1),
    END_KEYS};

/* M: what the names begin with. */
#define BODY_TENSORS(M) \
    TABLE    (M "embed_tokens.weight",           TOKENS,       VOCAB,  HIDDEN),       \
    VECTOR   (M LAYER "self_attn_layer_norm.weight",   ATTN_NORM,    HIDDEN),         \
    VECTOR   (M LAYER "self_attn_layer_norm.bias",     ATTN_NORM_B,  HIDDEN),         \
    MATRIX   (M LAYER "self_attn.q_proj.weight",       QKV,          Q,      HIDDEN), \
    MATRIX   (M LAYER "self_attn.k_proj.weight",       QKV,          KV,     HIDDEN), \
    MATRIX   (M LAYER "self_attn.v_proj.weight",       QKV,          KV,     HIDDEN), \
    VECTOR   (M LAYER "self_attn.q_proj.bias",         QKV_B,        Q),              \
    VECTOR   (M LAYER "self_attn.k_proj.bias",         QKV_B,        KV),             \
    VECTOR   (M LAYER "self_attn.v_proj.bias",         QKV_B,        KV),             \
    MATRIX   (M LAYER "self_attn.out_proj.weight",     O,            HIDDEN, Q),      \
    VECTOR   (M LAYER "self_attn.out_proj.bias",       O_B,          HIDDEN),         \
    VECTOR   (M LAYER "final_layer_norm.weight",       FFN_NORM,     HIDDEN),         \
    VECTOR   (M LAYER "final_layer_norm.bias",         FFN_NORM_B,   HIDDEN),         \
    MATRIX   (M LAYER "fc1.weight",                    UP,           FFN,    HIDDEN), \
    VECTOR   (M LAYER "fc1.bias",                      UP_B,         FFN),            \
    MATRIX   (M LAYER "fc2.weight",                    DOWN,         HIDDEN, FFN),    \
    VECTOR   (M LAYER "fc2.bias",                      DOWN_B,       HIDDEN),         \
    VECTOR   (M "layer_norm.weight",             FINAL_NORM,   HIDDEN),               \
    VECTOR   (M "layer_norm.bias",               FINAL_NORM_B, HIDDEN)
static const proa_name xglm_tensors[] = {
    BODY_TENSORS("model."),
    TABLE_SINUSOIDS(ENDS, "model.embed_positions.weight", 0),
    TIED_HEAD("model.embed_tokens.weight"),
    MATRIX_IF(UNTIED, "lm_head.weight", HEAD, VOCAB, HIDDEN),
    END_TENSORS};
static const proa_name biogpt_tensors[] = {
    BODY_TENSORS("biogpt."),
    TABLE    ("biogpt.embed_positions.weight", POSITIONS, POSITIONS, HIDDEN),
    TIED_HEAD("biogpt.embed_tokens.weight"),
    MATRIX_IF(UNTIED, "output_projection.weight", HEAD, VOCAB, HIDDEN),
    END_TENSORS};
#define CTRL    "transformer."
#define CTRL_IN CTRL "h.%d."
static const proa_name ctrl_tensors[] = {
    TABLE    (CTRL "w.weight",                          TOKENS,       VOCAB,  HIDDEN),
    TABLE_SINUSOIDS(HALVES, CTRL "pos_encoding",        0),
    VECTOR   (CTRL_IN "layernorm1.weight",              ATTN_NORM,    HIDDEN),
    VECTOR   (CTRL_IN "layernorm1.bias",                ATTN_NORM_B,  HIDDEN),
    MATRIX   (CTRL_IN "multi_head_attention.Wq.weight", QKV,          Q,      HIDDEN),
    MATRIX   (CTRL_IN "multi_head_attention.Wk.weight", QKV,          KV,     HIDDEN),
    MATRIX   (CTRL_IN "multi_head_attention.Wv.weight", QKV,          KV,     HIDDEN),
    VECTOR   (CTRL_IN "multi_head_attention.Wq.bias",   QKV_B,        Q),
    VECTOR   (CTRL_IN "multi_head_attention.Wk.bias",   QKV_B,        KV),
    VECTOR   (CTRL_IN "multi_head_attention.Wv.bias",   QKV_B,        KV),
    MATRIX   (CTRL_IN "multi_head_attention.dense.weight", O,         HIDDEN, Q),
    VECTOR   (CTRL_IN "multi_head_attention.dense.bias", O_B,         HIDDEN),
    VECTOR   (CTRL_IN "layernorm2.weight",              FFN_NORM,     HIDDEN),
    VECTOR   (CTRL_IN "layernorm2.bias",                FFN_NORM_B,   HIDDEN),
    MATRIX   (CTRL_IN "ffn.0.weight",                   UP,           FFN,    HIDDEN),
    VECTOR   (CTRL_IN "ffn.0.bias",                     UP_B,         FFN),
    MATRIX   (CTRL_IN "ffn.2.weight",                   DOWN,         HIDDEN, FFN),
    VECTOR   (CTRL_IN "ffn.2.bias",                     DOWN_B,       HIDDEN),
    VECTOR   (CTRL "layernorm.weight",                  FINAL_NORM,   HIDDEN),
    VECTOR   (CTRL "layernorm.bias",                    FINAL_NORM_B, HIDDEN),
    TIED_HEAD(CTRL "w.weight"),
    MATRIX_IF(UNTIED, "lm_head.weight",                 HEAD,         VOCAB,  HIDDEN),
    VECTOR   ("lm_head.bias",                           HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const xglm_prefixes[] = {"model.", NULL}, *const biogpt_prefixes[] = {"biogpt.", NULL};
static const char *const ctrl_prefixes[] = {CTRL, NULL};
/* Of its classifier. */
static const char *const ctrl_aliases[] = {"score.weight", "classifier.weight", NULL};
/* A tied head's copy, and the sinusoids, which old checkpoints hold. */
static const char *const ignored[] = {"lm_head.weight", "output_projection.weight", "embed_positions.weights", NULL};

static const proa_step embed[] = {
    EMBED_TO(X, TOKENS,    SCALED | EXACT),
    EMBED_TO(X, POSITIONS, OF_POS | ADD),
    END};
static const proa_step layer[] = {
    NORM  (X, N,   ATTN_NORM),
    LINEAR(N, QKV, QKV,  0),
    KV_APPEND,
    ATTEND,
    LINEAR(A, X,   O,    ADD),
    NORM  (X, N,   FFN_NORM),
    LINEAR(N, U,   UP,   ACT),
    LINEAR(U, X,   DOWN, ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* The first token has position 2. */
static proa_status finish_biogpt(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool scaled = true;
    PROA_UNUSED(arena);
    c->norm_eps = 1e-5;
    c->position_offset = 2;
    PROA_TRY(proa_json_get_bool(&scaled, json, "scale_embedding", err));
    c->embed_scale = scaled ? sqrt((double)c->hidden) : 1;
    return PROA_OK;
}

/* Row pad_token_id of the sinusoids is zero: it must be one that no token has. */
static proa_status finish_xglm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t pad = 1;
    PROA_TRY(finish_biogpt(c, json, arena, err));
    PROA_TRY(proa_json_get_int(&pad, json, "pad_token_id", 0, PROA_CONTEXT_MAX, err));
    if (pad >= c->position_offset)
        return PROA_FAIL(err, UNSUPPORTED, "'pad_token_id' is %lld, only 0 and 1 are supported", (long long)pad);
    return PROA_OK;
}

static proa_status finish_ctrl(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(json), PROA_UNUSED(arena), PROA_UNUSED(err);
    c->act = PROA_ACT_RELU;
    c->embed_scale = sqrt((double)c->hidden);
    return PROA_OK;
}

/* clang-format off */
#define ROW(type, class, ...)                                                                           \
    {.name = #type, .model_type = #type, .hf = STRINGS(class), DECODER(LAYER), .keys = type##_keys,    \
     .names = type##_tensors, .prefixes = type##_prefixes, .ignored = ignored,                         \
     .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finish_##type, __VA_ARGS__}

const proa_arch proa_arch_xglm = ROW(xglm, "XGLMForCausalLM", NO_HEADS);
const proa_arch proa_arch_biogpt = ROW(biogpt, "BioGptForCausalLM", HEADS(TEXTS | TOKENS, "BioGpt"));
const proa_arch proa_arch_ctrl = ROW(ctrl, "CTRLLMHeadModel", HEADS(TEXTS, "CTRL"), .aliases = ctrl_aliases);
/* clang-format on */
