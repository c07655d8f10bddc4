/* SPDX-License-Identifier: Apache-2.0
 * arch_mpnet.c - MPNet: BERT's layer without token types, with relative position buckets that all layers share. Heads:
 * none (hidden states and pooler), sequence classification, token classification, question answering, masked language
 * model. The number of buckets and the farthest distance are constants of the reference.
 * Facts: transformers' modeling_mpnet.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_ENCODER
#define MODEL "mpnet."
#define LAYER MODEL "encoder.layer.%d."

enum { BUCKETS = 32, FARTHEST = 128, FIRST_POSITION = 2 };

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",                     vocab,          VOCAB),
    REQUIRED  ("hidden_size",                    hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",              encoder_layers, LAYERS),
    REQUIRED  ("num_attention_heads",            heads,          HEADS),
    REQUIRED  ("intermediate_size",              ffn,            FFN),
    INTEGER   ("max_position_embeddings",        context,        1, CONTEXT, 512),
    INTEGER   ("relative_attention_num_buckets", rel_buckets,    4, BUCKETS, BUCKETS),
    EPSILON   ("layer_norm_eps",                 1e-12),
    ACTIVATION("hidden_act",                     GELU),
    SWITCH    ("tie_word_embeddings",            tied,           1),
    END_KEYS};

#define BODY_TENSORS \
    TABLE     (MODEL "embeddings.word_embeddings.weight",         TOKENS,       VOCAB,     HIDDEN), \
    TABLE     (MODEL "embeddings.position_embeddings.weight",     POSITIONS,    POSITIONS, HIDDEN), \
    VECTOR    (MODEL "embeddings.LayerNorm.weight",               EMBED_NORM,   HIDDEN),            \
    VECTOR    (MODEL "embeddings.LayerNorm.bias",                 EMBED_NORM_B, HIDDEN),            \
    MATRIX_F32(MODEL "encoder.relative_attention_bias.weight",    REL_BIAS,     BUCKETS,   HEADS),  \
    MATRIX    (LAYER "attention.attn.q.weight",                   QKV,          Q,         HIDDEN), \
    MATRIX    (LAYER "attention.attn.k.weight",                   QKV,          KV,        HIDDEN), \
    MATRIX    (LAYER "attention.attn.v.weight",                   QKV,          KV,        HIDDEN), \
    VECTOR    (LAYER "attention.attn.q.bias",                     QKV_B,        Q),                 \
    VECTOR    (LAYER "attention.attn.k.bias",                     QKV_B,        KV),                \
    VECTOR    (LAYER "attention.attn.v.bias",                     QKV_B,        KV),                \
    MATRIX    (LAYER "attention.attn.o.weight",                   O,            HIDDEN,    Q),      \
    VECTOR    (LAYER "attention.attn.o.bias",                     O_B,          HIDDEN),            \
    VECTOR    (LAYER "attention.LayerNorm.weight",                ATTN_NORM,    HIDDEN),            \
    VECTOR    (LAYER "attention.LayerNorm.bias",                  ATTN_NORM_B,  HIDDEN),            \
    MATRIX    (LAYER "intermediate.dense.weight",                 UP,           FFN,       HIDDEN), \
    VECTOR    (LAYER "intermediate.dense.bias",                   UP_B,         FFN),               \
    MATRIX    (LAYER "output.dense.weight",                       DOWN,         HIDDEN,    FFN),    \
    VECTOR    (LAYER "output.dense.bias",                         DOWN_B,       HIDDEN),            \
    VECTOR    (LAYER "output.LayerNorm.weight",                   FFN_NORM,     HIDDEN),            \
    VECTOR    (LAYER "output.LayerNorm.bias",                     FFN_NORM_B,   HIDDEN)
#define CLASSIFIER_TENSORS(name) \
    MATRIX(name ".weight", HEAD,   LABELS, HIDDEN), \
    VECTOR(name ".bias",   HEAD_B, LABELS)

static const proa_name bare_tensors[] = {
    BODY_TENSORS,
    MATRIX_IF(PRESENT, MODEL "pooler.dense.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR_IF(PRESENT, MODEL "pooler.dense.bias",   POOL_B, HIDDEN),
    END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS,
    MATRIX("classifier.dense.weight", HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR("classifier.dense.bias",   HEAD_DENSE_B, HIDDEN),
    CLASSIFIER_TENSORS("classifier.out_proj"),
    END_TENSORS};
static const proa_name token_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name qa_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    MATRIX   ("lm_head.dense.weight",      HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("lm_head.dense.bias",        HEAD_DENSE_B, HIDDEN),
    VECTOR   ("lm_head.layer_norm.weight", HEAD_NORM,    HIDDEN),
    VECTOR   ("lm_head.layer_norm.bias",   HEAD_NORM_B,  HIDDEN),
    TIED_HEAD(MODEL "embeddings.word_embeddings.weight"),
    MATRIX_IF(UNTIED, "lm_head.decoder.weight", HEAD,    VOCAB,  HIDDEN),
    VECTOR   ("lm_head.decoder.bias",      HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL};
static const char *const aliases[] = {"lm_head.decoder.bias", "lm_head.bias", NULL};
/* The pretraining head, and a pooler that some classes have no use for. */
static const char *const ignored[] = {
    "position_ids", "pooler.dense.weight", "pooler.dense.bias", "lm_head.bias", "lm_head.dense.weight",
    "lm_head.dense.bias", "lm_head.layer_norm.weight", "lm_head.layer_norm.bias", "lm_head.decoder.weight",
    "lm_head.decoder.bias", NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step layer[] = {POST_NORM_LAYER};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step pool[] = {GATHER(H), LINEAR(H, OUT, POOL, TANH), END};
static const proa_step cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, TANH),
    LINEAR(HN, OUT, HEAD,       0),
    END};
static const proa_step token_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, GELU),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD,       0),
    END};
/* clang-format on */

/* Positions begin after that of the padding token, which is always 1. */
static proa_status finish_mpnet(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    if (c->rel_buckets != BUCKETS)
        return PROA_FAIL(err, UNSUPPORTED, "'relative_attention_num_buckets' is %lld, must be %d",
                         (long long)c->rel_buckets, BUCKETS);
    c->rel_distance = FARTHEST;
    c->position_offset = FIRST_POSITION;
    c->context -= FIRST_POSITION;
    if (c->context < 1)
        return PROA_FAIL(err, INVALID, "'max_position_embeddings' %lld leaves no positions",
                         (long long)c->context + FIRST_POSITION);
    return proa_config_read_labels(c, json, err);
}

/* clang-format off */
#define ROW(row, class, tensors, heads, rows, outs)                                             \
    .name = row, .hf = STRINGS(class), .model_type = "mpnet", .kind = PROA_KIND_ENCODER,        \
    .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes,              \
    .aliases = aliases, .ignored = ignored, .stacks = {[STACK] = {embed, layer, NULL, false}},  \
    .head = heads, .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finish_mpnet

const proa_arch proa_arch_mpnet = {
    ROW("mpnet", "MPNetModel", bare_tensors, headless, ALL, HIDDEN), .pool = pool, FORMS(CHOICES, "MPNet")};
const proa_arch proa_arch_mpnet_cls = {
    ROW("mpnet_cls", "MPNetForSequenceClassification", cls_tensors, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_mpnet_token = {
    ROW("mpnet_token", "MPNetForTokenClassification", token_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_mpnet_qa = {
    ROW("mpnet_qa", "MPNetForQuestionAnswering", qa_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_mpnet_mlm = {
    ROW("mpnet_mlm", "MPNetForMaskedLM", mlm_tensors, mlm_head, ALL, VOCAB), .embedder = &proa_arch_mpnet};
/* clang-format on */
