/* SPDX-License-Identifier: Apache-2.0
 * rcu.h - inside serve: reading something that is replaced as a whole, without a lock that readers share. A reader
 * enters, loads the pointer, takes what it needs (a reference) and leaves at once. A writer swaps the pointer and
 * waits until every reader that was inside has left; after that no reader uses the old one.
 * Threads: any. Each has a line of its own, so readers do not meet. Not nested; a reader does not block. */
#ifndef PROA_SERVE_RCU_H
#define PROA_SERVE_RCU_H

void proa_rcu_enter(void);
void proa_rcu_leave(void);
/* Returns when all readers that were inside at the call have left. Not from inside. */
void proa_rcu_wait(void);

#endif
