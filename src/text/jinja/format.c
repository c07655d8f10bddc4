/* SPDX-License-Identifier: Apache-2.0
 * format.c - "%s: %d" % (a, b) and "{}: {:>5}".format(a, b). */
#include "text/jinja/run.h"

#include "base/limits.h"
#include "text/unicode.h"
#include <math.h>
#include <string.h>

#define WIDTH_MAX 10000 /* of one field; also its digits after the point */

typedef struct spec {
    proa_str fill;
    char align; /* < > ^ = ; 0: the type's own */
    char sign;  /* + - or space */
    bool alternate, comma;
    int64_t width, precision; /* precision < 0: none */
    char type;                /* 0: none */
} spec;

static bool take_digits(proa_jrun *run, proa_str s, size_t *at, int64_t *value)
{
    size_t from = *at;
    int64_t n = 0;
    for (; *at < s.len && s.ptr[*at] >= '0' && s.ptr[*at] <= '9'; ++*at)
        if (n <= WIDTH_MAX) n = n * 10 + (s.ptr[*at] - '0');
    if (*at == from) return false;
    if (n > WIDTH_MAX) proa_j_fail(run, PROA_LIMIT, "a field wider than %d characters", WIDTH_MAX);
    else *value = n;
    return true;
}

/* text with fill around it up to the width; numbers are padded after their sign for '='. */
static void put_padded(proa_buf *out, const spec *f, proa_str text, char otherwise)
{
    int64_t more = f->width - proa_utf8_count(text), left, i = 0;
    char align = f->align ? f->align : otherwise;
    size_t head = align == '=' && text.len && (text.ptr[0] == '-' || text.ptr[0] == '+' || text.ptr[0] == ' ');
    if (more < 0) more = 0;
    left = align == '<' ? 0 : align == '^' ? more / 2 : more;
    proa_buf_append(out, text.ptr, head);
    for (; i < left; i++) proa_buf_str(out, f->fill);
    proa_buf_append(out, text.ptr + head, text.len - head);
    for (; i < more; i++) proa_buf_str(out, f->fill);
}

/* Digits in groups of three before the point. */
static void group_digits(proa_buf *out, const char *digits)
{
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % 3 == 0) proa_buf_char(out, ',');
        proa_buf_char(out, digits[i]);
    }
    proa_buf_str(out, proa_str_c(digits + whole));
}

static void put_number(proa_buf *out, const spec *f, const char *digits, bool negative)
{
    proa_buf text;
    proa_buf_init(&text, 1 << 20);
    if (negative) proa_buf_char(&text, '-');
    else if (f->sign == '+' || f->sign == ' ') proa_buf_char(&text, f->sign);
    if (f->comma) group_digits(&text, digits);
    else proa_buf_str(&text, proa_str_c(digits));
    put_padded(out, f, proa_buf_view(&text), '>');
    proa_buf_release(&text);
}

static void put_float(proa_buf *out, const spec *f, double value)
{
    char *digits = NULL, form[8];
    char type = f->type ? f->type : 'g';
    double size = fabs(value);
    int precision = f->precision < 0 ? 6 : (int)f->precision, n;
    if (type == '%') size *= 100;
    snprintf(form, sizeof form, "%%.*%c", type == '%' ? 'f' : type);
    n = asprintf(&digits, form, precision, size);
    proa_buf text;
    proa_buf_init(&text, 1 << 20);
    if (n >= 0) proa_buf_append(&text, digits, (size_t)n);
    if (type == '%') proa_buf_char(&text, '%');
    put_number(out, f, text.ptr ? text.ptr : "", signbit(value) && !isnan(value));
    proa_buf_release(&text);
    free(digits);
}

static void put_int(proa_jrun *run, proa_buf *out, const spec *f, int64_t value)
{
    char digits[80];
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int at = (int)sizeof digits - 1;
    unsigned base = f->type == 'b' ? 2 : f->type == 'o' ? 8 : (f->type | 32) == 'x' ? 16 : 10;
    digits[at] = '\0';
    do digits[--at] = (f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[size % base];
    while ((size /= base) > 0);
    while (f->precision > (int64_t)sizeof digits - 1 - at && at > 3) digits[--at] = '0';
    if (f->alternate && base != 10) {
        digits[--at] = f->type;
        digits[--at] = '0';
    }
    if (f->type == 'c') {
        if (value < 0 || value > 0x10FFFF) proa_j_fail(run, PROA_INVALID, "%%c arg not in range(0x110000)");
        else proa_buf_code_point(out, (int32_t)value);
    } else put_number(out, f, digits + at, value < 0);
}

static void put_text(proa_buf *out, const spec *f, proa_str text, char otherwise)
{
    if (f->precision >= 0) text.len = proa_j_offset(text, f->precision);
    put_padded(out, f, text, otherwise);
}

/* ---- % ---- */

typedef struct percent {
    proa_jrun *run;
    proa_str format;
    size_t at;
    proa_jval values;
    int64_t used;
    proa_buf out;
} percent;

static proa_jval next_value(percent *p)
{
    bool many = p->values.kind == PROA_J_TUPLE;
    int64_t n = many ? p->values.seq->len : 1;
    if (p->used >= n) {
        proa_j_fail(p->run, PROA_INVALID, "not enough arguments for format string");
        return proa_j_none();
    }
    return many ? p->values.seq->items[p->used++] : (p->used++, p->values);
}

static proa_jval named_value(percent *p)
{
    const char *from = p->format.ptr + p->at, *close = memchr(from, ')', p->format.len - p->at);
    const proa_jval *place = NULL;
    if (!close) proa_j_fail(p->run, PROA_INVALID, "incomplete format key");
    else if (p->values.kind != PROA_J_DICT) proa_j_fail(p->run, PROA_INVALID, "format requires a mapping");
    if (p->run->failed) return proa_j_none();
    p->at += (size_t)(close - from) + 1;
    p->used = INT64_MAX;
    place = proa_j_find_str(p->run, p->values, (proa_str){from, (size_t)(close - from)});
    if (place) return *place;
    proa_j_fail(p->run, PROA_INVALID, "no key '%.*s' for the format", (int)(close - from), from);
    return proa_j_none();
}

static int64_t star_or_digits(percent *p, int64_t otherwise)
{
    int64_t n = otherwise;
    if (p->at < p->format.len && p->format.ptr[p->at] == '*') {
        p->at++;
        n = proa_j_int_arg(p->run, next_value(p), 0);
        if (n > WIDTH_MAX || n < -WIDTH_MAX) {
            proa_j_fail(p->run, PROA_LIMIT, "a field wider than %d characters", WIDTH_MAX);
            n = 0;
        }
    } else take_digits(p->run, p->format, &p->at, &n);
    return n;
}

static void percent_flags(percent *p, spec *f)
{
    for (; p->at < p->format.len; p->at++) {
        char c = p->format.ptr[p->at];
        if (c == '-') f->align = '<';
        else if (c == '+' || (c == ' ' && f->sign != '+')) f->sign = c;
        else if (c == '#') f->alternate = true;
        else if (c == '0' && f->align != '<') {
            f->fill = proa_str_c("0");
            f->align = '=';
        } else if (c != ' ' && c != '0') return;
    }
}

static void percent_put(percent *p, spec *f, proa_jval v)
{
    proa_jrun *run = p->run;
    if (f->align == '=' && strchr("sra", f->type))
        *f = (spec){.fill = proa_str_c(" "), .width = f->width, .precision = f->precision, .type = f->type};
    if (f->type == 's') put_text(&p->out, f, proa_j_text(proa_j_str(run, v)), '>');
    else if (f->type == 'r' || f->type == 'a') put_text(&p->out, f, proa_j_text(proa_j_repr_of(run, v)), '>');
    else if (f->type == 'c' && v.kind == PROA_J_STRING) put_padded(&p->out, f, proa_j_text(v), '>');
    else if (!proa_j_is_number(v)) {
        if (!proa_j_fail_undefined(run, v))
            proa_j_fail(run, PROA_INVALID, "%%%c format: a real number is required, not %s", f->type,
                        proa_j_type_name(v));
    } else if (strchr("diuxXoc", f->type)) {
        if (strchr("iu", f->type)) f->type = 'd';
        put_int(run, &p->out, f,
                v.kind == PROA_J_FLOAT ? (int64_t)fmax(-9e18, fmin(9e18, v.f)) : proa_j_whole(v));
    } else if (strchr("eEfFgG", f->type)) put_float(&p->out, f, proa_j_number(v));
    else proa_j_fail(run, PROA_INVALID, "unsupported format character '%c'", f->type);
}

static void percent_field(percent *p)
{
    spec f = {.fill = proa_str_c(" "), .precision = -1};
    proa_jval v = proa_j_none();
    bool named = p->at < p->format.len && p->format.ptr[p->at] == '(';
    if (named) {
        p->at++;
        v = named_value(p);
    }
    percent_flags(p, &f);
    f.width = star_or_digits(p, 0);
    if (f.width < 0) {
        f.align = '<';
        f.width = -f.width;
    }
    if (p->at < p->format.len && p->format.ptr[p->at] == '.') {
        p->at++;
        f.precision = star_or_digits(p, 0);
    }
    f.type = p->at < p->format.len ? p->format.ptr[p->at++] : '\0';
    if (f.type == '\0') proa_j_fail(p->run, PROA_INVALID, "incomplete format");
    else if (f.type == '%') proa_buf_char(&p->out, '%');
    else {
        if (!named) v = next_value(p);
        if (!p->run->failed) percent_put(p, &f, v);
    }
}

proa_jval proa_j_percent(proa_jrun *run, proa_str format, proa_jval values)
{
    percent p = {.run = run, .format = format, .values = values};
    proa_buf_init(&p.out, (size_t)PROA_TEMPLATE_MEMORY_MAX);
    while (p.at < format.len && proa_j_charge(run, 1)) {
        char c = format.ptr[p.at++];
        if (c == '%') percent_field(&p);
        else proa_buf_char(&p.out, c);
    }
    bool single = values.kind < PROA_J_LIST; /* what has items may have more than are used, but for tuples */
    if (p.used < (values.kind == PROA_J_TUPLE ? values.seq->len : single))
        proa_j_fail(run, PROA_INVALID, "not all arguments converted during string formatting");
    proa_jval text = proa_j_take(run, &p.out, 0);
    proa_buf_release(&p.out);
    return text;
}

/* ---- str.format ---- */

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static void parse_align(proa_str s, size_t *at, spec *f)
{
    int32_t c;
    size_t n = s.len ? (size_t)proa_char_next(s, &c) : 0;
    if (n && n < s.len && is_align(s.ptr[n])) {
        f->fill = (proa_str){s.ptr, n};
        f->align = s.ptr[n];
        *at = n + 1;
    } else if (s.len && is_align(s.ptr[0])) {
        f->align = s.ptr[0];
        *at = 1;
    }
}

static void parse_flags(proa_str s, size_t *at, spec *f)
{
    if (*at < s.len && s.ptr[*at] && strchr("+- ", s.ptr[*at])) f->sign = s.ptr[(*at)++];
    if (*at < s.len && s.ptr[*at] == '#') {
        f->alternate = true;
        ++*at;
    }
    if (*at < s.len && s.ptr[*at] == '0' && !f->align) {
        f->align = '=';
        f->fill = proa_str_c("0");
    }
}

static spec parse_spec(proa_jrun *run, proa_str s)
{
    spec f = {.fill = proa_str_c(" "), .precision = -1};
    size_t at = 0;
    bool missing = false;
    parse_align(s, &at, &f);
    parse_flags(s, &at, &f);
    take_digits(run, s, &at, &f.width);
    f.comma = at < s.len && (s.ptr[at] == ',' || s.ptr[at] == '_');
    at += f.comma;
    if (at < s.len && s.ptr[at] == '.') {
        at++;
        missing = !take_digits(run, s, &at, &f.precision);
    }
    if (at < s.len) f.type = s.ptr[at++];
    if (at < s.len || missing || (f.type && !strchr("bcdeEfFgGnosxX%", f.type)))
        proa_j_fail(run, PROA_INVALID, "Invalid format specifier '%.*s'", (int)(s.len < 100 ? s.len : 100),
                    s.ptr);
    return f;
}

static void put_number_value(proa_jrun *run, proa_buf *out, proa_jval v, spec *f)
{
    if (f->type == 'n') f->type = 'd';
    if (proa_j_is_whole(v) && (!f->type || strchr("bcdoxX", f->type))) put_int(run, out, f, proa_j_whole(v));
    else if (v.kind == PROA_J_FLOAT && !f->type && f->precision < 0) {
        proa_str text = proa_j_text(proa_j_str(run, proa_j_float(fabs(v.f))));
        put_number(out, f, proa_arena_strdup(&run->arena, text), signbit(v.f));
    } else if (!f->type || strchr("eEfFgG%", f->type)) put_float(out, f, proa_j_number(v));
    else proa_j_fail(run, PROA_INVALID, "Unknown format code '%c' for object of type 'float'", f->type);
}

static void put_value(proa_jrun *run, proa_buf *out, proa_jval v, proa_str spec_text)
{
    spec f = parse_spec(run, spec_text);
    if (run->failed) return;
    if (spec_text.len == 0) proa_buf_str(out, proa_j_text(proa_j_str(run, v)));
    else if (proa_j_is_number(v)) put_number_value(run, out, v, &f);
    else if (v.kind == PROA_J_STRING && (!f.type || f.type == 's')) put_text(out, &f, proa_j_text(v), '<');
    else if (!proa_j_fail_undefined(run, v))
        proa_j_fail(run, PROA_INVALID, "unsupported format string passed to %s.__format__", proa_j_type_name(v));
}

/* ".attr" and "[key]" after the name of a field. */
static proa_jval field_rest(proa_jrun *run, proa_jval v, proa_str rest)
{
    while (rest.len > 0 && !run->failed) {
        bool attr = rest.ptr[0] == '.';
        const char *from = rest.ptr + 1;
        size_t left = rest.len - 1, n = 0;
        if (!attr && rest.ptr[0] != '[')
            proa_j_fail(run, PROA_INVALID, "Only '.' or '[' may follow ']' in format field specifier");
        while (n < left && (attr ? from[n] != '.' && from[n] != '[' : from[n] != ']')) n++;
        proa_str part = {from, n};
        if (attr) v = proa_j_attr(run, v, part);
        else if (n && strspn(from, "0123456789") >= n && n < 18)
            v = proa_j_item(run, v, proa_j_int(strtoll(from, NULL, 10)));
        else v = proa_j_item(run, v, proa_j_view(part));
        size_t taken = 1 + n + (!attr && n < left);
        rest = (proa_str){rest.ptr + taken, rest.len - taken};
    }
    return v;
}

static proa_jval field_value(proa_jrun *run, proa_str name, const proa_jcall *call, int32_t *next)
{
    size_t n = 0;
    while (n < name.len && name.ptr[n] != '.' && name.ptr[n] != '[') n++;
    proa_str first = {name.ptr, n}, rest = {name.ptr + n, name.len - n};
    bool number = n == 0 || strspn(name.ptr, "0123456789") >= n;
    int64_t index = n == 0 ? (*next)++ : n < 10 ? strtol(name.ptr, NULL, 10) : INT32_MAX;
    if (number && index < call->count) return field_rest(run, call->pos[index], rest);
    for (int32_t i = 0; !number && i < call->named_count; i++)
        if (proa_str_eq(call->named[i].name, first)) return field_rest(run, call->named[i].value, rest);
    if (number)
        proa_j_fail(run, PROA_INVALID, "Replacement index %lld out of range for positional args tuple",
                    (long long)index);
    else proa_j_fail(run, PROA_INVALID, "no argument '%.*s' for the format", (int)first.len, first.ptr);
    return proa_j_none();
}

/* What stands between { and }. */
static void format_field(proa_jrun *run, proa_buf *out, proa_str field, const proa_jcall *call, int32_t *next)
{
    const char *colon = memchr(field.ptr, ':', field.len);
    proa_str name = {field.ptr, colon ? (size_t)(colon - field.ptr) : field.len}, spec_text = {"", 0};
    char conversion = '\0';
    if (colon) spec_text = (proa_str){colon + 1, field.len - name.len - 1};
    if (name.len >= 2 && name.ptr[name.len - 2] == '!') {
        conversion = name.ptr[name.len - 1];
        name.len -= 2;
    }
    proa_jval v = field_value(run, name, call, next);
    if (conversion == 'r' || conversion == 'a') v = proa_j_repr_of(run, v);
    else if (conversion == 's') v = proa_j_str(run, v);
    else if (conversion) proa_j_fail(run, PROA_INVALID, "Unknown conversion specifier '%c'", conversion);
    if (!run->failed) put_value(run, out, v, spec_text);
}

static size_t format_piece(proa_jrun *run, proa_buf *out, proa_str s, const proa_jcall *call, int32_t *next)
{
    char c = s.ptr[0];
    if ((c == '{' || c == '}') && s.len > 1 && s.ptr[1] == c) {
        proa_buf_char(out, c);
        return 2;
    }
    if (c != '{' && c != '}') {
        proa_buf_char(out, c);
        return 1;
    }
    const char *close = c == '{' ? memchr(s.ptr, '}', s.len) : NULL;
    if (!close) {
        proa_j_fail(run, PROA_INVALID, "Single '%c' encountered in format string", c);
        return s.len;
    }
    format_field(run, out, (proa_str){s.ptr + 1, (size_t)(close - s.ptr) - 1}, call, next);
    return (size_t)(close - s.ptr) + 1;
}

proa_jval proa_j_format(proa_jrun *run, proa_str format, const proa_jcall *call)
{
    proa_buf out;
    int32_t next = 0;
    proa_buf_init(&out, (size_t)PROA_TEMPLATE_MEMORY_MAX);
    for (size_t at = 0; at < format.len && proa_j_charge(run, 1);)
        at += format_piece(run, &out, (proa_str){format.ptr + at, format.len - at}, call, &next);
    proa_jval text = proa_j_take(run, &out, 0);
    proa_buf_release(&out);
    return text;
}
