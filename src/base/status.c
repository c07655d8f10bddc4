/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

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

static bool known(proa_status status)
{
    return (unsigned)status < PROA_STATUS_COUNT;
}

const char *proa_status_text(proa_status status)
{
    return known(status) ? table[status].text : "unknown status";
}

int proa_status_grpc(proa_status status)
{
    return known(status) ? table[status].grpc : 2;
}

int proa_status_http(proa_status status)
{
    return known(status) ? table[status].http : 500;
}

/* What a hostile file brought in (names, keys) must not forge log lines or steer a terminal. */
static void one_line(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
}

proa_status proa_err_set(proa_err *err, proa_status status, const char *file, int line, const char *fmt, ...)
{
    if (!err || err->status != PROA_OK) return status;
    err->status = status;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    one_line(err->text);
    return status;
}

void proa_err_clear(proa_err *err)
{
    if (err) *err = (proa_err){.status = PROA_OK};
}

void proa_err_prefix(proa_err *err, const char *fmt, ...)
{
    if (!err || err->status == PROA_OK) return;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", old);
    one_line(err->text);
}
