/* SPDX-License-Identifier: Apache-2.0
 * treelite.c - checkpoints of treelite 3.9 and 4.x: fields one after the other, as in memory, little-endian.
 * A scalar is its bytes; an array is a count (u64) and its items; a string is an array of bytes. 4.x: header,
 * then trees
 *   as one array for each field. 3.9: trees as arrays of structs, with C's padding, of which the offsets are below.
 *   Optional fields of later versions (name, bytes of an item, count, items) are passed over, as treelite does. */
#include "forest/readers.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"

enum { TYPE_F32 = 2, TYPE_F64 = 3 }; /* treelite's TypeInfo */
enum { TASK_BINARY, TASK_REGRESSION, TASK_MULTICLASS, TASK_RANKING, TASK_ISOLATION, TASKS };
enum { V3_REGRESSION, V3_GROVE_PER_CLASS, V3_VECTOR }; /* 3.9's task types */
enum { CMP_EQ = 1, CMP_LT, CMP_LE, CMP_GT, CMP_GE };   /* treelite's Operator */
enum { CATEGORY_NODE = 2 };                            /* 4.x: TreeNodeType; 3.9: SplitFeatureType */

#define OPTIONAL_MAX 1024 /* optional fields in one place */

/* The items of a field within the file, perhaps unaligned. */
typedef struct array {
    const char *ptr;
    int64_t count;
} array;

typedef struct reader {
    const char *start, *ptr, *end;
    proa_forest_builder b;
    int32_t version[3];
    bool f64;
    uint8_t average;
    int32_t fewest_classes; /* of any target */
    uint64_t trees;
    array target_id, class_id; /* int32, one a tree; of 3.9: empty */
    int32_t v3_task;
} reader;

/* One tree's fields; `at` reads them alike for both versions. */
typedef struct tree {
    int32_t nodes;
    array type, left, right, feature, default_left, value, threshold, cmp, list_right;
    array vector, vector_begin, vector_end, list, list_begin, list_end;
    array data_count, has_data_count, sum_hess, has_sum_hess;
    array structs;            /* 3.9 */
    int64_t listed, vectored; /* items of list and vector that nodes took so far */
} tree;

/* ---- bytes ---- */

static proa_status take_bytes(reader *r, void *to, size_t bytes)
{
    if ((size_t)(r->end - r->ptr) < bytes)
        return PROA_FAIL(r->b.err, CORRUPT, "the file ends at byte %lld, within a field",
                         (long long)(r->end - r->start));
    memcpy(to, r->ptr, bytes);
    r->ptr += bytes;
    return PROA_OK;
}

static proa_status take_array(reader *r, int64_t bytes, array *out)
{
    uint64_t count = 0;
    int64_t at = r->ptr - r->start;
    PROA_TRY(take_bytes(r, &count, sizeof count));
    if (count > (uint64_t)((r->end - r->ptr) / bytes))
        return PROA_FAIL(r->b.err, CORRUPT, "byte %lld: an array of %llu items, the file ends before",
                         (long long)at, (unsigned long long)count);
    *out = (array){r->ptr, (int64_t)count};
    r->ptr += (int64_t)count * bytes;
    return PROA_OK;
}

static proa_status skip_optional(reader *r)
{
    int32_t fields = 0;
    array name = {0};
    uint64_t bytes = 0;
    PROA_TRY(take_bytes(r, &fields, sizeof fields));
    if (fields < 0 || fields > OPTIONAL_MAX)
        return PROA_FAIL(r->b.err, CORRUPT, "%d optional fields", fields);
    for (int32_t i = 0; i < fields; i++) {
        PROA_TRY(take_array(r, 1, &name));
        PROA_TRY(take_bytes(r, &bytes, sizeof bytes));
        if (bytes == 0 || bytes > (uint64_t)PROA_MIB)
            return PROA_FAIL(r->b.err, CORRUPT, "an optional field's size");
        PROA_TRY(take_array(r, (int64_t)bytes, &name));
    }
    return PROA_OK;
}

static int32_t i32_at(const char *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t u64_at(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static double f64_at(const char *p)
{
    double v;
    memcpy(&v, p, sizeof v);
    return v;
}

static double real_at(const reader *r, const char *p)
{
    float f;
    if (r->f64) return f64_at(p);
    memcpy(&f, p, sizeof f);
    return (double)f;
}

static int32_t item_i32(array a, int64_t i)
{
    return i32_at(a.ptr + 4 * i);
}

/* ---- the header ---- */

static proa_status take_version(reader *r)
{
    PROA_TRY(take_bytes(r, r->version, sizeof r->version));
    snprintf(r->b.f->version, sizeof r->b.f->version, "%d.%d.%d", r->version[0], r->version[1], r->version[2]);
    if (r->version[0] == 4 || (r->version[0] == 3 && r->version[1] == 9)) return PROA_OK;
    return PROA_FAIL(r->b.err, UNSUPPORTED, "checkpoint of treelite %.31s, those of 3.9 and 4.x are read",
                     r->b.f->version);
}

static proa_status take_types(reader *r)
{
    uint8_t types[2] = {0};
    PROA_TRY(take_bytes(r, types, sizeof types));
    if (types[0] != types[1] || (types[0] != TYPE_F32 && types[0] != TYPE_F64))
        return PROA_FAIL(r->b.err, UNSUPPORTED,
                         "thresholds of type %d and leaves of type %d, float32 and float64 are read",
                         types[0], types[1]);
    r->f64 = r->b.f->f64 = types[0] == TYPE_F64;
    PROA_TRY(take_bytes(r, &r->trees, sizeof r->trees));
    if (r->trees > PROA_FOREST_TREES_MAX)
        return PROA_FAIL(r->b.err, LIMIT, "%llu trees, at most %d are read", (unsigned long long)r->trees,
                         PROA_FOREST_TREES_MAX);
    return PROA_OK;
}

static proa_status set_transform(reader *r, proa_str name)
{
    char shown[40];
    if (proa_str_is(name, "max_index")) name = proa_str_c("softmax"); /* of 3.9: as treelite 4 takes it */
    if (proa_str_is(name, "identity_multiclass")) name = proa_str_c("identity");
    for (int i = 0; i < PROA_FOREST_TRANSFORMS; i++) {
        if (!proa_str_is(name, proa_forest_transform_name((proa_forest_transform)i))) continue;
        r->b.f->transform = (proa_forest_transform)i;
        return PROA_OK;
    }
    proa_forest_name(shown, sizeof shown, name);
    return PROA_FAIL(r->b.err, UNSUPPORTED, "postprocessor '%s' is not known", shown);
}

static proa_status take_parameters(reader *r)
{
    float alpha = 1, ratio = 1;
    PROA_TRY(take_bytes(r, &alpha, sizeof alpha));
    PROA_TRY(take_bytes(r, &ratio, sizeof ratio));
    r->b.f->alpha = (double)alpha;
    r->b.f->ratio = (double)ratio;
    return PROA_OK;
}

/* One for each output, or one for all. */
static proa_status set_base(reader *r, array scores)
{
    proa_forest *f = r->b.f;
    if (scores.count != f->outputs && scores.count != 1)
        return PROA_FAIL(r->b.err, CORRUPT, "%lld base scores for %d outputs", (long long)scores.count,
                         f->outputs);
    for (int32_t i = 0; i < f->outputs; i++)
        f->base[i] = f64_at(scores.ptr + 8 * (scores.count == 1 ? 0 : i));
    return PROA_OK;
}

static proa_status set_classes(reader *r, int32_t targets, array classes)
{
    proa_forest *f = r->b.f;
    int32_t most = 1;
    if (targets < 1 || classes.count != targets)
        return PROA_FAIL(r->b.err, CORRUPT, "num_class has %lld values for %d targets",
                         (long long)classes.count, targets);
    for (int32_t i = 0; i < targets; i++) {
        if (item_i32(classes, i) < 1) return PROA_FAIL(r->b.err, CORRUPT, "target %d has no classes", i);
        if (item_i32(classes, i) > most) most = item_i32(classes, i);
        if (i == 0 || item_i32(classes, i) < r->fewest_classes) r->fewest_classes = item_i32(classes, i);
    }
    PROA_TRY(proa_forest_outputs(&r->b, targets, most));
    for (int32_t i = 0; i < targets; i++) f->target_classes[i] = item_i32(classes, i);
    return PROA_OK;
}

static proa_status set_task(reader *r, uint8_t task)
{
    static const proa_forest_task OF[TASKS] = {PROA_FOREST_BINARY, PROA_FOREST_REGRESSION, PROA_FOREST_MULTICLASS,
                                               PROA_FOREST_RANKING, PROA_FOREST_ISOLATION};
    if (task >= TASKS) return PROA_FAIL(r->b.err, UNSUPPORTED, "task type %d is not known", task);
    r->b.f->task = r->b.f->classes > 1 ? PROA_FOREST_MULTICLASS : OF[task];
    return PROA_OK;
}

static proa_status set_leaf_shape(reader *r, array shape)
{
    proa_forest *f = r->b.f;
    bool ok = shape.count == 2 && (item_i32(shape, 0) == 1 || item_i32(shape, 0) == f->targets) &&
              (item_i32(shape, 1) == 1 || item_i32(shape, 1) == f->classes);
    if (!ok) return PROA_FAIL(r->b.err, CORRUPT, "leaf_vector_shape is not of this model's outputs");
    f->leaf_size = item_i32(shape, 0) * item_i32(shape, 1);
    return PROA_OK;
}

static proa_status take_header_4(reader *r)
{
    uint8_t task = 0;
    int32_t targets = 0;
    array classes = {0}, shape = {0}, name = {0}, scores = {0}, attributes = {0};
    PROA_TRY(take_bytes(r, &r->b.f->features, sizeof r->b.f->features));
    PROA_TRY(take_bytes(r, &task, sizeof task));
    PROA_TRY(take_bytes(r, &r->average, 1));
    PROA_TRY(take_bytes(r, &targets, sizeof targets));
    PROA_TRY(take_array(r, 4, &classes));
    PROA_TRY(take_array(r, 4, &shape));
    PROA_TRY(take_array(r, 4, &r->target_id));
    PROA_TRY(take_array(r, 4, &r->class_id));
    PROA_TRY(take_array(r, 1, &name));
    PROA_TRY(take_parameters(r));
    PROA_TRY(take_array(r, 8, &scores));
    PROA_TRY(take_array(r, 1, &attributes));
    PROA_TRY(skip_optional(r));
    if (r->target_id.count != (int64_t)r->trees || r->class_id.count != (int64_t)r->trees)
        return PROA_FAIL(r->b.err, CORRUPT, "target_id and class_id are not one for each tree");
    PROA_TRY(set_classes(r, targets, classes));
    PROA_TRY(set_task(r, task));
    PROA_TRY(set_leaf_shape(r, shape));
    PROA_TRY(set_transform(r, (proa_str){name.ptr, (size_t)name.count}));
    return set_base(r, scores);
}

/* 3.9: u8 task, bool average; {u8 output type, bool grove per class, 2 padding, u32 classes, u32 leaf size}; {char
 * transform[256], f32 alpha, ratio, bias}. One target. */
static proa_status take_header_3(reader *r)
{
    proa_forest *f = r->b.f;
    uint8_t task = 0, kind[4] = {0};
    int32_t sizes[2] = {0};
    char name[256];
    float bias = 0;
    PROA_TRY(take_bytes(r, &f->features, sizeof f->features));
    PROA_TRY(take_bytes(r, &task, sizeof task));
    PROA_TRY(take_bytes(r, &r->average, 1));
    PROA_TRY(take_bytes(r, kind, sizeof kind));
    PROA_TRY(take_bytes(r, sizes, sizeof sizes));
    PROA_TRY(take_bytes(r, name, sizeof name));
    PROA_TRY(take_parameters(r));
    PROA_TRY(take_bytes(r, &bias, sizeof bias));
    PROA_TRY(skip_optional(r));
    if (task > V3_VECTOR || kind[0] != 0)
        return PROA_FAIL(r->b.err, UNSUPPORTED, "task type %d with outputs of type %d: only floats are read",
                         task, kind[0]);
    r->v3_task = task;
    PROA_TRY(proa_forest_outputs(&r->b, 1, sizes[0]));
    r->fewest_classes = sizes[0];
    PROA_TRY(set_transform(r, (proa_str){name, strnlen(name, sizeof name)}));
    f->leaf_size = task == V3_VECTOR ? f->outputs : 1;
    if (sizes[1] != f->leaf_size) return PROA_FAIL(r->b.err, CORRUPT, "leaves of %d values", sizes[1]);
    f->task = f->transform == PROA_FOREST_SIGMOID ? PROA_FOREST_BINARY : PROA_FOREST_REGRESSION;
    if (task != V3_REGRESSION && f->classes > 1) f->task = PROA_FOREST_MULTICLASS;
    for (int32_t i = 0; i < f->outputs; i++) f->base[i] = (double)bias;
    return PROA_OK;
}

/* ---- a tree's fields ---- */

static proa_status take_arrays_4(reader *r, tree *t)
{
    int64_t real = r->f64 ? 8 : 4;
    array gain = {0};
    PROA_TRY(take_array(r, 1, &t->type));
    PROA_TRY(take_array(r, 4, &t->left));
    PROA_TRY(take_array(r, 4, &t->right));
    PROA_TRY(take_array(r, 4, &t->feature));
    PROA_TRY(take_array(r, 1, &t->default_left));
    PROA_TRY(take_array(r, real, &t->value));
    PROA_TRY(take_array(r, real, &t->threshold));
    PROA_TRY(take_array(r, 1, &t->cmp));
    PROA_TRY(take_array(r, 1, &t->list_right));
    PROA_TRY(take_array(r, real, &t->vector));
    PROA_TRY(take_array(r, 8, &t->vector_begin));
    PROA_TRY(take_array(r, 8, &t->vector_end));
    PROA_TRY(take_array(r, 4, &t->list));
    PROA_TRY(take_array(r, 8, &t->list_begin));
    PROA_TRY(take_array(r, 8, &t->list_end));
    PROA_TRY(take_array(r, 8, &t->data_count));
    PROA_TRY(take_array(r, 1, &t->has_data_count));
    PROA_TRY(take_array(r, 8, &t->sum_hess));
    PROA_TRY(take_array(r, 1, &t->has_sum_hess));
    PROA_TRY(take_array(r, 8, &gain));
    return take_array(r, 1, &gain);
}

static proa_status check_counts_4(const reader *r, const tree *t)
{
    const array *all[] = {&t->type,       &t->left,       &t->right,   &t->feature,    &t->default_left,
                          &t->value,      &t->threshold,  &t->cmp,     &t->list_right, &t->vector_begin,
                          &t->vector_end, &t->list_begin, &t->list_end};
    const array *optional[] = {&t->data_count, &t->has_data_count, &t->sum_hess, &t->has_sum_hess};
    for (size_t i = 0; i < PROA_COUNT(all); i++)
        if (all[i]->count != t->nodes)
            return PROA_FAIL(r->b.err, CORRUPT, "field %d has %lld items for %d nodes", (int)i,
                             (long long)all[i]->count, t->nodes);
    for (size_t i = 0; i < PROA_COUNT(optional); i++)
        if (optional[i]->count != t->nodes && optional[i]->count != 0)
            return PROA_FAIL(r->b.err, CORRUPT, "statistic %d has %lld items for %d nodes", (int)i,
                             (long long)optional[i]->count, t->nodes);
    return PROA_OK;
}

/* Size of the struct of a node in 3.9, and the offset of what follows its leaf value or threshold. */
static int64_t struct_bytes(const reader *r)
{
    return r->f64 ? 56 : 48;
}

static proa_status take_arrays_3(reader *r, tree *t)
{
    PROA_TRY(take_array(r, struct_bytes(r), &t->structs));
    PROA_TRY(take_array(r, r->f64 ? 8 : 4, &t->vector));
    PROA_TRY(take_array(r, 8, &t->vector_begin));
    PROA_TRY(take_array(r, 8, &t->vector_end));
    PROA_TRY(take_array(r, 4, &t->list));
    PROA_TRY(take_array(r, 8, &t->list_begin)); /* nodes + 1 of them: where one ends, the next begins */
    if (t->structs.count != t->nodes || t->vector_begin.count != t->nodes ||
        t->vector_end.count != t->nodes || t->list_begin.count != (int64_t)t->nodes + 1)
        return PROA_FAIL(r->b.err, CORRUPT, "fields that are not one for each of %d nodes", t->nodes);
    t->list_end = (array){t->list_begin.ptr + 8, t->nodes};
    return PROA_OK;
}

static proa_status take_tree(reader *r, tree *t)
{
    uint8_t categories = 0;
    PROA_TRY(take_bytes(r, &t->nodes, sizeof t->nodes));
    PROA_TRY(take_bytes(r, &categories, sizeof categories));
    if (r->version[0] == 3) {
        PROA_TRY(take_arrays_3(r, t));
    } else {
        PROA_TRY(take_arrays_4(r, t));
        PROA_TRY(check_counts_4(r, t));
    }
    PROA_TRY(skip_optional(r));
    return skip_optional(r);
}

/* ---- a node ---- */

/* What both versions say of one. */
typedef struct node {
    int32_t left, right;
    int64_t feature;
    double value; /* leaf or threshold */
    double cover;
    int cmp;
    bool default_left, category, list_right;
} node;

static double cover_4(const tree *t, int64_t i)
{
    if (t->has_sum_hess.count > 0 && t->sum_hess.count > 0 && t->has_sum_hess.ptr[i])
        return f64_at(t->sum_hess.ptr + 8 * i);
    if (t->has_data_count.count > 0 && t->data_count.count > 0 && t->has_data_count.ptr[i])
        return (double)u64_at(t->data_count.ptr + 8 * i);
    return -1;
}

static node node_4(const reader *r, const tree *t, int64_t i)
{
    node n = {.left = item_i32(t->left, i),
              .right = item_i32(t->right, i),
              .feature = item_i32(t->feature, i),
              .cover = cover_4(t, i),
              .cmp = t->cmp.ptr[i],
              .default_left = t->default_left.ptr[i] != 0,
              .category = t->type.ptr[i] == CATEGORY_NODE,
              .list_right = t->list_right.ptr[i] != 0};
    const array *from = n.left == -1 ? &t->value : &t->threshold;
    n.value = real_at(r, from->ptr + (r->f64 ? 8 : 4) * i);
    return n;
}

/* i32 left, right; u32 feature, its top bit the default side; value; u64 rows; f64 hessians, gain; i8 kind, operator;
 * bool has rows, has hessians, has gain, list is the right child's. */
static node node_3(const reader *r, const tree *t, int64_t i)
{
    const char *p = t->structs.ptr + struct_bytes(r) * i;
    const char *rest = p + (r->f64 ? 24 : 16);
    const char *flags = rest + 24;
    uint32_t feature = (uint32_t)i32_at(p + 8);
    node n = {.left = i32_at(p),
              .right = i32_at(p + 4),
              .feature = feature & 0x7fffffff,
              .value = real_at(r, p + (r->f64 ? 16 : 12)),
              .cmp = flags[1],
              .default_left = feature >> 31,
              .category = flags[0] == CATEGORY_NODE,
              .list_right = flags[5] != 0};
    n.cover = flags[3] ? f64_at(rest + 8) : (flags[2] ? (double)u64_at(rest) : -1);
    return n;
}

/* Items [begin[i], end[i]) of a list. No two nodes share items: otherwise small files could describe large
 * forests. */
static proa_status take_range(const reader *r, array begin, array end, int64_t i, int64_t items,
                              int64_t *taken, int64_t *first, int64_t *count)
{
    uint64_t from = u64_at(begin.ptr + 8 * i), to = u64_at(end.ptr + 8 * i);
    if (from > to || to > (uint64_t)items)
        return PROA_FAIL(r->b.err, CORRUPT, "node %lld: items %llu to %llu of %lld", (long long)i,
                         (unsigned long long)from, (unsigned long long)to, (long long)items);
    *first = (int64_t)from;
    *count = (int64_t)(to - from);
    *taken += *count;
    if (*taken > items)
        return PROA_FAIL(r->b.err, CORRUPT, "node %lld has items of other nodes", (long long)i);
    return PROA_OK;
}

static proa_status fill_set(reader *r, tree *t, int64_t i, int32_t *set)
{
    int64_t first = 0, count = 0;
    uint32_t most = 0;
    PROA_TRY(take_range(r, t->list_begin, t->list_end, i, t->list.count, &t->listed, &first, &count));
    for (int64_t k = first; k < first + count; k++) {
        uint32_t c = (uint32_t)item_i32(t->list, k);
        if (c >= PROA_FOREST_CATEGORIES_MAX)
            return PROA_FAIL(r->b.err, LIMIT, "category %u, they are read below %d", c,
                             PROA_FOREST_CATEGORIES_MAX);
        most = c > most ? c : most;
    }
    PROA_TRY(proa_forest_add_set(&r->b, count == 0 ? 0 : (int64_t)most / 32 + 1, set));
    uint32_t *words = proa_forest_words(&r->b, *set);
    for (int64_t k = first; k < first + count; k++) {
        uint32_t c = (uint32_t)item_i32(t->list, k);
        words[c / 32] |= UINT32_C(1) << (c % 32);
    }
    return PROA_OK;
}

static proa_status fill_split(reader *r, tree *t, int64_t i, const node *from)
{
    static const uint8_t OPS[] = {
        [CMP_EQ] = PROA_FOREST_EQ, [CMP_LT] = PROA_FOREST_LT, [CMP_LE] = PROA_FOREST_LE,
        [CMP_GT] = PROA_FOREST_GT, [CMP_GE] = PROA_FOREST_GE,
    };
    proa_forest_node *n = &r->b.draft[i];
    if (from->feature < 0 || from->feature >= PROA_FOREST_FEATURES_MAX)
        return PROA_FAIL(r->b.err, CORRUPT, "node %lld: feature %lld", (long long)i, (long long)from->feature);
    n->left = from->left;
    n->right = from->right;
    n->feature = (int32_t)from->feature;
    n->flags = from->default_left ? PROA_FOREST_DEFAULT_LEFT : 0;
    if (from->category) {
        n->flags |= (uint8_t)(PROA_FOREST_CATEGORICAL | (from->list_right ? 0 : PROA_FOREST_MEMBER_LEFT));
        return fill_set(r, t, i, &n->aux);
    }
    if (from->cmp < CMP_EQ || from->cmp > CMP_GE)
        return PROA_FAIL(r->b.err, CORRUPT, "node %lld: comparison %d is not known", (long long)i, from->cmp);
    n->op = OPS[from->cmp];
    n->value = from->value;
    return PROA_OK;
}

/* The first classes of each target count; the rest of its row is 0. */
static void clear_padding(const proa_forest *f, double *values, int32_t output)
{
    for (int32_t k = 0; k < f->leaf_size; k++)
        if ((output + k) % f->classes >= f->target_classes[(output + k) / f->classes]) values[k] = 0;
}

static proa_status fill_leaf(reader *r, tree *t, int64_t i, double value)
{
    proa_forest *f = r->b.f;
    int64_t first = 0, count = 0;
    double *values = NULL;
    PROA_TRY(take_range(r, t->vector_begin, t->vector_end, i, t->vector.count, &t->vectored, &first, &count));
    if (count > 0 ? count != f->leaf_size : f->leaf_size != 1)
        return PROA_FAIL(r->b.err, CORRUPT, "leaf %lld has %lld values, must have %d", (long long)i,
                         (long long)count, f->leaf_size);
    int64_t real = r->f64 ? 8 : 4;
    if (f->leaf_size == 1) {
        r->b.draft[i].value = count > 0 ? real_at(r, t->vector.ptr + real * first) : value;
        return PROA_OK;
    }
    PROA_TRY(proa_forest_add_vector(&r->b, &r->b.draft[i].aux, &values));
    for (int64_t k = 0; k < count; k++) values[k] = real_at(r, t->vector.ptr + real * (first + k));
    return PROA_OK;
}

static proa_status fill_tree(reader *r, tree *t)
{
    PROA_TRY(proa_forest_draft(&r->b, t->nodes));
    for (int64_t i = 0; i < t->nodes; i++) {
        node n = r->version[0] == 3 ? node_3(r, t, i) : node_4(r, t, i);
        r->b.draft_cover[i] = n.cover;
        PROA_TRY(n.left == -1 ? fill_leaf(r, t, i, n.value) : fill_split(r, t, i, &n));
    }
    return PROA_OK;
}

/* ---- where a tree's values go ---- */

static void find_ids(const reader *r, int64_t number, int32_t *target, int32_t *class)
{
    if (r->version[0] == 4) {
        *target = item_i32(r->target_id, number);
        *class = item_i32(r->class_id, number);
    } else if (r->v3_task != V3_REGRESSION) {
        *class = r->v3_task == V3_VECTOR ? -1 : (int32_t)(number % r->b.f->classes);
    }
}

/* Target or class -1: the leaves have one value for each. */
static proa_status find_outputs(const reader *r, int64_t number, int32_t *output, int32_t *stride)
{
    const proa_forest *f = r->b.f;
    int32_t target = 0, class = 0;
    find_ids(r, number, &target, &class);
    int32_t classes = target >= 0 && target < f->targets ? f->target_classes[target] : r->fewest_classes;
    bool ok = target >= -1 && target < f->targets && class >= -1 && class < classes;
    int64_t values = (target < 0 ? (int64_t)f->targets : 1) * (class < 0 ? f->classes : 1);
    if (!ok || values != f->leaf_size)
        return PROA_FAIL(r->b.err, CORRUPT, "target %d and class %d for leaves of %d values", target, class,
                         f->leaf_size);
    *stride = target < 0 && class >= 0 && f->targets > 1 ? f->classes : 1;
    *output = (int32_t)proa_max64(target, 0) * f->classes + (int32_t)proa_max64(class, 0);
    return PROA_OK;
}

static proa_status read_tree(reader *r, int64_t number, int32_t *counts)
{
    proa_forest *f = r->b.f;
    int32_t output = 0, stride = 1;
    tree t = {.nodes = 0};
    int64_t vectors = f->vector_count;
    PROA_TRY(take_tree(r, &t));
    PROA_TRY(find_outputs(r, number, &output, &stride));
    PROA_TRY(fill_tree(r, &t));
    for (int64_t i = vectors; stride == 1 && i < f->vector_count; i++)
        clear_padding(f, f->vectors + i * f->leaf_size, output);
    for (int32_t k = 0; k < f->leaf_size; k++) counts[output + k * stride]++;
    return proa_forest_add(&r->b, t.nodes, output, stride);
}

/* ---- the file ---- */

static proa_status read_trees(reader *r, int32_t *counts)
{
    for (uint64_t i = 0; i < r->trees; i++) {
        proa_status status = read_tree(r, (int64_t)i, counts);
        if (status == PROA_OK) continue;
        proa_err_prefix(r->b.err, "tree %llu", (unsigned long long)i);
        return status;
    }
    if (r->ptr != r->end)
        return PROA_FAIL(r->b.err, CORRUPT, "%lld bytes after the last tree", (long long)(r->end - r->ptr));
    return PROA_OK;
}

static proa_status read_file(reader *r)
{
    PROA_TRY(take_version(r));
    PROA_TRY(take_types(r));
    PROA_TRY(r->version[0] == 3 ? take_header_3(r) : take_header_4(r));
    proa_forest *f = r->b.f;
    int32_t *counts = proa_calloc((size_t)f->outputs, sizeof *counts);
    proa_status status = read_trees(r, counts);
    for (int32_t i = 0; status == PROA_OK && r->average && i < f->outputs; i++)
        if (counts[i] > 0) f->divisor[i] = counts[i];
    free(counts);
    return status;
}

proa_status proa_forest_read_treelite(proa_forest **out, proa_str bytes, proa_err *err)
{
    reader r = {.start = bytes.ptr, .ptr = bytes.ptr, .end = bytes.ptr + bytes.len};
    proa_forest_begin(&r.b, PROA_FOREST_TREELITE, PROA_FOREST_OF_TREELITE, err);
    proa_status status = read_file(&r);
    if (status == PROA_OK) return proa_forest_finish(&r.b, out);
    proa_forest_drop(&r.b);
    return status;
}
