/* SPDX-License-Identifier: Apache-2.0
 * arch_llama.c - Llama 1 to 3.3 and its relatives, from Mistral to EXAONE 3, Helium and CWM: pre-norm RMS, rotary
 * halves, gated SiLU. They differ in biases (Qwen2, InternLM, Seed-OSS), per-head norms of q and k (Qwen3), windows
 * (Mistral), factors and a mixture (MiniCPM), rotated pairs (Ernie 4.5, Helium) and layers without positions
 * (SmolLM3), so they share keys, tensors and all steps but two. Facts: transformers'
 * modeling_{llama,mistral,qwen2,qwen3,smollm3,seed_oss,ernie4_5,helium,cwm}.py, OpenBMB's modeling_minicpm.py, vLLM's
 * mimo.py and llama.py (whose registry has InternLM, InternLM3, Aquila and Xverse as Llamas),
 * TensorRT-LLM's models of Skywork. */
#include "model/arch/llama_rows.h"

#include <math.h>

#define STACK PROA_STACK_DECODER

/* clang-format off */
#define COMMON_KEYS LLAMA_KEYS(layers)
static const proa_key ernie_keys[] = {
    COMMON_KEYS,
    INTEGER   ("head_dim",                head_dim,        1, HEAD_DIM, 128),
    EPSILON   ("rms_norm_eps",            1e-5),
    SWITCH    ("tie_word_embeddings",     tied,            1),
    SWITCH    ("use_bias",                attention_bias,  0),
    SWITCH    ("use_bias",                mlp_bias,        0),
    KV_HEADS  (2),
    END_KEYS};
static const proa_key keys[] = {COMMON_KEYS, END_KEYS};
static const proa_key mistral_keys[] = {COMMON_KEYS, KV_HEADS(8), END_KEYS};
static const proa_key qwen2_keys[] = {COMMON_KEYS, KV_HEADS(32), END_KEYS};
static const proa_key qwen3_keys[] = {
    COMMON_KEYS,
    KV_HEADS  (32),
    INTEGER   ("head_dim",                head_dim,        1, HEAD_DIM, 128),
    END_KEYS};
static const proa_key smollm3_keys[] = {
    COMMON_KEYS,
    KV_HEADS  (4),
    SWITCH    ("tie_word_embeddings",     tied,            1),
    PAD       (128004),
    END_KEYS};
static const proa_key minicpm_keys[] = {
    COMMON_KEYS,
    NUMBER    ("scale_emb",               embed_scale,     1e-6, 1e6,   1),
    NUMBER    ("scale_depth",             residual_scale,  1e-6, 1e6,   1),
    SWITCH    ("tie_word_embeddings",     tied,            1),
    INTEGER   ("num_experts",             experts,         0, EXPERTS,  0),
    END_KEYS};
static const proa_key internlm_keys[] = {
    COMMON_KEYS,
    SWITCH    ("bias",                    attention_bias,  1),
    END_KEYS};
static const proa_key internlm3_keys[] = {
    COMMON_KEYS,
    EPSILON   ("rms_norm_eps",            1e-5),
    SWITCH    ("qkv_bias",                attention_bias,  0),
    SWITCH    ("bias",                    mlp_bias,        0),
    END_KEYS};
static const proa_key seed_oss_keys[] = {
    COMMON_KEYS,
    KV_HEADS  (8),
    INTEGER   ("head_dim",                head_dim,        1, HEAD_DIM, 128),
    SWITCH    ("attention_bias",          attention_bias,  1),
    PAD       (1),
    END_KEYS};
static const proa_key helium_keys[] = {
    INTEGER   ("max_position_embeddings", context,         1, CONTEXT,  4096),
    COMMON_KEYS,
    KV_HEADS  (20),
    INTEGER   ("head_dim",                head_dim,        1, HEAD_DIM, 128),
    EPSILON   ("rms_norm_eps",            1e-8),
    END_KEYS};
static const proa_key cwm_keys[] = {
    INTEGER   ("max_position_embeddings", context,         1, CONTEXT,  131072),
    COMMON_KEYS,
    KV_HEADS  (8),
    INTEGER   ("head_dim",                head_dim,        1, HEAD_DIM, 128),
    EPSILON   ("rms_norm_eps",            1e-5),
    END_KEYS};
static const proa_key exaone_keys[] = {
    INTEGER   ("num_layers",              layers,          1, LAYERS,   0),
    INTEGER   ("num_hidden_layers",       layers,          1, LAYERS,   32),
    REQUIRED  ("vocab_size",              vocab,           VOCAB),
    REQUIRED  ("hidden_size",             hidden,          HIDDEN),
    REQUIRED  ("num_attention_heads",     heads,           HEADS),
    REQUIRED  ("intermediate_size",       ffn,             FFN),
    KV_HEADS  (8),
    INTEGER   ("head_dim",                head_dim,        1, HEAD_DIM, 0),
    INTEGER   ("max_position_embeddings", context,         1, CONTEXT,  4096),
    SWITCH    ("tie_word_embeddings",     tied,            0),
    END_KEYS};

#define BODY           "model."
#define COMMON_TENSORS LLAMA_BODY(BODY), LLAMA_HEAD(BODY, "lm_head.weight"), END_TENSORS
static const proa_name llama_tensors[] = {LLAMA_ATTENTION_BIASES(BODY), LLAMA_MLP_BIASES(BODY), COMMON_TENSORS};
/* The output projection has a bias if the checkpoint has one. */
static const proa_name seed_oss_tensors[] = {
    LLAMA_QKV_BIASES(BODY),
    VECTOR_IF(PRESENT, BODY "layers.%d.self_attn.o_proj.bias", O_B, HIDDEN),
    LLAMA_MLP_BIASES(BODY),
    COMMON_TENSORS};
static const proa_name helium_tensors[] = {LLAMA_QKV_BIASES(BODY), LLAMA_MLP_BIASES(BODY), COMMON_TENSORS};
/* MiniCPM's mixture has Mixtral's names. */
static const proa_name minicpm_tensors[] = {
    LLAMA_ATTENTION_BIASES(BODY),
    LLAMA_MLP_BIASES(BODY),
    LLAMA_ATTENTION(BODY),
    LLAMA_DENSE_TENSORS(BODY "layers.%d.mlp."),
    MATRIX_IF(EXPERTS, BODY "layers.%d.mlp.gate.weight",      ROUTER, EXPERTS, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, BODY "layers.%d.mlp.experts.%d.w1.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, BODY "layers.%d.mlp.experts.%d.w3.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, BODY "layers.%d.mlp.experts.%d.w2.weight", EXPERT_DOWN, HIDDEN,     EXPERT_FFN),
    LLAMA_HEAD(BODY, "lm_head.weight"),
    END_TENSORS};
static const proa_name qwen2_tensors[] = {LLAMA_QWEN2_BIASES(BODY), COMMON_TENSORS};
static const proa_name qwen3_tensors[] = {LLAMA_ATTENTION_BIASES(BODY), LLAMA_HEAD_NORMS(BODY), COMMON_TENSORS};
/* EXAONE 3 has other names, which transformers 5 saves, too. */
static const char *const exaone_beginnings[] = {
    "model.layers.", "transformer.h.", "model.embed_tokens.", "transformer.wte.", "model.norm.", "transformer.ln_f.",
    NULL};
static const char *const exaone_endings[] = {
    "self_attn.q_proj.weight",         "attn.attention.q_proj.weight",
    "self_attn.k_proj.weight",         "attn.attention.k_proj.weight",
    "self_attn.v_proj.weight",         "attn.attention.v_proj.weight",
    "self_attn.o_proj.weight",         "attn.attention.out_proj.weight",
    "input_layernorm.weight",          "ln_1.weight",
    "post_attention_layernorm.weight", "ln_2.weight",
    "mlp.gate_proj.weight",            "mlp.c_fc_0.weight",
    "mlp.up_proj.weight",              "mlp.c_fc_1.weight",
    "mlp.down_proj.weight",            "mlp.c_proj.weight",
    NULL};
static const char *const prefixes[] = {"model.", NULL}; /* which embedders leave out (Qwen3-Embedding) */
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */
static const char *const exaone_ignored[] = {"rotary.inv_freq", "rotary_emb.inv_freq", "lm_head.weight", NULL};

static const char *const mimo_unused[] = {"model.mtp_layers.", NULL}; /* multi-token prediction */

static const proa_step embed[] = {EMBED_TO(X, TOKENS, SCALED), ROPE_TABLE, END};
static const proa_step layer[] = {LLAMA_QKV, ROTATE, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step layer_pairs[] = {LLAMA_QKV, ROTATE_PAIRS, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step layer_qk_norm[] = {
    LLAMA_QKV, Q_NORM(Q_NORM), K_NORM(K_NORM), ROTATE, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step layer_minicpm[] = {
    LLAMA_QKV,
    ROTATE,
    LLAMA_ATTEND,
    NORM        (X, N, FFN_NORM),
    LINEAR_GATED(N, F, UP,   IF(DENSE)),
    LINEAR      (F, X, DOWN, ADD | RESIDUAL | IF(DENSE)),
    LLAMA_EXPERTS,
    END};
static const proa_step head[] = {LM_HEAD(SCALED)};
/* clang-format on */

/* What experts add is scaled as what attention adds: their weights are. */
static proa_status read_minicpm_experts(proa_config *c, const proa_json *json, proa_err *err)
{
    int64_t chosen = 2;
    PROA_TRY(proa_json_get_int(&chosen, json, "num_experts_per_tok", 1, PROA_EXPERTS_MAX, err));
    c->router.chosen = (int32_t)chosen;
    c->router.renormalise = true;
    c->router.scale = (float)c->residual_scale;
    c->expert_ffn = c->ffn;
    return PROA_OK;
}

/* scale_depth is for all layers together; the head's input is divided by hidden_size / dim_model_base. */
static proa_status finish_minicpm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t base = 1;
    PROA_TRY(proa_json_get_int(&base, json, "dim_model_base", 1, PROA_HIDDEN_MAX, err));
    c->logit_scale = (double)base / (double)c->hidden;
    c->residual_scale /= sqrt((double)c->layers);
    if (c->experts > 0) PROA_TRY(read_minicpm_experts(c, json, err));
    PROA_TRY(proa_llama_check_residual(c, err));
    return proa_llama_finish(c, json, arena, err);
}

/* no_rope_layers holds 1 for each layer that does rotate; else every no_rope_layer_interval-th does not. A window is
 * that of the layers that do not. */
static proa_status finish_smollm3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t interval = 4;
    const proa_json *list = proa_json_get(json, "no_rope_layers");
    bool *rotated = PROA_ARENA_NEW(arena, bool, c->layers);
    PROA_TRY(proa_json_get_int(&interval, json, "no_rope_layer_interval", 1, PROA_LAYERS_MAX, err));
    if (list && proa_json_len(list) != c->layers)
        return PROA_FAIL(err, INVALID, "'no_rope_layers' has %lld entries for %lld layers",
                         (long long)proa_json_len(list), (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        rotated[i] = list ? proa_json_int(proa_json_at(list, i)) != 0 : (i + 1) % interval != 0;
    c->rotated_layers = rotated;
    c->rope.theta = 2e6;
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    if (!proa_json_bool(proa_json_get(json, "use_sliding_window"))) return PROA_OK;
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    if (c->window_used && !proa_json_get(json, "layer_types"))
        for (int64_t i = 0; i < c->layers; i++) c->window_layers[i] = !rotated[i];
    return PROA_OK;
}

static proa_status finish_ernie(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rope.theta = 500000;
    return proa_llama_finish(c, json, arena, err);
}

static proa_status finish_helium(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rope.theta = 1e5;
    return proa_llama_finish(c, json, arena, err);
}

/* CWM's class has this scaling where config.json has none, or null, and no biases of attention. */
static proa_status finish_cwm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->attention_bias = false;
    c->rope.theta = 1e6;
    if (!proa_json_get(json, "rope_parameters") && !proa_json_get(json, "rope_scaling")) {
        c->rope.kind = PROA_ROPE_LLAMA3;
        c->rope.factor = 16, c->rope.low = 1, c->rope.high = 4;
        c->rope.original = 8192;
    }
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    return proa_llama_read_three_windows(c, json, 8192, arena, err);
}

/* Either name of the keys that it has in GPT-2's style. */
static proa_status finish_exaone(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    bool renamed = proa_json_get(json, "activation_function") != NULL;
    c->norm_eps = 1e-5;
    PROA_TRY(proa_json_get_double(&c->norm_eps, json, "rms_norm_eps", 0, 1, err));
    PROA_TRY(proa_json_get_double(&c->norm_eps, json, "layer_norm_epsilon", 0, 1, err));
    PROA_TRY(proa_config_read_act(&c->act, json, renamed ? "activation_function" : "hidden_act",
                                  PROA_ACT_SILU, err));
    c->rope.theta = 500000;
    return proa_llama_finish(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class, keylist, tensors, layer, finisher, heads)                                   \
    {.name = type, .model_type = type, .hf = class, DECODER(RMS), .keys = keylist,                  \
     .names = tensors##_tensors, .prefixes = prefixes, .ignored = ignored,                          \
     .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finisher, heads}

/* Aquila, Xverse and Skywork are Llamas under their own names. */
const proa_arch proa_arch_llama = ROW(
    "llama",
    STRINGS("LlamaForCausalLM", "LLaMAForCausalLM", "AquilaModel", "AquilaForCausalLM", "XverseForCausalLM",
            "SkyworkForCausalLM"),
    keys, llama, layer, proa_llama_finish, HEADS(TEXTS | TOKENS | SPANS, "Llama"));
const proa_arch proa_arch_mistral =
    ROW("mistral", STRINGS("MistralForCausalLM", "MinistralForCausalLM"), mistral_keys, llama, layer,
        proa_mistral_finish, HEADS(TEXTS | TOKENS | SPANS, "Mistral", "Ministral"));
const proa_arch proa_arch_qwen2 =
    ROW("qwen2", STRINGS("Qwen2ForCausalLM"), qwen2_keys, qwen2, layer, proa_qwen_finish,
        HEADS(TEXTS | TOKENS | SPANS, "Qwen2"));
const proa_arch proa_arch_qwen3 =
    ROW("qwen3", STRINGS("Qwen3ForCausalLM"), qwen3_keys, qwen3, layer_qk_norm, proa_qwen_finish,
        HEADS(TEXTS | TOKENS | SPANS, "Qwen3"));
const proa_arch proa_arch_minicpm =
    ROW("minicpm", STRINGS("MiniCPMForCausalLM"), minicpm_keys, minicpm, layer_minicpm, finish_minicpm, NO_HEADS);
const proa_arch proa_arch_smollm3 =
    ROW("smollm3", STRINGS("SmolLM3ForCausalLM"), smollm3_keys, llama, layer, finish_smollm3,
        HEADS(TEXTS | TOKENS | SPANS, "SmolLM3"));
const proa_arch proa_arch_internlm =
    ROW("internlm", STRINGS("InternLMForCausalLM"), internlm_keys, llama, layer, proa_llama_finish, NO_HEADS);
const proa_arch proa_arch_internlm3 =
    ROW("internlm3", STRINGS("InternLM3ForCausalLM"), internlm3_keys, seed_oss, layer, proa_llama_finish,
        NO_HEADS);
const proa_arch proa_arch_ernie4_5 =
    ROW("ernie4_5", STRINGS("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"), ernie_keys, llama, layer_pairs,
        finish_ernie, NO_HEADS);
const proa_arch proa_arch_helium =
    ROW("helium", STRINGS("HeliumForCausalLM"), helium_keys, helium, layer_pairs, finish_helium,
        HEADS(TEXTS | TOKENS, "Helium"));
const proa_arch proa_arch_cwm = ROW("cwm", STRINGS("CwmForCausalLM"), cwm_keys, llama, layer, finish_cwm, NO_HEADS);
const proa_arch proa_arch_exaone =
    {.name = "exaone", .model_type = "exaone", .hf = STRINGS("ExaoneForCausalLM"), DECODER(RMS), .keys = exaone_keys,
     .names = llama_tensors, .prefix_aliases = exaone_beginnings, .aliases = exaone_endings, .ignored = exaone_ignored,
     .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finish_exaone};
const proa_arch proa_arch_seed_oss =
    ROW("seed_oss", STRINGS("SeedOssForCausalLM"), seed_oss_keys, seed_oss, layer, proa_llama_finish,
        HEADS(TEXTS | TOKENS | SPANS, "SeedOss"));
/* MiMo 7B: a Qwen2 that also predicts further tokens. */
const proa_arch proa_arch_mimo =
    {.name = "mimo", .model_type = "mimo", .hf = STRINGS("MiMoForCausalLM"), DECODER(RMS), .keys = qwen2_keys,
     .names = qwen2_tensors, .prefixes = prefixes, .ignored = ignored, .unused_parts = mimo_unused,
     .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = proa_qwen_finish};
/* clang-format on */
