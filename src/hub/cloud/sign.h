/* SPDX-License-Identifier: Apache-2.0
 * sign.h - signatures of requests to object stores.
 *
 * Amazon: AWS Signature Version 4, docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html. libcurl's own
 *         CURLOPT_AWS_SIGV4 is not used: releases from 7.75 to 8.16 differ in how they encode paths and sort queries.
 * Azure:  Shared Key, learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
 * Google: a signed claim (RFC 7523) that is exchanged for a bearer token
 *
 * Threads: any; nothing is kept. */
#ifndef PROA_HUB_CLOUD_SIGN_H
#define PROA_HUB_CLOUD_SIGN_H

#include "hub/cloud/identity/credentials.h"
#include "hub/crypto.h"
#include <time.h>

#define PROA_CLOUD_AZURE_VERSION "2021-12-02"

/* `url` has a canonical path (proa_hub_escape) and a query that is escaped and sorted. */
typedef struct proa_cloud_request {
    const char *method, *url;
    const char *range;            /* "bytes=0-99"; NULL: none */
    const char *match;            /* the value of If-Match; NULL: none */
    const char *service, *region; /* of Amazon's: "s3", "sts" */
    proa_str body;
    time_t now;
} proa_cloud_request;

/* Appends header lines, each with a NUL after it. */
void proa_cloud_sign_aws(proa_buf *headers, const proa_crypto *crypto, const proa_cloud_key *key,
                         const proa_cloud_request *r);
/* INVALID if the key is not base64. */
PROA_MUST_CHECK proa_status proa_cloud_sign_azure(proa_buf *headers, const proa_crypto *crypto,
                                                  const proa_cloud_key *key, const proa_cloud_request *r,
                                                  proa_err *err);
/* The form with which a service account asks for a token. INVALID if the private key cannot be read. */
PROA_MUST_CHECK proa_status proa_cloud_token_form(proa_buf *form, const proa_crypto *crypto,
                                                  const proa_cloud_credentials *c, time_t now, proa_err *err);

#endif
