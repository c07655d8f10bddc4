/* SPDX-License-Identifier: Apache-2.0
 * archs.c - the table of GGUF architectures: their metadata as keys of the Hugging Face class with the same layers.
 * */
#include "weights/gguf/arch.h"

#include "base/checked.h"
#include <math.h>
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

/* ---- what no key gives ---- */

static bool has_tensor(const proa_gguf *g, const char *name)
{
    return proa_gguf_find_tensor(g, name) != NULL;
}

static proa_status fail_part(const proa_gguf *g, const proa_gguf_arch *arch, const char *key, int64_t is,
                             int64_t must, proa_err *err)
{
    return PROA_FAIL(err, UNSUPPORTED, "%s: '%s.%s' is %lld; a %s with other than %lld is not supported",
                     g->what, arch->name, key, (long long)is, arch->hf, (long long)must);
}

/* The head size, of which all of keys, values and rotation must be. */
static proa_status read_head_dim(int64_t *out, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    int64_t hidden = 0, heads = 0, value = 0;
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&heads, g, arch, "attention.head_count", err));
    *out = heads ? hidden / heads : 0;
    PROA_TRY(proa_gguf_arch_int(out, g, arch, "attention.key_length", err));
    value = *out;
    PROA_TRY(proa_gguf_arch_int(&value, g, arch, "attention.value_length", err));
    return value == *out ? PROA_OK : fail_part(g, arch, "attention.value_length", value, *out, err);
}

static proa_status refuse_other_rotation(const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    int64_t head_dim, rotary;
    PROA_TRY(read_head_dim(&head_dim, g, arch, err));
    rotary = head_dim;
    PROA_TRY(proa_gguf_arch_int(&rotary, g, arch, "rope.dimension_count", err));
    return rotary == head_dim ? PROA_OK : fail_part(g, arch, "rope.dimension_count", rotary, head_dim, err);
}

static void put_biases(proa_buf *json, const proa_gguf *g)
{
    proa_gguf_put_bool(json, "attention_bias", has_tensor(g, "blk.0.attn_output.bias"));
    proa_gguf_put_bool(json, "mlp_bias", has_tensor(g, "blk.0.ffn_down.bias"));
}

static proa_status finish_llama(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    PROA_TRY(refuse_other_rotation(g, arch, err));
    put_biases(json, g);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* The sizes of DeepSeek's heads: those that attention has with the latent row as keys and values are other ones, and
 * files that have these name the heads' own by keys with "_mla". */
static bool has_key(const proa_gguf *g, const proa_gguf_arch *arch, const char *key)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch->name, key);
    return proa_gguf_find(g, full) != NULL;
}

static proa_status finish_deepseek(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    /* What a file that lacks a key has none of, whatever the class of config.json takes then. */
    static const struct {
        const char *key, *name, *value;
    } absent[] = {{"attention.q_lora_rank", "q_lora_rank", "null"},
                  {"expert_shared_count", "n_shared_experts", "0"},
                  {"expert_group_count", "n_group", "1"},
                  {"expert_group_used_count", "topk_group", "1"},
                  {"leading_dense_block_count", "first_k_dense_replace", "0"},
                  {"expert_weights_scale", "routed_scaling_factor", "1.0"}};
    int64_t key = 0, value = 0, rope = 0;
    PROA_TRY(proa_gguf_arch_int(&key, g, arch, "attention.key_length", err));
    PROA_TRY(proa_gguf_arch_int(&value, g, arch, "attention.value_length", err));
    PROA_TRY(proa_gguf_arch_int(&key, g, arch, "attention.key_length_mla", err));
    PROA_TRY(proa_gguf_arch_int(&value, g, arch, "attention.value_length_mla", err));
    PROA_TRY(proa_gguf_arch_int(&rope, g, arch, "rope.dimension_count", err));
    if (key <= rope)
        return PROA_FAIL(err, INVALID, "%s: heads of %lld numbers, of which %lld rotate", g->what,
                         (long long)key, (long long)rope);
    proa_gguf_put_int(json, "qk_nope_head_dim", key - rope);
    proa_gguf_put_int(json, "v_head_dim", value);
    for (size_t i = 0; i < PROA_COUNT(absent); i++)
        if (!has_key(g, arch, absent[i].key))
            proa_buf_printf(json, ", \"%s\": %s", absent[i].name, absent[i].value);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* Which layers see all positions: every n-th from the first on, by a number or by a list of those that do not. */
static proa_status put_global_layers(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    static const char key[] = "attention.sliding_window_pattern";
    char full[96];
    int64_t layers = 0, every = 3;
    const proa_gguf_value *list = NULL;
    snprintf(full, sizeof full, "%s.%s", arch->name, key);
    const proa_gguf_value *value = proa_gguf_find(g, full);
    bool is_list = value && value->type == PROA_GGUF_ARRAY;
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    if (is_list) PROA_TRY(proa_gguf_get_array(&list, g, full, PROA_GGUF_BOOL, err));
    else PROA_TRY(proa_gguf_arch_int(&every, g, arch, key, err));
    if (every < 1 || (list && list->count != layers))
        return PROA_FAIL(err, INVALID, "%s: '%s' does not describe %lld layers", g->what, full,
                         (long long)layers);
    proa_buf_printf(json, ", \"layer_types\": [");
    for (int64_t i = 0; i < layers && !json->full; i++) {
        bool sliding = list ? list->at[i] != 0 : i % every != 0;
        proa_buf_printf(json, "%s\"%s_attention\"", i ? ", " : "", sliding ? "sliding" : "full");
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

static proa_status finish_modernbert(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    char key[96];
    double theta = 160000, local = 10000;
    proa_str act = {"gelu", 4};
    snprintf(key, sizeof key, "%s.hidden_activation", arch->name);
    PROA_TRY(proa_gguf_get_str(&act, g, key, err));
    PROA_TRY(proa_gguf_arch_number(&theta, g, arch, "rope.freq_base", err));
    PROA_TRY(proa_gguf_arch_number(&local, g, arch, "rope.freq_base_swa", err));
    proa_gguf_put_number(json, "global_rope_theta", theta);
    proa_gguf_put_number(json, "local_rope_theta", local);
    proa_buf_printf(json, ", \"hidden_activation\": ");
    proa_buf_json_str(json, act);
    return put_global_layers(g, arch, json, err);
}

/* llama.cpp's head reads the mean over the rows and activates by GELU. */
static proa_status finish_modernbert_cls(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                         proa_err *err)
{
    const proa_gguf_tensor *labels = proa_gguf_find_tensor(g, "cls.output.weight");
    if (labels && labels->rank == 2) proa_gguf_put_int(json, "num_labels", labels->shape[0]);
    return finish_modernbert(g, arch, json, err);
}

/* The part of each head that is rotated; the classes multiply it with the head size and round down. */
static proa_status finish_partial(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t head_dim, rotary;
    PROA_TRY(read_head_dim(&head_dim, g, arch, err));
    rotary = head_dim;
    PROA_TRY(proa_gguf_arch_int(&rotary, g, arch, "rope.dimension_count", err));
    double part = head_dim ? ((double)rotary + 0.25) / (double)head_dim : 0;
    proa_gguf_put_number(json, "partial_rotary_factor", fmin(part, 1));
    proa_gguf_put_bool(json, "use_bias", has_tensor(g, "blk.0.attn_output.bias"));
    proa_gguf_put_bool(json, "use_qkv_bias", has_tensor(g, "blk.0.attn_q.bias"));
    return proa_gguf_put_rope(json, g, arch, err);
}

static proa_status finish_phi3(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t window = 0;
    PROA_TRY(proa_gguf_arch_int(&window, g, arch, "attention.sliding_window", err));
    if (window) proa_gguf_put_int(json, "sliding_window", window);
    return finish_partial(g, arch, json, err);
}

/* Biases of q, k and v alone. */
static proa_status finish_seed_oss(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    PROA_TRY(refuse_other_rotation(g, arch, err));
    proa_gguf_put_bool(json, "attention_bias", has_tensor(g, "blk.0.attn_q.bias"));
    return proa_gguf_put_rope(json, g, arch, err);
}

static proa_status finish_nemotron(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    put_biases(json, g);
    return finish_partial(g, arch, json, err);
}

static proa_status finish_glm(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    bool bias = has_tensor(g, "blk.0.attn_q.bias") || has_tensor(g, "blk.0.attn_qkv.bias");
    proa_gguf_put_bool(json, "attention_bias", bias);
    return finish_partial(g, arch, json, err);
}

static proa_status finish_glm4_moe(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    proa_gguf_put_bool(json, "use_qk_norm", has_tensor(g, "blk.0.attn_q_norm.weight"));
    return finish_glm(g, arch, json, err);
}

static proa_status finish_ernie(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    proa_gguf_put_bool(json, "use_bias", has_tensor(g, "blk.0.attn_output.bias"));
    PROA_TRY(refuse_other_rotation(g, arch, err));
    return proa_gguf_put_rope(json, g, arch, err);
}

/* Phi-3.5-MoE, whose head has a bias. */
static proa_status finish_phimoe(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    proa_gguf_put_bool(json, "lm_head_bias", has_tensor(g, "output.bias"));
    return finish_llama(g, arch, json, err);
}

/* Every second layer has the window, beginning with the first. */
static proa_status finish_gpt_oss(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t layers = 0, window = 128;
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_arch_int(&window, g, arch, "attention.sliding_window", err));
    proa_gguf_put_int(json, "sliding_window", window);
    proa_buf_printf(json, ", \"layer_types\": [");
    for (int64_t i = 0; i < layers && !json->full; i++)
        proa_buf_printf(json, "%s\"%s_attention\"", i ? ", " : "", i % 2 ? "full" : "sliding");
    proa_buf_char(json, ']');
    return finish_llama(g, arch, json, err);
}

/* Which layers have the window: a list, or all but every fourth. */
static proa_status put_layer_types(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    char key[96];
    int64_t layers = 0;
    const proa_gguf_value *list = NULL;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch->name);
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_get_array(&list, g, key, PROA_GGUF_BOOL, err));
    if (list && list->count != layers)
        return PROA_FAIL(err, INVALID, "%s: '%s' has %lld entries for %lld layers", g->what, key,
                         (long long)list->count, (long long)layers);
    proa_buf_printf(json, ", \"layer_types\": [");
    for (int64_t i = 0; i < layers && !json->full; i++) {
        bool sliding = list ? list->at[i] != 0 : (i + 1) % 4 != 0;
        proa_buf_printf(json, "%s\"%s_attention\"", i ? ", " : "", sliding ? "sliding" : "full");
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

/* The window is optional; without it all layers are alike. */
static proa_status finish_windows(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t window = 0;
    PROA_TRY(proa_gguf_arch_int(&window, g, arch, "attention.sliding_window", err));
    if (window > 0) PROA_TRY(put_layer_types(g, arch, json, err));
    return finish_llama(g, arch, json, err);
}

/* A Granite in all but the scale of scores, which is the usual one. Older files lack the other three, which are then
 * those of MiniCPM 2B. */
static proa_status finish_minicpm(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t head_dim = 0, hidden = 0, layers = 0;
    double embedding = 12, residual, logits;
    PROA_TRY(read_head_dim(&head_dim, g, arch, err));
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    if (head_dim < 1 || layers < 1)
        return PROA_FAIL(err, INVALID, "%s: minicpm needs a head size and layers above 0", g->what);
    residual = 1.4 / sqrt((double)layers), logits = (double)hidden / 256;
    PROA_TRY(proa_gguf_arch_number(&embedding, g, arch, "embedding_scale", err));
    PROA_TRY(proa_gguf_arch_number(&residual, g, arch, "residual_scale", err));
    PROA_TRY(proa_gguf_arch_number(&logits, g, arch, "logit_scale", err));
    proa_gguf_put_number(json, "attention_multiplier", 1 / sqrt((double)head_dim));
    proa_gguf_put_number(json, "embedding_multiplier", embedding);
    proa_gguf_put_number(json, "residual_multiplier", residual);
    proa_gguf_put_number(json, "logits_scaling", logits);
    return finish_llama(g, arch, json, err);
}

/* The sizes of experts are those of the tensors: older files have no keys for them. */
static proa_status finish_qwen_moe(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    const proa_gguf_tensor *experts = proa_gguf_find_tensor(g, "blk.0.ffn_up_exps.weight");
    const proa_gguf_tensor *shared = proa_gguf_find_tensor(g, "blk.0.ffn_up_shexp.weight");
    if (experts && experts->rank == 3) proa_gguf_put_int(json, "moe_intermediate_size", experts->shape[1]);
    if (shared && shared->rank == 2)
        proa_gguf_put_int(json, "shared_expert_intermediate_size", shared->shape[0]);
    return finish_llama(g, arch, json, err);
}

/* llama.cpp knows the model whose heads are not normed by its 128 experts (Maverick). A window of 0 means a model
 * without chunks, whose layers have other positions. */
static proa_status finish_llama4(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t experts = 0, chunk = 8192;
    PROA_TRY(proa_gguf_arch_int(&experts, g, arch, "expert_count", err));
    PROA_TRY(proa_gguf_arch_int(&chunk, g, arch, "attention.sliding_window", err));
    if (chunk == 0) return fail_part(g, arch, "attention.sliding_window", chunk, 8192, err);
    proa_gguf_put_bool(json, "use_qk_norm", experts != 128);
    return finish_llama(g, arch, json, err);
}

/* Scores are divided by the root of the head size; in the models of 27B, known by their layers, by that of hidden /
 * heads. */
static proa_status finish_gemma2(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t layers = 0, hidden = 0, heads = 1, scalar;
    PROA_TRY(refuse_other_rotation(g, arch, err));
    PROA_TRY(read_head_dim(&scalar, g, arch, err));
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&heads, g, arch, "attention.head_count", err));
    if (layers == (strcmp(arch->name, "gemma3") == 0 ? 62 : 46) && heads) scalar = hidden / heads; /* 27B */
    proa_gguf_put_int(json, "query_pre_attn_scalar", scalar);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* EmbeddingGemma, whose layers with a window may have other frequencies. */
static proa_status finish_gemma_embedding(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                          proa_err *err)
{
    double local = 10000;
    PROA_TRY(proa_gguf_arch_number(&local, g, arch, "rope.freq_base_swa", err));
    proa_gguf_put_number(json, "rope_local_base_freq", local);
    return finish_gemma2(g, arch, json, err);
}

/* The part of the head that is rotated. The reader of rotary_pct rounds the product down, so it is a little more. */
static proa_status finish_gptneox(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t head_dim, rotary;
    PROA_TRY(read_head_dim(&head_dim, g, arch, err));
    rotary = head_dim;
    PROA_TRY(proa_gguf_arch_int(&rotary, g, arch, "rope.dimension_count", err));
    double part = head_dim ? ((double)rotary + 0.25) / (double)head_dim : 0;
    proa_gguf_put_number(json, "rotary_pct", fmin(part, 1));
    return proa_gguf_put_rope(json, g, arch, err);
}

/* One key-value head: Falcon 7B. Else the newer layers, with one norm (Falcon 2) or two (40B). */
static proa_status finish_falcon(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t kv_heads = 1;
    PROA_TRY(proa_gguf_arch_int(&kv_heads, g, arch, "attention.head_count_kv", err));
    proa_gguf_put_bool(json, "new_decoder_architecture", kv_heads > 1);
    proa_gguf_put_bool(json, "bias", has_tensor(g, "blk.0.attn_qkv.bias"));
    if (kv_heads > 1)
        proa_gguf_put_int(json, "num_ln_in_parallel_attn", has_tensor(g, "blk.0.attn_norm_2.weight") ? 2 : 1);
    return proa_gguf_put_rope(json, g, arch, err);
}

static proa_status finish_starcoder(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t kv_heads = 1;
    PROA_TRY(proa_gguf_arch_int(&kv_heads, g, arch, "attention.head_count_kv", err));
    proa_gguf_put_bool(json, "multi_query", kv_heads == 1);
    return PROA_OK;
}

static proa_status finish_mpt(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t hidden = 0, ffn = 0;
    double alibi = 0, clip = 0;
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&ffn, g, arch, "feed_forward_length", err));
    PROA_TRY(proa_gguf_arch_number(&alibi, g, arch, "attention.max_alibi_bias", err));
    PROA_TRY(proa_gguf_arch_number(&clip, g, arch, "attention.clamp_kqv", err));
    if (hidden && ffn) proa_gguf_put_int(json, "expansion_ratio", ffn / hidden);
    proa_buf_printf(json, ", \"attn_config\": {\"alibi\": %s", alibi > 0 ? "true" : "false");
    if (alibi > 0) proa_gguf_put_number(json, "alibi_bias_max", alibi);
    if (clip > 0) proa_gguf_put_number(json, "clip_qkv", clip);
    proa_buf_char(json, '}');
    return PROA_OK;
}

static proa_status finish_bert(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    const proa_gguf_tensor *types = proa_gguf_find_tensor(g, "token_types.weight");
    PROA_UNUSED(arch);
    PROA_UNUSED(err);
    if (types && types->rank == 2) proa_gguf_put_int(json, "type_vocab_size", types->shape[0]);
    return PROA_OK;
}

static proa_status finish_nomic(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    PROA_TRY(finish_bert(g, arch, json, err));
    PROA_TRY(refuse_other_rotation(g, arch, err));
    return proa_gguf_put_rope(json, g, arch, err);
}

static bool has_two_norms(const proa_gguf *g)
{
    return has_tensor(g, "blk.0.attn_norm_2.weight");
}

/* OLMo 3, which has the name of OLMo 2. */
static bool has_window(const proa_gguf *g)
{
    return proa_gguf_find(g, "olmo2.attention.sliding_window") != NULL;
}

static bool has_sigmoids(const proa_gguf *g)
{
    int64_t function = 0;
    return proa_gguf_get_int(&function, g, "deepseek2.expert_gating_func", 0, 255, NULL) == PROA_OK &&
           function == 2;
}

/* Baichuan 13B has ALiBi instead of rotations, which no key says: llama.cpp knows it by its 40 layers. */
static bool has_40_layers(const proa_gguf *g)
{
    int64_t layers = 0;
    return proa_gguf_get_int(&layers, g, "baichuan.block_count", 0, INT32_MAX, NULL) == PROA_OK && layers == 40;
}

static bool has_classifier(const proa_gguf *g)
{
    return has_tensor(g, "cls.output.weight");
}

static bool has_experts(const proa_gguf *g)
{
    return has_tensor(g, "blk.0.ffn_gate_inp.weight");
}

static bool has_no_experts(const proa_gguf *g)
{
    return !has_experts(g);
}

/* UMT5, each of whose layers has relative positions of its own. */
static bool has_biases_by_layer(const proa_gguf *g)
{
    return has_tensor(g, "enc.blk.1.attn_rel_b.weight");
}

static bool has_gate(const proa_gguf *g)
{
    return has_tensor(g, "enc.blk.0.ffn_gate.weight");
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
    {ROW("llama",      "MixtralForCausalLM",    mixtral,    mixtral,    finish_llama), .fits = has_experts},
    {ROW("llama",      "LlamaForCausalLM",      llama,      llama,      finish_llama)},
    {ROW("internlm2",  "LlamaForCausalLM",      llama,      llama,      finish_llama)},
    {ROW("xverse",     "LlamaForCausalLM",      llama,      llama,      finish_llama)},
    {ROW("baichuan",   "BaichuanForCausalLM",   baichuan,   baichuan,   NULL), .fits = has_40_layers},
    {ROW("baichuan",   "LlamaForCausalLM",      llama,      llama,      finish_llama)},
    {ROW("deepseek2",  "DeepseekV3ForCausalLM", deepseek,   deepseek,   finish_deepseek), .fits = has_sigmoids},
    {ROW("deepseek2",  "DeepseekV2ForCausalLM", deepseek,   deepseek,   finish_deepseek),
     FIXED("\"topk_method\": \"group_limited_greedy\"")},
    {ROW("modern-bert", "ModernBertForSequenceClassification", modernbert, modernbert, finish_modernbert_cls),
     .window_list = true, .fits = has_classifier, FIXED("\"classifier_pooling\": \"mean\"")},
    {ROW("modern-bert", "ModernBertModel",      modernbert, modernbert, finish_modernbert), .window_list = true},
    {ROW("qwen2",      "Qwen2ForCausalLM",      llama,      qwen,       finish_llama)},
    {ROW("qwen3",      "Qwen3ForCausalLM",      llama,      qwen,       finish_llama)},
    {ROW("qwen2moe",   "Qwen2MoeForCausalLM",   qwen_moe,   qwen_moe,   finish_qwen_moe)},
    {ROW("qwen3moe",   "Qwen3MoeForCausalLM",   qwen_moe,   qwen_moe,   finish_qwen_moe),
     FIXED("\"norm_topk_prob\": true")},
    {ROW("olmoe",      "OlmoeForCausalLM",      qwen_moe,   qwen_moe,   finish_llama)},
    {ROW("granitemoe", "GraniteMoeForCausalLM", granite_moe, granite_moe, finish_llama)},
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
    {ROW("glm4moe",    "Glm4MoeForCausalLM",    sigmoid_moe, glm4_moe,  finish_glm4_moe)},
    {ROW("dots1",      "Dots1ForCausalLM",      sigmoid_moe, dots1,     finish_llama)},
    {ROW("ernie4_5",   "Ernie4_5ForCausalLM",   llama,      qwen,       finish_ernie)},
    {ROW("ernie4_5-moe", "Ernie4_5_MoeForCausalLM", ernie_moe, ernie_moe, finish_ernie)},
    {ROW("hunyuan-dense", "HunYuanDenseV1ForCausalLM", llama, hunyuan,  finish_llama)},
    {ROW("hunyuan-moe", "HunYuanMoEV1ForCausalLM", hunyuan_moe, hunyuan_moe, finish_llama)},
    {ROW("llama4",     "Llama4ForCausalLM",     llama4,     llama4,     finish_llama4), FIXED(LLAMA4_FIXED)},
    {ROW("qwen2vl",    "Qwen2ForCausalLM",      llama,      qwen,       finish_llama)},
    {ROW("qwen3vl",    "Qwen3ForCausalLM",      llama,      qwen,       finish_llama)},
    {ROW("qwen3vlmoe", "Qwen3MoeForCausalLM",   qwen_moe,   qwen_moe,   finish_qwen_moe),
     FIXED("\"norm_topk_prob\": true")},
    {ROW("mistral3",   "Ministral3ForCausalLM", llama,      llama,      finish_llama)},
    {ROW("phimoe",     "PhimoeForCausalLM",     mixtral,    phimoe,     finish_phimoe)},
    {ROW("gpt-oss",    "GptOssForCausalLM",     mixtral,    gpt_oss,    finish_gpt_oss)},
    {ROW("granite",    "GraniteForCausalLM",    granite,    llama,      finish_llama)},
    {ROW("smollm3",    "SmolLM3ForCausalLM",    llama,      llama,      finish_llama),
     FIXED("\"no_rope_layer_interval\": 4")},
    {ROW("minicpm",    "GraniteForCausalLM",    llama,      llama,      finish_minicpm)},
    {ROW("olmo",       "OlmoForCausalLM",       olmo,       olmo,       finish_llama)},
    {ROW("olmo2",      "Olmo3ForCausalLM",      windows,    olmo2,      finish_windows), .fits = has_window,
     .window_list = true},
    {ROW("exaone",     "LlamaForCausalLM",      llama,      qwen,       finish_llama)},
    {ROW("exaone4",    "Exaone4ForCausalLM",    windows,    olmo2,      finish_windows), .window_list = true},
    {ROW("olmo2",      "Olmo2ForCausalLM",      llama,      olmo2,      finish_llama)},
    {ROW("command-r",  "CohereForCausalLM",     cohere,     qwen,       finish_llama)},
    {ROW("cohere2",    "Cohere2ForCausalLM",    cohere2,    qwen,       finish_llama)},
    {ROW("nemotron",   "NemotronForCausalLM",   nemotron,   nemotron,   finish_nemotron)},
    {ROW("nemotron_h", "NemotronHForCausalLM",  nemotron_h, nemotron_h, proa_gguf_finish_nemotron_h),
     .kv_head_list = true, .ffn_list = true},
    {ROW("nemotron_h_moe", "NemotronHForCausalLM", nemotron_h_moe, nemotron_h_moe, proa_gguf_finish_nemotron_h),
     .kv_head_list = true, .ffn_list = true},
    {ROW("mamba2",     "Mamba2ForCausalLM",     mamba2,     mamba2,     proa_gguf_finish_mamba2)},
    {ROW("mamba",      "FalconMambaForCausalLM", mamba1,    mamba,      proa_gguf_finish_mamba),
     .fits = proa_gguf_is_falcon_mamba},
    {ROW("mamba",      "MambaForCausalLM",      mamba1,     mamba,      proa_gguf_finish_mamba)},
    {ROW("jamba",      "JambaForCausalLM",      jamba,      jamba,      proa_gguf_finish_jamba), .kv_head_list = true},
    {ROW("arcee",      "ArceeForCausalLM",      llama,      arcee,      finish_llama)},
    {ROW("seed_oss",   "SeedOssForCausalLM",    llama,      seed_oss,   finish_seed_oss)},
    {ROW("chatglm",    "GlmForCausalLM",        llama,      glm,        finish_glm)},
    {ROW("glm4",       "Glm4ForCausalLM",       llama,      glm4,       finish_glm)},
    {ROW("gemma",      "GemmaForCausalLM",      llama,      qwen,       finish_llama)},
    {ROW("gemma2",     "Gemma2ForCausalLM",     gemma2,     gemma2,     finish_gemma2)},
    {ROW("gemma3",     "Gemma3ForCausalLM",     gemma2,     gemma2,     finish_gemma2),
     FIXED(GEMMA3_FIXED)},
    {ROW("gemma-embedding", "Gemma3TextModel",  gemma2,     gemma2,     finish_gemma_embedding),
     FIXED(GEMMA3_FIXED ", \"use_bidirectional_attention\": true")},
    {ROW("phi2",       "PhiForCausalLM",        phi2,       phi2,       finish_partial)},
    {ROW("phi3",       "Phi3ForCausalLM",       llama,      phi3,       finish_phi3)},
    {ROW("starcoder2", "Starcoder2ForCausalLM", starcoder2, starcoder2, finish_partial)},
    {ROW("stablelm",   "StableLmForCausalLM",   stablelm,   qwen,       finish_partial)},
    {ROW("gpt2",       "GPT2LMHeadModel",       gpt2,       gpt2,       NULL)},
    {ROW("starcoder",  "GPTBigCodeForCausalLM", gpt2,       gpt2,       finish_starcoder)},
    {ROW("gptneox",    "GPTNeoXForCausalLM",    gptneox,    gptneox,    finish_gptneox)},
    {ROW("falcon",     "FalconForCausalLM",     falcon,     falcon40b,  finish_falcon), .fits = has_two_norms},
    {ROW("falcon",     "FalconForCausalLM",     falcon,     falcon7b,   finish_falcon)},
    {ROW("bloom",      "BloomForCausalLM",      bloom,      bloom,      NULL)},
    {ROW("mpt",        "MptForCausalLM",        mpt,        mpt,        finish_mpt)},
    {ROW("bert",       "BertModel",             bert,       bert,       finish_bert)},
    {ROW("nomic-bert", "NomicBertModel",        nomic,      nomic,      finish_nomic)},
    {ROW("t5",         "UMT5ForConditionalGeneration", t5,  gated_t5,   NULL), .fits = has_biases_by_layer,
     FIXED("\"feed_forward_proj\": \"gated-gelu\", \"scale_decoder_outputs\": false")},
    {ROW("t5",         "T5ForConditionalGeneration", t5,    gated_t5,   NULL), .fits = has_gate,
     FIXED("\"feed_forward_proj\": \"gated-gelu\", \"scale_decoder_outputs\": false")},
    {ROW("t5",         "T5ForConditionalGeneration", t5,    t5,         NULL)},
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
