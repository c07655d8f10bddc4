/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as the body of a request of inference: the first two say how long its JSON is, the third whether Triton's
 * statuses are asked for. Every tensor of what is taken must lie within the body or a buffer of its own and fit its
 * shape; what is echoed as JSON must be read again and give the same bytes. */
#include "fuzz.h"

#include "api/http/infer_json.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

enum { BYTES_MAX = 1 << 20 };

static proa_status region(void *arg, const char *name, uint64_t offset, uint64_t bytes, proa_buffer **out,
                          proa_err *err)
{
    static char memory[256];
    (void)arg;
    if (name[0] == 'x' || offset > sizeof memory || bytes > sizeof memory - offset)
        return PROA_FAIL(err, NOT_FOUND, "no such region");
    *out = proa_buffer_new(sizeof memory);
    return PROA_OK;
}

static void check_tensor(const proa_tensor *t, const char *body, size_t len)
{
    PROA_ASSERT(t->name && t->rank >= 0 && t->rank <= PROA_SERVE_RANK_MAX);
    PROA_ASSERT((t->bytes == 0) == (t->data == NULL));
    if (!t->bytes) return;
    if (t->data >= body && t->data < body + len) PROA_ASSERT(t->data + t->bytes <= body + len);
    volatile char last = t->data[t->bytes - 1]; /* must be readable */
    (void)last;
}

/* A tensor that came as JSON holds exactly what its shape says, and survives the way out and in again. */
static void check_round_trip(const proa_tensor *t)
{
    proa_buf out;
    proa_err err = {.status = PROA_OK};
    int64_t elements = proa_shape_elements(t->shape, t->rank), found;
    if (elements <= 0 || !t->bytes) return;
    if (t->type == PROA_TYPE_BYTES ? !proa_tensor_strings_fit(t, elements, &found)
                                   : (size_t)(elements * proa_type_bytes(t->type)) != t->bytes)
        return;
    if (t->type == PROA_TYPE_BYTES || t->type == PROA_TYPE_BOOL) return; /* other bytes may say the same */
    proa_buf_init(&out, (size_t)64 << 20);
    if (proa_tensor_json(&out, t, false, &err) == PROA_OK) {
        proa_tensor again = *t;
        proa_jread j;
        proa_arena arena;
        proa_arena_init(&arena);
        again.buffer = NULL, again.data = NULL, again.bytes = 0;
        proa_jread_init(&j, proa_buf_view(&out), &arena, false, BYTES_MAX);
        PROA_ASSERT(proa_jread_data(&j, &again, &err) == PROA_OK);
        PROA_ASSERT(again.bytes == t->bytes);
        bool real = t->type == PROA_TYPE_FP32 || t->type == PROA_TYPE_FP64;
        PROA_ASSERT(real || memcmp(again.data, t->data, t->bytes) == 0); /* NaNs have many forms */
        proa_tensor_release(&again);
        proa_arena_release(&arena);
    }
    proa_buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    size_t len = size - 3, json_len = (size_t)data[0] | (size_t)data[1] << 8;
    char *body = proa_malloc(len + 1);
    if (len) memcpy(body, data + 3, len);
    body[len] = 0;
    if (json_len > len) json_len = len;
    proa_err err = {.status = PROA_OK};
    proa_infer *r = proa_infer_new();
    r->model_name = "M";
    proa_buffer *buffer = proa_buffer_wrap(body, len, free, body);
    proa_infer_text text = {.json = {body, json_len},
                            .blobs = {body + json_len, len - json_len},
                            .body = buffer,
                            .strict = data[2] & 1,
                            .bytes_max = BYTES_MAX,
                            .region = region};
    proa_status status = proa_infer_json_read(&text, r, &err);
    PROA_ASSERT(status == err.status);
    PROA_ASSERT((status == PROA_OK) == (err.text[0] == 0));
    for (int32_t i = 0; i < r->inputs_count; i++) {
        if (status == PROA_OK) check_tensor(&r->inputs[i], body, len);
        if (status == PROA_OK) check_round_trip(&r->inputs[i]);
    }
    PROA_ASSERT(status != PROA_OK || text.wants_count == r->outputs_count);
    proa_infer_drop(r);
    proa_buffer_drop(buffer);
    return 0;
}
