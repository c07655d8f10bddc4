/* SPDX-License-Identifier: Apache-2.0
 * arch_cohere.c - Cohere's Command R: LayerNorm without bias, attention and gated FFN in parallel on one normed copy.
 * Pairs of neighbours are rotated, the head is the embedding, its logits are multiplied by logit_scale. Command R+
 * norms each head of q and k with weights of its own. Command R7B and Command A (Cohere 2) have a window in three of
 * four layers; the others know no positions. Its mixture of experts may have dense layers first, shared experts, and
 * RMS norms. Facts: transformers' modeling_{cohere,cohere2,cohere2_moe}.py. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_DECODER
#define BLOCK "model.layers.%d."

/* clang-format off */
/* max_position_embeddings is 8,192 in published files whose model_max_length is what the model takes. */
#define COMMON_KEYS \
    REQUIRED  ("vocab_size",              vocab,          VOCAB),             \
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),            \
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),            \
    REQUIRED  ("num_attention_heads",     heads,          HEADS),             \
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    0),    \
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 0),    \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  8192), \
    INTEGER   ("model_max_length",        context,        1, CONTEXT,  8192), \
    NUMBER    ("logit_scale",             logit_scale,    1e-6, 1e6,   0.0625), \
    ACTIVATION("hidden_act",              SILU),                              \
    SWITCH    ("attention_bias",          attention_bias, 0),                 \
    SWITCH    ("tie_word_embeddings",     tied,           1)
static const proa_key keys[] = {
    COMMON_KEYS,
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    EPSILON   ("layer_norm_eps",          1e-5),
    SWITCH    ("use_qk_norm",             qk_norm,        0),
    END_KEYS};
#define MOE_KEYS \
    COMMON_KEYS,                                                              \
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 128),  \
    REQUIRED  ("intermediate_size",       expert_ffn,     FFN),               \
    INTEGER   ("prefix_dense_intermediate_size", ffn,     1, FFN,      0),    \
    INTEGER   ("num_experts",             experts,        1, EXPERTS,  8)
static const proa_key moe_keys[] = {MOE_KEYS, EPSILON("layer_norm_eps", 1e-5), END_KEYS};
static const proa_key moe_rms_keys[] = {MOE_KEYS, EPSILON("rms_norm_eps", 1e-5), END_KEYS};

#define COMMON_TENSORS \
    TABLE    ("model.embed_tokens.weight",             TOKENS,     VOCAB,  HIDDEN), \
    VECTOR   (BLOCK "input_layernorm.weight",          ATTN_NORM,  HIDDEN),         \
    MATRIX   (BLOCK "self_attn.q_proj.weight",         QKV,        Q,      HIDDEN), \
    MATRIX   (BLOCK "self_attn.k_proj.weight",         QKV,        KV,     HIDDEN), \
    MATRIX   (BLOCK "self_attn.v_proj.weight",         QKV,        KV,     HIDDEN), \
    LLAMA_ATTENTION_BIASES("model."),                                               \
    MATRIX   (BLOCK "self_attn.o_proj.weight",         O,          HIDDEN, Q),      \
    LLAMA_DENSE_TENSORS(BLOCK "mlp."), \
    VECTOR   ("model.norm.weight",                     FINAL_NORM, HIDDEN),         \
    LLAMA_HEAD("model.", "lm_head.weight")
static const proa_name tensors[] = {
    VECTOR_IF(QK_NORM, BLOCK "self_attn.q_norm.weight", Q_NORM,    Q),
    VECTOR_IF(QK_NORM, BLOCK "self_attn.k_norm.weight", K_NORM,    KV),
    COMMON_TENSORS,
    END_TENSORS};
#define SHARED_MATRIX(name, SLOT, ROWS, COLS) TENSOR(name, SLOT, MATRIX, ROWS, COLS, IF(EXPERTS) | IF(SHARED))
static const proa_name moe_tensors[] = {
    MATRIX_IF       (EXPERTS, BLOCK "mlp.gate.weight",                 ROUTER,      EXPERTS,    HIDDEN),
    LLAMA_EXPERT_TENSORS(BLOCK "mlp."),
    SHARED_MATRIX   (BLOCK "mlp.shared_experts.gate_proj.weight",      SHARED_UP,   SHARED_FFN, HIDDEN),
    SHARED_MATRIX   (BLOCK "mlp.shared_experts.up_proj.weight",        SHARED_UP,   SHARED_FFN, HIDDEN),
    SHARED_MATRIX   (BLOCK "mlp.shared_experts.down_proj.weight",      SHARED_DOWN, HIDDEN,     SHARED_FFN),
    COMMON_TENSORS,
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR_GATED(N, F,   UP,   FORK),
    LINEAR      (N, QKV, QKV,  0),
    Q_NORM_IF   (QK_NORM, Q_NORM),
    K_NORM_IF   (QK_NORM, K_NORM),
    ROTATE_PAIRS,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X,   O,    ADD),
    LINEAR      (F, X,   DOWN, ADD | JOIN),
    END};
static const proa_step moe_layer[] = {
    LLAMA_QKV, ROTATE_PAIRS, LLAMA_ATTEND, /* the FFN reads the same N */
    LINEAR_GATED(N, F,   UP,          IF(DENSE)),
    LINEAR      (F, X,   DOWN,        ADD | IF(DENSE)),
    LLAMA_EXPERTS,
    LINEAR_GATED(N, F,   SHARED_UP,   IF(EXPERTS) | IF(SHARED)),
    LINEAR      (F, X,   SHARED_DOWN, ADD | FACTOR | IF(EXPERTS) | IF(SHARED)),
    END};
static const proa_step head[] = {LM_HEAD(SCALED)};
/* clang-format on */

static proa_status read_rotary(proa_config *c, const proa_json *json, double theta, proa_arena *arena,
                               proa_err *err)
{
    c->gated = true;
    c->rope.theta = theta;
    PROA_TRY(proa_config_read_rotary_dim(c, json, 1, err));
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_cohere(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    return read_rotary(c, json, 5e5, arena, err);
}

/* Only the layers with a window rotate. */
static proa_status finish_cohere2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->window = 4096;
    c->window_pattern = 4;
    PROA_TRY(read_rotary(c, json, 1e4, arena, err));
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    c->rotated_layers = c->window_layers;
    return PROA_OK;
}

/* Chosen experts have a softmax over their scores, or sigmoids. Their sum and the shared one's may be averaged. */
static proa_status read_experts(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t chosen = 2, shared = 0;
    bool renormalise = true;
    proa_str function = {"softmax", 7}, combined = {"average", 7};
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&shared, json, "num_shared_experts", 0, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_bool(&renormalise, json, "norm_topk_prob", err));
    PROA_TRY(proa_json_get_str(&function, json, "expert_selection_fn", err));
    PROA_TRY(proa_json_get_str(&combined, json, "shared_expert_combination_strategy", err));
    bool sigmoid = proa_str_is(function, "sigmoid"), average = proa_str_is(combined, "average");
    if (!sigmoid && !proa_str_is(function, "softmax"))
        return PROA_FAIL(err, UNSUPPORTED, "'expert_selection_fn' is '%.*s'", (int)function.len, function.ptr);
    if (!average && !proa_str_is(combined, "sum"))
        return PROA_FAIL(err, UNSUPPORTED, "'shared_expert_combination_strategy' is '%.*s'",
                         (int)combined.len, combined.ptr);
    c->shared_ffn = shared * c->expert_ffn;
    c->router.kind = sigmoid ? PROA_ROUTER_SIGMOID : PROA_ROUTER_SOFTMAX;
    c->router.renormalise = !sigmoid || renormalise;
    c->router.chosen = (int32_t)chosen;
    if (shared > 0 && average) c->router.scale = 0.5f, c->factors.shared_out = 0.5;
    return PROA_OK;
}

/* Every fourth layer has no window, counted apart in the dense layers, which come first. The layers without one do not
 * rotate, but for dense ones where these have none by their pattern. */
static proa_status read_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t dense = 0, dense_pattern = 1, pattern = 4;
    PROA_TRY(proa_json_get_int(&dense, json, "first_k_dense_replace", 0, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&dense_pattern, json, "prefix_dense_sliding_window_pattern", 1,
                               PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&pattern, json, "sliding_window_pattern", 1, PROA_LAYERS_MAX, err));
    c->window = 4096;
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    if (!c->window_used)
        return PROA_FAIL(err, UNSUPPORTED, "layers without 'sliding_window' are not supported");
    bool *rotated = PROA_ARENA_NEW(arena, bool, c->layers);
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = i >= dense;
    PROA_TRY(proa_config_read_ffn_types(c, json, err));
    for (int64_t i = 0; i < c->layers; i++) {
        if (!proa_json_get(json, "layer_types"))
            c->window_layers[i] = i < dense ? (i + 1) % dense_pattern != 0 : (i - dense + 1) % pattern != 0;
        rotated[i] = c->window_layers[i] || (!c->expert_layers[i] && dense_pattern == 1);
    }
    c->rotated_layers = rotated;
    return PROA_OK;
}

static proa_status finish_moe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (c->ffn == 0) c->ffn = c->expert_ffn;
    PROA_TRY(read_experts(c, json, err));
    PROA_TRY(read_rotary(c, json, 1e4, arena, err));
    return read_layers(c, json, arena, err);
}

/* clang-format off */
#define ROW(row, type, class, NORM, keylist, form, program, finisher) \
    .name = row, .model_type = type, .hf = STRINGS(class), DECODER(NORM), .keys = keylist, .names = form,      \
    .ignored = ignored, .stacks = {CAUSAL(embed, program)}, .head = head, .finish = finisher
#define DENSE_ROW(type, class, finisher) {ROW(type, type, class, LAYER, keys, tensors, layer, finisher)}
#define MOE_ROW(row, NORM, keylist) \
    ROW(row, "cohere2_moe", "Cohere2MoeForCausalLM", NORM, keylist, moe_tensors, moe_layer, finish_moe)

const proa_arch proa_arch_cohere = DENSE_ROW("cohere", "CohereForCausalLM", finish_cohere);
const proa_arch proa_arch_cohere2 = DENSE_ROW("cohere2", "Cohere2ForCausalLM", finish_cohere2);
const proa_arch proa_arch_cohere2_moe = {MOE_ROW("cohere2_moe", LAYER, moe_keys)};
const proa_arch proa_arch_cohere2_moe_rms = {MOE_ROW("cohere2_moe_rms", RMS, moe_rms_keys), .key = "rms_norm_eps"};
/* clang-format on */
