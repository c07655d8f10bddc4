/* SPDX-License-Identifier: Apache-2.0
 * arch_chatglm.c - ChatGLM-6B, the first generation: prompts with a blank and a prefix (prefix.h), rotary halves of two
 * positions, LayerNorm. The residual branches begin at the normed copy, times a constant, and not at the stream itself.
 * Facts: the modelling file that is published with the checkpoint (THUDM/chatglm-6b, last revision). */
#include "model/arch/arch_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER
#define LAYER "transformer.layers.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED("vocab_size",          vocab,   VOCAB),
    REQUIRED("hidden_size",         hidden,  HIDDEN),
    REQUIRED("num_layers",          layers,  LAYERS),
    REQUIRED("num_attention_heads", heads,   HEADS),
    REQUIRED("inner_hidden_size",   ffn,     FFN),
    INTEGER ("max_sequence_length", context, 1, CONTEXT, 2048),
    EPSILON ("layernorm_epsilon",   1e-5),
    END_KEYS};

static const proa_name tensors[] = {
    TABLE ("transformer.word_embeddings.weight",                      TOKENS,       VOCAB,  HIDDEN),
    VECTOR(LAYER "input_layernorm.weight",                            ATTN_NORM,    HIDDEN),
    VECTOR(LAYER "input_layernorm.bias",                              ATTN_NORM_B,  HIDDEN),
    MATRIX_LOADED(QKV_GROUPS, LAYER "attention.query_key_value.weight", QKV, QKV,   HIDDEN),
    VECTOR_LOADED(QKV_GROUPS, LAYER "attention.query_key_value.bias", QKV_B,        QKV),
    MATRIX(LAYER "attention.dense.weight",                            O,            HIDDEN, Q),
    VECTOR(LAYER "attention.dense.bias",                              O_B,          HIDDEN),
    VECTOR(LAYER "post_attention_layernorm.weight",                   FFN_NORM,     HIDDEN),
    VECTOR(LAYER "post_attention_layernorm.bias",                     FFN_NORM_B,   HIDDEN),
    MATRIX(LAYER "mlp.dense_h_to_4h.weight",                          UP,           FFN,    HIDDEN),
    VECTOR(LAYER "mlp.dense_h_to_4h.bias",                            UP_B,         FFN),
    MATRIX(LAYER "mlp.dense_4h_to_h.weight",                          DOWN,         HIDDEN, FFN),
    VECTOR(LAYER "mlp.dense_4h_to_h.bias",                            DOWN_B,       HIDDEN),
    VECTOR("transformer.final_layernorm.weight",                      FINAL_NORM,   HIDDEN),
    VECTOR("transformer.final_layernorm.bias",                        FINAL_NORM_B, HIDDEN),
    MATRIX("lm_head.weight",                                          HEAD,         VOCAB,  HIDDEN),
    END_TENSORS};
static const char *const ignored[] = {"rotary_emb.inv_freq", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, BLOCK_ROPE_TABLE, END};
static const proa_step layer[] = {
    NORM  (X, N,   ATTN_NORM),
    LINEAR(N, QKV, QKV,  0),
    SCALE (N, X),
    ROTATE_BLOCK,
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR(A, X,   O,    ADD),
    NORM  (X, N,   FFN_NORM),
    LINEAR(N, U,   UP,   ACT),
    SCALE (N, X),
    LINEAR(U, X,   DOWN, ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status read_id(int64_t *id, const proa_config *c, const proa_json *json, const char *key,
                           proa_err *err)
{
    *id = -1;
    PROA_TRY(proa_json_get_int(id, json, key, 0, c->vocab - 1, err));
    return *id >= 0 ? PROA_OK : PROA_FAIL(err, INVALID, "'%s' is missing", key);
}

/* Quantised checkpoints and prefix tuning (pre_seq_len) have tensors of their own. The residual factor is that of 28
 * layers whatever num_layers says: the published class takes it from a default that nothing overrides. */
static proa_status finish_chatglm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    static const char *const none[] = {"quantization_bit", "pre_seq_len"};
    bool two_positions = true;
    for (size_t i = 0; i < PROA_COUNT(none); i++) {
        int64_t value = 0;
        PROA_TRY(proa_json_get_int(&value, json, none[i], 0, INT32_MAX, err));
        if (value)
            return PROA_FAIL(err, UNSUPPORTED, "'%s' %lld is not supported", none[i], (long long)value);
    }
    PROA_TRY(proa_json_get_bool(&two_positions, json, "position_encoding_2d", err));
    if (!two_positions) return PROA_FAIL(err, UNSUPPORTED, "'position_encoding_2d' false is not supported");
    PROA_TRY(read_id(&c->prefix_end, c, json, "bos_token_id", err));
    PROA_TRY(read_id(&c->blank_ids[0], c, json, "gmask_token_id", err));
    PROA_TRY(read_id(&c->blank_ids[1], c, json, "mask_token_id", err));
    c->act = PROA_ACT_GELU_TANH;
    c->stream_scale = sqrt(2 * 28);
    if (c->hidden % (4 * c->heads))
        return PROA_FAIL(err, INVALID, "hidden size %lld is not a multiple of 4 times %lld heads",
                         (long long)c->hidden, (long long)c->heads);
    c->rotary_dim = c->hidden / c->heads / 2;
    c->rope.half = true;
    return proa_config_read_rope(c, json, arena, err);
}

/* clang-format off */
const proa_arch proa_arch_chatglm = {
    .name = "chatglm", .model_type = "chatglm", .hf = STRINGS("ChatGLMModel", "ChatGLMForConditionalGeneration"),
    DECODER(LAYER), .keys = keys, .names = tensors, .ignored = ignored,
    .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finish_chatglm};
/* clang-format on */
