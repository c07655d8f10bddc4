/* SPDX-License-Identifier: Apache-2.0
 * url.c - parts of addresses, and where redirects lead. */
#include "hub/url.h"

#include "base/alloc.h"
#include <string.h>
#include <strings.h>

void proa_hub_escape(proa_buf *out, const char *text, bool slashes)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        bool plain = (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') ||
                     strchr("-._~", *c) || (*c == '/' && slashes);
        if (plain) proa_buf_char(out, (char)*c);
        else proa_buf_printf(out, "%%%02X", *c);
    }
}

/* "scheme://host:port" of an address, on the heap; NULL if it is none. */
static char *origin_of(const proa_curl *curl, const char *address)
{
    char *scheme = NULL, *host = NULL, *port = NULL, *origin = NULL;
    CURLU *u = curl->url();
    if (u && curl->url_set(u, CURLUPART_URL, address, 0) == CURLUE_OK &&
        curl->url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl->url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl->url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK) {
        size_t size = strlen(scheme) + strlen(host) + strlen(port) + 5;
        origin = proa_malloc(size);
        snprintf(origin, size, "%s://%s:%s", scheme, host, port);
    }
    curl->free(scheme), curl->free(host), curl->free(port);
    curl->url_cleanup(u);
    return origin;
}

bool proa_hub_same_origin(const proa_curl *curl, const char *a, const char *b)
{
    char *first = origin_of(curl, a), *second = origin_of(curl, b);
    bool same = first && second && strcasecmp(first, second) == 0;
    free(first), free(second);
    return same;
}

proa_status proa_hub_follow(char **out, const proa_curl *curl, const char *from, const char *location,
                            proa_err *err)
{
    char *address = NULL;
    CURLU *u = curl->url();
    bool good = u && curl->url_set(u, CURLUPART_URL, from, 0) == CURLUE_OK &&
                curl->url_set(u, CURLUPART_URL, location, 0) == CURLUE_OK &&
                curl->url_get(u, CURLUPART_URL, &address, 0) == CURLUE_OK;
    bool secure = good && strncasecmp(address, "https://", 8) == 0;
    bool plain = good && strncasecmp(address, "http://", 7) == 0 && strncasecmp(from, "https://", 8) != 0;
    if (secure || plain) *out = proa_strdup(address);
    curl->free(address);
    curl->url_cleanup(u);
    if (secure || plain) return PROA_OK;
    return PROA_FAIL(err, CORRUPT, "a redirect leads to '%.200s', which is not followed", location);
}

void proa_hub_host(char *out, size_t size, const char *url)
{
    const char *path = strstr(url, "://");
    path = path ? strpbrk(path + 3, "/?#") : NULL;
    snprintf(out, size, "%.*s", path ? (int)(path - url) : (int)strlen(url), url);
}
