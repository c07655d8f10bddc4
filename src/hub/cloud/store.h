/* SPDX-License-Identifier: Apache-2.0
 * store.h - an object store: listing what is below a path, and reading objects, as a site of the hub's client.
 * Owner:   the caller's struct. Threads: one at a time. */
#ifndef PROA_HUB_CLOUD_STORE_H
#define PROA_HUB_CLOUD_STORE_H

#include "hub/cloud/listing.h"
#include "hub/cloud/identity/renew.h"
#include "hub/cloud/sign.h"
#include "hub/http.h"

typedef struct proa_cloud_store {
    proa_cloud_address address;
    proa_cloud_credentials credentials;
    proa_hub_settings settings; /* endpoint: scheme, host and port, and what stands before the key */
    proa_hub_client client;
    const proa_crypto *crypto;
    char base[2 * PROA_PATH_MAX]; /* in front of the paths of entries: the prefix, and perhaps a model's folder */
    proa_cloud_renewal renewal;
} proa_cloud_store;

/* Reads address and credentials, which may ask a service for them; sends nothing to the store. */
PROA_MUST_CHECK proa_status proa_cloud_store_open(proa_cloud_store *s, const char *address, proa_err *err);
void proa_cloud_store_close(proa_cloud_store *s);
/* Lists all objects below the prefix and `folder` ("" or "NAME/"), sorted; their paths are relative to the folder. */
PROA_MUST_CHECK proa_status proa_cloud_store_list(proa_cloud_store *s, proa_cloud_listing *out,
                                                  const char *folder, proa_err *err);
/* Before entries of a folder are read: their paths are below it. */
PROA_MUST_CHECK proa_status proa_cloud_store_enter(proa_cloud_store *s, const char *folder, proa_err *err);

#endif
