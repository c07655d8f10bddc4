/* SPDX-License-Identifier: Apache-2.0
 * abi.h - the binary interface of Triton's backends (TRITONBACKEND_* 1.19, TRITONSERVER_* 1.34), in declarations of
 * our own: opaque objects, numbers of the enumerations, prototypes of exports.def. Enumerations are ints on the ABI.
 * Owner:   an error that a function returns is its caller's (TRITONSERVER_ErrorDelete); NULL is success. A backend
 *          owns requests of an execution until it releases them, and a response until it sends or deletes it.
 * Threads: every function may be called from any thread. */
#ifndef PROA_BACKENDS_TRITON_ABI_H
#define PROA_BACKENDS_TRITON_ABI_H

#include "backends/library/library.h"
#include <pthread.h>

struct proa_server;

typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONSERVER_Message TRITONSERVER_Message;
typedef struct TRITONSERVER_Parameter TRITONSERVER_Parameter;
typedef struct TRITONSERVER_MetricFamily TRITONSERVER_MetricFamily;
typedef struct TRITONSERVER_Metric TRITONSERVER_Metric;
typedef struct TRITONSERVER_MetricArgs TRITONSERVER_MetricArgs;
typedef struct TRITONSERVER_BufferAttributes TRITONSERVER_BufferAttributes;
typedef struct TRITONSERVER_ResponseAllocator TRITONSERVER_ResponseAllocator;
typedef struct TRITONSERVER_InferenceRequest TRITONSERVER_InferenceRequest;
typedef struct TRITONSERVER_InferenceResponse TRITONSERVER_InferenceResponse;
typedef struct TRITONBACKEND_BackendAttribute TRITONBACKEND_BackendAttribute;
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONBACKEND_ResponseFactory TRITONBACKEND_ResponseFactory;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;
typedef struct TRITONREPOAGENT_Agent TRITONREPOAGENT_Agent;
typedef struct TRITONREPOAGENT_AgentModel TRITONREPOAGENT_AgentModel;

enum proa_triton_code {
    PROA_TRITON_UNKNOWN,
    PROA_TRITON_INTERNAL,
    PROA_TRITON_NOT_FOUND,
    PROA_TRITON_INVALID_ARG,
    PROA_TRITON_UNAVAILABLE,
    PROA_TRITON_UNSUPPORTED,
    PROA_TRITON_ALREADY_EXISTS,
    PROA_TRITON_CANCELLED
};
enum proa_triton_memory { PROA_TRITON_CPU, PROA_TRITON_CPU_PINNED, PROA_TRITON_GPU_MEMORY };
enum proa_triton_parameter {
    PROA_TRITON_STRING,
    PROA_TRITON_INT,
    PROA_TRITON_BOOL,
    PROA_TRITON_DOUBLE,
    PROA_TRITON_BYTES
};
enum proa_triton_kind {
    PROA_TRITON_KIND_AUTO,
    PROA_TRITON_KIND_CPU,
    PROA_TRITON_KIND_GPU,
    PROA_TRITON_KIND_MODEL
};
enum proa_triton_flags {
    PROA_TRITON_SEQUENCE_START = 1,
    PROA_TRITON_SEQUENCE_END = 2,
    PROA_TRITON_RELEASE_ALL = 1,
    PROA_TRITON_RELEASE_RESCHEDULE = 2,
    PROA_TRITON_FINAL = 1
};

struct TRITONSERVER_Error {
    int code;
    char text[]; /* NUL-terminated */
};
struct TRITONSERVER_Message {
    size_t bytes;
    char json[]; /* NUL-terminated */
};
struct TRITONSERVER_Parameter {
    char *name;
    int type;
    char *text;   /* of a string */
    size_t bytes; /* of bytes */
    union {
        int64_t i;
        bool b;
        double d;
        const char *bytes; /* the caller's */
    } value;
};
struct TRITONSERVER_BufferAttributes {
    size_t bytes;
    int memory_type;
    int64_t memory_id;
    void *ipc_handle; /* of CUDA; NULL: none */
};

typedef TRITONSERVER_Error *proa_triton_backend_fn(TRITONBACKEND_Backend *backend);
typedef TRITONSERVER_Error *proa_triton_model_fn(TRITONBACKEND_Model *model);
typedef TRITONSERVER_Error *proa_triton_instance_fn(TRITONBACKEND_ModelInstance *instance);
typedef TRITONSERVER_Error *proa_triton_execute_fn(TRITONBACKEND_ModelInstance *instance,
                                                   TRITONBACKEND_Request **requests, uint32_t count);

typedef TRITONSERVER_Error *proa_triton_agent_fn(TRITONREPOAGENT_Agent *agent);
typedef TRITONSERVER_Error *proa_triton_agent_model_fn(TRITONREPOAGENT_Agent *agent,
                                                       TRITONREPOAGENT_AgentModel *model);
typedef TRITONSERVER_Error *proa_triton_action_fn(TRITONREPOAGENT_Agent *agent,
                                                  TRITONREPOAGENT_AgentModel *model, int action);
typedef TRITONSERVER_Error *proa_triton_attribute_fn(TRITONBACKEND_Backend *backend,
                                                     TRITONBACKEND_BackendAttribute *attribute);

/* ---- callbacks of calls: call.c ---- */
typedef TRITONSERVER_Error *proa_triton_alloc_fn(TRITONSERVER_ResponseAllocator *allocator, const char *name,
                                                 size_t bytes, int memory_type, int64_t memory_id, void *arg,
                                                 void **buffer, void **buffer_arg, int *actual_type,
                                                 int64_t *actual_id);
typedef TRITONSERVER_Error *proa_triton_free_fn(TRITONSERVER_ResponseAllocator *allocator, void *buffer,
                                                void *buffer_arg, size_t bytes, int memory_type,
                                                int64_t memory_id);
typedef TRITONSERVER_Error *proa_triton_start_fn(TRITONSERVER_ResponseAllocator *allocator, void *arg);
typedef TRITONSERVER_Error *proa_triton_query_fn(TRITONSERVER_ResponseAllocator *allocator, void *arg,
                                                 const char *name, size_t *bytes, int *memory_type,
                                                 int64_t *memory_id);
typedef void proa_triton_release_fn(TRITONSERVER_InferenceRequest *request, uint32_t flags, void *arg);
typedef void proa_triton_respond_fn(TRITONSERVER_InferenceResponse *response, uint32_t flags, void *arg);

/* What a backend says about itself (TRITONBACKEND_GetBackendAttribute). */
struct TRITONBACKEND_BackendAttribute {
    int kind;       /* of the instance group that it prefers most: enum proa_triton_kind */
    uint64_t count; /* of instances of it; 0: the default */
};

/* What the library exports; NULL but for execute if it does not. */
struct TRITONBACKEND_Backend {
    const proa_library *library;
    pthread_mutex_t lock;
    bool initialized; /* under the lock: Initialize has succeeded */
    void *state;
    TRITONSERVER_Message *config;
    TRITONBACKEND_BackendAttribute attribute;
    proa_triton_backend_fn *initialize;
    proa_triton_attribute_fn *get_attribute;
    proa_triton_model_fn *model_initialize, *model_finalize;
    proa_triton_instance_fn *instance_initialize, *instance_finalize, *instance_ready;
    proa_triton_execute_fn *execute;
};

struct TRITONBACKEND_Model {
    TRITONBACKEND_Backend *backend;
    proa_served_model *served;
    bool decoupled;
    Inference__ModelConfig *completing; /* inside ModelInitialize, if it may complete the configuration; else NULL */
    proa_arena *arena;                  /* of what it completes */
    void *state;
    TRITONBACKEND_ModelInstance *instances; /* a list */
    TRITONBACKEND_Model *next;              /* of the lists of triton.c */
};

struct TRITONBACKEND_ModelInstance {
    TRITONBACKEND_Model *model;
    const proa_instance *instance;
    void *state;
    TRITONSERVER_Message *policy;
    TRITONBACKEND_ModelInstance *next;
};

struct TRITONBACKEND_Input {
    const proa_tensor *tensor;
    TRITONSERVER_BufferAttributes attributes;
};

/* A request, from its execution until the backend has released it and deleted its factories and responses: each of
 * them has a reference. */
struct TRITONBACKEND_Request {
    TRITONBACKEND_Model *model;
    proa_infer *infer; /* with a reference of its own, since responses may end before it is released */
    atomic_int refs;
    atomic_bool ended; /* the final response was sent, or is kept in `last` */
    _Atomic(proa_reply *) last;
    TRITONBACKEND_Input inputs[]; /* those of infer */
};

struct TRITONBACKEND_Response {
    TRITONBACKEND_Request *request;
    proa_reply *reply;
};

struct TRITONBACKEND_Output {
    const proa_infer *infer;
    proa_reply *reply;
    int32_t index; /* in the reply's outputs, which move when they grow */
    TRITONSERVER_BufferAttributes attributes;
};

/* objects.c */
TRITONSERVER_Error *proa_triton_error(int code, const char *fmt, ...) PROA_PRINTF(2, 3);
TRITONSERVER_Error *proa_triton_error_of(const proa_err *err);
TRITONSERVER_Message *proa_triton_message(const char *json, size_t bytes);
/* Fills err from an error, which it deletes; PROA_OK for NULL. */
proa_status proa_triton_status(TRITONSERVER_Error *error, proa_err *err);

/* memory.c */
/* Where the bytes of a tensor are: a type of memory, and the number of its GPU. */
void proa_triton_locate(const proa_tensor *t, int *memory_type, int64_t *memory_id);
/* A buffer for an output, in the memory that the backend prefers if the response may stay there, else on the host. */
PROA_MUST_CHECK proa_status proa_triton_output_memory(proa_buffer **out, const TRITONBACKEND_Output *output,
                                                      uint64_t bytes, int memory_type, int64_t memory_id,
                                                      proa_err *err);

/* request.c */
/* A parameter as a pointer to its value: an unsigned number has the bytes of the signed one that Triton has. */
void proa_triton_read_param(const proa_infer_param *p, const char **name, int *type, const void **value);

/* lifecycle.c */
TRITONBACKEND_Request *proa_triton_request_new(TRITONBACKEND_Model *model, proa_infer *infer);
TRITONBACKEND_Request *proa_triton_request_hold(TRITONBACKEND_Request *request);
/* The last reference: a request without a final response gets an error. */
void proa_triton_request_drop(TRITONBACKEND_Request *request);
/* Hands a reply to the server. reply NULL: only the end. False: the final response was sent before; reply is freed. */
bool proa_triton_reply(TRITONBACKEND_Request *request, proa_reply *reply, bool final);
/* Delivers the final reply of a model that is not decoupled: it is kept until the statistics of the request are known,
 * which the backend reports after it sends the response. */
void proa_triton_flush(TRITONBACKEND_Request *request);

/* exports.c */
/* INVALID naming all functions of Triton that a library imports and that are not in exports.def. */
struct proa_elf;
proa_status proa_triton_check_imports(const struct proa_elf *elf, const char *path, proa_err *err);

/* soname.c: makes the needed libtritonserver.so of a library resolvable, whatever its exact name. */
proa_status proa_triton_provide_sonames(const struct proa_elf *elf, proa_err *err);

/* metrics.c: appends the metrics of backends as Prometheus text. */
void proa_triton_metrics_print(proa_buf *out);

#define X(result, name, parameters) PROA_EXPORT result name parameters;
#include "backends/triton/exports.def"
#undef X

#endif
