/* SPDX-License-Identifier: Apache-2.0
 * transform.c - the backend `transform`: features of texts and simple arithmetic as a step of an ensemble. Each request
 * is on its own, so a batch may be ragged. What a step only cuts out or renames goes on by reference. */
#include "backends/backends.h"
#include "backends/tensors/io_table.h"
#include "backends/transform/transform.h"

#include "base/alloc.h"
#include "base/file.h"
#include <string.h>

/* ---- a request through the steps ---- */

typedef struct run {
    const proa_transform_program *p;
    const proa_infer *r;
    proa_reply *reply;
    proa_transform_value *values;
    proa_gpu_stream *stream;   /* NULL: on the CPU */
    proa_transform_held *held; /* with stream */
} run;

/* Strings are handed on by the host; numbers are brought to the GPU where they are not there. */
static proa_status bring_inputs(const run *w, proa_err *err)
{
    for (int32_t i = 0; w->stream && i < w->p->inputs_count; i++) {
        const proa_tensor *t = proa_infer_input(w->r, w->p->values[i].name);
        proa_transform_value *v = &w->values[i];
        const void *data;
        if (!t || t->type == PROA_TYPE_BYTES || !t->bytes) continue;
        PROA_TRY(proa_gpu_input(w->stream, t, &v->buffer, &data, err));
        w->held->buffers[w->held->count++] = v->buffer;
        v->data = data;
    }
    return PROA_OK;
}

static void set_inputs(const run *w)
{
    for (int32_t i = 0; i < w->p->inputs_count; i++) {
        const proa_tensor *t = proa_infer_input(w->r, w->p->values[i].name);
        proa_transform_value *v = &w->values[i];
        *v = (proa_transform_value){.name = w->p->values[i].name, .type = w->p->values[i].type};
        if (!t) continue; /* already refused by the check of the request: all inputs are needed */
        v->rank = t->rank;
        memcpy(v->shape, t->shape, sizeof v->shape);
        v->data = t->data;
        v->bytes = t->bytes;
        v->buffer = t->buffer;
    }
}

static uint64_t steps_needed(const run *w)
{
    uint64_t needs = 0;
    for (int32_t i = 0; i < w->p->outputs_count; i++) {
        const proa_transform_output *o = &w->p->outputs[i];
        if (o->value >= w->p->inputs_count && proa_infer_wants(w->r, o->name))
            needs |= w->p->steps[o->value - w->p->inputs_count].needs;
    }
    return needs;
}

/* Adds an output that shares the bytes of an input, from `at` on. */
static void add_shared(proa_reply *reply, const proa_transform_value *v)
{
    proa_tensor *t = proa_reply_add(reply, v->name);
    t->type = v->type;
    t->rank = v->rank;
    memcpy(t->shape, v->shape, sizeof t->shape);
    if (!v->bytes) return;
    t->buffer = proa_buffer_hold(v->buffer);
    t->data = v->data;
    t->bytes = v->bytes;
}

/* Where the result of a step is, if it is inside an argument. */
static bool find_within(const run *w, const proa_transform_step *s, const proa_transform_value *args,
                        proa_transform_value *out)
{
    int64_t at = s->operation->within ? s->operation->within(s, args, out) : -1;
    bool wanted = s->is_output && proa_infer_wants(w->r, out->name);
    if (at < 0 || (wanted && out->bytes && !args[0].buffer)) return false;
    out->data = args[0].data ? args[0].data + at : NULL;
    out->buffer = args[0].buffer;
    if (wanted) add_shared(w->reply, out);
    return true;
}

static void make_bytes(const run *w, const proa_transform_step *s, const proa_transform_value *args,
                       proa_transform_value *out)
{
    void *to = NULL;
    if (s->is_output && proa_infer_wants(w->r, out->name))
        out->buffer = proa_reply_add_array(w->reply, out->name, out->type, out->shape, out->rank, &to)->buffer;
    else if (out->bytes) to = proa_arena_alloc(&w->reply->arena, out->bytes);
    out->data = to;
    if (out->bytes) s->operation->run(s, args, out, to, &w->reply->arena);
}

/* The same on a GPU. */
static proa_status launch_step(const run *w, const proa_transform_step *s, const proa_transform_value *args,
                               proa_transform_value *out, proa_err *err)
{
    PROA_TRY(proa_gpu_buffer(w->stream, &out->buffer, out->bytes, err));
    w->held->buffers[w->held->count++] = out->buffer;
    out->data = out->buffer->data;
    if (out->bytes) PROA_TRY(s->operation->launch(s, args, out, w->stream, w->held, err));
    if (s->is_output && proa_infer_wants(w->r, out->name))
        proa_gpu_output(w->reply, &(proa_output_spec){out->name, out->type, out->shape, out->rank},
                        out->buffer, 0);
    return PROA_OK;
}

static proa_status run_step(const run *w, const proa_transform_step *s, proa_transform_value *out, proa_err *err)
{
    proa_transform_value *args = PROA_ARENA_NEW(&w->reply->arena, proa_transform_value, s->args_count);
    for (int32_t i = 0; i < s->args_count; i++) args[i] = w->values[s->args[i]];
    out->name = w->p->values[out - w->values].name;
    PROA_TRY(s->operation->shape(s, args, out, err));
    if (out->type == PROA_TYPE_BYTES) { /* only handed on */
        out->bytes = args[0].bytes;
    } else {
        int64_t n = proa_shape_elements(out->shape, out->rank), size = proa_type_bytes(out->type);
        if (n < 0 || n > PROA_TRANSFORM_BYTES_MAX / size)
            return PROA_TRANSFORM_FAIL(err, s, "'%s' would have more than %lld bytes", out->name,
                                       (long long)PROA_TRANSFORM_BYTES_MAX);
        out->bytes = (size_t)(n * size);
    }
    if (find_within(w, s, args, out)) return PROA_OK;
    if (w->stream) return launch_step(w, s, args, out, err);
    make_bytes(w, s, args, out);
    return PROA_OK;
}

static proa_status run_steps(run *w, proa_err *err)
{
    const proa_transform_program *p = w->p;
    w->values = PROA_ARENA_NEW(&w->reply->arena, proa_transform_value, (int64_t)p->inputs_count + p->steps_count);
    set_inputs(w);
    PROA_TRY(bring_inputs(w, err));
    uint64_t needs = steps_needed(w);
    for (int32_t i = 0; i < p->steps_count; i++)
        if (needs >> i & 1) PROA_TRY(run_step(w, &p->steps[i], &w->values[p->inputs_count + i], err));
    for (int32_t i = 0; i < p->outputs_count; i++) /* inputs that are outputs too */
        if (p->outputs[i].value < p->inputs_count && proa_infer_wants(w->r, p->outputs[i].name))
            add_shared(w->reply, &w->values[p->outputs[i].value]);
    return PROA_OK;
}

proa_status proa_transform_run(const proa_transform_program *p, const proa_infer *r, proa_reply *reply,
                               proa_err *err)
{
    run w = {.p = p, .r = r, .reply = reply};
    return run_steps(&w, err);
}

proa_status proa_transform_launch(const proa_transform_program *p, const proa_infer *r, proa_reply *reply,
                                  proa_gpu_stream *stream, proa_transform_held *held, proa_err *err)
{
    run w = {.p = p, .r = r, .reply = reply, .stream = stream, .held = held};
    *held = (proa_transform_held){
        PROA_ARENA_NEW(&reply->arena, proa_buffer *,
                       (int64_t)p->inputs_count + (int64_t)p->steps_count * (1 + PROA_TRANSFORM_HELD_MAX)),
        0};
    return run_steps(&w, err);
}

void proa_transform_held_release(proa_transform_held *held)
{
    while (held->count > 0) proa_buffer_drop(held->buffers[--held->count]);
}

/* ---- the model ---- */

typedef struct transform {
    proa_arena arena;
    proa_transform_program program;
    bool on_gpu; /* instances of kind GPU compute there */
} transform;

typedef struct transform_instance {
    const transform *model;
    proa_gpu_stream stream; /* of an instance on a GPU, else zeroed */
} transform_instance;

/* The folder above the version's. */
static const char *model_path(const char *version_path, proa_arena *arena)
{
    const char *end = strrchr(version_path, '/');
    size_t len = end ? (size_t)(end - version_path) : 0;
    return len ? proa_arena_strdup(arena, (proa_str){version_path, len}) : ".";
}

/* model NULL: the one that is being completed. */
static proa_status read_program(proa_transform_program *p, const proa_served_model *model,
                                const Inference__ModelConfig *config, const char *version_path,
                                proa_arena *arena, proa_err *err)
{
    const char *steps = proa_config_parameter(config, "steps");
    p->model_name = config->name;
    p->version_path = version_path;
    p->model_path = model_path(version_path, arena);
    p->external_paths = proa_served_model_external(model);
    if (!steps)
        return PROA_FAIL(err, INVALID, "model '%s' of backend 'transform' needs the parameter 'steps'",
                         config->name);
    return proa_transform_read(p, proa_str_c(steps), config, arena, err);
}

static int64_t *copy_shape(const proa_transform_value *v, proa_arena *arena)
{
    int64_t *dims = PROA_ARENA_NEW(arena, int64_t, v->rank);
    if (v->rank) memcpy(dims, v->shape, (size_t)v->rank * sizeof *dims);
    return dims;
}

static void complete_outputs(Inference__ModelConfig *config, const proa_transform_program *p, proa_arena *arena)
{
    proa_io_row *rows = PROA_ARENA_NEW(arena, proa_io_row, (int64_t)p->outputs_count + 1);
    for (int32_t i = 0; i < p->outputs_count; i++) {
        const proa_transform_value *v = &p->values[p->outputs[i].value];
        rows[i] = (proa_io_row){.name = v->name, .type = (Inference__DataType)v->type};
    }
    proa_config_outputs(config, rows, arena);
    for (int32_t i = 0; i < p->outputs_count; i++) {
        const proa_transform_value *v = &p->values[p->outputs[i].value];
        config->output[i]->n_dims = (size_t)v->rank;
        config->output[i]->dims = copy_shape(v, arena);
    }
}

/* Outputs that the configuration leaves open come from the program. */
static proa_status complete_config(Inference__ModelConfig *config, const char *version_path,
                                   proa_arena *arena, proa_err *err)
{
    proa_transform_program p = {.model_name = NULL};
    if (config->n_output || !config->n_input) return PROA_OK;
    proa_status status = read_program(&p, NULL, config, version_path, arena, err);
    if (status == PROA_OK) complete_outputs(config, &p, arena);
    proa_transform_close(&p);
    return status;
}

static void close_transform(void *state)
{
    transform *t = state;
    if (!t) return;
    proa_transform_close(&t->program);
    proa_arena_release(&t->arena);
    free(t);
}

static bool reads_texts(const proa_transform_program *p)
{
    for (int32_t i = 0; i < p->steps_count; i++)
        if (p->steps[i].features) return true;
    return false;
}

static proa_status open_transform(void **state, proa_served_model *model, proa_err *err)
{
    const Inference__ModelConfig *config = proa_served_model_config(model);
    transform *t = proa_calloc(1, sizeof *t);
    proa_arena_init(&t->arena);
    proa_status status = read_program(&t->program, model, config, proa_served_model_version_path(model),
                                      &t->arena, err);
    if (status == PROA_OK) status = proa_transform_check(&t->program, config, err);
    if (status != PROA_OK) return close_transform(t), status;
    t->on_gpu = proa_config_uses_gpu(config);
    if (t->on_gpu) {
        proa_served_model_set_device_inputs(model);
        proa_served_model_set_long(model);
    }
    if (reads_texts(&t->program)) proa_served_model_set_inline_rows(model, PROA_TRANSFORM_BRIEF_ROWS);
    *state = t;
    return PROA_OK;
}

static void close_instance(void *state)
{
    transform_instance *in = state;
    proa_gpu_stream_close(&in->stream);
    free(in);
}

static proa_status open_on_gpu(transform_instance *in, int gpu, proa_err *err)
{
    const proa_transform_program *p = &in->model->program;
    PROA_TRY(proa_gpu_stream_open(&in->stream, gpu, err));
    for (int32_t i = 0; i < p->steps_count; i++)
        if (p->steps[i].operation->prepare)
            PROA_TRY(p->steps[i].operation->prepare(&p->steps[i], &in->stream, err));
    return PROA_OK;
}

static proa_status open_instance(void **state, void *model_state, const proa_instance *instance, proa_err *err)
{
    transform_instance *in = proa_calloc(1, sizeof *in);
    int gpu = proa_instance_device(instance);
    in->model = model_state;
    proa_status status = in->model->on_gpu && gpu >= 0 ? open_on_gpu(in, gpu, err) : PROA_OK;
    if (status != PROA_OK) return close_instance(in), status;
    *state = in;
    return PROA_OK;
}

static void answer_request(const transform *t, proa_infer *r)
{
    proa_err err = {.status = PROA_OK};
    proa_reply *reply = proa_reply_new(r);
    if (t->on_gpu)
        err.status = proa_infer_inputs_to_host(r, &err); /* the model has instances of both kinds */
    if (err.status != PROA_OK || proa_transform_run(&t->program, r, reply, &err) != PROA_OK)
        reply->error = err;
    proa_infer_reply(r, reply, true);
}

/* All requests are launched before the wait; the replies hold the memory of the lists. */
static void execute_on_gpu(transform_instance *in, proa_infer *const *requests, int count)
{
    proa_reply **replies = proa_calloc((size_t)count, sizeof(proa_reply *));
    proa_transform_held *held = proa_calloc((size_t)count, sizeof *held);
    proa_err err = {.status = PROA_OK};
    proa_gpu_stream_begin(&in->stream);
    for (int i = 0; i < count; i++) {
        replies[i] = proa_reply_new(requests[i]);
        err.status = PROA_OK;
        if (proa_transform_launch(&in->model->program, requests[i], replies[i], &in->stream, &held[i], &err) !=
            PROA_OK)
            replies[i]->error = err;
    }
    proa_infer_input_done(requests, count);
    proa_status status = proa_gpu_stream_wait(&in->stream, &err);
    for (int i = 0; i < count; i++) {
        if (status != PROA_OK && replies[i]->error.status == PROA_OK) replies[i]->error = err;
        proa_transform_held_release(&held[i]);
        proa_infer_reply(requests[i], replies[i], true);
    }
    free(replies), free(held);
}

static void execute_transform(void *instance_state, proa_infer *const *requests, int count)
{
    transform_instance *in = instance_state;
    if (in->stream.device) execute_on_gpu(in, requests, count);
    for (int i = 0; !in->stream.device && i < count; i++) answer_request(in->model, requests[i]);
}

const proa_backend proa_backend_transform = {.name = "transform",
                                             .flags = PROA_BACKEND_INLINE | PROA_BACKEND_GPU,
                                             .complete = complete_config,
                                             .model_open = open_transform,
                                             .model_close = close_transform,
                                             .instance_open = open_instance,
                                             .instance_close = close_instance,
                                             .execute = execute_transform};
