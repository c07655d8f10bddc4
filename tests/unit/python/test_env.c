/* SPDX-License-Identifier: Apache-2.0
 * test_env.c - Python environments: archives good and hostile, sharing, leftovers, and which interpreter
 * is chosen. */
#include "base/file.h"
#include "base/limits.h"
#include "python/env.h"
#include "python/unpack.h"
#include "tar.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants those above it */
#include <cmocka.h>

static char top[256]; /* everything of a test lies in it; TMPDIR too */

static const char *at(const char *name)
{
    static char paths[8][PROA_PATH_MAX];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, PROA_PATH_MAX, "%s/%s", top, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/proa-test-env-XXXXXX");
    if (!mkdtemp(top)) return -1;
    mkdir(at("tmp"), 0700);
    mkdir(at("env"), 0700);
    return setenv("TMPDIR", at("tmp"), 1);
}

static int teardown(void **state)
{
    (void)state;
    proa_unpack_remove(top);
    return access(top, F_OK) == 0 ? -1 : 0;
}

static void write_text(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void expect_text(const char *path, const char *text)
{
    proa_buf buf;
    assert_int_equal(proa_file_read(&buf, path, 1 << 20, NULL), PROA_OK);
    assert_true(proa_str_is(proa_buf_view(&buf), text));
    proa_buf_release(&buf);
}

/* How many entries a folder has. */
static int count_in(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

/* ---- archives ---- */

static void unpacks_what_is_sound(void **state)
{
    (void)state;
    static const tar_entry entries[] = {
        {"./", '5', 0755, NULL},
        {"./lib/", '5', 0500, NULL}, /* a folder that its owner may not write */
        {"./lib/a.py", '0', 04755, "print(1)\n"},
        {"lib//./deep/b", '0', 0, "b"},
        {"lib/a.py", '0', 0600, "print(2)\n"}, /* again: the later one counts */
        {"hard", '1', 0, "lib/a.py"},
        {"lib64", '2', 0, "lib"},
        {"lib/up", '2', 0, "../lib/deep"},
        {"nowhere", '2', 0, "not/there"},
        {"bin/python3", '2', 0, "/bin/sh"},
        {0},
    };
    static const char *const modes[] = {"wb", "wbT"};
    for (int i = 0; i < 2; i++) {
        proa_err err = {0};
        struct stat st;
        tar_write(at("a"), entries, modes[i]);
        mkdir(at("env"), 0700);
        assert_int_equal(proa_unpack(at("a"), at("env"), NULL, &err), PROA_OK);
        expect_text(at("env/lib64/a.py"), "print(2)\n");
        expect_text(at("env/hard"), "print(2)\n");
        expect_text(at("env/lib/up/b"), "b");
        assert_int_equal(stat(at("env/lib/a.py"), &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_mtime, 1000000000);
        assert_int_equal(access(at("env/bin/python3"), X_OK), 0);
        proa_unpack_remove(at("env"));
        assert_int_not_equal(access(at("env"), F_OK), 0);
    }
}

static void no_set_user_id(void **state)
{
    (void)state;
    static const tar_entry entries[] = {{"x", '0', 06777, "x"}, {0}};
    struct stat st;
    tar_write(at("a"), entries, "wb");
    assert_int_equal(proa_unpack(at("a"), at("env"), NULL, NULL), PROA_OK);
    assert_int_equal(stat(at("env/x"), &st), 0);
    assert_int_equal(st.st_mode & 07022, 0);
}

static void hostile_archives(void **state)
{
    (void)state;
    static const struct {
        tar_entry entries[4];
        const char *text; /* part of the error */
    } cases[] = {
        {{{"../escaped", '0', 0, "x"}}, "leaves the folder"},
        {{{"a/../../escaped", '0', 0, "x"}}, "leaves the folder"},
        {{{"/tmp/proa-escaped", '0', 0, "x"}}, "absolute path"},
        {{{"d", '2', 0, ".."}}, "outside"},
        {{{"d", '2', 0, "/etc"}}, "outside"},
        {{{"a/d", '2', 0, "../../x"}}, "outside"},
        /* through a link that is itself inside: a/q is a, so the words lie */
        {{{"a/q", '2', 0, "."}, {"a/p", '2', 0, "q/../../escape"}}, "leads outside"},
        /* writing through a link */
        {{{"bin/python", '2', 0, "/tmp"}, {"bin/python/x", '2', 0, "y"}}, "already"},
        {{{"bin/pythons", '2', 0, ".."}, {"bin/pythons/x", '0', 0, "y"}}, "already"},
        {{{"h", '1', 0, "/etc/passwd"}}, "absolute path"},
        {{{"h", '1', 0, "../escape"}}, "leaves the folder"},
        {{{"l", '2', 0, "x"}, {"h", '1', 0, "l"}}, "no file before it"},
        {{{"h", '1', 0, "nothing"}}, "no file before it"},
        {{{"null", '3', 0, NULL}}, "neither file"},
        {{{"fifo", '6', 0, NULL}}, "neither file"},
        {{{"f", '0', 0, "x"}, {"f/g", '0', 0, "x"}}, "no folder"},
        {{{"f/g", '0', 0, "x"}, {"f", '0', 0, "x"}}, "already"},
    };
    write_text(at("escape"), "outside", 0600); /* beside env/ */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        proa_err err = {0};
        mkdir(at("env"), 0700);
        tar_write(at("a"), cases[i].entries, "wb");
        assert_int_equal(proa_unpack(at("a"), at("env"), NULL, &err), PROA_CORRUPT);
        if (!strstr(err.text, cases[i].text)) fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(count_in(top), 4); /* a, env, escape, tmp */
        assert_int_not_equal(access(at("escaped"), F_OK), 0);
        assert_int_not_equal(access("/tmp/proa-escaped", F_OK), 0);
        proa_unpack_remove(at("env"));
        expect_text(at("escape"), "outside");
    }
}

static void limits_hold(void **state)
{
    (void)state;
    static const tar_entry entries[] = {
        {"a", '0', 0, "12345"}, {"b", '0', 0, "67890"}, {"c/", '5', 0, NULL}, {0}};
    static const struct {
        proa_unpack_limits limits;
        proa_status status;
    } cases[] = {{{3, 10}, PROA_OK}, {{2, 10}, PROA_LIMIT}, {{3, 9}, PROA_LIMIT}};
    tar_write(at("a"), entries, "wb");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mkdir(at("env"), 0700);
        assert_int_equal(proa_unpack(at("a"), at("env"), &cases[i].limits, NULL), cases[i].status);
        proa_unpack_remove(at("env"));
    }
}

static void broken_archives(void **state)
{
    (void)state;
    static const tar_entry entries[] = {{"a", '0', 0, "0123456789"}, {0}};
    proa_err err = {0};
    write_text(at("noise"), "this is no archive at all, only some words in a file", 0600);
    assert_int_equal(proa_unpack(at("noise"), at("env"), NULL, &err), PROA_CORRUPT);
    assert_non_null(strstr(err.text, "cannot unpack '"));
    tar_write(at("a"), entries, "wbT");
    for (off_t bytes = 1; bytes < 1024; bytes += 73) { /* cut short at every part */
        assert_int_equal(truncate(at("a"), 1024), 0);
        assert_int_equal(truncate(at("a"), bytes), 0);
        assert_int_equal(proa_unpack(at("a"), at("env"), NULL, NULL), PROA_CORRUPT);
        tar_write(at("a"), entries, "wbT");
    }
    assert_int_equal(proa_unpack(at("absent"), at("env"), NULL, NULL), PROA_CORRUPT);
}

/* ---- environments ---- */

static const tar_entry conda[] = {
    {"bin/python3", '0', 0755, "#!/bin/sh\nexec /bin/sh \"$@\"\n"},
    {"bin/conda-unpack", '0', 0755, "d=$(dirname \"$0\")/..; echo once >>\"$d/unpacked\"\n"},
    {"lib/x.py", '0', 0, "x = 1\n"},
    {0},
};

static const char *setting(const proa_pyenv *env, const char *name)
{
    size_t n = strlen(name);
    for (const char *const *s = proa_pyenv_settings(env); *s; s++)
        if (strncmp(*s, name, n) == 0 && (*s)[n] == '=') return *s + n + 1;
    return NULL;
}

static void an_archive_is_unpacked_once(void **state)
{
    (void)state;
    proa_pyenv *a, *b, *c;
    proa_err err = {0};
    char unpacked[PROA_PATH_MAX];
    tar_write(at("pack.tar.gz"), conda, "wb");
    assert_int_equal(proa_pyenv_open(&a, "$$TRITON_MODEL_DIRECTORY/pack.tar.gz", top, NULL, &err), PROA_OK);
    assert_int_equal(proa_pyenv_open(&b, at("pack.tar.gz"), "/nowhere", NULL, &err), PROA_OK);
    assert_string_equal(proa_pyenv_python(a), proa_pyenv_python(b));
    assert_int_equal(access(proa_pyenv_python(a), X_OK), 0);
    snprintf(unpacked, sizeof unpacked, "%s/unpacked", setting(a, "CONDA_PREFIX"));
    expect_text(unpacked, "once\n");
    assert_string_equal(setting(a, "PYTHONHOME"), "");
    assert_int_equal(
        strncmp(setting(a, "PATH"), setting(a, "CONDA_PREFIX"), strlen(setting(a, "CONDA_PREFIX"))), 0);
    assert_int_equal(count_in(at("tmp")), 1);
    proa_pyenv_close(a);
    expect_text(unpacked, "once\n");
    /* the same name, another file */
    static const tar_entry other[] = {{"bin/python", '0', 0755, "#!/bin/sh\n"}, {0}};
    tar_write(at("pack.tar.gz"), other, "wb");
    assert_int_equal(proa_pyenv_open(&c, at("pack.tar.gz"), top, NULL, &err), PROA_OK);
    assert_int_equal(count_in(at("tmp")), 2);
    proa_pyenv_close(b);
    proa_pyenv_close(c);
    assert_int_equal(count_in(at("tmp")), 0);
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    static const tar_entry no_python[] = {{"lib/x.py", '0', 0, "x"}, {0}};
    static const tar_entry outside[] = {{"../x", '0', 0, "x"}, {0}};
    static const tar_entry fails[] = {
        {"bin/python3", '0', 0755, "#!/bin/sh\nexit 3\n"}, {"bin/conda-unpack", '0', 0755, ""}, {0}};
    static const struct {
        const tar_entry *entries;
        proa_status status;
        const char *text;
    } cases[] = {
        {no_python, PROA_NOT_FOUND, "has no interpreter (bin/python3)"},
        {outside, PROA_CORRUPT, "leaves the folder"},
        {fails, PROA_INTERNAL, "conda-unpack' failed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        proa_pyenv *env;
        proa_err err = {0};
        tar_write(at("p"), cases[i].entries, "wb");
        assert_int_equal(proa_pyenv_open(&env, at("p"), top, NULL, &err), cases[i].status);
        if (!strstr(err.text, cases[i].text)) fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(count_in(at("tmp")), 0);
    }
    proa_pyenv *env;
    proa_err err = {0};
    assert_int_equal(proa_pyenv_open(&env, at("absent"), top, NULL, &err), PROA_NOT_FOUND);
    assert_non_null(strstr(err.text, "cannot open the execution environment '"));
}

static void killed_servers_are_swept(void **state)
{
    (void)state;
    proa_pyenv *env;
    mkdir(at("tmp/proa-env-abc123"), 0700);
    mkdir(at("tmp/proa-env-abc123/env"), 0700);
    write_text(at("tmp/proa-env-abc123/lock"), "", 0600);
    write_text(at("tmp/proa-env-abc123/env/x"), "", 0600);
    mkdir(at("tmp/other"), 0700);
    tar_write(at("p"), conda, "wb");
    assert_int_equal(proa_pyenv_open(&env, at("p"), top, NULL, NULL), PROA_OK);
    assert_int_not_equal(access(at("tmp/proa-env-abc123"), F_OK), 0);
    assert_int_equal(count_in(at("tmp")), 2); /* ours, and what is none of ours */
    proa_pyenv_close(env);
    assert_int_equal(count_in(at("tmp")), 1);
}

static void folders_are_used_as_they_are(void **state)
{
    (void)state;
    proa_pyenv *env;
    mkdir(at("venv"), 0700);
    mkdir(at("venv/bin"), 0700);
    write_text(at("venv/bin/python3.11"), "#!/bin/sh\n", 0700);
    write_text(at("venv/bin/python3.x"), "#!/bin/sh\n", 0700);
    assert_int_equal(proa_pyenv_open(&env, "$$TRITON_MODEL_DIRECTORY/venv", top, NULL, NULL), PROA_OK);
    assert_string_equal(proa_pyenv_python(env), at("venv/bin/python3.11"));
    assert_string_equal(setting(env, "CONDA_PREFIX"), at("venv"));
    assert_null(setting(env, "VIRTUAL_ENV"));
    proa_pyenv_close(env);
    write_text(at("venv/pyvenv.cfg"), "home = /usr/bin\n", 0600);
    assert_int_equal(proa_pyenv_open(&env, at("venv"), top, NULL, NULL), PROA_OK);
    assert_string_equal(setting(env, "VIRTUAL_ENV"), at("venv"));
    proa_pyenv_close(env);
    assert_int_equal(proa_pyenv_open(&env, "venv", top, NULL, NULL), PROA_OK); /* from the model's folder */
    assert_string_equal(setting(env, "VIRTUAL_ENV"), at("venv"));
    proa_pyenv_close(env);
    assert_int_equal(proa_pyenv_open(&env, "venv", at("tmp"), NULL, NULL), PROA_NOT_FOUND);
}

/* What scripts of conda's packages set is handed on; what they print is not taken for it. */
static void scripts_are_run(void **state)
{
    (void)state;
    static const tar_entry scripts[] = {
        {"bin/python3", '0', 0755, "#!/bin/sh\n"},
        {"bin/env", '0', 0755, "#!/bin/sh\n"}, /* another program of that name is not run */
        {"etc/conda/activate.d/a.sh", '0', 0,
         "echo WORDS=printed; export PROBE_HOME=\"$CONDA_PREFIX/share\" PROBE_OLD=new\n"},
        {"etc/conda/activate.d/b.sh", '0', 0,
         "export PROBE_LINES='a\nb=c' PATH=\"$PATH:/more\"; PROBE_PRIVATE=1\n"},
        {"etc/conda/activate.d/c.txt", '0', 0, "export PROBE_TEXT=1\n"},
        {0},
    };
    proa_pyenv *env;
    proa_err err = {0};
    char share[PROA_PATH_MAX];
    setenv("PROBE_OLD", "old", 1);
    setenv("PROBE_KEPT", "kept", 1);
    tar_write(at("p"), scripts, "wb");
    assert_int_equal(proa_pyenv_open(&env, at("p"), top, NULL, &err), PROA_OK);
    snprintf(share, sizeof share, "%s/share", setting(env, "CONDA_PREFIX"));
    assert_string_equal(setting(env, "PROBE_HOME"), share);
    assert_string_equal(setting(env, "PROBE_OLD"), "new");
    assert_string_equal(setting(env, "PROBE_LINES"), "a\nb=c");
    assert_true(proa_str_ends(proa_str_c(setting(env, "PATH")), proa_str_c(":/more")));
    static const char *const absent[] = {"PROBE_KEPT", "PROBE_PRIVATE", "PROBE_TEXT", "WORDS",
                                         "SHLVL",      "PWD",           "_"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) assert_null(setting(env, absent[i]));
    proa_pyenv_close(env);
    static const tar_entry fails[] = {
        {"bin/python3", '0', 0755, "#!/bin/sh\n"}, {"etc/conda/activate.d/a.sh", '0', 0, "exit 4\n"}, {0}};
    tar_write(at("p"), fails, "wb");
    assert_int_equal(proa_pyenv_open(&env, at("p"), top, NULL, &err), PROA_INTERNAL);
    assert_non_null(strstr(err.text, "etc/conda/activate.d' failed"));
    assert_int_equal(count_in(at("tmp")), 0);
}

static void without_an_environment(void **state)
{
    (void)state;
    proa_pyenv *env;
    proa_err err = {0};
    unsetenv("PROA_PYTHON");
    assert_int_equal(proa_pyenv_open(&env, NULL, top, "sh", NULL), PROA_OK);
    assert_int_equal(*proa_pyenv_python(env), '/');
    assert_null(*proa_pyenv_settings(env));
    proa_pyenv_close(env);
    setenv("PROA_PYTHON", "/bin/sh", 1);
    assert_int_equal(proa_pyenv_open(&env, "", top, NULL, NULL), PROA_OK);
    assert_string_equal(proa_pyenv_python(env), "/bin/sh");
    proa_pyenv_close(env);
    unsetenv("PROA_PYTHON");
    /* a relative path stays the link that it names: a virtual environment is found by it */
    char before[PROA_PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(symlink("/bin/sh", at("linked-python")), 0);
    assert_int_equal(chdir(top), 0);
    assert_int_equal(proa_pyenv_open(&env, NULL, top, "./linked-python", NULL), PROA_OK);
    assert_int_equal(*proa_pyenv_python(env), '/');
    assert_non_null(strstr(proa_pyenv_python(env), "/linked-python"));
    proa_pyenv_close(env);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(proa_pyenv_open(&env, NULL, top, "no-such-python", &err), PROA_NOT_FOUND);
    assert_non_null(strstr(err.text, "no Python interpreter: 'no-such-python' is not in PATH"));
    err = (proa_err){0};
    assert_int_equal(proa_pyenv_open(&env, NULL, top, "/no/python", &err), PROA_NOT_FOUND);
    assert_string_equal(err.text, "the Python interpreter '/no/python' is not there");
}

static void *open_one(void *out)
{
    if (proa_pyenv_open(out, "$$TRITON_MODEL_DIRECTORY/p", top, NULL, NULL) != PROA_OK)
        *(proa_pyenv **)out = NULL;
    return NULL;
}

static void many_at_once(void **state)
{
    (void)state;
    enum { N = 4 };
    pthread_t threads[N];
    proa_pyenv *envs[N];
    tar_write(at("p"), conda, "wb");
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, open_one, &envs[i]), 0);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++) {
        assert_non_null(envs[i]);
        assert_string_equal(proa_pyenv_python(envs[i]), proa_pyenv_python(envs[0]));
    }
    assert_int_equal(count_in(at("tmp")), 1);
    for (int i = 0; i < N; i++) proa_pyenv_close(envs[i]);
    assert_int_equal(count_in(at("tmp")), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(unpacks_what_is_sound),
        TEST(no_set_user_id),
        TEST(hostile_archives),
        TEST(limits_hold),
        TEST(broken_archives),
        TEST(an_archive_is_unpacked_once),
        TEST(failures_leave_nothing),
        TEST(killed_servers_are_swept),
        TEST(folders_are_used_as_they_are),
        TEST(scripts_are_run),
        TEST(without_an_environment),
        TEST(many_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
