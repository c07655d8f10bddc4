/* SPDX-License-Identifier: Apache-2.0
 * arch_eurobert.c - EuroBERT: a Llama whose attention sees both sides, with no head or that of a masked language model.
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
static const char *const prefixes[] = {BODY, NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {LLAMA_QKV, ROTATE, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step mlm_head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status finish_eurobert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    return proa_config_read_labels(c, json, err);
}

/* clang-format off */
#define ROW(row, class, tensors) \
    .name = row, .model_type = "eurobert", .hf = STRINGS(class), .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_RMS,   \
    .keys = keys, .names = tensors, .prefixes = prefixes, .ignored = ignored, .head_rows = PROA_ROWS_ALL,         \
    .finish = finish_eurobert

const proa_arch proa_arch_eurobert = {
    ROW("eurobert", "EuroBertModel", bare_tensors), .head = headless, .outputs = PROA_DIM_HIDDEN,
    .stacks = {[STACK] = {embed, layer, after, false}}};
const proa_arch proa_arch_eurobert_mlm = {
    ROW("eurobert_mlm", "EuroBertForMaskedLM", mlm_tensors), .head = mlm_head, .outputs = PROA_DIM_VOCAB,
    .stacks = {[STACK] = {embed, layer, NULL, false}}, .embedder = &proa_arch_eurobert};
/* clang-format on */
