/* Amounts as people read them: "1.50 GiB", "312.00 TFLOP", "1:02:03". */
#ifndef CT_BASE_SCALE_H
#define CT_BASE_SCALE_H

enum { CT_SCALE_SIZE = 32 };

/* Format bytes in powers of 1024: "64 B", "25.00 MiB". Returns `text`. */
const char *ct_scale_bytes(double bytes, char text[CT_SCALE_SIZE]);

/* Format an amount in powers of 1000 of `unit`: "640 FLOP", "1.50 TFLOP". Returns `text`. */
const char *ct_scale_unit(double amount, const char *unit, char text[CT_SCALE_SIZE]);

/* Format seconds: "12.3 us", "4.56 ms", "7.80 s". Returns `text`. */
const char *ct_scale_seconds(double seconds, char text[CT_SCALE_SIZE]);

/* Format seconds as on a clock: "0:07", "12:34", "1:02:03", "3d 4:05:06"; "?" for a value that is
 * no duration. Returns `text`. */
const char *ct_scale_clock(double seconds, char text[CT_SCALE_SIZE]);

#endif
