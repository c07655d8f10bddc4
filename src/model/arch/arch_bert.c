/* SPDX-License-Identifier: Apache-2.0
 * arch_bert.c - BERT (also DPR's encoders), ERNIE, RoBERTa (XLM-RoBERTa, CamemBERT, Data2VecText), Longformer, ELECTRA:
 * post-norm encoders with learned positions and token types. Heads: none (hidden states and pooler), sequence
 * classification or regression, token classification (labels of every row), question answering (start and end of the
 * answer), masked language model, and ELECTRA's discriminator. RoBERTa's positions begin after that of the padding
 * token. Longformer is a RoBERTa with a window; its classes for sequences and for question answering have global
 * tokens, the first one and those of the question, with projections of their own. ERNIE may add the embedding of a
 * task, LayoutLM adds those of a text without boxes. ELECTRA may have embeddings narrower than its layers. BigBird is a
 * BERT where it attends to all tokens, LUKE a RoBERTa for texts without entities, I-BERT a RoBERTa. X-MOD
 * is one with an adapter of the configuration's language behind each FFN. Facts: transformers'
 * modeling_{bert,dpr,ernie,roberta,data2vec_text,ibert,xmod,longformer,luke,layoutlm,electra}.py. */
#include "model/arch/bert_rows.h"

#include "base/checked.h"
#include <string.h>

#define STACK PROA_STACK_ENCODER
#define LAYER "encoder.layer.%d."

/* clang-format off */
static const proa_key keys[] = {BERT_KEYS(1e-12, 2), END_KEYS};
static const proa_key bigbird_keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       encoder_layers, LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,     4096),
    INTEGER   ("type_vocab_size",         types,          1, TOKEN_TYPES, 2),
    EPSILON   ("layer_norm_eps",          1e-12),
    ACTIVATION("hidden_act",              GELU_TANH),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};
static const proa_key electra_keys[] = {
    BERT_KEYS(1e-12, 2), INTEGER("embedding_size", embed, 1, HIDDEN, 128), END_KEYS};

/* MODEL is the prefix of the body; POSITION_TABLE the line of its table of positions. */
#define BODY_TENSORS(MODEL, POSITION_ROWS) \
    BERT_EMBEDDINGS(MODEL), BERT_POSITIONS(MODEL, POSITION_ROWS), BERT_EMBED_NORM(MODEL),       \
    BERT_ATTENTION(MODEL LAYER), BERT_NORM(MODEL LAYER "attention.output.LayerNorm", ATTN_NORM), \
    BERT_FFN(MODEL LAYER), BERT_NORM(MODEL LAYER "output.LayerNorm", FFN_NORM)
#define BERT_TENSORS    BODY_TENSORS("bert.", CONTEXT)
#define ERNIE_TENSORS   BODY_TENSORS("ernie.", CONTEXT), \
    TENSOR("ernie.embeddings.task_type_embeddings.weight", TASKS, TABLE, TASKS, HIDDEN, IF(TASKED))
#define ROBERTA_TENSORS BODY_TENSORS("roberta.", POSITIONS)
#define ELECTRA_TENSORS \
    BODY_TENSORS("electra.", CONTEXT),                                                      \
    MATRIX_IF(PROJECTED, "electra.embeddings_project.weight", PROJECT_IN,   HIDDEN, EMBED), \
    VECTOR_IF(PROJECTED, "electra.embeddings_project.bias",   PROJECT_IN_B, HIDDEN)

static const proa_name bigbird_bare_tensors[] = {
    BERT_TENSORS,
    MATRIX_IF(PRESENT, "bert.pooler.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR_IF(PRESENT, "bert.pooler.bias",   POOL_B, HIDDEN),
    END_TENSORS};
static const proa_name bigbird_cls_tensors[] = {BERT_TENSORS, DENSE_CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name bare_tensors[] = {BERT_TENSORS, BERT_POOLER("bert.", IF(PRESENT)), END_TENSORS};
static const proa_name cls_tensors[] = {
    BERT_TENSORS, BERT_POOLER("bert.", 0), CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name token_tensors[] = {BERT_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name qa_tensors[] = {BERT_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name mlm_tensors[] = {BERT_TENSORS, BERT_MLM_TENSORS("bert.", HIDDEN), END_TENSORS};
static const proa_name roberta_bare_tensors[] = {ROBERTA_TENSORS, BERT_POOLER("roberta.", IF(PRESENT)), END_TENSORS};
static const proa_name roberta_cls_tensors[] = {ROBERTA_TENSORS, DENSE_CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name luke_cls_tensors[] = {
    ROBERTA_TENSORS, BERT_POOLER("roberta.", 0), CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name roberta_token_tensors[] = {ROBERTA_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name roberta_qa_tensors[] = {ROBERTA_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name roberta_mlm_tensors[] = {ROBERTA_TENSORS, ROBERTA_MLM_TENSORS("roberta."), END_TENSORS};
static const proa_name ernie_bare_tensors[] = {ERNIE_TENSORS, BERT_POOLER("ernie.", IF(PRESENT)), END_TENSORS};
static const proa_name ernie_cls_tensors[] = {
    ERNIE_TENSORS, BERT_POOLER("ernie.", 0), CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name ernie_token_tensors[] = {ERNIE_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name ernie_qa_tensors[] = {ERNIE_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name ernie_mlm_tensors[] = {ERNIE_TENSORS, BERT_MLM_TENSORS("ernie.", HIDDEN), END_TENSORS};
/* I-BERT's table in integers is as large as the table. */
#define IBERT_TENSORS \
    ROBERTA_TENSORS, \
    TENSOR("roberta.embeddings.word_embeddings.weight_integer", TOKENS, TABLE, VOCAB, HIDDEN, PROA_UNUSED)
static const proa_name ibert_bare_tensors[] = {IBERT_TENSORS, BERT_POOLER("roberta.", IF(PRESENT)), END_TENSORS};
static const proa_name ibert_cls_tensors[] = {IBERT_TENSORS, DENSE_CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name ibert_token_tensors[] = {IBERT_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name ibert_qa_tensors[] = {IBERT_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name ibert_mlm_tensors[] = {IBERT_TENSORS, ROBERTA_MLM_TENSORS("roberta."), END_TENSORS};
#define LAYOUTLM_TENSORS \
    BODY_TENSORS("layoutlm.", CONTEXT),                                                 \
    TABLE("layoutlm.embeddings.x_position_embeddings.weight", BOX_X, BOXES, HIDDEN),    \
    TABLE("layoutlm.embeddings.y_position_embeddings.weight", BOX_Y, BOXES, HIDDEN),    \
    TABLE("layoutlm.embeddings.h_position_embeddings.weight", BOX_H, BOXES, HIDDEN),    \
    TABLE("layoutlm.embeddings.w_position_embeddings.weight", BOX_W, BOXES, HIDDEN)
static const proa_name layoutlm_bare_tensors[] = {
    LAYOUTLM_TENSORS, BERT_POOLER("layoutlm.", IF(PRESENT)), END_TENSORS};
static const proa_name layoutlm_cls_tensors[] = {
    LAYOUTLM_TENSORS, BERT_POOLER("layoutlm.", 0), CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name layoutlm_token_tensors[] = {LAYOUTLM_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name layoutlm_qa_tensors[] = {LAYOUTLM_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name layoutlm_mlm_tensors[] = {LAYOUTLM_TENSORS, BERT_MLM_TENSORS("layoutlm.", HIDDEN), END_TENSORS};
/* X-MOD has an adapter for each language behind the FFN. */
#define LANGUAGE_ADAPTER LAYER "output.adapter_modules." PROA_LANGUAGE
#define XMOD_TENSORS \
    ROBERTA_TENSORS,                                                                \
    MATRIX("roberta." LANGUAGE_ADAPTER ".dense1.weight", ADAPTER_DOWN,   ADAPTER, HIDDEN),   \
    VECTOR("roberta." LANGUAGE_ADAPTER ".dense1.bias",   ADAPTER_DOWN_B, ADAPTER),           \
    MATRIX("roberta." LANGUAGE_ADAPTER ".dense2.weight", ADAPTER_UP,     HIDDEN,  ADAPTER),  \
    VECTOR("roberta." LANGUAGE_ADAPTER ".dense2.bias",   ADAPTER_UP_B,   HIDDEN)
static const proa_name xmod_bare_tensors[] = {XMOD_TENSORS, BERT_POOLER("roberta.", IF(PRESENT)), END_TENSORS};
static const proa_name xmod_cls_tensors[] = {XMOD_TENSORS, DENSE_CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name xmod_token_tensors[] = {XMOD_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name xmod_qa_tensors[] = {XMOD_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name xmod_mlm_tensors[] = {XMOD_TENSORS, ROBERTA_MLM_TENSORS("roberta."), END_TENSORS};
static const proa_name electra_bare_tensors[] = {ELECTRA_TENSORS, END_TENSORS};
static const proa_name electra_cls_tensors[] = {ELECTRA_TENSORS, DENSE_CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name electra_choice_tensors[] = {
    ELECTRA_TENSORS,
    MATRIX("sequence_summary.summary.weight", HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR("sequence_summary.summary.bias",   HEAD_DENSE_B, HIDDEN),
    CLASSIFIER_TENSORS("classifier"),
    END_TENSORS};
static const proa_name electra_token_tensors[] = {ELECTRA_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name electra_qa_tensors[] = {ELECTRA_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name electra_disc_tensors[] = {
    ELECTRA_TENSORS,
    MATRIX("discriminator_predictions.dense.weight", HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR("discriminator_predictions.dense.bias",   HEAD_DENSE_B, HIDDEN),
    CLASSIFIER_TENSORS("discriminator_predictions.dense_prediction"),
    END_TENSORS};
static const proa_name electra_mlm_tensors[] = {
    ELECTRA_TENSORS,
    MATRIX   ("generator_predictions.dense.weight",     HEAD_DENSE,   EMBED, HIDDEN),
    VECTOR   ("generator_predictions.dense.bias",       HEAD_DENSE_B, EMBED),
    VECTOR   ("generator_predictions.LayerNorm.weight", HEAD_NORM,    EMBED),
    VECTOR   ("generator_predictions.LayerNorm.bias",   HEAD_NORM_B,  EMBED),
    TIED_HEAD_OF("electra.embeddings.word_embeddings.weight", EMBED),
    MATRIX_IF(UNTIED, "generator_lm_head.weight",       HEAD,         VOCAB, EMBED),
    VECTOR   ("generator_lm_head.bias",                 HEAD_B,       VOCAB),
    END_TENSORS};
#define LONGFORMER_TENSORS \
    ROBERTA_TENSORS,                                                                                     \
    MATRIX_IF(GLOBALS, "roberta." LAYER "attention.self.query_global.weight", QKV_GLOBAL,   Q,  HIDDEN), \
    MATRIX_IF(GLOBALS, "roberta." LAYER "attention.self.key_global.weight",   QKV_GLOBAL,   KV, HIDDEN), \
    MATRIX_IF(GLOBALS, "roberta." LAYER "attention.self.value_global.weight", QKV_GLOBAL,   KV, HIDDEN), \
    VECTOR_IF(GLOBALS, "roberta." LAYER "attention.self.query_global.bias",   QKV_GLOBAL_B, Q),          \
    VECTOR_IF(GLOBALS, "roberta." LAYER "attention.self.key_global.bias",     QKV_GLOBAL_B, KV),         \
    VECTOR_IF(GLOBALS, "roberta." LAYER "attention.self.value_global.bias",   QKV_GLOBAL_B, KV)
static const proa_name longformer_bare_tensors[] = {
    LONGFORMER_TENSORS,
    MATRIX_IF(PRESENT, "roberta.pooler.dense.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR_IF(PRESENT, "roberta.pooler.dense.bias",   POOL_B, HIDDEN),
    END_TENSORS};
static const proa_name longformer_token_tensors[] = {LONGFORMER_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name longformer_mlm_tensors[] = {LONGFORMER_TENSORS, ROBERTA_MLM_TENSORS("roberta."), END_TENSORS};
static const proa_name longformer_cls_tensors[] = {
    LONGFORMER_TENSORS,
    MATRIX("classifier.dense.weight", HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR("classifier.dense.bias",   HEAD_DENSE_B, HIDDEN),
    CLASSIFIER_TENSORS("classifier.out_proj"),
    END_TENSORS};
static const proa_name longformer_qa_tensors[] = {LONGFORMER_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const char *const prefixes[] = {"bert.", NULL}, *const roberta_prefixes[] = {"roberta.", NULL};
static const char *const dpr_beginnings[] = {
    "bert.", "question_encoder.bert_model.", "bert.", "ctx_encoder.bert_model.", NULL};
static const char *const ernie_prefixes[] = {"ernie.", NULL};
static const char *const electra_prefixes[] = {"electra.", NULL};
static const char *const aliases[] = {BERT_ALIASES, LAYER_NORM_ALIASES, NULL};
static const char *const roberta_aliases[] = {ROBERTA_ALIASES, NULL};
static const char *const bare_ignored[] = {
    BERT_PRETRAINING, "cls.predictions.transform.LayerNorm.gamma", "cls.predictions.transform.LayerNorm.beta", NULL};
/* What BigBird's classes have beside what they use. */
static const char *const bigbird_ignored[] = {
    BERT_PRETRAINING, "token_type_ids", "pooler.weight", "pooler.bias", NULL};
static const char *const bigbird_mlm_ignored[] = {
    "position_ids", "token_type_ids", "pooler.weight", "pooler.bias", "cls.predictions.bias",
    "cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "cls.seq_relationship.weight",
    "cls.seq_relationship.bias", NULL};
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
static const char *const roberta_bare_ignored[] = {ROBERTA_PRETRAINING, NULL};
/* RoBERTa's classes for sequences have no pooler, but their published checkpoints do. */
static const char *const roberta_ignored[] = {
    "position_ids",
    "roberta.pooler.dense.weight",
    "roberta.pooler.dense.bias",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
    "lm_head.bias",
    NULL};
/* What reads and gives attention of global tokens, which some classes below have none of by themselves. */
static const char *const longformer_ignored[] = {
    ROBERTA_PRETRAINING, UNUSED_POOLER, "query_global.weight", "query_global.bias", "key_global.weight",
    "key_global.bias", "value_global.weight", "value_global.bias", NULL};
static const char *const roberta_beginnings[] = {"roberta.", "data2vec_text.", NULL};
/* LUKE's entities, and the queries between words and these: its words alone are computed. */
static const char *const luke_beginnings[] = {"roberta.", "luke.", NULL};
static const char *const luke_unused[] = {"luke.entity_embeddings.", "entity_embeddings.", "entity_predictions.", NULL};
#define LUKE_QUERIES \
    "w2e_query.weight", "w2e_query.bias", "e2w_query.weight", "e2w_query.bias", "e2e_query.weight", "e2e_query.bias"
static const char *const luke_ignored[] = {ROBERTA_PRETRAINING, UNUSED_POOLER, LUKE_QUERIES, NULL};
static const char *const luke_mlm_ignored[] = {
    "position_ids", UNUSED_POOLER, LUKE_QUERIES, "lm_head.decoder.weight", "lm_head.decoder.bias", "lm_head.bias",
    NULL};
/* I-BERT's ranges and integers, which its form for integers alone reads. */
static const char *const ibert_beginnings[] = {"roberta.", "ibert.", NULL};
#define INTEGER_STATE \
    "x_min", "x_max", "act_scaling_factor", "weight_scaling_factor", "weight_integer", "fc_scaling_factor",  \
    "bias_integer", "LayerNorm.shift"
static const char *const ibert_ignored[] = {ROBERTA_PRETRAINING, UNUSED_POOLER, INTEGER_STATE, NULL};
static const char *const ibert_mlm_ignored[] = {
    "position_ids", UNUSED_POOLER, INTEGER_STATE, "lm_head.decoder.weight", "lm_head.decoder.bias", "lm_head.bias",
    NULL};
static const char *const layoutlm_prefixes[] = {"layoutlm.", NULL};
static const char *const longformer_beginnings[] = {"roberta.", "longformer.", NULL};
/* The heads of ELECTRA's two pretraining models. */
static const char *const electra_ignored[] = {
    "position_ids",
    "discriminator_predictions.dense.weight",
    "discriminator_predictions.dense.bias",
    "discriminator_predictions.dense_prediction.weight",
    "discriminator_predictions.dense_prediction.bias",
    "generator_predictions.dense.weight",
    "generator_predictions.dense.bias",
    "generator_predictions.LayerNorm.weight",
    "generator_predictions.LayerNorm.bias",
    "generator_lm_head.weight",
    "generator_lm_head.bias",
    NULL};

/* Each norm reads D and writes X, so its input survives: a device may fuse the norm into the next product. */
static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    EMBED_TO(D, TYPES,     OF_TYPE | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step ernie_embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    EMBED_TO(D, TYPES,     OF_TYPE | ADD),
    EMBED_TO(D, TASKS,     OF_NONE | ADD | IF(TASKED)),
    NORM    (D, X,         EMBED_NORM),
    END};
/* A text has no boxes: all its tokens have coordinates, a height and a width of 0. */
static const proa_step layoutlm_embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    EMBED_TO(D, BOX_X,     OF_NONE | ADD),
    EMBED_TO(D, BOX_Y,     OF_NONE | ADD),
    EMBED_TO(D, BOX_X,     OF_NONE | ADD),
    EMBED_TO(D, BOX_Y,     OF_NONE | ADD),
    EMBED_TO(D, BOX_H,     OF_NONE | ADD),
    EMBED_TO(D, BOX_W,     OF_NONE | ADD),
    EMBED_TO(D, TYPES,     OF_TYPE | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step electra_embed[] = {
    EMBED_TO(E, TOKENS,     0),
    EMBED_TO(E, POSITIONS,  OF_POS | ADD),
    EMBED_TO(E, TYPES,      OF_TYPE | ADD),
    NORM_IF (PLAIN_EMBED, E, X, EMBED_NORM),
    NORM_IF (PROJECTED,   E, E, EMBED_NORM),
    LINEAR  (E, X, PROJECT_IN, IF(PROJECTED)),
    END};
static const proa_step layer[] = {POST_NORM_LAYER};
/* The norm of the FFN is used before the adapter and behind it. */
static const proa_step xmod_layer[] = {
    LINEAR(X, QKV, QKV,          0),
    KV_APPEND,
    ATTEND,
    LINEAR(A, D,   O,            ADD_X),
    NORM  (D, X,   ATTN_NORM),
    LINEAR(X, U,   UP,           ACT),
    LINEAR(U, D,   DOWN,         ADD_X),
    NORM  (D, N,   FFN_NORM),
    LINEAR(N, D,   ADAPTER_DOWN, ACT),
    LINEAR(D, N,   ADAPTER_UP,   ADD),
    NORM  (N, X,   FFN_NORM),
    END};
static const proa_step longformer_layer[] = {
    LINEAR(X, QKV, QKV,        0),
    KV_APPEND,
    ATTEND,
    LINEAR(X, QKV, QKV_GLOBAL, IF(GLOBALS)),
    ATTEND_GLOBALS,
    LINEAR(A, D,   O,          ADD_X),
    NORM  (D, X,   ATTN_NORM),
    LINEAR(X, U,   UP,         ACT),
    LINEAR(U, D,   DOWN,       ADD_X),
    NORM  (D, X,   FFN_NORM),
    END};
static const proa_step headless[] = NO_HEAD, pool[] = POOLER_HEAD, cls_head[] = POOLED_HEAD, token_head[] = ROWS_HEAD;
static const proa_step roberta_cls_head[] = DENSE_HEAD(TANH), electra_cls_head[] = DENSE_HEAD(GELU);
static const proa_step electra_choice_head[] = DENSE_HEAD(HEAD_ACT);
static const proa_step electra_disc_head[] = DENSE_HEAD(ACT), electra_mlm_head[] = NARROW_MLM_HEAD(GELU);
static const proa_step mlm_head[] = MLM_HEAD(ACT), roberta_mlm_head[] = MLM_HEAD(GELU);
/* clang-format on */

static proa_status finish_bert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    PROA_TRY(proa_config_read_labels(c, json, err));
    return proa_bert_check_positions(json, "absolute", err);
}

/* Inputs are of the first task. */
static proa_status finish_ernie(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool used = false;
    PROA_TRY(proa_json_get_bool(&used, json, "use_task_id", err));
    if (used) c->tasks = 3;
    if (used)
        PROA_TRY(proa_json_get_int(&c->tasks, json, "task_type_vocab_size", 1, PROA_TOKEN_TYPES_MAX, err));
    return finish_bert(c, json, arena, err);
}

static proa_status finish_bigbird(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool biased = true, scaled = false;
    PROA_TRY(proa_json_get_bool(&biased, json, "use_bias", err));
    PROA_TRY(proa_json_get_bool(&scaled, json, "rescale_embeddings", err));
    if (!biased) return PROA_FAIL(err, UNSUPPORTED, "'use_bias' false is not supported");
    if (scaled) return PROA_FAIL(err, UNSUPPORTED, "'rescale_embeddings' true is not supported");
    PROA_TRY(proa_config_read_block_sparse(c, json, err));
    return finish_bert(c, json, arena, err);
}

/* The embedding is the first row as it is. */
static proa_status finish_dpr(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t projected = 0;
    PROA_TRY(proa_json_get_int(&projected, json, "projection_dim", 0, PROA_HIDDEN_MAX, err));
    if (projected == 0) return finish_bert(c, json, arena, err);
    return PROA_FAIL(err, UNSUPPORTED, "'projection_dim' %lld is not supported", (long long)projected);
}

/* The discriminator has one logit for each token: whether it was replaced. */
static proa_status finish_discriminator(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(finish_bert(c, json, arena, err));
    c->labels = 1;
    c->regression = false;
    return PROA_OK;
}

/* A number for an input, which is compared with those of others, of its first row. */
static proa_status finish_electra_choice(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_act unnamed = proa_config_is_null(json, "summary_activation") ? PROA_ACT_NONE : PROA_ACT_GELU;
    PROA_TRY(proa_bert_check_summary(json, &(proa_summary){"first", true}, err));
    PROA_TRY(proa_config_read_act(&c->head_act, json, "summary_activation", unnamed, err));
    PROA_TRY(finish_bert(c, json, arena, err));
    proa_bert_set_choice(c);
    return PROA_OK;
}

static proa_status finish_roberta(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_roberta_read_positions(c, json, 1, err));
    return finish_bert(c, json, arena, err);
}

/* Its layers as they are trained; those for integers alone round at each step. */
static proa_status finish_ibert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_bert_check_switch(json, "quant_mode", false, err));
    return finish_roberta(c, json, arena, err);
}

static proa_status finish_layoutlm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->boxes = 1024;
    PROA_TRY(proa_json_get_int(&c->boxes, json, "max_2d_position_embeddings", 1, PROA_CONTEXT_MAX, err));
    return finish_bert(c, json, arena, err);
}

/* The language whose adapters are used: one of `languages`. */
static proa_status read_language(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *languages = proa_json_get(json, "languages");
    proa_str language = {NULL, 0};
    PROA_TRY(proa_json_get_str(&language, json, "default_language", err));
    if (!language.ptr)
        return PROA_FAIL(err, INVALID, "'default_language' is missing: it says whose adapters are used");
    bool known = !languages && proa_str_is(language, "en_XX");
    for (int64_t i = 0; languages && i < proa_json_len(languages) && !known; i++) {
        proa_str one = proa_json_str(proa_json_at(languages, i));
        known = one.len == language.len && memcmp(one.ptr, language.ptr, one.len) == 0;
    }
    if (!known || language.len > PROA_LANGUAGE_MAX)
        return PROA_FAIL(err, INVALID, "'default_language' '%.*s' is not one of 'languages'",
                         (int)proa_min64((int64_t)language.len, 60), language.ptr);
    c->language = proa_arena_strdup(arena, language);
    return PROA_OK;
}

static proa_status finish_xmod(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t factor = 2;
    PROA_TRY(proa_bert_check_switch(json, "pre_norm", false, err));
    PROA_TRY(proa_bert_check_switch(json, "adapter_layer_norm", false, err));
    PROA_TRY(proa_bert_check_switch(json, "adapter_reuse_layer_norm", true, err));
    PROA_TRY(proa_bert_check_switch(json, "ln_before_adapter", true, err));
    PROA_TRY(proa_json_get_int(&factor, json, "adapter_reduction_factor", 1, c->hidden, err));
    c->adapter = c->hidden / factor;
    PROA_TRY(read_language(c, json, arena, err));
    return finish_roberta(c, json, arena, err);
}

/* Only global tokens see all others and are seen by all: without them attention is local. */
static proa_status finish_longformer(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_config_read_attention_window(c, json, err));
    return finish_roberta(c, json, arena, err);
}

static proa_status finish_longformer_cls(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->globals = 1;
    return finish_longformer(c, json, arena, err);
}

/* The tokens of the question: those before the first of the three separators that an input must have. */
static proa_status finish_longformer_qa(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->globals = -1, c->globals_end = 2, c->globals_ends = 3;
    PROA_TRY(proa_json_get_int(&c->globals_end, json, "sep_token_id", 0, c->vocab - 1, err));
    return finish_longformer(c, json, arena, err);
}

/* clang-format off */
#define ENCODER(type, class, config_keys, begin, tensors, skipped, heads, rows, outs)           \
    .name = type, .hf = class, .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER,              \
    .keys = config_keys, .names = tensors, .ignored = skipped, .head = heads,                   \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs,                                  \
    .stacks = {[STACK] = {begin, layer, NULL, false}}
#define BERT(type, class, tensors, skipped, heads, rows, outs)                                  \
    ENCODER(type, STRINGS(class), keys, embed, tensors, skipped, heads, rows, outs),            \
    .model_type = "bert", .prefixes = prefixes, .aliases = aliases, .finish = finish_bert
#define ROBERTA(type, ending, tensors, skipped, heads, rows, outs)                              \
    ENCODER(type, STRINGS("Roberta" ending, "XLMRoberta" ending, "Camembert" ending, "Data2VecText" ending), keys, \
            embed, tensors, skipped, heads, rows, outs),                                        \
    .model_type = "roberta", .prefixes = roberta_prefixes, .prefix_aliases = roberta_beginnings, \
    .aliases = roberta_aliases, .finish = finish_roberta
#define ELECTRA(type, class, tensors, heads, rows, outs, finisher)                                      \
    ENCODER(type, STRINGS(class), electra_keys, electra_embed, tensors, electra_ignored, heads, rows, outs), \
    .model_type = "electra", .prefixes = electra_prefixes, .finish = finisher

const proa_arch proa_arch_bert = {
    BERT("bert", "BertModel", bare_tensors, bare_ignored, headless, ALL, HIDDEN), .pool = pool,
    FORMS(CHOICES | FOLLOWS, "Bert")};
const proa_arch proa_arch_bert_cls = {
    BERT("bert_cls", "BertForSequenceClassification", cls_tensors, bare_ignored, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_bert_token = {
    BERT("bert_token", "BertForTokenClassification", token_tensors, rows_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_bert_qa = {
    BERT("bert_qa", "BertForQuestionAnswering", qa_tensors, rows_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_bert_mlm = {
    ENCODER("bert_mlm", STRINGS("BertForMaskedLM", "BertForPreTraining"), keys, embed, mlm_tensors, rows_ignored,
            mlm_head, ALL, VOCAB),
    .model_type = "bert", .prefixes = prefixes, .aliases = aliases, .finish = finish_bert, .embedder = &proa_arch_bert,
    FORMS(DECODERS, "BertLMHeadModel")};
#define BIGBIRD(type, tensors, skipped, heads, rows, outs, ...)                                             \
    ENCODER(type, STRINGS(__VA_ARGS__), bigbird_keys, embed, tensors, skipped, heads, rows, outs),          \
    .model_type = "big_bird", .prefixes = prefixes, .aliases = aliases, .finish = finish_bigbird
const proa_arch proa_arch_bigbird = {
    BIGBIRD("bigbird", bigbird_bare_tensors, bigbird_ignored, headless, ALL, HIDDEN, "BigBirdModel"), .pool = pool,
    FORMS(CHOICES, "BigBird")};
const proa_arch proa_arch_bigbird_cls = {
    BIGBIRD("bigbird_cls", bigbird_cls_tensors, bigbird_ignored, electra_disc_head, FIRST, LABELS,
            "BigBirdForSequenceClassification")};
const proa_arch proa_arch_bigbird_token = {
    BIGBIRD("bigbird_token", token_tensors, bigbird_ignored, token_head, ALL, LABELS,
            "BigBirdForTokenClassification")};
const proa_arch proa_arch_bigbird_mlm = {
    BIGBIRD("bigbird_mlm", mlm_tensors, bigbird_mlm_ignored, mlm_head, ALL, VOCAB, "BigBirdForMaskedLM",
            "BigBirdForPreTraining"),
    .embedder = &proa_arch_bigbird};
const proa_arch proa_arch_dpr = {
    ENCODER("dpr", STRINGS("DPRQuestionEncoder", "DPRContextEncoder"), keys, embed, bare_tensors, bare_ignored,
            headless, ALL, HIDDEN),
    .model_type = "dpr", .prefix_aliases = dpr_beginnings, .embeds = PROA_EMBEDS_FIRST, .finish = finish_dpr};
#define ERNIE(type, class, tensors, skipped, heads, rows, outs)                                 \
    ENCODER(type, STRINGS(class), keys, ernie_embed, tensors, skipped, heads, rows, outs),      \
    .model_type = "ernie", .prefixes = ernie_prefixes, .aliases = aliases, .finish = finish_ernie
const proa_arch proa_arch_ernie = {
    ERNIE("ernie", "ErnieModel", ernie_bare_tensors, bare_ignored, headless, ALL, HIDDEN), .pool = pool,
    FORMS(CHOICES | FOLLOWS, "Ernie")};
const proa_arch proa_arch_ernie_cls = {
    ERNIE("ernie_cls", "ErnieForSequenceClassification", ernie_cls_tensors, bare_ignored, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_ernie_token = {
    ERNIE("ernie_token", "ErnieForTokenClassification", ernie_token_tensors, rows_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_ernie_qa = {
    ERNIE("ernie_qa", "ErnieForQuestionAnswering", ernie_qa_tensors, rows_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_ernie_mlm = {
    ERNIE("ernie_mlm", "ErnieForMaskedLM", ernie_mlm_tensors, rows_ignored, mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_ernie, FORMS(DECODERS, "Ernie")};
const proa_arch proa_arch_roberta = {
    ROBERTA("roberta", "Model", roberta_bare_tensors, roberta_bare_ignored, headless, ALL, HIDDEN), .pool = pool,
    FORMS(CHOICES, "Roberta", "XLMRoberta", "Camembert", "Data2VecText")};
const proa_arch proa_arch_roberta_cls = {
    ROBERTA("roberta_cls", "ForSequenceClassification", roberta_cls_tensors, roberta_ignored, roberta_cls_head, FIRST,
            LABELS)};
const proa_arch proa_arch_roberta_token = {
    ROBERTA("roberta_token", "ForTokenClassification", roberta_token_tensors, roberta_ignored, token_head, ALL,
            LABELS)};
const proa_arch proa_arch_roberta_qa = {
    ROBERTA("roberta_qa", "ForQuestionAnswering", roberta_qa_tensors, roberta_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_roberta_mlm = {
    ROBERTA("roberta_mlm", "ForMaskedLM", roberta_mlm_tensors, roberta_ignored, roberta_mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_roberta, FORMS(DECODERS, "Roberta", "XLMRoberta", "Camembert", "Data2VecText")};
#define LUKE(type, ending, tensors, skipped, heads, rows, outs)                                        \
    ENCODER(type, STRINGS("Luke" ending), keys, embed, tensors, skipped, heads, rows, outs),            \
    .model_type = "luke", .prefixes = roberta_prefixes, .prefix_aliases = luke_beginnings,              \
    .unused_parts = luke_unused, .aliases = roberta_aliases, .finish = finish_roberta
const proa_arch proa_arch_luke = {
    LUKE("luke", "Model", roberta_bare_tensors, luke_ignored, headless, ALL, HIDDEN), .pool = pool,
    FORMS(CHOICES, "Luke")};
const proa_arch proa_arch_luke_cls = {
    LUKE("luke_cls", "ForSequenceClassification", luke_cls_tensors, luke_ignored, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_luke_token = {
    LUKE("luke_token", "ForTokenClassification", roberta_token_tensors, luke_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_luke_qa = {
    LUKE("luke_qa", "ForQuestionAnswering", roberta_qa_tensors, luke_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_luke_mlm = {
    LUKE("luke_mlm", "ForMaskedLM", roberta_mlm_tensors, luke_mlm_ignored, roberta_mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_luke};
#define IBERT(type, ending, tensors, skipped, heads, rows, outs)                                       \
    ENCODER(type, STRINGS("IBert" ending), keys, embed, tensors, skipped, heads, rows, outs),           \
    .model_type = "ibert", .prefixes = roberta_prefixes, .prefix_aliases = ibert_beginnings,            \
    .aliases = roberta_aliases, .finish = finish_ibert
const proa_arch proa_arch_ibert = {
    IBERT("ibert", "Model", ibert_bare_tensors, ibert_ignored, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_ibert_cls = {
    IBERT("ibert_cls", "ForSequenceClassification", ibert_cls_tensors, ibert_ignored, roberta_cls_head, FIRST, LABELS)};
const proa_arch proa_arch_ibert_token = {
    IBERT("ibert_token", "ForTokenClassification", ibert_token_tensors, ibert_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_ibert_qa = {
    IBERT("ibert_qa", "ForQuestionAnswering", ibert_qa_tensors, ibert_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_ibert_mlm = {
    IBERT("ibert_mlm", "ForMaskedLM", ibert_mlm_tensors, ibert_mlm_ignored, roberta_mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_ibert};
#define XMOD(type, ending, tensors, skipped, heads, rows, outs)                                        \
    .name = type, .hf = STRINGS("Xmod" ending), .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER,     \
    .keys = keys, .names = tensors, .ignored = skipped, .head = heads,                                  \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs,                                          \
    .stacks = {[STACK] = {embed, xmod_layer, NULL, false}}, .model_type = "xmod",                       \
    .prefixes = roberta_prefixes, .aliases = roberta_aliases, .finish = finish_xmod
const proa_arch proa_arch_xmod = {
    XMOD("xmod", "Model", xmod_bare_tensors, roberta_bare_ignored, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_xmod_cls = {
    XMOD("xmod_cls", "ForSequenceClassification", xmod_cls_tensors, roberta_ignored, roberta_cls_head, FIRST, LABELS)};
const proa_arch proa_arch_xmod_token = {
    XMOD("xmod_token", "ForTokenClassification", xmod_token_tensors, roberta_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_xmod_qa = {
    XMOD("xmod_qa", "ForQuestionAnswering", xmod_qa_tensors, roberta_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_xmod_mlm = {
    XMOD("xmod_mlm", "ForMaskedLM", xmod_mlm_tensors, roberta_ignored, roberta_mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_xmod};
#define LAYOUTLM(type, ending, tensors, skipped, heads, rows, outs)                                    \
    ENCODER(type, STRINGS("LayoutLM" ending), keys, layoutlm_embed, tensors, skipped, heads, rows, outs), \
    .model_type = "layoutlm", .prefixes = layoutlm_prefixes, .aliases = aliases, .finish = finish_layoutlm
const proa_arch proa_arch_layoutlm = {
    LAYOUTLM("layoutlm", "Model", layoutlm_bare_tensors, bare_ignored, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_layoutlm_cls = {
    LAYOUTLM("layoutlm_cls", "ForSequenceClassification", layoutlm_cls_tensors, bare_ignored, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_layoutlm_token = {
    LAYOUTLM("layoutlm_token", "ForTokenClassification", layoutlm_token_tensors, rows_ignored, token_head, ALL,
             LABELS)};
const proa_arch proa_arch_layoutlm_qa = {
    LAYOUTLM("layoutlm_qa", "ForQuestionAnswering", layoutlm_qa_tensors, rows_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_layoutlm_mlm = {
    LAYOUTLM("layoutlm_mlm", "ForMaskedLM", layoutlm_mlm_tensors, rows_ignored, mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_layoutlm};
#define LONGFORMER(type, ending, tensors, heads, rows, outs, finisher)                                         \
    .name = type, .hf = STRINGS("Longformer" ending), .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER,     \
    .keys = keys, .names = tensors, .ignored = longformer_ignored, .head = heads,                             \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs,                                                \
    .stacks = {[STACK] = {embed, longformer_layer, NULL, false}},                                             \
    .model_type = "longformer", .prefixes = roberta_prefixes, .prefix_aliases = longformer_beginnings,        \
    .aliases = roberta_aliases, .finish = finisher
const proa_arch proa_arch_longformer = {
    LONGFORMER("longformer", "Model", longformer_bare_tensors, headless, ALL, HIDDEN, finish_longformer),
    .pool = pool};
const proa_arch proa_arch_longformer_cls = {
    LONGFORMER("longformer_cls", "ForSequenceClassification", longformer_cls_tensors, roberta_cls_head, FIRST, LABELS,
               finish_longformer_cls)};
const proa_arch proa_arch_longformer_qa = {
    LONGFORMER("longformer_qa", "ForQuestionAnswering", longformer_qa_tensors, token_head, ALL, LABELS,
               finish_longformer_qa)};
const proa_arch proa_arch_longformer_token = {
    LONGFORMER("longformer_token", "ForTokenClassification", longformer_token_tensors, token_head, ALL, LABELS,
               finish_longformer)};
const proa_arch proa_arch_longformer_mlm = {
    LONGFORMER("longformer_mlm", "ForMaskedLM", longformer_mlm_tensors, roberta_mlm_head, ALL, VOCAB,
               finish_longformer),
    .embedder = &proa_arch_longformer};
const proa_arch proa_arch_electra = {
    ELECTRA("electra", "ElectraModel", electra_bare_tensors, headless, ALL, HIDDEN, finish_bert)};
const proa_arch proa_arch_electra_cls = {
    ELECTRA("electra_cls", "ElectraForSequenceClassification", electra_cls_tensors, electra_cls_head, FIRST, LABELS,
            finish_bert)};
const proa_arch proa_arch_electra_choice = {
    ELECTRA("electra_choice", "ElectraForMultipleChoice", electra_choice_tensors, electra_choice_head, FIRST, LABELS,
            finish_electra_choice)};
const proa_arch proa_arch_electra_token = {
    ELECTRA("electra_token", "ElectraForTokenClassification", electra_token_tensors, token_head, ALL, LABELS,
            finish_bert)};
const proa_arch proa_arch_electra_qa = {
    ELECTRA("electra_qa", "ElectraForQuestionAnswering", electra_qa_tensors, token_head, ALL, LABELS, finish_bert)};
const proa_arch proa_arch_electra_disc = {
    ELECTRA("electra_disc", "ElectraForPreTraining", electra_disc_tensors, electra_disc_head, ALL, LABELS,
            finish_discriminator), .embedder = &proa_arch_electra};
const proa_arch proa_arch_electra_mlm = {
    ELECTRA("electra_mlm", "ElectraForMaskedLM", electra_mlm_tensors, electra_mlm_head, ALL, VOCAB, finish_bert),
    .embedder = &proa_arch_electra, FORMS(DECODERS, "Electra")};
/* clang-format on */
