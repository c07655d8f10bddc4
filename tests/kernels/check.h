/* SPDX-License-Identifier: Apache-2.0
 * check.h - what the parts of kerncheck share: canvases with guard bands, comparison, and the tester.
 * Owner:   a canvas owns its memory. Threads: the main thread; ops use the pools of their contexts. */
#ifndef PROA_TESTS_KERNELS_CHECK_H
#define PROA_TESTS_KERNELS_CHECK_H

#include "kernels/ops.h"

/* ---- numbers ---- */
uint64_t rng_next(uint64_t *state); /* splitmix64 */
float rng_normal(uint64_t *state);  /* sum of uniforms, variance 1 */
int64_t rng_below(uint64_t *state, int64_t n);

/* ---- canvases: a view inside memory full of a pattern, which must survive outside of the view ---- */
typedef struct canvas {
    uint32_t *memory; /* words of the pattern; the view's elements are f32 */
    int64_t words;
    proa_view view;
} canvas;
/* rank 1..3. pad: words between rows; offset: words from an alignment of 64 bytes. Everything holds the pattern. */
canvas canvas_make(int32_t rank, const int64_t *shape, int64_t pad, int64_t offset);
canvas canvas_clone(const canvas *c);
void canvas_free(canvas *c);
void canvas_reset(canvas *c); /* the pattern everywhere */
/* Normal numbers; with specials, row 1 gets a NaN, row 2 infinities, row 3 huge, row 4 tiny ones, row 5 zeros. */
void canvas_fill(canvas *c, uint64_t seed, bool specials);
/* Rounds the numbers to the 16-bit type that is checked, if one is: device and reference read the same. */
void canvas_round_narrow(canvas *c);
bool canvas_guards_hold(const canvas *c);

/* ---- comparison ---- */
/* Tolerances, in one table (kerncheck.c). */
typedef enum tolerance {
    TOL_EXACT,
    TOL_ELEMENT, /* one or a few roundings: add, rope, embed */
    TOL_MATH,    /* exp and kin */
    TOL_GELU,    /* tails of negative x are ill conditioned: absolute, floor 1 */
    TOL_NORM,    /* an f32 sum of d squares */
    TOL_ATTEND,
    TOL_STATE,
    TOL_BF16DOT,      /* other order of sums, denormals flushed */
    TOL_BF16DOT_GELU, /* the same behind GELU: floor 1, as TOL_GELU */
    TOL_COUNT
} tolerance;
double tolerance_of(tolerance kind); /* the limit */
/* On a device sums have other orders, products of halves round, and a row's order may depend on the batch: there the
 * same comparisons, those of bits too, are made with this limit at least, and no numbers are huge or infinite. */
typedef struct device_rules {
    bool on;
    double limit;
    double floor;      /* of a row's largest element: what the terms of a sum come to, however they cancel */
    proa_dtype narrow; /* not f32: views that may be of 16 bits are, and no limit is below what that rounds away */
} device_rules;
extern device_rules device_mode;
/* The table of a device behind the host's memory (hosted.c); NULL with the reason if it cannot be opened. */
const proa_ops *hosted_table(const char *name, proa_err *err);
void hosted_close(void);
/* What a device may do as one: n = norm(x), a layer_norm if b has a rank, and y = linear(n). */
void hosted_norm_linear(proa_view y, proa_view n, proa_view x, proa_view w, proa_view b, float eps,
                        const proa_weight *weight, const proa_epilogue *e);
/* y = u down^T, u = epilogue(x up^T): u feeds a product, and is undefined afterwards. */
void hosted_fed_product(proa_view y, proa_view u, proa_view x, const proa_weight *up, const proa_weight *down,
                        const proa_epilogue *e);
/* And the rows of some tables, added: ids [count][rows of y]. */
void hosted_embed_all(proa_view y, const proa_view *table, const int32_t *ids, const float *scale, int count);
/* x += more, and then y = rms_norm(x), or with w.rank 0 y = act(gate) * up of the halves of x. wide: x stays f32. */
void hosted_add_first(proa_view y, proa_view x, proa_view more, proa_view w, float eps, proa_act act, bool wide);
/* Norms of the heads of q and of k (none if these have no rank), in place, and rope_append: x [T,H+Hk,dh], q_norm and
 * k_norm [dh]. a: then attention into y [T,H,dh] (NULL: none), which need not leave x rotated. */
void hosted_norm_rope_append(proa_view x, proa_view v, proa_view table, bool interleaved, const proa_kv *kv,
                             const proa_spans *spans, proa_view q_norm, proa_view k_norm, float eps,
                             proa_view y, const proa_attention *a);
/* n = rms_norm(x), the scores y = linear(n) and route; of: then experts, out of n (NULL: none). */
void hosted_router(proa_view weights, int32_t *ids, proa_view y, proa_view n, proa_view x, proa_view norm,
                   float eps, const proa_weight *w, const float *bias, const proa_router *r, proa_view out,
                   const proa_experts *of);
tolerance tolerance_of_format(proa_wfmt format);

/* Rows of a against b: |a - b| <= limit * (floor + |b| + largest finite |b| of the row); NaN matches NaN and infinity
 * the same infinity. TOL_EXACT wants the same numbers (any NaN equals any NaN). Returns the worst share of the
 * limit (<= 1 passes), or for TOL_EXACT the number of differences. */
double compare_rows(proa_view a, proa_view b, tolerance kind);
/* Same bits in the rows [begin, end) of both. */
bool same_bits(proa_view a, proa_view b, int64_t begin, int64_t end);

/* ---- the tester ---- */
#define CHECK_THREADS 3
typedef struct tester {
    proa_ctx reference;             /* one thread */
    proa_ctx tables[CHECK_THREADS]; /* the table under test, with 1, 2, 3 threads */
    const char *op;                 /* the op at hand, for messages */
    const char *format;             /* of weights, for linear and experts; NULL: all */
    const proa_ops *below;          /* the table checked before this one; NULL: none */
    int64_t checks, failures;
    double worst; /* share of the tolerance, since op was set */
    bool verbose;
    int64_t every, cases; /* only each such case is run: for tools that slow everything down; 0 and 1: all */
} tester;
/* Whether the table below has the same product for the format, which was checked there. */
bool checked_below(const tester *t, proa_wfmt format);
/* Whether linear and experts of both tables run the same functions for weights of the format (same_products.c). */
bool same_product(const proa_ops *a, const proa_ops *b, proa_wfmt format);
/* Whether the next case is run. */
bool takes_turn(tester *t);
/* Counts; prints "FAIL table op: text" when ok is false. */
bool expect(tester *t, bool ok, const char *fmt, ...) PROA_PRINTF(3, 4);

/* check_coded.c, a part of check_linear. */
void check_stored(tester *t, proa_wfmt format);

/* One function for each op of ops.def. */
#define PROA_OP(name, args) void check_##name(tester *t);
#include "kernels/ops.def"
#include "kernels/decode.def"
#undef PROA_OP

/* Times the ops of all tables; only: NULL for all. Returns false if `only` names no op. */
bool bench_run(const char *only, bool json, int threads);

/* A packed weight with guard words behind it. */
typedef struct test_weight {
    proa_weight w;
    int64_t allocated;
} test_weight;
test_weight test_weight_pack(proa_ctx *c, proa_wfmt format, int64_t K, const proa_tensor_source *sources,
                             int count);
bool test_weight_guard_holds(const test_weight *w);
void test_weight_free(test_weight *w);

#endif
