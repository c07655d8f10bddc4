/* SPDX-License-Identifier: Apache-2.0
 * arch_roformer.c - RoFormer and RemBERT: BERT's layer after embeddings of a width of their own. RoFormer rotates pairs
 * of queries and keys in place of learned positions; RemBERT's masked language model has a matrix of a third width.
 * Heads: none (hidden states, RemBERT's pooler), sequence classification, token classification, question answering,
 * masked language model.
 * Facts: transformers' modeling_{roformer,rembert}.py. */
#include "model/arch/bert_rows.h"

#define STACK PROA_STACK_ENCODER
#define LAYER "encoder.layer.%d."

/* clang-format off */
static const proa_key roformer_keys[] = {
    BERT_KEYS(1e-12, 2), INTEGER("embedding_size", embed, 1, HIDDEN, 0), END_KEYS};
static const proa_key rembert_keys[] = {
    BERT_KEYS(1e-12, 2),
    INTEGER("input_embedding_size",  embed,      1, HIDDEN, 256),
    INTEGER("output_embedding_size", head_embed, 1, HIDDEN, 1664),
    END_KEYS};

#define LAYER_TENSORS(M) \
    BERT_ATTENTION(M LAYER), BERT_NORM(M LAYER "attention.output.LayerNorm", ATTN_NORM), \
    BERT_FFN(M LAYER), BERT_NORM(M LAYER "output.LayerNorm", FFN_NORM)
#define ROFORMER_TENSORS \
    BERT_EMBEDDINGS("roformer."), BERT_EMBED_NORM("roformer."), LAYER_TENSORS("roformer."),  \
    MATRIX_IF(PROJECTED, "roformer.embeddings_project.weight", PROJECT_IN,   HIDDEN, EMBED), \
    VECTOR_IF(PROJECTED, "roformer.embeddings_project.bias",   PROJECT_IN_B, HIDDEN)
#define REMBERT_POSITIONS TABLE("rembert.embeddings.position_embeddings.weight", POSITIONS, CONTEXT, EMBED)
#define REMBERT_TENSORS \
    BERT_EMBEDDINGS("rembert."), REMBERT_POSITIONS, BERT_EMBED_NORM("rembert."), LAYER_TENSORS("rembert."), \
    MATRIX("rembert.encoder.embedding_hidden_mapping_in.weight", PROJECT_IN,   HIDDEN, EMBED),              \
    VECTOR("rembert.encoder.embedding_hidden_mapping_in.bias",   PROJECT_IN_B, HIDDEN)

static const proa_name roformer_bare_tensors[] = {ROFORMER_TENSORS, END_TENSORS};
static const proa_name roformer_cls_tensors[] = {ROFORMER_TENSORS, DENSE_CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name roformer_token_tensors[] = {ROFORMER_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name roformer_qa_tensors[] = {ROFORMER_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name roformer_mlm_tensors[] = {ROFORMER_TENSORS, BERT_MLM_TENSORS("roformer.", EMBED), END_TENSORS};
static const proa_name rembert_bare_tensors[] = {REMBERT_TENSORS, BERT_POOLER("rembert.", IF(PRESENT)), END_TENSORS};
static const proa_name rembert_cls_tensors[] = {
    REMBERT_TENSORS, BERT_POOLER("rembert.", 0), CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name rembert_token_tensors[] = {REMBERT_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name rembert_qa_tensors[] = {REMBERT_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name rembert_mlm_tensors[] = {
    REMBERT_TENSORS,
    MATRIX("cls.predictions.dense.weight",     HEAD_DENSE,   HEAD_EMBED, HIDDEN),
    VECTOR("cls.predictions.dense.bias",       HEAD_DENSE_B, HEAD_EMBED),
    VECTOR("cls.predictions.LayerNorm.weight", HEAD_NORM,    HEAD_EMBED),
    VECTOR("cls.predictions.LayerNorm.bias",   HEAD_NORM_B,  HEAD_EMBED),
    MATRIX("cls.predictions.decoder.weight",   HEAD,         VOCAB, HEAD_EMBED),
    VECTOR("cls.predictions.decoder.bias",     HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const roformer_prefixes[] = {"roformer.", NULL}, *const rembert_prefixes[] = {"rembert.", NULL};
static const char *const aliases[] = {BERT_ALIASES, LAYER_NORM_ALIASES, NULL};
static const char *const ignored[] = {
    BERT_PRETRAINING, UNUSED_POOLER, "encoder.embed_positions.weight", "cls.predictions.dense.weight",
    "cls.predictions.dense.bias", "cls.predictions.LayerNorm.weight", "cls.predictions.LayerNorm.bias", NULL};

static const proa_step roformer_embed[] = {
    EMBED_TO(E, TOKENS, 0),
    EMBED_TO(E, TYPES,  OF_TYPE | ADD),
    NORM_IF (PLAIN_EMBED, E, X, EMBED_NORM),
    NORM_IF (PROJECTED,   E, E, EMBED_NORM),
    LINEAR  (E, X, PROJECT_IN, IF(PROJECTED)),
    ROPE_TABLE,
    END};
static const proa_step rembert_embed[] = {
    EMBED_TO(E, TOKENS,    0),
    EMBED_TO(E, TYPES,     OF_TYPE | ADD),
    EMBED_TO(E, POSITIONS, OF_POS | ADD),
    NORM    (E, E, EMBED_NORM),
    LINEAR  (E, X, PROJECT_IN, 0),
    END};
static const proa_step roformer_layer[] = {
    LINEAR(X, QKV, QKV,  0),
    ROTATE_PAIRS,
    KV_APPEND,
    ATTEND,
    LINEAR(A, D,   O,    ADD_X),
    NORM  (D, X,   ATTN_NORM),
    LINEAR(X, U,   UP,   ACT),
    LINEAR(U, D,   DOWN, ADD_X),
    NORM  (D, X,   FFN_NORM),
    END};
static const proa_step rembert_layer[] = {POST_NORM_LAYER};
static const proa_step headless[] = NO_HEAD, pool[] = POOLER_HEAD, token_head[] = ROWS_HEAD;
static const proa_step roformer_cls_head[] = DENSE_HEAD(ACT), rembert_cls_head[] = POOLED_HEAD;
static const proa_step mlm_head[] = NARROW_MLM_HEAD(ACT);
/* clang-format on */

static proa_status finish_roformer(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool values = false;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_bool(&values, json, "rotary_value", err));
    if (values) return PROA_FAIL(err, UNSUPPORTED, "'rotary_value' true is not supported");
    c->rotary_dim = c->hidden / c->heads;
    c->rope.theta = 10000;
    return proa_config_read_labels(c, json, err);
}

/* A number for an input, of its last row as it is. */
static proa_status finish_roformer_choice(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_bert_check_summary(json, &(proa_summary){"last", false}, err));
    if (proa_json_get(json, "summary_activation"))
        return PROA_FAIL(err, UNSUPPORTED, "'summary_activation' is not supported");
    PROA_TRY(finish_roformer(c, json, arena, err));
    proa_bert_set_choice(c);
    return PROA_OK;
}

static proa_status finish_rembert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    return proa_config_read_labels(c, json, err);
}

/* clang-format off */
#define ROW(row, short, class, head_name, program, rows, outs) \
    ROW_OF(row, short, class, head_name, program, rows, outs, finish_##short)
#define ROW_OF(row, short, class, head_name, program, rows, outs, finisher) \
    .name = row, .hf = STRINGS(class), .model_type = #short, .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER,   \
    .keys = short##_keys, .names = short##_##head_name##_tensors, .prefixes = short##_prefixes, .aliases = aliases, \
    .ignored = ignored, .stacks = {[STACK] = {short##_embed, short##_layer, NULL, false}}, .head = program,        \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finisher
#define FAMILY(short, class) \
    const proa_arch proa_arch_##short##_cls = {                                                                    \
        ROW(#short "_cls", short, class "ForSequenceClassification", cls, short##_cls_head, FIRST, LABELS)};       \
    const proa_arch proa_arch_##short##_token = {                                                                  \
        ROW(#short "_token", short, class "ForTokenClassification", token, token_head, ALL, LABELS)};              \
    const proa_arch proa_arch_##short##_qa = {                                                                     \
        ROW(#short "_qa", short, class "ForQuestionAnswering", qa, token_head, ALL, LABELS)};                      \
    const proa_arch proa_arch_##short##_mlm = {                                                                    \
        ROW(#short "_mlm", short, class "ForMaskedLM", mlm, mlm_head, ALL, VOCAB), .embedder = &proa_arch_##short,     \
        FORMS(DECODERS, class)}

const proa_arch proa_arch_roformer = {ROW("roformer", roformer, "RoFormerModel", bare, headless, ALL, HIDDEN)};
FAMILY(roformer, "RoFormer");
const proa_arch proa_arch_roformer_choice = {
    ROW_OF("roformer_choice", roformer, "RoFormerForMultipleChoice", token, token_head, LAST, LABELS,
           finish_roformer_choice)};
const proa_arch proa_arch_rembert = {
    ROW("rembert", rembert, "RemBertModel", bare, headless, ALL, HIDDEN), .pool = pool,
    FORMS(CHOICES, "RemBert")};
FAMILY(rembert, "RemBert");
/* clang-format on */
