/* SPDX-License-Identifier: Apache-2.0
 * python_instance.c - an instance: its process, from start to restart, and the requests that are in it. */
#include "backends/python.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "python/env.h"
#include <errno.h>
#include <sched.h>
#include <string.h>

#define TICK_MS       20 /* between two looks at cancels and time limits, while requests are in the process */
#define IDLE_MS       200   /* the same while there are none */
#define BACKOFF_MS    100   /* before the first restart; doubled each time ... */
#define BACKOFF_MAX   7     /* ... so often */
#define PAUSE_WAIT_MS 1000  /* that requests wait in the pause before a start, before they fail */
#define START_WAIT_MS 10000 /* the same once the process is starting */
#define STEADY_NS     (10 * (int64_t)1000000000) /* a process that has lived so long begins the count anew */
#define READY_NS      (5 * (int64_t)1000000000)  /* that is_ready() may take */
#define READY_WAIT_MS 100 /* that somebody who asks waits for it; then the last answer counts */

/* A request that is in the process. */
typedef struct slot {
    uint64_t id; /* of the message: index and a running number; 0: free */
    proa_infer *r;
    uint64_t at; /* its payload */
    bool batch;  /* of the execution that is running */
    bool told;   /* that it is cancelled */
} slot;

typedef enum state { DOWN, UP, CLOSED } state;

struct proa_pyinstance {
    proa_pymodel *model;
    proa_pyinstance *next;
    const char *name;
    int device; /* CUDA device, -1: CPU */
    proa_pybls *bls;
    pthread_t thread;
    pthread_mutex_t busy; /* of execute: held while one runs */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    state state;
    bool tried, closing; /* the first start has succeeded or failed; no more are wanted */
    proa_err why;        /* of being DOWN */
    proa_pyprocess *process;
    uint64_t number; /* of the process: the first is 1 */
    int users;       /* threads that use `process` beside our own */
    int under_way;   /* calls and loads that have not ended */
    slot *slots;
    uint32_t slots_count, slots_cap, live, slots_free; /* no free slot is below slots_free */
    uint64_t running;                                  /* number of requests so far */
    bool executing, late;
    int64_t execute_ns; /* when that began */
    bool asks_ready, asked, is_ready;
    int64_t asked_ns;
    proa_err not_ready;
    proa_python_message *out, *in; /* of execute; of the thread */
};

proa_pyinstance *proa_pyinstance_next(const proa_pyinstance *i)
{
    return i->next;
}

proa_pymodel *proa_pyinstance_model(const proa_pyinstance *i)
{
    return i->model;
}

static bool is_up(proa_pyinstance *i)
{
    pthread_mutex_lock(&i->lock);
    bool up = i->state == UP;
    pthread_mutex_unlock(&i->lock);
    return up;
}

static proa_status not_healthy(const proa_pyinstance *i, proa_status status, const char *how, proa_err *err)
{
    return proa_err_set(err, status, __FILE__, __LINE__, "Stub process '%s' is not healthy.%s%s", i->name,
                        how && *how ? " It " : "", how ? how : "");
}

/* ---- the process, shared ---- */

/* The process, if it runs (and is the one of that number, unless 0); proa_pyprocess stays until give. */
static proa_pyprocess *take(proa_pyinstance *i, uint64_t number)
{
    pthread_mutex_lock(&i->lock);
    proa_pyprocess *p = i->process && (number == i->number || (!number && i->state == UP)) ? i->process : NULL;
    i->users += p != NULL;
    pthread_mutex_unlock(&i->lock);
    return p;
}

static void give(proa_pyinstance *i)
{
    pthread_mutex_lock(&i->lock);
    if (--i->users == 0) pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

void proa_pyinstance_begin(proa_pyinstance *i)
{
    pthread_mutex_lock(&i->lock);
    i->under_way++;
    pthread_mutex_unlock(&i->lock);
}

void proa_pyinstance_end(proa_pyinstance *i)
{
    pthread_mutex_lock(&i->lock);
    if (--i->under_way == 0) pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

static bool send_payload(proa_pyprocess *p, proa_python_message m, proa_str head, const proa_tensor *tensors,
                         int count)
{
    proa_pyarena *a = proa_pyprocess_arena(p);
    if (!proa_pywire_write(a, head, tensors, count, &m.at, &m.bytes)) return false;
    uint64_t at = m.at;
    if (!proa_pyprocess_send(p, &m, 1)) proa_pyarena_unsent(a, at);
    proa_pyarena_let_go(a, at);
    return true;
}

void proa_pyinstance_send(proa_pyinstance *i, uint64_t process, uint32_t kind, uint32_t flags, uint64_t id,
                          proa_str head, const proa_tensor *tensors, int count)
{
    static const char no_room[] =
        "{\"error\":\"no room in the memory that is shared with the stub\",\"code\":14}";
    proa_pyprocess *p = take(i, process);
    proa_python_message m = {.kind = kind, .flags = flags, .id = id};
    if (!p) return;
    if (!head.len && !count) proa_pyprocess_send(p, &m, 1);
    else if (!send_payload(p, m, head, tensors, count)) send_payload(p, m, proa_str_c(no_room), NULL, 0);
    give(i);
}

/* ---- requests in the process ---- */

/* Under the lock. */
static slot *find_slot(proa_pyinstance *i, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    return id && index < i->slots_count && i->slots[index].id == id ? &i->slots[index] : NULL;
}

bool proa_pyinstance_executes(proa_pyinstance *i, uint64_t id, void (*each)(void *to, const proa_infer *r),
                              void *to)
{
    pthread_mutex_lock(&i->lock);
    const slot *s = find_slot(i, id);
    bool found = s && s->batch;
    for (uint32_t k = 0; found && k < i->slots_count; k++)
        if (i->slots[k].id && i->slots[k].batch) each(to, i->slots[k].r);
    pthread_mutex_unlock(&i->lock);
    return found;
}

static void note_cancel(void *all, const proa_infer *r)
{
    if (!proa_infer_cancelled(r)) *(bool *)all = false;
}

bool proa_pyinstance_given_up(proa_pyinstance *i, uint64_t id)
{
    bool all = true;
    return proa_pyinstance_executes(i, id, note_cancel, &all) && all;
}

static uint64_t add_slot(proa_pyinstance *i, proa_infer *r, uint64_t at)
{
    uint32_t index = i->slots_free;
    while (index < i->slots_count && i->slots[index].id) index++;
    i->slots_free = index + 1;
    if (index == i->slots_cap) {
        i->slots_cap = i->slots_cap ? 2 * i->slots_cap : 16;
        i->slots = proa_realloc(i->slots, i->slots_cap * sizeof *i->slots);
    }
    if (index == i->slots_count) i->slots_count++;
    uint64_t id = (++i->running << 32) | index;
    i->slots[index] = (slot){.id = id, .r = r, .at = at, .batch = true};
    i->live++;
    return id;
}

static void free_slot(proa_pyinstance *i, slot *s)
{
    s->id = 0;
    i->live--;
    if ((uint32_t)(s - i->slots) < i->slots_free) i->slots_free = (uint32_t)(s - i->slots);
    while (i->slots_count && !i->slots[i->slots_count - 1].id) i->slots_count--;
}

/* Takes one request out: any, or one of the execution that is running. */
static bool take_slot(proa_pyinstance *i, bool batch_only, slot *out)
{
    bool found = false;
    pthread_mutex_lock(&i->lock);
    for (uint32_t k = 0; k < i->slots_count && !found; k++) {
        slot *s = &i->slots[k];
        if (!s->id || (batch_only && !s->batch)) continue;
        *out = *s;
        free_slot(i, s);
        found = true;
    }
    pthread_mutex_unlock(&i->lock);
    return found;
}

static void fail_slots(proa_pyinstance *i, proa_pyprocess *p, bool batch_only, const proa_err *err)
{
    slot s;
    while (take_slot(i, batch_only, &s)) {
        proa_pyarena_let_go(proa_pyprocess_arena(p), s.at);
        proa_infer_fail(s.r, err);
    }
}

/* ---- execute, on the scheduler's thread ---- */

static bool write_request(proa_pyinstance *i, proa_pyprocess *p, proa_infer *r, proa_buf *head,
                          proa_python_message *m)
{
    proa_buf_clear(head);
    proa_pywire_request_head(head, r);
    *m = (proa_python_message){.kind = PROA_PYTHON_REQUEST};
    if (head->full || !proa_pywire_write(proa_pyprocess_arena(p), proa_buf_view(head), r->inputs,
                                         r->inputs_count, &m->at, &m->bytes))
        return false;
    for (int32_t k = 0; k < r->inputs_count; k++) {
        atomic_fetch_add_explicit(&i->model->bytes_in, r->inputs[k].bytes, memory_order_relaxed);
        proa_copies_add(r->inputs[k].bytes);
    }
    return true;
}

/* Writes the requests; those for which there is no room fail. The others are moved to the front of `written`. */
static int write_requests(proa_pyinstance *i, proa_pyprocess *p, proa_infer *const *requests, int count,
                          proa_infer **written)
{
    int n = 0;
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_PYTHON_HEAD_MAX);
    for (int k = 0; k < count; k++) {
        proa_err err = {0};
        if (write_request(i, p, requests[k], &head, &i->out[n + 1])) {
            written[n++] = requests[k];
            continue;
        }
        PROA_FAIL(&err, NO_MEMORY,
                  "no room for the request in the %lld bytes that are shared with Python model '%s'",
                  (long long)PROA_PYTHON_ARENA_BYTES, i->model->config->name);
        proa_infer_fail(requests[k], &err);
    }
    proa_buf_release(&head);
    return n;
}

static void send_requests(proa_pyinstance *i, proa_pyprocess *p, proa_infer **requests, int count)
{
    proa_infer_input_done(requests, count);
    pthread_mutex_lock(&i->lock);
    for (int k = 0; k < count; k++) i->out[k + 1].id = add_slot(i, requests[k], i->out[k + 1].at);
    i->executing = true;
    i->late = false;
    i->execute_ns = proa_clock_ns();
    pthread_mutex_unlock(&i->lock);
    i->out[0] = (proa_python_message){.kind = PROA_PYTHON_EXECUTE, .number = (uint64_t)count};
    proa_pyprocess_send(p, i->out, count + 1); /* if it fails, the process has ended, and that ends the requests */
}

/* False if the process does not run. */
static bool execute_some(proa_pyinstance *i, proa_infer *const *requests, int count)
{
    proa_infer *few[64],
        **written = count <= (int)PROA_COUNT(few) ? few : proa_malloc((size_t)count * sizeof(void *));
    proa_pyprocess *p = take(i, 0);
    if (p) {
        int n = write_requests(i, p, requests, count, written);
        if (n) send_requests(i, p, written, n);
        give(i);
        pthread_mutex_lock(&i->lock);
        while (i->executing) pthread_cond_wait(&i->changed, &i->lock);
        pthread_mutex_unlock(&i->lock);
    }
    if (written != few) free(written);
    return p != NULL;
}

static bool try_execute(proa_pyinstance *i, proa_infer *const *requests, int count)
{
    pthread_mutex_lock(&i->busy);
    bool done = execute_some(i, requests, count);
    pthread_mutex_unlock(&i->busy);
    return done;
}

static struct timespec time_in(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t ns = t.tv_nsec + ms * 1000000;
    return (struct timespec){t.tv_sec + ns / 1000000000, ns % 1000000000};
}

/* An instance is soon started again: until then another one helps out, if requests do not depend on where they go. Else
 * its start is waited for, but not long. So one bad request costs the others some time and no errors. */
static void execute_elsewhere(proa_pyinstance *i, proa_infer *const *requests, int count)
{
    proa_err err = {0};
    proa_pyinstance *other = NULL;
    pthread_mutex_lock(&i->model->lock);
    if (!i->model->config->sequence_batching)
        for (other = i->model->instances; other && (other == i || !is_up(other));) other = other->next;
    pthread_mutex_unlock(&i->model->lock);
    if (other && try_execute(other, requests, count)) return;
    const struct timespec pause = time_in(PAUSE_WAIT_MS), start = time_in(START_WAIT_MS);
    pthread_mutex_lock(&i->lock);
    while (i->state != UP &&
           pthread_cond_timedwait(&i->changed, &i->lock, i->process ? &start : &pause) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&i->lock);
    if (try_execute(i, requests, count)) return;
    not_healthy(i, PROA_UNAVAILABLE, "is being started again", &err);
    for (int k = 0; k < count; k++) proa_infer_fail(requests[k], &err);
}

void proa_pyinstance_execute(proa_pyinstance *i, proa_infer *const *requests, int count)
{
    for (int from = 0; from < count; from += PROA_BATCH_REQUESTS_MAX) {
        int some = count - from < PROA_BATCH_REQUESTS_MAX ? count - from : PROA_BATCH_REQUESTS_MAX;
        if (!try_execute(i, requests + from, some)) execute_elsewhere(i, requests + from, some);
    }
}

/* ---- what the process says, on the instance's thread ---- */

static void deliver(proa_pyinstance *i, slot *s, proa_reply *reply, const proa_python_message *m)
{
    bool final = m->flags & PROA_PYTHON_FINAL;
    proa_err err = {0};
    if (final && (m->flags & PROA_PYTHON_RESCHEDULE)) {
        proa_reply_free(reply);
        if (i->model->iterative) {
            proa_infer_reschedule(s->r);
            return;
        }
        PROA_FAIL(&err, INTERNAL,
                  "Python model '%s' asked for a request once more, but has no iterative_sequence",
                  i->model->config->name);
        proa_infer_fail(s->r, &err);
    } else if (!reply && !i->model->decoupled) {
        PROA_FAIL(&err, INTERNAL, "Python model '%s' ended a request without a response", i->model->config->name);
        proa_infer_fail(s->r, &err);
    } else {
        proa_infer_reply(s->r, reply, final);
    }
}

static proa_status on_response(proa_pyinstance *i, proa_pyprocess *p, proa_python_message *m, proa_err *err)
{
    proa_pywire w = {0};
    proa_reply *reply = NULL;
    if (!i->model->decoupled) m->flags |= PROA_PYTHON_FINAL;
    if (m->bytes) PROA_TRY(proa_pywire_open(&w, proa_pyprocess_view(p), m, err));
    pthread_mutex_lock(&i->lock);
    slot *found = find_slot(i, m->id), s = found ? *found : (slot){0};
    pthread_mutex_unlock(&i->lock);
    proa_status status = PROA_OK;
    if (found && m->bytes) { /* only this thread ends requests: s.r stays */
        w.arena = proa_pyprocess_arena(p);
        w.inputs = s.at;
        status = proa_pywire_reply(&reply, &w, i->model, s.r, err);
        atomic_fetch_add_explicit(&i->model->bytes_out, w.written, memory_order_relaxed);
        atomic_fetch_add_explicit(&i->model->bytes_passed, w.passed, memory_order_relaxed);
    }
    if (m->bytes) proa_pywire_close(&w);
    if (status != PROA_OK || !found) return status;
    if (m->flags & PROA_PYTHON_FINAL) {
        pthread_mutex_lock(&i->lock);
        free_slot(i, find_slot(i, m->id));
        pthread_mutex_unlock(&i->lock);
        proa_pyarena_let_go(proa_pyprocess_arena(p), s.at);
    } else if (!m->bytes) {
        return PROA_OK; /* neither a reply nor the end */
    }
    deliver(i, &s, reply, m);
    return PROA_OK;
}

/* execute has ended. What it raised is the error of all that it has not answered. */
static proa_status on_done(proa_pyinstance *i, proa_pyprocess *p, const proa_python_message *m, proa_err *err)
{
    proa_pywire w;
    proa_json *head = NULL;
    proa_err failure = {0};
    if (m->bytes) {
        PROA_TRY(proa_pywire_open(&w, proa_pyprocess_view(p), m, err));
        proa_status status = proa_pywire_head(&head, &w, err);
        proa_pywire_close(&w);
        PROA_TRY(status);
        if (proa_pywire_error(head, &failure)) fail_slots(i, p, true, &failure);
        proa_json_free(head);
    }
    pthread_mutex_lock(&i->lock);
    for (uint32_t k = 0; k < i->slots_count; k++) i->slots[k].batch = false;
    i->executing = false;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
    return PROA_OK;
}

static proa_status on_readiness(proa_pyinstance *i, proa_pyprocess *p, const proa_python_message *m, proa_err *err)
{
    proa_pywire w;
    proa_json *head = NULL;
    proa_err why = {0};
    PROA_TRY(proa_pywire_open(&w, proa_pyprocess_view(p), m, err));
    proa_status status = proa_pywire_head(&head, &w, err);
    proa_pywire_close(&w);
    PROA_TRY(status);
    bool is_ready = !proa_pywire_error(head, &why) && proa_json_bool(proa_json_get(head, "ready"));
    proa_json_free(head);
    pthread_mutex_lock(&i->lock);
    i->asked = false;
    i->is_ready = is_ready;
    i->not_ready = why;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
    return PROA_OK;
}

/* What comes at any time, of models that load as well. *other: it is none of these. */
static proa_status on_call(proa_pyinstance *i, proa_pyprocess *p, const proa_python_message *m, bool *other,
                           proa_err *err)
{
    proa_pywire w;
    *other = false;
    if (m->kind == PROA_PYTHON_INFER_CANCEL) {
        proa_pybls_cancel(i->bls, m->id);
        return PROA_OK;
    }
    *other = m->kind != PROA_PYTHON_CALL && m->kind != PROA_PYTHON_POST && m->kind != PROA_PYTHON_INFER;
    if (*other) return PROA_OK;
    PROA_TRY(proa_pywire_open(&w, proa_pyprocess_view(p), m, err));
    proa_status status = m->kind == PROA_PYTHON_INFER ? proa_pybls_take(i->bls, i->number, m, &w, err)
                                                      : proa_pycalls_take(i, i->number, m, &w, err);
    proa_pywire_close(&w);
    return status;
}

static proa_status on_message(proa_pyinstance *i, proa_pyprocess *p, proa_python_message *m, proa_err *err)
{
    bool other;
    switch (m->kind) {
    case PROA_PYTHON_RESPONSE: return on_response(i, p, m, err);
    case PROA_PYTHON_DONE: return on_done(i, p, m, err);
    case PROA_PYTHON_READINESS: return on_readiness(i, p, m, err);
    default: PROA_TRY(on_call(i, p, m, &other, err));
    }
    return other ? PROA_FAIL(err, INVALID, "the stub sent a message of kind %u", m->kind) : PROA_OK;
}

/* compute_infer ends for all requests that a packet answers, before the first of its replies is made. */
static void note_outputs(proa_pyinstance *i, const proa_python_message *messages, int count)
{
    pthread_mutex_lock(&i->lock);
    for (int k = 0; k < count; k++) {
        slot *s = messages[k].kind == PROA_PYTHON_RESPONSE ? find_slot(i, messages[k].id) : NULL;
        if (s) proa_infer_output_begins(&s->r, 1);
    }
    pthread_mutex_unlock(&i->lock);
}

/* ---- cancels and time limits ---- */

static void look_at_slots(proa_pyinstance *i, proa_pyprocess *p)
{
    for (uint32_t k = 0; k < i->slots_count; k++) {
        slot *s = &i->slots[k];
        if (!s->id || s->told || !proa_infer_cancelled(s->r)) continue;
        proa_python_payload *payload = (proa_python_payload *)(void *)proa_pyarena_at(proa_pyprocess_arena(p),
                                                                                      s->at);
        __atomic_store_n(&payload->cancelled, 1, __ATOMIC_RELEASE);
        s->told = true;
    }
}

static bool is_closing(proa_pyinstance *i)
{
    pthread_mutex_lock(&i->lock);
    bool closing = i->closing;
    pthread_mutex_unlock(&i->lock);
    return closing;
}

/* How long to wait for the next packet. */
static int tick(proa_pyinstance *i, proa_pyprocess *p)
{
    pthread_mutex_lock(&i->lock);
    int wait_ms = i->live || i->executing ? TICK_MS : IDLE_MS;
    bool live = i->live;
    if (live) look_at_slots(i, p);
    int64_t limit_ns = i->model->settings.execute_ms * 1000000;
    if (limit_ns && i->executing && !i->late && proa_clock_ns() - i->execute_ns > limit_ns) {
        i->late = true;
        proa_pyprocess_kill(p);
    }
    pthread_mutex_unlock(&i->lock);
    if (live) proa_pybls_look(i->bls);
    return wait_ms;
}

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

/* The head of a message that opens: OK unless it holds an error. */
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

/* Receives until a message of that kind has come. until_ns 0: however long that takes. i may be NULL: then nothing else
 * is expected. */
static proa_status await(proa_pyinstance *i, proa_pyprocess *p, proa_python_message *in, uint32_t kind,
                         int64_t until_ns, proa_json **head, proa_err *err)
{
    for (;;) {
        int count = proa_pyprocess_receive(p, in, PROA_PYTHON_PACKET_MAX, TICK_MS);
        if (count < 0) return PROA_FAIL(err, UNAVAILABLE, "the process has ended");
        if (i && is_closing(i)) return PROA_FAIL(err, CANCELLED, "the model is being unloaded");
        for (int k = 0; k < count; k++) {
            if (in[k].kind == kind) return read_opened(p, &in[k], head, err);
            if (!i) return PROA_FAIL(err, INVALID, "the stub sent a message of kind %u", in[k].kind);
            PROA_TRY(on_message(i, p, &in[k], err));
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
    PROA_TRY(await(NULL, p, in, PROA_PYTHON_STARTED, proa_clock_ns() + s->start_ms * 1000000, &head, err));
    proa_json_free(head);
    if (!send_payload(p, m, opening, NULL, 0))
        return PROA_FAIL(err, NO_MEMORY, "the configuration is too large");
    return await(i, p, in, PROA_PYTHON_OPENED, 0, opened, err);
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
                {"model_repository", proa_model_path(m->model)},
                {"model_name", proa_model_name(m->model)}};
    snprintf(number, sizeof number, "%d", device < 0 ? 0 : device);
    for (size_t k = 0; k < PROA_COUNT(args); k++) {
        proa_buf_printf(out, "%c\"%s\":", k ? ',' : '{', args[k].key);
        proa_buf_json_str(out, proa_str_c(args[k].value));
    }
    proa_buf_printf(out, ",\"model_version\":\"%lld\"}", (long long)proa_model_version(m->model));
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
    i->state = UP;
    i->tried = true;
    i->asks_ready = proa_json_bool(proa_json_get(opened, "is_ready"));
    i->asked = false;
    i->is_ready = true;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

static void serve(proa_pyinstance *i, proa_pyprocess *p, proa_err *err)
{
    for (;;) {
        int count = proa_pyprocess_receive(p, i->in, PROA_PYTHON_PACKET_MAX, tick(i, p));
        if (count < 0) return;
        if (count > 0) note_outputs(i, i->in, count);
        for (int k = 0; k < count; k++)
            if (on_message(i, p, &i->in[k], err) != PROA_OK) return;
        if (is_closing(i)) return;
    }
}

/* finalize(), for which it has some time. What it calls meanwhile is answered. */
static int finish(proa_pyinstance *i, proa_pyprocess *p)
{
    proa_python_message m = {.kind = PROA_PYTHON_CLOSE};
    proa_err ignored = {0};
    int64_t until = proa_clock_ns() + i->model->settings.start_ms * 1000000;
    if (!proa_pyprocess_send(p, &m, 1)) return 0;
    while (proa_clock_ns() < until) {
        int count = proa_pyprocess_receive(p, i->in, PROA_PYTHON_PACKET_MAX, TICK_MS);
        if (count < 0) return 1000; /* it has closed the socket */
        for (int k = 0; k < count; k++)
            if (on_message(i, p, &i->in[k], &ignored) != PROA_OK) return 0;
    }
    return 0;
}

/* The process has ended, or has to. */
static void end_process(proa_pyinstance *i, proa_pyprocess *p, int patience_ms, const proa_err *broken)
{
    char how[600];
    proa_err err = {0};
    pthread_mutex_lock(&i->lock);
    bool served = i->state == UP;
    i->state = DOWN;
    i->process = NULL;
    while (i->users) pthread_cond_wait(&i->changed, &i->lock);
    bool closing = i->closing, late = i->late && i->executing;
    pthread_mutex_unlock(&i->lock);
    bool well = proa_pyprocess_end(p, patience_ms, how, sizeof how);
    if (late)
        snprintf(how, sizeof how, "was killed: execute took longer than %lld ms",
                 (long long)i->model->settings.execute_ms);
    if (broken->status != PROA_OK) snprintf(how, sizeof how, "was killed: %s", broken->text);
    not_healthy(i, PROA_INTERNAL, how, &err);
    if (served && !(closing && well)) PROA_LOG(ERROR, "%s", err.text);
    proa_pybls_cancel_all(i->bls);
    fail_slots(i, p, false, &err);
    pthread_mutex_lock(&i->lock);
    i->why = err;
    i->executing = false;
    i->asked = false;
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
        serve(i, p, &broken);
        if (is_closing(i)) patience = finish(i, p);
        else patience = broken.status == PROA_OK && !i->late ? 200 : 0;
    } else if (status == PROA_UNAVAILABLE) {
        patience = 200;
    }
    end_process(i, p, patience, &broken);
    if (status == PROA_UNAVAILABLE) *err = i->why; /* how it ended says more */
    return status;
}

/* Waits before the next start; false if none is wanted. */
static bool wait_for_restart(proa_pyinstance *i, int failures)
{
    struct timespec until = time_in((int64_t)BACKOFF_MS << (failures < BACKOFF_MAX ? failures : BACKOFF_MAX));
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
    i->closing = i->closing || !i->tried; /* a model that does not load is not tried again */
    i->tried = true;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

static void *supervise(void *arg)
{
    proa_pyinstance *i = arg;
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

/* ---- open, close ---- */

static void instance_free(proa_pyinstance *i)
{
    proa_pybls_free(i->bls);
    pthread_cond_destroy(&i->changed);
    pthread_mutex_destroy(&i->lock);
    pthread_mutex_destroy(&i->busy);
    free(i->slots);
    free(i->out);
    free(i->in);
    free(i);
}

static void join_list(proa_pyinstance *i)
{
    pthread_mutex_lock(&i->model->lock);
    i->next = i->model->instances;
    i->model->instances = i;
    pthread_mutex_unlock(&i->model->lock);
}

static void leave_list(proa_pyinstance *i)
{
    pthread_mutex_lock(&i->model->lock);
    for (proa_pyinstance **at = &i->model->instances; *at; at = &(*at)->next)
        if (*at == i) {
            *at = i->next;
            break;
        }
    pthread_mutex_unlock(&i->model->lock);
}

proa_status proa_pyinstance_open(proa_pyinstance **out, proa_pymodel *model, const proa_instance *instance,
                                 proa_err *err)
{
    proa_pyinstance *i = proa_calloc(1, sizeof *i);
    i->model = model;
    i->name = proa_instance_name(instance);
    i->device = proa_instance_device(instance);
    i->bls = proa_pybls_new(i);
    i->in = proa_malloc(PROA_PYTHON_PACKET_MAX * sizeof *i->in);
    i->out = proa_malloc(PROA_PYTHON_PACKET_MAX * sizeof *i->out);
    pthread_mutex_init(&i->busy, NULL);
    pthread_mutex_init(&i->lock, NULL);
    pthread_cond_init(&i->changed, NULL);
    join_list(i);
    if (pthread_create(&i->thread, NULL, supervise, i) != 0) {
        leave_list(i);
        instance_free(i);
        return PROA_FAIL(err, NO_MEMORY, "cannot start a thread");
    }
    *out = i;
    return PROA_OK;
}

proa_status proa_pyinstance_opened(proa_pyinstance *i, proa_err *err)
{
    pthread_mutex_lock(&i->lock);
    while (!i->tried) pthread_cond_wait(&i->changed, &i->lock);
    proa_status status = i->closing ? i->why.status : PROA_OK;
    if (status != PROA_OK && err) *err = i->why;
    pthread_mutex_unlock(&i->lock);
    return status;
}

void proa_pyinstance_close(proa_pyinstance *i)
{
    pthread_mutex_lock(&i->lock);
    i->closing = true;
    if (i->process) proa_pyprocess_wake(i->process);
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
    pthread_join(i->thread, NULL);
    pthread_mutex_lock(&i->lock);
    while (i->under_way) pthread_cond_wait(&i->changed, &i->lock);
    pthread_mutex_unlock(&i->lock);
    leave_list(i);
    instance_free(i);
}

/* ---- readiness ---- */

/* Asks is_ready(), unless that was asked already. Under the lock. */
static void ask_ready(proa_pyinstance *i)
{
    proa_python_message m = {.kind = PROA_PYTHON_READY};
    if (i->asked) return;
    i->asked = proa_pyprocess_send(i->process, &m, 1);
    i->asked_ns = proa_clock_ns();
}

static void wait_ready(proa_pyinstance *i)
{
    struct timespec until = time_in(READY_WAIT_MS);
    while (i->asked && pthread_cond_timedwait(&i->changed, &i->lock, &until) != ETIMEDOUT) {
    }
}

bool proa_pyinstance_ready(proa_pyinstance *i, proa_err *reason)
{
    pthread_mutex_lock(&i->lock);
    bool ready = i->state == UP;
    if (!ready) {
        if (i->why.status != PROA_OK) *reason = i->why;
        else not_healthy(i, PROA_UNAVAILABLE, NULL, reason);
    } else if (i->asks_ready) {
        ask_ready(i);
        wait_ready(i);
        bool slow = i->asked && proa_clock_ns() - i->asked_ns > READY_NS && !i->executing;
        ready = i->state == UP && i->is_ready && !slow;
        if (!ready && i->not_ready.status != PROA_OK) *reason = i->not_ready;
        else if (!ready) PROA_FAIL(reason, UNAVAILABLE, "Model is not ready: is_ready() says so");
    }
    pthread_mutex_unlock(&i->lock);
    return ready;
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
    char how[128];
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
    if (c->status == PROA_UNAVAILABLE) {
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
