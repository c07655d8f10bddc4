/* SPDX-License-Identifier: Apache-2.0
 * status.c - sets, extends and prints errors. */
#include "base/status.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/long_text.h"
#include "base/str.h"
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

static const struct {
    const char *text;
    int grpc, http;
} table[PROA_STATUS_COUNT] = {
#define ROW(name, grpc, http, text) [PROA_##name] = {text, grpc, http},
    PROA_STATUS_LIST(ROW)
#undef ROW
};

static bool is_known(proa_status status)
{
    return (unsigned)status < PROA_STATUS_COUNT;
}

PROA_EXPORT const char *proa_status_text(proa_status status)
{
    return is_known(status) ? table[status].text : "unknown status";
}

PROA_EXPORT int proa_status_grpc(proa_status status)
{
    return is_known(status) ? table[status].grpc : 2;
}

PROA_EXPORT int proa_status_http(proa_status status)
{
    return is_known(status) ? table[status].http : 500;
}

/* Names and keys from a hostile file must not forge log lines or control a terminal: replaces control
 * characters, drops line ends at the end of the text. Returns whether the text was changed. */
static bool one_line(char *text)
{
    size_t len = strlen(text), kept = len;
    while (kept > 0 && text[kept - 1] == '\n') kept--;
    text[kept] = '\0';
    bool changed = kept < len;
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c >= 0x20 && *c != 0x7f) continue;
        *c = '?';
        changed = true;
    }
    return changed;
}

/* Shortens text[0..len) so that it does not end with part of a character. */
static void end_whole_character(char *text, size_t len)
{
    size_t start = len;
    int32_t ignored;
    while (start > 0 && len - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80) start--;
    if (start > 0 && (unsigned char)text[start - 1] >= 0xc0) start--;
    if (start < len && !proa_utf8_decode(text + start, len - start, &ignored)) text[start] = '\0';
}

/* Stores the full text of an error whose text does not fit err->text. If memory runs out only the line
 * remains. */
static void keep_whole(proa_err *err, size_t len, const char *fmt, va_list args)
{
    if (len > PROA_ERR_TEXT_MAX) len = PROA_ERR_TEXT_MAX;
    char *text = malloc(len + 1);
    if (!text) return;
    if ((size_t)vsnprintf(text, len + 1, fmt, args) > len) end_whole_character(text, len);
    err->whole = proa_long_text_keep(text);
}

static void set_text(proa_err *err, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(err->text, sizeof err->text, fmt, args);
    bool cut = len >= (int)sizeof err->text;
    err->whole = 0;
    if (cut) end_whole_character(err->text, sizeof err->text - 1);
    if (one_line(err->text) || cut) keep_whole(err, (size_t)len, fmt, again);
    va_end(again);
}

proa_status proa_err_set(proa_err *err, proa_status status, const char *file, int line, const char *fmt, ...)
{
    if (!err || err->status != PROA_OK) return status;
    err->status = status;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, fmt);
    set_text(err, fmt, args);
    va_end(args);
    return status;
}

void proa_err_clear(proa_err *err)
{
    if (err) *err = (proa_err){.status = PROA_OK};
}

proa_status proa_err_copy(proa_err *err, const proa_err *from)
{
    if (err && err->status == PROA_OK) *err = *from;
    return from->status;
}

char *proa_err_whole_text(const proa_err *err)
{
    char *text = proa_long_text_copy(err->whole);
    return text ? text : proa_strdup(err->text);
}

static void set_again(proa_err *err, const char *fmt, ...) PROA_PRINTF(2, 3);
static void set_again(proa_err *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_text(err, fmt, args);
    va_end(args);
}

void proa_err_prefix(proa_err *err, const char *fmt, ...)
{
    if (!err || err->status == PROA_OK) return;
    char prefix[sizeof err->text], *old = proa_err_whole_text(err);
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, args);
    va_end(args);
    set_again(err, "%s: %s", prefix, old);
    free(old);
}
