/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a ModelInferRequest. What is accepted has its tensors inside the message (or in buffers of their own),
 * and where protobuf-c reads the bytes too it must have found the same. */
#include "fuzz.h"

#include "api/grpc/infer_pb.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "proto/grpc_service.pb-c.h"
#include <string.h>

static char region_bytes[256];

static void region_gone(void *arg)
{
    PROA_UNUSED(arg);
}

static proa_status find_region(void *arg, const char *name, uint64_t offset, uint64_t bytes,
                               proa_buffer **out, proa_err *err)
{
    PROA_UNUSED(arg);
    if (!*name || offset > sizeof region_bytes || bytes > sizeof region_bytes - offset)
        return PROA_FAIL(err, NOT_FOUND, "no such region");
    *out = proa_buffer_wrap(region_bytes + offset, bytes, region_gone, NULL);
    return PROA_OK;
}

/* Every byte is read, so that the address sanitiser sees one that is not there. */
static void check_tensor(const proa_tensor *t)
{
    unsigned sum = 0;
    PROA_ASSERT(t->rank >= 0 && t->rank <= PROA_SERVE_RANK_MAX);
    PROA_ASSERT((t->bytes == 0) == (t->buffer == NULL));
    for (size_t i = 0; i < t->bytes; i++) sum += (unsigned char)t->data[i];
    PROA_ASSERT(t->bytes == 0 ||
                (t->data >= t->buffer->data && t->data + t->bytes <= t->buffer->data + t->buffer->bytes));
    PROA_ASSERT(sum <= 255 * t->bytes);
}

static void compare(const proa_infer *r, const proa_infer_pb *m, const Inference__ModelInferRequest *q)
{
    PROA_ASSERT(strcmp(r->model_name, q->model_name) == 0 && strcmp(r->id, q->id) == 0);
    PROA_ASSERT((size_t)r->inputs_count == q->n_inputs && (size_t)r->outputs_count == q->n_outputs);
    PROA_ASSERT((size_t)m->params.count == q->n_parameters && (size_t)m->raw.count == q->n_raw_input_contents);
    for (size_t i = 0; i < q->n_inputs; i++) {
        const proa_tensor *t = &r->inputs[i];
        PROA_ASSERT(strcmp(t->name, q->inputs[i]->name) == 0);
        PROA_ASSERT((size_t)t->rank == q->inputs[i]->n_shape);
        PROA_ASSERT(t->rank == 0 ||
                    memcmp(t->shape, q->inputs[i]->shape, (size_t)t->rank * sizeof *t->shape) == 0);
    }
    for (size_t i = 0; i < q->n_outputs; i++) PROA_ASSERT(strcmp(r->outputs[i], q->outputs[i]->name) == 0);
    if (q->n_inputs == 1 && q->n_raw_input_contents == 1 && !q->inputs[0]->n_parameters) {
        PROA_ASSERT(r->inputs[0].bytes == q->raw_input_contents[0].len);
        PROA_ASSERT(!r->inputs[0].bytes ||
                    memcmp(r->inputs[0].data, q->raw_input_contents[0].data, r->inputs[0].bytes) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_err err = {.status = PROA_OK};
    proa_infer *r = proa_infer_new();
    char *copy = proa_malloc(size);
    if (size) memcpy(copy, data, size);
    proa_buffer *body = proa_buffer_wrap(copy, size, free, copy);
    proa_infer_pb m = {.bytes = {copy, size}, .body = body, .region = find_region};
    proa_status status = proa_infer_pb_scan(&m, r, &err);
    if (status == PROA_OK) status = proa_infer_pb_fill(&m, r, &err);
    PROA_ASSERT(status == err.status);
    for (int32_t i = 0; i < r->inputs_count; i++) check_tensor(&r->inputs[i]);
    if (status == PROA_OK) {
        Inference__ModelInferRequest *q = inference__model_infer_request__unpack(NULL, size, data);
        if (q) {
            compare(r, &m, q);
            inference__model_infer_request__free_unpacked(q, NULL);
        }
    } else PROA_ASSERT(strlen(err.text) > 0);
    proa_buffer_drop(body);
    proa_infer_pb_release(&m);
    proa_infer_drop(r);
    return 0;
}
