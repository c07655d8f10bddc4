/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a .safetensors file; and an input that begins with '{' as header and data without their length, which
 * a mutation would break at once: the header ends at the last '}'. What opens must hold what weights.h says: every
 * view inside the bytes, names sorted and found, the sum of the views the data exactly. */
#include "fuzz.h"

#include "base/alloc.h"
#include "weights/weights.h"

/* Reads the data, so that a view beyond the bytes is seen. */
static uint64_t checked_sum(proa_view v, const uint8_t *data, size_t size)
{
    uint64_t sum = 0;
    const uint8_t *p = v.data;
    int64_t bytes = proa_view_count(v) * proa_dtype_bytes(v.dtype);
    PROA_ASSERT(p >= data + 8 && bytes >= 0 && bytes <= (int64_t)size && p + bytes <= data + size);
    PROA_ASSERT(proa_view_dense(v) || bytes == 0);
    for (int64_t i = 0; i < bytes; i++) sum += p[i];
    return sum;
}

static void try_file(const uint8_t *data, size_t size)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_weights_open_bytes(&w, data, (int64_t)size, "fuzz", &err);
    PROA_ASSERT((status == PROA_OK) == (w != NULL) && status == err.status);
    if (!w) {
        PROA_ASSERT(strlen(err.text) > 0);
        return;
    }
    int64_t bytes = 0;
    uint64_t sum = 0;
    for (int64_t i = 0; i < proa_weights_count(w); i++) {
        const proa_weights_tensor *t = proa_weights_at(w, i);
        PROA_ASSERT(i == 0 || strcmp(t[-1].name, t->name) < 0);
        PROA_ASSERT(proa_weights_find(w, t->name) == t);
        sum += checked_sum(t->source.view, data, size);
        bytes += proa_view_count(t->source.view) * proa_dtype_bytes(t->source.view.dtype);
        proa_weights_drop(w, t);
    }
    PROA_ASSERT(bytes <= (int64_t)size - 8);
    for (const uint8_t *p = data + size - bytes; p < data + size; p++) sum -= *p;
    PROA_ASSERT(sum == 0);
    const char *nearest = proa_weights_nearest(w, "model.embed_tokens.weight");
    PROA_ASSERT(!nearest || proa_weights_find(w, nearest));
    proa_weights_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || data[0] != '{') {
        try_file(data, size);
        return 0;
    }
    size_t header = size;
    while (header > 1 && data[header - 1] != '}') header--;
    uint8_t *file = proa_malloc(8 + size);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header >> (8 * i));
    memcpy(file + 8, data, size);
    try_file(file, 8 + size);
    free(file);
    return 0;
}
