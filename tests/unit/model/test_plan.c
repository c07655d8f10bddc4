/* SPDX-License-Identifier: Apache-2.0
 * test_plan.c - registers: what runs beside other steps shares no memory with what they write; what the head reads of
 * the layers has one type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "model/derive.h"
#include "model/model.h"
#include <cmocka.h>

/* Do they lie in the same memory? */
static bool meet(const proa_plan *p, proa_reg a, proa_reg b)
{
    if (a == PROA_REG_NONE || b == PROA_REG_NONE || p->offset[a] < 0 || p->offset[b] < 0) return false;
    int64_t end_a = p->offset[a] + p->rows_max * p->width[a] * 4,
            end_b = p->offset[b] + p->rows_max * p->width[b] * 4;
    return p->offset[a] < end_b && p->offset[b] < end_a;
}

/* The steps of the branch's time: none may write what the branch reads or writes, or read what it writes. */
static void branch_is_apart(const proa_plan *p, const proa_program *program, int i, const char *name)
{
    const proa_step *branch = &program->step[i];
    bool joined = false;
    for (int j = i + 1; j < program->count && !joined; j++) {
        const proa_step *s = &program->step[j];
        joined = s->flags & PROA_JOIN;
        if (joined) break;
        if (meet(p, branch->in, s->out) || meet(p, branch->out, s->out) || meet(p, branch->out, s->in))
            fail_msg("%s: step %d runs beside step %d, whose registers lie in the same memory", name, i, j);
    }
    assert_true(joined);
}

static int branches_of(const proa_model *m, const char *name)
{
    int found = 0;
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        for (int k = 0; k < PROA_SECTION_COUNT; k++) {
            const proa_program *program = &m->plan.program[s][k];
            for (int i = 0; i < program->count; i++) {
                if (!(program->step[i].flags & PROA_FORK)) continue;
                branch_is_apart(&m->plan, program, i, name);
                found++;
            }
        }
    return found;
}

static int branches_in(const char *path)
{
    proa_err err = {.status = PROA_OK};
    proa_pool *pool = proa_pool_new(1);
    proa_device *device;
    proa_model *m = NULL;
    assert_int_equal(proa_device_open(&device, "cpu", &err), PROA_OK);
    proa_model_options options = {.rows_max = 32, .head_rows = 8};
    if (proa_model_prepare(&m, path, &options, device, pool, &err) != PROA_OK)
        fail_msg("%s: %s", path, err.text);
    int found = branches_of(m, path);
    proa_model_free(m);
    proa_device_close(device);
    proa_pool_free(pool);
    return found;
}

static void branches_are_apart(void **state)
{
    static const char *const archs[] = {"bert", "bloom", "gemma2", "gpt2", "llama",  "mistral",
                                        "mpt",  "qwen2", "qwen3",  "t5",   "t5_v1_1"};
    PROA_UNUSED(state);
    assert_true(branches_in(PROA_SOURCE_DIR "/tests/golden/arch/gptj") > 0);
    for (size_t i = 0; i < PROA_COUNT(archs); i++) {
        char path[256];
        snprintf(path, sizeof path, PROA_SOURCE_DIR "/tests/golden/arch/%s", archs[i]);
        branches_in(path);
    }
}

/* The head runs over other rows than the layers do, and on a device the type of most registers depends on the number of
 * rows. What it gathers from the layers must be of a type that does not. */
static void head_gathers_one_type(void **state)
{
    PROA_UNUSED(state);
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++)
        for (const proa_step *s = (*row)->head; s && s->op != PROA_STEP_END; s++)
            if (s->op == PROA_STEP_GATHER && s->in != PROA_REG_X && s->in != PROA_REG_MEANS &&
                s->in != PROA_REG_STREAMS)
                fail_msg("%s: the head gathers register %d", (*row)->name, s->in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(branches_are_apart),
                                       cmocka_unit_test(head_gathers_one_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
