/* SPDX-License-Identifier: Apache-2.0
 * arch_nemotron.c - Nemotron (Minitron), Arcee, Apertus, Jais 2, nanochat: a Llama whose FFN is not gated, with
 * squared ReLU, or xIELU (Apertus). Nemotron has LayerNorm of 1 + w with a bias, and rotates a part of the head; Jais
 * 2 has LayerNorm and biases. Norms of nanochat have no weights, there is one behind the embedding and one of the
 * rotated heads. Facts: transformers' modeling_{nemotron,arcee,apertus,jais2,nanochat}.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define BLOCK "model.layers.%d."

/* clang-format off */
#define COMMON_KEYS ACTIVATION("hidden_act", RELU2), NEMOTRON_KEYS
#define NEMOTRON_KEYS \
    SIZE_KEYS (layers),                                                      \
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    0),   \
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 0),   \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  4096), \
    SWITCH    ("tie_word_embeddings",     tied,           0),                \
    SWITCH    ("attention_bias",          attention_bias, 0),                \
    SWITCH    ("mlp_bias",                mlp_bias,       0)
static const proa_key nemotron_keys[] = {COMMON_KEYS, EPSILON("norm_eps", 1e-5), END_KEYS};
static const proa_key jais2_keys[] = {
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  8192),
    COMMON_KEYS,
    EPSILON   ("layer_norm_eps",          1e-5),
    SWITCH    ("attention_bias",          attention_bias, 1),
    SWITCH    ("mlp_bias",                mlp_bias,       1),
    END_KEYS};
static const proa_key nanochat_keys[] = {
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  2048),
    COMMON_KEYS,
    EPSILON   ("rms_norm_eps",            1e-6),
    END_KEYS};
static const proa_key apertus_keys[] = {
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  65536),
    NEMOTRON_KEYS,
    EPSILON   ("rms_norm_eps",            1e-5),
    END_KEYS};
static const proa_key arcee_keys[] = {COMMON_KEYS, EPSILON("rms_norm_eps", 1e-5), END_KEYS};

#define ACT_NUMBER(name) VECTOR(BLOCK "mlp.act_fn." name, ACT_PARAMS, ONE)
#define COMMON_TENSORS \
    TABLE    ("model.embed_tokens.weight",              TOKENS, VOCAB,  HIDDEN), \
    MATRIX   (BLOCK "self_attn.q_proj.weight",          QKV,    Q,      HIDDEN), \
    MATRIX   (BLOCK "self_attn.k_proj.weight",          QKV,    KV,     HIDDEN), \
    MATRIX   (BLOCK "self_attn.v_proj.weight",          QKV,    KV,     HIDDEN), \
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.q_proj.bias", QKV_B,  Q),              \
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.k_proj.bias", QKV_B,  KV),             \
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.v_proj.bias", QKV_B,  KV),             \
    MATRIX   (BLOCK "self_attn.o_proj.weight",          O,      HIDDEN, Q),      \
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.o_proj.bias", O_B,    HIDDEN),         \
    MATRIX   (BLOCK "mlp.up_proj.weight",               UP,     FFN,    HIDDEN), \
    VECTOR_IF(MLP_BIAS, BLOCK "mlp.up_proj.bias",       UP_B,   FFN),            \
    MATRIX   (BLOCK "mlp.down_proj.weight",             DOWN,   HIDDEN, FFN),    \
    VECTOR_IF(MLP_BIAS, BLOCK "mlp.down_proj.bias",     DOWN_B, HIDDEN),         \
    MATRIX_IF(UNTIED, "lm_head.weight",                 HEAD,   VOCAB,  HIDDEN), \
    TIED_HEAD("model.embed_tokens.weight")

static const proa_name nemotron_tensors[] = {
    COMMON_TENSORS,
    VECTOR_1 (BLOCK "input_layernorm.weight",           ATTN_NORM,    HIDDEN),
    VECTOR   (BLOCK "input_layernorm.bias",             ATTN_NORM_B,  HIDDEN),
    VECTOR_1 (BLOCK "post_attention_layernorm.weight",  FFN_NORM,     HIDDEN),
    VECTOR   (BLOCK "post_attention_layernorm.bias",    FFN_NORM_B,   HIDDEN),
    VECTOR_1 ("model.norm.weight",                      FINAL_NORM,   HIDDEN),
    VECTOR   ("model.norm.bias",                        FINAL_NORM_B, HIDDEN),
    END_TENSORS};
static const proa_name arcee_tensors[] = {
    COMMON_TENSORS,
    VECTOR   (BLOCK "input_layernorm.weight",           ATTN_NORM,    HIDDEN),
    VECTOR   (BLOCK "post_attention_layernorm.weight",  FFN_NORM,     HIDDEN),
    VECTOR   ("model.norm.weight",                      FINAL_NORM,   HIDDEN),
    END_TENSORS};
static const proa_name apertus_tensors[] = {
    COMMON_TENSORS,
    VECTOR   (BLOCK "attention_layernorm.weight",       ATTN_NORM,    HIDDEN),
    VECTOR   (BLOCK "feedforward_layernorm.weight",     FFN_NORM,     HIDDEN),
    VECTOR   (BLOCK "self_attn.q_norm.weight",          Q_NORM,       HEAD),
    VECTOR   (BLOCK "self_attn.k_norm.weight",          K_NORM,       HEAD),
    ACT_NUMBER("alpha_p"), ACT_NUMBER("alpha_n"), ACT_NUMBER("beta"), ACT_NUMBER("eps"),
    VECTOR   ("model.norm.weight",                      FINAL_NORM,   HIDDEN),
    END_TENSORS};
static const proa_name jais2_tensors[] = {
    COMMON_TENSORS,
    VECTOR   (BLOCK "input_layernorm.weight",           ATTN_NORM,    HIDDEN),
    VECTOR   (BLOCK "input_layernorm.bias",             ATTN_NORM_B,  HIDDEN),
    VECTOR   (BLOCK "post_attention_layernorm.weight",  FFN_NORM,     HIDDEN),
    VECTOR   (BLOCK "post_attention_layernorm.bias",    FFN_NORM_B,   HIDDEN),
    VECTOR   ("model.norm.weight",                      FINAL_NORM,   HIDDEN),
    VECTOR   ("model.norm.bias",                        FINAL_NORM_B, HIDDEN),
    END_TENSORS};
/* Its heads rotate the other way: with their halves exchanged in q and in k, products of both are the same. */
#define TURNED(name, SLOT, ROWS) \
    MATRIX_LOADED(HEADS_TURNED, BLOCK name ".weight",               SLOT,     ROWS, HIDDEN), \
    VECTOR_LOADED_IF(ATTN_BIAS, HEADS_TURNED, BLOCK name ".bias",   SLOT##_B, ROWS)
#define ONES(name, SLOT, ROWS) VECTOR_LOADED(ONES, name, SLOT, ROWS)
static const proa_name nanochat_tensors[] = {
    TABLE    ("model.embed_tokens.weight",              TOKENS, VOCAB,  HIDDEN),
    TURNED   ("self_attn.q_proj",                       QKV,    Q),
    TURNED   ("self_attn.k_proj",                       QKV,    KV),
    MATRIX   (BLOCK "self_attn.v_proj.weight",          QKV,    KV,     HIDDEN),
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.v_proj.bias", QKV_B,  KV),
    MATRIX   (BLOCK "self_attn.o_proj.weight",          O,      HIDDEN, Q),
    VECTOR_IF(ATTN_BIAS, BLOCK "self_attn.o_proj.bias", O_B,    HIDDEN),
    MATRIX   (BLOCK "mlp.fc1.weight",                   UP,     FFN,    HIDDEN),
    MATRIX   (BLOCK "mlp.fc2.weight",                   DOWN,   HIDDEN, FFN),
    MATRIX_IF(UNTIED, "lm_head.weight",                 HEAD,   VOCAB,  HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    ONES     ("model.embed_norm.weight",                EMBED_NORM, HIDDEN),
    ONES     (BLOCK "input_layernorm.weight",           ATTN_NORM,  HIDDEN),
    ONES     (BLOCK "self_attn.q_norm.weight",          Q_NORM,     HEAD),
    ONES     (BLOCK "self_attn.k_norm.weight",          K_NORM,     HEAD),
    ONES     (BLOCK "post_attention_layernorm.weight",  FFN_NORM,   HIDDEN),
    ONES     ("model.norm.weight",                      FINAL_NORM, HIDDEN),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE_IF(ROTARY), END};
static const proa_step nanochat_embed[] = {EMBED(TOKENS), NORM(X, X, EMBED_NORM), ROPE_TABLE, END};
#define QKV_PRODUCT \
    NORM     (X, N,   ATTN_NORM), \
    LINEAR   (N, QKV, QKV,  0)
#define ATTENTION \
    KV_APPEND,                    \
    ATTEND,                       \
    LINEAR   (A, X,   O,    ADD), \
    NORM     (X, N,   FFN_NORM)
#define REST \
    ATTENTION,                    \
    LINEAR   (N, U,   UP,   ACT), \
    LINEAR   (U, X,   DOWN, ADD), \
    END
static const proa_step layer[] = {QKV_PRODUCT, ROTATE_IF(ROTARY), REST};
static const proa_step apertus_layer[] = {
    QKV_PRODUCT, Q_NORM(Q_NORM), K_NORM(K_NORM), ROTATE, ATTENTION,
    LINEAR   (N, U,   UP,   0),
    XIELU    (ACT_PARAMS),
    LINEAR   (U, X,   DOWN, ADD),
    END};
static const proa_step nanochat_layer[] = {QKV_PRODUCT, ROTATE, Q_NORM(Q_NORM), K_NORM(K_NORM), REST};
static const proa_step head[] = {LM_HEAD(CAPPED)};
/* clang-format on */

static proa_status finish_nemotron(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_config_read_rotary_dim(c, json, 0.5, err));
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_arcee(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    return proa_config_read_rope(c, json, arena, err);
}

/* Apertus' class has this scaling where config.json has none, or null. */
static proa_status finish_apertus(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str act = {"xielu", 5};
    PROA_TRY(proa_json_get_str(&act, json, "hidden_act", err));
    if (!proa_str_is(act, "xielu"))
        return PROA_FAIL(err, UNSUPPORTED, "'hidden_act' is '%.*s', must be xielu", (int)act.len, act.ptr);
    c->rope.theta = 12e6;
    if (!proa_json_get(json, "rope_parameters") && !proa_json_get(json, "rope_scaling")) {
        c->rope.kind = PROA_ROPE_LLAMA3;
        c->rope.factor = 8, c->rope.low = 1, c->rope.high = 4;
        c->rope.original = 8192;
    }
    return finish_arcee(c, json, arena, err);
}

/* A cap that is null is off. */
static proa_status finish_nanochat(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->logit_cap = proa_config_is_null(json, "final_logit_softcapping") ? 0 : 15;
    PROA_TRY(proa_json_get_double(&c->logit_cap, json, "final_logit_softcapping", 1e-3, 1e6, err));
    return finish_arcee(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class, NORM, begin, program, finisher, heads)                                    \
    {.name = #type, .model_type = #type, .hf = STRINGS(class), DECODER(NORM), .keys = type##_keys,  \
     .names = type##_tensors, .ignored = ignored, .stacks = {CAUSAL(begin, program)}, .head = head, \
     .finish = finisher, heads}

const proa_arch proa_arch_nemotron = ROW(nemotron, "NemotronForCausalLM", LAYER, embed, layer, finish_nemotron,
                                       HEADS(TEXTS | TOKENS | SPANS, "Nemotron"));
const proa_arch proa_arch_arcee    = ROW(arcee,    "ArceeForCausalLM",    RMS,   embed, layer, finish_arcee,
                                       HEADS(TEXTS | TOKENS | SPANS, "Arcee"));
const proa_arch proa_arch_apertus  = ROW(apertus,  "ApertusForCausalLM",  RMS,   embed, apertus_layer, finish_apertus,
                                       HEADS(TOKENS, "Apertus"));
const proa_arch proa_arch_jais2    = ROW(jais2,    "Jais2ForCausalLM",    LAYER, embed, layer, finish_arcee, NO_HEADS);
const proa_arch proa_arch_nanochat =
    ROW(nanochat, "NanoChatForCausalLM", RMS, nanochat_embed, nanochat_layer, finish_nanochat, NO_HEADS);
/* clang-format on */
