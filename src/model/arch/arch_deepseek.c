/* SPDX-License-Identifier: Apache-2.0
 * arch_deepseek.c - DeepSeek V2 and V3 (R1): latent attention, and a mixture of experts with shared ones after some
 * dense layers.
 *
 * Latent attention (DeepSeek-V2, 2024): a token's keys and values of all heads are products of one latent row c
 * [kv_lora], and all heads share the rotated part of the key r [qk_rope]. Instead of making keys [heads, qk_nope] and
 * values [heads, v_dim] from c, the product is moved to the query, q_nope . (K_h c) = (q_nope K_h) . c, and after the
 * sum over the context, sum w V_h c = V_h (sum w c). So attention is that of one key head [r, c] with `heads` queries
 * of the same width, and the pages hold kv_lora + qk_rope numbers a token, which are its values too. Scores are
 * scaled by the size of the heads that the checkpoint names.
 *
 * Routing: V2 takes the best of a softmax, V3 of sigmoids with a correction that only chooses; both may limit the
 * choice to the best groups. Facts: transformers' modeling_deepseek_{v2,v3}.py, and DeepSeek's own modeling files. */
#include "model/arch/arch_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",               vocab,          VOCAB),
    REQUIRED  ("hidden_size",              hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",        layers,         LAYERS),
    REQUIRED  ("num_attention_heads",      heads,          HEADS),
    REQUIRED  ("intermediate_size",        ffn,            FFN),
    INTEGER   ("q_lora_rank",              q_lora,         0, HIDDEN,   0),
    REQUIRED  ("kv_lora_rank",             kv_lora,        HEAD_DIM),
    REQUIRED  ("qk_nope_head_dim",         qk_nope,        HEAD_DIM),
    REQUIRED  ("qk_rope_head_dim",         qk_rope,        HEAD_DIM),
    REQUIRED  ("v_head_dim",               v_dim,          HEAD_DIM),
    INTEGER   ("n_routed_experts",         experts,        1, EXPERTS,  0),
    INTEGER   ("moe_intermediate_size",    expert_ffn,     1, FFN,      0),
    INTEGER   ("num_nextn_predict_layers", unused_layers,  0, LAYERS,   0),
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  2048),
    EPSILON   ("rms_norm_eps",             1e-6),
    ACTIVATION("hidden_act",               SILU),
    SWITCH    ("tie_word_embeddings",      tied,           0),
    SWITCH    ("attention_bias",           attention_bias, 0),
    SWITCH    ("rope_interleave",          rope_pairs,     1),
    END_KEYS};

#define TENSORS \
    TABLE    ("model.embed_tokens.weight",                    TOKENS,      VOCAB,      HIDDEN), \
    VECTOR   (LAYER "input_layernorm.weight",                 ATTN_NORM,   HIDDEN),             \
    MATRIX_IF(Q_LORA, LAYER "self_attn.q_a_proj.weight",      Q_DOWN,      Q_LORA,     HIDDEN), \
    VECTOR_IF(Q_LORA, LAYER "self_attn.q_a_layernorm.weight", Q_DOWN_NORM, Q_LORA),             \
    MATRIX_IF(Q_LORA, LAYER "self_attn.q_b_proj.weight",      Q,           Q_HEADS,    Q_LORA), \
    MATRIX_IF(Q_WHOLE, LAYER "self_attn.q_proj.weight",       Q,           Q_HEADS,    HIDDEN), \
    MATRIX_LOADED(ROPE_FIRST, LAYER "self_attn.kv_a_proj_with_mqa.weight", KV_DOWN, HEAD, HIDDEN), \
    VECTOR   (LAYER "self_attn.kv_a_layernorm.weight",        K_NORM,      LATENT),             \
    HEAD_MATRIX(HEAD_KEYS,   LAYER "self_attn.kv_b_proj.weight", Q_LATENT, TRANSPOSED, LATENT, NOPE), \
    HEAD_MATRIX(HEAD_VALUES, LAYER "self_attn.kv_b_proj.weight", V_UP,     MATRIX,     VALUE, LATENT), \
    MATRIX   (LAYER "self_attn.o_proj.weight",                O,           HIDDEN,     VALUES), \
    TENSOR   (LAYER "self_attn.q_a_proj.bias", Q_DOWN_B, VECTOR, Q_LORA, NONE, IF(ATTN_BIAS) | IF(Q_LORA)), \
    VECTOR_LOADED_IF(ATTN_BIAS, ROPE_FIRST, LAYER "self_attn.kv_a_proj_with_mqa.bias", KV_DOWN_B, HEAD), \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.o_proj.bias",       O_B,         HIDDEN),             \
    VECTOR   (LAYER "post_attention_layernorm.weight",        FFN_NORM,    HIDDEN),             \
    MATRIX_IF(DENSE,   LAYER "mlp.gate_proj.weight",          UP,          FFN,        HIDDEN), \
    MATRIX_IF(DENSE,   LAYER "mlp.up_proj.weight",            UP,          FFN,        HIDDEN), \
    MATRIX_IF(DENSE,   LAYER "mlp.down_proj.weight",          DOWN,        HIDDEN,     FFN),    \
    MATRIX_IF(EXPERTS, LAYER "mlp.gate.weight",               ROUTER,      EXPERTS,    HIDDEN), \
    EXPERT_MATRIX_IF(EXPERTS, LAYER "mlp.experts.%d.gate_proj.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN),     \
    EXPERT_MATRIX_IF(EXPERTS, LAYER "mlp.experts.%d.up_proj.weight",   EXPERT_UP,   EXPERT_FFN, HIDDEN),     \
    EXPERT_MATRIX_IF(EXPERTS, LAYER "mlp.experts.%d.down_proj.weight", EXPERT_DOWN, HIDDEN,     EXPERT_FFN), \
    SHARED_MATRIX(LAYER "mlp.shared_experts.gate_proj.weight", SHARED_UP,   SHARED_FFN, HIDDEN),     \
    SHARED_MATRIX(LAYER "mlp.shared_experts.up_proj.weight",   SHARED_UP,   SHARED_FFN, HIDDEN),     \
    SHARED_MATRIX(LAYER "mlp.shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN,     SHARED_FFN), \
    VECTOR   ("model.norm.weight",                            FINAL_NORM,  HIDDEN),             \
    MATRIX_IF(UNTIED, "lm_head.weight",                       HEAD,        VOCAB,      HIDDEN), \
    TIED_HEAD("model.embed_tokens.weight"),                                                     \
    END_TENSORS
#define SHARED_MATRIX(name, SLOT, ROWS, COLS) TENSOR(name, SLOT, MATRIX, ROWS, COLS, IF(EXPERTS) | IF(SHARED))

static const proa_name v2_tensors[] = {TENSORS};
static const proa_name v3_tensors[] = {
    VECTOR_IF(EXPERTS, LAYER "mlp.gate.e_score_correction_bias", CORRECTION, EXPERTS),
    TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {
    NORM        (X, N,    ATTN_NORM),
    LINEAR      (N, QD,   Q_DOWN,      IF(Q_LORA)),
    NORM_IF     (Q_LORA, QD, QD, Q_DOWN_NORM),
    LINEAR      (QD, QH,  Q,           IF(Q_LORA)),
    LINEAR      (N, QH,   Q,           IF(Q_WHOLE)),
    HEADS_LINEAR(QH, QKV, Q_LATENT,    KEEP),
    LINEAR      (N, QKV,  KV_DOWN,     OF_K),
    K_NORM      (K_NORM),
    ROTATE_PAIRS,
    KV_APPEND,
    ATTEND,
    HEADS_LINEAR(A, AV,   V_UP,        0),
    LINEAR      (AV, X,   O,           ADD),
    NORM        (X, N,    FFN_NORM),
    LINEAR_GATED(N, F,    UP,          IF(DENSE)),
    LINEAR      (F, X,    DOWN,        ADD | IF(DENSE)),
    LINEAR      (N, ROUTER, ROUTER,    IF(EXPERTS)),
    ROUTE       (CORRECTION),
    EXPERTS     (N, X,                 ADD),
    LINEAR_GATED(N, F,    SHARED_UP,   IF(EXPERTS) | IF(SHARED)),
    LINEAR      (F, X,    SHARED_DOWN, ADD | IF(EXPERTS) | IF(SHARED)),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* The first layers, and those between the multiples of moe_layer_freq, are dense. */
static proa_status read_expert_layers(proa_config *c, const proa_json *json, int64_t dense, proa_arena *arena,
                                      proa_err *err)
{
    int64_t step = 1;
    PROA_TRY(proa_json_get_int(&dense, json, "first_k_dense_replace", 0, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&step, json, "moe_layer_freq", 1, PROA_LAYERS_MAX, err));
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = i >= dense && i % step == 0;
    return PROA_OK;
}

static proa_status read_router(proa_config *c, const proa_json *json, proa_err *err)
{
    double scale = c->router.scale > 0 ? (double)c->router.scale : 1;
    int64_t chosen = c->router.chosen ? c->router.chosen : 8, shared = 0, groups = 0, chosen_groups = 0;
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&shared, json, "n_shared_experts", 0, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&groups, json, "n_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen_groups, json, "topk_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_double(&scale, json, "routed_scaling_factor", 1e-6, 1e6, err));
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    c->shared_ffn = shared * c->expert_ffn;
    c->router.chosen = (int32_t)chosen;
    c->router.scale = (float)scale;
    c->router.groups = groups > 1 ? (int32_t)groups : 0;
    c->router.chosen_groups = (int32_t)chosen_groups;
    return PROA_OK;
}

/* YaRN with mscale_all_dim makes scores larger, too: DeepSeek's attention factor, squared. */
static double attention_scale(const proa_config *c)
{
    const proa_rope_params *rope = &c->rope;
    double scale = 1 / sqrt((double)(c->qk_nope + c->qk_rope));
    bool longer = rope->kind == PROA_ROPE_YARN && rope->mscale_all > 0;
    double factor = longer ? proa_rope_mscale(rope->factor, rope->mscale_all) : 1;
    return scale * factor * factor;
}

/* dense: how many of the first layers are dense where the file does not say it. */
static proa_status finish_deepseek(proa_config *c, const proa_json *json, int64_t dense, proa_arena *arena,
                                   proa_err *err)
{
    if (!c->rope_pairs)
        return PROA_FAIL(err, UNSUPPORTED, "'rope_interleave': rotated halves are not supported");
    c->gated = true;
    c->kv_heads = 1;
    c->head_dim = c->kv_lora + c->qk_rope;
    c->rotary_dim = c->qk_rope;
    PROA_TRY(read_expert_layers(c, json, dense, arena, err));
    PROA_TRY(read_router(c, json, err));
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    c->attention_scale = attention_scale(c);
    return PROA_OK;
}

/* Renormalised weights are not scaled. */
static proa_status finish_v2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str method = {"greedy", 6};
    PROA_TRY(proa_json_get_str(&method, json, "topk_method", err));
    c->rope_pairs = true;
    PROA_TRY(finish_deepseek(c, json, 0, arena, err));
    c->router.group_best = 1;
    if (proa_str_is(method, "greedy")) c->router.groups = 0;
    if (c->router.renormalise) c->router.scale = 1;
    return PROA_OK;
}

static proa_status finish_v3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->router.renormalise = true;
    PROA_TRY(finish_deepseek(c, json, 0, arena, err));
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.group_best = 2;
    return PROA_OK;
}

/* GLM-4.7-Flash: DeepSeek V3 with numbers of its own where a key is missing. */
static proa_status finish_glm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (!proa_json_get(json, "rms_norm_eps")) c->norm_eps = 1e-5;
    c->router.renormalise = true;
    c->router.chosen = 4;
    c->router.scale = 1.8f;
    PROA_TRY(finish_deepseek(c, json, 1, arena, err));
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.group_best = 2;
    return proa_config_read_ffn_types(c, json, err);
}

/* clang-format off */
#define ROW(type, class, tensors, finisher)                                                          \
    {.name = type, .model_type = type, .hf = STRINGS(class), DECODER(RMS), .keys = keys,             \
     .names = tensors, .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head,           \
     .finish = finisher}

const proa_arch proa_arch_deepseek_v2 = ROW("deepseek_v2", "DeepseekV2ForCausalLM", v2_tensors, finish_v2);
const proa_arch proa_arch_deepseek_v3 = ROW("deepseek_v3", "DeepseekV3ForCausalLM", v3_tensors, finish_v3);
const proa_arch proa_arch_glm4_moe_lite =
    ROW("glm4_moe_lite", "Glm4MoeLiteForCausalLM", v3_tensors, finish_glm);
/* clang-format on */
