/* SPDX-License-Identifier: Apache-2.0
 * alloc.h - memory from the system, in two kinds.
 * Bookkeeping (proa_malloc and the like): small; never NULL. When the system refuses, a slice of the reserve is
 *   released and the call is repeated; without a reserve, or when it is used up, the process ends with a message.
 *   Products that form a size are checked before the call. The _try functions are for sizes that a request chooses.
 * Budgeted (proa_pages_alloc): weights, keys and values, activations. May return NULL; the caller then reports
 *   the size it needed. Calls are counted, so that a test can verify that the decode loop allocates nothing. */
#ifndef PROA_BASE_ALLOC_H
#define PROA_BASE_ALLOC_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *proa_malloc(size_t bytes);               /* not zeroed */
void *proa_calloc(size_t count, size_t bytes); /* zeroed; overflow aborts */
void *proa_realloc(void *ptr, size_t bytes);
char *proa_strdup(const char *s);
void *proa_malloc_aligned(size_t bytes); /* to 64 bytes, a cache line; not zeroed; released with free */

/* NULL if the system refuses; the reserve is not used. */
void *proa_realloc_try(void *ptr, size_t bytes);
void *proa_malloc_aligned_try(size_t bytes);

/* The reserve: PROA_RESERVE_BYTES of address space, mapped and untouched. A server holds it so that running
 * out of memory fails requests and not the process (reserve.h). Any thread. */
bool proa_reserve_open(void); /* false: the system mapped only a part of it, or nothing; the program still works */
bool proa_reserve_give(void); /* releases a slice; false: none is left. For the program's malloc (cli/malloc.c) */
/* Tries to map again what is missing of an open reserve: the slices of PROA_RESERVE_SLICE_BYTES that still are. */
int proa_reserve_missing(void);

/* Zeroed memory straight from the kernel, aligned to 2 MiB when bytes reach that (so that huge pages fit) and
 * to a page otherwise. bytes > 0. NULL if there is none. Release with the same byte count. */
void *proa_pages_alloc(int64_t bytes);
void proa_pages_free(void *ptr, int64_t bytes);

/* Memory in bytes that this process may still take: the lesser of the system's available memory and the
 * limit of the control group; INT64_MAX if neither can be read. */
int64_t proa_memory_available(void);
/* Returns freed memory that the C library holds to the system; for use after large requests. Takes
 * milliseconds. */
void proa_memory_trim(void);
/* Highest resident memory of this process so far, in bytes. */
int64_t proa_memory_peak(void);
/* Calls of proa_malloc and its kin and proa_pages_alloc since the process started. */
uint64_t proa_alloc_count(void);

#endif
