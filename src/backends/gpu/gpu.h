/* SPDX-License-Identifier: Apache-2.0
 * gpu.h - GPUs for backends that compute on tensors: memory for tensors, and streams of kernels. Private to
 * src/backends.
 * Owner:   a GPU's memory belongs to the program: it is opened with the first model that needs it and stays open,
 *          since its tensors may be held by anybody. A stream belongs to an instance.
 * Threads: memory may be taken and given back by any thread; a stream is used by one at a time.
 * Way in:  proa_gpu_stream_open; then proa_gpu_stream_begin, proa_gpu_input for each tensor, ops,
 *          proa_gpu_stream_wait, proa_gpu_output. */
#ifndef PROA_BACKENDS_GPU_GPU_H
#define PROA_BACKENDS_GPU_GPU_H

#include "backends/tensors/output_spec.h"
#include "kernels/data_ops.h"
#include "kernels/device.h"
#include "kernels/ipc.h"
#include "serve/backend.h"

typedef struct proa_gpu proa_gpu;
typedef struct proa_gpu_block proa_gpu_block; /* memory that buffers have, one after the other */

/* Kernels of one instance, one after the other. */
typedef struct proa_gpu_stream {
    proa_gpu *gpu;
    proa_device *device;
    const proa_data_ops *ops;
    proa_ctx ctx; /* for ops */
} proa_gpu_stream;

/* GPU `index`. UNSUPPORTED, with the reason, where there is no plug-in, no driver or no such GPU. */
PROA_MUST_CHECK proa_status proa_gpu_stream_open(proa_gpu_stream *out, int index, proa_err *err);
void proa_gpu_stream_close(proa_gpu_stream *s); /* zeroed is fine */
/* What buffers of this GPU point to: for memory that a library has taken there. */
const proa_device_memory *proa_gpu_memory(const proa_gpu_stream *s);

/* Before the first of the calls below that a thread makes for an execution: its kernels go to this GPU. */
void proa_gpu_stream_begin(proa_gpu_stream *s);
/* Memory of the stream's GPU, not zeroed, aligned to 256. NO_MEMORY. bytes 0 gives a buffer too. */
PROA_MUST_CHECK proa_status proa_gpu_buffer(proa_gpu_stream *s, proa_buffer **out, size_t bytes, proa_err *err);
/* The same for GPU `index`, also without a stream. */
PROA_MUST_CHECK proa_status proa_gpu_buffer_on(int64_t index, proa_buffer **out, size_t bytes, proa_err *err);
/* A copy of host bytes, for kernels that follow; `from` may be reused at once. Not counted: for weights. */
PROA_MUST_CHECK proa_status proa_gpu_upload(proa_gpu_stream *s, proa_buffer **out, const void *from,
                                            size_t bytes, proa_err *err);
/* The bytes of a tensor on this GPU, for kernels that follow: its own if they are there, else a copy, which is counted
 * (proa_device_copies_add). *out holds them and is the caller's; *data is where they begin, aligned to an element. */
PROA_MUST_CHECK proa_status proa_gpu_input(proa_gpu_stream *s, const proa_tensor *t, proa_buffer **out,
                                           const void **data, proa_err *err);
/* Waits for all kernels. INTERNAL with the device's message if one has failed since the last call. */
PROA_MUST_CHECK proa_status proa_gpu_stream_wait(proa_gpu_stream *s, proa_err *err);
/* Adds an output whose bytes begin at byte `at` of a buffer, of which it takes a reference. Call proa_gpu_stream_wait
 * before. */
proa_tensor *proa_gpu_output(proa_reply *reply, const proa_output_spec *spec, proa_buffer *buffer, size_t at);

/* Memory as another process opens it. Many buffers have the same memory one after the other; it stays open there. */
typedef struct proa_gpu_export {
    proa_gpu_block *block;
    uint64_t number; /* of the memory: unique among all GPUs */
    int32_t gpu;
    uint64_t offset; /* of the tensor in it */
    char handle[PROA_IPC_HANDLE_BYTES];
} proa_gpu_export;
/* Exports a buffer of proa_gpu_buffer. UNSUPPORTED where the GPU's memory cannot be shared. */
PROA_MUST_CHECK proa_status proa_gpu_export_buffer(proa_gpu_export *out, const proa_buffer *buffer,
                                                   proa_err *err);
/* Exports a tensor that is on a GPU and has bytes. *held keeps its memory as it is; drop it when the other process no
 * longer uses it. A tensor that is in other memory than proa_gpu_buffer gives, or, if `writable`, that others may read
 * too, is copied on its GPU first. */
PROA_MUST_CHECK proa_status proa_gpu_export_tensor(proa_gpu_export *out, proa_buffer **held,
                                                   const proa_tensor *t, bool writable, proa_err *err);
/* Another process has opened exported memory, or no longer has it open; in between it is not given back to the driver.
 * opened: while a buffer has the memory. */
void proa_gpu_block_opened(proa_gpu_block *b);
void proa_gpu_block_closed(proa_gpu_block *b);

/* For the server's option open_cuda (serve/server.h): the memory of a client's handle, whose bytes must be there. */
PROA_MUST_CHECK proa_status proa_gpu_open_handle(proa_buffer **out, int64_t device, proa_str handle,
                                                 uint64_t bytes, proa_err *err);

/* Has the model an instance on a GPU? */
bool proa_config_uses_gpu(const Inference__ModelConfig *config);

#endif
