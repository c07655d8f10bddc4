/* SPDX-License-Identifier: Apache-2.0
 * test_rope.c - scaled rotary positions: frequencies of published configurations, and what a file must say.
 * The expected numbers are the formulas of the papers in double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config_fixture.h"
#include <math.h>

/* A Llama with `head_dim` and `context`, and more keys. */
#define LLAMA(head_dim, context, more)                                                                       \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":200,\"hidden_size\":256,\"num_hidden_"         \
    "layers\":2,"                                                                                            \
    "\"num_attention_heads\":2,\"intermediate_size\":160,\"head_dim\":" #head_dim                            \
    ",\"max_position_embeddings\":" #context "," more "}"

static float freq[PROA_HEAD_DIM_MAX / 2];

static void read_frequencies(fixture *f, const char *text)
{
    accepted(f, text);
    proa_rope_inv_freq(&f->c.rope, f->c.rotary_dim, false, freq);
}

static void near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-6 * fabs(want))) fail_msg("%.9g, expected %.9g", have, want);
}

/* DeepSeek-V3: mscale and mscale_all_dim are equal, so cosines are not scaled. */
static void yarn_of_deepseek(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_frequencies(
        &f, LLAMA(64, 163840,
                  "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"beta_fast\":32,"
                  "\"beta_slow\":1,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
                  "\"original_max_position_embeddings\":4096}"));
    near((double)freq[8], 0.1);
    near((double)freq[12], 0.0268793601);
    near((double)freq[20], 0.000790569415);
    near((double)freq[24], 2.5e-05);
    near((double)freq[31], 3.33380358e-06);
    near(f.c.rope.scale, 1);
    near(f.c.rope.mscale_all, 1);
    assert_int_equal(f.c.context, 163840);
    proa_arena_release(&f.arena);
}

/* Qwen2.5 as its model card sets it: max_position_embeddings stays what it was. */
static void yarn_of_qwen(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_frequencies(&f, LLAMA(128, 32768,
                               "\"rope_theta\":1000000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
                               "\"original_max_position_embeddings\":32768}"));
    near((double)freq[12], 0.0749894209);
    near((double)freq[24], 0.00537532149);
    near((double)freq[30], 0.00106436098);
    near((double)freq[63], 3.1023444e-07);
    near(f.c.rope.scale, 1.138629436111989);
    assert_int_equal(f.c.context, 131072);
    proa_arena_release(&f.arena);
}

/* gpt-oss: the ramp begins and ends between dimensions. */
static void yarn_of_gpt_oss(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_frequencies(
        &f, LLAMA(64, 131072,
                  "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":150000,\"factor\":32.0,"
                  "\"beta_fast\":32.0,\"beta_slow\":1.0,\"truncate\":false,"
                  "\"original_max_position_embeddings\":4096}"));
    near((double)freq[8], 0.0508132748);
    near((double)freq[12], 0.00679495949);
    near((double)freq[16], 0.000456483919);
    near((double)freq[20], 1.81883367e-05);
    near(f.c.rope.scale, 1.3465735902799727);
    assert_int_equal(f.c.context, 131072);
    proa_arena_release(&f.arena);
}

/* Without a scaling, or with null, the class has that of the published models; one that says "default" has none. */
static void default_of_gpt_oss(void **state)
{
    PROA_UNUSED(state);
    static const char *const more[] = {"\"rope_scaling\":null", "\"rope_parameters\":null",
                                       "\"rope_scaling\":{\"rope_type\":\"default\"}"};
    for (size_t i = 0; i < PROA_COUNT(more); i++) {
        fixture f;
        char text[512];
        snprintf(text, sizeof text,
                 "{\"architectures\":[\"GptOssForCausalLM\"],\"vocab_size\":200,\"hidden_size\":64,"
                 "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"intermediate_size\":64,"
                 "\"num_local_experts\":4,\"rope_theta\":150000,%s}",
                 more[i]);
        read_frequencies(&f, text);
        bool scaled = i < 2;
        near((double)freq[8], 0.0508132748);
        near((double)freq[20], scaled ? 1.81883367e-05 : 0.000582026774);
        if (scaled) near(f.c.rope.scale, 1.3465735902799727);
        assert_int_equal(f.c.context, 131072);
        proa_arena_release(&f.arena);
    }
}

/* attention_factor wins over what follows from the factor, and null means not named. */
static void attention_factors(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_frequencies(
        &f, LLAMA(64, 64, "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":0.5}"));
    near(f.c.rope.scale, 0.5);
    proa_arena_release(&f.arena);
    read_frequencies(&f, LLAMA(64, 64,
                               "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":null,"
                               "\"beta_fast\":null,\"mscale\":0.707,\"mscale_all_dim\":0}"));
    near(f.c.rope.scale, 1.138629436111989);
    near(f.c.rope.beta_fast, 32);
    proa_arena_release(&f.arena);
}

/* The base of a 40 token sequence for a model of 32. */
static void dynamic_ntk(void **state)
{
    static const double want[] = {1,
                                  0.298431118,
                                  0.0890611322,
                                  0.0265786132,
                                  0.00793188526,
                                  0.00236712139,
                                  0.000706422682,
                                  0.000210818511};
    PROA_UNUSED(state);
    fixture f;
    read_frequencies(&f, LLAMA(16, 32, "\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2.0}"));
    proa_rope_freqs freqs = {.inv_freq = freq, .scale = 1, .ntk_factor = 2, .border = 32};
    for (int i = 0; i < 8; i++) {
        near((double)proa_rope_freq(&freqs, 40, i, 16), want[i]);
        near((double)proa_rope_freq(&freqs, 32, i, 16), pow(10000, -i / 8.0));
    }
    assert_int_equal(f.c.context, 64);
    assert_true(proa_rope_by_length(&f.c.rope));
    assert_int_equal(proa_rope_length(&f.c.rope, 5, 40, 99), 40);
    assert_int_equal(proa_rope_length(&f.c.rope, 40, 40, 99), 41);
    f.c.rope.kind = PROA_ROPE_DOUBLED;
    assert_int_equal(proa_rope_length(&f.c.rope, 5, 9, 99), 32);
    assert_int_equal(proa_rope_length(&f.c.rope, 99, 65, 199), 128);
    proa_arena_release(&f.arena);
}

#define FACTORS "\"short_factor\":[1,1.5],\"long_factor\":[2,8]"

/* The attention factor of Phi-3.5-mini, and the lists by the length that a sequence can come to. */
static void longrope(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_frequencies(
        &f, LLAMA(4, 131072,
                  "\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"longrope\"," FACTORS
                  "}"));
    near(f.c.rope.scale, 1.1902380714238083);
    near((double)freq[1], 0.01 / 1.5);
    proa_rope_inv_freq(&f.c.rope, f.c.rotary_dim, true, freq);
    near((double)freq[0], 0.5);
    near((double)freq[1], 0.01 / 8);
    assert_int_equal(f.c.rope.original, 4096);
    assert_int_equal(f.c.context, 131072);
    assert_int_equal(proa_rope_length(&f.c.rope, 5, 40, 99), 99);
    proa_arena_release(&f.arena);
}

/* Older names of longrope, and Phi-3.5-MoE's own factors of cosines. */
static void longrope_names(void **state)
{
    static const char *const names[] = {"su", "yarn"};
    PROA_UNUSED(state);
    fixture f;
    for (int i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 LLAMA(4, 131072,
                       "\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"%s\"," FACTORS "}"),
                 names[i]);
        read_frequencies(&f, text);
        assert_int_equal(f.c.rope.kind, PROA_ROPE_LONG);
        proa_arena_release(&f.arena);
    }
    read_frequencies(
        &f, LLAMA(4, 131072,
                  "\"rope_scaling\":{\"type\":\"longrope\",\"short_mscale\":1.25,\"long_mscale\":1.5,"
                  "\"original_max_position_embeddings\":4096," FACTORS "}"));
    near(f.c.rope.scale, 1.25);
    near(f.c.rope.long_scale, 1.5);
    assert_int_equal(f.c.rope.original, 4096);
    proa_arena_release(&f.arena);
}

/* transformers 5 writes one object for each layer type. */
static void by_layer_type(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    read_frequencies(&f,
                     LLAMA(16, 64,
                           "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,"
                           "\"rope_theta\":1000000},\"sliding_attention\":{\"rope_theta\":500}}"));
    assert_int_equal(f.c.rope.kind, PROA_ROPE_LINEAR);
    assert_int_equal(f.c.local_rope.kind, PROA_ROPE_PLAIN);
    near(f.c.rope.theta, 1e6);
    near(f.c.local_rope.theta, 500);
    near((double)freq[4], 1e-3 / 8);
    proa_arena_release(&f.arena);
}

static void refusals(void **state)
{
    PROA_UNUSED(state);
    refused(LLAMA(4, 64, "\"rope_scaling\":{\"type\":\"spiral\",\"factor\":4}"), PROA_UNSUPPORTED, "spiral");
    refused(LLAMA(4, 64, "\"rope_scaling\":{\"type\":\"dynamic\"}"), PROA_INVALID, "factor");
    refused(LLAMA(2, 64, "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}"), PROA_INVALID, "2 rotary");
    refused(LLAMA(4, 64, "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1]}"), PROA_INVALID,
            "long_factor");
    refused(LLAMA(8, 64, "\"rope_scaling\":{\"type\":\"longrope\"," FACTORS "}"), PROA_INVALID, "4 numbers");
    refused(LLAMA(4, 64, "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,0],\"long_factor\":[1,1]}"),
            PROA_INVALID, "'short_factor' entry 1");
    refused(LLAMA(4, 64, "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1],\"long_factor\":[1,\"2\"]}"),
            PROA_INVALID, "'long_factor' entry 1");
    refused(LLAMA(4, 64, "\"rope_theta\":1,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2}"), PROA_INVALID,
            "rope_theta");
    refused(LLAMA(4, 64, "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":3}"), PROA_INVALID,
            "truncate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yarn_of_deepseek),  cmocka_unit_test(yarn_of_qwen),
        cmocka_unit_test(yarn_of_gpt_oss),   cmocka_unit_test(default_of_gpt_oss),
        cmocka_unit_test(attention_factors), cmocka_unit_test(dynamic_ntk),
        cmocka_unit_test(longrope),          cmocka_unit_test(longrope_names),
        cmocka_unit_test(by_layer_type),     cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
