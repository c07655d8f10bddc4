/* SPDX-License-Identifier: Apache-2.0
 * host.h - inside `proa backend-host`: the process in which the backend of one version runs, with instances of it.
 *
 *     reader (the main thread)   packets of the server: queues them, answers calls, marks cancelled requests
 *     manager                    OPEN, READY and CLOSE, of the version
 *     an executor each           EXECUTE of an instance
 *     replier                    replies of other models that the backend has called
 *
 * Owner:   one host for the process.
 * Threads: as said; the backend's own ones send responses, calls and log lines. */
#ifndef PROA_BACKENDS_ISOLATE_HOST_H
#define PROA_BACKENDS_ISOLATE_HOST_H

#include "backends/process/payload.h"
#include "process/channel_end.h"
#include "serve/hosted.h"

/* ---- jobs.c: a queue of packets with a thread ---- */

typedef struct proa_host_jobs proa_host_jobs;
typedef void proa_host_job_fn(const proa_channel_message *messages, int count);
/* The thread runs until the process ends. NULL: there is none. */
proa_host_jobs *proa_host_jobs_start(proa_host_job_fn *run);
void proa_host_jobs_add(proa_host_jobs *jobs, const proa_channel_message *messages, int count); /* copied */

/* ---- host_channel.c: the channel to the server ---- */

/* Opens the channel that the server has left this process, and takes large outputs from memory that both share. name:
 * of the process; it stays the caller's. device_open: opens tensors of payloads that are in memory of GPUs. */
PROA_MUST_CHECK proa_status proa_host_connect(const char *name, proa_device_open_fn *device_open, proa_err *err);
int proa_host_receive(proa_channel_message *in, int most, int wait_ms); /* proa_channel_receive */
void proa_host_shutdown(void); /* the server sees the end of the channel */
/* Sends a message with a payload. False: there is no room for it, or the server is gone. */
bool proa_host_send(proa_channel_message m, const proa_payload_content *c);
void proa_host_post(proa_buf *head);                      /* a POST without tensors; releases the head */
bool proa_host_send_plain(const proa_channel_message *m); /* without a payload */
/* Opens the payload of a message; a broken one ends this process. */
void proa_host_payload(proa_payload *w, const proa_channel_message *m);
const char *proa_host_name(void); /* of the process */

/* ---- host_requests.c: requests of the server, and the backend's responses ---- */

/* messages: an EXECUTE and its requests. */
void proa_host_execute(const proa_hosted *model, const proa_channel_message *messages, int count);
/* Tells the backend which requests the server has cancelled since; true while there are requests. */
bool proa_host_check_cancelled(void);
void proa_host_wait_idle(void); /* until all requests have ended and no instance executes */

/* ---- host_calls.c: what the backend asks of the server ---- */

extern const proa_upstream proa_host_upstream;
/* An ANSWER or REPLY has come; a REPLY is delivered on the thread of the replier. */
void proa_host_calls_start(void);
void proa_host_answered(const proa_channel_message *m);
/* A question to the server, and its answer: *answer, to be freed, and the payload, to be closed; payload NULL: it has
 * no tensors. Start releases the head, finish waits and ends the call. Not for the reader's thread, which brings the
 * answer: UNAVAILABLE. */
typedef struct proa_host_call proa_host_call;
PROA_MUST_CHECK proa_status proa_host_call_start(proa_host_call **out, proa_buf *head,
                                                 const proa_tensor *tensors, int count, proa_err *err);
PROA_MUST_CHECK proa_status proa_host_call_finish(proa_json **answer, proa_payload *payload,
                                                  proa_host_call *c, proa_err *err);
void proa_host_log(int level, const char *file, int line, const char *text);

/* ---- host_devices.c: memory of GPUs ---- */

/* For the payloads of the server. */
proa_device_open_fn proa_host_device_open;
/* Before the first output: how many instances this process has. */
void proa_host_devices_start(int instances);
/* Can this process use memory of the server on that GPU? If not, a line of the log says why. */
bool proa_host_devices_probe(int gpu);
/* Copies outputs on GPUs into memory leased from the server, or to the host where that cannot be. *out, to be freed:
 * the numbers of the leases [outputs]; 0: on the host. NULL: all are. */
PROA_MUST_CHECK proa_status proa_host_lease_outputs(uint64_t **out, proa_reply *reply, proa_err *err);
void proa_host_return_leases(const uint64_t *leases, int count); /* a reply was not sent */
void proa_host_devices_trim(void); /* closes memory that has not been used for long */

#endif
