/* SPDX-License-Identifier: Apache-2.0
 * options.c - the options of a step of a transform: found by name, read as numbers. */
#include "backends/common.h"
#include "backends/transform/transform.h"

#include <math.h>
#include <stdarg.h>

proa_status proa_transform_step_fail(proa_err *err, const proa_transform_step *step, const char *file,
                                     int line, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return proa_err_set(err, PROA_INVALID, file, line, "step %d (%s): %s", step->number,
                        step->operation ? step->operation->name : "?", text);
}

proa_transform_option *proa_transform_option_find(proa_transform_step *step, const char *key)
{
    for (int32_t i = 0; i < step->options_count; i++) {
        if (!proa_str_is(step->options[i].key, key)) continue;
        step->options[i].used = true;
        return &step->options[i];
    }
    return NULL;
}

proa_status proa_transform_option_number(double *value, proa_transform_step *step, const char *key, proa_err *err)
{
    const proa_transform_option *o = proa_transform_option_find(step, key);
    if (!o) return PROA_OK;
    if (o->list || isnan(o->numbers[0]))
        return PROA_TRANSFORM_FAIL(err, step, "option '%s' must be a number, is '%s'", key,
                                   o->list ? "[...]" : o->texts[0].ptr);
    *value = o->numbers[0];
    return PROA_OK;
}

proa_status proa_transform_option_integer(int64_t *value, proa_transform_step *step, const char *key,
                                          int64_t min, int64_t max, proa_err *err)
{
    double number = (double)*value;
    PROA_TRY(proa_transform_option_number(&number, step, key, err));
    if (!(number >= (double)min && number <= (double)max) || number != floor(number))
        return PROA_TRANSFORM_FAIL(err, step, "option '%s' must be an integer from %lld to %lld, is %g", key,
                                   (long long)min, (long long)max, number);
    *value = (int64_t)number;
    return PROA_OK;
}
