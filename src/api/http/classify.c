/* SPDX-License-Identifier: Apache-2.0 */
#include "api/frontend.h"

#include "base/checked.h"
#include "base/limits.h"
#include "serve/server.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One element: a number whose order as an unsigned one is that of the elements, and its place. */
typedef struct candidate {
    uint64_t key;
    uint32_t at;
} candidate;

#define SIGN ((uint64_t)1 << 63)

static uint64_t key_of_double(double d)
{
    uint64_t bits;
    if (d != d) return 0; /* NaN comes last */
    memcpy(&bits, &d, sizeof bits);
    return bits & SIGN ? ~bits : bits | SIGN;
}

#define LOAD(type, at)                                                                                       \
    type v;                                                                                                  \
    memcpy(&v, at, sizeof v)

/* at: the element's bytes, not aligned. */
static uint64_t key_of(proa_type type, const char *at)
{
    switch (type) {
    case PROA_TYPE_UINT8: {
        LOAD(uint8_t, at);
        return v;
    }
    case PROA_TYPE_UINT16: {
        LOAD(uint16_t, at);
        return v;
    }
    case PROA_TYPE_UINT32: {
        LOAD(uint32_t, at);
        return v;
    }
    case PROA_TYPE_UINT64: {
        LOAD(uint64_t, at);
        return v;
    }
    case PROA_TYPE_INT8: {
        LOAD(int8_t, at);
        return (uint64_t)(int64_t)v ^ SIGN;
    }
    case PROA_TYPE_INT16: {
        LOAD(int16_t, at);
        return (uint64_t)(int64_t)v ^ SIGN;
    }
    case PROA_TYPE_INT32: {
        LOAD(int32_t, at);
        return (uint64_t)(int64_t)v ^ SIGN;
    }
    case PROA_TYPE_INT64: {
        LOAD(int64_t, at);
        return (uint64_t)v ^ SIGN;
    }
    case PROA_TYPE_FP32: {
        LOAD(float, at);
        return key_of_double((double)v);
    }
    default: {
        LOAD(double, at);
        return key_of_double(v);
    }
    }
}

/* As C++'s std::to_string prints it: that is the form clients take apart. */
static void print_value(proa_buf *out, proa_type type, const char *at)
{
    switch (type) {
    case PROA_TYPE_UINT8: {
        LOAD(uint8_t, at);
        proa_buf_printf(out, "%u", v);
        break;
    }
    case PROA_TYPE_UINT16: {
        LOAD(uint16_t, at);
        proa_buf_printf(out, "%u", v);
        break;
    }
    case PROA_TYPE_UINT32: {
        LOAD(uint32_t, at);
        proa_buf_printf(out, "%" PRIu32, v);
        break;
    }
    case PROA_TYPE_UINT64: {
        LOAD(uint64_t, at);
        proa_buf_printf(out, "%" PRIu64, v);
        break;
    }
    case PROA_TYPE_INT8: {
        LOAD(int8_t, at);
        proa_buf_printf(out, "%d", v);
        break;
    }
    case PROA_TYPE_INT16: {
        LOAD(int16_t, at);
        proa_buf_printf(out, "%d", v);
        break;
    }
    case PROA_TYPE_INT32: {
        LOAD(int32_t, at);
        proa_buf_printf(out, "%" PRId32, v);
        break;
    }
    case PROA_TYPE_INT64: {
        LOAD(int64_t, at);
        proa_buf_printf(out, "%" PRId64, v);
        break;
    }
    case PROA_TYPE_FP32: {
        LOAD(float, at);
        proa_buf_printf(out, "%f", (double)v);
        break;
    }
    default: {
        LOAD(double, at);
        proa_buf_printf(out, "%f", v);
        break;
    }
    }
}

/* Greater comes first; of equal ones the earlier. */
static bool before(candidate a, candidate b)
{
    return a.key != b.key ? a.key > b.key : a.at < b.at;
}

static int by_rank(const void *a, const void *b)
{
    return before(*(const candidate *)a, *(const candidate *)b) ? -1 : 1; /* places differ: never equal */
}

/* heap[0..count) has the last-ranked on top: puts c where the top was. */
static void sift_down(candidate *heap, int64_t count, int64_t i, candidate c)
{
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= count) break;
        if (child + 1 < count && before(heap[child], heap[child + 1])) child++;
        if (!before(c, heap[child])) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = c;
}

/* The k first-ranked of n elements, best first. */
static void choose(candidate *best, int64_t k, proa_type type, const char *data, int64_t n)
{
    size_t size = (size_t)proa_type_bytes(type);
    for (int64_t i = 0; i < k; i++) best[i] = (candidate){key_of(type, data + (size_t)i * size), (uint32_t)i};
    for (int64_t i = k / 2; i-- > 0;) sift_down(best, k, i, best[i]);
    for (int64_t i = k; i < n; i++) {
        candidate c = {key_of(type, data + (size_t)i * size), (uint32_t)i};
        if (before(c, best[0])) sift_down(best, k, 0, c);
    }
    qsort(best, (size_t)k, sizeof *best, by_rank);
}

static void print_row(proa_buf *out, const proa_tensor *output, const char *data, const candidate *best,
                      int64_t k, const proa_model *model)
{
    size_t size = (size_t)proa_type_bytes(output->type);
    for (int64_t i = 0; i < k; i++) {
        size_t head = out->len;
        proa_buf_append(out, "\0\0\0", 4);
        print_value(out, output->type, data + (size_t)best[i].at * size);
        proa_buf_printf(out, ":%" PRIu32, best[i].at);
        const char *label = proa_model_label(model, output->name, best[i].at);
        if (label) proa_buf_printf(out, ":%s", label);
        uint32_t len = (uint32_t)(out->len - head - 4);
        if (!out->full) memcpy(out->ptr + head, &len, sizeof len);
    }
}

static bool can_classify(proa_type type)
{
    switch (type) {
    case PROA_TYPE_INVALID:
    case PROA_TYPE_BOOL:
    case PROA_TYPE_BYTES:
    case PROA_TYPE_FP16:
    case PROA_TYPE_BF16: return false;
    default: return true;
    }
}

/* rows of n elements each; INVALID where Triton's classification.cc says so. */
static proa_status measure(int64_t *rows, int64_t *n, const proa_tensor *output, bool batched, proa_err *err)
{
    int64_t total = proa_shape_elements(output->shape, output->rank);
    if (!can_classify(output->type))
        return PROA_FAIL(err, INVALID, "class result not available for output due to unsupported type '%s'",
                         proa_type_name(output->type));
    *rows = batched && output->rank > 0 ? output->shape[0] : 1;
    *n = total > 0 && *rows > 0 ? total / *rows : 0;
    if (*n > PROA_CLASSES_MAX) return PROA_FAIL(err, INVALID, "classification output tensor too large");
    int64_t bytes;
    if (total < 0 || !proa_mul(total, proa_type_bytes(output->type), &bytes) || (size_t)bytes != output->bytes)
        return PROA_FAIL(err, INTERNAL, "output '%s' has %zu bytes, which its shape does not", output->name,
                         output->bytes);
    return PROA_OK;
}

proa_status proa_classify(proa_tensor *out, const proa_tensor *output, const proa_model *model, int64_t k,
                          bool batched, proa_err *err)
{
    int64_t rows = 0, n = 0;
    PROA_TRY(measure(&rows, &n, output, batched, err));
    k = proa_max64(0, proa_min64(k, n));
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_CLASSES_BYTES_MAX);
    candidate *best = malloc((size_t)proa_max64(k, 1) * sizeof *best); /* at most 16 MB */
    if (!best) return PROA_FAIL(err, NO_MEMORY, "no memory to classify output '%s'", output->name);
    for (int64_t row = 0; row < rows && k > 0 && !text.full; row++) {
        const char *data = output->data + (size_t)(row * n) * (size_t)proa_type_bytes(output->type);
        choose(best, k, output->type, data, n);
        print_row(&text, output, data, best, k, model);
    }
    free(best);
    if (text.full) {
        proa_buf_release(&text);
        return PROA_FAIL(err, LIMIT, "the classes of output '%s' take more than %d MiB", output->name,
                         (int)(PROA_CLASSES_BYTES_MAX / PROA_MIB));
    }
    *out = (proa_tensor){.name = output->name, .type = PROA_TYPE_BYTES, .bytes = text.len};
    if (batched && output->rank > 0) out->shape[out->rank++] = rows;
    out->shape[out->rank++] = k;
    if (text.len) {
        out->buffer = proa_buffer_wrap(text.ptr, text.len, free, text.ptr);
        out->data = text.ptr;
    } else proa_buf_release(&text);
    return PROA_OK;
}
