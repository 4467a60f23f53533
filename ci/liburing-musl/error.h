/* error(3), which musl does not have. */
#include <err.h>
#include <errno.h>
#include <time.h>

#define error(status, number, ...) (errno = (number), err(status, __VA_ARGS__))
