/* SPDX-License-Identifier: Apache-2.0
 * message.c - life of a parser of messages: which form it reads, text in, the loop over the states of the form. */
#include "text/message/parser.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

static proa_message_state *state_of(proa_tool_form form)
{
    switch (form) {
    case PROA_TOOL_FORM_HERMES:
    case PROA_TOOL_FORM_QWEN3_CODER: return proa_state_tags;
    case PROA_TOOL_FORM_LLAMA3: return proa_state_llama;
    case PROA_TOOL_FORM_MISTRAL: return proa_state_mistral;
    case PROA_TOOL_FORM_HARMONY: return proa_state_harmony;
    default: return proa_state_plain;
    }
}

proa_message_parser *proa_message_parser_new(const proa_message_setup *setup)
{
    proa_message_parser *p = proa_calloc(1, sizeof *p);
    p->setup = *setup;
    p->kind = PROA_MESSAGE_CONTENT;
    p->content = state_of(setup->form.tools);
    if (setup->form.reasoning == PROA_REASONING_HARMONY) p->content = proa_state_harmony;
    p->state = p->content;
    bool tagged = setup->form.reasoning != PROA_REASONING_NONE && p->content != proa_state_harmony;
    if (tagged) p->state = proa_state_opening;
    p->trim = tagged && setup->reasoning_open;
    proa_buf *const all[] = {&p->unread, &p->raw, &p->space, &p->name, &p->id, &p->delta};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_init(all[i], PROA_TEXT_BYTES_MAX);
    proa_call_object_init(&p->object);
    return p;
}

void proa_message_parser_free(proa_message_parser *p)
{
    if (!p) return;
    proa_buf *const all[] = {&p->unread, &p->raw, &p->space, &p->name, &p->id, &p->delta};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_release(all[i]);
    proa_call_object_release(&p->object);
    free(p);
}

void proa_message_parser_set_arg(proa_message_parser *p, void *arg)
{
    p->setup.arg = arg;
}

static void run_states(proa_message_parser *p)
{
    bool more = true;
    while (more) {
        bool enough = p->setup.one_call && p->ended > 0;
        if (enough) p->at = p->unread.len;
        more = !enough && p->state(p);
    }
    if (p->at == p->unread.len) {
        proa_buf_clear(&p->unread);
        p->at = 0;
    }
}

void proa_message_push(proa_message_parser *p, proa_str text)
{
    if (p->at > 0) { /* what is held back moves to the front */
        memmove(p->unread.ptr, p->unread.ptr + p->at, p->unread.len - p->at);
        p->unread.len -= p->at;
        p->at = 0;
    }
    proa_buf_str(&p->unread, text);
    run_states(p);
    proa_parser_flush(p);
}

void proa_message_finish(proa_message_parser *p)
{
    bool enough = p->setup.one_call && p->ended > 0;
    p->ending = true;
    run_states(p);
    if (!enough && p->raw.len > 0) (void)proa_parser_give_back(p);
    if (!enough) proa_parser_text(p, proa_parser_rest(p));
    proa_parser_end_text(p);
}
