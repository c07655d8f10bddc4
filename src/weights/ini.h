/* SPDX-License-Identifier: Apache-2.0
 * ini.h - config.ini as Python's configparser writes it: [section], key = value, comments, continued lines.
 * Owner:   values point into the text. */
#ifndef PROA_WEIGHTS_INI_H
#define PROA_WEIGHTS_INI_H

#include "base/status.h"
#include "base/str.h"

typedef struct proa_ini {
    proa_str text;
    const char *what; /* the file's name in errors */
} proa_ini;

bool proa_ini_has_section(const proa_ini *ini, const char *section);
/* The value of the first such key in the section, without blanks around it; false, and *value is left alone, if there
 * is none. Keys are compared without regard to case, as configparser does. A continued line is not part of the
 * value. */
bool proa_ini_find(const proa_ini *ini, const char *section, const char *key, proa_str *value);
/* *out is left alone where there is no such key or its value is "None"; INVALID, with section and key, when it is no
 * number or outside [min, max]. */
PROA_MUST_CHECK proa_status proa_ini_int(const proa_ini *ini, const char *section, const char *key,
                                         int64_t min, int64_t max, int64_t *out, proa_err *err);
PROA_MUST_CHECK proa_status proa_ini_double(const proa_ini *ini, const char *section, const char *key,
                                            double min, double max, double *out, proa_err *err);
/* "1", "true", "yes", "on" and their opposites. */
PROA_MUST_CHECK proa_status proa_ini_bool(const proa_ini *ini, const char *section, const char *key,
                                          bool *out, proa_err *err);

#endif
