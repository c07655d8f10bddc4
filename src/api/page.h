/* SPDX-License-Identifier: Apache-2.0
 * page.h - the bytes of page.html, page.css and page.js, which cmake/page.cmake turns into arrays.
 * Threads: constants. */
#ifndef PROA_API_PAGE_H
#define PROA_API_PAGE_H

#include <stddef.h>

extern const unsigned char proa_page_html[], proa_page_css[], proa_page_js[];
extern const size_t proa_page_html_len, proa_page_css_len, proa_page_js_len;

#endif
