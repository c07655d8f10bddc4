/* SPDX-License-Identifier: Apache-2.0
 * policy.c - which backends run in processes of their own: libraries, Proa's plug-ins too, unless it is wanted
 * otherwise, and those built-in ones that are named. */
#include "backends/isolate/isolate.h"

#include "backends/backends.h"
#include "backends/library/library.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <pthread.h>
#include <string.h>

/* Built-in backends that run libraries of others, or code that only computes on tensors. */
static const char *const can_isolate[] = {"onnxruntime", "fil",      "transform",    "tokenizer",
                                          "detokenizer", "identity", "add_sub",      "repeat",
                                          "square",      "sequence", "dyna_sequence"};

typedef struct found_backend {
    const char *path, *name; /* path "": built in */
    const proa_backend *backend;
    struct found_backend *next;
} found_backend;

static proa_isolate_policy current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static found_backend *wrapped; /* under the lock; entries stay */

static bool has_name(const char *const *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

static bool is_isolated(const proa_isolate_policy *p, const char *name)
{
    return has_name(p->isolated, p->isolated_count, name);
}

static found_backend *find_known(const char *path, const char *name)
{
    for (found_backend *f = wrapped; f; f = f->next)
        if (strcmp(f->path, path) == 0 && strcmp(f->name, name) == 0) return f;
    return NULL;
}

static found_backend *add_wrapped(const char *path, const char *name, const proa_isolate_traits *traits)
{
    found_backend *f = proa_calloc(1, sizeof *f);
    f->path = proa_strdup(path), f->name = proa_strdup(name);
    f->backend = proa_isolate_wrap(name, traits);
    f->next = wrapped;
    return wrapped = f;
}

/* ---- built-in ones ---- */

static const proa_backend *wrap_built_in(const proa_backend *b)
{
    const proa_isolate_traits traits = {.flags = b->flags, .completes = b->complete != NULL};
    pthread_mutex_lock(&lock);
    found_backend *f = find_known("", b->name);
    if (!f) f = add_wrapped("", b->name, &traits);
    pthread_mutex_unlock(&lock);
    return f->backend;
}

static proa_status check_isolated(const proa_isolate_policy *policy, const char *name, proa_err *err)
{
    bool able = false, built_in = false;
    for (const proa_backend *const *b = proa_backends; *b; b++) built_in |= strcmp((*b)->name, name) == 0;
    for (size_t i = 0; i < PROA_COUNT(can_isolate); i++) able |= strcmp(can_isolate[i], name) == 0;
    if (built_in && !able)
        return PROA_FAIL(err, INVALID, "--isolate %s: this backend cannot run in a process of its own", name);
    if (has_name(policy->in_process, policy->in_process_count, name))
        return PROA_FAIL(err, INVALID, "--isolate %s contradicts --in-process %s", name, name);
    return PROA_OK;
}

proa_status proa_isolate_configure(const proa_backend *const **backends, const proa_isolate_policy *policy,
                                   proa_arena *arena, proa_err *err)
{
    int count = 0;
    for (int i = 0; i < policy->isolated_count; i++)
        PROA_TRY(check_isolated(policy, policy->isolated[i], err));
    current = *policy;
    while (proa_backends[count]) count++;
    const proa_backend **list = PROA_ARENA_NEW(arena, const proa_backend *, count + 1);
    for (int i = 0; i < count; i++)
        list[i] = is_isolated(policy, proa_backends[i]->name) ? wrap_built_in(proa_backends[i])
                                                              : proa_backends[i];
    *backends = list;
    return PROA_OK;
}

/* ---- libraries ---- */

static bool runs_here(const char *name)
{
    const proa_isolate_policy *p = &current;
    if (is_isolated(p, name)) return false;
    return has_name(p->in_process, p->in_process_count, "all") ||
           has_name(p->in_process, p->in_process_count, name);
}

/* Its code runs in a process of its own from the first moment: here only its traits are known. */
static proa_status add_library(found_backend **out, const char *path, const char *directory, const char *name,
                               const char *runtime, proa_err *err)
{
    proa_isolate_traits traits = {0};
    PROA_TRY(proa_isolate_probe(&traits, directory, name, runtime, err));
    *out = add_wrapped(path, name, &traits);
    PROA_LOG(INFO, "backend '%s' runs in processes of its own, from '%s'", name, path);
    return PROA_OK;
}

proa_status proa_isolate_find(const proa_backend **out, const char *directory, const char *name,
                              const char *runtime, proa_err *err)
{
    char path[PROA_PATH_MAX];
    *out = NULL;
    if (runs_here(name)) return proa_library_find(out, directory, name, runtime, err);
    PROA_TRY(proa_library_locate(path, directory, name, runtime, err));
    if (!path[0]) return PROA_OK;
    pthread_mutex_lock(&lock);
    found_backend *f = find_known(path, name);
    proa_status status = f ? PROA_OK : add_library(&f, path, directory, name, runtime, err);
    pthread_mutex_unlock(&lock);
    if (status == PROA_OK) *out = f->backend;
    return status;
}
