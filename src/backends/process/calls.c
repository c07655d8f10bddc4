/* SPDX-License-Identifier: Apache-2.0
 * calls.c - what a model asks of the server beside inference: model control, metrics, log lines. */
#include "backends/process/calls.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <pthread.h>
#include <string.h>

static void answer_call(proa_worker *worker, uint64_t process, uint64_t id, proa_str head)
{
    proa_worker_send(worker, process, (proa_channel_message){.kind = PROA_CHANNEL_ANSWER, .id = id},
                     &(proa_payload_content){.head = head});
}

static void answer_error(proa_worker *worker, uint64_t process, uint64_t id, const proa_err *err)
{
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_payload_error_head(&head, err);
    answer_call(worker, process, id, proa_buf_view(&head));
    proa_buf_release(&head);
}

/* `at`: the source file and line of a process that has them. */
static void log_line(const proa_json *head)
{
    static const char *const levels[] = {"error", "warning", "info", "verbose"}; /* of enum proa_log_level */
    proa_str level = proa_json_str(proa_json_get(head, "level")),
             text = proa_json_str(proa_json_get(head, "text"));
    const proa_json *at = proa_json_get(head, "at");
    int len = (int)(text.len > 65536 ? 65536 : text.len), k = PROA_LOG_INFO;
    for (int i = 0; i < (int)PROA_COUNT(levels); i++)
        if (proa_str_is(level, levels[i])) k = i;
    if (!len || !proa_log_on(k)) return;
    char *file = at ? proa_str_copy(proa_json_str(proa_json_at(at, 0))) : NULL;
    proa_log_line(k, file ? file : __FILE__, file ? (int)proa_json_int(proa_json_at(at, 1)) : __LINE__,
                  "%.*s", len, text.ptr);
    free(file);
}

/* ---- loads and unloads: they wait, so each has a thread ---- */

typedef struct control {
    proa_worker *worker;
    uint64_t process, id;
    bool load, dependents;
    char *model, *config;
    proa_model_file *files;
    proa_tensor *tensors; /* tensors with the bytes of the files */
    int files_count;
} control;

static void control_free(control *c)
{
    for (int i = 0; i < c->files_count; i++) {
        free((char *)c->files[i].path.ptr);
        proa_tensor_release(&c->tensors[i]);
    }
    free(c->files);
    free(c->tensors);
    free(c->model);
    free(c->config);
    free(c);
}

static void *run_control(void *arg)
{
    control *c = arg;
    proa_worker *worker = c->worker;
    proa_server *server = proa_worker_model_of(worker)->server;
    proa_err err = {0};
    proa_status status = c->load ? proa_server_load(server, c->model, *c->config ? c->config : NULL, c->files,
                                                    c->files_count, &err)
                                 : proa_server_unload(server, c->model, c->dependents, &err);
    if (status != PROA_OK) answer_error(worker, c->process, c->id, &err);
    else answer_call(worker, c->process, c->id, proa_str_c("{}"));
    control_free(c);
    proa_worker_end(worker);
    return NULL;
}

static proa_status take_files(control *c, const proa_json *head, proa_payload *w, proa_err *err)
{
    const proa_json *names = proa_json_get(head, "files");
    int64_t count = proa_json_len(names);
    if (count != w->tensors)
        return PROA_FAIL(err, INVALID, "the process sent %u files for %lld names", w->tensors, (long long)count);
    c->files = proa_calloc((size_t)count, sizeof *c->files);
    c->tensors = proa_calloc((size_t)count, sizeof *c->tensors);
    for (int64_t k = 0; k < count; k++) {
        proa_str name;
        PROA_TRY(proa_payload_tensor(&c->tensors[k], &name, w, (uint32_t)k, err));
        name = proa_json_str(proa_json_at(names, k));
        c->files[k] = (proa_model_file){{proa_str_copy(name), name.len},
                                        {c->tensors[k].data, c->tensors[k].bytes}};
        c->files_count++;
    }
    return PROA_OK;
}

static proa_status start_control(control *c, const proa_json *head, proa_payload *w, proa_err *err)
{
    pthread_t thread;
    if (proa_str_has_nul(proa_json_str(proa_json_get(head, "model"))))
        return PROA_FAIL(err, INVALID, "the model's name has a NUL byte");
    c->model = proa_str_copy(proa_json_str(proa_json_get(head, "model")));
    c->config = proa_str_copy(proa_json_str(proa_json_get(head, "config")));
    c->dependents = proa_json_bool(proa_json_get(head, "dependents"));
    if (c->load) PROA_TRY(take_files(c, head, w, err));
    proa_worker_begin(c->worker);
    if (pthread_create(&thread, NULL, run_control, c) == 0) pthread_detach(thread);
    else run_control(c); /* no thread is free: run it here */
    return PROA_OK;
}

static void is_ready(proa_worker *worker, uint64_t process, uint64_t id, const proa_json *head)
{
    proa_err err = {0};
    int64_t version = -1;
    char *model = proa_str_copy(proa_json_str(proa_json_get(head, "model")));
    proa_status status = proa_version_parse(&version, proa_json_str(proa_json_get(head, "version")), &err);
    if (status != PROA_OK) {
        answer_error(worker, process, id, &err);
    } else {
        status = proa_server_model_ready(proa_worker_model_of(worker)->server, model, version, NULL);
        answer_call(worker, process, id,
                    proa_str_c(status == PROA_OK ? "{\"ready\":true}" : "{\"ready\":false}"));
    }
    free(model);
}

/* Does the model respond any number of times? An error if it is not there. */
static void find_model(proa_worker *worker, uint64_t process, uint64_t id, const proa_json *head)
{
    proa_err err = {0};
    bool decoupled;
    const proa_json *version = proa_json_get(head, "version");
    char *model = proa_str_copy(proa_json_str(proa_json_get(head, "model")));
    if (proa_server_model_decoupled(proa_worker_model_of(worker)->server, model,
                                    version ? proa_json_int(version) : -1, &decoupled, &err) != PROA_OK)
        answer_error(worker, process, id, &err);
    else
        answer_call(worker, process, id,
                    proa_str_c(decoupled ? "{\"decoupled\":true}" : "{\"decoupled\":false}"));
    free(model);
}

/* ---- memory of GPUs ---- */

/* The tensors of an answer, and their numbers; both [count], zeroed. */
static proa_status lease_all(proa_devices *devices, const proa_json *head, proa_tensor *tensors,
                             uint64_t *numbers, int64_t count, proa_err *err)
{
    const proa_json *sizes = proa_json_get(head, "sizes");
    int64_t gpu = proa_json_int(proa_json_get(head, "gpu"));
    for (int64_t k = 0; k < count; k++) {
        int64_t bytes = proa_json_int(proa_json_at(sizes, k));
        if (bytes <= 0) return PROA_FAIL(err, INVALID, "memory of %lld bytes", (long long)bytes);
        PROA_TRY(proa_devices_lease(devices, &tensors[k], &numbers[k], gpu, (uint64_t)bytes, err));
    }
    return PROA_OK;
}

static void answer_leases(proa_worker *worker, uint64_t process, uint64_t id, const proa_tensor *tensors,
                          const uint64_t *numbers, int64_t count)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(&text, "{\"memory\":[");
    for (int64_t k = 0; k < count; k++)
        proa_buf_printf(&text, "%s%llu", k ? "," : "", (unsigned long long)numbers[k]);
    proa_buf_printf(&text, "]}");
    proa_worker_send(
        worker, process, (proa_channel_message){.kind = PROA_CHANNEL_ANSWER, .id = id},
        &(proa_payload_content){.head = proa_buf_view(&text), .tensors = tensors, .count = (int)count});
    proa_buf_release(&text);
}

/* Memory for outputs on a GPU, which the process then names in a response. If there is none for one of them, the
 * process gets none at all. */
static void lease_memory(proa_worker *worker, uint64_t process, uint64_t id, const proa_json *head)
{
    proa_err err = {0};
    int64_t count = proa_json_len(proa_json_get(head, "sizes"));
    if (count < 1 || count > PROA_PROCESS_LEASES_MAX) {
        (void)PROA_FAIL(&err, INVALID, "memory for %lld outputs", (long long)count);
        answer_error(worker, process, id, &err);
        return;
    }
    proa_tensor *tensors = proa_calloc((size_t)count, sizeof *tensors);
    uint64_t *numbers = proa_calloc((size_t)count, sizeof *numbers);
    if (lease_all(proa_worker_devices(worker), head, tensors, numbers, count, &err) == PROA_OK) {
        answer_leases(worker, process, id, tensors, numbers, count);
    } else {
        for (int64_t k = 0; k < count; k++)
            proa_devices_return_lease(proa_worker_devices(worker), numbers[k]);
        answer_error(worker, process, id, &err);
    }
    for (int64_t k = 0; k < count; k++) proa_tensor_release(&tensors[k]);
    free(numbers);
    free(tensors);
}

static void take_closed(proa_worker *worker, const proa_json *head)
{
    const proa_json *closed = proa_json_get(head, "memory");
    for (int64_t k = 0; k + 1 < proa_json_len(closed); k += 2)
        proa_devices_closed(proa_worker_devices(worker), proa_json_uint(proa_json_at(closed, k)),
                            proa_json_int(proa_json_at(closed, k + 1)));
}

/* Leased memory that will not be sent. */
static void return_unused(proa_worker *worker, const proa_json *head)
{
    const proa_json *unused = proa_json_get(head, "memory");
    for (int64_t k = 0; k < proa_json_len(unused); k++)
        proa_devices_return_lease(proa_worker_devices(worker), proa_json_uint(proa_json_at(unused, k)));
}

/* ---- all kinds ---- */

static void call_families(proa_worker *worker, uint64_t process, uint64_t id, const char *kind,
                          const proa_json *head)
{
    proa_err err = {0};
    proa_buf text;
    proa_buf_init(&text, 4096);
    if (proa_families_call(proa_worker_model_of(worker)->families, kind, head, &text, &err) == PROA_OK) {
        if (id) answer_call(worker, process, id, proa_buf_view(&text));
    } else if (id) {
        answer_error(worker, process, id, &err);
    }
    proa_buf_release(&text);
}

static proa_status take_request(proa_worker *worker, uint64_t process, uint64_t id, const proa_json *head,
                                proa_payload *w, proa_err *err)
{
    proa_str kind = proa_json_str(proa_json_get(head, "kind"));
    char name[32];
    if (proa_str_is(kind, "load") || proa_str_is(kind, "unload")) {
        control *c = proa_calloc(1, sizeof *c);
        *c = (control){.worker = worker, .process = process, .id = id, .load = proa_str_is(kind, "load")};
        proa_status status = start_control(c, head, w, err);
        if (status != PROA_OK) control_free(c);
        return status;
    }
    snprintf(name, sizeof name, "%.*s", (int)(kind.len < sizeof name ? kind.len : 0), kind.len ? kind.ptr : "");
    if (proa_str_is(kind, "log")) log_line(head);
    else if (proa_str_is(kind, "device_memory")) lease_memory(worker, process, id, head);
    else if (proa_str_is(kind, "device_closed")) take_closed(worker, head);
    else if (proa_str_is(kind, "device_unused")) return_unused(worker, head);
    else if (proa_str_is(kind, "ready")) is_ready(worker, process, id, head);
    else if (proa_str_is(kind, "find")) find_model(worker, process, id, head);
    else call_families(worker, process, id, name, head);
    return PROA_OK;
}

proa_status proa_calls_handle(proa_worker *worker, uint64_t process, const proa_channel_message *m,
                              proa_payload *w, proa_err *err)
{
    proa_json *head;
    PROA_TRY(proa_payload_head(&head, w, err));
    proa_status status = take_request(worker, process, m->kind == PROA_CHANNEL_CALL ? m->id : 0, head, w, err);
    proa_json_free(head);
    return status;
}

/* ---- a process without a model ---- */

static proa_status refuse_call(proa_process *p, const proa_channel_message *m, proa_err *err)
{
    proa_channel_message answer = {.kind = m->kind == PROA_CHANNEL_CALL ? PROA_CHANNEL_ANSWER : PROA_CHANNEL_REPLY,
                                   .flags = PROA_CHANNEL_FINAL,
                                   .id = m->id};
    proa_err why = {0};
    proa_buf head;
    (void)PROA_FAIL(&why, UNAVAILABLE, "other models cannot be used while a model is not loaded");
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_payload_error_head(&head, &why);
    bool sent = proa_payload_send(p, answer, &(proa_payload_content){.head = proa_buf_view(&head)});
    proa_buf_release(&head);
    return sent ? PROA_OK : PROA_FAIL(err, UNAVAILABLE, "the process has ended");
}

proa_status proa_calls_handle_alone(proa_process *p, const proa_channel_message *m, proa_err *err)
{
    proa_payload w;
    proa_json *head;
    if (m->kind == PROA_CHANNEL_CALL || m->kind == PROA_CHANNEL_INFER) {
        PROA_TRY(refuse_call(p, m, err));
    } else if (m->kind != PROA_CHANNEL_POST) {
        return PROA_FAIL(err, INVALID, "the process sent a message of kind %u", m->kind);
    }
    PROA_TRY(proa_payload_open(&w, proa_process_view(p), m, err));
    proa_status status = proa_payload_head(&head, &w, err);
    proa_payload_close(&w);
    if (status == PROA_OK && proa_str_is(proa_json_str(proa_json_get(head, "kind")), "log")) log_line(head);
    proa_json_free(head);
    return status;
}
