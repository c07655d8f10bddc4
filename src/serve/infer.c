/* SPDX-License-Identifier: Apache-2.0
 * infer.c - requests and replies: their memory, references, cancellation and delivery. */
#include "serve/infer.h"

#include "base/clock.h"
#include "base/guard.h"
#include "base/limits.h"
#include "serve/recycle.h"
#include "serve/models/model.h"
#include "serve/server.h"
#include "serve/trace.h"
#include <string.h>

/* A request is one recycled block with the first block of its arena; so is a reply. */
#define ARENA_AT(type) ((sizeof(type) + 63) / 64 * 64)

proa_infer *proa_infer_new(void)
{
    proa_infer *r = proa_recycle_take(PROA_RECYCLE_INFER);
    memset(r, 0, sizeof *r);
    proa_arena_init_in(&r->arena, (char *)r + ARENA_AT(proa_infer),
                       proa_recycle_bytes(PROA_RECYCLE_INFER) - ARENA_AT(proa_infer));
    r->id = "";
    r->model_name = "";
    r->model_version = -1;
    r->batch = 1;
    atomic_init(&r->refs, 1);
    atomic_init(&r->cancelled, false);
    atomic_init(&r->on_cancel, NULL);
    return r;
}

proa_infer *proa_infer_hold(proa_infer *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void proa_infer_drop(proa_infer *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
    if (PROA_UNLIKELY(r->trace != NULL)) proa_trace_leave(r);
    for (int32_t i = 0; i < r->inputs_count; i++) proa_tensor_release(&r->inputs[i]);
    proa_infer_free_chat(r);
    proa_arena_release(&r->arena);
    if (r->model) proa_served_model_drop(r->model);
    proa_recycle_give(PROA_RECYCLE_INFER, r);
}

/* Room for one more in an array that lives in an arena: the address of the new element, zeroed, or NULL at max. */
static void *array_add(proa_arena *arena, void *items, int32_t *count, int32_t *cap, size_t size, int32_t max)
{
    void *array; /* items is the address of a pointer of some type: read and written byte by byte */
    if (*count >= max) return NULL;
    memcpy(&array, items, sizeof array);
    if (*count == *cap) {
        int32_t more = *cap ? 2 * *cap : 4;
        void *bigger = proa_arena_array(arena, more, size);
        if (*count) memcpy(bigger, array, (size_t)*count * size);
        memcpy(items, &bigger, sizeof bigger);
        array = bigger;
        *cap = more;
    }
    return (char *)array + (size_t)(*count)++ * size;
}

proa_tensor *proa_infer_add_input(proa_infer *r, proa_str name)
{
    proa_tensor *t = array_add(&r->arena, &r->inputs, &r->inputs_count, &r->inputs_cap, sizeof *t,
                               PROA_TENSORS_PER_REQUEST_MAX);
    if (t) t->name = proa_arena_strdup(&r->arena, name);
    return t;
}

bool proa_infer_add_output(proa_infer *r, proa_str name)
{
    const char **output = array_add(&r->arena, &r->outputs, &r->outputs_count, &r->outputs_cap,
                                    sizeof *output, PROA_TENSORS_PER_REQUEST_MAX);
    if (output) *output = proa_arena_strdup(&r->arena, name);
    return output != NULL;
}

proa_generation *proa_infer_generate(proa_infer *r)
{
    PROA_DASSERT(r->inputs_count == 0 && r->outputs_count == 0 && !r->generation);
    r->generation = PROA_ARENA_NEW(&r->arena, proa_generation, 1);
    return r->generation;
}

void proa_infer_free_chat(proa_infer *r)
{
    if (!r->generation) return;
    proa_json_free(r->generation->chat);
    r->generation->chat = NULL;
}

static const proa_tensor *find_tensor(const proa_tensor *tensors, int32_t count, const char *name)
{
    for (int32_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0) return &tensors[i];
    return NULL;
}

const proa_tensor *proa_infer_input(const proa_infer *r, const char *name)
{
    return find_tensor(r->inputs, r->inputs_count, name);
}

proa_infer_param *proa_infer_add_param(proa_infer *r, proa_str name)
{
    proa_infer_param *p = array_add(&r->arena, &r->params, &r->params_count, &r->params_cap, sizeof *p,
                                    PROA_PARAMS_PER_REQUEST_MAX);
    if (p) p->name = (proa_str){proa_arena_strdup(&r->arena, name), name.len};
    return p;
}

const proa_infer_param *proa_infer_find_param(const proa_infer *r, const char *name)
{
    for (int32_t i = 0; i < r->params_count; i++)
        if (proa_str_is(r->params[i].name, name)) return &r->params[i];
    return NULL;
}

bool proa_infer_wants(const proa_infer *r, const char *output)
{
    for (int32_t i = 0; i < r->outputs_count; i++)
        if (strcmp(r->outputs[i], output) == 0) return true;
    return r->outputs_count == 0;
}

/* ---- cancel: on_cancel is taken out of the request by an atomic exchange before the call, so it runs once ---- */

static bool call_watcher(proa_infer *r)
{
    void (*watcher)(proa_infer *) = atomic_exchange(&r->on_cancel, NULL);
    if (watcher) watcher(r);
    return watcher != NULL;
}

/* The watcher may end the request, and with the final reply go the scheduler's and the sink's references: ours keeps it
 * until the watcher has returned. */
void proa_infer_cancel(proa_infer *r)
{
    proa_infer_hold(r);
    if (!atomic_exchange(&r->cancelled, true)) call_watcher(r);
    proa_infer_drop(r);
}

bool proa_infer_cancelled(const proa_infer *r)
{
    return atomic_load_explicit(&r->cancelled, memory_order_acquire);
}

bool proa_infer_watch(proa_infer *r, void (*on_cancel)(proa_infer *r))
{
    if (!on_cancel) return atomic_exchange(&r->on_cancel, NULL) != NULL;
    atomic_store(&r->on_cancel, on_cancel);
    /* A cancel before the store has missed the watcher: it is ours to call. One after it finds the watcher. Between
     * them both try, and the exchange gives it to one. */
    if (!atomic_load(&r->cancelled)) return true;
    call_watcher(r);
    return false;
}

proa_status proa_infer_inputs_to_host(proa_infer *r, proa_err *err)
{
    for (int32_t i = 0; i < r->inputs_count; i++) PROA_TRY(proa_tensor_to_host(&r->inputs[i], err));
    return PROA_OK;
}

/* ---- replies ---- */

proa_reply *proa_reply_new(const proa_infer *r)
{
    proa_reply *reply = proa_recycle_take(PROA_RECYCLE_REPLY);
    const char *model_name = r->model ? r->model->name : r->model_name;
    proa_arena_init_in(&reply->arena, (char *)reply + ARENA_AT(proa_reply),
                       proa_recycle_bytes(PROA_RECYCLE_REPLY) - ARENA_AT(proa_reply));
    reply->error.status = PROA_OK; /* its text is half of the struct and not looked at */
    reply->error.text[0] = 0;
    reply->error.whole = 0;
    reply->model_name = proa_arena_strdup(&reply->arena, proa_str_c(model_name));
    reply->model_version = r->model ? r->model->version : r->model_version;
    reply->id = *r->id ? proa_arena_strdup(&reply->arena, proa_str_c(r->id)) : "";
    reply->outputs = NULL;
    reply->params = NULL;
    reply->generated = NULL;
    reply->outputs_count = reply->outputs_cap = reply->params_count = reply->params_cap = 0;
    reply->next = NULL;
    return reply;
}

void proa_reply_free(proa_reply *reply)
{
    if (!reply) return;
    for (int32_t i = 0; i < reply->outputs_count; i++) proa_tensor_release(&reply->outputs[i]);
    proa_arena_release(&reply->arena);
    proa_recycle_give(PROA_RECYCLE_REPLY, reply);
}

proa_tensor *proa_reply_add(proa_reply *reply, const char *name)
{
    proa_tensor *t = array_add(&reply->arena, &reply->outputs, &reply->outputs_count, &reply->outputs_cap,
                               sizeof *t, INT32_MAX / 2);
    t->name = proa_arena_strdup(&reply->arena, proa_str_c(name));
    return t;
}

proa_tensor *proa_reply_add_array(proa_reply *reply, const char *name, proa_type type, const int64_t *shape,
                                  int32_t rank, void **data)
{
    int64_t elements = proa_shape_elements(shape, rank), size = proa_type_bytes(type);
    PROA_ASSERT(rank >= 0 && rank <= PROA_SERVE_RANK_MAX && size > 0 && elements >= 0 &&
                elements <= INT64_MAX / 2 / size);
    proa_tensor *t = proa_reply_add(reply, name);
    t->type = type;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->bytes = (size_t)(elements * size);
    if (t->bytes) t->buffer = proa_buffer_new(t->bytes);
    t->data = t->buffer ? t->buffer->data : NULL;
    *data = t->buffer ? t->buffer->data : NULL;
    return t;
}

proa_tensor *proa_reply_add_strings(proa_reply *reply, const char *name, const proa_str *strings, int64_t count)
{
    proa_tensor *t = proa_reply_add(reply, name);
    t->type = PROA_TYPE_BYTES;
    t->rank = 1;
    t->shape[0] = count;
    for (int64_t i = 0; i < count; i++) {
        PROA_ASSERT(strings[i].len <= UINT32_MAX);
        t->bytes += sizeof(uint32_t) + strings[i].len;
    }
    if (!t->bytes) return t;
    t->buffer = proa_buffer_new(t->bytes);
    t->data = t->buffer->data;
    char *to = t->buffer->data;
    for (int64_t i = 0; i < count; i++) {
        uint32_t len = (uint32_t)strings[i].len;
        memcpy(to, &len, sizeof len);
        if (len) memcpy(to + sizeof len, strings[i].ptr, len);
        to += sizeof len + len;
    }
    return t;
}

const proa_tensor *proa_reply_output(const proa_reply *reply, const char *name)
{
    return find_tensor(reply->outputs, reply->outputs_count, name);
}

proa_infer_param *proa_reply_add_param(proa_reply *reply, const char *name)
{
    proa_infer_param *p = array_add(&reply->arena, &reply->params, &reply->params_count, &reply->params_cap,
                                    sizeof *p, INT32_MAX / 2);
    p->name = (proa_str){proa_arena_strdup(&reply->arena, proa_str_c(name)), strlen(name)};
    return p;
}

/* ---- the way to the sink ---- */

void proa_infer_deliver(proa_infer *r, proa_reply *reply, bool final)
{
    PROA_DASSERT(reply || final);
    if (final) atomic_store(&r->on_cancel, NULL); /* from here on a cancel has no effect */
    if (PROA_UNLIKELY(r->trace != NULL)) proa_trace_reply(r, reply, final);
    r->on_reply(r, reply, final);
    if (final) proa_infer_drop(r);
}

/* A reply that was computed from a region which its client has shortened is invalid. */
static PROA_COLD void check_regions(const proa_infer *r, proa_reply *reply)
{
    for (int32_t i = 0; i < r->inputs_count && reply->error.status == PROA_OK; i++)
        reply->error.status = proa_shm_check(r->inputs[i].buffer, &reply->error);
}

/* The cache keeps host memory only. */
bool proa_infer_takes_device_outputs(const proa_infer *r)
{
    return r->device_replies && !r->ticket.cache_inflight;
}

static void outputs_to_host(const proa_infer *r, proa_reply *reply)
{
    if (proa_infer_takes_device_outputs(r)) return;
    for (int32_t i = 0; i < reply->outputs_count && reply->error.status == PROA_OK; i++)
        reply->error.status = proa_tensor_to_host(&reply->outputs[i], &reply->error);
}

void proa_infer_reply(proa_infer *r, proa_reply *reply, bool final)
{
    if (reply && reply->error.status == PROA_OK) outputs_to_host(r, reply);
    if (PROA_UNLIKELY(proa_guards_any_broken()) && reply) check_regions(r, reply);
    const proa_served_model *m = r->model;
    if (!m || !m->replied || m->replied(m->scheduler, r, reply, final)) proa_infer_deliver(r, reply, final);
}

void proa_infer_fail(proa_infer *r, const proa_err *err)
{
    proa_reply *reply = proa_reply_new(r);
    reply->error = *err;
    if (reply->error.status == PROA_OK) reply->error.status = PROA_INTERNAL;
    proa_infer_reply(r, reply, true);
}

void proa_infer_input_done(proa_infer *const *requests, int count)
{
    int64_t now = proa_clock_ns();
    for (int i = 0; i < count; i++) requests[i]->times.input_end = now;
}

void proa_infer_output_begins(proa_infer *const *requests, int count)
{
    int64_t now = proa_clock_ns();
    for (int i = 0; i < count; i++) requests[i]->times.output_start = now;
}
