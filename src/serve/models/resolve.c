/* SPDX-License-Identifier: Apache-2.0
 * resolve.c - the paths that parameters of a configuration name: a folder or a file that may not be the model's. */
#include "base/file.h"
#include "serve/core.h"
#include <stdlib.h>
#include <string.h>

static bool is_within(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    while (n > 0 && folder[n - 1] == '/') n--;
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || !path[n]);
}

/* As it is written or as it resolves: a link in the repository is its owner's and may lead outside, but not up from
 * where it leads. */
static bool in_repository(const proa_server *s, const proa_source *source, const char *path)
{
    char *real = realpath(path, NULL);
    bool plain = path[0] == '/' && !proa_path_climbs(path);
    bool found = (plain && is_within(path, source->path)) || (real && is_within(real, source->path));
    for (int i = 0; i < s->roots_count && !found; i++)
        found = (plain && is_within(path, s->roots[i].path)) || (real && is_within(real, s->roots[i].path));
    free(real);
    return found;
}

proa_status proa_served_model_resolve(char *out, const proa_served_model *model, const char *folder,
                                      const char *what, const char *path, proa_err *err)
{
    if (!model) model = proa_completing_model();
    PROA_TRY(proa_path_resolve(out, folder, path, err));
    if (!model || !model->source || !model->source->overridden) return PROA_OK;
    if (model->server->options.allow_external_paths || in_repository(model->server, model->source, out))
        return PROA_OK;
    return PROA_FAIL(
        err, INVALID,
        "parameter '%s' is '%s', which is not in the repository: a configuration that comes with a request "
        "needs --allow-external-paths for it",
        what, path);
}

bool proa_served_model_external(const proa_served_model *model)
{
    if (!model) model = proa_completing_model();
    return model && model->server && model->server->options.allow_external_paths;
}
