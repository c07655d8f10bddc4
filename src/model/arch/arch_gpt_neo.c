/* SPDX-License-Identifier: Apache-2.0
 * arch_gpt_neo.c - GPT-Neo and the first GPT: decoders with LayerNorm, learned positions and a plain FFN. GPT-Neo is
 * GPT-2 with a window in some layers and scores that are not divided by sqrt(head_dim). GPT norms the sum of a sublayer
 * and its input, and its head reads the stream as it is.
 * Facts: transformers' modeling_{gpt_neo,openai}.py, configuration_gpt_neo.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_DECODER
#define LAYER "transformer.h.%d."

/* clang-format off */
static const proa_key neo_keys[] = {
    REQUIRED  ("vocab_size",              vocab,   VOCAB),
    REQUIRED  ("hidden_size",             hidden,  HIDDEN),
    REQUIRED  ("num_layers",              layers,  LAYERS),
    REQUIRED  ("num_heads",               heads,   HEADS),
    INTEGER   ("intermediate_size",       ffn,     1, FFN,     0),
    INTEGER   ("max_position_embeddings", context, 1, CONTEXT, 2048),
    INTEGER   ("window_size",             window,  1, CONTEXT, 256),
    EPSILON   ("layer_norm_epsilon",      1e-5),
    ACTIVATION("activation_function",     GELU_TANH),
    SWITCH    ("tie_word_embeddings",     tied,    1),
    END_KEYS};
static const proa_key gpt_keys[] = {
    REQUIRED  ("vocab_size",              vocab,   VOCAB),
    REQUIRED  ("n_embd",                  hidden,  HIDDEN),
    REQUIRED  ("n_layer",                 layers,  LAYERS),
    REQUIRED  ("n_head",                  heads,   HEADS),
    INTEGER   ("n_positions",             context, 1, CONTEXT, 512),
    EPSILON   ("layer_norm_epsilon",      1e-5),
    ACTIVATION("afn",                     GELU),
    SWITCH    ("tie_word_embeddings",     tied,    1),
    END_KEYS};

/* FORM: how matrices are stored. GPT's are [in, out]. */
#define LAYER_TENSORS(FORM) \
    FORM  (LAYER "mlp.c_fc.weight",   UP,          FFN,    HIDDEN), \
    VECTOR(LAYER "mlp.c_fc.bias",     UP_B,        FFN),            \
    FORM  (LAYER "mlp.c_proj.weight", DOWN,        HIDDEN, FFN),    \
    VECTOR(LAYER "mlp.c_proj.bias",   DOWN_B,      HIDDEN),         \
    VECTOR(LAYER "ln_1.weight",       ATTN_NORM,   HIDDEN),         \
    VECTOR(LAYER "ln_1.bias",         ATTN_NORM_B, HIDDEN),         \
    VECTOR(LAYER "ln_2.weight",       FFN_NORM,    HIDDEN),         \
    VECTOR(LAYER "ln_2.bias",         FFN_NORM_B,  HIDDEN)
static const proa_name neo_tensors[] = {
    TABLE    ("transformer.wte.weight",                TOKENS,       VOCAB,   HIDDEN),
    TABLE    ("transformer.wpe.weight",                POSITIONS,    CONTEXT, HIDDEN),
    MATRIX   (LAYER "attn.attention.q_proj.weight",    QKV,          Q,       HIDDEN),
    MATRIX   (LAYER "attn.attention.k_proj.weight",    QKV,          KV,      HIDDEN),
    MATRIX   (LAYER "attn.attention.v_proj.weight",    QKV,          KV,      HIDDEN),
    MATRIX   (LAYER "attn.attention.out_proj.weight",  O,            HIDDEN,  Q),
    VECTOR   (LAYER "attn.attention.out_proj.bias",    O_B,          HIDDEN),
    LAYER_TENSORS(MATRIX),
    VECTOR   ("transformer.ln_f.weight",               FINAL_NORM,   HIDDEN),
    VECTOR   ("transformer.ln_f.bias",                 FINAL_NORM_B, HIDDEN),
    TIED_HEAD("transformer.wte.weight"),
    MATRIX_IF(UNTIED, "lm_head.weight",                HEAD,         VOCAB,   HIDDEN),
    END_TENSORS};
static const proa_name gpt_tensors[] = {
    TABLE     ("transformer.tokens_embed.weight",      TOKENS,       VOCAB,   HIDDEN),
    TABLE     ("transformer.positions_embed.weight",   POSITIONS,    CONTEXT, HIDDEN),
    TRANSPOSED(LAYER "attn.c_attn.weight",             QKV,          QKV,     HIDDEN),
    VECTOR    (LAYER "attn.c_attn.bias",               QKV_B,        QKV),
    TRANSPOSED(LAYER "attn.c_proj.weight",             O,            HIDDEN,  Q),
    VECTOR    (LAYER "attn.c_proj.bias",               O_B,          HIDDEN),
    LAYER_TENSORS(TRANSPOSED),
    TIED_HEAD ("transformer.tokens_embed.weight"),
    MATRIX_IF (UNTIED, "lm_head.weight",               HEAD,         VOCAB,   HIDDEN),
    END_TENSORS};
static const char *const prefixes[] = {"transformer.", NULL};
static const char *const ignored[] = {
    "attention.bias", "attention.masked_bias", "attn.bias", "position_ids", "lm_head.weight", NULL};

static const proa_step embed[] = {EMBED(TOKENS), EMBED_TO(X, POSITIONS, OF_POS | ADD), END};
static const proa_step neo_layer[] = {
    NORM  (X, N,   ATTN_NORM),
    LINEAR(N, QKV, QKV,  0),
    KV_APPEND,
    ATTEND,
    LINEAR(A, X,   O,    ADD),
    NORM  (X, N,   FFN_NORM),
    LINEAR(N, U,   UP,   ACT),
    LINEAR(U, X,   DOWN, ADD),
    END};
static const proa_step gpt_layer[] = {POST_NORM_LAYER};
static const proa_step neo_head[] = {LM_HEAD(0)};
static const proa_step gpt_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
/* clang-format on */

/* attention_types is a list of [kinds, how often they are repeated]. */
static proa_status read_kinds(proa_config *c, const proa_json *types, proa_err *err)
{
    int64_t layer = 0;
    for (int64_t i = 0; i < proa_json_len(types); i++) {
        const proa_json *kinds = proa_json_at(proa_json_at(types, i), 0);
        int64_t times = proa_json_int(proa_json_at(proa_json_at(types, i), 1)), count = proa_json_len(kinds);
        if (times < 0 || times > PROA_LAYERS_MAX || count > PROA_LAYERS_MAX || layer + times * count > c->layers)
            return PROA_FAIL(err, INVALID, "'attention_types' is of more than %lld layers", (long long)c->layers);
        for (int64_t n = 0; n < times * count; n++) {
            proa_str kind = proa_json_str(proa_json_at(kinds, n % count));
            c->window_layers[layer] = proa_str_is(kind, "local");
            if (!c->window_layers[layer++] && !proa_str_is(kind, "global"))
                return PROA_FAIL(err, UNSUPPORTED, "'attention_types' has '%.*s' (global, local are supported)",
                                 (int)kind.len, kind.ptr);
        }
    }
    if (layer == c->layers) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'attention_types' is of %lld layers, there are %lld", (long long)layer,
                     (long long)c->layers);
}

static proa_status finish_neo(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *types = proa_json_get(json, "attention_types");
    if (c->ffn == 0) c->ffn = 4 * c->hidden;
    c->attention_scale = 1;
    c->window_used = true;
    c->window_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    if (types) return read_kinds(c, types, err);
    for (int64_t i = 0; i < c->layers; i++) c->window_layers[i] = i % 2 == 1;
    return PROA_OK;
}

/* Its "gelu" is the tanh form. */
static proa_status finish_gpt(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(json);
    PROA_UNUSED(arena);
    PROA_UNUSED(err);
    c->ffn = 4 * c->hidden;
    if (c->act == PROA_ACT_GELU) c->act = PROA_ACT_GELU_TANH;
    return PROA_OK;
}

/* clang-format off */
#define ROW(row, type, class, form, heads)                                                             \
    {.name = row, .model_type = type, .hf = STRINGS(class), DECODER(LAYER), .keys = form##_keys,       \
     .names = form##_tensors, .prefixes = prefixes, .ignored = ignored,                                \
     .stacks = {CAUSAL(embed, form##_layer)}, .head = form##_head, .finish = finish_##form, heads}

const proa_arch proa_arch_gpt_neo    = ROW("gpt_neo",    "gpt_neo",    "GPTNeoForCausalLM",    neo,
                                      HEADS(TEXTS | TOKENS | SPANS, "GPTNeo"));
const proa_arch proa_arch_openai_gpt = ROW("openai-gpt", "openai-gpt", "OpenAIGPTLMHeadModel", gpt,
                                      HEADS(TEXTS, "OpenAIGPT"));
/* clang-format on */
