/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a text of a chat model: the first byte chooses the form and switches, the second where the text is cut.
 * The events of the cut text are those of the whole; calls are opened and closed in order; a text without any marker
 * stays as it is. */
#include "fuzz.h"

#include "base/arena.h"
#include "text/message.h"
#include <string.h>

static const char tools_json[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{"
                                 "\"type\":\"string\"},\"n\":{\"type\":"
                                 "[\"integer\",\"null\"]},\"m\":{\"type\":[\"string\",\"null\"]}}}}}]";

typedef struct record {
    proa_buf out;
    int last;
    int32_t calls, ended;
} record;

static void on_event(void *arg, const proa_message_event *e)
{
    record *r = arg;
    bool delta = e->kind != PROA_MESSAGE_CALL && e->kind != PROA_MESSAGE_CALL_END;
    if (e->kind == PROA_MESSAGE_CALL) {
        PROA_ASSERT(r->calls == r->ended && e->call == r->calls++ && e->text.len > 0);
    } else if (e->kind == PROA_MESSAGE_CALL_END) {
        PROA_ASSERT(r->calls == r->ended + 1 && e->call == r->ended++);
    } else {
        PROA_ASSERT(e->text.len > 0);
        PROA_ASSERT((e->kind == PROA_MESSAGE_ARGUMENTS) == (r->calls > r->ended));
    }
    if (!delta || r->last != (int)e->kind) proa_buf_char(&r->out, (char)('0' + (int)e->kind));
    r->last = delta ? (int)e->kind : -1;
    proa_buf_str(&r->out, e->text);
    proa_buf_str(&r->out, e->id);
}

static void parse(record *r, const proa_message_setup *setup, proa_str text, size_t step)
{
    proa_message_setup s = *setup;
    *r = (record){.last = -1};
    proa_buf_init(&r->out, SIZE_MAX / 2);
    s.on_event = on_event;
    s.arg = r;
    proa_message_parser *p = proa_message_parser_new(&s);
    for (size_t at = 0; at < text.len; at += step)
        proa_message_push(p, (proa_str){text.ptr + at, text.len - at < step ? text.len - at : step});
    proa_message_finish(p);
    proa_message_parser_free(p);
    PROA_ASSERT(r->calls == r->ended);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    record whole, part;
    proa_arena arena;
    proa_json *json;
    if (size < 2) return 0;
    proa_arena_init(&arena);
    PROA_ASSERT(proa_json_parse(&json, proa_str_c(tools_json), "tools", NULL) == PROA_OK);
    proa_message_setup setup = {.form.tools = (proa_tool_form)(data[0] % 6),
                                .form.reasoning = (proa_reasoning_form)(data[0] / 6 % 5),
                                .reasoning_open = data[0] / 30 % 2 > 0,
                                .one_call = data[0] / 60 % 2 > 0,
                                .tools = data[0] / 120 % 2 > 0 ? NULL : proa_toolset_new(&arena, json)};
    proa_json_free(json);
    proa_str text = {(const char *)data + 2, size - 2};
    parse(&whole, &setup, text, text.len + 1);
    parse(&part, &setup, text, (size_t)data[1] % 16 + 1);
    PROA_ASSERT(proa_str_eq(proa_buf_view(&whole.out), proa_buf_view(&part.out)));
    bool plain = setup.form.reasoning == PROA_REASONING_NONE && text.len > 0;
    for (size_t i = 0; i < text.len && plain; i++) plain = !strchr("<[{", text.ptr[i]);
    if (plain && whole.out.len > 0)
        PROA_ASSERT(*whole.out.ptr == '0' && proa_str_eq((proa_str){whole.out.ptr + 1, whole.out.len - 1}, text));
    proa_buf_release(&whole.out);
    proa_buf_release(&part.out);
    proa_arena_release(&arena);
    return 0;
}
