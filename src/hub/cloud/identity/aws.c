/* SPDX-License-Identifier: Apache-2.0
 * aws.c - credentials for S3, searched in the order of Amazon's tools: keys of the environment, a profile that assumes
 *         a role, a web identity, keys of the profile, the container's role, the instance's role. */
#include "base/file.h"
#include "hub/cloud/identity/credentials.h"
#include "hub/cloud/identity/take.h"
#include <stdlib.h>
#include <string.h>

const char *proa_cloud_aws_domain(const char *region)
{
    return strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
}

/* ---- the files: sections of "name = value" ---- */

typedef struct profile {
    bool found;
    proa_cloud_key key;
    char region[64], endpoint[1024];
    proa_cloud_role role;
    char source[128], credential_source[64]; /* profile or source of the keys that assume the role */
    char token_file[PROA_PATH_MAX];          /* or the token of the web identity that assumes it */
    bool mfa;
    const char *unread; /* the name of another source of credentials, which is not read; NULL: none */
} profile;

/* Whether a line is the section "[PROFILE]" or "[profile PROFILE]". */
static bool is_section(proa_str line, const char *name)
{
    proa_str text = proa_cloud_trim((proa_str){line.ptr + 1, line.len - 1});
    if (text.len && text.ptr[text.len - 1] == ']') text.len--;
    text = proa_cloud_trim(text);
    if (proa_str_starts(text, proa_str_c("profile ")))
        text = proa_cloud_trim((proa_str){text.ptr + 8, text.len - 8});
    return proa_str_is(text, name);
}

static void note_unread(profile *p, proa_str name)
{
    static const char *const names[] = {"credential_process", "sso_session", "sso_start_url"};
    p->mfa |= proa_str_is(name, "mfa_serial");
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_str_is(name, names[i])) p->unread = names[i];
}

static proa_status take_line(profile *p, proa_str line, const char *path, proa_err *err)
{
    const char *equals = memchr(line.ptr, '=', line.len);
    if (!equals) return PROA_OK;
    proa_str name = proa_cloud_trim((proa_str){line.ptr, (size_t)(equals - line.ptr)});
    proa_str value = {equals + 1, line.len - (size_t)(equals + 1 - line.ptr)};
    const struct {
        const char *name;
        char *out;
        size_t size;
    } known[] = {{"aws_access_key_id", p->key.id, sizeof p->key.id},
                 {"aws_secret_access_key", p->key.secret, sizeof p->key.secret},
                 {"aws_session_token", p->key.token, sizeof p->key.token},
                 {"region", p->region, sizeof p->region},
                 {"endpoint_url", p->endpoint, sizeof p->endpoint},
                 {"role_arn", p->role.arn, sizeof p->role.arn},
                 {"role_session_name", p->role.session, sizeof p->role.session},
                 {"external_id", p->role.external_id, sizeof p->role.external_id},
                 {"source_profile", p->source, sizeof p->source},
                 {"credential_source", p->credential_source, sizeof p->credential_source},
                 {"web_identity_token_file", p->token_file, sizeof p->token_file}};
    note_unread(p, name);
    for (size_t i = 0; i < PROA_COUNT(known); i++)
        if (proa_str_is(name, known[i].name) && !known[i].out[0])
            return proa_cloud_take_text(known[i].out, known[i].size, value, path, err);
    return PROA_OK;
}

/* Fills the fields that are still empty from one file. */
static proa_status read_file(profile *p, const char *path, const char *name, proa_err *err)
{
    proa_buf text;
    bool inside = false;
    if (!proa_file_exists(path)) return PROA_OK;
    proa_status status = proa_file_read(&text, path, PROA_CLOUD_FILE_BYTES_MAX, err);
    proa_str rest = proa_buf_view(&text), line;
    while (status == PROA_OK && proa_str_next_line(&rest, &line)) {
        line = proa_cloud_trim(line);
        if (!line.len || line.ptr[0] == '#' || line.ptr[0] == ';') continue;
        if (line.ptr[0] == '[') inside = is_section(line, name), p->found |= inside;
        else if (inside) status = take_line(p, line, path, err);
    }
    proa_buf_release(&text);
    return status;
}

static proa_status read_profile(profile *p, const char *name, bool required, proa_err *err)
{
    static const char *const files[][2] = {{"AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"},
                                           {"AWS_CONFIG_FILE", ".aws/config"}};
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < PROA_COUNT(files); i++) {
        char path[PROA_PATH_MAX];
        const char *given = proa_cloud_env(files[i][0]);
        if (given) snprintf(path, sizeof path, "%s", given);
        else PROA_TRY(proa_cloud_home_path(path, files[i][1], err));
        PROA_TRY(read_file(p, path, name, err));
    }
    if (p->found || !required) return PROA_OK;
    return PROA_FAIL(err, NOT_FOUND, "neither ~/.aws/credentials nor ~/.aws/config has the profile '%.100s'",
                     name);
}

/* ---- the services of the machine ---- */

static proa_status use_container(proa_cloud_credentials *c, proa_err *err)
{
    const char *relative = proa_cloud_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    char path[sizeof c->url - 32];
    c->source = PROA_CLOUD_AWS_CONTAINER;
    PROA_CLOUD_TAKE_ENV(c->token_file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    PROA_CLOUD_TAKE_ENV(c->authorization, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (!relative)
        return proa_cloud_take_env(c->url, sizeof c->url, "AWS_CONTAINER_CREDENTIALS_FULL_URI", err);
    PROA_CLOUD_TAKE_ENV(path, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    if (path[0] != '/')
        return PROA_FAIL(err, INVALID, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with '/'");
    snprintf(c->url, sizeof c->url, "http://169.254.170.2%s", path);
    return PROA_OK;
}

static proa_status use_instance(proa_cloud_credentials *c, proa_err *err)
{
    char mode[8] = "";
    c->source = PROA_CLOUD_AWS_INSTANCE;
    PROA_CLOUD_TAKE_ENV(mode, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    bool ipv6 = mode[0] == 'I' || mode[0] == 'i' ? mode[3] == '6' : false;
    snprintf(c->url, sizeof c->url, "%s", ipv6 ? "http://[fd00:ec2::254]" : "http://169.254.169.254");
    return proa_cloud_take_env(c->url, sizeof c->url, "AWS_EC2_METADATA_SERVICE_ENDPOINT", err);
}

static bool has_container(void)
{
    return proa_cloud_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
           proa_cloud_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static proa_status use_services(proa_cloud_credentials *c, proa_err *err)
{
    const char *disabled = proa_cloud_env("AWS_EC2_METADATA_DISABLED");
    if (has_container()) return use_container(c, err);
    if (disabled &&
        (strcmp(disabled, "true") == 0 || strcmp(disabled, "True") == 0 || strcmp(disabled, "TRUE") == 0))
        return PROA_OK;
    return use_instance(c, err);
}

/* ---- the chain ---- */

static proa_status use_web_identity(proa_cloud_credentials *c, const char *file, const proa_cloud_role *role,
                                    proa_err *err)
{
    c->source = PROA_CLOUD_AWS_WEB_IDENTITY;
    c->web_role = *role;
    if (!role->arn[0])
        return PROA_FAIL(err, INVALID, "a web identity's token is given, but no role: AWS_ROLE_ARN");
    return proa_cloud_take_text(c->token_file, sizeof c->token_file, proa_str_c(file), "the path of a token",
                                err);
}

static proa_status take_env_key(proa_cloud_key *key, proa_err *err)
{
    PROA_CLOUD_TAKE_ENV(key->id, "AWS_ACCESS_KEY_ID");
    PROA_CLOUD_TAKE_ENV(key->secret, "AWS_SECRET_ACCESS_KEY");
    if (!key->id[0] && !key->secret[0]) return PROA_OK;
    if (!key->id[0] || !key->secret[0])
        return PROA_FAIL(err, INVALID, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together");
    return proa_cloud_take_env(key->token, sizeof key->token, "AWS_SESSION_TOKEN", err);
}

/* Takes the keys that assume the role of a profile from another profile. */
static proa_status use_source_profile(proa_cloud_credentials *c, const char *name, proa_err *err)
{
    profile p;
    PROA_TRY(read_profile(&p, name, true, err));
    c->base = p.key;
    if (p.key.id[0] && p.key.secret[0]) return PROA_OK;
    if (p.token_file[0]) return use_web_identity(c, p.token_file, &p.role, err);
    return PROA_FAIL(err, UNSUPPORTED, "the source_profile '%.100s' has neither keys nor a web identity", name);
}

static proa_status use_credential_source(proa_cloud_credentials *c, const char *name, proa_err *err)
{
    if (strcmp(name, "Ec2InstanceMetadata") == 0) return use_instance(c, err);
    if (strcmp(name, "EcsContainer") == 0 && has_container()) return use_container(c, err);
    if (strcmp(name, "Environment") == 0) PROA_TRY(take_env_key(&c->base, err));
    if (c->base.id[0]) return PROA_OK;
    return PROA_FAIL(err, NOT_FOUND, "the credential_source '%.60s' of a profile has no credentials", name);
}

static proa_status use_role(proa_cloud_credentials *c, const profile *p, const char *name, proa_err *err)
{
    if (p->mfa)
        return PROA_FAIL(err, UNSUPPORTED,
                         "the profile '%.100s' has mfa_serial: its role needs a person's code", name);
    c->role = p->role;
    if (p->source[0]) return use_source_profile(c, p->source, err);
    return use_credential_source(c, p->credential_source, err);
}

/* required: the profile was chosen explicitly, so it must exist. */
static proa_status use_profile(proa_cloud_credentials *c, const char *name, bool required, proa_err *err)
{
    const char *token_file = proa_cloud_env("AWS_WEB_IDENTITY_TOKEN_FILE");
    profile p;
    PROA_TRY(read_profile(&p, name, required, err));
    if (!c->region[0]) memcpy(c->region, p.region, sizeof p.region);
    if (!c->endpoint[0]) memcpy(c->endpoint, p.endpoint, sizeof p.endpoint);
    if (p.role.arn[0] && (p.source[0] || p.credential_source[0])) return use_role(c, &p, name, err);
    if (token_file) {
        PROA_CLOUD_TAKE_ENV(p.role.arn, "AWS_ROLE_ARN");
        PROA_CLOUD_TAKE_ENV(p.role.session, "AWS_ROLE_SESSION_NAME");
        return use_web_identity(c, token_file, &p.role, err);
    }
    if (p.token_file[0]) return use_web_identity(c, p.token_file, &p.role, err);
    c->key = p.key;
    if (p.key.id[0] && p.key.secret[0]) return PROA_OK;
    if (required && p.unread)
        return PROA_FAIL(err, UNSUPPORTED, "the profile '%.100s' has %s, which is not read", name, p.unread);
    return use_services(c, err);
}

proa_status proa_cloud_aws_profile(proa_cloud_credentials *c, const char *name, proa_err *err)
{
    return use_profile(c, name, true, err);
}

proa_status proa_cloud_aws_read(proa_cloud_credentials *c, proa_err *err)
{
    const char *name = proa_cloud_env("AWS_PROFILE");
    if (!c->region[0]) {
        PROA_CLOUD_TAKE_ENV(c->region, "AWS_REGION");
        PROA_CLOUD_TAKE_ENV(c->region, "AWS_DEFAULT_REGION");
    }
    PROA_TRY(take_env_key(&c->key, err));
    if (c->key.id[0]) return PROA_OK;
    return use_profile(c, name ? name : "default", name != NULL, err);
}
