/* SPDX-License-Identifier: Apache-2.0
 * fetch.h - fetches keys from the services of each store's chain: sends the requests and reads the responses.
 * Threads: any; calls block until their requests have ended. */
#ifndef PROA_HUB_CLOUD_IDENTITY_FETCH_H
#define PROA_HUB_CLOUD_IDENTITY_FETCH_H

#include "hub/cloud/identity/credentials.h"
#include "hub/crypto.h"

/* These set the fields that the source of `c` provides, and leave the rest of the key unchanged. */
PROA_MUST_CHECK proa_status proa_cloud_fetch_aws(proa_cloud_key *out, const proa_cloud_credentials *c,
                                                 const proa_crypto *crypto, proa_err *err);
PROA_MUST_CHECK proa_status proa_cloud_fetch_google(proa_cloud_key *out, const proa_cloud_credentials *c,
                                                    const proa_crypto *crypto, proa_err *err);
PROA_MUST_CHECK proa_status proa_cloud_fetch_azure(proa_cloud_key *out, const proa_cloud_credentials *c,
                                                   proa_err *err);
/* The region of the instance; `out` is left unchanged if it is not reported. */
void proa_cloud_fetch_region(char *out, size_t size, const proa_cloud_credentials *c);

#endif
