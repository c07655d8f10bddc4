/* SPDX-License-Identifier: Apache-2.0
 * arch_baichuan.c - InternLM2, Baichuan 1 and 2, and Qwen 1: Llama's layer with q, k and v in one matrix.
 * InternLM2 stores the rows of that matrix in groups of a key-value head. Baichuan 7B has rotary positions, 13B ALiBi.
 * Baichuan 2 divides each row of its head by its Euclidean norm. In Qwen 1 prompts longer than
 * seq_length change the base of rotary positions, and queries beyond it are scaled. Facts: the modelling files that are
 * published with the checkpoints (internlm/internlm2-7b, baichuan-inc/Baichuan*, Qwen/Qwen-7B). */
#include "model/arch/arch_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."

/* clang-format off */
static const proa_key internlm2_keys[] = {
    SIZE_KEYS (layers),
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    0),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  2048),
    EPSILON   ("rms_norm_eps",            1e-6),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    SWITCH    ("bias",                    attention_bias, 0),
    END_KEYS};
static const proa_key baichuan_keys[] = {
    SIZE_KEYS (layers),
    INTEGER   ("model_max_length",        context,        1, CONTEXT,  4096),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  4096),
    EPSILON   ("rms_norm_eps",            1e-6),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    END_KEYS};
/* intermediate_size is that of gate and up together. */
static const proa_key qwen_keys[] = {
    SIZE_KEYS (layers),
    INTEGER   ("kv_channels",             head_dim,       1, HEAD_DIM, 128),
    INTEGER   ("seq_length",              context,        1, CONTEXT,  8192),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  8192),
    EPSILON   ("layer_norm_epsilon",      1e-6),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    END_KEYS};

static const proa_name internlm2_tensors[] = {
    TABLE        ("model.tok_embeddings.weight",       TOKENS,     VOCAB,  HIDDEN),
    VECTOR       (LAYER "attention_norm.weight",       ATTN_NORM,  HIDDEN),
    MATRIX_LOADED(QKV_GROUPS, LAYER "attention.wqkv.weight", QKV,  QKV,    HIDDEN),
    VECTOR_LOADED_IF(ATTN_BIAS, QKV_GROUPS, LAYER "attention.wqkv.bias", QKV_B, QKV),
    MATRIX       (LAYER "attention.wo.weight",         O,          HIDDEN, Q),
    VECTOR_IF    (ATTN_BIAS, LAYER "attention.wo.bias", O_B,       HIDDEN),
    VECTOR       (LAYER "ffn_norm.weight",             FFN_NORM,   HIDDEN),
    MATRIX       (LAYER "feed_forward.w1.weight",      UP,         FFN,    HIDDEN),
    MATRIX       (LAYER "feed_forward.w3.weight",      UP,         FFN,    HIDDEN),
    MATRIX       (LAYER "feed_forward.w2.weight",      DOWN,       HIDDEN, FFN),
    VECTOR       ("model.norm.weight",                 FINAL_NORM, HIDDEN),
    MATRIX_IF    (UNTIED, "output.weight",             HEAD,       VOCAB,  HIDDEN),
    TIED_HEAD    ("model.tok_embeddings.weight"),
    END_TENSORS};
static const proa_name baichuan_tensors[] = {
    TABLE        ("model.embed_tokens.weight",         TOKENS,     VOCAB,  HIDDEN),
    VECTOR       (LAYER "input_layernorm.weight",      ATTN_NORM,  HIDDEN),
    MATRIX       (LAYER "self_attn.W_pack.weight",     QKV,        QKV,    HIDDEN),
    MATRIX       (LAYER "self_attn.o_proj.weight",     O,          HIDDEN, Q),
    VECTOR       (LAYER "post_attention_layernorm.weight", FFN_NORM, HIDDEN),
    MATRIX       (LAYER "mlp.gate_proj.weight",        UP,         FFN,    HIDDEN),
    MATRIX       (LAYER "mlp.up_proj.weight",          UP,         FFN,    HIDDEN),
    MATRIX       (LAYER "mlp.down_proj.weight",        DOWN,       HIDDEN, FFN),
    VECTOR       ("model.norm.weight",                 FINAL_NORM, HIDDEN),
    MATRIX_IF    (PLAIN_HEAD, "lm_head.weight",        HEAD,       VOCAB,  HIDDEN),
    MATRIX_LOADED_IF(NORMED_HEAD, NORMALISED, "lm_head.weight", HEAD, VOCAB, HIDDEN),
    END_TENSORS};
#define QWEN "transformer.h.%d."
/* w1 is up, w2 gate. */
static const proa_name qwen_tensors[] = {
    TABLE        ("transformer.wte.weight",            TOKENS,     VOCAB,  HIDDEN),
    VECTOR       (QWEN "ln_1.weight",                  ATTN_NORM,  HIDDEN),
    MATRIX       (QWEN "attn.c_attn.weight",           QKV,        QKV,    HIDDEN),
    VECTOR       (QWEN "attn.c_attn.bias",             QKV_B,      QKV),
    MATRIX       (QWEN "attn.c_proj.weight",           O,          HIDDEN, Q),
    VECTOR_IF    (ATTN_BIAS, QWEN "attn.c_proj.bias",  O_B,        HIDDEN),
    VECTOR       (QWEN "ln_2.weight",                  FFN_NORM,   HIDDEN),
    MATRIX       (QWEN "mlp.w2.weight",                UP,         FFN,    HIDDEN),
    MATRIX       (QWEN "mlp.w1.weight",                UP,         FFN,    HIDDEN),
    VECTOR_IF    (MLP_BIAS, QWEN "mlp.w2.bias",        UP_B,       FFN),
    VECTOR_IF    (MLP_BIAS, QWEN "mlp.w1.bias",        UP_B,       FFN),
    MATRIX       (QWEN "mlp.c_proj.weight",            DOWN,       HIDDEN, FFN),
    VECTOR_IF    (MLP_BIAS, QWEN "mlp.c_proj.bias",    DOWN_B,     HIDDEN),
    VECTOR       ("transformer.ln_f.weight",           FINAL_NORM, HIDDEN),
    MATRIX_IF    (UNTIED, "lm_head.weight",            HEAD,       VOCAB,  HIDDEN),
    TIED_HEAD    ("transformer.wte.weight"),
    END_TENSORS};
static const char *const qwen_unused[] = {"transformer.visual.", "transformer.audio.", NULL}; /* Qwen-VL, -Audio */
static const char *const ignored[] = {"rotary_emb.inv_freq", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE_IF(ROTARY), END};
static const proa_step layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR      (N, QKV, QKV,  0),
    SCALE_QUERIES(0),
    ROTATE_IF   (ROTARY),
    KV_APPEND,
    ATTEND,
    LINEAR      (A, X,   O,    ADD),
    NORM        (X, N,   FFN_NORM),
    LINEAR_GATED(N, F,   UP,   0),
    LINEAR      (F, X,   DOWN, ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

static proa_status finish_internlm2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    c->rotary_dim = c->hidden / c->heads;
    return proa_config_read_rope(c, json, arena, err);
}

/* No key names the positions or the normalised head. The class of the first 7B is written with a capital C. The others
 * have rotary positions if they have max_position_embeddings. Baichuan 2 has 125,696 tokens; configurations of other
 * sizes name its tokenizer's class, which those of the first generation do not, or a weight of its training loss. */
static proa_status finish_baichuan(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str class = proa_json_str(proa_json_at(proa_json_get(json, "architectures"), 0));
    proa_str tokenizer = {"", 0};
    PROA_TRY(proa_json_get_str(&tokenizer, json, "tokenizer_class", err));
    if (c->tied) return PROA_FAIL(err, UNSUPPORTED, "'tie_word_embeddings' true is not supported");
    bool first_7b = proa_str_is(class, "BaiChuanForCausalLM");
    c->gated = true;
    c->normed_head = !first_7b && (c->vocab == 125696 || proa_str_is(tokenizer, "BaichuanTokenizer") ||
                                   proa_json_get(json, "z_loss_weight"));
    if (first_7b || proa_json_get(json, "max_position_embeddings")) {
        c->rotary_dim = c->hidden / c->heads;
        return proa_config_read_rope(c, json, arena, err);
    }
    c->alibi_max = 8;
    return PROA_OK;
}

/* What is longer than seq_length: the base of rotary positions follows the length of the prompt, and a query at
 * position p is multiplied by log(p + 1) / log(seq_length). */
static proa_status read_qwen_lengths(proa_config *c, const proa_json *json, proa_err *err)
{
    bool grows = true, scaled = true;
    int64_t trained = 8192;
    PROA_TRY(proa_json_get_bool(&grows, json, "use_dynamic_ntk", err));
    PROA_TRY(proa_json_get_bool(&scaled, json, "use_logn_attn", err));
    PROA_TRY(proa_json_get_int(&trained, json, "seq_length", 2, PROA_CONTEXT_MAX, err));
    if (grows) c->rope.kind = PROA_ROPE_DOUBLED, c->rope.factor = 2, c->rope.original = trained;
    if (scaled)
        c->query_scale = (proa_query_scale){
            .beta = (float)(1 / log((double)trained)), .length = (int32_t)trained, .offset = 1, .smooth = true};
    return PROA_OK;
}

static proa_status finish_qwen(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool unbiased = true, scaled = true;
    double part = 1;
    PROA_UNUSED(arena);
    PROA_TRY(proa_json_get_bool(&unbiased, json, "no_bias", err));
    PROA_TRY(proa_json_get_bool(&scaled, json, "scale_attn_weights", err));
    PROA_TRY(proa_json_get_double(&part, json, "rotary_pct", 0, 1, err));
    c->rope.theta = 10000;
    PROA_TRY(proa_json_get_double(&c->rope.theta, json, "rotary_emb_base", 1, 1e12, err));
    if (c->head_dim * c->heads != c->hidden)
        return PROA_FAIL(err, INVALID, "%lld heads of 'kv_channels' %lld are not 'hidden_size' %lld",
                         (long long)c->heads, (long long)c->head_dim, (long long)c->hidden);
    if (c->ffn % 2)
        return PROA_FAIL(err, INVALID, "'intermediate_size' %lld must be even", (long long)c->ffn);
    if (!scaled) return PROA_FAIL(err, UNSUPPORTED, "'scale_attn_weights' false is not supported");
    c->act = PROA_ACT_SILU;
    c->gated = true;
    c->ffn /= 2;
    c->attention_bias = c->mlp_bias = !unbiased;
    c->rotary_dim = (int64_t)((double)c->head_dim * part);
    if (c->rotary_dim < 4 || c->rotary_dim % 2)
        return PROA_FAIL(err, UNSUPPORTED, "'rotary_pct' %g of a head of %lld is not supported", part,
                         (long long)c->head_dim);
    return read_qwen_lengths(c, json, err);
}

/* clang-format off */
#define ROW(type, classes, which)                                                                           \
    {.name = type, .model_type = type, .hf = classes, DECODER(RMS), .keys = which##_keys,                   \
     .names = which##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head,          \
     .finish = finish_##which}

const proa_arch proa_arch_internlm2 = ROW("internlm2", STRINGS("InternLM2ForCausalLM"), internlm2);
const proa_arch proa_arch_baichuan =
    ROW("baichuan", STRINGS("BaichuanForCausalLM", "BaiChuanForCausalLM"), baichuan);
const proa_arch proa_arch_qwen =
    {.name = "qwen", .model_type = "qwen", .hf = STRINGS("QWenLMHeadModel"), DECODER(RMS), .keys = qwen_keys,
     .names = qwen_tensors, .ignored = ignored, .unused_parts = qwen_unused, .stacks = {CAUSAL(embed, layer)},
     .head = head, .finish = finish_qwen};
/* clang-format on */
