/* SPDX-License-Identifier: Apache-2.0
 * model.c - what a backend of Triton may ask about itself, its models and their instances. */
#include "backends/triton/abi.h"

#include "backends/common.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "proto/proto_json.h"
#include "serve/config/config.h"
#include <string.h>

#define FILESYSTEM 0 /* of the types of artifacts: the only one */

/* ---- the backend ---- */

TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor)
{
    *major = 1;
    *minor = 19;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendName(TRITONBACKEND_Backend *backend, const char **name)
{
    *name = backend->library->name;
    return NULL;
}

/* The message stays the backend's: its caller does not delete it. */
TRITONSERVER_Error *TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend *backend, TRITONSERVER_Message **config)
{
    *config = backend->config;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend *backend, int *type, const char **location)
{
    *type = FILESYSTEM;
    *location = backend->library->folder;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendMemoryManager(TRITONBACKEND_Backend *backend, void **manager)
{
    *manager = backend;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendExecutionPolicy(TRITONBACKEND_Backend *backend, int *policy)
{
    (void)backend;
    *policy = 0; /* blocking: one execution at a time for an instance */
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendState(TRITONBACKEND_Backend *backend, void **state)
{
    *state = backend->state;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend *backend, void *state)
{
    backend->state = state;
    return NULL;
}

/* The first call names the group that the backend prefers most; devices are the server's choice. */
TRITONSERVER_Error *TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute *attribute, int kind, uint64_t count, const uint64_t *devices,
    uint64_t devices_count)
{
    (void)devices;
    (void)devices_count;
    if (attribute->kind != PROA_TRITON_KIND_AUTO) return NULL;
    attribute->kind = kind;
    attribute->count = count;
    return NULL;
}

/* Instances of a model are opened one after another, which every backend allows. */
TRITONSERVER_Error *TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(void *attribute, bool enabled)
{
    (void)attribute;
    (void)enabled;
    return NULL;
}

/* ---- a model ---- */

TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *model, const char **name)
{
    *name = proa_served_model_name(model->served);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *model, uint64_t *version)
{
    *version = (uint64_t)proa_served_model_version(model->served);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelRepository(TRITONBACKEND_Model *model, int *type, const char **location)
{
    *type = FILESYSTEM;
    *location = proa_served_model_path(model->served);
    return NULL;
}

static TRITONSERVER_Error *bad_config_version(uint32_t version)
{
    return proa_triton_error(PROA_TRITON_UNSUPPORTED,
                             "model configuration version %u not supported, supported versions are: 1", version);
}

TRITONSERVER_Error *TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *model, uint32_t config_version,
                                              TRITONSERVER_Message **config)
{
    proa_buf text;
    if (config_version != 1) return bad_config_version(config_version);
    proa_buf_init(&text, (size_t)PROA_BACKEND_CONFIG_MAX);
    bool fits = proa_config_print_json(&text, proa_served_model_config(model->served));
    if (fits) *config = proa_triton_message(text.ptr, text.len);
    proa_buf_release(&text);
    return fits ? NULL : proa_triton_error(PROA_TRITON_INTERNAL, "the configuration is too long");
}

TRITONSERVER_Error *TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model *model, bool *complete)
{
    *complete = model->completing != NULL;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model *model, uint32_t config_version,
                                                 TRITONSERVER_Message *config)
{
    ProtobufCMessage *made;
    proa_err err = {0};
    if (config_version != 1) return bad_config_version(config_version);
    if (!model->completing)
        return proa_triton_error(
            PROA_TRITON_UNSUPPORTED,
            "the configuration of model '%s' can be set by TRITONBACKEND_ModelInitialize only, "
            "and not with --disable-auto-complete-config",
            proa_served_model_name(model->served));
    if (proa_proto_json_parse(&made, &inference__model_config__descriptor, (proa_str){config->json, config->bytes},
                              "TRITONBACKEND_ModelSetConfig", model->arena, &err) != PROA_OK)
        return proa_triton_error_of(&err);
    proa_backend_take_completed(model->completing, (const Inference__ModelConfig *)made);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelServer(TRITONBACKEND_Model *model, struct proa_server **server)
{
    *server = proa_served_model_server(model->served);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBackend(TRITONBACKEND_Model *model, TRITONBACKEND_Backend **backend)
{
    *backend = model->backend;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *model, void **state)
{
    *state = model->state;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *model, void *state)
{
    model->state = state;
    return NULL;
}

/* ---- an instance ---- */

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance *instance, const char **name)
{
    *name = proa_instance_name(instance->instance);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance *instance, int *kind)
{
    *kind = proa_instance_device(instance->instance) < 0 ? PROA_TRITON_KIND_CPU : PROA_TRITON_KIND_GPU;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance *instance, int32_t *device)
{
    int number = proa_instance_device(instance->instance);
    *device = number < 0 ? 0 : number;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceHostPolicy(TRITONBACKEND_ModelInstance *instance,
                                                          TRITONSERVER_Message **policy)
{
    *policy = instance->policy;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceIsPassive(TRITONBACKEND_ModelInstance *instance, bool *passive)
{
    (void)instance;
    *passive = false; /* a passive instance is not opened */
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance *instance,
                                                     TRITONBACKEND_Model **model)
{
    *model = instance->model;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance *instance, void **state)
{
    *state = instance->state;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance *instance, void *state)
{
    instance->state = state;
    return NULL;
}
