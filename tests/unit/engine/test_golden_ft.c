/* SPDX-License-Identifier: Apache-2.0
 * test_golden_ft.c - FasterTransformer's beam search on a real model: the first 100 sentences of Multi30k test 2016
 * against an f64 program (tools/golden_ft_translate.py), all at once: the same tokens and text, as many steps. The
 * nearest decision in the goldens is 1.1e-6 of the scores apart, so there is no sentence that f32 may get otherwise. */
#include "engine_test.h"

#include "base/compiler.h"

enum { SENTENCES = 100 };

static proa_options options_of(const proa_json *golden)
{
    return (proa_options){.given = {[PROA_OPTION_length_penalty] = true},
                          .style = PROA_STYLE_FT,
                          .beams = (int32_t)proa_json_int(proa_json_get(golden, "beams")),
                          .length_penalty = (float)proa_json_double(proa_json_get(golden, "length_penalty")),
                          .max_tokens = (int32_t)proa_json_int(proa_json_get(golden, "max_new"))};
}

/* True if the best translation is the expected one; prints the two if not. */
static bool same(const outcome *o, int64_t at, const proa_json *c)
{
    const proa_json *ids = proa_json_get(c, "ids");
    proa_str text = proa_json_str(proa_json_get(c, "out"));
    bool equal = o->beam_count[0] == proa_json_len(ids);
    for (int64_t i = 0; equal && i < o->beam_count[0]; i++)
        equal = o->beam_ids[0][i] == proa_json_int(proa_json_at(ids, i));
    equal = equal && strlen(o->beam_text[0]) == text.len && !memcmp(o->beam_text[0], text.ptr, text.len);
    if (!equal)
        print_error("sentence %lld, gap %g:\n  %s (%.9g)\n  %.*s (%.9g) expected\n", (long long)at,
                    proa_json_double(proa_json_get(c, "gap")), o->beam_text[0], (double)o->beam_score[0],
                    (int)text.len, text.ptr, proa_json_double(proa_json_get(c, "score")));
    return equal;
}

static void check_numbers(const outcome *o, const proa_json *c)
{
    double score = proa_json_double(proa_json_get(c, "score"));
    assert_int_equal(o->beams, 4);
    assert_true(fabs((double)o->beam_score[0] - score) < 2e-5 * fmax(1, fabs(score)));
    for (int32_t i = 1; i < o->beams; i++) assert_true(o->beam_score[i] <= o->beam_score[i - 1]);
    assert_int_equal(o->new_tokens, proa_json_int(proa_json_get(c, "steps")));
}

static void translations(void **state)
{
    PROA_UNUSED(state);
    proa_json *golden = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_json_load(&golden, GOLDEN "trained/m30k-t5.ft.json", 1 << 20, &err) != PROA_OK)
        fail_msg("%s", err.text);
    const int64_t some = PART_OF(SENTENCES, 15);
    const proa_json *cases = proa_json_get(golden, "cases");
    assert_int_equal(proa_json_len(cases), SENTENCES);
    proa_engine *engine = open_or_fail(MODELS "m30k-t5", NULL);
    outcome *o = calloc(SENTENCES, sizeof *o);
    assert_non_null(o);
    for (int64_t i = 0; i < some; i++) {
        proa_str text = proa_json_str(proa_json_get(proa_json_at(cases, i), "text"));
        submit_or_fail(engine,
                       (proa_request){.text = text.ptr, .text_len = text.len, .options = options_of(golden)},
                       &o[i]);
    }
    proa_engine_run(engine);
    int differ = 0;
    for (int64_t i = 0; i < some; i++) {
        assert_true(o[i].done && o[i].beams > 0);
        differ += !same(&o[i], i, proa_json_at(cases, i));
    }
    assert_int_equal(differ, 0);
    for (int64_t i = 0; i < some; i++) {
        check_numbers(&o[i], proa_json_at(cases, i));
        outcome_release(&o[i]);
    }
    free(o);
    proa_json_free(golden);
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(translations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
