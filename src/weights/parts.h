/* SPDX-License-Identifier: Apache-2.0
 * parts.h - what the files of this folder share: the open checkpoint, and the readers that fill it.
 * Owner:   proa_weights_open; a reader that fails leaves what it added, and proa_weights_close releases it.
 * Way in:  weights.c is the open checkpoint; safetensors.c and its like read one file, formats.c chooses among them,
 *          open.c finds the files of a folder. */
#ifndef PROA_WEIGHTS_PARTS_H
#define PROA_WEIGHTS_PARTS_H

#include "base/arena.h"
#include "base/file.h"
#include "base/map.h"
#include "weights/weights.h"

typedef struct proa_weights_file {
    proa_mmap map;    /* ptr NULL: the bytes are the caller's (proa_weights_open_bytes) */
    const char *name; /* without its folder: what errors call it; in the arena */
    const char *path; /* NULL where there is no map */
} proa_weights_file;

struct proa_weights {
    proa_arena arena;             /* names of tensors and files */
    proa_weights_tensor *tensors; /* [count] of cap, heap; in file order while files are read, then by name */
    int64_t count, cap;
    proa_weights_file *files; /* [file_count] of file_cap, heap */
    int32_t file_count, file_cap;
    proa_map by_name;         /* name to row; filled when all files are read */
    proa_files files_by_name; /* proa_weights_files */
    proa_made_file *made;     /* [files_by_name.made_count] of made_cap, heap */
    int32_t made_cap;
    int32_t rank;                    /* whose part is opened, of a folder with one for each */
    struct proa_packed_file *packed; /* of a packed checkpoint (packed.h); NULL */
    void *reading; /* what a reader keeps from file to file while it reads a checkpoint of several */
    /* a reader sets it: the files beside the file that was opened do not belong to it */
    bool self_contained;
};

/* How much of a name errors show, so that file and tensor both fit into one line. For "%.*s". */
#define PROA_NAME_SHOWN 120

/* Reads a file of one format: checks it and appends its tensors to w. The views point into bytes, which must stay;
 * w->files has the file at `file` already, so that errors can name it. */
typedef proa_status proa_weights_reader(proa_weights *w, const unsigned char *bytes, int64_t len,
                                        int32_t file, proa_err *err);
proa_weights_reader proa_safetensors_read;  /* safetensors.c */
proa_weights_reader proa_gguf_read;         /* gguf/reader.c */
proa_weights_reader proa_packed_read;       /* packed.c */
proa_weights_reader proa_torch_zip_read;    /* torch.c: torch.save since torch 1.6, */
proa_weights_reader proa_torch_legacy_read; /* and before */

/* formats.c: by the reader of files that begin with these bytes; that of safetensors where no other format fits. */
proa_weights_reader proa_weights_read_bytes;
/* formats.c: maps the file at path and reads it. */
PROA_MUST_CHECK proa_status proa_weights_read_file(proa_weights *w, const char *path, proa_err *err);
/* index.c: the files that dir/NAME lists; NAME is model.safetensors.index.json or its like. */
PROA_MUST_CHECK proa_status proa_index_read(proa_weights *w, const char *dir, const char *name, proa_err *err);

/* quantized.c: of tensors that are codes, scales and zero points of one weight it makes one tensor; w has been sorted
 * and indexed. joined: the list has changed. CORRUPT names the tensor that does not fit the others. */
PROA_MUST_CHECK proa_status proa_quantized_join(proa_weights *w, bool *joined, proa_err *err);
/* ft.c: the folder of FasterTransformer whose config.ini has that name. */
PROA_MUST_CHECK proa_status proa_ft_read(proa_weights *w, const char *dir, const char *name, proa_err *err);

/* open.c: whether a folder is FasterTransformer's, and has no form before that. */
bool proa_weights_is_ft(const char *dir);

/* weights.c: an empty one. */
proa_weights *proa_weights_new(void);
/* weights.c: a row of w->files for that name, nothing mapped yet. */
int32_t proa_weights_add_file(proa_weights *w, const char *name);
/* weights.c: maps the file at path and reads it by the caller's reader. */
PROA_MUST_CHECK proa_status proa_weights_read_file_as(proa_weights *w, const char *path,
                                                      proa_weights_reader *read, proa_err *err);
/* weights.c: a fresh row; LIMIT beyond PROA_TENSORS_MAX. The row may move when the next one is added. Its name is at
 * most PROA_TENSOR_NAME_MAX bytes and differs from all others: the reader has checked it. */
PROA_MUST_CHECK proa_status proa_weights_add_tensor(proa_weights *w, proa_weights_tensor tensor, proa_err *err);
/* weights.c: a text in place of a file of the folder (base/files.h). What it points to is in w->arena. */
void proa_weights_add_made(proa_weights *w, proa_made_file made);
/* weights.c: the list is complete, or was changed: sorts it by name and indexes it. */
void proa_weights_index(proa_weights *w);

#endif
