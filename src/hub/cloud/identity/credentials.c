/* SPDX-License-Identifier: Apache-2.0
 * credentials.c - finds the credentials for an object store: Triton's file, or the chain of the store. */
#include "hub/cloud/identity/credentials.h"

#include "hub/cloud/identity/take.h"
#include <string.h>

const char *proa_cloud_source_name(proa_cloud_source source)
{
#define SOURCE_NAME(name, text) [PROA_CLOUD_##name] = text,
    static const char *const names[] = {PROA_CLOUD_SOURCE_LIST(SOURCE_NAME)};
    return names[source];
}

/* ---- Triton's file: {"s3": {"": {...}, "s3://bucket": {...}}, "gs": {...: "PATH"}, "as": {...}} ---- */

static proa_status take_triton_s3(proa_cloud_credentials *c, const proa_json *j, proa_err *err)
{
    char profile[128];
    PROA_CLOUD_TAKE_MEMBER(c->key.id, j, "key_id");
    PROA_CLOUD_TAKE_MEMBER(c->key.secret, j, "secret_key");
    PROA_CLOUD_TAKE_MEMBER(c->region, j, "region");
    PROA_CLOUD_TAKE_MEMBER(c->key.token, j, "session_token");
    PROA_CLOUD_TAKE_MEMBER(profile, j, "profile");
    if (c->key.id[0]) return PROA_OK;
    return profile[0] ? proa_cloud_aws_profile(c, profile, err) : proa_cloud_aws_read(c, err);
}

static proa_status take_triton(proa_cloud_credentials *c, const proa_cloud_address *address,
                               const proa_json *j, proa_err *err)
{
    if (address->kind == PROA_CLOUD_S3) return take_triton_s3(c, j, err);
    if (address->kind == PROA_CLOUD_GCS) {
        char path[PROA_PATH_MAX];
        PROA_TRY(proa_cloud_take_text(path, sizeof path, proa_json_str(j), "the path of a key", err));
        return path[0] ? proa_cloud_google_file(c, path, err) : proa_cloud_google_read(c, err);
    }
    PROA_CLOUD_TAKE_MEMBER(c->key.id, j, "account_str");
    PROA_CLOUD_TAKE_MEMBER(c->key.secret, j, "account_key");
    return c->key.secret[0] ? PROA_OK : proa_cloud_azure_read(c, address->account, err);
}

/* The value of the longest key that begins the address; NULL: there is none. */
static const proa_json *longest_match(const proa_json *section, const char *address)
{
    const proa_json *best = NULL;
    size_t best_len = 0;
    for (proa_json_iter it = proa_json_begin(section); proa_json_next(&it);) {
        if (!proa_str_starts(proa_str_c(address), it.key) || (best && it.key.len <= best_len)) continue;
        best = it.value, best_len = it.key.len;
    }
    return best;
}

static proa_status read_triton(proa_cloud_credentials *c, const proa_cloud_address *address, const char *path,
                               proa_err *err)
{
    static const char *const sections[] = {
        [PROA_CLOUD_S3] = "s3", [PROA_CLOUD_GCS] = "gs", [PROA_CLOUD_AZURE] = "as"};
    proa_json *root = NULL;
    PROA_TRY(proa_json_load(&root, path, PROA_CLOUD_FILE_BYTES_MAX, err));
    const proa_json *best = longest_match(proa_json_get(root, sections[address->kind]), address->text);
    proa_status status = best ? take_triton(c, address, best, err) : PROA_OK;
    if (status != PROA_OK) proa_err_prefix(err, "'%.200s'", path);
    proa_json_free(root);
    return status;
}

/* The address of the store is not a secret, so it is read from the environment even if Triton's file is used. */
static proa_status read_endpoint(proa_cloud_credentials *c, proa_cloud_kind kind, proa_err *err)
{
    const char *emulator = proa_cloud_env("STORAGE_EMULATOR_HOST");
    if (kind == PROA_CLOUD_AZURE) PROA_CLOUD_TAKE_ENV(c->endpoint, "AZURE_STORAGE_SERVICE_ENDPOINT");
    if (kind == PROA_CLOUD_S3) {
        PROA_CLOUD_TAKE_ENV(c->endpoint, "AWS_ENDPOINT_URL");
        PROA_CLOUD_TAKE_ENV(c->endpoint, "AWS_ENDPOINT_URL_S3");
    }
    if (kind != PROA_CLOUD_GCS || !emulator) return PROA_OK;
    if (!strstr(emulator, "://"))
        return snprintf(c->endpoint, sizeof c->endpoint, "http://%.900s", emulator), PROA_OK;
    return proa_cloud_take_env(c->endpoint, sizeof c->endpoint, "STORAGE_EMULATOR_HOST", err);
}

proa_status proa_cloud_credentials_read(proa_cloud_credentials *out, const proa_cloud_address *address,
                                        proa_err *err)
{
    const char *triton = proa_cloud_env("TRITON_CLOUD_CREDENTIAL_PATH");
    memset(out, 0, sizeof *out);
    PROA_TRY(read_endpoint(out, address->kind, err));
    if (triton) PROA_TRY(read_triton(out, address, triton, err));
    else if (address->kind == PROA_CLOUD_S3) PROA_TRY(proa_cloud_aws_read(out, err));
    else if (address->kind == PROA_CLOUD_GCS) PROA_TRY(proa_cloud_google_read(out, err));
    else PROA_TRY(proa_cloud_azure_read(out, address->account, err));
    return PROA_OK;
}
