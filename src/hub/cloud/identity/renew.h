/* SPDX-License-Identifier: Apache-2.0
 * renew.h - fetches keys again before they expire.
 * Owner:   the caller's struct. Threads: one at a time. */
#ifndef PROA_HUB_CLOUD_IDENTITY_RENEW_H
#define PROA_HUB_CLOUD_IDENTITY_RENEW_H

#include "hub/cloud/identity/credentials.h"
#include "hub/crypto.h"

typedef struct proa_cloud_renewal {
    int64_t next_s;   /* not fetched before; 0: never fetched */
    char missed[300]; /* why the default service of the cloud gave no key; "": it did, or is not the source */
    proa_err err;     /* of the last attempt, if there is no valid key */
} proa_cloud_renewal;

/* Fetches c->key if c has a source and the key expires soon. A failure is an error only if no valid key is left. If the
 * last service of a chain does not respond, the key is empty and requests are anonymous. */
PROA_MUST_CHECK proa_status proa_cloud_renew(proa_cloud_renewal *r, proa_cloud_credentials *c,
                                             const proa_crypto *crypto, proa_err *err);

#endif
