/* See asset.h. The assembler puts the files in; make knows that they are used (Makefile). */
#include "rendezvous/page/asset.h"

#include "base/assert.h"

#include <string.h>

#define FILE_AS(name, file)                                                    \
    __asm__(".section .rodata\n"                                               \
            "ct_asset_" #name ": .incbin \"rendezvous/page/" file "\"\n"       \
            "ct_asset_" #name "_end: .byte 0\n"                                \
            ".previous\n");                                                    \
    extern const char ct_asset_##name[] __attribute__((visibility("hidden"))); \
    extern const char ct_asset_##name##_end[] __attribute__((visibility("hidden")))

FILE_AS(html, "page.html");
FILE_AS(css, "page.css");
FILE_AS(js, "page.js");

static const struct {
    const char *path, *type, *begin, *end;
} assets[] = {
    {"/", "text/html; charset=utf-8", ct_asset_html, ct_asset_html_end},
    {"/page.css", "text/css; charset=utf-8", ct_asset_css, ct_asset_css_end},
    {"/page.js", "text/javascript; charset=utf-8", ct_asset_js, ct_asset_js_end},
};

const char *ct_asset_find(const char *path, size_t *ret_size, const char **ret_type)
{
    for (size_t i = 0; i < CT_COUNT(assets); i++)
        if (strcmp(path, assets[i].path) == 0) {
            *ret_size = (size_t)(assets[i].end - assets[i].begin);
            *ret_type = assets[i].type;
            return assets[i].begin;
        }
    return NULL;
}
