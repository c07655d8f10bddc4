/* SPDX-License-Identifier: Apache-2.0
 * test_multimodal.c - classes whose text model is a row of its own: which row that is, and where its keys are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/limits.h"
#include "config_fixture.h"
#include "model/derive.h"
#include "model/multimodal.h"

#define CLASS(name) "{\"architectures\":[\"" name "\"],"
#define SIZES                                                                                                \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4,\"num_hidden_layers\":3,"         \
    "\"vocab_size\":200"

/* llava-hf/llava-1.5-7b-hf: the sizes are those of the class. */
static void defaults(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, CLASS("LlavaForConditionalGeneration") "\"ignore_index\":-100,\"image_token_index\":32000,"
                                                        "\"model_type\":\"llava\",\"pad_token_id\":32001,"
                                                        "\"text_config\":{\"architectures\":"
                                                        "[\"LlamaForCausalLM\"],\"max_position_embeddings\":"
                                                        "4096,\"model_type\":\"llama\","
                                                        "\"rms_norm_eps\":1e-05,\"torch_dtype\":\"float16\","
                                                        "\"vocab_size\":32064},"
                                                        "\"tie_word_embeddings\":false,\"vision_config\":{"
                                                        "\"hidden_size\":1024,\"vocab_size\":32000}}");
    assert_string_equal(f.arch->name, "llava");
    assert_ptr_equal(f.arch->names, proa_arch_llama.names);
    assert_int_equal(f.c.vocab, 32064);
    assert_int_equal(f.c.hidden, 4096);
    assert_int_equal(f.c.layers, 32);
    assert_int_equal(f.c.kv_heads, 32);
    assert_int_equal(f.c.ffn, 11008);
    assert_int_equal(f.c.context, 4096);
    assert_int_equal(f.c.pad, 32001);
    assert_true(f.c.norm_eps == 1e-5 && f.c.rope.theta == 10000 && !f.c.tied);
    proa_arena_release(&f.arena);
}

/* llava-hf/llava-v1.6-mistral-7b-hf: null is no default. */
static void other_text_model(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, CLASS("LlavaNextForConditionalGeneration") "\"text_config\":{\"intermediate_size\":14336,"
                                                            "\"max_position_embeddings\":32768,\"model_"
                                                            "type\":\"mistral\",\"num_key_value_heads\":8,"
                                                            "\"rms_norm_eps\":1e-05,\"rope_theta\":1000000.0,"
                                                            "\"sliding_window\":null,\"vocab_size\":32064}}");
    assert_ptr_equal(f.arch->finish, proa_arch_mistral.finish);
    assert_int_equal(f.c.kv_heads, 8);
    assert_false(f.c.window_used);
    assert_true(f.c.rope.theta == 1e6);
    proa_arena_release(&f.arena);
    accepted(&f, CLASS("InternVLChatModel") "\"model_type\":\"internvl_chat\",\"llm_config\":{\"model_type\":"
                                            "\"internlm2\"," SIZES
                                            ",\"num_key_value_heads\":2,\"bos_token_id\":7}}");
    assert_ptr_equal(f.arch->names, proa_arch_internlm2.names);
    assert_int_equal(f.c.bos, 7);
    proa_arena_release(&f.arena);
}

/* PaddlePaddle/PaddleOCR-VL has the keys outside; of Qwen/Qwen2.5-Omni-7B they are two objects deep. */
static void places_of_keys(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             CLASS("PaddleOCRVLForConditionalGeneration") "\"model_type\":\"paddleocr_vl\"," SIZES
                                                          ",\"rope_scaling\":{\"mrope_section\":[16,24,24],"
                                                          "\"rope_type\":\"default\",\"type\":\"default\"},"
                                                          "\"head_dim\":16,\"tie_word_embeddings\":false}");
    assert_int_equal(f.c.head_dim, 16);
    assert_int_equal(f.c.kv_heads, 2);
    assert_true(f.c.rope.theta == 500000 && f.c.norm_eps == 1e-5);
    proa_arena_release(&f.arena);
    accepted(&f, CLASS("Qwen2_5OmniModel") "\"model_type\":\"qwen2_5_omni\",\"talker_config\":{" SIZES "},"
                                           "\"thinker_config\":{\"audio_config\":{\"d_model\":8},\"text_"
                                           "config\":{\"model_type\":"
                                           "\"qwen2_5_omni_text\",\"num_hidden_layers\":5,\"rope_scaling\":{"
                                           "\"mrope_section\":[16,24,24],"
                                           "\"rope_type\":\"default\"},\"tie_word_embeddings\":false}}}");
    assert_int_equal(f.c.layers, 5);
    assert_int_equal(f.c.hidden, 3584);
    assert_int_equal(f.c.kv_heads, 4);
    assert_true(f.c.rope.theta == 1e6);
    proa_arena_release(&f.arena);
}

/* Types that are another row with defaults of their own. */
static void other_defaults(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f,
             CLASS("Glm4vForConditionalGeneration") "\"text_config\":{\"model_type\":\"glm4v_text\"," SIZES
                                                    "}}");
    assert_ptr_equal(f.arch->names, proa_arch_glm4.names);
    assert_int_equal(f.c.rotary_dim, 16);
    assert_true(f.c.attention_bias && f.c.norm_eps == 1e-5);
    proa_arena_release(&f.arena);
    accepted(&f, CLASS("GlmOcrForConditionalGeneration") "\"text_config\":{" SIZES
                                                         ",\"num_key_value_heads\":2}}");
    assert_false(f.c.attention_bias);
    proa_arena_release(&f.arena);
    accepted(&f, CLASS("HunYuanVLForConditionalGeneration") SIZES
             ",\"rope_scaling\":{\"alpha\":1000.0,"
             "\"factor\":1.0,\"type\":\"xdrope\",\"xdrope_section\":[2,2,2,2]}}");
    assert_true(f.c.rope.theta > 1e7);
    proa_arena_release(&f.arena);
}

static void refusals(void **state)
{
    PROA_UNUSED(state);
    refused(CLASS("LlavaForConditionalGeneration") "\"text_config\":{\"model_type\":\"bert\"," SIZES "}}",
            PROA_UNSUPPORTED, "LlavaForConditionalGeneration: a text model 'bert' is not supported");
    refused(CLASS("LlavaForConditionalGeneration") "\"text_config\":{\"model_type\":7}}", PROA_INVALID,
            "'model_type'");
    refused(
        CLASS(
            "LlavaForConditionalGeneration") "\"text_config\":{\"model_type\":\"gemma\",\"use_bidirectional_"
                                             "attention\":true}}",
        PROA_UNSUPPORTED, "'use_bidirectional_attention' true");
    refused(CLASS("LlavaForConditionalGeneration") "\"text_config\":{\"hidden_size\":null}}", PROA_INVALID,
            "'hidden_size' is missing");
}

/* Each family is listed once over its usual text model, and no class has two rows. */
static void families(void **state)
{
    PROA_UNUSED(state);
    int count = 0;
    for (; proa_multimodal_row(count); count++) {
        const proa_arch *row = proa_multimodal_row(count);
        assert_non_null(row->text);
        assert_int_equal(row->kind, PROA_KIND_DECODER);
        for (const char *const *hf = row->hf; *hf; hf++)
            for (const proa_arch *const *other = proa_arch_rows(); *other; other++)
                for (const char *const *name = (*other)->hf; *name; name++)
                    if (*other != row && strcmp(*name, *hf) == 0)
                        fail_msg("%s: %s, too", *hf, (*other)->name);
    }
    assert_true(count > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),       cmocka_unit_test(other_text_model),
        cmocka_unit_test(places_of_keys), cmocka_unit_test(other_defaults),
        cmocka_unit_test(refusals),       cmocka_unit_test(families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
