/* SPDX-License-Identifier: Apache-2.0
 * Finding a tokenizer's files in a model folder. */
#include "base/file.h"
#include "base/limits.h"
#include "text/load.h"

static proa_status open_json_file(proa_tokenizer **out, const char *path, proa_err *err)
{
    proa_buf text;
    proa_status status = proa_file_read(&text, path, PROA_TOKENIZER_BYTES_MAX, err);
    if (status == PROA_OK) status = proa_tokenizer_open_json(out, proa_buf_view(&text), path, err);
    proa_buf_release(&text);
    return status;
}

proa_status proa_tokenizer_open(proa_tokenizer **out, const char *folder, proa_err *err)
{
    char path[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(path, folder, "tokenizer.json", err));
    if (proa_file_exists(path)) return open_json_file(out, path, err);
    return PROA_FAIL(err, NOT_FOUND, "'%s' has no tokenizer: no tokenizer.json", folder);
}
