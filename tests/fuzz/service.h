/* SPDX-License-Identifier: Apache-2.0
 * service.h - for fuzz targets: a whole server in this process (models, service code, an event loop), reached through
 * Unix sockets. Include it once.
 * Owner:   one server for all inputs, closed at exit.
 * Threads: the target's and the server's; service_rest ends each input, so that a find belongs to its own input. */
#ifndef PROA_TESTS_FUZZ_SERVICE_H
#define PROA_TESTS_FUZZ_SERVICE_H

#include "api/internal.h"
#include "backends/backends.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    SERVICE_MODELS_MAX = 16,
    SERVICE_ANSWER_MAX = 1 << 20, /* bytes that the client reads before it leaves */
    SERVICE_END_MS = 8000,        /* that a request may take to end after its client has left */
};

/* No Python models: an input would start processes. */
static const proa_backend *const service_backends[] = {&proa_backend_identity,  &proa_backend_add_sub,
                                                       &proa_backend_repeat,    &proa_backend_square,
                                                       &proa_backend_sequence,  &proa_backend_dyna_sequence,
                                                       &proa_backend_engine,    &proa_backend_fil,
                                                       &proa_backend_transform, NULL};

static struct {
    proa_server *server;
    proa_api *api;
    const char *const *models; /* folders below the project's root */
    int models_count;
    char folder[64], http[96], grpc[96], trace[96];
} service;

static inline void service_quiet_log(void)
{
    proa_log_settings quiet = {.error = false};
    PROA_ASSERT(proa_log_set(&quiet, NULL) == PROA_OK);
}

static inline void service_close(void)
{
    proa_api_close(service.api);
    proa_server_stop(service.server, 1000);
    proa_server_free(service.server);
    proa_dir_remove(service.folder);
}

/* Serves these models, folders below the project's root, at the first call. */
static inline void service_open(const char *const *models, int count)
{
    static char paths[SERVICE_MODELS_MAX][PROA_PATH_MAX];
    static const char *list[SERVICE_MODELS_MAX];
    proa_err err = {.status = PROA_OK};
    if (service.server) return;
    PROA_ASSERT(count <= SERVICE_MODELS_MAX);
    service.models = models, service.models_count = count;
    for (int i = 0; i < count; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", PROA_SOURCE_DIR, models[i]);
        list[i] = paths[i];
    }
    snprintf(service.folder, sizeof service.folder, "/tmp/proa-fuzz-XXXXXX");
    PROA_ASSERT(mkdtemp(service.folder));
    snprintf(service.http, sizeof service.http, "unix:%s/http", service.folder);
    snprintf(service.grpc, sizeof service.grpc, "unix:%s/grpc", service.folder);
    snprintf(service.trace, sizeof service.trace, "%s/trace", service.folder);
    const proa_setting threads = {"engine", "threads", "1"};
    proa_server_options s = {.repositories = list,
                             .repositories_count = count,
                             .backends = service_backends,
                             .settings = &threads,
                             .settings_count = 1,
                             .exit_on_error = true,
                             .load_threads = 1};
    proa_api_options a = {.http = {.allow = true, .address = service.http},
                          .grpc = {.allow = true, .address = service.grpc},
                          .threads = 1,
                          .allow_client_shm = true,
                          .trace = {.to = {.file = service.trace}}}; /* off until an input switches it on */
    service_quiet_log();
    if (proa_server_new(&service.server, &s, &err) != PROA_OK ||
        proa_api_open(&service.api, service.server, &a, &err) != PROA_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    atexit(service_close);
}

static inline int service_dial(const char *address)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", address + strlen("unix:"));
    PROA_ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

/* Sends what there is room for, reads what is there; waits at most wait_ms for either. False: the server has closed, or
 * nothing happened in that time (*quiet). */
static inline bool service_step(int fd, proa_str *out, proa_buf *in, int wait_ms, bool *quiet)
{
    char bytes[16384];
    struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (out->len ? POLLOUT : 0))};
    *quiet = poll(&p, 1, wait_ms) == 0;
    if (*quiet) return false;
    if ((p.revents & POLLOUT) && out->len) {
        ssize_t n = send(fd, out->ptr, out->len, MSG_NOSIGNAL);
        if (n > 0) *out = (proa_str){out->ptr + n, out->len - (size_t)n};
        else if (n < 0) out->len = 0; /* the server takes no more; its answer may still be read */
    }
    if (!(p.revents & (POLLIN | POLLHUP | POLLERR))) return true;
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    return n > 0 && proa_buf_append(in, bytes, (size_t)n);
}

static inline int64_t service_connections(void)
{
    int64_t open = 0;
    for (int i = 0; i < service.api->endpoints_count; i++)
        open += proa_listener_connections(service.api->endpoints[i].listener);
    return open;
}

/* Clears what an input has set; model "": the settings of all models. */
static inline void service_reset_trace(const char *model)
{
    static char keys[][16] = {"trace_level", "trace_rate", "trace_count", "log_frequency"};
    Inference__TraceSettingRequest__SettingsEntry entry[PROA_COUNT(keys)], *entries[PROA_COUNT(keys)];
    Inference__TraceSettingRequest request = INFERENCE__TRACE_SETTING_REQUEST__INIT;
    for (size_t i = 0; i < PROA_COUNT(keys); i++) {
        inference__trace_setting_request__settings_entry__init(entries[i] = &entry[i]);
        entry[i].key = keys[i];
    }
    request.settings = entries, request.n_settings = PROA_COUNT(keys);
    PROA_ASSERT(proa_trace_set(service.api, model, &request, NULL) == PROA_OK);
}

/* After an input: nothing of it runs any more, and the settings that it may have changed are back. */
static inline void service_rest(void)
{
    int64_t end_ns = proa_clock_ns() + SERVICE_END_MS * INT64_C(1000000);
    struct timespec pause = {.tv_nsec = 20000};
    while (proa_sinks_live() > 0 || service_connections() > 0) {
        PROA_ASSERT(proa_clock_ns() < end_ns); /* a request or a connection has no end */
        nanosleep(&pause, NULL);
    }
    service_quiet_log();
    for (int i = 0; i < service.models_count; i++) service_reset_trace(strrchr(service.models[i], '/') + 1);
    service_reset_trace("");
    PROA_ASSERT(proa_shm_unregister(service.server, "", NULL) == PROA_OK);
}

/* One HTTP connection: sends the bytes, and `last` that no more will come; reads the answer up to the server's end.
 * Leaves after wait_ms without a byte. */
static inline void service_http(proa_str bytes, bool last, proa_buf *answer, int wait_ms)
{
    int fd = service_dial(service.http);
    bool quiet = false;
    while (service_step(fd, &bytes, answer, wait_ms, &quiet))
        if (last && bytes.len == 0) shutdown(fd, SHUT_WR);
    close(fd);
    PROA_ASSERT(answer->len < 5 || memcmp(answer->ptr, "HTTP/", 5) == 0);
    service_rest();
}

/* libFuzzer calls it before the first input: the time that the models take to open counts for none. */
#define SERVICE_AT_START(models)                                                                             \
    int LLVMFuzzerInitialize(int *argc, char ***argv)                                                        \
    {                                                                                                        \
        PROA_UNUSED(argc);                                                                                   \
        PROA_UNUSED(argv);                                                                                   \
        service_open(models, PROA_COUNT(models));                                                            \
        return 0;                                                                                            \
    }

#endif
