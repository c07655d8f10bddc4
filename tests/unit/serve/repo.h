/* SPDX-License-Identifier: Apache-2.0
 * repo.h - for tests of repositories: temporary folders of models, a small backend, requests that wait for their
 * reply. */
#ifndef PROA_TESTS_SERVE_REPO_H
#define PROA_TESTS_SERVE_REPO_H

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "serve/core.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- folders ---- */

static inline void repo_make(char folder[PROA_PATH_MAX])
{
    snprintf(folder, PROA_PATH_MAX, "/tmp/proa-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static inline int repo_remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline void repo_remove(const char *path)
{
    nftw(path, repo_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file and the folders above it; fmt is its text. */
static inline void repo_write(const char *folder, const char *name, const char *fmt, ...) PROA_PRINTF(3, 4);
static inline void repo_write(const char *folder, const char *name, const char *fmt, ...)
{
    char path[PROA_PATH_MAX];
    va_list args;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(n > 0 && n < PROA_PATH_MAX);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    va_start(args, fmt);
    vfprintf(f, fmt, args);
    va_end(args);
    fclose(f);
}

/* A model of the backend below: INPUT (INT32 [-1]) to OUTPUT, with more lines of configuration. */
static inline void repo_model(const char *folder, const char *name, const char *more)
{
    char file[PROA_PATH_MAX];
    snprintf(file, sizeof file, "%s/config.pbtxt", name);
    repo_write(folder, file,
               "name: \"%s\"\nbackend: \"tell\"\nmax_batch_size: 8\n"
               "input { name: \"INPUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
               "output { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n%s",
               name, more);
}

/* version/value: what OUTPUT's first element will be. */
static inline void repo_version(const char *folder, const char *name, int version, const char *value)
{
    char file[PROA_PATH_MAX];
    snprintf(file, sizeof file, "%s/%d/value", name, version);
    repo_write(folder, file, "%s", value);
}

/* ---- the backend "tell": OUTPUT[0] is the number in VERSION/value; "bad" there fails to load, "slowly N" takes 100
 * ms to load; "four N" loads when four of them do at the same time; "once N" fails the first time; "never" loads and is
 * not ready. It counts what is open. ---- */

static atomic_int tell_models, tell_instances, tell_opened;

typedef struct tell {
    int32_t value;
    bool never;
} tell;

static atomic_int tell_fours;

static inline void tell_sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static inline proa_status tell_open(void **state, proa_served_model *model, proa_err *err)
{
    char path[PROA_PATH_MAX], text[32] = "";
    snprintf(path, sizeof path, "%s/value", proa_served_model_version_path(model));
    FILE *f = fopen(path, "r");
    if (!f || !fgets(text, sizeof text, f)) text[0] = 0;
    if (f) fclose(f);
    atomic_fetch_add(&tell_opened, 1);
    if (strcmp(text, "bad") == 0) return PROA_FAIL(err, INVALID, "the value is bad");
    static atomic_int tries;
    bool once = strncmp(text, "once ", 5) == 0;
    if (once && atomic_fetch_add(&tries, 1) % 2 == 0)
        return PROA_FAIL(err, UNAVAILABLE, "not the first time");
    bool slowly = strncmp(text, "slowly ", 7) == 0;
    if (slowly) tell_sleep_ms(100);
    bool four = strncmp(text, "four ", 5) == 0;
    if (four) atomic_fetch_add(&tell_fours, 1);
    for (int i = 0; four && i < 2000 && atomic_load(&tell_fours) < 4; i++) tell_sleep_ms(10);
    if (four && atomic_load(&tell_fours) < 4) return PROA_FAIL(err, UNAVAILABLE, "the others did not come");
    tell *t = proa_calloc(1, sizeof *t);
    t->value = (int32_t)strtol(text + (slowly ? 7 : once || four ? 5 : 0), NULL, 10);
    t->never = strcmp(text, "never") == 0;
    atomic_fetch_add(&tell_models, 1);
    *state = t;
    return PROA_OK;
}

static inline void tell_close(void *state)
{
    atomic_fetch_sub(&tell_models, 1);
    free(state);
}

static inline proa_status tell_instance_open(void **state, void *model_state, const proa_instance *instance,
                                             proa_err *err)
{
    (void)instance;
    (void)err;
    atomic_fetch_add(&tell_instances, 1);
    *state = model_state;
    return PROA_OK;
}

static inline void tell_instance_close(void *state)
{
    (void)state;
    atomic_fetch_sub(&tell_instances, 1);
}

/* INPUT[0] > 0: so many milliseconds pass before the answer. */
static inline void tell_execute(void *state, proa_infer *const *requests, int count)
{
    const tell *t = state;
    for (int i = 0; i < count; i++) {
        const proa_tensor *in = proa_infer_input(requests[i], "INPUT");
        int32_t wait = 0;
        void *data;
        if (in->bytes >= 4) memcpy(&wait, in->data, 4);
        if (wait > 0) tell_sleep_ms(wait);
        const int64_t shape[] = {requests[i]->batch, 1};
        proa_reply *reply = proa_reply_new(requests[i]);
        proa_reply_add_array(reply, "OUTPUT", PROA_TYPE_INT32, shape, 2, &data);
        for (int64_t b = 0; b < requests[i]->batch; b++) memcpy((char *)data + 4 * b, &t->value, 4);
        proa_infer_reply(requests[i], reply, true);
    }
}

static inline bool tell_ready(void *state, proa_err *reason)
{
    const tell *t = state;
    if (t->never) (void)PROA_FAIL(reason, UNAVAILABLE, "it never is");
    return !t->never;
}

static const proa_backend tell_backend = {.name = "tell",
                                          .model_open = tell_open,
                                          .model_close = tell_close,
                                          .instance_open = tell_instance_open,
                                          .instance_close = tell_instance_close,
                                          .execute = tell_execute,
                                          .ready = tell_ready};
static const proa_backend *const tell_backends[] = {&tell_backend, NULL};

/* ---- a server ---- */

static inline proa_server *repo_serve(const char *folder, proa_control control)
{
    proa_server *s = NULL;
    proa_err err = {0};
    const char *const folders[] = {folder};
    proa_server_options o = {.repositories = folders,
                             .repositories_count = 1,
                             .backends = tell_backends,
                             .control = control,
                             .poll_secs = 3600};
    if (proa_server_new(&s, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    return s;
}

static inline void repo_stop(proa_server *s)
{
    assert_true(proa_server_stop(s, 10000));
    proa_server_free(s);
    assert_int_equal(atomic_load(&tell_models), 0);
    assert_int_equal(atomic_load(&tell_instances), 0);
}

/* ---- a request ---- */

typedef struct call {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool done;
    proa_status status;
    int32_t value;
    int64_t version;
    char text[400];
} call;

static inline void call_on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    call *c = r->user;
    pthread_mutex_lock(&c->lock);
    if (reply) {
        const proa_tensor *t = proa_reply_output(reply, "OUTPUT");
        c->status = reply->error.status;
        c->version = reply->model_version;
        if (reply->error.status != PROA_OK) snprintf(c->text, sizeof c->text, "%.390s", reply->error.text);
        if (c->status == PROA_OK && t) memcpy(&c->value, t->data, 4);
    }
    proa_reply_free(reply);
    if (final) proa_infer_drop(r); /* as the protocols do: the version may be closed now */
    c->done = final;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

static inline void free_nothing(void *arg)
{
    (void)arg;
}

/* Sends; the answer is awaited by call_wait. */
static inline void call_begin(call *c, proa_server *s, const char *model, int64_t version, int32_t wait_ms)
{
    proa_err err = {0};
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    proa_infer *r = proa_infer_new();
    r->model_name = proa_arena_strdup(&r->arena, proa_str_c(model));
    r->model_version = version;
    r->on_reply = call_on_reply;
    r->user = c;
    proa_tensor *t = proa_infer_add_input(r, proa_str_c("INPUT"));
    t->type = PROA_TYPE_INT32;
    t->rank = 2;
    t->shape[0] = t->shape[1] = 1;
    t->buffer = proa_buffer_new(4);
    memcpy(t->buffer->data, &wait_ms, 4);
    t->data = t->buffer->data;
    t->bytes = 4;
    proa_status status = proa_server_infer(s, r, &err);
    if (status == PROA_OK) return;
    c->status = status;
    snprintf(c->text, sizeof c->text, "%.390s", err.text);
    proa_infer_drop(r);
    c->done = true;
}

static inline void call_wait(call *c)
{
    pthread_mutex_lock(&c->lock);
    while (!c->done) pthread_cond_wait(&c->wake, &c->lock);
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
}

/* The value that a model tells. */
static inline int32_t repo_ask(proa_server *s, const char *model, int64_t version)
{
    call c;
    call_begin(&c, s, model, version, 0);
    call_wait(&c);
    if (c.status != PROA_OK) fail_msg("%s", c.text);
    return c.value;
}

/* ... or the text with which it is refused. */
static inline void repo_refused(proa_server *s, const char *model, int64_t version, proa_status status,
                                const char *text)
{
    call c;
    call_begin(&c, s, model, version, 0);
    call_wait(&c);
    assert_string_equal(c.text, text);
    assert_int_equal(c.status, status);
}

/* The index as text: "m:1:READY m:2:UNAVAILABLE(unloaded) other". */
static inline const char *repo_index(proa_server *s)
{
    static char text[4096];
    proa_arena arena;
    proa_err err = {0};
    Inference__RepositoryIndexResponse *index;
    size_t at = 0;
    proa_arena_init(&arena);
    if (proa_server_index(s, false, &index, &arena, &err) != PROA_OK) fail_msg("%s", err.text);
    text[0] = 0;
    for (size_t i = 0; i < index->n_models; i++) {
        const Inference__RepositoryIndexResponse__ModelIndex *m = index->models[i];
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "", m->name);
        if (*m->version) at += (size_t)snprintf(text + at, sizeof text - at, ":%s", m->version);
        if (*m->state) at += (size_t)snprintf(text + at, sizeof text - at, ":%s", m->state);
        if (*m->reason) at += (size_t)snprintf(text + at, sizeof text - at, "(%s)", m->reason);
    }
    proa_arena_release(&arena);
    return text;
}

/* Waits until the index is this (a version may be unloading). */
static inline void repo_expect(proa_server *s, const char *index)
{
    for (int i = 0; i < 400 && strcmp(repo_index(s), index) != 0; i++) tell_sleep_ms(5);
    assert_string_equal(repo_index(s), index);
}

/* What the transaction policy of a model, or of the steps of an ensemble, says. */
static inline void assert_transaction(proa_server *server, const char *name, bool decoupled, bool unary)
{
    proa_infer *r = proa_infer_new();
    r->model_name = proa_arena_strdup(&r->arena, proa_str_c(name));
    assert_int_equal(proa_server_find_model(server, r, NULL), PROA_OK);
    const proa_served_model *found = r->model;
    assert_int_equal(proa_served_model_decoupled(found), decoupled);
    assert_int_equal(proa_served_model_unary(found), unary);
    assert_int_equal(proa_server_find_model(server, r, NULL), PROA_OK); /* no second look-up: the same version */
    assert_ptr_equal(r->model, found);
    proa_infer_drop(r);
}

#endif
