/* SPDX-License-Identifier: Apache-2.0
 * arch_gemma.c - Gemma 1, 2 and 3, VaultGemma: RMS norms of 1 + w, gated tanh-GELU, embeddings multiplied by
 * sqrt(hidden). Gemma 2 also norms what attention and FFN give, soft-caps scores and logits, and has a window in every
 * second layer; VaultGemma is Gemma 2 without the norms of what they give. Gemma 3 norms the heads of q and k instead
 * of capping, and has a window in five of six layers, which have rotary frequencies of their own; EmbeddingGemma is one
 * that sees both sides. Its multimodal checkpoints are read as text models. T5Gemma is two stacks of
 * Gemma 2, of which the encoder sees both sides, also within its windows. Facts: transformers'
 * modeling_{gemma,gemma2,gemma3,vaultgemma,t5gemma}.py; Gemma Team 2024, 2025; Zhang et al. 2025. */
#include "model/arch/llama_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER

/* clang-format off */
#define KEYS(CONTEXT_DEFAULT, KV_DEFAULT, HEADS_DEFAULT, VOCAB_DEFAULT) \
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),                \
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),                \
    REQUIRED  ("intermediate_size",       ffn,            FFN),                   \
    INTEGER   ("vocab_size",              vocab,          1, VOCAB,    VOCAB_DEFAULT), \
    INTEGER   ("num_attention_heads",     heads,          1, HEADS,    HEADS_DEFAULT), \
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    KV_DEFAULT), \
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 256),      \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  CONTEXT_DEFAULT), \
    EPSILON   ("rms_norm_eps",            1e-6),                                  \
    ACTIVATION("hidden_activation",       GELU_TANH),                             \
    SWITCH    ("tie_word_embeddings",     tied,           1),                     \
    SWITCH    ("attention_bias",          attention_bias, 0),                     \
    PAD       (0),                                                                \
    END_KEYS
static const proa_key gemma_keys[]  = {KEYS(8192,   16, 16, 256000)};
static const proa_key gemma2_keys[] = {KEYS(8192,   4,  8,  256000)};
static const proa_key gemma3_keys[] = {KEYS(131072, 4,  8,  262208)};

/* P: what stands before "model." in the names of the checkpoint. */
#define BODY_TENSORS(P) \
    TABLE    (P "model.embed_tokens.weight",                         TOKENS,     VOCAB,  HIDDEN), \
    VECTOR_1 (P "model.layers.%d.input_layernorm.weight",            ATTN_NORM,  HIDDEN),         \
    MATRIX   (P "model.layers.%d.self_attn.q_proj.weight",           QKV,        Q,      HIDDEN), \
    MATRIX   (P "model.layers.%d.self_attn.k_proj.weight",           QKV,        KV,     HIDDEN), \
    MATRIX   (P "model.layers.%d.self_attn.v_proj.weight",           QKV,        KV,     HIDDEN), \
    VECTOR_IF(ATTN_BIAS, P "model.layers.%d.self_attn.q_proj.bias",  QKV_B,      Q),              \
    VECTOR_IF(ATTN_BIAS, P "model.layers.%d.self_attn.k_proj.bias",  QKV_B,      KV),             \
    VECTOR_IF(ATTN_BIAS, P "model.layers.%d.self_attn.v_proj.bias",  QKV_B,      KV),             \
    MATRIX   (P "model.layers.%d.self_attn.o_proj.weight",           O,          HIDDEN, Q),      \
    VECTOR_IF(ATTN_BIAS, P "model.layers.%d.self_attn.o_proj.bias",  O_B,        HIDDEN),         \
    MATRIX   (P "model.layers.%d.mlp.gate_proj.weight",              UP,         FFN,    HIDDEN), \
    MATRIX   (P "model.layers.%d.mlp.up_proj.weight",                UP,         FFN,    HIDDEN), \
    MATRIX   (P "model.layers.%d.mlp.down_proj.weight",              DOWN,       HIDDEN, FFN),    \
    VECTOR_1 (P "model.norm.weight",                                 FINAL_NORM, HIDDEN)
#define COMMON_TENSORS(P) \
    BODY_TENSORS(P),                                                                              \
    MATRIX_IF(UNTIED, P "lm_head.weight",                            HEAD,       VOCAB,  HIDDEN), \
    TIED_HEAD(P "model.embed_tokens.weight")
#define NORMS_AROUND(P) \
    VECTOR_1 (P "model.layers.%d.post_attention_layernorm.weight",   ATTN_OUT_NORM, HIDDEN), \
    VECTOR_1 (P "model.layers.%d.pre_feedforward_layernorm.weight",  FFN_NORM,      HIDDEN), \
    VECTOR_1 (P "model.layers.%d.post_feedforward_layernorm.weight", FFN_OUT_NORM,  HIDDEN)

#define NORM_BEFORE_FFN \
    VECTOR_1 ("model.layers.%d.post_attention_layernorm.weight",     FFN_NORM,      HIDDEN)
#define HEAD_NORMS(P) \
    VECTOR_1 (P "model.layers.%d.self_attn.q_norm.weight",           Q_NORM,        HEAD), \
    VECTOR_1 (P "model.layers.%d.self_attn.k_norm.weight",           K_NORM,        HEAD)

static const proa_name gemma_tensors[] = {COMMON_TENSORS(""), NORM_BEFORE_FFN, END_TENSORS};
static const proa_name gemma2_tensors[] = {
    COMMON_TENSORS(""),
    NORMS_AROUND  (""),
    END_TENSORS};
/* The layers of a stack of T5Gemma. L: what the names of a layer begin with. */
#define T5GEMMA_PROJECTIONS(L, Q_SLOT, KV_SLOT, O_SLOT) \
    MATRIX   (L "q_proj.weight",                     Q_SLOT,        Q,       HIDDEN),  \
    MATRIX   (L "k_proj.weight",                     KV_SLOT,       KV,      HIDDEN),  \
    MATRIX   (L "v_proj.weight",                     KV_SLOT,       KV,      HIDDEN),  \
    MATRIX   (L "o_proj.weight",                     O_SLOT,        HIDDEN,  Q),       \
    VECTOR_IF(ATTN_BIAS, L "q_proj.bias",            Q_SLOT##_B,    Q),                \
    VECTOR_IF(ATTN_BIAS, L "k_proj.bias",            KV_SLOT##_B,   KV),               \
    VECTOR_IF(ATTN_BIAS, L "v_proj.bias",            KV_SLOT##_B,   KV),               \
    VECTOR_IF(ATTN_BIAS, L "o_proj.bias",            O_SLOT##_B,    HIDDEN)
#define T5GEMMA_STACK(P, L, FFN_DIM) \
    TABLE    (P "embed_tokens.weight",               TOKENS,        VOCAB,   HIDDEN),  \
    T5GEMMA_PROJECTIONS(L "self_attn.", QKV, QKV, O),                                  \
    VECTOR_1 (L "pre_self_attn_layernorm.weight",    ATTN_NORM,     HIDDEN),           \
    VECTOR_1 (L "post_self_attn_layernorm.weight",   ATTN_OUT_NORM, HIDDEN),           \
    MATRIX   (L "mlp.gate_proj.weight",              UP,            FFN_DIM, HIDDEN),  \
    MATRIX   (L "mlp.up_proj.weight",                UP,            FFN_DIM, HIDDEN),  \
    MATRIX   (L "mlp.down_proj.weight",              DOWN,          HIDDEN,  FFN_DIM), \
    VECTOR_1 (L "pre_feedforward_layernorm.weight",  FFN_NORM,      HIDDEN),           \
    VECTOR_1 (L "post_feedforward_layernorm.weight", FFN_OUT_NORM,  HIDDEN),           \
    VECTOR_1 (P "norm.weight",                       FINAL_NORM,    HIDDEN)
#define T5GEMMA_LAYER "model.decoder.layers.%d."
static const proa_name t5gemma_tensors[] = {
#undef STACK
#define STACK PROA_STACK_ENCODER
    T5GEMMA_STACK("model.encoder.", "model.encoder.layers.%d.", ENCODER_FFN),
#undef STACK
#define STACK PROA_STACK_DECODER
    T5GEMMA_STACK("model.decoder.", T5GEMMA_LAYER, FFN),
    T5GEMMA_PROJECTIONS(T5GEMMA_LAYER "cross_attn.", CROSS_Q, CROSS_KV, CROSS_O),
    VECTOR_1 (T5GEMMA_LAYER "pre_cross_attn_layernorm.weight",  CROSS_NORM,     HIDDEN),
    VECTOR_1 (T5GEMMA_LAYER "post_cross_attn_layernorm.weight", CROSS_OUT_NORM, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.out_proj.weight",                HEAD,           VOCAB,  HIDDEN),
    TIED_HEAD("model.decoder.embed_tokens.weight"),
    END_TENSORS};
static const proa_name vaultgemma_tensors[] = {
    COMMON_TENSORS(""),
    VECTOR_1 ("model.layers.%d.pre_feedforward_layernorm.weight",    FFN_NORM,      HIDDEN),
    END_TENSORS};
static const proa_name gemma3_tensors[] = {
    COMMON_TENSORS("language_model."),
    NORMS_AROUND  ("language_model."),
    HEAD_NORMS    ("language_model."),
    END_TENSORS};
/* transformers 4.52 and later have other names in memory, which some tools save. */
static const char *const gemma3_prefixes[] = {"language_model.", "language_model.model.", NULL};
static const char *const gemma3_prefix_aliases[] = {"language_model.model.", "model.language_model.", NULL};
static const char *const gemma3_unused[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                            "model.multi_modal_projector.", NULL};
/* A tied head's copy. */
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", "lm_head.out_proj.weight", NULL};

static const proa_step embed[] = {EMBED_TO(X, TOKENS, SCALED), ROPE_TABLE, LOCAL_ROPE_TABLE, END};
static const proa_step layer_pre_norm[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR      (N, QKV, QKV,  0),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X,   O,    ADD),
    NORM        (X, N,   FFN_NORM),
    LINEAR_GATED(N, F,   UP,   0),
    LINEAR      (F, X,   DOWN, ADD),
    END};
#define NORMS_AROUND_ATTENTION \
    NORM        (X, N,   ATTN_NORM),  \
    LINEAR      (N, QKV, QKV,  0),    \
    Q_NORM_IF   (QK_NORM, Q_NORM),    \
    K_NORM_IF   (QK_NORM, K_NORM),    \
    ROTATE,                           \
    KV_APPEND,                        \
    ATTEND,                           \
    LINEAR      (A, D,   O,    0),    \
    NORM_ADD    (D, X,   ATTN_OUT_NORM)
#define NORMS_AROUND_FFN \
    NORM        (X, N,   FFN_NORM),   \
    LINEAR_GATED(N, F,   UP,   0),    \
    LINEAR      (F, D,   DOWN, 0),    \
    NORM_ADD    (D, X,   FFN_OUT_NORM)
static const proa_step layer_norms_around[] = {NORMS_AROUND_ATTENTION, NORMS_AROUND_FFN, END};
static const proa_step t5gemma_decoder_layer[] = {
    NORMS_AROUND_ATTENTION,
    NORM        (X, N,   CROSS_NORM),
    LINEAR      (N, CQ,  CROSS_Q, 0),
    CROSS_ATTEND,
    LINEAR      (A, D,   CROSS_O, 0),
    NORM_ADD    (D, X,   CROSS_OUT_NORM),
    NORMS_AROUND_FFN,
    END};
static const proa_step encoder_after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step cross[] = {LINEAR(X, CKV, CROSS_KV, 0), CROSS_APPEND, END};
static const proa_step head[] = {LM_HEAD(CAPPED)};
/* clang-format on */

static proa_status finish_gemma(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    c->rotary_dim = c->head_dim;
    c->embed_scale = sqrt((double)c->hidden);
    PROA_TRY(proa_json_get_bool(&c->bidirectional, json, "use_bidirectional_attention", err));
    return proa_config_read_rope(c, json, arena, err);
}

/* Gemma 1 has the key hidden_act. "gelu" of the first files is not what the model was trained with, and
 * hidden_activation of others is not read. */
static proa_status finish_gemma1(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_config_read_act(&c->act, json, "hidden_act", PROA_ACT_GELU_TANH, err));
    if (c->act == PROA_ACT_GELU) c->act = PROA_ACT_GELU_TANH;
    return finish_gemma(c, json, arena, err);
}

/* A cap that is null is off; one that is not named has its default. */
static proa_status read_cap(double *cap, const proa_json *json, const char *key, proa_err *err)
{
    if (proa_config_is_null(json, key)) *cap = 0;
    return proa_json_get_double(cap, json, key, 1e-3, 1e6, err);
}

/* What Gemma 2 and 3 have: scaled scores, capped logits, windows. */
static proa_status read_scores(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double scalar = 256;
    c->window = 4096;
    PROA_TRY(proa_json_get_double(&scalar, json, "query_pre_attn_scalar", 1e-3, 1e6, err));
    c->attention_scale = 1 / sqrt(scalar);
    PROA_TRY(read_cap(&c->logit_cap, json, "final_logit_softcapping", err));
    return proa_config_read_window(c, json, arena, err);
}

static proa_status finish_gemma2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->attention_cap = 50, c->logit_cap = 30;
    c->window_pattern = 2;
    PROA_TRY(finish_gemma(c, json, arena, err));
    PROA_TRY(read_cap(&c->attention_cap, json, "attn_logit_softcapping", err));
    return read_scores(c, json, arena, err);
}

/* EmbeddingGemma sees both sides. sliding_window counts the positions of both; a layer sees half of it to each, and its
 * own. Its max_position_embeddings is the length that the scaling has made already. The key attn_logit_softcapping,
 * which is that of Gemma 2, changes nothing: no scores are capped. */
static proa_status finish_gemma3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t context = c->context;
    c->window_pattern = 6;
    c->qk_norm = true;
    c->rope.theta = 1e6;
    c->local_rope.theta = 1e4;
    PROA_TRY(proa_json_get_double(&c->local_rope.theta, json, "rope_local_base_freq", 1, 1e12, err));
    PROA_TRY(finish_gemma(c, json, arena, err));
    c->context = context;
    PROA_TRY(read_scores(c, json, arena, err));
    if (c->bidirectional && c->window_used) c->window = c->window / 2 + 1;
    return PROA_OK;
}

/* One of the two objects of a T5Gemma, which says what the config.json of a Gemma 2 does. */
static proa_status read_stack(proa_config *c, const proa_json *json, const char *name, proa_arena *arena,
                              proa_err *err)
{
    const proa_json *stack = proa_json_get(json, name);
    if (proa_json_kind(stack) != PROA_JSON_OBJECT)
        return PROA_FAIL(err, INVALID, "'%s' is missing or no object", name);
    PROA_TRY(proa_config_read(c, stack, gemma2_keys, err));
    PROA_TRY(finish_gemma2(c, stack, arena, err));
    if (c->bidirectional)
        return PROA_FAIL(err, UNSUPPORTED, "'use_bidirectional_attention' true is not supported");
    c->bos = 2, c->pad = 0, c->end_ids[0] = 1, c->end_count = 1;
    return proa_config_read_ids(c, stack, err);
}

/* A window of the encoder counts the positions to each side, that of the decoder the row itself, too. */
static proa_status finish_t5gemma(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_config encoder = {.decoder_start = -1};
    bool decodes = true;
    PROA_TRY(proa_json_get_bool(&decodes, json, "is_encoder_decoder", err));
    if (!decodes) return PROA_FAIL(err, UNSUPPORTED, "'is_encoder_decoder' false is not supported");
    PROA_TRY(read_stack(&encoder, json, "encoder", arena, err));
    PROA_TRY(read_stack(c, json, "decoder", arena, err));
    PROA_TRY(proa_config_join_stacks(c, &encoder, encoder.layers, err));
    c->both_windows = true;
    if (encoder.window_used) c->encoder_window = encoder.window + 1;
    c->encoder_window_layers = encoder.window_layers;
    c->tied = true;
    PROA_TRY(proa_json_get_bool(&c->tied, json, "tie_word_embeddings", err));
    PROA_TRY(proa_config_read_ids(c, json, err));
    c->decoder_start = c->bos;
    return PROA_OK;
}

/* clang-format off */
#define ROW(type, class, keylist, tensors, layer, finisher)                                               \
    .name = type, .hf = class, DECODER(RMS), .keys = keylist, .names = tensors, .ignored = ignored,       \
    .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finisher

const proa_arch proa_arch_gemma = {
    ROW("gemma", STRINGS("GemmaForCausalLM"), gemma_keys, gemma_tensors, layer_pre_norm, finish_gemma1),
    .model_type = "gemma", HEADS(TEXTS | TOKENS, "Gemma")};
const proa_arch proa_arch_gemma2 = {
    ROW("gemma2", STRINGS("Gemma2ForCausalLM"), gemma2_keys, gemma2_tensors, layer_norms_around, finish_gemma2),
    .model_type = "gemma2", HEADS(TEXTS | TOKENS, "Gemma2")};
const proa_arch proa_arch_vaultgemma = {
    ROW("vaultgemma", STRINGS("VaultGemmaForCausalLM"), gemma2_keys, vaultgemma_tensors, layer_pre_norm, finish_gemma2),
    .model_type = "vaultgemma"};
const proa_arch proa_arch_gemma3 = {
    ROW("gemma3", STRINGS("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), gemma3_keys, gemma3_tensors,
        layer_norms_around, finish_gemma3),
    .model_type = "gemma3_text", .text_config = "text_config", .prefixes = gemma3_prefixes,
    .prefix_aliases = gemma3_prefix_aliases,
    .unused_parts = gemma3_unused, HEADS(TEXTS, "Gemma3Text", "Gemma3")};
static const proa_key no_keys[] = {END_KEYS}; /* all are in the objects of the stacks */
const proa_arch proa_arch_t5gemma = {
    .name = "t5gemma", .model_type = "t5gemma", .hf = STRINGS("T5GemmaForConditionalGeneration"),
    .kind = PROA_KIND_ENCODER_DECODER, .norm = PROA_NORM_RMS, .keys = no_keys, .names = t5gemma_tensors,
    .ignored = ignored,
    .stacks = {CAUSAL(embed, t5gemma_decoder_layer),
               [PROA_STACK_ENCODER] = {embed, layer_norms_around, encoder_after, false}},
    .cross = cross, .head = head, .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_VOCAB, .finish = finish_t5gemma,
    FORMS(ENDS | TOKENS, "T5Gemma")};
/* clang-format on */
