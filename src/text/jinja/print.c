/* SPDX-License-Identifier: Apache-2.0
 * print.c - values as text: Python's str and repr, and json.dumps. */
#include "text/jinja/value.h"

#include "base/limits.h"
#include "text/unicode.h"
#include <math.h>
#include <string.h>
#include <utf8proc.h>

#define NESTING_MAX 200

/* Python's repr: the shortest digits that read back as the same number, with an exponent below 1e-4 and from
 * 1e16 on. */
void proa_j_print_float(proa_buf *out, double f)
{
    char digits[40];
    if (isnan(f) || isinf(f)) {
        proa_buf_str(out, proa_str_c(isnan(f) ? "nan" : f < 0 ? "-inf" : "inf"));
        return;
    }
    int precision = 0;
    do snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && ++precision < 17);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        snprintf(digits, sizeof digits, "%.*f", precision > exponent ? precision - exponent : 0, f);
        proa_buf_str(out, proa_str_c(digits));
        if (!strchr(digits, '.')) proa_buf_str(out, proa_str_c(".0"));
        return;
    }
    proa_buf_append(out, digits, strcspn(digits, "e"));
    proa_buf_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

static bool is_printable(int32_t c)
{
    if (c < 0x80) return c >= 0x20 && c < 0x7F;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void repr_char(proa_buf *out, int32_t c, char quote)
{
    if (c == quote || c == '\\') proa_buf_printf(out, "\\%c", (char)c);
    else if (c == '\n') proa_buf_str(out, proa_str_c("\\n"));
    else if (c == '\r') proa_buf_str(out, proa_str_c("\\r"));
    else if (c == '\t') proa_buf_str(out, proa_str_c("\\t"));
    else if (is_printable(c)) proa_buf_code_point(out, c);
    else if (c < 0x100) proa_buf_printf(out, "\\x%02x", (unsigned)c);
    else proa_buf_printf(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static void repr_string(proa_buf *out, proa_str s)
{
    char quote = memchr(s.ptr, '\'', s.len) && !memchr(s.ptr, '"', s.len) ? '"' : '\'';
    int32_t c;
    proa_buf_char(out, quote);
    for (size_t at = 0; at < s.len;) {
        at += (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        repr_char(out, c, quote);
    }
    proa_buf_char(out, quote);
}

static bool go_on(proa_jrun *run, const proa_buf *out, int depth)
{
    if (depth > NESTING_MAX) proa_j_fail(run, PROA_LIMIT, "values nested deeper than %d", NESTING_MAX);
    if (out->full) proa_j_fail(run, PROA_LIMIT, "a text of more than %zu bytes", out->bytes_max);
    return proa_j_charge(run, 1);
}

static void repr_at(proa_jrun *run, proa_buf *out, proa_jval v, int depth);

static void repr_items(proa_jrun *run, proa_buf *out, const proa_jseq *seq, char open, char close, int depth)
{
    proa_buf_char(out, open);
    for (int64_t i = 0; i < seq->len && !run->failed; i++) {
        if (i > 0) proa_buf_str(out, proa_str_c(", "));
        repr_at(run, out, seq->items[i], depth + 1);
    }
    if (open == '(' && seq->len == 1) proa_buf_char(out, ',');
    proa_buf_char(out, close);
}

static void repr_dict(proa_jrun *run, proa_buf *out, const proa_jdict *dict, int depth)
{
    proa_buf_char(out, '{');
    for (int64_t i = 0; i < dict->len && !run->failed; i++) {
        if (i > 0) proa_buf_str(out, proa_str_c(", "));
        repr_at(run, out, dict->entries[i].key, depth + 1);
        proa_buf_str(out, proa_str_c(": "));
        repr_at(run, out, dict->entries[i].value, depth + 1);
    }
    proa_buf_char(out, '}');
}

static void repr_range(proa_buf *out, const proa_jseq *seq)
{
    int64_t n = seq->len, step = n > 1 ? seq->items[1].i - seq->items[0].i : 1;
    int64_t first = n ? seq->items[0].i : 0, stop = n ? seq->items[n - 1].i + step : 0;
    proa_buf_printf(out, "range(%lld, %lld", (long long)first, (long long)stop);
    if (step != 1) proa_buf_printf(out, ", %lld", (long long)step);
    proa_buf_char(out, ')');
}

static void repr_seq(proa_jrun *run, proa_buf *out, proa_jval v, int depth)
{
    if (v.kind == PROA_J_LIST) repr_items(run, out, v.seq, '[', ']', depth);
    else if (v.kind == PROA_J_TUPLE) repr_items(run, out, v.seq, '(', ')', depth);
    else if (v.kind == PROA_J_RANGE) repr_range(out, v.seq);
    else {
        proa_buf_printf(out, "%s(", v.seq->view);
        repr_items(run, out, v.seq, '[', ']', depth);
        proa_buf_char(out, ')');
    }
}

static void repr_at(proa_jrun *run, proa_buf *out, proa_jval v, int depth)
{
    if (!go_on(run, out, depth)) return;
    switch (v.kind) {
    case PROA_J_UNDEFINED: proa_buf_str(out, proa_str_c("Undefined")); break;
    case PROA_J_NONE: proa_buf_str(out, proa_str_c("None")); break;
    case PROA_J_BOOL: proa_buf_str(out, proa_str_c(v.b ? "True" : "False")); break;
    case PROA_J_INT: proa_buf_printf(out, "%lld", (long long)v.i); break;
    case PROA_J_FLOAT: proa_j_print_float(out, v.f); break;
    case PROA_J_STRING:
        proa_j_charge_chars(run, v.len);
        if (v.flag) proa_buf_str(out, proa_str_c("Markup("));
        repr_string(out, proa_j_text(v));
        if (v.flag) proa_buf_char(out, ')');
        break;
    case PROA_J_LIST:
    case PROA_J_TUPLE:
    case PROA_J_RANGE:
    case PROA_J_VIEW: repr_seq(run, out, v, depth); break;
    case PROA_J_DICT: repr_dict(run, out, v.dict, depth); break;
    case PROA_J_NAMESPACE:
        proa_buf_str(out, proa_str_c("<Namespace "));
        repr_dict(run, out, v.dict, depth);
        proa_buf_char(out, '>');
        break;
    default: proa_buf_printf(out, "<%s>", proa_j_type_name(v));
    }
}

void proa_j_repr(proa_jrun *run, proa_buf *out, proa_jval v)
{
    repr_at(run, out, v, 0);
}

void proa_j_print(proa_jrun *run, proa_buf *out, proa_jval v)
{
    if (v.kind == PROA_J_STRING) {
        if (!proa_buf_str(out, proa_j_text(v))) go_on(run, out, 0);
    } else if (v.kind != PROA_J_UNDEFINED) repr_at(run, out, v, 0);
}

proa_jval proa_j_str(proa_jrun *run, proa_jval v)
{
    if (v.kind == PROA_J_STRING) return v;
    proa_buf_clear(&run->scratch);
    proa_j_print(run, &run->scratch, v);
    return proa_j_take(run, &run->scratch, 0);
}

proa_jval proa_j_repr_of(proa_jrun *run, proa_jval v)
{
    proa_buf_clear(&run->scratch);
    proa_j_repr(run, &run->scratch, v);
    return proa_j_take(run, &run->scratch, 0);
}

/* ---- JSON ---- */

static void json_char(proa_buf *out, int32_t c, bool ascii)
{
    static const char short_form[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *found = c > 0 && c < 0x80 ? strchr(short_form, c) : NULL;
    if (found) proa_buf_printf(out, "\\%c", letter[found - short_form]);
    else if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) proa_buf_printf(out, "\\u%04x", (unsigned)c);
    else if (ascii && c >= 0x10000)
        proa_buf_printf(out, "\\u%04x\\u%04x", 0xD800 + ((unsigned)(c - 0x10000) >> 10),
                        0xDC00 + ((unsigned)(c - 0x10000) & 0x3FF));
    else proa_buf_code_point(out, c);
}

static void json_string(proa_buf *out, proa_str s, bool ascii)
{
    int32_t c;
    proa_buf_char(out, '"');
    for (size_t at = 0; at < s.len;) {
        at += (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        if (c == 0x7F && !ascii) proa_buf_char(out, (char)c); /* Python leaves it */
        else json_char(out, c, ascii);
    }
    proa_buf_char(out, '"');
}

static void json_float(proa_buf *out, double f)
{
    if (isnan(f)) proa_buf_str(out, proa_str_c("NaN"));
    else if (isinf(f)) proa_buf_str(out, proa_str_c(f < 0 ? "-Infinity" : "Infinity"));
    else proa_j_print_float(out, f);
}

static void json_scalar(proa_jrun *run, proa_buf *out, proa_jval v, bool ascii)
{
    if (v.kind == PROA_J_NONE) proa_buf_str(out, proa_str_c("null"));
    else if (v.kind == PROA_J_BOOL) proa_buf_str(out, proa_str_c(v.b ? "true" : "false"));
    else if (v.kind == PROA_J_INT) proa_buf_printf(out, "%lld", (long long)v.i);
    else if (v.kind == PROA_J_FLOAT) json_float(out, v.f);
    else if (v.kind == PROA_J_STRING) {
        if (proa_j_charge_chars(run, v.len)) json_string(out, proa_j_text(v), ascii);
    } else proa_j_fail(run, PROA_INVALID, "Object of type %s is not JSON serializable", proa_j_type_name(v));
}

/* Keys become strings as json.dumps does it: a number's or constant's JSON in quotes. */
static void json_key(proa_jrun *run, proa_buf *out, proa_jval key, bool ascii)
{
    bool quoted = key.kind != PROA_J_STRING;
    if (key.kind < PROA_J_NONE || key.kind > PROA_J_STRING)
        proa_j_fail(run, PROA_INVALID, "keys must be str, int, float, bool or None, not %s",
                    proa_j_type_name(key));
    if (quoted) proa_buf_char(out, '"');
    json_scalar(run, out, key, ascii);
    if (quoted) proa_buf_char(out, '"');
}

static void json_break(proa_buf *out, const proa_jjson *form, int depth)
{
    if (!form->pretty) return;
    proa_buf_char(out, '\n');
    for (int i = 0; i < depth; i++) proa_buf_str(out, form->indent);
}

static void json_at(proa_jrun *run, proa_buf *out, proa_jval v, const proa_jjson *form, int depth);

static void json_array(proa_jrun *run, proa_buf *out, const proa_jseq *seq, const proa_jjson *form, int depth)
{
    proa_buf_char(out, '[');
    for (int64_t i = 0; i < seq->len && !run->failed; i++) {
        if (i > 0) proa_buf_str(out, form->item);
        json_break(out, form, depth + 1);
        json_at(run, out, seq->items[i], form, depth + 1);
    }
    if (seq->len > 0) json_break(out, form, depth);
    proa_buf_char(out, ']');
}

/* The entries in the order of their keys: a copy, sorted by insertion, since keys are few. */
static const proa_jdict *sorted_keys(proa_jrun *run, const proa_jdict *dict)
{
    proa_jdict *copy = proa_j_alloc(run, sizeof *copy);
    proa_jentry *entries = copy ? proa_j_alloc(run, (size_t)(dict->len + 1) * sizeof *entries) : NULL;
    if (!entries) return dict;
    *copy = (proa_jdict){.entries = entries, .len = dict->len};
    for (int64_t i = 0; i < dict->len && proa_j_charge(run, 1); i++) {
        int64_t at = i;
        for (; at > 0 && proa_j_compare(run, entries[at - 1].key, dict->entries[i].key, "<") > 0; at--)
            entries[at] = entries[at - 1];
        entries[at] = dict->entries[i];
    }
    return copy;
}

static void json_object(proa_jrun *run, proa_buf *out, const proa_jdict *dict, const proa_jjson *form, int depth)
{
    if (form->sort) dict = sorted_keys(run, dict);
    proa_buf_char(out, '{');
    for (int64_t i = 0; i < dict->len && !run->failed; i++) {
        if (i > 0) proa_buf_str(out, form->item);
        json_break(out, form, depth + 1);
        json_key(run, out, dict->entries[i].key, form->ascii);
        proa_buf_str(out, form->key);
        json_at(run, out, dict->entries[i].value, form, depth + 1);
    }
    if (dict->len > 0) json_break(out, form, depth);
    proa_buf_char(out, '}');
}

static void json_at(proa_jrun *run, proa_buf *out, proa_jval v, const proa_jjson *form, int depth)
{
    if (!go_on(run, out, depth)) return;
    if (v.kind == PROA_J_LIST || v.kind == PROA_J_TUPLE) json_array(run, out, v.seq, form, depth);
    else if (v.kind == PROA_J_DICT) json_object(run, out, v.dict, form, depth);
    else json_scalar(run, out, v, form->ascii);
}

void proa_j_json(proa_jrun *run, proa_buf *out, proa_jval v, const proa_jjson *form)
{
    json_at(run, out, v, form, 0);
}
