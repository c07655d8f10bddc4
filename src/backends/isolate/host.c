/* SPDX-License-Identifier: Apache-2.0
 * host.c - `proa backend-host`: the process of one instance of a model, as the server has started it. */
#include "backends/isolate/host.h"

#include "backends/backends.h"
#include "backends/isolate/isolate.h"
#include "backends/library/library.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CANCEL_MS 20  /* time between two looks for cancelled requests, while there are any */
#define IDLE_MS   200 /* the same while there are none */

static proa_host_jobs *executor;
static proa_hosted *hosted; /* the executor's */

static void send_head(uint32_t kind, proa_buf *head, const proa_err *err)
{
    if (err->status != PROA_OK) {
        proa_buf_clear(head);
        proa_payload_error_head(head, err);
    }
    (void)proa_host_send((proa_channel_message){.kind = kind},
                         &(proa_payload_content){.head = proa_buf_view(head)});
    proa_buf_release(head);
}

/* ---- OPEN ---- */

static void set_log(const proa_json *levels)
{
    const proa_log_settings s = {.error = proa_json_int(proa_json_at(levels, 0)),
                                 .warning = proa_json_int(proa_json_at(levels, 1)),
                                 .info = proa_json_int(proa_json_at(levels, 2)),
                                 .verbose = (int)proa_json_int(proa_json_at(levels, 3))};
    proa_err ignored = {0};
    (void)proa_log_set(&s, &ignored);
    proa_log_redirect(proa_host_log);
}

static char *text_of(const proa_json *array, int64_t i)
{
    const proa_json *text = proa_json_at(array, i);
    return proa_json_kind(text) == PROA_JSON_STRING ? proa_str_copy(proa_json_str(text)) : NULL;
}

static proa_status probe_library(const proa_json *library, proa_buf *answer, proa_err *err)
{
    char *directory = text_of(library, 0), *name = text_of(library, 1), *runtime = text_of(library, 2);
    const proa_backend *b = NULL;
    proa_status status = proa_library_find(&b, directory, name ? name : "", runtime ? runtime : "", err);
    if (status == PROA_OK && !b)
        status = PROA_FAIL(err, NOT_FOUND, "the library of backend '%s' is gone", name);
    if (status == PROA_OK)
        proa_buf_printf(answer, "{\"flags\":%u,\"completes\":%s}", b->flags, b->complete ? "true" : "false");
    free(directory);
    free(name);
    free(runtime);
    return status;
}

static Inference__ModelInstanceGroup__Kind kind_of(proa_str text)
{
    if (proa_str_is(text, "GPU")) return INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU;
    if (proa_str_is(text, "MODEL")) return INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL;
    return INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU;
}

static proa_status open_hosted(const proa_json *head, bool complete, proa_err *err)
{
    const proa_json *args = proa_json_get(head, "args");
    char *name = proa_str_copy(proa_json_str(proa_json_get(args, "model_instance_name")));
    char *device = proa_str_copy(proa_json_str(proa_json_get(args, "model_instance_device_id")));
    proa_hosted_options o = {.description = proa_json_get(proa_json_get(head, "host"), "model"),
                             .config = proa_json_str(proa_json_get(args, "model_config")),
                             .complete = complete,
                             .instance = name,
                             .kind = kind_of(proa_json_str(proa_json_get(args, "model_instance_kind"))),
                             .backends = proa_backends,
                             .find_backend = proa_library_find,
                             .upstream = &proa_host_upstream};
    o.device = o.kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU ? (int32_t)strtol(device, NULL, 10)
                                                                         : -1;
    proa_status status = proa_hosted_open(&hosted, &o, err);
    free(name);
    free(device);
    return status;
}

static proa_status open_by_mode(const proa_json *head, proa_buf *answer, proa_err *err)
{
    proa_str mode = proa_json_str(proa_json_get(head, "mode"));
    const proa_json *host = proa_json_get(head, "host");
    proa_buf config;
    set_log(proa_json_get(host, "log"));
    if (proa_str_is(mode, "probe")) return probe_library(proa_json_get(host, "library"), answer, err);
    bool complete = proa_str_is(mode, "complete");
    PROA_TRY(open_hosted(head, complete, err));
    if (!complete) {
        int gpu = proa_hosted_device_inputs(hosted);
        proa_buf_printf(answer, "{\"is_ready\":%s,\"device_inputs\":%s}",
                        proa_hosted_checks_ready(hosted) ? "true" : "false",
                        gpu >= 0 && proa_host_devices_probe(gpu) ? "true" : "false");
        return PROA_OK;
    }
    proa_buf_init(&config, (size_t)PROA_CHANNEL_HEAD_MAX);
    bool fits = proa_hosted_config(hosted, &config);
    proa_buf_printf(answer, "{\"config\":");
    proa_buf_json_str(answer, proa_buf_view(&config));
    proa_buf_char(answer, '}');
    proa_buf_release(&config);
    return fits ? PROA_OK : PROA_FAIL(err, LIMIT, "the completed configuration is too large");
}

static void open_model(const proa_channel_message *m)
{
    proa_payload w;
    proa_json *head;
    proa_buf answer;
    proa_err err = {0};
    proa_buf_init(&answer, (size_t)PROA_CHANNEL_HEAD_MAX * 2);
    proa_host_payload(&w, m);
    proa_status status = proa_payload_head(&head, &w, &err);
    proa_payload_close(&w);
    if (status == PROA_OK) status = open_by_mode(head, &answer, &err);
    proa_json_free(head);
    if (status != PROA_OK) proa_buf_clear(&answer);
    send_head(PROA_CHANNEL_OPENED, &answer, &err);
}

/* ---- the executor ---- */

static void answer_ready(void)
{
    proa_buf head;
    proa_err why = {0};
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    bool ready = proa_hosted_ready(hosted, &why);
    if (!ready && why.status == PROA_OK)
        PROA_FAIL(&why, UNAVAILABLE, "Model is not ready: its backend says so");
    proa_buf_printf(&head, "{\"ready\":true}");
    send_head(PROA_CHANNEL_READINESS, &head, &why);
}

/* The end of the channel is what the server waits for. */
static void close_model(void)
{
    proa_host_wait_idle();
    proa_hosted_close(hosted);
    proa_host_shutdown();
    _exit(EXIT_SUCCESS);
}

static void run_job(const proa_channel_message *messages, int count)
{
    switch (messages[0].kind) {
    case PROA_CHANNEL_OPEN: open_model(messages); break;
    case PROA_CHANNEL_EXECUTE: proa_host_execute(hosted, messages + 1, count - 1); break;
    case PROA_CHANNEL_READY: answer_ready(); break;
    case PROA_CHANNEL_CLOSE: close_model(); break;
    default: break;
    }
}

/* ---- the reader ---- */

static void read_packets(void)
{
    proa_channel_message *in = proa_malloc(PROA_CHANNEL_PACKET_MAX * sizeof *in);
    for (;;) {
        int wait_ms = proa_host_check_cancelled() ? CANCEL_MS : IDLE_MS;
        int count = proa_host_receive(in, PROA_CHANNEL_PACKET_MAX, wait_ms);
        if (count < 0) break;
        if (count == 0) continue;
        bool answer = in[0].kind == PROA_CHANNEL_ANSWER || in[0].kind == PROA_CHANNEL_REPLY;
        if (!answer) proa_host_jobs_add(executor, in, count);
        for (int k = 0; answer && k < count; k++) proa_host_answered(&in[k]);
    }
    free(in);
}

/* argv: the server's process id, the protocol's number, the instance's name. */
int proa_isolate_host(int argc, char **argv)
{
    const proa_channel_message started = {.kind = PROA_CHANNEL_STARTED};
    proa_err err = {0};
    if (argc < 3 || strtol(argv[0], NULL, 10) != getppid() || strtol(argv[1], NULL, 10) != PROA_CHANNEL_PROTOCOL) {
        fprintf(stderr, "proa backend-host: it is started by 'proa serve', not by users\n");
        return EXIT_FAILURE;
    }
    (void)prctl(PR_SET_NAME, "proa-backend");
    if (proa_host_connect(argv[2], &err) != PROA_OK) {
        fprintf(stderr, "proa backend-host: %s\n", err.text);
        return EXIT_FAILURE;
    }
    proa_host_calls_start();
    executor = proa_host_jobs_start(run_job);
    (void)proa_host_send_plain(&started);
    read_packets();
    _exit(EXIT_SUCCESS); /* the server is gone: nobody waits for the backend's end */
}
