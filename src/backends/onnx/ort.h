/* SPDX-License-Identifier: Apache-2.0
 * ort.h - the part of ONNX Runtime's C interface that is used, in declarations of our own, and the library in the
 * process.
 *
 * OrtGetApiBase()->GetApi(N) returns a table of functions to which a release only appends, so a function keeps its
 * place: PROA_ORT_LIST has the place, the name and the type of each that is called. Enumerations are ints on the ABI.
 *
 * Owner:   the library stays loaded and its environment stays open until the program ends.
 * Threads: all functions of the table may be called from any thread; a session runs several requests at once. */
#ifndef PROA_BACKENDS_ONNX_ORT_H
#define PROA_BACKENDS_ONNX_ORT_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct proa_server;

typedef struct OrtStatus OrtStatus; /* NULL: success; else release it */
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtThreadingOptions OrtThreadingOptions;
typedef struct OrtValue OrtValue;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtIoBinding OrtIoBinding;
typedef struct OrtCUDAProviderOptionsV2 OrtCUDAProviderOptionsV2;
typedef struct OrtTensorRTProviderOptionsV2 OrtTensorRTProviderOptionsV2;

typedef void proa_ort_log_fn(void *arg, int severity, const char *category, const char *id,
                             const char *location, const char *text);

#define PROA_ORT_VERSION 15 /* of the table: that of ONNX Runtime 1.15, which has all functions below */

enum { ORT_INVALID_ARGUMENT = 2, ORT_NO_SUCHFILE = 3, ORT_NOT_IMPLEMENTED = 9 }; /* OrtErrorCode */
enum { ORT_LOGGING_WARNING = 2, ORT_LOGGING_ERROR = 3 };                         /* OrtLoggingLevel */
enum { ORT_SEQUENTIAL, ORT_PARALLEL };                                           /* ExecutionMode */
enum { ORT_OPTIMIZE_NONE, ORT_OPTIMIZE_BASIC, ORT_OPTIMIZE_EXTENDED, ORT_OPTIMIZE_ALL = 99 };
enum { ORT_DEVICE_ALLOCATOR, ORT_ARENA_ALLOCATOR }; /* OrtAllocatorType */
enum { ORT_MEMORY_DEFAULT = 0 };                    /* OrtMemType */
enum {
    ORT_KIND_UNKNOWN,
    ORT_KIND_TENSOR,
    ORT_KIND_SEQUENCE,
    ORT_KIND_MAP,
    ORT_KIND_OPAQUE,
    ORT_KIND_SPARSE,
    ORT_KIND_OPTIONAL
}; /* ONNXType */

/* place in the table, name, what it returns, its arguments; out of order only by subject */
#define PROA_ORT_LIST(X)                                                                                       \
    X(1, GetErrorCode, int, (const OrtStatus *status))                                                         \
    X(2, GetErrorMessage, const char *, (const OrtStatus *status))                                             \
    X(93, ReleaseStatus, void, (OrtStatus * status))                                                           \
    X(4, CreateEnvWithCustomLogger, OrtStatus *,                                                               \
      (proa_ort_log_fn * log, void *arg, int severity, const char *id, OrtEnv **out))                          \
    X(151, CreateEnvWithCustomLoggerAndGlobalThreadPools, OrtStatus *,                                         \
      (proa_ort_log_fn * log, void *arg, int severity, const char *id, const OrtThreadingOptions *threads,     \
       OrtEnv **out))                                                                                          \
    X(121, CreateThreadingOptions, OrtStatus *, (OrtThreadingOptions * *out))                                  \
    X(122, ReleaseThreadingOptions, void, (OrtThreadingOptions * options))                                     \
    X(147, SetGlobalIntraOpNumThreads, OrtStatus *, (OrtThreadingOptions * options, int threads))              \
    X(148, SetGlobalInterOpNumThreads, OrtStatus *, (OrtThreadingOptions * options, int threads))              \
    X(7, CreateSession, OrtStatus *,                                                                           \
      (const OrtEnv *env, const char *path, const OrtSessionOptions *options, OrtSession **out))               \
    X(95, ReleaseSession, void, (OrtSession * session))                                                        \
    X(9, Run, OrtStatus *,                                                                                     \
      (OrtSession * session, const OrtRunOptions *options, const char *const *input_names,                     \
       const OrtValue *const *inputs, size_t inputs_count, const char *const *output_names,                    \
       size_t outputs_count, OrtValue **outputs))                                                              \
    X(10, CreateSessionOptions, OrtStatus *, (OrtSessionOptions * *out))                                       \
    X(100, ReleaseSessionOptions, void, (OrtSessionOptions * options))                                         \
    X(13, SetSessionExecutionMode, OrtStatus *, (OrtSessionOptions * options, int mode))                       \
    X(16, EnableMemPattern, OrtStatus *, (OrtSessionOptions * options))                                        \
    X(17, DisableMemPattern, OrtStatus *, (OrtSessionOptions * options))                                       \
    X(18, EnableCpuMemArena, OrtStatus *, (OrtSessionOptions * options))                                       \
    X(19, DisableCpuMemArena, OrtStatus *, (OrtSessionOptions * options))                                      \
    X(23, SetSessionGraphOptimizationLevel, OrtStatus *, (OrtSessionOptions * options, int level))             \
    X(24, SetIntraOpNumThreads, OrtStatus *, (OrtSessionOptions * options, int threads))                       \
    X(25, SetInterOpNumThreads, OrtStatus *, (OrtSessionOptions * options, int threads))                       \
    X(120, DisablePerSessionThreads, OrtStatus *, (OrtSessionOptions * options))                               \
    X(130, AddSessionConfigEntry, OrtStatus *,                                                                 \
      (OrtSessionOptions * options, const char *key, const char *value))                                       \
    X(228, RegisterCustomOpsLibrary_V2, OrtStatus *, (OrtSessionOptions * options, const char *path))          \
    X(216, SessionOptionsAppendExecutionProvider, OrtStatus *,                                                 \
      (OrtSessionOptions * options, const char *name, const char *const *keys, const char *const *values,      \
       size_t count))                                                                                          \
    X(205, CreateCUDAProviderOptions, OrtStatus *, (OrtCUDAProviderOptionsV2 * *out))                          \
    X(206, UpdateCUDAProviderOptions, OrtStatus *,                                                             \
      (OrtCUDAProviderOptionsV2 * cuda, const char *const *keys, const char *const *values, size_t count))     \
    X(208, ReleaseCUDAProviderOptions, void, (OrtCUDAProviderOptionsV2 * cuda))                                \
    X(204, SessionOptionsAppendExecutionProvider_CUDA_V2, OrtStatus *,                                         \
      (OrtSessionOptions * options, const OrtCUDAProviderOptionsV2 *cuda))                                     \
    X(171, CreateTensorRTProviderOptions, OrtStatus *, (OrtTensorRTProviderOptionsV2 * *out))                  \
    X(172, UpdateTensorRTProviderOptions, OrtStatus *,                                                         \
      (OrtTensorRTProviderOptionsV2 * trt, const char *const *keys, const char *const *values, size_t count))  \
    X(174, ReleaseTensorRTProviderOptions, void, (OrtTensorRTProviderOptionsV2 * trt))                         \
    X(170, SessionOptionsAppendExecutionProvider_TensorRT_V2, OrtStatus *,                                     \
      (OrtSessionOptions * options, const OrtTensorRTProviderOptionsV2 *trt))                                  \
    X(30, SessionGetInputCount, OrtStatus *, (const OrtSession *session, size_t *out))                         \
    X(31, SessionGetOutputCount, OrtStatus *, (const OrtSession *session, size_t *out))                        \
    X(32, SessionGetOverridableInitializerCount, OrtStatus *, (const OrtSession *session, size_t *out))        \
    X(33, SessionGetInputTypeInfo, OrtStatus *, (const OrtSession *session, size_t index, OrtTypeInfo **out))  \
    X(34, SessionGetOutputTypeInfo, OrtStatus *, (const OrtSession *session, size_t index, OrtTypeInfo **out)) \
    X(35, SessionGetOverridableInitializerTypeInfo, OrtStatus *,                                               \
      (const OrtSession *session, size_t index, OrtTypeInfo **out))                                            \
    X(36, SessionGetInputName, OrtStatus *,                                                                    \
      (const OrtSession *session, size_t index, OrtAllocator *allocator, char **out))                          \
    X(37, SessionGetOutputName, OrtStatus *,                                                                   \
      (const OrtSession *session, size_t index, OrtAllocator *allocator, char **out))                          \
    X(38, SessionGetOverridableInitializerName, OrtStatus *,                                                   \
      (const OrtSession *session, size_t index, OrtAllocator *allocator, char **out))                          \
    X(39, CreateRunOptions, OrtStatus *, (OrtRunOptions * *out))                                               \
    X(97, ReleaseRunOptions, void, (OrtRunOptions * options))                                                  \
    X(165, AddRunConfigEntry, OrtStatus *, (OrtRunOptions * options, const char *key, const char *value))      \
    X(46, RunOptionsSetTerminate, OrtStatus *, (OrtRunOptions * options))                                      \
    X(47, RunOptionsUnsetTerminate, OrtStatus *, (OrtRunOptions * options))                                    \
    X(48, CreateTensorAsOrtValue, OrtStatus *,                                                                 \
      (OrtAllocator * allocator, const int64_t *shape, size_t rank, int type, OrtValue **out))                 \
    X(49, CreateTensorWithDataAsOrtValue, OrtStatus *,                                                         \
      (const OrtMemoryInfo *memory, void *data, size_t bytes, const int64_t *shape, size_t rank, int type,     \
       OrtValue **out))                                                                                        \
    X(96, ReleaseValue, void, (OrtValue * value))                                                              \
    X(51, GetTensorMutableData, OrtStatus *, (OrtValue * value, void **out))                                   \
    X(53, GetStringTensorDataLength, OrtStatus *, (const OrtValue *value, size_t *bytes))                      \
    X(54, GetStringTensorContent, OrtStatus *,                                                                 \
      (const OrtValue *value, void *text, size_t bytes, size_t *offsets, size_t offsets_count))                \
    X(252, GetResizedStringTensorElementBuffer, OrtStatus *,                                                   \
      (OrtValue * value, size_t index, size_t bytes, char **out))                                              \
    X(67, GetValueType, OrtStatus *, (const OrtValue *value, int *kind))                                       \
    X(65, GetTensorTypeAndShape, OrtStatus *, (const OrtValue *value, OrtTensorTypeAndShapeInfo **out))        \
    X(98, ReleaseTypeInfo, void, (OrtTypeInfo * info))                                                         \
    X(55, CastTypeInfoToTensorInfo, OrtStatus *,                                                               \
      (const OrtTypeInfo *info, const OrtTensorTypeAndShapeInfo **out))                                        \
    X(56, GetOnnxTypeFromTypeInfo, OrtStatus *, (const OrtTypeInfo *info, int *kind))                          \
    X(99, ReleaseTensorTypeAndShapeInfo, void, (OrtTensorTypeAndShapeInfo * info))                             \
    X(60, GetTensorElementType, OrtStatus *, (const OrtTensorTypeAndShapeInfo *info, int *type))               \
    X(61, GetDimensionsCount, OrtStatus *, (const OrtTensorTypeAndShapeInfo *info, size_t *rank))              \
    X(62, GetDimensions, OrtStatus *, (const OrtTensorTypeAndShapeInfo *info, int64_t *shape, size_t rank))    \
    X(69, CreateCpuMemoryInfo, OrtStatus *, (int allocator_type, int memory_type, OrtMemoryInfo **out))        \
    X(68, CreateMemoryInfo, OrtStatus *,                                                                       \
      (const char *name, int allocator_type, int device, int memory_type, OrtMemoryInfo **out))                \
    X(94, ReleaseMemoryInfo, void, (OrtMemoryInfo * info))                                                     \
    X(134, CreateIoBinding, OrtStatus *, (OrtSession * session, OrtIoBinding * *out))                          \
    X(135, ReleaseIoBinding, void, (OrtIoBinding * binding))                                                   \
    X(136, BindInput, OrtStatus *, (OrtIoBinding * binding, const char *name, const OrtValue *value))          \
    X(138, BindOutputToDevice, OrtStatus *,                                                                    \
      (OrtIoBinding * binding, const char *name, const OrtMemoryInfo *info))                                   \
    X(133, RunWithBinding, OrtStatus *,                                                                        \
      (OrtSession * session, const OrtRunOptions *options, const OrtIoBinding *binding))                       \
    X(140, GetBoundOutputValues, OrtStatus *,                                                                  \
      (const OrtIoBinding *binding, OrtAllocator *allocator, OrtValue ***out, size_t *count))                  \
    X(202, SynchronizeBoundInputs, OrtStatus *, (OrtIoBinding * binding))                                      \
    X(203, SynchronizeBoundOutputs, OrtStatus *, (OrtIoBinding * binding))                                     \
    X(78, GetAllocatorWithDefaultOptions, OrtStatus *, (OrtAllocator * *out))                                  \
    X(76, AllocatorFree, OrtStatus *, (OrtAllocator * allocator, void *data))

typedef struct proa_ort {
#define PROA_ORT_MEMBER(place, name, ret, args) ret(*name) args;
    PROA_ORT_LIST(PROA_ORT_MEMBER)
#undef PROA_ORT_MEMBER
    OrtEnv *env;
    OrtAllocator *allocator; /* of the CPU */
    OrtMemoryInfo *host;
    const char *version; /* "1.20.1" */
    bool global_threads; /* all sessions share one thread pool */
} proa_ort;

/* The library, loaded and with an environment at the first call. Settings of the backend that it reads: library,
 * enable-global-threadpool, intra_op_thread_count, inter_op_thread_count. Any thread. UNAVAILABLE if there is none; the
 * next call tries again. */
PROA_MUST_CHECK proa_status proa_ort_open(const proa_ort **out, const struct proa_server *server, proa_err *err);
/* Turns a status into an error, "onnx runtime error CODE: TEXT", and releases it. */
PROA_MUST_CHECK proa_status proa_ort_check(const proa_ort *ort, OrtStatus *status, proa_err *err);

#endif
