/* SPDX-License-Identifier: Apache-2.0
 * arch_xlnet.c - XLNet: post-norm encoder whose attention adds a product of the queries with sinusoids of the distance,
 * and learned biases of the queries for either product (Transformer-XL's form). A pass is the plain bidirectional one,
 * without permutation masks, target mapping and memory of earlier segments. A product with one of two vectors says
 * whether a key is of the query's segment; without token types it is the same for all keys, so the softmax drops it.
 * Heads: none, language model, sequence classification (over the last token) and token classification. Facts:
 * transformers' modeling_xlnet.py, 4.57 and 5.17; Yang et al. 2019. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_ENCODER
#define LAYER "transformer.layer.%d."

/* clang-format off */
/* XLNet's files name no longest input. Relative positions know no limit, but tables need one: twice the length of its
 * pretraining. */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("d_model",                 hidden,         HIDDEN),
    REQUIRED  ("n_layer",                 encoder_layers, LAYERS),
    REQUIRED  ("n_head",                  heads,          HEADS),
    REQUIRED  ("d_inner",                 ffn,            FFN),
    INTEGER   ("max_position_embeddings", context,        1, RELATIVE_CONTEXT, 1024),
    EPSILON   ("layer_norm_eps",          1e-12),
    ACTIVATION("ff_activation",           GELU),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};

/* Projections are stored as [hidden, heads, head_dim], that of the output too. */
#define BODY_TENSORS \
    TABLE     ("transformer.word_embedding.weight", TOKENS,        VOCAB,      HIDDEN), \
    TRANSPOSED(LAYER "rel_attn.q",                  QKV,           Q,          HIDDEN), \
    TRANSPOSED(LAYER "rel_attn.k",                  QKV,           KV,         HIDDEN), \
    TRANSPOSED(LAYER "rel_attn.v",                  QKV,           KV,         HIDDEN), \
    TENSOR    (LAYER "rel_attn.r",                  REL,           TRANSPOSED, Q,       HIDDEN, PROA_PROJECTED), \
    VECTOR    (LAYER "rel_attn.r_w_bias",           CONTENT_BIAS,  Q),                  \
    VECTOR    (LAYER "rel_attn.r_r_bias",           POSITION_BIAS, Q),                  \
    TENSOR    (LAYER "rel_attn.seg_embed",          SEGMENTS,      F32,        SEGMENTS, Q, 0), \
    VECTOR    (LAYER "rel_attn.r_s_bias",           SEGMENT_BIAS,  Q),                  \
    MATRIX    (LAYER "rel_attn.o",                  O,             HIDDEN,     Q),      \
    VECTOR    (LAYER "rel_attn.layer_norm.weight",  ATTN_NORM,     HIDDEN),             \
    VECTOR    (LAYER "rel_attn.layer_norm.bias",    ATTN_NORM_B,   HIDDEN),             \
    MATRIX    (LAYER "ff.layer_1.weight",           UP,            FFN,        HIDDEN), \
    VECTOR    (LAYER "ff.layer_1.bias",             UP_B,          FFN),                \
    MATRIX    (LAYER "ff.layer_2.weight",           DOWN,          HIDDEN,     FFN),    \
    VECTOR    (LAYER "ff.layer_2.bias",             DOWN_B,        HIDDEN),             \
    VECTOR    (LAYER "ff.layer_norm.weight",        FFN_NORM,      HIDDEN),             \
    VECTOR    (LAYER "ff.layer_norm.bias",          FFN_NORM_B,    HIDDEN)

static const proa_name bare_tensors[] = {BODY_TENSORS, END_TENSORS};
static const proa_name lm_tensors[] = {
    BODY_TENSORS,
    TIED_HEAD("transformer.word_embedding.weight"),
    MATRIX_IF(UNTIED, "lm_loss.weight", HEAD,   VOCAB, HIDDEN),
    VECTOR   ("lm_loss.bias",           HEAD_B, VOCAB),
    END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS,
    MATRIX("sequence_summary.summary.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR("sequence_summary.summary.bias",   POOL_B, HIDDEN),
    MATRIX("logits_proj.weight",              HEAD,   LABELS, HIDDEN),
    VECTOR("logits_proj.bias",                HEAD_B, LABELS),
    END_TENSORS};
static const proa_name tok_tensors[] = {
    BODY_TENSORS,
    MATRIX("classifier.weight", HEAD,   LABELS, HIDDEN),
    VECTOR("classifier.bias",   HEAD_B, LABELS),
    END_TENSORS};
static const proa_name qa_tensors[] = {
    BODY_TENSORS,
    MATRIX("qa_outputs.weight", HEAD,   LABELS, HIDDEN),
    VECTOR("qa_outputs.bias",   HEAD_B, LABELS),
    END_TENSORS};
static const char *const prefixes[] = {"transformer.", NULL};
/* mask_emb belongs to the query stream, which only pretraining has; lm_loss is a tied head's copy. */
static const char *const ignored[] = {
    "mask_emb", "lm_loss.weight", "lm_loss.bias", NULL};

static const proa_step embed[] = {EMBED(TOKENS), END};
static const proa_step layer[] = {
    LINEAR(X, QKV, QKV,  0),
    ATTEND,
    LINEAR(A, D,   O,    ADD_X),
    NORM  (D, X,   ATTN_NORM),
    LINEAR(X, U,   UP,   ACT),
    LINEAR(U, D,   DOWN, ADD_X),
    NORM  (D, X,   FFN_NORM),
    END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step lm_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  POOL, HEAD_ACT),
    LINEAR(HN, OUT, HEAD, 0),
    END};
/* clang-format on */

/* Variants of the pretraining that no classifier or language model on the hub has. */
static proa_status check_attention(const proa_json *json, proa_err *err)
{
    proa_str type = {"bi", 2};
    bool both = false;
    PROA_TRY(proa_json_get_str(&type, json, "attn_type", err));
    PROA_TRY(proa_json_get_bool(&both, json, "bi_data", err));
    if (!proa_str_is(type, "bi"))
        return PROA_FAIL(err, UNSUPPORTED, "'attn_type' '%.*s' is not supported (bi is)", (int)type.len,
                         type.ptr);
    if (both) return PROA_FAIL(err, UNSUPPORTED, "'bi_data' is not supported");
    return PROA_OK;
}

static proa_status finish_xlnet(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    PROA_TRY(check_attention(json, err));
    PROA_TRY(proa_config_read_labels(c, json, err));
    c->relative.used = true;
    c->segments = 2, c->types = PROA_TOKEN_TYPES_MAX; /* types are only compared with each other */
    PROA_TRY(proa_json_get_int(&c->relative.clamp, json, "clamp_len", -1, PROA_CONTEXT_MAX, err));
    if (c->relative.clamp < 0) c->relative.clamp = 0;
    if (c->hidden % 2 != 0)
        return PROA_FAIL(err, INVALID, "sinusoids of an odd size %lld", (long long)c->hidden);
    c->head_dim = c->hidden / c->heads;
    return proa_config_check_relative(c, err);
}

static proa_status finish_cls(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str type = {"last", 4};
    bool projected = true, to_labels = false;
    PROA_TRY(proa_json_get_str(&type, json, "summary_type", err));
    PROA_TRY(proa_json_get_bool(&projected, json, "summary_use_proj", err));
    PROA_TRY(proa_json_get_bool(&to_labels, json, "summary_proj_to_labels", err));
    proa_act unnamed = proa_config_is_null(json, "summary_activation") ? PROA_ACT_NONE : PROA_ACT_TANH;
    PROA_TRY(proa_config_read_act(&c->head_act, json, "summary_activation", unnamed, err));
    if (!proa_str_is(type, "last") || !projected || to_labels)
        return PROA_FAIL(err, UNSUPPORTED, "'summary_type' must be last, with a projection to the hidden size");
    return finish_xlnet(c, json, arena, err);
}

/* clang-format off */
/* The rest: the row without a head, and the other classes of the row. */
#define ROW(NAME, CLASS, TENSORS, HEAD, ROWS, OUTPUTS, FINISH, ...)                                                  \
    {.name = NAME, .model_type = "xlnet", .hf = STRINGS(CLASS), .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER,  \
     .keys = keys, .names = TENSORS, .prefixes = prefixes, .ignored = ignored,                                       \
     .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = HEAD, .head_rows = PROA_ROWS_##ROWS,                 \
     .outputs = PROA_DIM_##OUTPUTS, .finish = FINISH, .embedder = __VA_ARGS__}

const proa_arch proa_arch_xlnet =
    ROW("xlnet",     "XLNetModel",                     bare_tensors, headless, ALL,  HIDDEN, finish_xlnet, NULL);
const proa_arch proa_arch_xlnet_lm =
    ROW("xlnet_lm",  "XLNetLMHeadModel",               lm_tensors,   lm_head,  ALL,  VOCAB,  finish_xlnet,
        &proa_arch_xlnet);
const proa_arch proa_arch_xlnet_cls =
    ROW("xlnet_cls", "XLNetForSequenceClassification", cls_tensors,  cls_head, LAST, LABELS, finish_cls, NULL,
        FORMS(CHOICES, "XLNet"));
const proa_arch proa_arch_xlnet_tok =
    ROW("xlnet_tok", "XLNetForTokenClassification",    tok_tensors,  lm_head,  ALL,  LABELS, finish_xlnet, NULL);
const proa_arch proa_arch_xlnet_qa =
    ROW("xlnet_qa", "XLNetForQuestionAnsweringSimple", qa_tensors,   lm_head,  ALL,  LABELS, finish_xlnet, NULL);
/* clang-format on */
