/* SPDX-License-Identifier: Apache-2.0
 * test_readers.c - what the readers refuse, each with its message; numbers in text; where inputs of odd values go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "forest/readers.h"

#define FOLDER PROA_SOURCE_DIR "/tests/golden/forest/"

static proa_forest *parse_text(const char *text, proa_forest_format format, proa_err *err)
{
    proa_forest *f = NULL;
    *err = (proa_err){.status = PROA_OK};
    proa_status status = proa_forest_parse(&f, proa_str_c(text), format, "m", err);
    assert_int_equal(status, err->status);
    assert_true((f != NULL) == (status == PROA_OK));
    return f;
}

static proa_forest *read_text(const char *text)
{
    proa_err err;
    proa_forest *f = parse_text(text, PROA_FOREST_AUTO, &err);
    if (!f) fail_msg("%s", err.text);
    return f;
}

static void check_refused(const char *text, const char *message)
{
    proa_err err;
    assert_null(parse_text(text, PROA_FOREST_AUTO, &err));
    if (strcmp(err.text, message) != 0) fail_msg("said '%s', must say '%s'", err.text, message);
}

/* ---- numbers ---- */

static double number_of(const char *text, bool as_float)
{
    double v = -12345;
    const char *p = text;
    assert_true(proa_forest_number(&p, text + strlen(text), as_float, &v));
    assert_true(*p == '\0');
    return v;
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"0",
                                        "-0.0",
                                        "1",
                                        "5E-1",
                                        "+2.5e+3",
                                        ".5",
                                        "5.",
                                        "1.0000000180025095e-35",
                                        "9007199254740993",
                                        "0.1",
                                        "123456789012345678901234567890",
                                        "4.9406564584124654e-324",
                                        "1e400",
                                        "-1e-400",
                                        "1.00000005960464477539062500000001",
                                        "7.038531e-26",
                                        "8.589973e9"};
    for (size_t i = 0; i < PROA_COUNT(TEXTS); i++) {
        double want = strtod(TEXTS[i], NULL), got = number_of(TEXTS[i], false);
        assert_memory_equal(&want, &got, sizeof want);
        float narrow = strtof(TEXTS[i], NULL), ours = (float)number_of(TEXTS[i], true);
        assert_memory_equal(&narrow, &ours, sizeof narrow);
    }
    assert_true(isnan(number_of("NaN", true)) && isnan(number_of("-nan", false)));
    assert_true(number_of("Infinity", false) > DBL_MAX && number_of("-inf", true) < -DBL_MAX);
    const char *none[] = {"", "-", "e5", ".", "in", "na", "--1"};
    for (size_t i = 0; i < PROA_COUNT(none); i++) {
        const char *p = none[i];
        double v;
        assert_false(proa_forest_number(&p, p + strlen(p), false, &v));
        assert_ptr_equal(p, none[i]);
    }
    const char *cut = "12345", *p = cut; /* nothing behind the end is read */
    double v;
    assert_true(proa_forest_number(&p, cut + 2, false, &v) && p == cut + 2);
    assert_float_equal(v, 12, 0);
}

/* A decimal that lies just above the middle of two floats, and as a double on it: rounded twice it goes down. */
static void test_numbers_are_rounded_once(void **state)
{
    (void)state;
    float want = strtof("1.000000059604644776", NULL);
    assert_true((float)strtod("1.000000059604644776", NULL) != want);
    assert_float_equal(number_of("1.000000059604644776", true), (double)want, 0);
}

/* ---- XGBoost ---- */

#define TREE(fields)                                                                                         \
    "{\"left_children\":[1,-1,-1],\"right_children\":[2,-1,-1],\"split_indices\":[0,0,0],"                   \
    "\"split_conditions\":[0.5,-1,2],\"default_left\":[1,0,0]" fields "}"
#define MODEL(trees, info, base, param, objective)                                                           \
    "{\"learner\":{\"gradient_booster\":{\"model\":{\"trees\":[" trees "],\"tree_info\":[" info              \
    "]},\"name\":\"gbtree\"},\"learner_model_param\":{\"base_score\":\"" base "\"," param                    \
    "},\"objective\":{\"name\":\"" objective "\"}},\"version\":[2,0,3]}"
#define PARAM      "\"num_class\":\"0\",\"num_feature\":\"2\""
#define GOOD(tree) MODEL(tree, "0", "5E-1", PARAM, "reg:squarederror")

static float predict_one(const proa_forest *f, float x0, float x1)
{
    float row[2] = {x0, x1}, out;
    proa_forest_predict_plain(f, row, 1, false, &out);
    return out;
}

static void test_xgboost(void **state)
{
    (void)state;
    proa_forest *f = read_text(GOOD(TREE("")));
    assert_null(f->cover);
    assert_string_equal(f->version, "2.0.3");
    assert_float_equal(predict_one(f, 0.4f, 0), -0.5, 0);
    assert_float_equal(predict_one(f, 0.5f, 0), 2.5, 0);
    assert_float_equal(predict_one(f, NAN, 0), -0.5, 0);
    proa_forest_free(f);
    f = read_text(" \n" MODEL(TREE(",\"id\":1") "," TREE(",\"id\":0"), "0,1", "[1E0,2E0]",
                              "\"num_class\":\"0\",\"num_feature\":\"2\",\"num_target\":\"2\"",
                              "count:poisson") " ");
    assert_int_equal(f->trees[0].first, 3); /* where its id says */
    assert_float_equal(f->base[0], 0, 0);
    assert_float_equal(f->base[1], (double)logf(2), 0);
    proa_forest_free(f);
    f = read_text(
        GOOD("{\"left_children\":[-1],\"right_children\":[-1],\"split_indices\":[0],\"unknown\":{\"a\":[{}]},"
             "\"split_conditions\":[7],\"default_left\":[false]}"));
    assert_float_equal(predict_one(f, 0, 0), 7.5, 0);
    proa_forest_free(f);
}

#define CATEGORIES(list)                                                                                     \
    ",\"split_type\":[1,0,0],\"categories_nodes\":[0],\"categories_segments\":[0],\"categories_sizes\":[2]," \
    "\"categories\":[" list "]"

static void test_xgboost_categories(void **state)
{
    (void)state;
    proa_forest *f = read_text(GOOD(TREE(CATEGORIES("3,40"))));
    const float right[] = {3, 3.9f, 40}, left[] = {0, -1, -0.5f, 41, 64, 1e9f, INFINITY, -INFINITY, 16777216};
    for (size_t i = 0; i < PROA_COUNT(right); i++) assert_float_equal(predict_one(f, right[i], 0), 2.5, 0);
    for (size_t i = 0; i < PROA_COUNT(left); i++) assert_float_equal(predict_one(f, left[i], 0), -0.5, 0);
    assert_float_equal(predict_one(f, NAN, 0), -0.5, 0);
    proa_forest_free(f);
    check_refused(GOOD(TREE(CATEGORIES("3,16777216"))),
                  "m: tree 0: a category is 16777216, must be an integer from 0 to 16777215");
    check_refused(GOOD(TREE(CATEGORIES("3"))),
                  "m: tree 0: categories_sizes is 2, must be an integer from 0 to 1");
}

static void test_xgboost_lies(void **state)
{
    (void)state;
    check_refused(GOOD("{\"left_children\":[1,-1,-1],\"right_children\":[1,-1,-1],\"split_indices\":[0,0,0],"
                       "\"split_conditions\":[0.5,-1,2],\"default_left\":[1,0,0]}"),
                  "m: tree 0: node 1 has two parents");
    check_refused(GOOD("{\"left_children\":[1,0,-1],\"right_children\":[2,2,-1],\"split_indices\":[0,0,0],"
                       "\"split_conditions\":[0.5,-1,2],\"default_left\":[1,0,0]}"),
                  "m: tree 0: node 0 has two parents");
    check_refused(GOOD("{\"left_children\":[1,-1,-1],\"right_children\":[3,-1,-1],\"split_indices\":[0,0,0],"
                       "\"split_conditions\":[0.5,-1,2],\"default_left\":[1,0,0]}"),
                  "m: tree 0: right_children is 3, must be an integer from 0 to 2");
    check_refused(GOOD("{\"left_children\":[1,-1],\"right_children\":[2,-1,-1]}"),
                  "m: tree 0: right_children has 3 values, left_children has 2");
    check_refused(GOOD("{}"), "m: tree 0: a tree without nodes");
    check_refused(MODEL(TREE(""), "0,0", "5E-1", PARAM, "reg:squarederror"),
                  "m: tree_info has 2 values for 1 trees");
    check_refused(MODEL(TREE(""), "1", "5E-1", PARAM, "reg:squarederror"),
                  "m: tree_info is 1, must be an integer from 0 to 0");
    check_refused(MODEL(TREE(""), "0", "5E-1", PARAM, "reg:other"), "m: objective 'reg:other' is not known");
    check_refused(MODEL(TREE(""), "0", "[1,2]", PARAM, "reg:gamma"), "m: 2 base scores for 1 outputs");
    check_refused(MODEL(TREE(""), "0", "0", PARAM, "reg:gamma"), "m: base_score 0 has no margin");
    check_refused(MODEL(TREE(""), "0", "x", PARAM, "reg:gamma"), "m: base_score is not numbers");
    check_refused(MODEL(TREE(""), "0", "1", "\"num_class\":\"0\",\"num_feature\":\"0\"", "reg:gamma"),
                  "m: num_feature is 0, must be an integer from 1 to 16777216");
    check_refused(MODEL("{\"left_children\":[1,-1,-1],\"right_children\":[2,-1,-1],\"split_indices\":[2,0,0],"
                        "\"split_conditions\":[0.5,-1,2],\"default_left\":[1,0,0]}",
                        "0", "1", PARAM, "reg:squarederror"),
                  "m: tree 0: not a tree in the order of its nodes");
    check_refused(MODEL(TREE(",\"tree_param\":{\"size_leaf_vector\":\"2\"}"), "0", "1", PARAM, "reg:squarederror"),
                  "m: tree 0: the number of a leaf's vector is 1, must be an integer from 0 to -1");
    check_refused("{\"learner\":{\"gradient_booster\":{\"name\":\"gblinear\"}}}",
                  "m: booster 'gblinear', must be gbtree or dart");
    check_refused("{}", "m: no \"learner\": not a model of XGBoost");
}

static void test_json(void **state)
{
    (void)state;
    check_refused("{\"learner\":", "m: byte 11: the file ends where an object should be");
    check_refused("{\"learner\" {}}", "m: byte 11: '{' where a colon should be");
    check_refused("{\"learner\":{} \"a\":1}", "m: byte 14: '\"' where a comma should be");
    check_refused("{\"a\":[1,{\"b\":2]}}", "m: byte 14: ']' where the other bracket should be");
    check_refused("{\"a\":\"b\\\"", "m: byte 5: a string without an end");
    check_refused("{} x", "m: byte 3: 'x' where the end should be");
    char deep[400];
    snprintf(deep, sizeof deep, "{\"a\":%0100d}", 0);
    memset(deep + 5, '[', 100);
    check_refused(deep, "m: byte 68: nested deeper than 64");
}

static void test_ubjson(void **state)
{
    (void)state;
    proa_err err;
    static const struct {
        const char *bytes;
        size_t len;
        const char *message;
    } LIES[] = {
        {"{L\0\0\0\0\0\0\0\7learner[", 18, "m: byte 17: '[' where an object should be"},
        {"{L\0\0\0\0\0\0\1\0learner", 17, "m: byte 10: a length of 256, 7 bytes are left"},
        {"{L\xff\0\0\0\0\0\0\0", 10, "m: byte 10: a length of -72057594037927936, 0 bytes are left"},
        {"{U\1a[$d#U\2\0\0\0\0", 14, "m: byte 10: a length of 2, 4 bytes are left"},
        {"{U\1a[$S#U\1x", 11, "m: byte 4: '[' where an array of numbers should be"},
        {"{U\1a{$U#U\1", 10, "m: byte 5: an object of one type where values of many are expected"},
        {"{U\1aL\0\0", 7, "m: byte 4: the file ends within a number of type 'L'"},
        {"{U\1a", 4, "m: byte 4: the file ends where a number should be"},
    };
    for (size_t i = 0; i < PROA_COUNT(LIES); i++) {
        proa_forest *f = NULL;
        err = (proa_err){.status = PROA_OK};
        proa_str bytes = {LIES[i].bytes, LIES[i].len};
        assert_int_not_equal(proa_forest_parse(&f, bytes, PROA_FOREST_AUTO, "m", &err), PROA_OK);
        if (strcmp(err.text, LIES[i].message) != 0)
            fail_msg("said '%s', must say '%s'", err.text, LIES[i].message);
    }
}

/* ---- LightGBM ---- */

#define LGB_HEAD                                                                                             \
    "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=1\nobjective=regression\n\n"
#define LGB_TREE(threshold, decision)                                                                        \
    "Tree=0\nnum_leaves=2\nnum_cat=0\nsplit_feature=0\nthreshold=" threshold "\ndecision_type=" decision     \
    "\nleft_child=-1\nright_child=-2\nleaf_value=-1 2\n\nend of trees\n"

#define LGB_LINE LGB_HEAD "Tree=0\nnum_leaves=1\nleaf_value=7\nis_linear=1\nleaf_const=0.5\n"

static void check_lgb(const char *text, const float *left, size_t lefts, const float *right, size_t rights)
{
    proa_forest *f = read_text(text);
    for (size_t i = 0; i < lefts; i++)
        if (predict_one(f, left[i], 0) != -1.0f) fail_msg("%g must go left", (double)left[i]);
    for (size_t i = 0; i < rights; i++)
        if (predict_one(f, right[i], 0) != 2.0f) fail_msg("%g must go right", (double)right[i]);
    proa_forest_free(f);
}

#define LGB(threshold, decision, left, right)                                                                \
    check_lgb(LGB_HEAD LGB_TREE(threshold, decision), left, PROA_COUNT(left), right, PROA_COUNT(right))

static void test_lightgbm(void **state)
{
    (void)state;
    /* no missing values: NaN is 0; default left is not asked for */
    LGB("0.5", "2", ((float[]){0.5f, NAN, -INFINITY, 1e-36f}), ((float[]){0.6f, INFINITY}));
    LGB("-0.5", "2", ((float[]){-0.5f}), ((float[]){NAN, 0}));
    /* zero is missing: default right, default left */
    LGB("0.5", "4", ((float[]){0.4f, -1}), ((float[]){0, NAN, 1e-36f, -1e-36f, 1e-35f, 0.6f}));
    LGB("-0.5", "6", ((float[]){0, NAN, 1e-36f, -0.6f}), ((float[]){0.1f, 2e-35f}));
    /* NaN is missing: default right, default left */
    LGB("0.5", "8", ((float[]){0.5f, 0}), ((float[]){NAN, 0.6f}));
    LGB("-0.5", "10", ((float[]){NAN, -0.5f}), ((float[]){0}));
    /* what is within 1e-35 of 0 is 0 */
    LGB("1e-36", "2", ((float[]){1e-35f, 0, -1e-35f}), ((float[]){2e-35f}));
    LGB("-1e-36", "2", ((float[]){-2e-35f}), ((float[]){1e-35f, 0, -1e-35f}));
    LGB("-1.0000000180025095e-35", "2", ((float[]){-2e-35f}), ((float[]){-1e-35f, 0}));
}

/* A leaf is a line of its features, or its value where one of them is missing. */
static void test_lightgbm_lines(void **state)
{
    (void)state;
    proa_forest *f = read_text(LGB_LINE "num_features=1\nleaf_features=0 \nleaf_coeff=3  \n\nend of trees\n");
    assert_float_equal(predict_one(f, 2, 0), 6.5, 0);
    assert_float_equal(predict_one(f, NAN, 0), 7, 0);
    assert_float_equal(predict_one(f, 1e-36f, 0), 0.5, 0);
    proa_forest_free(f);
    f = read_text(LGB_LINE "num_features=0\nleaf_features=\nleaf_coeff=\n\nend of trees\n");
    assert_float_equal(predict_one(f, NAN, 0), 0.5, 0);
    proa_forest_free(f);
    f = read_text(LGB_HEAD "Tree=0\nnum_leaves=1\nleaf_value=7\nis_linear=0\n\nend of trees\n");
    assert_float_equal(predict_one(f, 2, 0), 7, 0);
    proa_forest_free(f);
}

static void test_lightgbm_lies(void **state)
{
    (void)state;
    check_refused("tree\nnum_class=1\n", "m: max_feature_idx is -1, must be an integer from 0 to 16777215");
    check_refused(LGB_HEAD "Tree=0\nnum_leaves=2\nnum_cat=0\nleaf_value=1 2\nsplit_feature=0\n",
                  "m: tree 0: threshold has 0 values, must have 1");
    check_refused(LGB_HEAD "Tree=0\nnum_leaves=3\nleaf_value=1 2\n",
                  "m: tree 0: leaf_value has 2 values, must have 3");
    check_refused(LGB_HEAD "Tree=0\nnum_leaves=1\nleaf_value=1x\n",
                  "m: tree 0: leaf_value: value 0 is not a number");
    check_refused(LGB_HEAD
                  "Tree=0\nnum_leaves=2\nleaf_value=1 2\nsplit_feature=0\nthreshold=1\nleft_child=-3\n"
                  "right_child=-2\n",
                  "m: tree 0: left_child is -3, must be an integer from -2 to 0");
    check_refused(LGB_HEAD
                  "Tree=0\nnum_leaves=2\nleaf_value=1 2\nsplit_feature=0\nthreshold=1\nleft_child=-2\n"
                  "right_child=-2\n",
                  "m: tree 0: node 2 has two parents");
    check_refused(LGB_HEAD "Tree=0\nnum_leaves=1\nleaf_value=1\nis_linear=1\n",
                  "m: tree 0: leaf_const has 0 values, must have 1");
    check_refused(LGB_LINE "num_features=2\nleaf_features=0\nleaf_coeff=1\n",
                  "m: tree 0: num_features is 2, must be an integer from 0 to 1");
    check_refused(LGB_LINE "num_features=1\nleaf_features=2\nleaf_coeff=1\n",
                  "m: tree 0: leaf_features is 2, must be an integer from 0 to 1");
    check_refused(LGB_LINE "num_features=0\nleaf_features=0\nleaf_coeff=1\n",
                  "m: tree 0: leaf_features has 1 values, must have 0");
    check_refused(LGB_LINE "num_features=1\nleaf_features=0\nleaf_coeff=\n",
                  "m: tree 0: leaf_coeff has 0 values, must have 1");
    check_refused(
        "tree\nmax_feature_idx=1\nnum_tree_per_iteration=2\nobjective=multiclass\nTree=0\nnum_leaves=1\n"
        "leaf_value=1\n",
        "m: 1 trees, each round has 2");
    check_refused("tree\nmax_feature_idx=1\nobjective=other\n", "m: objective 'other' is not known");
    check_refused("tree\nmax_feature_idx=1\nobjective=binary sigmoid:0\n",
                  "m: sigmoid is 0, must be above 0");
    check_refused(LGB_HEAD
                  "Tree=0\nnum_leaves=2\nnum_cat=1\nleaf_value=1 2\nsplit_feature=0\nthreshold=1\n"
                  "left_child=-1\nright_child=-2\ndecision_type=1\ncat_boundaries=0 1\ncat_threshold=1\n",
                  "m: tree 0: threshold of a categorical split is 1, must be an integer from 0 to 0");
}

/* ---- treelite ---- */

/* A golden checkpoint cut or changed at each byte: refused or a forest, never more. Cut, it always is refused. */
static void check_changed(const char *name)
{
    char path[PROA_PATH_MAX];
    proa_buf buf;
    proa_err err = {.status = PROA_OK};
    snprintf(path, sizeof path, FOLDER "%s", name);
    assert_int_equal(proa_file_read(&buf, path, PROA_MIB, &err), PROA_OK);
    for (size_t i = 0; i < buf.len; i++) {
        proa_forest *f = NULL;
        err = (proa_err){.status = PROA_OK};
        proa_status status = proa_forest_parse(&f, (proa_str){buf.ptr, i}, PROA_FOREST_TREELITE, "m", &err);
        assert_true(status != PROA_OK && f == NULL && strlen(err.text) > 3);
        buf.ptr[i] = (char)~buf.ptr[i];
        err = (proa_err){.status = PROA_OK};
        status = proa_forest_parse(&f, proa_buf_view(&buf), PROA_FOREST_TREELITE, "m", &err);
        assert_true((status == PROA_OK) == (f != NULL));
        proa_forest_free(f);
        buf.ptr[i] = (char)~buf.ptr[i];
    }
    proa_buf_release(&buf);
}

static void test_treelite_changed(void **state)
{
    (void)state;
    check_changed("tl-sigmoid-float32.tl");
    check_changed("tl39-sklearn-rf-regressor.tl");
}

static void test_treelite_lies(void **state)
{
    (void)state;
    proa_err err = {.status = PROA_OK};
    proa_forest *f = NULL;
    const char old[] = "\3\0\0\0\10\0\0\0\0\0\0";
    assert_int_equal(proa_forest_parse(&f, (proa_str){old, 12}, PROA_FOREST_AUTO, "m", &err), PROA_UNSUPPORTED);
    assert_string_equal(err.text, "m: checkpoint of treelite 3.8.0, those of 3.9 and 4.x are read");
    const char types[] = "\4\0\0\0\1\0\0\0\0\0\0\0\2\1";
    err = (proa_err){.status = PROA_OK};
    assert_int_equal(proa_forest_parse(&f, (proa_str){types, 14}, PROA_FOREST_AUTO, "m", &err), PROA_UNSUPPORTED);
    assert_string_equal(err.text,
                        "m: thresholds of type 2 and leaves of type 1, float32 and float64 are read");
}

/* ---- the format, and cuts ---- */

static void test_formats(void **state)
{
    (void)state;
    check_refused("", "m: the file is empty");
    check_refused("binf\1\2", "m: XGBoost's old binary format: save the model again as .json or .ubj");
    check_refused("hello", "m: not a model of XGBoost (JSON, UBJSON), LightGBM (text) or treelite");
    proa_err err;
    assert_null(parse_text(LGB_HEAD, PROA_FOREST_XGBOOST_JSON, &err));
    assert_string_equal(err.text, "m: byte 0: 't' where an object should be");
    assert_null(parse_text("{}", PROA_FOREST_LIGHTGBM, &err));
    assert_string_equal(err.text, "m: the first line is not \"tree\": not a model of LightGBM");
    err = (proa_err){.status = PROA_OK};
    proa_forest *f = NULL;
    assert_int_equal(proa_forest_open(&f, FOLDER "no-such.json", PROA_FOREST_AUTO, &err), PROA_NOT_FOUND);
    assert_null(f);
}

static bool ask(proa_forest_op op, double x, double t)
{
    return op == PROA_FOREST_LT   ? x < t
           : op == PROA_FOREST_LE ? x <= t
           : op == PROA_FOREST_GT ? x > t
                                  : x >= t;
}

/* For each pair of odd numbers, and numbers between floats, the cut says what the comparison says. */
static void test_cuts(void **state)
{
    (void)state;
    const double odd[] = {0,      -0.0,     1,        0.1,         -0.1,  1e-45,       -1e-45,   1e-46,
                          -1e-46, FLT_MAX,  -FLT_MAX, 1e39,        -1e39, 1e300,       INFINITY, -INFINITY,
                          NAN,    16777217, FLT_MIN,  0.5 + 1e-12, 0.5,   0.5 - 1e-12, 1e-320};
    const float x[] = {0,        -0.0f,   1,        0.1f,        -0.1f,       1e-45f,
                       -1e-45f,  FLT_MAX, -FLT_MAX, INFINITY,    -INFINITY,   16777216,
                       16777218, FLT_MIN, 0.5f,     0.49999997f, 0.50000006f, 0.100000009f};
    for (int op = PROA_FOREST_LT; op <= PROA_FOREST_GE; op++)
        for (size_t i = 0; i < PROA_COUNT(odd); i++) {
            bool swapped;
            float cut = proa_forest_cut((proa_forest_op)op, odd[i], &swapped);
            for (size_t k = 0; k < PROA_COUNT(x); k++)
                if (((x[k] <= cut) != swapped) != ask((proa_forest_op)op, (double)x[k], odd[i]))
                    fail_msg("op %d, x %.9g, threshold %.17g: cut %.9g", op, (double)x[k], odd[i], (double)cut);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),          cmocka_unit_test(test_numbers_are_rounded_once),
        cmocka_unit_test(test_xgboost),          cmocka_unit_test(test_xgboost_categories),
        cmocka_unit_test(test_xgboost_lies),     cmocka_unit_test(test_json),
        cmocka_unit_test(test_ubjson),           cmocka_unit_test(test_lightgbm),
        cmocka_unit_test(test_lightgbm_lines),   cmocka_unit_test(test_lightgbm_lies),
        cmocka_unit_test(test_treelite_changed), cmocka_unit_test(test_treelite_lies),
        cmocka_unit_test(test_formats),          cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
