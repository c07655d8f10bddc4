/* SPDX-License-Identifier: Apache-2.0
 * arch_gpt_oss.c - gpt-oss: grouped queries with a learned sink in each head's softmax, windows in every second layer,
 * and a mixture of experts with biases. The rows of gate and up alternate in the checkpoint; an expert is
 * (min(gate, 7) sigmoid(1.702 gate)) (clamp(up, -7, 7) + 1). OpenAI's privacy filter is an encoder of these layers,
 * all with a window to both sides, which rotates pairs and has gates before up; it classifies tokens.
 * Facts: transformers' modeling_{gpt_oss,openai_privacy_filter}.py. */
#include "model/arch/arch_rows.h"

#define LAYER "model.layers.%d."

/* clang-format off */
/* COUNT: the field for the number of layers. */
#define KEYS(COUNT) \
    SIZE_KEYS (COUNT),                                                              \
    REQUIRED  ("num_local_experts",       experts,        EXPERTS),                 \
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 64),         \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  131072),     \
    EPSILON   ("rms_norm_eps",            1e-5),                                    \
    SWITCH    ("attention_bias",          attention_bias, 1)
static const proa_key keys[] = {KEYS(layers), KV_HEADS(8), SWITCH("tie_word_embeddings", tied, 0), END_KEYS};
static const proa_key filter_keys[] = {KEYS(encoder_layers), KV_HEADS(2), END_KEYS};

/* ORDER: the load action of the rows of gate and up. */
#define BODY_TENSORS(ORDER) \
    TABLE    ("model.embed_tokens.weight",             TOKENS,     VOCAB,   HIDDEN), \
    VECTOR   (LAYER "input_layernorm.weight",          ATTN_NORM,  HIDDEN),          \
    MATRIX   (LAYER "self_attn.q_proj.weight",         QKV,        Q,       HIDDEN), \
    MATRIX   (LAYER "self_attn.k_proj.weight",         QKV,        KV,      HIDDEN), \
    MATRIX   (LAYER "self_attn.v_proj.weight",         QKV,        KV,      HIDDEN), \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.q_proj.bias", QKV_B,     Q),               \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.k_proj.bias", QKV_B,     KV),              \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.v_proj.bias", QKV_B,     KV),              \
    VECTOR   (LAYER "self_attn.sinks",                 SINKS,      HEADS),           \
    MATRIX   (LAYER "self_attn.o_proj.weight",         O,          HIDDEN,  Q),      \
    VECTOR_IF(ATTN_BIAS, LAYER "self_attn.o_proj.bias", O_B,       HIDDEN),          \
    VECTOR   (LAYER "post_attention_layernorm.weight", FFN_NORM,   HIDDEN),          \
    MATRIX   (LAYER "mlp.router.weight",               ROUTER,     EXPERTS, HIDDEN), \
    VECTOR   (LAYER "mlp.router.bias",                 ROUTER_B,   EXPERTS),         \
    EXPERT_LOADED(ORDER, LAYER "mlp.experts.gate_up_proj",      EXPERT_UP,     TRANSPOSED, EXPERT_GATED, HIDDEN), \
    EXPERT_LOADED(ORDER, LAYER "mlp.experts.gate_up_proj_bias", EXPERT_UP_B,   VECTOR,     EXPERT_GATED, NONE),   \
    EXPERT_LOADED(ROWS,  LAYER "mlp.experts.down_proj",         EXPERT_DOWN,   TRANSPOSED, HIDDEN, EXPERT_FFN),   \
    EXPERT_LOADED(ROWS,  LAYER "mlp.experts.down_proj_bias",    EXPERT_DOWN_B, VECTOR,     HIDDEN, NONE),         \
    VECTOR   ("model.norm.weight",                     FINAL_NORM, HIDDEN)
#define STACK PROA_STACK_DECODER
static const proa_name tensors[] = {
    BODY_TENSORS(EVEN_ODD),
    MATRIX_IF(UNTIED, "lm_head.weight",                HEAD,       VOCAB,   HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    END_TENSORS};
#undef STACK
#define STACK PROA_STACK_ENCODER
static const proa_name filter_bare_tensors[] = {BODY_TENSORS(ROWS), END_TENSORS};
static const proa_name filter_token_tensors[] = {
    BODY_TENSORS(ROWS),
    MATRIX("score.weight", HEAD,   LABELS, HIDDEN),
    VECTOR("score.bias",   HEAD_B, LABELS),
    END_TENSORS};
static const char *const prefixes[] = {"model.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
#define LAYER_STEPS(ROTATE) \
    NORM   (X, N,   ATTN_NORM),    \
    LINEAR (N, QKV, QKV, 0),       \
    ROTATE,                        \
    KV_APPEND,                     \
    ATTEND,                        \
    LINEAR (A, X, O, ADD),         \
    NORM   (X, N, FFN_NORM),       \
    LINEAR (N, ROUTER, ROUTER, 0), \
    ROUTE  (CORRECTION),           \
    EXPERTS(N, X, ADD),            \
    END
static const proa_step layer[] = {LAYER_STEPS(ROTATE)}, filter_layer[] = {LAYER_STEPS(ROTATE_PAIRS)};
static const proa_step head[] = {LM_HEAD(0)};
static const proa_step after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step token_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
/* clang-format on */

/* GptOssConfig has this scaling where config.json has none, or null. */
static void set_default_rope(proa_config *c, const proa_json *json)
{
    c->rope.theta = 150000;
    if (proa_json_get(json, "rope_parameters") || proa_json_get(json, "rope_scaling")) return;
    c->rope.kind = PROA_ROPE_YARN;
    c->rope.factor = 32, c->rope.beta_fast = 32, c->rope.beta_slow = 1;
    c->rope.original = 4096;
    c->rope.scale = proa_rope_mscale(c->rope.factor, 1);
}

static proa_status finish_base(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double alpha = 1.702;
    int64_t chosen = 4;
    PROA_TRY(proa_json_get_double(&alpha, json, "swiglu_alpha", -1e30, 1e30, err));
    if (alpha != 1.702) return PROA_FAIL(err, UNSUPPORTED, "'swiglu_alpha' is %g, must be 1.702", alpha);
    PROA_TRY(proa_json_get_int(&chosen, json, "experts_per_token", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    c->expert_limit = 7, c->expert_offset = 1;
    PROA_TRY(proa_json_get_double(&c->expert_limit, json, "swiglu_limit", 0, 1e30, err));
    c->act = PROA_ACT_QUICK_GELU;
    c->gated = true;
    c->expert_ffn = c->ffn;
    c->router.chosen = (int32_t)chosen;
    c->router.renormalise = true; /* softmax over the chosen scores */
    c->rotary_dim = c->head_dim;
    c->window = 128;
    set_default_rope(c, json);
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    return proa_config_read_window(c, json, arena, err);
}

static proa_status finish_gpt_oss(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->window_pattern = 2; /* where there are no layer_types */
    return finish_base(c, json, arena, err);
}

/* sliding_window is how far each layer sees to each side. Without names there are as many labels as the published
 * model has. */
static proa_status finish_filter(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(finish_base(c, json, arena, err));
    if (c->window_used) c->window++; /* and itself */
    PROA_TRY(proa_config_read_labels(c, json, err));
    if (!proa_json_get(json, "id2label") && !proa_json_get(json, "num_labels")) c->labels = 33;
    return PROA_OK;
}

const proa_arch proa_arch_gpt_oss = {.name = "gpt_oss",
                                     .model_type = "gpt_oss",
                                     .hf = STRINGS("GptOssForCausalLM"),
                                     DECODER(RMS),
                                     .keys = keys,
                                     .names = tensors,
                                     .ignored = ignored,
                                     .stacks = {CAUSAL(embed, layer)},
                                     .head = head,
                                     .finish = finish_gpt_oss,
                                     HEADS(TEXTS | TOKENS, "GptOss")};
/* clang-format off */
#define FILTER(row, ending, tensors, program, last, outs) \
    .name = row, .model_type = "openai_privacy_filter", .hf = STRINGS("OpenAIPrivacyFilter" ending),               \
    .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_RMS, .keys = filter_keys, .names = tensors, .prefixes = prefixes, \
    .ignored = ignored, .stacks = {[STACK] = {embed, filter_layer, last, false}}, .head = program,                 \
    .head_rows = PROA_ROWS_ALL, .outputs = PROA_DIM_##outs, .finish = finish_filter
const proa_arch proa_arch_privacy_filter = {
    FILTER("privacy_filter", "Model", filter_bare_tensors, headless, after, HIDDEN)};
const proa_arch proa_arch_privacy_filter_token = {
    FILTER("privacy_filter_token", "ForTokenClassification", filter_token_tensors, token_head, after, LABELS)};
/* clang-format on */
