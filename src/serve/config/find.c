/* SPDX-License-Identifier: Apache-2.0
 * find.c - parts of a configuration by their names. */
#include "serve/config/config.h"

#include <string.h>

const Inference__ModelInput *proa_config_input(const Inference__ModelConfig *config, const char *name)
{
    for (size_t i = 0; i < config->n_input; i++)
        if (strcmp(config->input[i]->name, name) == 0) return config->input[i];
    return NULL;
}

const Inference__ModelOutput *proa_config_output(const Inference__ModelConfig *config, const char *name)
{
    for (size_t i = 0; i < config->n_output; i++)
        if (strcmp(config->output[i]->name, name) == 0) return config->output[i];
    return NULL;
}

bool proa_config_is_placeholder(const Inference__ModelConfig__ParametersEntry *parameter)
{
    proa_str s = proa_str_c(parameter->value ? parameter->value->string_value : "");
    return proa_str_starts(s, proa_str_c("${")) && s.ptr[s.len - 1] == '}';
}

const char *proa_config_parameter(const Inference__ModelConfig *config, const char *key)
{
    for (size_t i = 0; i < config->n_parameters; i++) {
        if (strcmp(config->parameters[i]->key, key) != 0) continue;
        const Inference__ModelParameter *found = config->parameters[i]->value;
        if (!found || !found->string_value[0] || proa_config_is_placeholder(config->parameters[i]))
            return NULL;
        return found->string_value;
    }
    return NULL;
}
