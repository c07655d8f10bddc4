/* SPDX-License-Identifier: Apache-2.0
 * method.h - the form of a method of a template's value, for methods.c and methods_str.c. self: the value whose method
 * it is; args: its parameters in the order of their row, those that were left out ABSENT. */
#ifndef PROA_TEXT_JINJA_METHOD_H
#define PROA_TEXT_JINJA_METHOD_H

#include "text/jinja/run.h"

#define METHOD(name)                                                                                         \
    static proa_jval name(proa_jrun *run, proa_jval self, const proa_jval *args, const proa_jcall *call)
#define UNUSED_ARGS (PROA_UNUSED(run), PROA_UNUSED(self), PROA_UNUSED(args), PROA_UNUSED(call))

#endif
