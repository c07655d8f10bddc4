/* SPDX-License-Identifier: Apache-2.0
 * plugins.c - Proa's own backends that are shared libraries, since what they link to is not on every host. */
#include "backends/library/library.h"

#include "base/compiler.h"
#include "base/file.h"
#include "base/limits.h"
#include <string.h>
#include <unistd.h>

static const struct {
    const char *backend, *file, *command;
} plugins[] = {{"pytorch", "libproa_torch.so", "./do build torch"}};

/* From the folder of the program: an installed one, a package, a tree of the source. */
static const char *const places[] = {"", "../lib/", "../lib/proa/", "../torch/"};

static bool is_at(char *path, const char *folder, const char *file)
{
    return proa_path_join(path, folder, file, NULL) == PROA_OK && proa_file_exists(path);
}

/* The program's folder with a '/' at its end; false if it is not known. */
static bool program_folder(char *folder)
{
    ssize_t len = readlink("/proc/self/exe", folder, PROA_PATH_MAX - 1);
    char *slash = len > 0 ? (folder[len] = 0, strrchr(folder, '/')) : NULL;
    if (slash) slash[1] = 0;
    return slash != NULL;
}

static bool find_file(char *path, const char *directory, const char *backend, const char *file)
{
    char folder[PROA_PATH_MAX], program[PROA_PATH_MAX];
    if (directory && proa_path_join(folder, directory, backend, NULL) == PROA_OK && is_at(path, folder, file))
        return true;
    if (directory && is_at(path, directory, file)) return true;
    if (!program_folder(program)) return false;
    for (size_t i = 0; i < PROA_COUNT(places); i++)
        if (snprintf(folder, sizeof folder, "%s%s", program, places[i]) < (int)sizeof folder &&
            is_at(path, folder, file))
            return true;
    return false;
}

const char *proa_library_plugin_name(int i)
{
    return i >= 0 && (size_t)i < PROA_COUNT(plugins) ? plugins[i].backend : NULL;
}

proa_status proa_library_plugin(char *path, const char *directory, const char *backend, proa_err *err)
{
    path[0] = 0;
    for (size_t i = 0; i < PROA_COUNT(plugins); i++) {
        if (strcmp(plugins[i].backend, backend) != 0) continue;
        if (!find_file(path, directory, backend, plugins[i].file))
            return path[0] = 0,
                   PROA_FAIL(err, UNAVAILABLE,
                             "backend '%s' needs the plug-in %s, which is neither beside the program nor in "
                             "--backend-directory ('%s' builds it)",
                             backend, plugins[i].file, plugins[i].command);
    }
    return PROA_OK;
}
