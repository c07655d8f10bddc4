/* SPDX-License-Identifier: Apache-2.0
 * cache.h - the folder that transformers, huggingface_hub and Proa share:
 *
 *     CACHE/models--ORG--NAME/blobs/ETAG              a file's bytes, under the name of their checksum
 *                            blobs/ETAG.incomplete    its first bytes, while it is downloaded; never with holes
 *                            snapshots/COMMIT/FILE    a link to ../../blobs/ETAG
 *                            refs/REVISION            the commit of a branch or tag
 *                            trees/COMMIT.json        the list of the commit's files
 *     CACHE/.locks/models--ORG--NAME/ETAG.lock        held with flock while ETAG is downloaded
 *
 * Below CACHE no folder may be a symbolic link, and a link to a file must end inside CACHE: so nothing outside of it is
 * read or written.
 * Owner:   the caller's struct. Threads: one at a time; processes agree by the locks. */
#ifndef PROA_HUB_CACHE_H
#define PROA_HUB_CACHE_H

#include "hub/tree.h"

typedef struct proa_hub_cache {
    char root[PROA_PATH_MAX]; /* CACHE without links */
    char folder[PROA_HUB_NAME_MAX + 16];
    int root_fd, repo_fd; /* repo_fd -1: the cache has no such repository */
} proa_hub_cache;

/* With `create` the folders are made. */
PROA_MUST_CHECK proa_status proa_hub_cache_open(proa_hub_cache *c, const char *root, const char *repo,
                                                bool create, proa_err *err);
void proa_hub_cache_close(proa_hub_cache *c);

/* commit[41] of a branch or tag; NOT_FOUND if the cache has none. */
PROA_MUST_CHECK proa_status proa_hub_cache_ref(char commit[41], const proa_hub_cache *c, const char *revision,
                                               proa_err *err);
/* Writes refs/REVISION unless it says so already or the cache is read-only. */
PROA_MUST_CHECK proa_status proa_hub_cache_set_ref(const proa_hub_cache *c, const char *revision,
                                                   const char *commit, proa_err *err);
/* trees/COMMIT.json. NOT_FOUND, or as proa_hub_tree_read. */
PROA_MUST_CHECK proa_status proa_hub_cache_tree(proa_hub_tree *tree, const proa_hub_cache *c,
                                                const char *commit, proa_err *err);
/* Keeps it; does nothing on failure: the list only saves requests and says later whether a snapshot is complete. */
void proa_hub_cache_keep_tree(const proa_hub_cache *c, const proa_hub_tree *tree);

/* Whether the snapshot has the file with the size and the etag of the entry, as far as these are known. */
PROA_MUST_CHECK proa_status proa_hub_cache_has(bool *has, const proa_hub_cache *c, const char *commit,
                                               const proa_hub_entry *e, proa_err *err);
/* Whether blobs/ETAG is there with this size. */
bool proa_hub_cache_has_blob(const proa_hub_cache *c, const proa_hub_entry *e);
/* Makes snapshots/COMMIT/FILE a link to the blob. */
PROA_MUST_CHECK proa_status proa_hub_cache_link(const proa_hub_cache *c, const char *commit,
                                                const proa_hub_entry *e, proa_err *err);
/* Makes the folder snapshots/COMMIT/PATH. */
PROA_MUST_CHECK proa_status proa_hub_cache_make_folder(const proa_hub_cache *c, const char *commit,
                                                       const char *path, proa_err *err);
/* Hashes the blob of an entry; what is damaged is removed. */
PROA_MUST_CHECK proa_status proa_hub_cache_verify(const proa_hub_cache *c, const char *commit,
                                                  const proa_hub_entry *e, proa_err *err);
/* CORRUPT if a link of the snapshot ends outside of the cache. */
PROA_MUST_CHECK proa_status proa_hub_cache_check_links(const proa_hub_cache *c, const char *commit,
                                                       proa_err *err);
/* The path of the snapshot, or of a file in it (NULL: the folder), on the heap. */
char *proa_hub_cache_path(const proa_hub_cache *c, const char *commit, const char *file);

/* Takes the lock of a blob, whose descriptor the caller closes. -1 in *fd: another process holds it. */
PROA_MUST_CHECK proa_status proa_hub_cache_lock(int *fd, const proa_hub_cache *c, const char *etag,
                                                proa_err *err);
/* Opens blobs/ETAG.incomplete for reading and writing. */
PROA_MUST_CHECK proa_status proa_hub_cache_open_blob(int *fd, const proa_hub_cache *c, const char *etag,
                                                     proa_err *err);
/* Makes the complete file blobs/ETAG, durably. */
PROA_MUST_CHECK proa_status proa_hub_cache_finish_blob(const proa_hub_cache *c, const char *etag, int fd,
                                                       proa_err *err);
void proa_hub_cache_drop_blob(const proa_hub_cache *c, const char *etag); /* removes ETAG.incomplete */
int64_t proa_hub_cache_begun(const proa_hub_cache *c, const char *etag); /* bytes of ETAG.incomplete; 0: none */
/* Bytes that the file system of the cache can still take. */
int64_t proa_hub_cache_room(const proa_hub_cache *c);

#endif
