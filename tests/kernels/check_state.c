/* SPDX-License-Identifier: Apache-2.0
 * check_state.c - the ops that keep a state for each sequence: the same rows and states as the reference, of sequences
 * that begin and that go on, in one pass and in chunks; rows of no span and slots of no span stay untouched. */
#include "check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <math.h>
#include <stdlib.h>

/* Rows 3 to 6 and row 9 belong to no span; slot 1 to none either. Lengths are about the chunks of 32 and 64 rows that
 * kernels take; the long spans are divided, in segments of 4 chunks at least. */
enum { ROWS = 1725, SLOTS = 14, ROWS_MAX = 647, CHUNKED_ROWS = 100 };
static proa_span first_spans[] = {
    {0, 3, 3, 0, 0, 4, 0},        {7, 1, 1, 0, 0, 0, 0},      {8, 1, 9, 0, 0, 3, 0},
    {10, 40, 40, 0, 0, 2, 0},     {50, 3, 90, 0, 0, 5, 0},    {53, 31, 31, 0, 0, 6, 0},
    {84, 63, 99, 0, 0, 7, 0},     {147, 64, 64, 0, 0, 11, 0}, {211, 65, 400, 0, 0, 9, 0},
    {276, 200, 200, 0, 0, 8, 0},  {476, 2, 5, 0, 0, 10, 0},   {478, 647, 700, 0, 0, 12, 0},
    {1125, 600, 600, 0, 0, 13, 0}};
static const int32_t free_rows[][2] = {{3, 7}, {9, 10}};

/* An op with its weights: d columns in, `out` columns, `numbers` of a state. */
typedef struct state_case {
    void (*run)(proa_ctx *c, const struct state_case *s, proa_view y, proa_view x, proa_view rates,
                const proa_layer_state *state, const proa_spans *spans);
    const char *label;
    int64_t in, out, numbers;
    proa_conv conv;
    proa_delta delta;
    proa_state_space scan;
    bool positive; /* inputs, so that y is not what is left of large terms of other signs */
} state_case;

/* Rows and states of one pass. */
typedef struct state_run {
    canvas y, states; /* [ROWS,out], [SLOTS,numbers] */
} state_run;

static void release_run(state_run *r)
{
    canvas_free(&r->y), canvas_free(&r->states);
}

static state_run begin_run(const state_case *s)
{
    const int64_t y[] = {ROWS, s->out}, states[] = {SLOTS, s->numbers};
    state_run r = {canvas_make(2, y, 2, 1), canvas_make(2, states, 0, 1)};
    canvas_fill(&r.states, 5, false);
    return r;
}

static void run_spans(proa_ctx *c, const state_case *s, state_run *r, proa_view x, proa_view rates,
                      proa_span *span, int64_t count)
{
    const proa_spans spans = {.span = span, .count = count, .rows_max = ROWS_MAX, .context_max = 700};
    const proa_layer_state state = {r->states.view.data, r->states.view.stride[0]};
    s->run(c, s, r->y.view, x, rates, &state, &spans);
}

/* The same rows in chunks of at most `rows`, one pass after the other, and those of long spans from CHUNKED_ROWS on at
 * once. */
static void run_chunks(proa_ctx *c, const state_case *s, state_run *r, proa_view x, proa_view rates, int32_t rows)
{
    for (int32_t at = 0; at < ROWS_MAX; at += rows) {
        if (at >= CHUNKED_ROWS) rows = ROWS_MAX;
        proa_span span[PROA_COUNT(first_spans)];
        int64_t count = 0;
        for (size_t i = 0; i < PROA_COUNT(first_spans); i++) {
            proa_span part = first_spans[i];
            int32_t left = part.rows - at, before = part.context - part.rows;
            if (left <= 0) continue;
            part.row += at, part.rows = left < rows ? left : rows;
            part.context = before + at + part.rows;
            span[count++] = part;
        }
        run_spans(c, s, r, x, rates, span, count);
    }
}

/* States are f32 on a device too, and of the same inputs (round_rows): what kernels of 16 bits make of them is judged
 * by more bits than their outputs have. */
static double compare_states(proa_view mine, proa_view right, tolerance kind)
{
    const device_rules rules = device_mode;
    if (rules.narrow != PROA_DTYPE_F32) device_mode.limit = 3e-5, device_mode.narrow = PROA_DTYPE_F32;
    double worst = compare_rows(mine, right, kind);
    device_mode = rules;
    return worst;
}

static void expect_equal(tester *t, const state_case *s, const state_run *mine, const state_run *right,
                         tolerance kind, const char *what)
{
    double limit = kind == TOL_EXACT && !device_mode.on ? 0 : 1, of_rows = 0, of_states = 0;
    for (size_t i = 0; i < PROA_COUNT(first_spans); i++) {
        int64_t begin = first_spans[i].row, end = begin + first_spans[i].rows, slot = first_spans[i].state;
        double y = compare_rows(proa_view_rows(mine->y.view, begin, end),
                                proa_view_rows(right->y.view, begin, end), kind);
        double state = compare_states(proa_view_rows(mine->states.view, slot, slot + 1),
                                      proa_view_rows(right->states.view, slot, slot + 1), kind);
        of_rows = y > of_rows ? y : of_rows, of_states = state > of_states ? state : of_states;
    }
    expect(t, of_rows <= limit && of_states <= limit, "%s: %s: rows are off by %g tolerances, states by %g",
           s->label, what, of_rows, of_states);
}

static void expect_untouched(tester *t, const state_case *s, const state_run *mine, const state_run *begin)
{
    bool same = same_bits(mine->states.view, begin->states.view, 1, 2);
    for (size_t i = 0; i < PROA_COUNT(free_rows); i++)
        same = same && same_bits(mine->y.view, begin->y.view, free_rows[i][0], free_rows[i][1]);
    expect(t, same, "%s: wrote rows or a slot of no span", s->label);
    expect(t, canvas_guards_hold(&mine->y) && canvas_guards_hold(&mine->states), "%s: wrote outside the view",
           s->label);
}

/* A device in 16 bits and the reference get the same numbers: with others their states drift apart, row by row. */
static void round_rows(proa_view v)
{
    if (device_mode.narrow == PROA_DTYPE_F32) return;
    uint16_t *bits = proa_malloc((size_t)v.shape[1] * sizeof *bits);
    for (int64_t i = 0; i < v.shape[0]; i++) {
        float *row = proa_view_f32(v) + i * v.stride[0];
        proa_from_f32(bits, device_mode.narrow, row, v.shape[1]);
        proa_to_f32(row, bits, device_mode.narrow, v.shape[1]);
    }
    free(bits);
}

static void make_positive(proa_view v)
{
    for (int64_t i = 0; i < v.shape[0]; i++) {
        float *row = proa_view_f32(v) + i * v.stride[0];
        for (int64_t j = 0; j < v.shape[1]; j++) row[j] = fabsf(row[j]);
    }
}

static void check_case(tester *t, const state_case *s, tolerance kind)
{
    const int64_t of_scan = s->scan.by_channel ? s->out : s->scan.heads, in[] = {ROWS, s->in},
                  of_delta = s->delta.value_heads * (1 + (s->delta.by_channel ? s->delta.key_dim : 1)),
                  rates_shape[] = {ROWS, proa_max64(1, of_delta + of_scan)};
    if (!takes_turn(t)) return;
    canvas x = canvas_make(2, in, 3, 1), rates = canvas_make(2, rates_shape, 1, 1);
    canvas_fill(&x, (uint64_t)s->in, false), canvas_fill(&rates, 7, false);
    if (s->positive) make_positive(x.view);
    round_rows(x.view), round_rows(rates.view);
    state_run right = begin_run(s), begin = begin_run(s);
    run_spans(&t->reference, s, &right, x.view, rates.view, first_spans, PROA_COUNT(first_spans));
    for (int n = 0; n < CHECK_THREADS; n++) {
        state_run whole = begin_run(s), parts = begin_run(s), wide = begin_run(s);
        run_spans(&t->tables[n], s, &whole, x.view, rates.view, first_spans, PROA_COUNT(first_spans));
        run_chunks(&t->tables[n], s, &parts, x.view, rates.view, 7);
        run_chunks(&t->tables[n], s, &wide, x.view, rates.view, 45);
        expect_equal(t, s, &whole, &right, kind, "differs from the reference");
        expect_equal(t, s, &parts, &whole, device_mode.on ? kind : TOL_EXACT, "differs in chunks of 7 rows");
        expect_equal(t, s, &wide, &whole, device_mode.on ? kind : TOL_EXACT, "differs in chunks of 45 rows");
        expect_untouched(t, s, &whole, &begin), expect_untouched(t, s, &wide, &begin);
        release_run(&whole), release_run(&parts), release_run(&wide);
    }
    release_run(&right), release_run(&begin), canvas_free(&x), canvas_free(&rates);
}

/* [n] normal numbers times scale. */
static float *random_floats(int64_t n, uint64_t seed, float scale)
{
    float *f = proa_malloc((size_t)n * sizeof *f);
    for (int64_t i = 0; i < n; i++) f[i] = scale * rng_normal(&seed);
    return f;
}

/* ---- conv_state ---- */

static void run_conv(proa_ctx *c, const state_case *s, proa_view y, proa_view x, proa_view rates,
                     const proa_layer_state *state, const proa_spans *spans)
{
    PROA_UNUSED(rates);
    c->ops->conv_state(c, y, x, &s->conv, state, spans);
}

static void conv_case(tester *t, int64_t d, int64_t taps, bool bias, proa_act act)
{
    char label[64];
    float *w = random_floats(d * taps, 3, 1), *b = random_floats(d, 4, 1);
    snprintf(label, sizeof label, "%d columns, %d taps, %s%s", (int)d, (int)taps, proa_act_name(act),
             bias ? ", bias" : "");
    state_case s = {.run = run_conv, .label = label, .in = d, .out = d, .numbers = (taps - 1) * d + 1};
    s.conv = (proa_conv){.w = w, .bias = bias ? b : NULL, .taps = taps, .act = act};
    check_case(t, &s, TOL_STATE);
    free(w), free(b);
}

void check_conv_state(tester *t)
{
    static const int64_t columns[] = {1, 5, 64, 200, 300};
    float y[3], w[] = {1, 10}, kept[] = {7};
    static float x[] = {1, 2, 3};
    proa_span span = {0, 3, 4, 0, 0, 0, 0};
    const proa_spans spans = {.span = &span, .count = 1, .rows_max = 3, .context_max = 4};
    const proa_conv conv = {.w = w, .taps = 2};
    const proa_layer_state state = {kept, 1};
    t->tables[0].ops->conv_state(&t->tables[0], proa_view_2d(y, PROA_DTYPE_F32, 3, 1),
                                 proa_view_2d(x, PROA_DTYPE_F32, 3, 1), &conv, &state, &spans);
    expect(t, y[0] == 17 && y[1] == 21 && y[2] == 32 && kept[0] == 3, "not the row before and the row itself");
    for (size_t i = 0; i < PROA_COUNT(columns); i++)
        for (int64_t taps = 1; taps <= 15; taps += taps < 5 ? 1 : 10)
            conv_case(t, columns[i], taps, taps % 2, taps == 3 ? PROA_ACT_NONE : PROA_ACT_SILU);
}

/* ---- gated_delta ---- */

static void run_delta(proa_ctx *c, const state_case *s, proa_view y, proa_view x, proa_view rates,
                      const proa_layer_state *state, const proa_spans *spans)
{
    c->ops->gated_delta(c, y, x, rates, &s->delta, state, spans);
}

/* shape: heads of keys and values, dk, dv. kind: its beta_scale, floor and by_channel. */
static void delta_case(tester *t, const int64_t shape[4], proa_delta kind)
{
    const int64_t value_heads = shape[1], dk = shape[2], dv = shape[3];
    char label[128];
    float *rate = random_floats(value_heads, 8, 0.5F), *bias = random_floats(value_heads * dk, 9, 0.5F);
    snprintf(label, sizeof label, "%d and %d heads of %d and %d, beta * %g, floor %g%s", (int)shape[0],
             (int)value_heads, (int)dk, (int)dv, (double)kind.beta_scale, (double)kind.floor,
             kind.by_channel ? ", by channel" : "");
    state_case s = {.run = run_delta, .label = label, .in = 2 * shape[0] * dk + value_heads * dv};
    s.out = value_heads * dv, s.numbers = value_heads * dk * dv + 1;
    s.delta = kind;
    s.delta.key_heads = shape[0], s.delta.value_heads = value_heads, s.delta.key_dim = dk, s.delta.value_dim = dv;
    s.delta.rate = rate, s.delta.bias = bias;
    check_case(t, &s, TOL_STATE);
    free(rate), free(bias);
}

/* One head of one number: q and k are normed to 1, so that y = decay S + beta (v - decay S). */
static void check_delta_formula(tester *t)
{
    float y = 0, S = 2, rates[] = {0, 0}, x[] = {3, 5, 4}, rate = 0, bias = 0;
    proa_span span = {0, 1, 2, 0, 0, 0, 0};
    const proa_spans spans = {.span = &span, .count = 1, .rows_max = 1, .context_max = 2};
    const proa_delta d = {1, 1, 1, 1, &rate, &bias, .beta_scale = 1};
    const proa_layer_state state = {&S, 1};
    t->tables[0].ops->gated_delta(&t->tables[0], proa_view_2d(&y, PROA_DTYPE_F32, 1, 1),
                                  proa_view_2d(x, PROA_DTYPE_F32, 1, 3),
                                  proa_view_2d(rates, PROA_DTYPE_F32, 1, 2), &d, &state, &spans);
    /* exp(-log(2)) S = 1; 1 + (4 - 1) / 2 */
    float off = device_mode.on ? 0.05F : 1e-5F;
    expect(t, fabsf(y - 2.5F) < off && fabsf(S - 2.5F) < off, "not half of the way from 1 to 4");
}

/* Keys of two numbers, of which k and q have the second one alone. The first row of the state decays to a sixteenth
 * by the softplus, as a is log(15); the second one is halved. Both come to half by a floor of -2 log(2) and a = 0. */
static void check_channel_formula(tester *t)
{
    for (int with_floor = 0; with_floor < 2; with_floor++) {
        float y = 0, S[] = {8, 2}, rates[] = {0, 2.708050F, 0}, x[] = {0, 3, 0, 5, 4}, rate = 0,
              bias[2] = {0, 0};
        proa_span span = {0, 1, 2, 0, 0, 0, 0};
        const proa_spans spans = {.span = &span, .count = 1, .rows_max = 1, .context_max = 2};
        proa_delta d = {1, 1, 2, 1, &rate, bias, .beta_scale = 2, .by_channel = true};
        if (with_floor) d.floor = -2 * 0.6931472F, rates[1] = 0;
        const proa_layer_state state = {S, 2};
        t->tables[0].ops->gated_delta(&t->tables[0], proa_view_2d(&y, PROA_DTYPE_F32, 1, 1),
                                      proa_view_2d(x, PROA_DTYPE_F32, 1, 5),
                                      proa_view_2d(rates, PROA_DTYPE_F32, 1, 3), &d, &state, &spans);
        /* 1 + 1 (4 - 1), times 1 / sqrt(2) of q; 8 / 16 or 8 / 2 */
        float off = device_mode.on ? 0.05F : 1e-5F, first = with_floor ? 4 : 0.5F;
        expect(t, fabsf(y - 2.828427F) < off && fabsf(S[0] - first) < off && fabsf(S[1] - 4) < off,
               "decays by channel%s are not those", with_floor ? " with a floor" : "");
    }
}

void check_gated_delta(tester *t)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1},    {2, 4, 12, 20}, {1, 3, 64, 64}, {2, 2, 128, 128},
                                        {1, 2, 33, 100}, {1, 1, 256, 7}, {1, 1, 16, 256}};
    static const proa_delta kinds[] = {{.beta_scale = 1, .by_channel = true},
                                       {.beta_scale = 1, .floor = -5, .by_channel = true},
                                       {.beta_scale = 2},
                                       {.beta_scale = 1, .floor = -3}};
    check_delta_formula(t), check_channel_formula(t);
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
        delta_case(t, shapes[i], (proa_delta){.beta_scale = 1});
        delta_case(t, shapes[i], kinds[i % PROA_COUNT(kinds)]);
    }
    for (size_t i = 0; i < PROA_COUNT(kinds); i++) delta_case(t, shapes[2], kinds[i]);
}

/* ---- selective_scan ---- */

static void run_scan(proa_ctx *c, const state_case *s, proa_view y, proa_view x, proa_view rates,
                     const proa_layer_state *state, const proa_spans *spans)
{
    proa_view v = proa_view_cols(x, 0, s->out), params = proa_view_cols(x, s->out, s->in);
    if (!s->scan.bias) rates = (proa_view){0};
    c->ops->selective_scan(c, y, v, params, rates, &s->scan, state, spans);
}

/* decay: added to the logarithm of the decay. spread: of dt_bias, and with it of steps, from head to head. */
static void scan_case(tester *t, const int64_t shape[4], float most, float decay, float spread)
{
    const int64_t groups = shape[0], heads = shape[1], dk = shape[2], dv = shape[3];
    char label[128];
    float *rate = random_floats(heads, 8, 0.5F), *bias = random_floats(heads, 9, spread);
    float *skip = random_floats(heads, 10, 1);
    /* With skip y is never just what is left of large terms of other signs: how far is judged by y. */
    for (int64_t h = 0; h < heads; h++) rate[h] += decay, skip[h] += 2 + 4 * spread;
    snprintf(label, sizeof label, "%d groups and %d heads of %d and %d, steps up to %g, decay %g, spread %g",
             (int)groups, (int)heads, (int)dk, (int)dv, (double)most, (double)decay, (double)spread);
    state_case s = {.run = run_scan, .label = label, .in = heads * dv + 2 * groups * dk};
    s.out = heads * dv, s.numbers = heads * dk * dv + 1;
    s.scan = (proa_state_space){groups, heads, dk, dv, rate, bias, skip, 0.01F, most, false};
    check_case(t, &s, TOL_STATE);
    free(rate), free(bias), free(skip);
}

/* Linear attention whose decay is fixed: no rates, no bias, no skip. */
static void fixed_case(tester *t, const int64_t shape[4], float decay)
{
    const int64_t groups = shape[0], heads = shape[1], dk = shape[2], dv = shape[3];
    char label[128];
    float *rate = random_floats(heads, 8, 0.5F);
    for (int64_t h = 0; h < heads; h++) rate[h] += decay;
    snprintf(label, sizeof label, "%d groups and %d heads of %d and %d, fixed decay %g", (int)groups,
             (int)heads, (int)dk, (int)dv, (double)decay);
    state_case s = {.run = run_scan, .label = label, .in = heads * dv + 2 * groups * dk, .positive = true};
    s.out = heads * dv, s.numbers = heads * dk * dv + 1;
    s.scan = (proa_state_space){.groups = groups, .heads = heads, .state_dim = dk, .value_dim = dv, .rate = rate};
    check_case(t, &s, TOL_STATE);
    free(rate);
}

/* By channel: steps of each column, decays of each number of the state. */
static void channel_case(tester *t, const int64_t shape[4], float most, float decay)
{
    const int64_t groups = shape[0], heads = shape[1], dk = shape[2], dv = shape[3], columns = heads * dv;
    char label[128];
    float *rate = random_floats(columns * dk, 8, 0.5F), *bias = random_floats(columns, 9, 2);
    float *skip = random_floats(columns, 10, 1);
    for (int64_t i = 0; i < columns * dk; i++) rate[i] += decay;
    for (int64_t i = 0; i < columns; i++) skip[i] += 10;
    snprintf(label, sizeof label, "%d groups and %d heads of %d and %d by channel, steps up to %g, decay %g",
             (int)groups, (int)heads, (int)dk, (int)dv, (double)most, (double)decay);
    state_case s = {.run = run_scan, .label = label, .in = columns + 2 * groups * dk};
    s.out = columns, s.numbers = columns * dk + 1;
    s.scan = (proa_state_space){groups, heads, dk, dv, rate, bias, skip, 0, most, true};
    check_case(t, &s, TOL_STATE);
    free(rate), free(bias), free(skip);
}

/* One head of one number, with a step of log(2): S = S / 2 + B (log(2) v), y = C S + D v. */
static void check_scan_formula(tester *t, bool by_channel)
{
    float y = 0, S = 2, dt = 0, x[] = {3, 5, 4}, rate = 0, bias = 0, skip = 7;
    proa_span span = {0, 1, 2, 0, 0, 0, 0};
    const proa_spans spans = {.span = &span, .count = 1, .rows_max = 1, .context_max = 2};
    const proa_state_space p = {1, 1, 1, 1, &rate, &bias, &skip, 0, 10, by_channel};
    const proa_layer_state state = {&S, 1};
    const proa_view all = proa_view_2d(x, PROA_DTYPE_F32, 1, 3);
    t->tables[0].ops->selective_scan(&t->tables[0], proa_view_2d(&y, PROA_DTYPE_F32, 1, 1),
                                     proa_view_cols(all, 0, 1), proa_view_cols(all, 1, 3),
                                     proa_view_2d(&dt, PROA_DTYPE_F32, 1, 1), &p, &state, &spans);
    float want = 1 + 5 * 3 * 0.6931472F, off = device_mode.on ? 0.5F : 1e-4F;
    expect(t, fabsf(S - want) < off && fabsf(y - (4 * want + 21)) < 4 * off,
           "not half of the state and the value");
}

void check_selective_scan(tester *t)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1},    {2, 4, 12, 20}, {1, 3, 64, 64},  {2, 2, 128, 64},
                                        {1, 2, 33, 100}, {1, 1, 256, 7}, {1, 2, 128, 80}, {1, 1, 16, 256},
                                        {2, 2, 256, 64}, {4, 4, 64, 48}, {1, 2, 256, 16}};
    static const int64_t channels[][4] = {{1, 1, 1, 1},    {2, 4, 12, 20}, {1, 3, 16, 64}, {1, 2, 16, 32},
                                          {1, 2, 33, 100}, {1, 1, 128, 7}, {1, 1, 256, 48}};
    /* Usual ones; slow ones, of which the last bit counts as often as there are rows; to nothing within a few
     * rows. */
    static const float decays[] = {0, -4, 3}, most[] = {1e30F, 0.5F, 1e30F};
    check_scan_formula(t, false), check_scan_formula(t, true);
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) scan_case(t, shapes[i], i % 2 ? 0.5F : 1e30F, 0, 0.5F);
    for (size_t i = 2; i < PROA_COUNT(shapes); i += 2) fixed_case(t, shapes[i], i % 4 ? -3 : 0);
    device_mode.limit = 6e-6; /* sums of up to 256 products */
    for (size_t i = 0; i < PROA_COUNT(channels); i++) channel_case(t, channels[i], i % 2 ? 0.5F : 1e30F, 0);
    for (size_t i = 0; i < PROA_COUNT(decays); i++) {
        device_mode.limit = decays[i] < 0 ? 1e-5 : 4e-6;
        channel_case(t, channels[2], most[i], decays[i] / 2);
        scan_case(t, shapes[3], most[i], decays[i], 3), scan_case(t, shapes[8], 2, decays[i], 3);
    }
    device_mode.limit = 4e-6;
}
