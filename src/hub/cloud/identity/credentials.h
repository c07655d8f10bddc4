/* SPDX-License-Identifier: Apache-2.0
 * credentials.h - credentials for object stores: from the environment, files and services of the machine that Triton
 *                 and the stores' own tools read, in the order of those tools (docs/cloud.md lists them).
 *
 * TRITON_CLOUD_CREDENTIAL_PATH names a file with credentials by address. The entry with the longest prefix of the
 * repository's address is used, and the environment is read only if that entry is empty. Reading sends no request: it
 * finds keys, or the source from which proa_cloud_renew fetches them before they expire. Without either, requests are
 * anonymous. Secrets never appear in errors or in the log.
 * Owner:   the caller's struct; it owns its texts.
 * Threads: the environment must not change meanwhile. */
#ifndef PROA_HUB_CLOUD_IDENTITY_CREDENTIALS_H
#define PROA_HUB_CLOUD_IDENTITY_CREDENTIALS_H

#include "hub/cloud/address.h"

/* The key that signs requests. */
typedef struct proa_cloud_key {
    char id[256], secret[512]; /* S3's key, or Azure's account and its key in base64; "": none */
    char token[PROA_CLOUD_TOKEN_MAX]; /* S3's session, a bearer of Google or Azure, Azure's SAS without '?'; "": none */
    int64_t until_s;                  /* when it expires; 0: never */
} proa_cloud_key;

/* Where keys are fetched. The last source of each store is a service that a machine of that cloud may have without any
 * configuration; if it does not respond, requests are anonymous. */
#define PROA_CLOUD_SOURCE_LIST(X)                                                                            \
    X(FIXED, "the environment or a file")                                                                    \
    X(AWS_WEB_IDENTITY, "a web identity")                                                                    \
    X(AWS_CONTAINER, "the container's role")                                                                 \
    X(AWS_INSTANCE, "the instance's role")                                                                   \
    X(GOOGLE_KEY, "a service account's key")                                                                 \
    X(GOOGLE_USER, "a user's refresh token")                                                                 \
    X(GOOGLE_FEDERATED, "a federated identity")                                                              \
    X(GOOGLE_INSTANCE, "the instance's service account")                                                     \
    X(AZURE_CLIENT, "an application's identity")                                                             \
    X(AZURE_APP, "the application's managed identity")                                                       \
    X(AZURE_INSTANCE, "the instance's managed identity")
#define PROA_CLOUD_SOURCE_ENUM(name, text) PROA_CLOUD_##name,
typedef enum proa_cloud_source { PROA_CLOUD_SOURCE_LIST(PROA_CLOUD_SOURCE_ENUM) } proa_cloud_source;

/* A role of Amazon's that is assumed with other keys or with an identity's token. */
typedef struct proa_cloud_role {
    char arn[PROA_CLOUD_ROLE_MAX]; /* "": none */
    char session[65], external_id[1225];
} proa_cloud_role;

typedef struct proa_cloud_credentials {
    char endpoint[1024]; /* from the environment; "": the store's own */
    char region[64];     /* S3; "": the instance's, and without one us-east-1 */
    proa_cloud_key key;
    bool sas; /* key.token is part of the URLs */

    proa_cloud_source source;
    char url[1024];                 /* of the source: its token service, or the root of a metadata service */
    char token_file[PROA_PATH_MAX]; /* file with an identity's token, read again for each request */
    char authorization[PROA_CLOUD_TOKEN_MAX]; /* Authorization header for the source; "": none, or token_file */
    char client[256], client_secret[512], refresh[1024]; /* of a user or an application */
    char email[320], private_key[8192];                  /* of a service account; PEM */
    char audience[1024], token_type[128], token_field[128], impersonate[1024]; /* of Google's federation */
    proa_cloud_role web_role;                                                  /* of AWS_WEB_IDENTITY */
    proa_cloud_role role; /* assumed with the keys of the source, or with `base` */
    proa_cloud_key base;
} proa_cloud_credentials;

PROA_MUST_CHECK proa_status proa_cloud_credentials_read(proa_cloud_credentials *out,
                                                        const proa_cloud_address *address, proa_err *err);
const char *proa_cloud_source_name(proa_cloud_source source);

/* The chains of the stores. On entry c has only the endpoint and the values of Triton's file. */
PROA_MUST_CHECK proa_status proa_cloud_aws_read(proa_cloud_credentials *c, proa_err *err);
/* As proa_cloud_aws_read, with a profile that must exist in place of keys of the environment. */
PROA_MUST_CHECK proa_status proa_cloud_aws_profile(proa_cloud_credentials *c, const char *profile, proa_err *err);
PROA_MUST_CHECK proa_status proa_cloud_google_read(proa_cloud_credentials *c, proa_err *err);
PROA_MUST_CHECK proa_status proa_cloud_google_file(proa_cloud_credentials *c, const char *path, proa_err *err);
PROA_MUST_CHECK proa_status proa_cloud_azure_read(proa_cloud_credentials *c, const char *account, proa_err *err);
/* The domain of the hosts of Amazon's services in a region. */
const char *proa_cloud_aws_domain(const char *region);

#endif
