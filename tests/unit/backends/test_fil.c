/* SPDX-License-Identifier: Apache-2.0
 * test_fil.c - the backend `fil`: who executes small and large requests, joined and unaligned ones, what is
 * written where. */
#include "rig.h"

#include "forest/forest.h"
#include "serve/sched/sched.h"
#include <math.h>
#include <unistd.h>

#define FORESTS PROA_SOURCE_DIR "/tests/golden/forest"
#define COLUMNS 6
#define ROWS    40

#define CONFIG(batch, file, more)                                                                            \
    "backend: \"fil\" max_batch_size: " #batch " default_model_filename: \"" file "\" "                      \
    "input { name: \"input__0\" data_type: TYPE_FP32 dims: [ 6 ] } "                                         \
    "output { name: \"output__0\" data_type: TYPE_FP32 dims: [ 1 ] } "                                       \
    "parameters { key: \"model_type\" value { string_value: \"xgboost_json\" } } " more
#define NUMBER "parameters { key: \"is_classifier\" value { string_value: \"false\" } } "

/* The golden rows, again and again. */
static float *rows_of(int64_t count)
{
    FILE *file = fopen(FORESTS "/inputs.f32", "rb");
    float *x = calloc((size_t)count, COLUMNS * sizeof *x);
    assert_non_null(file);
    for (int64_t i = 0; i < count; i++) {
        if (i % ROWS == 0) rewind(file);
        assert_int_equal(fread(x + i * COLUMNS, sizeof *x, COLUMNS, file), COLUMNS);
    }
    fclose(file);
    return x;
}

static float *expected(const float *x, int64_t rows, const char *file)
{
    proa_forest *f = NULL;
    proa_err err = {.status = PROA_OK};
    char path[512];
    snprintf(path, sizeof path, FORESTS "/%s", file);
    float *out = calloc((size_t)rows, sizeof *out);
    assert_int_equal(proa_forest_open(&f, path, PROA_FOREST_AUTO, &err), PROA_OK);
    proa_forest_predict_plain(f, x, rows, false, out);
    proa_forest_free(f);
    return out;
}

static proa_infer *ask_rows(const float *x, int64_t rows)
{
    proa_infer *r = ask();
    put(r, "input__0", PROA_TYPE_FP32, x, (size_t)(rows * COLUMNS) * sizeof *x, 2, (int64_t[]){rows, COLUMNS});
    return r;
}

static void assert_scores(const heard *h, const float *want, int64_t rows)
{
    const proa_reply *reply = only(h);
    assert_shape(reply, "output__0", 1, rows, 0, 0);
    assert_memory_equal(floats(reply, "output__0"), want, (size_t)rows * sizeof *want);
}

/* A small request is answered before its submission returns; a large one by a thread of the model. */
static void test_small_and_large(void **state)
{
    enum { LARGE = 60000 };
    rig g;
    float *x = rows_of(LARGE), *want = expected(x, LARGE, "xgb-reg-squarederror.json");
    (void)state;
    rig_open(&g, &proa_backend_fil, CONFIG(100000, "xgb-reg-squarederror.json", NUMBER), FORESTS);
    assert_true(g.model.inline_rows_max > 0 && g.model.inline_rows_max < LARGE);
    for (int i = 0; i < 3; i++) {
        proa_infer *small = ask_rows(x, 3), *large = ask_rows(x, LARGE);
        start(&g, small);
        if (i == 0)
            assert_true(((heard *)small->user)->final); /* later the thread may still be at its seat */
        assert_scores(wait_for(small), want, 3);
        start(&g, large);
        proa_infer *behind = ask_rows(x + COLUMNS, 5);
        start(&g, behind);
        assert_scores(wait_for(large), want, LARGE);
        assert_scores(wait_for(behind), want + 1, 5);
        forget(small);
        forget(large);
        forget(behind);
    }
    rig_close(&g);
    free(x);
    free(want);
}

/* Several requests in one execution: joined while they are small; those without rows and those at odd addresses too. */
static void test_joined(void **state)
{
    enum { COUNT = 7 };
    static const int64_t counts[COUNT] = {1, 40, 0, 7, 2, 64, 1};
    rig g;
    float *x = rows_of(128), *want = expected(x, 128, "xgb-reg-squarederror.json");
    proa_infer *requests[COUNT];
    (void)state;
    rig_open(&g, &proa_backend_fil, CONFIG(256, "xgb-reg-squarederror.json", NUMBER "dynamic_batching { }"),
             FORESTS);
    for (int join = 0; join < 2; join++) {
        for (int i = 0; i < COUNT; i++) {
            proa_infer *r = requests[i] = ask_rows(x + i * COLUMNS, counts[i]);
            proa_tensor *t = &r->inputs[0];
            if (t->bytes) {
                proa_buffer *odd = proa_buffer_new(t->bytes + 1);
                memcpy(odd->data + 1, t->data, t->bytes);
                proa_buffer_drop(t->buffer);
                t->buffer = odd;
                t->data = odd->data + 1;
            }
            r->model = proa_served_model_hold(&g.model);
            proa_infer_hold(r); /* the scheduler's, which does not see it */
            atomic_fetch_add(&g.model.scheduler->busy, 1);
            r->batch = counts[i];
        }
        for (int i = 0; i < COUNT; i += join ? COUNT : 1)
            proa_backend_fil.execute(g.instance.state, requests + i, join ? COUNT : 1);
        for (int i = 0; i < COUNT; i++) {
            assert_scores(requests[i]->user, want + i, counts[i]);
            forget(requests[i]);
        }
    }
    rig_close(&g);
    free(x);
    free(want);
}

/* What cannot be opened leaves nothing behind and says why. */
static void refused(const char *config, const char *words)
{
    rig g;
    if (rig_try(&g, &proa_backend_fil, config, FORESTS) == PROA_OK) fail_msg("opened: %s", config);
    if (!strstr(g.err.text, words)) fail_msg("'%s', not '%s'", g.err.text, words);
    rig_release(&g);
}

static void test_refused(void **state)
{
    (void)state;
    refused(CONFIG(0, "xgb-reg-squarederror.json", NUMBER), "max_batch_size must be greater than 0");
    refused(CONFIG(8, "none.json", NUMBER), "none.json");
    refused(CONFIG(8, "inputs.f32", NUMBER), "inputs.f32");
    refused(CONFIG(8, "xgb-reg-squarederror.json", ""),
            "Required parameter is_classifier not found in config");
    refused(CONFIG(8, "xgb-multi-softprob.json", NUMBER),
            "'output__0' has 1 elements a row in the configuration, the forest gives 3");
    refused(CONFIG(8, "xgb-reg-squarederror.json",
                   NUMBER "output { name: \"treeshap_output\" data_type: TYPE_FP32 dims: [ 6 ] }"),
            "'treeshap_output' has 6 elements a row in the configuration, the forest gives 7");
    refused("backend: \"fil\" max_batch_size: 8 default_model_filename: \"xgb-reg-squarederror.json\" "
            "input { name: \"input__0\" data_type: TYPE_FP32 dims: [ 5 ] } "
            "output { name: \"output__0\" data_type: TYPE_FP32 dims: [ 1 ] } " NUMBER,
            "'input__0' has 5 features in the configuration, the forest has 6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_and_large),
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
