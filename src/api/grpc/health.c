/* SPDX-License-Identifier: Apache-2.0
 * health.c - grpc.health.v1, and the health RPCs of Triton's service. */
#include "api/grpc/service.h"

#include "proto/health.pb-c.h"

/* As in Triton: the state of the whole server, whatever service is named. */
static proa_status check_health(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                ProtobufCMessage **out, proa_err *err)
{
    PROA_UNUSED(in);
    PROA_UNUSED(err);
    Grpc__Health__V1__HealthCheckResponse *reply = PROA_ARENA_NEW(arena,
                                                                  Grpc__Health__V1__HealthCheckResponse, 1);
    grpc__health__v1__health_check_response__init(reply);
    reply->status = proa_server_ready(api->server, NULL) == PROA_OK
                        ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                        : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    *out = &reply->base;
    return PROA_OK;
}

static proa_status answer_live(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                               ProtobufCMessage **out, proa_err *err)
{
    PROA_UNUSED(in);
    PROA_UNUSED(err);
    Inference__ServerLiveResponse *reply = PROA_ARENA_NEW(arena, Inference__ServerLiveResponse, 1);
    inference__server_live_response__init(reply);
    reply->live = proa_server_live(api->server);
    *out = &reply->base;
    return PROA_OK;
}

static proa_status answer_ready(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                ProtobufCMessage **out, proa_err *err)
{
    PROA_UNUSED(in);
    PROA_UNUSED(err);
    Inference__ServerReadyResponse *reply = PROA_ARENA_NEW(arena, Inference__ServerReadyResponse, 1);
    inference__server_ready_response__init(reply);
    reply->ready = proa_server_ready(api->server, NULL) == PROA_OK;
    *out = &reply->base;
    return PROA_OK;
}

/* A loaded version whose backend is not ready is an answer (false); a version that is not loaded is an error. */
static proa_status model_ready(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                               ProtobufCMessage **out, proa_err *err)
{
    const Inference__ModelReadyRequest *request = (const Inference__ModelReadyRequest *)in;
    Inference__ModelReadyResponse *reply = PROA_ARENA_NEW(arena, Inference__ModelReadyResponse, 1);
    int64_t version;
    inference__model_ready_response__init(reply);
    PROA_TRY(proa_version_parse(&version, proa_str_c(request->version), err));
    proa_status status = proa_server_model_ready(api->server, request->name, version, err);
    reply->ready = status == PROA_OK;
    *out = &reply->base;
    return status == PROA_INVALID ? PROA_OK : status;
}

#define SERVICE "/inference.GRPCInferenceService/"

const proa_rpc proa_rpc_health[] = {
    {"/grpc.health.v1.Health/Check", PROA_CATEGORY_HEALTH,
     &grpc__health__v1__health_check_request__descriptor, check_health, NULL},
    {SERVICE "ServerLive", PROA_CATEGORY_HEALTH, &inference__server_live_request__descriptor, answer_live, NULL},
    {SERVICE "ServerReady", PROA_CATEGORY_HEALTH, &inference__server_ready_request__descriptor, answer_ready, NULL},
    {SERVICE "ModelReady", PROA_CATEGORY_HEALTH, &inference__model_ready_request__descriptor, model_ready, NULL},
    {.path = NULL},
};
