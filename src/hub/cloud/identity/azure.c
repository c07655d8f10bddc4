/* SPDX-License-Identifier: Apache-2.0
 * azure.c - credentials for Azure Blob Storage: an account key or a shared access signature, then, as in Azure's
 *           DefaultAzureCredential, an application with a secret, a workload identity, the managed identity of an
 *           application or of the instance. */
#include "hub/cloud/identity/credentials.h"
#include "hub/cloud/identity/take.h"
#include <string.h>

static bool is_id(const char *text)
{
    return text[0] &&
           !text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_")];
}

static proa_status use_client(proa_cloud_credentials *c, proa_err *err)
{
    char authority[512] = "https://login.microsoftonline.com", tenant[256] = "";
    c->source = PROA_CLOUD_AZURE_CLIENT;
    PROA_CLOUD_TAKE_ENV(authority, "AZURE_AUTHORITY_HOST");
    PROA_CLOUD_TAKE_ENV(tenant, "AZURE_TENANT_ID");
    for (size_t len = strlen(authority); len && authority[len - 1] == '/';) authority[--len] = '\0';
    if (!is_id(tenant) || !is_id(c->client))
        return PROA_FAIL(err, INVALID,
                         "AZURE_TENANT_ID and AZURE_CLIENT_ID must name a tenant and a client beside "
                         "AZURE_FEDERATED_TOKEN_FILE or AZURE_CLIENT_SECRET");
    snprintf(c->url, sizeof c->url, "%s%s/%s/oauth2/v2.0/token", strstr(authority, "://") ? "" : "https://",
             authority, tenant);
    return PROA_OK;
}

static proa_status use_managed(proa_cloud_credentials *c, proa_err *err)
{
    bool app = proa_cloud_env("IDENTITY_ENDPOINT") != NULL;
    c->source = app ? PROA_CLOUD_AZURE_APP : PROA_CLOUD_AZURE_INSTANCE;
    if (app && !proa_cloud_env("IDENTITY_HEADER"))
        return PROA_FAIL(err, UNSUPPORTED,
                         "IDENTITY_ENDPOINT is set without IDENTITY_HEADER, as Azure Arc does, "
                         "whose identities are not read");
    if (!app) snprintf(c->url, sizeof c->url, "http://169.254.169.254");
    PROA_CLOUD_TAKE_ENV(c->url, app ? "IDENTITY_ENDPOINT" : "AZURE_POD_IDENTITY_AUTHORITY_HOST");
    return app ? proa_cloud_take_env(c->authorization, sizeof c->authorization, "IDENTITY_HEADER", err) : PROA_OK;
}

proa_status proa_cloud_azure_read(proa_cloud_credentials *c, const char *account, proa_err *err)
{
    if (!c->key.id[0]) PROA_CLOUD_TAKE_ENV(c->key.id, "AZURE_STORAGE_ACCOUNT");
    PROA_CLOUD_TAKE_ENV(c->key.secret, "AZURE_STORAGE_KEY");
    PROA_CLOUD_TAKE_ENV(c->key.token, "AZURE_STORAGE_SAS_TOKEN");
    if (c->key.token[0] == '?') memmove(c->key.token, c->key.token + 1, strlen(c->key.token));
    if (!c->key.id[0]) snprintf(c->key.id, sizeof c->key.id, "%s", account);
    c->sas = c->key.token[0] != '\0';
    if (c->key.secret[0] || c->sas) return PROA_OK;
    PROA_CLOUD_TAKE_ENV(c->client, "AZURE_CLIENT_ID");
    PROA_CLOUD_TAKE_ENV(c->client_secret, "AZURE_CLIENT_SECRET");
    PROA_CLOUD_TAKE_ENV(c->token_file, "AZURE_FEDERATED_TOKEN_FILE");
    return c->client_secret[0] || c->token_file[0] ? use_client(c, err) : use_managed(c, err);
}
