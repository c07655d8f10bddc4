/* SPDX-License-Identifier: Apache-2.0
 * arch_opt.c - OPT: learned positions whose table begins with two unused rows, LayerNorm, plain FFN.
 * OPT-350m norms after each sublayer instead of before it, has no final norm, and embeds into a smaller space: a matrix
 * projects the embedding to the hidden size, another one projects back for the head, which is the embedding.
 * Galactica is an OPT without biases.
 * Facts: transformers' modeling_opt.py. */
#include "model/arch/arch_rows.h"

#include "base/limits.h"

#define STACK PROA_STACK_DECODER
#define BASE  "model.decoder."
#define LAYER "model.decoder.layers.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("ffn_dim",                 ffn,            FFN),
    INTEGER   ("word_embed_proj_dim",     embed,          1, HIDDEN,  0),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 2048),
    EPSILON   ("layer_norm_eps",          1e-5),
    ACTIVATION("activation_function",     RELU),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    SWITCH    ("enable_bias",             attention_bias, 1),
    PAD       (1),
    END_KEYS};

/* Galactica's norms have no weights. */
#define NORM_TENSORS(name, SLOT, flags) \
    TENSOR       (      name ".weight", SLOT,     VECTOR, HIDDEN, NONE, (flags) | IF(NORM_WEIGHTS)), \
    TENSOR       (      name ".bias",   SLOT##_B, VECTOR, HIDDEN, NONE, (flags) | IF(NORM_WEIGHTS)), \
    TENSOR_LOADED(ONES, name ".weight", SLOT,     VECTOR, HIDDEN, NONE, (flags) | IF(BARE_NORMS))
static const proa_name tensors[] = {
    TABLE    (BASE  "embed_tokens.weight",               TOKENS,        VOCAB,     EMBED),
    TABLE    (BASE  "embed_positions.weight",            POSITIONS,     POSITIONS, HIDDEN),
    MATRIX_IF(PROJECTED, BASE "project_in.weight",       PROJECT_IN,    HIDDEN,    EMBED),
    NORM_TENSORS(LAYER "self_attn_layer_norm", ATTN_NORM, 0),
    MATRIX   (LAYER "self_attn.q_proj.weight",           QKV,           Q,         HIDDEN),
    MATRIX   (LAYER "self_attn.k_proj.weight",           QKV,           KV,        HIDDEN),
    MATRIX   (LAYER "self_attn.v_proj.weight",           QKV,           KV,        HIDDEN),
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.q_proj.bias",  QKV_B,         Q),
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.k_proj.bias",  QKV_B,         KV),
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.v_proj.bias",  QKV_B,         KV),
    MATRIX   (LAYER "self_attn.out_proj.weight",         O,             HIDDEN,    Q),
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.out_proj.bias", O_B,          HIDDEN),
    NORM_TENSORS(LAYER "final_layer_norm", FFN_NORM, 0),
    MATRIX   (LAYER "fc1.weight",                        UP,            FFN,       HIDDEN),
    VECTOR_IF(ATTN_BIAS, LAYER "fc1.bias",               UP_B,          FFN),
    MATRIX   (LAYER "fc2.weight",                        DOWN,          HIDDEN,    FFN),
    VECTOR_IF(ATTN_BIAS, LAYER "fc2.bias",               DOWN_B,        HIDDEN),
    NORM_TENSORS(BASE "final_layer_norm", FINAL_NORM, IF(FINAL_NORM)),
    MATRIX_IF(PROJECTED, BASE "project_out.weight",      PROJECT_OUT,   EMBED,     HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                  HEAD,          VOCAB,     EMBED),
    TIED_HEAD_OF(BASE "embed_tokens.weight", EMBED),
    END_TENSORS};
static const char *const prefixes[] = {"model.", NULL}; /* the first published files begin with "decoder." */
static const char *const ignored[] = {"lm_head.weight", NULL};

static const proa_step embed[] = {
    EMBED_TO (X, TOKENS,       IF(PLAIN_EMBED)),
    EMBED_TO (E, TOKENS,       IF(PROJECTED)),
    LINEAR   (E, X, PROJECT_IN, IF(PROJECTED)),
    EMBED_TO (X, POSITIONS,    OF_POS | ADD),
    END};
static const proa_step layer[] = PRE_OR_POST_NORM_LAYER;
static const proa_step head[] = {
    STEP_BARE(GATHER, X, H,   IF(FINAL_NORM)),
    NORM_IF  (FINAL_NORM, H, HN, FINAL_NORM),
    STEP_BARE(GATHER, X, HN,  IF(NO_FINAL_NORM)),
    LINEAR   (HN, HE, PROJECT_OUT, IF(PROJECTED)),
    LINEAR   (HE, OUT, HEAD,  IF(PROJECTED)),
    LINEAR   (HN, OUT, HEAD,  IF(PLAIN_EMBED)),
    END};
/* clang-format on */

static proa_status finish_opt(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool before = true, removed = false, weights = true;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_bool(&before, json, "do_layer_norm_before", err));
    PROA_TRY(proa_json_get_bool(&removed, json, "_remove_final_layer_norm", err));
    PROA_TRY(proa_json_get_bool(&weights, json, "layer_norm_elementwise_affine", err));
    c->bare_norms = !weights;
    c->post_norm = !before;
    c->no_final_norm = !before || removed;
    c->position_offset = 2;
    return PROA_OK;
}

/* clang-format off */
const proa_arch proa_arch_opt = {
    .name = "opt", .model_type = "opt", .hf = STRINGS("OPTForCausalLM"), DECODER(LAYER), .keys = keys,
    .names = tensors, .prefixes = prefixes, .ignored = ignored,
    .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finish_opt,
    HEADS(TEXTS | SPANS, "OPT")};
/* clang-format on */
