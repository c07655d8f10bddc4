/* SPDX-License-Identifier: Apache-2.0
 * arch_albert.c - ALBERT: BERT's layer, whose weights all layers share, after embeddings that are narrower than it.
 * Names without a layer number make weights of the stack, which every layer reads that has none of its own. Heads: none
 * (hidden states and pooler), sequence classification, token classification, question answering, masked language model.
 * Facts: transformers' modeling_albert.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_ENCODER
#define MODEL "albert."
#define LAYER MODEL "encoder.albert_layer_groups.0.albert_layers.0."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    INTEGER   ("embedding_size",          embed,          1, HIDDEN,      128),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       encoder_layers, LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,     512),
    INTEGER   ("type_vocab_size",         types,          1, TOKEN_TYPES, 2),
    EPSILON   ("layer_norm_eps",          1e-12),
    ACTIVATION("hidden_act",              GELU_TANH),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};

#define BODY_TENSORS \
    TABLE (MODEL "embeddings.word_embeddings.weight",            TOKENS,       VOCAB,   EMBED),  \
    TABLE (MODEL "embeddings.position_embeddings.weight",        POSITIONS,    CONTEXT, EMBED),  \
    TABLE (MODEL "embeddings.token_type_embeddings.weight",      TYPES,        TYPES,   EMBED),  \
    VECTOR(MODEL "embeddings.LayerNorm.weight",                  EMBED_NORM,   EMBED),           \
    VECTOR(MODEL "embeddings.LayerNorm.bias",                    EMBED_NORM_B, EMBED),           \
    MATRIX(MODEL "encoder.embedding_hidden_mapping_in.weight",   PROJECT_IN,   HIDDEN,  EMBED),  \
    VECTOR(MODEL "encoder.embedding_hidden_mapping_in.bias",     PROJECT_IN_B, HIDDEN),          \
    MATRIX(LAYER "attention.query.weight",                       QKV,          Q,       HIDDEN), \
    MATRIX(LAYER "attention.key.weight",                         QKV,          KV,      HIDDEN), \
    MATRIX(LAYER "attention.value.weight",                       QKV,          KV,      HIDDEN), \
    VECTOR(LAYER "attention.query.bias",                         QKV_B,        Q),               \
    VECTOR(LAYER "attention.key.bias",                           QKV_B,        KV),              \
    VECTOR(LAYER "attention.value.bias",                         QKV_B,        KV),              \
    MATRIX(LAYER "attention.dense.weight",                       O,            HIDDEN,  Q),      \
    VECTOR(LAYER "attention.dense.bias",                         O_B,          HIDDEN),          \
    VECTOR(LAYER "attention.LayerNorm.weight",                   ATTN_NORM,    HIDDEN),          \
    VECTOR(LAYER "attention.LayerNorm.bias",                     ATTN_NORM_B,  HIDDEN),          \
    MATRIX(LAYER "ffn.weight",                                   UP,           FFN,     HIDDEN), \
    VECTOR(LAYER "ffn.bias",                                     UP_B,         FFN),             \
    MATRIX(LAYER "ffn_output.weight",                            DOWN,         HIDDEN,  FFN),    \
    VECTOR(LAYER "ffn_output.bias",                              DOWN_B,       HIDDEN),          \
    VECTOR(LAYER "full_layer_layer_norm.weight",                 FFN_NORM,     HIDDEN),          \
    VECTOR(LAYER "full_layer_layer_norm.bias",                   FFN_NORM_B,   HIDDEN)
#define CLASSIFIER_TENSORS(name) \
    MATRIX(name ".weight", HEAD,   LABELS, HIDDEN), \
    VECTOR(name ".bias",   HEAD_B, LABELS)

static const proa_name bare_tensors[] = {
    BODY_TENSORS,
    MATRIX_IF(PRESENT, MODEL "pooler.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR_IF(PRESENT, MODEL "pooler.bias",   POOL_B, HIDDEN),
    END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS,
    MATRIX(MODEL "pooler.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR(MODEL "pooler.bias",   POOL_B, HIDDEN),
    CLASSIFIER_TENSORS("classifier"),
    END_TENSORS};
static const proa_name token_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name qa_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    MATRIX   ("predictions.dense.weight",     HEAD_DENSE,   EMBED, HIDDEN),
    VECTOR   ("predictions.dense.bias",       HEAD_DENSE_B, EMBED),
    VECTOR   ("predictions.LayerNorm.weight", HEAD_NORM,    EMBED),
    VECTOR   ("predictions.LayerNorm.bias",   HEAD_NORM_B,  EMBED),
    TIED_HEAD_OF(MODEL "embeddings.word_embeddings.weight", EMBED),
    MATRIX_IF(UNTIED, "predictions.decoder.weight", HEAD,   VOCAB, EMBED),
    VECTOR   ("predictions.decoder.bias",     HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL};
static const char *const aliases[] = {"predictions.decoder.bias", "predictions.bias", NULL};
/* The pretraining heads, and a pooler that some classes have no use for. */
static const char *const ignored[] = {
    "position_ids", "pooler.weight", "pooler.bias", "sop_classifier.classifier.weight",
    "sop_classifier.classifier.bias", "predictions.bias", "predictions.dense.weight", "predictions.dense.bias",
    "predictions.LayerNorm.weight", "predictions.LayerNorm.bias", "predictions.decoder.weight",
    "predictions.decoder.bias", NULL};

static const proa_step embed[] = {
    EMBED_TO(E, TOKENS,    0),
    EMBED_TO(E, POSITIONS, OF_POS | ADD),
    EMBED_TO(E, TYPES,     OF_TYPE | ADD),
    NORM    (E, E,         EMBED_NORM),
    LINEAR  (E, X,         PROJECT_IN, 0),
    END};
static const proa_step layer[] = {POST_NORM_LAYER};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step pool[] = {GATHER(H), LINEAR(H, OUT, POOL, TANH), END};
static const proa_step cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  POOL, TANH),
    LINEAR(HN, OUT, HEAD, 0),
    END};
static const proa_step token_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HE,  HEAD_DENSE, ACT),
    NORM  (HE, HE,  HEAD_NORM),
    LINEAR(HE, OUT, HEAD,       0),
    END};
/* clang-format on */

/* All published models have one group of one layer. */
static proa_status finish_albert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const char *const names[] = {"num_hidden_groups", "inner_group_num"};
    PROA_UNUSED(arena);
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        int64_t groups = 1;
        PROA_TRY(proa_json_get_int(&groups, json, names[i], 1, PROA_LAYERS_MAX, err));
        if (groups != 1)
            return PROA_FAIL(err, UNSUPPORTED, "'%s' is %lld, must be 1", names[i], (long long)groups);
    }
    return proa_config_read_labels(c, json, err);
}

/* clang-format off */
#define ROW(row, class, tensors, heads, rows, outs)                                             \
    .name = row, .hf = STRINGS class, .model_type = "albert", .kind = PROA_KIND_ENCODER,       \
    .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes,              \
    .aliases = aliases, .ignored = ignored, .stacks = {[STACK] = {embed, layer, NULL, false}},  \
    .head = heads, .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finish_albert

const proa_arch proa_arch_albert = {
    ROW("albert", ("AlbertModel"), bare_tensors, headless, ALL, HIDDEN), .pool = pool, FORMS(CHOICES, "Albert")};
const proa_arch proa_arch_albert_cls = {
    ROW("albert_cls", ("AlbertForSequenceClassification"), cls_tensors, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_albert_token = {
    ROW("albert_token", ("AlbertForTokenClassification"), token_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_albert_qa = {
    ROW("albert_qa", ("AlbertForQuestionAnswering"), qa_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_albert_mlm = {
    ROW("albert_mlm", ("AlbertForMaskedLM", "AlbertForPreTraining"), mlm_tensors, mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_albert};
/* clang-format on */
