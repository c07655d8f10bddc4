/* SPDX-License-Identifier: Apache-2.0
 * check.h - inside serve: the parts of proa_config_check. All texts are Triton's. The checks run in Triton's
 * order, so that a configuration with two mistakes gets the same message. */
#ifndef PROA_SERVE_CONFIG_CHECK_H
#define PROA_SERVE_CONFIG_CHECK_H

#include "serve/config/config.h"

/* dynamic_batching: preferred sizes, priorities, queue policies. */
PROA_MUST_CHECK proa_status proa_config_check_dynamic(const Inference__ModelConfig *config, proa_err *err);
/* sequence_batching: controls, strategies. */
PROA_MUST_CHECK proa_status proa_config_check_sequence(const Inference__ModelConfig *config, proa_err *err);
/* ensemble_scheduling: options that exclude it, and the graph of its tensors. */
PROA_MUST_CHECK proa_status proa_config_check_ensemble(const Inference__ModelConfig *config, proa_err *err);

#endif
