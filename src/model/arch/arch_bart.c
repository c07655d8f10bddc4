/* SPDX-License-Identifier: Apache-2.0
 * arch_bart.c - BART, MVP, PLBart, mBART, Marian, M2M100 (also NLLB-200), Pegasus (also BigBird's), Blenderbot: encoder
 * and decoder with LayerNorm and biases. BART, PLBart, Marian and Blenderbot's small form norm the sum of a sublayer
 * and its input (post-norm), the others the input of a sublayer (pre-norm), and the stacks' outputs at the end. BART,
 * PLBart, mBART and Blenderbot learn positions, the first three from row 2 of their tables on; these and the small
 * Blenderbot norm what is embedded, the decoder of the last before positions are added, and without a scale. The
 * positions of Marian, M2M100 and Pegasus are sinusoids, M2M100's from the row after that of the padding token on. The
 * head is the embedding, and adds final_logits_bias, which M2M100 has not. LED is a BART whose encoder attends within a
 * window, as Longformer does, and knows more positions than its decoder. BigBird-Pegasus learns positions, and its
 * encoder attends to all tokens of the inputs that it takes. FSMT (WMT19's models) is a Marian with M2M100's positions,
 * whose stacks have vocabularies of their own. NLLB-MoE is an M2M100 with experts in each n-th layer, two for a token.
 * SeamlessM4T's translation of text is an M2M100 under other names, beside parts for speech that are passed over.
 * Facts: transformers' modeling_{bart,led,mvp,plbart,mbart,marian,m2m_100,pegasus,bigbird_pegasus}.py,
 * modeling_{blenderbot,blenderbot_small,fsmt}.py, modeling_nllb_moe.py of 4.57 (not 5.24: docs/models.md),
 * modeling_{seamless_m4t,seamless_m4t_v2}.py. */
#include "model/arch/arch_rows.h"

#include "base/checked.h"
#include <math.h>

/* clang-format off */
/* ACT: the activation of the FFN where the file names none. */
#define KEYS(ACT) KEYS_OF("max_position_embeddings", ACT)
#define KEYS_OF(positions, ACT) REQUIRED("vocab_size", vocab, VOCAB), SIZES(positions, ACT)
#define SIZES(positions, ACT) SIZES_OF("d_model", positions, ACT)
#define SIZES_OF(width, positions, ACT) \
    REQUIRED  (width,                     hidden,         HIDDEN),           \
    REQUIRED  ("encoder_layers",          encoder_layers, LAYERS),           \
    REQUIRED  ("decoder_layers",          layers,         LAYERS),           \
    REQUIRED  ("encoder_attention_heads", heads,          HEADS),            \
    REQUIRED  ("encoder_ffn_dim",         ffn,            FFN),              \
    INTEGER   (positions,                 context,        1, CONTEXT, 1024), \
    ACTIVATION("activation_function",     ACT),                              \
    SWITCH    ("tie_word_embeddings",     tied,           1),                \
    END_KEYS
static const proa_key bart_keys[] = {KEYS(GELU)};
static const proa_key m2m100_keys[] = {KEYS(RELU)};
static const proa_key nllb_moe_keys[] = {INTEGER("num_experts", experts, 2, EXPERTS, 128), KEYS(RELU)};
static const proa_key seamless_keys[] = {
    REQUIRED("vocab_size",  vocab,                     VOCAB),
    SIZES_OF("hidden_size", "max_position_embeddings", RELU)};
static const proa_key bigbird_keys[] = {KEYS(GELU_TANH)};
static const proa_key led_keys[] = {
    INTEGER   ("max_encoder_position_embeddings", input_context, 1, CONTEXT, 16384),
    KEYS_OF   ("max_decoder_position_embeddings", GELU)};

static const proa_key fsmt_keys[] = {
    REQUIRED("src_vocab_size", input_vocab, VOCAB),
    REQUIRED("tgt_vocab_size", vocab,       VOCAB),
    SIZES   ("max_position_embeddings", RELU)};

#define ATTENTION_TENSORS(part, Q_SLOT, KV_SLOT, O_SLOT) \
    MATRIX(part "q_proj.weight",   Q_SLOT,      Q,      HIDDEN), \
    VECTOR_IF(ATTN_BIAS, part "q_proj.bias",     Q_SLOT##_B,  Q),              \
    MATRIX(part "k_proj.weight",   KV_SLOT,     KV,     HIDDEN), \
    VECTOR_IF(ATTN_BIAS, part "k_proj.bias",     KV_SLOT##_B, KV),             \
    MATRIX(part "v_proj.weight",   KV_SLOT,     KV,     HIDDEN), \
    VECTOR_IF(ATTN_BIAS, part "v_proj.bias",     KV_SLOT##_B, KV),             \
    MATRIX(part "out_proj.weight", O_SLOT,      HIDDEN, Q),      \
    VECTOR_IF(ATTN_BIAS, part "out_proj.bias",   O_SLOT##_B,  HIDDEN)
#define NORM_TENSORS(name, SLOT) \
    VECTOR(name ".weight", SLOT,     HIDDEN), \
    VECTOR(name ".bias",   SLOT##_B, HIDDEN)
/* The tensors of a layer, which both stacks have. */
#define STACK_LAYER_TENSORS(layer, FFN_DIM) \
    ATTENTION_TENSORS(layer "self_attn.", QKV, QKV, O),           \
    NORM_TENSORS     (layer "self_attn_layer_norm", ATTN_NORM),   \
    FFN_TENSORS      (layer, FFN_DIM)
#define FFN_TENSORS(layer, FFN_DIM) \
    FC_TENSORS  (layer, FFN_DIM), \
    NORM_TENSORS(layer "final_layer_norm", FFN_NORM)
#define FC_TENSORS(part, FFN_DIM) \
    MATRIX(part "fc1.weight", UP,     FFN_DIM, HIDDEN), \
    VECTOR(part "fc1.bias",   UP_B,   FFN_DIM),         \
    MATRIX(part "fc2.weight", DOWN,   HIDDEN, FFN_DIM), \
    VECTOR(part "fc2.bias",   DOWN_B, HIDDEN)
#define LAYER_TENSORS(layer) STACK_LAYER_TENSORS(layer, ENCODER_FFN)
#define DECODER_LAYER_TENSORS(layer) \
    STACK_LAYER_TENSORS(layer, FFN),                                                   \
    ATTENTION_TENSORS(layer "encoder_attn.", CROSS_Q, CROSS_KV, CROSS_O),       \
    NORM_TENSORS     (layer "encoder_attn_layer_norm", CROSS_NORM)
#define HEAD_TENSORS \
    TIED_HEAD("model.shared.weight"),                            \
    MATRIX_IF(UNTIED,  "lm_head.weight",    HEAD,   VOCAB, HIDDEN), \
    VECTOR_IF(PRESENT, "final_logits_bias", HEAD_B, VOCAB)

#define BART_STACK_TENSORS(stack) \
    TABLE       (stack "embed_positions.weight", POSITIONS, POSITIONS, HIDDEN), \
    NORM_TENSORS(stack "layernorm_embedding", EMBED_NORM)
#define BART_ENCODER_TENSORS \
    TABLE                ("model.shared.weight", TOKENS, VOCAB, HIDDEN), \
    BART_STACK_TENSORS   ("model.encoder."),                             \
    LAYER_TENSORS        ("model.encoder.layers.%d.")
#define BART_DECODER_TENSORS \
    TABLE_SHARED         ("model.shared.weight", TOKENS, VOCAB, HIDDEN), \
    BART_STACK_TENSORS   ("model.decoder."),                             \
    DECODER_LAYER_TENSORS("model.decoder.layers.%d.")
#define MBART_ENCODER_TENSORS BART_ENCODER_TENSORS, NORM_TENSORS("model.encoder.layer_norm", FINAL_NORM)
#define MBART_DECODER_TENSORS BART_DECODER_TENSORS, NORM_TENSORS("model.decoder.layer_norm", FINAL_NORM)
static const proa_name bart_tensors[] = {
#define STACK PROA_STACK_ENCODER
    BART_ENCODER_TENSORS,
#undef STACK
#define STACK PROA_STACK_DECODER
    BART_DECODER_TENSORS, HEAD_TENSORS,
#undef STACK
    END_TENSORS};
#define LED_ENCODER_LAYER_TENSORS(layer) \
    MATRIX      (layer "self_attn.longformer_self_attn.query.weight", QKV,    Q,      HIDDEN), \
    VECTOR      (layer "self_attn.longformer_self_attn.query.bias",   QKV_B,  Q),              \
    MATRIX      (layer "self_attn.longformer_self_attn.key.weight",   QKV,    KV,     HIDDEN), \
    VECTOR      (layer "self_attn.longformer_self_attn.key.bias",     QKV_B,  KV),             \
    MATRIX      (layer "self_attn.longformer_self_attn.value.weight", QKV,    KV,     HIDDEN), \
    VECTOR      (layer "self_attn.longformer_self_attn.value.bias",   QKV_B,  KV),             \
    LED_GLOBAL_TENSORS(layer "self_attn.longformer_self_attn."),                               \
    MATRIX      (layer "self_attn.output.weight",                     O,      HIDDEN, Q),      \
    VECTOR      (layer "self_attn.output.bias",                       O_B,    HIDDEN),         \
    NORM_TENSORS(layer "self_attn_layer_norm",                        ATTN_NORM),              \
    FFN_TENSORS (layer, ENCODER_FFN)
#define LED_GLOBAL_TENSORS(part) \
    MATRIX_IF(GLOBALS, part "query_global.weight", QKV_GLOBAL,   Q,  HIDDEN), \
    VECTOR_IF(GLOBALS, part "query_global.bias",   QKV_GLOBAL_B, Q),          \
    MATRIX_IF(GLOBALS, part "key_global.weight",   QKV_GLOBAL,   KV, HIDDEN), \
    VECTOR_IF(GLOBALS, part "key_global.bias",     QKV_GLOBAL_B, KV),         \
    MATRIX_IF(GLOBALS, part "value_global.weight", QKV_GLOBAL,   KV, HIDDEN), \
    VECTOR_IF(GLOBALS, part "value_global.bias",   QKV_GLOBAL_B, KV)
static const proa_name led_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                    ("model.shared.weight",                  TOKENS,    VOCAB,           HIDDEN),
    TABLE                    ("model.encoder.embed_positions.weight", POSITIONS, INPUT_POSITIONS, HIDDEN),
    NORM_TENSORS             ("model.encoder.layernorm_embedding", EMBED_NORM),
    LED_ENCODER_LAYER_TENSORS("model.encoder.layers.%d."),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE_SHARED             ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    BART_STACK_TENSORS       ("model.decoder."),
    DECODER_LAYER_TENSORS    ("model.decoder.layers.%d."),
    HEAD_TENSORS,
#undef STACK
    END_TENSORS};
static const proa_name mbart_tensors[] = {
#define STACK PROA_STACK_ENCODER
    MBART_ENCODER_TENSORS,
#undef STACK
#define STACK PROA_STACK_DECODER
    MBART_DECODER_TENSORS, HEAD_TENSORS,
#undef STACK
    END_TENSORS};
static const proa_name marian_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (HALVES, "model.encoder.embed_positions.weight", 0),
    LAYER_TENSORS        ("model.encoder.layers.%d."),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE_SHARED         ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (HALVES, "model.decoder.embed_positions.weight", PROA_SHARED),
    DECODER_LAYER_TENSORS("model.decoder.layers.%d."),
    HEAD_TENSORS,
#undef STACK
    END_TENSORS};
static const proa_name fsmt_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                ("model.encoder.embed_tokens.weight", TOKENS, INPUT_VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (ENDS, "model.encoder.embed_positions.weight", 0),
    LAYER_TENSORS        ("model.encoder.layers.%d."),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE                ("model.decoder.embed_tokens.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (ENDS, "model.decoder.embed_positions.weight", PROA_SHARED),
    DECODER_LAYER_TENSORS("model.decoder.layers.%d."),
    TIED_HEAD            ("model.decoder.embed_tokens.weight"),
    MATRIX_IF            (UNTIED, "model.decoder.output_projection.weight", HEAD, VOCAB, HIDDEN),
#undef STACK
    END_TENSORS};
static const proa_name pegasus_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (HALVES, "model.encoder.embed_positions.weight", 0),
    LAYER_TENSORS        ("model.encoder.layers.%d."),
    NORM_TENSORS         ("model.encoder.layer_norm", FINAL_NORM),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE_SHARED         ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (HALVES, "model.decoder.embed_positions.weight", PROA_SHARED),
    DECODER_LAYER_TENSORS("model.decoder.layers.%d."),
    NORM_TENSORS         ("model.decoder.layer_norm", FINAL_NORM),
    HEAD_TENSORS,
#undef STACK
    END_TENSORS};
static const proa_name blenderbot_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE                ("model.encoder.embed_positions.weight", POSITIONS, POSITIONS, HIDDEN),
    LAYER_TENSORS        ("model.encoder.layers.%d."),
    NORM_TENSORS         ("model.encoder.layer_norm", FINAL_NORM),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE_SHARED         ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE                ("model.decoder.embed_positions.weight", POSITIONS, POSITIONS, HIDDEN),
    DECODER_LAYER_TENSORS("model.decoder.layers.%d."),
    NORM_TENSORS         ("model.decoder.layer_norm", FINAL_NORM),
    HEAD_TENSORS,
#undef STACK
    END_TENSORS};
/* What norms the outputs of the stacks is called the norm of the embedding. */
#define BIGBIRD_LAYER_TENSORS(layer) \
    MATRIX      (layer "self_attn.self.query.weight", QKV, Q,      HIDDEN), \
    MATRIX      (layer "self_attn.self.key.weight",   QKV, KV,     HIDDEN), \
    MATRIX      (layer "self_attn.self.value.weight", QKV, KV,     HIDDEN), \
    MATRIX      (layer "self_attn.output.weight",     O,   HIDDEN, Q),      \
    VECTOR_IF   (ATTN_BIAS, layer "self_attn.self.query.bias", QKV_B, Q),      \
    VECTOR_IF   (ATTN_BIAS, layer "self_attn.self.key.bias",   QKV_B, KV),     \
    VECTOR_IF   (ATTN_BIAS, layer "self_attn.self.value.bias", QKV_B, KV),     \
    VECTOR_IF   (ATTN_BIAS, layer "self_attn.output.bias",     O_B,   HIDDEN), \
    NORM_TENSORS(layer "self_attn_layer_norm", ATTN_NORM),                  \
    FFN_TENSORS (layer, ENCODER_FFN)
static const proa_name bigbird_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE                ("model.encoder.embed_positions.weight", POSITIONS, POSITIONS, HIDDEN),
    BIGBIRD_LAYER_TENSORS("model.encoder.layers.%d."),
    NORM_TENSORS         ("model.encoder.layernorm_embedding", FINAL_NORM),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE_SHARED         ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE                ("model.decoder.embed_positions.weight", POSITIONS, POSITIONS, HIDDEN),
    DECODER_LAYER_TENSORS("model.decoder.layers.%d."),
    NORM_TENSORS         ("model.decoder.layernorm_embedding", FINAL_NORM),
    HEAD_TENSORS,
#undef STACK
    END_TENSORS};
static const proa_name m2m100_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (ENDS, "model.encoder.embed_positions.weight", 0),
    LAYER_TENSORS        ("model.encoder.layers.%d."),
    NORM_TENSORS         ("model.encoder.layer_norm", FINAL_NORM),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE_SHARED         ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (ENDS, "model.decoder.embed_positions.weight", PROA_SHARED),
    DECODER_LAYER_TENSORS("model.decoder.layers.%d."),
    NORM_TENSORS         ("model.decoder.layer_norm", FINAL_NORM),
    TIED_HEAD            ("model.shared.weight"),
    MATRIX_IF            (UNTIED, "lm_head.weight", HEAD, VOCAB, HIDDEN),
#undef STACK
    END_TENSORS};
/* M2M100's tensors under other names; a layer's FFN is dense or a mixture of experts. */
#define NLLB_FFN_TENSORS(layer, FFN_DIM) \
    NORM_TENSORS    (layer "ff_layer_norm",                          FFN_NORM),                          \
    MATRIX_IF       (DENSE,   layer "ffn.fc1.weight",                UP,          FFN_DIM,    HIDDEN),   \
    VECTOR_IF       (DENSE,   layer "ffn.fc1.bias",                  UP_B,        FFN_DIM),              \
    MATRIX_IF       (DENSE,   layer "ffn.fc2.weight",                DOWN,        HIDDEN,     FFN_DIM),  \
    VECTOR_IF       (DENSE,   layer "ffn.fc2.bias",                  DOWN_B,      HIDDEN),               \
    MATRIX_IF       (EXPERTS, layer "ffn.router.classifier.weight",  ROUTER,      EXPERTS,    HIDDEN),   \
    TENSOR          (layer "ffn.router.classifier.bias", ROUTER_B, VECTOR, EXPERTS, NONE, IF(EXPERTS) | IF(PRESENT)), \
    EXPERT_MATRIX_IF(EXPERTS, layer "ffn.experts.expert_%d.fc1.weight", EXPERT_UP,     EXPERT_FFN, HIDDEN), \
    EXPERT_VECTOR_IF(EXPERTS, layer "ffn.experts.expert_%d.fc1.bias",   EXPERT_UP_B,   EXPERT_FFN),         \
    EXPERT_MATRIX_IF(EXPERTS, layer "ffn.experts.expert_%d.fc2.weight", EXPERT_DOWN,   HIDDEN, EXPERT_FFN), \
    EXPERT_VECTOR_IF(EXPERTS, layer "ffn.experts.expert_%d.fc2.bias",   EXPERT_DOWN_B, HIDDEN)
#define NLLB_LAYER_TENSORS(layer, FFN_DIM) \
    ATTENTION_TENSORS(layer "self_attn.", QKV, QKV, O),         \
    NORM_TENSORS     (layer "self_attn_layer_norm", ATTN_NORM), \
    NLLB_FFN_TENSORS (layer, FFN_DIM)
static const proa_name nllb_moe_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (ENDS, "model.encoder.embed_positions.weight", 0),
    NLLB_LAYER_TENSORS   ("model.encoder.layers.%d.", ENCODER_FFN),
    NORM_TENSORS         ("model.encoder.layer_norm", FINAL_NORM),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE_SHARED         ("model.shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS      (ENDS, "model.decoder.embed_positions.weight", PROA_SHARED),
    NLLB_LAYER_TENSORS   ("model.decoder.layers.%d.", FFN),
    ATTENTION_TENSORS    ("model.decoder.layers.%d.cross_attention.", CROSS_Q, CROSS_KV, CROSS_O),
    NORM_TENSORS         ("model.decoder.layers.%d.cross_attention_layer_norm", CROSS_NORM),
    NORM_TENSORS         ("model.decoder.layer_norm", FINAL_NORM),
    TIED_HEAD            ("model.shared.weight"),
    MATRIX_IF            (UNTIED, "lm_head.weight", HEAD, VOCAB, HIDDEN),
#undef STACK
    END_TENSORS};
#define SEAMLESS_LAYER_TENSORS(layer, FFN_DIM) \
    ATTENTION_TENSORS(layer "self_attn.", QKV, QKV, O),         \
    NORM_TENSORS     (layer "self_attn_layer_norm", ATTN_NORM), \
    FC_TENSORS       (layer "ffn.", FFN_DIM),                   \
    NORM_TENSORS     (layer "ffn_layer_norm", FFN_NORM)
static const proa_name seamless_tensors[] = {
#define STACK PROA_STACK_ENCODER
    TABLE                 ("shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS       (ENDS, "text_encoder.embed_positions.weight", 0),
    SEAMLESS_LAYER_TENSORS("text_encoder.layers.%d.", ENCODER_FFN),
    NORM_TENSORS          ("text_encoder.layer_norm", FINAL_NORM),
#undef STACK
#define STACK PROA_STACK_DECODER
    TABLE_SHARED          ("shared.weight", TOKENS, VOCAB, HIDDEN),
    TABLE_SINUSOIDS       (ENDS, "text_decoder.embed_positions.weight", PROA_SHARED),
    SEAMLESS_LAYER_TENSORS("text_decoder.layers.%d.", FFN),
    ATTENTION_TENSORS     ("text_decoder.layers.%d.cross_attention.", CROSS_Q, CROSS_KV, CROSS_O),
    NORM_TENSORS          ("text_decoder.layers.%d.cross_attention_layer_norm", CROSS_NORM),
    NORM_TENSORS          ("text_decoder.layer_norm", FINAL_NORM),
    TIED_HEAD             ("shared.weight"),
    MATRIX_IF             (UNTIED, "lm_head.weight", HEAD, VOCAB, HIDDEN),
#undef STACK
    END_TENSORS};
static const char *const seamless_unused[] = {"speech_encoder.", "t2u_model.", "vocoder.", NULL};
static const char *const prefixes[] = {"model.", NULL};
static const char *const led_beginnings[] = {"model.", "led.", NULL};
static const char *const aliases[] = {"shared.weight", "encoder.embed_tokens.weight", NULL};
/* Copies of the embedding, version marks of fairseq, M2M100's sinusoids, which old checkpoints hold, and what only
 * LED's global tokens use. */
static const char *const ignored[] = {
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "shared.weight", "lm_head.weight",
    "encoder.version", "decoder.version", "encoder.embed_positions.weights", "decoder.embed_positions.weights",
    "final_logits_bias", "decoder.output_projection.weight",
    "query_global.weight", "query_global.bias", "key_global.weight", "key_global.bias",
    "value_global.weight", "value_global.bias", NULL};

static const proa_step bart_embed[] = {
    EMBED_TO(D, TOKENS,    SCALED | EXACT),
    EMBED_TO(D, POSITIONS, OF_POS | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step plain_embed[] = {
    EMBED_TO(X, TOKENS,    SCALED | EXACT),
    EMBED_TO(X, POSITIONS, OF_POS | ADD),
    END};
static const proa_step small_decoder_embed[] = {
    EMBED_TO(D, TOKENS,    0),
    NORM    (D, X,         EMBED_NORM),
    EMBED_TO(X, POSITIONS, OF_POS | ADD),
    END};

#define POST_SELF_ATTENTION \
    LINEAR(X, QKV, QKV, 0),     \
    KV_APPEND,                  \
    ATTEND,                     \
    LINEAR(A, D,   O,   ADD_X), \
    NORM  (D, X,   ATTN_NORM)
#define POST_CROSS_ATTENTION \
    LINEAR(X, CQ, CROSS_Q, 0),     \
    CROSS_ATTEND,                  \
    LINEAR(A, D,  CROSS_O, ADD_X), \
    NORM  (D, X,  CROSS_NORM)
#define POST_FFN \
    LINEAR(X, U, UP,   ACT),   \
    LINEAR(U, D, DOWN, ADD_X), \
    NORM  (D, X, FFN_NORM)
static const proa_step post_encoder_layer[] = {POST_SELF_ATTENTION, POST_FFN, END};
static const proa_step led_encoder_layer[] = {
    LINEAR(X, QKV, QKV,        0),
    KV_APPEND,
    ATTEND,
    LINEAR(X, QKV, QKV_GLOBAL, IF(GLOBALS)),
    ATTEND_GLOBALS,
    LINEAR(A, D,   O,          ADD_X),
    NORM  (D, X,   ATTN_NORM),
    POST_FFN,
    END};
static const proa_step post_decoder_layer[] = {POST_SELF_ATTENTION, POST_CROSS_ATTENTION, POST_FFN, END};

#define PRE_SELF_ATTENTION \
    NORM  (X, N,   ATTN_NORM), \
    LINEAR(N, QKV, QKV, 0),    \
    KV_APPEND,                 \
    ATTEND,                    \
    LINEAR(A, X,   O,   ADD)
#define PRE_CROSS_ATTENTION \
    NORM  (X, N,  CROSS_NORM),  \
    LINEAR(N, CQ, CROSS_Q, 0),  \
    CROSS_ATTEND,               \
    LINEAR(A, X,  CROSS_O, ADD)
#define PRE_FFN \
    NORM  (X, N, FFN_NORM), \
    LINEAR(N, U, UP,   ACT), \
    LINEAR(U, X, DOWN, ADD)
static const proa_step pre_encoder_layer[] = {PRE_SELF_ATTENTION, PRE_FFN, END};
static const proa_step pre_decoder_layer[] = {PRE_SELF_ATTENTION, PRE_CROSS_ATTENTION, PRE_FFN, END};
#define PRE_FFN_OR_EXPERTS \
    NORM   (X, N, FFN_NORM),                 \
    LINEAR (N, U, UP,   IF(DENSE) | ACT),    \
    LINEAR (U, X, DOWN, IF(DENSE) | ADD),    \
    LINEAR (N, ROUTER, ROUTER, IF(EXPERTS)), \
    ROUTE  (CORRECTION),                     \
    EXPERTS(N, X, ADD)
static const proa_step moe_encoder_layer[] = {PRE_SELF_ATTENTION, PRE_FFN_OR_EXPERTS, END};
static const proa_step moe_decoder_layer[] = {PRE_SELF_ATTENTION, PRE_CROSS_ATTENTION, PRE_FFN_OR_EXPERTS, END};

static const proa_step encoder_after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step cross[] = {LINEAR(X, CKV, CROSS_KV, 0), CROSS_APPEND, END};
static const proa_step plain_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step normed_head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status check_alike(const proa_json *json, const char *key, int64_t encoder, proa_err *err)
{
    int64_t decoder = encoder;
    PROA_TRY(proa_json_get_int(&decoder, json, key, 1, INT32_MAX, err));
    if (decoder == encoder) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' is %lld, but %lld in the encoder: not supported", key,
                     (long long)decoder, (long long)encoder);
}

/* The decoder's number of heads and FFN size, and those of the encoder where they differ. */
static proa_status read_decoder_sizes(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t heads = c->heads, ffn = c->ffn;
    PROA_TRY(proa_json_get_int(&heads, json, "decoder_attention_heads", 1, PROA_HEADS_MAX, err));
    PROA_TRY(proa_json_get_int(&ffn, json, "decoder_ffn_dim", 1, PROA_FFN_MAX, err));
    if (ffn != c->ffn) c->encoder_ffn = c->ffn, c->ffn = ffn;
    if (heads == c->heads) return PROA_OK;
    if (c->hidden % c->heads != 0 || c->hidden / c->heads > PROA_HEAD_DIM_MAX)
        return PROA_FAIL(err, INVALID,
                         "'encoder_attention_heads' %lld does not divide the size %lld into heads of 1 to %d",
                         (long long)c->heads, (long long)c->hidden, PROA_HEAD_DIM_MAX);
    c->encoder_heads = c->heads, c->heads = heads;
    return PROA_OK;
}

/* scaled: whether embeddings are scaled by sqrt(d) where the file does not say it. */
static proa_status finish_stacks(proa_config *c, const proa_json *json, bool scaled, proa_err *err)
{
    c->norm_eps = 1e-5;
    c->attention_bias = true;
    PROA_TRY(proa_json_get_bool(&scaled, json, "scale_embedding", err));
    c->embed_scale = scaled ? sqrt((double)c->hidden) : 1;
    PROA_TRY(read_decoder_sizes(c, json, err));
    bool shared = true;
    PROA_TRY(proa_json_get_bool(&shared, json, "share_encoder_decoder_embeddings", err));
    if (shared) return check_alike(json, "decoder_vocab_size", c->vocab, err);
    return PROA_FAIL(err, UNSUPPORTED, "'share_encoder_decoder_embeddings' false is not supported");
}

static proa_status finish_blenderbot(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    return finish_stacks(c, json, false, err);
}

static proa_status finish_marian(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->embed_scale_apart = true;
    return finish_blenderbot(c, json, arena, err);
}

/* Positions from row 2 of their table on. Ids are those of the configurations' classes where the file has none. */
static proa_status finish_offset(proa_config *c, const proa_json *json, bool scaled, proa_err *err)
{
    c->position_offset = 2;
    c->end_ids[c->end_count++] = 2;
    return finish_stacks(c, json, scaled, err);
}

/* BartConfig has three labels where the file names none. */
static proa_status finish_bart(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    c->labels = 3;
    c->decoder_start = 2;
    return finish_offset(c, json, false, err);
}

/* mBART's and PLBart's input ends with its language, with which the decoder of their classifiers begins. */
static proa_status finish_mbart(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    c->starts_with_last = true;
    return finish_offset(c, json, false, err);
}

static proa_status finish_plbart(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    c->starts_with_last = true;
    return finish_offset(c, json, true, err);
}

/* MVP is BART without the prompts that its layers may have. */
static proa_status finish_mvp(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool prompt = false;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_bool(&prompt, json, "use_prompt", err));
    if (prompt)
        return PROA_FAIL(err, UNSUPPORTED, "'use_prompt' true is not supported: prompts in each layer");
    c->decoder_start = 2;
    return finish_offset(c, json, false, err);
}

/* Without global tokens, as the class runs if no global_attention_mask is given, unless the file has global_tokens. */
static proa_status finish_led(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->decoder_start = 2;
    c->end_ids[c->end_count++] = 2;
    PROA_TRY(proa_config_read_attention_window(c, json, err));
    PROA_TRY(finish_blenderbot(c, json, arena, err));
    c->embed_scale = 1;
    return PROA_OK;
}

/* Ids are those of the configuration's class where the file has none. */
static proa_status finish_bigbird(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    c->decoder_start = 2;
    c->end_ids[c->end_count++] = 1;
    PROA_TRY(finish_stacks(c, json, true, err));
    c->attention_bias = false;
    PROA_TRY(proa_json_get_bool(&c->attention_bias, json, "use_bias", err));
    return proa_config_read_block_sparse(c, json, err);
}

/* The padding token has the position pad_token_id, the first token the one after it (fairseq's make_positions). */
static proa_status finish_m2m100(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t pad = 1;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_int(&pad, json, "pad_token_id", 0, PROA_CONTEXT_MAX - 1, err));
    c->position_offset = pad + 1;
    return finish_stacks(c, json, true, err);
}

/* Ids are those of the configuration's class where the file has none: the padding token is 0 there. */
static proa_status finish_seamless(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t pad = 0;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_int(&pad, json, "pad_token_id", 0, PROA_CONTEXT_MAX - 1, err));
    c->position_offset = pad + 1;
    c->decoder_start = 3;
    c->end_ids[c->end_count++] = 3;
    return finish_stacks(c, json, true, err);
}

/* A stack has experts in each step-th layer, none with a step of 0. */
static bool is_sparse(int64_t layer, int64_t step)
{
    return step > 0 && (layer + 1) % step == 0;
}

/* An expert takes a part of an input's tokens, and leaves out the others. With a part of 1 it takes all, and with no
 * part expert_capacity of them: inputs are not longer than that. */
static proa_status read_capacity(proa_config *c, const proa_json *json, proa_err *err)
{
    double part = 1;
    int64_t capacity = 64;
    PROA_TRY(proa_json_get_double(&part, json, "moe_eval_capacity_token_fraction", -1e30, 1e30, err));
    if (part >= 1) return PROA_OK;
    if (part > 0)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "'moe_eval_capacity_token_fraction' is %g, must be 1 or not above 0: tokens are not left out", part);
    PROA_TRY(proa_json_get_int(&capacity, json, "expert_capacity", 1, PROA_CONTEXT_MAX, err));
    c->input_context = proa_min64(capacity, c->context);
    return PROA_OK;
}

/* The weights of the two experts add up to 1 - moe_token_dropout: outputs are scaled so that they are what training saw
 * on average. As no token is left out, it does not matter whether weights are normalised before or after. */
static proa_status read_router(proa_config *c, const proa_json *json, proa_err *err)
{
    double dropped = 0.2;
    proa_str type = proa_str_c("float32"), policy = proa_str_c("all");
    PROA_TRY(proa_json_get_str(&type, json, "router_dtype", err));
    if (!proa_str_is(type, "float32")) return PROA_FAIL(err, UNSUPPORTED, "'router_dtype' must be float32");
    PROA_TRY(proa_json_get_str(&policy, json, "second_expert_policy", err));
    if (!proa_str_is(policy, "all"))
        return PROA_FAIL(err, UNSUPPORTED, "'second_expert_policy' must be all: others are left to chance");
    PROA_TRY(proa_json_get_double(&dropped, json, "moe_token_dropout", 0, 0.99, err));
    c->router.chosen = 2;
    c->router.renormalise = true;
    c->router.scale = (float)(1 - dropped);
    return read_capacity(c, json, err);
}

static proa_status finish_nllb_moe(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t decoder = 4, encoder = 4;
    PROA_TRY(finish_m2m100(c, json, arena, err));
    c->decoder_start = 2;
    c->end_ids[c->end_count++] = 2;
    if (c->encoder_ffn)
        return PROA_FAIL(err, UNSUPPORTED, "experts of %lld and %lld numbers in encoder and decoder",
                         (long long)c->encoder_ffn, (long long)c->ffn);
    c->expert_ffn = c->ffn;
    PROA_TRY(read_router(c, json, err));
    PROA_TRY(proa_json_get_int(&decoder, json, "decoder_sparse_step", 0, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&encoder, json, "encoder_sparse_step", 0, PROA_LAYERS_MAX, err));
    return proa_config_set_expert_layers(c, is_sparse, decoder, encoder, arena, err);
}

/* The head is the decoder's embedding, whatever tie_word_embeddings says, unless the file has another one. */
static proa_status finish_fsmt(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->tied = true;
    c->embed_scale_apart = true;
    c->decoder_start = 2;
    c->end_ids[c->end_count++] = 2;
    return finish_m2m100(c, json, arena, err);
}

/* clang-format off */
/* BEGIN: the program of the decoder's embedding; the rest of the arguments: the other classes. */
#define ROW(type, class, config_keys, tensors, EMBED, BEGIN, encoder, decoder, after, heads, finisher, ...) \
    {.name = type, .model_type = type, .hf = STRINGS class, .kind = PROA_KIND_ENCODER_DECODER,  \
     .norm = PROA_NORM_LAYER, .keys = config_keys, .names = tensors, .prefixes = prefixes,      \
     .aliases = aliases, .ignored = ignored,                                                    \
     .stacks = {[PROA_STACK_DECODER] = {BEGIN, decoder, NULL, true},                            \
                [PROA_STACK_ENCODER] = {EMBED, encoder, after, false}},                         \
     .cross = cross, .head = heads, .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_VOCAB,     \
     .finish = finisher, __VA_ARGS__}
#define POST(type, class, tensors, EMBED, BEGIN, finisher, ...) \
    ROW(type, class, bart_keys, tensors, EMBED, BEGIN, post_encoder_layer, post_decoder_layer, NULL, plain_head, \
        finisher, __VA_ARGS__)
#define PRE(type, class, config_keys, tensors, EMBED, finisher, ...) \
    ROW(type, class, config_keys, tensors, EMBED, EMBED, pre_encoder_layer, pre_decoder_layer, encoder_after,    \
        normed_head, finisher, __VA_ARGS__)

const proa_arch proa_arch_bart =
    POST("bart", ("BartForConditionalGeneration", "BartModel"), bart_tensors, bart_embed, bart_embed, finish_bart,
         FORMS(TEXTS | SPANS | DECODERS, "Bart"));
const proa_arch proa_arch_mbart =
    PRE("mbart", ("MBartForConditionalGeneration"), bart_keys, mbart_tensors, bart_embed, finish_mbart,
        FORMS(TEXTS | SPANS | DECODERS, "MBart"));
const proa_arch proa_arch_marian =
    POST("marian", ("MarianMTModel"), marian_tensors, plain_embed, plain_embed, finish_marian,
         FORMS(DECODERS, "Marian"));
const proa_arch proa_arch_fsmt =
    ROW("fsmt", ("FSMTForConditionalGeneration"), fsmt_keys, fsmt_tensors, plain_embed, plain_embed,
        post_encoder_layer, post_decoder_layer, NULL, plain_head, finish_fsmt, NO_HEADS);
/* Pegasus is saved with its sinusoids or without; Blenderbot's positions begin with row 0, as Marian's do. */
const proa_arch proa_arch_pegasus =
    PRE("pegasus", ("PegasusForConditionalGeneration"), bart_keys, pegasus_tensors, plain_embed, finish_marian,
        FORMS(DECODERS, "Pegasus"));
const proa_arch proa_arch_bigbird_pegasus =
    PRE("bigbird_pegasus", ("BigBirdPegasusForConditionalGeneration"), bigbird_keys, bigbird_tensors, plain_embed,
        finish_bigbird, FORMS(TEXTS | SPANS | DECODERS, "BigBirdPegasus"));
const proa_arch proa_arch_blenderbot =
    PRE("blenderbot", ("BlenderbotForConditionalGeneration"), bart_keys, blenderbot_tensors, plain_embed,
        finish_blenderbot, FORMS(DECODERS, "Blenderbot"));
const proa_arch proa_arch_blenderbot_small =
    POST("blenderbot-small", ("BlenderbotSmallForConditionalGeneration"), bart_tensors, bart_embed,
         small_decoder_embed, finish_marian, FORMS(DECODERS, "BlenderbotSmall"));
const proa_arch proa_arch_plbart =
    POST("plbart", ("PLBartForConditionalGeneration"), bart_tensors, bart_embed, bart_embed, finish_plbart,
         FORMS(TEXTS | DECODERS, "PLBart"));
const proa_arch proa_arch_mvp =
    POST("mvp", ("MvpForConditionalGeneration"), bart_tensors, bart_embed, bart_embed, finish_mvp,
         FORMS(TEXTS | SPANS | DECODERS, "Mvp"));
const proa_arch proa_arch_led =
    ROW("led", ("LEDForConditionalGeneration"), led_keys, led_tensors, bart_embed, bart_embed, led_encoder_layer,
        post_decoder_layer, NULL, plain_head, finish_led, .prefix_aliases = led_beginnings, FORMS(SPANS, "LED"));
const proa_arch proa_arch_m2m100 =
    PRE("m2m_100", ("M2M100ForConditionalGeneration"), m2m100_keys, m2m100_tensors, plain_embed, finish_m2m100,
        NO_HEADS);
const proa_arch proa_arch_nllb_moe =
    ROW("nllb-moe", ("NllbMoeForConditionalGeneration"), nllb_moe_keys, nllb_moe_tensors, plain_embed, plain_embed,
        moe_encoder_layer, moe_decoder_layer, encoder_after, normed_head, finish_nllb_moe, NO_HEADS);
/* The classes of whole checkpoints are here, too: their text is translated by the same parts. */
const proa_arch proa_arch_seamless_m4t =
    PRE("seamless_m4t",
        ("SeamlessM4TForTextToText", "SeamlessM4TModel", "SeamlessM4Tv2ForTextToText", "SeamlessM4Tv2Model"),
        seamless_keys, seamless_tensors, plain_embed, finish_seamless, .unused_parts = seamless_unused, NO_HEADS);
/* clang-format on */
