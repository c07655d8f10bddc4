/* SPDX-License-Identifier: Apache-2.0
 * test_long_context.c - a prompt of 12,000 tokens: what it gives does not depend on the size of the steps, decoding
 * agrees with scoring, its first token is still seen at its end, and sequences that run meanwhile are not held up. */
#include "engine_test.h"

#include <stdio.h>
#include <unistd.h>

enum { LONG = PART_OF(12000, 3000), NEW = 8, CONTEXT = 16384 };

/* The golden llama with a context of 16,384 tokens: its rotary table is made from the configuration. */
typedef struct folder {
    char dir[32];
} folder;

static void path_in(char path[256], const char *dir, const char *name)
{
    snprintf(path, 256, "%s/%s", dir, name);
}

static folder make_folder(void)
{
    folder f = {"/tmp/proa-long-XXXXXX"};
    char path[256];
    assert_non_null(mkdtemp(f.dir));
    path_in(path, f.dir, "model.safetensors");
    assert_int_equal(symlink(GOLDEN "arch/llama/model.safetensors", path), 0);
    path_in(path, f.dir, "config.json");
    FILE *config = fopen(path, "w");
    assert_non_null(config);
    fprintf(config,
            "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":160,"
            "\"max_position_embeddings\":%d,\"num_attention_heads\":4,\"num_hidden_layers\":2,"
            "\"rms_norm_eps\":1e-06,\"vocab_size\":200}",
            CONTEXT);
    fclose(config);
    return f;
}

static void remove_folder(const folder *f)
{
    static const char *const names[] = {"model.safetensors", "config.json"};
    char path[256];
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        path_in(path, f->dir, names[i]);
        unlink(path);
    }
    rmdir(f->dir);
}

static proa_engine *open_steps(const folder *f, int32_t step_tokens)
{
    return open_or_fail(
        f->dir, &(proa_engine_options){
                    .dtype = "f32", .step_tokens = step_tokens, .sequences_max = 2, .kv_tokens = CONTEXT});
}

static int32_t *make_ids(int32_t first)
{
    int32_t *ids = malloc((LONG + NEW) * sizeof *ids);
    assert_non_null(ids);
    for (int i = 0; i < LONG; i++) ids[i] = 3 + (int32_t)((int64_t)i * i * 37 % 191 + i) % 190;
    ids[0] = first;
    return ids;
}

static outcome generate(proa_engine *engine, const int32_t *ids)
{
    outcome o = {0};
    proa_options options = {.max_tokens = NEW, .ignore_eos = true, .logprobs = true};
    run_request(engine, (proa_request){.ids = ids, .ids_count = LONG, .options = options}, &o);
    assert_int_equal(o.count, NEW);
    for (int i = 0; i < NEW; i++) assert_true(isfinite(o.logprobs[i]));
    return o;
}

static float largest_difference(const float *a, const float *b, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

/* The CPU's sums have one order, so they are equal to the bit. The attention of random weights is nearly uniform: a
 * tolerance would not see that a part of the context is left out. */
static void assert_same(const float *a, const float *b)
{
    float limit = getenv("PROA_TEST_DEVICE") ? 1e-4F : 0;
    if (!(largest_difference(a, b, NEW) <= limit))
        fail_msg("differ by %g", (double)largest_difference(a, b, NEW));
}

/* ---- what it gives ---- */

static void steps_do_not_matter(void **state)
{
    static const int32_t budgets[] = {512, 97};
    int32_t *ids = make_ids(7), *other = make_ids(8);
    outcome first = {0};
    for (size_t i = 0; i < PROA_COUNT(budgets); i++) {
        proa_engine *engine = open_steps(*state, budgets[i]);
        outcome o = generate(engine, ids);
        if (i == 0) {
            outcome changed = generate(engine, other); /* only its first token is another */
            assert_true(largest_difference(o.logprobs, changed.logprobs, NEW) > 0);
            outcome_release(&changed);
            first = o;
        } else {
            assert_memory_equal(o.ids, first.ids, NEW * sizeof *o.ids);
            assert_same(o.logprobs, first.logprobs);
            outcome_release(&o);
        }
        proa_engine_close(engine);
    }
    outcome_release(&first);
    free(ids);
    free(other);
}

typedef struct scores {
    float last[NEW]; /* log-probabilities of the last NEW tokens */
    bool done;
} scores;

static void collect_scores(const proa_event *e)
{
    scores *s = e->arg;
    if (e->kind == PROA_EVENT_PROMPT)
        for (int64_t i = 0; i < e->rows_count; i++) {
            int64_t at = e->rows_first + i - LONG; /* rows_first is the first token's place in the prompt */
            if (at >= 0) s->last[at] = e->prompt_logprobs[i];
        }
    if (e->kind == PROA_EVENT_DONE) s->done = e->finish != PROA_FINISH_ERROR;
}

static void decoding_agrees_with_scoring(void **state)
{
    proa_engine *engine = open_steps(*state, 512);
    int32_t *ids = make_ids(7);
    outcome o = generate(engine, ids);
    scores s = {.done = false};
    memcpy(ids + LONG, o.ids, NEW * sizeof *ids);
    proa_request request = {.task = PROA_TASK_SCORE, .ids = ids, .ids_count = LONG + NEW};
    request.on_event = collect_scores;
    request.arg = &s;
    assert_int_equal(proa_engine_submit(engine, &request, NULL, NULL), PROA_OK);
    proa_engine_run(engine);
    assert_true(s.done);
    assert_same(s.last, o.logprobs);
    outcome_release(&o);
    free(ids);
    proa_engine_close(engine);
}

/* ---- who waits ---- */

typedef struct progress {
    int tokens, *others;
    int seen; /* the other's tokens when its own first one came */
} progress;

static void collect_progress(const proa_event *e)
{
    progress *p = e->arg;
    if (e->kind == PROA_EVENT_TOKEN && p->tokens++ == 0) p->seen = *p->others;
}

static void submit_counted(proa_engine *engine, const int32_t *ids, int64_t count, int32_t tokens, progress *p)
{
    proa_request request = {.ids = ids, .ids_count = count};
    request.options = (proa_options){.max_tokens = tokens, .ignore_eos = true};
    request.on_event = collect_progress;
    request.arg = p;
    assert_int_equal(proa_engine_submit(engine, &request, NULL, NULL), PROA_OK);
}

/* Each of the steps that read the long prompt has a row of the sequence that decodes. */
static void decoding_goes_on_beside_a_long_prompt(void **state)
{
    enum { STEP = 256, STEPS = LONG / STEP };
    proa_engine *engine = open_steps(*state, STEP);
    int32_t *ids = make_ids(7);
    progress brief = {0}, lengthy = {.others = &brief.tokens};
    brief.others = &lengthy.tokens;
    submit_counted(engine, ids, 5, 2 * STEPS, &brief);
    submit_counted(engine, ids, LONG, 2, &lengthy);
    proa_engine_run(engine);
    assert_int_equal(brief.tokens, 2 * STEPS);
    assert_int_equal(lengthy.tokens, 2);
    assert_int_equal(brief.seen, 0);
    assert_in_range(lengthy.seen, STEPS - 2, STEPS + 4);
    free(ids);
    proa_engine_close(engine);
}

int main(void)
{
    folder f = make_folder();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(steps_do_not_matter, &f),
        cmocka_unit_test_prestate(decoding_agrees_with_scoring, &f),
        cmocka_unit_test_prestate(decoding_goes_on_beside_a_long_prompt, &f),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(&f);
    return failed;
}
