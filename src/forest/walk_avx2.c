/* SPDX-License-Identifier: Apache-2.0
 * walk_avx2.c - the loops from rows to leaves for AVX2, 8 rows at a time. */
#include "forest/walk.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* 8 rows or trees in a register. Loops work on 4 registers, which hides the latency of the gathers. */
#define LANES  8
#define UNROLL 4

typedef struct shape {
    __m256i feature_mask, flip;
    __m128i feature_bits;
} shape;

static PROA_ALWAYS_INLINE shape shape_of(int32_t feature_bits)
{
    return (shape){_mm256_set1_epi32((int)((1u << feature_bits) - 1)), _mm256_set1_epi32((int)PROA_WALK_FLIP),
                   _mm_cvtsi32_si128(feature_bits)};
}

/* From 8 nodes, which are counted from `nodes`, to their children, which are counted from each tree's root. */
static PROA_ALWAYS_INLINE __m256i descend_nodes(const shape *s, const proa_walk_node *nodes, __m256i node,
                                                const float *x, __m256i offset)
{
    const long long *words = (const void *)nodes;
    __m256 low = _mm256_castsi256_ps(_mm256_i32gather_epi64(words, _mm256_castsi256_si128(node), 8));
    __m256 high = _mm256_castsi256_ps(_mm256_i32gather_epi64(words, _mm256_extracti128_si256(node, 1), 8));
    __m256i cut = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0x88)), 0xd8);
    __m256i link = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd)), 0xd8);
    __m256i at = _mm256_add_epi32(offset, _mm256_and_si256(link, s->feature_mask));
    __m256i value = _mm256_castps_si256(_mm256_i32gather_ps(x, at, 4));
    value = _mm256_xor_si256(value, _mm256_and_si256(link, s->flip));
    __m256 yes = _mm256_cmp_ps(_mm256_castsi256_ps(value), _mm256_castsi256_ps(cut), _CMP_LE_OQ);
    __m256i child = _mm256_srl_epi32(_mm256_andnot_si256(s->flip, link), s->feature_bits);
    return _mm256_sub_epi32(child, _mm256_castps_si256(yes)); /* yes is -1 */
}

static PROA_ALWAYS_INLINE void walk_some(const proa_walk_node *nodes, const shape *s, const int32_t *roots,
                                         const int32_t *offsets, int32_t depth, const float *x, int32_t *leaf)
{
    __m256i at[UNROLL], root[UNROLL], offset[UNROLL];
    PROA_UNROLL
    for (int g = 0; g < UNROLL; g++) {
        root[g] = roots ? _mm256_loadu_si256((const void *)(roots + g * LANES)) : _mm256_setzero_si256();
        offset[g] = offsets ? _mm256_loadu_si256((const void *)(offsets + g * LANES)) : _mm256_setzero_si256();
        at[g] = root[g];
    }
    for (int32_t level = 0; level < depth; level++) {
        __m256i moved = _mm256_setzero_si256();
        PROA_UNROLL
        for (int g = 0; g < UNROLL; g++) {
            __m256i next = _mm256_add_epi32(root[g], descend_nodes(s, nodes, at[g], x, offset[g]));
            moved = _mm256_or_si256(moved, _mm256_xor_si256(next, at[g]));
            at[g] = next;
        }
        if (_mm256_testz_si256(moved, moved)) break;
    }
    PROA_UNROLL
    for (int g = 0; g < UNROLL; g++) _mm256_storeu_si256((void *)(leaf + g * LANES), at[g]);
}

/* An odd group of 16 is walked together with the next one, whose leaves are ignored. */
static void walk_rows(const proa_walk_tree *tree, const float *x, const int32_t *offset, int groups, int32_t *leaf)
{
    const shape s = shape_of(tree->feature_bits);
    for (int g = 0; g < groups; g += 2)
        walk_some(tree->nodes, &s, NULL, offset + 16 * g, tree->depth, x, leaf + 16 * g);
}

static void walk_trees(const proa_walk_node *nodes, int32_t feature_bits, const int32_t *start,
                       const int32_t *depth, int64_t count, const float *x, int32_t *leaf)
{
    const shape s = shape_of(feature_bits);
    for (int64_t t = 0; t < count; t += LANES * UNROLL) {
        int32_t deepest = 0;
        for (int i = 0; i < LANES * UNROLL; i++) deepest = depth[t + i] > deepest ? depth[t + i] : deepest;
        walk_some(nodes, &s, start + t, NULL, deepest, x, leaf + t);
    }
}

static void add_leaves(float *sum, const float *value, const int32_t *leaf, int groups)
{
    for (int i = 0; i < groups * 16; i++) sum[i] += value[leaf[i]];
}

const proa_walk proa_walk_avx2 = {"avx2", walk_rows, walk_trees, proa_walk_mixed, add_leaves};
#else
typedef int proa_walk_avx2_is_for_x86; /* a file has at least one declaration */
#endif
