/* SPDX-License-Identifier: Apache-2.0
 * unpack.h - unpacks an archive, which may be hostile, into an empty folder.
 * Owner:   the caller's folder; after a failure it holds what had been written, for the caller to remove.
 * Threads: any, one folder each.
 *
 * Nothing is written outside the folder: names are relative and without "..", only files, folders and links are made,
 * symbolic links after everything else, and they must stay inside (but for bin/python*, which of a packed
 * venv is the system's). */
#ifndef PROA_PYTHON_UNPACK_H
#define PROA_PYTHON_UNPACK_H

#include "base/status.h"
#include <stdint.h>

typedef struct proa_unpack_limits {
    int64_t entries, bytes; /* of the archive; of all its files */
} proa_unpack_limits;

/* tar (plain, gzip, bzip2, xz, zstd) or zip, by libarchive, which is looked for at run time: UNSUPPORTED
 * without it. `limits` NULL: PROA_ENV_ENTRIES_MAX, PROA_ENV_BYTES_MAX. */
PROA_MUST_CHECK proa_status proa_unpack(const char *archive, const char *folder,
                                        const proa_unpack_limits *limits, proa_err *err);

/* Removes a folder with all that is in it, without following links. */
void proa_unpack_remove(const char *folder);

#endif
