/* SPDX-License-Identifier: Apache-2.0
 * credentials.h - who asks an object store: the environment and files that Triton and the stores' own tools read.
 *
 * TRITON_CLOUD_CREDENTIAL_PATH names a file with credentials for addresses; the longest address that begins the
 * repository's is taken, and the environment is not read. Else:
 *   S3:     AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; or the profile AWS_PROFILE of
 *           ~/.aws/credentials and ~/.aws/config; AWS_DEFAULT_REGION, AWS_REGION; AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL
 *   Google: GOOGLE_APPLICATION_CREDENTIALS (a service account's key or a user's); GOOGLE_OAUTH_ACCESS_TOKEN;
 *           STORAGE_EMULATOR_HOST
 *   Azure:  AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN; AZURE_STORAGE_SERVICE_ENDPOINT
 * Without any, requests are anonymous. No secret is ever part of an error or of the log.
 * Owner:   the caller's struct; it owns its texts.
 * Threads: the environment must not change meanwhile. */
#ifndef PROA_HUB_CLOUD_CREDENTIALS_H
#define PROA_HUB_CLOUD_CREDENTIALS_H

#include "hub/cloud/address.h"

typedef struct proa_cloud_credentials {
    char endpoint[1024];              /* of the environment; "": the store's own */
    char key_id[256], secret[512];    /* S3's key, or Azure's account and its key in base64; "": none */
    char region[64];                  /* S3 */
    char token[PROA_HUB_TOKEN_MAX];   /* S3's session, Google's bearer or Azure's SAS without '?'; "": none */
    char email[320], token_uri[1024]; /* Google's service account, or... */
    char client[256], client_secret[256], refresh[1024]; /* ... a user's refresh token */
    char private_key[8192];                              /* PEM */
} proa_cloud_credentials;

PROA_MUST_CHECK proa_status proa_cloud_credentials_read(proa_cloud_credentials *out,
                                                        const proa_cloud_address *address, proa_err *err);

#endif
