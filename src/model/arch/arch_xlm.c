/* SPDX-License-Identifier: Apache-2.0
 * arch_xlm.c - XLM and FlauBERT: BERT's layer under other names, or (FlauBERT, pre_norm) one that norms what attention
 * and FFN read. Embeddings of languages, which transformers adds where a call names them, are left out. Heads: none,
 * masked language model, sequence classification (one product of the first row), token classification, question
 * answering. Facts: transformers' modeling_{xlm,flaubert}.py. */
#include "model/arch/bert_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_ENCODER
#define MODEL "transformer."

/* clang-format off */
static const proa_key keys[] = {
    INTEGER   ("vocab_size",              vocab,          1, VOCAB,   30145),
    INTEGER   ("n_words",                 vocab,          1, VOCAB,   0),
    REQUIRED  ("emb_dim",                 hidden,         HIDDEN),
    REQUIRED  ("n_layers",                encoder_layers, LAYERS),
    REQUIRED  ("n_heads",                 heads,          HEADS),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 512),
    EPSILON   ("layer_norm_eps",          1e-12),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};

#define BODY_TENSORS \
    TABLE (MODEL "embeddings.weight",               TOKENS,       VOCAB,   HIDDEN), \
    TABLE (MODEL "position_embeddings.weight",      POSITIONS,    CONTEXT, HIDDEN), \
    BERT_NORM(MODEL "layer_norm_emb", EMBED_NORM),                                  \
    MATRIX(MODEL "attentions.%d.q_lin.weight",      QKV,          Q,       HIDDEN), \
    MATRIX(MODEL "attentions.%d.k_lin.weight",      QKV,          KV,      HIDDEN), \
    MATRIX(MODEL "attentions.%d.v_lin.weight",      QKV,          KV,      HIDDEN), \
    VECTOR(MODEL "attentions.%d.q_lin.bias",        QKV_B,        Q),               \
    VECTOR(MODEL "attentions.%d.k_lin.bias",        QKV_B,        KV),              \
    VECTOR(MODEL "attentions.%d.v_lin.bias",        QKV_B,        KV),              \
    MATRIX(MODEL "attentions.%d.out_lin.weight",    O,            HIDDEN,  Q),      \
    VECTOR(MODEL "attentions.%d.out_lin.bias",      O_B,          HIDDEN),          \
    BERT_NORM(MODEL "layer_norm1.%d", ATTN_NORM),                                   \
    MATRIX(MODEL "ffns.%d.lin1.weight",             UP,           FFN,     HIDDEN), \
    VECTOR(MODEL "ffns.%d.lin1.bias",               UP_B,         FFN),             \
    MATRIX(MODEL "ffns.%d.lin2.weight",             DOWN,         HIDDEN,  FFN),    \
    VECTOR(MODEL "ffns.%d.lin2.bias",               DOWN_B,       HIDDEN),          \
    BERT_NORM(MODEL "layer_norm2.%d", FFN_NORM)

static const proa_name bare_tensors[] = {BODY_TENSORS, END_TENSORS};
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    TIED_HEAD(MODEL "embeddings.weight"),
    MATRIX_IF(UNTIED, "pred_layer.proj.weight", HEAD, VOCAB, HIDDEN),
    VECTOR("pred_layer.proj.bias", HEAD_B, VOCAB),
    END_TENSORS};
static const proa_name cls_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("sequence_summary.summary"), END_TENSORS};
static const proa_name choice_tensors[] = {
    BODY_TENSORS,
    MATRIX("sequence_summary.summary.weight", HEAD_DENSE,   HEAD_EMBED, HIDDEN),
    VECTOR("sequence_summary.summary.bias",   HEAD_DENSE_B, HEAD_EMBED),
    MATRIX("logits_proj.weight",              HEAD,         LABELS,     HEAD_EMBED),
    VECTOR("logits_proj.bias",                HEAD_B,       LABELS),
    END_TENSORS};
static const proa_name token_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name qa_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL};
/* Embeddings of languages, and the head of the pretraining, which other classes of a checkpoint have no use for. */
static const char *const ignored[] = {
    "position_ids", "lang_embeddings.weight", "pred_layer.proj.weight", "pred_layer.proj.bias", NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step layer[] = PRE_OR_POST_NORM_LAYER;
static const proa_step headless[] = NO_HEAD, rows_head[] = ROWS_HEAD;
static const proa_step choice_head[] = {GATHER(H), LINEAR(H, HE, HEAD_DENSE, 0), LINEAR(HE, OUT, HEAD, 0), END};
/* clang-format on */

static proa_status refuse_switch(const proa_json *json, const char *key, bool value, bool only, proa_err *err)
{
    PROA_TRY(proa_json_get_bool(&value, json, key, err));
    if (value == only) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' %s is not supported", key, value ? "true" : "false");
}

static proa_status finish_xlm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool gelu = true, pre_norm = false;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_bool(&gelu, json, "gelu_activation", err));
    PROA_TRY(proa_json_get_bool(&pre_norm, json, "pre_norm", err));
    PROA_TRY(refuse_switch(json, "causal", false, false, err));
    PROA_TRY(refuse_switch(json, "asm", false, false, err));
    PROA_TRY(refuse_switch(json, "is_encoder", true, true, err));
    c->act = gelu ? PROA_ACT_GELU : PROA_ACT_RELU;
    c->post_norm = !pre_norm;
    c->ffn = 4 * c->hidden;
    return proa_config_read_labels(c, json, err);
}

/* The head of sequences may have another row or another product. */
static proa_status finish_cls(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str type = {"first", 5}, act = {"", 0};
    PROA_TRY(proa_json_get_str(&type, json, "summary_type", err));
    PROA_TRY(proa_json_get_str(&act, json, "summary_activation", err));
    PROA_TRY(refuse_switch(json, "summary_use_proj", true, true, err));
    PROA_TRY(refuse_switch(json, "summary_proj_to_labels", true, true, err));
    if (!proa_str_is(type, "first"))
        return PROA_FAIL(err, UNSUPPORTED, "'summary_type' '%.*s' is not supported (first is)",
                         (int)proa_min64((int64_t)type.len, 60), type.ptr);
    if (act.len)
        return PROA_FAIL(err, UNSUPPORTED, "'summary_activation' '%.*s' is not supported",
                         (int)proa_min64((int64_t)act.len, 60), act.ptr);
    return finish_xlm(c, json, arena, err);
}

/* A number for an input, of what the head of sequences makes of as many labels as config.json has. */
static proa_status finish_choice(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(finish_cls(c, json, arena, err));
    c->head_embed = c->labels;
    proa_bert_set_choice(c);
    return PROA_OK;
}

/* clang-format off */
#define XLM(row, ending, tensors, heads, rows, outs, finisher) \
    .name = row, .hf = STRINGS("XLM" ending, "Flaubert" ending), .model_type = "xlm", .kind = PROA_KIND_ENCODER,    \
    .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes, .ignored = ignored,              \
    .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = heads, .head_rows = PROA_ROWS_##rows,                \
    .outputs = PROA_DIM_##outs, .finish = finisher

const proa_arch proa_arch_xlm = {XLM("xlm", "Model", bare_tensors, headless, ALL, HIDDEN, finish_xlm)};
const proa_arch proa_arch_xlm_cls = {
    XLM("xlm_cls", "ForSequenceClassification", cls_tensors, rows_head, FIRST, LABELS, finish_cls)};
const proa_arch proa_arch_xlm_choice = {
    XLM("xlm_choice", "ForMultipleChoice", choice_tensors, choice_head, FIRST, LABELS, finish_choice)};
const proa_arch proa_arch_xlm_token = {
    XLM("xlm_token", "ForTokenClassification", token_tensors, rows_head, ALL, LABELS, finish_xlm)};
const proa_arch proa_arch_xlm_qa = {
    XLM("xlm_qa", "ForQuestionAnsweringSimple", qa_tensors, rows_head, ALL, LABELS, finish_xlm)};
const proa_arch proa_arch_xlm_mlm = {
    XLM("xlm_mlm", "WithLMHeadModel", mlm_tensors, rows_head, ALL, VOCAB, finish_xlm), .embedder = &proa_arch_xlm};
/* clang-format on */
