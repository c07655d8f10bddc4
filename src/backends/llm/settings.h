/* SPDX-License-Identifier: Apache-2.0
 * settings.h - parameters of a model, and of the command line for its backend, as options of its engines. Private to
 * src/backends/llm.
 * Owner:   texts are the model's (its arena) or the server's. Threads: the one that opens the model; proa_llm_setting
 *          any. */
#ifndef PROA_BACKENDS_LLM_SETTINGS_H
#define PROA_BACKENDS_LLM_SETTINGS_H

#include "backends/llm/llm.h"

/* Options of an engine: sizes, types, ranks, speculation, adapters. */
PROA_MUST_CHECK proa_status proa_llm_read_options(proa_engine_options *o, proa_llm_model *s, proa_err *err);
/* The replicas, each with the options o: the instance groups, or where these have one instance, the parameter
 * 'replicas'. */
PROA_MUST_CHECK proa_status proa_llm_read_replicas(proa_fleet_options *f, proa_llm_model *s,
                                                   const proa_engine_options *o, proa_err *err);
PROA_MUST_CHECK proa_status proa_llm_read_queue(proa_llm_model *s, proa_err *err); /* s->queue_max */
/* A parameter of the model, or what the command line says for its backend; NULL: neither. */
const char *proa_llm_setting(const proa_served_model *model, const char *key);

#endif
