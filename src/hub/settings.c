/* SPDX-License-Identifier: Apache-2.0
 * settings.c - reads the options and the environment of a pull. */
#include "hub/settings.h"

#include "base/file.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *env_text(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static bool is_on(const char *name)
{
    const char *value = env_text(name);
    return value && (strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0 ||
                     strcasecmp(value, "yes") == 0 || strcasecmp(value, "on") == 0);
}

/* "~/x" below the user's home; other paths as they are. */
static proa_status expand_home(char out[PROA_PATH_MAX], const char *path, proa_err *err)
{
    const char *home = env_text("HOME");
    bool below = path[0] == '~' && (path[1] == '/' || !path[1]);
    if (below && !home) return PROA_FAIL(err, INVALID, "'%s': HOME is not set", path);
    int n = below ? snprintf(out, PROA_PATH_MAX, "%s%s", home, path + 1)
                  : snprintf(out, PROA_PATH_MAX, "%s", path);
    if (n >= PROA_PATH_MAX)
        return PROA_FAIL(err, LIMIT, "'%.100s...': the path is longer than %d bytes", path, PROA_PATH_MAX);
    return PROA_OK;
}

/* HF_HOME; without it a folder of the user's cache. */
static proa_status find_home(char out[PROA_PATH_MAX], proa_err *err)
{
    char joined[PROA_PATH_MAX];
    const char *home = env_text("HF_HOME"), *xdg = env_text("XDG_CACHE_HOME");
    if (home) return expand_home(out, home, err);
    PROA_TRY(proa_path_join(joined, xdg ? xdg : "~/.cache", "huggingface", err));
    return expand_home(out, joined, err);
}

static proa_status find_cache(char out[PROA_PATH_MAX], const char *home, const char *given, proa_err *err)
{
    if (!given) given = env_text("HF_HUB_CACHE");
    if (!given) given = env_text("HUGGINGFACE_HUB_CACHE");
    return given ? expand_home(out, given, err) : proa_path_join(out, home, "hub", err);
}

/* Without the white space around it. A token goes into a header, so it may hold no control character. */
static proa_status take_token(proa_hub_settings *s, proa_str text, const char *from, proa_err *err)
{
    while (text.len && (unsigned char)text.ptr[0] <= ' ') text.ptr++, text.len--;
    while (text.len && (unsigned char)text.ptr[text.len - 1] <= ' ') text.len--;
    if (text.len >= sizeof s->token)
        return PROA_FAIL(err, LIMIT, "the token of %s is longer than %d bytes", from, PROA_HUB_TOKEN_MAX);
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] <= ' ' || (unsigned char)text.ptr[i] > '~')
            return PROA_FAIL(err, INVALID, "the token of %s has a character that no token has", from);
    if (text.len) memcpy(s->token, text.ptr, text.len);
    s->token[text.len] = '\0';
    return PROA_OK;
}

static proa_status find_token(proa_hub_settings *s, const char *home, const char *given, proa_err *err)
{
    char path[PROA_PATH_MAX];
    const char *token = env_text("HF_TOKEN"), *place = env_text("HF_TOKEN_PATH");
    if (given) return take_token(s, proa_str_c(given), "the options", err);
    if (is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return PROA_OK;
    if (!token) token = env_text("HUGGING_FACE_HUB_TOKEN");
    if (token) return take_token(s, proa_str_c(token), "HF_TOKEN", err);
    PROA_TRY(place ? expand_home(path, place, err) : proa_path_join(path, home, "token", err));
    if (!proa_file_exists(path)) return PROA_OK;
    proa_buf text;
    proa_status status = proa_file_read(&text, path, PROA_HUB_TOKEN_MAX, err);
    if (status == PROA_OK) status = take_token(s, proa_buf_view(&text), path, err);
    proa_buf_release(&text);
    return status;
}

static proa_status take_endpoint(proa_hub_settings *s, const char *given, proa_err *err)
{
    if (!given) given = env_text("HF_ENDPOINT");
    if (!given) given = "https://huggingface.co";
    size_t len = strlen(given);
    while (len > 0 && given[len - 1] == '/') len--;
    bool known = strncmp(given, "https://", 8) == 0 || strncmp(given, "http://", 7) == 0;
    if (!known || len >= sizeof s->endpoint || strpbrk(given, " \r\n\t"))
        return PROA_FAIL(err, INVALID, "HF_ENDPOINT is '%.200s', must be http://HOST or https://HOST", given);
    memcpy(s->endpoint, given, len);
    s->endpoint[len] = '\0';
    return PROA_OK;
}

proa_status proa_hub_settings_read(proa_hub_settings *s, const proa_hub_options *o, proa_err *err)
{
    enum { TIMEOUT_S = 10, TIMEOUT_S_MAX = 3600 };
    char home[PROA_PATH_MAX];
    const char *timeout = env_text("HF_HUB_DOWNLOAD_TIMEOUT");
    *s = (proa_hub_settings){.offline = o->offline || is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE")};
    s->timeout_s = timeout ? strtol(timeout, NULL, 10) : 0;
    if (s->timeout_s < 1 || s->timeout_s > TIMEOUT_S_MAX) s->timeout_s = TIMEOUT_S;
    if (o->connections < 0 || o->connections > PROA_HUB_CONNECTIONS_MAX)
        return PROA_FAIL(err, INVALID, "'connections' is %d, must be 1 to %d, or 0", o->connections,
                         PROA_HUB_CONNECTIONS_MAX);
    s->connections = o->connections ? o->connections : PROA_HUB_CONNECTIONS;
    PROA_TRY(take_endpoint(s, o->endpoint, err));
    PROA_TRY(find_home(home, err));
    PROA_TRY(find_cache(s->cache, home, o->cache, err));
    return find_token(s, home, o->token, err);
}
