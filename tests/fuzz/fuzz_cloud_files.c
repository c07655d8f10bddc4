/* SPDX-License-Identifier: Apache-2.0
 * Files with credentials of object stores (files.h): Amazon's INI files, Google's JSON, Triton's. The first byte picks
 * the store, and whether Triton's file is used. What is read can be part of a header, or there is an error. */
#include "files.h"
#include "hub/cloud/identity/credentials.h"

static const char *const names[] = {"config", "credentials", "google.json", "triton.json"};
static const fuzz_files files = {names, PROA_COUNT(names)};

static void name_file(const char *variable, const char *name)
{
    char path[PROA_PATH_MAX];
    PROA_ASSERT(proa_path_join(path, files_folder, name, NULL) == PROA_OK);
    setenv(variable, path, 1);
}

static void set_environment(bool triton)
{
    name_file("HOME", "");
    name_file("AWS_CONFIG_FILE", "config");
    name_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    name_file("GOOGLE_APPLICATION_CREDENTIALS", "google.json");
    setenv("AWS_PROFILE", "p", 1);
    if (triton) name_file("TRITON_CLOUD_CREDENTIAL_PATH", "triton.json");
    else unsetenv("TRITON_CLOUD_CREDENTIAL_PATH");
}

/* A header's value. */
static void check_text(const char *text)
{
    for (const char *c = text; *c; c++) PROA_ASSERT(*c >= ' ' && *c <= '~');
}

static void read_store(const char *address)
{
    static proa_cloud_credentials c;
    proa_cloud_address store;
    proa_err err = {.status = PROA_OK};
    PROA_ASSERT(proa_cloud_address_parse(&store, address, NULL) == PROA_OK);
    if (proa_cloud_credentials_read(&c, &store, &err) != PROA_OK) {
        PROA_ASSERT(err.text[0]);
        return;
    }
    const char *const texts[] = {c.key.id,      c.key.secret, c.key.token,     c.region,    c.authorization,
                                 c.client,      c.refresh,    c.client_secret, c.email,     c.audience,
                                 c.impersonate, c.role.arn,   c.role.session,  c.base.id,   c.base.secret,
                                 c.base.token,  c.url,        c.endpoint,      c.token_type};
    for (size_t i = 0; i < PROA_COUNT(texts); i++) check_text(texts[i]);
    PROA_ASSERT(proa_cloud_source_name(c.source)[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const addresses[] = {"s3://b/r", "gs://b/r", "as://a/b/r"};
    if (size < 1) return 0;
    files_write(&files, data + 1, size - 1);
    set_environment(data[0] & 1);
    read_store(addresses[data[0] / 2 % 3]);
    return 0;
}
