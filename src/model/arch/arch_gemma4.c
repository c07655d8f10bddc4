/* SPDX-License-Identifier: Apache-2.0
 * arch_gemma4.c - the text models of Gemma 4: Gemma 3 with plain norms, normed values, scores that are not scaled, and
 * a factor for each layer. Layers without a window have heads of another size, whose keys may be their values, too, and
 * rotate a part of them. Multimodal checkpoints are read as text models. Facts: transformers' modeling_gemma4.py,
 * 5.24. */
#include "model/arch/llama_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("vocab_size",              vocab,          1, VOCAB,    262144),
    INTEGER   ("num_attention_heads",     heads,          1, HEADS,    8),
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    4),
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 256),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  131072),
    EPSILON   ("rms_norm_eps",            1e-6),
    ACTIVATION("hidden_activation",       GELU_TANH),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    SWITCH    ("attention_bias",          attention_bias, 0),
    SWITCH    ("attention_k_eq_v",        k_is_v,         0),
    END_KEYS};

#define L "language_model.model.layers.%d."
/* The part of QKV that is the keys' or the values': the keys' tensor is read a second time where it makes both. */
#define KV_PARTS(ROLE, SUFFIX, SLOT, COLS, flags) \
    TENSOR(L "self_attn.k_proj." SUFFIX, SLOT, ROLE, KV, COLS, (flags)),                            \
    TENSOR(L "self_attn.v_proj." SUFFIX, SLOT, ROLE, KV, COLS, (flags) | PROA_IF(K_AND_V)),         \
    TENSOR(L "self_attn.k_proj." SUFFIX, SLOT, ROLE, KV, COLS, (flags) | PROA_IF(K_IS_V) | PROA_SHARED)
static const proa_name tensors[] = {
    TABLE    ("language_model.model.embed_tokens.weight", TOKENS, VOCAB, HIDDEN),
    VECTOR   (L "input_layernorm.weight",             ATTN_NORM,     HIDDEN),
    MATRIX   (L "self_attn.q_proj.weight",            QKV,           Q,      HIDDEN),
    KV_PARTS (MATRIX, "weight",                       QKV,           HIDDEN, 0),
    VECTOR_IF(ATTN_BIAS, L "self_attn.q_proj.bias",   QKV_B,         Q),
    KV_PARTS (VECTOR, "bias",                         QKV_B,         NONE,   PROA_IF(ATTN_BIAS)),
    VECTOR   (L "self_attn.q_norm.weight",            Q_NORM,        HEAD),
    VECTOR   (L "self_attn.k_norm.weight",            K_NORM,        HEAD),
    VECTOR_LOADED(ONES, L "self_attn.v_norm.weight",  V_NORM,        HEAD),
    MATRIX   (L "self_attn.o_proj.weight",            O,             HIDDEN, Q),
    VECTOR_IF(ATTN_BIAS, L "self_attn.o_proj.bias",   O_B,           HIDDEN),
    VECTOR   (L "post_attention_layernorm.weight",    ATTN_OUT_NORM, HIDDEN),
    VECTOR   (L "pre_feedforward_layernorm.weight",   FFN_NORM,      HIDDEN),
    MATRIX   (L "mlp.gate_proj.weight",               UP,            FFN,    HIDDEN),
    MATRIX   (L "mlp.up_proj.weight",                 UP,            FFN,    HIDDEN),
    MATRIX   (L "mlp.down_proj.weight",               DOWN,          HIDDEN, FFN),
    VECTOR   (L "post_feedforward_layernorm.weight",  FFN_OUT_NORM,  HIDDEN),
    VECTOR_LOADED(SPREAD, L "layer_scalar",           LAYER_SCALE,   HIDDEN),
    VECTOR   ("language_model.model.norm.weight",     FINAL_NORM,    HIDDEN),
    MATRIX_IF(UNTIED, "language_model.lm_head.weight", HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD("language_model.model.embed_tokens.weight"),
    END_TENSORS};
static const char *const prefixes[] = {"language_model.", NULL}; /* of text models */
static const char *const prefix_aliases[] = {"language_model.model.", "model.language_model.",
                                             "language_model.lm_head.", "lm_head.", NULL};
static const char *const unused[] = {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.",
                                     "model.embed_audio.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED_TO(X, TOKENS, SCALED), ROPE_TABLE, LOCAL_ROPE_TABLE, END};
static const proa_step layer[] = {
    NORM         (X, N,   ATTN_NORM),
    LINEAR       (N, QKV, QKV,  0),
    Q_NORM       (Q_NORM),
    K_NORM_OWN   (K_NORM),
    V_NORM_OWN   (V_NORM),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR       (A, D,   O,    0),
    NORM_ADD     (D, X,   ATTN_OUT_NORM),
    NORM         (X, N,   FFN_NORM),
    LINEAR_GATED (N, F,   UP,   0),
    LINEAR       (F, D,   DOWN, 0),
    NORM_ADD     (D, X,   FFN_OUT_NORM),
    SCALE_COLUMNS(X, X,   LAYER_SCALE),
    END};
static const proa_step head[] = {LM_HEAD(CAPPED)};
/* clang-format on */

/* What a layer of per_layer_config may change. */
static proa_status read_layer_heads(proa_config *c, const proa_json *keys_of_layer, int64_t at, bool first,
                                    proa_err *err)
{
    int64_t head_dim = c->head_dim, kv_heads = c->kv_heads;
    PROA_TRY(proa_json_get_int(&head_dim, keys_of_layer, "head_dim", 1, PROA_HEAD_DIM_MAX, err));
    PROA_TRY(proa_json_get_int(&kv_heads, keys_of_layer, "num_key_value_heads", 1, PROA_HEADS_MAX, err));
    for (proa_json_iter it = proa_json_begin(keys_of_layer); proa_json_next(&it);)
        if (!proa_str_is(it.key, "head_dim") && !proa_str_is(it.key, "num_key_value_heads"))
            return PROA_FAIL(err, UNSUPPORTED, "'per_layer_config' of layer %lld changes '%.*s'",
                             (long long)at, (int)it.key.len, it.key.ptr);
    if (!first && (head_dim != c->other_head_dim || kv_heads != c->other_kv_heads))
        return PROA_FAIL(err, UNSUPPORTED, "'per_layer_config' has heads of more than two shapes");
    c->other_head_dim = head_dim, c->other_kv_heads = kv_heads;
    return PROA_OK;
}

/* As transformers saves it from 5.24 on: {"5": {"head_dim": 512}, ...}; {} where all heads have one shape. */
static proa_status read_per_layer(proa_config *c, const proa_json *layers, proa_err *err)
{
    bool first = true;
    for (int64_t i = 0; i < c->layers; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        const proa_json *of = proa_json_get(layers, number);
        if (of && !c->other_heads[i])
            return PROA_FAIL(err, UNSUPPORTED, "'per_layer_config' changes layer %lld, which has a window",
                             (long long)i);
        if (!c->other_heads[i]) continue;
        PROA_TRY(read_layer_heads(c, of, i, first, err));
        first = false;
    }
    return PROA_OK;
}

/* The heads of layers without a window. The last layer is one of these, whatever layer_types says. */
static proa_status read_other_heads(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *layers = proa_json_get(json, "per_layer_config");
    if (c->window_layers) c->window_layers[c->layers - 1] = false;
    c->other_heads = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->other_heads[i] = proa_config_window(c, i) == 0;
    if (layers) return read_per_layer(c, layers, err);
    c->other_head_dim = 512, c->other_kv_heads = c->kv_heads;
    PROA_TRY(proa_json_get_int(&c->other_head_dim, json, "global_head_dim", 1, PROA_HEAD_DIM_MAX, err));
    if (!c->k_is_v) return PROA_OK;
    return proa_json_get_int(&c->other_kv_heads, json, "num_global_key_value_heads", 1, PROA_HEADS_MAX, err);
}

/* Without rope_parameters a quarter of the heads' numbers is rotated in layers without a window. */
static proa_status read_rope(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rotary_dim = c->head_dim;
    c->rope.kind = PROA_ROPE_PROPORTIONAL, c->rope.factor = 1, c->rope.part = 0.25;
    c->rope.theta = 1e6, c->local_rope.theta = 1e4;
    const proa_json *rope = proa_json_get(json, "rope_parameters");
    if (!rope) return PROA_OK;
    if (!proa_json_get(rope, "full_attention") || !proa_json_get(rope, "sliding_attention"))
        return PROA_FAIL(err, INVALID, "'rope_parameters' must have 'full_attention' and 'sliding_attention'");
    double theta = c->local_rope.theta;
    PROA_TRY(proa_json_get_double(&theta, proa_json_get(rope, "sliding_attention"), "rope_theta", 1, 1e12, err));
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    c->local_rope.theta = theta;
    bool full = c->rope.kind == PROA_ROPE_PLAIN || c->rope.kind == PROA_ROPE_PROPORTIONAL;
    if (full && c->local_rope.kind == PROA_ROPE_PLAIN) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'rope_parameters' other than default and proportional are not supported");
}

/* What is not computed yet. */
static proa_status check_parts(const proa_json *json, proa_err *err)
{
    int64_t inputs = 256, shared = 0;
    bool mixture = false, wide = false;
    proa_str sides = {"", 0};
    PROA_TRY(proa_json_get_int(&inputs, json, "hidden_size_per_layer_input", 0, PROA_HIDDEN_MAX, err));
    PROA_TRY(proa_json_get_int(&shared, json, "num_kv_shared_layers", 0, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_bool(&mixture, json, "enable_moe_block", err));
    PROA_TRY(proa_json_get_bool(&wide, json, "use_double_wide_mlp", err));
    PROA_TRY(proa_json_get_str(&sides, json, "use_bidirectional_attention", err));
    if (inputs)
        return PROA_FAIL(err, UNSUPPORTED, "'hidden_size_per_layer_input' %lld is not supported",
                         (long long)inputs);
    if (shared)
        return PROA_FAIL(err, UNSUPPORTED, "'num_kv_shared_layers' %lld is not supported", (long long)shared);
    if (mixture) return PROA_FAIL(err, UNSUPPORTED, "'enable_moe_block' true is not supported");
    if (proa_str_is(sides, "all"))
        return PROA_FAIL(err, UNSUPPORTED, "'use_bidirectional_attention' \"all\" is not supported");
    return PROA_OK;
}

static proa_status finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    c->embed_scale = sqrt((double)c->hidden);
    c->attention_scale = 1;
    c->window = 512, c->window_pattern = 6;
    PROA_TRY(check_parts(json, err));
    PROA_TRY(proa_json_get_double(&c->logit_cap, json, "final_logit_softcapping", 1e-3, 1e6, err));
    PROA_TRY(read_rope(c, json, arena, err));
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    return read_other_heads(c, json, arena, err);
}

/* clang-format off */
const proa_arch proa_arch_gemma4 = {
    .name = "gemma4", .hf = STRINGS("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
    .model_type = "gemma4_text", .text_config = "text_config", DECODER(RMS), .keys = keys, .names = tensors,
    .prefixes = prefixes, .prefix_aliases = prefix_aliases, .ignored = ignored, .unused_parts = unused,
    .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finish};
/* clang-format on */
