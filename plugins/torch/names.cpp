/* SPDX-License-Identifier: Apache-2.0
 * names.cpp - binds the tensors of a configuration to arguments and results. */
#include "names.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace proa_torch
{

/* More digits than any count of tensors has. */
static const size_t digits_max = 6;

static std::optional<size_t> read_number(const std::string &text)
{
    bool digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
    if (!digits || text.empty() || text.size() > digits_max) return std::nullopt;
    return std::stoul(text);
}

/* N of `NAME__N`. */
static std::optional<size_t> index_of(const std::string &name)
{
    size_t at = name.find("__");
    return at == std::string::npos ? std::nullopt : read_number(name.substr(at + 2));
}

static std::optional<Place> element_of(const std::vector<Argument> &arguments, size_t argument,
                                       const std::string &key)
{
    const Argument &a = arguments[argument];
    if (a.kind == Argument::DICT) return Place{argument, key};
    std::optional<size_t> n = read_number(key);
    bool fits = a.kind == Argument::LIST || (a.kind == Argument::TUPLE && n && *n < a.elements);
    return n && fits ? std::optional<Place>({argument, "", *n}) : std::nullopt;
}

/* `argument`, or `argument[key]`. Arguments of a package have brackets themselves: the whole name comes first. */
static std::optional<Place> find_argument(const std::vector<Argument> &arguments, const std::string &name)
{
    for (size_t i = 0; i < arguments.size(); i++) {
        const Argument &a = arguments[i];
        bool whole = a.kind != Argument::DICT && a.kind != Argument::LIST && a.kind != Argument::TUPLE;
        if (name == a.name) return whole ? std::optional<Place>({i, ""}) : std::nullopt;
        if (whole || name.size() < a.name.size() + 3 || name.compare(0, a.name.size(), a.name) != 0) continue;
        if (name[a.name.size()] == '[' && name.back() == ']')
            return element_of(arguments, i, name.substr(a.name.size() + 1, name.size() - a.name.size() - 2));
    }
    return std::nullopt;
}

enum class Rule { KEYS, NAMES, INDEX, ORDER };

static Rule choose_rule(const std::vector<Argument> &arguments, const std::vector<Input> &inputs)
{
    if (arguments.size() == 1 && arguments[0].kind == Argument::DICT) {
        bool paths = std::all_of(inputs.begin(), inputs.end(), [&](const Input &in) {
            return find_argument(arguments, in.name).has_value();
        });
        return paths ? Rule::NAMES : Rule::KEYS;
    }
    auto named = [&](const Input &in) { return find_argument(arguments, in.name).has_value(); };
    auto numbered = [](const Input &in) { return index_of(in.name).has_value(); };
    if (std::all_of(inputs.begin(), inputs.end(), named)) return Rule::NAMES;
    return std::all_of(inputs.begin(), inputs.end(), numbered) ? Rule::INDEX : Rule::ORDER;
}

static std::vector<Input> declared_inputs(const proa_backend_model *model, proa_backend_io_kind kind)
{
    std::vector<Input> inputs;
    for (int32_t i = 0; const proa_backend_io *io = host->model_io(model, kind, i); i++)
        inputs.push_back({io->name, io->type, io->optional, io->ragged, {}});
    return inputs;
}

/* The place of an input by the rule; `order` counts those that have none by name. */
static Place place_of(const std::vector<Argument> &arguments, const Input &in, Rule rule, size_t *order)
{
    if (rule == Rule::KEYS) return {0, in.name};
    if (rule == Rule::ORDER) return {(*order)++, ""};
    if (rule == Rule::NAMES)
        if (std::optional<Place> place = find_argument(arguments, in.name)) return *place;
    std::optional<size_t> index = index_of(in.name);
    if (!index)
        fail(PROA_INVALID, "input '%s' does not follow <name>__<index> naming convention.", in.name.c_str());
    return {*index, ""};
}

/* An index that leads to a list, tuple or dictionary says too little. */
static void check_place(const proa_backend_model *model, const std::vector<Argument> &arguments, const Input &in)
{
    size_t at = in.place.argument;
    if (at >= arguments.size())
        fail(PROA_INVALID, "unable to load model '%s', input '%s' is argument %zu, forward has %zu",
             host->model_name(model), in.name.c_str(), at, arguments.size());
    const Argument &a = arguments[at];
    bool strings = in.type == PROA_BACKEND_BYTES;
    if (strings != (a.kind == Argument::STRINGS))
        fail(PROA_INVALID, "input '%s' of model '%s' %s, argument '%s' of forward %s", in.name.c_str(),
             host->model_name(model), strings ? "has TYPE_STRING" : "is a tensor", a.name.c_str(),
             strings ? "takes no List[str]" : "is List[str]");
    bool container = a.kind == Argument::LIST || a.kind == Argument::TUPLE;
    if (container && in.name.back() != ']')
        fail(PROA_INVALID, "argument '%s' of model '%s' has several tensors: name them '%s[0]', '%s[1]', ...",
             a.name.c_str(), host->model_name(model), a.name.c_str(), a.name.c_str());
}

static void check_complete(const proa_backend_model *model, const std::vector<Argument> &arguments,
                           const std::vector<Input> &inputs)
{
    std::set<std::pair<size_t, std::string>> taken;
    std::vector<size_t> counts(arguments.size(), 0);
    for (const Input &in : inputs) {
        std::string element = in.place.key + "#" + std::to_string(in.place.element);
        if (!taken.insert({in.place.argument, element}).second)
            fail(PROA_INVALID, "input '%s' of model '%s' fills argument '%s' a second time", in.name.c_str(),
                 host->model_name(model), arguments[in.place.argument].name.c_str());
        counts[in.place.argument]++;
    }
    for (size_t i = 0; i < arguments.size(); i++) {
        bool tuple = arguments[i].kind == Argument::TUPLE;
        size_t least = tuple ? arguments[i].elements : 1;
        if (counts[i] < least && (arguments[i].required || counts[i]))
            fail(PROA_INVALID, "unable to load model '%s', no input for argument '%s' (%zu of %zu) of forward",
                 host->model_name(model), arguments[i].name.c_str(), i, arguments.size());
    }
}

std::vector<Input> bind_inputs(const proa_backend_model *model, const std::vector<Argument> &arguments)
{
    std::vector<Input> inputs = declared_inputs(model, PROA_BACKEND_IO_INPUT);
    Rule rule = choose_rule(arguments, inputs);
    size_t order = 0;
    for (Input &in : inputs) in.place = place_of(arguments, in, rule, &order);
    for (proa_backend_io_kind kind :
         {PROA_BACKEND_IO_BATCH_INPUT, PROA_BACKEND_IO_CONTROL, PROA_BACKEND_IO_STATE})
        for (Input &in : declared_inputs(model, kind)) {
            Rule extra = rule == Rule::ORDER && kind != PROA_BACKEND_IO_BATCH_INPUT ? Rule::INDEX : rule;
            in.place = place_of(arguments, in, extra, &order);
            inputs.push_back(in);
        }
    for (const Input &in : inputs) check_place(model, arguments, in);
    check_complete(model, arguments, inputs);
    return inputs;
}

/* ---- outputs ---- */

std::vector<Output> declared_outputs(const proa_backend_model *model)
{
    std::vector<Output> outputs;
    for (proa_backend_io_kind kind : {PROA_BACKEND_IO_OUTPUT, PROA_BACKEND_IO_NEXT_STATE})
        for (int32_t i = 0; const proa_backend_io *io = host->model_io(model, kind, i); i++) {
            bool known = std::any_of(outputs.begin(), outputs.end(),
                                     [&](const Output &o) { return o.name == io->name; });
            if (!known) outputs.push_back({io->name, io->type});
        }
    return outputs;
}

/* A name is a path from RESULT, or the key of a result that is a dictionary. */
static std::optional<size_t> find_path(const std::vector<std::string> &paths, const std::string &name)
{
    for (size_t i = 0; i < paths.size(); i++)
        if (name == "RESULT" + paths[i] || (!paths[i].empty() && "[" + name + "]" == paths[i])) return i;
    return std::nullopt;
}

std::vector<size_t> find_results(const std::vector<Output> &outputs, const std::vector<std::string> &paths)
{
    auto has_path = [&](const Output &o) { return find_path(paths, o.name).has_value(); };
    auto has_index = [](const Output &o) { return index_of(o.name).has_value(); };
    bool by_path = std::all_of(outputs.begin(), outputs.end(), has_path);
    bool by_index = std::all_of(outputs.begin(), outputs.end(), has_index);
    std::vector<size_t> found;
    for (size_t i = 0; i < outputs.size(); i++) {
        size_t at = by_path ? *find_path(paths, outputs[i].name) : by_index ? *index_of(outputs[i].name) : i;
        if (at >= paths.size())
            fail(PROA_INVALID,
                 "The output %s in the model configuration refers to an output index which doesn't exist. "
                 "This model has %zu outputs",
                 outputs[i].name.c_str(), paths.size());
        found.push_back(at);
    }
    return found;
}

} // namespace proa_torch
