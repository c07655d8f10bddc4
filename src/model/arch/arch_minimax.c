/* SPDX-License-Identifier: Apache-2.0
 * arch_minimax.c - MiniMax (MiniMax-Text-01): most layers have lightning attention (Qin et al. 2024), linear attention
 * with a fixed decay for each head, the others attention over keys and values; all have a mixture as FFN. The residual
 * stream behind a norm is what the norm made: a sublayer adds to `alpha` times that.
 * Facts: transformers' modeling_minimax.py; rotary_dim: the code that is published with MiniMax-Text-01. The decays
 * follow from the number of the layer and of the head. transformers stores them as buffers, too, which are not read. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."
#define ATTN  LAYER "self_attn."
#define MOE   LAYER "block_sparse_moe."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,      VOCAB),
    REQUIRED  ("hidden_size",             hidden,     HIDDEN),
    REQUIRED  ("num_hidden_layers",       layers,     LAYERS),
    REQUIRED  ("num_attention_heads",     heads,      HEADS),
    REQUIRED  ("intermediate_size",       expert_ffn, FFN),
    REQUIRED  ("num_local_experts",       experts,    EXPERTS),
    KV_HEADS  (8),
    INTEGER   ("head_dim",                head_dim,   1, HEAD_DIM, 0),
    INTEGER   ("max_position_embeddings", context,    1, CONTEXT,  131072),
    EPSILON   ("rms_norm_eps",            1e-5),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("tie_word_embeddings",     tied,       0),
    END_KEYS};

static const proa_name tensors[] = {
    TABLE    ("model.embed_tokens.weight",                             TOKENS,      VOCAB,      HIDDEN),
    VECTOR   (LAYER "input_layernorm.weight",                          ATTN_NORM,   HIDDEN),
    MATRIX_LOADED_IF(RECURS, MIX_HEADS, ATTN "qkv_proj.weight",        MIX,         CONVOLVED,  HIDDEN),
    MATRIX_IF(RECURS, ATTN "output_gate.weight",                       GATE_UP,     RECALLED,   HIDDEN),
    VECTOR_LOADED_IF(RECURS, SLOPES, ATTN "slopes",                    DECAY,       RATE_HEADS),
    VECTOR_IF(RECURS, ATTN "norm.weight",                              RECALL_NORM, RECALLED),
    MATRIX_IF(RECURS, ATTN "out_proj.weight",                          MIX_OUT,     HIDDEN,     RECALLED),
    MATRIX_IF(ATTENDS, ATTN "q_proj.weight",                           QKV,         Q,          HIDDEN),
    MATRIX_IF(ATTENDS, ATTN "k_proj.weight",                           QKV,         KV,         HIDDEN),
    MATRIX_IF(ATTENDS, ATTN "v_proj.weight",                           QKV,         KV,         HIDDEN),
    MATRIX_IF(ATTENDS, ATTN "o_proj.weight",                           O,           HIDDEN,     Q),
    VECTOR   (LAYER "post_attention_layernorm.weight",                 FFN_NORM,    HIDDEN),
    MATRIX   (MOE "gate.weight",                                       ROUTER,      EXPERTS,    HIDDEN),
    EXPERT_MATRIX(MOE "experts.%d.w1.weight",                          EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX(MOE "experts.%d.w3.weight",                          EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX(MOE "experts.%d.w2.weight",                          EXPERT_DOWN, HIDDEN,     EXPERT_FFN),
    VECTOR   ("model.norm.weight",                                     FINAL_NORM,  HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                                HEAD,        VOCAB,      HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    END_TENSORS};
/* A tied head's copy; decays as transformers stores them. */
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", ".slope_rate", ".query_decay",
                                      ".key_decay", ".diagonal_decay", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE_IF(ROTARY), END};
static const proa_step layer[] = {
    NORM          (X,      N,      ATTN_NORM),
    SCALE         (N,      X),
    LINEAR        (N,      MIX,    MIX,         ACT | IF(RECURS)),
    LINEAR        (N,      MIX,    GATE_UP,     BEHIND | IF(RECURS)),
    SELECTIVE_SCAN(MIX,    RECALL, DECAY),
    NORM_GATED    (MIX,    RECALL, RECALL_NORM),
    LINEAR        (RECALL, X,      MIX_OUT,     ADD | RESIDUAL | IF(RECURS)),
    LINEAR        (N,      QKV,    QKV,         IF(ATTENDS)),
    STEP_BARE(ROPE,        QKV,    QKV,         IF(ATTENDS) | IF(ROTARY)),
    STEP_BARE(KV_APPEND,   QKV,    NONE,        IF(ATTENDS)),
    STEP_BARE(ATTEND,      QKV,    A,           IF(ATTENDS)),
    LINEAR        (A,      X,      O,           ADD | RESIDUAL | IF(ATTENDS)),
    NORM          (X,      N,      FFN_NORM),
    SCALE         (N,      X),
    LINEAR        (N,      ROUTER, ROUTER,      0),
    ROUTE         (CORRECTION),
    EXPERTS       (N,      X,      ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* A factor of each kind of sublayer: of the stream (alpha), or of what the sublayer adds (beta). Published models have
 * the same for all. */
static proa_status read_factor(double *out, const proa_json *json, const char *const key[3], proa_err *err)
{
    double factor[3] = {1, 1, 1};
    for (int i = 0; i < 3; i++) PROA_TRY(proa_json_get_double(&factor[i], json, key[i], 1e-6, 1e6, err));
    for (int i = 1; i < 3; i++)
        if (factor[i] != factor[0])
            return PROA_FAIL(err, UNSUPPORTED, "'%s' %g and '%s' %g differ: only one factor for all is supported",
                             key[0], factor[0], key[i], factor[i]);
    *out = factor[0];
    return PROA_OK;
}

static proa_status read_factors(proa_config *c, const proa_json *json, proa_err *err)
{
    static const char *const alpha[] = {"linear_attn_alpha_factor", "full_attn_alpha_factor", "mlp_alpha_factor"},
                             *const beta[] = {"linear_attn_beta_factor", "full_attn_beta_factor",
                                              "mlp_beta_factor"};
    PROA_TRY(read_factor(&c->stream_scale, json, alpha, err));
    PROA_TRY(read_factor(&c->residual_scale, json, beta, err));
    c->router.scale = (float)c->residual_scale; /* what experts add is scaled: their weights are */
    return PROA_OK;
}

/* Without layer_types every second layer has attention, from the first one on. */
static proa_status read_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_config_mix_all(c, false, true, arena);
    for (int64_t i = 0; i < c->layers; i += 2) proa_config_mix(c, i, true, false);
    return proa_config_read_recurrent(c, json, err);
}

static proa_status finish_minimax(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t chosen = 2;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    c->gated = c->gates_apart = c->recall_sigmoid = true;
    c->key_heads = c->value_heads = c->heads;
    c->key_dim = c->value_dim = c->head_dim;
    c->conv_taps = 1; /* of no convolution: the state keeps no rows */
    c->recall_groups = 1;
    c->recall_eps = 1e-6;
    c->router.renormalise = true;
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    c->router.chosen = (int32_t)chosen;
    PROA_TRY(read_factors(c, json, err));
    PROA_TRY(read_layers(c, json, arena, err));
    c->rope.theta = 1e6;
    c->rotary_dim = c->head_dim;
    PROA_TRY(proa_json_get_int(&c->rotary_dim, json, "rotary_dim", 1, c->head_dim, err));
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    return proa_config_read_common_window(c, json, err);
}

const proa_arch proa_arch_minimax = {.name = "minimax",
                                     .model_type = "minimax",
                                     .hf = STRINGS("MiniMaxForCausalLM"),
                                     DECODER(RMS),
                                     .keys = keys,
                                     .names = tensors,
                                     .ignored = ignored,
                                     .stacks = {CAUSAL(embed, layer)},
                                     .head = head,
                                     .finish = finish_minimax};
