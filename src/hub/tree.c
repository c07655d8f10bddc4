/* SPDX-License-Identifier: Apache-2.0
 * tree.c - reads the list of files that a hub sends, and the one that huggingface_hub keeps. */
#include "hub/tree.h"

#include "base/json.h"
#include "hub/name.h"
#include <stdlib.h>
#include <string.h>

enum { FORMAT_VERSION = 1 };

void proa_hub_tree_init(proa_hub_tree *tree)
{
    *tree = (proa_hub_tree){.count = 0};
    proa_arena_init(&tree->arena);
}

void proa_hub_tree_release(proa_hub_tree *tree)
{
    proa_arena_release(&tree->arena);
    tree->entries = NULL, tree->count = 0;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const proa_hub_entry *)a)->path, ((const proa_hub_entry *)b)->path);
}

static bool is_digest(proa_str text, size_t digits)
{
    if (text.len != digits) return false;
    for (size_t i = 0; i < text.len; i++)
        if (proa_hex_digit(text.ptr[i]) < 0 || (text.ptr[i] >= 'A' && text.ptr[i] <= 'F')) return false;
    return true;
}

static void copy_digest(char *out, size_t size, proa_str text)
{
    snprintf(out, size, "%.*s", (int)text.len, text.ptr);
}

static proa_status begin_entry(proa_hub_tree *tree, proa_str path, int64_t size, proa_err *err)
{
    if (!proa_hub_is_path(path) || proa_str_has_nul(path))
        return PROA_FAIL(err, CORRUPT, "the repository lists a file '%.*s', which is no path inside a folder",
                         path.len < 200 ? (int)path.len : 200, path.ptr ? path.ptr : "");
    if (size > PROA_HUB_FILE_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "'%.*s' has %lld bytes, at most %lld are read", (int)path.len, path.ptr,
                         (long long)size, (long long)PROA_HUB_FILE_BYTES_MAX);
    tree->entries[tree->count++] = (proa_hub_entry){.path = proa_arena_strdup(&tree->arena, path), .size = size};
    return PROA_OK;
}

/* blob: git's; sha256: of a large file, or empty. What has not the form of a checksum counts as not known. */
static void add_digests(proa_hub_entry *e, proa_str blob, proa_str sha256)
{
    if (is_digest(blob, 40)) copy_digest(e->blob_id, sizeof e->blob_id, blob);
    e->lfs = sha256.len > 0;
    if (e->lfs && is_digest(sha256, 64)) copy_digest(e->etag, sizeof e->etag, sha256);
    else if (!e->lfs) memcpy(e->etag, e->blob_id, sizeof e->blob_id);
    if (!e->etag[0]) e->size = -1;
}

static int64_t size_of(const proa_json *j)
{
    return proa_json_kind(j) == PROA_JSON_INT && proa_json_int(j) >= 0 ? proa_json_int(j) : -1;
}

static proa_status check_count(int64_t count, proa_err *err)
{
    if (count <= PROA_HUB_FILES_MAX) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the repository has %lld files, at most %d are read", (long long)count,
                     PROA_HUB_FILES_MAX);
}

/* Two downloads of one path would write into each other. */
static proa_status sort_entries(proa_hub_tree *tree, proa_err *err)
{
    qsort(tree->entries, (size_t)tree->count, sizeof *tree->entries, compare_entries);
    for (int64_t i = 1; i < tree->count; i++)
        if (strcmp(tree->entries[i - 1].path, tree->entries[i].path) == 0)
            return PROA_FAIL(err, CORRUPT, "the repository lists the file '%s' twice", tree->entries[i].path);
    return PROA_OK;
}

static proa_status take_answer(proa_hub_tree *tree, const proa_json *root, proa_err *err)
{
    proa_json *files = proa_json_get(root, "siblings");
    proa_str commit = proa_json_str(proa_json_get(root, "sha"));
    if (!proa_hub_is_commit(commit) || proa_json_kind(files) != PROA_JSON_ARRAY)
        return PROA_FAIL(err, CORRUPT, "the answer has no 'sha' with 'siblings': HF_ENDPOINT names no hub");
    copy_digest(tree->commit, sizeof tree->commit, commit);
    PROA_TRY(check_count(proa_json_len(files), err));
    tree->entries = PROA_ARENA_NEW(&tree->arena, proa_hub_entry, proa_json_len(files) + 1);
    for (int64_t i = 0; i < proa_json_len(files); i++) {
        proa_json *f = proa_json_at(files, i), *lfs = proa_json_get(f, "lfs");
        proa_json *size = lfs && proa_json_get(lfs, "size") ? proa_json_get(lfs, "size")
                                                            : proa_json_get(f, "size");
        PROA_TRY(begin_entry(tree, proa_json_str(proa_json_get(f, "rfilename")), size_of(size), err));
        add_digests(&tree->entries[tree->count - 1], proa_json_str(proa_json_get(f, "blobId")),
                    proa_json_str(proa_json_get(lfs, "sha256")));
    }
    return sort_entries(tree, err);
}

proa_status proa_hub_tree_parse(proa_hub_tree *tree, proa_str json, proa_err *err)
{
    proa_json *root = NULL;
    PROA_TRY(proa_json_parse(&root, json, "the hub's answer", err));
    proa_status status = take_answer(tree, root, err);
    proa_json_free(root);
    return status;
}

static proa_status take_kept(proa_hub_tree *tree, const proa_json *root, proa_err *err)
{
    proa_json *files = proa_json_get(root, "files");
    if (proa_json_int(proa_json_get(root, "format_version")) != FORMAT_VERSION ||
        proa_json_kind(files) != PROA_JSON_OBJECT)
        return PROA_FAIL(err, UNSUPPORTED, "trees/%s.json has another format", tree->commit);
    PROA_TRY(check_count(proa_json_len(files), err));
    tree->entries = PROA_ARENA_NEW(&tree->arena, proa_hub_entry, proa_json_len(files) + 1);
    for (proa_json_iter it = proa_json_begin(files); proa_json_next(&it);) {
        proa_str sha256 = proa_json_str(proa_json_get(it.value, "lfs_sha256"));
        PROA_TRY(begin_entry(tree, it.key, size_of(proa_json_get(it.value, sha256.len ? "lfs_size" : "size")),
                             err));
        add_digests(&tree->entries[tree->count - 1], proa_json_str(proa_json_get(it.value, "blob_id")), sha256);
    }
    return sort_entries(tree, err);
}

proa_status proa_hub_tree_read(proa_hub_tree *tree, const char *commit, proa_str json, proa_err *err)
{
    proa_json *root = NULL;
    PROA_TRY(proa_json_parse(&root, json, "trees/COMMIT.json", err));
    snprintf(tree->commit, sizeof tree->commit, "%s", commit);
    proa_status status = take_kept(tree, root, err);
    proa_json_free(root);
    return status;
}

bool proa_hub_tree_write(const proa_hub_tree *tree, proa_buf *out)
{
    proa_buf_printf(out, "{\n \"format_version\": %d,\n \"files\": {", FORMAT_VERSION);
    for (int64_t i = 0; i < tree->count; i++) {
        const proa_hub_entry *e = &tree->entries[i];
        if (e->size < 0 || !e->blob_id[0] || !e->etag[0]) return false;
        proa_buf_printf(out, "%s\n  ", i ? "," : "");
        proa_buf_json_str(out, proa_str_c(e->path));
        proa_buf_printf(out, ": {\"size\": %lld, \"blob_id\": \"%s\"", (long long)e->size, e->blob_id);
        if (e->lfs)
            proa_buf_printf(out, ", \"lfs_sha256\": \"%s\", \"lfs_size\": %lld", e->etag, (long long)e->size);
        proa_buf_printf(out, "}");
    }
    proa_buf_printf(out, "\n }\n}");
    return !out->full;
}
