/* SPDX-License-Identifier: Apache-2.0
 * Files of torch.save. Any bytes as a whole file, zip or old format; and an input that begins as a pickle becomes the
 * data.pkl of a zip file with two storages, since a mutation would break the directory at once. What opens must hold
 * what weights.h says: every element of every view is inside the bytes, names are sorted and found, the texts that the
 * file gives can be read. */
#include "fuzz.h"

#include "../torch_file.h"
#include "weights/weights.h"

/* Reads up to some thousand elements along each axis, first and last ones always. */
static uint64_t read_view(proa_view v)
{
    int64_t bytes = proa_dtype_bytes(v.dtype);
    uint64_t sum = 0;
    if (proa_view_count(v) == 0) return 0;
    for (int axis = 0; axis < v.rank; axis++) {
        int64_t last = v.shape[axis] - 1, step = last / 1000 + 1;
        const unsigned char *p = v.data;
        for (int64_t i = 0; i <= last; i += step) sum += p[i * v.stride[axis] * bytes];
        sum += p[last * v.stride[axis] * bytes + bytes - 1];
    }
    const unsigned char *end = v.data;
    for (int axis = 0; axis < v.rank; axis++) end += (v.shape[axis] - 1) * v.stride[axis] * bytes;
    return sum + end[bytes - 1];
}

static void try_file(const char *data, size_t size)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_weights_open_bytes(&w, data, (int64_t)size, "fuzz", &err);
    PROA_ASSERT((status == PROA_OK) == (w != NULL) && status == err.status);
    if (!w) {
        PROA_ASSERT(strlen(err.text) > 0);
        return;
    }
    volatile uint64_t sum = 0;
    for (int64_t i = 0; i < proa_weights_count(w); i++) {
        const proa_weights_tensor *t = proa_weights_at(w, i);
        PROA_ASSERT(i == 0 || strcmp(t[-1].name, t->name) < 0);
        PROA_ASSERT(proa_weights_find(w, t->name) == t);
        sum += read_view(t->source.view);
        proa_weights_drop(w, t);
    }
    static const char *const texts[] = {"config.json", "vocab.json", "target_vocab.json"};
    for (size_t i = 0; i < PROA_COUNT(texts); i++) {
        proa_json *json = NULL;
        if (!proa_files_has(proa_weights_files(w), texts[i])) continue;
        PROA_ASSERT(proa_files_json(&json, proa_weights_files(w), texts[i], PROA_TOKENIZER_BYTES_MAX, NULL) ==
                    PROA_OK);
        proa_json_free(json);
    }
    proa_weights_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char numbers[64] = {1, 2, 3};
    if (size < 4 || data[0] != 0x80 || memcmp(data + 2, "\x8a\x0a", 2) == 0) {
        try_file((const char *)data, size);
        return 0;
    }
    torch_file f;
    torch_file_begin(&f);
    torch_file_add(&f, "a/data.pkl", data, size);
    torch_file_add(&f, "a/byteorder", "little", 6);
    torch_file_add(&f, "a/data/0", numbers, sizeof numbers);
    torch_file_add(&f, "a/data/1", numbers, 16);
    torch_file_end(&f);
    if (!f.bytes.full) try_file(f.bytes.ptr, f.bytes.len);
    proa_buf_release(&f.bytes);
    return 0;
}
