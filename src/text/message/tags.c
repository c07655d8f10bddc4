/* SPDX-License-Identifier: Apache-2.0
 * tags.c - calls between <tool_call> and </tool_call>: an object (Hermes, Qwen 2.5 and 3), or qwen3-coder's
 * <function=name><parameter=key>value</parameter></function>, which may also come without the outer tags. */
#include "text/message/parser.h"

#include "base/limits.h"
#include <string.h>

#define OPEN      "<tool_call>"
#define CLOSE     "</tool_call>"
#define FUNCTION  "<function="
#define PARAMETER "<parameter="

static bool read_open(proa_message_parser *p);
static bool read_close(proa_message_parser *p);
static bool read_function(proa_message_parser *p);
static bool read_parameters(proa_message_parser *p);
static bool read_key(proa_message_parser *p);
static bool read_value(proa_message_parser *p);

bool proa_state_tags(proa_message_parser *p)
{
    static const char *const hermes[] = {OPEN, NULL}, *const coder[] = {OPEN, FUNCTION, NULL};
    bool xml = p->setup.form.tools == PROA_TOOL_FORM_QWEN3_CODER;
    p->kind = PROA_MESSAGE_CONTENT;
    switch (proa_parser_until(p, xml ? coder : hermes)) {
    case 0: p->state = read_open; return true;
    case 1:
        proa_buf_clear(&p->name);
        p->state = read_function;
        return true;
    default: return false;
    }
}

/* After <tool_call>. */
static bool read_open(proa_message_parser *p)
{
    if (!proa_parser_take_space(p)) return p->ending && proa_parser_give_back(p);
    if (*proa_parser_rest(p).ptr == '{') {
        proa_call_object_begin(p, false, read_close);
        return true;
    }
    proa_match match = proa_parser_match(p, FUNCTION);
    if (match == PROA_MATCH_PART) return false;
    if (match == PROA_MATCH_NO) return proa_parser_give_back(p);
    proa_parser_take(p, strlen(FUNCTION));
    proa_buf_clear(&p->name);
    p->state = read_function;
    return true;
}

/* After a call. */
static bool read_close(proa_message_parser *p)
{
    bool more = proa_parser_take_space(p);
    if (proa_parser_drop_part(p, CLOSE) || !more) return false;
    proa_match match = proa_parser_match(p, CLOSE);
    if (match == PROA_MATCH_PART) return false;
    if (match == PROA_MATCH_NO) return proa_parser_give_back(p);
    proa_parser_skip(p, strlen(CLOSE));
    proa_buf_clear(&p->raw);
    proa_parser_at_marker(p);
    p->state = p->content;
    return true;
}

/* ---- qwen3-coder ---- */

/* Reads a name up to > into p->name: 1 it is whole, 0 more must come, -1 it is none. */
static int read_name(proa_message_parser *p)
{
    proa_str rest = proa_parser_rest(p);
    for (size_t i = 0; i < rest.len; i++) {
        char c = rest.ptr[i];
        if (c == '>') {
            proa_parser_take(p, i + 1);
            return proa_parser_name_fits(proa_buf_view(&p->name)) ? 1 : -1;
        }
        if ((unsigned char)c <= 0x20 || c == '<' || p->name.len >= PROA_CALL_NAME_MAX) {
            proa_parser_take(p, i);
            return -1;
        }
        proa_buf_char(&p->name, c);
    }
    proa_parser_take(p, rest.len);
    return p->ending ? -1 : 0;
}

static bool read_function(proa_message_parser *p)
{
    int read = read_name(p);
    if (read == 0) return false;
    if (read < 0) return proa_parser_give_back(p);
    proa_buf_clear(&p->id); /* names the function; p->name will name parameters */
    proa_buf_str(&p->id, proa_buf_view(&p->name));
    proa_parser_call(p, proa_buf_view(&p->name), (proa_str){"", 0});
    p->state = read_parameters;
    return true;
}

static void end_call(proa_message_parser *p)
{
    if (p->arguments) proa_parser_arguments(p, "}", 1);
    proa_parser_call_end(p);
}

/* Between parameters: the next one, the end of the function, or something else, which ends the call. */
static bool read_parameters(proa_message_parser *p)
{
    if (!proa_parser_take_space(p) && !p->ending) return false;
    if (proa_parser_drop_part(p, "</function>")) {
        end_call(p);
        return false;
    }
    proa_match parameter = proa_parser_match(p, PARAMETER), end = proa_parser_match(p, "</function>");
    if (parameter == PROA_MATCH_PART || end == PROA_MATCH_PART) return false;
    if (parameter == PROA_MATCH_YES) {
        proa_parser_take(p, strlen(PARAMETER));
        proa_buf_clear(&p->name);
        p->state = read_key;
        return true;
    }
    end_call(p);
    if (end == PROA_MATCH_NO) return proa_parser_give_back(p);
    proa_parser_skip(p, strlen("</function>"));
    proa_buf_clear(&p->raw);
    p->state = read_close;
    return true;
}

static bool read_key(proa_message_parser *p)
{
    int read = read_name(p);
    if (read == 0) return false;
    if (read < 0) {
        end_call(p);
        return proa_parser_give_back(p);
    }
    p->state = read_value;
    return true;
}

/* true, false and null as Python writes them. */
static const char *python_word(proa_str value)
{
    return proa_str_is(value, "True")    ? "true"
           : proa_str_is(value, "False") ? "false"
           : proa_str_is(value, "None")  ? "null"
                                         : NULL;
}

static bool is_json(proa_str text)
{
    proa_json_scan scan;
    proa_scan last = PROA_SCAN_MORE;
    proa_json_scan_begin(&scan);
    for (size_t i = 0; i < text.len && last == PROA_SCAN_MORE; i++) {
        last = proa_json_scan_byte(&scan, text.ptr[i]);
        if (last == PROA_SCAN_DONE && i + 1 < text.len) last = PROA_SCAN_BAD;
    }
    bool number = last == PROA_SCAN_MORE && proa_json_scan_byte(&scan, ' ') == PROA_SCAN_BEFORE;
    return last == PROA_SCAN_DONE || number;
}

static proa_str trim_text(proa_str s)
{
    while (s.len > 0 && strchr(" \t\r\n", *s.ptr)) s.ptr++, s.len--;
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[s.len - 1])) s.len--;
    return s;
}

/* A parameter of type string is a text without the line ends next to its tags; any other is JSON if it can be. */
static void put_value(proa_message_parser *p, proa_str value, proa_buf *out)
{
    bool nullable = false;
    bool text = proa_toolset_is_text(p->setup.tools, proa_buf_view(&p->id), proa_buf_view(&p->name), &nullable);
    proa_str bare = trim_text(value);
    const char *word = python_word(bare);
    if (value.len > 0 && *value.ptr == '\n') value.ptr++, value.len--;
    if (value.len > 0 && value.ptr[value.len - 1] == '\n') value.len--;
    bool null = nullable && (proa_str_is(bare, "null") || proa_str_is(bare, "None"));
    if (null) proa_buf_str(out, proa_str_c("null"));
    else if (!text && word) proa_buf_str(out, proa_str_c(word));
    else if (!text && is_json(bare)) proa_buf_str(out, bare);
    else proa_buf_json_str(out, value);
}

static void put_parameter(proa_message_parser *p, proa_str value)
{
    proa_buf out;
    proa_buf_init(&out, PROA_TEXT_BYTES_MAX);
    proa_buf_str(&out, proa_str_c(p->arguments ? ", " : "{"));
    proa_buf_json_str(&out, proa_buf_view(&p->name));
    proa_buf_str(&out, proa_str_c(": "));
    put_value(p, value, &out);
    proa_parser_arguments(p, out.ptr, out.len);
    proa_buf_release(&out);
    proa_buf_clear(&p->raw);
}

/* The value of a parameter, which is passed on when its end has come. */
static bool read_value(proa_message_parser *p)
{
    static const char close[] = "</parameter>";
    proa_str rest = proa_parser_rest(p);
    const char *end = rest.len ? memmem(rest.ptr, rest.len, close, sizeof close - 1) : NULL;
    if (!end && !p->ending) return false;
    if (!end) {
        end_call(p);
        return proa_parser_give_back(p);
    }
    put_parameter(p, (proa_str){rest.ptr, (size_t)(end - rest.ptr)});
    proa_parser_skip(p, (size_t)(end - rest.ptr) + sizeof close - 1);
    p->state = read_parameters;
    return true;
}
