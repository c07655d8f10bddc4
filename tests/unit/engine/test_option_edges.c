/* SPDX-License-Identifier: Apache-2.0
 * test_option_edges.c - tests/golden/option_edges.json through the library: what each option means at the edges of
 * its range. tests/wire/test_option_edges.py sends the same table through the server's protocols. */
#include "engine_test.h"
#include "engine/generation_config.h"

#include "options/options.h"
#include <float.h>

#define MODEL PROA_SOURCE_DIR "/models/classics-10m"
enum { TOKENS = 4 };

typedef struct edges {
    proa_engine *engine;
    proa_json *table;
} edges;

/* JSON has no NaN, no infinities and no -0: these are texts there. */
static double number_of(const proa_json *value)
{
    char text[32];
    proa_str s = proa_json_str(value);
    if (proa_json_kind(value) != PROA_JSON_STRING) return proa_json_double(value);
    snprintf(text, sizeof text, "%.*s", (int)s.len, s.ptr);
    return strtod(text, NULL);
}

static const proa_option_row *option_of(proa_str name)
{
    const proa_option_row *row = proa_option_find(name, NULL);
    if (!row) fail_msg("the table has the option '%.*s'", (int)name.len, name.ptr);
    return row;
}

/* As a program in C would; false if the field's type cannot hold the value. */
static bool set_field(proa_options *o, const proa_option_row *row, double value)
{
    void *field = proa_option_field(o, row);
    if (row->kind == PROA_OPTION_KIND_FLOAT) {
        if (isfinite(value) && fabs(value) > (double)FLT_MAX) return false;
        *(float *)field = (float)value;
    } else if (row->kind == PROA_OPTION_KIND_INT) {
        if (!(value >= INT32_MIN && value <= INT32_MAX && value == floor(value))) return false;
        *(int32_t *)field = (int32_t)value;
    } else {
        assert_int_equal(row->kind, PROA_OPTION_KIND_U64);
        *(uint64_t *)field = (uint64_t)value;
    }
    o->given[row->option] = true;
    return true;
}

static proa_options options_of(const proa_json *row)
{
    proa_options o = {
        .max_tokens = TOKENS, .temperature = 1, .seed = 7, .given = {[PROA_OPTION_temperature] = true}};
    for (proa_json_iter it = proa_json_begin(proa_json_get(row, "with")); proa_json_next(&it);) {
        if (proa_str_is(it.key, "style")) o.style = PROA_STYLE_FT, o.given[PROA_OPTION_style] = true;
        else assert_true(set_field(&o, option_of(it.key), proa_json_double(it.value)));
    }
    return o;
}

/* The tokens, or those of the best beam; INVALID leaves the outcome empty. */
static proa_status run_options(proa_engine *engine, const proa_options *o, outcome *out, proa_err *err)
{
    proa_request request = {.text = "It was", .options = *o, .on_event = collect, .arg = out};
    PROA_TRY(proa_engine_submit(engine, &request, NULL, err));
    proa_engine_run(engine);
    assert_true(out->done);
    if (out->finish == PROA_FINISH_ERROR) fail_msg("%s", out->error);
    return PROA_OK;
}

static bool same(const outcome *a, const outcome *b)
{
    if (a->count != b->count || a->beams != b->beams) return false;
    if (a->count && memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) != 0) return false;
    return a->text_len == b->text_len && memcmp(a->text, b->text, a->text_len) == 0 &&
           (!a->beams || strcmp(a->beam_text[0], b->beam_text[0]) == 0);
}

static void expect_same(const edges *e, const proa_options *reference, const outcome *got, const char *what)
{
    outcome wanted = {0};
    assert_int_equal(run_options(e->engine, reference, &wanted, NULL), PROA_OK);
    if (!same(got, &wanted)) fail_msg("%s: '%s', and not '%s'", what, got->text, wanted.text);
    outcome_release(&wanted);
}

static void check_value(const edges *e, const proa_json *row, double value)
{
    const proa_option_row *option = option_of(proa_json_str(proa_json_get(row, "option")));
    proa_str meaning = proa_json_str(proa_json_get(row, "is"));
    proa_options o = options_of(row);
    proa_options greedy = {.max_tokens = TOKENS, .given = {[PROA_OPTION_temperature] = true}}, without = o;
    outcome got = {0};
    proa_err err = {0};
    char what[64];
    snprintf(what, sizeof what, "%s %g", option->name, value);
    if (!set_field(&o, option, value)) return;
    proa_status status = run_options(e->engine, &o, &got, &err);
    if (proa_str_is(meaning, "refused")) {
        if (status != PROA_INVALID || !strstr(err.text, option->name)) fail_msg("%s: '%s'", what, err.text);
    } else {
        if (status != PROA_OK) fail_msg("%s: %s", what, err.text);
        if (proa_str_is(meaning, "likeliest")) expect_same(e, &greedy, &got, what);
        if (proa_str_is(meaning, "off")) expect_same(e, &without, &got, what);
    }
    outcome_release(&got);
}

static void every_row(void **state)
{
    const edges *e = *state;
    const proa_json *rows = proa_json_get(e->table, "rows");
    assert_true(proa_json_len(rows) > 50);
    for (int64_t i = 0; i < proa_json_len(rows); i++) {
        const proa_json *row = proa_json_at(rows, i), *values = proa_json_get(row, "values");
        for (int64_t k = 0; k < proa_json_len(values); k++)
            check_value(e, row, number_of(proa_json_at(values, k)));
    }
}

/* Every option that samples or searches by a number is in the table. */
static void every_option(void **state)
{
    const edges *e = *state;
    const proa_json *rows = proa_json_get(e->table, "rows");
    for (int i = PROA_OPTION_temperature; i <= PROA_OPTION_penalty_alpha; i++) {
        bool found = proa_option_rows[i].kind != PROA_OPTION_KIND_FLOAT;
        for (int64_t k = 0; k < proa_json_len(rows) && !found; k++)
            found = option_of(proa_json_str(proa_json_get(proa_json_at(rows, k), "option")))->option ==
                    proa_option_rows[i].option;
        if (!found) fail_msg("the table has no row of '%s'", proa_option_rows[i].name);
    }
}

/* A model's own default of 0 counts as given, as in transformers. */
static void default_of_zero(void **state)
{
    PROA_UNUSED(state);
    proa_json *json = NULL;
    proa_options model = {0}, o = {0};
    assert_int_equal(proa_json_parse(&json, proa_str_c("{\"do_sample\":true,\"top_p\":0.0}"), "x", NULL),
                     PROA_OK);
    assert_int_equal(proa_options_from_generation_config(&model, json, NULL, NULL), PROA_OK);
    proa_options_resolve(&o, &model);
    assert_true(o.top_p == 0 && o.temperature == 1);
    o = (proa_options){.top_p = 0.5F};
    proa_options_resolve(&o, &model);
    assert_true(o.top_p == 0.5F);
    proa_json_free(json);
}

static int open_all(void **state)
{
    static edges e;
    proa_err err = {0};
    if (proa_json_load(&e.table, PROA_SOURCE_DIR "/tests/golden/option_edges.json", PROA_MIB, &err) != PROA_OK)
        fail_msg("%s", err.text);
    e.engine = open_or_fail(MODEL, &(proa_engine_options){.threads = 1, .kv_tokens = 4096});
    *state = &e;
    return 0;
}

static int close_all(void **state)
{
    edges *e = *state;
    proa_engine_close(e->engine);
    proa_json_free(e->table);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row), cmocka_unit_test(every_option),
                                       cmocka_unit_test(default_of_zero)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
