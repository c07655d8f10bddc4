/* SPDX-License-Identifier: Apache-2.0
 * packed.c - builds the packed forest: splits become cuts, trees become breadth-first nodes of 8 bytes.
 * */
#include "forest/packed_inside.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* Size of the part of a forest that a stretch of rows passes before the next part: half of a small
 * second-level cache. */
#define BLOCK_BYTES (512 << 10)

/* ---- a split as one test ---- */

/* The test of a node: `(flip ? -x : x) <= cut`, false if x is missing; true goes left or right. Or: x is in
 * the set, where flip says whether a missing x is. */
typedef struct split_test {
    float cut; /* a set: the bits of its number */
    bool flip, yes_left, set;
} split_test;

/* Whether all x that count as zero go to the side of missing ones. */
static bool zeros_are_missing(const proa_forest_node *n, float cut, bool yes_left)
{
    const float zero = (float)PROA_FOREST_ZERO;
    bool missing_left = n->flags & PROA_FOREST_DEFAULT_LEFT;
    bool low_left = (-zero <= cut) == yes_left, high_left = (zero <= cut) == yes_left;
    return low_left == missing_left && high_left == missing_left;
}

static void test_of_set(const proa_forest_node *n, split_test *q)
{
    bool missing_left = n->flags & PROA_FOREST_DEFAULT_LEFT;
    *q = (split_test){.set = true, .yes_left = n->flags & PROA_FOREST_MEMBER_LEFT};
    q->flip = missing_left == q->yes_left;
    memcpy(&q->cut, &n->aux, sizeof q->cut);
}

/* false: the split needs more than one test. */
static bool test_of_node(const proa_forest_node *n, split_test *q)
{
    bool swapped, missing_left = n->flags & PROA_FOREST_DEFAULT_LEFT;
    if (n->flags & PROA_FOREST_CATEGORICAL) {
        test_of_set(n, q);
        return true;
    }
    if (n->op == PROA_FOREST_EQ) return false;
    float cut = proa_forest_cut((proa_forest_op)n->op, n->value, &swapped);
    *q = (split_test){cut, false, !swapped, false};
    if ((n->flags & PROA_FOREST_ZERO_MISSING) && !zeros_are_missing(n, cut, q->yes_left)) return false;
    if (missing_left != q->yes_left) return true; /* no, and missing: one side */
    /* The opposite test: x > cut, which is x >= the next float, which is -x <= its negative. */
    q->yes_left = !q->yes_left;
    q->flip = true;
    if (isnan(cut)) q->cut = INFINITY;
    else q->cut = isinf(cut) && cut > 0 ? NAN : -nextafterf(cut, INFINITY);
    return true;
}

/* ---- one tree ---- */

typedef struct packer {
    proa_packed *p;
    const proa_forest_tree *from;
    const proa_forest_node *nodes; /* of the tree */
    int64_t start;                 /* of its nodes in the packed forest */
    int32_t *order;                /* [nodes]: packed node -> node */
    int32_t *level;                /* [nodes], of packed nodes */
} packer;

static void put_leaf(const packer *k, int32_t at, const proa_forest_node *leaf)
{
    proa_packed *p = k->p;
    if (p->vector) p->vector[k->start + at] = leaf->aux;
    else if (p->value64) p->value64[k->start + at] = leaf->value;
    else p->value[k->start + at] = (float)leaf->value;
    if (p->line) p->line[k->start + at] = leaf->aux;
}

static uint32_t link_of(const proa_packed *p, const split_test *q, int32_t child, int32_t feature)
{
    return (q->flip ? PROA_WALK_FLIP : 0) | (q->set ? PROA_WALK_SET : 0) |
           (uint32_t)child << p->feature_bits | (uint32_t)feature;
}

static proa_packed_kind kind_of(const packer *k)
{
    bool any_set = false;
    for (int32_t i = 0; i < k->from->nodes; i++) {
        split_test q = {.set = false};
        if (k->nodes[i].feature >= 0 && !test_of_node(&k->nodes[i], &q)) return PROA_PACKED_REFERENCE;
        any_set |= q.set;
    }
    if ((int64_t)k->from->nodes > (int64_t)1 << ((any_set ? 30 : 31) - k->p->feature_bits))
        return PROA_PACKED_REFERENCE;
    return any_set ? PROA_PACKED_CATEGORICAL : PROA_PACKED_NUMERIC;
}

/* Breadth first: children get the next two indices. */
static void pack_nodes(const packer *k, proa_walk_tree *tree)
{
    proa_walk_node *nodes = k->p->nodes + k->start;
    int32_t used = 1;
    tree->even = k->from->depth;
    k->order[0] = k->level[0] = 0;
    for (int32_t i = 0; i < k->from->nodes; i++) {
        const proa_forest_node *n = &k->nodes[k->order[i]];
        split_test q;
        if (n->feature < 0) {
            nodes[i] = (proa_walk_node){NAN, link_of(k->p, &(split_test){.flip = false}, i, 0)};
            put_leaf(k, i, n);
            if (k->level[i] < tree->even) tree->even = k->level[i];
            continue;
        }
        test_of_node(n, &q);
        nodes[i] = (proa_walk_node){q.cut, link_of(k->p, &q, used, n->feature)};
        k->order[used] = q.yes_left ? n->right : n->left;
        k->order[used + 1] = q.yes_left ? n->left : n->right;
        k->level[used] = k->level[used + 1] = k->level[i] + 1;
        used += 2;
    }
}

static void pack_top(const packer *k, proa_walk_tree *tree)
{
    const proa_walk_node *nodes = k->p->nodes + k->start;
    const uint32_t keep = PROA_WALK_FLIP | ((1u << k->p->feature_bits) - 1);
    int32_t at[2 * PROA_WALK_TOP_NODES] = {0}; /* heap index to packed node; 1 is the root */
    for (int32_t i = 1; i < 1 << tree->top_levels; i++) {
        const proa_walk_node *n = &nodes[at[i]];
        int32_t child = (int32_t)((n->link & ~PROA_WALK_FLIP) >> k->p->feature_bits);
        tree->top_cut[i] = n->cut;
        tree->top_link[i] = n->link & keep;
        at[2 * i] = child;
        at[2 * i + 1] = child == at[i] ? child : child + 1; /* below a leaf is the leaf itself */
    }
    for (int32_t i = 1 << tree->top_levels; i < 2 << tree->top_levels; i++)
        tree->top_exit[i % PROA_WALK_TOP_NODES] = at[i];
}

static void pack_tree(const packer *k, int64_t number)
{
    proa_packed *p = k->p;
    proa_walk_tree *tree = &p->trees[number];
    tree->nodes = p->nodes + k->start;
    tree->start = (int32_t)k->start;
    tree->depth = k->from->depth;
    tree->feature_bits = p->feature_bits;
    tree->top_levels = tree->depth < PROA_WALK_TOP ? tree->depth : PROA_WALK_TOP;
    proa_packed_kind kind = kind_of(k);
    p->kind[number] = (uint8_t)kind;
    p->mixed_count += kind == PROA_PACKED_CATEGORICAL;
    if (kind == PROA_PACKED_REFERENCE) {
        p->slow_count++;
        for (int32_t i = 0; i < k->from->nodes; i++)
            if (k->nodes[i].feature < 0) put_leaf(k, i, &k->nodes[i]);
        return;
    }
    pack_nodes(k, tree);
    if (kind == PROA_PACKED_CATEGORICAL) return;
    pack_top(k, tree);
    p->start[number] = (int32_t)k->start;
    p->depth[number] = tree->depth;
}

/* ---- the whole ---- */

static int32_t bits_for(int64_t count)
{
    int32_t bits = 1;
    while ((int64_t)1 << bits < count) bits++;
    return bits;
}

/* Takes the next part of the memory, aligned to a cache line; with memory NULL it only counts. */
static void *take_array(char *memory, int64_t *used, int64_t count, size_t size)
{
    void *at = memory ? memory + *used : NULL;
    *used = proa_round_up(*used + count * (int64_t)size, 64);
    return at;
}

/* The counts are those of a checked forest, so no product overflows. */
static int64_t lay_out(proa_packed *p, char *memory)
{
    int64_t used = 0, trees = p->forest->tree_count, ways = proa_round_up(trees, 64);
    bool vector = p->forest->leaf_size > 1, f64 = p->forest->f64;
    p->nodes = take_array(memory, &used, p->node_count, sizeof *p->nodes);
    p->trees = take_array(memory, &used, trees, sizeof *p->trees);
    p->start = take_array(memory, &used, ways, sizeof *p->start);
    p->depth = take_array(memory, &used, ways, sizeof *p->depth);
    p->block_end = take_array(memory, &used, trees, sizeof *p->block_end);
    p->kind = take_array(memory, &used, trees, sizeof *p->kind);
    p->set_first = take_array(memory, &used, p->forest->set_count, sizeof *p->set_first);
    p->set_words = take_array(memory, &used, p->forest->set_count, sizeof *p->set_words);
    if (vector) p->vector = take_array(memory, &used, p->node_count, sizeof *p->vector);
    else if (f64) p->value64 = take_array(memory, &used, p->node_count, sizeof *p->value64);
    else p->value = take_array(memory, &used, p->node_count, sizeof *p->value);
    if (p->forest->linear_leaf_count) p->line = take_array(memory, &used, p->node_count, sizeof *p->line);
    return used;
}

static void find_blocks(proa_packed *p)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < p->forest->tree_count; i++) {
        int64_t own = (int64_t)sizeof *p->trees + p->forest->trees[i].nodes * 12;
        if (bytes && bytes + own > BLOCK_BYTES) {
            p->block_end[p->block_count++] = i;
            bytes = 0;
        }
        bytes += own;
        p->steps += p->forest->trees[i].depth;
    }
    if (p->forest->tree_count) p->block_end[p->block_count++] = p->forest->tree_count;
}

static void pack_sets(proa_packed *p)
{
    const proa_forest *f = p->forest;
    for (int64_t i = 0; i < f->set_count; i++) {
        p->set_first[i] = (int32_t)f->sets[i].first; /* below PROA_FOREST_WORDS_MAX */
        p->set_words[i] = f->sets[i].words;
    }
    p->sets = (proa_walk_sets){p->set_first, p->set_words, f->words, f->truncate_negative};
}

static void pack_all(proa_packed *p)
{
    const proa_forest *f = p->forest;
    const int64_t nobody = p->node_count - 1;
    int32_t most = 1;
    for (int64_t i = 0; i < f->tree_count; i++) most = f->trees[i].nodes > most ? f->trees[i].nodes : most;
    packer k = {.p = p, .order = proa_calloc((size_t)most, 4), .level = proa_calloc((size_t)most, 4)};
    p->nodes[nobody] = (proa_walk_node){NAN, 0};
    for (int64_t i = 0; i < proa_round_up(f->tree_count, 64); i++) p->start[i] = (int32_t)nobody;
    for (int64_t i = 0; i < f->tree_count; k.start += f->trees[i].nodes, i++) {
        k.from = &f->trees[i];
        k.nodes = f->nodes + k.from->first;
        pack_tree(&k, i);
    }
    free(k.order);
    free(k.level);
}

static const proa_walk *walk_of(proa_isa level)
{
#if defined(__x86_64__)
    if (level >= PROA_ISA_AVX512) return &proa_walk_avx512;
    if (level >= PROA_ISA_AVX2) return &proa_walk_avx2;
#endif
    PROA_UNUSED(level);
    return &proa_walk_generic;
}

proa_status proa_packed_new(proa_packed **out, const proa_forest *forest, proa_err *err)
{
    proa_packed *p = proa_calloc(1, sizeof *p);
    p->forest = forest;
    p->walk = walk_of(proa_isa_choose());
    p->feature_bits = bits_for(forest->features);
    for (int64_t i = 0; i < forest->tree_count; i++) p->node_count += forest->trees[i].nodes;
    p->node_count++;
    p->memory_bytes = lay_out(p, NULL);
    p->memory = proa_pages_alloc(p->memory_bytes);
    if (!p->memory) {
        int64_t bytes = p->memory_bytes;
        free(p);
        return PROA_FAIL(err, NO_MEMORY, "there are no %lld MiB left for a forest of %lld nodes",
                         (long long)(bytes >> 20), (long long)forest->node_count);
    }
    lay_out(p, p->memory);
    pack_sets(p);
    pack_all(p);
    find_blocks(p);
    *out = p;
    return PROA_OK;
}

void proa_packed_free(proa_packed *p)
{
    if (!p) return;
    proa_pages_free(p->memory, p->memory_bytes);
    free(p);
}

int64_t proa_packed_steps(const proa_packed *p)
{
    return p->steps;
}

int64_t proa_packed_slow_trees(const proa_packed *p)
{
    return p->slow_count;
}

void proa_packed_use(proa_packed *p, proa_isa level)
{
    proa_isa most = proa_isa_detect();
    p->walk = walk_of(level < most ? level : most);
}
