/* SPDX-License-Identifier: Apache-2.0
 * arch_afmoe.c - AFMoE (Arcee's Trinity): heads of q and k are normed, the output of attention has a gate for each
 * number, and what attention and FFN give is normed, too. Layers with a window rotate, every fourth has neither. After
 * some dense layers the FFN is a mixture chosen by DeepSeek V3's sigmoids, with shared experts.
 * Facts: transformers' modeling_afmoe.py. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"
#include <math.h>

#define STACK PROA_STACK_DECODER
#define BODY  "model."
#define LAYER BODY "layers.%d."

/* clang-format off */
static const proa_key keys[] = {
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  16384),
    LLAMA_KEYS(layers),
    INTEGER   ("head_dim",                 head_dim,        1, HEAD_DIM, 128),
    INTEGER   ("num_experts",              experts,         1, EXPERTS,  64),
    INTEGER   ("moe_intermediate_size",    expert_ffn,      1, FFN,      1408),
    EPSILON   ("rms_norm_eps",             1e-5),
    END_KEYS};

#define SHARED_MATRIX(name, SLOT, ROWS, COLS) TENSOR(name, SLOT, MATRIX, ROWS, COLS, IF(EXPERTS) | IF(SHARED))
static const proa_name tensors[] = {
    TABLE    (BODY "embed_tokens.weight",                  TOKENS,        VOCAB,  HIDDEN),
    VECTOR   (LAYER "input_layernorm.weight",              ATTN_NORM,     HIDDEN),
    MATRIX   (LAYER "self_attn.gate_proj.weight",          QKV,           Q,      HIDDEN),
    MATRIX   (LAYER "self_attn.q_proj.weight",             QKV,           Q,      HIDDEN),
    MATRIX   (LAYER "self_attn.k_proj.weight",             QKV,           KV,     HIDDEN),
    MATRIX   (LAYER "self_attn.v_proj.weight",             QKV,           KV,     HIDDEN),
    VECTOR_LOADED_IF(ATTN_BIAS, ZEROS, LAYER "self_attn.gate_proj.bias", QKV_B, Q), /* which no checkpoint has */
    LLAMA_ATTENTION_BIASES(BODY),
    LLAMA_HEAD_NORMS(BODY),
    MATRIX   (LAYER "self_attn.o_proj.weight",             O,             HIDDEN, Q),
    VECTOR   (LAYER "post_attention_layernorm.weight",     ATTN_OUT_NORM, HIDDEN),
    VECTOR   (LAYER "pre_mlp_layernorm.weight",            FFN_NORM,      HIDDEN),
    VECTOR   (LAYER "post_mlp_layernorm.weight",           FFN_OUT_NORM,  HIDDEN),
    LLAMA_DENSE_TENSORS(LAYER "mlp."),
    MATRIX_IF(EXPERTS, LAYER "mlp.router.gate.weight",     ROUTER,        EXPERTS, HIDDEN),
    VECTOR_IF(EXPERTS, LAYER "mlp.expert_bias",            CORRECTION,    EXPERTS),
    LLAMA_EXPERT_TENSORS(LAYER "mlp."),
    SHARED_MATRIX(LAYER "mlp.shared_experts.gate_proj.weight", SHARED_UP,   SHARED_FFN, HIDDEN),
    SHARED_MATRIX(LAYER "mlp.shared_experts.up_proj.weight",   SHARED_UP,   SHARED_FFN, HIDDEN),
    SHARED_MATRIX(LAYER "mlp.shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN,     SHARED_FFN),
    VECTOR   (BODY "norm.weight",                          FINAL_NORM,    HIDDEN),
    LLAMA_HEAD(BODY, "lm_head.weight"),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED_TO(X, TOKENS, SCALED | INPUTS | EXACT), ROPE_TABLE, END};
static const proa_step layer[] = {
    LLAMA_QKV, Q_NORM(Q_NORM), K_NORM(K_NORM), ROTATE, KV_APPEND, ATTEND, GATE_HEADS,
    LINEAR      (A, D,    O,           0),
    NORM_ADD    (D, X,    ATTN_OUT_NORM),
    NORM        (X, N,    FFN_NORM),
    LINEAR_GATED(N, F,    UP,          IF(DENSE)),
    LINEAR      (F, D,    DOWN,        IF(DENSE)),
    LINEAR      (N, ROUTER, ROUTER,    IF(EXPERTS)),
    ROUTE       (CORRECTION),
    EXPERTS     (N, D,                 0),
    LINEAR_GATED(N, F,    SHARED_UP,   IF(EXPERTS) | IF(SHARED)),
    LINEAR      (F, D,    SHARED_DOWN, ADD | IF(EXPERTS) | IF(SHARED)),
    NORM_ADD    (D, X,    FFN_OUT_NORM),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status read_router(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t chosen = 6, shared = 2, dense = 1;
    double scale = 1;
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&shared, json, "num_shared_experts", 0, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&dense, json, "num_dense_layers", 0, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_double(&scale, json, "route_scale", 1e-6, 1e6, err));
    c->shared_ffn = shared * c->expert_ffn;
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.chosen = (int32_t)chosen;
    c->router.renormalise = true;
    c->router.scale = (float)scale;
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = i >= dense;
    return PROA_OK;
}

static proa_status finish_afmoe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (proa_json_bool(proa_json_get(json, "mup_enabled"))) c->embed_scale = sqrt((double)c->hidden);
    c->attention_gate = true;
    c->window = 1024;
    c->window_pattern = 4;
    PROA_TRY(proa_json_get_int(&c->window_pattern, json, "global_attn_every_n_layers", 1, PROA_LAYERS_MAX, err));
    PROA_TRY(read_router(c, json, arena, err));
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    if (!c->window_used)
        return PROA_FAIL(err, UNSUPPORTED, "layers without 'sliding_window' are not supported");
    c->rotated_layers = c->window_layers;
    return PROA_OK;
}

const proa_arch proa_arch_afmoe = {.name = "afmoe",
                                   .model_type = "afmoe",
                                   .hf = STRINGS("AfmoeForCausalLM"),
                                   DECODER(RMS),
                                   .keys = keys,
                                   .names = tensors,
                                   .ignored = ignored,
                                   .stacks = {CAUSAL(embed, layer)},
                                   .head = head,
                                   .finish = finish_afmoe};
