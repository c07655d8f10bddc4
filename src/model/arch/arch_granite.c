/* SPDX-License-Identifier: Apache-2.0
 * arch_granite.c - IBM's Granite and what was made after it: a Llama with factors of embedding, scores, branches and
 * logits. Granite-MoE has a mixture of experts as FFN, which may have a shared one. Those with windows have a sink in
 * the softmax of each head, and layers with rotary positions of a base of their own or without any. HyperCLOVA X also
 * norms what attention and FFN give. Facts: transformers'
 * modeling_{granite,granitemoe,granitemoeshared,granite_swa,granitemoe_swa,hyperclovax}.py. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_DECODER
#define BODY  "model."
#define LAYER BODY "layers.%d."

/* clang-format off */
/* SCORES: what a missing attention_multiplier is; 0: that of Llama. */
#define FACTOR_KEYS(SCORES) \
    NUMBER    ("embedding_multiplier",     embed_scale,     1e-6, 1e6,   1),     \
    NUMBER    ("attention_multiplier",     attention_scale, 1e-6, 1e6,   SCORES), \
    NUMBER    ("residual_multiplier",      residual_scale,  1e-6, 1e6,   1)
#define MOE_KEYS \
    LLAMA_KEYS(layers), \
    FACTOR_KEYS(1),     \
    INTEGER   ("num_local_experts",        experts,         1, EXPERTS,  8)
static const proa_key granite_keys[] = {LLAMA_KEYS(layers), FACTOR_KEYS(1), END_KEYS};
static const proa_key moe_keys[] = {MOE_KEYS, END_KEYS};
static const proa_key shared_keys[] = {
    MOE_KEYS, INTEGER("shared_intermediate_size", shared_ffn, 0, FFN, 0), END_KEYS};
static const proa_key swa_keys[] = {
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  8192),
    LLAMA_KEYS(layers),
    KV_HEADS  (4),
    EPSILON   ("rms_norm_eps",             1e-5),
    SWITCH    ("tie_word_embeddings",      tied,            1),
    FACTOR_KEYS(1),
    END_KEYS};
static const proa_key hyperclovax_keys[] = {
    LLAMA_KEYS(layers), FACTOR_KEYS(0), SWITCH("use_post_norm", out_norms, 1), END_KEYS};

#define COMMON_TENSORS LLAMA_HEAD(BODY, "lm_head.weight"), END_TENSORS
#define DENSE_TENSORS  LLAMA_ATTENTION_BIASES(BODY), LLAMA_MLP_BIASES(BODY), LLAMA_BODY(BODY)
#define MOE_TENSORS \
    MATRIX       (LAYER "block_sparse_moe.router.layer.weight",  ROUTER,      EXPERTS,      HIDDEN), \
    EXPERT_MATRIX(LAYER "block_sparse_moe.input_linear.weight",  EXPERT_UP,   EXPERT_GATED, HIDDEN), \
    EXPERT_MATRIX(LAYER "block_sparse_moe.output_linear.weight", EXPERT_DOWN, HIDDEN,       EXPERT_FFN), \
    LLAMA_ATTENTION(BODY)
#define SHARED_TENSORS \
    MATRIX_IF(SHARED, LAYER "shared_mlp.input_linear.weight",    SHARED_UP,   SHARED_GATED, HIDDEN), \
    MATRIX_IF(SHARED, LAYER "shared_mlp.output_linear.weight",   SHARED_DOWN, HIDDEN,       SHARED_FFN)
#define SINK_TENSORS VECTOR(LAYER "self_attn.sinks", SINKS, HEADS)
static const proa_name granite_tensors[] = {DENSE_TENSORS, COMMON_TENSORS};
static const proa_name moe_tensors[] = {MOE_TENSORS, COMMON_TENSORS};
static const proa_name shared_tensors[] = {MOE_TENSORS, SHARED_TENSORS, COMMON_TENSORS};
static const proa_name swa_tensors[] = {DENSE_TENSORS, SINK_TENSORS, COMMON_TENSORS};
static const proa_name moe_swa_tensors[] = {MOE_TENSORS, SHARED_TENSORS, SINK_TENSORS, COMMON_TENSORS};
static const proa_name hyperclovax_tensors[] = {
    DENSE_TENSORS,
    VECTOR_IF(OUT_NORMS, LAYER "post_norm1.weight", ATTN_OUT_NORM, HIDDEN),
    VECTOR_IF(OUT_NORMS, LAYER "post_norm2.weight", FFN_OUT_NORM,  HIDDEN),
    COMMON_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */
/* Names as transformers has them in memory. */
static const char *const aliases[] = {
    "block_sparse_moe.router.layer.weight",  "block_sparse_moe.router.weight",
    "block_sparse_moe.input_linear.weight",  "block_sparse_moe.experts.gate_up_proj",
    "block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj",
    NULL};

static const proa_step embed[] = {
    EMBED_TO(X, TOKENS, SCALED | INPUTS), ROPE_TABLE_IF(ROTARY), LOCAL_ROPE_TABLE, END};
static const proa_step granite_layer[] = {LLAMA_QKV, ROTATE_IF(ROTARY), LLAMA_ATTEND, LLAMA_FFN, END};
#define MOE_LAYER LLAMA_QKV, ROTATE_IF(ROTARY), LLAMA_ATTEND, NORM(X, N, FFN_NORM), LLAMA_EXPERTS
static const proa_step moe_layer[] = {MOE_LAYER, END};
static const proa_step shared_layer[] = {
    MOE_LAYER,
    LINEAR_GATED(N, F, SHARED_UP,   IF(SHARED)),
    LINEAR      (F, X, SHARED_DOWN, ADD | RESIDUAL | IF(SHARED)),
    END};
static const proa_step hyperclovax_layer[] = {
    LLAMA_QKV, ROTATE, KV_APPEND, ATTEND,
    LINEAR      (A, X, O,    ADD | RESIDUAL | IF(PLAIN_OUT)),
    LINEAR      (A, D, O,    IF(OUT_NORMS)),
    STEP        (NORM, D, X, ATTN_OUT_NORM, ADD | IF(OUT_NORMS)),
    NORM        (X, N, FFN_NORM),
    LINEAR_GATED(N, F, UP,   0),
    LINEAR      (F, X, DOWN, ADD | RESIDUAL | IF(PLAIN_OUT)),
    LINEAR      (F, D, DOWN, IF(OUT_NORMS)),
    STEP        (NORM, D, X, FFN_OUT_NORM,  ADD | IF(OUT_NORMS)),
    END};
static const proa_step head[] = {LM_HEAD(SCALED)};
/* clang-format on */

/* The logits are divided by logits_scaling. */
static proa_status finish_granite(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double divisor = 1;
    PROA_TRY(proa_json_get_double(&divisor, json, "logits_scaling", 1e-6, 1e6, err));
    c->logit_scale = 1 / divisor;
    PROA_TRY(proa_llama_check_residual(c, err));
    return proa_llama_finish(c, json, arena, err);
}

/* What experts add is scaled as what attention adds: their weights are. */
static proa_status finish_moe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t chosen = 2;
    if (c->attention_bias) return PROA_FAIL(err, UNSUPPORTED, "'attention_bias' true is not supported");
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    c->expert_ffn = c->ffn;
    c->router.chosen = (int32_t)chosen;
    c->router.renormalise = true;
    c->router.scale = (float)c->residual_scale;
    return finish_granite(c, json, arena, err);
}

/* Entry `layer`: 0, or what *base is in all layers of its type; 0: not known yet. */
static proa_status read_layer_base(double *base, bool *rotated, const proa_json *list, int64_t layer,
                                   proa_err *err)
{
    double theta = proa_json_double(proa_json_at(list, layer));
    *rotated = theta != 0;
    if (theta == 0) return PROA_OK;
    if (!(theta >= 1 && theta <= 1e12))
        return PROA_FAIL(err, INVALID, "'layer_rope_theta' entry %lld is %g, must be 0 or 1 to 1e12",
                         (long long)layer, theta);
    if (*base != 0 && *base != theta)
        return PROA_FAIL(err, UNSUPPORTED, "'layer_rope_theta' has %g and %g in layers of one type", *base,
                         theta);
    *base = theta;
    return PROA_OK;
}

/* The rotary base of each layer, 0 for none. Layers with a window may have one base, the others another. */
static proa_status read_layer_bases(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *list = proa_json_get(json, "layer_rope_theta");
    double full = 0, local = 0;
    bool *rotated = PROA_ARENA_NEW(arena, bool, c->layers);
    if (!list) return PROA_OK;
    if (proa_json_len(list) != c->layers)
        return PROA_FAIL(err, INVALID, "'layer_rope_theta' has %lld entries for %lld layers",
                         (long long)proa_json_len(list), (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        PROA_TRY(read_layer_base(proa_config_window(c, i) > 0 ? &local : &full, &rotated[i], list, i, err));
    c->rotated_layers = rotated;
    if (full == 0 && local == 0) c->rotary_dim = 0;
    else c->rope.theta = full != 0 ? full : local;
    if (full == 0 || local == 0 || full == local) return PROA_OK;
    c->local_rope = c->rope;
    c->local_rope.theta = local;
    return PROA_OK;
}

static proa_status finish_swa(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(finish_granite(c, json, arena, err));
    PROA_TRY(proa_llama_read_three_windows(c, json, 128, arena, err));
    return read_layer_bases(c, json, arena, err);
}

static proa_status finish_moe_swa(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(finish_moe(c, json, arena, err));
    PROA_TRY(proa_llama_read_three_windows(c, json, 128, arena, err));
    return read_layer_bases(c, json, arena, err);
}

/* Unlike those of Granite, logits are multiplied by logits_scaling. */
static proa_status finish_hyperclovax(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->logit_scale = 1;
    PROA_TRY(proa_json_get_double(&c->logit_scale, json, "logits_scaling", 1e-6, 1e6, err));
    if (c->out_norms && c->residual_scale != 1)
        return PROA_FAIL(err, UNSUPPORTED, "'residual_multiplier' %g with 'use_post_norm' is not supported",
                         c->residual_scale);
    PROA_TRY(proa_llama_check_residual(c, err));
    return proa_llama_finish(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class, form, layer) \
    {.name = type, .model_type = type, .hf = STRINGS(class), DECODER(RMS), .keys = form##_keys,                \
     .names = form##_tensors, .aliases = aliases, .ignored = ignored, .stacks = {CAUSAL(embed, layer)},        \
     .head = head, .finish = finish_##form}
#define moe_swa_keys  shared_keys
#define finish_shared finish_moe

const proa_arch proa_arch_granite = ROW("granite", "GraniteForCausalLM", granite, granite_layer);
const proa_arch proa_arch_granitemoe = ROW("granitemoe", "GraniteMoeForCausalLM", moe, moe_layer);
const proa_arch proa_arch_granitemoeshared =
    ROW("granitemoeshared", "GraniteMoeSharedForCausalLM", shared, shared_layer);
const proa_arch proa_arch_granite_swa = ROW("granite_swa", "GraniteSWAForCausalLM", swa, granite_layer);
const proa_arch proa_arch_granitemoe_swa = ROW("granitemoe_swa", "GraniteMoeSWAForCausalLM", moe_swa, shared_layer);
const proa_arch proa_arch_hyperclovax =
    ROW("hyperclovax", "HyperCLOVAXForCausalLM", hyperclovax, hyperclovax_layer);
/* clang-format on */
