/* SPDX-License-Identifier: Apache-2.0
 * host_calls.c - what the backend asks of the server that has started this process: other models, and log lines. */
#include "backends/isolate/host.h"

#include "backends/triton/triton.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <string.h>

/* A call that waits for its ANSWER (then `infer` is NULL), or an inference that waits for its final REPLY. */
typedef struct proa_host_call call;
struct proa_host_call {
    call *next;
    uint64_t id;
    proa_infer *infer;
    proa_json *answer;
    proa_payload payload; /* the answer's */
    bool answered, has_payload;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static call *calls; /* under the lock, with what they hold */
static uint64_t calls_made;
static proa_host_jobs *replier;
static _Thread_local bool is_reader;

static uint64_t join_calls(call *c)
{
    pthread_mutex_lock(&lock);
    c->id = ++calls_made;
    c->next = calls;
    calls = c;
    pthread_mutex_unlock(&lock);
    return c->id;
}

/* Lock held. */
static call *find_call(uint64_t id)
{
    call *c = calls;
    while (c && c->id != id) c = c->next;
    return c;
}

/* Takes a call out of the list; NULL: it is not there. */
static call *leave_calls(uint64_t id)
{
    pthread_mutex_lock(&lock);
    call **at = &calls;
    while (*at && (*at)->id != id) at = &(*at)->next;
    call *c = *at;
    if (c) *at = c->next;
    pthread_mutex_unlock(&lock);
    return c;
}

/* ---- calls with one answer ---- */

proa_status proa_host_call_start(proa_host_call **out, proa_buf *head, const proa_tensor *tensors, int count,
                                 proa_err *err)
{
    proa_status status = PROA_OK;
    *out = proa_calloc(1, sizeof **out);
    uint64_t id = join_calls(*out);
    if (is_reader)
        status = PROA_FAIL(err, UNAVAILABLE, "the server cannot be asked while a request is being cancelled");
    else if (head->full || !proa_host_send((proa_channel_message){.kind = PROA_CHANNEL_CALL, .id = id},
                                           &(proa_payload_content){
                                               .head = proa_buf_view(head), .tensors = tensors, .count = count}))
        status = PROA_FAIL(err, NO_MEMORY, "no room for the call in the memory that is shared with the server");
    proa_buf_release(head);
    if (status == PROA_OK) return PROA_OK;
    free(leave_calls(id));
    *out = NULL;
    return status;
}

proa_status proa_host_call_finish(proa_json **answer, proa_payload *payload, proa_host_call *c, proa_err *err)
{
    pthread_mutex_lock(&lock);
    while (!c->answered) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    leave_calls(c->id);
    proa_status status = proa_payload_error(c->answer, err) ? err->status : PROA_OK;
    *answer = status == PROA_OK ? c->answer : NULL;
    if (status != PROA_OK) proa_json_free(c->answer);
    if (status == PROA_OK && payload && !c->has_payload)
        status = PROA_FAIL(err, INTERNAL, "the answer of the server is empty");
    else if (status == PROA_OK && payload) *payload = c->payload;
    else if (c->has_payload) proa_payload_close(&c->payload);
    free(c);
    return status;
}

static proa_status ask_server(proa_json **answer, proa_buf *head, const proa_tensor *tensors, int count,
                              proa_err *err)
{
    call *c;
    *answer = NULL;
    PROA_TRY(proa_host_call_start(&c, head, tensors, count, err));
    return proa_host_call_finish(answer, NULL, c, err);
}

static void begin_call(proa_buf *head, const char *kind, const char *model)
{
    proa_buf_init(head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(head, "{\"kind\":\"%s\",\"model\":", kind);
    proa_buf_json_str(head, proa_str_c(model));
}

static proa_status find_model(const char *name, int64_t version, bool *decoupled, proa_err *err)
{
    proa_buf head;
    proa_json *answer;
    proa_err why = {0};
    begin_call(&head, "find", name);
    proa_buf_printf(&head, ",\"version\":%lld}", (long long)version);
    proa_status status = ask_server(&answer, &head, NULL, 0, &why);
    *decoupled = proa_json_bool(proa_json_get(answer, "decoupled"));
    proa_json_free(answer);
    if (status != PROA_OK && err) *err = why;
    return status;
}

static proa_status model_ready(const char *name, int64_t version, proa_err *err)
{
    proa_buf head;
    proa_json *answer;
    proa_err why = {0};
    begin_call(&head, "ready", name);
    if (version < 0) proa_buf_printf(&head, ",\"version\":\"\"}");
    else proa_buf_printf(&head, ",\"version\":\"%lld\"}", (long long)version);
    proa_status status = ask_server(&answer, &head, NULL, 0, &why);
    if (status == PROA_OK && !proa_json_bool(proa_json_get(answer, "ready")))
        status = PROA_FAIL(&why, UNAVAILABLE, "model '%s' is not ready", name);
    proa_json_free(answer);
    if (status != PROA_OK && err) *err = why;
    return status;
}

static proa_status load_model(const char *name, const char *config_json, const proa_model_file *files,
                              int files_count, proa_err *err)
{
    proa_buf head;
    proa_json *answer;
    proa_err why = {0};
    proa_tensor *tensors = proa_calloc(files_count ? (size_t)files_count : 1, sizeof *tensors);
    begin_call(&head, "load", name);
    if (config_json) proa_buf_printf(&head, ",\"config\":");
    if (config_json) proa_buf_json_str(&head, proa_str_c(config_json));
    proa_buf_printf(&head, ",\"files\":[");
    for (int i = 0; i < files_count; i++) {
        if (i) proa_buf_char(&head, ',');
        proa_buf_json_str(&head, files[i].path);
        tensors[i] = (proa_tensor){.name = "",
                                   .type = PROA_TYPE_UINT8,
                                   .rank = 1,
                                   .shape = {(int64_t)files[i].bytes.len},
                                   .data = files[i].bytes.ptr,
                                   .bytes = files[i].bytes.len};
    }
    proa_buf_printf(&head, "]}");
    proa_status status = ask_server(&answer, &head, tensors, files_count, &why);
    proa_json_free(answer);
    free(tensors);
    if (status != PROA_OK && err) *err = why;
    return status;
}

static proa_status unload_model(const char *name, bool dependents, proa_err *err)
{
    proa_buf head;
    proa_json *answer;
    proa_err why = {0};
    begin_call(&head, "unload", name);
    proa_buf_printf(&head, ",\"dependents\":%s}", dependents ? "true" : "false");
    proa_status status = ask_server(&answer, &head, NULL, 0, &why);
    proa_json_free(answer);
    if (status != PROA_OK && err) *err = why;
    return status;
}

/* ---- metrics ---- */

static void begin_metric_call(proa_buf *head, const char *kind, const proa_buf *members)
{
    proa_buf_init(head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(head, "{\"kind\":\"%s\",", kind);
    proa_buf_str(head, proa_buf_view(members));
    proa_buf_char(head, '}');
}

/* A metric that cannot be shown is no error of the backend. */
static int64_t create_metric(const char *kind, const proa_buf *members)
{
    proa_buf head;
    proa_json *answer;
    proa_err ignored = {0};
    begin_metric_call(&head, kind, members);
    if (ask_server(&answer, &head, NULL, 0, &ignored) != PROA_OK) return -1;
    const proa_json *number = proa_json_get(answer, kind);
    int64_t n = number ? proa_json_int(number) : -1;
    proa_json_free(answer);
    return n;
}

static void post_metric(const char *kind, const proa_buf *members)
{
    proa_buf head;
    begin_metric_call(&head, kind, members);
    proa_host_post(&head);
}

static const proa_triton_mirror metrics = {.create = create_metric, .post = post_metric};

/* ---- inference ---- */

/* work: the call's number, which outlives the call. */
static void send_cancel(proa_infer *r)
{
    const proa_channel_message m = {.kind = PROA_CHANNEL_INFER_CANCEL, .id = (uint64_t)(uintptr_t)r->work};
    (void)proa_host_send_plain(&m);
}

static proa_status start_inference(proa_infer *r, proa_err *err)
{
    proa_buf head;
    PROA_TRY(proa_infer_inputs_to_host(r, err));
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(&head, "{\"model\":");
    proa_buf_json_str(&head, proa_str_c(r->model_name));
    proa_buf_printf(&head, ",\"version\":%lld,\"decoupled\":true,\"memory\":-1", (long long)r->model_version);
    proa_payload_request_head(&head, r);
    if (!head.len || head.ptr[head.len - 1] != '}') proa_buf_char(&head, '}');
    call *c = proa_calloc(1, sizeof *c);
    c->infer = proa_infer_hold(r); /* until its final reply */
    uint64_t id = join_calls(c);
    r->work = (void *)(uintptr_t)id;
    proa_infer_hold(r); /* it may end before this returns */
    bool sent = !head.full && proa_host_send((proa_channel_message){.kind = PROA_CHANNEL_INFER, .id = id},
                                             &(proa_payload_content){.head = proa_buf_view(&head),
                                                                     .tensors = r->inputs,
                                                                     .count = r->inputs_count});
    proa_buf_release(&head);
    if (sent) (void)proa_infer_watch(r, send_cancel);
    else free(leave_calls(id));
    if (!sent) proa_infer_drop(r);
    proa_infer_drop(r);
    return sent ? PROA_OK
                : PROA_FAIL(err, NO_MEMORY,
                            "no room for the request in the memory that is shared with the server");
}

static proa_infer_param *add_param(void *reply, proa_str name)
{
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)(name.len > 255 ? 255 : name.len), name.ptr);
    return proa_reply_add_param(reply, text);
}

static proa_status take_output(proa_reply *reply, proa_payload *w, uint32_t index, proa_err *err)
{
    proa_tensor t = {0};
    proa_str name;
    PROA_TRY(proa_payload_tensor(&t, &name, w, index, err));
    const char *text = proa_arena_strdup(&reply->arena, name);
    proa_tensor *to = proa_reply_add(reply, text);
    t.name = to->name;
    *to = t;
    return PROA_OK;
}

static void fill_reply(proa_reply *reply, proa_payload *w)
{
    proa_json *head;
    proa_status status = proa_payload_head(&head, w, &reply->error);
    if (status != PROA_OK || proa_payload_error(head, &reply->error)) {
        proa_json_free(head);
        return;
    }
    if (proa_json_get(head, "model"))
        reply->model_name = proa_arena_strdup(&reply->arena, proa_json_str(proa_json_get(head, "model")));
    if (proa_json_get(head, "version")) reply->model_version = proa_json_int(proa_json_get(head, "version"));
    status = proa_payload_params(proa_json_get(head, "parameters"), add_param, reply, &reply->arena,
                                 &reply->error);
    for (uint32_t k = 0; k < w->tensors && status == PROA_OK; k++)
        status = take_output(reply, w, k, &reply->error);
    proa_json_free(head);
}

/* On the replier's thread: the receiver of the reply may wait for others. */
static void deliver_reply(const proa_channel_message *m, int count)
{
    proa_payload w;
    proa_reply *reply = NULL;
    bool final = m->flags & PROA_CHANNEL_FINAL;
    (void)count;
    pthread_mutex_lock(&lock);
    const call *c = find_call(m->id);
    proa_infer *r = c && c->infer ? proa_infer_hold(c->infer) : NULL;
    pthread_mutex_unlock(&lock);
    if (m->bytes) proa_host_payload(&w, m);
    if (r && m->bytes) {
        reply = proa_reply_new(r);
        fill_reply(reply, &w);
    }
    if (m->bytes) proa_payload_close(&w);
    if (!r) return;
    if (final) (void)proa_infer_watch(r, NULL);
    if (final) free(leave_calls(m->id));
    if (reply || final) r->on_reply(r, reply, final);
    if (final) proa_infer_drop(r); /* the call's */
    proa_infer_drop(r);
}

const proa_upstream proa_host_upstream = {
    .find = find_model, .infer = start_inference, .ready = model_ready, .load = load_model, .unload = unload_model};

/* ---- from the reader ---- */

void proa_host_calls_start(void)
{
    is_reader = true;
    replier = proa_host_jobs_start(deliver_reply);
    PROA_ASSERT(replier);
    proa_triton_metrics_mirror(&metrics);
}

void proa_host_answered(const proa_channel_message *m)
{
    proa_payload w;
    proa_json *answer = NULL;
    proa_err why = {0};
    if (m->kind == PROA_CHANNEL_REPLY) {
        proa_host_jobs_add(replier, m, 1);
        return;
    }
    if (m->bytes) {
        proa_host_payload(&w, m);
        if (proa_payload_head(&answer, &w, &why) != PROA_OK) {
            answer = proa_json_new_object();
            proa_json_put_str(answer, "error", proa_str_c(why.text));
        }
    }
    pthread_mutex_lock(&lock);
    call *c = find_call(m->id);
    if (c && m->bytes) c->payload = w, c->has_payload = true;
    if (c) c->answer = answer, c->answered = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (!c && m->bytes) proa_payload_close(&w);
    if (!c) proa_json_free(answer);
}

void proa_host_log(int level, const char *file, int line, const char *text)
{
    static const char *const levels[] = {"error", "warning", "info"};
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(&head, "{\"kind\":\"log\",\"level\":\"%s\",\"at\":[",
                    level >= 0 && level < (int)PROA_COUNT(levels) ? levels[level] : "verbose");
    proa_buf_json_str(&head, proa_str_c(file));
    proa_buf_printf(&head, ",%d],\"text\":", line);
    proa_buf_json_str(&head, proa_str_c(text));
    proa_buf_char(&head, '}');
    proa_host_post(&head);
}
