/* SPDX-License-Identifier: Apache-2.0
 * env.h - the interpreter and the environment that a Python model runs in.
 * Owner:   an archive is unpacked once into a private folder, shared by all who open it, removed with the last of them.
 * Threads: any. Who opens an archive that is being unpacked waits for it.
 * Way in:  proa_pyenv_open. */
#ifndef PROA_PYTHON_ENV_H
#define PROA_PYTHON_ENV_H

#include "base/status.h"

typedef struct proa_pyenv proa_pyenv;

/* `path` is the parameter EXECUTION_ENV_PATH, NULL or "" if there is none: an archive (conda-pack's .tar.gz;
 * .tar with any of gzip, bzip2, xz, zstd; .zip), or a folder as conda or venv make it;
 * $$TRITON_MODEL_DIRECTORY in it stands for `model_dir`, where a relative path begins if there is something
 * there. Without it `interpreter` runs (a path, or a name in PATH), and if that is NULL the one that
 * $PROA_PYTHON names, or python3. An archive's bin/conda-unpack is run once. Takes as long as unpacking does.
 * */
PROA_MUST_CHECK proa_status proa_pyenv_open(proa_pyenv **out, const char *path, const char *model_dir,
                                            const char *interpreter, proa_err *err);
void proa_pyenv_close(proa_pyenv *env); /* NULL is fine */

/* The program to run: an absolute path. */
const char *proa_pyenv_python(const proa_pyenv *env);
/* "NAME=value" for the program's environment, in place of what is inherited under these names; ends with NULL. */
const char *const *proa_pyenv_settings(const proa_pyenv *env);

#endif
