/* SPDX-License-Identifier: Apache-2.0
 * devices.h - memory of GPUs that a worker process uses: tensors that the server exports to it, and memory that the
 * server
 *             leases to it for its outputs (CUDA IPC).
 * Owner:   one proa_devices per process; it keeps exported memory until the process has closed it.
 * Threads: any; a lock inside. */
#ifndef PROA_BACKENDS_PROCESS_DEVICES_H
#define PROA_BACKENDS_PROCESS_DEVICES_H

#include "backends/gpu/gpu.h"
#include "process/channel.h"
#include "serve/tensor.h"

typedef struct proa_devices proa_devices;

/* The tensors of a payload that are on a GPU: where the process finds them, and what keeps them alive until then. */
typedef struct proa_exports {
    proa_channel_device *places; /* [count] */
    proa_buffer **held; /* [count]; NULL: tensor i is on the host, or the payload has taken the reference */
    uint64_t *leases;   /* [count] in a process: the numbers of its leases; 0: tensor i is on the host */
} proa_exports;

proa_devices *proa_devices_new(void);
void proa_devices_free(proa_devices *d);
/* The process has ended, so it has no memory open and no leases. */
void proa_devices_clear(proa_devices *d);
/* Exports the tensors that are on a GPU. *e is zeroed if none is; release it with proa_exports_release. writable: the
 * process may write the tensors, so one that others read too is copied on its GPU first. */
PROA_MUST_CHECK proa_status proa_devices_export(proa_devices *d, proa_exports *e, const proa_tensor *tensors,
                                                int count, bool writable, proa_err *err);
/* Frees the arrays, and drops the references that no payload has taken. */
void proa_exports_release(proa_devices *d, proa_exports *e, int count);
/* The process has closed the memory with that number, which it had found in `seen` places. */
void proa_devices_closed(proa_devices *d, uint64_t memory, int64_t seen);
/* Leases `bytes` bytes on GPU `gpu` to the process for one of its outputs: t, and *number of the lease. */
PROA_MUST_CHECK proa_status proa_devices_lease(proa_devices *d, proa_tensor *t, uint64_t *number, int64_t gpu,
                                               uint64_t bytes, proa_err *err);
/* Ends the lease of that number and gives its memory, of so many bytes or more, to the caller; NULL: there is none. */
proa_buffer *proa_devices_take_lease(proa_devices *d, uint64_t number, uint64_t bytes);

void proa_devices_return_lease(proa_devices *d, uint64_t number); /* it will not be used */

#endif
