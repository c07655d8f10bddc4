/* SPDX-License-Identifier: Apache-2.0
 * v2_infer.c - the inference route: reads the request, sends it to the server, writes the answer; large ones on a
 * worker. */
#include "api/http/v2.h"

#include "api/trace.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "net/block.h"
#include "net/compress.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* An inference request, from its arrival until its answer was sent. */
typedef struct infer_call {
    proa_sink sink; /* first */
    proa_api *api;
    proa_http_exchange *x; /* NULL: the client has disconnected */
    proa_reply *reply;     /* the first one */
    int replies;
    proa_infer_text text; /* the options of the answer; wants are in the request's arena */
    proa_buffer **shm;    /* of each want; NULL: no want has one */
    proa_coding coding;   /* of the answer */
    proa_buf json;        /* kept from call to call while it is small */
    struct infer_call *next;
} infer_call;

enum { SPARE_MAX = 256, KEPT_JSON_MAX = 16 << 10, IOV_MAX_STACK = 16 };

static _Thread_local infer_call *spare;
static _Thread_local int spare_count;

void proa_v2_infer_trim(void)
{
    for (infer_call *c = spare, *next; c; c = next) {
        next = c->next;
        proa_buf_release(&c->json);
        free(c);
    }
    spare = NULL;
    spare_count = 0;
}

static infer_call *call_new(proa_api *api)
{
    infer_call *c = spare;
    proa_buf json;
    if (c) {
        spare = c->next;
        spare_count--;
        json = c->json;
    } else {
        c = proa_malloc(sizeof *c);
        proa_buf_init(&json, (size_t)PROA_ANSWER_BYTES_MAX);
    }
    memset(c, 0, offsetof(infer_call, json));
    c->json = json;
    c->api = api;
    return c;
}

/* Release function of an answer: its bytes were sent. */
static void call_free(void *arg)
{
    infer_call *c = arg;
    proa_reply_free(c->reply);
    c->reply = NULL;
    if (c->json.cap > KEPT_JSON_MAX) {
        proa_buf_release(&c->json);
        proa_buf_init(&c->json, (size_t)PROA_ANSWER_BYTES_MAX);
    } else proa_buf_clear(&c->json);
    if (spare_count >= SPARE_MAX) {
        proa_buf_release(&c->json);
        free(c);
        return;
    }
    c->next = spare;
    spare = c;
    spare_count++;
}

static void drop_regions(infer_call *c)
{
    for (int i = 0; c->shm && i < c->text.wants_count; i++) proa_buffer_drop(c->shm[i]);
    c->shm = NULL;
}

/* ---- the answer ---- */

static proa_status to_region(proa_tensor *t, const proa_output_want *want, proa_buffer *region, proa_err *err)
{
    if (t->bytes > want->shm_bytes)
        return PROA_FAIL(err, INTERNAL,
                         "shared memory size specified with the request for output '%s' (%" PRIu64
                         " bytes) should be at least %zu bytes to hold the results",
                         t->name, want->shm_bytes, t->bytes);
    PROA_TRY(proa_tensor_copy_to(region, t, err));
    proa_buffer_drop(t->buffer); /* shape and size remain */
    t->buffer = NULL;
    t->data = NULL;
    return proa_shm_check(region, err);
}

static proa_status to_classes(infer_call *c, proa_tensor *t, const proa_output_want *want, proa_err *err)
{
    const proa_served_model *model = c->sink.infer->model;
    bool batched = proa_served_model_config(model)->max_batch_size > 0;
    int64_t k = want->classes > PROA_CLASSES_MAX ? PROA_CLASSES_MAX : (int64_t)want->classes;
    proa_tensor classes;
    PROA_TRY(proa_classify(&classes, t, model, k, batched, err));
    proa_tensor_release(t);
    *t = classes;
    return PROA_OK;
}

static proa_status finish_outputs(infer_call *c, proa_err *err)
{
    for (int i = 0; i < c->text.wants_count; i++) {
        const proa_output_want *want = &c->text.wants[i];
        if (!want->shm_region && !want->classes) continue;
        for (int32_t o = 0; o < c->reply->outputs_count; o++) {
            proa_tensor *t = &c->reply->outputs[o];
            if (strcmp(t->name, want->name) != 0) continue;
            if (want->classes) PROA_TRY(proa_tensor_to_host(t, err));
            if (want->classes) PROA_TRY(to_classes(c, t, want, err));
            else PROA_TRY(to_region(t, want, c->shm[i], err));
        }
    }
    for (int32_t o = 0; o < c->reply->outputs_count; o++)
        PROA_TRY(proa_tensor_to_host(&c->reply->outputs[o], err));
    return PROA_OK;
}

/* Puts JSON and blobs into one body and compresses it into c->json. */
static proa_status compress_answer(infer_call *c, const proa_reply_text *text, proa_err *err)
{
    proa_buf plain = c->json;
    for (int i = 0; i < text->blobs_count; i++)
        proa_buf_append(&plain, text->blobs[i]->data, text->blobs[i]->bytes);
    proa_buf_init(&c->json, (size_t)PROA_ANSWER_BYTES_MAX);
    proa_status status = plain.full ? PROA_FAIL(err, LIMIT, "the answer is too large")
                                    : proa_compress(&c->json, c->coding, PROA_COMPRESS_LEVEL, plain.ptr,
                                                    plain.len, err);
    proa_buf_release(&plain);
    return status;
}

static proa_str head_lines(char *out, size_t bytes, const infer_call *c, size_t json_len, bool blobs)
{
    static const char json[] = "Content-Type: application/json\r\n";
    if (!blobs && c->coding == PROA_CODING_IDENTITY) return (proa_str){json, sizeof json - 1};
    int n = blobs ? snprintf(
                        out, bytes,
                        "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %zu\r\n",
                        json_len)
                  : snprintf(out, bytes, "%s", json);
    if (c->coding != PROA_CODING_IDENTITY)
        n += snprintf(out + n, bytes - (size_t)n, "Content-Encoding: %s\r\n", proa_coding_name(c->coding));
    return (proa_str){out, (size_t)n};
}

/* Sends the JSON, and after it the binary tensors from their own memory. */
static void send_answer(infer_call *c, const proa_reply_text *text, size_t json_len)
{
    char lines[256];
    struct iovec few[IOV_MAX_STACK], *iov = few;
    int count = 0, blobs = c->coding == PROA_CODING_IDENTITY ? text->blobs_count : 0;
    if (blobs >= IOV_MAX_STACK) iov = PROA_ARENA_NEW(&c->reply->arena, struct iovec, blobs + 1);
    iov[count++] = (struct iovec){c->json.ptr, c->json.len};
    for (int i = 0; i < blobs; i++)
        iov[count++] = (struct iovec){(void *)(uintptr_t)text->blobs[i]->data, text->blobs[i]->bytes};
    proa_str head = head_lines(lines, sizeof lines, c, json_len, text->blobs_count > 0);
    proa_http_respond(c->x, 200, head,
                      (proa_http_body){.iov = iov, .count = count, .release = call_free, .arg = c});
}

/* On success c may have been freed: its answer may have been sent. */
static proa_status answer_call(infer_call *c, proa_err *err)
{
    proa_reply_text text = {.json = &c->json};
    if (c->replies != 1) return PROA_FAIL(err, INTERNAL, "expected a single response, got %d", c->replies);
    if (c->reply->error.status != PROA_OK) {
        *err = c->reply->error;
        return err->status;
    }
    PROA_TRY(finish_outputs(c, err));
    PROA_TRY(proa_reply_json_write(&text, c->reply, c->text.wants, c->text.wants_count,
                                   c->text.binary_default, err));
    for (int32_t i = 0; i < c->reply->outputs_count; i++) {
        const proa_tensor *t = &c->reply->outputs[i];
        PROA_TRY(proa_shm_check_bytes(t->buffer, t->data, t->bytes, err));
    }
    size_t json_len = c->json.len;
    if (c->coding != PROA_CODING_IDENTITY) PROA_TRY(compress_answer(c, &text, err));
    drop_regions(c);
    send_answer(c, &text, json_len);
    return PROA_OK;
}

/* Bytes that must be printed as JSON, compressed, or searched for the largest elements. */
static size_t long_bytes(const infer_call *c)
{
    size_t bytes = 0;
    for (int32_t i = 0; c->reply && i < c->reply->outputs_count; i++) {
        const proa_tensor *t = &c->reply->outputs[i];
        const proa_output_want *want = proa_output_want_find(c->text.wants, c->text.wants_count, t->name);
        bool binary = want ? want->binary && !want->classes : c->text.binary_default;
        if (!binary || c->coding != PROA_CODING_IDENTITY) bytes += t->bytes;
    }
    return bytes;
}

static void end_call(infer_call *c)
{
    proa_err err;
    err.status = PROA_OK;
    if (c->x && answer_call(c, &err) == PROA_OK) return;
    drop_regions(c);
    if (c->x) proa_http_fail_request(c->api, c->x, &err);
    call_free(c);
}

static void end_on_worker(proa_http_exchange *x, void *call)
{
    proa_infer *r = ((infer_call *)call)->sink.infer;
    PROA_UNUSED(x);
    end_call(call);
    proa_infer_drop(r);
}

static void on_reply(proa_sink *sink, proa_reply *reply, bool final)
{
    infer_call *c = (infer_call *)sink;
    if (reply && c->replies++) proa_reply_free(reply);
    else if (reply) c->reply = reply;
    if (!final) return;
    if (PROA_UNLIKELY(c->x && long_bytes(c) >= PROA_WORKER_BYTES_MIN)) {
        proa_infer_hold(sink->infer); /* the answer needs its options */
        if (proa_http_offload(c->x, end_on_worker, c)) return;
        proa_infer_drop(sink->infer);
    }
    end_call(c);
}

static void on_disconnect(proa_http_exchange *x)
{
    infer_call *c = x->user;
    c->x = NULL;
    proa_infer_cancel(c->sink.infer);
}

/* ---- the request ---- */

typedef struct infer_heads {
    proa_str content_encoding, accept_encoding, json_length;
} infer_heads;

static bool is_head(proa_str name, const char *lower)
{
    return strncasecmp(name.ptr, lower, name.len) == 0;
}

/* One pass for all three: most requests have six headers, none of which is ours but the last. */
static infer_heads find_heads(const proa_http_exchange *x)
{
    infer_heads h = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    for (int i = 0; i < x->headers_count; i++) {
        proa_str name = x->headers[i].name, value = x->headers[i].value;
        if (name.len == 31 && is_head(name, "inference-header-content-length")) h.json_length = value;
        else if (name.len == 16 && is_head(name, "content-encoding")) h.content_encoding = value;
        else if (name.len == 15 && is_head(name, "accept-encoding")) h.accept_encoding = value;
    }
    return h;
}

static const char length_head[] = "Inference-Header-Content-Length";

static proa_status parse_length(size_t *out, proa_str text, size_t body_len, proa_err *err)
{
    int64_t value = 0;
    size_t i = text.len && (text.ptr[0] == '-' || text.ptr[0] == '+');
    bool negative = i && text.ptr[0] == '-';
    if (i == text.len) goto bad;
    for (; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9') goto bad;
        value = value * 10 + (text.ptr[i] - '0');
        if (value > (int64_t)INT32_MAX + negative)
            return PROA_FAIL(err, INVALID, "Unable to parse %s, value is out of range [ %d, %d ], got: %.*s",
                             length_head, INT32_MIN, INT32_MAX, (int)text.len, text.ptr);
    }
    if ((negative && value) || (size_t)value > body_len)
        return PROA_FAIL(err, INVALID, "inference header size should be in range (0, %zu), got: %.*s",
                         body_len, (int)text.len, text.ptr);
    *out = (size_t)value;
    return PROA_OK;
bad:
    return PROA_FAIL(err, INVALID, "Unable to parse %s, got: %.*s", length_head, (int)text.len, text.ptr);
}

/* The body as a buffer that tensors may hold, decompressed. net counts the memory of bodies as they came. */
static proa_status unpack_body(proa_api *api, proa_http_exchange *x, proa_str encoding, proa_buffer **out,
                               proa_err *err)
{
    proa_coding coding;
    proa_buf plain;
    if (!proa_coding_find(&coding, encoding))
        return PROA_FAIL(err, UNSUPPORTED, "Unsupported compression type");
    if (coding == PROA_CODING_IDENTITY) {
        size_t len = x->body_len;
        char *body = proa_http_take_body(x);
        *out = proa_buffer_wrap(body, len, proa_http_body_free, body);
        return PROA_OK;
    }
    proa_buf_init(&plain, (size_t)api->options.http_max_input);
    proa_status status = proa_decompress(&plain, coding, x->body, x->body_len, plain.bytes_max, err);
    if (status == PROA_OK && plain.len) *out = proa_buffer_wrap(plain.ptr, plain.len, free, plain.ptr);
    else proa_buf_release(&plain);
    return status;
}

static proa_status region_of(void *arg, const char *region, uint64_t offset, uint64_t bytes,
                             proa_buffer **out, proa_err *err)
{
    proa_api *api = arg;
    if (!api->options.allow_client_shm)
        return PROA_FAIL(err, UNSUPPORTED,
                         "Client shared memory is disabled. Start the server with "
                         "'--allow-client-shm=true' to enable.");
    return proa_shm_buffer(api->server, region, offset, bytes, out, err);
}

/* Regions of outputs are found now: a wrong name fails before anything has run. */
static proa_status find_regions(infer_call *c, proa_infer *r, proa_err *err)
{
    for (int i = 0; i < c->text.wants_count; i++) {
        const proa_output_want *want = &c->text.wants[i];
        if (!want->shm_region) continue;
        if (!c->shm) c->shm = PROA_ARENA_NEW(&r->arena, proa_buffer *, c->text.wants_count);
        PROA_TRY(region_of(c->api, want->shm_region, want->shm_offset, want->shm_bytes, &c->shm[i], err));
        if (c->shm[i]->memory) r->device_replies = true; /* finish_outputs takes them */
    }
    return PROA_OK;
}

/* bytes: JSON of json_len, blobs after. */
static proa_status read_body(infer_call *c, proa_infer *r, proa_buffer *body, proa_str bytes,
                             const infer_heads *heads, proa_err *err)
{
    size_t json_len = bytes.len;
    if (heads->json_length.ptr) PROA_TRY(parse_length(&json_len, heads->json_length, bytes.len, err));
    if (heads->json_length.ptr && !json_len) {
        c->text.binary_default = true;
        return proa_v2_raw_input(r, body, bytes, err);
    }
    c->text = (proa_infer_text){.json = {bytes.ptr, json_len},
                                .blobs = {bytes.ptr + json_len, bytes.len - json_len},
                                .body = body,
                                .strict = c->api->options.strict_triton,
                                .bytes_max = (size_t)c->api->options.http_max_input,
                                .region = region_of,
                                .region_arg = c->api};
    PROA_TRY(proa_infer_json_read(&c->text, r, err));
    return find_regions(c, r, err);
}

/* The memory of the inputs that net has not counted with a body: made of JSON, or of a body that came compressed. */
static size_t uncounted_bytes(const infer_call *c, const proa_infer *r, const proa_buffer *body, bool packed)
{
    size_t bytes = 0;
    bool holds_body = false;
    for (int32_t i = 0; i < r->inputs_count; i++) {
        if (r->inputs[i].buffer == body) holds_body = true;
        else bytes += r->inputs[i].bytes;
    }
    return bytes - c->text.region_bytes + (packed && body && holds_body ? body->bytes : 0);
}

static proa_status read_request(infer_call *c, proa_http_exchange *x, proa_infer *r, proa_err *err)
{
    infer_heads heads = find_heads(x);
    proa_buffer *body = NULL;
    proa_str bytes = {"", 0};
    if (heads.accept_encoding.ptr) c->coding = proa_coding_accept(heads.accept_encoding);
    if (x->body_len) {
        PROA_TRY(unpack_body(c->api, x, heads.content_encoding, &body, err));
        if (body) bytes = (proa_str){body->data, body->bytes};
    }
    bool packed = x->body != NULL; /* else it was taken as it came */
    proa_status status = read_body(c, r, body, bytes, &heads, err);
    if (status == PROA_OK) status = proa_block_hold(&r->arena, uncounted_bytes(c, r, body, packed), err);
    proa_buffer_drop(body); /* tensors hold it, if they need it */
    if (status == PROA_OK) status = proa_v2_forward(c->api, x, r, err);
    return status;
}

/* Finds the model, which must answer with exactly one reply. */
static proa_status find_model(proa_api *api, proa_infer *r, proa_err *err)
{
    PROA_TRY(proa_server_find_model(api->server, r, err));
    bool unary = proa_served_model_unary(r->model) && !api->options.strict_triton;
    if (!proa_served_model_decoupled(r->model) || unary) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "HTTP end point doesn't support models with decoupled transaction policy");
}

static void refuse_request(proa_api *api, proa_http_exchange *x, const proa_err *err)
{
    if (err->status == PROA_UNSUPPORTED && strcmp(err->text, "Unsupported compression type") == 0) {
        static const char body[] = "{\"error\":\"Unsupported compression type\"}";
        struct iovec iov = {(void *)(uintptr_t)body, sizeof body - 1};
        proa_http_respond(x, 501,
                          proa_str_c("Content-Type: application/json\r\nAccept-Encoding: gzip, deflate\r\n"),
                          (proa_http_body){.iov = &iov, .count = 1});
    } else proa_http_fail_request(api, x, err);
}

void proa_v2_infer(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err;
    err.status = PROA_OK;
    proa_infer *r = proa_infer_new();
    r->model_name = proa_arena_strdup(&r->arena, proa_str_c(path->model));
    r->client = proa_http_client(api, x, &r->arena);
    r->times.received = x->start_ns;
    proa_trace_http(x, NULL, r);
    if (proa_version_parse(&r->model_version, path->version, &err) != PROA_OK ||
        find_model(api, r, &err) != PROA_OK) {
        proa_infer_drop(r);
        proa_http_fail_request(api, x, &err);
        return;
    }
    infer_call *c = call_new(api);
    if (read_request(c, x, r, &err) != PROA_OK) {
        drop_regions(c);
        proa_infer_drop(r);
        refuse_request(api, x, &err);
        call_free(c);
        return;
    }
    c->x = x;
    x->user = c;
    proa_sink_init(&c->sink, proa_http_loop(x), r, on_reply);
    proa_http_on_disconnect(x, on_disconnect);
    if (proa_server_infer(api->server, r, &err) == PROA_OK) return; /* c may have been freed */
    drop_regions(c);
    proa_sink_abandon(&c->sink);
    proa_http_fail_request(api, x, &err);
    call_free(c);
}
