/* SPDX-License-Identifier: Apache-2.0
 * test_prompt_tables.c - prompt tables: PEFT's own outputs for those of tests/golden/prompt_tables; requests with them
 * and other options in one batch equal each alone, bit for bit on the CPU; tables that requests bring; folders and
 * requests that must be refused. */
#include "golden_rows.h"

#include "weights/weights.h"
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const kinds[] = {"prompt", "ptuning", "prefix"};
enum { KINDS = 3 };

/* ---- PEFT's outputs ---- */

static void check_folder(proa_engine *engine, const char *kind, const char *folder)
{
    char path[PROA_PATH_MAX];
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    snprintf(path, sizeof path, "%s/golden.json", folder);
    if (proa_json_load(&json, path, 64 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    const proa_json *cases = proa_json_get(json, "cases");
    assert_true(proa_json_len(cases) > 0);
    for (int64_t k = 0; k < proa_json_len(cases); k++)
        golden_check_adapter(engine, kind, proa_json_at(cases, k));
    proa_json_free(json);
}

/* Low-rank adapters of the engine that was opened last. */
static int low_rank_adapters;

/* An engine with the tables of a model, and two low-rank adapters if there are any. */
static proa_engine *open_with(const char *model, proa_engine_options options)
{
    static char folder[KINDS + 2][PROA_PATH_MAX / 2];
    static proa_adapter_source adapters[KINDS + 2];
    char path[PROA_PATH_MAX];
    int32_t count = 0;
    low_rank_adapters = 0;
    for (int i = 0; i < KINDS + 2; i++) {
        const char *name = i < KINDS ? kinds[i] : i == KINDS ? "a" : "b";
        snprintf(folder[i], sizeof folder[i], GOLDEN "%s/%s/%s", i < KINDS ? "prompt_tables" : "adapters",
                 model, name);
        if (access(folder[i], R_OK) != 0) continue;
        adapters[count++] = (proa_adapter_source){name, folder[i]};
        low_rank_adapters += i >= KINDS;
    }
    snprintf(path, sizeof path, GOLDEN "arch/%s", model);
    options.dtype = "f32", options.adapters = adapters, options.adapters_count = count;
    return open_or_fail(path, &options);
}

static void golden(void **state)
{
    char folder[PROA_PATH_MAX / 2];
    proa_engine *engine = open_with(*state, (proa_engine_options){.step_tokens = 40});
    for (int i = 0; i < KINDS; i++) {
        snprintf(folder, sizeof folder, GOLDEN "prompt_tables/%s/%s", (const char *)*state, kinds[i]);
        if (access(folder, R_OK) == 0) check_folder(engine, kinds[i], folder);
    }
    proa_engine_close(engine);
}

/* ---- many in one batch ---- */

enum { REQUESTS = 40, NEW = 6, LONGEST = 63 };
static const char *const adapter_of[] = {NULL, "prompt", "ptuning", "prefix", "a", "b"};

/* Requests of many kinds, each with one of the adapters; there are twice as many requests as kinds, so that some find
 * cached pages. Where there is room in the context they grow over the end of a page. */
static proa_request request_of(int i, int32_t ids[LONGEST])
{
    int kind = i % 20;
    const char *adapter = adapter_of[kind % ((int)PROA_COUNT(adapter_of) - 2 + low_rank_adapters)];
    bool is_long = adapter && adapter[0] == 'p' && strcmp(adapter, "prompt") != 0; /* a table of more than a page */
    int64_t n = is_long ? 2 + kind % 10 : LONGEST - kind % 8;
    for (int64_t k = 0; k < n; k++) ids[k] = (int32_t)((k * k * 5 + kind * 11) % 96);
    proa_options o = {.max_tokens = NEW, .ignore_eos = true, .logprobs = true};
    o.adapter = adapter;
    if (kind % 7 == 1) o.repetition_penalty = 1.3F, o.no_repeat_ngram = 2;
    if (kind % 7 == 3) o.beams = 3, o.logprobs = false;
    if (kind % 7 == 4) o.n = 2, o.temperature = 1, o.seed = 5;
    if (kind % 7 == 6) o.temperature = 0.7F, o.seed = 9;
    return (proa_request){.ids = ids, .ids_count = n, .options = o};
}

static void same_outcome(const outcome *a, const outcome *b, const char *what, int i)
{
    if (a->error[0] || b->error[0]) fail_msg("%s: request %d: %s%s", what, i, a->error, b->error);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->beams, b->beams);
    if (getenv("PROA_TEST_DEVICE")) return;
    bool same = a->count == 0 || (!memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) &&
                                  !memcmp(a->logprobs, b->logprobs, (size_t)a->count * sizeof *a->logprobs));
    for (int32_t k = 0; k < a->beams; k++)
        same = same && a->beam_count[k] == b->beam_count[k] && a->beam_score[k] == b->beam_score[k] &&
               !memcmp(a->beam_ids[k], b->beam_ids[k], (size_t)a->beam_count[k] * sizeof(int32_t));
    if (!same) fail_msg("%s: request %d differs", what, i);
}

static void run_all(proa_engine *engine, outcome out[REQUESTS], bool together)
{
    for (int i = 0; i < REQUESTS; i++) {
        int32_t ids[LONGEST];
        submit_or_fail(engine, request_of(i, ids), &out[i]);
        if (!together) proa_engine_run(engine);
    }
    proa_engine_run(engine);
}

static void release_all(outcome out[REQUESTS])
{
    for (int i = 0; i < REQUESTS; i++) outcome_release(&out[i]);
}

static void pages_are_free(proa_engine *engine)
{
    proa_stats stats;
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(engine);
}

/* Alone without a cache; together; with drafts; with so few pages that requests are preempted. */
static void one_by_one_equals_batched(void **state)
{
    const struct {
        const char *what;
        proa_engine_options options;
    } ways[] = {{"together", {.sequences_max = 8, .step_tokens = 40}},
                {"with drafts", {.sequences_max = 8, .step_tokens = 40, .speculation = "ngram"}},
                {"with few pages", {.sequences_max = 8, .step_tokens = 64, .kv_tokens = 7 * 64}}};
    outcome alone[REQUESTS] = {0}, plain = {0};
    int32_t ids[LONGEST];
    proa_engine *engine = open_with(*state, (proa_engine_options){.prefix_cache = "off"});
    run_all(engine, alone, false);
    proa_request r = request_of(2, ids);
    r.options.adapter = NULL;
    run_request(engine, r, &plain);
    assert_memory_not_equal(plain.logprobs, alone[2].logprobs, sizeof *plain.logprobs * NEW); /* they do something */
    outcome_release(&plain);
    pages_are_free(engine);
    for (size_t w = 0; w < PROA_COUNT(ways); w++) {
        outcome batched[REQUESTS] = {0};
        engine = open_with(*state, ways[w].options);
        run_all(engine, batched, true);
        for (int i = 0; i < REQUESTS; i++) same_outcome(&alone[i], &batched[i], ways[w].what, i);
        if (w == 2) {
            proa_stats stats;
            proa_info info;
            proa_engine_stats(engine, &stats);
            proa_engine_info(engine, &info);
            /* short outputs of an encoder-decoder take no further page */
            assert_true(stats.preemptions > 0 || info.kind == PROA_KIND_ENCODER_DECODER);
        }
        release_all(batched);
        pages_are_free(engine);
    }
    release_all(alone);
}

/* A table's full pages are in the tree: a second request finds them, and counts none of the table's tokens. */
static void pages_are_shared(void **state)
{
    proa_engine *engine = open_with("llama", (proa_engine_options){.kv_tokens = 4096});
    int32_t ids[12];
    PROA_UNUSED(state);
    for (int i = 0; i < 12; i++) ids[i] = (i * 5 + 3) % 96;
    for (int k = 1; k < KINDS; k++) { /* of 70 and 67 tokens */
        outcome first = {0}, second = {0};
        proa_stats before, after;
        proa_options options = {.max_tokens = NEW, .ignore_eos = true, .logprobs = true, .adapter = kinds[k]};
        proa_request r = {.ids = ids, .ids_count = 12, .options = options};
        run_request(engine, r, &first);
        proa_engine_stats(engine, &before);
        run_request(engine, r, &second);
        proa_engine_stats(engine, &after);
        same_outcome(&first, &second, kinds[k], 0);
        assert_int_equal(second.cached_tokens, 0);
        int64_t rows = (int64_t)(after.rows - before.rows), run = k == 1 ? 70 - 64 + 12 : 12;
        assert_int_equal(rows, run + NEW - 1);
        outcome_release(&first), outcome_release(&second);
    }
    pages_are_free(engine);
}

/* ---- tables of requests ---- */

/* Numbers of a table, as large as those of a model. */
static float *table_of(int64_t count)
{
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = (float)((i * 37) % 101 - 50) / 60.0F;
    return values;
}

/* Ids of the table anywhere in a prompt; equal tables share pages, others do not. */
static void tables_of_requests(void **state)
{
    enum { ROWS = 80, TOKENS = 90 };
    proa_engine *engine = open_with("gpt2", (proa_engine_options){.kv_tokens = 4096, .speculation = "ngram"});
    proa_info info;
    int32_t ids[TOKENS];
    outcome o[4] = {0};
    PROA_UNUSED(state);
    proa_engine_info(engine, &info);
    float *table = table_of(ROWS * (int64_t)info.embedding);
    for (int i = 0; i < TOKENS; i++) ids[i] = i % 3 == 1 ? info.vocab + i % ROWS : (i * 5 + 3) % 96;
    proa_request r = {.ids = ids, .ids_count = TOKENS, .prompt_table = table, .prompt_table_rows = ROWS};
    r.options = (proa_options){
        .max_tokens = NEW, .ignore_eos = true, .logprobs = true, .repetition_penalty = 1.1F};
    run_request(engine, r, &o[0]);
    run_request(engine, r, &o[1]);
    same_outcome(&o[0], &o[1], "equal tables", 0);
    assert_int_equal(o[1].cached_tokens, 64);
    r.options.adapter = "a"; /* a low-rank adapter goes with a table */
    run_request(engine, r, &o[2]);
    assert_int_equal(o[2].cached_tokens, 0);
    r.options.adapter = NULL;
    table[1 * info.embedding] += 1; /* of the token that comes second */
    run_request(engine, r, &o[3]);
    assert_int_equal(o[3].cached_tokens, 0);
    assert_memory_not_equal(o[0].logprobs, o[3].logprobs, NEW * sizeof(float));
    for (int i = 0; i < 4; i++) outcome_release(&o[i]);
    free(table);
    pages_are_free(engine);
}

/* A table with rows of the model's own embedding table: the results are those of the ids, bit for bit. */
static void own_embeddings(void **state)
{
    enum { TOKENS = 30, ROWS = 8 };
    const char *model = strrchr(*state, ' ') + 1;
    char path[PROA_PATH_MAX], file[PROA_PATH_MAX];
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    proa_info info;
    int32_t ids[TOKENS], named[TOKENS];
    outcome plain = {0}, table = {0}, again = {0};
    snprintf(path, sizeof path, GOLDEN "arch/%s", model);
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    proa_engine *engine = open_or_fail(path, &(proa_engine_options){.dtype = "f32"});
    proa_engine_info(engine, &info);
    if (proa_weights_open(&w, file, &err) != PROA_OK) fail_msg("%s", err.text);
    char tensor[64];
    snprintf(tensor, sizeof tensor, "%.*s", (int)(strrchr(*state, ' ') - (char *)*state), (const char *)*state);
    const proa_weights_tensor *t = proa_weights_find(w, tensor);
    assert_non_null(t);
    float *values = malloc((size_t)(ROWS * info.embedding) * sizeof *values);
    for (int32_t i = 0; i < TOKENS; i++) {
        ids[i] = named[i] = (i * 7 + 3) % 90;
        if (i % 4 == 1) named[i] = info.vocab + i / 4;
        if (i % 4 == 1)
            proa_tensor_source_read(&t->source, ids[i], 0, info.embedding, values + i / 4 * info.embedding);
    }
    proa_request r = {.ids = ids, .ids_count = TOKENS};
    r.options = (proa_options){.max_tokens = 8, .ignore_eos = true, .logprobs = true};
    run_request(engine, r, &plain);
    r.ids = named, r.prompt_table = values, r.prompt_table_rows = ROWS;
    run_request(engine, r, &table);
    run_request(engine, r, &again);
    same_outcome(&plain, &table, *state, 0);
    same_outcome(&plain, &again, *state, 1);
    outcome_release(&plain), outcome_release(&table), outcome_release(&again);
    proa_weights_close(w);
    free(values);
    pages_are_free(engine);
}

/* Of an encoder's own rows none are of the table; a table of the decoder leaves them as they are. */
static void encoder_rows(void **state)
{
    enum { TOKENS = 9 };
    proa_engine *engine = open_with("t5", (proa_engine_options){.kv_tokens = 1024});
    int32_t ids[TOKENS];
    outcome o[3] = {0};
    PROA_UNUSED(state);
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 7 + 3) % 90;
    const char *const adapter[] = {NULL, "prefix", "prompt"};
    for (int i = 0; i < 3; i++) {
        proa_request r = {.task = PROA_TASK_ENCODE, .ids = ids, .ids_count = TOKENS};
        r.options.adapter = adapter[i];
        run_request(engine, r, &o[i]);
        assert_int_equal(o[i].rows_count, TOKENS);
    }
    size_t bytes = (size_t)(TOKENS * o[0].columns) * sizeof *o[0].rows;
    assert_memory_equal(o[0].rows, o[1].rows, bytes);
    assert_memory_not_equal(o[0].rows, o[2].rows, bytes);
    for (int i = 0; i < 3; i++) outcome_release(&o[i]);
    pages_are_free(engine);
}

/* Virtual tokens are none of the sequence: a token is forced behind the start token alone. */
static void first_token_is_forced(void **state)
{
    proa_engine *engine = open_with("mbart", (proa_engine_options){.kv_tokens = 1024});
    int32_t ids[] = {5, 9, 31, 4, 2};
    outcome o = {0};
    PROA_UNUSED(state);
    proa_request r = {.ids = ids, .ids_count = 5, .options = {.adapter = "prefix", .max_tokens = 3}};
    r.options.forced_bos_id = 17, r.options.given[PROA_OPTION_forced_bos_id] = true;
    run_request(engine, r, &o);
    assert_int_equal(o.ids[0], 17);
    outcome_release(&o);
    pages_are_free(engine);
}

/* ---- refusals ---- */

static void refused_request(proa_engine *engine, proa_request r, const char *why)
{
    proa_err err = {.status = PROA_OK};
    r.on_event = collect;
    if (proa_engine_submit(engine, &r, NULL, &err) == PROA_OK) fail_msg("taken: %s", why);
    if (!strstr(err.text, why)) fail_msg("'%s' does not say '%s'", err.text, why);
}

static void bad_requests(void **state)
{
    proa_engine *engine = open_with("llama", (proa_engine_options){.kv_tokens = 1024}), *t5 = NULL;
    proa_info info;
    PROA_UNUSED(state);
    proa_engine_info(engine, &info);
    float *table = table_of(2 * (int64_t)info.embedding);
    int32_t ids[] = {5, info.vocab, info.vocab + 1}, none[1] = {0};
    proa_request r = {.ids = ids, .ids_count = 3, .prompt_table = table, .prompt_table_rows = 2};
    proa_request bad = r;
    bad.prompt_table_rows = 1;
    refused_request(engine, bad, "token id 201 at position 2 is outside of the vocabulary and the prompt table");
    bad.prompt_table_rows = 0;
    refused_request(engine, bad, "prompt table of 0 tokens");
    bad.prompt_table_rows = INT64_MAX / 4;
    refused_request(engine, bad, "must be 1 to 95");
    bad = r, bad.prompt_table = NULL, bad.prompt_table_rows = 0;
    refused_request(engine, bad, "outside of the vocabulary (0 to 199)");
    bad = r, bad.options.adapter = "prompt";
    refused_request(engine, bad, "adapter 'prompt' has a prompt table itself");
    bad = r, bad.task = PROA_TASK_SCORE;
    refused_request(engine, bad, "token 1 of the prompt is of the table");
    bad = r, bad.session_id = "s";
    refused_request(engine, bad, "session");
    bad = (proa_request){.ids = none, .options = {.adapter = "prefix"}};
    refused_request(engine, bad, "the prompt is empty");
    t5 = open_or_fail(GOLDEN "arch/t5", NULL);
    bad = r, ids[1] = 600;
    refused_request(t5, bad, "token id 600 at position 1 is outside of the vocabulary and the prompt table");
    proa_engine_close(t5);
    proa_engine *bert = open_or_fail(GOLDEN "arch/bert", NULL);
    refused_request(bert, r, "prompt tables of a bert: only models with a decoder");
    proa_engine_close(bert);
    free(table);
    pages_are_free(engine);
}

/* Writes a folder with this configuration and the tensors of a golden one, and tries to load it. */
static void refused(proa_engine *engine, const char *kind, const char *config, const char *why)
{
    char dir[] = "/tmp/proa-table-XXXXXX", file[64], model[64], from[PROA_PATH_MAX];
    proa_err err = {.status = PROA_OK};
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/adapter_config.json", dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
    snprintf(model, sizeof model, "%s/adapter_model.safetensors", dir);
    snprintf(from, sizeof from, GOLDEN "%s/adapter_model.safetensors", kind);
    assert_int_equal(symlink(from, model), 0);
    if (proa_engine_load_adapter(engine, "x", dir, &err) == PROA_OK) fail_msg("taken: %s", config);
    if (!strstr(err.text, why)) fail_msg("'%s' does not say '%s'", err.text, why);
    unlink(model), unlink(file), rmdir(dir);
}

static void bad_folders(void **state)
{
    proa_engine *engine = open_with("llama", (proa_engine_options){.adapters_max = 8});
    PROA_UNUSED(state);
    const char *of_llama = "prompt_tables/llama/prompt";
    refused(engine, of_llama, "{\"peft_type\":\"PROMPT_TUNING\"}", "no 'num_virtual_tokens'");
    refused(engine, of_llama, "{\"peft_type\":\"PROMPT_TUNING\",\"num_virtual_tokens\":-1}",
            "'num_virtual_tokens'");
    refused(engine, of_llama, "{\"peft_type\":\"PROMPT_TUNING\",\"num_virtual_tokens\":6}", "must be [6, 64]");
    refused(engine, of_llama, "{\"peft_type\":\"PROMPT_TUNING\",\"num_virtual_tokens\":96}", "must be 1 to 95");
    refused(engine, of_llama, "{\"peft_type\":\"PREFIX_TUNING\",\"num_virtual_tokens\":5}", "must be [5, 256]");
    refused(engine, of_llama,
            "{\"peft_type\":\"P_TUNING\",\"num_virtual_tokens\":5,\"num_transformer_submodules\":2}",
            "'num_transformer_submodules'");
    refused(engine, of_llama,
            "{\"peft_type\":\"P_TUNING\",\"num_virtual_tokens\":5,\"modules_to_save\":[\"score\"]}",
            "'modules_to_save'");
    refused(engine, of_llama, "{\"peft_type\":\"MULTITASK_PROMPT_TUNING\",\"num_virtual_tokens\":5}",
            "'peft_type'");
    refused(engine, "adapters/llama/a", "{\"peft_type\":\"P_TUNING\",\"num_virtual_tokens\":5}",
            "no tensor 'prompt_embeddings'");
    proa_engine_close(engine);
}

static void bad_folders_of_encoder_decoders(void **state)
{
    proa_engine *engine = open_with("t5", (proa_engine_options){.adapters_max = 8});
    const char *prompt = "prompt_tables/t5/prompt", *prefix = "prompt_tables/t5/prefix";
    float vectors[64 * 2] = {0};
    PROA_UNUSED(state);
    refused(engine, prompt, "{\"peft_type\":\"PROMPT_TUNING\",\"num_virtual_tokens\":6}", "must be [12, 64]");
    refused(engine, prompt,
            "{\"peft_type\":\"PROMPT_TUNING\",\"num_virtual_tokens\":5,\"num_transformer_submodules\":1}",
            "must be [5, 64]");
    refused(engine, prefix, "{\"peft_type\":\"PREFIX_TUNING\",\"num_virtual_tokens\":66}", "must be [66, 256]");
    refused(engine, prefix,
            "{\"peft_type\":\"PREFIX_TUNING\",\"num_virtual_tokens\":67,\"num_transformer_submodules\":1}",
            "'num_transformer_submodules' is 1, of a t5 it must be 2");
    refused(engine, "adapters/llama/a", "{\"peft_type\":\"LORA\"}",
            "low-rank adapters of a t5: only decoders and encoders");
    proa_request r = {.encoder_outputs = vectors, .ids_count = 2, .options = {.adapter = "prompt"}};
    refused_request(engine, r, "adapter 'prompt' needs text or ids");
    proa_engine_close(engine);
    engine = open_with("marian", (proa_engine_options){.adapters_max = 8});
    refused(engine, prompt, "{\"peft_type\":\"P_TUNING\",\"num_virtual_tokens\":5}", "without their scale");
    proa_engine_close(engine);
}

static int is_case(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(void)
{
    struct dirent **folders = NULL;
    int count = scandir(GOLDEN "prompt_tables", &folders, is_case, alphasort);
    static char own[4][64] = {"model.embed_tokens.weight llama", "transformer.wte.weight gpt2",
                              "model.decoder.embed_tokens.weight opt_350m", "shared.weight t5"}; /* tensor, folder */
    static char models[5][16] = {"llama", "gpt2", "gemma2", "t5", "bart"};
    struct CMUnitTest tests[64] = {{"one_by_one_llama", one_by_one_equals_batched, NULL, NULL, models[0]},
                                   {"one_by_one_gpt2", one_by_one_equals_batched, NULL, NULL, models[1]},
                                   {"one_by_one_gemma2", one_by_one_equals_batched, NULL, NULL, models[2]},
                                   {"one_by_one_t5", one_by_one_equals_batched, NULL, NULL, models[3]},
                                   {"one_by_one_bart", one_by_one_equals_batched, NULL, NULL, models[4]},
                                   {"own_embeddings_llama", own_embeddings, NULL, NULL, own[0]},
                                   {"own_embeddings_gpt2", own_embeddings, NULL, NULL, own[1]},
                                   {"own_embeddings_opt_350m", own_embeddings, NULL, NULL, own[2]},
                                   {"own_embeddings_t5", own_embeddings, NULL, NULL, own[3]},
                                   cmocka_unit_test(pages_are_shared),
                                   cmocka_unit_test(tables_of_requests),
                                   cmocka_unit_test(bad_requests),
                                   cmocka_unit_test(encoder_rows),
                                   cmocka_unit_test(first_token_is_forced),
                                   cmocka_unit_test(bad_folders),
                                   cmocka_unit_test(bad_folders_of_encoder_decoders)};
    size_t total = 16;
    if (count <= 0 || count > 50) return fprintf(stderr, "%d folders\n", count), 1;
    for (int i = 0; i < count; i++)
        tests[total++] = (struct CMUnitTest){
            .name = folders[i]->d_name, .test_func = golden, .initial_state = folders[i]->d_name};
    int failed = _cmocka_run_group_tests("prompt tables", tests, total, NULL, NULL);
    for (int i = 0; i < count; i++) free(folders[i]);
    free(folders);
    return failed;
}
