/* SPDX-License-Identifier: Apache-2.0
 * launch.h - the start of a process that runs a Python model: an interpreter with the files of stub/.
 * Way in:  proa_python_start. */
#ifndef PROA_PYTHON_LAUNCH_H
#define PROA_PYTHON_LAUNCH_H

#include "process/process.h"

struct proa_pyenv;

/* As proa_process_start, whose program, arguments, environment and extra descriptor it sets. env: the interpreter and
 * its variables. name: the instance's, for the process list and the stub's messages. */
PROA_MUST_CHECK proa_status proa_python_start(proa_process **out, const struct proa_pyenv *env, const char *name,
                                              const proa_process_options *options, proa_err *err);

#endif
