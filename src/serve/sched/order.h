/* SPDX-License-Identifier: Apache-2.0
 * order.h - inside the schedulers: replies leave in the order in which the requests arrived (preserve_ordering).
 * Owner:   an entry is in its request's arena; the replies that wait in it belong to the order.
 * Threads: any. Replies are delivered by one thread at a time, without a lock held. */
#ifndef PROA_SERVE_SCHED_ORDER_H
#define PROA_SERVE_SCHED_ORDER_H

#include "serve/sched/sched.h"

proa_order *proa_order_new(proa_scheduler *s);
void proa_order_free(proa_order *order);                 /* it is empty; NULL is fine */
void proa_order_join(proa_order *order, proa_infer *r);  /* at the end of the order */
void proa_order_leave(proa_order *order, proa_infer *r); /* it was refused: no reply will come */
/* Delivers the reply now or when those before it have ended. */
void proa_order_reply(proa_order *order, proa_infer *r, proa_reply *reply, bool final);

#endif
