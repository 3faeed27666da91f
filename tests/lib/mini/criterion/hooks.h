/* Hooks live in the one header of the stand-in. */
#include <criterion/criterion.h>
