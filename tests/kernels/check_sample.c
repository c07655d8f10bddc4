/* SPDX-License-Identifier: Apache-2.0
 * check_sample.c - tokens chosen from rows of logits: the same ids as the reference, whatever the cuts, with ties,
 * rows of equals, and rows that are not all numbers. */
#include "check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <float.h>
#include <math.h>

typedef struct rules {
    const char *name;
    proa_sample_params choice; /* without the random number */
} rules;

static const rules all_rules[] = {
    {"greedy", {.temperature = 0}},
    {"plain", {.temperature = 1}},
    {"cold", {.temperature = 0.25F}},
    {"top_k 1", {.temperature = 1, .top_k = 1}},
    {"top_k 50", {.temperature = 0.8F, .top_k = 50}},
    {"top_k 50, exactly", {.temperature = 1, .top_k = 50, .falling = 1}},
    {"top_k 5000", {.temperature = 1.5F, .top_k = 5000}},
    {"top_p 0.9", {.temperature = 1, .top_p = 0.9F, .rest = (float)(1 - 0.9)}},
    {"top_p 0.9 of 40", {.temperature = 0.7F, .top_k = 40, .top_p = 0.9F, .rest = (float)(1 - 0.9)}},
    {"top_p 0.3, falling", {.temperature = 1, .top_p = 0.3F, .rest = 0.7F, .falling = 1}},
    {"top_p 0.8 of 20, falling", {.temperature = 1, .top_k = 20, .top_p = 0.8F, .rest = 0.2F, .falling = 1}},
    {"min_p", {.temperature = 1, .min_p = 0.05F}},
    {"all of it", {.temperature = 1.2F, .top_k = 100, .top_p = 0.95F, .rest = (float)(1 - 0.95), .min_p = 0.01F}},
    /* the edges of the options' ranges, as proa_sampler_choice hands them on */
    {"temperature 1e-45", {.temperature = 1e-45F}},
    {"temperature 1e-38, top_p 0.9", {.temperature = 1e-38F, .top_p = 0.9F, .rest = (float)(1 - 0.9)}},
    {"temperature 10000 of 50", {.temperature = 1e4F, .top_k = 50}},
    {"top_k 2097152", {.temperature = 1, .top_k = 1 << 21}},
    {"top_p 0", {.temperature = 1, .top_p = FLT_MIN, .rest = 1}},
    {"top_p 1e-45", {.temperature = 1, .top_p = 1e-45F, .rest = 1}},
    {"top_p 0 of 40", {.temperature = 1, .top_k = 40, .top_p = FLT_MIN, .rest = 1}},
    {"top_p just below 1", {.temperature = 1, .top_p = 0.99999994F, .rest = 1e-7F}},
    {"top_p 1e-45, falling", {.temperature = 1, .top_p = 1e-45F, .rest = 1, .falling = 1}},
    {"top_p 1e-45 of 20, falling", {.temperature = 1, .top_k = 20, .top_p = 1e-45F, .rest = 1, .falling = 1}},
    {"top_p just below 1, falling", {.temperature = 1, .top_p = 0.99999994F, .rest = 1e-7F, .falling = 1}},
    {"min_p 1e-45", {.temperature = 1, .min_p = 1e-45F}},
    {"min_p 1", {.temperature = 1, .min_p = 1}},
    {"min_p 1 of 40", {.temperature = 1, .top_k = 40, .min_p = 1}},
};

/* Rows whose largest stand out as a model's do; every third of few different values, the last of equals alone. */
static canvas make_logits(int64_t rows, int64_t cols)
{
    const int64_t shape[2] = {rows, cols};
    canvas x = canvas_make(2, shape, cols % 3, cols % 4);
    canvas_fill(&x, (uint64_t)(rows * 7919 + cols), false);
    for (int64_t i = 0; i < rows; i++) {
        float *row = proa_view_f32(x.view) + i * x.view.stride[0];
        for (int64_t j = 0; j < cols; j++) {
            row[j] = row[j] * (1.0F + 0.5F * (float)(i % 7));
            if (i % 3 == 2) row[j] = rintf(row[j] * 2);
            if (i == rows - 1 && rows > 1) row[j] = 1.5F;
            if (i % 5 == 3 && j % 4 == 1) row[j] = -INFINITY;
        }
    }
    return x;
}

static void choices_of(proa_sample_params *how, int64_t rows, const rules *r, uint64_t *state)
{
    for (int64_t i = 0; i < rows; i++) {
        how[i] = r->choice;
        how[i].uniform = (double)(rng_next(state) >> 11) * 0x1p-53;
        if (i % 4 == 1 && rows > 8) how[i].temperature = 0; /* greedy rows among the others */
        if (i % 8 == 6) how[i].uniform = 0;
    }
}

typedef struct chosen {
    int32_t *ids; /* one more before and behind, which nobody writes */
    float *sums;
    float *kept; /* [rows][cols] of every other row of those with a temperature; others stay NOT_KEPT */
} chosen;

static const float NOT_KEPT = 1234.5F;

static chosen choose(proa_ctx *c, proa_view x, proa_sample_params *how)
{
    int64_t rows = x.shape[0], cols = x.shape[1];
    chosen out = {proa_calloc((size_t)rows + 2, 4), proa_calloc((size_t)rows + 2, 4),
                  proa_calloc((size_t)(rows * cols) + 1, 4)};
    out.ids[0] = out.ids[rows + 1] = 0x5a5a5a5a;
    out.sums[0] = out.sums[rows + 1] = 17;
    for (int64_t i = 0; i < rows * cols; i++) out.kept[i] = NOT_KEPT;
    for (int64_t i = 0; i < rows && how; i++) how[i].kept = i % 2 ? NULL : out.kept + i * cols;
    c->ops->decode->sample(c, out.ids + 1, out.sums + 1, x, how);
    return out;
}

static void release(chosen c)
{
    free(c.ids), free(c.sums), free(c.kept);
}

/* A token at the border of top-p or min-p may be kept or not, since masses are summed differently. */
static void compare_kept(tester *t, const float *mine, const float *right, int64_t cols, const char *name, int row)
{
    int64_t border = 0, wrong = 0;
    for (int64_t v = 0; v < cols; v++)
        if (isinf(mine[v]) != isinf(right[v])) border++;
        else if (mine[v] != right[v]) wrong++;
    expect(t, wrong == 0 && border <= 1, "%s, row %d of width %d: %d values differ, %d others are kept", name,
           row, (int)cols, (int)wrong, (int)border);
}

static bool close_to(float a, float b)
{
    return fabsf(a - b) <= 2e-5F * (1 + fabsf(b));
}

static void compare(tester *t, proa_view x, proa_sample_params *how, const char *name)
{
    chosen right = choose(&t->reference, x, how), mine = choose(&t->tables[0], x, how);
    for (int64_t i = 1; i <= x.shape[0]; i++) {
        expect(t, mine.ids[i] == right.ids[i], "%s, row %d of %d x %d: id %d, not %d", name, (int)i - 1,
               (int)x.shape[0], (int)x.shape[1], (int)mine.ids[i], (int)right.ids[i]);
        expect(t, close_to(mine.sums[i], right.sums[i]), "%s, row %d: sum %g, not %g", name, (int)i - 1,
               (double)mine.sums[i], (double)right.sums[i]);
        int64_t at = (i - 1) * x.shape[1];
        compare_kept(t, mine.kept + at, right.kept + at, x.shape[1], name, (int)i - 1);
    }
    expect(t,
           mine.ids[0] == 0x5a5a5a5a && mine.ids[x.shape[0] + 1] == 0x5a5a5a5a && mine.sums[0] == 17 &&
               mine.sums[x.shape[0] + 1] == 17,
           "%s: wrote outside", name);
    release(right), release(mine);
}

static void choose_shape(tester *t, int64_t rows, int64_t cols)
{
    canvas x = make_logits(rows, cols);
    proa_sample_params *how = proa_calloc((size_t)rows + 1, sizeof *how);
    uint64_t state = (uint64_t)(rows + cols);
    for (size_t i = 0; i < PROA_COUNT(all_rules); i++)
        for (int turn = 0; turn < (device_mode.on ? 4 : 1); turn++) {
            if (!takes_turn(t)) continue;
            choices_of(how, rows, &all_rules[i], &state);
            compare(t, x.view, how, all_rules[i].name);
        }
    compare(t, x.view, NULL, "likeliest");
    expect(t, canvas_guards_hold(&x), "wrote into the logits' padding");
    free(how);
    canvas_free(&x);
}

/* Sums tell which rows are not all numbers, and their ids are some of the row's. */
static void choose_bad_rows(tester *t, int64_t cols)
{
    canvas x = make_logits(6, cols);
    proa_sample_params how[6];
    float *row = proa_view_f32(x.view);
    int64_t stride = x.view.stride[0];
    for (int64_t j = 0; j < cols; j++) row[j] = NAN, row[stride + j] = -INFINITY;
    row[2 * stride + cols / 2] = NAN;
    row[3 * stride + cols - 1] = INFINITY;
    for (int i = 0; i < 6; i++)
        how[i] = (proa_sample_params){.temperature = i % 2 ? 0.5F : 1, .top_k = i, .uniform = 0.5};
    chosen mine = choose(&t->tables[0], x.view, how);
    for (int i = 0; i < 6; i++) {
        expect(t, !isfinite(mine.sums[i + 1]) == (i < 4), "row %d of bad ones has the sum %g", i,
               (double)mine.sums[i + 1]);
        expect(t, mine.ids[i + 1] >= 0 && mine.ids[i + 1] < cols, "row %d of bad ones: id %d", i,
               (int)mine.ids[i + 1]);
    }
    release(mine);
    canvas_free(&x);
}

void check_sample(tester *t)
{
    static const int64_t shapes[][2] = {{0, 8},     {1, 1},     {1, 2},     {2, 31},   {13, 33},
                                        {3, 1000},  {40, 1024}, {1, 1025},  {5, 3001}, {9, 12289},
                                        {1, 32128}, {2, 50400}, {3, 128256}};
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) /* the CPU's is the reference itself */
        if (device_mode.on || shapes[i][1] < 5000) choose_shape(t, shapes[i][0], shapes[i][1]);
    choose_bad_rows(t, 40);
    choose_bad_rows(t, 5001);
}

/* ---- edits ---- */

/* `count` different columns of n, in no order, from a walk that meets each once. */
static void put_columns(proa_logits_entry *entries, int32_t count, int64_t n, uint64_t *state)
{
    int64_t at = rng_below(state, n);
    for (int32_t i = 0; i < count; i++, at = (at + 1 + n / 2) % n) {
        entries[i].id = (int32_t)at;
        for (int32_t k = 0; k < i; k++)
            if (entries[k].id == entries[i].id) entries[i].id = (int32_t)((entries[i].id + 1) % n), k = -1;
    }
}

/* Rows with each of the kinds and without. */
static void rules_of_row(proa_logits_row *e, int64_t n, int i, uint64_t *state)
{
    int32_t most = (int32_t)(n < 300 ? n : 300);
    *e = (proa_logits_row){.scale = i % 3 ? 1 : 1.0F / 0.7F, .presence_first = i % 2, .last = i % 5 != 4};
    if (i % 4) e->repetition = 1.3F;
    if (i % 7 != 6) e->presence = 0.4F, e->frequency = 0.3F;
    if (i % 2) e->bias_count = (int32_t)rng_below(state, most + 1);
    if (i % 6) e->seen_count = (int32_t)rng_below(state, most + 1);
    if (i % 8) e->mask_count = (int32_t)rng_below(state, most + 1);
    if (i % 9 == 5) e->only = 1 + (int32_t)rng_below(state, n);
}

/* Among the marks, some column, none, or beyond them all. */
static int32_t last_of_row(const proa_logits_row *e, const proa_logits_entry *marks, int64_t n, int i,
                           uint64_t *state)
{
    if (i % 3 == 0 && e->seen_count) return marks[e->seen_count / 2].id;
    if (i % 3 == 1) return (int32_t)rng_below(state, n);
    return i % 2 ? -1 : (int32_t)n;
}

static int32_t make_edits(proa_logits_row *e, proa_logits_entry *entries, int32_t *last, int64_t n, int i,
                          uint64_t *state)
{
    rules_of_row(e, n, i, state);
    put_columns(entries, e->bias_count, n, state);
    for (int32_t k = 0; k < e->bias_count; k++) entries[k].value = 0.37F * (float)(k % 9 - 4);
    put_columns(entries += e->bias_count, e->seen_count, n, state);
    for (int32_t k = 0; k < e->seen_count; k++) entries[k].number = k % 4;
    *last = last_of_row(e, entries, n, i, state);
    entries += e->seen_count;
    for (int32_t k = 0; k < e->mask_count; k++) {
        entries[k].id = k % 5 ? (int32_t)rng_below(state, n) : PROA_LOGITS_LAST_TOKEN;
        entries[k].number = k % 3 ? -1 : k % 2 ? *last : (int32_t)rng_below(state, n);
    }
    return e->bias_count + e->seen_count + e->mask_count;
}

static void edit_shape(tester *t, int64_t rows, int64_t cols)
{
    canvas mine = make_logits(rows, cols), right = make_logits(rows, cols);
    proa_logits_row *edits = proa_calloc((size_t)rows + 1, sizeof *edits);
    proa_logits_entry *entries = proa_calloc((size_t)rows * 900 + 1, sizeof *entries);
    int32_t *last = proa_calloc((size_t)rows + 1, sizeof *last), count = 0;
    uint64_t state = (uint64_t)(rows + cols);
    for (int i = 0; i < rows; i++) {
        int32_t first = count;
        count += make_edits(&edits[i], entries + count, &last[i], cols, i, &state);
        edits[i].first = first;
    }
    t->reference.ops->decode->process_logits(&t->reference, right.view, edits, entries, last);
    t->tables[0].ops->decode->process_logits(&t->tables[0], mine.view, edits, entries, last);
    int64_t differ = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            differ += memcmp(proa_view_f32(mine.view) + i * mine.view.stride[0] + j,
                             proa_view_f32(right.view) + i * right.view.stride[0] + j, 4) != 0;
    expect(t, differ == 0, "%d rows of %d: %d differ", (int)rows, (int)cols, (int)differ);
    expect(t, canvas_guards_hold(&mine), "%d rows of %d: edges", (int)rows, (int)cols);
    canvas_free(&mine), canvas_free(&right);
    free(edits), free(entries), free(last);
}

void check_process_logits(tester *t)
{
    static const int64_t shapes[][2] = {{0, 8},     {1, 1},     {40, 2},   {13, 33},
                                        {40, 1024}, {9, 12289}, {3, 50400}};
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) edit_shape(t, shapes[i][0], shapes[i][1]);
}

static void mask_shape(tester *t, int64_t rows, int64_t cols, uint64_t *state)
{
    canvas mine = make_logits(rows, cols), right = make_logits(rows, cols);
    int64_t words = (cols + 31) / 32;
    uint32_t *masks = proa_calloc((size_t)(rows * words) + 1, sizeof *masks);
    int32_t *which = proa_calloc((size_t)rows + 1, sizeof *which);
    for (int64_t i = 0; i < rows * words; i++)
        masks[i] = i % 3 ? (uint32_t)rng_below(state, INT64_C(1) << 32) : i % 2 ? UINT32_MAX : 0;
    for (int64_t i = 0; i < rows; i++) which[i] = (int32_t)rng_below(state, rows + 1) - 1;
    t->reference.ops->decode->mask_logits(&t->reference, right.view, masks, which);
    t->tables[0].ops->decode->mask_logits(&t->tables[0], mine.view, masks, which);
    int64_t differ = 0;
    for (int64_t i = 0; i < rows; i++)
        differ += memcmp(proa_view_f32(mine.view) + i * mine.view.stride[0],
                         proa_view_f32(right.view) + i * right.view.stride[0], (size_t)cols * 4) != 0;
    expect(t, differ == 0, "%d rows of %d: %d differ", (int)rows, (int)cols, (int)differ);
    expect(t, canvas_guards_hold(&mine), "%d rows of %d: edges", (int)rows, (int)cols);
    canvas_free(&mine), canvas_free(&right);
    free(masks), free(which);
}

void check_mask_logits(tester *t)
{
    static const int64_t shapes[][2] = {{0, 8},  {1, 1},     {3, 31},    {40, 32},
                                        {5, 33}, {64, 4097}, {9, 50400}, {3, 128256}};
    uint64_t state = 3;
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) mask_shape(t, shapes[i][0], shapes[i][1], &state);
}

void check_gather_logprobs(tester *t)
{
    static const int64_t shapes[][2] = {{0, 3}, {1, 1}, {7, 31}, {130, 50}, {3, 50400}};
    uint64_t state = 11;
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
        int64_t rows = shapes[i][0];
        canvas x = make_logits(rows, shapes[i][1]);
        int32_t *ids = proa_calloc((size_t)rows + 1, sizeof *ids);
        float *mine = proa_calloc((size_t)rows + 2, 4), *right = proa_calloc((size_t)rows + 2, 4);
        for (int64_t k = 0; k < rows; k++) ids[k] = (int32_t)rng_below(&state, shapes[i][1]);
        t->reference.ops->decode->gather_logprobs(&t->reference, right + 1, x.view, ids);
        t->tables[0].ops->decode->gather_logprobs(&t->tables[0], mine + 1, x.view, ids);
        expect(t, memcmp(mine, right, (size_t)(rows + 2) * 4) == 0, "%d of %d", (int)rows, (int)shapes[i][1]);
        canvas_free(&x);
        free(ids), free(mine), free(right);
    }
}

void check_log_probs(tester *t)
{
    static const int64_t shapes[][2] = {{0, 3}, {1, 1}, {7, 31}, {2, 4097}, {3, 50400}};
    uint64_t state = 13;
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1];
        canvas x = make_logits(rows, cols), mine = canvas_make(2, shapes[i], 1, 3);
        float sums[8];
        for (int k = 0; k < 8; k++) sums[k] = (float)rng_below(&state, 1000) / 37;
        t->tables[0].ops->decode->log_probs(&t->tables[0], mine.view, x.view, sums);
        for (int64_t k = 0; k < rows * cols; k++) {
            float from = proa_view_f32(x.view)[k / cols * x.view.stride[0] + k % cols];
            float to = proa_view_f32(mine.view)[k / cols * mine.view.stride[0] + k % cols];
            expect(t, to == from - sums[k / cols], "%d of %d: number %d is %g", (int)rows, (int)cols, (int)k,
                   (double)to);
        }
        expect(t, canvas_guards_hold(&mine), "%d of %d: edges", (int)rows, (int)cols);
        canvas_free(&x), canvas_free(&mine);
    }
}

void check_gather_token_ids(tester *t)
{
    int32_t from[300], rows[500], mine[502], right[502];
    uint64_t state = 5;
    for (int64_t count = 0; count <= 500; count += 1 + count / 3) {
        for (int i = 0; i < 300; i++) from[i] = (int32_t)rng_below(&state, 50000);
        for (int64_t i = 0; i < count; i++) rows[i] = (int32_t)rng_below(&state, 400) - 100;
        for (int i = 0; i < 502; i++) mine[i] = right[i] = i;
        t->reference.ops->decode->gather_token_ids(&t->reference, right + 1, from, rows, count);
        t->tables[0].ops->decode->gather_token_ids(&t->tables[0], mine + 1, from, rows, count);
        expect(t, memcmp(mine, right, sizeof mine) == 0, "%d ids differ", (int)count);
    }
}
