/* SPDX-License-Identifier: Apache-2.0
 * model_folder.c - looks up the folder of a model's files: on disk, then on a hub. */
#include "backends/model_folder.h"

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "engine/access.h"
#include "hub/hub.h"
#include <stdio.h>
#include <stdlib.h>

proa_status proa_model_path(char *out, const proa_served_model *model, const char *key, const char *given,
                            proa_err *err)
{
    char *path = NULL;
    PROA_TRY(proa_served_model_resolve(out, model, proa_served_model_path(model), key, given, err));
    if (proa_dir_exists(out) || proa_file_exists(out) || !proa_hub_is_name(given)) return PROA_OK;
    PROA_LOG(INFO, "'%s' is looked up on the hub", given);
    PROA_TRY(proa_hub_pull(&path, given, NULL, NULL, err));
    snprintf(out, PROA_PATH_MAX, "%s", path);
    free(path);
    return PROA_OK;
}

proa_status proa_model_folder(char *out, const proa_served_model *model, const char *const *keys, proa_err *err)
{
    const char *given = NULL, *version = proa_served_model_version_path(model);
    while (*keys && !(given = proa_served_model_parameter(model, *keys))) keys++;
    if (!given)
        return snprintf(out, PROA_PATH_MAX, "%s",
                        version && proa_engine_in_folder(version) ? version : proa_served_model_path(model)),
               PROA_OK;
    PROA_TRY(proa_model_path(out, model, *keys, given, err));
    if (proa_dir_exists(out)) return PROA_OK;
    return PROA_FAIL(err, NOT_FOUND, "folder '%s' is not there (a relative path begins at '%s')", given,
                     proa_served_model_path(model));
}
