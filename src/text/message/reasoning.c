/* SPDX-License-Identifier: Apache-2.0
 * reasoning.c - reasoning between tags, before the content: <think>..</think>, [THINK]..[/THINK]. */
#include "text/message/parser.h"

#include <string.h>

static bool is_mistral(const proa_message_parser *p)
{
    return p->setup.form.reasoning == PROA_REASONING_MISTRAL;
}

/* The beginning of a text: the opening tag; or content, or reasoning that the prompt has opened. */
bool proa_state_opening(proa_message_parser *p)
{
    const char *open = is_mistral(p) ? "[THINK]" : "<think>";
    if (!proa_parser_take_space(p)) return false;
    proa_match match = proa_parser_match(p, open);
    if (match == PROA_MATCH_PART) return false;
    if (match == PROA_MATCH_NO && p->setup.reasoning_open) {
        proa_buf_clear(&p->raw);
        p->state = proa_state_reasoning;
        return true;
    }
    if (match == PROA_MATCH_NO) return proa_parser_give_back(p);
    proa_buf_clear(&p->raw);
    proa_parser_skip(p, strlen(open));
    proa_parser_at_marker(p);
    p->state = proa_state_reasoning;
    return true;
}

bool proa_state_reasoning(proa_message_parser *p)
{
    static const char *const close_think[] = {"</think>", NULL}, *const close_mistral[] = {"[/THINK]", NULL};
    p->kind = PROA_MESSAGE_REASONING;
    if (proa_parser_until(p, is_mistral(p) ? close_mistral : close_think) < 0) return false;
    proa_buf_clear(&p->raw);
    proa_parser_at_marker(p);
    p->kind = PROA_MESSAGE_CONTENT;
    p->state = p->content;
    return true;
}
