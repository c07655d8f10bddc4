/* SPDX-License-Identifier: Apache-2.0
 * linear_width512.h - the width that linear_tile.h needs, for the three AVX-512 levels: tiles of 12 rows by 2
 * vectors of 16 (24 sums, 2 weights, 1 word of x: 27 of 32 registers). */
#include <immintrin.h>

#define V               __m512
#define VI              __m512i
#define OP(name)        _mm512_##name
#define AND_INT(a, b)   _mm512_and_si512(a, b)
#define TO_V(i)         _mm512_castsi512_ps(i)
#define TO_I(v)         _mm512_castps_si512(v)
#define LANES           16
#define HALVES          1
#define ROWS_MAX        12
#define PREFETCH_FEW    2048 /* bytes ahead: README.md has the ladder */
#define PREFETCH_TALL   4096
#define F16(p)          _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))

#define GROUP_ROWS      6
#define PREFETCH_GROUPS 2048
#define GROUPS_CASES(format)                                                                                 \
    GROUPS_CASE(format, 1);                                                                                  \
    GROUPS_CASE(format, 2);                                                                                  \
    GROUPS_CASE(format, 3);                                                                                  \
    GROUPS_CASE(format, 4);                                                                                  \
    GROUPS_CASE(format, 5);                                                                                  \
    GROUPS_CASE(format, 6)

#define SKINNY_CASES(format)                                                                                 \
    SKINNY_CASE(format, 2);                                                                                  \
    SKINNY_CASE(format, 3);                                                                                  \
    SKINNY_CASE(format, 4);                                                                                  \
    SKINNY_CASE(format, 5);                                                                                  \
    SKINNY_CASE(format, 6)
#define TALL_CASES(format)                                                                                   \
    TALL_CASE(format, 7);                                                                                    \
    TALL_CASE(format, 8);                                                                                    \
    TALL_CASE(format, 9);                                                                                    \
    TALL_CASE(format, 10);                                                                                   \
    TALL_CASE(format, 11);                                                                                   \
    TALL_CASE(format, 12)
