/* SPDX-License-Identifier: Apache-2.0
 * ipc.cu - memory between processes (kernels/ipc.h): its handles, and opened memory with its size by the driver. */
extern "C" {
#include "kernels/ipc.h"
}
#include <cuda.h>
#include <cuda_runtime.h>
#include <string.h>

typedef CUresult address_range_fn(CUdeviceptr *base, size_t *bytes, CUdeviceptr at);

/* Bytes from `memory` to the end of its allocation; -1: not known. */
static int64_t bytes_behind(void *memory)
{
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    cudaError_t status = cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000,
                                                          cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return -1;
    if (reinterpret_cast<address_range_fn *>(entry)(&base, &bytes, (CUdeviceptr)memory) != CUDA_SUCCESS)
        return -1;
    return (int64_t)(base + bytes - (CUdeviceptr)memory);
}

extern "C" __attribute__((visibility("default"))) proa_status proa_cuda_ipc_open(int gpu, const char *handle,
                                                                                 void **out, int64_t *bytes,
                                                                                 proa_err *err)
{
    cudaIpcMemHandle_t h;
    static_assert(sizeof h == PROA_IPC_HANDLE_BYTES, "the handle of the clients");
    memcpy(&h, handle, sizeof h);
    *out = NULL;
    cudaError_t status = cudaSetDevice(gpu);
    if (status == cudaSuccess) status = cudaIpcOpenMemHandle(out, h, cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess) {
        cudaGetLastError();
        return PROA_FAIL(err, INVALID, "failed to open CUDA IPC handle: %s", cudaGetErrorString(status));
    }
    *bytes = bytes_behind(*out);
    return PROA_OK;
}

extern "C" __attribute__((visibility("default"))) proa_status proa_cuda_ipc_export(int gpu, void *memory,
                                                                                   char *handle, proa_err *err)
{
    cudaIpcMemHandle_t h;
    cudaError_t status = cudaSetDevice(gpu);
    if (status == cudaSuccess) status = cudaIpcGetMemHandle(&h, memory);
    if (status != cudaSuccess) {
        cudaGetLastError();
        return PROA_FAIL(err, UNSUPPORTED,
                         "device 'cuda:%d': its memory cannot be shared with other processes: %s", gpu,
                         cudaGetErrorString(status));
    }
    memcpy(handle, &h, sizeof h);
    return PROA_OK;
}

extern "C" __attribute__((visibility("default"))) void proa_cuda_ipc_close(int gpu, void *memory)
{
    if (cudaSetDevice(gpu) == cudaSuccess) cudaIpcCloseMemHandle(memory);
}
