/* SPDX-License-Identifier: Apache-2.0
 * test_encoder_gpu.c - outputs of encoders that stay on their GPU for the next step: they are the host's numbers, no
 * tensor is copied, and what the host must see still comes to it. The GPU is the third of tests/fake_gpu; with
 * PROA_TEST_GPU set, the first of the machine, whose sums differ in the last bits. */
#include "rig.h"

#include "serve/server.h"

#define ARCH GOLDEN "arch/"

enum { ROWS = 5, LENGTH = 9 };

static int use_fake_gpu(void **state)
{
    (void)state;
    if (!getenv("PROA_TEST_GPU")) setenv("PROA_CUDA_PLUGIN", PROA_FAKE_GPU, 1);
    return 0;
}

static void open_encoder(rig *g, const char *folder, bool gpu)
{
    char config[512];
    const char *kind = !gpu                      ? "KIND_CPU"
                       : getenv("PROA_TEST_GPU") ? "KIND_GPU gpus: [ 0 ]"
                                                 : "KIND_GPU gpus: [ 2 ]";
    snprintf(
        config, sizeof config,
        "backend: \"engine\" max_batch_size: 8 parameters { key: \"dtype\" value { string_value: \"f32\" } } "
        "instance_group { kind: %s }",
        kind);
    rig_open(g, &proa_backend_engine, config, folder);
}

/* A request of rows of 1 to LENGTH ids whose reply may be on a GPU, for these outputs (NULL-terminated). */
static proa_infer *ask_outputs(const char *const *outputs)
{
    int32_t ids[ROWS][LENGTH], lengths[ROWS];
    proa_infer *r = ask();
    for (int i = 0; i < ROWS; i++) {
        lengths[i] = 1 + i * 2 % LENGTH;
        for (int k = 0; k < LENGTH; k++) ids[i][k] = k < lengths[i] ? 4 + (i * 31 + k * 13) % 60 : 0;
    }
    put(r, "input_ids", PROA_TYPE_INT32, ids, sizeof ids, 2, (int64_t[]){ROWS, LENGTH});
    put(r, "input_lengths", PROA_TYPE_INT32, lengths, sizeof lengths, 2, (int64_t[]){ROWS, 1});
    for (; *outputs; outputs++) assert_true(proa_infer_add_output(r, proa_str_c(*outputs)));
    r->device_replies = true;
    return r;
}

/* Compares an output with the host's; returns whether it was on a GPU. */
static bool same_output(const proa_reply *have, const proa_reply *want, const char *name)
{
    proa_tensor t;
    proa_err err = {.status = PROA_OK};
    const proa_tensor *right = out(want, name);
    proa_tensor_share(&t, out(have, name));
    bool on_gpu = proa_tensor_device(&t) != NULL;
    assert_int_equal(proa_tensor_to_host(&t, &err), PROA_OK);
    assert_true(proa_shape_equal(t.shape, t.rank, right->shape, right->rank));
    assert_int_equal(t.bytes, right->bytes);
    double reach = getenv("PROA_TEST_GPU") ? 1e-4 : 2e-7;
    for (size_t i = 0; i < t.bytes / sizeof(float); i++) {
        float a, b;
        memcpy(&a, t.data + i * sizeof a, sizeof a);
        memcpy(&b, right->data + i * sizeof b, sizeof b);
        if (!((double)fabsf(a - b) <= reach * fmax(1, fabs((double)b))))
            fail_msg("%s %d is %g, must be %g", name, (int)i, (double)a, (double)b);
    }
    proa_tensor_release(&t);
    return on_gpu;
}

/* Runs a request on the host and on a GPU, where all `outputs` must be left if `stays`. pooling: of an embedding; NULL:
 * the model's own task. */
static void compare(const char *folder, const char *pooling, bool normalize, const char *const *outputs, bool stays)
{
    rig cpu, gpu;
    open_encoder(&cpu, folder, false), open_encoder(&gpu, folder, true);
    proa_infer *a = ask_outputs(outputs), *b = ask_outputs(outputs);
    proa_infer *const both[] = {a, b};
    for (int i = 0; i < 2 && pooling; i++) {
        param_text(both[i], "task", "embed");
        param_text(both[i], "pooling", pooling);
        if (normalize) param_text(both[i], "normalize", "true");
    }
    const proa_reply *want = only(run(&cpu, a));
    proa_device_copies before = proa_device_copies_count();
    const proa_reply *have = only(run(&gpu, b));
    proa_device_copies now = proa_device_copies_count();
    assert_int_equal(now.to_host, before.to_host);
    assert_int_equal(now.to_device, before.to_device);
    for (; *outputs; outputs++)
        if (out(want, *outputs)->type == PROA_TYPE_FP32)
            assert_int_equal(same_output(have, want, *outputs), stays);
        else assert_null(proa_tensor_device(out(have, *outputs)));
    forget(a), forget(b);
    rig_close(&cpu), rig_close(&gpu);
}

/* A copy of a folder whose config.json has one more key. */
static void make_folder(char to[32], const char *from, const char *key)
{
    char path[1024], text[8192] = "{";
    strcpy(to, "/tmp/proa-test-XXXXXX");
    assert_non_null(mkdtemp(to));
    snprintf(path, sizeof path, "%s/config.json", from);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    strcat(text, key);
    size_t at = strlen(text), n = fread(text + at, 1, sizeof text - at - 1, f);
    memmove(text + at, text + at + 1, n - 1); /* without its brace */
    text[at + n - 1] = '\0';
    fclose(f);
    snprintf(path, sizeof path, "%s/config.json", to);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    char model[1024];
    snprintf(model, sizeof model, "%s/model.safetensors", from);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    assert_int_equal(symlink(model, path), 0);
}

static void test_scores(void **state)
{
    static const char *const both[] = {"scores", "logits", "labels", "prompt_tokens", NULL};
    static const char *const scores[] = {"scores", NULL};
    char folder[32], command[64];
    (void)state;
    compare(ARCH "bert_regress", NULL, false, both, true); /* scores are logits */
    compare(ARCH "bert_types_cls", NULL, false, both, true);
    compare(ARCH "roberta", NULL, false, scores, true);
    make_folder(folder, ARCH "bert_types_cls", "\"problem_type\": \"multi_label_classification\",");
    compare(folder, NULL, false, both, true);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_embeddings(void **state)
{
    static const char *const embedding[] = {"embedding", "prompt_tokens", NULL};
    static const char *const poolings[] = {"mean", "cls", "last", "pooler"};
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(poolings); i++)
        for (int normalize = 0; normalize < 2; normalize++)
            compare(ARCH "bert", poolings[i], normalize, embedding, true);
    compare(ARCH "modernbert_bare", "mean", true, embedding, true);
}

/* The best label is chosen on the host, so the logits go there. */
static void test_labels_need_the_host(void **state)
{
    static const char *const with_label[] = {"scores", "label", NULL};
    (void)state;
    compare(ARCH "bert_types_cls", NULL, false, with_label, false);
}

/* Requests that are cancelled on the way: their memory is free again, and the others are right. */
static void test_cancelled(void **state)
{
    static const char *const scores[] = {"scores", NULL};
    enum { COUNT = 24 };
    proa_infer *r[COUNT], *alone = ask_outputs(scores);
    rig cpu, gpu;
    (void)state;
    open_encoder(&cpu, ARCH "bert_regress", false), open_encoder(&gpu, ARCH "bert_regress", true);
    const proa_reply *want = only(run(&cpu, alone));
    for (int i = 0; i < COUNT; i++) start(&gpu, r[i] = ask_outputs(scores));
    for (int i = 0; i < COUNT; i += 3) proa_infer_cancel(r[i]);
    for (int i = 0; i < COUNT; i++) {
        const heard *h = wait_for(r[i]);
        assert_int_equal(h->count, 1);
        if (h->reply[0]->error.status == PROA_OK) assert_true(same_output(h->reply[0], want, "scores"));
        else assert_int_equal(i % 3, 0);
        forget(r[i]);
    }
    forget(alone);
    rig_close(&cpu), rig_close(&gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_labels_need_the_host),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, use_fake_gpu, NULL);
}
