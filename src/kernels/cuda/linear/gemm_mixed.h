/* SPDX-License-Identifier: Apache-2.0
 * gemm_mixed.h - products of some dozens to some hundreds of rows with weights of 4 and 8 bits, on Hopper. */
#ifndef PROA_KERNELS_CUDA_LINEAR_GEMM_MIXED_H
#define PROA_KERNELS_CUDA_LINEAR_GEMM_MIXED_H

#include "kernels/cuda/linear/linear.h"

/* Whether it takes this product. x: before its columns come into a permuted weight's order. */
bool gpu_gemm_mixed_takes(const gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e);
/* linear with the weights as they are stored. False: it does not suit, and nothing was launched. */
bool gpu_gemm_mixed(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e);

#endif
