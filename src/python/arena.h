/* SPDX-License-Identifier: Apache-2.0
 * arena.h - shared memory with one owner: blocks that this side fills, and a view of the other side's.
 * Owner:   counted: the process that uses an arena or a view holds it, and so does each buffer that points into it; the
 *          mapping goes with the last holder, so a reply outlives the process that made it.
 * Threads: any.
 * Way in:  proa_pyarena_alloc for what is sent, proa_pyview_check for what has come. */
#ifndef PROA_PYTHON_ARENA_H
#define PROA_PYTHON_ARENA_H

#include "python/channel.h"
#include <stdbool.h>

/* ---- ours: the stub reads it and gives blocks back by the ring ---- */
typedef struct proa_pyarena proa_pyarena;

/* bytes: the address space; memory is taken as it is touched, and what is above keep bytes is given back to
 * the system when it is free again. Sealed: no process can make it smaller. */
PROA_MUST_CHECK proa_status proa_pyarena_new(proa_pyarena **out, size_t bytes, size_t keep, proa_err *err);
proa_pyarena *proa_pyarena_retain(proa_pyarena *a);
void proa_pyarena_release(proa_pyarena *a); /* NULL is fine */
int proa_pyarena_fd(const proa_pyarena *a);
/* A block with two holders: the caller and, once it was sent, the stub. 0: no room. */
uint64_t proa_pyarena_alloc(proa_pyarena *a, size_t bytes);
char *proa_pyarena_at(const proa_pyarena *a, uint64_t at);
/* Another holder on this side, who drops it by proa_pyarena_release_block. */
void proa_pyarena_retain_block(proa_pyarena *a, uint64_t at);
void proa_pyarena_release_block(proa_pyarena *a, uint64_t at);
/* The stub will never see this block: its hold is taken back. */
void proa_pyarena_cancel_send(proa_pyarena *a, uint64_t at);
/* Is [at, at + bytes) inside the block that begins at `block`? */
bool proa_pyarena_contains(proa_pyarena *a, uint64_t block, uint64_t at, uint64_t bytes);
size_t proa_pyarena_used(proa_pyarena *a); /* bytes in blocks, after a look at the ring */

/* ---- theirs ---- */
typedef struct proa_pyview proa_pyview;

/* The stub's arena is made here too, so that it can be sealed; its data are mapped without the right to write. */
PROA_MUST_CHECK proa_status proa_pyview_new(proa_pyview **out, size_t bytes, proa_err *err);
proa_pyview *proa_pyview_retain(proa_pyview *v);
void proa_pyview_release(proa_pyview *v); /* NULL is fine */
int proa_pyview_fd(const proa_pyview *v);
/* The memory of a block that the stub speaks of; NULL if it is not inside the arena, or empty. The stub may write there
 * at any time: what decisions depend on is copied first. */
const char *proa_pyview_check(const proa_pyview *v, uint64_t at, uint64_t bytes);
void proa_pyview_return_block(proa_pyview *v, uint64_t at);

#endif
