/* SPDX-License-Identifier: Apache-2.0
 * reply_pb.c - writes a reply as ModelInferResponse: heads are built here, tensors leave from their own buffers. */
#include "api/grpc/infer_pb.h"

#include "api/frontend.h"
#include "api/grpc/pb_wire.h"
#include <inttypes.h>
#include <string.h>

static const proa_str final_name = {"triton_final_response", 21};

/* ---- classes and shared memory ---- */

static proa_status to_classes(proa_tensor *t, const proa_pb_want *want, const proa_served_model *model,
                              proa_err *err)
{
    proa_tensor classes;
    bool batched = proa_served_model_config(model)->max_batch_size > 0;
    PROA_TRY(proa_classify(&classes, t, model, want->classes, batched, err));
    proa_tensor_release(t);
    *t = classes;
    return PROA_OK;
}

static proa_status to_region(proa_tensor *t, const proa_pb_want *want, proa_err *err)
{
    if (t->bytes > want->region_bytes)
        return PROA_FAIL(err, INTERNAL,
                         "shared memory size specified with the request for output '%s' (%" PRIu64
                         " bytes) should be at least %zu bytes to hold the results",
                         t->name, want->region_bytes, t->bytes);
    PROA_TRY(proa_tensor_copy_to(want->region, t, err));
    PROA_TRY(proa_shm_check(want->region, err));
    proa_tensor_release(t); /* its entry remains, without bytes */
    return PROA_OK;
}

proa_status proa_reply_pb_apply(const proa_infer_pb *m, const proa_served_model *model, proa_reply *reply,
                                proa_err *err)
{
    for (int i = 0; i < m->wants_count; i++) {
        const proa_pb_want *want = &m->wants[i];
        for (int32_t o = 0; o < reply->outputs_count; o++) {
            proa_tensor *t = &reply->outputs[o];
            if (strcmp(t->name, want->output) != 0) continue;
            if (want->classes) PROA_TRY(proa_tensor_to_host(t, err));
            PROA_TRY(want->classes ? to_classes(t, want, model, err) : to_region(t, want, err));
        }
    }
    for (int32_t o = 0; o < reply->outputs_count; o++) PROA_TRY(proa_tensor_to_host(&reply->outputs[o], err));
    return PROA_OK;
}

proa_status proa_reply_pb_check(const proa_reply *reply, proa_err *err)
{
    for (int32_t o = 0; o < reply->outputs_count; o++)
        PROA_TRY(proa_shm_check_bytes(reply->outputs[o].buffer, reply->outputs[o].data,
                                      reply->outputs[o].bytes, err));
    return PROA_OK;
}

/* ---- parameters ---- */

static size_t choice_size(const proa_infer_param *p)
{
    switch (p->kind) {
    case PROA_PARAM_BOOL: return 2;
    case PROA_PARAM_INT: return 1 + pb_varint_size((uint64_t)p->i);
    case PROA_PARAM_STRING: return pb_bytes_size(p->s.len);
    case PROA_PARAM_DOUBLE: return 9;
    default: return 1 + pb_varint_size(p->u);
    }
}

static char *put_choice(char *at, const proa_infer_param *p)
{
    switch (p->kind) {
    case PROA_PARAM_BOOL: *at++ = 1 << 3 | PB_VARINT; return pb_put_varint(at, p->b);
    case PROA_PARAM_INT: *at++ = 2 << 3 | PB_VARINT; return pb_put_varint(at, (uint64_t)p->i);
    case PROA_PARAM_STRING: return pb_put_bytes(at, 3, p->s);
    case PROA_PARAM_DOUBLE:
        *at++ = 4 << 3 | PB_FIXED64;
        memcpy(at, &p->d, sizeof p->d);
        return at + sizeof p->d;
    default: *at++ = 5 << 3 | PB_VARINT; return pb_put_varint(at, p->u);
    }
}

static size_t entry_size(const proa_infer_param *p)
{
    return pb_bytes_size(p->name.len) + pb_bytes_size(choice_size(p));
}

/* An entry of the map in field 4. */
static char *put_entry(char *at, const proa_infer_param *p)
{
    at = pb_put_head(at, 4, entry_size(p));
    at = pb_put_bytes(at, 1, p->name);
    at = pb_put_head(at, 2, choice_size(p));
    return put_choice(at, p);
}

/* ---- outputs ---- */

static size_t shape_size(const proa_tensor *t)
{
    size_t n = 0;
    for (int32_t i = 0; i < t->rank; i++) n += pb_varint_size((uint64_t)t->shape[i]);
    return n;
}

static size_t output_size(const proa_tensor *t)
{
    size_t shape = shape_size(t);
    return pb_bytes_size(strlen(t->name)) + pb_bytes_size(strlen(proa_type_name(t->type))) +
           (t->rank ? pb_bytes_size(shape) : 0);
}

/* Name, type and shape, in field 5. */
static char *put_output(char *at, const proa_tensor *t)
{
    at = pb_put_head(at, 5, output_size(t));
    at = pb_put_bytes(at, 1, proa_str_c(t->name));
    at = pb_put_bytes(at, 2, proa_str_c(proa_type_name(t->type)));
    if (!t->rank) return at;
    at = pb_put_head(at, 3, shape_size(t));
    for (int32_t i = 0; i < t->rank; i++) at = pb_put_varint(at, (uint64_t)t->shape[i]);
    return at;
}

/* ---- the whole ---- */

/* Decimal digits at the end of `digits`. */
static proa_str version_text(char digits[20], int64_t version)
{
    char *end = digits + 20, *at = end;
    uint64_t rest = version < 0 ? 0 : (uint64_t)version;
    do *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    return (proa_str){at, (size_t)(end - at)};
}

typedef struct head_parts {
    proa_str model_name, version, id;
    proa_infer_param final; /* name.ptr NULL: none */
} head_parts;

static size_t head_size(const proa_reply *reply, const head_parts *h)
{
    size_t n = pb_bytes_size(h->model_name.len) + pb_bytes_size(h->version.len);
    if (h->id.len) n += pb_bytes_size(h->id.len);
    for (int32_t i = 0; i < reply->params_count; i++) n += pb_bytes_size(entry_size(&reply->params[i]));
    if (h->final.name.ptr) n += pb_bytes_size(entry_size(&h->final));
    for (int32_t i = 0; i < reply->outputs_count; i++) n += pb_bytes_size(output_size(&reply->outputs[i]));
    return n;
}

static char *put_head(char *at, const proa_reply *reply, const head_parts *h)
{
    at = pb_put_bytes(at, 1, h->model_name);
    at = pb_put_bytes(at, 2, h->version);
    if (h->id.len) at = pb_put_bytes(at, 3, h->id);
    for (int32_t i = 0; i < reply->params_count; i++) at = put_entry(at, &reply->params[i]);
    if (h->final.name.ptr) at = put_entry(at, &h->final);
    for (int32_t i = 0; i < reply->outputs_count; i++) at = put_output(at, &reply->outputs[i]);
    return at;
}

/* The headers of raw_output_contents are stored after the rest, and each is sent before its tensor. */
static int put_raw(struct iovec *iov, char *from, char *at, const proa_reply *reply)
{
    int n = 0;
    for (int32_t i = 0; i < reply->outputs_count; i++) {
        const proa_tensor *t = &reply->outputs[i];
        at = pb_put_head(at, 6, t->bytes);
        if (!t->bytes) continue;
        iov[n++] = (struct iovec){from, (size_t)(at - from)};
        iov[n++] = (struct iovec){(void *)(uintptr_t)t->data, t->bytes};
        from = at;
    }
    if (at > from || n == 0) iov[n++] = (struct iovec){from, (size_t)(at - from)};
    return n;
}

proa_status proa_reply_pb_write(proa_reply_pb *out, proa_reply *reply, proa_pb_final final, proa_err *err)
{
    char digits[20];
    head_parts h = {proa_str_c(reply->model_name),
                    version_text(digits, reply->model_version),
                    proa_str_c(reply->id),
                    {.name = {NULL, 0}}};
    if (final != PROA_PB_UNARY)
        h.final = (proa_infer_param){.name = final_name, .kind = PROA_PARAM_BOOL, .b = final == PROA_PB_FINAL};
    size_t head = head_size(reply, &h), raw_heads = 0, data = 0;
    for (int32_t i = 0; i < reply->outputs_count; i++) {
        raw_heads += 1 + pb_varint_size(reply->outputs[i].bytes);
        data += reply->outputs[i].bytes;
    }
    size_t whole = head + raw_heads + data, outer = final == PROA_PB_UNARY ? 0 : 1 + pb_varint_size(whole);
    if (whole > INT32_MAX - 16)
        return PROA_FAIL(err, INVALID,
                         "Response has byte size %zu which exceeds gRPC's byte size limit 2147483647.", whole);
    char *memory = proa_arena_alloc(&reply->arena, outer + head + raw_heads), *at = memory;
    if (outer) at = pb_put_head(at, 2, whole);
    at = put_head(at, reply, &h);
    out->iov = PROA_ARENA_NEW(&reply->arena, struct iovec, 2 * reply->outputs_count + 1);
    out->count = put_raw(out->iov, memory, at, reply);
    out->bytes = outer + whole;
    return PROA_OK;
}

static size_t optional_size(proa_str s)
{
    return s.len ? pb_bytes_size(s.len) : 0;
}

static char *put_optional(char *at, uint32_t number, proa_str s)
{
    return s.len ? pb_put_bytes(at, number, s) : at;
}

proa_str proa_stream_note_write(proa_arena *arena, const proa_stream_note *note)
{
    proa_infer_param final = {.name = final_name, .kind = PROA_PARAM_BOOL, .b = note->final};
    size_t inner = optional_size(note->model_name) + optional_size(note->model_version) + optional_size(note->id);
    if (note->has_final) inner += pb_bytes_size(entry_size(&final));
    size_t whole = optional_size(note->error) + pb_bytes_size(inner);
    char *memory = proa_arena_alloc(arena, whole), *at = put_optional(memory, 1, note->error);
    at = pb_put_head(at, 2, inner);
    at = put_optional(at, 1, note->model_name);
    at = put_optional(at, 2, note->model_version);
    at = put_optional(at, 3, note->id);
    if (note->has_final) at = put_entry(at, &final);
    return (proa_str){memory, (size_t)(at - memory)};
}
