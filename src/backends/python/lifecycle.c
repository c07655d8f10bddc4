/* SPDX-License-Identifier: Apache-2.0
 * lifecycle.c - a process from its start to its end, and starts again; auto_complete_config in one of its own. */
#include "backends/python/instance.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "python/env.h"
#include <errno.h>
#include <string.h>

#define LOOK_MS     20   /* time between two checks whether the model is being unloaded */
#define STOPPED_MS  5000 /* a process that is stopped this long counts as hanging */
#define BACKOFF_MS  100  /* before the first restart; doubled each time ... */
#define BACKOFF_MAX 7    /* ... so often */
#define STEADY_NS   (10 * (int64_t)1000000000) /* a process that ran this long resets the back-off */

/* ---- the life of a process ---- */

static proa_status start_process(proa_pyprocess **out, const proa_pysettings *s, const char *name, proa_err *err)
{
    proa_pyprocess_options options = {.name = name,
                                      .python = proa_pyenv_python(s->env),
                                      .environment = proa_pyenv_settings(s->env),
                                      .memory_bytes = s->memory_bytes,
                                      .arena_bytes = PROA_PYTHON_ARENA_BYTES,
                                      .keep_bytes = s->keep_bytes};
    return proa_pyprocess_start(out, &options, err);
}

/* Reads the reply to OPEN: OK unless it has an error. */
static proa_status read_opened(proa_pyprocess *p, const proa_python_message *m, proa_json **head, proa_err *err)
{
    proa_pywire w;
    *head = NULL;
    if (!m->bytes) return PROA_OK;
    PROA_TRY(proa_pywire_open(&w, proa_pyprocess_view(p), m, err));
    proa_status status = proa_pywire_head(head, &w, err);
    proa_pywire_close(&w);
    PROA_TRY(status);
    if (!proa_pywire_error(*head, err)) return PROA_OK;
    proa_json_free(*head);
    *head = NULL;
    return PROA_INTERNAL;
}

/* DEADLINE if the process has been stopped for too long: it may never continue, and its requests wait. */
static proa_status check_runs(proa_pyprocess *p, proa_err *err)
{
    if (proa_pyprocess_stopped_ms(p) < STOPPED_MS) return PROA_OK;
    return PROA_FAIL(err, DEADLINE, "it was stopped (SIGSTOP) for more than %d ms", STOPPED_MS);
}

/* Receives until a message of that kind arrives. until_ns 0: no time limit as long as the process runs. i
 * may be NULL: then no other message is expected. UNAVAILABLE: the process has ended; DEADLINE: it must be
 * ended. */
static proa_status await_message(proa_pyinstance *i, proa_pyprocess *p, proa_python_message *in,
                                 uint32_t kind, int64_t until_ns, proa_json **head, proa_err *err)
{
    for (;;) {
        int count = proa_pyprocess_receive(p, in, PROA_PYTHON_PACKET_MAX, LOOK_MS);
        if (count < 0) return PROA_FAIL(err, UNAVAILABLE, "the process has ended");
        if (count == 0) PROA_TRY(check_runs(p, err));
        if (i && proa_pyinstance_is_closing(i))
            return PROA_FAIL(err, CANCELLED, "the model is being unloaded");
        for (int k = 0; k < count; k++) {
            if (in[k].kind == kind) return read_opened(p, &in[k], head, err);
            if (!i) return PROA_FAIL(err, INVALID, "the stub sent a message of kind %u", in[k].kind);
            PROA_TRY(proa_pyinstance_handle(i, p, &in[k], err));
        }
        if (until_ns && proa_clock_ns() > until_ns)
            return PROA_FAIL(err, DEADLINE, "the interpreter did not start in time (stub-timeout-seconds)");
    }
}

static proa_status open_model(proa_pyinstance *i, proa_pyprocess *p, proa_python_message *in,
                              const proa_pysettings *s, proa_str opening, proa_json **opened, proa_err *err)
{
    proa_json *head = NULL;
    proa_python_message m = {.kind = PROA_PYTHON_OPEN};
    PROA_TRY(await_message(NULL, p, in, PROA_PYTHON_STARTED, proa_clock_ns() + s->start_ms * 1000000, &head, err));
    proa_json_free(head);
    if (!proa_pywire_send(p, m, opening, NULL, 0))
        return PROA_FAIL(err, NO_MEMORY, "the configuration is too large");
    return await_message(i, p, in, PROA_PYTHON_OPENED, 0, opened, err);
}

static void opening_head(proa_buf *out, const char *mode, const char *name, const char *file, bool decoupled,
                         const char *args)
{
    proa_buf_printf(out, "{\"mode\":\"%s\",\"name\":", mode);
    proa_buf_json_str(out, proa_str_c(name));
    proa_buf_printf(out, ",\"model_file\":");
    proa_buf_json_str(out, proa_str_c(file));
    proa_buf_printf(out, ",\"decoupled\":%s,\"args\":%s}", decoupled ? "true" : "false", args);
}

/* initialize's args: all strings. */
static void print_args(proa_buf *out, const proa_pymodel *m, const char *name, int device)
{
    char number[32];
    const struct {
        const char *key, *value;
    } args[] = {{"model_config", m->config_json},
                {"model_instance_name", name},
                {"model_instance_kind", device < 0 ? "CPU" : "GPU"},
                {"model_instance_device_id", number},
                {"model_repository", proa_served_model_path(m->model)},
                {"model_name", proa_served_model_name(m->model)}};
    snprintf(number, sizeof number, "%d", device < 0 ? 0 : device);
    for (size_t k = 0; k < PROA_COUNT(args); k++) {
        proa_buf_printf(out, "%c\"%s\":", k ? ',' : '{', args[k].key);
        proa_buf_json_str(out, proa_str_c(args[k].value));
    }
    proa_buf_printf(out, ",\"model_version\":\"%lld\"}", (long long)proa_served_model_version(m->model));
}

static void set_process(proa_pyinstance *i, proa_pyprocess *p)
{
    pthread_mutex_lock(&i->lock);
    i->process = p;
    i->number++;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

static void set_up(proa_pyinstance *i, const proa_json *opened)
{
    pthread_mutex_lock(&i->lock);
    i->state = PROA_PY_UP;
    i->tried = true;
    i->checks_ready = proa_json_bool(proa_json_get(opened, "is_ready"));
    i->ready_pending = false;
    i->is_ready = true;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

static void serve_process(proa_pyinstance *i, proa_pyprocess *p, proa_err *err)
{
    for (;;) {
        int count = proa_pyprocess_receive(p, i->in, PROA_PYTHON_PACKET_MAX, proa_pyinstance_tick(i, p));
        if (count < 0 || (count == 0 && check_runs(p, err) != PROA_OK)) return;
        if (count > 0) proa_pyinstance_note_outputs(i, i->in, count);
        for (int k = 0; k < count; k++)
            if (proa_pyinstance_handle(i, p, &i->in[k], err) != PROA_OK) return;
        if (proa_pyinstance_is_closing(i)) return;
    }
}

/* Runs finalize() with a time limit. Calls that it makes meanwhile are answered. */
static int finish_process(proa_pyinstance *i, proa_pyprocess *p)
{
    proa_python_message m = {.kind = PROA_PYTHON_CLOSE};
    proa_err ignored = {0};
    int64_t until = proa_clock_ns() + i->model->settings.start_ms * 1000000;
    if (!proa_pyprocess_send(p, &m, 1)) return 0;
    while (proa_clock_ns() < until) {
        int count = proa_pyprocess_receive(p, i->in, PROA_PYTHON_PACKET_MAX, LOOK_MS);
        if (count < 0) return 1000; /* it has closed the socket */
        for (int k = 0; k < count; k++)
            if (proa_pyinstance_handle(i, p, &i->in[k], &ignored) != PROA_OK) return 0;
    }
    return 0;
}

/* Ends the process if it still runs. */
static void end_process(proa_pyinstance *i, proa_pyprocess *p, int patience_ms, const proa_err *broken)
{
    char how[600];
    proa_err err = {0};
    pthread_mutex_lock(&i->lock);
    bool served = i->state == PROA_PY_UP;
    i->state = PROA_PY_DOWN;
    i->process = NULL;
    while (i->users) pthread_cond_wait(&i->changed, &i->lock);
    bool closing = i->closing, late = i->late && i->executing;
    pthread_mutex_unlock(&i->lock);
    bool well = proa_pyprocess_end(p, patience_ms, how, sizeof how);
    if (late)
        snprintf(how, sizeof how, "was killed: execute took longer than %lld ms",
                 (long long)i->model->settings.execute_ms);
    if (broken->status != PROA_OK) snprintf(how, sizeof how, "was killed: %s", broken->text);
    proa_pyinstance_not_healthy(i, PROA_INTERNAL, how, &err);
    if (served && !(closing && well)) PROA_LOG(ERROR, "%s", err.text);
    proa_pybls_cancel_all(i->bls);
    proa_pyinstance_fail(i, p, false, &err);
    pthread_mutex_lock(&i->lock);
    i->why = err;
    i->executing = false;
    i->ready_pending = false;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
    proa_pyprocess_free(p);
}

/* One process from its start to its end. */
static proa_status run_process(proa_pyinstance *i, proa_str opening, proa_err *err)
{
    proa_pyprocess *p;
    proa_json *opened = NULL;
    proa_err broken = {0};
    PROA_TRY(start_process(&p, &i->model->settings, i->name, err));
    atomic_fetch_add_explicit(&i->model->starts, 1, memory_order_relaxed);
    set_process(i, p);
    proa_status status = open_model(i, p, i->in, &i->model->settings, opening, &opened, err);
    int patience = 0;
    if (status == PROA_OK) {
        set_up(i, opened);
        proa_json_free(opened);
        serve_process(i, p, &broken);
        if (proa_pyinstance_is_closing(i)) patience = finish_process(i, p);
        else patience = broken.status == PROA_OK && !i->late ? 200 : 0;
    } else if (status == PROA_UNAVAILABLE) {
        patience = 200;
    } else if (status == PROA_DEADLINE) {
        broken = *err;
    }
    end_process(i, p, patience, &broken);
    if (status == PROA_UNAVAILABLE || status == PROA_DEADLINE)
        *err = i->why; /* how it ended is more informative */
    return status;
}

/* Waits before the next start; false if none is wanted. */
static bool wait_for_restart(proa_pyinstance *i, int failures)
{
    struct timespec until = proa_pyinstance_time_in((int64_t)BACKOFF_MS
                                                    << (failures < BACKOFF_MAX ? failures : BACKOFF_MAX));
    pthread_mutex_lock(&i->lock);
    while (!i->closing && pthread_cond_timedwait(&i->changed, &i->lock, &until) != ETIMEDOUT) {
    }
    bool again = !i->closing;
    pthread_mutex_unlock(&i->lock);
    return again;
}

static void note_failure(proa_pyinstance *i, const proa_err *err)
{
    pthread_mutex_lock(&i->lock);
    if (i->tried && !i->closing)
        PROA_LOG(ERROR, "Stub process '%s' does not start again: %s", i->name, err->text);
    i->why = *err;
    i->closing = i->closing || !i->tried; /* a model that fails to load is not retried */
    i->tried = true;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

void *proa_pyinstance_supervise(void *instance)
{
    proa_pyinstance *i = instance;
    proa_buf args, opening;
    int failures = 0;
    proa_buf_init(&args, (size_t)PROA_PYTHON_HEAD_MAX);
    proa_buf_init(&opening, (size_t)PROA_PYTHON_HEAD_MAX * 2);
    print_args(&args, i->model, i->name, i->device);
    opening_head(&opening, "serve", i->name, i->model->file, i->model->decoupled, args.ptr);
    do {
        proa_err err = {0};
        int64_t begin = proa_clock_ns();
        if (run_process(i, proa_buf_view(&opening), &err) != PROA_OK) note_failure(i, &err);
        failures = proa_clock_ns() - begin > STEADY_NS ? 0 : failures + 1;
    } while (wait_for_restart(i, failures - 1 < 0 ? 0 : failures - 1));
    proa_buf_release(&args);
    proa_buf_release(&opening);
    return NULL;
}

/* ---- auto_complete_config ---- */

typedef struct completion {
    const proa_pysettings *settings;
    const char *name;
    proa_str opening;
    char *config;
    proa_status status;
    proa_err err;
} completion;

static void run_completion(completion *c)
{
    proa_pyprocess *p;
    proa_json *head = NULL;
    char how[600];
    c->status = start_process(&p, c->settings, c->name, &c->err);
    if (c->status != PROA_OK) return;
    proa_python_message *in = proa_malloc(PROA_PYTHON_PACKET_MAX * sizeof *in);
    c->status = open_model(NULL, p, in, c->settings, c->opening, &head, &c->err);
    if (c->status == PROA_OK) {
        proa_str text = proa_json_str(proa_json_get(head, "config"));
        c->config = proa_malloc(text.len + 1);
        if (text.len) memcpy(c->config, text.ptr, text.len);
        c->config[text.len] = 0;
    }
    proa_json_free(head);
    proa_pyprocess_end(p, c->status == PROA_UNAVAILABLE ? 200 : 0, how, sizeof how);
    if (c->status == PROA_DEADLINE) snprintf(how, sizeof how, "was killed: %s", c->err.text);
    if (c->status == PROA_UNAVAILABLE || c->status == PROA_DEADLINE) {
        c->err = (proa_err){0};
        c->status = PROA_FAIL(&c->err, UNAVAILABLE, "Stub process '%s' is not healthy. It %s", c->name, how);
    }
    proa_pyprocess_free(p);
    free(in);
}

proa_status proa_pyinstance_complete(char **config_json, const proa_pysettings *settings, const char *name,
                                     const char *file, const char *args, proa_err *err)
{
    proa_buf opening;
    proa_buf_init(&opening, (size_t)PROA_PYTHON_HEAD_MAX * 2);
    opening_head(&opening, "complete", name, file, false, args);
    completion c = {.settings = settings, .name = name, .opening = proa_buf_view(&opening)};
    run_completion(&c);
    proa_buf_release(&opening);
    *config_json = c.config;
    if (c.status != PROA_OK && err) *err = c.err;
    return c.status;
}
