/* SPDX-License-Identifier: Apache-2.0
 * arch_baichuan.c - InternLM2, Baichuan and Baichuan 2: Llama's layer with q, k and v in one matrix.
 * InternLM2 stores the rows of that matrix in groups of a key-value head. Baichuan 7B has rotary positions, 13B ALiBi.
 * Baichuan 2 divides each row of its head by its Euclidean norm. Facts: the modelling files that are published with the
 * checkpoints (internlm/internlm2-7b, baichuan-inc/Baichuan*). */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."

/* clang-format off */
static const proa_key internlm2_keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("num_key_value_heads",     kv_heads,       1, HEADS,    0),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  2048),
    EPSILON   ("rms_norm_eps",            1e-6),
    ACTIVATION("hidden_act",              SILU),
    SWITCH    ("tie_word_embeddings",     tied,           0),
    SWITCH    ("bias",                    attention_bias, 0),
    END_KEYS};
static const proa_key baichuan_keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    REQUIRED  ("hidden_size",             hidden,         HIDDEN),
    REQUIRED  ("num_hidden_layers",       layers,         LAYERS),
    REQUIRED  ("num_attention_heads",     heads,          HEADS),
    REQUIRED  ("intermediate_size",       ffn,            FFN),
    INTEGER   ("model_max_length",        context,        1, CONTEXT,  4096),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT,  4096),
    EPSILON   ("rms_norm_eps",            1e-6),
    ACTIVATION("hidden_act",              SILU),
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
static const char *const ignored[] = {"rotary_emb.inv_freq", NULL};

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE_IF(ROTARY), END};
static const proa_step layer[] = {
    NORM        (X, N,   ATTN_NORM),
    LINEAR      (N, QKV, QKV,  0),
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

/* clang-format off */
#define ROW(type, classes, which)                                                                           \
    {.name = type, .model_type = type, .hf = classes, DECODER(RMS), .keys = which##_keys,                   \
     .names = which##_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head,          \
     .finish = finish_##which}

const proa_arch proa_arch_internlm2 = ROW("internlm2", STRINGS("InternLM2ForCausalLM"), internlm2);
const proa_arch proa_arch_baichuan =
    ROW("baichuan", STRINGS("BaichuanForCausalLM", "BaiChuanForCausalLM"), baichuan);
/* clang-format on */
