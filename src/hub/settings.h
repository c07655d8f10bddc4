/* SPDX-License-Identifier: Apache-2.0
 * settings.h - the hub, the cache and the token: options, then the environment as huggingface_hub reads it.
 * Owner:   the caller's struct; it owns its texts.
 * Threads: the environment must not change meanwhile. */
#ifndef PROA_HUB_SETTINGS_H
#define PROA_HUB_SETTINGS_H

#include "base/limits.h"
#include "base/status.h"
#include "proa/hub.h"

typedef struct proa_hub_settings {
    char endpoint[1024]; /* "https://huggingface.co", without a slash at the end */
    char cache[PROA_PATH_MAX];
    char token[PROA_HUB_TOKEN_MAX]; /* "": none */
    bool offline;
    int64_t timeout_s; /* without a byte from the server */
    int connections;
} proa_hub_settings;

PROA_MUST_CHECK proa_status proa_hub_settings_read(proa_hub_settings *out, const proa_hub_options *options,
                                                   proa_err *err);

#endif
