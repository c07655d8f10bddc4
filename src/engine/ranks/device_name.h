/* SPDX-License-Identifier: Apache-2.0
 * device_name.h - which device each rank has. Private to src/engine. Threads: any. */
#ifndef PROA_ENGINE_RANK_DEVICE_NAME_H
#define PROA_ENGINE_RANK_DEVICE_NAME_H

#include <stdint.h>

/* The name of the device of a rank, where rank 0 has `device`. */
const char *proa_rank_device_name(char out[32], const char *device, int32_t rank);
/* The same of this process of MPI: the GPUs of a host are given to its ranks in their order. A launcher may have left
 * this process one GPU only, which is then its own (CUDA_VISIBLE_DEVICES). */
const char *proa_rank_local_device(char out[32], const char *device);

#endif
