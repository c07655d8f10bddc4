/* SPDX-License-Identifier: Apache-2.0
 * arch_gemma4.c - the text models of Gemma 4: Gemma 3 with plain norms, normed values, scores that are not scaled, and
 * a factor for each layer. Layers without a window have heads of another size, whose keys may be their values, too, and
 * rotate a part of them. In the small ones the last layers read keys and values of earlier ones, and each layer adds
 * what a table of its own has for the token. A mixture of experts is beside the dense FFN. EmbeddingGemma 2 is one that
 * sees both sides, without experts and tables, whose states are projected. Multimodal checkpoints are read as text
 * models; the unified ones have no inputs of layers and no experts. Facts: transformers'
 * modeling_{gemma4,gemma4_unified,embedding_gemma2}.py, 5.24. */
#include "model/arch/llama_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER

/* clang-format off */
#define KEYS(HEADS_DEFAULT, KV_DEFAULT, CONTEXT_DEFAULT) \
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),                     \
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),                     \
    REQUIRED  ("intermediate_size",       ffn,            FFN),                        \
    INTEGER   ("vocab_size",              vocab,          1, VOCAB,    262144),        \
    INTEGER   ("num_attention_heads",     heads,          1, HEADS,    HEADS_DEFAULT), \
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    KV_DEFAULT),    \
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM, 256),           \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  CONTEXT_DEFAULT), \
    EPSILON   ("rms_norm_eps",            1e-6),                                       \
    ACTIVATION("hidden_activation",       GELU_TANH),                                  \
    SWITCH    ("attention_bias",          attention_bias, 0)
static const proa_key keys[] = {
    KEYS(8, 4, 131072),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    SWITCH    ("attention_k_eq_v",        k_is_v,         0),
    END_KEYS};
static const proa_key embedder_keys[] = {KEYS(4, 2, 262144), END_KEYS};
/* The part of QKV that is the keys' or the values': the keys' tensor is read a second time where it makes both. L: what
 * the names of a layer begin with. */
#define KV_PARTS(L, ROLE, SUFFIX, SLOT, COLS, flags) \
    TENSOR(L "self_attn.k_proj." SUFFIX, SLOT, ROLE, KV, COLS, (flags) | PROA_IF(OWN_KV)),                       \
    TENSOR(L "self_attn.v_proj." SUFFIX, SLOT, ROLE, KV, COLS, (flags) | PROA_IF(OWN_KV) | PROA_IF(K_AND_V)),    \
    TENSOR(L "self_attn.k_proj." SUFFIX, SLOT, ROLE, KV, COLS,                                                   \
           (flags) | PROA_IF(OWN_KV) | PROA_IF(K_IS_V) | PROA_SHARED),                                           \
    UNREAD(L "self_attn.k_proj." SUFFIX), UNREAD(L "self_attn.v_proj." SUFFIX)
/* Of layers that read those of another one; the published files have them all the same. */
#define UNREAD(name) TENSOR(name, K_NORM, VECTOR, HEAD, NONE, PROA_UNUSED | PROA_IF(BORROWED_KV))
#define BODY_TENSORS(P, L) \
    TABLE    (P "embed_tokens.weight",                TOKENS,        VOCAB,  HIDDEN), \
    VECTOR   (L "input_layernorm.weight",             ATTN_NORM,     HIDDEN),         \
    MATRIX   (L "self_attn.q_proj.weight",            QKV,           Q,      HIDDEN), \
    KV_PARTS (L, MATRIX, "weight",                    QKV,           HIDDEN, 0),      \
    VECTOR_IF(ATTN_BIAS, L "self_attn.q_proj.bias",   QKV_B,         Q),              \
    KV_PARTS (L, VECTOR, "bias",                      QKV_B,         NONE,   PROA_IF(ATTN_BIAS)), \
    VECTOR   (L "self_attn.q_norm.weight",            Q_NORM,        HEAD),           \
    VECTOR_IF(OWN_KV, L "self_attn.k_norm.weight",    K_NORM,        HEAD),           \
    VECTOR_LOADED_IF(OWN_KV, ONES, L "self_attn.v_norm.weight", V_NORM, HEAD),        \
    UNREAD   (L "self_attn.k_norm.weight"),                                           \
    MATRIX   (L "self_attn.o_proj.weight",            O,             HIDDEN, Q),      \
    VECTOR_IF(ATTN_BIAS, L "self_attn.o_proj.bias",   O_B,           HIDDEN),         \
    VECTOR   (L "post_attention_layernorm.weight",    ATTN_OUT_NORM, HIDDEN),         \
    VECTOR   (L "pre_feedforward_layernorm.weight",   FFN_NORM,      HIDDEN),         \
    MATRIX   (L "mlp.gate_proj.weight",               UP,            FFN,    HIDDEN), \
    MATRIX   (L "mlp.up_proj.weight",                 UP,            FFN,    HIDDEN), \
    MATRIX   (L "mlp.down_proj.weight",               DOWN,          HIDDEN, FFN),    \
    VECTOR   (L "post_feedforward_layernorm.weight",  FFN_OUT_NORM,  HIDDEN),         \
    VECTOR_LOADED(SPREAD, L "layer_scalar",           LAYER_SCALE,   HIDDEN),         \
    VECTOR   (P "norm.weight",                        FINAL_NORM,    HIDDEN)
/* Of the inputs of each layer. P: what the names of their projection begin with. */
#define LAYER_INPUT_TENSORS(P, L) \
    MATRIX_IF(LAYER_INPUTS, P "per_layer_model_projection.weight", LAYER_PROJECT,      LAYER_INPUTS, HIDDEN), \
    VECTOR_IF(LAYER_INPUTS, P "per_layer_projection_norm.weight",  LAYER_PROJECT_NORM, LAYER_INPUT),          \
    MATRIX_IF(LAYER_INPUTS, L "per_layer_input_gate.weight",       LAYER_GATE,         LAYER_INPUT,  HIDDEN), \
    MATRIX_IF(LAYER_INPUTS, L "per_layer_projection.weight",       LAYER_UP,           HIDDEN, LAYER_INPUT),  \
    VECTOR_IF(LAYER_INPUTS, L "post_per_layer_input_norm.weight",  LAYER_INPUT_NORM,   HIDDEN)

#define P "language_model.model."
#define L P "layers.%d."
static const proa_name tensors[] = {
    BODY_TENSORS(P, L),
    VECTOR_IF(EXPERTS, L "post_feedforward_layernorm_1.weight", DENSE_OUT_NORM,  HIDDEN),
    VECTOR_IF(EXPERTS, L "router.scale",                        ROUTER_NORM,     HIDDEN),
    MATRIX_IF(EXPERTS, L "router.proj.weight",                  ROUTER,          EXPERTS, HIDDEN),
    VECTOR_IF(EXPERTS, L "router.per_expert_scale",             EXPERT_SCALES,   EXPERTS),
    VECTOR_IF(EXPERTS, L "pre_feedforward_layernorm_2.weight",  EXPERT_NORM,     HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, L "experts.gate_up_proj",         EXPERT_UP,       EXPERT_GATED, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, L "experts.down_proj",            EXPERT_DOWN,     HIDDEN, EXPERT_FFN),
    VECTOR_IF(EXPERTS, L "post_feedforward_layernorm_2.weight", EXPERT_OUT_NORM, HIDDEN),
    TENSOR   (P "embed_tokens_per_layer.weight", LAYER_TOKENS, TABLE, LAYER_VOCAB, LAYER_INPUTS, IF(LAYER_INPUTS)),
    LAYER_INPUT_TENSORS(P, L),
    MATRIX_IF(UNTIED, "language_model.lm_head.weight", HEAD,         VOCAB,  HIDDEN),
    TIED_HEAD(P "embed_tokens.weight"),
    END_TENSORS};
#undef STACK
#define STACK PROA_STACK_ENCODER
static const proa_name embedder_tensors[] = {
    BODY_TENSORS("language_model.", "language_model.layers.%d."),
    LAYER_INPUT_TENSORS("language_model.ple.", "language_model.layers.%d.ple_block."),
    MATRIX("language_model.embedding_projection.weight", HEAD, HEAD_EMBED, HIDDEN),
    END_TENSORS};
static const char *const prefixes[] = {"language_model.", NULL}; /* of text models */
static const char *const prefix_aliases[] = {"language_model.model.", "model.language_model.",
                                             "language_model.lm_head.", "lm_head.", NULL};
static const char *const unused[] = {"model.vision_tower.", "model.vision_embedder.", "model.embed_vision.",
                                     "model.audio_tower.", "model.embed_audio.", NULL};
static const char *const embedder_unused[] = {"vision_tower.", "embed_vision.", "audio_tower.", "embed_audio.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

/* Inputs of the layers: a table's rows and a normed product of the embeddings, (a + b) / sqrt(2). */
static const proa_step embed[] = {
    EMBED_TO(X, TOKENS, SCALED),
    EMBED_TO(LAYER_INPUTS, LAYER_TOKENS, SCALED | IF(LAYER_INPUTS)),
    LINEAR  (X, LAYER_PROJECT, LAYER_PROJECT, FACTOR | IF(LAYER_INPUTS)),
    STEP    (NORM, LAYER_PROJECT, LAYER_INPUTS, LAYER_PROJECT_NORM, ADD | IF(LAYER_INPUTS)),
    STEP_BARE(SCALE, LAYER_INPUTS, LAYER_INPUTS, IF(LAYER_INPUTS)),
    ROPE_TABLE, LOCAL_ROPE_TABLE, END};
#define ATTENTION_AND_FFN \
    NORM         (X, N,   ATTN_NORM),     \
    LINEAR       (N, QKV, QKV,  0),       \
    Q_NORM       (Q_NORM),                \
    K_NORM_OWN   (K_NORM),                \
    V_NORM_OWN   (V_NORM),                \
    ROTATE,                               \
    KV_APPEND,                            \
    ATTEND,                               \
    LINEAR       (A, D,   O,    0),       \
    NORM_ADD     (D, X,   ATTN_OUT_NORM), \
    NORM         (X, N,   FFN_NORM),      \
    LINEAR_GATED (N, F,   UP,   0),       \
    LINEAR       (F, D,   DOWN, 0)
#define LAYER_INPUT_STEPS \
    NORM_ADD     (D, X,   FFN_OUT_NORM),                             \
    LINEAR       (X, LAYER_GATE, LAYER_GATE, IF(LAYER_INPUTS)),      \
    GATE_LAYER   (LAYER_INPUTS, LAYER_GATE,  IF(LAYER_INPUTS)),      \
    LINEAR       (LAYER_GATE, D, LAYER_UP,   IF(LAYER_INPUTS)),      \
    STEP         (NORM, D, X, LAYER_INPUT_NORM, ADD | IF(LAYER_INPUTS)), \
    SCALE_COLUMNS(X, X,   LAYER_SCALE)
static const proa_step layer[] = {
    ATTENTION_AND_FFN,
    NORM_IF      (EXPERTS, D, D, DENSE_OUT_NORM),
    NORM_IF      (EXPERTS, X, N, ROUTER_NORM),
    LINEAR       (N, ROUTER, ROUTER, FACTOR | IF(EXPERTS)),
    ROUTE        (CORRECTION),
    NORM_IF      (EXPERTS, X, N, EXPERT_NORM),
    EXPERTS      (N, EXPERT_D, 0),
    STEP         (NORM, EXPERT_D, D, EXPERT_OUT_NORM, ADD | IF(EXPERTS)),
    LAYER_INPUT_STEPS,
    END};
static const proa_step embedder_layer[] = {ATTENTION_AND_FFN, LAYER_INPUT_STEPS, END};
static const proa_step head[] = {LM_HEAD(CAPPED)};
/* EmbeddingGemma 2 has no such table: the inputs are the normed product alone. */
static const proa_step embedder_embed[] = {
    EMBED_TO(X, TOKENS, SCALED),
    LINEAR  (X, LAYER_PROJECT, LAYER_PROJECT, FACTOR),
    NORM    (LAYER_PROJECT, LAYER_INPUTS, LAYER_PROJECT_NORM),
    ROPE_TABLE, LOCAL_ROPE_TABLE, END};
static const proa_step after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step embedder_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
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

/* The heads of layers without a window, whose keys have a number of their own if the caller has set its default, or if
 * they are the values. The last layer is one of these, whatever layer_types says. */
static proa_status read_other_heads(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *layers = proa_json_get(json, "per_layer_config");
    if (c->window_layers) c->window_layers[c->layers - 1] = false;
    c->other_heads = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->other_heads[i] = proa_config_window(c, i) == 0;
    if (layers) return read_per_layer(c, layers, err);
    bool counted = c->k_is_v || c->other_kv_heads;
    c->other_head_dim = 512;
    if (!c->other_kv_heads) c->other_kv_heads = c->kv_heads;
    PROA_TRY(proa_json_get_int(&c->other_head_dim, json, "global_head_dim", 1, PROA_HEAD_DIM_MAX, err));
    if (!counted) return PROA_OK;
    return proa_json_get_int(&c->other_kv_heads, json, "num_global_key_value_heads", 1, PROA_HEADS_MAX, err);
}

/* Two thetas: of the layers without a window and of the others. */
static proa_status read_rope(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rotary_dim = c->head_dim;
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

static proa_status read_layer_inputs(proa_config *c, const proa_json *json, proa_err *err)
{
    c->layer_vocab = 262144;
    if (proa_config_is_null(json, "hidden_size_per_layer_input")) c->layer_input = 0;
    PROA_TRY(proa_json_get_int(&c->layer_input, json, "hidden_size_per_layer_input", 0, PROA_HIDDEN_MAX, err));
    PROA_TRY(proa_json_get_int(&c->layer_vocab, json, "vocab_size_per_layer_input", 1, PROA_VOCAB_MAX, err));
    if (c->layer_input && c->layer_vocab < c->vocab)
        return PROA_FAIL(err, UNSUPPORTED, "'vocab_size_per_layer_input' %lld is less than 'vocab_size' %lld",
                         (long long)c->layer_vocab, (long long)c->vocab);
    if (c->layer_input * c->layers > PROA_FFN_MAX)
        return PROA_FAIL(err, LIMIT, "inputs of %lld numbers for %lld layers are too many",
                         (long long)c->layer_input, (long long)c->layers);
    c->layer_embed_scale = sqrt((double)c->layer_input);
    c->factors.layer_project = 1 / sqrt((double)c->hidden);
    c->stream_scale = sqrt(0.5);
    return PROA_OK;
}

/* The last `shared` layers read keys and values of the last layer before them that has a window, or none, as they. With
 * use_double_wide_mlp their FFN is twice as wide. */
static proa_status read_shared_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t shared = 0;
    bool wide = false;
    PROA_TRY(proa_json_get_bool(&wide, json, "use_double_wide_mlp", err));
    PROA_TRY(proa_json_get_int(&shared, json, "num_kv_shared_layers", 0, c->layers - 1, err));
    if (!shared) return PROA_OK;
    PROA_TRY(proa_config_share_kv(c, shared, arena, err));
    if (!wide) return PROA_OK;
    c->ffn_sizes = PROA_ARENA_NEW(arena, int64_t, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->ffn_sizes[i] = c->ffn * (proa_config_owns_kv(c, i) ? 1 : 2);
    c->ffn *= 2;
    return PROA_OK;
}

/* Of the chosen experts the weights have the sum 1, and then a factor for each expert. */
static proa_status read_experts(proa_config *c, const proa_json *json, proa_err *err)
{
    bool mixture = false;
    int64_t chosen = 0;
    PROA_TRY(proa_json_get_bool(&mixture, json, "enable_moe_block", err));
    if (!mixture) return PROA_OK;
    PROA_TRY(proa_json_get_int(&c->experts, json, "num_experts", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen, json, "top_k_experts", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&c->expert_ffn, json, "moe_intermediate_size", 1, PROA_FFN_MAX, err));
    if (!c->experts || !chosen || !c->expert_ffn)
        return PROA_FAIL(err, INVALID,
                         "'enable_moe_block' is true without 'num_experts', 'top_k_experts' and "
                         "'moe_intermediate_size'");
    c->router.chosen = (int32_t)chosen, c->router.renormalise = true;
    c->factors.router = 1 / sqrt((double)c->hidden);
    return PROA_OK;
}

static proa_status check_sides(const proa_json *json, proa_err *err)
{
    proa_str sides = {"", 0};
    PROA_TRY(proa_json_get_str(&sides, json, "use_bidirectional_attention", err));

    if (proa_str_is(sides, "all"))
        return PROA_FAIL(err, UNSUPPORTED, "'use_bidirectional_attention' \"all\" is not supported");
    return PROA_OK;
}

static proa_status finish_base(proa_config *c, const proa_json *json, int64_t window, proa_arena *arena,
                               proa_err *err)
{
    c->gated = true;
    c->embed_scale = sqrt((double)c->hidden);
    c->attention_scale = 1;
    c->window = window, c->window_pattern = 6;
    PROA_TRY(read_rope(c, json, arena, err));
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    return read_other_heads(c, json, arena, err);
}

/* Without rope_parameters a quarter of the heads' numbers is rotated in layers without a window. */
static proa_status finish_decoder(proa_config *c, const proa_json *json, int64_t window, proa_arena *arena,
                                  proa_err *err)
{
    c->rope.kind = PROA_ROPE_PROPORTIONAL, c->rope.factor = 1, c->rope.part = 0.25;
    PROA_TRY(check_sides(json, err));
    PROA_TRY(proa_json_get_double(&c->logit_cap, json, "final_logit_softcapping", 1e-3, 1e6, err));
    PROA_TRY(finish_base(c, json, window, arena, err));
    return read_shared_layers(c, json, arena, err);
}

static proa_status finish_gemma4(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->layer_input = 256;
    PROA_TRY(read_experts(c, json, err));
    PROA_TRY(read_layer_inputs(c, json, err));
    return finish_decoder(c, json, 512, arena, err);
}

/* The class of the unified models has no key of inputs of layers or experts, and reads none. */
static proa_status finish_unified(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (!proa_json_get(json, "max_position_embeddings")) c->context = 262144;
    return finish_decoder(c, json, 1024, arena, err);
}

/* EmbeddingGemma 2: sliding_window is how far a layer sees to each side. The pages of its layers are scratch of those
 * with a window. */
static proa_status finish_embedder(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->layer_input = 512, c->other_kv_heads = 1, c->head_embed = 768;
    PROA_TRY(finish_base(c, json, 512, arena, err));
    PROA_TRY(read_layer_inputs(c, json, err));
    PROA_TRY(proa_json_get_int(&c->head_embed, json, "embedding_dim", 1, PROA_HIDDEN_MAX, err));
    if (c->layer_input == 0)
        return PROA_FAIL(err, INVALID, "'hidden_size_per_layer_input' is 0, must be 1 to %d", PROA_HIDDEN_MAX);
    if (c->window_used) c->window++; /* and itself */
    if (c->other_kv_heads * c->other_head_dim > c->kv_heads * c->head_dim)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "keys of %lld numbers in layers without a window are not supported beside %lld of the others",
            (long long)(c->other_kv_heads * c->other_head_dim), (long long)(c->kv_heads * c->head_dim));
    c->encoder_layers = c->layers, c->layers = 0;
    return PROA_OK;
}

/* clang-format off */
#define GEMMA4(type, classes, finisher) \
    {.name = type, .hf = classes, .model_type = type "_text", .text_config = "text_config", DECODER(RMS),      \
     .keys = keys, .names = tensors, .prefixes = prefixes, .prefix_aliases = prefix_aliases,                   \
     .ignored = ignored, .unused_parts = unused, .stacks = {CAUSAL(embed, layer)}, .head = head,               \
     .finish = finisher}

const proa_arch proa_arch_gemma4 =
    GEMMA4("gemma4", STRINGS("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"), finish_gemma4);
const proa_arch proa_arch_gemma4_unified =
    GEMMA4("gemma4_unified", STRINGS("Gemma4UnifiedForCausalLM", "Gemma4UnifiedForConditionalGeneration"),
           finish_unified);
const proa_arch proa_arch_embedding_gemma2 = {
    .name = "embedding_gemma2", .hf = STRINGS("EmbeddingGemma2Model", "EmbeddingGemma2TextModel"),
    .model_type = "embedding_gemma2_text", .text_config = "text_config", .kind = PROA_KIND_ENCODER,
    .norm = PROA_NORM_RMS, .keys = embedder_keys, .names = embedder_tensors, .prefixes = prefixes,
    .ignored = ignored, .unused_parts = embedder_unused,
    .stacks = {[STACK] = {embedder_embed, embedder_layer, after, false}}, .head = embedder_head,
    .head_rows = PROA_ROWS_ALL, .outputs = PROA_DIM_HEAD_EMBED, .finish = finish_embedder};
/* clang-format on */
