/* SPDX-License-Identifier: Apache-2.0
 * guard.h - mapped memory that another process may shorten: a model's file, a client's shared memory region.
 * Reading a page beyond the new end raises SIGBUS, which ends a process. With proa_guards_install, a fault within a
 * guarded range maps a page of zeros in its place, marks the range as broken and goes on; whoever used the range asks
 * proa_guard_broken afterwards and fails its own work. Faults elsewhere go to the handler that was there before.
 * Owner:   proa_guard_add/remove; the mapping itself is the caller's, and is unmapped after remove.
 * Threads: any. The handler takes no lock: it reads a list of slots that only grows. */
#ifndef PROA_BASE_GUARD_H
#define PROA_BASE_GUARD_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct proa_guard proa_guard;

/* Installs the handler for the whole process, once; for programs (a library leaves its host's signals alone). Without
 * it ranges are never broken, and a fault ends the process as before. */
void proa_guards_install(void);

/* [ptr, ptr + bytes), on a page, from now on. Never NULL. */
proa_guard *proa_guard_add(const void *ptr, size_t bytes);
void proa_guard_remove(proa_guard *guard); /* NULL is fine */
/* Did a page of it vanish since it was added? What was read from it may be zeros. */
bool proa_guard_broken(const proa_guard *guard);
/* Of all ranges there ever were: false means that none is broken, at the cost of one read. */
bool proa_guards_any_broken(void);

#endif
