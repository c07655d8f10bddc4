/* SPDX-License-Identifier: Apache-2.0
 * test_pair.c - two texts as one input of an encoder, and token types: what the engine makes of texts equals ids with
 * types, types have an effect, and what is wrong is refused. */
#include "engine_test.h"

static proa_engine *engine;

static int open_engine(void **state)
{
    proa_err err = {0};
    proa_engine_options options = {.device = "cpu", .dtype = "f32"};
    PROA_UNUSED(state);
    return proa_engine_open(&engine, PROA_SOURCE_DIR "/models/polarity-bert", &options, &err) == PROA_OK ? 0
                                                                                                         : -1;
}

static int close_engine(void **state)
{
    PROA_UNUSED(state);
    proa_engine_close(engine);
    return 0;
}

static float score(proa_request request)
{
    outcome o = {0};
    request.task = PROA_TASK_ROWS;
    run_request(engine, request, &o);
    assert_int_equal(o.finish, PROA_FINISH_END);
    float logit = o.rows[0];
    outcome_release(&o);
    return logit;
}

/* The ids of "[CLS] a [SEP] b [SEP]" from the ids of both texts alone. */
static int64_t join(int32_t *ids, int32_t *types, const char *a, const char *b)
{
    int64_t n = 0, second = 0;
    int32_t more[64];
    assert_int_equal(proa_engine_encode(engine, a, strlen(a), ids, 64, &n, NULL), PROA_OK);
    assert_int_equal(proa_engine_encode(engine, b, strlen(b), more, 64, &second, NULL), PROA_OK);
    for (int64_t i = 0; i < n; i++) types[i] = 0;
    for (int64_t i = 1; i < second; i++) {
        ids[n] = more[i];
        types[n++] = 1;
    }
    return n;
}

static void texts_and_types(void **state)
{
    static const char *const a = "a fine film", *const b = "but long, too long";
    int32_t ids[128], types[128];
    PROA_UNUSED(state);
    int64_t n = join(ids, types, a, b);
    float pair = score((proa_request){.text = a, .text_pair = b});
    float typed = score((proa_request){.ids = ids, .ids_count = n, .type_ids = types});
    float plain = score((proa_request){.ids = ids, .ids_count = n});
    assert_memory_equal(&pair, &typed, sizeof pair);
    assert_true(fabsf(pair - plain) > 1e-4f);
    memset(types, 0, sizeof types);
    float zeros = score((proa_request){.ids = ids, .ids_count = n, .type_ids = types});
    assert_memory_equal(&zeros, &plain, sizeof plain);
}

static void refused(void **state)
{
    static const int32_t ids[] = {2, 5, 3}, high[] = {0, 2, 0}, low[] = {0, 0, -1};
    const struct {
        proa_request request;
        const char *says;
    } bad[] = {{{.ids = ids, .ids_count = 3, .type_ids = high}, "token type 2 at position 1"},
               {{.ids = ids, .ids_count = 3, .type_ids = low}, "token type -1 at position 2"},
               {{.text = "a", .type_ids = low}, "token types go with ids"},
               {{.ids = ids, .ids_count = 3, .text_pair = "b"}, "a second text goes with text"}};
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_err err = {0};
        outcome o = {0};
        proa_request request = bad[i].request;
        request.task = PROA_TASK_ROWS;
        request.on_event = collect;
        request.arg = &o;
        assert_int_not_equal(proa_engine_submit(engine, &request, NULL, &err), PROA_OK);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_and_types), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
