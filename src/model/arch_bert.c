/* SPDX-License-Identifier: Apache-2.0
 * arch_bert.c - BERT: post-norm encoder with learned positions and token types, and its heads: none (hidden states
 * and pooler), sequence classification or regression, masked language model. Facts: transformers' modeling_bert.py. */
#include "model/arch.h"

static const proa_key keys[] = {PROA_KEY_REQUIRED("vocab_size", vocab, 1, PROA_VOCAB_MAX),
                                PROA_KEY_REQUIRED("hidden_size", hidden, 1, PROA_HIDDEN_MAX),
                                PROA_KEY_REQUIRED("num_hidden_layers", encoder_layers, 1, PROA_LAYERS_MAX),
                                PROA_KEY_REQUIRED("num_attention_heads", heads, 1, PROA_HEADS_MAX),
                                PROA_KEY_REQUIRED("intermediate_size", ffn, 1, PROA_FFN_MAX),
                                PROA_KEY_INTEGER("max_position_embeddings", context, 1, PROA_CONTEXT_MAX, 512),
                                PROA_KEY_INTEGER("type_vocab_size", types, 1, PROA_TOKEN_TYPES_MAX, 2),
                                PROA_KEY_NUMBER("layer_norm_eps", norm_eps, 0, 1, 1e-12),
                                PROA_KEY_ACTIVATION("hidden_act", PROA_ACT_GELU),
                                PROA_KEY_SWITCH("tie_word_embeddings", tied, 1),
                                {0}};

#define E     PROA_STACK_ENCODER
/* clang-format off: tables */
#define LAYER "bert.encoder.layer.%d."
#define BODY                                                                                                  \
    {"bert.embeddings.word_embeddings.weight",                                                                \
     E,                                                                                                       \
     PROA_SLOT_TOKENS,                                                                                        \
     PROA_ROLE_TABLE,                                                                                         \
     PROA_DIM_VOCAB,                                                                                          \
     PROA_DIM_HIDDEN,                                                                                         \
     0},                                                                                                      \
        {"bert.embeddings.position_embeddings.weight",                                                        \
         E,                                                                                                   \
         PROA_SLOT_POSITIONS,                                                                                 \
         PROA_ROLE_TABLE,                                                                                     \
         PROA_DIM_CONTEXT,                                                                                    \
         PROA_DIM_HIDDEN,                                                                                     \
         0},                                                                                                  \
        {"bert.embeddings.token_type_embeddings.weight",                                                      \
         E,                                                                                                   \
         PROA_SLOT_TYPES,                                                                                     \
         PROA_ROLE_TABLE,                                                                                     \
         PROA_DIM_TYPES,                                                                                      \
         PROA_DIM_HIDDEN,                                                                                     \
         0},                                                                                                  \
        {"bert.embeddings.LayerNorm.weight",                                                                  \
         E,                                                                                                   \
         PROA_SLOT_EMBED_NORM,                                                                                \
         PROA_ROLE_VECTOR,                                                                                    \
         PROA_DIM_HIDDEN,                                                                                     \
         0,                                                                                                   \
         0},                                                                                                  \
        {"bert.embeddings.LayerNorm.bias",                                                                    \
         E,                                                                                                   \
         PROA_SLOT_EMBED_NORM_B,                                                                              \
         PROA_ROLE_VECTOR,                                                                                    \
         PROA_DIM_HIDDEN,                                                                                     \
         0,                                                                                                   \
         0},                                                                                                  \
        {LAYER "attention.self.query.weight",                                                                 \
         E,                                                                                                   \
         PROA_SLOT_QKV,                                                                                       \
         PROA_ROLE_MATRIX,                                                                                    \
         PROA_DIM_Q,                                                                                          \
         PROA_DIM_HIDDEN,                                                                                     \
         0},                                                                                                  \
        {LAYER "attention.self.key.weight",                                                                   \
         E,                                                                                                   \
         PROA_SLOT_QKV,                                                                                       \
         PROA_ROLE_MATRIX,                                                                                    \
         PROA_DIM_KV,                                                                                         \
         PROA_DIM_HIDDEN,                                                                                     \
         0},                                                                                                  \
        {LAYER "attention.self.value.weight",                                                                 \
         E,                                                                                                   \
         PROA_SLOT_QKV,                                                                                       \
         PROA_ROLE_MATRIX,                                                                                    \
         PROA_DIM_KV,                                                                                         \
         PROA_DIM_HIDDEN,                                                                                     \
         0},                                                                                                  \
        {LAYER "attention.self.query.bias", E, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_Q, 0, 0},          \
        {LAYER "attention.self.key.bias", E, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_KV, 0, 0},           \
        {LAYER "attention.self.value.bias", E, PROA_SLOT_QKV_B, PROA_ROLE_VECTOR, PROA_DIM_KV, 0, 0},         \
        {LAYER "attention.output.dense.weight",                                                               \
         E,                                                                                                   \
         PROA_SLOT_O,                                                                                         \
         PROA_ROLE_MATRIX,                                                                                    \
         PROA_DIM_HIDDEN,                                                                                     \
         PROA_DIM_Q,                                                                                          \
         0},                                                                                                  \
        {LAYER "attention.output.dense.bias", E, PROA_SLOT_O_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},     \
        {LAYER "attention.output.LayerNorm.weight",                                                           \
         E,                                                                                                   \
         PROA_SLOT_ATTN_NORM,                                                                                 \
         PROA_ROLE_VECTOR,                                                                                    \
         PROA_DIM_HIDDEN,                                                                                     \
         0,                                                                                                   \
         0},                                                                                                  \
        {LAYER "attention.output.LayerNorm.bias",                                                             \
         E,                                                                                                   \
         PROA_SLOT_ATTN_NORM_B,                                                                               \
         PROA_ROLE_VECTOR,                                                                                    \
         PROA_DIM_HIDDEN,                                                                                     \
         0,                                                                                                   \
         0},                                                                                                  \
        {LAYER "intermediate.dense.weight",                                                                   \
         E,                                                                                                   \
         PROA_SLOT_UP,                                                                                        \
         PROA_ROLE_MATRIX,                                                                                    \
         PROA_DIM_FFN,                                                                                        \
         PROA_DIM_HIDDEN,                                                                                     \
         0},                                                                                                  \
        {LAYER "intermediate.dense.bias", E, PROA_SLOT_UP_B, PROA_ROLE_VECTOR, PROA_DIM_FFN, 0, 0},           \
        {LAYER "output.dense.weight", E, PROA_SLOT_DOWN, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN, PROA_DIM_FFN, 0}, \
        {LAYER "output.dense.bias", E, PROA_SLOT_DOWN_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},            \
        {LAYER "output.LayerNorm.weight", E, PROA_SLOT_FFN_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},    \
    {                                                                                                         \
        LAYER "output.LayerNorm.bias", E, PROA_SLOT_FFN_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0       \
    }
#define POOLER(flags)                                                                                        \
    {"bert.pooler.dense.weight",                                                                             \
     E,                                                                                                      \
     PROA_SLOT_POOL,                                                                                         \
     PROA_ROLE_MATRIX,                                                                                       \
     PROA_DIM_HIDDEN,                                                                                        \
     PROA_DIM_HIDDEN,                                                                                        \
     flags},                                                                                                 \
    {                                                                                                        \
        "bert.pooler.dense.bias", E, PROA_SLOT_POOL_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, flags           \
    }

static const proa_name bare_names[] = {BODY, POOLER(PROA_OPTIONAL), {0}};
static const proa_name cls_names[] = {
    BODY,
    POOLER(0),
    {"classifier.weight", E, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_LABELS, PROA_DIM_HIDDEN, 0},
    {"classifier.bias", E, PROA_SLOT_HEAD_B, PROA_ROLE_VECTOR, PROA_DIM_LABELS, 0, 0},
    {0}};
static const proa_name mlm_names[] = {
    BODY,
    {"cls.predictions.transform.dense.weight", E, PROA_SLOT_HEAD_DENSE, PROA_ROLE_MATRIX, PROA_DIM_HIDDEN,
     PROA_DIM_HIDDEN, 0},
    {"cls.predictions.transform.dense.bias", E, PROA_SLOT_HEAD_DENSE_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN, 0, 0},
    {"cls.predictions.transform.LayerNorm.weight", E, PROA_SLOT_HEAD_NORM, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN,
     0, 0},
    {"cls.predictions.transform.LayerNorm.bias", E, PROA_SLOT_HEAD_NORM_B, PROA_ROLE_VECTOR, PROA_DIM_HIDDEN,
     0, 0},
    {"bert.embeddings.word_embeddings.weight", E, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB,
     PROA_DIM_HIDDEN, PROA_IF_TIED | PROA_SHARED},
    {"cls.predictions.decoder.weight", E, PROA_SLOT_HEAD, PROA_ROLE_MATRIX, PROA_DIM_VOCAB, PROA_DIM_HIDDEN,
     PROA_IF_UNTIED},
    {"cls.predictions.bias", E, PROA_SLOT_HEAD_B, PROA_ROLE_VECTOR, PROA_DIM_VOCAB, 0, 0},
    {0}};
/* clang-format on */
static const char *const prefixes[] = {"bert.", NULL};
static const char *const aliases[] = {"LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias",
                                      "LayerNorm.beta", NULL};
/* What pretraining left behind: heads that this row has no use for. */
static const char *const bare_ignored[] = {"position_ids",
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
static const char *const mlm_ignored[] = {"position_ids",
                                          "pooler.dense.weight",
                                          "pooler.dense.bias",
                                          "cls.seq_relationship.weight",
                                          "cls.seq_relationship.bias",
                                          "cls.predictions.decoder.weight",
                                          "cls.predictions.decoder.bias",
                                          NULL};

/* What is normed stays beside its norm: a device may then norm it within the next product. */
static const proa_step embed[] = {
    {PROA_STEP_EMBED, .out = PROA_REG_D, .w = PROA_SLOT_TOKENS},
    {PROA_STEP_EMBED, .out = PROA_REG_D, .w = PROA_SLOT_POSITIONS, .flags = PROA_OF_POS | PROA_ADD},
    {PROA_STEP_EMBED, .out = PROA_REG_D, .w = PROA_SLOT_TYPES, .flags = PROA_OF_TYPE | PROA_ADD},
    {PROA_STEP_NORM, PROA_REG_D, PROA_REG_X, PROA_SLOT_EMBED_NORM, 0},
    {PROA_STEP_END}};
static const proa_step layer[] = {{PROA_STEP_LINEAR, PROA_REG_X, PROA_REG_QKV, PROA_SLOT_QKV, 0},
                                  {PROA_STEP_KV_APPEND, .in = PROA_REG_QKV},
                                  {PROA_STEP_ATTEND, PROA_REG_QKV, PROA_REG_A, 0, 0},
                                  {PROA_STEP_LINEAR, PROA_REG_A, PROA_REG_D, PROA_SLOT_O, PROA_ADD_X},
                                  {PROA_STEP_NORM, PROA_REG_D, PROA_REG_X, PROA_SLOT_ATTN_NORM, 0},
                                  {PROA_STEP_LINEAR, PROA_REG_X, PROA_REG_U, PROA_SLOT_UP, PROA_ACT},
                                  {PROA_STEP_LINEAR, PROA_REG_U, PROA_REG_D, PROA_SLOT_DOWN, PROA_ADD_X},
                                  {PROA_STEP_NORM, PROA_REG_D, PROA_REG_X, PROA_SLOT_FFN_NORM, 0},
                                  {PROA_STEP_END}};
static const proa_step bare_head[] = {{PROA_STEP_GATHER, PROA_REG_X, PROA_REG_OUT, 0, 0}, {PROA_STEP_END}};
static const proa_step pool[] = {{PROA_STEP_GATHER, PROA_REG_X, PROA_REG_H, 0, 0},
                                 {PROA_STEP_LINEAR, PROA_REG_H, PROA_REG_OUT, PROA_SLOT_POOL, PROA_TANH},
                                 {PROA_STEP_END}};
static const proa_step cls_head[] = {{PROA_STEP_GATHER, PROA_REG_X, PROA_REG_H, 0, 0},
                                     {PROA_STEP_LINEAR, PROA_REG_H, PROA_REG_HN, PROA_SLOT_POOL, PROA_TANH},
                                     {PROA_STEP_LINEAR, PROA_REG_HN, PROA_REG_OUT, PROA_SLOT_HEAD, 0},
                                     {PROA_STEP_END}};
static const proa_step mlm_head[] = {{PROA_STEP_GATHER, PROA_REG_X, PROA_REG_H, 0, 0},
                                     {PROA_STEP_LINEAR, PROA_REG_H, PROA_REG_HN, PROA_SLOT_HEAD_DENSE, PROA_ACT},
                                     {PROA_STEP_NORM, PROA_REG_HN, PROA_REG_HN, PROA_SLOT_HEAD_NORM, 0},
                                     {PROA_STEP_LINEAR, PROA_REG_HN, PROA_REG_OUT, PROA_SLOT_HEAD, 0},
                                     {PROA_STEP_END}};

/* Labels: num_labels, or the entries of id2label, or transformers' default of two. */
static proa_status finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    proa_str type = {"", 0}, positions = {"absolute", 8};
    int64_t named = proa_json_len(proa_json_get(json, "id2label"));
    c->labels = named > 0 ? named : 2;
    PROA_TRY(proa_json_get_int(&c->labels, json, "num_labels", 1, PROA_LABELS_MAX, err));
    PROA_TRY(proa_json_get_str(&type, json, "problem_type", err));
    c->regression = proa_str_is(type, "regression") || c->labels == 1;
    PROA_TRY(proa_json_get_str(&positions, json, "position_embedding_type", err));
    if (proa_str_is(positions, "absolute")) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'position_embedding_type' '%.*s' is not supported",
                     (int)positions.len, positions.ptr);
}

#define COMMON                                                                                               \
    .model_type = "bert", .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER, .keys = keys,                  \
    .prefixes = prefixes, .aliases = aliases, .stacks[E] = {embed, layer, NULL, false}, .finish = finish
#define HF(name)                                                                                             \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        name, NULL                                                                                           \
    }

const proa_arch proa_arch_bert = {.name = "bert",
                                  .hf = HF("BertModel"),
                                  COMMON,
                                  .names = bare_names,
                                  .ignored = bare_ignored,
                                  .head = bare_head,
                                  .pool = pool,
                                  .head_rows = PROA_ROWS_ALL,
                                  .outputs = PROA_DIM_HIDDEN};
const proa_arch proa_arch_bert_cls = {.name = "bert_cls",
                                      .hf = HF("BertForSequenceClassification"),
                                      COMMON,
                                      .names = cls_names,
                                      .ignored = bare_ignored,
                                      .head = cls_head,
                                      .head_rows = PROA_ROWS_FIRST,
                                      .outputs = PROA_DIM_LABELS};
const proa_arch proa_arch_bert_mlm = {.name = "bert_mlm",
                                      .hf = HF("BertForMaskedLM"),
                                      COMMON,
                                      .names = mlm_names,
                                      .ignored = mlm_ignored,
                                      .head = mlm_head,
                                      .head_rows = PROA_ROWS_ALL,
                                      .outputs = PROA_DIM_VOCAB};
