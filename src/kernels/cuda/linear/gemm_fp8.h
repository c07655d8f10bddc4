/* SPDX-License-Identifier: Apache-2.0
 * gemm_fp8.h - products of e4m3 weights that have more rows behind them (quant.cu). */
#ifndef PROA_KERNELS_CUDA_LINEAR_GEMM_FP8_H
#define PROA_KERNELS_CUDA_LINEAR_GEMM_FP8_H

#include "kernels/cuda/linear/linear.h"

/* y = x w^T with both as e4m3. w has the format FP8; scales: f32 [N], in place of those behind w. Returns false, and
 * launches nothing, if cuBLASLt has no such product. */
bool gpu_fp8_gemm(gpu *g, proa_view y, proa_view x, const proa_weight *w, const void *scales);

#endif
