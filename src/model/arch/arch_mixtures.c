/* SPDX-License-Identifier: Apache-2.0
 * arch_mixtures.c - OLMoE, Granite-MoE, GLM-4-MoE (GLM-4.5, 4.6), dots.llm1, Ernie 4.5 MoE: Llama's attention with a
 * mixture of experts as FFN. GLM-4-MoE and dots.llm1 choose experts by DeepSeek V3's sigmoids, Ernie by a softmax with
 * a correction that only chooses; these three have shared experts, too, and dense layers before the others.
 * Facts: transformers' modeling_{olmoe,granitemoe,glm4_moe,dots1,ernie4_5_moe}.py. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_DECODER
#define BODY  "model."
#define LAYER BODY "layers.%d."

/* clang-format off */
static const proa_key olmoe_keys[] = {
    LLAMA_KEYS(layers),
    EPSILON   ("rms_norm_eps",             1e-5),
    INTEGER   ("num_experts",              experts,         1, EXPERTS, 64),
    END_KEYS};
static const proa_key granite_keys[] = {
    LLAMA_KEYS(layers),
    INTEGER   ("num_local_experts",        experts,         1, EXPERTS, 8),
    NUMBER    ("embedding_multiplier",     embed_scale,     1e-6, 1e6,  1),
    NUMBER    ("attention_multiplier",     attention_scale, 1e-6, 1e6,  1),
    NUMBER    ("residual_multiplier",      residual_scale,  1e-6, 1e6,  1),
    END_KEYS};
static const proa_key shared_keys[] = {
    LLAMA_KEYS(layers),
    REQUIRED  ("n_routed_experts",         experts,         EXPERTS),
    REQUIRED  ("moe_intermediate_size",    expert_ffn,      FFN),
    INTEGER   ("num_nextn_predict_layers", unused_layers,   0, LAYERS,  0),
    SWITCH    ("use_qk_norm",              qk_norm,         0),
    END_KEYS};
static const proa_key ernie_keys[] = {
    LLAMA_KEYS(layers),
    KV_HEADS  (4),
    EPSILON   ("rms_norm_eps",             1e-5),
    REQUIRED  ("moe_num_experts",          experts,         EXPERTS),
    REQUIRED  ("moe_intermediate_size",    expert_ffn,      FFN),
    SWITCH    ("use_bias",                 attention_bias,  0),
    SWITCH    ("tie_word_embeddings",      tied,            1),
    END_KEYS};

#define COMMON_TENSORS LLAMA_ATTENTION(BODY), LLAMA_HEAD(BODY, "lm_head.weight"), END_TENSORS
#define EXPERT_TENSORS \
    EXPERT_MATRIX_IF(EXPERTS, LAYER "mlp.experts.%d.gate_proj.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN), \
    EXPERT_MATRIX_IF(EXPERTS, LAYER "mlp.experts.%d.up_proj.weight",   EXPERT_UP,   EXPERT_FFN, HIDDEN), \
    EXPERT_MATRIX_IF(EXPERTS, LAYER "mlp.experts.%d.down_proj.weight", EXPERT_DOWN, HIDDEN,     EXPERT_FFN), \
    MATRIX_IF       (EXPERTS, LAYER "mlp.gate.weight",                 ROUTER,      EXPERTS,    HIDDEN)
#define SHARED_MATRIX(name, SLOT, ROWS, COLS) TENSOR(name, SLOT, MATRIX, ROWS, COLS, IF(EXPERTS) | IF(SHARED))
#define SHARED_TENSORS \
    SHARED_MATRIX(LAYER "mlp.shared_experts.gate_proj.weight", SHARED_UP,   SHARED_FFN, HIDDEN),     \
    SHARED_MATRIX(LAYER "mlp.shared_experts.up_proj.weight",   SHARED_UP,   SHARED_FFN, HIDDEN),     \
    SHARED_MATRIX(LAYER "mlp.shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN,     SHARED_FFN), \
    MATRIX_IF(DENSE, LAYER "mlp.gate_proj.weight",             UP,          FFN,        HIDDEN),     \
    MATRIX_IF(DENSE, LAYER "mlp.up_proj.weight",               UP,          FFN,        HIDDEN),     \
    MATRIX_IF(DENSE, LAYER "mlp.down_proj.weight",             DOWN,        HIDDEN,     FFN)
static const proa_name olmoe_tensors[] = {
    LLAMA_ATTENTION_BIASES(BODY),
    VECTOR   (LAYER "self_attn.q_norm.weight",                 Q_NORM,      Q),
    VECTOR   (LAYER "self_attn.k_norm.weight",                 K_NORM,      KV),
    EXPERT_TENSORS,
    COMMON_TENSORS};
static const proa_name granite_tensors[] = {
    MATRIX       (LAYER "block_sparse_moe.router.layer.weight",  ROUTER,      EXPERTS,      HIDDEN),
    EXPERT_MATRIX(LAYER "block_sparse_moe.input_linear.weight",  EXPERT_UP,   EXPERT_GATED, HIDDEN),
    EXPERT_MATRIX(LAYER "block_sparse_moe.output_linear.weight", EXPERT_DOWN, HIDDEN,       EXPERT_FFN),
    COMMON_TENSORS};
static const proa_name shared_tensors[] = {
    LLAMA_QKV_BIASES(BODY),
    VECTOR_IF(QK_NORM, LAYER "self_attn.q_norm.weight",             Q_NORM,     HEAD),
    VECTOR_IF(QK_NORM, LAYER "self_attn.k_norm.weight",             K_NORM,     HEAD),
    VECTOR_IF(EXPERTS, LAYER "mlp.gate.e_score_correction_bias",    CORRECTION, EXPERTS),
    SHARED_TENSORS,
    EXPERT_TENSORS,
    COMMON_TENSORS};
static const proa_name ernie_tensors[] = {
    VECTOR_IF(EXPERTS, LAYER "mlp.moe_statics.e_score_correction_bias", CORRECTION, EXPERTS),
    SHARED_TENSORS,
    EXPERT_TENSORS,
    COMMON_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */
/* Names as transformers has them in memory. */
static const char *const aliases[] = {
    "block_sparse_moe.router.layer.weight",        "block_sparse_moe.router.weight",
    "block_sparse_moe.input_linear.weight",        "block_sparse_moe.experts.gate_up_proj",
    "block_sparse_moe.output_linear.weight",       "block_sparse_moe.experts.down_proj",
    "mlp.moe_statics.e_score_correction_bias",     "mlp.gate.moe_statics.e_score_correction_bias",
    NULL};
static const char *const ernie_unused[] = {"model.mtp_", NULL}; /* multi-token prediction */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step granite_embed[] = {EMBED_TO(X, TOKENS, SCALED | INPUTS), ROPE_TABLE, END};
#define EXPERTS_FFN \
    LINEAR      (N, ROUTER, ROUTER,    IF(EXPERTS)), \
    ROUTE       (CORRECTION),                        \
    EXPERTS     (N, X,                 ADD)
#define ALL_FFNS \
    NORM        (X, N,    FFN_NORM),                  \
    LINEAR_GATED(N, F,    UP,          IF(DENSE)),    \
    LINEAR      (F, X,    DOWN,  ADD | IF(DENSE)),    \
    EXPERTS_FFN,                                      \
    LINEAR_GATED(N, F,    SHARED_UP,   IF(EXPERTS) | IF(SHARED)), \
    LINEAR      (F, X,    SHARED_DOWN, ADD | IF(EXPERTS) | IF(SHARED)), \
    END
static const proa_step olmoe_layer[] = {
    LLAMA_QKV,
    Q_NORM_WHOLE(Q_NORM),
    K_NORM_WHOLE(K_NORM),
    CLIP_IF     (CLIPPED),
    ROTATE,
    LLAMA_ATTEND,
    NORM        (X, N, FFN_NORM),
    EXPERTS_FFN,
    END};
static const proa_step granite_layer[] = {LLAMA_QKV, ROTATE, LLAMA_ATTEND, NORM(X, N, FFN_NORM), EXPERTS_FFN, END};
static const proa_step shared_layer[] = {
    LLAMA_QKV, Q_NORM_IF(QK_NORM, Q_NORM), K_NORM_IF(QK_NORM, K_NORM), ROTATE, LLAMA_ATTEND, ALL_FFNS};
static const proa_step ernie_layer[] = {LLAMA_QKV, ROTATE_PAIRS, LLAMA_ATTEND, ALL_FFNS};
static const proa_step head[] = {LM_HEAD(SCALED)};
/* clang-format on */

static proa_status read_chosen(proa_config *c, const proa_json *json, const char *key, int64_t chosen,
                               proa_err *err)
{
    PROA_TRY(proa_json_get_int(&chosen, json, key, 1, PROA_EXPERTS_MAX, err));
    c->router.chosen = (int32_t)chosen;
    return PROA_OK;
}

static proa_status finish_olmoe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->expert_ffn = c->ffn;
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    PROA_TRY(proa_json_get_double(&c->qkv_clip, json, "clip_qkv", 0, 1e30, err));
    PROA_TRY(read_chosen(c, json, "num_experts_per_tok", 8, err));
    return proa_llama_finish(c, json, arena, err);
}

/* What experts add is scaled as what attention adds: their weights are. */
static proa_status finish_granite(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double divisor = 1;
    PROA_TRY(proa_json_get_double(&divisor, json, "logits_scaling", 1e-6, 1e6, err));
    if (c->attention_bias) return PROA_FAIL(err, UNSUPPORTED, "'attention_bias' true is not supported");
    c->logit_scale = 1 / divisor;
    c->expert_ffn = c->ffn;
    c->router.renormalise = true;
    c->router.scale = (float)c->residual_scale;
    PROA_TRY(read_chosen(c, json, "num_experts_per_tok", 2, err));
    return proa_llama_finish(c, json, arena, err);
}

/* Layers [first, end] have experts, of them every step-th of all. */
static void set_expert_layers(proa_config *c, int64_t first, int64_t last, int64_t step, proa_arena *arena)
{
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        c->expert_layers[i] = i >= first && i <= last && (i + 1) % step == 0;
}

static proa_status read_sigmoid_router(proa_config *c, const proa_json *json, proa_err *err)
{
    double scale = 1;
    int64_t shared = 0, groups = 1, chosen_groups = 1;
    PROA_TRY(proa_json_get_int(&shared, json, "n_shared_experts", 0, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&groups, json, "n_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen_groups, json, "topk_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_double(&scale, json, "routed_scaling_factor", 1e-6, 1e6, err));
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    c->shared_ffn = shared * c->expert_ffn;
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.scale = (float)scale;
    c->router.groups = groups > 1 ? (int32_t)groups : 0;
    c->router.chosen_groups = (int32_t)chosen_groups;
    c->router.group_best = 2;
    return read_chosen(c, json, "num_experts_per_tok", 8, err);
}

static proa_status finish_shared(proa_config *c, const proa_json *json, int64_t dense, proa_arena *arena,
                                 proa_err *err)
{
    c->gated = true;
    PROA_TRY(proa_json_get_int(&dense, json, "first_k_dense_replace", 0, PROA_LAYERS_MAX, err));
    set_expert_layers(c, dense, c->layers, 1, arena);
    PROA_TRY(read_sigmoid_router(c, json, err));
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_glm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->router.renormalise = true;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 0.5, err));
    return finish_shared(c, json, 1, arena, err);
}

/* All heads are normed; the output projection has no bias, and the files have no biases at all. */
static proa_status finish_dots(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->qk_norm = true;
    c->window_from = 62;
    if (c->attention_bias) return PROA_FAIL(err, UNSUPPORTED, "'attention_bias' true is not supported");
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    PROA_TRY(finish_shared(c, json, 0, arena, err));
    return proa_config_read_window(c, json, arena, err);
}

static proa_status finish_ernie(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t shared = 2, first = 1, last = -1, step = 1;
    if (c->attention_bias) return PROA_FAIL(err, UNSUPPORTED, "'use_bias' true is not supported");
    PROA_TRY(proa_json_get_int(&shared, json, "moe_num_shared_experts", 0, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&first, json, "moe_layer_start_index", 0, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&last, json, "moe_layer_end_index", -1, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&step, json, "moe_layer_interval", 1, PROA_LAYERS_MAX, err));
    set_expert_layers(c, first, last < 0 ? c->layers : last, step, arena);
    c->shared_ffn = shared * c->expert_ffn;
    c->router.renormalise = true;
    c->rope.theta = 500000;
    PROA_TRY(read_chosen(c, json, "moe_k", 6, err));
    return proa_llama_finish(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class, begin, form, finisher) \
    .name = type, .model_type = type, .hf = STRINGS(class), DECODER(RMS), .keys = form##_keys,                 \
    .names = form##_tensors, .aliases = aliases, .ignored = ignored,                                           \
    .stacks = {CAUSAL(begin, form##_layer)}, .head = head, .finish = finisher

const proa_arch proa_arch_olmoe = {ROW("olmoe", "OlmoeForCausalLM", embed, olmoe, finish_olmoe)};
const proa_arch proa_arch_granitemoe = {
    ROW("granitemoe", "GraniteMoeForCausalLM", granite_embed, granite, finish_granite)};
const proa_arch proa_arch_glm4_moe = {ROW("glm4_moe", "Glm4MoeForCausalLM", embed, shared, finish_glm)};
const proa_arch proa_arch_dots1 = {ROW("dots1", "Dots1ForCausalLM", embed, shared, finish_dots)};
const proa_arch proa_arch_ernie4_5_moe = {
    ROW("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", embed, ernie, finish_ernie), .unused_parts = ernie_unused};
/* clang-format on */
