/* SPDX-License-Identifier: Apache-2.0
 * payload.c - tensors, requests and replies as payloads in shared memory, and back. */
#include "backends/common.h"
#include "backends/process/process.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "serve/trace.h"
#include <math.h>
#include <string.h>

#define ALIGN_UP(n) (((n) + 63) & ~(uint64_t)63)

/* ---- out ---- */

/* The blocks of tensors that are in the arena already: [count] offsets, 0: the tensor is not. NULL if none is. */
static uint64_t *share_blocks(proa_shared_arena *a, const proa_tensor *tensors, int count)
{
    uint64_t *blocks = NULL;
    for (int i = 0; i < count; i++) {
        uint64_t at = tensors[i].bytes ? proa_shared_arena_share(a, tensors[i].data, tensors[i].bytes) : 0;
        if (at && !blocks) blocks = proa_calloc((size_t)count, sizeof *blocks);
        if (at) blocks[i] = at;
    }
    return blocks;
}

static void unshare_blocks(proa_shared_arena *a, const uint64_t *blocks, int count)
{
    for (int i = 0; blocks && i < count; i++)
        if (blocks[i]) proa_shared_arena_cancel_send(a, blocks[i]);
}

static const proa_channel_device *device_place(const proa_exports *e, int i)
{
    return e && e->held && e->held[i] ? &e->places[i] : NULL;
}

static uint64_t lease_number(const proa_exports *e, int i)
{
    return e && e->leases ? e->leases[i] : 0;
}

/* What the payload itself has of a tensor: its bytes, or where they are on a GPU. */
static proa_str own_bytes(const proa_tensor *t, const proa_exports *e, int i)
{
    const proa_channel_device *place = device_place(e, i);
    if (place) return (proa_str){(const char *)place, sizeof *place};
    return lease_number(e, i) ? (proa_str){0} : (proa_str){t->data, t->bytes};
}

/* blocks: of share_blocks; their tensors are not in the payload. */
static uint64_t payload_bytes(const proa_payload_content *c, const uint64_t *blocks)
{
    uint64_t bytes = sizeof(proa_channel_payload) + (uint64_t)c->count * sizeof(proa_channel_tensor) +
                     c->head.len;
    for (int i = 0; i < c->count; i++) bytes += strlen(c->tensors[i].name);
    for (int i = 0; i < c->count; i++)
        if (!blocks || !blocks[i]) bytes = ALIGN_UP(bytes) + own_bytes(&c->tensors[i], c->exports, i).len;
    return bytes;
}

/* block: the begin of the payload, at `at` in the arena. The names begin at names_at, the bytes of tensors follow. */
static void write_tensors(char *block, uint64_t at, uint64_t names_at, const proa_payload_content *c,
                          const uint64_t *blocks)
{
    uint64_t data_at = names_at;
    for (int i = 0; i < c->count; i++) data_at += strlen(c->tensors[i].name);
    for (int i = 0; i < c->count; i++) {
        const proa_tensor *t = &c->tensors[i];
        size_t name = strlen(t->name);
        bool own = !blocks || !blocks[i];
        uint64_t lease = lease_number(c->exports, i);
        proa_str data = own_bytes(t, c->exports, i);
        if (own) data_at = ALIGN_UP(data_at);
        proa_channel_tensor row = {.place = lease                         ? PROA_CHANNEL_LEASED
                                            : device_place(c->exports, i) ? PROA_CHANNEL_DEVICE
                                            : own                         ? PROA_CHANNEL_OWN
                                                                          : PROA_CHANNEL_BLOCK,
                                   .at = lease ? lease
                                         : own ? at + data_at
                                               : blocks[i],
                                   .bytes = t->bytes,
                                   .type = (uint32_t)t->type,
                                   .rank = (uint32_t)t->rank,
                                   .name_at = (uint32_t)names_at,
                                   .name_bytes = (uint32_t)name};
        memcpy(row.shape, t->shape, (size_t)t->rank * sizeof *t->shape);
        memcpy(block + sizeof(proa_channel_payload) + (size_t)i * sizeof row, &row, sizeof row);
        memcpy(block + names_at, t->name, name); /* NOLINT(bugprone-not-null-terminated-result): counted */
        if (own && data.len) memcpy(block + data_at, data.ptr, data.len);
        names_at += name;
        if (own) data_at += data.len;
    }
}

static void drop_held(void *buffer)
{
    proa_buffer_drop(buffer);
}

bool proa_payload_write(proa_shared_arena *a, const proa_payload_content *c, uint64_t *at, uint64_t *bytes)
{
    uint64_t *blocks = share_blocks(a, c->tensors, c->count);
    *bytes = payload_bytes(c, blocks);
    *at = proa_shared_arena_alloc(a, *bytes);
    if (*at) {
        char *block = proa_shared_arena_at(a, *at);
        proa_channel_payload first = {.head_bytes = (uint32_t)c->head.len, .tensors = (uint32_t)c->count};
        uint64_t head_at = sizeof first + (uint64_t)c->count * sizeof(proa_channel_tensor);
        memcpy(block, &first, sizeof first);
        if (c->head.len) memcpy(block + head_at, c->head.ptr, c->head.len);
        write_tensors(block, *at, head_at + c->head.len, c, blocks);
        for (int i = 0; c->exports && c->exports->held && i < c->count; i++) {
            if (c->exports->held[i]) proa_shared_arena_on_free(a, *at, drop_held, c->exports->held[i]);
            c->exports->held[i] = NULL;
        }
    } else {
        unshare_blocks(a, blocks, c->count);
    }
    free(blocks);
    return *at != 0;
}

bool proa_payload_send(proa_process *p, proa_channel_message m, const proa_payload_content *c)
{
    proa_shared_arena *a = proa_process_arena(p);
    if (!proa_payload_write(a, c, &m.at, &m.bytes)) return false;
    uint64_t at = m.at;
    if (!proa_process_send(p, &m, 1)) proa_shared_arena_cancel_send(a, at);
    proa_shared_arena_release_block(a, at);
    return true;
}

/* Appends a member of an object; the first one opens the brace. */
static void put_member(proa_buf *out, const char *name)
{
    proa_buf_printf(out, "%c\"%s\":", out->len ? ',' : '{', name);
}

static void text_member(proa_buf *out, const char *name, const char *text)
{
    if (!text || !*text) return;
    put_member(out, name);
    proa_buf_json_str(out, proa_str_c(text));
}

static void number_member(proa_buf *out, const char *name, uint64_t value)
{
    if (!value) return;
    put_member(out, name);
    proa_buf_printf(out, "%llu", (unsigned long long)value);
}

/* With a point or an exponent: a reader that has integers too must not take it for one. */
static void print_double(proa_buf *out, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    proa_buf_printf(out, strpbrk(text, ".e") ? "%s" : "%s.0", text);
}

static void print_param(proa_buf *out, const proa_infer_param *p)
{
    switch (p->kind) {
    case PROA_PARAM_BOOL: proa_buf_printf(out, p->b ? "true" : "false"); break;
    case PROA_PARAM_INT: proa_buf_printf(out, "%lld", (long long)p->i); break;
    case PROA_PARAM_UINT: proa_buf_printf(out, "%llu", (unsigned long long)p->u); break;
    case PROA_PARAM_DOUBLE:
        if (isfinite(p->d)) print_double(out, p->d);
        else
            proa_buf_printf(out, isnan(p->d) ? "NaN"
                                 : p->d < 0  ? "-Infinity"
                                             : "Infinity"); /* as Python reads them */
        break;
    case PROA_PARAM_STRING: proa_buf_json_str(out, p->s); break;
    }
}

static void params_member(proa_buf *out, const proa_infer_param *params, int32_t count)
{
    if (!count) return;
    put_member(out, "parameters");
    for (int32_t i = 0; i < count; i++) {
        proa_buf_char(out, i ? ',' : '{');
        proa_buf_json_str(out, params[i].name);
        proa_buf_char(out, ':');
        print_param(out, &params[i]);
    }
    proa_buf_char(out, '}');
}

/* The context as Triton's models get it: a text. */
static void trace_member(proa_buf *out, const proa_trace_span *span)
{
    proa_buf text;
    proa_buf_init(&text, 4 * PROA_TRACESTATE_BYTES_MAX);
    proa_trace_context_json(&text, span);
    put_member(out, "trace");
    proa_buf_json_str(out, proa_buf_view(&text));
    proa_buf_release(&text);
}

void proa_payload_request_head(proa_buf *out, const proa_infer *r)
{
    text_member(out, "id", r->id);
    if (r->sequence_name) text_member(out, "correlation_id", r->sequence_name);
    else number_member(out, "correlation_id", r->sequence_id);
    number_member(out, "flags", (r->sequence_start ? 1U : 0U) | (r->sequence_end ? 2U : 0U));
    number_member(out, "timeout", r->timeout_us);
    number_member(out, "priority", r->priority);
    if (PROA_UNLIKELY(r->trace != NULL)) trace_member(out, r->trace);
    params_member(out, r->params, r->params_count);
    if (r->outputs_count) {
        put_member(out, "outputs");
        for (int32_t i = 0; i < r->outputs_count; i++) {
            proa_buf_char(out, i ? ',' : '[');
            proa_buf_json_str(out, proa_str_c(r->outputs[i]));
        }
        proa_buf_char(out, ']');
    }
    if (out->len) proa_buf_char(out, '}');
}

void proa_payload_error_head(proa_buf *out, const proa_err *err)
{
    char *text = proa_err_whole_text(err);
    text_member(out, "error", text[0] ? text : proa_status_text(err->status));
    free(text);
    number_member(out, "code", (uint64_t)proa_status_grpc(err->status));
    number_member(out, "status", (uint64_t)err->status);
    proa_buf_char(out, '}');
}

static void activities_member(proa_buf *out, const proa_trace_span *span)
{
    put_member(out, "activities");
    pthread_mutex_lock(&span->trace->lock);
    for (const proa_trace_activity *a = span->activities; a; a = a->next) {
        proa_buf_printf(out, a == span->activities ? "[[" : ",[");
        proa_buf_json_str(out, proa_str_c(a->name));
        proa_buf_printf(out, ",%lld]", (long long)a->ns);
    }
    pthread_mutex_unlock(&span->trace->lock);
    proa_buf_char(out, ']');
}

static void copies_member(proa_buf *out, const proa_device_copies *c)
{
    if (!c->to_host && !c->to_device) return;
    put_member(out, "copies");
    proa_buf_printf(out, "[%llu,%llu,%llu,%llu]", (unsigned long long)c->to_host,
                    (unsigned long long)c->to_host_bytes, (unsigned long long)c->to_device,
                    (unsigned long long)c->to_device_bytes);
}

void proa_payload_response_head(proa_buf *out, const proa_reply *reply, const proa_infer *r, bool final,
                                const proa_device_copies *copies)
{
    const proa_infer_times *times = &r->times;
    copies_member(out, copies);
    if (final && r->trace && r->trace->activities) activities_member(out, r->trace);
    if (reply && times->input_end && times->output_start) {
        put_member(out, "times");
        proa_buf_printf(out, "[%lld,%lld]", (long long)times->input_end, (long long)times->output_start);
    }
    if (reply && reply->error.status != PROA_OK) {
        proa_payload_error_head(out, &reply->error);
        return;
    }
    if (reply) params_member(out, reply->params, reply->params_count);
    if (!reply && out->len) proa_buf_printf(out, ",\"empty\":true");
    if (out->len) proa_buf_char(out, '}');
}

void proa_payload_reply_head(proa_buf *out, const proa_reply *reply)
{
    if (!reply) return;
    if (reply->error.status != PROA_OK) {
        proa_payload_error_head(out, &reply->error);
        return;
    }
    text_member(out, "model", reply->model_name);
    number_member(out, "version", reply->model_version > 0 ? (uint64_t)reply->model_version : 0);
    params_member(out, reply->params, reply->params_count);
    if (out->len) proa_buf_char(out, '}');
}

/* ---- in ---- */

proa_status proa_payload_open(proa_payload *w, proa_shared_view *view, const proa_channel_message *m,
                              proa_err *err)
{
    proa_channel_payload first;
    const char *data = proa_shared_view_check(view, m->at, m->bytes);
    if (!data || m->bytes < sizeof first)
        return PROA_FAIL(err, INVALID, "the process sent a payload outside its memory");
    memcpy(&first, data, sizeof first);
    uint64_t need = sizeof first + (uint64_t)first.tensors * sizeof(proa_channel_tensor) + first.head_bytes;
    if (first.tensors > PROA_TENSORS_PER_REQUEST_MAX || need > m->bytes)
        return PROA_FAIL(err, INVALID, "the process sent a payload that does not fit its block");
    *w = (proa_payload){.view = view,
                        .at = m->at,
                        .bytes = m->bytes,
                        .data = data,
                        .head_bytes = first.head_bytes,
                        .tensors = first.tensors};
    return PROA_OK;
}

/* Keeps a block of the arena of the process, or of ours, alive. */
typedef struct holder {
    proa_shared_view *view;
    proa_shared_arena *arena;
    uint64_t at;
} holder;

static void let_go(void *arg)
{
    holder *h = arg;
    if (h->view) proa_shared_view_return_block(h->view, h->at);
    else proa_shared_arena_release_block(h->arena, h->at);
    proa_shared_view_release(h->view);
    proa_shared_arena_release(h->arena);
    free(h);
}

void proa_payload_close(proa_payload *w)
{
    if (w->own) proa_buffer_drop(w->own);
    else proa_shared_view_return_block(w->view, w->at);
    proa_buffer_drop(w->peer);
    w->own = w->peer = NULL;
}

static proa_buffer *own_buffer(proa_payload *w)
{
    if (w->own) return w->own;
    holder *h = proa_malloc(sizeof *h);
    *h = (holder){.view = proa_shared_view_retain(w->view), .at = w->at};
    return w->own = proa_buffer_wrap((char *)w->data, w->bytes, let_go, h);
}

/* A tensor with a block of its own. */
static proa_buffer *block_buffer(proa_payload *w, uint64_t at, uint64_t bytes, const char *data)
{
    holder *h = proa_malloc(sizeof *h);
    *h = (holder){.view = proa_shared_view_retain(w->view), .at = at};
    return proa_buffer_wrap((char *)data, bytes, let_go, h);
}

/* The inputs of the answered request: our memory, which the reply then keeps alive. */
static proa_buffer *peer_buffer(proa_payload *w)
{
    if (w->peer) return w->peer;
    holder *h = proa_malloc(sizeof *h);
    *h = (holder){.arena = proa_shared_arena_retain(w->arena), .at = w->inputs};
    proa_shared_arena_retain_block(w->arena, w->inputs);
    return w->peer = proa_buffer_wrap(proa_shared_arena_at(w->arena, w->inputs), 0, let_go, h);
}

proa_status proa_payload_head(proa_json **head, const proa_payload *w, proa_err *err)
{
    *head = NULL;
    if (!w->head_bytes) return PROA_OK;
    /* Copied, because the process could change it while it is parsed. */
    char *text = proa_malloc(w->head_bytes);
    memcpy(text, w->data + sizeof(proa_channel_payload) + (size_t)w->tensors * sizeof(proa_channel_tensor),
           w->head_bytes);
    proa_status status = proa_json_parse(head, (proa_str){text, w->head_bytes}, "the message of the process",
                                         err);
    free(text);
    return status;
}

static proa_status check_row(const proa_channel_tensor *row, const proa_payload *w, proa_err *err)
{
    int64_t elements = row->rank <= PROA_SERVE_RANK_MAX ? proa_shape_elements(row->shape, (int32_t)row->rank)
                                                        : -1;
    if (elements < 0 || row->type == PROA_TYPE_INVALID || row->type >= PROA_TYPE_COUNT)
        return PROA_FAIL(err, INVALID, "the process sent a tensor of no type or shape");
    uint64_t size = (uint64_t)proa_type_bytes((proa_type)row->type);
    if (size && (uint64_t)elements > UINT64_MAX / size)
        return PROA_FAIL(err, INVALID, "the process sent a tensor that is too large");
    if (size && (uint64_t)elements * size != row->bytes)
        return PROA_FAIL(err, INVALID, "the process sent a tensor whose bytes are not those of its shape");
    if (row->name_at > w->bytes || row->name_bytes > w->bytes - row->name_at)
        return PROA_FAIL(err, INVALID, "the process sent a name outside its block");
    return PROA_OK;
}

static bool in_own_block(const proa_payload *w, uint64_t at, uint64_t bytes)
{
    return at >= w->at && at - w->at <= w->bytes && bytes <= w->bytes - (at - w->at);
}

/* In a process: the server's memory. */
static proa_status open_device(proa_tensor *t, proa_payload *w, const proa_channel_tensor *row, proa_err *err)
{
    proa_channel_device place;
    if (!w->open_device || !in_own_block(w, row->at, sizeof place))
        return PROA_FAIL(err, INVALID, "the process sent a tensor outside its block");
    memcpy(&place, w->data + (row->at - w->at), sizeof place);
    return w->open_device(&t->buffer, &t->data, &place, row->bytes, proa_buffer_hold(own_buffer(w)), err);
}

/* The buffer of a tensor on a GPU: leased by the process, or an input of the answered request. *data: its bytes. */
static proa_status find_device(proa_buffer **buffer, const char **data, const proa_payload *w,
                               const proa_channel_tensor *row, proa_err *err)
{
    *buffer = NULL;
    if (row->type == PROA_TYPE_BYTES) return PROA_FAIL(err, INVALID, "the process sent strings on a GPU");
    if (row->place == PROA_CHANNEL_LEASED && w->devices) {
        *buffer = proa_devices_take_lease(w->devices, row->at, row->bytes);
        *data = *buffer ? (*buffer)->data : NULL;
    } else if (row->place == PROA_CHANNEL_INPUT && w->answered && row->at < (uint64_t)w->answered->inputs_count) {
        const proa_tensor *input = &w->answered->inputs[row->at];
        if (proa_tensor_device(input) && input->bytes == row->bytes)
            *buffer = proa_buffer_hold(input->buffer);
        *data = input->data;
    }
    if (*buffer) return PROA_OK;
    return PROA_FAIL(err, INVALID, "the process sent a tensor in memory of a GPU that it does not have");
}

proa_status proa_payload_tensor(proa_tensor *t, proa_str *name, proa_payload *w, uint32_t index, proa_err *err)
{
    proa_channel_tensor row;
    memcpy(&row, w->data + sizeof(proa_channel_payload) + (size_t)index * sizeof row, sizeof row);
    PROA_TRY(check_row(&row, w, err));
    *name = (proa_str){w->data + row.name_at, row.name_bytes};
    t->type = (proa_type)row.type;
    t->rank = (int32_t)row.rank;
    memcpy(t->shape, row.shape, row.rank * sizeof *t->shape);
    if (!row.bytes) return PROA_OK;
    if (row.place == PROA_CHANNEL_OWN && in_own_block(w, row.at, row.bytes)) {
        t->buffer = proa_buffer_hold(own_buffer(w));
        t->data = w->data + (row.at - w->at);
        w->written += row.bytes;
    } else if (row.place == PROA_CHANNEL_BLOCK && proa_shared_view_check(w->view, row.at, row.bytes)) {
        t->data = proa_shared_view_check(w->view, row.at, row.bytes);
        t->buffer = block_buffer(w, row.at, row.bytes, t->data);
        w->written += row.bytes;
    } else if (row.place == PROA_CHANNEL_PEER && w->arena &&
               proa_shared_arena_contains(w->arena, w->inputs, row.at, row.bytes)) {
        t->buffer = proa_buffer_hold(peer_buffer(w));
        t->data = proa_shared_arena_at(w->arena, row.at);
        w->passed += row.bytes;
    } else if (row.place == PROA_CHANNEL_LEASED || row.place == PROA_CHANNEL_INPUT) {
        PROA_TRY(find_device(&t->buffer, &t->data, w, &row, err));
    } else if (row.place == PROA_CHANNEL_DEVICE) {
        PROA_TRY(open_device(t, w, &row, err));
    } else {
        return PROA_FAIL(err, INVALID, "the process sent a tensor outside its block");
    }
    t->bytes = row.bytes;
    return PROA_OK;
}

proa_status proa_payload_params(const proa_json *object, proa_infer_param *(*add)(void *to, proa_str name),
                                void *to, proa_arena *arena, proa_err *err)
{
    proa_json_iter it = proa_json_begin(object);
    while (proa_json_next(&it)) {
        proa_json_type kind = proa_json_kind(it.value);
        if (kind != PROA_JSON_BOOL && kind != PROA_JSON_INT && kind != PROA_JSON_DOUBLE && kind != PROA_JSON_STRING)
            return PROA_FAIL(err, INVALID, "parameters must be bool, number or string");
        proa_infer_param *p = add(to, it.key);
        if (!p) return PROA_FAIL(err, LIMIT, "more than %d parameters", PROA_PARAMS_PER_REQUEST_MAX);
        if (kind == PROA_JSON_BOOL) {
            p->kind = PROA_PARAM_BOOL;
            p->b = proa_json_bool(it.value);
        } else if (kind == PROA_JSON_INT) {
            p->kind = PROA_PARAM_INT;
            p->i = proa_json_int(it.value);
        } else if (kind == PROA_JSON_DOUBLE) {
            p->kind = PROA_PARAM_DOUBLE;
            p->d = proa_json_double(it.value);
        } else {
            proa_str s = proa_json_str(it.value);
            p->kind = PROA_PARAM_STRING;
            p->s = (proa_str){proa_arena_strdup(arena, s), s.len};
        }
    }
    return PROA_OK;
}

/* The status for a gRPC code; INTERNAL if there is none. */
static proa_status status_of(int64_t code)
{
    switch (code) {
    case 1: return PROA_CANCELLED;
    case 3: return PROA_INVALID;
    case 4: return PROA_DEADLINE;
    case 5: return PROA_NOT_FOUND;
    case 6: return PROA_EXISTS;
    case 12: return PROA_UNSUPPORTED;
    case 14: return PROA_UNAVAILABLE;
    default: return PROA_INTERNAL;
    }
}

bool proa_payload_error(const proa_json *head, proa_err *err)
{
    const proa_json *text = proa_json_get(head, "error");
    if (!text) return false;
    proa_str s = proa_json_str(text);
    int64_t own = proa_json_int(proa_json_get(head, "status"));
    proa_status status = own > PROA_OK && own < PROA_STATUS_COUNT
                             ? (proa_status)own
                             : status_of(proa_json_int(proa_json_get(head, "code")));
    proa_err_set(err, status, __FILE__, __LINE__, "%.*s",
                 (int)(s.len > PROA_ERR_TEXT_MAX ? PROA_ERR_TEXT_MAX + 1 : s.len), s.len ? s.ptr : "");
    return true;
}

/* ---- a request ---- */

static proa_infer_param *add_request_param(void *r, proa_str name)
{
    return proa_infer_add_param(r, name);
}

static void take_sequence(proa_infer *r, const proa_json *head)
{
    const proa_json *id = proa_json_get(head, "correlation_id");
    int64_t flags = proa_json_int(proa_json_get(head, "flags"));
    if (proa_json_kind(id) == PROA_JSON_STRING)
        r->sequence_name = proa_arena_strdup(&r->arena, proa_json_str(id));
    else r->sequence_id = proa_json_uint(id);
    r->sequence_start = flags & 1;
    r->sequence_end = flags & 2;
}

proa_status proa_payload_request(proa_infer *r, const proa_json *head, proa_err *err)
{
    const proa_json *outputs = proa_json_get(head, "outputs");
    r->id = proa_arena_strdup(&r->arena, proa_json_str(proa_json_get(head, "id")));
    r->timeout_us = proa_json_uint(proa_json_get(head, "timeout"));
    r->priority = proa_json_uint(proa_json_get(head, "priority"));
    take_sequence(r, head);
    for (int64_t k = 0; k < proa_json_len(outputs); k++)
        if (!proa_infer_add_output(r, proa_json_str(proa_json_at(outputs, k))))
            return PROA_FAIL(err, LIMIT, "more than %d requested outputs", PROA_TENSORS_PER_REQUEST_MAX);
    return proa_payload_params(proa_json_get(head, "parameters"), add_request_param, r, &r->arena, err);
}

proa_status proa_payload_inputs(proa_infer *r, proa_payload *w, proa_err *err)
{
    for (uint32_t k = 0; k < w->tensors; k++) {
        proa_tensor t = {0};
        proa_str name;
        PROA_TRY(proa_payload_tensor(&t, &name, w, k, err));
        proa_tensor *to = proa_infer_add_input(r, name);
        if (!to) {
            proa_tensor_release(&t);
            return PROA_FAIL(err, LIMIT, "more than %d inputs", PROA_TENSORS_PER_REQUEST_MAX);
        }
        t.name = to->name;
        *to = t;
    }
    return PROA_OK;
}

/* ---- a reply ---- */

static const Inference__ModelOutput *find_output(const Inference__ModelConfig *c, proa_str name)
{
    for (size_t i = 0; i < c->n_output; i++)
        if (proa_str_is(name, c->output[i]->name)) return c->output[i];
    return NULL;
}

/* Whether the shape agrees with the configuration after the batch dimension. */
static bool output_fits(const proa_tensor *t, const Inference__ModelOutput *out, bool batched)
{
    size_t count = out->reshape ? out->reshape->n_shape : out->n_dims;
    const int64_t *dims = out->reshape ? out->reshape->shape : out->dims;
    if ((size_t)t->rank != count + batched) return false;
    for (size_t i = 0; i < count; i++)
        if (dims[i] != -1 && dims[i] != t->shape[i + batched]) return false;
    return true;
}

/* Checks an output against the configuration. out: the configured output of that name, or NULL. */
static proa_status check_output(const proa_tensor *t, const Inference__ModelOutput *out, proa_str name,
                                const proa_worker_model *m, proa_err *err)
{
    char got[PROA_DIMS_TEXT], want[PROA_DIMS_TEXT];
    bool batched = m->config->max_batch_size > 0;
    if (!out)
        return PROA_FAIL(err, INTERNAL,
                         "unexpected output '%.*s' from %s '%s': its configuration has none of "
                         "this name",
                         (int)(name.len > 100 ? 100 : name.len), name.ptr, m->settings.kind->model,
                         m->config->name);
    if ((proa_type)out->data_type != t->type)
        return PROA_FAIL(err, INTERNAL, "output '%s' of %s '%s' has type %s, its configuration says %s",
                         out->name, m->settings.kind->model, m->config->name, proa_type_name(t->type),
                         proa_type_name((proa_type)out->data_type));
    if (output_fits(t, out, batched)) return PROA_OK;
    return PROA_FAIL(err, INTERNAL, "output '%s' of %s '%s' has shape %s, its configuration says %s%s", out->name,
                     m->settings.kind->model, m->config->name, proa_dims_text(got, t->shape, (size_t)t->rank),
                     proa_dims_text(want, out->reshape ? out->reshape->shape : out->dims,
                                    out->reshape ? out->reshape->n_shape : out->n_dims),
                     batched ? " behind the batch" : "");
}

/* With strict_outputs an output that disagrees with the configuration fails the request. Otherwise it is
 * passed on unchanged (dropped if its name is not configured), and the first one is logged. */
static proa_status judge_output(const proa_tensor *t, const Inference__ModelOutput *out, proa_str name,
                                proa_worker_model *m, proa_err *err)
{
    proa_err found = {.status = PROA_OK};
    if (m->strict_outputs) return check_output(t, out, name, m, err);
    if (atomic_load_explicit(&m->warned, memory_order_relaxed)) return PROA_OK;
    if (check_output(t, out, name, m, &found) == PROA_OK || atomic_exchange(&m->warned, true)) return PROA_OK;
    PROA_LOG(WARNING, "%s; it is %s. More outputs of this model that disagree are not logged", found.text,
             out ? "passed on as the model made it" : "dropped");
    return PROA_OK;
}

static proa_infer_param *add_param(void *reply, proa_str name)
{
    proa_reply *r = reply;
    char text[256];
    if (r->params_count >= PROA_PARAMS_PER_REQUEST_MAX) return NULL;
    snprintf(text, sizeof text, "%.*s", (int)(name.len > 255 ? 255 : name.len), name.ptr);
    return proa_reply_add_param(r, text);
}

/* The number of strings is always checked, because readers of a tensor rely on its shape. */
static proa_status check_strings(const proa_tensor *t, proa_str name, const proa_worker_model *m, proa_err *err)
{
    int64_t found, want = proa_shape_elements(t->shape, t->rank);
    if (t->type != PROA_TYPE_BYTES || proa_tensor_strings_fit(t, want, &found)) return PROA_OK;
    return PROA_FAIL(err, INTERNAL, "output '%.*s' of %s '%s' has %lld strings, its shape says %lld",
                     (int)(name.len > 100 ? 100 : name.len), name.ptr, m->settings.kind->model,
                     m->config->name, (long long)found, (long long)want);
}

/* Of a process that has compared its outputs with the configuration: any name. */
static const char *checked_name(proa_reply *reply, proa_str name)
{
    return proa_arena_strdup(&reply->arena, name);
}

static proa_status take_output(proa_reply *reply, proa_payload *w, uint32_t index, proa_worker_model *m,
                               const proa_infer *r, proa_err *broken)
{
    proa_tensor t = {0};
    proa_str name;
    bool checked = m->settings.kind->checks_outputs;
    PROA_TRY(proa_payload_tensor(&t, &name, w, index, broken));
    const Inference__ModelOutput *out = checked ? NULL : find_output(m->config, name);
    proa_status status = checked ? PROA_OK : judge_output(&t, out, name, m, &reply->error);
    if (status == PROA_OK) status = check_strings(&t, name, m, &reply->error);
    const char *as = checked ? checked_name(reply, name) : out ? out->name : NULL;
    if (status == PROA_OK && as && (checked || proa_infer_wants(r, as))) {
        proa_tensor *to = proa_reply_add(reply, as);
        t.name = to->name;
        *to = t;
    } else {
        proa_tensor_release(&t);
    }
    return PROA_OK;
}

/* The times at which the request's inputs were ready and its computation ended, on the clock of all processes. */
static void take_times(proa_infer *r, const proa_json *times)
{
    if (!times) return;
    int64_t input_end = proa_json_int(proa_json_at(times, 0)),
            output_start = proa_json_int(proa_json_at(times, 1));
    if (input_end < r->times.compute_start || output_start < input_end || output_start > proa_clock_ns())
        return;
    r->times.input_end = input_end;
    r->times.output_start = output_start;
}

static void take_activities(proa_infer *r, const proa_json *activities)
{
    for (int64_t k = 0; r->trace && k < proa_json_len(activities); k++) {
        const proa_json *one = proa_json_at(activities, k);
        char *name = proa_str_copy(proa_json_str(proa_json_at(one, 0)));
        proa_trace_report(r->trace, proa_json_int(proa_json_at(one, 1)), name);
        free(name);
    }
}

static void take_copies(const proa_json *copies)
{
    if (!copies) return;
    const proa_device_copies c = {
        .to_host = proa_json_uint(proa_json_at(copies, 0)),
        .to_host_bytes = proa_json_uint(proa_json_at(copies, 1)),
        .to_device = proa_json_uint(proa_json_at(copies, 2)),
        .to_device_bytes = proa_json_uint(proa_json_at(copies, 3)),
    };
    proa_device_copies_merge(&c);
}

/* What a response says of its request. */
static void take_report(proa_infer *r, const proa_json *head)
{
    take_copies(proa_json_get(head, "copies"));
    take_times(r, proa_json_get(head, "times"));
    take_activities(r, proa_json_get(head, "activities"));
}

/* A response of a final flag and a report only is none. */
static bool has_reply(const proa_json *head, const proa_payload *w)
{
    return w->tensors || !proa_json_bool(proa_json_get(head, "empty"));
}

proa_status proa_payload_reply(proa_reply **out, proa_payload *w, proa_worker_model *model, proa_infer *r,
                               proa_err *err)
{
    proa_json *head = NULL;
    PROA_TRY(proa_payload_head(&head, w, err));
    if (model->settings.kind->checks_outputs) take_report(r, head);
    if (!has_reply(head, w)) {
        proa_json_free(head);
        return PROA_OK;
    }
    proa_reply *reply = proa_reply_new(r);
    proa_status status = PROA_OK;
    if (!proa_payload_error(head, &reply->error)) {
        status = proa_payload_params(proa_json_get(head, "parameters"), add_param, reply, &reply->arena, err);
        for (uint32_t i = 0; i < w->tensors && status == PROA_OK; i++)
            status = take_output(reply, w, i, model, r, err);
    }
    proa_json_free(head);
    if (status != PROA_OK) proa_reply_free(reply);
    else *out = reply;
    return status;
}
