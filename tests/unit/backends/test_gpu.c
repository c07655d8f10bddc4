/* SPDX-License-Identifier: Apache-2.0
 * test_gpu.c - backends on GPUs: forests give the bits of the CPU's, tensors stay on their GPU between steps, what
 * wants host memory gets a counted copy, and a GPU that is not there is refused.
 * The GPUs are those of tests/fake_gpu; with PROA_TEST_GPU set, those of the machine. */
#include "rig.h"

#include "../forest/grow.h"
#include "backends/fil/device.h"

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

/* Who takes device tensors gets the output where it was made, with the input left alone. */
static void test_no_copy_on_the_device(void **state)
{
    rig g;
    float *x = golden_rows(8);
    (void)state;
    rig_open(&g, &proa_backend_fil, CONFIG("KIND_GPU gpus: [ 0 ]", ""), FORESTS);
    proa_infer *r = ask_rows(x, 8);
    move_to_gpu(&r->inputs[0]);
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
        cmocka_unit_test(test_golden_forests), cmocka_unit_test(test_random_forests),
        cmocka_unit_test(test_batches),        cmocka_unit_test(test_no_copy_on_the_device),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_stream, close_stream);
}
