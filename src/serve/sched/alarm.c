/* SPDX-License-Identifier: Apache-2.0
 * alarm.c - the thread that fires the alarms of all schedulers. */
#include "serve/sched/alarm.h"

#include "base/clock.h"
#include "base/compiler.h"
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/* A server has a few hundred alarms at most (one for a model), so the next one is found by looking at all. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake, rest; /* an earlier time was set; fire has returned */
static bool started;
static proa_alarm *alarms, *running;
static int64_t asleep_until = PROA_ALARM_NEVER;

static proa_alarm *earliest_alarm(void)
{
    proa_alarm *first = alarms;
    for (proa_alarm *t = alarms; t; t = t->next)
        if (atomic_load(&t->at_ns) < atomic_load(&first->at_ns)) first = t;
    return first;
}

static void sleep_until(int64_t at_ns)
{
    asleep_until = at_ns;
    if (at_ns == PROA_ALARM_NEVER) {
        pthread_cond_wait(&wake, &lock);
    } else {
        struct timespec t = {.tv_sec = (time_t)(at_ns / 1000000000), .tv_nsec = (long)(at_ns % 1000000000)};
        pthread_cond_timedwait(&wake, &lock, &t);
    }
    asleep_until = 0; /* awake: it looks at all alarms before it sleeps again */
}

static void fire_due(proa_alarm *t, int64_t now)
{
    atomic_store(&t->at_ns, PROA_ALARM_NEVER);
    running = t;
    pthread_mutex_unlock(&lock);
    int64_t next = t->fire(t->arg, now);
    pthread_mutex_lock(&lock);
    running = NULL;
    if (next < atomic_load(&t->at_ns)) atomic_store(&t->at_ns, next);
    pthread_cond_broadcast(&rest);
}

static void *alarm_thread(void *arg)
{
    PROA_UNUSED(arg);
    pthread_mutex_lock(&lock);
    for (;;) {
        proa_alarm *t = earliest_alarm();
        int64_t at = t ? atomic_load(&t->at_ns) : PROA_ALARM_NEVER, now = proa_clock_ns();
        if (at <= now) fire_due(t, now);
        else sleep_until(at);
    }
    return NULL;
}

/* The thread lives as long as the process: models come and go. Lock held. */
static proa_status start_alarm_thread(proa_err *err)
{
    pthread_condattr_t attr;
    pthread_t thread;
    if (started) return PROA_OK;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&wake, &attr);
    pthread_cond_init(&rest, NULL);
    pthread_condattr_destroy(&attr);
    int failed = pthread_create(&thread, NULL, alarm_thread, NULL);
    if (failed) {
        pthread_cond_destroy(&wake);
        pthread_cond_destroy(&rest);
        return PROA_FAIL(err, NO_MEMORY, "cannot start the thread that keeps time: %s", strerror(failed));
    }
    started = true;
    pthread_setname_np(thread, "proa-time");
    pthread_detach(thread);
    return PROA_OK;
}

proa_status proa_alarm_open(proa_alarm *alarm, int64_t (*fire)(void *arg, int64_t now_ns), void *arg,
                            proa_err *err)
{
    pthread_mutex_lock(&lock);
    proa_status status = start_alarm_thread(err);
    if (status == PROA_OK) {
        alarm->fire = fire;
        alarm->arg = arg;
        atomic_store(&alarm->at_ns, PROA_ALARM_NEVER);
        alarm->next = alarms;
        alarms = alarm;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void proa_alarm_close(proa_alarm *alarm)
{
    if (!alarm->fire) return;
    pthread_mutex_lock(&lock);
    while (running == alarm) pthread_cond_wait(&rest, &lock);
    for (proa_alarm **at = &alarms; *at; at = &(*at)->next)
        if (*at == alarm) {
            *at = alarm->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    alarm->fire = NULL;
}

void proa_alarm_before(proa_alarm *alarm, int64_t at_ns)
{
    if (atomic_load(&alarm->at_ns) <= at_ns) return;
    pthread_mutex_lock(&lock);
    if (at_ns < atomic_load(&alarm->at_ns)) atomic_store(&alarm->at_ns, at_ns);
    if (at_ns < asleep_until) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}
