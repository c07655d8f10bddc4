/* SPDX-License-Identifier: Apache-2.0
 * filters.c - filters of one value: texts, numbers, JSON; and the table of all filters. */
#include "text/jinja/filters.h"

#include "base/limits.h"
#include "text/unicode.h"
#include <math.h>
#include <string.h>

static proa_str text_of(proa_jrun *run, proa_jval v)
{
    return proa_j_text(proa_j_str(run, v));
}

FILTER(f_upper)
{
    FILTER_UNUSED;
    return proa_j_upper(run, text_of(run, self));
}

FILTER(f_lower)
{
    FILTER_UNUSED;
    return proa_j_lower(run, text_of(run, self));
}

FILTER(f_capitalize)
{
    FILTER_UNUSED;
    return proa_j_capital(run, text_of(run, self));
}

/* Unlike str.title: a word begins after white space, '-', '(', '{', '[' and '<' only. */
FILTER(f_title)
{
    FILTER_UNUSED;
    proa_str s = text_of(run, self);
    proa_buf out;
    size_t from = 0;
    bool between_words = true;
    int32_t c;
    proa_buf_init(&out, (size_t)PROA_TEMPLATE_MEMORY_MAX);
    for (size_t at = 0, after; at <= s.len && proa_j_charge(run, 1); at = after) {
        bool end = at == s.len, parts = false;
        after = at + 1;
        if (!end) {
            after = at + (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
            parts = proa_j_is_space(c) || (c < 0x80 && strchr("-({[<", (char)c) != NULL && c != 0);
        }
        if (!end && parts == between_words) continue;
        proa_str word = {s.ptr + from, at - from};
        proa_buf_str(&out, between_words ? word : proa_j_text(proa_j_capital(run, word)));
        from = at;
        between_words = parts;
    }
    proa_jval v = proa_j_take(run, &out, 0);
    proa_buf_release(&out);
    return v;
}

FILTER(f_trim)
{
    PROA_UNUSED(call);
    proa_str s = text_of(run, self), chars;
    if (!proa_j_given(args[0]) || args[0].kind == PROA_J_NONE)
        return proa_j_view(proa_j_strip(run, s, PROA_J_LEFT | PROA_J_RIGHT, NULL));
    chars = proa_j_str_arg(run, args[0], "chars");
    return proa_j_view(proa_j_strip(run, s, PROA_J_LEFT | PROA_J_RIGHT, &chars));
}

FILTER(f_replace)
{
    PROA_UNUSED(call);
    proa_str s = text_of(run, self), old = text_of(run, args[0]), replacement = text_of(run, args[1]);
    int64_t count = args[2].kind == PROA_J_NONE ? -1 : proa_j_int_arg(run, args[2], -1);
    return run->failed ? proa_j_none() : proa_j_replace(run, s, old, replacement, count);
}

FILTER(f_string)
{
    FILTER_UNUSED;
    return proa_j_str(run, self);
}

FILTER(f_safe)
{
    FILTER_UNUSED;
    proa_jval v = proa_j_str(run, self);
    v.flag = 1;
    return v;
}

FILTER(f_escape)
{
    FILTER_UNUSED;
    return proa_j_escape(run, self);
}

FILTER(f_forceescape)
{
    FILTER_UNUSED;
    proa_jval v = proa_j_str(run, self);
    v.flag = 0;
    return proa_j_escape(run, v);
}

/* The lines of the text and a line feed, which the filter adds: after \r it ends no line of its own. */
static proa_jval lines_to_indent(proa_jrun *run, proa_str s)
{
    char *text = proa_j_alloc(run, s.len + 2);
    if (!text) return proa_j_list(run, PROA_J_LIST, 0);
    if (s.len) memcpy(text, s.ptr, s.len);
    text[s.len] = '\n';
    return proa_j_lines(run, (proa_str){text, s.len + 1}, false);
}

FILTER(f_indent)
{
    PROA_UNUSED(call);
    proa_str width, s = proa_j_str_arg(run, self, "the text to indent");
    if (args[0].kind == PROA_J_STRING) width = proa_j_text(args[0]);
    else
        width = proa_j_text(proa_j_math(run, PROA_T_MUL, proa_j_view(proa_str_c(" ")),
                                        proa_j_int(proa_j_int_arg(run, args[0], 4))));
    if (run->failed) return self;
    proa_jval lines = lines_to_indent(run, s);
    proa_buf_clear(&run->scratch);
    if (proa_j_truth(args[1])) proa_buf_str(&run->scratch, width);
    for (int64_t i = 0; i < lines.seq->len && proa_j_charge(run, 1); i++) {
        proa_str line = proa_j_text(lines.seq->items[i]);
        if (i > 0) proa_buf_char(&run->scratch, '\n');
        if (i > 0 && (line.len > 0 || proa_j_truth(args[2]))) proa_buf_str(&run->scratch, width);
        proa_buf_str(&run->scratch, line);
    }
    return proa_j_take(run, &run->scratch, 0);
}

FILTER(f_center)
{
    const proa_jfunction *center = proa_j_function_find(proa_j_str_methods, proa_str_c("center"));
    const proa_jval width[2] = {proa_j_given(args[0]) ? args[0] : proa_j_int(80), {.kind = PROA_J_ABSENT}};
    return center->fn(run, proa_j_str(run, self), width, call);
}

FILTER(f_format)
{
    PROA_UNUSED(args);
    proa_jval values = proa_j_list(run, PROA_J_TUPLE, call->count);
    if (call->count && call->named_count)
        proa_j_fail(run, PROA_INVALID, "can't handle positional and keyword arguments at the same time");
    for (int32_t i = 0; i < call->count; i++) proa_j_push(run, values, call->pos[i]);
    if (call->named_count) values = proa_j_dict(run, PROA_J_DICT, call->named_count);
    for (int32_t i = 0; i < call->named_count; i++)
        proa_j_put(run, values, proa_j_view(call->named[i].name), call->named[i].value);
    return run->failed ? values : proa_j_percent(run, text_of(run, self), values);
}

static bool is_word(int32_t c)
{
    return c == '_' || proa_char_is_word(c);
}

FILTER(f_wordcount)
{
    FILTER_UNUSED;
    proa_str s = text_of(run, self);
    int64_t words = 0;
    bool inside = false;
    int32_t c;
    for (size_t at = 0; at < s.len;) {
        at += (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        words += is_word(c) && !inside;
        inside = is_word(c);
    }
    return proa_j_int(words);
}

FILTER(f_truncate)
{
    PROA_UNUSED(call);
    proa_str end = proa_j_given(args[2]) ? proa_j_str_arg(run, args[2], "end") : proa_str_c("..."), s;
    int64_t length = proa_j_int_arg(run, args[0], 255), leeway = proa_j_int_arg(run, args[3], 5);
    if (length < proa_utf8_count(end) || leeway < 0)
        proa_j_fail(run, PROA_INVALID, "expected a length of at least the end's, and leeway >= 0");
    if (run->failed || proa_j_len(run, self) <= length + leeway) return self;
    s = proa_j_str_arg(run, self, "the text to truncate");
    size_t kept = proa_j_offset(s, length - proa_utf8_count(end));
    const char *space = proa_j_truth(args[1]) ? NULL : memrchr(s.ptr, ' ', kept);
    if (space) kept = (size_t)(space - s.ptr);
    proa_buf_clear(&run->scratch);
    proa_buf_append(&run->scratch, s.ptr, kept);
    proa_buf_str(&run->scratch, end);
    return proa_j_take(run, &run->scratch, 0);
}

/* ---- any values ---- */

FILTER(f_length)
{
    FILTER_UNUSED;
    return proa_j_int(proa_j_len(run, self));
}

FILTER(f_default)
{
    PROA_UNUSED(run);
    PROA_UNUSED(call);
    bool use = self.kind == PROA_J_UNDEFINED || (proa_j_truth(args[1]) && !proa_j_truth(self));
    if (!use) return self;
    return proa_j_given(args[0]) ? args[0] : proa_j_view((proa_str){"", 0});
}

FILTER(f_attr)
{
    PROA_UNUSED(call);
    proa_str name = proa_j_str_arg(run, args[0], "the name of an attribute");
    return run->failed ? proa_j_none() : proa_j_attr_only(run, self, name);
}

FILTER(f_tojson)
{
    PROA_UNUSED(call);
    proa_jjson form = {.ascii = proa_j_truth(args[0]), .sort = proa_j_truth(args[3])};
    bool plain = args[1].kind <= PROA_J_NONE;
    form.pretty = !plain;
    form.item = proa_str_c(plain ? ", " : ",");
    form.key = proa_str_c(": ");
    if (args[1].kind == PROA_J_STRING) form.indent = proa_j_text(args[1]);
    else if (!plain)
        form.indent = proa_j_text(proa_j_math(run, PROA_T_MUL, proa_j_view(proa_str_c(" ")),
                                              proa_j_int(proa_j_int_arg(run, args[1], 0))));
    if (proa_j_is_seq(args[2]) && args[2].seq->len == 2) {
        form.item = proa_j_str_arg(run, args[2].seq->items[0], "a separator");
        form.key = proa_j_str_arg(run, args[2].seq->items[1], "a separator");
    } else if (args[2].kind > PROA_J_NONE) proa_j_fail(run, PROA_INVALID, "separators must be a pair");
    if (run->failed) return proa_j_none();
    proa_buf_clear(&run->scratch);
    proa_j_json(run, &run->scratch, self, &form);
    return proa_j_take(run, &run->scratch, 0);
}

/* ---- numbers ---- */

/* The text without the underscores between its digits, at most 79 bytes; false if one stands elsewhere. */
static bool drop_underscores(char text[80], proa_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len && n < 79; i++) {
        bool between = i > 0 && i + 1 < s.len && s.ptr[i - 1] != '_' && s.ptr[i + 1] != '_';
        if (s.ptr[i] != '_') text[n++] = s.ptr[i];
        else if (!between) return false;
    }
    text[n] = '\0';
    return s.len <= 79;
}

/* Takes 0x, 0o or 0b away if the base allows it; returns the base that then holds. */
static int take_prefix(char *text, int base)
{
    size_t sign = text[0] == '-' || text[0] == '+';
    char mark = (char)(text[sign] == '0' ? text[sign + 1] | 32 : 0);
    int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (!marked || (base != 0 && base != marked)) return base ? base : 10;
    memmove(text + sign, text + sign + 2, strlen(text + sign + 2) + 1);
    return marked;
}

/* Reads a whole text as Python's int(text, base) does; false if it is none. */
static bool read_int(proa_str s, int base, int64_t *value)
{
    char text[80], *end;
    if (!drop_underscores(text, proa_j_strip(NULL, s, PROA_J_LEFT | PROA_J_RIGHT, NULL))) return false;
    base = take_prefix(text, base);
    *value = strtoll(text, &end, base);
    return end > text && *end == '\0';
}

static bool read_float(proa_str s, double *value)
{
    char text[400], *end;
    s = proa_j_strip(NULL, s, PROA_J_LEFT | PROA_J_RIGHT, NULL);
    if (s.len == 0 || s.len >= sizeof text || memchr(s.ptr, 'x', s.len) || memchr(s.ptr, 'X', s.len))
        return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    *value = strtod(text, &end);
    return end == text + s.len;
}

static bool to_int(double f, int64_t *value)
{
    if (!(f > -9.3e18 && f < 9.2e18)) return false;
    *value = (int64_t)f;
    return true;
}

FILTER(f_int)
{
    PROA_UNUSED(call);
    int64_t base = proa_j_int_arg(run, args[1], 10), value;
    double f;
    if (proa_j_fail_undefined(run, self)) return self;
    if (base != 0 && (base < 2 || base > 36)) base = 10;
    if (proa_j_is_whole(self)) return proa_j_int(proa_j_whole(self));
    if (self.kind == PROA_J_FLOAT && to_int(self.f, &value)) return proa_j_int(value);
    if (self.kind == PROA_J_STRING && read_int(proa_j_text(self), (int)base, &value))
        return proa_j_int(value);
    if (self.kind == PROA_J_STRING && read_float(proa_j_text(self), &f) && to_int(f, &value))
        return proa_j_int(value);
    return proa_j_given(args[0]) ? args[0] : proa_j_int(0);
}

FILTER(f_float)
{
    PROA_UNUSED(call);
    double f;
    if (proa_j_fail_undefined(run, self)) return self;
    if (proa_j_is_number(self)) return proa_j_float(proa_j_number(self));
    if (self.kind == PROA_J_STRING && read_float(proa_j_text(self), &f)) return proa_j_float(f);
    return proa_j_given(args[0]) ? args[0] : proa_j_float(0);
}

FILTER(f_abs)
{
    FILTER_UNUSED;
    bool negative = proa_j_is_number(self) && proa_j_number(self) < 0;
    return proa_j_negate(run, self, negative);
}

/* The nearest decimal with that many places: glibc prints the exact value, ties to even as Python has them. */
static double round_decimal(double f, int64_t places)
{
    char text[400];
    if (places > 300 || !isfinite(f)) return f;
    if (places < -300) return 0;
    if (places >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)(places > 22 ? 22 : places), f);
        return strtod(text, NULL);
    }
    double unit = pow(10, (double)-places);
    return nearbyint(f / unit) * unit;
}

/* 0: common, 1: ceil, -1: floor. */
static int round_method(proa_jrun *run, proa_jval v)
{
    proa_str method = proa_j_given(v) ? proa_j_str_arg(run, v, "method") : proa_str_c("common");
    if (proa_str_is(method, "ceil")) return 1;
    if (proa_str_is(method, "floor")) return -1;
    if (!proa_str_is(method, "common"))
        proa_j_fail(run, PROA_INVALID, "method must be common, ceil or floor");
    return 0;
}

FILTER(f_round)
{
    PROA_UNUSED(call);
    int64_t places = proa_j_int_arg(run, args[0], 0);
    int method = round_method(run, args[1]);
    if (!proa_j_is_number(self) && !proa_j_fail_undefined(run, self))
        proa_j_fail(run, PROA_INVALID, "type %s doesn't define __round__ method", proa_j_type_name(self));
    if (run->failed) return self;
    if (method == 0 && proa_j_is_whole(self))
        return places >= 0 ? proa_j_int(proa_j_whole(self))
                           : proa_j_int((int64_t)round_decimal(proa_j_number(self), places));
    double f = proa_j_number(self), unit = pow(10, (double)places);
    if (method == 0) return proa_j_float(round_decimal(f, places));
    return proa_j_float((method > 0 ? ceil(f * unit) : floor(f * unit)) / unit);
}

const proa_jfunction proa_j_filters[] = {
    {"trim", f_trim, "chars", 0},
    {"tojson", f_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"length", f_length, "", 0},
    {"count", f_length, "", 0},
    {"join", proa_f_join, "d attribute", 0},
    {"default", f_default, "default_value boolean", 0},
    {"d", f_default, "default_value boolean", 0},
    {"upper", f_upper, "", 0},
    {"lower", f_lower, "", 0},
    {"title", f_title, "", 0},
    {"capitalize", f_capitalize, "", 0},
    {"first", proa_f_first, "", 0},
    {"last", proa_f_last, "", 0},
    {"list", proa_f_list, "", 0},
    {"map", proa_f_map, NULL, 0},
    {"select", proa_f_select, NULL, 0},
    {"reject", proa_f_reject, NULL, 0},
    {"selectattr", proa_f_selectattr, NULL, 0},
    {"rejectattr", proa_f_rejectattr, NULL, 0},
    {"items", proa_f_items, "", 0},
    {"dictsort", proa_f_dictsort, "case_sensitive by reverse", 0},
    {"sort", proa_f_sort, "reverse case_sensitive attribute", 0},
    {"unique", proa_f_unique, "case_sensitive attribute", 0},
    {"groupby", proa_f_groupby, "attribute default case_sensitive", 1},
    {"reverse", proa_f_reverse, "", 0},
    {"sum", proa_f_sum, "attribute start", 0},
    {"min", proa_f_min, "case_sensitive attribute", 0},
    {"max", proa_f_max, "case_sensitive attribute", 0},
    {"batch", proa_f_batch, "linecount fill_with", 1},
    {"slice", proa_f_slice, "slices fill_with", 1},
    {"string", f_string, "", 0},
    {"replace", f_replace, "old new count", 2},
    {"int", f_int, "default base", 0},
    {"float", f_float, "default", 0},
    {"abs", f_abs, "", 0},
    {"round", f_round, "precision method", 0},
    {"indent", f_indent, "width first blank", 0},
    {"safe", f_safe, "", 0},
    {"escape", f_escape, "", 0},
    {"e", f_escape, "", 0},
    {"forceescape", f_forceescape, "", 0},
    {"format", f_format, NULL, 0},
    {"center", f_center, "width", 0},
    {"wordcount", f_wordcount, "", 0},
    {"truncate", f_truncate, "length killwords end leeway", 0},
    {"attr", f_attr, "name", 1},
    {.name = NULL},
};
