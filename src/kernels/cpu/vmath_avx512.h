/* SPDX-License-Identifier: Apache-2.0
 * vmath_avx512.h - proa_exp_ps512, proa_tanh_ps512, proa_gelu_ps512, proa_gelu_tanh_ps512 and
 * proa_act_ps512(act, x) on 16 floats. Include it only from files that are compiled for AVX-512. */
#ifndef PROA_KERNELS_CPU_VMATH_AVX512_H
#define PROA_KERNELS_CPU_VMATH_AVX512_H

#include "kernels/ops.h"
#include <immintrin.h>

#define V                     __m512
#define VI                    __m512i
#define OP(name)              _mm512_##name
#define NAME(name)            name##512
#define TO_V(i)               _mm512_castsi512_ps(i)
#define ROUND(x)              _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define LESS_ELSE(a, b, x, y) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x)
#include "kernels/cpu/vmath_body.h"

#endif
