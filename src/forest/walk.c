/* SPDX-License-Identifier: Apache-2.0
 * walk.c - the portable loops from rows to leaves. */
#include "forest/walk.h"

#include "base/limits.h"
#include <string.h>

/* Rows or trees that are walked at once, so that their loads overlap. */
#define LANES 8

static PROA_ALWAYS_INLINE int32_t step_node(const proa_walk_node *nodes, int32_t at, const float *x,
                                            uint32_t feature_mask, int32_t feature_bits)
{
    proa_walk_node n = nodes[at];
    uint32_t bits;
    float value;
    memcpy(&bits, &x[n.link & feature_mask], sizeof bits);
    bits ^= n.link & PROA_WALK_FLIP;
    memcpy(&value, &bits, sizeof value);
    return (int32_t)((n.link & ~PROA_WALK_FLIP) >> feature_bits) + (value <= n.cut);
}

static void walk_rows(const proa_walk_tree *tree, const float *x, const int32_t *offset, int groups, int32_t *leaf)
{
    const uint32_t mask = (1u << tree->feature_bits) - 1;
    for (int r = 0; r < groups * 16; r += LANES) {
        int32_t at[LANES] = {0};
        for (int32_t level = 0; level < tree->depth; level++) {
            int32_t moved = 0;
            PROA_UNROLL
            for (int i = 0; i < LANES; i++) {
                int32_t next = step_node(tree->nodes, at[i], x + offset[r + i], mask, tree->feature_bits);
                moved |= next ^ at[i];
                at[i] = next;
            }
            if (!moved) break;
        }
        memcpy(leaf + r, at, sizeof at);
    }
}

/* ---- categories ---- */

static bool in_set(const proa_walk_sets *sets, int32_t set, float x, bool missing)
{
    if (x != x) return missing;
    if (x <= -1.0f || x >= (float)PROA_FOREST_CATEGORIES_MAX || (x < 0.0f && !sets->truncate)) return false;
    int32_t category = (int32_t)x;
    return category / 32 < sets->count[set] &&
           (sets->words[sets->first[set] + category / 32] >> (category % 32) & 1);
}

static PROA_ALWAYS_INLINE int32_t step_mixed(const proa_walk_tree *tree, const proa_walk_sets *sets,
                                             int32_t at, const float *x, uint32_t feature_mask)
{
    proa_walk_node n = tree->nodes[at];
    if (!(n.link & PROA_WALK_SET)) return step_node(tree->nodes, at, x, feature_mask, tree->feature_bits);
    int32_t set, child = (int32_t)((n.link & (PROA_WALK_SET - 1)) >> tree->feature_bits);
    memcpy(&set, &n.cut, sizeof set);
    return child + in_set(sets, set, x[n.link & feature_mask], n.link & PROA_WALK_FLIP);
}

int32_t proa_walk_one(const proa_walk_tree *tree, const proa_walk_sets *sets, const float *x)
{
    const uint32_t mask = (1u << tree->feature_bits) - 1;
    int32_t at = 0;
    for (int32_t before = -1; before != at;) {
        before = at;
        at = step_mixed(tree, sets, at, x, mask);
    }
    return at;
}

void proa_walk_mixed(const proa_walk_tree *tree, const proa_walk_sets *sets, const float *x,
                     const int32_t *offset, int groups, int32_t *leaf)
{
    const uint32_t mask = (1u << tree->feature_bits) - 1;
    for (int r = 0; r < groups * 16; r += LANES) {
        int32_t at[LANES] = {0};
        for (int32_t level = 0; level < tree->depth; level++)
            for (int i = 0; i < LANES; i++) at[i] = step_mixed(tree, sets, at[i], x + offset[r + i], mask);
        memcpy(leaf + r, at, sizeof at);
    }
}

/* ---- one row, many trees ---- */

static void walk_trees(const proa_walk_node *nodes, int32_t feature_bits, const int32_t *start,
                       const int32_t *depth, int64_t count, const float *x, int32_t *leaf)
{
    const uint32_t mask = (1u << feature_bits) - 1;
    for (int64_t t = 0; t < count; t += LANES) {
        int32_t at[LANES] = {0}, deepest = 0;
        for (int i = 0; i < LANES; i++) deepest = depth[t + i] > deepest ? depth[t + i] : deepest;
        for (int32_t level = 0; level < deepest; level++) {
            PROA_UNROLL
            for (int i = 0; i < LANES; i++)
                at[i] = step_node(nodes + start[t + i], at[i], x, mask, feature_bits);
        }
        for (int i = 0; i < LANES; i++) leaf[t + i] = start[t + i] + at[i];
    }
}

static void add_leaves(float *sum, const float *value, const int32_t *leaf, int groups)
{
    for (int i = 0; i < groups * 16; i++) sum[i] += value[leaf[i]];
}

const proa_walk proa_walk_generic = {"generic", walk_rows, walk_trees, proa_walk_mixed, add_leaves};
