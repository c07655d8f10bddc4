/* SPDX-License-Identifier: Apache-2.0
 * common.h - what all parts of the plug-in use: the host's table, failures, and the settings of a model.
 * Errors:  inside the plug-in an error is a Failure; plugin.cpp turns it, and the exceptions of torch, into the status
 *          and the one line that the host wants. No exception leaves the library. */
#ifndef PROA_PLUGINS_TORCH_COMMON_H
#define PROA_PLUGINS_TORCH_COMMON_H

#include <proa/backend.h>

#include <exception>
#include <optional>
#include <string>

namespace proa_torch
{

extern const proa_backend_host *host; /* set once, before anything else runs */

class Failure : public std::exception
{
  public:
    Failure(proa_status status, std::string text) : status(status), text(std::move(text))
    {
    }
    const char *what() const noexcept override
    {
        return text.c_str();
    }
    const proa_status status;

  private:
    std::string text;
};

/* Throws a Failure with a text in printf's form. */
[[noreturn]] void fail(proa_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The reason in a text of torch, as one line. Errors of TorchScript end with it, after a traceback; others begin with
 * it and go on with the frames of C++. */
std::string reason_of(const std::string &what);

/* The parameters of Triton's PyTorch backend. Those that are not given leave torch as it is. */
struct Settings {
    bool optimized = true;       /* DISABLE_OPTIMIZED_EXECUTION */
    bool inference_mode = true;  /* INFERENCE_MODE */
    bool cudnn = true;           /* DISABLE_CUDNN */
    bool cache_cleaning = false; /* ENABLE_CACHE_CLEANING */
    bool weight_sharing = false; /* ENABLE_WEIGHT_SHARING */
    std::optional<bool> tensor_fuser, jit_profiling, jit_executor;
    int intra_op_threads = 0, inter_op_threads = 0; /* 0: not given */
};
Settings read_settings(const proa_backend_model *model);

} // namespace proa_torch

#endif
