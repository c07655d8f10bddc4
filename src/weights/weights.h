/* SPDX-License-Identifier: Apache-2.0
 * weights.h - a checkpoint as named tensors: one file or many, mapped, not copied.
 * Owner:   proa_weights_open/close; views and names live as long as it is open.
 * Threads: after open it is only read; many threads may.
 * Way in:  proa_weights_open on a model folder, proa_weights_find by name. */
#ifndef PROA_WEIGHTS_WEIGHTS_H
#define PROA_WEIGHTS_WEIGHTS_H

#include "base/files.h"
#include "base/status.h"
#include "tensor/source.h"

typedef struct proa_weights proa_weights;

typedef struct proa_weights_tensor {
    const char *name;
    proa_tensor_source source; /* into the mapped file: read-only, perhaps unaligned */
    int32_t file;              /* index of its file */
    /* All axes of a tensor that has more than a view can have, whose last axis is the product of the rest. NULL: those
     * of the view. In the arena of the weights. */
    const int64_t *axes;
    int32_t axis_count;
    /* stored as the weight is used: transposed, with 1 added, q, k and v apart, where the files of the architecture's
     * own class differ from that. Such a tensor may be in parts, whose rows follow each other: NAME, NAME#2, ... */
    bool final;
} proa_weights_tensor;

/* Opens the checkpoint of a folder, in the first of the forms of open.c that it has (model.safetensors, then
 * model.safetensors.index.json and the files it names, ...), or a single file, whose first bytes say what it is.
 * Checks everything that can be checked without reading the data: headers, dtypes, shapes times element size against
 * offsets, offsets inside the file, names unique across shards, every index entry in its file. CORRUPT, LIMIT,
 * NOT_FOUND or IO with one line naming the file and the tensor. */
PROA_MUST_CHECK proa_status proa_weights_open(proa_weights **out, const char *path, proa_err *err);
/* As proa_weights_open, but of a packed folder with a part for each rank only the part of that rank. Other checkpoints
 * are opened whole. */
PROA_MUST_CHECK proa_status proa_weights_open_rank(proa_weights **out, const char *path, int32_t rank,
                                                   proa_err *err);
/* For how many ranks a folder has parts; 1: its checkpoint is whole, or it has none. */
int32_t proa_weights_ranks(const char *dir);
/* The same over bytes in memory (tests, fuzzing); the bytes stay the caller's and must outlive it. */
PROA_MUST_CHECK proa_status proa_weights_open_bytes(proa_weights **out, const void *bytes, int64_t len,
                                                    const char *what, proa_err *err);
void proa_weights_close(proa_weights *w); /* NULL is fine */

/* The small files that belong to the checkpoint: those of its folder, and what its reader made out of the checkpoint
 * itself, such as a config.json. A folder's own files win over made ones; in a single file the made ones win. */
const proa_files *proa_weights_files(const proa_weights *w);
/* Whether a folder has a checkpoint in one of the known forms; says nothing of its contents. */
bool proa_weights_in_folder(const char *dir);

/* The axes of a tensor as its file has them: their number, at most PROA_STORED_AXES_MAX; *axes stays the tensor's. */
static inline int32_t proa_weights_axes(const proa_weights_tensor *t, const int64_t **axes)
{
    *axes = t->axes ? t->axes : t->source.view.shape;
    return t->axes ? t->axis_count : t->source.view.rank;
}

int64_t proa_weights_count(const proa_weights *w);
const proa_weights_tensor *proa_weights_at(const proa_weights *w, int64_t i); /* sorted by name */
/* NULL if there is none. */
const proa_weights_tensor *proa_weights_find(const proa_weights *w, const char *name);
/* The name nearest to one that is missing, for "did you mean"; NULL if nothing is near. */
const char *proa_weights_nearest(const proa_weights *w, const char *name);
/* The tensor was packed and will not be read again: its pages leave this process's memory. */
void proa_weights_drop(const proa_weights *w, const proa_weights_tensor *tensor);
/* IO, with the file's name, if a file was written to or shortened since it was opened (proa_mmap_check). */
PROA_MUST_CHECK proa_status proa_weights_check(const proa_weights *w, proa_err *err);
/* A number that differs, but for accident, if another file was opened, one of them was written to since, or a tensor
 * has another name, type or shape. */
uint64_t proa_weights_fingerprint(const proa_weights *w);
/* Unmaps the files: names and shapes stay, the views' data does not. Nothing depends on the files any more. */
void proa_weights_detach(proa_weights *w);

#endif
