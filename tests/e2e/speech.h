/* What programs say under log.format json: each line one record, and what a person would have read.
 *
 * With TEST_JSON=1 every ctrun, ctrund and ctworker that a test starts is asked for records, by its
 * environment or as an option. A line that is none fails the test and is named. proc->text holds
 * what the records say in the words of the text format, so that scenarios wait and compare as they
 * do without. */
#ifndef TESTS_SPEECH_H
#define TESTS_SPEECH_H

#include <jansson.h>
#include <stdbool.h>

/* True with TEST_JSON=1: forms of the text alone (prefixes, tables, bars) are not to be seen. */
bool speech_is_json(void);

/* What a file of such output says, in words; without TEST_JSON the text itself. Static. */
const char *speech_words(const char *text);

/* Fail unless the record has what its kind promises (base/record.h); `line` names it. */
void speech_check(const json_t *record, const char *line);

#endif
