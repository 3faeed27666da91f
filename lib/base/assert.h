/* Assertions for our own bugs, on in every build; never for input. */
#ifndef CT_BASE_ASSERT_H
#define CT_BASE_ASSERT_H

/* Print "file:line: function: assertion `text` failed" to stderr and abort. */
_Noreturn void ct_assert_fail(const char *text, const char *file, int line, const char *function);

#define CT_ASSERT(condition) \
    ((condition) ? (void)0 : ct_assert_fail(#condition, __FILE__, __LINE__, __func__))

#define CT_COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* Each evaluates the argument that it returns twice. */
#define CT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CT_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
