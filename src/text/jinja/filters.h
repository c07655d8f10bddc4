/* SPDX-License-Identifier: Apache-2.0
 * filters.h - the filters of sequences, which the table in filters.c names. */
#ifndef PROA_TEXT_JINJA_FILTERS_H
#define PROA_TEXT_JINJA_FILTERS_H

#include "text/jinja/run.h"

#define FILTER(name)                                                                                         \
    static proa_jval name(proa_jrun *run, proa_jval self, const proa_jval *args, const proa_jcall *call)
#define FILTER_UNUSED (PROA_UNUSED(run), PROA_UNUSED(self), PROA_UNUSED(args), PROA_UNUSED(call))

proa_jfn proa_f_join, proa_f_first, proa_f_last, proa_f_list, proa_f_map, proa_f_select, proa_f_reject,
    proa_f_selectattr, proa_f_rejectattr, proa_f_items, proa_f_dictsort, proa_f_sort, proa_f_unique,
    proa_f_groupby, proa_f_reverse, proa_f_sum, proa_f_min, proa_f_max, proa_f_batch, proa_f_slice;

#endif
