/* SPDX-License-Identifier: Apache-2.0
 * arch_t5.c - T5 v1.0 and v1.1 (FLAN, mT5): encoder and decoder with RMS norms and relative position buckets.
 * The first layer stores the position biases for all layers; scores are not divided by sqrt(d). v1.1 gates its FFN and
 * unties its head; v1.0 scales the head's input by d^-0.5. The configuration says which of the two a model is. UMT5 is
 * v1.1 with position biases in each layer. LongT5's encoder attends within a window (local attention), and with
 * "transient-global" also to the normed sums of blocks of 16 tokens. Switch
 * Transformers are a T5 v1.0 with experts in some layers, one of which is chosen for each token; up to as many tokens
 * as an expert takes (expert_capacity) none is left out. The encoders alone (T5EncoderModel) are rows of their own, and
 * so are classes for tokens, whose head is beside the encoder.
 * Facts: transformers' modeling_{t5,umt5,longt5,switch_transformers}.py; Guo et al. 2022; Fedus, Zoph, Shazeer 2021. */
#include "model/arch/arch_rows.h"

#include "base/checked.h"
#include <math.h>

/* clang-format off */
#define ENCODER_KEYS \
    REQUIRED("vocab_size",                      vocab,          VOCAB),       \
    REQUIRED("d_model",                         hidden,         HIDDEN),      \
    REQUIRED("d_kv",                            head_dim,       HEAD_DIM),    \
    REQUIRED("d_ff",                            ffn,            FFN),         \
    REQUIRED("num_layers",                      encoder_layers, LAYERS),      \
    REQUIRED("num_heads",                       heads,          HEADS),       \
    INTEGER ("n_positions",                     context,        1, CONTEXT, 0), \
    INTEGER ("relative_attention_num_buckets",  rel_buckets,    4, BUCKETS, 32), \
    INTEGER ("relative_attention_max_distance", rel_distance,   2, CONTEXT, 128), \
    EPSILON ("layer_norm_epsilon",              1e-6)
static const proa_key keys[] = {
    ENCODER_KEYS,
    INTEGER ("num_decoder_layers",              layers,         1, LAYERS,  0),
    SWITCH  ("tie_word_embeddings",             tied,           1),
    END_KEYS};
static const proa_key encoder_keys[] = {ENCODER_KEYS, END_KEYS};
static const proa_key switch_keys[] = {
    ENCODER_KEYS,
    INTEGER ("num_decoder_layers",              layers,         1, LAYERS,  0),
    INTEGER ("num_experts",                     experts,        1, EXPERTS, 8),
    SWITCH  ("tie_word_embeddings",             tied,           1),
    END_KEYS};

/* T5 numbers the parts of a layer: 0 self-attention, then (decoder only) cross-attention, then the FFN. */
#define ATTENTION_TENSORS(block, bias_layer, module) \
    VECTOR    (block ".%d.layer.0.layer_norm.weight",                           ATTN_NORM, HIDDEN),          \
    MATRIX    (block ".%d.layer.0." module ".q.weight",                         QKV,       Q,       HIDDEN), \
    MATRIX    (block ".%d.layer.0." module ".k.weight",                         QKV,       KV,      HIDDEN), \
    MATRIX    (block ".%d.layer.0." module ".v.weight",                         QKV,       KV,      HIDDEN), \
    MATRIX    (block ".%d.layer.0." module ".o.weight",                         O,         HIDDEN,  Q),      \
    MATRIX_F32(block bias_layer ".layer.0." module ".relative_attention_bias.weight", REL_BIAS, BUCKETS, HEADS)
#define SELF_ATTENTION_TENSORS(block, bias_layer) ATTENTION_TENSORS(block, bias_layer, "SelfAttention")
#define FFN_TENSORS(part) \
    VECTOR   (part ".layer_norm.weight",                 FFN_NORM, HIDDEN),         \
    MATRIX_IF(PLAIN, part ".DenseReluDense.wi.weight",   UP,       FFN,    HIDDEN), \
    MATRIX_IF(GATED, part ".DenseReluDense.wi_0.weight", UP,       FFN,    HIDDEN), \
    MATRIX_IF(GATED, part ".DenseReluDense.wi_1.weight", UP,       FFN,    HIDDEN), \
    MATRIX   (part ".DenseReluDense.wo.weight",          DOWN,     HIDDEN, FFN)
#define SWITCH_FFN_TENSORS(part) \
    VECTOR          (part ".layer_norm.weight",                          FFN_NORM,    HIDDEN),              \
    MATRIX_IF       (DENSE,   part ".mlp.wi.weight",                     UP,          FFN,        HIDDEN),  \
    MATRIX_IF       (DENSE,   part ".mlp.wo.weight",                     DOWN,        HIDDEN,     FFN),     \
    MATRIX_IF       (EXPERTS, part ".mlp.router.classifier.weight",      ROUTER,      EXPERTS,    HIDDEN),  \
    TENSOR          (part ".mlp.router.classifier.bias", ROUTER_B, VECTOR, EXPERTS, NONE, IF(EXPERTS) | IF(PRESENT)), \
    EXPERT_MATRIX_IF(EXPERTS, part ".mlp.experts.expert_%d.wi.weight",   EXPERT_UP,   EXPERT_FFN, HIDDEN),  \
    EXPERT_MATRIX_IF(EXPERTS, part ".mlp.experts.expert_%d.wo.weight",   EXPERT_DOWN, HIDDEN,     EXPERT_FFN)
#define CROSS "decoder.block.%d.layer.1."
#define ENCODER_TENSORS_OF(bias_layer, module) \
    ENCODER_BODY(bias_layer, module), FFN_TENSORS("encoder.block.%d.layer.1")
#define ENCODER_BODY(bias_layer, module) \
    TABLE                 ("shared.weight",                   TOKENS,     VOCAB, HIDDEN), \
    ATTENTION_TENSORS     ("encoder.block", bias_layer, module),                          \
    VECTOR                ("encoder.final_layer_norm.weight", FINAL_NORM, HIDDEN)
#define ENCODER_TENSORS(bias_layer) ENCODER_TENSORS_OF(bias_layer, "SelfAttention")
#define DECODER_TENSORS(bias_layer) DECODER_BODY(bias_layer), FFN_TENSORS("decoder.block.%d.layer.2")
#define DECODER_BODY(bias_layer) \
    TABLE_SHARED          ("shared.weight",                   TOKENS,     VOCAB,  HIDDEN), \
    SELF_ATTENTION_TENSORS("decoder.block", bias_layer),                                   \
    VECTOR                (CROSS "layer_norm.weight",         CROSS_NORM, HIDDEN),         \
    MATRIX                (CROSS "EncDecAttention.q.weight",  CROSS_Q,    Q,      HIDDEN), \
    MATRIX                (CROSS "EncDecAttention.k.weight",  CROSS_KV,   KV,     HIDDEN), \
    MATRIX                (CROSS "EncDecAttention.v.weight",  CROSS_KV,   KV,     HIDDEN), \
    MATRIX                (CROSS "EncDecAttention.o.weight",  CROSS_O,    HIDDEN, Q),      \
    VECTOR                ("decoder.final_layer_norm.weight", FINAL_NORM, HIDDEN)
#define HEAD_TENSORS \
    TIED_HEAD             ("shared.weight"),                                               \
    MATRIX_IF             (UNTIED, "lm_head.weight",          HEAD,       VOCAB,  HIDDEN)
/* The tensors of transient-global attention have another module's name (longt5_aliases) and are more. */
#define LONGT5_ENCODER_TENSORS \
    ENCODER_TENSORS_OF(".0", "LocalSelfAttention"),                                                                  \
    VECTOR_IF(SIDE_BLOCKS, "encoder.block.%d.layer.0." GLOBAL "global_input_layer_norm.weight", BLOCK_NORM, HIDDEN), \
    TENSOR   ("encoder.block.0.layer.0." GLOBAL "global_relative_attention_bias.weight", BLOCK_BIAS, F32, BUCKETS,   \
              HEADS, IF(SIDE_BLOCKS))
#define GLOBAL "TransientGlobalSelfAttention."
#define DENSE_TENSORS(name, SLOT, ROWS) \
    MATRIX                (name ".weight", SLOT,     ROWS, HIDDEN), \
    VECTOR                (name ".bias",   SLOT##_B, ROWS)
#define TOKEN_TENSORS DENSE_TENSORS("classifier", HEAD, LABELS)
#define STACK PROA_STACK_ENCODER
static const proa_name encoder_tensors[] = {ENCODER_TENSORS(".0"), END_TENSORS};
static const proa_name umt5_encoder_tensors[] = {ENCODER_TENSORS(".%d"), END_TENSORS};
static const proa_name longt5_encoder_tensors[] = {LONGT5_ENCODER_TENSORS, END_TENSORS};
static const proa_name token_tensors[] = {ENCODER_TENSORS(".0"), TOKEN_TENSORS, END_TENSORS};
static const proa_name umt5_token_tensors[] = {ENCODER_TENSORS(".%d"), TOKEN_TENSORS, END_TENSORS};
static const proa_name tensors[] = {
    ENCODER_TENSORS(".0"),
#undef STACK
#define STACK PROA_STACK_DECODER
    DECODER_TENSORS(".0"), HEAD_TENSORS,
    END_TENSORS};
#undef STACK
#define STACK PROA_STACK_ENCODER
static const proa_name umt5_tensors[] = {
    ENCODER_TENSORS(".%d"),
#undef STACK
#define STACK PROA_STACK_DECODER
    DECODER_TENSORS(".%d"), HEAD_TENSORS,
    END_TENSORS};
#undef STACK
#define STACK PROA_STACK_ENCODER
static const proa_name switch_tensors[] = {
    ENCODER_BODY(".0", "SelfAttention"), SWITCH_FFN_TENSORS("encoder.block.%d.layer.1"),
#undef STACK
#define STACK PROA_STACK_DECODER
    DECODER_BODY(".0"), SWITCH_FFN_TENSORS("decoder.block.%d.layer.2"), HEAD_TENSORS,
    END_TENSORS};
#undef STACK
#define STACK PROA_STACK_ENCODER
static const proa_name longt5_tensors[] = {
    LONGT5_ENCODER_TENSORS,
#undef STACK
#define STACK PROA_STACK_DECODER
    DECODER_TENSORS(".0"), HEAD_TENSORS,
    END_TENSORS};
#undef STACK
/* Classes for sequences and for tokens have the model in a module of its own. */
static const char *const beginnings[] = {
    "shared.",  "transformer.shared.",
    "encoder.", "transformer.encoder.",
    "decoder.", "transformer.decoder.",
    NULL};
/* Copies of shared.weight, the head of a tied model, and a table that old checkpoints carry but no code reads. */
static const char *const ignored[] = {
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight",
    "EncDecAttention.relative_attention_bias.weight", NULL};

#define MODULE_ALIAS(tensor) "LocalSelfAttention." tensor, GLOBAL tensor
static const char *const longt5_aliases[] = {
    MODULE_ALIAS("q.weight"), MODULE_ALIAS("k.weight"), MODULE_ALIAS("v.weight"), MODULE_ALIAS("o.weight"),
    MODULE_ALIAS("relative_attention_bias.weight"), NULL};

static const proa_step embed[] = {EMBED(TOKENS), END};
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
    NORM        (X, N, FFN_NORM),          \
    LINEAR      (N, U, UP,   IF(PLAIN) | ACT), \
    LINEAR      (U, X, DOWN, IF(PLAIN) | ADD), \
    LINEAR_GATED(N, F, UP,   IF(GATED)),   \
    LINEAR      (F, X, DOWN, IF(GATED) | ADD), \
    END
static const proa_step encoder_layer[] = {SELF_ATTENTION, PLAIN_OR_GATED_FFN};
static const proa_step decoder_layer[] = {SELF_ATTENTION, CROSS_ATTENTION, PLAIN_OR_GATED_FFN};
#define DENSE_OR_EXPERTS \
    NORM   (X, N, FFN_NORM),                  \
    LINEAR (N, U, UP,   IF(DENSE) | ACT),     \
    LINEAR (U, X, DOWN, IF(DENSE) | ADD),     \
    LINEAR (N, ROUTER, ROUTER, IF(EXPERTS)),  \
    ROUTE  (CORRECTION),                      \
    EXPERTS(N, X, ADD),                       \
    END
static const proa_step switch_layer[] = {SELF_ATTENTION, DENSE_OR_EXPERTS};
static const proa_step switch_decoder_layer[] = {SELF_ATTENTION, CROSS_ATTENTION, DENSE_OR_EXPERTS};
static const proa_step longt5_layer[] = {
    NORM         (X, N, ATTN_NORM),
    BLOCK_SUMS   (N, BLOCKS),
    NORM_BLOCKS  (BLOCKS, BLOCKS, BLOCK_NORM),
    LINEAR_BLOCKS(BLOCKS, BLOCK_QKV, QKV),
    LINEAR       (N, QKV, QKV, 0),
    KV_APPEND,
    ATTEND_BLOCKS,
    LINEAR       (A, X, O, ADD),
    PLAIN_OR_GATED_FFN};
static const proa_step encoder_after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step cross[] = {LINEAR(X, CKV, CROSS_KV, 0), CROSS_APPEND, END};
static const proa_step head[] = {LM_HEAD(SCALED)};
static const proa_step encoder_head[] = {GATHER(OUT), END};
static const proa_step rows_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
/* clang-format on */

/* feed_forward_proj is "relu", "gated-gelu", "gated-silu": the gated gelu is the tanh form (T5Config). Where it is
 * missing it is that of the type. */
static proa_status read_ffn(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str type = {"", 0};
    PROA_TRY(proa_json_get_str(&type, json, "model_type", err));
    bool gated_type = proa_str_is(type, "mt5") || proa_str_is(type, "umt5");
    proa_str form = proa_str_c(gated_type ? "gated-gelu" : "relu");
    PROA_TRY(proa_json_get_str(&form, json, "feed_forward_proj", err));
    proa_str gated = proa_str_c("gated-");
    c->gated = proa_str_starts(form, gated);
    if (c->gated) form.ptr += gated.len, form.len -= gated.len;
    if (!proa_act_find(form, &c->act))
        return PROA_FAIL(err, UNSUPPORTED, "'feed_forward_proj': unknown activation '%.*s'", (int)form.len,
                         form.ptr);
    if (c->gated && c->act == PROA_ACT_GELU) c->act = PROA_ACT_GELU_TANH;
    return PROA_OK;
}

static proa_status finish_encoder(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    PROA_TRY(read_ffn(c, json, err));
    if (c->context == 0)
        c->context = 1024; /* relative positions know no limit; pages and activations need one */
    if (c->rel_distance <= c->rel_buckets / 2)
        return PROA_FAIL(err, INVALID,
                         "'relative_attention_max_distance' %lld must be above half of the %lld buckets",
                         (long long)c->rel_distance, (long long)c->rel_buckets);
    c->attention_scale = 1;
    c->pad = 0;
    return PROA_OK;
}

static proa_status finish_t5(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (c->layers == 0) c->layers = c->encoder_layers;
    PROA_TRY(finish_encoder(c, json, arena, err));
    proa_str type = {"", 0};
    PROA_TRY(proa_json_get_str(&type, json, "model_type", err));
    /* Before transformers 5, which says it outright, it went with the tie. mT5 never scales: its files say that the
     * head is tied only since transformers 5 writes so for all. */
    bool scaled = c->tied && !proa_str_is(type, "mt5");
    PROA_TRY(proa_json_get_bool(&scaled, json, "scale_decoder_outputs", err));
    c->logit_scale = scaled ? 1 / sqrt((double)c->hidden) : 1;
    c->decoder_start = 0;
    c->end_ids[c->end_count++] = 1;
    return PROA_OK;
}

/* Sums of blocks. transformers divides positions by the block in f32, which is exact for powers of 2 only. */
static proa_status read_blocks(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t block = 16;
    PROA_TRY(proa_json_get_int(&block, json, "global_block_size", 1, PROA_CONTEXT_MAX, err));
    if (block & (block - 1))
        return PROA_FAIL(err, UNSUPPORTED, "'global_block_size' is %lld, must be a power of 2", (long long)block);
    c->side_block = block;
    return PROA_OK;
}

static proa_status finish_token(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(finish_encoder(c, json, arena, err));
    return proa_config_read_labels(c, json, err);
}

/* The encoder sees local_radius positions on each side. The other kind of attention adds sums of blocks to the keys. */
static proa_status finish_longt5_encoder(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t radius = 127;
    proa_str kind = {"local", 5};
    PROA_TRY(proa_json_get_str(&kind, json, "encoder_attention_type", err));
    PROA_TRY(proa_json_get_int(&radius, json, "local_radius", 1, PROA_CONTEXT_MAX - 1, err));
    if (proa_str_is(kind, "transient-global")) PROA_TRY(read_blocks(c, json, err));
    else if (!proa_str_is(kind, "local"))
        return PROA_FAIL(err, UNSUPPORTED,
                         "'encoder_attention_type' is '%.*s', must be local or transient-global",
                         (int)proa_min64((int64_t)kind.len, 60), kind.ptr);
    if (c->context == 0) c->context = 16384; /* that of the paper */
    c->window = radius + 1;
    c->window_used = true;
    return finish_encoder(c, json, arena, err);
}

/* tie_word_embeddings only says whether the output is scaled: files without a head of their own are tied. */
static proa_status finish_longt5(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(finish_t5(c, json, arena, err));
    c->tied = true;
    return finish_longt5_encoder(c, json, arena, err);
}

/* A stack has experts in each step-th layer, from the second one on. */
static proa_status read_sparse_step(int64_t *step, const proa_json *json, bool decoder, int64_t layers,
                                    proa_err *err)
{
    int64_t sparse = 3;
    PROA_TRY(proa_json_get_int(&sparse, json, decoder ? "num_sparse_decoder_layers" : "num_sparse_encoder_layers",
                               0, PROA_LAYERS_MAX, err));
    *step = sparse > 0 ? layers / sparse : layers;
    return proa_json_get_int(step, json, decoder ? "decoder_sparse_step" : "encoder_sparse_step", 0,
                             PROA_LAYERS_MAX, err);
}

static bool is_sparse(int64_t layer, int64_t step)
{
    return step == 1 || (step > 1 && layer % step == 1);
}

static proa_status read_expert_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t own = 0, encoder = 0;
    PROA_TRY(read_sparse_step(&own, json, true, c->layers, err));
    PROA_TRY(read_sparse_step(&encoder, json, false, c->encoder_layers, err));
    return proa_config_set_expert_layers(c, is_sparse, own, encoder, arena, err);
}

/* Tokens that come after expert_capacity others of an input to the same expert would be left out: inputs are not longer
 * than that. */
static proa_status finish_switch(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t capacity = 64;
    proa_str type = {"float32", 7};
    PROA_TRY(finish_t5(c, json, arena, err));
    c->gated = false;
    PROA_TRY(proa_config_read_act(&c->act, json, "dense_act_fn", PROA_ACT_RELU, err));
    PROA_TRY(proa_json_get_str(&type, json, "router_dtype", err));
    if (!proa_str_is(type, "float32")) return PROA_FAIL(err, UNSUPPORTED, "'router_dtype' must be float32");
    PROA_TRY(proa_json_get_int(&capacity, json, "expert_capacity", 1, PROA_CONTEXT_MAX, err));
    c->input_context = proa_min64(capacity, c->context);
    c->expert_ffn = c->ffn;
    c->router.chosen = 1;
    return read_expert_layers(c, json, arena, err);
}

/* clang-format off */
#define PAIR(type, class, table, others, program, finisher, ...) \
    PAIR_OF(type, class, keys, table, others, program, decoder_layer, finisher, __VA_ARGS__)
#define PAIR_OF(type, class, keylist, table, others, program, decoder, finisher, ...) \
    {.name = type, .model_type = type, .hf = STRINGS class, .kind = PROA_KIND_ENCODER_DECODER, .norm = PROA_NORM_RMS, \
     .keys = keylist, .names = table, .prefix_aliases = beginnings, .aliases = others, .ignored = ignored,       \
     .stacks = {[PROA_STACK_DECODER] = {embed, decoder, NULL, true},                                             \
                [PROA_STACK_ENCODER] = {embed, program, encoder_after, false}},                                  \
     .cross = cross, .head = head, .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_VOCAB, .finish = finisher,   \
     __VA_ARGS__}
#define ROWS_OF(row, type, class, table, others, layer, program, outs, finisher) \
    {.name = row, .model_type = type, .hf = STRINGS class, .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_RMS,     \
     .keys = encoder_keys, .names = table, .prefix_aliases = beginnings, .aliases = others, .ignored = ignored,  \
     .stacks = {[PROA_STACK_ENCODER] = {embed, layer, encoder_after, false}}, .head = program,                   \
     .head_rows = PROA_ROWS_ALL, .outputs = PROA_DIM_##outs, .finish = finisher}
#define ENCODER(type, class, table, others, layer, finisher) \
    ROWS_OF(type "_encoder", type, class, table, others, layer, encoder_head, HIDDEN, finisher)
#define TOKENS_OF(type, class, table) \
    ROWS_OF(type "_token", type, class, table, NULL, encoder_layer, rows_head, LABELS, finish_token)

const proa_arch proa_arch_t5 =
    PAIR("t5", ("T5ForConditionalGeneration", "T5WithLMHeadModel", "MT5ForConditionalGeneration"), tensors, NULL,
         encoder_layer, finish_t5, FORMS(TEXTS | SPANS, "T5", "MT5"));
const proa_arch proa_arch_t5_encoder =
    ENCODER("t5", ("T5EncoderModel", "MT5EncoderModel"), encoder_tensors, NULL, encoder_layer, finish_encoder);
const proa_arch proa_arch_t5_token =
    TOKENS_OF("t5", ("T5ForTokenClassification", "MT5ForTokenClassification"), token_tensors);
const proa_arch proa_arch_umt5 =
    PAIR("umt5", ("UMT5ForConditionalGeneration"), umt5_tensors, NULL, encoder_layer, finish_t5,
         FORMS(TEXTS | SPANS, "UMT5"));
const proa_arch proa_arch_umt5_encoder =
    ENCODER("umt5", ("UMT5EncoderModel"), umt5_encoder_tensors, NULL, encoder_layer, finish_encoder);
const proa_arch proa_arch_umt5_token = TOKENS_OF("umt5", ("UMT5ForTokenClassification"), umt5_token_tensors);
const proa_arch proa_arch_switch_transformers =
    PAIR_OF("switch_transformers", ("SwitchTransformersForConditionalGeneration"), switch_keys, switch_tensors, NULL,
            switch_layer, switch_decoder_layer, finish_switch, NO_HEADS);
const proa_arch proa_arch_longt5 =
    PAIR("longt5", ("LongT5ForConditionalGeneration"), longt5_tensors, longt5_aliases, longt5_layer,
         finish_longt5, NO_HEADS);
const proa_arch proa_arch_longt5_encoder =
    ENCODER("longt5", ("LongT5EncoderModel"), longt5_encoder_tensors, longt5_aliases, longt5_layer,
            finish_longt5_encoder);
/* clang-format on */
