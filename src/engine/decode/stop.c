/* SPDX-License-Identifier: Apache-2.0
 * stop.c - finds stop strings in streamed text and holds back what may become one. */
#include "engine/decode/stop.h"

#include "base/limits.h"
#include <string.h>

void proa_stop_init(proa_stop *s, proa_strings strings)
{
    size_t longest = 0;
    *s = (proa_stop){.strings = strings};
    for (int32_t i = 0; i < strings.count; i++)
        if (strlen(strings.text[i]) > longest) longest = strlen(strings.text[i]);
    proa_buf_init(&s->held, PROA_TEXT_BYTES_MAX);
    if (strings.count) proa_buf_reserve(&s->held, longest + 512);
}

void proa_stop_release(proa_stop *s)
{
    proa_buf_release(&s->held);
}

/* Where the earliest complete stop string begins in the held text, or -1; *hit is which it is. */
static int64_t find_stop(const proa_stop *s, int32_t *hit)
{
    int64_t first = -1;
    for (int32_t i = 0; i < s->strings.count; i++) {
        const char *text = s->strings.text[i];
        const char *at = s->held.len ? memmem(s->held.ptr, s->held.len, text, strlen(text)) : NULL;
        if (at && (first < 0 || at - s->held.ptr < first)) first = at - s->held.ptr, *hit = i;
    }
    return first;
}

/* Length of the longest end of the held text that could be the beginning of a stop string. */
static size_t partial_match(const proa_stop *s)
{
    size_t longest = 0;
    for (int32_t i = 0; i < s->strings.count; i++) {
        const char *text = s->strings.text[i];
        size_t n = strlen(text) - 1;
        if (n > s->held.len) n = s->held.len;
        for (; n > longest; n--)
            if (memcmp(s->held.ptr + s->held.len - n, text, n) == 0) longest = n;
    }
    return longest;
}

static void release_text(proa_stop *s, size_t n, proa_buf *out)
{
    proa_buf_append(out, s->held.ptr, n);
    memmove(s->held.ptr, s->held.ptr + n, s->held.len - n + 1);
    s->held.len -= n;
}

bool proa_stop_push(proa_stop *s, proa_str piece, proa_buf *out)
{
    if (s->strings.count == 0) return proa_buf_str(out, piece), false;
    if (!proa_buf_str(&s->held, piece)) return false;
    int64_t at = find_stop(s, &s->hit);
    if (at >= 0) {
        release_text(s, (size_t)at, out);
        proa_buf_clear(&s->held);
        return true;
    }
    if (s->held.len) release_text(s, s->held.len - partial_match(s), out);
    return false;
}

void proa_stop_flush(proa_stop *s, proa_buf *out)
{
    if (s->held.len) release_text(s, s->held.len, out);
}
