/* SPDX-License-Identifier: Apache-2.0
 * generation_config.h - the members of a model's generation_config.json as options.
 * Threads: any; it reads its arguments only. */
#ifndef PROA_ENGINE_GENERATION_CONFIG_H
#define PROA_ENGINE_GENERATION_CONFIG_H

#include "options/options.h"

/* Each option that the file gives is marked as given; temperature, top_k and the other warpers only when it says
 * do_sample. Lists go to the arena. Members that would change the output and have no option are named in a warning of
 * the log. INVALID or LIMIT names the option. */
PROA_MUST_CHECK proa_status proa_options_from_generation_config(proa_options *o, const proa_json *json,
                                                                proa_arena *arena, proa_err *err);

#endif
