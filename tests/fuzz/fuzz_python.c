/* SPDX-License-Identifier: Apache-2.0
 * What a worker process may write into shared memory: any bytes as the payload of a response. What is accepted has its
 * tensors inside the block, or inside the block of the request that is answered. */
#include "backends/process/process.h"
#include "fuzz.h"
#include <string.h>
#include <sys/mman.h>

#define BYTES ((size_t)1 << 20)

static proa_shared_view *view;
static proa_shared_arena *arena;
static char *theirs;
static uint64_t request;

static void begin(void)
{
    if (view) return;
    PROA_ASSERT(proa_shared_view_new(&view, BYTES, NULL) == PROA_OK &&
                proa_shared_arena_new(&arena, BYTES, BYTES, NULL) == PROA_OK);
    theirs = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, proa_shared_view_fd(view), 0);
    PROA_ASSERT(theirs != MAP_FAILED);
    request = proa_shared_arena_alloc(arena, 256);
}

static void check(const proa_tensor *t, const char *block, size_t size)
{
    unsigned sum = 0;
    for (size_t i = 0; i < t->bytes; i++) sum += (unsigned char)t->data[i];
    PROA_ASSERT(sum <= 255 * t->bytes && (t->bytes == 0) == (t->buffer == NULL));
    const char *ours = proa_shared_arena_at(arena, request);
    /* a block of its own may be anywhere in the arena */
    const char *all = block - PROA_CHANNEL_DATA_BEGIN;
    bool inside = (t->data >= block && t->data + t->bytes <= block + size) ||
                  (t->data >= all && t->data + t->bytes <= all + BYTES);
    PROA_ASSERT(!t->bytes || inside || (t->data >= ours && t->data + t->bytes <= ours + 256));
}

static void read_all(proa_worker_model *model, proa_infer *r, const proa_channel_message *m)
{
    proa_payload w;
    proa_reply *reply = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_payload_open(&w, view, m, &err) != PROA_OK) return;
    w.arena = arena;
    w.inputs = request;
    if (proa_payload_reply(&reply, &w, model, r, &err) == PROA_OK) {
        for (int32_t i = 0; reply && i < reply->outputs_count; i++)
            check(&reply->outputs[i], w.data, m->bytes);
    } else {
        PROA_ASSERT(err.status != PROA_OK && *err.text);
    }
    proa_payload_close(&w);
    proa_reply_free(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t dims[] = {-1};
    Inference__ModelOutput number, text, *outputs[] = {&number, &text};
    Inference__ModelConfig config;
    begin();
    if (size == 0 || size > BYTES - PROA_CHANNEL_DATA_BEGIN) return 0;
    inference__model_config__init(&config);
    inference__model_output__init(&number);
    number.name = (char *)"N";
    number.data_type = INFERENCE__DATA_TYPE__TYPE_INT32;
    number.n_dims = 1;
    number.dims = dims;
    text = number;
    text.name = (char *)"T";
    text.data_type = INFERENCE__DATA_TYPE__TYPE_STRING;
    config.name = (char *)"m";
    config.n_output = 2;
    config.output = outputs;
    /* its warning has been given: the fuzzer's log stays empty */
    const proa_worker_kind kind = {.model = "model", .checks_outputs = data[size - 1] & 2};
    proa_worker_model model = {
        .config = &config, .settings = {.kind = &kind}, .strict_outputs = data[size - 1] & 1, .warned = true};
    proa_infer *r = proa_infer_new();
    r->model_name = "m";
    memcpy(theirs + PROA_CHANNEL_DATA_BEGIN, data, size);
    const proa_channel_message m = {.kind = PROA_CHANNEL_RESPONSE, .at = PROA_CHANNEL_DATA_BEGIN, .bytes = size};
    read_all(&model, r, &m);
    proa_infer_drop(r);
    memset(theirs, 0, PROA_CHANNEL_DATA_BEGIN); /* the blocks that were given back */
    return 0;
}
