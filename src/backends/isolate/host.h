/* SPDX-License-Identifier: Apache-2.0
 * host.h - inside `proa backend-host`: the process in which the backend of one instance runs.
 *
 *     reader (the main thread)   packets of the server: queues them, answers calls, marks cancelled requests
 *     executor                   OPEN, EXECUTE, READY and CLOSE, in the order in which they came
 *     replier                    replies of other models that the backend has called
 *
 * Owner:   one host for the process.
 * Threads: as said; the backend's own ones send responses, calls and log lines. */
#ifndef PROA_BACKENDS_ISOLATE_HOST_H
#define PROA_BACKENDS_ISOLATE_HOST_H

#include "backends/process/process.h"
#include "process/channel_end.h"
#include "serve/hosted.h"

/* ---- jobs.c: a queue of packets with a thread ---- */

typedef struct proa_host_jobs proa_host_jobs;
typedef void proa_host_job_fn(const proa_channel_message *messages, int count);
/* The thread runs until the process ends. */
proa_host_jobs *proa_host_jobs_start(proa_host_job_fn *run);
void proa_host_jobs_add(proa_host_jobs *jobs, const proa_channel_message *messages, int count); /* copied */

/* ---- host.c ---- */

/* Sends a message with a payload. False: there is no room for it, or the server is gone. */
bool proa_host_send(uint32_t kind, uint32_t flags, uint64_t id, proa_str head, const proa_tensor *tensors,
                    int count);
bool proa_host_send_plain(const proa_channel_message *m); /* without a payload */
/* Opens the payload of a message; a broken one ends this process. */
void proa_host_payload(proa_payload *w, const proa_channel_message *m);

/* ---- host_requests.c: requests of the server, and the backend's responses ---- */

void proa_host_execute(const proa_hosted *model, const proa_channel_message *messages, int count);
/* Tells the backend which requests the server has cancelled since; true while there are requests. */
bool proa_host_check_cancelled(void);
void proa_host_wait_idle(void); /* until all requests have their final response */

/* ---- host_calls.c: what the backend asks of the server ---- */

extern const proa_upstream proa_host_upstream;
/* An ANSWER or REPLY has come; a REPLY is delivered on the thread of the replier. */
void proa_host_calls_start(void);
void proa_host_answered(const proa_channel_message *m);
void proa_host_log(int level, const char *file, int line, const char *text);

#endif
