/* SPDX-License-Identifier: Apache-2.0
 * test_rank_sums.c - ranks that make whole sums (rank_sums "whole"): of every architecture the outputs of 2, 3 and 4
 * ranks are those of one rank to the bit. An architecture that cannot be divided among so many is skipped there. */
#include "golden_rows.h"

#include <dirent.h>

enum { RANKS = 4, TOKENS = 12, OTHERS = 4 };

/* False: the model cannot be divided among so many. */
static bool open_ranks(proa_engine **engine, const char *path, int32_t ranks, const char *quant)
{
    proa_err err = {.status = PROA_OK};
    proa_engine_options options = {.dtype = quant ? NULL : "f32",
                                   .quant = quant,
                                   .tensor_parallel = ranks,
                                   .threads = 1,
                                   .kv_tokens = 4096,
                                   .rank_sums = "whole"};
    proa_status status = proa_engine_open(engine, path, &options, &err);
    if (status == PROA_OK) return true;
    if (ranks == 1 || status != PROA_UNSUPPORTED) fail_msg("%s: %d ranks: %s", path, ranks, err.text);
    return false;
}

/* Rows of all positions, then greedy tokens with their log-probabilities. */
static void run_case(proa_engine *engine, const proa_json *c, outcome *rows, outcome *text)
{
    int64_t n = 0, dn = 0;
    int32_t *ids = golden_read_ids(proa_json_get(c, "input_ids"), &n);
    int32_t *decoder = golden_read_ids(proa_json_get(c, "decoder_input_ids"), &dn);
    *rows = *text = (outcome){0};
    run_request(engine,
                (proa_request){.task = PROA_TASK_ROWS,
                               .ids = ids,
                               .ids_count = n,
                               .decoder_ids = dn ? decoder : NULL,
                               .decoder_ids_count = dn},
                rows);
    if (proa_json_get(c, "greedy"))
        run_request(engine,
                    (proa_request){.ids = ids,
                                   .ids_count = n,
                                   .options = {.max_tokens = TOKENS, .ignore_eos = true, .logprobs = true}},
                    text);
    free(decoder);
    free(ids);
}

static void compare(const char *name, int32_t ranks, const outcome *a, const outcome *b)
{
    assert_int_equal(a->rows_count, b->rows_count);
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->rows_count * a->columns; i++)
        if (memcmp(&a->rows[i], &b->rows[i], sizeof(float)) != 0)
            fail_msg("%s: %d ranks: row %lld, column %lld: %.9g, one rank has %.9g", name, ranks,
                     (long long)(i / a->columns), (long long)(i % a->columns), (double)b->rows[i],
                     (double)a->rows[i]);
    if (a->count == 0) return;
    assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->count * sizeof *a->logprobs);
}

static int divided[RANKS + 1]; /* models that were divided among so many ranks */

static void compare_ranks(const char *name, const char *quant)
{
    char path[PROA_PATH_MAX];
    proa_json *json = NULL;
    proa_engine *engine;
    outcome rows[2], text[2];
    snprintf(path, sizeof path, GOLDEN "arch/%s/golden.json", name);
    assert_int_equal(proa_json_load(&json, path, 64 << 20, NULL), PROA_OK);
    const proa_json *first = proa_json_at(proa_json_get(json, "cases"), 0);
    snprintf(path, sizeof path, GOLDEN "arch/%s", name);
    open_ranks(&engine, path, 1, quant);
    run_case(engine, first, &rows[0], &text[0]);
    proa_engine_close(engine);
    for (int32_t ranks = 2; ranks <= RANKS; ranks++) {
        if (!open_ranks(&engine, path, ranks, quant)) continue;
        run_case(engine, first, &rows[1], &text[1]);
        compare(name, ranks, &rows[0], &rows[1]);
        compare(name, ranks, &text[0], &text[1]);
        outcome_release(&rows[1]), outcome_release(&text[1]);
        proa_engine_close(engine);
        divided[ranks]++;
    }
    outcome_release(&rows[0]), outcome_release(&text[0]);
    proa_json_free(json);
}

static void test_same_bits(void **state)
{
    compare_ranks(*state, NULL);
}

static void run_sequences(int32_t ranks, outcome *o)
{
    enum { SEQUENCES = 24 }; /* whose logits reach over the hidden states of some, where these are not kept */
    int32_t ids[] = {5, 9, 17, 4};
    proa_engine *engine = open_or_fail(GOLDEN "arch/llama", &(proa_engine_options){.dtype = "f32",
                                                                                   .tensor_parallel = ranks,
                                                                                   .sequences_max = SEQUENCES,
                                                                                   .rank_sums = "whole"});
    proa_info info;
    proa_engine_info(engine, &info);
    *o = (outcome){.hidden_width = info.hidden};
    proa_options options = {.n = SEQUENCES, .max_tokens = 2, .ignore_eos = true, .return_hidden = true};
    run_request(engine, (proa_request){.ids = ids, .ids_count = 4, .options = options}, o);
    assert_int_equal(o->count, SEQUENCES * options.max_tokens);
    proa_engine_close(engine);
}

/* What the head has read is still there when the ranks' logits have been gathered. */
static void test_hidden_states(void **state)
{
    PROA_UNUSED(state);
    outcome one, two;
    run_sequences(1, &one);
    run_sequences(2, &two);
    assert_memory_equal(one.hidden, two.hidden, (size_t)(one.count * one.hidden_width) * sizeof(float));
    outcome_release(&one), outcome_release(&two);
}

/* Scales of activations are those of whole rows, too. */
static void test_int8(void **state)
{
    PROA_UNUSED(state);
    compare_ranks("llama", "int8");
    compare_ranks("gptj", "int8");
}

static void test_refusals(void **state)
{
    PROA_UNUSED(state);
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    proa_engine_options options = {.tensor_parallel = 2, .rank_sums = "both"};
    assert_int_equal(proa_engine_open(&engine, GOLDEN "arch/llama", &options, &err), PROA_INVALID);
    assert_string_equal(err.text, "option 'rank-sums' is 'both', must be terms or whole");
    err = (proa_err){.status = PROA_OK};
    options.rank_sums = "whole", options.expert_parallel = true;
    assert_int_equal(proa_engine_open(&engine, GOLDEN "arch/llama", &options, &err), PROA_INVALID);
    if (!strstr(err.text, "'expert-parallel' is on")) fail_msg("%s", err.text);
}

/* Nearly all architectures are divided among two, most among four: else the comparisons above would show nothing. */
static void test_divided(void **state)
{
    int models = *(const int *)*state;
    assert_true(divided[2] > models * 9 / 10);
    assert_true(divided[4] > models / 2);
}

static int is_case(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(void)
{
    struct dirent **folders = NULL;
    int count = scandir(GOLDEN "arch", &folders, is_case, alphasort);
    if (count <= 0) return fprintf(stderr, "%d folders of goldens\n", count), 1;
    struct CMUnitTest *tests = calloc((size_t)count + OTHERS, sizeof *tests);
    if (!tests) return fprintf(stderr, "no memory for %d tests\n", count), 1;
    for (int i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){
            .name = folders[i]->d_name, .test_func = test_same_bits, .initial_state = folders[i]->d_name};
    tests[count] = (struct CMUnitTest){.name = "int8", .test_func = test_int8};
    tests[count + 1] = (struct CMUnitTest){.name = "refusals", .test_func = test_refusals};
    tests[count + 2] = (struct CMUnitTest){.name = "divided", .test_func = test_divided, .initial_state = &count};
    tests[count + 3] = (struct CMUnitTest){.name = "hidden_states", .test_func = test_hidden_states};
    int failed = _cmocka_run_group_tests("rank_sums", tests, (size_t)count + OTHERS, NULL, NULL);
    for (int i = 0; i < count; i++) free(folders[i]);
    free(folders);
    free(tests);
    return failed;
}
