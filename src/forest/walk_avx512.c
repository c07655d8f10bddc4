/* SPDX-License-Identifier: Apache-2.0
 * walk_avx512.c - the loops from rows to leaves for AVX-512, 16 rows at a time. */
#include "forest/walk.h"

#include "base/limits.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* 16 rows or trees in a register, and up to 4 registers in flight, which hides the latency of the gathers.
 * */

typedef struct shape {
    __m512i feature_mask, flip, child_mask, one;
    __m128i feature_bits;
} shape;

static PROA_ALWAYS_INLINE shape shape_of(int32_t feature_bits)
{
    return (shape){_mm512_set1_epi32((int)((1u << feature_bits) - 1)), _mm512_set1_epi32((int)PROA_WALK_FLIP),
                   _mm512_set1_epi32((int)~PROA_WALK_FLIP), _mm512_set1_epi32(1),
                   _mm_cvtsi32_si128(feature_bits)};
}

/* The comparisons of 16 lanes, each with its own node and its own row (at x + offset). */
static PROA_ALWAYS_INLINE __mmask16 compare_cuts(const shape *s, __m512 cut, __m512i link, const float *x,
                                                 __m512i offset)
{
    __m512i at = _mm512_add_epi32(offset, _mm512_and_si512(link, s->feature_mask));
    __m512i value = _mm512_castps_si512(_mm512_i32gather_ps(at, x, 4));
    value = _mm512_ternarylogic_epi32(value, link, s->flip, 0x78); /* value ^ (link & flip) */
    return _mm512_cmp_ps_mask(_mm512_castsi512_ps(value), cut, _CMP_LE_OQ);
}

/* From 16 nodes, which are counted from `nodes`, to their children, which are counted from each tree's root. */
static PROA_ALWAYS_INLINE __m512i descend_nodes(const shape *s, const proa_walk_node *nodes, __m512i node,
                                                const float *x, __m512i offset)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512i low = _mm512_i32gather_epi64(_mm512_castsi512_si256(node), (const void *)nodes, 8);
    __m512i high = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(node, 1), (const void *)nodes, 8);
    __m512 cut = _mm512_castsi512_ps(_mm512_permutex2var_epi32(low, even, high));
    __m512i link = _mm512_permutex2var_epi32(low, odd, high);
    __m512i child = _mm512_srl_epi32(_mm512_and_si512(link, s->child_mask), s->feature_bits);
    return _mm512_mask_add_epi32(child, compare_cuts(s, cut, link, x, offset), child, s->one);
}

/* ---- one tree, many rows ---- */

/* The top of the tree is held in registers: only x is gathered. */
static PROA_ALWAYS_INLINE void walk_top(const proa_walk_tree *tree, const shape *s, const float *x,
                                        const __m512i *offset, const int groups, __m512i *at)
{
    __m512 cut = _mm512_load_ps(tree->top_cut);
    __m512i link = _mm512_load_si512(tree->top_link);
    PROA_UNROLL
    for (int g = 0; g < groups; g++) at[g] = s->one;
    for (int32_t level = 0; level < tree->top_levels; level++) {
        if (level == 4) { /* the heap's second half */
            cut = _mm512_load_ps(tree->top_cut + 16);
            link = _mm512_load_si512(tree->top_link + 16);
        }
        PROA_UNROLL
        for (int g = 0; g < groups; g++) {
            __mmask16 yes = compare_cuts(s, _mm512_permutexvar_ps(at[g], cut),
                                         _mm512_permutexvar_epi32(at[g], link), x, offset[g]);
            at[g] = _mm512_add_epi32(at[g], at[g]);
            at[g] = _mm512_mask_add_epi32(at[g], yes, at[g], s->one);
        }
    }
    __m512i low = _mm512_load_si512(tree->top_exit), high = _mm512_load_si512(tree->top_exit + 16);
    PROA_UNROLL
    for (int g = 0; g < groups; g++) at[g] = _mm512_permutex2var_epi32(low, at[g], high);
}

static PROA_ALWAYS_INLINE void walk_groups(const proa_walk_tree *tree, const float *x, const int32_t *offsets,
                                           const int groups, int32_t *leaf)
{
    const shape s = shape_of(tree->feature_bits);
    __m512i at[4], offset[4];
    PROA_UNROLL
    for (int g = 0; g < groups; g++) offset[g] = _mm512_loadu_si512(offsets + 16 * g);
    walk_top(tree, &s, x, offset, groups, at);
    for (int32_t level = tree->top_levels; level < tree->depth; level++) {
        __m512i moved = _mm512_setzero_si512();
        PROA_UNROLL
        for (int g = 0; g < groups; g++) {
            __m512i next = descend_nodes(&s, tree->nodes, at[g], x, offset[g]);
            moved = _mm512_ternarylogic_epi32(moved, next, at[g], 0xf6); /* moved | (next ^ at) */
            at[g] = next;
        }
        if (level >= tree->even && _mm512_test_epi32_mask(moved, moved) == 0) break;
    }
    PROA_UNROLL
    for (int g = 0; g < groups; g++) _mm512_storeu_si512(leaf + 16 * g, at[g]);
}

static void walk_rows(const proa_walk_tree *tree, const float *x, const int32_t *offset, int groups, int32_t *leaf)
{
    switch (groups) {
    case 1: walk_groups(tree, x, offset, 1, leaf); break;
    case 2: walk_groups(tree, x, offset, 2, leaf); break;
    case 3: walk_groups(tree, x, offset, 3, leaf); break;
    default: walk_groups(tree, x, offset, 4, leaf); break;
    }
}

/* ---- one tree with categories, many rows ---- */

/* For the lanes in `which`: whether the value is in the lane's set. */
static PROA_ALWAYS_INLINE __mmask16 in_sets(const proa_walk_sets *sets, __mmask16 which, __m512i set, __m512 value)
{
    const __m512i none = _mm512_setzero_si512();
    __m512i category = _mm512_cvttps_epi32(value); /* what is missing or too large becomes negative */
    __m512i first = _mm512_mask_i32gather_epi32(none, which, set, sets->first, 4);
    __m512i count = _mm512_mask_i32gather_epi32(none, which, set, sets->count, 4);
    __m512i word = _mm512_srai_epi32(category, 5);
    __m512i bit = _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_and_si512(category, _mm512_set1_epi32(31)));
    which = _mm512_mask_cmpge_epi32_mask(which, category, none);
    which = _mm512_mask_cmplt_epi32_mask(which, category, _mm512_set1_epi32(PROA_FOREST_CATEGORIES_MAX));
    which = _mm512_mask_cmplt_epi32_mask(which, word, count);
    if (!sets->truncate) which = _mm512_mask_cmp_ps_mask(which, value, _mm512_setzero_ps(), _CMP_GE_OQ);
    __m512i words = _mm512_mask_i32gather_epi32(none, which, _mm512_add_epi32(first, word), sets->words, 4);
    return _mm512_mask_test_epi32_mask(which, words, bit);
}

/* As descend; the nodes of some lanes test a set. */
static PROA_ALWAYS_INLINE __m512i descend_mixed(const shape *s, const proa_walk_sets *sets,
                                                const proa_walk_node *nodes, __m512i node, const float *x,
                                                __m512i offset)
{
    const __m512i words = _mm512_add_epi32(node, node); /* a node is two words: link is the second */
    __m512i cut = _mm512_i32gather_epi32(words, (const void *)nodes, 4);
    __m512i link = _mm512_i32gather_epi32(_mm512_add_epi32(words, s->one), (const void *)nodes, 4);
    __m512i at = _mm512_add_epi32(offset, _mm512_and_si512(link, s->feature_mask));
    __m512 value = _mm512_i32gather_ps(at, x, 4);
    __m512i turned = _mm512_ternarylogic_epi32(_mm512_castps_si512(value), link, s->flip, 0x78);
    __mmask16 yes = _mm512_cmp_ps_mask(_mm512_castsi512_ps(turned), _mm512_castsi512_ps(cut), _CMP_LE_OQ);
    __mmask16 set = _mm512_test_epi32_mask(link, _mm512_set1_epi32((int)PROA_WALK_SET));
    if (set) {
        __mmask16 missing = _mm512_mask_test_epi32_mask(set, link, s->flip);
        missing = _mm512_mask_cmp_ps_mask(missing, value, value, _CMP_UNORD_Q);
        yes = (__mmask16)((yes & ~set) | missing | in_sets(sets, set, cut, value));
    }
    __m512i child = _mm512_and_si512(link, _mm512_set1_epi32((int)(PROA_WALK_SET - 1)));
    child = _mm512_srl_epi32(child, s->feature_bits);
    return _mm512_mask_add_epi32(child, yes, child, s->one);
}

static void walk_mixed(const proa_walk_tree *tree, const proa_walk_sets *sets, const float *x,
                       const int32_t *offsets, int groups, int32_t *leaf)
{
    const shape s = shape_of(tree->feature_bits);
    for (int g = 0; g < groups; g++) {
        __m512i at = _mm512_setzero_si512(), offset = _mm512_loadu_si512(offsets + 16 * g);
        for (int32_t level = 0; level < tree->depth; level++) {
            __m512i next = descend_mixed(&s, sets, tree->nodes, at, x, offset);
            bool same = _mm512_cmpneq_epi32_mask(next, at) == 0;
            at = next;
            if (same) break;
        }
        _mm512_storeu_si512(leaf + 16 * g, at);
    }
}

/* ---- one row, many trees ---- */

static PROA_ALWAYS_INLINE void walk_some(const proa_walk_node *nodes, const shape *s, const int32_t *start,
                                         int32_t deepest, const float *x, const int groups, int32_t *leaf)
{
    __m512i root[4], at[4];
    const __m512i none = _mm512_setzero_si512();
    PROA_UNROLL
    for (int g = 0; g < groups; g++) at[g] = root[g] = _mm512_loadu_si512(start + 16 * g);
    for (int32_t level = 0; level < deepest; level++) {
        __m512i moved = none;
        PROA_UNROLL
        for (int g = 0; g < groups; g++) {
            __m512i next = _mm512_add_epi32(root[g], descend_nodes(s, nodes, at[g], x, none));
            moved = _mm512_ternarylogic_epi32(moved, next, at[g], 0xf6);
            at[g] = next;
        }
        if (_mm512_test_epi32_mask(moved, moved) == 0) break;
    }
    PROA_UNROLL
    for (int g = 0; g < groups; g++) _mm512_storeu_si512(leaf + 16 * g, at[g]);
}

static void walk_trees(const proa_walk_node *nodes, int32_t feature_bits, const int32_t *start,
                       const int32_t *depth, int64_t count, const float *x, int32_t *leaf)
{
    const shape s = shape_of(feature_bits);
    for (int64_t t = 0; t < count; t += 64) {
        __m512i most = _mm512_setzero_si512();
        for (int g = 0; g < 4; g++) most = _mm512_max_epi32(most, _mm512_loadu_si512(depth + t + 16 * g));
        int32_t deepest = _mm512_reduce_max_epi32(most);
        switch ((count - t + 15) / 16) {
        case 1: walk_some(nodes, &s, start + t, deepest, x, 1, leaf + t); break;
        case 2: walk_some(nodes, &s, start + t, deepest, x, 2, leaf + t); break;
        case 3: walk_some(nodes, &s, start + t, deepest, x, 3, leaf + t); break;
        default: walk_some(nodes, &s, start + t, deepest, x, 4, leaf + t); break;
        }
    }
}

static void add_leaves(float *sum, const float *value, const int32_t *leaf, int groups)
{
    for (int i = 0; i < groups * 16; i += 16) {
        __m512 more = _mm512_i32gather_ps(_mm512_loadu_si512(leaf + i), value, 4);
        _mm512_storeu_ps(sum + i, _mm512_add_ps(_mm512_loadu_ps(sum + i), more));
    }
}

const proa_walk proa_walk_avx512 = {"avx512", walk_rows, walk_trees, walk_mixed, add_leaves};
#else
typedef int proa_walk_avx512_is_for_x86; /* a file has at least one declaration */
#endif
