/* SPDX-License-Identifier: Apache-2.0
 * arch_mixtures.c - OLMoE, GLM-4-MoE (GLM-4.5, 4.6), dots.llm1, Solar Open, Sarvam, K-EXAONE, Hy3, MiniMax-M2, Ernie
 * 4.5 MoE, Aria's text model: Llama's attention with a mixture of experts as FFN. Most choose experts by DeepSeek V3's
 * sigmoids, Ernie by a softmax with a correction that only chooses; all but OLMoE and MiniMax-M2 have shared experts,
 * too, and may have dense layers before the others. Facts: transformers'
 * modeling_{olmoe,glm4_moe,dots1,solar_open,exaone_moe,hy_v3,minimax_m2,aria}.py, modeling_ernie4_5_moe.py and
 * configuration_sarvam_moe.py, published names of tensors in conversion_mapping.py. */
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
#define SHARED_KEYS(EXPERTS_KEY) \
    REQUIRED  (EXPERTS_KEY,                experts,         EXPERTS),    \
    REQUIRED  ("moe_intermediate_size",    expert_ffn,      FFN),        \
    INTEGER   ("num_nextn_predict_layers", unused_layers,   0, LAYERS,  0)
/* Of the first files; a newer name comes behind it. */
#define OLD_NAME(key, field, MOST) INTEGER(key, field, 1, MOST, 0)
static const proa_key glm4_keys[] = {
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT, 131072),
    LLAMA_KEYS(layers),
    SHARED_KEYS("n_routed_experts"),
    KV_HEADS  (8),
    EPSILON   ("rms_norm_eps",             1e-5),
    SWITCH    ("use_qk_norm",              qk_norm,         0),
    END_KEYS};
static const proa_key dots_keys[] = {LLAMA_KEYS(layers), SHARED_KEYS("n_routed_experts"), KV_HEADS(32), END_KEYS};
static const proa_key solar_keys[] = {
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT, 131072),
    LLAMA_KEYS_BUT_FFN(layers),
    SHARED_KEYS("n_routed_experts"),
    KV_HEADS  (8),
    INTEGER   ("head_dim",                 head_dim,        1, HEAD_DIM, 128),
    EPSILON   ("rms_norm_eps",             1e-5),
    END_KEYS};
static const proa_key sarvam_keys[] = {
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT, 131072),
    LLAMA_KEYS(layers),
    OLD_NAME  ("num_experts",              experts,         EXPERTS),
    INTEGER   ("n_routed_experts",         experts,         1, EXPERTS, 128),
    INTEGER   ("moe_intermediate_size",    expert_ffn,      1, FFN,     1024),
    KV_HEADS  (4),
    INTEGER   ("head_dim",                 head_dim,        1, HEAD_DIM, 64),
    SWITCH    ("use_qk_norm",              qk_norm,         1),
    END_KEYS};
static const proa_key exaone_keys[] = {
    LLAMA_KEYS(layers), SHARED_KEYS("num_experts"), KV_HEADS(32), EPSILON("rms_norm_eps", 1e-5), END_KEYS};
static const proa_key hy_keys[] = {
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT, 131072),
    LLAMA_KEYS(layers),
    SHARED_KEYS("num_experts"),
    KV_HEADS  (8),
    INTEGER   ("head_dim",                 head_dim,        1, HEAD_DIM, 128),
    EPSILON   ("rms_norm_eps",             1e-5),
    END_KEYS};
static const proa_key minimax_keys[] = {
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT, 196608),
    LLAMA_KEYS(layers),
    INTEGER   ("num_local_experts",        experts,         1, EXPERTS, 256),
    KV_HEADS  (8),
    INTEGER   ("head_dim",                 head_dim,        1, HEAD_DIM, 128),
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

static const proa_key aria_keys[] = {
    LLAMA_KEYS(layers),
    INTEGER   ("moe_num_experts",          experts,         1, EXPERTS, 8),
    END_KEYS};

#define COMMON_TENSORS LLAMA_ATTENTION(BODY), LLAMA_HEAD(BODY, "lm_head.weight"), END_TENSORS
#define EXPERT_TENSORS \
    LLAMA_EXPERT_TENSORS(LAYER "mlp."), \
    MATRIX_IF       (EXPERTS, LAYER "mlp.gate.weight",                 ROUTER,      EXPERTS,    HIDDEN)
#define SHARED_MATRIX(name, SLOT, ROWS, COLS) TENSOR(name, SLOT, MATRIX, ROWS, COLS, IF(EXPERTS) | IF(SHARED))
#define SHARED_TENSORS \
    SHARED_MATRIX(LAYER "mlp.shared_experts.gate_proj.weight", SHARED_UP,   SHARED_FFN, HIDDEN),     \
    SHARED_MATRIX(LAYER "mlp.shared_experts.up_proj.weight",   SHARED_UP,   SHARED_FFN, HIDDEN),     \
    SHARED_MATRIX(LAYER "mlp.shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN,     SHARED_FFN), \
    LLAMA_DENSE_TENSORS(LAYER "mlp.")
static const proa_name olmoe_tensors[] = {
    LLAMA_ATTENTION_BIASES(BODY),
    VECTOR   (LAYER "self_attn.q_norm.weight",                 Q_NORM,      Q),
    VECTOR   (LAYER "self_attn.k_norm.weight",                 K_NORM,      KV),
    EXPERT_TENSORS,
    COMMON_TENSORS};
#define CORRECTED_TENSORS \
    VECTOR_IF(EXPERTS, LAYER "mlp.gate.e_score_correction_bias",    CORRECTION, EXPERTS), \
    SHARED_TENSORS, \
    EXPERT_TENSORS
static const proa_name shared_tensors[] = {
    LLAMA_QKV_BIASES(BODY),
    VECTOR_IF(QK_NORM, LAYER "self_attn.q_norm.weight",             Q_NORM,     HEAD),
    VECTOR_IF(QK_NORM, LAYER "self_attn.k_norm.weight",             K_NORM,     HEAD),
    CORRECTED_TENSORS,
    COMMON_TENSORS};
static const proa_name hy_tensors[] = {
    LLAMA_ATTENTION_BIASES(BODY), LLAMA_HEAD_NORMS(BODY), CORRECTED_TENSORS, COMMON_TENSORS};
/* Its attention has names of its own, and one matrix of q, k and v. */
static const proa_name sarvam_tensors[] = {
    TABLE    (BODY "word_embeddings.weight",                        TOKENS,     VOCAB,  HIDDEN),
    VECTOR   (LAYER "input_layernorm.weight",                       ATTN_NORM,  HIDDEN),
    MATRIX   (LAYER "attention.query_key_value.weight",             QKV,        QKV,    HIDDEN),
    VECTOR_IF(ATTN_BIAS, LAYER "attention.query_key_value.bias",    QKV_B,      QKV),
    MATRIX   (LAYER "attention.dense.weight",                       O,          HIDDEN, Q),
    VECTOR_IF(QK_NORM, LAYER "attention.query_layernorm.weight",    Q_NORM,     HEAD),
    VECTOR_IF(QK_NORM, LAYER "attention.key_layernorm.weight",      K_NORM,     HEAD),
    VECTOR   (LAYER "post_attention_layernorm.weight",              FFN_NORM,   HIDDEN),
    CORRECTED_TENSORS,
    VECTOR   (BODY "norm.weight",                                   FINAL_NORM, HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                             HEAD,       VOCAB,  HIDDEN),
    TIED_HEAD(BODY "word_embeddings.weight"),
    END_TENSORS};
static const proa_name minimax_tensors[] = {
    VECTOR       (LAYER "self_attn.q_norm.weight",                   Q_NORM,      Q),
    VECTOR       (LAYER "self_attn.k_norm.weight",                   K_NORM,      KV),
    VECTOR       (LAYER "block_sparse_moe.e_score_correction_bias",  CORRECTION,  EXPERTS),
    MATRIX       (LAYER "block_sparse_moe.gate.weight",              ROUTER,      EXPERTS,    HIDDEN),
    EXPERT_MATRIX(LAYER "block_sparse_moe.experts.%d.w1.weight",     EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX(LAYER "block_sparse_moe.experts.%d.w3.weight",     EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX(LAYER "block_sparse_moe.experts.%d.w2.weight",     EXPERT_DOWN, HIDDEN,     EXPERT_FFN),
    COMMON_TENSORS};
static const proa_name ernie_tensors[] = {
    VECTOR_IF(EXPERTS, LAYER "mlp.moe_statics.e_score_correction_bias", CORRECTION, EXPERTS),
    SHARED_TENSORS,
    EXPERT_TENSORS,
    COMMON_TENSORS};
/* Its experts are stacked and transposed; they have these names in published files. */
static const proa_name aria_tensors[] = {
    LLAMA_ATTENTION_BIASES(BODY),
    MATRIX(LAYER "mlp.router.weight", ROUTER, EXPERTS, HIDDEN),
    EXPERT_LOADED(ROWS, LAYER "mlp.experts.fc1.weight", EXPERT_UP,   TRANSPOSED, EXPERT_GATED, HIDDEN),
    EXPERT_LOADED(ROWS, LAYER "mlp.experts.fc2.weight", EXPERT_DOWN, TRANSPOSED, HIDDEN,       EXPERT_FFN),
    SHARED_TENSORS,
    COMMON_TENSORS};
static const char *const aria_aliases[] = {
    "model.", "language_model.model.", "model.", "model.language_model.", "lm_head.", "language_model.lm_head.", NULL};
static const char *const aria_unused[] = {"vision_tower.", "model.vision_tower.", "multi_modal_projector.",
                                          "model.multi_modal_projector.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */
/* Names as transformers has them in memory. */
static const char *const aliases[] = {
    "mlp.moe_statics.e_score_correction_bias",     "mlp.gate.moe_statics.e_score_correction_bias",
    "mlp.experts.fc1.weight",                      "mlp.experts.gate_up_proj",
    "mlp.experts.fc2.weight",                      "mlp.experts.down_proj",
    /* K-EXAONE, Sarvam, Hy3 */
    "mlp.gate.e_score_correction_bias",            "mlp.e_score_correction_bias",
    "mlp.gate.e_score_correction_bias",            "mlp.gate.expert_bias",
    "mlp.gate.e_score_correction_bias",            "mlp.expert_bias",
    "mlp.gate.weight",                             "mlp.router.gate.weight",
    "mlp.shared_experts.gate_proj.weight",         "mlp.shared_mlp.gate_proj.weight",
    "mlp.shared_experts.up_proj.weight",           "mlp.shared_mlp.up_proj.weight",
    "mlp.shared_experts.down_proj.weight",         "mlp.shared_mlp.down_proj.weight",
    NULL};
static const char *const unused[] = {"model.mtp_", "mtp.", NULL}; /* multi-token prediction */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
#define ALL_FFNS \
    NORM        (X, N,    FFN_NORM),                  \
    LINEAR_GATED(N, F,    UP,          IF(DENSE)),    \
    LINEAR      (F, X,    DOWN,  ADD | IF(DENSE)),    \
    LLAMA_EXPERTS,                                      \
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
    LLAMA_EXPERTS,
    END};
static const proa_step shared_layer[] = {
    LLAMA_QKV, Q_NORM_IF(QK_NORM, Q_NORM), K_NORM_IF(QK_NORM, K_NORM), ROTATE, LLAMA_ATTEND, ALL_FFNS};
static const proa_step exaone_layer[] = {
    LLAMA_QKV, Q_NORM(Q_NORM), K_NORM(K_NORM), ROTATE, LLAMA_ATTEND, ALL_FFNS};
static const proa_step minimax_layer[] = {
    LLAMA_QKV, Q_NORM_WHOLE(Q_NORM), K_NORM_WHOLE(K_NORM), ROTATE, LLAMA_ATTEND, NORM(X, N, FFN_NORM), LLAMA_EXPERTS,
    END};
static const proa_step ernie_layer[] = {LLAMA_QKV, ROTATE_PAIRS, LLAMA_ATTEND, ALL_FFNS};
static const proa_step head[] = {LM_HEAD(0)};
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

/* Layers [first, end] have experts, of them every step-th of all. */
static void set_expert_layers(proa_config *c, int64_t first, int64_t last, int64_t step, proa_arena *arena)
{
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        c->expert_layers[i] = i >= first && i <= last && (i + 1) % step == 0;
}

/* Of a class whose router is that of DeepSeek V3: what its keys are called, and what holds where they are missing. */
typedef struct mixture_class {
    const char *shared_key, *dense_key, *scale_key; /* dense_key NULL: no such key is read */
    int64_t shared, dense, chosen;                  /* shared experts, dense layers, chosen experts */
    double scale;
    bool renormalise;
} mixture_class;

static proa_status read_sigmoid_router(proa_config *c, const proa_json *json, const mixture_class *of,
                                       proa_err *err)
{
    double scale = of->scale;
    int64_t shared = of->shared, groups = 1, chosen_groups = 1;
    c->router.renormalise = of->renormalise;
    PROA_TRY(proa_json_get_int(&shared, json, of->shared_key, 0, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&groups, json, "n_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen_groups, json, "topk_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_double(&scale, json, of->scale_key, 1e-6, 1e6, err));
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    c->shared_ffn = shared * c->expert_ffn;
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.scale = (float)scale;
    c->router.groups = groups > 1 ? (int32_t)groups : 0;
    c->router.chosen_groups = (int32_t)chosen_groups;
    c->router.group_best = 2;
    return read_chosen(c, json, "num_experts_per_tok", of->chosen, err);
}

/* The first layers are dense. */
static proa_status finish_class(proa_config *c, const proa_json *json, const mixture_class *of,
                                proa_arena *arena, proa_err *err)
{
    int64_t dense = of->dense;
    c->gated = true;
    if (of->dense_key) PROA_TRY(proa_json_get_int(&dense, json, of->dense_key, 0, PROA_LAYERS_MAX, err));
    set_expert_layers(c, dense, c->layers, 1, arena);
    PROA_TRY(read_sigmoid_router(c, json, of, err));
    return proa_config_read_rope(c, json, arena, err);
}

#define DENSE_KEY "first_k_dense_replace"
#define SCALE_KEY "routed_scaling_factor"

static proa_status finish_glm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const mixture_class of = {"n_shared_experts", DENSE_KEY, SCALE_KEY, 1, 1, 8, 1, true};
    PROA_TRY(proa_config_read_rotary_dim(c, json, 0.5, err));
    return finish_class(c, json, &of, arena, err);
}

/* All heads are normed; the output projection has no bias, and the files have no biases at all. */
static proa_status finish_dots(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const mixture_class of = {"n_shared_experts", DENSE_KEY, SCALE_KEY, 0, 0, 8, 1, false};
    c->qk_norm = true;
    c->window_from = 62;
    if (c->attention_bias) return PROA_FAIL(err, UNSUPPORTED, "'attention_bias' true is not supported");
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    PROA_TRY(finish_class(c, json, &of, arena, err));
    return proa_config_read_window(c, json, arena, err);
}

/* All layers have experts, whatever first_k_dense_replace says, and no heads are normed. */
static proa_status finish_solar(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const mixture_class of = {"n_shared_experts", NULL, SCALE_KEY, 1, 0, 8, 1, true};
    c->ffn = c->expert_ffn;
    c->rope.theta = 1e6;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    return finish_class(c, json, &of, arena, err);
}

static proa_status finish_sarvam(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const bool renamed = proa_json_get(json, "n_shared_experts") != NULL;
    const mixture_class of = {
        renamed ? "n_shared_experts" : "num_shared_experts", DENSE_KEY, SCALE_KEY, 1, 1, 6, 2.5, true};
    PROA_TRY(proa_json_get_bool(&c->attention_bias, json, "use_qkv_bias", err));
    c->rope.theta = 8e6;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    return finish_class(c, json, &of, arena, err);
}

/* K-EXAONE: as in EXAONE 4, only layers with a window rotate, unless there is none. */
static proa_status finish_exaone(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const mixture_class of = {"num_shared_experts", DENSE_KEY, SCALE_KEY, 1, 1, 8, 2.5, true};
    c->window = 4096;
    c->window_pattern = 4;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    PROA_TRY(finish_class(c, json, &of, arena, err));
    PROA_TRY(proa_config_read_ffn_types(c, json, err));
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    c->rotated_layers = c->window_layers;
    return PROA_OK;
}

/* Hy3: which layers are dense is in mlp_layer_types, else the first one is. */
static proa_status finish_hy(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const mixture_class of = {
        "num_shared_experts", NULL, "router_scaling_factor", 1, 1, 8, 2.826, true};
    if (c->mlp_bias) return PROA_FAIL(err, UNSUPPORTED, "'mlp_bias' true is not supported");
    c->rope.theta = 11158840;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    PROA_TRY(finish_class(c, json, &of, arena, err));
    c->router.renormalise = true; /* whatever norm_topk_prob says; there are no groups */
    c->router.groups = 0;
    return proa_config_read_ffn_types(c, json, err);
}

/* rotary_dim is the size in published files, partial_rotary_factor that of transformers 5. */
static proa_status finish_minimax(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (c->attention_bias) return PROA_FAIL(err, UNSUPPORTED, "'attention_bias' true is not supported");
    c->gated = true;
    c->expert_ffn = c->ffn;
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.renormalise = true;
    c->rope.theta = 5e6;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    if (!proa_json_get(json, "rope_parameters"))
        PROA_TRY(proa_json_get_int(&c->rotary_dim, json, "rotary_dim", 1, PROA_HEAD_DIM_MAX, err));
    PROA_TRY(read_chosen(c, json, "num_experts_per_tok", 8, err));
    return proa_config_read_rope(c, json, arena, err);
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

/* A softmax over the chosen scores; the shared experts are one FFN of the size of all of them. */
static proa_status finish_aria(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t shared = 2;
    if (c->mlp_bias) return PROA_FAIL(err, UNSUPPORTED, "'mlp_bias' true is not supported");
    if (c->act != PROA_ACT_SILU)
        return PROA_FAIL(err, UNSUPPORTED, "'hidden_act' other than silu is not supported");
    PROA_TRY(proa_json_get_int(&shared, json, "moe_num_shared_experts", 0, PROA_EXPERTS_MAX, err));
    c->expert_ffn = c->ffn;
    c->shared_ffn = shared * c->ffn;
    c->router.renormalise = true;
    PROA_TRY(read_chosen(c, json, "moe_topk", 2, err));
    return proa_llama_finish(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class, keylist, tensors, layer, finisher) \
    .name = type, .model_type = type, .hf = class, DECODER(RMS), .keys = keylist##_keys,                       \
    .names = tensors##_tensors, .aliases = aliases, .ignored = ignored, .unused_parts = unused,                \
    .stacks = {CAUSAL(embed, layer##_layer)}, .head = head, .finish = finish_##finisher
#define MIXTURE(type, class, keylist, tensors, layer, finisher) \
    {ROW(type, STRINGS(class), keylist, tensors, layer, finisher)}

const proa_arch proa_arch_olmoe = MIXTURE("olmoe", "OlmoeForCausalLM", olmoe, olmoe, olmoe, olmoe);
const proa_arch proa_arch_glm4_moe = MIXTURE("glm4_moe", "Glm4MoeForCausalLM", glm4, shared, shared, glm);
const proa_arch proa_arch_dots1 = MIXTURE("dots1", "Dots1ForCausalLM", dots, shared, shared, dots);
const proa_arch proa_arch_solar_open =
    MIXTURE("solar_open", "SolarOpenForCausalLM", solar, shared, shared, solar);
/* transformers 5 has no class of its own for it: it saves that of GLM-4-MoE. */
const proa_arch proa_arch_sarvam_moe = {
    ROW("sarvam_moe", STRINGS("SarvamMoEForCausalLM", "Glm4MoeForCausalLM"), sarvam, sarvam, shared, sarvam)};
const proa_arch proa_arch_exaone_moe =
    MIXTURE("exaone_moe", "ExaoneMoeForCausalLM", exaone, hy, exaone, exaone);
const proa_arch proa_arch_hy_v3 = MIXTURE("hy_v3", "HYV3ForCausalLM", hy, hy, exaone, hy);
const proa_arch proa_arch_minimax_m2 =
    MIXTURE("minimax_m2", "MiniMaxM2ForCausalLM", minimax, minimax, minimax, minimax);
const proa_arch proa_arch_ernie4_5_moe = MIXTURE("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", ernie, ernie, ernie, ernie);
const proa_arch proa_arch_aria = {
    .name = "aria", .model_type = "aria", .hf = STRINGS("AriaForConditionalGeneration", "AriaTextForCausalLM"),
    DECODER(RMS), .keys = aria_keys, .names = aria_tensors, .aliases = aliases, .prefix_aliases = aria_aliases,
    .ignored = ignored, .unused_parts = aria_unused, .text_config = "text_config",
    .stacks = {CAUSAL(embed, shared_layer)}, .head = head, .finish = finish_aria};
/* clang-format on */
