/* SPDX-License-Identifier: Apache-2.0
 * page_folder.h - the third level of the prefix cache: pages as files of a folder (page_file.h), which outlive the
 * process. A thread of its own reads and writes them.
 *
 * A file is named by the model's fingerprint and the page's key, so several models and servers can share a folder: each
 * finds what the others wrote. When the files exceed the folder's limit, the least recently used ones are deleted,
 * whichever server wrote them. A file that is refused (page_file.h) is deleted with one line of warning, and its page
 * is computed again.
 *
 * Owner:   one folder per engine, opened with it.
 * Threads: the stepping thread calls all functions. From submit until proa_page_folder_finished returns the job, its
 * image
 *          belongs to the folder's own thread. */
#ifndef PROA_KV_PAGE_FOLDER_H
#define PROA_KV_PAGE_FOLDER_H

#include "kv/page_file.h"

/* One file to be read or written. */
typedef struct proa_page_job {
    struct proa_page_job *next;
    proa_page_name name; /* ids: memory of the job's owner, until it is returned */
    char *image;
    bool writes;
    int32_t tag;        /* for the owner; the folder does not read it */
    proa_status status; /* of the returned job */
} proa_page_job;

typedef struct proa_page_folder proa_page_folder;

/* Opens the folder `path`, or creates it. INVALID, with the reason, unless it belongs to this user and no other user
 * may write to it. bytes_max: limit of all files in it. */
PROA_MUST_CHECK proa_status proa_page_folder_open(proa_page_folder **out, const char *path,
                                                  const proa_page_format *format, int64_t bytes_max,
                                                  proa_err *err);
/* Waits until all submitted jobs are done; proa_page_folder_finished does not return them any more. NULL is fine. */
void proa_page_folder_close(proa_page_folder *f);

/* Whether the folder had the page when its list of files was last read. */
bool proa_page_folder_has(proa_page_folder *f, const proa_page_key *key);
/* Queues a job. Jobs that read are done before jobs that write. */
void proa_page_folder_submit(proa_page_folder *f, proa_page_job *job);
/* A job that is done; NULL: there is none now. */
proa_page_job *proa_page_folder_finished(proa_page_folder *f);
/* Returns when there is a finished job, or after ms milliseconds. */
void proa_page_folder_wait(proa_page_folder *f, int64_t ms);

/* Files of the folder that are pages of this model. */
int64_t proa_page_folder_pages(proa_page_folder *f);

#endif
