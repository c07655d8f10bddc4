/* SPDX-License-Identifier: Apache-2.0
 * test_medusa.c - Medusa heads guess what the public formulas give (tools/golden_medusa.py); trees of their guesses
 *                 change no token; folders that must be refused. */
#include "golden_rows.h"

#include "draft_runs.h"

#include "base/checked.h"
#include "engine/engine.h"
#include "model/heads/medusa.h"

#include <sys/stat.h>
#include <unistd.h>

#define HEADS  GOLDEN "medusa/"
#define TARGET GOLDEN "arch/llama"

/* ---- guesses ---- */

/* A pass over these tokens, from an empty context. */
static void run_tokens(proa_model *m, proa_kv_pages *pages, const int32_t *ids, int64_t count)
{
    int32_t positions[128], page[8];
    proa_kv kv[16];
    assert_true(count <= 128 && m->kv_layers <= 16);
    for (int32_t i = 0; i < count; i++) positions[i] = i;
    for (int32_t i = 0; i < 8; i++) page[i] = i;
    for (int32_t i = 0; i < m->kv_layers; i++) kv[i] = proa_kv_pages_layer(pages, i);
    const proa_span span = {.rows = (int32_t)count, .context = (int32_t)count};
    proa_batch batch = {.rows = count, .ids = ids, .positions = positions};
    batch.self = batch.cross = (proa_spans){.span = &span, .count = 1, .pages = page};
    proa_model_decode(m, kv, &batch);
}

static void check_rows(proa_medusa *h, const proa_json *c, int32_t set)
{
    const proa_json *rows = proa_json_get(c, "rows");
    int64_t n = proa_json_len(rows);
    int32_t row[8], at[8], ids[8 * 16 * PROA_MEDUSA_TOP];
    for (int64_t i = 0; i < n; i++) {
        row[i] = (int32_t)proa_json_int(proa_json_get(proa_json_at(rows, i), "row"));
        at[i] = (int32_t)(set * h->rows_max + n - 1 - i); /* kept in one order, read in the other */
    }
    proa_medusa_keep(h, set, row, n);
    proa_medusa_top_k(h, at, n, h->heads, PROA_MEDUSA_TOP, ids);
    for (int64_t i = 0; i < n; i++)
        for (int32_t d = 0; d < h->heads; d++)
            for (int32_t k = 0; k < PROA_MEDUSA_TOP; k++) {
                const proa_json *want = proa_json_get(proa_json_at(rows, n - 1 - i), "ids");
                assert_int_equal(ids[(i * h->heads + d) * PROA_MEDUSA_TOP + k],
                                 proa_json_int(proa_json_at(proa_json_at(want, d), k)));
            }
}

static void golden(void **state)
{
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX];
    proa_err err = {.status = PROA_OK};
    proa_device *device = NULL;
    proa_model *m = NULL;
    proa_medusa *h = NULL;
    proa_json *json = NULL;
    proa_kv_pages pages;
    const char *name = getenv("PROA_TEST_DEVICE");
    proa_pool *pool = proa_pool_new(2);
    const proa_model_options options = {.dtype = "f32", .rows_max = 128, .head_rows = 2, .sampled_rows = 8};
    snprintf(folder, sizeof folder, HEADS "%s", (const char *)*state);
    snprintf(path, sizeof path, HEADS "%s/golden.json", (const char *)*state);
    assert_int_equal(proa_device_open(&device, name ? name : "cpu", &err), PROA_OK);
    assert_int_equal(proa_model_prepare(&m, TARGET, &options, device, pool, &err), PROA_OK);
    if (proa_medusa_prepare(&h, folder, m, 8, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_int_equal(proa_model_load(m, NULL, NULL, &err), PROA_OK);
    assert_int_equal(proa_medusa_load(h, &err), PROA_OK);
    assert_int_equal(proa_kv_pages_init(&pages, device, 8, proa_kv_shape_of(m), &err), PROA_OK);
    if (proa_json_load(&json, path, 1 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    const proa_json *cases = proa_json_get(json, "cases");
    for (int64_t i = 0; i < proa_json_len(cases); i++) {
        int64_t count;
        int32_t *ids = golden_read_ids(proa_json_get(proa_json_at(cases, i), "input_ids"), &count);
        run_tokens(m, &pages, ids, count);
        check_rows(h, proa_json_at(cases, i), (int32_t)i % 2);
        free(ids);
    }
    proa_json_free(json);
    proa_medusa_free(h);
    proa_kv_pages_release(&pages);
    proa_model_free(m);
    proa_device_close(device);
    proa_pool_free(pool);
}

/* ---- texts ---- */

static const proa_engine_options roomy = {.threads = 2, .sequences_max = 16, .kv_tokens = 8192};
static const proa_engine_options few = {.threads = 1, .sequences_max = 16, .kv_tokens = 8192, .draft_tokens = 3};
static const proa_engine_options tight = {.threads = 2, .sequences_max = 16, .kv_tokens = 448, .step_tokens = 40};

static proa_stats compare(const char *heads, proa_engine_options options)
{
    options.speculation = "medusa", options.draft_model = heads;
    return compare_with_none(TARGET, options);
}

static void trees_change_no_token(void **state)
{
    PROA_UNUSED(state);
    proa_stats stats = compare(HEADS "a", roomy);
    assert_true(stats.accepted > 20 && stats.drafted > stats.accepted);
    compare(HEADS "a", few);
    assert_true(compare(HEADS "a", tight).preemptions > 0);
    assert_true(compare(HEADS "b", roomy).drafted > 0);
}

static void tokens_in_flight_wait(void **state)
{
    PROA_UNUSED(state);
    setenv("PROA_AHEAD", "1", 1);
    assert_true(compare(HEADS "a", roomy).accepted > 0);
    compare(HEADS "b", tight);
    unsetenv("PROA_AHEAD");
}

/* ---- what is refused ---- */

static void refused(const char *model, const char *heads, const char *why)
{
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    const proa_engine_options options = {.speculation = "medusa", .draft_model = heads};
    assert_int_not_equal(proa_engine_open(&engine, model, &options, &err), PROA_OK);
    if (!strstr(err.text, why)) fail_msg("'%s' is not in '%s'", why, err.text);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void other_heads_are_refused(void **state)
{
    PROA_UNUSED(state);
    char folder[] = "/tmp/proa-medusa-XXXXXX", config[64], file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(file, sizeof file, "%s/medusa_lm_head.safetensors", folder);
    refused(TARGET, folder, "has neither medusa_lm_head.safetensors nor medusa_lm_head.pt");
    assert_int_equal(symlink(HEADS "a/medusa_lm_head.safetensors", file), 0);
    write_text(config, "{\"medusa_num_heads\": 5, \"medusa_num_layers\": 1}");
    refused(TARGET, folder, "config.json says 5 heads (medusa_num_heads)");
    write_text(config, "{\"medusa_num_heads\": 2, \"medusa_num_layers\": 2}");
    refused(TARGET, folder, "2 layers (medusa_num_layers)");
    write_text(config, "{\"medusa_num_heads\": 1000}");
    refused(TARGET, folder, "medusa_num_heads");
    refused(MODELS "classics-10m", HEADS "a", "tensor '0.0.linear.weight' is [");
    refused(GOLDEN "arch/t5", HEADS "a", "causal decoder");
    refused(TARGET, NULL, "needs option 'draft-model'");
    unlink(config), unlink(file), rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "golden a", .test_func = golden, .initial_state = (void *)(uintptr_t) "a"},
        {.name = "golden b", .test_func = golden, .initial_state = (void *)(uintptr_t) "b"},
        cmocka_unit_test(trees_change_no_token),
        cmocka_unit_test(tokens_in_flight_wait),
        cmocka_unit_test(other_heads_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
