/* SPDX-License-Identifier: Apache-2.0
 * test_isolate.c - isolated backends in a server: example backends run in processes of this very program, which are
 * killed in the middle of requests and between them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backends.h"
#include "backends/isolate/isolate.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/server.h"
#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static proa_arena arena;
static proa_server *server;

static void write_model(const char *name, const char *config)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/%s/1", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/%s/config.pbtxt", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
}

static int open_server(void **state)
{
    static const char *const isolated[] = {"identity", "repeat", "add_sub"};
    static const char *const paths[] = {folder};
    const proa_isolate_policy policy = {.isolated = isolated, .isolated_count = 3};
    const proa_log_settings quiet = {.error = false};
    proa_err err = {0};
    proa_server_options o = {
        .repositories = paths, .repositories_count = 1, .exit_on_error = true, .no_gpu_metrics = true};
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/proa-isolate-XXXXXX");
    if (!mkdtemp(folder) || proa_log_set(&quiet, &err) != PROA_OK) return -1;
    write_model("copies", "backend: \"identity\"\ninstance_group { count: 2 }\n"
                          "input { name: \"INPUT0\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
                          "output { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [ -1 ] }\n");
    write_model(
        "slow",
        "backend: \"identity\"\nparameters { key: \"execute_delay_ms\" value { string_value: \"3000\" } }\n"
        "input { name: \"INPUT0\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
        "output { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [ -1 ] }\n");
    proa_arena_init(&arena);
    if (proa_isolate_configure(&o.backends, &policy, &arena, &err) != PROA_OK) return -1;
    if (proa_server_new(&server, &o, &err) == PROA_OK) return 0;
    fprintf(stderr, "%s\n", err.text);
    return -1;
}

static int close_server(void **state)
{
    char command[128];
    (void)state;
    bool stopped = proa_server_stop(server, 30000);
    proa_server_free(server);
    proa_arena_release(&arena);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return stopped && system(command) == 0 ? 0 : -1; /* NOLINT(concurrency-mt-unsafe): no thread is left */
}

/* ---- requests ---- */

typedef struct answer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    proa_reply *reply;
    bool ended;
} answer;

static void on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    answer *a = r->user;
    pthread_mutex_lock(&a->lock);
    if (reply) proa_reply_free(a->reply), a->reply = reply;
    a->ended = final;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void answer_init(answer *a)
{
    *a = (answer){.reply = NULL};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
}

static void answer_wait(answer *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->ended) pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

static void answer_release(answer *a)
{
    proa_reply_free(a->reply);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
}

/* Sends COUNT numbers from `first` on; a->reply has the answer at the end. */
static proa_infer *send_numbers(answer *a, const char *model, int32_t first, int32_t count)
{
    proa_err err = {0};
    proa_infer *r = proa_infer_new();
    answer_init(a);
    r->model_name = model;
    r->id = "seven";
    r->on_reply = on_reply;
    r->user = a;
    proa_tensor *t = proa_infer_add_input(r, proa_str_c("INPUT0"));
    t->type = PROA_TYPE_INT32, t->rank = 1, t->shape[0] = count, t->bytes = (size_t)count * sizeof first;
    t->buffer = t->bytes ? proa_buffer_new(t->bytes) : NULL;
    t->data = t->buffer ? t->buffer->data : NULL;
    for (int32_t i = 0; i < count; i++) ((int32_t *)(void *)t->buffer->data)[i] = first + i;
    proa_infer_param *p = proa_infer_add_param(r, proa_str_c("weight"));
    p->kind = PROA_PARAM_DOUBLE, p->d = 3;
    if (proa_server_infer(server, r, &err) != PROA_OK) fail_msg("%s", err.text);
    return r;
}

static void expect_numbers(const answer *a, int32_t first, int32_t count)
{
    assert_non_null(a->reply);
    if (a->reply->error.status != PROA_OK) fail_msg("%s", a->reply->error.text);
    const proa_tensor *t = proa_reply_output(a->reply, "OUTPUT0");
    assert_non_null(t);
    assert_int_equal(t->shape[0], count);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(((const int32_t *)(const void *)t->data)[i], first + i);
}

static void expect_copy(const char *model, int32_t first, int32_t count)
{
    answer a;
    proa_infer *r = send_numbers(&a, model, first, count);
    answer_wait(&a);
    expect_numbers(&a, first, count);
    answer_release(&a);
    proa_infer_drop(r);
}

/* ---- processes ---- */

/* The process of an instance by its name; 0: there is none. */
static pid_t find_process(const char *instance)
{
    char path[300], words[256];
    pid_t found = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (const struct dirent *d; (d = readdir(proc)) && !found;) {
        snprintf(path, sizeof path, "/proc/%s/cmdline", d->d_name);
        FILE *f = d->d_name[0] >= '1' && d->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (!f) continue;
        size_t len = fread(words, 1, sizeof words - 1, f);
        fclose(f);
        char own[32], *end = words + len;
        snprintf(own, sizeof own, "%d", (int)getpid());
        const char *word[5] = {"", "", "", "", ""};
        int n = 0;
        for (char *at = words; at < end && n < 5; at += strlen(at) + 1) word[n++] = at, *end = 0;
        if (strcmp(word[1], "backend-host") == 0 && strcmp(word[2], own) == 0 && strcmp(word[4], instance) == 0)
            found = (pid_t)atoi(d->d_name);
    }
    closedir(proc);
    return found;
}

static void wait_ready(const char *model)
{
    proa_err err = {0};
    int64_t until = proa_clock_ns() + (int64_t)60 * 1000000000;
    while (proa_server_model_ready(server, model, -1, &err) != PROA_OK && proa_clock_ns() < until) {
        proa_err_clear(&err);
        usleep(10000);
    }
    assert_int_equal(err.status, PROA_OK);
}

/* ---- tests ---- */

static void test_answers(void **state)
{
    (void)state;
    expect_copy("copies", 5, 3);
    expect_copy("copies", 0, 0);
    expect_copy("copies", -7, 1 << 20);
}

static void test_many_at_once(void **state)
{
    enum { COUNT = 200 };
    static answer answers[COUNT];
    proa_infer *requests[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++) requests[i] = send_numbers(&answers[i], "copies", i, 1 + i % 50);
    for (int i = 0; i < COUNT; i++) {
        answer_wait(&answers[i]);
        expect_numbers(&answers[i], i, 1 + i % 50);
        answer_release(&answers[i]);
        proa_infer_drop(requests[i]);
    }
}

static void test_killed_in_a_request(void **state)
{
    answer a;
    proa_err err = {0};
    (void)state;
    proa_infer *r = send_numbers(&a, "slow", 1, 2);
    usleep(200000);
    pid_t pid = find_process("slow_0");
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    answer_wait(&a);
    assert_int_equal(a.reply->error.status, PROA_INTERNAL);
    assert_string_equal(a.reply->error.text,
                        "Backend process 'slow_0' is not healthy. It was killed by signal 9 (Killed)");
    assert_int_not_equal(proa_server_model_ready(server, "slow", -1, &err), PROA_OK);
    expect_copy("copies", 3, 3);
    answer_release(&a);
    proa_infer_drop(r);
    wait_ready("slow");
    assert_true(find_process("slow_0") > 0 && find_process("slow_0") != pid);
}

/* Each request that was not in the process that died is answered by the other instance, or after the restart. */
static void test_killed_between_requests(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        pid_t pid = find_process(i % 2 ? "copies_0" : "copies_1");
        if (pid > 0) assert_int_equal(kill(pid, SIGKILL), 0);
        usleep(100000); /* it is seen */
        for (int k = 0; k < 10; k++) expect_copy("copies", k, 100);
    }
    wait_ready("copies");
}

static void test_cancelled(void **state)
{
    answer a;
    (void)state;
    proa_infer *r = send_numbers(&a, "slow", 1, 2);
    usleep(100000);
    int64_t begin = proa_clock_ns();
    proa_infer_cancel(r);
    answer_wait(&a);
    assert_int_equal(a.reply->error.status, PROA_CANCELLED);
    assert_true(proa_clock_ns() - begin < (int64_t)2500 * 1000000);
    answer_release(&a);
    proa_infer_drop(r);
}

static void test_policies_that_are_refused(void **state)
{
    static const char *const python[] = {"python"}, *const identity[] = {"identity"};
    const proa_isolate_policy unable = {.isolated = python, .isolated_count = 1};
    const proa_isolate_policy both = {
        .isolated = identity, .isolated_count = 1, .in_process = identity, .in_process_count = 1};
    const proa_backend *const *backends;
    proa_err err = {0};
    (void)state;
    assert_int_equal(proa_isolate_configure(&backends, &unable, &arena, &err), PROA_INVALID);
    assert_string_equal(err.text, "--isolate python: this backend cannot run in a process of its own");
    proa_err_clear(&err);
    assert_int_equal(proa_isolate_configure(&backends, &both, &arena, &err), PROA_INVALID);
    assert_string_equal(err.text, "--isolate identity contradicts --in-process identity");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_killed_in_a_request),
        cmocka_unit_test(test_killed_between_requests),
        cmocka_unit_test(test_policies_that_are_refused),
    };
    if (argc > 1 && strcmp(argv[1], "backend-host") == 0) return proa_isolate_host(argc - 2, argv + 2);
    return cmocka_run_group_tests(tests, open_server, close_server);
}
