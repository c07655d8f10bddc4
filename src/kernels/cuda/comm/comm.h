/* SPDX-License-Identifier: Apache-2.0
 * comm.h - collectives between GPUs of one process, over memory that they see of each other (peer access). */
#ifndef PROA_KERNELS_CUDA_COMM_COMM_H
#define PROA_KERNELS_CUDA_COMM_COMM_H

#include "kernels/cuda/runtime/cuda.h"

/* proa_device.open_comm: UNSUPPORTED names two GPUs that do not see each other's memory. */
proa_status gpu_open_comm(proa_comm **out, proa_device *const *devices, int32_t ranks, proa_err *err);

#endif
