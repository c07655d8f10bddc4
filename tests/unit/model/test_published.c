/* SPDX-License-Identifier: Apache-2.0
 * test_published.c - configurations as published models have them: keys that are missing, null, nested, of older names
 * or beside the point, and what must come of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config_fixture.h"
#include <math.h>

static void near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-9 * fabs(want))) fail_msg("%.12g, expected %.12g", have, want);
}

/* microsoft/phi-2: 0.4 of a head of 80 is rotated. */
static void phi_2(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(
        &f,
        "{\"architectures\":[\"PhiForCausalLM\"],\"hidden_act\":\"gelu_new\",\"hidden_size\":2560,"
        "\"intermediate_size\":10240,\"layer_norm_eps\":1e-05,\"max_position_embeddings\":2048,"
        "\"model_type\":\"phi\",\"num_attention_heads\":32,\"num_hidden_layers\":32,"
        "\"num_key_value_heads\":null,\"partial_rotary_factor\":0.4,\"qk_layernorm\":false,"
        "\"rope_scaling\":null,\"rope_theta\":10000.0,\"tie_word_embeddings\":false,\"vocab_size\":51200}");
    assert_int_equal(f.c.rotary_dim, 32);
    assert_int_equal(f.c.kv_heads, 32);
    assert_false(f.c.qk_norm);
    proa_arena_release(&f.arena);
}

/* A list of n numbers for LongRoPE. */
static const char *factors(char *room, size_t size, int n)
{
    size_t len = (size_t)snprintf(room, size, "[1.0");
    for (int i = 1; i < n; i++) len += (size_t)snprintf(room + len, size - len, ",%d.5", i);
    snprintf(room + len, size - len, "]");
    return room;
}

/* microsoft/Phi-3-mini-128k-instruct of April 2024, whose rope type is "su", and Phi-4-mini-instruct, which rotates 96
 * of 128 numbers and shares the embedding with the head. Windows longer than the context are no windows that matter. */
static void phi_3(void **state)
{
    PROA_UNUSED(state);
    static const char *const more[] = {
        "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"vocab_size\":32064,"
        "\"tie_word_embeddings\":false,\"rope_scaling\":{\"type\":\"su\",",
        "\"num_attention_heads\":24,\"num_key_value_heads\":8,\"vocab_size\":200064,"
        "\"tie_word_embeddings\":true,\"partial_rotary_factor\":0.75,"
        "\"full_attn_mod\":1,\"interpolate_factor\":1,\"lm_head_bias\":false,"
        "\"rope_scaling\":{\"type\":\"longrope\","};
    for (int i = 0; i < 2; i++) {
        fixture f;
        char list[1024], text[4096];
        factors(list, sizeof list, 48);
        snprintf(
            text, sizeof text,
            "{\"architectures\":[\"Phi3ForCausalLM\"],\"attention_bias\":false,\"hidden_act\":\"silu\","
            "\"hidden_size\":3072,\"intermediate_size\":8192,\"max_position_embeddings\":131072,"
            "\"model_type\":\"phi3\",\"num_hidden_layers\":32,\"original_max_position_embeddings\":4096,"
            "\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"sliding_window\":262144,%s\"long_factor\":%s,"
            "\"short_factor\":%s}}",
            more[i], list, list);
        accepted(&f, text);
        assert_int_equal(f.c.rotary_dim, 96);
        assert_int_equal(f.c.rope.kind, PROA_ROPE_LONG);
        assert_int_equal(f.c.rope.original, 4096);
        near(f.c.rope.scale, sqrt(1 + log(32) / log(4096)));
        assert_int_equal(f.c.context, 131072);
        assert_int_equal(f.c.tied, i == 1);
        proa_arena_release(&f.arena);
    }
}

/* google/gemma-2b: the activation is tanh-GELU whatever hidden_act says, and nothing says that the head is tied. */
static void gemma_2b(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             "{\"architectures\":[\"GemmaForCausalLM\"],\"attention_bias\":false,\"head_dim\":256,"
             "\"hidden_act\":\"gelu\",\"hidden_activation\":null,\"hidden_size\":2048,"
             "\"intermediate_size\":16384,\"max_position_embeddings\":8192,\"model_type\":\"gemma\","
             "\"num_attention_heads\":8,\"num_hidden_layers\":18,\"num_key_value_heads\":1,"
             "\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":10000.0,\"vocab_size\":256000}");
    assert_int_equal(f.c.act, PROA_ACT_GELU_TANH);
    assert_true(f.c.tied);
    near(f.c.embed_scale, sqrt(2048));
    near(f.c.attention_scale, 1.0 / 16);
    assert_int_equal(f.c.window_used, false);
    proa_arena_release(&f.arena);
}

/* Gemma 4: sizes that the class gives, heads of layers without a window by either of the two keys, the layers that
 * share keys and values, and what is refused. */
static void gemma_4(void **state)
{
    PROA_UNUSED(state);
#define GEMMA_4                                                                                              \
    "{\"architectures\":[\"Gemma4ForCausalLM\"],\"model_type\":\"gemma4_text\",\"hidden_size\":1536,"        \
    "\"num_hidden_layers\":18,\"intermediate_size\":6144,\"num_attention_heads\":8,\"num_key_value_heads\":" \
    "4,"
#define NO_INPUTS "\"hidden_size_per_layer_input\":0,"
    fixture f;
    accepted(&f, GEMMA_4
             "\"num_global_key_value_heads\":2,\"num_kv_shared_layers\":6,\"use_double_wide_mlp\":true}");
    assert_int_equal(f.c.head_dim, 256);
    assert_int_equal(proa_config_head_dim(&f.c, 5), 512);
    assert_int_equal(proa_config_kv_heads(&f.c, 5), 4); /* the key is looked at with attention_k_eq_v alone */
    assert_int_equal(proa_config_window(&f.c, 4), 512);
    assert_int_equal(proa_config_window(&f.c, 5), 0);
    assert_int_equal(f.c.layer_input, 256);
    assert_int_equal(proa_config_kv_source(&f.c, 11), 11);
    assert_int_equal(proa_config_kv_source(&f.c, 12), 10);
    assert_int_equal(proa_config_kv_source(&f.c, 17), 11);
    assert_int_equal(proa_config_kv_layers(&f.c, 0, 18, false), 10);
    assert_int_equal(proa_config_kv_layers(&f.c, 0, 18, true), 2);
    assert_int_equal(proa_config_ffn(&f.c, 11), 6144);
    assert_int_equal(proa_config_ffn(&f.c, 12), 12288);
    assert_int_equal(proa_config_rotary_dim(&f.c, false), 512);
    assert_int_equal(f.c.rope.kind, PROA_ROPE_PROPORTIONAL);
    near(f.c.rope.part, 0.25);
    near(f.c.attention_scale, 1);
    proa_arena_release(&f.arena);
    accepted(&f, GEMMA_4 NO_INPUTS "\"attention_k_eq_v\":true,\"num_global_key_value_heads\":2}");
    assert_int_equal(proa_config_kv_heads(&f.c, 5), 2);
    assert_true(proa_config_k_is_v(&f.c, 5) && !proa_config_k_is_v(&f.c, 4));
    assert_int_equal(f.c.layer_input, 0);
    proa_arena_release(&f.arena);
    refused(GEMMA_4 "\"use_bidirectional_attention\":\"all\"}", PROA_UNSUPPORTED, "use_bidirectional_attention");
    refused(GEMMA_4 "\"vocab_size_per_layer_input\":1000}", PROA_UNSUPPORTED, "vocab_size_per_layer_input");
    refused(GEMMA_4 "\"num_kv_shared_layers\":14}", PROA_INVALID, "no layer before layer 4 is of its type");
    refused(GEMMA_4 "\"num_kv_shared_layers\":18}", PROA_INVALID, "num_kv_shared_layers");
    refused(GEMMA_4 "\"enable_moe_block\":true}", PROA_INVALID, "num_experts");
    refused(GEMMA_4 "\"per_layer_config\":{\"4\":{\"head_dim\":64}}}", PROA_UNSUPPORTED, "layer 4");
    refused(GEMMA_4 "\"per_layer_config\":{\"5\":{\"head_dim\":64,\"hidden_size\":7}}}", PROA_UNSUPPORTED,
            "hidden_size");
    refused(GEMMA_4 "\"per_layer_config\":{\"5\":{\"head_dim\":64},\"11\":{\"head_dim\":32}}}",
            PROA_UNSUPPORTED, "more than two shapes");
    refused(GEMMA_4 "\"global_head_dim\":63}", PROA_INVALID, "must be even");
}

/* Gemma 3n: sizes, thresholds and shared layers that the class gives, a size for each layer, and what is refused. */
static void gemma_3n(void **state)
{
    PROA_UNUSED(state);
#define GEMMA_3N                                                                                             \
    "{\"architectures\":[\"Gemma3nForCausalLM\"],\"model_type\":\"gemma3n_text\",\"hidden_size\":2048,"
    fixture f;
    accepted(&f, GEMMA_3N "\"num_hidden_layers\":35}");
    assert_int_equal(f.c.ffn, 16384);
    assert_int_equal(f.c.streams, 4);
    assert_int_equal(f.c.layer_vocab, 262144);
    assert_int_equal(proa_config_window(&f.c, 3), 512);
    assert_int_equal(proa_config_window(&f.c, 4), 0);
    assert_int_equal(proa_config_kv_source(&f.c, 34), 19);
    assert_int_equal(proa_config_kv_source(&f.c, 33), 18);
    assert_true(proa_config_has_threshold(&f.c, 9) && !proa_config_has_threshold(&f.c, 10));
    assert_true(fabs(f.c.deviations[0] - 1.6448536) < 1e-5);
    near(f.c.rope.theta, 1e6);
    near(f.c.local_rope.theta, 1e4);
    near(f.c.logit_cap, 30);
    proa_arena_release(&f.arena);
    accepted(&f, GEMMA_3N
             "\"num_hidden_layers\":6,\"num_kv_shared_layers\":0,\"intermediate_size\":[8,16,8,8,8,8]}");
    assert_int_equal(f.c.ffn, 16);
    assert_int_equal(proa_config_ffn(&f.c, 2), 8);
    proa_arena_release(&f.arena);
    refused(GEMMA_3N "\"num_hidden_layers\":35,\"altup_num_inputs\":2}", PROA_UNSUPPORTED, "altup_num_inputs");
    refused(GEMMA_3N "\"num_hidden_layers\":35,\"altup_correct_scale\":false}", PROA_UNSUPPORTED,
            "altup_correct_scale");
    refused(GEMMA_3N "\"num_hidden_layers\":15}", PROA_INVALID, "num_kv_shared_layers");
    refused(GEMMA_3N "\"num_hidden_layers\":20,\"intermediate_size\":[8]}", PROA_INVALID, "intermediate_size");
    refused(GEMMA_3N "\"num_hidden_layers\":20,\"activation_sparsity_pattern\":[0.5]}", PROA_INVALID,
            "activation_sparsity_pattern");
}

/* google/gemma-3-1b-it, and gemma-3-4b-it, whose text_config leaves out what the class has as default. The context is
 * not eight times as long: the scaling is in it already. */
static void gemma_3(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             "{\"architectures\":[\"Gemma3ForCausalLM\"],\"attn_logit_softcapping\":null,"
             "\"cache_implementation\":\"hybrid\",\"eos_token_id\":[1,106],\"final_logit_softcapping\":null,"
             "\"head_dim\":256,\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":1152,"
             "\"intermediate_size\":6912,\"max_position_embeddings\":32768,\"model_type\":\"gemma3_text\","
             "\"num_attention_heads\":4,\"num_hidden_layers\":26,\"num_key_value_heads\":1,"
             "\"query_pre_attn_scalar\":256,\"rms_norm_eps\":1e-06,\"rope_local_base_freq\":10000,"
             "\"rope_scaling\":null,\"rope_theta\":1000000,\"sliding_window\":512,"
             "\"sliding_window_pattern\":6,\"vocab_size\":262144}");
    assert_int_equal(proa_config_window(&f.c, 4), 512);
    assert_int_equal(proa_config_window(&f.c, 5), 0);
    near(f.c.rope.theta, 1e6);
    near(f.c.local_rope.theta, 1e4);
    assert_true(f.c.attention_cap == 0 && f.c.logit_cap == 0);
    assert_int_equal(f.c.end_count, 2);
    proa_arena_release(&f.arena);
    accepted(&f,
             "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"boi_token_index\":255999,"
             "\"eoi_token_index\":256000,\"eos_token_id\":[1,106],\"image_token_index\":262144,"
             "\"mm_tokens_per_image\":256,\"model_type\":\"gemma3\",\"text_config\":{\"hidden_size\":2560,"
             "\"intermediate_size\":10240,\"model_type\":\"gemma3_text\",\"num_hidden_layers\":34,"
             "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024},"
             "\"vision_config\":{\"hidden_size\":1152}}");
    assert_int_equal(f.c.vocab, 262208);
    assert_int_equal(f.c.heads, 8);
    assert_int_equal(f.c.kv_heads, 4);
    assert_int_equal(f.c.head_dim, 256);
    assert_int_equal(f.c.context, 131072);
    assert_int_equal(f.c.rope.kind, PROA_ROPE_LINEAR);
    assert_int_equal(f.c.local_rope.kind, PROA_ROPE_PLAIN);
    assert_int_equal(proa_config_window(&f.c, 33), 1024);
    assert_int_equal(proa_config_window(&f.c, 29), 0);
    assert_int_equal(f.c.end_ids[1], 106);
    assert_true(f.c.tied);
    proa_arena_release(&f.arena);
}

/* CohereForAI/c4ai-command-r-v01: model_max_length is what the model takes. */
static void command_r(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{\"architectures\":[\"CohereForCausalLM\"],\"attention_bias\":false,\"bos_token_id\":5,"
                 "\"eos_token_id\":255001,\"hidden_act\":\"silu\",\"hidden_size\":8192,"
                 "\"intermediate_size\":22528,\"layer_norm_eps\":1e-05,\"logit_scale\":0.0625,"
                 "\"max_position_embeddings\":8192,\"model_max_length\":131072,\"model_type\":\"cohere\","
                 "\"num_attention_heads\":64,\"num_hidden_layers\":40,\"num_key_value_heads\":64,"
                 "\"pad_token_id\":0,\"rope_theta\":8000000.0,\"vocab_size\":256000}");
    assert_int_equal(f.c.context, 131072);
    near(f.c.logit_scale, 0.0625);
    assert_true(f.c.tied);
    assert_false(f.c.qk_norm);
    proa_arena_release(&f.arena);
}

/* ibm-granite/granite-3.1-8b-instruct. */
static void granite(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{\"architectures\":[\"GraniteForCausalLM\"],\"attention_bias\":false,"
                 "\"attention_multiplier\":0.0078125,\"embedding_multiplier\":12.0,\"hidden_act\":\"silu\","
                 "\"hidden_size\":4096,\"intermediate_size\":12800,\"logits_scaling\":16.0,"
                 "\"max_position_embeddings\":131072,\"mlp_bias\":false,\"model_type\":\"granite\","
                 "\"num_attention_heads\":32,\"num_hidden_layers\":40,\"num_key_value_heads\":8,"
                 "\"residual_multiplier\":0.22,\"rms_norm_eps\":1e-05,\"rope_scaling\":null,"
                 "\"rope_theta\":10000000.0,\"tie_word_embeddings\":true,\"vocab_size\":49155}");
    near(f.c.attention_scale, 1.0 / 128);
    near(f.c.embed_scale, 12);
    near(f.c.residual_scale, 0.22);
    near(f.c.logit_scale, 1.0 / 16);
    proa_arena_release(&f.arena);
}

/* allenai/Olmo-3-7B: three of four layers have a window and rotary positions that are not scaled. */
static void olmo_3(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             "{\"architectures\":[\"Olmo3ForCausalLM\"],\"hidden_size\":4096,\"intermediate_size\":11008,"
             "\"max_position_embeddings\":65536,\"model_type\":\"olmo3\",\"num_attention_heads\":32,"
             "\"num_hidden_layers\":32,\"num_key_value_heads\":32,\"rms_norm_eps\":1e-06,"
             "\"rope_scaling\":{\"attention_factor\":1.2079441541679836,\"beta_fast\":32.0,\"beta_slow\":1.0,"
             "\"factor\":8.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"yarn\"},"
             "\"rope_theta\":500000,\"sliding_window\":4096,\"vocab_size\":100278}");
    assert_int_equal(proa_config_window(&f.c, 2), 4096);
    assert_int_equal(proa_config_window(&f.c, 3), 0);
    near(f.c.rope.scale, 0.1 * log(8) + 1);
    near(f.c.local_rope.scale, 1);
    near(f.c.local_rope.theta, 500000);
    assert_int_equal(f.c.context, 65536);
    proa_arena_release(&f.arena);
}

/* CohereForAI/c4ai-command-r7b-12-2024: the pattern of windows is a number, and every fourth layer does not rotate. */
static void command_r7b(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             "{\"architectures\":[\"Cohere2ForCausalLM\"],\"attention_bias\":false,"
             "\"cache_implementation\":\"hybrid\",\"head_dim\":128,\"hidden_act\":\"silu\","
             "\"hidden_size\":4096,\"intermediate_size\":14336,\"layer_norm_eps\":1e-05,"
             "\"logit_scale\":0.25,\"max_position_embeddings\":132096,\"model_type\":\"cohere2\","
             "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":8,"
             "\"order_of_interleaved_layers\":\"local_attn_first\",\"position_embedding_type\":\"rope_gptj\","
             "\"rope_scaling\":null,\"rope_theta\":50000,\"rotary_pct\":1.0,\"sliding_window\":4096,"
             "\"sliding_window_pattern\":4,\"use_qk_norm\":false,\"vocab_size\":256000}");
    for (int i = 0; i < 32; i++) {
        assert_int_equal(proa_config_window(&f.c, i), i % 4 == 3 ? 0 : 4096);
        assert_int_equal(proa_config_rotates(&f.c, i), i % 4 != 3);
    }
    proa_arena_release(&f.arena);
}

/* HuggingFaceTB/SmolLM3-3B without its list of layers, and a list that is too short. */
static void smollm_3(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    const char *text =
        "{\"architectures\":[\"SmolLM3ForCausalLM\"],\"attention_bias\":false,\"hidden_size\":2048,"
        "\"intermediate_size\":11008,\"max_position_embeddings\":65536,\"mlp_bias\":false,"
        "\"model_type\":\"smollm3\",%s\"no_rope_layer_interval\":4,\"num_attention_heads\":16,"
        "\"num_hidden_layers\":36,\"num_key_value_heads\":4,\"rms_norm_eps\":1e-06,"
        "\"rope_scaling\":null,\"rope_theta\":5000000.0,\"sliding_window\":null,"
        "\"use_sliding_window\":false,\"vocab_size\":128256}";
    char room[1024];
    snprintf(room, sizeof room, text, "");
    accepted(&f, room);
    for (int i = 0; i < 36; i++) assert_int_equal(proa_config_rotates(&f.c, i), i % 4 != 3);
    assert_true(f.c.tied);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "\"no_rope_layers\":[1,0],");
    refused(room, PROA_INVALID, "2 entries for 36 layers");
}

/* LGAI-EXAONE/EXAONE-4.0-1.2B has no windows, so all layers rotate; of 32B, those with a window. */
static void exaone_4(void **state)
{
    PROA_UNUSED(state);
    static const char *const windows[] = {
        "\"sliding_window\":null,\"sliding_window_pattern\":null,\"layer_types\":[\"full_attention\","
        "\"full_attention\",\"full_attention\",\"full_attention\"],",
        "\"sliding_window\":4096,\"sliding_window_pattern\":\"LLLG\",\"layer_types\":[\"sliding_attention\","
        "\"sliding_attention\",\"sliding_attention\",\"full_attention\"],"};
    for (int i = 0; i < 2; i++) {
        fixture f;
        char room[1024];
        snprintf(
            room, sizeof room,
            "{\"architectures\":[\"Exaone4ForCausalLM\"],\"head_dim\":64,\"hidden_size\":2048,"
            "\"intermediate_size\":4096,%s\"num_attention_heads\":32,\"num_hidden_layers\":4,"
            "\"num_key_value_heads\":8,\"rope_scaling\":{\"factor\":16.0,\"high_freq_factor\":4.0,"
            "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
            "\"rope_theta\":1000000,\"tie_word_embeddings\":true,\"vocab_size\":102400}",
            windows[i]);
        accepted(&f, room);
        assert_true(proa_config_rotates(&f.c, 0));
        assert_int_equal(proa_config_rotates(&f.c, 3), i == 0);
        assert_int_equal(proa_config_window(&f.c, 0), i ? 4096 : 0);
        proa_arena_release(&f.arena);
    }
}

/* Qwen/Qwen-7B-Chat: its own keys for what is longer than 8192 tokens. */
static void qwen_1(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             "{\"architectures\":[\"QWenLMHeadModel\"],\"attn_dropout_prob\":0.0,\"bf16\":false,"
             "\"emb_dropout_prob\":0.0,\"hidden_size\":4096,\"intermediate_size\":22016,\"kv_channels\":128,"
             "\"layer_norm_epsilon\":1e-06,\"max_position_embeddings\":32768,\"model_type\":\"qwen\","
             "\"no_bias\":true,\"num_attention_heads\":32,\"num_hidden_layers\":32,\"onnx_safe\":null,"
             "\"rotary_emb_base\":10000,\"rotary_pct\":1.0,\"scale_attn_weights\":true,\"seq_length\":8192,"
             "\"softmax_in_fp32\":false,\"tie_word_embeddings\":false,\"use_dynamic_ntk\":true,"
             "\"use_flash_attn\":\"auto\",\"use_logn_attn\":true,\"vocab_size\":151936}");
    assert_int_equal(f.c.context, 32768);
    assert_int_equal(f.c.ffn, 11008);
    assert_int_equal(f.c.rope.kind, PROA_ROPE_DOUBLED);
    assert_int_equal(proa_rope_length(&f.c.rope, 9000, 8193, 32768), 16384);
    assert_true(f.c.query_scale.smooth && f.c.query_scale.length == 8192);
    assert_false(f.c.attention_bias || f.c.mlp_bias || f.c.tied);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"QWenLMHeadModel\"],\"hidden_size\":64,\"intermediate_size\":64,\"kv_"
            "channels\":64,"
            "\"num_attention_heads\":4,\"num_hidden_layers\":1,\"vocab_size\":20}",
            PROA_INVALID, "4 heads of 'kv_channels' 64 are not 'hidden_size' 64");
}

/* openbmb/MiniCPM-2B-sft-bf16: 1.4 / sqrt(40) of each output, logits of 256 / 2304; and the experts of
 * openbmb/MiniCPM-MoE-8x2B. */
static void minicpm(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    const char *text =
        "{\"architectures\":[\"MiniCPMForCausalLM\"],\"dim_model_base\":256,\"hidden_act\":\"silu\","
        "\"hidden_size\":2304,\"intermediate_size\":5760,\"max_position_embeddings\":4096,"
        "\"num_attention_heads\":36,\"num_hidden_layers\":40,\"num_key_value_heads\":36,"
        "\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"scale_depth\":1.4,\"scale_emb\":12,"
        "%s\"vocab_size\":122753}";
    char room[1024];
    snprintf(room, sizeof room, text, "");
    accepted(&f, room);
    near(f.c.residual_scale, 1.4 / sqrt(40));
    near(f.c.logit_scale, 1.0 / 9);
    near(f.c.embed_scale, 12);
    assert_true(f.c.tied);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "\"num_experts\":8,\"num_experts_per_tok\":2,");
    accepted(&f, room);
    assert_true(proa_config_has_experts(&f.c, 0) && f.c.router.renormalise && f.c.router.chosen == 2);
    near((double)f.c.router.scale, (double)(float)(1.4 / sqrt(40)));
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "\"attention_bias\":true,");
    refused(room, PROA_UNSUPPORTED, "biases");
}

/* deepseek-ai/deepseek-coder-6.7b: a Llama with linear scaling. */
static void deepseek_coder(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    float freq[64];
    accepted(
        &f, "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":4096,"
            "\"intermediate_size\":11008,\"max_position_embeddings\":16384,\"model_type\":\"llama\","
            "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":32,"
            "\"pretraining_tp\":1,\"rms_norm_eps\":1e-06,\"rope_scaling\":{\"factor\":4.0,"
            "\"type\":\"linear\"},\"rope_theta\":100000,\"tie_word_embeddings\":false,\"vocab_size\":32256}");
    proa_rope_inv_freq(&f.c.rope, f.c.rotary_dim, false, freq);
    near((double)freq[0], 0.25);
    assert_int_equal(f.c.context, 65536);
    proa_arena_release(&f.arena);
}

/* The head of an XLNet: tanh where the file names no activation, none where it says null. */
static void xlnet_head(void **state)
{
    PROA_UNUSED(state);
    static const char text[] =
        "{\"architectures\":[\"XLNetForSequenceClassification\"],\"model_type\":\"xlnet\",%s\"d_model\":64,"
        "\"d_inner\":128,\"n_head\":4,\"n_layer\":2,\"num_labels\":2,\"vocab_size\":200}";
    static const struct {
        const char *key;
        proa_act act;
    } cases[] = {{"", PROA_ACT_TANH},
                 {"\"summary_activation\":null,", PROA_ACT_NONE},
                 {"\"summary_activation\":\"gelu\",", PROA_ACT_GELU}};
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        char room[512];
        fixture f;
        snprintf(room, sizeof room, text, cases[i].key);
        configure(&f, room);
        assert_int_equal(f.c.head_act, cases[i].act);
        proa_arena_release(&f.arena);
    }
}

/* nomic-ai/nomic-embed-text-v1.5 has GPT-2's keys; v1 scales positions beyond those of its training, v2 has experts. */
static void nomic_embed(void **state)
{
    PROA_UNUSED(state);
    static const char text[] =
        "{\"architectures\":[\"NomicBertModel\"],\"model_type\":\"nomic_bert\",%s"
        "\"activation_function\":\"swiglu\",\"causal\":false,\"layer_norm_epsilon\":1e-12,"
        "\"max_trained_positions\":2048,\"mlp_fc1_bias\":false,\"mlp_fc2_bias\":false,\"n_embd\":768,"
        "\"n_head\":12,\"n_inner\":3072,\"n_layer\":12,\"n_positions\":8192,\"prenorm\":false,"
        "\"qkv_proj_bias\":false,\"rotary_emb_base\":1000,\"rotary_emb_fraction\":1.0,"
        "\"rotary_emb_interleaved\":false,\"rotary_emb_scale_base\":null,\"type_vocab_size\":2,"
        "\"use_rms_norm\":false,\"vocab_size\":30528}";
    char room[2048];
    fixture f;
    snprintf(room, sizeof room, text, "\"rotary_scaling_factor\":null,");
    accepted(&f, room);
    assert_int_equal(f.c.hidden, 768);
    assert_int_equal(f.c.ffn, 3072);
    assert_int_equal(f.c.encoder_layers, 12);
    assert_int_equal(f.c.rotary_dim, 64);
    assert_int_equal(f.c.context, 8192);
    near(f.c.rope.theta, 1000);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "\"rotary_scaling_factor\":2,");
    accepted(&f, room);
    assert_int_equal(f.c.context, 2048);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "\"num_experts\":8,\"moe_top_k\":2,");
    refused(room, PROA_UNSUPPORTED, "gated");
}

/* tencent/Hunyuan-A13B-Instruct: lists with a number for each layer, and a theta that a fixed alpha makes larger. */
static void hunyuan_a13b(void **state)
{
    PROA_UNUSED(state);
    static const char text[] =
        "{\"architectures\":[\"HunYuanMoEV1ForCausalLM\"],\"attention_head_dim\":128,\"hidden_act\":\"silu\","
        "\"hidden_size\":4096,\"intermediate_size\":3072,\"max_position_embeddings\":32768,"
        "\"model_type\":\"hunyuan_v1_moe\",\"moe_intermediate_size\":[3072,3072],\"moe_topk\":[8,%d],"
        "\"num_attention_heads\":32,\"num_experts\":64,\"num_hidden_layers\":2,\"num_key_value_heads\":8,"
        "\"num_shared_expert\":[1,1],\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"alpha\":1000.0,"
        "\"factor\":1.0,\"type\":\"dynamic\"},\"rope_theta\":10000.0,\"tie_word_embeddings\":true,"
        "\"use_cla\":false,\"use_qk_norm\":true,\"vocab_size\":128167}";
    char room[2048];
    fixture f;
    snprintf(room, sizeof room, text, 8);
    accepted(&f, room);
    assert_int_equal(f.c.router.chosen, 8);
    assert_int_equal(f.c.shared_ffn, 3072);
    assert_int_equal(f.c.context, 32768);
    assert_true(fabs(f.c.rope.theta - 11158840) < 1);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, 4);
    refused(room, PROA_UNSUPPORTED, "'moe_topk' differs");
}

/* baidu/ERNIE-4.5-21B-A3B-PT: dense layers before moe_layer_start_index, two shared experts. */
static void ernie_moe(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             "{\"architectures\":[\"Ernie4_5_MoeForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":2560,"
             "\"intermediate_size\":12288,\"max_position_embeddings\":131072,\"model_type\":\"ernie4_5_moe\","
             "\"moe_intermediate_size\":1536,\"moe_k\":6,\"moe_layer_end_index\":2,\"moe_layer_interval\":1,"
             "\"moe_layer_start_index\":1,\"moe_num_experts\":64,\"moe_num_shared_experts\":2,"
             "\"num_attention_heads\":20,\"num_hidden_layers\":4,\"num_key_value_heads\":4,"
             "\"rms_norm_eps\":1e-05,\"rope_theta\":500000.0,\"tie_word_embeddings\":true,\"use_bias\":false,"
             "\"vocab_size\":103424}");
    assert_int_equal(f.c.shared_ffn, 3072);
    assert_false(f.c.expert_layers[0]);
    assert_true(f.c.expert_layers[1] && f.c.expert_layers[2]);
    assert_false(f.c.expert_layers[3]);
    proa_arena_release(&f.arena);
}

/* Qwen/Qwen3-Next-80B-A3B-Instruct names no layer_types: each fourth layer has attention. */
static void qwen3_next(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[2048];
    static const char *const text =
        "{\"architectures\":[\"Qwen3NextForCausalLM\"],\"attention_bias\":false,\"decoder_sparse_step\":1,"
        "\"full_attention_interval\":4,\"head_dim\":256,\"hidden_act\":\"silu\",\"hidden_size\":2048,"
        "\"intermediate_size\":5120,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":%d,"
        "\"linear_num_key_heads\":16,\"linear_num_value_heads\":%d,\"linear_value_head_dim\":128,"
        "\"max_position_embeddings\":262144,\"mlp_only_layers\":[],\"model_type\":\"qwen3_next\","
        "\"moe_intermediate_size\":512,\"norm_topk_prob\":true,\"num_attention_heads\":16,\"num_experts\":"
        "512,"
        "\"num_experts_per_tok\":10,\"num_hidden_layers\":48,\"num_key_value_heads\":2,"
        "\"partial_rotary_factor\":0.25,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":10000000,"
        "\"shared_expert_intermediate_size\":512,\"tie_word_embeddings\":false,\"use_sliding_window\":false,%"
        "s"
        "\"vocab_size\":151936}";
    snprintf(room, sizeof room, text, 128, 32, "");
    accepted(&f, room);
    assert_int_equal(f.c.rotary_dim, 64);
    assert_int_equal(f.c.router.chosen, 10);
    assert_int_equal(proa_config_attending(&f.c, 0, 48), 12);
    assert_true(proa_config_recurs(&f.c, 0) && !proa_config_recurs(&f.c, 3));
    assert_true(proa_config_attends(&f.c, 47) && !proa_config_attends(&f.c, 46));
    assert_int_equal(proa_config_state(&f.c), 36 * (3 * 8192 + 32 * 128 * 128));
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, 128, 24, "");
    refused(room, PROA_INVALID, "no multiple of 16 key heads");
    snprintf(room, sizeof room, text, 512, 32, "");
    refused(room, PROA_INVALID, "'linear_key_head_dim' is 512");
    snprintf(room, sizeof room, text, 128, 32, "\"layer_types\":[\"full_attention\"],");
    refused(room, PROA_INVALID, "'layer_types' has 1 entries for 48 layers");
}

/* moonshotai/Kimi-Linear-48B-A3B-Instruct counts its layers from 1. */
static void kimi_linear(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[2048];
    static const char *const text =
        "{\"architectures\":[\"KimiLinearForCausalLM\"],\"first_k_dense_replace\":1,\"hidden_act\":\"silu\","
        "\"hidden_size\":2304,\"intermediate_size\":9216,\"kv_lora_rank\":512,\"linear_attn_config\":{"
        "\"full_attn_layers\":[4,%d],\"head_dim\":128,\"kda_layers\":[1,2,3,5,6,7],\"num_heads\":32,"
        "\"short_conv_kernel_size\":4},\"mla_use_nope\":true,\"model_max_length\":1048576,\"model_type\":"
        "\"kimi_linear\",\"moe_intermediate_size\":1024,\"moe_layer_freq\":1,\"moe_renormalize\":true,"
        "\"num_attention_heads\":32,\"num_expert_group\":1,\"num_experts\":256,\"num_experts_per_token\":8,"
        "\"num_hidden_layers\":8,\"num_key_value_heads\":32,\"num_nextn_predict_layers\":0,"
        "\"num_shared_experts\":1,\"q_lora_rank\":null,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,"
        "\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":10000.0,\"routed_scaling_factor\":2.446,"
        "\"tie_word_embeddings\":false,\"topk_group\":1,\"v_head_dim\":128,\"vocab_size\":163840}";
    snprintf(room, sizeof room, text, 8);
    accepted(&f, room);
    assert_int_equal(f.c.rotary_dim, 0);
    assert_int_equal(f.c.context, 1048576);
    assert_int_equal(f.c.router.chosen, 8);
    assert_int_equal(f.c.shared_ffn, 1024);
    assert_int_equal(f.c.gate_rank, 128);
    assert_true(f.c.channel_decays && f.c.latent_eps == 1e-6);
    assert_true(proa_config_attends(&f.c, 3) && proa_config_attends(&f.c, 7) && proa_config_recurs(&f.c, 4));
    assert_true(!f.c.expert_layers[0] && f.c.expert_layers[1]);
    assert_int_equal(proa_config_state(&f.c), 6 * (3 * 3 * 4096 + 32 * 128 * 128));
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, 9);
    refused(room, PROA_INVALID, "'full_attn_layers' names layer 9 of 8");
}

/* OLMo Hybrid without keys of its recurrent layers, whose sizes follow from the others. */
static void olmo_hybrid(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[1024];
    static const char *const text =
        "{\"architectures\":[\"OlmoHybridForCausalLM\"],\"hidden_act\":\"%s\",\"hidden_size\":3840,"
        "\"intermediate_size\":11008,\"max_position_embeddings\":65536,\"model_type\":\"olmo_hybrid\","
        "\"num_attention_heads\":30,\"num_hidden_layers\":32,\"rms_norm_eps\":1e-06,\"rope_parameters\":{"
        "\"rope_theta\":%s,\"rope_type\":\"default\"},\"tie_word_embeddings\":false,\"vocab_size\":100352%s}";
    snprintf(room, sizeof room, text, "silu", "null", "");
    accepted(&f, room);
    assert_int_equal(f.c.rotary_dim, 0);
    assert_int_equal(f.c.kv_heads, 30);
    assert_true(f.c.negative_eigen && f.c.recall_eps == 1e-5);
    assert_int_equal(proa_config_attending(&f.c, 0, 32), 8);
    assert_int_equal(proa_config_state(&f.c), 24 * (3 * 30 * (2 * 96 + 192) + 30 * 96 * 192));
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "silu", "500000", ",\"linear_allow_neg_eigval\":false");
    accepted(&f, room);
    assert_int_equal(f.c.rotary_dim, 128);
    assert_false(f.c.negative_eigen);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "silu", "null", ",\"linear_num_key_heads\":7");
    refused(room, PROA_INVALID, "'linear_num_value_heads' is 30, no multiple of 7 key heads");
    snprintf(room, sizeof room, text, "gelu", "null", "");
    refused(room, PROA_UNSUPPORTED, "'hidden_act' 'gelu'");
}

/* MiniMaxAI/MiniMax-Text-01-hf. */
static void minimax(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[1024];
    static const char *const text =
        "{\"architectures\":[\"MiniMaxForCausalLM\"],\"full_attn_alpha_factor\":3.5565588200778455,"
        "\"full_attn_beta_factor\":1.0,\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":6144,"
        "\"intermediate_size\":9216,\"linear_attn_alpha_factor\":3.5565588200778455,\"layer_types\":["
        "\"linear_attention\",\"linear_attention\",\"%s\"],\"linear_attn_beta_factor\":1.0,"
        "\"max_position_embeddings\":10240000,\"mlp_alpha_factor\":%s,\"mlp_beta_factor\":1.0,"
        "\"model_type\":\"minimax\",\"num_attention_heads\":64,\"num_experts_per_tok\":2,"
        "\"num_hidden_layers\":3,\"num_key_value_heads\":8,\"num_local_experts\":32,\"rms_norm_eps\":1e-05,"
        "\"rope_theta\":10000000,\"rotary_dim\":64,\"sliding_window\":null,\"vocab_size\":200064}";
    snprintf(room, sizeof room, text, "full_attention", "3.5565588200778455");
    accepted(&f, room);
    assert_int_equal(f.c.rotary_dim, 64);
    assert_int_equal(f.c.expert_ffn, 9216);
    assert_true(fabs(f.c.stream_scale - 3.55655882) < 1e-6 && f.c.residual_scale == 1);
    assert_int_equal(proa_config_attending(&f.c, 0, 3), 1);
    assert_int_equal(proa_config_state(&f.c), 2 * 64 * 128 * 128);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "full_attention", "2.5");
    refused(room, PROA_UNSUPPORTED, "'mlp_alpha_factor' 2.5 differ");
    snprintf(room, sizeof room, text, "sliding_attention", "3.5565588200778455");
    refused(room, PROA_UNSUPPORTED, "'layer_types' entry 2 is 'sliding_attention'");
}

/* Zyphra/Zamba2-7B, whose blocks of attention are two, used in turn. */
static void zamba2(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[1024];
    static const char *const text =
        "{\"adapter_rank\":128,\"architectures\":[\"Zamba2ForCausalLM\"],\"hidden_size\":3584,"
        "\"intermediate_size\":14336,\"layers_block_type\":[\"mamba\",\"hybrid\",\"hybrid\",\"mamba\",\"%s\"]"
        ","
        "\"mamba_d_conv\":4,\"mamba_d_state\":64,\"mamba_expand\":2,\"mamba_ngroups\":2,"
        "\"max_position_embeddings\":4096,\"model_type\":\"zamba2\",\"n_mamba_heads\":112,"
        "\"num_attention_heads\":32,\"num_hidden_layers\":5,\"num_mem_blocks\":2,\"rms_norm_eps\":1e-05,"
        "\"rope_theta\":10000,\"use_long_context\":%s,\"use_mem_rope\":true,"
        "\"use_shared_attention_adapter\":false,\"vocab_size\":32000}";
    snprintf(room, sizeof room, text, "hybrid", "false");
    accepted(&f, room);
    assert_int_equal(f.c.head_dim, 224);
    assert_int_equal(f.c.rotary_dim, 224);
    assert_int_equal(f.c.value_dim, 64);
    assert_int_equal(f.c.act, PROA_ACT_GELU);
    assert_true(f.c.tied && f.c.step_min == 0.001);
    assert_int_equal(f.c.block_layers[4], 1);
    assert_int_equal(f.c.block_uses[4], 2);
    assert_int_equal(f.c.block_layers[2], 2);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "moe", "false");
    refused(room, PROA_UNSUPPORTED, "'layers_block_type' entry 4 is 'moe'");
    snprintf(room, sizeof room, text, "hybrid", "true");
    refused(room, PROA_UNSUPPORTED, "'use_long_context' true");
}

/* ibm-granite/granite-4.0-h-tiny names its layers as transformers 4 does, and has no rotary positions. */
static void granite_hybrid(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[2048];
    static const char *const text =
        "{\"architectures\":[\"GraniteMoeHybridForCausalLM\"],\"attention_multiplier\":0.0078125,"
        "\"embedding_multiplier\":12,\"hidden_act\":\"silu\",\"hidden_size\":1536,\"intermediate_size\":512,"
        "\"layer_types\":[\"mamba\",\"mamba\",\"%s\",\"mamba\"],\"logits_scaling\":6,\"mamba_chunk_size\":"
        "256,"
        "\"mamba_conv_bias\":true,\"mamba_d_conv\":4,\"mamba_d_head\":64,\"mamba_d_state\":128,"
        "\"mamba_expand\":2,\"mamba_n_groups\":%d,\"mamba_n_heads\":48,\"mamba_proj_bias\":false,"
        "\"max_position_embeddings\":131072,\"num_attention_heads\":12,\"num_experts_per_tok\":6,"
        "\"num_hidden_layers\":4,\"num_key_value_heads\":4,\"num_local_experts\":64,"
        "\"position_embedding_type\":\"nope\",\"residual_multiplier\":0.22,\"rope_theta\":10000,"
        "\"shared_intermediate_size\":1024,\"tie_word_embeddings\":true,\"vocab_size\":100352%s}";
    snprintf(room, sizeof room, text, "attention", 1, "");
    accepted(&f, room);
    assert_int_equal(f.c.rotary_dim, 0);
    assert_int_equal(f.c.router.chosen, 6);
    assert_true(proa_config_recurs(&f.c, 1) && !proa_config_recurs(&f.c, 2));
    assert_int_equal(proa_config_state(&f.c), 3 * (3 * (3072 + 256) + 48 * 128 * 64));
    assert_true(f.c.step_min == 0 && f.c.step_max > 1e38);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "attention", 1, ",\"time_step_limit\":[0.001,0.1]");
    accepted(&f, room);
    near(f.c.step_max, 0.1);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "attention", 5, "");
    refused(room, PROA_INVALID, "no multiple of 5 groups");
    snprintf(room, sizeof room, text, "sliding", 1, "");
    refused(room, PROA_UNSUPPORTED, "'layer_types' entry 2 is 'sliding'");
    snprintf(room, sizeof room, text, "attention", 1, ",\"attention_bias\":true");
    refused(room, PROA_UNSUPPORTED, "multiplied by 0.22");
}

/* LiquidAI/LFM2-1.2B lists the layers with attention, and its FFN has 8192 rows. */
static void lfm2(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[2048];
    static const char *const text =
        "{\"architectures\":[\"Lfm2ForCausalLM\"],\"block_auto_adjust_ff_dim\":true,\"block_dim\":2048,"
        "\"block_ff_dim\":12288,\"block_ffn_dim_multiplier\":1.0,\"block_multiple_of\":256,\"conv_L_cache\":"
        "3,"
        "\"conv_bias\":false,\"conv_dim\":2048,\"full_attn_idxs\":[2,5,8,10,12,%d],\"hidden_size\":2048,"
        "\"intermediate_size\":12288,\"max_position_embeddings\":128000,\"model_type\":\"lfm2\",\"norm_eps\":"
        "1e-05,"
        "\"num_attention_heads\":32,\"num_hidden_layers\":16,\"num_key_value_heads\":8,\"rope_theta\":"
        "1000000.0,"
        "\"tie_embedding\":true,\"vocab_size\":65536}";
    snprintf(room, sizeof room, text, 14);
    accepted(&f, room);
    assert_true(f.c.tied);
    assert_int_equal(f.c.ffn, 8192);
    assert_int_equal(proa_config_attending(&f.c, 0, 16), 6);
    assert_int_equal(proa_config_recurring(&f.c, 0, 3), 2);
    assert_int_equal(proa_config_state(&f.c), 10 * 2 * 2048);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, 16);
    refused(room, PROA_INVALID, "'full_attn_idxs' names layer 16 of 16");
}

/* tiiuae/Falcon-H1-0.5B-Instruct: attention and a state in all layers, and factors that do not go into the scale of
 * scores are those of products. */
static void falcon_h1(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[2048];
    static const char *const text =
        "{\"architectures\":[\"FalconH1ForCausalLM\"],\"attention_bias\":%s,\"attention_in_multiplier\":1.0,"
        "\"attention_out_multiplier\":0.9375,\"embedding_multiplier\":5.656854249492381,\"head_dim\":64,"
        "\"hidden_act\":\"silu\",\"hidden_size\":1024,\"intermediate_size\":2048,\"key_multiplier\":0.390625,"
        "\"lm_head_multiplier\":0.0390625,\"mamba_conv_bias\":true,\"mamba_d_conv\":4,\"mamba_d_head\":64,"
        "\"mamba_d_ssm\":%d,\"mamba_d_state\":128,\"mamba_n_groups\":1,\"mamba_n_heads\":24,"
        "\"mamba_norm_before_gate\":false,\"mamba_proj_bias\":false,\"mamba_rms_norm\":false,\"mlp_bias\":"
        "false,"
        "\"max_position_embeddings\":16384,\"mlp_multipliers\":[0.8838834764831844,0.5859375],"
        "\"model_type\":\"falcon_h1\",\"num_attention_heads\":8,\"num_hidden_layers\":36,\"num_key_value_"
        "heads\":2,"
        "\"projectors_bias\":false,\"rms_norm_eps\":1e-05,\"rope_theta\":100000000000.0,\"ssm_in_"
        "multiplier\":1.25,"
        "\"ssm_multipliers\":[0.3535533905932738,0.25,0.3535533905932738,0.5,0.3535533905932738],"
        "\"ssm_out_multiplier\":0.23570226039551587,\"tie_word_embeddings\":false,\"vocab_size\":32784}";
    snprintf(room, sizeof room, text, "false", 1536);
    accepted(&f, room);
    assert_int_equal(proa_config_attending(&f.c, 0, 36), 36);
    assert_int_equal(proa_config_state(&f.c), 36 * (3 * (1536 + 256) + 24 * 128 * 64));
    near(f.c.attention_scale, 0.390625 / 8);
    near(f.c.factors.parts[0], 0.25);
    near(f.c.factors.parts[4], 0.3535533905932738);
    near(f.c.factors.ffn_out * f.c.factors.ffn_up, 0.5859375);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "false", 1530);
    refused(room, PROA_INVALID, "'mamba_d_ssm' is 1530, no multiple of 24 heads");
    snprintf(room, sizeof room, text, "true", 1536);
    refused(room, PROA_UNSUPPORTED, "biases with multipliers");
}

/* nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B: each layer is a mixer or a mixture, by the letters of a pattern. Nemotron-H-8B
 * names the size of its heads otherwise, and transformers 5 has a list and no number of layers. */
static void nemotron_h(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[2048];
    static const char *const nano = "\"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME\"";
    static const char *const dense = "\"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-\"";
    static const char *const text =
        "{\"architectures\":[\"NemotronHForCausalLM\"],\"attention_bias\":false,\"chunk_size\":128,"
        "\"conv_kernel\":4,\"expand\":2,\"hidden_size\":2688,\"%s\":%s,\"intermediate_size\":1856,"
        "\"layer_norm_epsilon\":1e-05,\"mamba_head_dim\":64,\"mamba_hidden_act\":\"silu\",\"mamba_num_"
        "heads\":64,"
        "\"mamba_proj_bias\":false,\"max_position_embeddings\":262144,\"mlp_bias\":false,\"mlp_hidden_act\":"
        "\"relu2\",\"model_type\":\"nemotron_h\",\"moe_intermediate_size\":1856,"
        "\"moe_shared_expert_intermediate_size\":3712,\"n_group\":1,\"n_groups\":8,\"n_routed_experts\":128,"
        "\"n_shared_experts\":1,\"norm_eps\":1e-05,\"norm_topk_prob\":true,\"num_attention_heads\":32,"
        "\"num_experts_per_tok\":6,\"num_key_value_heads\":2,\"rope_theta\":10000,\"routed_scaling_factor\":"
        "2.5,\"sliding_window\":null,\"ssm_state_size\":128,\"tie_word_embeddings\":false,\"time_step_"
        "limit\":"
        "[0.0,Infinity],\"time_step_min\":0.001,\"topk_group\":1,\"use_bias\":false,\"use_conv_bias\":true,"
        "\"vocab_size\":131072%s}";
    snprintf(room, sizeof room, text, "hybrid_override_pattern", nano,
             ",\"head_dim\":128,\"num_hidden_layers\":52");
    accepted(&f, room);
    assert_int_equal(proa_config_attending(&f.c, 0, 52), 6);
    assert_int_equal(proa_config_recurring(&f.c, 0, 52), 23);
    assert_true(proa_config_recurs(&f.c, 0) && !proa_config_has_ffn(&f.c, 0) && !proa_config_attends(&f.c, 0));
    assert_true(proa_config_has_experts(&f.c, 1) && !proa_config_has_dense(&f.c, 1) &&
                !proa_config_recurs(&f.c, 1));
    assert_true(proa_config_attends(&f.c, 5) && !proa_config_has_ffn(&f.c, 5));
    assert_false(proa_config_has_dense(&f.c, -1));
    assert_int_equal(f.c.router.chosen, 6);
    assert_int_equal(f.c.router.groups, 0);
    near((double)f.c.router.scale, 2.5);
    assert_int_equal(f.c.shared_ffn, 3712);
    assert_int_equal(f.c.head_dim, 128);
    assert_true(f.c.rotary_dim == 0 && !f.c.gated && f.c.act == PROA_ACT_RELU2);
    assert_true(f.c.step_min == 0 && f.c.step_max > 1e38);
    assert_int_equal(proa_config_state(&f.c), 23 * (3 * (4096 + 2048) + 64 * 128 * 64));
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "hybrid_override_pattern", dense, ",\"attention_head_dim\":64");
    accepted(&f, room);
    assert_int_equal(f.c.layers, 52);
    assert_int_equal(f.c.head_dim, 64);
    assert_true(f.c.experts == 0 && f.c.shared_ffn == 0 && proa_config_has_dense(&f.c, 1));
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "layers_block_type", "[\"mamba\",\"moe\",\"full_attention\",\"mlp\"]",
             ",\"num_key_value_heads\":8,\"moe_latent_size\":null");
    accepted(&f, room);
    assert_int_equal(f.c.layers, 4);
    assert_true(proa_config_recurs(&f.c, 0) && proa_config_has_experts(&f.c, 1) && proa_config_attends(&f.c, 2));
    assert_true(proa_config_has_dense(&f.c, 3) && !proa_config_has_experts(&f.c, 3));
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "hybrid_override_pattern", "\"M-O\"", "");
    refused(room, PROA_UNSUPPORTED, "'hybrid_override_pattern' entry 2");
    snprintf(room, sizeof room, text, "hybrid_override_pattern", "\"M-*\"", ",\"num_hidden_layers\":4");
    refused(room, PROA_INVALID, "has 3 entries for 4 layers");
    snprintf(room, sizeof room, text, "nothing", "\"\"", "");
    refused(room, PROA_INVALID, "'hybrid_override_pattern' has 0 entries");
    snprintf(room, sizeof room, text, "hybrid_override_pattern", "\"ME\"", ",\"moe_latent_size\":1024");
    accepted(&f, room); /* Nemotron 3 Super */
    assert_int_equal(proa_dim_size(&f.c, PROA_DIM_EXPERT_WIDTH), 1024);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, "hybrid_override_pattern", "\"M\"", ",\"mamba_hidden_act\":\"relu\"");
    refused(room, PROA_UNSUPPORTED, "'mamba_hidden_act' 'relu'");
}

/* mistralai/Mamba-Codestral-7B-v0.1 has neither attention nor FFN, and no length. */
static void mamba2(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[2048];
    static const char *const text =
        "{%s\"bos_token_id\":0,\"chunk_size\":256,\"conv_kernel\":4,\"eos_token_id\":0,\"expand\":%d,\"head_"
        "dim\":64,"
        "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":8192,\"layer_norm_epsilon\":1e-"
        "05,"
        "\"model_type\":\"mamba2\",\"n_groups\":8,\"norm_before_gate\":true,\"num_heads\":128,"
        "\"num_hidden_layers\":64,\"pad_token_id\":0,\"rms_norm\":true,\"state_size\":128,"
        "\"tie_word_embeddings\":false,\"time_step_limit\":[0.0,Infinity],\"time_step_rank\":256,"
        "\"use_bias\":false,\"use_conv_bias\":true,\"vocab_size\":32768}";
    for (int named = 0; named < 2; named++) {
        snprintf(room, sizeof room, text, named ? "\"architectures\":[\"Mamba2ForCausalLM\"]," : "", 2);
        accepted(&f, room);
        assert_int_equal(proa_config_attending(&f.c, 0, 64), 0);
        assert_int_equal(proa_config_recurring(&f.c, 0, 64), 64);
        assert_true(!proa_config_has_ffn(&f.c, -1) && !proa_config_has_dense(&f.c, -1));
        assert_true(f.c.heads == 0 && f.c.head_dim == 0 && f.c.ffn == 0);
        assert_int_equal(f.c.context, 1 << 20);
        assert_true(f.c.gate_first);
        assert_int_equal(proa_config_layer_state(&f.c), 3 * (8192 + 2048) + 128 * 128 * 64);
        proa_arena_release(&f.arena);
    }
    snprintf(room, sizeof room, text, "", 3);
    refused(room, PROA_INVALID, "'expand' 3 of hidden size 4096");
}

/* state-spaces/mamba-2.8b-hf and tiiuae/falcon-mamba-7b, whose expand would give another size. */
static void mamba(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(
        &f, "{\"architectures\":[\"MambaForCausalLM\"],\"bos_token_id\":0,\"conv_kernel\":4,\"d_inner\":5120,"
            "\"eos_token_id\":0,\"expand\":2,\"fused_add_norm\":true,\"hidden_act\":\"silu\","
            "\"hidden_size\":2560,\"intermediate_size\":5120,\"layer_norm_epsilon\":1e-05,"
            "\"model_type\":\"mamba\",\"num_hidden_layers\":64,\"pad_token_id\":0,\"rms_norm\":true,"
            "\"ssm_cfg\":{},\"state_size\":16,\"time_step_rank\":160,\"use_bias\":false,"
            "\"use_conv_bias\":true,\"vocab_size\":50280}");
    assert_true(f.c.tied && f.c.value_heads == 80 && f.c.value_dim == 64 && f.c.step_rank == 160);
    assert_int_equal(proa_config_layer_state(&f.c), 3 * 5120 + 5120 * 16);
    assert_int_equal(proa_dim_size(&f.c, PROA_DIM_PARAMS), 160 + 2 * 16);
    proa_arena_release(&f.arena);
    accepted(&f, "{\"architectures\":[\"FalconMambaForCausalLM\"],\"bos_token_id\":0,\"conv_kernel\":4,"
                 "\"eos_token_id\":11,\"expand\":16,\"hidden_act\":\"silu\",\"hidden_size\":4096,"
                 "\"intermediate_size\":8192,\"layer_norm_epsilon\":1e-05,\"mixer_rms_eps\":1e-06,"
                 "\"model_type\":\"falcon_mamba\",\"num_hidden_layers\":64,\"state_size\":16,"
                 "\"tie_word_embeddings\":false,\"time_step_rank\":\"auto\",\"vocab_size\":65024}");
    assert_true(!f.c.tied && f.c.value_heads == 128 && f.c.step_rank == 256 && f.c.params_eps == 1e-6);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"MambaForCausalLM\"],\"hidden_act\":\"gelu\",\"hidden_size\":64,"
            "\"num_hidden_layers\":2,\"vocab_size\":100}",
            PROA_UNSUPPORTED, "'hidden_act' 'gelu'");
}

/* ai21labs/Jamba-v0.1: a layer in eight attends, one in two is a mixture. */
static void jamba(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    char room[2048];
    static const char *const text =
        "{\"architectures\":[\"JambaForCausalLM\"],\"attn_layer_offset\":%d,\"attn_layer_period\":8,"
        "\"bos_token_id\":1,\"eos_token_id\":2,\"expert_layer_offset\":1,\"expert_layer_period\":2,"
        "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":14336,\"mamba_conv_bias\":true,"
        "\"mamba_d_conv\":4,\"mamba_d_state\":16,\"mamba_dt_rank\":256,\"mamba_expand\":2,"
        "\"mamba_inner_layernorms\":true,\"mamba_proj_bias\":false,\"max_position_embeddings\":262144,"
        "\"model_type\":\"jamba\",\"n_ctx\":262144,\"num_attention_heads\":32,\"num_experts\":%d,"
        "\"num_experts_per_tok\":2,\"num_hidden_layers\":32,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-06,"
        "\"sliding_window\":null,\"tie_word_embeddings\":false,\"vocab_size\":65536}";
    snprintf(room, sizeof room, text, 4, 16);
    accepted(&f, room);
    assert_int_equal(proa_config_attending(&f.c, 0, 32), 4);
    assert_int_equal(proa_config_recurring(&f.c, 0, 32), 28);
    assert_true(proa_config_attends(&f.c, 4) && !proa_config_recurs(&f.c, 4) && proa_config_attends(&f.c, 28));
    assert_true(proa_config_has_experts(&f.c, 1) && proa_config_has_dense(&f.c, 0));
    assert_true(f.c.rotary_dim == 0 && !f.c.router.renormalise && f.c.router.chosen == 2);
    assert_true(f.c.ffn == 14336 && f.c.expert_ffn == 14336 && f.c.params_eps == 1e-6);
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, 4, 1);
    accepted(&f, room);
    assert_true(f.c.experts == 0 && proa_config_has_dense(&f.c, 1));
    proa_arena_release(&f.arena);
    snprintf(room, sizeof room, text, 8, 16);
    refused(room, PROA_INVALID, "'attn_layer_offset' is 8, must be less than 'attn_layer_period' 8");
}

/* Text models of multimodal checkpoints: Qwen2.5-VL's keys are not nested, Qwen3-VL says outside that the head is tied,
 * and Ministral 3 takes as many tokens as were trained without scaled queries. */
static void multimodal(void **state)
{
    PROA_UNUSED(state);
    fixture f;
#define SIZES                                                                                                \
    "\"hidden_size\":2048,\"intermediate_size\":6144,\"num_attention_heads\":16,\"num_hidden_layers\":2,"    \
    "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-06,\"vocab_size\":151936,"
    accepted(&f,
             "{\"architectures\":[\"Qwen2_5_VLForConditionalGeneration\"]," SIZES
             "\"max_position_embeddings\":128000,\"rope_scaling\":{\"mrope_section\":[16,24,24],"
             "\"type\":\"mrope\"},\"rope_theta\":1000000.0,\"sliding_window\":32768,"
             "\"tie_word_embeddings\":true,\"use_sliding_window\":false,\"vision_config\":{\"depth\":32}}");
    assert_true(f.c.tied);
    assert_false(f.c.window_used);
    near(f.c.rope.theta, 1e6);
    proa_arena_release(&f.arena);
    accepted(&f, "{\"architectures\":[\"Qwen3VLForConditionalGeneration\"],\"text_config\":{" SIZES
                 "\"head_dim\":128,\"max_position_embeddings\":262144,\"rope_scaling\":{"
                 "\"mrope_interleaved\":true,\"mrope_section\":[24,20,20],\"rope_type\":\"default\"},"
                 "\"rope_theta\":5000000},\"tie_word_embeddings\":true,\"vision_config\":{\"depth\":24}}");
    assert_true(f.c.tied);
    near(f.c.rope.theta, 5e6);
    proa_arena_release(&f.arena);
    accepted(&f,
             "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],\"text_config\":{" SIZES
             "\"head_dim\":128,\"max_position_embeddings\":262144,\"model_type\":\"ministral3\","
             "\"rope_parameters\":{\"beta_fast\":32.0,\"beta_slow\":1.0,\"factor\":16.0,"
             "\"llama_4_scaling_beta\":0.1,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
             "\"original_max_position_embeddings\":16384,\"rope_theta\":1000000.0,"
             "\"rope_type\":\"yarn\",\"type\":\"yarn\"}},\"vision_config\":{\"model_type\":\"pixtral\"}}");
    assert_int_equal(f.c.context, 262144);
    near(f.c.norm_eps, 1e-6);
    near((double)f.c.query_scale.beta, (double)0.1f);
    assert_int_equal(f.c.query_scale.length, 16384);
    assert_int_equal(f.c.query_scale.offset, 0);
    assert_false(f.c.tied);
    proa_arena_release(&f.arena);
    accepted(&f, "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],\"text_config\":{" SIZES
                 "\"tie_word_embeddings\":false},\"tie_word_embeddings\":true}");
    assert_true(f.c.tied);
    proa_arena_release(&f.arena);
}

/* meta-llama/Llama-3.2-11B-Vision, whose layers 3, 8, ... attend to an image. */
static void mllama(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(
        &f, "{\"architectures\":[\"MllamaForConditionalGeneration\"],\"image_token_index\":128256,"
            "\"text_config\":{\"hidden_size\":4096,\"intermediate_size\":14336,\"num_attention_heads\":32,"
            "\"num_hidden_layers\":40,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,"
            "\"rope_scaling\":{\"factor\":8.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
            "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},\"rope_theta\":500000.0,"
            "\"tie_word_embeddings\":false,\"vocab_size\":128256},\"vision_config\":{\"hidden_size\":1280}}");
    assert_true(proa_config_is_empty(&f.c, 3) && proa_config_is_empty(&f.c, 38));
    assert_false(proa_config_is_empty(&f.c, 4));
    assert_int_equal(proa_config_attending(&f.c, 0, 40), 32);
    assert_int_equal(proa_dim_size(&f.c, PROA_DIM_TOKENS), 128264);
    assert_int_equal(f.c.context, 131072);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"MllamaForConditionalGeneration\"],\"text_config\":{" SIZES
            "\"cross_attention_layers\":[2]}}",
            PROA_INVALID, "layer 2 of 2");
}

#define LLAMA4_SIZES                                                                                         \
    "\"attention_chunk_size\":8192,\"floor_scale\":8192,\"attn_scale\":0.1,\"head_dim\":128,"                \
    "\"hidden_size\":5120,\"intermediate_size\":8192,\"intermediate_size_mlp\":16384,"                       \
    "\"num_attention_heads\":40,\"num_experts_per_tok\":1,\"num_hidden_layers\":48,"                         \
    "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_theta\":500000.0,\"vocab_size\":202048,"

/* meta-llama/Llama-4-Scout-17B-16E-Instruct and Llama-4-Maverick-17B-128E-Instruct; the first files have an empty list
 * of layers and a number in place of true. */
static void llama_4(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             "{\"architectures\":[\"Llama4ForConditionalGeneration\"],\"boi_token_index\":200080,"
             "\"text_config\":{" LLAMA4_SIZES
             "\"attn_temperature_tuning\":4,\"interleave_moe_layer_step\":1,\"no_rope_layers\":[],"
             "\"max_position_embeddings\":10485760,\"model_type\":\"llama4_text\",\"num_local_experts\":16,"
             "\"rope_scaling\":{\"factor\":8.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
             "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},\"use_qk_norm\":true},"
             "\"vision_config\":{\"hidden_size\":1408}}");
    assert_int_equal(f.c.context, 10485760);
    assert_true(f.c.qk_norm && f.c.window_chunked);
    for (int i = 0; i < 48; i++) {
        assert_int_equal(proa_config_window(&f.c, i), i % 4 == 3 ? 0 : 8192);
        assert_int_equal(proa_config_rotates(&f.c, i), i % 4 != 3);
        assert_int_equal(proa_config_lacks_rope(&f.c, i), i % 4 == 3);
        assert_true(proa_config_has_experts(&f.c, i));
    }
    near((double)f.c.query_scale.beta, (double)0.1f);
    assert_int_equal(f.c.query_scale.offset, 1);
    assert_int_equal(f.c.shared_ffn, 8192);
    proa_arena_release(&f.arena);
    accepted(&f,
             "{\"architectures\":[\"Llama4ForConditionalGeneration\"],\"text_config\":{" LLAMA4_SIZES
             "\"attn_temperature_tuning\":false,\"interleave_moe_layer_step\":2,\"num_local_experts\":128,"
             "\"max_position_embeddings\":1048576,\"rope_scaling\":null,\"use_qk_norm\":false}}");
    assert_false(f.c.qk_norm);
    assert_true(f.c.query_scale.beta == 0);
    assert_false(proa_config_has_experts(&f.c, 0));
    assert_true(proa_config_has_experts(&f.c, 1) && proa_config_has_dense(&f.c, PROA_SOME_LAYER));
    assert_int_equal(f.c.ffn, 16384);
    assert_int_equal(f.c.expert_ffn, 8192);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"Llama4ForCausalLM\"]," LLAMA4_SIZES "\"no_rope_layers\":[1,0]}",
            PROA_INVALID, "2 entries for 48 layers");
    refused("{\"architectures\":[\"Llama4ForCausalLM\"]," LLAMA4_SIZES "\"moe_layers\":[48]}", PROA_INVALID,
            "layer 48 of 48");
}

/* google/embeddinggemma-300m sees both sides, half of its window to each; and what embedders refuse. */
static void embedders(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{\"architectures\":[\"Gemma3TextModel\"],\"head_dim\":256,\"hidden_size\":768,"
                 "\"intermediate_size\":1152,\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
                 "\"max_position_embeddings\":2048,\"model_type\":\"gemma3_text\",\"num_attention_heads\":3,"
                 "\"num_hidden_layers\":2,\"num_key_value_heads\":1,\"query_pre_attn_scalar\":256,"
                 "\"sliding_window\":512,\"use_bidirectional_attention\":true,\"vocab_size\":262144}");
    assert_true(f.c.bidirectional);
    assert_int_equal(proa_config_window(&f.c, 0), 257);
    assert_int_equal(proa_config_window(&f.c, 1), 0);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"Qwen2Model\"],\"is_causal\":false," SIZES "\"hidden_act\":\"silu\"}",
            PROA_UNSUPPORTED, "'is_causal' false");
    refused("{\"architectures\":[\"AlbertModel\"],\"num_hidden_groups\":2," SIZES "\"embedding_size\":128}",
            PROA_UNSUPPORTED, "'num_hidden_groups' is 2");
    refused("{\"architectures\":[\"MPNetModel\"],\"relative_attention_num_buckets\":16," SIZES
            "\"max_position_embeddings\":514}",
            PROA_UNSUPPORTED, "'relative_attention_num_buckets' is 16");
}

/* Llama-4-Scout as updated in 2025: one number for both borders of its rotary scaling, so nothing is blended. */
static void llama_4_scout(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{\"architectures\":[\"Llama4ForConditionalGeneration\"],\"text_config\":{" LLAMA4_SIZES
                 "\"max_position_embeddings\":10485760,\"num_local_experts\":16,\"rope_scaling\":{"
                 "\"factor\":16.0,\"high_freq_factor\":1.0,\"low_freq_factor\":1.0,"
                 "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}}}");
    float freq[64];
    proa_rope_inv_freq(&f.c.rope, f.c.rotary_dim, false, freq);
    for (int i = 0; i < 64; i++) {
        double plain = pow(500000, -i / 64.0), scaled = 2 * M_PI / plain > 8192 ? plain / 16 : plain;
        if (!(fabs((double)freq[i] - scaled) <= 1e-6 * scaled))
            fail_msg("frequency %d is %g", i, (double)freq[i]);
    }
    proa_arena_release(&f.arena);
}

/* microsoft/Phi-3.5-MoE-instruct names its class otherwise than transformers. */
static void phi_moe(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{\"architectures\":[\"PhiMoEForCausalLM\"],\"attention_bias\":true,\"lm_head_bias\":true,"
                 "\"model_type\":\"phimoe\",\"num_experts_per_tok\":2,\"num_local_experts\":16," SIZES
                 "\"sliding_window\":null}");
    assert_string_equal(f.arch->name, "phimoe");
    proa_arena_release(&f.arena);
}

/* tiiuae/falcon-40b and falcon-7b of May 2023, whose type says which generation they are. */
static void refined_web(void **state)
{
    PROA_UNUSED(state);
    fixture f;
#define REFINED_WEB                                                                                          \
    "{\"alibi\":false,\"architectures\":[\"RWForCausalLM\"],\"bias\":false,\"n_layer\":2,"                   \
    "\"parallel_attn\":true,\"vocab_size\":65024,"
    accepted(&f, REFINED_WEB "\"hidden_size\":8192,\"model_type\":\"RefinedWeb\",\"n_head\":128,"
                             "\"n_head_kv\":8}");
    assert_int_equal(f.c.kv_heads, 8);
    assert_false(f.c.one_norm);
    proa_arena_release(&f.arena);
    accepted(&f, REFINED_WEB "\"hidden_size\":4544,\"model_type\":\"RefinedWebModel\",\"multi_query\":true,"
                             "\"n_head\":71}");
    assert_int_equal(f.c.kv_heads, 1);
    assert_true(f.c.one_norm);
    proa_arena_release(&f.arena);
}

/* Keys that are missing have the value of the class in transformers, which differs from class to class. */
static void defaults_of_classes(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *class, *more;
        double theta, eps;
    } rows[] = {
        {"MixtralForCausalLM", "\"num_local_experts\":4,", 1e6, 1e-6},
        {"PhimoeForCausalLM", "\"num_local_experts\":4,", 1e6, 1e-6},
        {"Qwen3VLForConditionalGeneration", "", 5e5, 1e-6},
        {"Qwen2VLForConditionalGeneration", "", 1e6, 1e-6},
        {"CohereForCausalLM", "", 5e5, 1e-5},
        {"Cohere2ForCausalLM", "", 1e4, 1e-5},
        {"Olmo3ForCausalLM", "", 5e5, 1e-6},
        {"Ernie4_5ForCausalLM", "\"rms_norm_eps\":null,", 5e5, 1e-5},
        {"InternLM3ForCausalLM", "\"rms_norm_eps\":null,", 1e4, 1e-5},
    };
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        fixture f;
        char text[1024];
        snprintf(text, sizeof text, "{\"architectures\":[\"%s\"]," SIZES "%s\"model_type\":\"\"}",
                 rows[i].class, rows[i].more);
        accepted(&f, text);
        near(f.c.rope.theta, rows[i].theta);
        near(f.c.norm_eps, rows[i].eps);
        proa_arena_release(&f.arena);
    }
    fixture f;
    accepted(&f, "{\"architectures\":[\"Ministral3ForCausalLM\"]," SIZES
                 "\"rms_norm_eps\":null,\"model_type\":\"ministral3\"}");
    near(f.c.norm_eps, 1e-5);
    proa_arena_release(&f.arena);
    accepted(&f, "{\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES "\"model_type\":\"qwen3\"}");
    assert_int_equal(f.c.head_dim, 128);
    proa_arena_release(&f.arena);
    accepted(&f, "{\"architectures\":[\"Qwen2MoeForCausalLM\"]," SIZES "\"moe_intermediate_size\":64,"
                 "\"num_experts\":8,\"shared_expert_intermediate_size\":64}");
    assert_int_equal(f.c.router.chosen, 4);
    proa_arena_release(&f.arena);
    accepted(&f, "{\"architectures\":[\"GptOssForCausalLM\"]," SIZES "\"num_local_experts\":8}");
    assert_int_equal(proa_config_window(&f.c, 0), 128);
    assert_int_equal(proa_config_window(&f.c, 1), 0);
    proa_arena_release(&f.arena);
    accepted(&f, "{\"architectures\":[\"UMT5EncoderModel\"],\"d_ff\":64,\"d_kv\":16,\"d_model\":64,"
                 "\"model_type\":\"umt5\",\"num_heads\":4,\"num_layers\":2,\"vocab_size\":200}");
    assert_true(f.c.gated);
    assert_int_equal(f.c.act, PROA_ACT_GELU_TANH);
    proa_arena_release(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phi_2),
        cmocka_unit_test(phi_3),
        cmocka_unit_test(gemma_2b),
        cmocka_unit_test(gemma_3),
        cmocka_unit_test(command_r),
        cmocka_unit_test(command_r7b),
        cmocka_unit_test(granite),
        cmocka_unit_test(qwen_1),
        cmocka_unit_test(mllama),
        cmocka_unit_test(minicpm),
        cmocka_unit_test(smollm_3),
        cmocka_unit_test(olmo_3),
        cmocka_unit_test(exaone_4),
        cmocka_unit_test(deepseek_coder),
        cmocka_unit_test(xlnet_head),
        cmocka_unit_test(nomic_embed),
        cmocka_unit_test(hunyuan_a13b),
        cmocka_unit_test(ernie_moe),
        cmocka_unit_test(qwen3_next),
        cmocka_unit_test(olmo_hybrid),
        cmocka_unit_test(minimax),
        cmocka_unit_test(zamba2),
        cmocka_unit_test(kimi_linear),
        cmocka_unit_test(granite_hybrid),
        cmocka_unit_test(nemotron_h),
        cmocka_unit_test(mamba2),
        cmocka_unit_test(mamba),
        cmocka_unit_test(jamba),
        cmocka_unit_test(lfm2),
        cmocka_unit_test(falcon_h1),
        cmocka_unit_test(multimodal),
        cmocka_unit_test(llama_4),
        cmocka_unit_test(embedders),
        cmocka_unit_test(phi_moe),
        cmocka_unit_test(refined_web),
        cmocka_unit_test(llama_4_scout),
        cmocka_unit_test(defaults_of_classes),
        cmocka_unit_test(gemma_4),
        cmocka_unit_test(gemma_3n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
