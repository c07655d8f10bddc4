/* SPDX-License-Identifier: Apache-2.0
 * arch_eagle.c - EAGLE draft heads: a decoder of one layer that reads tokens and hidden states of its target, so that
 * its row i has the target's state of token i and the embedding of token i + 1, and gives the logits of token i + 2.
 *
 * eagle   EAGLE-1 and EAGLE-2 (Li et al. 2024): X = fc [embedding; state], the state being what the target's head
 *         reads; the first layer has no norm at its input; embedding and head are the target's.
 * eagle3  EAGLE-3 (Li et al. 2025): the states are the target's residual stream before three layers, fused by fc;
 *         q, k and v are products of [norm(embedding); norm(state)]; it has a head of its own vocabulary.
 *
 * Facts: SafeAILab/EAGLE's cnets1.py and cnets.py, vLLM's llama_eagle.py and llama_eagle3.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."

/* clang-format off */
#define KEYS \
    REQUIRED  ("vocab_size",              vocab,           VOCAB),            \
    REQUIRED  ("hidden_size",             hidden,          HIDDEN),           \
    REQUIRED  ("num_hidden_layers",       layers,          LAYERS),           \
    REQUIRED  ("num_attention_heads",     heads,           HEADS),            \
    REQUIRED  ("intermediate_size",       ffn,             FFN),              \
    INTEGER   ("num_key_value_heads",     kv_heads,        1, HEADS,    0),   \
    INTEGER   ("head_dim",                head_dim,        1, HEAD_DIM, 0),   \
    INTEGER   ("max_position_embeddings", context,         1, CONTEXT,  2048), \
    INTEGER   ("draft_vocab_size",        draft_vocab,     1, VOCAB,    0),   \
    EPSILON   ("rms_norm_eps",            1e-6),                              \
    ACTIVATION("hidden_act",              SILU)
static const proa_key eagle_keys[] = {KEYS, END_KEYS};
static const proa_key eagle3_keys[] = {
    KEYS,
    SWITCH    ("norm_before_residual",    post_norm,       0), /* the state that is added to is the normed one */
    SWITCH    ("norm_before_fc",          states_normed,   0),
    END_KEYS};

/* Biases are those that the checkpoint has. */
#define ATTENTION(COLS) \
    MATRIX   (LAYER "self_attn.q_proj.weight",         QKV,      Q,      COLS),   \
    MATRIX   (LAYER "self_attn.k_proj.weight",         QKV,      KV,     COLS),   \
    MATRIX   (LAYER "self_attn.v_proj.weight",         QKV,      KV,     COLS),   \
    VECTOR_IF(PRESENT, LAYER "self_attn.q_proj.bias",  QKV_B,    Q),              \
    VECTOR_IF(PRESENT, LAYER "self_attn.k_proj.bias",  QKV_B,    KV),             \
    VECTOR_IF(PRESENT, LAYER "self_attn.v_proj.bias",  QKV_B,    KV),             \
    MATRIX   (LAYER "self_attn.o_proj.weight",         O,        HIDDEN, Q),      \
    VECTOR_IF(PRESENT, LAYER "self_attn.o_proj.bias",  O_B,      HIDDEN)
#define FFN \
    VECTOR   (LAYER "post_attention_layernorm.weight", FFN_NORM, HIDDEN),         \
    MATRIX   (LAYER "mlp.gate_proj.weight",            UP,       FFN,    HIDDEN), \
    MATRIX   (LAYER "mlp.up_proj.weight",              UP,       FFN,    HIDDEN), \
    MATRIX   (LAYER "mlp.down_proj.weight",            DOWN,     HIDDEN, FFN)

static const proa_name eagle_tensors[] = {
    MATRIX   ("model.fc.weight",                       PROJECT_IN,   HIDDEN, PAIR),
    VECTOR_IF(PRESENT, "model.fc.bias",                PROJECT_IN_B, HIDDEN),
    VECTOR_IF(LATER_LAYERS, LAYER "input_layernorm.weight", ATTN_NORM, HIDDEN),
    ATTENTION(HIDDEN),
    FFN,
    END_TENSORS};
static const proa_name eagle3_tensors[] = {
    TENSOR   ("model.embed_tokens.weight",             TOKENS, TABLE, VOCAB, HIDDEN, PROA_IF(PRESENT)),
    MATRIX   ("model.fc.weight",                       PROJECT_IN,   HIDDEN, STATES),
    VECTOR_IF(PRESENT, "model.fc.bias",                PROJECT_IN_B, HIDDEN),
    VECTOR_IF(STATES_NORMED, "model.input_norm.weight", PROJECT_IN_NORM, STATES),
    VECTOR   (LAYER "input_layernorm.weight",          EMBED_NORM,   HIDDEN),
    VECTOR   (LAYER "hidden_norm.weight",              ATTN_NORM,    HIDDEN),
    ATTENTION(PAIR),
    FFN,
    VECTOR   ("model.norm.weight",                     FINAL_NORM,   HIDDEN),
    MATRIX_IF(PRESENT, "lm_head.weight",               HEAD,   DRAFT_VOCAB, HIDDEN),
    END_TENSORS};

static const char *const prefixes[] = {"model.", NULL};
static const char *const renamed[] = {"model.layers.0.", "midlayer.", "model.layers.0.", "model.midlayer.", NULL};
/* embedding and head are the target's; the first layer's input has no norm */
static const char *const eagle_ignored[] = {"rotary_emb.inv_freq", "embed_tokens.weight", "lm_head.weight",
                                            "layers.0.input_layernorm.weight", NULL};
static const char *const eagle3_ignored[] = {"rotary_emb.inv_freq", "d2t", "t2d", NULL}; /* heads/eagle.c reads d2t */

static const proa_step eagle_embed[] = {
    EMBED_TO(PAIR, TOKENS, SCALED),
    STEP_BARE(SCALE, X, PAIR, PROA_SECOND),
    LINEAR(PAIR, X, PROJECT_IN, 0),
    ROPE_TABLE,
    END};
#define ATTENTION_AND_FFN \
    ROTATE,                        \
    KV_APPEND,                     \
    ATTEND,                        \
    LINEAR      (A, X, O,    ADD), \
    NORM        (X, N, FFN_NORM),  \
    LINEAR_GATED(N, F, UP,   0),   \
    LINEAR      (F, X, DOWN, ADD), \
    END
static const proa_step eagle_layer[] = {
    STEP_BARE(SCALE, X, N, IF(FIRST_LAYER)),
    NORM_IF(LATER_LAYERS, X, N, ATTN_NORM),
    LINEAR(N, QKV, QKV, 0),
    ATTENTION_AND_FFN};
static const proa_step eagle_head[] = {
    GATHER(H),
    SCALE(H, HN),
    LINEAR(HN, OUT, HEAD, SCALED | CAPPED),
    END};

static const proa_step eagle3_fuse[] = {
    NORM_IF(STATES_NORMED, STATES, STATES, PROJECT_IN_NORM),
    LINEAR(STATES, X, PROJECT_IN, 0),
    END};
static const proa_step eagle3_embed[] = {ROPE_TABLE, END};
static const proa_step eagle3_layer[] = {
    EMBED_TO(N, TOKENS, SCALED),
    NORM(N, PAIR, EMBED_NORM),
    STEP(NORM, X, PAIR, ATTN_NORM, PROA_SECOND),
    NORM_IF(POST_NORM, X, X, ATTN_NORM),
    LINEAR(PAIR, QKV, QKV, 0),
    ATTENTION_AND_FFN};
static const proa_step eagle3_head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status finish_eagle(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    c->stream_scale = 1;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    c->rotary_dim = c->head_dim;
    if (c->layers == 0) return PROA_FAIL(err, INVALID, "'num_hidden_layers' is 0, must be 1 or more");
    if (c->draft_vocab == 0) c->draft_vocab = c->vocab;
    c->states = c->hidden;
    return proa_config_read_rope(c, json, arena, err);
}

/* The target's layers whose states are read: a list of three, or -1. */
static proa_status read_tapped(proa_config *c, const proa_json *json, proa_err *err)
{
    const char *key = "eagle_aux_hidden_state_layer_ids";
    const proa_json *more = proa_json_get(json, "eagle_config"), *list = proa_json_get(json, key);
    if (!list) list = proa_json_get(more, key);
    for (int32_t i = 0; i < PROA_TAPS_MAX; i++) c->tapped[i] = -1;
    if (!list || proa_json_kind(list) == PROA_JSON_NULL) return PROA_OK;
    if (proa_json_kind(list) != PROA_JSON_ARRAY || proa_json_len(list) != PROA_TAPS_MAX)
        return PROA_FAIL(err, INVALID, "'%s' has %lld entries, must have %d", key,
                         (long long)proa_json_len(list), PROA_TAPS_MAX);
    for (int32_t i = 0; i < PROA_TAPS_MAX; i++) {
        c->tapped[i] = proa_json_int(proa_json_at(list, i));
        if (c->tapped[i] < 0 || c->tapped[i] > PROA_LAYERS_MAX)
            return PROA_FAIL(err, INVALID, "'%s' has %lld, must be 0 to the number of the model's layers",
                             key, (long long)c->tapped[i]);
    }
    return PROA_OK;
}

static proa_status finish_eagle3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const char *const off[] = {"fc_norm", "norm_output"};
    const proa_json *fuses = proa_json_get(proa_json_get(json, "eagle_config"), "use_aux_hidden_state");
    int64_t width = c->hidden;
    PROA_TRY(finish_eagle(c, json, arena, err));
    if (c->layers != 1)
        return PROA_FAIL(err, UNSUPPORTED, "'num_hidden_layers' is %lld, EAGLE-3 heads have 1",
                         (long long)c->layers);
    if (fuses && !proa_json_bool(fuses))
        return PROA_FAIL(err, UNSUPPORTED, "'use_aux_hidden_state' is false, which is not supported");
    for (size_t i = 0; i < PROA_COUNT(off); i++)
        if (proa_json_bool(proa_json_get(json, off[i])))
            return PROA_FAIL(err, UNSUPPORTED, "'%s' is true, which is not supported", off[i]);
    PROA_TRY(proa_json_get_int(&width, json, "target_hidden_size", 1, PROA_HIDDEN_MAX, err));
    c->states = PROA_TAPS_MAX * width;
    return read_tapped(c, json, err);
}

/* clang-format off */
const proa_arch proa_arch_eagle = {
    .name = "eagle", .model_type = "eagle", .of_target = true,
    .hf = STRINGS("EagleLlamaForCausalLM", "EAGLEModel", "EagleForCausalLM"),
    .kind = PROA_KIND_DECODER, .norm = PROA_NORM_RMS, .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_DRAFT_VOCAB,
    .keys = eagle_keys, .names = eagle_tensors, .prefixes = prefixes, .ignored = eagle_ignored,
    .stacks = {CAUSAL(eagle_embed, eagle_layer)}, .head = eagle_head, .finish = finish_eagle};
const proa_arch proa_arch_eagle3 = {
    .name = "eagle3", .model_type = "eagle3", .of_target = true,
    .hf = STRINGS("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "EagleLlama3ForCausalLM"),
    .kind = PROA_KIND_DECODER, .norm = PROA_NORM_RMS, .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_DRAFT_VOCAB,
    .keys = eagle3_keys, .names = eagle3_tensors, .prefixes = prefixes, .prefix_aliases = renamed,
    .ignored = eagle3_ignored, .stacks = {CAUSAL(eagle3_embed, eagle3_layer)}, .head = eagle3_head,
    .fuse = eagle3_fuse, .finish = finish_eagle3};
/* clang-format on */
