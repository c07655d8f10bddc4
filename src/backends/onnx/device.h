/* SPDX-License-Identifier: Apache-2.0
 * device.h - tensors in the memory of a GPU as inputs and outputs of a run.
 * Owner:   a device belongs to an instance; values that a run gave are the caller's.
 * Threads: used by one at a time. */
#ifndef PROA_BACKENDS_ONNX_DEVICE_H
#define PROA_BACKENDS_ONNX_DEVICE_H

#include "backends/gpu/gpu.h"
#include "backends/onnx/onnx.h"

struct proa_onnx_device {
    int gpu;                          /* -1: the instance is on the CPU */
    const proa_device_memory *memory; /* NULL: tensors cannot stay on the GPU, since Proa's plug-in is not there */
    proa_gpu_stream stream;           /* for copies within that memory */
    OrtMemoryInfo *info;
};

/* Inputs and outputs of one run. */
typedef struct proa_onnx_run {
    const char *const *input_names;
    OrtValue *const *inputs;
    int inputs_count;
    const char *const *output_names;
    const proa_onnx_tensor *const *tensors; /* of the outputs */
    OrtValue **values;                      /* set on success */
    int outputs_count;
    bool device_outputs; /* outputs stay in the memory of the device, but for strings */
} proa_onnx_run;

/* gpu -1: no device, which holds no tensor. Without Proa's plug-in for that GPU tensors go through the host; the log
 * says why. For d: proa_onnx_device_close, also after a failure. */
PROA_MUST_CHECK proa_status proa_onnx_device_open(proa_onnx_device *d, const proa_ort *ort, int gpu,
                                                  proa_err *err);
void proa_onnx_device_close(proa_onnx_device *d, const proa_ort *ort);
/* Is the tensor in the memory of this device? */
bool proa_onnx_device_holds(const proa_onnx_device *d, const proa_tensor *t);
/* Tensors that become one value, one after the other, and its shape. */
typedef struct proa_onnx_parts {
    const proa_tensor *list[PROA_BATCH_REQUESTS_MAX]; /* [count] */
    int count;
    int64_t shape[PROA_SERVE_RANK_MAX];
    int32_t rank;
    int onnx_type;
} proa_onnx_parts;
/* Makes a value of parts that are all in the memory of the device: of one part itself, else of a copy within the
 * device, *held, whose reference is the caller's until the run has ended. */
PROA_MUST_CHECK proa_status proa_onnx_device_join(OrtValue **out, proa_buffer **held, const proa_ort *ort,
                                                  proa_onnx_device *d, const proa_onnx_parts *parts,
                                                  proa_err *err);
PROA_MUST_CHECK proa_status proa_onnx_device_run(const proa_ort *ort, OrtSession *session,
                                                 const OrtRunOptions *options, const proa_onnx_device *d,
                                                 const proa_onnx_run *run, proa_err *err);

#endif
