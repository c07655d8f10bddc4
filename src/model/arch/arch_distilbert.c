/* SPDX-License-Identifier: Apache-2.0
 * arch_distilbert.c - DistilBERT: BERT's layer under other names, without token types and without a pooler.
 * Heads: none (hidden states), sequence classification, token classification, question answering, masked language
 * model.
 * Facts: transformers' modeling_distilbert.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_ENCODER
#define MODEL "distilbert."
#define LAYER MODEL "transformer.layer.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("dim",                     hidden,         HIDDEN),
    REQUIRED  ("n_layers",                encoder_layers, LAYERS),
    REQUIRED  ("n_heads",                 heads,          HEADS),
    REQUIRED  ("hidden_dim",              ffn,            FFN),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 512),
    ACTIVATION("activation",              GELU),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};

#define BODY_TENSORS \
    TABLE (MODEL "embeddings.word_embeddings.weight",     TOKENS,       VOCAB,   HIDDEN), \
    TABLE (MODEL "embeddings.position_embeddings.weight", POSITIONS,    CONTEXT, HIDDEN), \
    VECTOR(MODEL "embeddings.LayerNorm.weight",           EMBED_NORM,   HIDDEN),          \
    VECTOR(MODEL "embeddings.LayerNorm.bias",             EMBED_NORM_B, HIDDEN),          \
    MATRIX(LAYER "attention.q_lin.weight",                QKV,          Q,       HIDDEN), \
    MATRIX(LAYER "attention.k_lin.weight",                QKV,          KV,      HIDDEN), \
    MATRIX(LAYER "attention.v_lin.weight",                QKV,          KV,      HIDDEN), \
    VECTOR(LAYER "attention.q_lin.bias",                  QKV_B,        Q),               \
    VECTOR(LAYER "attention.k_lin.bias",                  QKV_B,        KV),              \
    VECTOR(LAYER "attention.v_lin.bias",                  QKV_B,        KV),              \
    MATRIX(LAYER "attention.out_lin.weight",              O,            HIDDEN,  Q),      \
    VECTOR(LAYER "attention.out_lin.bias",                O_B,          HIDDEN),          \
    VECTOR(LAYER "sa_layer_norm.weight",                  ATTN_NORM,    HIDDEN),          \
    VECTOR(LAYER "sa_layer_norm.bias",                    ATTN_NORM_B,  HIDDEN),          \
    MATRIX(LAYER "ffn.lin1.weight",                       UP,           FFN,     HIDDEN), \
    VECTOR(LAYER "ffn.lin1.bias",                         UP_B,         FFN),             \
    MATRIX(LAYER "ffn.lin2.weight",                       DOWN,         HIDDEN,  FFN),    \
    VECTOR(LAYER "ffn.lin2.bias",                         DOWN_B,       HIDDEN),          \
    VECTOR(LAYER "output_layer_norm.weight",              FFN_NORM,     HIDDEN),          \
    VECTOR(LAYER "output_layer_norm.bias",                FFN_NORM_B,   HIDDEN)
#define CLASSIFIER_TENSORS(name) \
    MATRIX(name ".weight", HEAD,   LABELS, HIDDEN), \
    VECTOR(name ".bias",   HEAD_B, LABELS)

static const proa_name bare_tensors[] = {BODY_TENSORS, END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS,
    MATRIX("pre_classifier.weight", HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR("pre_classifier.bias",   HEAD_DENSE_B, HIDDEN),
    CLASSIFIER_TENSORS("classifier"),
    END_TENSORS};
static const proa_name token_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name qa_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    MATRIX   ("vocab_transform.weight",  HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("vocab_transform.bias",    HEAD_DENSE_B, HIDDEN),
    VECTOR   ("vocab_layer_norm.weight", HEAD_NORM,    HIDDEN),
    VECTOR   ("vocab_layer_norm.bias",   HEAD_NORM_B,  HIDDEN),
    TIED_HEAD(MODEL "embeddings.word_embeddings.weight"),
    MATRIX_IF(UNTIED, "vocab_projector.weight", HEAD,  VOCAB,  HIDDEN),
    VECTOR   ("vocab_projector.bias",    HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL};
/* The pretraining head, which only the masked language model has a use for; a copy of the embedding. */
static const char *const ignored[] = {
    "position_ids",
    "vocab_transform.weight",
    "vocab_transform.bias",
    "vocab_layer_norm.weight",
    "vocab_layer_norm.bias",
    "vocab_projector.weight",
    "vocab_projector.bias",
    NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step layer[] = {POST_NORM_LAYER};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, RELU),
    LINEAR(HN, OUT, HEAD,       0),
    END};
static const proa_step token_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, ACT),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD,       0),
    END};
/* clang-format on */

static proa_status finish_distilbert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    c->norm_eps = 1e-12;
    return proa_config_read_labels(c, json, err);
}

/* clang-format off */
/* The rest: the row without a head, and the other classes of the row. */
#define ROW(row, class, tensors, heads, rows, outs, ...)                                        \
    {.name = row, .hf = STRINGS(class), .model_type = "distilbert", .kind = PROA_KIND_ENCODER,  \
     .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes,             \
     .ignored = ignored, .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = heads,      \
     .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finish_distilbert,    \
     .embedder = __VA_ARGS__}

const proa_arch proa_arch_distilbert =
    ROW("distilbert", "DistilBertModel", bare_tensors, headless, ALL, HIDDEN, NULL);
const proa_arch proa_arch_distilbert_cls =
    ROW("distilbert_cls", "DistilBertForSequenceClassification", cls_tensors, cls_head, FIRST, LABELS, NULL,
        FORMS(CHOICES, "DistilBert"));
const proa_arch proa_arch_distilbert_token =
    ROW("distilbert_token", "DistilBertForTokenClassification", token_tensors, token_head, ALL, LABELS, NULL);
const proa_arch proa_arch_distilbert_qa =
    ROW("distilbert_qa", "DistilBertForQuestionAnswering", qa_tensors, token_head, ALL, LABELS, NULL);
const proa_arch proa_arch_distilbert_mlm =
    ROW("distilbert_mlm", "DistilBertForMaskedLM", mlm_tensors, mlm_head, ALL, VOCAB,
        &proa_arch_distilbert);
/* clang-format on */
