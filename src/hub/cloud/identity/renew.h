/* SPDX-License-Identifier: Apache-2.0
 * renew.h - keys that end are fetched again before they do.
 * Owner:   the caller's struct. Threads: one at a time. */
#ifndef PROA_HUB_CLOUD_IDENTITY_RENEW_H
#define PROA_HUB_CLOUD_IDENTITY_RENEW_H

#include "hub/cloud/identity/credentials.h"
#include "hub/crypto.h"

typedef struct proa_cloud_renewal {
    int64_t next_s; /* not fetched before; 0: never fetched */
    char missed[300]; /* why the service that every machine may have gave no key; "": it did, or was not asked */
    proa_err err;     /* of the last attempt, if there is no key that has not ended */
} proa_cloud_renewal;

/* Fetches c->key where c has a source and the key ends soon. A failure is an error only if no key is left. Without an
 * answer of the last service of a chain the key is empty, and requests are anonymous. */
PROA_MUST_CHECK proa_status proa_cloud_renew(proa_cloud_renewal *r, proa_cloud_credentials *c,
                                             const proa_crypto *crypto, proa_err *err);

#endif
