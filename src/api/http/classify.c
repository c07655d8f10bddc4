/* SPDX-License-Identifier: Apache-2.0
 * classify.c - the classification extension: the K largest elements of an output as "value:index:label". */
#include "api/frontend.h"

#include "base/checked.h"
#include "base/limits.h"
#include "serve/server.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One element: a key whose unsigned order is the order of the elements, and its index. */
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

/* The key of an element, whose bytes at `at` are not aligned. */
static uint64_t key_of(proa_type type, const char *at)
{
#define KEY_U(v) (v)
#define KEY_I(v) ((uint64_t)(int64_t)(v) ^ SIGN)
#define KEY_F(v) key_of_double((double)(v))
#define KEY_D(v) key_of_double(v)
#define KEY_CASE(name, c_type, kind)                                                                         \
    case PROA_TYPE_##name: {                                                                                 \
        c_type value;                                                                                        \
        memcpy(&value, at, sizeof value);                                                                    \
        return KEY_##kind(value);                                                                            \
    }
    switch (type) {
        PROA_TYPE_C_LIST(KEY_CASE)
    default: return 0; /* can_classify refuses the others */
    }
}

/* As C++'s std::to_string prints it: that is the form clients take apart. */
static void print_value(proa_buf *out, proa_type type, const char *at)
{
#define PRINT_U(v) proa_buf_printf(out, "%" PRIu64, (uint64_t)(v))
#define PRINT_I(v) proa_buf_printf(out, "%" PRId64, (int64_t)(v))
#define PRINT_F(v) proa_buf_printf(out, "%f", (double)(v))
#define PRINT_D(v) proa_buf_printf(out, "%f", v)
#define PRINT_CASE(name, c_type, kind)                                                                       \
    case PROA_TYPE_##name: {                                                                                 \
        c_type value;                                                                                        \
        memcpy(&value, at, sizeof value);                                                                    \
        PRINT_##kind(value);                                                                                 \
        break;                                                                                               \
    }
    switch (type) {
        PROA_TYPE_C_LIST(PRINT_CASE)
    default: break;
    }
}

/* Greater comes first; of equal ones the earlier. */
static bool ranks_before(candidate a, candidate b)
{
    return a.key != b.key ? a.key > b.key : a.at < b.at;
}

static int by_rank(const void *a, const void *b)
{
    return ranks_before(*(const candidate *)a, *(const candidate *)b) ? -1 : 1; /* places differ: never equal */
}

/* heap[0..count) has the last-ranked on top: puts c where the top was. */
static void sift_down(candidate *heap, int64_t count, int64_t i, candidate c)
{
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= count) break;
        if (child + 1 < count && ranks_before(heap[child], heap[child + 1])) child++;
        if (!ranks_before(c, heap[child])) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = c;
}

/* The k first-ranked of n elements, best first. */
static void choose_best(candidate *best, int64_t k, proa_type type, const char *data, int64_t n)
{
    size_t size = (size_t)proa_type_bytes(type);
    for (int64_t i = 0; i < k; i++) best[i] = (candidate){key_of(type, data + (size_t)i * size), (uint32_t)i};
    for (int64_t i = k / 2; i-- > 0;) sift_down(best, k, i, best[i]);
    for (int64_t i = k; i < n; i++) {
        candidate c = {key_of(type, data + (size_t)i * size), (uint32_t)i};
        if (ranks_before(c, best[0])) sift_down(best, k, 0, c);
    }
    qsort(best, (size_t)k, sizeof *best, by_rank);
}

static void print_row(proa_buf *out, const proa_tensor *output, const char *data, const candidate *best,
                      int64_t k, const proa_served_model *model)
{
    size_t size = (size_t)proa_type_bytes(output->type);
    for (int64_t i = 0; i < k; i++) {
        size_t head = out->len;
        proa_buf_append(out, "\0\0\0", 4);
        print_value(out, output->type, data + (size_t)best[i].at * size);
        proa_buf_printf(out, ":%" PRIu32, best[i].at);
        const char *label = proa_served_model_label(model, output->name, best[i].at);
        if (label) proa_buf_printf(out, ":%s", label);
        uint32_t len = (uint32_t)(out->len - head - 4);
        if (!out->full) memcpy(out->ptr + head, &len, sizeof len);
    }
}

static bool can_classify(proa_type type)
{
#define NUMBER_CASE(name, c_type, kind) case PROA_TYPE_##name:
    switch (type) {
        PROA_TYPE_C_LIST(NUMBER_CASE)
        return true;
    default: return false;
    }
}

/* rows of n elements each; INVALID in the cases of Triton's classification.cc. */
static proa_status measure_rows(int64_t *rows, int64_t *n, const proa_tensor *output, bool batched, proa_err *err)
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

proa_status proa_classify(proa_tensor *out, const proa_tensor *output, const proa_served_model *model,
                          int64_t k, bool batched, proa_err *err)
{
    int64_t rows = 0, n = 0;
    PROA_TRY(measure_rows(&rows, &n, output, batched, err));
    k = proa_max64(0, proa_min64(k, n));
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_CLASSES_BYTES_MAX);
    candidate *best = malloc((size_t)proa_max64(k, 1) * sizeof *best); /* at most 16 MB */
    if (!best) return PROA_FAIL(err, NO_MEMORY, "no memory to classify output '%s'", output->name);
    for (int64_t row = 0; row < rows && k > 0 && !text.full; row++) {
        const char *data = output->data + (size_t)(row * n) * (size_t)proa_type_bytes(output->type);
        choose_best(best, k, output->type, data, n);
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
