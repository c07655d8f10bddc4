/* SPDX-License-Identifier: Apache-2.0
 * mistral.c - Mistral: [TOOL_CALLS] and a list of objects (up to its tokenizer of version 7), or for each call
 * [TOOL_CALLS]name[CALL_ID]id[ARGS]{..}, where the id (and in version 13 [ARGS]) may be missing. */
#include "text/message/parser.h"

#include "base/limits.h"
#include <string.h>

static bool read_open(proa_message_parser *p);
static bool read_item(proa_message_parser *p);
static bool read_after(proa_message_parser *p);
static bool read_name(proa_message_parser *p);
static bool read_id(proa_message_parser *p);
static bool read_arguments(proa_message_parser *p);

bool proa_state_mistral(proa_message_parser *p)
{
    static const char *const markers[] = {"[TOOL_CALLS]", NULL};
    p->kind = PROA_MESSAGE_CONTENT;
    if (proa_parser_until(p, markers) < 0) return false;
    p->state = read_open;
    return true;
}

static bool read_open(proa_message_parser *p)
{
    if (!proa_parser_take_space(p)) return p->ending && proa_parser_give_back(p);
    proa_buf_clear(&p->name);
    proa_buf_clear(&p->id);
    switch (*proa_parser_rest(p).ptr) {
    case '[':
        proa_parser_take(p, 1);
        p->state = read_item;
        return true;
    case '{': proa_call_object_begin(p, false, proa_state_mistral); return true;
    default: p->state = read_name; return true;
    }
}

/* ---- a list ---- */

static bool read_item(proa_message_parser *p)
{
    return proa_call_object_expect(p, false, read_after);
}

static bool read_after(proa_message_parser *p)
{
    if (!proa_parser_take_space(p)) return false;
    char c = *proa_parser_rest(p).ptr;
    if (c != ',' && c != ']') return proa_parser_give_back(p);
    proa_parser_take(p, 1);
    if (c == ']') {
        proa_buf_clear(&p->raw);
        proa_parser_at_marker(p);
    }
    p->state = c == ',' ? read_item : p->content;
    return true;
}

/* ---- one by one ---- */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* Takes what is of a name into `to`; false if it is too long or more must come. */
static bool take_name(proa_message_parser *p, proa_buf *to)
{
    proa_str rest = proa_parser_rest(p);
    size_t n = 0;
    while (n < rest.len && is_name_byte(rest.ptr[n]) && to->len + n < PROA_CALL_NAME_MAX) n++;
    if (n > 0) proa_buf_append(to, rest.ptr, n);
    proa_parser_take(p, n);
    return n < rest.len;
}

static bool begin_arguments(proa_message_parser *p, size_t marker)
{
    proa_parser_take(p, marker);
    p->state = read_arguments;
    return true;
}

static bool read_name(proa_message_parser *p)
{
    if (!take_name(p, &p->name)) return p->ending && proa_parser_give_back(p);
    if (p->name.len == 0) return proa_parser_give_back(p);
    if (*proa_parser_rest(p).ptr == '{') return begin_arguments(p, 0);
    proa_match id = proa_parser_match(p, "[CALL_ID]"), arguments = proa_parser_match(p, "[ARGS]");
    if (id == PROA_MATCH_PART || arguments == PROA_MATCH_PART) return false;
    if (arguments == PROA_MATCH_YES) return begin_arguments(p, strlen("[ARGS]"));
    if (id == PROA_MATCH_NO) return proa_parser_give_back(p);
    proa_parser_take(p, strlen("[CALL_ID]"));
    p->state = read_id;
    return true;
}

static bool read_id(proa_message_parser *p)
{
    if (!take_name(p, &p->id)) return p->ending && proa_parser_give_back(p);
    proa_match arguments = proa_parser_match(p, "[ARGS]");
    if (arguments == PROA_MATCH_PART) return false;
    if (arguments == PROA_MATCH_NO) return proa_parser_give_back(p);
    return begin_arguments(p, strlen("[ARGS]"));
}

static bool read_arguments(proa_message_parser *p)
{
    if (!proa_parser_take_space(p)) return p->ending && proa_parser_give_back(p);
    if (*proa_parser_rest(p).ptr != '{') return proa_parser_give_back(p);
    proa_parser_call(p, proa_buf_view(&p->name), proa_buf_view(&p->id));
    proa_parser_json_begin(p, proa_state_mistral);
    return true;
}
