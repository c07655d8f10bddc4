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

#include "kernels/data_ops.h"
#include "kernels/device.h"
#include "serve/backend.h"

typedef struct proa_gpu proa_gpu;

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
/* A copy of host bytes, for kernels that follow; `from` may be reused at once. Not counted: for weights. */
PROA_MUST_CHECK proa_status proa_gpu_upload(proa_gpu_stream *s, proa_buffer **out, const void *from,
                                            size_t bytes, proa_err *err);
/* The bytes of a tensor on this GPU, for kernels that follow: its own if they are there, else a copy, which is counted
 * (proa_device_copies_add). *out holds them and is the caller's; *data is where they begin, aligned to an element. */
PROA_MUST_CHECK proa_status proa_gpu_input(proa_gpu_stream *s, const proa_tensor *t, proa_buffer **out,
                                           const void **data, proa_err *err);
/* Waits for all kernels. INTERNAL with the device's message if one has failed since the last call. */
PROA_MUST_CHECK proa_status proa_gpu_stream_wait(proa_gpu_stream *s, proa_err *err);
/* Adds an output whose bytes begin at `at` in a buffer, of which it takes a reference; wait first. */
proa_tensor *proa_gpu_output(proa_reply *reply, const char *name, proa_type type, const int64_t *shape,
                             int32_t rank, proa_buffer *buffer, size_t at);

/* For the server's option open_cuda (serve/server.h): the memory of a client's handle, whose bytes must be there. */
PROA_MUST_CHECK proa_status proa_gpu_open_handle(proa_buffer **out, int64_t device, proa_str handle,
                                                 uint64_t bytes, proa_err *err);

/* Has the model an instance on a GPU? */
bool proa_config_uses_gpu(const Inference__ModelConfig *config);

#endif
