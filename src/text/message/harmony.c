/* SPDX-License-Identifier: Apache-2.0
 * harmony.c - gpt-oss: messages of a header and a text, <|start|>assistant<|channel|>final<|message|>..<|end|>. The
 * prompt ends with <|start|>assistant. Channel analysis is reasoning, a recipient functions.NAME makes a call, all else
 * is content. Texts of two messages that become one are joined by a line feed. */
#include "text/message/parser.h"

#include "base/limits.h"
#include <string.h>

#define MESSAGE "<|message|>"
#define CHANNEL "<|channel|>"
#define START   "<|start|>"

static bool read_header(proa_message_parser *p);
static bool read_between(proa_message_parser *p);

/* Text of the kind that the header gave, up to any marker. */
static bool read_body(proa_message_parser *p)
{
    static const char *const markers[] = {START, CHANNEL, "<|end|>", "<|call|>", "<|return|>", NULL};
    int found = proa_parser_until(p, markers);
    if (found < 0) return false;
    proa_parser_at_marker(p);
    p->state = found < 2 ? read_header : read_between;
    if (found >= 2) proa_buf_clear(&p->raw);
    return true;
}

static bool give_back(proa_message_parser *p)
{
    (void)proa_parser_give_back(p);
    p->state = read_body;
    return true;
}

/* The beginning: the rest of a header. A text that does not begin so is content. */
bool proa_state_harmony(proa_message_parser *p)
{
    static const char *const begins[] = {" to=", CHANNEL, MESSAGE, START};
    bool part = proa_parser_rest(p).len == 0;
    p->content = read_body;
    for (size_t i = 0; i < PROA_COUNT(begins) && !part; i++) {
        proa_match match = proa_parser_match(p, begins[i]);
        part = match == PROA_MATCH_PART;
        if (match == PROA_MATCH_YES) p->state = read_header;
    }
    if (part) return false;
    if (p->state != read_header) p->state = read_body;
    return true;
}

/* Between two messages. */
static bool read_between(proa_message_parser *p)
{
    if (!proa_parser_take_space(p)) return false;
    proa_match start = proa_parser_match(p, START), channel = proa_parser_match(p, CHANNEL);
    if (start == PROA_MATCH_PART || channel == PROA_MATCH_PART) return false;
    proa_buf_clear(&p->raw);
    proa_parser_at_marker(p);
    p->kind = PROA_MESSAGE_CONTENT;
    p->state = start == PROA_MATCH_YES || channel == PROA_MATCH_YES ? read_header : read_body;
    return true;
}

/* ---- headers ---- */

/* The word after `key` in a header; empty: there is none. */
static proa_str word_after(proa_str header, const char *key)
{
    size_t len = strlen(key), n = 0;
    const char *at = header.len >= len ? memmem(header.ptr, header.len, key, len) : NULL;
    if (!at) return (proa_str){"", 0};
    at += len;
    size_t left = header.len - (size_t)(at - header.ptr);
    while (n < left && !strchr(" \t\r\n<", at[n])) n++;
    return (proa_str){at, n};
}

/* A second message of a kind goes on after a line feed. */
static void begin_text(proa_message_parser *p, proa_message_event_kind kind)
{
    bool *spoke = &p->spoke[kind == PROA_MESSAGE_REASONING];
    p->kind = kind;
    if (*spoke) {
        p->trim = false;
        proa_buf_str(&p->space, proa_str_c("\n"));
    } else proa_parser_at_marker(p);
    *spoke = true;
    p->state = read_body;
}

static void end_header(proa_message_parser *p)
{
    static const char prefix[] = "functions.";
    proa_str header = proa_buf_view(&p->raw), to = word_after(header, "to="),
             channel = word_after(header, CHANNEL);
    proa_str name = {to.ptr + sizeof prefix - 1, to.len - (sizeof prefix - 1)};
    if (proa_str_starts(to, proa_str_c(prefix)) && proa_parser_name_fits(name)) {
        proa_buf_clear(&p->name); /* the header is cleared */
        proa_buf_str(&p->name, name);
        proa_parser_call(p, proa_buf_view(&p->name), (proa_str){"", 0});
        proa_parser_json_begin(p, read_body);
        return;
    }
    bool analysis = proa_str_is(channel, "analysis");
    proa_buf_clear(&p->raw);
    begin_text(p, analysis ? PROA_MESSAGE_REASONING : PROA_MESSAGE_CONTENT);
}

/* Takes the header up to <|message|>. */
static bool read_header(proa_message_parser *p)
{
    while (proa_parser_rest(p).len > 0 && p->raw.len < PROA_HARMONY_HEADER_MAX) {
        proa_match match = proa_parser_match(p, MESSAGE);
        if (match == PROA_MATCH_PART) return false;
        if (match == PROA_MATCH_YES) {
            proa_parser_take(p, strlen(MESSAGE));
            end_header(p);
            return true;
        }
        proa_parser_take(p, 1);
    }
    return (p->ending || p->raw.len >= PROA_HARMONY_HEADER_MAX) && give_back(p);
}
