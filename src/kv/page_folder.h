/* SPDX-License-Identifier: Apache-2.0
 * page_folder.h - the third level of the prefix cache: pages as files of a folder (page_file.h), which outlive the
 * process. A thread of its own reads and writes them.
 *
 * A file is named by the model's fingerprint and the page's key, so several models and several servers share a folder:
 * what one writes the others find. The folder has a bound; beyond it the files that were used least recently go, of
 * whomever they are. A file that is refused (page_file.h) gives one line of warning, is deleted, and is computed anew.
 *
 * Owner:   one folder per engine, opened with it.
 * Threads: all functions: the stepping thread. The folder's own thread has the image of a job from submit until the job
 *          is returned by proa_page_folder_finished. */
#ifndef PROA_KV_PAGE_FOLDER_H
#define PROA_KV_PAGE_FOLDER_H

#include "kv/page_file.h"

/* One file to be read or written. */
typedef struct proa_page_job {
    struct proa_page_job *next;
    proa_page_name name; /* ids: memory of the job's owner, until it is returned */
    char *image;
    bool writes;
    int32_t tag;        /* the owner's */
    proa_status status; /* of the returned job */
} proa_page_job;

typedef struct proa_page_folder proa_page_folder;

/* path must be a folder, or the name of one to be made, that belongs to this user and that no other user may write to;
 * else INVALID says why. bytes_max: of all files in it. */
PROA_MUST_CHECK proa_status proa_page_folder_open(proa_page_folder **out, const char *path,
                                                  const proa_page_format *format, int64_t bytes_max,
                                                  proa_err *err);
/* Returns when all jobs that were submitted are done; they are not returned any more. NULL is fine. */
void proa_page_folder_close(proa_page_folder *f);

/* Whether the folder had the page when it was last looked at. */
bool proa_page_folder_has(proa_page_folder *f, const proa_page_key *key);
/* Reading comes before writing. */
void proa_page_folder_submit(proa_page_folder *f, proa_page_job *job);
/* A job that is done; NULL: there is none now. */
proa_page_job *proa_page_folder_finished(proa_page_folder *f);
/* Returns when there is a finished job, or after ms milliseconds. */
void proa_page_folder_wait(proa_page_folder *f, int64_t ms);

/* Number of pages in the files that this folder has for this model. */
int64_t proa_page_folder_pages(proa_page_folder *f);

#endif
