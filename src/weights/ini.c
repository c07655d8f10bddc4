/* SPDX-License-Identifier: Apache-2.0
 * ini.c - finds values in a config.ini. The file is small and is walked through for each key. */
#include "weights/ini.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- lines ---- */

static proa_str trim_spaces(proa_str s)
{
    while (s.len && strchr(" \t\r", s.ptr[0])) s.ptr++, s.len--;
    while (s.len && strchr(" \t\r", s.ptr[s.len - 1])) s.len--;
    return s;
}

/* The next line of *rest; false at the end. A NUL would end a C string early: such a text has no more lines. */
static bool next_line(proa_str *rest, proa_str *line)
{
    return proa_str_next_line(rest, line) && !proa_str_has_nul(*line);
}

static bool same_name(proa_str s, const char *name)
{
    return s.len == strlen(name) && strncasecmp(s.ptr, name, s.len) == 0;
}

static bool is_section(proa_str line, const char *section)
{
    return line.len > 2 && line.ptr[0] == '[' && line.ptr[line.len - 1] == ']' &&
           proa_str_is((proa_str){line.ptr + 1, line.len - 2}, section);
}

/* "key = value" or "key: value". */
static bool split_line(proa_str line, proa_str *key, proa_str *value)
{
    size_t i = 0;
    while (i < line.len && line.ptr[i] != '=' && line.ptr[i] != ':') i++;
    if (i == line.len) return false;
    *key = trim_spaces((proa_str){line.ptr, i});
    *value = trim_spaces((proa_str){line.ptr + i + 1, line.len - i - 1});
    return true;
}

bool proa_ini_has_section(const proa_ini *ini, const char *section)
{
    proa_str rest = ini->text, line;
    while (next_line(&rest, &line))
        if (is_section(trim_spaces(line), section)) return true;
    return false;
}

bool proa_ini_find(const proa_ini *ini, const char *section, const char *key, proa_str *value)
{
    proa_str rest = ini->text, line, name, found;
    bool inside = false;
    while (next_line(&rest, &line)) {
        if (line.len == 0 || strchr(" \t#;", line.ptr[0]))
            continue; /* a comment, or a value's continuation */
        line = trim_spaces(line);
        if (line.len && line.ptr[0] == '[') inside = is_section(line, section);
        else if (inside && split_line(line, &name, &found) && same_name(name, key))
            return *value = found, true;
    }
    return false;
}

/* ---- values ---- */

#define FAIL_VALUE(status, fmt, ...)                                                                         \
    PROA_FAIL(err, status, "%.120s: [%s] %s is '%.*s', must be " fmt, ini->what, section, key,               \
              value.len > 60 ? 60 : (int)value.len, value.ptr, __VA_ARGS__)

/* The value as a C string; false if it is too long for a number. */
static bool to_text(char out[64], proa_str value)
{
    if (value.len == 0 || value.len > 63) return false;
    memcpy(out, value.ptr, value.len);
    out[value.len] = '\0';
    return true;
}

static bool find_given(const proa_ini *ini, const char *section, const char *key, proa_str *value)
{
    return proa_ini_find(ini, section, key, value) && !proa_str_is(*value, "None");
}

proa_status proa_ini_int(const proa_ini *ini, const char *section, const char *key, int64_t min, int64_t max,
                         int64_t *out, proa_err *err)
{
    char text[64], *end = text;
    proa_str value;
    if (!find_given(ini, section, key, &value)) return PROA_OK;
    errno = 0;
    long long n = to_text(text, value) ? strtoll(text, &end, 10) : 0;
    if (end == text || *end || errno || n < min || n > max)
        return FAIL_VALUE(INVALID, "%lld to %lld", (long long)min, (long long)max);
    *out = n;
    return PROA_OK;
}

proa_status proa_ini_double(const proa_ini *ini, const char *section, const char *key, double min, double max,
                            double *out, proa_err *err)
{
    char text[64], *end = text;
    proa_str value;
    if (!find_given(ini, section, key, &value)) return PROA_OK;
    double n = to_text(text, value) ? strtod(text, &end) : 0;
    if (end == text || *end || !(n >= min && n <= max)) return FAIL_VALUE(INVALID, "%g to %g", min, max);
    *out = n;
    return PROA_OK;
}

proa_status proa_ini_bool(const proa_ini *ini, const char *section, const char *key, bool *out, proa_err *err)
{
    static const char *const words[2][4] = {{"0", "false", "no", "off"}, {"1", "true", "yes", "on"}};
    proa_str value;
    if (!find_given(ini, section, key, &value)) return PROA_OK;
    for (int is = 0; is < 2; is++)
        for (int i = 0; i < 4; i++)
            if (same_name(value, words[is][i])) return *out = is, PROA_OK;
    return FAIL_VALUE(INVALID, "%s", "true or false");
}
