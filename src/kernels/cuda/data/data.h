/* SPDX-License-Identifier: Apache-2.0
 * data.h - inside the plug-in: the data ops (kernels/data.def).
 * Owner:   the table is static, in data.cu. Threads: as cuda.h. */
#ifndef PROA_KERNELS_CUDA_DATA_DATA_H
#define PROA_KERNELS_CUDA_DATA_DATA_H

extern "C" {
#include "kernels/data_ops.h"
}
#include "kernels/cuda/runtime/cuda.h"

/* The files; each puts its entries. */
void gpu_fill_trees(proa_data_ops *ops);    /* trees.cu */
void gpu_fill_elements(proa_data_ops *ops); /* elements.cu */
void gpu_fill_text(proa_data_ops *ops);     /* text.cu */
void gpu_fill_pool(proa_data_ops *ops);     /* pool.cu */

#endif
