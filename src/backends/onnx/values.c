/* SPDX-License-Identifier: Apache-2.0
 * values.c - tensors of requests as values of ONNX Runtime, and its values as tensors of replies. Numbers are passed by
 * reference where there is one request; strings are copied, since the library keeps its own. */
#include "backends/onnx/device.h"
#include "base/alloc.h"
#include "base/checked.h"
#include <string.h>

#define ALIGNMENT 64 /* bytes: that of the library's own allocations */

/* ---- inputs ---- */

static proa_tensor *input_of(proa_infer *r, const char *name)
{
    for (int32_t i = 0; i < r->inputs_count; i++)
        if (strcmp(r->inputs[i].name, name) == 0) return &r->inputs[i];
    return NULL;
}

/* An input that the server feeds for the whole batch is in the first request only. *on_device: all parts are in the
 * device's memory; else all are in the host's afterwards. */
static proa_status find_parts(proa_onnx_parts *p, bool *on_device, const proa_onnx_device *device,
                              const proa_onnx_batch *batch, proa_err *err)
{
    proa_tensor *found[PROA_BATCH_REQUESTS_MAX];
    p->count = 0;
    *on_device = true;
    for (int i = 0; i < batch->count; i++) {
        proa_tensor *t = input_of(batch->requests[i], batch->as->name);
        if (!t) continue;
        *on_device &= proa_onnx_device_holds(device, t);
        p->list[p->count] = found[p->count] = t;
        p->count++;
    }
    for (int i = 0; i < p->count && !*on_device; i++)
        if (proa_tensor_device(found[i])) PROA_TRY(proa_tensor_to_host(found[i], err));
    return p->count ? PROA_OK : PROA_FAIL(err, INVALID, "input '%s' is missing", batch->as->name);
}

/* Sets the shape of the joined value. */
static void set_joined_shape(proa_onnx_parts *p, const proa_onnx_batch *batch)
{
    const proa_tensor *first = p->list[0];
    p->onnx_type = batch->as->onnx_type;
    if (batch->ragged) {
        p->rank = 1, p->shape[0] = 0;
        for (int i = 0; i < p->count; i++)
            p->shape[0] += proa_shape_elements(p->list[i]->shape, p->list[i]->rank);
        return;
    }
    p->rank = 0;
    if (batch->as->rank == 0 && proa_shape_elements(first->shape, first->rank) == 1) return;
    p->rank = first->rank;
    memcpy(p->shape, first->shape, (size_t)first->rank * sizeof *p->shape);
    for (int i = 1; i < p->count && first->rank; i++) p->shape[0] += p->list[i]->shape[0];
}

/* The bytes may be used as they are: they are one piece of valid elements, aligned to a cache line. The library's
 * kernels split sums at vector boundaries of memory, so the last bits of a result would otherwise depend on where in a
 * request its bytes happen to be. */
static bool is_usable(const proa_onnx_parts *p)
{
    const proa_tensor *t = p->list[0];
    return p->count == 1 && t->bytes && t->type != PROA_TYPE_BOOL && (uintptr_t)t->data % ALIGNMENT == 0;
}

/* Elements of BOOL become 0 or 1: the library reads them as C++'s bool, which has no other values. */
static void copy_part(char *to, const proa_tensor *t)
{
    if (!t->bytes) return;
    if (t->type != PROA_TYPE_BOOL) memcpy(to, t->data, t->bytes);
    else
        for (size_t i = 0; i < t->bytes; i++) to[i] = t->data[i] != 0;
}

static proa_status join_numbers(OrtValue **out, proa_buffer **held, const proa_ort *ort,
                                const proa_onnx_parts *p, proa_err *err)
{
    size_t bytes = 0, at = 0;
    const char *data = p->list[0]->data;
    for (int i = 0; i < p->count; i++) bytes += p->list[i]->bytes;
    if (!is_usable(p)) {
        PROA_TRY(proa_buffer_try(held, bytes + 1, err)); /* the library wants an address for 0 bytes too */
        for (int i = 0; i < p->count; at += p->list[i]->bytes, i++) copy_part((*held)->data + at, p->list[i]);
        data = (*held)->data;
    }
    /* The library does not write to inputs. */
    return proa_ort_check(ort,
                          ort->CreateTensorWithDataAsOrtValue(ort->host, (void *)(uintptr_t)data, bytes,
                                                              p->shape, (size_t)p->rank, p->onnx_type, out),
                          err);
}

static proa_status fill_strings(OrtValue *value, const proa_ort *ort, const proa_onnx_parts *p,
                                int64_t elements, proa_err *err)
{
    int64_t index = 0;
    for (int i = 0; i < p->count; i++) {
        size_t at = 0;
        proa_str s;
        while (index < elements && proa_tensor_next_string(p->list[i], &at, &s)) {
            char *place = NULL;
            PROA_TRY(proa_ort_check(
                ort, ort->GetResizedStringTensorElementBuffer(value, (size_t)index++, s.len, &place), err));
            if (s.len) memcpy(place, s.ptr, s.len);
        }
    }
    return PROA_OK;
}

proa_status proa_onnx_join(OrtValue **out, proa_buffer **held, const proa_ort *ort, proa_onnx_device *device,
                           const proa_onnx_batch *batch, proa_err *err)
{
    proa_onnx_parts p;
    bool on_device;
    *out = NULL;
    *held = NULL;
    PROA_TRY(find_parts(&p, &on_device, device, batch, err));
    set_joined_shape(&p, batch);
    if (on_device) return proa_onnx_device_join(out, held, ort, device, &p, err);
    if (batch->as->type == PROA_TYPE_BYTES) {
        PROA_TRY(proa_ort_check(
            ort, ort->CreateTensorAsOrtValue(ort->allocator, p.shape, (size_t)p.rank, p.onnx_type, out), err));
        return fill_strings(*out, ort, &p, proa_shape_elements(p.shape, p.rank), err);
    }
    if (device->gpu >= 0) /* the library copies it to the GPU */
        for (int i = 0; i < p.count; i++) proa_device_copies_add(false, p.list[i]->bytes);
    return join_numbers(out, held, ort, &p, err);
}

/* ---- outputs ---- */

typedef struct held_value {
    const proa_ort *ort;
    OrtValue *value;
} held_value;

static void release_value(void *arg)
{
    held_value *held = arg;
    held->ort->ReleaseValue(held->value);
    free(held);
}

static proa_status read_shape(proa_tensor *out, const proa_ort *ort, const OrtValue *value, int *onnx_type,
                              proa_err *err)
{
    OrtTensorTypeAndShapeInfo *info = NULL;
    size_t rank = 0;
    PROA_TRY(proa_ort_check(ort, ort->GetTensorTypeAndShape(value, &info), err));
    proa_status status = proa_ort_check(ort, ort->GetTensorElementType(info, onnx_type), err);
    if (status == PROA_OK) status = proa_ort_check(ort, ort->GetDimensionsCount(info, &rank), err);
    if (status == PROA_OK && rank > PROA_SERVE_RANK_MAX)
        status = PROA_FAIL(err, LIMIT, "an output has %zu dimensions, at most %d can be sent", rank,
                           PROA_SERVE_RANK_MAX);
    if (status == PROA_OK) status = proa_ort_check(ort, ort->GetDimensions(info, out->shape, rank), err);
    ort->ReleaseTensorTypeAndShapeInfo(info);
    out->rank = (int32_t)rank;
    return status;
}

/* Refers to the value's own memory; the last reference to the buffer releases the value. */
static proa_status wrap_numbers(proa_tensor *out, const proa_ort *ort, const proa_device_memory *memory,
                                OrtValue *value, int64_t elements, proa_err *err)
{
    void *data = NULL;
    int64_t bytes;
    if (!proa_mul(elements, proa_type_bytes(out->type), &bytes))
        return PROA_FAIL(err, INTERNAL, "an output is too large");
    if (bytes) PROA_TRY(proa_ort_check(ort, ort->GetTensorMutableData(value, &data), err));
    held_value *held = proa_malloc(sizeof *held);
    *held = (held_value){ort, value};
    out->buffer = proa_buffer_wrap_memory(memory, data, (size_t)bytes, release_value, held);
    out->data = bytes ? data : NULL;
    out->bytes = (size_t)bytes;
    return PROA_OK;
}

static void frame_strings(char *to, const char *text, size_t total, const size_t *offsets, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t len = (uint32_t)((i + 1 < count ? offsets[i + 1] : total) - offsets[i]);
        memcpy(to, &len, sizeof len);
        memcpy(to + sizeof len, text + offsets[i], len);
        to += sizeof len + len;
    }
}

static proa_status copy_strings(proa_tensor *out, const proa_ort *ort, const OrtValue *value, int64_t count,
                                proa_err *err)
{
    size_t total = 0;
    if (count == 0) return PROA_OK;
    PROA_TRY(proa_ort_check(ort, ort->GetStringTensorDataLength(value, &total), err));
    if (total > UINT32_MAX)
        return PROA_FAIL(err, LIMIT, "the strings of an output have %zu bytes, at most %u can be sent", total,
                         UINT32_MAX);
    size_t framed = total + (size_t)count * sizeof(uint32_t);
    PROA_TRY(proa_buffer_try(&out->buffer, framed, err));
    char *text = proa_malloc(total + 1);
    size_t *offsets = proa_calloc((size_t)count, sizeof *offsets);
    proa_status status = proa_ort_check(
        ort, ort->GetStringTensorContent(value, text, total, offsets, (size_t)count), err);
    if (status == PROA_OK) frame_strings(out->buffer->data, text, total, offsets, count);
    free(offsets);
    free(text);
    out->data = out->buffer->data;
    out->bytes = framed;
    return status;
}

proa_status proa_onnx_tensor_of(proa_tensor *out, const proa_ort *ort, const proa_device_memory *memory,
                                const proa_onnx_tensor *as, OrtValue *value, proa_err *err)
{
    int kind = ORT_KIND_UNKNOWN, onnx_type = 0;
    *out = (proa_tensor){.name = as->name, .type = as->type};
    proa_status status = proa_ort_check(ort, ort->GetValueType(value, &kind), err);
    if (status == PROA_OK && kind != ORT_KIND_TENSOR)
        status = PROA_FAIL(err, INTERNAL, "output '%s' is no tensor", as->name);
    if (status == PROA_OK) status = read_shape(out, ort, value, &onnx_type, err);
    if (status == PROA_OK && onnx_type != as->onnx_type)
        status = PROA_FAIL(err, INTERNAL, "output '%s' has another type than the model declares", as->name);
    int64_t elements = status == PROA_OK ? proa_shape_elements(out->shape, out->rank) : 0;
    if (status == PROA_OK && elements < 0)
        status = PROA_FAIL(err, INTERNAL, "output '%s' has no valid shape", as->name);
    bool numbers = as->type != PROA_TYPE_BYTES;
    if (status == PROA_OK && numbers) status = wrap_numbers(out, ort, memory, value, elements, err);
    else if (status == PROA_OK) status = copy_strings(out, ort, value, elements, err);
    if (!numbers || !out->buffer) ort->ReleaseValue(value);
    if (status != PROA_OK) proa_tensor_release(out);
    return status;
}
