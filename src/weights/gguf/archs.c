/* SPDX-License-Identifier: Apache-2.0
 * archs.c - the table of GGUF architectures: their metadata as keys of the Hugging Face class with the same layers. */
#include "weights/gguf/finish.h"

#include "base/checked.h"
#include <string.h>

/* clang-format off */
#define NEEDED(gguf, hf)  {gguf, hf, PROA_GGUF_KEY_INT, true}
#define INTEGER(gguf, hf) {gguf, hf, PROA_GGUF_KEY_INT, false}
#define NUMBER(gguf, hf)  {gguf, hf, PROA_GGUF_KEY_NUMBER, false}
#define END               {NULL, NULL, 0, false}

#define SIZES(hidden, layers, heads, context) \
    NEEDED("embedding_length", hidden), NEEDED("block_count", layers), NEEDED("attention.head_count", heads), \
    INTEGER("context_length", context)
#define HF_SIZES SIZES("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
#define GPT2_SIZES SIZES("n_embd", "n_layer", "n_head", "n_positions")
#define LAYER_EPSILON(hf) NUMBER("attention.layer_norm_epsilon", hf)

#define LLAMA_KEYS \
    HF_SIZES, \
    NEEDED ("feed_forward_length",      "intermediate_size"), \
    INTEGER("attention.head_count_kv",  "num_key_value_heads"), \
    INTEGER("attention.key_length",     "head_dim"), \
    NUMBER ("attention.layer_norm_rms_epsilon", "rms_norm_eps")
static const proa_gguf_key llama_keys[] = {LLAMA_KEYS, END};
static const proa_gguf_key gemma2_keys[] = {
    LLAMA_KEYS,
    NUMBER ("attn_logit_softcapping",   "attn_logit_softcapping"),
    NUMBER ("final_logit_softcapping",  "final_logit_softcapping"),
    INTEGER("attention.sliding_window", "sliding_window"),
    END};
#define LAYER_INPUT_KEYS \
    HF_SIZES, \
    NUMBER ("attention.layer_norm_rms_epsilon",  "rms_norm_eps"), \
    INTEGER("attention.sliding_window",          "sliding_window"), \
    INTEGER("attention.shared_kv_layers",        "num_kv_shared_layers"), \
    INTEGER("embedding_length_per_layer_input",  "hidden_size_per_layer_input")
static const proa_gguf_key gemma4_keys[] = {
    LAYER_INPUT_KEYS,
    INTEGER("expert_count",                      "num_experts"),
    INTEGER("expert_used_count",                 "top_k_experts"),
    INTEGER("expert_feed_forward_length",        "moe_intermediate_size"),
    END};
static const proa_gguf_key gemma3n_keys[] = {
    LAYER_INPUT_KEYS,
    INTEGER("attention.head_count_kv",           "num_key_value_heads"),
    INTEGER("attention.key_length",              "head_dim"),
    INTEGER("altup.active_idx",                  "altup_active_idx"),
    INTEGER("altup.num_inputs",                  "altup_num_inputs"),
    END};
static const proa_gguf_key windows_keys[] = {
    LLAMA_KEYS, INTEGER("attention.sliding_window", "sliding_window"), END};
/* Phi-2, StarCoder 2, StableLM: LayerNorm, whose epsilon the classes call differently. */
#define LAYER_NORM_KEYS(epsilon) \
    HF_SIZES, \
    NEEDED ("feed_forward_length",      "intermediate_size"), \
    INTEGER("attention.head_count_kv",  "num_key_value_heads"), \
    LAYER_EPSILON(epsilon)
static const proa_gguf_key phi2_keys[] = {LAYER_NORM_KEYS("layer_norm_eps"), END};
static const proa_gguf_key starcoder2_keys[] = {LAYER_NORM_KEYS("norm_epsilon"), END};
static const proa_gguf_key stablelm_keys[] = {
    LAYER_NORM_KEYS("layer_norm_eps"),
    {"use_parallel_residual", "use_parallel_residual", PROA_GGUF_KEY_BOOL, false},
    END};
static const proa_gguf_key cohere_keys[] = {
    LAYER_NORM_KEYS("layer_norm_eps"), NUMBER("logit_scale", "logit_scale"), END};
static const proa_gguf_key cohere2_keys[] = {
    LAYER_NORM_KEYS("layer_norm_eps"),
    NUMBER ("logit_scale",              "logit_scale"),
    INTEGER("attention.sliding_window", "sliding_window"),
    END};
static const proa_gguf_key nemotron_keys[] = {
    LAYER_NORM_KEYS("norm_eps"), INTEGER("attention.key_length", "head_dim"), END};
static const proa_gguf_key olmo_keys[] = {
    LAYER_NORM_KEYS("rms_norm_eps"), NUMBER("attention.clamp_kqv", "clip_qkv"), END};
static const proa_gguf_key bert_keys[] = {
    LAYER_NORM_KEYS("layer_norm_eps"), END};
static const proa_gguf_key nomic_keys[] = {
    HF_SIZES,
    NEEDED ("feed_forward_length",      "intermediate_size"),
    LAYER_EPSILON("layer_norm_eps"),
    END};
static const proa_gguf_key nomic_moe_keys[] = {
    HF_SIZES,
    NEEDED ("feed_forward_length",      "intermediate_size"),
    LAYER_EPSILON("layer_norm_eps"),
    INTEGER("expert_count",             "num_experts"),
    INTEGER("expert_used_count",        "moe_top_k"),
    NEEDED ("moe_every_n_layers",       "moe_every_n_layers"),
    END};
static const proa_gguf_key t5_keys[] = {
    SIZES("d_model", "num_layers", "num_heads", "n_positions"),
    NEEDED ("feed_forward_length",      "d_ff"),
    NEEDED ("attention.key_length",     "d_kv"),
    INTEGER("decoder_block_count",      "num_decoder_layers"),
    INTEGER("attention.relative_buckets_count", "relative_attention_num_buckets"),
    INTEGER("decoder_start_token_id",   "decoder_start_token_id"),
    NUMBER ("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"),
    END};
#define EXPERT_COUNTS(experts) INTEGER("expert_count", experts), INTEGER("expert_used_count", "num_experts_per_tok")
static const proa_gguf_key mixtral_keys[] = {LLAMA_KEYS, EXPERT_COUNTS("num_local_experts"), END};
static const proa_gguf_key qwen_moe_keys[] = {
    LLAMA_KEYS,
    EXPERT_COUNTS("num_experts"),
    END};
#define GRANITE_KEYS \
    LLAMA_KEYS, \
    NUMBER("attention.scale", "attention_multiplier"), \
    NUMBER("embedding_scale", "embedding_multiplier"), \
    NUMBER("residual_scale",  "residual_multiplier"), \
    NUMBER("logit_scale",     "logits_scaling")
static const proa_gguf_key granite_keys[] = {GRANITE_KEYS, END};
static const proa_gguf_key granite_moe_keys[] = {GRANITE_KEYS, EXPERT_COUNTS("num_local_experts"), END};
static const proa_gguf_key granite_shared_keys[] = {
    GRANITE_KEYS,
    EXPERT_COUNTS("num_local_experts"),
    INTEGER("expert_shared_feed_forward_length", "shared_intermediate_size"),
    END};
#define SSM_KEYS(taps, state, groups, heads) \
    NEEDED("ssm.conv_kernel", taps), NEEDED("ssm.state_size", state), NEEDED("ssm.group_count", groups), \
    NEEDED("ssm.time_step_rank", heads)
#define DELTA_KEYS \
    HF_SIZES, \
    INTEGER("feed_forward_length",     "intermediate_size"), \
    INTEGER("attention.head_count_kv", "num_key_value_heads"), \
    INTEGER("attention.key_length",    "head_dim"), \
    NUMBER ("attention.layer_norm_rms_epsilon", "rms_norm_eps"), \
    SSM_KEYS("linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads"), \
    INTEGER("nextn_predict_layers",    "num_nextn_predict_layers")
static const proa_gguf_key delta_keys[] = {DELTA_KEYS, END};
static const proa_gguf_key delta_moe_keys[] = {
    DELTA_KEYS,
    EXPERT_COUNTS("num_experts"),
    INTEGER("expert_feed_forward_length",        "moe_intermediate_size"),
    INTEGER("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    END};
#define MAMBA_KEYS SSM_KEYS("mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads")
static const proa_gguf_key granite_hybrid_keys[] = {GRANITE_KEYS, MAMBA_KEYS, END};
static const proa_gguf_key granite_hybrid_moe_keys[] = {
    GRANITE_KEYS, EXPERT_COUNTS("num_local_experts"), MAMBA_KEYS, END};
/* Of Mamba-1 the rank of what makes the steps is that; what heads are made of is this program's own. */
static const proa_gguf_key mamba1_keys[] = {
    NEEDED ("embedding_length", "hidden_size"),
    NEEDED ("block_count",      "num_hidden_layers"),
    INTEGER("context_length",   "max_position_embeddings"),
    NUMBER ("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"),
    NEEDED ("ssm.conv_kernel",  "conv_kernel"),
    NEEDED ("ssm.state_size",   "state_size"),
    NEEDED ("ssm.time_step_rank", "time_step_rank"),
    END};
static const proa_gguf_key jamba_keys[] = {
    LLAMA_KEYS,
    EXPERT_COUNTS("num_experts"),
    NEEDED ("ssm.conv_kernel",  "mamba_d_conv"),
    NEEDED ("ssm.state_size",   "mamba_d_state"),
    NEEDED ("ssm.time_step_rank", "mamba_dt_rank"),
    END};
static const proa_gguf_key mamba2_keys[] = {
    NEEDED ("embedding_length", "hidden_size"),
    NEEDED ("block_count",      "num_hidden_layers"),
    INTEGER("context_length",   "max_position_embeddings"),
    NUMBER ("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"),
    SSM_KEYS("conv_kernel", "state_size", "n_groups", "num_heads"),
    END};
#define NEMOTRON_H_KEYS \
    HF_SIZES, \
    INTEGER("attention.head_count_kv", "num_key_value_heads"), \
    INTEGER("attention.key_length",    "head_dim"), \
    NUMBER ("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"), \
    SSM_KEYS("conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads")
static const proa_gguf_key nemotron_h_keys[] = {NEMOTRON_H_KEYS, END};
static const proa_gguf_key nemotron_h_moe_keys[] = {
    NEMOTRON_H_KEYS,
    EXPERT_COUNTS("n_routed_experts"),
    INTEGER("expert_feed_forward_length",        "moe_intermediate_size"),
    INTEGER("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
    INTEGER("expert_shared_count",     "n_shared_experts"),
    INTEGER("expert_group_count",      "n_group"),
    INTEGER("expert_group_used_count", "topk_group"),
    NUMBER ("expert_weights_scale",    "routed_scaling_factor"),
    {"expert_weights_norm", "norm_topk_prob", PROA_GGUF_KEY_BOOL, false},
    INTEGER("moe_latent_size",         "moe_latent_size"),
    INTEGER("nextn_predict_layers",    "num_nextn_predict_layers"),
    END};
static const proa_gguf_key mamba_keys[] = {LLAMA_KEYS, MAMBA_KEYS, END};
#define LFM2_KEYS \
    HF_SIZES, \
    NEEDED ("feed_forward_length",      "intermediate_size"), \
    INTEGER("attention.head_count_kv",  "num_key_value_heads"), \
    NUMBER ("attention.layer_norm_rms_epsilon", "norm_eps"), \
    NEEDED ("shortconv.l_cache",        "conv_L_cache")
static const proa_gguf_key lfm2_keys[] = {LFM2_KEYS, END};
static const proa_gguf_key lfm2_moe_keys[] = {
    LFM2_KEYS,
    EXPERT_COUNTS("num_experts"),
    INTEGER("leading_dense_block_count",  "num_dense_layers"),
    INTEGER("expert_feed_forward_length", "moe_intermediate_size"),
    END};
#define SHARED_EXPERT_KEYS(dense, size, shared) \
    INTEGER("leading_dense_block_count",  dense), \
    INTEGER("expert_feed_forward_length", size), \
    INTEGER("expert_shared_count",        shared)
/* Sigmoids choose experts, by groups (DeepSeek V3, GLM-4.5, dots.llm1). */
#define SIGMOID_KEYS \
    SHARED_EXPERT_KEYS("first_k_dense_replace", "moe_intermediate_size", "n_shared_experts"), \
    EXPERT_COUNTS("n_routed_experts"), \
    INTEGER("expert_group_count",      "n_group"), \
    INTEGER("expert_group_used_count", "topk_group"), \
    NUMBER ("expert_weights_scale",    "routed_scaling_factor"), \
    {"expert_weights_norm", "norm_topk_prob", PROA_GGUF_KEY_BOOL, false}
static const proa_gguf_key sigmoid_moe_keys[] = {
    LLAMA_KEYS, SIGMOID_KEYS, INTEGER("nextn_predict_layers", "num_nextn_predict_layers"), END};
/* The same without groups, with the class's names of these. */
#define CHOSEN_KEYS(dense, shared, scale, norm) \
    SHARED_EXPERT_KEYS(dense, "moe_intermediate_size", shared), \
    EXPERT_COUNTS("num_experts"), \
    NUMBER ("expert_weights_scale",    scale), \
    {"expert_weights_norm", norm, PROA_GGUF_KEY_BOOL, false}
static const proa_gguf_key afmoe_keys[] = {
    LLAMA_KEYS,
    CHOSEN_KEYS("num_dense_layers", "num_shared_experts", "route_scale", "route_norm"),
    INTEGER("attention.sliding_window", "sliding_window"),
    END};
static const proa_gguf_key exaone_moe_keys[] = {
    LLAMA_KEYS,
    CHOSEN_KEYS("first_k_dense_replace", "num_shared_experts", "routed_scaling_factor", "norm_topk_prob"),
    INTEGER("expert_group_count",       "n_group"),
    INTEGER("expert_group_used_count",  "topk_group"),
    INTEGER("attention.sliding_window", "sliding_window"),
    INTEGER("nextn_predict_layers",     "num_nextn_predict_layers"),
    END};
static const proa_gguf_key hy_v3_keys[] = {
    LLAMA_KEYS,
    EXPERT_COUNTS("num_experts"),
    INTEGER("expert_feed_forward_length", "moe_intermediate_size"),
    NUMBER ("expert_weights_scale",     "router_scaling_factor"),
    {"expert_weights_norm", "route_norm", PROA_GGUF_KEY_BOOL, false},
    INTEGER("nextn_predict_layers",     "num_nextn_predict_layers"),
    END};
static const proa_gguf_key minimax_keys[] = {
    HF_SIZES,
    INTEGER("attention.head_count_kv",  "num_key_value_heads"),
    INTEGER("attention.key_length",     "head_dim"),
    NUMBER ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    EXPERT_COUNTS("num_local_experts"),
    NEEDED ("expert_feed_forward_length", "intermediate_size"),
    END};
static const proa_gguf_key ernie_moe_keys[] = {
    LLAMA_KEYS,
    SHARED_EXPERT_KEYS("moe_layer_start_index", "moe_intermediate_size", "moe_num_shared_experts"),
    INTEGER("expert_count",              "moe_num_experts"),
    INTEGER("expert_used_count",         "moe_k"),
    INTEGER("interleave_moe_layer_step", "moe_layer_interval"),
    END};
static const proa_gguf_key hunyuan_moe_keys[] = {
    LLAMA_KEYS,
    INTEGER("expert_count",               "num_experts"),
    INTEGER("expert_used_count",          "moe_topk"),
    INTEGER("expert_feed_forward_length", "moe_intermediate_size"),
    INTEGER("expert_shared_count",        "num_shared_expert"),
    END};
static const proa_gguf_key llama4_keys[] = {
    HF_SIZES,
    NEEDED ("feed_forward_length",        "intermediate_size_mlp"),
    NEEDED ("expert_feed_forward_length", "intermediate_size"),
    INTEGER("attention.head_count_kv",    "num_key_value_heads"),
    INTEGER("attention.key_length",       "head_dim"),
    NUMBER ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    EXPERT_COUNTS("num_local_experts"),
    NEEDED ("interleave_moe_layer_step",  "interleave_moe_layer_step"),
    END};
static const proa_gguf_key gpt2_keys[] = {
    GPT2_SIZES, INTEGER("feed_forward_length", "n_inner"), LAYER_EPSILON("layer_norm_epsilon"), END};
static const proa_gguf_key gptneox_keys[] = {
    HF_SIZES,
    NEEDED("feed_forward_length", "intermediate_size"),
    LAYER_EPSILON("layer_norm_eps"),
    {"use_parallel_residual", "use_parallel_residual", PROA_GGUF_KEY_BOOL, false},
    END};
static const proa_gguf_key falcon_keys[] = {
    HF_SIZES,
    INTEGER("attention.head_count_kv", "num_kv_heads"),
    INTEGER("feed_forward_length", "ffn_hidden_size"),
    LAYER_EPSILON("layer_norm_epsilon"),
    END};
static const proa_gguf_key deepseek_keys[] = {
    HF_SIZES,
    NEEDED ("feed_forward_length",        "intermediate_size"),
    NUMBER ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    INTEGER("attention.q_lora_rank",      "q_lora_rank"),
    NEEDED ("attention.kv_lora_rank",     "kv_lora_rank"),
    NEEDED ("rope.dimension_count",       "qk_rope_head_dim"),
    SIGMOID_KEYS,
    INTEGER("nextn_predict_layers",       "num_nextn_predict_layers"),
    END};
static const proa_gguf_key baichuan_keys[] = {
    SIZES("hidden_size", "num_hidden_layers", "num_attention_heads", "model_max_length"),
    NEEDED("feed_forward_length", "intermediate_size"),
    NUMBER("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    END};
static const proa_gguf_key modernbert_keys[] = {
    HF_SIZES,
    NEEDED ("feed_forward_length",        "intermediate_size"),
    LAYER_EPSILON("norm_eps"),
    INTEGER("attention.sliding_window",   "local_attention"),
    END};
static const proa_gguf_key bloom_keys[] = {
    SIZES("hidden_size", "n_layer", "n_head", "seq_length"), LAYER_EPSILON("layer_norm_epsilon"), END};
static const proa_gguf_key mpt_keys[] = {
    SIZES("d_model", "n_layers", "n_heads", "max_seq_len"), LAYER_EPSILON("layer_norm_epsilon"), END};
/* clang-format on */

/* ---- which of several rows ---- */

static bool has_two_norms(const proa_gguf *g)
{
    return proa_gguf_has_tensor(g, "blk.0.attn_norm_2.weight");
}

/* OLMo 3, which has the name of OLMo 2. */
static bool has_window(const proa_gguf *g)
{
    return proa_gguf_find(g, "olmo2.attention.sliding_window") != NULL;
}

/* Files of GLM-4.7-Flash do not say so: they have a correction, which DeepSeek V2 has not. */
static bool has_sigmoids(const proa_gguf *g)
{
    int64_t function = 0, dense = 0;
    char name[48];
    if (proa_gguf_get_int(&function, g, "deepseek2.expert_gating_func", 0, 255, NULL) != PROA_OK)
        return false;
    if (function) return function == 2;
    if (proa_gguf_get_int(&dense, g, "deepseek2.leading_dense_block_count", 0, INT32_MAX, NULL) != PROA_OK)
        return false;
    snprintf(name, sizeof name, "blk.%lld.exp_probs_b.bias", (long long)dense);
    return proa_gguf_has_tensor(g, name);
}

/* Baichuan 13B has ALiBi instead of rotations, which no key says: llama.cpp knows it by its 40 layers. */
static bool has_40_layers(const proa_gguf *g)
{
    int64_t layers = 0;
    return proa_gguf_get_int(&layers, g, "baichuan.block_count", 0, INT32_MAX, NULL) == PROA_OK && layers == 40;
}

static bool has_classifier(const proa_gguf *g)
{
    return proa_gguf_has_tensor(g, "cls.output.weight");
}

static bool has_experts(const proa_gguf *g)
{
    return proa_gguf_has_tensor(g, "blk.0.ffn_gate_inp.weight");
}

static bool has_shared_expert(const proa_gguf *g)
{
    return proa_gguf_has_tensor(g, "blk.0.ffn_up_shexp.weight");
}

static bool has_no_experts(const proa_gguf *g)
{
    return !has_experts(g);
}

/* UMT5, each of whose layers has relative positions of its own. */
static bool has_biases_by_layer(const proa_gguf *g)
{
    return proa_gguf_has_tensor(g, "enc.blk.1.attn_rel_b.weight");
}

static bool has_gate(const proa_gguf *g)
{
    return proa_gguf_has_tensor(g, "enc.blk.0.ffn_gate.weight");
}

/* ---- the table ---- */

/* clang-format off */
#define ROW(type, class, keylist, namelist, finisher) \
    .name = type, .hf = class, .keys = keylist##_keys, .names = proa_gguf_##namelist##_names, .finish = finisher
#define FIXED(members) .fixed = members

#define GEMMA3_FIXED \
    "\"attn_logit_softcapping\": null, \"final_logit_softcapping\": null, \"sliding_window_pattern\": 6"
/* Scout and Maverick; the file has no keys for these. */
#define LLAMA4_FIXED \
    "\"attention_chunk_size\": 8192, \"no_rope_layer_interval\": 4, \"attn_temperature_tuning\": true, " \
    "\"floor_scale\": 8192, \"attn_scale\": 0.1"

const proa_gguf_arch proa_gguf_archs[] = {
    {ROW("llama",      "MixtralForCausalLM",    mixtral,    mixtral,    proa_gguf_finish_llama), .fits = has_experts},
    {ROW("llama",      "LlamaForCausalLM",      llama,      llama,      proa_gguf_finish_llama)},
    {ROW("internlm2",  "LlamaForCausalLM",      llama,      llama,      proa_gguf_finish_llama)},
    {ROW("xverse",     "LlamaForCausalLM",      llama,      llama,      proa_gguf_finish_llama)},
    {ROW("baichuan",   "BaichuanForCausalLM",   baichuan,   baichuan,   NULL), .fits = has_40_layers},
    {ROW("baichuan",   "LlamaForCausalLM",      llama,      llama,      proa_gguf_finish_llama)},
    {ROW("deepseek2",  "DeepseekV3ForCausalLM", deepseek,   deepseek,   proa_gguf_finish_deepseek),
     .fits = has_sigmoids},
    {ROW("deepseek2",  "DeepseekV2ForCausalLM", deepseek,   deepseek,   proa_gguf_finish_deepseek),
     FIXED("\"topk_method\": \"group_limited_greedy\"")},
    {ROW("mistral4",   "Mistral4ForCausalLM",   deepseek,   mistral4,   proa_gguf_finish_deepseek)},
    {ROW("modern-bert", "ModernBertForSequenceClassification", modernbert, modernbert, proa_gguf_finish_modernbert_cls),
     .window_list = true, .fits = has_classifier, FIXED("\"classifier_pooling\": \"mean\"")},
    {ROW("modern-bert", "ModernBertModel",      modernbert, modernbert, proa_gguf_finish_modernbert),
     .window_list = true},
    {ROW("qwen2",      "Qwen2ForCausalLM",      llama,      qwen,       proa_gguf_finish_llama)},
    {ROW("qwen3",      "Qwen3ForCausalLM",      llama,      qwen,       proa_gguf_finish_llama)},
    {ROW("qwen2moe",   "Qwen2MoeForCausalLM",   qwen_moe,   qwen_moe,   proa_gguf_finish_qwen_moe)},
    {ROW("qwen3moe",   "Qwen3MoeForCausalLM",   qwen_moe,   qwen_moe,   proa_gguf_finish_qwen_moe),
     FIXED("\"norm_topk_prob\": true")},
    {ROW("olmoe",      "OlmoeForCausalLM",      qwen_moe,   qwen_moe,   proa_gguf_finish_llama)},
    {ROW("granitemoe", "GraniteMoeSharedForCausalLM", granite_shared, granite_shared, proa_gguf_finish_llama),
     .fits = has_shared_expert},
    {ROW("granitemoe", "GraniteMoeForCausalLM", granite_moe, granite_moe, proa_gguf_finish_llama)},
    {ROW("granitehybrid", "BambaForCausalLM",   mamba,      bamba,      proa_gguf_finish_bamba),
     .fits = proa_gguf_is_bamba, .kv_head_list = true},
    {ROW("granitehybrid", "GraniteMoeHybridForCausalLM", granite_hybrid, granite_hybrid,
         proa_gguf_finish_granite_hybrid), .fits = has_no_experts, .kv_head_list = true},
    {ROW("granitehybrid", "GraniteMoeHybridForCausalLM", granite_hybrid_moe, granite_hybrid_moe,
         proa_gguf_finish_granite_hybrid), .kv_head_list = true},
    {ROW("falcon-h1",  "FalconH1ForCausalLM",   mamba,      falcon_h1,  proa_gguf_finish_falcon_h1), .baked = true},
    {ROW("lfm2",       "Lfm2ForCausalLM",       lfm2,       lfm2,       proa_gguf_finish_lfm2), .kv_head_list = true,
     FIXED("\"block_auto_adjust_ff_dim\": false")},
    {ROW("lfm2moe",    "Lfm2MoeForCausalLM",    lfm2_moe,   lfm2_moe,   proa_gguf_finish_lfm2), .kv_head_list = true,
     FIXED("\"norm_topk_prob\": true")},
    {ROW("qwen3next",  "Qwen3NextForCausalLM",  delta_moe,  qwen3_next, proa_gguf_finish_delta),
     .recurrent_list = true, FIXED("\"norm_topk_prob\": true")},
    {ROW("qwen35",     "Qwen3_5ForCausalLM",    delta,      qwen3_5,    proa_gguf_finish_delta),
     .recurrent_list = true, .rope_sections = true},
    {ROW("qwen35moe",  "Qwen3_5MoeForCausalLM", delta_moe,  qwen3_5_moe, proa_gguf_finish_delta),
     .recurrent_list = true, .rope_sections = true, FIXED("\"norm_topk_prob\": true")},
    {ROW("glm4moe",    "Glm4MoeForCausalLM",    sigmoid_moe, glm4_moe,  proa_gguf_finish_glm4_moe)},
    {ROW("dots1",      "Dots1ForCausalLM",      sigmoid_moe, dots1,     proa_gguf_finish_llama)},
    {ROW("minimax-m2", "MiniMaxM2ForCausalLM",  minimax,    minimax,    proa_gguf_finish_minimax)},
    {ROW("afmoe",      "AfmoeForCausalLM",      afmoe,      afmoe,      proa_gguf_finish_llama),
     FIXED("\"mup_enabled\": true")},
    {ROW("exaone-moe", "ExaoneMoeForCausalLM",  exaone_moe, exaone_moe, proa_gguf_finish_windows),
     .window_list = true},
    {ROW("hy_v3",      "HYV3ForCausalLM",       hy_v3,      hy_v3,      proa_gguf_finish_hy_v3)},
    {ROW("ernie4_5",   "Ernie4_5ForCausalLM",   llama,      qwen,       proa_gguf_finish_ernie)},
    {ROW("ernie4_5-moe", "Ernie4_5_MoeForCausalLM", ernie_moe, ernie_moe, proa_gguf_finish_ernie)},
    {ROW("hunyuan-dense", "HunYuanDenseV1ForCausalLM", llama, hunyuan,  proa_gguf_finish_llama)},
    {ROW("hunyuan-moe", "HunYuanMoEV1ForCausalLM", hunyuan_moe, hunyuan_moe, proa_gguf_finish_llama)},
    {ROW("llama4",     "Llama4ForCausalLM",     llama4,     llama4,     proa_gguf_finish_llama4), FIXED(LLAMA4_FIXED)},
    {ROW("qwen2vl",    "Qwen2ForCausalLM",      llama,      qwen,       proa_gguf_finish_llama)},
    {ROW("qwen3vl",    "Qwen3ForCausalLM",      llama,      qwen,       proa_gguf_finish_llama)},
    {ROW("qwen3vlmoe", "Qwen3MoeForCausalLM",   qwen_moe,   qwen_moe,   proa_gguf_finish_qwen_moe),
     FIXED("\"norm_topk_prob\": true")},
    {ROW("mistral3",   "Ministral3ForCausalLM", llama,      llama,      proa_gguf_finish_llama)},
    {ROW("phimoe",     "PhimoeForCausalLM",     mixtral,    phimoe,     proa_gguf_finish_phimoe)},
    {ROW("gpt-oss",    "GptOssForCausalLM",     mixtral,    gpt_oss,    proa_gguf_finish_gpt_oss)},
    {ROW("granite",    "GraniteForCausalLM",    granite,    llama,      proa_gguf_finish_llama)},
    {ROW("smollm3",    "SmolLM3ForCausalLM",    llama,      llama,      proa_gguf_finish_llama),
     FIXED("\"no_rope_layer_interval\": 4")},
    {ROW("minicpm",    "GraniteForCausalLM",    llama,      llama,      proa_gguf_finish_minicpm)},
    {ROW("olmo",       "OlmoForCausalLM",       olmo,       olmo,       proa_gguf_finish_llama)},
    {ROW("olmo2",      "Olmo3ForCausalLM",      windows,    olmo2,      proa_gguf_finish_windows), .fits = has_window,
     .window_list = true},
    {ROW("exaone",     "LlamaForCausalLM",      llama,      qwen,       proa_gguf_finish_llama)},
    {ROW("exaone4",    "Exaone4ForCausalLM",    windows,    olmo2,      proa_gguf_finish_windows), .window_list = true},
    {ROW("olmo2",      "Olmo2ForCausalLM",      llama,      olmo2,      proa_gguf_finish_llama)},
    {ROW("command-r",  "CohereForCausalLM",     cohere,     qwen,       proa_gguf_finish_llama)},
    {ROW("cohere2",    "Cohere2ForCausalLM",    cohere2,    qwen,       proa_gguf_finish_llama)},
    {ROW("nemotron",   "NemotronForCausalLM",   nemotron,   nemotron,   proa_gguf_finish_nemotron)},
    {ROW("nemotron_h", "NemotronHForCausalLM",  nemotron_h, nemotron_h, proa_gguf_finish_nemotron_h),
     .kv_head_list = true, .ffn_list = true},
    {ROW("nemotron_h_moe", "NemotronHForCausalLM", nemotron_h_moe, nemotron_h_moe, proa_gguf_finish_nemotron_h),
     .kv_head_list = true, .ffn_list = true},
    {ROW("mamba2",     "Mamba2ForCausalLM",     mamba2,     mamba2,     proa_gguf_finish_mamba2)},
    {ROW("mamba",      "FalconMambaForCausalLM", mamba1,    mamba,      proa_gguf_finish_mamba),
     .fits = proa_gguf_is_falcon_mamba},
    {ROW("mamba",      "MambaForCausalLM",      mamba1,     mamba,      proa_gguf_finish_mamba)},
    {ROW("jamba",      "JambaForCausalLM",      jamba,      jamba,      proa_gguf_finish_jamba), .kv_head_list = true},
    {ROW("arcee",      "ArceeForCausalLM",      llama,      arcee,      proa_gguf_finish_llama)},
    {ROW("seed_oss",   "SeedOssForCausalLM",    llama,      seed_oss,   proa_gguf_finish_seed_oss)},
    {ROW("chatglm",    "GlmForCausalLM",        llama,      glm,        proa_gguf_finish_glm)},
    {ROW("glm4",       "Glm4ForCausalLM",       llama,      glm4,       proa_gguf_finish_glm)},
    {ROW("gemma",      "GemmaForCausalLM",      llama,      qwen,       proa_gguf_finish_llama)},
    {ROW("gemma2",     "Gemma2ForCausalLM",     gemma2,     gemma2,     proa_gguf_finish_gemma2)},
    {ROW("gemma3",     "Gemma3ForCausalLM",     gemma2,     gemma2,     proa_gguf_finish_gemma2),
     FIXED(GEMMA3_FIXED)},
    {ROW("gemma-embedding", "Gemma3TextModel",  gemma2,     gemma2,     proa_gguf_finish_gemma_embedding),
     FIXED(GEMMA3_FIXED ", \"use_bidirectional_attention\": true")},
    {ROW("gemma4",     "Gemma4ForCausalLM",     gemma4,     gemma4,     proa_gguf_finish_gemma4),
     .window_list = true, .ranked_merges = true},
    {ROW("gemma3n",    "Gemma3nForCausalLM",    gemma3n,    gemma3n,    proa_gguf_finish_gemma3n),
     .window_list = true},
    {ROW("phi2",       "PhiForCausalLM",        phi2,       phi2,       proa_gguf_finish_partial)},
    {ROW("phi3",       "Phi3ForCausalLM",       llama,      phi3,       proa_gguf_finish_phi3)},
    {ROW("starcoder2", "Starcoder2ForCausalLM", starcoder2, starcoder2, proa_gguf_finish_partial)},
    {ROW("stablelm",   "StableLmForCausalLM",   stablelm,   qwen,       proa_gguf_finish_partial)},
    {ROW("gpt2",       "GPT2LMHeadModel",       gpt2,       gpt2,       NULL)},
    {ROW("starcoder",  "GPTBigCodeForCausalLM", gpt2,       gpt2,       proa_gguf_finish_starcoder)},
    {ROW("gptneox",    "GPTNeoXForCausalLM",    gptneox,    gptneox,    proa_gguf_finish_gptneox)},
    {ROW("falcon",     "FalconForCausalLM",     falcon,     falcon40b,  proa_gguf_finish_falcon),
     .fits = has_two_norms},
    {ROW("falcon",     "FalconForCausalLM",     falcon,     falcon7b,   proa_gguf_finish_falcon)},
    {ROW("bloom",      "BloomForCausalLM",      bloom,      bloom,      NULL)},
    {ROW("mpt",        "MptForCausalLM",        mpt,        mpt,        proa_gguf_finish_mpt)},
    {ROW("bert",       "BertModel",             bert,       bert,       proa_gguf_finish_bert)},
    {ROW("eurobert",   "EuroBertModel",         llama,      eurobert,   proa_gguf_finish_llama)},
    {ROW("jina-bert-v2", "JinaBertModel",       bert,       jina,       proa_gguf_finish_jina),
     FIXED("\"position_embedding_type\": \"alibi\", \"feed_forward_type\": \"geglu\"")},
    {ROW("jina-bert-v3", "JinaEmbeddingsV3Model", bert,     jina_v3,    proa_gguf_finish_nomic)},
    {ROW("nomic-bert-moe", "NomicBertModel",    nomic_moe,  nomic_moe,  proa_gguf_finish_nomic_moe),
     FIXED("\"activation_function\": \"gelu\"")},
    {ROW("nomic-bert", "NomicBertModel",        nomic,      nomic,      proa_gguf_finish_nomic)},
    {ROW("t5",         "UMT5ForConditionalGeneration", t5,  gated_t5,   NULL), .fits = has_biases_by_layer,
     FIXED("\"feed_forward_proj\": \"gated-gelu\", \"scale_decoder_outputs\": false")},
    {ROW("t5",         "T5ForConditionalGeneration", t5,    gated_t5,   NULL), .fits = has_gate,
     FIXED("\"feed_forward_proj\": \"gated-gelu\", \"scale_decoder_outputs\": false")},
    {ROW("t5",         "T5ForConditionalGeneration", t5,    t5,         NULL)},
    {ROW("t5encoder",  "UMT5EncoderModel",      t5,         gated_t5_encoder, NULL), .fits = has_biases_by_layer,
     FIXED("\"feed_forward_proj\": \"gated-gelu\"")},
    {ROW("t5encoder",  "T5EncoderModel",        t5,         gated_t5_encoder, NULL), .fits = has_gate,
     FIXED("\"feed_forward_proj\": \"gated-gelu\"")},
    {ROW("t5encoder",  "T5EncoderModel",        t5,         t5_encoder, NULL)},
    {.name = NULL}};
/* clang-format on */

static proa_status fail_unknown(const proa_gguf *g, proa_str name, proa_err *err)
{
    char known[1024] = "";
    for (const proa_gguf_arch *a = proa_gguf_archs; a->name; a++) {
        size_t at = strlen(known);
        if (at && strcmp(a->name, a[-1].name) == 0) continue;
        snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", a->name);
    }
    return PROA_FAIL(err, UNSUPPORTED, "%s: 'general.architecture' '%.*s' is not supported (%s are)", g->what,
                     (int)proa_min64((int64_t)name.len, 60), name.ptr, known);
}

proa_status proa_gguf_arch_of(const proa_gguf_arch **out, const proa_gguf *g, proa_err *err)
{
    proa_str name = {NULL, 0};
    PROA_TRY(proa_gguf_get_str(&name, g, "general.architecture", err));
    if (!name.ptr) return PROA_FAIL(err, INVALID, "%s: 'general.architecture' is missing", g->what);
    for (const proa_gguf_arch *a = proa_gguf_archs; a->name; a++)
        if (proa_str_is(name, a->name) && (!a->fits || a->fits(g))) return *out = a, PROA_OK;
    return fail_unknown(g, name, err);
}
