/* SPDX-License-Identifier: Apache-2.0
 * device.c - tensors in the memory of a GPU: those of a request are bound where they are, or joined within the memory;
 * outputs of a run are bound to it. */
#include "backends/onnx/device.h"

#include "base/log.h"
#include <string.h>

proa_status proa_onnx_device_open(proa_onnx_device *d, const proa_ort *ort, int gpu, proa_err *err)
{
    proa_err why = {0};
    *d = (proa_onnx_device){.gpu = gpu};
    if (gpu < 0) return PROA_OK;
    if (proa_gpu_stream_open(&d->stream, gpu, &why) == PROA_OK) d->memory = proa_gpu_memory(&d->stream);
    else PROA_LOG(INFO, "tensors of ONNX models do not stay on GPU %d: %s", gpu, why.text);
    return proa_ort_check(
        ort, ort->CreateMemoryInfo("Cuda", ORT_ARENA_ALLOCATOR, gpu, ORT_MEMORY_DEFAULT, &d->info), err);
}

void proa_onnx_device_close(proa_onnx_device *d, const proa_ort *ort)
{
    if (d->memory) proa_gpu_stream_close(&d->stream);
    if (d->info) ort->ReleaseMemoryInfo(d->info);
    *d = (proa_onnx_device){.gpu = -1};
}

/* ---- inputs ---- */

bool proa_onnx_device_holds(const proa_onnx_device *d, const proa_tensor *t)
{
    return proa_tensor_is_on(t, d->memory);
}

/* One buffer of all parts, complete when this returns. */
static proa_status copy_parts(proa_buffer **out, proa_onnx_device *d, const proa_tensor *const *parts,
                              int count, proa_err *err)
{
    size_t bytes = 0, at = 0;
    proa_device *device = d->stream.device;
    for (int i = 0; i < count; i++) bytes += parts[i]->bytes;
    proa_gpu_stream_begin(&d->stream);
    PROA_TRY(proa_gpu_buffer(&d->stream, out, bytes, err));
    for (int i = 0; i < count; at += parts[i]->bytes, i++) {
        const proa_blocks whole = {(int64_t)parts[i]->bytes, {1, 1}, {0, 0}};
        if (parts[i]->bytes) device->copy(device, (*out)->data + at, parts[i]->data, &whole);
    }
    return proa_gpu_stream_wait(&d->stream, err);
}

proa_status proa_onnx_device_join(OrtValue **out, proa_buffer **held, const proa_ort *ort,
                                  proa_onnx_device *d, const proa_onnx_parts *parts, proa_err *err)
{
    const char *data = parts->list[0]->data;
    size_t bytes = parts->list[0]->bytes;
    if (parts->count > 1) {
        PROA_TRY(copy_parts(held, d, parts->list, parts->count, err));
        data = (*held)->data;
        bytes = (*held)->bytes;
    }
    return proa_ort_check(ort,
                          ort->CreateTensorWithDataAsOrtValue(d->info, (void *)(uintptr_t)data, bytes, parts->shape,
                                                              (size_t)parts->rank, parts->onnx_type, out),
                          err);
}

/* ---- a run ---- */

static proa_status bind_all(OrtIoBinding *binding, const proa_ort *ort, const proa_onnx_device *d,
                            const proa_onnx_run *run, proa_err *err)
{
    for (int i = 0; i < run->inputs_count; i++)
        PROA_TRY(proa_ort_check(ort, ort->BindInput(binding, run->input_names[i], run->inputs[i]), err));
    for (int i = 0; i < run->outputs_count; i++) {
        bool strings = run->tensors[i]->type == PROA_TYPE_BYTES;
        const OrtMemoryInfo *where = run->device_outputs && !strings ? d->info : ort->host;
        PROA_TRY(proa_ort_check(ort, ort->BindOutputToDevice(binding, run->output_names[i], where), err));
    }
    return PROA_OK;
}

/* The library gives outputs in the order of their binding, in an array of its allocator. */
static proa_status take_outputs(OrtIoBinding *binding, const proa_ort *ort, const proa_onnx_run *run,
                                proa_err *err)
{
    OrtValue **values = NULL;
    size_t count = 0;
    PROA_TRY(proa_ort_check(ort, ort->GetBoundOutputValues(binding, ort->allocator, &values, &count), err));
    bool fits = count == (size_t)run->outputs_count;
    for (size_t i = 0; i < count; i++) {
        if (fits) run->values[i] = values[i];
        else ort->ReleaseValue(values[i]);
    }
    if (values) PROA_TRY(proa_ort_check(ort, ort->AllocatorFree(ort->allocator, values), err));
    return fits ? PROA_OK
                : PROA_FAIL(err, INTERNAL, "onnx runtime gives %zu outputs, %d are bound", count,
                            run->outputs_count);
}

proa_status proa_onnx_device_run(const proa_ort *ort, OrtSession *session, const OrtRunOptions *options,
                                 const proa_onnx_device *d, const proa_onnx_run *run, proa_err *err)
{
    OrtIoBinding *binding = NULL;
    proa_status status;
    PROA_TRY(proa_ort_check(ort, ort->CreateIoBinding(session, &binding), err));
    PROA_TRY_OUT(bind_all(binding, ort, d, run, err));
    PROA_TRY_OUT(proa_ort_check(ort, ort->SynchronizeBoundInputs(binding), err));
    PROA_TRY_OUT(proa_ort_check(ort, ort->RunWithBinding(session, options, binding), err));
    PROA_TRY_OUT(proa_ort_check(ort, ort->SynchronizeBoundOutputs(binding), err));
    status = take_outputs(binding, ort, run, err);
out:
    ort->ReleaseIoBinding(binding);
    return status;
}
