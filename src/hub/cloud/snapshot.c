/* SPDX-License-Identifier: Apache-2.0
 * snapshot.c - from keys, which are any texts, to files of a folder. */
#include "hub/cloud/snapshot.h"

#include "base/checked.h"
#include "hub/crypto.h"
#include "hub/name.h"
#include <stdlib.h>
#include <string.h>

void proa_cloud_snapshot_release(proa_cloud_snapshot *s)
{
    proa_hub_tree_release(&s->tree);
    s->folders = NULL, s->folders_count = 0;
}

/* A key that ends with a slash is how stores show an empty folder. */
static proa_status take_object(proa_cloud_snapshot *s, const proa_hub_entry *e, const char *path, proa_err *err)
{
    size_t len = strlen(path);
    bool is_folder = len > 0 && path[len - 1] == '/';
    proa_str name = {path, is_folder ? len - 1 : len};
    if (len == 0) return PROA_OK; /* the folder itself */
    if (!proa_hub_is_path(name))
        return PROA_FAIL(err, CORRUPT, "the key '%.200s' is no path inside of its folder", e->path);
    if (is_folder) {
        s->folders[s->folders_count++] = proa_arena_strdup(&s->tree.arena, name);
        return PROA_OK;
    }
    proa_hub_entry *file = &s->tree.entries[s->tree.count++];
    *file = *e;
    file->path = proa_arena_strdup(&s->tree.arena, name);
    file->match = proa_arena_copy_text(&s->tree.arena, e->match);
    if (!proa_add(s->bytes, e->size, &s->bytes))
        return PROA_FAIL(err, LIMIT, "its files have too many bytes");
    return PROA_OK;
}

/* Whether another entry is below this one. Between them only names can be that go on with a byte below '/'. */
static bool has_children(const proa_hub_tree *t, int64_t at)
{
    size_t len = strlen(t->entries[at].path);
    for (int64_t i = at + 1; i < t->count && strncmp(t->entries[i].path, t->entries[at].path, len) == 0; i++)
        if (t->entries[i].path[len] == '/') return true;
    return false;
}

/* A file of no bytes with others below it is a folder, as some tools make them. */
static proa_status drop_folders(proa_hub_tree *t, proa_err *err)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < t->count; i++) {
        if (!has_children(t, i)) {
            t->entries[kept++] = t->entries[i];
            continue;
        }
        if (t->entries[i].size > 0)
            return PROA_FAIL(err, CORRUPT, "the key '%.200s' is both a file and a folder", t->entries[i].path);
    }
    t->count = kept;
    return PROA_OK;
}

/* The first 160 bits of a sha256 over names, sizes and states. */
static proa_status name_state(proa_cloud_snapshot *s, proa_err *err)
{
    const proa_crypto *crypto;
    unsigned char sum[PROA_CRYPTO_SHA256_BYTES];
    proa_buf text;
    PROA_TRY(proa_crypto_open(&crypto, err));
    proa_buf_init(&text, (size_t)PROA_HUB_LIST_BYTES_MAX);
    for (int64_t i = 0; i < s->tree.count; i++)
        proa_buf_printf(&text, "%s\n%s %lld\n", s->tree.entries[i].path, s->tree.entries[i].etag,
                        (long long)s->tree.entries[i].size);
    for (int64_t i = 0; i < s->folders_count; i++) proa_buf_printf(&text, "%s/\n", s->folders[i]);
    bool full = text.full;
    proa_crypto_sha256(crypto, sum, proa_buf_view(&text));
    proa_crypto_hex(s->tree.commit, sum, 20);
    proa_buf_release(&text);
    return full ? PROA_FAIL(err, LIMIT, "the names of its files are too long") : PROA_OK;
}

proa_status proa_cloud_snapshot_read(proa_cloud_snapshot *out, const proa_hub_entry *entries, int64_t count,
                                     const char *folder, proa_err *err)
{
    size_t len = strlen(folder);
    int64_t begin = 0, end;
    *out = (proa_cloud_snapshot){.bytes = 0};
    proa_hub_tree_init(&out->tree);
    while (begin < count && strncmp(entries[begin].path, folder, len) != 0) begin++;
    for (end = begin; end < count && strncmp(entries[end].path, folder, len) == 0;) end++;
    out->tree.entries = PROA_ARENA_NEW(&out->tree.arena, proa_hub_entry, end - begin);
    out->folders = PROA_ARENA_NEW(&out->tree.arena, const char *, end - begin);
    for (int64_t i = begin; i < end; i++) PROA_TRY(take_object(out, &entries[i], entries[i].path + len, err));
    PROA_TRY(drop_folders(&out->tree, err));
    return name_state(out, err);
}
