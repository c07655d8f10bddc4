/* SPDX-License-Identifier: Apache-2.0
 * test_config.c - configurations: what is read, what is derived, what is refused and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "config_fixture.h"
#include "model/derive.h"
#include <math.h>

#define LLAMA                                                                                                \
    "\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":200,\"hidden_size\":64,\"num_hidden_layers\":"  \
    "2,"                                                                                                     \
    "\"num_attention_heads\":4,\"intermediate_size\":160"

static void defaults_of_llama(void **state)
{
    fixture f;
    PROA_UNUSED(state);
    assert_int_equal(configure(&f, "{" LLAMA "}"), PROA_OK);
    assert_int_equal(f.c.kv_heads, 4);
    assert_int_equal(f.c.head_dim, 16);
    assert_int_equal(f.c.rotary_dim, 16);
    assert_int_equal(f.c.context, 2048);
    assert_false(f.c.tied);
    assert_int_equal(f.c.act, PROA_ACT_SILU);
    assert_true(fabs(f.c.attention_scale - 0.25) < 1e-12);
    proa_arena_release(&f.arena);
}

static void rope_old_and_new(void **state)
{
    fixture f;
    PROA_UNUSED(state);
    assert_int_equal(
        configure(&f, "{" LLAMA ",\"rope_theta\":5000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}"),
        PROA_OK);
    float freq[8];
    proa_rope_inv_freq(&f.c.rope, f.c.rotary_dim, false, freq);
    assert_true(fabsf(freq[0] - 0.25f) < 1e-7f);
    assert_true(fabsf(freq[1] - 0.25f * powf(5000, -1.0f / 8)) < 1e-6f);
    proa_arena_release(&f.arena);
    assert_int_equal(
        configure(&f, "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7}}"), PROA_OK);
    assert_true(f.c.rope.theta == 7);
    proa_arena_release(&f.arena);
    refused("{" LLAMA ",\"rope_scaling\":{\"type\":\"spiral\",\"factor\":4}}", PROA_UNSUPPORTED, "spiral");
    refused("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", PROA_INVALID, "factor");
}

static void windows(void **state)
{
    fixture f;
    PROA_UNUSED(state);
    const char *mistral = "{\"architectures\":[\"MistralForCausalLM\"],\"vocab_size\":200,\"hidden_size\":64,"
                          "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"intermediate_size\":160,"
                          "\"sliding_window\":16}";
    assert_int_equal(configure(&f, mistral), PROA_OK);
    assert_int_equal(proa_config_window(&f.c, 1), 16);
    proa_arena_release(&f.arena);
    const char *qwen = "{\"architectures\":[\"Qwen2ForCausalLM\"],\"vocab_size\":200,\"hidden_size\":64,"
                       "\"num_hidden_layers\":3,\"num_attention_heads\":32,\"intermediate_size\":160,"
                       "\"sliding_window\":16,\"use_sliding_window\":%s,\"max_window_layers\":1}";
    char text[512];
    snprintf(text, sizeof text, qwen, "false");
    assert_int_equal(configure(&f, text), PROA_OK);
    assert_int_equal(proa_config_window(&f.c, 2), 0);
    proa_arena_release(&f.arena);
    snprintf(text, sizeof text, qwen, "true");
    assert_int_equal(configure(&f, text), PROA_OK);
    assert_int_equal(proa_config_window(&f.c, 0), 0);
    assert_int_equal(proa_config_window(&f.c, 2), 16);
    proa_arena_release(&f.arena);
}

#define BLOOM "\"architectures\":[\"BloomForCausalLM\"],\"vocab_size\":200"
#define MPT                                                                                                  \
    "\"architectures\":[\"MptForCausalLM\"],\"vocab_size\":200,\"d_model\":64,\"n_layers\":2,\"n_heads\":4"

/* Six heads: four as they are, then two of eight. Either name of a size. */
static void alibi(void **state)
{
    static const double powers[] = {-2, -4, -6, -8, -1, -3};
    fixture f;
    float slopes[6];
    PROA_UNUSED(state);
    assert_int_equal(configure(&f, "{" BLOOM ",\"n_embed\":96,\"n_layer\":3,\"num_attention_heads\":6}"),
                     PROA_OK);
    assert_int_equal(f.c.hidden, 96);
    assert_int_equal(f.c.ffn, 384);
    proa_config_alibi(&f.c, slopes);
    for (int h = 0; h < 6; h++) assert_true(fabs((double)slopes[h] - exp2(powers[h])) < 1e-9);
    proa_arena_release(&f.arena);
    assert_int_equal(
        configure(&f, "{" MPT ",\"attn_config\":{\"alibi\":true,\"alibi_bias_max\":16,\"clip_qkv\":null}}"),
        PROA_OK);
    assert_true(f.c.alibi_max == 16 && f.c.qkv_clip == 0 && !f.c.attention_bias && f.c.logit_scale == 1);
    proa_arena_release(&f.arena);
    assert_int_equal(configure(&f, "{" MPT
                                   ",\"no_bias\":false,\"logit_scale\":0.5,\"attn_config\":{\"clip_qkv\":6,"
                                   "\"attn_type\":\"multiquery_attention\"}}"),
                     PROA_OK);
    assert_true(f.c.qkv_clip == 6 && f.c.attention_bias && f.c.logit_scale == 0.5 && f.c.kv_heads == 1);
    proa_arena_release(&f.arena);
    refused("{" BLOOM ",\"n_embed\":96,\"n_layer\":3}", PROA_INVALID, "'n_head' is missing");
    refused("{" MPT ",\"attn_config\":{\"alibi\":false}}", PROA_UNSUPPORTED, "alibi");
    refused("{" MPT ",\"attn_config\":{\"clip_qkv\":-6}}", PROA_INVALID, "clip_qkv");
    refused("{" MPT ",\"attn_config\":{\"attn_type\":\"sparse_attention\"}}", PROA_UNSUPPORTED, "sparse");
    refused("{" MPT ",\"attn_config\":{\"qk_ln\":true}}", PROA_UNSUPPORTED, "qk_ln");
    refused("{" MPT ",\"logit_scale\":\"sqrt\"}", PROA_INVALID, "logit_scale");
}

#define GEMMA                                                                                                \
    "\"architectures\":[\"Gemma2ForCausalLM\"],\"vocab_size\":200,\"hidden_size\":64,\"num_hidden_layers\":" \
    "3,\"num_attention_heads\":4,\"intermediate_size\":96"

/* Absent keys have transformers' defaults; a cap that is null is off. */
static void caps(void **state)
{
    fixture f;
    PROA_UNUSED(state);
    assert_int_equal(configure(&f, "{" GEMMA "}"), PROA_OK);
    assert_true(f.c.attention_cap == 50 && f.c.logit_cap == 30 && f.c.embed_scale == 8);
    assert_true(fabs(f.c.attention_scale - 1.0 / 16) < 1e-12);
    assert_int_equal(proa_config_window(&f.c, 0), 4096);
    assert_int_equal(proa_config_window(&f.c, 1), 0);
    assert_int_equal(proa_config_window(&f.c, 2), 4096);
    proa_arena_release(&f.arena);
    assert_int_equal(
        configure(&f, "{" GEMMA ",\"attn_logit_softcapping\":null,\"final_logit_softcapping\":7}"), PROA_OK);
    assert_true(f.c.attention_cap == 0 && f.c.logit_cap == 7);
    proa_arena_release(&f.arena);
    refused("{" GEMMA ",\"attn_logit_softcapping\":-1}", PROA_INVALID, "attn_logit_softcapping");
    refused("{" GEMMA ",\"use_bidirectional_attention\":true}", PROA_UNSUPPORTED, "bidirectional");
}

#define QWEN_MOE                                                                                             \
    "\"architectures\":[\"Qwen3MoeForCausalLM\"],\"vocab_size\":200,\"hidden_size\":64,"                     \
    "\"num_hidden_layers\":6,\"num_attention_heads\":4,\"intermediate_size\":160,\"num_experts\":8,"         \
    "\"num_experts_per_tok\":3,\"moe_intermediate_size\":48"
#define DEEPSEEK                                                                                             \
    "\"architectures\":[\"DeepseekV3ForCausalLM\"],\"vocab_size\":200,\"hidden_size\":64,"                   \
    "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"intermediate_size\":160,\"kv_lora_rank\":32,"       \
    "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":16,\"n_routed_experts\":8,"               \
    "\"moe_intermediate_size\":48,\"num_experts_per_tok\":2"

/* Which layers have experts, and how these are chosen. */
static void experts(void **state)
{
    fixture f;
    PROA_UNUSED(state);
    assert_int_equal(configure(&f, "{" QWEN_MOE ",\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]}"), PROA_OK);
    for (int64_t i = 0; i < 6; i++) {
        assert_int_equal(proa_config_has_experts(&f.c, i), i == 1 || i == 5);
        assert_int_equal(proa_config_has_dense(&f.c, i), i != 1 && i != 5);
    }
    assert_true(proa_config_has_experts(&f.c, PROA_SOME_LAYER) && proa_config_has_dense(&f.c, PROA_SOME_LAYER));
    assert_int_equal(f.c.router.chosen, 3);
    assert_int_equal(proa_reg_width(f.arch, &f.c, PROA_REG_F), 160);
    proa_arena_release(&f.arena);
    assert_int_equal(configure(&f, "{" QWEN_MOE "}"), PROA_OK);
    assert_false(proa_config_has_dense(&f.c, PROA_SOME_LAYER));
    proa_arena_release(&f.arena);
    refused("{" QWEN_MOE ",\"mlp_only_layers\":[6]}", PROA_INVALID, "layer 6 of 6");
    refused("{" QWEN_MOE ",\"num_experts_per_tok\":9}", PROA_INVALID, "9 experts are chosen of 8");
    refused("{" QWEN_MOE ",\"moe_intermediate_size\":0}", PROA_INVALID, "8 experts without a size");
}

/* Latent attention: the scale of the scores is that of the heads in the checkpoint, and YaRN's factor squared. */
static void latent(void **state)
{
    fixture f;
    PROA_UNUSED(state);
    assert_int_equal(configure(&f, "{" DEEPSEEK ",\"first_k_dense_replace\":1,\"n_shared_experts\":2,"
                                   "\"n_group\":4,\"topk_group\":2}"),
                     PROA_OK);
    assert_true(f.c.head_dim == 40 && f.c.kv_heads == 1 && f.c.rotary_dim == 8 && f.c.shared_ffn == 96);
    assert_true(!proa_config_has_experts(&f.c, 0) && proa_config_has_experts(&f.c, 1));
    assert_true(f.c.router.groups == 4 && f.c.router.chosen_groups == 2 && f.c.router.group_best == 2);
    assert_true(fabs(f.c.attention_scale - 1 / sqrt(24.0)) < 1e-12);
    proa_arena_release(&f.arena);
    assert_int_equal(configure(&f, "{" DEEPSEEK ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
                                   "\"original_max_position_embeddings\":4096,\"mscale\":1.0,"
                                   "\"mscale_all_dim\":1.0}}"),
                     PROA_OK);
    double factor = 0.1 * log(40) + 1;
    assert_true(fabs(f.c.attention_scale - factor * factor / sqrt(24.0)) < 1e-12);
    assert_true(fabs(f.c.rope.scale - 1) < 1e-12);
    proa_arena_release(&f.arena);
    refused("{" DEEPSEEK ",\"n_group\":3,\"topk_group\":1}", PROA_INVALID, "groups of experts");
    refused("{" DEEPSEEK ",\"n_group\":8,\"topk_group\":1}", PROA_INVALID, "2 experts cannot be chosen");
    refused("{" DEEPSEEK ",\"kv_lora_rank\":1020}", PROA_INVALID, "head_dim");
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static bool is_class(const proa_arch *arch)
{
    return arch->outputs == PROA_DIM_LABELS;
}

/* Without 'architectures' a model type means what AutoModel of transformers opens: never a head for a task. The first
 * row of a type is taken, so one without such a head must precede those that have one. */
static void model_types(void **state)
{
    static const char *const heads[] = {"_cls", "_token", "_tok", "_qa", "_mlm", "_embed"};
    PROA_UNUSED(state);
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++) {
        const proa_arch *const *first = proa_arch_rows();
        while (*first && (is_class(*first) || strcmp((*first)->model_type, (*row)->model_type))) first++;
        if (!*first) continue; /* a type of classifiers only is none that a file without classes may name */
        for (size_t k = 0; k < PROA_COUNT(heads); k++)
            if (ends_with((*first)->name, heads[k]))
                fail_msg("model_type %s: the first row is %s", (*row)->model_type, (*first)->name);
    }
}

/* Ids that the vocabulary has not are those of a class or of a token that was never embedded: there are none. */
static void ids_outside(void **state)
{
    fixture f;
    PROA_UNUSED(state);
    assert_int_equal(configure(&f, "{" LLAMA ",\"bos_token_id\":50256,\"eos_token_id\":[7,200],"
                                   "\"pad_token_id\":200}"),
                     PROA_OK);
    assert_int_equal(f.c.bos, -1);
    assert_int_equal(f.c.pad, -1);
    assert_int_equal(f.c.end_count, 1);
    assert_int_equal(f.c.end_ids[0], 7);
    proa_arena_release(&f.arena);
}

static void refusals(void **state)
{
    PROA_UNUSED(state);
    refused("[]", PROA_CORRUPT, "object");
    refused("{}", PROA_INVALID, "architectures");
    refused("{\"architectures\":[\"LLamaForCausalLM\"]}", PROA_UNSUPPORTED, "LlamaForCausalLM");
    refused("{\"architectures\":[\"GPTNovaForCausalLM\"]}", PROA_UNSUPPORTED, "closest known");
    refused("{\"model_type\":\"rwkv\"}", PROA_UNSUPPORTED, "rwkv");
    refused("{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":200}", PROA_INVALID,
            "'hidden_size' is missing");
    refused("{" LLAMA ",\"num_key_value_heads\":3}", PROA_INVALID, "3 key-value heads");
    refused("{" LLAMA ",\"num_key_value_heads\":0}", PROA_INVALID, "num_key_value_heads");
    refused("{" LLAMA ",\"head_dim\":15}", PROA_INVALID, "rotary size 15");
    refused("{" LLAMA ",\"head_dim\":99999999}", PROA_INVALID, "99999999");
    refused("{" LLAMA ",\"max_position_embeddings\":-1}", PROA_INVALID, "max_position_embeddings");
    refused("{" LLAMA ",\"max_position_embeddings\":\"x\"}", PROA_INVALID, "must be an integer");
    refused("{" LLAMA ",\"eos_token_id\":[1,\"2\"]}", PROA_INVALID, "eos_token_id");
    refused("{" LLAMA ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8]}", PROA_LIMIT, "17");
    refused("{" LLAMA ",\"hidden_act\":\"swash\"}", PROA_UNSUPPORTED, "swash");
    refused("{" LLAMA ",\"rms_norm_eps\":7}", PROA_INVALID, "rms_norm_eps");
    refused("{\"architectures\":[\"T5ForConditionalGeneration\"],\"vocab_size\":9,\"d_model\":8,\"d_kv\":4,"
            "\"d_ff\":8,"
            "\"num_layers\":1,\"num_heads\":2,\"relative_attention_max_distance\":16}",
            PROA_INVALID, "relative_attention_max_distance");
    refused("{\"architectures\":[\"BertModel\"],\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":1,"
            "\"num_attention_heads\":2,\"intermediate_size\":8,\"position_embedding_type\":\"relative_key\"}",
            PROA_UNSUPPORTED, "relative_key");
}

#define DEBERTA                                                                                              \
    "\"architectures\":[\"DebertaV2Model\"],\"vocab_size\":200,\"hidden_size\":64,\"num_hidden_layers\":2,"  \
    "\"num_attention_heads\":4,\"intermediate_size\":96"
#define RELATIVE ",\"relative_attention\":true,\"pos_att_type\":[\"c2p\",\"p2c\"]"
#define XLNET                                                                                                \
    "\"architectures\":[\"XLNetForSequenceClassification\"],\"vocab_size\":200,\"d_model\":64,"              \
    "\"n_layer\":2,\"n_head\":4,\"d_inner\":96"

static void relative_positions(void **state)
{
    fixture f;
    PROA_UNUSED(state);
    assert_int_equal(configure(&f, "{" DEBERTA RELATIVE ",\"position_buckets\":256}"), PROA_OK);
    assert_true(f.c.relative.used && f.c.relative.own && f.c.relative.queries && !f.c.relative.normed);
    assert_true(f.c.relative.span == 256 && f.c.relative.distance == 512);
    assert_true(fabs(f.c.attention_scale - 1 / sqrt(48.0)) < 1e-12);
    proa_arena_release(&f.arena);
    assert_int_equal(configure(&f, "{" DEBERTA RELATIVE ",\"max_relative_positions\":20}"), PROA_OK);
    assert_true(f.c.relative.span == 20 && f.c.relative.distance == 0);
    proa_arena_release(&f.arena);
    refused("{" DEBERTA "}", PROA_UNSUPPORTED, "relative_attention");
    refused("{" DEBERTA ",\"relative_attention\":true,\"pos_att_type\":\"c2c\"}", PROA_UNSUPPORTED, "p2c");
    refused("{" DEBERTA RELATIVE ",\"position_buckets\":1}", PROA_INVALID, "position_buckets");
    refused("{" DEBERTA RELATIVE ",\"position_buckets\":2000}", PROA_INVALID, "position_buckets");
    refused("{" DEBERTA RELATIVE ",\"max_position_embeddings\":99999}", PROA_INVALID, "max_position_embeddings");
    refused("{" DEBERTA RELATIVE ",\"norm_rel_ebd\":\"rms\"}", PROA_UNSUPPORTED, "norm_rel_ebd");
    refused("{" DEBERTA RELATIVE ",\"conv_kernel_size\":4}", PROA_UNSUPPORTED, "convolution of 4");
    refused("{" DEBERTA RELATIVE ",\"conv_kernel_size\":3,\"conv_groups\":2}", PROA_UNSUPPORTED, "2 groups");
    refused("{" DEBERTA RELATIVE ",\"pooler_hidden_size\":32}", PROA_UNSUPPORTED, "pooler_hidden_size");
    refused("{" DEBERTA RELATIVE ",\"attention_head_size\":1000}", PROA_LIMIT, "1000");
    assert_int_equal(configure(&f, "{" XLNET ",\"clamp_len\":-1}"), PROA_OK);
    assert_true(f.c.relative.span == 0 && f.c.relative.clamp == 0 && f.c.context == 1024);
    proa_arena_release(&f.arena);
    refused("{" XLNET ",\"attn_type\":\"uni\"}", PROA_UNSUPPORTED, "attn_type");
    refused("{" XLNET ",\"bi_data\":true}", PROA_UNSUPPORTED, "bi_data");
    refused("{" XLNET ",\"summary_type\":\"mean\"}", PROA_UNSUPPORTED, "summary_type");
    refused("{" XLNET ",\"summary_use_proj\":false}", PROA_UNSUPPORTED, "projection");
}

/* The files before transformers 5 name a period and two bases, those after it layer types and rope parameters. */
static void local_attention(void **state)
{
    static const char old[] =
        "{\"architectures\":[\"ModernBertModel\"],\"vocab_size\":200,\"hidden_size\":64,"
        "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"intermediate_size\":96,"
        "\"local_attention\":128,\"global_attn_every_n_layers\":3,"
        "\"global_rope_theta\":160000.0,\"local_rope_theta\":10000.0}";
    fixture f;
    PROA_UNUSED(state);
    assert_int_equal(configure(&f, old), PROA_OK);
    assert_true(f.c.rope.theta == 160000 && f.c.local_rope.theta == 10000);
    assert_int_equal(proa_config_window(&f.c, 0), 0);
    assert_int_equal(proa_config_window(&f.c, 1), 65);
    assert_int_equal(proa_config_window(&f.c, 2), 65);
    assert_int_equal(proa_config_window(&f.c, 3), 0);
    proa_arena_release(&f.arena);
}

/* Every row's programs name only registers that have a width, and slots that its name map fills. */
static void rows_are_whole(void **state)
{
    PROA_UNUSED(state);
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++) {
        const proa_arch *arch = *row;
        const proa_step *programs[] = {arch->stacks[0].embed,
                                       arch->stacks[0].layer,
                                       arch->stacks[0].after,
                                       arch->stacks[1].embed,
                                       arch->stacks[1].layer,
                                       arch->stacks[1].after,
                                       arch->cross,
                                       arch->head,
                                       arch->pool,
                                       arch->fuse};
        for (size_t p = 0; p < PROA_COUNT(programs); p++)
            for (const proa_step *s = programs[p]; s && s->op != PROA_STEP_END; s++) {
                bool weight = s->op == PROA_STEP_EMBED || s->op == PROA_STEP_NORM ||
                              s->op == PROA_STEP_LINEAR || s->op == PROA_STEP_LINEAR_GATED;
                bool of_target = arch->of_target && (s->w == PROA_SLOT_TOKENS || s->w == PROA_SLOT_HEAD);
                bool found = !weight || of_target;
                for (const proa_name *n = arch->names; n->name; n++) found |= n->slot == s->w;
                if (!found) fail_msg("%s: no tensor fills slot %s", arch->name, proa_slot_name(s->w));
            }
        assert_non_null(arch->finish);
        assert_non_null(arch->head);
    }
}

/* Layers with heads of another shape have operations of their own, and a layer without attention has none. */
static void pair_ops(void **state)
{
    bool other[] = {false, true, false}, attends[] = {true, true, false};
    proa_config c = {.layers = 3, .heads = 4, .head_dim = 8, .other_query_heads = 2, .other_head_dim = 32};
    (void)state;
    assert_true(proa_config_pair_ops(&c, 0, 3) == 3 * 4 * 4 * 8);
    c.other_heads = other, c.attending_layers = attends;
    assert_true(proa_config_pair_ops(&c, 0, 3) == 4 * 4 * 8 + 4 * 2 * 32);
    assert_true(proa_config_pair_ops(&c, 2, 3) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_of_llama),
                                       cmocka_unit_test(rope_old_and_new),
                                       cmocka_unit_test(windows),
                                       cmocka_unit_test(model_types),
                                       cmocka_unit_test(alibi),
                                       cmocka_unit_test(caps),
                                       cmocka_unit_test(experts),
                                       cmocka_unit_test(latent),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(ids_outside),
                                       cmocka_unit_test(relative_positions),
                                       cmocka_unit_test(local_attention),
                                       cmocka_unit_test(pair_ops),
                                       cmocka_unit_test(rows_are_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
