/* SPDX-License-Identifier: Apache-2.0
 * ipc.h - memory of a GPU between processes: one exports it as a handle (a cudaIpcMemHandle_t), others open that.
 * Owner:   what open gives is given back to close, in the same process; only then does the exporting process free the
 *          memory. Threads: any. */
#ifndef PROA_KERNELS_IPC_H
#define PROA_KERNELS_IPC_H

#include "kernels/device.h"

#define PROA_IPC_HANDLE_BYTES 64

/* Maps the memory that a handle names into this process: *out, of *bytes bytes. INVALID if it names none, or memory of
 * another GPU than the device's. */
PROA_MUST_CHECK proa_status proa_device_open_handle(const proa_device *d, const char *handle, void **out,
                                                    int64_t *bytes, proa_err *err);
void proa_device_close_handle(const proa_device *d, void *memory);
/* The handle of memory that d->alloc gave, for other processes: handle [PROA_IPC_HANDLE_BYTES]. The same memory has the
 * same handle each time, and no other memory ever has it. UNSUPPORTED if the GPU's memory cannot be shared. */
PROA_MUST_CHECK proa_status proa_device_export_handle(const proa_device *d, void *memory, char *handle,
                                                      proa_err *err);

/* What libproa_cuda.so exports for it. */
#define PROA_CUDA_IPC_OPEN   "proa_cuda_ipc_open"
#define PROA_CUDA_IPC_CLOSE  "proa_cuda_ipc_close"
#define PROA_CUDA_IPC_EXPORT "proa_cuda_ipc_export"
typedef proa_status proa_cuda_ipc_open_fn(int gpu, const char *handle, void **out, int64_t *bytes, proa_err *err);
typedef void proa_cuda_ipc_close_fn(int gpu, void *memory);
typedef proa_status proa_cuda_ipc_export_fn(int gpu, void *memory, char *handle, proa_err *err);
/* For the other files of the plug-in. */
proa_cuda_ipc_open_fn proa_cuda_ipc_open;
proa_cuda_ipc_close_fn proa_cuda_ipc_close;
proa_cuda_ipc_export_fn proa_cuda_ipc_export;

#endif
