/* SPDX-License-Identifier: Apache-2.0
 * test_request_rows.c - proa_request_rows: what a request leaves in memory of its caller is what its events have,
 * whether the host samples or the device, one step at a time or a step ahead; and what is refused. */
#include "engine_test.h"

enum { STEPS = 10, WIDTH = 3, STRIDE = WIDTH + 1, VOCAB_MAX = 512 };

/* Rows by step and sequence or beam, of events or in memory. */
typedef struct rows_of {
    float scores[STEPS][STRIDE][VOCAB_MAX], logits[STEPS][STRIDE][VOCAB_MAX];
    int64_t tokens[WIDTH]; /* of a sequence */
    int64_t beam_steps;
    int32_t vocab;
    bool in_events, done;
} rows_of;

static void keep_token(rows_of *r, const proa_event *event)
{
    int64_t step = r->tokens[event->sequence]++;
    if (!r->in_events) {
        assert_null(event->scores);
        assert_null(event->logits);
        return;
    }
    memcpy(r->scores[step][event->sequence], event->scores, (size_t)r->vocab * sizeof(float));
    memcpy(r->logits[step][event->sequence], event->logits, (size_t)r->vocab * sizeof(float));
}

/* Of a beam search the first step has one row, which memory has for all beams. */
static void keep_beam(rows_of *r, const proa_event *event)
{
    assert_true(r->in_events);
    if (event->logits && event->rows_first == 0) r->beam_steps++;
    int64_t step = r->beam_steps - 1, beam = event->rows_first;
    for (int64_t b = beam; b < (step ? beam + 1 : WIDTH); b++)
        memcpy(event->logits ? r->logits[step][b] : r->scores[step][b],
               event->logits ? event->logits : event->scores, (size_t)r->vocab * sizeof(float));
}

static void keep_rows(const proa_event *event)
{
    rows_of *r = event->arg;
    if (event->kind == PROA_EVENT_TOKEN) keep_token(r, event);
    if (event->kind == PROA_EVENT_SCORES) keep_beam(r, event);
    if (event->kind == PROA_EVENT_DONE) r->done = event->finish != PROA_FINISH_ERROR;
}

/* The request is the second of two that share the memory's rows, so its rows begin at 1. */
static rows_of *run_rows(const char *path, proa_options options, bool in_events, const char *ahead)
{
    static const int32_t ids[6] = {5, 9, 13, 17, 21, 25};
    rows_of *r = calloc(1, sizeof *r);
    proa_info info;
    proa_err err = {.status = PROA_OK};
    setenv("PROA_AHEAD", ahead, 1);
    proa_engine *engine = open_or_fail(path, &(proa_engine_options){.dtype = "f32"});
    unsetenv("PROA_AHEAD");
    proa_engine_info(engine, &info);
    r->vocab = info.outputs, r->in_events = in_events;
    float *scores = calloc((size_t)(STEPS * STRIDE * info.outputs), sizeof *scores);
    float *logits = calloc((size_t)(STEPS * STRIDE * info.outputs), sizeof *logits);
    options.max_tokens = STEPS, options.ignore_eos = true, options.return_logits = in_events;
    proa_request q = {.ids = ids, .ids_count = 6, .on_event = keep_rows, .arg = r, .options = options};
    if (in_events) q.scores = true;
    else
        q.rows = (proa_request_rows){
            .scores = scores + info.outputs, .logits = logits + info.outputs, .steps = STEPS, .stride = STRIDE};
    if (proa_engine_submit(engine, &q, NULL, &err) != PROA_OK) fail_msg("%s", err.text);
    proa_engine_run(engine);
    assert_true(r->done);
    for (int64_t i = 0; i < STEPS * STRIDE && !in_events; i++) {
        int64_t step = i / STRIDE, row = i % STRIDE;
        if (row == 0) { /* the other request's */
            assert_float_equal(scores[i * info.outputs], 0, 0);
            continue;
        }
        memcpy(r->scores[step][row - 1], scores + i * info.outputs, (size_t)info.outputs * sizeof(float));
        memcpy(r->logits[step][row - 1], logits + i * info.outputs, (size_t)info.outputs * sizeof(float));
    }
    proa_engine_close(engine);
    free(scores);
    free(logits);
    return r;
}

static void memory_has_the_rows_of_events(void **state)
{
    const proa_options all[] = {
        {.n = WIDTH},
        {.repetition_penalty = 1.3F, .no_repeat_ngram = 2},
        {.temperature = 0.9F, .top_k = 7, .seed = 4, .n = 2},
        {.temperature = 0.8F, .top_p = 0.7F, .seed = 5, .n = WIDTH},
        {.temperature = 1.3F, .min_p = 0.02F, .repetition_penalty = 1.2F, .seed = 6},
        {.temperature = 1, .seed = 7},
        {.beams = WIDTH},
        {.beams = WIDTH, .length_penalty = 2, .ignore_eos = true},
        {.beams = WIDTH, .repetition_penalty = 1.2F},
        {.beams = WIDTH, .temperature = 1.5F, .top_k = 9, .seed = 8},
    };
    static const char *const modes[] = {"host", "0", "1"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        rows_of *events = run_rows(*state, all[i], true, "host");
        for (size_t mode = 0; mode < 3; mode++) {
            rows_of *memory = run_rows(*state, all[i], false, modes[mode]);
            if (memcmp(events->scores, memory->scores, sizeof events->scores) != 0)
                fail_msg("scores of options %zu differ, PROA_AHEAD=%s", i, modes[mode]);
            if (memcmp(events->logits, memory->logits, sizeof events->logits) != 0)
                fail_msg("logits of options %zu differ, PROA_AHEAD=%s", i, modes[mode]);
            free(memory);
        }
        free(events);
    }
}

/* The encoder's hidden states, which no event has then. */
static void memory_has_hidden_states(void **state)
{
    static const int32_t ids[6] = {5, 9, 13, 17, 21, 25};
    outcome by_event = {0}, by_memory = {0};
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_info info;
    proa_engine_info(engine, &info);
    float *hidden = calloc((size_t)(6 * info.hidden), sizeof *hidden);
    proa_request q = {.task = PROA_TASK_ENCODE, .ids = ids, .ids_count = 6, .on_event = collect, .arg = &by_event};
    assert_int_equal(proa_engine_submit(engine, &q, NULL, NULL), PROA_OK);
    q.arg = &by_memory, q.rows.hidden = hidden;
    assert_int_equal(proa_engine_submit(engine, &q, NULL, NULL), PROA_OK); /* both in one pass */
    proa_engine_run(engine);
    assert_int_equal(by_event.rows_count, 6);
    assert_int_equal(by_memory.rows_count, 0);
    assert_memory_equal(hidden, by_event.rows, (size_t)(6 * info.hidden) * sizeof *hidden);
    proa_engine_close(engine);
    outcome_release(&by_event);
    outcome_release(&by_memory);
    free(hidden);
}

static void wrong_rows_are_refused(void **state)
{
    static const int32_t ids[2] = {5, 9};
    float x[4];
    const struct {
        proa_request q;
        const char *words;
    } bad[] = {
        {{.rows = {.logits = x, .stride = 1}}, "'steps' is 0"},
        {{.rows = {.scores = x, .steps = 2}}, "'stride' 0"},
        {{.rows = {.hidden = x}}, "task encode"},
        {{.task = PROA_TASK_ROWS, .rows = {.logits = x, .steps = 1, .stride = 1}}, "that generate"},
        {{.rows = {.logits = x, .steps = 1, .stride = 1}, .options = {.n = 1, .best_of = 2}}, "'best_of'"},
        {{.rows = {.logits = x, .steps = 1, .stride = 1}, .options = {.penalty_alpha = 0.6F, .top_k = 4}},
         "contrastive"},
        {{.rows = {.logits = x, .steps = 1, .stride = 1, .memory = {.kind = PROA_MEMORY_CUDA, .gpu = 7}}},
         "cuda:7"},
        {{.prompt_table = x, .prompt_table_rows = 1, .prompt_table_memory = {.kind = PROA_MEMORY_CUDA, .gpu = 3}},
         "prompt_table: memory of cuda:3"},
        {{.rows = {.logits = x, .steps = 1, .stride = 1, .memory = {.kind = (proa_memory_kind)9}}},
         "'kind' of memory is 9"},
    };
    proa_engine *engine = open_or_fail(*state, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        outcome out = {0};
        proa_err err = {.status = PROA_OK};
        proa_request q = bad[i].q;
        q.ids = ids, q.ids_count = 2, q.on_event = collect, q.arg = &out;
        assert_int_not_equal(proa_engine_submit(engine, &q, NULL, &err), PROA_OK);
        if (!strstr(err.text, bad[i].words)) fail_msg("'%s' does not say '%s'", err.text, bad[i].words);
    }
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(memory_has_the_rows_of_events, "llama"), ON(memory_has_the_rows_of_events, "bart"),
        ON(memory_has_hidden_states, "t5"),         ON(memory_has_hidden_states, "bart"),
        ON(wrong_rows_are_refused, "llama"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
