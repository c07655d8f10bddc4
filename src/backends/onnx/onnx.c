/* SPDX-License-Identifier: Apache-2.0
 * onnx.c - the backend `onnxruntime`: a session for each device of a model, which its instances share; an execution is
 * one run over the joined inputs of all its requests. */
#include "backends/backends.h"
#include "backends/common.h"
#include "backends/onnx/device.h"
#include "base/alloc.h"
#include "base/log.h"
#include "serve/config/config.h"
#include <sched.h>
#include <string.h>

/* The session of a device; a session runs several requests at once. */
typedef struct device_session {
    int device; /* -1: the CPU */
    OrtSession *session;
    struct device_session *next;
} device_session;

/* An output that each run computes. */
typedef struct output {
    const proa_onnx_tensor *tensor;
    const Inference__ModelOutput *config; /* NULL: a sequence's state that clients do not see */
    bool scatter;                         /* a batch_output: cut by the shapes of an input */
} output;

typedef struct onnx_model {
    const proa_served_model *served;
    const proa_ort *ort;
    proa_arena arena;
    device_session *sessions; /* added while instances open, one at a time */
    proa_onnx_io io;          /* of the first session */
    output *outputs;
    const char **output_names; /* [outputs_count], as the next one */
    const proa_onnx_tensor **output_tensors;
    int outputs_count;
    atomic_bool alone; /* an output turned out not to be rows of the batch: requests are not joined any more */
} onnx_model;

/* What a run holds; arrays of the model's inputs and outputs. */
typedef struct run {
    const char **names;
    OrtValue **inputs;
    proa_buffer **held; /* joined bytes of an input, or NULL */
    int inputs_count;
    OrtValue **values; /* what the run gives, until it is a tensor */
    proa_tensor *outputs;
} run;

typedef struct onnx_instance {
    onnx_model *model;
    OrtSession *session;
    proa_onnx_device device;
    OrtRunOptions *options;
    atomic_int wanted;   /* requests of the run in progress that are not cancelled */
    atomic_int notified; /* cancels of them that have been handled */
    proa_arena arena;
    run run; /* of the execution in progress */
} onnx_instance;

/* ---- a run ---- */

static bool is_ragged(const onnx_model *m, const char *name)
{
    const Inference__ModelInput *in = proa_config_input(proa_served_model_config(m->served), name);
    return in && in->allow_ragged_batch;
}

/* Those of the model's inputs that the requests have: optional ones may be absent. */
static proa_status make_inputs(run *r, onnx_instance *in, proa_infer *const *requests, int count, proa_err *err)
{
    const onnx_model *m = in->model;
    r->inputs_count = 0;
    for (int i = 0; i < m->io.inputs_count; i++) {
        const proa_onnx_tensor *t = &m->io.inputs[i];
        if (!proa_infer_input(requests[0], t->name)) continue;
        int at = r->inputs_count++;
        r->names[at] = t->name;
        const proa_onnx_batch batch = {t, is_ragged(m, t->name), requests, count};
        PROA_TRY(proa_onnx_join(&r->inputs[at], &r->held[at], m->ort, &in->device, &batch, err));
    }
    return PROA_OK;
}

static void release_inputs(run *r, const onnx_model *m)
{
    for (int i = 0; i < r->inputs_count; i++) {
        if (r->inputs[i]) m->ort->ReleaseValue(r->inputs[i]);
        proa_buffer_drop(r->held[i]);
    }
}

static void release_outputs(run *r, const onnx_model *m)
{
    for (int i = 0; i < m->outputs_count; i++) {
        if (r->values[i]) m->ort->ReleaseValue(r->values[i]);
        proa_tensor_release(&r->outputs[i]);
    }
}

/* The values of a run as tensors. A scalar gets the dims of the configuration, which are all 1. */
static proa_status read_outputs(run *r, const onnx_instance *in, bool device_outputs, proa_err *err)
{
    const onnx_model *m = in->model;
    for (int i = 0; i < m->outputs_count; i++) {
        const output *o = &m->outputs[i];
        OrtValue *value = r->values[i];
        bool stays = device_outputs && o->tensor->type != PROA_TYPE_BYTES;
        r->values[i] = NULL;
        PROA_TRY(proa_onnx_tensor_of(&r->outputs[i], m->ort, stays ? in->device.memory : NULL, o->tensor,
                                     value, err));
        if (in->device.gpu >= 0 && !stays) proa_device_copies_add(true, r->outputs[i].bytes);
        if (r->outputs[i].rank > 0 || !o->config) continue;
        r->outputs[i].rank = (int32_t)o->config->n_dims;
        for (size_t d = 0; d < o->config->n_dims; d++) r->outputs[i].shape[d] = 1;
    }
    return PROA_OK;
}

/* A request of a run is cancelled: when all are, the run ends before its next node. */
static void on_cancel(proa_infer *r)
{
    onnx_instance *in = r->work;
    if (atomic_fetch_sub(&in->wanted, 1) == 1) {
        OrtStatus *status = in->model->ort->RunOptionsSetTerminate(in->options);
        if (status) in->model->ort->ReleaseStatus(status);
    }
    atomic_fetch_add(&in->notified, 1);
}

static void watch_requests(onnx_instance *in, proa_infer *const *requests, int count)
{
    atomic_store(&in->wanted, count);
    atomic_store(&in->notified, 0);
    for (int i = 0; i < count; i++) {
        requests[i]->work = in;
        proa_infer_watch(requests[i], on_cancel);
    }
}

/* Afterwards no callback runs, and the options are as before. */
static void unwatch_requests(onnx_instance *in, proa_infer *const *requests, int count)
{
    int called = 0;
    for (int i = 0; i < count; i++) called += !proa_infer_watch(requests[i], NULL);
    while (atomic_load(&in->notified) < called) sched_yield();
    OrtStatus *status = called == count ? in->model->ort->RunOptionsUnsetTerminate(in->options) : NULL;
    if (status) in->model->ort->ReleaseStatus(status);
}

/* Do all requests take outputs that are in the memory of a device? */
static bool all_take_device(proa_infer *const *requests, int count)
{
    for (int i = 0; i < count; i++)
        if (!requests[i]->device_replies) return false;
    return true;
}

/* On a GPU inputs and outputs are bound, so that those in its memory stay there. */
static proa_status run_once(const onnx_instance *in, run *r, bool device_outputs, proa_err *err)
{
    const onnx_model *m = in->model;
    const proa_onnx_run bound = {r->names,          r->inputs, r->inputs_count,  m->output_names,
                                 m->output_tensors, r->values, m->outputs_count, device_outputs};
    if (in->device.gpu >= 0)
        return proa_onnx_device_run(m->ort, in->session, in->options, &in->device, &bound, err);
    return proa_ort_check(m->ort,
                          m->ort->Run(in->session, in->options, r->names, (const OrtValue *const *)r->inputs,
                                      (size_t)r->inputs_count, m->output_names, (size_t)m->outputs_count,
                                      r->values),
                          err);
}

static proa_status run_session(onnx_instance *in, run *r, proa_infer *const *requests, int count, proa_err *err)
{
    bool device_outputs = in->device.memory && all_take_device(requests, count);
    proa_status status = make_inputs(r, in, requests, count, err);
    proa_infer_input_done(requests, count);
    watch_requests(in, requests, count);
    if (status == PROA_OK) status = run_once(in, r, device_outputs, err);
    unwatch_requests(in, requests, count);
    release_inputs(r, in->model);
    proa_infer_output_begins(requests, count);
    return status == PROA_OK ? read_outputs(r, in, device_outputs, err) : status;
}

/* ---- replies ---- */

/* Rows [first, first + rows) of a tensor whose first dimension is `total`, as an output of the reply. */
static void add_rows(proa_reply *reply, const proa_tensor *whole, int64_t first, int64_t rows, int64_t total)
{
    proa_tensor *t = proa_reply_add(reply, whole->name);
    const char *name = t->name;
    proa_tensor_share(t, whole);
    t->name = name;
    if (rows == total) return;
    t->shape[0] = rows;
    size_t row = total ? whole->bytes / (size_t)total : 0;
    t->data = whole->bytes ? whole->data + (size_t)first * row : NULL;
    t->bytes = (size_t)rows * row;
}

/* Moves *at past `rows` rows of a tensor of strings. */
static void skip_strings(const proa_tensor *whole, size_t *at, int64_t rows)
{
    proa_str s;
    int64_t left = rows * proa_shape_elements(whole->shape + 1, whole->rank - 1);
    while (left-- > 0 && proa_tensor_next_string(whole, at, &s)) continue;
}

/* As add_rows for strings, which are found by walking over them: those in [from, to) of the bytes. */
static void add_strings(proa_reply *reply, const proa_tensor *whole, size_t from, size_t to, int64_t rows)
{
    proa_tensor *t = proa_reply_add(reply, whole->name);
    const char *name = t->name;
    proa_tensor_share(t, whole);
    t->name = name;
    t->shape[0] = rows;
    t->data = to > from ? whole->data + from : NULL;
    t->bytes = to - from;
}

static bool is_wanted(const output *o, const proa_infer *r)
{
    return !o->config || proa_infer_wants(r, o->tensor->name);
}

/* Gives each request its rows of an output. */
static void cut_output(const output *o, const proa_tensor *whole, const proa_batch_replies *out, int64_t total)
{
    int64_t first = 0;
    size_t from, to = 0;
    bool strings = whole->type == PROA_TYPE_BYTES && out->count > 1;
    for (int i = 0; i < out->count; i++) {
        int64_t rows = out->count > 1 ? out->requests[i]->batch : total;
        from = to;
        if (strings) skip_strings(whole, &to, rows);
        if (is_wanted(o, out->requests[i])) {
            if (strings) add_strings(out->replies[i], whole, from, to, rows);
            else add_rows(out->replies[i], whole, first, rows, total);
        }
        first += rows;
    }
}

/* An output of joined requests must have one row for each row of the batch. */
static proa_status check_rows(const onnx_model *m, const run *r, int64_t total, proa_err *err)
{
    for (int i = 0; i < m->outputs_count; i++) {
        const proa_tensor *t = &r->outputs[i];
        if (m->outputs[i].scatter || (t->rank > 0 && t->shape[0] == total)) continue;
        return PROA_FAIL(err, INTERNAL, "output '%s' has %lld rows for a batch of %lld", t->name,
                         (long long)(t->rank ? t->shape[0] : 1), (long long)total);
    }
    return PROA_OK;
}

static void send_replies(const onnx_model *m, const run *r, proa_infer *const *requests, int count, int64_t total)
{
    proa_reply *replies[PROA_BATCH_REQUESTS_MAX];
    const proa_batch_replies out = {requests, replies, count};
    proa_err err = {0};
    for (int i = 0; i < count; i++) replies[i] = proa_reply_new(requests[i]);
    for (int i = 0; i < m->outputs_count; i++) {
        const output *o = &m->outputs[i];
        if (!o->scatter) cut_output(o, &r->outputs[i], &out, total);
        else if (proa_batch_output_scatter(m->served, o->tensor->name, &r->outputs[i], &out, &err) != PROA_OK)
            for (int k = 0; k < count; k++) replies[k]->error = err;
    }
    for (int i = 0; i < count; i++) proa_infer_reply(requests[i], replies[i], true);
}

static int64_t rows_of(proa_infer *const *requests, int count)
{
    int64_t rows = 0;
    for (int i = 0; i < count; i++) rows += requests[i]->batch;
    return rows;
}

static void execute_run(onnx_instance *in, run *r, proa_infer *const *requests, int count)
{
    onnx_model *m = in->model;
    proa_err err = {0};
    int64_t total = rows_of(requests, count);
    if (count == 1 && proa_backend_end_if_cancelled(requests[0])) return;
    memset(r->values, 0, (size_t)m->outputs_count * sizeof(OrtValue *));
    memset(r->outputs, 0, (size_t)m->outputs_count * sizeof r->outputs[0]);
    proa_status status = run_session(in, r, requests, count, &err);
    if (status == PROA_OK && count > 1 && (status = check_rows(m, r, total, &err)) != PROA_OK) {
        PROA_LOG(WARNING, "model '%s': %s; its requests are not joined any more",
                 proa_served_model_name(m->served), err.text);
        atomic_store(&m->alone, true);
    }
    if (status == PROA_OK) send_replies(m, r, requests, count, total);
    release_outputs(r, m);
    if (status == PROA_OK) return;
    if (count == 1 && !proa_backend_end_if_cancelled(requests[0])) proa_infer_fail(requests[0], &err);
    if (count > 1) /* one request's values may be what failed: the others must not */
        for (int i = 0; i < count; i++) execute_run(in, r, requests + i, 1);
}

static void execute_requests(void *instance_state, proa_infer *const *requests, int count)
{
    onnx_instance *in = instance_state;
    if (!atomic_load(&in->model->alone)) execute_run(in, &in->run, requests, count);
    else
        for (int i = 0; i < count; i++) execute_run(in, &in->run, requests + i, 1);
}

/* ---- opening ---- */

static bool is_scattered(const Inference__ModelConfig *c, const char *name)
{
    for (size_t i = 0; i < c->n_batch_output; i++)
        for (size_t j = 0; j < c->batch_output[i]->n_target_name; j++)
            if (strcmp(c->batch_output[i]->target_name[j], name) == 0) return true;
    return false;
}

static void add_output(onnx_model *m, const char *name, const Inference__ModelOutput *config)
{
    const proa_onnx_tensor *t = proa_onnx_find(m->io.outputs, m->io.outputs_count, name);
    for (int i = 0; i < m->outputs_count; i++)
        if (m->outputs[i].tensor == t) return; /* a state that is an output too */
    m->output_names[m->outputs_count] = t->name;
    m->output_tensors[m->outputs_count] = t;
    m->outputs[m->outputs_count++] = (output){t, config, is_scattered(proa_served_model_config(m->served), name)};
}

/* The outputs of the configuration, which was checked against the model, and the states of sequences. */
static void choose_outputs(onnx_model *m)
{
    const Inference__ModelConfig *c = proa_served_model_config(m->served);
    const Inference__ModelSequenceBatching *s = proa_config_sequence(c);
    m->outputs = PROA_ARENA_NEW(&m->arena, output, m->io.outputs_count);
    m->output_names = PROA_ARENA_NEW(&m->arena, const char *, m->io.outputs_count);
    m->output_tensors = PROA_ARENA_NEW(&m->arena, const proa_onnx_tensor *, m->io.outputs_count);
    for (size_t i = 0; i < c->n_output; i++) add_output(m, c->output[i]->name, c->output[i]);
    for (size_t i = 0; s && i < s->n_state; i++) add_output(m, s->state[i]->output_name, NULL);
}

/* The first session gives the model's inputs and outputs, which are checked once. */
static proa_status read_model(onnx_model *m, const OrtSession *session, proa_err *err)
{
    PROA_TRY(proa_onnx_read_io(&m->io, m->ort, session, &m->arena, err));
    PROA_TRY(proa_onnx_check(proa_served_model_config(m->served), &m->io, err));
    choose_outputs(m);
    return PROA_OK;
}

static proa_status open_session(OrtSession **out, onnx_model *m, int device, proa_err *err)
{
    PROA_TRY(proa_onnx_session_open(out, m->ort, m->served, device, err));
    return m->sessions ? PROA_OK : read_model(m, *out, err);
}

static proa_status session_for(OrtSession **out, onnx_model *m, int device, proa_err *err)
{
    OrtSession *session = NULL;
    for (const device_session *s = m->sessions; s && !session; s = s->next)
        if (s->device == device) session = s->session;
    *out = session;
    if (session) return PROA_OK;
    proa_status status = open_session(&session, m, device, err);
    if (status != PROA_OK) {
        if (session) m->ort->ReleaseSession(session);
        return status;
    }
    device_session *s = PROA_ARENA_NEW(&m->arena, device_session, 1);
    *s = (device_session){device, session, m->sessions};
    m->sessions = s;
    *out = session;
    return PROA_OK;
}

static void model_close(void *state)
{
    onnx_model *m = state;
    for (device_session *s = m->sessions; s; s = s->next) m->ort->ReleaseSession(s->session);
    proa_arena_release(&m->arena);
    free(m);
}

static proa_status model_open(void **state, proa_served_model *model, proa_err *err)
{
    const proa_ort *ort;
    PROA_TRY(proa_ort_open(&ort, proa_served_model_server(model), err));
    onnx_model *m = proa_calloc(1, sizeof *m);
    m->served = model, m->ort = ort;
    proa_arena_init(&m->arena);
    if (proa_config_uses_gpu(proa_served_model_config(model))) proa_served_model_set_device_inputs(model);
    *state = m;
    return PROA_OK;
}

static void instance_close(void *state)
{
    onnx_instance *in = state;
    proa_onnx_device_close(&in->device, in->model->ort);
    if (in->options) in->model->ort->ReleaseRunOptions(in->options);
    proa_arena_release(&in->arena);
    free(in);
}

static void make_run(run *r, const onnx_model *m, proa_arena *arena)
{
    r->names = PROA_ARENA_NEW(arena, const char *, m->io.inputs_count);
    r->inputs = PROA_ARENA_NEW(arena, OrtValue *, m->io.inputs_count);
    r->held = PROA_ARENA_NEW(arena, proa_buffer *, m->io.inputs_count);
    r->values = PROA_ARENA_NEW(arena, OrtValue *, m->outputs_count);
    r->outputs = PROA_ARENA_NEW(arena, proa_tensor, m->outputs_count);
}

static proa_status instance_open(void **state, void *model_state, const proa_instance *instance, proa_err *err)
{
    onnx_model *m = model_state;
    onnx_instance *in = proa_calloc(1, sizeof *in);
    in->model = m;
    proa_arena_init(&in->arena);
    proa_status status = session_for(&in->session, m, proa_instance_device(instance), err);
    if (status == PROA_OK)
        status = proa_onnx_device_open(&in->device, m->ort, proa_instance_device(instance), err);
    if (status == PROA_OK)
        status = proa_onnx_run_options(&in->options, m->ort, proa_served_model_config(m->served), err);
    if (status != PROA_OK) {
        instance_close(in);
        return status;
    }
    make_run(&in->run, m, &in->arena);
    *state = in;
    return PROA_OK;
}

const proa_backend proa_backend_onnxruntime = {.name = "onnxruntime",
                                               .flags = PROA_BACKEND_GPU,
                                               .complete = proa_onnx_complete,
                                               .model_open = model_open,
                                               .model_close = model_close,
                                               .instance_open = instance_open,
                                               .instance_close = instance_close,
                                               .execute = execute_requests};
