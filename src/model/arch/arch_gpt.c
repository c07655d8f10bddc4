/* SPDX-License-Identifier: Apache-2.0
 * arch_gpt.c - GPT-2, StarCoder (GPT-BigCode), GPT-J, CodeGen, BLOOM, MPT: LayerNorm, plain FFN.
 * GPT-2 has learned positions and Conv1D weights ([in, out]). GPT-J has interleaved rotary positions on part of the
 * head, and attention and FFN in parallel on one norm. BLOOM and MPT have ALiBi; BLOOM stores q, k and v interleaved
 * by head, CodeGen in four blocks of q, v, k. StarCoder is GPT-2 with one key-value head. MPT may limit q, k and v; the
 * published models have no biases. Facts: transformers' modeling_{gpt2,gpt_bigcode,gptj,codegen,bloom,mpt}.py; biases,
 * grouped queries and logit_scale of MPT: MosaicML's llm-foundry, since transformers ignores these keys. */
#include "model/arch/arch_rows.h"

#include "base/limits.h"
#include <math.h>

#define STACK PROA_STACK_DECODER

/* clang-format off */
static const proa_key gpt2_keys[] = {
    REQUIRED  ("vocab_size",          vocab,   VOCAB),
    REQUIRED  ("n_embd",              hidden,  HIDDEN),
    REQUIRED  ("n_layer",             layers,  LAYERS),
    REQUIRED  ("n_head",              heads,   HEADS),
    INTEGER   ("n_inner",             ffn,     1, FFN,     0),
    INTEGER   ("n_positions",         context, 1, CONTEXT, 1024),
    EPSILON   ("layer_norm_epsilon",  1e-5),
    ACTIVATION("activation_function", GELU_TANH),
    SWITCH    ("tie_word_embeddings", tied,    1),
    END_KEYS};
static const proa_key gptj_keys[] = {
    REQUIRED  ("vocab_size",          vocab,      VOCAB),
    REQUIRED  ("n_embd",              hidden,     HIDDEN),
    REQUIRED  ("n_layer",             layers,     LAYERS),
    REQUIRED  ("n_head",              heads,      HEADS),
    INTEGER   ("n_inner",             ffn,        1, FFN,      0),
    INTEGER   ("n_positions",         context,    1, CONTEXT,  2048),
    INTEGER   ("rotary_dim",          rotary_dim, 2, HEAD_DIM, 64),
    EPSILON   ("layer_norm_epsilon",  1e-5),
    ACTIVATION("activation_function", GELU_TANH),
    SWITCH    ("tie_word_embeddings", tied,       0),
    END_KEYS};
/* The keys of GPT-2 and GPT-J; a key-value head for each query head unless multi_query. */
static const proa_key bigcode_keys[] = {
    REQUIRED  ("vocab_size",          vocab,   VOCAB),
    REQUIRED  ("n_embd",              hidden,  HIDDEN),
    REQUIRED  ("n_layer",             layers,  LAYERS),
    REQUIRED  ("n_head",              heads,   HEADS),
    INTEGER   ("n_inner",             ffn,     1, FFN,     0),
    INTEGER   ("n_positions",         context, 1, CONTEXT, 1024),
    EPSILON   ("layer_norm_epsilon",  1e-5),
    ACTIVATION("activation_function", GELU_TANH),
    SWITCH    ("tie_word_embeddings", tied,    1),
    END_KEYS};
/* Published files have either name of a size. ALiBi has no longest position: seq_length is the length in training. */
static const proa_key bloom_keys[] = {
    REQUIRED("vocab_size",          vocab,   VOCAB),
    INTEGER ("n_embed",             hidden,  1, HIDDEN,  0),
    INTEGER ("hidden_size",         hidden,  1, HIDDEN,  0),
    INTEGER ("num_hidden_layers",   layers,  1, LAYERS,  0),
    INTEGER ("n_layer",             layers,  1, LAYERS,  0),
    INTEGER ("num_attention_heads", heads,   1, HEADS,   0),
    INTEGER ("n_head",              heads,   1, HEADS,   0),
    INTEGER ("seq_length",          context, 1, CONTEXT, 2048),
    EPSILON ("layer_norm_epsilon",  1e-5),
    SWITCH  ("tie_word_embeddings", tied,    1),
    END_KEYS};
static const proa_key mpt_keys[] = {
    REQUIRED("vocab_size",          vocab,   VOCAB),
    REQUIRED("d_model",             hidden,  HIDDEN),
    REQUIRED("n_layers",            layers,  LAYERS),
    REQUIRED("n_heads",             heads,   HEADS),
    INTEGER ("max_seq_len",         context, 1, CONTEXT, 2048),
    EPSILON ("layer_norm_epsilon",  1e-5),
    SWITCH  ("tie_word_embeddings", tied,    1),
    END_KEYS};

static const proa_name gpt2_tensors[] = {
    TABLE     ("transformer.wte.weight",              TOKENS,       VOCAB,   HIDDEN),
    TABLE     ("transformer.wpe.weight",              POSITIONS,    CONTEXT, HIDDEN),
    VECTOR    ("transformer.h.%d.ln_1.weight",        ATTN_NORM,    HIDDEN),
    VECTOR    ("transformer.h.%d.ln_1.bias",          ATTN_NORM_B,  HIDDEN),
    TRANSPOSED("transformer.h.%d.attn.c_attn.weight", QKV,          QKV,     HIDDEN),
    VECTOR    ("transformer.h.%d.attn.c_attn.bias",   QKV_B,        QKV),
    TRANSPOSED("transformer.h.%d.attn.c_proj.weight", O,            HIDDEN,  Q),
    VECTOR    ("transformer.h.%d.attn.c_proj.bias",   O_B,          HIDDEN),
    VECTOR    ("transformer.h.%d.ln_2.weight",        FFN_NORM,     HIDDEN),
    VECTOR    ("transformer.h.%d.ln_2.bias",          FFN_NORM_B,   HIDDEN),
    TRANSPOSED("transformer.h.%d.mlp.c_fc.weight",    UP,           FFN,     HIDDEN),
    VECTOR    ("transformer.h.%d.mlp.c_fc.bias",      UP_B,         FFN),
    TRANSPOSED("transformer.h.%d.mlp.c_proj.weight",  DOWN,         HIDDEN,  FFN),
    VECTOR    ("transformer.h.%d.mlp.c_proj.bias",    DOWN_B,       HIDDEN),
    VECTOR    ("transformer.ln_f.weight",             FINAL_NORM,   HIDDEN),
    VECTOR    ("transformer.ln_f.bias",               FINAL_NORM_B, HIDDEN),
    TIED_HEAD ("transformer.wte.weight"),
    MATRIX_IF (UNTIED, "lm_head.weight",              HEAD,         VOCAB,   HIDDEN),
    END_TENSORS};
static const proa_name gptj_tensors[] = {
    TABLE    ("transformer.wte.weight",                TOKENS,       VOCAB,  HIDDEN),
    VECTOR   ("transformer.h.%d.ln_1.weight",          ATTN_NORM,    HIDDEN),
    VECTOR   ("transformer.h.%d.ln_1.bias",            ATTN_NORM_B,  HIDDEN),
    MATRIX   ("transformer.h.%d.attn.q_proj.weight",   QKV,          Q,      HIDDEN),
    MATRIX   ("transformer.h.%d.attn.k_proj.weight",   QKV,          KV,     HIDDEN),
    MATRIX   ("transformer.h.%d.attn.v_proj.weight",   QKV,          KV,     HIDDEN),
    MATRIX   ("transformer.h.%d.attn.out_proj.weight", O,            HIDDEN, Q),
    MATRIX   ("transformer.h.%d.mlp.fc_in.weight",     UP,           FFN,    HIDDEN),
    VECTOR   ("transformer.h.%d.mlp.fc_in.bias",       UP_B,         FFN),
    MATRIX   ("transformer.h.%d.mlp.fc_out.weight",    DOWN,         HIDDEN, FFN),
    VECTOR   ("transformer.h.%d.mlp.fc_out.bias",      DOWN_B,       HIDDEN),
    VECTOR   ("transformer.ln_f.weight",               FINAL_NORM,   HIDDEN),
    VECTOR   ("transformer.ln_f.bias",                 FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD("transformer.wte.weight"),
    VECTOR_IF(PRESENT, "lm_head.bias",                 HEAD_B,       VOCAB),
    END_TENSORS};
static const proa_name bigcode_tensors[] = {
    TABLE    ("transformer.wte.weight",                         TOKENS,       VOCAB,   HIDDEN),
    TABLE    ("transformer.wpe.weight",                         POSITIONS,    CONTEXT, HIDDEN),
    VECTOR   ("transformer.h.%d.ln_1.weight",                   ATTN_NORM,    HIDDEN),
    VECTOR   ("transformer.h.%d.ln_1.bias",                     ATTN_NORM_B,  HIDDEN),
    MATRIX_LOADED(QKV_GROUPS, "transformer.h.%d.attn.c_attn.weight", QKV,     QKV,     HIDDEN),
    VECTOR_LOADED(QKV_GROUPS, "transformer.h.%d.attn.c_attn.bias", QKV_B,     QKV),
    MATRIX   ("transformer.h.%d.attn.c_proj.weight",            O,            HIDDEN,  Q),
    VECTOR   ("transformer.h.%d.attn.c_proj.bias",              O_B,          HIDDEN),
    VECTOR   ("transformer.h.%d.ln_2.weight",                   FFN_NORM,     HIDDEN),
    VECTOR   ("transformer.h.%d.ln_2.bias",                     FFN_NORM_B,   HIDDEN),
    MATRIX   ("transformer.h.%d.mlp.c_fc.weight",               UP,           FFN,     HIDDEN),
    VECTOR   ("transformer.h.%d.mlp.c_fc.bias",                 UP_B,         FFN),
    MATRIX   ("transformer.h.%d.mlp.c_proj.weight",             DOWN,         HIDDEN,  FFN),
    VECTOR   ("transformer.h.%d.mlp.c_proj.bias",               DOWN_B,       HIDDEN),
    VECTOR   ("transformer.ln_f.weight",                        FINAL_NORM,   HIDDEN),
    VECTOR   ("transformer.ln_f.bias",                          FINAL_NORM_B, HIDDEN),
    TIED_HEAD("transformer.wte.weight"),
    MATRIX_IF(UNTIED, "lm_head.weight",                         HEAD,         VOCAB,   HIDDEN),
    END_TENSORS};
static const proa_name codegen_tensors[] = {
    TABLE    ("transformer.wte.weight",                TOKENS,       VOCAB,  HIDDEN),
    VECTOR   ("transformer.h.%d.ln_1.weight",          ATTN_NORM,    HIDDEN),
    VECTOR   ("transformer.h.%d.ln_1.bias",            ATTN_NORM_B,  HIDDEN),
    MATRIX_LOADED(QVK_QUARTERS, "transformer.h.%d.attn.qkv_proj.weight", QKV, QKV, HIDDEN),
    MATRIX   ("transformer.h.%d.attn.out_proj.weight", O,            HIDDEN, Q),
    MATRIX   ("transformer.h.%d.mlp.fc_in.weight",     UP,           FFN,    HIDDEN),
    VECTOR   ("transformer.h.%d.mlp.fc_in.bias",       UP_B,         FFN),
    MATRIX   ("transformer.h.%d.mlp.fc_out.weight",    DOWN,         HIDDEN, FFN),
    VECTOR   ("transformer.h.%d.mlp.fc_out.bias",      DOWN_B,       HIDDEN),
    VECTOR   ("transformer.ln_f.weight",               FINAL_NORM,   HIDDEN),
    VECTOR   ("transformer.ln_f.bias",                 FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD("transformer.wte.weight"),
    VECTOR_IF(PRESENT, "lm_head.bias",                 HEAD_B,       VOCAB),
    END_TENSORS};
static const proa_name bloom_tensors[] = {
    TABLE    ("transformer.word_embeddings.weight",                     TOKENS,       VOCAB,  HIDDEN),
    VECTOR   ("transformer.word_embeddings_layernorm.weight",           EMBED_NORM,   HIDDEN),
    VECTOR   ("transformer.word_embeddings_layernorm.bias",             EMBED_NORM_B, HIDDEN),
    VECTOR   ("transformer.h.%d.input_layernorm.weight",                ATTN_NORM,    HIDDEN),
    VECTOR   ("transformer.h.%d.input_layernorm.bias",                  ATTN_NORM_B,  HIDDEN),
    MATRIX_LOADED(QKV_GROUPS, "transformer.h.%d.self_attention.query_key_value.weight", QKV, QKV, HIDDEN),
    VECTOR_LOADED(QKV_GROUPS, "transformer.h.%d.self_attention.query_key_value.bias", QKV_B, QKV),
    MATRIX   ("transformer.h.%d.self_attention.dense.weight",           O,            HIDDEN, Q),
    VECTOR   ("transformer.h.%d.self_attention.dense.bias",             O_B,          HIDDEN),
    VECTOR   ("transformer.h.%d.post_attention_layernorm.weight",       FFN_NORM,     HIDDEN),
    VECTOR   ("transformer.h.%d.post_attention_layernorm.bias",         FFN_NORM_B,   HIDDEN),
    MATRIX   ("transformer.h.%d.mlp.dense_h_to_4h.weight",              UP,           FFN,    HIDDEN),
    VECTOR   ("transformer.h.%d.mlp.dense_h_to_4h.bias",                UP_B,         FFN),
    MATRIX   ("transformer.h.%d.mlp.dense_4h_to_h.weight",              DOWN,         HIDDEN, FFN),
    VECTOR   ("transformer.h.%d.mlp.dense_4h_to_h.bias",                DOWN_B,       HIDDEN),
    VECTOR   ("transformer.ln_f.weight",                                FINAL_NORM,   HIDDEN),
    VECTOR   ("transformer.ln_f.bias",                                  FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                                 HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD("transformer.word_embeddings.weight"),
    END_TENSORS};
static const proa_name mpt_tensors[] = {
    TABLE    ("transformer.wte.weight",                     TOKENS,     VOCAB,  HIDDEN),
    VECTOR   ("transformer.blocks.%d.norm_1.weight",        ATTN_NORM,  HIDDEN),
    MATRIX   ("transformer.blocks.%d.attn.Wqkv.weight",     QKV,        QKV,    HIDDEN),
    MATRIX   ("transformer.blocks.%d.attn.out_proj.weight", O,          HIDDEN, Q),
    VECTOR   ("transformer.blocks.%d.norm_2.weight",        FFN_NORM,   HIDDEN),
    MATRIX   ("transformer.blocks.%d.ffn.up_proj.weight",   UP,         FFN,    HIDDEN),
    MATRIX   ("transformer.blocks.%d.ffn.down_proj.weight", DOWN,       HIDDEN, FFN),
    VECTOR   ("transformer.norm_f.weight",                  FINAL_NORM, HIDDEN),
    VECTOR_IF(ATTN_BIAS, "transformer.blocks.%d.norm_1.bias",        ATTN_NORM_B,  HIDDEN),
    VECTOR_IF(ATTN_BIAS, "transformer.blocks.%d.attn.Wqkv.bias",     QKV_B,        QKV),
    VECTOR_IF(ATTN_BIAS, "transformer.blocks.%d.attn.out_proj.bias", O_B,          HIDDEN),
    VECTOR_IF(ATTN_BIAS, "transformer.blocks.%d.norm_2.bias",        FFN_NORM_B,   HIDDEN),
    VECTOR_IF(ATTN_BIAS, "transformer.blocks.%d.ffn.up_proj.bias",   UP_B,         FFN),
    VECTOR_IF(ATTN_BIAS, "transformer.blocks.%d.ffn.down_proj.bias", DOWN_B,       HIDDEN),
    VECTOR_IF(ATTN_BIAS, "transformer.norm_f.bias",                  FINAL_NORM_B, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                     HEAD,       VOCAB,  HIDDEN),
    TIED_HEAD("transformer.wte.weight"),
    END_TENSORS};
static const char *const prefixes[] = {"transformer.", NULL};
static const char *const ignored[] = {"attn.bias", "attn.masked_bias", "lm_head.weight", NULL};

static const proa_step gpt2_embed[] = {EMBED(TOKENS), EMBED_TO(X, POSITIONS, OF_POS | ADD), END};
static const proa_step gpt2_layer[] = {
    NORM  (X, N,   ATTN_NORM),
    LINEAR(N, QKV, QKV,  0),
    CLIP_IF(CLIPPED),
    KV_APPEND,
    ATTEND,
    LINEAR(A, X,   O,    ADD),
    NORM  (X, N,   FFN_NORM),
    LINEAR(N, U,   UP,   ACT),
    LINEAR(U, X,   DOWN, ADD),
    END};
static const proa_step gptj_embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step gptj_layer[] = {
    NORM  (X, N,   ATTN_NORM),
    LINEAR(N, U,   UP,   ACT | FORK),
    LINEAR(N, QKV, QKV,  0),
    ROTATE_PAIRS,
    KV_APPEND,
    ATTEND,
    LINEAR(A, X,   O,    ADD),
    LINEAR(U, X,   DOWN, ADD | JOIN),
    END};
static const proa_step bloom_embed[] = {EMBED(TOKENS), NORM(X, X, EMBED_NORM), END};
static const proa_step mpt_embed[] = {EMBED(TOKENS), END};
static const proa_step head[] = {LM_HEAD(0)};
static const proa_step scaled_head[] = {LM_HEAD(SCALED)};
/* clang-format on */

static proa_status refuse_switch(const proa_json *json, const char *key, bool must_be, proa_err *err)
{
    bool value = must_be;
    PROA_TRY(proa_json_get_bool(&value, json, key, err));
    if (value == must_be) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' %s is not supported", key, value ? "true" : "false");
}

static proa_status finish_gpt(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    if (c->ffn == 0) c->ffn = 4 * c->hidden;
    c->rope.theta = 10000;
    PROA_TRY(refuse_switch(json, "add_cross_attention", false, err));
    return refuse_switch(json, "scale_attn_weights", true, err);
}

/* Scores may be divided by the number of the layer (Stanford's CRFM models), or by nothing. Whether that is done before
 * the product (reorder_and_upcast_attn) is the same in f32. */
static proa_status finish_gpt2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool scaled = true;
    PROA_UNUSED(arena);
    if (c->ffn == 0) c->ffn = 4 * c->hidden;
    PROA_TRY(proa_json_get_bool(&scaled, json, "scale_attn_weights", err));
    if (!scaled) c->attention_scale = 1;
    PROA_TRY(proa_json_get_bool(&c->layer_scaled, json, "scale_attn_by_inverse_layer_idx", err));
    return refuse_switch(json, "add_cross_attention", false, err);
}

/* One key-value head for all query heads, or one for each. */
static proa_status finish_bigcode(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool multi_query = true;
    PROA_TRY(proa_json_get_bool(&multi_query, json, "multi_query", err));
    c->kv_heads = multi_query ? 1 : c->heads;
    return finish_gpt(c, json, arena, err);
}

static proa_status finish_codegen(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (c->heads % 4 != 0)
        return PROA_FAIL(err, INVALID, "'n_head' is %lld, must be a multiple of 4", (long long)c->heads);
    return finish_gpt(c, json, arena, err);
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
    return refuse_switch(json, "apply_residual_connection_post_layernorm", false, err);
}

/* Rejects a key whose value is anything but null or false. */
static proa_status refuse_set(const proa_json *json, const char *key, proa_err *err)
{
    const proa_json *value = proa_json_get(json, key);
    if (!value || (proa_json_kind(value) == PROA_JSON_BOOL && !proa_json_bool(value))) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' is set: not supported", key);
}

/* A number, or "inv_sqrt_d_model"; null: 1. */
static proa_status read_logit_scale(proa_config *c, const proa_json *json, proa_err *err)
{
    const proa_json *value = proa_json_get(json, "logit_scale");
    if (proa_json_kind(value) != PROA_JSON_STRING)
        return proa_json_get_double(&c->logit_scale, json, "logit_scale", 1e-6, 1e6, err);
    proa_str name = proa_json_str(value);
    if (!proa_str_is(name, "inv_sqrt_d_model"))
        return PROA_FAIL(err, INVALID, "'logit_scale' '%.*s' is neither a number nor inv_sqrt_d_model",
                         (int)name.len, name.ptr);
    c->logit_scale = 1 / sqrt((double)c->hidden);
    return PROA_OK;
}

static proa_status read_mpt_heads(proa_config *c, const proa_json *attention, proa_err *err)
{
    proa_str type = {"multihead_attention", 19};
    PROA_TRY(proa_json_get_str(&type, attention, "attn_type", err));
    if (proa_str_is(type, "multihead_attention")) return PROA_OK;
    if (proa_str_is(type, "multiquery_attention")) {
        c->kv_heads = 1;
        return PROA_OK;
    }
    if (proa_str_is(type, "grouped_query_attention"))
        return proa_json_get_int(&c->kv_heads, attention, "kv_n_heads", 1, PROA_HEADS_MAX, err);
    return PROA_FAIL(err, UNSUPPORTED, "'attn_type' '%.*s' is not supported", (int)type.len, type.ptr);
}

static proa_status finish_mpt(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const char *const none[] = {"qk_ln", "qk_gn", "prefix_lm", "rope"};
    const proa_json *attention = proa_json_get(json, "attn_config");
    bool bare = true;
    int64_t ratio = 4;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_int(&ratio, json, "expansion_ratio", 1, 64, err));
    c->ffn = ratio * c->hidden;
    c->act = PROA_ACT_GELU;
    c->alibi_max = 8;
    PROA_TRY(proa_json_get_bool(&bare, json, "no_bias", err));
    c->attention_bias = !bare;
    PROA_TRY(read_logit_scale(c, json, err));
    PROA_TRY(refuse_switch(attention, "alibi", true, err));
    for (size_t i = 0; i < PROA_COUNT(none); i++) PROA_TRY(refuse_set(attention, none[i], err));
    PROA_TRY(read_mpt_heads(c, attention, err));
    PROA_TRY(proa_json_get_double(&c->qkv_clip, attention, "clip_qkv", 0, 1e30, err));
    PROA_TRY(proa_json_get_double(&c->alibi_max, attention, "alibi_bias_max", 1e-3, 1e3, err));
    return proa_json_get_double(&c->attention_scale, attention, "softmax_scale", 1e-6, 1e6, err);
}

/* clang-format off */
#define ROW(type, class, keylist, tensors, embed, layer, headsteps, finisher, heads)               \
    {.name = type, .model_type = type, .hf = class, DECODER(LAYER), .keys = keylist,               \
     .names = tensors, .prefixes = prefixes, .ignored = ignored,                                   \
     .stacks = {CAUSAL(embed, layer)}, .head = headsteps, .finish = finisher, heads}

const proa_arch proa_arch_gpt2 =
    ROW("gpt2", STRINGS("GPT2LMHeadModel"), gpt2_keys, gpt2_tensors, gpt2_embed, gpt2_layer, head, finish_gpt2,
        HEADS(TEXTS | TOKENS | SPANS, "GPT2"));
const proa_arch proa_arch_gptj =
    ROW("gptj", STRINGS("GPTJForCausalLM"), gptj_keys, gptj_tensors, gptj_embed, gptj_layer, head, finish_gpt,
        HEADS(TEXTS | SPANS, "GPTJ"));
const proa_arch proa_arch_gpt_bigcode = ROW("gpt_bigcode", STRINGS("GPTBigCodeForCausalLM"), bigcode_keys,
                                            bigcode_tensors, gpt2_embed, gpt2_layer, head, finish_bigcode,
                                            HEADS(TEXTS | TOKENS, "GPTBigCode"));
const proa_arch proa_arch_codegen = ROW("codegen", STRINGS("CodeGenForCausalLM"), gptj_keys, codegen_tensors,
                                        gptj_embed, gptj_layer, head, finish_codegen, NO_HEADS);
const proa_arch proa_arch_bloom = ROW("bloom", STRINGS("BloomForCausalLM"), bloom_keys, bloom_tensors,
                                      bloom_embed, gpt2_layer, head, finish_bloom,
                                      HEADS(TEXTS | TOKENS | SPANS, "Bloom"));
const proa_arch proa_arch_mpt = ROW("mpt", STRINGS("MptForCausalLM", "MPTForCausalLM"), mpt_keys, mpt_tensors,
                                    mpt_embed, gpt2_layer, scaled_head, finish_mpt,
                                    HEADS(TEXTS | TOKENS | SPANS, "Mpt"));
/* clang-format on */
