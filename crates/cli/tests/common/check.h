/* A check of a test program: the program ends with a line if it fails. The first header. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define CHECK(what)                                                      \
    do {                                                                 \
        if (!(what)) {                                                   \
            printf("line %d: %s (errno %d)\n", __LINE__, #what, errno);  \
            fflush(stdout);                                              \
            _exit(1);                                                    \
        }                                                                \
    } while (0)
