/* SPDX-License-Identifier: Apache-2.0
 * rig.h - a backend without a server: a model made from a configuration's text, requests, and their replies. */
#ifndef RIG_H
#define RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backends.h"
#include "backends/llm/llm.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "proto/pbtxt.h"
#include "serve/scheduler.h"
#include "serve/stats/stats.h"
#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#define MODELS PROA_SOURCE_DIR "/models/"
#define GOLDEN PROA_SOURCE_DIR "/tests/golden/"

typedef struct rig {
    proa_served_model model;
    const proa_backend *backend;
    proa_instance instance;
    proa_arena arena;
    proa_err err;
} rig;

static inline void rig_io(proa_io *io, const char *name, proa_type type, size_t n, const int64_t *dims,
                          const Inference__ModelTensorReshape *reshape, bool batched)
{
    *io = (proa_io){.name = name, .type = type};
    if (batched) io->shape[io->rank++] = -1, io->inner[io->inner_rank++] = -1;
    for (size_t i = 0; i < n; i++) io->shape[io->rank++] = dims[i];
    io->reshaped = reshape != NULL;
    if (reshape)
        for (size_t i = 0; i < reshape->n_shape; i++) io->inner[io->inner_rank++] = reshape->shape[i];
    else
        for (size_t i = 0; i < n; i++) io->inner[io->inner_rank++] = dims[i];
}

/* What the repository makes of a configuration. */
static inline void rig_model(rig *g)
{
    proa_served_model *m = &g->model;
    const Inference__ModelConfig *c = m->config;
    m->batch_max = c->max_batch_size;
    m->decoupled = c->model_transaction_policy && c->model_transaction_policy->decoupled;
    m->flags = m->backend->flags;
    m->inputs = PROA_ARENA_NEW(&g->arena, proa_io, (int64_t)c->n_input);
    m->outputs = PROA_ARENA_NEW(&g->arena, proa_io, (int64_t)c->n_output);
    m->inputs_count = (int)c->n_input, m->outputs_count = (int)c->n_output;
    for (size_t i = 0; i < c->n_input; i++) {
        const Inference__ModelInput *in = c->input[i];
        rig_io(&m->inputs[i], in->name, (proa_type)in->data_type, in->n_dims, in->dims, in->reshape,
               m->batch_max > 0);
        m->inputs[i].optional = in->optional;
        m->required_count += !in->optional;
    }
    for (size_t i = 0; i < c->n_output; i++) {
        const Inference__ModelOutput *o = c->output[i];
        rig_io(&m->outputs[i], o->name, (proa_type)o->data_type, o->n_dims, o->dims, o->reshape,
               m->batch_max > 0);
    }
    m->instances = &g->instance;
    m->instances_count = 1;
    g->instance.model = m;
    m->stats = proa_stats_new();
    atomic_init(&m->refs, 1);
    atomic_init(&m->state_now, PROA_STATE_READY);
}

/* The status of opening; on success rig_close is needed, on failure only rig_release. */
/* Language models are compared bit for bit with engines of their own, in "exact" arithmetic unless the test says. */
static inline const char *rig_exact(proa_arena *arena, const proa_backend *backend, const char *config)
{
    const char *const llm[] = {"engine", "fastertransformer", "tensorrtllm"};
    bool found = false;
    for (size_t i = 0; i < PROA_COUNT(llm); i++) found = found || strcmp(backend->name, llm[i]) == 0;
    if (!found || strstr(config, "\"dtype\"") || strstr(config, "\"data_type\"")) return config;
    return proa_arena_printf(arena, "%s parameters { key: \"dtype\" value { string_value: \"exact\" } }", config);
}

static inline proa_status rig_try(rig *g, const proa_backend *backend, const char *config, const char *folder)
{
    ProtobufCMessage *message = NULL;
    memset(g, 0, sizeof *g);
    proa_arena_init(&g->arena);
    g->backend = backend;
    g->model.backend = backend;
    g->model.name = "m";
    g->model.version = 1;
    g->model.path = folder;
    g->model.version_path = folder;
    config = rig_exact(&g->arena, backend, config);
    if (proa_pbtxt_parse(&message, &inference__model_config__descriptor, proa_str_c(config), "config",
                         &g->arena, &g->err) != PROA_OK)
        fail_msg("%s", g->err.text);
    g->model.config = (Inference__ModelConfig *)message;
    if (backend->complete) PROA_TRY(backend->complete(g->model.config, folder, &g->arena, &g->err));
    PROA_TRY(backend->model_open(&g->model.state, &g->model, &g->err));
    rig_model(g);
    PROA_TRY(backend->instance_open(&g->instance.state, g->model.state, &g->instance, &g->err));
    return proa_scheduler_new(&g->model.scheduler, &g->model, &g->err);
}

static inline void rig_release(rig *g)
{
    proa_stats_free(g->model.stats);
    proa_arena_release(&g->model.arena);
    proa_arena_release(&g->arena);
}

static inline void rig_open(rig *g, const proa_backend *backend, const char *config, const char *folder)
{
    if (rig_try(g, backend, config, folder) != PROA_OK) fail_msg("open: %s", g->err.text);
}

/* ---- requests ---- */

/* What a request's sink has heard. */
typedef struct heard {
    pthread_mutex_t lock;
    pthread_cond_t more;
    proa_reply *reply[4096];
    int count;
    bool final;
    bool broken; /* a reply after the final one, or too many */
    proa_infer *infer;
    struct heard *next, **link; /* of rig_requests */
} heard;

/* The requests that were not forgotten: a failed assertion leaves a test before it forgets its own. */
static heard *rig_requests;

/* Called by any thread: an assertion would leave the wrong one, so wait_for makes it. */
static inline void hear(proa_infer *r, proa_reply *reply, bool final)
{
    heard *h = r->user;
    pthread_mutex_lock(&h->lock);
    h->broken = h->broken || h->final || (reply && h->count == 4096);
    if (reply && h->count < 4096) h->reply[h->count++] = reply;
    else proa_reply_free(reply);
    h->final = h->final || final;
    pthread_cond_broadcast(&h->more);
    pthread_mutex_unlock(&h->lock);
}

static inline proa_infer *ask(void)
{
    proa_infer *r = proa_infer_new();
    heard *h = calloc(1, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->more, NULL);
    h->infer = r;
    h->next = rig_requests;
    h->link = &rig_requests;
    if (h->next) h->next->link = &h->next;
    rig_requests = h;
    r->on_reply = hear;
    r->user = h;
    return r;
}

static inline proa_tensor *put(proa_infer *r, const char *name, proa_type type, const void *data,
                               size_t bytes, int32_t rank, const int64_t *shape)
{
    proa_tensor *t = proa_infer_add_input(r, proa_str_c(name));
    t->type = type;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->bytes = bytes;
    if (!bytes) return t;
    t->buffer = proa_buffer_new(bytes);
    memcpy(t->buffer->data, data, bytes);
    t->data = t->buffer->data;
    return t;
}

static inline void put_texts(proa_infer *r, const char *name, const char *const *texts, int64_t count,
                             int32_t rank, const int64_t *shape)
{
    proa_buf buf;
    proa_buf_init(&buf, SIZE_MAX / 2);
    for (int64_t i = 0; i < count; i++) {
        uint32_t len = (uint32_t)strlen(texts[i]);
        proa_buf_append(&buf, &len, sizeof len);
        proa_buf_append(&buf, texts[i], len);
    }
    put(r, name, PROA_TYPE_BYTES, buf.ptr, buf.len, rank, shape);
    proa_buf_release(&buf);
}

static inline void put_text(proa_infer *r, const char *name, const char *text)
{
    put_texts(r, name, &text, 1, 1, (int64_t[]){1});
}

static inline void put_i32(proa_infer *r, const char *name, const int32_t *values, int64_t count)
{
    put(r, name, PROA_TYPE_INT32, values, (size_t)count * 4, 1, &count);
}

static inline void put_int(proa_infer *r, const char *name, int32_t value)
{
    put_i32(r, name, &value, 1);
}

static inline void put_float(proa_infer *r, const char *name, float value)
{
    put(r, name, PROA_TYPE_FP32, &value, 4, 1, (int64_t[]){1});
}

static inline void put_bool(proa_infer *r, const char *name, bool value)
{
    put(r, name, PROA_TYPE_BOOL, &value, 1, 1, (int64_t[]){1});
}

static inline void put_u64(proa_infer *r, const char *name, uint64_t value)
{
    put(r, name, PROA_TYPE_UINT64, &value, 8, 1, (int64_t[]){1});
}

static inline void param_text(proa_infer *r, const char *name, const char *value)
{
    proa_infer_param *p = proa_infer_add_param(r, proa_str_c(name));
    p->kind = PROA_PARAM_STRING;
    p->s = proa_str_c(value);
}

static inline void param_int(proa_infer *r, const char *name, int64_t value)
{
    proa_infer_param *p = proa_infer_add_param(r, proa_str_c(name));
    p->kind = PROA_PARAM_INT;
    p->i = value;
}

static inline void param_double(proa_infer *r, const char *name, double value)
{
    proa_infer_param *p = proa_infer_add_param(r, proa_str_c(name));
    p->kind = PROA_PARAM_DOUBLE;
    p->d = value;
}

/* Checks and hands it to the scheduler, as the server would; a refusal becomes a reply. */
static inline void start(rig *g, proa_infer *r)
{
    proa_err err = {.status = PROA_OK};
    r->model = proa_served_model_hold(&g->model);
    proa_status status = proa_infer_check(&g->model, r, &err);
    if (status == PROA_OK) status = proa_scheduler_enqueue(g->model.scheduler, r, &err);
    if (status == PROA_OK) return;
    proa_reply *reply = proa_reply_new(r);
    reply->error = err;
    hear(r, reply, true);
}

static inline heard *wait_for(proa_infer *r)
{
    heard *h = r->user;
    pthread_mutex_lock(&h->lock);
    while (!h->final) pthread_cond_wait(&h->more, &h->lock);
    bool broken = h->broken;
    pthread_mutex_unlock(&h->lock);
    if (broken) fail_msg("a reply after the final one, or more than 4096");
    return h;
}

static inline heard *run(rig *g, proa_infer *r)
{
    start(g, r);
    return wait_for(r);
}

static inline void forget(proa_infer *r)
{
    heard *h = r->user;
    for (int i = 0; i < h->count; i++) proa_reply_free(h->reply[i]);
    *h->link = h->next;
    if (h->next) h->next->link = h->link;
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->more);
    free(h);
    proa_infer_drop(r);
}

/* Ends the requests that a failed assertion left behind: each holds its model, whose close waits for that. */
static inline void rig_end_requests(rig *g)
{
    for (heard *h = rig_requests, *next; h; h = next) {
        next = h->next;
        if (h->infer->model != &g->model) continue;
        proa_infer_cancel(h->infer);
        pthread_mutex_lock(&h->lock);
        while (!h->final) pthread_cond_wait(&h->more, &h->lock);
        pthread_mutex_unlock(&h->lock);
        forget(h->infer);
    }
}

static inline void rig_close(rig *g)
{
    rig_end_requests(g);
    proa_scheduler_stop(g->model.scheduler);
    while (atomic_load(&g->model.refs) > 1) usleep(1000);
    proa_scheduler_free(g->model.scheduler);
    if (g->backend->instance_close) g->backend->instance_close(g->instance.state);
    g->backend->model_close(g->model.state);
    rig_release(g);
}

/* ---- replies ---- */

static inline proa_reply *only(const heard *h)
{
    assert_int_equal(h->count, 1);
    if (h->reply[0]->error.status != PROA_OK) fail_msg("error: %s", h->reply[0]->error.text);
    return h->reply[0];
}

static inline const proa_tensor *out(const proa_reply *reply, const char *name)
{
    const proa_tensor *t = proa_reply_output(reply, name);
    if (!t) fail_msg("no output '%s'", name);
    return t;
}

static inline const int32_t *ints(const proa_reply *reply, const char *name)
{
    const proa_tensor *t = out(reply, name);
    assert_true(t->type == PROA_TYPE_INT32 || t->type == PROA_TYPE_UINT32);
    return (const void *)t->data;
}

static inline const float *floats(const proa_reply *reply, const char *name)
{
    const proa_tensor *t = out(reply, name);
    assert_int_equal(t->type, PROA_TYPE_FP32);
    return (const void *)t->data;
}

static inline proa_str text_at(const proa_reply *reply, const char *name, int64_t i)
{
    const proa_tensor *t = out(reply, name);
    proa_str text = {NULL, 0};
    size_t at = 0;
    for (int64_t k = 0; k <= i; k++) assert_true(proa_tensor_next_string(t, &at, &text));
    return text;
}

static inline void assert_text(const proa_reply *reply, const char *name, int64_t i, const char *want)
{
    proa_str text = text_at(reply, name, i);
    if (!proa_str_is(text, want))
        fail_msg("'%s'[%d] is '%.*s', not '%s'", name, (int)i, (int)text.len, text.ptr, want);
}

static inline void assert_shape(const proa_reply *reply, const char *name, int32_t rank, int64_t a, int64_t b,
                                int64_t c)
{
    const proa_tensor *t = out(reply, name);
    const int64_t want[] = {a, b, c};
    assert_int_equal(t->rank, rank);
    for (int32_t i = 0; i < rank; i++) assert_int_equal(t->shape[i], want[i]);
}

/* The request fails with this status and these words. */
static inline void assert_refused(rig *g, proa_infer *r, proa_status status, const char *words)
{
    heard *h = run(g, r);
    assert_int_equal(h->count, 1);
    const proa_err *err = &h->reply[0]->error;
    if (err->status != status || !strstr(err->text, words))
        fail_msg("status %d '%s', not %d '%s'", err->status, err->text, status, words);
    forget(r);
}

/* ---- the engine called directly, to compare with ---- */

typedef struct direct {
    proa_engine *engine;
    int32_t ids[16][512];
    float logprobs[16][512];
    int64_t count[16];
    float score[16];
    double sum[16];
    char text[16][4096];
    int32_t sequences;
    float rows[16384];
    size_t rows_len;
    proa_finish finish[16];
} direct;

static inline void on_direct(const proa_event *e)
{
    direct *d = e->arg;
    if (e->kind == PROA_EVENT_TOKEN) {
        int32_t s = e->sequence;
        if (s >= d->sequences) d->sequences = s + 1;
        d->logprobs[s][d->count[s]] = e->logprob;
        d->ids[s][d->count[s]++] = e->id;
        strncat(d->text[s], e->text, sizeof d->text[s] - strlen(d->text[s]) - 1);
    } else if (e->kind == PROA_EVENT_ROWS) {
        for (int64_t i = 0; i < e->rows_count * e->columns; i++) d->rows[d->rows_len++] = e->rows[i];
    } else if (e->kind == PROA_EVENT_PROMPT) {
        for (int64_t i = 0; i < e->rows_count; i++) d->rows[d->rows_len++] = e->prompt_logprobs[i];
    } else if (e->kind == PROA_EVENT_DONE) {
        bool whole = d->sequences == 0;
        d->finish[0] = e->finish;
        for (int32_t i = 0; i < e->beams_count; i++) {
            const proa_beam_result *b = &e->beams[i];
            d->finish[i] = b->finish;
            d->score[i] = b->score;
            d->sum[i] = b->logprob_sum;
            if (!whole) continue;
            d->sequences = e->beams_count;
            d->count[i] = b->count;
            memcpy(d->ids[i], b->ids, (size_t)b->count * sizeof *b->ids);
            snprintf(d->text[i], sizeof d->text[i], "%s", b->text ? b->text : "");
        }
    }
}

static inline void direct_open(direct *d, const char *folder)
{
    proa_err err = {.status = PROA_OK};
    memset(d, 0, sizeof *d);
    if (proa_engine_open(&d->engine, folder, &(proa_engine_options){.dtype = "exact"}, &err) != PROA_OK)
        fail_msg("%s", err.text);
}

static inline void direct_run(direct *d, proa_request request)
{
    proa_err err = {.status = PROA_OK};
    proa_engine *engine = d->engine;
    memset(d, 0, sizeof *d);
    d->engine = engine;
    request.on_event = on_direct;
    request.arg = d;
    if (proa_engine_submit(engine, &request, NULL, &err) != PROA_OK) fail_msg("%s", err.text);
    proa_engine_run(engine);
}

static inline void direct_close(direct *d)
{
    proa_engine_close(d->engine);
}

#endif
