/* SPDX-License-Identifier: Apache-2.0
 * arch_bert.c - BERT: post-norm encoder with learned positions and token types.
 * Heads: none (hidden states and pooler), sequence classification or regression, masked language model.
 * Facts: transformers' modeling_bert.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_ENCODER
#define LAYER "bert.encoder.layer.%d."

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

#define BODY_TENSORS \
    TABLE ("bert.embeddings.word_embeddings.weight",       TOKENS,       VOCAB,   HIDDEN), \
    TABLE ("bert.embeddings.position_embeddings.weight",   POSITIONS,    CONTEXT, HIDDEN), \
    TABLE ("bert.embeddings.token_type_embeddings.weight", TYPES,        TYPES,   HIDDEN), \
    VECTOR("bert.embeddings.LayerNorm.weight",             EMBED_NORM,   HIDDEN),          \
    VECTOR("bert.embeddings.LayerNorm.bias",               EMBED_NORM_B, HIDDEN),          \
    MATRIX(LAYER "attention.self.query.weight",            QKV,          Q,       HIDDEN), \
    MATRIX(LAYER "attention.self.key.weight",              QKV,          KV,      HIDDEN), \
    MATRIX(LAYER "attention.self.value.weight",            QKV,          KV,      HIDDEN), \
    VECTOR(LAYER "attention.self.query.bias",              QKV_B,        Q),               \
    VECTOR(LAYER "attention.self.key.bias",                QKV_B,        KV),              \
    VECTOR(LAYER "attention.self.value.bias",              QKV_B,        KV),              \
    MATRIX(LAYER "attention.output.dense.weight",          O,            HIDDEN,  Q),      \
    VECTOR(LAYER "attention.output.dense.bias",            O_B,          HIDDEN),          \
    VECTOR(LAYER "attention.output.LayerNorm.weight",      ATTN_NORM,    HIDDEN),          \
    VECTOR(LAYER "attention.output.LayerNorm.bias",        ATTN_NORM_B,  HIDDEN),          \
    MATRIX(LAYER "intermediate.dense.weight",              UP,           FFN,     HIDDEN), \
    VECTOR(LAYER "intermediate.dense.bias",                UP_B,         FFN),             \
    MATRIX(LAYER "output.dense.weight",                    DOWN,         HIDDEN,  FFN),    \
    VECTOR(LAYER "output.dense.bias",                      DOWN_B,       HIDDEN),          \
    VECTOR(LAYER "output.LayerNorm.weight",                FFN_NORM,     HIDDEN),          \
    VECTOR(LAYER "output.LayerNorm.bias",                  FFN_NORM_B,   HIDDEN)

static const proa_name bare_tensors[] = {
    BODY_TENSORS,
    MATRIX_IF(PRESENT, "bert.pooler.dense.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR_IF(PRESENT, "bert.pooler.dense.bias",   POOL_B, HIDDEN),
    END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS,
    MATRIX("bert.pooler.dense.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR("bert.pooler.dense.bias",   POOL_B, HIDDEN),
    MATRIX("classifier.weight",        HEAD,   LABELS, HIDDEN),
    VECTOR("classifier.bias",          HEAD_B, LABELS),
    END_TENSORS};
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    MATRIX   ("cls.predictions.transform.dense.weight",     HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("cls.predictions.transform.dense.bias",       HEAD_DENSE_B, HIDDEN),
    VECTOR   ("cls.predictions.transform.LayerNorm.weight", HEAD_NORM,    HIDDEN),
    VECTOR   ("cls.predictions.transform.LayerNorm.bias",   HEAD_NORM_B,  HIDDEN),
    TIED_HEAD("bert.embeddings.word_embeddings.weight"),
    MATRIX_IF(UNTIED, "cls.predictions.decoder.weight",     HEAD,         VOCAB,  HIDDEN),
    VECTOR   ("cls.predictions.bias",                       HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const prefixes[] = {"bert.", NULL};
static const char *const aliases[] = {
    "LayerNorm.weight", "LayerNorm.gamma",
    "LayerNorm.bias",   "LayerNorm.beta",
    NULL};
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
static const char *const mlm_ignored[] = {
    "position_ids",
    "pooler.dense.weight",
    "pooler.dense.bias",
    "cls.seq_relationship.weight",
    "cls.seq_relationship.bias",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
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
static const proa_step mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, ACT),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD,       0),
    END};
/* clang-format on */

static proa_status finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    proa_str positions = {"absolute", 8};
    PROA_TRY(proa_config_read_labels(c, json, err));
    PROA_TRY(proa_json_get_str(&positions, json, "position_embedding_type", err));
    if (proa_str_is(positions, "absolute")) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'position_embedding_type' '%.*s' is not supported",
                     (int)positions.len, positions.ptr);
}

/* clang-format off */
#define COMMON                                                                                 \
    .model_type = "bert", .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER, .keys = keys,    \
    .prefixes = prefixes, .aliases = aliases, .stacks = {[STACK] = {embed, layer, NULL, false}}, \
    .finish = finish

const proa_arch proa_arch_bert = {
    .name = "bert",
    .hf = STRINGS("BertModel"),
    COMMON,
    .names = bare_tensors,
    .ignored = bare_ignored,
    .head = headless,
    .pool = pool,
    .head_rows = PROA_ROWS_ALL,
    .outputs = PROA_DIM_HIDDEN};
const proa_arch proa_arch_bert_cls = {
    .name = "bert_cls",
    .hf = STRINGS("BertForSequenceClassification"),
    COMMON,
    .names = cls_tensors,
    .ignored = bare_ignored,
    .head = cls_head,
    .head_rows = PROA_ROWS_FIRST,
    .outputs = PROA_DIM_LABELS};
const proa_arch proa_arch_bert_mlm = {
    .name = "bert_mlm",
    .hf = STRINGS("BertForMaskedLM"),
    COMMON,
    .names = mlm_tensors,
    .ignored = mlm_ignored,
    .head = mlm_head,
    .head_rows = PROA_ROWS_ALL,
    .outputs = PROA_DIM_VOCAB};
/* clang-format on */
