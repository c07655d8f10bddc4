/* SPDX-License-Identifier: Apache-2.0
 * backend.h - the interface of a backend that is a shared library: what it exports and what Proa offers to it.
 *
 *     PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *host, proa_err *err)
 *     {
 *         if (host->version != PROA_BACKEND_VERSION) return NULL;
 *         return &table;
 *     }
 *
 * `proa serve --backend-directory DIR` loads DIR/NAME/libproa_NAME.so for a model whose config.pbtxt has
 * `backend: "NAME"`. The library stays loaded until the program ends. It links to nothing of Proa: all that it calls
 * is in proa_backend_host.
 *
 * Versions: PROA_BACKEND_VERSION changes when a member changes its meaning. New members are appended to a table and
 *           raise its `bytes`. Compare `bytes` with offsetof before you use a member that was appended.
 * Owner:    states belong to the backend, handles (model, instance, request) to Proa. Texts and tensors of a handle
 *           live as long as the handle.
 * Threads:  the functions of one model are called one at a time, and so is execute of one instance. All functions of
 *           the host may be called from any thread. */
#ifndef PROA_BACKEND_H
#define PROA_BACKEND_H

#include "proa/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROA_BACKEND_VERSION 1

/* Flags of a backend. */
enum proa_backend_flags {
    /* execute only computes, and briefly: it may run on the event loop that read the request. */
    PROA_BACKEND_INLINE = 1 << 0,
    /* The backend queues and batches itself: execute is called at once from any thread, several at a time, with one
     * request, and returns before the responses come. */
    PROA_BACKEND_OWN_QUEUE = 1 << 1,
    /* Decoupled models of this backend answer a unary request with one response, so unary calls are allowed. */
    PROA_BACKEND_UNARY = 1 << 2,
    /* Supports KIND_GPU: it opens the devices that its instance groups name, or fails with the reason. */
    PROA_BACKEND_GPU = 1 << 3,
};

/* Types of elements: KServe's, with the numbers of model_config.proto. An element of BYTES is its length (4 bytes,
 * little-endian) and its bytes. */
typedef enum proa_backend_type {
    PROA_BACKEND_BOOL = 1,
    PROA_BACKEND_UINT8 = 2,
    PROA_BACKEND_UINT16 = 3,
    PROA_BACKEND_UINT32 = 4,
    PROA_BACKEND_UINT64 = 5,
    PROA_BACKEND_INT8 = 6,
    PROA_BACKEND_INT16 = 7,
    PROA_BACKEND_INT32 = 8,
    PROA_BACKEND_INT64 = 9,
    PROA_BACKEND_FP16 = 10,
    PROA_BACKEND_FP32 = 11,
    PROA_BACKEND_FP64 = 12,
    PROA_BACKEND_BYTES = 13,
    PROA_BACKEND_BF16 = 14
} proa_backend_type;

typedef struct proa_backend_model proa_backend_model;       /* one loaded version of a model */
typedef struct proa_backend_instance proa_backend_instance; /* one copy of it that executes */
typedef struct proa_backend_request proa_backend_request;
typedef struct proa_backend_response proa_backend_response;

/* An input, row-major and dense. With max_batch_size the first dimension is the batch's. */
typedef struct proa_backend_tensor {
    const char *name;
    proa_backend_type type;
    int32_t rank;
    const int64_t *shape;
    const void *data; /* in host memory, of any alignment; NULL if bytes is 0 */
    size_t bytes;
} proa_backend_tensor;

/* Which of the tensors of a model's configuration. */
typedef enum proa_backend_io_kind {
    PROA_BACKEND_IO_INPUT,       /* inputs, in the order of config.pbtxt */
    PROA_BACKEND_IO_BATCH_INPUT, /* batch_input: Proa adds them to the first request of a batch */
    PROA_BACKEND_IO_CONTROL,     /* controls of sequence_batching: Proa adds them to each request */
    PROA_BACKEND_IO_STATE,       /* the same for inputs that are states */
    PROA_BACKEND_IO_OUTPUT,      /* outputs, in the order of config.pbtxt */
    PROA_BACKEND_IO_NEXT_STATE   /* outputs that are the next values of states; some are outputs too */
} proa_backend_io_kind;

/* A tensor of the configuration. It lives as long as the model; new members are appended. */
typedef struct proa_backend_io {
    const char *name;
    proa_backend_type type;
    int32_t rank;        /* -1: the configuration does not give it */
    const int64_t *dims; /* as the backend gets the tensor (after `reshape`), without the batch dimension; -1: any */
    bool optional, ragged;
} proa_backend_io;

typedef enum proa_backend_kind { /* of an instance group */
                                 PROA_BACKEND_KIND_CPU,
                                 PROA_BACKEND_KIND_GPU,
                                 PROA_BACKEND_KIND_MODEL /* the model chooses its devices */
} proa_backend_kind;

/* Device memory of a library, which Proa cannot read without its help. The struct lives as long as the program. */
typedef struct proa_backend_memory proa_backend_memory;
struct proa_backend_memory {
    size_t bytes;     /* sizeof(proa_backend_memory), as the library was built */
    const char *name; /* "cuda:0", for messages */
    int32_t device;   /* the CUDA device */
    /* Copies to host memory; returns when the bytes have arrived. Any thread. */
    proa_status (*read)(const proa_backend_memory *memory, void *to, const void *from, size_t bytes,
                        proa_err *err);
};

typedef enum proa_backend_parameter_kind {
    PROA_BACKEND_PARAMETER_BOOL,
    PROA_BACKEND_PARAMETER_INT,
    PROA_BACKEND_PARAMETER_DOUBLE,
    PROA_BACKEND_PARAMETER_TEXT
} proa_backend_parameter_kind;

/* A parameter of a request or a response. */
typedef struct proa_backend_parameter {
    const char *name;
    proa_backend_parameter_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *text;
    } value;
} proa_backend_parameter;

typedef enum proa_backend_log_level {
    PROA_BACKEND_LOG_ERROR,
    PROA_BACKEND_LOG_WARNING,
    PROA_BACKEND_LOG_INFO,
    PROA_BACKEND_LOG_VERBOSE
} proa_backend_log_level;

/* What Proa offers to backends. It lives as long as the program. */
typedef struct proa_backend_host {
    size_t bytes;     /* of this table, as Proa was built */
    uint32_t version; /* PROA_BACKEND_VERSION, as Proa was built */

    /* ---- errors and the log ---- */
    /* Sets err (which may be NULL) and returns status. The text is copied: one line, lower case, no full stop. */
    proa_status (*fail)(proa_err *err, proa_status status, const char *text);
    void (*log)(proa_backend_log_level level, const char *file, int line, const char *text);

    /* ---- a model ---- */
    const char *(*model_name)(const proa_backend_model *model);
    int64_t (*model_version)(const proa_backend_model *model);
    const char *(*model_path)(const proa_backend_model *model);         /* its folder in the repository */
    const char *(*model_version_path)(const proa_backend_model *model); /* PATH/1 */
    /* The complete configuration as JSON, as GET /v2/models/NAME/config answers. */
    const char *(*model_config)(const proa_backend_model *model);
    /* A parameter of config.pbtxt; NULL if it is absent or empty. */
    const char *(*model_parameter)(const proa_backend_model *model, const char *key);
    /* --backend-config NAME,KEY=VALUE of this backend; NULL if it was not given. */
    const char *(*setting)(const proa_backend_model *model, const char *key);

    /* ---- an instance ---- */
    const char *(*instance_name)(const proa_backend_instance *instance); /* "m_0_1" */
    int (*instance_device)(const proa_backend_instance *instance);       /* CUDA device; -1: CPU */

    /* ---- a request ---- */
    const char *(*request_id)(const proa_backend_request *request); /* "" if it has none */
    bool (*request_cancelled)(const proa_backend_request *request); /* it still gets its final response */
    int32_t (*request_inputs)(const proa_backend_request *request); /* how many it has */
    /* Fills *out with input `index`; false: there is none. */
    bool (*request_input)(const proa_backend_request *request, int32_t index, proa_backend_tensor *out);
    bool (*request_find_input)(const proa_backend_request *request, const char *name, proa_backend_tensor *out);
    /* Does the client want this output? A response may leave out the others. */
    bool (*request_wants)(const proa_backend_request *request, const char *output);
    /* Fills *out with parameter `index`, from 0; false: there is none. */
    bool (*request_parameter)(const proa_backend_request *request, int32_t index, proa_backend_parameter *out);

    /* ---- responses ---- */
    /* A response without outputs. It must be sent or freed. */
    proa_backend_response *(*response_new)(proa_backend_request *request);
    void (*response_free)(proa_backend_response *response);
    /* Adds an output and sets *data to its memory, which is not zeroed; NULL for an output of 0 bytes. `bytes` is the
     * size of a BYTES output; for other types it must be 0 or what type and shape give. INVALID for a wrong shape, type
     * or size; NO_MEMORY. */
    proa_status (*response_output)(proa_backend_response *response, const char *name, proa_backend_type type,
                                   const int64_t *shape, int32_t rank, size_t bytes, void **data, proa_err *err);
    proa_status (*response_parameter)(proa_backend_response *response,
                                      const proa_backend_parameter *parameter, proa_err *err);
    /* Makes it an error response: its outputs are not sent. */
    void (*response_error)(proa_backend_response *response, proa_status status, const char *text);
    /* Sends a response and frees it. `final` ends the request, which must not be touched after; then response may be
     * NULL, for a decoupled model that ends without another one. A model that is not decoupled sends one, final. */
    void (*response_send)(proa_backend_request *request, proa_backend_response *response, bool final);

    /* ---- appended members: present only if `bytes` includes them ---- */
    /* Tensor `index` of a kind, from 0; NULL: there is no more. */
    const proa_backend_io *(*model_io)(const proa_backend_model *model, proa_backend_io_kind kind, int32_t index);
    int64_t (*model_max_batch)(const proa_backend_model *model); /* max_batch_size; 0: no batch dimension */
    const char *(*model_file)(const proa_backend_model *model); /* default_model_filename; "" if it is not given */
    const char *(*model_platform)(const proa_backend_model *model);
    proa_backend_kind (*instance_kind)(const proa_backend_instance *instance);
    /* model_open: inputs that are in the memory of a device are not copied to the host. The backend then looks at
     * request_input_device of each input. Elements of BYTES are always in host memory. */
    void (*model_takes_device_inputs)(proa_backend_model *model);
    /* The CUDA device whose memory the input's data points to; -1: host memory. */
    int32_t (*request_input_device)(const proa_backend_request *request, int32_t index);
    /* As response_output, without a copy: the output is `data` of the backend, which it does not change any more.
     * release(arg) is called once, from any thread, when nobody reads it any more; also if the call fails. memory:
     * where the bytes are, complete when the response is sent; NULL: host memory. */
    proa_status (*response_output_of)(proa_backend_response *response, const char *name,
                                      proa_backend_type type, const int64_t *shape, int32_t rank,
                                      const void *data, size_t bytes, const proa_backend_memory *memory,
                                      void (*release)(void *arg), void *arg, proa_err *err);
    /* For the times of statistics, in execute: the inputs of these requests are ready and the model begins; the model
     * has ended and outputs are written. */
    void (*compute_begins)(proa_backend_request *const *requests, int count);
    void (*compute_ends)(proa_backend_request *const *requests, int count);
    /* For the metrics: the backend itself has copied a tensor between the host and a device. What Proa copies for it,
     * as an output in the memory of a device for a client, Proa counts. */
    void (*count_device_copy)(bool to_host, size_t bytes);
} proa_backend_host;

/* The functions of a backend. NULL is allowed except for execute. */
typedef struct proa_backend_table {
    size_t bytes;     /* sizeof(proa_backend_table), as the library was built */
    uint32_t version; /* PROA_BACKEND_VERSION, as the library was built */
    unsigned flags;   /* enum proa_backend_flags */
    /* Loads a version of a model. *state is the backend's and is passed to the functions below. Errors of the
     * configuration and of the files are reported here. */
    proa_status (*model_open)(void **state, proa_backend_model *model, proa_err *err);
    void (*model_close)(void *state); /* no instance is left; all requests have ended */
    proa_status (*instance_open)(void **state, void *model_state, const proa_backend_instance *instance,
                                 proa_err *err);
    void (*instance_close)(void *state);
    /* Each request gets its final response, now or later, from any thread. The requests of one call have the same model
     * and, unless inputs are ragged, inputs of the same shape but for the batch dimension. */
    void (*execute)(void *instance_state, proa_backend_request *const *requests, int count);
    /* Whether this version can answer. NULL: always. If not, the reason is set with host->fail. */
    bool (*ready)(void *model_state, proa_err *reason);
} proa_backend_table;

/* What the library exports as PROA_BACKEND_ENTRY. It is called once. If it returns NULL, the library cannot be used;
 * it may set the reason with host->fail. */
typedef const proa_backend_table *proa_backend_entry_fn(const proa_backend_host *host, proa_err *err);
#define PROA_BACKEND_ENTRY "proa_backend_entry"

#ifdef __cplusplus
}
#endif
#endif
