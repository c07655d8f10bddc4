/* SPDX-License-Identifier: Apache-2.0
 * test_prefix_levels.c - the levels of the prefix cache below the pool: many requests that begin alike run in a pool
 * that is too small for their prefixes, so these leave it and come back. Every request gets, to the bit, what it gets
 * alone without a cache. */
#include "engine_test.h"

#include "base/checked.h"
#include "engine/engine.h"

enum { ROUNDS = PART_OF(40, 25), TOGETHER = 4, FAMILIES = 7, ROOM = 230 };

static uint32_t state_of_dice;
static uint32_t dice(uint32_t below)
{
    state_of_dice = state_of_dice * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(state_of_dice >> 4) * below) >> 28);
}

typedef struct case_of {
    int32_t ids[ROOM];
    proa_request request;
} case_of;

/* A prompt of one of few families. Those of a family begin alike for one to three pages. */
static void random_case(case_of *c, const proa_info *info)
{
    int32_t family = (int32_t)dice(FAMILIES), vocab = info->vocab - 3;
    int64_t count = 66 + dice(ROOM - 66), alike = 64 * (1 + dice(3));
    for (int i = 0; i < ROOM; i++) {
        bool own = i >= alike && info->kind == PROA_KIND_DECODER;
        c->ids[i] = 3 + (family * 7919 + i * i + (own ? (int32_t)dice(5) * 31 : 0)) % vocab;
    }
    if (info->kind != PROA_KIND_DECODER) count = 70 + 25 * family; /* an input is reused as a whole */
    c->request = (proa_request){.ids = c->ids, .ids_count = count};
    proa_options *o = &c->request.options;
    *o = (proa_options){.max_tokens = 1 + (int32_t)dice(24), .ignore_eos = true, .logprobs = true};
    if (dice(3) == 0) o->temperature = 1, o->seed = dice(1000), o->n = 1 + (int32_t)dice(3);
    else if (dice(4) == 0) o->beams = 3, o->logprobs = false;
    if (dice(6) == 0) c->request.cache_salt = "salt";
}

/* What the random requests of a seed get alone, without a cache: once, since they come to several engines. */
typedef struct alone_runs {
    proa_engine *engine;
    uint32_t seed;
    outcome of[ROUNDS][TOGETHER];
} alone_runs;

static alone_runs *alone_open(const char *model)
{
    const proa_engine_options off = {.kv_tokens = 4096, .prefix_cache = "off"};
    alone_runs *runs = calloc(1, sizeof *runs);
    runs->engine = open_or_fail(model, &off);
    return runs;
}

static void alone_forget(alone_runs *runs)
{
    for (int i = 0; i < ROUNDS * TOGETHER; i++) outcome_release(&runs->of[i / TOGETHER][i % TOGETHER]);
}

static void alone_close(alone_runs *runs)
{
    alone_forget(runs);
    proa_engine_close(runs->engine);
    free(runs);
}

/* Runs the random requests of a seed some at a time; each gets what it gets alone. */
static void play_rounds(proa_engine *engine, alone_runs *plain, uint32_t seed, const proa_info *info)
{
    if (plain->seed != seed) alone_forget(plain);
    plain->seed = state_of_dice = seed;
    for (int round = 0; round < ROUNDS; round++) {
        case_of all[TOGETHER];
        outcome together[TOGETHER] = {{.done = false}};
        int count = 1 + (int)dice(TOGETHER);
        for (int i = 0; i < count; i++) {
            random_case(&all[i], info);
            submit_or_fail(engine, all[i].request, &together[i]);
        }
        proa_engine_run(engine);
        for (int i = 0; i < count; i++) {
            outcome *alone = &plain->of[round][i];
            if (!alone->done) run_request(plain->engine, all[i].request, alone);
            assert_same_outcome(&together[i], alone, all[i].request.options.temperature > 0);
            outcome_release(&together[i]);
        }
    }
}

static void evicted_prefixes_come_back(void **state)
{
    static const char *const sizes[] = {"500K", "8M"};
    alone_runs *plain = alone_open(*state);
    for (size_t i = 0; i < PROA_COUNT(sizes); i++) {
        proa_engine_options options = {
            .kv_tokens = 16 * 64, .sequences_max = 5, .step_tokens = 300, .prefix_host_memory = sizes[i]};
        proa_stats stats;
        proa_info info;
        proa_engine *engine = open_or_fail(*state, &options);
        proa_engine_info(engine, &info);
        assert_non_null(strstr(info.plan, "--prefix-host-memory"));
        play_rounds(engine, plain, 11, &info);
        proa_engine_stats(engine, &stats);
        assert_int_equal(stats.pages_used, 0);
        assert_true(stats.pages_evicted > 20 && stats.pages_host > 0);
        assert_true(stats.prefix_hits_host >= 64 * 5 && stats.prefix_hits_host <= stats.prefix_hits);
        proa_engine_close(engine);
    }
    alone_close(plain);
}

/* Three of the four pages of a prompt leave a pool of six and come back later. */
static void hits_are_counted_by_level(void **state)
{
    const proa_engine_options options = {.kv_tokens = 6 * 64, .prefix_host_memory = "16M"};
    proa_engine *engine = open_or_fail(*state, &options);
    static const int64_t cached[] = {0, 256, 0, 256}, host[] = {0, 0, 0, 192};
    int32_t ids[300];
    proa_stats stats;
    for (int i = 0; i < 4; i++) {
        outcome o = {.done = false};
        for (int k = 0; k < 300; k++) ids[k] = 3 + (k * 7 + (i == 2 ? 50 : 0)) % 150;
        proa_request r = {.ids = ids, .ids_count = 300, .options = {.max_tokens = 2}};
        run_request(engine, r, &o);
        assert_int_equal(o.cached_tokens, cached[i]);
        outcome_release(&o);
        proa_engine_stats(engine, &stats);
        assert_int_equal(stats.prefix_hits_host, host[i]);
    }
    assert_int_equal(stats.prefix_hits, 512);
    proa_engine_close(engine);
}

/* Passes seem to have taken 1 us for each row of a prompt, and copies of a page so long. */
static void set_costs(proa_engine *e, double copy_ns)
{
    for (int i = 0; i < 100; i++) {
        const proa_step_shape prompts = {.prompt_rows = 64 + i, .prompt_work = 64 + i};
        const proa_step_shape decoding = {.decode_rows = 1 + i % 3};
        proa_step_time_add(&e->pacing.times, &prompts, 1000 * (64 + i));
        proa_step_time_add(&e->pacing.times, &decoding, 1000 * (1 + i % 3));
    }
    if (copy_ns > 0) e->host_cache.copy_ns = copy_ns;
}

/* Two requests that do not fit beside each other: one is preempted, and goes on with the same tokens, whether its
 * pages are computed again or come back from memory of the host: what costs less. */
static void preempted_requests_come_back(void **state)
{
    enum { REQUESTS = 2, PROMPT = 130, NEW = 170 };
    static const char *const host[] = {"off", "16M", "16M"};
    static const double copy_ns[] = {0, 1, 1e12};
    const proa_engine_options off = {.kv_tokens = 4096, .prefix_cache = "off"};
    proa_engine *plain = open_or_fail(*state, &off);
    for (size_t i = 0; i < PROA_COUNT(host); i++) {
        const proa_engine_options options = {.kv_tokens = 6 * 64, .prefix_host_memory = host[i]};
        proa_engine *engine = open_or_fail(*state, &options);
        assert_true(i == 0 || engine->host_cache.copy_ns > 0);
        set_costs(engine, copy_ns[i]);
        static int32_t ids[REQUESTS][PROMPT];
        outcome together[REQUESTS] = {{.done = false}};
        proa_request r[REQUESTS];
        proa_stats stats;
        for (int k = 0; k < REQUESTS; k++) {
            for (int n = 0; n < PROMPT; n++) ids[k][n] = 3 + (n * 7 + k * 50) % 150;
            r[k] = (proa_request){.ids = ids[k], .ids_count = PROMPT};
            r[k].options = (proa_options){.max_tokens = NEW, .ignore_eos = true, .logprobs = true};
            submit_or_fail(engine, r[k], &together[k]);
        }
        proa_engine_run(engine);
        proa_engine_stats(engine, &stats);
        assert_true(stats.preemptions > 0);
        assert_int_equal(stats.preemptions_moved, i == 1 ? stats.preemptions : 0);
        assert_int_equal(stats.preemptions_recomputed, i == 1 ? 0 : stats.preemptions);
        assert_true(i == 1 ? stats.resumed_tokens_host >= 64 : stats.resumed_tokens_host == 0);
        assert_true(stats.resumed_tokens_host <= stats.resumed_tokens);
        for (int k = 0; k < REQUESTS; k++) {
            outcome alone = {.done = false};
            run_request(plain, r[k], &alone);
            assert_same_outcome(&together[k], &alone, false);
            outcome_release(&alone), outcome_release(&together[k]);
        }
        proa_engine_close(engine);
    }
    proa_engine_close(plain);
}

/* ---- a folder ---- */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/proa-prefix-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* The same traffic with a folder too, which is smaller than what is to be kept; then by a second engine that begins
 * with its files, while the first one uses them. */
static void prefixes_outlive_the_engine(void **state)
{
    proa_engine_options options = {.kv_tokens = 16 * 64,
                                   .sequences_max = 5,
                                   .step_tokens = 300,
                                   .prefix_host_memory = "500K",
                                   .prefix_dir = dir,
                                   .prefix_dir_size = "3M"};
    alone_runs *plain = alone_open(*state);
    proa_engine *engine[2];
    proa_stats stats;
    proa_info info;
    for (int i = 0; i < 2; i++) {
        engine[i] = open_or_fail(*state, &options);
        proa_engine_info(engine[i], &info);
        assert_non_null(strstr(info.plan, "--prefix-dir-size"));
        play_rounds(engine[i], plain, 11, &info);
        if (i) play_rounds(engine[0], plain, 12, &info);
        proa_engine_stats(engine[i], &stats);
        assert_int_equal(stats.pages_used, 0);
        assert_true(stats.pages_dir > 0);
        if (i) assert_true(stats.prefix_hits_dir > 0);
        assert_true(stats.prefix_hits_host + stats.prefix_hits_dir <= stats.prefix_hits);
    }
    proa_engine_close(engine[0]);
    proa_engine_close(engine[1]);
    alone_close(plain);
}

/* A prompt of 200 tokens in an engine of its own: how many of them come from files. */
static int64_t tokens_from_files(const char *model, const proa_engine_options *options, const char *salt)
{
    proa_engine *engine = open_or_fail(model, options);
    int32_t ids[200];
    outcome o = {.done = false};
    proa_stats stats;
    for (int k = 0; k < 200; k++) ids[k] = 3 + k * 7 % 150;
    proa_request r = {.ids = ids, .ids_count = 200, .cache_salt = salt, .options = {.max_tokens = 2}};
    run_request(engine, r, &o);
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.prefix_hits, o.cached_tokens);
    assert_int_equal(stats.prefix_queries, 200);
    outcome_release(&o);
    proa_engine_close(engine);
    return (int64_t)stats.prefix_hits_dir;
}

/* Many pages turn idle at one time, more than may be on their way to the folder: all are written. */
static void all_pages_are_written(void **state)
{
    enum { PROMPTS = 12 };
    const proa_engine_options options = {.prefix_dir = dir, .kv_tokens = 8192, .sequences_max = PROMPTS};
    static int32_t ids[PROMPTS][200];
    proa_stats stats;
    for (int i = 0; i < 2; i++) {
        proa_engine *engine = open_or_fail(*state, &options);
        outcome o[PROMPTS] = {{.done = false}};
        for (int k = 0; k < PROMPTS; k++) {
            for (int t = 0; t < 200; t++) ids[k][t] = 3 + (t * 7 + k * 11) % 150;
            proa_request r = {.ids = ids[k], .ids_count = 200, .options = {.max_tokens = 2}};
            submit_or_fail(engine, r, &o[k]);
        }
        proa_engine_run(engine);
        proa_engine_stats(engine, &stats);
        assert_int_equal(stats.prefix_hits_dir, i ? PROMPTS * 192 : 0);
        assert_int_equal(stats.pages_dir, PROMPTS * 3);
        for (int k = 0; k < PROMPTS; k++) outcome_release(&o[k]);
        proa_engine_close(engine);
    }
}

static void files_are_apart(void **state)
{
    const proa_engine_options plain = {.prefix_dir = dir}, bf16 = {.prefix_dir = dir, .kv_dtype = "bf16"},
                              f16 = {.prefix_dir = dir, .dtype = "f16"},
                              off = {.prefix_dir = dir, .prefix_cache = "off"};
    const char *model = *state;
    assert_int_equal(tokens_from_files(model, &plain, NULL), 0);
    assert_int_equal(tokens_from_files(model, &plain, NULL), 192);
    assert_int_equal(tokens_from_files(model, &plain, "salt"), 0);
    assert_int_equal(tokens_from_files(model, &plain, "salt"), 192);
    assert_int_equal(tokens_from_files(model, &bf16, NULL), 0); /* other keys and values */
    assert_int_equal(tokens_from_files(model, &bf16, NULL), 192);
    assert_int_equal(tokens_from_files(model, &f16, NULL), 0);
    assert_int_equal(tokens_from_files(GOLDEN "arch/mistral", &plain, NULL), 0);
    assert_int_equal(tokens_from_files(model, &plain, NULL), 192);
    proa_engine_close(open_or_fail(model, &off));
}

/* All files are spoiled: none is used, every result is right, and the files are made anew. A page that is computed
 * before its file was read is written by a later engine only, since until then the file counts as good. */
static void spoiled_files_are_computed(void **state)
{
    enum { PAGES = 3 };
    const proa_engine_options options = {.prefix_dir = dir};
    int64_t tokens = 0;
    char command[160];
    assert_int_equal(tokens_from_files(*state, &options, NULL), 0);
    snprintf(command, sizeof command,
             "for f in %s/*.kv; do printf xyz | dd of=$f bs=1 seek=9000 conv=notrunc status=none; done", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(tokens_from_files(*state, &options, NULL), 0);
    for (int i = 0; i < PAGES && tokens < 192; i++) tokens = tokens_from_files(*state, &options, NULL);
    assert_int_equal(tokens, 192);
}

static void bad_folders(void **state)
{
    static const struct {
        const char *dir, *size, *text;
    } bad[] = {{NULL, "1G", "option 'prefix-dir-size' needs a 'prefix-dir'"},
               {dir, "much", "option 'prefix-dir-size' is 'much', must be bytes such as 512M or 16G"},
               {dir, "0", "option 'prefix-dir-size' is '0'"},
               {dir, "1K", "option 'prefix-dir-size' is 1024 bytes, one page of this model has"},
               {"/proc/nothing", NULL, "--prefix-dir '/proc/nothing'"},
               {"", NULL, "option 'prefix-dir' has 0 bytes"}};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_engine_options options = {.prefix_dir = bad[i].dir, .prefix_dir_size = bad[i].size};
        proa_engine *engine;
        proa_err err = {.status = PROA_OK};
        assert_int_not_equal(proa_engine_open(&engine, *state, &options, &err), PROA_OK);
        if (!strstr(err.text, bad[i].text)) fail_msg("'%s' has no '%s'", err.text, bad[i].text);
    }
}

static void bad_sizes(void **state)
{
    static const char *const bad[] = {"",  "-1", "4X", "4GB", " 4", "99999999999999999999", "9000000000G",
                                      "on"};
    static const char *const good[] = {"auto", "off", "0", "12345", "1k", "2M"};
    for (size_t i = 0; i < PROA_COUNT(bad) + PROA_COUNT(good); i++) {
        bool is_bad = i < PROA_COUNT(bad);
        proa_engine_options options = {.prefix_host_memory = is_bad ? bad[i] : good[i - PROA_COUNT(bad)]};
        proa_engine *engine = NULL;
        proa_err err = {.status = PROA_OK};
        assert_int_equal(proa_engine_open(&engine, *state, &options, &err), is_bad ? PROA_INVALID : PROA_OK);
        if (is_bad) assert_non_null(strstr(err.text, "option 'prefix-host-memory' is '"));
        proa_engine_close(engine);
    }
}

static void too_much_memory(void **state)
{
    const proa_engine_options options = {.prefix_host_memory = "100000G"};
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_engine_open(&engine, *state, &options, &err), PROA_NO_MEMORY);
    assert_non_null(strstr(err.text, "(--prefix-host-memory)"));
}

#define IN_DIR(test, model)                                                                                  \
    {                                                                                                        \
#test " " model, test, make_dir, remove_dir, (void *)(uintptr_t)(GOLDEN "arch/" model)               \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {ON(evicted_prefixes_come_back, "llama3"),
                                       ON(evicted_prefixes_come_back, "gemma2"),
                                       ON(evicted_prefixes_come_back, "t5"),
                                       ON(hits_are_counted_by_level, "llama3"),
                                       ON(preempted_requests_come_back, "llama3"),
                                       ON(preempted_requests_come_back, "gemma2"),
                                       IN_DIR(prefixes_outlive_the_engine, "llama3"),
                                       IN_DIR(prefixes_outlive_the_engine, "t5"),
                                       IN_DIR(all_pages_are_written, "llama3"),
                                       IN_DIR(files_are_apart, "llama3"),
                                       IN_DIR(spoiled_files_are_computed, "llama3"),
                                       IN_DIR(bad_folders, "llama3"),
                                       ON(bad_sizes, "llama3"),
                                       ON(too_much_memory, "llama3")};
    return cmocka_run_group_tests_name("prefix_levels", tests, NULL, NULL);
}
