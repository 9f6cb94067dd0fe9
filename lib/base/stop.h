/* Ctrl-C and SIGTERM: the first asks for a clean stop after the prompt in hand, the second ends the
 * process at once (130). */
#ifndef CKVC_BASE_STOP_H
#define CKVC_BASE_STOP_H

#include <stdbool.h>

void ckvc_stop_install(void);
bool ckvc_stop_requested(void);

#endif
