/* SPDX-License-Identifier: Apache-2.0
 * hub.h - models by their names on a hub: what `proa pull` and every command with a MODEL share.
 * Threads: main's. */
#ifndef PROA_CLI_HUB_H
#define PROA_CLI_HUB_H

#include "base/status.h"
#include "hub/hub.h"

/* proa_hub_pull with a progress line and Ctrl-C. */
PROA_MUST_CHECK proa_status proa_cli_pull(const char *name, const proa_hub_options *options,
                                          proa_hub_result *result, proa_err *err);
/* Replaces ORG/NAME, or an address of an object store, by the path of the model in the cache, which is downloaded if it
 * is not there. A local path, and
 * what has not the form of a name, stays as it is. The new text lives until the process ends. */
PROA_MUST_CHECK proa_status proa_cli_find_model(const char **model, proa_err *err);

#endif
