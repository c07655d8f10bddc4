/* SPDX-License-Identifier: Apache-2.0
 * arch_opennmt.c - OpenNMT-py's transformer: encoder and decoder with pre-norm LayerNorm and a norm after each stack.
 * Embeddings are scaled by sqrt(d); positions are sinusoids, sine and cosine in turn. The generator has a matrix of its
 * own, a copy of the embedding if these are shared. The configuration is the checkpoint's `opt`, with the sizes of its
 * vocabularies and of its table of positions. Names are those of OpenNMT-py 3, with those of 1 and 2 as aliases.
 * Facts: OpenNMT-py's onmt/encoders/transformer.py, decoders/transformer.py, modules/embeddings.py, opts.py. */
#include "model/arch/arch_rows.h"

#include <math.h>

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED("src_vocab_size",          vocab,   VOCAB),
    REQUIRED("heads",                   heads,   HEADS),
    REQUIRED("transformer_ff",          ffn,     FFN),
    INTEGER ("max_position_embeddings", context, 1, CONTEXT, 5000),
    EPSILON ("norm_eps",                1e-6),
    SWITCH  ("add_qkvbias",             attention_bias, 1), /* before version 3 always */
    SWITCH  ("add_ffnbias",             mlp_bias,       1),
    END_KEYS};

#define ATTENTION_TENSORS(part, Q_SLOT, KV_SLOT, O_SLOT) \
    MATRIX   (part ".linear_query.weight",             Q_SLOT,      Q,      HIDDEN), \
    VECTOR_IF(ATTN_BIAS, part ".linear_query.bias",    Q_SLOT##_B,  Q),              \
    MATRIX   (part ".linear_keys.weight",              KV_SLOT,     KV,     HIDDEN), \
    VECTOR_IF(ATTN_BIAS, part ".linear_keys.bias",     KV_SLOT##_B, KV),             \
    MATRIX   (part ".linear_values.weight",            KV_SLOT,     KV,     HIDDEN), \
    VECTOR_IF(ATTN_BIAS, part ".linear_values.bias",   KV_SLOT##_B, KV),             \
    MATRIX   (part ".final_linear.weight",             O_SLOT,      HIDDEN, Q),      \
    VECTOR_IF(ATTN_BIAS, part ".final_linear.bias",    O_SLOT##_B,  HIDDEN)
#define NORM_TENSORS(name, SLOT) \
    VECTOR(name ".weight", SLOT,     HIDDEN), \
    VECTOR(name ".bias",   SLOT##_B, HIDDEN)
/* w_1 is the gate of a gated FFN, w_3 what it multiplies. */
#define FFN_TENSORS(part) \
    NORM_TENSORS(part ".layer_norm",          FFN_NORM),            \
    MATRIX      (part ".w_1.weight",          UP,     FFN, HIDDEN), \
    MATRIX_IF   (GATED, part ".w_3.weight",   UP,     FFN, HIDDEN), \
    VECTOR_IF   (MLP_BIAS, part ".w_1.bias",  UP_B,   FFN),         \
    TENSOR      (part ".w_3.bias", UP_B, VECTOR, FFN, NONE, IF(GATED) | IF(MLP_BIAS)), \
    MATRIX      (part ".w_2.weight",          DOWN,   HIDDEN, FFN), \
    VECTOR_IF   (MLP_BIAS, part ".w_2.bias",  DOWN_B, HIDDEN)

#define TOKENS_OF(stack) stack ".embeddings.make_embedding.emb_luts.0.weight"
#define POSITIONS_OF(stack) stack ".embeddings.make_embedding.pe.pe"
#define ENCODER_LAYER "encoder.transformer.%d."
#define DECODER_LAYER "decoder.transformer_layers.%d."
static const proa_name tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE            (TOKENS_OF("encoder"),         TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS  (PAIRS, POSITIONS_OF("encoder"), 0),
    NORM_TENSORS     (ENCODER_LAYER "layer_norm",   ATTN_NORM),
    ATTENTION_TENSORS(ENCODER_LAYER "self_attn",    QKV, QKV, O),
    FFN_TENSORS      (ENCODER_LAYER "feed_forward"),
    NORM_TENSORS     ("encoder.layer_norm",         FINAL_NORM),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE            (TOKENS_OF("decoder"),         TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS  (PAIRS, POSITIONS_OF("decoder"), PROA_SHARED),
    NORM_TENSORS     (DECODER_LAYER "layer_norm_1", ATTN_NORM),
    ATTENTION_TENSORS(DECODER_LAYER "self_attn",    QKV, QKV, O),
    NORM_TENSORS     (DECODER_LAYER "layer_norm_2", CROSS_NORM),
    ATTENTION_TENSORS(DECODER_LAYER "context_attn", CROSS_Q, CROSS_KV, CROSS_O),
    FFN_TENSORS      (DECODER_LAYER "feed_forward"),
    NORM_TENSORS     ("decoder.layer_norm",         FINAL_NORM),
    MATRIX           ("generator.weight",           HEAD,   VOCAB, HIDDEN),
    VECTOR           ("generator.bias",             HEAD_B, VOCAB),
#undef STACK
    END_TENSORS};
static const char *const aliases[] = {
    "generator.weight", "generator.0.weight",
    "generator.bias",   "generator.0.bias",
    ".weight",          ".a_2", /* LayerNorm before version 1 */
    ".bias",            ".b_2",
    NULL};
/* The mask of later positions, which early versions stored. */
static const char *const ignored[] = {".mask", NULL};

static const proa_step embed[] = {
    EMBED_TO(X, TOKENS,    SCALED | EXACT),
    EMBED_TO(X, POSITIONS, OF_POS | ADD),
    END};
#define SELF_ATTENTION \
    NORM  (X, N,   ATTN_NORM), \
    LINEAR(N, QKV, QKV, 0),    \
    KV_APPEND,                 \
    ATTEND,                    \
    LINEAR(A, X,   O,   ADD)
#define CROSS_ATTENTION \
    NORM  (X, N,  CROSS_NORM),  \
    LINEAR(N, CQ, CROSS_Q, 0),  \
    CROSS_ATTEND,               \
    LINEAR(A, X,  CROSS_O, ADD)
#define PLAIN_OR_GATED_FFN \
    NORM        (X, N, FFN_NORM),              \
    LINEAR      (N, U, UP,   IF(PLAIN) | ACT), \
    LINEAR      (U, X, DOWN, IF(PLAIN) | ADD), \
    LINEAR_GATED(N, F, UP,   IF(GATED)),       \
    LINEAR      (F, X, DOWN, IF(GATED) | ADD)
static const proa_step encoder_layer[] = {SELF_ATTENTION, PLAIN_OR_GATED_FFN, END};
static const proa_step decoder_layer[] = {SELF_ATTENTION, CROSS_ATTENTION, PLAIN_OR_GATED_FFN, END};
static const proa_step encoder_after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step cross[] = {LINEAR(X, CKV, CROSS_KV, 0), CROSS_APPEND, END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* The first of these members that is above zero: sizes moved between versions, and -1 says "see the other one". */
static proa_status read_size(int64_t *out, const proa_json *json, const char *const *names, int64_t most,
                             proa_err *err)
{
    *out = 0;
    for (const char *const *name = names; *name && *out <= 0; name++)
        PROA_TRY(proa_json_get_int(out, json, *name, -1, most, err));
    if (*out > 0) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'%s' is missing", names[0]);
}

static proa_status read_sizes(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t width = 0, target = c->vocab;
    PROA_TRY(read_size(&c->hidden, json, STRINGS("enc_hid_size", "rnn_size", "enc_rnn_size", "hidden_size"),
                       PROA_HIDDEN_MAX, err));
    PROA_TRY(read_size(&width, json, STRINGS("dec_hid_size", "rnn_size", "dec_rnn_size", "hidden_size"),
                       PROA_HIDDEN_MAX, err));
    PROA_TRY(read_size(&c->encoder_layers, json, STRINGS("enc_layers", "layers"), PROA_LAYERS_MAX, err));
    PROA_TRY(read_size(&c->layers, json, STRINGS("dec_layers", "layers"), PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&target, json, "tgt_vocab_size", 1, PROA_VOCAB_MAX, err));
    if (width != c->hidden)
        return PROA_FAIL(err, UNSUPPORTED, "the decoder is %lld wide, the encoder %lld: not supported",
                         (long long)width, (long long)c->hidden);
    if (target == c->vocab) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'tgt_vocab_size' %lld is not 'src_vocab_size' %lld: not supported",
                     (long long)target, (long long)c->vocab);
}

/* Members that must have one of two values where they are set; everything else is another model. */
static proa_status check_text(const proa_json *json, const char *key, const char *a, const char *b, proa_err *err)
{
    proa_str have = proa_str_c(a);
    PROA_TRY(proa_json_get_str(&have, json, key, err));
    if (proa_str_is(have, a) || proa_str_is(have, b)) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' '%.*s' is not supported", key, (int)have.len, have.ptr);
}

static proa_status check_form(const proa_json *json, proa_err *err)
{
    static const char *const off[] = {"parallel_residual", "multiquery", "copy_attn"};
    bool positions = true;
    int64_t relative = 0, kv_heads = 0;
    PROA_TRY(check_text(json, "encoder_type", "transformer", "transformer", err));
    PROA_TRY(check_text(json, "decoder_type", "transformer", "transformer", err));
    PROA_TRY(check_text(json, "self_attn_type", "scaled-dot", "scaled-dot-flash", err));
    PROA_TRY(check_text(json, "layer_norm", "standard", "standard", err));
    PROA_TRY(check_text(json, "position_encoding_type", "SinusoidalInterleaved", "SinusoidalInterleaved", err));
    PROA_TRY(check_text(json, "generator_function", "softmax", "softmax", err));
    PROA_TRY(proa_json_get_bool(&positions, json, "position_encoding", err));
    if (!positions) return PROA_FAIL(err, UNSUPPORTED, "'position_encoding' false is not supported");
    for (size_t i = 0; i < PROA_COUNT(off); i++) {
        bool on = false;
        PROA_TRY(proa_json_get_bool(&on, json, off[i], err));
        if (on) return PROA_FAIL(err, UNSUPPORTED, "'%s' true is not supported", off[i]);
    }
    PROA_TRY(proa_json_get_int(&relative, json, "max_relative_positions", INT32_MIN, INT32_MAX, err));
    PROA_TRY(proa_json_get_int(&kv_heads, json, "num_kv", 0, PROA_HEADS_MAX, err));
    if (relative == 0 && kv_heads == 0) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' %lld is not supported",
                     relative ? "max_relative_positions" : "num_kv",
                     (long long)(relative ? relative : kv_heads));
}

static proa_status finish_opennmt(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    proa_str act = {"relu", 4};
    PROA_TRY(read_sizes(c, json, err));
    PROA_TRY(check_form(json, err));
    PROA_TRY(proa_json_get_str(&act, json, "pos_ffn_activation_fn", err));
    c->gated = proa_str_is(act, "silu") || proa_str_is(act, "gated-gelu");
    if (proa_str_is(act, "gated-gelu")) act = proa_str_c("gelu");
    if (!proa_act_find(act, &c->act))
        return PROA_FAIL(err, UNSUPPORTED, "'pos_ffn_activation_fn': unknown activation '%.*s'", (int)act.len,
                         act.ptr);
    c->embed_scale = sqrt((double)c->hidden);
    return PROA_OK;
}

const proa_arch proa_arch_opennmt = {
    .name = "opennmt",
    .model_type = "opennmt",
    .hf = STRINGS("OpenNMTTransformer"),
    .kind = PROA_KIND_ENCODER_DECODER,
    .norm = PROA_NORM_LAYER,
    .keys = keys,
    .names = tensors,
    .aliases = aliases,
    .ignored = ignored,
    .stacks = {[PROA_STACK_DECODER] = {embed, decoder_layer, NULL, true},
               [PROA_STACK_ENCODER] = {embed, encoder_layer, encoder_after, false}},
    .cross = cross,
    .head = head,
    .head_rows = PROA_ROWS_LAST,
    .outputs = PROA_DIM_VOCAB,
    .finish = finish_opennmt};
