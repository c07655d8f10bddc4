/* SPDX-License-Identifier: Apache-2.0
 * synthetic.c - sizes from the models' own config.json files. */
#include "model/synthetic.h"

#include <string.h>

/* A window in every second one of 24 layers. */
#define TWO_LAYERS     "\"sliding_attention\",\"full_attention\""
#define SIX_LAYERS     TWO_LAYERS "," TWO_LAYERS "," TWO_LAYERS
#define GPT_OSS_LAYERS SIX_LAYERS "," SIX_LAYERS "," SIX_LAYERS "," SIX_LAYERS

#define LLAMA3_8B                                                                                            \
    "\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4096,"                \
    "\"intermediate_size\":14336,\"num_hidden_layers\":32,\"num_attention_heads\":32,"                       \
    "\"num_key_value_heads\":8,\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,"                      \
    "\"rope_theta\":500000.0,\"vocab_size\":128256,\"hidden_act\":\"silu\",\"bos_token_id\":128000,"         \
    "\"eos_token_id\":128001"
/* The matrices of the layers as GPTQ stores them: four bits with zero points, in groups of that many inputs. */
#define GPTQ(group)                                                                                          \
    "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"sym\":false,\"group_size\":" group "}"
/* As eight bits without zero points, and as e4m3, with a scale for each group. */
#define INT8(group) "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":" group "}"
#define FP8(group)  "\"quantization_config\":{\"quant_method\":\"fp8\",\"bits\":8,\"group_size\":" group "}"

static const struct {
    const char *name, *config;
} models[] = {
    {"gptj-6b",
     "{\"model_type\":\"gptj\",\"architectures\":[\"GPTJForCausalLM\"],\"n_embd\":4096,\"n_layer\":28,"
     "\"n_head\":16,\"n_positions\":2048,\"rotary_dim\":64,\"vocab_size\":50400,"
     "\"activation_function\":\"gelu_new\",\"bos_token_id\":50256,\"eos_token_id\":50256}"},
    {"gpt2-xl",
     "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_embd\":1600,\"n_layer\":48,"
     "\"n_head\":25,\"n_positions\":1024,\"vocab_size\":50257,\"activation_function\":\"gelu_new\","
     "\"bos_token_id\":50256,\"eos_token_id\":50256}"},
    {"llama2-7b", "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4096,"
                  "\"intermediate_size\":11008,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
                  "\"num_key_value_heads\":32,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
                  "\"vocab_size\":32000,\"hidden_act\":\"silu\",\"bos_token_id\":1,\"eos_token_id\":2}"},
    {"llama3-8b", "{" LLAMA3_8B "}"},
    {"llama3-8b-gptq", "{" LLAMA3_8B "," GPTQ("128") "}"},
    {"llama3-8b-gptq-32", "{" LLAMA3_8B "," GPTQ("32") "}"},
    {"llama3-8b-int8-32", "{" LLAMA3_8B "," INT8("32") "}"},
    {"llama3-8b-fp8-128", "{" LLAMA3_8B "," FP8("128") "}"},
    {"llama3-70b",
     "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8192,"
     "\"intermediate_size\":28672,\"num_hidden_layers\":80,\"num_attention_heads\":64,"
     "\"num_key_value_heads\":8,\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,"
     "\"rope_theta\":500000.0,\"vocab_size\":128256,\"hidden_act\":\"silu\",\"bos_token_id\":128000,"
     "\"eos_token_id\":128001}"},
    {"llama3-405b",
     "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":16384,"
     "\"intermediate_size\":53248,\"num_hidden_layers\":126,\"num_attention_heads\":128,"
     "\"num_key_value_heads\":8,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
     "\"rope_theta\":500000.0,\"vocab_size\":128256,\"hidden_act\":\"silu\",\"bos_token_id\":128000,"
     "\"eos_token_id\":128001}"},
    {"deepseek-v3",
     "{\"model_type\":\"deepseek_v3\",\"architectures\":[\"DeepseekV3ForCausalLM\"],\"hidden_size\":7168,"
     "\"intermediate_size\":18432,\"moe_intermediate_size\":2048,\"num_hidden_layers\":61,"
     "\"num_attention_heads\":128,\"num_key_value_heads\":128,\"n_routed_experts\":256,\"n_shared_experts\":"
     "1,"
     "\"num_experts_per_tok\":8,\"n_group\":8,\"topk_group\":4,\"first_k_dense_replace\":3,"
     "\"moe_layer_freq\":1,\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,\"scoring_func\":"
     "\"sigmoid\","
     "\"topk_method\":\"noaux_tc\",\"q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"
     "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"max_position_embeddings\":163840,\"rms_norm_eps\":1e-6,"
     "\"rope_theta\":10000.0,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"beta_fast\":32,"
     "\"beta_slow\":1,\"mscale\":1.0,\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096},"
     "\"vocab_size\":129280,\"hidden_act\":\"silu\",\"bos_token_id\":0,\"eos_token_id\":1}"},
    {"mixtral-8x7b",
     "{\"model_type\":\"mixtral\",\"architectures\":[\"MixtralForCausalLM\"],\"hidden_size\":4096,"
     "\"intermediate_size\":14336,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":8,\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-5,"
     "\"rope_theta\":1000000.0,\"num_local_experts\":8,\"num_experts_per_tok\":2,\"vocab_size\":32000,"
     "\"hidden_act\":\"silu\",\"bos_token_id\":1,\"eos_token_id\":2}"},
    {"qwen3-30b-a3b",
     "{\"model_type\":\"qwen3_moe\",\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_size\":2048,"
     "\"intermediate_size\":6144,\"moe_intermediate_size\":768,\"num_hidden_layers\":48,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"head_dim\":128,\"num_experts\":128,"
     "\"num_experts_per_tok\":8,\"norm_topk_prob\":true,\"decoder_sparse_step\":1,"
     "\"max_position_embeddings\":40960,\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0,"
     "\"vocab_size\":151936,\"hidden_act\":\"silu\",\"bos_token_id\":151643,\"eos_token_id\":151645}"},
    {"gpt-oss-20b",
     "{\"model_type\":\"gpt_oss\",\"architectures\":[\"GptOssForCausalLM\"],\"hidden_size\":2880,"
     "\"intermediate_size\":2880,\"num_hidden_layers\":24,\"num_attention_heads\":64,"
     "\"num_key_value_heads\":8,\"head_dim\":64,\"num_local_experts\":32,\"experts_per_token\":4,"
     "\"sliding_window\":128,\"layer_types\":[" GPT_OSS_LAYERS "],\"swiglu_limit\":7.0,"
     "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,"
     "\"truncate\":false,\"original_max_position_embeddings\":4096},\"rope_theta\":150000,"
     "\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,\"vocab_size\":201088,"
     "\"bos_token_id\":199998,\"eos_token_id\":200002,\"pad_token_id\":199999}"},
    {"bamba-9b", "{\"model_type\":\"bamba\",\"architectures\":[\"BambaForCausalLM\"],\"hidden_size\":4096,"
                 "\"intermediate_size\":14336,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
                 "\"num_key_value_heads\":8,\"attn_layer_indices\":[9,18,27],\"mamba_n_heads\":128,"
                 "\"mamba_d_head\":64,\"mamba_n_groups\":1,\"mamba_d_state\":128,\"mamba_d_conv\":4,"
                 "\"max_position_embeddings\":262144,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
                 "\"vocab_size\":128256,\"bos_token_id\":128000,\"eos_token_id\":128001,\"pad_token_id\":0}"},
    {"mamba-2.8b", "{\"model_type\":\"mamba\",\"architectures\":[\"MambaForCausalLM\"],\"hidden_size\":2560,"
                   "\"num_hidden_layers\":64,\"state_size\":16,\"time_step_rank\":160,\"conv_kernel\":4,"
                   "\"vocab_size\":50280,\"bos_token_id\":0,\"eos_token_id\":0,\"pad_token_id\":0}"},
    {"t5-small",
     "{\"model_type\":\"t5\",\"architectures\":[\"T5ForConditionalGeneration\"],\"d_model\":512,"
     "\"d_kv\":64,\"d_ff\":2048,\"num_layers\":6,\"num_decoder_layers\":6,\"num_heads\":8,"
     "\"relative_attention_num_buckets\":32,\"vocab_size\":32128,\"feed_forward_proj\":\"relu\","
     "\"layer_norm_epsilon\":1e-6,\"decoder_start_token_id\":0,\"eos_token_id\":1,\"pad_token_id\":0}"},
    {"t5-3b",
     "{\"model_type\":\"t5\",\"architectures\":[\"T5ForConditionalGeneration\"],\"d_model\":1024,"
     "\"d_kv\":128,\"d_ff\":16384,\"num_layers\":24,\"num_decoder_layers\":24,\"num_heads\":32,"
     "\"relative_attention_num_buckets\":32,\"vocab_size\":32128,\"feed_forward_proj\":\"relu\","
     "\"layer_norm_epsilon\":1e-6,\"decoder_start_token_id\":0,\"eos_token_id\":1,\"pad_token_id\":0}"},
    {"bert-large", "{\"model_type\":\"bert\",\"architectures\":[\"BertModel\"],\"hidden_size\":1024,"
                   "\"intermediate_size\":4096,\"num_hidden_layers\":24,\"num_attention_heads\":16,"
                   "\"max_position_embeddings\":512,\"type_vocab_size\":2,\"vocab_size\":30522,"
                   "\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-12,\"pad_token_id\":0}"},
};

static const char prefix[] = "synthetic:";

bool proa_synthetic_is(const char *path)
{
    return strncmp(path, prefix, sizeof prefix - 1) == 0;
}

proa_status proa_synthetic_config(const char **json, const char *path, proa_err *err)
{
    const char *name = path + sizeof prefix - 1;
    for (size_t i = 0; i < PROA_COUNT(models); i++)
        if (strcmp(models[i].name, name) == 0) return *json = models[i].config, PROA_OK;
    *json = NULL;
    return PROA_FAIL(err, NOT_FOUND, "no synthetic model is named '%s'; there are " PROA_SYNTHETIC_NAMES, name);
}
