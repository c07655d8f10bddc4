/* SPDX-License-Identifier: Apache-2.0
 * library.c - finds ONNX Runtime's shared library, loads it once and opens its environment. */
#include "backends/onnx/onnx.h"
#include "backends/onnx/ort.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <string.h>

typedef void (*table_entry)(void);

typedef struct api_base {
    const table_entry *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} api_base;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static proa_ort *library; /* under the lock until it is set; then it stays */

proa_status proa_ort_check(const proa_ort *ort, OrtStatus *status, proa_err *err)
{
    if (!status) return PROA_OK;
    int code = ort->GetErrorCode(status);
    const char *text = ort->GetErrorMessage(status);
    proa_status result;
    switch (code) {
    case ORT_INVALID_ARGUMENT:
        result = PROA_FAIL(err, INVALID, "onnx runtime error %d: %s", code, text);
        break;
    case ORT_NO_SUCHFILE: result = PROA_FAIL(err, NOT_FOUND, "onnx runtime error %d: %s", code, text); break;
    case ORT_NOT_IMPLEMENTED:
        result = PROA_FAIL(err, UNSUPPORTED, "onnx runtime error %d: %s", code, text);
        break;
    default: result = PROA_FAIL(err, INTERNAL, "onnx runtime error %d: %s", code, text); break;
    }
    ort->ReleaseStatus(status);
    return result;
}

/* Warnings of the library are many and mostly about the optimiser; its errors also come as statuses. */
static void forward_log(void *arg, int severity, const char *category, const char *id, const char *location,
                        const char *text)
{
    (void)arg, (void)id;
    if (severity >= ORT_LOGGING_ERROR)
        PROA_LOG(WARNING, "onnx runtime: %s (%s, %s)", text, category, location);
    else PROA_LOG(VERBOSE, "onnx runtime: %s (%s, %s)", text, category, location);
}

/* ---- finding the file ---- */

/* Loads the newest file that the pattern matches. */
static void *load_pattern(const char *pattern, char *path)
{
    glob_t found = {0};
    void *handle = NULL;
    if (glob(pattern, 0, NULL, &found) == 0) /* sorted by name */
        for (size_t i = found.gl_pathc; i-- > 0 && !handle;) {
            snprintf(path, PROA_PATH_MAX, "%s", found.gl_pathv[i]);
            handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (!handle) PROA_LOG(WARNING, "cannot load '%s': %s", path, dlerror());
        }
    globfree(&found);
    return handle;
}

/* The wheel `onnxruntime` or `onnxruntime-gpu` of a Python that is installed under `prefix`. */
static void *load_wheel(const char *prefix, size_t prefix_len, char *path)
{
    static const char *const folders[] = {"lib/python3*/site-packages", "lib64/python3*/site-packages",
                                          "lib/python3*/dist-packages"};
    char pattern[PROA_PATH_MAX];
    void *handle = NULL;
    for (size_t i = 0; i < PROA_COUNT(folders) && !handle; i++) {
        int len = snprintf(pattern, sizeof pattern, "%.*s/%s/onnxruntime/capi/libonnxruntime.so*",
                           (int)prefix_len, prefix, folders[i]);
        if (len > 0 && (size_t)len < sizeof pattern) handle = load_pattern(pattern, path);
    }
    return handle;
}

/* The prefixes of each python3 of $PATH: PREFIX/bin/python3. */
static void *load_by_path(char *path)
{
    const char *at = getenv("PATH");
    void *handle = NULL;
    while (at && *at && !handle) {
        char program[PROA_PATH_MAX];
        size_t len = strcspn(at, ":");
        int wrote = snprintf(program, sizeof program, "%.*s/python3", (int)len, at);
        if (len > 4 && memcmp(at + len - 4, "/bin", 4) == 0 && wrote > 0 && (size_t)wrote < sizeof program &&
            proa_file_exists(program))
            handle = load_wheel(at, len - 4, path);
        at += len + (at[len] == ':');
    }
    return handle;
}

static proa_status load_named(void **handle, char *path, const char *named, proa_err *err)
{
    snprintf(path, PROA_PATH_MAX, "%s", named);
    *handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (*handle) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE,
                     "cannot load ONNX Runtime from the path of --backend-config=onnxruntime,library: %s",
                     dlerror());
}

/* *handle and path[PROA_PATH_MAX]: the setting, the loader's search path, the virtual environment, python3. */
static proa_status load_file(void **handle, char *path, const char *named, proa_err *err)
{
    static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so"};
    const char *environment = getenv("VIRTUAL_ENV"), *home = getenv("HOME");
    char local[PROA_PATH_MAX];
    *handle = NULL;
    if (named && *named) return load_named(handle, path, named, err);
    for (size_t i = 0; i < PROA_COUNT(names) && !*handle; i++) {
        snprintf(path, PROA_PATH_MAX, "%s", names[i]);
        *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (!*handle && environment && *environment) *handle = load_wheel(environment, strlen(environment), path);
    if (!*handle) *handle = load_by_path(path);
    if (!*handle && home && proa_path_join(local, home, ".local", NULL) == PROA_OK)
        *handle = load_wheel(local, strlen(local), path);
    if (*handle) return PROA_OK;
    return PROA_FAIL(
        err, UNAVAILABLE,
        "ONNX Runtime's library was not found: install the Python package onnxruntime, or give its path "
        "with --backend-config=onnxruntime,library=PATH");
}

/* ---- opening ---- */

/* POSIX gives the address of a function as a pointer to data. */
static const api_base *find_base(void *handle)
{
    const api_base *(*get)(void) = NULL;
    void *symbol = dlsym(handle, "OrtGetApiBase");
    memcpy(&get, &symbol, sizeof get);
    return symbol ? get() : NULL;
}

static proa_status read_table(proa_ort *ort, void *handle, const char *path, proa_err *err)
{
    const api_base *base = find_base(handle);
    if (!base) return PROA_FAIL(err, INVALID, "'%s' is not ONNX Runtime: it exports no OrtGetApiBase", path);
    ort->version = base->GetVersionString();
    const table_entry *table = base->GetApi(PROA_ORT_VERSION);
    if (!table)
        return PROA_FAIL(err, UNSUPPORTED, "ONNX Runtime %s of '%s' is too old, must be 1.%d or newer",
                         ort->version, path, PROA_ORT_VERSION);
#define READ_ENTRY(place, name, ret, args) ort->name = (ret(*) args)table[place];
    PROA_ORT_LIST(READ_ENTRY)
#undef READ_ENTRY
    return PROA_OK;
}

static proa_status open_global_threads(proa_ort *ort, int64_t intra, int64_t inter, proa_err *err)
{
    OrtThreadingOptions *threads = NULL;
    proa_status status;
    PROA_TRY_OUT(proa_ort_check(ort, ort->CreateThreadingOptions(&threads), err));
    if (intra) PROA_TRY_OUT(proa_ort_check(ort, ort->SetGlobalIntraOpNumThreads(threads, (int)intra), err));
    if (inter) PROA_TRY_OUT(proa_ort_check(ort, ort->SetGlobalInterOpNumThreads(threads, (int)inter), err));
    PROA_TRY_OUT(proa_ort_check(ort,
                                ort->CreateEnvWithCustomLoggerAndGlobalThreadPools(
                                    forward_log, NULL, ORT_LOGGING_WARNING, "proa", threads, &ort->env),
                                err));
    ort->global_threads = true;
out:
    if (threads) ort->ReleaseThreadingOptions(threads);
    return status;
}

static proa_status open_environment(proa_ort *ort, const struct proa_server *server, proa_err *err)
{
    int64_t intra = 0, inter = 0;
    bool global = false;
    PROA_TRY(proa_onnx_setting_true(&global, server, "enable-global-threadpool", err));
    PROA_TRY(proa_onnx_setting_number(&intra, server, "intra_op_thread_count", PROA_ONNX_THREADS_MAX, err));
    PROA_TRY(proa_onnx_setting_number(&inter, server, "inter_op_thread_count", PROA_ONNX_THREADS_MAX, err));
    if (global) PROA_TRY(open_global_threads(ort, intra, inter, err));
    else
        PROA_TRY(proa_ort_check(
            ort, ort->CreateEnvWithCustomLogger(forward_log, NULL, ORT_LOGGING_WARNING, "proa", &ort->env), err));
    PROA_TRY(proa_ort_check(ort, ort->GetAllocatorWithDefaultOptions(&ort->allocator), err));
    return proa_ort_check(ort, ort->CreateCpuMemoryInfo(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &ort->host),
                          err);
}

static proa_status open_library(const struct proa_server *server, proa_err *err)
{
    char path[PROA_PATH_MAX];
    void *handle;
    PROA_TRY(load_file(&handle, path, proa_backend_setting(server, "onnxruntime", "library"), err));
    proa_ort *ort = proa_calloc(1, sizeof *ort);
    proa_status status = read_table(ort, handle, path, err);
    if (status == PROA_OK) status = open_environment(ort, server, err);
    if (status != PROA_OK) { /* the library stays loaded: unloading it while its threads run is not safe */
        free(ort);
        return status;
    }
    PROA_LOG(INFO, "ONNX Runtime %s loaded from '%s'", ort->version, path);
    library = ort;
    return PROA_OK;
}

proa_status proa_ort_open(const proa_ort **out, const struct proa_server *server, proa_err *err)
{
    pthread_mutex_lock(&lock);
    proa_status status = library ? PROA_OK : open_library(server, err);
    *out = library;
    pthread_mutex_unlock(&lock);
    return status;
}
