/* SPDX-License-Identifier: Apache-2.0
 * test_prefix.c - prompts with a blank and a prefix (ChatGLM-6B): positions, steps smaller than the prefix, many
 * requests in one step, beams, and prompts that are refused. */
#include "engine_test.h"

#include "model/prefix.h"

#define MODEL GOLDEN "arch/chatglm_6b"

enum { REQUESTS = 12, IDS_MAX = 64, SOP = 188, MASK = 184, GMASK = 185 };

static void positions(void **state)
{
    static const int32_t ids[] = {10, 11, MASK, 12, SOP, 13, 14}, first[] = {0, 1, 2, 3, 2, 2, 2, 2};
    static const int32_t second[] = {0, 0, 0, 0, 1, 2, 3, 4};
    proa_config c = {.prefix_end = SOP, .blank_ids = {GMASK, MASK}};
    proa_prefix p;
    proa_err err = {.status = PROA_OK};
    PROA_UNUSED(state);
    assert_int_equal(proa_prefix_find(&p, &c, ids, 7, &err), PROA_OK);
    assert_int_equal(p.rows, 4);
    for (int64_t i = 0; i < 8; i++) {
        assert_int_equal(proa_prefix_position(&p, i), first[i]);
        assert_int_equal(proa_prefix_block_position(&p, i), second[i]);
    }
    assert_int_equal(proa_prefix_find(&p, &c, (const int32_t[]){MASK, 9, GMASK, SOP}, 4, &err), PROA_OK);
    assert_int_equal(p.blank, 2); /* gMASK before MASK, wherever they are */
    assert_int_equal(proa_prefix_find(&p, &c, ids, 4, &err), PROA_INVALID);
    assert_int_equal(proa_prefix_find(&p, &c, ids + 3, 4, &err), PROA_INVALID);
    c.prefix_end = -1;
    assert_int_equal(proa_prefix_find(&p, &c, ids, 7, &err), PROA_OK);
    assert_int_equal(proa_prefix_position(&p, 6), 6);
}

static int64_t read_ids(int32_t *ids, const proa_json *list)
{
    int64_t n = proa_json_len(list);
    assert_in_range(n, 1, IDS_MAX);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)proa_json_int(proa_json_at(list, i));
    return n;
}

static proa_json *golden(void)
{
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_json_load(&json, MODEL "/golden.json", 64 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    return json;
}

/* The golden prompts several times over, all at once: steps that hold prefixes, the rest of prompts and decoding rows
 * of different requests. The budget is smaller than most prefixes. */
static void shared_steps(void **state)
{
    const int32_t budgets[] = {1, 5, 64};
    proa_json *json = golden();
    const proa_json *cases = proa_json_get(json, "cases");
    PROA_UNUSED(state);
    for (size_t b = 0; b < PROA_COUNT(budgets); b++) {
        outcome o[REQUESTS] = {0};
        int32_t ids[REQUESTS][IDS_MAX], want[IDS_MAX];
        proa_engine *engine = open_or_fail(
            MODEL, &(proa_engine_options){.dtype = "f32", .step_tokens = budgets[b], .sequences_max = 7});
        for (int64_t i = 0; i < REQUESTS; i++) {
            const proa_json *c = proa_json_at(cases, i % proa_json_len(cases));
            int64_t n = read_ids(ids[i], proa_json_get(c, "input_ids")),
                    max = read_ids(want, proa_json_get(c, "greedy"));
            proa_options options = {.max_tokens = (int32_t)(max - i), .ignore_eos = true};
            submit_or_fail(engine, (proa_request){.ids = ids[i], .ids_count = n, .options = options}, &o[i]);
        }
        proa_engine_run(engine);
        for (int64_t i = 0; i < REQUESTS; i++) {
            int64_t max = read_ids(want,
                                   proa_json_get(proa_json_at(cases, i % proa_json_len(cases)), "greedy"));
            assert_int_equal(o[i].count, max - i);
            assert_memory_equal(o[i].ids, want, (size_t)o[i].count * sizeof *want);
            outcome_release(&o[i]);
        }
        proa_engine_close(engine);
    }
    proa_json_free(json);
}

static double log_probability(const float *row, int64_t columns, int32_t id)
{
    double sum = 0;
    for (int64_t i = 0; i < columns; i++) sum += exp((double)row[i] - (double)row[id]);
    return -log(sum);
}

/* A beam's score is what the model gives its tokens when they are part of the prompt. */
static void beams(void **state)
{
    proa_json *json = golden();
    outcome o = {0}, again = {0};
    int32_t ids[2 * IDS_MAX];
    PROA_UNUSED(state);
    proa_engine *engine = open_or_fail(MODEL, &(proa_engine_options){.dtype = "f32"});
    int64_t n = read_ids(ids, proa_json_get(proa_json_at(proa_json_get(json, "cases"), 2), "input_ids"));
    proa_options options = {.beams = 4, .max_tokens = 12, .ignore_eos = true, .beams_returned = 4};
    run_request(engine, (proa_request){.ids = ids, .ids_count = n, .options = options}, &o);
    assert_int_equal(o.beams, 4);
    for (int32_t b = 0; b < o.beams; b++) {
        double sum = 0;
        memcpy(ids + n, o.beam_ids[b], (size_t)o.beam_count[b] * sizeof *ids);
        run_request(engine, (proa_request){.task = PROA_TASK_ROWS, .ids = ids, .ids_count = n + o.beam_count[b]},
                    &again);
        for (int64_t i = 0; i < o.beam_count[b]; i++)
            sum += log_probability(again.rows + (n + i - 1) * again.columns, again.columns, ids[n + i]);
        assert_true(fabs(sum / (double)o.beam_count[b] - (double)o.beam_score[b]) < 1e-3);
        outcome_release(&again);
    }
    outcome_release(&o);
    proa_engine_close(engine);
    proa_json_free(json);
}

static void refused(void **state)
{
    static const int32_t prompts[][2] = {{5, SOP}, {5, GMASK}, {5, 6}};
    outcome o = {0};
    PROA_UNUSED(state);
    proa_engine *engine = open_or_fail(MODEL, &(proa_engine_options){.dtype = "f32"});
    for (size_t i = 0; i < PROA_COUNT(prompts); i++) {
        proa_err err = {.status = PROA_OK};
        proa_request r = {.ids = prompts[i], .ids_count = 2, .on_event = collect, .arg = &o};
        assert_int_equal(proa_engine_submit(engine, &r, NULL, &err), PROA_INVALID);
        assert_non_null(strstr(err.text, "blank (id 185 or 184), and id 188"));
    }
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions),
        cmocka_unit_test(shared_steps),
        cmocka_unit_test(beams),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
