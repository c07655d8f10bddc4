/* SPDX-License-Identifier: Apache-2.0
 * test_recurrent.c - models whose layers have recurrent states: chunks, neighbours and preemption change no bit, and
 * what such a model cannot offer is refused by its option. test_golden_arch compares them with transformers,
 * test_traffic runs random requests of all kinds. */
#include "engine_test.h"

#include "base/checked.h"
#include "engine/engine.h"
#include "engine/fleet/fleet.h"
#include <unistd.h>

static const char *const models[] = {GOLDEN "arch/qwen3_next",   GOLDEN "arch/qwen3_5",
                                     GOLDEN "arch/qwen3_5_text", GOLDEN "arch/olmo_hybrid",
                                     GOLDEN "arch/kimi_linear",  GOLDEN "arch/lfm2",
                                     GOLDEN "arch/minimax",      GOLDEN "arch/granitemoehybrid",
                                     GOLDEN "arch/bamba",        GOLDEN "arch/falcon_h1",
                                     GOLDEN "arch/nemotron_h",   GOLDEN "arch/nemotron_h_moe",
                                     GOLDEN "arch/mamba2",       GOLDEN "arch/mamba",
                                     GOLDEN "arch/falcon_mamba", GOLDEN "arch/jamba",
                                     GOLDEN "arch/zamba2"};
enum { REQUESTS = 6, MAMBA = 7 /* the first model with layers of Mamba */ };

static proa_request request_of(int i)
{
    static int32_t ids[REQUESTS][96];
    static const int64_t lengths[REQUESTS] = {66, 5, 64, 1, 60, 33};
    for (int k = 0; k < 96; k++) ids[i][k] = 3 + (i * 37 + k * (11 + i)) % 190;
    proa_request r = {.ids = ids[i], .ids_count = lengths[i]};
    r.options = (proa_options){.max_tokens = 60, .ignore_eos = true, .logprobs = true};
    if (i % 3 == 1) r.options.temperature = 0.8F, r.options.seed = 7;
    if (i == 5) r.options.beams = 3, r.options.logprobs = false;
    return r;
}

/* Preempted requests with several sequences start these from the prompt's state again. */
static uint64_t run_all(outcome out[REQUESTS], const char *model, const proa_engine_options *options,
                        const char *ahead, bool together)
{
    setenv("PROA_AHEAD", ahead, 1);
    proa_engine *engine = open_or_fail(model, options);
    unsetenv("PROA_AHEAD");
    for (int i = 0; i < REQUESTS; i++) {
        submit_or_fail(engine, request_of(i), &out[i]);
        if (!together) proa_engine_run(engine);
    }
    proa_engine_run(engine);
    proa_stats stats;
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(engine);
    return stats.preemptions;
}

static void compare_and_release(outcome *have, outcome *want)
{
    for (int i = 0; i < REQUESTS; i++) {
        assert_same_outcome(&have[i], &want[i], i % 3 == 1);
        outcome_release(&have[i]);
    }
}

static void chunks_and_neighbours_change_nothing(void **state)
{
    (void)state;
    static const char *const modes[] = {"host", "0", "1"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        for (int i = 0; i < 3; i++) {
            outcome alone[REQUESTS] = {0}, other[REQUESTS] = {0};
            proa_engine_options o = {.threads = 1, .dtype = "f32"};
            run_all(alone, models[m], &o, modes[i], false);
            o.threads += i, o.sequences_max = 9, o.step_tokens = 9 + 8 * i;
            run_all(other, models[m], &o, modes[i], true);
            compare_and_release(other, alone);
            for (int r = 0; r < REQUESTS; r++) outcome_release(&alone[r]);
        }
    }
}

static void preemption_changes_nothing(void **state)
{
    (void)state;
    const char *const tried[] = {models[0], GOLDEN "arch/mamba2", GOLDEN "arch/mamba"};
    for (size_t m = 0; m < PROA_COUNT(tried); m++) {
        if (m && getenv("PROA_TEST_TP")) break;
        outcome alone[REQUESTS] = {0}, tight[REQUESTS] = {0};
        proa_engine_options o = {.threads = 1, .dtype = "f32", .sequences_max = 9};
        run_all(alone, tried[m], &o, "1", false);
        o.kv_tokens = 64 * 7;
        assert_true(run_all(tight, tried[m], &o, "1", true) > 0);
        compare_and_release(tight, alone);
        for (int i = 0; i < REQUESTS; i++) outcome_release(&alone[i]);
    }
}

/* Kernels' scratch is for the widest inputs of a product: without an FFN those of what a state gives. */
static void scratch_is_for_the_widest_product(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        proa_engine *engine = open_or_fail(models[m], NULL);
        const proa_params *p = &engine->model->params[PROA_STACK_DECODER];
        int64_t widest = 0, inputs = proa_model_need(engine->model).inputs;
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++)
            if (proa_param_is_matrix(&p->param[i])) widest = proa_max64(widest, p->param[i].cols);
        assert_true(widest > 0 && widest <= inputs);
        proa_engine_close(engine);
    }
}

/* The text of each of three sequences, one after the other. */
typedef struct three {
    int32_t ids[3][40];
    int count[3];
} three;

static void hear_three(const proa_event *e)
{
    three *t = e->arg;
    if (e->kind == PROA_EVENT_TOKEN) t->ids[e->sequence][t->count[e->sequence]++] = e->id;
}

static three run_three(int64_t kv_tokens, int32_t step_tokens)
{
    three t = {.count = {0}};
    proa_err err = {.status = PROA_OK};
    const proa_engine_options o = {
        .threads = 1, .dtype = "f32", .sequences_max = 4, .kv_tokens = kv_tokens, .step_tokens = step_tokens};
    proa_engine *engine = open_or_fail(models[0], &o);
    proa_request r = request_of(2), beside = request_of(0);
    outcome other = {0};
    r.options = (proa_options){.max_tokens = 40, .ignore_eos = true, .n = 3, .temperature = 1, .seed = 3};
    r.options.priority = -1; /* it gives way */
    r.on_event = hear_three, r.arg = &t;
    assert_int_equal(proa_engine_submit(engine, &r, NULL, &err), PROA_OK);
    for (int i = 0; i < 60 && t.count[0] < 20; i++) proa_engine_step(engine);
    submit_or_fail(engine, beside, &other);
    proa_engine_run(engine);
    proa_stats stats;
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.preemptions > 0, kv_tokens < 1024);
    outcome_release(&other);
    proa_engine_close(engine);
    return t;
}

static void sequences_part_again_after_preemption(void **state)
{
    (void)state;
    three wide = run_three(4096, 512), tight = run_three(64 * 5, 11);
    for (int i = 0; i < 3; i++) assert_int_equal(wide.count[i], 40);
    assert_memory_equal(&wide, &tight, sizeof wide);
    assert_memory_not_equal(wide.ids[0], wide.ids[1], sizeof wide.ids[0]);
}

/* ---- the planned number of sequences ---- */

static int64_t planned_for;

static int64_t little_memory(proa_device *device)
{
    (void)device;
    return planned_for;
}

/* The sequences of a plan in that much memory beside weights and activations. */
static int32_t planned_sequences(proa_engine *engine, const proa_engine_options *o, int64_t bytes)
{
    proa_err err = {.status = PROA_OK};
    proa_device *device = engine->model->device, small = *device;
    proa_sizes sizes = {.draft = NULL};
    small.available = little_memory;
    planned_for = engine->memory.weights + engine->memory.activations + bytes;
    engine->model->device = &small;
    assert_int_equal(proa_sizes_make(&sizes, o, &err), PROA_OK);
    proa_sizes_for_model(&sizes, engine->model);
    engine->model->device = device;
    return sizes.sequences_max;
}

static void sequences_follow_from_the_state(void **state)
{
    (void)state;
    if (getenv("PROA_TEST_DEVICE")) skip(); /* the numbers are those of a CPU's defaults */
    proa_engine *engine = open_or_fail(models[0], NULL);
    proa_info info;
    proa_engine_info(engine, &info);
    assert_int_equal(info.sequences, PROA_SEQUENCES_DEFAULT);
    assert_non_null(strstr(info.plan, "recurrent states of"));
    assert_int_equal(engine->sizes.states_kept, info.sequences);
    const int64_t one = engine->memory.states / (2 * info.sequences), page = engine->memory.page;
    const int64_t longest = proa_ceil_div(engine->model->config.context, PROA_PAGE_TOKENS) * page;
    const proa_engine_options plain = {.sequences_max = 0}, served = {.sequences_default = 64},
                              chosen = {.sequences_max = 40}, paged = {.kv_tokens = 2 * PROA_PAGE_TOKENS};
    assert_true(PROA_RECURRENT_TOKENS >= engine->model->config.context);
    /* half of the memory for states with the keys and values of a longest sequence each */
    assert_int_equal(planned_sequences(engine, &plain, 2 * 5 * (one + longest)), 5);
    assert_int_equal(planned_sequences(engine, &plain, 2 * 500 * (one + longest)), 16);
    assert_int_equal(planned_sequences(engine, &served, 2 * 500 * (one + longest)), 64);
    assert_int_equal(planned_sequences(engine, &served, 2 * 20 * (one + longest)), 20);
    assert_int_equal(planned_sequences(engine, &paged, 3 * one + 2 * page), 3);
    assert_int_equal(planned_sequences(engine, &plain, 0), 1);
    assert_int_equal(planned_sequences(engine, &chosen, 0), 40);
    proa_engine_close(engine);
}

static void expect_refusal(const proa_engine_options *o, const char *text)
{
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_engine_open(&engine, models[0], o, &err), PROA_UNSUPPORTED);
    if (!strstr(err.text, text) || strchr(err.text, '\n')) fail_msg("%s", err.text);
}

static void engines_refuse(void **state)
{
    (void)state;
    expect_refusal(&(proa_engine_options){.draft_model = GOLDEN "medusa/a"}, "option 'speculation'");
    expect_refusal(&(proa_engine_options){.prefix_dir = "/nowhere"}, "option 'prefix-dir'");
    expect_refusal(&(proa_engine_options){.prefix_host_memory = "1M"}, "option 'prefix-host-memory'");
}

/* Six heads cannot be divided among so many ranks. */
static void few_heads_are_refused(void **state)
{
    (void)state;
    proa_engine *engine;
    const proa_engine_options o = {.tensor_parallel = 8};
    for (size_t m = MAMBA; m < sizeof models / sizeof *models; m++) {
        proa_err err = {.status = PROA_OK};
        assert_int_equal(proa_engine_open(&engine, models[m], &o, &err), PROA_UNSUPPORTED);
        if (!strstr(err.text, "cannot be divided among 8 ranks") || strchr(err.text, '\n'))
            fail_msg("%s", err.text);
    }
}

/* Falcon-H1 with a norm before the gates: of two groups, which four ranks have parts of. */
static void make_norm_before_gates(const char *dir)
{
    static const char before[] = "\"mamba_norm_before_gate\": false";
    static char text[16384];
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(symlink(GOLDEN "arch/falcon_h1_normed/model.safetensors", path), 0);
    FILE *from = fopen(GOLDEN "arch/falcon_h1_normed/config.json", "r");
    assert_non_null(from);
    text[fread(text, 1, sizeof text - 1, from)] = '\0';
    fclose(from);
    const char *at = strstr(text, before);
    assert_non_null(at);
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    fprintf(to, "%.*s\"mamba_norm_before_gate\": true%s", (int)(at - text), text, at + sizeof before - 1);
    fclose(to);
}

static outcome rows_of_ranks(const char *model, int32_t ranks, const char *sums)
{
    const proa_engine_options o = {.threads = 1, .dtype = "f32", .tensor_parallel = ranks, .rank_sums = sums};
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    proa_request r = request_of(5);
    outcome rows = {0};
    if (proa_engine_open(&engine, model, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    r.task = PROA_TASK_ROWS;
    r.options = (proa_options){.max_tokens = 0};
    run_request(engine, r, &rows);
    proa_engine_close(engine);
    return rows;
}

static void ranks_have_parts_of_a_norm_before_gates(void **state)
{
    (void)state;
    char dir[] = "/tmp/proa-gates-XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    make_norm_before_gates(dir);
    outcome after = rows_of_ranks(GOLDEN "arch/falcon_h1_normed", 1, NULL), one = rows_of_ranks(dir, 1, NULL);
    outcome terms = rows_of_ranks(dir, 4, NULL), whole = rows_of_ranks(dir, 4, "whole");
    size_t bytes = (size_t)(one.rows_count * one.columns) * sizeof(float);
    assert_true(bytes > 0);
    assert_memory_not_equal(one.rows, after.rows, bytes);
    assert_memory_equal(one.rows, whole.rows, bytes);
    for (int64_t i = 0; i < one.rows_count * one.columns; i++)
        assert_true(fabsf(one.rows[i] - terms.rows[i]) < 1e-4F);
    outcome_release(&after), outcome_release(&one), outcome_release(&terms), outcome_release(&whole);
    snprintf(path, sizeof path, "%s/model.safetensors", dir), unlink(path);
    snprintf(path, sizeof path, "%s/config.json", dir), unlink(path);
    rmdir(dir);
}

static void a_draft_model_is_refused(void **state)
{
    (void)state;
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    const proa_engine_options o = {.draft_model = models[0]};
    assert_int_equal(proa_engine_open(&engine, GOLDEN "arch/qwen3", &o, &err), PROA_UNSUPPORTED);
    if (!strstr(err.text, "option 'draft-model'")) fail_msg("%s", err.text);
}

static void requests_and_sessions_are_refused(void **state)
{
    (void)state;
    proa_err err = {.status = PROA_OK};
    proa_engine *engine = open_or_fail(models[0], NULL);
    proa_request r = request_of(1);
    proa_decoder_session *session;
    r.options.speculation = "ngram";
    r.on_event = collect;
    assert_int_equal(proa_engine_submit(engine, &r, NULL, &err), PROA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "option 'speculation'"));
    assert_int_equal(proa_decoder_session_open(&session, engine, NULL, &err), PROA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "recurrent states"));
    proa_engine_close(engine);
}

static void a_fleet_refuses_to_hand_on(void **state)
{
    (void)state;
    proa_fleet *fleet;
    proa_err err = {.status = PROA_OK};
    const proa_engine_options o = {.threads = 2};
    assert_int_equal(proa_fleet_open(&fleet, models[0], &o, &(proa_fleet_options){.count = 2, .prefill = 1}, &err),
                     PROA_UNSUPPORTED);
    if (!strstr(err.text, "option 'disaggregate'")) fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_and_neighbours_change_nothing),
        cmocka_unit_test(preemption_changes_nothing),
        cmocka_unit_test(scratch_is_for_the_widest_product),
        cmocka_unit_test(sequences_part_again_after_preemption),
        cmocka_unit_test(sequences_follow_from_the_state),
        cmocka_unit_test(engines_refuse),
        cmocka_unit_test(few_heads_are_refused),
        cmocka_unit_test(ranks_have_parts_of_a_norm_before_gates),
        cmocka_unit_test(a_draft_model_is_refused),
        cmocka_unit_test(requests_and_sessions_are_refused),
        cmocka_unit_test(a_fleet_refuses_to_hand_on),
    };
    return cmocka_run_group_tests_name("recurrent", tests, NULL, NULL);
}
