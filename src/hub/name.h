/* SPDX-License-Identifier: Apache-2.0
 * name.h - "ORG/NAME[:FILE][@REVISION]" in its parts.
 * Threads: any. */
#ifndef PROA_HUB_NAME_H
#define PROA_HUB_NAME_H

#include "base/limits.h"
#include "base/status.h"
#include "base/str.h"

typedef struct proa_hub_name {
    char repo[PROA_HUB_NAME_MAX + 1];         /* "ORG/NAME" */
    char file[PROA_HUB_REVISION_MAX + 1];     /* "": none */
    char revision[PROA_HUB_REVISION_MAX + 1]; /* "main" if the name has none */
} proa_hub_name;

PROA_MUST_CHECK proa_status proa_hub_name_parse(proa_hub_name *out, const char *text, proa_err *err);
/* A path inside a repository or below refs/: relative, of printable characters, without empty parts, "." and "..". */
bool proa_hub_is_path(proa_str path);
/* A commit: 40 lower-case hexadecimal digits. */
bool proa_hub_is_commit(proa_str text);
/* "models--ORG--NAME": the folder of a repository in the cache. */
void proa_hub_name_folder(char out[PROA_HUB_NAME_MAX + 16], const char *repo);

#endif
