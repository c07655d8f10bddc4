/* SPDX-License-Identifier: Apache-2.0
 * url.h - addresses: escaping, origins, redirects.
 * Threads: any. */
#ifndef PROA_HUB_URL_H
#define PROA_HUB_URL_H

#include "base/str.h"
#include "hub/curl.h"

/* Appends text to an address, with %XX for what may not stand there; slashes stay if `slashes`. */
void proa_hub_escape(proa_buf *out, const char *text, bool slashes);
/* Whether both addresses have one scheme, host and port. */
bool proa_hub_same_origin(const proa_curl *curl, const char *a, const char *b);
/* The address that a redirect of `from` leads to, on the heap. Only http and https, and no step down to http. */
PROA_MUST_CHECK proa_status proa_hub_follow(char **out, const proa_curl *curl, const char *from,
                                            const char *location, proa_err *err);
/* "https://host:port" of an address, for messages: without a path, whose query may hold a signature. */
void proa_hub_host(char *out, size_t size, const char *url);

#endif
