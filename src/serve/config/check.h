/* SPDX-License-Identifier: Apache-2.0
 * config_check.h - inside serve: the parts of proa_config_check. All texts are Triton's; what a configuration must have
 * is said in its order, so that of two mistakes the same one is named. */
#ifndef PROA_SERVE_CONFIG_CHECK_H
#define PROA_SERVE_CONFIG_CHECK_H

#include "serve/config/config.h"

/* dynamic_batching: preferred sizes, priorities, queue policies. */
PROA_MUST_CHECK proa_status proa_config_check_dynamic(const Inference__ModelConfig *config, proa_err *err);
/* sequence_batching: controls, strategies. */
PROA_MUST_CHECK proa_status proa_config_check_sequence(const Inference__ModelConfig *config, proa_err *err);
/* ensemble_scheduling: what must not stand beside it, and the graph of its tensors. */
PROA_MUST_CHECK proa_status proa_config_check_ensemble(const Inference__ModelConfig *config, proa_err *err);

#endif
