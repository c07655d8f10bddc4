/* SPDX-License-Identifier: Apache-2.0
 * address.h - addresses of folders in object stores, in Triton's forms:
 *
 *     s3://BUCKET/PATH                          Amazon S3
 *     s3://[http://|https://]HOST:PORT/BUCKET/PATH   a store that speaks S3's protocol; without a scheme http
 *     gs://BUCKET/PATH                          Google Cloud Storage
 *     as://ACCOUNT/CONTAINER/PATH               Azure Blob Storage
 *
 * Owner:   the caller's struct. */
#ifndef PROA_HUB_CLOUD_ADDRESS_H
#define PROA_HUB_CLOUD_ADDRESS_H

#include "base/limits.h"
#include "base/status.h"
#include <stdbool.h>

typedef enum proa_cloud_kind { PROA_CLOUD_S3, PROA_CLOUD_GCS, PROA_CLOUD_AZURE } proa_cloud_kind;

typedef struct proa_cloud_address {
    proa_cloud_kind kind;
    char text[PROA_PATH_MAX];     /* as given, without slashes at the end */
    char endpoint[PROA_PATH_MAX]; /* "http://HOST:PORT" if the address names one, else "" */
    char account[256];            /* of Azure; else "" */
    char bucket[256];             /* or container */
    char prefix[PROA_PATH_MAX];   /* "" or "PATH/" */
} proa_cloud_address;

/* Whether a text begins as such an address does. */
bool proa_cloud_is_address(const char *text);
/* INVALID for an address without a bucket, with characters that no bucket's name has, or with a path that climbs. */
PROA_MUST_CHECK proa_status proa_cloud_address_parse(proa_cloud_address *out, const char *text, proa_err *err);

#endif
