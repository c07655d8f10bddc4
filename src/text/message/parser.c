/* SPDX-License-Identifier: Apache-2.0
 * parser.c - what the states of all forms do: read the text, hold it back, send events. */
#include "text/message/parser.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

/* ---- events ---- */

static void send_event(proa_message_parser *p, proa_message_event_kind kind, proa_str text, proa_str id)
{
    bool counted = kind == PROA_MESSAGE_CONTENT || kind == PROA_MESSAGE_REASONING;
    const proa_message_event e = {.kind = kind, .call = counted ? 0 : p->calls - 1, .text = text, .id = id};
    p->setup.on_event(p->setup.arg, &e);
}

void proa_parser_flush(proa_message_parser *p)
{
    if (p->delta.len > 0) send_event(p, p->delta_kind, proa_buf_view(&p->delta), (proa_str){"", 0});
    proa_buf_clear(&p->delta);
}

/* Deltas of one kind become one event at the end of a push. */
static void add_delta(proa_message_parser *p, proa_message_event_kind kind, const char *bytes, size_t len)
{
    if (len == 0) return;
    if (p->delta_kind != kind) proa_parser_flush(p);
    p->delta_kind = kind;
    proa_buf_append(&p->delta, bytes, len);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

void proa_parser_text(proa_message_parser *p, proa_str text)
{
    while (p->trim && text.len > 0 && is_space(*text.ptr)) text.ptr++, text.len--;
    if (text.len == 0) return;
    size_t solid = text.len;
    while (solid > 0 && is_space(text.ptr[solid - 1])) solid--;
    p->trim = false;
    if (solid > 0) {
        add_delta(p, p->kind, p->space.ptr, p->space.len);
        proa_buf_clear(&p->space);
        add_delta(p, p->kind, text.ptr, solid);
    }
    if (solid < text.len) proa_buf_append(&p->space, text.ptr + solid, text.len - solid);
}

void proa_parser_end_text(proa_message_parser *p)
{
    if (!p->trim) add_delta(p, p->kind, p->space.ptr, p->space.len);
    proa_buf_clear(&p->space);
    proa_parser_flush(p);
}

void proa_parser_at_marker(proa_message_parser *p)
{
    proa_buf_clear(&p->space);
    p->trim = true;
}

bool proa_parser_give_back(proa_message_parser *p)
{
    proa_buf raw = p->raw;
    proa_buf_init(&p->raw, PROA_TEXT_BYTES_MAX);
    p->kind = PROA_MESSAGE_CONTENT;
    proa_parser_text(p, proa_buf_view(&raw));
    proa_buf_release(&raw);
    p->state = p->content;
    return true;
}

void proa_parser_call(proa_message_parser *p, proa_str name, proa_str id)
{
    proa_parser_flush(p);
    proa_buf_clear(&p->raw);
    proa_parser_at_marker(p);
    p->calls++;
    p->arguments = false;
    send_event(p, PROA_MESSAGE_CALL, name, id);
}

void proa_parser_arguments(proa_message_parser *p, const char *bytes, size_t len)
{
    if (len > 0) p->arguments = true;
    add_delta(p, PROA_MESSAGE_ARGUMENTS, bytes, len);
}

void proa_parser_call_end(proa_message_parser *p)
{
    if (!p->arguments) proa_parser_arguments(p, "{}", 2);
    proa_parser_flush(p);
    send_event(p, PROA_MESSAGE_CALL_END, (proa_str){"", 0}, (proa_str){"", 0});
    p->ended = p->calls;
    proa_parser_at_marker(p);
}

bool proa_parser_knows(const proa_message_parser *p, proa_str name)
{
    return !p->setup.tools || proa_toolset_has(p->setup.tools, name);
}

bool proa_parser_name_fits(proa_str name)
{
    bool fits = name.len > 0 && name.len <= PROA_CALL_NAME_MAX;
    for (size_t i = 0; i < name.len && fits; i++)
        fits = (unsigned char)name.ptr[i] > 0x20 && name.ptr[i] != 0x7f;
    return fits;
}

/* ---- the unread text ---- */

proa_str proa_parser_rest(const proa_message_parser *p)
{
    return p->unread.len > p->at ? (proa_str){p->unread.ptr + p->at, p->unread.len - p->at} : (proa_str){"", 0};
}

void proa_parser_skip(proa_message_parser *p, size_t bytes)
{
    p->at += bytes;
}

void proa_parser_take(proa_message_parser *p, size_t bytes)
{
    if (bytes > 0) proa_buf_append(&p->raw, p->unread.ptr + p->at, bytes);
    p->at += bytes;
}

bool proa_parser_take_space(proa_message_parser *p)
{
    proa_str rest = proa_parser_rest(p);
    size_t n = 0;
    while (n < rest.len && is_space(rest.ptr[n])) n++;
    proa_parser_take(p, n);
    return n < rest.len;
}

proa_match proa_parser_match(const proa_message_parser *p, const char *marker)
{
    proa_str rest = proa_parser_rest(p);
    size_t len = strlen(marker), common = rest.len < len ? rest.len : len;
    if (memcmp(rest.ptr, marker, common) != 0) return PROA_MATCH_NO;
    if (common == len) return PROA_MATCH_YES;
    return p->ending ? PROA_MATCH_NO : PROA_MATCH_PART;
}

bool proa_parser_drop_part(proa_message_parser *p, const char *marker)
{
    proa_str rest = proa_parser_rest(p);
    if (!p->ending || rest.len >= strlen(marker) || memcmp(rest.ptr ? rest.ptr : "", marker, rest.len) != 0)
        return false;
    proa_parser_skip(p, rest.len);
    proa_buf_clear(&p->raw);
    proa_parser_at_marker(p);
    p->state = p->content;
    return true;
}

/* Where the first marker is, or what may become one; *found: its index, or -1. */
static size_t find_marker(const proa_message_parser *p, const char *const *markers, int *found)
{
    proa_str rest = proa_parser_rest(p);
    *found = -1;
    for (size_t at = 0; at < rest.len; at++) {
        for (int i = 0; markers[i]; i++) {
            size_t len = strlen(markers[i]), left = rest.len - at, common = left < len ? left : len;
            if (rest.ptr[at] != *markers[i] || memcmp(rest.ptr + at, markers[i], common) != 0) continue;
            if (common < len && p->ending) continue;
            if (common == len) *found = i;
            return at;
        }
    }
    return rest.len;
}

int proa_parser_until(proa_message_parser *p, const char *const *markers)
{
    int found;
    size_t at = find_marker(p, markers, &found);
    proa_str before = {proa_parser_rest(p).ptr, at};
    proa_parser_text(p, before);
    proa_parser_skip(p, at);
    if (found >= 0) proa_parser_take(p, strlen(markers[found]));
    return found;
}

/* ---- arguments that stand alone ---- */

void proa_parser_json_begin(proa_message_parser *p, proa_message_state *after)
{
    proa_json_scan_begin(&p->scan);
    p->after = after;
    p->state = proa_parser_json;
}

/* Only an object is passed on. */
bool proa_parser_json(proa_message_parser *p)
{
    proa_str rest = proa_parser_rest(p);
    proa_scan scan = PROA_SCAN_MORE;
    size_t i = 0, from = 0;
    while (!p->arguments && from < rest.len && is_space(rest.ptr[from])) from++;
    for (i = from; i < rest.len && scan == PROA_SCAN_MORE; i++) {
        bool first = !p->arguments && i == from;
        scan = first && rest.ptr[i] != '{' ? PROA_SCAN_BAD : proa_json_scan_byte(&p->scan, rest.ptr[i]);
        if (scan == PROA_SCAN_BAD) break;
    }
    proa_parser_arguments(p, rest.ptr + from, i - from);
    proa_parser_skip(p, i);
    if (scan == PROA_SCAN_MORE && !p->ending) return false;
    proa_parser_call_end(p);
    p->kind = PROA_MESSAGE_CONTENT;
    p->state = p->after;
    return true;
}

/* ---- no tools ---- */

bool proa_state_plain(proa_message_parser *p)
{
    proa_str rest = proa_parser_rest(p);
    proa_parser_text(p, rest);
    proa_parser_skip(p, rest.len);
    return false;
}
