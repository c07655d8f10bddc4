/* SPDX-License-Identifier: Apache-2.0
 * text.c - what Python's strings can do, by characters of UTF-8. */
#include "text/jinja/run.h"

#include "text/unicode.h"
#include <string.h>
#include <utf8proc.h>

bool proa_j_is_space(int32_t c)
{
    return (c >= 0x1C && c <= 0x1F) || proa_char_is_space(c);
}

/* ---- case: utf8proc maps one character to one; these become several in capitals ---- */

typedef struct special {
    int32_t from, to[3];
} special;

static const special specials[] = {
    {0x00DF, {'S', 'S'}},
    {0x0149, {0x02BC, 'N'}},
    {0x01F0, {'J', 0x030C}},
    {0x0390, {0x0399, 0x0308, 0x0301}},
    {0x03B0, {0x03A5, 0x0308, 0x0301}},
    {0x0587, {0x0535, 0x0552}},
    {0x1E96, {'H', 0x0331}},
    {0x1E97, {'T', 0x0308}},
    {0x1E98, {'W', 0x030A}},
    {0x1E99, {'Y', 0x030A}},
    {0x1E9A, {'A', 0x02BE}},
    {0xFB00, {'F', 'F'}},
    {0xFB01, {'F', 'I'}},
    {0xFB02, {'F', 'L'}},
    {0xFB03, {'F', 'F', 'I'}},
    {0xFB04, {'F', 'F', 'L'}},
    {0xFB05, {'S', 'T'}},
    {0xFB06, {'S', 'T'}},
    {0xFB13, {0x0544, 0x0546}},
    {0xFB14, {0x0544, 0x0535}},
    {0xFB15, {0x0544, 0x053B}},
    {0xFB16, {0x054E, 0x0546}},
    {0xFB17, {0x0544, 0x053D}},
};

static const special *find_special(int32_t c)
{
    for (size_t i = 0; c >= 0xDF && i < PROA_COUNT(specials); i++)
        if (specials[i].from == c) return &specials[i];
    return NULL;
}

static void put_upper(proa_buf *out, int32_t c)
{
    const special *s = find_special(c);
    if (!s) proa_buf_code_point(out, utf8proc_toupper(c));
    for (int i = 0; s && i < 3 && s->to[i]; i++) proa_buf_code_point(out, s->to[i]);
}

static void put_title(proa_buf *out, int32_t c)
{
    const special *s = find_special(c);
    if (!s) proa_buf_code_point(out, utf8proc_totitle(c));
    for (int i = 0; s && i < 3 && s->to[i]; i++)
        proa_buf_code_point(out, i ? utf8proc_tolower(s->to[i]) : s->to[i]);
}

static bool is_cased(int32_t c)
{
    return utf8proc_islower(c) || utf8proc_isupper(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

/* A sigma is the final one after a cased letter and before none. */
static bool final_sigma(proa_str s, size_t at, size_t after)
{
    int32_t c = 0;
    if (at == 0) return false;
    size_t before = proa_char_last((proa_str){s.ptr, at});
    proa_char_next((proa_str){s.ptr + before, at - before}, &c);
    if (!is_cased(c)) return false;
    if (after >= s.len) return true;
    proa_char_next((proa_str){s.ptr + after, s.len - after}, &c);
    return !is_cased(c);
}

static void put_lower(proa_buf *out, proa_str s, size_t at, size_t after, int32_t c)
{
    if (c == 0x130) proa_buf_str(out, proa_str_c("i\xCC\x87"));
    else if (c == 0x3A3) proa_buf_code_point(out, final_sigma(s, at, after) ? 0x3C2 : 0x3C3);
    else proa_buf_code_point(out, utf8proc_tolower(c));
}

static void put_folded(proa_buf *out, int32_t c)
{
    const special *s = find_special(c);
    if (!s) proa_buf_code_point(out, utf8proc_tolower(c == 0x3C2 ? 0x3A3 : c));
    for (int i = 0; s && i < 3 && s->to[i]; i++) proa_buf_code_point(out, utf8proc_tolower(s->to[i]));
}

typedef enum casing { LOWER, UPPER, CAPITAL, SWAP, TITLE, FOLD } casing;

static proa_jval change_case(proa_jrun *run, proa_str s, casing how)
{
    proa_buf *out = &run->scratch;
    bool inside = false; /* of a word */
    int32_t c;
    proa_buf_clear(out);
    if (!proa_j_charge_chars(run, s.len)) return proa_j_none();
    for (size_t at = 0, after; at < s.len; at = after) {
        after = at + (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        bool first = how == CAPITAL ? at == 0 : how == TITLE && !inside;
        if (how == FOLD) put_folded(out, c);
        else if (first) put_title(out, c);
        else if (how == UPPER || (how == SWAP && utf8proc_islower(c))) put_upper(out, c);
        else if (how == SWAP && !utf8proc_isupper(c)) proa_buf_code_point(out, c);
        else put_lower(out, s, at, after, c);
        inside = is_cased(c);
    }
    return proa_j_take(run, out, 0);
}

proa_jval proa_j_lower(proa_jrun *run, proa_str s)
{
    return change_case(run, s, LOWER);
}

proa_jval proa_j_upper(proa_jrun *run, proa_str s)
{
    return change_case(run, s, UPPER);
}

proa_jval proa_j_capital(proa_jrun *run, proa_str s)
{
    return change_case(run, s, CAPITAL);
}

proa_jval proa_j_swap(proa_jrun *run, proa_str s)
{
    return change_case(run, s, SWAP);
}

proa_jval proa_j_folded(proa_jrun *run, proa_str s)
{
    return change_case(run, s, FOLD);
}

proa_jval proa_j_titled(proa_jrun *run, proa_str s)
{
    return change_case(run, s, TITLE);
}

/* ---- parts ---- */

size_t proa_j_offset(proa_str s, int64_t chars)
{
    size_t at = 0;
    int32_t c;
    for (; chars > 0 && at < s.len; chars--)
        at += (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
    return at;
}

/* Is the character s (a few bytes) one to strip? */
static bool strips_char(proa_jrun *run, proa_str s, int32_t c, const proa_str *chars)
{
    if (!chars) return proa_j_is_space(c);
    if (!proa_j_charge(run, 1) || !proa_j_charge_text(run, chars->len)) return false;
    return memmem(chars->ptr, chars->len, s.ptr, s.len) != NULL;
}

proa_str proa_j_strip(proa_jrun *run, proa_str s, int sides, const proa_str *chars)
{
    int32_t c;
    while ((sides & PROA_J_LEFT) && s.len > 0) {
        size_t n = (size_t)proa_char_next(s, &c);
        if (!strips_char(run, (proa_str){s.ptr, n}, c, chars)) break;
        s = (proa_str){s.ptr + n, s.len - n};
    }
    while ((sides & PROA_J_RIGHT) && s.len > 0) {
        size_t last = proa_char_last(s);
        proa_str end = {s.ptr + last, s.len - last};
        proa_char_next(end, &c);
        if (!strips_char(run, end, c, chars)) break;
        s.len = last;
    }
    return s;
}

proa_jval proa_j_replace(proa_jrun *run, proa_str s, proa_str old, proa_str replacement, int64_t count)
{
    proa_buf *out = &run->scratch;
    size_t at = 0;
    int32_t c;
    if (count < 0) count = INT64_MAX;
    proa_buf_clear(out);
    while (count > 0 && proa_j_charge(run, 1)) {
        const char *found = old.len == 0 ? s.ptr + at
                            : at < s.len ? memmem(s.ptr + at, s.len - at, old.ptr, old.len)
                                         : NULL;
        if (!found) break;
        proa_buf_append(out, s.ptr + at, (size_t)(found - s.ptr) - at);
        proa_buf_str(out, replacement);
        at = (size_t)(found - s.ptr) + old.len;
        count--;
        if (old.len > 0) continue;
        if (at >= s.len) break;
        size_t n = (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c); /* between each two characters */
        proa_buf_append(out, s.ptr + at, n);
        at += n;
    }
    if (at < s.len) proa_buf_append(out, s.ptr + at, s.len - at);
    return proa_j_take(run, out, 0);
}

proa_jval proa_j_escape(proa_jrun *run, proa_jval v)
{
    static const char marks[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (v.kind == PROA_J_STRING && v.flag) return v;
    proa_str s = proa_j_text(proa_j_str(run, v));
    proa_buf_clear(&run->scratch);
    proa_j_charge_chars(run, s.len);
    for (size_t i = 0; i < s.len && !run->failed; i++) {
        const char *mark = s.ptr[i] ? strchr(marks, s.ptr[i]) : NULL;
        if (mark) proa_buf_str(&run->scratch, proa_str_c(names[mark - marks]));
        else proa_buf_char(&run->scratch, s.ptr[i]);
    }
    proa_jval out = proa_j_take(run, &run->scratch, 0);
    out.flag = 1;
    return out;
}

/* What Python's splitlines takes for the end of a line. */
static bool ends_line(int32_t c)
{
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

proa_jval proa_j_lines(proa_jrun *run, proa_str s, bool keep)
{
    proa_jval list = proa_j_list(run, PROA_J_LIST, 4);
    size_t from = 0, at = 0;
    int32_t c;
    proa_j_charge_chars(run, s.len);
    while (at < s.len && !run->failed) {
        size_t end = at;
        at += (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        if (!ends_line(c)) continue;
        if (c == '\r' && at < s.len && s.ptr[at] == '\n') at++;
        proa_j_push(run, list, proa_j_view((proa_str){s.ptr + from, (keep ? at : end) - from}));
        from = at;
        proa_j_charge(run, 1);
    }
    if (from < s.len) proa_j_push(run, list, proa_j_view((proa_str){s.ptr + from, s.len - from}));
    return list;
}
