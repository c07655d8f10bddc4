/* SPDX-License-Identifier: Apache-2.0
 * test_repository.c - folders, versions, policies, control modes, reload under load, failures, dependents, and what
 * the index says. */
#include "repo.h"

/* ---- start ---- */

static void test_start(void **state)
{
    char folder[PROA_PATH_MAX];
    repo_make(folder);
    repo_model(folder, "a", "");
    repo_version(folder, "a", 1, "11");
    repo_version(folder, "a", 3, "13");
    repo_version(folder, "a", 12, "112");
    repo_write(folder, "a/notes/x", "not a version");
    repo_write(folder, "a/007/value", "7");
    repo_model(folder, "all", "version_policy { all {} }");
    repo_version(folder, "all", 1, "1");
    repo_version(folder, "all", 2, "2");
    repo_model(folder, "some", "version_policy { specific { versions: [ 2, 5, 9 ] } }");
    for (int v = 1; v < 6; v++) repo_version(folder, "some", v, "5");
    repo_model(folder, "two", "version_policy { latest { num_versions: 2 } }");
    for (int v = 1; v < 6; v++) repo_version(folder, "two", v, "5");
    repo_write(folder, "README.md", "a file is no model");
    repo_write(folder, ".git/config.pbtxt", "neither is what is hidden");
    proa_server *s = repo_serve(folder, PROA_CONTROL_NONE);
    assert_string_equal(
        repo_index(s),
        "a:12:READY all:1:READY all:2:READY some:2:READY some:5:READY two:4:READY two:5:READY");
    assert_int_equal(repo_ask(s, "a", -1), 112);
    assert_int_equal(repo_ask(s, "all", -1), 2);
    assert_int_equal(repo_ask(s, "all", 1), 1);
    assert_true(proa_server_live(s));
    assert_int_equal(proa_server_ready(s, NULL), PROA_OK);
    assert_int_equal(proa_server_model_ready(s, "all", 1, NULL), PROA_OK);
    repo_refused(s, "b", -1, PROA_NOT_FOUND, "Request for unknown model: 'b' is not found");
    repo_refused(s, "b", 1, PROA_NOT_FOUND, "Request for unknown model: 'b' is not found");
    repo_refused(s, "a", 3, PROA_NOT_FOUND, "Request for unknown model: 'a' version 3 is not found");
    proa_err err = {0};
    assert_int_equal(proa_server_load(s, "a", NULL, NULL, 0, &err), PROA_UNAVAILABLE);
    assert_string_equal(err.text, "explicit model load / unload is not allowed if polling is enabled");
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* Models that fail leave the others serving, and the index says why. */
static void test_failures(void **state)
{
    char folder[PROA_PATH_MAX];
    proa_err err = {0};
    repo_make(folder);
    repo_model(folder, "good", "");
    repo_version(folder, "good", 1, "1");
    repo_model(folder, "bad", "version_policy { all {} }");
    repo_version(folder, "bad", 1, "bad");
    repo_version(folder, "bad", 2, "2");
    repo_model(folder, "empty", "");
    repo_write(folder, "odd/config.pbtxt", "name: \"even\" backend: \"tell\"");
    repo_write(folder, "text/config.pbtxt", "nonsense: 3");
    repo_write(
        folder, "none/config.pbtxt",
        "backend: \"nobody\" max_batch_size: 0 input { name: \"INPUT\" data_type: TYPE_INT32 dims: [ 1 ] } "
        "output { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ 1 ] }");
    repo_write(folder, "none/1/x", "1");
    proa_server *s = repo_serve(folder, PROA_CONTROL_NONE);
    const char *index = repo_index(s);
    assert_non_null(strstr(index, "good:1:READY"));
    assert_non_null(strstr(index, "bad:1:UNAVAILABLE(Invalid argument: the value is bad) "
                                  "bad:2:UNAVAILABLE(unloaded)"));
    assert_non_null(
        strstr(index, "empty:UNAVAILABLE(at least one version must be available under the version policy "
                      "of model 'empty')"));
    assert_non_null(strstr(index,
                           "odd:UNAVAILABLE(unexpected directory name 'odd' for model 'even', directory name "
                           "must equal model name)"));
    assert_non_null(strstr(index,
                           "none:1:UNAVAILABLE(Invalid argument: unable to find backend library for backend "
                           "'nobody', try specifying runtime on the model configuration.)"));
    assert_non_null(strstr(index, "text:UNAVAILABLE("));
    assert_int_equal(repo_ask(s, "good", -1), 1);
    repo_refused(s, "bad", -1, PROA_NOT_FOUND, "Request for unknown model: 'bad' has no available versions");
    repo_refused(s, "bad", 2, PROA_UNAVAILABLE,
                 "Request for unknown model: 'bad' version 2 is not at ready state");
    assert_int_not_equal(proa_server_ready(s, NULL), PROA_OK);
    repo_stop(s);

    const char *const folders[] = {folder};
    proa_server_options o = {
        .repositories = folders, .repositories_count = 1, .backends = tell_backends, .exit_on_error = true};
    assert_int_equal(proa_server_new(&s, &o, &err), PROA_INTERNAL);
    assert_memory_equal(err.text, "failed to load all models: '", strlen("failed to load all models: '"));
    assert_non_null(strstr(err.text, " more)"));
    assert_null(s);
    assert_int_equal(tell_models, 0);
    repo_remove(folder);
    (void)state;
}

static void test_options(void **state)
{
    char folder[PROA_PATH_MAX];
    proa_server *s;
    proa_err err = {0};
    repo_make(folder);
    const char *const nowhere[] = {"/nowhere/at/all"}, *const folders[] = {folder}, *const stars[] = {"*", "a"};
    proa_server_options o = {.repositories = nowhere, .repositories_count = 1, .backends = tell_backends};
    assert_int_equal(proa_server_new(&s, &o, &err), PROA_INVALID);
    assert_string_equal(err.text, "repository path is not a valid directory: '/nowhere/at/all'");
    o = (proa_server_options){.repositories = folders,
                              .repositories_count = 1,
                              .control = PROA_CONTROL_EXPLICIT,
                              .load_models = stars,
                              .load_models_count = 2};
    proa_err_clear(&err);
    assert_int_equal(proa_server_new(&s, &o, &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "Wildcard model name '*' must be the ONLY startup model if specified at all.");
    const proa_setting settings[] = {{"tell", "k", "1"}, {"other", "k", "2"}, {"tell", "k", "3"}};
    o = (proa_server_options){.repositories = folders,
                              .repositories_count = 1,
                              .namespacing = true,
                              .settings = settings,
                              .settings_count = 3};
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    repo_refused(s, "x", -1, PROA_INVALID, "Request for unknown model: 'x' is not found");
    assert_string_equal(proa_backend_setting(s, "tell", "k"), "3");
    assert_null(proa_backend_setting(s, "tell", "other"));
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_duplicates_and_single(void **state)
{
    char a[PROA_PATH_MAX], b[PROA_PATH_MAX], one[PROA_PATH_MAX + 8];
    repo_make(a);
    repo_make(b);
    repo_model(a, "twice", "");
    repo_version(a, "twice", 1, "1");
    repo_model(b, "twice", "");
    repo_version(b, "twice", 1, "1");
    repo_model(a, "only_a", "");
    repo_version(a, "only_a", 1, "1");
    repo_model(b, "only_b", "");
    repo_version(b, "only_b", 1, "2");
    const char *const both[] = {a, b};
    proa_server *s;
    proa_err err = {0};
    proa_server_options o = {.repositories = both, .repositories_count = 2, .backends = tell_backends};
    assert_int_equal(proa_server_new(&s, &o, &err), PROA_OK);
    assert_string_equal(repo_index(s), "only_a:1:READY only_b:1:READY "
                                       "twice:UNAVAILABLE(model appears in two or more repositories)");
    repo_stop(s);
    o.control = PROA_CONTROL_EXPLICIT; /* nothing was loaded, and nothing tried */
    assert_int_equal(proa_server_new(&s, &o, &err), PROA_OK);
    assert_string_equal(repo_index(s),
                        "only_a only_b twice:UNAVAILABLE(model appears in two or more repositories)");
    repo_stop(s);
    o.control = PROA_CONTROL_NONE;
    snprintf(one, sizeof one, "%s/only_b/", b); /* a model's own folder, and a folder of models */
    const char *const mixed[] = {a, one};
    o.repositories = mixed;
    assert_int_equal(proa_server_new(&s, &o, &err), PROA_OK);
    assert_string_equal(repo_index(s), "only_a:1:READY only_b:1:READY twice:1:READY");
    assert_int_equal(repo_ask(s, "only_b", 1), 2);
    repo_stop(s);
    repo_remove(a);
    repo_remove(b);
    (void)state;
}

/* ---- Hugging Face folders: served as they lie, by the backend "engine" ---- */

static proa_status whole_complete(Inference__ModelConfig *config, const char *version_path, proa_arena *arena,
                                  proa_err *err)
{
    (void)err;
    Inference__ModelInput *in = (void *)proa_message_add(&config->base, "input", arena);
    Inference__ModelOutput *out = (void *)proa_message_add(&config->base, "output", arena);
    static int64_t dims[] = {-1, -1};
    in->name = proa_arena_strdup(arena, proa_str_c("INPUT"));
    out->name = proa_arena_strdup(arena, proa_str_c("OUTPUT"));
    in->data_type = out->data_type = INFERENCE__DATA_TYPE__TYPE_INT32;
    in->n_dims = out->n_dims = 2;
    in->dims = out->dims = dims;
    assert_non_null(strstr(version_path, "hf")); /* the folder itself, no version folder */
    return PROA_OK;
}

static void test_hugging_face(void **state)
{
    char folder[PROA_PATH_MAX], direct[PROA_PATH_MAX + 16];
    proa_backend engine = tell_backend;
    const proa_backend *const backends[] = {&engine, NULL};
    proa_server *s;
    engine.name = "engine";
    engine.complete = whole_complete;
    repo_make(folder);
    repo_write(folder, "hf-a/config.json", "{}");
    repo_write(folder, "hf-a/model.safetensors", "x");
    repo_write(folder, "hf-a/value", "5");
    repo_write(folder, "hf_b/config.json", "{}");
    repo_write(folder, "hf_b/model-00001-of-00002.safetensors", "x");
    repo_write(folder, "hf_b/config.pbtxt", "backend: \"engine\""); /* beside it, for what one wants to say */
    repo_write(folder, "hf_b/value", "6");
    snprintf(direct, sizeof direct, "%s/hf-a", folder);
    const char *const one[] = {direct}, *const both[] = {folder};
    proa_server_options o = {.repositories = one, .repositories_count = 1, .backends = backends};
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    assert_string_equal(repo_index(s), "hf-a:1:READY");
    assert_int_equal(repo_ask(s, "hf-a", -1), 5);
    repo_stop(s);
    o.repositories = both;
    o.control = PROA_CONTROL_POLL;
    o.poll_secs = 3600;
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    assert_string_equal(repo_index(s), "hf-a:1:READY hf_b:1:READY");
    assert_int_equal(repo_ask(s, "hf_b", 1), 6);
    repo_write(folder, "hf_b/value", "77");
    proa_server_poll(s);
    assert_int_equal(repo_ask(s, "hf_b", 1), 77);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* A file NAME.gguf is the model NAME; when it is written again, the model is loaded again. */
static void test_gguf_file(void **state)
{
    char folder[PROA_PATH_MAX], file[PROA_PATH_MAX + 16];
    proa_backend engine = tell_backend;
    const proa_backend *const backends[] = {&engine, NULL};
    proa_server *s;
    engine.name = "engine";
    engine.complete = whole_complete;
    repo_make(folder);
    repo_write(folder, "hf-small.gguf", "x");
    snprintf(file, sizeof file, "%s/hf-small.gguf", folder);
    const char *const one[] = {file};
    proa_server_options o = {.repositories = one, .repositories_count = 1, .backends = backends};
    o.control = PROA_CONTROL_POLL;
    o.poll_secs = 3600;
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    assert_string_equal(repo_index(s), "hf-small:1:READY");
    repo_stop(s);
    snprintf(file, sizeof file, "%s/other.gguf", folder);
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_INVALID);
    repo_remove(folder);
    (void)state;
}

/* What other programs write is a model too; a TorchScript in a folder is not. */
static void test_other_forms(void **state)
{
    char folder[PROA_PATH_MAX];
    proa_backend engine = tell_backend;
    const proa_backend *const backends[] = {&engine, NULL};
    proa_server *s;
    engine.name = "engine";
    repo_make(folder);
    repo_write(folder, "hf-bin/config.json", "{}");
    repo_write(folder, "hf-bin/pytorch_model.bin", "x");
    repo_write(folder, "hf-ft/config.ini", "[gptj]");
    repo_write(folder, "hf-ft/model.wte.bin", "x");
    repo_write(folder, "hf-gguf/m.gguf", "x");
    repo_write(folder, "hf-onmt/model.pt", "x");
    repo_write(folder, "hf-onmt/sp.model", "x");
    for (int i = 0; i < 4; i++) {
        static const char *const values[] = {"hf-bin/value", "hf-ft/value", "hf-gguf/value", "hf-onmt/value"};
        repo_write(folder, values[i], "5");
    }
    repo_write(folder, "no-pt/model.pt", "x");
    repo_write(folder, "no-config/pytorch_model.bin", "x");
    const char *const both[] = {folder};
    proa_server_options o = {.repositories = both, .repositories_count = 1, .backends = backends};
    engine.complete = whole_complete;
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    static const char ready[] =
        "hf-bin:1:READY hf-ft:1:READY hf-gguf:1:READY hf-onmt:1:READY no-config:UNAVAILABLE";
    assert_int_equal(strncmp(repo_index(s), ready, sizeof ready - 1), 0);
    assert_non_null(
        strstr(repo_index(s), "no-pt:UNAVAILABLE(Invalid model name: Could not determine backend"));
    assert_int_equal(repo_ask(s, "hf-ft", -1), 5);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* ---- explicit control ---- */

static void load_ok(proa_server *s, const char *name)
{
    proa_err err = {0};
    if (proa_server_load(s, name, NULL, NULL, 0, &err) != PROA_OK) fail_msg("%s", err.text);
}

static void load_fails(proa_server *s, const char *name, proa_status status, const char *text)
{
    proa_err err = {0};
    assert_int_equal(proa_server_load(s, name, NULL, NULL, 0, &err), status);
    assert_string_equal(err.text, text);
}

static void unload_ok(proa_server *s, const char *name, bool dependents)
{
    proa_err err = {0};
    if (proa_server_unload(s, name, dependents, &err) != PROA_OK) fail_msg("%s", err.text);
}

static void test_explicit(void **state)
{
    char folder[PROA_PATH_MAX];
    repo_make(folder);
    repo_model(folder, "a", "");
    repo_version(folder, "a", 1, "1");
    repo_model(folder, "b", "");
    repo_version(folder, "b", 1, "bad");
    proa_server *s = repo_serve(folder, PROA_CONTROL_EXPLICIT);
    assert_string_equal(repo_index(s), "a b");
    assert_int_equal(proa_server_ready(s, NULL), PROA_OK);
    load_ok(s, "a");
    assert_string_equal(repo_index(s), "a:1:READY b");
    int opened = tell_opened;
    load_ok(s, "a"); /* nothing has changed: nothing happens */
    assert_int_equal(tell_opened, opened);
    repo_version(folder, "a", 2, "2");
    load_ok(s, "a");
    repo_expect(s, "a:1:UNAVAILABLE(unloaded) a:2:READY b");
    assert_int_equal(proa_server_ready(s, NULL), PROA_OK);
    load_fails(
        s, "b", PROA_INVALID,
        "load failed for model 'b': version 1 is at UNAVAILABLE state: Invalid argument: the value is bad;");
    assert_int_not_equal(proa_server_ready(s, NULL), PROA_OK);
    repo_version(folder, "b", 1, "4");
    load_ok(s, "b");
    assert_int_equal(repo_ask(s, "b", -1), 4);
    repo_version(folder, "b", 1, "bad"); /* a reload that fails leaves the old one */
    load_fails(
        s, "b", PROA_INVALID,
        "load failed for model 'b': version 1 is at UNAVAILABLE state: Invalid argument: the value is bad;");
    assert_int_equal(repo_ask(s, "b", -1), 4);
    assert_int_equal(proa_server_ready(s, NULL), PROA_OK);
    load_fails(s, "c", PROA_INTERNAL, "failed to load 'c', failed to poll from model repository");
    load_fails(s, " ", PROA_INVALID, "Model name cannot be empty. Please enter a valid name to deploy.");
    load_fails(s, "../a", PROA_INVALID,
               "invalid model name '../a', model name must not contain path traversal characters");
    load_fails(s, "..", PROA_INVALID,
               "invalid model name '..', model name must not contain path traversal characters");
    unload_ok(s, "a", false);
    repo_expect(s, "a:1:UNAVAILABLE(unloaded) a:2:UNAVAILABLE(unloaded) b:1:READY");
    repo_refused(s, "a", -1, PROA_NOT_FOUND, "Request for unknown model: 'a' has no available versions");
    repo_refused(s, "a", 2, PROA_UNAVAILABLE, "Request for unknown model: 'a' version 2 is not at ready state");
    unload_ok(s, "nobody", false);
    load_ok(s, "a");
    assert_int_equal(repo_ask(s, "a", -1), 2);
    repo_stop(s);

    const char *const folders[] = {folder}, *const names[] = {"a"};
    proa_server_options o = {.repositories = folders,
                             .repositories_count = 1,
                             .backends = tell_backends,
                             .control = PROA_CONTROL_EXPLICIT,
                             .load_models = names,
                             .load_models_count = 1,
                             .exit_on_error = true};
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    assert_string_equal(repo_index(s), "a:2:READY b");
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_override(void **state)
{
    char folder[PROA_PATH_MAX], elsewhere[PROA_PATH_MAX];
    static const char json[] =
        "{\"name\":\"m\",\"backend\":\"tell\",\"max_batch_size\":8,\"version_policy\":{\"all\":{}},"
        "\"input\":[{\"name\":\"INPUT\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}],"
        "\"output\":[{\"name\":\"OUTPUT\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}]}";
    proa_err err = {0};
    repo_make(folder);
    repo_make(elsewhere);
    assert_int_equal(setenv("TMPDIR", elsewhere, 1), 0); /* so that the test sees what is left there */
    repo_model(folder, "m", "");
    repo_version(folder, "m", 1, "1");
    repo_version(folder, "m", 2, "2");
    proa_server *s = repo_serve(folder, PROA_CONTROL_EXPLICIT);
    load_ok(s, "m");
    assert_string_equal(repo_index(s), "m:2:READY");
    assert_int_equal(proa_server_load(s, "m", json, NULL, 0, &err), PROA_OK);
    assert_string_equal(repo_index(s), "m:1:READY m:2:READY");
    load_ok(s, "m"); /* a plain load undoes it */
    repo_expect(s, "m:1:UNAVAILABLE(unloaded) m:2:READY");
    assert_int_equal(proa_server_load(s, "m", "{\"name\":1", NULL, 0, &err), PROA_INTERNAL);
    assert_memory_equal(
        err.text, "failed to load 'm', failed to poll from model repository: Invalid config override: ", 82);
    /* files: the folder of the repository is not looked at */
    const proa_model_file files[] = {{proa_str_c("file:1/value"), proa_str_c("77")}};
    proa_err_clear(&err);
    assert_int_equal(proa_server_load(s, "m", json, files, 1, &err), PROA_OK);
    repo_expect(s, "m:1:READY m:2:UNAVAILABLE(unloaded)");
    assert_int_equal(repo_ask(s, "m", 1), 77);
    assert_int_equal(proa_server_load(s, "m", NULL, files, 1, &err), PROA_INTERNAL);
    assert_string_equal(err.text,
                        "failed to load 'm', failed to poll from model repository: override files need a "
                        "'config' parameter");
    static const char *const bad[] = {"../x", "/x", "a/../../x", "", "a//b", "a/", "./a"};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        const proa_model_file file = {proa_str_c(bad[i]), proa_str_c("1")};
        assert_int_equal(proa_server_load(s, "m", json, &file, 1, NULL), PROA_INTERNAL);
    }
    assert_int_equal(repo_ask(s, "m", 1), 77);
    load_ok(s, "m");
    repo_expect(s, "m:1:UNAVAILABLE(unloaded) m:2:READY");
    for (int i = 0; i < 400 && rmdir(elsewhere) != 0; i++) tell_sleep_ms(5);
    assert_int_not_equal(access(elsewhere, F_OK), 0); /* temporary folders go with their last holders */
    repo_stop(s);
    unsetenv("TMPDIR");
    repo_remove(folder);
    (void)state;
}

/* ---- polling ---- */

static void test_poll(void **state)
{
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX + 16];
    repo_make(folder);
    repo_model(folder, "a", "version_policy { all {} }");
    repo_version(folder, "a", 1, "1");
    proa_server *s = repo_serve(folder, PROA_CONTROL_POLL);
    int opened = tell_opened;
    proa_server_poll(s);
    assert_int_equal(tell_opened, opened); /* nothing new */
    repo_model(folder, "b", "");
    repo_version(folder, "b", 1, "5");
    repo_version(folder, "a", 2, "2");
    proa_server_poll(s);
    assert_string_equal(repo_index(s), "a:1:READY a:2:READY b:1:READY");
    assert_int_equal(tell_opened, opened + 2); /* version 1 of a is the same: it was not opened again */
    repo_version(folder, "b", 1, "66");
    proa_server_poll(s);
    assert_int_equal(repo_ask(s, "b", -1), 66);
    repo_version(folder, "b", 1, "bad"); /* the old one goes on */
    proa_server_poll(s);
    assert_int_equal(repo_ask(s, "b", -1), 66);
    opened = tell_opened;
    proa_server_poll(s);
    assert_int_equal(tell_opened, opened); /* what failed is tried again when it has changed */
    repo_write(folder, "b/config.pbtxt", "nonsense");
    proa_server_poll(s);
    assert_int_equal(repo_ask(s, "b", -1), 66);
    snprintf(path, sizeof path, "%s/a/1", folder);
    repo_remove(path);
    proa_server_poll(s);
    repo_expect(s, "a:1:UNAVAILABLE(unloaded) a:2:READY b:1:READY");
    snprintf(path, sizeof path, "%s/a", folder);
    repo_remove(path);
    proa_server_poll(s);
    repo_expect(s, "b:1:READY");
    repo_refused(s, "a", -1, PROA_NOT_FOUND, "Request for unknown model: 'a' has no available versions");
    repo_model(folder, "b", "");
    repo_version(folder, "b", 1, "7");
    proa_server_poll(s);
    assert_int_equal(repo_ask(s, "b", -1), 7);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_poller_thread(void **state)
{
    char folder[PROA_PATH_MAX];
    repo_make(folder);
    const char *const folders[] = {folder};
    proa_server *s;
    proa_server_options o = {.repositories = folders,
                             .repositories_count = 1,
                             .backends = tell_backends,
                             .control = PROA_CONTROL_POLL,
                             .poll_secs = 1};
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    repo_model(folder, "late", "");
    repo_version(folder, "late", 1, "3");
    for (int i = 0; i < 1000 && !strstr(repo_index(s), "late:1:READY"); i++) tell_sleep_ms(10);
    assert_int_equal(repo_ask(s, "late", 1), 3);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* ---- under load ---- */

typedef struct client {
    proa_server *server;
    atomic_bool *over;
    int asked, refused;
    int32_t last;
} client;

static void *ask_all_the_time(void *arg)
{
    client *c = arg;
    while (!atomic_load(c->over)) {
        call one;
        call_begin(&one, c->server, "m", -1, c->asked % 7 == 0);
        call_wait(&one);
        c->asked++;
        if (one.status != PROA_OK || one.value < c->last)
            c->refused++; /* values rise from reload to reload */
        c->last = one.value;
    }
    return NULL;
}

static void test_reload_under_load(void **state)
{
    char folder[PROA_PATH_MAX], value[16];
    atomic_bool over = false;
    client clients[3];
    pthread_t threads[3];
    repo_make(folder);
    repo_model(folder, "m", "instance_group { count: 2 kind: KIND_CPU }");
    repo_version(folder, "m", 1, "0");
    proa_server *s = repo_serve(folder, PROA_CONTROL_POLL);
    for (int i = 0; i < 3; i++) {
        clients[i] = (client){.server = s, .over = &over};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_all_the_time, &clients[i]), 0);
    }
    for (int round = 1; round <= 30; round++) {
        snprintf(value, sizeof value, "%d", round);
        repo_version(folder, "m", 1, value);
        proa_server_poll(s);
        assert_int_equal(repo_ask(s, "m", 1), round);
        tell_sleep_ms(3);
    }
    atomic_store(&over, true);
    int asked = 0;
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(clients[i].refused, 0);
        asked += clients[i].asked;
    }
    assert_true(asked > 100);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_unload_drains(void **state)
{
    char folder[PROA_PATH_MAX];
    call slow;
    repo_make(folder);
    repo_model(folder, "m", "");
    repo_version(folder, "m", 1, "9");
    proa_server *s = repo_serve(folder, PROA_CONTROL_EXPLICIT);
    load_ok(s, "m");
    call_begin(&slow, s, "m", -1, 200);
    unload_ok(s, "m", false);
    assert_string_equal(repo_index(s), "m:1:UNLOADING");
    repo_refused(s, "m", 1, PROA_UNAVAILABLE, "Request for unknown model: 'm' version 1 is not at ready state");
    call_wait(&slow); /* it was running: it is answered */
    assert_int_equal(slow.status, PROA_OK);
    assert_int_equal(slow.value, 9);
    repo_expect(s, "m:1:UNAVAILABLE(unloaded)");
    assert_int_equal(tell_models, 0);
    load_ok(s, "m");
    call_begin(&slow, s, "m", -1, 200);
    unload_ok(s, "m", false);
    load_ok(s, "m"); /* while the old one drains */
    assert_string_equal(repo_index(s), "m:1:READY");
    assert_int_equal(tell_models, 2);
    call_wait(&slow);
    assert_int_equal(slow.value, 9);
    assert_string_equal(repo_index(s), "m:1:READY");
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_stop(void **state)
{
    char folder[PROA_PATH_MAX];
    call slow;
    repo_make(folder);
    repo_model(folder, "m", "");
    repo_version(folder, "m", 1, "9");
    proa_server *s = repo_serve(folder, PROA_CONTROL_NONE);
    call_begin(&slow, s, "m", -1, 300);
    assert_false(proa_server_stop(s, 20)); /* it is still running */
    proa_err err = {0};
    assert_int_equal(proa_server_ready(s, &err), PROA_UNAVAILABLE);
    assert_string_equal(err.text, "Server exiting");
    assert_false(proa_server_live(s));
    repo_refused(
        s, "m", -1, PROA_UNAVAILABLE,
        "[request id: <id_unknown>] Server is stopping, scheduler for model has stopped accepting new "
        "inference requests");
    assert_int_equal(proa_server_load(s, "m", NULL, NULL, 0, NULL), PROA_UNAVAILABLE);
    assert_true(proa_server_stop(s, 5000));
    assert_true(slow.done);
    assert_int_equal(slow.value, 9);
    call_wait(&slow);
    proa_server_free(s);
    assert_int_equal(tell_models, 0);
    repo_remove(folder);
    (void)state;
}

/* Loads and unloads of several models from several threads, with requests between. */
typedef struct worker {
    proa_server *server;
    const char *name;
    int failed;
} worker;

static void *load_and_unload(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < 15; i++) {
        proa_err err = {0};
        if (proa_server_load(w->server, w->name, NULL, NULL, 0, &err) != PROA_OK) w->failed++;
        call c;
        call_begin(&c, w->server, w->name, -1, 0);
        call_wait(&c);
        if (proa_server_unload(w->server, w->name, false, &err) != PROA_OK) w->failed++;
    }
    return NULL;
}

static void test_parallel_control(void **state)
{
    char folder[PROA_PATH_MAX];
    pthread_t threads[4];
    worker workers[4] = {{.name = "a"}, {.name = "b"}, {.name = "a"}, {.name = "c"}};
    repo_make(folder);
    for (int i = 0; i < 3; i++) {
        const char name[] = {(char)('a' + i), 0};
        repo_model(folder, name, "");
        repo_version(folder, name, 1, "1");
    }
    proa_server *s = repo_serve(folder, PROA_CONTROL_EXPLICIT);
    for (int i = 0; i < 4; i++) {
        workers[i].server = s;
        assert_int_equal(pthread_create(&threads[i], NULL, load_and_unload, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failed, 0);
    }
    repo_expect(s, "a:1:UNAVAILABLE(unloaded) b:1:UNAVAILABLE(unloaded) c:1:UNAVAILABLE(unloaded)");
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* Different models load side by side: each of four needs the others to have begun. */
static void test_load_threads(void **state)
{
    char folder[PROA_PATH_MAX], name[8];
    repo_make(folder);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "m%d", i);
        repo_model(folder, name, "");
        repo_version(folder, name, 1, "four 1");
    }
    proa_server *s = repo_serve(folder, PROA_CONTROL_NONE);
    assert_int_equal(repo_ask(s, "m3", 1), 1);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_load_retries(void **state)
{
    char folder[PROA_PATH_MAX];
    proa_server *s;
    repo_make(folder);
    repo_model(folder, "m", "");
    repo_version(folder, "m", 1, "once 8");
    const char *const folders[] = {folder};
    proa_server_options o = {.repositories = folders, .repositories_count = 1, .backends = tell_backends};
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    assert_string_equal(repo_index(s), "m:1:UNAVAILABLE(Unavailable: not the first time)");
    repo_stop(s);
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK); /* the second time: so that the next is a first again */
    repo_stop(s);
    o.load_retries = 1;
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    assert_int_equal(repo_ask(s, "m", -1), 8);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* ---- readiness, metadata, statistics ---- */

static void test_backend_not_ready(void **state)
{
    char folder[PROA_PATH_MAX];
    proa_err err = {0};
    repo_make(folder);
    repo_model(folder, "m", "");
    repo_version(folder, "m", 1, "never");
    proa_server *s = repo_serve(folder, PROA_CONTROL_NONE);
    assert_string_equal(repo_index(s), "m:1:READY");
    assert_int_equal(proa_server_model_ready(s, "m", -1, &err), PROA_INVALID);
    assert_string_equal(err.text, "Model version not ready");
    assert_int_equal(proa_server_ready(s, NULL), PROA_INVALID);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_describe(void **state)
{
    char folder[PROA_PATH_MAX];
    proa_arena arena;
    proa_err err = {0};
    repo_make(folder);
    repo_model(folder, "m", "version_policy { all {} } model_transaction_policy { decoupled: true }");
    repo_version(folder, "m", 1, "1");
    repo_version(folder, "m", 2, "2");
    repo_write(
        folder, "l/config.pbtxt",
        "backend: \"tell\" max_batch_size: 8 input { name: \"INPUT\" data_type: TYPE_INT32 dims: [ -1 ] } "
        "output { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ -1 ] label_filename: \"names.txt\" }");
    repo_write(folder, "l/names.txt", "cat\ndog\r\n\nowl");
    repo_version(folder, "l", 1, "1");
    proa_server *s = repo_serve(folder, PROA_CONTROL_NONE);
    proa_arena_init(&arena);
    Inference__ServerMetadataResponse *server;
    proa_server_metadata(s, &server, &arena);
    assert_string_equal(server->name, "triton");
    assert_int_equal(server->n_extensions, 13);
    assert_string_equal(server->extensions[3], "model_repository(unload_dependents)");
    Inference__ModelMetadataResponse *meta;
    assert_int_equal(proa_server_model_metadata(s, "m", -1, &meta, &arena, &err), PROA_OK);
    assert_int_equal(meta->n_versions, 2);
    assert_string_equal(meta->versions[1], "2");
    assert_string_equal(meta->platform, "tell");
    assert_string_equal(meta->inputs[0]->datatype, "INT32");
    assert_int_equal(meta->inputs[0]->n_shape, 2);
    assert_int_equal(meta->inputs[0]->shape[0], -1);
    assert_int_equal(proa_server_model_metadata(s, "m", 1, &meta, &arena, &err), PROA_OK);
    assert_int_equal(meta->n_versions, 1);
    assert_int_equal(proa_server_model_metadata(s, "x", 1, &meta, &arena, &err), PROA_NOT_FOUND);
    Inference__ModelConfigResponse *config;
    assert_int_equal(proa_server_model_config(s, "m", 2, &config, &arena, NULL), PROA_OK);
    assert_string_equal(config->config->name, "m");
    assert_int_equal(config->config->instance_group[0]->count, 1);
    assert_transaction(s, "m", true, false);
    assert_transaction(s, "l", false, true);
    assert_int_equal(repo_ask(s, "l", -1), 1);
    Inference__ModelStatisticsResponse *stats;
    assert_int_equal(proa_server_statistics(s, "", -1, &stats, &arena, NULL), PROA_OK);
    assert_int_equal(stats->n_model_stats, 3);
    assert_string_equal(stats->model_stats[0]->name, "l");
    assert_int_equal(stats->model_stats[0]->inference_count, 1);
    assert_int_equal(proa_server_statistics(s, "m", 2, &stats, &arena, NULL), PROA_OK);
    assert_int_equal(stats->n_model_stats, 1);
    proa_err_clear(&err);
    assert_int_equal(proa_server_statistics(s, "m", 3, &stats, &arena, &err), PROA_INVALID);
    assert_string_equal(err.text, "requested model version is not available for model 'm'");
    proa_err_clear(&err);
    assert_int_equal(proa_server_statistics(s, "x", -1, &stats, &arena, &err), PROA_INVALID);
    assert_string_equal(err.text, "requested model 'x' is not available");
    proa_served_model *l;
    assert_int_equal(proa_server_find(s, "l", -1, &l, NULL), PROA_OK);
    assert_string_equal(proa_served_model_label(l, "OUTPUT", 0), "cat");
    assert_string_equal(proa_served_model_label(l, "OUTPUT", 2), "");
    assert_string_equal(proa_served_model_label(l, "OUTPUT", 3), "owl");
    assert_null(proa_served_model_label(l, "OUTPUT", 4));
    assert_null(proa_served_model_label(l, "OUTPUT", -1));
    assert_null(proa_served_model_label(l, "INPUT", 0));
    proa_served_model_drop(l);
    proa_buf figures;
    proa_buf_init(&figures, 1 << 16);
    proa_server_figures(s, &figures);
    static const char first[] =
        "[{\"name\":\"l\",\"version\":\"1\",\"state\":\"READY\",\"backend\":\"tell\",\"requests\":1,";
    assert_memory_equal(figures.ptr, first, sizeof first - 1);
    proa_buf_release(&figures);
    proa_arena_release(&arena);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* What was counted before a reload counts on. */
static void test_reload_counts_on(void **state)
{
    char folder[PROA_PATH_MAX];
    proa_arena arena;
    Inference__ModelStatisticsResponse *stats;
    repo_make(folder);
    repo_model(folder, "m", "");
    repo_version(folder, "m", 1, "1");
    proa_server *s = repo_serve(folder, PROA_CONTROL_POLL);
    repo_ask(s, "m", 1);
    repo_version(folder, "m", 1, "20");
    proa_server_poll(s);
    assert_int_equal(repo_ask(s, "m", 1), 20);
    proa_arena_init(&arena);
    assert_int_equal(proa_server_statistics(s, "m", 1, &stats, &arena, NULL), PROA_OK);
    assert_int_equal(stats->model_stats[0]->inference_count, 2);
    proa_arena_release(&arena);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_version_parse(void **state)
{
    int64_t v;
    proa_err err = {0};
    assert_int_equal(proa_version_parse(&v, proa_str_c(""), NULL), PROA_OK);
    assert_int_equal(v, -1);
    assert_int_equal(proa_version_parse(&v, proa_str_c("12"), NULL), PROA_OK);
    assert_int_equal(v, 12);
    static const char *const bad[] = {"x", "1x", "99999999999999999999999999", "9223372036854775808", "-"};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_err_clear(&err);
        assert_int_equal(proa_version_parse(&v, proa_str_c(bad[i]), &err), PROA_INVALID);
        assert_memory_equal(err.text, "failed to get model version from specified version string '", 59);
    }
    proa_err_clear(&err);
    assert_int_equal(proa_version_parse(&v, proa_str_c("-3"), &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "invalid model version specified '-3' , version should be an integral value > 0");
    (void)state;
}

/* ---- ensembles follow their models ---- */

/* An ensemble of one or two steps, each with INPUT and OUTPUT. */
static void make_ensemble(const char *folder, const char *name, const char *first, const char *second)
{
    char file[64];
    snprintf(file, sizeof file, "%s/config.pbtxt", name);
    repo_write(folder, file,
               "platform: \"ensemble\" max_batch_size: 8\n"
               "input { name: \"INPUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
               "output { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
               "ensemble_scheduling {\n"
               "step { model_name: \"%s\" model_version: -1 input_map { key: \"INPUT\" value: \"INPUT\" }\n"
               "       output_map { key: \"OUTPUT\" value: \"%s\" } }\n",
               first, second ? "between" : "OUTPUT");
    char path[PROA_PATH_MAX + 80];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    if (second)
        fprintf(
            f,
            "step { model_name: \"%s\" model_version: -1 input_map { key: \"INPUT\" value: \"between\" }\n"
            "       output_map { key: \"OUTPUT\" value: \"OUTPUT\" } }\n",
            second);
    fprintf(f, "}\n");
    fclose(f);
    repo_version(folder, name, 1, "");
}

static void test_ensembles_at_start(void **state)
{
    char folder[PROA_PATH_MAX];
    repo_make(folder);
    repo_model(folder, "m", "");
    repo_version(folder, "m", 1, "slowly 5");
    repo_model(folder, "bad", "");
    repo_version(folder, "bad", 1, "bad");
    make_ensemble(folder, "a_first", "m", NULL); /* sorted before its model */
    make_ensemble(folder, "b_over", "a_first", NULL);
    make_ensemble(folder, "c_bad", "bad", NULL);
    make_ensemble(folder, "d_missing", "nobody", NULL);
    make_ensemble(folder, "e_round", "f_round", NULL);
    make_ensemble(folder, "f_round", "e_round", NULL);
    proa_server *s = repo_serve(folder, PROA_CONTROL_NONE);
    const char *index = repo_index(s);
    assert_non_null(strstr(index, "a_first:1:READY"));
    assert_non_null(strstr(index, "b_over:1:READY"));
    assert_non_null(strstr(
        index, "c_bad:UNAVAILABLE(ensemble 'c_bad' depends on 'bad' which has no loaded version. Model "
               "'bad' loading failed with error: version 1 is at UNAVAILABLE state: Invalid "
               "argument: the value is bad;\n)"));
    assert_non_null(
        strstr(index, "d_missing:UNAVAILABLE(ensemble d_missing contains models that are not available or "
                      "ambiguous: nobody)"));
    assert_non_null(strstr(index, "e_round:UNAVAILABLE(circular dependency between ensembles: "));
    assert_non_null(strstr(index, "f_round:UNAVAILABLE(circular dependency between ensembles: "));
    assert_int_equal(repo_ask(s, "b_over", -1), 5);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_ensembles_by_control(void **state)
{
    char folder[PROA_PATH_MAX];
    repo_make(folder);
    repo_model(folder, "m", "");
    repo_version(folder, "m", 1, "1");
    repo_model(folder, "n", "");
    repo_version(folder, "n", 1, "2");
    make_ensemble(folder, "e", "m", "n");
    proa_server *s = repo_serve(folder, PROA_CONTROL_EXPLICIT);
    load_ok(s, "m");
    load_ok(s, "e"); /* brings n */
    assert_string_equal(repo_index(s), "e:1:READY m:1:READY n:1:READY");
    assert_int_equal(repo_ask(s, "e", -1), 2);
    repo_version(folder, "n", 1, "3");
    load_ok(s, "n"); /* the ensemble follows */
    assert_int_equal(repo_ask(s, "e", -1), 3);
    /* a model that goes takes the ensemble with it, and brings it back */
    unload_ok(s, "n", false);
    repo_expect(s, "e:1:UNAVAILABLE(unloaded) m:1:READY n:1:UNAVAILABLE(unloaded)");
    load_fails(s, "x", PROA_INTERNAL, "failed to load 'x', failed to poll from model repository");
    load_ok(s, "n");
    repo_expect(s, "e:1:READY m:1:READY n:1:READY");
    assert_int_equal(repo_ask(s, "e", -1), 3);
    /* with its dependents: those that were not loaded by name */
    unload_ok(s, "e", true);
    repo_expect(s, "e:1:UNAVAILABLE(unloaded) m:1:READY n:1:READY"); /* both were asked for by now */
    unload_ok(s, "m", false);
    unload_ok(s, "n", false);
    load_ok(s, "m");
    load_ok(s, "e");
    unload_ok(s, "e", true);
    repo_expect(s, "e:1:UNAVAILABLE(unloaded) m:1:READY n:1:UNAVAILABLE(unloaded)");
    /* a part that cannot be had */
    repo_write(folder, "n/config.pbtxt", "nonsense");
    proa_err err = {0};
    assert_int_equal(proa_server_load(s, "e", NULL, NULL, 0, &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "load failed for model 'e': ensemble e contains models that are not available or "
                        "ambiguous: n");
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

static void test_ensemble_polled(void **state)
{
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX + 8];
    repo_make(folder);
    make_ensemble(folder, "e", "m", NULL);
    proa_server *s = repo_serve(folder, PROA_CONTROL_POLL);
    assert_non_null(strstr(repo_index(s), "e:UNAVAILABLE(ensemble e contains models"));
    repo_model(folder, "m", ""); /* comes later */
    repo_version(folder, "m", 1, "1");
    proa_server_poll(s);
    assert_string_equal(repo_index(s), "e:1:READY m:1:READY");
    repo_version(folder, "m", 1, "22");
    proa_server_poll(s);
    assert_int_equal(repo_ask(s, "e", 1), 22);
    snprintf(path, sizeof path, "%s/m", folder);
    repo_remove(path);
    proa_server_poll(s);
    repo_expect(s, "e:1:UNAVAILABLE(unloaded)");
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* A change of shapes that the ensemble does not fit any more: it leaves, and says why to who loads it. */
static void test_ensemble_does_not_fit(void **state)
{
    char folder[PROA_PATH_MAX];
    repo_make(folder);
    repo_write(
        folder, "m/config.pbtxt",
        "backend: \"tell\" max_batch_size: 4 input { name: \"INPUT\" data_type: TYPE_INT32 dims: [ -1 ] } "
        "output { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ -1 ] }");
    repo_version(folder, "m", 1, "1");
    make_ensemble(folder, "e", "m", NULL);
    proa_server *s = repo_serve(folder, PROA_CONTROL_EXPLICIT);
    load_fails(s, "e", PROA_INVALID,
               "load failed for model 'e': ensemble e allows maximum batch size 8, but it contains model m "
               "which only "
               "allows maximum batch size to be 4");
    repo_expect(
        s, "e:UNAVAILABLE(ensemble e allows maximum batch size 8, but it contains model m which only allows "
           "maximum batch size to be 4) m:1:READY");
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

/* ---- warm-up ---- */

static void test_warmup(void **state)
{
    char folder[PROA_PATH_MAX];
    proa_arena arena;
    Inference__ModelStatisticsResponse *stats;
    repo_make(folder);
    repo_model(
        folder, "w",
        "model_warmup [ { name: \"zero\" batch_size: 3 count: 2 inputs { key: \"INPUT\" value { data_type: "
        "TYPE_INT32 dims: [ 2 ] zero_data: true } } },"
        "{ name: \"file\" batch_size: 1 inputs { key: \"INPUT\" value { data_type: TYPE_INT32 dims: [ 1 ] "
        "input_data_file: \"four\" } } } ]");
    repo_version(folder, "w", 1, "1");
    repo_write(folder, "w/warmup/four", "%s", "\1\1\1\1more");
    repo_model(folder, "open",
               "model_warmup { name: \"x\" batch_size: 1 inputs { key: \"INPUT\" value { data_type: "
               "TYPE_INT32 dims: [ -1 ] zero_data: true } } }");
    repo_version(folder, "open", 1, "1");
    repo_model(folder, "short",
               "model_warmup { name: \"y\" batch_size: 1 inputs { key: \"INPUT\" value { data_type: "
               "TYPE_INT32 dims: [ 5 ] input_data_file: \"four\" } } }");
    repo_version(folder, "short", 1, "1");
    repo_write(folder, "short/warmup/four", "1234");
    repo_write(folder, "w/warmup/four", "%c%c%c%cmore", 0, 0, 0, 0);
    proa_server *s = repo_serve(folder, PROA_CONTROL_NONE);
    const char *index = repo_index(s);
    assert_non_null(strstr(index, "w:1:READY"));
    assert_non_null(
        strstr(index, "open:1:UNAVAILABLE(Invalid argument: failed to run warmup sample 'x': warmup setting "
                      "expects all variable-size dimensions are specified for input 'INPUT')"));
    assert_non_null(strstr(index,
                           "short:1:UNAVAILABLE(Invalid argument: failed to run warmup sample 'y': warmup "
                           "setting expects 20 bytes, but the data provided from four only has 4 bytes)"));
    proa_arena_init(&arena);
    assert_int_equal(proa_server_statistics(s, "w", 1, &stats, &arena, NULL), PROA_OK);
    assert_int_equal(stats->model_stats[0]->inference_count, 0); /* no client requested these */
    proa_arena_release(&arena);
    repo_stop(s);
    repo_remove(folder);
    (void)state;
}

int main(void)
{
    proa_log_settings quiet;
    proa_log_get(&quiet);
    quiet.error = quiet.warning = quiet.info = getenv("PROA_TEST_LOG") != NULL;
    (void)proa_log_set(&quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_duplicates_and_single),
        cmocka_unit_test(test_hugging_face),
        cmocka_unit_test(test_gguf_file),
        cmocka_unit_test(test_other_forms),
        cmocka_unit_test(test_explicit),
        cmocka_unit_test(test_override),
        cmocka_unit_test(test_poll),
        cmocka_unit_test(test_poller_thread),
        cmocka_unit_test(test_reload_under_load),
        cmocka_unit_test(test_unload_drains),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_parallel_control),
        cmocka_unit_test(test_load_threads),
        cmocka_unit_test(test_load_retries),
        cmocka_unit_test(test_backend_not_ready),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_reload_counts_on),
        cmocka_unit_test(test_version_parse),
        cmocka_unit_test(test_ensembles_at_start),
        cmocka_unit_test(test_ensembles_by_control),
        cmocka_unit_test(test_ensemble_polled),
        cmocka_unit_test(test_ensemble_does_not_fit),
        cmocka_unit_test(test_warmup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
