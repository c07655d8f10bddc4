/* SPDX-License-Identifier: Apache-2.0
 * reply.c - reads the headers that a server sends. */
#include "hub/reply.h"

#include "base/alloc.h"
#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <time.h>

void proa_hub_reply_clear(proa_hub_reply *r)
{
    free(r->location);
    *r = (proa_hub_reply){
        .length = -1, .linked_size = -1, .range_first = -1, .range_total = -1, .retry_after_s = -1};
}

/* A number of at most 18 digits; -1 if the text begins with none. *rest: the text after it. */
static int64_t read_number(proa_str text, proa_str *rest)
{
    int64_t n = 0;
    size_t i = 0;
    while (i < text.len && i < 18 && isdigit((unsigned char)text.ptr[i])) n = 10 * n + (text.ptr[i++] - '0');
    if (rest) *rest = (proa_str){text.ptr + i, text.len - i};
    return i == 0 || (i < text.len && isdigit((unsigned char)text.ptr[i])) ? -1 : n;
}

/* An ETag without W/ and quotes, as huggingface_hub writes it. Too long: none. */
static void take_etag(char *out, size_t size, proa_str value)
{
    if (proa_str_starts(value, proa_str_c("W/"))) value.ptr += 2, value.len -= 2;
    while (value.len && value.ptr[0] == '"') value.ptr++, value.len--;
    while (value.len && value.ptr[value.len - 1] == '"') value.len--;
    snprintf(out, size, "%.*s", value.len < size ? (int)value.len : 0, value.ptr);
}

static void take_text(char *out, size_t size, proa_str value)
{
    snprintf(out, size, "%.*s", (int)value.len, value.ptr);
}

/* "bytes 0-99/1234" */
static void take_range(proa_hub_reply *r, proa_str value)
{
    proa_str rest;
    if (!proa_str_starts(value, proa_str_c("bytes "))) return;
    r->range_first = read_number((proa_str){value.ptr + 6, value.len - 6}, &rest);
    const char *slash = memchr(rest.ptr, '/', rest.len);
    if (slash)
        r->range_total = read_number((proa_str){slash + 1, rest.len - (size_t)(slash + 1 - rest.ptr)}, NULL);
}

/* Seconds, or a date. */
static void take_retry_after(proa_hub_reply *r, proa_str value)
{
    char date[64];
    struct tm tm = {.tm_year = 0};
    r->retry_after_s = read_number(value, NULL);
    if (r->retry_after_s >= 0) return;
    take_text(date, sizeof date, value);
    if (!strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm)) return;
    int64_t left = (int64_t)timegm(&tm) - (int64_t)time(NULL);
    r->retry_after_s = left > 0 ? left : 0;
}

/* RateLimit: "api";r=0;t=55 - the hub's own: nothing is left of its window, which ends in 55 seconds. */
static void take_rate_limit(proa_hub_reply *r, proa_str value)
{
    const char *end = value.ptr + value.len, *none = memmem(value.ptr, value.len, ";r=0", 4);
    const char *secs = none ? memmem(none, (size_t)(end - none), ";t=", 3) : NULL;
    if (secs && r->retry_after_s < 0)
        r->retry_after_s = read_number((proa_str){secs + 3, (size_t)(end - secs) - 3}, NULL);
}

static void take_location(proa_hub_reply *r, proa_str value)
{
    if (value.len >= PROA_HUB_URL_MAX) return;
    free(r->location);
    r->location = proa_str_copy(value);
}

/* What is kept of a header: a text or a number in a field, or what `take` makes of it. */
typedef enum header_kind { HEADER_TEXT, HEADER_ETAG, HEADER_NUMBER, HEADER_OTHER } header_kind;

#define FIELD(member) offsetof(proa_hub_reply, member), sizeof(((proa_hub_reply *)0)->member)
static const struct {
    const char *name;
    header_kind kind;
    size_t offset, size;
    void (*take)(proa_hub_reply *r, proa_str value);
} known_headers[] = {{"etag", HEADER_ETAG, FIELD(etag), NULL},
                     {"x-linked-etag", HEADER_ETAG, FIELD(linked_etag), NULL},
                     {"x-linked-size", HEADER_NUMBER, FIELD(linked_size), NULL},
                     {"x-repo-commit", HEADER_TEXT, FIELD(commit), NULL},
                     {"x-error-code", HEADER_TEXT, FIELD(error_code), NULL},
                     {"x-error-message", HEADER_TEXT, FIELD(error_message), NULL},
                     {"x-amz-server-side-encryption", HEADER_TEXT, FIELD(encryption), NULL},
                     {"content-length", HEADER_NUMBER, FIELD(length), NULL},
                     {"content-range", HEADER_OTHER, 0, 0, take_range},
                     {"retry-after", HEADER_OTHER, 0, 0, take_retry_after},
                     {"ratelimit", HEADER_OTHER, 0, 0, take_rate_limit},
                     {"location", HEADER_OTHER, 0, 0, take_location}};

static void take_header(proa_hub_reply *r, size_t row, proa_str value)
{
    void *field = (char *)r + known_headers[row].offset;
    switch (known_headers[row].kind) {
    case HEADER_TEXT: take_text(field, known_headers[row].size, value); return;
    case HEADER_ETAG: take_etag(field, known_headers[row].size, value); return;
    case HEADER_NUMBER: *(int64_t *)field = read_number(value, NULL); return;
    case HEADER_OTHER: known_headers[row].take(r, value); return;
    }
}

static void begin_response(proa_hub_reply *r)
{
    r->etag[0] = r->error_code[0] = r->error_message[0] = r->encryption[0] = '\0';
    free(r->location);
    r->location = NULL;
    r->length = r->range_first = r->range_total = r->retry_after_s = -1;
}

static bool is_named(proa_str name, const char *text)
{
    return name.len == strlen(text) && strncasecmp(name.ptr, text, name.len) == 0;
}

void proa_hub_reply_header(proa_hub_reply *r, proa_str line)
{
    if (proa_str_starts(line, proa_str_c("HTTP/"))) {
        begin_response(r);
        return;
    }
    const char *colon = memchr(line.ptr, ':', line.len);
    if (!colon || proa_str_has_nul(line)) return;
    proa_str name = {line.ptr, (size_t)(colon - line.ptr)}, value = {colon + 1, line.len - name.len - 1};
    while (value.len && isspace((unsigned char)value.ptr[0])) value.ptr++, value.len--;
    while (value.len && isspace((unsigned char)value.ptr[value.len - 1])) value.len--;
    for (size_t i = 0; i < PROA_COUNT(known_headers); i++)
        if (is_named(name, known_headers[i].name)) take_header(r, i, value);
}

const char *proa_hub_reason(long code)
{
    static const struct {
        long code;
        const char *text;
    } reasons[] = {{400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {408, "Request Timeout"},
                   {410, "Gone"},
                   {416, "Range Not Satisfiable"},
                   {429, "Too Many Requests"},
                   {500, "Internal Server Error"},
                   {502, "Bad Gateway"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"}};
    for (size_t i = 0; i < PROA_COUNT(reasons); i++)
        if (reasons[i].code == code) return reasons[i].text;
    return "";
}
