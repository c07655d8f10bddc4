/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a GGUF file; an input that does not begin with "GGUF" gets the first 24 bytes of a header with as many
 * values and tensors as its first two bytes say. What opens must hold what weights.h says: every tensor inside the
 * bytes, names sorted and found; every text that stands in for a file can be read, or is refused with an error. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "weights/weights.h"

static void read_texts(const proa_weights *w)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer.model",
                                        "tokenizer_config.json"};
    const proa_files *files = proa_weights_files(w);
    PROA_ASSERT(proa_weights_count(w) == 0 || proa_files_has(files, "config.json"));
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        proa_buf buf = {0};
        proa_err err = {.status = PROA_OK};
        if (!proa_files_has(files, names[i])) continue;
        proa_status status = proa_files_read(&buf, files, names[i], PROA_TOKENIZER_BYTES_MAX, &err);
        PROA_ASSERT(status == err.status && (status == PROA_OK) == (err.text[0] == 0));
        proa_buf_release(&buf);
    }
}

static void check_tensor(const proa_weights_tensor *t, const uint8_t *data, size_t size)
{
    float out[64];
    const proa_tensor_source *s = &t->source;
    const uint8_t *p = s->view.data;
    int64_t bytes = proa_tensor_source_bytes(s);
    PROA_ASSERT(p >= data && bytes >= 0 && bytes <= (int64_t)size && p + bytes <= data + size);
    proa_tensor_source matrix = *s;
    if (bytes == 0) return;
    if (matrix.view.rank != 2)
        matrix.view = proa_view_2d(s->view.data, s->view.dtype, 1, proa_view_count(s->view));
    if (matrix.view.rank != s->view.rank) matrix.order = (proa_row_order){0};
    int64_t rows = proa_tensor_source_rows(&matrix), cols = proa_tensor_source_cols(&matrix);
    PROA_ASSERT(rows == matrix.view.shape[0]);
    if (s->encoding == PROA_ENCODING_PLAIN && !proa_dtype_floating(s->view.dtype)) return;
    for (int64_t row = 0; row < rows; row += 1 + rows / 16)
        proa_tensor_source_read(&matrix, row, cols > 64 ? cols - 64 : 0, cols > 64 ? 64 : cols, out);
}

static void try_file(const uint8_t *data, size_t size)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_weights_open_bytes(&w, data, (int64_t)size, "fuzz", &err);
    PROA_ASSERT((status == PROA_OK) == (w != NULL) && status == err.status);
    PROA_ASSERT(w || strlen(err.text) > 0);
    for (int64_t i = 0; w && i < proa_weights_count(w); i++) {
        const proa_weights_tensor *t = proa_weights_at(w, i);
        PROA_ASSERT(i == 0 || strcmp(t[-1].name, t->name) < 0);
        PROA_ASSERT(proa_weights_find(w, t->name) == t);
        check_tensor(t, data, size);
    }
    if (w) read_texts(w);
    proa_weights_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || memcmp(data, "GG", 2) == 0) {
        try_file(data, size);
        return 0;
    }
    uint8_t *file = proa_calloc(24 + size, 1);
    memcpy(file, "GGUF\3", 5);
    file[8] = data[1], file[16] = data[0];
    memcpy(file + 24, data + 2, size - 2);
    try_file(file, 22 + size);
    free(file);
    return 0;
}
