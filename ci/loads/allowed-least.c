/* The least that a preloaded library must do: a function for each call that it has to see, which makes
 * the call. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/syscall.h>

static long made(long n, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) return errno = -result, -1;
    return result;
}

long syscall(long n, ...) {
    long a[6];
    va_list list;
    va_start(list, n);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    return made(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int poll(struct pollfd *fds, nfds_t n, int timeout) {
    return made(SYS_poll, (long)fds, n, timeout, 0, 0, 0);
}

int dup(int fd) {
    return made(SYS_dup, fd, 0, 0, 0, 0, 0);
}

int close(int fd) {
    return made(SYS_close, fd, 0, 0, 0, 0, 0);
}
