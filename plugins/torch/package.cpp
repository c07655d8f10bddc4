/* SPDX-License-Identifier: Apache-2.0
 * package.cpp - packages of AOTInductor (.pt2): a model that was compiled ahead of time to a shared library. */
#include "program.h"
#include "spec.h"

#include <torch/version.h>
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 6)
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#define PROA_TORCH_PACKAGES 1
#endif

#include <cstdlib>

#include <dlfcn.h>

namespace proa_torch
{

#ifdef PROA_TORCH_PACKAGES

/* "[0][2]" of (args, kwargs) is ARGS[2]; "[1][x]" is KWARGS[x]. */
static std::string argument_name(const std::string &path)
{
    if (path.rfind("[0]", 0) == 0) return "ARGS" + path.substr(3);
    if (path.rfind("[1]", 0) == 0) return "KWARGS" + path.substr(3);
    fail(PROA_INVALID, "the call specification of the package has no arguments and keyword arguments");
}

class Package : public Program
{
  public:
    Package(const std::string &path, c10::DeviceIndex device) : loader(path, "model", false, 1, device)
    {
        std::vector<std::string> spec = loader.get_call_spec();
        if (spec.size() != 2) fail(PROA_INVALID, "the package '%s' has no call specification", path.c_str());
        for (const std::string &leaf : read_spec(spec[0]))
            list.push_back({argument_name(leaf), Argument::TENSOR, 0, true});
        results = read_spec(spec[1]);
    }

    const std::vector<Argument> &arguments() const override
    {
        return list;
    }
    /* What the compiled code writes to is not known. */
    bool writes_inputs() const override
    {
        return true;
    }

    Results run(const std::vector<Given> &given) override
    {
        std::vector<at::Tensor> inputs(list.size());
        for (const Given &g : given) inputs[g.place.argument] = g.value.toTensor();
        for (size_t i = 0; i < list.size(); i++)
            if (!inputs[i].defined()) fail(PROA_INVALID, "no input for argument '%s'", list[i].name.c_str());
        Results out;
        for (at::Tensor &t : loader.run(inputs)) out.values.emplace_back(std::move(t));
        if (out.values.size() != results.size())
            fail(PROA_INTERNAL, "the package returned %zu tensors, its call specification has %zu",
                 out.values.size(), results.size());
        out.paths = results;
        return out;
    }

  private:
    torch::inductor::AOTIModelPackageLoader loader;
    std::vector<Argument> list;
    std::vector<std::string> results;
};

std::unique_ptr<Program> load_package(const std::string &path, std::optional<c10::Device> device)
{
    /* Compiled code trusts the shapes and types of its inputs unless this is set before it runs first. */
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 1);
    /* It is linked to libtorch.so, which is loaded here: its own search path may lead nowhere. */
    if (!dlopen("libtorch.so", RTLD_NOW | RTLD_LOCAL)) fail(PROA_UNAVAILABLE, "%s", dlerror());
    return std::make_unique<Package>(path, device && !device->is_cpu() ? device->index() : -1);
}

#else

std::unique_ptr<Program> load_package(const std::string &path, std::optional<c10::Device>)
{
    fail(PROA_UNAVAILABLE, "'%s' needs torch 2.6 or later; the plug-in was built with " TORCH_VERSION,
         path.c_str());
}

#endif

} // namespace proa_torch
