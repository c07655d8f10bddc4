/* SPDX-License-Identifier: Apache-2.0
 * onnx.h - what the files of the backend `onnxruntime` share.
 * Owner:   sessions and values of ONNX Runtime belong to who made them; names and shapes are in the arena given.
 * Threads: those of the backend's functions (serve/backend.h). */
#ifndef PROA_BACKENDS_ONNX_ONNX_H
#define PROA_BACKENDS_ONNX_ONNX_H

#include "backends/onnx/ort.h"
#include "base/limits.h"
#include "serve/backend.h"

/* An input or output as the model declares it. */
typedef struct proa_onnx_tensor {
    const char *name;
    proa_type type;                    /* INVALID: requests cannot carry it, see unfit */
    int onnx_type;                     /* ONNXTensorElementDataType */
    int32_t rank;                      /* 0: a scalar, or the model leaves the rank open */
    int64_t dims[PROA_SERVE_RANK_MAX]; /* -1: open */
    const char *unfit;                 /* why requests cannot carry it, "is a sequence"; NULL: they can */
    bool initializer;                  /* of inputs: has a value of its own, which a request may replace */
} proa_onnx_tensor;

typedef struct proa_onnx_io {
    proa_onnx_tensor *inputs, *outputs;
    int inputs_count, outputs_count; /* inputs: those without a value first */
    int required;                    /* inputs without a value */
} proa_onnx_io;

typedef struct proa_onnx_device proa_onnx_device; /* device.h */

/* ---- settings.c: numbers and truth values of --backend-config, and of `parameters` in config.pbtxt ---- */

/* The value stays if the key is absent; INVALID if it is no number in [0, max], or neither 0/1 nor false/true. */
proa_status proa_onnx_setting_number(int64_t *value, const struct proa_server *server, const char *key,
                                     int64_t max, proa_err *err);
proa_status proa_onnx_setting_true(bool *value, const struct proa_server *server, const char *key, proa_err *err);
proa_status proa_onnx_parameter_number(int64_t *value, const Inference__ModelConfig *c, const char *key,
                                       int64_t max, proa_err *err);
/* *given: is the parameter there? */
proa_status proa_onnx_parameter_true(bool *given, bool *value, const Inference__ModelConfig *c,
                                     const char *key, proa_err *err);

/* ---- options.c: settings, `parameters` and `optimization` as options of ONNX Runtime ---- */

/* Options of a session of this configuration on a CUDA device, or the CPU (-1); for *out: ReleaseSessionOptions.
 * model: NULL while it is being completed. folder: of the version, where relative paths begin. */
PROA_MUST_CHECK proa_status proa_onnx_session_options(OrtSessionOptions **out, const proa_ort *ort,
                                                      const Inference__ModelConfig *config,
                                                      const proa_served_model *model, const char *folder,
                                                      int device, proa_err *err);
/* Options of the runs of an instance; for *out: ReleaseRunOptions. */
PROA_MUST_CHECK proa_status proa_onnx_run_options(OrtRunOptions **out, const proa_ort *ort,
                                                  const Inference__ModelConfig *config, proa_err *err);

/* ---- file.c ---- */

/* The model's file below a version's folder in path[PROA_PATH_MAX]: default_model_filename, which may be a folder with
 * model.onnx. Its external data must be inside that file's folder, unless `external`. */
PROA_MUST_CHECK proa_status proa_onnx_file(char *path, const Inference__ModelConfig *config,
                                           const char *version_path, bool external, proa_err *err);
/* The external data that a serialised model names: INVALID for an absolute path or one with "..", CORRUPT if the bytes
 * are not a protobuf message. */
PROA_MUST_CHECK proa_status proa_onnx_check_external(const unsigned char *bytes, size_t count, proa_err *err);

/* ---- io.c: inputs and outputs of a session ---- */

PROA_MUST_CHECK proa_status proa_onnx_read_io(proa_onnx_io *out, const proa_ort *ort,
                                              const OrtSession *session, proa_arena *arena, proa_err *err);
proa_onnx_tensor *proa_onnx_find(proa_onnx_tensor *tensors, int count, const char *name); /* NULL: none */

/* ---- session.c ---- */

/* Reads the inputs and outputs of a model whose configuration is being completed. */
PROA_MUST_CHECK proa_status proa_onnx_look(proa_onnx_io *io, const proa_ort *ort,
                                           const Inference__ModelConfig *config, const char *version_path,
                                           proa_arena *arena, proa_err *err);
/* A session of a loading model on a device (-1: the CPU); for *out: ReleaseSession. */
PROA_MUST_CHECK proa_status proa_onnx_session_open(OrtSession **out, const proa_ort *ort,
                                                   const proa_served_model *model, int device, proa_err *err);

/* ---- signature.c: inputs and outputs of a configuration ---- */

/* The table's `complete`: max_batch_size, inputs, outputs and dynamic_batching as Triton's backend sets them. */
PROA_MUST_CHECK proa_status proa_onnx_complete(Inference__ModelConfig *config, const char *version_path,
                                               proa_arena *arena, proa_err *err);
/* A complete configuration against the model. */
PROA_MUST_CHECK proa_status proa_onnx_check(const Inference__ModelConfig *config, const proa_onnx_io *io,
                                            proa_err *err);

/* ---- values.c: tensors of requests and replies as values of ONNX Runtime ---- */

/* One input of the requests of a batch. An input that only the first request has is the same for all. */
typedef struct proa_onnx_batch {
    const proa_onnx_tensor *as;  /* the model's input */
    bool ragged;                 /* the elements of all requests make one dimension */
    proa_infer *const *requests; /* [count] */
    int count;
} proa_onnx_batch;
/* Joins the tensors of a batch in the order of its requests along the first dimension; for *out: ReleaseValue. The
 * value may refer to the requests' bytes. device: the instance's; bytes in its memory stay there, others in the memory
 * of a device are copied to the host first. *held: to be dropped after the run, may be NULL. */
PROA_MUST_CHECK proa_status proa_onnx_join(OrtValue **out, proa_buffer **held, const proa_ort *ort,
                                           proa_onnx_device *device, const proa_onnx_batch *batch,
                                           proa_err *err);
/* A value that a run gave for the output `as`, in host memory (memory NULL) or a device's; release *out. The value no
 * longer belongs to the caller, also on failure. */
PROA_MUST_CHECK proa_status proa_onnx_tensor_of(proa_tensor *out, const proa_ort *ort,
                                                const proa_device_memory *memory, const proa_onnx_tensor *as,
                                                OrtValue *value, proa_err *err);

#endif
