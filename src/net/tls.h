/* SPDX-License-Identifier: Apache-2.0
 * tls.h - the TLS context of a listener: certificates and rules (TLS 1.2 and up, ALPN), with OpenSSL.
 * Owner:   proa_tls_open/close; listeners hold it. Files that have changed are read again, within a minute;
 *          if they do not go together, the old certificate stays.
 * Threads: open and close by one thread; used by all loops. */
#ifndef PROA_NET_TLS_H
#define PROA_NET_TLS_H

#include "base/status.h"

typedef struct proa_tls proa_tls;
typedef struct proa_tls_options {
    const char *cert, *key; /* PEM files; cert may hold a chain */
    const char *client_ca; /* PEM file: clients must present a certificate of these; NULL: none is requested */
} proa_tls_options;
PROA_MUST_CHECK proa_status proa_tls_open(proa_tls **out, const proa_tls_options *options, proa_err *err);
void proa_tls_close(proa_tls *tls); /* NULL is fine */

#endif
