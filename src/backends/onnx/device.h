/* SPDX-License-Identifier: Apache-2.0
 * device.h - tensors in the memory of a GPU as inputs and outputs of a run.
 * Owner:   a device belongs to a session; values that a run gave are the caller's.
 * Threads: any; a device is not changed after it was opened. */
#ifndef PROA_BACKENDS_ONNX_DEVICE_H
#define PROA_BACKENDS_ONNX_DEVICE_H

#include "backends/onnx/onnx.h"

struct proa_onnx_device {
    const proa_device_memory *memory; /* NULL: the session is on the CPU */
    OrtMemoryInfo *info;
    OrtAllocator *allocator; /* of the session, in that memory */
    /* Copies within the memory; returns when the bytes have arrived. */
    proa_status (*copy)(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                        proa_err *err);
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

/* For d: proa_onnx_device_close, also after a failure. UNAVAILABLE without CUDA's driver or that GPU. */
PROA_MUST_CHECK proa_status proa_onnx_device_open(proa_onnx_device *d, const proa_ort *ort,
                                                  const OrtSession *session, int gpu, proa_err *err);
void proa_onnx_device_close(proa_onnx_device *d, const proa_ort *ort);
/* Is the tensor in the memory of this device? d NULL: of no device. */
bool proa_onnx_device_holds(const proa_onnx_device *d, const proa_tensor *t);
/* A value of parts that are all in that memory: of one part itself, else of a copy within the device. */
PROA_MUST_CHECK proa_status proa_onnx_device_join(OrtValue **out, const proa_ort *ort,
                                                  const proa_onnx_device *d, const proa_tensor *const *parts,
                                                  int count, const int64_t *shape, int32_t rank,
                                                  int onnx_type, proa_err *err);
PROA_MUST_CHECK proa_status proa_onnx_device_run(const proa_ort *ort, OrtSession *session,
                                                 const OrtRunOptions *options, const proa_onnx_device *d,
                                                 const proa_onnx_run *run, proa_err *err);

#endif
