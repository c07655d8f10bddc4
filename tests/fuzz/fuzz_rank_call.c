/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a call of rank 0, for the golden model llama: it is broken, or all of its arrays lie inside the message,
 * so that it can be written again, and what is written then reads the same. */
#include "fuzz.h"

#include "base/alloc.h"
#include "model/ranks/call.h"
#include <string.h>

static const proa_model *open_model(void)
{
    static proa_model *model;
    proa_model_options options = {.dtype = "f32", .rows_max = 8, .head_rows = 8, .lora_slots = 1, .lora_rank = 4};
    proa_device *device = NULL;
    proa_err err = {.status = PROA_OK};
    if (model) return model;
    bool ok = proa_device_open(&device, "cpu", &err) == PROA_OK &&
              proa_model_prepare(&model, PROA_SOURCE_DIR "/tests/golden/arch/llama", &options, device,
                                 proa_pool_new(1), &err) == PROA_OK;
    PROA_ASSERT(ok);
    return model;
}

static void read_bytes(proa_rank_message *m, proa_rank_call *call, const void *bytes, int64_t size)
{
    *call = (proa_rank_call){.count = 0};
    proa_rank_message_read(m, size);
    if (size) memcpy(m->bytes, bytes, (size_t)size);
    proa_rank_call_message(m, call, open_model());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_rank_message first = {.bytes = NULL}, written = {.bytes = NULL}, second = {.bytes = NULL},
                      again = {.bytes = NULL};
    proa_rank_call call;
    read_bytes(&first, &call, data, (int64_t)size);
    if (!first.broken) {
        proa_rank_message_write(&written);
        proa_rank_call_message(&written, &call, open_model());
        read_bytes(&second, &call, written.bytes, written.size);
        PROA_ASSERT(!second.broken);
        proa_rank_message_write(&again);
        proa_rank_call_message(&again, &call, open_model());
        bool addresses = call.batch.inputs_embeds_count > 0; /* they have those of the reader's values */
        PROA_ASSERT(again.size == written.size);
        PROA_ASSERT(addresses || memcmp(again.bytes, written.bytes, (size_t)again.size) == 0);
    }
    proa_rank_message_release(&first);
    proa_rank_message_release(&written);
    proa_rank_message_release(&second);
    proa_rank_message_release(&again);
    return 0;
}
