/* SPDX-License-Identifier: Apache-2.0
 * test_transform.c - the backend transform: each operation on each kind of argument, features of texts, what goes on by
 * reference, and each mistake of a configuration by its words. */
#include "rig.h"

#include "backends/transform/scan.h"
#include "text/unicode.h"

#define B1                   "name: \"m\" max_batch_size: 8 "
#define B0                   "name: \"m\" max_batch_size: 0 "
#define IN(name, type, dims) "input { name: \"" name "\" data_type: TYPE_" type " dims: " dims " } "
#define RAGGED(name, type, dims)                                                                             \
    "input { name: \"" name "\" data_type: TYPE_" type " dims: " dims " allow_ragged_batch: true } "
#define OUT(name, type, dims) "output { name: \"" name "\" data_type: TYPE_" type " dims: " dims " } "
#define STEPS(text)           "parameters { key: \"steps\" value { string_value: '" text "' } } "
#define F32(...)                                                                                             \
    (const float[])                                                                                          \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

#define NOTHING 4 /* the bucket of "nothing" among 16, by another program */

static char folder[] = "/tmp/proa_test_transform_XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[PROA_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_folder(void **state)
{
    PROA_UNUSED(state);
    if (!mkdtemp(folder)) return 1;
    write_file("vocabulary.txt", "# words of praise and blame\ngood\nnot good\nbad\r\n");
    write_file("articles.txt", "the\nnot a\n");
    write_file("lexicon.tsv", "good\t1\t0.5\nnot good\t-2\t0\nbad\t-1.5\t0.25");
    return 0;
}

static int remove_folder(void **state)
{
    char command[PROA_PATH_MAX];
    PROA_UNUSED(state);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static void open_model(rig *g, const char *config)
{
    rig_open(g, &proa_backend_transform, config, folder);
}

/* A configuration that is refused with these words. */
static void refuse(const char *config, const char *words)
{
    rig g;
    proa_status status = rig_try(&g, &proa_backend_transform, config, folder);
    if (status != PROA_INVALID || !strstr(g.err.text, words))
        fail_msg("%s\ngave status %d '%s', not '%s'", config, status, g.err.text, words);
    rig_release(&g);
}

static void put_floats(proa_infer *r, const char *name, const float *values, int64_t rows, int64_t columns)
{
    put(r, name, PROA_TYPE_FP32, values, (size_t)(rows * columns) * 4, 2, (int64_t[]){rows, columns});
}

static void assert_floats(const proa_reply *reply, const char *name, const float *want, int64_t count)
{
    const float *have = floats(reply, name);
    assert_int_equal(out(reply, name)->bytes, count * 4);
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(have[i] - want[i]) <= 1e-6f * fmaxf(1, fabsf(want[i]))))
            fail_msg("%s[%d] is %.9g, not %.9g", name, (int)i, (double)have[i], (double)want[i]);
}

/* ---- arithmetic ---- */

static void test_arithmetic(void **state)
{
    rig g;
    PROA_UNUSED(state);
    open_model(&g, B1 IN("A", "FP32", "2") IN("B", "FP32", "2") STEPS(
                       "AVERAGE = average(A, B); WEIGHTED = average(A, B, weights=[3, 1]);"
                       "SUM = sum(A, B, A); PRODUCT = product(A, B); LINEAR = linear(A, scale=2, offset=-1);"
                       "CLIP = clip(A, low=0, high=2.5); SIGMOID = sigmoid(B); SOFTMAX = softmax(A);"
                       "JOINED = concat(A, B); SECOND = slice(JOINED, from=1, to=-1); SAME = A"));
    assert_int_equal(g.model.config->n_output, 10); /* JOINED is used */
    proa_infer *r = ask();
    put_floats(r, "A", F32(1, 2, -3, 4), 2, 2);
    put_floats(r, "B", F32(5, 0, 1, -2), 2, 2);
    const proa_reply *reply = only(run(&g, r));
    assert_floats(reply, "AVERAGE", F32(3, 1, -1, 1), 4);
    assert_floats(reply, "WEIGHTED", F32(2, 1.5f, -2, 2.5f), 4);
    assert_floats(reply, "SUM", F32(7, 4, -5, 6), 4);
    assert_floats(reply, "PRODUCT", F32(5, 0, -3, -8), 4);
    assert_floats(reply, "LINEAR", F32(1, 3, -7, 7), 4);
    assert_floats(reply, "CLIP", F32(1, 2, 0, 2.5f), 4);
    assert_floats(reply, "SIGMOID", F32(0.99330715f, 0.5f, 0.73105858f, 0.11920292f), 4);
    assert_floats(reply, "SOFTMAX", F32(0.26894142f, 0.73105858f, 0.00091105f, 0.99908895f), 4);
    assert_floats(reply, "SECOND", F32(2, 5, 4, 1), 4);
    assert_shape(reply, "SECOND", 2, 2, 2, 0);
    assert_ptr_equal(out(reply, "SAME")->data, proa_infer_input(r, "A")->data);
    assert_null(proa_reply_output(reply, "JOINED"));
    forget(r);
    rig_close(&g);
}

/* Longer than what is converted at once; FP64 stays FP64; integers count as numbers. */
static void test_wide(void **state)
{
    enum { N = 1000 };
    double a[N];
    int64_t b[N];
    rig g;
    PROA_UNUSED(state);
    open_model(&g, B1 IN("A", "FP64", "-1") IN("B", "INT64", "-1") STEPS("S = sum(A, B); P = softmax(B)"));
    assert_int_equal(g.model.config->output[0]->data_type, INFERENCE__DATA_TYPE__TYPE_FP64);
    for (int i = 0; i < N; i++) a[i] = i * 0.1, b[i] = i % 7;
    proa_infer *r = ask();
    put(r, "A", PROA_TYPE_FP64, a, sizeof a, 2, (int64_t[]){1, N});
    put(r, "B", PROA_TYPE_INT64, b, sizeof b, 2, (int64_t[]){1, N});
    const proa_reply *reply = only(run(&g, r));
    const double *sum = (const void *)out(reply, "S")->data;
    const float *share = floats(reply, "P");
    double all = 0, scale = 0;
    for (int i = 0; i < N; i++) scale += exp((double)b[i]);
    for (int i = 0; i < N; i++) {
        assert_true(sum[i] == a[i] + (double)b[i]);
        assert_true(fabs((double)share[i] - exp((double)b[i]) / scale) < 1e-8);
        all += (double)share[i];
    }
    assert_true(fabs(all - 1) < 1e-5);
    forget(r);
    rig_close(&g);
}

static void test_cast(void **state)
{
    static const float values[] = {0, 1.9f, -1.9f, 300, -300, 5e9f, -5e9f, 3e19f, NAN};
    rig g;
    PROA_UNUSED(state);
    open_model(
        &g,
        B0 IN("A", "FP32", "9") STEPS(
            "U8 = cast(A, to=UINT8); I8 = cast(A, to=TYPE_INT8); I32 = cast(A, to=INT32);"
            "I64 = cast(A, to=INT64); U64 = cast(A, to=UINT64); H = cast(A, to=FP16); L = cast(A, to=BOOL);"
            "BACK = cast(I32, to=FP32); SAME = cast(A, to=FP32); WIDE = cast(I64, to=UINT64)"));
    proa_infer *r = ask();
    put(r, "A", PROA_TYPE_FP32, values, sizeof values, 1, (int64_t[]){9});
    const proa_reply *reply = only(run(&g, r));
    const uint8_t u8[] = {0, 1, 0, 255, 0, 255, 0, 255, 0}, boolean[] = {0, 1, 1, 1, 1, 1, 1, 1, 1};
    const int8_t i8[] = {0, 1, -1, 127, -128, 127, -128, 127, 0};
    const uint64_t u64[] = {0, 1, 0, 300, 0, 5000000000, 0, UINT64_MAX, 0};
    const uint64_t wide[] = {0, 1, 0, 300, 0, 5000000000, 0, INT64_MAX, 0};
    const float back[] = {0, 1, -1, 300, -300, 0x1p31f, -0x1p31f, 0x1p31f, 0};
    const uint16_t half[] = {0, 0x3f9a, 0xbf9a, 0x5cb0, 0xdcb0};
    assert_memory_equal(out(reply, "U8")->data, u8, sizeof u8);
    assert_memory_equal(out(reply, "I8")->data, i8, sizeof i8);
    assert_null(proa_reply_output(reply, "I64")); /* used by WIDE */
    assert_memory_equal(out(reply, "U64")->data, u64, sizeof u64);
    assert_memory_equal(out(reply, "WIDE")->data, wide, sizeof wide);
    assert_memory_equal(out(reply, "L")->data, boolean, sizeof boolean);
    assert_memory_equal(out(reply, "H")->data, half, sizeof half);
    assert_memory_equal(out(reply, "BACK")->data, back, sizeof back);
    assert_ptr_equal(out(reply, "SAME")->data, proa_infer_input(r, "A")->data);
    forget(r);
    rig_close(&g);
}

static void test_axes(void **state)
{
    static const float values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; /* [2,3,2] */
    rig g;
    PROA_UNUSED(state);
    open_model(
        &g,
        B0 IN("A", "FP32", "[2, 3, 2]") STEPS(
            "MIDDLE = slice(A, axis=1, from=1, to=2); FIRST = slice(A, axis=0, to=1);"
            "TALL = concat(A, A, axis=0); WIDE = concat(MIDDLE, A, axis=-2); NONE = slice(A, from=1, to=1)")
            OUT("MIDDLE", "FP32", "[2, 1, 2]") OUT("FIRST", "FP32", "[1, 3, 2]") OUT("TALL", "FP32", "[4, 3, 2]")
                OUT("WIDE", "FP32", "[2, -1, 2]") OUT("NONE", "FP32", "[2, 3, -1]"));
    proa_infer *r = ask();
    put(r, "A", PROA_TYPE_FP32, values, sizeof values, 3, (int64_t[]){2, 3, 2});
    const proa_reply *reply = only(run(&g, r));
    assert_floats(reply, "MIDDLE", F32(2, 3, 8, 9), 4);
    assert_floats(reply, "TALL",
                  F32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 24);
    assert_floats(reply, "WIDE", F32(2, 3, 0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 8, 9, 10, 11), 16);
    assert_shape(reply, "NONE", 3, 2, 3, 0);
    assert_int_equal(out(reply, "NONE")->bytes, 0);
    assert_ptr_equal(out(reply, "FIRST")->data, proa_infer_input(r, "A")->data); /* cut out, not copied */
    assert_ptr_equal(out(reply, "FIRST")->buffer, proa_infer_input(r, "A")->buffer);
    forget(r);
    rig_close(&g);
}

/* Only what is asked for is computed, and what is not there is not missed. */
static void test_wanted(void **state)
{
    rig g;
    PROA_UNUSED(state);
    open_model(&g, B1 RAGGED("A", "FP32", "-1") RAGGED("B", "FP32", "-1")
                       STEPS("X = slice(A, to=2); Y = sum(A, B); Z = linear(A, scale=2)"));
    proa_infer *r = ask();
    put_floats(r, "A", F32(1), 1, 1);
    put_floats(r, "B", F32(1, 2), 1, 2);
    proa_infer_add_output(r, proa_str_c("Z"));
    const proa_reply *reply = only(run(&g, r));
    assert_floats(reply, "Z", F32(2), 1);
    assert_int_equal(reply->outputs_count, 1);
    forget(r);
    r = ask();
    put_floats(r, "A", F32(1), 1, 1);
    put_floats(r, "B", F32(1, 2), 1, 2);
    proa_infer_add_output(r, proa_str_c("X"));
    assert_refused(&g, r, PROA_INVALID,
                   "step 1 (slice): from 0 to 2 lies outside of dimension 1 of 'A', which has shape [1,1]");
    r = ask();
    put_floats(r, "A", F32(1), 1, 1);
    put_floats(r, "B", F32(1, 2), 1, 2);
    proa_infer_add_output(r, proa_str_c("Y"));
    assert_refused(&g, r, PROA_INVALID,
                   "step 2 (sum): expected 'A' and 'B' to have matching shapes, got [1,1] and [1,2]");
    rig_close(&g);
}

/* ---- texts ---- */

static void test_counts(void **state)
{
    static const char *const texts[] = {"It's GOOD, isn't it? Yes\xE2\x80\xA6 3.5 stars!", "",
                                        "\xC3\x84rger \xFF\xFE 'x'"};
    rig g;
    PROA_UNUSED(state);
    open_model(&g, B1 IN("TEXT", "STRING", "1") STEPS("F = text_features(TEXT)"));
    assert_int_equal(g.model.config->output[0]->dims[0], 16);
    proa_infer *r = ask();
    put_texts(r, "TEXT", texts, 3, 2, (int64_t[]){3, 1});
    const proa_reply *reply = only(run(&g, r));
    assert_shape(reply, "F", 2, 3, 16, 0);
    /* characters words sentences punctuation letters digits upper ! ? long, then word_length,
     * sentence_length, upper_share, punctuation_share, distinct_share, distinct_words */
    float rows[48] = {36, 8, 4, 5, 21, 2, 6, 1, 1, 0, 3.125f, 2, 2 / 7.0f, 5 / 36.0f, 1, 8};
    static const float third[16] = {12, 2, 1, 2, 6, 0, 1, 0, 0, 0, 3, 2, 1 / 6.0f, 1 / 6.0f, 1, 2};
    memcpy(rows + 32, third, sizeof third);
    assert_floats(reply, "F", rows, 48);
    forget(r);
    rig_close(&g);
}

static void test_ngrams(void **state)
{
    static const char *const texts[] = {"Good, not good; BAD bad bad", "nothing"};
    rig g;
    PROA_UNUSED(state);
    open_model(&g,
               B1 IN("TEXT", "STRING", "1") STEPS(
                   "COUNTS = text_features(TEXT, vocabulary=vocabulary.txt);"
                   "SHARES = text_features(TEXT, counts=[words], vocabulary=\"vocabulary.txt\", value=share);"
                   "WEIGHTS = text_features(TEXT, lexicon=lexicon.tsv, stats=[sum, mean, min, max]);"
                   "HASHED = text_features(TEXT, hashed=16, ngrams=2); SEEN = text_features(TEXT, hashed=16, "
                   "value=present)"));
    proa_infer *r = ask();
    put_texts(r, "TEXT", texts, 2, 2, (int64_t[]){2, 1});
    const proa_reply *reply = only(run(&g, r));
    assert_floats(reply, "COUNTS", F32(2, 1, 3, 0, 0, 0), 6);
    assert_floats(reply, "SHARES", F32(6, 2 / 6.0f, 1 / 6.0f, 3 / 6.0f, 1, 0, 0, 0), 8);
    assert_floats(reply, "WEIGHTS",
                  F32(-4.5f, 1.75f, -0.75f, 1.75f / 6, -2, 0, 1, 0.5f, 0, 0, 0, 0, 0, 0, 0, 0), 16);
    float sum = 0, seen = 0;
    for (int i = 0; i < 16; i++) sum += floats(reply, "HASHED")[i], seen += floats(reply, "SEEN")[i];
    assert_float_equal(sum, 6 + 5, 0);
    assert_true(seen >= 2 && seen <= 3);
    assert_float_equal(floats(reply, "HASHED")[16 + NOTHING], 1, 0);
    forget(r);
    rig_close(&g);
}

/* How many n-grams of a text are in a list, beside counts and a vocabulary. */
static void test_lists(void **state)
{
    static const char *const texts[] = {"The bad the good: not a bad one", "Nothing"};
    rig g;
    PROA_UNUSED(state);
    open_model(
        &g,
        B1 IN("TEXT", "STRING", "1") STEPS(
            "F = text_features(TEXT, lists=[articles.txt, vocabulary.txt], counts=[words, distinct_words], "
            "vocabulary=vocabulary.txt);"
            "ONE = text_features(TEXT, lists=articles.txt);"
            "SEEN = text_features(TEXT, lists=[articles.txt], value=present);"
            "SHARE = text_features(TEXT, lists=[articles.txt], value=share)"));
    proa_infer *r = ask();
    put_texts(r, "TEXT", texts, 2, 2, (int64_t[]){2, 1});
    const proa_reply *reply = only(run(&g, r));
    assert_floats(reply, "F", F32(8, 6, 3, 3, 1, 0, 2, 1, 1, 0, 0, 0, 0, 0), 14);
    assert_floats(reply, "ONE", F32(3, 0), 2);
    assert_floats(reply, "SEEN", F32(1, 0), 2);
    assert_floats(reply, "SHARE", F32(3 / 8.0f, 0), 2);
    forget(r);
    rig_close(&g);
    refuse(B1 IN("TEXT", "STRING", "1") STEPS("F = text_features(TEXT, lists=[articles.txt, none.txt])"),
           "file 'none.txt' is neither in");
    refuse(B1 IN("TEXT", "STRING", "1") STEPS("F = text_features(TEXT, lists=[])"),
           "option 'lists' has 0 files, must be 1 to 64");
}

/* Without a dimension of 1 the features are one more. */
static void test_text_shapes(void **state)
{
    static const char *const texts[] = {"a b", "c", "d e f"};
    rig g;
    PROA_UNUSED(state);
    open_model(&g, B0 IN("TEXT", "STRING", "-1") STEPS("F = text_features(TEXT, counts=[words, letters])"));
    proa_infer *r = ask();
    put_texts(r, "TEXT", texts, 3, 1, (int64_t[]){3});
    const proa_reply *reply = only(run(&g, r));
    assert_shape(reply, "F", 2, 3, 2, 0);
    assert_floats(reply, "F", F32(2, 2, 1, 1, 3, 3), 6);
    forget(r);
    r = ask();
    put_texts(r, "TEXT", texts, 0, 1, (int64_t[]){0});
    assert_shape(only(run(&g, r)), "F", 2, 0, 2, 0);
    forget(r);
    rig_close(&g);
}

/* Texts of any bytes: as many characters as there are, whatever is malformed; the sanitisers see every step outside. */
static void test_any_bytes(void **state)
{
    uint32_t seed = 1;
    proa_arena arena;
    PROA_UNUSED(state);
    proa_arena_init(&arena);
    for (int round = 0; round < 2000; round++) {
        static const char pieces[] = "aA1 .'\xE2\x80\x99\xC8\xBA\xF0";
        size_t len = (size_t)round % 64;
        char *text = malloc(len + 1);
        proa_text_counts n;
        proa_buf repaired;
        for (size_t i = 0; i < len; i++) {
            seed = seed * 1664525 + 1013904223;
            text[i] = round % 2 ? (char)(seed >> 24) : pieces[(seed >> 24) % (sizeof pieces - 1)];
        }
        proa_text_scan(&n, (proa_str){text, len}, &arena, NULL, NULL);
        proa_buf_init(&repaired, 1000);
        proa_utf8_repair(&repaired, (proa_str){text, len});
        assert_int_equal(n.characters, proa_utf8_count(proa_buf_view(&repaired)));
        assert_true(n.word_characters + n.punctuation <= n.characters);
        proa_buf_release(&repaired);
        free(text);
        proa_arena_reset(&arena);
    }
    proa_arena_release(&arena);
}

/* ---- mistakes ---- */

static void test_refused_steps(void **state)
{
    PROA_UNUSED(state);
#define A2 B1 IN("A", "FP32", "2") IN("T", "STRING", "1")
    refuse(A2, "model 'm' of backend 'transform' needs the parameter 'steps'");
    refuse(A2 STEPS(" # nothing"), "parameter 'steps': there is no step");
    refuse(A2 STEPS("X = frob(A)"), "step 1: 'frob' is no operation; there are average, cast");
    refuse(A2 STEPS("X = sum(A); X = sum(A)"), "step 2: there is a 'X' already");
    refuse(A2 STEPS("A = sum(A)"), "step 1: there is a 'A' already");
    refuse(A2 STEPS("X = sum(A, Q)"), "step 1 (sum): 'Q' is no input and no earlier step");
    refuse(A2 STEPS("X = sum(A"), "step 1: expected ',' or ')' at the end of the text");
    refuse(A2 STEPS("X = sum(A) Y = sum(A)"), "step 1: expected ';' at 'Y = sum(A)'");
    refuse(A2 STEPS("X sum(A)"), "step 1: expected '=' at 'sum(A)'");
    refuse(A2 STEPS("X = average(A, weights=[1, 2)"), "step 1: expected ',' or ']' at ')'");
    refuse(A2 STEPS("X = \"sum(A)"), "step 1: expected the closing quote of the text");
    refuse(A2 STEPS("X = sum()"), "step 1 (sum): takes at least 1 argument, got 0");
    refuse(A2 STEPS("X = sigmoid(A, A)"), "step 1 (sigmoid): takes 1 argument, got 2");
    refuse(A2 STEPS("X = sigmoid(A, base=2)"),
           "step 1 (sigmoid): option 'base' is not known; there are none");
    refuse(A2 STEPS("X = linear(A, factor=2)"),
           "option 'factor' is not known, or not with the others; there are scale, offset");
    refuse(A2 STEPS("X = linear(A, scale=2, scale=2)"), "option 'scale' is given twice");
    refuse(A2 STEPS("X = linear(A, scale=two)"), "option 'scale' must be a number, is 'two'");
    refuse(A2 STEPS("X = average(A, weights=[1, 2])"), "option 'weights' has 2 elements for 1 arguments");
    refuse(A2 STEPS("X = average(A, A, weights=[1, -1])"), "the weights have the sum 0");
    refuse(A2 STEPS("X = average(A, A, weights=[1, x])"), "option 'weights' has 'x', which is no number");
    refuse(A2 STEPS("X = clip(A, low=2, high=1)"), "'low' is 2, above 'high', 1");
    refuse(A2 STEPS("X = cast(A)"), "option 'to' must be a type, such as FP16");
    refuse(A2 STEPS("X = cast(A, to=BYTES)"), "option 'to' is 'BYTES', must be a type of numbers");
    refuse(A2 STEPS("X = slice(A, from=3)"),
           "from 3 to 2 lies outside of dimension 0 of 'A', which has shape [2]");
    refuse(A2 STEPS("X = slice(A, axis=1)"), "option 'axis' must be an integer from -1 to 0, is 1");
    refuse(A2 STEPS("X = sum(T)"), "step 1 (sum): 'T' is BYTES, must be numbers");
    refuse(B1 IN("A", "FP32", "2") IN("B", "INT32", "2") STEPS("X = concat(A, B)"),
           "expected 'A' and 'B' to have the same type, got FP32 and INT32");
    refuse(B1 IN("A", "FP32", "2") IN("B", "FP32", "3") STEPS("X = sum(A, B)"),
           "expected 'A' and 'B' to have matching shapes, got [2] and [3]");
    refuse(B1 "input { name: \"A\" data_type: TYPE_FP32 dims: 1 optional: true } " STEPS("X = sum(A)"),
           "input 'A' of model 'm' is optional");
}

static void test_refused_texts(void **state)
{
    PROA_UNUSED(state);
    write_file("capitals.txt", "good\nNot Good\n");
    write_file("twice.txt", "good\n\ngood\n");
    write_file("short.tsv", "good\t1\t2\nbad\t1\n");
    write_file("words.tsv", "good\tx\n");
    write_file("none.tsv", "good\n");
    write_file("empty.txt", "\n# nothing\n");
    write_file("long.txt", "a b c d e f g h i\n");
    refuse(A2 STEPS("X = text_features(A)"), "step 1 (text_features): 'A' is FP32, must be BYTES");
    refuse(A2 STEPS("X = text_features(T, counts=[words, wrods])"), "option 'counts' has 'wrods'");
    refuse(A2 STEPS("X = text_features(T, vocabulary=nowhere.txt)"),
           "file 'nowhere.txt' is neither in '/tmp/proa_test");
    refuse(A2 STEPS("X = text_features(T, vocabulary=capitals.txt)"),
           "capitals.txt', line 2: must be words in lower case, divided by single spaces");
    refuse(A2 STEPS("X = text_features(T, vocabulary=twice.txt)"), "twice.txt', line 3: stands there twice");
    refuse(A2 STEPS("X = text_features(T, vocabulary=empty.txt)"), "empty.txt' has no n-gram");
    refuse(A2 STEPS("X = text_features(T, vocabulary=long.txt)"), "line 1: has too many words");
    refuse(A2 STEPS("X = text_features(T, vocabulary=lexicon.tsv)"),
           "line 1: has a tab: a vocabulary has nothing but n-grams");
    refuse(A2 STEPS("X = text_features(T, lexicon=short.tsv)"), "line 2: has another number of weights");
    refuse(A2 STEPS("X = text_features(T, lexicon=words.tsv)"), "line 1: has a weight that is no number");
    refuse(A2 STEPS("X = text_features(T, lexicon=none.tsv)"), "line 1: has no weight: n-gram, tab, number");
    refuse(A2 STEPS("X = text_features(T, lexicon=lexicon.tsv, stats=[sum, most])"),
           "option 'stats' has 'most'");
    refuse(A2 STEPS("X = text_features(T, stats=[sum])"),
           "option 'stats' is not known, or not with the others");
    refuse(A2 STEPS("X = text_features(T, hashed=2.5)"), "option 'hashed' must be an integer");
    refuse(A2 STEPS("X = text_features(T, counts=[])"), "makes 0 features, must be 1 to");
}

static void test_refused_outputs(void **state)
{
    PROA_UNUSED(state);
    refuse(A2 STEPS("X = sum(A)") OUT("Y", "FP32", "2"), "output 'Y' of model 'm' is made by no step");
    refuse(A2 STEPS("X = sum(A)") OUT("X", "FP16", "2"),
           "unable to load model 'm', configuration expects datatype TYPE_FP16 for output 'X', model "
           "provides TYPE_FP32");
    refuse(A2 STEPS("X = sum(A)") OUT("X", "FP32", "3"),
           "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,2]) but the model configuration "
           "specifies 2 "
           "dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit "
           "tensor shape, "
           "making complete shape [-1,3])");
    refuse(B0 IN("A", "FP32", "2") STEPS("X = sum(A)") OUT("X", "FP32", "[1, 2]"),
           "model 'm', tensor 'X': the model expects 1 dimensions (shape [2]) but the model configuration "
           "specifies 2 "
           "dimensions (shape [1,2])");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic),     cmocka_unit_test(test_wide),
        cmocka_unit_test(test_cast),           cmocka_unit_test(test_axes),
        cmocka_unit_test(test_wanted),         cmocka_unit_test(test_counts),
        cmocka_unit_test(test_ngrams),         cmocka_unit_test(test_lists),
        cmocka_unit_test(test_text_shapes),    cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_refused_steps),  cmocka_unit_test(test_refused_texts),
        cmocka_unit_test(test_refused_outputs)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
