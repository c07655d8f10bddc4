/* SPDX-License-Identifier: Apache-2.0
 * call_object.c - {"name": "f", "arguments": {..}} as Hermes, Llama 3 and Mistral write it, byte by byte. "parameters"
 * is the same as "arguments", "id" is the call's; other members are read over. The call begins with its arguments if
 * the name came first, and their bytes are passed on as they come; otherwise it begins with its name. */
#include "base/limits.h"
#include "text/message/parser.h"

enum { OPEN, FIRST_KEY, KEY, COLON, VALUE, ARGUMENTS, AFTER };
enum { OF_NAME, OF_ARGUMENTS, OF_ID, OF_TYPE, OF_OTHER };

void proa_call_object_init(proa_call_object *o)
{
    proa_buf *const all[] = {&o->text, &o->name, &o->id, &o->arguments};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_init(all[i], PROA_TEXT_BYTES_MAX);
}

void proa_call_object_release(proa_call_object *o)
{
    proa_buf *const all[] = {&o->text, &o->name, &o->id, &o->arguments};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_release(all[i]);
}

void proa_call_object_begin(proa_message_parser *p, bool strict, proa_message_state *after)
{
    proa_call_object *o = &p->object;
    proa_buf *const all[] = {&o->text, &o->name, &o->id, &o->arguments};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_clear(all[i]);
    o->state = OPEN;
    o->strict = strict;
    o->begun = o->has_arguments = false;
    p->after = after;
    p->state = proa_parser_object;
}

bool proa_call_object_expect(proa_message_parser *p, bool strict, proa_message_state *after)
{
    if (!proa_parser_take_space(p)) return p->ending && proa_parser_give_back(p);
    if (*proa_parser_rest(p).ptr != '{') return proa_parser_give_back(p);
    proa_call_object_begin(p, strict, after);
    return true;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* The text that a JSON string has; false if it is none. */
static bool decode_string(const proa_buf *json, proa_buf *out)
{
    proa_json *value;
    proa_buf_clear(out);
    if (proa_json_parse(&value, proa_buf_view(json), "text", NULL) != PROA_OK) return false;
    bool text = proa_json_kind(value) == PROA_JSON_STRING;
    if (text) proa_buf_str(out, proa_json_str(value));
    proa_json_free(value);
    return text;
}

static bool is_object(proa_str text)
{
    proa_json_scan scan;
    proa_scan last = PROA_SCAN_BAD;
    proa_json_scan_begin(&scan);
    for (size_t i = 0; i < text.len; i++) {
        if (scan.depth == 0 && last != PROA_SCAN_DONE && !is_space(text.ptr[i]) && text.ptr[i] != '{')
            return false;
        proa_scan next = last == PROA_SCAN_DONE && is_space(text.ptr[i])
                             ? last
                             : proa_json_scan_byte(&scan, text.ptr[i]);
        if (next == PROA_SCAN_BAD) return false;
        last = next;
    }
    return last == PROA_SCAN_DONE;
}

/* Once its name is known, and its arguments have begun. */
static void begin_call(proa_message_parser *p)
{
    proa_call_object *o = &p->object;
    proa_parser_call(p, proa_buf_view(&o->name), proa_buf_view(&o->id));
    o->begun = true;
    proa_parser_arguments(p, o->arguments.ptr, o->arguments.len);
}

/* A value has ended: its text is in o->text. */
static proa_scan end_value(proa_message_parser *p)
{
    proa_call_object *o = &p->object;
    o->state = AFTER;
    switch (o->key) {
    case OF_NAME:
        if (o->name.len > 0 || !decode_string(&o->text, &o->name)) return PROA_SCAN_BAD;
        if (!proa_parser_name_fits(proa_buf_view(&o->name))) return PROA_SCAN_BAD;
        if (o->strict && !proa_parser_knows(p, proa_buf_view(&o->name))) return PROA_SCAN_BAD;
        if (o->has_arguments) begin_call(p);
        return PROA_SCAN_MORE;
    case OF_ID: decode_string(&o->text, &o->id); return PROA_SCAN_MORE;
    case OF_ARGUMENTS: /* a text with JSON in it, or null */
        o->has_arguments = true;
        if (proa_str_is(proa_buf_view(&o->text), "null")) proa_buf_str(&o->arguments, proa_str_c("{}"));
        else if (!decode_string(&o->text, &o->arguments) || !is_object(proa_buf_view(&o->arguments)))
            return PROA_SCAN_BAD;
        if (o->name.len > 0) begin_call(p);
        return PROA_SCAN_MORE;
    default: return PROA_SCAN_MORE;
    }
}

static int key_of(proa_str key)
{
    if (proa_str_is(key, "\"name\"")) return OF_NAME;
    if (proa_str_is(key, "\"arguments\"") || proa_str_is(key, "\"parameters\"")) return OF_ARGUMENTS;
    if (proa_str_is(key, "\"id\"")) return OF_ID;
    return proa_str_is(key, "\"type\"") ? OF_TYPE : OF_OTHER;
}

static proa_scan key_byte(proa_call_object *o, char c)
{
    proa_scan scan = proa_json_scan_byte(&o->scan, c);
    if (o->text.len == 0 && c != '"') return PROA_SCAN_BAD;
    if (scan == PROA_SCAN_BAD) return scan;
    proa_buf_char(&o->text, c);
    if (scan != PROA_SCAN_DONE) return PROA_SCAN_MORE;
    o->key = key_of(proa_buf_view(&o->text));
    o->state = COLON;
    bool again = (o->key == OF_NAME && o->name.len > 0) || (o->key == OF_ARGUMENTS && o->has_arguments);
    return again || (o->strict && o->key == OF_OTHER) ? PROA_SCAN_BAD : PROA_SCAN_MORE;
}

static proa_scan member_byte(proa_message_parser *p, char c);

static proa_scan value_byte(proa_message_parser *p, char c)
{
    proa_call_object *o = &p->object;
    if (o->text.len == 0 && is_space(c)) return PROA_SCAN_MORE;
    if (o->text.len == 0 && o->key == OF_ARGUMENTS && c == '{') {
        o->has_arguments = true;
        o->state = ARGUMENTS;
        if (o->name.len > 0) begin_call(p);
        return member_byte(p, c);
    }
    proa_scan scan = proa_json_scan_byte(&o->scan, c);
    if (scan == PROA_SCAN_BAD) return scan;
    if (scan == PROA_SCAN_BEFORE) {
        if (end_value(p) == PROA_SCAN_BAD) return PROA_SCAN_BAD;
        return member_byte(p, c);
    }
    proa_buf_char(&o->text, c);
    return scan == PROA_SCAN_DONE ? end_value(p) : PROA_SCAN_MORE;
}

static proa_scan arguments_byte(proa_message_parser *p, char c)
{
    proa_call_object *o = &p->object;
    proa_scan scan = proa_json_scan_byte(&o->scan, c);
    if (scan == PROA_SCAN_BAD) return scan;
    if (o->begun) proa_parser_arguments(p, &c, 1);
    else proa_buf_char(&o->arguments, c);
    if (scan == PROA_SCAN_DONE) o->state = AFTER;
    return PROA_SCAN_MORE;
}

/* The object ends: a call without arguments begins now. */
static proa_scan close_object(proa_message_parser *p)
{
    proa_call_object *o = &p->object;
    if (o->name.len == 0 || (o->strict && !o->has_arguments)) return PROA_SCAN_BAD;
    if (!o->begun) begin_call(p);
    return PROA_SCAN_DONE;
}

static void begin_part(proa_call_object *o, int state)
{
    proa_buf_clear(&o->text);
    proa_json_scan_begin(&o->scan);
    o->state = state;
}

static proa_scan member_byte(proa_message_parser *p, char c)
{
    proa_call_object *o = &p->object;
    if (o->state == KEY) return key_byte(o, c);
    if (o->state == VALUE) return value_byte(p, c);
    if (o->state == ARGUMENTS) return arguments_byte(p, c);
    if (is_space(c)) return PROA_SCAN_MORE;
    switch (o->state) {
    case OPEN: o->state = FIRST_KEY; return c == '{' ? PROA_SCAN_MORE : PROA_SCAN_BAD;
    case COLON: begin_part(o, VALUE); return c == ':' ? PROA_SCAN_MORE : PROA_SCAN_BAD;
    case FIRST_KEY: begin_part(o, KEY); return key_byte(o, c);
    default:
        if (c == '}') return close_object(p);
        begin_part(o, FIRST_KEY);
        return c == ',' ? PROA_SCAN_MORE : PROA_SCAN_BAD;
    }
}

static void end_object(proa_message_parser *p, bool whole)
{
    if (p->object.begun) proa_parser_call_end(p);
    if (whole) {
        proa_buf_clear(&p->raw);
        p->state = p->after;
        return;
    }
    (void)proa_parser_give_back(p);
}

/* Bytes are kept in raw, except for those that are in events. */
bool proa_parser_object(proa_message_parser *p)
{
    const proa_call_object *o = &p->object;
    proa_str rest = proa_parser_rest(p);
    size_t i = 0;
    for (; i < rest.len; i++) {
        bool begun = o->begun, inside = o->state == ARGUMENTS;
        proa_scan scan = member_byte(p, rest.ptr[i]);
        if (scan == PROA_SCAN_BAD) break;
        bool shown = o->begun && (!begun || inside || o->state == ARGUMENTS);
        if (!shown) proa_buf_char(&p->raw, rest.ptr[i]);
        if (scan != PROA_SCAN_DONE) continue;
        proa_parser_skip(p, i + 1);
        end_object(p, true);
        return true;
    }
    bool bad = i < rest.len;
    proa_parser_skip(p, i);
    if (!bad && !p->ending) return false;
    end_object(p, false);
    return true;
}
