/* SPDX-License-Identifier: Apache-2.0
 * test_processors.c - the processors that transformers alone has, its cutoffs, and its generation_config.json, against
 *                     tests/golden/processors.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "options/options.h"
#include "engine/decode/logits_processor.h"
#include "engine/decode/sampler.h"
#include "engine/generation_config.h"
#include "golden_logits.h"
#include "kernels/reference/reference.h"

static proa_options read_case(const proa_json *c, proa_arena *arena)
{
    proa_options o = {.given = {false}};
    proa_err err = {0};
    proa_status status = proa_options_read_json(&o, proa_json_get(c, "options"), true, arena, &err);
    if (status == PROA_OK) status = proa_options_check(&o, GOLDEN_ROW, 16, &err);
    if (status != PROA_OK) fail_msg("%s", err.text);
    return o;
}

static void expect_row(const float *got, const float *want, int n, int64_t at)
{
    for (int i = 0; i < n; i++) {
        bool numbers = isfinite(got[i]) && isfinite(want[i]);
        if (got[i] != want[i] && !(numbers && fabsf(got[i] - want[i]) <= 2e-5F * fmaxf(1, fabsf(want[i]))))
            fail_msg("case %d, token %d: %.8g, want %.8g", (int)at, i, (double)got[i], (double)want[i]);
    }
}

static int check_step(const proa_json *c, int64_t at)
{
    proa_arena arena;
    float row[GOLDEN_ROW] = {0}, before[GOLDEN_ROW] = {0}, want[GOLDEN_ROW];
    int32_t prompt[GOLDEN_IDS], generated[GOLDEN_IDS], source[GOLDEN_IDS];
    proa_logits_processor *l;
    proa_err err = {0};
    proa_arena_init(&arena);
    proa_options o = read_case(c, &arena);
    int n = golden_row(row, proa_json_get(c, "logits"));
    assert_int_equal(golden_row(want, proa_json_get(c, "after")), n);
    memcpy(before, row, sizeof before);
    proa_history h = {.prompt = prompt, .generated = generated, .source = source};
    h.prompt_count = golden_ids(prompt, proa_json_get(c, "prompt"));
    h.generated_count = golden_ids(generated, proa_json_get(c, "generated"));
    h.source_count = golden_ids(source, proa_json_get(c, "source"));
    if (proa_logits_processor_new(&l, &o, n, &err) != PROA_OK) fail_msg("%s", err.text);
    proa_arena_release(&arena); /* the lists were copied */
    proa_logits_processor_apply(l, row, &h);
    expect_row(row, want, n, at);
    int entries = golden_check_entries(l, before, row, n, h, at);
    proa_logits_processor_free(l);
    return entries;
}

static void test_steps(void **state)
{
    (void)state;
    proa_json *root = golden_load("processors.json");
    const proa_json *cases = proa_json_get(root, "steps");
    int entries = 0;
    assert_int_equal(proa_json_len(cases), 160);
    for (int64_t i = 0; i < proa_json_len(cases); i++) entries += check_step(proa_json_at(cases, i), i);
    assert_true(entries > 8); /* enough of them can run on a device */
    proa_json_free(root);
}

static void check_warper(const proa_json *c, int64_t at)
{
    proa_arena arena;
    float row[GOLDEN_ROW];
    double want[GOLDEN_ROW], sum = 0;
    proa_sampler_scratch s;
    proa_arena_init(&arena);
    proa_options o = read_case(c, &arena);
    int n = golden_row(row, proa_json_get(c, "logits"));
    for (int i = 0; i < n; i++) want[i] = proa_json_double(proa_json_at(proa_json_get(c, "probability"), i));
    proa_sampler_init(&s, n);
    int64_t kept = proa_sampler_filter(&s, row, n, &o, NULL);
    for (int64_t i = 0; i < kept; i++) sum += (double)s.weight[i];
    for (int64_t i = 0; i < kept; i++) {
        double p = (double)s.weight[i] / sum;
        if (fabs(p - want[s.id[i]]) > 2e-5)
            fail_msg("case %d, token %d: %g, want %g", (int)at, s.id[i], p, want[s.id[i]]);
        want[s.id[i]] = 0;
    }
    for (int i = 0; i < n; i++)
        if (want[i] > 2e-6)
            fail_msg("case %d: token %d is missing, its probability is %g", (int)at, i, want[i]);
    proa_sampler_release(&s);
    proa_arena_release(&arena);
}

static void test_warpers(void **state)
{
    (void)state;
    proa_json *root = golden_load("processors.json");
    const proa_json *cases = proa_json_get(root, "warpers");
    assert_int_equal(proa_json_len(cases), 60);
    for (int64_t i = 0; i < proa_json_len(cases); i++) check_warper(proa_json_at(cases, i), i);
    proa_json_free(root);
}

/* The options of a file are those that its words mean: the same fields, the same bits of `given`. */
static void check_file(const proa_json *c, int64_t at)
{
    proa_arena arena;
    proa_options have = {.given = {false}};
    proa_err err = {0};
    proa_arena_init(&arena);
    proa_options want = read_case(c, &arena);
    if (proa_options_from_generation_config(&have, proa_json_get(c, "file"), &arena, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_option_row *row = &proa_option_rows[i];
        if (proa_option_number(&have, row) != proa_option_number(&want, row))
            fail_msg("file %d, %s: %g, want %g", (int)at, row->name, proa_option_number(&have, row),
                     proa_option_number(&want, row));
    }
    assert_int_equal(have.suppress_tokens.count, want.suppress_tokens.count);
    assert_int_equal(have.begin_suppress_tokens.count, want.begin_suppress_tokens.count);
    assert_int_equal(have.sequence_bias.words.count, want.sequence_bias.words.count);
    assert_int_equal(have.stop_strings.count, want.stop_strings.count);
    assert_int_equal(have.renormalize_logits, want.renormalize_logits);
    proa_options used = {.given = {false}}; /* a request that says nothing has the model's lists */
    proa_options_resolve(&used, &have);
    assert_ptr_equal(used.suppress_tokens.ids, have.suppress_tokens.ids);
    assert_ptr_equal(used.sequence_bias.values, have.sequence_bias.values);
    assert_int_equal(used.stop_strings.count, have.stop_strings.count);
    assert_int_equal(used.renormalize_logits, have.renormalize_logits);
    proa_arena_release(&arena);
}

static void test_files(void **state)
{
    (void)state;
    proa_json *root = golden_load("processors.json");
    const proa_json *cases = proa_json_get(root, "files");
    assert_int_equal(proa_json_len(cases), 9);
    for (int64_t i = 0; i < proa_json_len(cases); i++) check_file(proa_json_at(cases, i), i);
    proa_json_free(root);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"suppress_tokens\":7}", "option 'suppress_tokens' must be a list of token ids"},
        {"{\"suppress_tokens\":[-1]}", "option 'suppress_tokens' has the token id -1"},
        {"{\"begin_suppress_tokens\":[64]}",
         "option 'begin_suppress_tokens': token id 64 is outside of the vocabulary (0 to 63)"},
        {"{\"sequence_bias\":{\"5\":1}}", "option 'sequence_bias' must be a list of lists of token ids"},
        {"{\"sequence_bias\":[[[5]]]}",
         "option 'sequence_bias' must be a list of pairs [[token ids], number]"},
        {"{\"sequence_bias\":[[[5],1e30]]}",
         "option 'sequence_bias' is 1e+30, must be -1000000000 to 1000000000"},
        {"{\"sequence_bias\":[[[],1]]}",
         "option 'sequence_bias' must be a list of lists of token ids, none of them empty"},
        {"{\"epsilon_cutoff\":1.5}", "option 'epsilon_cutoff' is 1.5, must be 0 to 1"},
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_arena arena;
        proa_json *json;
        proa_options o = {.given = {false}};
        proa_err err = {0};
        proa_arena_init(&arena);
        assert_int_equal(proa_json_parse(&json, proa_str_c(cases[i].text), "options", &err), PROA_OK);
        proa_status status = proa_options_read_json(&o, json, true, &arena, &err);
        if (status == PROA_OK) status = proa_options_check(&o, GOLDEN_ROW, 16, &err);
        assert_int_not_equal(status, PROA_OK);
        assert_string_equal(err.text, cases[i].error);
        proa_json_free(json);
        proa_arena_release(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_warpers),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
