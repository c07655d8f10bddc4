/* SPDX-License-Identifier: Apache-2.0
 * Quantised weights in tensors that may not fit each other. The input is a list of tensors, each of 2 + rank bytes: its
 * ending, dtype and rank, its shape; then, behind a byte 255, the data, repeated as often as needed. They become a
 * safetensors file in memory. What opens must be readable: each number, and each group of codes, equal where both are
 * given; and packed as a GPU and as a CPU read it. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/coded.h"
#include "kernels/groups.h"
#include "weights/weights.h"

#include <math.h>
#include <stdio.h>

enum { TENSORS_MAX = 8, DATA_MAX = 1 << 16, HEADER_MAX = 4096 };

static const char *const endings[] = {
    ".qweight",       ".qzeros",       ".scales",           ".g_idx", ".weight",
    ".weight_packed", ".weight_scale", ".weight_scale_inv", ".bias",  ".weight_zero_point",
    ".weight_shape",  ".weight_g_idx", "_blocks",           "_scales"};
static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {{"I32", 4}, {"F16", 2}, {"BF16", 2},    {"F32", 4},
              {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"I64", 8}};

/* One tensor of the list into the header; the bytes that it took of the input, 0 at the end. */
static size_t add_tensor(char *header, int64_t *data_bytes, const uint8_t *in, size_t size)
{
    if (size < 2 || in[0] == 255) return 0;
    size_t rank = in[1] / PROA_COUNT(dtypes) % 4, at = strlen(header);
    if (size < 2 + rank) return 0;
    int64_t bytes = dtypes[in[1] % PROA_COUNT(dtypes)].bytes;
    char shape[32] = "";
    for (size_t i = 0; i < rank; i++) {
        size_t end = strlen(shape);
        snprintf(shape + end, sizeof shape - end, "%s%d", i ? "," : "", in[2 + i]);
        bytes *= in[2 + i];
    }
    if (*data_bytes + bytes > DATA_MAX) return 0;
    snprintf(header + at, HEADER_MAX - at,
             "%s\"x%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}", at > 1 ? "," : "",
             endings[in[0] % PROA_COUNT(endings)], dtypes[in[1] % PROA_COUNT(dtypes)].name, shape,
             (long long)*data_bytes, (long long)(*data_bytes + bytes));
    *data_bytes += bytes;
    return 2 + rank;
}

static void check_codes(const proa_tensor_source *s, int64_t row, int64_t col)
{
    proa_code_group g;
    float numbers[PROA_CODES];
    if (!proa_tensor_source_codes(s, row, col, &g)) return;
    proa_tensor_source_read(s, row, col, PROA_CODES, numbers);
    for (int i = 0; i < PROA_CODES; i++) {
        float number = g.scale * (float)g.code[i] + g.min;
        bool near = fabsf(number - numbers[i]) <= 1e-3f * (fabsf(g.min) + fabsf(g.scale) * 256);
        PROA_ASSERT(g.code[i] >= g.least && g.code[i] <= g.most);
        PROA_ASSERT(near || !isfinite(number) || !isfinite(numbers[i]) || isnan(g.scale));
    }
}

/* As a GPU's weight: each number can be read from groups, and those of e4m3 are what is stored, or NaN. */
static void check_packed(const proa_tensor_source *s)
{
    proa_weight w = {.N = proa_tensor_source_rows(s), .K = proa_tensor_source_cols(s)};
    if (!proa_coded_format(&w.format, s)) return;
    PROA_ASSERT(proa_coded_is_kept(w.format, s, 1));
    const bool rows = !proa_wfmt_is_coded(w.format);
    w.permuted = proa_wfmt_takes_order(w.format) && proa_coded_is_permuted(s);
    w.bytes = rows ? proa_coded_rows_of(w.N, w.K).bytes : proa_coded_layout_of(w.format, w.N, w.K).bytes;
    void *packed = proa_malloc((size_t)proa_max64(w.bytes, 1));
    proa_pool *pool = proa_pool_new(1);
    if (rows) proa_coded_pack_rows(pool, packed, &w, s, 1);
    else proa_coded_pack(pool, packed, &w, s, 1);
    for (int64_t n = 0; n < w.N && !rows; n++)
        for (int64_t k = 0; k < w.K; k++) {
            float number = proa_coded_number(packed, &w, n, k), stored;
            proa_tensor_source_read(s, n, k, 1, &stored);
            PROA_ASSERT(w.format != PROA_WFMT_FP8G || number == stored || isnan(number));
        }
    proa_pool_free(pool);
    free(packed);
}

/* As a CPU's weight in groups. */
static void check_groups(const proa_tensor_source *s)
{
    proa_wfmt format;
    int64_t rows = proa_tensor_source_rows(s), cols = proa_tensor_source_cols(s);
    if (cols < PROA_GROUP || !proa_group_format(&format, s)) return;
    const bool permuted = proa_wfmt_takes_order(format) && proa_coded_is_permuted(s);
    int32_t *order = permuted ? proa_malloc((size_t)cols * sizeof *order) : NULL;
    if (order) proa_coded_order(order, s);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < cols; k += PROA_GROUP) {
            proa_quant_group g;
            proa_source_span span = {s, row, k, proa_min64(PROA_GROUP, cols - k), order};
            proa_group_read(format, &g, &span);
        }
    free(order);
}

static void check_matrix(const proa_tensor_source *s)
{
    int64_t rows = proa_tensor_source_rows(s), cols = proa_tensor_source_cols(s);
    float *numbers = proa_malloc((size_t)cols * sizeof *numbers);
    for (int64_t row = 0; row < rows; row++) {
        proa_tensor_source_read(s, row, 0, cols, numbers);
        for (int64_t col = 0; col + PROA_CODES <= cols; col += PROA_CODES) check_codes(s, row, col);
    }
    free(numbers);
    check_packed(s);
    check_groups(s);
}

/* Tensors of experts as matrices one by one, transposed so that their blocks are along the rows. */
static void check_tensor(const proa_weights_tensor *t)
{
    const proa_tensor_source *s = &t->source;
    if (s->encoding != PROA_ENCODING_SCALED) return;
    PROA_ASSERT(s->view.rank == 2 || s->view.rank == 3);
    proa_tensor_source matrix = *s;
    if (s->view.rank == 3)
        matrix.view = proa_view_2d(s->view.data, s->view.dtype, s->view.shape[0] * s->view.shape[2],
                                   s->view.shape[1]);
    check_matrix(&matrix);
    if (s->view.rank == 2 && s->view.shape[1] > 1) {
        matrix.view = proa_view_transpose(matrix.view);
        check_matrix(&matrix);
    }
}

static void try_file(const uint8_t *file, int64_t size)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_weights_open_bytes(&w, file, size, "fuzz", &err);
    PROA_ASSERT((status == PROA_OK) == (w != NULL) && status == err.status);
    PROA_ASSERT(w || strlen(err.text) > 0);
    for (int64_t i = 0; w && i < proa_weights_count(w); i++) check_tensor(proa_weights_at(w, i));
    proa_weights_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char header[HEADER_MAX] = "{";
    int64_t bytes = 0;
    size_t at = 0, taken;
    for (int i = 0; i < TENSORS_MAX && (taken = add_tensor(header, &bytes, data + at, size - at)) > 0; i++)
        at += taken;
    while (at < size && data[at] == 255) at++;
    strcat(header, "}");
    size_t length = strlen(header), rest = size - at;
    uint8_t *file = proa_malloc(8 + length + (size_t)bytes); /* exactly: a read beyond it is seen */
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(file + 8, header, length);
    for (int64_t i = 0; i < bytes; i++)
        file[8 + (int64_t)length + i] = rest ? data[at + (size_t)i % rest] : (uint8_t)i;
    try_file(file, 8 + (int64_t)length + bytes);
    free(file);
    return 0;
}
