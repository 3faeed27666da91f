/* Fuzz: what a stranger may send to the page: the head of an HTTP request, its path, and the body
 * of a POST as an order. What is taken lies within the bytes that came, and nothing is an order
 * without the key. */
#include "base/assert.h"
#include "net/http_request.h"
#include "rendezvous/page/order.h"
#include "rendezvous/page/page.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REQUEST_BYTES = 8192, NOW_MS = 1000 };

static void check_order(const char *text, size_t size)
{
    static const struct ct_key key;
    static struct ct_key_ring *ring;
    static struct ct_page_orders orders;
    struct ct_page_order order;
    struct ct_error err = {0};

    if (ring == NULL) {
        int made = ct_key_ring_of(&key, true, &ring, NULL);
        CT_ASSERT(made == 0);
        ct_page_orders_init(&orders, (const unsigned char *)"fuzz of the page");
    }
    int code = ct_page_orders_take(&orders, NOW_MS, ring, text, size, -1, &order, &err);
    CT_ASSERT(code != 0 && err.text[0] != '\0');
}

static void check_path(const char *path)
{
    const char *type = "";
    struct ct_buf page;

    ct_buf_init(&page, 0);
    enum ct_page_kind kind =
        ct_page_put(&(struct ct_page_view){.now_ms = NOW_MS}, path, &page, &type);
    CT_ASSERT(kind == CT_PAGE_PUT || page.size == 0);
    ct_buf_deinit(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ct_http_rules rules = {.may_post = true, .room = REQUEST_BYTES};
    char text[REQUEST_BYTES + 1];
    struct ct_http_request request;

    size = CT_MIN(size, (size_t)REQUEST_BYTES);
    memcpy(text, data, size);
    text[size] = '\0';
    check_order(text, size);
    int status = ct_http_parse(text, size, &rules, &request);
    CT_ASSERT(status == 0 || status == 200 || (status >= 400 && status < 500));
    if (status != 200)
        return 0;
    CT_ASSERT(request.path >= text && request.path[0] == '/' &&
              request.path + strlen(request.path) < text + size);
    check_path(request.path);
    if (request.body == NULL)
        return 0;
    CT_ASSERT(request.body >= text && request.body + request.body_size <= text + size);
    check_order(request.body, request.body_size);
    return 0;
}
