/* SPDX-License-Identifier: Apache-2.0
 * pack.c - weights into panels (linear.h): any floating dtype and strides in, one layout for every level out. And rows
 *          and columns of packed weights into others. */
#include "kernels/cpu/linear.h"

#include "base/checked.h"
#include "kernels/coded.h"
#include "kernels/groups.h"
#include "kernels/quant.h"
#include <math.h>

#define BLOCK 64 /* k at a time: a tile of 32 x 64 f32 fits in L1 */

int64_t proa_panel_step_inputs(proa_wfmt format)
{
    if (proa_wfmt_is_grouped(format)) return PROA_GROUP;
    return format == PROA_WFMT_I8 ? 4 : format == PROA_WFMT_BF16DOT ? 2 : 1;
}

static int64_t step_bytes(proa_wfmt format)
{
    if (format == PROA_WFMT_Q8_0) return 8 * 128 + 64;
    if (format == PROA_WFMT_Q4_0 || proa_wfmt_has_table(format)) return 8 * 64 + 64;
    if (format == PROA_WFMT_Q4_1) return 8 * 64 + 128;
    return format == PROA_WFMT_BF16 || format == PROA_WFMT_F16 ? 64 : 128;
}

int32_t proa_group_factor(proa_wfmt format, bool biased)
{
    if (format == PROA_WFMT_Q8_0 || proa_wfmt_has_table(format)) return biased ? 128 : 0;
    return format == PROA_WFMT_Q4_0 ? 8 : 1;
}

int64_t proa_panel_count(int64_t N)
{
    return proa_ceil_div(N, PROA_PANEL);
}

int64_t proa_panel_steps(proa_wfmt format, int64_t K)
{
    return proa_ceil_div(K, proa_panel_step_inputs(format));
}

int64_t proa_panel_bytes(proa_wfmt format, int64_t K)
{
    return proa_panel_steps(format, K) * step_bytes(format);
}

int64_t proa_panels_pack_bytes(proa_wfmt format, int64_t N, int64_t K)
{
    int64_t panels = proa_panel_count(N);
    if (format > PROA_WFMT_I8 && !proa_wfmt_is_grouped(format)) return -1; /* made for devices */
    int64_t tail = format == PROA_WFMT_I8 ? panels * PROA_PANEL * 8 : 0;
    return panels * proa_panel_bytes(format, K) + tail;
}

typedef struct pack_job {
    const proa_weight *w;
    const proa_tensor_source *sources;
    int count;
} pack_job;

/* read_source of a transposed source (GPT-2): its columns are contiguous. */
static void read_columns(float (*tile)[BLOCK], proa_view s, int64_t row, int64_t rows, int64_t k, int64_t n)
{
    int64_t bytes = proa_dtype_bytes(s.dtype);
    const char *data = (const char *)s.data + (row * s.stride[0] + k * s.stride[1]) * bytes;
    float column[PROA_PANEL];
    for (int64_t j = 0; j < n; j++) {
        const char *at = data + j * s.stride[1] * bytes;
        if (s.stride[0] == 1) proa_to_f32(column, at, s.dtype, rows);
        else
            for (int64_t i = 0; i < rows; i++)
                proa_to_f32(&column[i], at + i * s.stride[0] * bytes, s.dtype, 1);
        for (int64_t i = 0; i < rows; i++) tile[i][j] = column[i];
    }
}

/* tile[i][0..n) = elements [k, k+n) of the source's rows row + i, i in [0, rows). */
static void read_source(float (*tile)[BLOCK], const proa_tensor_source *s, int64_t row, int64_t rows,
                        int64_t k, int64_t n)
{
    if (s->view.stride[1] == 1 || !proa_tensor_source_is_plain(s))
        for (int64_t i = 0; i < rows; i++) proa_tensor_source_read(s, row + i, k, n, tile[i]);
    else read_columns(tile, s->view, row, rows, k, n);
}

/* The panel's 32 outputs, wherever they lie in the sources; zeros beyond N and in [n, BLOCK). */
static void read_panel(float (*tile)[BLOCK], const pack_job *job, int64_t panel, int64_t k, int64_t n)
{
    memset(tile, 0, sizeof(float[PROA_PANEL][BLOCK]));
    int64_t first = panel * PROA_PANEL, source_first = 0;
    for (int i = 0; i < job->count; i++) {
        int64_t N = proa_tensor_source_rows(&job->sources[i]);
        int64_t begin = proa_max64(first, source_first);
        int64_t end = proa_min64(first + PROA_PANEL, source_first + N);
        if (begin < end)
            read_source(tile + (begin - first), &job->sources[i], begin - source_first, end - begin, k, n);
        source_first += N;
    }
}

/* The steps of one block of k from the tile to the panel. */
static void write_f32(float *out, float (*tile)[BLOCK], int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        for (int64_t j = 0; j < PROA_PANEL; j++) out[k * PROA_PANEL + j] = tile[j][k];
}

static void write_f16(uint16_t *out, float (*tile)[BLOCK], int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        for (int64_t j = 0; j < PROA_PANEL; j++) out[k * PROA_PANEL + j] = proa_f32_to_f16(tile[j][k]);
}

static void write_bf16(uint16_t *out, float (*tile)[BLOCK], int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        for (int64_t j = 0; j < PROA_PANEL / 2; j++) {
            out[k * PROA_PANEL + 2 * j] = proa_f32_to_bf16(tile[j][k]);
            out[k * PROA_PANEL + 2 * j + 1] = proa_f32_to_bf16(tile[j + PROA_PANEL / 2][k]);
        }
}

static void write_bf16_pairs(uint16_t *out, float (*tile)[BLOCK], int64_t n)
{
    for (int64_t k = 0; k < n; k += 2)
        for (int64_t j = 0; j < PROA_PANEL; j++) {
            out[k * PROA_PANEL + 2 * j] = proa_f32_to_bf16(tile[j][k]);
            out[k * PROA_PANEL + 2 * j + 1] = proa_f32_to_bf16(tile[j][k + 1]);
        }
}

static void write_i8(int8_t *out, float (*tile)[BLOCK], int64_t n, const float *scales, int32_t *sums)
{
    for (int64_t k = 0; k < n; k += 4)
        for (int64_t j = 0; j < PROA_PANEL; j++)
            for (int64_t i = 0; i < 4; i++) {
                int8_t q = proa_i8_round(tile[j][k + i], scales[j]);
                out[k * PROA_PANEL + 4 * j + i] = q;
                sums[j] += 128 * q;
            }
}

/* Of whole rows, where other ranks have other columns of them. */
static void panel_scales(const pack_job *job, int64_t panel, float *scales)
{
    float tile[PROA_PANEL][BLOCK], largest[PROA_PANEL] = {0};
    int finite[PROA_PANEL];
    int64_t end = job->w->K + job->sources[0].cols_behind;
    for (int j = 0; j < PROA_PANEL; j++) finite[j] = 1;
    for (int64_t k = -job->sources[0].cols_before; k < end; k += BLOCK) {
        int64_t n = proa_min64(BLOCK, end - k);
        read_panel(tile, job, panel, k, n);
        for (int j = 0; j < PROA_PANEL; j++) {
            int ok;
            float in_block = proa_i8_largest(tile[j], n, 1, &ok);
            if (!ok) finite[j] = 0;
            if (in_block > largest[j]) largest[j] = in_block;
        }
    }
    for (int j = 0; j < PROA_PANEL; j++) scales[j] = proa_i8_scale(largest[j], finite[j]);
}

/* The row of a source that becomes output n; false beyond N. */
static bool find_row(const pack_job *job, int64_t n, const proa_tensor_source **source, int64_t *row)
{
    for (int i = 0; i < job->count; i++) {
        int64_t N = proa_tensor_source_rows(&job->sources[i]);
        if (n < N) return *source = &job->sources[i], *row = n, true;
        n -= N;
    }
    return false;
}

/* What is stored for each code of proa_quant_group: itself, or its place in the table. Padding, which is multiplied
 * with zeros, may have no place. */
static void stored_codes(proa_wfmt format, uint8_t stored[256])
{
    for (int code = 0; code < 256; code++) stored[code] = proa_wfmt_has_table(format) ? 0 : (uint8_t)code;
    if (!proa_wfmt_has_table(format)) return;
    const int8_t *table = proa_group_table(format);
    for (int i = 15; i >= 0; i--) stored[table[i] + 128] = (uint8_t)i;
}

/* Output j of a panel: its codes, four k a step, then its scale and its minimum after the codes. */
static void write_group(proa_wfmt format, char *out, int64_t j, const proa_quant_group *g,
                        const uint8_t stored[256])
{
    bool wide = format == PROA_WFMT_Q8_0;
    int64_t step = wide ? 128 : 64, shift = !wide && j >= 16 ? 4 : 0, place = wide ? j : j % 16;
    for (int64_t k = 0; k < PROA_GROUP; k++) {
        char *byte = out + k / 4 * step + place * 4 + k % 4;
        *byte = (char)((unsigned char)*byte | stored[g->code[k]] << shift);
    }
    memcpy(out + 8 * step + 2 * j, &g->scale, 2);
    if (format == PROA_WFMT_Q4_1) memcpy(out + 8 * step + 64 + 2 * j, &g->min, 2);
}

static void pack_group_panel(const pack_job *job, int64_t panel)
{
    const proa_weight *w = job->w;
    int64_t bytes = proa_panel_bytes(w->format, w->K);
    char *out = (char *)w->data + panel * bytes;
    uint8_t stored[256];
    stored_codes(w->format, stored);
    memset(out, 0, (size_t)bytes);
    for (int64_t j = 0; j < PROA_PANEL; j++) {
        const proa_tensor_source *source;
        int64_t row;
        if (!find_row(job, panel * PROA_PANEL + j, &source, &row)) break;
        for (int64_t k = 0; k < w->K; k += PROA_GROUP) {
            proa_quant_group group;
            proa_source_span span = {source, row, k, proa_min64(PROA_GROUP, w->K - k), proa_group_order(w)};
            proa_group_read(w->format, &group, &span);
            write_group(w->format, out + k / PROA_GROUP * step_bytes(w->format), j, &group, stored);
        }
    }
}

static void pack_panel(const pack_job *job, int64_t panel)
{
    if (proa_wfmt_is_grouped(job->w->format)) {
        pack_group_panel(job, panel);
        return;
    }
    const proa_weight *w = job->w;
    int64_t panels = proa_panel_count(w->N);
    char *out = (char *)w->data + panel * proa_panel_bytes(w->format, w->K);
    char *tail = (char *)w->data + panels * proa_panel_bytes(w->format, w->K);
    float *scales = (float *)(void *)tail + panel * PROA_PANEL;
    int32_t *sums = (int32_t *)(void *)tail + (panels + panel) * PROA_PANEL;
    if (w->format == PROA_WFMT_I8) {
        panel_scales(job, panel, scales);
        memset(sums, 0, PROA_PANEL * sizeof *sums);
    }
    float tile[PROA_PANEL][BLOCK];
    int64_t inputs = proa_panel_step_inputs(w->format);
    for (int64_t k = 0; k < w->K; k += BLOCK) {
        int64_t n = proa_min64(BLOCK, w->K - k);
        read_panel(tile, job, panel, k, n);
        void *to = out + k / inputs * step_bytes(w->format);
        switch (w->format) {
        case PROA_WFMT_F32: write_f32(to, tile, n); break;
        case PROA_WFMT_F16: write_f16(to, tile, n); break;
        case PROA_WFMT_BF16: write_bf16(to, tile, n); break;
        case PROA_WFMT_BF16DOT: write_bf16_pairs(to, tile, n); break;
        case PROA_WFMT_I8: write_i8(to, tile, n, scales, sums); break;
        case PROA_WFMT_I8W: /* made for devices: pack_bytes returned -1 */
        case PROA_WFMT_FP8:
        case PROA_WFMT_I4:
        case PROA_WFMT_I4A:
        case PROA_WFMT_I4A32:
        case PROA_WFMT_MXFP4W:
        case PROA_WFMT_I8G:
        case PROA_WFMT_FP8G:
        case PROA_WFMT_Q8_0: /* pack_group_panel */
        case PROA_WFMT_Q4_0:
        case PROA_WFMT_Q4_1:
        case PROA_WFMT_MXFP4:
        case PROA_WFMT_IQ4_NL:
        case PROA_WFMT_COUNT: break;
        }
    }
}

static void pack_panels(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    for (int64_t panel = begin; panel < end; panel++) pack_panel(arg, panel);
}

void proa_panels_pack(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count)
{
    pack_job job = {w, sources, count};
    if (proa_group_order(w)) proa_coded_order(proa_group_order(w), &sources[0]);
    proa_pool_run(c->pool, proa_panel_count(w->N), proa_max64(1, 8192 / proa_max64(w->K, 1)), pack_panels, &job);
}

/* ---- rectangles of packed weights: code by code, or panel by panel where both have it at the same place of their
 * panels ---- */

typedef struct copy_job {
    const proa_weight *to, *from;
    proa_packed_rect rect;
    int64_t step_inputs, step_bytes;
} copy_job;

/* The bit at which code k of output j begins in a step; 0 <= j < PROA_PANEL. */
static int64_t code_bit(proa_wfmt format, int64_t j, int64_t k)
{
    switch (format) {
    case PROA_WFMT_F32: return 32 * j;
    case PROA_WFMT_F16: return 16 * j;
    case PROA_WFMT_BF16: return 16 * (2 * (j % 16) + j / 16);
    case PROA_WFMT_BF16DOT: return 16 * (2 * j + k);
    case PROA_WFMT_I8: return 8 * (4 * j + k);
    case PROA_WFMT_Q8_0: return 8 * (k / 4 * 128 + 4 * j + k % 4);
    default: return 8 * (k / 4 * 64 + 4 * (j % 16) + k % 4) + 4 * (j / 16);
    }
}

static int64_t code_bits(proa_wfmt format)
{
    if (format == PROA_WFMT_F32) return 32;
    if (format <= PROA_WFMT_BF16DOT) return 16;
    return format == PROA_WFMT_I8 || format == PROA_WFMT_Q8_0 ? 8 : 4;
}

static char *step_at(const copy_job *job, const proa_weight *w, int64_t row, int64_t k)
{
    return (char *)w->data + row / PROA_PANEL * proa_panel_bytes(w->format, w->K) +
           k / job->step_inputs * job->step_bytes;
}

static void copy_code(const copy_job *job, int64_t to_row, int64_t to_k, int64_t from_row, int64_t from_k)
{
    const proa_wfmt format = job->to->format;
    int64_t to_bit = code_bit(format, to_row % PROA_PANEL, to_k % job->step_inputs);
    int64_t from_bit = code_bit(format, from_row % PROA_PANEL, from_k % job->step_inputs);
    int64_t bits = code_bits(format);
    char *to = step_at(job, job->to, to_row, to_k) + to_bit / 8;
    const char *from = step_at(job, job->from, from_row, from_k) + from_bit / 8;
    if (bits >= 8) {
        memcpy(to, from, (size_t)(bits / 8));
        return;
    }
    int code = *(const unsigned char *)from >> from_bit % 8 & 15;
    *to = (char)((*(unsigned char *)to & ~(15 << to_bit % 8)) | code << to_bit % 8);
}

/* The scale of a group, and its minimum. */
static void copy_factors(const copy_job *job, int64_t to_row, int64_t to_k, int64_t from_row, int64_t from_k)
{
    int64_t codes = PROA_PANEL * PROA_GROUP * code_bits(job->to->format) / 8;
    char *to = step_at(job, job->to, to_row, to_k) + codes + 2 * (to_row % PROA_PANEL);
    const char *from = step_at(job, job->from, from_row, from_k) + codes + 2 * (from_row % PROA_PANEL);
    memcpy(to, from, 2);
    if (job->to->format == PROA_WFMT_Q4_1) memcpy(to + 64, from + 64, 2);
}

/* The scale of an output in int8, which is after the panels, and its sum behind the scales. */
static char *scale_at(const proa_weight *w, int64_t row)
{
    return (char *)w->data + proa_panel_count(w->N) * proa_panel_bytes(w->format, w->K) + 4 * row;
}

static int32_t *sum_at(const proa_weight *w, int64_t row)
{
    return (int32_t *)(void *)(scale_at(w, row) + 4 * proa_panel_count(w->N) * PROA_PANEL);
}

float proa_panels_row_scale(const proa_weight *w, int64_t row)
{
    float scale;
    memcpy(&scale, scale_at(w, row), 4);
    return scale;
}

/* The sum of the codes that are copied; write_i8 has that of all. */
static int32_t sum_of_codes(const copy_job *job, int64_t row)
{
    int32_t sum = 0;
    for (int64_t k = job->rect.from_col; k < job->rect.from_col + job->rect.cols; k++) {
        int64_t bit = code_bit(PROA_WFMT_I8, row % PROA_PANEL, k % job->step_inputs);
        sum += 128 * *(const signed char *)(step_at(job, job->from, row, k) + bit / 8);
    }
    return sum;
}

static void copy_tail(const copy_job *job, int64_t to_row, int64_t from_row)
{
    bool all = job->rect.cols == job->from->K;
    memcpy(scale_at(job->to, to_row), scale_at(job->from, from_row), 4);
    *sum_at(job->to, to_row) += all ? *sum_at(job->from, from_row) : sum_of_codes(job, from_row);
}

static void copy_row(const copy_job *job, int64_t i)
{
    const proa_packed_rect *r = &job->rect;
    int64_t to = r->to_row + i, from = r->from_row + i;
    /* a group is copied whole, with its padding */
    const bool grouped = proa_wfmt_is_grouped(job->to->format);
    int64_t cols = grouped ? proa_round_up(r->cols, PROA_GROUP) : r->cols;
    for (int64_t k = 0; k < cols; k++) copy_code(job, to, r->to_col + k, from, r->from_col + k);
    for (int64_t k = 0; grouped && k < cols; k += PROA_GROUP)
        copy_factors(job, to, r->to_col + k, from, r->from_col + k);
    if (job->to->format == PROA_WFMT_I8) copy_tail(job, to, from);
}

/* Whole steps of all outputs of a panel, or of the last outputs of both weights. */
static bool is_whole_panel(const copy_job *job, int64_t i, int64_t rows)
{
    const proa_packed_rect *r = &job->rect;
    int64_t to = r->to_row + i, from = r->from_row + i, S = job->step_inputs;
    bool ends = to + rows == job->to->N && from + rows == job->from->N;
    bool steps = r->cols % S == 0 ||
                 (r->to_col + r->cols == job->to->K && r->from_col + r->cols == job->from->K);
    return to % PROA_PANEL == 0 && from % PROA_PANEL == 0 && (rows == PROA_PANEL || ends) &&
           r->to_col % S == 0 && r->from_col % S == 0 && steps;
}

/* Outputs of one panel of the destination: the workers share no byte. */
static void copy_panels(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const copy_job *job = arg;
    const proa_packed_rect *r = &job->rect;
    int64_t first = r->to_row / PROA_PANEL;
    for (int64_t panel = first + begin; panel < first + end; panel++) {
        int64_t i = proa_max64(panel * PROA_PANEL - r->to_row, 0);
        int64_t rows = proa_min64((panel + 1) * PROA_PANEL - r->to_row, r->rows) - i;
        bool whole = is_whole_panel(job, i, rows);
        if (whole)
            memcpy(step_at(job, job->to, r->to_row + i, r->to_col),
                   step_at(job, job->from, r->from_row + i, r->from_col),
                   (size_t)(proa_ceil_div(r->cols, job->step_inputs) * job->step_bytes));
        for (int64_t k = 0; k < rows; k++) {
            if (!whole) copy_row(job, i + k);
            else if (job->to->format == PROA_WFMT_I8) copy_tail(job, r->to_row + i + k, r->from_row + i + k);
        }
    }
}

void proa_panels_copy(proa_pool *pool, proa_weight *to, const proa_weight *from, const proa_packed_rect *rect)
{
    copy_job job = {.to = to, .from = from, .rect = *rect};
    if (rect->rows == 0 || rect->cols == 0) return;
    job.step_inputs = proa_panel_step_inputs(to->format), job.step_bytes = proa_panel_bytes(to->format, 1);
    int64_t panels = (rect->to_row + rect->rows - 1) / PROA_PANEL - rect->to_row / PROA_PANEL + 1;
    proa_pool_run(pool, panels, proa_max64(1, 8192 / rect->cols), copy_panels, &job);
}
