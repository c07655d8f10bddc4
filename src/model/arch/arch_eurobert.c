/* SPDX-License-Identifier: Apache-2.0
 * arch_eurobert.c - EuroBERT: a Llama whose attention sees both sides. Heads: none, masked language model, sequence and
 * token classification. The first of these computes the first row, the mean of the rows, or the mean of what its dense
 * layer makes of each.
 * Facts: transformers' modeling_eurobert.py. */
#include "model/arch/llama_rows.h"

#define STACK PROA_STACK_ENCODER
#define BODY  "model."

/* clang-format off */
static const proa_key keys[] = {LLAMA_KEYS(encoder_layers), EPSILON("rms_norm_eps", 1e-5), END_KEYS};

#define TENSORS LLAMA_ATTENTION_BIASES(BODY), LLAMA_MLP_BIASES(BODY), LLAMA_BODY(BODY)
static const proa_name bare_tensors[] = {TENSORS, END_TENSORS};
static const proa_name mlm_tensors[] = {
    TENSORS,
    LLAMA_HEAD(BODY, "lm_head.weight"),
    VECTOR_IF(PRESENT, "lm_head.bias", HEAD_B, VOCAB),
    END_TENSORS};
static const proa_name cls_tensors[] = {
    TENSORS,
    MATRIX("dense.weight",      HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR("dense.bias",        HEAD_DENSE_B, HIDDEN),
    MATRIX("classifier.weight", HEAD,         LABELS, HIDDEN),
    VECTOR("classifier.bias",   HEAD_B,       LABELS),
    END_TENSORS};
static const proa_name token_tensors[] = {
    TENSORS,
    MATRIX("classifier.weight", HEAD,         LABELS, HIDDEN),
    VECTOR("classifier.bias",   HEAD_B,       LABELS),
    END_TENSORS};
static const char *const prefixes[] = {BODY, NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {LLAMA_QKV, ROTATE, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step mlm_head[] = {LM_HEAD(0)};
static const proa_step after_cls[] = {
    NORM     (X, X,     FINAL_NORM),
    LINEAR   (X, N,     HEAD_DENSE, GELU | IF(LATE)),
    SPAN_MEAN(N, MEANS, IF(LATE)),
    SPAN_MEAN(X, MEANS, IF(EARLY) | IF(OF_MEAN)),
    END};
static const proa_step cls_head[] = {
    STEP_BARE(GATHER, X, H, IF(OF_ROW)),
    STEP_BARE(GATHER, MEANS, H, IF(OF_MEAN)),
    LINEAR(H,  HN,  HEAD_DENSE, GELU | IF(EARLY)),
    LINEAR(HN, OUT, HEAD,       IF(EARLY)),
    LINEAR(H,  OUT, HEAD,       IF(LATE)),
    END};
static const proa_step token_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
/* clang-format on */

static proa_status finish_eurobert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    return proa_config_read_labels(c, json, err);
}

static proa_status finish_cls(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str pooling = {"late", 4};
    PROA_TRY(proa_json_get_str(&pooling, json, "classifier_pooling", err));
    c->head_late = proa_str_is(pooling, "late");
    c->head_of_mean = c->head_late || proa_str_is(pooling, "mean");
    if (!c->head_of_mean && !proa_str_is(pooling, "bos"))
        return PROA_FAIL(err, UNSUPPORTED, "'classifier_pooling' '%.*s' is not supported (bos, mean, late are)",
                         (int)pooling.len, pooling.ptr);
    return finish_eurobert(c, json, arena, err);
}

/* clang-format off */
#define ROW(row, class, tensors, rows, finisher)                                                                    \
    .name = row, .model_type = "eurobert", .hf = STRINGS(class), .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_RMS,   \
    .keys = keys, .names = tensors, .prefixes = prefixes, .ignored = ignored, .head_rows = PROA_ROWS_##rows,      \
    .finish = finisher

const proa_arch proa_arch_eurobert = {
    ROW("eurobert", "EuroBertModel", bare_tensors, ALL, finish_eurobert), .head = headless, .outputs = PROA_DIM_HIDDEN,
    .stacks = {[STACK] = {embed, layer, after, false}}};
const proa_arch proa_arch_eurobert_mlm = {
    ROW("eurobert_mlm", "EuroBertForMaskedLM", mlm_tensors, ALL, finish_eurobert), .head = mlm_head,
    .outputs = PROA_DIM_VOCAB,
    .stacks = {[STACK] = {embed, layer, NULL, false}}, .embedder = &proa_arch_eurobert};
const proa_arch proa_arch_eurobert_cls = {
    ROW("eurobert_cls", "EuroBertForSequenceClassification", cls_tensors, FIRST, finish_cls), .head = cls_head,
    .outputs = PROA_DIM_LABELS, .stacks = {[STACK] = {embed, layer, after_cls, false}}};
const proa_arch proa_arch_eurobert_token = {
    ROW("eurobert_token", "EuroBertForTokenClassification", token_tensors, ALL, finish_eurobert), .head = token_head,
    .outputs = PROA_DIM_LABELS, .stacks = {[STACK] = {embed, layer, after, false}}};
/* clang-format on */
