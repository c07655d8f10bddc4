/* SPDX-License-Identifier: Apache-2.0
 * test_stages.c - a model in several stages (pipeline parallelism) gives the bits of one stage: prompts that are
 * divided into micro-batches, encoders, encoder memory, latent keys, windows, beams. test_golden_arch with PROA_TEST_PP
 * compares all architectures with their goldens. */
#include "engine_test.h"

#include "engine/engine.h"

enum { REQUESTS = 6, PROMPT = 60, TOKENS = 12, STAGES_MAX = 4 };

typedef struct model_case {
    const char *name;
    int32_t stages_max; /* it has so many layers, or more */
    bool generates;
} model_case;

/* On a device that a test stands in for (tests/fake_gpu), which has no ops of experts. */
static bool on_device(void)
{
    return getenv("PROA_TEST_DEVICE") != NULL;
}

/* GPUs that are said to be connected by NCCL: no ids go from the last one to the first. */
static bool waits_for_host(void)
{
    return getenv("PROA_COLLECTIVES") != NULL;
}

static proa_engine *open_stages(const char *name, int32_t stages, int32_t tensors)
{
    char path[PROA_PATH_MAX];
    snprintf(path, sizeof path, GOLDEN "arch/%s", name);
    return open_or_fail(path, &(proa_engine_options){.dtype = "f32",
                                                     .pipeline_parallel = stages,
                                                     .tensor_parallel = tensors,
                                                     .threads = stages * tensors});
}

static void fill_prompt(int32_t ids[PROMPT], int seed)
{
    uint32_t x = (uint32_t)seed * 2654435761U + 1;
    for (int i = 0; i < PROMPT; i++) {
        x = x * 1664525U + 1013904223U;
        ids[i] = (int32_t)(5 + (x >> 16) % 150);
    }
}

/* Logits of all rows of a prompt, greedy, sampled and beam requests, together in one batch. Some want
 * log-probabilities, whose rows go to rank 0. Of an encoder: outputs of its head, and hidden states, but not of one
 * that decodes its input. */
static void run_all(proa_engine *engine, bool generates, outcome out[REQUESTS])
{
    int32_t ids[REQUESTS][PROMPT];
    for (int i = 0; i < REQUESTS; i++) {
        proa_options o = {.max_tokens = TOKENS, .ignore_eos = true, .logprobs = i < 3};
        proa_request r = {.ids = ids[i], .ids_count = PROMPT - 7 * i};
        fill_prompt(ids[i], i + 1);
        if (i % 3 == 1) o.temperature = 0.8F, o.top_k = 20, o.seed = (uint64_t)(i + 1);
        if (i % 3 == 2) o.beams = 3, o.logprobs = false;
        r.options = o;
        if (i == 0 || !generates) r.task = PROA_TASK_ROWS, r.options = (proa_options){0};
        if (!generates && i % 2 && !proa_arch_decodes_input(engine->model->arch)) r.task = PROA_TASK_ENCODE;
        out[i] = (outcome){0};
        submit_or_fail(engine, r, &out[i]);
    }
    proa_engine_run(engine);
}

static void expect_same_bits(const char *name, int32_t stages, const outcome *a, const outcome *b)
{
    bool same = a->finish == b->finish && a->count == b->count && a->rows_count == b->rows_count;
    size_t rows = (size_t)(a->rows_count * a->columns) * sizeof(float), count = (size_t)a->count;
    same = same && (!a->rows || memcmp(a->rows, b->rows, rows) == 0);
    if (!a->beams) { /* tokens of several sequences come in any order */
        same = same && (!a->ids || memcmp(a->ids, b->ids, count * sizeof(int32_t)) == 0);
        same = same && (!a->logprobs || memcmp(a->logprobs, b->logprobs, count * sizeof(float)) == 0);
    }
    for (int32_t i = 0; i < a->beams && same; i++) {
        same = a->beam_count[i] == b->beam_count[i] && memcmp(&a->beam_score[i], &b->beam_score[i], 4) == 0;
        same = same && memcmp(a->beam_ids[i], b->beam_ids[i], (size_t)a->beam_count[i] * sizeof(int32_t)) == 0;
    }
    if (!same) fail_msg("%s: %d stages give other bits than one", name, stages);
}

/* Whether a sanitizer has seen the like: it sees all architectures with ranks that are threads on the CPU. What
 * processes and GPUs exchange depends on the kind of the model alone, so there it sees one of each. */
static bool is_seen(const char *name)
{
    if (!PROA_SANITIZED || (!getenv("PROA_TEST_RANKS") && !on_device())) return false;
    return strcmp(name, "gemma3") != 0 && strcmp(name, "byt5") != 0 && strcmp(name, "modernbert") != 0;
}

static void test_same_bits(void **state)
{
    const model_case *c = *state;
    outcome one[REQUESTS], many[REQUESTS];
    if (is_seen(c->name)) skip();
    if (on_device() && strncmp(c->name, "deepseek", 8) == 0) skip();
    proa_engine *engine = open_stages(c->name, 1, 1);
    run_all(engine, c->generates, one);
    proa_engine_close(engine);
    for (int i = 0; i < REQUESTS; i++) assert_true(one[i].count + one[i].rows_count + one[i].beams > 0);
    for (int32_t stages = 2; stages <= c->stages_max && stages <= STAGES_MAX; stages++) {
        proa_stats stats;
        engine = open_stages(c->name, stages, 1);
        run_all(engine, c->generates, many);
        proa_engine_stats(engine, &stats);
        assert_int_equal(stats.pages_used, 0);
        proa_engine_close(engine);
        for (int i = 0; i < REQUESTS; i++) {
            expect_same_bits(c->name, stages, &one[i], &many[i]);
            outcome_release(&many[i]);
        }
    }
    for (int i = 0; i < REQUESTS; i++) outcome_release(&one[i]);
}

/* ---- steps of different sequences in flight ---- */

enum { CROWD = 24 };

/* Request i of a crowd: of its own length and kind. */
static proa_request crowd_request(int i, int32_t ids[PROMPT])
{
    static const int32_t word_ids[] = {9, 17, 21}, word_ends[] = {1, 3};
    proa_request r = {.ids = ids, .ids_count = 3 + (i * 11) % (PROMPT - 3)};
    proa_options *o = &r.options;
    fill_prompt(ids, i % 3 ? i : 1); /* some share their first tokens */
    o->max_tokens = 2 + (i * 37) % 110, o->ignore_eos = true, o->seed = (uint64_t)i;
    if (i % 4 == 1) o->temperature = 0.9F, o->top_p = 0.9F;
    if (i % 6 == 2) o->repetition_penalty = 1.3F;
    if (i % 6 == 3) o->n = 2, o->temperature = 0.7F;
    if (i % 6 == 4) o->beams = 2;
    if (i % 6 == 5) o->allowed_words = (proa_words){word_ids, word_ends, 2};
    if (i % 8 == 7) o->logprobs = true;
    return r;
}

static const char *crowd_model(void)
{
    return on_device() ? GOLDEN "arch/smollm3" : GOLDEN "arch/deepseek_v3";
}

/* Runs the crowd with pages for some of it only, so that requests are preempted. Returns the most steps that were in
 * flight when a step of the engine had ended. */
static int32_t run_crowd(int32_t stages, outcome out[CROWD], proa_stats *stats)
{
    int32_t ids[PROMPT], most = 0;
    proa_engine *e = open_or_fail(crowd_model(), &(proa_engine_options){.dtype = "f32",
                                                                        .pipeline_parallel = stages,
                                                                        .threads = stages,
                                                                        .sequences_max = 12,
                                                                        .kv_tokens = 320});
    for (int i = 0; i < CROWD; i++) {
        out[i] = (outcome){0};
        submit_or_fail(e, crowd_request(i, ids), &out[i]);
    }
    while (proa_engine_step(e)) most = e->async.count > most ? e->async.count : most;
    proa_engine_stats(e, stats);
    assert_int_equal(stats->pages_used, 0);
    proa_engine_close(e);
    return most;
}

static void test_crowd(void **state)
{
    PROA_UNUSED(state);
    outcome one[CROWD], many[CROWD];
    proa_stats stats;
    assert_int_equal(run_crowd(1, one, &stats), on_device()); /* which samples, and is a step ahead */
    assert_true(stats.preemptions > 0);
    for (int32_t stages = 2; stages <= 3; stages++) {
        /* Beside the one that has just completed; on the host 8 sequences in a step, the other 4, and prompts. */
        int32_t in_flight = run_crowd(stages, many, &stats);
        if (on_device()) assert_int_equal(in_flight, waits_for_host() ? stages - 1 : stages);
        else assert_in_range(in_flight, 1, stages - 1);
        assert_true(stats.preemptions > 0);
        for (int i = 0; i < CROWD; i++) {
            expect_same_bits(crowd_model(), stages, &one[i], &many[i]);
            outcome_release(&many[i]);
        }
    }
    for (int i = 0; i < CROWD; i++) outcome_release(&one[i]);
}

/* A request that is cancelled while its step is in a later stage. */
static void test_cancelled(void **state)
{
    PROA_UNUSED(state);
    int32_t ids[PROMPT];
    outcome gone = {0}, stays = {0};
    uint64_t id;
    proa_stats stats;
    proa_err err;
    proa_engine *e = open_stages("llama3", 2, 1);
    fill_prompt(ids, 3);
    proa_request r = {.ids = ids, .ids_count = 20, .on_event = collect, .arg = &gone};
    r.options.max_tokens = 40, r.options.ignore_eos = true;
    assert_int_equal(proa_engine_submit(e, &r, &id, &err), PROA_OK);
    submit_or_fail(e, r, &stays);
    while (!gone.count) proa_engine_step(e);
    proa_engine_cancel(e, id);
    proa_engine_run(e);
    assert_true(gone.done && gone.finish == PROA_FINISH_CANCELLED && stays.count == 40);
    proa_engine_stats(e, &stats);
    assert_int_equal(stats.pages_used, 0);
    outcome_release(&gone), outcome_release(&stays);
    proa_engine_close(e);
}

/* An engine that closes when rank 0 has all results: later stages still write keys and values of the encoder. */
static void test_closed_early(void **state)
{
    PROA_UNUSED(state);
    enum { ROUNDS = PART_OF(60, 20) }; /* a sanitizer sees a late write wherever it falls */
    int32_t ids[PROMPT];
    fill_prompt(ids, 4);
    for (int i = 0; i < ROUNDS; i++) {
        outcome o = {0};
        proa_engine *e = open_stages("byt5", 2, 1);
        submit_or_fail(e, (proa_request){.ids = ids, .ids_count = PROMPT, .task = PROA_TASK_ENCODE}, &o);
        proa_engine_run(e);
        proa_engine_close(e);
        assert_int_equal(o.rows_count, PROMPT);
        outcome_release(&o);
    }
}

/* A grid of two stages of two ranks gives the bits of two ranks. */
static void test_grid(void **state)
{
    PROA_UNUSED(state);
    outcome two[REQUESTS], four[REQUESTS];
    proa_engine *engine = open_stages("llama3", 1, 2);
    run_all(engine, true, two);
    proa_engine_close(engine);
    engine = open_stages("llama3", 2, 2);
    run_all(engine, true, four);
    proa_engine_close(engine);
    for (int i = 0; i < REQUESTS; i++) {
        expect_same_bits("llama3", 2, &two[i], &four[i]);
        outcome_release(&two[i]), outcome_release(&four[i]);
    }
}

/* A draft model is not divided: it runs where rank 0 is, and its pages follow those of all stages. */
static void test_draft_model(void **state)
{
    PROA_UNUSED(state);
    outcome one[REQUESTS], two[REQUESTS];
    for (int32_t stages = 1; stages <= 2; stages++) {
        proa_engine *engine = open_or_fail(
            GOLDEN "arch/llama3",
            &(proa_engine_options){
                .dtype = "f32", .pipeline_parallel = stages, .threads = 1, .draft_model = GOLDEN "arch/llama3"});
        run_all(engine, true, stages == 1 ? one : two);
        proa_engine_close(engine);
    }
    for (int i = 0; i < REQUESTS; i++) {
        expect_same_bits("llama3 that drafts for itself", 2, &one[i], &two[i]);
        outcome_release(&one[i]), outcome_release(&two[i]);
    }
}

static void expect_refusal_of(const char *path, proa_engine_options options, const char *text)
{
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    assert_int_not_equal(proa_engine_open(&engine, path, &options, &err), PROA_OK);
    if (!strstr(err.text, text)) fail_msg("'%s' lacks '%s'", err.text, text);
}

static void expect_refusal(proa_engine_options options, const char *text)
{
    expect_refusal_of(GOLDEN "arch/llama3", options, text);
}

static void test_refusals(void **state)
{
    PROA_UNUSED(state);
    expect_refusal((proa_engine_options){.pipeline_parallel = -1}, "option 'pp' is -1");
    expect_refusal((proa_engine_options){.pipeline_parallel = 65}, "option 'pp' is 65");
    expect_refusal((proa_engine_options){.pipeline_parallel = 33, .tensor_parallel = 2}, "must be 0 to 32");
    expect_refusal((proa_engine_options){.pipeline_parallel = 3},
                   "2 layers cannot be divided among 3 stages");
    const char *shared = "those from layer 0 on share keys and values, so they are of one stage";
    expect_refusal_of(GOLDEN "arch/gemma4_small", (proa_engine_options){.pipeline_parallel = 2}, shared);
    expect_refusal_of(GOLDEN "arch/gemma3n", (proa_engine_options){.pipeline_parallel = 2}, shared);
    shared = "4 stages (--pp): those from layer 2 on share keys";
    expect_refusal_of(GOLDEN "arch/gemma3n_deep", (proa_engine_options){.pipeline_parallel = 4}, shared);
}

#define CASE(name, stages, generates)                                                                        \
    {                                                                                                        \
#name, test_same_bits, NULL, NULL, &(model_case)                                                     \
        {                                                                                                    \
#name, stages, generates                                                                         \
        }                                                                                                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(gemma3, 4, true),
        CASE(smollm3, 4, true),
        CASE(deepseek_v2, 3, true),
        CASE(qwen3_5, 4, true),      /* the first stage has no attention, so no keys and values */
        CASE(gemma3n_deep, 3, true), /* streams and inputs of later layers go with the rows */
        CASE(byt5, 2, true),
        CASE(bart, 2, true),
        CASE(modernbert, 4, false),
        CASE(modernbert_mean, 2, false),
        CASE(deberta_v2_conv, 2, false),
        CASE(bert_types_cls, 2, false),
        CASE(bart_qa, 2, false),
        CASE(mbart_qa, 2, false),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_closed_early),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_draft_model),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
