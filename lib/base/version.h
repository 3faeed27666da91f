/* The version of ctrun, of all its programs and of the library alike. */
#ifndef CT_BASE_VERSION_H
#define CT_BASE_VERSION_H

#define CT_VERSION "0.1.0"

#endif
