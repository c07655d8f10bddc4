/* SPDX-License-Identifier: Apache-2.0
 * take.h - texts of credentials from the environment, files and responses. They become parts of headers, so control
 *          characters are refused. Errors name the variable or file, never its contents.
 * Threads: the environment must not change meanwhile. */
#ifndef PROA_HUB_CLOUD_IDENTITY_TAKE_H
#define PROA_HUB_CLOUD_IDENTITY_TAKE_H

#include "base/json.h"
#include "base/limits.h"

enum { PROA_CLOUD_FILE_BYTES_MAX = 1 << 20 }; /* size of a file with credentials */

/* An environment variable; NULL if it is unset or empty. */
const char *proa_cloud_env(const char *name);
proa_str proa_cloud_trim(proa_str s);
/* Copies a text without the white space around it. */
PROA_MUST_CHECK proa_status proa_cloud_take_text(char *out, size_t size, proa_str text, const char *from,
                                                 proa_err *err);
/* These leave `out` unchanged if there is no such variable, and empty it if there is no such member. */
PROA_MUST_CHECK proa_status proa_cloud_take_env(char *out, size_t size, const char *name, proa_err *err);
PROA_MUST_CHECK proa_status proa_cloud_take_member(char *out, size_t size, const proa_json *object,
                                                   const char *key, proa_err *err);
/* Appends the token in a file: one line. */
PROA_MUST_CHECK proa_status proa_cloud_take_file(proa_buf *out, const char *path, proa_err *err);
/* The path of a file in the user's home. */
PROA_MUST_CHECK proa_status proa_cloud_home_path(char out[PROA_PATH_MAX], const char *name, proa_err *err);

#define PROA_CLOUD_TAKE_ENV(field, name) PROA_TRY(proa_cloud_take_env(field, sizeof(field), name, err))
#define PROA_CLOUD_TAKE_MEMBER(field, object, key)                                                           \
    PROA_TRY(proa_cloud_take_member(field, sizeof(field), object, key, err))

#endif
