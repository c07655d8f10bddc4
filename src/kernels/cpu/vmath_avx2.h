/* SPDX-License-Identifier: Apache-2.0
 * vmath_avx2.h - proa_exp_ps256, proa_tanh_ps256, proa_gelu_ps256, proa_gelu_tanh_ps256 and
 * proa_act_ps256(act, x) on 8 floats. Include it only from files that are compiled for AVX2 or above. */
#ifndef PROA_KERNELS_CPU_VMATH_AVX2_H
#define PROA_KERNELS_CPU_VMATH_AVX2_H

#include "kernels/ops.h"
#include <immintrin.h>

#define V                     __m256
#define VI                    __m256i
#define OP(name)              _mm256_##name
#define NAME(name)            name##256
#define TO_V(i)               _mm256_castsi256_ps(i)
#define ROUND(x)              _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define LESS_ELSE(a, b, x, y) _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#include "kernels/cpu/vmath_body.h"

#endif
