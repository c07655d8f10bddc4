/* SPDX-License-Identifier: Apache-2.0
 * tuned.h - what was timed and is kept beside the products (kernels/tune.h), for other parts of the plug-in. */
#ifndef PROA_KERNELS_CUDA_LINEAR_TUNED_H
#define PROA_KERNELS_CUDA_LINEAR_TUNED_H

#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "kernels/tune.h"
}

/* NULL: it was not timed, or nothing that was timed is used (PROA_TUNE=off). */
const proa_tune_entry *gpu_tune_known(gpu *g, const int64_t key[PROA_TUNE_KEYS]);
void gpu_tune_keep(gpu *g, const proa_tune_entry *entry);
bool gpu_tune_is_all(const gpu *g); /* `proa tune` */

#endif
