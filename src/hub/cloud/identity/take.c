/* SPDX-License-Identifier: Apache-2.0
 * take.c - copies texts of credentials and refuses those that cannot be part of a header. */
#include "hub/cloud/identity/take.h"

#include "base/file.h"
#include <stdlib.h>
#include <string.h>

const char *proa_cloud_env(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

proa_str proa_cloud_trim(proa_str s)
{
    while (s.len && (unsigned char)s.ptr[0] <= ' ') s.ptr++, s.len--;
    while (s.len && (unsigned char)s.ptr[s.len - 1] <= ' ') s.len--;
    return s;
}

proa_status proa_cloud_take_text(char *out, size_t size, proa_str text, const char *from, proa_err *err)
{
    text = proa_cloud_trim(text);
    if (text.len >= size) return PROA_FAIL(err, LIMIT, "%s is longer than %zu bytes", from, size - 1);
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' || (unsigned char)text.ptr[i] > '~')
            return PROA_FAIL(err, INVALID, "%s has a character that it cannot have", from);
    if (text.len) memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return PROA_OK;
}

proa_status proa_cloud_take_env(char *out, size_t size, const char *name, proa_err *err)
{
    const char *value = proa_cloud_env(name);
    return value ? proa_cloud_take_text(out, size, proa_str_c(value), name, err) : PROA_OK;
}

proa_status proa_cloud_take_member(char *out, size_t size, const proa_json *object, const char *key, proa_err *err)
{
    return proa_cloud_take_text(out, size, proa_json_str(proa_json_get(object, key)), key, err);
}

proa_status proa_cloud_take_file(proa_buf *out, const char *path, proa_err *err)
{
    proa_buf text;
    proa_status status = proa_file_read(&text, path, PROA_CLOUD_IDENTITY_BYTES_MAX, err);
    proa_str token = proa_cloud_trim(proa_buf_view(&text));
    for (size_t i = 0; i < token.len && status == PROA_OK; i++)
        if ((unsigned char)token.ptr[i] < ' ' || (unsigned char)token.ptr[i] > '~')
            status = PROA_FAIL(err, INVALID, "'%.200s' has a character that no token has", path);
    if (status == PROA_OK && !token.len) status = PROA_FAIL(err, INVALID, "'%.200s' is empty", path);
    if (status == PROA_OK && !proa_buf_str(out, token))
        status = PROA_FAIL(err, LIMIT, "the token of '%.200s' is too long", path);
    proa_buf_release(&text);
    return status;
}

proa_status proa_cloud_home_path(char out[PROA_PATH_MAX], const char *name, proa_err *err)
{
    const char *home = proa_cloud_env("HOME");
    return proa_path_join(out, home ? home : "/", name, err);
}
