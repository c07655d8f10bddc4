/* SPDX-License-Identifier: Apache-2.0
 * script.cpp - TorchScript: a module that torch.jit.trace or torch.jit.script made. */
#include "program.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

namespace proa_torch
{

/* ---- the signature ---- */

static bool is_tensor(const c10::TypePtr &type)
{
    return type->kind() == c10::TypeKind::TensorType;
}

static c10::TypePtr without_optional(const c10::TypePtr &type)
{
    auto optional = type->cast<c10::OptionalType>();
    return optional ? optional->getElementType() : type;
}

static Argument::Kind kind_of(const c10::Argument &argument, size_t *elements)
{
    c10::TypePtr type = without_optional(argument.type());
    if (is_tensor(type)) return Argument::TENSOR;
    if (auto list = type->cast<c10::ListType>()) {
        if (list->getElementType()->kind() == c10::TypeKind::StringType) return Argument::STRINGS;
        if (is_tensor(list->getElementType())) return Argument::LIST;
    }
    if (auto dict = type->cast<c10::DictType>())
        if (dict->getKeyType()->kind() == c10::TypeKind::StringType && is_tensor(dict->getValueType()))
            return Argument::DICT;
    if (auto tuple = type->cast<c10::TupleType>()) {
        auto all = tuple->elements();
        *elements = all.size();
        if (!all.empty() && std::all_of(all.begin(), all.end(), is_tensor)) return Argument::TUPLE;
    }
    c10::TypeKind kind = type->kind();
    if (kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType)
        return Argument::NUMBER;
    fail(PROA_INVALID,
         "argument '%s' of forward is '%s'; possible are Tensor, List[str], int, float, bool, and "
         "dictionaries, lists "
         "and tuples of Tensor",
         argument.name().c_str(), type->str().c_str());
}

static std::vector<Argument> read_arguments(const c10::FunctionSchema &schema)
{
    std::vector<Argument> arguments;
    const auto &all = schema.arguments();
    for (size_t i = 0; i < all.size(); i++) {
        if (i == 0 && all[i].type()->kind() == c10::TypeKind::ClassType) continue; /* self */
        bool optional = all[i].type()->kind() == c10::TypeKind::OptionalType || all[i].default_value();
        size_t elements = 0;
        Argument::Kind kind = kind_of(all[i], &elements);
        arguments.push_back({all[i].name(), kind, elements, !optional});
    }
    return arguments;
}

/* ---- values of arguments ---- */

static c10::IValue number_of(const c10::IValue &value, const c10::TypePtr &type, const std::string &name)
{
    at::Tensor t = value.toTensor();
    if (t.numel() != 1)
        fail(PROA_INVALID, "argument '%s' of forward is a number, its input has %lld elements", name.c_str(),
             static_cast<long long>(t.numel()));
    if (type->kind() == c10::TypeKind::IntType) return t.item().toLong();
    if (type->kind() == c10::TypeKind::FloatType) return t.item().toDouble();
    return t.item().toBool();
}

static c10::IValue dict_of(const std::vector<const Given *> &given)
{
    c10::Dict<std::string, at::Tensor> dict;
    for (const Given *g : given) dict.insert(g->place.key, g->value.toTensor());
    return dict;
}

/* Elements of a list or tuple, which must follow each other from 0. */
static std::vector<at::Tensor> elements_of(const std::vector<const Given *> &given, const std::string &name)
{
    std::vector<at::Tensor> elements(given.size());
    for (const Given *g : given) {
        if (g->place.element >= given.size())
            fail(PROA_INVALID, "argument '%s' has %zu inputs, but one is '[%zu]'", name.c_str(), given.size(),
                 g->place.element);
        elements[g->place.element] = g->value.toTensor();
    }
    return elements;
}

static c10::IValue tuple_of(const std::vector<at::Tensor> &elements)
{
    return c10::ivalue::Tuple::create(std::vector<c10::IValue>(elements.begin(), elements.end()));
}

class Script : public Program
{
  public:
    Script(torch::jit::Module loaded, const Settings &settings)
        : module(std::move(loaded)), settings(settings),
          schema(module.get_method("forward").function().getSchema())
    {
        skip = !schema.arguments().empty() && schema.arguments()[0].type()->kind() == c10::TypeKind::ClassType;
        list = read_arguments(schema);
        writes = find_writes();
    }

    const std::vector<Argument> &arguments() const override
    {
        return list;
    }
    bool writes_inputs() const override
    {
        return writes;
    }

    Results run(const std::vector<Given> &given) override
    {
        torch::jit::setGraphExecutorOptimize(settings.optimized); /* of this thread */
        std::vector<c10::IValue> stack;
        for (size_t i = 0; i < list.size(); i++) stack.push_back(value_of(i, given));
        return flatten(module.forward(std::move(stack)));
    }

  private:
    /* Any write that may reach an input. Elements of containers alias whatever is written anywhere. */
    bool find_writes() const
    {
        auto graph = torch::jit::toGraphFunction(module.get_method("forward").function()).graph()->copy();
        torch::jit::Inline(*graph);
        torch::jit::AliasDb aliases(graph);
        for (size_t i = 0; i < list.size(); i++) {
            const torch::jit::Value *input = graph->inputs().at(i + skip);
            bool container = list[i].kind == Argument::DICT || list[i].kind == Argument::LIST ||
                             list[i].kind == Argument::TUPLE;
            if (aliases.hasWriters(input) || (container && any_writes(aliases, graph->block()))) return true;
        }
        return false;
    }

    static bool any_writes(const torch::jit::AliasDb &aliases, torch::jit::Block *block)
    {
        for (torch::jit::Node *node : block->nodes()) {
            if (aliases.hasWriters(node)) return true;
            for (torch::jit::Block *inner : node->blocks())
                if (any_writes(aliases, inner)) return true;
        }
        return false;
    }

    c10::IValue value_of(size_t argument, const std::vector<Given> &all) const
    {
        const Argument &a = list[argument];
        const c10::Argument &declared = schema.arguments()[argument + skip];
        std::vector<const Given *> given;
        for (const Given &g : all)
            if (g.place.argument == argument) given.push_back(&g);
        if (given.empty()) return declared.default_value() ? *declared.default_value() : c10::IValue();
        switch (a.kind) {
        case Argument::DICT: return dict_of(given);
        case Argument::LIST: return c10::List<at::Tensor>(elements_of(given, a.name));
        case Argument::TUPLE: return tuple_of(elements_of(given, a.name));
        case Argument::NUMBER: return number_of(given[0]->value, without_optional(declared.type()), a.name);
        default: return given[0]->value;
        }
    }

    torch::jit::Module module;
    const Settings settings;
    const c10::FunctionSchema schema;
    size_t skip; /* of schema.arguments(): self */
    std::vector<Argument> list;
    bool writes;
};

/* The executor's modes are of the whole program. */
static void set_modes(const Settings &s)
{
    if (s.jit_profiling) torch::jit::getProfilingMode() = *s.jit_profiling;
    if (s.jit_executor) torch::jit::getExecutorMode() = *s.jit_executor;
    if (s.tensor_fuser) torch::jit::setTensorExprFuserEnabled(*s.tensor_fuser);
}

std::unique_ptr<Program> load_script(const std::string &path, std::optional<c10::Device> device,
                                     const Settings &settings)
{
    set_modes(settings);
    torch::jit::Module module = torch::jit::load(path, device);
    module.eval();
    return std::make_unique<Script>(std::move(module), settings);
}

} // namespace proa_torch
