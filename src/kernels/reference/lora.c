/* SPDX-License-Identifier: Apache-2.0
 * lora.c - low-rank adapters as ops.def states them: two chains of f32 fused multiply-adds, row by row. */
#include "base/alloc.h"
#include "kernels/lora_stack.h"
#include "kernels/quant.h"
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements from a flat index of any floating memory. */
static void load_elements(float *out, const char *data, proa_dtype dtype, int64_t index, int64_t count)
{
    proa_to_f32(out, data + index * proa_dtype_bytes(dtype), dtype, count);
}

/* h[j] = sum_k x[k] A_p[j,k]: A has the rows j of a k side by side. */
static void shrink_rows(float *h, const proa_lora *l, const char *base, int32_t piece, int32_t rank,
                        const float *x)
{
    float a[PROA_LORA_RANK_MAX];
    int64_t columns = (int64_t)l->pieces * l->rank, at = (int64_t)piece * l->rank;
    for (int32_t j = 0; j < rank; j++) h[j] = 0;
    for (int64_t k = 0; k < l->K; k++) {
        load_elements(a, base + l->a, l->dtype, k * columns + at, rank);
        for (int32_t j = 0; j < rank; j++) h[j] = fmaf(x[k], a[j], h[j]);
    }
}

/* sum[n] = sum_j h[j] B_p[n,j] of a panel's columns. */
static void expand_panel(float sum[PROA_LORA_PANEL], const proa_lora *l, const char *base, int64_t panel,
                         int32_t rank, const float *h)
{
    float b[PROA_LORA_PANEL];
    memset(sum, 0, PROA_LORA_PANEL * sizeof *sum);
    for (int32_t j = 0; j < rank; j++) {
        load_elements(b, base + l->b, l->dtype, (panel * l->rank + j) * PROA_LORA_PANEL, PROA_LORA_PANEL);
        for (int64_t n = 0; n < PROA_LORA_PANEL; n++) sum[n] = fmaf(h[j], b[n], sum[n]);
    }
}

/* One piece of a row; panels: those of the pieces before. */
static void add_piece(const proa_lora *l, const char *base, int32_t piece, int64_t panels, float *y,
                      const float *x)
{
    const proa_lora_use *use = (const proa_lora_use *)(const void *)(base + l->use) + piece;
    int64_t first = proa_lora_first(l, piece), count = l->end[piece] - first;
    float h[PROA_LORA_RANK_MAX], sum[PROA_LORA_PANEL], scale = (l->alpha == 0 ? 1 : l->alpha) * use->scale;
    shrink_rows(h, l, base, piece, use->rank, x);
    for (int64_t n = 0; n < count; n++) {
        int64_t column = n % PROA_LORA_PANEL;
        if (column == 0) expand_panel(sum, l, base, panels + n / PROA_LORA_PANEL, use->rank, h);
        y[first + n] = fmaf(scale, sum[column], y[first + n]);
    }
}

void proa_lora_reference(proa_ctx *c, proa_view y, proa_view x, const proa_lora *l, const proa_lora_rows *rows)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; l->set && t < y.shape[0]; t++)
        memset(proa_view_f32(y) + t * y.stride[0], 0, (size_t)y.shape[1] * sizeof(float));
    for (int64_t s = 0; s < rows->count; s++) {
        const proa_lora_segment *segment = &rows->segment[s];
        for (int32_t i = 0; i < segment->rows; i++) {
            int64_t t = rows->order[segment->first + i], panels = 0;
            for (int32_t p = 0; p < l->pieces; panels += proa_lora_panels(l, p), p++)
                if (proa_lora_use_of(l, segment)[p].rank > 0)
                    add_piece(l, segment->base, p, panels, proa_view_f32(y) + t * y.stride[0],
                              proa_view_f32(x) + t * x.stride[0]);
        }
    }
}

void proa_linear_lora_reference(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w,
                                const proa_epilogue *e, const proa_lora *l, const proa_lora_rows *rows)
{
    proa_view sums = e->gated ? e->workspace : y;
    proa_epilogue plain = *e;
    proa_lora own = *l;
    int64_t F = w->N / 2;
    plain.act = PROA_ACT_NONE, plain.gated = false, plain.workspace = (proa_view){.rank = 0};
    own.alpha = e->alpha, own.set = false;
    c->ops->linear(c, sums, x, w, &plain);
    c->ops->lora(c, sums, x, &own, rows);
    if (e->gated) c->ops->act_mul(c, y, proa_view_cols(sums, 0, F), proa_view_cols(sums, F, 2 * F), e->act);
    else if (e->act) c->ops->act(c, y, e->act);
}

/* ---- lora_stack ---- */

typedef struct stacking {
    char *w;
    const char *base;
    const proa_lora *l;
    proa_lora_stack at;
    int32_t slot;
} stacking;

/* `count` numbers of the adapter's type that are `step` apart. The largest magnitude is returned. */
static float gather_numbers(const stacking *s, float *out, const char *from, int64_t count, int64_t step)
{
    float largest = 0;
    for (int64_t i = 0; i < count; i++) {
        load_elements(&out[i], from, s->l->dtype, i * step, 1);
        largest = fmaxf(largest, fabsf(out[i]));
    }
    return largest;
}

/* Row `row` of the product from one row of A. Returns its scale. */
static float stack_a_row(const stacking *s, const proa_weight *w, int64_t row, const char *from, int64_t step)
{
    float *numbers = proa_malloc((size_t)s->l->K * sizeof *numbers);
    char *to = s->w + row * s->at.row_bytes;
    float scale = proa_fp8_scale(gather_numbers(s, numbers, from, s->l->K, step), 1);
    memset(to, 0, (size_t)s->at.row_bytes);
    if (w->format != PROA_WFMT_FP8) proa_from_f32(to, s->l->dtype, numbers, s->l->K);
    for (int64_t k = 0; k < s->l->K && w->format == PROA_WFMT_FP8; k++)
        to[k] = (char)proa_fp8_round(numbers[k], scale);
    free(numbers);
    return scale;
}

static void stack_a(const stacking *s, const proa_weight *w)
{
    int64_t columns = (int64_t)s->l->pieces * s->l->rank, first = s->at.a_row + s->slot * columns;
    bool codes = w->format == PROA_WFMT_FP8;
    float *scales = (float *)(void *)(s->w + s->at.scales);
    if (codes) memcpy(scales, s->w + proa_coded_rows_of(w->N, w->K).scales_at, (size_t)w->N * sizeof(float));
    for (int64_t c = 0; c < columns; c++) {
        const char *from = s->base + s->l->a + c * proa_dtype_bytes(s->l->dtype);
        float scale = stack_a_row(s, w, first + c, from, columns);
        if (codes) scales[first + c] = scale;
    }
}

/* Panel `panel` of all, of the piece p. */
static void stack_panel(const stacking *s, const proa_weight *w, int64_t panel, int32_t p)
{
    const proa_lora *l = s->l;
    float numbers[PROA_LORA_PANEL * PROA_LORA_RANK_MAX], scale = 1;
    int64_t count = (int64_t)l->rank * PROA_LORA_PANEL, row = PROA_LORA_PANEL * s->at.number_bytes;
    const char *from = s->base + l->b + panel * count * proa_dtype_bytes(l->dtype);
    const proa_lora_use *use = (const proa_lora_use *)(const void *)(s->base + l->use) + p;
    char *to = s->w + s->at.b + panel * s->at.panel_bytes;
    float largest = gather_numbers(s, numbers, from, count, 1);
    bool codes = w->format == PROA_WFMT_FP8;
    if (codes) scale = proa_fp8_scale(largest, 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t j = i / PROA_LORA_PANEL, own = s->slot * l->rank + (j ^ (s->slot & s->at.swap));
        char *at = to + own * row + i % PROA_LORA_PANEL * s->at.number_bytes;
        if (codes) *at = (char)proa_fp8_round(numbers[i], scale);
        else proa_from_f32(at, l->dtype, &numbers[i], 1);
    }
    ((float *)(void *)(to + s->at.panel_scales))[s->slot] = use->scale * scale;
}

void proa_lora_stack_reference(proa_ctx *c, const proa_weight *w, const proa_lora *l, int32_t slot,
                               const char *base)
{
    const stacking s = {w->data, base, l, proa_lora_stack_of(l, w), slot};
    int64_t panel = 0;
    PROA_UNUSED(c);
    stack_a(&s, w);
    for (int32_t p = 0; p < l->pieces; p++)
        for (int64_t end = panel + proa_lora_panels(l, p); panel < end; panel++) stack_panel(&s, w, panel, p);
}
