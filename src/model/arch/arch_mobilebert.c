/* SPDX-License-Identifier: Apache-2.0
 * arch_mobilebert.c - MobileBERT: a BERT whose layers work at a narrower width than the residual stream. A product in
 * front of a layer and one behind it change the width; queries and keys read a narrow copy of their own, values read
 * the wide stream; several FFNs follow each other. A norm is a factor and an addend for each column. The embedding of
 * a token is a product of its row of a narrow table and the rows of its two neighbours. Heads: none, masked language
 * model, sequence, token classification, question answering.
 * Facts: Sun et al. 2020; transformers' modeling_mobilebert.py. */
#include "model/arch/bert_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_ENCODER
#define MODEL "mobilebert."
#define LAYER MODEL "encoder.layer.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",               vocab,          VOCAB),
    REQUIRED  ("hidden_size",              hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",        encoder_layers, LAYERS),
    REQUIRED  ("num_attention_heads",      heads,          HEADS),
    REQUIRED  ("intermediate_size",        ffn,            FFN),
    INTEGER   ("embedding_size",           embed,          1, HIDDEN,      128),
    INTEGER   ("intra_bottleneck_size",    narrow,         1, HIDDEN,      128),
    INTEGER   ("num_feedforward_networks", ffns,           1, FFNS,        4),
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,     512),
    INTEGER   ("type_vocab_size",          types,          1, TOKEN_TYPES, 2),
    EPSILON   ("layer_norm_eps",           1e-12),
    ACTIVATION("hidden_act",               RELU),
    SWITCH    ("tie_word_embeddings",      tied,           1),
    END_KEYS};

/* A product, and the factors and addends behind it. */
#define SCALED_PRODUCT(name, SLOT, ROWS, COLS) \
    MATRIX(name ".dense.weight", SLOT,     ROWS, COLS), \
    VECTOR(name ".dense.bias",   SLOT##_B, ROWS),       \
    SCALES(name ".LayerNorm",    SLOT##_NORM, ROWS)
#define SCALES(name, SLOT, ROWS) \
    VECTOR(name ".weight", SLOT,     ROWS), \
    VECTOR(name ".bias",   SLOT##_B, ROWS)
/* FFN `number` of those before the last one, if there are as many. */
#define FFN_BEFORE(COND, number, UP, DOWN, NORM) \
    MATRIX_IF(COND, LAYER "ffn." number ".intermediate.dense.weight", UP,       FFN,    NARROW), \
    VECTOR_IF(COND, LAYER "ffn." number ".intermediate.dense.bias",   UP##_B,   FFN),            \
    MATRIX_IF(COND, LAYER "ffn." number ".output.dense.weight",       DOWN,     NARROW, FFN),    \
    VECTOR_IF(COND, LAYER "ffn." number ".output.dense.bias",         DOWN##_B, NARROW),         \
    VECTOR_IF(COND, LAYER "ffn." number ".output.LayerNorm.weight",   NORM,     NARROW),         \
    VECTOR_IF(COND, LAYER "ffn." number ".output.LayerNorm.bias",     NORM##_B, NARROW)
#define BODY_TENSORS \
    TABLE (MODEL "embeddings.word_embeddings.weight",       TOKENS,    VOCAB,   EMBED),  \
    TABLE (MODEL "embeddings.position_embeddings.weight",   POSITIONS, CONTEXT, HIDDEN), \
    TABLE (MODEL "embeddings.token_type_embeddings.weight", TYPES,     TYPES,   HIDDEN), \
    MATRIX_LOADED(TAPS_TURNED, MODEL "embeddings.embedding_transformation.weight", CONV, HIDDEN, WINDOW), \
    VECTOR(MODEL "embeddings.embedding_transformation.bias", CONV_B,   HIDDEN),          \
    SCALES(MODEL "embeddings.LayerNorm", EMBED_NORM, HIDDEN),                            \
    SCALED_PRODUCT(LAYER "bottleneck.input",     NARROW_IN, NARROW, HIDDEN),             \
    SCALED_PRODUCT(LAYER "bottleneck.attention", NARROW_QK, NARROW, HIDDEN),             \
    MATRIX(LAYER "attention.self.query.weight",   QKV,    Q,      NARROW),               \
    MATRIX(LAYER "attention.self.key.weight",     QKV,    KV,     NARROW),               \
    VECTOR(LAYER "attention.self.query.bias",     QKV_B,  Q),                            \
    VECTOR(LAYER "attention.self.key.bias",       QKV_B,  KV),                           \
    MATRIX(LAYER "attention.self.value.weight",   V,      KV,     HIDDEN),               \
    VECTOR(LAYER "attention.self.value.bias",     V_B,    KV),                           \
    MATRIX(LAYER "attention.output.dense.weight", O,      NARROW, Q),                    \
    VECTOR(LAYER "attention.output.dense.bias",   O_B,    NARROW),                       \
    SCALES(LAYER "attention.output.LayerNorm", ATTN_NORM, NARROW),                       \
    FFN_BEFORE(FFNS_2, "0", UP_1, DOWN_1, FFN_NORM_1),                                   \
    FFN_BEFORE(FFNS_3, "1", UP_2, DOWN_2, FFN_NORM_2),                                   \
    FFN_BEFORE(FFNS_4, "2", UP_3, DOWN_3, FFN_NORM_3),                                   \
    MATRIX(LAYER "intermediate.dense.weight",     UP,     FFN,    NARROW),               \
    VECTOR(LAYER "intermediate.dense.bias",       UP_B,   FFN),                          \
    MATRIX(LAYER "output.dense.weight",           DOWN,   NARROW, FFN),                  \
    VECTOR(LAYER "output.dense.bias",             DOWN_B, NARROW),                       \
    SCALES(LAYER "output.LayerNorm", FFN_NORM, NARROW),                                  \
    SCALED_PRODUCT(LAYER "output.bottleneck",     NARROW_OUT, HIDDEN, NARROW)

static const proa_name bare_tensors[] = {
    BODY_TENSORS, BERT_POOLER(MODEL, IF(PRESENT) | IF(POOLED)), END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS, BERT_POOLER(MODEL, IF(POOLED)), CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name token_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name qa_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
/* The head is the narrow table, and beside it a stored matrix for the rest of what its dense layer makes. */
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    MATRIX   ("cls.predictions.transform.dense.weight",        HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("cls.predictions.transform.dense.bias",          HEAD_DENSE_B, HIDDEN),
    BERT_NORM("cls.predictions.transform.LayerNorm", HEAD_NORM),
    TENSOR   ("cls.predictions.dense.weight", HEAD_REST, TRANSPOSED, VOCAB,  HEAD_REST, IF(PROJECTED)),
    TIED_HEAD_OF(MODEL "embeddings.word_embeddings.weight", EMBED),
    MATRIX_IF(UNTIED, "cls.predictions.decoder.weight",        HEAD,         VOCAB,  EMBED),
    VECTOR   ("cls.predictions.decoder.bias",                  HEAD_B,       VOCAB),
    END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL}, *const aliases[] = {BERT_ALIASES, NULL};
static const char *const ignored[] = {BERT_PRETRAINING, UNUSED_POOLER, "cls.predictions.dense.weight", NULL};
/* What a class that reads every row has no use for; a classifier reads the pooler. */
static const char *const mlm_ignored[] = {
    "position_ids", UNUSED_POOLER, "cls.seq_relationship.weight", "cls.seq_relationship.bias", "cls.predictions.bias",
    "cls.predictions.dense.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias", NULL};

static const proa_step embed[] = {
    EMBED_TO     (E, TOKENS,    0),
    UNFOLD       (E, WINDOWS,   0),
    LINEAR       (WINDOWS, X,   CONV, 0),
    EMBED_TO     (X, POSITIONS, OF_POS | ADD),
    EMBED_TO     (X, TYPES,     OF_TYPE | ADD),
    SCALE_COLUMNS(X, X,         EMBED_NORM),
    END};
/* One of the FFNs: NARROW is what it reads and adds to. */
#define STACKED_FFN(COND, UP_, DOWN_, NORM_) \
    LINEAR       (NARROW, U,      UP_,   ACT | (COND)), \
    LINEAR       (U,      NARROW, DOWN_, ADD | (COND)), \
    SCALE_COLUMNS_IF(COND, NARROW, NARROW, NORM_)
static const proa_step layer[] = {
    LINEAR       (X,      NARROW, NARROW_IN, 0),
    SCALE_COLUMNS(NARROW, NARROW, NARROW_IN_NORM),
    LINEAR       (X,      D,      NARROW_QK, 0),
    SCALE_COLUMNS(D,      D,      NARROW_QK_NORM),
    LINEAR       (D,      QKV,    QKV, 0),
    LINEAR       (X,      QKV,    V,   BEHIND),
    KV_APPEND,
    ATTEND,
    LINEAR       (A,      NARROW, O,   ADD),
    SCALE_COLUMNS(NARROW, NARROW, ATTN_NORM),
    STACKED_FFN  (IF(FFNS_2), UP_1, DOWN_1, FFN_NORM_1),
    STACKED_FFN  (IF(FFNS_3), UP_2, DOWN_2, FFN_NORM_2),
    STACKED_FFN  (IF(FFNS_4), UP_3, DOWN_3, FFN_NORM_3),
    STACKED_FFN  (0,          UP,   DOWN,   FFN_NORM),
    LINEAR       (NARROW, X,      NARROW_OUT, ADD),
    SCALE_COLUMNS(X,      X,      NARROW_OUT_NORM),
    END};
static const proa_step headless[] = NO_HEAD, pool[] = POOLER_HEAD, rows_head[] = ROWS_HEAD;
static const proa_step cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  POOL, TANH | IF(POOLED)),
    LINEAR(HN, OUT, HEAD, IF(POOLED)),
    LINEAR(H,  OUT, HEAD, IF(POOLED_BARE)),
    END};
static const proa_step mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, ACT),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD_REST,  OF_REST | IF(PROJECTED)),
    LINEAR(HN, OUT, HEAD,       ADD | IF(PROJECTED)),
    LINEAR(HN, OUT, HEAD,       IF(PLAIN_EMBED)),
    END};
/* clang-format on */

/* The published models have all of these switches so. */
static proa_status check_switches(const proa_json *json, proa_err *err)
{
    proa_str norm = {"no_norm", 7};
    PROA_TRY(proa_bert_check_switch(json, "trigram_input", true, err));
    PROA_TRY(proa_bert_check_switch(json, "use_bottleneck", true, err));
    PROA_TRY(proa_bert_check_switch(json, "use_bottleneck_attention", false, err));
    PROA_TRY(proa_bert_check_switch(json, "key_query_shared_bottleneck", true, err));
    PROA_TRY(proa_json_get_str(&norm, json, "normalization_type", err));
    if (proa_str_is(norm, "no_norm")) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'normalization_type' '%.*s' is not supported (no_norm is)",
                     (int)proa_min64((int64_t)norm.len, 60), norm.ptr);
}

static proa_status finish_mobilebert(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool activated = true;
    PROA_UNUSED(arena);
    PROA_TRY(check_switches(json, err));
    PROA_TRY(proa_json_get_bool(&activated, json, "classifier_activation", err));
    if (c->narrow % c->heads)
        return PROA_FAIL(err, INVALID, "'intra_bottleneck_size' %lld is not a multiple of %lld heads",
                         (long long)c->narrow, (long long)c->heads);
    if (c->narrow > c->hidden || c->embed > c->hidden)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "'intra_bottleneck_size' %lld or 'embedding_size' %lld above 'hidden_size' %lld is not supported",
            (long long)c->narrow, (long long)c->embed, (long long)c->hidden);
    c->head_dim = c->narrow / c->heads;
    c->conv_width = 3; /* a token and its two neighbours */
    c->bare_pooler = !activated;
    PROA_TRY(proa_config_read_labels(c, json, err));
    return proa_bert_check_positions(json, "absolute", err);
}

/* clang-format off */
#define MOBILEBERT(type, ending, tensors, skipped, heads, rows, outs) \
    .name = type, .hf = STRINGS("MobileBert" ending), .model_type = "mobilebert", .kind = PROA_KIND_ENCODER,     \
    .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes, .aliases = aliases,           \
    .ignored = skipped, .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = heads,                        \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finish_mobilebert

const proa_arch proa_arch_mobilebert = {
    MOBILEBERT("mobilebert", "Model", bare_tensors, ignored, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_mobilebert_cls = {
    MOBILEBERT("mobilebert_cls", "ForSequenceClassification", cls_tensors, ignored, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_mobilebert_token = {
    MOBILEBERT("mobilebert_token", "ForTokenClassification", token_tensors, ignored, rows_head, ALL, LABELS)};
const proa_arch proa_arch_mobilebert_qa = {
    MOBILEBERT("mobilebert_qa", "ForQuestionAnswering", qa_tensors, ignored, rows_head, ALL, LABELS)};
const proa_arch proa_arch_mobilebert_mlm = {
    .name = "mobilebert_mlm", .hf = STRINGS("MobileBertForMaskedLM", "MobileBertForPreTraining"),
    .model_type = "mobilebert", .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER, .keys = keys,
    .names = mlm_tensors, .prefixes = prefixes, .aliases = aliases, .ignored = mlm_ignored,
    .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = mlm_head, .head_rows = PROA_ROWS_ALL,
    .outputs = PROA_DIM_VOCAB, .finish = finish_mobilebert, .embedder = &proa_arch_mobilebert};
/* clang-format on */
