/* SPDX-License-Identifier: Apache-2.0
 * canvas.c - memory with guard bands, random contents, comparison, packed weights with a guard. */
#include "check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/coded.h"
#include "kernels/groups.h"
#include <math.h>
#include <stdarg.h>

#define PATTERN 0x7fa5a5a5u /* a NaN that no op makes */
#define GUARD   64          /* words before and after */

uint64_t rng_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

float rng_normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t bits = rng_next(state);
        sum += (double)(uint32_t)bits + (double)(uint32_t)(bits >> 32);
    }
    return (float)((sum * 0x1p-32 - 3.0) * 1.4142135623730951);
}

int64_t rng_below(uint64_t *state, int64_t n)
{
    return (int64_t)(rng_next(state) % (uint64_t)n);
}

canvas canvas_make(int32_t rank, const int64_t *shape, int64_t pad, int64_t offset)
{
    canvas c = {.view = proa_view_of(NULL, PROA_DTYPE_F32, rank, shape)};
    if (rank > 1) c.view.stride[rank - 2] += pad;
    if (rank > 2) c.view.stride[0] = c.view.stride[1] * shape[1] + pad;
    int64_t span = rank > 1 ? shape[0] * c.view.stride[0] : shape[0];
    c.words = proa_round_up(GUARD + offset + span + GUARD, 16);
    c.memory = aligned_alloc(64, (size_t)c.words * 4);
    PROA_ASSERT(c.memory);
    c.view.data = c.memory + GUARD + offset;
    canvas_reset(&c);
    return c;
}

canvas canvas_clone(const canvas *c)
{
    canvas copy = *c;
    copy.memory = aligned_alloc(64, (size_t)c->words * 4);
    PROA_ASSERT(copy.memory);
    memcpy(copy.memory, c->memory, (size_t)c->words * 4);
    copy.view.data = copy.memory + ((uint32_t *)c->view.data - c->memory);
    return copy;
}

void canvas_free(canvas *c)
{
    free(c->memory);
    *c = (canvas){0};
}

void canvas_reset(canvas *c)
{
    for (int64_t i = 0; i < c->words; i++) c->memory[i] = PATTERN;
}

/* Pointer to row i (of all axes but the last, flattened). */
static float *row_at(proa_view v, int64_t i)
{
    float *data = proa_view_f32(v);
    if (v.rank == 1) return data + i;
    if (v.rank == 2) return data + i * v.stride[0];
    return data + i / v.shape[1] * v.stride[0] + i % v.shape[1] * v.stride[1];
}

static int64_t row_count(proa_view v)
{
    return v.rank == 3 ? v.shape[0] * v.shape[1] : v.shape[0];
}

static int64_t row_length(proa_view v)
{
    return v.rank == 1 ? 1 : v.shape[v.rank - 1];
}

static float special(int64_t outer, int64_t j, float normal)
{
    switch (outer) {
    case 1: return j == 2 || j == 40 ? NAN : normal;
    case 2: return j == 1 ? INFINITY : j == 20 ? -INFINITY : normal;
    case 3: return j % 3 == 0 ? normal * 1e30f : normal;
    case 4: return normal * 1e-38f;
    case 5: return j % 2 ? -0.0f : 0.0f;
    default: return normal;
    }
}

/* The next random number for a canvas. Making each one took a quarter of all time, so on a CPU they come from a table,
 * whose prime length keeps rows from repeating. The tolerances of devices were set with numbers of rng_normal. */
static float fill_number(uint64_t *seed, int64_t *at)
{
    static float numbers[65521];
    if (device_mode.on) return rng_normal(seed);
    if (*at < 0) {
        uint64_t first = 1;
        for (size_t i = 0; i < PROA_COUNT(numbers) && numbers[PROA_COUNT(numbers) - 1] == 0; i++)
            numbers[i] = rng_normal(&first);
        *at = rng_below(seed, (int64_t)PROA_COUNT(numbers));
    }
    if (++*at == (int64_t)PROA_COUNT(numbers)) *at = 0;
    return numbers[*at];
}

void canvas_fill(canvas *c, uint64_t seed, bool specials)
{
    int64_t rows = row_count(c->view), inner = c->view.rank == 3 ? c->view.shape[1] : 1, at = -1;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < row_length(c->view); j++) {
            float v = fill_number(&seed, &at);
            bool special_here = specials && (!device_mode.on || i / inner == 1 || i / inner == 5);
            row_at(c->view, i)[j] = special_here ? special(i / inner, j, v) : v;
        }
}

bool canvas_guards_hold(const canvas *c)
{
    canvas copy = canvas_clone(c);
    for (int64_t i = 0; i < row_count(c->view); i++)
        for (int64_t j = 0; j < row_length(c->view); j++)
            memcpy(row_at(copy.view, i) + j, &(uint32_t){PATTERN}, 4);
    bool ok = true;
    for (int64_t i = 0; i < copy.words; i++) ok = ok && copy.memory[i] == PATTERN;
    canvas_free(&copy);
    return ok;
}

device_rules device_mode;

void canvas_round_narrow(canvas *c)
{
    if (device_mode.narrow == PROA_DTYPE_F32) return;
    for (int64_t i = 0; i < row_count(c->view); i++) {
        float *row = row_at(c->view, i);
        for (int64_t j = 0; j < row_length(c->view); j++) {
            uint16_t bits;
            proa_from_f32(&bits, device_mode.narrow, &row[j], 1);
            proa_to_f32(&row[j], &bits, device_mode.narrow, 1);
        }
    }
}

static double limit_of(tolerance kind)
{
    double rounding = device_mode.narrow == PROA_DTYPE_F16    ? 2e-3
                      : device_mode.narrow == PROA_DTYPE_BF16 ? 1.6e-2
                                                              : 0;
    return device_mode.on ? fmax(fmax(tolerance_of(kind), device_mode.limit), rounding) : tolerance_of(kind);
}

/* What a row's largest number counts as at least. */
static double floor_of(tolerance kind)
{
    return kind == TOL_GELU || kind == TOL_BF16DOT_GELU || kind == TOL_STATE ? 1.0 : 0;
}

static double row_error(const float *a, const float *b, int64_t n, tolerance kind)
{
    if (device_mode.on && kind == TOL_EXACT) kind = TOL_ELEMENT;
    double largest = floor_of(kind), worst = 0, limit = limit_of(kind);
    if (device_mode.on) largest = fmax(largest, device_mode.floor);
    for (int64_t j = 0; j < n; j++)
        if (isfinite(b[j])) largest = fmax(largest, fabs((double)b[j]));
    for (int64_t j = 0; j < n; j++) {
        if ((isnan(a[j]) && isnan(b[j])) || a[j] == b[j]) continue;
        if (kind == TOL_EXACT) {
            worst += 1;
            continue;
        }
        double allowed = limit * (fabs((double)b[j]) + largest) + 1e-37;
        double share = fabs((double)a[j] - (double)b[j]) / allowed;
        worst = share <= worst ? worst : isfinite(b[j]) && isfinite(share) ? share : (double)INFINITY;
    }
    return worst;
}

double compare_rows(proa_view a, proa_view b, tolerance kind)
{
    double worst = 0;
    for (int64_t i = 0; i < row_count(b); i++) {
        double error = row_error(row_at(a, i), row_at(b, i), row_length(b), kind);
        worst = kind == TOL_EXACT && !device_mode.on ? worst + error : fmax(worst, error);
    }
    return worst;
}

bool same_bits(proa_view a, proa_view b, int64_t begin, int64_t end)
{
    int64_t inner = b.rank == 3 ? b.shape[1] : 1;
    for (int64_t i = begin * inner; i < end * inner; i++) {
        if (device_mode.on) {
            if (row_error(row_at(a, i), row_at(b, i), row_length(b), TOL_ELEMENT) > 1) return false;
            continue;
        }
        if (memcmp(row_at(a, i), row_at(b, i), (size_t)row_length(b) * sizeof(float)) == 0) continue;
        for (int64_t j = 0; j < row_length(b); j++) {
            float p = row_at(a, i)[j], q = row_at(b, i)[j];
            if (proa_f32_bits(p) != proa_f32_bits(q) && !(isnan(p) && isnan(q))) return false;
        }
    }
    return true;
}

bool expect(tester *t, bool ok, const char *fmt, ...)
{
    t->checks++;
    if (ok) return true;
    if (t->failures++ < 40) {
        va_list args;
        va_start(args, fmt);
        printf("FAIL %s %s: ", t->tables[0].ops->name, t->op);
        vprintf(fmt, args);
        printf("\n");
        va_end(args);
    }
    return false;
}

#define GUARD_BYTES 256

test_weight test_weight_pack(proa_ctx *c, proa_wfmt format, int64_t K, const proa_tensor_source *sources, int count)
{
    test_weight tw = {.w = {.format = format, .K = K}};
    for (int i = 0; i < count; i++) tw.w.N += proa_tensor_source_rows(&sources[i]);
    tw.w.permuted = proa_wfmt_takes_order(format) && proa_coded_is_permuted(&sources[0]);
    tw.w.bytes = c->ops->pack_bytes(format, tw.w.N, K) + proa_group_order_bytes(&tw.w);
    tw.allocated = proa_round_up(tw.w.bytes + GUARD_BYTES, 64);
    tw.w.data = aligned_alloc(64, (size_t)tw.allocated);
    PROA_ASSERT(tw.w.data);
    memset(tw.w.data, 0xa5, (size_t)tw.allocated);
    c->ops->pack(c, &tw.w, sources, count);
    return tw;
}

bool test_weight_guard_holds(const test_weight *w)
{
    const unsigned char *bytes = w->w.data;
    for (int64_t i = w->w.bytes; i < w->allocated; i++)
        if (bytes[i] != 0xa5) return false;
    return true;
}

void test_weight_free(test_weight *w)
{
    free(w->w.data);
    *w = (test_weight){0};
}
