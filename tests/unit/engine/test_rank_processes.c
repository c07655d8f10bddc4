/* SPDX-License-Identifier: Apache-2.0
 * test_rank_processes.c - ranks that are processes give what threads give; a group that loses one, or cannot begin,
 * ends with one message and leaves nothing behind. PROA_RANK_PROGRAM names the program. */
#include "engine_test.h"

#include "base/clock.h"
#include "engine/access.h"
#include "engine/ranks/greeting.h"
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUESTS = 6, TOKENS = 16, LONG = 12 };

/* Two GPUs are enough. */
static int32_t ranks_most(void)
{
    return getenv("PROA_TEST_DEVICE") ? 2 : 3;
}

static proa_engine *open_parts(int32_t tensors, int32_t stages, const char *kind)
{
    return open_or_fail(STORIES, &(proa_engine_options){.dtype = "f32",
                                                        .tensor_parallel = tensors,
                                                        .pipeline_parallel = stages,
                                                        .threads = tensors * stages,
                                                        .ranks = kind,
                                                        .kv_tokens = 4096});
}

static proa_engine *open_ranks(int32_t ranks, const char *kind)
{
    return open_parts(ranks, 1, kind);
}

/* Greedy, sampled and beam requests with a shared beginning: pages are shared, and copied when they are written. */
static void run_all(proa_engine *engine, outcome *out)
{
    static const int32_t prompt[] = {11, 57, 230, 8, 99, 41, 5, 17};
    for (int i = 0; i < REQUESTS; i++) {
        proa_options o = {.max_tokens = TOKENS, .ignore_eos = true, .logprobs = i % 3 != 2};
        if (i % 3 == 1) o.temperature = 0.8F, o.top_k = 20, o.seed = (uint64_t)(i + 1);
        if (i % 3 == 2) o.beams = 3;
        out[i] = (outcome){0};
        submit_or_fail(engine, (proa_request){.ids = prompt, .ids_count = 3 + i % 5, .options = o}, &out[i]);
    }
    proa_engine_run(engine);
}

static void compare(const outcome *a, const outcome *b)
{
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(a[i].finish, PROA_FINISH_LENGTH);
        assert_int_equal(b[i].finish, PROA_FINISH_LENGTH);
        if (i % 3 == 2) {
            assert_int_equal(a[i].beam_count[0], b[i].beam_count[0]);
            assert_memory_equal(a[i].beam_ids[0], b[i].beam_ids[0], (size_t)a[i].beam_count[0] * sizeof(int32_t));
            continue;
        }
        assert_memory_equal(a[i].ids, b[i].ids, TOKENS * sizeof(int32_t));
        /* the same sums in the same order */
        assert_memory_equal(a[i].logprobs, b[i].logprobs, TOKENS * sizeof(float));
    }
}

static void test_as_threads(void **state)
{
    PROA_UNUSED(state);
    for (int32_t ranks = 2; ranks <= ranks_most(); ranks++) {
        outcome threads[REQUESTS], processes[REQUESTS];
        proa_engine *engine = open_ranks(ranks, "thread");
        run_all(engine, threads);
        proa_engine_close(engine);
        engine = open_ranks(ranks, "process");
        run_all(engine, processes);
        proa_engine_close(engine);
        compare(threads, processes);
        for (int i = 0; i < REQUESTS; i++) outcome_release(&threads[i]), outcome_release(&processes[i]);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
    }
}

/* A rank plans the same passes as rank 0, also those of encoders, which are wider on GPUs. */
static void test_open_message(void **state)
{
    PROA_UNUSED(state);
    proa_rank_message message = {.bytes = NULL};
    proa_rank_open sent = {.path = STORIES, .device = "cpu", .threads = 3, .node = -1, .wait_ms = 500};
    proa_rank_open got = {.path = NULL};
    sent.model = (proa_model_options){.dtype = "f32",
                                      .quant = "none",
                                      .kv_dtype = "auto",
                                      .rows_max = 11,
                                      .encoder_rows = 22,
                                      .head_rows = 33,
                                      .sampled_rows = 44,
                                      .device_head_rows = 55,
                                      .rank = 1,
                                      .ranks = 2};
    proa_rank_message_write(&message);
    proa_rank_open_message(&message, &sent);
    proa_rank_message received = {.bytes = NULL};
    proa_rank_message_read_shared(&received, &message);
    proa_rank_open_message(&received, &got);
    assert_false(received.broken);
    assert_string_equal(got.path, sent.path);
    assert_int_equal(got.model.rows_max, 11);
    assert_int_equal(got.model.encoder_rows, 22);
    assert_int_equal(got.model.head_rows, 33);
    assert_int_equal(got.model.sampled_rows, 44);
    assert_int_equal(got.model.device_head_rows, 55);
    proa_rank_message_release(&received);
    proa_rank_message_release(&message);
}

/* ---- failures ---- */

static int64_t now_ms(void)
{
    return proa_clock_ns() / 1000000;
}

/* The child processes of this one, whichever of its threads has started them; at most 4. */
static int find_children(pid_t out[4])
{
    char path[300], line[512];
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/children", task->d_name);
        FILE *f = task->d_name[0] != '.' ? fopen(path, "re") : NULL;
        if (f && fgets(line, sizeof line, f))
            for (char *at = line, *end; count < 4; at = end) {
                long pid = strtol(at, &end, 10);
                if (end == at) break;
                out[count++] = (pid_t)pid;
            }
        if (f) fclose(f);
    }
    closedir(tasks);
    return count;
}

/* Names of files in a folder that contain a text. */
static int count_names(const char *dir, const char *text)
{
    int count = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) count += strstr(e->d_name, text) != NULL;
    if (d) closedir(d);
    return count;
}

static void submit_long(proa_engine *engine, outcome *out)
{
    static const int32_t prompt[] = {11, 57, 230, 8};
    proa_options o = {.max_tokens = 4000, .ignore_eos = true};
    *out = (outcome){0};
    submit_or_fail(engine, (proa_request){.ids = prompt, .ids_count = 4, .options = o}, out);
}

/* A rank gets a signal while requests run, in stages some steps of them: they end in time, with the rank and what has
 * happened to it; then the ranks are restarted, and give the same tokens as before. */
static void check_signal(int32_t stages, int signal_number, const char *text)
{
    outcome before[REQUESTS], after[REQUESTS], lost[LONG];
    pid_t children[4];
    proa_engine *engine = open_parts(2 / stages, stages, "process");
    run_all(engine, before);
    assert_int_equal(find_children(children), 1);
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    for (int i = 0; i < LONG; i++) submit_long(engine, &lost[i]);
    usleep(50000);
    int64_t begin = now_ms();
    assert_int_equal(kill(children[0], signal_number), 0);
    for (int i = 0; i < LONG; i++) {
        while (!lost[i].done && now_ms() - begin < 60000) usleep(10000);
        assert_true(lost[i].done);
        assert_int_equal(lost[i].finish, PROA_FINISH_ERROR);
        if (!strstr(lost[i].error, "rank 1 (process ") || !strstr(lost[i].error, text))
            fail_msg("'%s' lacks '%s'", lost[i].error, text);
        outcome_release(&lost[i]);
    }
    proa_err why = {.status = PROA_OK};
    for (begin = now_ms(); proa_engine_ready(engine, &why) != PROA_OK && now_ms() - begin < 60000;)
        usleep(10000);
    assert_int_equal(proa_engine_ready(engine, NULL), PROA_OK);
    proa_engine_stop(engine);
    run_all(engine, after);
    compare(before, after);
    proa_stats stats;
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.rank_restarts, 1);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(engine);
    for (int i = 0; i < REQUESTS; i++) outcome_release(&before[i]), outcome_release(&after[i]);
    assert_int_equal(find_children(children), 0);
    assert_int_equal(count_names("/dev/shm", "proa-ranks"), 0);
}

static void run_adapted(proa_engine *engine, outcome *out)
{
    static const int32_t prompt[] = {11, 57, 23, 8, 91};
    proa_options o = {.max_tokens = 16, .ignore_eos = true, .adapter = "a"};
    *out = (outcome){0};
    submit_or_fail(engine, (proa_request){.ids = prompt, .ids_count = 5, .options = o}, out);
}

/* A restarted rank gets the adapters again that were in its slots, and the keys and values of a prompt table. */
static void test_adapter_after_restart(void **state)
{
    const proa_adapter_source a = {"a", *state};
    proa_engine_options options = {
        .dtype = "f32", .tensor_parallel = 2, .threads = 2, .adapters = &a, .adapters_count = 1};
    proa_engine *engine = open_or_fail(GOLDEN "arch/llama", &options);
    outcome threads, before, after;
    pid_t children[4];
    run_adapted(engine, &threads);
    proa_engine_run(engine);
    proa_engine_close(engine);
    options.ranks = "process";
    engine = open_or_fail(GOLDEN "arch/llama", &options);
    run_adapted(engine, &before);
    proa_engine_run(engine);
    assert_int_equal(before.finish, PROA_FINISH_LENGTH);
    assert_int_equal(find_children(children), 1);
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    assert_int_equal(kill(children[0], SIGKILL), 0);
    int64_t begin = now_ms();
    while (proa_engine_ready(engine, NULL) == PROA_OK && now_ms() - begin < 60000) usleep(1000);
    assert_int_not_equal(proa_engine_ready(engine, NULL), PROA_OK);
    while (proa_engine_ready(engine, NULL) != PROA_OK && now_ms() - begin < 60000) usleep(1000);
    proa_engine_stop(engine);
    run_adapted(engine, &after);
    proa_engine_run(engine);
    assert_int_equal(after.finish, PROA_FINISH_LENGTH);
    assert_int_equal(threads.count, before.count);
    assert_memory_equal(before.ids, threads.ids, (size_t)before.count * sizeof *before.ids);
    assert_memory_equal(before.ids, after.ids, (size_t)before.count * sizeof *before.ids);
    outcome_release(&threads), outcome_release(&before), outcome_release(&after);
    proa_engine_close(engine);
}

/* Without a device ranks that share each layer, too. */
static int32_t stages_least(void)
{
    return getenv("PROA_TEST_DEVICE") ? 2 : 1;
}

static void test_killed(void **state)
{
    PROA_UNUSED(state);
    for (int32_t stages = stages_least(); stages <= 2; stages++)
        check_signal(stages, SIGKILL, "was killed by signal 9");
}

static void test_stopped(void **state)
{
    PROA_UNUSED(state);
    for (int32_t stages = stages_least(); stages <= 2; stages++)
        check_signal(stages, SIGSTOP, "has not answered for");
}

static void wait_for_tokens(proa_engine *engine, uint64_t tokens)
{
    proa_stats stats = {.new_tokens = 0};
    for (int64_t begin = now_ms(); stats.new_tokens < tokens && now_ms() - begin < 60000; usleep(1000))
        proa_engine_stats(engine, &stats);
    assert_true(stats.new_tokens >= tokens);
}

static void wait_until_done(const outcome *out, int count)
{
    int64_t begin = now_ms();
    for (int i = 0; i < count; i++) {
        while (!out[i].done && now_ms() - begin < 60000) usleep(1000);
        assert_true(out[i].done);
        assert_int_equal(out[i].finish, PROA_FINISH_ERROR);
    }
}

/* Tokens that differ from step to step. */
static void submit_drawn(proa_engine *engine, int seed, int32_t tokens, outcome *out)
{
    static const int32_t prompt[] = {11, 57, 230, 8};
    proa_options o = {.max_tokens = tokens, .ignore_eos = true, .temperature = 2, .seed = (uint64_t)seed + 1};
    *out = (outcome){0};
    submit_or_fail(engine, (proa_request){.ids = prompt, .ids_count = 4, .options = o}, out);
}

/* Nothing that a GPU of the last stage has after a failure reaches a client, also not of steps that are in flight. */
static void test_failed_gpu(void **state)
{
    PROA_UNUSED(state);
    char file[] = "/tmp/proa-failed-XXXXXX";
    outcome lost[LONG], whole[LONG];
    if (!getenv("PROA_TEST_DEVICE")) skip();
    int fd = mkstemp(file);
    assert_int_equal(close(fd) | unlink(file), 0);
    setenv("FAKE_GPU_FAILS", file, 1);
    proa_engine *engine = open_parts(1, 2, "process");
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    for (int i = 0; i < LONG; i++) submit_drawn(engine, i, 300, &lost[i]);
    wait_for_tokens(engine, 2 * LONG);
    fclose(fopen(file, "we"));
    wait_until_done(lost, LONG);
    unlink(file);
    unsetenv("FAKE_GPU_FAILS");
    proa_engine_close(engine);
    engine = open_parts(1, 2, "process");
    for (int i = 0; i < LONG; i++) submit_drawn(engine, i, (int32_t)lost[i].count + 1, &whole[i]);
    proa_engine_run(engine);
    for (int i = 0; i < LONG; i++) {
        assert_memory_equal(lost[i].ids, whole[i].ids, (size_t)lost[i].count * sizeof(int32_t));
        outcome_release(&lost[i]), outcome_release(&whole[i]);
    }
    proa_engine_close(engine);
}

/* A GPU that hangs without an error, or the thread of a rank between two calls, in a process that sends heartbeats: the
 * requests end in time, and the ranks are restarted. state: the variable of the fake GPU that does it. */
static void test_silent_rank(void **state)
{
    const char *variable = *state;
    char file[] = "/tmp/proa-hangs-XXXXXX";
    enum { FEW = 2 }; /* a step of fake GPUs must be shorter than the limit on a busy machine, too */
    outcome lost[FEW];
    if (!getenv("PROA_TEST_DEVICE")) skip();
    int fd = mkstemp(file);
    assert_int_equal(close(fd) | unlink(file), 0);
    setenv(variable, file, 1);
    setenv("PROA_COLLECTIVES_WAIT", "4", 1);
    proa_engine *engine = open_parts(1, 2, "process");
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    for (int i = 0; i < FEW; i++) submit_drawn(engine, i, 4000, &lost[i]);
    wait_for_tokens(engine, 2 * FEW);
    fclose(fopen(file, "we"));
    int64_t begin = now_ms();
    wait_until_done(lost, FEW);
    assert_true(now_ms() - begin < 60000);
    unlink(file);
    for (int i = 0; i < FEW; i++) {
        assert_non_null(strstr(lost[i].error, "the GPUs of the ranks do not reach each other any more"));
        outcome_release(&lost[i]);
    }
    while (proa_engine_ready(engine, NULL) != PROA_OK && now_ms() - begin < 60000) usleep(10000);
    assert_int_equal(proa_engine_ready(engine, NULL), PROA_OK);
    unsetenv(variable);
    unsetenv("PROA_COLLECTIVES_WAIT");
    proa_engine_close(engine);
}

static void wait_until_ready(proa_engine *engine)
{
    int64_t begin = now_ms();
    while (proa_engine_ready(engine, NULL) != PROA_OK && now_ms() - begin < 60000) usleep(10000);
    assert_int_equal(proa_engine_ready(engine, NULL), PROA_OK);
}

/* Kills a rank of an idle engine, waits until that is noticed, and returns what a request is told then. */
static proa_status submit_after_kill(proa_engine *engine, int32_t ranks)
{
    static const int32_t prompt[] = {11, 57};
    pid_t children[4];
    outcome out = {0};
    proa_err why = {.status = PROA_OK};
    proa_request request = {
        .ids = prompt, .ids_count = 2, .options.max_tokens = 1, .on_event = collect, .arg = &out};
    assert_int_equal(find_children(children), ranks - 1);
    kill(children[ranks - 2], SIGKILL);
    int64_t begin = now_ms();
    while (proa_engine_ready(engine, &why) == PROA_OK && now_ms() - begin < 60000) usleep(1000);
    assert_non_null(strstr(why.text, "was killed by signal 9"));
    proa_status status = proa_engine_submit(engine, &request, NULL, NULL);
    wait_until_ready(engine);
    for (begin = now_ms(); status == PROA_OK && !out.done && now_ms() - begin < 60000;) usleep(1000);
    assert_true(status != PROA_OK || out.done);
    outcome_release(&out);
    return status;
}

/* While it is idle, a failure is noticed too, and requests are refused until the ranks work again. On a busy machine
 * they may do so before this thread goes on; each restart then waits longer. */
static void test_killed_while_idle(void **state)
{
    PROA_UNUSED(state);
    enum { ATTEMPTS = 5 };
    pid_t children[4];
    int32_t ranks = ranks_most();
    proa_engine *engine = open_ranks(ranks, "process");
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    proa_status status = PROA_OK;
    for (int i = 0; i < ATTEMPTS && status == PROA_OK; i++) status = submit_after_kill(engine, ranks);
    assert_int_equal(status, PROA_UNAVAILABLE);
    proa_engine_close(engine);
    assert_int_equal(find_children(children), 0);
}

static void expect_refusal(const char *program, const char *model, const char *text)
{
    char usual[4096];
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    proa_engine_options o = {.tensor_parallel = 2, .threads = 2, .ranks = "process"};
    snprintf(usual, sizeof usual, "%s", getenv("PROA_RANK_PROGRAM"));
    setenv("PROA_RANK_PROGRAM", program, 1);
    assert_int_not_equal(proa_engine_open(&engine, model, &o, &err), PROA_OK);
    setenv("PROA_RANK_PROGRAM", usual, 1);
    if (!strstr(err.text, text)) fail_msg("'%s' lacks '%s'", err.text, text);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void run_shell(const char *command)
{
    if (system(command) != 0) fail_msg("%s", command);
}

/* Ranks that are another build, have other files of the model, or are no ranks at all. The other build is the program
 * with another version in its bytes; other files are in the folder where a script starts it. */
static void test_strangers(void **state)
{
    PROA_UNUSED(state);
    char dir[] = "/tmp/proa-ranks-XXXXXX", path[64], command[8192];
    const char *real = getenv("PROA_RANK_PROGRAM");
    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command,
             "cd %s && LC_ALL=C sed 's/" PROA_VERSION
             "/9.9.9/g' %s > other && chmod +x other && mkdir here there && "
             "cp -rL " STORIES " here/model && cp -rL " STORIES " there/model && "
             "blocks=$(($(stat -c %%s there/model/model.safetensors) / 65536)) && "
             "dd if=/dev/zero of=there/model/model.safetensors bs=64K seek=4 count=$((blocks - 4)) "
             "conv=notrunc status=none && "
             "printf '#!/bin/sh\\ncd %s/there && exec %s \"$@\"\\n' > elsewhere && chmod +x elsewhere",
             dir, real, dir, real);
    run_shell(command);
    snprintf(path, sizeof path, "%s/other", dir);
    expect_refusal(path, STORIES, "rank 1 is proa 9.9.9 (");
    snprintf(path, sizeof path, "%s/here", dir);
    assert_int_equal(chdir(path), 0);
    snprintf(path, sizeof path, "%s/elsewhere", dir);
    expect_refusal(path, "model", "rank 1 has other files of the model than rank 0");
    assert_int_equal(chdir("/"), 0);
    expect_refusal("/bin/false", STORIES, "rank 1 (process ");
    expect_refusal("/nowhere/proa", STORIES, "cannot start '/nowhere/proa rank'");
    snprintf(command, sizeof command, "rm -r %s", dir);
    run_shell(command);
}

int main(void)
{
    static char hangs[] = "FAKE_GPU_HANGS", freezes[] = "FAKE_GPU_FREEZES";
    static char adapter[] = GOLDEN "adapters/llama/a", table[] = GOLDEN "prompt_tables/llama/prefix";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_message),
        cmocka_unit_test(test_as_threads),
        cmocka_unit_test(test_killed),
        {"test_adapter_after_restart", test_adapter_after_restart, NULL, NULL, adapter},
        {"test_prompt_table_after_restart", test_adapter_after_restart, NULL, NULL, table},
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_failed_gpu),
        {"test_silent_gpu", test_silent_rank, NULL, NULL, hangs},
        {"test_frozen_thread", test_silent_rank, NULL, NULL, freezes},
        cmocka_unit_test(test_killed_while_idle),
        cmocka_unit_test(test_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
