/* SPDX-License-Identifier: Apache-2.0
 * file.h - files read whole or mapped, and paths. */
#ifndef PROA_BASE_FILE_H
#define PROA_BASE_FILE_H

#include "base/guard.h"
#include "base/status.h"
#include "base/str.h"

/* Reads a regular file of at most bytes_max bytes into buf (initialised here; release it also on failure). */
PROA_MUST_CHECK proa_status proa_file_read(proa_buf *buf, const char *path, int64_t bytes_max, proa_err *err);

/* A file mapped read-only. Its pages count as this process's memory only while they are touched. */
typedef struct proa_mmap {
    const unsigned char *ptr; /* NULL if the file is empty */
    int64_t bytes;
    proa_guard *guard;
    uint64_t device, inode; /* which file it was, and when it was written last, for proa_mmap_check */
    int64_t written_ns;
} proa_mmap;

PROA_MUST_CHECK proa_status proa_mmap_open(proa_mmap *map, const char *path, proa_err *err);
void proa_mmap_close(proa_mmap *map);
/* To be asked when all that is wanted of the map was read: IO if the file was written to or shortened since it was
 * mapped, so that what was read may be parts of two files, or zeros. A file that was replaced (renamed over) is still
 * there whole. path: what was opened. Without proa_guards_install (base/guard.h) reading a file that becomes shorter
 * ends the process before anybody can ask. */
PROA_MUST_CHECK proa_status proa_mmap_check(const proa_mmap *map, const char *path, proa_err *err);
/* Tells the kernel that [ptr, ptr+bytes) of the map will not be read again soon: its pages leave our memory. */
void proa_mmap_drop(const proa_mmap *map, const void *ptr, int64_t bytes);

bool proa_file_exists(const char *path);
bool proa_dir_exists(const char *path);
/* The file or folder that a model's configuration names, in out[PROA_PATH_MAX]: "$$TRITON_MODEL_DIRECTORY" in it stands for
 * dir; a relative path begins at dir or, if there is nothing there, where the program was started. */
PROA_MUST_CHECK proa_status proa_path_resolve(char *out, const char *dir, const char *path, proa_err *err);
/* Writes "dir/name" to out[PROA_PATH_MAX]; INVALID if it is too long. */
PROA_MUST_CHECK proa_status proa_path_join(char *out, const char *dir, const char *name, proa_err *err);

#endif
