/* SPDX-License-Identifier: Apache-2.0
 * arch_dbrx.c - DBRX: LayerNorm without biases, q, k and v limited, and a mixture of experts in all layers. Keys of
 * attention and of the mixture are in objects of their own, and each matrix of all experts is one tensor.
 * Facts: transformers' modeling_dbrx.py and the published config.json. */
#include "model/arch/llama_rows.h"

#define STACK PROA_STACK_DECODER
#define BLOCK "transformer.blocks.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    INTEGER   ("d_model",                 hidden,         1, HIDDEN,  2048),
    INTEGER   ("n_layers",                layers,         1, LAYERS,  24),
    INTEGER   ("n_heads",                 heads,          1, HEADS,   16),
    INTEGER   ("max_seq_len",             context,        1, CONTEXT, 2048),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    END_KEYS};

#define EXPERTS_OF(name, SLOT, ROLE, ROWS, COLS) \
    TENSOR(BLOCK "ffn.experts.mlp." name, SLOT, ROLE, ROWS, COLS, PROA_PER_EXPERT)
static const proa_name tensors[] = {
    TABLE     ("transformer.wte.weight",                     TOKENS,     VOCAB,      HIDDEN),
    VECTOR    (BLOCK "norm_attn_norm.norm_1.weight",         ATTN_NORM,  HIDDEN),
    MATRIX    (BLOCK "norm_attn_norm.attn.Wqkv.weight",      QKV,        QKV,        HIDDEN),
    MATRIX    (BLOCK "norm_attn_norm.attn.out_proj.weight",  O,          HIDDEN,     Q),
    VECTOR    (BLOCK "norm_attn_norm.norm_2.weight",         FFN_NORM,   HIDDEN),
    MATRIX    (BLOCK "ffn.router.layer.weight",              ROUTER,     EXPERTS,    HIDDEN),
    EXPERTS_OF("w1", EXPERT_UP,   MATRIX,     EXPERT_FFN, HIDDEN),
    EXPERTS_OF("v1", EXPERT_UP,   MATRIX,     EXPERT_FFN, HIDDEN),
    EXPERTS_OF("w2", EXPERT_DOWN, TRANSPOSED, HIDDEN,     EXPERT_FFN),
    VECTOR    ("transformer.norm_f.weight",                  FINAL_NORM, HIDDEN),
    MATRIX_IF (UNTIED, "lm_head.weight",                     HEAD,       VOCAB,      HIDDEN),
    TIED_HEAD ("transformer.wte.weight"),
    END_TENSORS};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {
    LLAMA_QKV, CLIP_IF(CLIPPED), ROTATE, LLAMA_ATTEND, NORM(X, N, FFN_NORM), LLAMA_EXPERTS, END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* Weights of chosen experts are divided by their sum (norm 1), or not (null). */
static proa_status read_experts(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t chosen = 1;
    double norm = 1;
    const proa_json *ffn = proa_json_get(json, "ffn_config");
    c->ffn = 3584;
    c->experts = 4;
    PROA_TRY(proa_json_get_int(&c->ffn, ffn, "ffn_hidden_size", 1, PROA_FFN_MAX, err));
    PROA_TRY(proa_json_get_int(&c->experts, ffn, "moe_num_experts", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen, ffn, "moe_top_k", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_double(&norm, ffn, "moe_normalize_expert_weights", 0, 1e6, err));
    PROA_TRY(proa_config_read_act(&c->act, proa_json_get(ffn, "ffn_act_fn"), "name", PROA_ACT_SILU, err));
    if (norm != 1)
        return PROA_FAIL(err, UNSUPPORTED, "'moe_normalize_expert_weights' is %g, must be 1 or null", norm);
    c->expert_ffn = c->ffn;
    c->router.chosen = (int32_t)chosen;
    c->router.renormalise = !proa_config_is_null(ffn, "moe_normalize_expert_weights");
    return PROA_OK;
}

/* The base of rotary positions is in attn_config in published files. */
static proa_status finish_dbrx(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *attention = proa_json_get(json, "attn_config");
    c->gated = true;
    c->norm_eps = 1e-5;
    c->kv_heads = 1;
    c->rope.theta = 10000;
    PROA_TRY(proa_json_get_int(&c->kv_heads, attention, "kv_n_heads", 1, PROA_HEADS_MAX, err));
    PROA_TRY(proa_json_get_double(&c->qkv_clip, attention, "clip_qkv", 0, 1e30, err));
    PROA_TRY(proa_json_get_double(&c->rope.theta, attention, "rope_theta", 1, 1e12, err));
    PROA_TRY(read_experts(c, json, err));
    c->rotary_dim = c->hidden / c->heads;
    return proa_config_read_rope(c, json, arena, err);
}

const proa_arch proa_arch_dbrx = {.name = "dbrx",
                                  .model_type = "dbrx",
                                  .hf = STRINGS("DbrxForCausalLM", "DBRXForCausalLM"),
                                  DECODER(LAYER),
                                  .keys = keys,
                                  .names = tensors,
                                  .stacks = {CAUSAL(embed, layer)},
                                  .head = head,
                                  .finish = finish_dbrx};
