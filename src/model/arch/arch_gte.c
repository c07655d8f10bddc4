/* SPDX-License-Identifier: Apache-2.0
 * arch_gte.c - GTE (gte-base-en-v1.5, gte-multilingual-base, snowflake-arctic-embed-m-v2.0) and its heads: post-norm
 * encoder with rotary positions and a gated GELU, which has a bias only at its end. The published files are those of a
 * class of their own ("New"); transformers 5 has it as Gte and saves the same tensors.
 * Facts: transformers' modeling_gte.py and conversion_mapping.py; of NTK's frequencies Alibaba-NLP/new-impl. */
#include "model/arch/arch_rows.h"

#include <math.h>

#define STACK PROA_STACK_ENCODER
#define MODEL "new."
#define LAYER MODEL "encoder.layer.%d."

/* clang-format off */
static const proa_key keys[] = {
    SIZE_KEYS (encoder_layers),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,     8192),
    INTEGER   ("type_vocab_size",         types,          0, TOKEN_TYPES, 1),
    EPSILON   ("layer_norm_eps",          1e-12),
    ACTIVATION("hidden_act",              GELU),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};

#define BODY_TENSORS \
    TABLE (MODEL "embeddings.word_embeddings.weight", TOKENS,       VOCAB,   HIDDEN),                \
    TENSOR(MODEL "embeddings.token_type_embeddings.weight", TYPES,  TABLE,   TYPES, HIDDEN, IF(TYPED)), \
    VECTOR(MODEL "embeddings.LayerNorm.weight",       EMBED_NORM,   HIDDEN),                         \
    VECTOR(MODEL "embeddings.LayerNorm.bias",         EMBED_NORM_B, HIDDEN),                         \
    MATRIX(LAYER "attention.qkv_proj.weight",         QKV,          QKV,     HIDDEN),                \
    VECTOR(LAYER "attention.qkv_proj.bias",           QKV_B,        QKV),                            \
    MATRIX(LAYER "attention.o_proj.weight",           O,            HIDDEN,  Q),                     \
    VECTOR(LAYER "attention.o_proj.bias",             O_B,          HIDDEN),                         \
    VECTOR(LAYER "attn_ln.weight",                    ATTN_NORM,    HIDDEN),                         \
    VECTOR(LAYER "attn_ln.bias",                      ATTN_NORM_B,  HIDDEN),                         \
    MATRIX_LOADED(HALVES_TURNED, LAYER "mlp.up_gate_proj.weight", UP, GATE_UP, HIDDEN),              \
    MATRIX(LAYER "mlp.down_proj.weight",              DOWN,         HIDDEN,  FFN),                   \
    VECTOR(LAYER "mlp.down_proj.bias",                DOWN_B,       HIDDEN),                         \
    VECTOR(LAYER "mlp_ln.weight",                     FFN_NORM,     HIDDEN),                         \
    VECTOR(LAYER "mlp_ln.bias",                       FFN_NORM_B,   HIDDEN)
#define POOLER_TENSORS(FORM) \
    TENSOR(MODEL "pooler.dense.weight", POOL,   MATRIX, HIDDEN, HIDDEN, FORM), \
    TENSOR(MODEL "pooler.dense.bias",   POOL_B, VECTOR, HIDDEN, NONE,   FORM)
#define CLASSIFIER_TENSORS \
    MATRIX("classifier.weight", HEAD,   LABELS, HIDDEN), \
    VECTOR("classifier.bias",   HEAD_B, LABELS)
static const proa_name bare_tensors[] = {BODY_TENSORS, POOLER_TENSORS(IF(PRESENT)), END_TENSORS};
static const proa_name cls_tensors[] = {BODY_TENSORS, POOLER_TENSORS(0), CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name token_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    MATRIX   ("lm_head.dense.weight",  HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("lm_head.dense.bias",    HEAD_DENSE_B, HIDDEN),
    VECTOR   ("lm_head.norm.weight",   HEAD_NORM,    HIDDEN),
    VECTOR   ("lm_head.norm.bias",     HEAD_NORM_B,  HIDDEN),
    TIED_HEAD(MODEL "embeddings.word_embeddings.weight"),
    MATRIX_IF(UNTIED, "lm_head.decoder.weight", HEAD, VOCAB, HIDDEN),
    VECTOR   ("lm_head.decoder.bias",  HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL};
static const char *const beginnings[] = {MODEL, "gte.", NULL};
static const char *const ignored[] = {
    "rotary_emb.inv_freq", "position_ids", "pooler.dense.weight", "pooler.dense.bias", "lm_head.dense.weight",
    "lm_head.dense.bias", "lm_head.norm.weight", "lm_head.norm.bias", "lm_head.decoder.weight", "lm_head.decoder.bias",
    NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS, 0),
    EMBED_TO(D, TYPES,  OF_TYPE | ADD | IF(TYPED)),
    NORM    (D, X,      EMBED_NORM),
    ROPE_TABLE,
    END};
static const proa_step layer[] = {
    LINEAR      (X, QKV, QKV,  0),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, D,   O,    ADD_X),
    NORM        (D, X,   ATTN_NORM),
    LINEAR_GATED(X, F,   UP,   0),
    LINEAR      (F, D,   DOWN, ADD_X),
    NORM        (D, X,   FFN_NORM),
    END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step pool[] = {GATHER(H), LINEAR(H, OUT, POOL, TANH), END};
static const proa_step cls_head[] = {GATHER(H), LINEAR(H, HN, POOL, TANH), LINEAR(HN, OUT, HEAD, 0), END};
static const proa_step token_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step mlm_head[] = {
    GATHER(H), LINEAR(H, HN, HEAD_DENSE, GELU), NORM(HN, HN, HEAD_NORM), LINEAR(HN, OUT, HEAD, 0), END};
/* clang-format on */

/* Options of Alibaba's code that its published models do not use. */
static proa_status check_options(const proa_json *json, proa_err *err)
{
    static const char *const names[] = {"logn_attention_scale", "logn_attention_clip1"};
    proa_str positions = {"rope", 4}, norm = {"layer_norm", 10};
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        bool value = false;
        PROA_TRY(proa_json_get_bool(&value, json, names[i], err));
        if (value) return PROA_FAIL(err, UNSUPPORTED, "'%s' true is not supported", names[i]);
    }
    PROA_TRY(proa_json_get_str(&positions, json, "position_embedding_type", err));
    PROA_TRY(proa_json_get_str(&norm, json, "layer_norm_type", err));
    if (!proa_str_is(positions, "rope"))
        return PROA_FAIL(err, UNSUPPORTED, "'position_embedding_type' '%.*s' is not supported (rope is)",
                         (int)positions.len, positions.ptr);
    if (proa_str_is(norm, "layer_norm")) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'layer_norm_type' '%.*s' is not supported (layer_norm is)",
                     (int)norm.len, norm.ptr);
}

/* The fixed NTK scaling of the published files multiplies the base by a factor, and then divides all frequencies by
 * factor^(2 / dimensions). The context is that which it has made. */
static proa_status read_positions(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *scaling = proa_json_get(json, "rope_scaling");
    proa_str type = {"", 0};
    double factor = 1;
    c->rotary_dim = c->hidden / c->heads;
    c->rope.theta = 160000;
    PROA_TRY(proa_json_get_str(&type, scaling, "type", err));
    if (!proa_str_is(type, "ntk")) return proa_config_read_rope(c, json, arena, err);
    PROA_TRY(proa_json_get_double(&c->rope.theta, json, "rope_theta", 1, 1e12, err));
    PROA_TRY(proa_json_get_double(&factor, scaling, "factor", 1, 1e6, err));
    c->rope.theta *= factor;
    c->rope.kind = PROA_ROPE_LINEAR;
    c->rope.factor = pow(factor, 2 / (double)c->rotary_dim);
    return PROA_OK;
}

static proa_status finish_gte(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    PROA_TRY(proa_config_read_labels(c, json, err));
    PROA_TRY(check_options(json, err));
    return read_positions(c, json, arena, err);
}

/* clang-format off */
#define ROW(row, ending, tensors, heads, rows, outs)                                                       \
    .name = row, .hf = STRINGS("New" ending, "Gte" ending), .model_type = "gte", .kind = PROA_KIND_ENCODER, \
    .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes,                         \
    .prefix_aliases = beginnings, .ignored = ignored, .stacks = {[STACK] = {embed, layer, NULL, false}},   \
    .head = heads, .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finish_gte

const proa_arch proa_arch_gte = {ROW("gte", "Model", bare_tensors, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_gte_cls = {ROW("gte_cls", "ForSequenceClassification", cls_tensors, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_gte_token = {
    ROW("gte_token", "ForTokenClassification", token_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_gte_mlm = {
    ROW("gte_mlm", "ForMaskedLM", mlm_tensors, mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_gte};
/* clang-format on */
