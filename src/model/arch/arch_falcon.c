/* SPDX-License-Identifier: Apache-2.0
 * arch_falcon.c - GPT-NeoX (Pythia), GPT-NeoX Japanese, Persimmon and Falcon: q, k and v of a key-value head stored
 * side by side. GPT-NeoX rotates a part of the head and runs attention and FFN in parallel, each on its own norm, or
 * one after the other, as the Japanese one and Persimmon do; Persimmon norms the heads of q and k. Falcon has all
 * variants: 7B one norm for both, 40B and 180B a norm for each, RW ALiBi and no parallel FFN. The slopes of Falcon's
 * ALiBi are scaled with the scores. Facts: transformers'
 * modeling_{gpt_neox,gpt_neox_japanese,persimmon,fuyu,falcon}.py. */
#include "model/arch/arch_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER

/* clang-format off */
static const proa_key neox_keys[] = {
    SIZE_KEYS (layers),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 2048),
    EPSILON   ("layer_norm_eps",          1e-5),
    ACTIVATION("hidden_act",              GELU),
    SWITCH    ("use_parallel_residual",   parallel,       1),
    SWITCH    ("attention_bias",          attention_bias, 1),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    END_KEYS};
static const proa_key falcon_keys[] = {
    REQUIRED  ("vocab_size",               vocab,          VOCAB),
    REQUIRED  ("hidden_size",              hidden,         HIDDEN),
    INTEGER   ("n_layer",                  layers,         1, LAYERS,  0),
    INTEGER   ("num_hidden_layers",        layers,         1, LAYERS,  0),
    INTEGER   ("n_head",                   heads,          1, HEADS,   0),
    INTEGER   ("num_attention_heads",      heads,          1, HEADS,   0),
    INTEGER   ("ffn_hidden_size",          ffn,            1, FFN,     0),
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT, 2048),
    EPSILON   ("layer_norm_epsilon",       1e-5),
    ACTIVATION("activation",               GELU),
    SWITCH    ("parallel_attn",            parallel,       1),
    SWITCH    ("bias",                     attention_bias, 0),
    SWITCH    ("tie_word_embeddings",      tied,           1),
    END_KEYS};

#define NEOX_SIZES \
    REQUIRED  ("vocab_size",              vocab,          VOCAB),            \
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),           \
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),           \
    REQUIRED  ("num_attention_heads",     heads,          HEADS),            \
    EPSILON   ("layer_norm_eps",          1e-5)
static const proa_key japanese_keys[] = {
    NEOX_SIZES,
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 2048),
    ACTIVATION("hidden_act",              GELU),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};
static const proa_key persimmon_keys[] = {
    NEOX_SIZES,
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 16384),
    ACTIVATION("hidden_act",              RELU2),
    SWITCH    ("qk_layernorm",            qk_norm,        1),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    END_KEYS};

static const proa_name neox_tensors[] = {
    TABLE    ("gpt_neox.embed_in.weight",                                  TOKENS,       VOCAB,  HIDDEN),
    VECTOR   ("gpt_neox.layers.%d.input_layernorm.weight",                 ATTN_NORM,    HIDDEN),
    VECTOR   ("gpt_neox.layers.%d.input_layernorm.bias",                   ATTN_NORM_B,  HIDDEN),
    MATRIX_LOADED(QKV_GROUPS, "gpt_neox.layers.%d.attention.query_key_value.weight", QKV, QKV, HIDDEN),
    VECTOR_LOADED_IF(ATTN_BIAS, QKV_GROUPS, "gpt_neox.layers.%d.attention.query_key_value.bias", QKV_B, QKV),
    MATRIX   ("gpt_neox.layers.%d.attention.dense.weight",                 O,            HIDDEN, Q),
    VECTOR_IF(ATTN_BIAS, "gpt_neox.layers.%d.attention.dense.bias",        O_B,          HIDDEN),
    VECTOR   ("gpt_neox.layers.%d.post_attention_layernorm.weight",        FFN_NORM,     HIDDEN),
    VECTOR   ("gpt_neox.layers.%d.post_attention_layernorm.bias",          FFN_NORM_B,   HIDDEN),
    MATRIX   ("gpt_neox.layers.%d.mlp.dense_h_to_4h.weight",               UP,           FFN,    HIDDEN),
    VECTOR   ("gpt_neox.layers.%d.mlp.dense_h_to_4h.bias",                 UP_B,         FFN),
    MATRIX   ("gpt_neox.layers.%d.mlp.dense_4h_to_h.weight",               DOWN,         HIDDEN, FFN),
    VECTOR   ("gpt_neox.layers.%d.mlp.dense_4h_to_h.bias",                 DOWN_B,       HIDDEN),
    VECTOR   ("gpt_neox.final_layer_norm.weight",                          FINAL_NORM,   HIDDEN),
    VECTOR   ("gpt_neox.final_layer_norm.bias",                            FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "embed_out.weight",                                  HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD("gpt_neox.embed_in.weight"),
    END_TENSORS};
#define JAPANESE "gpt_neox_japanese."
#define LAYER_NORMS(M) \
    VECTOR   (M "layers.%d.input_layernorm.weight",                        ATTN_NORM,    HIDDEN), \
    VECTOR   (M "layers.%d.input_layernorm.bias",                          ATTN_NORM_B,  HIDDEN), \
    VECTOR   (M "layers.%d.post_attention_layernorm.weight",               FFN_NORM,     HIDDEN), \
    VECTOR   (M "layers.%d.post_attention_layernorm.bias",                 FFN_NORM_B,   HIDDEN)
#define BLOCK_MATRICES(M, attention) \
    MATRIX_LOADED(QKV_GROUPS, M "layers.%d." attention ".query_key_value.weight", QKV,   QKV,    HIDDEN), \
    MATRIX   (M "layers.%d." attention ".dense.weight",                    O,            HIDDEN, Q),      \
    MATRIX   (M "layers.%d.mlp.dense_h_to_4h.weight",                      UP,           FFN,    HIDDEN), \
    MATRIX   (M "layers.%d.mlp.dense_4h_to_h.weight",                      DOWN,         HIDDEN, FFN)
/* Of the last layer alone attention has a bias. */
static const proa_name japanese_tensors[] = {
    TABLE    (JAPANESE "embed_in.weight",                                  TOKENS,       VOCAB,  HIDDEN),
    LAYER_NORMS(JAPANESE),
    BLOCK_MATRICES(JAPANESE, "attention"),
    VECTOR_IF(PRESENT, JAPANESE "layers.%d.attention.dense_bias",          O_B,          HIDDEN),
    VECTOR   (JAPANESE "final_layer_norm.weight",                          FINAL_NORM,   HIDDEN),
    VECTOR   (JAPANESE "final_layer_norm.bias",                            FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "embed_out.weight",                                  HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD(JAPANESE "embed_in.weight"),
    END_TENSORS};
static const proa_name persimmon_tensors[] = {
    TABLE    ("model.embed_tokens.weight",                                 TOKENS,       VOCAB,  HIDDEN),
    LAYER_NORMS("model."),
    BLOCK_MATRICES("model.", "self_attn"),
    VECTOR_LOADED(QKV_GROUPS, "model.layers.%d.self_attn.query_key_value.bias", QKV_B,   QKV),
    VECTOR   ("model.layers.%d.self_attn.dense.bias",                      O_B,          HIDDEN),
    VECTOR_IF(QK_NORM, "model.layers.%d.self_attn.q_layernorm.weight",     Q_NORM,       HEAD),
    VECTOR_IF(QK_NORM, "model.layers.%d.self_attn.q_layernorm.bias",       Q_NORM_B,     HEAD),
    VECTOR_IF(QK_NORM, "model.layers.%d.self_attn.k_layernorm.weight",     K_NORM,       HEAD),
    VECTOR_IF(QK_NORM, "model.layers.%d.self_attn.k_layernorm.bias",       K_NORM_B,     HEAD),
    VECTOR   ("model.layers.%d.mlp.dense_h_to_4h.bias",                    UP_B,         FFN),
    VECTOR   ("model.layers.%d.mlp.dense_4h_to_h.bias",                    DOWN_B,       HIDDEN),
    VECTOR   ("model.final_layernorm.weight",                              FINAL_NORM,   HIDDEN),
    VECTOR   ("model.final_layernorm.bias",                                FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                                    HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    END_TENSORS};
/* With two norms in parallel they are ln_attn and ln_mlp, else input_layernorm and, one after the other,
 * post_attention_layernorm: the row binds those that there are. */
static const proa_name falcon_tensors[] = {
    TABLE    ("transformer.word_embeddings.weight",                           TOKENS,       VOCAB,  HIDDEN),
    VECTOR_IF(NORM_EACH, "transformer.h.%d.ln_attn.weight",                   ATTN_NORM,    HIDDEN),
    VECTOR_IF(NORM_EACH, "transformer.h.%d.ln_attn.bias",                     ATTN_NORM_B,  HIDDEN),
    VECTOR_IF(NORM_EACH, "transformer.h.%d.ln_mlp.weight",                    FFN_NORM,     HIDDEN),
    VECTOR_IF(NORM_EACH, "transformer.h.%d.ln_mlp.bias",                      FFN_NORM_B,   HIDDEN),
    VECTOR_IF(ONE_NORM, "transformer.h.%d.input_layernorm.weight",            ATTN_NORM,    HIDDEN),
    VECTOR_IF(ONE_NORM, "transformer.h.%d.input_layernorm.bias",              ATTN_NORM_B,  HIDDEN),
    VECTOR_IF(SEQUENTIAL, "transformer.h.%d.input_layernorm.weight",          ATTN_NORM,    HIDDEN),
    VECTOR_IF(SEQUENTIAL, "transformer.h.%d.input_layernorm.bias",            ATTN_NORM_B,  HIDDEN),
    VECTOR_IF(SEQUENTIAL, "transformer.h.%d.post_attention_layernorm.weight", FFN_NORM,     HIDDEN),
    VECTOR_IF(SEQUENTIAL, "transformer.h.%d.post_attention_layernorm.bias",   FFN_NORM_B,   HIDDEN),
    MATRIX_LOADED(QKV_GROUPS, "transformer.h.%d.self_attention.query_key_value.weight", QKV, QKV, HIDDEN),
    VECTOR_LOADED_IF(ATTN_BIAS, QKV_GROUPS, "transformer.h.%d.self_attention.query_key_value.bias", QKV_B, QKV),
    MATRIX   ("transformer.h.%d.self_attention.dense.weight",                 O,            HIDDEN, Q),
    VECTOR_IF(ATTN_BIAS, "transformer.h.%d.self_attention.dense.bias",        O_B,          HIDDEN),
    MATRIX   ("transformer.h.%d.mlp.dense_h_to_4h.weight",                    UP,           FFN,    HIDDEN),
    VECTOR_IF(ATTN_BIAS, "transformer.h.%d.mlp.dense_h_to_4h.bias",           UP_B,         FFN),
    MATRIX   ("transformer.h.%d.mlp.dense_4h_to_h.weight",                    DOWN,         HIDDEN, FFN),
    VECTOR_IF(ATTN_BIAS, "transformer.h.%d.mlp.dense_4h_to_h.bias",           DOWN_B,       HIDDEN),
    VECTOR   ("transformer.ln_f.weight",                                      FINAL_NORM,   HIDDEN),
    VECTOR   ("transformer.ln_f.bias",                                        FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                                       HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD("transformer.word_embeddings.weight"),
    END_TENSORS};
/* Buffers of older files. Files of tied models may hold the head a second time. */
static const char *const ignored[] = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq",
                                      "lm_head.weight", NULL};
static const char *const prefixes[] = {"gpt_neox.", "transformer.", NULL};
/* As torch.save writes the state_dict of transformers 5. */
static const char *const aliases[] = {"embed_out.weight", "lm_head.weight", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE_IF(ROTARY), END};
/* In parallel the FFN reads the layer's input before attention adds to it. */
static const proa_step layer[] = {
    NORM_IF  (NORM_EACH, X, N, FFN_NORM),
    LINEAR   (N, U,   UP,   ACT | IF(NORM_EACH)),
    NORM     (X, N,   ATTN_NORM),
    LINEAR   (N, U,   UP,   ACT | FORK | IF(ONE_NORM)),
    LINEAR   (N, QKV, QKV,  0),
    Q_NORM_IF(QK_NORM, Q_NORM),
    K_NORM_IF(QK_NORM, K_NORM),
    ROTATE_IF(ROTARY),
    KV_APPEND,
    ATTEND,
    LINEAR   (A, X,   O,    ADD),
    NORM_IF  (SEQUENTIAL, X, N, FFN_NORM),
    LINEAR   (N, U,   UP,   ACT | IF(SEQUENTIAL)),
    LINEAR   (U, X,   DOWN, ADD | JOIN),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* part: of a head that is rotated where the file does not say it. */
static proa_status read_rotary(proa_config *c, const proa_json *json, double part, proa_arena *arena,
                               proa_err *err)
{
    PROA_TRY(proa_json_get_double(&part, json, "rotary_pct", 0, 1, err));
    PROA_TRY(proa_json_get_double(&c->rope.theta, json, "rotary_emb_base", 1, 1e12, err));
    PROA_TRY(proa_config_read_rotary_dim(c, json, part, err));
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_neox(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    return read_rotary(c, json, 0.25, arena, err);
}

static proa_status finish_japanese(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t multiple = 4;
    PROA_TRY(proa_json_get_int(&multiple, json, "intermediate_multiple_size", 1, 64, err));
    c->ffn = multiple * c->hidden;
    return read_rotary(c, json, 1, arena, err);
}

static proa_status finish_persimmon(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    return read_rotary(c, json, 0.5, arena, err);
}

/* How many key-value heads there are, and how many norms, by the generation of the model. The first files of
 * Falcon-40B name it by their type. */
static proa_status read_generation(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str type = {"", 0};
    int64_t norms = 0;
    PROA_TRY(proa_json_get_str(&type, json, "model_type", err));
    bool newer = proa_str_is(type, "RefinedWeb"), multi_query = true;
    PROA_TRY(proa_json_get_bool(&newer, json, "new_decoder_architecture", err));
    PROA_TRY(proa_json_get_bool(&multi_query, json, "multi_query", err));
    PROA_TRY(proa_json_get_int(&c->kv_heads, json, "n_head_kv", 1, PROA_HEADS_MAX, err));
    PROA_TRY(proa_json_get_int(&c->kv_heads, json, "num_kv_heads", 1, PROA_HEADS_MAX, err));
    PROA_TRY(proa_json_get_int(&norms, json, "num_ln_in_parallel_attn", 1, 2, err));
    if (!newer) c->kv_heads = multi_query ? 1 : c->heads;
    if (newer) c->parallel = true;
    c->one_norm = c->parallel && (norms ? norms == 1 : !newer);
    return PROA_OK;
}

/* The slopes are divided by the square root of the head size, as the scores are. transformers' eager attention adds
 * them twice, once with the scores and once in the mask (modeling_falcon.py, 4.57 and 5.17); its default, sdpa, and vLLM
 * add them once. A configuration that names the eager attention gets its outputs. */
static proa_status read_alibi(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str attention = {"sdpa", 4};
    PROA_TRY(proa_json_get_str(&attention, json, "_attn_implementation", err));
    int64_t head_dim = c->hidden / c->heads;
    c->alibi_max = 8;
    c->alibi_scale = (proa_str_is(attention, "eager") ? 2 : 1) / sqrt((double)head_dim);
    return PROA_OK;
}

static proa_status finish_falcon(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool alibi = false;
    if (!c->layers || !c->heads)
        return PROA_FAIL(err, INVALID, "'%s' is missing",
                         c->layers ? "num_attention_heads" : "num_hidden_layers");
    PROA_TRY(read_generation(c, json, err));
    PROA_TRY(proa_json_get_bool(&alibi, json, "alibi", err));
    if (c->ffn == 0) c->ffn = 4 * c->hidden;
    if (alibi) return read_alibi(c, json, err);
    c->rotary_dim = c->hidden / c->heads;
    return proa_config_read_rope(c, json, arena, err);
}

/* Fuyu: a Persimmon beside a product of patches of images. */
static const char *const fuyu_aliases[] = {
    "model.",   "language_model.model.",   "model.", "model.language_model.",
    "lm_head.", "language_model.lm_head.", NULL};
static const char *const fuyu_unused[] = {"vision_embed_tokens.", "model.vision_embed_tokens.", NULL};

/* clang-format off */
#define ROW(type, class, keylist, tensors, finisher, heads)                                     \
    {.name = type, .model_type = type, .hf = class, DECODER(LAYER), .keys = keylist,            \
     .names = tensors, .prefixes = prefixes, .aliases = aliases, .ignored = ignored,            \
     .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finisher, heads}

const proa_arch proa_arch_gpt_neox =
    ROW("gpt_neox", STRINGS("GPTNeoXForCausalLM"), neox_keys, neox_tensors, finish_neox,
        HEADS(TEXTS | TOKENS | SPANS, "GPTNeoX"));
const proa_arch proa_arch_gpt_neox_japanese =
    ROW("gpt_neox_japanese", STRINGS("GPTNeoXJapaneseForCausalLM"), japanese_keys, japanese_tensors, finish_japanese,
        NO_HEADS);
const proa_arch proa_arch_persimmon =
    ROW("persimmon", STRINGS("PersimmonForCausalLM"), persimmon_keys, persimmon_tensors, finish_persimmon,
        HEADS(TEXTS | TOKENS, "Persimmon"));
const proa_arch proa_arch_fuyu =
    {.name = "fuyu", .model_type = "fuyu", .hf = STRINGS("FuyuForCausalLM"), DECODER(LAYER), .keys = persimmon_keys,
     .names = persimmon_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head,
     .finish = finish_persimmon, .text_config = "text_config", .prefix_aliases = fuyu_aliases,
     .unused_parts = fuyu_unused};
const proa_arch proa_arch_falcon =
    ROW("falcon", STRINGS("FalconForCausalLM", "RWForCausalLM"), falcon_keys, falcon_tensors, finish_falcon,
        HEADS(TEXTS | TOKENS | SPANS, "Falcon"));
/* clang-format on */
