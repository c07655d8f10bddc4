/* SPDX-License-Identifier: Apache-2.0
 * arch_embed.c - Llama, Mistral, Qwen2 and Qwen3 as embedders and classifiers (rerankers, reward models): encoders
 * whose attention is causal. An embedder has no head and gives the normed states; which of them is the embedding is
 * said by the folder (sentence.c) or by the request. A classifier computes the labels of the last row of each input.
 * EuroBERT is a Llama whose attention sees both sides, with no head or that of a masked language model.
 * Facts: transformers' modeling_layers.py, modeling_{llama,mistral,qwen2,qwen3,eurobert}.py. */
#include "model/arch/llama_rows.h"

#define STACK PROA_STACK_ENCODER
#define BODY  "model."

/* clang-format off */
static const proa_key llama_keys[] = {LLAMA_KEYS(encoder_layers), END_KEYS};
static const proa_key mistral_keys[] = {LLAMA_KEYS(encoder_layers), KV_HEADS(8), END_KEYS};
static const proa_key qwen2_keys[] = {LLAMA_KEYS(encoder_layers), KV_HEADS(32), END_KEYS};
static const proa_key qwen3_keys[] = {
    LLAMA_KEYS(encoder_layers), INTEGER("head_dim", head_dim, 1, HEAD_DIM, 128), KV_HEADS(32), END_KEYS};
static const proa_key eurobert_keys[] = {LLAMA_KEYS(encoder_layers), EPSILON("rms_norm_eps", 1e-5), END_KEYS};

#define TENSORS(head)       {LLAMA_ATTENTION_BIASES(BODY), LLAMA_MLP_BIASES(BODY), LLAMA_BODY(BODY), head END_TENSORS}
#define QWEN2_TENSORS(head) {LLAMA_QWEN2_BIASES(BODY), LLAMA_BODY(BODY), head END_TENSORS}
#define QWEN3_TENSORS(head) {LLAMA_ATTENTION_BIASES(BODY), LLAMA_HEAD_NORMS(BODY), LLAMA_BODY(BODY), head END_TENSORS}
#define NO_HEAD
#define LM_HEAD_TENSORS \
    LLAMA_HEAD(BODY, "lm_head.weight"), VECTOR_IF(PRESENT, "lm_head.bias", HEAD_B, VOCAB),
#define SCORE MATRIX("score.weight", HEAD, LABELS, HIDDEN), VECTOR_IF(PRESENT, "score.bias", HEAD_B, LABELS),
static const proa_name llama_tensors[] = TENSORS(NO_HEAD), llama_cls_tensors[] = TENSORS(SCORE);
static const proa_name qwen2_tensors[] = QWEN2_TENSORS(NO_HEAD), qwen2_cls_tensors[] = QWEN2_TENSORS(SCORE);
static const proa_name eurobert_mlm_tensors[] = TENSORS(LM_HEAD_TENSORS);
static const proa_name qwen3_tensors[] = QWEN3_TENSORS(NO_HEAD), qwen3_cls_tensors[] = QWEN3_TENSORS(SCORE);
static const char *const prefixes[] = {BODY, NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {LLAMA_QKV, ROTATE, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step layer_qk_norm[] = {
    LLAMA_QKV, Q_NORM(Q_NORM), K_NORM(K_NORM), ROTATE, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step score[] = {GATHER(H), NORM(H, HN, FINAL_NORM), LINEAR(HN, OUT, HEAD, 0), END};
/* clang-format on */

proa_status proa_embedder_check(proa_config *c, const proa_json *json, proa_err *err)
{
    bool causal = true;
    PROA_TRY(proa_json_get_bool(&causal, json, "is_causal", err));
    if (!causal) return PROA_FAIL(err, UNSUPPORTED, "'is_causal' false is not supported");
    return proa_config_read_labels(c, json, err);
}

static proa_status finish_llama(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    return proa_embedder_check(c, json, err);
}

static proa_status finish_mistral(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_mistral_finish(c, json, arena, err));
    return proa_embedder_check(c, json, err);
}

static proa_status finish_qwen(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_qwen_finish(c, json, arena, err));
    return proa_embedder_check(c, json, err);
}

static proa_status finish_eurobert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    return proa_config_read_labels(c, json, err);
}

/* clang-format off */
#define ROW(row, type, class, keylist, tensors, program, finisher) \
    .name = row, .model_type = type, .hf = STRINGS(class), .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_RMS,   \
    .keys = keylist##_keys, .names = tensors, .prefixes = prefixes, .ignored = ignored, .finish = finisher
#define EMBEDDER(type, class, keylist, tensors, program, finisher) { \
    ROW(type "_embed", type, class, keylist, tensors##_tensors, program, finisher), .head = headless,           \
    .head_rows = PROA_ROWS_ALL, .outputs = PROA_DIM_HIDDEN, .stacks = {[STACK] = {embed, program, after, true}}}
#define CLASSIFIER(type, class, keylist, tensors, program, finisher) { \
    ROW(type "_cls", type, class, keylist, tensors##_cls_tensors, program, finisher), .head = score,            \
    .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_LABELS, .stacks = {[STACK] = {embed, program, NULL, true}}}

const proa_arch proa_arch_llama_embed = EMBEDDER("llama", "LlamaModel", llama, llama, layer, finish_llama);
const proa_arch proa_arch_llama_cls =
    CLASSIFIER("llama", "LlamaForSequenceClassification", llama, llama, layer, finish_llama);
const proa_arch proa_arch_mistral_embed =
    EMBEDDER("mistral", "MistralModel", mistral, llama, layer, finish_mistral);
const proa_arch proa_arch_mistral_cls =
    CLASSIFIER("mistral", "MistralForSequenceClassification", mistral, llama, layer, finish_mistral);
const proa_arch proa_arch_qwen2_embed = EMBEDDER("qwen2", "Qwen2Model", qwen2, qwen2, layer, finish_qwen);
const proa_arch proa_arch_qwen2_cls =
    CLASSIFIER("qwen2", "Qwen2ForSequenceClassification", qwen2, qwen2, layer, finish_qwen);
const proa_arch proa_arch_qwen3_embed = EMBEDDER("qwen3", "Qwen3Model", qwen3, qwen3, layer_qk_norm, finish_qwen);
const proa_arch proa_arch_qwen3_cls =
    CLASSIFIER("qwen3", "Qwen3ForSequenceClassification", qwen3, qwen3, layer_qk_norm, finish_qwen);
const proa_arch proa_arch_eurobert = {
    ROW("eurobert", "eurobert", "EuroBertModel", eurobert, llama_tensors, layer, finish_eurobert), .head = headless,
    .head_rows = PROA_ROWS_ALL, .outputs = PROA_DIM_HIDDEN, .stacks = {[STACK] = {embed, layer, after, false}}};
const proa_arch proa_arch_eurobert_mlm = {
    ROW("eurobert_mlm", "eurobert", "EuroBertForMaskedLM", eurobert, eurobert_mlm_tensors, layer, finish_eurobert),
    .head = score, .head_rows = PROA_ROWS_ALL, .outputs = PROA_DIM_VOCAB,
    .stacks = {[STACK] = {embed, layer, NULL, false}}, .embedder = &proa_arch_eurobert};
/* clang-format on */
