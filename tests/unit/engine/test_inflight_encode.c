/* SPDX-License-Identifier: Apache-2.0
 * test_inflight_encode.c - encoder passes that are submitted before the outputs of the pass before have arrived: the
 * outputs are those of one input at a time, whatever is cancelled or submitted in between, and wherever they go. In a
 * pipeline there is a pass for each stage, and the outputs come from the last one. */
#include "engine_test.h"

#include "engine/access.h"
#include "engine/engine.h"

enum { INPUTS = 160, STEP_TOKENS = 48, GOES = 20, HIDDEN = 77, INFLIGHT_LEAST = 5 };

static int32_t all_ids[INPUTS][STEP_TOKENS];
static int32_t end_token; /* the last one of all inputs; 0: any */

/* Inputs of 1 to 17 tokens. One requests hidden states, which the host must fetch. */
static proa_request input_of(int i)
{
    int32_t n = 1 + i * 7 % 17;
    for (int32_t k = 0; k < n; k++) all_ids[i][k] = 4 + (i * 31 + k * 13) % 90;
    if (end_token) all_ids[i][n - 1] = end_token;
    return (proa_request){.task = i == HIDDEN && !end_token ? PROA_TASK_ENCODE : PROA_TASK_ROWS,
                          .ids = all_ids[i],
                          .ids_count = n};
}

/* How a model runs. */
typedef struct encode_case {
    const char *model;
    int32_t stages;    /* 0: one */
    const char *ranks; /* what the stages are */
    int32_t end;
} encode_case;

/* Two GPUs are enough. */
static int32_t stages_of(const encode_case *c)
{
    return getenv("PROA_TEST_DEVICE") && c->stages > 2 ? 2 : c->stages;
}

static proa_engine *open_with(const encode_case *c, const char *ahead)
{
    const proa_engine_options o = {.sequences_max = 24,
                                   .step_tokens = STEP_TOKENS,
                                   .dtype = "f32",
                                   .pipeline_parallel = stages_of(c),
                                   .ranks = c->ranks,
                                   .threads = c->stages > 1 ? c->stages : 1};
    if (ahead) setenv("PROA_AHEAD", ahead, 1);
    proa_engine *engine = open_or_fail(c->model, &o);
    unsetenv("PROA_AHEAD");
    return engine;
}

/* ---- places: memory where the model runs, for the outputs of two of three inputs ---- */

/* The rows of all inputs one after the other, or of each the one of the head; then [INPUTS] of the pooler. NULL: no
 * input has a place. */
static float *places;

static bool has_place(int i)
{
    return i % 3 != 1 && i != HIDDEN;
}

static int64_t rows_at(const proa_engine *engine, int input)
{
    int64_t at = 0;
    for (int i = 0; i < input; i++) at += proa_engine_has_head_row(engine) ? 1 : input_of(i).ids_count;
    return at;
}

static int64_t place_width(const proa_engine *engine)
{
    return engine->model->plan.width[PROA_REG_OUT];
}

static float *rows_place(const proa_engine *engine, int i)
{
    return places + rows_at(engine, i) * place_width(engine);
}

static float *pooled_place(const proa_engine *engine, int i)
{
    return rows_place(engine, INPUTS) + i * place_width(engine);
}

static void make_places(const proa_engine *engine, bool wanted)
{
    proa_device *d = engine->model->device;
    int64_t rows = rows_at(engine, INPUTS) + INPUTS;
    places = wanted ? d->alloc(d, rows * place_width(engine) * (int64_t)sizeof *places) : NULL;
}

static proa_request placed_input(const proa_engine *engine, int i)
{
    proa_request r = input_of(i);
    if (!places || !has_place(i)) return r;
    if (proa_engine_has_head_row(engine)) r.head_to = rows_place(engine, i);
    else r.rows_to = rows_place(engine, i), r.pooled_to = pooled_place(engine, i);
    return r;
}

static float *read_place(const proa_engine *engine, const float *from, int64_t rows)
{
    proa_device *d = engine->model->device;
    int64_t bytes = rows * place_width(engine) * (int64_t)sizeof *from;
    float *to = proa_malloc((size_t)bytes);
    d->download(d, to, from, bytes);
    return to;
}

/* Puts what is in the places into the outcomes, for which nothing else may have come. */
static void read_places(const proa_engine *engine, outcome *o)
{
    proa_device *d = engine->model->device;
    bool head = proa_engine_has_head_row(engine);
    for (int i = 0; i < INPUTS; i++) {
        if (!has_place(i) || i == GOES) continue;
        assert_null(o[i].rows);
        assert_null(o[i].pooled);
        o[i].rows_count = head ? 1 : input_of(i).ids_count;
        o[i].columns = place_width(engine);
        o[i].rows = read_place(engine, rows_place(engine, i), o[i].rows_count);
        if (!head) o[i].pooled = read_place(engine, pooled_place(engine, i), 1);
    }
    d->free(d, places, (rows_at(engine, INPUTS) + INPUTS) * place_width(engine) * (int64_t)sizeof *places);
    places = NULL;
}

static void alone(const encode_case *c, outcome *o)
{
    proa_engine *engine = open_with(&(encode_case){.model = c->model}, NULL);
    for (int i = 0; i < INPUTS; i++) run_request(engine, input_of(i), &o[i]);
    proa_engine_close(engine);
}

/* Steps until all are done; one is cancelled and some are submitted on the way. Returns after how many steps a pass
 * was in flight. */
static int together(const encode_case *c, const char *ahead, bool in_places, outcome *o)
{
    proa_engine *engine = open_with(c, ahead);
    proa_err err = {.status = PROA_OK};
    proa_stats stats;
    uint64_t id = 0;
    int inflight_seen = 0, steps = 0;
    make_places(engine, in_places);
    for (int i = 0; i < INPUTS - 6; i++) {
        proa_request r = placed_input(engine, i);
        r.on_event = collect, r.arg = &o[i];
        uint64_t *to = i == GOES ? &id : NULL;
        if (proa_engine_submit(engine, &r, to, &err) != PROA_OK) fail_msg("submit: %s", err.text);
    }
    for (; proa_engine_step(engine); steps++) {
        inflight_seen += engine->encoder.count;
        if (steps == 0) proa_engine_cancel(engine, id); /* it is under way where steps fly */
        for (int i = INPUTS - 6; i < INPUTS && steps == 3; i++)
            submit_or_fail(engine, placed_input(engine, i), &o[i]);
    }
    if (in_places) read_places(engine, o);
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(engine->encoder.count, 0);
    proa_engine_close(engine);
    return inflight_seen;
}

/* To the bit; on another device a row's bits depend on how many share its pass. */
static bool same_values(const float *a, const float *b, int64_t count)
{
    float reach = getenv("PROA_TEST_DEVICE") ? 1e-4F : 0;
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= reach)) return false;
    return true;
}

static void assert_same(const outcome *o, const outcome *right, int i)
{
    int64_t values = right->rows_count * right->columns;
    assert_true(o->done);
    if (i == GOES) {
        assert_int_equal(o->finish, PROA_FINISH_CANCELLED);
        assert_int_equal(o->rows_count, 0);
        return;
    }
    assert_int_equal(o->finish, PROA_FINISH_END);
    if (o->rows_count != right->rows_count) fail_msg("input %d: %d rows", i, (int)o->rows_count);
    if (!same_values(o->rows, right->rows, values)) fail_msg("input %d: its rows differ", i);
    assert_true(!o->pooled == !right->pooled);
    if (o->pooled && !same_values(o->pooled, right->pooled, right->columns))
        fail_msg("input %d: its pooled vector differs", i);
}

static void answers_are_the_same(const encode_case *c, const char *ahead, bool in_places,
                                 const outcome *right, bool in_flight)
{
    outcome *all = proa_calloc(INPUTS, sizeof *all);
    int inflight_seen = together(c, ahead, in_places, all);
    if (in_flight ? inflight_seen < INFLIGHT_LEAST : inflight_seen != 0)
        fail_msg("with %s %d passes were under way", ahead, inflight_seen);
    for (int i = 0; i < INPUTS; i++) assert_same(&all[i], &right[i], i);
    for (int i = 0; i < INPUTS; i++) outcome_release(&all[i]);
    free(all);
}

static void passes_fly(void **state)
{
    outcome *right = proa_calloc(INPUTS, sizeof *right);
    const encode_case *c = *state;
    end_token = c->end;
    bool each_row = strstr(c->model, "mlm") != NULL; /* the host asks its head: nothing may come between */
    alone(c, right);
    for (int in_places = 0; in_places < (each_row ? 1 : 2); in_places++) {
        answers_are_the_same(c, "1", in_places, right, !each_row);
        answers_are_the_same(c, "host", in_places, right, false);
    }
    for (int i = 0; i < INPUTS; i++) outcome_release(&right[i]);
    free(right);
}

/* Places for what a model does not compute are refused. */
static void places_that_no_row_has(void **state)
{
    float to[256];
    proa_err err = {.status = PROA_OK};
    proa_engine *engine = open_with(&(encode_case){.model = *state}, NULL);
    outcome o = {.done = false};
    proa_request r = input_of(1);
    r.on_event = collect, r.arg = &o;
    r.head_to = to;
    assert_int_equal(proa_engine_submit(engine, &r, NULL, &err), PROA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "head_to"));
    r.head_to = NULL, r.rows_to = to;
    err = (proa_err){.status = PROA_OK};
    assert_int_equal(proa_engine_submit(engine, &r, NULL, &err), PROA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "rows_to"));
    r.rows_to = NULL, r.pooled_to = to;
    err = (proa_err){.status = PROA_OK};
    assert_int_equal(proa_engine_submit(engine, &r, NULL, &err), PROA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "pooled_to"));
    proa_engine_close(engine);
}

#define CASE(folder, count, kind) CASE_ENDING(folder, count, kind, 0)
#define CASE_ENDING(folder, count, kind, token)                                                              \
    {                                                                                                        \
        .name = "passes_fly " folder " " #count " " kind, .test_func = passes_fly,                           \
        .initial_state = &(encode_case)                                                                      \
        {                                                                                                    \
            GOLDEN "arch/" folder, count, kind, token                                                        \
        }                                                                                                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE("bert", 1, "thread"),
        CASE("bert_regress", 1, "thread"),
        CASE("bert_mlm", 1, "thread"),
        CASE("bert", 2, "thread"),
        CASE("bert_regress", 2, "thread"),
        CASE("bert_mlm", 2, "thread"),
        CASE("modernbert_mean", 2, "thread"),
        CASE("modernbert_cls", 4, "thread"),
        CASE_ENDING("bart_cls", 1, "thread", 2),
        CASE_ENDING("bart_cls", 2, "thread", 2),
        CASE_ENDING("mbart_cls", 2, "thread", 2),
        CASE("bert", 2, "process"),
        CASE("bert_regress", 2, "process"),
        ON(places_that_no_row_has, "bert_mlm"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
