/* SPDX-License-Identifier: Apache-2.0
 * service.c - the methods of GRPCInferenceService: finds the method of a path and runs those with one small message
 * each way. */
#include "api/grpc/service.h"

#include "api/grpc/pb_wire.h"
#include "base/alloc.h"
#include "base/reserve.h"
#include "base/limits.h"
#include <string.h>

#define SERVICE "/inference.GRPCInferenceService/"

static const proa_rpc inference[] = {
    {.path = SERVICE "ModelInfer", .category = PROA_CATEGORY_INFERENCE, .start = proa_rpc_infer},
    {.path = SERVICE "ModelStreamInfer", .category = PROA_CATEGORY_INFERENCE, .start = proa_rpc_stream},
    {.path = NULL},
};

static const proa_rpc *find_rpc(proa_str path)
{
    const proa_rpc *const tables[] = {inference, proa_rpc_health, proa_rpc_models, proa_rpc_control};
    for (size_t i = 0; i < PROA_COUNT(tables); i++)
        for (const proa_rpc *rpc = tables[i]; rpc->path; rpc++)
            if (proa_str_is(path, rpc->path)) return rpc;
    return NULL;
}

/* ---- one small message each way ---- */

typedef struct small_call { /* in the call's arena */
    proa_api *api;
    const proa_rpc *rpc;
} small_call;

static void *arena_alloc(void *arena, size_t bytes)
{
    return proa_arena_alloc(arena, bytes);
}

static void arena_free(void *arena, void *memory)
{
    PROA_UNUSED(arena);
    PROA_UNUSED(memory);
}

static void send_message(proa_grpc_call *call, const ProtobufCMessage *out)
{
    size_t bytes = protobuf_c_message_get_packed_size(out);
    uint8_t *memory = proa_arena_alloc(call->arena, bytes);
    protobuf_c_message_pack(out, memory);
    proa_grpc_send(call, &(struct iovec){memory, bytes}, 1, NULL, NULL);
    proa_grpc_finish(call, PROA_GRPC_OK, (proa_str){"", 0}, NULL, 0);
}

/* Built messages hold C strings, which would end at a NUL and name something else. The bytes are a message of type
 * d. */
static bool has_nul(const ProtobufCMessageDescriptor *d, proa_str bytes)
{
    pb_reader in = pb_read(bytes);
    pb_field f;
    while (pb_next(&in, &f)) {
        const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(d, f.number);
        if (!field || f.type != PB_BYTES) continue;
        if (field->type == PROTOBUF_C_TYPE_STRING && proa_str_has_nul(f.bytes)) return true;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && has_nul(field->descriptor, f.bytes)) return true;
    }
    return false;
}

static proa_status run_small(const small_call *c, proa_grpc_call *call, proa_str bytes,
                             ProtobufCMessage **out, proa_err *err)
{
    ProtobufCAllocator allocator = {arena_alloc, arena_free, call->arena};
    if (bytes.len > PROA_GRPC_CONTROL_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "Received message larger than max (%zu vs. %d)", bytes.len,
                         PROA_GRPC_CONTROL_BYTES_MAX);
    const ProtobufCMessage *in = protobuf_c_message_unpack(c->rpc->in, &allocator, bytes.len,
                                                           (const uint8_t *)bytes.ptr);
    if (!in) return PROA_FAIL(err, INVALID, "the message is not a %s", c->rpc->in->short_name);
    if (has_nul(c->rpc->in, bytes))
        return PROA_FAIL(err, INVALID, "a string of the %s has a NUL byte", c->rpc->in->short_name);
    return c->rpc->run(c->api, call->arena, in, out, err);
}

static void on_small(proa_grpc_call *call, proa_str bytes)
{
    ProtobufCMessage *out = NULL;
    proa_err err = {.status = PROA_OK};
    if (run_small(call->user, call, bytes, &out, &err) == PROA_OK) send_message(call, out);
    else proa_grpc_fail(call, &err);
}

static void no_message(proa_grpc_call *call)
{
    proa_grpc_finish(call, PROA_GRPC_INTERNAL, proa_str_c("the call has no message"), NULL, 0);
}

/* ---- every call ---- */

void proa_grpc_v2(proa_grpc_call *call, void *api)
{
    const proa_rpc *rpc = find_rpc(call->path);
    proa_reserve_recover();
    if (!rpc) {
        const char *text = proa_arena_printf(call->arena, "unknown method '%.*s'", (int)call->path.len,
                                             call->path.ptr);
        proa_grpc_finish(call, PROA_GRPC_UNIMPLEMENTED, proa_str_c(text), NULL, 0);
        return;
    }
    if (PROA_UNLIKELY(proa_conn_reserved(call->conn)) && rpc->category != PROA_CATEGORY_HEALTH) {
        proa_grpc_finish(call, PROA_GRPC_UNAVAILABLE,
                         proa_str_c("too many connections: the server has no more file descriptors"), NULL, 0);
        return;
    }
    if (!proa_grpc_allowed(api, call, rpc->category)) return;
    call->on_half_close = no_message;
    if (rpc->start) {
        rpc->start(api, call);
        return;
    }
    small_call *c = PROA_ARENA_NEW(call->arena, small_call, 1);
    *c = (small_call){api, rpc};
    call->user = c;
    call->on_message = on_small;
}
