/* SPDX-License-Identifier: Apache-2.0
 * google.c - credentials for Google Cloud Storage, in the order of its "application default credentials": a token of
 *            the environment, a file, the file of `gcloud auth application-default login`, the instance's service
 *            account. */
#include "base/file.h"
#include "hub/cloud/identity/credentials.h"
#include "hub/cloud/identity/take.h"
#include <string.h>

static proa_status take_user(proa_cloud_credentials *c, const proa_json *j, const char *path, proa_err *err)
{
    c->source = PROA_CLOUD_GOOGLE_USER;
    PROA_CLOUD_TAKE_MEMBER(c->client, j, "client_id");
    PROA_CLOUD_TAKE_MEMBER(c->client_secret, j, "client_secret");
    PROA_CLOUD_TAKE_MEMBER(c->refresh, j, "refresh_token");
    if (!c->url[0]) snprintf(c->url, sizeof c->url, "https://oauth2.googleapis.com/token");
    return c->refresh[0] ? PROA_OK : PROA_FAIL(err, INVALID, "'%.200s' has no refresh_token", path);
}

static proa_status take_service_account(proa_cloud_credentials *c, const proa_json *j, const char *path,
                                        proa_err *err)
{
    proa_str key = proa_json_str(proa_json_get(j, "private_key"));
    c->source = PROA_CLOUD_GOOGLE_KEY;
    PROA_CLOUD_TAKE_MEMBER(c->email, j, "client_email");
    if (key.len >= sizeof c->private_key)
        return PROA_FAIL(err, LIMIT, "the private_key of '%.200s' is longer than %zu bytes", path,
                         sizeof c->private_key - 1);
    if (key.len) memcpy(c->private_key, key.ptr, key.len);
    if (c->email[0] && c->private_key[0] && c->url[0]) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'%.200s' must have client_email, private_key and token_uri", path);
}

/* Workload identity federation: the token of an external identity, from a file, is exchanged for one of Google's. */
static proa_status take_federated(proa_cloud_credentials *c, const proa_json *j, const char *path, proa_err *err)
{
    const proa_json *source = proa_json_get(j, "credential_source"),
                    *format = proa_json_get(source, "format");
    char type[16];
    c->source = PROA_CLOUD_GOOGLE_FEDERATED;
    PROA_CLOUD_TAKE_MEMBER(c->url, j, "token_url");
    PROA_CLOUD_TAKE_MEMBER(c->audience, j, "audience");
    PROA_CLOUD_TAKE_MEMBER(c->token_type, j, "subject_token_type");
    PROA_CLOUD_TAKE_MEMBER(c->impersonate, j, "service_account_impersonation_url");
    PROA_CLOUD_TAKE_MEMBER(c->token_file, source, "file");
    PROA_CLOUD_TAKE_MEMBER(type, format, "type");
    if (strcmp(type, "json") == 0) PROA_CLOUD_TAKE_MEMBER(c->token_field, format, "subject_token_field_name");
    if (!c->token_file[0])
        return PROA_FAIL(err, UNSUPPORTED,
                         "the credential_source of '%.200s' is no file, which alone is read", path);
    if (c->url[0] && c->audience[0] && c->token_type[0] && (c->token_field[0] || strcmp(type, "json") != 0))
        return PROA_OK;
    return PROA_FAIL(err, INVALID, "'%.200s' must have audience, subject_token_type and token_url", path);
}

static proa_status take_file(proa_cloud_credentials *c, const proa_json *j, const char *path, proa_err *err)
{
    proa_str type = proa_json_str(proa_json_get(j, "type"));
    PROA_CLOUD_TAKE_MEMBER(c->url, j, "token_uri");
    if (proa_str_is(type, "authorized_user")) return take_user(c, j, path, err);
    if (proa_str_is(type, "service_account")) return take_service_account(c, j, path, err);
    if (proa_str_is(type, "external_account")) return take_federated(c, j, path, err);
    return PROA_FAIL(
        err, UNSUPPORTED,
        "'%.200s' is of type '%.*s', must be service_account, authorized_user or external_account", path,
        type.len < 40 ? (int)type.len : 40, type.ptr ? type.ptr : "");
}

proa_status proa_cloud_google_file(proa_cloud_credentials *c, const char *path, proa_err *err)
{
    proa_json *j = NULL;
    PROA_TRY(proa_json_load(&j, path, PROA_CLOUD_FILE_BYTES_MAX, err));
    proa_status status = take_file(c, j, path, err);
    proa_json_free(j);
    return status;
}

static proa_status use_instance(proa_cloud_credentials *c, proa_err *err)
{
    const char *off = proa_cloud_env("NO_GCE_CHECK");
    char host[256] = "169.254.169.254";
    if (off && strcmp(off, "true") == 0) return PROA_OK;
    PROA_CLOUD_TAKE_ENV(host, "GCE_METADATA_HOST");
    snprintf(c->url, sizeof c->url, "http://%s", host);
    c->source = PROA_CLOUD_GOOGLE_INSTANCE;
    return PROA_OK;
}

proa_status proa_cloud_google_read(proa_cloud_credentials *c, proa_err *err)
{
    static const char name[] = "application_default_credentials.json";
    const char *given = proa_cloud_env("GOOGLE_APPLICATION_CREDENTIALS"),
               *config = proa_cloud_env("CLOUDSDK_CONFIG");
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX];
    PROA_CLOUD_TAKE_ENV(c->key.token, "GOOGLE_OAUTH_ACCESS_TOKEN");
    if (c->key.token[0]) return PROA_OK;
    if (given) return proa_cloud_google_file(c, given, err);
    PROA_TRY(proa_cloud_home_path(folder, ".config/gcloud", err));
    PROA_TRY(proa_path_join(path, config ? config : folder, name, err));
    return proa_file_exists(path) ? proa_cloud_google_file(c, path, err) : use_instance(c, err);
}
