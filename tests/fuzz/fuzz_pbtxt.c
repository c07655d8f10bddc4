/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a ModelConfig in text format. What is read must print, read back to the same message, and pack to bytes
 * that unpack to it; as JSON it must read back to the same JSON. Then a server's defaults and checks go over it, also
 * as an ensemble that is made of itself: a verdict, and after OK defaults that stay as they are. */
#include "fuzz.h"

#include "base/limits.h"
#include "proto/model_config.pb-c.h"
#include "proto/pbtxt.h"
#include "proto/proto_json.h"
#include "serve/config/config.h"
#include <string.h>

static const ProtobufCMessageDescriptor *const type = &inference__model_config__descriptor;

static void assert_packs_to(const ProtobufCMessage *m, const proa_buf *want)
{
    proa_buf wire;
    proa_buf_init(&wire, 256 * (size_t)PROA_MIB);
    PROA_ASSERT(proa_message_pack(&wire, m));
    PROA_ASSERT(proa_str_eq(proa_buf_view(&wire), proa_buf_view(want)));
    proa_buf_release(&wire);
}

static void check(const ProtobufCMessage *m, proa_arena *arena)
{
    ProtobufCMessage *again = NULL;
    proa_buf text, wire;
    proa_err err = {.status = PROA_OK};
    proa_buf_init(&text, 256 * (size_t)PROA_MIB);
    proa_buf_init(&wire, 256 * (size_t)PROA_MIB);
    PROA_ASSERT(proa_message_pack(&wire, m));
    PROA_ASSERT(proa_pbtxt_print(&text, m));
    if (text.len <= (size_t)PROA_PBTXT_BYTES_MAX) {
        PROA_ASSERT(proa_pbtxt_parse(&again, type, proa_buf_view(&text), "again", arena, &err) == PROA_OK);
        assert_packs_to(again, &wire);
    }
    PROA_ASSERT(proa_message_unpack(&again, type, proa_buf_view(&wire), "wire", arena, &err) == PROA_OK);
    assert_packs_to(again, &wire);
    assert_packs_to(proa_message_copy(m, arena), &wire);
    proa_buf_release(&text);
    proa_buf_release(&wire);
}

static void check_json(const ProtobufCMessage *m, proa_arena *arena)
{
    static const char *const quoted[] = {"Shape", NULL};
    ProtobufCMessage *read = NULL;
    proa_buf text, again;
    proa_buf_init(&text, 256 * (size_t)PROA_MIB);
    proa_buf_init(&again, 256 * (size_t)PROA_MIB);
    PROA_ASSERT(proa_proto_json_print(&text, m, quoted));
    PROA_ASSERT(proa_proto_json_parse(&read, type, proa_buf_view(&text), "json", arena, NULL) == PROA_OK);
    PROA_ASSERT(proa_proto_json_print(&again, read, quoted));
    PROA_ASSERT(proa_str_eq(proa_buf_view(&text), proa_buf_view(&again)));
    proa_buf_release(&text);
    proa_buf_release(&again);
}

/* Every model is this one. */
static const Inference__ModelConfig *itself(void *arg, const char *name)
{
    return name[0] ? arg : NULL;
}

static void check_config(Inference__ModelConfig *c, proa_arena *arena)
{
    const proa_config_options options = {.gpus = c->max_batch_size % 3 - 1};
    proa_err err = {.status = PROA_OK};
    proa_buf wire;
    bool decoupled;
    if (c->max_batch_size < 0 || proa_config_finish(c, &options, arena, &err) != PROA_OK) return;
    proa_buf_init(&wire, 256 * (size_t)PROA_MIB);
    PROA_ASSERT(proa_message_pack(&wire, &c->base));
    PROA_ASSERT(proa_config_finish(c, &options, arena, &err) == PROA_OK);
    assert_packs_to(&c->base, &wire);
    PROA_ASSERT(proa_ensemble_check_models(c, itself, c, &err) == PROA_OK);
    (void)!proa_ensemble_check_cycle(c, itself, c, &err);
    (void)!proa_ensemble_check_flow(c, itself, c, &decoupled, &err);
    proa_buf_release(&wire);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_arena arena;
    proa_err err = {.status = PROA_OK};
    ProtobufCMessage *m = NULL;
    proa_arena_init(&arena);
    proa_status status = proa_pbtxt_parse(&m, type, (proa_str){(const char *)data, size}, "fuzz", &arena, &err);
    PROA_ASSERT(status == err.status);
    if (status == PROA_OK) {
        check(m, &arena);
        check_json(m, &arena);
        check_config((Inference__ModelConfig *)m, &arena);
    } else PROA_ASSERT(!m && strlen(err.text) > 0);
    proa_arena_release(&arena);
    return 0;
}
