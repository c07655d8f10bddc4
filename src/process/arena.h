/* SPDX-License-Identifier: Apache-2.0
 * arena.h - shared memory with one owner: blocks that this side fills, and a view of the other side's.
 * Owner:   counted: the process that uses an arena or a view holds it, and so does each buffer that points into it; the
 *          mapping goes with the last holder, so a reply outlives the process that made it.
 * Threads: any.
 * Way in:  proa_shared_arena_alloc for what is sent, proa_shared_view_check for what has come. */
#ifndef PROA_PROCESS_ARENA_H
#define PROA_PROCESS_ARENA_H

#include "process/channel.h"
#include <stdbool.h>

/* ---- ours: the other side reads it and gives blocks back by the ring ---- */
typedef struct proa_shared_arena proa_shared_arena;

/* bytes: the address space; memory is taken as it is touched, and what is above keep bytes is given back to
 * the system when it is free again. Sealed: no process can make it smaller. */
PROA_MUST_CHECK proa_status proa_shared_arena_new(proa_shared_arena **out, size_t bytes, size_t keep,
                                                  proa_err *err);
/* The arena of a process that has inherited fd, which becomes the arena's. INVALID: it is no such memory. */
PROA_MUST_CHECK proa_status proa_shared_arena_open(proa_shared_arena **out, int fd, size_t keep, proa_err *err);
proa_shared_arena *proa_shared_arena_retain(proa_shared_arena *a);
void proa_shared_arena_release(proa_shared_arena *a); /* NULL is fine */
int proa_shared_arena_fd(const proa_shared_arena *a);
/* A block with two holders: the caller and, once it was sent, the other side. 0: no room. */
uint64_t proa_shared_arena_alloc(proa_shared_arena *a, size_t bytes);
char *proa_shared_arena_at(const proa_shared_arena *a, uint64_t at);
/* Another holder on this side, who drops it by proa_shared_arena_release_block. */
void proa_shared_arena_retain_block(proa_shared_arena *a, uint64_t at);
void proa_shared_arena_release_block(proa_shared_arena *a, uint64_t at);
/* Calls end(arg) once when the block is free, that is, when neither side holds it, or the arena goes. On any thread
 * that uses the arena; not under its lock. */
void proa_shared_arena_on_free(proa_shared_arena *a, uint64_t at, void (*end)(void *arg), void *arg);
/* The other side will never see this block: its hold is taken back. */
void proa_shared_arena_cancel_send(proa_shared_arena *a, uint64_t at);
/* If `data` is where a block of this arena begins that has `bytes` and that the other side does not hold: it holds the
 * block from now on, and the result is where it begins; else 0. */
uint64_t proa_shared_arena_share(proa_shared_arena *a, const void *data, size_t bytes);
/* Is [at, at + bytes) inside the block that begins at `block`? */
bool proa_shared_arena_contains(proa_shared_arena *a, uint64_t block, uint64_t at, uint64_t bytes);
size_t proa_shared_arena_used(proa_shared_arena *a); /* bytes in blocks, after a look at the ring */

/* ---- theirs ---- */
typedef struct proa_shared_view proa_shared_view;

/* The other side's arena is made here too, so that it can be sealed; its data are mapped without the right to write. */
PROA_MUST_CHECK proa_status proa_shared_view_new(proa_shared_view **out, size_t bytes, proa_err *err);
/* The view of a process that has inherited fd, as proa_shared_arena_open. */
PROA_MUST_CHECK proa_status proa_shared_view_open(proa_shared_view **out, int fd, proa_err *err);
proa_shared_view *proa_shared_view_retain(proa_shared_view *v);
void proa_shared_view_release(proa_shared_view *v); /* NULL is fine */
int proa_shared_view_fd(const proa_shared_view *v);
/* The memory of a block of a message; NULL if it is not inside the arena, or empty. The other side may write there
 * at any time: what decisions depend on is copied first. */
const char *proa_shared_view_check(const proa_shared_view *v, uint64_t at, uint64_t bytes);
void proa_shared_view_return_block(proa_shared_view *v, uint64_t at);

#endif
