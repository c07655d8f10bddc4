/* SPDX-License-Identifier: Apache-2.0
 * ask.h - one request to a metadata or token service. The request contains secrets, so redirects are not followed. A
 *         request to a service of this machine uses no proxy and waits at most PROA_CLOUD_METADATA_MS.
 * Threads: any. */
#ifndef PROA_HUB_CLOUD_IDENTITY_ASK_H
#define PROA_HUB_CLOUD_IDENTITY_ASK_H

#include "base/limits.h"
#include "base/status.h"
#include "base/str.h"

enum { PROA_CLOUD_ASK_HEADERS = 6 };

typedef struct proa_cloud_ask {
    const char *url;
    const char *method;                          /* NULL: GET, or POST with a form */
    const char *form;                            /* NULL: none */
    const char *headers[PROA_CLOUD_ASK_HEADERS]; /* "Name: value"; NULL ends them */
    bool local;                                  /* a service of the machine */
} proa_cloud_ask;

/* Appends the body of the response. UNAVAILABLE without a response, NOT_FOUND for a refusal; the error names the host.
 */
PROA_MUST_CHECK proa_status proa_cloud_ask_send(proa_buf *body, const proa_cloud_ask *ask, proa_err *err);
/* Whether a URL is https, or http to this machine itself or to one of `hosts` (NULL-terminated). */
bool proa_cloud_is_near(const char *url, const char *const *hosts);

#endif
