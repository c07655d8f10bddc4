/* SPDX-License-Identifier: Apache-2.0
 * cmd_version.c - `proa version`: the version, and the features of the build and of this machine. */
#include "base/cpu.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "kernels/device.h"
#include <event2/event.h>
#include <gnu/libc-version.h>
#include <json-c/json.h>
#include <nghttp2/nghttp2.h>
#include <openssl/crypto.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <protobuf-c/protobuf-c.h>
#include <utf8proc.h>
#include <zlib.h>
#if __has_include("proa_commit.h")
#include "proa_commit.h" /* written by the build when it knows the commit */
#endif
#ifndef PROA_COMMIT
#define PROA_COMMIT ""
#endif

typedef struct version_options {
    proa_common common; /* first: see session.h */
    bool features;
} version_options;

static const proa_arg version_rows[] = {
    {"features", PROA_ARG_FLAG, offsetof(version_options, features), 0, 0, NULL, NULL,
     "and what it was built with and can use here"},
};
static const proa_arg_table version_args = PROA_ARG_TABLE("options", version_rows);

#ifdef __clang__
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

/* Features of other builds that this one does not have. */
static const char *const absent[][2] = {{"onednn", "own kernels"}};

typedef struct library {
    const char *name;
    char version[32];
} library;
enum { LIBRARIES = 9 };

static void list_libraries(library list[LIBRARIES])
{
    char pcre2[64] = "";
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    const char *const names[LIBRARIES] = {"glibc", "json-c",   "pcre2",   "utf8proc", "protobuf-c",
                                          "zlib",  "libevent", "nghttp2", "openssl"};
    const char *const versions[LIBRARIES] = {gnu_get_libc_version(),
                                             json_c_version(),
                                             pcre2,
                                             utf8proc_version(),
                                             protobuf_c_version(),
                                             zlibVersion(),
                                             event_get_version(),
                                             nghttp2_version(0)->version_str,
                                             OpenSSL_version(OPENSSL_VERSION_STRING)};
    for (int i = 0; i < LIBRARIES; i++) {
        list[i].name = names[i];
        snprintf(list[i].version, sizeof list[i].version, "%s", versions[i]);
    }
}

/* Whether a GPU can be used now. */
static bool has_cuda(void)
{
    proa_device *device = NULL;
    bool has_device = proa_device_open(&device, "cuda", NULL) == PROA_OK;
    proa_device_close(device);
    return has_device;
}

static void print_json(proa_output *out, bool features)
{
    library libraries[LIBRARIES];
    proa_output_printf(out, "{\"version\":\"%s\",\"commit\":", proa_version());
    if (PROA_COMMIT[0]) proa_output_json_str(out, proa_str_c(PROA_COMMIT));
    else proa_output_str(out, "null");
    if (features) {
        list_libraries(libraries);
        proa_output_str(out, ",\"compiler\":");
        proa_output_json_str(out, proa_str_c(compiler));
        proa_output_printf(out, ",\"isa\":{\"found\":\"%s\",\"used\":\"%s\"},\"threads\":%d,\"libraries\":{",
                           proa_isa_name(proa_isa_detect()), proa_isa_name(proa_isa_choose()), proa_cpu_count());
        for (int i = 0; i < LIBRARIES; i++)
            proa_output_printf(out, "%s\"%s\":\"%s\"", i ? "," : "", libraries[i].name, libraries[i].version);
        proa_output_printf(out, "},\"features\":{\"cpu\":true,\"server\":true,\"cuda\":%s",
                           has_cuda() ? "true" : "false");
        for (size_t i = 0; i < PROA_COUNT(absent); i++)
            proa_output_printf(out, ",\"%s\":false", absent[i][0]);
        proa_output_str(out, "}");
    }
    proa_output_str(out, "}\n");
}

static void print_features(proa_output *out)
{
    library libraries[LIBRARIES];
    list_libraries(libraries);
    proa_output_printf(out, "compiler   %s\n", compiler);
    proa_output_printf(out, "cpu        %s found, %s used (PROA_ISA forces a lower one); %d CPUs\n",
                       proa_isa_name(proa_isa_detect()), proa_isa_name(proa_isa_choose()), proa_cpu_count());
    proa_output_str(out, "           built in:");
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++)
        proa_output_printf(out, " %s", proa_isa_name((proa_isa)isa));
    proa_output_str(out, "\nlibraries ");
    for (int i = 0; i < LIBRARIES; i++)
        proa_output_printf(out, " %s %s%s", libraries[i].name, libraries[i].version,
                           i + 1 < LIBRARIES ? "," : "\n");
    proa_output_str(out, "server     on: KServe v2 over HTTP and gRPC, OpenAI's API, metrics\n");
    proa_device *device = NULL;
    proa_err err = {0};
    if (proa_device_open(&device, "cuda", &err) == PROA_OK)
        proa_output_printf(out, "cuda       on: %s\n", device->name);
    else proa_output_printf(out, "cuda       off: %s\n", err.text);
    proa_device_close(device);
    for (size_t i = 0; i < PROA_COUNT(absent); i++)
        proa_output_printf(out, "%-10s off: %s\n", absent[i][0], absent[i][1]);
}

static int version_command(const proa_command *self, int argc, char **argv)
{
    version_options o = {.features = false};
    proa_err err = {0};
    proa_output out;
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    if (proa_output_open(&out, NULL, &err) != PROA_OK) return proa_cli_fail_err(&err);
    if (o.common.json) {
        print_json(&out, o.features);
    } else {
        proa_output_printf(&out, "proa %s%s%s%s\n", proa_version(), PROA_COMMIT[0] ? " (commit " : "",
                           PROA_COMMIT, PROA_COMMIT[0] ? ")" : "");
        if (o.features) print_features(&out);
    }
    return proa_output_close(&out, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const version_tables[] = {&version_args, &proa_common_args, NULL};
const proa_command proa_cmd_version = {
    .name = "version",
    .summary = "print the version; with --features also the build options",
    .examples = "  proa version --features\n",
    .tables = version_tables,
    .run = version_command,
};
