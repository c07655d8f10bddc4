/* SPDX-License-Identifier: Apache-2.0
 * arch_llama4.c - the text model of Llama 4 (Scout, Maverick): Llama's layers with pairs rotated, and a mixture of
 * experts with a shared one in all layers or some. The weights of a row multiply what its experts read. Layers with
 * rotary positions attend within chunks, and norm the rotated heads without weights; the others see everything, and
 * scale queries by their positions. Published names are first, those of the text model alone second.
 * Facts: transformers' modeling_llama4.py and configuration_llama4.py. */
#include "model/arch/llama_rows.h"

#define STACK PROA_STACK_DECODER
#define BODY  "language_model.model."
#define LAYER BODY "layers.%d."
#define FEED  LAYER "feed_forward."

/* clang-format off */
static const proa_key keys[] = {
    LLAMA_KEYS(layers),
    KV_HEADS  (8),
    EPSILON   ("rms_norm_eps",          1e-5),
    INTEGER   ("intermediate_size_mlp", ffn,         1, FFN,     16384),
    REQUIRED  ("intermediate_size",     expert_ffn,  FFN),
    INTEGER   ("num_local_experts",     experts,     1, EXPERTS, 16),
    SWITCH    ("use_qk_norm",           qk_norm,     1),
    END_KEYS};

#define OF_EXPERTS(name, SLOT, ROLE, ROWS, COLS, flags) TENSOR(FEED name, SLOT, ROLE, ROWS, COLS, (flags) | IF(EXPERTS))
/* As they are published; and as quantisers leave them, among them that of Maverick's fp8. */
#define STACKED (PROA_PER_EXPERT | IF(EXPERTS_STACKED))
#define APART   (PROA_PER_EXPERT | IF(EXPERTS_APART))
#define HEAD_ONES(name, SLOT) TENSOR_LOADED(ONES, LAYER name, SLOT, VECTOR, HEAD, NONE, IF(QK_NORM) | IF(ROTATED))
static const proa_name tensors[] = {
    LLAMA_ATTENTION_BIASES(BODY),
    LLAMA_ATTENTION(BODY),
    LLAMA_HEAD(BODY, "language_model.lm_head.weight"),
    HEAD_ONES ("self_attn.q_norm.weight",        Q_NORM),
    HEAD_ONES ("self_attn.k_norm.weight",        K_NORM),
    MATRIX_IF (DENSE, FEED "gate_proj.weight",    UP,          FFN,        HIDDEN),
    MATRIX_IF (DENSE, FEED "up_proj.weight",      UP,          FFN,        HIDDEN),
    MATRIX_IF (DENSE, FEED "down_proj.weight",    DOWN,        HIDDEN,     FFN),
    OF_EXPERTS("router.weight",                  ROUTER,      MATRIX,     EXPERTS,      HIDDEN, 0),
    OF_EXPERTS("experts.gate_up_proj",           EXPERT_UP,   TRANSPOSED, EXPERT_GATED, HIDDEN,     STACKED),
    OF_EXPERTS("experts.down_proj",              EXPERT_DOWN, TRANSPOSED, HIDDEN,       EXPERT_FFN, STACKED),
    OF_EXPERTS("experts.%d.gate_proj.weight",    EXPERT_UP,   MATRIX,     EXPERT_FFN,   HIDDEN,     APART),
    OF_EXPERTS("experts.%d.up_proj.weight",      EXPERT_UP,   MATRIX,     EXPERT_FFN,   HIDDEN,     APART),
    OF_EXPERTS("experts.%d.down_proj.weight",    EXPERT_DOWN, MATRIX,     HIDDEN,       EXPERT_FFN, APART),
    OF_EXPERTS("shared_expert.gate_proj.weight", SHARED_UP,   MATRIX,     SHARED_FFN,   HIDDEN, 0),
    OF_EXPERTS("shared_expert.up_proj.weight",   SHARED_UP,   MATRIX,     SHARED_FFN,   HIDDEN, 0),
    OF_EXPERTS("shared_expert.down_proj.weight", SHARED_DOWN, MATRIX,     HIDDEN,   SHARED_FFN, 0),
    END_TENSORS};
static const char *const prefix_aliases[] = {BODY, "model.", BODY, "model.language_model.",
                                             "language_model.", "", NULL};
static const char *const unused[] = {"vision_model.", "multi_modal_projector.", "model.vision_model.",
                                     "model.multi_modal_projector.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {
    LLAMA_QKV,
    SCALE_QUERIES(IF(NOT_ROTATED)),
    ROTATE_PAIRS,
    STEP        (HEADS_NORM, QKV, QKV, Q_NORM, IF(QK_NORM) | IF(ROTATED)),
    STEP        (HEADS_NORM, QKV, QKV, K_NORM, OF_K | IF(QK_NORM) | IF(ROTATED)),
    LLAMA_ATTEND,
    NORM        (X, N,      FFN_NORM),
    LINEAR_GATED(N, F,      UP,     IF(DENSE)),
    LINEAR      (F, X,      DOWN,   ADD | IF(DENSE)),
    LINEAR      (N, ROUTER, ROUTER, IF(EXPERTS)),
    ROUTE       (CORRECTION),
    EXPERTS     (N, X,      ADD | INPUTS),
    LINEAR_GATED(N, F,      SHARED_UP,   IF(EXPERTS)),
    LINEAR      (F, X,      SHARED_DOWN, ADD | IF(EXPERTS)),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* moe_layers lists the layers with experts; else they are every interleave_moe_layer_step-th. */
static proa_status read_expert_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t step = 1;
    const proa_json *list = proa_json_get(json, "moe_layers");
    PROA_TRY(proa_json_get_int(&step, json, "interleave_moe_layer_step", 1, PROA_LAYERS_MAX, err));
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = !list && (i + 1) % step == 0;
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        int64_t at = proa_json_int(proa_json_at(list, i));
        if (at < 0 || at >= c->layers)
            return PROA_FAIL(err, INVALID, "'moe_layers' names layer %lld of %lld", (long long)at,
                             (long long)c->layers);
        c->expert_layers[at] = true;
    }
    return PROA_OK;
}

/* no_rope_layers has a 1 for each layer with rotary positions; if it is missing or empty, every
 * no_rope_layer_interval-th has none. Layers with them attend in chunks, unless layer_types says otherwise. */
static proa_status read_rotated_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t interval = 4;
    const proa_json *list = proa_json_get(json, "no_rope_layers");
    int64_t listed = proa_json_len(list);
    bool *rotated = PROA_ARENA_NEW(arena, bool, c->layers);
    PROA_TRY(proa_json_get_int(&interval, json, "no_rope_layer_interval", 1, PROA_LAYERS_MAX, err));
    if (listed > 0 && listed < c->layers)
        return PROA_FAIL(err, INVALID, "'no_rope_layers' has %lld entries for %lld layers", (long long)listed,
                         (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        rotated[i] = listed > 0 ? proa_json_int(proa_json_at(list, i)) != 0 : (i + 1) % interval != 0;
    c->rotated_layers = rotated;
    c->window_chunked = true;
    c->window = proa_config_is_null(json, "attention_chunk_size") ? 0 : 8192;
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    for (int64_t i = 0; c->window_used && !proa_json_get(json, "layer_types") && i < c->layers; i++)
        c->window_layers[i] = rotated[i];
    return PROA_OK;
}

/* attn_temperature_tuning is true, or a number that is not 0 in the first files. */
static proa_status read_query_scale(proa_config *c, const proa_json *json, proa_err *err)
{
    double beta = 0.1;
    int64_t length = 8192;
    const proa_json *tuning = proa_json_get(json, "attn_temperature_tuning");
    bool number = proa_json_kind(tuning) == PROA_JSON_INT;
    PROA_TRY(proa_json_get_double(&beta, json, "attn_scale", 0, 1e6, err));
    PROA_TRY(proa_json_get_int(&length, json, "floor_scale", 1, PROA_CONTEXT_MAX, err));
    if (tuning && !(number ? proa_json_int(tuning) != 0 : proa_json_bool(tuning))) beta = 0;
    c->query_scale = (proa_query_scale){.beta = (float)beta, .length = (int32_t)length, .offset = 1};
    return PROA_OK;
}

static proa_status finish_llama4(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t chosen = 1;
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    c->shared_ffn = c->expert_ffn;
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.chosen = (int32_t)chosen;
    c->rope.theta = 500000;
    PROA_TRY(read_expert_layers(c, json, arena, err));
    PROA_TRY(read_rotated_layers(c, json, arena, err));
    PROA_TRY(read_query_scale(c, json, err));
    return proa_llama_finish(c, json, arena, err);
}

/* clang-format off */
const proa_arch proa_arch_llama4 = {
    .name = "llama4", .model_type = "llama4", .hf = STRINGS("Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
    DECODER(RMS), .keys = keys, .names = tensors, .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head,
    .finish = finish_llama4, .text_config = "text_config", .prefix_aliases = prefix_aliases, .unused_parts = unused};
/* clang-format on */
