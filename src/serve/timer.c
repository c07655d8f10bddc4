/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/timer.h"

#include "base/clock.h"
#include "base/compiler.h"
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* A server has a few hundred timers at most (one for a model), so the next one is found by looking at all. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake, rest; /* an earlier time was set; fire has returned */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static proa_timer *timers, *running;
static int64_t asleep_until = PROA_TIMER_NEVER;

static proa_timer *earliest(void)
{
    proa_timer *first = timers;
    for (proa_timer *t = timers; t; t = t->next)
        if (atomic_load(&t->at_ns) < atomic_load(&first->at_ns)) first = t;
    return first;
}

static void sleep_until(int64_t at_ns)
{
    asleep_until = at_ns;
    if (at_ns == PROA_TIMER_NEVER) {
        pthread_cond_wait(&wake, &lock);
    } else {
        struct timespec t = {.tv_sec = (time_t)(at_ns / 1000000000), .tv_nsec = (long)(at_ns % 1000000000)};
        pthread_cond_timedwait(&wake, &lock, &t);
    }
    asleep_until = 0; /* awake: it looks at all timers before it sleeps again */
}

static void fire(proa_timer *t, int64_t now)
{
    atomic_store(&t->at_ns, PROA_TIMER_NEVER);
    running = t;
    pthread_mutex_unlock(&lock);
    int64_t next = t->fire(t->arg, now);
    pthread_mutex_lock(&lock);
    running = NULL;
    if (next < atomic_load(&t->at_ns)) atomic_store(&t->at_ns, next);
    pthread_cond_broadcast(&rest);
}

static void *keep_time(void *arg)
{
    PROA_UNUSED(arg);
    pthread_mutex_lock(&lock);
    for (;;) {
        proa_timer *t = earliest();
        int64_t at = t ? atomic_load(&t->at_ns) : PROA_TIMER_NEVER, now = proa_clock_ns();
        if (at <= now) fire(t, now);
        else sleep_until(at);
    }
    return NULL;
}

/* The thread lives as long as the process: models come and go. */
static void start(void)
{
    pthread_condattr_t attr;
    pthread_t thread;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&wake, &attr);
    pthread_cond_init(&rest, NULL);
    pthread_condattr_destroy(&attr);
    PROA_ASSERT(pthread_create(&thread, NULL, keep_time, NULL) == 0);
    pthread_setname_np(thread, "proa-time");
    pthread_detach(thread);
}

void proa_timer_open(proa_timer *timer, int64_t (*fn)(void *arg, int64_t now_ns), void *arg)
{
    pthread_once(&once, start);
    timer->fire = fn;
    timer->arg = arg;
    atomic_store(&timer->at_ns, PROA_TIMER_NEVER);
    pthread_mutex_lock(&lock);
    timer->next = timers;
    timers = timer;
    pthread_mutex_unlock(&lock);
}

void proa_timer_close(proa_timer *timer)
{
    if (!timer->fire) return;
    pthread_mutex_lock(&lock);
    while (running == timer) pthread_cond_wait(&rest, &lock);
    for (proa_timer **at = &timers; *at; at = &(*at)->next)
        if (*at == timer) {
            *at = timer->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    timer->fire = NULL;
}

void proa_timer_before(proa_timer *timer, int64_t at_ns)
{
    if (atomic_load(&timer->at_ns) <= at_ns) return;
    pthread_mutex_lock(&lock);
    if (at_ns < atomic_load(&timer->at_ns)) atomic_store(&timer->at_ns, at_ns);
    if (at_ns < asleep_until) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}
