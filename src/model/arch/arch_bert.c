/* SPDX-License-Identifier: Apache-2.0
 * arch_bert.c - BERT (also DPR's encoders), RoBERTa (XLM-RoBERTa, CamemBERT), Longformer, ELECTRA: post-norm encoders
 * with learned positions and token types. Heads: none (hidden states and pooler), sequence classification or
 * regression, token classification (labels of every row), question answering (start and end of the answer), masked
 * language model, and ELECTRA's discriminator. RoBERTa's positions begin after that of the padding token. Longformer is
 * a RoBERTa with a window. ELECTRA may have embeddings narrower than its layers.
 * Facts: transformers' modeling_{bert,dpr,roberta,longformer,electra}.py. */
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
static const proa_key electra_keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    INTEGER   ("embedding_size",          embed,          1, HIDDEN,      128),
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
    TABLE (MODEL "embeddings.word_embeddings.weight",       TOKENS,       VOCAB,   EMBED),  \
    POSITION_TABLE,                                                                         \
    TABLE (MODEL "embeddings.token_type_embeddings.weight", TYPES,        TYPES,   EMBED),  \
    VECTOR(MODEL "embeddings.LayerNorm.weight",             EMBED_NORM,   EMBED),           \
    VECTOR(MODEL "embeddings.LayerNorm.bias",               EMBED_NORM_B, EMBED),           \
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
#define ELECTRA_TENSORS \
    BODY_TENSORS("electra.", TABLE("electra.embeddings.position_embeddings.weight", POSITIONS, CONTEXT, EMBED)), \
    MATRIX_IF(PROJECTED, "electra.embeddings_project.weight", PROJECT_IN,   HIDDEN, EMBED),                      \
    VECTOR_IF(PROJECTED, "electra.embeddings_project.bias",   PROJECT_IN_B, HIDDEN)
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
static const proa_name qa_tensors[] = {BERT_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
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
static const proa_name roberta_qa_tensors[] = {ROBERTA_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
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
static const proa_name electra_bare_tensors[] = {ELECTRA_TENSORS, END_TENSORS};
static const proa_name electra_cls_tensors[] = {
    ELECTRA_TENSORS,
    MATRIX("classifier.dense.weight", HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR("classifier.dense.bias",   HEAD_DENSE_B, HIDDEN),
    CLASSIFIER_TENSORS("classifier.out_proj"),
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
static const char *const prefixes[] = {"bert.", NULL}, *const roberta_prefixes[] = {"roberta.", NULL};
static const char *const dpr_beginnings[] = {
    "bert.", "question_encoder.bert_model.", "bert.", "ctx_encoder.bert_model.", NULL};
static const char *const electra_prefixes[] = {"electra.", NULL};
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
/* What reads and gives attention of chosen tokens to all, which no class below has by itself. */
static const char *const longformer_ignored[] = {
    "position_ids",
    "query_global.weight",
    "query_global.bias",
    "key_global.weight",
    "key_global.bias",
    "value_global.weight",
    "value_global.bias",
    "pooler.dense.weight",
    "pooler.dense.bias",
    "lm_head.dense.weight",
    "lm_head.dense.bias",
    "lm_head.layer_norm.weight",
    "lm_head.layer_norm.bias",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
    "lm_head.bias",
    NULL};
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
static const proa_step electra_embed[] = {
    EMBED_TO(E, TOKENS,     0),
    EMBED_TO(E, POSITIONS,  OF_POS | ADD),
    EMBED_TO(E, TYPES,      OF_TYPE | ADD),
    NORM_IF (PLAIN_EMBED, E, X, EMBED_NORM),
    NORM_IF (PROJECTED,   E, E, EMBED_NORM),
    LINEAR  (E, X, PROJECT_IN, IF(PROJECTED)),
    END};
static const proa_step layer[] = {POST_NORM_LAYER};
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
static const proa_step electra_cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, GELU),
    LINEAR(HN, OUT, HEAD,       0),
    END};
static const proa_step electra_disc_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, ACT),
    LINEAR(HN, OUT, HEAD,       0),
    END};
static const proa_step electra_mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HE,  HEAD_DENSE, GELU),
    NORM  (HE, HE,  HEAD_NORM),
    LINEAR(HE, OUT, HEAD,       0),
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

/* attention_window is a number, or one for each layer; a layer sees half of it to each side. Only tokens that the
 * caller chooses see all others and are seen by all: without them, as here, attention is local. */
static proa_status finish_longformer(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *list = proa_json_get(json, "attention_window");
    int64_t window = 512, count = proa_json_len(list);
    if (count == 0)
        PROA_TRY(proa_json_get_int(&window, json, "attention_window", 2, PROA_CONTEXT_MAX - 2, err));
    for (int64_t i = 0; i < count; i++) {
        int64_t other = proa_json_int(proa_json_at(list, i));
        if (i == 0) window = other;
        if (other != window || other < 2 || other >= PROA_CONTEXT_MAX)
            return PROA_FAIL(err, UNSUPPORTED,
                             "'attention_window' must be one number of 2 or more for all layers");
    }
    c->window = window / 2 + 1;
    c->window_used = true;
    return finish_roberta(c, json, arena, err);
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
    ENCODER(type, STRINGS("Roberta" ending, "XLMRoberta" ending, "Camembert" ending), keys, embed, tensors, \
            skipped, heads, rows, outs),                                                        \
    .model_type = "roberta", .prefixes = roberta_prefixes, .aliases = roberta_aliases,          \
    .finish = finish_roberta
#define ELECTRA(type, class, tensors, heads, rows, outs, finisher)                                      \
    ENCODER(type, STRINGS(class), electra_keys, electra_embed, tensors, electra_ignored, heads, rows, outs), \
    .model_type = "electra", .prefixes = electra_prefixes, .finish = finisher

const proa_arch proa_arch_bert = {
    BERT("bert", "BertModel", bare_tensors, bare_ignored, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_bert_cls = {
    BERT("bert_cls", "BertForSequenceClassification", cls_tensors, bare_ignored, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_bert_token = {
    BERT("bert_token", "BertForTokenClassification", token_tensors, rows_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_bert_qa = {
    BERT("bert_qa", "BertForQuestionAnswering", qa_tensors, rows_ignored, token_head, ALL, LABELS)};
const proa_arch proa_arch_bert_mlm = {
    ENCODER("bert_mlm", STRINGS("BertForMaskedLM", "BertForPreTraining"), keys, embed, mlm_tensors, rows_ignored,
            mlm_head, ALL, VOCAB),
    .model_type = "bert", .prefixes = prefixes, .aliases = aliases, .finish = finish_bert, .embedder = &proa_arch_bert};
const proa_arch proa_arch_dpr = {
    ENCODER("dpr", STRINGS("DPRQuestionEncoder", "DPRContextEncoder"), keys, embed, bare_tensors, bare_ignored,
            headless, ALL, HIDDEN),
    .model_type = "dpr", .prefix_aliases = dpr_beginnings, .finish = finish_dpr};
const proa_arch proa_arch_roberta = {
    ROBERTA("roberta", "Model", roberta_bare_tensors, roberta_bare_ignored, headless, ALL, HIDDEN), .pool = pool};
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
    .embedder = &proa_arch_roberta};
#define LONGFORMER(type, ending, tensors, heads, outs)                                                     \
    ENCODER(type, STRINGS("Longformer" ending), keys, embed, tensors, longformer_ignored, heads, ALL, outs), \
    .model_type = "longformer", .prefixes = roberta_prefixes, .prefix_aliases = longformer_beginnings,       \
    .aliases = roberta_aliases, .finish = finish_longformer
const proa_arch proa_arch_longformer = {
    LONGFORMER("longformer", "Model", roberta_bare_tensors, headless, HIDDEN), .pool = pool};
const proa_arch proa_arch_longformer_token = {
    LONGFORMER("longformer_token", "ForTokenClassification", roberta_token_tensors, token_head, LABELS)};
const proa_arch proa_arch_longformer_mlm = {
    LONGFORMER("longformer_mlm", "ForMaskedLM", roberta_mlm_tensors, roberta_mlm_head, VOCAB),
    .embedder = &proa_arch_longformer};
const proa_arch proa_arch_electra = {
    ELECTRA("electra", "ElectraModel", electra_bare_tensors, headless, ALL, HIDDEN, finish_bert)};
const proa_arch proa_arch_electra_cls = {
    ELECTRA("electra_cls", "ElectraForSequenceClassification", electra_cls_tensors, electra_cls_head, FIRST, LABELS,
            finish_bert)};
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
    .embedder = &proa_arch_electra};
/* clang-format on */
