/* SPDX-License-Identifier: Apache-2.0
 * unicode.c - character classes by utf8proc, UTF-8 repair, and the byte alphabet of GPT-2. */
#include "text/unicode.h"

#include <utf8proc.h>

bool proa_char_is_space(int32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool proa_char_is_numeric(int32_t c)
{
    if (c < 0x80) return c >= '0' && c <= '9';
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool proa_char_is_punct(int32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool proa_char_is_mark(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool proa_char_is_nonspacing(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_MN;
}

bool proa_char_is_other(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

/* Alphabetic beyond the letters: letter numbers, marks, and these enclosed letters (Other_Alphabetic of So). */
static bool enclosed_letter(int32_t c)
{
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189);
}

bool proa_char_is_word(int32_t c)
{
    if (c < 0x80)
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    utf8proc_category_t k = utf8proc_category(c);
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) return true; /* L*, M*, Nd, Nl */
    return k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || enclosed_letter(c);
}

bool proa_char_is_han(int32_t c)
{
    static const int32_t range[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                       {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                       {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    if (c < 0x3400) return false;
    for (size_t i = 0; i < PROA_COUNT(range); i++)
        if (c >= range[i][0] && c <= range[i][1]) return true;
    return false;
}

int proa_char_next(proa_str s, int32_t *c)
{
    int n = proa_utf8_decode(s.ptr, s.len, c);
    PROA_DASSERT(n > 0);
    return n;
}

size_t proa_char_last(proa_str s)
{
    size_t i = s.len - 1;
    while (i > 0 && ((unsigned char)s.ptr[i] & 0xC0) == 0x80) i--;
    return i;
}

static const uint32_t script_ranges[] = {
/* first code point << 8 | script */
#include "text/scripts.inc"
};

int proa_char_script(int32_t c)
{
    size_t low = 0, high = PROA_COUNT(script_ranges);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (script_ranges[middle] >> 8 <= (uint32_t)c) low = middle;
        else high = middle;
    }
    return (int)(script_ranges[low] & 0xFF);
}

bool proa_buf_code_point(proa_buf *buf, int32_t c)
{
    char bytes[4];
    int n = proa_utf8_encode(c, bytes);
    return proa_buf_append(buf, bytes, (size_t)n);
}

/* The range of the second byte after each lead byte (Unicode 3.9, table 3-7). */
static void second_range(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

size_t proa_utf8_subpart(const char *bytes, size_t len, bool *cut)
{
    const unsigned char *s = (const unsigned char *)bytes;
    *cut = false;
    if (s[0] < 0xC2 || s[0] > 0xF4) return 1;
    size_t want = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    unsigned char low, high;
    second_range(s[0], &low, &high);
    for (size_t i = 1; i < want; i++) {
        if (i == len) return *cut = true, len;
        if (s[i] < low || s[i] > high) return i;
        low = 0x80, high = 0xBF;
    }
    return want; /* not reached for ill-formed bytes */
}

bool proa_utf8_repair(proa_buf *out, proa_str s)
{
    size_t i = 0, good = 0;
    while (i < s.len) {
        int32_t c;
        bool cut;
        int n = (unsigned char)s.ptr[i] < 0x80 ? 1 : proa_utf8_decode(s.ptr + i, s.len - i, &c);
        if (n) {
            i += (size_t)n;
            continue;
        }
        proa_buf_append(out, s.ptr + good, i - good);
        proa_buf_append(out, PROA_REPLACEMENT, PROA_REPLACEMENT_LEN);
        i += proa_utf8_subpart(s.ptr + i, s.len - i, &cut);
        good = i;
    }
    return proa_buf_append(out, s.ptr + good, i - good);
}

int32_t proa_byte_to_char(unsigned char b)
{
    if ((b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD)) return b;
    if (b <= 0x20) return 0x100 + b;        /* 33 of them */
    if (b <= 0xA0) return 0x100 + b - 0x5E; /* 0x7F..0xA0 follow as 0x121..0x142 */
    return 0x143;                           /* 0xAD */
}

int proa_char_to_byte(int32_t c)
{
    if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD)) return c;
    if (c >= 0x100 && c <= 0x120) return c - 0x100;
    if (c >= 0x121 && c <= 0x142) return c - 0x100 + 0x5E;
    return c == 0x143 ? 0xAD : -1;
}
