/* SPDX-License-Identifier: Apache-2.0
 * lightgbm.c - LightGBM's text: lines of key=value, first of the model, then of each tree after its "Tree=".
 * A split's rules for missing values become a default side and PROA_FOREST_ZERO_MISSING. LightGBM reads an input
 *   within PROA_FOREST_ZERO of 0 as 0, which moves the thresholds in that range. */
#include "forest/readers.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"

/* Bits of decision_type. */
#define CATEGORICAL  1
#define DEFAULT_LEFT 2
#define MISSING_ZERO 1 /* bits 2 and 3 */
#define MISSING_NAN  2

typedef struct objective {
    const char *name;
    proa_forest_task task;
    proa_forest_transform transform;
    bool sqrt; /* "sqrt" after the name: the output is squared */
} objective;

static const objective OBJECTIVES[] = {
    {"regression", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, true},
    {"regression_l1", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, true},
    {"quantile", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, true},
    {"fair", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, true},
    {"mape", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, true},
    {"huber", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, false},
    {"poisson", PROA_FOREST_REGRESSION, PROA_FOREST_EXPONENTIAL, false},
    {"gamma", PROA_FOREST_REGRESSION, PROA_FOREST_EXPONENTIAL, false},
    {"tweedie", PROA_FOREST_REGRESSION, PROA_FOREST_EXPONENTIAL, false},
    {"cross_entropy", PROA_FOREST_REGRESSION, PROA_FOREST_SIGMOID, false},
    {"cross_entropy_lambda", PROA_FOREST_REGRESSION, PROA_FOREST_LOG1P_EXP, false},
    {"binary", PROA_FOREST_BINARY, PROA_FOREST_SIGMOID, false},
    {"multiclass", PROA_FOREST_MULTICLASS, PROA_FOREST_SOFTMAX, false},
    {"multiclassova", PROA_FOREST_MULTICLASS, PROA_FOREST_OVA, false},
    {"lambdarank", PROA_FOREST_RANKING, PROA_FOREST_IDENTITY, false},
    {"rank_xendcg", PROA_FOREST_RANKING, PROA_FOREST_IDENTITY, false},
    {"custom", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, false},
};

/* The lines of a tree that are read, in any order. */
typedef enum line {
    LINE_LEAVES,
    LINE_CATS,
    LINE_FEATURE,
    LINE_THRESHOLD,
    LINE_DECISION,
    LINE_LEFT,
    LINE_RIGHT,
    LINE_VALUE,
    LINE_LEAF_COUNT,
    LINE_INNER_COUNT,
    LINE_CAT_BOUNDS,
    LINE_CAT_WORDS,
    LINE_LINEAR,
    LINE_CONSTANT,
    LINE_TERM_COUNT,
    LINE_TERMS,
    LINE_SLOPES,
    LINES
} line;

static const char *const LINE_KEYS[LINES] = {
    "num_leaves",  "num_cat",    "split_feature", "threshold",      "decision_type",  "left_child",
    "right_child", "leaf_value", "leaf_count",    "internal_count", "cat_boundaries", "cat_threshold",
    "is_linear",   "leaf_const", "num_features",  "leaf_features",  "leaf_coeff"};

typedef struct reader {
    const char *ptr, *end;
    proa_forest_builder b;
    proa_forest_numbers of[LINES]; /* one tree */
    double classes, per_round, last_feature;
    proa_str objective, version;
    bool average;
    int64_t listed; /* set words that the splits of this tree have used */
} reader;

/* ---- lines ---- */

/* The next line without its end; false after the last. */
static bool next_line(reader *r, proa_str *out)
{
    if (r->ptr >= r->end) return false;
    const char *newline = memchr(r->ptr, '\n', (size_t)(r->end - r->ptr));
    const char *stop = newline ? newline : r->end;
    *out = (proa_str){r->ptr, (size_t)(stop - r->ptr)};
    if (out->len > 0 && stop[-1] == '\r') out->len--;
    r->ptr = newline ? newline + 1 : r->end;
    return true;
}

/* Splits at the first '='; without one the value is empty. */
static proa_str take_key(proa_str text, proa_str *value)
{
    const char *equals = text.len > 0 ? memchr(text.ptr, '=', text.len) : NULL;
    if (!equals) {
        *value = (proa_str){text.ptr, 0};
        return text;
    }
    *value = (proa_str){equals + 1, text.len - (size_t)(equals + 1 - text.ptr)};
    return (proa_str){text.ptr, (size_t)(equals - text.ptr)};
}

static proa_status read_numbers(const reader *r, proa_str text, const char *key, proa_forest_numbers *out)
{
    const char *p = text.ptr, *end = text.ptr + text.len;
    double v;
    out->count = 0;
    for (;;) {
        while (p < end && (*p == ' ' || *p == '\t')) p++;
        if (p == end) return PROA_OK;
        if (!proa_forest_number(&p, end, false, &v) || (p < end && *p != ' ' && *p != '\t'))
            return PROA_FAIL(r->b.err, CORRUPT, "%s: value %lld is not a number", key, (long long)out->count);
        proa_forest_numbers_push(out, v);
    }
}

static proa_status read_number(const reader *r, proa_str text, const char *key, double *out)
{
    const char *p = text.ptr, *end = text.ptr + text.len;
    if (!proa_forest_number(&p, end, false, out) || p != end)
        return PROA_FAIL(r->b.err, CORRUPT, "%s is not a number", key);
    return PROA_OK;
}

/* ---- the lines before the trees ---- */

/* Reads up to the first "Tree=" or "end of trees", which stays unread. */
static proa_status read_head(reader *r)
{
    proa_str text, key, value;
    for (const char *before = r->ptr; next_line(r, &text); before = r->ptr) {
        key = take_key(text, &value);
        if (proa_str_is(key, "Tree") || proa_str_is(key, "end of trees")) {
            r->ptr = before;
            return PROA_OK;
        }
        if (proa_str_is(key, "num_class")) PROA_TRY(read_number(r, value, "num_class", &r->classes));
        else if (proa_str_is(key, "num_tree_per_iteration"))
            PROA_TRY(read_number(r, value, "num_tree_per_iteration", &r->per_round));
        else if (proa_str_is(key, "max_feature_idx"))
            PROA_TRY(read_number(r, value, "max_feature_idx", &r->last_feature));
        else if (proa_str_is(key, "objective")) r->objective = value;
        else if (proa_str_is(key, "version")) r->version = value;
        else if (proa_str_is(key, "average_output")) r->average = true;
    }
    return PROA_OK;
}

static bool next_word(proa_str *text, proa_str *word)
{
    while (text->len > 0 && text->ptr[0] == ' ') text->ptr++, text->len--;
    *word = (proa_str){text->ptr, 0};
    while (word->len < text->len && text->ptr[word->len] != ' ') word->len++;
    text->ptr += word->len;
    text->len -= word->len;
    return word->len > 0;
}

/* "binary sigmoid:1", "multiclass num_class:3", "regression sqrt"; absent for a user-defined objective. */
static proa_status set_objective(reader *r)
{
    proa_forest *f = r->b.f;
    proa_str text = r->objective, word;
    const objective *o = NULL;
    char name[40];
    if (!next_word(&text, &word)) word = proa_str_c("custom");
    for (size_t i = 0; i < PROA_COUNT(OBJECTIVES); i++)
        if (proa_str_is(word, OBJECTIVES[i].name)) o = &OBJECTIVES[i];
    proa_forest_name(name, sizeof name, word);
    if (!o) return PROA_FAIL(r->b.err, UNSUPPORTED, "objective '%s' is not known", name);
    memcpy(f->objective, name, sizeof name);
    f->task = o->task;
    f->transform = o->transform;
    while (next_word(&text, &word)) {
        if (o->sqrt && proa_str_is(word, "sqrt")) f->transform = PROA_FOREST_SIGNED_SQUARE;
        if (!proa_str_starts(word, proa_str_c("sigmoid:"))) continue;
        word = (proa_str){word.ptr + 8, word.len - 8};
        PROA_TRY(read_number(r, word, "sigmoid", &f->alpha));
        if (!(f->alpha > 0)) return PROA_FAIL(r->b.err, INVALID, "sigmoid is %g, must be above 0", f->alpha);
    }
    return PROA_OK;
}

static proa_status set_head(reader *r)
{
    proa_forest *f = r->b.f;
    int64_t features, outputs;
    if (r->per_round < 0) r->per_round = r->classes; /* before 2.1 */
    PROA_TRY(proa_forest_integer(r->last_feature, 0, PROA_FOREST_FEATURES_MAX - 1, "max_feature_idx",
                                 &features, r->b.err));
    PROA_TRY(proa_forest_integer(r->per_round, 1, PROA_FOREST_OUTPUTS_MAX, "num_tree_per_iteration", &outputs,
                                 r->b.err));
    PROA_TRY(proa_forest_outputs(&r->b, 1, outputs));
    PROA_TRY(set_objective(r));
    f->features = (int32_t)features + 1;
    f->f64 = true;
    f->truncate_negative = true;
    if (outputs > 1) f->task = PROA_FOREST_MULTICLASS;
    proa_forest_name(f->version, sizeof f->version, r->version);
    return PROA_OK;
}

/* ---- a tree ---- */

static proa_status check_count(const reader *r, line l, int64_t count)
{
    if (r->of[l].count == count) return PROA_OK;
    return PROA_FAIL(r->b.err, CORRUPT, "%s has %lld values, must have %lld", LINE_KEYS[l],
                     (long long)r->of[l].count, (long long)count);
}

/* Reads the lines of a tree, up to a blank line. */
static proa_status read_lines(reader *r)
{
    proa_str text, key, value;
    r->listed = 0;
    for (int i = 0; i < LINES; i++) r->of[i].count = 0;
    while (next_line(r, &text) && text.len > 0) {
        key = take_key(text, &value);
        for (int i = 0; i < LINES; i++)
            if (proa_str_is(key, LINE_KEYS[i])) PROA_TRY(read_numbers(r, value, LINE_KEYS[i], &r->of[i]));
    }
    return PROA_OK;
}

/* A node of the draft: inner nodes first, then the leaves, which the file counts -1, -2, ... */
static proa_status to_node(const reader *r, double child, int64_t leaves, const char *what, int32_t *out)
{
    int64_t v;
    PROA_TRY(proa_forest_integer(child, -leaves, leaves - 2, what, &v, r->b.err));
    *out = (int32_t)(v >= 0 ? v : leaves - 2 - v);
    return PROA_OK;
}

/* Inputs within ZERO of 0 count as 0: moves the threshold so that they all go to the side of 0. */
static double move_threshold(double t)
{
    if (t >= -PROA_FOREST_ZERO && t < 0) return nextafter(-PROA_FOREST_ZERO, -INFINITY);
    if (t >= 0 && t < PROA_FOREST_ZERO) return PROA_FOREST_ZERO;
    return t;
}

static void fill_numerical(proa_forest_node *n, double threshold, int decision)
{
    int missing = decision >> 2 & 3;
    bool left = missing == MISSING_ZERO || missing == MISSING_NAN ? (decision & DEFAULT_LEFT) != 0
                                                                  : 0 <= threshold;
    n->value = move_threshold(threshold);
    n->op = PROA_FOREST_LE;
    n->flags = (uint8_t)((left ? PROA_FOREST_DEFAULT_LEFT : 0) |
                         (missing == MISSING_ZERO ? PROA_FOREST_ZERO_MISSING : 0));
}

/* The threshold is the index of the set; other values, also NaN, go right. */
static proa_status fill_categorical(reader *r, proa_forest_node *n, double threshold)
{
    const proa_forest_numbers *bounds = &r->of[LINE_CAT_BOUNDS], *words = &r->of[LINE_CAT_WORDS];
    int64_t number, first, end, word;
    PROA_TRY(proa_forest_integer(threshold, 0, bounds->count - 2, "threshold of a categorical split", &number,
                                 r->b.err));
    PROA_TRY(proa_forest_integer(bounds->v[number], 0, words->count, "cat_boundaries", &first, r->b.err));
    PROA_TRY(proa_forest_integer(bounds->v[number + 1], first, words->count, "cat_boundaries", &end, r->b.err));
    r->listed += end - first; /* no two splits share a set: otherwise small files could describe large forests */
    if (r->listed > words->count)
        return PROA_FAIL(r->b.err, CORRUPT, "set %lld is of several splits", (long long)number);
    PROA_TRY(proa_forest_add_set(&r->b, end - first, &n->aux));
    for (int64_t i = first; i < end; i++) {
        PROA_TRY(proa_forest_integer(words->v[i], 0, UINT32_MAX, "cat_threshold", &word, r->b.err));
        proa_forest_words(&r->b, n->aux)[i - first] = (uint32_t)word;
    }
    n->flags = PROA_FOREST_CATEGORICAL | PROA_FOREST_MEMBER_LEFT;
    return PROA_OK;
}

static proa_status fill_split(reader *r, int64_t i, int64_t leaves, bool categories)
{
    proa_forest_node *n = &r->b.draft[i];
    int64_t feature, decision = 0;
    PROA_TRY(proa_forest_integer(r->of[LINE_FEATURE].v[i], 0, PROA_FOREST_FEATURES_MAX - 1, "split_feature",
                                 &feature, r->b.err));
    PROA_TRY(to_node(r, r->of[LINE_LEFT].v[i], leaves, "left_child", &n->left));
    PROA_TRY(to_node(r, r->of[LINE_RIGHT].v[i], leaves, "right_child", &n->right));
    if (r->of[LINE_DECISION].count > 0)
        PROA_TRY(proa_forest_integer(r->of[LINE_DECISION].v[i], INT8_MIN, INT8_MAX, "decision_type",
                                     &decision, r->b.err));
    n->feature = (int32_t)feature;
    if (categories && (decision & CATEGORICAL)) return fill_categorical(r, n, r->of[LINE_THRESHOLD].v[i]);
    fill_numerical(n, r->of[LINE_THRESHOLD].v[i], (int)decision);
    return PROA_OK;
}

static proa_status check_lines(const reader *r, int64_t leaves, int64_t cats)
{
    static const line INNER[] = {LINE_FEATURE, LINE_THRESHOLD, LINE_LEFT, LINE_RIGHT};
    PROA_TRY(check_count(r, LINE_VALUE, leaves));
    if (leaves == 1) return PROA_OK;
    for (size_t i = 0; i < PROA_COUNT(INNER); i++) PROA_TRY(check_count(r, INNER[i], leaves - 1));
    if (r->of[LINE_DECISION].count > 0) PROA_TRY(check_count(r, LINE_DECISION, leaves - 1));
    return cats > 0 ? check_count(r, LINE_CAT_BOUNDS, cats + 1) : PROA_OK;
}

static proa_status fill_tree(reader *r, int64_t leaves, int64_t cats)
{
    const proa_forest_numbers *inner = &r->of[LINE_INNER_COUNT], *outer = &r->of[LINE_LEAF_COUNT];
    bool cover = inner->count == leaves - 1 && outer->count == leaves;
    PROA_TRY(check_lines(r, leaves, cats));
    PROA_TRY(proa_forest_draft(&r->b, 2 * leaves - 1));
    for (int64_t i = 0; i < leaves - 1; i++) PROA_TRY(fill_split(r, i, leaves, cats > 0));
    for (int64_t i = 0; i < leaves; i++) r->b.draft[leaves - 1 + i].value = r->of[LINE_VALUE].v[i];
    for (int64_t i = 0; cover && i < leaves - 1; i++) r->b.draft_cover[i] = inner->v[i];
    for (int64_t i = 0; cover && i < leaves; i++) r->b.draft_cover[leaves - 1 + i] = outer->v[i];
    if (leaves == 1)
        r->b.draft_cover[0] = outer->count == 1 ? outer->v[0] : 0; /* nothing is weighed against it */
    return PROA_OK;
}

/* Leaf i is leaf_const[i] plus the next num_features[i] products of leaf_coeff and leaf_features. */
static proa_status fill_line(reader *r, int64_t i, int64_t *taken, proa_forest_node *leaf)
{
    const proa_forest_numbers *terms = &r->of[LINE_TERMS], *slopes = &r->of[LINE_SLOPES];
    int64_t count, feature;
    PROA_TRY(proa_forest_integer(r->of[LINE_TERM_COUNT].v[i], 0, terms->count - *taken, "num_features",
                                 &count, r->b.err));
    PROA_TRY(proa_forest_add_linear_leaf(&r->b, r->of[LINE_CONSTANT].v[i], count, &leaf->aux));
    const proa_forest *f = r->b.f;
    for (int64_t k = 0, to = f->linear_leaves[leaf->aux].first; k < count; k++, to++, ++*taken) {
        PROA_TRY(proa_forest_integer(terms->v[*taken], 0, f->features - 1, "leaf_features", &feature, r->b.err));
        f->terms[to] = (int32_t)feature;
        f->slopes[to] = slopes->v[*taken];
    }
    return PROA_OK;
}

/* Makes the leaves of the draft linear. */
static proa_status fill_lines(reader *r, int64_t leaves)
{
    int64_t taken = 0;
    PROA_TRY(check_count(r, LINE_CONSTANT, leaves));
    PROA_TRY(check_count(r, LINE_TERM_COUNT, leaves));
    PROA_TRY(check_count(r, LINE_SLOPES, r->of[LINE_TERMS].count));
    for (int64_t i = 0; i < leaves; i++) PROA_TRY(fill_line(r, i, &taken, &r->b.draft[leaves - 1 + i]));
    return check_count(r, LINE_TERMS, taken);
}

static proa_status read_tree(reader *r)
{
    int64_t leaves, cats = 0;
    PROA_TRY(read_lines(r));
    PROA_TRY(check_count(r, LINE_LEAVES, 1));
    PROA_TRY(proa_forest_integer(r->of[LINE_LEAVES].v[0], 1, PROA_FOREST_TREE_NODES_MAX / 2, "num_leaves",
                                 &leaves, r->b.err));
    if (r->of[LINE_CATS].count > 0)
        PROA_TRY(proa_forest_integer(r->of[LINE_CATS].v[0], 0, PROA_FOREST_TREE_NODES_MAX, "num_cat", &cats,
                                     r->b.err));
    PROA_TRY(fill_tree(r, leaves, cats));
    if (r->of[LINE_LINEAR].count > 0 && r->of[LINE_LINEAR].v[0] != 0) PROA_TRY(fill_lines(r, leaves));
    return proa_forest_add(&r->b, 2 * leaves - 1, (int32_t)(r->b.f->tree_count % r->b.f->outputs), 1);
}

/* ---- the file ---- */

/* Reads the trees, separated by blank lines, up to "end of trees". */
static proa_status read_trees(reader *r)
{
    proa_str text, value;
    while (next_line(r, &text)) {
        if (text.len == 0) continue;
        if (!proa_str_is(take_key(text, &value), "Tree")) break;
        proa_status status = read_tree(r);
        if (status == PROA_OK) continue;
        proa_err_prefix(r->b.err, "tree %lld", (long long)r->b.f->tree_count);
        return status;
    }
    return PROA_OK;
}

static proa_status read_file(reader *r)
{
    proa_str first;
    if (!next_line(r, &first) || !proa_str_is(first, "tree"))
        return PROA_FAIL(r->b.err, CORRUPT, "the first line is not \"tree\": not a model of LightGBM");
    PROA_TRY(read_head(r));
    PROA_TRY(set_head(r));
    PROA_TRY(read_trees(r));
    proa_forest *f = r->b.f;
    if (f->tree_count % f->outputs != 0)
        return PROA_FAIL(r->b.err, CORRUPT, "%lld trees, each round has %d", (long long)f->tree_count,
                         f->outputs);
    if (r->average && f->tree_count > 0)
        for (int32_t i = 0; i < f->outputs; i++) f->divisor[i] = (int32_t)(f->tree_count / f->outputs);
    return PROA_OK;
}

proa_status proa_forest_read_lightgbm(proa_forest **out, proa_str bytes, proa_err *err)
{
    reader r = {.ptr = bytes.ptr, .end = bytes.ptr + bytes.len, .classes = 1, .per_round = -1, .last_feature = -1};
    r.objective = r.version = proa_str_c("");
    proa_forest_begin(&r.b, PROA_FOREST_LIGHTGBM, PROA_FOREST_OF_LIGHTGBM, err);
    proa_status status = read_file(&r);
    if (status == PROA_OK) status = proa_forest_finish(&r.b, out);
    else proa_forest_drop(&r.b);
    for (int i = 0; i < LINES; i++) proa_forest_numbers_release(&r.of[i]);
    return status;
}
