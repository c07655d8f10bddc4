/* SPDX-License-Identifier: Apache-2.0
 * arch_deberta.c - DeBERTa v1 to v3: post-norm encoder whose attention adds products of the content with relative
 * positions, of queries and of keys ("c2p" and "p2c"). v2 xlarge has a convolution over the embeddings beside the first
 * layer. The first DeBERTa has no buckets of distances, and stores q, k and v in one matrix. Heads: none, masked
 * language model, sequence classification (over the first token), token classification and question answering.
 * Facts: transformers' modeling_{deberta,deberta_v2}.py, 4.57 and 5.17; He et al. 2021. */
#include "model/arch/arch_rows.h"

#include <math.h>
#include <string.h>

#define STACK PROA_STACK_ENCODER
#define LAYER "deberta.encoder.layer.%d."

/* clang-format off */
static const proa_key keys[] = {
    REQUIRED  ("vocab_size",              vocab,             VOCAB),
    REQUIRED  ("hidden_size",             hidden,            HIDDEN),
    REQUIRED  ("num_hidden_layers",       encoder_layers,    LAYERS),
    REQUIRED  ("num_attention_heads",     heads,             HEADS),
    REQUIRED  ("intermediate_size",       ffn,               FFN),
    INTEGER   ("attention_head_size",     head_dim,          1, HEAD_DIM,         0),
    INTEGER   ("max_position_embeddings", context,           1, RELATIVE_CONTEXT, 512),
    INTEGER   ("type_vocab_size",         types,             0, TOKEN_TYPES,      0),
    INTEGER   ("conv_kernel_size",        conv_width,        0, CONV_WIDTH,       0),
    EPSILON   ("layer_norm_eps",          1e-7),
    ACTIVATION("hidden_act",              GELU),
    SWITCH    ("position_biased_input",   learned_positions, 1),
    SWITCH    ("tie_word_embeddings",     tied,              1),
    END_KEYS};

/* The projections of the positions: of queries (p2c), then of keys (c2p). */
#define POSITION_TENSORS \
    TENSOR   ("deberta.encoder.rel_embeddings.weight",         REL_EMBED,  MATRIX, RELATIVE, HIDDEN, PROA_LOAD_ONLY), \
    TENSOR   ("deberta.encoder.LayerNorm.weight",              REL_NORM,   VECTOR, HIDDEN,   NONE,                    \
              PROA_LOAD_ONLY | IF(REL_NORMED)),                                                                       \
    TENSOR   ("deberta.encoder.LayerNorm.bias",                REL_NORM_B, VECTOR, HIDDEN,   NONE,                    \
              PROA_LOAD_ONLY | IF(REL_NORMED)),                                                                       \
    PROJECTED(LAYER "attention.self.query_proj",     IF(REL_SHARED) | IF(REL_QUERIES) | PROA_SHARED), \
    PROJECTED(LAYER "attention.self.key_proj",       IF(REL_SHARED) | IF(REL_KEYS) | PROA_SHARED),    \
    PROJECTED(LAYER "attention.self.pos_query_proj", IF(REL_OWN) | IF(REL_QUERIES)),                  \
    PROJECTED(LAYER "attention.self.pos_key_proj",   IF(REL_OWN) | IF(REL_KEYS))
#define PROJECTED(name, flags) \
    TENSOR(name ".weight", REL,   MATRIX, Q, HIDDEN, PROA_PROJECTED | (flags)), \
    TENSOR(name ".bias",   REL_B, VECTOR, Q, NONE,   PROA_LOAD_ONLY | (flags))
/* The first DeBERTa has q, k and v of each head in one matrix, and no biases of keys and their positions. */
#define V1_ATTENTION \
    TENSOR   ("deberta.encoder.rel_embeddings.weight",  REL_EMBED, MATRIX, RELATIVE, HIDDEN, PROA_LOAD_ONLY), \
    PROJECTED(LAYER "attention.self.pos_q_proj",        IF(REL_QUERIES)),                                     \
    TENSOR   (LAYER "attention.self.pos_proj.weight",   REL,       MATRIX, Q,        HIDDEN,                  \
              PROA_PROJECTED | IF(REL_KEYS)),                                                                 \
    TENSOR_LOADED(ZEROS, LAYER "attention.self.pos_proj.bias", REL_B, VECTOR, Q,     NONE,                    \
              PROA_LOAD_ONLY | IF(REL_KEYS)),                                                                 \
    MATRIX_LOADED(QKV_GROUPS, LAYER "attention.self.in_proj.weight", QKV, QKV, HIDDEN),                       \
    VECTOR   (LAYER "attention.self.q_bias",            QKV_B,     Q),                                        \
    VECTOR_LOADED(ZEROS, LAYER "attention.self.k_bias", QKV_B,     KV),                                       \
    VECTOR   (LAYER "attention.self.v_bias",            QKV_B,     KV)
#define V2_ATTENTION \
    MATRIX   (LAYER "attention.self.query_proj.weight",           QKV,          Q,       HIDDEN), \
    MATRIX   (LAYER "attention.self.key_proj.weight",             QKV,          KV,      HIDDEN), \
    MATRIX   (LAYER "attention.self.value_proj.weight",           QKV,          KV,      HIDDEN), \
    VECTOR   (LAYER "attention.self.query_proj.bias",             QKV_B,        Q),               \
    VECTOR   (LAYER "attention.self.key_proj.bias",               QKV_B,        KV),              \
    VECTOR   (LAYER "attention.self.value_proj.bias",             QKV_B,        KV),              \
    POSITION_TENSORS

/* The arguments: the tensors of attention. */
#define BODY_TENSORS(...) \
    TABLE    ("deberta.embeddings.word_embeddings.weight",        TOKENS,       VOCAB,   HIDDEN), \
    TENSOR   ("deberta.embeddings.position_embeddings.weight",    POSITIONS,    TABLE,   CONTEXT, HIDDEN, \
              IF(LEARNED_POSITIONS)),                                                             \
    TENSOR   ("deberta.embeddings.token_type_embeddings.weight",  TYPES,        TABLE,   TYPES,   HIDDEN, \
              IF(TYPED)),                                                                         \
    VECTOR   ("deberta.embeddings.LayerNorm.weight",              EMBED_NORM,   HIDDEN),          \
    VECTOR   ("deberta.embeddings.LayerNorm.bias",                EMBED_NORM_B, HIDDEN),          \
    __VA_ARGS__,                                                                                  \
    MATRIX   (LAYER "attention.output.dense.weight",              O,            HIDDEN,  Q),      \
    VECTOR   (LAYER "attention.output.dense.bias",                O_B,          HIDDEN),          \
    VECTOR   (LAYER "attention.output.LayerNorm.weight",          ATTN_NORM,    HIDDEN),          \
    VECTOR   (LAYER "attention.output.LayerNorm.bias",            ATTN_NORM_B,  HIDDEN),          \
    MATRIX   (LAYER "intermediate.dense.weight",                  UP,           FFN,     HIDDEN), \
    VECTOR   (LAYER "intermediate.dense.bias",                    UP_B,         FFN),             \
    MATRIX   (LAYER "output.dense.weight",                        DOWN,         HIDDEN,  FFN),    \
    VECTOR   (LAYER "output.dense.bias",                          DOWN_B,       HIDDEN),          \
    VECTOR   (LAYER "output.LayerNorm.weight",                    FFN_NORM,     HIDDEN),          \
    VECTOR   (LAYER "output.LayerNorm.bias",                      FFN_NORM_B,   HIDDEN),          \
    MATRIX_IF(CONVOLVED, "deberta.encoder.conv.conv.weight",      CONV,         HIDDEN,  WINDOW), \
    VECTOR_IF(CONVOLVED, "deberta.encoder.conv.conv.bias",        CONV_B,       HIDDEN),          \
    VECTOR_IF(CONVOLVED, "deberta.encoder.conv.LayerNorm.weight", CONV_NORM,    HIDDEN),          \
    VECTOR_IF(CONVOLVED, "deberta.encoder.conv.LayerNorm.bias",   CONV_NORM_B,  HIDDEN)

#define CLS_HEAD \
    MATRIX("pooler.dense.weight", POOL,   HIDDEN, HIDDEN), \
    VECTOR("pooler.dense.bias",   POOL_B, HIDDEN),         \
    MATRIX("classifier.weight",   HEAD,   LABELS, HIDDEN), \
    VECTOR("classifier.bias",     HEAD_B, LABELS)
#define TOK_HEAD \
    MATRIX("classifier.weight", HEAD,   LABELS, HIDDEN), \
    VECTOR("classifier.bias",   HEAD_B, LABELS)
#define QA_HEAD \
    MATRIX("qa_outputs.weight", HEAD,   LABELS, HIDDEN), \
    VECTOR("qa_outputs.bias",   HEAD_B, LABELS)
#define MLM_HEAD \
    MATRIX   ("cls.predictions.transform.dense.weight",     HEAD_DENSE,   HIDDEN, HIDDEN), \
    VECTOR   ("cls.predictions.transform.dense.bias",       HEAD_DENSE_B, HIDDEN),         \
    VECTOR   ("cls.predictions.transform.LayerNorm.weight", HEAD_NORM,    HIDDEN),         \
    VECTOR   ("cls.predictions.transform.LayerNorm.bias",   HEAD_NORM_B,  HIDDEN),         \
    TIED_HEAD("deberta.embeddings.word_embeddings.weight"),                                \
    MATRIX_IF(UNTIED, "cls.predictions.decoder.weight",     HEAD,         VOCAB,  HIDDEN), \
    VECTOR   ("cls.predictions.decoder.bias",               HEAD_B,       VOCAB)

#define TABLES(FORM, ...) \
    FORM##bare_tensors[] = {BODY_TENSORS(__VA_ARGS__), END_TENSORS},           \
    FORM##cls_tensors[]  = {BODY_TENSORS(__VA_ARGS__), CLS_HEAD, END_TENSORS}, \
    FORM##tok_tensors[]  = {BODY_TENSORS(__VA_ARGS__), TOK_HEAD, END_TENSORS}, \
    FORM##qa_tensors[]   = {BODY_TENSORS(__VA_ARGS__), QA_HEAD, END_TENSORS},  \
    FORM##mlm_tensors[]  = {BODY_TENSORS(__VA_ARGS__), MLM_HEAD, END_TENSORS}
static const proa_name TABLES(v1_, V1_ATTENTION), TABLES(v2_, V2_ATTENTION);
static const char *const prefixes[] = {"deberta.", NULL};
/* The language model head as Microsoft's checkpoints name it, and transformers without `legacy`. */
static const char *const aliases[] = {
    "cls.predictions.transform.dense.weight",     "lm_predictions.lm_head.dense.weight",
    "cls.predictions.transform.dense.bias",       "lm_predictions.lm_head.dense.bias",
    "cls.predictions.transform.LayerNorm.weight", "lm_predictions.lm_head.LayerNorm.weight",
    "cls.predictions.transform.LayerNorm.bias",   "lm_predictions.lm_head.LayerNorm.bias",
    "cls.predictions.decoder.bias",               "cls.predictions.bias", /* the same where the head is tied */
    "cls.predictions.decoder.bias",               "lm_predictions.lm_head.bias",
    NULL};
/* Heads of the pretraining, and a table of positions that v3's checkpoints carry but do not use. */
#define PRETRAINING_REST \
    "position_ids", \
    "embeddings.position_embeddings.weight", \
    "mask_predictions.dense.weight", \
    "mask_predictions.dense.bias", \
    "mask_predictions.LayerNorm.weight", \
    "mask_predictions.LayerNorm.bias", \
    "mask_predictions.classifier.weight", \
    "mask_predictions.classifier.bias", \
    "cls.predictions.decoder.weight", \
    "cls.predictions.decoder.bias"
static const char *const mlm_ignored[] = {
    PRETRAINING_REST, "pooler.dense.weight", "pooler.dense.bias", "cls.predictions.bias", NULL};
static const char *const ignored[] = {
    PRETRAINING_REST,
    "pooler.dense.weight",
    "pooler.dense.bias",
    "lm_predictions.lm_head.dense.weight",
    "lm_predictions.lm_head.dense.bias",
    "lm_predictions.lm_head.LayerNorm.weight",
    "lm_predictions.lm_head.LayerNorm.bias",
    "lm_predictions.lm_head.bias",
    "cls.predictions.transform.dense.weight",
    "cls.predictions.transform.dense.bias",
    "cls.predictions.transform.LayerNorm.weight",
    "cls.predictions.transform.LayerNorm.bias",
    "cls.predictions.bias",
    NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD | IF(LEARNED_POSITIONS)),
    EMBED_TO(D, TYPES,     OF_TYPE | ADD | IF(TYPED)),
    NORM_IF (CONVOLVED, D, KEPT, EMBED_NORM),
    NORM    (D, X, EMBED_NORM),
    END};
static const proa_step layer[] = {
    LINEAR (X, QKV, QKV,  0),
    ATTEND,
    LINEAR (A, D,   O,    ADD_X),
    NORM   (D, X,   ATTN_NORM),
    LINEAR (X, U,   UP,   ACT),
    LINEAR (U, D,   DOWN, ADD_X),
    NORM   (D, X,   FFN_NORM),
    UNFOLD (KEPT, WINDOWS,         IF(FIRST_LAYER) | IF(CONVOLVED)),
    LINEAR (WINDOWS, D, CONV, ADD_X | CONV_ACT | IF(FIRST_LAYER) | IF(CONVOLVED)),
    STEP   (NORM, D, X, CONV_NORM, IF(FIRST_LAYER) | IF(CONVOLVED)),
    END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step cls_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  POOL, HEAD_ACT),
    LINEAR(HN, OUT, HEAD, 0),
    END};
static const proa_step tok_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step mlm_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, ACT),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD,       0),
    END};
/* clang-format on */

/* pos_att_type is "p2c|c2p", one of both, or a list of them. Scores are divided by the square root of the number of
 * their terms, too. */
static proa_status read_terms(proa_config *c, const proa_json *json, proa_err *err)
{
    const proa_json *types = proa_json_get(json, "pos_att_type");
    proa_str text = proa_json_str(types);
    bool c2p = proa_str_is(text, "c2p"), p2c = proa_str_is(text, "p2c");
    if (proa_str_is(text, "p2c|c2p") || proa_str_is(text, "c2p|p2c")) c2p = p2c = true;
    for (int64_t i = 0; i < proa_json_len(types) && i < 2; i++) {
        c2p = c2p || proa_str_is(proa_json_str(proa_json_at(types, i)), "c2p");
        p2c = p2c || proa_str_is(proa_json_str(proa_json_at(types, i)), "p2c");
    }
    if (!c2p && !p2c)
        return PROA_FAIL(err, UNSUPPORTED,
                         "a DeBERTa must have 'relative_attention' and c2p or p2c in 'pos_att_type'");
    c->relative.used = true;
    c->relative.queries = p2c;
    c->relative.keys_alone = !c2p;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    if (c->head_dim > 0) c->attention_scale = 1 / sqrt((1.0 + c2p + p2c) * (double)c->head_dim);
    return PROA_OK;
}

static proa_status read_position_norm(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str norm = {"none", 4};
    PROA_TRY(proa_json_get_str(&norm, json, "norm_rel_ebd", err));
    c->relative.normed = proa_str_is(norm, "layer_norm");
    if (c->relative.normed || proa_str_is(norm, "none")) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'norm_rel_ebd' '%.*s' is not supported (layer_norm, none are)",
                     (int)norm.len, norm.ptr);
}

/* Without buckets there is a position for each distance up to max_relative_positions. */
static proa_status read_relative(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t most = -1, buckets = -1;
    bool relative = false, shared = false;
    PROA_TRY(proa_json_get_bool(&relative, json, "relative_attention", err));
    PROA_TRY(proa_json_get_bool(&shared, json, "share_att_key", err));
    PROA_TRY(proa_json_get_int(&most, json, "max_relative_positions", -1, PROA_RELATIVE_CONTEXT_MAX, err));
    PROA_TRY(proa_json_get_int(&buckets, json, "position_buckets", -1, PROA_RELATIVE_CONTEXT_MAX, err));
    PROA_TRY(read_terms(c, relative ? json : NULL, err));
    if (most < 1) most = c->context;
    c->relative.own = !shared;
    c->relative.span = buckets > 0 ? buckets : most;
    c->relative.distance = buckets > 0 ? most : 0;
    if (buckets > 0 && (buckets < 2 || most - 1 <= buckets / 2))
        return PROA_FAIL(err, INVALID, "'position_buckets' %lld must be 2 to twice the %lld relative positions",
                         (long long)buckets, (long long)most);
    return read_position_norm(c, json, err);
}

/* There are no buckets. */
static proa_status read_v1_relative(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t most = -1;
    bool relative = false;
    PROA_TRY(proa_json_get_bool(&relative, json, "relative_attention", err));
    PROA_TRY(proa_json_get_int(&most, json, "max_relative_positions", -1, PROA_RELATIVE_CONTEXT_MAX, err));
    c->relative.span = most < 1 ? c->context : most;
    return read_terms(c, relative ? json : NULL, err);
}

static proa_status read_convolution(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t groups = 1;
    PROA_TRY(proa_config_read_act(&c->conv_act, json, "conv_act", PROA_ACT_TANH, err));
    PROA_TRY(proa_json_get_int(&groups, json, "conv_groups", 1, PROA_HIDDEN_MAX, err));
    if (c->conv_width > 0 && (c->conv_width % 2 == 0 || groups != 1))
        return PROA_FAIL(err, UNSUPPORTED, "a convolution of %lld rows in %lld groups is not supported",
                         (long long)c->conv_width, (long long)groups);
    return PROA_OK;
}

/* Sizes that may differ from the hidden size in transformers, but do in no known model. */
static proa_status check_hidden(const proa_config *c, const proa_json *json, proa_err *err)
{
    static const char *const names[] = {"embedding_size", "pooler_hidden_size"};
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        int64_t size = c->hidden;
        PROA_TRY(proa_json_get_int(&size, json, names[i], 1, PROA_HIDDEN_MAX, err));
        if (size != c->hidden)
            return PROA_FAIL(err, UNSUPPORTED, "'%s' %lld differs from the hidden size %lld", names[i],
                             (long long)size, (long long)c->hidden);
    }
    return PROA_OK;
}

static proa_status finish_both(proa_config *c, const proa_json *json, proa_err *err)
{
    PROA_TRY(check_hidden(c, json, err));
    PROA_TRY(proa_config_read_labels(c, json, err));
    PROA_TRY(proa_config_read_act(&c->head_act, json, "pooler_hidden_act", PROA_ACT_GELU, err));
    return proa_config_check_relative(c, err);
}

static proa_status finish_v2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    PROA_TRY(read_convolution(c, json, err));
    PROA_TRY(read_relative(c, json, err));
    return finish_both(c, json, err);
}

/* It has no convolution. */
static proa_status finish_v1(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool talking = false;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_bool(&talking, json, "talking_head", err));
    if (talking) return PROA_FAIL(err, UNSUPPORTED, "'talking_head' true is not supported");
    c->conv_width = 0;
    PROA_TRY(read_v1_relative(c, json, err));
    return finish_both(c, json, err);
}

/* clang-format off */
/* The rest: the row without a head, and the other classes of the row. */
#define ROW(NAME, TYPE, CLASS, FORM, TENSORS, IGNORED, HEAD, ROWS, OUTPUTS, ...)                                      \
    {.name = NAME, .model_type = TYPE, .hf = STRINGS(CLASS), .kind = PROA_KIND_ENCODER,                               \
     .norm = PROA_NORM_LAYER, .keys = keys, .names = FORM##_##TENSORS, .prefixes = prefixes, .aliases = aliases,      \
     .ignored = IGNORED, .stacks = {[STACK] = {embed, layer, NULL, false}}, .head = HEAD,                             \
     .head_rows = PROA_ROWS_##ROWS, .outputs = PROA_DIM_##OUTPUTS, .finish = finish_##FORM, .embedder = __VA_ARGS__}
#define V1(NAME, ENDING, ...) ROW(NAME, "deberta",    "Deberta" ENDING,   v1, __VA_ARGS__)
#define V2(NAME, ENDING, ...) ROW(NAME, "deberta-v2", "DebertaV2" ENDING, v2, __VA_ARGS__)
#define HEADLESS(M, NAME)     M(NAME, "Model", bare_tensors, ignored, headless, ALL, HIDDEN, NULL)
#define SEQUENCES(M, NAME, ...) \
    M(NAME, "ForSequenceClassification", cls_tensors, ignored, cls_head, FIRST, LABELS, __VA_ARGS__)
#define EACH_TOKEN(M, NAME)   M(NAME, "ForTokenClassification", tok_tensors, ignored, tok_head, ALL, LABELS, NULL)
#define ANSWERS(M, NAME)      M(NAME, "ForQuestionAnswering", qa_tensors, ignored, tok_head, ALL, LABELS, NULL)
#define MASKED(M, NAME, BARE) M(NAME, "ForMaskedLM", mlm_tensors, mlm_ignored, mlm_head, ALL, VOCAB, BARE)

const proa_arch proa_arch_deberta        = HEADLESS  (V2, "deberta");
const proa_arch proa_arch_deberta_cls    = SEQUENCES (V2, "deberta_cls", NULL, FORMS(CHOICES, "DebertaV2"));
const proa_arch proa_arch_deberta_tok    = EACH_TOKEN(V2, "deberta_tok");
const proa_arch proa_arch_deberta_qa     = ANSWERS   (V2, "deberta_qa");
const proa_arch proa_arch_deberta_mlm    = MASKED    (V2, "deberta_mlm", &proa_arch_deberta);
const proa_arch proa_arch_deberta_v1     = HEADLESS  (V1, "deberta_v1");
const proa_arch proa_arch_deberta_v1_cls = SEQUENCES (V1, "deberta_v1_cls", NULL);
const proa_arch proa_arch_deberta_v1_tok = EACH_TOKEN(V1, "deberta_v1_tok");
const proa_arch proa_arch_deberta_v1_qa  = ANSWERS   (V1, "deberta_v1_qa");
const proa_arch proa_arch_deberta_v1_mlm = MASKED    (V1, "deberta_v1_mlm", &proa_arch_deberta_v1);
/* clang-format on */
