/* SPDX-License-Identifier: Apache-2.0
 * test_rank_processes.c - ranks that are processes give what threads give; a group that loses one, or cannot begin,
 * ends with one message and leaves nothing behind. PROA_RANK_PROGRAM names the program. */
#include "engine_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL PROA_SOURCE_DIR "/models/classics-10m"

enum { REQUESTS = 6, TOKENS = 16 };

static proa_engine *open_ranks(int32_t ranks, const char *kind)
{
    return open_or_fail(
        MODEL, &(proa_engine_options){
                   .dtype = "f32", .tensor_parallel = ranks, .threads = ranks, .ranks = kind, .kv_tokens = 4096});
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
    for (int32_t ranks = 2; ranks <= 3; ranks++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
