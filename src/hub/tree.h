/* SPDX-License-Identifier: Apache-2.0
 * tree.h - the files of a repository at one commit, and which of them Proa reads.
 * Owner:   the caller's struct; its texts are in its arena.
 * Threads: one at a time. */
#ifndef PROA_HUB_TREE_H
#define PROA_HUB_TREE_H

#include "base/arena.h"
#include "base/limits.h"
#include "base/status.h"

typedef struct proa_hub_entry {
    const char *path;
    const char *match;                /* the state of the object, as its store names it; NULL: not needed */
    int64_t size;                     /* -1: not known yet */
    char etag[PROA_HUB_REVISION_MAX]; /* the name of its blob: sha256 of a large file, git's sha1 of a small one; ""
                                         not known yet */
    char blob_id[65]; /* git's sha1 of the blob, which for a large file is its pointer; "" unknown */
    bool lfs;         /* a large file: etag is a sha256 */
    bool wanted;      /* Proa reads it */
    bool weights;     /* it is fetched after the small files */
} proa_hub_entry;

typedef struct proa_hub_tree {
    proa_arena arena;
    char commit[41];
    proa_hub_entry *entries; /* [count], sorted by path */
    int64_t count;
} proa_hub_tree;

void proa_hub_tree_init(proa_hub_tree *tree);
void proa_hub_tree_release(proa_hub_tree *tree);
/* The answer of /api/models/REPO/revision/REV?blobs=true. CORRUPT for anything that is not such an answer and for names
 * that leave a folder. */
PROA_MUST_CHECK proa_status proa_hub_tree_parse(proa_hub_tree *tree, proa_str json, proa_err *err);
/* The file trees/COMMIT.json of huggingface_hub's cache, and back; write returns false if something is not known. */
PROA_MUST_CHECK proa_status proa_hub_tree_read(proa_hub_tree *tree, const char *commit, proa_str json,
                                               proa_err *err);
bool proa_hub_tree_write(const proa_hub_tree *tree, proa_buf *out);

/* Marks the files that Proa reads: configuration, tokenizer, and weights in one form: safetensors, else PyTorch's, else
 * GGUF. file: a GGUF file's name or a part of it, "" for none. *gguf: the GGUF file that the model is, or NULL.
 * NOT_FOUND if nothing fits, INVALID if several GGUF files do. (choose.c) */
PROA_MUST_CHECK proa_status proa_hub_choose(proa_hub_tree *tree, const char *repo, const char *file,
                                            const char **gguf, proa_err *err);

#endif
