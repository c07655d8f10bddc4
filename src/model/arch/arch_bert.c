/* SPDX-License-Identifier: Apache-2.0
 * arch_bert.c - BERT and RoBERTa (XLM-RoBERTa, CamemBERT): post-norm encoders with learned positions and token types.
 * Heads: none (hidden states and pooler), sequence classification or regression, token classification (labels of every
 * row), masked language model. RoBERTa's positions begin after that of the padding token.
 * Facts: transformers' modeling_bert.py, modeling_roberta.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_ENCODER
#define LAYER "encoder.layer.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       encoder_layers, LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,     512),
    INTEGER   ("type_vocab_size",         types,          1, TOKEN_TYPES, 2),
    EPSILON   ("layer_norm_eps",          1e-12),
    ACTIVATION("hidden_act",              GELU),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};

/* MODEL is the prefix of the body; POSITION_TABLE the line of its table of positions. */
#define BODY_TENSORS(MODEL, POSITION_TABLE) \
    TABLE (MODEL "embeddings.word_embeddings.weight",       TOKENS,       VOCAB,   HIDDEN), \
    POSITION_TABLE,                                                                         \
    TABLE (MODEL "embeddings.token_type_embeddings.weight", TYPES,        TYPES,   HIDDEN), \
    VECTOR(MODEL "embeddings.LayerNorm.weight",             EMBED_NORM,   HIDDEN),          \
    VECTOR(MODEL "embeddings.LayerNorm.bias",               EMBED_NORM_B, HIDDEN),          \
    MATRIX(MODEL LAYER "attention.self.query.weight",       QKV,          Q,       HIDDEN), \
    MATRIX(MODEL LAYER "attention.self.key.weight",         QKV,          KV,      HIDDEN), \
    MATRIX(MODEL LAYER "attention.self.value.weight",       QKV,          KV,      HIDDEN), \
    VECTOR(MODEL LAYER "attention.self.query.bias",         QKV_B,        Q),               \
    VECTOR(MODEL LAYER "attention.self.key.bias",           QKV_B,        KV),              \
    VECTOR(MODEL LAYER "attention.self.value.bias",         QKV_B,        KV),              \
    MATRIX(MODEL LAYER "attention.output.dense.weight",     O,            HIDDEN,  Q),      \
    VECTOR(MODEL LAYER "attention.output.dense.bias",       O_B,          HIDDEN),          \
    VECTOR(MODEL LAYER "attention.output.LayerNorm.weight", ATTN_NORM,    HIDDEN),          \
    VECTOR(MODEL LAYER "attention.output.LayerNorm.bias",   ATTN_NORM_B,  HIDDEN),          \
    MATRIX(MODEL LAYER "intermediate.dense.weight",         UP,           FFN,     HIDDEN), \
    VECTOR(MODEL LAYER "intermediate.dense.bias",           UP_B,         FFN),             \
    MATRIX(MODEL LAYER "output.dense.weight",               DOWN,         HIDDEN,  FFN),    \
    VECTOR(MODEL LAYER "output.dense.bias",                 DOWN_B,       HIDDEN),          \
    VECTOR(MODEL LAYER "output.LayerNorm.weight",           FFN_NORM,     HIDDEN),          \
    VECTOR(MODEL LAYER "output.LayerNorm.bias",             FFN_NORM_B,   HIDDEN)
#define BERT_TENSORS \
    BODY_TENSORS("bert.", TABLE("bert.embeddings.position_embeddings.weight", POSITIONS, CONTEXT, HIDDEN))
#define ROBERTA_TENSORS \
    BODY_TENSORS("roberta.", TABLE("roberta.embeddings.position_embeddings.weight", POSITIONS, POSITIONS, HIDDEN))
/* A head on each row, or on the first: one product. */
#define CLASSIFIER_TENSORS(name) \
    MATRIX(name ".weight", HEAD,   LABELS, HIDDEN), \
    VECTOR(name ".bias",   HEAD_B, LABELS)

static const proa_name bare_tensors[] = {
    BERT_TENSORS,
    MATRIX_IF(PRESENT, "bert.pooler.dense.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR_IF(PRESENT, "bert.pooler.dense.bias",   POOL_B, HIDDEN),
    END_TENSORS};
static const proa_name cls_tensors[] = {
    BERT_TENSORS,
    MATRIX("bert.pooler.dense.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR("bert.pooler.dense.bias",   POOL_B, HIDDEN),
    CLASSIFIER_TENSORS("classifier"),
    END_TENSORS};
static const proa_name token_tensors[] = {BERT_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name mlm_tensors[] = {
    BERT_TENSORS,
    MATRIX   ("cls.predictions.transform.dense.weight",     HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("cls.predictions.transform.dense.bias",       HEAD_DENSE_B, HIDDEN),
    VECTOR   ("cls.predictions.transform.LayerNorm.weight", HEAD_NORM,    HIDDEN),
    VECTOR   ("cls.predictions.transform.LayerNorm.bias",   HEAD_NORM_B,  HIDDEN),
    TIED_HEAD("bert.embeddings.word_embeddings.weight"),
    MATRIX_IF(UNTIED, "cls.predictions.decoder.weight",     HEAD,         VOCAB,  HIDDEN),
    VECTOR   ("cls.predictions.decoder.bias",               HEAD_B,       VOCAB),
    END_TENSORS};
static const proa_name roberta_bare_tensors[] = {
    ROBERTA_TENSORS,
    MATRIX_IF(PRESENT, "roberta.pooler.dense.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR_IF(PRESENT, "roberta.pooler.dense.bias",   POOL_B, HIDDEN),
    END_TENSORS};
static const proa_name roberta_cls_tensors[] = {
    ROBERTA_TENSORS,
    MATRIX("classifier.dense.weight", HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR("classifier.dense.bias",   HEAD_DENSE_B, HIDDEN),
    CLASSIFIER_TENSORS("classifier.out_proj"),
    END_TENSORS};
static const proa_name roberta_token_tensors[] = {ROBERTA_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name roberta_mlm_tensors[] = {
    ROBERTA_TENSORS,
    MATRIX   ("lm_head.dense.weight",      HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("lm_head.dense.bias",        HEAD_DENSE_B, HIDDEN),
    VECTOR   ("lm_head.layer_norm.weight", HEAD_NORM,    HIDDEN),
    VECTOR   ("lm_head.layer_norm.bias",   HEAD_NORM_B,  HIDDEN),
    TIED_HEAD("roberta.embeddings.word_embeddings.weight"),
    MATRIX_IF(UNTIED, "lm_head.decoder.weight", HEAD,    VOCAB,  HIDDEN),
    VECTOR   ("lm_head.decoder.bias",      HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const prefixes[] = {"bert.", NULL}, *const roberta_prefixes[] = {"roberta.", NULL};
/* The head's bias is that beside its matrix; a tied one may be there under its other name only. */
static const char *const aliases[] = {
    "cls.predictions.decoder.bias", "cls.predictions.bias",
    "LayerNorm.weight", "LayerNorm.gamma",
    "LayerNorm.bias",   "LayerNorm.beta",
    NULL};
static const char *const roberta_aliases[] = {"lm_head.decoder.bias", "lm_head.bias", NULL};
/* Pretraining heads that these classes have no use for. */
static const char *const bare_ignored[] = {
    "position_ids",
    "cls.predictions.bias",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.transform.dense.weight",
    "cls.predictions.transform.dense.bias",
    "cls.predictions.transform.LayerNorm.weight",
    "cls.predictions.transform.LayerNorm.bias",
    "cls.predictions.transform.LayerNorm.gamma",
    "cls.predictions.transform.LayerNorm.beta",
    "cls.seq_relationship.weight",
    "cls.seq_relationship.bias",
    NULL};
/* The same, and the pooler: of classes that read every row. */
static const char *const rows_ignored[] = {
    "position_ids",
    "pooler.dense.weight",
    "pooler.dense.bias",
    "cls.seq_relationship.weight",
    "cls.seq_relationship.bias",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.bias",
    NULL};
/* RoBERTa's classes for sequences have no pooler, but their published checkpoints do. */
static const char *const roberta_bare_ignored[] = {
    "position_ids",
    "lm_head.bias",
    "lm_head.dense.weight",
    "lm_head.dense.bias",
    "lm_head.layer_norm.weight",
    "lm_head.layer_norm.bias",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
    NULL};
static const char *const roberta_ignored[] = {
    "position_ids",
    "roberta.pooler.dense.weight",
    "roberta.pooler.dense.bias",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
    "lm_head.bias",
    NULL};

/* Each norm reads D and writes X, so its input survives: a device may fuse the norm into the next product. */
static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    EMBED_TO(D, TYPES,     OF_TYPE | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step layer[] = {
    LINEAR(X, QKV, QKV,  0),
    KV_APPEND,
    ATTEND,
    LINEAR(A, D,   O,    ADD_X),
    NORM  (D, X,   ATTN_NORM),
    LINEAR(X, U,   UP,   ACT),
    LINEAR(U, D,   DOWN, ADD_X),
    NORM  (D, X,   FFN_NORM),
    END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step pool[] = {GATHER(H), LINEAR(H, OUT, POOL, TANH), END};
static const proa_step cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  POOL, TANH),
    LINEAR(HN, OUT, HEAD, 0),
    END};
static const proa_step roberta_cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, TANH),
    LINEAR(HN, OUT, HEAD,       0),
    END};
static const proa_step token_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, ACT),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD,       0),
    END};
static const proa_step roberta_mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, GELU),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD,       0),
    END};
/* clang-format on */

static proa_status finish_bert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    proa_str positions = {"absolute", 8};
    PROA_TRY(proa_config_read_labels(c, json, err));
    PROA_TRY(proa_json_get_str(&positions, json, "position_embedding_type", err));
    if (proa_str_is(positions, "absolute")) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'position_embedding_type' '%.*s' is not supported",
                     (int)positions.len, positions.ptr);
}

/* The padding token has the position pad_token_id, the first token of a text the one after it. */
static proa_status finish_roberta(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t pad = 1;
    PROA_TRY(proa_json_get_int(&pad, json, "pad_token_id", 0, PROA_VOCAB_MAX, err));
    c->position_offset = pad + 1;
    c->context -= c->position_offset;
    if (c->context < 1)
        return PROA_FAIL(err, INVALID,
                         "'max_position_embeddings' %lld leaves no positions after 'pad_token_id' %lld",
                         (long long)(c->context + c->position_offset), (long long)pad);
    return finish_bert(c, json, arena, err);
}

/* clang-format off */
#define ENCODER(type, class, tensors, skipped, heads, rows, outs)                               \
    .name = type, .hf = class, .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER,              \
    .keys = keys, .names = tensors, .ignored = skipped, .head = heads,                          \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs,                                  \
    .stacks = {[STACK] = {embed, layer, NULL, false}}
#define BERT    .model_type = "bert", .prefixes = prefixes, .aliases = aliases, .finish = finish_bert
#define ROBERTA .model_type = "roberta", .prefixes = roberta_prefixes, .aliases = roberta_aliases, \
                .finish = finish_roberta
#define ROBERTA_CLASSES(ending) STRINGS("Roberta" ending, "XLMRoberta" ending, "Camembert" ending)

const proa_arch proa_arch_bert = {
    ENCODER("bert", STRINGS("BertModel"), bare_tensors, bare_ignored, headless, ALL, HIDDEN), .pool = pool, BERT};
const proa_arch proa_arch_bert_cls = {
    ENCODER("bert_cls", STRINGS("BertForSequenceClassification"), cls_tensors, bare_ignored, cls_head, FIRST,
            LABELS), BERT};
const proa_arch proa_arch_bert_token = {
    ENCODER("bert_token", STRINGS("BertForTokenClassification"), token_tensors, rows_ignored, token_head, ALL,
            LABELS), BERT};
const proa_arch proa_arch_bert_mlm = {
    ENCODER("bert_mlm", STRINGS("BertForMaskedLM"), mlm_tensors, rows_ignored, mlm_head, ALL, VOCAB), BERT};
const proa_arch proa_arch_roberta = {
    ENCODER("roberta", ROBERTA_CLASSES("Model"), roberta_bare_tensors, roberta_bare_ignored, headless, ALL, HIDDEN),
    .pool = pool, ROBERTA};
const proa_arch proa_arch_roberta_cls = {
    ENCODER("roberta_cls", ROBERTA_CLASSES("ForSequenceClassification"), roberta_cls_tensors, roberta_ignored,
            roberta_cls_head, FIRST, LABELS), ROBERTA};
const proa_arch proa_arch_roberta_token = {
    ENCODER("roberta_token", ROBERTA_CLASSES("ForTokenClassification"), roberta_token_tensors, roberta_ignored,
            token_head, ALL, LABELS), ROBERTA};
const proa_arch proa_arch_roberta_mlm = {
    ENCODER("roberta_mlm", ROBERTA_CLASSES("ForMaskedLM"), roberta_mlm_tensors, roberta_ignored, roberta_mlm_head,
            ALL, VOCAB), ROBERTA};
/* clang-format on */
