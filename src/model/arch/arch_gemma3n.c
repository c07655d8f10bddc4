/* SPDX-License-Identifier: Apache-2.0
 * arch_gemma3n.c - the text models of Gemma 3n: four streams of which each layer computes the first and predicts and
 * corrects the others (AltUp, Baykal et al. 2023), a learned residual of low rank beside attention (LAuReL, Menghani et
 * al. 2024), inputs for each layer, gates of which the first layers keep the largest, last layers that read keys and
 * values of earlier ones. Multimodal checkpoints are read as text models. Facts: transformers' modeling_gemma3n.py,
 * 5.24. */
#include "model/arch/llama_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("hidden_size",                 hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",           layers,         LAYERS),
    INTEGER   ("vocab_size",                  vocab,          1, VOCAB,    262400),
    INTEGER   ("vocab_size_per_layer_input",  layer_vocab,    1, VOCAB,    262144),
    INTEGER   ("hidden_size_per_layer_input", layer_input,    1, HIDDEN,   256),
    INTEGER   ("laurel_rank",                 laurel,         1, HIDDEN,   64),
    INTEGER   ("num_attention_heads",         heads,          1, HEADS,    8),
    INTEGER   ("num_key_value_heads",         kv_heads,       1, HEADS,    2),
    INTEGER   ("head_dim",                    head_dim,       1, HEAD_DIM, 256),
    INTEGER   ("max_position_embeddings",     context,        1, CONTEXT,  32768),
    EPSILON   ("rms_norm_eps",                1e-6),
    ACTIVATION("hidden_activation",           GELU_TANH),
    SWITCH    ("tie_word_embeddings",         tied,           1),
    SWITCH    ("attention_bias",              attention_bias, 0),
    END_KEYS};

#define P "language_model.model."
#define L P "layers.%d."
#define OWN(ROLE, name, SLOT, ROWS, COLS, flags) TENSOR(L name, SLOT, ROLE, ROWS, COLS, (flags) | PROA_IF(OWN_KV))
/* Of layers that read those of another one; the published files have them all the same. */
#define UNREAD(name) TENSOR(L name, K_NORM, VECTOR, HEAD, NONE, PROA_UNUSED | PROA_IF(BORROWED_KV))
static const proa_name tensors[] = {
    TABLE    (P "embed_tokens.weight",                TOKENS,             VOCAB,        HIDDEN),
    TABLE    (P "embed_tokens_per_layer.weight",      LAYER_TOKENS,       LAYER_VOCAB,  LAYER_INPUTS),
    MATRIX   (P "per_layer_model_projection.weight",  LAYER_PROJECT,      LAYER_INPUTS, HIDDEN),
    VECTOR   (P "per_layer_projection_norm.weight",   LAYER_PROJECT_NORM, LAYER_INPUT),
    MATRIX   (P "altup_projections.0.weight",         STREAMS_IN,         HIDDEN,       HIDDEN),
    MATRIX   (P "altup_projections.1.weight",         STREAMS_IN,         HIDDEN,       HIDDEN),
    MATRIX   (P "altup_projections.2.weight",         STREAMS_IN,         HIDDEN,       HIDDEN),
    MATRIX   (P "altup_unembed_projections.0.weight", STREAM_OUT_1,       HIDDEN,       HIDDEN),
    MATRIX   (P "altup_unembed_projections.1.weight", STREAM_OUT_2,       HIDDEN,       HIDDEN),
    MATRIX   (P "altup_unembed_projections.2.weight", STREAM_OUT_3,       HIDDEN,       HIDDEN),
    VECTOR   (L "altup.router_norm.weight",           STREAM_NORM,        HIDDEN),
    MATRIX   (L "altup.modality_router.weight",       STREAM_ROUTER,      STREAMS,      HIDDEN),
    MATRIX   (L "altup.prediction_coefs.weight",      STREAM_PREDICT,     STREAM_PAIRS, STREAMS),
    MATRIX   (L "altup.correction_coefs.weight",      STREAM_CORRECT,     STREAMS,      STREAMS),
    VECTOR   (L "altup.correct_output_scale",         STREAM_SCALE,       HIDDEN),
    VECTOR   (L "input_layernorm.weight",             ATTN_NORM,          HIDDEN),
    MATRIX   (L "self_attn.q_proj.weight",            QKV,                Q,            HIDDEN),
    OWN      (MATRIX, "self_attn.k_proj.weight",      QKV,                KV,           HIDDEN, 0),
    OWN      (MATRIX, "self_attn.v_proj.weight",      QKV,                KV,           HIDDEN, 0),
    VECTOR_IF(ATTN_BIAS, L "self_attn.q_proj.bias",   QKV_B,              Q),
    OWN      (VECTOR, "self_attn.k_proj.bias",        QKV_B,              KV,           NONE, PROA_IF(ATTN_BIAS)),
    OWN      (VECTOR, "self_attn.v_proj.bias",        QKV_B,              KV,           NONE, PROA_IF(ATTN_BIAS)),
    VECTOR   (L "self_attn.q_norm.weight",            Q_NORM,             HEAD),
    OWN      (VECTOR, "self_attn.k_norm.weight",      K_NORM,             HEAD,         NONE, 0),
    VECTOR_LOADED_IF(OWN_KV, ONES, L "self_attn.v_norm.weight", V_NORM,   HEAD),
    UNREAD   ("self_attn.k_proj.weight"), UNREAD("self_attn.v_proj.weight"), UNREAD("self_attn.k_norm.weight"),
    UNREAD   ("self_attn.k_proj.bias"), UNREAD("self_attn.v_proj.bias"),
    MATRIX   (L "self_attn.o_proj.weight",            O,                  HIDDEN,       Q),
    VECTOR_IF(ATTN_BIAS, L "self_attn.o_proj.bias",   O_B,                HIDDEN),
    VECTOR   (L "post_attention_layernorm.weight",    ATTN_OUT_NORM,      HIDDEN),
    MATRIX   (L "laurel.linear_left.weight",          LAUREL_LEFT,        LAUREL,       HIDDEN),
    MATRIX   (L "laurel.linear_right.weight",         LAUREL_RIGHT,       HIDDEN,       LAUREL),
    VECTOR   (L "laurel.post_laurel_norm.weight",     LAUREL_NORM,        HIDDEN),
    VECTOR   (L "pre_feedforward_layernorm.weight",   FFN_NORM,           HIDDEN),
    MATRIX   (L "mlp.gate_proj.weight",               UP,                 FFN,          HIDDEN),
    MATRIX   (L "mlp.up_proj.weight",                 UP,                 FFN,          HIDDEN),
    MATRIX   (L "mlp.down_proj.weight",               DOWN,               HIDDEN,       FFN),
    VECTOR   (L "post_feedforward_layernorm.weight",  FFN_OUT_NORM,       HIDDEN),
    MATRIX   (L "per_layer_input_gate.weight",        LAYER_GATE,         LAYER_INPUT,  HIDDEN),
    MATRIX   (L "per_layer_projection.weight",        LAYER_UP,           HIDDEN,       LAYER_INPUT),
    VECTOR   (L "post_per_layer_input_norm.weight",   LAYER_INPUT_NORM,   HIDDEN),
    VECTOR   (P "norm.weight",                        FINAL_NORM,         HIDDEN),
    MATRIX_IF(UNTIED, "language_model.lm_head.weight", HEAD,              VOCAB,        HIDDEN),
    TIED_HEAD(P "embed_tokens.weight"),
    END_TENSORS};
static const char *const prefixes[] = {"language_model.", NULL}; /* of text models */
static const char *const prefix_aliases[] = {"language_model.model.", "model.language_model.",
                                             "language_model.lm_head.", "lm_head.", NULL};
static const char *const unused[] = {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.",
                                     "model.embed_audio.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

/* Inputs of the layers: a table's rows and a normed product of the embeddings, (a + b) / sqrt(2). */
static const proa_step embed[] = {
    EMBED_TO (X, TOKENS, SCALED),
    EMBED_TO (LAYER_INPUTS, LAYER_TOKENS, SCALED),
    LINEAR   (X, LAYER_PROJECT, LAYER_PROJECT, FACTOR),
    NORM_ADD (LAYER_PROJECT, LAYER_INPUTS, LAYER_PROJECT_NORM),
    SCALE    (LAYER_INPUTS, LAYER_INPUTS),
    STEP_BARE(FIRST_STREAM, X, STREAMS, 0),
    LINEAR   (X, STREAMS, STREAMS_IN, BEHIND),
    STEP_BARE(MATCH_STREAMS, STREAMS, STREAMS, 0),
    ROPE_TABLE, LOCAL_ROPE_TABLE, END};
static const proa_step layer[] = {
    NORM        (X, N, STREAM_NORM),
    LINEAR      (N, STREAM_MODES, STREAM_ROUTER, TANH | FACTOR),
    LINEAR      (STREAM_MODES, STREAM_COEFS, STREAM_PREDICT, 0),
    STEP_BARE   (MIX_STREAMS, STREAM_COEFS, STREAMS, 0),
    STEP_BARE   (TAKE_STREAM, STREAMS, X, 0),
    NORM        (X, N,   ATTN_NORM),
    NORM        (X, EXPERT_D, ATTN_NORM), /* the same in the type of X, for the sum */
    LINEAR      (N, QKV, QKV,  0),
    Q_NORM      (Q_NORM),
    K_NORM_OWN  (K_NORM),
    V_NORM_OWN  (V_NORM),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, D,   O,    0),
    NORM_ADD    (D, X,   ATTN_OUT_NORM),
    LINEAR      (N, LAUREL, LAUREL_LEFT, 0),
    LINEAR      (LAUREL, D, LAUREL_RIGHT, 0),
    NORM_ADD    (D, X,   LAUREL_NORM),
    STEP_BARE   (ADD, EXPERT_D, X, 0),
    SCALE       (X, X),
    NORM        (X, N,   FFN_NORM),
    LINEAR      (N, U,   UP,   IF(THRESHOLD)),
    STEP_BARE   (GATE_SPARSE, U, F, IF(THRESHOLD)),
    LINEAR_GATED(N, F,   UP,   IF(NO_THRESHOLD)),
    LINEAR      (F, D,   DOWN, 0),
    NORM_ADD    (D, X,   FFN_OUT_NORM),
    NORM        (X, N, STREAM_NORM),
    LINEAR      (N, STREAM_MODES, STREAM_ROUTER, TANH | FACTOR),
    LINEAR      (STREAM_MODES, STREAM_COEFS, STREAM_CORRECT, 0),
    STEP_BARE   (CORRECT_STREAMS, X, STREAMS, 0),
    STEP_BARE   (TAKE_STREAM, STREAMS, X, 0),
    SCALE_COLUMNS(X, D, STREAM_SCALE),
    LINEAR      (D, LAYER_GATE, LAYER_GATE, 0),
    GATE_LAYER  (LAYER_INPUTS, LAYER_GATE, 0),
    LINEAR      (LAYER_GATE, D, LAYER_UP, 0),
    NORM        (D, D, LAYER_INPUT_NORM),
    STEP_BARE   (SPREAD_STREAM, D, STREAMS, 0),
    END};
static const proa_step head[] = {
    STEP_BARE(GATHER, STREAMS, HEAD_STREAMS, 0),
    STEP     (STREAM_LINEAR, HEAD_STREAMS, HEAD_OTHERS, STREAM_OUT_1, 0),
    STEP     (STREAM_LINEAR, HEAD_STREAMS, HEAD_OTHERS, STREAM_OUT_2, 0),
    STEP     (STREAM_LINEAR, HEAD_STREAMS, HEAD_OTHERS, STREAM_OUT_3, 0),
    STEP_BARE(JOIN_STREAMS, HEAD_STREAMS, H, 0),
    NORM     (H, HN, FINAL_NORM),
    LINEAR   (HN, OUT, HEAD, CAPPED),
    END};
/* clang-format on */

/* One size, or one for each layer. */
static proa_status read_ffn_sizes(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const char *key = "intermediate_size";
    const proa_json *list = proa_json_get(json, key);
    c->ffn = 16384;
    if (proa_json_kind(list) != PROA_JSON_ARRAY)
        return proa_json_get_int(&c->ffn, json, key, 1, PROA_FFN_MAX, err);
    if (proa_json_len(list) != c->layers)
        return PROA_FAIL(err, INVALID, "'%s' has %lld entries for %lld layers", key,
                         (long long)proa_json_len(list), (long long)c->layers);
    c->ffn = 0;
    c->ffn_sizes = PROA_ARENA_NEW(arena, int64_t, c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        int64_t size = proa_json_int(proa_json_at(list, i));
        if (size < 1 || size > PROA_FFN_MAX)
            return PROA_FAIL(err, INVALID, "'%s' entry %lld is %lld, must be 1 to %d", key, (long long)i,
                             (long long)size, PROA_FFN_MAX);
        c->ffn_sizes[i] = size;
        c->ffn = size > c->ffn ? size : c->ffn;
    }
    return PROA_OK;
}

/* The number below which a part of normally distributed ones is: the quantile, by bisection of erfc. */
static double normal_quantile(double part)
{
    double low = -10, high = 10;
    for (int i = 0; i < 80; i++) {
        double x = (low + high) / 2;
        if (erfc(-x / sqrt(2)) / 2 < part) low = x;
        else high = x;
    }
    return (low + high) / 2;
}

/* Without a list the first ten of more than ten layers keep 0.05 of their gates. */
static proa_status read_thresholds(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const char *key = "activation_sparsity_pattern";
    const proa_json *list = proa_json_get(json, key);
    c->deviations = PROA_ARENA_NEW(arena, double, c->layers);
    if (list && (proa_json_kind(list) != PROA_JSON_ARRAY || proa_json_len(list) != c->layers))
        return PROA_FAIL(err, INVALID, "'%s' must be a list of %lld numbers", key, (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        double part = c->layers > 10 && i < 10 ? 0.95 : 0;
        if (list) part = proa_json_double(proa_json_at(list, i));
        if (!(part >= 0 && part < 1))
            return PROA_FAIL(err, INVALID, "'%s' entry %lld must be a number from 0 to below 1", key,
                             (long long)i);
        c->deviations[i] = part > 0 ? normal_quantile((double)(float)part) : (double)-INFINITY;
    }
    return PROA_OK;
}

static proa_status check_streams(const proa_json *json, proa_err *err)
{
    int64_t active = 0, inputs = 4;
    bool scales = true;
    PROA_TRY(proa_json_get_int(&active, json, "altup_active_idx", 0, PROA_STREAMS_MAX, err));
    PROA_TRY(proa_json_get_int(&inputs, json, "altup_num_inputs", 1, PROA_HIDDEN_MAX, err));
    PROA_TRY(proa_json_get_bool(&scales, json, "altup_correct_scale", err));
    if (active != 0 || inputs != 4 || !scales)
        return PROA_FAIL(err, UNSUPPORTED,
                         "AltUp with 'altup_num_inputs' %lld, 'altup_active_idx' %lld and "
                         "'altup_correct_scale' %s is not supported, only with 4, 0 and true",
                         (long long)inputs, (long long)active, scales ? "true" : "false");
    return PROA_OK;
}

static proa_status read_rope(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *local = proa_json_get(proa_json_get(json, "rope_parameters"), "sliding_attention");
    double theta = 1e4;
    c->rotary_dim = c->head_dim;
    c->rope.theta = 1e6, c->local_rope.theta = 1e4;
    PROA_TRY(proa_json_get_double(&theta, json, "rope_local_base_freq", 1, 1e12, err));
    PROA_TRY(proa_json_get_double(&theta, local, "rope_theta", 1, 1e12, err));
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    c->local_rope.theta = theta;
    return PROA_OK;
}

static proa_status finish_gemma3n(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t shared = 15;
    c->gated = true;
    c->embed_scale = sqrt((double)c->hidden);
    c->layer_embed_scale = sqrt((double)c->layer_input);
    c->factors.layer_project = 1 / sqrt((double)c->hidden), c->factors.stream_router = 1 / (double)c->hidden;
    c->stream_scale = sqrt(0.5);
    c->attention_scale = 1;
    c->logit_cap = 30;
    c->window = 512, c->window_pattern = 5;
    c->streams = 4;
    PROA_TRY(check_streams(json, err));
    if (c->layer_input * c->layers > PROA_FFN_MAX)
        return PROA_FAIL(err, LIMIT, "inputs of %lld numbers for %lld layers are too many",
                         (long long)c->layer_input, (long long)c->layers);
    PROA_TRY(proa_json_get_double(&c->logit_cap, json, "final_logit_softcapping", 1e-3, 1e6, err));
    PROA_TRY(read_rope(c, json, arena, err));
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    PROA_TRY(read_ffn_sizes(c, json, arena, err));
    PROA_TRY(read_thresholds(c, json, arena, err));
    PROA_TRY(proa_json_get_int(&shared, json, "num_kv_shared_layers", 0, PROA_LAYERS_MAX, err));
    if (shared >= c->layers)
        return PROA_FAIL(err, INVALID, "'num_kv_shared_layers' is %lld, must be less than the %lld layers",
                         (long long)shared, (long long)c->layers);
    return shared ? proa_config_share_kv(c, shared, arena, err) : PROA_OK;
}

/* clang-format off */
const proa_arch proa_arch_gemma3n = {
    .name = "gemma3n", .hf = STRINGS("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
    .model_type = "gemma3n_text", .text_config = "text_config", DECODER(RMS), .keys = keys, .names = tensors,
    .prefixes = prefixes, .prefix_aliases = prefix_aliases, .ignored = ignored, .unused_parts = unused,
    .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finish_gemma3n};
/* clang-format on */
