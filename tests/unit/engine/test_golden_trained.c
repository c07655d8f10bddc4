/* SPDX-License-Identifier: Apache-2.0
 * test_golden_trained.c - the shipped models from text to text against transformers' outputs in float32: the same
 * prompt ids, greedy tokens and beams, scores within 1e-4, and the text they make, streamed. */
#include "engine_test.h"

static proa_json *load(const char *path)
{
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_json_load(&json, path, 64 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    return json;
}

static void check_ids(const char *what, const int32_t *have, int64_t n, const proa_json *want, int64_t skip)
{
    assert_int_equal(n, proa_json_len(want) - skip);
    for (int64_t i = 0; i < n; i++)
        if (have[i] != proa_json_int(proa_json_at(want, i + skip)))
            fail_msg("%s: token %lld is %d, expected %lld", what, (long long)i, have[i],
                     (long long)proa_json_int(proa_json_at(want, i + skip)));
}

/* transformers fills shorter results up with the end token. */
static void check_padded(const int32_t *have, int64_t n, const proa_json *want, int64_t skip)
{
    int64_t length = proa_json_len(want) - skip;
    assert_true(n <= length);
    for (int64_t i = 0; i < length; i++) {
        int64_t w = proa_json_int(proa_json_at(want, i + skip));
        assert_int_equal(i < n ? have[i] : have[n - 1], w);
    }
}

static void check_text(const char *have, size_t len, const proa_json *want)
{
    proa_str text = proa_json_str(want);
    assert_int_equal(len, text.len);
    assert_memory_equal(have, text.ptr, len);
}

static void check_prompt(proa_engine *engine, const proa_json *text, const proa_json *ids)
{
    int32_t have[512];
    int64_t n = 0;
    proa_str t = proa_json_str(text);
    assert_int_equal(proa_engine_encode(engine, t.ptr, t.len, have, 512, &n, NULL), PROA_OK);
    check_ids("prompt", have, n, ids, 0);
}

static void check_score(double have, double want)
{
    if (fabs(have - want) > 1e-4 * fmax(1, fabs(want))) fail_msg("score %.7g, expected %.7g", have, want);
}

static void check_story(proa_engine *engine, const proa_json *c)
{
    proa_str prompt = proa_json_str(proa_json_get(c, "prompt"));
    const proa_json *ids = proa_json_get(c, "ids"), *beam = proa_json_get(c, "beam4_ids");
    outcome greedy = {0}, beams = {0};
    check_prompt(engine, proa_json_get(c, "prompt"), proa_json_get(c, "prompt_ids"));
    proa_request request = {.text = prompt.ptr, .text_len = prompt.len};
    request.options = (proa_options){.max_tokens = (int32_t)proa_json_len(ids)};
    submit_or_fail(engine, request, &greedy);
    request.options = (proa_options){.max_tokens = (int32_t)proa_json_len(beam), .beams = 4};
    submit_or_fail(engine, request, &beams);
    proa_engine_run(engine);
    check_ids("greedy", greedy.ids, greedy.count, ids, 0);
    check_text(greedy.text, greedy.text_len, proa_json_get(c, "text"));
    check_ids("beam 4", beams.beam_ids[0], beams.beam_count[0], beam, 0);
    check_score((double)beams.beam_score[0], proa_json_double(proa_json_get(c, "beam4_score")));
    outcome_release(&greedy);
    outcome_release(&beams);
}

static void stories(void **state)
{
    PROA_UNUSED(state);
    proa_engine *engine = open_or_fail(MODELS "classics-10m", NULL);
    proa_json *json = load(GOLDEN "trained/classics-10m.json");
    const proa_json *cases = proa_json_get(json, "greedy");
    assert_true(proa_json_len(cases) >= 8);
    for (int64_t i = 0; i < PART_OF(proa_json_len(cases), 2); i++)
        check_story(engine, proa_json_at(cases, i));
    proa_json_free(json);
    proa_engine_close(engine);
}

/* transformers' outputs start with the start token and end with </s>. */
static void check_width(proa_engine *engine, const proa_json *c, int width)
{
    char key[16];
    snprintf(key, sizeof key, "beam%d", width);
    const proa_json *wanted = proa_json_get(c, key);
    proa_str text = proa_json_str(proa_json_get(c, "text"));
    outcome o = {0};
    proa_options options = {.beams = width, .max_tokens = 128};
    run_request(engine, (proa_request){.text = text.ptr, .text_len = text.len, .options = options}, &o);
    if (width == 1) {
        check_ids(key, o.ids, o.count, proa_json_get(proa_json_at(wanted, 0), "ids"), 1);
        check_text(o.text, o.text_len, proa_json_get(proa_json_at(wanted, 0), "text"));
    }
    for (int64_t i = 0; i < proa_json_len(wanted) && width > 1; i++) {
        const proa_json *w = proa_json_at(wanted, i);
        check_padded(o.beam_ids[i], o.beam_count[i], proa_json_get(w, "ids"), 1);
        check_score((double)o.beam_score[i], proa_json_double(proa_json_get(w, "score")));
        check_text(o.beam_text[i], strlen(o.beam_text[i]), proa_json_get(w, "text"));
    }
    outcome_release(&o);
}

static void translations(void **state)
{
    PROA_UNUSED(state);
    proa_engine *engine = open_or_fail(MODELS "m30k-t5", NULL);
    proa_json *json = load(GOLDEN "trained/m30k-t5.json");
    assert_true(proa_json_len(json) >= 20);
    for (int64_t i = 0; i < PART_OF(proa_json_len(json), 4); i++) {
        const proa_json *c = proa_json_at(json, i);
        check_prompt(engine, proa_json_get(c, "text"), proa_json_get(c, "ids"));
        check_width(engine, c, 1);
        check_width(engine, c, 4);
        check_width(engine, c, 8);
    }
    proa_json_free(json);
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stories), cmocka_unit_test(translations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
