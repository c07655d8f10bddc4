/* SPDX-License-Identifier: Apache-2.0
 * fetch_aws.c - keys of Amazon's roles.
 *
 * web identity   docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
 * role           docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
 * container      docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
 * instance       docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html; only version
 *                2, whose token cannot be requested from another machine */
#include "hub/cloud/identity/ask.h"
#include "hub/cloud/identity/fetch.h"
#include "hub/cloud/identity/grant.h"
#include "hub/cloud/sign.h"
#include "hub/cloud/identity/take.h"
#include "hub/url.h"
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = PROA_CLOUD_TOKEN_MAX + 64 };

/* ---- STS ---- */

static void sts_url(char *out, size_t size, const char *region)
{
    const char *given = proa_cloud_env("AWS_ENDPOINT_URL_STS");
    if (!given) given = proa_cloud_env("AWS_ENDPOINT_URL");
    if (given) snprintf(out, size, "%s%s", given, given[strlen(given) - 1] == '/' ? "" : "/");
    else snprintf(out, size, "https://sts.%s.%s/", region, proa_cloud_aws_domain(region));
}

static const char *region_of(const proa_cloud_credentials *c)
{
    return c->region[0] ? c->region : "us-east-1";
}

static void begin_form(proa_buf *form, const char *action, const proa_cloud_role *role)
{
    proa_buf_printf(form, "Action=%s&Version=2011-06-15&RoleArn=", action);
    proa_hub_escape(form, role->arn, false);
    proa_buf_printf(form, "&RoleSessionName=");
    proa_hub_escape(form, role->session[0] ? role->session : "proa", false);
}

/* Sends a form and reads the key; `headers` are lines with a NUL after each. */
static proa_status ask_sts(proa_cloud_key *out, const char *url, const proa_buf *form,
                           const proa_buf *headers, proa_err *err)
{
    proa_cloud_ask ask = {.url = url, .form = form->ptr};
    proa_buf body;
    size_t count = 0;
    for (size_t at = 0; at < headers->len && count < PROA_CLOUD_ASK_HEADERS; at += strlen(headers->ptr + at) + 1)
        ask.headers[count++] = headers->ptr + at;
    proa_buf_init(&body, PROA_CLOUD_GRANT_BYTES_MAX);
    proa_status status = proa_cloud_ask_send(&body, &ask, err);
    if (status == PROA_OK) status = proa_cloud_grant_sts(out, proa_buf_view(&body), err);
    proa_buf_release(&body);
    return status;
}

static proa_status assume_with_token(proa_cloud_key *out, const proa_cloud_credentials *c, proa_err *err)
{
    char url[1024];
    proa_buf form, token, none;
    sts_url(url, sizeof url, region_of(c));
    proa_buf_init(&form, PROA_CLOUD_GRANT_BYTES_MAX);
    proa_buf_init(&token, PROA_CLOUD_IDENTITY_BYTES_MAX);
    proa_buf_init(&none, 1);
    proa_status status = proa_cloud_take_file(&token, c->token_file, err);
    if (status == PROA_OK) {
        begin_form(&form, "AssumeRoleWithWebIdentity", &c->web_role);
        proa_buf_printf(&form, "&WebIdentityToken=");
        proa_hub_escape(&form, token.ptr, false);
        status = ask_sts(out, url, &form, &none, err);
    }
    proa_buf_release(&form), proa_buf_release(&token), proa_buf_release(&none);
    return status;
}

/* Replaces `key`, which signs the request, with the key of the role. */
static proa_status assume_role(proa_cloud_key *key, const proa_cloud_credentials *c,
                               const proa_crypto *crypto, proa_err *err)
{
    char url[1024];
    proa_buf form, headers;
    sts_url(url, sizeof url, region_of(c));
    proa_buf_init(&form, PROA_CLOUD_GRANT_BYTES_MAX);
    proa_buf_init(&headers, PROA_CLOUD_GRANT_BYTES_MAX);
    begin_form(&form, "AssumeRole", &c->role);
    if (c->role.external_id[0]) {
        proa_buf_printf(&form, "&ExternalId=");
        proa_hub_escape(&form, c->role.external_id, false);
    }
    proa_cloud_request r = {.method = "POST",
                            .url = url,
                            .now = time(NULL),
                            .service = "sts",
                            .region = region_of(c),
                            .body = proa_buf_view(&form)};
    proa_cloud_sign_aws(&headers, crypto, key, &r);
    proa_status status = ask_sts(key, url, &form, &headers, err);
    proa_buf_release(&form), proa_buf_release(&headers);
    return status;
}

/* ---- the container ---- */

static proa_status authorize_container(proa_buf *line, const proa_cloud_credentials *c, proa_err *err)
{
    proa_buf_printf(line, "Authorization: %s", c->token_file[0] ? "" : c->authorization);
    return c->token_file[0] ? proa_cloud_take_file(line, c->token_file, err) : PROA_OK;
}

static proa_status ask_container(proa_cloud_key *out, const proa_cloud_credentials *c, proa_err *err)
{
    /* ECS, and EKS Pod Identity */
    static const char *const hosts[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", NULL};
    proa_buf line, body;
    if (!proa_cloud_is_near(c->url, hosts))
        return PROA_FAIL(err, INVALID,
                         "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or http to this machine "
                         "or the container's services, 169.254.170.2, 169.254.170.23 and fd00:ec2::23");
    proa_buf_init(&line, PROA_CLOUD_IDENTITY_BYTES_MAX + 64);
    proa_buf_init(&body, PROA_CLOUD_GRANT_BYTES_MAX);
    proa_status status = authorize_container(&line, c, err);
    bool authorized = c->token_file[0] || c->authorization[0];
    proa_cloud_ask ask = {
        .url = c->url, .headers = {"Accept: application/json", authorized ? line.ptr : NULL}, .local = true};
    if (status == PROA_OK) status = proa_cloud_ask_send(&body, &ask, err);
    if (status == PROA_OK) status = proa_cloud_grant_aws(out, proa_buf_view(&body), err);
    proa_buf_release(&line), proa_buf_release(&body);
    return status;
}

/* ---- the instance ---- */

/* Appends the value at a path, read with the session's token. token NULL: requests a token, with PUT. */
static proa_status ask_instance(proa_buf *body, const proa_cloud_credentials *c, const char *path,
                                const char *token, proa_err *err)
{
    char url[sizeof c->url + 256], line[HEADER_MAX];
    size_t root = strlen(c->url);
    while (root && c->url[root - 1] == '/') root--;
    snprintf(url, sizeof url, "%.*s/latest/%s", (int)root, c->url, path);
    if (token) snprintf(line, sizeof line, "X-aws-ec2-metadata-token: %s", token);
    else snprintf(line, sizeof line, "X-aws-ec2-metadata-token-ttl-seconds: 21600");
    proa_cloud_ask ask = {.url = url, .method = token ? NULL : "PUT", .headers = {line}, .local = true};
    return proa_cloud_ask_send(body, &ask, err);
}

/* A line of the instance's response, which may contain only these characters. */
static proa_status ask_word(char *out, size_t size, const proa_cloud_credentials *c, const char *path,
                            const char *token, proa_err *err)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+=,.@_-/";
    proa_buf body;
    proa_str line = {NULL, 0}, rest;
    proa_buf_init(&body, PROA_CLOUD_GRANT_BYTES_MAX);
    proa_status status = ask_instance(&body, c, path, token, err);
    rest = proa_buf_view(&body);
    bool some = proa_str_next_line(&rest, &line);
    if (status == PROA_OK) status = proa_cloud_take_text(out, size, some ? line : rest, path, err);
    proa_buf_release(&body);
    if (status == PROA_OK && (!out[0] || out[strspn(out, word)]))
        return PROA_FAIL(err, CORRUPT, "the instance's metadata has no word at %s", path);
    return status;
}

static const char roles_path[] = "meta-data/iam/security-credentials/";

static proa_status ask_instance_key(proa_cloud_key *out, const proa_cloud_credentials *c, proa_err *err)
{
    char token[PROA_CLOUD_TOKEN_MAX], role[129], path[sizeof roles_path + sizeof role];
    proa_buf body;
    PROA_TRY(ask_word(token, sizeof token, c, "api/token", NULL, err));
    PROA_TRY(ask_word(role, sizeof role, c, roles_path, token, err));
    if (strchr(role, '/')) return PROA_FAIL(err, CORRUPT, "the name of the instance's role has a '/'");
    snprintf(path, sizeof path, "%s%s", roles_path, role);
    proa_buf_init(&body, PROA_CLOUD_GRANT_BYTES_MAX);
    proa_status status = ask_instance(&body, c, path, token, err);
    if (status == PROA_OK) status = proa_cloud_grant_aws(out, proa_buf_view(&body), err);
    proa_buf_release(&body);
    return status;
}

void proa_cloud_fetch_region(char *out, size_t size, const proa_cloud_credentials *c)
{
    char token[PROA_CLOUD_TOKEN_MAX], region[64];
    if (ask_word(token, sizeof token, c, "api/token", NULL, NULL) != PROA_OK) return;
    if (ask_word(region, sizeof region, c, "meta-data/placement/region", token, NULL) != PROA_OK) return;
    if (!region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")]) snprintf(out, size, "%s", region);
}

/* ---- all ---- */

proa_status proa_cloud_fetch_aws(proa_cloud_key *out, const proa_cloud_credentials *c,
                                 const proa_crypto *crypto, proa_err *err)
{
    switch (c->source) {
    case PROA_CLOUD_AWS_WEB_IDENTITY: PROA_TRY(assume_with_token(out, c, err)); break;
    case PROA_CLOUD_AWS_CONTAINER: PROA_TRY(ask_container(out, c, err)); break;
    case PROA_CLOUD_AWS_INSTANCE: PROA_TRY(ask_instance_key(out, c, err)); break;
    default: *out = c->base;
    }
    return c->role.arn[0] ? assume_role(out, c, crypto, err) : PROA_OK;
}
