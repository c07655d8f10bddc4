/* SPDX-License-Identifier: Apache-2.0
 * methods_str.c - the methods of strings that templates may call: case, splitting, searching, affixes, kinds of
 * characters, padding. Positions and widths count characters, as in Python. */
#include "text/jinja/method.h"

#include "base/checked.h"
#include "base/limits.h"
#include "text/unicode.h"
#include <string.h>
#include <utf8proc.h>

/* ---- case ---- */

METHOD(str_lower)
{
    UNUSED_ARGS;
    return proa_j_lower(run, proa_j_text(self));
}

METHOD(str_casefold)
{
    UNUSED_ARGS;
    return proa_j_folded(run, proa_j_text(self));
}

METHOD(str_upper)
{
    UNUSED_ARGS;
    return proa_j_upper(run, proa_j_text(self));
}

METHOD(str_capitalize)
{
    UNUSED_ARGS;
    return proa_j_capital(run, proa_j_text(self));
}

METHOD(str_title)
{
    UNUSED_ARGS;
    return proa_j_titled(run, proa_j_text(self));
}

METHOD(str_swapcase)
{
    UNUSED_ARGS;
    return proa_j_swap(run, proa_j_text(self));
}

/* ---- stripping and splitting ---- */

static proa_jval strip_text(proa_jrun *run, proa_jval self, const proa_jval *args, int sides)
{
    proa_str chars;
    if (!proa_j_given(args[0]) || args[0].kind == PROA_J_NONE)
        return proa_j_view(proa_j_strip(run, proa_j_text(self), sides, NULL));
    chars = proa_j_str_arg(run, args[0], "strip arg");
    return proa_j_view(proa_j_strip(run, proa_j_text(self), sides, &chars));
}

METHOD(str_strip)
{
    PROA_UNUSED(call);
    return strip_text(run, self, args, PROA_J_LEFT | PROA_J_RIGHT);
}

METHOD(str_lstrip)
{
    PROA_UNUSED(call);
    return strip_text(run, self, args, PROA_J_LEFT);
}

METHOD(str_rstrip)
{
    PROA_UNUSED(call);
    return strip_text(run, self, args, PROA_J_RIGHT);
}

static const char *find_last(proa_jrun *run, proa_str s, proa_str what)
{
    for (size_t at = s.len - what.len + 1; s.len >= what.len && at-- > 0;) {
        if (what.len > 0 && s.ptr[at] != what.ptr[0]) continue;
        if (!proa_j_charge_text(run, what.len)) return NULL;
        if (memcmp(s.ptr + at, what.ptr, what.len) == 0) return s.ptr + at;
    }
    return NULL;
}

static size_t skip_spaces(proa_str s, size_t at)
{
    return s.len - proa_j_strip(NULL, (proa_str){s.ptr + at, s.len - at}, PROA_J_LEFT, NULL).len;
}

/* The end of the word at `at`. */
static size_t word_end(proa_str s, size_t at)
{
    int32_t c;
    while (at < s.len) {
        size_t n = (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        if (proa_j_is_space(c)) break;
        at += n;
    }
    return at;
}

static void split_words(proa_jrun *run, proa_jval list, proa_str s, int64_t most)
{
    size_t at = skip_spaces(s, 0);
    while (at < s.len && proa_j_charge(run, 1)) {
        size_t end = most-- == 0 ? s.len : word_end(s, at);
        proa_j_push(run, list, proa_j_view((proa_str){s.ptr + at, end - at}));
        at = end < s.len ? skip_spaces(s, end) : s.len;
    }
}

static void split_text(proa_jrun *run, proa_jval list, proa_str s, proa_str by, int64_t most)
{
    for (; most != 0 && proa_j_charge(run, 1); most--) {
        const char *found = s.len ? memmem(s.ptr, s.len, by.ptr, by.len) : NULL;
        if (!found) break;
        size_t n = (size_t)(found - s.ptr);
        proa_j_push(run, list, proa_j_view((proa_str){s.ptr, n}));
        s = (proa_str){found + by.len, s.len - n - by.len};
    }
    proa_j_push(run, list, proa_j_view(s));
}

static void turn_round(proa_jseq *seq)
{
    for (int64_t i = 0, k = seq->len - 1; i < k; i++, k--) {
        proa_jval v = seq->items[i];
        seq->items[i] = seq->items[k];
        seq->items[k] = v;
    }
}

/* From the end: the parts come in reverse and are turned round. */
static void rsplit_text(proa_jrun *run, proa_jval list, proa_str s, proa_str by, int64_t most)
{
    for (; most != 0 && proa_j_charge(run, 1); most--) {
        const char *found = find_last(run, s, by);
        if (!found) break;
        size_t n = (size_t)(found - s.ptr);
        proa_j_push(run, list, proa_j_view((proa_str){found + by.len, s.len - n - by.len}));
        s.len = n;
    }
    proa_j_push(run, list, proa_j_view(s));
    turn_round(list.seq);
}

static size_t word_begin(proa_str s)
{
    int32_t c;
    while (s.len > 0) {
        size_t last = proa_char_last(s);
        proa_char_next((proa_str){s.ptr + last, s.len - last}, &c);
        if (proa_j_is_space(c)) break;
        s.len = last;
    }
    return s.len;
}

static void rsplit_words(proa_jrun *run, proa_jval list, proa_str s, int64_t most)
{
    s = proa_j_strip(run, s, PROA_J_RIGHT, NULL);
    while (s.len > 0 && proa_j_charge(run, 1)) {
        size_t from = most-- == 0 ? 0 : word_begin(s);
        proa_j_push(run, list, proa_j_view((proa_str){s.ptr + from, s.len - from}));
        s = proa_j_strip(run, (proa_str){s.ptr, from}, PROA_J_RIGHT, NULL);
    }
    turn_round(list.seq);
}

static proa_jval split_value(proa_jrun *run, proa_jval self, const proa_jval *args, bool from_right)
{
    proa_jval list = proa_j_list(run, PROA_J_LIST, 4);
    int64_t most = proa_j_int_arg(run, args[1], -1);
    if (!proa_j_given(args[0]) || args[0].kind == PROA_J_NONE) {
        if (from_right && most >= 0) rsplit_words(run, list, proa_j_text(self), most);
        else split_words(run, list, proa_j_text(self), most);
        return list;
    }
    proa_str by = proa_j_str_arg(run, args[0], "separator");
    if (by.len == 0) proa_j_fail(run, PROA_INVALID, "empty separator");
    if (run->failed) return list;
    if (from_right && most >= 0) rsplit_text(run, list, proa_j_text(self), by, most);
    else split_text(run, list, proa_j_text(self), by, most);
    return list;
}

METHOD(str_split)
{
    PROA_UNUSED(call);
    return split_value(run, self, args, false);
}

METHOD(str_rsplit)
{
    PROA_UNUSED(call);
    return split_value(run, self, args, true);
}

METHOD(str_splitlines)
{
    PROA_UNUSED(call);
    return proa_j_lines(run, proa_j_text(self), proa_j_truth(args[0]));
}

/* ---- searching, replacing, affixes ---- */

/* The part of self between the characters of args[at] and args[at + 1], which may be negative; *from is its first. */
static proa_str cut_part(proa_jrun *run, proa_jval self, const proa_jval *args, int at, int64_t *from)
{
    proa_str s = proa_j_text(self);
    *from = 0;
    if (args[at].kind <= PROA_J_NONE && args[at + 1].kind <= PROA_J_NONE) return s;
    proa_jval bounds[3] = {args[at], args[at + 1], proa_j_none()};
    for (int i = 0; i < 2; i++)
        if (!proa_j_given(bounds[i])) bounds[i] = proa_j_none();
    if (proa_j_is_whole(bounds[0])) *from = proa_j_whole(bounds[0]);
    int64_t n = proa_utf8_count(s);
    if (*from < 0) *from = *from + n < 0 ? 0 : *from + n;
    if (*from > n) return (proa_str){NULL, 0}; /* nothing is found there, not even the empty text */
    return proa_j_text(proa_j_slice(run, self, bounds));
}

static bool begins_or_ends(proa_jrun *run, proa_str s, proa_jval what, bool ends)
{
    proa_str affix = proa_j_str_arg(run, what, "the affix");
    if (run->failed) return false;
    return ends ? proa_str_ends(s, affix) : proa_str_starts(s, affix);
}

static proa_jval test_affix(proa_jrun *run, proa_jval self, const proa_jval *args, bool ends)
{
    int64_t from;
    bool found = false;
    proa_str s = cut_part(run, self, args, 1, &from);
    if (!s.ptr || run->failed) return proa_j_bool(false);
    if (args[0].kind != PROA_J_TUPLE) return proa_j_bool(begins_or_ends(run, s, args[0], ends));
    for (int64_t i = 0; i < args[0].seq->len && !found && proa_j_charge(run, 1); i++)
        found = begins_or_ends(run, s, args[0].seq->items[i], ends);
    return proa_j_bool(found);
}

METHOD(str_startswith)
{
    PROA_UNUSED(call);
    return test_affix(run, self, args, false);
}

METHOD(str_endswith)
{
    PROA_UNUSED(call);
    return test_affix(run, self, args, true);
}

static int64_t find_text(proa_jrun *run, proa_jval self, const proa_jval *args, bool last)
{
    int64_t from;
    proa_str what = proa_j_str_arg(run, args[0], "the text to find"), s = cut_part(run, self, args, 1, &from);
    if (run->failed || !s.ptr) return -1;
    const char *found = last            ? find_last(run, s, what)
                        : what.len == 0 ? s.ptr
                                        : memmem(s.ptr, s.len, what.ptr, what.len);
    return found ? from + proa_utf8_count((proa_str){s.ptr, (size_t)(found - s.ptr)}) : -1;
}

static proa_jval index_of(proa_jrun *run, int64_t found)
{
    if (found < 0) proa_j_fail(run, PROA_INVALID, "substring not found");
    return proa_j_int(found);
}

METHOD(str_find)
{
    PROA_UNUSED(call);
    return proa_j_int(find_text(run, self, args, false));
}

METHOD(str_rfind)
{
    PROA_UNUSED(call);
    return proa_j_int(find_text(run, self, args, true));
}

METHOD(str_index)
{
    PROA_UNUSED(call);
    return index_of(run, find_text(run, self, args, false));
}

METHOD(str_rindex)
{
    PROA_UNUSED(call);
    return index_of(run, find_text(run, self, args, true));
}

METHOD(str_count)
{
    PROA_UNUSED(call);
    int64_t from, n = 0;
    proa_str what = proa_j_str_arg(run, args[0], "the text to count"), s = cut_part(run, self, args, 1, &from);
    if (run->failed || !s.ptr) return proa_j_int(0);
    if (what.len == 0) return proa_j_int(proa_utf8_count(s) + 1);
    for (const char *found;
         (found = s.len ? memmem(s.ptr, s.len, what.ptr, what.len) : NULL) && proa_j_charge(run, 1); n++)
        s = (proa_str){found + what.len, s.len - (size_t)(found - s.ptr) - what.len};
    return proa_j_int(n);
}

METHOD(str_replace)
{
    PROA_UNUSED(call);
    proa_str old = proa_j_str_arg(run, args[0], "replace() argument 1");
    proa_str replacement = proa_j_str_arg(run, args[1], "replace() argument 2");
    int64_t count = proa_j_int_arg(run, args[2], -1);
    return run->failed ? proa_j_none() : proa_j_replace(run, proa_j_text(self), old, replacement, count);
}

METHOD(str_join)
{
    PROA_UNUSED(call);
    proa_jval item;
    proa_jiter it;
    proa_buf_clear(&run->scratch);
    if (!proa_j_iter(run, &it, args[0])) return proa_j_none();
    for (int64_t i = 0; proa_j_next(run, &it, &item); i++) {
        if (i > 0) proa_buf_str(&run->scratch, proa_j_text(self));
        if (item.kind != PROA_J_STRING && item.kind != PROA_J_UNDEFINED)
            proa_j_fail(run, PROA_INVALID, "sequence item %lld: expected str instance, %s found",
                        (long long)i, proa_j_type_name(item));
        proa_buf_str(&run->scratch, proa_j_str_arg(run, item, "an item"));
    }
    return proa_j_take(run, &run->scratch, 0);
}

METHOD(str_format)
{
    PROA_UNUSED(args);
    return proa_j_format(run, proa_j_text(self), call);
}

static proa_jval cut_affix(proa_jrun *run, proa_jval self, const proa_jval *args, bool ends)
{
    proa_str s = proa_j_text(self), affix = proa_j_str_arg(run, args[0], "the affix");
    if (run->failed || !(ends ? proa_str_ends(s, affix) : proa_str_starts(s, affix))) return self;
    return proa_j_view((proa_str){s.ptr + (ends ? 0 : affix.len), s.len - affix.len});
}

METHOD(str_removeprefix)
{
    PROA_UNUSED(call);
    return cut_affix(run, self, args, false);
}

METHOD(str_removesuffix)
{
    PROA_UNUSED(call);
    return cut_affix(run, self, args, true);
}

static proa_jval partition_text(proa_jrun *run, proa_jval self, const proa_jval *args, bool last)
{
    proa_jval v = proa_j_list(run, PROA_J_TUPLE, 3), empty = proa_j_view((proa_str){"", 0});
    proa_str s = proa_j_text(self), by = proa_j_str_arg(run, args[0], "the separator");
    if (by.len == 0) proa_j_fail(run, PROA_INVALID, "empty separator");
    if (run->failed) return v;
    const char *found = last ? find_last(run, s, by) : s.len ? memmem(s.ptr, s.len, by.ptr, by.len) : NULL;
    size_t n = found ? (size_t)(found - s.ptr) : s.len;
    if (!found && last) proa_j_push(run, v, empty);
    if (!found && last) proa_j_push(run, v, empty);
    proa_j_push(run, v, proa_j_view((proa_str){s.ptr, n}));
    if (found) proa_j_push(run, v, args[0]);
    if (found) proa_j_push(run, v, proa_j_view((proa_str){found + by.len, s.len - n - by.len}));
    while (v.seq->len < 3 && !run->failed) proa_j_push(run, v, empty);
    return v;
}

METHOD(str_partition)
{
    PROA_UNUSED(call);
    return partition_text(run, self, args, false);
}

METHOD(str_rpartition)
{
    PROA_UNUSED(call);
    return partition_text(run, self, args, true);
}

/* ---- kinds of characters ---- */

/* Each character passes, and there is one. */
static proa_jval all_chars(proa_jval self, bool (*pass)(int32_t c))
{
    proa_str s = proa_j_text(self);
    int32_t c;
    for (size_t at = 0; at < s.len;) {
        at += (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        if (!pass(c)) return proa_j_bool(false);
    }
    return proa_j_bool(s.len > 0);
}

static bool is_decimal(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

static bool is_alpha(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static bool is_alnum(int32_t c)
{
    return is_alpha(c) || proa_char_is_numeric(c);
}

static bool is_ascii(int32_t c)
{
    return c < 0x80;
}

METHOD(str_isdigit)
{
    UNUSED_ARGS;
    return all_chars(self, is_decimal);
}

METHOD(str_isnumeric)
{
    UNUSED_ARGS;
    return all_chars(self, proa_char_is_numeric);
}

METHOD(str_isalpha)
{
    UNUSED_ARGS;
    return all_chars(self, is_alpha);
}

METHOD(str_isalnum)
{
    UNUSED_ARGS;
    return all_chars(self, is_alnum);
}

METHOD(str_isspace)
{
    UNUSED_ARGS;
    return all_chars(self, proa_j_is_space);
}

METHOD(str_isascii)
{
    UNUSED_ARGS;
    return self.len == 0 ? proa_j_bool(true) : all_chars(self, is_ascii);
}

/* There is a letter with case, and none has the other one. */
static proa_jval has_case(proa_jval self, bool upper)
{
    proa_str s = proa_j_text(self);
    bool found = false;
    int32_t c;
    for (size_t at = 0; at < s.len;) {
        at += (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        if (upper ? utf8proc_islower(c) : utf8proc_isupper(c)) return proa_j_bool(false);
        found = found || (upper ? utf8proc_isupper(c) : utf8proc_islower(c));
    }
    return proa_j_bool(found);
}

METHOD(str_isupper)
{
    UNUSED_ARGS;
    return has_case(self, true);
}

METHOD(str_islower)
{
    UNUSED_ARGS;
    return has_case(self, false);
}

/* ---- padding ---- */

/* align: -1 text at the left, 0 in the middle, 1 at the right. */
static proa_jval justify_text(proa_jrun *run, proa_jval self, const proa_jval *args, int align)
{
    proa_str s = proa_j_text(self), fill = {" ", 1};
    int64_t width = proa_max64(proa_j_int_arg(run, args[0], 0), 0), more = width - proa_utf8_count(s), left;
    if (proa_j_given(args[1])) fill = proa_j_str_arg(run, args[1], "the fill character");
    if (proa_utf8_count(fill) != 1)
        proa_j_fail(run, PROA_INVALID, "The fill character must be exactly one character long");
    if (more <= 0 || run->failed) return self;
    if (more > PROA_TEMPLATE_MEMORY_MAX / 4) more = PROA_TEMPLATE_MEMORY_MAX / 4;
    if (!proa_j_charge(run, more / 16)) return self;
    left = align > 0 ? more : align < 0 ? 0 : more / 2 + (more & width & 1); /* as CPython rounds it */
    proa_buf_clear(&run->scratch);
    for (int64_t i = 0; i < left; i++) proa_buf_str(&run->scratch, fill);
    proa_buf_str(&run->scratch, s);
    for (int64_t i = left; i < more; i++) proa_buf_str(&run->scratch, fill);
    return proa_j_take(run, &run->scratch, 0);
}

METHOD(str_center)
{
    PROA_UNUSED(call);
    return justify_text(run, self, args, 0);
}

METHOD(str_ljust)
{
    PROA_UNUSED(call);
    return justify_text(run, self, args, -1);
}

METHOD(str_rjust)
{
    PROA_UNUSED(call);
    return justify_text(run, self, args, 1);
}

METHOD(str_zfill)
{
    PROA_UNUSED(call);
    proa_str s = proa_j_text(self);
    size_t sign = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+');
    int64_t more = proa_max64(proa_j_int_arg(run, args[0], 0), 0) - proa_utf8_count(s);
    if (more <= 0 || !proa_j_charge(run, more / 16)) return self;
    proa_buf_clear(&run->scratch);
    proa_buf_append(&run->scratch, s.ptr, sign);
    for (int64_t i = 0; i < more && !run->scratch.full; i++) proa_buf_char(&run->scratch, '0');
    proa_buf_append(&run->scratch, s.ptr + sign, s.len - sign);
    return proa_j_take(run, &run->scratch, 0);
}

const proa_jfunction proa_j_str_methods[] = {
    {"strip", str_strip, "chars", 0},
    {"split", str_split, "sep maxsplit", 0},
    {"startswith", str_startswith, "prefix start end", 1},
    {"endswith", str_endswith, "suffix start end", 1},
    {"replace", str_replace, "old new count", 2},
    {"lstrip", str_lstrip, "chars", 0},
    {"rstrip", str_rstrip, "chars", 0},
    {"upper", str_upper, "", 0},
    {"lower", str_lower, "", 0},
    {"title", str_title, "", 0},
    {"capitalize", str_capitalize, "", 0},
    {"casefold", str_casefold, "", 0},
    {"swapcase", str_swapcase, "", 0},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"join", str_join, "iterable", 1},
    {"format", str_format, NULL, 0},
    {"find", str_find, "sub start end", 1},
    {"rfind", str_rfind, "sub start end", 1},
    {"index", str_index, "sub start end", 1},
    {"rindex", str_rindex, "sub start end", 1},
    {"count", str_count, "sub start end", 1},
    {"removeprefix", str_removeprefix, "prefix", 1},
    {"removesuffix", str_removesuffix, "suffix", 1},
    {"partition", str_partition, "sep", 1},
    {"rpartition", str_rpartition, "sep", 1},
    {"isdigit", str_isdigit, "", 0},
    {"isdecimal", str_isdigit, "", 0},
    {"isnumeric", str_isnumeric, "", 0},
    {"isalpha", str_isalpha, "", 0},
    {"isalnum", str_isalnum, "", 0},
    {"isspace", str_isspace, "", 0},
    {"isascii", str_isascii, "", 0},
    {"isupper", str_isupper, "", 0},
    {"islower", str_islower, "", 0},
    {"center", str_center, "width fillchar", 1},
    {"ljust", str_ljust, "width fillchar", 1},
    {"rjust", str_rjust, "width fillchar", 1},
    {"zfill", str_zfill, "width", 1},
    {.name = NULL},
};
