/* SPDX-License-Identifier: Apache-2.0
 * host_requests.c - requests that the server sends to this process, and the responses of the backend. */
#include "backends/isolate/host.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "serve/trace.h"
#include <string.h>

/* A request that the backend has. */
typedef struct hosted_request {
    struct hosted_request *prev, *next;
    uint64_t id;
    proa_payload payload; /* its inputs point into it */
    proa_infer *r;
} hosted_request;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static hosted_request *requests; /* under the lock */
static int at_work; /* under the lock: threads that execute, or end a request: they use the version */

static void join_requests(hosted_request *q)
{
    pthread_mutex_lock(&lock);
    q->next = requests;
    if (requests) requests->prev = q;
    requests = q;
    pthread_mutex_unlock(&lock);
}

static void begin_work(void)
{
    pthread_mutex_lock(&lock);
    at_work++;
    pthread_mutex_unlock(&lock);
}

static void end_work(void)
{
    pthread_mutex_lock(&lock);
    if (--at_work == 0) pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
}

/* The request has its final response. */
static void end_request(hosted_request *q)
{
    pthread_mutex_lock(&lock);
    at_work++;
    if (q->prev) q->prev->next = q->next;
    else requests = q->next;
    if (q->next) q->next->prev = q->prev;
    pthread_mutex_unlock(&lock);
    proa_infer_drop(q->r);
    proa_payload_close(&q->payload);
    free(q);
    proa_host_devices_trim();
    end_work();
}

/* ---- responses, on whatever thread the backend sends them ---- */

/* Copies between GPUs and the host since the last report to the server. */
static proa_device_copies new_copies(void)
{
    static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;
    static proa_device_copies reported;
    pthread_mutex_lock(&copies_lock);
    const proa_device_copies now = proa_device_copies_count(), before = reported;
    reported = now;
    pthread_mutex_unlock(&copies_lock);
    return (proa_device_copies){now.to_host - before.to_host, now.to_host_bytes - before.to_host_bytes,
                                now.to_device - before.to_device, now.to_device_bytes - before.to_device_bytes};
}

/* False: there is no room for it. leases: of the outputs; NULL: all are on the host. */
static bool send_outputs(proa_channel_message m, proa_buf *head, const proa_reply *reply, uint64_t *leases)
{
    proa_exports exports = {.leases = leases};
    proa_payload_content c = {.head = proa_buf_view(head), .exports = leases ? &exports : NULL};
    if (reply && reply->error.status == PROA_OK) c.tensors = reply->outputs, c.count = reply->outputs_count;
    bool sent = !head->full && proa_host_send(m, &c);
    if (!sent && leases) proa_host_return_leases(leases, c.count);
    return sent;
}

static void send_response(const hosted_request *q, proa_reply *reply, bool final)
{
    static const char no_room[] =
        "{\"error\":\"no room for the response in the memory that is shared with the server\",\"code\":8}";
    const proa_channel_message plain = {
        .kind = PROA_CHANNEL_RESPONSE, .flags = final ? PROA_CHANNEL_FINAL : 0, .id = q->id};
    uint64_t *leases = NULL;
    proa_buf head;
    if (reply && reply->error.status == PROA_OK)
        reply->error.status = proa_host_lease_outputs(&leases, reply, &reply->error);
    const proa_device_copies copies = new_copies();
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_payload_response_head(&head, reply, q->r, final, &copies);
    if (!reply && !head.len) (void)proa_host_send_plain(&plain);
    else if (!send_outputs(plain, &head, reply, leases))
        (void)proa_host_send(plain, &(proa_payload_content){.head = proa_str_c(no_room)});
    proa_buf_release(&head);
    free(leases);
}

static void on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    hosted_request *q = r->user;
    send_response(q, reply, final);
    proa_reply_free(reply);
    if (final) end_request(q);
}

/* ---- requests ---- */

static void end_trace(proa_trace *trace, void *arg)
{
    (void)arg;
    proa_trace_free(trace); /* its activities went with the final response */
}

/* The server traces the request: here it has a span with the same context, which collects what the backend reports.
 * text: that of proa_trace_context_json. */
static void begin_trace(proa_infer *r, const proa_json *text)
{
    proa_trace_context context;
    proa_json *ids = NULL;
    proa_err ignored = {0};
    if (!text || proa_json_parse(&ids, proa_json_str(text), "a trace", &ignored) != PROA_OK) return;
    r->origin = PROA_ARENA_NEW(&r->arena, proa_trace_origin, 1);
    r->origin->traceparent = proa_json_str(proa_json_get(ids, "traceparent"));
    r->origin->tracestate = proa_json_str(proa_json_get(ids, "tracestate"));
    if (proa_trace_context_read(&context, r->origin->traceparent)) {
        proa_trace_begin(r, PROA_TRACE_TIMESTAMPS, end_trace, NULL);
        memcpy(r->trace->span_id, context.span_id, sizeof context.span_id);
    }
    r->origin = NULL; /* its texts end here */
    proa_json_free(ids);
}

static proa_status fill_request(proa_infer *r, proa_payload *w, proa_err *err)
{
    proa_json *head;
    PROA_TRY(proa_payload_head(&head, w, err));
    begin_trace(r, proa_json_get(head, "trace"));
    proa_status status = head ? proa_payload_request(r, head, err) : PROA_OK;
    proa_json_free(head);
    return status == PROA_OK ? proa_payload_inputs(r, w, err) : status;
}

/* NULL: the request has failed. */
static proa_infer *take_request(const proa_hosted *model, const proa_channel_message *m)
{
    proa_err err = {0};
    hosted_request *q = proa_calloc(1, sizeof *q);
    q->id = m->id;
    proa_host_payload(&q->payload, m);
    q->r = proa_hosted_request(model);
    q->r->on_reply = on_reply;
    q->r->device_replies = m->flags & PROA_CHANNEL_DEVICE_OUTPUTS;
    q->r->user = q;
    join_requests(q);
    if (fill_request(q->r, &q->payload, &err) == PROA_OK) return q->r;
    proa_infer_hold(q->r); /* which the final reply drops */
    proa_infer_fail(q->r, &err);
    return NULL;
}

void proa_host_execute(const proa_hosted *model, const proa_channel_message *messages, int count)
{
    const proa_channel_message done = {.kind = PROA_CHANNEL_DONE, .id = messages[0].id};
    proa_infer **list = proa_malloc((size_t)count * sizeof(proa_infer *));
    int n = 0;
    begin_work();
    for (int k = 1; k < count; k++) {
        proa_infer *r = take_request(model, &messages[k]);
        if (r) list[n++] = r;
    }
    if (n) proa_hosted_execute(model, (int)messages[0].id, list, n);
    (void)proa_host_send_plain(&done);
    free(list);
    end_work();
}

/* ---- cancellation ---- */

/* A request whose cancellation the backend does not know yet, held; NULL: there is none. */
static proa_infer *next_cancelled(bool *any)
{
    proa_infer *r = NULL;
    pthread_mutex_lock(&lock);
    *any = requests != NULL;
    for (hosted_request *q = requests; q && !r; q = q->next) {
        const proa_channel_payload *p = (const proa_channel_payload *)(const void *)q->payload.data;
        if (__atomic_load_n(&p->cancelled, __ATOMIC_ACQUIRE) && !proa_infer_cancelled(q->r))
            r = proa_infer_hold(q->r);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

bool proa_host_check_cancelled(void)
{
    bool any;
    for (proa_infer *r; (r = next_cancelled(&any));) {
        proa_infer_cancel(r);
        proa_infer_drop(r);
    }
    return any;
}

void proa_host_wait_idle(void)
{
    pthread_mutex_lock(&lock);
    while (requests || at_work) pthread_cond_wait(&left, &lock);
    pthread_mutex_unlock(&lock);
}
