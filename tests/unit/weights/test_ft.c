/* SPDX-License-Identifier: Apache-2.0
 * test_ft.c - config.ini, and folders of FasterTransformer that lie. Good folders are in tests/golden/checkpoint
 * (unit/engine/test_checkpoints.c). */
#include "base/file.h"
#include "base/limits.h"
#include "weights/ini.h"
#include "weights/tasks.h"
#include "weights/weights.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[PROA_PATH_MAX];
    assert_int_equal(proa_path_join(path, dir, name, NULL), PROA_OK);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/proa_ft_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) unlink(in_dir(e->d_name));
    if (d) closedir(d);
    return rmdir(dir);
}

static void write_text(const char *name, const char *text, size_t len)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
}

static void test_ini(void **state)
{
    static const char text[] =
        "# a comment\n[one]\r\nsize = 12\r\nName: x = y \n  continued = 5\n;size = 3\n\n[two]\nsize=-1\n"
        "eps = 1e-5\nflag = Yes\nnone = None\nword = twelve\nbig = 99999999999999999999\nlast = 7";
    proa_ini ini = {{text, sizeof text - 1}, "config.ini"};
    proa_str value;
    int64_t n = 5;
    double d = 0;
    bool on = false;
    proa_err err = {.status = PROA_OK};
    (void)state;
    assert_true(proa_ini_has_section(&ini, "two") && !proa_ini_has_section(&ini, "tw"));
    assert_true(proa_ini_find(&ini, "one", "name", &value) && proa_str_is(value, "x = y"));
    assert_false(proa_ini_find(&ini, "two", "nothing", &value));
    assert_true(proa_str_is(value, "x = y")); /* left alone */
    assert_false(proa_ini_find(&ini, "one", "continued", &value) || proa_ini_find(&ini, "one", "last", &value));
    assert_int_equal(proa_ini_int(&ini, "one", "size", 1, 12, &n, &err), PROA_OK);
    assert_int_equal(n, 12);
    assert_int_equal(proa_ini_int(&ini, "two", "none", 1, 12, &n, &err), PROA_OK);
    assert_int_equal(n, 12);
    assert_int_equal(proa_ini_int(&ini, "two", "last", 1, 12, &n, &err), PROA_OK);
    assert_int_equal(n, 7);
    assert_int_equal(proa_ini_double(&ini, "two", "eps", 0, 1, &d, &err), PROA_OK);
    assert_true(d == 1e-5);
    assert_int_equal(proa_ini_bool(&ini, "two", "flag", &on, &err), PROA_OK);
    assert_true(on);
    assert_int_equal(proa_ini_int(&ini, "two", "size", 1, 12, &n, &err), PROA_INVALID);
    assert_string_equal(err.text, "config.ini: [two] size is '-1', must be 1 to 12");
    assert_int_equal(proa_ini_int(&ini, "two", "big", 1, INT64_MAX, &n, NULL), PROA_INVALID);
    assert_int_equal(proa_ini_int(&ini, "two", "word", 1, 12, &n, NULL), PROA_INVALID);
    assert_int_equal(proa_ini_bool(&ini, "two", "word", &on, NULL), PROA_INVALID);
    assert_int_equal(n, 7);
}

/* A GPT-J of one layer, hidden size 4, as far as a test needs its files. */
#define GPTJ                                                                                                 \
    "[gptj]\nhead_num = 1\nsize_per_head = 4\ninter_size = 8\nnum_layer = 1\nvocab_size = "                  \
    "2\nrotary_embedding = 2\n"

#define GPT(inter) "[gpt]\nhead_num=1\nsize_per_head=4\ninter_size=" inter "\nnum_layer=1\nvocab_size=2\n"

static void refuses(const char *ini, proa_status want, const char *text)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    write_text("config.ini", ini, strlen(ini));
    proa_status status = proa_weights_open(&w, dir, &err);
    if (status != want || !strstr(err.text, text)) print_error("gave: %s\n", err.text);
    assert_int_equal(status, want);
    assert_non_null(strstr(err.text, text));
    assert_null(w);
}

static void test_bad_ini(void **state)
{
    (void)state;
    refuses("[llama]\n", PROA_UNSUPPORTED,
            "config.ini: has none of the sections [gpt], [gptj], [gptneox], [encoder]");
    refuses("[gptj]\n", PROA_INVALID, "config.ini: [gptj] has no head_num");
    refuses("[gptj]\nhead_num = 0\n", PROA_INVALID, "[gptj] head_num is '0', must be 1 to 4096");
    refuses(GPTJ "weight_data_type = int8\n", PROA_UNSUPPORTED, "weight_data_type is 'int8'");
    refuses("[encoder]\n[structure]\nt5_with_bias = true\n", PROA_UNSUPPORTED, "[structure] t5_with_bias is on");
    refuses("[encoder]\nd_model = 4\n", PROA_UNSUPPORTED, "a T5 without [decoder]");
    refuses(GPT("8") "max_pos_seq_len=2\nmodel_variant = bloom-post\n", PROA_UNSUPPORTED,
            "[gpt] model_variant is 'bloom-post', only gpt is supported");
    refuses(GPT("8") "model_variant = bloom-pre\n", PROA_UNSUPPORTED,
            "[gpt] inter_size is 8, of a BLOOM only 16 is supported");
    refuses(GPT("16") "model_variant = bloom-pre\nhas_positional_encoding = True\n", PROA_UNSUPPORTED,
            "a BLOOM with has_positional_encoding is not supported");
}

static void test_bad_files(void **state)
{
    static const char zeros[256];
    (void)state;
    refuses(GPTJ, PROA_NOT_FOUND, "the folder has no file model.layers.0.attention.query_key_value.weight.0.bin");
    for (int i = 0; i < 3; i++) {
        char name[80];
        snprintf(name, sizeof name, "model.layers.0.attention.query_key_value.weight.%d.bin", i);
        write_text(name, zeros, 4 * 4 * 3 * 4);
    }
    write_text("model.wte.bin", zeros, 2 * 4 * 4);
    write_text("model.layers.0.input_layernorm.weight.bin", zeros, 16);
    write_text("model.layers.0.input_layernorm.bias.bin", zeros, 16);
    refuses(GPTJ, PROA_INVALID, "4 rows or columns cannot be shared by 3 ranks");
    unlink(in_dir("model.layers.0.attention.query_key_value.weight.2.bin"));
    refuses(GPTJ, PROA_CORRUPT, "query_key_value.weight.0.bin has 192 bytes, 24 numbers of f32 were expected");
    unlink(in_dir("model.layers.0.attention.query_key_value.weight.1.bin"));
    refuses(GPTJ, PROA_NOT_FOUND, "model.layers.0.attention.dense.weight.0.bin");
    write_text("model.wte.bin", zeros, 31);
    refuses(GPTJ, PROA_CORRUPT, "model.wte.bin has 31 bytes, 8 numbers of f32 were expected");
}

/* ---- prompt tables ---- */

static void refuses_tasks(const char *ini, proa_status want, const char *text)
{
    proa_task_tables tasks;
    proa_err err = {.status = PROA_OK};
    write_text("config.ini", ini, strlen(ini));
    proa_status status = proa_task_tables_open(&tasks, dir, &err);
    if (status != want || !strstr(err.text, text)) print_error("gave: %s\n", err.text);
    assert_int_equal(status, want);
    assert_non_null(strstr(err.text, text));
    assert_true(!tasks.files && tasks.count == 0);
}

#define TASK(name, length) "[task_0]\ntask_name = " name "\nprompt_length = " length "\n"

static void test_bad_tasks(void **state)
{
    static const char zeros[256];
    (void)state;
    refuses_tasks(GPTJ "num_tasks = -1\n", PROA_INVALID, "[gptj] num_tasks is '-1', must be 0 to 4096");
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 4\n", PROA_INVALID, "prompt_learning_type is '4'");
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 3\n", PROA_INVALID, "[task_0] has no task_name");
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 3\n" TASK("../x", "2"), PROA_INVALID,
                  "[task_0] task_name must be 1 to 127 characters of a file's name");
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 3\n" TASK("", "2"), PROA_INVALID,
                  "task_name must be");
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 3\n" TASK("x", "9999999999"), PROA_INVALID,
                  "[task_0] prompt_length is '9999999999'");
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 3\n" TASK("x", "2"), PROA_NOT_FOUND,
                  "model.prompt_table.x.weight.bin");
    write_text("model.prompt_table.x.weight.bin", zeros, 2 * 4 * 4 - 1);
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 3\n" TASK("x", "2"), PROA_CORRUPT,
                  "model.prompt_table.x.weight.bin has 31 bytes, 8 numbers of f32 were expected");
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 2\n" TASK("x", "2"), PROA_NOT_FOUND,
                  "the folder has no file model.prefix_prompt.x.weight.0.bin");
    write_text("model.prefix_prompt.x.weight.0.bin", zeros, 64);
    write_text("model.prefix_prompt.x.weight.1.bin", zeros, 64);
    refuses_tasks(GPTJ "num_tasks = 1\nprompt_learning_type = 2\n" TASK("x", "2"), PROA_INVALID,
                  "task 'x': 1 heads cannot be shared by 2 ranks");
    refuses_tasks(GPT("8") "max_pos_seq_len=2\nnum_tasks = 1\nprompt_learning_type = 2\n" TASK("x", "2"),
                  PROA_UNSUPPORTED,
                  "[gpt] prompt_learning_type is 2 (prefix_prompt), which [gptj] and [gptneox]");
}

static void test_tasks(void **state)
{
    float numbers[2 * 2 * 4], row[8];
    proa_task_tables tasks;
    proa_err err = {.status = PROA_OK};
    static const char prefix[] = GPTJ
        "prompt_learning_start_id = 1\nnum_tasks = 2\nprompt_learning_type = 2\n[gptj_task_0]\n"
        "task_name = x\nprompt_length = 2\n[task_1]\ntask_name = none\n";
    (void)state;
    for (int i = 0; i < 16; i++) numbers[i] = (float)i; /* [keys, values][1 head][2 tokens][4] */
    write_text("model.prefix_prompt.x.weight.0.bin", (const char *)numbers, sizeof numbers);
    write_text("config.ini", prefix, sizeof prefix - 1);
    if (proa_task_tables_open(&tasks, dir, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_true(tasks.keys && tasks.count == 2 && tasks.start_id == -1);
    assert_string_equal(tasks.task[0].name, "x");
    assert_true(tasks.task[0].tokens == 2 && tasks.task[1].tokens == 0);
    proa_tensor_source_read(&tasks.task[0].table, 1, 0, 8, row);
    assert_memory_equal(row, ((float[]){4, 5, 6, 7, 12, 13, 14, 15}), sizeof row);
    proa_task_tables_close(&tasks);
    write_text("model.safetensors", "", 0); /* then the folder is of another form */
    assert_int_equal(proa_task_tables_open(&tasks, dir, &err), PROA_OK);
    assert_true(tasks.count == 0 && !tasks.files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ini),
        cmocka_unit_test_setup_teardown(test_bad_ini, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_tasks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tasks, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
