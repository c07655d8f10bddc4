/* SPDX-License-Identifier: Apache-2.0
 * test_gpu.c - backends on GPUs: forests give the bits of the CPU's, tensors stay on their GPU between steps, what
 * wants host memory gets a counted copy, and a GPU that is not there is refused.
 * The GPUs are those of tests/fake_gpu; with PROA_TEST_GPU set, those of the machine. */
#include "rig.h"

#include "../forest/grow.h"
#include "backends/fil/device.h"
#include "serve/server.h"
#include <sys/stat.h>

#define FORESTS PROA_SOURCE_DIR "/tests/golden/forest/"
#define COLUMNS 6
#define ROWS    40

static proa_gpu_stream stream;

static int open_stream(void **state)
{
    proa_err err = {.status = PROA_OK};
    (void)state;
    if (!getenv("PROA_TEST_GPU")) setenv("PROA_CUDA_PLUGIN", PROA_FAKE_GPU, 1);
    if (proa_gpu_stream_open(&stream, 0, &err) == PROA_OK) return 0;
    fprintf(stderr, "%s\n", err.text);
    return -1;
}

static int close_stream(void **state)
{
    (void)state;
    proa_gpu_stream_close(&stream);
    return 0;
}

/* ---- forests against the CPU ---- */

static void predict_on_gpu(const proa_forest *f, proa_fil_answer answer, const float *x, int64_t rows,
                           float *scores, int64_t width)
{
    proa_err err = {.status = PROA_OK};
    proa_fil_device *d;
    proa_fil_pass pass;
    const proa_tensor in = {
        .type = PROA_TYPE_FP32, .data = (const char *)x, .bytes = (size_t)(rows * f->features) * sizeof *x};
    if (proa_fil_device_new(&d, &stream, f, answer, 0.5f, &err) != PROA_OK) fail_msg("%s", err.text);
    if (proa_fil_device_run(d, &stream, &in, rows, &pass, &err) != PROA_OK) fail_msg("%s", err.text);
    if (proa_gpu_stream_wait(&stream, &err) != PROA_OK) fail_msg("%s", err.text);
    proa_tensor result = {.type = PROA_TYPE_FP32, .bytes = (size_t)(rows * width) * sizeof *scores};
    assert_int_equal(pass.out->bytes, result.bytes);
    result.buffer = proa_buffer_hold(pass.out);
    result.data = pass.out->data;
    proa_fil_pass_release(&pass);
    assert_int_equal(proa_tensor_to_host(&result, &err), PROA_OK);
    if (result.bytes) memcpy(scores, result.data, result.bytes);
    proa_tensor_release(&result);
    proa_fil_device_free(d);
}

static bool has_fused_exp(void)
{
#if defined(__GLIBC__) && defined(__x86_64__)
    return proa_isa_detect() >= PROA_ISA_AVX2;
#else
    return false;
#endif
}

static bool same_score(float a, float b, bool exact)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return memcmp(&a, &b, sizeof a) == 0 || (!exact && fabsf(a - b) <= 1e-6f * fmaxf(1, fabsf(b)));
}

/* Rows of a forest on the GPU and by the reference predictor: the same bits, where exp is the library's that
 * kernels/libm_exp.h follows. */
static void compare(const proa_forest *f, const float *x, int64_t rows, const char *name)
{
    int64_t n = rows * f->outputs;
    bool exact = f->transform == PROA_FOREST_IDENTITY || has_fused_exp();
    float *want = proa_calloc((size_t)n + 1, sizeof *want), *have = proa_calloc((size_t)n + 1, sizeof *have);
    proa_forest_predict_plain(f, x, rows, false, want);
    predict_on_gpu(f, PROA_FIL_SCORES, x, rows, have, f->outputs);
    for (int64_t i = 0; i < n; i++)
        if (!same_score(have[i], want[i], exact))
            fail_msg("%s, row %d, output %d: %a, must be %a", name, (int)(i / f->outputs),
                     (int)(i % f->outputs), (double)have[i], (double)want[i]);
    free(want), free(have);
}

static void test_golden_forests(void **state)
{
    char name[200], what[20], path[1024];
    int outputs, cases = 0, refused = 0;
    float x[ROWS * COLUMNS];
    FILE *list = fopen(FORESTS "cases.txt", "r"), *inputs = fopen(FORESTS "inputs.f32", "rb");
    (void)state;
    assert_non_null(list);
    assert_int_equal(fread(x, sizeof *x, ROWS * COLUMNS, inputs), ROWS * COLUMNS);
    while (fscanf(list, "%199s %d %19s", name, &outputs, what) == 3) {
        proa_forest *f = NULL;
        proa_err err = {.status = PROA_OK};
        snprintf(path, sizeof path, FORESTS "%s", name);
        assert_int_equal(proa_forest_open(&f, path, PROA_FOREST_AUTO, &err), PROA_OK);
        if (proa_fil_device_refuses(f)) refused++;
        else compare(f, x, ROWS, name), compare(f, x, 3, name), cases++;
        proa_forest_free(f);
    }
    fclose(list), fclose(inputs);
    assert_true(cases > 130);
    assert_true(refused > 0 && refused < 10); /* log(1 + exp(x)) */
}

static void test_random_forests(void **state)
{
    static const grow cases[] = {
        {PROA_FOREST_OF_XGBOOST, PROA_FOREST_IDENTITY, 7, 1, 1, 1, 150, 8, 5, false, false, false, false,
         false, false, 1},
        {PROA_FOREST_OF_XGBOOST, PROA_FOREST_SIGMOID, 7, 1, 1, 1, 50, 8, 5, false, false, true, false, false,
         false, 2},
        {PROA_FOREST_OF_XGBOOST, PROA_FOREST_SOFTMAX, 9, 1, 5, 1, 60, 6, 5, false, true, true, true, false,
         false, 3},
        {PROA_FOREST_OF_LIGHTGBM, PROA_FOREST_SIGMOID, 9, 1, 1, 1, 60, 9, 9, true, true, true, true, true,
         false, 4},
        {PROA_FOREST_OF_LIGHTGBM, PROA_FOREST_SOFTMAX, 9, 1, 3, 1, 60, 7, 9, true, false, true, true, false,
         false, 5},
        {PROA_FOREST_OF_LIGHTGBM, PROA_FOREST_IDENTITY, 9, 1, 1, 1, 60, 7, 9, true, false, false, false,
         false, true, 6},
        {PROA_FOREST_OF_TREELITE, PROA_FOREST_SOFTMAX, 9, 2, 3, 6, 40, 7, 9, true, true, true, true, true,
         false, 7},
        {PROA_FOREST_OF_TREELITE, PROA_FOREST_EXP2_RATIO, 9, 1, 1, 1, 40, 7, 9, true, false, false, false,
         true, false, 8},
        {PROA_FOREST_OF_TREELITE, PROA_FOREST_EXPONENTIAL, 9, 3, 1, 3, 40, 7, 9, false, true, true, true,
         true, false, 9},
        {PROA_FOREST_OF_TREELITE, PROA_FOREST_HINGE, 9, 1, 1, 1, 2, 14, 1, false, false, false, false, true,
         false, 10},
        {PROA_FOREST_OF_XGBOOST, PROA_FOREST_IDENTITY, 3, 1, 1, 1, 0, 1, 5, false, false, false, false, false,
         false, 11},
    };
    static const int64_t rows[] = {0, 1, 31, 32, 100, 333};
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        char name[32];
        proa_forest *f = grow_forest(&cases[i]);
        float *x = grow_rows(&cases[i], 333);
        snprintf(name, sizeof name, "random forest %d", (int)i);
        for (size_t r = 0; r < PROA_COUNT(rows); r++) compare(f, x, rows[r], name);
        free(x);
        proa_forest_free(f);
    }
}

/* ---- the backend ---- */

#define CONFIG(kind, more)                                                                                   \
    "backend: \"fil\" max_batch_size: 256 default_model_filename: \"xgb-reg-squarederror.json\" "            \
    "input { name: \"input__0\" data_type: TYPE_FP32 dims: [ 6 ] } "                                         \
    "output { name: \"output__0\" data_type: TYPE_FP32 dims: [ 1 ] } "                                       \
    "parameters { key: \"model_type\" value { string_value: \"xgboost_json\" } } "                           \
    "parameters { key: \"is_classifier\" value { string_value: \"false\" } } "                               \
    "instance_group { kind: " kind " } " more

static float *golden_rows(int64_t count)
{
    FILE *file = fopen(FORESTS "inputs.f32", "rb");
    float *x = calloc((size_t)count, COLUMNS * sizeof *x);
    assert_non_null(file);
    for (int64_t i = 0; i < count; i++) {
        if (i % ROWS == 0) rewind(file);
        assert_int_equal(fread(x + i * COLUMNS, sizeof *x, COLUMNS, file), COLUMNS);
    }
    fclose(file);
    return x;
}

static proa_infer *ask_rows(const float *x, int64_t rows)
{
    proa_infer *r = ask();
    put(r, "input__0", PROA_TYPE_FP32, x, (size_t)(rows * COLUMNS) * sizeof *x, 2, (int64_t[]){rows, COLUMNS});
    return r;
}

/* Moves an input to the GPU, as the step before would have left it. */
static void move_to_gpu(proa_tensor *t)
{
    proa_err err = {.status = PROA_OK};
    proa_buffer *b;
    assert_int_equal(proa_gpu_upload(&stream, &b, t->data, t->bytes, &err), PROA_OK);
    assert_int_equal(proa_gpu_stream_wait(&stream, &err), PROA_OK);
    proa_buffer_drop(t->buffer);
    t->buffer = b;
    t->data = b->data;
}

/* Requests of one batch, of which some come in device memory, answer what the CPU's model does; each input and output
 * is copied at most once. */
static void test_batches(void **state)
{
    enum { COUNT = 7 };
    static const int64_t counts[COUNT] = {1, 40, 3, 7, 2, 64, 1};
    rig gpu, cpu;
    float *x = golden_rows(128);
    proa_infer *requests[COUNT];
    (void)state;
    rig_open(&cpu, &proa_backend_fil, CONFIG("KIND_CPU", ""), FORESTS);
    rig_open(&gpu, &proa_backend_fil, CONFIG("KIND_GPU gpus: [ 0 ]", "dynamic_batching { }"), FORESTS);
    assert_true(gpu.model.device_inputs && !cpu.model.device_inputs);
    proa_device_copies before = proa_device_copies_count();
    for (int i = 0; i < COUNT; i++) {
        requests[i] = ask_rows(x + i * COLUMNS, counts[i]);
        if (i % 3 == 1) move_to_gpu(&requests[i]->inputs[0]);
        start(&gpu, requests[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        proa_infer *same = ask_rows(x + i * COLUMNS, counts[i]);
        const proa_tensor *have = out(only(wait_for(requests[i])), "output__0");
        const proa_tensor *want = out(only(run(&cpu, same)), "output__0");
        assert_int_equal(have->bytes, want->bytes);
        assert_true(proa_shape_equal(have->shape, have->rank, want->shape, want->rank));
        if (want->bytes) assert_memory_equal(have->data, want->data, want->bytes);
        forget(same), forget(requests[i]);
    }
    proa_device_copies now = proa_device_copies_count();
    assert_int_equal(now.to_host - before.to_host, COUNT);
    assert_in_range(now.to_device - before.to_device, 1, COUNT - 2);
    rig_close(&gpu), rig_close(&cpu);
    free(x);
}

/* Who takes device tensors gets the output where it was made, with the input left alone, whoever describes its memory:
 * that of a library has no function to read it here. */
static void test_no_copy_on_the_device(void **state)
{
    static const proa_device_memory of_library = {.name = "a library's", .gpu = 0};
    rig g;
    float *x = golden_rows(8);
    (void)state;
    rig_open(&g, &proa_backend_fil, CONFIG("KIND_GPU gpus: [ 0 ]", ""), FORESTS);
    proa_infer *r = ask_rows(x, 8);
    move_to_gpu(&r->inputs[0]);
    r->inputs[0].buffer->memory = &of_library;
    r->device_replies = true;
    proa_device_copies before = proa_device_copies_count(), now;
    const proa_tensor *t = out(only(run(&g, r)), "output__0");
    now = proa_device_copies_count();
    assert_string_equal(proa_tensor_device(t)->name, "cuda:0");
    assert_int_equal(now.to_host, before.to_host);
    assert_int_equal(now.to_device, before.to_device);
    forget(r);
    rig_close(&g);
    free(x);
}

/* ---- transform ---- */

#define SERVER_TYPES(X)                                                                                      \
    X(UINT8)                                                                                                 \
    X(UINT16) X(UINT32) X(UINT64) X(INT8) X(INT16) X(INT32) X(INT64) X(FP16) X(BF16) X(FP32) X(FP64) X(BOOL)

/* Bytes that are every kind of number: small ones, huge ones, NaN, infinite. */
static void fill_elements(char *to, proa_type type, int64_t n, uint64_t *seed)
{
    static const double odd[] = {0,   1,    -1,   2.5,   127.5, -128.5, 65504, 65520,
                                 1e9, -3e9, 1e19, -1e19, 1e38,  1e300,  1e-40};
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = grow_bits(seed);
        double d = odd[bits % PROA_COUNT(odd)];
        float f = (float)(bits >> 40) / 65536 - 100;
        int64_t size = proa_type_bytes(type);
        if (type == PROA_TYPE_BOOL) bits &= 1;
        if (type == PROA_TYPE_FP64) memcpy(&bits, &d, 8);
        if (type == PROA_TYPE_FP32 && bits % 3) memcpy(&bits, &f, 4);
        if (type == PROA_TYPE_FP32 && bits % 3 == 0) f = (float)d, memcpy(&bits, &f, 4);
        memcpy(to + i * size, &bits, (size_t)size);
    }
}

#define STEP_ROWS_MAX 37
#define STEP_WIDTH    5

/* Element `at`, in bytes, of both: the same bits, or NaN. */
static bool same_element(const proa_tensor *a, const proa_tensor *b, size_t at)
{
    size_t size = (size_t)proa_type_bytes(a->type);
    float f[2] = {0, 0};
    double d[2] = {0, 0};
    if (a->type == PROA_TYPE_FP32) memcpy(&f[0], a->data + at, size), memcpy(&f[1], b->data + at, size);
    if (a->type == PROA_TYPE_FP64) memcpy(&d[0], a->data + at, size), memcpy(&d[1], b->data + at, size);
    if ((isnan(f[0]) && isnan(f[1])) || (isnan(d[0]) && isnan(d[1]))) return true;
    return memcmp(a->data + at, b->data + at, size) == 0;
}

static void compare_replies(const proa_reply *a, const proa_reply *b, const char *steps, const char *config_type)
{
    assert_int_equal(a->outputs_count, b->outputs_count);
    for (int32_t k = 0; k < a->outputs_count; k++) {
        const proa_tensor *want = &a->outputs[k], *have = out(b, want->name);
        assert_int_equal(have->type, want->type);
        assert_true(proa_shape_equal(have->shape, have->rank, want->shape, want->rank));
        for (size_t at = 0; at < want->bytes; at += (size_t)proa_type_bytes(want->type))
            if (!same_element(want, have, at))
                fail_msg("%s of %s: output %s differs at byte %d", steps, config_type, want->name, (int)at);
    }
}

static void open_steps(rig *g, const char *steps, const char *config_type, bool gpu)
{
    char config[2048];
    snprintf(config, sizeof config,
             "backend: \"transform\" max_batch_size: 64 input { name: \"a\" data_type: %s dims: [ 5 ] } "
             "input { name: \"b\" data_type: %s dims: [ 5 ] } parameters { key: \"steps\" value { "
             "string_value: \"%s\" } } instance_group { kind: %s }",
             config_type, config_type, steps, gpu ? "KIND_GPU gpus: [ 0 ]" : "KIND_CPU");
    rig_open(g, &proa_backend_transform, config, "/nowhere/1");
    assert_int_equal(g->model.device_inputs, gpu);
}

/* Runs the same steps on the CPU and on a GPU; outputs are the same bytes, NaN apart. */
static void compare_steps(const char *steps, proa_type type, const char *config_type)
{
    rig both[2];
    char data[2][STEP_ROWS_MAX * STEP_WIDTH * 8];
    uint64_t seed = (uint64_t)type + 1;
    for (int i = 0; i < 2; i++) open_steps(&both[i], steps, config_type, i == 1);
    for (int64_t rows = 1; rows <= STEP_ROWS_MAX; rows += STEP_ROWS_MAX - 1) {
        proa_infer *r[2];
        const proa_reply *reply[2];
        size_t bytes = (size_t)(rows * STEP_WIDTH * proa_type_bytes(type));
        for (int k = 0; k < 2; k++) fill_elements(data[k], type, rows * STEP_WIDTH, &seed);
        for (int i = 0; i < 2; i++) {
            r[i] = ask();
            put(r[i], "a", type, data[0], bytes, 2, (int64_t[]){rows, STEP_WIDTH});
            put(r[i], "b", type, data[1], bytes, 2, (int64_t[]){rows, STEP_WIDTH});
            if (i && rows == 1) move_to_gpu(&r[i]->inputs[0]);
            reply[i] = only(run(&both[i], r[i]));
        }
        compare_replies(reply[0], reply[1], steps, config_type);
        forget(r[0]), forget(r[1]);
    }
    rig_close(&both[0]), rig_close(&both[1]);
}

static void test_transform_steps(void **state)
{
    static const struct {
        proa_type type;
        const char *config;
    } types[] = {
#define TYPE_ROW(name) {PROA_TYPE_##name, "TYPE_" #name},
        SERVER_TYPES(TYPE_ROW)
#undef TYPE_ROW
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(types); i++) {
        compare_steps("s = sum(a, b); p = product(a, b, a); v = average(a, b, weights=[1, 3]); "
                      "l = linear(a, scale=0.1, offset=-3); c = clip(a, low=-1, high=2.5); x = pass(b)",
                      types[i].type, types[i].config);
        compare_steps(
            "j = concat(a, b); t = slice(a, from=1, to=4); u = slice(j, from=-3); k = concat(t, u, a)",
            types[i].type, types[i].config);
        if (!has_fused_exp()) continue;
        compare_steps("g = sigmoid(a); m = softmax(b); n = softmax(g)", types[i].type, types[i].config);
    }
    for (size_t i = 0; i < PROA_COUNT(types); i++)
        for (size_t k = 0; k < PROA_COUNT(types); k++) {
            char steps[64];
            snprintf(steps, sizeof steps, "y = cast(a, to=%s)", types[k].config + 5);
            compare_steps(steps, types[i].type, types[i].config);
        }
}

/* ---- texts ---- */

static char text_folder[] = "/tmp/proa_test_gpu_XXXXXX";

static void write_text_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", text_folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Pieces of texts: words of the files, marks, letters of many scripts, bytes that are no UTF-8. */
static void append_pieces(proa_buf *to, uint64_t *seed, int count)
{
    static const char *const pieces[] = {"good ",
                                         "not good",
                                         "Not  GOOD!",
                                         "bad. ",
                                         "it's ",
                                         "o\xe2\x80\x99"
                                         "clock ",
                                         "'quoted'",
                                         "\xc3\x84rger ",
                                         "\xc4\xb0stanbul",
                                         "\xe2\x84\xaa",
                                         "\xf0\x9f\x98\x80",
                                         "\xe4\xbd\xa0\xe5\xa5\xbd\xe3\x80\x82",
                                         "\xff",
                                         "\xe2\x82",
                                         "\xf0\x9f",
                                         "\xed\xa0\x80",
                                         "\xc0\x80",
                                         "1234 ",
                                         "3.14 ",
                                         "\xef\xbc\x81",
                                         "\xef\xbc\x9f",
                                         "??",
                                         "\xe2\x80\xa6",
                                         "-",
                                         "_",
                                         "(a)",
                                         "\n",
                                         "\t",
                                         "antidisestablishmentarianism ",
                                         "\xcc\x81",
                                         "x",
                                         " "};
    for (int i = 0; i < count; i++) {
        const char *piece = pieces[grow_below(seed, PROA_COUNT(pieces))];
        proa_buf_append(to, piece, strlen(piece));
    }
}

/* All code points once, in texts of a thousand, with a blank between them or not. */
static void append_code_points(proa_buf *to, int32_t first, bool blanks)
{
    for (int32_t c = first; c < first + 1000 && c < 0x110000; c++) {
        char bytes[4];
        if (c >= 0xD800 && c < 0xE000) continue;
        proa_buf_append(to, bytes, (size_t)proa_text_put(c, bytes));
        if (blanks) proa_buf_char(to, ' ');
    }
}

/* Texts of one request: `count` of them, text i from `fill`. */
static void compare_texts(rig both[2], uint64_t seed, int count, int32_t code_points)
{
    proa_infer *r[2];
    proa_buf data;
    const proa_reply *reply[2];
    proa_buf_init(&data, SIZE_MAX / 2);
    for (int i = 0; i < count; i++) {
        proa_buf text;
        proa_buf_init(&text, SIZE_MAX / 2);
        if (code_points >= 0) append_code_points(&text, code_points + i * 1000, grow_below(&seed, 2));
        else append_pieces(&text, &seed, grow_below(&seed, i % 7 ? 30 : 400));
        uint32_t len = (uint32_t)text.len;
        proa_buf_append(&data, &len, sizeof len);
        proa_buf_append(&data, text.ptr, text.len);
        proa_buf_release(&text);
    }
    for (int i = 0; i < 2; i++) {
        r[i] = ask();
        put(r[i], "T", PROA_TYPE_BYTES, data.ptr, data.len, 2, (int64_t[]){count, 1});
        reply[i] = only(run(&both[i], r[i]));
    }
    compare_replies(reply[0], reply[1], "text_features", "TYPE_STRING");
    forget(r[0]), forget(r[1]);
    proa_buf_release(&data);
}

static void test_text_features(void **state)
{
    static const char *const steps[] = {
        "F = text_features(T)",
        "F = text_features(T, vocabulary=v.txt, value=count, counts=[words, distinct_share, distinct_words])",
        "F = text_features(T, vocabulary=v.txt, value=share, lists=[w.txt, v.txt], lexicon=l.tsv, "
        "stats=[sum, mean, min, max], "
        "hashed=64, ngrams=3)",
        "F = text_features(T, hashed=97, ngrams=8, value=present, counts=[distinct_share]); G = linear(F, "
        "scale=0.5)",
    };
    char command[64];
    (void)state;
    assert_non_null(mkdtemp(text_folder));
    write_text_file("v.txt", "good\nnot good\nbad\nit's\nnot good bad\nx\n\xc3\xa4rger\n");
    write_text_file("w.txt", "not good\no'clock\n");
    write_text_file("l.tsv", "good\t1\t0.1\nnot good\t-2\t0.7\nbad\t-1.5\t0.3\nx\t1e-3\t-4\n");
    for (size_t k = 0; k < PROA_COUNT(steps); k++) {
        rig both[2];
        for (int i = 0; i < 2; i++) {
            char config[1024];
            snprintf(
                config, sizeof config,
                "backend: \"transform\" max_batch_size: 256 input { name: \"T\" data_type: TYPE_STRING dims: "
                "[ 1 ] } "
                "parameters { key: \"steps\" value { string_value: \"%s\" } } instance_group { kind: %s }",
                steps[k], i ? "KIND_GPU gpus: [ 0 ]" : "KIND_CPU");
            rig_open(&both[i], &proa_backend_transform, config, text_folder);
        }
        assert_true(both[1].model.device_inputs);
        for (int i = 0; i < 20; i++) compare_texts(both, (uint64_t)i + 1, i ? 40 : 1, -1);
        for (int32_t c = 0; c < 0x110000; c += 200000) compare_texts(both, (uint64_t)c, 200, c);
        rig_close(&both[0]), rig_close(&both[1]);
    }
    snprintf(command, sizeof command, "rm -r %s", text_folder);
    assert_int_equal(system(command), 0);
}

/* ---- an ensemble of steps on a GPU ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* x, twice its number, through a forest, and its sigmoid: three models; `kinds` says where each computes. */
static void write_pipeline(const char *folder, const char *const kinds[3])
{
    char text[2048], model[1024], version[1200];
    snprintf(
        text, sizeof text,
        "backend: \"transform\" max_batch_size: 64 input { name: \"x\" data_type: TYPE_FP32 dims: [ 6 ] } "
        "parameters { key: \"steps\" value { string_value: \"y = linear(x, scale=2)\" } } "
        "instance_group { kind: %s }",
        kinds[0]);
    write_file(folder, "scale/config.pbtxt", text);
    write_file(folder, "scale/1/none", "");
    snprintf(text, sizeof text, CONFIG("%s", ""), kinds[1]);
    write_file(folder, "trees/config.pbtxt", text);
    write_file(folder, "trees/1/none", "");
    snprintf(model, sizeof model, FORESTS "xgb-reg-squarederror.json");
    snprintf(version, sizeof version, "%s/trees/1/xgb-reg-squarederror.json", folder);
    assert_int_equal(symlink(model, version), 0);
    snprintf(
        text, sizeof text,
        "backend: \"transform\" max_batch_size: 64 input { name: \"s\" data_type: TYPE_FP32 dims: [ 1 ] } "
        "parameters { key: \"steps\" value { string_value: \"z = average(s, s); p = sigmoid(z)\" } } "
        "instance_group { kind: %s }",
        kinds[2]);
    write_file(folder, "end/config.pbtxt", text);
    write_file(folder, "end/1/none", "");
    write_file(folder, "all/1/none", "");
    write_file(
        folder, "all/config.pbtxt",
        "platform: \"ensemble\" max_batch_size: 64 input { name: \"x\" data_type: TYPE_FP32 dims: [ 6 ] } "
        "output { name: \"p\" data_type: TYPE_FP32 dims: [ 1 ] } ensemble_scheduling { "
        "step { model_name: \"scale\" model_version: -1 input_map { key: \"x\" value: \"x\" } "
        "output_map { key: \"y\" value: \"y\" } } "
        "step { model_name: \"trees\" model_version: -1 input_map { key: \"input__0\" value: \"y\" } "
        "output_map { key: \"output__0\" value: \"s\" } } "
        "step { model_name: \"end\" model_version: -1 input_map { key: \"s\" value: \"s\" } "
        "output_map { key: \"p\" value: \"p\" } } }");
}

/* The answers of rows through the pipeline, and how many tensors were copied. */
static proa_device_copies run_pipeline(const char *const kinds[3], const float *x, int64_t rows, float *answers)
{
    char folder[] = "/tmp/proa-test-XXXXXX", command[64];
    const char *const folders[] = {folder};
    proa_server *server = NULL;
    proa_err err = {.status = PROA_OK};
    assert_non_null(mkdtemp(folder));
    write_pipeline(folder, kinds);
    proa_server_options o = {.repositories = folders, .repositories_count = 1, .backends = proa_backends};
    if (proa_server_new(&server, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    if (proa_server_ready(server, &err) != PROA_OK) fail_msg("%s", err.text);
    proa_infer *r = ask();
    put(r, "x", PROA_TYPE_FP32, x, (size_t)(rows * COLUMNS) * sizeof *x, 2, (int64_t[]){rows, COLUMNS});
    r->model_name = "all";
    proa_device_copies before = proa_device_copies_count();
    if (proa_server_infer(server, r, &err) != PROA_OK) fail_msg("%s", err.text);
    const proa_tensor *t = out(only(wait_for(r)), "p");
    proa_device_copies now = proa_device_copies_count();
    assert_int_equal(t->bytes, (size_t)rows * sizeof *answers);
    memcpy(answers, t->data, t->bytes);
    forget(r);
    assert_true(proa_server_stop(server, 10000));
    proa_server_free(server);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    return (proa_device_copies){now.to_host - before.to_host, 0, now.to_device - before.to_device, 0};
}

static void test_ensemble_on_a_gpu(void **state)
{
    static const struct {
        const char *kinds[3];
        uint64_t to_host, to_device;
    } cases[] = {
        {{"KIND_CPU", "KIND_CPU", "KIND_CPU"}, 0, 0},
        {{"KIND_GPU gpus: [ 0 ]", "KIND_GPU gpus: [ 0 ]", "KIND_GPU gpus: [ 0 ]"}, 1, 1},
        {{"KIND_GPU gpus: [ 0 ]", "KIND_CPU", "KIND_GPU gpus: [ 0 ]"}, 2, 2},
        {{"KIND_CPU", "KIND_GPU gpus: [ 0 ] count: 2", "KIND_CPU"}, 1, 1},
    };
    enum { COUNT = 33 };
    float *x = golden_rows(COUNT), want[COUNT], have[COUNT];
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_device_copies copies = run_pipeline(cases[i].kinds, x, COUNT, i ? have : want);
        assert_int_equal(copies.to_host, cases[i].to_host);
        assert_int_equal(copies.to_device, cases[i].to_device);
        for (int k = 0; i && k < COUNT; k++) assert_true(same_score(have[k], want[k], has_fused_exp()));
    }
    free(x);
}

static void test_refused(void **state)
{
    static const int numbers[] = {-1, 63, 9999};
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(numbers); i++) {
        proa_gpu_stream s;
        proa_err err = {.status = PROA_OK};
        assert_int_not_equal(proa_gpu_stream_open(&s, numbers[i], &err), PROA_OK);
        assert_true(strlen(err.text) > 0);
        proa_gpu_stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_forests),    cmocka_unit_test(test_random_forests),
        cmocka_unit_test(test_batches),           cmocka_unit_test(test_no_copy_on_the_device),
        cmocka_unit_test(test_transform_steps),   cmocka_unit_test(test_text_features),
        cmocka_unit_test(test_ensemble_on_a_gpu), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_stream, close_stream);
}
