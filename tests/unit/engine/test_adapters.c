/* SPDX-License-Identifier: Apache-2.0
 * test_adapters.c - low-rank adapters: PEFT's own outputs for adapters of tests/golden/adapters (or of a folder given
 * as the argument); requests with many adapters in one batch equal each alone, and those without an adapter equal an
 * engine without adapters, bit for bit on the CPU; more adapters than slots; loading and unloading while requests run;
 * folders that must be refused. */
#include "golden_rows.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *root = GOLDEN "adapters";

/* ---- PEFT's outputs ---- */

static void golden(void **state)
{
    char path[PROA_PATH_MAX], folder[2][PROA_PATH_MAX];
    static const char *const names[] = {"a", "b"};
    proa_adapter_source adapters[2];
    proa_err err = {.status = PROA_OK};
    for (int i = 0; i < 2; i++) {
        snprintf(folder[i], sizeof folder[i], "%s/%s/%s", root, (const char *)*state, names[i]);
        adapters[i] = (proa_adapter_source){names[i], folder[i]};
    }
    snprintf(path, sizeof path, GOLDEN "arch/%s", (const char *)*state);
    proa_engine *engine = open_or_fail(
        path, &(proa_engine_options){.dtype = "f32", .adapters = adapters, .adapters_count = 2});
    for (int i = 0; i < 2; i++) {
        proa_json *json = NULL;
        snprintf(path, sizeof path, "%.*s/golden.json", (int)sizeof path - 16, folder[i]);
        if (proa_json_load(&json, path, 64 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
        const proa_json *cases = proa_json_get(json, "cases");
        assert_true(proa_json_len(cases) > 0);
        for (int64_t k = 0; k < proa_json_len(cases); k++)
            golden_check_adapter(engine, names[i], proa_json_at(cases, k));
        proa_json_free(json);
    }
    proa_engine_close(engine);
}

/* ---- many in one batch ---- */

enum { REQUESTS = 24, NEW = 6 };
static const float DEVICE_TOLERANCE = 1e-3f;
static const char *const of_request[] = {NULL, "a", "b", "a", NULL, "b2", "a2"};

static proa_request request_of(int i, int32_t ids[40])
{
    int64_t n = 1 + (i * 7) % 39;
    for (int64_t k = 0; k < n; k++) ids[k] = (int32_t)((k * k * 5 + i * 11) % 96);
    proa_options options = {.max_tokens = NEW, .ignore_eos = true, .return_logits = true, .logprobs = true};
    options.adapter = of_request[i % (int)PROA_COUNT(of_request)];
    return (proa_request){.ids = ids, .ids_count = n, .options = options};
}

static proa_engine *open_sized(const char *model, int32_t count, proa_engine_options options)
{
    static char folder[4][PROA_PATH_MAX];
    static const char *const names[] = {"a", "b", "a2", "b2"};
    proa_adapter_source adapters[4];
    char path[PROA_PATH_MAX];
    for (int i = 0; i < 4; i++) {
        snprintf(folder[i], sizeof folder[i], "%s/%s/%c", GOLDEN "adapters", model, names[i][0]);
        adapters[i] = (proa_adapter_source){names[i], folder[i]};
    }
    snprintf(path, sizeof path, GOLDEN "arch/%s", model);
    options.dtype = "f32", options.adapters = adapters, options.adapters_count = count;
    return open_or_fail(path, &options);
}

static proa_engine *open_with(const char *model, int32_t slots, int32_t count)
{
    return open_sized(model, count,
                      (proa_engine_options){.adapter_slots = slots, .sequences_max = 8, .step_tokens = 40});
}

static void same_outcome(const outcome *a, const outcome *b, const char *what, int i)
{
    bool exact = !getenv("PROA_TEST_DEVICE");
    assert_int_equal(a->finish, PROA_FINISH_LENGTH);
    assert_int_equal(a->count, b->count);
    /* on a device up to where two tokens are about as likely */
    for (int64_t k = 0; !exact && k < a->count && (k == 0 || a->ids[k - 1] == b->ids[k - 1]); k++)
        if (!(fabsf(a->logprobs[k] - b->logprobs[k]) <= DEVICE_TOLERANCE))
            fail_msg("%s: log-probability %d of request %d is %g, not %g", what, (int)k, i,
                     (double)b->logprobs[k], (double)a->logprobs[k]);
    if (!exact) return;
    if (memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) ||
        memcmp(a->logprobs, b->logprobs, (size_t)a->count * sizeof *a->logprobs))
        fail_msg("%s: request %d differs", what, i);
}

static void run_all(proa_engine *engine, outcome out[REQUESTS], bool together)
{
    for (int i = 0; i < REQUESTS; i++) {
        int32_t ids[40];
        submit_or_fail(engine, request_of(i, ids), &out[i]);
        if (!together) proa_engine_run(engine);
    }
    proa_engine_run(engine);
}

static void release_all(outcome out[REQUESTS])
{
    for (int i = 0; i < REQUESTS; i++) outcome_release(&out[i]);
}

static void one_by_one_equals_batched(void **state)
{
    outcome alone[REQUESTS] = {0}, batched[REQUESTS] = {0}, swapped[REQUESTS] = {0}, plain[REQUESTS] = {0};
    proa_engine *engine = open_with(*state, 4, 4), *few = open_with(*state, 1, 4),
                *none = open_with(*state, 0, 0);
    run_all(engine, alone, false);
    run_all(engine, batched, true);
    run_all(few, swapped, true);
    bool differs = false;
    for (int i = 0; i < REQUESTS; i++) {
        int32_t ids[40];
        proa_request r = request_of(i, ids);
        bool adapted = r.options.adapter;
        r.options.adapter = NULL;
        run_request(none, r, &plain[i]);
        same_outcome(&alone[i], &batched[i], "together", i);
        same_outcome(&alone[i], &swapped[i], "with one slot", i);
        if (!adapted) same_outcome(&alone[i], &plain[i], "without an adapter", i);
        else differs = differs || memcmp(alone[i].ids, plain[i].ids, sizeof *plain[i].ids * NEW) != 0;
    }
    assert_true(differs); /* adapters do something */
    release_all(alone), release_all(batched), release_all(swapped), release_all(plain);
    proa_engine_close(engine), proa_engine_close(few), proa_engine_close(none);
}

/* To the bit; on another device a row's bits depend on how many share its pass. */
static bool same_rows(const outcome *a, const outcome *b)
{
    float reach = getenv("PROA_TEST_DEVICE") ? 1e-4F : 0;
    for (int64_t i = 0; i < a->rows_count * a->columns; i++)
        if (!(fabsf(a->rows[i] - b->rows[i]) <= reach)) return false;
    return true;
}

/* Inputs of an encoder with many adapters in one pass equal each alone, and those of an engine without adapters. */
static void encoder_passes(void **state)
{
    PROA_UNUSED(state);
    outcome alone[REQUESTS] = {0}, batched[REQUESTS] = {0}, plain[REQUESTS] = {0};
    proa_engine *engine = open_with("bert", 2, 4), *none = open_with("bert", 0, 0);
    for (int i = 0; i < REQUESTS; i++) {
        int32_t ids[40];
        proa_request r = request_of(i, ids);
        r.task = PROA_TASK_ROWS, r.options = (proa_options){.adapter = r.options.adapter};
        run_request(engine, r, &alone[i]);
        submit_or_fail(engine, r, &batched[i]);
        r.options.adapter = NULL;
        run_request(none, r, &plain[i]);
    }
    proa_engine_run(engine);
    for (int i = 0; i < REQUESTS; i++) {
        bool adapted = of_request[i % (int)PROA_COUNT(of_request)] != NULL;
        assert_int_equal(batched[i].rows_count, plain[i].rows_count);
        assert_true(same_rows(&alone[i], &batched[i]));
        assert_int_equal(!same_rows(&alone[i], &plain[i]), adapted);
    }
    proa_engine_close(engine), proa_engine_close(none);
    release_all(alone), release_all(batched), release_all(plain);
}

/* Prompts of so many rows in one step that a pipeline on GPUs, too, divides it into micro-batches. */
static void step_of_many_rows(void **state)
{
    enum { ALL = 3 * REQUESTS };
    int32_t ids[40];
    outcome all[ALL] = {0};
    proa_engine *together = open_sized(
                    "llama", 4,
                    (proa_engine_options){.adapter_slots = 4, .sequences_max = ALL, .step_tokens = 2048}),
                *alone = open_with("llama", 4, 4);
    PROA_UNUSED(state);
    for (int i = 0; i < ALL; i++) submit_or_fail(together, request_of(i, ids), &all[i]);
    proa_engine_run(together);
    for (int i = 0; i < ALL; i++) {
        outcome one = {0};
        run_request(alone, request_of(i, ids), &one);
        same_outcome(&one, &all[i], "in a step of many rows", i);
        outcome_release(&one), outcome_release(&all[i]);
    }
    proa_engine_close(together), proa_engine_close(alone);
}

/* Pages of a prompt belong to the adapter that they were made with. */
static void prefixes_of_adapters(void **state)
{
    enum { TOKENS = 80 };
    static const char *const names[] = {NULL, "a", "b", NULL, "a"};
    proa_engine *engine = open_with("llama", 4, 4);
    int32_t ids[TOKENS];
    PROA_UNUSED(state);
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 5 + 3) % 96;
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        outcome o = {0}, fresh = {0};
        proa_engine *other = open_with("llama", 4, 4);
        proa_options options = {.max_tokens = NEW, .ignore_eos = true, .logprobs = true, .adapter = names[i]};
        run_request(engine, (proa_request){.ids = ids, .ids_count = TOKENS, .options = options}, &o);
        run_request(other, (proa_request){.ids = ids, .ids_count = TOKENS, .options = options}, &fresh);
        same_outcome(&o, &fresh, "behind others", (int)i);
        outcome_release(&o), outcome_release(&fresh);
        proa_engine_close(other);
    }
    proa_engine_close(engine);
}

/* ---- loading and unloading ---- */

/* Into a fresh err: it keeps the first failure. */
static proa_status load(proa_engine *engine, const char *name, const char *path, proa_err *err)
{
    *err = (proa_err){.status = PROA_OK};
    return proa_engine_load_adapter(engine, name, path, err);
}

static void says(const proa_err *err, const char *why)
{
    if (!strstr(err->text, why)) fail_msg("'%s' does not say '%s'", err->text, why);
}

static void see_name(void *arg, const char *name, const char *path)
{
    char *list = arg;
    assert_non_null(path);
    strcat(list, name), strcat(list, " ");
}

static void loading_and_unloading(void **state)
{
    proa_engine *engine = open_with("llama", 2, 2);
    proa_err err = {.status = PROA_OK};
    outcome o = {0};
    char list[256] = "";
    int32_t ids[40];
    PROA_UNUSED(state);
    assert_int_equal(load(engine, "a", GOLDEN "adapters/llama/a", &err), PROA_EXISTS);
    assert_int_equal(load(engine, "c", GOLDEN "adapters/llama/a", &err), PROA_LIMIT);
    assert_int_equal(proa_engine_unload_adapter(engine, "c", &err), PROA_NOT_FOUND);
    proa_request r = request_of(1, ids);
    submit_or_fail(engine, r, &o);
    assert_true(proa_engine_step(engine));
    assert_int_equal(proa_engine_unload_adapter(engine, "a", &err), PROA_OK); /* the request goes on */
    assert_int_equal(load(engine, "c", GOLDEN "adapters/llama/a", &err), PROA_LIMIT);
    proa_engine_run(engine);
    assert_int_equal(o.finish, PROA_FINISH_LENGTH);
    outcome_release(&o);
    r.on_event = collect;
    err = (proa_err){.status = PROA_OK};
    assert_int_equal(proa_engine_submit(engine, &r, NULL, &err), PROA_INVALID);
    says(&err, "'adapter': there is no adapter 'a' (loaded: b)");
    assert_int_equal(load(engine, "c", GOLDEN "adapters/llama/a", &err), PROA_OK);
    assert_int_equal(proa_engine_adapters(engine, see_name, list), 2);
    assert_string_equal(list, "b c ");
    proa_engine_close(engine);
}

/* ---- folders that must be refused ---- */

/* Writes a folder with this configuration and no tensors, and tries to load it. */
static void refused(proa_engine *engine, const char *config, const char *why)
{
    char dir[] = "/tmp/proa-adapter-XXXXXX", file[64];
    proa_err err = {.status = PROA_OK};
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/adapter_config.json", dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
    char model[64];
    snprintf(model, sizeof model, "%s/adapter_model.safetensors", dir);
    assert_int_equal(symlink(GOLDEN "adapters/llama/a/adapter_model.safetensors", model), 0);
    if (load(engine, "x", dir, &err) == PROA_OK) fail_msg("taken: %s", config);
    says(&err, why);
    unlink(model), unlink(file), rmdir(dir);
}

static void bad_folders(void **state)
{
    proa_engine *engine = open_with("llama", 4, 2);
    proa_err err = {.status = PROA_OK};
    PROA_UNUSED(state);
    refused(engine, "[]", "not an object");
    refused(engine, "{}", "'peft_type'");
    refused(engine, "{\"peft_type\":\"IA3\"}", "'peft_type' is 'IA3'");
    refused(engine, "{\"peft_type\":\"LORA\",\"use_dora\":true}", "DoRA");
    refused(engine, "{\"peft_type\":\"LORA\",\"bias\":\"all\"}", "'bias'");
    refused(engine, "{\"peft_type\":\"LORA\",\"modules_to_save\":[\"lm_head\"]}", "'modules_to_save'");
    refused(engine, "{\"peft_type\":\"LORA\",\"init_lora_weights\":\"pissa\"}", "'init_lora_weights'");
    refused(engine, "{\"peft_type\":\"LORA\",\"r\":0}", "'r'");
    refused(engine, "{\"peft_type\":\"LORA\",\"r\":100000}", "'r'");
    refused(engine, "{\"peft_type\":\"LORA\",\"r\":5}", "must be [5,");
    refused(engine, "{\"peft_type\":\"LORA\",\"r\":400}", "--lora-rank");
    refused(engine, "{\"peft_type\":\"LORA\",\"r\":4,\"rank_pattern\":{\"q_proj\":-1}}", "'rank_pattern'");
    refused(engine, "{\"peft_type\":\"LORA\",\"r\":4,\"rank_pattern\":{\".*q\":4}}", "regular expression");
    refused(engine, "{\"peft_type\":\"LORA\",\"r\":4,\"rank_pattern\":{\"v_proj\":8}}", "must be [8,");
    assert_int_equal(load(engine, "x", "/nowhere", &err), PROA_NOT_FOUND);
    assert_int_equal(load(engine, "x", GOLDEN "arch/llama", &err), PROA_NOT_FOUND);
    assert_int_equal(load(engine, "", GOLDEN "adapters/llama/a", &err), PROA_INVALID);
    /* of another model: the first layer's modules have other names */
    assert_int_not_equal(load(engine, "x", GOLDEN "adapters/gpt2/a", &err), PROA_OK);
    says(&err, "of no matrix of a llama");
    proa_engine_close(engine);
    err = (proa_err){.status = PROA_OK};
    proa_adapter_source bert = {"a", GOLDEN "adapters/llama/a"};
    assert_int_equal(proa_engine_open(&engine, GOLDEN "arch/bert",
                                      &(proa_engine_options){.adapters = &bert, .adapters_count = 1}, &err),
                     PROA_UNSUPPORTED);
    says(&err, "of no matrix of a bert");
}

/* An engine that was opened without adapters. */
static void none_taken(void **state)
{
    proa_engine *engine = open_or_fail(GOLDEN "arch/llama", NULL);
    proa_err err = {.status = PROA_OK};
    PROA_UNUSED(state);
    assert_int_not_equal(load(engine, "a", GOLDEN "adapters/llama/a", &err), PROA_OK);
    assert_int_equal(proa_engine_adapters(engine, NULL, NULL), 0);
    proa_engine_close(engine);
}

static int is_case(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **folders = NULL;
    if (argc > 1) root = argv[1];
    int count = scandir(root, &folders, is_case, alphasort);
    static char models[3][16] = {"llama", "gpt2", "falcon40b"};
    struct CMUnitTest tests[128] = {{"one_by_one_llama", one_by_one_equals_batched, NULL, NULL, models[0]},
                                    {"one_by_one_gpt2", one_by_one_equals_batched, NULL, NULL, models[1]},
                                    {"one_by_one_falcon40b", one_by_one_equals_batched, NULL, NULL, models[2]},
                                    cmocka_unit_test(encoder_passes),
                                    cmocka_unit_test(step_of_many_rows),
                                    cmocka_unit_test(prefixes_of_adapters),
                                    cmocka_unit_test(loading_and_unloading),
                                    cmocka_unit_test(bad_folders),
                                    cmocka_unit_test(none_taken)};
    size_t total = 9;
    if (count <= 0 || count > 100) return fprintf(stderr, "%d folders in %s\n", count, root), 1;
    for (int i = 0; i < count; i++)
        tests[total++] = (struct CMUnitTest){
            .name = folders[i]->d_name, .test_func = golden, .initial_state = folders[i]->d_name};
    int failed = _cmocka_run_group_tests("adapters", tests, total, NULL, NULL);
    for (int i = 0; i < count; i++) free(folders[i]);
    free(folders);
    return failed;
}
