/* SPDX-License-Identifier: Apache-2.0
 * pbtxt_driver - what Proa makes of config.pbtxt files, for test_protoc.py: for each path on standard input one line,
 * "ok HEX" with the wire encoding of the ModelConfig in hexadecimal, or "no MESSAGE". Of a path NAME.pb, itself such an
 * encoding, the canonical one: without fields at their defaults, and each key of a map once. */
#include "base/file.h"
#include "base/limits.h"
#include "proto/model_config.pb-c.h"
#include "proto/pbtxt.h"
#include <stdio.h>
#include <string.h>

static const ProtobufCMessageDescriptor *const type = &inference__model_config__descriptor;

static proa_status canonical(ProtobufCMessage **m, proa_str wire, proa_arena *arena, proa_err *err)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_PBTXT_BYTES_MAX);
    proa_status status = proa_message_unpack(m, type, wire, "wire", arena, err);
    if (status == PROA_OK) PROA_ASSERT(proa_pbtxt_print(&text, *m));
    if (status == PROA_OK) status = proa_pbtxt_parse(m, type, proa_buf_view(&text), "text", arena, err);
    proa_buf_release(&text);
    return status;
}

static proa_status answer(const char *path, proa_arena *arena, proa_buf *wire, proa_err *err)
{
    proa_buf bytes;
    ProtobufCMessage *m = NULL;
    bool packed = proa_str_ends(proa_str_c(path), proa_str_c(".pb"));
    proa_status status = proa_file_read(&bytes, path, PROA_PBTXT_BYTES_MAX, err);
    if (status == PROA_OK)
        status = packed ? canonical(&m, proa_buf_view(&bytes), arena, err)
                        : proa_pbtxt_parse(&m, type, proa_buf_view(&bytes), "text", arena, err);
    if (status == PROA_OK) PROA_ASSERT(proa_message_pack(wire, m));
    proa_buf_release(&bytes);
    return status;
}

int main(void)
{
    char path[PROA_PATH_MAX];
    while (fgets(path, sizeof path, stdin)) {
        proa_err err = {.status = PROA_OK};
        proa_arena arena;
        proa_buf wire;
        proa_arena_init(&arena);
        proa_buf_init(&wire, 64 * (size_t)PROA_MIB);
        path[strcspn(path, "\n")] = '\0';
        if (answer(path, &arena, &wire, &err) == PROA_OK) {
            printf("ok ");
            for (size_t i = 0; i < wire.len; i++) printf("%02x", (unsigned)(unsigned char)wire.ptr[i]);
            putchar('\n');
        } else printf("no %s\n", err.text);
        proa_buf_release(&wire);
        proa_arena_release(&arena);
    }
    return 0;
}
