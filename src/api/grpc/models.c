/* SPDX-License-Identifier: Apache-2.0
 * models.c - what the server reports about itself and its models, shared memory, and the settings. */
#include "api/grpc/service.h"

#include "base/limits.h"

/* The start of each function here: the request by its type. */
#define REQUEST(type, in) (const Inference__##type *)(in)

static proa_status server_metadata(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                   ProtobufCMessage **out, proa_err *err)
{
    Inference__ServerMetadataResponse *reply;
    PROA_UNUSED(in);
    PROA_UNUSED(err);
    proa_server_metadata(api->server, &reply, arena);
    *out = &reply->base;
    return PROA_OK;
}

static proa_status model_metadata(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                  ProtobufCMessage **out, proa_err *err)
{
    const Inference__ModelMetadataRequest *request = REQUEST(ModelMetadataRequest, in);
    Inference__ModelMetadataResponse *reply;
    int64_t version;
    PROA_TRY(proa_version_parse(&version, proa_str_c(request->version), err));
    PROA_TRY(proa_server_model_metadata(api->server, request->name, version, &reply, arena, err));
    *out = &reply->base;
    return PROA_OK;
}

static proa_status model_config(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                ProtobufCMessage **out, proa_err *err)
{
    const Inference__ModelConfigRequest *request = REQUEST(ModelConfigRequest, in);
    Inference__ModelConfigResponse *reply;
    int64_t version;
    PROA_TRY(proa_version_parse(&version, proa_str_c(request->version), err));
    PROA_TRY(proa_server_model_config(api->server, request->name, version, &reply, arena, err));
    *out = &reply->base;
    return PROA_OK;
}

static proa_status answer_statistics(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                     ProtobufCMessage **out, proa_err *err)
{
    const Inference__ModelStatisticsRequest *request = REQUEST(ModelStatisticsRequest, in);
    Inference__ModelStatisticsResponse *reply;
    int64_t version;
    PROA_TRY(proa_version_parse(&version, proa_str_c(request->version), err));
    PROA_TRY(proa_server_statistics(api->server, request->name, version, &reply, arena, err));
    *out = &reply->base;
    return PROA_OK;
}

static proa_status repository_index(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                    ProtobufCMessage **out, proa_err *err)
{
    const Inference__RepositoryIndexRequest *request = REQUEST(RepositoryIndexRequest, in);
    Inference__RepositoryIndexResponse *reply;
    if (*request->repository_name)
        return PROA_FAIL(err, UNSUPPORTED, "'repository_name' specification is not supported");
    PROA_TRY(proa_server_index(api->server, request->ready, &reply, arena, err));
    *out = &reply->base;
    return PROA_OK;
}

/* ---- shared memory ---- */

static proa_status shm_allowed(const proa_api *api, proa_err *err)
{
    if (api->options.allow_client_shm) return PROA_OK;
    return PROA_FAIL(
        err, UNSUPPORTED,
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
}

static proa_status shm_status(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                              ProtobufCMessage **out, proa_err *err)
{
    const Inference__SystemSharedMemoryStatusRequest *request = REQUEST(SystemSharedMemoryStatusRequest, in);
    Inference__SystemSharedMemoryStatusResponse *reply;
    PROA_TRY(proa_shm_status(api->server, request->name, &reply, arena, err));
    *out = &reply->base;
    return PROA_OK;
}

static proa_status shm_register(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                ProtobufCMessage **out, proa_err *err)
{
    const Inference__SystemSharedMemoryRegisterRequest *request = REQUEST(SystemSharedMemoryRegisterRequest, in);
    Inference__SystemSharedMemoryRegisterResponse *reply = PROA_ARENA_NEW(
        arena, Inference__SystemSharedMemoryRegisterResponse, 1);
    PROA_TRY(shm_allowed(api, err));
    PROA_TRY(proa_shm_register(api->server, request->name, request->key, request->offset, request->byte_size,
                               err));
    inference__system_shared_memory_register_response__init(reply);
    *out = &reply->base;
    return PROA_OK;
}

static proa_status shm_unregister(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                  ProtobufCMessage **out, proa_err *err)
{
    const Inference__SystemSharedMemoryUnregisterRequest *request = REQUEST(SystemSharedMemoryUnregisterRequest,
                                                                            in);
    Inference__SystemSharedMemoryUnregisterResponse *reply = PROA_ARENA_NEW(
        arena, Inference__SystemSharedMemoryUnregisterResponse, 1);
    PROA_TRY(shm_allowed(api, err));
    PROA_TRY(proa_shm_unregister(api->server, request->name, err));
    inference__system_shared_memory_unregister_response__init(reply);
    *out = &reply->base;
    return PROA_OK;
}

static proa_status cuda_status(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                               ProtobufCMessage **out, proa_err *err)
{
    const Inference__CudaSharedMemoryStatusRequest *request = REQUEST(CudaSharedMemoryStatusRequest, in);
    Inference__CudaSharedMemoryStatusResponse *reply;
    PROA_TRY(proa_shm_status_cuda(api->server, request->name, &reply, arena, err));
    *out = &reply->base;
    return PROA_OK;
}

static proa_status cuda_register(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                 ProtobufCMessage **out, proa_err *err)
{
    const Inference__CudaSharedMemoryRegisterRequest *request = REQUEST(CudaSharedMemoryRegisterRequest, in);
    Inference__CudaSharedMemoryRegisterResponse *reply = PROA_ARENA_NEW(
        arena, Inference__CudaSharedMemoryRegisterResponse, 1);
    const proa_str handle = {(const char *)request->raw_handle.data, request->raw_handle.len};
    PROA_TRY(shm_allowed(api, err));
    PROA_TRY(proa_shm_register_cuda(api->server, request->name, handle, request->device_id,
                                    request->byte_size, err));
    inference__cuda_shared_memory_register_response__init(reply);
    *out = &reply->base;
    return PROA_OK;
}

static proa_status cuda_unregister(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                   ProtobufCMessage **out, proa_err *err)
{
    const Inference__CudaSharedMemoryUnregisterRequest *request = REQUEST(CudaSharedMemoryUnregisterRequest, in);
    Inference__CudaSharedMemoryUnregisterResponse *reply = PROA_ARENA_NEW(
        arena, Inference__CudaSharedMemoryUnregisterResponse, 1);
    PROA_TRY(shm_allowed(api, err));
    PROA_TRY(proa_shm_unregister_cuda(api->server, request->name, err));
    inference__cuda_shared_memory_unregister_response__init(reply);
    *out = &reply->base;
    return PROA_OK;
}

/* ---- settings ---- */

static proa_status answer_trace(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                ProtobufCMessage **out, proa_err *err)
{
    const Inference__TraceSettingRequest *request = REQUEST(TraceSettingRequest, in);
    Inference__TraceSettingResponse *reply;
    if (request->n_settings) PROA_TRY(proa_trace_set(api, request->model_name, request, err));
    PROA_TRY(proa_trace_get(api, request->model_name, &reply, arena, err));
    *out = &reply->base;
    return PROA_OK;
}

static proa_status answer_logging(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                  ProtobufCMessage **out, proa_err *err)
{
    const Inference__LogSettingsRequest *request = REQUEST(LogSettingsRequest, in);
    Inference__LogSettingsResponse *reply;
    if (request->n_settings) PROA_TRY(proa_logging_set(api, request, err));
    PROA_TRY(proa_logging_get(api, &reply, arena, err));
    *out = &reply->base;
    return PROA_OK;
}

#define RPC(name, category, type, run)                                                                       \
    {                                                                                                        \
        "/inference.GRPCInferenceService/" name, PROA_CATEGORY_##category,                                   \
            &inference__##type##_request__descriptor, run, NULL                                              \
    }

const proa_rpc proa_rpc_models[] = {
    RPC("ServerMetadata", METADATA, server_metadata, server_metadata),
    RPC("ModelMetadata", METADATA, model_metadata, model_metadata),
    RPC("ModelConfig", MODEL_CONFIG, model_config, model_config),
    RPC("ModelStatistics", STATISTICS, model_statistics, answer_statistics),
    RPC("RepositoryIndex", MODEL_REPOSITORY, repository_index, repository_index),
    RPC("SystemSharedMemoryStatus", SHARED_MEMORY, system_shared_memory_status, shm_status),
    RPC("SystemSharedMemoryRegister", SHARED_MEMORY, system_shared_memory_register, shm_register),
    RPC("SystemSharedMemoryUnregister", SHARED_MEMORY, system_shared_memory_unregister, shm_unregister),
    RPC("CudaSharedMemoryStatus", SHARED_MEMORY, cuda_shared_memory_status, cuda_status),
    RPC("CudaSharedMemoryRegister", SHARED_MEMORY, cuda_shared_memory_register, cuda_register),
    RPC("CudaSharedMemoryUnregister", SHARED_MEMORY, cuda_shared_memory_unregister, cuda_unregister),
    RPC("TraceSetting", TRACE, trace_setting, answer_trace),
    RPC("LogSettings", LOGGING, log_settings, answer_logging),
    {.path = NULL},
};
