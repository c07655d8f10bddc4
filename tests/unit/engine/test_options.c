/* SPDX-License-Identifier: Apache-2.0
 * test_options.c - the table of options: text and JSON in, ranges and contradictions out, defaults. */
#include "engine_test.h"
#include "engine/generation_config.h"

#include "base/arena.h"
#include "options/options.h"

typedef struct fixture {
    proa_arena arena;
    proa_options o;
    proa_err err;
} fixture;

static proa_status set(fixture *f, const char *name, const char *value)
{
    const proa_option_row *row = proa_option_find(proa_str_c(name), NULL);
    if (!row) fail_msg("no option '%s'", name);
    proa_err_clear(&f->err);
    return proa_options_set(&f->o, row, proa_str_c(value), &f->arena, &f->err);
}

static proa_status read_json(fixture *f, const char *text)
{
    proa_json *json = NULL;
    proa_err_clear(&f->err);
    assert_int_equal(proa_json_parse(&json, proa_str_c(text), "line", &f->err), PROA_OK);
    proa_status status = proa_options_read_json(&f->o, json, true, &f->arena, &f->err);
    proa_json_free(json);
    return status;
}

static void rows_are_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        assert_int_equal(proa_option_rows[i].option, i);
        assert_non_null(proa_option_rows[i].help);
        assert_true(proa_option_rows[i].offset < sizeof(proa_options));
        assert_ptr_equal(proa_option_find(proa_str_c(proa_option_rows[i].name), NULL), &proa_option_rows[i]);
    }
    const char *nearest = NULL;
    assert_null(proa_option_find(proa_str_c("temprature"), &nearest));
    assert_string_equal(nearest, "temperature");
    assert_null(proa_option_find(proa_str_c("target"), &nearest));
    assert_null(nearest); /* top_k is five letters away: nobody meant that */
    assert_int_equal(proa_option_find(proa_str_c("top-p"), NULL)->option, PROA_OPTION_top_p);
}

static void values_from_text(void **state)
{
    fixture f = {0};
    (void)state;
    proa_arena_init(&f.arena);
    assert_int_equal(set(&f, "top_p", "0.25"), PROA_OK);
    assert_true(f.o.top_p == 0.25f);
    assert_int_equal(set(&f, "seed", "12345678901"), PROA_OK);
    assert_true(f.o.seed == 12345678901u);
    assert_int_equal(set(&f, "end_ids", "5, 6 7"), PROA_OK);
    assert_int_equal(f.o.end_ids_count, 3);
    assert_int_equal(f.o.end_ids[2], 7);
    assert_int_equal(set(&f, "banned_words", "[[5,6],[7]]"), PROA_OK);
    assert_int_equal(f.o.banned_words.count, 2);
    assert_int_equal(f.o.banned_words.ends[0], 2);
    assert_int_equal(f.o.banned_words.ends[1], 3);
    assert_int_equal(set(&f, "stop_strings", "plain, text"), PROA_OK);
    assert_int_equal(set(&f, "stop_strings", "[\"a\",\"b\"]"), PROA_OK);
    assert_int_equal(f.o.stop_strings.count, 3);
    assert_string_equal(f.o.stop_strings.text[0], "plain, text");
    assert_string_equal(f.o.stop_strings.text[2], "b");
    assert_int_equal(set(&f, "logit_bias", "{\"7\":-100,\"8\":2.5}"), PROA_OK);
    assert_int_equal(f.o.logit_bias_count, 2);
    assert_true(f.o.logit_bias[1].value == 2.5f);
    assert_int_equal(set(&f, "style", "ft"), PROA_OK);
    assert_int_equal(f.o.style, PROA_STYLE_FT);
    assert_int_equal(set(&f, "early_stopping", "never"), PROA_OK);
    assert_int_equal(set(&f, "ignore_eos", "true"), PROA_OK);
    assert_true(f.o.given[PROA_OPTION_ignore_eos]);
    proa_arena_release(&f.arena);
}

static int marks_of(const proa_options *o)
{
    int count = 0;
    for (int i = 0; i < PROA_OPTION_COUNT; i++) count += o->given[i];
    return count;
}

static void refuse_text(const char *name, const char *value, const char *words)
{
    fixture f = {0};
    proa_arena_init(&f.arena);
    assert_true(set(&f, name, value) != PROA_OK);
    if (!strstr(f.err.text, name) || !strstr(f.err.text, words))
        fail_msg("'%s' does not say '%s'", f.err.text, words);
    assert_int_equal(marks_of(&f.o), 0);
    proa_arena_release(&f.arena);
}

/* A value marks its own option and no other, those at the end of the list too: there may be any number of options. */
static void each_has_its_mark(void **state)
{
    (void)state;
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        fixture f = {0};
        proa_option_kind kind = proa_option_rows[i].kind;
        bool list = kind != PROA_OPTION_KIND_INT && kind != PROA_OPTION_KIND_FLOAT &&
                    kind != PROA_OPTION_KIND_U64 && kind != PROA_OPTION_KIND_BOOL;
        if (list) continue;
        proa_arena_init(&f.arena);
        assert_int_equal(set(&f, proa_option_rows[i].name, kind == PROA_OPTION_KIND_BOOL ? "false" : "1"),
                         PROA_OK);
        assert_int_equal(marks_of(&f.o), 1);
        assert_true(f.o.given[i]);
        proa_options_resolve(&f.o, NULL);
        assert_int_equal(marks_of(&f.o), PROA_OPTION_COUNT - (i != PROA_OPTION_temperature));
        proa_arena_release(&f.arena);
    }
}

static void bad_values(void **state)
{
    (void)state;
    refuse_text("temperature", "-1", "must be 0 to");
    refuse_text("temperature", "hot", "cannot read");
    refuse_text("top_p", "1.5", "is 1.5, must be 0 to 1");
    refuse_text("top_p_decay", "0", "above 0");
    refuse_text("repetition_penalty", "0", "0.0001 to 10000");
    refuse_text("repetition_penalty", "1e-45", "0.0001 to 10000");
    refuse_text("typical_p", "0", "above 0 to 1");
    refuse_text("top_k", "2.5", "integer");
    refuse_text("beams", "257", "0 to 256");
    refuse_text("stop_strings", "", "empty string");
    refuse_text("stop_strings", "[\"a\",\"\"]", "empty string");
    refuse_text("stop_strings", "[1]", "strings");
    refuse_text("banned_words", "[[]]", "none of them empty");
    refuse_text("banned_words", "[5]", "lists of token ids");
    refuse_text("banned_words", "[[-5]]", "-5");
    refuse_text("logit_bias", "{\"x\":1}", "no token id");
    refuse_text("logit_bias", "{\"1\":\"y\"}", "must be");
    refuse_text("style", "vllm", "hf, ft or trtllm");
    refuse_text("ignore_eos", "1", "true or false");
    refuse_text("end_ids", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "17 ids");
}

static void json_lines(void **state)
{
    fixture f = {0};
    (void)state;
    proa_arena_init(&f.arena);
    assert_int_equal(
        read_json(&f,
                  "{\"temperature\":0.5,\"stop_strings\":[\"x\"],\"early_stopping\":true,\"top_k\":null}"),
        PROA_OK);
    assert_true(f.o.temperature == 0.5f);
    assert_int_equal(f.o.early_stopping, PROA_EARLY_TRUE);
    assert_false(f.o.given[PROA_OPTION_top_k]);
    assert_int_equal(read_json(&f, "{\"temprature\":1}"), PROA_INVALID);
    assert_non_null(strstr(f.err.text, "did you mean 'temperature'"));
    proa_arena_release(&f.arena);
}

static void contradictions(void **state)
{
    (void)state;
    int32_t ids[] = {5, 300}, ends[] = {2};
    const struct {
        proa_options o;
        const char *words;
    } bad[] = {{{.beams = 4, .beam_groups = 2, .temperature = 1}, "do not sample"},
               {{.beams = 4, .n = 2}, "beams_returned"},
               {{.beams = 4, .beams_returned = 5}, "not so many"},
               {{.beams = 4, .beam_groups = 3}, "multiple"},
               {{.n = 4, .best_of = 2}, "best_of must not be less"},
               {{.penalty_alpha = 0.6f}, "top_k > 1"},
               {{.style = PROA_STYLE_FT, .repetition_penalty = 2, .presence_penalty = 1}, "takes one of them"},
               {{.n = 100}, "at most 64"},
               {{.banned_words = {ids, ends, 1}}, "token id 300"},
               {{.end_ids = {200}, .end_ids_count = 1}, "token id 200"},
               {{.given = {[PROA_OPTION_repetition_penalty] = true}}, "0.0001 to 10000"},
               {{.given = {[PROA_OPTION_typical_p] = true}}, "above 0"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        proa_err err = {.status = PROA_OK};
        assert_int_equal(proa_options_check(&bad[i].o, 200, 64, &err), PROA_INVALID);
        if (!strstr(err.text, bad[i].words)) fail_msg("'%s' does not say '%s'", err.text, bad[i].words);
    }
    assert_int_equal(proa_options_check(&(proa_options){0}, 200, 64, NULL), PROA_OK);
}

static void defaults(void **state)
{
    (void)state;
    proa_options model = {.temperature = 0.7f, .top_k = 50}, o = {.top_k = 3};
    proa_options_resolve(&o, &model);
    assert_true(o.temperature == 0.7f);
    assert_int_equal(o.top_k, 3);
    assert_true(o.top_p == 1 && o.repetition_penalty == 1 && o.length_penalty == 1);
    assert_int_equal(o.top_p_reset_id, -1);
    o = (proa_options){.given = {[PROA_OPTION_temperature] = true, [PROA_OPTION_length_penalty] = true}};
    proa_options_resolve(&o, &model);
    assert_true(o.temperature == 0 && o.length_penalty == 0);
    o = (proa_options){.style = PROA_STYLE_FT};
    proa_options_resolve(&o, NULL);
    assert_true(o.length_penalty == 0);
    assert_false(o.given[PROA_OPTION_temperature]); /* so that ft takes it as 1 */
    assert_true(o.given[PROA_OPTION_top_k]);
}

static void generation_config(void **state)
{
    fixture f = {0};
    proa_json *json = NULL;
    (void)state;
    proa_arena_init(&f.arena);
    assert_int_equal(
        proa_json_parse(&json, proa_str_c("{\"temperature\":0.6,\"top_p\":0.9,\"repetition_penalty\":1.1}"),
                        "x", NULL),
        PROA_OK);
    assert_int_equal(proa_options_from_generation_config(&f.o, json, &f.arena, NULL), PROA_OK);
    assert_true(f.o.temperature == 0 && f.o.repetition_penalty == 1.1f);
    proa_json_free(json);
    assert_int_equal(proa_json_parse(&json, proa_str_c("{\"do_sample\":true,\"top_p\":0.9}"), "x", NULL),
                     PROA_OK);
    assert_int_equal(proa_options_from_generation_config(&f.o, json, &f.arena, NULL), PROA_OK);
    assert_true(f.o.temperature == 1 && f.o.top_p == 0.9f);
    proa_json_free(json);
    assert_int_equal(proa_json_parse(&json,
                                     proa_str_c("{\"bad_words_ids\":[[7],[8,9]],\"forced_bos_token_id\":0,"
                                                "\"forced_eos_token_id\":[2],\"suppress\":null}"),
                                     "x", NULL),
                     PROA_OK);
    proa_options defaults = {0}, o = {0},
                 own = {.given = {[PROA_OPTION_banned_words] = true, [PROA_OPTION_forced_bos_id] = true}};
    assert_int_equal(proa_options_from_generation_config(&defaults, json, &f.arena, NULL), PROA_OK);
    proa_options_resolve(&o, &defaults);
    assert_int_equal(o.banned_words.count, 2);
    assert_int_equal(o.banned_words.ids[2], 9);
    assert_true(o.forced_bos_id == 0 && o.forced_eos_id == 2);
    own.forced_bos_id = -1;
    proa_options_resolve(&own, &defaults);
    assert_true(own.banned_words.count == 0 && own.forced_bos_id == -1 && own.forced_eos_id == 2);
    proa_json_free(json);
    proa_arena_release(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_in_order), cmocka_unit_test(values_from_text), cmocka_unit_test(bad_values),
        cmocka_unit_test(json_lines),        cmocka_unit_test(contradictions),   cmocka_unit_test(defaults),
        cmocka_unit_test(generation_config), cmocka_unit_test(each_has_its_mark)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
