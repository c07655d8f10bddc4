/* SPDX-License-Identifier: Apache-2.0
 * jobs.c - a queue of packets with a thread. */
#include "backends/isolate/host.h"

#include "base/alloc.h"
#include <string.h>

typedef struct job {
    struct job *next;
    int count;
    proa_channel_message messages[];
} job;

struct proa_host_jobs {
    proa_host_job_fn *run;
    pthread_mutex_t lock;
    pthread_cond_t added;
    job *first, **last;
};

static job *take_job(proa_host_jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
    while (!jobs->first) pthread_cond_wait(&jobs->added, &jobs->lock);
    job *j = jobs->first;
    jobs->first = j->next;
    if (!jobs->first) jobs->last = &jobs->first;
    pthread_mutex_unlock(&jobs->lock);
    return j;
}

static void *run_jobs(void *arg)
{
    proa_host_jobs *jobs = arg;
    for (;;) {
        job *j = take_job(jobs);
        jobs->run(j->messages, j->count);
        free(j);
    }
    return NULL;
}

proa_host_jobs *proa_host_jobs_start(proa_host_job_fn *run)
{
    pthread_t thread;
    proa_host_jobs *jobs = proa_calloc(1, sizeof *jobs);
    jobs->run = run;
    jobs->last = &jobs->first;
    pthread_mutex_init(&jobs->lock, NULL);
    pthread_cond_init(&jobs->added, NULL);
    if (pthread_create(&thread, NULL, run_jobs, jobs) == 0) {
        pthread_detach(thread);
        return jobs;
    }
    pthread_cond_destroy(&jobs->added);
    pthread_mutex_destroy(&jobs->lock);
    free(jobs);
    return NULL;
}

void proa_host_jobs_add(proa_host_jobs *jobs, const proa_channel_message *messages, int count)
{
    size_t bytes = (size_t)count * sizeof *messages;
    job *j = proa_malloc(sizeof *j + bytes);
    j->next = NULL;
    j->count = count;
    memcpy(j->messages, messages, bytes);
    pthread_mutex_lock(&jobs->lock);
    *jobs->last = j;
    jobs->last = &j->next;
    pthread_cond_signal(&jobs->added);
    pthread_mutex_unlock(&jobs->lock);
}
