/* SPDX-License-Identifier: Apache-2.0
 * bert_rows.h - keys, tensors and head programs of BERT's family, of which the rows of its relatives are made.
 * M: what the names of the body begin with; L: those of a layer, or their part before the name. STACK is the
 * includer's. */
#ifndef PROA_MODEL_BERT_ROWS_H
#define PROA_MODEL_BERT_ROWS_H

#include "model/arch/arch_rows.h"

/* clang-format off */
/* All keys but those of the embedding's width. EPS, NTYPES: the defaults of the class. */
#define BERT_KEYS(EPS, NTYPES) \
    REQUIRED  ("vocab_size",              vocab,          VOCAB),             \
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),            \
    REQUIRED  ("num_hidden_layers",       encoder_layers, LAYERS),            \
    REQUIRED  ("num_attention_heads",     heads,          HEADS),             \
    REQUIRED  ("intermediate_size",       ffn,            FFN),               \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,     512), \
    INTEGER   ("type_vocab_size",         types,          1, TOKEN_TYPES, NTYPES), \
    EPSILON   ("layer_norm_eps",          EPS),                               \
    ACTIVATION("hidden_act",              GELU),                              \
    SWITCH    ("tie_word_embeddings",     tied,           1)

/* Words, token types and their norm. */
#define BERT_EMBEDDINGS(M) \
    TABLE (M "embeddings.word_embeddings.weight",       TOKENS,       VOCAB,   EMBED),  \
    TABLE (M "embeddings.token_type_embeddings.weight", TYPES,        TYPES,   EMBED)
#define BERT_EMBED_NORM(M) \
    VECTOR(M "embeddings.LayerNorm.weight",             EMBED_NORM,   EMBED),           \
    VECTOR(M "embeddings.LayerNorm.bias",               EMBED_NORM_B, EMBED)
#define BERT_POSITIONS(M, ROWS) \
    TABLE (M "embeddings.position_embeddings.weight",   POSITIONS,    ROWS,    EMBED)
/* What attention has without its norm. */
#define BERT_ATTENTION(L) \
    MATRIX(L "attention.self.query.weight",       QKV,          Q,       HIDDEN), \
    MATRIX(L "attention.self.key.weight",         QKV,          KV,      HIDDEN), \
    MATRIX(L "attention.self.value.weight",       QKV,          KV,      HIDDEN), \
    VECTOR(L "attention.self.query.bias",         QKV_B,        Q),               \
    VECTOR(L "attention.self.key.bias",           QKV_B,        KV),              \
    VECTOR(L "attention.self.value.bias",         QKV_B,        KV),              \
    MATRIX(L "attention.output.dense.weight",     O,            HIDDEN,  Q),      \
    VECTOR(L "attention.output.dense.bias",       O_B,          HIDDEN)
#define BERT_FFN(L) BERT_FFN_OF(L, FFN)
#define BERT_FFN_OF(L, ROWS) \
    MATRIX(L "intermediate.dense.weight",         UP,           ROWS,    HIDDEN), \
    VECTOR(L "intermediate.dense.bias",           UP_B,         ROWS),            \
    MATRIX(L "output.dense.weight",               DOWN,         HIDDEN,  ROWS),   \
    VECTOR(L "output.dense.bias",                 DOWN_B,       HIDDEN)
#define BERT_NORM(name, SLOT) \
    VECTOR(name ".weight",                        SLOT,         HIDDEN),          \
    VECTOR(name ".bias",                          SLOT##_B,     HIDDEN)
/* A pooler that the checkpoint may lack (PRESENT), or must have (0). */
#define BERT_POOLER(M, FORM) \
    TENSOR(M "pooler.dense.weight", POOL,   MATRIX, HIDDEN, HIDDEN, FORM), \
    TENSOR(M "pooler.dense.bias",   POOL_B, VECTOR, HIDDEN, NONE,   FORM)

/* A head on each row, or on the first: one product; RoBERTa's head for sequences has one more before it. */
#define CLASSIFIER_TENSORS(name) \
    MATRIX(name ".weight", HEAD,   LABELS, HIDDEN), \
    VECTOR(name ".bias",   HEAD_B, LABELS)
#define DENSE_CLASSIFIER_TENSORS \
    MATRIX("classifier.dense.weight", HEAD_DENSE,   HIDDEN, HIDDEN), \
    VECTOR("classifier.dense.bias",   HEAD_DENSE_B, HIDDEN),         \
    CLASSIFIER_TENSORS("classifier.out_proj")
/* The heads of masked language models, BERT's and RoBERTa's. WIDTH: HIDDEN, or EMBED, the width of the table. */
#define BERT_MLM_TENSORS(M, WIDTH) \
    MATRIX   ("cls.predictions.transform.dense.weight",     HEAD_DENSE,   WIDTH, HIDDEN), \
    VECTOR   ("cls.predictions.transform.dense.bias",       HEAD_DENSE_B, WIDTH),         \
    VECTOR   ("cls.predictions.transform.LayerNorm.weight", HEAD_NORM,    WIDTH),         \
    VECTOR   ("cls.predictions.transform.LayerNorm.bias",   HEAD_NORM_B,  WIDTH),         \
    TIED_HEAD_OF(M "embeddings.word_embeddings.weight",     WIDTH),                       \
    MATRIX_IF(UNTIED, "cls.predictions.decoder.weight",     HEAD,         VOCAB, WIDTH),  \
    VECTOR   ("cls.predictions.decoder.bias",               HEAD_B,       VOCAB)
#define ROBERTA_MLM_TENSORS(M) \
    MATRIX   ("lm_head.dense.weight",      HEAD_DENSE,   HIDDEN, HIDDEN),   \
    VECTOR   ("lm_head.dense.bias",        HEAD_DENSE_B, HIDDEN),           \
    VECTOR   ("lm_head.layer_norm.weight", HEAD_NORM,    HIDDEN),           \
    VECTOR   ("lm_head.layer_norm.bias",   HEAD_NORM_B,  HIDDEN),           \
    TIED_HEAD(M "embeddings.word_embeddings.weight"),                       \
    MATRIX_IF(UNTIED, "lm_head.decoder.weight", HEAD,    VOCAB,  HIDDEN),   \
    VECTOR   ("lm_head.decoder.bias",      HEAD_B,       VOCAB)

/* The head's bias is that beside its matrix; a tied one may be there under its other name only. */
#define BERT_ALIASES    "cls.predictions.decoder.bias", "cls.predictions.bias"
#define LAYER_NORM_ALIASES "LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta"
#define ROBERTA_ALIASES "lm_head.decoder.bias", "lm_head.bias"
/* Pretraining heads, which other classes of a checkpoint have no use for. */
#define BERT_PRETRAINING \
    "position_ids", "cls.predictions.bias", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias", \
    "cls.predictions.transform.dense.weight", "cls.predictions.transform.dense.bias",                         \
    "cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.bias",                 \
    "cls.seq_relationship.weight", "cls.seq_relationship.bias"
#define ROBERTA_PRETRAINING \
    "position_ids", "lm_head.bias", "lm_head.dense.weight", "lm_head.dense.bias", "lm_head.layer_norm.weight", \
    "lm_head.layer_norm.bias", "lm_head.decoder.weight", "lm_head.decoder.bias"
/* A pooler that classes without one leave out. */
#define UNUSED_POOLER "pooler.dense.weight", "pooler.dense.bias"

/* Heads. ROWS_HEAD: a head on each row; ACT_: the activation of the dense layer. */
#define NO_HEAD         {GATHER(OUT), END}
#define POOLER_HEAD     {GATHER(H), LINEAR(H, OUT, POOL, TANH), END}
#define POOLED_HEAD     {GATHER(H), LINEAR(H, HN, POOL, TANH), LINEAR(HN, OUT, HEAD, 0), END}
#define DENSE_HEAD(ACT_) {GATHER(H), LINEAR(H, HN, HEAD_DENSE, ACT_), LINEAR(HN, OUT, HEAD, 0), END}
#define ROWS_HEAD       {GATHER(H), LINEAR(H, OUT, HEAD, 0), END}
#define MLM_HEAD(ACT_)  {GATHER(H), LINEAR(H, HN, HEAD_DENSE, ACT_), NORM(HN, HN, HEAD_NORM), \
                         LINEAR(HN, OUT, HEAD, 0), END}
/* The same between layers and a table of width EMBED. */
#define NARROW_MLM_HEAD(ACT_) {GATHER(H), LINEAR(H, HE, HEAD_DENSE, ACT_), NORM(HE, HE, HEAD_NORM), \
                               LINEAR(HE, OUT, HEAD, 0), END}
/* clang-format on */

/* Positions of learned tables that begin after that of the padding token (RoBERTa). pad: the default of the class. */
PROA_MUST_CHECK proa_status proa_roberta_read_positions(proa_config *c, const proa_json *json, int64_t pad,
                                                        proa_err *err);
/* Which row of an input a head for sequences reads (transformers' SequenceSummary), and whether a product with as many
 * outputs is before it. */
typedef struct proa_summary {
    const char *type;
    bool projected;
} proa_summary;
/* Refuses another summary than this one, which is the default of the class. */
PROA_MUST_CHECK proa_status proa_bert_check_summary(const proa_json *json, const proa_summary *only,
                                                    proa_err *err);
/* One label, a number, whatever config.json says: a class that compares inputs. */
void proa_bert_set_choice(proa_config *c);
/* Refuses another 'position_embedding_type' than this one. */
PROA_MUST_CHECK proa_status proa_bert_check_positions(const proa_json *json, const char *only, proa_err *err);
/* Refuses another value of a switch, which is `only` where there is none. */
PROA_MUST_CHECK proa_status proa_bert_check_switch(const proa_json *json, const char *key, bool only,
                                                   proa_err *err);

#endif
