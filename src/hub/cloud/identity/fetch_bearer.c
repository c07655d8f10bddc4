/* SPDX-License-Identifier: Apache-2.0
 * fetch_bearer.c - bearer tokens of Google and Azure.
 *
 * Google   developers.google.com/identity/protocols/oauth2/service-account,
 *          cloud.google.com/iam/docs/reference/sts/rest (RFC 8693), cloud.google.com/compute/docs/metadata
 * Azure    learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow,
 *          .../entra/identity/managed-identities-azure-resources/how-to-use-vm-token,
 *          .../azure/app-service/overview-managed-identity */
#include "hub/cloud/identity/ask.h"
#include "hub/cloud/identity/fetch.h"
#include "hub/cloud/identity/grant.h"
#include "hub/cloud/sign.h"
#include "hub/cloud/identity/take.h"
#include "hub/url.h"
#include <string.h>

#define GOOGLE_SCOPE "https://www.googleapis.com/auth/devstorage.read_only"
#define AZURE_SCOPE  "https://storage.azure.com/"

static proa_status ask_bearer(proa_cloud_key *out, const proa_cloud_ask *ask, proa_err *err)
{
    proa_buf body;
    proa_buf_init(&body, PROA_CLOUD_GRANT_BYTES_MAX);
    proa_status status = ask->local || proa_cloud_is_near(ask->url, NULL)
                             ? proa_cloud_ask_send(&body, ask, err)
                             : PROA_FAIL(err, INVALID,
                                         "a token is asked for by https, or by http of this machine");
    if (status == PROA_OK)
        status = proa_cloud_grant_bearer(out, proa_buf_view(&body), (int64_t)time(NULL), err);
    proa_buf_release(&body);
    return status;
}

static void add_field(proa_buf *form, const char *name, const char *value)
{
    proa_buf_printf(form, "%s%s=", form->len ? "&" : "", name);
    proa_hub_escape(form, value, false);
}

/* ---- Google ---- */

static void user_form(proa_buf *form, const proa_cloud_credentials *c)
{
    add_field(form, "grant_type", "refresh_token");
    add_field(form, "client_id", c->client);
    add_field(form, "client_secret", c->client_secret);
    add_field(form, "refresh_token", c->refresh);
}

/* The token of the external identity: the whole file, or a member of its JSON. */
static proa_status read_subject(proa_buf *out, const proa_cloud_credentials *c, proa_err *err)
{
    proa_json *j = NULL;
    if (!c->token_field[0]) return proa_cloud_take_file(out, c->token_file, err);
    PROA_TRY(proa_json_load(&j, c->token_file, PROA_CLOUD_FILE_BYTES_MAX, err));
    proa_str token = proa_json_str(proa_json_get(j, c->token_field));
    bool good = token.len && !proa_str_has_nul(token) && proa_buf_str(out, token);
    proa_json_free(j);
    return good ? PROA_OK
                : PROA_FAIL(err, INVALID, "'%.200s' has no token '%.100s'", c->token_file, c->token_field);
}

static proa_status federated_form(proa_buf *form, const proa_cloud_credentials *c, proa_err *err)
{
    proa_buf subject;
    proa_buf_init(&subject, PROA_CLOUD_IDENTITY_BYTES_MAX);
    proa_status status = read_subject(&subject, c, err);
    if (status == PROA_OK) {
        add_field(form, "grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
        add_field(form, "audience", c->audience);
        add_field(form, "scope", c->impersonate[0] ? "https://www.googleapis.com/auth/iam" : GOOGLE_SCOPE);
        add_field(form, "requested_token_type", "urn:ietf:params:oauth:token-type:access_token");
        add_field(form, "subject_token", subject.ptr);
        add_field(form, "subject_token_type", c->token_type);
    }
    proa_buf_release(&subject);
    return status;
}

/* Exchanges a federated identity's token for one of the service account that it may impersonate. */
static proa_status impersonate_account(proa_cloud_key *key, const proa_cloud_credentials *c, proa_err *err)
{
    char line[PROA_CLOUD_TOKEN_MAX + 32];
    snprintf(line, sizeof line, "Authorization: Bearer %s", key->token);
    proa_cloud_ask ask = {.url = c->impersonate,
                          .form = "{\"scope\": [\"" GOOGLE_SCOPE "\"], \"lifetime\": \"3600s\"}",
                          .headers = {line, "Content-Type: application/json"}};
    return ask_bearer(key, &ask, err);
}

static proa_status ask_google_instance(proa_cloud_key *out, const proa_cloud_credentials *c, proa_err *err)
{
    char url[sizeof c->url + 128];
    snprintf(url, sizeof url, "%s/computeMetadata/v1/instance/service-accounts/default/token", c->url);
    proa_cloud_ask ask = {.url = url, .headers = {"Metadata-Flavor: Google"}, .local = true};
    return ask_bearer(out, &ask, err);
}

proa_status proa_cloud_fetch_google(proa_cloud_key *out, const proa_cloud_credentials *c,
                                    const proa_crypto *crypto, proa_err *err)
{
    proa_buf form;
    proa_status status = PROA_OK;
    if (c->source == PROA_CLOUD_GOOGLE_INSTANCE) return ask_google_instance(out, c, err);
    proa_buf_init(&form, PROA_CLOUD_GRANT_BYTES_MAX);
    if (c->source == PROA_CLOUD_GOOGLE_USER) user_form(&form, c);
    else if (c->source == PROA_CLOUD_GOOGLE_FEDERATED) status = federated_form(&form, c, err);
    else status = proa_cloud_token_form(&form, crypto, c, time(NULL), err);
    proa_cloud_ask ask = {.url = c->url, .form = form.ptr};
    if (status == PROA_OK) status = ask_bearer(out, &ask, err);
    if (status == PROA_OK && c->impersonate[0]) status = impersonate_account(out, c, err);
    proa_buf_release(&form);
    return status;
}

/* ---- Azure ---- */

static proa_status client_form(proa_buf *form, const proa_cloud_credentials *c, proa_err *err)
{
    add_field(form, "grant_type", "client_credentials");
    add_field(form, "client_id", c->client);
    add_field(form, "scope", AZURE_SCOPE ".default");
    if (c->client_secret[0]) {
        add_field(form, "client_secret", c->client_secret);
        return PROA_OK;
    }
    add_field(form, "client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    proa_buf_printf(form, "&client_assertion=");
    return proa_cloud_take_file(form, c->token_file, err);
}

static proa_status ask_client(proa_cloud_key *out, const proa_cloud_credentials *c, proa_err *err)
{
    proa_buf form;
    proa_buf_init(&form, PROA_CLOUD_GRANT_BYTES_MAX);
    proa_status status = client_form(&form, c, err);
    proa_cloud_ask ask = {.url = c->url, .form = form.ptr};
    if (status == PROA_OK) status = ask_bearer(out, &ask, err);
    proa_buf_release(&form);
    return status;
}

/* The managed identity of the application or of the instance; AZURE_CLIENT_ID selects one of several. */
static proa_status ask_managed(proa_cloud_key *out, const proa_cloud_credentials *c, proa_err *err)
{
    bool app = c->source == PROA_CLOUD_AZURE_APP;
    char line[PROA_CLOUD_TOKEN_MAX + 32];
    proa_buf url;
    size_t root = strlen(c->url);
    while (root && c->url[root - 1] == '/') root--;
    proa_buf_init(&url, PROA_HUB_URL_MAX);
    proa_buf_printf(&url, "%.*s%s", (int)root, c->url, app ? "" : "/metadata/identity/oauth2/token");
    proa_buf_printf(&url, "?api-version=%s&resource=", app ? "2019-08-01" : "2018-02-01");
    proa_hub_escape(&url, AZURE_SCOPE, false);
    if (c->client[0]) {
        proa_buf_printf(&url, "&client_id=");
        proa_hub_escape(&url, c->client, false);
    }
    snprintf(line, sizeof line, app ? "X-IDENTITY-HEADER: %s" : "Metadata: true", c->authorization);
    proa_cloud_ask ask = {.url = url.ptr, .headers = {line}, .local = true};
    proa_status status = ask_bearer(out, &ask, err);
    proa_buf_release(&url);
    return status;
}

proa_status proa_cloud_fetch_azure(proa_cloud_key *out, const proa_cloud_credentials *c, proa_err *err)
{
    return c->source == PROA_CLOUD_AZURE_CLIENT ? ask_client(out, c, err) : ask_managed(out, c, err);
}
