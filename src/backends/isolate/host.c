/* SPDX-License-Identifier: Apache-2.0
 * host.c - `proa backend-host`: the process of one version of a model, as the server has started it. */
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

static proa_host_jobs *manager;
static proa_hosted *hosted; /* the manager's; the executors use it while it is open */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static proa_host_jobs **executors; /* of the instances; under the lock, as their number */
static int executors_count;

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

/* list: [[name, kind, device], ...]; to be freed, with the names. */
static proa_hosted_instance *read_instances(const proa_json *list, int count)
{
    proa_hosted_instance *instances = proa_calloc((size_t)count + 1, sizeof *instances);
    for (int i = 0; i < count; i++) {
        const proa_json *one = proa_json_at(list, i);
        instances[i] = (proa_hosted_instance){.name = text_of(one, 0),
                                              .kind = kind_of(proa_json_str(proa_json_at(one, 1))),
                                              .device = (int)proa_json_int(proa_json_at(one, 2))};
    }
    return instances;
}

static proa_status open_hosted(const proa_json *head, bool complete, proa_err *err)
{
    const proa_json *list = proa_json_get(head, "instances");
    int count = complete ? 0 : (int)proa_json_len(list);
    proa_hosted_instance *instances = read_instances(list, count);
    const proa_hosted_options o = {
        .description = proa_json_get(proa_json_get(head, "host"), "model"),
        .config = proa_json_str(proa_json_get(proa_json_get(head, "args"), "model_config")),
        .complete = complete,
        .instances = instances,
        .instances_count = count,
        .backends = proa_backends,
        .find_backend = proa_library_find,
        .upstream = &proa_host_upstream};
    proa_host_devices_start(count);
    proa_status status = proa_hosted_open(&hosted, &o, err);
    for (int i = 0; i < count; i++) free((char *)(uintptr_t)instances[i].name);
    free(instances);
    return status;
}

static void run_execution(const proa_channel_message *messages, int count)
{
    proa_host_execute(hosted, messages, count);
}

static proa_status start_executors(int count, proa_err *err)
{
    int started = 0;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): pointers */
    proa_host_jobs **all = proa_calloc((size_t)count, sizeof(proa_host_jobs *));
    while (started < count && (all[started] = proa_host_jobs_start(run_execution))) started++;
    pthread_mutex_lock(&lock);
    executors = all;
    executors_count = started;
    pthread_mutex_unlock(&lock);
    if (started == count) return PROA_OK;
    return PROA_FAIL(err, NO_MEMORY, "no thread for instance %d of %d in its process", started, count);
}

/* Those on GPUs take tensors there, if this process can use the memory of all of these. */
static bool takes_device_inputs(int count)
{
    int last = -1;
    for (int i = 0; i < count; i++) {
        int gpu = proa_hosted_device_inputs(hosted, i);
        if (gpu != last && gpu >= 0 && !proa_host_devices_probe(gpu)) return false;
        if (gpu >= 0) last = gpu;
    }
    return last >= 0;
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
        int count = (int)proa_json_len(proa_json_get(head, "instances"));
        PROA_TRY(start_executors(count, err));
        proa_buf_printf(answer, "{\"is_ready\":%s,\"device_inputs\":%s}",
                        proa_hosted_checks_ready(hosted) ? "true" : "false",
                        takes_device_inputs(count) ? "true" : "false");
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

/* ---- the manager ---- */

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
    (void)count;
    switch (messages[0].kind) {
    case PROA_CHANNEL_OPEN: open_model(messages); break;
    case PROA_CHANNEL_READY: answer_ready(); break;
    case PROA_CHANNEL_CLOSE: close_model(); break;
    default: break;
    }
}

/* ---- the reader ---- */

/* The server executes nothing before it knows that the version is open, and only what it has named in OPEN. */
static proa_host_jobs *queue_of(const proa_channel_message *first)
{
    if (first->kind != PROA_CHANNEL_EXECUTE) return manager;
    pthread_mutex_lock(&lock);
    PROA_ASSERT(first->id < (uint64_t)executors_count);
    proa_host_jobs *queue = executors[first->id];
    pthread_mutex_unlock(&lock);
    return queue;
}

static void read_packets(void)
{
    proa_channel_message *in = proa_malloc(PROA_CHANNEL_PACKET_MAX * sizeof *in);
    for (;;) {
        int wait_ms = proa_host_check_cancelled() ? CANCEL_MS : IDLE_MS;
        int count = proa_host_receive(in, PROA_CHANNEL_PACKET_MAX, wait_ms);
        if (count < 0) break;
        if (count == 0) continue;
        bool answer = in[0].kind == PROA_CHANNEL_ANSWER || in[0].kind == PROA_CHANNEL_REPLY;
        if (!answer) proa_host_jobs_add(queue_of(&in[0]), in, count);
        for (int k = 0; answer && k < count; k++) proa_host_answered(&in[k]);
    }
    free(in);
}

/* argv: the server's process id, the protocol's number, the process's name. */
int proa_isolate_host(int argc, char **argv)
{
    const proa_channel_message started = {.kind = PROA_CHANNEL_STARTED};
    proa_err err = {0};
    if (argc < 3 || strtol(argv[0], NULL, 10) != getppid() || strtol(argv[1], NULL, 10) != PROA_CHANNEL_PROTOCOL) {
        fprintf(stderr, "proa backend-host: it is started by 'proa serve', not by users\n");
        return EXIT_FAILURE;
    }
    (void)prctl(PR_SET_NAME, "proa-backend");
    if (proa_host_connect(argv[2], proa_host_device_open, &err) != PROA_OK) {
        fprintf(stderr, "proa backend-host: %s\n", err.text);
        return EXIT_FAILURE;
    }
    proa_host_calls_start();
    manager = proa_host_jobs_start(run_job);
    PROA_ASSERT(manager);
    (void)proa_host_send_plain(&started);
    read_packets();
    _exit(EXIT_SUCCESS); /* the server is gone: nobody waits for the backend's end */
}
