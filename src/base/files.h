/* SPDX-License-Identifier: Apache-2.0
 * files.h - the small files of a model by name: those of its folder, and texts that stand in for files.
 *           A checkpoint may hold what other models have in files of their own: its configuration, its tokenizer. The
 *           reader of such a checkpoint makes the texts, and everybody else reads a file by its name.
 * Owner:   passed by pointer; the folder's path and the texts belong to whoever made them.
 * Threads: only read; many threads may.
 * Way in:  proa_files_of for a folder on disk, then proa_files_has, proa_files_read and proa_files_json. */
#ifndef PROA_BASE_FILES_H
#define PROA_BASE_FILES_H

#include "base/json.h"
#include "base/limits.h"

/* A text in place of a file. */
typedef struct proa_made_file {
    const char *name; /* "config.json" */
    proa_str text;
    /* NULL: the text above. Else it appends the text to out each time the file is read. */
    proa_status (*write)(const void *arg, proa_buf *out, proa_err *err);
    const void *arg;
} proa_made_file;

typedef struct proa_files {
    const char *dir;            /* the folder; NULL: none */
    const proa_made_file *made; /* [made_count] */
    int32_t made_count;
    bool made_first;  /* a made text wins over the folder's file of that name; else the folder's file does */
    const char *what; /* what errors call the place of made texts; NULL: dir */
} proa_files;

proa_files proa_files_of(const char *dir); /* a folder without made texts */
bool proa_files_has(const proa_files *f, const char *name);
/* The path of the file, or "WHAT: NAME" of a made text, for errors; into out[PROA_PATH_MAX], cut if it is longer. */
const char *proa_files_name(char *out, const proa_files *f, const char *name);
/* As proa_file_read. NOT_FOUND if there is neither a file nor a text. */
PROA_MUST_CHECK proa_status proa_files_read(proa_buf *buf, const proa_files *f, const char *name,
                                            int64_t bytes_max, proa_err *err);
/* As proa_json_load, with proa_json_parse_python. */
PROA_MUST_CHECK proa_status proa_files_json(proa_json **out, const proa_files *f, const char *name,
                                            int64_t bytes_max, proa_err *err);

#endif
