/* SPDX-License-Identifier: Apache-2.0
 * open.c - workers from the first instance to the last: opened, started, stopped, freed. */
#include "backends/process/worker.h"
#include "base/alloc.h"

/* ---- open and start ---- */

static proa_worker *worker_new(proa_worker_model *model)
{
    proa_worker *w = proa_calloc(1, sizeof *w);
    w->model = model;
    w->last = &w->instances;
    w->bls = proa_bls_new(w);
    w->devices = proa_devices_new();
    w->in = proa_malloc(PROA_CHANNEL_PACKET_MAX * sizeof *w->in);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    pthread_mutex_lock(&model->lock);
    w->next = model->workers;
    model->workers = w;
    pthread_mutex_unlock(&model->lock);
    return w;
}

proa_worker_instance *proa_worker_open(proa_worker_model *model, const proa_instance *instance)
{
    bool joins = model->settings.kind->shares && model->workers;
    proa_worker *w = joins ? model->workers : worker_new(model);
    proa_worker_instance *i = proa_calloc(1, sizeof *i);
    i->worker = w;
    i->name = proa_instance_name(instance);
    i->number = (uint64_t)w->count++;
    i->device = proa_instance_device(instance);
    i->kind = proa_instance_kind(instance);
    i->out = proa_malloc(PROA_CHANNEL_PACKET_MAX * sizeof *i->out);
    pthread_mutex_init(&i->busy, NULL);
    *w->last = i;
    w->last = &i->next;
    w->open++;
    w->name = w->count == 1 ? i->name : proa_served_model_name(model->model);
    return i;
}

static proa_status wait_opened(proa_worker *w, proa_err *err)
{
    pthread_mutex_lock(&w->lock);
    while (!w->tried) pthread_cond_wait(&w->changed, &w->lock);
    proa_status status = w->closing ? w->why.status : PROA_OK;
    if (status != PROA_OK && err) *err = w->why;
    pthread_mutex_unlock(&w->lock);
    return status;
}

proa_status proa_worker_start_all(const proa_worker_model *m, proa_err *err)
{
    for (proa_worker *w = m->workers; w; w = w->next) {
        w->started = pthread_create(&w->thread, NULL, proa_worker_supervise, w) == 0;
        if (!w->started) return PROA_FAIL(err, NO_MEMORY, "cannot start a thread");
    }
    for (proa_worker *w = m->workers; w; w = w->next) PROA_TRY(wait_opened(w, err));
    return PROA_OK;
}

/* ---- close ---- */

static void instance_free(proa_worker_instance *i)
{
    pthread_mutex_destroy(&i->busy);
    free(i->out);
    free(i);
}

static void worker_free(proa_worker *w)
{
    for (proa_worker_instance *i = w->instances, *next; i; i = next) {
        next = i->next;
        instance_free(i);
    }
    proa_bls_free(w->bls);
    proa_devices_free(w->devices);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->slots);
    free(w->in);
    free(w);
}

static void leave_list(proa_worker *w)
{
    pthread_mutex_lock(&w->model->lock);
    for (proa_worker **at = &w->model->workers; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    pthread_mutex_unlock(&w->model->lock);
}

static void stop_worker(proa_worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    if (w->process) proa_process_wake(w->process);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->started) pthread_join(w->thread, NULL);
    pthread_mutex_lock(&w->lock);
    while (w->pending_calls) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void proa_worker_close(proa_worker_instance *i)
{
    proa_worker *w = i->worker;
    pthread_mutex_lock(&w->lock);
    bool last = --w->open == 0;
    pthread_mutex_unlock(&w->lock);
    if (!last) return;
    stop_worker(w);
    leave_list(w);
    worker_free(w);
}
