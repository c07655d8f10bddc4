/* SPDX-License-Identifier: Apache-2.0
 * spec.h - the call specification of a package: the tree of arguments or results as torch.utils._pytree writes it.
 *
 *   [1, {"type": "builtins.dict", "context": "[\"a\"]", "children_spec": [{"type": null, ...}]}]
 *
 * A leaf has the type null. The context of a dictionary is a text, which is the JSON array of its keys. */
#ifndef PROA_PLUGINS_TORCH_SPEC_H
#define PROA_PLUGINS_TORCH_SPEC_H

#include <string>
#include <vector>

namespace proa_torch
{

/* The paths of the leaves in order: "[0]", "[1][key]", ""; a Failure for a text of another form. */
std::vector<std::string> read_spec(const std::string &text);

} // namespace proa_torch

#endif
