/* SPDX-License-Identifier: Apache-2.0
 * arch_encoder_decoder.c - EncoderDecoderModel (bert2bert, roberta2roberta): an encoder of BERT's family, and one more
 * as its decoder, whose layers also attend to the encoder's output. config.json has an object for each stack. BERT and
 * RoBERTa differ in names, in the row of the first position and in the activation of the head.
 * Facts: transformers' modeling_{encoder_decoder,bert,roberta}.py; Rothe, Narayan, Severyn 2020. */
#include "model/arch/bert_rows.h"

#include "base/checked.h"

#define LAYER         "encoder.encoder.layer.%d."
#define DECODER_BODY  "decoder.bert."
#define DECODER_LAYER DECODER_BODY "encoder.layer.%d."

/* clang-format off */
static const proa_key keys[] = {END_KEYS}; /* all are in the objects of the stacks */
static const proa_key stack_keys[] = {BERT_KEYS(1e-12, 2), END_KEYS};

/* What a stack has. M: what its names begin with, L: those of a layer. */
#define STACK_TENSORS(M, L, POSITION_ROWS, FFN_ROWS) \
    BERT_EMBEDDINGS(M), BERT_POSITIONS(M, POSITION_ROWS), BERT_EMBED_NORM(M),            \
    BERT_ATTENTION(L), BERT_NORM(L "attention.output.LayerNorm", ATTN_NORM),             \
    BERT_FFN_OF(L, FFN_ROWS), BERT_NORM(L "output.LayerNorm", FFN_NORM)
static const proa_name tensors[] = {
#define STACK PROA_STACK_ENCODER
    STACK_TENSORS("encoder.", LAYER, INPUT_POSITIONS, ENCODER_FFN),
#undef STACK
#define STACK PROA_STACK_DECODER
    STACK_TENSORS(DECODER_BODY, DECODER_LAYER, POSITIONS, FFN),
    MATRIX   (DECODER_LAYER "crossattention.self.query.weight",   CROSS_Q,    Q,      HIDDEN),
    VECTOR   (DECODER_LAYER "crossattention.self.query.bias",     CROSS_Q_B,  Q),
    MATRIX   (DECODER_LAYER "crossattention.self.key.weight",     CROSS_KV,   KV,     HIDDEN),
    VECTOR   (DECODER_LAYER "crossattention.self.key.bias",       CROSS_KV_B, KV),
    MATRIX   (DECODER_LAYER "crossattention.self.value.weight",   CROSS_KV,   KV,     HIDDEN),
    VECTOR   (DECODER_LAYER "crossattention.self.value.bias",     CROSS_KV_B, KV),
    MATRIX   (DECODER_LAYER "crossattention.output.dense.weight", CROSS_O,    HIDDEN, Q),
    VECTOR   (DECODER_LAYER "crossattention.output.dense.bias",   CROSS_O_B,  HIDDEN),
    BERT_NORM(DECODER_LAYER "crossattention.output.LayerNorm", CROSS_NORM),
    MATRIX   ("decoder.cls.predictions.transform.dense.weight",   HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("decoder.cls.predictions.transform.dense.bias",     HEAD_DENSE_B, HIDDEN),
    BERT_NORM("decoder.cls.predictions.transform.LayerNorm", HEAD_NORM),
    TIED_HEAD(DECODER_BODY "embeddings.word_embeddings.weight"),
    MATRIX_IF(UNTIED, "decoder.cls.predictions.decoder.weight",   HEAD,         VOCAB, HIDDEN),
    VECTOR   ("decoder.cls.predictions.decoder.bias",             HEAD_B,       VOCAB),
    END_TENSORS};
/* RoBERTa's names. */
static const char *const beginnings[] = {
    DECODER_BODY, "decoder.roberta.",
    "decoder.cls.predictions.transform.LayerNorm.", "decoder.lm_head.layer_norm.",
    "decoder.cls.predictions.transform.", "decoder.lm_head.",
    "decoder.cls.predictions.", "decoder.lm_head.",
    NULL};
static const char *const aliases[] = {BERT_ALIASES, ROBERTA_ALIASES, LAYER_NORM_ALIASES, NULL};
static const char *const ignored[] = {
    BERT_PRETRAINING, ROBERTA_PRETRAINING, UNUSED_POOLER, "embeddings.token_type_ids", NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    EMBED_TO(D, TYPES,     OF_TYPE | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step encoder_layer[] = {POST_NORM_LAYER};
static const proa_step decoder_layer[] = {
    LINEAR(X, QKV, QKV,     0),
    KV_APPEND,
    ATTEND,
    LINEAR(A, D,   O,       ADD_X),
    NORM  (D, X,   ATTN_NORM),
    LINEAR(X, CQ,  CROSS_Q, 0),
    CROSS_ATTEND,
    LINEAR(A, D,   CROSS_O, ADD_X),
    NORM  (D, X,   CROSS_NORM),
    LINEAR(X, U,   UP,      ACT),
    LINEAR(U, D,   DOWN,    ADD_X),
    NORM  (D, X,   FFN_NORM),
    END};
static const proa_step cross[] = {LINEAR(X, CKV, CROSS_KV, 0), CROSS_APPEND, END};
static const proa_step head[] = MLM_HEAD(HEAD_ACT);
/* clang-format on */

static bool is_roberta(proa_str type)
{
    return proa_str_is(type, "roberta") || proa_str_is(type, "xlm-roberta") || proa_str_is(type, "camembert");
}

/* One of the two objects, which says what the config.json of a BERT or a RoBERTa does. */
static proa_status read_stack(proa_config *c, const proa_json *json, const char *name, proa_err *err)
{
    const proa_json *stack = proa_json_get(json, name);
    proa_str type = {"", 0};
    if (proa_json_kind(stack) != PROA_JSON_OBJECT)
        return PROA_FAIL(err, INVALID, "'%s' is missing or no object", name);
    PROA_TRY(proa_json_get_str(&type, stack, "model_type", err));
    if (!proa_str_is(type, "bert") && !is_roberta(type))
        return PROA_FAIL(err, UNSUPPORTED,
                         "'model_type' of '%s' is '%.*s', must be bert, roberta, xlm-roberta or camembert",
                         name, (int)proa_min64((int64_t)type.len, 60), type.ptr);
    PROA_TRY(proa_config_read(c, stack, stack_keys, err));
    PROA_TRY(proa_bert_check_positions(stack, "absolute", err));
    c->head_act = is_roberta(type) ? PROA_ACT_GELU : c->act;
    return is_roberta(type) ? proa_roberta_read_positions(c, stack, 1, err) : PROA_OK;
}

/* The decoder must be one, and attend to the encoder's output. */
static proa_status check_decoder(const proa_json *decoder, proa_err *err)
{
    bool decodes = false, crosses = false;
    PROA_TRY(proa_json_get_bool(&decodes, decoder, "is_decoder", err));
    PROA_TRY(proa_json_get_bool(&crosses, decoder, "add_cross_attention", err));
    if (decodes && crosses) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'decoder' must have 'is_decoder' and 'add_cross_attention' true");
}

static proa_status finish_stacks(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_config encoder = {0};
    PROA_UNUSED(arena);
    PROA_TRY(read_stack(&encoder, json, "encoder", err));
    PROA_TRY(read_stack(c, json, "decoder", err));
    PROA_TRY(check_decoder(proa_json_get(json, "decoder"), err));
    c->layers = c->encoder_layers;
    return proa_config_join_stacks(c, &encoder, encoder.encoder_layers, err);
}

/* clang-format off */
const proa_arch proa_arch_encoder_decoder = {
    .name = "encoder_decoder", .model_type = "encoder-decoder", .hf = STRINGS("EncoderDecoderModel"),
    .kind = PROA_KIND_ENCODER_DECODER, .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors,
    .prefix_aliases = beginnings, .aliases = aliases, .ignored = ignored,
    .stacks = {CAUSAL(embed, decoder_layer), [PROA_STACK_ENCODER] = {embed, encoder_layer, NULL, false}},
    .cross = cross, .head = head, .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_VOCAB, .finish = finish_stacks};
/* clang-format on */
