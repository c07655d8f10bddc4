/* SPDX-License-Identifier: Apache-2.0
 * test_class_rules.c - what the configuration classes of transformers make of keys that are missing, null or beside the
 * point: numbers of key-value heads, windows, activations, terms of attention. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config_fixture.h"
#include <math.h>

/* Sizes of a class, with 32 heads of 8 and 8 layers. */
#define SIZES                                                                                                \
    "\"hidden_size\":256,\"intermediate_size\":64,\"num_attention_heads\":32,\"num_hidden_layers\":8,"       \
    "\"vocab_size\":200"

static void near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-9 * fabs(want))) fail_msg("%.12g, expected %.12g", have, want);
}

/* Keys of the class, beside SIZES and others. */
static void read_class(fixture *f, const char *class, const char *more)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"architectures\":[\"%s\"],%s" SIZES "}", class, more);
    accepted(f, text);
}

static int64_t kv_heads_of(const char *class, const char *more)
{
    fixture f;
    read_class(&f, class, more);
    int64_t heads = f.c.kv_heads;
    proa_arena_release(&f.arena);
    return heads;
}

#define ROUTED "\"moe_intermediate_size\":64,\"n_routed_experts\":8,"

/* A missing key has the number of the class, null means one for each query head. */
static void kv_heads(void **state)
{
    PROA_UNUSED(state);
    static const char moe[] = "\"moe_intermediate_size\":64,\"num_experts\":16,"
                              "\"shared_expert_intermediate_size\":64,";
    static const struct {
        const char *class, *more;
        int64_t heads;
    } rows[] = {{"LlamaForCausalLM", "", 32},      {"MistralForCausalLM", "", 8},
                {"MistralModel", "", 8},           {"MixtralForCausalLM", "\"num_local_experts\":4,", 8},
                {"Qwen2ForCausalLM", "", 32},      {"Qwen2MoeForCausalLM", moe, 16},
                {"Qwen3MoeForCausalLM", moe, 4},   {"SmolLM3ForCausalLM", "", 4},
                {"SeedOssForCausalLM", "", 8},     {"Ernie4_5ForCausalLM", "", 2},
                {"GlmForCausalLM", "", 2},         {"Starcoder2ForCausalLM", "", 2},
                {"ExaoneForCausalLM", "", 8},      {"Qwen3NextForCausalLM", "", 2},
                {"Qwen3_5ForCausalLM", "", 4},     {"Qwen3_5MoeForCausalLM", moe, 2},
                {"Glm4MoeForCausalLM", ROUTED, 8}, {"SolarOpenForCausalLM", ROUTED, 8},
                {"SarvamMoEForCausalLM", "", 4},   {"HYV3ForCausalLM", moe, 8},
                {"MiniMaxM2ForCausalLM", "", 8},   {"GraniteSWAForCausalLM", "", 4},
                {"CwmForCausalLM", "", 8},         {"MellumForCausalLM", "", 4},
                {"AfmoeForCausalLM", "", 32}};
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        char null[256];
        snprintf(null, sizeof null, "\"num_key_value_heads\":null,%s", rows[i].more);
        assert_int_equal(kv_heads_of(rows[i].class, rows[i].more), rows[i].heads);
        assert_int_equal(kv_heads_of(rows[i].class, null), 32);
    }
}

/* The same of classes whose number is 32, in files with 64 heads. */
static void kv_heads_32(void **state)
{
    PROA_UNUSED(state);
    static const char *const rows[][2] = {
        {"Dots1ForCausalLM", ROUTED},
        {"Exaone4ForCausalLM", ""},
        {"ExaoneMoeForCausalLM", "\"moe_intermediate_size\":64,\"num_experts\":8,"}};
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        fixture f;
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"architectures\":[\"%s\"],%s\"hidden_size\":512,\"intermediate_size\":64,"
                 "\"num_attention_heads\":64,\"num_hidden_layers\":8,\"vocab_size\":200}",
                 rows[i][0], rows[i][1]);
        accepted(&f, text);
        assert_int_equal(f.c.kv_heads, 32);
        proa_arena_release(&f.arena);
    }
}

/* A class that two models have: model_type tells them apart. */
static void classes_by_type(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_class(&f, "Glm4MoeForCausalLM", "\"model_type\":\"sarvam_moe\"," ROUTED);
    assert_string_equal(f.arch->name, "sarvam_moe");
    assert_int_equal(f.c.rotary_dim, 64);
    proa_arena_release(&f.arena);
    read_class(&f, "Glm4MoeForCausalLM", "\"model_type\":\"glm4_moe\"," ROUTED);
    assert_string_equal(f.arch->name, "glm4_moe");
    assert_int_equal(f.c.rotary_dim, 4);
    proa_arena_release(&f.arena);
}

/* Keys of published mixtures: MiniMaxAI/MiniMax-M2, tencent/Hy3-preview, sarvamai/sarvam-30b. */
static void mixtures(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_class(&f, "MiniMaxM2ForCausalLM", "\"rotary_dim\":64,\"rope_theta\":5000000,");
    assert_int_equal(f.c.rotary_dim, 64);
    assert_int_equal(f.c.expert_ffn, 64);
    assert_int_equal(f.c.experts, 256);
    proa_arena_release(&f.arena);
    read_class(&f, "HYV3ForCausalLM", "\"moe_intermediate_size\":32,\"num_experts\":8,\"n_group\":4,");
    near(f.c.router.scale, (float)2.826);
    assert_false(proa_config_has_experts(&f.c, 0));
    assert_true(proa_config_has_experts(&f.c, 1));
    assert_int_equal(f.c.router.groups, 0);
    proa_arena_release(&f.arena);
    read_class(&f, "SarvamMoEForCausalLM", "\"num_experts\":64,\"num_shared_experts\":2,\"use_qkv_bias\":true,");
    assert_int_equal(f.c.experts, 64);
    assert_int_equal(f.c.shared_ffn, 2048);
    assert_true(f.c.attention_bias && f.c.qk_norm);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"HYV3ForCausalLM\"],\"moe_intermediate_size\":32,\"num_experts\":8,"
            "\"mlp_bias\":true," SIZES "}",
            PROA_UNSUPPORTED, "'mlp_bias'");
    refused("{\"architectures\":[\"HYV3ForCausalLM\"],\"moe_intermediate_size\":32,\"num_experts\":8,"
            "\"mlp_layer_types\":[\"sparse\"]," SIZES "}",
            PROA_INVALID, "'mlp_layer_types' has 1 entries for 8 layers");
}

/* Rotary bases by layer; layers that do not rotate. */
static void layer_bases(void **state)
{
    PROA_UNUSED(state);
#define SWA(more) "{\"architectures\":[\"GraniteSWAForCausalLM\"]," more SIZES "}"
    fixture f;
    read_class(&f, "GraniteSWAForCausalLM", "\"layer_rope_theta\":[0,500,500,500,0,500,500,500],");
    near(f.c.rope.theta, 500);
    near(f.c.local_rope.theta, 0);
    assert_false(proa_config_rotates(&f.c, 4));
    assert_true(proa_config_rotates(&f.c, 5));
    proa_arena_release(&f.arena);
    read_class(&f, "GraniteSWAForCausalLM", "\"layer_rope_theta\":[0,0,0,0,0,0,0,0],");
    assert_int_equal(f.c.rotary_dim, 0);
    proa_arena_release(&f.arena);
    refused(SWA("\"layer_rope_theta\":[0,500,400,500,0,500,500,500],"), PROA_UNSUPPORTED, "has 500 and 400");
    refused(SWA("\"layer_rope_theta\":[0,500,-1,500,0,500,500,500],"), PROA_INVALID, "entry 2 is -1");
    refused(SWA("\"layer_rope_theta\":[0],"), PROA_INVALID, "'layer_rope_theta' has 1 entries");
    refused(SWA("\"attention_bias\":true,\"residual_multiplier\":0.5,"), PROA_UNSUPPORTED, "biases");
    refused("{\"architectures\":[\"HyperCLOVAXForCausalLM\"],\"residual_multiplier\":0.5," SIZES "}",
            PROA_UNSUPPORTED, "'residual_multiplier' 0.5 with 'use_post_norm'");
    read_class(&f, "Cohere2MoeForCausalLM", "\"first_k_dense_replace\":2,\"rms_norm_eps\":1e-6,");
    assert_string_equal(f.arch->name, "cohere2_moe_rms");
    assert_true(proa_config_rotates(&f.c, 0)); /* dense, without a window */
    assert_false(proa_config_rotates(&f.c, 5));
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"AfmoeForCausalLM\"],\"sliding_window\":null," SIZES "}", PROA_UNSUPPORTED,
            "'sliding_window'");
}

/* Positions and caps that a missing key has, or null. */
static void class_defaults(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_class(&f, "CwmForCausalLM", "\"attention_bias\":true,");
    assert_int_equal(f.c.rope.kind, PROA_ROPE_LLAMA3);
    near(f.c.rope.factor, 16);
    assert_false(f.c.attention_bias);
    proa_arena_release(&f.arena);
    read_class(&f, "MellumForCausalLM", "");
    near(f.c.rope.theta, 5e5);
    near(f.c.local_rope.theta, 1e4);
    assert_true(proa_config_has_experts(&f.c, 0));
    proa_arena_release(&f.arena);
    read_class(&f, "HeliumForCausalLM", "\"num_key_value_heads\":32,");
    near(f.c.rope.theta, 1e5);
    assert_int_equal(f.c.head_dim, 128);
    proa_arena_release(&f.arena);
    read_class(&f, "NanoChatForCausalLM", "");
    near(f.c.logit_cap, 15);
    proa_arena_release(&f.arena);
    read_class(&f, "NanoChatForCausalLM", "\"final_logit_softcapping\":null,");
    near(f.c.logit_cap, 0);
    proa_arena_release(&f.arena);
    read_class(&f, "ApertusForCausalLM", "");
    assert_int_equal(f.c.rope.kind, PROA_ROPE_LLAMA3);
    near(f.c.rope.theta, 12e6);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"ApertusForCausalLM\"],\"hidden_act\":\"silu\"," SIZES "}",
            PROA_UNSUPPORTED, "'hidden_act' is 'silu'");
    read_class(&f, "Jais2ForCausalLM", "");
    assert_true(f.c.attention_bias && f.c.mlp_bias);
    proa_arena_release(&f.arena);
}

#define FOUR_KEYS    "\"num_key_value_heads\":4,"
#define BITNET(more) "\"quantization_config\":{\"quant_method\":\"bitnet\"" more "},"

/* BitNet's class without its quantisation, microsoft/bitnet-b1.58-2B-4T-bf16's and what is not known. */
static void bitnet_rules(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_class(&f, "BitNetForCausalLM", FOUR_KEYS);
    near(f.c.rope.theta, 500000);
    assert_int_equal(f.c.act, PROA_ACT_RELU2);
    assert_int_equal(f.c.input_bits, 0);
    proa_arena_release(&f.arena);
    read_class(&f, "LlamaForCausalLM", BITNET(""));
    assert_true(f.c.input_bits == 8 && !f.c.ternary_masters);
    proa_arena_release(&f.arena);
    read_class(&f, "BitNetForCausalLM",
               BITNET(",\"linear_class\":\"autobitlinear\",\"quantization_mode\":\"online\"") FOUR_KEYS);
    assert_true(f.c.input_bits == 8 && f.c.ternary_masters);
    proa_arena_release(&f.arena);
    static const struct {
        const char *class, *quant, *error;
    } wrong[] = {
        {"BitNetForCausalLM", BITNET(",\"linear_class\":\"other\""), "'linear_class' is 'other'"},
        {"BitNetForCausalLM", BITNET(",\"quantization_mode\":\"late\""), "'quantization_mode' is 'late'"},
        {"BitNetForCausalLM", BITNET(",\"use_rms_norm\":true"), "'use_rms_norm' true"},
        {"BitNetForCausalLM", BITNET(",\"modules_to_not_convert\":[]"), "has no 'lm_head'"},
        {"BitNetForCausalLM", BITNET(",\"modules_to_not_convert\":[\"lm_head\",\"o_proj\"]"), "has 'o_proj'"},
        {"GPT2LMHeadModel", BITNET("") "\"n_embd\":64,\"n_layer\":2,\"n_head\":4,",
         "not supported of the architecture gpt2"},
    };
    for (size_t i = 0; i < PROA_COUNT(wrong); i++) {
        char text[1024];
        snprintf(text, sizeof text, "{\"architectures\":[\"%s\"],%s" FOUR_KEYS SIZES "}", wrong[i].class,
                 wrong[i].quant);
        refused(text, PROA_UNSUPPORTED, wrong[i].error);
    }
}

/* Latent attention: sarvamai/sarvam-105b, Mistral Small 4, openbmb/MiniCPM3-4B. */
static void latent_classes(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_class(&f, "SarvamMLAForCausalLM",
               "\"num_experts\":16,\"num_shared_experts\":2,\"head_dim\":576,\"rope_scaling\":{\"type\":"
               "\"deepseek_yarn\","
               "\"factor\":40,\"original_max_position_embeddings\":4096,\"mscale\":1,\"mscale_all_dim\":1},");
    assert_int_equal(f.c.experts, 16);
    assert_int_equal(f.c.shared_ffn, 4096);
    assert_int_equal(f.c.rope.kind, PROA_ROPE_YARN);
    assert_int_equal(f.c.head_dim, 576);
    near(f.c.router.scale, 2.5);
    proa_arena_release(&f.arena);
    read_class(&f, "DeepseekV3ForCausalLM", "\"model_type\":\"sarvam_mla\",");
    assert_string_equal(f.arch->name, "sarvam_mla");
    proa_arena_release(&f.arena);
    read_class(&f, "Mistral4ForCausalLM", "\"kv_lora_rank\":32,\"q_lora_rank\":null,");
    assert_int_equal(f.c.q_lora, 0);
    assert_int_equal(f.c.experts, 128);
    assert_int_equal(f.c.query_scale.length, 8192);
    near(f.c.rope.factor, 128);
    proa_arena_release(&f.arena);
    read_class(&f, "MiniCPM3ForCausalLM", "\"scale_depth\":null,\"dim_model_base\":null,");
    near(f.c.embed_scale, 12);
    near(f.c.residual_scale, 1);
    near(f.c.logit_scale, 1);
    assert_int_equal(f.c.v_dim, 8);
    assert_true(f.c.tied && !f.c.rope_pairs);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"MiniCPM3ForCausalLM\"],\"attention_bias\":true," SIZES "}",
            PROA_UNSUPPORTED, "biases");
}

/* picks: for each layer, 'F' if it has an indexer. */
static void check_picking(const char *more, const char *picks)
{
    fixture f;
    read_class(&f, "GlmMoeDsaForCausalLM", more);
    for (int i = 0; i < 8; i++)
        if (proa_config_picks(&f.c, i) != (picks[i] == 'F')) fail_msg("%s: layer %d", more, i);
    proa_arena_release(&f.arena);
}

/* What the classes of DeepSeek V3, V3.2 and GLM-5 have where a file lacks it, and the layers of the last that share. */
static void sparse_classes(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_class(&f, "DeepseekV3ForCausalLM", "\"model_type\":\"deepseek_v3\",");
    assert_int_equal(f.c.router.groups, 8);
    assert_int_equal(f.c.router.chosen_groups, 4);
    assert_int_equal(f.c.shared_ffn, 2048);
    assert_int_equal(f.c.q_lora, 1536);
    assert_false(proa_config_has_experts(&f.c, 2));
    assert_true(proa_config_has_experts(&f.c, 3));
    near(f.c.router.scale, 2.5);
    proa_arena_release(&f.arena);
    read_class(&f, "DeepseekV32ForCausalLM", "\"index_topk\":100,");
    assert_int_equal(f.c.index_topk, 100);
    assert_int_equal(f.c.index_heads, 64);
    assert_int_equal(f.c.index_dim, 128);
    assert_true(f.c.rope_pairs && !f.c.index_pairs);
    proa_arena_release(&f.arena);
    check_picking("", "FFFFFFFF");
    check_picking("\"index_topk_freq\":3,\"index_skip_topk_offset\":2,", "FFSSFSSF");
    check_picking("\"index_topk_pattern\":\"FSSFSSFS\",", "FSSFSSFS");
    refused("{\"architectures\":[\"GlmMoeDsaForCausalLM\"],\"index_topk_pattern\":\"SFFFFFFF\"," SIZES "}",
            PROA_INVALID, "the first layer has no indexer");
    refused("{\"architectures\":[\"GlmMoeDsaForCausalLM\"],\"index_topk_pattern\":\"FXFFFFFF\"," SIZES "}",
            PROA_UNSUPPORTED, "the indexer of layer 1 is 'X'");
    refused("{\"architectures\":[\"DeepseekV32ForCausalLM\"],\"q_lora_rank\":null," SIZES "}", PROA_INVALID,
            "'q_lora_rank'");
    refused("{\"architectures\":[\"DeepseekV32ForCausalLM\"],\"index_head_dim\":32," SIZES "}", PROA_INVALID,
            "'index_head_dim' is 32");
}

/* databricks/dbrx-instruct, in small, and abeja/gpt-neox-japanese-2.7b. */
static void nested_keys(void **state)
{
    PROA_UNUSED(state);
#define DBRX(experts)                                                                                        \
    "{\"architectures\":[\"DbrxForCausalLM\"],\"vocab_size\":200,\"d_model\":64,\"n_heads\":8,\"n_layers\":" \
    "2,"                                                                                                     \
    "\"attn_config\":{\"clip_qkv\":8,\"kv_n_heads\":2,\"rope_theta\":500000},\"ffn_config\":{" experts       \
    "\"ffn_hidden_size\":48,\"moe_num_experts\":16,\"moe_top_k\":4}}"
    fixture f;
    accepted(&f, DBRX(""));
    near(f.c.rope.theta, 5e5);
    near(f.c.qkv_clip, 8);
    assert_int_equal(f.c.kv_heads, 2);
    assert_int_equal(f.c.experts, 16);
    assert_int_equal(f.c.router.chosen, 4);
    assert_true(f.c.router.renormalise);
    proa_arena_release(&f.arena);
    accepted(&f, DBRX("\"moe_normalize_expert_weights\":null,"));
    assert_false(f.c.router.renormalise);
    proa_arena_release(&f.arena);
    refused(DBRX("\"moe_normalize_expert_weights\":2,"), PROA_UNSUPPORTED, "'moe_normalize_expert_weights' is 2");
    read_class(&f, "GPTNeoXJapaneseForCausalLM", "\"rotary_pct\":0.5,");
    assert_int_equal(f.c.ffn, 1024);
    assert_int_equal(f.c.rotary_dim, 4);
    assert_true(f.c.tied);
    proa_arena_release(&f.arena);
}

/* windows: for each layer, 'w' if it has a window of 5. */
static void check_windows(const char *class, const char *more, const char *windows)
{
    fixture f;
    read_class(&f, class, more);
    for (int i = 0; i < 8; i++)
        if (proa_config_window(&f.c, i) != (windows[i] == 'w' ? 5 : 0))
            fail_msg("%s: layer %d has a window of %d", class, i, (int)proa_config_window(&f.c, i));
    proa_arena_release(&f.arena);
}

static void windows(void **state)
{
    PROA_UNUSED(state);
#define TYPES                                                                                                \
    "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\","       \
    "\"full_attention\",\"full_attention\",\"full_attention\",\"sliding_attention\"],"
#define USED "\"use_sliding_window\":true,\"sliding_window\":5,"
#define MOE  "\"moe_intermediate_size\":64,\"num_experts\":8,\"shared_expert_intermediate_size\":64,"
    static const struct {
        const char *class, *more, *windows;
    } rows[] = {
        /* AutoModel reads a Mistral with layer_types as a Ministral; others do not look at them */
        {"MistralForCausalLM", "\"sliding_window\":5,", "wwwwwwww"},
        {"MistralForCausalLM", "\"sliding_window\":5," TYPES, ".w.....w"},
        {"MistralForCausalLM", "\"sliding_window\":5,\"max_window_layers\":4,", "wwwwwwww"},
        {"MistralForCausalLM", "\"sliding_window\":null,", "........"},
        {"Starcoder2ForCausalLM", "\"sliding_window\":5," TYPES, "wwwwwwww"},
        {"Starcoder2ForCausalLM", "", "........"},
        {"MixtralForCausalLM", "\"num_local_experts\":4,\"sliding_window\":5," TYPES, "wwwwwwww"},
        {"Phi3ForCausalLM", "\"sliding_window\":5," TYPES, "wwwwwwww"},
        {"Qwen2ForCausalLM", USED "\"max_window_layers\":3,", "...wwwww"},
        {"Qwen2ForCausalLM", USED TYPES, ".w.....w"},
        {"Qwen2ForCausalLM", "\"sliding_window\":5," TYPES, "........"},
        {"Qwen2MoeForCausalLM", MOE USED "\"max_window_layers\":5,", "w.w.w..."},
        {"Qwen2MoeForCausalLM", MOE USED TYPES, ".w.....w"},
        {"Qwen3MoeForCausalLM", MOE USED "\"max_window_layers\":5,", "wwwwwwww"},
        {"GraniteSWAForCausalLM", "\"sliding_window\":5,", ".www.www"},
        {"CwmForCausalLM", "\"sliding_window\":5,", ".www.www"},
        {"MellumForCausalLM", "\"sliding_window\":5,", "........"},
        {"MellumForCausalLM", "\"sliding_window\":5," TYPES, ".w.....w"},
        {"GraniteMoeSWAForCausalLM", "\"sliding_window\":5," TYPES, ".w.....w"},
        {"AfmoeForCausalLM", "\"sliding_window\":5,\"global_attn_every_n_layers\":3,", "ww.ww.ww"},
        {"Cohere2MoeForCausalLM", "\"sliding_window\":5,", "www.www."},
        {"Cohere2MoeForCausalLM", "\"sliding_window\":5,\"first_k_dense_replace\":3,", "...www.w"},
        {"SmolLM3ForCausalLM", USED, "...w...w"},
        {"SmolLM3ForCausalLM", USED TYPES, ".w.....w"},
        {"SmolLM3ForCausalLM", "\"sliding_window\":5,", "........"},
    };
    for (size_t i = 0; i < PROA_COUNT(rows); i++) check_windows(rows[i].class, rows[i].more, rows[i].windows);
    fixture f;
    read_class(&f, "MistralForCausalLM", "");
    assert_int_equal(proa_config_window(&f.c, 7), 4096);
    proa_arena_release(&f.arena);
}

/* Gemma 1 reads hidden_act, in which "gelu" means the tanh form; Gemma 2 and 3 read hidden_activation. Gemma 3 has a
 * key of Gemma 2 that its attention does not look at. */
static void gemma(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *class, *more;
        proa_act act;
    } rows[] = {
        {"GemmaForCausalLM", "", PROA_ACT_GELU_TANH},
        {"GemmaForCausalLM", "\"hidden_act\":\"gelu\",", PROA_ACT_GELU_TANH},
        {"GemmaForCausalLM", "\"hidden_act\":\"silu\",", PROA_ACT_SILU},
        {"GemmaForCausalLM", "\"hidden_activation\":\"silu\",", PROA_ACT_GELU_TANH},
        {"GemmaModel", "\"hidden_act\":\"silu\",", PROA_ACT_SILU},
        {"Gemma2ForCausalLM", "\"hidden_act\":\"silu\",\"hidden_activation\":\"gelu\",", PROA_ACT_GELU},
    };
    fixture f;
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        read_class(&f, rows[i].class, rows[i].more);
        if (f.c.act != rows[i].act) fail_msg("%s with %s: %d", rows[i].class, rows[i].more, (int)f.c.act);
        proa_arena_release(&f.arena);
    }
    read_class(&f, "Gemma3ForCausalLM", "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,");
    assert_true(f.c.attention_cap == 0);
    near(f.c.logit_cap, 30);
    proa_arena_release(&f.arena);
    read_class(&f, "Gemma2ForCausalLM", "\"attn_logit_softcapping\":20.0,");
    near(f.c.attention_cap, 20);
    proa_arena_release(&f.arena);
}

/* stanford-crfm's GPT-2 divides the scores of a layer by its number, too; others may not divide them at all. */
static void gpt_2(void **state)
{
    PROA_UNUSED(state);
#define GPT                                                                                                  \
    "{\"architectures\":[\"GPT2LMHeadModel\"],\"n_embd\":64,\"n_head\":4,\"n_layer\":3,\"vocab_size\":200,"
    fixture f;
    accepted(&f, GPT "\"scale_attn_by_inverse_layer_idx\":true,\"reorder_and_upcast_attn\":true}");
    near(proa_config_attention_scale(&f.c, 0), 0.25);
    near(proa_config_attention_scale(&f.c, 2), 0.25 / 3);
    proa_arena_release(&f.arena);
    accepted(&f, GPT "\"scale_attn_weights\":false}");
    near(proa_config_attention_scale(&f.c, 2), 1);
    proa_arena_release(&f.arena);
    refused(GPT "\"add_cross_attention\":true}", PROA_UNSUPPORTED, "add_cross_attention");
}

/* EleutherAI/gpt-neo-1.3B: every second layer has a window, scores are not divided. */
static void gpt_neo(void **state)
{
    PROA_UNUSED(state);
#define NEO                                                                                                  \
    "{\"architectures\":[\"GPTNeoForCausalLM\"],\"activation_function\":\"gelu_new\",\"hidden_size\":2048,"  \
    "\"intermediate_size\":null,\"max_position_embeddings\":2048,\"model_type\":\"gpt_neo\","                \
    "\"num_heads\":16,\"num_layers\":4,\"vocab_size\":50257,\"window_size\":256,"
    fixture f;
    accepted(&f, NEO "\"attention_types\":[[[\"global\",\"local\"],2]]}");
    for (int i = 0; i < 4; i++) assert_int_equal(proa_config_window(&f.c, i), i % 2 ? 256 : 0);
    near(f.c.attention_scale, 1);
    assert_int_equal(f.c.ffn, 8192);
    assert_true(f.c.tied);
    proa_arena_release(&f.arena);
    refused(NEO "\"attention_types\":[[[\"global\",\"local\"],12]]}", PROA_INVALID, "more than 4 layers");
    refused(NEO "\"attention_types\":[[[\"global\"],3]]}", PROA_INVALID, "is of 3 layers");
    refused(NEO "\"attention_types\":[[[\"sparse\"],4]]}", PROA_UNSUPPORTED, "'sparse'");
}

/* LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct. */
static void exaone_3(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             "{\"architectures\":[\"ExaoneForCausalLM\"],\"activation_function\":\"silu\",\"head_dim\":80,"
             "\"hidden_size\":2560,\"intermediate_size\":7168,\"layer_norm_epsilon\":1e-05,"
             "\"max_position_embeddings\":32768,\"model_type\":\"exaone\",\"num_attention_heads\":32,"
             "\"num_key_value_heads\":8,\"num_layers\":30,\"rope_scaling\":{\"factor\":8.0,"
             "\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,"
             "\"rope_type\":\"llama3\"},\"rope_theta\":1000000,\"tie_word_embeddings\":true,"
             "\"vocab_size\":102400}");
    assert_int_equal(f.c.layers, 30);
    assert_int_equal(f.c.rope.kind, PROA_ROPE_LLAMA3);
    assert_int_equal(f.c.act, PROA_ACT_SILU);
    near(f.c.norm_eps, 1e-5);
    assert_true(f.c.tied);
    proa_arena_release(&f.arena);
}

/* Alibaba-NLP/gte-base-en-v1.5: frequencies of NTK with a fixed factor f are (f theta)^(-2i/d) / f^(2/d). */
static void gte(void **state)
{
    PROA_UNUSED(state);
#define GTE                                                                                                  \
    "{\"architectures\":[\"NewModel\"],\"hidden_act\":\"gelu\",\"hidden_size\":768,"                         \
    "\"intermediate_size\":3072,\"layer_norm_eps\":1e-12,\"max_position_embeddings\":8192,"                  \
    "\"model_type\":\"new\",\"num_attention_heads\":12,\"num_hidden_layers\":12,\"pack_qkv\":true,"          \
    "\"rope_theta\":500000,\"type_vocab_size\":0,\"vocab_size\":30528,"
    fixture f;
    accepted(&f,
             GTE "\"layer_norm_type\":\"layer_norm\",\"logn_attention_scale\":false,"
                 "\"position_embedding_type\":\"rope\",\"rope_scaling\":{\"factor\":2.0,\"type\":\"ntk\"}}");
    near(f.c.rope.theta, 1e6);
    assert_int_equal(f.c.rope.kind, PROA_ROPE_LINEAR);
    near(f.c.rope.factor, pow(2, 2.0 / 64));
    assert_int_equal(f.c.context, 8192);
    assert_int_equal(f.c.types, 0);
    proa_arena_release(&f.arena);
    refused(GTE "\"logn_attention_scale\":true}", PROA_UNSUPPORTED, "logn_attention_scale");
    refused(GTE "\"position_embedding_type\":\"absolute\"}", PROA_UNSUPPORTED, "'absolute'");
    refused(GTE "\"layer_norm_type\":\"rms_norm\"}", PROA_UNSUPPORTED, "'rms_norm'");
}

/* Scores are divided by the square root of the number of their terms. */
static void deberta(void **state)
{
    PROA_UNUSED(state);
#define DEBERTA                                                                                              \
    "{\"architectures\":[\"DebertaModel\"],\"max_position_embeddings\":32,\"relative_attention\":"           \
    "true," SIZES
    static const struct {
        const char *types;
        int terms;
        bool queries, keys_alone;
    } rows[] = {{"\"c2p|p2c\"", 3, true, false}, {"\"c2p\"", 2, false, false}, {"[\"p2c\"]", 2, true, true}};
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        fixture f;
        char text[1024];
        snprintf(text, sizeof text, DEBERTA ",\"pos_att_type\":%s}", rows[i].types);
        accepted(&f, text);
        near(f.c.attention_scale, 1 / sqrt(8.0 * rows[i].terms));
        assert_int_equal(f.c.relative.queries, rows[i].queries);
        assert_int_equal(f.c.relative.keys_alone, rows[i].keys_alone);
        assert_int_equal(f.c.relative.span, 32);
        proa_arena_release(&f.arena);
    }
    refused(DEBERTA ",\"pos_att_type\":null}", PROA_UNSUPPORTED, "c2p or p2c");
    refused(DEBERTA ",\"pos_att_type\":\"c2p\",\"talking_head\":true}", PROA_UNSUPPORTED, "talking_head");
}

/* allenai/longformer-base-4096: a window of 512 tokens, half of it to each side. */
static void longformer(void **state)
{
    PROA_UNUSED(state);
#define LONGFORMER                                                                                           \
    "{\"architectures\":[\"LongformerModel\"],\"max_position_embeddings\":4098,\"pad_token_id\":1," SIZES
    fixture f;
    accepted(&f, LONGFORMER ",\"attention_window\":[512,512,512,512,512,512,512,512]}");
    assert_int_equal(f.c.context, 4096);
    assert_int_equal(proa_config_window(&f.c, 7), 257);
    proa_arena_release(&f.arena);
    accepted(&f, LONGFORMER ",\"attention_window\":64}");
    assert_int_equal(proa_config_window(&f.c, 0), 33);
    proa_arena_release(&f.arena);
    refused(LONGFORMER ",\"attention_window\":[512,256]}", PROA_UNSUPPORTED, "'attention_window'");
    const int32_t ids[] = {0, 7, 8, 2, 2, 9, 2};
    assert_int_equal(proa_config_globals(&f.c, ids, 7), 0);
#define LONGFORMER_FOR(class)                                                                                \
    "{\"architectures\":[\"LongformerFor" class "\"],\"max_position_embeddings\":4098,\"pad_token_id\":"     \
                                                "1," SIZES
    accepted(&f, LONGFORMER_FOR("SequenceClassification") "}");
    assert_int_equal(proa_config_globals(&f.c, ids, 7), 1);
    assert_int_equal(proa_config_globals(&f.c, ids, 0), 0);
    proa_arena_release(&f.arena);
    accepted(&f, LONGFORMER_FOR("QuestionAnswering") "}");
    assert_int_equal(proa_config_globals(&f.c, ids, 7), 3);
    assert_int_equal(proa_config_globals(&f.c, ids, 6), -1); /* two separators */
    proa_arena_release(&f.arena);
    refused(LONGFORMER_FOR("QuestionAnswering") ",\"sep_token_id\":200}", PROA_INVALID, "'sep_token_id'");
}

/* google/bigbird-roberta-base: inputs that are short enough for attention to all tokens. */
static void big_bird(void **state)
{
    PROA_UNUSED(state);
#define BIGBIRD "{\"architectures\":[\"BigBirdForSequenceClassification\"],\"attention_type\":"
    fixture f;
    accepted(&f, BIGBIRD "\"block_sparse\"," SIZES "}");
    assert_int_equal(f.c.context, 4096);
    assert_int_equal(proa_config_input_context(&f.c), 704);
    proa_arena_release(&f.arena);
    accepted(&f, BIGBIRD "\"original_full\"," SIZES "}");
    assert_int_equal(proa_config_input_context(&f.c), 4096);
    proa_arena_release(&f.arena);
    refused(BIGBIRD "\"other\"," SIZES "}", PROA_UNSUPPORTED, "'attention_type' 'other'");
    refused(BIGBIRD "\"block_sparse\",\"use_bias\":false," SIZES "}", PROA_UNSUPPORTED, "'use_bias'");
}

/* allenai/led-base-16384: an encoder of 16,384 positions before a decoder of 1,024. */
static void led(void **state)
{
    PROA_UNUSED(state);
#define LED                                                                                                  \
    "{\"architectures\":[\"LEDForConditionalGeneration\"],\"d_model\":64,\"encoder_layers\":2,\"decoder_"    \
    "layers\":2,"                                                                                            \
    "\"encoder_attention_heads\":4,\"decoder_attention_heads\":4,\"encoder_ffn_dim\":96,\"decoder_ffn_"      \
    "dim\":96,"                                                                                              \
    "\"vocab_size\":100,\"max_decoder_position_embeddings\":1024,\"attention_window\":[1024,1024]"
    const int32_t ids[] = {0, 7, 2};
    fixture f;
    accepted(&f, LED "}");
    assert_int_equal(f.c.context, 1024);
    assert_int_equal(proa_config_input_context(&f.c), 16384);
    assert_int_equal(proa_config_window(&f.c, 0), 513);
    assert_int_equal(proa_config_globals(&f.c, ids, 3), 0);
    proa_arena_release(&f.arena);
    accepted(&f, LED ",\"global_tokens\":1}");
    assert_int_equal(proa_config_globals(&f.c, ids, 3), 1);
    proa_arena_release(&f.arena);
    refused(LED ",\"global_tokens\":-1}", PROA_INVALID, "'global_tokens'");
}

/* google/long-t5-tglobal-base: sums of blocks of 16 tokens beside a window of 127 to each side. */
static void long_t5(void **state)
{
    PROA_UNUSED(state);
#define LONGT5                                                                                               \
    "{\"architectures\":[\"LongT5ForConditionalGeneration\"],\"d_model\":64,\"d_kv\":8,\"d_ff\":96,"         \
    "\"num_layers\":2,\"num_heads\":8,\"vocab_size\":100,\"encoder_attention_type\":"
    fixture f;
    accepted(&f, LONGT5 "\"transient-global\"}");
    assert_int_equal(f.c.side_block, 16);
    assert_int_equal(proa_config_window(&f.c, 0), 128);
    proa_arena_release(&f.arena);
    accepted(&f, LONGT5 "\"local\"}");
    assert_int_equal(f.c.side_block, 0);
    proa_arena_release(&f.arena);
    refused(LONGT5 "\"transient-global\",\"global_block_size\":12}", PROA_UNSUPPORTED,
            "'global_block_size' is 12");
    refused(LONGT5 "\"sparse\"}", PROA_UNSUPPORTED, "'encoder_attention_type' is 'sparse'");
}

/* zai-org/GLM-4.7-Flash: numbers of its own where keys are missing, and the kind of each layer's FFN. */
static void glm_flash(void **state)
{
    PROA_UNUSED(state);
#define FLASH                                                                                                \
    "{\"architectures\":[\"Glm4MoeLiteForCausalLM\"],\"kv_lora_rank\":64,\"moe_intermediate_size\":64,"      \
    "\"n_routed_experts\":16,\"q_lora_rank\":48,\"qk_nope_head_dim\":24,\"qk_rope_head_dim\":8,"             \
    "\"v_head_dim\":32," SIZES
    fixture f;
    accepted(&f, FLASH "}");
    assert_int_equal(f.c.router.chosen, 4);
    near((double)f.c.router.scale, (double)1.8f);
    near(f.c.norm_eps, 1e-5);
    for (int i = 0; i < 8; i++) assert_int_equal(proa_config_has_experts(&f.c, i), i > 0);
    proa_arena_release(&f.arena);
    refused(FLASH ",\"mlp_layer_types\":[\"dense\"]}", PROA_INVALID, "1 entries for 8 layers");
}

/* In a folder of sentence-transformers a language model has no head, as all-mpnet-base-v2, where it has such a row. */
static void folders(void **state)
{
    PROA_UNUSED(state);
    static const char *const rows[][2] = {{"MPNetForMaskedLM", "mpnet"},
                                          {"RobertaForMaskedLM", "roberta"},
                                          {"BertForMaskedLM", "bert"},
                                          {"BertForPreTraining", "bert"},
                                          {"DistilBertForMaskedLM", "distilbert"},
                                          {"AlbertForMaskedLM", "albert"},
                                          {"ModernBertForMaskedLM", "modernbert"},
                                          {"DebertaV2ForMaskedLM", "deberta"},
                                          {"DebertaForMaskedLM", "deberta_v1"},
                                          {"NomicBertForMaskedLM", "nomic_bert"},
                                          {"XLNetLMHeadModel", "xlnet"},
                                          {"ElectraForPreTraining", "electra"},
                                          {"NewForMaskedLM", "gte"},
                                          {"EuroBertForMaskedLM", "eurobert"},
                                          {"Qwen3ForCausalLM", "qwen3_embed"},
                                          {"GemmaForCausalLM", "gemma_embed"},
                                          {"LlamaForSequenceClassification", "llama_cls"},
                                          {"CohereForCausalLM", "cohere"},
                                          {"JinaBertForMaskedLM", "jina_bert"},
                                          {"JinaEmbeddingsV3ForMaskedLM", "jina_embeddings_v3"},
                                          {"MegatronBertForMaskedLM", "megatron_bert"},
                                          {"EsmForMaskedLM", "esm"},
                                          {"GPTNeoXForCausalLM", "gpt_neox_embed"},
                                          {"GPT2ForSequenceClassification", "gpt2_cls"}};
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        proa_err err;
        proa_json *json = NULL;
        const proa_arch *arch = NULL;
        char text[128];
        snprintf(text, sizeof text, "{\"architectures\":[\"%s\"]}", rows[i][0]);
        assert_int_equal(proa_json_parse(&json, proa_str_c(text), "config.json", &err), PROA_OK);
        assert_int_equal(proa_arch_find(&arch, json, &err), PROA_OK);
        assert_string_equal(proa_arch_in_folder(arch, true)->name, rows[i][1]);
        assert_ptr_equal(proa_arch_in_folder(arch, false), arch);
        proa_json_free(json);
    }
}

/* facebook/dpr-question_encoder-single-nq-base. */
static void dpr(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_class(&f, "DPRQuestionEncoder", "\"projection_dim\":0,");
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"DPRContextEncoder\"],\"projection_dim\":128," SIZES "}", PROA_UNSUPPORTED,
            "'projection_dim' 128");
}

/* jina-embeddings-v2-base-en, -base-code, jina-reranker-v1; ESM-2, ESM-1b; relatives of BERT. */
static void bert_relatives(void **state)
{
    PROA_UNUSED(state);
#define ALIBI "\"position_embedding_type\":\"alibi\","
#define CODE  "\"auto_map\":{\"AutoModel\":\"jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel\"},"
    fixture f;
    read_class(&f, "JinaBertForMaskedLM", ALIBI "\"feed_forward_type\":\"geglu\",\"emb_pooler\":\"mean\",");
    assert_true(f.c.gated && !f.c.qk_norm && f.c.alibi_max == 8 && f.c.act == PROA_ACT_GELU);
    proa_arena_release(&f.arena);
    read_class(&f, "JinaBertForSequenceClassification",
               ALIBI CODE "\"feed_forward_type\":\"reglu\",\"emb_pooler\":null,");
    assert_true(f.c.gated && f.c.qk_norm && f.c.act == PROA_ACT_RELU);
    proa_arena_release(&f.arena);
    read_class(&f, "JinaBertModel", "\"hidden_act\":\"gelu\",");
    assert_true(!f.c.gated && f.c.learned_positions && f.c.alibi_max == 0);
    proa_arena_release(&f.arena);
#define REFUSED(class, more, text)                                                                           \
    refused("{\"architectures\":[\"" class "\"]," more SIZES "}", PROA_UNSUPPORTED, text)
    REFUSED("JinaBertModel", ALIBI "\"feed_forward_type\":\"swiglu\",", "'feed_forward_type' 'swiglu'");
    REFUSED("JinaBertModel", ALIBI CODE, "'feed_forward_type' original with norms");
    REFUSED("JinaBertModel", ALIBI "\"emb_pooler\":\"cls\",", "'emb_pooler' 'cls'");
    REFUSED("JinaBertModel", "\"position_embedding_type\":\"relative_key\",",
            "'position_embedding_type' 'relative_key'");
    REFUSED("EsmForMaskedLM", "\"is_folding_model\":true,", "'is_folding_model' true");
    REFUSED("RoFormerModel", "\"rotary_value\":true,", "'rotary_value' true");
    REFUSED("MegatronBertModel", "\"position_embedding_type\":\"relative_key\",", "'position_embedding_type'");
    read_class(&f, "EsmModel",
               "\"position_embedding_type\":\"rotary\",\"token_dropout\":true,\"mask_token_id\":32,");
    near(f.c.mask_keep, 0.88);
    assert_true(f.c.mask_id == 32 && f.c.rotary_dim == 8 && f.c.context == 1026 && !f.c.learned_positions);
    proa_arena_release(&f.arena);
    read_class(&f, "EsmModel", "\"emb_layer_norm_before\":true,\"pad_token_id\":1,");
    assert_true(f.c.mask_keep == 0 && f.c.embed_normed && f.c.position_offset == 2 && f.c.context == 1024);
    proa_arena_release(&f.arena);
    read_class(&f, "ErnieModel", "\"use_task_id\":true,");
    assert_int_equal(f.c.tasks, 3);
    proa_arena_release(&f.arena);
    read_class(&f, "JinaEmbeddingsV3Model",
               "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":20000.0},");
    near(f.c.rope.theta, 20000);
    proa_arena_release(&f.arena);
}

#define BART_SIZES                                                                                           \
    "\"vocab_size\":200,\"d_model\":64,\"encoder_layers\":2,\"decoder_layers\":2,"                           \
    "\"encoder_attention_heads\":4,\"encoder_ffn_dim\":64"

static void expect_class(const char *class, const char *more, int64_t labels, int64_t start, int32_t end)
{
    fixture f;
    char text[512];
    snprintf(text, sizeof text, "{\"architectures\":[\"%s\"],%s" BART_SIZES "}", class, more);
    accepted(&f, text);
    if (f.c.labels != labels || f.c.decoder_start != start || f.c.end_count != 1 || f.c.end_ids[0] != end)
        fail_msg("%s: %lld labels, start %lld, end %d", text, (long long)f.c.labels,
                 (long long)f.c.decoder_start, f.c.end_ids[0]);
    assert_true(proa_arch_decodes_input(f.arch));
    proa_arena_release(&f.arena);
}

/* BartConfig alone has three labels where the file names none, and a file may say another start. */
static void classes_that_decode_their_input(void **state)
{
    PROA_UNUSED(state);
    const char *named = "\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\",\"3\":\"d\"},";
    expect_class("BartForSequenceClassification", "", 3, 2, 2);
    expect_class("BartForSequenceClassification", named, 4, 2, 2);
    expect_class("BartForSequenceClassification", "\"decoder_start_token_id\":0,\"eos_token_id\":7,", 3, 0, 7);
    expect_class("BartForQuestionAnswering", named, 2, 2, 2);
    expect_class("MBartForSequenceClassification", "", 2, -1, 2);
    expect_class("PLBartForSequenceClassification", named, 4, -1, 2);
    expect_class("MvpForSequenceClassification", "\"use_prompt\":false,", 2, 2, 2);
    const char *const mvp[] = {"MvpForConditionalGeneration", "MvpForSequenceClassification",
                               "MvpForQuestionAnswering"};
    for (size_t i = 0; i < PROA_COUNT(mvp); i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"architectures\":[\"%s\"],\"use_prompt\":true," BART_SIZES "}", mvp[i]);
        refused(text, PROA_UNSUPPORTED, "'use_prompt' true is not supported");
    }
}

#define GEMMA_STACK(more)                                                                                    \
    "{\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"vocab_size\":200," more "}"
#define T5GEMMA(encoder, decoder, more)                                                                      \
    "{\"architectures\":[\"T5GemmaForConditionalGeneration\"],\"encoder\":" encoder                          \
    ",\"decoder\":" decoder more "}"

/* An encoder sees a window to each side. It must be as wide as the decoder. */
static void t5gemma(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, T5GEMMA(GEMMA_STACK("\"sliding_window\":9,\"head_dim\":16"),
                         GEMMA_STACK("\"sliding_window\":7,\"head_dim\":16"), ""));
    assert_true(f.c.layers == 4 && f.c.encoder_layers == 4 && f.c.tied);
    assert_true(f.c.decoder_start == 2 && f.c.end_ids[0] == 1 && f.c.pad == 0);
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(proa_config_stack_window(&f.c, true, i), i % 2 ? 0 : 7);
        assert_int_equal(proa_config_stack_window(&f.c, false, i), i % 2 ? 0 : 10);
    }
    proa_arena_release(&f.arena);
    refused(T5GEMMA("3", GEMMA_STACK("\"head_dim\":16"), ""), PROA_INVALID, "'encoder' is missing");
    refused(T5GEMMA(GEMMA_STACK("\"head_dim\":8"), GEMMA_STACK("\"head_dim\":16"), ""), PROA_UNSUPPORTED,
            "'head_dim' is 16 in the decoder and 8");
    refused(T5GEMMA(GEMMA_STACK("\"rope_theta\":5000"), GEMMA_STACK("\"head_dim\":256"), ""),
            PROA_UNSUPPORTED, "rotary positions");
    refused(T5GEMMA(GEMMA_STACK("\"query_pre_attn_scalar\":5"), GEMMA_STACK("\"head_dim\":256"), ""),
            PROA_UNSUPPORTED, "scores, norms");
    refused(T5GEMMA(GEMMA_STACK("\"head_dim\":16"), GEMMA_STACK("\"head_dim\":16"),
                    ",\"is_encoder_decoder\":false"),
            PROA_UNSUPPORTED, "'is_encoder_decoder' false");
}

#define SWITCH(more)                                                                                         \
    "{\"architectures\":[\"SwitchTransformersForConditionalGeneration\"],\"vocab_size\":200,\"d_model\":64," \
    "\"d_kv\":16,"                                                                                           \
    "\"d_ff\":96,\"num_layers\":6,\"num_heads\":4" more "}"

/* Experts in every second layer where half of the layers have some. An input has at most as many tokens as an expert
 * takes. */
static void switch_transformers(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, SWITCH(",\"num_decoder_layers\":4,\"num_sparse_decoder_layers\":2,\"expert_capacity\":96"));
    for (int64_t i = 0; i < 6; i++) assert_int_equal(f.c.expert_layers[i], i % 2);
    assert_true(f.c.experts == 8 && f.c.router.chosen == 1 && f.c.expert_ffn == 96 && !f.c.gated);
    assert_int_equal(f.c.input_context, 96);
    proa_arena_release(&f.arena);
    accepted(&f, SWITCH(",\"num_sparse_encoder_layers\":6,\"num_sparse_decoder_layers\":6"));
    assert_true(f.c.expert_layers[0] && f.c.expert_layers[5] && f.c.input_context == 64);
    proa_arena_release(&f.arena);
    refused(SWITCH(",\"num_sparse_decoder_layers\":2"), PROA_UNSUPPORTED, "layer 3 has experts in one stack");
    refused(SWITCH(",\"router_dtype\":\"bfloat16\""), PROA_UNSUPPORTED, "'router_dtype' must be float32");
}

#define NLLB_MOE(more)                                                                                       \
    "{\"architectures\":[\"NllbMoeForConditionalGeneration\"],\"vocab_size\":200,\"d_model\":64,"            \
    "\"encoder_layers\":6,\"decoder_layers\":4,\"encoder_attention_heads\":4,\"encoder_ffn_dim\":96" more "}"

/* Experts in every fourth layer, unless the file has other steps. All tokens are taken, or inputs are short. */
static void nllb_moe(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, NLLB_MOE(""));
    for (int64_t i = 0; i < 6; i++) assert_int_equal(f.c.expert_layers[i], i == 3);
    assert_true(f.c.experts == 128 && f.c.router.chosen == 2 && f.c.router.renormalise && f.c.expert_ffn == 96);
    assert_true(fabsf(f.c.router.scale - 0.8F) < 1e-6F && f.c.input_context == 0);
    proa_arena_release(&f.arena);
    accepted(&f, NLLB_MOE(",\"encoder_sparse_step\":3,\"decoder_sparse_step\":3,\"expert_capacity\":32,"
                          "\"moe_eval_capacity_token_fraction\":-1"));
    for (int64_t i = 0; i < 6; i++) assert_int_equal(f.c.expert_layers[i], i % 3 == 2);
    assert_int_equal(f.c.input_context, 32);
    proa_arena_release(&f.arena);
    refused(NLLB_MOE(",\"decoder_sparse_step\":2"), PROA_UNSUPPORTED, "layer 1 has experts in one stack");
    refused(NLLB_MOE(",\"decoder_ffn_dim\":64"), PROA_UNSUPPORTED, "experts of 96 and 64 numbers");
    refused(NLLB_MOE(",\"moe_eval_capacity_token_fraction\":0.5"), PROA_UNSUPPORTED, "token_fraction' is 0.5");
    refused(NLLB_MOE(",\"second_expert_policy\":\"random\""), PROA_UNSUPPORTED,
            "'second_expert_policy' must be all");
    refused(NLLB_MOE(",\"router_dtype\":\"bfloat16\""), PROA_UNSUPPORTED, "'router_dtype' must be float32");
}

/* Ids where the file has none: the first position is that behind the padding token's. */
static void seamless_m4t(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(
        &f,
        "{\"architectures\":[\"SeamlessM4Tv2Model\"],\"vocab_size\":200,\"hidden_size\":64,"
        "\"encoder_layers\":3,\"decoder_layers\":2,\"encoder_attention_heads\":4,\"encoder_ffn_dim\":96}");
    assert_true(f.c.position_offset == 1 && f.c.decoder_start == 3 && f.c.end_ids[0] == 3 && f.c.hidden == 64);
    proa_arena_release(&f.arena);
}

#define BERT_STACK(more)                                                                                     \
    "{\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,"        \
    "\"vocab_size\":200," more "}"
#define TWO_BERTS(encoder, decoder)                                                                          \
    "{\"architectures\":[\"EncoderDecoderModel\"],\"encoder\":" BERT_STACK(                                  \
        encoder) ",\"decoder\":" BERT_STACK(decoder) "}"
#define DECODES "\"is_decoder\":true,\"add_cross_attention\":true"

static void two_berts(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, TWO_BERTS("\"model_type\":\"roberta\",\"max_position_embeddings\":66",
                           "\"model_type\":\"roberta\",\"max_position_embeddings\":34," DECODES));
    assert_true(f.c.layers == 4 && f.c.encoder_layers == 4 && f.c.position_offset == 2);
    assert_true(f.c.context == 32 && f.c.input_context == 64 && f.c.head_act == PROA_ACT_GELU);
    proa_arena_release(&f.arena);
    refused(TWO_BERTS("\"model_type\":\"bert\"", "\"model_type\":\"bert\",\"is_decoder\":true"),
            PROA_UNSUPPORTED, "'add_cross_attention' true");
    refused(TWO_BERTS("\"model_type\":\"bert\"", "\"model_type\":\"roberta\"," DECODES), PROA_UNSUPPORTED,
            "positions must begin with the same row");
    refused(TWO_BERTS("\"model_type\":\"gpt2\"", "\"model_type\":\"bert\"," DECODES), PROA_UNSUPPORTED,
            "'model_type' of 'encoder' is 'gpt2'");
    refused(TWO_BERTS("\"model_type\":\"bert\",\"type_vocab_size\":1", "\"model_type\":\"bert\"," DECODES),
            PROA_UNSUPPORTED, "'type_vocab_size' is 2 in the decoder and 1");
}

/* Two vocabularies; ids of generated tokens are of the decoder's. */
static void fsmt(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(
        &f,
        "{\"architectures\":[\"FSMTForConditionalGeneration\"],\"src_vocab_size\":300,\"tgt_vocab_size\":200,"
        "\"d_model\":64,\"encoder_layers\":2,\"decoder_layers\":2,\"encoder_attention_heads\":4,"
        "\"encoder_ffn_dim\":64,\"eos_token_id\":250,\"tie_word_embeddings\":false}");
    assert_true(f.c.vocab == 200 && proa_config_input_vocab(&f.c) == 300 && f.c.end_count == 0);
    assert_true(f.c.tied && f.c.position_offset == 2 && f.c.embed_scale == 8 && f.c.decoder_start == 2);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"FSMTForConditionalGeneration\"],\"src_vocab_size\":300}", PROA_INVALID,
            "'tgt_vocab_size' is missing");
}

/* Inputs up to the length for which transformers attends to all tokens. */
static void bigbird_pegasus(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{\"architectures\":[\"BigBirdPegasusForConditionalGeneration\"]," BART_SIZES "}");
    assert_true(f.c.input_context == 704 && f.c.context == 1024 && !f.c.attention_bias && f.c.embed_scale == 8);
    proa_arena_release(&f.arena);
    accepted(&f, "{\"architectures\":[\"BigBirdPegasusForCausalLM\"],\"use_bias\":true," BART_SIZES "}");
    assert_true(f.c.input_context == 0 && f.c.attention_bias);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"BigBirdPegasusForConditionalGeneration\"],\"attention_type\":"
            "\"other\"," BART_SIZES "}",
            PROA_UNSUPPORTED, "'attention_type' 'other'");
}

/* The decoder's sizes are those of the model; the encoder's are apart where they differ. */
static void stacks_of_different_sizes(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(
        &f,
        "{\"architectures\":[\"BartModel\"],\"decoder_attention_heads\":2,\"decoder_ffn_dim\":96," BART_SIZES
        "}");
    assert_int_equal(f.c.heads, 2);
    assert_int_equal(f.c.encoder_heads, 4);
    assert_int_equal(f.c.ffn, 96);
    assert_int_equal(f.c.encoder_ffn, 64);
    proa_arena_release(&f.arena);
    accepted(
        &f,
        "{\"architectures\":[\"BartModel\"],\"decoder_attention_heads\":4,\"decoder_ffn_dim\":64," BART_SIZES
        "}");
    assert_int_equal(f.c.encoder_heads + f.c.encoder_ffn, 0);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"BartModel\"],\"vocab_size\":200,\"d_model\":64,\"encoder_layers\":2,"
            "\"decoder_layers\":2,"
            "\"encoder_attention_heads\":5,\"decoder_attention_heads\":4,\"encoder_ffn_dim\":64}",
            PROA_INVALID, "'encoder_attention_heads' 5 does not divide the size 64");
    refused("{\"architectures\":[\"BartModel\"],\"decoder_attention_heads\":3," BART_SIZES "}", PROA_INVALID,
            "3 heads");
}

/* The task of a file with adapters of several, by its name; a number counts from 1. */
static void merged_tasks(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    static const char tasks[] = "\"lora_adaptations\":[\"retrieval.query\",\"separation\"],\"lora_rank\":8,"
                                "\"position_embedding_type\":\"rotary\",";
    char more[256];
    read_class(&f, "XLMRobertaModel", tasks);
    assert_int_equal(f.c.merged_task, 0);
    proa_arena_release(&f.arena);
    snprintf(more, sizeof more, "%s\"lora_alpha\":2,\"lora_task\":\"separation\",", tasks);
    read_class(&f, "XLMRobertaModel", more);
    assert_int_equal(f.c.merged_task, 2);
    assert_int_equal(f.c.merged_rank, 8);
    near(f.c.merged_scale, 0.25);
    proa_arena_release(&f.arena);
    refused("{\"architectures\":[\"XLMRobertaModel\"],\"lora_adaptations\":[\"separation\"],"
            "\"lora_task\":\"none\"," SIZES "}",
            PROA_INVALID, "'lora_task' is 'none', which is none of 'lora_adaptations'");
}

/* EmbeddingGemma 2 and the privacy filter see as far to each side as sliding_window says, and themselves. */
static void windows_to_both_sides(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_class(&f, "EmbeddingGemma2TextModel",
               "\"sliding_window\":5,\"num_key_value_heads\":4,\"head_dim\":128,");
    assert_int_equal(f.c.window, 6);
    assert_int_equal(f.c.head_embed, 768);
    assert_int_equal(f.c.encoder_layers, 8);
    assert_true(f.c.window_layers[0] && !f.c.window_layers[5] && !f.c.window_layers[7]);
    proa_arena_release(&f.arena);
    refused(
        "{\"architectures\":[\"EmbeddingGemma2TextModel\"],\"num_key_value_heads\":2,\"head_dim\":128," SIZES "}",
        PROA_UNSUPPORTED, "keys of 512 numbers in layers without a window");
    read_class(&f, "OpenAIPrivacyFilterModel", "\"num_local_experts\":8,\"num_key_value_heads\":2,");
    assert_int_equal(f.c.window, 129);
    assert_int_equal(f.c.labels, 33);
    proa_arena_release(&f.arena);
    refused(
        "{\"architectures\":[\"OpenAIPrivacyFilterModel\"],\"num_local_experts\":8,\"swiglu_alpha\":1," SIZES "}",
        PROA_UNSUPPORTED, "'swiglu_alpha' is 1, must be 1.702");
}

#define XLM_SIZES                                                                                            \
    "\"architectures\":[\"XLMForSequenceClassification\"],\"emb_dim\":64,\"n_layers\":2,\"n_heads\":4"

/* XLM's activation and vocabulary by either key; what its head for sequences may be besides. */
static void xlm(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{" XLM_SIZES ",\"n_words\":300,\"gelu_activation\":false,\"pre_norm\":true}");
    assert_int_equal(f.c.vocab, 300);
    assert_int_equal(f.c.ffn, 256);
    assert_int_equal(f.c.act, PROA_ACT_RELU);
    assert_false(f.c.post_norm);
    proa_arena_release(&f.arena);
    accepted(&f, "{" XLM_SIZES ",\"vocab_size\":200}");
    assert_int_equal(f.c.vocab, 200);
    assert_true(f.c.post_norm && f.c.act == PROA_ACT_GELU);
    proa_arena_release(&f.arena);
    refused("{" XLM_SIZES ",\"causal\":true}", PROA_UNSUPPORTED, "'causal' true is not supported");
    refused("{" XLM_SIZES ",\"asm\":true}", PROA_UNSUPPORTED, "'asm' true is not supported");
    refused("{" XLM_SIZES ",\"is_encoder\":false}", PROA_UNSUPPORTED, "'is_encoder' false is not supported");
    refused("{" XLM_SIZES ",\"summary_type\":\"mean\"}", PROA_UNSUPPORTED, "'summary_type' 'mean'");
    refused("{" XLM_SIZES ",\"summary_use_proj\":false}", PROA_UNSUPPORTED, "'summary_use_proj' false");
    refused("{" XLM_SIZES ",\"summary_activation\":\"tanh\"}", PROA_UNSUPPORTED, "'summary_activation' 'tanh'");
}

#define MOBILEBERT_SIZES                                                                                     \
    "\"architectures\":[\"MobileBertModel\"],\"vocab_size\":64,\"hidden_size\":64,\"num_hidden_layers\":2,"  \
    "\"num_attention_heads\":4,\"intermediate_size\":32,\"embedding_size\":16,\"intra_bottleneck_size\":24"

/* MobileBERT's heads divide the narrow width; of its switches only those of the published models. */
static void mobilebert(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{" MOBILEBERT_SIZES ",\"classifier_activation\":false}");
    assert_int_equal(f.c.head_dim, 6);
    assert_int_equal(f.c.ffns, 4);
    assert_true(f.c.bare_pooler && f.c.act == PROA_ACT_RELU);
    assert_int_equal(proa_dim_size(&f.c, PROA_DIM_WINDOW), 48);
    proa_arena_release(&f.arena);
    refused("{" MOBILEBERT_SIZES ",\"trigram_input\":false}", PROA_UNSUPPORTED, "'trigram_input' false");
    refused("{" MOBILEBERT_SIZES ",\"use_bottleneck\":false}", PROA_UNSUPPORTED, "'use_bottleneck' false");
    refused("{" MOBILEBERT_SIZES ",\"use_bottleneck_attention\":true}", PROA_UNSUPPORTED,
            "'use_bottleneck_attention' true");
    refused("{" MOBILEBERT_SIZES ",\"key_query_shared_bottleneck\":false}", PROA_UNSUPPORTED,
            "'key_query_shared_bottleneck' false");
    refused("{" MOBILEBERT_SIZES ",\"normalization_type\":\"layer_norm\"}", PROA_UNSUPPORTED,
            "'normalization_type' 'layer_norm' is not supported (no_norm is)");
    refused("{" MOBILEBERT_SIZES ",\"num_feedforward_networks\":5}", PROA_INVALID, "is 5, must be 1 to 4");
}

#define SMALL_BERT(class)                                                                                    \
    "\"architectures\":[\"" class "\"],\"vocab_size\":64,\"hidden_size\":64,\"num_hidden_layers\":2,"        \
                                  "\"num_attention_heads\":4,\"intermediate_size\":32"

/* I-BERT runs as it is trained, not in integers; LayoutLM has tables of coordinates; SqueezeBERT has one width. */
static void relatives_of_bert(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, "{" SMALL_BERT("IBertModel") ",\"quant_mode\":false}");
    assert_int_equal(f.c.position_offset, 2);
    proa_arena_release(&f.arena);
    refused("{" SMALL_BERT("IBertModel") ",\"quant_mode\":true}", PROA_UNSUPPORTED, "'quant_mode' true");
    accepted(&f, "{" SMALL_BERT("LayoutLMModel") ",\"max_2d_position_embeddings\":20}");
    assert_int_equal(f.c.boxes, 20);
    proa_arena_release(&f.arena);
    refused("{" SMALL_BERT("SqueezeBertModel") ",\"embedding_size\":32}", PROA_UNSUPPORTED,
            "'embedding_size' 32 is not 'hidden_size' 64");
}

#define XMOD(languages) SMALL_BERT("XmodModel") ",\"languages\":[" languages "]"

/* The adapters of X-MOD are those of one of its languages, behind the norm that follows them, too. */
static void xmod(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(
        &f,
        "{" XMOD("\"en_XX\",\"de_DE\"") ",\"default_language\":\"de_DE\",\"adapter_reduction_factor\":4}");
    assert_string_equal(f.c.language, "de_DE");
    assert_int_equal(f.c.adapter, 16);
    proa_arena_release(&f.arena);
    refused("{" XMOD("\"en_XX\"") "}", PROA_INVALID, "'default_language' is missing");
    refused("{" XMOD("\"en_XX\"") ",\"default_language\":null}", PROA_INVALID, "'default_language' is missing");
    refused("{" XMOD("\"en_XX\"") ",\"default_language\":\"de_DE\"}", PROA_INVALID,
            "'default_language' 'de_DE' is not one of 'languages'");
    refused("{" XMOD("\"en_XX\"") ",\"default_language\":\"en_XX\",\"pre_norm\":true}", PROA_UNSUPPORTED,
            "'pre_norm' true is not supported");
    refused("{" XMOD("\"en_XX\"") ",\"default_language\":\"en_XX\",\"ln_before_adapter\":false}",
            PROA_UNSUPPORTED, "'ln_before_adapter' false is not supported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kv_heads),
        cmocka_unit_test(kv_heads_32),
        cmocka_unit_test(classes_by_type),
        cmocka_unit_test(mixtures),
        cmocka_unit_test(layer_bases),
        cmocka_unit_test(class_defaults),
        cmocka_unit_test(bitnet_rules),
        cmocka_unit_test(latent_classes),
        cmocka_unit_test(sparse_classes),
        cmocka_unit_test(windows),
        cmocka_unit_test(gemma),
        cmocka_unit_test(gpt_2),
        cmocka_unit_test(gpt_neo),
        cmocka_unit_test(exaone_3),
        cmocka_unit_test(gte),
        cmocka_unit_test(deberta),
        cmocka_unit_test(longformer),
        cmocka_unit_test(glm_flash),
        cmocka_unit_test(dpr),
        cmocka_unit_test(folders),
        cmocka_unit_test(bert_relatives),
        cmocka_unit_test(long_t5),
        cmocka_unit_test(nested_keys),
        cmocka_unit_test(classes_that_decode_their_input),
        cmocka_unit_test(t5gemma),
        cmocka_unit_test(fsmt),
        cmocka_unit_test(bigbird_pegasus),
        cmocka_unit_test(switch_transformers),
        cmocka_unit_test(nllb_moe),
        cmocka_unit_test(seamless_m4t),
        cmocka_unit_test(two_berts),
        cmocka_unit_test(stacks_of_different_sizes),
        cmocka_unit_test(led),
        cmocka_unit_test(big_bird),
        cmocka_unit_test(merged_tasks),
        cmocka_unit_test(xlm),
        cmocka_unit_test(mobilebert),
        cmocka_unit_test(relatives_of_bert),
        cmocka_unit_test(xmod),
        cmocka_unit_test(windows_to_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
