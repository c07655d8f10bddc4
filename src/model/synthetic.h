/* SPDX-License-Identifier: Apache-2.0
 * synthetic.h - models of well-known shapes with random weights, made on the device: for measuring without a download.
 * Way in:  a path "synthetic:gptj-6b" where a folder's is taken. */
#ifndef PROA_MODEL_SYNTHETIC_H
#define PROA_MODEL_SYNTHETIC_H

#include "base/status.h"
#include <stdbool.h>

/* All of them, for a help text. */
#define PROA_SYNTHETIC_NAMES                                                                                 \
    "gptj-6b, llama2-7b, llama3-8b, llama3-8b-gptq, llama3-8b-gptq-32, llama3-8b-int8-32, "                  \
    "llama3-8b-fp8-128, llama3-70b, llama3-405b, deepseek-v3, mixtral-8x7b, qwen3-30b-a3b, gpt-oss-20b, "    \
    "bamba-9b, mamba-2.8b, gpt2-xl, t5-small, t5-3b, bert-large"

bool proa_synthetic_is(const char *path);
/* Its config.json; NULL and NOT_FOUND, with the names there are, for an unknown one. */
proa_status proa_synthetic_config(const char **json, const char *path, proa_err *err);

#endif
