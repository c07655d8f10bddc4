/* SPDX-License-Identifier: Apache-2.0
 * charsmap.c - applies SentencePiece's precompiled normalization rules. */
#include "text/charsmap.h"

#include "text/unicode.h"
#include <string.h>
#include <utf8proc.h>

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

proa_status proa_charsmap_new(proa_charsmap **out, proa_arena *arena, const void *blob, size_t len, proa_err *err)
{
    const unsigned char *bytes = blob;
    if (len < 4)
        return PROA_FAIL(err, CORRUPT, "precompiled_charsmap has %zu bytes, at least 4 are needed", len);
    uint32_t trie = read_u32(bytes);
    if (trie > len - 4 || trie % 4 != 0)
        return PROA_FAIL(err, CORRUPT, "precompiled_charsmap says its trie has %u bytes, %zu are there", trie,
                         len - 4);
    proa_str texts = {(const char *)bytes + 4 + trie, len - 4 - trie};
    if (!proa_utf8_valid(texts))
        return PROA_FAIL(err, CORRUPT, "precompiled_charsmap's replacements are not UTF-8");
    proa_charsmap *map = PROA_ARENA_NEW(arena, proa_charsmap, 1);
    map->unit_count = trie / 4;
    map->units = PROA_ARENA_NEW(arena, uint32_t, map->unit_count);
    for (int64_t i = 0; i < map->unit_count; i++) map->units[i] = read_u32(bytes + 4 + 4 * i);
    map->texts = proa_arena_strdup(arena, texts);
    map->text_bytes = (int64_t)texts.len;
    *out = map;
    return PROA_OK;
}

proa_status proa_charsmap_new_base64(proa_charsmap **out, proa_arena *arena, proa_str s, proa_err *err)
{
    while (s.len && s.ptr[s.len - 1] == '=') s.len--;
    proa_buf raw;
    proa_buf_init(&raw, s.len + 1);
    uint32_t bits = 0;
    int have = 0;
    for (size_t i = 0; i < s.len; i++) {
        int v = proa_base64_digit(s.ptr[i]);
        if (v < 0) {
            proa_buf_release(&raw);
            return PROA_FAIL(err, CORRUPT, "precompiled_charsmap is not base64 at character %zu", i);
        }
        bits = bits << 6 | (uint32_t)v;
        have += 6;
        if (have >= 8) {
            have -= 8;
            proa_buf_char(&raw, (char)(bits >> have & 0xFF));
        }
    }
    proa_status status = proa_charsmap_new(out, arena, raw.ptr, raw.len, err);
    proa_buf_release(&raw);
    return status;
}

/* A unit: bit 8 says that a value follows, bits 0-7 and 31 are the label, bits 10-30 the offset of the
 * children, times 256 when bit 9 is set. */
static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static bool replacement_at(const proa_charsmap *map, uint32_t value, proa_str *out)
{
    if ((int64_t)value >= map->text_bytes) {
        *out = (proa_str){"", 0};
        return (int64_t)value == map->text_bytes;
    }
    *out = (proa_str){map->texts + value, strlen(map->texts + value)};
    return ((unsigned char)*out->ptr & 0xC0) != 0x80; /* not inside a character */
}

size_t proa_charsmap_find(const proa_charsmap *map, proa_str s, bool longest, proa_str *replacement)
{
    if (map->unit_count == 0) return 0;
    size_t best = 0;
    uint32_t at = unit_offset(map->units[0]);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        at ^= c;
        if (c == 0 || at >= map->unit_count) break;
        uint32_t unit = map->units[at];
        if ((unit & (1u << 31 | 0xFF)) != c) break;
        at ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        proa_str found;
        if (at >= map->unit_count || !replacement_at(map, map->units[at] & 0x7FFFFFFF, &found)) break;
        *replacement = found;
        best = i + 1;
        if (!longest) break;
    }
    return best;
}

/* Length of the extended grapheme cluster that s begins with. */
static size_t grapheme_length(proa_str s)
{
    int32_t a, b;
    utf8proc_int32_t state = 0;
    size_t n = (size_t)proa_char_next(s, &a);
    while (n < s.len) {
        proa_str rest = {s.ptr + n, s.len - n};
        int more = proa_char_next(rest, &b);
        if (utf8proc_grapheme_break_stateful(a, b, &state)) break;
        n += (size_t)more;
        a = b;
    }
    return n;
}

/* Replaces the first `len` bytes of s by the shortest rule for a prefix of them. */
static bool apply_one(const proa_charsmap *map, proa_str s, proa_buf *out)
{
    proa_str new_text;
    if (!proa_charsmap_find(map, s, false, &new_text)) return false;
    proa_buf_str(out, new_text);
    return true;
}

void proa_charsmap_apply(const proa_charsmap *map, proa_str s, size_t *zero, proa_buf *out)
{
    size_t start = out->len, zero_in = *zero, at = 0;
    *zero = 0;
    while (at < s.len) {
        /* between two ASCII characters, other than CR LF, there is always a cluster boundary */
        bool ascii = s.ptr[at] > 0 && s.ptr[at] != '\r' && (at + 1 == s.len || s.ptr[at + 1] > 0);
        proa_str g = {s.ptr + at, 0};
        g.len = ascii ? 1 : grapheme_length((proa_str){s.ptr + at, s.len - at});
        bool whole = g.len < 6 && apply_one(map, g, out);
        for (size_t i = 0; !whole && i < g.len;) {
            int32_t c;
            int n = proa_char_next((proa_str){g.ptr + i, g.len - i}, &c);
            proa_str one = {g.ptr + i, (size_t)n};
            if (!apply_one(map, one, out)) proa_buf_str(out, one);
            i += (size_t)n;
        }
        at += g.len;
        if (at <= zero_in || (*zero == 0 && zero_in > 0)) *zero = out->len - start;
    }
}
