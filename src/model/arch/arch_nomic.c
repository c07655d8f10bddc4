/* SPDX-License-Identifier: Apache-2.0
 * arch_nomic.c - NomicBERT (nomic-embed-text): post-norm encoder with token types, rotary positions, a gated FFN and no
 * biases. The published configurations have GPT-2's keys, those of transformers 5 BERT's; the tensors are the same.
 * Facts: transformers' modeling_nomic_bert.py and conversion_mapping.py, Nomic's configuration_hf_nomic_bert.py. */
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
    END_KEYS};

static const proa_name tensors[] = {
    TABLE (MODEL "embeddings.word_embeddings.weight",       TOKENS,       VOCAB,  HIDDEN),
    TABLE (MODEL "embeddings.token_type_embeddings.weight", TYPES,        TYPES,  HIDDEN),
    VECTOR(MODEL "emb_ln.weight",                           EMBED_NORM,   HIDDEN),
    VECTOR(MODEL "emb_ln.bias",                             EMBED_NORM_B, HIDDEN),
    MATRIX(LAYER "attn.Wqkv.weight",                        QKV,          QKV,    HIDDEN),
    MATRIX(LAYER "attn.out_proj.weight",                    O,            HIDDEN, Q),
    VECTOR(LAYER "norm1.weight",                            ATTN_NORM,    HIDDEN),
    VECTOR(LAYER "norm1.bias",                              ATTN_NORM_B,  HIDDEN),
    MATRIX(LAYER "mlp.fc12.weight",                         UP,           FFN,    HIDDEN),
    MATRIX(LAYER "mlp.fc11.weight",                         UP,           FFN,    HIDDEN),
    MATRIX(LAYER "mlp.fc2.weight",                          DOWN,         HIDDEN, FFN),
    VECTOR(LAYER "norm2.weight",                            FFN_NORM,     HIDDEN),
    VECTOR(LAYER "norm2.bias",                              FFN_NORM_B,   HIDDEN),
    END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "position_ids", NULL};

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
    LINEAR_GATED(X, F,   UP,   0),
    LINEAR      (F, D,   DOWN, ADD_X),
    NORM        (D, X,   FFN_NORM),
    END};
static const proa_step headless[] = {GATHER(OUT), END};
/* clang-format on */

/* Options of Nomic's code that its embedding models do not use. */
static proa_status check_options(const proa_json *json, proa_err *err)
{
    static const char *const options[] = {"prenorm",        "use_rms_norm",          "qkv_proj_bias",
                                          "mlp_fc1_bias",   "mlp_fc2_bias",          "causal",
                                          "parallel_block", "rotary_emb_interleaved"};
    for (size_t i = 0; i < PROA_COUNT(options); i++) {
        bool value = false;
        PROA_TRY(proa_json_get_bool(&value, json, options[i], err));
        if (value) return PROA_FAIL(err, UNSUPPORTED, "'%s' true is not supported", options[i]);
    }
    int64_t experts = 0;
    double part = 1;
    PROA_TRY(proa_json_get_int(&experts, json, "num_experts", 0, PROA_EXPERTS_MAX, err));
    if (experts > 0)
        return PROA_FAIL(err, UNSUPPORTED, "'num_experts' %lld is not supported", (long long)experts);
    PROA_TRY(proa_json_get_double(&part, json, "rotary_emb_fraction", 0, 1, err));
    if (part != 1) return PROA_FAIL(err, UNSUPPORTED, "'rotary_emb_fraction' is %g, must be 1", part);
    return PROA_OK;
}

/* "swiglu" is a gated SiLU. */
static proa_status read_activation(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str name = {"swiglu", 6};
    PROA_TRY(proa_json_get_str(&name, json, "activation_function", err));
    if (proa_str_is(name, "swiglu")) return PROA_OK;
    if (proa_str_is(name, "geglu")) return c->act = PROA_ACT_GELU, PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'activation_function' '%.*s' is not supported (swiglu, geglu are)",
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
    PROA_TRY(proa_json_get_double(&c->norm_eps, json, "layer_norm_epsilon", 0, 1, err));
    PROA_TRY(proa_json_get_double(&c->norm_eps, json, "layer_norm_eps", 0, 1, err));
    PROA_TRY(check_options(json, err));
    PROA_TRY(read_activation(c, json, err));
    return read_positions(c, json, arena, err);
}

/* clang-format off */
const proa_arch proa_arch_nomic_bert = {
    .name = "nomic_bert", .hf = STRINGS("NomicBertModel"), .model_type = "nomic_bert", .kind = PROA_KIND_ENCODER,
    .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes, .ignored = ignored,
    .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = headless, .head_rows = PROA_ROWS_ALL,
    .outputs = PROA_DIM_HIDDEN, .finish = finish_nomic};
/* clang-format on */
