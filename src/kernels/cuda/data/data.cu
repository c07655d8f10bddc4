/* SPDX-License-Identifier: Apache-2.0
 * data.cu - the plug-in's table of data ops. */
#include "kernels/cuda/data/data.h"

static proa_data_ops table;

extern "C" __attribute__((visibility("default"))) const proa_data_ops *proa_cuda_data_ops(int version)
{
    if (version != PROA_CUDA_DATA_VERSION) return NULL;
    table.name = "cuda";
    gpu_fill_trees(&table);
    gpu_fill_elements(&table);
    gpu_fill_text(&table);
    gpu_fill_pool(&table);
    return &table;
}
