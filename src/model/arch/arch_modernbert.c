/* SPDX-License-Identifier: Apache-2.0
 * arch_modernbert.c - ModernBERT: pre-norm encoder with rotary positions, gated GELU and no biases. Every few layers
 * attention is global; between these it is local, to both sides, with rotary frequencies of its own. The first layer
 * reads the normed embeddings without another norm. Heads: none, masked language model, sequence and token
 * classification, question answering. ModernBertDecoder (Ettin) has the same layers, which are causal, as a decoder.
 * Facts: transformers' modeling_modernbert.py, 4.57 and 5.17 (which names the layer types and the two thetas anew),
 * and modeling_modernbert_decoder.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_ENCODER
#define LAYER "model.layers.%d."

/* clang-format off */
/* COUNT: the field for the number of layers. */
#define KEYS(COUNT) \
    REQUIRED  ("vocab_size",              vocab,          VOCAB),        \
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),       \
    REQUIRED  ("num_hidden_layers",       COUNT,          LAYERS),       \
    REQUIRED  ("num_attention_heads",     heads,          HEADS),        \
    REQUIRED  ("intermediate_size",       ffn,            FFN),          \
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 8192), \
    EPSILON   ("norm_eps",                1e-5),                         \
    ACTIVATION("hidden_activation",       GELU),                         \
    SWITCH    ("attention_bias",          attention_bias, 0),            \
    SWITCH    ("mlp_bias",                mlp_bias,       0),            \
    SWITCH    ("tie_word_embeddings",     tied,           1)
static const proa_key keys[] = {KEYS(encoder_layers), END_KEYS};
static const proa_key decoder_keys[] = {KEYS(layers), PAD(50283), END_KEYS};

#define BODY_TENSORS \
    TABLE    ("model.embeddings.tok_embeddings.weight",  TOKENS,       VOCAB,   HIDDEN), \
    VECTOR   ("model.embeddings.norm.weight",            EMBED_NORM,   HIDDEN),          \
    VECTOR_IF(PRESENT, "model.embeddings.norm.bias",     EMBED_NORM_B, HIDDEN),          \
    TENSOR   (LAYER "attn_norm.weight",                  ATTN_NORM,    VECTOR,  HIDDEN, NONE, IF(LATER_LAYERS)), \
    TENSOR   (LAYER "attn_norm.bias",                    ATTN_NORM_B,  VECTOR,  HIDDEN, NONE, \
              IF(LATER_LAYERS) | IF(PRESENT)),                                                       \
    MATRIX   (LAYER "attn.Wo.weight",                    O,            HIDDEN,  Q),      \
    VECTOR_IF(ATTN_BIAS, LAYER "attn.Wo.bias",           O_B,          HIDDEN),          \
    VECTOR   (LAYER "mlp_norm.weight",                   FFN_NORM,     HIDDEN),          \
    VECTOR_IF(PRESENT, LAYER "mlp_norm.bias",            FFN_NORM_B,   HIDDEN),          \
    MATRIX   (LAYER "mlp.Wi.weight",                     UP,           GATE_UP, HIDDEN), \
    VECTOR_IF(MLP_BIAS, LAYER "mlp.Wi.bias",             UP_B,         GATE_UP),         \
    MATRIX   (LAYER "mlp.Wo.weight",                     DOWN,         HIDDEN,  FFN),    \
    VECTOR_IF(MLP_BIAS, LAYER "mlp.Wo.bias",             DOWN_B,       HIDDEN),          \
    VECTOR   ("model.final_norm.weight",                 FINAL_NORM,   HIDDEN),          \
    VECTOR_IF(PRESENT, "model.final_norm.bias",          FINAL_NORM_B, HIDDEN)
#define FUSED_QKV \
    MATRIX   (LAYER "attn.Wqkv.weight",                  QKV,          QKV,     HIDDEN), \
    VECTOR_IF(ATTN_BIAS, LAYER "attn.Wqkv.bias",         QKV_B,        QKV)
#define SPLIT_QKV \
    MATRIX   (LAYER "attn.q_proj.weight",                QKV,          Q,       HIDDEN), \
    MATRIX   (LAYER "attn.k_proj.weight",                QKV,          KV,      HIDDEN), \
    MATRIX   (LAYER "attn.v_proj.weight",                QKV,          KV,      HIDDEN), \
    VECTOR_IF(ATTN_BIAS, LAYER "attn.q_proj.bias",       QKV_B,        Q),               \
    VECTOR_IF(ATTN_BIAS, LAYER "attn.k_proj.bias",       QKV_B,        KV),              \
    VECTOR_IF(ATTN_BIAS, LAYER "attn.v_proj.bias",       QKV_B,        KV)
/* M: what their names begin with. */
#define TRANSFORM_TENSORS(M) \
    MATRIX   (M "dense.weight",              HEAD_DENSE,   HIDDEN, HIDDEN), \
    VECTOR_IF(PRESENT, M "dense.bias",     HEAD_DENSE_B, HIDDEN),         \
    VECTOR   (M "norm.weight",               HEAD_NORM,    HIDDEN),         \
    VECTOR_IF(PRESENT, M "norm.bias",        HEAD_NORM_B,  HIDDEN)

static const proa_name bare_tensors[] = {BODY_TENSORS, FUSED_QKV, END_TENSORS};
static const proa_name mlm_tensors[] = {
    BODY_TENSORS,
    FUSED_QKV,
    TRANSFORM_TENSORS("head."),
    TIED_HEAD("model.embeddings.tok_embeddings.weight"),
    MATRIX_IF(UNTIED, "decoder.weight", HEAD,   VOCAB, HIDDEN),
    VECTOR_IF(PRESENT, "decoder.bias",  HEAD_B, VOCAB),
    END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS,
    FUSED_QKV,
    TRANSFORM_TENSORS("head."),
    MATRIX("classifier.weight", HEAD,   LABELS, HIDDEN),
    VECTOR("classifier.bias",   HEAD_B, LABELS),
    END_TENSORS};
#undef STACK
#define STACK PROA_STACK_DECODER
static const proa_name decoder_tensors[] = {
    BODY_TENSORS,
    SPLIT_QKV,
    TRANSFORM_TENSORS("lm_head."),
    TIED_HEAD("model.embeddings.tok_embeddings.weight"),
    MATRIX_IF(UNTIED, "decoder.weight", HEAD,   VOCAB, HIDDEN),
    VECTOR_IF(PRESENT, "decoder.bias",  HEAD_B, VOCAB),
    END_TENSORS};
#undef STACK
#define STACK PROA_STACK_ENCODER
/* The names of its classifier of texts. */
static const char *const decoder_aliases[] = {
    "lm_head.dense.weight", "head.dense.weight", "lm_head.dense.bias", "head.dense.bias",
    "lm_head.norm.weight", "head.norm.weight", "lm_head.norm.bias", "head.norm.bias",
    "score.weight", "classifier.weight", "score.bias", "classifier.bias", NULL};
static const char *const prefixes[] = {"model.", NULL};
/* Parts of the pretraining head, which a checkpoint of that model has. */
static const char *const ignored[] = {
    "head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias",
    "decoder.weight", "decoder.bias", "rotary_emb.inv_freq", NULL};

static const char *const decoder_ignored[] = {
    "lm_head.dense.weight", "lm_head.dense.bias", "lm_head.norm.weight", "lm_head.norm.bias",
    "decoder.weight", "decoder.bias", "rotary_emb.inv_freq", NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS, 0),
    NORM(D, X, EMBED_NORM),
    ROPE_TABLE,
    LOCAL_ROPE_TABLE,
    END};
static const proa_step layer[] = {
    LINEAR      (X, QKV, QKV, IF(FIRST_LAYER)),
    STEP(NORM,   X, N, ATTN_NORM, IF(LATER_LAYERS)),
    LINEAR      (N, QKV, QKV, IF(LATER_LAYERS)),
    ROTATE,
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X, O,    ADD),
    NORM        (X, N, FFN_NORM),
    LINEAR_GATED(N, F, UP,   0),
    LINEAR      (F, X, DOWN, ADD),
    END};
static const proa_step after[] = {NORM(X, X, FINAL_NORM), SPAN_MEAN(X, MEANS, IF(OF_MEAN)), END};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step head[] = {
    STEP_BARE(GATHER, X, H, IF(OF_ROW)),
    STEP_BARE(GATHER, MEANS, H, IF(OF_MEAN)),
    LINEAR(H,  HN,  HEAD_DENSE, HEAD_ACT),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD,       0),
    END};
static const proa_step decoder_head[] = {
    GATHER(H),
    NORM  (H,  H,   FINAL_NORM),
    LINEAR(H,  HN,  HEAD_DENSE, HEAD_ACT),
    NORM  (HN, HN,  HEAD_NORM),
    LINEAR(HN, OUT, HEAD,       0),
    END};
/* clang-format on */

/* Before transformers 5 every n-th layer is global, the first one included. */
static void read_layer_period(proa_config *c, int64_t every)
{
    for (int64_t i = 0; i < c->layers + c->encoder_layers; i++) c->window_layers[i] = i % every != 0;
}

/* local_attention counts the positions of both sides; a local layer sees half of it to each, and its own. One of the
 * decoder sees half of it, its own among them. */
static proa_status read_local_attention(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t local = 128, every = 3;
    bool decoder = c->layers > 0;
    if (decoder && proa_config_is_null(json, "local_attention"))
        return PROA_FAIL(err, UNSUPPORTED, "'local_attention' null is not supported");
    PROA_TRY(proa_json_get_int(&local, json, "local_attention", decoder ? 2 : 1, PROA_CONTEXT_MAX - 2, err));
    PROA_TRY(proa_json_get_int(&every, json, "global_attn_every_n_layers", 1, PROA_LAYERS_MAX, err));
    c->window = local / 2 + !decoder;
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    if (decoder) c->window = local / 2; /* whatever 'sliding_window' says */
    if (!proa_json_get(json, "layer_types")) read_layer_period(c, every);
    return PROA_OK;
}

static proa_status finish_base(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    PROA_TRY(proa_config_read_labels(c, json, err));
    c->rotary_dim = c->hidden / c->heads;
    c->rope.theta = 160000;
    c->local_rope.theta = 10000;
    PROA_TRY(proa_json_get_double(&c->rope.theta, json, "global_rope_theta", 1, 1e12, err));
    PROA_TRY(proa_json_get_double(&c->local_rope.theta, json, "local_rope_theta", 1, 1e12, err));
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    PROA_TRY(proa_config_read_act(&c->head_act, json, "classifier_activation", PROA_ACT_GELU, err));
    return read_local_attention(c, json, arena, err);
}

static proa_status finish_cls(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str pooling = {"cls", 3};
    PROA_TRY(proa_json_get_str(&pooling, json, "classifier_pooling", err));
    c->head_of_mean = proa_str_is(pooling, "mean");
    if (!c->head_of_mean && !proa_str_is(pooling, "cls"))
        return PROA_FAIL(err, UNSUPPORTED, "'classifier_pooling' '%.*s' is not supported (cls, mean are)",
                         (int)pooling.len, pooling.ptr);
    return finish_base(c, json, arena, err);
}

/* clang-format off */
/* The rest: the row without a head, and the other classes of the row. */
#define ROW(NAME, CLASS, TENSORS, HEAD, ROWS, OUTPUTS, FINISH, ...)                                            \
    {.name = NAME, .model_type = "modernbert", .hf = STRINGS(CLASS), .kind = PROA_KIND_ENCODER,                \
     .norm = PROA_NORM_LAYER, .keys = keys, .names = TENSORS, .prefixes = prefixes, .ignored = ignored,        \
     .stacks = {[STACK] = {embed, layer, after, false}}, .head = HEAD, .head_rows = PROA_ROWS_##ROWS,          \
     .outputs = PROA_DIM_##OUTPUTS, .finish = FINISH, .embedder = __VA_ARGS__}

const proa_arch proa_arch_modernbert =
    ROW("modernbert", "ModernBertModel", bare_tensors, headless, ALL, HIDDEN, finish_base, NULL);
const proa_arch proa_arch_modernbert_mlm =
    ROW("modernbert_mlm", "ModernBertForMaskedLM", mlm_tensors, head, ALL, VOCAB, finish_base,
        &proa_arch_modernbert);
const proa_arch proa_arch_modernbert_cls =
    ROW("modernbert_cls", "ModernBertForSequenceClassification", cls_tensors, head, FIRST, LABELS, finish_cls, NULL,
        FORMS(CHOICES, "ModernBert"));
const proa_arch proa_arch_modernbert_tok =
    ROW("modernbert_tok", "ModernBertForTokenClassification", cls_tensors, head, ALL, LABELS, finish_base, NULL);
const proa_arch proa_arch_modernbert_qa =
    ROW("modernbert_qa", "ModernBertForQuestionAnswering", cls_tensors, head, ALL, LABELS, finish_base, NULL);
const proa_arch proa_arch_modernbert_decoder = {
    .name = "modernbert_decoder", .model_type = "modernbert-decoder", .hf = STRINGS("ModernBertDecoderForCausalLM"),
    DECODER(LAYER), .keys = decoder_keys, .names = decoder_tensors, .prefixes = prefixes, .aliases = decoder_aliases,
    .ignored = decoder_ignored, .stacks = {CAUSAL(embed, layer)}, .head = decoder_head, .finish = finish_base,
    HEADS(TEXTS, "ModernBertDecoder")};
/* clang-format on */
