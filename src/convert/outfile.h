/* SPDX-License-Identifier: Apache-2.0
 * outfile.h - a file whose layout is known before it is written: a header, then items of known sizes at known offsets.
 *             A second run continues it where the first one stopped.
 * Owner:   the caller's proa_outfile, only read.
 * Threads: the caller's; fill is called on all threads of the pool, for pieces that do not overlap.
 * Way in:  proa_outfile_write.
 *
 * While it is written the file is NAME.partial, and NAME.journal says how many of its bytes are written and of which
 * job they are. When all are on the disk, the file is renamed to NAME and the journal removed. So NAME is always whole.
 * Bytes between items are zeros. */
#ifndef PROA_CONVERT_OUTFILE_H
#define PROA_CONVERT_OUTFILE_H

#include "convert/convert.h"

typedef struct proa_outfile_item {
    int64_t offset, bytes; /* in the file; items are in rising order and do not overlap */
    int64_t unit;          /* pieces are multiples of it, in bytes; a divisor of bytes */
} proa_outfile_item;

/* Makes bytes [from, from + bytes) of an item. from and bytes are multiples of its unit. */
typedef void proa_outfile_fill(void *context, int64_t item, int64_t from, int64_t bytes, void *out);
/* Makes a whole item, on the caller's thread; it may use the pool, and fail. */
typedef proa_status proa_outfile_make(void *context, int64_t item, void *out, proa_err *err);

typedef struct proa_outfile {
    const char *path;
    proa_str header;
    const proa_outfile_item *items;
    int64_t count;
    int64_t bytes; /* of the whole file */
    uint64_t key;  /* of the job: source and options (proa_convert_key) */
    proa_outfile_fill *fill;
    proa_outfile_make *make; /* in place of fill, where the unit of each item is all of it; NULL: fill */
    void (*item_done)(void *context, int64_t item); /* NULL: none */
    void *context;
    int64_t chunk_bytes; /* written at once; 0: PROA_OUTFILE_CHUNK_BYTES */
} proa_outfile;

/* Bytes written by all files of a job, for its progress function. */
typedef struct proa_convert_progress {
    int64_t done, total;
} proa_convert_progress;

/* Writes or continues the file. An existing file at path is replaced. IO with the reason (a full disk: the file can be
 * continued later) or because another process writes the file and has not ended within PROA_OUTFILE_LOCK_MS; CANCELLED
 * if the job's progress function returned false; EXISTS if the unfinished file belongs to another job and
 * job->overwrite is not set, or if another process completed the file while this one waited. */
PROA_MUST_CHECK proa_status proa_outfile_write(const proa_outfile *f, const proa_convert_job *job,
                                               proa_convert_progress *progress, proa_err *err);
/* What identifies a job: the source's files and tensors, and the options. form: "hf", "gguf", ... */
uint64_t proa_convert_key(const proa_convert_job *job, const char *form);
/* Writes a small file at once: to a name of its own, then renamed. */
PROA_MUST_CHECK proa_status proa_outfile_put(const char *path, proa_str text, proa_err *err);

#endif
