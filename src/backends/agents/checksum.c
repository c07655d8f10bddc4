/* SPDX-License-Identifier: Apache-2.0
 * checksum.c - the agent `checksum`: a model loads only if its files have the sums that its configuration names. A
 *              parameter is {key: "MD5:PATH", value: "32 hexadecimal digits"}, PATH relative to the model's folder.
 *              Keys and texts are those of Triton's agent (triton-inference-server/checksum_repository_agent). */
#include "backends/agents/agents.h"
#include "base/file.h"
#include "base/limits.h"
#include "hub/digest.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* The part of the key after "MD5:". */
static proa_status path_of_key(const char **out, const char *key, proa_err *err)
{
    const char *colon = strchr(key, ':');
    if (!colon) return PROA_FAIL(err, INVALID, "failed to parse key: %s", key);
    if (colon - key != 3 || strncasecmp(key, "md5", 3) != 0)
        return PROA_FAIL(err, UNSUPPORTED, "Unsupported checksum algorithm: %.*s", (int)(colon - key), key);
    *out = colon + 1;
    for (const char *part = *out; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (**out == '/' || strcmp(part, "..") == 0 || strncmp(part, "../", 3) == 0)
            return PROA_FAIL(err, INVALID, "key '%s' names a file outside of the model's folder", key);
    return PROA_OK;
}

/* A sum that a file can have, in the small letters of digests. */
static proa_status digits_of_value(char digits[33], const char *key, const char *value, proa_err *err)
{
    if (strlen(value) != 32 || strspn(value, "0123456789abcdefABCDEF") != 32)
        return PROA_FAIL(err, INVALID,
                         "key '%s' has value '%s', which is no MD5 sum of 32 hexadecimal digits", key, value);
    for (int i = 0; i <= 32; i++) digits[i] = (char)tolower((unsigned char)value[i]);
    return PROA_OK;
}

/* Compares the digest of the open regular file with the expected one. */
static proa_status compare_sum(int fd, const char *path, const char *expected, proa_err *err)
{
    struct stat s;
    char sum[PROA_HUB_DIGEST_TEXT];
    proa_hub_digest digest;
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode))
        return PROA_FAIL(err, INVALID, "failed to read %s: it is no file", path);
    proa_hub_digest_init(&digest, expected, s.st_size);
    if (!digest.context) return PROA_FAIL(err, UNSUPPORTED, "this OpenSSL computes no MD5 sums");
    proa_status status = proa_hub_digest_add_file(&digest, fd, s.st_size, path, err);
    proa_hub_digest_text(&digest, sum);
    proa_hub_digest_release(&digest);
    if (status == PROA_OK && strcmp(sum, expected) != 0)
        status = PROA_FAIL(err, INVALID, "Mismatched MD5 hash for file %s, expect: %s, got: %s", path,
                           expected, sum);
    return status;
}

static proa_status check_file(const char *folder, const char *key, const char *value, proa_err *err)
{
    const char *path = NULL;
    char whole[PROA_PATH_MAX], expected[33];
    PROA_TRY(path_of_key(&path, key, err));
    PROA_TRY(digits_of_value(expected, key, value, err));
    PROA_TRY(proa_path_join(whole, folder, path, err));
    int fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO does not block it */
    if (fd < 0) return PROA_FAIL(err, INVALID, "failed to open %s for read: %s", path, strerror(errno));
    proa_status status = compare_sum(fd, path, expected, err);
    close(fd);
    return status;
}

static proa_status check_files(void **state, const char **moved, const proa_repository_agent *self,
                               const char *folder, const Inference__ModelConfig *config,
                               const Inference__ModelRepositoryAgents__Agent *agent, proa_err *err)
{
    (void)state, (void)moved, (void)self, (void)config;
    PROA_TRY(proa_hub_digest_open(err));
    for (size_t i = 0; i < agent->n_parameters; i++)
        PROA_TRY(check_file(folder, agent->parameters[i]->key, agent->parameters[i]->value, err));
    return PROA_OK;
}

const proa_repository_agent proa_agent_checksum = {.name = "checksum", .before_load = check_files};
