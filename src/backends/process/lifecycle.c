/* SPDX-License-Identifier: Apache-2.0
 * lifecycle.c - a process from its start to its end, and starts again; auto_complete_config in one of its own. */
#include "backends/process/worker.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include <errno.h>
#include <string.h>

#define LOOK_MS     20   /* time between two checks whether the model is being unloaded */
#define STOPPED_MS  5000 /* a process that is stopped this long counts as hanging */
#define BACKOFF_MS  100  /* before the first restart; doubled each time ... */
#define BACKOFF_MAX 7    /* ... so often */
#define STEADY_NS   (10 * (int64_t)1000000000) /* a process that ran this long resets the back-off */

/* ---- the life of a process ---- */

static proa_status start_process(proa_process **out, const proa_worker_settings *s, const char *name,
                                 proa_err *err)
{
    proa_process_options options = {
        .memory_bytes = s->memory_bytes, .arena_bytes = PROA_PROCESS_ARENA_BYTES, .keep_bytes = s->keep_bytes};
    return s->kind->start(out, s->arg, name, &options, err);
}

/* Reads the reply to OPEN: OK unless it has an error. */
static proa_status read_opened(proa_process *p, const proa_channel_message *m, proa_json **head, proa_err *err)
{
    proa_payload w;
    *head = NULL;
    if (!m->bytes) return PROA_OK;
    PROA_TRY(proa_payload_open(&w, proa_process_view(p), m, err));
    proa_status status = proa_payload_head(head, &w, err);
    proa_payload_close(&w);
    PROA_TRY(status);
    if (!proa_payload_error(*head, err)) return PROA_OK;
    proa_json_free(*head);
    *head = NULL;
    return PROA_INTERNAL;
}

/* DEADLINE if the process has been stopped for too long: it may never continue, and its requests wait. */
static proa_status check_runs(proa_process *p, proa_err *err)
{
    if (proa_process_stopped_ms(p) < STOPPED_MS) return PROA_OK;
    return PROA_FAIL(err, DEADLINE, "it was stopped (SIGSTOP) for more than %d ms", STOPPED_MS);
}

/* Receives until a message of that kind arrives. until_ns 0: no time limit as long as the process runs; late: the
 * text of that limit. w may be NULL: then only log lines and calls are expected. UNAVAILABLE: the process has ended;
 * DEADLINE: it must be ended. */
static proa_status await_message(proa_worker *w, proa_process *p, proa_channel_message *in, uint32_t kind,
                                 int64_t until_ns, const char *late, proa_json **head, proa_err *err)
{
    for (;;) {
        int count = proa_process_receive(p, in, PROA_CHANNEL_PACKET_MAX, LOOK_MS);
        if (count < 0) return PROA_FAIL(err, UNAVAILABLE, "the process has ended");
        if (count == 0) PROA_TRY(check_runs(p, err));
        if (w && proa_worker_is_closing(w)) return PROA_FAIL(err, CANCELLED, "the model is being unloaded");
        for (int k = 0; k < count; k++) {
            if (in[k].kind == kind) return read_opened(p, &in[k], head, err);
            if (w) PROA_TRY(proa_worker_handle(w, p, &in[k], err));
            else PROA_TRY(proa_calls_handle_alone(p, &in[k], err));
        }
        if (until_ns && proa_clock_ns() > until_ns) return PROA_FAIL(err, DEADLINE, "%s", late);
    }
}

static proa_status open_model(proa_worker *w, proa_process *p, proa_channel_message *in,
                              const proa_worker_settings *s, proa_str opening, proa_json **opened, proa_err *err)
{
    proa_json *head = NULL;
    proa_channel_message m = {.kind = PROA_CHANNEL_OPEN};
    PROA_TRY(await_message(NULL, p, in, PROA_CHANNEL_STARTED, proa_clock_ns() + s->start_ms * 1000000,
                           s->kind->late, &head, err));
    proa_json_free(head);
    if (!proa_payload_send(p, m, &(proa_payload_content){.head = opening}))
        return PROA_FAIL(err, NO_MEMORY, "the configuration is too large");
    return await_message(w, p, in, PROA_CHANNEL_OPENED, 0, NULL, opened, err);
}

static void text_member(proa_buf *out, const char *name, const char *text)
{
    if (!text) return;
    proa_buf_printf(out, ",\"%s\":", name);
    proa_buf_json_str(out, proa_str_c(text));
}

static const char *const kinds[] = {[INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_AUTO] = "AUTO",
                                    [INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU] = "GPU",
                                    [INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU] = "CPU",
                                    [INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL] = "MODEL"};

/* By their numbers: [[name, kind, device], ...]. */
static void print_instances(proa_buf *out, const proa_worker *w)
{
    proa_buf_printf(out, ",\"instances\":[");
    for (const proa_worker_instance *i = w->instances; i; i = i->next) {
        proa_buf_printf(out, "%s[", i->number ? "," : "");
        proa_buf_json_str(out, proa_str_c(i->name));
        proa_buf_printf(out, ",\"%s\",%d]", kinds[i->kind], i->device);
    }
    proa_buf_char(out, ']');
}

/* w: NULL: a process that is only asked. */
/* The head of OPEN. w: the worker that serves; NULL: a process for one question. */
static void opening_head(proa_buf *out, const proa_worker_settings *s, const proa_worker_question *q,
                         const proa_worker *w)
{
    proa_buf_printf(out, "{\"mode\":\"%s\",\"decoupled\":%s", q->mode,
                    w && w->model->decoupled ? "true" : "false");
    text_member(out, "name", q->name);
    text_member(out, "model_file", q->file);
    if (q->args) proa_buf_printf(out, ",\"args\":%s", q->args);
    if (s->host) proa_buf_printf(out, ",\"host\":%s", s->host);
    if (w && s->kind->shares) print_instances(out, w);
    proa_buf_char(out, '}');
}

/* initialize's args: all strings. */
static void print_args(proa_buf *out, const proa_worker *w)
{
    const proa_worker_model *m = w->model;
    const proa_worker_instance *i = w->instances;
    char number[32];
    const struct {
        const char *key, *value;
    } args[] = {{"model_config", m->config_json},
                {"model_instance_name", i->name},
                {"model_instance_kind", kinds[i->kind]},
                {"model_instance_device_id", number},
                {"model_repository", proa_served_model_path(m->model)},
                {"model_name", proa_served_model_name(m->model)}};
    snprintf(number, sizeof number, "%d", i->device < 0 ? 0 : i->device);
    for (size_t k = 0; k < PROA_COUNT(args); k++) {
        proa_buf_printf(out, "%c\"%s\":", k ? ',' : '{', args[k].key);
        proa_buf_json_str(out, proa_str_c(args[k].value));
    }
    proa_buf_printf(out, ",\"model_version\":\"%lld\"}", (long long)proa_served_model_version(m->model));
}

static void set_process(proa_worker *w, proa_process *p)
{
    pthread_mutex_lock(&w->lock);
    w->process = p;
    w->number++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void set_up(proa_worker *w, const proa_json *opened)
{
    pthread_mutex_lock(&w->lock);
    w->state = PROA_WORKER_UP;
    w->tried = true;
    w->checks_ready = proa_json_bool(proa_json_get(opened, "is_ready"));
    bool told = proa_json_bool(proa_json_get(opened, "device_inputs"));
    for (proa_worker_instance *i = w->instances; i; i = i->next)
        i->takes_devices = !w->model->settings.kind->reports_devices || (told && i->device >= 0);
    w->ready_pending = false;
    w->is_ready = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void serve_process(proa_worker *w, proa_process *p, proa_err *err)
{
    for (;;) {
        int count = proa_process_receive(p, w->in, PROA_CHANNEL_PACKET_MAX, proa_worker_tick(w, p));
        if (count < 0 || (count == 0 && check_runs(p, err) != PROA_OK)) return;
        if (count > 0) proa_worker_note_outputs(w, w->in, count);
        for (int k = 0; k < count; k++)
            if (proa_worker_handle(w, p, &w->in[k], err) != PROA_OK) return;
        if (proa_worker_is_closing(w)) return;
    }
}

/* Runs finalize() with a time limit. Calls that it makes meanwhile are answered. */
static int finish_process(proa_worker *w, proa_process *p)
{
    proa_channel_message m = {.kind = PROA_CHANNEL_CLOSE};
    proa_err ignored = {0};
    int64_t until = proa_clock_ns() + w->model->settings.finish_ms * 1000000;
    if (!proa_process_send(p, &m, 1)) return 0;
    while (proa_clock_ns() < until) {
        int count = proa_process_receive(p, w->in, PROA_CHANNEL_PACKET_MAX, LOOK_MS);
        if (count < 0) return 1000; /* it has closed the socket */
        for (int k = 0; k < count; k++)
            if (proa_worker_handle(w, p, &w->in[k], &ignored) != PROA_OK) return 0;
    }
    return 0;
}

/* Whose execute took too long: where instances share the process, the requests of all of them get this text. */
static void print_late(char *how, size_t bytes, const proa_worker *w, const proa_worker_instance *late)
{
    bool several = w->count > 1;
    snprintf(how, bytes, "was killed: execute%s%s%s took longer than %lld ms", several ? " of instance '" : "",
             several ? late->name : "", several ? "'" : "", (long long)w->model->settings.execute_ms);
}

/* Ends the process if it still runs. */
static void end_process(proa_worker *w, proa_process *p, int patience_ms, const proa_err *broken)
{
    char how[600];
    proa_err err = {0};
    pthread_mutex_lock(&w->lock);
    bool served = w->state == PROA_WORKER_UP;
    w->state = PROA_WORKER_DOWN;
    w->process = NULL;
    while (w->users) pthread_cond_wait(&w->changed, &w->lock);
    bool closing = w->closing;
    const proa_worker_instance *late = w->late;
    pthread_mutex_unlock(&w->lock);
    bool well = proa_process_end(p, patience_ms, how, sizeof how);
    if (late) print_late(how, sizeof how, w, late);
    if (broken->status != PROA_OK) snprintf(how, sizeof how, "was killed: %s", broken->text);
    proa_worker_not_healthy(w, PROA_INTERNAL, how, &err);
    if (served && !(closing && well)) PROA_LOG(ERROR, "%s", err.text);
    proa_bls_cancel_all(w->bls);
    proa_worker_fail(w, p, NULL, &err);
    proa_devices_clear(w->devices);
    pthread_mutex_lock(&w->lock);
    w->why = err;
    w->late = NULL;
    w->ready_pending = false;
    for (proa_worker_instance *i = w->instances; i; i = i->next) proa_worker_executed(i);
    pthread_mutex_unlock(&w->lock);
    proa_process_free(p);
}

/* One process from its start to its end. */
static proa_status run_process(proa_worker *w, proa_str opening, proa_err *err)
{
    proa_process *p;
    proa_json *opened = NULL;
    proa_err broken = {0};
    PROA_TRY(start_process(&p, &w->model->settings, w->name, err));
    atomic_fetch_add_explicit(&w->model->starts, 1, memory_order_relaxed);
    set_process(w, p);
    proa_status status = open_model(w, p, w->in, &w->model->settings, opening, &opened, err);
    int patience = 0;
    if (status == PROA_OK) {
        proa_process_note_regions(p);
        set_up(w, opened);
        proa_json_free(opened);
        serve_process(w, p, &broken);
        if (proa_worker_is_closing(w)) patience = finish_process(w, p);
        else patience = broken.status == PROA_OK && !w->late ? 200 : 0;
    } else if (status == PROA_UNAVAILABLE) {
        patience = 200;
    } else if (status == PROA_DEADLINE) {
        broken = *err;
    }
    end_process(w, p, patience, &broken);
    if (status == PROA_UNAVAILABLE || status == PROA_DEADLINE)
        *err = w->why; /* how it ended is more informative */
    return status;
}

/* Waits before the next start; false if none is wanted. */
static bool wait_for_restart(proa_worker *w, int failures)
{
    struct timespec until = proa_worker_time_in((int64_t)BACKOFF_MS
                                                << (failures < BACKOFF_MAX ? failures : BACKOFF_MAX));
    pthread_mutex_lock(&w->lock);
    while (!w->closing && pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT) {
    }
    bool again = !w->closing;
    pthread_mutex_unlock(&w->lock);
    return again;
}

static void note_failure(proa_worker *w, const proa_err *err)
{
    pthread_mutex_lock(&w->lock);
    if (w->tried && !w->closing)
        PROA_LOG(ERROR, "%s '%s' does not start again: %s", w->model->settings.kind->process, w->name, err->text);
    w->why = *err;
    w->closing = w->closing || !w->tried; /* a model that fails to load is not retried */
    w->tried = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void *proa_worker_supervise(void *worker)
{
    proa_worker *w = worker;
    proa_buf args, opening;
    int failures = 0;
    proa_buf_init(&args, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_init(&opening, (size_t)PROA_CHANNEL_HEAD_MAX * 2);
    print_args(&args, w);
    opening_head(&opening, &w->model->settings,
                 &(proa_worker_question){"serve", w->name, w->model->file, args.ptr}, w);
    do {
        proa_err err = {0};
        int64_t begin = proa_clock_ns();
        if (run_process(w, proa_buf_view(&opening), &err) != PROA_OK) note_failure(w, &err);
        failures = proa_clock_ns() - begin > STEADY_NS ? 0 : failures + 1;
    } while (wait_for_restart(w, failures - 1 < 0 ? 0 : failures - 1));
    proa_buf_release(&args);
    proa_buf_release(&opening);
    return NULL;
}

/* ---- a process that answers one question ---- */

/* How it ended is more informative than that it did. */
static proa_status end_asked(const proa_worker_settings *s, const char *name, proa_status status,
                             proa_process *p, proa_err *err)
{
    const proa_channel_message close = {.kind = PROA_CHANNEL_CLOSE};
    char how[600];
    int patience = status == PROA_UNAVAILABLE ? 200 : 0;
    if (status == PROA_OK && s->kind->closes && proa_process_send(p, &close, 1)) patience = (int)s->finish_ms;
    proa_process_end(p, patience, how, sizeof how);
    if (status == PROA_DEADLINE) snprintf(how, sizeof how, "was killed: %s", err->text);
    if (status != PROA_UNAVAILABLE && status != PROA_DEADLINE) return status;
    proa_err_clear(err);
    return PROA_FAIL(err, UNAVAILABLE, "%s '%s' is not healthy. It %s", s->kind->process, name, how);
}

proa_status proa_worker_ask(proa_json **head, const proa_worker_settings *settings,
                            const proa_worker_question *question, proa_err *err)
{
    proa_process *p;
    proa_buf opening;
    proa_err why = {0};
    *head = NULL;
    proa_status status = start_process(&p, settings, question->name, &why);
    if (status == PROA_OK) {
        proa_channel_message *in = proa_malloc(PROA_CHANNEL_PACKET_MAX * sizeof *in);
        proa_buf_init(&opening, (size_t)PROA_CHANNEL_HEAD_MAX * 2);
        opening_head(&opening, settings, question, NULL);
        status = open_model(NULL, p, in, settings, proa_buf_view(&opening), head, &why);
        status = end_asked(settings, question->name, status, p, &why);
        proa_process_free(p);
        proa_buf_release(&opening);
        free(in);
    }
    if (status != PROA_OK && err) *err = why;
    return status;
}
