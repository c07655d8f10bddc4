/* SPDX-License-Identifier: Apache-2.0
 * reserve.h - refuses new work while the memory reserve (alloc.h) is in use.
 * Threads: any. */
#ifndef PROA_BASE_RESERVE_H
#define PROA_BASE_RESERVE_H

#include "base/status.h"

/* For code that accepts work, before it does: while part of the reserve is in use it tries to map that part again, and
 * if that fails it refuses the work with NO_MEMORY. */
PROA_MUST_CHECK proa_status proa_reserve_check(proa_err *err);
/* The same for work that is never refused; call it with every request of a protocol. */
void proa_reserve_recover(void);

#endif
