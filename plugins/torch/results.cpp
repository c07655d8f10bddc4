/* SPDX-License-Identifier: Apache-2.0
 * results.cpp - flattens what a program returned. */
#include "program.h"

namespace proa_torch
{

/* Deeper nesting than any model has; a bound for the recursion. */
static const int depth_max = 32;

static void flatten_into(Results *out, const c10::IValue &value, const std::string &path, int depth)
{
    if (depth > depth_max) fail(PROA_INVALID, "the results are nested in more than %d levels", depth_max);
    bool strings = value.isList() && value.toListRef().empty()
                       ? value.type()->cast<c10::ListType>()->getElementType()->kind() == c10::TypeKind::StringType
                       : value.isList() && value.toListRef()[0].isString();
    if (value.isTensor() || strings) {
        out->values.push_back(value);
        out->paths.push_back(path);
    } else if (value.isTuple()) {
        size_t i = 0;
        for (const c10::IValue &element : value.toTupleRef().elements())
            flatten_into(out, element, path + "[" + std::to_string(i++) + "]", depth + 1);
    } else if (value.isList()) {
        size_t i = 0;
        for (const c10::IValue &element : value.toListRef())
            flatten_into(out, element, path + "[" + std::to_string(i++) + "]", depth + 1);
    } else if (value.isGenericDict()) {
        for (const auto &entry : value.toGenericDict()) {
            if (!entry.key().isString())
                fail(PROA_INVALID, "a dictionary of the results has keys that are no texts");
            flatten_into(out, entry.value(), path + "[" + entry.key().toStringRef() + "]", depth + 1);
        }
    } else {
        fail(PROA_INVALID, "output%s must be of type Tensor or List[str], received %s", path.c_str(),
             value.type()->str().c_str());
    }
}

Results flatten(const c10::IValue &value)
{
    Results results;
    flatten_into(&results, value, "", 0);
    return results;
}

} // namespace proa_torch
