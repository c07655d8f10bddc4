/* SPDX-License-Identifier: Apache-2.0
 * payload.h - payloads: requests, replies and tensors in the shared memory of server and process, each with a head of
 *             JSON. Both sides use it; src/process has the memory and the messages.
 * Owner:   a written payload has one reference for the caller and one for the reader; an opened one is closed with
 *          proa_payload_close, and tensors that were read from it keep it alive.
 * Threads: one at a time on one payload. Bytes of the other side are checked before use. */
#ifndef PROA_BACKENDS_PROCESS_PAYLOAD_H
#define PROA_BACKENDS_PROCESS_PAYLOAD_H

#include "backends/process/devices.h"
#include "base/json.h"
#include "process/process.h"
#include "serve/infer.h"

typedef struct proa_worker_model proa_worker_model; /* process.h */

/* ---- writing ---- */

/* What is written into a payload. */
typedef struct proa_payload_content {
    proa_str head;
    const proa_tensor *tensors; /* [count] */
    int count;
    proa_exports *exports; /* of the tensors; NULL: all are on the host */
} proa_payload_content;
/* Writes a payload into shared memory. *at is its block; the caller and the process have one reference each. False: the
 * arena is full. */
bool proa_payload_write(proa_shared_arena *a, const proa_payload_content *c, uint64_t *at, uint64_t *bytes);
/* Writes a payload and sends it with message m. False: the arena is full. */
bool proa_payload_send(proa_process *p, proa_channel_message m, const proa_payload_content *c);
/* The head of a REQUEST: "" if all of it is default. */
void proa_payload_request_head(proa_buf *out, const proa_infer *r);
/* The head of an answer that is an error. */
void proa_payload_error_head(proa_buf *out, const proa_err *err);
/* The head of a RESPONSE of a process that is written in C; reply may be NULL. It has what the backend has reported of
 * the request: times, and with `final` the activities of its trace; and the copies between GPUs and the host since the
 * response before. "" if there is nothing to say. */
void proa_payload_response_head(proa_buf *out, const proa_reply *reply, const proa_infer *r, bool final,
                                const proa_device_copies *copies);
/* The head of a REPLY; reply may be NULL. */
void proa_payload_reply_head(proa_buf *out, const proa_reply *reply);

/* ---- reading ---- */

/* A payload that the other side wrote. */
typedef struct proa_payload proa_payload;
/* In a process: the memory of a tensor on a GPU. *out drops `holder` with its last reference. */
typedef proa_status proa_device_open_fn(proa_buffer **out, const char **data, const proa_channel_device *place,
                                        uint64_t bytes, proa_buffer *holder, proa_err *err);
struct proa_payload {
    proa_shared_view *view;
    proa_shared_arena *arena;         /* the server's, for tensors that are in it; NULL: there must be none */
    uint64_t inputs;                  /* block of the answered request, in the server's arena */
    proa_infer *answered;             /* that request; NULL: the payload answers none */
    proa_devices *devices;            /* what the process has of GPUs; NULL: nothing */
    proa_device_open_fn *open_device; /* the reader is a process; NULL: the server, to which no memory is sent */
    uint64_t at, bytes;
    const char *data;
    uint32_t head_bytes, tensors;
    proa_buffer *own, *peer;
    uint64_t written, passed; /* bytes of tensors in the process's memory, and in the server's */
};
/* INVALID if the message does not describe a payload. The process then breaks the protocol, and there is nothing to
 * close. */
PROA_MUST_CHECK proa_status proa_payload_open(proa_payload *w, proa_shared_view *view,
                                              const proa_channel_message *m, proa_err *err);
void proa_payload_close(proa_payload *w);
/* The payload's JSON; *head is NULL if it has none. */
PROA_MUST_CHECK proa_status proa_payload_head(proa_json **head, const proa_payload *w, proa_err *err);
/* Fills t but for its name, which goes to *name (in the process's memory). */
PROA_MUST_CHECK proa_status proa_payload_tensor(proa_tensor *t, proa_str *name, proa_payload *w,
                                                uint32_t index, proa_err *err);
/* Adds the members of a JSON object as parameters, each made by add(to, name). INVALID if a member is no bool, number
 * or string. */
PROA_MUST_CHECK proa_status proa_payload_params(const proa_json *object,
                                                proa_infer_param *(*add)(void *to, proa_str name), void *to,
                                                proa_arena *arena, proa_err *err);
/* Fills a request from the head of a REQUEST or an INFER (but for the model), and from its tensors. */
PROA_MUST_CHECK proa_status proa_payload_request(proa_infer *r, const proa_json *head, proa_err *err);
PROA_MUST_CHECK proa_status proa_payload_inputs(proa_infer *r, proa_payload *w, proa_err *err);
/* Copies the error of a head, {"error","code"}, to *err; false if it has none. */
bool proa_payload_error(const proa_json *head, proa_err *err);
/* Makes the reply of a RESPONSE message. Outputs have the type and shape that the model gave them; those that the
 * configuration lacks are dropped. With model->strict_outputs a disagreement with the configuration is the reply's
 * error. NULL, with PROA_OK, if the message has none. INVALID if it breaks the protocol. */
PROA_MUST_CHECK proa_status proa_payload_reply(proa_reply **out, proa_payload *w, proa_worker_model *model,
                                               proa_infer *r, proa_err *err);

#endif
