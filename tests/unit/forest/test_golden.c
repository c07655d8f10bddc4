/* SPDX-License-Identifier: Apache-2.0
 * test_golden.c - every model of tests/golden/forest predicts what its library did: the sums to the last bit, what is
 * behind the transform within 1e-6, since exp is the C library's (tools/golden_forest.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "forest/forest.h"

#define FOLDER  PROA_SOURCE_DIR "/tests/golden/forest/"
#define ROWS    40
#define COLUMNS 6

static float *read_floats(const char *path, int64_t count)
{
    proa_buf buf;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_file_read(&buf, path, PROA_MIB, &err), PROA_OK);
    assert_int_equal(buf.len, count * 4);
    float *out = (float *)(void *)buf.ptr;
    return out;
}

static uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* How many differ in any bit; a NaN equals a NaN. */
static int count_different(const float *a, const float *b, int64_t count)
{
    int different = 0;
    for (int64_t i = 0; i < count; i++)
        different += bits_of(a[i]) != bits_of(b[i]) && !(isnan(a[i]) && isnan(b[i]));
    return different;
}

static void check_near(const char *name, const float *ours, const float *theirs, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float limit = 1e-6f * fmaxf(1.0f, fabsf(theirs[i]));
        if (!(fabsf(ours[i] - theirs[i]) <= limit))
            fail_msg("%s: output %d is %.9g, must be %.9g", name, (int)i, (double)ours[i], (double)theirs[i]);
    }
}

static void check_predictions(const char *name, const proa_forest *f, const float *in, const float *theirs,
                              const char *what)
{
    int64_t count = (int64_t)ROWS * f->outputs;
    float *ours = malloc(sizeof(float) * (size_t)count);
    if (strcmp(what, "final") != 0) {
        proa_forest_predict_plain(f, in, ROWS, true, ours);
        int different = count_different(ours, theirs, count);
        if (strcmp(what, "near") == 0) check_near(name, ours, theirs, count);
        else if (different) fail_msg("%s: %d of %d sums differ", name, different, (int)count);
        theirs += count;
    }
    if (strcmp(what, "raw") != 0) {
        proa_forest_predict_plain(f, in, ROWS, false, ours);
        check_near(name, ours, theirs, count);
    }
    free(ours);
}

static proa_forest_format format_of(const char *name)
{
    static const char *const ENDS[] = {
        [PROA_FOREST_XGBOOST_JSON] = ".json", [PROA_FOREST_XGBOOST_UBJ] = ".ubj", [PROA_FOREST_LIGHTGBM] = ".txt", [PROA_FOREST_TREELITE] = ".tl"};
    for (int i = PROA_FOREST_XGBOOST_JSON; i < PROA_FOREST_FORMATS; i++)
        if (proa_str_ends(proa_str_c(name), proa_str_c(ENDS[i]))) return (proa_forest_format)i;
    fail_msg("%s: no format", name);
    return PROA_FOREST_AUTO;
}

static void check_case(const char *name, int outputs, const char *what, const float *in)
{
    char path[PROA_PATH_MAX], out_path[PROA_PATH_MAX];
    proa_forest *f = NULL, *named = NULL;
    proa_err err = {.status = PROA_OK};
    snprintf(path, sizeof path, FOLDER "%s", name);
    snprintf(out_path, sizeof out_path, FOLDER "%.*s.out", (int)(strrchr(name, '.') - name), name);
    if (proa_forest_open(&f, path, PROA_FOREST_AUTO, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_int_equal(f->format, format_of(name));
    assert_int_equal(proa_forest_open(&named, path, f->format, &err), PROA_OK);
    assert_int_equal(named->node_count, f->node_count);
    assert_int_equal(f->outputs, outputs);
    assert_int_equal(f->features, COLUMNS);
    float *theirs = read_floats(
        out_path, (int64_t)ROWS * outputs * (strcmp(what, "both") == 0 || strcmp(what, "near") == 0 ? 2 : 1));
    check_predictions(name, f, in, theirs, what);
    free(theirs);
    proa_forest_free(named);
    proa_forest_free(f);
}

static void test_all(void **state)
{
    (void)state;
    char name[200], what[20];
    int outputs, cases = 0;
    float *in = read_floats(FOLDER "inputs.f32", ROWS * COLUMNS);
    FILE *list = fopen(FOLDER "cases.txt", "r");
    assert_non_null(list);
    while (fscanf(list, "%199s %d %19s", name, &outputs, what) == 3) {
        check_case(name, outputs, what, in);
        cases++;
    }
    fclose(list);
    free(in);
    assert_true(cases > 130);
}

static proa_forest *open_golden(const char *name)
{
    char path[PROA_PATH_MAX];
    proa_forest *f = NULL;
    proa_err err = {.status = PROA_OK};
    snprintf(path, sizeof path, FOLDER "%s", name);
    if (proa_forest_open(&f, path, PROA_FOREST_AUTO, &err) != PROA_OK) fail_msg("%s", err.text);
    return f;
}

static void test_what_is_said_of_them(void **state)
{
    (void)state;
    proa_forest *f = open_golden("xgb-multi-softprob.ubj");
    assert_string_equal(f->objective, "multi:softprob");
    assert_string_equal(f->version, "3.2.0");
    assert_int_equal(f->task, PROA_FOREST_MULTICLASS);
    assert_int_equal(f->transform, PROA_FOREST_SOFTMAX);
    assert_int_equal(f->classes, 3);
    assert_int_equal(f->tree_count, 9);
    assert_int_equal(f->trees[4].output, 1);
    assert_false(f->f64);
    assert_non_null(f->cover);
    proa_forest_free(f);
    f = open_golden("lgb-categories.txt");
    assert_true(f->has_category && f->truncate_negative && f->f64);
    assert_string_equal(f->version, "v4");
    assert_float_equal(f->cover[0], 600, 0);
    proa_forest_free(f);
    f = open_golden("lgb-zero.txt");
    assert_true(f->has_zero_missing);
    proa_forest_free(f);
    f = open_golden("lgb-forest-classes.txt");
    assert_int_equal(f->divisor[2], 3);
    proa_forest_free(f);
    f = open_golden("xgb-vectors.json");
    assert_int_equal(f->leaf_size, 2);
    assert_int_equal(f->targets, 2);
    proa_forest_free(f);
    f = open_golden("tl-sklearn-rf-class-targets.tl");
    assert_int_equal(f->targets, 2);
    assert_int_equal(f->target_classes[1], 2);
    assert_int_equal(f->leaf_size, 6);
    proa_forest_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_what_is_said_of_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
