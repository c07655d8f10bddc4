/* SPDX-License-Identifier: Apache-2.0
 * names.h - which tensor of a configuration is which argument or result of a model, by Triton's rules:
 *
 *   1. A model with one argument, a dictionary: names are its keys.
 *   2. All names are arguments of forward. An element of an argument is `argument[key]` or `argument[0]`.
 *   3. All names end with `__N`: the argument or result number N.
 *   4. Otherwise the order of config.pbtxt.
 *
 * Results that are nested count in depth-first order. Those of a dictionary may also be named by key. */
#ifndef PROA_PLUGINS_TORCH_NAMES_H
#define PROA_PLUGINS_TORCH_NAMES_H

#include "common.h"

#include <vector>

namespace proa_torch
{

struct Argument {
    std::string name;
    enum Kind { TENSOR, STRINGS, NUMBER, DICT, LIST, TUPLE } kind;
    size_t elements; /* of a tuple */
    bool required;   /* it has no default and may not be None */
};

/* Where an input goes: to an argument, or to an element of one. */
struct Place {
    size_t argument;
    std::string key;    /* of a dictionary */
    size_t element = 0; /* of a list or tuple */
};

struct Input {
    std::string name;
    proa_backend_type type;
    bool optional, ragged;
    Place place;
};

/* All inputs that a request may bring, those that Proa adds at the end. A Failure names the tensor that fits nowhere,
 * or the argument that nothing fills. */
std::vector<Input> bind_inputs(const proa_backend_model *model, const std::vector<Argument> &arguments);

struct Output {
    std::string name;
    proa_backend_type type;
};
std::vector<Output> declared_outputs(const proa_backend_model *model);

/* For each output the number of its result. paths: of all results, "", "[0]", "[key][1]". */
std::vector<size_t> find_results(const std::vector<Output> &outputs, const std::vector<std::string> &paths);

} // namespace proa_torch

#endif
