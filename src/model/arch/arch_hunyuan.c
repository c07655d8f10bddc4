/* SPDX-License-Identifier: Apache-2.0
 * arch_hunyuan.c - HunYuan V1, dense and as a mixture of experts: Llama's layer, in which the heads of q and k are
 * normed after they are rotated. A shared FFN stands beside the experts. "dynamic" positions with an alpha have one
 * larger theta for all lengths.
 * Facts: transformers' modeling_hunyuan_v1_{dense,moe}.py. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"
#include <math.h>

#define STACK PROA_STACK_DECODER
#define BODY  "model."
#define LAYER BODY "layers.%d."

/* clang-format off */
#define COMMON_KEYS \
    LLAMA_KEYS(layers), \
    INTEGER   ("attention_head_dim", head_dim, 1, HEAD_DIM, 0), \
    EPSILON   ("rms_norm_eps",       1e-5), \
    PAD       (0)
static const proa_key dense_keys[] = {COMMON_KEYS, END_KEYS};
static const proa_key moe_keys[] = {COMMON_KEYS, REQUIRED("num_experts", experts, EXPERTS), END_KEYS};

#define COMMON_TENSORS \
    LLAMA_ATTENTION_BIASES(BODY), \
    VECTOR(LAYER "self_attn.query_layernorm.weight",          Q_NORM,      HEAD),  \
    VECTOR(LAYER "self_attn.key_layernorm.weight",            K_NORM,      HEAD),  \
    LLAMA_HEAD(BODY, "lm_head.weight")
static const proa_name dense_tensors[] = {COMMON_TENSORS, LLAMA_BODY(BODY), END_TENSORS};
static const proa_name moe_tensors[] = {
    COMMON_TENSORS,
    LLAMA_ATTENTION(BODY),
    MATRIX       (LAYER "mlp.gate.wg.weight",                 ROUTER,      EXPERTS,    HIDDEN),
    EXPERT_MATRIX(LAYER "mlp.experts.%d.gate_proj.weight",    EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX(LAYER "mlp.experts.%d.up_proj.weight",      EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX(LAYER "mlp.experts.%d.down_proj.weight",    EXPERT_DOWN, HIDDEN,     EXPERT_FFN),
    MATRIX       (LAYER "mlp.shared_mlp.gate_proj.weight",    SHARED_UP,   SHARED_FFN, HIDDEN),
    MATRIX       (LAYER "mlp.shared_mlp.up_proj.weight",      SHARED_UP,   SHARED_FFN, HIDDEN),
    MATRIX       (LAYER "mlp.shared_mlp.down_proj.weight",    SHARED_DOWN, HIDDEN,     SHARED_FFN),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
#define ATTENTION LLAMA_QKV, ROTATE, Q_NORM(Q_NORM), K_NORM(K_NORM), LLAMA_ATTEND
static const proa_step dense_layer[] = {ATTENTION, LLAMA_FFN, END};
static const proa_step moe_layer[] = {
    ATTENTION,
    NORM        (X, N, FFN_NORM),
    LINEAR      (N, ROUTER, ROUTER, IF(EXPERTS)),
    ROUTE       (CORRECTION),
    EXPERTS     (N, X, ADD),
    LINEAR_GATED(N, F, SHARED_UP,   IF(EXPERTS)),
    LINEAR      (F, X, SHARED_DOWN, ADD | IF(EXPERTS)),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status finish_dense(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *rope = proa_json_get(json, "rope_parameters");
    bool shared = false, normed = true;
    double alpha = 0;
    if (!rope) rope = proa_json_get(json, "rope_scaling");
    PROA_TRY(proa_json_get_bool(&shared, json, "use_cla", err));
    PROA_TRY(proa_json_get_bool(&normed, json, "use_qk_norm", err));
    if (shared) return PROA_FAIL(err, UNSUPPORTED, "'use_cla' true is not supported");
    if (!normed) return PROA_FAIL(err, UNSUPPORTED, "'use_qk_norm' false is not supported");
    PROA_TRY(proa_json_get_double(&alpha, rope, "alpha", 0, 1e6, err));
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    if (c->rope.kind != PROA_ROPE_DYNAMIC || alpha == 0) return PROA_OK;
    c->rope.kind = PROA_ROPE_PLAIN;
    c->rope.theta *= pow(alpha, (double)c->head_dim / (double)(c->head_dim - 2));
    PROA_TRY(proa_json_get_int(&c->context, json, "max_position_embeddings", 1, PROA_CONTEXT_MAX, err));
    return PROA_OK;
}

/* A number, or a list with the number of each layer, which must be the same. */
static proa_status read_same(int64_t *out, const proa_json *json, const char *key, proa_err *err)
{
    const proa_json *list = proa_json_get(json, key);
    if (proa_json_kind(list) != PROA_JSON_ARRAY)
        return proa_json_get_int(out, json, key, 1, PROA_FFN_MAX, err);
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        int64_t value = proa_json_int(proa_json_at(list, i));
        if (i > 0 && value != *out)
            return PROA_FAIL(err, UNSUPPORTED, "'%s' differs between layers, which is not supported", key);
        *out = value;
    }
    return PROA_OK;
}

static proa_status finish_moe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t chosen = 1, shared = 1;
    c->expert_ffn = c->ffn;
    PROA_TRY(read_same(&chosen, json, "moe_topk", err));
    PROA_TRY(read_same(&shared, json, "num_shared_expert", err));
    PROA_TRY(read_same(&c->expert_ffn, json, "moe_intermediate_size", err));
    c->shared_ffn = shared * c->ffn;
    c->router.chosen = (int32_t)proa_min64(chosen, PROA_EXPERTS_MAX);
    c->router.renormalise = true;
    return finish_dense(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class, form, stem) \
    {.name = type, .model_type = type, .hf = STRINGS(class), DECODER(RMS), .keys = form##_keys,                \
     .names = form##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, form##_layer)}, .head = head,       \
     .finish = finish_##form, HEADS(TEXTS, stem)}

const proa_arch proa_arch_hunyuan_v1_dense = ROW("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", dense,
                                                   "HunYuanDenseV1");
const proa_arch proa_arch_hunyuan_v1_moe = ROW("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", moe, "HunYuanMoEV1");
/* clang-format on */
