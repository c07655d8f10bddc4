/* SPDX-License-Identifier: Apache-2.0
 * llama.c - Llama 3: a message that is {"name": .., "parameters": {..}}, or several of them joined by semicolons, or
 * one after <|python_tag|>. Without the tag the name must be that of a tool: an answer in JSON is content. */
#include "text/message/parser.h"

#include <string.h>

#define TAG "<|python_tag|>"

static bool read_tag(proa_message_parser *p);
static bool read_next(proa_message_parser *p);
static bool read_after(proa_message_parser *p);

static bool read_content(proa_message_parser *p)
{
    static const char *const markers[] = {TAG, NULL};
    p->kind = PROA_MESSAGE_CONTENT;
    if (proa_parser_until(p, markers) < 0) return false;
    p->state = read_tag;
    return true;
}

/* The beginning of the message. */
bool proa_state_llama(proa_message_parser *p)
{
    p->content = read_content;
    if (!proa_parser_take_space(p)) return false;
    if (*proa_parser_rest(p).ptr == '{') proa_call_object_begin(p, true, read_after);
    else return proa_parser_give_back(p);
    return true;
}

/* After the tag. Text that is no call is code, and stays with its tag. */
static bool read_tag(proa_message_parser *p)
{
    return proa_call_object_expect(p, false, read_after);
}

static bool read_after(proa_message_parser *p)
{
    if (!proa_parser_take_space(p)) return false;
    if (*proa_parser_rest(p).ptr != ';') return proa_parser_give_back(p);
    proa_parser_take(p, 1);
    p->state = read_next;
    return true;
}

static bool read_next(proa_message_parser *p)
{
    return proa_call_object_expect(p, true, read_after);
}
