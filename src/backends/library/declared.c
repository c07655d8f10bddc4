/* SPDX-License-Identifier: Apache-2.0
 * declared.c - the host's functions of proa/backend.h about a model: the tensors that its configuration declares, and
 * those that Proa adds to its requests; and the device memory that libraries have. */
#include "backends/library/host.h"

#include "base/alloc.h"
#include <pthread.h>
#include <string.h>

typedef Inference__ModelSequenceBatching sequences;

static const sequences *sequences_of(const Inference__ModelConfig *c)
{
    return c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING
               ? c->sequence_batching
               : NULL;
}

/* Room for `count` more tensors of a kind is taken once; then each is added. */
static void make_room(proa_backend_model *m, proa_backend_io_kind kind, size_t count)
{
    m->ios[kind] = PROA_ARENA_NEW(&m->arena, proa_backend_io, (int64_t)count);
}

static void add_io(proa_backend_model *m, proa_backend_io_kind kind, const char *name, int type,
                   const int64_t *dims, int32_t rank)
{
    m->ios[kind][m->counts[kind]++] = (proa_backend_io){
        .name = name, .type = (proa_backend_type)type, .rank = rank, .dims = dims};
}

/* The backend sees the shape of `reshape` where there is one. */
static void add_shaped(proa_backend_model *m, proa_backend_io_kind kind, const char *name, int type,
                       const int64_t *dims, size_t rank, const Inference__ModelTensorReshape *reshape)
{
    if (reshape) add_io(m, kind, name, type, reshape->shape, (int32_t)reshape->n_shape);
    else add_io(m, kind, name, type, dims, (int32_t)rank);
}

static void add_inputs(proa_backend_model *m, const Inference__ModelConfig *c)
{
    make_room(m, PROA_BACKEND_IO_INPUT, c->n_input);
    for (size_t i = 0; i < c->n_input; i++) {
        const Inference__ModelInput *in = c->input[i];
        add_shaped(m, PROA_BACKEND_IO_INPUT, in->name, (int)in->data_type, in->dims, in->n_dims, in->reshape);
        m->ios[PROA_BACKEND_IO_INPUT][i].optional = in->optional;
        m->ios[PROA_BACKEND_IO_INPUT][i].ragged = in->allow_ragged_batch;
    }
}

static void add_outputs(proa_backend_model *m, const Inference__ModelConfig *c)
{
    make_room(m, PROA_BACKEND_IO_OUTPUT, c->n_output);
    for (size_t i = 0; i < c->n_output; i++) {
        const Inference__ModelOutput *o = c->output[i];
        add_shaped(m, PROA_BACKEND_IO_OUTPUT, o->name, (int)o->data_type, o->dims, o->n_dims, o->reshape);
    }
}

static void add_batch_inputs(proa_backend_model *m, const Inference__ModelConfig *c)
{
    size_t count = 0;
    for (size_t i = 0; i < c->n_batch_input; i++) count += c->batch_input[i]->n_target_name;
    make_room(m, PROA_BACKEND_IO_BATCH_INPUT, count);
    for (size_t i = 0; i < c->n_batch_input; i++)
        for (size_t k = 0; k < c->batch_input[i]->n_target_name; k++)
            add_io(m, PROA_BACKEND_IO_BATCH_INPUT, c->batch_input[i]->target_name[k],
                   (int)c->batch_input[i]->data_type, NULL, -1);
}

static int control_type(const Inference__ModelSequenceBatching__Control *c)
{
    if (c->kind == INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID)
        return (int)c->data_type;
    if (c->n_int32_false_true) return PROA_BACKEND_INT32;
    return c->n_fp32_false_true ? PROA_BACKEND_FP32 : PROA_BACKEND_BOOL;
}

static void add_controls(proa_backend_model *m, const sequences *s)
{
    static const int64_t one[1] = {1};
    size_t count = 0;
    for (size_t i = 0; i < s->n_control_input; i++) count += s->control_input[i]->n_control;
    make_room(m, PROA_BACKEND_IO_CONTROL, count);
    for (size_t i = 0; i < s->n_control_input; i++)
        for (size_t k = 0; k < s->control_input[i]->n_control; k++)
            add_io(m, PROA_BACKEND_IO_CONTROL, s->control_input[i]->name,
                   control_type(s->control_input[i]->control[k]), one, 1);
}

static void add_states(proa_backend_model *m, const sequences *s)
{
    make_room(m, PROA_BACKEND_IO_STATE, s->n_state);
    make_room(m, PROA_BACKEND_IO_NEXT_STATE, s->n_state);
    for (size_t i = 0; i < s->n_state; i++) {
        const Inference__ModelSequenceBatching__State *t = s->state[i];
        add_io(m, PROA_BACKEND_IO_STATE, t->input_name, (int)t->data_type, t->dims, (int32_t)t->n_dims);
        add_io(m, PROA_BACKEND_IO_NEXT_STATE, t->output_name, (int)t->data_type, t->dims, (int32_t)t->n_dims);
    }
}

void proa_host_model_init(proa_backend_model *m)
{
    const Inference__ModelConfig *c = proa_served_model_config(m->served);
    const sequences *s = sequences_of(c);
    proa_arena_init(&m->arena);
    add_inputs(m, c);
    add_outputs(m, c);
    add_batch_inputs(m, c);
    if (s) add_controls(m, s);
    if (s) add_states(m, s);
}

void proa_host_model_release(proa_backend_model *m)
{
    proa_arena_release(&m->arena);
}

const proa_backend_io *proa_host_model_io(const proa_backend_model *m, proa_backend_io_kind kind, int32_t index)
{
    if ((unsigned)kind >= PROA_HOST_IO_KINDS || index < 0 || index >= m->counts[kind]) return NULL;
    return &m->ios[kind][index];
}

int64_t proa_host_model_max_batch(const proa_backend_model *m)
{
    return proa_served_model_config(m->served)->max_batch_size;
}

const char *proa_host_model_file(const proa_backend_model *m)
{
    return proa_served_model_config(m->served)->default_model_filename;
}

const char *proa_host_model_platform(const proa_backend_model *m)
{
    return proa_served_model_config(m->served)->platform;
}

void proa_host_model_takes_device_inputs(proa_backend_model *m)
{
    proa_served_model_set_device_inputs(m->served);
}

/* ---- device memory ---- */

/* Entries stay: tensors point to them, and so does the library to its own. */
typedef struct memory {
    proa_device_memory device; /* the first member: read_memory */
    const proa_backend_memory *library;
    struct memory *next;
} memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static memory *memories;

static proa_status read_memory(const proa_device_memory *device, void *to, const void *from, size_t bytes,
                               proa_err *err)
{
    const proa_backend_memory *library = ((const memory *)(const void *)device)->library;
    return library->read(library, to, from, bytes, err);
}

proa_status proa_library_memory(const proa_device_memory **out, const proa_backend_memory *library, proa_err *err)
{
    if (library->bytes < sizeof *library || !library->read || library->device < 0)
        return PROA_FAIL(err, INVALID, "the memory of an output lacks its device or its function");
    pthread_mutex_lock(&lock);
    memory *m = memories;
    while (m && m->library != library) m = m->next;
    if (!m) {
        m = proa_calloc(1, sizeof *m);
        *m = (memory){.device = {.name = library->name, .gpu = library->device, .read = read_memory},
                      .library = library,
                      .next = memories};
        memories = m;
    }
    pthread_mutex_unlock(&lock);
    *out = &m->device;
    return PROA_OK;
}
