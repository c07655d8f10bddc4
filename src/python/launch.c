/* SPDX-License-Identifier: Apache-2.0
 * launch.c - starts an interpreter that runs the embedded files of stub/. */
#include "python/launch.h"

#include "base/limits.h"
#include "base/str.h"
#include "python/env.h"
#include "python/stub.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Reads the sources from descriptor 6 and makes them importable; proa_stub does the rest. */
static const char boot[] =
    "import sys, json, importlib.util\n"
    "class Embedded:\n"
    "    def __init__(self, files): self.files = files\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name in self.files: return importlib.util.spec_from_loader(name, self, origin='<proa>/' + "
    "name + '.py')\n"
    "    def create_module(self, spec): return None\n"
    "    def get_source(self, name): return self.files[name]\n"
    "    def exec_module(self, module):\n"
    "        name = module.__name__\n"
    "        exec(compile(self.files[name], '<proa>/' + name + '.py', 'exec'), module.__dict__)\n"
    "with open(6, 'rb') as file: sys.meta_path.insert(0, Embedded(json.loads(file.read())))\n"
    "if sys.path and sys.path[0] == '': del sys.path[0]\n"
    "import proa_stub\n"
    "proa_stub.main(3, 4, 5, int(sys.argv[1]), int(sys.argv[2]))\n";

static proa_status sources_fd(int *fd, proa_err *err)
{
    proa_buf text;
    proa_status status = PROA_OK;
    proa_buf_init(&text, PROA_PYTHON_SOURCES_MAX);
    proa_buf_char(&text, '{');
    for (const proa_python_file *f = proa_python_files; f->name; f++) {
        if (f != proa_python_files) proa_buf_char(&text, ',');
        proa_buf_json_str(&text, (proa_str){f->name, strcspn(f->name, ".")});
        proa_buf_char(&text, ':');
        proa_buf_json_str(&text, (proa_str){(const char *)f->bytes, f->len});
    }
    proa_buf_char(&text, '}');
    *fd = memfd_create("proa-python-sources", MFD_CLOEXEC);
    if (text.full || *fd < 0 || write(*fd, text.ptr, text.len) != (ssize_t)text.len ||
        lseek(*fd, 0, SEEK_SET) != 0)
        status = PROA_FAIL(err, IO, "cannot hand over the stub's sources: %s", strerror(errno));
    proa_buf_release(&text);
    return status;
}

proa_status proa_python_start(proa_process **out, const struct proa_pyenv *env, const char *name,
                              const proa_process_options *options, proa_err *err)
{
    char parent[16], protocol[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(protocol, sizeof protocol, "%d", PROA_CHANNEL_PROTOCOL);
    const char *argv[] = {proa_pyenv_python(env), "-u", "-c", boot, parent, protocol, name, NULL};
    proa_process_options o = *options;
    *out = NULL;
    proa_status status = sources_fd(&o.extra_fd, err);
    o.program = argv[0];
    o.argv = argv;
    o.environment = proa_pyenv_settings(env);
    if (status == PROA_OK) status = proa_process_start(out, &o, err);
    if (o.extra_fd >= 0) close(o.extra_fd);
    return status;
}
