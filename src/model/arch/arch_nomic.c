/* SPDX-License-Identifier: Apache-2.0
 * arch_nomic.c - NomicBERT (nomic-embed-text) and its heads: post-norm encoder with token types, rotary positions, a
 * gated FFN and no biases; or (nomic-embed-text-v2-moe) with biases, a plain FFN, and in every second layer experts,
 * whose sum has one bias. The published configurations have GPT-2's keys, those of transformers 5 BERT's; the tensors
 * are the same.
 * Facts: transformers' modeling_nomic_bert.py and conversion_mapping.py, Nomic's configuration_hf_nomic_bert.py; of the
 * experts vLLM's bert_with_rope.py. */
#include "model/arch/arch_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_ENCODER
#define MODEL "nomic_bert."
#define LAYER MODEL "encoder.layers.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    INTEGER   ("n_embd",                  hidden,         1, HIDDEN,      0),
    INTEGER   ("hidden_size",             hidden,         1, HIDDEN,      768),
    INTEGER   ("n_layer",                 encoder_layers, 1, LAYERS,      0),
    INTEGER   ("num_hidden_layers",       encoder_layers, 1, LAYERS,      12),
    INTEGER   ("n_head",                  heads,          1, HEADS,       0),
    INTEGER   ("num_attention_heads",     heads,          1, HEADS,       12),
    INTEGER   ("n_inner",                 ffn,            1, FFN,         0),
    INTEGER   ("intermediate_size",       ffn,            1, FFN,         3072),
    INTEGER   ("n_positions",             context,        1, CONTEXT,     0),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,     2048),
    INTEGER   ("type_vocab_size",         types,          1, TOKEN_TYPES, 2),
    INTEGER   ("head_dim",                head_dim,       1, HEAD_DIM,    0),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    SWITCH    ("qkv_proj_bias",           attention_bias, 0),
    SWITCH    ("mlp_fc1_bias",            mlp_bias,       0),
    INTEGER   ("num_experts",             experts,        0, EXPERTS,     0),
    END_KEYS};

#define DENSE_PART(name, SLOT, ROLE, ROWS, COLS, flags) \
    TENSOR(LAYER name, SLOT, ROLE, ROWS, COLS, (flags) | IF(DENSE))
#define EXPERT_PART(name, SLOT, ROLE, ROWS, COLS, flags) \
    TENSOR(LAYER name, SLOT, ROLE, ROWS, COLS, (flags) | IF(EXPERTS))
#define BODY_TENSORS \
    TABLE (MODEL "embeddings.word_embeddings.weight",       TOKENS,       VOCAB,  HIDDEN),                  \
    TABLE (MODEL "embeddings.token_type_embeddings.weight", TYPES,        TYPES,  HIDDEN),                  \
    VECTOR(MODEL "emb_ln.weight",                           EMBED_NORM,   HIDDEN),                          \
    VECTOR(MODEL "emb_ln.bias",                             EMBED_NORM_B, HIDDEN),                          \
    MATRIX(LAYER "attn.Wqkv.weight",                        QKV,          QKV,    HIDDEN),                  \
    MATRIX(LAYER "attn.out_proj.weight",                    O,            HIDDEN, Q),                       \
    VECTOR(LAYER "norm1.weight",                            ATTN_NORM,    HIDDEN),                          \
    VECTOR(LAYER "norm1.bias",                              ATTN_NORM_B,  HIDDEN),                          \
    VECTOR_IF(ATTN_BIAS, LAYER "attn.Wqkv.bias",             QKV_B,        QKV),                            \
    VECTOR_IF(ATTN_BIAS, LAYER "attn.out_proj.bias",         O_B,          HIDDEN),                         \
    DENSE_PART("mlp.fc12.weight",  UP,     MATRIX, FFN,    HIDDEN, IF(GATED)),                              \
    DENSE_PART("mlp.fc11.weight",  UP,     MATRIX, FFN,    HIDDEN, IF(GATED)),                              \
    DENSE_PART("mlp.fc12.bias",    UP_B,   VECTOR, FFN,    NONE,   IF(GATED) | IF(MLP_BIAS)),               \
    DENSE_PART("mlp.fc11.bias",    UP_B,   VECTOR, FFN,    NONE,   IF(GATED) | IF(MLP_BIAS)),               \
    DENSE_PART("mlp.fc1.weight",   UP,     MATRIX, FFN,    HIDDEN, IF(PLAIN)),                              \
    DENSE_PART("mlp.fc1.bias",     UP_B,   VECTOR, FFN,    NONE,   IF(PLAIN) | IF(MLP_BIAS)),               \
    DENSE_PART("mlp.fc2.weight",   DOWN,   MATRIX, HIDDEN, FFN,    0),                                      \
    DENSE_PART("mlp.fc2.bias",     DOWN_B, VECTOR, HIDDEN, NONE,   IF(MLP_BIAS)),                           \
    EXPERT_PART("mlp.router.layer.weight", ROUTER,      MATRIX,     EXPERTS,    HIDDEN,     0),             \
    EXPERT_PART("mlp.experts.mlp.w1",      EXPERT_UP,   MATRIX,     EXPERT_FFN, HIDDEN,     PROA_PER_EXPERT),\
    EXPERT_PART("mlp.experts.mlp.w2",      EXPERT_DOWN, TRANSPOSED, HIDDEN,     EXPERT_FFN, PROA_PER_EXPERT),\
    EXPERT_PART("mlp.experts.bias",        EXPERT_BIAS, VECTOR,     HIDDEN,     NONE,       IF(PRESENT)),   \
    VECTOR(LAYER "norm2.weight",                            FFN_NORM,     HIDDEN),                          \
    VECTOR(LAYER "norm2.bias",                              FFN_NORM_B,   HIDDEN)
static const proa_name bare_tensors[] = {BODY_TENSORS, END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS,
    MATRIX(MODEL "pooler.dense.weight", POOL,   HIDDEN, HIDDEN),
    VECTOR(MODEL "pooler.dense.bias",   POOL_B, HIDDEN),
    MATRIX("classifier.weight",         HEAD,   LABELS, HIDDEN),
    VECTOR("classifier.bias",           HEAD_B, LABELS),
    END_TENSORS};
static const proa_name token_tensors[] = {
    BODY_TENSORS,
    MATRIX("classifier.weight", HEAD,   LABELS, HIDDEN),
    VECTOR("classifier.bias",   HEAD_B, LABELS),
    END_TENSORS};
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    MATRIX   ("cls.predictions.transform.dense.weight",      HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("cls.predictions.transform.dense.bias",        HEAD_DENSE_B, HIDDEN),
    VECTOR   ("cls.predictions.transform.layer_norm.weight", HEAD_NORM,    HIDDEN),
    VECTOR   ("cls.predictions.transform.layer_norm.bias",   HEAD_NORM_B,  HIDDEN),
    TIED_HEAD(MODEL "embeddings.word_embeddings.weight"),
    MATRIX_IF(UNTIED, "cls.predictions.decoder.weight",      HEAD,         VOCAB,  HIDDEN),
    VECTOR   ("cls.predictions.decoder.bias",                HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL};
static const char *const aliases[] = {"cls.predictions.decoder.bias", "cls.predictions.bias", NULL};
static const char *const ignored[] = {
    "rotary_emb.inv_freq", "position_ids", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias",
    "cls.predictions.bias", "cls.predictions.transform.dense.weight", "cls.predictions.transform.dense.bias",
    "cls.predictions.transform.layer_norm.weight", "cls.predictions.transform.layer_norm.bias", NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS, 0),
    EMBED_TO(D, TYPES,  OF_TYPE | ADD),
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
    LINEAR_GATED(X, F,   UP,   IF(DENSE) | IF(GATED)),
    LINEAR      (F, D,   DOWN, IF(DENSE) | IF(GATED) | ADD_X),
    LINEAR      (X, U,   UP,   IF(DENSE) | IF(PLAIN) | ACT),
    LINEAR      (U, D,   DOWN, IF(DENSE) | IF(PLAIN) | ADD_X),
    LINEAR      (X, ROUTER, ROUTER, IF(EXPERTS)),
    ROUTE       (CORRECTION),
    EXPERTS     (X, D,   ADD_X),
    NORM        (D, X,   FFN_NORM),
    END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step cls_head[] = {GATHER(H), LINEAR(H, HN, POOL, TANH), LINEAR(HN, OUT, HEAD, 0), END};
static const proa_step token_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step mlm_head[] = {
    GATHER(H), LINEAR(H, HN, HEAD_DENSE, ACT), NORM(HN, HN, HEAD_NORM), LINEAR(HN, OUT, HEAD, 0), END};
/* clang-format on */

/* Options of Nomic's code that its embedding models do not use. */
static proa_status check_options(const proa_json *json, proa_err *err)
{
    static const char *const options[] = {"prenorm",
                                          "use_rms_norm",
                                          "causal",
                                          "parallel_block",
                                          "rotary_emb_interleaved",
                                          "expert_choice_router",
                                          "moe_normalize_expert_weights"};
    for (size_t i = 0; i < PROA_COUNT(options); i++) {
        bool value = false;
        PROA_TRY(proa_json_get_bool(&value, json, options[i], err));
        if (value) return PROA_FAIL(err, UNSUPPORTED, "'%s' true is not supported", options[i]);
    }
    int64_t shared = 0;
    double part = 1;
    PROA_TRY(proa_json_get_int(&shared, json, "num_shared_experts", 0, PROA_EXPERTS_MAX, err));
    if (shared > 0)
        return PROA_FAIL(err, UNSUPPORTED, "'num_shared_experts' %lld is not supported", (long long)shared);
    PROA_TRY(proa_json_get_double(&part, json, "rotary_emb_fraction", 0, 1, err));
    if (part != 1) return PROA_FAIL(err, UNSUPPORTED, "'rotary_emb_fraction' is %g, must be 1", part);
    return PROA_OK;
}

/* Every moe_every_n_layers-th layer has experts, from the second one on. */
static proa_status read_experts(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t chosen = 2, step = 0;
    if (c->experts == 0) return PROA_OK;
    if (c->gated) return PROA_FAIL(err, UNSUPPORTED, "experts with a gated activation are not supported");
    PROA_TRY(proa_json_get_int(&chosen, json, "moe_top_k", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&step, json, "moe_every_n_layers", 0, PROA_LAYERS_MAX, err));
    c->router.chosen = (int32_t)chosen;
    c->expert_ffn = c->ffn;
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->encoder_layers);
    for (int64_t i = 0; i < c->encoder_layers; i++) c->expert_layers[i] = step > 0 && i % step == 1;
    return PROA_OK;
}

/* The biases of both products, or none. */
static proa_status check_biases(const proa_config *c, const proa_json *json, proa_err *err)
{
    bool second = c->mlp_bias;
    PROA_TRY(proa_json_get_bool(&second, json, "mlp_fc2_bias", err));
    if (second == c->mlp_bias) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'mlp_fc1_bias' and 'mlp_fc2_bias' differ");
}

/* "swiglu" is a gated SiLU. */
static proa_status read_activation(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str name = {"swiglu", 6};
    PROA_TRY(proa_json_get_str(&name, json, "activation_function", err));
    if (proa_str_is(name, "swiglu")) return PROA_OK;
    if (proa_str_is(name, "geglu")) return c->act = PROA_ACT_GELU, PROA_OK;
    if (proa_str_is(name, "gelu")) return c->act = PROA_ACT_GELU, c->gated = false, PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'activation_function' '%.*s' is not supported (swiglu, geglu, gelu are)",
                     (int)name.len, name.ptr);
}

/* Frequencies are scaled only for inputs that are longer than those of the training, which are not taken then. */
static proa_status read_positions(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double scaling = 0;
    int64_t trained = c->context;
    c->rotary_dim = c->head_dim ? c->head_dim : c->hidden / c->heads;
    c->rope.theta = 1000;
    PROA_TRY(proa_json_get_double(&c->rope.theta, json, "rotary_emb_base", 1, 1e12, err));
    PROA_TRY(proa_json_get_double(&scaling, json, "rotary_scaling_factor", 0, 1e6, err));
    PROA_TRY(proa_json_get_int(&trained, json, "max_trained_positions", 1, PROA_CONTEXT_MAX, err));
    if (scaling > 0) c->context = proa_min64(c->context, trained);
    return proa_config_read_rope(c, json, arena, err);
}

static proa_status finish_nomic(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    c->norm_eps = 1e-12;
    PROA_TRY(proa_config_read_labels(c, json, err));
    PROA_TRY(proa_json_get_double(&c->norm_eps, json, "layer_norm_epsilon", 0, 1, err));
    PROA_TRY(proa_json_get_double(&c->norm_eps, json, "layer_norm_eps", 0, 1, err));
    PROA_TRY(check_options(json, err));
    PROA_TRY(check_biases(c, json, err));
    PROA_TRY(read_activation(c, json, err));
    PROA_TRY(read_experts(c, json, arena, err));
    return read_positions(c, json, arena, err);
}

/* clang-format off */
#define NOMIC(type, class, tensors, heads, rows, outs, form) \
    {.name = type, .hf = STRINGS(class), .model_type = "nomic_bert", .kind = PROA_KIND_ENCODER,                \
     .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes, .aliases = aliases,     \
     .ignored = ignored, .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = heads,                      \
     .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finish_nomic,                          \
     .embedder = form}

const proa_arch proa_arch_nomic_bert =
    NOMIC("nomic_bert", "NomicBertModel", bare_tensors, headless, ALL, HIDDEN, NULL);
const proa_arch proa_arch_nomic_bert_cls =
    NOMIC("nomic_bert_cls", "NomicBertForSequenceClassification", cls_tensors, cls_head, FIRST, LABELS, NULL);
const proa_arch proa_arch_nomic_bert_token =
    NOMIC("nomic_bert_token", "NomicBertForTokenClassification", token_tensors, token_head, ALL, LABELS, NULL);
const proa_arch proa_arch_nomic_bert_mlm =
    NOMIC("nomic_bert_mlm", "NomicBertForMaskedLM", mlm_tensors, mlm_head, ALL, VOCAB, &proa_arch_nomic_bert);
/* clang-format on */
