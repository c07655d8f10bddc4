/* SPDX-License-Identifier: Apache-2.0
 * folder.h - the folder that a job writes: made, marked as unfinished until it is whole, with the small files of the
 *            model.
 * Way in:  proa_out_folder_begin, the files, proa_out_folder_end.
 *
 * The file .proa-convert in a folder holds the key of the job that began it. A folder with another job's mark, or with
 * files and no mark, is refused unless the job overwrites. */
#ifndef PROA_CONVERT_FOLDER_H
#define PROA_CONVERT_FOLDER_H

#include "convert/convert.h"

/* Makes the folder job->out, or finds it unfinished by the same job. key: proa_convert_key. */
PROA_MUST_CHECK proa_status proa_out_folder_begin(const proa_convert_job *job, uint64_t key, proa_err *err);
/* The folder is whole: the mark is removed. */
PROA_MUST_CHECK proa_status proa_out_folder_end(const proa_convert_job *job, proa_err *err);
/* Copies tokenizer files, generation_config.json, chat templates and the like; not config.json. */
PROA_MUST_CHECK proa_status proa_out_folder_copy_files(const proa_convert_job *job, proa_err *err);
/* Writes config.json: dtype set where it is not NULL; quantization_config removed if decoded, and set to
 * `quantised`, a JSON object, unless that is empty. */
PROA_MUST_CHECK proa_status proa_out_folder_config(const proa_convert_job *job, const char *dtype,
                                                   bool decoded, proa_str quantised, proa_err *err);

#endif
