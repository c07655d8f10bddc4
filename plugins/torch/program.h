/* SPDX-License-Identifier: Apache-2.0
 * program.h - a loaded file: TorchScript (script.cpp) or a package of AOTInductor (package.cpp).
 * Threads: run may be called by several threads at once. */
#ifndef PROA_PLUGINS_TORCH_PROGRAM_H
#define PROA_PLUGINS_TORCH_PROGRAM_H

#include "names.h"

#include <ATen/core/ivalue.h>

#include <memory>

namespace proa_torch
{

/* A value for a place: a tensor, or a list of strings. */
struct Given {
    Place place;
    c10::IValue value;
};

/* The results, flattened in depth-first order: each a tensor or a list of strings, with its path. */
struct Results {
    std::vector<c10::IValue> values;
    std::vector<std::string> paths;
};

class Program
{
  public:
    virtual ~Program() = default;
    virtual const std::vector<Argument> &arguments() const = 0;
    /* Does the code write to its inputs? Then it gets copies. */
    virtual bool writes_inputs() const = 0;
    virtual Results run(const std::vector<Given> &given) = 0;
};

/* device: where parameters go; nullopt: where the file says. Throw what torch throws. */
std::unique_ptr<Program> load_script(const std::string &path, std::optional<c10::Device> device,
                                     const Settings &settings);
std::unique_ptr<Program> load_package(const std::string &path, std::optional<c10::Device> device);

/* Flattens a value that a program returned; a Failure names what is neither a tensor nor strings. */
Results flatten(const c10::IValue &value);

} // namespace proa_torch

#endif
