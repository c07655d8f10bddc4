/* SPDX-License-Identifier: Apache-2.0
 * ipc.h - memory of a GPU that another process has exported (a cudaIpcMemHandle_t).
 * Owner:   what open gives is given back to close, in the same process. Threads: any. */
#ifndef PROA_KERNELS_IPC_H
#define PROA_KERNELS_IPC_H

#include "kernels/device.h"

#define PROA_IPC_HANDLE_BYTES 64

/* Maps the memory that a handle names into this process: *out, of *bytes bytes. INVALID if it names none, or memory of
 * another GPU than the device's. */
PROA_MUST_CHECK proa_status proa_device_open_handle(const proa_device *d, const char *handle, void **out,
                                                    int64_t *bytes, proa_err *err);
void proa_device_close_handle(const proa_device *d, void *memory);

/* What libproa_cuda.so exports for it. */
#define PROA_CUDA_IPC_OPEN  "proa_cuda_ipc_open"
#define PROA_CUDA_IPC_CLOSE "proa_cuda_ipc_close"
typedef proa_status proa_cuda_ipc_open_fn(int gpu, const char *handle, void **out, int64_t *bytes, proa_err *err);
typedef void proa_cuda_ipc_close_fn(int gpu, void *memory);

#endif
