/* SPDX-License-Identifier: Apache-2.0
 * alloc.h - memory from the system, in two kinds.
 * Bookkeeping (proa_malloc and kin): small; running out aborts with a message, since Linux overcommits and no
 *   test of it would be honest. Every product that feeds a size is checked before.
 * Budgeted (proa_pages_alloc): weights, keys and values, activations. May fail; returns NULL and the caller
 *   refuses with the sum. Counted, so that a test can see that the decode loop allocates nothing. */
#ifndef PROA_BASE_ALLOC_H
#define PROA_BASE_ALLOC_H

#include "base/compiler.h"
#include <stddef.h>
#include <stdint.h>

void *proa_malloc(size_t bytes);               /* not zeroed */
void *proa_calloc(size_t count, size_t bytes); /* zeroed; overflow aborts */
void *proa_realloc(void *ptr, size_t bytes);
char *proa_strdup(const char *s);
void *proa_malloc_aligned(size_t bytes); /* to 64 bytes, a cache line; not zeroed; released with free */

/* Zeroed memory straight from the kernel, aligned to 2 MiB when bytes reach that (so that huge pages fit) and
 * to a page otherwise. bytes > 0. NULL if there is none. Release with the same byte count. */
void *proa_pages_alloc(int64_t bytes);
void proa_pages_free(void *ptr, int64_t bytes);

/* Memory that this process may still take, in bytes: the least of what the system has available and what the
 * control group allows; INT64_MAX if neither can be read. */
int64_t proa_memory_available(void);
/* Highest resident memory of this process so far, in bytes. */
int64_t proa_memory_peak(void);
/* Calls of proa_malloc and its kin and proa_pages_alloc since the process started. */
uint64_t proa_alloc_count(void);

#endif
