/* SPDX-License-Identifier: Apache-2.0
 * arch_zamba.c - Zamba2: layers of Mamba-2, before some of which a block of attention and an FFN runs whose weights
 * several layers share (Glorioso et al. 2024). The block reads the residual stream and the embeddings side by side;
 * what it makes is added to what the Mamba-2 layer reads, not to the stream. Adapters of low rank, which each layer has
 * for itself, are added to the matrices when they are loaded, so each layer has a copy of the block in memory.
 * Facts: transformers' modeling_zamba2.py. */
#include "model/arch/arch_rows.h"

#include <float.h>
#include <math.h>

#define STACK  PROA_STACK_DECODER
#define LAYER  "model.layers.%d."
#define HYBRID LAYER "mamba_decoder."
#define BLOCK  LAYER "shared_transformer."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",               vocab,           VOCAB),
    REQUIRED  ("hidden_size",              hidden,          HIDDEN),
    REQUIRED  ("num_hidden_layers",        layers,          LAYERS),
    REQUIRED  ("num_attention_heads",      heads,           HEADS),
    INTEGER   ("num_key_value_heads",      kv_heads,        1, HEADS,    0),
    INTEGER   ("intermediate_size",        ffn,             1, FFN,      0),
    INTEGER   ("max_position_embeddings",  context,         1, CONTEXT,  4096),
    EPSILON   ("rms_norm_eps",             1e-5),
    ACTIVATION("hidden_act",               GELU),
    SWITCH    ("tie_word_embeddings",      tied,            1),
    SWITCH    ("add_bias_linear",          mlp_bias,        0),
    SWITCH    ("add_bias_linear",          mix_bias,        0),
    INTEGER   ("n_mamba_heads",            value_heads,     1, HEADS,    8),
    INTEGER   ("mamba_ngroups",            key_heads,       1, HEADS,    1),
    INTEGER   ("mamba_d_state",            key_dim,         1, STATE_DIM, 64),
    INTEGER   ("mamba_d_conv",             conv_taps,       2, CONV_WIDTH, 4),
    NUMBER    ("time_step_min",            step_min,        0, 1e6,      0.001),
    END_KEYS};

#define MIXER_TENSORS(COND, at) \
    VECTOR_IF(COND, at "input_layernorm.weight",                      ATTN_NORM,   HIDDEN),                        \
    MATRIX_LOADED_IF(COND, MIX_RATES, at "mamba.in_proj.weight",      MIX,         MIX,        HIDDEN),            \
    TENSOR_LOADED(MIX_RATES, at "mamba.in_proj.bias", MIX_B, VECTOR,  MIX,         NONE, IF(COND) | IF(MIX_BIAS)), \
    TENSOR   (at "mamba.conv1d.weight", MIX_CONV, F32, CONVOLVED, TAPS, IF(COND)),                                 \
    VECTOR_IF(COND, at "mamba.conv1d.bias",                           MIX_CONV_B,  CONVOLVED),                     \
    VECTOR_IF(COND, at "mamba.A_log",                                 DECAY,       RATE_HEADS),                    \
    VECTOR_IF(COND, at "mamba.dt_bias",                               DECAY_B,     RATE_HEADS),                    \
    VECTOR_IF(COND, at "mamba.D",                                     SKIP,        RATE_HEADS),                    \
    VECTOR_IF(COND, at "mamba.norm.weight",                           RECALL_NORM, RECALLED),                      \
    MATRIX_IF(COND, at "mamba.out_proj.weight",                       MIX_OUT,     HIDDEN,     RECALLED),          \
    TENSOR   (at "mamba.out_proj.bias", MIX_OUT_B, VECTOR, HIDDEN, NONE, IF(COND) | IF(MIX_BIAS))
#define SHARED(name, SLOT, ROLE, ROWS, COLS, flags) \
    TENSOR   (BLOCK name, SLOT, ROLE, ROWS, COLS, (flags) | PROA_OF_BLOCK | IF(ATTENDS))
static const proa_name tensors[] = {
    TABLE    ("model.embed_tokens.weight",                            TOKENS,      VOCAB,      HIDDEN),
    MIXER_TENSORS(RECURS_ALONE, LAYER),
    MIXER_TENSORS(ATTENDS, HYBRID),
    SHARED   ("input_layernorm.weight",            PAIR_NORM, VECTOR, PAIR,        NONE,       0),
    SHARED   ("self_attn.q_proj.weight",           QKV,       MATRIX, Q,           PAIR,       0),
    SHARED   ("self_attn.k_proj.weight",           QKV,       MATRIX, KV,          PAIR,       0),
    SHARED   ("self_attn.v_proj.weight",           QKV,       MATRIX, KV,          PAIR,       0),
    SHARED   ("self_attn.o_proj.weight",           O,         MATRIX, HIDDEN,      Q,          0),
    SHARED   ("pre_ff_layernorm.weight",           FFN_NORM,  VECTOR, HIDDEN,      NONE,       0),
    SHARED   ("feed_forward.gate_up_proj.weight",  UP,        MATRIX, GATE_UP,     HIDDEN,     0),
    SHARED   ("feed_forward.gate_up_proj.bias",    UP_B,      VECTOR, GATE_UP,     NONE,       IF(MLP_BIAS)),
    SHARED   ("feed_forward.down_proj.weight",     DOWN,      MATRIX, HIDDEN,      FFN,        0),
    SHARED   ("feed_forward.down_proj.bias",       DOWN_B,    VECTOR, HIDDEN,      NONE,       IF(MLP_BIAS)),
    MATRIX_IF(ATTENDS, LAYER "linear.weight",                         BLOCK_OUT,   HIDDEN,     HIDDEN),
    VECTOR   ("model.final_layernorm.weight",                         FINAL_NORM,  HIDDEN),
    MATRIX_IF(UNTIED, "lm_head.weight",                               HEAD,        VOCAB,      HIDDEN),
    TIED_HEAD("model.embed_tokens.weight"),
    END_TENSORS};
#define ATTN_ADAPTERS \
    "self_attn.q_proj.weight", "self_attn.linear_q_adapter_list.%d", \
    "self_attn.k_proj.weight", "self_attn.linear_k_adapter_list.%d", \
    "self_attn.v_proj.weight", "self_attn.linear_v_adapter_list.%d"
#define FFN_ADAPTERS "feed_forward.gate_up_proj.weight", "feed_forward.gate_up_proj_adapter_list.%d"
static const char *const adapters[] = {FFN_ADAPTERS, ATTN_ADAPTERS, NULL}, *const ffn_adapters[] = {FFN_ADAPTERS, NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), SCALE(X, KEPT), ROPE_TABLE_IF(ROTARY), END};
#define AT IF(ATTENDS)
static const proa_step layer[] = {
    STEP_BARE(SCALE,       X,      PAIR,                AT),
    STEP_BARE(SCALE,       KEPT,   PAIR,                SECOND | AT),
    STEP(NORM,             PAIR,   PAIR,   PAIR_NORM,   PROA_WHOLE | AT),
    LINEAR        (PAIR,   QKV,    QKV,                 AT),
    STEP_BARE(ROPE,        QKV,    QKV,                 AT | IF(ROTARY)),
    STEP_BARE(KV_APPEND,   QKV,    NONE,                AT),
    STEP_BARE(ATTEND,      QKV,    A,                   AT),
    LINEAR        (A,      D,      O,                   AT),
    NORM_IF       (ATTENDS, D,     N,      FFN_NORM),
    LINEAR_GATED  (N,      F,      UP,                  AT),
    LINEAR        (F,      EXPERT_D, DOWN,              AT),
    LINEAR        (EXPERT_D, D,    BLOCK_OUT,           ADD_X | AT),
    NORM_IF       (ATTENDS, D,     N,      ATTN_NORM),
    NORM_IF       (RECURS_ALONE, X, N,     ATTN_NORM),
    LINEAR        (N,      MIX,    MIX,                 0),
    CONV_STATE    (MIX,    MIXED,  MIX_CONV),
    SELECTIVE_SCAN(MIXED,  RECALL, DECAY),
    NORM_GATED    (MIX,    RECALL, RECALL_NORM),
    LINEAR        (RECALL, X,      MIX_OUT,             ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* Blocks are taken in turn by the layers that have one. */
static proa_status read_blocks(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *types = proa_json_get(json, "layers_block_type");
    int64_t blocks = 1;
    int32_t uses = 0, first[PROA_LAYERS_MAX];
    PROA_TRY(proa_json_get_int(&blocks, json, "num_mem_blocks", 1, PROA_LAYERS_MAX, err));
    if (proa_json_len(types) != c->layers)
        return PROA_FAIL(err, INVALID, "'layers_block_type' has %lld entries for %lld layers",
                         (long long)proa_json_len(types), (long long)c->layers);
    c->block_layers = PROA_ARENA_NEW(arena, int32_t, c->layers);
    c->block_uses = PROA_ARENA_NEW(arena, int32_t, c->layers);
    c->ffn_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        proa_str type = proa_json_str(proa_json_at(types, i));
        bool hybrid = proa_str_is(type, "hybrid");
        if (!hybrid && !proa_str_is(type, "linear_attention") && !proa_str_is(type, "mamba"))
            return PROA_FAIL(err, UNSUPPORTED, "'layers_block_type' entry %lld is '%.*s'", (long long)i,
                             (int)type.len, type.ptr);
        proa_config_mix(c, i, hybrid, true);
        c->ffn_layers[i] = hybrid;
        if (hybrid && uses < blocks) first[uses] = (int32_t)i;
        c->block_uses[i] = uses;
        c->block_layers[i] = hybrid ? first[uses % blocks] : 0;
        uses += hybrid;
    }
    return PROA_OK;
}

/* Sizes that follow from others. */
static proa_status read_sizes(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t expand = 2;
    PROA_TRY(proa_json_get_int(&expand, json, "mamba_expand", 1, PROA_HIDDEN_MAX, err));
    c->value_dim = expand * c->hidden / c->value_heads;
    if (c->value_heads % c->key_heads != 0 || c->value_dim * c->value_heads != expand * c->hidden)
        return PROA_FAIL(err, INVALID, "'n_mamba_heads' is %lld, for %lld groups and %lld columns",
                         (long long)c->value_heads, (long long)c->key_heads, (long long)(expand * c->hidden));
    if (c->ffn == 0) c->ffn = 4 * c->hidden;
    c->head_dim = 2 * c->hidden / c->heads;
    if (c->head_dim * c->heads != 2 * c->hidden)
        return PROA_FAIL(err, INVALID, "hidden size %lld, twice, is not a multiple of %lld heads",
                         (long long)c->hidden, (long long)c->heads);
    c->attention_scale = 1 / sqrt((double)c->head_dim / 2);
    return PROA_OK;
}

/* use_long_context: versions of transformers differ in what it does to the rotary base. */
static proa_status finish_zamba(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool adapted = false, rotary = false, longer = false;
    PROA_TRY(proa_json_get_bool(&adapted, json, "use_shared_attention_adapter", err));
    PROA_TRY(proa_json_get_bool(&rotary, json, "use_mem_rope", err));
    PROA_TRY(proa_json_get_bool(&longer, json, "use_long_context", err));
    if (longer) return PROA_FAIL(err, UNSUPPORTED, "'use_long_context' true is not supported");
    c->gated = c->mix_rates = c->gate_first = c->conv_bias = c->keeps_embeds = true;
    c->mix_out_bias = c->mix_bias;
    c->conv_act = PROA_ACT_SILU;
    c->recall_groups = c->key_heads;
    c->recall_eps = 1e-5;
    c->step_max = (double)FLT_MAX;
    c->stream_scale = 1;
    c->block_adapters = adapted ? adapters : ffn_adapters;
    PROA_TRY(read_sizes(c, json, err));
    proa_config_mix_all(c, false, true, arena);
    PROA_TRY(read_blocks(c, json, arena, err));
    c->rotary_dim = rotary ? c->head_dim : 0;
    return rotary ? proa_config_read_rope(c, json, arena, err) : PROA_OK;
}

const proa_arch proa_arch_zamba2 = {.name = "zamba2",
                                    .model_type = "zamba2",
                                    .hf = STRINGS("Zamba2ForCausalLM"),
                                    DECODER(RMS),
                                    .keys = keys,
                                    .names = tensors,
                                    .ignored = ignored,
                                    .stacks = {CAUSAL(embed, layer)},
                                    .head = head,
                                    .finish = finish_zamba};
