/* SPDX-License-Identifier: Apache-2.0
 * hub.h - models by name: downloads a repository of a Hugging Face hub into the cache that transformers and
 *         huggingface_hub use, and says where it is.
 *
 *     char *path;
 *     proa_err err = {0};
 *     if (proa_hub_pull(&path, "ORG/NAME", NULL, NULL, &err) != PROA_OK) ...err.text...
 *     proa_engine_open(&engine, path, NULL, &err);
 *     free(path);
 *
 * A name is ORG/NAME, then ":FILE" for one GGUF file of several (its name or a part such as Q4_K_M), then "@REVISION"
 * for a branch, a tag or a commit. The environment is read as huggingface_hub reads it: HF_ENDPOINT, HF_HOME,
 * HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT.
 * Owner:   the caller frees the texts that it is given.
 * Threads: any number of threads and processes may pull at the same time, also the same model. */
#ifndef PROA_HUB_H
#define PROA_HUB_H

#include "proa/status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct proa_hub_progress {
    const char *file; /* the file that is being downloaded, or the first of several; NULL: none yet */
    const char *waiting; /* NULL: nothing is waited for; else why and how long, such as "429 Too Many Requests: 5 s" */
    int32_t files, files_done;
    int64_t bytes, bytes_done; /* of all files that this call downloads, with what an earlier one left */
} proa_hub_progress;

typedef struct proa_hub_options {
    const char *endpoint; /* NULL: as HF_ENDPOINT says, https://huggingface.co */
    const char *cache;    /* folder; NULL: as HF_HUB_CACHE and HF_HOME say, ~/.cache/huggingface/hub */
    const char *token;    /* NULL: as HF_TOKEN says, or the file of `hf auth login`; "": none */
    bool offline;         /* only look into the cache; HF_HUB_OFFLINE=1 does the same */
    bool verify;          /* hash the files that are there already, and download again what is damaged */
    bool dry_run;         /* download nothing; the result lists what would be */
    int32_t connections;  /* downloads at the same time, 1 to 32; 0: 8 */
    /* Called a few times a second on the caller's thread; returns false to cancel. NULL: not called. */
    bool (*progress)(void *arg, const proa_hub_progress *progress);
    void *progress_arg;
} proa_hub_options;

typedef struct proa_hub_file {
    const char *name; /* in the repository, with slashes */
    int64_t bytes;
    bool downloaded; /* by this call; with dry_run, whether it would be */
} proa_hub_file;

/* What a pull did. Release it with proa_hub_result_release. */
typedef struct proa_hub_result {
    char *path;           /* the snapshot's folder, or a GGUF file in it */
    char *repo;           /* "ORG/NAME" */
    char *commit;         /* 40 hexadecimal digits */
    proa_hub_file *files; /* those that Proa reads */
    int32_t files_count;
    int64_t bytes_downloaded;
} proa_hub_result;

/* Whether a MODEL is the name of one on a hub: it has the form, and no file or folder has that path. */
PROA_EXPORT bool proa_hub_is_name(const char *model);

/* Makes the files that Proa reads available in the cache and returns the model's path in *path (which may be NULL)
 * and details in *result (which may be NULL). Files that are in the cache, from whichever program, are not downloaded
 * again. A file appears under its name only when it is complete and its checksum is right; after a failure the next
 * call continues where this one stopped. If the hub cannot be reached and the cache has the whole revision, that is
 * used. options NULL: the environment decides. */
PROA_EXPORT proa_status proa_hub_pull(char **path, const char *name, const proa_hub_options *options,
                                      proa_hub_result *result, proa_err *err);
PROA_EXPORT void proa_hub_result_release(proa_hub_result *result);

#ifdef __cplusplus
}
#endif
#endif
