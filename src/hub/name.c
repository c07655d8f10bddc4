/* SPDX-License-Identifier: Apache-2.0
 * name.c - parses the name of a model on a hub. */
#include "hub/name.h"

#include "proa/hub.h"
#include <string.h>
#include <sys/stat.h>

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool proa_hub_is_commit(proa_str text)
{
    if (text.len != 40) return false;
    for (size_t i = 0; i < text.len; i++)
        if (!is_hex(text.ptr[i])) return false;
    return true;
}

bool proa_hub_is_path(proa_str path)
{
    size_t begin = 0;
    if (path.len == 0 || path.len >= PROA_PATH_MAX / 2) return false;
    for (size_t i = 0; i <= path.len; i++) {
        if (i < path.len && path.ptr[i] != '/') {
            unsigned char c = (unsigned char)path.ptr[i];
            if (c < 0x20 || c == 0x7f || c == '\\') return false;
            continue;
        }
        proa_str part = {path.ptr + begin, i - begin};
        if (part.len == 0 || part.len > 255 || proa_str_is(part, ".") || proa_str_is(part, ".."))
            return false;
        begin = i + 1;
    }
    return true;
}

static bool is_repo_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("._-", c) != NULL;
}

/* One of the two parts of a repository's name, by the hub's own rules. */
static bool is_repo_part(proa_str part)
{
    if (part.len == 0) return false;
    for (size_t i = 0; i < part.len; i++) {
        char c = part.ptr[i];
        bool doubled = i > 0 && (c == '-' || c == '.') && part.ptr[i - 1] == c;
        if (!c || !is_repo_char(c) || doubled) return false;
    }
    char first = part.ptr[0], last = part.ptr[part.len - 1];
    return !strchr("-.", first) && !strchr("-.", last) && !proa_str_ends(part, proa_str_c(".git"));
}

static bool is_repo(proa_str repo)
{
    const char *slash = memchr(repo.ptr, '/', repo.len);
    if (!slash || repo.len > PROA_HUB_NAME_MAX) return false;
    size_t org = (size_t)(slash - repo.ptr);
    return is_repo_part((proa_str){repo.ptr, org}) && is_repo_part((proa_str){slash + 1, repo.len - org - 1});
}

static void copy_text(char *out, const char *from, size_t len)
{
    memcpy(out, from, len);
    out[len] = '\0';
}

/* Into *out, or an error that says what is wrong. */
proa_status proa_hub_name_parse(proa_hub_name *out, const char *text, proa_err *err)
{
    const char *at = strchr(text, '@');
    size_t end = at ? (size_t)(at - text) : strlen(text);
    const char *colon = memchr(text, ':', end);
    size_t repo = colon ? (size_t)(colon - text) : end, file = colon ? end - repo - 1 : 0;
    *out = (proa_hub_name){.revision = "main"};
    if (!is_repo((proa_str){text, repo}))
        return PROA_FAIL(err, INVALID, "'%.200s' is not of the form ORG/NAME[:FILE][@REVISION]", text);
    copy_text(out->repo, text, repo);
    if (colon && (file > PROA_HUB_REVISION_MAX || !proa_hub_is_path((proa_str){colon + 1, file})))
        return PROA_FAIL(err, INVALID, "'%.200s': what follows the colon is not the name of a file", text);
    if (colon) copy_text(out->file, colon + 1, file);
    if (!at) return PROA_OK;
    if (strlen(at + 1) > PROA_HUB_REVISION_MAX || !proa_hub_is_path(proa_str_c(at + 1)) ||
        strpbrk(at + 1, " ~^:?*["))
        return PROA_FAIL(err, INVALID, "'%.200s': what follows the @ is not a branch, tag or commit", text);
    copy_text(out->revision, at + 1, strlen(at + 1));
    return PROA_OK;
}

/* "models/x.gguf" is the path of a file that is not there. */
static bool is_file_name(const char *repo)
{
    static const char *const endings[] = {".gguf", ".safetensors", ".bin", ".pt"};
    for (size_t i = 0; i < PROA_COUNT(endings); i++)
        if (proa_str_ends(proa_str_c(repo), proa_str_c(endings[i]))) return true;
    return false;
}

bool proa_hub_is_name(const char *model)
{
    proa_hub_name name;
    struct stat st;
    return proa_hub_name_parse(&name, model, NULL) == PROA_OK && !is_file_name(name.repo) &&
           lstat(model, &st) != 0;
}

void proa_hub_name_folder(char out[PROA_HUB_NAME_MAX + 16], const char *repo)
{
    size_t org = strcspn(repo, "/");
    snprintf(out, PROA_HUB_NAME_MAX + 16, "models--%.*s--%s", (int)org, repo, repo + org + 1);
}
