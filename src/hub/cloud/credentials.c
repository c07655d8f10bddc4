/* SPDX-License-Identifier: Apache-2.0
 * credentials.c - reads who asks an object store. Errors name a variable or a file, never what it holds. */
#include "hub/cloud/credentials.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20 };

static const char *env_text(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* Copies a text without the white space around it. It goes into headers, so it may hold no control character. */
static proa_status take_text(char *out, size_t size, proa_str text, const char *from, proa_err *err)
{
    while (text.len && (unsigned char)text.ptr[0] <= ' ') text.ptr++, text.len--;
    while (text.len && (unsigned char)text.ptr[text.len - 1] <= ' ') text.len--;
    if (text.len >= size) return PROA_FAIL(err, LIMIT, "%s is longer than %zu bytes", from, size - 1);
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' || (unsigned char)text.ptr[i] > '~')
            return PROA_FAIL(err, INVALID, "%s has a character that it cannot have", from);
    if (text.len) memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return PROA_OK;
}

static proa_status take_env(char *out, size_t size, const char *name, proa_err *err)
{
    const char *value = env_text(name);
    return value ? take_text(out, size, proa_str_c(value), name, err) : PROA_OK;
}

static proa_status take_member(char *out, size_t size, const proa_json *object, const char *key, proa_err *err)
{
    return take_text(out, size, proa_json_str(proa_json_get(object, key)), key, err);
}

#define TAKE_ENV(field, name)           PROA_TRY(take_env(field, sizeof(field), name, err))
#define TAKE_MEMBER(field, object, key) PROA_TRY(take_member(field, sizeof(field), object, key, err))

static proa_status home_path(char out[PROA_PATH_MAX], const char *name, proa_err *err)
{
    const char *home = env_text("HOME");
    return proa_path_join(out, home ? home : "/", name, err);
}

/* ---- Amazon's files: sections of "name = value" ---- */

static proa_str trim_text(proa_str s)
{
    while (s.len && (unsigned char)s.ptr[0] <= ' ') s.ptr++, s.len--;
    while (s.len && (unsigned char)s.ptr[s.len - 1] <= ' ') s.len--;
    return s;
}

/* Whether a line is the section "[PROFILE]" or "[profile PROFILE]". */
static bool is_section(proa_str line, const char *profile)
{
    proa_str name = trim_text((proa_str){line.ptr + 1, line.len - 1});
    if (name.len && name.ptr[name.len - 1] == ']') name.len--;
    name = trim_text(name);
    if (proa_str_starts(name, proa_str_c("profile ")))
        name = trim_text((proa_str){name.ptr + 8, name.len - 8});
    return proa_str_is(name, profile);
}

static proa_status take_profile_line(proa_cloud_credentials *c, proa_str line, const char *path, proa_err *err)
{
    const char *equals = memchr(line.ptr, '=', line.len);
    if (!equals) return PROA_OK;
    proa_str name = trim_text((proa_str){line.ptr, (size_t)(equals - line.ptr)});
    proa_str value = trim_text((proa_str){equals + 1, line.len - (size_t)(equals + 1 - line.ptr)});
    const struct {
        const char *name;
        char *out;
        size_t size;
    } known[] = {{"aws_access_key_id", c->key_id, sizeof c->key_id},
                 {"aws_secret_access_key", c->secret, sizeof c->secret},
                 {"aws_session_token", c->token, sizeof c->token},
                 {"region", c->region, sizeof c->region},
                 {"endpoint_url", c->endpoint, sizeof c->endpoint}};
    for (size_t i = 0; i < PROA_COUNT(known); i++)
        if (proa_str_is(name, known[i].name) && !known[i].out[0])
            return take_text(known[i].out, known[i].size, value, path, err);
    return PROA_OK;
}

/* Fills what is not known yet from one profile of a file. *found: it has the profile. */
static proa_status read_profile(proa_cloud_credentials *c, bool *found, const char *path, const char *profile,
                                proa_err *err)
{
    proa_buf text;
    bool inside = false;
    if (!proa_file_exists(path)) return PROA_OK;
    proa_status status = proa_file_read(&text, path, FILE_BYTES_MAX, err);
    proa_str rest = proa_buf_view(&text), line;
    while (status == PROA_OK && proa_str_next_line(&rest, &line)) {
        line = trim_text(line);
        if (!line.len || line.ptr[0] == '#' || line.ptr[0] == ';') continue;
        if (line.ptr[0] == '[') inside = is_section(line, profile), *found |= inside;
        else if (inside) status = take_profile_line(c, line, path, err);
    }
    proa_buf_release(&text);
    return status;
}

static proa_status read_profiles(proa_cloud_credentials *c, const char *profile, bool required, proa_err *err)
{
    static const char *const files[][2] = {{"AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"},
                                           {"AWS_CONFIG_FILE", ".aws/config"}};
    bool found = false;
    for (size_t i = 0; i < PROA_COUNT(files); i++) {
        char path[PROA_PATH_MAX];
        const char *given = env_text(files[i][0]);
        if (given) snprintf(path, sizeof path, "%s", given);
        else PROA_TRY(home_path(path, files[i][1], err));
        PROA_TRY(read_profile(c, &found, path, profile, err));
    }
    if (found || !required) return PROA_OK;
    return PROA_FAIL(err, NOT_FOUND, "neither ~/.aws/credentials nor ~/.aws/config has the profile '%.100s'",
                     profile);
}

static proa_status read_s3(proa_cloud_credentials *c, proa_err *err)
{
    const char *profile = env_text("AWS_PROFILE");
    TAKE_ENV(c->region, "AWS_REGION");
    TAKE_ENV(c->region, "AWS_DEFAULT_REGION");
    TAKE_ENV(c->key_id, "AWS_ACCESS_KEY_ID");
    TAKE_ENV(c->secret, "AWS_SECRET_ACCESS_KEY");
    if (c->key_id[0] || c->secret[0]) {
        TAKE_ENV(c->token, "AWS_SESSION_TOKEN");
        if (!c->key_id[0] || !c->secret[0])
            return PROA_FAIL(err, INVALID, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together");
        return PROA_OK;
    }
    return read_profiles(c, profile ? profile : "default", profile != NULL, err);
}

/* ---- Google ---- */

static proa_status take_service_account(proa_cloud_credentials *c, const proa_json *j, const char *path,
                                        proa_err *err)
{
    proa_str key = proa_json_str(proa_json_get(j, "private_key")),
             type = proa_json_str(proa_json_get(j, "type"));
    TAKE_MEMBER(c->token_uri, j, "token_uri");
    if (proa_str_is(type, "authorized_user")) {
        TAKE_MEMBER(c->client, j, "client_id");
        TAKE_MEMBER(c->client_secret, j, "client_secret");
        TAKE_MEMBER(c->refresh, j, "refresh_token");
        if (!c->token_uri[0])
            snprintf(c->token_uri, sizeof c->token_uri, "https://oauth2.googleapis.com/token");
        return c->refresh[0] ? PROA_OK : PROA_FAIL(err, INVALID, "'%.200s' has no refresh_token", path);
    }
    if (!proa_str_is(type, "service_account"))
        return PROA_FAIL(err, UNSUPPORTED,
                         "'%.200s' is of type '%.*s', must be service_account or authorized_user", path,
                         type.len < 40 ? (int)type.len : 40, type.ptr ? type.ptr : "");
    TAKE_MEMBER(c->email, j, "client_email");
    if (key.len >= sizeof c->private_key)
        return PROA_FAIL(err, LIMIT, "the private_key of '%.200s' is longer than %zu bytes", path,
                         sizeof c->private_key - 1);
    if (key.len) memcpy(c->private_key, key.ptr, key.len);
    if (c->email[0] && c->private_key[0] && c->token_uri[0]) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'%.200s' must have client_email, private_key and token_uri", path);
}

static proa_status read_google_file(proa_cloud_credentials *c, const char *path, proa_err *err)
{
    proa_json *j = NULL;
    PROA_TRY(proa_json_load(&j, path, FILE_BYTES_MAX, err));
    proa_status status = take_service_account(c, j, path, err);
    proa_json_free(j);
    return status;
}

static proa_status read_google(proa_cloud_credentials *c, proa_err *err)
{
    const char *path = env_text("GOOGLE_APPLICATION_CREDENTIALS");
    TAKE_ENV(c->token, "GOOGLE_OAUTH_ACCESS_TOKEN");
    return path && !c->token[0] ? read_google_file(c, path, err) : PROA_OK;
}

/* ---- Azure ---- */

static proa_status read_azure(proa_cloud_credentials *c, const proa_cloud_address *address, proa_err *err)
{
    TAKE_ENV(c->key_id, "AZURE_STORAGE_ACCOUNT");
    TAKE_ENV(c->secret, "AZURE_STORAGE_KEY");
    TAKE_ENV(c->token, "AZURE_STORAGE_SAS_TOKEN");
    if (!c->key_id[0]) snprintf(c->key_id, sizeof c->key_id, "%s", address->account);
    return PROA_OK;
}

/* ---- Triton's file: {"s3": {"": {...}, "s3://bucket": {...}}, "gs": {...: "PATH"}, "as": {...}} ---- */

static proa_status take_triton(proa_cloud_credentials *c, const proa_cloud_address *address,
                               const proa_json *j, proa_err *err)
{
    if (address->kind == PROA_CLOUD_GCS) {
        char path[PROA_PATH_MAX];
        PROA_TRY(take_text(path, sizeof path, proa_json_str(j), "the path of a key", err));
        return path[0] ? read_google_file(c, path, err) : PROA_OK;
    }
    if (address->kind == PROA_CLOUD_AZURE) {
        TAKE_MEMBER(c->key_id, j, "account_str");
        TAKE_MEMBER(c->secret, j, "account_key");
        return PROA_OK;
    }
    char profile[128];
    TAKE_MEMBER(c->key_id, j, "key_id");
    TAKE_MEMBER(c->secret, j, "secret_key");
    TAKE_MEMBER(c->region, j, "region");
    TAKE_MEMBER(c->token, j, "session_token");
    TAKE_MEMBER(profile, j, "profile");
    return profile[0] && !c->key_id[0] ? read_profiles(c, profile, true, err) : PROA_OK;
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
    PROA_TRY(proa_json_load(&root, path, FILE_BYTES_MAX, err));
    const proa_json *best = longest_match(proa_json_get(root, sections[address->kind]), address->text);
    proa_status status = best ? take_triton(c, address, best, err) : PROA_OK;
    if (status != PROA_OK) proa_err_prefix(err, "'%.200s'", path);
    proa_json_free(root);
    return status;
}

/* Where the store is is no secret: it is read beside Triton's file too. */
static proa_status read_endpoint(proa_cloud_credentials *c, proa_cloud_kind kind, proa_err *err)
{
    const char *emulator = env_text("STORAGE_EMULATOR_HOST");
    if (kind == PROA_CLOUD_AZURE) TAKE_ENV(c->endpoint, "AZURE_STORAGE_SERVICE_ENDPOINT");
    if (kind == PROA_CLOUD_S3) {
        TAKE_ENV(c->endpoint, "AWS_ENDPOINT_URL");
        TAKE_ENV(c->endpoint, "AWS_ENDPOINT_URL_S3");
    }
    if (kind != PROA_CLOUD_GCS || !emulator) return PROA_OK;
    if (!strstr(emulator, "://"))
        return snprintf(c->endpoint, sizeof c->endpoint, "http://%.900s", emulator), PROA_OK;
    return take_env(c->endpoint, sizeof c->endpoint, "STORAGE_EMULATOR_HOST", err);
}

proa_status proa_cloud_credentials_read(proa_cloud_credentials *out, const proa_cloud_address *address,
                                        proa_err *err)
{
    const char *triton = env_text("TRITON_CLOUD_CREDENTIAL_PATH");
    memset(out, 0, sizeof *out);
    PROA_TRY(read_endpoint(out, address->kind, err));
    if (triton) PROA_TRY(read_triton(out, address, triton, err));
    else if (address->kind == PROA_CLOUD_S3) PROA_TRY(read_s3(out, err));
    else if (address->kind == PROA_CLOUD_GCS) PROA_TRY(read_google(out, err));
    else PROA_TRY(read_azure(out, address, err));
    if (!out->region[0]) snprintf(out->region, sizeof out->region, "us-east-1");
    if (out->token[0] == '?') memmove(out->token, out->token + 1, strlen(out->token));
    return PROA_OK;
}
