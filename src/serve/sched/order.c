/* SPDX-License-Identifier: Apache-2.0
 * order.c - delivers replies in the order of their requests (preserve_ordering). */
#include "serve/sched/order.h"

#include "base/alloc.h"

typedef struct order_entry {
    struct order_entry *prev, *next;
    proa_infer *request;
    proa_reply *head, *tail; /* arrived, but not yet delivered */
    bool done;               /* no more will come */
} order_entry;

struct proa_order {
    pthread_mutex_t lock;
    proa_scheduler *scheduler;
    order_entry *first, *last;
    bool delivering; /* a thread delivers; others leave their replies to it */
};

proa_order *proa_order_new(proa_scheduler *s)
{
    proa_order *o = proa_calloc(1, sizeof *o);
    pthread_mutex_init(&o->lock, NULL);
    o->scheduler = s;
    return o;
}

void proa_order_free(proa_order *order)
{
    if (!order) return;
    PROA_ASSERT(!order->first);
    pthread_mutex_destroy(&order->lock);
    free(order);
}

void proa_order_join(proa_order *order, proa_infer *r)
{
    order_entry *p = PROA_ARENA_NEW(&r->arena, order_entry, 1);
    p->request = r;
    r->ticket.order = p;
    pthread_mutex_lock(&order->lock);
    p->prev = order->last;
    if (order->last) order->last->next = p;
    else order->first = p;
    order->last = p;
    pthread_mutex_unlock(&order->lock);
}

static void take_out(proa_order *o, order_entry *p)
{
    if (p->prev) p->prev->next = p->next;
    else o->first = p->next;
    if (p->next) p->next->prev = p->prev;
    else o->last = p->prev;
}

/* Delivers the replies of the first entry. It stays the first until it is taken out, so no other thread touches what
 * was taken from it. Called with the lock, which is released meanwhile. */
static void deliver_first(proa_order *o, order_entry *p)
{
    proa_reply *reply = p->head;
    bool done = p->done;
    proa_infer *r = p->request;
    p->head = p->tail = NULL;
    if (done) take_out(o, p);
    pthread_mutex_unlock(&o->lock);
    if (done) proa_scheduler_ended(o->scheduler);
    if (!reply && done) proa_infer_deliver(r, NULL, true);
    for (proa_reply *next; reply; reply = next) {
        next = reply->next;
        proa_infer_deliver(r, reply, done && !next);
    }
    pthread_mutex_lock(&o->lock);
}

static void flush_replies(proa_order *o)
{
    if (o->delivering) return;
    o->delivering = true;
    while (o->first && (o->first->head || o->first->done)) deliver_first(o, o->first);
    o->delivering = false;
}

void proa_order_leave(proa_order *order, proa_infer *r)
{
    order_entry *p = r->ticket.order;
    pthread_mutex_lock(&order->lock);
    take_out(order, p);
    flush_replies(order);
    pthread_mutex_unlock(&order->lock);
}

void proa_order_reply(proa_order *order, proa_infer *r, proa_reply *reply, bool final)
{
    proa_scheduler *s = order->scheduler;
    order_entry *p = r->ticket.order;
    /* The last request that is let out may have been the last to hold the model: this call holds the scheduler. */
    atomic_fetch_add(&s->busy, 1);
    pthread_mutex_lock(&order->lock);
    if (reply) {
        reply->next = NULL;
        if (p->tail) p->tail->next = reply;
        else p->head = reply;
        p->tail = reply;
    }
    p->done = final;
    flush_replies(order);
    pthread_mutex_unlock(&order->lock);
    proa_scheduler_ended(s);
}
