/* SPDX-License-Identifier: Apache-2.0
 * guard.h - mapped memory that another process may shorten: a model's file, a client's shared memory region.
 * Reading a page beyond the new end raises SIGBUS, which ends a process. With proa_guards_install, a fault within a
 * guarded range maps a page of zeros in its place, marks the range as broken and continues; the user of the range
 * calls proa_guard_broken afterwards and fails its own work. Other faults go to the previous handler.
 * Owner:   proa_guard_add/remove; the mapping itself is the caller's, and is unmapped after remove.
 * Threads: any. The handler takes no lock: it reads a list of slots that only grows. */
#ifndef PROA_BASE_GUARD_H
#define PROA_BASE_GUARD_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct proa_guard proa_guard;

/* Installs the handler for the whole process, once. Only programs call it: a library must not change its
 * host's signal handlers. Without it ranges are never broken, and a fault ends the process as before. */
void proa_guards_install(void);

/* Guards [ptr, ptr + bytes) from now on; ptr is page-aligned. Never NULL. */
proa_guard *proa_guard_add(const void *ptr, size_t bytes);
void proa_guard_remove(proa_guard *guard); /* NULL is fine */
/* Whether a page of the range has vanished since it was added; what was read from it may be zeros. */
bool proa_guard_broken(const proa_guard *guard);
/* The same for all ranges: false means that none is broken, and costs one read. */
bool proa_guards_any_broken(void);

#endif
