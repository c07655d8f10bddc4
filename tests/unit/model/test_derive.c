/* SPDX-License-Identifier: Apache-2.0
 * test_derive.c - the rows that are made of other rows: what they keep, and what their configurations say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/limits.h"
#include "config_fixture.h"
#include "model/derive.h"

#define SIZES                                                                                                \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4,\"num_hidden_layers\":3,"         \
    "\"vocab_size\":200"
#define GPT2 "\"n_embd\":64,\"n_head\":4,\"n_layer\":3,\"n_positions\":64,\"vocab_size\":200"
#define OPT                                                                                                  \
    "\"hidden_size\":64,\"ffn_dim\":96,\"num_attention_heads\":4,\"num_hidden_layers\":3,\"vocab_size\":200"
#define CLASS(name) "{\"architectures\":[\"" name "\"],"

static int64_t count_names(const proa_arch *arch, bool heads)
{
    int64_t count = 0;
    for (const proa_name *n = arch->names; n->name; n++)
        count += heads == (n->slot == PROA_SLOT_HEAD || n->slot == PROA_SLOT_HEAD_B);
    return count;
}

/* Two rows of one class would hide each other, unless a key tells them apart. */
static void expect_own_class(const proa_arch *const *row)
{
    for (const proa_arch *const *other = proa_arch_rows(); other < row; other++)
        for (const char *const *hf = (*other)->hf; *hf; hf++)
            if (strcmp(*hf, (*row)->hf[0]) == 0)
                fail_msg("%s: %s has %s, too", (*row)->name, (*other)->name, *hf);
}

/* All but the head is the decoder's. */
static void expect_layers_of_decoder(const proa_arch *a)
{
    const proa_arch *decoder = a->origin;
    assert_int_equal(a->kind, PROA_KIND_ENCODER);
    assert_int_equal(count_names(a, false), count_names(decoder, false));
    assert_int_equal(count_names(a, true), a->form == PROA_FORM_BARE ? 0 : 2);
    for (const proa_name *n = a->names; n->name; n++) assert_int_equal(n->stack, PROA_STACK_ENCODER);
    assert_ptr_equal(a->stacks[PROA_STACK_ENCODER].layer, decoder->stacks[PROA_STACK_DECODER].layer);
    assert_null(a->stacks[PROA_STACK_DECODER].layer);
    assert_true(a->stacks[PROA_STACK_ENCODER].causal);
}

static int64_t count_steps(const proa_step *steps, proa_step_op op)
{
    int64_t count = 0;
    for (; steps->op != PROA_STEP_END; steps++) count += steps->op == op;
    return count;
}

/* A decoder has one stack, whose layers attend to nothing else; an encoder that decodes its input has both. */
static void expect_layers(const proa_arch *a)
{
    const proa_stack *decoder = &a->stacks[PROA_STACK_DECODER], *encoder = &a->stacks[PROA_STACK_ENCODER];
    bool causal = a->form == PROA_FORM_CAUSAL;
    assert_int_equal(a->kind, causal ? PROA_KIND_DECODER : PROA_KIND_ENCODER);
    assert_true(decoder->causal);
    assert_int_equal(count_steps(decoder->layer, PROA_STEP_ATTEND), 1);
    assert_int_equal(count_steps(decoder->layer, PROA_STEP_CROSS_ATTEND), !causal);
    assert_int_equal(count_steps(decoder->layer, PROA_STEP_CROSS_APPEND), !causal);
    assert_null(a->cross);
    if (!causal) {
        assert_ptr_equal(encoder->layer, a->origin->stacks[PROA_STACK_ENCODER].layer);
        return;
    }
    assert_null(encoder->layer);
    for (const proa_name *n = a->names; n->name; n++) assert_int_equal(n->stack, PROA_STACK_DECODER);
}

/* Of an encoder: the same layers, which see both sides, and a head behind its pooler. */
static void expect_layers_of_encoder(const proa_arch *a)
{
    const proa_arch *encoder = a->origin;
    bool labelled = encoder->outputs == PROA_DIM_LABELS;
    assert_int_equal(a->kind, PROA_KIND_ENCODER);
    assert_int_equal(a->outputs, PROA_DIM_LABELS);
    assert_int_equal(count_names(a, true), 2);
    assert_int_equal(count_names(a, false), count_names(encoder, false));
    assert_memory_equal(a->stacks, encoder->stacks, sizeof a->stacks);
    assert_true(labelled || encoder->pool);
    assert_null(a->pool);
    for (const proa_name *n = a->names; !labelled && n->name; n++)
        if (n->slot == PROA_SLOT_POOL) assert_false(n->flags & PROA_IF(PRESENT));
}

static bool is_encoder_of_encoder(const proa_arch *a)
{
    return a->origin->kind == PROA_KIND_ENCODER && a->form != PROA_FORM_CAUSAL;
}

static void keep_the_layers(void **state)
{
    PROA_UNUSED(state);
    int64_t made = 0;
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++) {
        const proa_arch *a = *row;
        if (!a->origin) continue;
        made++;
        if (a->origin->kind == PROA_KIND_DECODER) expect_layers_of_decoder(a);
        else if (is_encoder_of_encoder(a)) expect_layers_of_encoder(a);
        else expect_layers(a);
        assert_ptr_equal(proa_arch_of_form(a->origin, a->form), a);
        expect_own_class(row);
    }
    assert_true(made > 100);
}

static void expect_passed_over(const char *text, int64_t want)
{
    fixture f;
    accepted(&f, text);
    if (f.c.passed_over != want)
        fail_msg("%s: %lld, expected %lld", text, (long long)f.c.passed_over, (long long)want);
    proa_arena_release(&f.arena);
}

/* The padding token is that of config.json, or the default of the class; null is none. */
static void padding(void **state)
{
    PROA_UNUSED(state);
    expect_passed_over(CLASS("GPT2ForSequenceClassification") GPT2 "}", -1);
    expect_passed_over(CLASS("GPT2ForSequenceClassification") GPT2 ",\"pad_token_id\":7}", 7);
    expect_passed_over(CLASS("GPT2ForSequenceClassification") GPT2 ",\"pad_token_id\":50256}", -1);
    expect_passed_over(CLASS("GPT2ForTokenClassification") GPT2 ",\"pad_token_id\":7}", -1);
    expect_passed_over(CLASS("GPT2Model") GPT2 ",\"pad_token_id\":7}", -1);
    expect_passed_over(CLASS("OPTForSequenceClassification") OPT "}", 1);
    expect_passed_over(CLASS("OPTForSequenceClassification") OPT ",\"pad_token_id\":null}", -1);
    expect_passed_over(CLASS("OlmoForSequenceClassification") SIZES "}", 1);
    expect_passed_over(CLASS("Exaone4ForSequenceClassification") SIZES ",\"num_key_value_heads\":4}", -1);
    expect_passed_over(CLASS("GemmaForSequenceClassification") SIZES ",\"num_key_value_heads\":1}", 0);
    expect_passed_over(CLASS("Phi3ForSequenceClassification") SIZES "}", -1); /* 32000, which is no token here */
    expect_passed_over(CLASS("LlamaForSequenceClassification") SIZES ",\"pad_token_id\":-1}", -1);
}

/* generation_config.json says nothing of a classifier. */
static void padding_of_generation(void **state)
{
    PROA_UNUSED(state);
    static const char config[] = CLASS("GPT2ForSequenceClassification") GPT2 ",\"pad_token_id\":7}";
    proa_json *json = NULL, *generation = NULL;
    fixture f = {0};
    proa_arena_init(&f.arena);
    assert_int_equal(proa_json_parse(&json, proa_str_c(config), "config.json", &f.err), PROA_OK);
    assert_int_equal(proa_json_parse(&generation, proa_str_c("{\"pad_token_id\":9}"), "generation", &f.err),
                     PROA_OK);
    assert_int_equal(proa_arch_configure(&f.arch, &f.c, json, generation, &f.arena, &f.err), PROA_OK);
    assert_int_equal(f.c.passed_over, 7);
    proa_json_free(json);
    proa_json_free(generation);
    proa_arena_release(&f.arena);
}

static void labels(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(&f, CLASS("GPT2ForSequenceClassification") GPT2 ",\"id2label\":{\"0\":\"a\"}}");
    assert_int_equal(f.c.labels, 1);
    assert_true(f.c.regression);
    assert_int_equal(f.c.layers, 0);
    assert_int_equal(f.c.encoder_layers, 3);
    proa_arena_release(&f.arena);
    accepted(&f, CLASS("GPT2ForTokenClassification") GPT2 ",\"num_labels\":5}");
    assert_int_equal(f.c.labels, 5);
    proa_arena_release(&f.arena);
    accepted(&f, CLASS("GPT2ForQuestionAnswering") GPT2 ",\"num_labels\":5}");
    assert_int_equal(f.c.labels, 2);
    proa_arena_release(&f.arena);
}

/* A choice is one number, and whether a text follows another has two classes, whatever config.json says of labels. */
static void labels_of_pairs(void **state)
{
    PROA_UNUSED(state);
    static const char *const choices[] = {CLASS("BertForMultipleChoice") SIZES ",\"num_labels\":5}",
                                          CLASS("ModernBertForMultipleChoice") SIZES ",\"num_labels\":5}",
                                          CLASS("ElectraForMultipleChoice") SIZES ",\"num_labels\":5}",
                                          CLASS("RoFormerForMultipleChoice") SIZES "}"};
    fixture f;
    for (size_t i = 0; i < PROA_COUNT(choices); i++) {
        accepted(&f, choices[i]);
        assert_int_equal(f.c.labels, 1);
        assert_true(f.c.regression);
        proa_arena_release(&f.arena);
    }
    accepted(&f, CLASS("BertForNextSentencePrediction") SIZES ",\"num_labels\":1}");
    assert_int_equal(f.c.labels, 2);
    assert_false(f.c.regression);
    proa_arena_release(&f.arena);
}

static void refusals(void **state)
{
    PROA_UNUSED(state);
    refused(CLASS("GPTNeoXModel") SIZES ",\"is_causal\":false}", PROA_UNSUPPORTED, "'is_causal' false");
    refused(CLASS("GemmaForCausalLM") SIZES ",\"use_bidirectional_attention\":true}", PROA_UNSUPPORTED,
            "'use_bidirectional_attention' true");
    refused(CLASS("OPTModel") OPT ",\"word_embed_proj_dim\":24}", PROA_UNSUPPORTED, "hidden states of 24");
    refused(CLASS("OlmoForTokenClassification") SIZES "}", PROA_UNSUPPORTED,
            "'OlmoForTokenClassification' is not");
    refused(CLASS("GPT2ForSequenceClassification") GPT2 ",\"num_labels\":0}", PROA_INVALID, "'num_labels'");
    refused(CLASS("ElectraForMultipleChoice") SIZES ",\"summary_use_proj\":false}", PROA_UNSUPPORTED,
            "'summary_use_proj' false");
    refused(CLASS("RoFormerForMultipleChoice") SIZES ",\"summary_type\":\"first\"}", PROA_UNSUPPORTED,
            "'summary_type' 'first'");
    refused(CLASS("BertLMHeadModel") SIZES "}", PROA_UNSUPPORTED, "'is_decoder' false");
    refused(CLASS("RobertaForCausalLM") SIZES ",\"is_decoder\":true,\"add_cross_attention\":true}",
            PROA_UNSUPPORTED, "'add_cross_attention' true");
}

/* The layers and sizes of a decoder alone are those of its stack. */
static void decoders_alone(void **state)
{
    PROA_UNUSED(state);
    fixture f;
    accepted(
        &f,
        CLASS(
            "BartForCausalLM") "\"vocab_size\":200,\"d_model\":64,\"encoder_layers\":2,\"decoder_layers\":3,"
                               "\"encoder_attention_heads\":4,\"encoder_ffn_dim\":64,"
                               "\"decoder_attention_heads\":2,\"decoder_ffn_dim\":96}");
    assert_true(f.c.layers == 3 && f.c.encoder_layers == 0 && f.c.heads == 2 && f.c.ffn == 96);
    assert_true(f.c.encoder_heads == 0 && f.c.encoder_ffn == 0 && f.c.position_offset == 2);
    proa_arena_release(&f.arena);
    accepted(&f, CLASS("RobertaForCausalLM") SIZES ",\"is_decoder\":true}");
    assert_true(f.c.layers == 3 && f.c.encoder_layers == 0 && f.c.position_offset == 2);
    proa_arena_release(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keep_the_layers),       cmocka_unit_test(padding),
                                       cmocka_unit_test(padding_of_generation), cmocka_unit_test(labels),
                                       cmocka_unit_test(labels_of_pairs),       cmocka_unit_test(refusals),
                                       cmocka_unit_test(decoders_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
