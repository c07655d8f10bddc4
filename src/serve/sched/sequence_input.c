/* SPDX-License-Identifier: Apache-2.0
 * sequence_input.c - the control and state tensors that sequence batching adds to requests. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/limits.h"
#include "serve/sched/sequence.h"
#include <string.h>

typedef Inference__ModelSequenceBatching__Control control;

/* ---- at load ---- */

static void new_tensor(proa_tensor *t, const char *name, proa_type type, bool batched, size_t bytes)
{
    *t = (proa_tensor){.name = name, .type = type, .rank = 1 + batched, .shape = {1, 1}, .bytes = bytes};
    t->buffer = proa_buffer_new(bytes);
    t->data = t->buffer->data;
    memset(t->buffer->data, 0, bytes);
}

static void set_values(proa_sequence_control *c, const control *from, bool batched)
{
    for (int i = 0; i < 2; i++) {
        if (from->n_int32_false_true == 2) {
            c->type = PROA_TYPE_INT32;
            new_tensor(&c->values[i], c->name, c->type, batched, 4);
            memcpy(c->values[i].buffer->data, &from->int32_false_true[i], 4);
        } else if (from->n_fp32_false_true == 2) {
            c->type = PROA_TYPE_FP32;
            new_tensor(&c->values[i], c->name, c->type, batched, 4);
            memcpy(c->values[i].buffer->data, &from->fp32_false_true[i], 4);
        } else {
            c->type = PROA_TYPE_BOOL;
            new_tensor(&c->values[i], c->name, c->type, batched, 1);
            c->values[i].buffer->data[0] = from->n_bool_false_true == 2 ? (char)from->bool_false_true[i]
                                                                        : (char)i;
        }
    }
}

static void open_controls(proa_sequences *q, const Inference__ModelSequenceBatching *config)
{
    int64_t most = 0;
    for (size_t i = 0; i < config->n_control_input; i++) most += (int64_t)config->control_input[i]->n_control;
    q->controls = PROA_ARENA_NEW(&q->scheduler->model->arena, proa_sequence_control, most);
    for (size_t i = 0; i < config->n_control_input; i++)
        for (size_t j = 0; j < config->control_input[i]->n_control; j++) {
            const control *from = config->control_input[i]->control[j];
            proa_sequence_control *c = &q->controls[q->controls_count++];
            *c = (proa_sequence_control){.name = config->control_input[i]->name, .kind = from->kind};
            if (c->kind == INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID)
                c->type = (proa_type)from->data_type;
            else set_values(c, from, q->batched);
        }
}

/* Dimensions of a sequence's first state: those of initial_state, or of the state with 1 for what is open. */
static proa_status first_shape(const proa_sequences *q, const Inference__ModelSequenceBatching__State *from,
                               proa_tensor *t, int64_t *elements, proa_err *err)
{
    const Inference__ModelSequenceBatching__InitialState *initial = from->n_initial_state
                                                                        ? from->initial_state[0]
                                                                        : NULL;
    size_t rank = initial ? initial->n_dims : from->n_dims;
    const int64_t *dims = initial ? initial->dims : from->dims;
    if (rank + q->batched > PROA_SERVE_RANK_MAX)
        return PROA_FAIL(err, INVALID, "state '%s' has more than %d dimensions", from->input_name,
                         PROA_SERVE_RANK_MAX);
    t->rank = 0;
    if (q->batched) t->shape[t->rank++] = 1;
    for (size_t i = 0; i < rank; i++) {
        if (initial && dims[i] < 0)
            return PROA_FAIL(err, INVALID,
                             "'initial_state' field for state input name '%s' contains variable dimensions.",
                             from->input_name);
        t->shape[t->rank++] = dims[i] < 0 ? 1 : dims[i];
    }
    *elements = proa_shape_elements(t->shape, t->rank);
    if (*elements < 0 || *elements > PROA_GIB)
        return PROA_FAIL(err, LIMIT, "state '%s' is too large", from->input_name);
    return PROA_OK;
}

static proa_status read_first(const proa_sequences *q, const char *file, proa_tensor *t, int64_t elements,
                              proa_err *err)
{
    const proa_served_model *m = q->scheduler->model;
    int64_t found;
    char path[PROA_PATH_MAX];
    proa_buf bytes;
    PROA_TRY(proa_path_join(path, m->path, "initial_state", err));
    char folder[PROA_PATH_MAX];
    memcpy(folder, path, sizeof folder);
    PROA_TRY(proa_path_join(path, folder, file, err));
    proa_buf_init(&bytes, (size_t)PROA_GIB);
    proa_status status = proa_file_read(&bytes, path, PROA_GIB, err);
    if (status == PROA_OK && t->type == PROA_TYPE_BYTES) t->bytes = bytes.len;
    if (status == PROA_OK && bytes.len < t->bytes)
        status = PROA_FAIL(
            err, INVALID,
            "initial_state setting expects %zu bytes, but the data provided from %s only has %zu bytes.",
            t->bytes, file, bytes.len);
    if (status == PROA_OK && t->bytes) {
        t->buffer = proa_buffer_new(t->bytes);
        t->data = t->buffer->data;
        memcpy(t->buffer->data, bytes.ptr, t->bytes);
    }
    if (status == PROA_OK && t->type == PROA_TYPE_BYTES && !proa_tensor_strings_fit(t, elements, &found))
        status = PROA_FAIL(err, INVALID, "initial_state setting expects %lld strings in %s",
                           (long long)elements, file);
    proa_buf_release(&bytes);
    return status;
}

static proa_status open_state(const proa_sequences *q, proa_kept_state *s,
                              const Inference__ModelSequenceBatching__State *from, proa_err *err)
{
    const Inference__ModelSequenceBatching__InitialState *initial = from->n_initial_state
                                                                        ? from->initial_state[0]
                                                                        : NULL;
    int64_t elements = 0;
    *s = (proa_kept_state){.input = from->input_name, .output = from->output_name};
    s->returned = proa_served_model_output(q->scheduler->model, s->output) != NULL;
    s->first.name = s->input;
    s->first.type = (proa_type)from->data_type;
    PROA_TRY(first_shape(q, from, &s->first, &elements, err));
    int64_t size = s->first.type == PROA_TYPE_BYTES ? 4 : proa_type_bytes(s->first.type); /* empty strings */
    s->first.bytes = (size_t)(elements * size);
    if (initial &&
        initial->state_data_case == INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE)
        return read_first(q, initial->data_file, &s->first, elements, err);
    if (s->first.bytes == 0) return PROA_OK;
    PROA_TRY(proa_buffer_try(&s->first.buffer, s->first.bytes, err));
    s->first.data = s->first.buffer->data;
    memset(s->first.buffer->data, 0, s->first.bytes);
    return PROA_OK;
}

proa_status proa_sequence_inputs_open(proa_sequences *q, proa_err *err)
{
    const Inference__ModelSequenceBatching *config = q->scheduler->model->config->sequence_batching;
    open_controls(q, config);
    q->states = PROA_ARENA_NEW(&q->scheduler->model->arena, proa_kept_state, (int64_t)config->n_state);
    for (size_t i = 0; i < config->n_state; i++)
        PROA_TRY(open_state(q, &q->states[q->states_count++], config->state[i], err));
    return PROA_OK;
}

void proa_sequence_inputs_close(proa_sequences *q)
{
    for (int i = 0; i < q->controls_count; i++) {
        proa_tensor_release(&q->controls[i].values[0]);
        proa_tensor_release(&q->controls[i].values[1]);
    }
    for (int i = 0; i < q->states_count; i++) proa_tensor_release(&q->states[i].first);
}

/* ---- for each request ---- */

/* The input of that name: a new one, or, if the request is scheduled again, the old one after releasing its value. */
static proa_tensor *input_of(proa_infer *r, const char *name)
{
    for (int32_t i = 0; i < r->inputs_count; i++)
        if (strcmp(r->inputs[i].name, name) == 0) {
            proa_tensor_release(&r->inputs[i]);
            return &r->inputs[i];
        }
    return proa_infer_add_input(r, proa_str_c(name));
}

static void set_input(proa_infer *r, const char *name, const proa_tensor *from)
{
    proa_tensor *t = input_of(r, name);
    if (!t) return; /* 1,024 inputs of the client's own: it has lost this one */
    const char *own = t->name;
    proa_tensor_share(t, from);
    t->name = own;
}

static void set_id(const proa_sequences *q, proa_infer *r, const proa_sequence_control *c)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)r->sequence_id);
    const char *name = r->sequence_name && *r->sequence_name ? r->sequence_name : text;
    bool string = c->type == PROA_TYPE_BYTES;
    size_t bytes = string ? 4 + strlen(name) : (size_t)proa_type_bytes(c->type);
    proa_tensor t;
    new_tensor(&t, c->name, c->type, q->batched, bytes);
    if (string) {
        uint32_t len = (uint32_t)strlen(name);
        memcpy(t.buffer->data, &len, 4);
        memcpy(t.buffer->data + 4, name, len);
    } else {
        memcpy(t.buffer->data, &r->sequence_id, bytes); /* little-endian: the low bytes */
    }
    set_input(r, c->name, &t);
    proa_tensor_release(&t);
}

static void set_controls(const proa_sequences *q, proa_infer *r)
{
    for (int i = 0; i < q->controls_count; i++) {
        const proa_sequence_control *c = &q->controls[i];
        bool on = !r->ticket.filler;
        switch (c->kind) {
        case INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_START:
            set_input(r, c->name, &c->values[on && r->sequence_start]);
            break;
        case INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_END:
            set_input(r, c->name, &c->values[on && r->sequence_end]);
            break;
        case INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID:
            set_id(q, r, c);
            break;
        default: set_input(r, c->name, &c->values[on]); break;
        }
    }
}

void proa_sequence_prepare(proa_sequences *q, proa_infer *r)
{
    proa_sequence *sequence = r->ticket.slot;
    set_controls(q, r);
    for (int i = 0; i < q->states_count; i++) {
        if (sequence && r->sequence_start) {
            proa_tensor_release(&sequence->states[i]);
            proa_tensor_share(&sequence->states[i], &q->states[i].first);
        }
        set_input(r, q->states[i].input, sequence ? &sequence->states[i] : &q->states[i].first);
    }
}

proa_infer *proa_sequence_filler(proa_sequences *q, const proa_infer *like)
{
    proa_infer *r = proa_infer_new();
    r->model = proa_served_model_hold(q->scheduler->model);
    r->model_name = r->model->name;
    r->silent = true;
    r->ticket.filler = true;
    for (int32_t i = 0; i < like->inputs_count; i++) set_input(r, like->inputs[i].name, &like->inputs[i]);
    proa_sequence_prepare(q, r);
    return r;
}

static void remove_output(proa_reply *reply, int32_t at)
{
    reply->outputs_count--;
    memmove(&reply->outputs[at], &reply->outputs[at + 1],
            (size_t)(reply->outputs_count - at) * sizeof reply->outputs[0]);
}

void proa_sequence_take_states(proa_sequences *q, proa_sequence *sequence, proa_reply *reply)
{
    for (int i = 0; i < q->states_count; i++)
        for (int32_t j = 0; j < reply->outputs_count; j++) {
            if (strcmp(reply->outputs[j].name, q->states[i].output) != 0) continue;
            proa_tensor_release(&sequence->states[i]);
            proa_tensor_share(&sequence->states[i], &reply->outputs[j]);
            sequence->states[i].name = q->states[i].input;
            if (!q->states[i].returned) {
                proa_tensor_release(&reply->outputs[j]);
                remove_output(reply, j);
            }
            break;
        }
}
