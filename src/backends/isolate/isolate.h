/* SPDX-License-Identifier: Apache-2.0
 * isolate.h - backends that run in processes of their own: each version of a model has a process, `proa backend-host`,
 *             in which the backend's table runs, with all instances, as it would run in the server.
 * Owner:   a table that proa_isolate_wrap returns stays until the program ends, as the one that it wraps.
 * Threads: any.
 * Way in:  proa_isolate_configure, then proa_isolate_find as find_backend of a server. */
#ifndef PROA_BACKENDS_ISOLATE_ISOLATE_H
#define PROA_BACKENDS_ISOLATE_ISOLATE_H

#include "serve/backend.h"

/* Which backends run where. `in_process`: libraries that run in the server, "all": all of them. `isolated`: backends
 * that are built in and run in processes of their own. The lists live as long as the program. */
typedef struct proa_isolate_policy {
    const char *const *in_process, *const *isolated;
    int in_process_count, isolated_count;
} proa_isolate_policy;

/* Sets the policy of this program, before it has a server: proa_isolate_find follows it, and *backends, in the arena,
 * is proa_backends with the isolated ones replaced. INVALID: a name of `isolated` is a backend that cannot be isolated,
 * or is in both lists. */
PROA_MUST_CHECK proa_status proa_isolate_configure(const proa_backend *const **backends,
                                                   const proa_isolate_policy *policy, proa_arena *arena,
                                                   proa_err *err);
/* As proa_library_find, of which it takes the place: libraries run in processes of their own, unless the policy has
 * them in this one. So do those that Proa brings (plugins.c): they link to code of others. */
PROA_MUST_CHECK proa_status proa_isolate_find(const proa_backend **out, const char *directory,
                                              const char *name, const char *runtime, proa_err *err);

/* What a table needs beside its functions, of a backend that this process has not loaded. */
typedef struct proa_isolate_traits {
    unsigned flags; /* enum proa_backend_flags */
    bool completes; /* it completes configurations */
} proa_isolate_traits;

/* The table of a backend of that name whose models run in processes of their own. Called once for each name and file:
 * it is not freed. */
const proa_backend *proa_isolate_wrap(const char *name, const proa_isolate_traits *traits);
/* Loads the library of a backend in a process of its own and reports what it is; the errors are those of
 * proa_library_find, and UNAVAILABLE if the process crashed. */
PROA_MUST_CHECK proa_status proa_isolate_probe(proa_isolate_traits *out, const char *directory,
                                               const char *name, const char *runtime, proa_err *err);

/* `proa backend-host PID PROTOCOL NAME`: a process that a server has started; returns the exit status. */
int proa_isolate_host(int argc, char **argv);

#endif
