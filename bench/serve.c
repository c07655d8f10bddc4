/* SPDX-License-Identifier: Apache-2.0
 * serve.c - bench-serve: what a request costs inside the server core: identity, 16 floats, found, checked, queued,
 * executed and answered on the caller's thread; then with more threads, each with one request at a time. Prints ns a
 * request. Not a test. */
#include "backends/backends.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "serve/server.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define REQUESTS 2000000

static proa_server *server;
static char body[64];

static void on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    atomic_fetch_add_explicit((atomic_llong *)r->user, 1, memory_order_release);
    proa_reply_free(reply);
    if (final) proa_infer_drop(r);
}

static void free_nothing(void *arg)
{
    (void)arg;
}

static bool one(atomic_llong *answered)
{
    proa_infer *r = proa_infer_new();
    proa_tensor *t = proa_infer_add_input(r, (proa_str){"INPUT0", 6});
    r->model_name = "identity_fp32";
    r->on_reply = on_reply;
    r->user = answered;
    t->type = PROA_TYPE_FP32;
    t->rank = 2;
    t->shape[0] = 1;
    t->shape[1] = 16;
    t->buffer = proa_buffer_wrap(body, sizeof body, free_nothing, NULL);
    t->data = body;
    t->bytes = sizeof body;
    proa_err err = {0};
    if (proa_server_infer(server, r, &err) == PROA_OK) return true;
    fprintf(stderr, "%s\n", err.text);
    proa_infer_drop(r);
    return false;
}

static void *run(void *arg)
{
    atomic_llong *answered = arg;
    for (int64_t i = 0; i < REQUESTS; i++) {
        if (!one(answered)) break;
        while (atomic_load_explicit(answered, memory_order_acquire) <= i)
            sched_yield(); /* another thread has it */
    }
    return NULL;
}

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void measure(int threads)
{
    pthread_t id[16];
    atomic_llong answered[16] = {0};
    int64_t sum = 0;
    uint64_t mallocs = proa_alloc_count();
    int64_t begin = proa_clock_ns(), cpu = cpu_ns();
    for (int i = 1; i < threads; i++)
        if (pthread_create(&id[i], NULL, run, &answered[i]) != 0) return;
    run(&answered[0]);
    for (int i = 1; i < threads; i++) pthread_join(id[i], NULL);
    int64_t ns = proa_clock_ns() - begin;
    cpu = cpu_ns() - cpu;
    for (int i = 0; i < threads; i++) sum += answered[i];
    if (!sum) return;
    printf("threads %d: %.0f ns a request, %.0f ns of the processor, %.2f million a second, %.4f allocations "
           "a request\n",
           threads, (double)ns * threads / (double)sum, (double)cpu / (double)sum,
           (double)sum * 1e3 / (double)ns, (double)(proa_alloc_count() - mallocs) / (double)sum);
}

int main(int argc, char **argv)
{
    const char *const folders[] = {argc > 1 ? argv[1] : "tests/repository"}, *const names[] = {
                                                                                 "identity_fp32"};
    proa_server_options o = {.repositories = folders,
                             .repositories_count = 1,
                             .backends = proa_backends,
                             .control = PROA_CONTROL_EXPLICIT,
                             .load_models = names,
                             .load_models_count = 1};
    proa_err err = {0};
    if (proa_server_new(&server, &o, &err) != PROA_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    measure(1);
    measure(1);
    measure(2);
    measure(4);
    bool stopped = proa_server_stop(server, 10000);
    proa_server_free(server);
    return !stopped;
}
