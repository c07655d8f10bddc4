/* SPDX-License-Identifier: Apache-2.0
 * arch_moe.c - Mixtral, PhiMoE, Qwen2-MoE, Qwen3-MoE (also that of Qwen3-VL), Mellum 2: the layers of Llama, Qwen2 and
 * Qwen3 with a mixture of experts as FFN. Mixtral's experts replace the FFN in all layers. Qwen's may do so in some
 * (decoder_sparse_step, mlp_only_layers), and Qwen2-MoE has a shared expert beside them, whose output is multiplied by
 * a sigmoid. PhiMoE has LayerNorm, biases, and a router of its own (PROA_ROUTER_SPARSEMIXER). A softmax whose chosen
 * probabilities are renormalised is the softmax over the chosen scores. Facts: transformers'
 * modeling_{mixtral,phimoe,qwen2_moe,qwen3_moe,qwen3_vl_moe,mellum}.py. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"

#define STACK    PROA_STACK_DECODER
#define IN_LAYER "model.layers.%d."

/* clang-format off */
#define KEYS_OF_LLAMA \
    SIZE_KEYS (layers),                                                           \
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 0),        \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  2048),     \
    ACTIVATION("hidden_act",              SILU),                                  \
    SWITCH    ("tie_word_embeddings",     tied,           0)
static const proa_key mixtral_keys[] = {
    KEYS_OF_LLAMA,
    KV_HEADS  (8),
    EPSILON   ("rms_norm_eps",            1e-5),
    REQUIRED  ("num_local_experts",       experts,        EXPERTS),
    END_KEYS};
static const proa_key phimoe_keys[] = {
    KEYS_OF_LLAMA,
    KV_HEADS  (8),
    EPSILON   ("rms_norm_eps",            1e-5),
    SWITCH    ("attention_bias",          attention_bias, 0),
    REQUIRED  ("num_local_experts",       experts,        EXPERTS),
    END_KEYS};
#define QWEN_KEYS \
    KEYS_OF_LLAMA,                                                                     \
    EPSILON   ("rms_norm_eps",                    1e-6),                               \
    SWITCH    ("attention_bias",                  attention_bias, 0),                  \
    INTEGER   ("num_experts",                     experts,        0, EXPERTS, 0),      \
    INTEGER   ("num_local_experts",               experts,        0, EXPERTS, 0),      \
    INTEGER   ("moe_intermediate_size",           expert_ffn,     0, FFN,     0),      \
    INTEGER   ("shared_expert_intermediate_size", shared_ffn,     0, FFN,     0)
static const proa_key qwen2_keys[] = {QWEN_KEYS, KV_HEADS(16), END_KEYS};
static const proa_key qwen3_keys[] = {QWEN_KEYS, KV_HEADS(4), END_KEYS};
static const proa_key mellum_keys[] = {
    INTEGER   ("num_experts",                     experts,        1, EXPERTS, 64),
    INTEGER   ("moe_intermediate_size",           expert_ffn,     1, FFN,     896),
    QWEN_KEYS,
    INTEGER   ("head_dim",                        head_dim,       1, HEAD_DIM, 128),
    KV_HEADS(4),
    END_KEYS};
static const proa_key qwen3_vl_keys[] = {QWEN_KEYS, KV_HEADS(16), END_KEYS};

#define COMMON_TENSORS \
    TABLE    ("model.embed_tokens.weight",             TOKENS,     VOCAB,  HIDDEN), \
    VECTOR   (IN_LAYER "input_layernorm.weight",          ATTN_NORM,  HIDDEN),         \
    MATRIX   (IN_LAYER "self_attn.q_proj.weight",         QKV,        Q,      HIDDEN), \
    MATRIX   (IN_LAYER "self_attn.k_proj.weight",         QKV,        KV,     HIDDEN), \
    MATRIX   (IN_LAYER "self_attn.v_proj.weight",         QKV,        KV,     HIDDEN), \
    MATRIX   (IN_LAYER "self_attn.o_proj.weight",         O,          HIDDEN, Q),      \
    VECTOR   (IN_LAYER "post_attention_layernorm.weight", FFN_NORM,   HIDDEN),         \
    VECTOR   ("model.norm.weight",                     FINAL_NORM, HIDDEN),         \
    MATRIX_IF(UNTIED, "lm_head.weight",                HEAD,       VOCAB,  HIDDEN), \
    TIED_HEAD("model.embed_tokens.weight"),                                         \
    END_TENSORS
#define QWEN_FFN \
    LLAMA_DENSE_TENSORS(IN_LAYER "mlp."), \
    MATRIX_IF(EXPERTS,        IN_LAYER "mlp.gate.weight",                   ROUTER,      EXPERTS,    HIDDEN),     \
    LLAMA_EXPERT_TENSORS(IN_LAYER "mlp.")

#define MIXTRAL_FFN \
    MATRIX       (IN_LAYER "block_sparse_moe.gate.weight",          ROUTER,      EXPERTS,    HIDDEN), \
    EXPERT_MATRIX(IN_LAYER "block_sparse_moe.experts.%d.w1.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN), \
    EXPERT_MATRIX(IN_LAYER "block_sparse_moe.experts.%d.w3.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN), \
    EXPERT_MATRIX(IN_LAYER "block_sparse_moe.experts.%d.w2.weight", EXPERT_DOWN, HIDDEN,     EXPERT_FFN)

static const proa_name mixtral_tensors[] = {MIXTRAL_FFN, COMMON_TENSORS};
static const proa_name phimoe_tensors[] = {
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.q_proj.bias",   QKV_B,        Q),
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.k_proj.bias",   QKV_B,        KV),
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.v_proj.bias",   QKV_B,        KV),
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.o_proj.bias",   O_B,          HIDDEN),
    VECTOR   (IN_LAYER "input_layernorm.bias",               ATTN_NORM_B,  HIDDEN),
    VECTOR   (IN_LAYER "post_attention_layernorm.bias",      FFN_NORM_B,   HIDDEN),
    VECTOR   ("model.norm.bias",                          FINAL_NORM_B, HIDDEN),
    VECTOR_IF(PRESENT, "lm_head.bias",                    HEAD_B,       VOCAB),
    MIXTRAL_FFN,
    COMMON_TENSORS};
static const proa_name qwen2_tensors[] = {
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.q_proj.bias", QKV_B, Q),
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.k_proj.bias", QKV_B, KV),
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.v_proj.bias", QKV_B, KV),
    QWEN_FFN,
    MATRIX_IF(EXPERTS, IN_LAYER "mlp.shared_expert_gate.weight",     SHARED_GATE, ONE,        HIDDEN),
    MATRIX_IF(EXPERTS, IN_LAYER "mlp.shared_expert.gate_proj.weight", SHARED_UP,   SHARED_FFN, HIDDEN),
    MATRIX_IF(EXPERTS, IN_LAYER "mlp.shared_expert.up_proj.weight",   SHARED_UP,   SHARED_FFN, HIDDEN),
    MATRIX_IF(EXPERTS, IN_LAYER "mlp.shared_expert.down_proj.weight", SHARED_DOWN, HIDDEN,     SHARED_FFN),
    COMMON_TENSORS};
static const proa_name qwen3_tensors[] = {
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.q_proj.bias", QKV_B, Q),
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.k_proj.bias", QKV_B, KV),
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.v_proj.bias", QKV_B, KV),
    VECTOR_IF(ATTN_BIAS, IN_LAYER "self_attn.o_proj.bias", O_B,   HIDDEN),
    VECTOR(IN_LAYER "self_attn.q_norm.weight", Q_NORM, HEAD),
    VECTOR(IN_LAYER "self_attn.k_norm.weight", K_NORM, HEAD),
    QWEN_FFN,
    COMMON_TENSORS};
/* Its experts are in two tensors of each layer: transposed as published, not so as transformers 5 saves them. */
#define VL "model.language_model."
#define VL_EXPERTS(name, SLOT, ROLE, ROWS, COLS, ORDER) \
    TENSOR(VL "layers.%d.mlp.experts." name, SLOT, ROLE, ROWS, COLS, PROA_PER_EXPERT | IF(EXPERTS) | IF(ORDER))
static const proa_name qwen3_vl_tensors[] = {
    LLAMA_ATTENTION_BIASES(VL),
    LLAMA_HEAD_NORMS(VL),
    LLAMA_ATTENTION(VL),
    LLAMA_HEAD(VL, "lm_head.weight"),
    LLAMA_DENSE_TENSORS(VL "layers.%d.mlp."),
    MATRIX_IF(EXPERTS, VL "layers.%d.mlp.gate.weight",            ROUTER, EXPERTS, HIDDEN),
    VL_EXPERTS("gate_up_proj", EXPERT_UP,   TRANSPOSED, EXPERT_GATED, HIDDEN,     EXPERTS_TURNED),
    VL_EXPERTS("down_proj",    EXPERT_DOWN, TRANSPOSED, HIDDEN,       EXPERT_FFN, EXPERTS_TURNED),
    VL_EXPERTS("gate_up_proj", EXPERT_UP,   MATRIX,     EXPERT_GATED, HIDDEN,     EXPERTS_IN_ROWS),
    VL_EXPERTS("down_proj",    EXPERT_DOWN, MATRIX,     HIDDEN,       EXPERT_FFN, EXPERTS_IN_ROWS),
    END_TENSORS};
static const char *const vl_aliases[] = {VL, "model.", NULL};
static const char *const mellum_unused[] = {"mtp.", NULL}; /* multi-token prediction */
static const char *const vl_unused[] = {"visual.", "model.visual.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, LOCAL_ROPE_TABLE, END};
#define QKV_PRODUCT \
    NORM  (X, N,   ATTN_NORM), \
    LINEAR(N, QKV, QKV, 0)
#define ATTENTION \
    ROTATE,                                          \
    KV_APPEND,                                       \
    ATTEND,                                          \
    LINEAR      (A, X, O,    ADD),                   \
    NORM        (X, N, FFN_NORM)
#define DENSE_FFN \
    LINEAR_GATED(N, F, UP,   IF(DENSE)),             \
    LINEAR      (F, X, DOWN, ADD | IF(DENSE))
#define SHARED_EXPERT \
    LINEAR_GATED(N, F,    SHARED_UP,   IF(EXPERTS)), \
    LINEAR      (N, GATE, SHARED_GATE, IF(EXPERTS)), \
    SIGMOID_MUL (F, GATE, SHARED_DOWN, IF(EXPERTS)), \
    LINEAR      (F, X,    SHARED_DOWN, ADD | IF(EXPERTS))
static const proa_step mixtral_layer[] = {QKV_PRODUCT, ATTENTION, LLAMA_EXPERTS, END};
static const proa_step qwen2_layer[]   = {QKV_PRODUCT, ATTENTION, DENSE_FFN, LLAMA_EXPERTS, SHARED_EXPERT, END};
static const proa_step qwen3_layer[]   = {
    QKV_PRODUCT, Q_NORM(Q_NORM), K_NORM(K_NORM), ATTENTION, DENSE_FFN, LLAMA_EXPERTS, END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status read_chosen(proa_config *c, const proa_json *json, int64_t chosen, proa_err *err)
{
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    c->router.chosen = (int32_t)chosen;
    return PROA_OK;
}

static proa_status finish_moe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    c->rotary_dim = c->head_dim;
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_mixtral(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->expert_ffn = c->ffn;
    c->router.renormalise = true;
    c->rope.theta = 1e6;
    PROA_TRY(read_chosen(c, json, 2, err));
    PROA_TRY(finish_moe(c, json, arena, err));
    return proa_config_read_common_window(c, json, err);
}

static proa_status finish_phimoe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double jitter = 0.01;
    PROA_TRY(proa_json_get_double(&jitter, json, "router_jitter_noise", 0, 1, err));
    c->expert_ffn = c->ffn;
    c->router.kind = PROA_ROUTER_SPARSEMIXER;
    c->router.jitter = (float)jitter;
    c->rope.theta = 1e6;
    PROA_TRY(read_chosen(c, json, 2, err));
    PROA_TRY(finish_moe(c, json, arena, err));
    return proa_config_read_common_window(c, json, err);
}

static proa_status finish_qwen(proa_config *c, const proa_json *json, int64_t chosen, proa_arena *arena,
                               proa_err *err)
{
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    PROA_TRY(proa_config_read_expert_layers(c, json, arena, err));
    PROA_TRY(read_chosen(c, json, chosen, err));
    c->window = 4096;
    return finish_moe(c, json, arena, err);
}

static bool uses_window(const proa_json *json)
{
    return proa_json_bool(proa_json_get(json, "use_sliding_window"));
}

/* Without layer_types every second layer before max_window_layers has the window, from the first one on. */
static proa_status read_qwen2_window(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t end = 28;
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    PROA_TRY(proa_json_get_int(&end, json, "max_window_layers", 0, PROA_LAYERS_MAX, err));
    if (c->window_used && !proa_json_get(json, "layer_types"))
        for (int64_t i = 0; i < c->layers; i++) c->window_layers[i] = i % 2 == 0 && i < end;
    return PROA_OK;
}

static proa_status finish_qwen2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->attention_bias = true; /* of q, k and v, unless qkv_bias says otherwise; the output has none */
    PROA_TRY(proa_json_get_bool(&c->attention_bias, json, "qkv_bias", err));
    c->shared_gate = true;
    if (c->shared_ffn == 0) return PROA_FAIL(err, INVALID, "'shared_expert_intermediate_size' is missing");
    PROA_TRY(finish_qwen(c, json, 4, arena, err));
    return uses_window(json) ? read_qwen2_window(c, json, arena, err) : PROA_OK;
}

/* Qwen3-MoE has no shared expert: a stray size is not read. A window is that of all layers. */
static proa_status finish_qwen3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->shared_ffn = 0;
    PROA_TRY(finish_qwen(c, json, 8, arena, err));
    return uses_window(json) ? proa_config_read_common_window(c, json, err) : PROA_OK;
}

/* Mellum 2 is a Qwen3-MoE whose layers say which of them have a window or a dense FFN. Those with a window have a
 * rotary base of their own. */
static proa_status finish_mellum(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->shared_ffn = 0;
    c->router.renormalise = true;
    c->rope.theta = 5e5;
    if (!proa_json_get(json, "rope_parameters")) c->local_rope.theta = 1e4;
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, "norm_topk_prob", err));
    PROA_TRY(read_chosen(c, json, 8, err));
    PROA_TRY(finish_moe(c, json, arena, err));
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = true;
    PROA_TRY(proa_config_read_ffn_types(c, json, err));
    c->window = 1024;
    return proa_json_get(json, "layer_types") ? proa_config_read_window(c, json, arena, err) : PROA_OK;
}

/* Weights are always renormalised, as all files say. */
static proa_status finish_qwen3_vl(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rope.theta = 5e5;
    PROA_TRY(finish_qwen3(c, json, arena, err));
    c->router.renormalise = true;
    return PROA_OK;
}

/* clang-format off */
#define ROW_OF(type, NORM, keylist, tensors, layer, finisher)                                       \
    .name = type, .model_type = type, DECODER(NORM), .keys = keylist##_keys,                        \
    .names = tensors##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head, \
    .finish = finisher
#define ROW(type, class, NORM, keylist, tensors, layer, finisher, stem) \
    {.hf = STRINGS(class), ROW_OF(type, NORM, keylist, tensors, layer, finisher), HEADS(TEXTS | TOKENS | SPANS, stem)}

const proa_arch proa_arch_mixtral =
    ROW("mixtral",   "MixtralForCausalLM",  RMS,   mixtral, mixtral, mixtral_layer, finish_mixtral, "Mixtral");
const proa_arch proa_arch_phimoe = {
    .hf = STRINGS("PhimoeForCausalLM", "PhiMoEForCausalLM"), /* transformers' name, and that of the published files */
    ROW_OF("phimoe", LAYER, phimoe, phimoe, mixtral_layer, finish_phimoe),
    HEADS(TEXTS, "Phimoe", "PhiMoE")};
const proa_arch proa_arch_qwen2_moe =
    ROW("qwen2_moe", "Qwen2MoeForCausalLM", RMS,   qwen2,   qwen2,   qwen2_layer,   finish_qwen2, "Qwen2Moe");
const proa_arch proa_arch_qwen3_moe =
    ROW("qwen3_moe", "Qwen3MoeForCausalLM", RMS,   qwen3,   qwen3,   qwen3_layer,   finish_qwen3, "Qwen3Moe");
const proa_arch proa_arch_mellum = {
    .hf = STRINGS("MellumForCausalLM"), .unused_parts = mellum_unused,
    ROW_OF("mellum", RMS, mellum, qwen3, qwen3_layer, finish_mellum)};
const proa_arch proa_arch_qwen3_vl_moe = {
    .hf = STRINGS("Qwen3VLMoeForConditionalGeneration"),
    ROW_OF("qwen3_vl_moe", RMS, qwen3_vl, qwen3_vl, qwen3_layer, finish_qwen3_vl),
    .text_config = "text_config", .prefix_aliases = vl_aliases, .unused_parts = vl_unused};
/* clang-format on */
