/* SPDX-License-Identifier: Apache-2.0
 * forest.h - ensembles of decision trees as read from their files: XGBoost, LightGBM, treelite (and with it
 * scikit-learn).
 * Owner:   proa_forest_open gives a forest that proa_forest_free releases; it keeps nothing of the file.
 * Threads: a forest does not change once it is open: any number may read it.
 * Way in:  proa_forest_open; packed.h builds the fast form from it; proa_forest_predict_plain is the reference. */
#ifndef PROA_FOREST_FOREST_H
#define PROA_FOREST_FOREST_H

#include "base/status.h"
#include "base/str.h"

/* File formats, with Triton's value of `model_type`. */
typedef enum proa_forest_format {
    PROA_FOREST_AUTO,         /* look at the first bytes */
    PROA_FOREST_XGBOOST_JSON, /* "xgboost_json" */
    PROA_FOREST_XGBOOST_UBJ,  /* "xgboost_ubj" */
    PROA_FOREST_LIGHTGBM,     /* "lightgbm" */
    PROA_FOREST_TREELITE,     /* "treelite_checkpoint" */
    PROA_FOREST_FORMATS
} proa_forest_format;

/* The library whose arithmetic the forest follows: it decides the order of the sum and the last bits of the
 * transforms. */
typedef enum proa_forest_family {
    PROA_FOREST_OF_XGBOOST,  /* float sums that begin with the base score */
    PROA_FOREST_OF_LIGHTGBM, /* double sums; no base score (it is in the first trees' leaves) */
    PROA_FOREST_OF_TREELITE  /* sums in the type of the leaves; then the divisor; the base score last */
} proa_forest_family;

/* The comparison of a numerical split with x (never NaN): true goes left. */
typedef enum proa_forest_op {
    PROA_FOREST_LT, /* x < threshold: XGBoost */
    PROA_FOREST_LE, /* x <= threshold: LightGBM, scikit-learn */
    PROA_FOREST_GT,
    PROA_FOREST_GE,
    PROA_FOREST_EQ
} proa_forest_op;

/* How a row's sums become its outputs: treelite's post-processors. */
typedef enum proa_forest_transform {
    PROA_FOREST_IDENTITY,      /* also treelite's identity_multiclass */
    PROA_FOREST_SIGNED_SQUARE, /* sign(x) x^2 */
    PROA_FOREST_HINGE,         /* x > 0 ? 1 : 0 */
    PROA_FOREST_SIGMOID,       /* 1 / (1 + exp(-alpha x)) */
    PROA_FOREST_EXPONENTIAL,   /* exp(x) */
    PROA_FOREST_EXP2_RATIO,    /* exp2(-x / ratio): exponential_standard_ratio, isolation forests */
    PROA_FOREST_LOG1P_EXP,     /* log(1 + exp(x)): logarithm_one_plus_exp */
    PROA_FOREST_SOFTMAX,       /* over the classes of each target */
    PROA_FOREST_OVA,           /* the sigmoid for each class: multiclass_ova */
    PROA_FOREST_TRANSFORMS
} proa_forest_transform;

typedef enum proa_forest_task {
    PROA_FOREST_REGRESSION,
    PROA_FOREST_BINARY, /* one output: the score of class 1 */
    PROA_FOREST_MULTICLASS,
    PROA_FOREST_RANKING,
    PROA_FOREST_ISOLATION
} proa_forest_task;

/* A missing x takes the default side: NaN, and with PROA_FOREST_ZERO_MISSING also zero. The readers fold
 * all other rules into that side: for LightGBM's "no missing values" (NaN counts as 0) and its categories
 * (NaN is in no set) it is the side that such an x would take. */
#define PROA_FOREST_DEFAULT_LEFT 1u
#define PROA_FOREST_CATEGORICAL                                                                              \
    2u /* the split is: x, truncated to an integer, is in the node's set; op and value are unused */
#define PROA_FOREST_MEMBER_LEFT                                                                              \
    4u /* categorical: members go left and all others right; otherwise the reverse */
#define PROA_FOREST_ZERO_MISSING                                                                             \
    8u /* LightGBM: |x| <= PROA_FOREST_ZERO is missing too; never with CATEGORICAL */

#define PROA_FOREST_ZERO ((double)1e-35f)

typedef struct proa_forest_node {
    double value;    /* a numerical split: the threshold; a leaf of a forest with leaf_size 1: its value */
    int32_t feature; /* 0..features-1; -1 is a leaf */
    int32_t left, right; /* children, counted from the tree's root; left is this node + 1, and right is greater */
    int32_t aux; /* CATEGORICAL: index in `sets`; a leaf: index in `vectors` (leaf_size > 1) or `linear_leaves`; else
                    -1 */
    uint8_t op, flags; /* proa_forest_op; PROA_FOREST_DEFAULT_LEFT ... */
} proa_forest_node;

/* Nodes [first, first + nodes), depth first, left before right: the root comes first, each node has one
 * parent, and every node is reached. Value i of a leaf is added to output `output + i * stride`. */
typedef struct proa_forest_tree {
    int64_t first;
    int32_t nodes, leaves, depth; /* depth: edges to the deepest leaf, at most PROA_FOREST_DEPTH_MAX */
    int32_t output, stride;
} proa_forest_tree;

/* A set of categories as bits: c is in it if c < 32 * words and words[first + c / 32] has bit c % 32. No
 * set reaches PROA_FOREST_CATEGORIES_MAX, 2^24, above which floats skip integers. */
typedef struct proa_forest_set {
    int64_t first;
    int32_t words;
} proa_forest_set;

/* A linear leaf (LightGBM's linear_tree): constant + sum of slopes[first + i] * x of feature terms[first +
 * i], in this order; x within PROA_FOREST_ZERO of 0 counts as 0. If one of them is NaN the node's value is
 * used. */
typedef struct proa_forest_linear_leaf {
    double constant;
    int64_t first;
    int32_t terms;
} proa_forest_linear_leaf;

typedef struct proa_forest {
    proa_forest_format format; /* format of the file; never AUTO */
    proa_forest_family family;
    proa_forest_task task;
    proa_forest_transform transform;
    bool f64;          /* sums and transforms in double, rounded to float at the end; else all in float.
                          Thresholds and leaves are double here; where f64 is false each is a float's value */
    bool has_category; /* any split has PROA_FOREST_CATEGORICAL */
    bool has_zero_missing;
    bool truncate_negative; /* LightGBM: a category in (-1, 0) counts as 0; else negative values are in no set */
    double alpha, ratio;    /* of the transform; 1 where unused; a float's values where f64 is false */
    int32_t features;
    int32_t targets, classes; /* outputs of a row are [targets][classes]; classes is 1 unless task is MULTICLASS */
    int32_t outputs;          /* targets * classes */
    int32_t *target_classes; /* [targets]: 1..classes; outputs beyond are 0 */
    int32_t leaf_size;       /* values of a leaf */
    double *base;            /* [outputs]: before the transform, as a margin */
    int32_t *divisor; /* [outputs]: number of trees for averaging forests; 1 where trees are only added */

    proa_forest_tree *trees; /* in the order of the sum; DART's weights are already in the leaves */
    int64_t tree_count;
    proa_forest_node *nodes;
    int64_t node_count;
    double *cover; /* [node_count]: weight of the training rows that reached the node (XGBoost: sum of hessians;
                      LightGBM: rows), for SHAP; NULL if the file lacks it for any node */
    double *vectors; /* [vector_count][leaf_size]; NULL where leaf_size is 1 */
    int64_t vector_count;
    proa_forest_linear_leaf *linear_leaves; /* of leaves of forests with leaf_size 1 and f64 */
    int64_t linear_leaf_count;
    int32_t *terms; /* [term_count]: features of the linear leaves */
    double *slopes; /* [term_count] */
    int64_t term_count;
    proa_forest_set *sets;
    int64_t set_count;
    uint32_t *words;
    int64_t word_count;

    char objective[64]; /* the objective as the file names it, truncated, printable: for messages and logs; "" if
                           there is none */
    char version[32]; /* of the library that wrote it: "3.2.0"; "" if unknown */
} proa_forest;

/* Reads a model file of that format, or detects the format. Everything is checked: the forest satisfies all
 * that this header states. Errors name the file and, where there is one, the tree. */
PROA_MUST_CHECK proa_status proa_forest_open(proa_forest **out, const char *path, proa_forest_format format,
                                             proa_err *err);
/* The same for bytes in memory, which the forest does not keep; `what` names them in errors. */
PROA_MUST_CHECK proa_status proa_forest_parse(proa_forest **out, proa_str bytes, proa_forest_format format,
                                              const char *what, proa_err *err);
void proa_forest_free(proa_forest *forest); /* NULL is fine */

/* Checks all that this header states. The last step of every reader; tests call it for forests made by
 * hand. */
PROA_MUST_CHECK proa_status proa_forest_check(const proa_forest *forest, proa_err *err);

/* treelite's name: "identity", "sigmoid", ... */
const char *proa_forest_transform_name(proa_forest_transform transform);

/* For float inputs, every numerical split but PROA_FOREST_EQ equals `x <= cut` with a float cut: true goes
 * left, or right if *swapped. The cut is NaN if no x passes; it may be denormal, so denormals must not be
 * flushed to zero. */
float proa_forest_cut(proa_forest_op op, double threshold, bool *swapped);

/* Whether a value of the feature goes left at a split (not a leaf). */
bool proa_forest_goes_left(const proa_forest *forest, const proa_forest_node *node, float x);
/* The leaf that row[features] reaches: a node counted from the tree's root. */
int32_t proa_forest_leaf(const proa_forest *forest, const proa_forest_tree *tree, const float *row);
/* The value of linear leaf `aux` for row[features]; `value` is the leaf's own, and the result if aux is
 * -1. */
double proa_forest_linear_leaf_value(const proa_forest *forest, int32_t aux, double value, const float *row);

/* The reference predictor: in[rows][features] to out[rows][outputs], one row and one tree at a time. `raw`
 * omits the transform (XGBoost's output_margin, LightGBM's raw_score). Bit for bit the result of the
 * family's library, as far as its exp equals ours. */
void proa_forest_predict_plain(const proa_forest *forest, const float *in, int64_t rows, bool raw, float *out);
/* The transform alone, on one row's sums; f64 forests call the double one. */
void proa_forest_transform_f32(const proa_forest *forest, float *sums);
void proa_forest_transform_f64(const proa_forest *forest, double *sums);

#endif
