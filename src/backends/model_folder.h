/* SPDX-License-Identifier: Apache-2.0
 * model_folder.h - the folder of a model's files, which parameters of its configuration may name.
 * Threads: any. A model of a hub may be downloaded meanwhile. */
#ifndef PROA_BACKENDS_MODEL_FOLDER_H
#define PROA_BACKENDS_MODEL_FOLDER_H

#include "serve/backend.h"

/* out[PROA_PATH_MAX] = the path `given` that the parameter `key` names, relative to the model's folder. If nothing is
 * there and it has the form ORG/NAME, it is a model of a hub, which is downloaded. The value may come with a load
 * request: then it needs --allow-external-paths for both (proa_served_model_resolve). */
PROA_MUST_CHECK proa_status proa_model_path(char *out, const proa_served_model *model, const char *key,
                                            const char *given, proa_err *err);

/* out[PROA_PATH_MAX] = the folder that the first of the parameters `keys` (NULL-terminated) which the configuration has
 * names: a path, relative to the model's folder, or ORG/NAME of a hub. With none of them: the version's folder if it
 * has the files of a model, else the model's folder. NOT_FOUND: the named folder does not exist. */
PROA_MUST_CHECK proa_status proa_model_folder(char *out, const proa_served_model *model,
                                              const char *const *keys, proa_err *err);

#endif
