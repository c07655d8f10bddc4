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
    uint64_t device, inode; /* identifies the file and its last modification for proa_mmap_check */
    int64_t written_ns;
} proa_mmap;

PROA_MUST_CHECK proa_status proa_mmap_open(proa_mmap *map, const char *path, proa_err *err);
void proa_mmap_close(proa_mmap *map);
/* Call it after the last read of the map. IO if the file was written to or shortened since it was mapped:
 * what was read may be a mix of two versions, or zeros. A file that was replaced by rename is still
 * complete. path: the file that was opened. Without proa_guards_install (base/guard.h) reading a shortened
 * file ends the process before this call. */
PROA_MUST_CHECK proa_status proa_mmap_check(const proa_mmap *map, const char *path, proa_err *err);
/* Tells the kernel that [ptr, ptr+bytes) of the map will not be read again soon, so that its pages no
 * longer count as ours. */
void proa_mmap_drop(const proa_mmap *map, const void *ptr, int64_t bytes);

bool proa_file_exists(const char *path);
bool proa_dir_exists(const char *path);
/* Removes a folder with all that is in it; symbolic links are not followed. What cannot be removed stays. */
void proa_dir_remove(const char *path);
/* Resolves a path of a model's configuration into out[PROA_PATH_MAX]. "$$TRITON_MODEL_DIRECTORY" is
 * replaced by dir. A relative path is relative to dir or, if it does not exist there, to the working
 * directory. */
PROA_MUST_CHECK proa_status proa_path_resolve(char *out, const char *dir, const char *path, proa_err *err);
/* Writes "dir/name" to out[PROA_PATH_MAX]; INVALID if it is too long. */
PROA_MUST_CHECK proa_status proa_path_join(char *out, const char *dir, const char *name, proa_err *err);

#endif
