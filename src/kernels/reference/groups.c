/* SPDX-License-Identifier: Apache-2.0
 * groups.c - rows of weights in groups: those of a CPU (groups.h) are kept as proa_quant_group and multiplied as
 * weight.h says; those of a GPU (coded.h) are kept as the f32 numbers that their codes stand for. */
#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/groups.h"
#include "kernels/coded.h"
#include "kernels/quant.h"
#include "kernels/reference/reference.h"

int64_t proa_reference_group_bytes(int64_t N, int64_t K)
{
    return proa_round_up(N * proa_group_count(K) * (int64_t)sizeof(proa_quant_group), 64);
}

void proa_reference_pack_groups(const proa_weight *w, int64_t n, const proa_tensor_source *source, int64_t row)
{
    proa_quant_group *groups = (proa_quant_group *)w->data + n * proa_group_count(w->K);
    for (int64_t k = 0; k < w->K; k += PROA_GROUP) {
        proa_source_span span = {source, row, k, proa_min64(PROA_GROUP, w->K - k), proa_group_order(w)};
        proa_group_read(w->format, &groups[k / PROA_GROUP], &span);
    }
}

void proa_reference_dot_groups(float *y, const proa_weight *w, int64_t n, int64_t rows, const float *x)
{
    const int64_t groups = proa_group_count(w->K);
    const int32_t zero = proa_group_zero(w->format), *order = proa_group_order(w);
    float gathered[PROA_GROUP];
    for (int64_t i = 0; i < rows; i++) y[i] = 0.0f;
    for (int64_t k = 0; k < w->K; k += PROA_GROUP) {
        int64_t count = proa_min64(PROA_GROUP, w->K - k);
        const float *v = proa_group_inputs(gathered, x, order, k, count);
        int finite;
        float largest = proa_i8_largest(v, count, 1, &finite), sx = proa_i8_scale(largest, finite);
        int8_t q[PROA_GROUP];
        int32_t inputs = 0;
        for (int64_t j = 0; j < count; j++) q[j] = proa_i8_round(v[j], sx), inputs += q[j];
        const proa_quant_group *g = (const proa_quant_group *)w->data + n * groups + k / PROA_GROUP;
        for (int64_t i = 0; i < rows; i++, g += groups) {
            int32_t products = 0;
            for (int64_t j = 0; j < count; j++) products += q[j] * (g->code[j] - zero);
            y[i] = fmaf((float)products, sx * proa_f16_to_f32(g->scale), y[i]);
            if (w->format == PROA_WFMT_Q4_1) y[i] = fmaf((float)inputs, sx * proa_f16_to_f32(g->min), y[i]);
        }
    }
}

/* I8W and FP8. */
static void read_coded_row(float *out, const proa_weight *w, const proa_tensor_source *source, int64_t row)
{
    uint8_t *code = proa_malloc((size_t)proa_max64(w->K, 1));
    float scale = proa_coded_read_row(code, source, row);
    for (int64_t k = 0; k < w->K; k++)
        out[k] = scale * (w->format == PROA_WFMT_FP8 ? proa_fp8_to_f32(code[k]) : (float)(int8_t)code[k]);
    free(code);
}

void proa_reference_pack_coded(const proa_weight *w, int64_t n, const proa_tensor_source *source, int64_t row)
{
    float *out = (float *)w->data + n * w->K;
    if (!proa_wfmt_is_coded(w->format)) {
        read_coded_row(out, w, source, row);
        return;
    }
    int32_t *order = w->permuted ? proa_malloc((size_t)w->K * sizeof *order) : NULL;
    if (order) proa_coded_order(order, source);
    int64_t each = proa_coded_layout_of(w->format, w->N, w->K).group;
    for (int64_t k = 0; k < w->K; k += each) {
        proa_coded_group g;
        proa_source_span span = {source, row, k, proa_min64(each, w->K - k), order};
        proa_coded_read(w->format, &g, &span);
        for (int64_t i = 0; i < span.n; i++)
            out[order ? order[k + i] : k + i] = proa_coded_value(w->format, &g, i);
    }
    free(order);
}
