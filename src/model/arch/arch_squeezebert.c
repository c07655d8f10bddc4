/* SPDX-License-Identifier: Apache-2.0
 * arch_squeezebert.c - SqueezeBERT: a BERT whose products are convolutions of one row in groups: an output reads the
 * inputs of its group alone. They are loaded as dense matrices with zeros between the groups. Heads: none, masked
 * language model, sequence, token classification, question answering.
 * Facts: Iandola et al. 2020; transformers' modeling_squeezebert.py. */
#include "model/arch/bert_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_ENCODER
#define MODEL "transformer."
#define LAYER MODEL "encoder.layers.%d."

/* clang-format off */
static const proa_key keys[] = {BERT_KEYS(1e-12, 2), END_KEYS};

#define GROUPED(name, SLOT, ROWS, COLS) \
    MATRIX_LOADED(GROUPED, name ".weight", SLOT, ROWS, COLS), \
    VECTOR(name ".bias", SLOT##_B, ROWS)
#define BODY_TENSORS \
    BERT_EMBEDDINGS(MODEL), BERT_POSITIONS(MODEL, CONTEXT), BERT_EMBED_NORM(MODEL),  \
    MATRIX_LOADED(GROUPED, LAYER "attention.query.weight", QKV, Q,  HIDDEN),         \
    MATRIX_LOADED(GROUPED, LAYER "attention.key.weight",   QKV, KV, HIDDEN),         \
    MATRIX_LOADED(GROUPED, LAYER "attention.value.weight", QKV, KV, HIDDEN),         \
    VECTOR(LAYER "attention.query.bias", QKV_B, Q),                                  \
    VECTOR(LAYER "attention.key.bias",   QKV_B, KV),                                 \
    VECTOR(LAYER "attention.value.bias", QKV_B, KV),                                 \
    GROUPED(LAYER "post_attention.conv1d", O,    HIDDEN, Q),                         \
    BERT_NORM(LAYER "post_attention.layernorm", ATTN_NORM),                          \
    GROUPED(LAYER "intermediate.conv1d",   UP,   FFN,    HIDDEN),                    \
    GROUPED(LAYER "output.conv1d",         DOWN, HIDDEN, FFN),                       \
    BERT_NORM(LAYER "output.layernorm", FFN_NORM)

static const proa_name bare_tensors[] = {BODY_TENSORS, BERT_POOLER(MODEL, IF(PRESENT)), END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS, BERT_POOLER(MODEL, 0), CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name token_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name qa_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name mlm_tensors[] = {BODY_TENSORS, BERT_MLM_TENSORS(MODEL, HIDDEN), END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL}, *const aliases[] = {BERT_ALIASES, NULL};
static const char *const ignored[] = {BERT_PRETRAINING, UNUSED_POOLER, NULL};
static const char *const mlm_ignored[] = {
    "position_ids", UNUSED_POOLER, "cls.seq_relationship.weight", "cls.seq_relationship.bias",
    "cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "cls.predictions.bias", NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    EMBED_TO(D, TYPES,     OF_TYPE | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step layer[] = {POST_NORM_LAYER};
static const proa_step headless[] = NO_HEAD, pool[] = POOLER_HEAD, cls_head[] = POOLED_HEAD, rows_head[] = ROWS_HEAD;
static const proa_step mlm_head[] = MLM_HEAD(ACT);
/* clang-format on */

/* The groups are those of the stored shapes. */
static proa_status finish_squeezebert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t width = c->hidden;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_int(&width, json, "embedding_size", 1, PROA_HIDDEN_MAX, err));
    if (width != c->hidden)
        return PROA_FAIL(err, UNSUPPORTED, "'embedding_size' %lld is not 'hidden_size' %lld",
                         (long long)width, (long long)c->hidden);
    PROA_TRY(proa_config_read_labels(c, json, err));
    return proa_bert_check_positions(json, "absolute", err);
}

/* clang-format off */
#define SQUEEZEBERT(type, ending, tensors, skipped, heads, rows, outs) \
    .name = type, .hf = STRINGS("SqueezeBert" ending), .model_type = "squeezebert", .kind = PROA_KIND_ENCODER,   \
    .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes, .aliases = aliases,           \
    .ignored = skipped, .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = heads,                        \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finish_squeezebert

const proa_arch proa_arch_squeezebert = {
    SQUEEZEBERT("squeezebert", "Model", bare_tensors, ignored, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_squeezebert_cls = {
    SQUEEZEBERT("squeezebert_cls", "ForSequenceClassification", cls_tensors, ignored, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_squeezebert_token = {
    SQUEEZEBERT("squeezebert_token", "ForTokenClassification", token_tensors, ignored, rows_head, ALL, LABELS)};
const proa_arch proa_arch_squeezebert_qa = {
    SQUEEZEBERT("squeezebert_qa", "ForQuestionAnswering", qa_tensors, ignored, rows_head, ALL, LABELS)};
const proa_arch proa_arch_squeezebert_mlm = {
    SQUEEZEBERT("squeezebert_mlm", "ForMaskedLM", mlm_tensors, mlm_ignored, mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_squeezebert};
/* clang-format on */
