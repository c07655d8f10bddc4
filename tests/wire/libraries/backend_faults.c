/* SPDX-License-Identifier: Apache-2.0
 * backend_faults.c - a backend that copies INPUT to OUTPUT, unless the request's parameter `do` asks for a fault:
 *     crash, abort, exit   the process ends
 *     hang                 execute does not return; unless the request is cancelled
 *     hold                 as a copy, when another request asks for `release`
 *     meet                 as a copy, when three executions are here at the same time; an error after 5 s
 *     orphan               as a copy, but model_close then never returns
 *     region               as a copy, and the file /dev/shm/backend_faults_PID of the process is mapped
 * Those that stay write a line to the log when they have begun. The model's parameter `open` does the same while the
 * model loads. */
#include "proa/backend.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const proa_backend_host *host;
static bool never_closes;
static void *region;
static atomic_int met;
static atomic_bool released;

static void map_region(void)
{
    char name[64];
    snprintf(name, sizeof name, "/backend_faults_%d", (int)getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) return;
    region = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
}

static void do_fault(const char *what)
{
    if (strcmp(what, "region") == 0) map_region();
    if (strcmp(what, "crash") == 0) raise(SIGSEGV);
    if (strcmp(what, "abort") == 0) abort();
    if (strcmp(what, "exit") == 0) _exit(3);
    if (strcmp(what, "orphan") == 0) never_closes = true;
}

static proa_status model_open(void **state, proa_backend_model *model, proa_err *err)
{
    const char *what = host->model_parameter(model, "open");
    *state = model;
    if (what && strcmp(what, "fail") == 0)
        return host->fail(err, PROA_INVALID, "the model does not want to open");
    if (what) do_fault(what);
    host->log(PROA_BACKEND_LOG_INFO, __FILE__, __LINE__, "the model of faults is open");
    return PROA_OK;
}

static void model_close(void *state)
{
    (void)state;
    while (never_closes) sleep(1);
}

static const char *fault_of(const proa_backend_request *request)
{
    proa_backend_parameter p;
    for (int32_t i = 0; host->request_parameter(request, i, &p); i++)
        if (strcmp(p.name, "do") == 0 && p.kind == PROA_BACKEND_PARAMETER_TEXT) return p.value.text;
    return "";
}

/* Three at a time; false: the others did not come. */
static bool meet(void)
{
    int others = 3 * (atomic_fetch_add(&met, 1) / 3 + 1);
    for (int i = 0; i < 1000 && atomic_load(&met) < others; i++) usleep(5000);
    return atomic_load(&met) >= others;
}

/* Stays in execute if that is wanted. */
static void stay(proa_backend_request *request, const char *what)
{
    bool hangs = strcmp(what, "hang") == 0, holds = strcmp(what, "hold") == 0;
    if (strcmp(what, "release") == 0) atomic_store(&released, true);
    if (hangs) host->log(PROA_BACKEND_LOG_INFO, __FILE__, __LINE__, "an execution hangs");
    if (holds) host->log(PROA_BACKEND_LOG_INFO, __FILE__, __LINE__, "an execution holds");
    while ((hangs || (holds && !atomic_load(&released))) && !host->request_cancelled(request)) usleep(5000);
}

static void respond(proa_backend_request *request)
{
    proa_err err = {PROA_OK, 0, 0, 0, {0}};
    proa_backend_tensor in;
    void *data;
    proa_backend_response *response = host->response_new(request);
    const char *what = fault_of(request);
    do_fault(what);
    stay(request, what);
    if (strcmp(what, "meet") == 0 && !meet()) {
        host->response_error(response, PROA_DEADLINE, "the others did not come");
    } else if (host->request_cancelled(request)) {
        host->response_error(response, PROA_CANCELLED, "the request was cancelled in the backend");
    } else if (host->request_input(request, 0, &in) &&
               host->response_output(response, "OUTPUT", in.type, in.shape, in.rank, in.bytes, &data, &err) ==
                   PROA_OK) {
        if (in.bytes) memcpy(data, in.data, in.bytes);
    } else {
        host->response_error(response, err.status, err.text);
    }
    host->response_send(request, response, true);
}

static void execute(void *state, proa_backend_request *const *requests, int count)
{
    (void)state;
    for (int i = 0; i < count; i++) respond(requests[i]);
}

PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *host, proa_err *err);
PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *h, proa_err *err)
{
    static const proa_backend_table table = {.bytes = sizeof table,
                                             .version = PROA_BACKEND_VERSION,
                                             .model_open = model_open,
                                             .model_close = model_close,
                                             .execute = execute};
    (void)err;
    host = h;
    return &table;
}
