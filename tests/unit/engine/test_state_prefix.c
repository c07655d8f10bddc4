/* SPDX-License-Identifier: Apache-2.0
 * test_state_prefix.c - the prefix cache of models with recurrent states: which tokens are reused, and that no bit
 * changes by it, whatever is evicted. test_recurrent and test_traffic run it with requests of all kinds. */
#include "engine_test.h"

#include "base/checked.h"
#include "engine/engine.h"
#include <unistd.h>

enum { CONTEXT = 512, COMMON = 200, LONG = 300 };

/* The gated delta rule; Mamba-2; lightning attention. */
static const char *const models[] = {GOLDEN "arch/qwen3_next", GOLDEN "arch/granitemoehybrid",
                                     GOLDEN "arch/olmo_hybrid", GOLDEN "arch/minimax", GOLDEN "arch/zamba2"};

/* A golden checkpoint with a longer context: nothing in it depends on that. */
typedef struct folder {
    char dir[64];
} folder;

static void path_in(char path[256], const char *dir, const char *name)
{
    snprintf(path, 256, "%s/%s", dir, name);
}

static folder make_folder(const char *model)
{
    static const char before[] = "\"max_position_embeddings\": 128";
    static char text[16384];
    folder f = {"/tmp/proa-states-XXXXXX"};
    char path[256], weights[256];
    assert_non_null(mkdtemp(f.dir));
    path_in(weights, model, "model.safetensors");
    path_in(path, f.dir, "model.safetensors");
    assert_int_equal(symlink(weights, path), 0);
    path_in(path, model, "config.json");
    FILE *from = fopen(path, "r");
    assert_non_null(from);
    text[fread(text, 1, sizeof text - 1, from)] = '\0';
    fclose(from);
    char *at = strstr(text, before);
    assert_non_null(at);
    path_in(path, f.dir, "config.json");
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    fprintf(to, "%.*s\"max_position_embeddings\": %d%s", (int)(at - text), text, CONTEXT, at + sizeof before - 1);
    fclose(to);
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

/* Prompts, of which `common` tokens are those of all others. */
static proa_request prompt_of(int32_t ids[CONTEXT], int common, int count, int own)
{
    for (int i = 0; i < count; i++) ids[i] = 3 + (i < common ? i * 7 % 190 : (i * 11 + own * 37) % 190);
    proa_request r = {.ids = ids, .ids_count = count};
    r.options = (proa_options){.max_tokens = 20, .ignore_eos = true, .logprobs = true};
    return r;
}

/* The prompt of turn `count` tokens long of one chat: each begins with the one before. */
static proa_request turn_of(int32_t ids[CONTEXT], int count)
{
    return prompt_of(ids, CONTEXT, count, 0);
}

static void run_both(proa_engine *with, proa_engine *without, proa_request r, int64_t cached)
{
    outcome on = {0}, off = {0};
    run_request(with, r, &on);
    run_request(without, r, &off);
    assert_same_outcome(&on, &off, r.options.temperature > 0);
    assert_int_equal(off.cached_tokens, 0);
    if (cached >= 0) assert_int_equal(on.cached_tokens, cached);
    outcome_release(&on), outcome_release(&off);
}

static proa_engine_options options_of(const char *prefix_cache, int32_t step_tokens)
{
    return (proa_engine_options){.threads = 1,
                                 .dtype = "f32",
                                 .prefix_cache = prefix_cache,
                                 .sequences_max = 4,
                                 .step_tokens = step_tokens,
                                 .kv_tokens = 4096};
}

/* States are kept behind the last full page of a prompt, and where a second request leaves the first one. */
static void states_are_reused(void **state)
{
    const folder *f = *state;
    static const int32_t steps[] = {512, 33};
    for (size_t i = 0; i < PROA_COUNT(steps); i++) {
        int32_t ids[CONTEXT];
        proa_engine_options on = options_of("on", steps[i]), off = options_of("off", 512);
        proa_engine *with = open_or_fail(f->dir, &on), *without = open_or_fail(f->dir, &off);
        assert_int_equal(with->sizes.states_kept, 4);
        assert_int_equal(without->sizes.states_kept, 0);
        run_both(with, without, turn_of(ids, LONG), 0);
        run_both(with, without, turn_of(ids, LONG + 50), 256);
        run_both(with, without, turn_of(ids, LONG), 256);
        run_both(with, without, prompt_of(ids, COMMON, LONG, 1), 0);
        run_both(with, without, prompt_of(ids, COMMON, LONG, 2), 192);
        run_both(with, without, prompt_of(ids, COMMON, LONG, 2), 256);
        run_both(with, without, turn_of(ids, 64), 0);
        run_both(with, without, turn_of(ids, 63), 0);
        run_both(with, without, turn_of(ids, 1), 0);
        assert_int_equal(with->kept_states.used, 4);
        proa_engine_close(with), proa_engine_close(without);
    }
}

/* Sampled tokens, several sequences and beams start from the state at the end of their prompt. */
static void requests_of_all_kinds_reuse_states(void **state)
{
    const folder *f = *state;
    int32_t ids[CONTEXT];
    proa_engine_options on = options_of("on", 70), off = options_of("off", 512);
    proa_engine *with = open_or_fail(f->dir, &on), *without = open_or_fail(f->dir, &off);
    for (int i = 0; i < 3; i++) {
        proa_request r = turn_of(ids, LONG);
        if (i == 1) r.options.temperature = 0.9F, r.options.seed = 5;
        if (i == 2) r.options.beams = 3, r.options.logprobs = false;
        run_both(with, without, r, i ? 256 : 0);
    }
    proa_request salted = turn_of(ids, LONG), scored = turn_of(ids, LONG);
    salted.cache_salt = "other";
    run_both(with, without, salted, 0);
    scored.options.prompt_logprobs = true;
    run_both(with, without, scored, 0);
    proa_engine_close(with), proa_engine_close(without);
}

static void expect_states_of_pages(const proa_engine *e)
{
    int64_t used = 0;
    for (int32_t page = 0; page < e->pages.count; page++) {
        if (!proa_state_cache_has(&e->kept_states, page)) continue;
        assert_true(e->prefixes.node_of[page] >= 0);
        used++;
    }
    assert_int_equal(used, e->kept_states.used);
    assert_true(used <= e->kept_states.count);
}

/* Pages and slots for few: states go with their pages and for other states, requests are preempted and go on. */
static void eviction_changes_nothing(void **state)
{
    enum { REQUESTS = 24 };
    const folder *f = *state;
    static int32_t ids[REQUESTS][CONTEXT];
    proa_engine_options on = options_of("on", 90), off = options_of("off", 512);
    on.kv_tokens = 64 * 12, on.sequences_max = 3;
    proa_engine *with = open_or_fail(f->dir, &on), *without = open_or_fail(f->dir, &off);
    outcome have[REQUESTS] = {0};
    for (int i = 0; i < REQUESTS; i++) {
        proa_request r = prompt_of(ids[i], 64 * (i % 5), 70 + (i * 53) % 300, i % 7);
        r.options.max_tokens = 60 + 2 * i;
        submit_or_fail(with, r, &have[i]);
        for (int k = 0; k < 3; k++) proa_engine_step(with), expect_states_of_pages(with);
    }
    proa_engine_run(with);
    proa_stats stats;
    proa_engine_stats(with, &stats);
    assert_true(stats.preemptions > 0 && stats.pages_evicted > 0 && stats.prefix_hits > 0);
    assert_int_equal(stats.pages_used, 0);
    for (int i = 0; i < REQUESTS; i++) {
        outcome want = {0};
        proa_request r = prompt_of(ids[i], 64 * (i % 5), 70 + (i * 53) % 300, i % 7);
        r.options.max_tokens = 60 + 2 * i;
        run_request(without, r, &want);
        assert_same_outcome(&have[i], &want, false);
        outcome_release(&have[i]), outcome_release(&want);
    }
    proa_engine_close(with), proa_engine_close(without);
}

/* Without attention pages only count tokens: there are enough for all that run. A state is kept for four of them. */
static void a_model_without_pages_reuses_states(void **state)
{
    (void)state;
    const char *model = GOLDEN "arch/mamba2";
    int32_t ids[CONTEXT];
    proa_info info;
    proa_engine_options on = options_of("on", 70), off = options_of("off", 512);
    on.kv_tokens = 0;
    proa_engine *with = open_or_fail(model, &on), *without = open_or_fail(model, &off);
    proa_engine_info(with, &info);
    assert_null(strstr(info.plan, "keys and values"));
    assert_int_equal(with->model->kv_layers, 0);
    assert_int_equal(with->sizes.kv_tokens, 4 * with->model->config.context);
    run_both(with, without, turn_of(ids, 250), 0);
    run_both(with, without, turn_of(ids, LONG), 0);
    run_both(with, without, turn_of(ids, LONG + 50), 256);
    run_both(with, without, prompt_of(ids, COMMON, LONG, 1), 0);
    proa_request r = turn_of(ids, LONG);
    r.options.beams = 3, r.options.logprobs = false;
    run_both(with, without, r, 256);
    proa_engine_close(with), proa_engine_close(without);
}

static int next_model;

static int set_up(void **state)
{
    static folder f;
    f = make_folder(models[next_model++]);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_reused),
        cmocka_unit_test(requests_of_all_kinds_reuse_states),
        cmocka_unit_test(eviction_changes_nothing),
        cmocka_unit_test(a_model_without_pages_reuses_states),
    };
    int failed = 0;
    for (size_t m = 0; m < PROA_COUNT(models); m++)
        failed += cmocka_run_group_tests_name(models[m], tests, set_up, tear_down);
    return failed;
}
