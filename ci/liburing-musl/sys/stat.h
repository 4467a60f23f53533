/* musl's header, and the kernel's `struct statx`, which musl before 1.2.4 does not have. */
#include_next <sys/stat.h>
#include <linux/stat.h>
